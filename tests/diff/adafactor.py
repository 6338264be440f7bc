#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adafactor: every parameter by the formula, computed again from two checkpoints in a row; statistics of whole tensors; every layout alike.

    adafactor.py [--verbose]

1. Written here in f64 (arXiv 1804.04235, algorithms 4 to 6), with momentum, which says what a step was: parameters are what decay and that leave. The step, by the factors of rows and columns, says what the
   gradient was up to one number; with it the means of rows and columns, or all of a vector, follow from those of the checkpoint before, all with the same number, and that number is the learning rate times
   the size of the parameter, over what clips the update. (transformers' own Adafactor trains a T5 in tests/torch.)
2. One rank's training: tensor ranks, ZeRO 1 to 3, pipelines, the emulated GPU; bf16 within its rounding; another layout goes on. --check-memory in all of them. Gradients of key biases are rounding noise, which eps = 1e-30
   makes as large as any other, so the model has none.
3. State is rows and columns, to the byte; relative steps; what Adafactor does not go with is refused, with code, place and help.
"""
import argparse
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import optimizers  # noqa: E402
import trainings  # noqa: E402

STEPS, BEFORE, LR, DECAY, MOMENTUM, CLIP, LEAST = 6, 5, 1e-2, 0.1, 0.8, 1.0, 1e-3
GROUPS = 'train.groups=[group("embed_tokens", lr_factor = 0.1), group("layers.{}.mlp.*", lr_factor = 0.5, weight_decay = 0.3)]'
ADAFACTOR = "adafactor(lr = %g, beta1 = %g, weight_decay = %g)" % (LR, MOMENTUM, DECAY)
# Bounds of a parameter, of statistics and the size of a step. The last two are from differences of momentum and of means, whose roundings weigh the more the smaller a gradient
# is; so in 16 bits, where these are f32, of vectors those below a tenth of the others do not count.
EXACT, F32 = {"parameter": 1e-13, "statistics": 1e-9, "step": 1e-11, "least": 0}, {"parameter": 2e-6, "statistics": 1e-3, "step": 1e-3, "least": 1e-2}


def words_of(optimizer=ADAFACTOR, more=()):
    return ("--set", "optimizer=" + optimizer, "--set", 'train.checkpoint.dir="ck"', "--set", "train.checkpoint.every=1", "--set", "train.checkpoint.keep=9", *more)


CONSTANT = ("--set", "train.schedule=constant()")


def case(t, p, d, precision="fp64", model="llama", words=(), **settings):
    more = {"model.layers": 2} if model == "llama" else {}
    return trainings.layout(model, tensor=t, pipeline=p, data=d, precision=precision, more=more, batch=8, words=words, **settings)


def train(one, place, words, steps=STEPS):
    os.makedirs(place, exist_ok=True)
    return trainings.train(one.model, dict(one.settings), place, steps, words + one.words)


# ---- formulas ----

def mean(values):
    values = list(values)
    return math.fsum(values) / len(values)


def factors(shape, state):
    """1 / sqrt of what a second moment is taken to be."""
    if len(shape) < 2:
        return [1 / math.sqrt(v) for v in state["exp_avg_sq"]]
    rows, cols = state["exp_avg_sq_row"], state["exp_avg_sq_col"]
    middle = mean(rows)
    return [1 / math.sqrt(r / middle * c) for r in rows for c in cols]


def ratios(shape, step, old, new, beta2, least):
    """Of every statistic: what it took in, over what the step says; all are 1 / k^2, where the step is k times the gradient by the factors."""
    squares = [(s / f) ** 2 for s, f in zip(step, factors(shape, new))]
    if len(shape) < 2:
        taken = {"exp_avg_sq": squares}
    else:
        width = shape[1]
        taken = {"exp_avg_sq_row": [mean(squares[i * width:(i + 1) * width]) for i in range(shape[0])], "exp_avg_sq_col": [mean(squares[j::width]) for j in range(width)]}
    small = {kind: max(1e-20, least * mean(values)) for kind, values in taken.items()}
    return [(b - beta2 * a) / (1 - beta2) / g for kind in taken for a, b, g in zip(old[kind], new[kind], taken[kind]) if g > small[kind]]


def check_param(shape, w, after, old, new, lr, decay, least):
    """Errors: of the parameter, of its statistics, of the size of its step."""
    rate = lr * max(LEAST, math.sqrt(mean(x * x for x in w)))
    parameter = harness.tensor_error(after, [x * (1 - rate * decay) - m for x, m in zip(w, new["exp_avg"])])
    step = [(b - MOMENTUM * a) / (1 - MOMENTUM) for a, b in zip(old["exp_avg"], new["exp_avg"])]
    found = ratios(shape, step, old, new, 1 - STEPS ** -0.8, least)
    length, k = math.sqrt(mean(s * s for s in step)), 1 / math.sqrt(mean(found))
    return parameter, max(abs(r * k * k - 1) for r in found), abs(k * max(1, length / k / CLIP) / rate - 1)


def recipe_of(param, shape):
    if param == "embed_tokens":
        return 0.1 * LR, DECAY
    if ".mlp." in param:
        return 0.5 * LR, 0.3
    return LR, DECAY if len(shape) > 1 else 0


def check_formula(tally, name, place, bounds):
    (old, old_state), (new, new_state) = (optimizers.read(os.path.join(place, "ck"), step) for step in (BEFORE, STEPS))
    worst, kinds = {"parameter": (0.0, ""), "statistics": (0.0, ""), "step": (0.0, "")}, True
    for param, (shape, weights) in old.items():
        a, b = old_state[param], new_state[param]
        want = {"exp_avg_sq_row": shape[0], "exp_avg_sq_col": shape[1]} if len(shape) > 1 else {"exp_avg_sq": shape[0]}
        kinds &= {k: len(v) for k, v in b.items() if k.startswith("exp_avg_sq")} == want
        errors = check_param(shape, a.get("master", weights), b.get("master", new[param][1]), a, b, *recipe_of(param, shape), bounds["least"])
        for what, error in zip(worst, errors):
            worst[what] = max(worst[what], (error, param))
    tally.check("%s: a matrix has rows and columns, a vector all" % name, kinds)
    tally.check("%s: every parameter by the formula" % name, all(error <= bounds[what] for what, (error, _) in worst.items()), str(worst))
    return worst


def same_statistics(tally, name, place, reference):
    (_, state), (_, want) = (optimizers.read(os.path.join(folder, "ck"), STEPS) for folder in (place, reference))
    worst = max(harness.tensor_error(values, want[param][kind]) for param, kinds in state.items() for kind, values in kinds.items())
    tally.check("%s: state as on one rank" % name, worst <= 1e-10, "%.1e" % worst)


# ---- trainings ----

GPU = ("--cluster", "gpu", "--arch", "host")
LAYOUTS = (case(1, 1, 4, zero=1), case(2, 1, 2, zero=3), case(2, 1, 2, zero=1, words=GPU))


def check_layouts(tally, folder, verbose):
    reference, words = os.path.join(folder, "one"), words_of(more=CONSTANT + ("--set", GROUPS, "--set", "train.ema=0.9"))
    want = train(case(1, 1, 1), reference, words)
    if not tally.check("one rank runs", not want.error, want.error or ""):
        return
    print("one rank, by the formula: %s" % check_formula(tally, "one rank", reference, EXACT))
    for i, one in enumerate(LAYOUTS):
        place = os.path.join(folder, "layout%d" % i)
        got = train(one, place, words)
        name = " ".join((one.name,) + one.words[2:])
        errors = trainings.judge(tally, name + ": as one rank", got, want, trainings.BOUNDS["fp64"])
        if errors:
            same_statistics(tally, name, place, reference)
        if verbose:
            print("%5.2f s  %s: %s" % (got.seconds, name, errors), flush=True)
    parts = os.path.join(folder, "parts")
    train(LAYOUTS[1], parts, words, BEFORE)
    got = train(case(2, 2, 1), parts, words + ("--resume",))
    error = harness.model_error(got.checkpoint, want.checkpoint) if os.path.exists(got.checkpoint) else (math.inf, got.error)
    tally.check("another layout goes on", error[0] <= 1e-10, "%.1e %s" % error)
    same_statistics(tally, "another layout goes on", parts, reference)


def check_16_bits(tally, folder):
    place = os.path.join(folder, "bf16")
    got = train(case(2, 1, 1, "mixed_bf16"), place, words_of(more=CONSTANT + ("--set", GROUPS)))
    if tally.check("bf16 runs", not got.error, got.error or ""):
        print("bf16, by the formula: %s" % check_formula(tally, "bf16", place, F32))


def check_relative(tally, folder):
    """T5's own: without a learning rate, min(1e-2, 1 / sqrt(step)); no momentum, so no state but statistics."""
    place = os.path.join(folder, "relative")
    got = train(case(1, 1, 1, model="t5"), place, words_of("adafactor()"), 3)
    if not tally.check("relative steps run", not got.error, got.error or ""):
        return
    records = harness.read_log(os.path.join(place, "log.jsonl"))[0]
    tally.check("relative steps are those of the paper", [record["lr"] for record in records] == [1e-2] * 3, str([record["lr"] for record in records]))
    (old, _), (new, state) = (optimizers.read(os.path.join(place, "ck"), step) for step in (2, 3))
    for param, (_, weights) in old.items():
        moved = math.sqrt(mean((a - b) ** 2 for a, b in zip(weights, new[param][1])))
        most = 1e-2 * max(LEAST, math.sqrt(mean(x * x for x in weights)))
        tally.check("%s moves by no more than its size says" % param, 0 < moved <= most * (1 + 1e-9) and "exp_avg" not in state[param], "%g, %g" % (moved, most))


# ---- what is planned ----

def check_state(tally):
    """Rows and columns of every matrix, vectors: llama has two sides a matrix, whatever the layout shares out."""
    for words in ((), ("--set", "tensor=2", "--set", "zero=1")):
        outcome = harness.zplan("plan", os.path.join(HERE, "llama.dz"), "--ranks", 4 if words else 1, "--json", *words_of("adafactor(lr = 1e-2)"), "--set", "pipeline=1", *words)
        check = harness.zplan("check", os.path.join(HERE, "llama.dz"), "--json", *words_of("adafactor(lr = 1e-2)"))
        if not tally.check("planned %s" % (words,), outcome.status == 0 and check.status == 0, outcome.tail()):
            continue
        model = json.loads(check.out)
        layers, want = {s["name"]: s["count"] for s in model["segments"]}["layers"], 0
        for param in model["parameter_list"]:
            want += (layers if "{}" in param["name"] else 1) * sum(param["shape"])
        got = json.loads(outcome.out)["stages"][0]["memory"]["optimizer"]
        tally.check("state is rows and columns %s" % (words,), 8 * want <= got < 8 * want + 256, "%d, not %d" % (got, 8 * want))


def check_refusals(tally):
    model, example = os.path.join(HERE, "gpt.dz"), os.path.join(harness.ROOT, "examples", "gpt2.dz")
    words = ("--set", "optimizer=adafactor(lr = 1e-2)")
    for more, text in ((("compress=true", "data=2"), "compress is for adam, adamw and lamb"),):
        outcome = harness.zplan("plan", model, "--ranks", 2, *words, *(w for s in more for w in ("--set", "plan." + s)))
        tally.check("refused: %s" % (more,), outcome.status == 3 and text in outcome.out + outcome.err, outcome.tail())
    outcome = harness.zplan("plan", model, "--cluster", "gpu", "--gpus", 2, *words, "--set", 'offload[params]="cpu"', "--set", 'offload[optimizer]="none"')
    tally.check("refused: parameters further away than state", outcome.status == 3 and "of lamb and adafactor no more of" in outcome.out + outcome.err, outcome.tail())
    experts = ("--set", "plan.expert=2", "--set", "model.n=2", "--set", "model.corrected=false")
    outcome = harness.zplan("plan", os.path.join(HERE, "moe.dz"), "--ranks", 2, *words, *experts)
    tally.check("refused: expert ranks", outcome.status == 3 and "adafactor does not go with experts spread" in outcome.out + outcome.err, outcome.tail())
    for words, text in ((("optimizer=adafactor()",), "has a schedule of its own"), (("optimizer=adafactor(lr = 1e-2, eps = 1e-8)",), "`eps` is a list of two numbers"),
                        (("optimizer=adafactor(lr = 1e-2, beta1 = 1)",), "`beta1` must be"), (("optimizer=adafactor(lr = 1e-2, decay_rate = 0)",), "`decay_rate` must be")):
        outcome = harness.zplan("check", model, *(w for s in words for w in ("--set", s)))
        tally.check("refused: %s" % (words,), outcome.status == 1 and "error[Z03" in outcome.err and text in outcome.err, outcome.tail(12))
    outcome = harness.zplan("check", os.path.join(HERE, "moe.dz"), "--set", "optimizer=adafactor(lr = 1e-2)")
    tally.check("refused: biases of gates", outcome.status == 1 and "`adafactor` is not built for the bias of a gate" in outcome.err, outcome.tail())
    for words in (("export", "deepspeed"), ("export", "megatron")):
        outcome = harness.zplan(*words, example, "--gpus", 8, "--set", "cluster.nodes=1", "--set", "optimizer=adafactor(lr = 1e-2)")
        tally.check("refused: %s" % words[1], outcome.status != 0 and "adafactor" in outcome.out + outcome.err, outcome.tail())


def main():
    parser = argparse.ArgumentParser(description="Adafactor")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_refusals(tally)
        check_state(tally)
        check_layouts(tally, folder, options.verbose)
        check_16_bits(tally, folder)
        check_relative(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
