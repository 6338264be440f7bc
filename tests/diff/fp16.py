#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixed precision with fp16 and a loss scale (precision = "mixed_fp16"): what bf16.py is for bf16.

    fp16.py [--verbose]

1. Layouts on CPU ranks, 20 steps, and on the emulated GPU, 2 steps, against one CPU rank; one rank against f64. --check-memory.
2. Overflow on purpose, from the largest scale: steps are skipped, in every layout the same ones, the scale halves with each and doubles
   after the window, the learning rate goes on; once it fits the run learns, and losses are those of one rank. The emulated GPU too.
3. A scale from where nothing overflows and one 2^10 higher train the same: scales are powers of two, and only what vanished differs.
4. Weights are the rounded master weights to the last bit.
5. 10 steps and 10 more, where the scale has moved, are 20 to the last byte; on another layout within the bounds. Scale, its count and the
   skipped steps are in the manifest.
6. With optimizer state and gradients on the host, a run with skipped steps moves as much in a step that is applied as one without.
7. A fixed scale that is too high ends the run; wrong scales are refused.

Bounds. A stored value is off by up to 2^-11 of its size, an eighth of bf16's: bf16.py's bounds / 8. Measured on 22 November 2026: losses of
layouts within 9.8e-5, norms 1.1e-3; one rank against f64 1.1e-4 and 1.3e-3; on the emulated GPU 5.6e-6 and 2.4e-5 (25 November 2026). Experts have bf16.py's own
bounds: nearly equal scores are rarer by as much, but a token that goes to the other expert changes as much as it does there (measured
1.2e-3 and 9.1e-3; one rank against f64 3.1e-3 and 2.1e-2).
"""
import argparse
import json
import os
import struct
import sys

import bf16
from bf16 import Suite, harness, trainings
import cuda
import offload

FP16, SHARE = "mixed_fp16", 1 / 8
STEPS, HALF = 20, 10  # enough to skip steps and go on
HIGH = "loss_scale=dynamic(initial=1073741824, window=3)"


def case(*args, **settings):
    return bf16.case(*args, precision=FP16, **settings)


def small(*args, **settings):
    return bf16.small(*args, precision=FP16, **settings)


CPU = (
    case("gpt", 2, 2, 2, zero=1, recompute="full", recompute_shard="tensor", rank_order="tpd"),
    case("gpt", 1, 2, 2, zero=2, schedule="interleaved", chunks=2),
    case("llama", 2, 1, 2, zero=3, recompute="selective"),
    case("llama", 2, 1, 1, sequence=True),
    case("gpt", 1, 2, 1, schedule="zb_h1"),
    case("moe", 1, 1, 2, {"plan.expert": 2, "model.n": 8}, zero=2),
)
VOLTA = ("--cluster", "volta", "--arch", "host")  # its tensor cores multiply f16 alone, with another instruction
GPU = small("gpt", 1, 2, 2, zero=1)  # bf16.py has others
OVERFLOW = (case("gpt", 2, 1, 2), case("gpt", 1, 2, 2, zero=2), case("gpt", 1, 1, 2, zero=3))


def share(model):
    return bf16.EXPERTS_SHARE if model == "moe" else SHARE


def check_layouts(suite):
    references = {}
    for number, (model, more) in enumerate((("gpt", None), ("llama", None), ("moe", {"model.n": 8}))):
        one = case(model, 1, 1, 1, more)
        want = references[model] = suite.train(one)
        trainings.sanity(suite.tally, one.name, want)
        if harness.my_turn(number, 3):
            suite.compare("%sone rank against f64" % bf16.experts(model), want, suite.train(bf16.case(model, 1, 1, 1, more, precision="fp64")),
                          share(model), "f64 " + model)
    for one in trainings.in_turn(CPU, among=3):
        suite.compare("%slayouts" % bf16.experts(one.model), suite.train(one), references[one.model], share(one.model), one.name)
    for one, words in ((GPU, cuda.GPU), (small("gpt", 1, 1, 1), VOLTA)):
        want = suite.train(small(one.model, 1, 1, 1), cuda.STEPS)
        suite.compare("emulated GPU", suite.train(one, cuda.STEPS, words), want, SHARE * bf16.GPU_SHARE, "%s %s" % (words[1], one.name))
    return references


# ---- the scale ----

def run(suite, one, name, steps, *more):
    """Records of the steps, and the folder: trainings.train wants finite norms."""
    place = os.path.join(suite.folder, name)
    log = os.path.join(place, "log-%d.jsonl" % steps)
    command = ["run", os.path.join(bf16.HERE, one.model + ".dz"), "--ranks", trainings.ranks_of(dict(one.settings)), "-o", os.path.join(place, "tree"),
               "--log", log, "--steps", steps, "--threads", 1, "--check-memory"]
    for key, value in one.settings:
        command += ["--set", "%s=%s" % (key, json.dumps(value))]
    outcome = harness.zplan(*command, *more, "--", "--checkpoint", os.path.join(place, "ck"), env=trainings.ENVIRONMENT)
    return outcome, harness.read_log(log)[0] if os.path.exists(log) else [], place


def scales(records):
    return [(record["scale"], record["skipped"]) for record in records]


def check_scales(suite, records, window):
    """The rule, step by step, from what the log says."""
    scale, skipped, good = records[0]["scale"], 0, 0
    for record in records:
        suite.tally.check("step %d: scale" % record["step"], record["scale"] == scale, "%s, not %s" % (record["scale"], scale))
        if record["grad_norm"] is None:
            scale, skipped, good = max(scale // 2, 1), skipped + 1, 0
        else:
            good += 1
            if good == window:
                scale, good = min(scale * 2, 1 << 30), 0
        suite.tally.check("step %d: skipped" % record["step"], record["skipped"] == skipped, "%s, not %s" % (record["skipped"], skipped))
    return skipped


def check_overflow(suite):
    one, more = case("gpt", 1, 1, 1), ("--set", HIGH)
    outcome, want, _ = run(suite, one, "overflow", STEPS, *more)
    if not suite.tally.check("overflow", outcome.status == 0 and len(want) == STEPS, outcome.tail()):
        return
    skipped = check_scales(suite, want, 3)
    suite.tally.check("steps are skipped, and not all", 8 < skipped < STEPS - 4, str(skipped))
    suite.tally.check("skipped first", all(record["grad_norm"] is None for record in want[:8]))
    suite.tally.check("losses stay finite", all(record["loss"] for record in want))
    suite.tally.check("it learns in the end", want[-1]["loss"] < want[0]["loss"] - 0.02, str(want[-1]["loss"]))
    rates = [record["lr"] for record in harness.read_log(os.path.join(suite.folder, "1", "log.jsonl"))[0]]
    suite.tally.check("the learning rate goes on", len(rates) == bf16.STEPS and rates == [record["lr"] for record in want[:len(rates)]])
    for number, layout in enumerate(OVERFLOW):
        if not harness.my_turn(number, len(OVERFLOW)):
            continue
        outcome, got, _ = run(suite, layout, "overflow-%d" % number, STEPS, *more)
        if not suite.tally.check("overflow on " + layout.name, outcome.status == 0, outcome.tail()):
            continue
        suite.tally.check("the same steps on " + layout.name, scales(got) == scales(want), "%s\n%s" % (scales(got), scales(want)))
        error = max(harness.number_error(a["loss"], b["loss"]) for a, b in zip(got, want))
        suite.tally.check("the same losses on " + layout.name, error <= bf16.LOSS * SHARE, "%.1e" % error)
    gpu, records = small("gpt", 1, 1, 2, zero=1), []
    for where in ((), cuda.GPU):
        outcome, got, _ = run(suite, gpu, "overflow-gpu%d" % len(where), 2, "--set", "loss_scale=dynamic(initial=1073741824)", *where)
        suite.tally.check("overflow on the emulated GPU", outcome.status == 0, outcome.tail())
        records.append(scales(got))
    suite.tally.check("skips on the GPU", records[0] == records[1] == [(1 << 30, 1), (1 << 29, 2)], str(records))


def check_fixed(suite, reference):
    low = run(suite, case("gpt", 1, 1, 1), "fixed", STEPS, "--set", "loss_scale=64")[1]
    error = max(harness.number_error(a["loss"], b) for a, b in zip(low, reference.losses))
    suite.tally.check("a scale of 64 trains what 65536 does", len(low) == STEPS and 0 < error <= bf16.LOSS * SHARE, "%.1e" % error)
    suite.tally.check("and stays", {record["scale"] for record in low} == {64})
    outcome, records, _ = run(suite, case("gpt", 1, 1, 1), "too-high", STEPS, "--set", "loss_scale=1073741824")
    suite.tally.check("a fixed scale that is too high ends the run", outcome.status == 5 and len(records) == 3, outcome.tail())


# ---- state off the device ----

def check_offload(suite):
    """A skipped step updates nothing, so less moves. --check-memory compares what the applied ones moved with the plan, and the log has
    as much of them as of a run that skips none."""
    one, homes = small("gpt", 1, 1, 1, batch=4), {"offloaded.optimizer": "host:8", "offloaded.gradients": "host:4"}
    ends = []
    for name, initial in (("skips", 1 << 22), ("skips none", 1024)):
        place = os.path.join(suite.folder, "offload " + name)
        os.makedirs(place)
        scale = ("--set", "loss_scale=dynamic(initial=%d)" % initial)
        plan, why = offload.make_plan(one.model, dict(one.settings, **homes), place, scale)
        ran = offload.run_plan(plan, place, 5) if plan else None
        if not suite.tally.check("state off the device, %s" % name, ran and ran.outcome.status == 0, ran.outcome.tail() if ran else why):
            return
        skipped = ran.steps[-1]["skipped"]
        suite.tally.check("steps: %s" % name, 0 < skipped < len(ran.steps) if initial > 1024 else skipped == 0, str(scales(ran.steps)))
        ends.append(ran.end["moved_bytes"])
    suite.tally.check("applied steps move as much as ever", ends[0] == ends[1] and ends[0]["to host"] > 0, str(ends))


# ---- master weights, resuming ----

def half_of(x):
    return struct.unpack("<H", struct.pack("<e", x))[0]


def check_master(suite, result):
    weights = harness.read_safetensors(result.checkpoint)
    state = harness.read_safetensors(os.path.join(os.path.dirname(result.checkpoint), "optimizer.safetensors"))
    for name, (_, values) in weights.items():
        master = state[name + ".master"][1]
        good = len(master) == len(values) and all(half_of(m) == half_of(w) for m, w in zip(master, values))
        suite.tally.check("%s is the rounded master weight" % name, good)
    finer = sum(m != w for name in weights for m, w in zip(state[name + ".master"][1], weights[name][1]))
    suite.tally.check("master weights are finer than f16", 2 * finer > sum(len(values) for _, values in weights.values()), str(finer))


def check_resume(suite):
    """From a scale that overflows, with a window so short that the scale also rises: all of its state matters."""
    more = ("--set", "loss_scale=dynamic(initial=4194304, window=4)")
    one, then = case("gpt", 1, 1, 2, zero=2), case("gpt", 2, 2, 1)
    _, want, whole = run(suite, one, "whole", STEPS, *more)
    suite.tally.check("the scale falls and rises", len({record["scale"] for record in want}) > 3 and want[-1]["scale"] != 65536, str(scales(want)))
    for number, (name, second) in enumerate((("same", one), ("other", then))):
        if not harness.my_turn(number, 2):
            continue
        _, first, place = run(suite, one, "half-" + name, HALF, *more)
        with open(os.path.join(harness.step_folder(os.path.join(place, "ck"), HALF), "manifest.json")) as file:
            manifest = json.load(file)
        suite.tally.check("manifest", manifest["loss_scale"] == want[HALF]["scale"] and manifest["skipped_steps"] == want[HALF - 1]["skipped"]
                          and 0 <= manifest["scale_steps"] < 4, str(manifest))
        outcome, rest, _ = run(suite, second, "half-" + name, STEPS, "--resume", *more)
        suite.tally.check("resumed on %s layout" % name, outcome.status == 0 and len(rest) == STEPS - HALF, outcome.tail())
        suite.tally.check("resumed on %s layout: scales" % name, scales(rest) == scales(want[HALF:]), str(scales(rest)))
        error = max(harness.number_error(a["loss"], b["loss"]) for a, b in zip(rest, want[HALF:]))
        suite.tally.check("resumed on %s layout: losses" % name, error == 0 if one == second else error <= bf16.LOSS * SHARE, "%.1e" % error)
        for file in ("model.safetensors", "optimizer.safetensors") if one == second else ():
            paths = [os.path.join(harness.step_folder(os.path.join(folder, "ck"), STEPS), file) for folder in (place, whole)]
            suite.tally.check("resumed: %s to the last byte" % file, harness.same_bytes(*paths))


def check_refused(suite):
    build = ("build", os.path.join(bf16.HERE, "gpt.dz"), "-o", os.path.join(suite.folder, "refused"), "--ranks", 2, "--set", 'precision="%s"' % FP16)
    for words, text in ((("--set", "loss_scale=1000"), "a loss scale is a power of two"),
                        (("--set", "loss_scale=dynamic(window=0)"), "window")):
        outcome = harness.zplan(*build, *words)
        suite.tally.check("refused: %s" % text, outcome.status in (1, 3) and text in outcome.err + outcome.out, outcome.tail())


def main():
    parser = argparse.ArgumentParser(description="mixed precision with fp16")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    with harness.Scratch() as folder:
        suite = Suite(folder, options.verbose)
        check_refused(suite)
        references = check_layouts(suite)
        check_master(suite, references["gpt"])
        check_fixed(suite, references["gpt"])
        check_overflow(suite)
        check_offload(suite)
        check_resume(suite)
        suite.print_errors()
    return suite.tally.finish()


if __name__ == "__main__":
    sys.exit(main())
