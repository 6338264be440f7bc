#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of an adapter_config.json is compared, changes nothing, or is refused by its name.

    peft_keys.py

Alongside a LLaMA: what PEFT 0.21.2's LoraConfig has (FIELDS, held against the class where PYTHON names a Python with peft), each field with another value. Start values that PEFT takes
out of the model's weights when it loads (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) or that freeze a part (MiCA) are refused; the folder with everything set that changes nothing gives the
bytes that came in. A table of tokens that is the head as well and was trained as a module of its own is refused, unless PEFT tied it.
"""
import json
import os
import sys

import families
import peft_adapters
import peft_folder
import weights

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

REFUSED = {  # values that are refused (Z0692)
    "peft_type": ["ADALORA", "IA3"], "bias": ["all", "lora_only"], "use_dora": [True], "lora_bias": [True], "layer_replication": [[[0, 2], [1, 3]]],
    "trainable_token_indices": [[1, 2], {"embed_tokens": [1]}], "use_qalora": [True], "use_bdlora": [{"nblocks": 2}], "arrow_config": [{"top_k": 2}],
    "alora_invocation_tokens": [[5, 6]], "velora_config": [{"num_groups": 64}], "kasa_config": [{"beta": 1e-4}], "monteclora_config": [{"num_samples": 8}],
    "megatron_config": [{"tensor_model_parallel_size": 2}], "rank_pattern": [{"q_proj": 2}], "alpha_pattern": [{"q_proj": 2}],
    "init_lora_weights": ["pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "mica", "of tomorrow"],
}
COMPARED = {  # values that the train block says otherwise (Z0694)
    "r": [5], "lora_alpha": [9], "use_rslora": [False], "target_modules": [["q_proj"]], "target_parameters": [["experts.gate_up_proj"]], "modules_to_save": [["v_proj"]],
}
NOTHING = {  # all of them at once
    "task_type": "SEQ_CLS", "auto_mapping": {"base_model_class": "X"}, "base_model_name_or_path": "elsewhere", "revision": "main", "inference_mode": False,
    "runtime_config": {"ephemeral_gpu_offload": True}, "exclude_modules": ["lm_head"], "layers_to_transform": [0, 1, 2], "layers_pattern": "layers", "megatron_core": "x",
    "qalora_group_size": 8, "loftq_config": {"loftq_bits": 4}, "corda_config": {"corda_method": "kpm"}, "eva_config": {"rho": 2.0}, "lora_ga_config": {"scale": "unit"},
    "peft_version": "0.10.0", "ensure_weight_tying": True, "fan_in_fan_out": True, "lora_dropout": 0.5, "of_nobody": 3,
}


def folder(bench, **fields):
    peft_folder.write(bench.path("keys"), "llama", None, **fields)
    return bench.path("keys")


def live(bench):
    python = peft_adapters.python_with_peft()
    if not python:
        return
    outcome = harness.run([python, "-c", "import dataclasses, json, peft; print(json.dumps([f.name for f in dataclasses.fields(peft.LoraConfig)]))"])
    known = set(REFUSED) | set(COMPARED) | set(NOTHING)
    bench.tally.check("fields of LoraConfig", set(json.loads(outcome.out.splitlines()[-1])) == known - {"of_nobody"}, outcome.out[-300:])


def saved_tables(bench):
    """gpt2's table of tokens is its head: PEFT trains a copy of the table, and leaves the head as it was."""
    model = weights.imported(bench, "gpt2")
    for tied in (False, True):
        path = bench.path("saved-%s" % tied)
        fields = {"r": 3, "lora_alpha": 5, "fan_in_fan_out": True, "target_modules": ["c_attn"], "modules_to_save": ["wte"], "ensure_weight_tying": tied}
        peft_folder.write(path, "gpt2", fields)
        words = ('train.adapt=lora(rank = 3, alpha = 5, of = ["*c_attn.weight"])', 'train.trained=["wte"]')
        outcome, _, _ = bench.train(model, "--init", bench.path("gpt2"), "--adapters", path, steps=0, settings=words)
        if tied:
            bench.tally.check("a table that PEFT tied", outcome.status == 0, outcome.tail())
        else:
            bench.refused("a table that is the head as well", outcome, "Z0692", "transformer.wte.weight", "ensure_weight_tying")


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as path:
        bench = weights.Bench(tally, path)
        for base in ("llama", "gpt2"):
            families.write(bench.path(base), base)
        model, settings = weights.imported(bench, "llama"), peft_adapters.settings_of("llama")
        train = lambda adapters: bench.train(model, "--init", bench.path("llama"), "--adapters", adapters, steps=0, settings=settings)
        for code, table in (("Z0692", REFUSED), ("Z0694", COMPARED)):
            for field, values in table.items():
                for value in values:
                    outcome, _, _ = train(folder(bench, **{field: value}))
                    bench.refused("%s %s" % (field, value), outcome, code, "v_proj" if field == "modules_to_save" else "`%s`" % field)
        outcome, _, _ = train(folder(bench, of_tomorrow=[1], peft_version="0.99.0"))
        bench.refused("a field of a later version", outcome, "Z0692", "`of_tomorrow`")
        outcome, _, checkpoint = train(folder(bench, **NOTHING))
        export = harness.zplan("export", "peft", checkpoint, "-o", bench.path("out"), "--dtype", "f32")
        if tally.check("what changes nothing", outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
            want, got = (harness.read_safetensors(bench.path(name, "adapter_model.safetensors")) for name in ("keys", "out"))
            tally.check("what changes nothing: the same bytes", all(bytes(want[name][1]) == bytes(got[name][1]) for name in got))
            tally.check("a field of nobody is told", "`of_nobody`" in outcome.err, outcome.err[-300:])
        saved_tables(bench)
        live(bench)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
