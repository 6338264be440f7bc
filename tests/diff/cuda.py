#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU trainers on an emulated GPU train what CPU trainers train; their kernels compile for GPUs.

    cuda.py [--only TEXT] [--list] [--jobs N] [--verbose]

1. Emulated (`--arch host`): a few layouts of gpt.dz, llama.dz and moe.dz, messages staged or over an emulated NCCL, cut down to a few layers and steps because blocks of threads
   are played by one thread. Losses, gradient norms and parameters against the CPU trainer on one rank, within the bounds of
   trainings.py. Every run has --check-memory: arena peak and bytes sent are the plan's.
2. Compiled, every sixth commit: trainers of example models for sm_90, where NVRTC is on this machine; with ZPLAN_LONG in the environment in more types.
3. Samples of different lengths, and images, against PyTorch's committed values.
4. Algorithms of products are in the log and in checkpoints, and a run that goes on with others says so.
5. Without a driver such a trainer ends with one message.
"""
import ctypes
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS = 2
GPU = ("--cluster", "gpu", "--arch", "host")
NCCL = ("--", "--comm", "nccl")  # an emulated one
SMALL = {"model.layers": 2}
ARCH = "sm_90"
EXIT_REFUSED = 1

GROUPS = {"plan.expert": 2, "model.n": 4, "model.groups": 2, "model.top_groups": 1}  # of experts


def layout(model, precision, t, p, d, more=None, nccl=False, **settings):
    one = trainings.layout(model, t, p, d, dict(SMALL, **(more or {})), words=GPU + (NCCL if nccl else ()), precision=precision, batch=4,
                           **settings)
    return one._replace(name=one.name + (" nccl" if nccl else ""))


TABLE = (
    layout("gpt", "fp64", 1, 1, 1),
    layout("gpt", "fp64", 2, 1, 1, recompute="full", recompute_shard="tensor"),
    layout("gpt", "fp64", 1, 2, 1, recompute="selective", cut="block"),
    layout("gpt", "fp64", 1, 1, 2),
    layout("gpt", "fp64", 2, 1, 2, zero=1),
    layout("gpt", "fp32", 1, 1, 1),
    layout("gpt", "fp32", 1, 2, 2, zero=1),
    layout("llama", "fp64", 2, 2, 1, recompute="full"),
    layout("moe", "fp64", 2, 1, 1, recompute="full"),  # experts cut over tensor ranks
    layout("moe", "fp64", 1, 1, 4, zero=1, more=GROUPS),  # whole ones over data ranks
    layout("moe", "fp64", 1, 1, 4, zero=2, more=GROUPS),  # their buckets come and go alongside the units
    layout("moe", "fp64", 1, 2, 2, zero=3, more=GROUPS, nccl=True),
    layout("moe", "fp32", 1, 1, 1),
    layout("gpt", "fp64", 1, 2, 2, schedule="interleaved", chunks=2, recompute="full", zero=1, nccl=True),
    layout("gpt", "fp64", 2, 2, 1, schedule="zb_v", chunks=2, nccl=True),
    layout("moe", "fp64", 1, 2, 2, more=GROUPS, recompute="full", nccl=True),
    layout("llama", "fp32", 2, 1, 1, recompute="selective"),
    # Gradients are summed over the data ranks alongside the last backward: tied weights on one stage, on two, on one by two chunks; a
    # backward in two parts; sequence-split norms; uneven heads, whose padding takes part in no sum.
    layout("gpt", "fp64", 1, 2, 2, schedule="zb_v", chunks=2),
    layout("gpt", "fp64", 1, 2, 2, schedule="zb_h1", zero=1, nccl=True),
    layout("llama", "fp64", 2, 1, 2, zero=1, more={"sequence": True}),
    layout("llama", "fp64", 1, 2, 2, schedule="gpipe", nccl=True),
    layout("gpt", "fp64", 1, 1, 3, zero=1, more={"batch": 6}, nccl=True),
    # Products with epilogues, which f64 does not have: with the residual, which dropout would keep apart; a bias's gradient that several
    # micro-batches add to; gelu that is computed again from what it is taken of; a backward in two parts; parameters in buckets.
    layout("gpt", "fp32", 1, 1, 1, more={"dropout": 0.0}, keep=trainings.KEPT + ("dropout",), microbatch=2),
    layout("gpt", "fp32", 2, 2, 1, more={"dropout": 0.0}, keep=trainings.KEPT + ("dropout",), recompute="selective"),
    layout("gpt", "fp32", 1, 2, 1, schedule="zb_h1", cut="block"),
    layout("gpt", "fp32", 1, 1, 2, zero=3, recompute="full", microbatch=1),
)


# ---- emulated ----

class Gpus(trainings.Suite):
    always = TABLE[:1]  # check_resume
    value_turns = 6


def check_resume(suite, folder):
    """A GPU trainer goes on from the checkpoint of a CPU trainer."""
    place = os.path.join(folder, "resume")
    os.makedirs(place)
    one = TABLE[0]
    trainings.train(one.model, dict(one.reference), place, 1)
    got = trainings.train(one.model, dict(one.settings), place, STEPS, GPU + ("--resume",))
    trainings.judge(suite.tally, one.name + " resumed", got, suite.references[one.model, one.reference], trainings.BOUNDS[one.group])


def check_algorithms(tally, folder):
    """The log has every product with its algorithm; a run that goes on with others than the checkpoint's says so."""
    place = os.path.join(folder, "algorithms")
    checkpoints, log, told = os.path.join(place, "ck"), os.path.join(place, "log.jsonl"), "products are not computed as before"
    words = ["run", os.path.join(HERE, "gpt.dz"), "--ranks", 1, "-o", os.path.join(place, "tree"), "--log", log, "--threads", 1, *GPU]
    for key, value in TABLE[0].settings:
        words += ["--set", "%s=%s" % (key, json.dumps(value))]

    def train(steps, *more):
        return harness.zplan(*words, "--steps", steps, *more, "--", "--checkpoint", checkpoints, env=trainings.ENVIRONMENT)

    outcome = train(1)
    if not tally.check("a run that writes its algorithms down", outcome.status == 0, outcome.tail()):
        return
    with open(log, encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    shapes = [event for event in events if event.get("event") == "product"]
    tally.check("every product is in the log", len(shapes) >= 12 and all(len(shape["algorithm"]) == 9 for shape in shapes), "%d" % len(shapes))
    outcome = train(2, "--resume")
    tally.check("the same algorithms", outcome.status == 0 and told not in outcome.out, outcome.tail())
    place = harness.step_folder(checkpoints, 2)
    manifest = harness.read_manifest(place)
    manifest["products"] = re.sub(r"algorithms [0-9a-f]{16}", "algorithms " + 16 * "0", manifest["products"])
    harness.write_manifest(place, manifest)
    outcome = train(3, "--resume")
    tally.check("other algorithms", outcome.status == 0 and outcome.out.count(told) == 1, outcome.tail())


# ---- samples of different lengths, and images ----

# Model, precision, tensor, pipeline; the bound of losses and norms against PyTorch's in f32: that of tests/torch/compare.py in f32, there 2^-8 / 20 in bf16.
LENGTHS = (("bert", "fp64", 1, 1, 1e-5), ("lines", "fp64", 2, 2, 1e-5), ("lines", "fp32", 2, 1, 1e-5), ("bert", "mixed_bf16", 2, 1, 2.0 ** -8 / 20),
           ("lines", "mixed_bf16", 1, 2, 2.0 ** -8 / 20), ("vit", "fp64", 1, 2, 1e-12), ("audio", "fp64", 2, 1, 1e-12),
           ("vit", "fp32", 2, 1, 1e-5), ("squad", "fp64", 2, 1, 1e-12), ("missing", "fp64", 2, 1, 1e-12), ("axes", "fp64", 2, 1, 1e-12), ("packed", "fp64", 2, 1, 1e-12), ("packed", "mixed_bf16", 1, 1, 2.0 ** -8 / 20), ("squad", "mixed_bf16", 1, 2, 2.0 ** -8 / 20))  # in 16 bits: images.py


def check_validation(tally, title, log, expected, bound):
    """That after the last step: a mean over the labels of its samples, each once."""
    with open(log, encoding="utf-8") as lines:
        got = [event for event in map(json.loads, lines) if event.get("event") == "validate"][-1]
    for part, value in expected["losses"].items():
        error = max(harness.number_error(got["losses"][part], value), harness.number_error(got["accuracies"][part], expected["accuracies"][part]))
        tally.check("%s: validation, %s" % (title, part), error <= bound, "%.2e > %.0e" % (error, bound))


def check_lengths(tally, folder):
    """Encoders that see whole lines, padding masked, or images: what PyTorch says of their first steps (tests/torch/expected_*.json)."""
    models = sorted({one[0] for one in LENGTHS})
    # Every model trains on CPU ranks at every commit (tests/torch/compare.py): here one of a third of them, and a third of precisions and layouts.
    due = [one for one in LENGTHS if harness.my_turn(models.index(one[0]), 3)]
    for model, precision, tensor, pipeline, bound in trainings.in_turn(LENGTHS, due[:1], values=lambda one: set(enumerate(one[1:4])), among=3):
        place = os.path.join(harness.ROOT, "tests", "torch")
        with open(os.path.join(place, "expected_%s.json" % model), encoding="utf-8") as file:
            expected = json.load(file)
        source = os.path.join(place, model + ".dz")
        title = "%s %s t%d p%d" % (model, precision, tensor, pipeline)
        place = os.path.join(folder, title.replace(" ", "_"))
        log, looks = place + ".jsonl", model == "missing"
        outcome = harness.zplan("run", source, "--ranks", tensor * pipeline, "-o", place, "--steps", len(expected["losses"]) if looks else STEPS, "--log", log, "--threads", 1, *GPU, "--set",
                                'precision="%s"' % precision, "--set", "tensor=%d" % tensor, "--set", "pipeline=%d" % pipeline, "--check-memory",
                                "--", "--checkpoint", place + "-ck", env=trainings.ENVIRONMENT)
        if not tally.check(title, outcome.status == 0, outcome.tail()):
            continue
        if looks:
            check_validation(tally, title, log, expected["validation"], bound)
        steps = harness.read_log(log)[0][:STEPS]
        for part, values in expected.get("parts", {}).items():  # of several losses, every one by itself
            error = max(map(harness.part_error, [step["losses"][part] for step in steps], values[:STEPS]))
            tally.check("%s: %s" % (title, part), error <= bound, "%.2e > %.0e" % (error, bound))
        for key, name, factor in (("losses", "loss", 1), ("grad_norms", "grad_norm", 12)):
            error = max(map(harness.number_error, [step[name] for step in steps], expected[key][:STEPS]))
            tally.check("%s: %s" % (title, key), error <= factor * bound, "%.2e > %.0e" % (error, factor * bound))


# ---- compiled ----

WRAPPER = """use std.hw
use "%s" as m
cluster gpu { nodes = 1  node = std.hw.workstation(devices = 2 * std.hw.h100_pcie) }
train {
  model = m.%s()  batch = 8  steps = 2  precision = "%s"  data = synthetic(seed = 1)
  optimizer = adamw(lr = 1e-3)
}
"""
# NVRTC takes 20 s a trainer, most of it for kernels written by hand, which tests/unit/test_kernels_cuda_nvrtc.c compiles in all types: trainers in
# others than bf16, whose generated kernels have f32 as well, wait for tests/long.sh.
EXAMPLES = (("gpt2", "mixed_bf16", 1),)
MORE_EXAMPLES = (("gpt2", "fp32", 1), ("gpt_tiny", "fp64", 2), ("llama_tiny", "mixed_bf16", 2), ("llama_tiny", "mixed_fp16", 2))


def opens(*names):
    for name in names:
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            pass
    return False


def check_builds(tally, folder, name, precision, ranks):
    """The trainer's path; None where it does not build, or no NVRTC is on this machine."""
    source = os.path.join(folder, "%s_%s.dz" % (name, precision))
    model = os.path.relpath(os.path.join(harness.ROOT, "examples", name + ".dz"), os.path.realpath(folder))
    with open(source, "w", encoding="utf-8") as file:
        file.write(WRAPPER % (model, name, precision))
    outcome = harness.zplan("build", source, "--ranks", ranks, "--target", "cuda", "--arch", ARCH, "-o", source[:-3])
    if "there is no NVRTC" in outcome.err:
        print("no NVRTC here: kernels of %s in %s are not compiled for %s" % (name, precision, ARCH))
        return None
    good = tally.check("%s in %s builds for %s" % (name, precision, ARCH), outcome.status == 0, outcome.tail())
    return outcome.out.strip() if good else None


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
    for name, precision, ranks in EXAMPLES + (MORE_EXAMPLES if os.environ.get("ZPLAN_LONG") else ()):
        trainer = check_builds(tally, folder, name, precision, ranks)
        if trainer and ranks == 1:
            check_no_driver(tally, trainer)


def main():
    options = trainings.arguments("GPU trainers, emulated and compiled").parse_args()
    table = [one for one in TABLE if options.only in one.name]
    if options.list:
        print("\n".join(one.name for one in table))
        return 0
    harness.require_zplan()
    with harness.Scratch() as folder:
        suite = Gpus(table, folder, options.jobs, options.verbose, steps=STEPS)
        suite.run()
        if not options.only:
            check_resume(suite, folder)
            check_algorithms(suite.tally, folder)
            check_lengths(suite.tally, folder)
            if harness.my_turn(0):
                check_compiled(suite.tally, folder)
        return suite.tally.finish()


if __name__ == "__main__":
    sys.exit(main())
