#!/usr/bin/env python3
"""GPU trainers on an emulated GPU train what CPU trainers train; their kernels compile for GPUs.

    cuda.py [--verbose]

1. Emulated (`--arch host`): a few layouts of gpt.dz and llama.dz, cut down to a few layers and steps because blocks of threads
   are played by one thread. Losses, gradient norms and parameters against the CPU trainer on one rank, within the bounds of
   layouts.py. Every run has --check-memory: arena peak and bytes sent are the plan's.
2. Compiled: trainers of the example models for sm_90, where NVRTC is on this machine.
3. Without a driver such a trainer ends with one message.
"""
import argparse
import ctypes
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import layouts  # noqa: E402
from layouts import Case, harness  # noqa: E402

STEPS = 2
GPU = ("--cluster", "gpu", "--arch", "host")
SMALL = ("--set", "model.layers=2")
NONE, FULL, SELECTIVE = 0, 1, 2  # indices into layouts.RECOMPUTE
ARCH = "sm_90"
EXIT_REFUSED = 1


def case(model, precision, t, p, d, zero=0, recompute=NONE, shard=0, cut="layer"):
    return Case(model, precision, t, p, d, zero, recompute, shard, 1, 4, (), cut)


CASES = (
    case("gpt", "fp64", 1, 1, 1),
    case("gpt", "fp64", 2, 1, 1, recompute=FULL, shard=1),
    case("gpt", "fp64", 1, 2, 1, recompute=SELECTIVE, cut="block"),
    case("gpt", "fp64", 1, 1, 2),
    case("gpt", "fp64", 2, 1, 2, zero=1),
    case("gpt", "fp32", 1, 1, 1),
    case("gpt", "fp32", 1, 2, 2, zero=1),
    case("llama", "fp64", 2, 2, 1, recompute=FULL),
    case("llama", "fp32", 2, 1, 1, recompute=SELECTIVE),
)


# ---- emulated ----

def check_resume(tally, folder, want):
    """A GPU trainer goes on from the checkpoint of a CPU trainer."""
    place = os.path.join(folder, "resume")
    os.makedirs(place)
    one = CASES[0]
    layouts.train(layouts.reference_of(one), place, 1, SMALL)
    got = layouts.train(one, place, STEPS, SMALL + GPU + ("--resume",))
    layouts.judge(tally, one, got, want)


def check_emulated(tally, folder, verbose):
    references, largest = {}, {}
    for number, one in enumerate(CASES):
        reference = layouts.reference_of(one)
        if reference not in references:
            place = os.path.join(folder, "cpu%d" % number)
            os.makedirs(place)
            references[reference] = layouts.train(reference, place, STEPS, SMALL)
        place = os.path.join(folder, "gpu%d" % number)
        os.makedirs(place)
        got = layouts.train(one, place, STEPS, SMALL + GPU)
        errors = layouts.judge(tally, one, got, references[reference]) or {}
        for quantity, error in errors.items():
            largest[one.precision, quantity] = max(largest.get((one.precision, quantity), 0.0), error)
        if verbose:
            print("%5.2f s  %s: %s" % (got.seconds, layouts.name_of(one), errors), flush=True)
    check_resume(tally, folder, references[layouts.reference_of(CASES[0])])
    for (precision, quantity), error in sorted(largest.items()):
        print("largest error, emulated GPU, %s, %s: %.2e of %.0e allowed" % (precision, quantity, error,
                                                                           layouts.BOUNDS[precision][quantity]))


# ---- compiled ----

WRAPPER = """use std.hw
use "%s" as m
cluster gpu { nodes = 1  node = std.hw.workstation(devices = 2 * std.hw.h100_pcie) }
train {
  model = m.%s()  batch = 8  steps = 2  precision = "%s"  data = synthetic(seed = 1)
  optimizer = adamw(lr = 1e-3)
}
"""
EXAMPLES = (("gpt_tiny", "fp32", 1), ("gpt_tiny", "fp64", 2), ("llama_tiny", "fp32", 2), ("gpt2", "fp32", 1))


def opens(*names):
    for name in names:
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            pass
    return False


def build(folder, name, precision, ranks):
    source = os.path.join(folder, "%s_%s.dz" % (name, precision))
    model = os.path.relpath(os.path.join(harness.ROOT, "examples", name + ".dz"), os.path.realpath(folder))
    with open(source, "w", encoding="utf-8") as file:
        file.write(WRAPPER % (model, name, precision))
    return harness.zplan("build", source, "--ranks", ranks, "--target", "cuda", "--arch", ARCH, "-o", source[:-3])


def check_no_driver(tally, trainer):
    if opens("libcuda.so.1"):
        print("there is a CUDA driver: what a trainer says without one is not tested")
        return
    outcome = harness.run([trainer])
    errors = [line for line in outcome.err.splitlines() if line]
    tally.check("without a driver a trainer ends with status %d" % EXIT_REFUSED, outcome.status == EXIT_REFUSED,
                "exit %d\n%s" % (outcome.status, outcome.tail()))
    tally.check("and one message", len(errors) == 1 and errors[0].startswith("error[Z085") and "libcuda" in errors[0], outcome.err)


def check_compiled(tally, folder):
    doctor = harness.zplan("doctor").out
    if not any("NVRTC" in line and "not found" not in line for line in doctor.splitlines()):
        print("no NVRTC here: kernels are not compiled for %s" % ARCH)
        return
    for name, precision, ranks in EXAMPLES:
        outcome = build(folder, name, precision, ranks)
        tally.check("%s in %s builds for %s" % (name, precision, ARCH), outcome.status == 0, outcome.tail())
        if outcome.status == 0 and ranks == 1 and name == "gpt_tiny":
            check_no_driver(tally, outcome.out.strip())


def main():
    parser = argparse.ArgumentParser(description="GPU trainers, emulated and compiled")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_compiled(tally, folder)
        check_emulated(tally, folder, options.verbose)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
