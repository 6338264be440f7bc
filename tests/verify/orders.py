#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The order of the stages in a plan file is a decision: edited by hand it is priced, proven and trained when it is legal, and refused
with the circle or the missing message when it is not.

usage: orders.py      (ZPLAN=path: another binary)
"""
import copy
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

MODEL = os.path.join(ROOT, "examples", "gpt_tiny.dz")
STAGES, STEPS, BATCH = 3, 3, 32


def phrase(times, actions):
    return "%d %s" % (times, actions)


def plan(folder, name, *settings):
    path = os.path.join(folder, name)
    words = [MODEL, "--ranks", str(STAGES)]
    for setting in ("pipeline=%d" % STAGES, "microbatch=4") + settings:
        words += ["--set", setting]
    outcome = harness.zplan(*words, "-o", path)
    if outcome.status != 0:
        sys.exit("cannot plan %s: %s" % (name, outcome.tail()))
    with open(path, encoding="utf-8") as file:
        return path, json.load(file)


def edited(folder, name, document, orders):
    changed = copy.deepcopy(document)
    for stage, order in zip(changed["stages"], orders):
        stage["order"] = ", ".join(order)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(changed, file)
    return path


def orders_of(document):
    return [stage["order"].split(", ") for stage in document["stages"]]


def written(tally, folder, name, path):
    """The plan that `verify -o` makes of an edited one: sound by itself, word for word."""
    new = os.path.join(folder, "new_" + name)
    outcome = harness.zplan("verify", path, "-o", new)
    tally.check("%s: accepted" % name, outcome.status == 0 and "sound with the order of its stages" in outcome.out, outcome.tail())
    again = harness.zplan("verify", new)
    tally.check("%s: what -o writes is sound" % name, again.status == 0 and "sound (plan" in again.out, again.tail())
    with open(new, encoding="utf-8") as file:
        return new, json.load(file)


def trained(tally, folder, name, path):
    """Losses in all digits, with memory checked against the plan's."""
    log = os.path.join(folder, name + ".jsonl")
    outcome = harness.zplan("run", path, "--steps", str(STEPS), "-o", os.path.join(folder, "run_" + name), "--log", log, "--", "--check-memory",
                            "--checkpoint", os.path.join(folder, "ck_" + name))
    tally.check("%s: trains, memory as planned" % name, outcome.status == 0, outcome.tail())
    return [record["loss"] for record in harness.read_log(log)[0]]


def priced(path, document):
    """Step and peak of a file's decisions."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
    outcome = harness.zplan("compare", path, path, "--json")
    return json.loads(outcome.out)["plans"][0]


def close(one, other):
    return abs(one - other) <= 1e-9 * abs(other)


def message_bytes(document):
    """Between the one message buffer and what is after it."""
    arena = document["stages"][0]["arena"]
    return arena["at_grad0"] - arena["at_send_up"]


def check_legal(tally, folder):
    """An order of the other schedule is priced as that schedule's with the same cut; one of nobody's trains the same bits."""
    path, one = plan(folder, "1f1b.json", 'schedule="1f1b"')
    m = one["microbatches"]
    tally.check("eight micro-batches", m == BATCH // 4, str(m))
    all_first = copy.deepcopy(one)
    all_first["schedule"] = "gpipe"
    for stage in all_first["stages"]:
        stage["order"] = "%d F, %d B" % (m, m)
    all_first["estimate"] = priced(os.path.join(folder, "gpipe.json"), all_first)
    borrowed = edited(folder, "borrowed.json", one, orders_of(all_first))
    _, made = written(tally, folder, "borrowed.json", borrowed)
    tally.check("GPipe's order in a 1F1B plan: its time", close(made["estimate"]["step_s"], all_first["estimate"]["step_s"]),
                "%s, not %s" % (made["estimate"]["step_s"], all_first["estimate"]["step_s"]))
    tally.check("its slots", [s["arena"]["slots"] for s in made["stages"]] == [m] * STAGES)
    back = edited(folder, "back.json", all_first, orders_of(one))
    _, made = written(tally, folder, "back.json", back)
    tally.check("1F1B's order in a GPipe plan: its memory", made["estimate"]["peak_bytes"] == one["estimate"]["peak_bytes"])
    eager = [[phrase(4, "F"), phrase(m - 4, "B F"), phrase(4, "B")], [phrase(3, "F"), phrase(m - 3, "B F"), phrase(3, "B")],
             [phrase(1, "F F"), phrase(1, "B B"), phrase(m - 2, "F B")]]
    mine = edited(folder, "mine.json", one, eager)
    new, made = written(tally, folder, "mine.json", mine)
    tally.check("an order of nobody's: slots by hand", [s["arena"]["slots"] for s in made["stages"]] == [4, 3, 2])
    ahead = edited(folder, "ahead.json", one, [["%d F" % m, "%d B" % m], ["%d F" % m, "%d B" % m], ["%d F B" % m]])
    _, made = written(tally, folder, "ahead.json", ahead)
    starts = [made["stages"][0]["arena"][key] for key in ("at_send_up", "at_grad0")]
    tally.check("forwards far ahead: several message buffers", starts[1] - starts[0] > 2 * message_bytes(one), str(starts))
    want = trained(tally, folder, "1f1b", path)
    for number, (name, file) in enumerate((("edited", mine), ("borrowed", borrowed), ("written", new), ("ahead", ahead))):
        if not harness.my_turn(number, 2):
            continue
        tally.check("%s: losses of 1F1B" % name, trained(tally, folder, name, file) == want and len(want) == STEPS)
    wordy = [["1 %s" % action for p in order for action in p.split()[1:] * int(p.split()[0])] for order in orders_of(one)]
    outcome = harness.zplan("verify", edited(folder, "wordy.json", one, wordy))
    tally.check("the schedule's order in other phrases is the file's", outcome.status == 1 and "order" in outcome.err, outcome.tail())


def check_split(tally, folder):
    """Halves of backward: all gradients of weights at the end."""
    path, one = plan(folder, "zb.json", 'schedule="zb_h1"')
    m = one["microbatches"]
    late = [[phrase(STAGES - s, "F"), phrase(m - STAGES + s, "I F"), phrase(STAGES - s, "I"), phrase(m, "W")] for s in range(STAGES)]
    file = edited(folder, "late.json", one, late)
    _, made = written(tally, folder, "late.json", file)
    tally.check("weights last: all of them wait", [s["chunks"][0]["pending"] for s in made["stages"]] == [m] * STAGES)
    tally.check("weights last: losses of ZB-H1", trained(tally, folder, "late", file) == trained(tally, folder, "zb", path))


def check_illegal(tally, folder):
    _, one = plan(folder, "again.json", 'schedule="1f1b"')
    m, order = one["microbatches"], orders_of(one)
    backwards_first = [order[0], [phrase(1, "B"), phrase(m, "F"), phrase(m - 1, "B")], order[2]]
    one_by_one = [[phrase(m, "F B")] for _ in order]
    for name, orders, parts in (
            ("backward before forward", backwards_first, ("deadlock", "stage 1 waits with B of micro-batch 0 for its forward")),
            ("stages in a circle", [[phrase(1, "F B")] + [phrase(m - 1, "F B")], [phrase(m, "F"), phrase(m, "B")], order[2]],
             ("deadlock", "stage 0 waits with B of micro-batch 0 for gradients from stage 1", "stage 1 waits with F of micro-batch 1 for values")),
            ("a message is missing", [order[0], order[1], [phrase(m - 1, "F B"), phrase(1, "F F")]], ("never sent", "stage 2 does B %d times" % (m - 1))),
            ("too few actions", [order[0], order[1], [phrase(m - 1, "F B")]], ("stage 2 has %d actions" % (2 * m - 2),)),
            ("too many", [[phrase(m, "F B F B")]] + order[1:], ("more than %d actions" % (2 * m),)),
            ("no such action", [[phrase(m, "F G")]] + order[1:], ("8 F G",)),
            ("halves in a schedule without", [[phrase(m, "F I")]] + order[1:], ("no such action",)),
            ("no number", [[phrase(0, "F B")]] + order[1:], ("0 F B",))):
        file = edited(folder, "bad.json", one, orders)
        for verb in ("verify", "report"):
            outcome = harness.zplan(verb, file)
            tally.check("%s: %s refuses" % (name, verb), outcome.status == 1 and "error[" in outcome.err, outcome.tail())
            tally.check("%s: %s says why" % (name, verb), all(part in outcome.err for part in parts), outcome.tail())
    outcome = harness.zplan("verify", edited(folder, "one_by_one.json", one, one_by_one))
    tally.check("no overlap at all is legal, and slow", outcome.status == 0, outcome.tail())


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_legal(tally, folder)
        check_split(tally, folder)
        check_illegal(tally, folder)
    return tally.finish()


sys.exit(main())
