#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `zplan export deepspeed` writes, trained by DeepSpeed: ZeRO 0 to 3 on two CPU ranks with gloo. From the same weights on the same
samples its 20 losses are those of zplan's own trainer with the same plan, to 1e-5; gradient norms to 1e-4."""
import json
import os
import sys

import training
from training import harness

RANK = os.path.join(training.HERE, "deepspeed_rank.py")


def check_stage(tally, zero, config, want):
    if not tally.check("DeepSpeed trains ZeRO %d" % zero, os.path.exists(config + ".out")):
        return
    with open(config + ".out", encoding="utf-8") as file:
        got = json.load(file)
    facts = (got["stage"], got["ranks"], got["backend"])
    tally.check("ZeRO %d: stage, ranks and backend" % zero, facts == (zero, training.RANKS, "gloo"), str(facts))
    wrapper = {0: "", 1: "DeepSpeedZeroOptimizer", 2: "DeepSpeedZeroOptimizer", 3: "DeepSpeedZeroOptimizer_Stage3"}[zero]
    tally.check("ZeRO %d: the optimizer that divides state" % zero, not wrapper or got["wrapper"] == wrapper, got["wrapper"])
    print("ZeRO %d: DeepSpeed %s, torch %s, %s" % (zero, got["deepspeed"], got["torch"], got["optimizer"]))
    training.compare(tally, "ZeRO %d" % zero, got, want)


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        weights = training.initial_weights(tally, folder)
        configs = [training.export(tally, folder, "deepspeed", zero, "json") for zero in range(4)]
        wanted = [training.zplan_losses(tally, folder, zero) for zero in range(4)]
        if weights and all(configs) and all(wanted):
            outcomes = training.start_ranks([RANK, weights, training.TEXT, training.HEADS, training.STEPS, *configs], training.free_port())
            tally.check("DeepSpeed ends", all(outcome.status == 0 for outcome in outcomes), "\n".join(outcome.tail(12) for outcome in outcomes))
            for zero in range(4):
                check_stage(tally, zero, configs[zero], wanted[zero])
    sys.exit(tally.finish())


if __name__ == "__main__":
    main()
