# SPDX-License-Identifier: Apache-2.0
"""Trainings that must agree: a table of settings, each trained and compared with the same model on one rank.

A test is a table and one call:

    TABLE = [
        trainings.layout("gpt", 1, 2, 1, schedule="gpipe"),
        trainings.layout("moe", 1, 1, 4, zero=1, more={"plan.expert": 2, "model.n": 8}),
    ]
    sys.exit(trainings.main("schedules train the same", TABLE))

Every training builds and runs through `zplan run --check-memory`: the arena's peak on every rank and the bytes sent over every
axis must be the plan's, or the trainer ends with an error.

How errors are measured. Loss and gradient norm of a step: |got - want| / |want|. A parameter: max |got - want| / max |want|
over the tensor. `want` is the run on one rank: same batch, same precision. BOUNDS says what is allowed, after as many as 20 steps, and
tests/diff/layouts.py where the bounds come from; a table may bring bounds of its own, with their reason.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import os
import shutil

import covering
import harness

STEPS = 10
MODELS = os.path.join(harness.ROOT, "tests", "diff")
TEXT = os.path.join(harness.ROOT, "examples", "text.txt")
# Words of `zplan run` with which examples/gpt_tiny.dz learns from a text that stays as it is.
ON_TEXT = ("--set", 'train.data=text("%s", order = "shuffled")' % TEXT, "--set", 'train.validate.data=text("%s")' % TEXT)
QUANTITIES = ("loss", "gradient norm", "parameters")
BOUNDS = {"fp64": {quantity: 1e-10 for quantity in QUANTITIES},
          "fp32": {"loss": 5e-6, "gradient norm": 1e-4, "parameters": 2e-2}}

# settings: pairs (name as for `zplan run --set`, value). reference: settings of the run to agree with. words: further ones of
# `zplan run`, which the reference has not. group: what errors are summed up under; it names the bounds, too.
Training = collections.namedtuple("Training", "name model settings reference words group")
Result = collections.namedtuple("Result", "error losses norms checkpoint seconds")

DEGREES = ("tensor", "pipeline", "plan.data")
ONE_RANK = {"tensor": 1, "pipeline": 1, "plan.data": 1, "microbatch": 1, "zero": 0, "recompute": "none", "recompute_shard": "none", "loss_chunks": 1,
            "cut": "layer", "rank_order": "tdp", "schedule": "1f1b", "sequence": False, "compress": False}
KEPT = ("batch", "precision")  # besides model.*: what a reference has in common with the training


class Expression(str):
    """A setting that is no number, word or list: `after(2)`."""


def written(value):
    """A setting as `--set` has it."""
    return value if isinstance(value, Expression) else json.dumps(value)


def batch_for(data):
    """The smallest batch from 5 to 8 that the data ranks share evenly, 8 where possible."""
    return next(batch for batch in (8, 6, 5, 7) if batch % data == 0)


def reference_for(settings, keep=KEPT):
    """The same model on one rank, nothing split and nothing saved. keep: settings that change what is trained."""
    return dict(ONE_RANK, **{key: value for key, value in settings.items() if key in keep or key.startswith("model.")})


def name_for(model, settings):
    """Degrees, and the settings that one rank has not."""
    shown = [model, settings["precision"], "t%d p%d d%d" % tuple(settings[key] for key in DEGREES)]
    for key, value in settings.items():
        if key not in DEGREES and key != "precision" and ONE_RANK.get(key) != value:
            shown.append("%s %s" % (key, ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value))
    return " ".join(shown)


def layout(model, tensor=1, pipeline=1, data=1, more=None, keep=KEPT, words=(), **settings):
    """A training of tests/diff/MODEL.dz. more: settings whose names are no words of Python, such as plan.expert."""
    chosen = dict(ONE_RANK, tensor=tensor, pipeline=pipeline, batch=batch_for(data), precision="fp64")
    chosen["plan.data"] = data
    chosen.update(settings)
    chosen.update(more or {})
    if "stage_recompute" in chosen:
        del chosen["recompute"], chosen["recompute_shard"]
    return Training(name_for(model, chosen), model, tuple(chosen.items()), tuple(reference_for(chosen, keep).items()), tuple(words),
                    chosen["precision"])


def ranks_of(settings):
    return math.prod(settings[key] for key in DEGREES) * settings.get("context", 1)


# ---- one run ----

ENVIRONMENT = dict(harness.LAUNCH, **harness.QUICK)  # of a command that builds and runs a trainer
OPTIMIZED = {name: value for name, value in ENVIRONMENT.items() if name not in ("CC", "OMPI_CC")}  # likewise, its C as a user's


def train(model, settings, folder, steps=STEPS, words=(), keep_tree=False, environment=None):
    """Builds and runs one training in `folder`, which must exist; nothing of it is left but the checkpoint, the log and, with keep_tree, the tree. What stands after
    "--" in words is for the trainer."""
    tree, log = os.path.join(folder, "tree"), os.path.join(folder, "log.jsonl")
    command = ["run", os.path.join(MODELS, model + ".dz"), "--ranks", ranks_of(settings), "-o", tree, "--log", log]
    for key, value in settings.items():
        command += ["--set", "%s=%s" % (key, written(value))]
    end = words.index("--") if "--" in words else len(words)
    command += ["--steps", steps, *words[:end], "--threads", 1, "--check-memory", "--", "--checkpoint", os.path.join(folder, "ck"), *words[end + 1:]]
    outcome = harness.zplan(*command, env=environment or ENVIRONMENT)
    checkpoint = os.path.join(harness.step_folder(os.path.join(folder, "ck"), steps), "model.safetensors")
    if outcome.status != 0:
        return Result("exit %d\n%s" % (outcome.status, outcome.tail()), [], [], checkpoint, outcome.seconds)
    records, end = harness.read_log(log)
    error = None
    if [record["step"] for record in records] != list(range(1, steps + 1)):
        error = "the log has steps %s" % [record["step"] for record in records]
    elif not end or end["predicted_peak_bytes"] != end["measured_peak_bytes"]:
        error = "no peaks, or others than predicted: %s" % end
    if not keep_tree:
        shutil.rmtree(tree, ignore_errors=True)
    return Result(error, [r["loss"] for r in records], [r["grad_norm"] for r in records], checkpoint, outcome.seconds)


# ---- judging ----

def errors_of(got, want):
    parameters, tensor = harness.model_error(got.checkpoint, want.checkpoint)
    if not len(got.losses) == len(want.losses) == len(got.norms) == len(want.norms) > 0:
        return dict.fromkeys(QUANTITIES, math.inf), "other steps"
    return {"loss": max(map(harness.number_error, got.losses, want.losses)),
            "gradient norm": max(map(harness.number_error, got.norms, want.norms)),
            "parameters": parameters}, tensor


def judge(tally, name, got, want, bounds):
    """Counts one training; its errors, or None when there is nothing to compare."""
    if got.error or want.error:
        tally.check(name, False, got.error or "the run on one rank failed: %s" % want.error)
        return None
    errors, tensor = errors_of(got, want)
    bad = ["%s %.2e > %.0e%s" % (q, e, bounds[q], " (%s)" % tensor if q == "parameters" else "")
           for q, e in errors.items() if not e <= bounds[q]]
    tally.check(name, not bad, ", ".join(bad))
    return errors


def sanity(tally, name, want):
    """The reference itself must be a training: a model that learns nothing would agree with anything."""
    learns = want.losses and want.losses[0] - want.losses[-1] > 0.2 and math.isfinite(want.losses[-1])
    tally.check("%s learns" % name, bool(learns), want.error or "losses %s" % want.losses)


# ---- a table of them ----

def values_of(one):
    """Model, precision, every setting but the model's sizes, words. Of a batch, that it is divided."""
    def is_size(key, value):
        return key in ("batch", "microbatch") or key.startswith("model.") and type(value) is int

    return {(one.model, one.group), one.words, ("divided", dict(one.settings)["microbatch"] > 1),
            *(str(setting) for setting in one.settings if not is_size(*setting))}


def in_turn(table, always=(), turn=None, values=values_of, among=1):
    """With ZPLAN_TURN=2/3 (tests/run.sh), every third training from the third on, those of `always`, and as many others as it
    takes for every value of every setting to occur: a fault shows with a value or where two meet, so in most trainings that have it.
    What meets only in the others is trained when it is their turn, at another commit; tests/long.sh trains all. among: of so many
    values, one has others trained for it at a commit, the next at the next."""
    current, turns = map(int, (turn or os.environ.get("ZPLAN_TURN", "0/1")).split("/"))
    first = [one for i, one in enumerate(table) if i % turns == current or one in always]
    seen, among = set().union(*map(values, first)) if first else set(), min(among, turns)
    every = sorted(set().union(*map(values, table)), key=str) if table else []
    due = {value for i, value in enumerate(every) if i % among == current % among} - seen
    rest = covering.cover([one for one in table if one not in first], lambda one: values(one) & due)
    return [one for one in table if one in first or one in rest]


class Suite:
    """Trains a table, two at a time, and judges every training by its reference, which is trained once. A test that looks at more than
    losses, norms and parameters derives from it. learn_steps: references go on to this step and must have learned something by then.
    emulated_steps: those of an emulated GPU end here, where the reference has a checkpoint; a step there costs what hundreds cost on a
    processor, and the third does what later ones do: moments are neither zero nor of one gradient, buffers have been used in turn.
    In 16 bits all steps are trained: bounds are of the largest value, and an adapter that begins with zeros has only roundings at first.

    After run(): references {(model, settings): Result}, largest {(group, quantity): (error, name)}."""

    keep_trees = False  # until a training is reported
    always = ()  # trainings that are not left to other turns (in_turn)
    values = staticmethod(values_of)  # of which each is trained at every commit, or one of value_turns (in_turn)
    value_turns = 1
    optimized = ()  # precisions in which C is optimized, of every third training by turns

    def __init__(self, table, folder, jobs=2, verbose=False, bounds=None, steps=STEPS, reference_words=(), tally=None, learn_steps=None,
                 emulated_steps=None, value_turns=None):
        self.table = in_turn(table, self.always, None, self.values, value_turns or self.value_turns)
        self.folder, self.jobs, self.verbose, self.learn_steps = folder, jobs, verbose, learn_steps
        self.bounds, self.steps, self.reference_words = bounds or BOUNDS, steps, tuple(reference_words)
        self.tally, self.references, self.emulated_steps = tally or harness.Tally(), {}, emulated_steps
        self.largest = collections.defaultdict(lambda: (0.0, ""))

    def run_job(self, job, steps=None):
        number, (model, settings, words) = job
        folder = os.path.join(self.folder, "%d" % number)
        os.makedirs(folder)
        environment = OPTIMIZED if dict(settings)["precision"] in self.optimized and harness.my_turn(number) else ENVIRONMENT
        return train(model, dict(settings), folder, steps or self.steps_of(settings, words), words, self.keep_trees, environment)

    def steps_of(self, settings, words):
        few = self.emulated_steps and "--arch" in words and dict(settings)["precision"] in ("fp64", "fp32")
        return self.emulated_steps if few else self.steps

    def run_jobs(self, jobs, first, *steps):
        """Results in the order of the jobs, while later ones still run."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            yield from pool.map(lambda job: self.run_job(job, *steps), enumerate(jobs, first))

    def run_references(self):
        wanted = sorted({(one.model, one.reference) for one in self.table}, key=str)
        words, steps = self.reference_words, ()
        if self.learn_steps:
            words += ("--set", 'checkpoint.dir="ck"', "--set", "checkpoint.every=%d" % self.steps)
            steps = (self.learn_steps,)
        if self.emulated_steps:
            words += ("--set", 'checkpoint.dir="ck"', "--set", "checkpoint.every=%d" % self.emulated_steps,
                      "--set", "checkpoint.keep=%d" % self.steps)
        for key, result in zip(wanted, self.run_jobs([(*key, words) for key in wanted], 0, *steps)):
            if self.learn_steps:
                sanity(self.tally, name_for(key[0], dict(key[1])), result)
            self.references[key] = self.at_step(result, self.steps)
        return len(wanted)

    @staticmethod
    def at_step(result, step):
        """A reference where trainings of the table end."""
        checkpoints = os.path.dirname(os.path.dirname(result.checkpoint))
        return result._replace(losses=result.losses[:step], norms=result.norms[:step],
                               checkpoint=os.path.join(harness.step_folder(checkpoints, step), "model.safetensors"))

    def report(self, one, result):
        want = self.at_step(self.references[one.model, one.reference], self.steps_of(one.settings, one.words))
        errors = judge(self.tally, one.name, result, want, self.bounds[one.group])
        for quantity, error in (errors or {}).items():
            self.largest[one.group, quantity] = max(self.largest[one.group, quantity], (error, one.name))
        if self.verbose:
            shown = ", ".join("%s %.1e" % item for item in (errors or {}).items())
            print("%5.2f s  %s: %s" % (result.seconds, one.name, shown), flush=True)
        shutil.rmtree(os.path.dirname(os.path.dirname(os.path.dirname(result.checkpoint))), ignore_errors=True)

    def run(self):
        first = self.run_references()
        # Those of many ranks first, so that no core idles at the end.
        ordered = sorted(self.table, key=lambda one: -ranks_of(dict(one.settings)))
        for one, result in zip(ordered, self.run_jobs([(one.model, one.settings, one.words) for one in ordered], first)):
            self.report(one, result)
        for (group, quantity), (error, where) in sorted(self.largest.items()):
            print("largest error, %s, %s: %.2e of %.0e allowed (%s)" % (group, quantity, error, self.bounds[group][quantity], where))


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default="", help="trainings whose name holds this text")
    parser.add_argument("--list", action="store_true", help="names of the trainings, nothing is run")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at the same time (default 2)")
    parser.add_argument("--verbose", action="store_true", help="a line a training")
    return parser


def main(description, table, checks=None, **keywords):
    """Command line of a test that is one table; the exit status. checks(tally, folder) adds checks of its own.
    keywords: those of Suite."""
    options = arguments(description).parse_args()
    table = [one for one in table if options.only in one.name]
    if options.list:
        print("\n".join(one.name for one in table))
        return 0
    harness.require_zplan()
    with harness.Scratch() as folder:
        suite = Suite(table, folder, options.jobs, options.verbose, **keywords)
        suite.run()
        if checks and not options.only:
            checks(suite.tally, folder)
        return suite.tally.finish()
