#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Objectives of a buyer: every choice of machine and number of devices is planned alone and priced here by hand; the
answer must be the best of these.

usage: purchase.py      (ZPLAN=path: another binary)
"""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

GPT2 = os.path.join(ROOT, "examples", "gpt2.dz")
STEPS = 2000
# Names, devices that are tried, dollars of a device hour, of a kilowatt-hour, kilowatts of a device.
CLUSTERS = {"old": ([1, 2, 4, 8], 0.5, 0.0, 0.0), "new": ([1, 2, 4, 8], 2.0, 0.0, 0.0), "own": ([1, 2, 4, 8, 16], 0.25, 0.2, 0.9)}
FILE = """use std.hw
use "%s" as m
cluster old { nodes = 1  node = std.hw.dgx1v  price = 0.5 }
cluster new { nodes = 1  node = std.hw.dgx_h100  price = 2 }
cluster own { nodes = 2  node = std.hw.dgx_a100  price = 0.25  energy_price = 0.2  power = 900W }
train { model = m.gpt2()  batch = 32  precision = "mixed_fp16"  data = synthetic(seed = 1)  optimizer = adamw(lr = 1e-3)  %s }
plan { tensor = 1  pipeline <= 2  %s }
"""


def write(folder, name, plan="", train="steps = %d" % STEPS):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(FILE % (GPT2, train, plan))
    return path


def close(one, other):
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def plan_alone(tally, folder):
    """{(cluster, devices): (seconds of a step, of the training; dollars of a step, of the training)}"""
    source, found = write(folder, "alone.dz"), {}
    for cluster, (counts, price, energy, power) in CLUSTERS.items():
        for devices in counts:
            outcome = harness.zplan("plan", source, "--cluster", cluster, "--gpus", str(devices), "--json")
            if not tally.check("%s, %d alone" % (cluster, devices), outcome.status == 0, outcome.tail()):
                continue
            step = json.loads(outcome.out)["estimate"]["step_s"]
            dollars = step / 3600 * devices * (price + power * energy)
            found[cluster, devices] = step, step * STEPS, dollars, dollars * STEPS
    return found


def ask(tally, name, path, *words, status=0):
    outcome = harness.zplan("plan", path, *words, "--json")
    tally.check("%s: exit status" % name, outcome.status == status, "%d: %s" % (outcome.status, outcome.tail()))
    return json.loads(outcome.out)


def key_of(choice):
    return choice["machine"], choice["devices"]


def check_choices(tally, name, purchase, alone, clusters):
    """Every choice was considered, once, with the figures of the plan that is made of it alone."""
    wanted = {key: value for key, value in alone.items() if key[0] in clusters}
    keys = [key_of(choice) for choice in purchase["choices"]]
    tally.check("%s: choices" % name, sorted(keys) == sorted(wanted), "%s is not %s" % (sorted(keys), sorted(wanted)))
    for choice in purchase["choices"]:
        figures = [choice.get(key) for key in ("step_s", "run_s", "step_dollars", "run_dollars")]
        mine = wanted.get(key_of(choice), [0] * 4)
        tally.check("%s: figures of %s" % (name, key_of(choice)), all(f and close(f, m) for f, m in zip(figures, mine)),
                    "%s is not %s" % (figures, mine))


def check_best(tally, name, document, alone, clusters, quantity, deadline=float("inf"), budget=float("inf")):
    """quantity: index of what is least. The plan itself is the best choice's."""
    purchase = document["purchase"]
    check_choices(tally, name, purchase, alone, clusters)
    order = sorted((value[quantity], key) for key, value in alone.items()
                   if key[0] in clusters and value[1] <= deadline and value[3] <= budget)
    for place, rank in (("best", 0), ("next_best", 1)):
        index = purchase[place]
        mine = order[rank][1] if rank < len(order) else None
        theirs = None if index is None else key_of(purchase["choices"][index])
        tally.check("%s: %s" % (name, place), mine == theirs, "%s is not %s" % (theirs, mine))
    if order:
        tally.check("%s: plan" % name, close(document["estimate"]["step_s"], alone[order[0][1]][0]))
        words = document["options"]
        tally.check("%s: what the plan records" % name, words[words.index("--gpus") + 1] == str(order[0][1][1])
                    and words[words.index("--cluster") + 1] == order[0][1][0], " ".join(words))


def objectives(tally, folder, alone):
    every = [word for cluster in CLUSTERS for word in ("--cluster", cluster)]
    fastest, cheapest = min(value[1] for value in alone.values()), min(value[3] for value in alone.values())
    path = write(folder, "cost.dz", "objective = minimize(cost)")
    check_best(tally, "least cost", ask(tally, "least cost", path, *every), alone, CLUSTERS, 3)
    check_best(tally, "of one cluster", ask(tally, "of one cluster", path, "--cluster", "own"), alone, ["own"], 3)
    path = write(folder, "time.dz")
    check_best(tally, "least time", ask(tally, "least time", path, *every), alone, CLUSTERS, 1)
    for share in (1.5, 3.0):
        deadline = share * fastest
        path = write(folder, "deadline.dz", "objective = minimize(cost)  deadline = %.9fs" % deadline)
        check_best(tally, "deadline of %g" % share, ask(tally, "deadline", path, *every), alone, CLUSTERS, 3, deadline=deadline)
        budget = share * cheapest
        path = write(folder, "budget.dz", "budget = %.12g" % budget)
        check_best(tally, "budget of %g" % share, ask(tally, "budget", path, *every), alone, CLUSTERS, 1, budget=budget)


def nothing(tally, folder, alone):
    """No choice meets the terms: the one whose worse excess is the least factor, and what it lacks."""
    every = [word for cluster in CLUSTERS for word in ("--cluster", cluster)]
    fastest, cheapest = min(value[1] for value in alone.values()), min(value[3] for value in alone.values())
    for late, dear in ((0.5, None), (None, 0.5), (1.05, 1.05)):
        deadline, budget = (late or 0) * fastest, (dear or 0) * cheapest
        terms = ("deadline = %.9fs  " % deadline if late else "") + ("budget = %.12g" % budget if dear else "")
        name = "terms %s and %s" % (late, dear)
        path = write(folder, "nothing.dz", terms)
        purchase = ask(tally, name, path, *every, status=3)["purchase"]
        excess = {key: max(value[1] / deadline if late else 0, value[3] / budget if dear else 0) for key, value in alone.items()}
        mine = min(excess, key=lambda key: (excess[key], 0))
        nearest = purchase["choices"][purchase["nearest"]]
        tally.check("%s: none" % name, purchase["best"] is None and min(excess.values()) > 1, str(purchase["best"]))
        tally.check("%s: nearest" % name, key_of(nearest) == mine, "%s is not %s" % (key_of(nearest), mine))
        if late and alone[mine][1] > deadline:
            tally.check("%s: late" % name, close(nearest["late_s"], alone[mine][1] - deadline), str(nearest))
        if dear and alone[mine][3] > budget:
            tally.check("%s: dear" % name, close(nearest["over_dollars"], alone[mine][3] - budget), str(nearest))
        text = harness.zplan("plan", path, *every)
        tally.check("%s: text" % name, text.status == 3 and "Z0605" in text.err and "nearest" in text.err, text.tail())
        both = "each of the two can be met" in text.err
        tally.check("%s: of both terms" % name, both == bool(late and dear), text.err)


def words(tally, folder):
    """The text names the machine, why it won, what the next best costs; --price is that of a cluster block."""
    path = write(folder, "words.dz", "objective = minimize(cost)  deadline = 400d")
    outcome = harness.zplan("plan", path, "--cluster", "own", "--cluster", "new")
    for part in ("the cheapest of", "cost ", "why ", "next best ", "dearer", "before it", "energy at $0.2 a kilowatt-hour"):
        tally.check("words: %s" % part, part in outcome.out, outcome.tail())
    written, given = (ask(tally, "price", write(folder, "price.dz", "objective = minimize(cost)"), "--cluster", "new", "--gpus", "8", *more)
                      for more in ((), ("--price", "new=4", "--price", "3")))
    cost = [document["purchase"]["choices"][0]["run_dollars"] for document in (written, given)]
    tally.check("price: of the command line", close(cost[1], 2 * cost[0]), str(cost))
    machines = ask(tally, "machines", path, "--machine", "dgx-a100", "--machine", "dgx-h100", "--gpus", "8", "--price", "dgx-a100=1", "--price",
                   "dgx-h100=8")
    tally.check("machines: the cheap one", machines["purchase"]["choices"][machines["purchase"]["best"]]["machine"] == "dgx-a100",
                str(machines["purchase"]))


def bad_input(tally, folder):
    cost = write(folder, "bad.dz", "objective = minimize(cost)")
    plain = write(folder, "plain.dz")
    late = write(folder, "late.dz", "deadline = 1s")
    endless = write(folder, "endless.dz", "deadline = 30d", train="")
    saved = os.path.join(folder, "saved.json")
    made = harness.zplan("plan", plain, "--cluster", "new", "--gpus", "8", "-o", saved)
    tally.check("a plan file is made", made.status == 0, made.tail())
    cases = [
        ("no price", [cost, "--machine", "dgx-h100"], 1, "cluster `machine_dgx_h100` has none"),
        ("no power", [cost, "--machine", "dgx1", "--set", "cluster.energy_price=0.2"], 1, "give `power = 700W`"),
        ("no length", [endless], 1, "Z0502"),
        ("deadline without unit", [plain, "--set", "deadline=30"], 1, "`deadline` needs a unit"),
        ("deadline below 0", [plain, "--set", "deadline=-1d"], 1, "`deadline` must be greater than 0"),
        ("budget with a unit", [plain, "--set", "budget=30d"], 1, "`budget` is a number without unit, not a time"),
        ("budget below 0", [plain, "--set", "budget=-5"], 1, "`budget` must be greater than 0"),
        ("price below 0", [plain, "--set", "cluster.price=-2"], 1, "`price` must be 0 or more"),
        ("power without unit", [plain, "--set", "cluster.power=700"], 1, "`power` needs a unit"),
        ("objective", [plain, "--set", "objective=minimize(money)"], 1, "minimize(cost)"),
        ("unknown machine", [cost, "--machine", "dgx-h100", "--machine", "dgx-h101", "--price", "2"], 2, "there is no machine `dgx-h101`"),
        ("unknown cluster", [cost, "--cluster", "new", "--cluster", "newer"], 1, "unknown cluster `newer`"),
        ("listed twice", [cost, "--cluster", "new", "--cluster", "new"], 2, "`new` is listed twice"),
        ("price of nobody", [cost, "--cluster", "new", "--cluster", "old", "--price", "dgx-h100=2"], 2, "has that name"),
        ("price of another machine", [plain, "--cluster", "new", "--gpus", "8", "--price", "dgx-h100=2"], 2, "has that name"),
        ("price of another machine in words", [plain, "--cluster", "new", "--gpus", "8", "--price", "old=cheap"], 2,
         "--price wants dollars of a device hour"),
        ("price in words", [cost, "--cluster", "new", "--price", "cheap"], 2, "--price wants dollars of a device hour"),
        ("price of 0", [cost, "--cluster", "new", "--price", "0"], 2, "above 0"),
        ("auto", [cost, "--gpus", "auto"], 2, "give a range: --gpus 8..64"),
        ("sensitivity", [cost, "--cluster", "new", "--sensitivity"], 2, "--sensitivity is about one machine"),
        ("forms between passes", [cost, "--cluster", "new", "--dump-after", "lower"], 2, "--dump-after is about one machine"),
        ("many machines", [cost] + ["--cluster", "new"] * 17, 2, "at most 16 machines are compared, 17 were given"),
        ("plan file", [saved, "--cluster", "new", "--cluster", "old"], 2, "is planned already"),
        ("too many devices", [cost, "--cluster", "new", "--cluster", "own", "--gpus", "2097152"], 2, "at most"),
        ("missed", [late, "--cluster", "new", "--gpus", "8"], 3, "Z0605"),
    ]
    for name, words_given, status, told in cases:
        outcome = harness.zplan("plan", *words_given)
        tally.check("%s: %d, %s" % (name, status, told), outcome.status == status and told in outcome.err and not outcome.out,
                    "%d: %s" % (outcome.status, outcome.tail()))
    outcome = harness.zplan("export", "deepspeed", late, "--cluster", "new", "--gpus", "8")
    tally.check("another verb: note", "the deadline is" in outcome.err, outcome.tail())


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        alone = plan_alone(tally, folder)
        objectives(tally, folder, alone)
        nothing(tally, folder, alone)
        words(tally, folder)
        bad_input(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
