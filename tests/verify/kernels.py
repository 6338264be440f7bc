#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a plan for zplan's own GPU trainer says of its kernels, against a count by hand: operations and bytes of every step of a layer of
GPT-2 from its shapes, in 16 bits on tensor cores and elsewhere; and that text, JSON and HTML say for which program a plan is priced.
"""
import html
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

SOURCE = os.path.join(harness.ROOT, "tests", "bench", "gpu_roofline.dz")
SAMPLES, SEQUENCE, COLUMNS, HEADS = 32, 1024, 768, 12
TOKENS = SAMPLES * SEQUENCE
WORDS, PADDED = 50257, 50304
SUM = 4  # bytes of statistics and of sums over columns
CHUNKS = 512 + 512 // 16  # of rows, whose sums are written and read; and groups of 16 of them


def product(rows, inner, columns, element, more=0):
    """more: elements that its epilogue reads or writes alongside the operands."""
    return "product", 2 * rows * inner * columns, element * (rows * inner + inner * columns + rows * columns + more)


def weights(inner, columns, element, bias=False):
    """A gradient of weights is read and written, in f32, and so is that of a bias whose columns it sums in passing."""
    kernel, operations, operands = product(inner, TOKENS, columns, element, -inner * columns)
    return kernel, operations, operands + SUM * 2 * (inner * columns + (columns if bias else 0))


def rows(kernel, elements, columns, element, sums=0):
    """Elements moved in rows, parameters read once; sums over columns: read and written as gradients, and chunk by chunk."""
    return kernel, None, element * (elements * TOKENS + columns) + sums * (2 * SUM + 2 * SUM * CHUNKS)


def gelu_gradient(element, folds):
    """gelu's derivative reads what forward kept; the gradient of the bias before it is summed in passing: by the product, or where
    cuBLASLt is slow with it by a row kernel."""
    d, n = COLUMNS, TOKENS
    if folds:
        kernel, operations, operands = product(n, d, 4 * d, element, 4 * d * n)
        return {"matmul_dgrad mlp.c_proj.matmul": (kernel, operations, operands + SUM * 2 * 4 * d)}
    return {"matmul_dgrad mlp.c_proj.matmul": product(n, d, 4 * d, element),
            "fused_grad mlp.gelu": rows("column sums", 3 * 4 * d, 0, element, 4 * d)}


def layer(element, folds):
    """Steps but attention: name -> class, operations (None: not checked), bytes."""
    d, n = COLUMNS, TOKENS
    sums = "column sums"
    return {
        **gelu_gradient(element, folds),
        # Forward: x -> ln_1; its mean and deviation are not kept. A bias after a product is read by its epilogue.
        "fused ln_1": rows("rows", 2 * d, 2 * d, element),
        "matmul attn.c_attn.matmul": product(n, d, 3 * d, element, 3 * d),
        "matmul attn.c_proj.matmul": product(n, d, d, element),
        "fused ln_2": rows("rows", 4 * d, 3 * d, element),  # product, x -> x + product, ln_2: with the bias of the product
        "matmul mlp.c_fc.matmul": product(n, d, 4 * d, element, 4 * d * n + 4 * d),  # gelu of it, and it itself for backward
        "matmul mlp.c_proj.matmul": product(n, 4 * d, d, element, d * n + d),  # on the residual stream
        # Backward.
        "matmul_wgrad mlp.c_proj.matmul": weights(4 * d, d, element, bias=True),
        "matmul_dgrad mlp.c_fc.matmul": product(n, 4 * d, d, element),
        "matmul_wgrad mlp.c_fc.matmul": weights(d, 4 * d, element),
        "matmul_dgrad attn.c_proj.matmul": product(n, d, d, element),
        "matmul_wgrad attn.c_proj.matmul": weights(d, d, element),
        "matmul_dgrad attn.c_attn.matmul": product(n, 3 * d, d, element),
        "matmul_wgrad attn.c_attn.matmul": weights(d, 3 * d, element, bias=True),
        # x, its gradient so far, that of the norm's result, the sum; scale and shift, and the bias after attention.
        "fused_grad ln_2": rows(sums, 4 * d, d, element, 3 * d),
        "fused_grad ln_1": rows(sums, 4 * d, d, element, 2 * d),
    }


def tiled_pairs(rows_of_tile, step, rows_of_warp):
    """Pairs of a head that warps compute with, causal: of every step that the last row of a warp sees."""
    warps = range(0, SEQUENCE, rows_of_warp)
    return sum(rows_of_warp * step * ((first + rows_of_warp - 1) // step + 1) for first in warps)


def attention(element, tensor_cores):
    """Both directions: class, launches, operations, bytes."""
    matrix, fact = TOKENS * COLUMNS * element, TOKENS * HEADS * 4
    width, heads = COLUMNS // HEADS, SAMPLES * HEADS
    if tensor_cores:  # two products forward, three and four backward
        forward = 2 * 2 * width * heads * tiled_pairs(128, 64, 32)
        backward = 2 * width * heads * (3 * tiled_pairs(128, 32, 32) + 4 * tiled_pairs(64, 64, 16))
        # dq: q, k, v, o, d_o, log-sum-exps; dk and dv: q, k, v, d_o and the facts that the former wrote
        moved = (5 + 1) * matrix + fact + 2 * fact + (4 + 2) * matrix + 2 * fact
    else:  # half of all pairs, 4 and 14 operations
        forward, backward = (n * width * heads * SEQUENCE ** 2 // 2 for n in (4, 14))
        moved = 8 * matrix + fact
    return ("attention", 1, forward, 4 * matrix + fact), ("attention gradient", 2, backward, moved)


def plan_of(gpu, precision):
    outcome = harness.zplan("plan", SOURCE, "--cluster", gpu, "--gpus", 1, "--json", "--set", "train.precision=%s" % precision)
    if outcome.status != 0:
        sys.exit(outcome.tail())
    return json.loads(outcome.out)


def near(a, b):
    return abs(a - b) <= 1e-9 * abs(b)


def check_words(tally, where, plan, element):
    """50,257 words are 50,304 columns of zplan's own trainer, and none of another's; the model has the words that it has."""
    n, d, words = TOKENS, COLUMNS, PADDED
    segment = next(s for s in plan["program"]["segments"] if s["name"] == "end")
    steps = {s["op"]: s for s in segment["forward"]["steps"] + segment["backward"]["steps"]}
    statistics = SUM * n * 3 + 4 * n  # maximum, sum, the label's logit; labels
    for op, work in {"matmul": product(n, d, words, element), "matmul_dgrad": product(n, words, d, element),
                     "matmul_wgrad": weights(words, d, element),
                     "ce_stats": ("loss", None, element * n * words + statistics),
                     "ce_grad": ("loss", None, element * 2 * n * words + SUM * n + 4 * n)}.items():
        kernel, flop, moved = work
        told = steps[op]["kernel"] == kernel and (flop is None or near(steps[op]["flop"], flop))
        tally.check(where + op + " of the words", told and near(steps[op]["bytes"], moved), "%s, by hand %s" % (steps[op], work))
    tally.check(where + "columns", parameter(plan, "wte")["local_elements"] == words * d)
    tally.check(where + "words", parameter(plan, "wte")["units"] == WORDS)


def parameter(plan, name):
    return next(p for p in plan["program"]["parameters"] if p["name"] == name)


def check_layer(tally, gpu, precision, tensor_cores):
    plan, element, where = plan_of(gpu, precision), 4 if precision == "fp32" else 2, "%s, %s: " % (gpu, precision)
    segment = next(s for s in plan["program"]["segments"] if s["name"] == "h")
    steps = {"%s %s" % (s["op"], s["name"]): s for s in segment["forward"]["steps"] + segment["backward"]["steps"]}
    tally.check(where + "one micro-batch", plan["microbatches"] == 1)
    for name, (kernel, flop, moved) in layer(element, folds=gpu in ("a100", "v100")).items():
        step = steps.get(name, {})
        told = step.get("kernel") == kernel and step["launches"] == 1 and (flop is None or near(step["flop"], flop))
        tally.check(where + name, told and near(step["bytes"], moved), "%s, by hand %s %s %s" % (step, kernel, flop, moved))
    both = attention(element, tensor_cores)
    for name, (kernel, launches, flop, moved) in zip(("attention attn.y", "attention_grad attn.y"), both):
        step = steps[name]
        told = step["kernel"] == kernel and step["launches"] == launches and near(step["flop"], flop) and near(step["bytes"], moved)
        tally.check(where + name, told, "%s, by hand %d operations, %d bytes" % (step, flop, moved))
    check_words(tally, where, plan, element)
    update = plan["stages"][0]["update"]
    n = plan["model"]["parameters"]  # gradients for the norm; gradients, weights and moments, all f32; 16-bit weights
    moved = n * (4 + 4 + 3 * 8 + (2 if element == 2 else 0))
    tally.check(where + "update", update["launches"] == 3 and abs(update["bytes"] / moved - 1) < 1e-3, "%s, by hand %d" % (update, moved))
    tally.check(where + "classes", {s["kernel"] for s in steps.values()} <= {k["kernel"] for k in plan["kernels"]})
    tally.check(where + "sources", all(k["source"] and k["flop_per_s"] > 0 and k["bytes_per_s"] > 0 for k in plan["kernels"]))


def check_programs(tally, folder):
    """Which program a plan is priced for, in the three forms."""
    for program, phrase in (("zplan", "for zplan's own trainer"), ("megatron", "for Megatron-LM (profile ")):
        path, page = os.path.join(folder, program + ".json"), os.path.join(folder, program + ".html")
        outcome = harness.zplan("plan", SOURCE, "--cluster", "h100", "--gpus", 1, "--for", program, "--verbose", "-o", path)
        tally.check(program + " in text", outcome.status == 0 and phrase in " ".join(outcome.out.split()), outcome.tail())
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        tally.check(program + " in JSON", plan["for"]["program"] == program)
        columns = parameter(plan, "wte")["local_elements"] / COLUMNS * plan["degrees"]["tensor"]
        tally.check(program + ": words", columns == (PADDED if program == "zplan" else WORDS), "%s columns" % columns)
        steps = [step for segment in plan["program"]["segments"] for step in segment["forward"]["steps"]]
        told = "kernels" in plan and "update" in plan["stages"][0] and all("kernel" in step for step in steps)
        quiet = "kernels" not in plan and "update" not in plan["stages"][0] and not any("kernel" in step for step in steps)
        tally.check(program + ": kernels are told of zplan's own alone", told if program == "zplan" else quiet)
        outcome = harness.zplan("report", path, "--html", page)
        with open(page, encoding="utf-8") as file:
            tally.check(program + " in HTML", outcome.status == 0 and phrase in html.unescape(file.read()))


def main():
    harness.require_zplan()
    tally = harness.Tally()
    check_layer(tally, "h100", "mixed_bf16", True)
    check_layer(tally, "v100", "mixed_fp16", True)
    check_layer(tally, "v100", "fp32", False)
    check_layer(tally, "h200", "fp32", False)
    with harness.Scratch() as folder:
        check_programs(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
