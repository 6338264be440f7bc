#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings with --profile: they train the same bits as without, all of a step's time belongs to some step of the program, predicted
seconds of a stage add up to the plan's step, and `zplan report` shows them. What cannot be profiled is refused.

usage: profile.py      (ZPLAN=path: another binary)
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

MODEL = os.path.join(HERE, "gpt.dz")
# Times are written with nine digits, and a stage has at most two hundred rows.
SAME_TIME = 1e-6
# name, settings, words of the command, steps of the run, those that are measured, kinds of steps that must be there
CASES = (
    ("cpu", ("tensor=2", "pipeline=2", "plan.data=1"), ("--cluster", "cpu"), 8, 3,
     {"kernel", "product", "attention", "message", "copy", "update"}),
    ("zero 3", ("tensor=1", "pipeline=1", "plan.data=2", "zero=3"), ("--cluster", "cpu"), 6, 2, {"product", "message"}),
    ("gpu", ("tensor=1", "pipeline=2", "plan.data=1", "schedule=interleaved", "chunks=2", "zero=0"),
     ("--cluster", "gpu", "--arch", "host", "--profile-steps", "2..2"), 2, 1, {"kernel", "product", "attention", "message", "update"}),
    ("gpu zero 2", ("tensor=1", "pipeline=1", "plan.data=2", "zero=2"), ("--cluster", "gpu", "--arch", "host", "--profile-steps", "1..2"), 2, 2,
     {"product", "message", "update"}),
)


def command(tree, settings, words, steps, log):
    sets = [word for setting in settings for word in ("--set", setting)]
    ranks = 1
    for setting in settings:
        if setting.split("=")[0] in ("tensor", "pipeline", "plan.data"):
            ranks *= int(setting.split("=")[1])
    return ("run", MODEL, *sets, "--ranks", ranks, *words, "-o", tree, "--steps", steps, "--log", log)


def profile_of(log):
    with open(log, encoding="utf-8") as lines:
        found = [record for record in map(json.loads, lines) if record.get("event") == "profile"]
    return found[0] if len(found) == 1 else None


def check_sums(tally, name, profile):
    """Every moment has a step; the plan's seconds of the stage that updates longest are the plan's step."""
    predicted = []
    for stage in profile["stages"]:
        measured = sum(row["measured_ms"] for row in stage["steps"])
        tally.check("%s: stage %d: all of its time is told" % (name, stage["stage"]), abs(measured / stage["measured_ms"] - 1) < SAME_TIME,
                    "%r of %r ms" % (measured, stage["measured_ms"]))
        predicted.append(sum(row["predicted_ms"] or 0 for row in stage["steps"]))
        end = max(span[2] for span in stage["timeline"])
        tally.check("%s: stage %d has a timeline" % (name, stage["stage"]), end > 0 and stage["timeline"][0][1] == 0)
    step = profile["predicted_step_ms"]
    tally.check("%s: predicted times are the plan's step" % name, abs(max(predicted) / step - 1) < SAME_TIME, "%r of %r ms" % (predicted, step))


def check_actions(tally, name, profile):
    """Every micro-batch goes forward and backward on every stage, once a chunk."""
    for stage in profile["stages"]:
        names = {span[0] for span in stage["timeline"] if span[0][:1] in "FB" and span[0][1:2].isdigit()}
        forward = {word[1:] for word in names if word[0] == "F"}
        backward = {word[1:] for word in names if word[0] == "B"}
        tally.check("%s: stage %d: forward and backward" % (name, stage["stage"]), forward and forward == backward, " ".join(sorted(names)))


def check_case(tally, folder, name, settings, words, steps, measured, kinds):
    tree, log, plain = (os.path.join(folder, name.replace(" ", "_") + end) for end in ("", ".jsonl", ".plain.jsonl"))
    line = command(tree, settings, words, steps, log)
    outcome = harness.zplan(*line, "--profile", "--check-memory")
    if not tally.check("%s: trained" % name, outcome.status == 0, outcome.tail()):
        return None
    profile = profile_of(log)
    if not tally.check("%s: one profile" % name, profile and profile["steps"] == measured, outcome.tail()):
        return None
    tally.check("%s: the screen says what differs most" % name, "differs most" in outcome.out and "profile: %d steps measured" % measured in outcome.out,
                outcome.tail(20))
    check_sums(tally, name, profile)
    check_actions(tally, name, profile)
    found = {row["kind"] for stage in profile["stages"] for row in stage["steps"] if row["calls"] > 0}
    tally.check("%s: kinds of steps" % name, kinds <= found, str(kinds - found))
    bare = [word for word in words if word != "--profile-steps" and ".." not in word]
    outcome = harness.zplan(*command(tree, settings, bare, steps, plain))
    tally.check("%s: trained without" % name, outcome.status == 0 and profile_of(plain) is None, outcome.tail())
    losses = [[record["loss"] for record in harness.read_log(path)[0]] for path in (log, plain)]
    tally.check("%s: the same bits as without" % name, losses[0] and losses[0] == losses[1], str(losses))
    with open(os.path.join(tree, "trainer.c"), encoding="utf-8") as text:
        tally.check("%s: without, nothing is in the text" % name, "zpr_step" not in text.read())
    return tree, log, plain


def check_report(tally, folder, tree, log, plain, other_log):
    plan = os.path.join(tree, "plan.json")
    told = harness.zplan("report", plan, "--log", log)
    tally.check("report: below the summary", told.status == 0 and "step, largest difference first" in told.out and "more with --profile" in told.out,
                told.tail())
    told = harness.zplan("report", plan, "--log", log, "--profile")
    rows = [line for line in told.out.splitlines() if "matmul mlp.c_fc.matmul" in line]
    tally.check("report: all rows", told.status == 0 and len(rows) >= 2 and "gpt2.dz" in told.out and "more with" not in told.out, told.tail())
    trace = os.path.join(folder, "trace.json")
    told = harness.zplan("report", plan, "--log", log, "--trace", trace)
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    lanes = {event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]}
    tally.check("trace: lanes of both", {"stage 0, measured", "stage 1, measured"} <= lanes and any(", predicted: " in lane for lane in lanes), str(lanes))
    with open(log, encoding="utf-8") as file:
        text = file.read()
    cut, at = os.path.join(folder, "cut.jsonl"), text.index('"event": "profile"')
    with open(cut, "w", encoding="utf-8") as file:
        file.write(text[:at + 400])
    for name, words, status, word in (
            ("a log without a profile", ("--log", plain, "--profile"), 1, "it holds no profile"),
            ("a log of another plan", ("--log", other_log), 1, "its profile is of plan"),
            ("a log that is cut off", ("--log", cut), 1, "its profile is cut off"),
            ("no log", ("--profile",), 2, "--log names it")):
        told = harness.zplan("report", plan, *words)
        tally.check("report: " + name, told.status == status and word in told.err and told.out == "", told.tail())
    told = harness.zplan("report", plan, "--log", plain)
    tally.check("report: a log without a profile is a log", told.status == 0 and "measured step" in " ".join(told.out.split()), told.tail())


def check_refusals(tally, folder, tree):
    """The tree holds a trainer that was built without --profile at last."""
    for name, words, status, word in (
            ("a trainer without it", ("--profile",), 1, "error[Z0842]: this trainer was built without --profile"),
            ("steps alone", ("--profile-steps", "4..5"), 2, "--profile-steps goes with --profile"),
            ("no steps", ("--profile", "--profile-steps", "5"), 2, "two steps such as 10..20")):
        told = harness.run([os.path.join(tree, "trainer"), "--steps", 6, *words])
        tally.check("trainer: " + name, told.status == status and word in told.err, told.tail())
    line = ("run", MODEL, "--cluster", "cpu", "-o", os.path.join(folder, "one"), "--steps")
    for name, words, status, word in (
            ("too few steps", (3, "--profile"), 1, "error[Z0842]: --profile measures from the 4th step"),
            ("steps that it does not do", (9, "--profile", "--profile-steps", "8..10"), 1, "this run does steps 1 to 9"),
            ("steps alone", (9, "--profile-steps", "8..9"), 2, "--profile-steps goes with --profile"),
            ("no steps", (9, "--profile", "--profile-steps", "9..8"), 2, "two steps such as 10..20"),
            ("two that do not go together", (9, "--profile", "--sync"), 2, "--sync changes what --profile measures"),
            ("--sync without a GPU", (9, "--sync"), 1, "--sync is for GPUs")):
        told = harness.zplan(*line, *words)
        tally.check("run: " + name, told.status == status and word in told.err, told.tail())


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        done = {case[0]: check_case(tally, folder, *case) for case in CASES}
        if done["cpu"] and done["zero 3"]:
            check_report(tally, folder, *done["cpu"], done["zero 3"][1])
        if done["zero 3"]:
            tree = os.path.join(folder, "one_plain")
            harness.zplan("build", MODEL, "--cluster", "cpu", "-o", tree)
            check_refusals(tally, folder, tree)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
