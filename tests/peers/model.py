# SPDX-License-Identifier: Apache-2.0
"""GPT-2 as modules of PyTorch, with the names of zplan's checkpoints, and the samples of a text: what a program of DeepSpeed or of
fully_shard trains. tests/torch/model.py is the same function of a dictionary, which such programs cannot divide."""
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

def linears(**widths):
    return nn.ModuleDict({name: nn.Linear(*width) for name, width in widths.items()})


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = linears(c_attn=(width, 3 * width), c_proj=(width, width))
        self.mlp = linears(c_fc=(width, 4 * width), c_proj=(4 * width, width))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.attn["c_attn"](self.ln_1(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.attn["c_proj"](seen)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Its forward pass gives the mean loss of its samples. The head is the table of tokens."""

    def __init__(self, vocabulary, length, width, layers, heads):
        super().__init__()
        self.wte, self.wpe = nn.Parameter(torch.empty(vocabulary, width)), nn.Parameter(torch.empty(length, width))
        self.h = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens, labels):
        x = F.embedding(tokens, self.wte) + self.wpe[: tokens.shape[1]]
        for layer in self.h:
            x = layer(x)
        return F.cross_entropy((self.ln_f(x) @ self.wte.t()).flatten(0, 1), labels.flatten())


def published(path, heads):
    """The model of a checkpoint's weights: sizes are those of its tensors, and every tensor has a place."""
    weights = load_file(path)
    vocabulary, width = weights["wte"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("h."))
    model = GPT2(vocabulary, weights["wpe"].shape[0], width, layers, heads)
    model.load_state_dict(weights)
    return model


def groups(model, weight_decay):
    """Biases and norms do not decay: what the export says of its optimizer."""
    chosen = lambda matrices: [p for p in model.parameters() if (p.dim() > 1) == matrices]
    return [{"params": chosen(True), "weight_decay": weight_decay}, {"params": chosen(False), "weight_decay": 0.0}]


class Text:
    """Samples of a file of bytes in their order: sample w begins at byte w * length, its labels are the next bytes."""

    def __init__(self, path, length):
        with open(path, "rb") as file:
            self.bytes, self.length = torch.tensor(list(file.read())), length

    def samples(self, first, count):
        windows = (len(self.bytes) - 1) // self.length
        at = [(first + i) % windows * self.length for i in range(count)]
        return tuple(torch.stack([self.bytes[a + shift: a + shift + self.length] for a in at]) for shift in (0, 1))
