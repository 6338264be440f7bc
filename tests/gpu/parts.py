#!/usr/bin/env python3
"""The parts of run.sh: each training is run, its output kept, its findings written as they come. One that fails does not keep the others
from running; what no time is left for is skipped, and said to be.

    parts.py RESULTS [--seconds N] [--only TEXT] [--arch host --gpus N]

--only: the parts with TEXT in their name. --arch host: the same parts on an emulated GPU, smaller, to try the script. Exit status: 0 nothing failed,
1 something did.
"""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import cases  # noqa: E402
import harness  # noqa: E402
import machine as machines  # noqa: E402
from report import Report  # noqa: E402

ONE_TRAINING_S = 150  # the longest that one may take
LEAST_S = 15  # less is not worth beginning with


def file_name(text):
    return "".join(letter if letter.isalnum() else "_" for letter in text)


class Trainings:
    """Runs trainings; what CPU ranks train is kept for all who compare with it."""

    def __init__(self, report, machine):
        self.report, self.machine, self.references = report, machine, {}
        self.steps = 2 if machine["words"] else 20

    def model_file(self, model, batch, steps):
        path = self.report.path("%s_%d_%d.dz" % (model, batch, steps))
        machines.write_model(path, self.machine, model, os.path.join(harness.ROOT, cases.FOLDERS.get(model, "examples")), batch, steps,
                             os.path.join(harness.ROOT, "README.md"))
        return path

    def run(self, name, *words, last=()):
        """(records of steps, end record, Outcome) of one training."""
        log = self.report.path(file_name(name) + ".jsonl")
        if os.path.exists(log):
            os.remove(log)
        outcome = harness.zplan("run", *words, "-o", self.report.path(file_name(name)), "--log", log, "--overwrite", "--", *last,
                                timeout=max(LEAST_S, min(ONE_TRAINING_S, self.report.left())))
        self.report.keep(file_name(name), outcome)
        steps, end = harness.read_log(log) if os.path.exists(log) else ([], None)
        return steps, end or {}, outcome

    def settings(self, case):
        small = ("model.layers=2",) if self.machine["words"] and case.model == cases.T else ()
        words = ["--ranks", cases.ranks_of(case)]
        for pin in ("tensor=%d" % case.tensor, "pipeline=%d" % case.pipeline, "plan.data=%d" % case.data, "zero=%d" % case.zero, *case.words, *small):
            words += ["--set", pin]
        return words

    def file_of(self, case):
        batch = cases.BATCHES.get(case.model, 4 if self.machine["words"] else 32)
        return self.model_file(case.model, batch, self.steps)

    def reference(self, case):
        """(steps of CPU ranks, None) or (None, why there are none)."""
        want = cases.reference_of(case)
        if str(want) not in self.references:
            steps, _, outcome = self.run("cpu %s %s" % (case.model, case.name), self.file_of(want), "--cluster", "cpu", *self.settings(want))
            self.references[str(want)] = (steps, None) if outcome.status == 0 else (None, outcome.tail(3))
        return self.references[str(want)]

    def planned(self, case, cluster):
        """Words of `zplan run`: the model, or with state off the device a plan's file, in which that is written. (None, why) if there is none."""
        words = [self.file_of(case), "--cluster", cluster, *self.settings(case)]
        if not case.homes:
            return words, None
        path = self.report.path(file_name(case.name) + "_plan.json")
        outcome = harness.zplan("plan", *words, "-o", path)
        if outcome.status != 0:
            return None, outcome.tail(3)
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        pairs = {state: home.split(":") for state, home in case.homes.items()}
        plan["offload"] = {state: {"tier": tier, "eighths": int(eighths)} for state, (tier, eighths) in pairs.items()}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        return [path], None


def compare(report, part, got, want, bounds):
    """Losses and norms of the steps that both have."""
    both = min(len(got), len(want))
    loss = max((harness.number_error(a["loss"], b["loss"]) for a, b in zip(got, want)), default=float("inf"))
    norms = [(a["grad_norm"], b["grad_norm"]) for a, b in zip(got, want)]
    odd = sum((a is None) != (b is None) for a, b in norms)  # skipped by one of the two
    norm = max((harness.number_error(a, b) for a, b in norms if a is not None and b is not None), default=0.0)
    report.add(part, both > 0 and loss <= bounds[0] and norm <= bounds[1] and odd == 0,
               "%d steps, memory and traffic as planned, largest error of losses %.1e (allowed %.0e), of norms %.1e (allowed %.0e)%s" %
               (both, loss, bounds[0], norm, bounds[1], ", %d steps skipped by one alone" % odd if odd else ""), steps=both, loss_error=loss, norm_error=norm)


def time_of(report, part, steps, end, pretended):
    measured, planned = end.get("median_step_ms"), end.get("predicted_step_ms")
    if measured and planned and not pretended:
        report.add(part, None, "step %.3f ms measured (median of %d), %.3f ms planned: ratio %.2f" % (measured, len(steps), planned, planned / measured),
                   measured_ms=measured, planned_ms=planned)


# ---- parts ----

def check_tools(trainings):
    report, machine = trainings.report, trainings.machine
    doctor = harness.zplan("doctor")
    report.keep("doctor", doctor)
    for tool in ("CUDA driver", "NVRTC", "NCCL"):
        line = next((line for line in doctor.out.splitlines() if line.strip().startswith(tool)), tool + " not in `zplan doctor`")
        needed = not machine["words"] and (tool != "NCCL" or machine["gpus"] > 1)
        report.add("tools", ("not " not in line) if needed else None, " ".join(line.split()))


def calibrate(trainings):
    report = trainings.report
    file = report.path("calibration.json")
    outcome = harness.zplan("calibrate", "-t", 40, "-o", file, timeout=120)
    report.keep("calibrate", outcome)
    rows = outcome.out.count("gpu_")
    report.add("calibrate", outcome.status == 0 and rows > 0, "exit %d, %d rows about the GPU" % (outcome.status, rows))
    return file if outcome.status == 0 and rows else None


def train_model(trainings, calibration, model, batch, steps, cpu_steps):
    """On one GPU, then on the CPU."""
    report, machine = trainings.report, trainings.machine
    path = trainings.model_file(model, batch, steps)
    words = [path, "--cluster", "gpu", "--ranks", 1, "--check-memory", *machine["words"]]
    if calibration:
        words += ["--calibration", calibration]
    got, end, outcome = trainings.run(model + " gpu", *words)
    part = "%s on one GPU" % model
    if outcome.status != 0:
        report.add(part, False, outcome.tail(3))
        return
    time_of(report, part + ", time", got, end, machine["words"])
    want, _, outcome = trainings.run(model + " cpu", path, "--cluster", "cpu", "--ranks", 1, "--steps", cpu_steps)
    if outcome.status != 0:
        report.add(part, False, "the CPU trainer: " + outcome.tail(3))
        return
    compare(report, part, got, want, cases.OTHER_BOUNDS)


def train_case(trainings, case):
    """Over NCCL where every rank has a GPU, and staged; one rank has nothing to say."""
    report, machine, ranks = trainings.report, trainings.machine, cases.ranks_of(case)
    comms = [""] if ranks == 1 else (["nccl"] if ranks <= machine["gpus"] else []) + ["staged"]
    if ranks > machine["devices"]:
        report.skip(case.name, "%d ranks, and %d are the most that are tried on %d GPUs" % (ranks, machine["devices"], machine["gpus"]))
        return
    for comm in comms:
        part = case.name + (", " + comm if comm else "")
        if report.left() < LEAST_S:
            report.skip(part, "no time left")
            continue
        words, why = trainings.planned(case, "gpu" if ranks <= machine["gpus"] else "shared")
        if not words:
            report.add(part, False, why)
            continue
        got, end, outcome = trainings.run(part, *words, "--check-memory", *machine["words"], last=("--comm", comm) if comm else ())
        want, why = trainings.reference(case) if outcome.status == 0 else (None, outcome.tail(3))
        if not want:
            report.add(part, False, why)
            continue
        compare(report, part, got, want, cases.bounds_of(case))
        if ranks <= machine["gpus"]:
            time_of(report, part + ", time", got, end, machine["words"])


def guarded(report, part, function, *arguments):
    """A part that breaks is a finding, not the end."""
    if report.left() < LEAST_S:
        report.skip(part, "no time left")
        return None
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001
        report.add(part, False, "%s: %s" % (type(error).__name__, error))
        return None


def main():
    parser = argparse.ArgumentParser(description="trains on the GPUs of this machine")
    parser.add_argument("results")
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--only", default="")
    parser.add_argument("--arch", help="pretend: pass this --arch, `host`")
    parser.add_argument("--gpus", type=int, default=2, help="pretend: so many GPUs")
    options = parser.parse_args()
    harness.require_zplan()
    report = Report(os.path.abspath(options.results), options.seconds)
    machine = machines.machine_of(options)
    trainings = Trainings(report, machine)
    report.add("machine", None, "%d x %s, %s, planned as %s" % (machine["gpus"], machine["name"], machine["arch"], machine["base"]), **machine)
    guarded(report, "tools", check_tools, trainings)
    if options.only in "models":
        calibration = None if options.arch else guarded(report, "calibrate", calibrate, trainings)
        for model in cases.MODELS if not options.arch else cases.PRETENDED_MODELS:
            guarded(report, model[0], train_model, trainings, calibration, *model)
    for name, table in cases.PARTS:
        for case in table:
            if options.only in name:
                guarded(report, case.name, train_case, trainings, case)
    report.write_page(machine, harness.ROOT)
    report.say("%s; %s" % (report.totals(), report.folder))
    print("%d passed, %d failed" % (report.count(True), report.count(False)))
    return 1 if report.count(False) else 0


if __name__ == "__main__":
    sys.exit(main())
