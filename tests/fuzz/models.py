#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random models, trained and compared with an interpreter of their own.

    models.py [--count N] [--seed N] [--jobs N] [--one-rank] [--keep FOLDER] [--verbose]
    models.py --replay FILE...     kept models again
    models.py --show FILE          a kept model as .dz

Model number i of seed s is the same on every machine. tests/fuzz/README.md says what is drawn, compared and kept.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "model"), os.path.join(os.path.dirname(HERE), "support")]
import need_numpy  # noqa: E402,F401
import check  # noqa: E402
import draw  # noqa: E402
import harness  # noqa: E402
import settings  # noqa: E402
import shrink  # noqa: E402
import tree  # noqa: E402

KEPT = os.path.join(HERE, "kept")
ATTEMPTS = 50  # at a model whose values make it a test
LAYOUTS = 8  # drawn until zplan has a plan
FROZEN = 0.25  # share of trainings with frozen parameters
DIFFERENCES = 0.1  # share of trainings on one CPU rank whose loss is differentiated numerically

Result = collections.namedtuple("Result", "number verdict case left_out refusals")


def make_case(seed, number):
    """A case on one rank, and how many models were no test before it."""
    for attempt in range(ATTEMPTS):
        model = draw.model("%d/%d/%d" % (seed, number, attempt))
        model["body"] = tree.prune(model["body"])
        case = check.Case(model, settings.one_rank(model))
        if not case.why:
            return case, attempt
    raise AssertionError("no model of seed %d, number %d, is a test" % (seed, number))


def is_plain(case):
    return case.settings == settings.one_rank(case.model) and not case.words


def judge(case, folder, chance):
    verdict = check.examine(case, folder)
    if verdict.kind == "refused" and (is_plain(case) or verdict.text.startswith("Z02")):
        return check.Verdict("bad", "refused, and not for its layout\n" + verdict.text)
    one_cpu_rank = settings.trainings.ranks_of(case.settings) == 1 and not settings.on_gpu(case.words) and case.precision() == "fp64"
    if verdict.kind == "good" and one_cpu_rank and check.can_differ(case) and chance.random() < DIFFERENCES:
        off = check.check_differences(case, folder, chance)
        return check.Verdict("bad", "\n".join(off)) if off else check.Verdict("good", "differences")
    return verdict


# ---- kept models ----

def save(case, text, path):
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump({"why": text, "model": case.model, "settings": case.settings, "words": case.words}, file, indent=1)
    with open(path + ".dz", "w", encoding="utf-8") as file:
        file.write(case.text(settings.shown(case.settings, case.words)))


def load(path):
    with open(path, encoding="utf-8") as file:
        kept = json.load(file)
    return check.Case(kept["model"], kept["settings"], tuple(kept["words"])), kept["why"]


def fails_like(kind, folder):
    """For shrink: True, False, or None where it is no model. A crash stays a crash, a difference a difference."""
    def fails(model, chosen, words):
        try:
            case = check.Case(model, chosen, words)
        except Exception:  # shapes that do not fit, names that are not there: numpy and Python say so in many ways
            return None
        if case.why:
            return None
        verdict = check.examine(case, folder)
        return verdict.kind == "bad" and verdict.text.startswith("exit") == kind
    return fails


def keep(result, folder, scratch):
    case = result.case
    model, chosen, words = shrink.shrink((case.model, case.settings, case.words),
                                         fails_like(result.verdict.text.startswith("exit"), os.path.join(scratch, "shrink")))
    smaller = check.Case(model, chosen, words)
    text = check.examine(smaller, os.path.join(scratch, "shrink")).text
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model_%d" % result.number)
    save(case, result.verdict.text, path + "_whole")
    save(smaller, text, path)
    print("model %d shrunk to %s.dz, %s:\n%s" % (result.number, path, settings.shown(chosen, words), text), flush=True)


# ---- many ----

class Fuzzer:
    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.tally, self.counts, self.operations = harness.Tally(), collections.Counter(), collections.Counter()
        self.bad = []

    def one(self, number):
        case, left_out = make_case(self.options.seed, number)
        folder, chance = os.path.join(self.scratch, "%d" % (number % 64)), random.Random("settings %d/%d" % (self.options.seed, number))
        freezes = random.Random("frozen %d/%d" % (self.options.seed, number))  # of its own, so that layouts stay what they were
        refusals, verdict = [], check.Verdict("refused", "no layout")
        try:
            for _ in range(1 if self.options.one_rank else LAYOUTS):
                if not self.options.one_rank:
                    chosen, words = settings.draw(chance, case.model)
                    if freezes.random() < FROZEN:
                        words += settings.freeze(freezes, case.values)
                    drawn = check.Case(case.model, chosen, words)
                    if drawn.why:  # rounded to another precision its values are no test
                        continue
                    case = drawn
                verdict = judge(case, folder, chance)
                if verdict.kind != "refused":
                    break
                refusals.append(verdict.text.split("\n")[0])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return Result(number, verdict, case, left_out, refusals)

    def report(self, result):
        verdict, case = result.verdict, result.case
        shown = settings.shown(case.settings, case.words)
        self.counts[verdict.kind] += 1
        self.counts["no test"] += result.left_out
        self.counts.update("layout refused by " + code for code in result.refusals)
        if verdict.kind != "refused":
            self.operations.update(tree.operations(case.model))
            self.counts["gpu" if settings.on_gpu(case.words) else "%d ranks" % settings.trainings.ranks_of(case.settings)] += 1
            self.counts[case.precision()] += 1
            self.counts["frozen"] += bool(case.frozen)
            self.counts["differences"] += verdict.text == "differences"
            self.tally.check("model %d, %s" % (result.number, shown), verdict.kind == "good", verdict.text)
        if verdict.kind == "bad":
            self.bad.append(result)
        if self.options.verbose:
            print("%d %s: %s %s" % (result.number, verdict.kind, shown, verdict.text.replace("\n", " ")[:300]), flush=True)

    def run(self):
        numbers = [n for n in range(self.options.first, self.options.first + self.options.count) if self.options.count == 1 or harness.my_turn(n)]
        began = time.time()
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            pending = collections.deque()
            for number in numbers:
                pending.append(pool.submit(self.one, number))
                if len(pending) >= 4 * self.options.jobs:
                    self.report(pending.popleft().result())
                if (number + 1) % 500 == 0:
                    print("%d models, %.0f s: %s" % (number + 1, time.time() - began, dict(self.counts)), flush=True)
            while pending:
                self.report(pending.popleft().result())
        for result in self.bad[:self.options.shrink]:
            keep(result, self.options.keep, self.scratch)
        self.summary()

    def summary(self):
        print("seed %d, models %d to %d: %s" % (self.options.seed, self.options.first, self.options.first + self.options.count - 1,
                                                ", ".join("%s %d" % item for item in sorted(self.counts.items()))))
        print("models with an operation: %s" % ", ".join("%s %d" % item for item in sorted(self.operations.items())))
        if self.bad:
            print("failing models are kept in %s" % self.options.keep)


def replay(files, tally, scratch):
    for path in files:
        case, why = load(path)
        name = "%s, %s" % (os.path.basename(path), settings.shown(case.settings, case.words))
        if not tally.check(name + " is a test", not case.why, case.why or ""):
            continue
        verdict = check.examine(case, os.path.join(scratch, "kept"))
        tally.check(name, verdict.kind == "good", verdict.text)


def arguments():
    parser = argparse.ArgumentParser(description="random models against an interpreter of their own")
    parser.add_argument("--count", type=int, default=200, help="models (default 200)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=1, help="which sequence of models (default 1)")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (default 2)")
    parser.add_argument("--one-rank", action="store_true", help="one CPU rank that keeps everything")
    parser.add_argument("--shrink", type=int, default=3, help="failing models that are shrunk (default 3)")
    parser.add_argument("--keep", default=os.path.join(harness.ROOT, "build", "fuzz-models"), metavar="FOLDER", help="for failing models")
    parser.add_argument("--replay", nargs="+", metavar="FILE", help="kept models again, nothing else")
    parser.add_argument("--show", metavar="FILE", help="a kept model as .dz")
    parser.add_argument("--verbose", action="store_true", help="a line a model")
    return parser.parse_args()


def main():
    options = arguments()
    if options.show:
        print(load(options.show)[0].text(load(options.show)[1].replace("\n", "\n# ")), end="")
        return 0
    harness.require_zplan()
    with harness.Scratch() as scratch:
        if options.replay:
            tally = harness.Tally()
            replay(options.replay, tally, scratch)
            return tally.finish()
        fuzzer = Fuzzer(options, scratch)
        kept = sorted(os.path.join(KEPT, name) for name in os.listdir(KEPT) if name.endswith(".json")) if options.first == 0 else []
        replay([path for i, path in enumerate(kept) if harness.my_turn(i)], fuzzer.tally, scratch)
        fuzzer.run()
        return fuzzer.tally.finish()


if __name__ == "__main__":
    sys.exit(main())
