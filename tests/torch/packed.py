# SPDX-License-Identifier: Apache-2.0
"""A LLaMA over samples of several documents as a function of its parameters: a mask in blocks for PyTorch's attention, and positions that begin again with every
document, learned and rotary ones alike, as collators without padding have them."""
import torch
import torch.nn.functional as F

import model


def rotate(x, positions, theta=10000.0):
    """Rotary positions, "half" style, by number. x: [B, H, S, hd], positions: [B, S]."""
    size = x.shape[-1]
    frequency = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = positions[:, None, :, None].to(torch.float64) * frequency
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def document_attention(q, k, v, documents):
    """Causal, within documents; what is of none sees itself here, and gives zeros."""
    length = documents.shape[1]
    seen = (documents[:, :, None] == documents[:, None]) & torch.ones(length, length, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None]) * (documents >= 0)[:, None, :, None]


def packed(w, tokens, documents, positions, layers, heads, kv_heads):
    x = F.embedding(tokens, w["embed_tokens"]) + F.embedding(positions, w["embed_positions"])
    for layer in range(layers):
        def linear(name, y, at="layers.%d." % layer):
            return F.linear(y, w[at + name + ".weight"])

        y = model.rms_norm(x, w["layers.%d.input_layernorm.weight" % layer])
        q = rotate(model.to_heads(linear("self_attn.q_proj", y), heads), positions)
        k, v = (model.to_heads(linear("self_attn.%s_proj" % name, y), kv_heads) for name in "kv")
        k, v = (part.repeat_interleave(heads // kv_heads, 1) for part in (rotate(k, positions), v))
        x = x + linear("self_attn.o_proj", model.from_heads(document_attention(q, k, v, documents)))
        y = model.rms_norm(x, w["layers.%d.post_attention_layernorm.weight" % layer])
        x = x + linear("mlp.down_proj", F.silu(linear("mlp.gate_proj", y)) * linear("mlp.up_proj", y))
    return F.linear(model.rms_norm(x, w["norm.weight"]), w["embed_tokens"])
