#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers makes of every change of config_keys_table.py: parameters, the loss of two samples longer than any window in f64 with weights drawn by
name and shape, or why it makes no model of it. Needs torch and transformers.

    config_keys_reference.py ANSWER.json [FOLDER [FAMILY]]      FOLDER, unless it is "": takes checkpoints of decoders whose loss is another than the unchanged one's
"""
import json
import os
import sys
import warnings
import zlib

import numpy
import torch
import transformers

import config_keys_table as table

SEQUENCE, BATCH, MOST = 24, 2, 500000


def tensor_of(name, shape):
    """By name and shape: what two models have in common has the same values."""
    draw = torch.Generator().manual_seed(zlib.crc32(("%s %s" % (name, list(shape))).encode()))
    return torch.randn(shape, generator=draw, dtype=torch.float64) * 0.3


def fill(model):
    for name, parameter in model.named_parameters():
        parameter.data = tensor_of(name, parameter.shape)
    for name, buffer in model.named_buffers():
        if "e_score_correction_bias" in name:
            buffer.data = tensor_of(name, buffer.shape)
    model.tie_weights()


def inputs_of(family, config):
    draw = torch.Generator().manual_seed(11)
    ids = torch.randint(97, 123, (BATCH, SEQUENCE + 1), generator=draw)
    if family == "vit":
        return {"pixel_values": torch.randn((BATCH, config.num_channels, config.image_size, config.image_size), generator=draw, dtype=torch.float64)}, None
    if family in ("bert", "roberta"):
        return {"input_ids": ids[:, :-1], "token_type_ids": ids[:, :-1] % 2}, ids[:, 1:]
    if family in ("t5", "mt5"):
        return {"input_ids": ids[:, :-1], "decoder_input_ids": ids.flip(1)[:, :-1]}, ids[:, 1:]
    return {"input_ids": ids[:, :-1]}, ids[:, 1:]


def counted(model):
    """Tied ones once; DeepSeek's biases of the choice are parameters of zplan."""
    model.tie_weights()
    held = {id(p): p.numel() for p in model.parameters()}
    return sum(held.values()) + sum(b.numel() for name, b in model.named_buffers() if "e_score_correction_bias" in name)


@torch.no_grad()
def judge(family, config_dict):
    config = transformers.models.auto.configuration_auto.CONFIG_MAPPING[family].from_dict(json.loads(json.dumps(config_dict)))
    config._attn_implementation = config._experts_implementation = "eager"
    config.dtype = None
    make = getattr(transformers, table.FAMILIES[family]["architectures"][0])
    with torch.device("meta"):
        parameters = counted(make(config))
    if parameters > MOST:  # a size that is missing has a published model's value
        return None, {"parameters": parameters}
    model = make(config).double().eval()
    fill(model)
    inputs, labels = inputs_of(family, config)
    logits = model(**inputs).logits.double()
    labels = torch.zeros(BATCH, dtype=torch.long) if labels is None else labels
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)).item()
    return model, {"parameters": counted(model), "loss": loss}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    if sys.argv[2:3] not in ([], [""]):
        ids = inputs_of("llama", None)
        os.makedirs(sys.argv[2], exist_ok=True)
        for name, values in (("tokens", ids[0]["input_ids"]), ("labels", ids[1])):
            numpy.save(os.path.join(sys.argv[2], name + ".npy"), values.numpy().astype("int32"))
    answer = {"transformers": transformers.__version__, "families": {}}
    for family, base in table.FAMILIES.items():
        if sys.argv[3:] not in ([], [family]):
            continue
        _, unchanged = judge(family, base)
        rows = answer["families"][family] = {"unchanged": unchanged}
        for index, change in enumerate(table.changes(family)):
            config = table.applied(family, change)
            try:
                model, found = judge(family, config)
                if sys.argv[2:3] not in ([], [""]) and family not in ("bert", "roberta", "t5", "mt5", "vit") and found.get("loss", unchanged["loss"]) != unchanged["loss"]:
                    folder = os.path.join(sys.argv[2], family, "%04d" % index)
                    model.save_pretrained(folder)
                    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                        json.dump(config, file)
            except Exception as error:  # whatever it says of it, it makes no model
                found = {"error": type(error).__name__}
            if found.get("loss") != found.get("loss"):
                found = {"error": "not a number"}
            rows[table.name_of(change)] = found
        print(family, len(rows), flush=True)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("{\"transformers\": %s, \"families\": {\n" % json.dumps(answer["transformers"]))
        for i, (family, rows) in enumerate(answer["families"].items()):
            file.write("%s%s: {\n" % (",\n" if i else "", json.dumps(family)))
            file.write(",\n".join(" %s: %s" % (json.dumps(name), json.dumps(row)) for name, row in rows.items()) + "}")
        file.write("}}\n")


main()
