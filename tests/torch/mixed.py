#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixed precision by hand in PyTorch: 16-bit weights, activations and gradients, f32 arithmetic, f32 master weights and moments, a loss
scale with fp16. Every operation of model.py is computed in f32 and its result rounded, and so is its gradient; nothing of torch.amp.

    mixed.py NAME DTYPE MODEL.safetensors [OUT.json]

NAME is gpt2 or llama, DTYPE bfloat16 or float16; the weights are f32, those of a run of zplan in fp32 of no steps. Prints what reference.py does.
"""
import datetime
import json
import sys

import torch
from torch.overrides import TorchFunctionMode

import model
import reference
import settings

SCALE = {"bfloat16": 1.0, "float16": 65536.0}
# Views round nothing; a kernel rounds once, at its end: scores, their softmax and mean squares are never stored.
VIEWS = {"chunk", "view", "transpose", "reshape", "t", "__getitem__", "repeat_interleave"}
KERNELS = ("causal_attention", "rms_norm", "rotate")


class Rounded(torch.autograd.Function):
    """The nearest number of the dtype; the gradient likewise."""

    @staticmethod
    def forward(context, x, dtype):
        context.dtype = dtype
        return x.to(dtype).float()

    @staticmethod
    def backward(context, gradient):
        return gradient.to(context.dtype).float(), None


class RoundResults(TorchFunctionMode):
    """Rounds the f32 results of every function that is called on tensors with gradients, but inside kernels."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.inside = dtype, False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        stored = not self.inside and isinstance(result, torch.Tensor) and result.requires_grad and name not in VIEWS
        return Rounded.apply(result, self.dtype) if stored else result


    def kernel(self, function):
        def rounded(*args):
            self.inside = True
            result = function(*args)
            self.inside = False
            return Rounded.apply(result, self.dtype)
        return rounded


def train(name, dtype, master):
    mode = RoundResults(dtype)
    for function in KERNELS:
        setattr(model, function, mode.kernel(getattr(model, function)))
    forward = {"gpt2": model.gpt2, "llama": model.llama}[name]
    optimizer = model.adamw(master, settings.LR, settings.BETAS, settings.EPS, settings.WEIGHT_DECAY)
    scale, losses, norms = SCALE[str(dtype).split(".")[1]], [], []
    for step, (tokens, labels) in enumerate(reference.batches()):
        for group in optimizer.param_groups:
            group["lr"] = reference.learning_rate(step)
        weights = {key: value.detach().to(dtype).float().requires_grad_() for key, value in master.items()}
        with mode:
            logits = forward(weights, tokens, **settings.ARCHITECTURES[name])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        (loss * scale).backward()
        for key, value in master.items():
            value.grad = weights[key].grad.to(dtype).float() / scale
        norms.append(float(torch.nn.utils.clip_grad_norm_(master.values(), settings.CLIP)))
        optimizer.step()
        losses.append(float(loss))
    return losses, norms


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in ("gpt2", "llama") or sys.argv[2] not in SCALE:
        sys.exit(__doc__)
    torch.set_num_threads(2)
    name, dtype = sys.argv[1], sys.argv[2]
    losses, norms = train(name, getattr(torch, dtype), reference.load_weights(sys.argv[3], torch.float32))
    result = {"torch": torch.__version__, "date": datetime.date.today().isoformat(), "model": name, "dtype": dtype, "losses": losses,
              "grad_norms": norms}
    text = json.dumps(result, indent=1) + "\n"
    if len(sys.argv) == 5:
        with open(sys.argv[4], "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
