#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The longest samples that BERT trains on with one V100 of 32 GB, one sample a step: block-sparse attention (examples/capacity/bert_sparse.dz)
alongside dense attention, zplan's own, which stores no scores, and one that stores them, which is what the announcement of sparse attention
(DeepSpeed, September 2020: 10 times longer samples with BERT-Base, 16 times with BERT-Large) compares with. Predicted, not measured.

    longest_sequence.py [--zplan PATH]

What stores scores needs, besides all that zplan's dense plan needs, 5 bytes a score of every layer that is kept for backward: the softmax, the
dropout's mask and its result (Korthikanti et al. 2022, arXiv 2205.05198, section 4.1); with recomputation those of one layer at a time.
Lengths are multiples of 1,024 up to 262,144; memory is 94 % of 32 GB, as for every plan.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CARD = os.path.join(ROOT, "examples", "capacity", "bert_sparse.dz")
MODELS = {"BERT-Base": {"layers": 12, "d": 768, "heads": 12}, "BERT-Large": {"layers": 24, "d": 1024, "heads": 16}}
NO_PLAN, UNIT, MOST, USABLE, SCORE_BYTES = 3, 1024, 256, 0.94 * 32e9, 5


def plan(zplan, model, length, sparse, recompute):
    """The plan file, or None where nothing fits."""
    words = ["model.%s=%d" % item for item in model.items()]
    words += ["model.S=%d" % length, "model.sparse=%s" % str(sparse).lower(), 'recompute="%s"' % recompute]
    command = [zplan, "plan", CARD, "--gpus", "1", "--json"] + [word for setting in words for word in ("--set", setting)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode not in (0, NO_PLAN):
        sys.exit(done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else None


def longest(fits):
    """The largest multiple of UNIT that fits; all smaller ones do."""
    low, high = 0, MOST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * UNIT) else (low, middle)
    return low * UNIT


def main():
    parser = argparse.ArgumentParser(description="longest samples of BERT on one V100")
    parser.add_argument("--zplan", default=os.path.join(ROOT, "build", "release", "zplan"))
    zplan = parser.parse_args().zplan
    print("%-11s %-14s %9s %9s %9s   %s" % ("model", "recomputation", "sparse", "dense", "stored", "sparse against stored, a step at the dense length"))
    for name, model in MODELS.items():
        for recompute in ("none", "full"):
            kept = model["layers"] if recompute == "none" else 1

            def stores(length):
                found = plan(zplan, model, length, False, recompute)
                return found and found["estimate"]["peak_bytes"] + SCORE_BYTES * model["heads"] * kept * length ** 2 <= USABLE

            sparse = longest(lambda length: plan(zplan, model, length, True, recompute))
            dense = longest(lambda length: plan(zplan, model, length, False, recompute))
            stored = longest(stores)
            steps = [plan(zplan, model, dense, kind, recompute)["estimate"]["step_s"] for kind in (False, True)]
            print("%-11s %-14s %9d %9d %9d   %.1f times as long; %.2f s dense, %.2f s sparse" % (name, recompute, sparse, dense, stored, sparse / stored, *steps))


if __name__ == "__main__":
    main()
