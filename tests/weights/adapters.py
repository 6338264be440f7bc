#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters (LoRA) alongside published weights, and out of zplan in PEFT's format.

    adapters.py

The loss of the first step is the model's (committed in expected.json), also where the adapted weights are fused here and apart there. After 3 steps
`zplan export peft` has for every module what PEFT writes (huggingface.co/docs/peft/developer_guides/checkpoint: base_model.model.MODULE.lora_A.weight [r, in],
lora_B.weight [out, r]; adapter_config.json), and `zplan export hf` the weights W + alpha / r * B A of the published ones, by f64 sums here; nothing else of the model has changed
by a bit. On one rank and on 4. With --ema both are of the averages, with 16 bits of the f32 copies. A checkpoint of zplan starts a training with adapters, too; `sample` and `eval` look at both exports' model. What cannot be written is refused.
"""
import json
import os
import shutil
import sys

import families
import weights

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

RANK, ALPHA = 3, 5
F32 = 2.0 ** -23


def folder_tensors(folder):
    tensors = {}
    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            tensors.update(harness.read_safetensors(os.path.join(folder, name)))
    return tensors


def adapted(of):
    return ("train.adapt=lora(rank = %d, alpha = %d, of = %s)" % (RANK, ALPHA, json.dumps(of)), "train.optimizer=adamw(lr = 1e-2)")


def merged(base, a, b, fan_in):
    """W + alpha / r * B A; GPT-2 has W as [in, out]."""
    (shape, w), (_, a), (_, b) = base, a, b
    rows, cols = shape
    out = []
    for i in range(rows):
        for k in range(cols):
            o, n = (k, i) if fan_in else (i, k)
            inputs = rows if fan_in else cols
            out.append(w[i * cols + k] + ALPHA / RANK * sum(b[o * RANK + r] * a[r * inputs + n] for r in range(RANK)))
    return out


def turned(tensor):
    """Ours is [out, in], GPT-2's [in, out]."""
    (rows, cols), values = tensor
    return [cols, rows], [values[i * cols + k] for k in range(cols) for i in range(rows)]


def check_exports(bench, title, base, checkpoint, modules, fan_in, kind=None, words=()):
    """kind: adapters are these tensors of the optimizer's state, to the last bit of f32."""
    peft, whole = bench.path("peft"), bench.path("whole")
    for word, out in (("peft", peft), ("hf", whole)):
        outcome = harness.zplan("export", word, checkpoint, "-o", out, "--dtype", "f32", *words)
        if not bench.tally.check("%s: export %s" % (title, word), outcome.status == 0, outcome.tail()):
            return
    with open(os.path.join(peft, "adapter_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    targets = sorted({module.split(".", 3)[3] for module in modules})
    good = (config["peft_type"], config["r"], config["lora_alpha"], config["bias"], config["fan_in_fan_out"]) == ("LORA", RANK, ALPHA, "none", fan_in)
    bench.tally.check("%s: adapter_config.json" % title, good and sorted(config["target_modules"]) == targets and
                      config["base_model_name_or_path"] == os.path.realpath(base), str(config))
    adapters, before, after = folder_tensors(peft), folder_tensors(base), folder_tensors(whole)
    want = {"base_model.model.%s.lora_%s.weight" % (module, which) for module in modules for which in "AB"}
    bench.tally.check("%s: PEFT's names" % title, set(adapters) == want, "%s" % sorted(set(adapters) ^ want)[:4])
    worst, moved = 0.0, 0
    state, weight = ({}, {}) if not kind else (harness.read_safetensors(os.path.join(harness.step_folder(checkpoint, 3), file)) for file in ("optimizer.safetensors", "model.safetensors"))
    if kind == ".master":  # what is frozen is kept in 16 bits
        before.update({module + ".weight": turned(weight[module.split(".", 1)[1] + ".weight"]) for module in modules})
    for module in modules:
        a, b = (adapters.get("base_model.model.%s.lora_%s.weight" % (module, which)) for which in "AB")
        w = before[module + ".weight"]
        out, inputs = (w[0][1], w[0][0]) if fan_in else w[0]
        if not bench.tally.check("%s: shapes of %s" % (title, module), a and b and a[0] == [RANK, inputs] and b[0] == [out, RANK], "%s" % [a and a[0], b and b[0]]):
            return
        worst = max(worst, harness.tensor_error(after[module + ".weight"][1], merged(w, a, b, fan_in)))
        moved += any(x != 0 for x in b[1])
        if kind:
            for which, (_, got) in zip("AB", (a, b)):
                name = "%s.lora_%s.weight" % (module.split(".", 1)[1], which)
                own = state[name + kind][1]
                bench.tally.check("%s: %s is of %s" % (title, name, kind), sorted(own) == sorted(got) and sorted(got) != sorted(weight[name][1]))
    bench.tally.check("%s: merged weights by the formula" % title, worst <= F32 and moved == len(modules), "%.1e, %d of %d adapters moved" % (worst, moved, len(modules)))
    same = [name for name in before if name[:-7] not in modules and kind != ".master" and bytes(before[name][1]) != bytes(after[name][1])]
    bench.tally.check("%s: all else is as published" % title, not same and set(before) == set(after), str(same[:4]))
    shutil.rmtree(peft), shutil.rmtree(whole)


def round_trip(bench, name, of, projections, fan_in, layers, ranks=(1, 4)):
    model, want = weights.imported(bench, name), bench.references[name]["loss"]
    modules = ["%s.%d.%s" % (projections[0], layer, projection) for layer in range(layers) for projection in projections[1:]]
    for n in ranks:
        settings = adapted(of) + (("tensor=2", "pipeline=2", "data=1") if n > 1 else ())
        title = "adapters of %s on %d" % (name, n)
        outcome, loss, checkpoint = bench.train(model, "--init", bench.path(name), steps=3, ranks=n, settings=settings)
        bench.check_loss(title + ": the first loss is the model's", outcome, loss, want)
        if outcome.status == 0:
            check_exports(bench, title, bench.path(name), checkpoint, modules, fan_in)


def averages(bench):
    """What --ema asks for, and what 16 bits leave exact."""
    model = weights.imported(bench, "gpt2")
    modules = ["transformer.h.%d.attn.c_attn" % layer for layer in range(3)]
    for title, more, kind, words in (("averages", ("train.ema=0.5",), ".ema", ("--ema",)), ("bf16", ('precision="mixed_bf16"',), ".master", ())):
        outcome, _, checkpoint = bench.train(model, "--init", bench.path("gpt2"), steps=3, settings=adapted(["*c_attn.weight"]) + more)
        if bench.tally.check("%s: runs" % title, outcome.status == 0, outcome.tail()):
            check_exports(bench, title, bench.path("gpt2"), checkpoint, modules, True, kind, words)


def fused(bench):
    """q, k, v are one weight here, and three there; a is theirs three times, of b each has its rows."""
    config = dict(families.FAMILIES["llama"][0], num_hidden_layers=2, num_key_value_heads=6)
    families.FAMILIES["llama_mha"] = (config, families.llama(layers=2, kv=48), "F32", 1)
    families.write(bench.path("llama_mha"), "llama_mha")
    model = bench.model("fused", weights.FUSED)
    outcome, plain, _ = bench.train(model, "--init", bench.path("llama_mha"))
    names = [p["name"] for p in json.loads(harness.zplan("check", model, "--json").out)["parameter_list"] if len(p["shape"]) == 2]
    of = [name for name in names if "{}" in name and "linear" in name][:1]
    outcome, loss, checkpoint = bench.train(model, "--init", bench.path("llama_mha"), steps=3, settings=adapted(of))
    bench.tally.check("fused: the first loss is the model's", outcome.status == 0 and loss == plain, "%s %s %s %s" % (names, loss, plain, outcome.tail()))
    modules = ["model.layers.%d.self_attn.%s_proj" % (layer, which) for layer in range(2) for which in "qkv"]
    if outcome.status == 0:
        check_exports(bench, "fused", bench.path("llama_mha"), checkpoint, modules, False)
    own = bench.model("own", weights.OWN)
    names = [p["name"] for p in json.loads(harness.zplan("check", own, "--json").out)["parameter_list"]]
    outcome, _, checkpoint = bench.train(own, "--init", bench.path("gpt2"), steps=1, settings=adapted([n for n in names if n.endswith("q.weight")]))
    export = harness.zplan("export", "peft", checkpoint, "-o", bench.path("out"))
    bench.refused("q apart here and fused there", export, "Z0682", "it is made of several weights here", "zplan export hf")
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"))
    bench.tally.check("which export hf takes", export.status == 0, export.tail())
    shutil.rmtree(bench.path("out"), ignore_errors=True)


def checkpoints(bench):
    """From a checkpoint of zplan without adapters; what is refused."""
    model, want = weights.imported(bench, "gpt2"), bench.references["gpt2"]["loss"]
    settings = adapted(["*c_attn.weight"])
    _, _, plain = bench.train(model, "--init", bench.path("gpt2"), steps=0, checkpoint="ck-plain")
    outcome, loss, checkpoint = bench.train(model, "--init", plain, steps=2, settings=settings, checkpoint="ck-own")
    bench.check_loss("from a checkpoint of zplan", outcome, loss, want)
    with open(bench.path("beginning.txt"), "wb") as file, open(weights.TEXT, "rb") as text:
        file.write(text.read()[:families.BATCH * families.SEQUENCE + 1])
    looked, exported = [], harness.zplan("export", "hf", checkpoint, "-o", bench.path("whole"), "--like", bench.path("gpt2"))
    for words in ((checkpoint,), (bench.path("whole"), model)):
        outcome = harness.zplan("eval", *words, "--data", bench.path("beginning.txt"), "--json", "-o", bench.path("looked"))
        looked.append(json.loads(outcome.out)["loss"] if outcome.status == 0 else outcome.tail())
    good = exported.status == 0 and all(isinstance(x, float) for x in looked) and abs(looked[0] - looked[1]) < weights.BOUND * looked[0] and abs(looked[0] - want) > 1e-4
    bench.tally.check("eval of the adapters and of the merged model", good, "%s %s" % (looked, exported.tail()))
    left = sorted(os.listdir(bench.folder))
    export = lambda *words: harness.zplan("export", "peft", *words, cwd=bench.folder)
    bench.refused("no adapters", export(plain, "-o", "out"), "Z0682", "has no adapters", "help:", left=left)
    _, _, alongside = bench.train(model, "--init", bench.path("gpt2"), steps=1, settings=settings + ('train.trained=["ln_f.weight"]',), checkpoint="ck-plain")
    bench.refused("more than adapters", export(alongside, "-o", "out"), "Z0682", "PEFT saves no `transformer.ln_f.weight`", "`transformer.ln_f.bias` is frozen")
    for words in ((checkpoint,), ("-o", "out"), (checkpoint, "-o", "out", "--shard-size", "1MB")):
        outcome = export(*words)
        bench.tally.check("words %d" % len(words), outcome.status == 2, outcome.tail())


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        bench = weights.Bench(tally, folder)
        weights.references(bench, None, False)
        round_trip(bench, "gpt2", ["h.{}.attn.*", "*.mlp.c_fc.weight"], ("transformer.h", "attn.c_attn", "attn.c_proj", "mlp.c_fc"), True, 3)
        round_trip(bench, "llama", ["*.self_attn.*"], ("model.layers", *("self_attn.%s_proj" % which for which in "qkvo")), False, 3)
        round_trip(bench, "gpt_neox", ["*query_key_value.weight"], ("gpt_neox.layers", "attention.query_key_value"), False, 2, (1,))
        averages(bench)
        fused(bench)
        checkpoints(bench)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
