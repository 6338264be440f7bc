#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M in PyTorch on the CPU: times training steps for torch_ratio.sh.

    torch_gpt2.py STEPS [THREADS]

The same sizes and work as gpt2_bench.dz: 12 layers of 768, vocabulary 50304, 4 sequences of 64 tokens, f32, clipping,
AdamW. Prints `step N/M  loss L  ms T` a step and `peak RSS K kB` at the end.
"""
import math
import os
import resource
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "torch"))
import model  # noqa: E402

LAYERS, WIDTH, HEADS, VOCABULARY, BATCH, LENGTH = 12, 768, 12, 50304, 4, 64


def weights():
    torch.manual_seed(1337)
    residual = 0.02 / math.sqrt(2 * LAYERS)
    normal = {"wte": (VOCABULARY, WIDTH, 0.02), "wpe": (LENGTH, WIDTH, 0.02)}
    w = {}
    for layer in range(LAYERS):
        at = "h.%d." % layer
        normal.update({at + "attn.c_attn.weight": (3 * WIDTH, WIDTH, 0.02), at + "attn.c_proj.weight": (WIDTH, WIDTH, residual),
                       at + "mlp.c_fc.weight": (4 * WIDTH, WIDTH, 0.02), at + "mlp.c_proj.weight": (WIDTH, 4 * WIDTH, residual)})
        for name, size in (("attn.c_attn", 3), ("attn.c_proj", 1), ("mlp.c_fc", 4), ("mlp.c_proj", 1), ("ln_1", 1), ("ln_2", 1)):
            w[at + name + ".bias"] = torch.zeros(size * WIDTH)
        for name in ("ln_1", "ln_2"):
            w[at + name + ".weight"] = torch.ones(WIDTH)
    w.update({"ln_f.weight": torch.ones(WIDTH), "ln_f.bias": torch.zeros(WIDTH)})
    for name, (rows, columns, std) in normal.items():
        w[name] = torch.empty(rows, columns).normal_(std=std)
    return {name: value.requires_grad_() for name, value in w.items()}


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    steps = int(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) == 3 else 2)
    w = weights()
    optimizer = model.adamw(w, 1e-4, (0.9, 0.95), 1e-8, 0.1)
    for step in range(steps):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
        begin = time.monotonic()
        logits = model.gpt2(w, tokens[:, :-1], LAYERS, HEADS)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        value = loss.item()
        print("step %d/%d  loss %.6f  ms %.1f" % (step + 1, steps, value, (time.monotonic() - begin) * 1e3), flush=True)
    print("peak RSS %d kB" % resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main()
