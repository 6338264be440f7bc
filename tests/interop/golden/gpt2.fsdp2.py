# gpt2 on 16 x h100_sxm, for PyTorch 2.15; made by zplan export fsdp2.
# tensor 1 x pipeline 1 x data 16 = 16 ranks, ZeRO 3 in groups of 8, micro-batch 4, recompute full on 5 layers, none
# on the others.
# zplan's estimates, for PyTorch FSDP (profile fsdp-compiled): 108 ms a step, at most 3.35 GB on a device.
#
#   torchrun ... gpt2.py [--weights model.safetensors] [--data FILES] [--save FILE] [--compile]
#
# What differs from the plan:
# - dropout draws PyTorch's random numbers, not zplan's.
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
VOCABULARY = 50257
SEQUENCE = 1024
LAYERS = 12
WIDTH = 768
HEADS = 12
MLP_WIDTH = 3072
NORM_EPS = 1e-05
POSITIONS = 1024
ACTIVATION = "gelu_tanh"
DROPOUT = 0.1
ATTENTION_DROPOUT = 0
INITIAL_STD = {
    "wte": 0.02,
    "wpe": 0.02,
    "h.{}.attn.c_attn.weight": 0.02,
    "h.{}.attn.c_proj.weight": 0.004082482904638631,
    "h.{}.mlp.c_fc.weight": 0.02,
    "h.{}.mlp.c_proj.weight": 0.004082482904638631}
REPLICATE = 2
SHARD = 8
ZERO = 3
BATCH = 256
MICROBATCH = 4
ACCUMULATION = 4
RECOMPUTED_LAYERS = 5
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
ACTIVATIONS = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "gelu": F.gelu, "relu": F.relu}


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)). A layer that recomputes keeps its input alone."""

    def __init__(self, recompute):
        super().__init__()
        self.recompute = recompute
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH, NORM_EPS), nn.LayerNorm(WIDTH, NORM_EPS)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(WIDTH, 3 * WIDTH), "c_proj": nn.Linear(WIDTH, WIDTH)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(WIDTH, MLP_WIDTH), "c_proj": nn.Linear(MLP_WIDTH, WIDTH)})

    def branches(self, x):
        qkv = self.attn["c_attn"](self.ln_1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in qkv)
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=ATTENTION_DROPOUT, is_causal=True)
        x = x + F.dropout(self.attn["c_proj"](seen.transpose(1, 2).flatten(2)), DROPOUT)
        inner = ACTIVATIONS[ACTIVATION](self.mlp["c_fc"](self.ln_2(x)))
        return x + F.dropout(self.mlp["c_proj"](inner), DROPOUT)

    def forward(self, x):
        return checkpoint(self.branches, x, use_reentrant=False) if self.recompute else self.branches(x)


class Model(nn.Module):
    """Gives the mean loss of its samples. The head is the table of tokens."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Parameter(torch.empty(VOCABULARY, WIDTH)), nn.Parameter(torch.empty(POSITIONS, WIDTH))
        self.h = nn.ModuleList(Layer(i < RECOMPUTED_LAYERS) for i in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH, NORM_EPS)
        for name, parameter in self.named_parameters():
            std = INITIAL_STD.get(re.sub(r"\.\d+\.", ".{}.", name))
            if std is not None:
                nn.init.normal_(parameter, std=std)
            elif name.endswith(".bias"):
                nn.init.zeros_(parameter)

    def stack(self):
        return self.h

    def forward(self, tokens, labels):
        x = F.dropout(F.embedding(tokens, self.wte) + self.wpe[:SEQUENCE], DROPOUT)
        for layer in self.h:
            x = layer(x)
        logits = self.ln_f(x) @ self.wte.t()
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
