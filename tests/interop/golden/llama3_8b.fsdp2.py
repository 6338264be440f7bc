# llama on 16 x h100_sxm, for PyTorch 2.15; made by zplan export fsdp2.
# tensor 1 x pipeline 1 x data 16 = 16 ranks, ZeRO 3, micro-batch 1, recompute full.
# zplan's estimates, for PyTorch FSDP (profile fsdp-compiled): 17.6 s a step, at most 19.5 GB on a device.
#
#   torchrun ... llama3_8b.py [--weights model.safetensors] [--data FILES] [--save FILE] [--compile]
#
# What differs from the plan:
# - gradients are summed in fp32, in the plan in 16 bits: that takes more memory and time.
# - data: the plan names none; give --data with token files.
# - every rank makes the whole model in host memory before it keeps its share.

import argparse
import glob
import json
import math
import os
import re
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

# ---- the plan ----
VOCABULARY = 128256
SEQUENCE = 8192
LAYERS = 32
WIDTH = 4096
HEADS = 32
MLP_WIDTH = 14336
NORM_EPS = 1e-05
KV_HEADS = 8
HEAD_WIDTH = 128
THETA = 5e+05
TIED = False
INITIAL_STD = {
    "embed_tokens": 0.02,
    "lm_head": 0.02,
    "layers.{}.self_attn.q_proj.weight": 0.02,
    "layers.{}.self_attn.k_proj.weight": 0.02,
    "layers.{}.self_attn.v_proj.weight": 0.02,
    "layers.{}.self_attn.o_proj.weight": 0.02,
    "layers.{}.mlp.gate_proj.weight": 0.02,
    "layers.{}.mlp.up_proj.weight": 0.02,
    "layers.{}.mlp.down_proj.weight": 0.02}
REPLICATE = 1
SHARD = 16
ZERO = 3
BATCH = 256
MICROBATCH = 1
ACCUMULATION = 16
RECOMPUTED_LAYERS = 32
OFFLOAD = False
PRECISION = "mixed_bf16"
OPTIMIZER = "AdamW"
LR = 0.0003
BETAS = (0.9, 0.95)
EPS = 1e-08
WEIGHT_DECAY = 0.1
DECAY_ALL = False
CLIP = 1
STEPS = 10000
SCHEDULE = "cosine"
WARMUP = 500
FALL_BEGIN, FALL_END = 500, 10000
MIN_LR = 3e-05
DATA = None
DATA_IS_TEXT = False
SEED = 0
LOG_EVERY = 1

# ---- the model, with the plan's names ----
def turned(x):
    """Heads [B, heads, S, columns] by their positions: columns of the first half with those of the second, in fp32."""
    columns = torch.arange(0, HEAD_WIDTH, 2, device=x.device, dtype=torch.float64)
    angles = torch.outer(torch.arange(SEQUENCE, device=x.device, dtype=torch.float64), THETA ** (-columns / HEAD_WIDTH))
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).type_as(x)


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)). A layer that recomputes keeps its input alone."""

    def __init__(self, recompute):
        super().__init__()
        self.recompute = recompute
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(WIDTH, NORM_EPS), nn.RMSNorm(WIDTH, NORM_EPS)
        inner, shared = HEADS * HEAD_WIDTH, KV_HEADS * HEAD_WIDTH
        self.self_attn = nn.ModuleDict({"q_proj": nn.Linear(WIDTH, inner, bias=False), "k_proj": nn.Linear(WIDTH, shared, bias=False),
                                        "v_proj": nn.Linear(WIDTH, shared, bias=False), "o_proj": nn.Linear(inner, WIDTH, bias=False)})
        self.mlp = nn.ModuleDict({"gate_proj": nn.Linear(WIDTH, MLP_WIDTH, bias=False), "up_proj": nn.Linear(WIDTH, MLP_WIDTH, bias=False),
                                  "down_proj": nn.Linear(MLP_WIDTH, WIDTH, bias=False)})

    def branches(self, x):
        normed = self.input_layernorm(x)
        q, k, v = (self.self_attn[name](normed).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for name in ("q_proj", "k_proj", "v_proj"))
        seen = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=HEADS != KV_HEADS)
        x = x + self.self_attn["o_proj"](seen.transpose(1, 2).flatten(2))
        normed = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](normed)) * self.mlp["up_proj"](normed))

    def forward(self, x):
        return checkpoint(self.branches, x, use_reentrant=False) if self.recompute else self.branches(x)


class Model(nn.Module):
    """Gives the mean loss of its samples. A tied head is the table of tokens."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Parameter(torch.empty(VOCABULARY, WIDTH))
        if not TIED:
            self.lm_head = nn.Parameter(torch.empty(VOCABULARY, WIDTH))
        self.layers = nn.ModuleList(Layer(i < RECOMPUTED_LAYERS) for i in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, NORM_EPS)
        for name, parameter in self.named_parameters():
            std = INITIAL_STD.get(re.sub(r"\.\d+\.", ".{}.", name))
            if std is not None:
                nn.init.normal_(parameter, std=std)

    def stack(self):
        return self.layers

    def forward(self, tokens, labels):
        x = F.embedding(tokens, self.embed_tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.norm(x) @ (self.embed_tokens if TIED else self.lm_head).t()
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def build(arguments, device):
    """The model, divided over the mesh layer by layer. ZeRO 3 gathers a layer again for its backward pass."""
    torch.manual_seed(SEED)  # the same values on every rank, which then keeps its share
    model = Model()
    if arguments.weights:
        model.load_state_dict(load_file(arguments.weights))
    mesh = init_device_mesh(device.type, (REPLICATE, SHARD), mesh_dim_names=("replicate", "shard"))
    mixed = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if PRECISION == "mixed_bf16" else MixedPrecisionPolicy()
    options = {"mesh": mesh if REPLICATE > 1 else mesh["shard"], "mp_policy": mixed,
               "offload_policy": CPUOffloadPolicy() if OFFLOAD else OffloadPolicy()}
    for layer in model.stack():
        if arguments.compile:
            layer.compile()
        fully_shard(layer, reshard_after_forward=ZERO == 3, **options)
    fully_shard(model, reshard_after_forward=False, **options)  # its head is where backward begins
    return model


# ---- data ----
def read_tokens(pattern):
    """Ids of all files in a row: bytes of a text, or token files of llm.c and `zplan data`."""
    parts = []
    for path in sorted(glob.glob(pattern)):
        kind, offset = np.uint8, 0
        if not DATA_IS_TEXT:
            magic, version = np.fromfile(path, np.int32, 2)
            kind, offset = {(20240520, 1): np.uint16, (20240801, 7): np.uint32}.get((magic, version)), 1024
        if kind is None:
            sys.exit("%s is no token file: magic %d version %d" % (path, magic, version))
        parts.append(np.memmap(path, kind, "r", offset))
    if sum(map(len, parts)) <= SEQUENCE:
        sys.exit("%s has no sample of %d tokens" % (pattern, SEQUENCE))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def samples(ids, first, device):
    """A micro-batch: sample n begins at token n * SEQUENCE, and its labels are the next tokens."""
    starts = [(first + i) % ((len(ids) - 1) // SEQUENCE) * SEQUENCE for i in range(MICROBATCH)]
    rows = torch.from_numpy(np.stack([ids[start:start + SEQUENCE + 1] for start in starts]).astype(np.int64)).to(device)
    return rows[:, :-1], rows[:, 1:]


# ---- training ----
def learning_rate(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    done = min(max((step - FALL_BEGIN) / (FALL_END - FALL_BEGIN), 0.0), 1.0) if FALL_END > FALL_BEGIN else 1.0
    left = {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}[SCHEDULE]
    return MIN_LR + (LR - MIN_LR) * left


def make_optimizer(model):
    decays = lambda parameter: DECAY_ALL or parameter.dim() > 1  # else biases and norms are left out
    groups = [{"params": [p for p in model.parameters() if decays(p)], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p in model.parameters() if not decays(p)], "weight_decay": 0.0}]
    return getattr(torch.optim, OPTIMIZER)([group for group in groups if group["params"]], LR, BETAS, EPS)


def train(model, ids, device):
    rank, optimizer = dist.get_rank(), make_optimizer(model)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = torch.zeros((), device=device)
        for micro in range(ACCUMULATION):  # shards are summed after each, replicas after the last
            last = micro == ACCUMULATION - 1
            model.set_is_last_backward(last)
            model.set_requires_all_reduce(last)
            model.set_reshard_after_backward(last or ZERO == 3)
            first = step * BATCH + (rank * ACCUMULATION + micro) * MICROBATCH
            part = model(*samples(ids, first, device)) / ACCUMULATION
            part.backward()
            loss += part.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP or math.inf).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss)
        if rank == 0 and ((step + 1) % LOG_EVERY == 0 or step + 1 == STEPS):
            print(json.dumps({"step": step + 1, "loss": loss.item() / dist.get_world_size(), "grad_norm": norm.item(),
                              "lr": learning_rate(step)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", help="model.safetensors of a checkpoint of zplan; without it values are drawn")
    parser.add_argument("--data", default=DATA, required=DATA is None, help="text or token files (default: the plan's)")
    parser.add_argument("--save", help="where the weights go at the end, as --weights reads them")
    parser.add_argument("--compile", action="store_true", help="torch.compile of every layer")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    if dist.get_world_size() != REPLICATE * SHARD:
        sys.exit("the plan has %d ranks, not %d" % (REPLICATE * SHARD, dist.get_world_size()))
    model = build(arguments, device)
    torch.manual_seed(SEED + 1 + dist.get_rank())  # of dropout
    train(model, read_tokens(arguments.data), device)
    if arguments.save:
        weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if dist.get_rank() == 0:
            save_file(weights, arguments.save)
    dist.destroy_process_group()


main()
