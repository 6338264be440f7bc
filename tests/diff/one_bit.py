#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam: what a trainer does before and after its variance freezes, and what it sends.

    one_bit.py [--verbose]

1. Layouts with the same data ranks and no tensor split train the same: signs and scales belong to blocks that begin where
   parameters do, so pipelines, cuts, rank orders and recomputation change nothing but rounding, and tied copies stay equal.
   Losses, norms and parameters of llama.dz in f64, within the bound of tests/support/trainings.py. The gradients of gpt.dz's key biases
   are rounding noise whose signs reach the scale that a block gets from the sum of its ranks, so there the loss is compared until the first
   compressed update. Every run has --check-memory: arena peaks and bytes sent are the plan's, warm-up and compressed steps together.
2. Until the variance freezes it is plain Adam, afterwards it is not; a frozen step sends 21 times less than one of plain Adam.
3. A checkpoint of the compressed phase goes on: to the bit in the same layout, near on other data ranks, which is said, and with
   plain Adam. GPU trainers, on an emulated GPU, go on from a CPU trainer's.
4. GPU trainers train what CPU trainers do.
5. What does not go together is refused.
The arithmetic of the exchange is tested in tests/unit/test_kernels_one_bit.c; that a text is learned as with plain Adam, in freeze.py.
"""
import argparse
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS, FREEZE = 12, 4
OPTIMIZER = "optimizer=adamw(lr = 3e-3, betas = [0.9, 0.95], eps = 1e-8, weight_decay = 0.1%s)"
FROZEN = ("--set", OPTIMIZER % (", freeze_step = %d" % FREEZE))
COMPRESS = ("--set", "compress=true") + FROZEN
GPU = ("--cluster", "gpu", "--arch", "host")
EXIT_NO_PLAN = 3
SENT_LESS = 2 * 8 / (2 * 12 / 64)  # f64 against 12 bytes for 64 elements, two passes both


def case(model, p, d, micro, t=1, recompute="none", cut="layer", order="tdp", **more):
    return trainings.layout(model, tensor=t, pipeline=p, data=d, microbatch=micro, recompute=recompute, cut=cut, rank_order=order, batch=8,
                            compress=True, **more)


def train(one, place, words, steps=STEPS):
    return trainings.train(one.model, dict(one.settings), place, steps, words)


def train_plain(one, place, words=()):
    return trainings.train(one.model, dict(one.reference), place, STEPS, ("--set", OPTIMIZER % "") + words)


FAMILIES = (  # of each, all train what the first does
    (case("llama", 1, 2, 2), case("llama", 3, 2, 2, recompute="full"), case("llama", 2, 2, 1, cut="block", order="tpd")),
    (case("gpt", 1, 4, 1), case("gpt", 2, 4, 1, recompute="selective")),
    (case("gpt", 2, 2, 2, t=2),),  # shares of tensors with padding
    (case("llama", 1, 2, 2, zero=1), case("llama", 3, 2, 2, recompute="full", zero=1)),
)


def check_family(tally, folder, number, family, verbose):
    results = []
    for i, one in enumerate(family):
        place = os.path.join(folder, "%d_%d" % (number, i))
        os.makedirs(place)
        got = train(one, place, FROZEN)
        if not tally.check(one.name + " runs", not got.error, got.error or ""):
            return
        results.append(got)
    place = os.path.join(folder, "%d_plain" % number)
    os.makedirs(place)
    plain = train_plain(family[0], place)
    for one, got in zip(family, results):
        name = one.name
        before = max(map(harness.number_error, got.losses[:FREEZE + 1], plain.losses[:FREEZE + 1]))
        tally.check(name + ": plain Adam while the variance moves", before <= 1e-10, "%.2e" % before)
        after = max(map(harness.number_error, got.losses[FREEZE + 1:], plain.losses[FREEZE + 1:]))
        tally.check(name + ": compressed afterwards", 1e-6 < after < 0.1, "%.2e" % after)
        errors, tensor = trainings.errors_of(got, results[0])
        if verbose:
            print("%5.2f s  %s: %s, from plain Adam %.1e" % (got.seconds, name, errors, after), flush=True)
        if one.model == "gpt":
            errors = {"loss": max(map(harness.number_error, got.losses[:FREEZE + 1], results[0].losses[:FREEZE + 1]))}
        if dict(one.settings)["tensor"] == 1:
            tally.check(name + ": as the first of its family", max(errors.values()) <= 1e-10, "%s %s" % (errors, tensor))


def bytes_of(folder, name, steps, more):
    log = os.path.join(folder, name + ".jsonl")
    outcome = harness.zplan("run", os.path.join(HERE, "llama.dz"), "--ranks", 2, "-o", os.path.join(folder, "tree_" + name), "--log", log,
                            "--set", "tensor=1", "--set", "pipeline=1", "--set", "plan.data=2", "--set", "zero=0", *more, "--steps", steps,
                            "--threads", 1, "--check-memory", env=trainings.ENVIRONMENT)
    if outcome.status != 0:
        return 0.0
    return harness.read_log(log)[1]["communicated_bytes"]["data"] * steps


def check_bytes(tally, folder):
    plain = bytes_of(folder, "plain", 1, ())
    warm, more = bytes_of(folder, "warm", FREEZE, COMPRESS), bytes_of(folder, "more", FREEZE + 2, COMPRESS)
    tally.check("steps of the warm-up send what plain Adam does", plain > 0 and abs(warm / FREEZE / plain - 1) < 0.01, "%s %s" % (warm, plain))
    tally.check("a frozen step sends %.1f times less in f64" % SENT_LESS, more > warm and abs(warm / FREEZE / ((more - warm) / 2) - SENT_LESS) < 0.01,
                "%s, %s" % (warm, more))


def check_resume(tally, folder):
    """Parameters, moments, the number of frozen steps and the ranks' errors go on: the same layout to the bit. On other data
    ranks errors start again, so the first loss is the same and later ones are near; that is said."""
    one, two_stages, four = (case("llama", p, d, micro, **{"model.layers": 2}) for p, d, micro in ((1, 2, 2), (2, 2, 2), (1, 4, 1)))
    places = [os.path.join(folder, "resume%d" % i) for i in range(2)]
    for place in places:
        os.makedirs(place)
    whole = train(one, places[0], FROZEN)
    train(one, places[1], FROZEN, FREEZE + 2)
    with open(os.path.join(harness.step_folder(os.path.join(places[1], "ck"), FREEZE + 2), "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    tally.check("the manifest counts frozen steps", manifest.get("frozen_steps") == 2 and manifest.get("error_ranks") == 2, str(manifest))
    for number, (name, least, most, goes_on) in enumerate((
            ("same layout", 0, 0, lambda place: train(one, place, FROZEN + ("--resume",))),
            ("two stages", 0, 1e-10, lambda place: train(two_stages, place, FROZEN + ("--resume",))),
            ("the same on GPUs", 0, 1e-10, lambda place: train(one, place, FROZEN + GPU + ("--resume",))),
            ("four data ranks", 1e-10, 0.1, lambda place: train(four, place, FROZEN + ("--resume",))),
            ("plain Adam on one rank", 1e-10, 0.1, lambda place: train_plain(one, place, ("--resume",))))):
        if number and not harness.my_turn(number, 2):
            continue
        place = os.path.join(folder, "resume " + name)
        shutil.copytree(places[1], place)
        got = goes_on(place)
        losses = got.losses if len(got.losses) == STEPS else []
        first = harness.number_error(losses[FREEZE + 2], whole.losses[FREEZE + 2]) if losses else 1.0
        later = max(map(harness.number_error, losses, whole.losses)) if losses else 1.0
        tally.check("resumed, %s" % name, first <= min(most, 1e-13) and least <= later <= most, "%s %.1e %.1e" % (got.error, first, later))
        if losses and most < 0.1:
            error, tensor = harness.model_error(got.checkpoint, whole.checkpoint)
            tally.check("resumed, %s: parameters" % name, error <= most, "%s %.1e" % (tensor, error))
    check_note(tally, folder, places[1])


def check_note(tally, folder, place):
    place = shutil.copytree(place, os.path.join(folder, "resume note"))
    outcome = harness.zplan("run", os.path.join(HERE, "llama.dz"), "--ranks", 4, "-o", os.path.join(place, "tree"), "--set", "tensor=1", "--set",
                            "pipeline=1", "--set", "plan.data=4", "--set", "zero=0", "--set", "batch=8", "--set", "microbatch=1", "--set",
                            "model.layers=2", *COMPRESS, "--steps", FREEZE + 3, "--resume", "--threads", 1, "--", "--checkpoint", os.path.join(place, "ck"),
                            env=trainings.ENVIRONMENT)
    tally.check("errors of other data ranks: a note", outcome.status == 0 and
                "holds the errors of 1-bit Adam on 2 data ranks; on 4 they start at zero" in outcome.err + outcome.out, outcome.tail())


def check_gpu(tally, folder):
    """Both phases, with pipeline stages; CPU ranks in the same layout are the reference. Staged messages: check_resume."""
    one = trainings.layout("llama", 1, 2, 2, {"model.layers": 2}, recompute="full", microbatch=2, batch=8, compress=True)
    results = []
    for name, words in (("cpu", FROZEN), ("gpu", FROZEN + GPU + ("--", "--comm", "nccl"))):
        place = os.path.join(folder, "device " + name)
        os.makedirs(place)
        results.append(train(one, place, words, FREEZE + 3))
    trainings.judge(tally, one.name + " on an emulated GPU over NCCL", results[1], results[0], trainings.BOUNDS["fp64"])


def check_refusals(tally):
    """ZeRO 2, state on disks, and SGD."""
    model = os.path.join(HERE, "gpt.dz")
    for words, text, status in (
            (("plan", model, "--ranks", 2, "--set", "compress=true", "--set", "zero=2"), "compress does not go with ZeRO 2 and 3", EXIT_NO_PLAN),
            (("plan", model, "--gpus", 2, "--cluster", "gpu", "--set", "compress=true", "--set", "zero=1", "--set", 'offload[optimizer]="nvme"'),
             "compress does not go with optimizer state on disks", EXIT_NO_PLAN),
            (("plan", model, "--ranks", 2, "--set", "compress=true", "--set", "optimizer=sgd(lr = 0.1)"), "compress is for adam", EXIT_NO_PLAN),
            (("check", model, "--set", "optimizer=adamw(lr = 1e-3, freeze_step = 0)"), "freeze_step", 1)):
        outcome = harness.zplan(*words)
        good = text in outcome.out + outcome.err and (outcome.status == status if status is not None else outcome.status != 0)
        tally.check("refused: %s" % text, good, "exit %d\n%s" % (outcome.status, outcome.tail()))


def main():
    parser = argparse.ArgumentParser(description="1-bit Adam")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_refusals(tally)
        check_bytes(tally, folder)
        for number, family in enumerate(FAMILIES):
            if harness.my_turn(number, 2):
                check_family(tally, folder, number, family, options.verbose)
        check_resume(tally, folder)
        check_gpu(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
