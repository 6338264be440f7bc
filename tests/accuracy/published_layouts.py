#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published layouts against our own plans for the same program: for every cell of Megatron-Bridge's table (model, system, GPUs, batch, precision) that has
experts, context ranks or fewer than 16 bits, the step that the cost model predicts for the layout that was published, for the best of all, and for the
best of what its recipes divide alike, all for the program that ran them (`--for megatron-bridge`, its profile by release).

usage: published_layouts.py [TABLE...]       default: tests/data/expert_runs_bridge.csv

Recipes divide layers equally, of 94 and 126 with the tables as two more (account_for_embedding_in_pipeline_split), and a launch is of Megatron FSDP
(ZeRO 3) or of the distributed optimizer (ZeRO 1): their space is every such division, with that stage of ZeRO. The published layout is pinned with its cut.
Plans leave the share of a board's memory that `plan` leaves; where the published layout, which ran, needs more, all of a cell may use all of it. 70B with FSDP had activations on the host (perf_recipes/llama/gb200/llama3.py of 067f987d): there all may.
Prints a row a cell, those that ran it last counting, and how many published layouts are within 3 % of the best. Fails where a search finds a slower
plan than the published one. Of the recipes of releases only what the profiles have is part of a plan: docs/evidence/accuracy.md.
"""
import concurrent.futures
import csv
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import harness  # noqa: E402

TABLE = os.path.join(harness.ROOT, "tests", "data", "expert_runs_bridge.csv")
GAP = 0.03
MOST_CHUNKS = 20  # of the table
PROFILES = {"whole": "megatron-bridge-26.06", "parts": "megatron-bridge-parts", "gates": "megatron-bridge-gates"}
# layers, hidden, vocabulary and the layer, as planner/validate/shapes.def has them
DENSE = "llama_layer(x, heads = %d, kv_heads = 8, head = 128, ff = %d, window = S)"
QWEN = "qwen3_moe_layer(x, heads = %d, kv_heads = 4, head = 128, experts = 128, top_k = 8, ff = %d, capacity = dropless)"
MODELS = {
    "LLAMA3_8B": (32, 4096, 128256, DENSE % (32, 14336)),
    "LLAMA3_70B": (80, 8192, 128256, DENSE % (64, 28672)),
    "LLAMA3.1_405B": (126, 16384, 128256, DENSE % (128, 53248)),
    "Qwen3_30B_a3B": (48, 2048, 151936, QWEN % (32, 768)),
    "Qwen3_235B_a22B": (94, 4096, 151936, QWEN % (64, 1536)),
    "GPT OSS 120B": (36, 2880, 201088, "mixtral_layer(x, heads = 64, kv_heads = 8, head = 64, experts = 128, top_k = 4, ff = 2880, window = S, capacity = dropless)"),
}
NODES = {"DGX-GB300": (64, "nvl72(devices = 64 * std.hw.gb300, network = 100GB/s)"), "DGX-GB200": (64, "nvl72(devices = 64 * std.hw.gb200)"),
         "DGX-B300": (8, "dgx_b300"), "DGX-B200": (8, "dgx_b200"), "DGX-H100": (8, "dgx_h100")}
PRECISIONS = {"BF16": "mixed_bf16", "FP8": "mixed_fp8", "FP8-CS": "mixed_fp8", "MXFP8": "mixed_mxfp8", "FP8-MX": "mixed_mxfp8", "NVFP4": "mixed_nvfp4"}
TEXT = """use std.nn
use std.models
use std.hw
model measured(V = %d, S = %d, d = %d) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param embed_tokens: [V, d]
  param lm_head: [V, d]
  x = embedding(tokens, embed_tokens)
  repeat layers in 0..%d { x = %s }
  norm = rms_norm(x)
  output loss = cross_entropy(matmul(norm, transpose(lm_head)), labels)
}
cluster c { nodes = %d  node = std.hw.%s }
train { model = measured  batch = %d  steps = 1  precision = "%s"  optimizer = adam(lr = 1e-4)  clip = 1.0 }
"""


def number(text, least=1):
    return int(text) if text.isdigit() and int(text) >= least else least


def cells(tables):
    """The rows of the last release of each cell: tables begin with it."""
    found = {}
    for table in tables:
        with open(table, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                narrow = row["precision"] in PRECISIONS and row["precision"] != "BF16"
                known = row["model"] in MODELS and row["system"] in NODES and row["precision"] in PRECISIONS and "LoRA" not in row["kind"]
                if known and (narrow or number(row["ep"]) > 1 or number(row["cp"]) > 1):
                    found.setdefault(tuple(row[key] for key in ("model", "system", "gpus", "precision", "gbs")), row)
    return found.values()


def settings(row):
    tensor, pipeline, context = (number(row[key]) for key in ("tp", "pp", "cp"))
    chunks, shard = number(row["vp"]), number(row["fsdp"], 0)
    pins = {"tensor": tensor, "pipeline": pipeline, "data": int(row["gpus"]) // (tensor * pipeline * context), "expert": number(row["ep"]), "context": context,
            "microbatch": number(row["mbs"]), "zero": 3 if shard else 1, "schedule": "interleaved" if chunks > 1 else "1f1b"}
    cut = equal_layers(MODELS[row["model"]][0], pipeline, chunks)
    return dict(pins, **({"chunks": chunks} if chunks > 1 else {}), **({"cut": cut} if cut and pipeline > 1 else {}))


def equal_layers(layers, pipeline, chunks):
    """The cut of a recipe; None: it has none of so many parts."""
    parts = pipeline * chunks
    for tables in (0, 2):
        if (layers + tables) % parts == 0:
            cut = [(layers + tables) // parts] * parts
            cut[0], cut[-1] = cut[0] - tables // 2, cut[-1] - tables // 2
            return "[%s]" % ", ".join(map(str, cut)) if min(cut) > 0 else None
    return None


def divisions(row, pins):
    """What to pin for every division of a recipe with the published stage of ZeRO."""
    layers, pipeline = MODELS[row["model"]][0], 1
    while pipeline <= min(int(row["gpus"]), layers):
        for chunks in range(1, MOST_CHUNKS + 1 if pipeline > 1 and pins["zero"] < 2 else 2):
            cut = equal_layers(layers, pipeline, chunks)
            more = {"schedule": "interleaved", "chunks": chunks} if chunks > 1 else {"schedule": "1f1b"}
            if cut and (pipeline == 1 or pins["zero"] < 2):
                yield dict({"zero": pins["zero"], "pipeline": pipeline}, **dict(more, cut=cut) if pipeline > 1 else {})
        pipeline *= 2


def program_of(row):
    """The profile of the cell's release: planner/validate/expert_recipes.def says what graphs launch of it."""
    name = re.sub("[^a-z0-9]", "", row["model"].lower())
    precision = {"MXFP8": "mxfp8", "FP8-MX": "mxfp8"}.get(row["precision"], row["precision"].lower())
    with open(os.path.join(harness.ROOT, "planner", "validate", "expert_recipes.def"), encoding="utf-8") as file:
        for model, system, bits, first, graphs in re.findall(r'^ZP_RECIPE\("(.*?)",\s*"(.*?)",\s*"(.*?)",\s*"(.*?)",\s*".*?",\s*"(.*?)"', file.read(), re.M):
            if name.startswith(model) and system in ("", row["system"]) and bits in ("", precision) and row["release"] >= first:
                return PROFILES.get(graphs, "megatron-bridge")
    return "megatron-bridge"


def step_of(path, pins, offloads, program, memory):
    words = [word for key, value in pins.items() for word in ("--set", "%s=%s" % (key, value))]
    words += ["--set", memory] if memory else []
    words += ["--set", "offload[activations] in [none, cpu]"] if offloads else []
    ran = harness.zplan(path, "--for", program, "--gap", "2%", "-o", path + ".json", "--force", *words)
    if ran.status != 0:
        return None, " ".join(ran.err.split())[:90]
    with open(path + ".json", encoding="utf-8") as file:
        plan = json.load(file)
    degrees = plan["degrees"]
    words = ["%s %d" % (key, degrees[key]) for key in ("tensor", "pipeline", "data", "context", "expert") if degrees.get(key, 1) > 1]
    return plan["estimate"]["step_s"], "%s, zero %d, micro-batch %d%s%s" % (" x ".join(words), plan["zero"], plan["microbatch"], ", %d chunks" % plan["chunks"] if plan["chunks"] > 1 else "",
                                                                              "" if plan["recompute"] == "none" else ", recompute " + plan["recompute"]) + "".join(", %s/8 of activations on the host" % home["eighths"] for key, home in (plan.get("offload") or {}).items() if key == "activations")


def plan_cell(folder, i, row):
    """Step and layout: published, best of its recipes' divisions, best of all."""
    layers, hidden, words, layer = MODELS[row["model"]]
    devices, node = NODES[row["system"]]
    if int(row["gpus"]) < devices:
        node, devices = node.replace("64 *", "%s *" % row["gpus"]), int(row["gpus"])
    path = os.path.join(folder, "cell%d.dz" % i)
    with open(path, "w", encoding="utf-8") as file:
        file.write(TEXT % (words, int(row["seq"]), hidden, layers, layer, int(row["gpus"]) // devices, node, int(row["gbs"]), PRECISIONS[row["precision"]]))
    pins, program = settings(row), program_of(row)
    offloads = row["model"] == "LLAMA3_70B" and number(row["fsdp"], 0) > 0
    published = step_of(path, pins, offloads, program, "memory <= 100%")
    least = step_of(path, pins, offloads, program, None)  # with what `plan` leaves by itself
    memory = None if least[0] and least[0] < published[0] * 1.001 else "memory <= 100%"
    alike = [step for step in (step_of(path, more, offloads, program, memory) for more in divisions(row, pins)) if step[0]]
    return published, min([published] * (published[0] is not None) + alike), step_of(path, {}, offloads, program, memory)


def main():
    harness.require_zplan()
    tally = harness.Tally()
    near = near_alike = n = 0
    print("| model | system | GPUs | precision | published: s | best of its recipes | best of all | published over these | of its recipes | of all |\n" + "|---" * 10 + "|")
    rows = list(cells(sys.argv[1:] or [TABLE]))
    with harness.Scratch() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for row, cell in zip(rows, pool.map(lambda at: plan_cell(folder, *at), enumerate(rows))):
            (published, why), (alike, like), (best, chosen) = cell
            first = (row["model"], row["system"], row["gpus"], row["precision"])
            if published is None:
                print("| %s | %s | %s | %s | none: %s | | | | | |" % (*first, why))
                continue
            n, near, near_alike = n + 1, near + (published <= best * (1 + GAP)), near_alike + (published <= alike * (1 + GAP))
            tally.check("%s on %s %s, %s" % (first[0], first[2], first[1], first[3]), best <= published * 1.021, "%.3f s, published %.3f" % (best, published))
            print("| %s | %s | %s | %s | %.2f | %.2f | %.2f | +%.1f %%, +%.1f %% | %s | %s |" % (*first, published, alike, best, 100 * (published / alike - 1),
                                                                                          100 * (published / best - 1), like, chosen))
            sys.stdout.flush()
    print("%d of %d published layouts are within 3 %% of the best of their recipes' divisions, %d of the best of all" % (near_alike, n, near))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
