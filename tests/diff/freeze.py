#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When 1-bit Adam freezes its variance by itself (freeze = auto(threshold = ...)), and what that saves.

    freeze.py [--verbose]

1. The step is the one that follows from the logged gradient norms by the rule, computed here: the sum of the variance is the moving average of the
   squared norms after clipping, and the variance freezes when the smaller of that sum and the sum 1 / (1 - beta2) updates before has at least
   the threshold's share of the larger, and the learning rate has warmed up. That sum is compared with the elements of the variance in a
   checkpoint. No step before it sends less than plain Adam, which --check-memory checks, as in all runs.
2. Pipelines, 16 bits and an emulated GPU (of one layer) switch at the step that their own norms say; layouts of a model in f64 at the same one.
3. A run that stops before the switch, or between the decision and the first frozen step, and goes on switches at the same step and ends with the same bytes,
   in another layout at the same step. A checkpoint of plain Adam says nothing of the past: the switch is looked for from there on, and a note
   says so.
4. A text: 1-bit Adam sends at least 5 times fewer bytes over the whole run than plain Adam, and its loss at the end is at most 1 % above.
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

STEPS, WARMUP, BETA2, THRESHOLD, CLIP = 18, 6, 0.75, 0.8, 2.0
SPAN = 4  # 1 / (1 - BETA2)
OPTIMIZER = "optimizer=adamw(lr = 3e-3, betas = [0.9, %g], eps = 1e-8, weight_decay = 0.1%s)"
SETTINGS = ("--set", "clip=%g" % CLIP, "--set", "train.schedule=constant(warmup = %d)" % WARMUP)
AUTO = SETTINGS + ("--set", OPTIMIZER % (BETA2, ", freeze = auto(threshold = %g)" % THRESHOLD))
PLAIN = SETTINGS + ("--set", OPTIMIZER % (BETA2, ""))
GPU = ("--cluster", "gpu", "--arch", "host")


def case(t, p, d, micro, precision="fp64", batch=8, **settings):
    return trainings.layout("llama", tensor=t, pipeline=p, data=d, microbatch=micro, batch=batch, compress=True, precision=precision, **settings)


CASES = (
    (case(1, 1, 2, 2), AUTO),
    (case(1, 3, 2, 2, recompute="full"), AUTO),
    (case(1, 1, 2, 2, "mixed_bf16", more={"model.layers": 2}), AUTO),
    (case(1, 1, 2, 2, batch=4, more={"model.layers": 1}), AUTO + GPU),
)


def events(folder):
    with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def frozen_from(folder):
    """The step of the switch as the log tells it, None: none; the log's last line."""
    told = events(folder)
    return next((record["step"] for record in told if record.get("event") == "freeze"), None), told[-1]


def norms_of(folder):
    return [record["grad_norm"] for record in events(folder) if "grad_norm" in record]


def expected(norms):
    """(first frozen step, sum of the variance after every update) by the rule."""
    sums = [0.0]
    for step, norm in enumerate(norms, 1):
        norm *= min(1.0, CLIP / (norm + 1e-6))
        sums.append(BETA2 * sums[-1] + (1 - BETA2) * norm * norm)
        if step > SPAN and step >= WARMUP and min(sums[-1], sums[-1 - SPAN]) / max(sums[-1], sums[-1 - SPAN]) >= THRESHOLD:
            return step + 1, sums
    return None, sums


def train(one, place, words, steps=STEPS):
    os.makedirs(place, exist_ok=True)
    return trainings.train(one.model, dict(one.settings), place, steps, words, keep_tree="--resume" in words)


def manifest_of(place, step):
    with open(os.path.join(harness.step_folder(os.path.join(place, "ck"), step), "manifest.json"), encoding="utf-8") as file:
        return json.load(file)


def check_steps(tally, folder, verbose):
    """Every case switches when its norms say. Returns the step of the first."""
    first = None
    for i, (one, words) in enumerate(CASES):
        place = os.path.join(folder, "case%d" % i)
        got = train(one, place, words)
        name = one.name + (" emulated GPU" if "--arch" in words else "")
        if not tally.check(name + " runs", not got.error, got.error or ""):
            continue
        step, end = frozen_from(place)
        want = expected(norms_of(place))[0]
        if verbose:
            print("%s: freezes with step %s, by the norms %s, %s" % (name, step, want, end["one_bit"]))
        first = first or step
        tally.check(name + ": the step of the norms", step == want and step is not None and WARMUP < step < STEPS, "%s, expected %s" % (step, want))
        if one.group == "fp64" and "--arch" not in words:
            tally.check(name + ": the step of the others", step == first, "%s, %s" % (step, first))
        counted = end["one_bit"]
        tally.check(name + ": steps are counted", counted["plain_steps"] == step - 1 and counted["frozen_steps"] == STEPS - step + 1, str(counted))
        plain, frozen = (counted[kind + "_bytes"] / counted[kind + "_steps"] for kind in ("plain", "frozen"))
        tally.check(name + ": bytes before and after", plain / frozen == {"fp64": 8, "mixed_bf16": 4}[one.group] * 64 / 12, "%s %s" % (plain, frozen))
    return first


def check_norm(tally, folder):
    """The sum that decides against the variance itself."""
    place = os.path.join(folder, "norm")
    got = train(CASES[0][0], place, AUTO, WARMUP)
    if not tally.check("a run up to the warm-up", not got.error, got.error or ""):
        return
    state = harness.read_safetensors(os.path.join(harness.step_folder(os.path.join(place, "ck"), WARMUP), "optimizer.safetensors"))
    sums = sum(sum(values) for name, (_, values) in state.items() if name.endswith(".exp_avg_sq"))
    variance = manifest_of(place, WARMUP)["variance"]
    error = harness.number_error(float(variance["norm"]), sums)
    tally.check("the sum of the variance's elements", variance["updates"] == WARMUP and error <= 1e-12, "%s %s" % (variance["norm"], sums))
    want = expected(norms_of(place))[1][:0:-1][:SPAN]
    errors = [harness.number_error(float(a), b) for a, b in zip(variance["before"], want)]
    tally.check("its past, the newest first", len(variance["before"]) == SPAN and max(errors) <= 1e-12, str(variance))


def check_resume(tally, folder, first):
    whole = os.path.join(folder, "case0")
    if first is None:
        return
    for stop in (stop for stop in (first - 2, first - 1) if harness.my_turn(first - stop, 2)):
        place = os.path.join(folder, "stop%d" % stop)
        train(CASES[0][0], place, AUTO, stop)
        other = shutil.copytree(place, place + "other")
        decided = manifest_of(place, stop).get("freezes_at")
        tally.check("the checkpoint of step %d knows" % stop, decided == (None if stop < first - 1 else first - 1), str(decided))
        got = train(CASES[0][0], place, AUTO + ("--resume",))
        step = frozen_from(place)[0]
        tally.check("resumed after step %d: the same switch" % stop, not got.error and step == first, "%s %s" % (got.error, step))
        for name in ("model.safetensors", "optimizer.safetensors", "errors.safetensors"):
            files = [open(os.path.join(harness.step_folder(os.path.join(p, "ck"), STEPS), name), "rb").read() for p in (place, whole)]
            tally.check("resumed after step %d: %s to the byte" % (stop, name), files[0] == files[1])
        if stop == first - 2:
            got = train(CASES[1][0], other, CASES[1][1] + ("--resume",))
            step = frozen_from(other)[0]
            tally.check("resumed after step %d on other stages: the same switch" % stop, not got.error and step == first, "%s %s" % (got.error, step))


def check_unknown_past(tally, folder):
    """A checkpoint of plain Adam: the sum begins at zero, so it takes longer than the rule would on all norms."""
    place = os.path.join(folder, "plain")
    one = CASES[0][0]
    got = trainings.train(one.model, dict(dict(one.settings), compress=False), place, 6, PLAIN) if not os.makedirs(place) else None
    if not tally.check("plain Adam runs", not got.error, got.error or ""):
        return
    tally.check("plain Adam's manifest", "variance" not in manifest_of(place, 6), "")
    words = ["run", os.path.join(HERE, "llama.dz"), "--ranks", 2, "-o", os.path.join(place, "tree2"), "--log", os.path.join(place, "log.jsonl"), "--resume",
             "--steps", STEPS, "--threads", 1, "--check-memory", *AUTO]
    for key, value in one.settings:
        words += ["--set", "%s=%s" % (key, json.dumps(value))]
    outcome = harness.zplan(*words, "--", "--checkpoint", os.path.join(place, "ck"), env=trainings.ENVIRONMENT)
    tally.check("auto after plain Adam: a note", outcome.status == 0 and "looked for from here on" in outcome.err + outcome.out, outcome.tail())
    sums, norms = [0.0], norms_of(place)[6:]
    want = None
    for step, norm in enumerate(norms, 7):
        norm *= min(1.0, CLIP / (norm + 1e-6))
        sums.append(BETA2 * sums[-1] + (1 - BETA2) * norm * norm)
        if len(sums) > SPAN + 1 and step >= WARMUP and min(sums[-1], sums[-1 - SPAN]) / max(sums[-1], sums[-1 - SPAN]) >= THRESHOLD:
            want = step + 1
            break
    tally.check("auto after plain Adam: the switch", frozen_from(place)[0] == want and want is not None, "%s %s" % (frozen_from(place)[0], want))


# Steps of 8 samples, the last 50 steps' mean; one layer of 32 columns and 16 bytes of text a sample. With --text of intervals.py and onebit.py
# two layers of 64 columns and 32 bytes.
LEARNING = ("--set", "tensor=1", "--set", "pipeline=1", "--set", "plan.data=2", "--set", "batch=8", "--set", "steps=1600", "--threads", 1, "--check-memory")
SMALL = ("--set", "model.layers=1", "--set", "model.d=32", "--set", "model.S=16")
LARGE = ("--set", "model.layers=2", "--set", "model.d=64", "--set", "model.S=32")
TEXT_OPTIMIZER = "optimizer=adamw(lr = 1e-3, betas = [0.9, 0.98], eps = 1e-8, weight_decay = 0.1%s)"
MEAN, MOST_ABOVE, LEAST_SAVED = 50, 1.01, 5.0


def train_text(tally, folder, name, optimizer, compress, zero=0, size=LARGE):
    """Loss at the end and bytes over data ranks of the whole run; None: it failed."""
    log = os.path.join(folder, "text_%s.jsonl" % name)
    outcome = harness.zplan("run", os.path.join(harness.ROOT, "examples", "gpt_tiny.dz"), "--ranks", 2, "-o", os.path.join(folder, "text" + name), "--log", log,
                            *trainings.ON_TEXT, *LEARNING, *size, "--set", "zero=%d" % zero, "--set", "compress=" + ("true" if compress else "false"), "--set", optimizer, "--",
                            "--checkpoint", os.path.join(folder, "text_ck" + name), env=trainings.ENVIRONMENT)
    if not tally.check("text with %s" % name, outcome.status == 0, outcome.tail()):
        return None
    records, end = harness.read_log(log)
    return sum(record["loss"] for record in records[-MEAN:]) / MEAN, end["communicated_bytes"]["data"] * end["steps_run"]


def check_text(tally, folder, freeze, most_above, least_saved, verbose, size=LARGE):
    """Against plain Adam."""
    plain = train_text(tally, folder, "plain Adam", TEXT_OPTIMIZER % "", False, size=size)
    got = train_text(tally, folder, freeze, TEXT_OPTIMIZER % (", freeze = " + freeze), True, size=size)
    if not plain or not got:
        return
    if verbose:
        print("text: loss %.4f and %.4f (%+.1f %%), bytes %.0f and %.0f (%.1f times fewer)" %
              (plain[0], got[0], 100 * (got[0] / plain[0] - 1), plain[1], got[1], plain[1] / got[1]))
    tally.check("text: the loss at the end", got[0] <= most_above * plain[0], "%s %s" % (plain, got))
    tally.check("text: bytes of the whole run", got[1] * least_saved <= plain[1], "%s %s" % (plain, got))


def check_refusals(tally):
    model = os.path.join(HERE, "gpt.dz")
    for optimizer, text in (
            ("adamw(lr = 1e-3, freeze = auto(), freeze_step = 3)", "both say when the variance freezes"),
            ("adam(lr = 1e-3, weight_decay = 0.1, freeze = auto())", "does not go with `adam` and `weight_decay`"),
            ("adamw(lr = 1e-3, freeze = auto(threshold = 2))", "at most 1"),
            ("adamw(lr = 1e-3, freeze = 3)", "written like a call"),
            ("sgd(lr = 1e-3, freeze = auto())", "freeze")):
        outcome = harness.zplan("check", model, "--set", "optimizer=" + optimizer)
        tally.check("refused: %s" % optimizer, outcome.status == 1 and text in outcome.out + outcome.err, outcome.tail())
    example = os.path.join(harness.ROOT, "examples", "gpt2.dz")
    outcome = harness.zplan("export", "deepspeed", example, "--gpus", 8, "--set", "compress=true", "--set", "optimizer=adamw(lr = 1e-3, freeze = auto())",
                            "--set", "cluster.nodes=1")
    tally.check("refused: an export for DeepSpeed", outcome.status != 0 and "is told the step" in outcome.out + outcome.err, outcome.tail())


def main():
    parser = argparse.ArgumentParser(description="when 1-bit Adam freezes by itself")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_refusals(tally)
        first = check_steps(tally, folder, options.verbose)
        check_norm(tally, folder)
        check_resume(tally, folder, first)
        check_unknown_past(tally, folder)
        if harness.my_turn(0, 2):  # 3,200 steps
            check_text(tally, folder, "auto()", MOST_ABOVE, LEAST_SAVED, options.verbose, SMALL)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
