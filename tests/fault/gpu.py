#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad luck with a GPU, played by the emulated one (ZPLAN_EMULATED_TROUBLE): one message each, a documented exit status, nothing
half-written, and a run that goes on from what was written.

    gpu.py [TEXT]      only the tests whose name holds TEXT

What trainers and `zplan doctor` say without a driver, and of libraries: tests/verify/libraries.py.
"""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

ERROR, FAILED, MEMORY = 1, 5, 8  # driver/README.md
STEPS, EVERY = 6, 2
LOSSES = 8  # moments at which the GPU is lost
DZ = """use std.hw
use "%s" as m
cluster gpu { nodes = 1  node = std.hw.workstation(devices = 1 * std.hw.rtx4090) }
train {
  model = m.tiny(layers = 1, d = %d, heads = %d)  batch = 4  steps = %d  precision = "%s"  data = synthetic(seed = 1)
  optimizer = adamw(lr = 1e-3)
  checkpoint { dir = "out"  every = %d  keep = 2 }
}
"""


class Bench:
    def __init__(self, tally, folder):
        self.tally, self.folder = tally, folder

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def build(self, name, width, heads, precision):
        """A trainer for the emulated GPU."""
        source = self.path(name + ".dz")
        with open(source, "w", encoding="utf-8") as file:
            file.write(DZ % (os.path.join(HERE, "tiny.dz"), width, heads, STEPS, precision, EVERY))
        outcome = harness.zplan("build", source, "--ranks", 1, "--arch", "host", "-o", self.path(name))
        self.tally.check(name + " builds", outcome.status == 0, outcome.tail())
        return os.path.join(self.path(name), "trainer")

    def run(self, trainer, *words, trouble="", **env):
        if trouble:
            env["ZPLAN_EMULATED_TROUBLE"] = trouble
        return harness.run((trainer, "--checkpoint", self.path("ck"), "--log", self.path("log"), *words), env=env)

    def expect(self, name, outcome, status, *words):
        """The status, all the words, one error line and nothing besides."""
        self.tally.check("%s: status %d" % (name, status), outcome.status == status, "it was %d\n%s" % (outcome.status, outcome.tail()))
        lines = outcome.err.splitlines()
        self.tally.check(name + ": one message", len(lines) == 1 and lines[0].startswith("error["), outcome.err)
        for word in words:
            self.tally.check('%s: says "%s"' % (name, word), word in outcome.err, outcome.err)

    def clean(self):
        shutil.rmtree(self.path("ck"), ignore_errors=True)
        if os.path.exists(self.path("log")):
            os.remove(self.path("log"))

    def steps_kept(self):
        """Steps of whole checkpoints; None when there is anything else."""
        names = sorted(os.listdir(self.path("ck"))) if os.path.isdir(self.path("ck")) else []
        steps = [name for name in names if name.startswith("step_")]
        if names and names != ["latest"] + steps:
            return None
        for name in steps:
            with open(self.path("ck", name, "manifest.json"), encoding="utf-8") as file:
                files = json.load(file)["files"]
            if any(os.path.getsize(self.path("ck", name, one["name"])) != one["bytes"] for one in files):
                return None
        return [int(name[5:]) for name in steps]


def losses(path):
    return [(one["step"], one["loss"], one["grad_norm"]) for one in harness.read_log(path)[0]]


def test_before_the_first_step(bench):
    trainer = bench.build("plain", 32, 2, "fp32")
    for name, trouble, status, *words in (
            ("an old driver", "driver=11040", ERROR, "error[Z0851]", "the CUDA driver is one of CUDA 11.4, and 12.0 is the oldest"),
            ("no GPU", "gpus=0", ERROR, "error[Z0851]", "the CUDA driver finds none that can be used"),
            ("a GPU of another kind", "arch=1", FAILED, "error[Z0852]", "built for another kind of GPU than emulated GPU (slow, for checks), which is sm_86 (--arch"),
            ("a GPU without any memory left", "memory=0", MEMORY, "error[Z0822]", "cannot get memory for sums", "of whose 0 bytes 0 are free"),
            ("a GPU whose memory the arena exceeds", "memory=300000", MEMORY, "error[Z0822]", "cannot get an arena of", "of 300000 bytes are free")):
        bench.clean()
        bench.expect(name, bench.run(trainer, trouble=trouble), status, *words)
        bench.tally.check(name + ": nothing is written", bench.steps_kept() == [] and not os.path.exists(bench.path("log")))


def test_shared_memory(bench):
    trainer = bench.build("wide", 256, 2, "mixed_bf16")
    bench.clean()
    outcome = bench.run(trainer, trouble="shared=49152")
    bench.expect("too little shared memory for a head", outcome, FAILED, "error[Z0852]", "cannot run the kernel zpd_mma_",
                 "bytes of shared memory that heads of 128 columns take")
    bench.tally.check("too little shared memory: no checkpoint", bench.steps_kept() == [], str(bench.steps_kept()))
    bench.clean()
    outcome = bench.run(trainer, "--steps", 1)
    bench.tally.check("enough shared memory", outcome.status == 0, outcome.tail())


def test_lost_gpu(bench):
    """Lost at many moments, in steps, between them, while a checkpoint is written."""
    trainer = bench.build("lost", 32, 2, "fp32")
    bench.clean()
    counts = bench.path("counts")
    whole = bench.run(trainer, ZPLAN_EMULATED_COUNTS=counts)
    bench.tally.check("a whole run", whole.status == 0 and bench.steps_kept() == [STEPS - EVERY, STEPS], whole.tail())
    want = losses(bench.path("log"))
    with open(counts, encoding="utf-8") as file:
        words = file.read().split()
    waits = int(words[words.index("waits") + 1])
    kept = set()
    for at in sorted({1 + i * (waits - 1) // (LOSSES - 1) for i in range(LOSSES)}):
        name = "lost at wait %d of %d" % (at, waits)
        bench.clean()
        outcome = bench.run(trainer, trouble="falls=%d" % at)
        bench.expect(name, outcome, FAILED, "error[Z0852]", "CUDA_ERROR_UNKNOWN")
        steps = bench.steps_kept()
        bench.tally.check(name + ": nothing half-written", steps is not None, str(os.listdir(bench.path("ck")) if steps is None else ""))
        kept.add(max(steps or [0]))
        again = bench.run(trainer, "--resume")
        got = dict((step, rest) for step, *rest in losses(bench.path("log")))
        bench.tally.check(name + ": the run goes on", again.status == 0 and bench.steps_kept() == [STEPS - EVERY, STEPS], again.tail())
        bench.tally.check(name + ": with the same losses", all(got.get(step) == rest for step, *rest in want[-EVERY:]) or "already at step" in again.out, str((got, want)))
    bench.tally.check("before the first checkpoint and after one", 0 in kept and len(kept) >= 2, str(kept))


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        for test in (test_before_the_first_step, test_shared_memory, test_lost_gpu):
            if only in test.__name__:
                test(Bench(tally, folder))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
