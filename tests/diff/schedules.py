#!/usr/bin/env python3
"""Every pipeline schedule trains the same model: GPipe, interleaved 1F1B, ZB-H1, ZB-H2 and ZB-V against one rank.

    schedules.py [--only TEXT] [--verbose]

Losses, gradient norms, validation losses and final parameters in f64, 6 steps with dropout, tied embeddings (whose ends are on
two stages, with ZB-V on one), all recomputation modes, cuts inside layers, tensor and data ranks, experts. Allowed: 1e-10, as in
layouts.py. Every run has --check-memory: the arena's peak on every rank and the bytes sent over every axis are the plan's. A few
run on an emulated GPU, and one goes on on one rank from a checkpoint of a folded pipeline.

That the schedule was really another one is seen in the generated trainer: its header, and what its order consists of.
"""
import argparse
import collections
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

STEPS, BOUND = 6, 1e-10
GPU = ("--cluster", "gpu", "--arch", "host")
SMALL = ("model.layers=2",)  # blocks of threads are played by one thread
ACTIONS = {"gpipe": "", "interleaved": "F0 F1 B0 B1", "zb_h1": "F I W", "zb_h2": "F I W", "zb_v": "F0 F1 I0 I1 W0 W1"}

# more: further decisions; words: further words of the command
Case = collections.namedtuple("Case", "model schedule chunks t p d micro batch more words", defaults=((), ()))
FULL, SPLIT, SELECTIVE = ('recompute="full"',), ('recompute="full"', 'recompute_shard="tensor"'), ('recompute="selective"',)
INSIDE, ZERO, OTHER_ORDER = ('cut="block"',), ("zero=1",), ('rank_order="tpd"',)

CASES = (
    Case("gpt", "gpipe", 1, 1, 2, 1, 1, 8),
    Case("gpt", "gpipe", 1, 1, 4, 1, 2, 8, FULL),
    Case("gpt", "gpipe", 1, 2, 2, 2, 1, 8, SPLIT + ZERO),
    Case("gpt", "interleaved", 2, 1, 2, 1, 1, 8),
    Case("gpt", "interleaved", 3, 1, 2, 1, 1, 5, SELECTIVE),  # groups of 3 and 2
    Case("gpt", "interleaved", 2, 1, 3, 1, 1, 2, FULL),       # fewer micro-batches than stages
    Case("gpt", "interleaved", 2, 1, 4, 1, 1, 8, INSIDE),
    Case("gpt", "interleaved", 2, 2, 2, 2, 1, 8, SPLIT + ZERO + OTHER_ORDER),
    Case("gpt", "interleaved", 2, 1, 3, 1, 1, 7, ('stage_recompute=["full", "none", "selective"]',)),
    Case("gpt", "zb_h1", 1, 1, 2, 1, 1, 8),
    Case("gpt", "zb_h1", 1, 1, 4, 1, 1, 8, FULL),
    Case("gpt", "zb_h1", 1, 2, 2, 2, 1, 8, ZERO),
    Case("gpt", "zb_h1", 1, 1, 3, 1, 2, 8, SELECTIVE + INSIDE),
    Case("gpt", "zb_h2", 1, 1, 3, 1, 1, 8),
    Case("gpt", "zb_h2", 1, 2, 2, 1, 1, 8, SPLIT),
    Case("gpt", "zb_v", 2, 1, 2, 1, 1, 8),
    Case("gpt", "zb_v", 2, 1, 3, 1, 1, 5, FULL),
    Case("gpt", "zb_v", 2, 1, 4, 1, 1, 8, INSIDE),
    Case("gpt", "zb_v", 2, 2, 2, 2, 1, 8, SELECTIVE + ZERO),
    Case("llama", "interleaved", 2, 2, 2, 1, 1, 8, FULL),
    Case("llama", "zb_v", 2, 1, 3, 1, 2, 8),
    Case("moe", "zb_h1", 1, 2, 2, 1, 1, 8, FULL),
    Case("moe", "zb_v", 2, 1, 2, 2, 1, 8, ("plan.expert=2", "model.n=8")),
    Case("gpt", "interleaved", 2, 1, 2, 1, 1, 4, SMALL, GPU),
    Case("gpt", "zb_v", 2, 1, 2, 1, 1, 4, FULL + SMALL, GPU),
)


def name_of(case):
    return " ".join([case.model, case.schedule, "chunks %d t%d p%d d%d micro-batch %d batch %d" % case[2:8], *case.more, *case.words])


def reference_of(case):
    """On one rank; of the decisions only those that change the model."""
    return Case(case.model, "1f1b", 1, 1, 1, 1, 1, case.batch, tuple(more for more in case.more if more.startswith("model.")))


Result = collections.namedtuple("Result", "error losses norms validations checkpoint source")


def read_validations(path):
    with open(path, encoding="utf-8") as lines:
        return [record["loss"] for record in map(harness.json.loads, lines) if record.get("event") == "validate"]


def train(case, folder, steps=STEPS, words=()):
    tree, log = os.path.join(folder, "tree"), os.path.join(folder, "log.jsonl")
    command = ["run", os.path.join(HERE, case.model + ".dz"), "--ranks", case.t * case.p * case.d, "-o", tree, "--log", log]
    for pin in ("tensor=%d" % case.t, "pipeline=%d" % case.p, "plan.data=%d" % case.d, "microbatch=%d" % case.micro,
                "batch=%d" % case.batch, 'schedule="%s"' % case.schedule, "chunks=%d" % case.chunks, 'precision="fp64"',
                "validate.data=synthetic(seed = 12)", "validate.every=4", "validate.batches=1", *case.more):
        command += ["--set", pin]
    command += ["--steps", steps, *case.words, *words, "--threads", 1, "--check-memory", "--",
                "--checkpoint", os.path.join(folder, "ck")]
    outcome = harness.zplan(*command)
    checkpoint = os.path.join(harness.step_folder(os.path.join(folder, "ck"), steps), "model.safetensors")
    if outcome.status != 0:
        return Result("exit %d\n%s" % (outcome.status, outcome.tail()), [], [], [], checkpoint, "")
    with open(os.path.join(tree, "trainer.c"), encoding="utf-8") as file:
        source = file.read()
    shutil.rmtree(tree, ignore_errors=True)
    records, _ = harness.read_log(log)
    return Result(None, [r["loss"] for r in records], [r["grad_norm"] for r in records], read_validations(log), checkpoint, source)


def check_source(tally, case, source):
    missing = [action for action in ACTIONS[case.schedule].split() if ' %s ' % action not in source.replace('"', " ")]
    header = "schedule %s," % case.schedule in source
    tally.check("%s: order" % name_of(case), header and not missing, "header %s, no action %s" % (header, missing))


def check_numbers(tally, name, got, want, verbose):
    if got.error or want.error:
        tally.check(name, False, got.error or "the run on one rank failed: %s" % want.error)
        return
    same_length = len(got.losses) == len(want.losses) and len(got.validations) == len(want.validations) > 0
    parameters, tensor = harness.model_error(got.checkpoint, want.checkpoint)
    errors = {"loss": max(map(harness.number_error, got.losses, want.losses)),
              "gradient norm": max(map(harness.number_error, got.norms, want.norms)),
              "validation": max(map(harness.number_error, got.validations, want.validations), default=float("inf")),
              "parameters": parameters}
    bad = ["%s %.2e%s" % (q, e, " (%s)" % tensor if q == "parameters" else "") for q, e in errors.items() if not e <= BOUND]
    tally.check(name, same_length and not bad, ", ".join(bad) or "%d losses, %d validations" % (len(got.losses), len(got.validations)))
    if verbose:
        print("%s: %s" % (name, ", ".join("%s %.1e" % pair for pair in errors.items())), flush=True)


class Suite:
    def __init__(self, folder, verbose):
        self.folder, self.verbose, self.references, self.number, self.tally = folder, verbose, {}, 0, harness.Tally()

    def fresh(self):
        self.number += 1
        place = os.path.join(self.folder, "%d" % self.number)
        os.makedirs(place)
        return place

    def reference(self, case):
        one = reference_of(case)
        if one not in self.references:
            self.references[one] = train(one, self.fresh())
        return self.references[one]

    def run(self, case):
        got = train(case, self.fresh())
        check_numbers(self.tally, name_of(case), got, self.reference(case), self.verbose)
        if not got.error:
            check_source(self.tally, case, got.source)

    def resume(self, case):
        """Half the steps on the folded pipeline, the rest on one rank, which goes on with the log."""
        place = self.fresh()
        first = train(case, place, STEPS // 2)
        rest = train(reference_of(case), place, words=("--resume",))
        want = self.reference(case)
        rest = rest._replace(error=first.error or rest.error, validations=rest.validations[-len(want.validations):])
        check_numbers(self.tally, "one rank goes on from " + name_of(case), rest, want, self.verbose)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    harness.require_zplan()
    cases = [case for case in CASES if options.only in name_of(case)]
    with harness.Scratch() as folder:
        suite = Suite(folder, options.verbose)
        for case in cases:
            suite.run(case)
        if not options.only:
            suite.resume(next(case for case in CASES if case.schedule == "zb_v"))
        return suite.tally.finish()


if __name__ == "__main__":
    sys.exit(main())
