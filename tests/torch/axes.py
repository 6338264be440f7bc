# SPDX-License-Identifier: Apache-2.0
"""Models of axes and shapes in PyTorch: what axes.dz and mixer.dz say, with the parameter names of zplan's checkpoints."""
import torch
import torch.nn.functional as F


def by_heads(x, heads):
    return x.unflatten(-1, (heads, -1))


def l2_normalize(x, eps=1e-6):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps)


def layer(w, at, x, heads):
    batch, length, width = x.shape
    threes = x.reshape(batch, length // 3, 3 * width) @ w[at + "mix"]
    a = x + F.silu(threes).reshape(batch, length, width)
    swaps = torch.cat((by_heads(a, heads)[..., 2:], by_heads(a, heads)[..., :2]), -1).flatten(-2)
    b = a + swaps * w[at + "scale"] @ w[at + "weight"].t()
    each = F.pad(b[..., -3:], (0, 3)).unsqueeze(-2).expand(-1, -1, heads, -1)
    c = b + each.flatten(-2)
    return c + l2_normalize(by_heads(c, heads)).flatten(-2) * l2_normalize(a, 1e-3)


def axes(w, tokens, which, last, layers, heads):
    """A prediction of samples, one of some positions, logits over the positions."""
    x = F.embedding(tokens, w["table"])
    for i in range(layers):
        x = layer(w, "layers.%d." % i, x, heads)
    norm = F.layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"], 1e-5)
    pooled = norm.max(1).values + norm.logsumexp(1) + 0.1 * norm.sum(1) + norm.mean(1)
    pooled = pooled + norm[torch.arange(len(last)), last]
    head = F.linear(pooled, w["head.weight"], w["head.bias"])
    taken = norm.gather(1, which[..., None].expand(-1, -1, norm.shape[-1]))
    place = norm.logsumexp(-1) + norm.max(-1).values + F.gelu(norm).sum(-1) + x.mean(-1)
    return {"target_loss": head, "numbers_loss": taken, "place_loss": place}


def mixer(w, patches, layers):
    """MLP-Mixer: logits of classes."""
    def linear(name, y):
        return F.linear(y, w[name + ".weight"], w[name + ".bias"])

    def norm(name, y):
        return F.layer_norm(y, y.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-6)

    def network(name, y):
        return linear(name + ".fc2", F.gelu(linear(name + ".fc1", y)))

    x = linear("stem", patches)
    for i in range(layers):
        at = "blocks.%d." % i
        x = x + network(at + "mlp_tokens", norm(at + "norm1", x).transpose(1, 2)).transpose(1, 2)
        x = x + network(at + "mlp_channels", norm(at + "norm2", x))
    return linear("head", norm("norm", x).mean(1))
