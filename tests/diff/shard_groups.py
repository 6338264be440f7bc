#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ZeRO in shard groups: state divided among `shard` neighbouring data ranks, a copy in every group, trains what one rank trains.

    shard_groups.py [--only TEXT] [--list] [--jobs N] [--verbose]

1. Every size of a group from 1 to all data ranks, ZeRO 1 to 3, with tensor ranks, pipelines, experts, both rank orders, recomputation,
   a split backward, state off the device and every optimizer that asks who divides what: losses, gradient norms and parameters against one
   rank (support/trainings.py), on CPU ranks, emulated GPUs and an emulated NCCL. Every run has --check-memory: the arena's peaks, bytes over
   every axis and those that leave a node are the plan's.
2. What a rank holds and what data ranks send, computed again from the shapes of the checkpoint's tensors.
3. hpZ, a second copy of ZeRO 3's parameters in groups: trained like the others, and which of its bytes leave a node.
4. Checkpoints: shards are written once, and a run goes on with groups of another size.
"""
import collections
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS = 4
GPU = ("--cluster", "gpu", "--arch", "host")
NCCL = ("--cluster", "pairs", "--arch", "host", "--", "--comm", "nccl")  # nodes of two emulated GPUs, an emulated NCCL
SMALL = {"model.layers": 2}
EXPERTS = {"plan.expert": 2, "model.n": 4, "model.groups": 2, "model.top_groups": 1}


def groups(model, t, p, d, shard, more=None, words=(), **settings):
    one = trainings.layout(model, t, p, d, dict(SMALL, shard=shard, **(more or {})), words=words, **settings)
    return one._replace(name=one.name + " emulated" * bool(words) + " nccl" * ("nccl" in words))


def second_copies(model, t, p, d, hpz, more=None, **settings):
    """ZeRO 3 over all data ranks, with a second copy of the parameters in groups of `hpz`."""
    return trainings.layout(model, t, p, d, dict(SMALL, hpz=hpz, **(more or {})), zero=3, **settings)


def off_device(*states, tier="cpu"):
    return {"offload[%s]" % state: tier for state in states}


TABLE = (
    groups("gpt", 1, 1, 4, 1, zero=1),
    groups("gpt", 1, 1, 4, 2, zero=1),
    groups("gpt", 1, 1, 4, 2, zero=2),
    groups("gpt", 1, 1, 4, 2, zero=3, recompute="full"),
    groups("gpt", 1, 1, 6, 3, zero=1),
    groups("gpt", 1, 1, 6, 2, zero=3),
    groups("gpt", 1, 1, 4, 4, zero=2),  # one group: nobody has a copy
    groups("gpt", 1, 2, 4, 2, zero=1, rank_order="tpd"),  # tied weights on two stages
    groups("gpt", 2, 1, 4, 2, zero=3),
    groups("gpt", 1, 2, 4, 2, zero=2, schedule="zb_h1", cut="block"),
    groups("llama", 2, 1, 4, 2, zero=2, more={"sequence": True}),  # norms whose gradients tensor ranks sum, shard by shard
    groups("moe", 1, 1, 4, 2, EXPERTS, zero=1),  # of experts a rank of a group has all that it holds
    groups("moe", 1, 1, 8, 4, EXPERTS, zero=3),
    groups("moe", 1, 2, 4, 2, EXPERTS, zero=2),
    groups("gpt", 1, 1, 4, 2, zero=2, more={"cluster.nodes": 2}),  # groups inside nodes, copies between them
    groups("gpt", 1, 1, 6, 3, zero=3, more={"cluster.nodes": 2}),
    groups("gpt", 1, 1, 6, 2, zero=1, more={"cluster.nodes": 2}),  # one group over two nodes
    groups("llama", 1, 1, 4, 2, zero=1, precision="fp32"),
    second_copies("gpt", 1, 1, 4, 2),
    second_copies("gpt", 1, 1, 6, 3, recompute="full", more={"cluster.nodes": 2}),  # groups inside nodes
    second_copies("gpt", 1, 1, 6, 2, more={"cluster.nodes": 2}),  # one group over two nodes
    second_copies("llama", 2, 1, 4, 2, more={"sequence": True}),
    second_copies("gpt", 1, 2, 4, 2, schedule="zb_h1", rank_order="tpd", cut="block"),
    second_copies("gpt", 1, 1, 4, 2, more={"loss_chunks": 2}),
    # GPUs: summed over group and copies alongside the last backward; gathered ahead; off the device.
    groups("gpt", 1, 1, 4, 2, words=GPU, zero=1, batch=4),
    groups("gpt", 1, 1, 4, 2, words=GPU, zero=3, batch=4),
    groups("gpt", 1, 1, 4, 2, off_device("optimizer", "gradients"), words=GPU, zero=1, batch=4),
    groups("gpt", 1, 1, 4, 2, off_device("optimizer", "gradients", "params"), words=GPU, zero=3, batch=8),
    groups("gpt", 1, 1, 4, 2, off_device("optimizer", "gradients", tier="nvme"), words=GPU, zero=2, batch=8),
    groups("gpt", 1, 2, 4, 2, words=NCCL, zero=1, batch=4, schedule="zb_h1"),
    groups("moe", 1, 1, 8, 4, EXPERTS, words=NCCL, zero=2, batch=8),
    groups("gpt", 1, 1, 4, 2, words=NCCL, zero=3, batch=4),
)
# Who divides what is asked by each of these: sums of squares of tensors, lengths, whole matrices.
OPTIMIZERS = ("adafactor(lr = 1e-3)", "lamb(lr = 1e-3)", "muon(lr = 1e-3)")
FILES = ("model.safetensors", "optimizer.safetensors")


# ---- optimizers ----

def check_optimizers(tally, folder):
    """The same training with groups of all data ranks, and of two. llama.dz has no key biases, whose gradients are zero but for roundings,
    which adafactor makes as long as any others."""
    for number, optimizer in enumerate(OPTIMIZERS):
        if not harness.my_turn(number, len(OPTIMIZERS)):
            continue
        results = []
        for shard in (4, 2):
            place = os.path.join(folder, "optimizer%d-%d" % (number, shard))
            os.makedirs(place)
            one = groups("llama", 1, 1, 4, shard, zero=1 + number % 2, more={"optimizer": trainings.Expression(optimizer)})
            results.append(trainings.train(one.model, dict(one.settings), place, STEPS))
        trainings.judge(tally, "%s in groups of 2" % optimizer, results[1], results[0], trainings.BOUNDS["fp64"])


# ---- bytes and memory from the shapes ----

def up(n, unit):
    return (n + unit - 1) // unit * unit


def expected_of(model_file, micro_batches, data, shard, zero):
    """(bytes sent over the data axis in a step, elements of a rank's weights, of its gradients) of gpt.dz in f64. A layer moves at once and
    every other parameter alone, in whole shards of 64 elements; the first unit uses wte and wpe, the last wte and the norm."""
    layers, others = collections.Counter(), {}
    for name, (shape, _) in harness.read_safetensors(model_file).items():
        elements = up(math.prod(shape), 64)
        inside = re.match(r"h\.(\d+)\.", name)
        if inside:
            layers[inside.group(1)] += elements
        else:
            others[name] = up(elements, 64 * shard)
    flat = sum(up(n, 64 * shard) for n in layers.values()) + sum(others.values())
    used, copies = flat + others["wte"], data // shard
    passes = {1: 2 * flat, 2: micro_batches * used + flat, 3: 3 * micro_batches * used}[zero]
    sent = copies * (shard - 1) * passes + shard * 2 * (copies - 1) * flat // shard
    return 8 * sent, flat // shard if zero == 3 else flat, flat // shard if zero > 1 else flat


def check_bytes(tally, folder):
    for zero in (1, 2, 3):
        if not harness.my_turn(zero, 3):
            continue
        place = os.path.join(folder, "bytes%d" % zero)
        os.makedirs(place)
        one = groups("gpt", 1, 1, 6, 3, zero=zero)
        settings = dict(one.settings)
        result = trainings.train(one.model, settings, place, 1, keep_tree=True)
        if not tally.check("bytes of ZeRO %d" % zero, not result.error, result.error):
            continue
        with open(os.path.join(place, "tree", "plan.json"), encoding="utf-8") as file:
            memory = json.load(file)["stages"][0]["memory"]
        end = harness.read_log(os.path.join(place, "log.jsonl"))[1]
        sent, weights, gradients = expected_of(result.checkpoint, settings["batch"] // 6, 6, 3, zero)
        tally.check("ZeRO %d in groups: bytes sent" % zero, end["communicated_bytes"]["data"] == sent, "%s, not %d" % (end["communicated_bytes"], sent))
        for what, elements in (("weights", weights), ("gradients", gradients)):
            tally.check("ZeRO %d in groups: %s" % (zero, what), 0 <= memory[what] - 8 * elements < 256, "%d, not %d" % (memory[what], 8 * elements))


def check_second_copies(tally, folder):
    """Two nodes of three ranks, a group in each: forward's gathers and the scatters over all ranks, in a ring as in two levels, cross; nothing
    of backward's gathers does. A rank holds a sixth of the weights and a third of their copy."""
    place = os.path.join(folder, "second")
    os.makedirs(place)
    one = second_copies("gpt", 1, 1, 6, 3, more={"cluster.nodes": 2})
    settings, ends = dict(one.settings), []
    for hpz in (3, 1):
        inside = os.path.join(place, "hpz%d" % hpz)
        os.makedirs(inside)
        result = trainings.train(one.model, dict(settings, hpz=hpz), inside, 1, keep_tree=True)
        if not tally.check("bytes of hpZ = %d" % hpz, not result.error, result.error):
            return
        ends.append(harness.read_log(os.path.join(inside, "log.jsonl"))[1])
        with open(os.path.join(inside, "tree", "plan.json"), encoding="utf-8") as file:
            weights = json.load(file)["stages"][0]["memory"]["weights"]
        whole, _, _ = expected_of(result.checkpoint, settings["batch"] // 6, 6, 6, 3)
        _, flat, _ = expected_of(result.checkpoint, 1, 6, 6, 1)
        wanted = 8 * (flat // 6 + (flat // 3 if hpz > 1 else 0))
        tally.check("hpZ = %d: weights" % hpz, 0 <= weights - wanted < 512, "%d, not %d" % (weights, wanted))
        # of three passes over six ranks, each five parts, one goes over three ranks of each node: two parts in each of two groups
        sent = whole if hpz == 1 else whole * 2 // 3 + whole // 15 * 2 * 2
        tally.check("hpZ = %d: bytes sent" % hpz, ends[-1]["communicated_bytes"]["data"] == sent, "%s, not %d" % (ends[-1]["communicated_bytes"], sent))
    copied, plain = (end["across_bytes"]["data"] for end in ends)
    tally.check("hpZ: a third less leaves the nodes", 0 < copied and 3 * copied == 2 * plain, "%d of %d" % (copied, plain))


# ---- refusals ----

SPREAD = ("--set", "data=4", "--set", "zero=3", "--set", "expert=2", "--set", "model.n=4")
REFUSED = (
    (("--set", "zero=2", "--set", "hpz=2"), "that ZeRO 3 divides"),
    (("--set", "zero=3", "--set", "hpz=3"), "outside the plan block's constraints"),  # of four ranks
    (("--set", "zero=3", "--set", "hpz=2", "--set", "shard=2"), "without the constraint on `shard`"),
    (SPREAD + ("--set", "hpz=2"), "without the constraint on `expert`"),
    (("--cluster", "gpu", "--set", "zero=3", "--set", "hpz=2"), "no second copy of the parameters on GPUs"),
    (("--cluster", "gpu", "--for", "fsdp", "--set", "zero=3", "--set", "hpz=2"), "no second copy of the parameters on GPUs"),
)


def check_refusals(tally):
    plain = harness.zplan("plan", os.path.join(HERE, "moe.dz"), "--ranks", "4", "--set", "tensor=1", "--set", "pipeline=1", *SPREAD)
    tally.check("experts are spread without hpZ", plain.status == 0, plain.tail())
    for words, said in REFUSED:
        model = "moe.dz" if words[:len(SPREAD)] == SPREAD else "gpt.dz"
        ranks = () if "--cluster" in words else ("--ranks", "4")
        done = harness.zplan("plan", os.path.join(HERE, model), *ranks, "--set", "tensor=1", "--set", "pipeline=1", *words)
        tally.check("refused: %s" % " ".join(words), done.status != 0 and said in " ".join(done.err.split()), done.err[-600:])


# ---- checkpoints ----

# Each goes on from the one before.
CHAIN = (groups("gpt", 1, 1, 4, 2, zero=3), groups("gpt", 1, 1, 4, 4, zero=2), groups("gpt", 1, 1, 6, 3, zero=1, batch=12), groups("gpt", 1, 2, 2, 2, zero=0))


def check_resume(tally, folder):
    def straight(place, one, steps, *words):
        os.makedirs(os.path.join(folder, place), exist_ok=True)
        return trainings.train(one.model, dict(one.settings, batch=12), os.path.join(folder, place), steps, words)

    settings = dict(CHAIN[3].settings)
    settings.pop("shard")
    chain = CHAIN[:3] + (CHAIN[3]._replace(settings=tuple(settings.items())),)
    whole, half = straight("whole", chain[0], 4), straight("half", chain[0], 2)
    rest = straight("half", chain[0], 4, "--resume")
    if tally.check("a run in groups is resumed", not (whole.error or half.error or rest.error), whole.error or half.error or rest.error):
        for file in FILES:
            same = harness.same_bytes(*(os.path.join(os.path.dirname(one.checkpoint), file) for one in (whole, rest)))
            tally.check("resumed in groups: %s to the last byte" % file, same)
    losses, norms = [], []
    for number, one in enumerate(chain):
        result = straight("chain", one, number + 1, *(("--resume",) if number else ()))
        losses += result.losses[-1:]
        norms += result.norms[-1:]
        tally.check("chain: %s" % one.name, bool(result.losses), result.error)
    error = harness.model_error(result.checkpoint, whole.checkpoint)
    tally.check("a chain of groups of several sizes", error[0] <= 1e-10 and losses and max(map(harness.number_error, losses, whole.losses)) <= 1e-10,
                "%s, losses %s for %s" % (error, losses, whole.losses))


def checks(tally, folder):
    check_optimizers(tally, folder)
    check_bytes(tally, folder)
    check_second_copies(tally, folder)
    check_refusals(tally)
    check_resume(tally, folder)


def main():
    return trainings.main("ZeRO in shard groups", TABLE, checks, steps=STEPS)


if __name__ == "__main__":
    sys.exit(main())
