#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers says of folders of BERT, T5 and ViT: losses on arrays. Needs torch and transformers.

    encoder_reference.py REQUEST.json ANSWER.json

REQUEST: {"arrays": {input: [sample, ...]}, "folders": {name: PATH}}. A label of -1 is none.
"""
import json
import sys

import torch
import transformers


def labels(arrays, name):
    ids = torch.tensor(arrays[name])
    return ids.masked_fill(ids < 0, -100)


def mask(arrays, width):
    return (torch.arange(width) < torch.tensor(arrays["lengths"])[:, None]).long()


def losses(model, arrays):
    """Each loss by zplan's name."""
    name = type(model).__name__
    cross_entropy = torch.nn.functional.cross_entropy
    if name.startswith(("T5", "MT5")):
        source = torch.tensor(arrays["source"])
        logits = model(input_ids=source, attention_mask=mask(arrays, source.shape[1]), decoder_input_ids=torch.tensor(arrays["target"])).logits
        return {"loss": cross_entropy(logits.flatten(0, 1), labels(arrays, "target_labels").flatten())}
    if name.startswith("ViT"):
        images = torch.tensor(arrays["images"], dtype=torch.float64).reshape(-1, 3, 12, 12) / 255
        return {"loss": cross_entropy(model(pixel_values=images).logits, torch.tensor(arrays["picture_labels"]))}
    tokens, types = torch.tensor(arrays["tokens"]), torch.tensor(arrays["types"])
    out = model(input_ids=tokens, token_type_ids=types, attention_mask=mask(arrays, tokens.shape[1]))
    if name.endswith("ForQuestionAnswering"):  # it does not keep its own mask off the logits; the loss is over the sample alone
        shut = mask(arrays, tokens.shape[1]) == 0
        return {"start_loss": cross_entropy(out.start_logits.masked_fill(shut, -1e30), labels(arrays, "start")),
                "end_loss": cross_entropy(out.end_logits.masked_fill(shut, -1e30), labels(arrays, "end"))}
    if name.endswith("ForMaskedLM"):
        return {"loss": cross_entropy(out.logits.flatten(0, 1), labels(arrays, "labels").flatten())}
    return {"masked_loss": cross_entropy(out.prediction_logits.flatten(0, 1), labels(arrays, "labels").flatten()),
            "next_loss": cross_entropy(out.seq_relationship_logits, torch.tensor(arrays["random_next"]))}


@torch.no_grad()
def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    answer = {"torch": torch.__version__, "transformers": transformers.__version__, "models": {}}
    for name, folder in request["folders"].items():
        with open(folder + "/config.json", encoding="utf-8") as file:
            kind = json.load(file)["architectures"][0]
        model = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float64).eval()
        answer["models"][name] = {loss: value.item() for loss, value in losses(model, request["arrays"]).items()}
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(json.dumps(answer, indent=1) + "\n")


main()
