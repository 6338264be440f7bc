#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes by link class: what ranks send inside a node and between nodes is what the price of the plan is made of.

    links.py [--only TEXT] [--list] [--jobs N] [--verbose]

Clusters of several nodes are played on this machine: the plan says which ranks share a node, the trainer counts every message by
where its receiver stands. All layouts train what one rank trains (f64, 1e-10: support/trainings.py), and with --check-memory bytes over
every axis, and those of them that leave a node, are the plan's to the byte. The other half, that prices are
made of these bytes: tests/unit/test_link_bytes.c.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS = 2
NCCL = ("--cluster", "pairs", "--arch", "host", "--", "--comm", "nccl")  # nodes of two emulated GPUs, an emulated NCCL
SMALL = {"model.layers": 2}
EXPERTS = {"plan.expert": 2, "model.n": 4, "model.groups": 2, "model.top_groups": 1}


def cpu(model, t, p, d, nodes, more=None, **settings):
    one = trainings.layout(model, t, p, d, dict(SMALL, **dict(more or {}, **{"cluster.nodes": nodes})), **settings)
    return one._replace(name="%s, %d nodes" % (one.name, nodes))


def gpu(model, t, p, d, more=None, **settings):
    one = trainings.layout(model, t, p, d, dict(SMALL, **(more or {})), words=NCCL, batch=4, **settings)
    return one._replace(name=one.name + " nccl")


TABLE = (
    cpu("gpt", 1, 1, 4, 2),  # two and two
    cpu("gpt", 1, 1, 6, 2, zero=2),  # three and three
    cpu("gpt", 1, 1, 5, 2, zero=1),  # three and two: uneven
    cpu("gpt", 2, 1, 4, 2, zero=3),  # members apart from each other
    cpu("gpt", 4, 1, 1, 2),  # tensor ranks over nodes
    cpu("gpt", 1, 2, 4, 2, zero=1, rank_order="tpd"),  # stages of a replica in a node
    cpu("gpt", 1, 3, 2, 2, zero=1),  # a group of data ranks in a node, one over two
    cpu("moe", 1, 1, 4, 2, EXPERTS, zero=1),  # a group of experts in a node, replicas over two
    gpu("gpt", 1, 1, 4),
    gpu("moe", 1, 1, 4, EXPERTS, zero=1),
)


# Exchanges that go from every rank to all others, whatever its node: what they train is checked elsewhere.
EXCHANGES = (("adafactor(lr = 1e-3)", ("zero=1",)), ("muon(lr = 1e-3)", ("zero=1",)),
             ("adamw(lr = 3e-3, freeze_step = 1)", ("zero=1", "compress=true")))


def check_exchanges(tally, folder):
    for number, (optimizer, words) in enumerate(EXCHANGES):
        log = os.path.join(folder, "exchange%d.jsonl" % number)
        settings = ("tensor=1", "pipeline=1", "plan.data=4", "model.layers=2", "cluster.nodes=2", "microbatch=1", "optimizer=" + optimizer) + words
        outcome = harness.zplan("run", os.path.join(HERE, "gpt.dz"), "--ranks", 4, "-o", os.path.join(folder, "exchange%d" % number), "--log", log,
                                *[word for setting in settings for word in ("--set", setting)], "--steps", 3, "--threads", 1, "--check-memory",
                                env=trainings.ENVIRONMENT)
        if tally.check(optimizer + ": bytes between nodes", outcome.status == 0, outcome.tail()):
            end = harness.read_log(log)[1]
            tally.check(optimizer + ": some, and not all", 0 < end["across_bytes"]["data"] < end["communicated_bytes"]["data"], str(end["across_bytes"]))


def main():
    return trainings.main("bytes by link class", TABLE, check_exchanges, steps=STEPS)


if __name__ == "__main__":
    sys.exit(main())
