#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Context parallelism: ranks share the positions of every sample, exchange heads around attention, and train what one rank
trains.

    context.py [-j N] [--only TEXT] [--verbose]

Layouts of the models of this folder with context above 1 against one rank, in f64 within 1e-10. Every run has --check-memory:
arena peaks and bytes sent over every axis are the plan's. The batch is 4, so that replicas and micro-batches differ, and widths
are chosen so that heads do divide; what cannot be divided is refused with the reason (check_refusals).
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

EXIT_NO_PLAN = 3
GPU = ("--cluster", "gpu", "--arch", "host")  # emulated
SIZES = {"gpt": {"model.heads": 4, "model.layers": 3}, "llama": {"model.S": 12, "model.layers": 3}, "sparse": {"model.heads": 4}}


def case(model, context, tensor=1, pipeline=1, data=1, more=None, **settings):
    sizes = dict(SIZES[model], context=context, **(more or {}))
    return trainings.layout(model, tensor=tensor, pipeline=pipeline, data=data, batch=4, more=sizes, **settings)


TABLE = [
    case("gpt", 2),
    case("gpt", 4, microbatch=2, recompute="full"),
    case("gpt", 2, tensor=2, recompute="selective"),
    case("gpt", 2, pipeline=2, data=2, zero=1),
    case("gpt", 2, data=2, zero=3, recompute="full", rank_order="tpd"),
    case("gpt", 2, data=2, zero=2, microbatch=2),
    case("gpt", 2, pipeline=2, schedule="zb_h1", loss_chunks=2),
    case("llama", 3, data=2, zero=1),                 # one head of keys and values a rank
    case("llama", 6, microbatch=2),                   # of which two ranks have the same
    case("llama", 2, tensor=3, sequence=True),        # again, on each of three tensor ranks
    case("llama", 3, pipeline=2, zero=3, cut="block"),
    case("sparse", 2),                                # patterns by head, lengths, one head of keys
    case("sparse", 4, recompute="full"),
    case("sparse", 2, tensor=2),
    case("gpt", 2, data=2, zero=1, words=GPU),
    case("llama", 6, recompute="selective", words=GPU),
]


def check_refusals(tally, _):
    gpt = os.path.join(HERE, "gpt.dz")
    for context, settings, words in ((2, (), "context 2 does not divide the 5 heads of `attn.y`"),
                                     (3, ("--set", "model.heads=3", "--set", "model.d=24"), "context 3 does not divide the 16 positions of `tokens`"), (6, ("--set", "model.S=12", "--set", "model.heads=4"), "context 6 does not divide the 4 heads of `attn.y`; context 2 or 4 would do")):
        outcome = harness.zplan("plan", gpt, "--ranks", context, "--set", "context=%d" % context, *settings)
        said = " ".join(outcome.err.split())
        tally.check("refused: %s" % words, outcome.status == EXIT_NO_PLAN and words in said, outcome.tail())


if __name__ == "__main__":
    sys.exit(trainings.main("context ranks train the same", TABLE, check_refusals))
