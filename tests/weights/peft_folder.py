# SPDX-License-Identifier: Apache-2.0
"""Folders of adapters as PEFT 0.21.2 saves them (adapter_config.json, adapter_model.safetensors): names, shapes and fields written down here from
its files, values drawn from a seed. Standard library only."""
import json
import os

import families

# What save_pretrained wrote; what is empty or null says nothing and is left in.
CONFIG = {"alora_invocation_tokens": None, "alpha_pattern": {}, "arrow_config": None, "auto_mapping": None, "base_model_name_or_path": None,
          "bias": "none", "corda_config": None, "ensure_weight_tying": False, "eva_config": None, "exclude_modules": None, "fan_in_fan_out": False,
          "inference_mode": True, "init_lora_weights": True, "kasa_config": None, "layer_replication": None, "layers_pattern": None,
          "layers_to_transform": None, "loftq_config": {}, "lora_alpha": 8, "lora_bias": False, "lora_dropout": 0.0, "lora_ga_config": None,
          "megatron_config": None, "megatron_core": "megatron.core", "modules_to_save": None, "monteclora_config": None, "peft_type": "LORA",
          "peft_version": "0.21.2", "qalora_group_size": 16, "r": 8, "rank_pattern": {}, "revision": None, "target_modules": [],
          "target_parameters": None, "task_type": "CAUSAL_LM", "trainable_token_indices": None, "use_bdlora": None, "use_dora": False,
          "use_qalora": False, "use_rslora": False, "velora_config": None}
FOLDERS = {  # base, fields; an embedding of LLaMA's name is saved whole alongside its adapter
    "gpt2": {"r": 3, "lora_alpha": 5, "fan_in_fan_out": True, "target_modules": ["c_attn", "mlp.c_fc", "wte"]},
    "llama": {"r": 3, "lora_alpha": 5, "lora_dropout": 0.25, "use_rslora": True, "target_modules": ["q_proj", "v_proj", "down_proj", "embed_tokens"],
              "modules_to_save": ["model.norm"]},
}
EXPERTS = {  # alongside a Mixtral. Modules of experts are what PEFT had before transformers 5; r of a parameter twice the other: gate and up have an a each
    "shared": {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj"], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]},
    "apart": {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": ["q_proj"], "target_parameters": ["gate_up_proj", "experts.down_proj"],
              "rank_pattern": {".*\\.gate_up_proj": 6}, "alpha_pattern": {".*\\.gate_up_proj": 5 * 2 ** 0.5}},
    "modules": {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "w1", "w2", "w3"]},
    "down": {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj"], "target_parameters": ["experts.down_proj", "gate.weight"]},
}
SAVED_WHOLE = ("embed_tokens", "lm_head")
EMBEDDINGS = ("wte", "embed_tokens")


def adapted(base, fields):
    """[(module, inputs, outputs)] of a family's tensors, in their order."""
    found = []
    for name, shape in families.FAMILIES[base][1]:
        module = name.removesuffix(".weight")
        if len(shape) == 2 and any(("." + module).endswith("." + target) for target in fields["target_modules"]):
            turned = fields.get("fan_in_fan_out", False) or module.endswith(EMBEDDINGS)
            found.append((module, *(shape if turned else shape[::-1])))
    return found


def drawn(base, name, shape, scale):
    values = families.values(base + "adapted", name, shape)
    return name, shape, type(values)("f", (scale * x for x in values))


def parameters(base, fields, scale):
    """Of the parameters that hold all experts: lora_A [experts * r, inputs], lora_B [outputs, r * experts], and of a router; the outer one of two has the inner one's module inside."""
    found, targets, config = [], [target.rsplit(".", 1)[-1] for target in fields.get("target_parameters") or ()], families.FAMILIES[base][0]
    experts, d, ff = (config.get(key) for key in ("num_local_experts", "hidden_size", "intermediate_size"))
    for layer in range(config.get("num_hidden_layers", 0)):
        mlp = "base_model.model.model.layers.%d.mlp." % layer
        for target, count, inputs, outputs in (("gate_up_proj", experts, d, 2 * (ff or 0)), ("down_proj", experts, ff, d), ("weight", 1, d, experts)):
            if target not in targets:
                continue
            inner = ".base_layer" if target == "gate_up_proj" and "down_proj" in targets else ""
            ranks = count * next((rank for key, rank in fields.get("rank_pattern", {}).items() if key.endswith(target)), fields["r"])
            module = mlp + ("gate" if target == "weight" else "experts" + inner)
            found.append(drawn(base, module + ".lora_A.weight", [ranks, inputs], scale))
            name, shape, values = drawn(base, module + ".lora_B.weight", [outputs, ranks], scale)
            if ranks > count * fields["r"]:  # the gate's rows have the first half of the ranks, and up's the second one
                values = type(values)("f", (x if (i // ranks >= outputs // 2) == (i % ranks >= ranks // 2) else 0 for i, x in enumerate(values)))
            found.append((name, shape, values))
    return found


def tensors(base, fields, scale=0.3):
    """[(name, shape, values)]"""
    found, rank = [], fields["r"]
    for module, inputs, outputs in adapted(base, fields):
        name = "base_model.model." + module
        ends = ("lora_embedding_A", "lora_embedding_B") if module.endswith(EMBEDDINGS) else ("lora_A.weight", "lora_B.weight")
        for end, shape in zip(ends, ([rank, inputs], [outputs, rank])):
            found.append(drawn(base, "%s.%s" % (name, end), shape, scale))
        if module.endswith(SAVED_WHOLE):
            shape = [inputs, outputs]
            found.append((name + ".base_layer.weight", shape, families.values(base, module + ".weight", shape)))
    for name, shape in families.FAMILIES[base][1]:
        if name.rsplit(".", 1)[0].endswith(tuple(fields.get("modules_to_save") or ())):
            found.append(("base_model.model." + name, shape, families.values(base + "adapted", name, shape)))
    return found + parameters(base, fields, scale)


def write(folder, base, fields=None, change=lambda tensors: tensors, **more):
    """A folder as save_pretrained makes it. Returns it."""
    fields = dict(FOLDERS[base] if fields is None else fields)
    config = {**CONFIG, **fields, **more}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(config, indent=2, sort_keys=True))
    files = sorted(change(tensors(base, fields)))
    families.write_safetensors(os.path.join(folder, "adapter_model.safetensors"),
                               [(name, "F32", shape, values.tobytes()) for name, shape, values in files])
    return folder
