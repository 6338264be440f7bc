#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often the host of a GPU trainer asks the GPU for something in a step, and how often it waits, counted by the emulated GPU.

    launches.py

The model is GPT-2 124M with everything small but the number of its layers, 12, and of its parameters, 148, in bf16, one micro-batch:
kernels, products and fills do not depend on the sizes. Two runs of different lengths; what the longer one does more is that of its
steps. The plan says how many kernels and products its prices are of: as many. A step's loss and norm are told a step later, so the host waits for nothing that was just started: once for the outcome of the
step before, once for the place of the tokens.
"""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

STEPS = (2, 4)
# In a step. Products: 12 layers of 4 forward and 8 backward, 3 of the vocabulary. Kernels: 3 and 5 a layer, 9 of the two ends, 3 of the
# norm, the decision and the update. Products take biases in, the residual of the MLP and gelu; what stays are the two norms, one with the
# residual before it, attention, which is two kernels backward, and on sm_90 gelu's derivative. Together 256, and 2 waits.
MOST = {"launches": 108, "products": 147, "fills": 1, "copies": 2, "waits": 2}
# Every chunk of the loss beyond the first: statistics, loss, gradient of the logits; three products.
CHUNKS, OF_A_CHUNK = (1, 4), {"launches": 3, "products": 3}
MODEL = """use std.hw
use "%s" as g
cluster gpu { nodes = 1  node = std.hw.workstation(devices = 1 * std.hw.h100_pcie) }
train {
  model = g.gpt2(V = 61, S = 16, d = 32, layers = 12, heads = 2)
  data = synthetic(seed = 11)  batch = 4  steps = 4  precision = "mixed_bf16"  dropout = 0.0  clip = 1.0
  optimizer = adamw(lr = 6e-4)
}
plan { microbatch = 4  recompute = "none"  loss_chunks = %d }
"""


def counts_of(folder, source, steps):
    """What a run of so many steps asks for; {} where it fails."""
    path = os.path.join(folder, "counts-%d" % steps)
    outcome = harness.zplan("run", source, "--ranks", 1, "--arch", "host", "-o", os.path.join(folder, "tree"), "--steps", steps,
                            "--threads", 1, "--check-memory", env={"ZPLAN_EMULATED_COUNTS": path})
    if outcome.status != 0 or not os.path.exists(path):
        print(outcome.tail())
        return {}
    with open(path, encoding="utf-8") as lines:
        return {name: int(number) for name, number in re.findall(r"(\w+) (\d+)", lines.read())}


def priced(source):
    """Launches and products of a step in the prices of the plan."""
    outcome = harness.zplan("plan", source, "--gpus", 1, "--json")
    if outcome.status != 0:
        print(outcome.tail())
        return {}
    plan, found = json.loads(outcome.out), {"launches": 0, "products": 0}
    for segment in plan["program"]["segments"]:
        for step in segment["forward"]["steps"] + segment["backward"]["steps"]:
            name = "products" if step.get("kernel") == "product" else "launches"
            found[name] += step.get("launches", 0) * segment["count"] * plan["microbatches"]
    found["launches"] += plan["stages"][0]["update"]["launches"]
    return found


def check(tally, folder, chunks):
    """The counts of a step with the loss in so many chunks."""
    source = os.path.join(folder, "gpt.dz")
    model = os.path.relpath(os.path.join(harness.ROOT, "examples", "gpt2.dz"), os.path.realpath(folder))
    with open(source, "w", encoding="utf-8") as file:
        file.write(MODEL % (model, chunks))
    few, many = (counts_of(folder, source, steps) for steps in STEPS)
    if not tally.check("both runs, loss in %d chunks" % chunks, few and many):
        return
    for name, most in MOST.items():
        most += OF_A_CHUNK.get(name, 0) * (chunks - 1)
        a_step = (many[name] - few[name]) / (STEPS[1] - STEPS[0])
        print("%-9s %g a step, loss in %d chunks" % (name, a_step, chunks))
        tally.check("%s of a step" % name, 0 < a_step <= most, "%g, more than %d" % (a_step, most))
    for name, number in priced(source).items():
        a_step = (many[name] - few[name]) / (STEPS[1] - STEPS[0])
        tally.check("%s that are priced" % name, a_step == number, "%d, the trainer starts %g" % (number, a_step))


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as scratch:
        for chunks in CHUNKS:
            folder = os.path.join(scratch, "%d" % chunks)
            os.makedirs(folder)
            check(tally, folder, chunks)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
