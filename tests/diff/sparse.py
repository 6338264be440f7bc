#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Block-sparse attention trains the same on every layout, and differently from dense attention.

    sparse.py [--only TEXT] [--list] [--verbose]

Layouts of sparse.dz (three patterns a layer, causal and both ways, grouped queries, other global blocks for other heads, samples of
different lengths) against one rank. What must be so for the test to mean anything is checked too: one rank computes what the f64
definition says (tests/unit has that of the kernels, tests/torch a whole model), so here only that a pattern changes the loss, that a
pattern with all blocks does not, and that trainers hold the tables.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS = 3
FULL, SELECTIVE = "full", "selective"
GPU = ("--cluster", "gpu", "--arch", "host")
SMALL = {"model.layers": 1, "model.S": 256, "model.size": 64}  # blocks that GPUs take


def case(t, p, d, precision="fp64", more=None, words=(), batch=4, **settings):
    return trainings.layout("sparse", t, p, d, batch=batch, precision=precision, more=more or {}, words=words, **settings)


TABLE = [
    case(2, 1, 1),
    case(3, 1, 1, recompute=SELECTIVE),
    case(1, 3, 1, recompute=FULL),
    case(1, 2, 2, zero=1, schedule="gpipe"),
    case(2, 2, 1, cut="block", schedule="zb_h1"),
    case(2, 2, 1, precision="fp32"),
    case(2, 1, 1, more=SMALL, words=GPU, batch=2),
]

PAIR = """use std.nn
use std.hw
model m(V = 32, S = 64, d = 32) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param wte: [V, d] ~ normal(std = 0.5)
  x = embedding(tokens, wte)
  repeat h in 0..2 {
    q, k, v = split(linear(x, 3 * d, std = 0.3), 3)
    x = x + linear(attention(q, k, v, heads = 4%s), d, std = 0.3)
  }
  output loss = cross_entropy(matmul(x, transpose(wte)), labels)
}
cluster c { nodes = 1  node = std.hw.cpu_generic(cores = 2, memory = 8GiB) }
train { model = m  data = synthetic(seed = 3)  batch = 2  steps = 3  precision = "fp64"  optimizer = adamw(lr = 1e-3) }
"""


def losses(folder, name, pattern):
    source = os.path.join(folder, name + ".dz")
    log = os.path.join(folder, name + ".jsonl")
    with open(source, "w", encoding="utf-8") as file:
        file.write(PAIR % pattern)
    outcome = harness.zplan("run", source, "--ranks", 1, "--check-memory", "-o", source[:-3], "--log", log, env=trainings.ENVIRONMENT)
    return (outcome, [row["loss"] for row in harness.read_log(log)[0]]) if outcome.status == 0 else (outcome, [])


def check_against_dense(tally, folder):
    outcome, dense = losses(folder, "dense", "")
    tally.check("dense attention trains", len(dense) == 3, outcome.tail())
    outcome, whole = losses(folder, "whole", ", pattern = sparse.sliding(block = 16, window = 9)")
    same = len(whole) == 3 and max(abs(a - b) / b for a, b in zip(whole, dense)) < 1e-12
    tally.check("all blocks are dense attention", same, "%s %s %s" % (whole, dense, outcome.tail()))
    outcome, window = losses(folder, "window", ", pattern = sparse.sliding(block = 16, window = 1)")
    other = len(window) == 3 and abs(window[0] - dense[0]) > 1e-6
    tally.check("a window of one block is not", other, "%s %s %s" % (window, dense, outcome.tail()))


def check_refusal(tally, folder):
    source = os.path.join(HERE, "sparse.dz")
    outcome = harness.zplan("build", source, "--cluster", "gpu", "--arch", "sm_90", "-o", os.path.join(folder, "gpu"))
    tally.check("blocks of 16 are refused for GPUs", outcome.status != 0 and "multiples of 64" in outcome.err, outcome.tail())


def checks(tally, folder):
    check_against_dense(tally, folder)
    check_refusal(tally, folder)


if __name__ == "__main__":
    sys.exit(trainings.main("block-sparse attention on every layout", TABLE, checks, steps=STEPS))
