#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of trainings by DeepSpeed on a CPU: configurations as they were exported, GPT-2 of a checkpoint of zplan, a text.

    deepspeed_rank.py MODEL.safetensors TEXT HEADS STEPS CONFIG.json...

losses_deepspeed.py starts the ranks. One after the other trains from the same weights. Rank 0 writes CONFIG.json.out: losses before each update, gradient norms before clipping, and what the engine is.
"""
import json
import sys

import deepspeed
import torch
import torch.distributed as dist

import model


def train(engine, text, steps):
    """Losses and norms. A step's samples are divided over ranks, then over micro-batches."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    micro, micros = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    losses, norms = [], []
    for step in range(steps):
        total = torch.zeros(())
        for m in range(micros):
            first = step * engine.train_batch_size() + (rank * micros + m) * micro
            loss = engine(*text.samples(first, micro))
            engine.backward(loss)
            engine.step()
            total += loss.detach()
        dist.all_reduce(total)
        losses.append(float(total) / (ranks * micros))
        norm = engine.get_global_grad_norm()  # None where PyTorch's own optimizer runs, with ZeRO 0
        norms.append(None if norm is None else float(norm))
    return losses, norms


def train_as(config, weights, text, heads, steps):
    with open(config, encoding="utf-8") as file:
        decay = json.load(file)["optimizer"]["params"]["weight_decay"]
    net = model.published(weights, heads)
    length = net.wpe.shape[0]
    engine, optimizer, _, _ = deepspeed.initialize(model=net, model_parameters=model.groups(net, decay), config=config)
    losses, norms = train(engine, model.Text(text, length), steps)
    facts = {"stage": engine.zero_optimization_stage(), "ranks": dist.get_world_size(), "backend": dist.get_backend(),
             "optimizer": type(getattr(optimizer, "optimizer", optimizer)).__name__, "wrapper": type(optimizer).__name__,
             "deepspeed": deepspeed.__version__, "torch": torch.__version__, "losses": losses, "norms": norms}
    if dist.get_rank() == 0:
        with open(config + ".out", "w", encoding="utf-8") as file:
            json.dump(facts, file)


def main():
    weights, text, heads, steps, *configs = sys.argv[1:]
    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # messages go through gloo, and nothing is compiled for them
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for config in configs:
        train_as(config, weights, text, int(heads), int(steps))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
