#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same training in PyTorch: 20 steps of AdamW, or Adafactor, from the weights that zplan publishes, on the same tokens.

    reference.py NAME MODEL.safetensors [OUT.json]

NAME is gpt2, llama, lora, moe, deepseek, deepseek_groups, deepseek_lines, lines, bert, sparse_bert, dropped_bert, gemma2, gemma3, qwen3, vit, vit_pixels, audio, squad, axes, mixer, packed, mla, t5, t5_v1_1, t5_adafactor or missing. Prints (or writes) {"torch", "date", "model", "dtype", "losses", "grad_norms"}; losses are those before
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

import axes
import convolutions
import masks
import model
import packed
import settings

sys.path.insert(0, os.path.join(os.path.dirname(settings.HERE), "support"))
import harness  # noqa: E402


def load_weights(path, dtype):
    weights = {}
    for name, (shape, values) in harness.read_safetensors(path).items():
        weights[name] = torch.tensor(values.tolist(), dtype=dtype).reshape(shape).requires_grad_()
    return weights


def batches(steps=settings.STEPS):
    """Sequential windows, as runtime/README.md says: window w is bytes w * S to w * S + S, its last byte the last label."""
    with open(settings.TEXT, "rb") as file:
        stream = torch.tensor(list(file.read()), dtype=torch.int64)
    length, windows = settings.LENGTH, (len(stream) - 1) // settings.LENGTH
    for step in range(steps):
        at = [(step * settings.BATCH + i) % windows * length for i in range(settings.BATCH)]
        yield torch.stack([stream[a:a + length] for a in at]), torch.stack([stream[a + 1:a + length + 1] for a in at])


def line_batches(size=settings.LENGTH):
    """Lines that are not empty, in order: tokens, labels (the next byte, the newline at last), lengths. Cut at `size`; label -100: none."""
    with open(settings.LINES, "rb") as file:
        lines = [line + b"\n" for line in file.read().split(b"\n") if line]
    for step in range(settings.STEPS):
        chosen = [lines[(step * settings.BATCH + i) % len(lines)][: size + 1] for i in range(settings.BATCH)]
        tokens = torch.zeros(settings.BATCH, size, dtype=torch.int64)
        labels = torch.full_like(tokens, -100)
        for i, line in enumerate(chosen):
            tokens[i, : len(line) - 1] = torch.tensor(list(line[:-1]))
            labels[i, : len(line) - 1] = torch.tensor(list(line[1:]))
        yield tokens, labels, torch.tensor([len(line) - 1 for line in chosen])


def masked_batches(size=settings.LENGTH):
    """Those lines, with masks: labels are what stood there, and all else has none."""
    for step, (tokens, labels, lengths) in enumerate(line_batches(size)):
        labels = torch.full_like(labels, -100)
        for i, length in enumerate(lengths.tolist()):
            changed, there = masks.masked(tokens[i, :length].tolist(), step * settings.BATCH + i, **settings.MASKS)
            tokens[i, :length] = torch.tensor(changed)
            for at, label in there.items():
                labels[i, at] = label
        yield tokens, labels, lengths


def read_npy(path):
    """The elements of an array of bytes or of wider integers, and its shape."""
    with open(path, "rb") as file:
        content = file.read()
    end = 10 + int.from_bytes(content[8:10], "little")
    header = ast.literal_eval(content[10:end].decode())
    body = content[end:]
    width = int(header["descr"][2:])
    values = [int.from_bytes(body[i:i + width], "little", signed=width > 1) for i in range(0, len(body), width)]
    return torch.tensor(values), header["shape"]


def image_batches():
    """Samples in order; bytes stand for 0 to 1."""
    images, shape = read_npy(os.path.join(settings.IMAGES, "images.npy"))
    labels, _ = read_npy(os.path.join(settings.IMAGES, "labels.npy"))
    images = images.reshape(shape).to(getattr(torch, settings.DTYPES["vit"])) / 255
    for step in range(settings.STEPS):
        at = [(step * settings.BATCH + i) % len(labels) for i in range(settings.BATCH)]
        yield images[at], labels[at]


@functools.cache
def span_arrays():
    arrays = {name: read_npy(os.path.join(settings.SPANS, name + ".npy")) for name in ("tokens", "types", "lengths", "start", "end", "possible")}
    return {name: values.reshape(shape) for name, (values, shape) in arrays.items()}


def spans(at):
    """Samples: tokens, labels of every loss, -1 where there is none, lengths, types."""
    arrays, at = span_arrays(), list(at)
    labels = {name: arrays[name.removesuffix("_loss")][at] for name in settings.LOSSES}
    return arrays["tokens"][at], labels, arrays["lengths"][at], arrays["types"][at]


@functools.cache
def missing_arrays():
    arrays = {name: read_npy(os.path.join(settings.MISSING, name + ".npy")) for name in ("tokens", "labels", "kind")}
    return {name: values.reshape(shape) for name, (values, shape) in arrays.items()}


def missing(at):
    """Samples: tokens, labels of every loss, negative where there is none."""
    arrays, at = missing_arrays(), list(at)
    return arrays["tokens"][at], {"word_loss": arrays["labels"][at], "kind_loss": arrays["kind"][at]}


def missing_batches():
    for step in range(settings.STEPS):
        yield missing([(step * settings.BATCH + i) % len(missing_arrays()["kind"]) for i in range(settings.BATCH)])


def judged(name, weights, at):
    """Of samples: every loss and its accuracy, over all labels that are there, and their weighted sum."""
    tokens, labels, *others = {"squad": spans, "missing": missing}[name](at)
    with torch.no_grad():
        output = {"squad": model.squad, "missing": model.missing}[name](weights, tokens, *others, **settings.ARCHITECTURES[name])
    loss, _, each = losses_of(output, labels)
    logits = output[0] if isinstance(output, tuple) else output
    right = {part: logits[part].argmax(-1) == labels[part] for part in labels}
    there = {part: label >= 0 for part, label in labels.items()}
    accuracies = {part: float(right[part][there[part]].double().mean()) for part in labels}
    result = {"loss": float(loss), "losses": {part: float(value) for part, value in each.items()}, "accuracies": accuracies}
    if name == "squad":  # which samples have no label that is wrong, of those that have one
        wrong = sum(there[part] & ~right[part] for part in labels) > 0
        result["exact_match"] = float((~wrong)[sum(there.values()) > 0].double().mean())
    return result


def looked_at(name, weights):
    """What zplan eval says of all samples, and a validation of the first ones, each once."""
    samples = len({"squad": span_arrays, "missing": missing_arrays}[name]()["tokens"])
    return {"eval": judged(name, weights, range(samples)), "validation": judged(name, weights, range(settings.VALIDATED[name]))}


def span_batches():
    """Samples in order; labels of every loss, -1: none."""
    samples = len(span_arrays()["start"])
    for step in range(settings.STEPS):
        yield spans([(step * settings.BATCH + i) % samples for i in range(settings.BATCH)])


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


def adafactor(name, weights):
    """transformers' own, with the learning rates of the schedule; decay for matrices alone."""
    import transformers
    options = settings.ADAFACTOR[name]
    groups = [{"params": [w for w in weights.values() if (w.dim() > 1) == decays], "weight_decay": options["weight_decay"] * decays} for decays in (True, False)]
    return transformers.Adafactor(groups, lr=settings.LR, beta1=options["beta1"], relative_step=False, scale_parameter=True)


def texts(name, weights):
    """What zplan sample makes of prompts with the trained weights."""
    import encoder_decoder
    return {"greedy": encoder_decoder.greedy(weights, settings.PROMPTS, settings.NEW_TOKENS, **settings.ARCHITECTURES[name])}


def t5(*arguments, **architecture):
    import encoder_decoder  # transformers, which the others do without
    return encoder_decoder.t5(*arguments, **architecture)


def axes_batches():
    """Samples in order; bytes of numbers stand for 0 to 1."""
    arrays = {}
    for name in ("tokens", "which", "last", "target", "numbers", "label"):
        values, shape = read_npy(os.path.join(settings.AXES, name + ".npy"))
        arrays[name] = values.reshape(shape)
        if name in ("target", "numbers"):
            arrays[name] = arrays[name].to(torch.float64) / 255
    for step in range(settings.STEPS):
        at = [(step * settings.BATCH + i) % len(arrays["label"]) for i in range(settings.BATCH)]
        labels = {"target_loss": arrays["target"][at], "numbers_loss": arrays["numbers"][at], "place_loss": arrays["label"][at]}
        yield arrays["tokens"][at], labels, arrays["which"][at], arrays["last"][at]


def packed_batches():
    """Samples in order; label -100: none, at a document's end."""
    arrays = {}
    for name in ("tokens", "labels", "documents", "positions"):
        values, shape = read_npy(os.path.join(settings.PACKED, name + ".npy"))
        arrays[name] = values.reshape(shape)
    arrays["labels"][arrays["labels"] < 0] = -100
    for step in range(settings.STEPS):
        at = [(step * settings.BATCH + i) % len(arrays["tokens"]) for i in range(settings.BATCH)]
        yield tuple(arrays[name][at] for name in ("tokens", "labels", "documents", "positions"))


def mla(*arguments, **architecture):
    import latent  # transformers likewise
    return latent.mla(*arguments, **architecture)


BATCHES = {"deepseek_lines": line_batches, "squad": span_batches, "missing": missing_batches, "axes": axes_batches, "packed": packed_batches, "lines": line_batches, "bert": masked_batches, "vit": image_batches, "mixer": image_batches, "audio": image_batches, "vit_pixels": image_batches, "t5": pair_batches, "t5_v1_1": pair_batches, "t5_adafactor": pair_batches,
           "dropped_bert": masked_batches, "sparse_bert": functools.partial(masked_batches, settings.LENGTHS["sparse_bert"])}


def learning_rate(step):
    """Linear warm-up, then a cosine down to MIN_LR at the last step: as runtime/schedule.c."""
    if step < settings.WARMUP:
        return settings.LR * (step + 1) / settings.WARMUP
    done = (step - settings.WARMUP) / (settings.STEPS - settings.WARMUP)
    return settings.MIN_LR + (settings.LR - settings.MIN_LR) * 0.5 * (1 + math.cos(math.pi * done))


def mean_loss(values, labels):
    """The mean over the labels that are there; of none 0."""
    there = labels.flatten() >= 0
    rows = values.flatten(0, -2)[there]
    return torch.nn.functional.cross_entropy(rows, labels.flatten()[there]) if len(rows) else values.sum() * 0


def losses_of(output, labels):
    """The loss that is logged, what else is trained, and every loss by itself where there are several."""
    logits, extra = output if isinstance(output, tuple) else (output, 0.0)
    if isinstance(logits, dict):
        each = {name: torch.nn.functional.mse_loss(values, labels[name]) if labels[name].is_floating_point() else
                mean_loss(values, labels[name]) for name, values in logits.items()}
        weights = dict(settings.LOSSES, **settings.AXES_LOSSES, **settings.MISSING_LOSSES)
        return sum(weights[name] * loss for name, loss in each.items()), extra(labels) if callable(extra) else extra, each
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
    return loss, extra(labels) if callable(extra) else extra, {}


def train(name, weights):
    loads = {}  # of experts, by the name of the bias that they move
    deepseek = functools.partial(model.deepseek, loads=loads)
    forward = {"gpt2": model.gpt2, "llama": model.llama, "moe": model.moe, "deepseek": deepseek, "deepseek_groups": deepseek,
               "deepseek_lines": lambda w, tokens, lengths, **sizes: deepseek(w, tokens, **sizes),  # padding is routed as tokens are
               "lora": functools.partial(model.lora, alpha=settings.LORA["alpha"]), "lines": model.lines, "bert": model.bert, "sparse_bert": model.sparse_bert, "dropped_bert": model.dropped_bert,
               "gemma2": model.gemma2, "gemma3": model.gemma3, "qwen3": model.qwen3, "vit": model.vit, "vit_pixels": convolutions.vit_pixels, "audio": convolutions.audio, "squad": model.squad, "missing": model.missing, "axes": axes.axes, "mixer": axes.mixer, "packed": packed.packed, "mla": mla, "t5": t5, "t5_v1_1": t5, "t5_adafactor": t5}[name]
    trained = {n: w for n, w in weights.items() if not n.endswith("e_score_correction_bias")}
    if name == "lora":
        trained = {n: w for n, w in weights.items() if model.is_adapter(n) or n in settings.LORA["trained"]}
        for w in set(weights) - set(trained):
            weights[w].requires_grad_(False)
    if name in settings.ADAFACTOR:
        optimizer = adafactor(name, trained)
    else:
        optimizer = model.adamw(trained, settings.LR, settings.BETAS, settings.EPS, settings.WEIGHT_DECAY)
    losses, norms, parts = [], [], {}
    for step, (tokens, labels, *lengths) in enumerate(BATCHES.get(name, batches)()):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        counted = {"step": step} if name == "dropped_bert" else {}
        output = forward(weights, tokens, *lengths, **settings.ARCHITECTURES[name], **counted)
        loss, extra, each = losses_of(output, labels)
        (loss + extra).backward()
        for part, value in each.items():
            parts.setdefault(part, []).append(float(value) if labels[part].is_floating_point() or (labels[part] >= 0).any() else None)
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained.values(), settings.CLIP)))
        optimizer.step()
        with torch.no_grad():
            for bias, load in loads.items():
                weights[bias] -= settings.BIAS_RATE * (load - load.mean()).sign()
        losses.append(float(loss))
    return losses, norms, parts


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in settings.ARCHITECTURES:
        sys.exit(__doc__)
    torch.set_num_threads(2)
    dtype = settings.DTYPES[sys.argv[1]]
    weights = load_weights(sys.argv[2], getattr(torch, dtype))
    losses, norms, parts = train(sys.argv[1], weights)
    result = {"torch": torch.__version__, "date": datetime.date.today().isoformat(), "model": sys.argv[1], "dtype": dtype,
              "losses": losses, "grad_norms": norms, **({"parts": parts} if parts else {}),
              **(looked_at(sys.argv[1], weights) if sys.argv[1] in settings.LOOKED_AT else {}), **(texts(sys.argv[1], weights) if sys.argv[1] in ("t5", "t5_v1_1") else {})}
    text = json.dumps(result, indent=1) + "\n"
    if len(sys.argv) == 4:
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
