#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 of one layer in PyTorch with updates that come a step late (arXiv 2101.06840, section 5.2), in f64.

    delayed.py MODEL.safetensors [OUT.json]

MODEL: of `zplan run gpt2.dz --steps 0 --set model.layers=1 --set precision="fp64"`.

There is one set of weights. The first AFTER steps are ordinary. From then on the gradients of a step are taken at the weights that are there, then the
update of the step before is made, and this one's waits; the last one is made at the end. Clipping, learning rate and the number of the update are those of
the step that made the gradients. Weights, tokens and settings as in reference.py; `weights` in what it writes: of every tensor the sum and the sum of squares;
`ordinary`: the losses of the training whose updates are never late.
tests/diff/delayed.py compares with expected_gpt2_delayed.json, which this wrote.
"""
import datetime
import json
import sys

import torch

import model
import reference
import settings

AFTER, LAYERS = 6, 1


def train(weights, after):
    optimizer = model.adamw(weights, settings.LR, settings.BETAS, settings.EPS, settings.WEIGHT_DECAY)
    losses, norms, waiting = [], [], None

    def update(late):
        rate, gradients = late
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, gradient in gradients.items():
            weights[name].grad = gradient
        optimizer.step()

    for step, (tokens, labels) in enumerate(reference.batches()):
        optimizer.zero_grad()
        loss, _, _ = reference.losses_of(model.gpt2(weights, tokens, layers=LAYERS, heads=settings.ARCHITECTURES["gpt2"]["heads"]), labels)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(weights.values(), settings.CLIP)))
        losses.append(loss.item())
        made = (reference.learning_rate(step), {name: w.grad.clone() for name, w in weights.items()})
        if waiting:
            update(waiting)
        waiting = made if step >= after else None
        if not waiting:
            update(made)
    if waiting:
        update(waiting)
    return losses, norms


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    torch.set_num_threads(2)
    ordinary, _ = train(reference.load_weights(sys.argv[1], torch.float64), settings.STEPS)
    weights = reference.load_weights(sys.argv[1], torch.float64)
    losses, norms = train(weights, AFTER)
    result = {"torch": torch.__version__, "date": datetime.date.today().isoformat(), "after": AFTER, "losses": losses, "grad_norms": norms, "ordinary": ordinary,
              "weights": {name: [w.sum().item(), (w * w).sum().item()] for name, w in weights.items()}}
    text = json.dumps(result, indent=1) + "\n"
    if len(sys.argv) == 3:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
