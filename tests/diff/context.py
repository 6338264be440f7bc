#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Context parallelism: ranks share the positions of every sample, exchange heads around attention, gather keys and values or pass them on, and
train what one rank trains.

    context.py [-j N] [--only TEXT] [--verbose]

Layouts of the models of this folder with context above 1 against one rank, in f64 within 1e-10. Every run has --check-memory:
arena peaks and bytes sent over every axis are the plan's. The batch is 4, so that replicas and micro-batches differ, and widths
are chosen so that heads do divide; what cannot be divided is refused with the reason (check_refusals).

Experts: moe.dz with slots for every choice trains what one rank trains. Where slots run out (`drops`), which tokens are dropped
depends on the context degree, and on nothing else: the reference has the same one. A trainer whose gates count the choices of
their own positions alone must be found (check_gate).
"""
import json
import os
import random
import re
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

EXIT_NO_PLAN, STEPS = 3, 4
GPU = ("--cluster", "gpu", "--arch", "host")  # emulated
NCCL = ("--cluster", "pairs", "--arch", "host", "--", "--comm", "nccl")  # nodes of two emulated GPUs, an emulated NCCL
# Tokens take two experts of four, and all find a slot. Random numbers of slots would depend on the ranks.
EXPERTS = {"model.heads": 4, "model.kv_heads": 2, "model.n": 4, "model.capacity": 2.0, "model.layers": 2, "train.dropout": 0}
SIZES = {"gpt": {"model.heads": 4, "model.layers": 3}, "llama": {"model.S": 12, "model.layers": 3}, "sparse": {"model.heads": 4},
         "moe": EXPERTS, "both_ways": {}, "windows": {}, "patterns": {}}
PACKED = tempfile.TemporaryDirectory()
SIZES["packed"] = {"train.data": trainings.Expression('arrays("%s")' % PACKED.name)}

DROPS = {"model.drop": 0.25, "train.dropout": 0.1}

BLOCKS_OF_GPUS = {"model.layers": 1, "model.S": 256, "model.size": 64}

# Of plans that are searched and not built.
SEARCHED = ("model.heads=8", "model.d=1024", "batch=2", 'precision="mixed_bf16"')


def case(model, context, tensor=1, pipeline=1, data=1, more=None, keep=(), batch=4, **settings):
    sizes = dict(SIZES[model], context=context, **dict({"context_by": "heads"}, **(more or {})))
    return trainings.layout(model, tensor=tensor, pipeline=pipeline, data=data, batch=batch, more=sizes,
                            keep=trainings.KEPT + ("train.dropout", "train.data") + tuple(keep), **settings)


def write_npy(name, rows):
    header = ("{'descr': '<i4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(rows), len(rows[0]))).ljust(117) + "\n"
    with open(os.path.join(PACKED.name, name + ".npy"), "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(struct.pack("<%di" % len(row), *row))


def write_packed(samples=24, positions=24, words=61):
    """Documents of 1 to all positions, some of which end before the sample does; a label is the next token of its document, or -1."""
    draw, tokens, labels, documents = random.Random(5), [], [], []
    for _ in range(samples):
        tokens.append([draw.randrange(words) for _ in range(positions)])
        labels.append([-1] * positions)
        documents.append([-1] * positions)
        begin, number, end = 0, 0, positions - draw.randrange(5)
        while begin < end:
            after = min(end, begin + draw.choice((1, 2, 4, 9, 15, positions)))
            documents[-1][begin:after] = [number] * (after - begin)
            labels[-1][begin:after - 1] = tokens[-1][begin + 1:after]
            begin, number = after, number + 1
    write_npy("tokens", tokens)
    write_npy("labels", labels)
    write_npy("documents", documents)


def by_keys(model, *degrees, more=None, **settings):
    return case(model, *degrees, more=dict({"context_by": "keys"}, **(more or {})), **settings)


def ring(model, *degrees, more=None, **settings):
    return case(model, *degrees, more=dict({"context_by": "ring"}, **(more or {})), **settings)


def moe(context, expert, *degrees, more=None, **settings):
    return case("moe", context, *degrees, more=dict({"plan.expert": expert}, **(more or {})), **settings)


def drops(context, expert, *degrees, **settings):
    one = moe(context, expert, *degrees, more={"model.capacity": 0.8}, keep=("context",), **settings)
    return one._replace(name=one.name + " drops")


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
    moe(2, 1),
    moe(4, 2, recompute="full"),                      # experts over some of the ranks with one sample
    moe(2, 4, 1, 1, 2, zero=2),                       # and over ranks with several
    moe(2, 2, 1, 1, 2, zero=1, more={"model.corrected": False}, microbatch=2),
    moe(2, 1, 2, sequence=True),
    moe(2, 2, 1, 2, schedule="zb_h1", loss_chunks=2),
    moe(3, 2, 1, 1, 2, zero=3, more={"model.S": 12, "model.heads": 3, "model.kv_heads": 3}),  # neither divides the other
    drops(2, 2, 1, 1, 2, zero=1),
    drops(4, 4, 1, 2, recompute="full"),
    case("gpt", 2, data=2, zero=1, more={"shard": 2}),  # a group is the ranks of a sample, or some of them, or of two samples
    case("gpt", 4, zero=3, more={"shard": 2}),
    case("gpt", 2, data=3, zero=2, more={"shard": 3}, batch=6),
    moe(2, 2, 1, 1, 2, zero=3, more={"shard": 2}),
    case("gpt", 2, data=2, zero=1, words=GPU),
    moe(2, 2, 1, 1, 2, zero=1, more={"shard": 2}, words=NCCL),
    case("llama", 6, recompute="selective", more={"model.layers": 1}, words=GPU),
    by_keys("llama", 2, microbatch=2),
    by_keys("llama", 3, data=2, zero=1, recompute="full"),
    by_keys("llama", 6, recompute="selective"),       # halves of one position
    by_keys("llama", 2, tensor=3, sequence=True),
    by_keys("llama", 3, pipeline=2, zero=3, cut="block", microbatch=2),
    by_keys("both_ways", 3, data=2, zero=1, recompute="full", more=DROPS),
    by_keys("llama", 4, batch=1, more={"model.S": 416, "model.layers": 1}),  # of more than a block of keys
    by_keys("moe", 2, 1, 1, 2, zero=2, more={"plan.expert": 4}),
    by_keys("llama", 3, data=2, zero=1, more={"model.layers": 2}, words=GPU),
    by_keys("moe", 2, 1, 1, 2, zero=1, words=NCCL),
    ring("llama", 2, microbatch=2),
    ring("llama", 3, data=2, zero=1, recompute="full"),
    ring("llama", 6, recompute="selective"),          # more rounds than buffers
    ring("llama", 2, tensor=3, sequence=True),
    ring("llama", 3, pipeline=2, zero=3, cut="block", microbatch=2),
    ring("both_ways", 3, data=2, zero=1, microbatch=2, more={**DROPS, "model.window": 3}),  # over stretches of 2 positions
    by_keys("both_ways", 2, more={"model.S": 16, "model.window": 6}),
    ring("both_ways", 2, microbatch=2, more={"model.S": 16, "model.window": 3}),
    ring("llama", 4, batch=1, more={"model.S": 416, "model.layers": 1}),
    ring("moe", 2, 1, 1, 2, zero=2, more={"plan.expert": 4}),
    ring("llama", 3, data=2, zero=1, more={"model.layers": 2}, words=GPU),
    ring("llama", 2, pipeline=2, schedule="zb_h1", more={"model.layers": 2}),
    ring("moe", 4, 1, 1, 1, microbatch=2, words=NCCL),
    ring("windows", 2, data=2, zero=1, microbatch=2),                        # within a stretch
    ring("windows", 4, recompute="full", more={"model.window": 4}),          # over stretches of 3 positions: of two before,
    ring("windows", 3, more={"model.window": 13}),                           # of more, one of them whole,
    ring("windows", 3, pipeline=2, more={"model.window": 1}),                # or of none
    ring("windows", 4, microbatch=4, more={**DROPS, "model.window": 2}, words=GPU),  # stretches of 3: in the middle of four numbers
    by_keys("windows", 3, recompute="full", more={"model.window": 13}),
    by_keys("windows", 4, tensor=2, microbatch=2, more={**DROPS, "model.window": 4}),  # random numbers count positions of the sample,
    by_keys("windows", 3, tensor=2, sequence=True, more=DROPS),              # of heads and rows that tensor ranks share
    ring("windows", 3, data=2, zero=1, recompute="full", more=DROPS),
    ring("windows", 2, pipeline=2, microbatch=2, more={**DROPS, "model.window": 7}),
    by_keys("windows", 2, microbatch=2, more={**DROPS, "model.window": 7}, words=GPU),
    by_keys("packed", 2, data=2, zero=1, microbatch=2),                      # documents end where data says
    by_keys("packed", 4, recompute="full", more={**DROPS, "model.window": 7}),
    by_keys("packed", 3, tensor=2, microbatch=2, words=GPU),
    ring("packed", 3, data=2, zero=1, microbatch=2),
    ring("packed", 4, pipeline=2, more={**DROPS, "model.window": 9}),
    ring("packed", 2, microbatch=2, more=DROPS, words=GPU),
    by_keys("patterns", 2, data=2, zero=1, microbatch=2),                    # layouts of what stretches see of each other
    by_keys("patterns", 4, tensor=2, recompute="full", more={**DROPS, "model.layers": 1}),
    by_keys("patterns", 2, microbatch=2, more=BLOCKS_OF_GPUS, words=GPU),
    ring("patterns", 2, pipeline=2, microbatch=2, more=DROPS),
    ring("patterns", 4, more={"model.S": 256, "model.window": 1}),
    ring("patterns", 2, data=2, zero=1, more={**BLOCKS_OF_GPUS, **DROPS}, words=GPU),
]

# A sample of 65,536 positions (docs/guide/long_sequences.md): minutes of processor time. Every third commit has one of 2,048.
LONG = {"model.S": 65536 if os.environ.get("ZPLAN_LONG") else 2048, "model.V": 256, "model.d": 32, "model.layers": 1, "train.dropout": 0}
if os.environ.get("ZPLAN_LONG") or harness.my_turn(0, 3):
    TABLE.append(case("gpt", 4, batch=1, recompute="full", more=LONG))


def check_quarter(tally, _):
    """Four context ranks take a quarter of one rank's activations: what is kept, and the buffers that steps share. All but the token
    numbers, which a rank reads whole, and attention's output, which is there by heads and by positions at once: 25.8 %."""
    model, sizes = os.path.join(HERE, "gpt.dz"), dict(LONG, **{"model.S": 65536, "model.heads": 4, "batch": 1, "tensor": 1, "pipeline": 1})
    for recompute in ("full", "none"):
        bytes_of = []
        for context in (1, 4):
            words = [word for key, value in dict(sizes, context=context, recompute=recompute).items() for word in ("--set", "%s=%s" % (key, value))]
            memory = json.loads(harness.zplan("plan", model, "--ranks", context, *words, "--json").out)["stages"][0]["memory"]
            bytes_of.append(memory["saved"] + memory["buffers"])
        tally.check("recompute %s: a quarter of the activations" % recompute, bytes_of[1] <= 0.26 * bytes_of[0], str(bytes_of))


def check_refusals(tally, _):
    gpt = os.path.join(HERE, "gpt.dz")
    for context, settings, words in ((2, (), "context 2 does not divide the 5 heads of `attn.y`"),
                                     (2, ("--set", "context_by=keys", "--set", "model.S=15"), "context 2 does not divide the 15 positions of `tokens`"),
                                     (2, ("--set", "context_by=keys"), "context by keys does not"),
                                     (2, ("--set", "context_by=ring"), "context by ring does not"),
                                     (3, ("--set", "model.heads=3", "--set", "model.d=24"), "context 3 does not divide the 16 positions of `tokens`"), (6, ("--set", "model.S=12", "--set", "model.heads=4"), "context 6 does not divide the 4 heads of `attn.y`; context 2 or 4 would do")):
        outcome = harness.zplan("plan", gpt, "--ranks", context, "--set", "context=%d" % context, *settings)
        said = " ".join(outcome.err.split())
        tally.check("refused: %s" % words, outcome.status == EXIT_NO_PLAN and words in said, outcome.tail())


def check_search(tally):
    """Samples of 32,768 positions and more are divided without being told to, where that is best; not short ones, nor on CPUs, nor where
    other tokens would be dropped. Others find the plan that they had."""
    for what, divided, model, settings in (
            ("a long sample", True, "gpt", ("model.S=32768",)), ("a short one", False, "gpt", ("model.S=16384",)),
            ("a long one with context 1", False, "gpt", ("model.S=32768", "context=1")),
            ("a long one on CPUs", False, "gpt", ("model.S=32768", "model.layers=1")),
            ("a long one whose tokens drop", False, "moe", ("model.S=32768", "model.kv_heads=8"))):
        cluster = ("--ranks", 8) if "on CPUs" in what else ("--cluster", "gpu")
        words = [word for setting in settings + SEARCHED for word in ("--set", setting)]
        outcome = harness.zplan("plan", os.path.join(HERE, model + ".dz"), *cluster, *words, "--json")
        plan = json.loads(outcome.out or "{}")
        named = "context ranks" in plan.get("certificate", {}).get("space", "")
        context = plan.get("degrees", {}).get("context", 1)
        tally.check("%s %s" % (what, "is divided" if divided else "is not divided"),
                    "certificate" in plan and (context > 1) == divided == named, outcome.tail())


def check_experts(tally, folder):
    """Dropout on slots is refused; and a trainer that counts only the choices of its own positions is found."""
    model, settings = os.path.join(HERE, "moe.dz"), dict(moe(2, 2).settings)
    words = [word for key, value in settings.items() for word in ("--set", "%s=%s" % (key, trainings.written(value)))]
    outcome = harness.zplan("plan", model, "--ranks", 2, *(word.replace("dropout=0", "dropout=0.1") for word in words))
    said = " ".join(outcome.err.split())
    tally.check("refused: dropout on slots", outcome.status == EXIT_NO_PLAN and "dropout on the slots of experts" in said, outcome.tail())
    tree, log, steps = os.path.join(folder, "gate"), os.path.join(folder, "gate.jsonl"), 4
    outcome = harness.zplan("build", model, "--ranks", 2, *words, "-o", tree, env=trainings.ENVIRONMENT)
    with open(os.path.join(tree, "trainer.c"), encoding="utf-8") as file:
        text = file.read()
    alone, faults = re.subn(r"\.choices = \w+, \.ranks = CONTEXT,", "", text)
    with open(os.path.join(tree, "trainer.c"), "w", encoding="utf-8") as file:
        file.write(alone)
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    made = harness.run(["make", "-C", tree], env=trainings.ENVIRONMENT)
    ran = harness.run(["mpirun.openmpi", *root, "-q", "--oversubscribe", "--bind-to", "none", "-n", 2, os.path.join(tree, "trainer"), "--steps",
                       steps, "--log", log, "--checkpoint", os.path.join(folder, "gate_ck")], env=trainings.ENVIRONMENT)
    if not tally.check("a trainer with a fault runs", faults == 1 and made.status == ran.status == 0, made.tail() + ran.tail()):
        return
    right = trainings.train("moe", dict(moe(2, 2).reference), folder, steps)
    errors = list(map(harness.number_error, [record["loss"] for record in harness.read_log(log)[0]], right.losses))
    tally.check("gates that count their own positions alone are found", max(errors) > 1e3 * trainings.BOUNDS["fp64"]["loss"], errors)


def check_exports(tally, folder):
    """Context, experts over context x data ranks: as flags of Megatron-LM; DeepSpeed has none."""
    plan = os.path.join(folder, "exported.json")
    settings = ("context=2", "context_by=keys", "plan.data=8", "plan.expert=8", "tensor=1", "pipeline=1", "batch=32", "model.layers=4", "model.capacity=4")
    words = [word for setting in settings for word in ("--set", setting)]
    model = os.path.join(harness.ROOT, "examples", "mixtral_8x7b.dz")
    made = harness.zplan("plan", model, "--gpus", 16, *words, "--for", "megatron", "-o", plan)
    megatron, deepspeed = harness.zplan("export", "megatron", plan), harness.zplan("export", "deepspeed", plan)
    rings = [word.replace("context_by=keys", "context_by=ring") for word in words]
    made_ring = harness.zplan("plan", model, "--gpus", 16, *rings, "--for", "megatron", "-o", plan + ".ring")
    exported = harness.zplan("export", "megatron", plan + ".ring")
    tally.check("a ring exported to Megatron-LM", made_ring.status == 0 and "--cp-comm-type p2p" in exported.out, made_ring.tail() + exported.tail())
    flags = ("--context-parallel-size 2", "--cp-comm-type all_gather", "--expert-model-parallel-size 8")
    tally.check("exported to Megatron-LM", made.status == megatron.status == 0 and all(flag in megatron.out for flag in flags), megatron.tail())
    tally.check("refused for DeepSpeed", deepspeed.status == 1 and "context 2: DeepSpeed" in deepspeed.err, deepspeed.tail())


def checks(tally, folder):
    check_exports(tally, folder)
    check_quarter(tally, folder)
    check_refusals(tally, folder)
    check_search(tally)
    check_experts(tally, folder)


if __name__ == "__main__":
    write_packed()
    sys.exit(trainings.main("context ranks train the same", TABLE, checks, steps=STEPS, value_turns=5))
