#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam and 1-bit LAMB, without ZeRO and with ZeRO 1, against what the papers' algorithms give in PyTorch.

    onebit.py [--text]

tests/torch/onebit.py wrote them from the papers, with two simulated workers, and committed values. Here the same small LLaMA, of one layer in f64, is trained on two ranks: losses and gradient norms of
40 steps, 8 of them uncompressed, factors of 1-bit LAMB, and of every tensor the sum and the sum of squares in the end are those values, also with other options than the usual ones. --check-memory in all runs.

Bounds. Both sides round in f64, by 4e-16 of a loss, but errors and scales are f32 numbers: where one lies between two of these, another order of a sum decides which. That changes one block's scale by 6e-8 of
itself, and losses by 1e-12; of the weights 2e-12 was seen. One sign that is decided otherwise, in one block of one worker, changes losses by 4e-5 and more (tried in each of the first four rows).

--text, by hand, six minutes: a text (that of tests/diff/freeze.py) by LAMB and by 1-bit LAMB, without ZeRO and with ZeRO 1, for bounds of the factor; losses of the last 50 steps and bytes of the whole runs are printed. With
ZeRO 1 and a factor of at most 1 the loss is at most 10 % above LAMB's, and at least 6 times fewer bytes are sent.
"""
import argparse
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
sys.path.insert(0, HERE)
import freeze  # noqa: E402
import harness  # noqa: E402
import trainings  # noqa: E402

TORCH = os.path.join(os.path.dirname(HERE), "torch")
BOUND, NORM_BOUND = 1e-10, 1e-9


def train(tally, folder, name, want, run):
    """(lines of the log, folder of the last checkpoint), None: it failed."""
    place = os.path.join(folder, name)
    numbers = dict({"lr": run["lr"], "eps": want["eps"], "weight_decay": want["weight_decay"], "freeze_step": want["freeze"]}, **run["options"])
    optimizer = "%s(betas = [%g, %g], %s)" % (run["optimizer"], *want["betas"], ", ".join("%s = %g" % item for item in numbers.items()))
    outcome = harness.zplan("run", os.path.join(TORCH, "llama.dz"), "--ranks", 2, "--threads", 1, "-o", place, "--steps", want["steps"], "--log", place + ".jsonl", "--check-memory",
                            "--set", 'precision="fp64"', "--set", "model.layers=%d" % want["layers"], "--set", "tensor=1", "--set", "pipeline=1", "--set", "zero=%d" % run["zero"],
                            "--set", "compress=true", "--set", "train.schedule=constant()", "--set", "optimizer=" + optimizer, "--", "--checkpoint", place + "-ck",
                            env=trainings.ENVIRONMENT)
    if not tally.check("%s runs" % name, outcome.status == 0, outcome.tail()):
        return None
    return harness.read_log(place + ".jsonl")[0], harness.step_folder(place + "-ck", want["steps"])


def apart(got, want):
    return max(map(harness.number_error, got, want), default=math.inf) if len(got) == len(want) else math.inf


def check_weights(tally, name, run, folder):
    tensors = harness.read_safetensors(os.path.join(folder, "model.safetensors"))
    worst = max((abs(a - b) / max(1, run["weights"][tensor][1]) for tensor, (_, values) in tensors.items()
                 for a, b in zip((math.fsum(values), math.fsum(x * x for x in values)), run["weights"][tensor])), default=1)
    tally.check("%s: the last weights" % name, sorted(tensors) == sorted(run["weights"]) and worst <= BOUND, "%.2e" % worst)


def check_factors(tally, name, run, folder):
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
        said = {tensor: float(factor) for tensor, (_, factor) in json.load(file).get("coefficients", {}).items()}
    worst = max((harness.number_error(said[tensor], factor) for tensor, factor in run["factors"].items() if tensor in said), default=0)
    tally.check("%s: factors" % name, sorted(said) == sorted(run["factors"]) and worst <= BOUND, "%.2e %s" % (worst, said))


def check_run(tally, folder, name, want, run):
    trained = train(tally, folder, name, want, run)
    if not trained:
        return
    records, checkpoint = trained
    errors = [apart([record[part] for record in records], run[key]) for key, part in (("losses", "loss"), ("grad_norms", "grad_norm"))]
    tally.check("%s: losses and norms" % name, len(records) == want["steps"] and errors[0] <= BOUND and errors[1] <= NORM_BOUND, "%.2e %.2e" % tuple(errors))
    print("%s: largest difference of losses %.2e, of gradient norms %.2e" % (name, *errors))
    check_weights(tally, name, run, checkpoint)
    check_factors(tally, name, run, checkpoint)


TEXT_OPTIMIZER = "optimizer=lamb(lr = 0.01, betas = [0.9, 0.98], eps = 1e-8, weight_decay = 0.1%s)"
MOST_ABOVE, LEAST_SAVED = 1.1, 6.0


def check_text(tally, folder):
    plain = freeze.train_text(tally, folder, "LAMB", TEXT_OPTIMIZER % "", False)
    for most in (4, 2, 1):
        for zero in (0, 1):
            got = freeze.train_text(tally, folder, "ZeRO %d, factor_max %d" % (zero, most), TEXT_OPTIMIZER % (", freeze = auto(), factor_max = %d" % most), True, zero)
            if not plain or not got:
                continue
            print("1-bit LAMB, ZeRO %d, factor_max = %d: loss %.4f, LAMB %.4f; %.1f times fewer bytes" % (zero, most, got[0], plain[0], plain[1] / got[1]), flush=True)
            tally.check("text: bytes of the whole run", got[1] * LEAST_SAVED <= plain[1], "%s %s" % (plain, got))
    if plain and got:
        tally.check("text: the loss at the end", got[0] <= MOST_ABOVE * plain[0], "%s %s" % (plain, got))


def main():
    parser = argparse.ArgumentParser(description="1-bit Adam and 1-bit LAMB against PyTorch")
    parser.add_argument("--text", action="store_true", help="also train on a text")
    options = parser.parse_args()
    harness.require_zplan()
    with open(os.path.join(TORCH, "expected_llama_onebit.json"), encoding="utf-8") as file:
        want = json.load(file)
    tally = harness.Tally()
    ends = [run["losses"][-1] for run in want["runs"].values()]
    tally.check("every two runs differ", min(abs(a - b) for i, a in enumerate(ends) for b in ends[:i]) > 1e-4, str(ends))
    with harness.Scratch() as folder:
        for name, run in want["runs"].items():
            check_run(tally, folder, name, want, run)
        if options.text:
            check_text(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
