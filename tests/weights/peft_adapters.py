#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters that PEFT saved, read alongside published weights.

    peft_adapters.py [--update]

Folders as PEFT 0.21.2 saves them (peft_folder.py) alongside a GPT-2 (whose embedding is its head, too, and is adapted alone) and a LLaMA (embedding, dropout, rsLoRA, a norm that is trained whole): losses and
gradients' norms of 20 AdamW steps are PEFT's (committed in expected_peft.json; from a live run, too, where PYTHON names a Python with peft) to 1e-12 in f64, on one rank and in
two layouts, and to 1e-5 in f32; trained 0 steps and exported all tensors have the same bytes, and adapter_config.json says the same. `eval` and a weight that is fused here and apart
there read them likewise. What does not fit is told together, what is not read by its name, and nothing is left half-written. --update writes expected_peft.json from a live run.
"""
import array
import json
import os
import shutil
import sys

import families
import peft_folder
import weights

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

EXPECTED = os.path.join(HERE, "expected_peft.json")
STEPS, SEED, STREAMS = 20, 3, 0x4000  # the first stream of adapters' dropout (docs/guide/settings.md)
ADAMW = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
BOUNDS = {"fp64": 1e-12, "fp32": 1e-5}
OF = {"gpt2": ("wte", "*c_attn.weight", "*c_fc.weight"), "llama": ("embed_tokens", "*q_proj.weight", "*v_proj.weight", "*down_proj.weight")}
DROPPED = {"gpt2": {}, "llama": {"q_proj": STREAMS + 1, "v_proj": STREAMS + 2, "down_proj": STREAMS + 3}}  # the embedding has the number before
LAYOUTS = {"one rank": (), "tensor 2 x pipeline 2": ("tensor=2", "pipeline=2", "data=1"), "ZeRO 3": ("tensor=1", "pipeline=1", "data=2", "zero=3")}


def lora(base, **changed):
    fields = dict(peft_folder.FOLDERS[base], **changed)
    words = ["rank = %d" % fields["r"], "alpha = %g" % fields["lora_alpha"], "dropout = %g" % fields.get("lora_dropout", 0),
             "rslora = %s" % str(fields.get("use_rslora", False)).lower(), "of = %s" % json.dumps(fields.get("of", OF[base]))]
    return "train.adapt=lora(%s)" % ", ".join(words)


def settings_of(base, precision="fp64"):
    trained = {"llama": ('train.trained=["norm.weight"]',)}
    return (lora(base), adamw(), 'precision="%s"' % precision) + trained.get(base, ())


def adamw():
    return "train.optimizer=adamw(lr = %g, betas = [%g, %g], eps = %g, weight_decay = %g)" % (ADAMW["lr"], *ADAMW["betas"], ADAMW["eps"], ADAMW["weight_decay"])


def prepare(bench):
    for base in OF:
        families.write(bench.path(base), base)
        peft_folder.write(bench.path(base + "-peft"), base)
    return {base: weights.imported(bench, base) for base in OF}


def python_with_peft():
    python = os.environ.get("PYTHON")
    return python if python and harness.run([python, "-c", "import peft"]).status == 0 else None


def references(bench, update, cases=None, expected=EXPECTED):
    """What peft says of the cases, committed and, where there is one, live."""
    python, found = python_with_peft(), None
    cases = cases or {base: {"base": bench.path(base), "adapters": bench.path(base + "-peft"), "streams": DROPPED[base]} for base in OF}
    if python:
        bench.write("request.json", json.dumps({"text": weights.TEXT, "sequence": families.SEQUENCE, "batch": families.BATCH, "steps": STEPS, "seed": SEED,
                                                "optimizer": ADAMW, "cases": cases}))
        outcome = harness.run([python, os.path.join(HERE, "peft_reference.py"), bench.path("request.json"), bench.path("answer.json")])
        if bench.tally.check("peft", outcome.status == 0, outcome.tail()):
            with open(bench.path("answer.json"), encoding="utf-8") as file:
                found = json.load(file)
    if found and update:
        with open(expected, "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    with open(expected, encoding="utf-8") as file:
        committed = json.load(file)["cases"]
    for base in cases if found else ():
        got = found["cases"][base]
        errors = [harness.number_error(a, b) for key in ("losses", "grad_norms") for a, b in zip(got[key], committed[base][key])]
        bench.tally.check("peft %s: %s as committed" % (found["peft"], base), max(errors) < 1e-13, "%.2e" % max(errors))
        bench.tally.check("peft %s: saves what it read of %s" % (found["peft"], base), got["saved"] or base == "modules")
    return committed


def losses(bench, want, base, model, title, precision, settings):
    ranks = 1 if not settings else 2 if "zero=3" in settings else 4
    words = settings + settings_of(base, precision)  # and so below, which needs no other trainer then
    outcome, _, checkpoint = bench.train(model, "--init", bench.path(base), "--adapters", bench.path(base + "-peft"), steps=STEPS, ranks=ranks, settings=words)
    if not bench.tally.check("%s on %s in %s: runs" % (base, title, precision), outcome.status == 0, outcome.tail()):
        return checkpoint
    steps = harness.read_log(bench.path("log.jsonl"))[0]
    for key, name in (("losses", "loss"), ("grad_norms", "grad_norm")):
        error = max(harness.number_error(step[name], x) for step, x in zip(steps, want[base][key]))
        bound = BOUNDS[precision] * (1 if name == "loss" else 10)
        bench.tally.check("%s on %s in %s: %s of %d steps" % (base, title, precision, name, STEPS), len(steps) == STEPS and error <= bound, "%.2e" % error)
        bench.largest[precision, name] = max(bench.largest.get((precision, name), 0.0), error)
    return checkpoint


def round_trip(bench, base, model, settings):
    """0 steps and back: the same bytes, and the fields of the configuration."""
    one, out = bench.path(base + "-peft"), bench.path("out")
    outcome, _, checkpoint = bench.train(model, "--init", bench.path(base), "--adapters", one, steps=0, ranks=4 if settings else 1,
                                         settings=settings + settings_of(base))
    export = harness.zplan("export", "peft", checkpoint, "-o", out, "--dtype", "f32")
    if not bench.tally.check("%s: there and back" % base, outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
        return
    want, got = (harness.read_safetensors(os.path.join(folder, "adapter_model.safetensors")) for folder in (one, out))
    want = {name: tensor for name, tensor in want.items() if "base_layer" not in name}
    bench.tally.check("%s: the same bytes" % base, set(want) == set(got) and all(want[n][0] == got[n][0] and bytes(want[n][1]) == bytes(got[n][1]) for n in want),
                      "%s" % [n for n in sorted(set(want) | set(got)) if n not in want or n not in got or bytes(want[n][1]) != bytes(got[n][1])][:6])
    configs = []
    for folder in (one, out):
        with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
            configs.append(json.load(file))
    keys = ("modules_to_save", "r", "lora_alpha", "lora_dropout", "use_rslora", "fan_in_fan_out", "bias", "peft_type")
    bench.tally.check("%s: adapter_config.json" % base, all(configs[0][k] == configs[1].get(k) for k in keys), str(configs[1]))
    shutil.rmtree(out)


def eval_of(bench, *words):
    outcome = harness.zplan("eval", *words, "--data", bench.path("beginning.txt"), "--json", "-o", bench.path("looked"))
    return (json.loads(outcome.out)["loss"] if outcome.status == 0 else None), outcome


def looks(bench, want, models):
    """eval reads them, and the train block names them. What is a head, too, cannot be merged."""
    with open(bench.path("beginning.txt"), "wb") as file, open(weights.TEXT, "rb") as text:
        file.write(text.read()[:families.BATCH * families.SEQUENCE + 1])
    model = os.path.join(bench.folder, "adapted-gpt2.dz")
    with open(models["gpt2"], encoding="utf-8") as file:
        text = file.read()
    end = text.rindex("}")
    bench.write(os.path.basename(model), text[:end] + '  init = weights("gpt2", adapters = "gpt2-peft")\n  adapt = %s\n}\n' % lora("gpt2").split("=", 1)[1])
    got, outcome = eval_of(bench, bench.path("gpt2"), model, "--adapters", bench.path("gpt2-peft"))
    error = harness.number_error(got, want["gpt2"]["undropped"])
    bench.tally.check("eval with adapters", error <= BOUNDS["fp32"], "%s %s" % (got, outcome.tail()))
    outcome, loss, checkpoint = bench.train(model, steps=1)
    error = harness.number_error(loss, want["gpt2"]["losses"][0])
    bench.tally.check("init = weights(..., adapters = ...)", error <= BOUNDS["fp32"], "%s %s" % (loss, outcome.tail()))
    left = sorted(os.listdir(bench.folder))
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("whole"))
    bench.refused("an embedding that is the head, too", export, "Z0682", "the adapter of `wte` is of its embedding alone", "zplan export peft", left=left)


def merged(bench, want, models):
    """Embedding and products of a LLaMA: exported with the adapters added, the model without adapters has PEFT's loss of that with them."""
    words = LAYOUTS["tensor 2 x pipeline 2"] + settings_of("llama")
    outcome, _, checkpoint = bench.train(models["llama"], "--init", bench.path("llama"), "--adapters", bench.path("llama-peft"), steps=0, ranks=4, settings=words)
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("merged"), "--dtype", "f32")
    if bench.tally.check("merged", outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
        got, outcome = eval_of(bench, bench.path("merged"), models["llama"])
        error = harness.number_error(got, want["llama"]["undropped"])
        bench.tally.check("merged: PEFT's loss", error <= BOUNDS["fp32"], "%s %s" % (got, outcome.tail()))


def fused(bench):
    """q, k, v are one weight here and three modules there, with one a: as an export of such a model has them. Of three it is refused."""
    config = dict(families.FAMILIES["llama"][0], num_hidden_layers=2, num_key_value_heads=6)
    families.FAMILIES["llama_mha"] = (config, families.llama(layers=2, kv=48), "F32", 1)
    families.write(bench.path("llama_mha"), "llama_mha")
    fields = {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj", "v_proj"]}
    q_of = lambda name: name.replace("k_proj", "q_proj").replace("v_proj", "q_proj")

    def of_one(tensors):
        values = {name: numbers for name, _, numbers in tensors}
        return [(name, shape, values[q_of(name) if "lora_A" in name else name]) for name, shape, _ in tensors]

    model = bench.model("fused", weights.FUSED)
    names = [p["name"] for p in json.loads(harness.zplan("check", model, "--json").out)["parameter_list"] if len(p["shape"]) == 2]
    settings = ("train.adapt=lora(rank = 3, alpha = 5, of = %s)" % json.dumps([name for name in names if "{}" in name and "linear" in name][:1]),)
    peft_folder.write(bench.path("of-one"), "llama_mha", fields, of_one)
    outcome, _, checkpoint = bench.train(model, "--init", bench.path("llama_mha"), "--adapters", bench.path("of-one"), steps=0, settings=settings)
    export = harness.zplan("export", "peft", checkpoint, "-o", bench.path("out"), "--dtype", "f32")
    if bench.tally.check("fused: read and exported", outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
        want, got = (harness.read_safetensors(bench.path(folder, "adapter_model.safetensors")) for folder in ("of-one", "out"))
        bench.tally.check("fused: the same bytes", set(want) == set(got) and all(bytes(want[n][1]) == bytes(got[n][1]) for n in want))
        shutil.rmtree(bench.path("out"))
    peft_folder.write(bench.path("of-three"), "llama_mha", fields)
    outcome, _, _ = bench.train(model, "--init", bench.path("llama_mha"), "--adapters", bench.path("of-three"), steps=0, settings=settings)
    bench.refused("fused here, three adapters there", outcome, "Z0694", "k_proj.lora_A.weight is not", "and both are of one weight here")


def refusals(bench, models):
    def run(*words, settings=(lora("llama"),), adapters="bad", base="llama"):
        return harness.zplan("run", models["llama"], "--init", bench.path(base), "--adapters", bench.path(adapters), "--steps", 0, "-o", bench.path("bad-tree"), *words,
                             *(word for s in settings for word in ("--set", s)), "--", "--checkpoint", bench.path("ck-bad"))

    def bad(change=lambda tensors: tensors, **fields):
        peft_folder.write(bench.path("bad"), "llama", None, change, **fields)

    bad()
    left = sorted(os.listdir(bench.folder))
    for fields, words in (({"peft_type": "LOHA"}, "`peft_type` is \"LOHA\""), ({"use_dora": True}, "`use_dora` asks for DoRA"),
                          ({"bias": "lora_only"}, "`bias` is \"lora_only\""),
                          ({"rank_pattern": {"q_proj": 2}}, "`rank_pattern`")):
        bad(**fields)
        bench.refused("refused: %s" % sorted(fields)[0], run(), "Z0692", words, "merge_and_unload", left=left)
    for fields, words in (({"r": "3"}, "`r` is no whole number"), ({"lora_alpha": None}, "`lora_alpha` is no number"), ({"use_rslora": 1}, "`use_rslora` is neither"),
                          ({"modules_to_save": "norm"}, "`modules_to_save` is no list")):
        bad(**fields)
        bench.refused("refused: %s" % fields, run(), "Z0691", words, left=left)
    more = ("base_model.model.model.layers.1.mlp.up_proj.lora_A.weight", [3, 48], array.array("f", bytes(4 * 3 * 48)))

    def changed(tensors):
        kept = [t for t in tensors if not any(part in t[0] for part in ("layers.2.self_attn.q_proj", "base_layer", ".norm."))]
        return [(n, [6, 24], v) if n.endswith("layers.0.self_attn.q_proj.lora_A.weight") else (n, s, v) for n, s, v in kept] + [more]

    bad(changed, r=4, lora_alpha=9, use_rslora=False, target_modules=["q_proj", "down_proj", "embed_tokens"], target_parameters=["experts.gate_up_proj"])
    bench.refused("what does not fit, together", run(), "Z0694", "`r` is 4, and `rank` 3 here", "`lora_alpha` is 9, and `alpha` 5 here", "`use_rslora` is false",
                  "`target_modules` does not name model.layers.0.self_attn.v_proj", "`target_parameters` names `experts.gate_up_proj`, which has no adapter here", "missing: base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight [3, 48]",
                  "another shape: base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight is [6, 24]",
                  "too much: base_model.model.model.layers.1.mlp.up_proj.lora_A.weight [3, 48]", "missing: base_model.model.model.norm.weight [48]", left=left)
    bad(lambda tensors: [(n, s, array.array("f", bytes(4 * len(v)))) if "base_layer" in n else (n, s, v) for n, s, v in tensors])
    bench.refused("an embedding of another model", run(), "Z0694", "too much: base_model.model.model.embed_tokens.base_layer.weight [256, 48]", left=left)
    bench.refused("the model has none", run(settings=()), "Z0694", "has no adapters", "adapt = lora(rank = 3, alpha = 5", left=left)
    bench.refused("no folder", run(adapters="nowhere"), "Z0691", "there is no such folder", left=left)
    bench.refused("weights in place of adapters", run(adapters="llama"), "Z0691", "no adapters of PEFT", left=left)
    bench.refused("adapters in place of weights", run(base="bad"), "Z0692", "holds adapters, and no weights", "--adapters", left=left)
    os.rename(bench.path("bad", "adapter_config.json"), bench.path("bad", "gone.json"))
    bench.refused("no configuration", run(), "Z0691", "adapter_config.json", left=left)
    os.rename(bench.path("bad", "adapter_model.safetensors"), bench.path("bad", "adapter_model.bin"))
    bench.refused("pickled ones", run(), "Z0692", "adapter_model.bin, and no safetensors", left=left)
    outcome = harness.zplan("run", models["llama"], "--adapters", bench.path("llama-peft"), "--steps", 0, "-o", bench.path("bad-tree"), "--set", lora("llama"))
    bench.refused("no weights alongside them", outcome, "Z0691", "go with weights of a model", "--init FOLDER", left=left)
    _, _, checkpoint = bench.train(models["llama"], steps=0, settings=(lora("llama"),), checkpoint="ck-own")
    outcome = harness.zplan("run", models["llama"], "--init", checkpoint, "--adapters", bench.path("llama-peft"), "--steps", 0, "-o", bench.path("bad-tree"), "--set", lora("llama"))
    bench.refused("alongside a checkpoint of zplan", outcome, "Z0692", "go with weights of Hugging Face")


def main():
    if sys.argv[1:] not in ([], ["--update"]):
        sys.exit(__doc__)
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        bench = weights.Bench(tally, folder)
        bench.largest = {}
        models = prepare(bench)
        want = references(bench, bool(sys.argv[1:]))
        for base, model in models.items():
            for title, settings in LAYOUTS.items():
                if base == "llama" or title != "ZeRO 3":
                    losses(bench, want, base, model, title, "fp64", settings)
            round_trip(bench, base, model, LAYOUTS["tensor 2 x pipeline 2"] if base == "llama" else ())
        losses(bench, want, "llama", models["llama"], "one rank", "fp32", ())
        looks(bench, want, models)
        merged(bench, want, models)
        fused(bench)
        refusals(bench, models)
        for (precision, name), error in sorted(bench.largest.items()):
            print("largest error, %s, %s: %.2e" % (precision, name, error))
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
