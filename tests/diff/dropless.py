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


def case(tensor=1, pipeline=1, data=1, more=None, slots=SLOTS, **settings):
    one = trainings.layout("moe", tensor, pipeline, data, batch=8, more=dict({"model.capacity": slots, "train.dropout": 0}, **(more or {})),
                           keep=trainings.KEPT + ("train.dropout",), **settings)
    settings = dict(one.settings, **{"model.capacity": DROPLESS})
    return one._replace(name=trainings.name_for("moe", settings), settings=tuple(settings.items()))


def spread(expert, pipeline=1, data=1, more=None, **settings):
    """Four experts, spread over data ranks: as many rows travel as choose them."""
    return case(1, pipeline, data, dict({"plan.expert": expert, "model.n": 4}, **(more or {})), slots=2, **settings)


# Scores are all 0 at first, and the lower expert comes first: every token takes experts 0 and 1, which are on the first
# rank of two. Others receive nothing.
ONE_RANK_HAS_ALL = {"model.std": 0, "model.corrected": False}

TABLE = [
    case(microbatch=4),
    case(data=2, zero=1, microbatch=2),
    case(2, recompute="full"),  # tensor ranks have a part of every expert
    case(data=4, zero=3, recompute="selective", more={"model.corrected": False}),
    case(2, 2, microbatch=2, more={"model.groups": 1}),
    case(data=2, pipeline=2, schedule="zb_h1", recompute="full", zero=2),
    case(data=2, more={"context": 2, "model.heads": 4, "model.kv_heads": 2}),
    spread(2, data=2, microbatch=2, zero=1),
    spread(2, data=2, more=ONE_RANK_HAS_ALL, recompute="full", zero=3),
    spread(2, data=4, zero=3, recompute="selective"),
    spread(2, 2, 2, schedule="zb_h1"),
    spread(4, data=2, more={"context": 2, "model.heads": 4, "model.kv_heads": 2}),
]


def check_refusals(tally, folder):
    """Each with what would do instead."""
    model, pole = os.path.join(HERE, "moe.dz"), os.path.join(folder, "pole.dz")
    with open(model) as source, open(pole, "w") as changed:
        changed.write(source.read().replace("silu(a) * b", "silu(a) / b").replace("../../", harness.ROOT + "/"))
    spread = ("dropout=0", "plan.expert=5", "plan.data=5", "batch=5")
    for what, status, words, settings in (
            ("dropout on sorted rows", 1, "its rows are sorted by expert", ()),
            ("experts over data and tensor ranks", EXIT_NO_PLAN, "`tensor` or `expert` is 1", (*spread, "tensor=2")),
            ("a pole", EXIT_NO_PLAN, "has a pole at zero", spread),
            ("a GPU", 1, "for CPU clusters only", ("dropout=0",))):
        gpu = ("--cluster", "gpu", "--arch", "host", "-o", os.path.join(folder, "gpu")) if what == "a GPU" else ()
        given = tuple(word for s in ("model.capacity=dropless", *settings) for word in ("--set", s))
        ranks = 10 if "tensor=2" in settings else 5 if settings == spread else 1
        outcome = harness.zplan("build" if gpu else "plan", pole if what == "a pole" else model, "--ranks", ranks, *gpu, *given)
        said = " ".join(outcome.err.split())
        tally.check("refused: %s" % what, outcome.status == status and words in said, outcome.tail())


def check_room(tally, folder):
    """A bound makes the arena smaller; more rows than it stop the run, and the message has their step and rank."""
    model = os.path.join(folder, "room.dz")
    with open(os.path.join(HERE, "moe.dz")) as source, open(model, "w") as changed:
        changed.write(source.read().replace("balance = 0.05)", "balance = 0.05, room = 1.5)").replace("../../", harness.ROOT + "/"))
    given = ["--ranks", 2, "--steps", 2, "--threads", 1, "--check-memory"]
    for key, value in {"model.capacity": "dropless", "train.dropout": 0, "plan.data": 2, "plan.expert": 2, "model.n": 4, "model.corrected": "false",
                       "microbatch": 4}.items():
        given += ["--set", "%s=%s" % (key, value)]
    for even in (True, False):
        outcome = harness.zplan("run", model, *given, "-o", os.path.join(folder, "room%d" % even), *(() if even else ("--set", "model.std=0")), env=trainings.ENVIRONMENT)
        stops = outcome.status == 5 and "error[Z0855]: step 1: gates send rank 0 256 rows for its experts, and it has room for 192" in outcome.err
        tally.check("room for %s" % ("an even load" if even else "fewer rows than come"), outcome.status == 0 if even else stops, outcome.tail())


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
    check_room(tally, folder)


if __name__ == "__main__":
    sys.exit(trainings.main("experts without capacity train the same", TABLE, checks, steps=STEPS))
