#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products of layers with operands of 8 bits on CPU ranks: mixed_fp8, mixed_mxfp8 and mixed_fp8_block.

    float8.py [--only TEXT] [--jobs N] [--verbose]

1. Every layout trains what one rank trains: tensor, context, data and pipeline ranks, ZeRO, sequence-split norms, recomputation.
   Scales are of what a rank has, and powers of two: numbers of the format's normal range round alike under all of them. So what
   is left are numbers far below the largest and, on tensor ranks, sums in parts, which bf16 rounds otherwise.
   Experts, too, in slots and in sorted rows, spread over data ranks and cut by tensor ranks.
2. 60 steps of examples/gpt_tiny.dz with 2 layers, and of moe_tiny.dz with one and sorted rows, on a text reach the loss of mixed_bf16, but not to
   the digit.
3. Every product of the layers and of their experts, forward and both of backward, rounds its operands as the recipe says; plans price the rounding.
4. Values that only gradients of weights read are kept in 8 bits, and their scales, as plans say: the bytes follow from the model, and
   trainers use no more (--check-memory). What is recomputed, or gathered along the sequence, is not kept so.
5. Gradients of the first step are those of the model fuzzer's interpreter in f64 (tests/fuzz/model), which rounds operands of products by
   the formats' definitions, and not those of it without that rounding.

Bounds, and what was measured on 30 November 2026, of experts on 1 December:
- layouts without tensor ranks: loss 1e-5, gradient norm 1e-5 (7.5e-8 and 2.4e-7). With a context of 2, operands with one scale have that
  of half the positions (7.2e-4 and 3.3e-3), and by keys a block of 32 positions has others (5.2e-4 and 4.8e-3): bounds as on tensor ranks;
- on tensor ranks: 1e-2 and 5e-2 (3.6e-3 and 1.8e-2): a sum that bf16 rounds otherwise may send a number of 8 bits to its neighbour, up to
  2^-3 of it away;
- experts without tensor ranks: 1e-3 and 1e-2 (2.4e-4 and 2.1e-3; after 2 steps 1e-16 and 2e-9): where two scores nearly tie, the order of a sum
  lets a token take another expert;
- against the interpreter: 1e-3 of the norm of all gradients (4.4e-8; of experts, whose weights bf16 rounds, 1.3e-4; one number that another order of f32 sums sends to its neighbour is
  some 1e-4), without the rounding of operands at least 1e-2 (8.0e-2);
- text: mean loss of the last 10 of 60 steps within 0.02 of that of bf16 (7.2e-3, experts 4.6e-3), which has fallen by 2.8.
"""
import collections
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), *folder) for folder in (("support",), ("fuzz", "model"))]
import need_numpy  # noqa: E402,F401
import numpy as np  # noqa: E402
import check  # noqa: E402
import harness  # noqa: E402
import interpret  # noqa: E402
import settings  # noqa: E402
import trainings  # noqa: E402
import tree  # noqa: E402

BF16 = "mixed_bf16"
# Roundings of activations, weights and gradients of results.
RECIPES = {"mixed_fp8": ("E4M3", "E4M3", "E5M2"), "mixed_mxfp8": ("E4M3_1X32",) * 3,
           "mixed_fp8_block": ("E4M3_1X128", "E4M3_128X128", "E4M3_1X128")}
ALIKE, CHOSEN, ROUNDED = ({"loss": loss, "gradient norm": norm, "parameters": math.inf} for loss, norm in ((1e-5, 1e-5), (1e-3, 1e-2), (1e-2, 5e-2)))
LAYOUTS = {"mixed_fp8": ("stages", "heads", "tensor", "slots", "sorted"), "mixed_mxfp8": ("tensor", "heads", "keys", "slots", "sorted", "cut experts"),
           "mixed_fp8_block": ("stages", "sharded", "split", "slots")}
BOUNDS = {precision + end: bounds for precision in RECIPES for end, bounds in (("", ALIKE), (", experts", CHOSEN), (", rounded otherwise", ROUNDED))}
STEPS, TEXT_STEPS, TEXT_LOSS = 6, 60, 0.02
GPT = {"model.d": 160, "model.layers": 3}  # 5 heads: tensor ranks have 96 and 64 columns of 160
EXPERTS = {"model.d": 64, "model.ff": 32, "model.layers": 2, "model.n": 4, "model.heads": 4, "model.kv_heads": 2, "model.S": 64, "model.corrected": False}
SORTED_TEXT = ("--set", "model.capacity=dropless", "--set", "model.ff=192", "--set", "seed=7")
SORTED = {"model.capacity": trainings.Expression("dropless"), "train.dropout": 0}
LLAMA = {"model.d": 96, "model.ff": 64, "model.layers": 3, "model.kv_heads": 2}
# Two layers, in a tree of tests/fuzz/model/tree.py: little besides products, of widths with whole blocks and parts of them.
LAYERS = {"sizes": {"V": 17, "S": 32, "d": 64, "f": 160}, "batch": 4, "seed": 8, "dropout": 0, "body": [
    ["param", "table", ["V", "d"], "table"], ["let", ["x"], ["embedding", {}, "tokens", "table"]],
    ["repeat", "h", 2, [["let", ["y"], ["linear", {"out": "f", "bias": False}, "x"]],
                        ["let", ["x"], ["linear", {"out": "d", "bias": False}, ["silu", {}, "y"]]]], "x"],
    ["param", "head", ["V", "d"], "matrix"],
    ["output", ["cross_entropy", {}, ["matmul", {"transpose": True}, "x", "head"], "labels"]]]}
# Two layers of experts, of which a token takes one: nothing is added up between products but by products.
EXPERT_LAYERS = {"sizes": {"V": 17, "S": 96, "d": 64, "f": 160}, "batch": 4, "seed": 8, "dropout": 0, "body": [
    ["param", "table", ["V", "d"], "table"], ["let", ["x"], ["embedding", {}, "tokens", "table"]],
    ["repeat", "h", 2, [["param", "up", [3, "d", "f"], "matrix"], ["param", "down", [3, "d", "f"], "matrix"],
                        ["let", ["weight", "slot"], ["top_k_gate", {"k": 1, "normalize": False, "capacity": None}, ["linear", {"out": 3, "bias": False}, "x"]]],
                        ["let", ["y"], ["batched_matmul", {}, ["dispatch", {}, "x", "slot"], "up"]],
                        ["let", ["y"], ["combine", {}, ["batched_matmul", {"transpose": True}, ["silu", {}, "y"], "down"], "weight", "slot"]],
                        ["let", ["x"], ["linear", {"out": "d", "bias": False}, "y"]]], "x"],
    ["param", "head", ["V", "d"], "matrix"],
    ["output", ["cross_entropy", {}, ["matmul", {"transpose": True}, "x", "head"], "labels"]]]}


def expert_layers(capacity):
    model = json.loads(json.dumps(EXPERT_LAYERS))
    model["body"][2][3][2][2][1]["capacity"] = capacity
    return model


def layouts(precision, names):
    table = {"tensor": trainings.layout("gpt", 2, 1, 1, GPT, precision=precision, batch=8, sequence=True),
             "stages": trainings.layout("gpt", 1, 2, 2, GPT, precision=precision, batch=8, zero=1, microbatch=2),
             "sharded": trainings.layout("llama", 2, 1, 2, LLAMA, precision=precision, batch=8, zero=3, recompute="full"),
             "split": trainings.layout("llama", 1, 2, 1, LLAMA, precision=precision, batch=8, schedule="zb_h1", microbatch=2),
             "slots": trainings.layout("moe", 1, 1, 2, dict(EXPERTS, **{"plan.expert": 2}), precision=precision, batch=8, zero=1, microbatch=2),
             "sorted": trainings.layout("moe", 1, 2, 2, dict(EXPERTS, **SORTED, **{"plan.expert": 2}), precision=precision, batch=8, keep=trainings.KEPT + ("train.dropout",)),
             "cut experts": trainings.layout("moe", 2, 1, 1, EXPERTS, precision=precision, batch=8),
             "heads": trainings.layout("llama", 1, 1, 1, LLAMA, precision=precision, batch=8, context=2, context_by="heads"),
             "keys": trainings.layout("llama", 1, 1, 1, LLAMA, precision=precision, batch=8, context=2, context_by="keys")}
    otherwise = ("tensor", "sharded", "keys", "cut experts") + (("heads",) if precision == "mixed_fp8" else ())
    end = {**dict.fromkeys(otherwise, ", rounded otherwise"), "slots": ", experts", "sorted": ", experts"}
    return [table[name]._replace(group=precision + end.get(name, "")) for name in names]


def table_of():
    """A recipe a commit, by turns (tests/run.sh)."""
    return [one for number, (precision, names) in enumerate(LAYOUTS.items()) if harness.my_turn(number, len(RECIPES)) for one in layouts(precision, names)]


def train_text(tally, precision, folder, example="gpt_tiny", more=()):
    """Losses, and the trainer's source."""
    place = os.path.join(folder, "-".join(("text", example, precision)))
    tree, log = os.path.join(place, "tree"), os.path.join(place, "log.jsonl")
    outcome = harness.zplan("run", os.path.join(harness.ROOT, "examples", example + ".dz"), "--ranks", 1, "-o", tree, "--log", log, "--set",
                            'precision="%s"' % precision, *trainings.ON_TEXT[:2], "--set", "model.layers=%d" % (1 if more else 2), *more, "--set", "batch=8", "--steps",
                            TEXT_STEPS, "--threads", 1, "--check-memory", "--", "--checkpoint", os.path.join(place, "ck"),
                            env=trainings.ENVIRONMENT)
    if not tally.check("%s in %s" % (example, precision), outcome.status == 0, outcome.tail()):
        return None, ""
    begin = json.loads(read_text(log).splitlines()[0])
    tally.check("the log names " + precision, begin["dtype"] == "bf16" and begin["precision"] == (precision if precision in RECIPES else "bf16"), str(begin))
    return [record["loss"] for record in harness.read_log(log)[0]], "".join(read_text(os.path.join(tree, name)) for name in sorted(os.listdir(tree))
                                                                          if name.endswith(".c"))


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def predicted_ms(source):
    return float(re.search(r"predicted step ([0-9.]+) ms", source).group(1))


def check_products(tally, precision, source):
    value, weight, gradient = RECIPES[precision]
    calls = collections.Counter(re.findall(r"zpr_(gemm|wgrad)(?:_kept)?_float8\(c, ZPK_(\w+), ZPK_(\w+),", source))
    forward, inputs = calls["gemm", value, weight], calls["gemm", gradient, weight]
    weights = sum(calls[kind] for kind in {("wgrad", gradient, value), ("wgrad", value, gradient)})
    if value == gradient:  # forward and the gradient of the input look alike, two to one of the weight
        good = 0 < 2 * weights <= forward
    else:
        good = 0 < weights == inputs <= forward
    tally.check("products of " + precision, good and set(calls) <= {("gemm", value, weight), ("gemm", gradient, weight),
                                                                     ("wgrad", gradient, value), ("wgrad", value, gradient)}, str(calls))


def kept_operands(folder, precision, *words):
    """What a plan's forward of a layer keeps in 8 bits, by name: bytes."""
    path = os.path.join(folder, "kept.json")
    ran = harness.zplan("plan", os.path.join(harness.ROOT, "examples", "gpt_tiny.dz"), "--set", 'precision="%s"' % precision, "--set", "batch=8", *words, "-o", path, "--force")
    if ran.status != 0:
        return ran.tail()
    layer = next(segment for segment in json.loads(read_text(path))["program"]["segments"] if segment["name"] == "h")
    return {buffer["name"]: buffer["bytes"] for buffer in layer["forward"]["buffers"] if buffer["element"] == "operand"}


def check_kept(tally, folder):
    """gpt_tiny: 8 samples of 64 tokens, 128 columns. A scale of E8M0 for 32 or 128 tokens of a column, or an f32."""
    tokens, one = 8 * 64, ("--ranks", 1, "--set", "recompute=none", "--set", "microbatch=8")
    shared = ("--ranks", 2, "--set", "tensor=2", "--set", "sequence=true", "--set", "recompute=none", "--set", "microbatch=8")
    for precision, group in (("mixed_fp8", 0), ("mixed_mxfp8", 32), ("mixed_fp8_block", 128)):
        def size(columns):
            return tokens * columns + (tokens // group * columns if group else 4)
        want = {"ln_1.operand": size(128), "ln_2.operand": size(128), "mlp.gelu.operand": size(512)}
        for words, expected in ((one, want), (one[:3] + ("recompute=full",) + one[4:], {}), (shared, {"mlp.gelu.operand": size(256)})):
            kept = kept_operands(folder, precision, *words)
            tally.check("kept in %s, %s" % (precision, " ".join(map(str, words))), kept == expected, "%s, not %s" % (kept, expected))
    tally.check("nothing is kept so in bf16", kept_operands(folder, BF16, *one) == {})


def check_expert_products(tally, precision, source):
    """Both products of an expert: forward, and twice backward."""
    value, weight, gradient = RECIPES[precision]
    calls = collections.Counter(re.findall(r"zpr_ragged_(gemm|wgrad)_float8\(c, ZPK_(\w+), ZPK_(\w+),", source))
    good = all(calls[kind] > 0 for kind in (("gemm", value, weight), ("gemm", gradient, weight))) and "zpr_ragged_gemm(" not in source
    tally.check("products of experts in " + precision, good and any(calls["wgrad", a, b] for a, b in ((value, gradient), (gradient, value))), str(calls))


def check_text(tally, folder):
    for example, more, check_source in (("gpt_tiny", (), check_products), ("moe_tiny", SORTED_TEXT, check_expert_products)):
        whole, plain = train_text(tally, BF16, folder, example, more)
        for number, precision in enumerate(RECIPES):
            if harness.my_turn(number, len(RECIPES)):
                compare_text(tally, precision, folder, example, more, whole, plain, check_source)


def compare_text(tally, precision, folder, example, more, whole, plain, check_source):
    losses, source = train_text(tally, precision, folder, example, more)
    if not losses or not whole:
        return
    difference = (sum(losses[-10:]) - sum(whole[-10:])) / 10
    print("%s after %d steps in %s: %+.4f of the loss in bf16" % (example, TEXT_STEPS, precision, difference))
    tally.check("and in %s what %s learns in bf16" % (precision, example), 0 < abs(difference) <= TEXT_LOSS, "%+.4f" % difference)
    tally.check("and it learns", losses[0] - sum(losses[-10:]) / 10 > 2, str(losses))
    check_source(tally, precision, source)
    tally.check("%s takes longer than bf16" % precision, predicted_ms(source) > predicted_ms(plain))


def difference(case, trained, precision):
    """The norm of how far gradients of the first step are from those of the interpreter, and of its own."""
    want = interpret.Run(case.model, case.values, 0, case.tokens, precision=precision).gradients()
    apart = [(case.values[name] - trained.values[0][name]) / case.lr - gradient for name, gradient in want.items()]
    return tuple(math.sqrt(sum(float(np.square(x).sum()) for x in xs)) for xs in (apart, want.values()))


def check_interpreter(tally, folder):
    """Sorted rows have other blocks than slots; the interpreter has slots."""
    for number, precision in enumerate(RECIPES):
        if not harness.my_turn(number, len(RECIPES)):
            continue
        models = {"layers": LAYERS, "experts": expert_layers(3)}
        if precision == "mixed_fp8":
            models["experts of sorted rows"] = expert_layers(tree.DROPLESS)
        for name, model in models.items():
            compare(tally, os.path.join(folder, "interpreted"), "%s in %s" % (name, precision), model, precision)


def compare(tally, folder, name, model, precision):
    case = check.Case(model, dict(settings.one_rank(model), precision=precision, microbatch=model["batch"]))
    trained = None if case.why else case.train(folder)
    if not tally.check(name, not case.why and not trained.error, case.why or trained.error or ""):
        return
    (apart, size), (without, _) = (difference(case, trained, rounding) for rounding in (precision, BF16))
    print("gradients of %s: %.1e from the interpreter, %.1e without rounding of operands" % (name, apart / size, without / size))
    tally.check("gradients of %s" % name, apart <= 1e-3 * size and without >= 1e-2 * size, "%.2e %.2e" % (apart / size, without / size))


def checks(tally, folder):
    check_kept(tally, folder)
    check_text(tally, folder)
    check_interpreter(tally, folder)


if __name__ == "__main__":
    sys.exit(trainings.main("products of 8 bits", table_of(), checks, bounds=BOUNDS, steps=STEPS))
