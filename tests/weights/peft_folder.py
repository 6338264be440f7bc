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
FOLDERS = {  # base, fields; an embedding of LLaMA's name is saved whole beside its adapter
    "gpt2": {"r": 3, "lora_alpha": 5, "fan_in_fan_out": True, "target_modules": ["c_attn", "mlp.c_fc", "wte"]},
    "llama": {"r": 3, "lora_alpha": 5, "lora_dropout": 0.25, "use_rslora": True, "target_modules": ["q_proj", "v_proj", "down_proj", "embed_tokens"],
              "modules_to_save": ["model.norm"]},
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


def tensors(base, fields, scale=0.3):
    """[(name, shape, values)]"""
    found, rank = [], fields["r"]
    for module, inputs, outputs in adapted(base, fields):
        name = "base_model.model." + module
        ends = ("lora_embedding_A", "lora_embedding_B") if module.endswith(EMBEDDINGS) else ("lora_A.weight", "lora_B.weight")
        for end, shape in zip(ends, ([rank, inputs], [outputs, rank])):
            values = families.values(base + "adapted", "%s.%s" % (name, end), shape)
            found.append(("%s.%s" % (name, end), shape, type(values)("f", (scale * x for x in values))))
        if module.endswith(SAVED_WHOLE):
            shape = [inputs, outputs]
            found.append((name + ".base_layer.weight", shape, families.values(base, module + ".weight", shape)))
    for name, shape in families.FAMILIES[base][1]:
        if name.rsplit(".", 1)[0].endswith(tuple(fields.get("modules_to_save") or ())):
            found.append(("base_model.model." + name, shape, families.values(base + "adapted", name, shape)))
    return found


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
