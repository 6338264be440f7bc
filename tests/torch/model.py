# SPDX-License-Identifier: Apache-2.0
"""GPT-2, LLaMA, Gemma 2, Qwen 3 and a mixture of experts in PyTorch, written for comparison: parameters are a dictionary with the names of zplan's checkpoints, the
forward pass is a function of it. Attention is spelled out, scores and all."""
import math

import torch
import torch.nn.functional as F

import masks

LAYER_NORM_EPS = RMS_NORM_EPS = 1e-5


def causal_attention(q, k, v):
    """[B, H, S, hd] each; scores are materialised."""
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


def padded_attention(q, k, v, lengths, dropped=1):
    """Every position sees all of its sample, and none after the sample's end; positions there give zeros. dropped: factors of probabilities."""
    there = torch.arange(q.shape[-2])[None] < lengths[:, None]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~there[:, None, None], float("-inf")).softmax(-1) * dropped @ v * there[:, None, :, None]


def to_heads(x, heads):
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def from_heads(x):
    batch, heads, length, size = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * size)


# ---- GPT-2 ----

def gpt2_layer(w, at, x, heads, attention=causal_attention):
    def linear(name, y):
        return F.linear(y, w[at + name + ".weight"], w[at + name + ".bias"])

    def norm(name, y):
        return F.layer_norm(y, y.shape[-1:], w[at + name + ".weight"], w[at + name + ".bias"], LAYER_NORM_EPS)

    q, k, v = linear("attn.c_attn", norm("ln_1", x)).chunk(3, -1)
    y = from_heads(attention(to_heads(q, heads), to_heads(k, heads), to_heads(v, heads)))
    x = x + linear("attn.c_proj", y)
    return x + linear("mlp.c_proj", F.gelu(linear("mlp.c_fc", norm("ln_2", x)), approximate="tanh"))


def gpt2(w, tokens, layers, heads, attention=causal_attention):
    """Logits; the output projection is the embedding."""
    x = F.embedding(tokens, w["wte"]) + w["wpe"][: tokens.shape[1]]
    for layer in range(layers):
        x = gpt2_layer(w, "h.%d." % layer, x, heads, attention)
    x = F.layer_norm(x, x.shape[-1:], w["ln_f.weight"], w["ln_f.bias"], LAYER_NORM_EPS)
    return x @ w["wte"].t()


def lines(w, tokens, lengths, layers, heads):
    """GPT-2 that sees both ways, as far as every sample goes."""
    return gpt2(w, tokens, layers, heads, lambda q, k, v: padded_attention(q, k, v, lengths))


# ---- BERT ----

def bert_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-12)


def fixed_pattern(heads, length, block, local, number, patterns):
    """[heads, length, length]: which keys a query sees, of blocks of positions. A query sees its own run of `local` blocks and all global
    blocks, and global blocks see everything. Global are `number` blocks of every run: of head 0 its last ones, of head 1 those before,
    and so on through `patterns` heads, then as of head 0 again. (FixedSparsityConfig of DeepSpeed, both ways, horizontal.)"""
    at = torch.arange(length) // block
    run, place = at // local, at % local
    seen = (run[:, None] == run[None]).repeat(heads, 1, 1)
    for head in range(heads):
        end = local - head % patterns * number
        everywhere = (place >= end - number) & (place < end)
        seen[head] |= everywhere[:, None] | everywhere[None]
    return seen


def masked_attention(q, k, v, lengths, seen):
    """PyTorch's own. What padding sees does not matter, but it must see something."""
    there = torch.arange(q.shape[-2])[None] < lengths[:, None]
    mask = seen[None] & there[:, None, None] | ~there[:, None, :, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask) * there[:, None, :, None]


def sparse_bert(w, tokens, lengths, layers, heads, pattern):
    seen = fixed_pattern(heads, tokens.shape[1], **pattern)
    return bert(w, tokens, lengths, layers, heads, lambda q, k, v, lengths: masked_attention(q, k, v, lengths, seen))


def dropped_bert(w, tokens, lengths, layers, heads, dropout, step):
    """Numbers are of the step, of the sample in the batch, of the layer."""
    batch, length = tokens.shape
    calls = iter(range(layers))

    def attention(q, k, v, lengths):
        layer = next(calls)
        kept = [masks.dropped(sample, layer, heads, length, length, step=step, **dropout) for sample in range(batch)]
        return padded_attention(q, k, v, lengths, torch.tensor(kept, dtype=q.dtype))

    return bert(w, tokens, lengths, layers, heads, attention)


def bert_layers(w, x, lengths, layers, heads, attention=padded_attention):
    def linear(name, y):
        return F.linear(y, w[name + ".weight"], w[name + ".bias"])

    for layer in range(layers):
        at = "layer.%d." % layer
        q, k, v = (to_heads(part, heads) for part in linear(at + "attention.qkv", x).chunk(3, -1))
        x = bert_norm(w, at + "attention_norm", x + linear(at + "attention.dense", from_heads(attention(q, k, v, lengths))))
        x = bert_norm(w, at + "output_norm", x + linear(at + "mlp.dense", F.gelu(linear(at + "mlp.intermediate", x))))
    return x


def bert(w, tokens, lengths, layers, heads, attention=padded_attention):
    """Norms after the sums; a head of its own before the tied output projection."""
    def linear(name, y):
        return F.linear(y, w[name + ".weight"], w[name + ".bias"])

    x = bert_norm(w, "embeddings", F.embedding(tokens, w["word"]) + w["position"][: tokens.shape[1]] + w["segment"])
    x = bert_layers(w, x, lengths, layers, heads, attention)
    return bert_norm(w, "head_norm", F.gelu(linear("transform", x))) @ w["word"].t() + w["head_bias"]


def squad(w, tokens, lengths, types, layers, heads):
    """Logits of the first and the last position of a span, none after the sample's end, and of whether there is one."""
    x = F.embedding(tokens, w["word"]) + F.embedding(types, w["segment"]) + w["position"][: tokens.shape[1]]
    x = bert_layers(w, bert_norm(w, "embeddings", x), lengths, layers, heads)
    start, end = F.linear(x, w["span.weight"], w["span.bias"]).split(1, dim=-1)
    behind = torch.arange(tokens.shape[1])[None] >= lengths[:, None]
    answer = F.linear(torch.tanh(F.linear(x[:, 0], w["pooler.weight"], w["pooler.bias"])), w["answer.weight"], w["answer.bias"])
    return {"start_loss": start.squeeze(-1).masked_fill(behind, float("-inf")),
            "end_loss": end.squeeze(-1).masked_fill(behind, float("-inf")), "possible_loss": answer}


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


def llama_attention(w, at, x, heads, kv_heads, theta):
    def linear(name, y):
        return F.linear(y, w[at + name + ".weight"])

    y = rms_norm(x, w[at + "input_layernorm.weight"])
    q = rotate(to_heads(linear("self_attn.q_proj", y), heads), theta)
    k = rotate(to_heads(linear("self_attn.k_proj", y), kv_heads), theta)
    v = to_heads(linear("self_attn.v_proj", y), kv_heads)
    repeat = heads // kv_heads  # query head h reads key/value head h / repeat
    y = causal_attention(q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1))
    return x + linear("self_attn.o_proj", from_heads(y))


def llama_layer(w, at, x, heads, kv_heads, theta):
    def linear(name, y):
        return F.linear(y, w[at + name + ".weight"])

    x = llama_attention(w, at, x, heads, kv_heads, theta)
    y = rms_norm(x, w[at + "post_attention_layernorm.weight"])
    return x + linear("mlp.down_proj", F.silu(linear("mlp.gate_proj", y)) * linear("mlp.up_proj", y))


def llama(w, tokens, layers, heads, kv_heads, theta=10000.0):
    x = F.embedding(tokens, w["embed_tokens"])
    for layer in range(layers):
        x = llama_layer(w, "layers.%d." % layer, x, heads, kv_heads, theta)
    return F.linear(rms_norm(x, w["norm.weight"]), w["lm_head"])


# ---- LLaMA with adapters (arXiv 2106.09685) ----

def is_adapter(name):
    return ".lora_A." in name or ".lora_B." in name


def lora(w, tokens, alpha, **sizes):
    """Every adapted weight with what its adapter adds: W + alpha / rank * B A."""
    adapted = {}
    for name, value in w.items():
        a, b = (w.get("%s.lora_%s.weight" % (name.removesuffix(".weight"), which)) for which in "AB")
        adapted[name] = value if a is None else value + alpha / a.shape[0] * (b @ a)
    return llama(adapted, tokens, **sizes)


# ---- Gemma 2 and 3, Qwen 3 ----

def grouped_scores(q, k, heads, kv_heads):
    """Scores [B, H, S, S] of queries [B, S, H * hd] and keys [B, S, G * hd], causality not yet; times 1 / sqrt(hd)."""
    q, k = q.transpose(1, 2), k.transpose(1, 2).repeat_interleave(heads // kv_heads, 1)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def unit(x, eps=1e-6):
    """Over the root of the mean square of the last size."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def turned(x, theta):
    return rotate(x.transpose(1, 2), theta).transpose(1, 2)


def windowed_softmax(scores, window):
    """Over keys that stand at most window - 1 before the query, itself among them."""
    position = torch.arange(scores.shape[-1])
    behind = position[:, None] - position[None]
    return scores.masked_fill((behind < 0) | (behind >= window), float("-inf")).softmax(-1)


def attend(weights, v, heads, kv_heads):
    return (weights @ v.transpose(1, 2).repeat_interleave(heads // kv_heads, 1)).transpose(1, 2).flatten(2)


def projected(w, at, x, heads, kv_heads, head):
    return (F.linear(x, w[at + name + "_proj.weight"]).unflatten(-1, (n, head))
            for name, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)))


def gemma_layer(w, at, x, scores_of, heads, kv_heads, head, window):
    """scores_of: of queries and keys."""
    def norm(name, y):
        return unit(y) * (1 + w[at + name + "_layernorm.weight"])

    q, k, v = projected(w, at + "self_attn.", norm("input", x), heads, kv_heads, head)
    y = F.linear(attend(windowed_softmax(scores_of(q, k), window), v, heads, kv_heads), w[at + "self_attn.o_proj.weight"])
    x = x + norm("post_attention", y)
    y = norm("pre_feedforward", x)
    y = F.gelu(F.linear(y, w[at + "mlp.gate_proj.weight"]), approximate="tanh") * F.linear(y, w[at + "mlp.up_proj.weight"])
    return x + norm("post_feedforward", F.linear(y, w[at + "mlp.down_proj.weight"]))


def gemma2(w, tokens, pairs, window, softcap, final_softcap, **sizes):
    """Logits. Layers with the window and without take turns."""
    def scores_of(q, k):
        return softcap * torch.tanh(grouped_scores(turned(q, 10000.0), turned(k, 10000.0), sizes["heads"], sizes["kv_heads"]) / softcap)

    x = F.embedding(tokens, w["embed_tokens"]) * math.sqrt(w["embed_tokens"].shape[1])
    for pair in range(pairs):
        x = gemma_layer(w, "layers.%d.sliding." % pair, x, scores_of, window=window, **sizes)
        x = gemma_layer(w, "layers.%d.full." % pair, x, scores_of, window=tokens.shape[1], **sizes)
    return final_softcap * torch.tanh(F.linear(unit(x) * (1 + w["norm.weight"]), w["embed_tokens"]) / final_softcap)


def gemma3(w, tokens, pairs, window, query_scalar, **sizes):
    """Logits. Layers with the window, and those without, have frequencies of their own."""
    def layer(at, x, window, theta):
        def scores_of(q, k):
            q, k = (turned(unit(y) * (1 + w[at + "self_attn.%s_norm.weight" % name]), theta) for name, y in (("q", q), ("k", k)))
            return grouped_scores(q, k, sizes["heads"], sizes["kv_heads"]) * math.sqrt(sizes["head"] / query_scalar)

        return gemma_layer(w, at, x, scores_of, window=window, **sizes)

    x = F.embedding(tokens, w["embed_tokens"]) * math.sqrt(w["embed_tokens"].shape[1])
    for pair in range(pairs):
        x = layer("layers.%d.sliding." % pair, x, window, 10000.0)
        x = layer("layers.%d.full." % pair, x, tokens.shape[1], 1000000.0)
    return F.linear(unit(x) * (1 + w["norm.weight"]), w["embed_tokens"])


def qwen3_layer(w, at, x, heads, kv_heads, head):
    y = unit(x) * w[at + "input_layernorm.weight"]
    q, k, v = projected(w, at + "self_attn.", y, heads, kv_heads, head)
    q, k = unit(q) * w[at + "self_attn.q_norm.weight"], unit(k) * w[at + "self_attn.k_norm.weight"]
    scores = grouped_scores(turned(q, 1000000.0), turned(k, 1000000.0), heads, kv_heads)
    y = attend(windowed_softmax(scores, x.shape[1]), v, heads, kv_heads)
    x = x + F.linear(y, w[at + "self_attn.o_proj.weight"])
    y = unit(x) * w[at + "post_attention_layernorm.weight"]
    y = F.silu(F.linear(y, w[at + "mlp.gate_proj.weight"])) * F.linear(y, w[at + "mlp.up_proj.weight"])
    return x + F.linear(y, w[at + "mlp.down_proj.weight"])


def qwen3(w, tokens, layers, smoothing, z_loss, **sizes):
    """Logits, and what the gradients' loss has alongside the labels' cross-entropy."""
    x = F.embedding(tokens, w["embed_tokens"])
    for layer in range(layers):
        x = qwen3_layer(w, "layers.%d." % layer, x, **sizes)
    logits = F.linear(unit(x) * w["norm.weight"], w["embed_tokens"])

    def extra(labels):
        flat, labels = logits.flatten(0, 1), labels.flatten()
        smoothed = F.cross_entropy(flat, labels, label_smoothing=smoothing) - F.cross_entropy(flat, labels)
        return smoothed + z_loss * flat.logsumexp(-1).square().mean()

    return logits, extra


# ---- images ----

def vit_layer(w, at, x, heads):
    norm = lambda y, name: F.layer_norm(y, y.shape[-1:], w[at + name + ".weight"], w[at + name + ".bias"], eps=1e-6)
    batch, length, d = x.shape
    y = F.linear(norm(x, "norm1"), w[at + "attn.qkv.weight"], w[at + "attn.qkv.bias"])
    q, k, v = (part.reshape(batch, length, heads, -1).transpose(1, 2) for part in y.chunk(3, -1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(d // heads)
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, d)
    x = x + F.linear(y, w[at + "attn.proj.weight"], w[at + "attn.proj.bias"])
    y = F.gelu(F.linear(norm(x, "norm2"), w[at + "mlp.fc1.weight"], w[at + "mlp.fc1.bias"]))
    return x + F.linear(y, w[at + "mlp.fc2.weight"], w[at + "mlp.fc2.bias"])


def vit(w, patches, layers, heads):
    """A class token before the patches; the head reads it and the mean of all positions."""
    x = F.linear(patches, w["embed.patch_embed.weight"], w["embed.patch_embed.bias"])
    x = torch.cat([w["embed.cls_token"].expand(len(x), 1, -1), x], 1) + w["embed.pos_embed"]
    for layer in range(layers):
        x = vit_layer(w, "blocks.%d." % layer, x, heads)
    x = F.layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"], eps=1e-6)
    return F.linear(x[:, 0] + x.mean(1), w["head.weight"], w["head.bias"])


# ---- experts ----

def route(scores, top_k, capacity):
    """Every sample by itself: weights [B, S, k], experts [B, S, k], and which choices find a slot."""
    top, expert = scores.topk(top_k, -1)
    return top.softmax(-1), expert, find_slots(expert, scores.shape[-1], capacity)


def find_slots(expert, experts, capacity):
    """Which choices [B, S, k] find one, counted in the order of the positions and, within one, of the choices."""
    batch, length, top_k = expert.shape
    chosen = F.one_hot(expert.reshape(batch, length * top_k), experts)
    place = (chosen.cumsum(1) * chosen).sum(-1).reshape(batch, length, top_k)
    return place <= math.ceil(capacity * length * top_k / experts)


def balancing_loss(scores, expert):
    """Mean over the samples of E * sum of (share of choices) * (mean probability), arXiv 2101.03961, equation 4."""
    experts = scores.shape[-1]
    share = F.one_hot(expert, experts).to(scores).mean((1, 2))
    return experts * (share * scores.softmax(-1).mean(1)).sum(-1).mean()


def experts_layer(w, at, x, heads, kv_heads, theta, top_k, capacity):
    """Every expert computes every token; the weights of those that a token did not choose, or was dropped from, are zero."""
    x = llama_attention(w, at, x, heads, kv_heads, theta)
    y = rms_norm(x, w[at + "post_attention_layernorm.weight"])
    at += "block_sparse_moe."
    scores = F.linear(y, w[at + "gate.weight"])
    weight, expert, kept = route(scores, top_k, capacity)
    share = (F.one_hot(expert, scores.shape[-1]) * (weight * kept).unsqueeze(-1)).sum(2)
    hidden = F.silu(torch.einsum("bsd,efd->bsef", y, w[at + "w1"])) * torch.einsum("bsd,efd->bsef", y, w[at + "w3"])
    return x + torch.einsum("bsef,edf,bse->bsd", hidden, w[at + "w2"], share), balancing_loss(scores, expert)


def moe(w, tokens, layers, heads, kv_heads, top_k, capacity, balance, theta=10000.0):
    """Logits, and the balancing losses of all layers."""
    x, extra = F.embedding(tokens, w["embed_tokens"]), 0.0
    for layer in range(layers):
        x, loss = experts_layer(w, "layers.%d." % layer, x, heads, kv_heads, theta, top_k, capacity)
        extra = extra + balance * loss
    return F.linear(rms_norm(x, w["norm.weight"]), w["lm_head"]), extra


def missing(w, tokens, layers, heads, kv_heads, top_k, capacity, balance, smoothing, z_loss, theta=10000.0):
    """The same with logits of every position and of every sample. Alongside the labels' cross-entropies the gradients have smoothed targets and z loss, means over the labels
    that are there, and the balancing losses, means over all samples and positions."""
    x, extra = F.embedding(tokens, w["embed_tokens"]), 0.0
    for layer in range(layers):
        x, loss = experts_layer(w, "layers.%d." % layer, x, heads, kv_heads, theta, top_k, capacity)
        extra = extra + balance * loss
    norm = rms_norm(x, w["norm.weight"])
    logits = F.linear(norm, w["lm_head"])

    def alongside(labels):
        there = labels["word_loss"] >= 0
        rows, words = logits[there], labels["word_loss"][there]
        if not len(rows):
            return extra
        smoothed = F.cross_entropy(rows, words, label_smoothing=smoothing) - F.cross_entropy(rows, words)
        return extra + smoothed + z_loss * rows.logsumexp(-1).square().mean()

    return {"word_loss": logits, "kind_loss": F.linear(norm.mean(1), w["kinds.weight"], w["kinds.bias"])}, alongside


def deepseek_gate(affinity, bias, top_k):
    """Weights and experts: the bias decides which are taken and weighs nothing (arXiv 2412.19437, equations 12 to 16)."""
    _, expert = (affinity.detach() + bias.detach()).topk(top_k, -1)
    weight = affinity.gather(-1, expert)
    return weight / weight.sum(-1, keepdim=True), expert


def deepseek_layer(w, at, x, heads, kv_heads, theta, top_k, capacity, scale, loads, groups):
    """Sigmoids of the scores, with groups as transformers has them. The balancing loss has their parts of their sum (equations 17 to 20)."""
    x = llama_attention(w, at, x, heads, kv_heads, theta)
    y = rms_norm(x, w[at + "post_attention_layernorm.weight"])
    at += "mlp."
    scores, bias = F.linear(y, w[at + "gate.weight"]), at + "e_score_correction_bias"
    affinity = scores.sigmoid()
    if groups:
        import latent  # transformers, which other models do without
        weight, expert = latent.gate(scores, w[bias], top_k, *groups)
    else:
        weight, expert = deepseek_gate(affinity, w[bias], top_k)
    kept = find_slots(expert, affinity.shape[-1], capacity)
    loads[bias] = F.one_hot(expert, affinity.shape[-1]).sum((0, 1, 2)).to(affinity)
    share = (F.one_hot(expert, affinity.shape[-1]) * (weight * kept).unsqueeze(-1)).sum(2)
    hidden = F.silu(torch.einsum("bsd,efd->bsef", y, w[at + "w1"])) * torch.einsum("bsd,efd->bsef", y, w[at + "w3"])
    routed = torch.einsum("bsef,edf,bse->bsd", hidden, w[at + "w2"], share)
    at += "shared_experts."
    shared = F.linear(F.silu(F.linear(y, w[at + "gate_proj.weight"])) * F.linear(y, w[at + "up_proj.weight"]), w[at + "down_proj.weight"])
    return x + scale * routed + shared, balancing_loss((affinity / affinity.sum(-1, keepdim=True)).log(), expert)


def deepseek(w, tokens, layers, heads, kv_heads, top_k, capacity, balance, scale, loads, groups=None, theta=10000.0):
    """Logits, and the balancing losses of all layers; loads: how many choices every expert has, of every layer."""
    x, extra = F.embedding(tokens, w["embed_tokens"]), 0.0
    for layer in range(layers):
        x, loss = deepseek_layer(w, "layers.%d." % layer, x, heads, kv_heads, theta, top_k, capacity, scale, loads, groups)
        extra = extra + balance * loss
    return F.linear(rms_norm(x, w["norm.weight"]), w["lm_head"]), extra


# ---- optimizer ----

def adamw(weights, lr, betas, eps, weight_decay):
    """As zplan's default: weight decay for matrices only, not for biases and norms."""
    matrices = [w for w in weights.values() if w.dim() >= 2]
    vectors = [w for w in weights.values() if w.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)
