#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""0/1 Adam (freeze = growing(...)): what it does between two exchanges, computed again from checkpoints; bytes; a text.

    intervals.py [--verbose] [--text]

1. A learning rate that is so small that weights stay where they are to 1e-9, so that gradients are those of plain Adam, which goes on from the same
   checkpoint and writes its moments after every step. Momentum is linear in gradients: what ranks exchange at the end of an interval, with what
   their errors grew by, is the mean of plain Adam's momenta, each weighted with its rate over its correction. Weights follow from it by the
   formula, with decay; the variance is plain Adam's in steps that sum gradients, and stays in others. Intervals of one, two and four steps.
2. A run in parts is one at once, to the last byte, in 16 bits; two stages train what one does, and so does an emulated GPU in parts.
   --check-memory: arenas are the plan's, bytes those of the exchanges and sums that the plan's tables say.
3. The plan's bytes of an average step are those that the run sent, and its step time is that of an average step: over schedules it is linear in how
   many steps exchange and how many sum.
4. With --text, a text: more bytes are saved than by 1-bit Adam (tests/diff/freeze.py), and the loss at the end is not above plain Adam's.
5. What does not go together is refused.
"""
import argparse
import json
import math
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
sys.path.insert(0, HERE)
import freeze  # noqa: E402
import harness  # noqa: E402
import trainings  # noqa: E402

LR, BETA1, BETA2, EPS, DECAY = 1e-9, 0.9, 0.95, 1e-8, 0.1
OPTIMIZER = "optimizer=adamw(lr = %g, betas = [%g, %g], eps = %g, weight_decay = %g%%s)"
TINY = OPTIMIZER % (LR, BETA1, BETA2, EPS, DECAY)
USUAL = OPTIMIZER % (3e-3, BETA1, BETA2, EPS, DECAY)
GROWING = ", freeze = growing(every = 2, local_after = 3, local_doubles = 2, local_most = 4)"
VARIANCE = (0, 1, 2)   # steps that sum gradients
ENDS = (3, 5, 9)       # of the intervals of one, two and four steps
EXCHANGES = 3 + 1 + 1  # in all these steps
COMMON = ("--set", "train.schedule=constant()", "--set", "clip=1e9", "--set", 'train.checkpoint.dir="ck"', "--set", "train.checkpoint.keep=20")
AT_THE_END, EVERY_STEP = ("--set", "train.checkpoint.every=100"), ("--set", "train.checkpoint.every=1")
BOUND = 1e-5  # weights move by 1e-9, of which f64 leaves seven digits; errors are f32
MOVED = 1e-6
GPU = ("--cluster", "gpu", "--arch", "host")
NCCL = ("--", "--comm", "nccl")  # an emulated one


def case(p=1, precision="fp64", **more):
    return trainings.layout("llama", tensor=1, pipeline=p, data=2, more={"model.layers": 2}, batch=8, precision=precision, compress=True, **more)


def train(one, place, steps, words, settings=None, kept=AT_THE_END):
    os.makedirs(place, exist_ok=True)
    return trainings.train(one.model, settings or dict(one.settings), place, steps, COMMON + kept + words + (NCCL if GPU[0] in words else ()))


def growing(optimizer, resume=False):
    return ("--set", optimizer % GROWING) + (("--resume",) if resume else ())


def tensors_of(place, step):
    folder, tensors = harness.step_folder(os.path.join(place, "ck"), step), {}
    for name in ("model.safetensors", "optimizer.safetensors", "errors.safetensors"):
        if os.path.exists(os.path.join(folder, name)):
            tensors.update(harness.read_safetensors(os.path.join(folder, name)))
    return tensors


def check_interval(before, after, plain, first, last):
    """Steps first .. last - 1; plain: by step, plain Adam's tensors after it. The largest errors of momentum, weights and variance."""
    rates = [1 / (1 - BETA1 ** (step + 1)) for step in range(first, last)]
    total, worst = sum(rates), {"momentum": 0.0, "weights": 0.0, "variance": 0.0}
    root = math.sqrt(1 - BETA2 ** sum(step < last for step in VARIANCE))
    most = max(1, (1 - BETA1) / math.sqrt(1 - BETA2))
    for name in (name[:-len(".exp_avg")] for name in after if name.endswith(".exp_avg")):
        m, v = after[name + ".exp_avg"][1], after[name + ".exp_avg_sq"][1]
        kinds = [".worker_error.0", ".worker_error.1", ".server_error"]
        errors = [sum(share * (after[name + kind][1][i] - before[name + kind][1][i]) for share, kind in zip((0.5, 0.5, 1), kinds)) for i in range(len(m))]
        want = [math.fsum(rate * plain[step + 1][name + ".exp_avg"][1][i] for rate, step in zip(rates, range(first, last))) / total if v[i] > 0 else 0
                for i in range(len(m))]
        worst["momentum"] = max(worst["momentum"], harness.tensor_error([a + b for a, b in zip(m, errors)], want))
        shape, weights = before[name]
        keep = (1 - LR * (DECAY if len(shape) > 1 else 0)) ** (last - first)
        moves = [x - x * keep + LR * total * max(-most, min(most, a / (math.sqrt(b) / root + EPS))) for x, a, b in zip(weights, m, v)]
        worst["weights"] = max(worst["weights"], harness.tensor_error([(x - y) / LR for x, y in zip(weights, after[name][1])], [move / LR for move in moves]))
        summed = last - 1 in VARIANCE
        want = plain[last][name + ".exp_avg_sq"][1] if summed else before[name + ".exp_avg_sq"][1]
        worst["variance"] = max(worst["variance"], harness.tensor_error(v, want))
    return worst


def check_steps(tally, folder, verbose):
    one, place = case(), os.path.join(folder, "steps")
    for begin, end in zip((0, 2) + ENDS, (2,) + ENDS):
        if begin:
            plain = shutil.copytree(place, place + " plain %d" % begin)
            done = train(one, plain, end, ("--set", TINY % "", "--resume"), dict(one.settings, compress=False), EVERY_STEP)
        got = train(one, place, end, growing(TINY, begin > 0))
        if not tally.check("to step %d" % end, not got.error and (not begin or not done.error), got.error or done.error if begin else got.error or ""):
            return
        if not begin:
            continue
        reference = {step: tensors_of(plain, step) for step in range(begin + 1, end + 1)}
        errors = check_interval(tensors_of(place, begin), tensors_of(place, end), reference, begin, end)
        tally.check("steps %d to %d by the formulas" % (begin, end), errors["momentum"] < MOVED and errors["weights"] < BOUND and errors["variance"] < MOVED, str(errors))
        if verbose:
            print("steps %d to %d: %s" % (begin, end, errors), flush=True)


def check_parts(tally, folder):
    """What is stopped and goes on, in 16 bits."""
    one = case(precision="mixed_bf16")
    whole, parts = (os.path.join(folder, "bf16 " + name) for name in ("whole", "parts"))
    got = train(one, whole, ENDS[-1], growing(USUAL))
    for i, end in enumerate(ENDS[1:]):
        train(one, parts, end, growing(USUAL, i > 0))
    folders = [harness.step_folder(os.path.join(each, "ck"), ENDS[-1]) for each in (whole, parts)]
    same = [harness.same_bytes(*(os.path.join(each, name) for each in folders)) for name in ("model.safetensors", "optimizer.safetensors", "errors.safetensors")]
    tally.check("bf16 in parts, to the last byte", not got.error and all(same), "%s %s" % (same, got.error))


def check_layouts(tally, folder, verbose):
    """The usual learning rate: ranks have other weights between exchanges."""
    one = train(case(), os.path.join(folder, "whole"), ENDS[-1], growing(USUAL))
    end = harness.read_log(os.path.join(folder, "whole", "log.jsonl"))[1]
    plain = train(case(), os.path.join(folder, "plain"), 1, ("--set", USUAL % ""), dict(case().settings, compress=False))
    sums = harness.read_log(os.path.join(folder, "plain", "log.jsonl"))[1]["communicated_bytes"]["data"]
    signs = sums / (8 / (12 / 64))
    sent = end["communicated_bytes"]["data"] * end["steps_run"]
    tally.check("bytes of a run", not plain.error and abs(sent / (len(VARIANCE) * sums + EXCHANGES * signs) - 1) < 0.01, "%s %s" % (sent, sums))
    for name, other, words, ends in (("two stages", case(p=2), (), ENDS[-1:]), ("parts on an emulated GPU", case(), GPU, ENDS[1:])):
        for i, step in enumerate(ends):
            got = train(other, os.path.join(folder, name), step, words + growing(USUAL, i > 0))
        errors = trainings.judge(tally, name, got, one, trainings.BOUNDS["fp64"])
        if verbose:
            print("%s: %s" % (name, errors), flush=True)


# Of nine steps so many exchange signs, and so many sum gradients.
SCHEDULES = ((GROWING, EXCHANGES, len(VARIANCE)),
             (", freeze = growing(every = 1, local_after = 1, local_doubles = 100, local_most = 2)", 5, 1),
             (", freeze = growing(every = 2, local_after = 1000)", 9, 5),
             (", freeze = growing(every = 1000, local_after = 1000)", 9, 9))


def plan_of(folder, freeze):
    """As check_layouts trains it."""
    path, command = os.path.join(folder, "plan.json"), ["plan", os.path.join(HERE, "llama.dz"), "--ranks", 2]
    for key, value in case().settings:
        command += ["--set", "%s=%s" % (key, json.dumps(value))]
    outcome = harness.zplan(*command, *COMMON, *AT_THE_END, "--set", USUAL % freeze, "--set", "steps=%d" % ENDS[-1], "-o", path)
    with open(path, encoding="utf-8") as file:
        return json.load(file) if outcome.status == 0 else None


def check_prices(tally, folder, verbose):
    plans = [plan_of(folder, freeze) for freeze, _, _ in SCHEDULES]
    end = harness.read_log(os.path.join(folder, "whole", "log.jsonl"))[1]
    planned, sent = plans[0]["traffic_bytes"]["data_average"], end["communicated_bytes"]["data"]
    tally.check("bytes of an average step", abs(sent / planned - 1) < 1e-6, "%s %s" % (sent, planned))
    took = [plan["estimate"]["step_s"] * ENDS[-1] for plan in plans]
    summing, again = (took[3] - took[2]) / (9 - 5), (took[0] - took[1]) / (len(VARIANCE) - 1)
    exchanging = (took[2] - took[0] - summing * (5 - len(VARIANCE))) / (9 - EXCHANGES)
    if verbose:
        print("prices: a step that sums %.3g s and %.3g s, one that exchanges %.3g s" % (summing, again, exchanging), flush=True)
    tally.check("the price is of the average step", abs(summing / again - 1) < 1e-6 and summing > 0 and exchanging > 0, str(took))


TEXT = "growing(every = 16, local_after = 400, local_doubles = 400, local_most = 8)"
MOST_ABOVE, LEAST_SAVED = 1.0, 10.0


def check_refusals(tally):
    model = os.path.join(HERE, "llama.dz")
    for words, text, status in (
            (("zero=1",), "freeze = growing does not go with ZeRO", 3),
            (("optimizer=lamb(lr = 1e-3, freeze = growing())",), "freeze = growing is for adam and adamw", 3),
            (("optimizer=adam(lr = 1e-3, weight_decay = 0.1, freeze = growing())",), "`freeze = growing` does not go with `adam` and `weight_decay`", 1),
            (("optimizer=adamw(lr = 1e-3, freeze = growing(), freeze_step = 3)",), "both say when the variance freezes", 1),
            (("optimizer=adamw(lr = 1e-3, freeze = growing(every = 0))",), "every", 1)):
        optimizer = () if words[0].startswith("optimizer") else ("optimizer=adamw(lr = 1e-3, freeze = growing())",)
        said = [part for word in optimizer + ("compress=true",) + words for part in ("--set", word)]
        outcome = harness.zplan("plan", model, "--ranks", 2, *said)
        tally.check("refused: %s" % text, outcome.status == status and text in outcome.out + outcome.err, "%d %s" % (outcome.status, outcome.tail()))
    said = ("--set", "compress=true", "--set", "optimizer=adamw(lr = 1e-3, freeze = growing(local_after = 100))", "--set", 'offload[optimizer]="cpu"')
    outcome = harness.zplan("plan", model, "--cluster", "gpu", "--gpus", 2, *said)
    tally.check("refused: state on hosts", outcome.status == 3 and "freeze = growing does not go with optimizer state off the device" in
                outcome.out + outcome.err, outcome.tail())


def main():
    parser = argparse.ArgumentParser(description="0/1 Adam")
    parser.add_argument("--verbose", action="store_true", help="the errors")
    parser.add_argument("--text", action="store_true", help="also train on a text: 20 seconds")
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_refusals(tally)
        check_steps(tally, folder, options.verbose)
        check_layouts(tally, folder, options.verbose)
        check_prices(tally, folder, options.verbose)
        check_parts(tally, folder)
        if options.text:
            freeze.check_text(tally, folder, TEXT, MOST_ABOVE, LEAST_SAVED, options.verbose)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
