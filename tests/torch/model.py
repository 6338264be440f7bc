"""GPT-2 and LLaMA in PyTorch, written for comparison: parameters are a dictionary with the names of zplan's checkpoints, the
forward pass is a function of it. Attention is spelled out, scores and all."""
import math

import torch
import torch.nn.functional as F

LAYER_NORM_EPS = RMS_NORM_EPS = 1e-5


def causal_attention(q, k, v):
    """[B, H, S, hd] each; scores are materialised."""
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


def to_heads(x, heads):
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def from_heads(x):
    batch, heads, length, size = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * size)


# ---- GPT-2 ----

def gpt2_layer(w, at, x, heads):
    def linear(name, y):
        return F.linear(y, w[at + name + ".weight"], w[at + name + ".bias"])

    def norm(name, y):
        return F.layer_norm(y, y.shape[-1:], w[at + name + ".weight"], w[at + name + ".bias"], LAYER_NORM_EPS)

    q, k, v = linear("attn.c_attn", norm("ln_1", x)).chunk(3, -1)
    y = from_heads(causal_attention(to_heads(q, heads), to_heads(k, heads), to_heads(v, heads)))
    x = x + linear("attn.c_proj", y)
    return x + linear("mlp.c_proj", F.gelu(linear("mlp.c_fc", norm("ln_2", x)), approximate="tanh"))


def gpt2(w, tokens, layers, heads):
    """Logits; the output projection is the embedding."""
    x = F.embedding(tokens, w["wte"]) + w["wpe"][: tokens.shape[1]]
    for layer in range(layers):
        x = gpt2_layer(w, "h.%d." % layer, x, heads)
    x = F.layer_norm(x, x.shape[-1:], w["ln_f.weight"], w["ln_f.bias"], LAYER_NORM_EPS)
    return x @ w["wte"].t()


# ---- LLaMA ----

def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + RMS_NORM_EPS) * weight


def rotate(x, theta):
    """Rotary positions, "half" style: element i turns with element i + hd/2. x: [B, H, S, hd]."""
    size, length = x.shape[-1], x.shape[-2]
    frequency = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def llama_layer(w, at, x, heads, kv_heads, theta):
    def linear(name, y):
        return F.linear(y, w[at + name + ".weight"])

    y = rms_norm(x, w[at + "input_layernorm.weight"])
    q = rotate(to_heads(linear("self_attn.q_proj", y), heads), theta)
    k = rotate(to_heads(linear("self_attn.k_proj", y), kv_heads), theta)
    v = to_heads(linear("self_attn.v_proj", y), kv_heads)
    repeat = heads // kv_heads  # query head h reads key/value head h / repeat
    y = causal_attention(q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1))
    x = x + linear("self_attn.o_proj", from_heads(y))
    y = rms_norm(x, w[at + "post_attention_layernorm.weight"])
    return x + linear("mlp.down_proj", F.silu(linear("mlp.gate_proj", y)) * linear("mlp.up_proj", y))


def llama(w, tokens, layers, heads, kv_heads, theta=10000.0):
    x = F.embedding(tokens, w["embed_tokens"])
    for layer in range(layers):
        x = llama_layer(w, "layers.%d." % layer, x, heads, kv_heads, theta)
    return F.linear(rms_norm(x, w["norm.weight"]), w["lm_head"])


# ---- optimizer ----

def adamw(weights, lr, betas, eps, weight_decay):
    """As zplan's default: weight decay for matrices only, not for biases and norms."""
    matrices = [w for w in weights.values() if w.dim() >= 2]
    vectors = [w for w in weights.values() if w.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)
