#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`zplan compare`: every number of it is that of the plan files, and its sums are sums.

usage: compare.py      (ZPLAN=path: another binary)
"""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

GPT1T, GPT2, MOE = (os.path.join(ROOT, "examples", name) for name in ("gpt1t.dz", "gpt2.dz", "mixtral_8x7b.dz"))
DIFFERENT = {"tensor", "pipeline", "zero", "shard", "recompute", "units"}  # of the first two plans below
BLOCKS = """use std.hw
use "%s" as m
cluster c { nodes = 2  node = std.hw.dgx_a100() }
train { model = m.gpt2()  batch = 32  steps = 10  precision = "mixed_bf16"  data = synthetic(seed = 1)  optimizer = adamw(lr = 1e-3) }
plan wide { tensor = 1  pipeline = 1 }
plan deep { tensor = 1  pipeline = 2 }
"""


def close(one, other):
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def make(folder, name, *words):
    path = os.path.join(folder, name)
    outcome = harness.zplan(*words, "-o", path)
    if outcome.status != 0:
        sys.exit("cannot plan %s: %s" % (name, outcome.tail()))
    with open(path, encoding="utf-8") as file:
        return path, json.load(file)


def compare(tally, name, *words):
    outcome = harness.zplan("compare", *words, "--json")
    tally.check("%s: exit status" % name, outcome.status == 0, outcome.tail())
    return json.loads(outcome.out)


def rows(document, key):
    """{name: cells}"""
    return {row["name"]: next(row[kind] for kind in ("words", "seconds", "bytes") if kind in row) for row in document[key]}


def check_plan(tally, name, document, column, plan):
    """One column against the plan file."""
    entry, estimate = document["plans"][column], plan["estimate"]
    for key in ("step_s", "tokens_per_s", "mfu", "peak_bytes"):
        tally.check("%s: %s" % (name, key), close(entry[key], estimate[key]), "%s is not %s" % (entry[key], estimate[key]))
    terms = {what: cells[column] for what, cells in rows(document, "terms").items()}
    step = terms.pop("step")
    tally.check("%s: terms sum to the step" % name, close(sum(terms.values()), step), "%s: %s" % (step, terms))
    tally.check("%s: the step is the plan's" % name, close(step, estimate["step_s"]))
    memory = {what: cells[column] for what, cells in rows(document, "memory").items()}
    peak = memory.pop("peak")
    tally.check("%s: classes sum to the peak" % name, sum(memory.values()) == peak == estimate["peak_bytes"], "%s: %s" % (peak, memory))
    traffic = {what: cells[column] for what, cells in rows(document, "traffic").items()}
    tally.check("%s: traffic" % name, traffic == dict({"context": 0}, **plan["traffic_bytes"]), "%s is not %s" % (traffic, plan["traffic_bytes"]))
    decisions = rows(document, "decisions")
    for key in ("tensor", "pipeline", "data"):
        tally.check("%s: %s" % (name, key), decisions[key][column] == str(plan["degrees"][key]))


def check_same(tally, name, document):
    """`same` says what the cells say."""
    for key in ("decisions", "terms", "memory", "elsewhere", "traffic"):
        for row in document[key]:
            cells = next(row[kind] for kind in ("words", "seconds", "bytes") if kind in row)
            tally.check("%s: same %s" % (name, row["name"]), row["same"] == all(cell == cells[0] for cell in cells), "%s" % row)


def files(tally, folder):
    first, a = make(folder, "a.json", GPT2, "--gpus", 8, "--set", "tensor=2", "--set", "pipeline=1", "--set", "zero=1")
    second, b = make(folder, "b.json", GPT2, "--gpus", 8, "--set", "tensor=1", "--set", "pipeline=2", "--set", "zero=0",
                     "--set", "recompute=full")
    document = compare(tally, "two plans", first, second)
    check_plan(tally, "first", document, 0, a)
    check_plan(tally, "second", document, 1, b)
    check_same(tally, "two plans", document)
    different = {row["name"] for row in document["decisions"] if not row["same"]}
    tally.check("what differs", different == DIFFERENT, "%s" % sorted(different))
    text = " ".join(harness.zplan("compare", first, second).out.split())
    for words in (" * tensor 2 1 ", "the same: model gpt2, ", "is the fastest: "):
        tally.check("text has %r" % words, words in text, text)
    itself = compare(tally, "a plan and itself", first, first)
    tally.check("a plan is like itself", all(row["same"] for key in ("decisions", "terms", "memory", "traffic") for row in itself[key]))
    order, c = make(folder, "c.json", GPT2, "--gpus", 8, "--set", "tensor=1", "--set", "pipeline=2", "--set", "zero=0",
                    "--set", "recompute=full", "--set", "rank_order=tpd")
    three = compare(tally, "three plans", first, second, order)
    check_plan(tally, "third", three, 2, c)
    check_same(tally, "three plans", three)
    tally.check("the rank order is a decision", harness.zplan("diff", second, order).status == 4)


def machines(tally, folder):
    """Communicators, experts, plans of different models."""
    first, a = make(folder, "big.json", GPT1T, "--gpus", 800)
    second, b = make(folder, "moe.json", MOE)
    document = compare(tally, "GPUs", first, second)
    check_plan(tally, "gpt1t", document, 0, a)
    check_plan(tally, "mixtral", document, 1, b)
    tally.check("communicators", rows(document, "memory")["NCCL"][0] > 0)
    one, other = (plan["tokens_per_s"] for plan in document["plans"])
    verdict = "%s is the fastest: %s takes ~%.1f%% longer" % (*("AB" if one > other else "BA"), 100 * (max(one, other) / min(one, other) - 1))
    tally.check("verdict", verdict in " ".join(harness.zplan("compare", first, second).out.split()))


def blocks(tally, folder):
    path = os.path.join(folder, "blocks.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BLOCKS % os.path.relpath(GPT2, os.path.realpath(folder)))
    document = compare(tally, "plan blocks", path, "--plan", "wide", "--plan", "deep")
    tally.check("blocks in their order", rows(document, "decisions")["pipeline"] == ["1", "2"], "%s" % rows(document, "decisions"))
    document = compare(tally, "options of a search", path, path, "--gpus", 8, "--plan", "deep")
    tally.check("count", [plan["devices"] for plan in document["plans"]] == [8, 8])


def sides(tally, folder):
    """Machines, numbers of devices and models on either side: each column is the plan that is made of it alone."""
    path, other = os.path.join(folder, "sides.dz"), os.path.join(folder, "large.dz")
    text = BLOCKS % os.path.relpath(GPT2, os.path.realpath(folder))
    for name, steps in ((path, "steps = 10"), (other, "steps = 40")):
        with open(name, "w", encoding="utf-8") as file:
            file.write(text.replace("steps = 10", steps))
    words = ("--machine", "dgx-a100", "--machine", "dgx-h100", "--gpus", 8, "--gpus", 4, "--price", "2", "--price", "dgx-h100=6")
    for name, sources in (("one model", (path,)), ("two models", (path, other))):
        document = compare(tally, name, *sources, *words)
        for column, (machine, devices, price) in enumerate((("dgx-a100", 8, 2), ("dgx-h100", 4, 6))):
            source = sources[min(column, len(sources) - 1)]
            _, plan = make(folder, "side.json", source, "--machine", machine, "--gpus", devices, "--force")
            check_plan(tally, "%s on %s" % (name, machine), document, column, plan)
            dollars = plan["estimate"]["step_s"] / 3600 * devices * price * (40 if source == other else 10)
            tally.check("%s on %s: dollars" % (name, machine), close(document["plans"][column]["run_dollars"], dollars), "%s" % dollars)
    document = compare(tally, "clusters", path, "--cluster", "c", "--gpus", 2, "--gpus", 16)
    tally.check("counts", [plan["devices"] for plan in document["plans"]] == [2, 16])
    text = " ".join(harness.zplan("compare", path, *words).out.split())
    tally.check("the cheapest is named", "is the cheapest: " in text and ", dgx-a100, 8 devices" in text, text)


def budget(tally, folder):
    """--device-memory is of one rank, whichever command asks."""
    _, plan = make(folder, "small.json", GPT2, "--device-memory", "1GB")
    document = compare(tally, "a budget", GPT2, GPT2, "--device-memory", "1GB")
    for column in (0, 1):
        check_plan(tally, "a budget", document, column, plan)
    tally.check("explain has the same budget", harness.zplan("explain", GPT2, "--device-memory", "1GB").status == 0)


def refusals(tally, folder):
    plan, path = os.path.join(folder, "a.json"), os.path.join(folder, "blocks.dz")
    broken = os.path.join(folder, "broken.json")
    with open(broken, "w", encoding="ascii") as file:
        file.write("{")
    for name, words, status, told in (
            ("one plan", (plan,), 2, "wants two plans or more"),
            ("nothing", (), 2, "wants two plans or more"),
            ("too many", (plan,) * 13, 2, "at most 12 plans"),
            ("a block of a plan", (path, plan, "--plan", "wide", "--plan", "deep"), 2, "is planned already"),
            ("three files, two blocks", (path, path, path, "--plan", "wide", "--plan", "deep"), 2, "or one for each of the 3"),
            ("machines and clusters", (path, "--machine", "dgx-a100", "--machine", "dgx-h100", "--cluster", "c"), 2, "which of the two"),
            ("an unknown machine", (path, "--machine", "dgx-a100", "--machine", "dgx9"), 2, "there is no machine `dgx9`"),
            ("counts of a range", (path, "--gpus", "4", "--gpus", "8..16"), 2, "wants one number"),
            ("blocks of a plan file", (plan, "--plan", "wide", "--plan", "deep"), 2, "is planned already"),
            ("a search of plan files", (plan, plan, "--gpus", 4), 2, "is planned already"),
            ("an unknown block", (path, "--plan", "wide", "--plan", "odd"), 1, "error[Z0625]"),
            ("a broken file", (plan, broken), 1, "error[Z0640]"),
            ("no plan", (path, path, "--plan", "deep", "--set", "pipeline=7", "--set", "idle=0"), 3, "pipeline 7"),
            ("another option", (plan, plan, "--top", 3), 2, "does not take --top")):
        outcome = harness.zplan("compare", *words)
        tally.check("%s: status %d" % (name, status), outcome.status == status, "%d: %s" % (outcome.status, outcome.tail()))
        tally.check("%s: %s" % (name, told), told in outcome.err and not outcome.out, outcome.tail())


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        for part in (files, machines, blocks, sides, budget, refusals):
            part(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
