#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainers that shard gradients (ZeRO 2) and parameters (ZeRO 3) over the data ranks train what one rank trains.

    zero.py [--verbose]

1. Layouts of gpt.dz (tied embedding, dropout, odd heads), llama.dz and moe.dz with pipelines, tensor ranks, cuts inside layers,
   schedules, recomputation, experts on tensor ranks and spread over data ranks, both rank orders; seven of them on an emulated GPU, four over an emulated NCCL; as many at a time as trainings.in_turn takes. Losses, gradient
   norms, the validation loss and parameters against one rank: f64, within 1e-10 (measured 2.5e-12, the key biases of gpt.dz), f32 within
   the bounds that layouts.py gives reasons for. Every run has --check-memory: arena peaks and bytes sent are the plan's.
2. The bytes sent over the data axis, and the arena's weights and gradients, computed again here from the shapes of the checkpoint's
   tensors: that the plan shards at all is not taken from the plan.
3. Checkpoints: 3 + 3 steps are 6 to the last byte; what ZeRO 0 or 3 wrote, any other layout continues.
"""
import argparse
import collections
import json
import math
import os
import random
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS, HALF = 6, 3
LAYERS = {"gpt": 3, "llama": 3, "moe": 2}
BOUNDS = {"fp64": (1e-10, 1e-10, 1e-10), "fp32": (5e-6, 1e-4, 2e-2)}  # losses, norms, parameters
FILES = ("model.safetensors", "optimizer.safetensors")
GPU = ("--cluster", "gpu", "--arch", "host")
NCCL = ("--comm", "nccl")  # an emulated one

# cut: "layer" or "block"; expert: ranks of an expert group; schedule: with chunks a stage where there are several
Case = collections.namedtuple("Case", "model t p d zero batch micro recompute cut order expert precision more steps schedule comm",
                              defaults=("none", "layer", "tdp", 1, "fp64", (), STEPS, "1f1b", ()))

CASES = (
    Case("gpt", 1, 1, 2, 2, 8, 2),
    Case("gpt", 1, 1, 3, 3, 6, 1, "full"),
    Case("gpt", 2, 1, 2, 3, 8, 1, "full/tensor"),
    Case("gpt", 3, 1, 2, 2, 8, 2, "selective"),  # a tensor rank with one head of two: padding
    Case("gpt", 1, 2, 2, 3, 8, 1, "none,full"),
    Case("gpt", 1, 3, 2, 2, 8, 1, "none", "block", "tpd"),
    Case("gpt", 2, 2, 2, 3, 8, 2, "selective", "block"),
    Case("llama", 1, 2, 3, 2, 6, 1, "full", "layer", "tpd"),
    Case("llama", 2, 2, 2, 3, 8, 1, "none", precision="fp32"),
    Case("moe", 2, 1, 2, 3, 8, 1, "selective"),
    Case("moe", 1, 1, 4, 2, 8, 1, "none", "layer", "tdp", 2),
    Case("moe", 1, 2, 4, 3, 8, 1, "full", "layer", "tpd", 2),
    Case("moe", 2, 1, 2, 3, 8, 2, "none", "layer", "tdp", 2),
    Case("gpt", 1, 2, 2, 3, 8, 1, schedule="gpipe"),
    Case("gpt", 1, 2, 2, 2, 8, 1, "full", schedule="interleaved 2"),
    Case("gpt", 1, 2, 2, 3, 8, 1, "selective", "block", schedule="zb_h1"),  # backward in two parts
    Case("gpt", 2, 2, 2, 2, 8, 1, schedule="zb_v 2"),
    Case("moe", 1, 2, 2, 3, 8, 1, "full", "layer", "tdp", 2, schedule="zb_h2"),
    Case("gpt", 2, 1, 2, 3, 4, 1, "full", more=GPU, steps=2),
    Case("gpt", 1, 2, 2, 2, 4, 1, more=GPU, steps=2),
    Case("gpt", 1, 2, 2, 3, 4, 1, more=GPU, steps=2, schedule="zb_h1"),
    # Messages are received ahead, those of the validation that follows, too.
    Case("gpt", 1, 3, 2, 2, 8, 1, "full", more=GPU, steps=2, comm=NCCL),
    Case("gpt", 1, 2, 2, 2, 8, 1, more=GPU, steps=2, schedule="interleaved 2", comm=NCCL),
    Case("gpt", 1, 2, 2, 3, 4, 1, more=GPU, steps=2, schedule="zb_h1", comm=NCCL),
    Case("gpt", 1, 2, 2, 2, 8, 1, "full", more=GPU, steps=2, schedule="zb_v 2", comm=NCCL),
)
# A checkpoint of the first half is continued by the second: layouts of gpt.dz.
ONE = Case("gpt", 1, 1, 1, 0, 8, 1)
NEEDED = CASES[:2] + (CASES[4],)  # whose shards are counted, and what is resumed
CHAINS = ((ONE, CASES[4]), (CASES[4], Case("gpt", 1, 1, 4, 2, 8, 1)), (CASES[2], ONE))


def name_of(case):
    return "%s %s t%d p%d d%d zero%d recompute %s%s%s%s%s%s" % (
        case.model, case.precision, case.t, case.p, case.d, case.zero, case.recompute, " cut inside layers" if case.cut == "block" else "",
        " order tpd" if case.order == "tpd" else "", " expert %d" % case.expert if case.expert > 1 else "", "" if case.schedule == "1f1b" else " " + case.schedule, " emulated GPU" + " nccl" * bool(case.comm) if case.more else "")


def reference_of(case):
    return case._replace(t=1, p=1, d=1, zero=0, micro=1, recompute="none", cut="layer", order="tdp", expert=1, more=(), schedule="1f1b", comm=())


# ---- one run ----

Result = collections.namedtuple("Result", "error losses norms validation end folder")


def settings(case):
    yield from ("tensor=%d" % case.t, "pipeline=%d" % case.p, "plan.data=%d" % case.d, "zero=%d" % case.zero)
    yield from ("batch=%d" % case.batch, "microbatch=%d" % case.micro, 'precision="%s"' % case.precision, 'cut="%s"' % case.cut)
    yield from ('rank_order="%s"' % case.order, "model.layers=%d" % LAYERS[case.model])
    schedule, _, chunks = case.schedule.partition(" ")
    yield from ('schedule="%s"' % schedule, "chunks=%s" % (chunks or 1))
    if case.model == "moe":
        yield from ("plan.expert=%d" % case.expert, "model.n=8")
    modes = case.recompute.split(",")
    if len(modes) > 1:
        yield "stage_recompute=[%s]" % ", ".join('"%s"' % mode for mode in modes)
    else:
        mode, _, split = case.recompute.partition("/")
        yield from ('recompute="%s"' % mode, 'recompute_shard="%s"' % (split or "none"))


def write_tokens(path):
    """A token file (uint16) of ids that all three models have."""
    rng = random.Random(5)
    tokens = [rng.randrange(61) for _ in range(600)]
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + struct.pack("<%dH" % len(tokens), *tokens))


def train(folder, case, place, steps=None, resume=False):
    """Trains in folder/place; a second call there may resume."""
    root = os.path.join(folder, place)
    log, tokens = os.path.join(root, "log.jsonl"), os.path.join(folder, "tokens.bin")
    os.makedirs(root, exist_ok=True)
    if os.path.exists(log):
        os.remove(log)
    command = ["run", os.path.join(HERE, case.model + ".dz"), "--ranks", case.t * case.p * case.d, "-o", os.path.join(root, "tree-" + str(abs(hash(case))))]
    for setting in settings(case):
        command += ["--set", setting]
    command += ["--steps", steps or case.steps, "--log", log, "--threads", 1, "--check-memory", *case.more]
    command += ["--resume"] if resume else []
    command += ["--", *case.comm, "--checkpoint", os.path.join(root, "ck"), "--validate", tokens]
    outcome = harness.zplan(*command, env=trainings.ENVIRONMENT)
    if outcome.status != 0:
        return Result("exit %d\n%s" % (outcome.status, outcome.tail()), [], [], None, None, root)
    records, end = harness.read_log(log)
    with open(log, encoding="utf-8") as lines:
        validated = [json.loads(line)["loss"] for line in lines if '"event": "validate"' in line]
    error = None if end and len(validated) == 1 else "no end, or not one validation: %s" % validated
    return Result(error, [r["loss"] for r in records], [r["grad_norm"] for r in records], validated[-1] if validated else None, end, root)


def file_of(result, steps, name=FILES[0]):
    return os.path.join(harness.step_folder(os.path.join(result.folder, "ck"), steps), name)


# ---- judging ----

def largest(got, want):
    return max(map(harness.number_error, got, want)) if got and len(got) == len(want) else math.inf


def judge(tally, name, case, got, want, skipped=0):
    """skipped: steps of `want` before `got` began."""
    if got.error or want.error:
        tally.check(name, False, got.error or "the run on one rank failed: %s" % want.error)
        return
    losses, norms, parameters = BOUNDS[case.precision]
    error, tensor = harness.model_error(file_of(got, case.steps), file_of(want, case.steps))
    found = (("losses", largest(got.losses, want.losses[skipped:]), losses), ("norms", largest(got.norms, want.norms[skipped:]), norms),
             ("validation loss", harness.number_error(got.validation, want.validation), losses), ("parameters, " + tensor, error, parameters))
    for what, error, bound in found:
        tally.check("%s: %s" % (name, what), error <= bound, "%.2e of %.0e" % (error, bound))
    return found


# ---- bytes and memory from the shapes ----

def up(n, unit):
    return (n + unit - 1) // unit * unit


def expected_of(model_file, micro_batches, data, zero):
    """(bytes sent over the data axis in a step, elements of a rank's weights, of its gradients) of gpt.dz in f64 on `data` ranks. A layer
    moves at once and every other parameter alone, in whole shards of 64 elements; the first unit uses wte and wpe, the last wte and the norm."""
    layers, others = collections.Counter(), {}
    for name, (shape, _) in harness.read_safetensors(model_file).items():
        elements = up(math.prod(shape), 64)
        inside = re.match(r"h\.(\d+)\.", name)
        if inside:
            layers[inside.group(1)] += elements
        else:
            others[name] = up(elements, 64 * data)
    flat = sum(up(n, 64 * data) for n in layers.values()) + sum(others.values())
    used = flat + others["wte"]
    passes = {2: micro_batches * used + flat, 3: 3 * micro_batches * used}[zero]
    return 8 * (data - 1) * passes, flat // data if zero == 3 else flat, flat // data


def check_shards(tally, case, got):
    with open(os.path.join(got.folder, next(f for f in os.listdir(got.folder) if f.startswith("tree-")), "plan.json"), encoding="utf-8") as file:
        memory = json.load(file)["stages"][0]["memory"]
    sent, weights, gradients = expected_of(file_of(got, case.steps), case.batch // (case.d * case.micro), case.d, case.zero)
    name = "shards of " + name_of(case)
    tally.check(name + ": bytes sent", got.end["communicated_bytes"]["data"] == sent, "%s, not %d" % (got.end["communicated_bytes"], sent))
    for what, elements in (("weights", weights), ("gradients", gradients)):
        tally.check("%s: %s" % (name, what), 0 <= memory[what] - 8 * elements < 256, "%d, not %d" % (memory[what], 8 * elements))


# ---- checkpoints ----

def check_resume(tally, folder, case, straight):
    half = train(folder, case, "half", HALF)
    rest = train(folder, case, "half", STEPS, resume=True)
    name = "resumed " + name_of(case)
    if not tally.check(name, not (half.error or rest.error or straight.error), half.error or rest.error or straight.error):
        return
    tally.check(name + ": losses to the last bit", half.losses + rest.losses == straight.losses)
    for file in FILES:
        tally.check("%s: %s to the last byte" % (name, file), harness.same_bytes(file_of(rest, STEPS, file), file_of(straight, STEPS, file)))


def check_chains(tally, folder, want):
    for number, (before, after) in enumerate(CHAINS):
        name = "%s continued on %s" % (name_of(before), name_of(after))
        place = "chain%d" % number
        first = train(folder, before, place, HALF)
        if tally.check(name, not first.error, first.error):
            judge(tally, name, after, train(folder, after, place, STEPS, resume=True), want, HALF)


def main():
    parser = argparse.ArgumentParser(description="ZeRO 2 and 3 against one rank")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally, references, results = harness.Tally(), {}, {}
    with harness.Scratch() as folder:
        write_tokens(os.path.join(folder, "tokens.bin"))
        for number, case in enumerate(trainings.in_turn(CASES, NEEDED, values=lambda case: set(enumerate(case)))):
            reference = reference_of(case)
            if reference not in references:
                references[reference] = train(folder, reference, "one%d" % number)
            results[case] = train(folder, case, "case%d" % number)
            found = judge(tally, name_of(case), case, results[case], references[reference])
            if options.verbose:
                print("%s: %s" % (name_of(case), ", ".join("%s %.1e" % pair[:2] for pair in found or ())), flush=True)
        for case in CASES[:2]:
            check_shards(tally, case, results[case])
        check_resume(tally, folder, CASES[4], results[CASES[4]])
        check_chains(tally, folder, references[reference_of(CASES[0])])
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
