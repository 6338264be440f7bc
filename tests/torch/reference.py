#!/usr/bin/env python3
"""The same training in PyTorch: 20 AdamW steps from the weights that zplan publishes, on the same tokens.

    reference.py NAME MODEL.safetensors [OUT.json]

NAME is gpt2, llama, lora, moe, lines, bert, gemma2, qwen3, vit, t5 or t5_v1_1. Prints (or writes) {"torch", "date", "model", "dtype", "losses", "grad_norms"}; losses are those before
each update, without balancing losses, smoothed targets and squares of log-sum-exps, which the gradients contain; norms those before clipping. compare.py --update makes the committed expected_*.json with it.
"""
import ast
import datetime
import functools
import json
import math
import os
import sys

import torch

import masks
import model
import settings

sys.path.insert(0, os.path.join(os.path.dirname(settings.HERE), "support"))
import harness  # noqa: E402


def load_weights(path, dtype):
    weights = {}
    for name, (shape, values) in harness.read_safetensors(path).items():
        weights[name] = torch.tensor(values.tolist(), dtype=dtype).reshape(shape).requires_grad_()
    return weights


def batches():
    """Sequential windows, as runtime/README.md says: window w is bytes w * S to w * S + S, its last byte the last label."""
    with open(settings.TEXT, "rb") as file:
        stream = torch.tensor(list(file.read()), dtype=torch.int64)
    length, windows = settings.LENGTH, (len(stream) - 1) // settings.LENGTH
    for step in range(settings.STEPS):
        at = [(step * settings.BATCH + i) % windows * length for i in range(settings.BATCH)]
        yield torch.stack([stream[a:a + length] for a in at]), torch.stack([stream[a + 1:a + length + 1] for a in at])


def line_batches():
    """Lines that are not empty, in order: tokens, labels (the next byte, the newline at last), lengths. Cut at LENGTH; label -100: none."""
    with open(settings.LINES, "rb") as file:
        lines = [line + b"\n" for line in file.read().split(b"\n") if line]
    for step in range(settings.STEPS):
        chosen = [lines[(step * settings.BATCH + i) % len(lines)][: settings.LENGTH + 1] for i in range(settings.BATCH)]
        tokens = torch.zeros(settings.BATCH, settings.LENGTH, dtype=torch.int64)
        labels = torch.full_like(tokens, -100)
        for i, line in enumerate(chosen):
            tokens[i, : len(line) - 1] = torch.tensor(list(line[:-1]))
            labels[i, : len(line) - 1] = torch.tensor(list(line[1:]))
        yield tokens, labels, torch.tensor([len(line) - 1 for line in chosen])


def masked_batches():
    """Those lines, with masks: labels are what stood there, and all else has none."""
    for step, (tokens, labels, lengths) in enumerate(line_batches()):
        labels = torch.full_like(labels, -100)
        for i, length in enumerate(lengths.tolist()):
            changed, there = masks.masked(tokens[i, :length].tolist(), step * settings.BATCH + i, **settings.MASKS)
            tokens[i, :length] = torch.tensor(changed)
            for at, label in there.items():
                labels[i, at] = label
        yield tokens, labels, lengths


def read_npy(path):
    """The elements of an array of bytes or of whole numbers, and its shape."""
    with open(path, "rb") as file:
        content = file.read()
    end = 10 + int.from_bytes(content[8:10], "little")
    header = ast.literal_eval(content[10:end].decode())
    body = content[end:]
    size = int(header["descr"][2])
    values = list(body) if size == 1 else [int.from_bytes(body[i:i + size], "little", signed=True) for i in range(0, len(body), size)]
    return torch.tensor(values), header["shape"]


def image_batches():
    """Samples in order; bytes stand for 0 to 1."""
    images, shape = read_npy(os.path.join(settings.IMAGES, "images.npy"))
    labels, _ = read_npy(os.path.join(settings.IMAGES, "labels.npy"))
    images = images.reshape(shape).to(getattr(torch, settings.DTYPES["vit"])) / 255
    for step in range(settings.STEPS):
        at = [(step * settings.BATCH + i) % len(labels) for i in range(settings.BATCH)]
        yield images[at], labels[at]


def pair_batches():
    """Samples in order: (source, target), labels, lengths; label -100: none."""
    arrays = {}
    for name in ("source", "target", "labels", "lengths"):
        values, shape = read_npy(os.path.join(settings.PAIRS, name + ".npy"))
        arrays[name] = values.reshape(shape)
    arrays["labels"][arrays["labels"] < 0] = -100
    for step in range(settings.STEPS):
        at = [(step * settings.BATCH + i) % len(arrays["lengths"]) for i in range(settings.BATCH)]
        yield arrays["source"][at], arrays["labels"][at], arrays["target"][at], arrays["lengths"][at]


def t5(*arguments, **architecture):
    import encoder_decoder  # transformers, which the others do without
    return encoder_decoder.t5(*arguments, **architecture)


BATCHES = {"lines": line_batches, "bert": masked_batches, "vit": image_batches, "t5": pair_batches, "t5_v1_1": pair_batches}


def learning_rate(step):
    """Linear warm-up, then a cosine down to MIN_LR at the last step: as runtime/schedule.c."""
    if step < settings.WARMUP:
        return settings.LR * (step + 1) / settings.WARMUP
    done = (step - settings.WARMUP) / (settings.STEPS - settings.WARMUP)
    return settings.MIN_LR + (settings.LR - settings.MIN_LR) * 0.5 * (1 + math.cos(math.pi * done))


def train(name, weights):
    forward = {"gpt2": model.gpt2, "llama": model.llama, "moe": model.moe,
               "lora": functools.partial(model.lora, alpha=settings.LORA["alpha"]), "lines": model.lines, "bert": model.bert,
               "gemma2": model.gemma2, "qwen3": model.qwen3, "vit": model.vit, "t5": t5, "t5_v1_1": t5}[name]
    trained = weights
    if name == "lora":
        trained = {n: w for n, w in weights.items() if model.is_adapter(n) or n in settings.LORA["trained"]}
        for w in set(weights) - set(trained):
            weights[w].requires_grad_(False)
    optimizer = model.adamw(trained, settings.LR, settings.BETAS, settings.EPS, settings.WEIGHT_DECAY)
    losses, norms = [], []
    for step, (tokens, labels, *lengths) in enumerate(BATCHES.get(name, batches)()):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        output = forward(weights, tokens, *lengths, **settings.ARCHITECTURES[name])
        logits, extra = output if isinstance(output, tuple) else (output, 0.0)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        (loss + (extra(labels) if callable(extra) else extra)).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained.values(), settings.CLIP)))
        optimizer.step()
        losses.append(float(loss))
    return losses, norms


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in settings.ARCHITECTURES:
        sys.exit(__doc__)
    torch.set_num_threads(2)
    dtype = settings.DTYPES[sys.argv[1]]
    losses, norms = train(sys.argv[1], load_weights(sys.argv[2], getattr(torch, dtype)))
    result = {"torch": torch.__version__, "date": datetime.date.today().isoformat(), "model": sys.argv[1], "dtype": dtype,
              "losses": losses, "grad_norms": norms}
    text = json.dumps(result, indent=1) + "\n"
    if len(sys.argv) == 4:
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
