#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""1-bit Adam and 1-bit LAMB of the small LLaMA in PyTorch, f64, on two simulated workers: as arXiv 2102.02888 and 2104.06069 have them, and with ZeRO 1.

    onebit.py MODEL.safetensors [OUT.json]

MODEL: of `zplan run llama.dz --steps 0 --set model.layers=1 --set precision="fp64"`.

Until step FREEZE all workers have LAMB (arXiv 1904.00962, algorithm 2: both moments with their corrections) by the mean gradient, and average the ratio
|x| / |update| of every tensor (c_avg of 1-bit LAMB's algorithm 2). Afterwards, with c = r c_avg:

  worker   m = b1 m + (1 - b1) g of its own;  sends C(m + e);  e = what C left out
  server   sends C(mean of those + E);  E = what C left out;  m = what it sent
  all      g~ = (m - b1 m') / (1 - b1);  u = b2 u + (1 - b2) g~ g~;  r = max sqrt(v / u), within bounds and a share of the r before;  x -= lr c (m / sqrt(v) + decay x)

v stays as it was at FREEZE, where u begins. 1-bit Adam is the same with c = 1 and nothing else of the last line. With ZeRO 1 nobody but the owner of an element has its moments and its exact weight x, so it cannot be that all ranks get
momentum. Linear as momentum is, what a worker sends are gradients, and an owner sends what its exact weights have and the ranks' weights w, by which gradients are taken, have not:

  worker   sends C((1 - b1) g + e)
  owner    m = b1 m + mean of those;  g~, u, r, x as above;  sends C(x - w);  w += what it sent

The order of the two bounds of r is that of its authors' implementation (DeepSpeed's OnebitLamb). zplan's own choices: C is the mean absolute value of 64 neighbouring elements of a tensor times their signs, 0 counts as positive;
no tensor's momentum is scaled to the size of the others', which one scale for all of them needs. Scales, e and E are f32 numbers. Moments have their corrections, and an average begins with the first ratio.
An element without variance takes no part; m / sqrt(v) keeps within the largest step of Adam. Clipping is by the root mean square of the workers' norms.

What it writes: of every row of RUNS losses, norms, with LAMB the factors r after the last step, and of every tensor the sum and the sum of squares.
tests/diff/onebit.py compares with expected_llama_onebit.json, which this wrote.
"""
import datetime
import json
import sys

import torch

import model
import reference
import settings

STEPS, FREEZE, WORKERS, LAYERS = 40, 8, 2, 1
BETA1, BETA2, EPS, DECAY = 0.9, 0.95, 1e-8, 0.1
LR = {"adamw": 1e-3, "lamb": 1e-2}
BLOCK = 64
# By the names that DeepSpeed's OnebitLamb has for them, and its values.
USUAL = {"coeff_beta": 0.9, "factor_max": 4.0, "factor_min": 0.5, "factor_threshold": 0.1}
OTHER = {"coeff_beta": 0.8, "factor_max": 1.5, "factor_min": 0.75, "factor_threshold": 0.2}
# Name: (stage of ZeRO, what is trained with, its options)
RUNS = {"adam": (0, "adamw", {}), "adam_zero1": (1, "adamw", {}), "lamb": (0, "lamb", USUAL), "lamb_zero1": (1, "lamb", USUAL),
        "lamb_options": (0, "lamb", OTHER), "lamb_zero1_options": (1, "lamb", OTHER)}
FURTHEST = max(1.0, (1 - BETA1) / (1 - BETA2) ** 0.5)


def f32(x):
    return x.float().double()


def compressed(x, there):
    """C(x), of the elements that are there; others do not count."""
    more = -x.numel() % BLOCK
    blocks, mask = (torch.nn.functional.pad(y.flatten().double(), (0, more)).reshape(-1, BLOCK) for y in (x, there))
    scale = f32((blocks.abs() * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1))
    sent = torch.where(blocks < 0, -scale, scale)
    return sent.flatten()[: x.numel()].reshape(x.shape)


class Tensor:
    """One parameter: its weights w, what the optimizer keeps of it, and its error."""

    def __init__(self, w, lr, options):
        self.w, self.lr, self.decay, self.options = w, lr, DECAY if w.dim() > 1 else 0, options
        self.m, self.v = torch.zeros_like(w), torch.zeros_like(w)
        self.average, self.factor, self.fresh = None, 1.0, None
        self.worker, self.server = [torch.zeros_like(w) for _ in range(WORKERS)], torch.zeros_like(w)

    def update_by(self, step, frozen_at):
        root = (1 - BETA2 ** frozen_at) ** 0.5
        return self.m / (1 - BETA1 ** step) / (self.v.sqrt() / root + EPS)

    def uncompressed(self, gradients, step):
        g, ratio = sum(gradients) / WORKERS, 1.0
        self.m = BETA1 * self.m + (1 - BETA1) * g
        self.v = BETA2 * self.v + (1 - BETA2) * g * g
        update = self.update_by(step, step) + self.decay * self.w
        if self.options:
            lengths, beta = (self.w.norm().item(), update.norm().item()), self.options["coeff_beta"]
            ratio = lengths[0] / lengths[1] if min(lengths) > 0 else 1.0
            self.average = ratio if self.average is None else beta * self.average + (1 - beta) * ratio
        self.w -= self.lr * ratio * update

    def follow(self, gradient, step):
        """The factor, by the variance that goes on with a gradient that was made of what was sent."""
        self.fresh = BETA2 * (self.v if self.fresh is None else self.fresh) + (1 - BETA2) * gradient * gradient
        roots = [u.sqrt() / (1 - BETA2 ** t) ** 0.5 + EPS for u, t in ((self.v, FREEZE), (self.fresh, step))]
        largest, move = (roots[0] / roots[1])[self.v > 0].max().item(), self.options["factor_threshold"]
        factor = min(self.options["factor_max"], max(self.options["factor_min"], largest))
        self.factor = min(self.factor * (1 + move), max(self.factor * (1 - move), factor))

    def moved(self, x, gradient, step):
        if self.options:
            self.follow(gradient, step)
        ratio = self.average * self.factor if self.options else 1.0
        update = self.update_by(step, FREEZE).clamp(-FURTHEST, FURTHEST) + self.decay * x
        return x - self.lr * ratio * update

    def workers_send(self, values, there):
        for r, x in enumerate(values):
            sent = compressed(x, there)
            self.worker[r] = f32(x - sent) * there
            yield sent

    def zero0(self, gradients, step):
        there, before = self.v > 0, self.m
        values = [BETA1 * self.m + (1 - BETA1) * g + e for g, e in zip(gradients, self.worker)]
        x = sum(self.workers_send(values, there)) / WORKERS + self.server
        sent = compressed(x, there)
        self.server = f32(x - sent) * there
        self.m = sent * there
        self.w.copy_(self.moved(self.w, (self.m - BETA1 * before) / (1 - BETA1), step))

    def zero1(self, gradients, step):
        there, all_of_it = self.v > 0, torch.ones_like(self.v, dtype=torch.bool)
        values = [f32((1 - BETA1) * g + e) for g, e in zip(gradients, self.worker)]
        mean = sum(self.workers_send(values, all_of_it)) / WORKERS * there
        self.m = (BETA1 * self.m + mean) * there
        x = self.moved(self.w + self.server, mean / (1 - BETA1), step) - self.w
        sent = compressed(x, all_of_it)
        self.server = f32(x - sent)
        self.w += sent


def train(weights, zero, optimizer, options):
    tensors = {name: Tensor(w, LR[optimizer], options) for name, w in weights.items()}
    losses, norms = [], []
    sizes = dict(settings.ARCHITECTURES["llama"], layers=LAYERS)
    share = settings.BATCH // WORKERS
    for step, (tokens, labels) in enumerate(reference.batches(STEPS), 1):
        each, loss = [], 0.0
        for r in range(WORKERS):
            mine = slice(r * share, (r + 1) * share)
            one, _, _ = reference.losses_of(model.llama(weights, tokens[mine], **sizes), labels[mine])
            each.append(torch.autograd.grad(one, list(weights.values())))
            loss += one.item() / WORKERS
        counted = [[sum(g) / WORKERS for g in zip(*each)]] if step <= FREEZE else each
        norm = (sum((g * g).sum() for gradients in counted for g in gradients) / len(counted)).sqrt().item()
        clip = min(1.0, settings.CLIP / (norm + 1e-6))
        losses.append(loss)
        norms.append(norm)
        with torch.no_grad():
            for i, tensor in enumerate(tensors.values()):
                update = tensor.uncompressed if step <= FREEZE else tensor.zero1 if zero else tensor.zero0
                update([gradients[i] * clip for gradients in each], step)
    return {"losses": losses, "grad_norms": norms, "factors": {name: t.factor for name, t in tensors.items() if options},
            "weights": {name: [t.w.sum().item(), (t.w * t.w).sum().item()] for name, t in tensors.items()}}


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    torch.set_num_threads(1)
    runs = {name: {"zero": zero, "optimizer": optimizer, "options": options, "lr": LR[optimizer],
                   **train(reference.load_weights(sys.argv[1], torch.float64), zero, optimizer, options)}
            for name, (zero, optimizer, options) in RUNS.items()}
    result = {"torch": torch.__version__, "date": datetime.date.today().isoformat(), "steps": STEPS, "freeze": FREEZE, "betas": [BETA1, BETA2], "eps": EPS,
              "weight_decay": DECAY, "layers": LAYERS, "runs": runs}
    text = json.dumps(result, indent=1) + "\n"
    if len(sys.argv) == 3:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
