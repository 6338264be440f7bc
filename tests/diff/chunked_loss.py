#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loss in chunks of the tokens trains the same model as the loss at once on one rank.

    chunked_loss.py [--only TEXT] [--list] [--jobs N] [--verbose]

Parts that are made in backward: gradients of the weight are added up over parts and micro-batches, tied tables over stages, row statistics over
tensor ranks. Split backward, where the weight's gradient does not wait; ZeRO with gradients that go away in between;
experts; the emulated GPU. Losses, gradient norms and parameters of 4 steps; allowed: 1e-12 of losses and norms in f64, whose sums over rows are
in another order (measured: 1e-15), else as in layouts.py. State and saved values off the device: offload.py and offload_values.py have rows of this, bf16.py of 16 bits.

Alongside the table: a validation, for which no backward makes the loss, says the same; numbers of parts that the sequence does not have are refused.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

EXIT_NO_PLAN, STEPS, SAME = 3, 4, 1e-12
BOUNDS = dict(trainings.BOUNDS, fp64={"loss": SAME, "gradient norm": SAME, "parameters": 1e-10})
GPU = ("--cluster", "gpu", "--arch", "host")
NCCL = ("--", "--comm", "nccl")  # an emulated one
SMALL = {"more": {"model.layers": 2}, "batch": 4}


def case(model, t=1, p=1, d=1, parts=4, words=(), more=None, **settings):
    return trainings.layout(model, t, p, d, words=words, more=more, loss_chunks=parts, **settings)


TABLE = (
    case("gpt", parts=2),
    case("gpt", parts=16, microbatch=2),
    case("gpt", precision="fp32"),
    case("gpt", 2),
    case("gpt", 3, sequence=False, parts=8),
    case("gpt", 2, sequence=True),
    case("gpt", 1, 2),
    case("gpt", 1, 2, schedule="gpipe", microbatch=2),
    case("gpt", 1, 2, schedule="interleaved", chunks=2),
    case("gpt", 1, 2, schedule="zb_h1"),
    case("gpt", 1, 2, schedule="zb_v"),
    case("gpt", 1, 2, 2, schedule="zb_h1", zero=2),
    case("gpt", 1, 1, 2, zero=1),
    case("gpt", 1, 1, 2, zero=2, microbatch=2),
    case("gpt", 1, 1, 3, zero=3),
    case("gpt", 2, 2, 2, zero=3, recompute="full"),
    case("gpt", recompute="selective", cut="block", p=2),
    case("llama", 2, 1, 2, zero=1),
    case("moe", 1, 1, 2),
    # Of fewer layers: blocks of threads are played by one thread.
    case("gpt", words=GPU, **SMALL),
    case("gpt", 2, 1, 1, words=GPU, **SMALL),
    case("gpt", 1, 2, 1, words=GPU, schedule="zb_h1", **SMALL),
    case("gpt", 1, 1, 2, words=GPU, zero=3, **SMALL),
    case("gpt", 2, 2, 1, words=GPU + NCCL, schedule="zb_v", **SMALL),
)


def validation(tally, folder, name, parts, words, of_trainer=()):
    """The losses of a validation after each of two steps."""
    log = os.path.join(folder, name + ".jsonl")
    outcome = harness.zplan("run", os.path.join(HERE, "gpt.dz"), *words, "--set", "model.layers=2", "--set", "loss_chunks=%d" % parts, "--set", "train.validate.data=synthetic(seed=5)",
                            "--set", "train.validate.every=1", "-o", os.path.join(folder, name), "--log", log, "--steps", 2, "--check-memory", *of_trainer,
                            env=trainings.ENVIRONMENT)
    if not tally.check("%s runs" % name, outcome.status == 0, outcome.tail()):
        return []
    with open(log, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [record["loss"] for record in records if record.get("event") == "validate"]


def check_validation(tally, folder):
    whole = validation(tally, folder, "whole", 1, ("--ranks", 1))
    tally.check("two validations", len(whole) == 2 and whole[0] != whole[1], str(whole))
    for number, (name, words) in enumerate((("parts", ("--ranks", 1)), ("parts_nccl", ("--ranks", 2, "--set", "pipeline=2", *GPU)), ("parts2x2", ("--ranks", 4, "--set", "tensor=2", "--set", "pipeline=2")),
                        ("parts_zero3", ("--ranks", 2, "--set", "zero=3")), ("parts_gpu", ("--ranks", 2, "--set", "zero=3", *GPU)),
                        ("parts_sequence", ("--ranks", 2, "--set", "tensor=2", "--set", "sequence=true")))):
        if not harness.my_turn(number, 3):
            continue
        losses = validation(tally, folder, name, 4, words, NCCL if "nccl" in name else ())
        same = len(losses) == 2 and all(harness.number_error(got, want) <= SAME for got, want in zip(losses, whole))
        tally.check("validations of %s" % name, same, "%s, not %s" % (losses, whole))


def check_refusals(tally):
    outcome = harness.zplan("plan", os.path.join(HERE, "gpt.dz"), "--ranks", 1, "--set", "loss_chunks=3")
    tally.check("sixteen positions have no three equal parts", outcome.status == EXIT_NO_PLAN and "1, 2, 4, 8, 16" in outcome.out + outcome.err, outcome.tail())
    several = os.path.join(harness.ROOT, "examples", "bert_squad.dz")
    outcome = harness.zplan("plan", several, "--set", "loss_chunks=2")
    tally.check("two losses are not made in parts", outcome.status == EXIT_NO_PLAN and "only one loss of a matrix product" in outcome.out + outcome.err, outcome.tail())
    outcome = harness.zplan("plan", several, "--set", "loss_chunks=1")
    tally.check("two losses at once", outcome.status == 0, outcome.tail())
    outcome = harness.zplan("plan", os.path.join(HERE, "gpt.dz"), "--cluster", "gpu", "--gpus", 2, "--for", "megatron", "--set", "loss_chunks=4",
                            "--set", "precision=fp32")
    tally.check("Megatron-LM has no such loss", outcome.status == EXIT_NO_PLAN and "zplan's own trainer alone" in outcome.out + outcome.err, outcome.tail())


def checks(tally, folder):
    check_validation(tally, folder)
    check_refusals(tally)


if __name__ == "__main__":
    sys.exit(trainings.main("the loss in chunks trains the same", TABLE, checks=checks, steps=STEPS, bounds=BOUNDS))
