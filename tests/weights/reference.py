#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers says of folders of weights: for each loss and accuracy on the first samples of a text, and the tokens that greedy decoding adds
to prompts. Needs torch and transformers.

    reference.py REQUEST.json ANSWER.json

REQUEST: {"text": PATH, "sequence": S, "batch": N, "new": K, "prompts": [[token, ...], ...], "folders": {name: PATH}}
"""
import json
import sys

import torch
import transformers


def judged(model, text, sequence, batch):
    """(loss, share of tokens whose logit is the largest)"""
    tokens = torch.tensor([list(text[i * sequence:i * sequence + sequence + 1]) for i in range(batch)])
    logits, labels = model(tokens[:, :-1]).logits.double().flatten(0, 1), tokens[:, 1:].flatten()
    return torch.nn.functional.cross_entropy(logits, labels).item(), (logits.argmax(-1) == labels).double().mean().item()


def continued(model, prompt, new):
    """Without a cache, the whole prompt anew for every token."""
    tokens = list(prompt)
    for _ in range(new):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt):]


@torch.no_grad()
def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    with open(request["text"], "rb") as file:
        text = file.read()
    answer = {"torch": torch.__version__, "transformers": transformers.__version__, "models": {}}
    for name, folder in request["folders"].items():
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        loss, accuracy = judged(model, text, request["sequence"], request["batch"])
        answer["models"][name] = {"loss": loss, "accuracy": accuracy,
                                  "greedy": [continued(model, prompt, request["new"]) for prompt in request["prompts"]]}
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(json.dumps(answer, indent=1) + "\n")


main()
