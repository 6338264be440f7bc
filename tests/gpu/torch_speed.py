#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT in PyTorch on the GPU, for speed.sh: torch.compile, scaled_dot_product_attention, bf16 with f32 master weights, fused AdamW.

    torch_speed.py V S d LAYERS HEADS BATCH STEPS FIRST

Biases, GELU (tanh), learned positions, tied weights, clipping by norm: the work of a step of the packed trainers. Prints the median of
steps FIRST to STEPS, in milliseconds of CUDA events.
"""
import statistics
import sys

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.c_fc, self.c_proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (part.view(b, s, self.heads, d // self.heads).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(d, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocabulary, length, d, layers, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.h = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(d)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe.weight
        for layer in self.h:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def main():
    if len(sys.argv) != 9:
        sys.exit(__doc__)
    vocabulary, length, d, layers, heads, batch, steps, first = map(int, sys.argv[1:])
    torch.manual_seed(1)
    # Vocabularies padded as users of PyTorch do it: to a multiple of 128.
    padded = -(-vocabulary // 128) * 128
    model = Model(padded, length, d, layers, heads).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    compiled = torch.compile(model)
    times = []
    for step in range(1, steps + 1):
        tokens = torch.randint(vocabulary, (batch, length + 1), device="cuda")
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        if step >= first:
            times.append(begin.elapsed_time(end))
    print("loss %.4f\nmedian_ms %.3f" % (loss.item(), statistics.median(times)))


if __name__ == "__main__":
    main()
