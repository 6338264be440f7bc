#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a plan that does not pass its proof: a `zplan` whose replay finds fault with plans of so many tensor
ranks (tests/verify/unsound.c) names the plan and what to report, writes nothing, and ends with status 70. And a plan file
whose decisions break a rule is refused before anything is built.

usage: proof.py      (ZPLAN=path: another binary; build/release/zplan_unsound stands alongside it)
"""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

BUG, ERROR = 70, 1
GPT2 = os.path.join(ROOT, "examples", "gpt2.dz")
TEXT = os.path.join(ROOT, "examples", "text.txt")


def unsound(tensor, *words):
    program = os.path.join(os.path.dirname(harness.ZPLAN), "zplan_unsound")
    return harness.run([program, *map(str, words)], env=dict(os.environ, ZPLAN_UNSOUND_TENSOR=str(tensor)))


def refused(tally, name, outcome, path):
    words = outcome.out + outcome.err
    tally.check(name + ": status", outcome.status == BUG, "status %d: %s" % (outcome.status, outcome.tail()))
    for part in ("error[Z0644]", "made up by a test", "please report", "explain Z0644", "tensor=2"):
        tally.check("%s: says %s" % (name, part), part in words, outcome.tail())
    tally.check(name + ": prints no plan", "best plan" not in outcome.out and "\"stages\"" not in outcome.out)
    tally.check(name + ": writes nothing", not os.path.exists(path))


def check_commands(tally, folder):
    plan, path = os.path.join(folder, "plan.json"), os.path.join(folder, "result")
    two = ("--set", "tensor=2")
    made = harness.zplan("plan", GPT2, "--gpus", 4, *two, "-o", plan)
    tally.check("a sound plan is written", made.status == 0, made.tail())
    for verb, words in (("plan", (GPT2, "--gpus", 4, *two, "-o", path)), ("plan", (GPT2, "--gpus", 4, *two, "--json", "-o", path)),
                        ("build", (GPT2, "--gpus", 4, *two, "-o", path)), ("build", (plan, "-o", path)),
                        ("run", (GPT2, "--gpus", 4, *two, "-o", path, "--", "--data", TEXT)), ("report", (plan, "--html", path)),
                        ("bench", (GPT2, "--gpus", 4, *two, "-o", path)),
                        ("export", ("megatron", plan, "-o", path)), ("compare", (plan, plan)),
                        ("explain", (plan, "--why-not", "tensor=4"))):
        outcome = unsound(2, verb, *words)
        if verb == "bench":  # makes the folder first
            path_made = os.path.exists(path) and os.listdir(path)
            tally.check("bench builds nothing", not path_made, str(path_made))
            os.path.isdir(path) and os.rmdir(path)
        refused(tally, "%s %s" % (verb, os.path.basename(str(words[0]))), outcome, path)
    found = unsound(2, "verify", plan)
    tally.check("verify", found.status == ERROR and "error[Z0642]: stage 0" in found.err, found.tail())


def check_answers(tally, folder):
    """The plan that was asked for is proven, too; an alternative that fails is left out, and said to be."""
    plan = os.path.join(folder, "best.json")
    best = harness.zplan("plan", GPT2, "--gpus", 8, "--top", 3, "--set", "tensor in [1, 2]", "-o", plan)
    tally.check("a plan with alternatives", best.status == 0, best.tail())
    with open(plan, encoding="utf-8") as file:
        document = json.load(file)
    first, others = document["degrees"]["tensor"], [one["degrees"]["tensor"] for one in document["alternatives"]]
    other = 3 - first
    tally.check("one of them with other tensor ranks", other in others, str(others))
    asked = unsound(other, "explain", plan, "--why-not", "tensor=%d" % other)
    tally.check("why not: status", asked.status == BUG and "error[Z0644]" in asked.err, asked.tail())
    again = os.path.join(folder, "again.json")
    outcome = unsound(other, "plan", GPT2, "--gpus", 8, "--top", 3, "--set", "tensor in [1, 2]", "-o", again)
    tally.check("an alternative fails", outcome.status == 0 and "an alternative is left out" in outcome.err, outcome.tail())
    with open(again, encoding="utf-8") as file:
        left = [one["degrees"]["tensor"] for one in json.load(file)["alternatives"]]
    tally.check("the others stay", left == [one for one in others if one != other], "%s of %s" % (left, others))


def check_edited(tally, folder):
    """Eight times the micro-batch needs more memory than there is: decisions of a file that nobody planned."""
    plan, edited = os.path.join(folder, "large.json"), os.path.join(folder, "edited.json")
    made = harness.zplan("plan", os.path.join(ROOT, "examples", "gpt1t.dz"), "--gpus", 800, "-o", plan)
    tally.check("a large plan", made.status == 0, made.tail())
    with open(plan, encoding="utf-8") as file:
        document = json.load(file)
    document["microbatch"] *= 8
    with open(edited, "w", encoding="utf-8") as file:
        json.dump(document, file)
    outcome = harness.zplan("report", edited)
    tally.check("a file over its memory", outcome.status == ERROR and "error[Z0642]" in outcome.err and "may be used" in outcome.err,
                outcome.tail())


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_commands(tally, folder)
        check_answers(tally, folder)
        check_edited(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
