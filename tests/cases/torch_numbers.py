# SPDX-License-Identifier: Apache-2.0
"""What torch.randn draws in f64 from a seed, and folders of PEFT made of it: the reference's losses belong to these numbers.

torch 2.x, CPU: a Mersenne Twister seeded by Knuth's recurrence; 53 bits of two outputs; Box and Muller in blocks of 16, halves of which are a pair.
"""
import json
import math
import os
import random
import struct

LAYERS, SHAPES = 3, {"q_proj": (32, 32), "v_proj": (16, 32)}
PREFIX = "base_model.model."
FIELDS = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.0, "bias": "none", "task_type": "CAUSAL_LM", "use_rslora": False,
          "use_dora": False, "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {}, "fan_in_fan_out": False, "inference_mode": True, "base_model_name_or_path": "hf",
          "init_lora_weights": True, "layers_to_transform": None, "layers_pattern": None}
# In the order in which they were drawn: name, other fields.
FOLDERS = (("plain", {}), ("rank_pattern", {"rank_pattern": {"layers.1.self_attn.q_proj": 8}}), ("alpha_pattern", {"alpha_pattern": {"layers.1.self_attn.q_proj": 32}}),
           ("rslora", {"use_rslora": True}), ("dora", {"use_dora": True}), ("some_layers", {"layers_to_transform": [0, 2]}), ("bias_lora", {"bias": "lora_only"}),
           ("head_saved", {"modules_to_save": ["lm_head"]}), ("pissa", {"init_lora_weights": "pissa"}), ("regex", {"target_modules": r".*self_attn\.(q|v)_proj"}),
           ("all_linear", {"target_modules": "all-linear"}), ("alpha_float", {"lora_alpha": 8.0}), ("adalora", {"peft_type": "ADALORA"}),
           ("loftq_none", {"corda_config": None, "eva_config": None, "trainable_token_indices": None, "qalora_group_size": 16, "exclude_modules": None, "lora_bias": False,
                           "megatron_config": None, "loftq_config": {}}),
           ("tokens", {"trainable_token_indices": [1, 2]}))


class Torch:
    def __init__(self, seed):
        state = [seed]
        for i in range(1, 624):
            state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xffffffff)
        self.twister = random.Random()
        self.twister.setstate((3, tuple(state) + (624,), None))

    def uniform(self):
        high, low = self.twister.getrandbits(32), self.twister.getrandbits(32)
        return ((high << 32 | low) & (1 << 53) - 1) / (1 << 53)

    def randn(self, rows, columns):
        count = rows * columns
        assert count % 16 == 0
        values = [self.uniform() for _ in range(count)]
        for start in range(0, count, 16):
            for i in range(start, start + 8):
                radius, angle = math.sqrt(-2 * math.log(1 - values[i])), 2 * math.pi * values[i + 8]
                values[i], values[i + 8] = radius * math.cos(angle), radius * math.sin(angle)
        return values


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        part = struct.pack("<%dd" % len(values), *values)
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_adapters(root):
    """[(name, folder)]"""
    torch, folders = Torch(4), []
    for name, fields in FOLDERS:
        config, tensors = dict(FIELDS, **fields), {}
        if name == "head_saved":
            tensors[PREFIX + "lm_head.weight"] = ([67, 32], [0.2 * x for x in torch.randn(67, 32)])
        if name == "dora":
            tensors.update({PREFIX + "model.layers.%d.self_attn.%s.lora_magnitude_vector" % (i, p): ([SHAPES[p][0]], [1.0] * SHAPES[p][0]) for i in range(LAYERS) for p in SHAPES})
        for i in config["layers_to_transform"] or range(LAYERS):
            for p, (rows, columns) in SHAPES.items():
                rank = 8 if name == "rank_pattern" and (i, p) == (1, "q_proj") else 4
                place = PREFIX + "model.layers.%d.self_attn.%s.lora_%%s.weight" % (i, p)
                tensors[place % "A"] = ([rank, columns], [0.2 * x for x in torch.randn(rank, columns)])
                tensors[place % "B"] = ([rows, rank], [0.2 * x for x in torch.randn(rows, rank)])
        folder = os.path.join(root, name)
        os.makedirs(folder)
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        write_safetensors(os.path.join(folder, "adapter_model.safetensors"), tensors)
        folders.append((name, folder))
    return folders
