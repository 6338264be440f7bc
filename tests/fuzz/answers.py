#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fuzzer of answers: the planner is asked about random models and clusters, then about the same with more of everything, and its
answers have to agree. A larger space holds every plan of the smaller one, so that the plan found in the smaller one must not be
below the bound proven for the larger one (what the certificate leaves open is its gap, and no excuse for this):

    devices   twice as many, where some may be left idle
    memory    a third more on every device
    links     twice as fast, and room for the buffers of more NCCL rings (faster links of a node have more of them)
    limits    one of the plan block's limits taken away
    pins      everything that the plan said, pinned: the space has that plan, and the free one has all of it; and it is not much faster
    auto      one device less than `--gpus auto` says does not fit
    verify    `zplan verify` takes the plan file
    nodes     nodes of two or three types, written in two orders: the same time

    answers.py [--count N] [--seed S] [--keep FOLDER]

Where the smaller question has a plan, the larger one has one. tests/run.sh takes a sixth of the cases by turns.
"""
import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402
import plans  # noqa: E402

PATIENCE = 300  # a time-out, not a measurement
MOST_ORDERS = 24  # planner/search/space/node_orders.c
SAME = 1e-8  # of a time: twice the search's tolerance, and digits of the file
FASTER = 0.005  # that pins may be, below the gap: cuts are looked for with limited work
ROOM_GB = 4  # of rings: 32 channels' connections of every communicator
# Cases that were answered wrongly once.
KEPT = (
    # `--gpus auto` checked divisors of a node alone: 4 instead of 3.
    dict(style=plans.LLAMA, V=50257, S=1024, d=6144, layers=7, heads=64, gpus=3, batch=8, node="dgx1v", memory=32, link=150, nic=12.5,
         settings=['schedule = "1f1b"', 'cut = "layer"']),
    # Norms split along the sequence have communicators of their own, and their bytes were taken from a choice without them: the plan
    # did not fit, and status 70.
    dict(style=plans.LLAMA, V=32000, S=1024, d=512, layers=6, heads=4, gpus=8, batch=12, per_node=8, device="v100_sxm2_32", memory=1.15, link=10, nic=1,
         host=256, mixed=False, precision="mixed_fp16", settings=["zero <= 1", 'schedule = "zb_h1"', "idle = 0", 'cut = "layer"']),
    # What the plan said, pinned, was 0.9 % faster: the work for cuts of several chunks had gone to many points.
    dict(style=plans.EXPERTS, V=4096, S=1024, d=512, layers=12, heads=4, gpus=12, batch=16, per_node=2, device="rtx3090", memory=38.35, link=50, nic=12.5,
         host=4, mixed=False, precision="mixed_fp16", settings=['offload[gradients] in ["none", "nvme"]', 'offload[params] in ["none", "cpu", "nvme"]',
                                                               'cut = "block"', 'recompute = "selective"', "idle = 0",
                                                               'schedule in ["zb_v", "interleaved"]']),
)


def draw(rng):
    """An instance of plans.py that is planned in some hundredths of a second."""
    x = plans.draw_instance(rng)
    x.update(layers=rng.choice((2, 3, 4, 6)), gpus=rng.choice((2, 3, 4, 6, 8)), batch=rng.choice((2, 4, 8, 12)), V=rng.choice((1000, 4096, 32000)),
             mixed=False, per_node=rng.choice((2, 4, 8)))
    x["settings"] = [s for s in x["settings"] if not s.startswith("offload")]
    if rng.random() < 0.75 and not any(s.startswith("cut") for s in x["settings"]):
        x["settings"].append('cut = "layer"')
    if rng.random() < 0.5 and not any(s.startswith("schedule") for s in x["settings"]):
        x["settings"].append('schedule in ["1f1b", "zb_h1", "zb_v"]')
    return x


def ask(x, folder, *words):
    """Exit status, the answer as JSON."""
    path = os.path.join(folder, "x.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(plans.text_of(x))
    command = [harness.ZPLAN, "plan", path, "--json", *(words or ("--gpus", str(x["gpus"])))]
    for setting in x["settings"]:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, json.loads(done.stdout) if done.returncode in (0, 3) and done.stdout else {"error": done.stderr[-400:]}


def compare(name, small, large):
    """Violations: `large` is asked about a space that has every plan of `small`."""
    (status, plan), (other, wide) = small, large
    if other not in (0, 3):
        return ["%s: status %d: %s" % (name, other, wide.get("error"))]
    if status != 0:
        return []
    if other == 3:
        return ["%s: nothing fits any more" % name]
    best, bound = plan["certificate"]["best_s"], wide["certificate"]["bound_s"]
    return ["%s: %.9g s, and %.9g s is proven for what has this plan" % (name, best, bound)] if best < bound * (1 - SAME) else []


def pins_of(plan):
    """The decisions of a plan file as settings; cuts, homes and what is recomputed are left to the search."""
    pins = ["%s = %d" % item for item in plan["degrees"].items()]
    pins += ["chunks = %d" % plan["chunks"], "loss_chunks = %d" % plan["loss_chunks"]]
    pins += ["zero = %d" % plan["zero"], "microbatch = %d" % plan["microbatch"], 'schedule = "%s"' % plan["schedule"],
             'cut = "%s"' % plan["cut"], 'rank_order = "%s"' % plan["rank_order"], "sequence = %s" % str(bool(plan["sequence"])).lower()]
    return pins


def check_nodes(x, folder, rng):
    """Violations: groups of nodes in two orders. Their bounds are far below, so times are compared, not bounds. Of more than MOST_ORDERS
    orders those are searched that have alike nodes side by side, and the written one: which may be faster then, if it has them apart."""
    kinds = rng.sample(("box", "old", "large"), rng.choice((2, 2, 2, 3)))
    groups = [(rng.choice((1, 1, 2)), kind) for kind in kinds]
    other = groups[::-1] if len(groups) == 2 else rng.choice((groups[::-1], groups[1:] + groups[:1]))
    if rng.random() < 0.5:  # one by one
        other = [(1, kind) for n, kind in groups for _ in range(n)]
        rng.shuffle(other)
    x = dict(x, mixed=True, per_node=rng.choice((1, 2, 4)), groups=groups)
    x["gpus"] = sum(n for n, _ in groups) * x["per_node"]
    (status, plan), (second, again) = ask(x, folder), ask(dict(x, groups=other), folder)
    if status != second or status not in (0, 3):
        return ["nodes %s: status %d, %s: %d %s" % (groups, status, other, second, plan.get("error", again.get("error", "")))]
    if status == 3:
        return []
    time, other_time = plan["certificate"]["best_s"], again["certificate"]["best_s"]
    orders = math.factorial(sum(n for n, _ in groups))
    for n, _ in groups:
        orders //= math.factorial(n)
    apart = len(other) > len(groups) and orders > MOST_ORDERS
    wrong = other_time / time - 1 > SAME or (not apart and time / other_time - 1 > SAME)
    return ["nodes %s: %.9g s, %s: %.9g s" % (groups, time, other, other_time)] if wrong else []


class Pins:
    """How often all that a plan said, pinned, gives another time, which the gap allows: a fault where it is faster by more than FASTER."""

    def __init__(self):
        self.asked = self.other = self.faster = 0
        self.most = 0.0  # by how much a pinned plan was faster

    def count(self, free, pinned):
        """Violations."""
        if pinned[0] != 0:
            return []
        a, b = free[1]["certificate"]["best_s"], pinned[1]["certificate"]["best_s"]
        self.asked += 1
        self.other += abs(a / b - 1) > SAME
        self.faster += b < a * (1 - SAME)
        self.most = max(self.most, 1 - b / a)
        return ["pins: %.9g s, and %.9g s for what decides so freely" % (b, a)] if b < a * (1 - FASTER) else []

    def __str__(self):
        return "pins: %d of %d gave another time, %d of them a faster one, by %.3g %% at most" % (self.other, self.asked, self.faster, 100 * self.most)


def check(x, folder, index, pins):
    first = ask(x, folder)
    if first[0] not in (0, 3):
        return 0, ["status %d: %s" % (first[0], first[1].get("error"))]
    faults, asked = [], 1
    questions = {"memory": dict(x, memory=round(x["memory"] * 4 / 3, 2)), "links": dict(x, link=2 * x["link"], nic=2 * x["nic"], memory=x["memory"] + ROOM_GB)}
    if not any(s.startswith("idle") for s in x["settings"]):
        questions["devices"] = dict(x, gpus=2 * x["gpus"])
    for setting in x["settings"]:
        questions["without " + setting] = dict(x, settings=[s for s in x["settings"] if s != setting])
    names = sorted(questions)
    for name in {names[index % len(names)], names[(index // 2) % len(names)]}:  # each case asks some of them
        faults += compare(name, first, ask(questions[name], folder))
        asked += 1
    if first[0] == 0:
        keys = set(re.split(r"[ =<]", pin)[0] for pin in pins_of(first[1]))
        rest = [s for s in x["settings"] if re.split(r"[ =<]", s)[0] not in keys]
        pinned = ask(dict(x, settings=rest + pins_of(first[1])), folder)
        faults += pins.count(first, pinned)
        faults += compare("pins", first, pinned) + compare("free after pins", pinned, first)
        asked += 1
    if index % 5 == 0:
        status, fewest = ask(x, folder, "--gpus", "auto")
        devices = fewest["sizes"][0]["devices"] if status == 0 and fewest["found"] else 0
        if devices > 1 and ask(dict(x, gpus=devices - 1), folder)[0] == 0:
            faults.append("auto: says %d, and %d fit" % (devices, devices - 1))
        if first[0] == 0 and (status != 0 or devices > x["gpus"]):
            faults.append("auto: says %d, and %d fit" % (devices, x["gpus"]))
        asked += 2
    if index % 4 == 2:
        faults += check_nodes(x, folder, random.Random("nodes %d" % index))
        asked += 2
    if first[0] == 0 and index % 5 == 1:
        path = os.path.join(folder, "plan.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(first[1], file)
        done = subprocess.run([harness.ZPLAN, "verify", path], capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            faults.append("verify: status %d: %s" % (done.returncode, (done.stdout + done.stderr)[-300:]))
        asked += 1
    return asked, faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep", default=os.path.join(harness.ROOT, "build", "fuzz"))
    options = parser.parse_args()
    harness.require_zplan()
    os.makedirs(options.keep, exist_ok=True)
    passed = failed = asked = 0
    pins = Pins()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.count):
            if i != options.only if options.only is not None else i >= len(KEPT) and not harness.my_turn(i):
                continue
            x = KEPT[i] if i < len(KEPT) else draw(random.Random("answers %d %d" % (options.seed, i)))
            try:
                n, faults = check(x, folder, i, pins)
            except subprocess.TimeoutExpired as late:
                n, faults = 1, ["hangs: %s" % " ".join(late.cmd)]
            asked += n
            passed, failed = passed + (not faults), failed + bool(faults)
            if faults:
                kept = os.path.join(options.keep, "answers-%d-%d.dz" % (options.seed, i))
                with open(kept, "w", encoding="utf-8") as file:
                    file.write(plans.text_of(x))
                print("FAIL case %d of seed %d: %d GPUs, %s: %s" % (i, options.seed, x["gpus"], x["settings"], kept))
                for fault in faults:
                    print("  " + fault)
                sys.stdout.flush()
    print("%d questions about %d models and clusters" % (asked, passed + failed))
    print(pins)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
