#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Experts without capacity: rows sorted by expert train what slots for every token train.

    dropless.py [-j N] [--only TEXT] [--verbose]

moe.dz with `capacity = dropless` on 1, 2 and 4 ranks, against one rank with `capacity = experts / k`, which drops nothing either
and has kernels, products and bytes of its own; in f64 within 1e-10. Every run has --check-memory. What is not built is refused.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

EXIT_NO_PLAN = 3
DROPLESS = trainings.Expression("dropless")
SLOTS = 2.5  # five experts, of which a token takes two
STEPS = 4


def case(tensor=1, pipeline=1, data=1, more=None, **settings):
    one = trainings.layout("moe", tensor, pipeline, data, batch=8, more=dict({"model.capacity": SLOTS, "train.dropout": 0}, **(more or {})),
                           keep=trainings.KEPT + ("train.dropout",), **settings)
    settings = dict(one.settings, **{"model.capacity": DROPLESS})
    return one._replace(name=trainings.name_for("moe", settings), settings=tuple(settings.items()))


TABLE = [
    case(microbatch=4),
    case(data=2, zero=1, microbatch=2),
    case(2, recompute="full"),  # tensor ranks have a part of every expert
    case(data=4, zero=3, recompute="selective", more={"model.corrected": False}),
    case(2, 2, microbatch=2, more={"model.groups": 1}),
    case(data=2, pipeline=2, schedule="zb_h1", recompute="full", zero=2),
    case(data=2, more={"context": 2, "model.heads": 4, "model.kv_heads": 2}),
]


def check_refusals(tally, folder):
    """Each with what would do instead."""
    model = os.path.join(HERE, "moe.dz")
    for what, status, words, settings in (
            ("dropout on sorted rows", 1, "its rows are sorted by expert", ()),
            ("experts over data ranks", EXIT_NO_PLAN, "a number for `capacity` bounds", ("dropout=0", "plan.expert=5", "plan.data=5", "batch=5")),
            ("a GPU", 1, "for CPU clusters only", ("dropout=0",))):
        gpu = ("--cluster", "gpu", "--arch", "host", "-o", os.path.join(folder, "gpu")) if what == "a GPU" else ()
        given = tuple(word for s in ("model.capacity=dropless", *settings) for word in ("--set", s))
        outcome = harness.zplan("build" if gpu else "plan", model, "--ranks", 5 if "plan.data=5" in settings else 1, *gpu, *given)
        said = " ".join(outcome.err.split())
        tally.check("refused: %s" % what, outcome.status == status and words in said, outcome.tail())


def check_megatron(tally):
    """Programs whose experts take the tokens that come spread them over data ranks: one plan, whichever capacity drops nothing."""
    plans = []
    for capacity in ("dropless", "4"):
        outcome = harness.zplan("plan", os.path.join(harness.ROOT, "examples", "moe_tiny.dz"), "--machine", "dgx-h100", "--for", "megatron",
                                "--set", "model.capacity=%s" % capacity, "--set", "plan.expert=8", "--json")
        plan = json.loads(outcome.out or "{}")
        plans.append([plan.get(key) for key in ("degrees", "estimate")])
    tally.check("Megatron-LM spreads them", plans[0] == plans[1] and plans[0][0]["expert"] == 8, plans)


def checks(tally, folder):
    check_refusals(tally, folder)
    check_megatron(tally)


if __name__ == "__main__":
    sys.exit(trainings.main("experts without capacity train the same", TABLE, checks, steps=STEPS))
