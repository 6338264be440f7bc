#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputation trains the same model, whatever its elementwise code: blocks.dz in every mode against one rank that keeps everything.

    recompute.py [--only TEXT] [--list] [--jobs N] [--verbose]

Its layers have groups with several outputs, of which selective recomputation rebuilds one out of another: learned scales, norms before
and after a part, a normalized sum of two parts, two streams. Modes by stage and by layer, pipelines, split backward, cuts inside layers, tensor and
data ranks, the emulated GPU. Losses, gradient norms and parameters of 3 steps in f64; allowed: 1e-10, as in layouts.py.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import trainings  # noqa: E402

STEPS = 3
GPU = ("--cluster", "gpu", "--arch", "host")


def case(t=1, p=1, d=1, words=(), **settings):
    return trainings.layout("blocks", t, p, d, words=words, **settings)


TABLE = (
    case(recompute="selective"),
    case(recompute="full"),
    case(2, 1, 1, recompute="selective"),
    case(1, 2, 1, recompute="selective", schedule="zb_h1"),
    case(1, 2, 1, stage_recompute=["selective", "none"], cut="block"),
    case(1, 2, 2, zero=2, recompute="selective"),
    case(2, 1, 1, recompute="full", recompute_shard="tensor"),
    case(words=GPU, recompute="selective", more={"model.layers": 1}),
    # layers of one stage
    case(1, 2, 1, recompute="full", recompute_layers=1),
    case(2, 1, 2, zero=2, recompute="full", recompute_shard="tensor", recompute_layers=2, recompute_rest="selective"),
    case(1, 2, 1, recompute="selective", recompute_layers=[1, 0], cut="block", schedule="zb_h1"),
    case(words=GPU, recompute="full", recompute_layers=1, more={"model.layers": 2}),
)

if __name__ == "__main__":
    sys.exit(trainings.main("recomputation trains the same", TABLE, steps=STEPS))
