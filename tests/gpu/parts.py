#!/usr/bin/env python3
"""The parts of run.sh: each is run, its output kept, its findings written to results.json as they come.

    parts.py RESULTS [--arch ARCH --gpus N]      the options pretend: for trying this script with --arch host
"""
import argparse
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

# f32 on two kinds of processors; tests/diff/layouts.py says where these come from.
LOSS_BOUND, NORM_BOUND = 5e-6, 1e-4
# The library device whose rates the plan is made with: words of the GPU's name, the first that is found.
DEVICES = (("V100", "v100_sxm2_32"), ("A100", "a100_80"), ("H100 PCIe", "h100_pcie"), ("H100", "h100_sxm"), ("H200", "h200"),
           ("B200", "b200"), ("4090", "rtx4090"), ("3090", "rtx3090"))
DZ = """use std.hw
use "%(model_file)s" as m

device here { base = std.hw.%(base)s  arch = "%(arch)s"  memory = %(memory)dMiB }
cluster gpu { nodes = 1  node = std.hw.workstation(devices = %(gpus)d * here) }
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = %(cores)d, memory = %(host_memory)dGiB) }
train {
  model = m.%(model)s()  batch = %(batch)d  steps = %(steps)d  precision = "fp32"
  data = text("%(text)s", order = "shuffled")
  optimizer = adamw(lr = 3e-4)  clip = 1.0
}
"""
# name, model, batch, steps on the GPU, steps that the CPU trainer is asked for too (0: all)
MODELS = (("gpt_tiny", 32, 100, 20), ("gpt2", 4, 30, 3))
LAYOUTS = (("tensor", 2, 1, 1, 0), ("pipeline", 1, 2, 1, 0), ("data", 1, 1, 2, 0), ("data, ZeRO 1", 1, 1, 2, 1), ("tensor x data", 2, 1, 2, 1),
           ("pipeline x data", 1, 2, 2, 1), ("tensor x pipeline x data", 2, 2, 2, 1))
CHUNKS = (("interleaved", 1, 2, 1, 0, "schedule=\"interleaved\"", "chunks=2"), ("folded (ZB-V)", 1, 2, 1, 0, "schedule=\"zb_v\"", "chunks=2"),
          ("interleaved x data", 1, 2, 2, 1, "schedule=\"interleaved\"", "chunks=2"))
# In f64: where two scores are nearly equal, an f32 rounding sends a token to another expert.
EXPERTS_WORDS = ("precision=fp64", "train.data=synthetic(seed = 1)", "model.n=4")
EXPERTS = (("experts", 1, 1, 1, 0), ("experts cut over tensor ranks", 2, 1, 1, 0), ("experts over data ranks", 1, 1, 2, 0, "plan.expert=2"),
           ("experts over data ranks, pipeline", 1, 2, 2, 1, "plan.expert=2"))
# Against CPU ranks of the same layout, in f64 and of a model without gradients that are rounding noise: signs hang on every bit.
ONE_BIT = (("1-bit Adam", 1, 1, 2, 0), ("1-bit Adam, pipeline", 1, 2, 2, 0))
ONE_BIT_WORDS = ("compress=true", "precision=fp64", "optimizer=adamw(lr = 3e-4, freeze_step = %d)")


class Report:
    def __init__(self, folder):
        self.folder, self.found, self.bad = folder, [], 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def say(self, text):
        print(text, flush=True)
        with open(self.path("summary.txt"), "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def add(self, part, good, detail, **numbers):
        """One finding. good: None where there is nothing to judge."""
        self.bad += good is False
        self.found.append(dict(part=part, good=good, detail=detail, **numbers))
        with open(self.path("results.json"), "w", encoding="utf-8") as file:
            json.dump(self.found, file, indent=1)
        self.say("%-4s %s: %s" % ({True: "good", False: "BAD", None: ""}[good], part, detail))

    def keep(self, name, outcome):
        with open(self.path(name + ".out"), "w", encoding="utf-8") as file:
            file.write(outcome.out + outcome.err)


# ---- the machine ----

def query(*fields):
    return subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"], capture_output=True,
                          text=True, check=True).stdout.strip().splitlines()


def machine_of(options):
    """What the .dz files say about this machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    m = {"cores": os.cpu_count(), "host_memory": max(1, memory // 2**30)}
    if options.arch:
        return dict(m, name="pretended", base="rtx4090", arch="sm_89", memory=24000, gpus=options.gpus, words=("--arch", options.arch))
    rows = [row.split(", ") for row in query("name", "compute_cap", "memory.total")]
    name, capability, megabytes = rows[0]
    base = next((device for word, device in DEVICES if all(part in name for part in word.split())), "h100_sxm")
    return dict(m, name=name, base=base, arch="sm_" + capability.replace(".", ""), memory=int(float(megabytes)), gpus=len(rows),
                words=())


def check_tools(report, machine):
    doctor = harness.zplan("doctor")
    report.keep("doctor", doctor)
    for tool in ("CUDA driver", "NVRTC", "NCCL"):
        line = next((line for line in doctor.out.splitlines() if line.strip().startswith(tool)), tool + " not in `zplan doctor`")
        needed = not machine["words"] and (tool != "NCCL" or machine["gpus"] > 1)
        report.add("tools", ("not " not in line) if needed else None, " ".join(line.split()))


def calibrate(report):
    file = report.path("calibration.json")
    outcome = harness.zplan("calibrate", "-t", 60, "-o", file, timeout=400)
    report.keep("calibrate", outcome)
    rows = outcome.out.count("gpu_")
    report.add("calibrate", outcome.status == 0 and rows > 0, "exit %d, %d rows about the GPU" % (outcome.status, rows))
    return file if outcome.status == 0 and rows else None


# ---- trainings ----

def write_model(report, machine, model, batch, steps):
    path = report.path(model + ".dz")
    values = dict(machine, model=model, batch=batch, steps=steps, text=os.path.join(harness.ROOT, "README.md"),
                  model_file=os.path.join(harness.ROOT, "tests/diff" if model == "moe" else "examples", model + ".dz"))
    with open(path, "w", encoding="utf-8") as file:
        file.write(DZ % values)
    return path


def train(report, name, path, words, timeout=600):
    """(records of steps, end record, Outcome) of one training."""
    log = report.path(name + ".jsonl")
    if os.path.exists(log):
        os.remove(log)
    outcome = harness.zplan("run", path, "-o", report.path(name), "--log", log, *words, timeout=timeout)
    report.keep(name, outcome)
    steps, end = harness.read_log(log) if os.path.exists(log) else ([], None)
    return steps, end or {}, outcome


def compare(report, part, got, want):
    """Losses and norms of the steps that both have."""
    both = min(len(got), len(want))
    loss = max((harness.number_error(a["loss"], b["loss"]) for a, b in zip(got, want)), default=float("inf"))
    norm = max((harness.number_error(a["grad_norm"], b["grad_norm"]) for a, b in zip(got, want)), default=float("inf"))
    report.add(part, both > 0 and loss <= LOSS_BOUND and norm <= NORM_BOUND,
               "%d steps, largest error of losses %.1e (allowed %.0e), of norms %.1e (allowed %.0e)" % (both, loss, LOSS_BOUND, norm, NORM_BOUND),
               steps=both, loss_error=loss, norm_error=norm)


def time_of(report, part, steps, end):
    measured, planned = end.get("median_step_ms"), end.get("predicted_step_ms")
    if measured and planned:
        report.add(part, None, "step %.3f ms measured (median of %d), %.3f ms planned: ratio %.2f" % (measured, len(steps), planned, planned / measured),
                   measured_ms=measured, planned_ms=planned)


def train_one(report, machine, calibration, model, batch, steps, cpu_steps):
    """The model on one GPU, then on the CPU; the steps of the CPU, or None."""
    path = write_model(report, machine, model, batch, steps)
    words = ["--cluster", "gpu", "--ranks", 1, "--check-memory", *machine["words"]]
    if calibration:
        words += ["--calibration", calibration]
    got, end, outcome = train(report, model + "_gpu", path, words)
    report.add("%s on one GPU" % model, outcome.status == 0, "exit %d, %d steps, memory and traffic as planned" % (outcome.status, len(got))
               if outcome.status == 0 else outcome.tail(3))
    time_of(report, "%s, time" % model, got, end)
    want, _, outcome = train(report, model + "_cpu", path, ["--cluster", "cpu", "--ranks", 1, "--steps", cpu_steps])
    if outcome.status != 0:
        report.add("%s on the CPU" % model, False, outcome.tail(3))
        return path, None
    compare(report, "%s, GPU against CPU" % model, got, want)
    return path, want


def words_of(layout, more=()):
    _, t, p, d, zero = layout[:5]
    words = []
    for pin in ("tensor=%d" % t, "pipeline=%d" % p, "plan.data=%d" % d, "zero=%d" % zero, *layout[5:], *more):
        words += ["--set", pin]
    return ["--ranks", t * p * d, *words]


def train_layouts(report, machine, path, layouts, want, more=(), steps=20):
    """want: steps to agree with, or a function that trains them for a layout."""
    for comm in ("nccl", "staged"):
        for number, layout in enumerate(layouts):
            ranks = layout[1] * layout[2] * layout[3]
            if ranks > machine["gpus"]:
                continue
            label = "%s over %s" % (layout[0], comm)
            got, end, outcome = train(report, "%s_%d_%s" % (os.path.basename(path)[:-3] + ("_" + more[0] if more else ""), number, comm), path,
                                      ["--cluster", "gpu", "--check-memory", *machine["words"], *words_of(layout, more), "--steps", steps, "--",
                                       "--comm", comm])
            if outcome.status != 0:
                report.add(label, False, outcome.tail(3))
                continue
            compare(report, label, got, want(layout) if callable(want) else want or [])
            time_of(report, label + ", time", got, end)


def train_experts(report, machine, steps=20):
    path = write_model(report, machine, "moe", 8, steps)
    want, _, outcome = train(report, "moe_cpu", path, ["--cluster", "cpu", "--steps", steps, *words_of(EXPERTS[0], EXPERTS_WORDS)])
    if outcome.status != 0:
        report.add("experts on the CPU", False, outcome.tail(3))
        return
    train_layouts(report, machine, path, EXPERTS, want, EXPERTS_WORDS, steps)


def train_one_bit(report, machine, steps=20):
    """Half of the steps are plain Adam, the others compressed."""
    path, words = write_model(report, machine, "llama_tiny", 4, steps), (*ONE_BIT_WORDS[:2], ONE_BIT_WORDS[2] % (steps // 2))

    def on_cpus(layout):
        return train(report, "one_bit_cpu", path, ["--cluster", "cpu", "--steps", steps, *words_of(layout, words)])[0]
    train_layouts(report, machine, path, ONE_BIT, on_cpus, words, steps)


def guarded(report, part, function, *arguments):
    """A part that breaks is a finding, not the end."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001
        report.add(part, False, "%s: %s" % (type(error).__name__, error))
        return None


def main():
    parser = argparse.ArgumentParser(description="trains on the GPUs of this machine")
    parser.add_argument("results")
    parser.add_argument("--arch", help="pretend: pass this --arch, `host`")
    parser.add_argument("--gpus", type=int, default=2, help="pretend: so many GPUs")
    options = parser.parse_args()
    harness.require_zplan()
    report = Report(os.path.abspath(options.results))
    os.makedirs(report.folder, exist_ok=True)
    for old in ("summary.txt", "results.json"):
        if os.path.exists(report.path(old)):
            os.remove(report.path(old))
    began = time.time()
    machine = machine_of(options)
    report.add("machine", None, "%d x %s, %s, planned as %s" % (machine["gpus"], machine["name"], machine["arch"], machine["base"]), **machine)
    guarded(report, "tools", check_tools, report, machine)
    calibration = None if options.arch else guarded(report, "calibrate", calibrate, report)
    models = MODELS if not options.arch else (("gpt_tiny", 4, 3, 3),)
    first = None
    for model, batch, steps, cpu_steps in models:
        trained = guarded(report, model, train_one, report, machine, calibration, model, batch, steps, cpu_steps)
        first = first or trained
    few = 4 if options.arch else 20
    guarded(report, "experts", train_experts, report, machine, few)
    if first and machine["gpus"] > 1:
        path, want = first
        guarded(report, "layouts", train_layouts, report, machine, path, LAYOUTS + CHUNKS, want, (), len(want or []) or 20)
        guarded(report, "1-bit Adam", train_one_bit, report, machine, few)
    elif machine["gpus"] == 1:
        report.add("layouts", None, "one GPU: nothing to communicate with")
    good = sum(one["good"] is True for one in report.found)
    report.say("%d passed, %d failed, %.0f s; %s" % (good, report.bad, time.time() - began, report.folder))
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main())
