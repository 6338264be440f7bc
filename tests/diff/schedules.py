#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every pipeline schedule trains the same model: GPipe, interleaved 1F1B, ZB-H1, ZB-H2, ZB-V and DualPipeV against one rank.

    schedules.py [--only TEXT] [--list] [--jobs N] [--verbose]

Losses, gradient norms, validation losses and final parameters in f64, 6 steps with dropout, tied embeddings (whose ends are on
two stages, folded on one), all recomputation modes, cuts inside layers, tensor and data ranks, experts. Allowed: 1e-10, as in
layouts.py. Every run has --check-memory: the arena's peak on every rank and the bytes sent over every axis are the plan's. A few
run on an emulated GPU, and one goes on on one rank from a checkpoint of a folded pipeline.

That the schedule was really another one is seen in the generated trainer: its header, and what its order consists of.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS = 6
BOUND = trainings.BOUNDS["fp64"]["loss"]  # of validation losses, too
VALIDATE = ("--set", "validate.data=synthetic(seed = 12)", "--set", "validate.every=4", "--set", "validate.batches=1")
GPU = ("--cluster", "gpu", "--arch", "host")
ACTIONS = {"gpipe": "", "interleaved": "F0 F1 B0 B1", "zb_h1": "F I W", "zb_h2": "F I W", "zb_v": "F0 F1 I0 I1 W0 W1",
           "dualpipev": "F0 F1 I0 I1 W0 W1"}
CHUNKS = {"interleaved": 2, "zb_v": 2, "dualpipev": 2}
SPLIT = {"recompute": "full", "recompute_shard": "tensor"}
SMALL = {"model.layers": 2}  # blocks of threads are played by one thread


def case(model, schedule, t, p, d, batch=8, words=(), **settings):
    return trainings.layout(model, t, p, d, words=VALIDATE + words, batch=batch, schedule=schedule,
                            **dict({"chunks": CHUNKS.get(schedule, 1)}, **settings))


TABLE = (
    case("gpt", "gpipe", 1, 2, 1),
    case("gpt", "gpipe", 1, 4, 1, microbatch=2, recompute="full"),
    case("gpt", "gpipe", 2, 2, 2, zero=1, **SPLIT),
    case("gpt", "interleaved", 1, 2, 1),
    case("gpt", "interleaved", 1, 2, 1, 5, chunks=3, recompute="selective"),  # groups of 3 and 2
    case("gpt", "interleaved", 1, 3, 1, 2, recompute="full"),                 # fewer micro-batches than stages
    case("gpt", "interleaved", 1, 4, 1, cut="block"),
    case("gpt", "interleaved", 2, 2, 2, zero=1, rank_order="tpd", **SPLIT),
    case("gpt", "interleaved", 1, 3, 1, 7, stage_recompute=["full", "none", "selective"]),
    case("gpt", "zb_h1", 1, 2, 1),
    case("gpt", "zb_h1", 1, 4, 1, recompute="full"),
    case("gpt", "zb_h1", 2, 2, 2, zero=1),
    case("gpt", "zb_h1", 1, 3, 1, microbatch=2, recompute="selective", cut="block"),
    case("gpt", "zb_h2", 1, 3, 1),
    case("gpt", "zb_h2", 2, 2, 1, **SPLIT),
    case("gpt", "zb_v", 1, 2, 1),
    case("gpt", "zb_v", 1, 3, 1, 5, recompute="full"),
    case("gpt", "zb_v", 1, 4, 1, cut="block"),
    case("gpt", "zb_v", 2, 2, 2, zero=1, recompute="selective"),
    case("gpt", "dualpipev", 1, 2, 1),
    case("gpt", "dualpipev", 1, 3, 1, 5, recompute="full"),  # fewer micro-batches than fill it
    case("gpt", "dualpipev", 1, 4, 1, 10, cut="block"),      # the published example
    case("gpt", "dualpipev", 2, 2, 2, zero=1, recompute="selective"),
    case("llama", "interleaved", 2, 2, 1, recompute="full"),
    case("llama", "zb_v", 1, 3, 1, microbatch=2),
    case("moe", "zb_h1", 2, 2, 1, recompute="full"),
    case("moe", "zb_v", 1, 2, 2, more={"plan.expert": 2, "model.n": 8}),
    case("moe", "dualpipev", 1, 2, 2, more={"plan.expert": 2, "model.n": 8}),
    case("gpt", "interleaved", 1, 2, 1, 4, GPU, more=SMALL),
    case("gpt", "zb_v", 1, 2, 1, 4, GPU, more=SMALL, recompute="full"),
)


def folder_of(result):
    return os.path.dirname(os.path.dirname(os.path.dirname(result.checkpoint)))


def validations(result):
    with open(os.path.join(folder_of(result), "log.jsonl"), encoding="utf-8") as lines:
        return [record["loss"] for record in map(harness.json.loads, lines) if record.get("event") == "validate"]


FOLDED = next(one for one in TABLE if dict(one.settings)["schedule"] == "zb_v")


class Schedules(trainings.Suite):
    """Validation losses agree, too, and the trainer has the schedule's actions."""
    keep_trees = True
    always = (FOLDED,)

    def report(self, one, result):
        if not result.error:
            self.check_validations(one.name, result, self.references[one.model, one.reference])
            self.check_source(one, result)
        super().report(one, result)

    def check_validations(self, name, result, reference):
        if reference.error:
            return
        got, want = validations(result), validations(reference)
        got = got[-len(want):]  # a resumed run goes on with the log
        error = max(map(harness.number_error, got, want), default=1)
        self.tally.check("%s: validation" % name, len(got) == len(want) > 0 and error <= BOUND, "%.2e, %s of %s" % (error, got, want))

    def check_source(self, one, result):
        schedule = dict(one.settings)["schedule"]
        with open(os.path.join(folder_of(result), "tree", "trainer.c"), encoding="utf-8") as file:
            source = file.read()
        missing = [action for action in ACTIONS[schedule].split() if " %s " % action not in source.replace('"', " ")]
        header = "schedule %s," % schedule in source
        self.tally.check("%s: order" % one.name, header and not missing, "header %s, no action %s" % (header, missing))


def check_resume(suite):
    """Half the steps on a folded pipeline, the rest on one rank, which goes on with the log."""
    one = FOLDED
    place = os.path.join(suite.folder, "resumed")
    os.makedirs(place)
    name = "one rank goes on from " + one.name
    first = trainings.train(one.model, dict(one.settings), place, STEPS // 2, VALIDATE)
    if suite.tally.check(name + ": its half", not first.error, first.error or ""):
        rest = trainings.train(one.model, dict(one.reference), place, STEPS, VALIDATE + ("--resume",))
        want = suite.references[one.model, one.reference]
        if trainings.judge(suite.tally, name, rest, want, trainings.BOUNDS["fp64"]):
            suite.check_validations(name, rest, want)


def main():
    options = trainings.arguments("every pipeline schedule trains the same model").parse_args()
    table = [one for one in TABLE if options.only in one.name]
    if options.list:
        print("\n".join(one.name for one in table))
        return 0
    harness.require_zplan()
    with harness.Scratch() as folder:
        suite = Schedules(table, folder, options.jobs, options.verbose, steps=STEPS, reference_words=VALIDATE)
        suite.run()
        if not options.only:
            check_resume(suite)
        return suite.tally.finish()


if __name__ == "__main__":
    sys.exit(main())
