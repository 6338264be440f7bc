#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The roofline of GPT-2 on GPUs by zplan's cost model: what every kernel of a training step computes and moves, and how long that
is taken to last. Nothing of it is measured.

    gpu_roofline.py             prints the tables
    gpu_roofline.py --update    writes them into docs/evidence/gpu.md, between its marks
    gpu_roofline.py --check     says whether they are there; exits 1 when not

Work and seconds are those of `zplan plan --json`; a model's operations and both MFUs are computed here, from its shapes.
"""
import difflib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

PAGE = os.path.join(harness.ROOT, "docs", "evidence", "gpu.md")
SOURCE = os.path.join(HERE, "gpu_roofline.dz")
BEGIN, END = "<!-- tables: tests/bench/gpu_roofline.py -->\n", "<!-- end of tables -->\n"
BATCH, SEQUENCE, WORDS = 32, 1024, 50257
MODELS = {"124M": (12, 768, 12), "350M": (24, 1024, 16), "1.3B": (24, 2048, 16)}  # layers, columns, heads
GPUS = {"A100": "a100", "H100": "h100", "H200": "h200", "B200": "b200", "V100": "v100"}
GOALS = {"124M": 42, "350M": 46, "1.3B": 50}  # percent, H100
LAYERS = "h"  # the repeated segment
LONG, LONG_BATCH = 16384, 2
WINDOWS = {64: (69, 33, 15), 128: (35, 17, 7)}  # blocks, about 25, 12.5 and 6 percent of dense


def ask(gpu, sets):
    options = [word for name, value in sets.items() for word in ("--set", "%s=%s" % (name, value))]
    outcome = harness.zplan("plan", SOURCE, "--cluster", GPUS[gpu], "--gpus", 1, "--json", *options)
    if outcome.status != 0:
        sys.exit(outcome.tail())
    return json.loads(outcome.out)


def plan_of(model, gpu, words=WORDS):
    layers, columns, heads = MODELS[model]
    sizes = {"model.V": words, "model.d": columns, "model.layers": layers, "model.heads": heads}
    return ask(gpu, dict(sizes, **({"train.precision": "mixed_fp16"} if gpu == "V100" else {})))


# ---- a model's operations ----

def model_flop(model, words, full):
    """Of a step: 6 for every weight of a product and token; 12 layers x columns x sequence a token for attention, half of it where
    only the pairs that causality leaves are counted."""
    layers, columns, _ = MODELS[model]
    products = 6 * (12 * layers * columns ** 2 + words * columns)
    attention = 12 * layers * columns * SEQUENCE
    return BATCH * SEQUENCE * (products + attention * (1 if full else 0.5))


def check_flop(plan, model, words):
    stated, own = plan["estimate"]["model_flop"], model_flop(model, words, False)
    if abs(stated / own - 1) > 1e-9:
        sys.exit("the plan of %s counts %g operations, its shapes make %g" % (model, stated, own))


# ---- kernels ----

class Row:
    def __init__(self, label, kernel):
        self.label, self.kernel = label, kernel
        self.launches, self.flop, self.bytes, self.seconds = 0, 0, 0, 0

    def add(self, step, times):
        self.launches += times * step["launches"]
        self.flop += times * step.get("flop", 0)
        self.bytes += times * step["bytes"]
        self.seconds += times * step["cost_s"]


def calls(plan):
    """Every step that starts something: segment, procedure, step, how often in a training step."""
    for segment in plan["program"]["segments"]:
        for procedure in ("forward", "backward"):
            for step in segment[procedure]["steps"]:
                if "kernel" in step:
                    yield segment, procedure, step, segment["count"] * plan["microbatches"]


def rows_of(plan, label_of):
    rows = {}
    for segment, procedure, step, times in calls(plan):
        label = label_of(segment, procedure, step)
        rows.setdefault(label, Row(label, step["kernel"])).add(step, times)
    update = rows.setdefault("norm, decision, update", Row("norm, decision, update", "update"))
    update.add(plan["stages"][0]["update"], 1)
    return list(rows.values())


CLASSES = {"attention": "attention", "attention gradient": "attention, gradient", "rows": "rows", "column sums": "rows with column sums",
           "loss": "cross-entropy", "lookup": "lookups"}


def class_label(segment, _, step):
    if step["kernel"] != "product":
        return CLASSES[step["kernel"]]
    return "products, layers" if segment["name"] == LAYERS else "products, vocabulary"


def step_label(segment, procedure, step):
    return "%s %s, %s" % (segment["name"], procedure, " ".join((step["op"], step["name"])))


def bound_of(row, rates):
    """What the time follows from: the longer of computing and moving at the rates of the class, or neither."""
    rate = rates[row.kernel]
    computing, moving = row.flop / rate["flop_per_s"], row.bytes / rate["bytes_per_s"]
    if max(computing, moving) < 0.5 * row.seconds and row.kernel != "product":
        return "launches" if row.kernel != "column sums" else "blocks"
    return "operations" if computing > moving else "bytes"


def amount(number):
    return "{:,.0f}".format(number) if number >= 99.5 else "%.3g" % number


def table(rows, rates, step_s):
    lines = ["| kernels | class | launches | GFLOP | MB | bound | ms | share | reaches |", "|---|---|---:|---:|---:|---|---:|---:|---|"]
    for row in rows:
        bound = bound_of(row, rates)
        reached = "%.0f TFLOP/s" % (row.flop / row.seconds / 1e12) if bound == "operations" else "%.2f TB/s" % (row.bytes / row.seconds / 1e12)
        lines.append("| %s | %s | %d | %s | %s | %s | %.2f | %.1f %% | %s |" % (
            row.label, row.kernel, row.launches, amount(row.flop / 1e9), amount(row.bytes / 1e6), bound, row.seconds * 1e3,
            100 * row.seconds / step_s, reached))
    total = sum(row.seconds for row in rows)
    lines.append("| all | | %d | %s | %s | | %.2f | %.1f %% | |" % (
        sum(row.launches for row in rows), amount(sum(row.flop for row in rows) / 1e9), amount(sum(row.bytes for row in rows) / 1e6),
        total * 1e3, 100 * total / step_s))
    return lines


def mfu(plan, model, full):
    """Percent of the device's peak, for the words that there are."""
    estimate = plan["estimate"]
    return 100 * model_flop(model, WORDS, full) * estimate["mfu"] / estimate["model_flop"]


# ---- the page ----

def summary_lines(plans):
    lines = ["### Steps", "", "All *estimated*. MFU: causal attention counted half / counted full.", "",
             "| | " + " | ".join(GPUS) + " |", "|---|" + "---|" * len(GPUS)]
    for model in MODELS:
        cells = []
        for gpu in GPUS:
            plan = plans[model, gpu]
            cells.append("%.1f ms, %.1f / %.1f %%" % (plan["estimate"]["step_s"] * 1e3, mfu(plan, model, False),
                                                      mfu(plan, model, True)))
        lines.append("| %s | %s |" % (model, " | ".join(cells)))
    lines += ["", "Micro-batch, recomputation and chunks of the loss are those of the fastest plan: " + "; ".join(
        "%s %s" % (model, ", ".join("%s %s" % (gpu, decisions(plans[model, gpu])) for gpu in GPUS)) for model in MODELS) + "."]
    return lines


def decisions(plan):
    words = ["%d" % plan["microbatch"]]
    words += [plan["recompute"]] if plan["recompute"] != "none" else []
    words += ["(loss in %d chunks)" % plan["loss_chunks"]] if plan["loss_chunks"] > 1 else []
    return " ".join(words)


def goal_lines(plans):
    lines = ["### Against the goals, H100", "", "MFU with causal attention counted half, and with %d words, however many columns are computed; milliseconds of a step." % WORDS, "",
             "| | goal | *estimated* | short by | step | step of the goal | products, layers | products, vocabulary | attention, both ways | all others |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for model, goal in GOALS.items():
        plan = plans[model, "H100"]
        seconds = {row.label: row.seconds * 1e3 for row in rows_of(plan, class_label)}
        step, own = plan["estimate"]["step_s"] * 1e3, mfu(plan, model, False)
        attention = seconds["attention"] + seconds["attention, gradient"]
        products = seconds["products, layers"], seconds["products, vocabulary"]
        lines.append("| %s | %d %% | %.1f %% | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |" % (
            model, goal, own, "%.1f" % (goal - own) if own < goal else "-", step, step * own / goal, products[0], products[1], attention,
            sum(seconds.values()) - attention - sum(products)))
    return lines


def attention_of(sets):
    """Seconds and operations of a layer's attention, forward and backward, on an H100."""
    plan = ask("H100", dict(sets, **{"model.layers": 1, "train.batch": LONG_BATCH}))
    steps = [step for segment, _, step, _ in calls(plan) if segment["name"] == LAYERS and step["kernel"].startswith("attention")]
    return sum(step["cost_s"] for step in steps), sum(step["flop"] for step in steps)


def sparse_lines():
    lines = ["### Block-sparse attention of %s positions against dense, H100" % "{:,}".format(LONG), "",
             "%d sequences, 12 heads of 64, causal, one layer forward and backward; a sliding window of blocks." % LONG_BATCH, "",
             "| block | window | density | GFLOP | ms | operations of dense | times as fast |", "|---:|---:|---:|---:|---:|---:|---:|"]
    dense_s, dense_flop = attention_of({"model.S": LONG})
    lines.append("| | dense | 100 %% | %s | %.2f | 100 %% | |" % (amount(dense_flop / 1e9), dense_s * 1e3))
    for unit, windows in WINDOWS.items():
        for window in windows:
            blocks = LONG // unit
            seen = sum(min(i, window // 2) + 0.5 for i in range(blocks)) / (blocks ** 2 / 2)
            seconds, flop = attention_of({"train.model": "sparse_layer", "model.unit": unit, "model.window": window})
            lines.append("| %d | %d | %.1f %% | %s | %.2f | %.1f %% | %.1f |" % (
                unit, window, 100 * seen, amount(flop / 1e9), seconds * 1e3, 100 * flop / dense_flop, dense_s / seconds))
    return lines


def rate_lines(plans):
    lines = ["### Rates", "", "What a class of kernels is taken to reach once it runs: operations and bytes a second. Bytes: the device's `memory_bandwidth` x",
             "`efficiency.memory` (`frontend/library/hw.dz` has the sources). Operations:", "",
             "| GPU | kernels | TFLOP/s | TB/s | source of the operations' rate |", "|---|---|---:|---:|---|"]
    for gpu in GPUS:
        seen = {}
        for model in MODELS:
            for rate in plans[model, gpu]["kernels"]:
                key = (rate["flop_per_s"], rate["bytes_per_s"], rate["source"])
                seen.setdefault(key, [])
                if rate["kernel"] not in seen[key] and rate["kernel"] != "routing":
                    seen[key].append(rate["kernel"])
        for (flop_per_s, bytes_per_s, source), kernels in seen.items():
            lines.append("| %s | %s | %.1f | %.2f | %s |" % (gpu, ", ".join(kernels), flop_per_s / 1e12, bytes_per_s / 1e12, source))
    return lines


def page_tables():
    plans = {(model, gpu): plan_of(model, gpu) for model in MODELS for gpu in GPUS}
    for (model, _), plan in plans.items():
        check_flop(plan, model, WORDS)
    lines = summary_lines(plans) + [""] + goal_lines(plans)
    for model in MODELS:
        for gpu in GPUS:
            plan = plans[model, gpu]
            rates = {rate["kernel"]: rate for rate in plan["kernels"]}
            lines += ["", "### GPT-2 %s on %s, by class (*estimated*)" % (model, gpu), ""]
            lines += table(rows_of(plan, class_label), rates, plan["estimate"]["step_s"])
    plan = plans["124M", "H100"]
    rates = {rate["kernel"]: rate for rate in plan["kernels"]}
    lines += ["", "### GPT-2 124M on H100, kernel by kernel (*estimated*)", "", "Of all layers together.", ""]
    lines += table(rows_of(plan, step_label), rates, plan["estimate"]["step_s"])
    return "\n".join(lines + [""] + sparse_lines() + [""] + rate_lines(plans)) + "\n"


def main():
    words = sys.argv[1:]
    if words not in ([], ["--update"], ["--check"]):
        sys.exit(__doc__)
    harness.require_zplan()
    tables = page_tables()
    if not words:
        print(tables, end="")
        return 0
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(BEGIN)
    stands, after = rest.split(END)
    if words == ["--update"]:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + "\n" + tables + "\n" + END + after)
        return 0
    tally = harness.Tally()
    difference = list(difflib.unified_diff(stands.strip().splitlines(), tables.strip().splitlines(), "docs/evidence/gpu.md", "the command", lineterm="", n=0))
    tally.check("docs/evidence/gpu.md has the tables that the command prints", not difference, "\n".join(difference[:20]))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
