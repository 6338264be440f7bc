#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters of experts, which PEFT keeps of parameters that hold all of them, read alongside a Mixtral and written.

    peft_experts.py [--update]

Four folders as PEFT 0.21.2 saves them (peft_folder.EXPERTS): gate and up with one a, which are trained apart here; with an a each, in diagonal blocks and with rsLoRA; modules of every expert, as
before transformers 5; the second projection and the router alone. The first loss is PEFT's to 1e-12 in f64 (committed in expected_peft_experts.json; from a live run, too, where PYTHON names a Python with
peft), and where both train the same numbers losses and gradients' norms of 20 AdamW steps. Folders with an a each come back as they were, on one rank and on 4; the others as blocks
of the same numbers. After steps the merged weights are those of the formula. What PEFT or the model cannot hold is refused. --update writes the values from a live run.
"""
import array
import json
import os
import shutil
import sys

import families
import peft_adapters
import peft_folder
import weights

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

EXPERTS, RANK, WIDTHS = 4, 3, {"w1": (48, 64), "w2": (64, 48), "w3": (48, 64)}  # inputs and outputs
ALL, DOWN = ("*q_proj.weight", "*.w1", "*.w2", "*.w3"), ("*q_proj.weight", "*.w2", "*.gate.weight")
LAYOUT = ("tensor=2", "pipeline=2", "data=1")


def settings(case, **changed):
    fields = dict(dict(peft_folder.EXPERTS[case], of=DOWN if case == "down" else ALL), **changed)
    words = "rank = %d, alpha = %g, rslora = %s" % (fields["r"], fields["lora_alpha"], str(fields.get("use_rslora", False)).lower())
    return ("train.adapt=lora(%s, of = %s)" % (words, json.dumps(fields["of"])), peft_adapters.adamw(), 'precision="fp64"')


def train(bench, adapters, case, steps, more=()):
    return bench.train(bench.path("mixtral.dz"), "--init", bench.path("mixtral"), "--adapters", bench.path(adapters), steps=steps,
                       ranks=4 if more else 1, settings=more + settings(case))


def losses(bench, want, case, steps):
    """Returns the checkpoint."""
    outcome, _, checkpoint = train(bench, case, case, steps)
    if bench.tally.check("%s: runs" % case, outcome.status == 0, outcome.tail()):
        log = harness.read_log(bench.path("log.jsonl"))[0]
        for key, name in (("losses", "loss"), ("grad_norms", "grad_norm"))[:2 if steps > 1 else 1]:
            error = max(harness.number_error(step[name], x) for step, x in zip(log, want[case][key]))
            bench.tally.check("%s: %s of %d steps" % (case, name, steps), len(log) == steps and error <= 1e-12 * (1 if name == "loss" else 10), "%.2e" % error)
            print("%s: largest error of %s: %.2e" % (case, name, error))
    noted = "`mlp.experts.gate_up_proj` share an adapter's a" in outcome.err
    bench.tally.check("%s: a note where an a is shared" % case, noted == (case == "shared"), outcome.err)
    return checkpoint


def exported(bench, title, checkpoint):
    """(tensors, configuration) of an export."""
    shutil.rmtree(bench.path("out"), ignore_errors=True)
    export = harness.zplan("export", "peft", checkpoint, "-o", bench.path("out"), "--dtype", "f32")
    if not bench.tally.check("%s: exported" % title, export.status == 0, export.tail()):
        return {}, {}
    with open(bench.path("out", "adapter_config.json"), encoding="utf-8") as file:
        return harness.read_safetensors(bench.path("out", "adapter_model.safetensors")), json.load(file)


def tensors_of(bench, folder):
    return harness.read_safetensors(bench.path(folder, "adapter_model.safetensors"))


def same(bench, title, one, other):
    different = [n for n in sorted(set(one) | set(other)) if n not in one or n not in other or one[n][0] != other[n][0] or bytes(one[n][1]) != bytes(other[n][1])]
    bench.tally.check("%s: the same bytes" % title, one and not different, str(different[:4]))


def matrices(tensors, layer, which, rank_at=0, row=0, module=".base_layer"):
    """[(a, b)] of the experts, as rows, out of PEFT's two tensors."""
    module = "base_model.model.model.layers.%d.mlp.experts%s.lora_" % (layer, "" if which == "w2" else module)
    (shape, a), (_, b) = (tensors[module + end + ".weight"] for end in "AB")
    ranks, (inputs, outputs) = shape[0] // EXPERTS, WIDTHS[which]
    return [([list(a[(e * ranks + rank_at + k) * inputs:][:inputs]) for k in range(RANK)],
             [[b[(row + i) * ranks * EXPERTS + (rank_at + k) * EXPERTS + e] for k in range(RANK)] for i in range(outputs)]) for e in range(EXPERTS)]


def of_modules(tensors, layer, which):
    name = "base_model.model.model.layers.%d.block_sparse_moe.experts.%d.%s.lora_%s.weight"
    inputs, outputs = WIDTHS[which]
    pairs = [[tensors[name % (layer, e, which, end)][1] for end in "AB"] for e in range(EXPERTS)]
    return [([list(a[k * inputs:][:inputs]) for k in range(RANK)], [list(b[i * RANK:][:RANK]) for i in range(outputs)]) for a, b in pairs]


def comes_back(bench, case, checkpoint):
    """As blocks: the numbers of the folder, and read again the same."""
    got, config = exported(bench, case, checkpoint)
    bench.tally.check("%s: ranks and alphas of blocks" % case, config.get("rank_pattern") == {"mlp.experts.gate_up_proj": 2 * RANK} and
                      config["alpha_pattern"] == {"mlp.experts.gate_up_proj": 10} and (config["r"], config["lora_alpha"]) == (RANK, 5) and
                      sorted(config["target_parameters"]) == ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"], str(config))
    given = tensors_of(bench, case)
    for layer in range(2):
        for which, rank_at, row in (("w1", 0, 0), ("w3", RANK, 64), ("w2", 0, 0)):
            want = of_modules(given, layer, which) if case == "modules" else matrices(given, layer, which, row=row)
            bench.tally.check("%s: numbers of %s of layer %d" % (case, which, layer), got and matrices(got, layer, which, rank_at, row) == want)
    zeros = [got[n][1][i * 24 + k] for n in got if n.endswith("base_layer.lora_B.weight") for i in range(128) for k in range(24) if (i < 64) == (k >= 12)]
    bench.tally.check("%s: nothing outside of the blocks" % case, len(zeros) == 2 * 128 * 12 and not any(zeros))
    shutil.copytree(bench.path("out"), bench.path("again"), dirs_exist_ok=True)
    _, _, checkpoint = train(bench, "again", case, 0)
    same(bench, "%s: read again" % case, got, exported(bench, case + " again", checkpoint)[0])


def round_trip(bench):
    """On one rank and on 4."""
    given = tensors_of(bench, "apart")
    for more in ((), LAYOUT):
        _, _, checkpoint = train(bench, "apart", "apart", 0, more)
        got, config = exported(bench, "apart", checkpoint)
        same(bench, "apart on %d" % (4 if more else 1), given, got)
        alpha = config.get("alpha_pattern", {}).get("mlp.experts.gate_up_proj", 0)
        bench.tally.check("apart: alpha of blocks by rsLoRA", abs(alpha - 5 * 2 ** 0.5) < 1e-11 and config["use_rslora"], str(config))


def merged(bench, checkpoint):
    """What 20 steps have left: `export hf` has w + alpha / rank * b a, and nothing else is other than published."""
    got, config = exported(bench, "down", checkpoint)
    names = {"%slayers.%d.%s.lora_%s.weight" % ("base_model.model.model.", layer, module, end)
             for layer in range(2) for module in ("self_attn.q_proj", "mlp.experts", "block_sparse_moe.gate") for end in "AB"}
    bench.tally.check("down: PEFT's names", set(got) == names and config["rank_pattern"] == {}, str(sorted(set(got) ^ names)))
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("whole"), "--dtype", "f32")
    if not bench.tally.check("down: merged", export.status == 0 and set(got) == names, export.tail()):
        return
    before, after = (harness.read_safetensors(bench.path(folder, "model.safetensors")) for folder in ("mixtral", "whole"))
    module = "base_model.model.model.layers.%d.mlp.experts.lora_"
    for layer in range(2):
        (_, a), (_, b) = (got[module % layer + end + ".weight"] for end in "AB")
        for e in range(EXPERTS):
            name = "model.layers.%d.block_sparse_moe.experts.%d.w2.weight" % (layer, e)
            want = [x + 5 / RANK * sum(b[i // 64 * RANK * EXPERTS + k * EXPERTS + e] * a[(e * RANK + k) * 64 + i % 64] for k in range(RANK)) for i, x in enumerate(before[name][1])]
            error = harness.tensor_error(after[name][1], want)
            bench.tally.check("down: %s by the formula" % name, error <= 2.0 ** -23 and after[name][1] != before[name][1], "%.1e" % error)
    other = [n for n in before if bytes(before[n][1]) != bytes(after[n][1]) and not any(part in n for part in (".w2.", "q_proj", "moe.gate"))]
    bench.tally.check("down: all else is as published", set(before) == set(after) and not other, str(other))


def half(bench):
    """Up alone: the gate's rows have nothing, and the rank is that of one. Routers that are trained whole have the names of transformers 5."""
    words = settings("shared", of=("*.w3",)) + ('train.trained=["*.gate.weight"]',)
    outcome, _, checkpoint = bench.train(bench.path("mixtral.dz"), "--init", bench.path("mixtral"), steps=2, settings=words)
    got, config = exported(bench, "up alone", checkpoint)
    bench.tally.check("up alone: adapter_config.json", config.get("rank_pattern") == {} and config["target_parameters"] == ["mlp.experts.gate_up_proj"] and
                      config["modules_to_save"] == ["model.layers.%d.mlp.gate" % layer for layer in range(2)], str(config) + outcome.tail())
    own = harness.read_safetensors(os.path.join(harness.step_folder(checkpoint, 2), "model.safetensors"))
    for layer in range(2):
        a, b = (array.array("f", own["layers.%d.block_sparse_moe.w3.lora_%s.weight" % (layer, end)][1]) for end in "AB")
        want = [([list(a[(e * RANK + k) * 48:][:48]) for k in range(RANK)], [list(b[(e * 64 + i) * RANK:][:RANK]) for i in range(64)]) for e in range(EXPERTS)]
        zeros = got["base_model.model.model.layers.%d.mlp.experts.lora_B.weight" % layer][1][:64 * RANK * EXPERTS]
        bench.tally.check("up alone: numbers of layer %d" % layer, matrices(got, layer, "w3", 0, 64, "") == want and any(b) and not any(zeros))
        router = array.array("f", own["layers.%d.block_sparse_moe.gate.weight" % layer][1])
        bench.tally.check("up alone: router of layer %d" % layer, got["base_model.model.model.layers.%d.mlp.gate.weight" % layer][1] == router)
    os.rename(bench.path("out"), bench.path("up"))
    outcome, _, checkpoint = bench.train(bench.path("mixtral.dz"), "--init", bench.path("mixtral"), "--adapters", bench.path("up"), steps=0, settings=words)
    same(bench, "up alone, read again", got, exported(bench, "up alone again", checkpoint)[0])


def refusals(bench):
    def bad(change=lambda tensors: tensors, case="apart", **fields):
        peft_folder.write(bench.path("bad"), "mixtral", peft_folder.EXPERTS[case], change, **fields)
        return train(bench, "bad", case, 0)[0]

    def mixed(tensors):
        found = []
        for name, shape, values in tensors:
            if name.endswith("layers.1.mlp.experts.base_layer.lora_B.weight"):
                values = values[:]
                values[5 * 24 + 13] = 0.5
            found.append((name, shape, values))
        return found

    bench.refused("blocks that are none", bad(mixed), "Z0694", "another adapter: row 5 of base_model.model.model.layers.1.mlp.experts.base_layer.lora_B.weight has 0.5 in column 13")
    bench.refused("a rank of its own", bad(rank_pattern={"gate_up_proj": 5}), "Z0694", "another rank: that of `mlp.experts.gate_up_proj` is 5, and 6 here")
    bench.refused("an alpha of its own", bad(alpha_pattern={}), "Z0694", "another scale: `lora_alpha` of `mlp.experts.gate_up_proj` is 5, and that of rank 6 would be 7.07107")
    bench.refused("parameters that have none", bad(target_parameters=["gate_up_proj", "gate.weight"]), "Z0694",
                  "`target_parameters` names `gate.weight`, which has no adapter here", "`target_parameters` does not name `mlp.experts.down_proj`")
    bench.refused("modules' ranks", bad(rank_pattern={"q_proj": 2}), "Z0692", "`rank_pattern` asks for ranks that differ, of `q_proj`", "merge_and_unload")
    bench.refused("expressions", bad(alpha_pattern={".*(gate|down).*": 2}), "Z0692", "`alpha_pattern` asks for alphas that differ")
    bench.refused("a list", bad(rank_pattern=[2]), "Z0691", "`rank_pattern` is no object")
    words = settings("shared", of=("*.w3",)) + ('train.trained=["*.w1"]',)
    _, _, checkpoint = bench.train(bench.path("mixtral.dz"), "--init", bench.path("mixtral"), steps=0, settings=words)
    export = harness.zplan("export", "peft", checkpoint, "-o", bench.path("not"))
    bench.refused("experts trained whole", export, "Z0682", "PEFT saves no `model.layers.0.block_sparse_moe.experts.0.w1.weight`", "of which adapters alone are written", "zplan export hf")
    bench.refused("a text", bad(target_parameters="gate_up_proj"), "Z0691", "`target_parameters` is no list")


def main():
    if sys.argv[1:] not in ([], ["--update"]):
        sys.exit(__doc__)
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        bench = weights.Bench(tally, folder)
        families.write(bench.path("mixtral"), "mixtral")
        with open(weights.imported(bench, "mixtral"), encoding="utf-8") as file:
            bench.write("mixtral.dz", file.read().replace("balance = 0.001", "balance = 0"))  # PEFT adds no loss of the router to the one that it gives
        for case, fields in peft_folder.EXPERTS.items():
            peft_folder.write(bench.path(case), "mixtral", fields)
        cases = {case: {"base": bench.path("mixtral"), "adapters": bench.path(case), "streams": {}} for case in peft_folder.EXPERTS}
        want = peft_adapters.references(bench, bool(sys.argv[1:]), cases, os.path.join(HERE, "expected_peft_experts.json"))
        for case in ("shared", "modules"):
            losses(bench, want, case, 1)
            comes_back(bench, case, train(bench, case, case, 0)[2])
        losses(bench, want, "apart", 1)
        round_trip(bench)
        merged(bench, losses(bench, want, "down", peft_adapters.STEPS))
        half(bench)
        refusals(bench)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
