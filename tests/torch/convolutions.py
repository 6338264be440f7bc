# SPDX-License-Identifier: Apache-2.0
"""Models that begin with convolutions, as functions of a dictionary with the parameter names of zplan's checkpoints: an encoder after a stem like
Whisper's, and the Vision Transformer of transformers. Weights of convolutions are [out, C * kernel * kernel] here, the elements of PyTorch's in
their order."""
import re

import torch
import torch.nn.functional as F

import model

LAYER = {"norm1": "layernorm_before", "norm2": "layernorm_after", "attn.proj": "attention.o_proj", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
OTHERS = {"embed.cls_token": "vit.embeddings.cls_token", "embed.pos_embed": "vit.embeddings.position_embeddings",
          "embed.patch_embed.weight": "vit.embeddings.patch_embeddings.projection.weight",
          "embed.patch_embed.bias": "vit.embeddings.patch_embeddings.projection.bias", "norm.weight": "vit.layernorm.weight",
          "norm.bias": "vit.layernorm.bias", "head.weight": "classifier.weight", "head.bias": "classifier.bias"}


def convolved(convolution, w, name, x, kernel, **options):
    weight = w[name + ".weight"]
    return convolution(x, weight.reshape(len(weight), x.shape[1], *kernel), w[name + ".bias"], **options)


def audio(w, images, layers, heads):
    """Two convolutions over time and bands, two over time, positions, a convolution of its neighbours, layers, the mean."""
    x = F.gelu(convolved(F.conv2d, w, "conv_a", images[:, None], (3, 3), padding=1))
    x = F.gelu(convolved(F.conv2d, w, "conv_b", x, (2, 2), padding=1))
    x = x.permute(0, 2, 3, 1).flatten(2)  # channels last, as rows
    x = F.gelu(convolved(F.conv1d, w, "conv1", x.transpose(1, 2), (3,), padding=1))
    x = F.gelu(convolved(F.conv1d, w, "conv2", x, (3,), stride=2, padding=1)).transpose(1, 2) + w["position"]
    x = x + F.gelu(convolved(F.conv1d, w, "around", x.transpose(1, 2), (3,), padding=1)).transpose(1, 2)
    for layer in range(layers):
        x = model.vit_layer(w, "blocks.%d." % layer, x, heads)
    x = F.layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"], eps=1e-6)
    return F.linear(x.mean(1), w["head.weight"], w["head.bias"])


def their_parameters(w, shapes):
    found = {}
    for name, value in w.items():
        layer = re.fullmatch(r"blocks\.(\d+)\.(.*)\.(weight|bias)", name)
        if layer and layer[2] == "attn.qkv":
            for part, rows in zip("qkv", value.chunk(3)):
                found["vit.layers.%s.attention.%s_proj.%s" % (layer[1], part, layer[3])] = rows
        elif layer:
            found["vit.layers.%s.%s.%s" % (layer[1], LAYER[layer[2]], layer[3])] = value
        else:
            found[OTHERS[name]] = value
    return {name: value.reshape(shapes[name]) for name, value in found.items()}


def vit_pixels(w, images, patch, heads, models={}):
    if not models:
        from transformers import ViTConfig, ViTForImageClassification
        layers = 1 + max(int(name.split(".")[1]) for name in w if name.startswith("blocks."))
        classes, d = w["head.weight"].shape
        config = ViTConfig(image_size=tuple(images.shape[1:]), patch_size=patch, num_channels=1, hidden_size=d, num_hidden_layers=layers,
                           num_attention_heads=heads, intermediate_size=len(w["blocks.0.mlp.fc1.bias"]), num_labels=classes,
                           attn_implementation="sdpa")  # the eager one has its softmax in f32
        models[0] = ViTForImageClassification(config).to(images.dtype)
    shapes = {name: value.shape for name, value in models[0].named_parameters()}
    return torch.func.functional_call(models[0], their_parameters(w, shapes), kwargs={"pixel_values": images[:, None]}, strict=True).logits
