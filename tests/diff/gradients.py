#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of trainers are the slopes of their own losses.

    gradients.py [--verbose]

Small models whose row operations are nested in ways that once lost gradients. Each is trained for one step of plain SGD in f64 on one rank: the change of
a parameter over the learning rate is its gradient. Checkpoints moved by a little along one direction give the loss on both sides; the slope
between them must be that of the gradients. Nothing of the compiler's derivatives is on that side. One direction a model moves every parameter, further
ones a single tensor each. An emulated GPU (`--arch host`) must change the parameters likewise.

Bounds. The slope is a fourth-order central difference over STEP = 1e-4 of losses of about 3: truncation is STEP^4/30 times a fifth derivative
(3e-18 of it), rounding 1e-16 * 3 / STEP = 3e-12. SLOPE = 1e-8 of the length of the gradients is far above both, and far below a lost term.
Measured: 2e-11. (STEP is that short for relu: a kink between the points would show.) GPU = 1e-12: sums of some thousand terms in another order.
"""
import argparse
import array
import json
import math
import os
import random
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

RATE, STEP, SLOPE, GPU = 1.0, 1e-4, 1e-8, 1e-12
WIDTH, SEQUENCE, WORDS = 6, 5, 11  # rope pairs columns: one head of 6, or three of 2

FILE = """use std.nn
use std.hw

block plain(x: [B, S, k], out: int) -> [B, S, out] {
  param weight: [k, out] ~ normal(std = 0.2)
  return matmul(x, weight)
}
%(blocks)s
model m(V = %(words)d, S = %(sequence)d, d = %(width)d) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param table: [V, d] ~ normal(std = 1)
  param head: [d, V] ~ normal(std = 0.5)
  x = embedding(tokens, table)
%(body)s
  output loss = cross_entropy(%(logits)s, labels)
}
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 2, memory = 4GiB) }
cluster gpu { nodes = 1  node = std.hw.workstation(devices = 1 * std.hw.rtx4090) }
train {
  model = m  batch = 2  steps = 1  precision = "fp64"  data = synthetic(seed = 3)
  optimizer = sgd(lr = %(rate)g)  schedule = constant()  clip = 0  seed = 5
}
"""

# Each is one residual block: y is a product of its own, z another one, c a row of parameters, p a table of positions.
EXPRESSIONS = (
    "x * (1 - sigmoid(y))", "c - y", "p - y * 2", "y + (-z)", "-(-y)", "y * 0.5 / 3", "gelu(2 * y)", "gelu(-y, approximate = \"tanh\")", "silu(-y)",
    "rope(-y, heads = 1)", "layer_normalize(3 * y, g, c)", "rms_normalize(-y, c)", "softmax(-y * 0.3)", "l2_normalize(-y)", "l2_normalize(2 * y, heads = 3) * z", "(-y) * (-tanh(z))", "(-tanh(y)) / exp(-tanh(z))",
    "2 / (1 + exp(-y))", "tanh(y) * tanh(y) - y * y / 4", "(y - y) + z / (1 + z * z)", "relu(-y) - relu(y) * 0.5", "leaky_relu(-y) - leaky_relu(z, negative_slope = 0.3)", "rope(rope(y, heads = 1), heads = 3)",
    "dropout(-y, rate = 0.3) * 2 / 3", "log(1 + exp(-y))", "1 - sqrt(1 + y * y)", "rsqrt(1 + 2 * (-y) * (-y))",
)


def block(name, expression):
    """One residual block; only what the expression mentions is declared, for all of it has to reach the loss."""
    def mentions(word):
        return any(expression[i] == word and not (expression[i - 1:i] + expression[i + 1:i + 2]).strip(" ()*/+-,") for i in range(len(expression)))

    lines = ["block %s(x: [B, S, k]) -> [B, S, k] {" % name]
    lines += ["  param c: [k] ~ uniform(0.5, 1.5)"] if mentions("c") else []
    lines += ["  param g: [k] ~ uniform(0.5, 1.5)"] if mentions("g") else []
    lines += ["  param p: [S, k] ~ normal(std = 0.5)"] if mentions("p") else []
    lines += ["  %s = plain(x, k)" % word for word in "yz" if mentions(word)]
    return "\n".join(lines + ["  return x + (%s)" % expression, "}"])


def source(expressions, repeats, logits):
    """Blocks one after the other, or all of them as the body of a repeat."""
    names = ["e%d" % i for i in range(len(expressions))]
    body = "\n".join("  x = %s(x)" % name for name in names)
    if repeats:
        body = "  repeat h in 0..%d {\n%s\n  }" % (repeats, body)
    return FILE % {"blocks": "\n".join(map(block, names, expressions)), "body": body, "logits": logits, "words": WORDS, "sequence": SEQUENCE,
                   "width": WIDTH, "rate": RATE}


THIRD = len(EXPRESSIONS) // 3
MODELS = {
    "scaled head": (EXPRESSIONS[:THIRD], 0, "matmul(x, head) * 0.5 / 3"),
    "repeat": (EXPRESSIONS[THIRD:2 * THIRD], 2, "-matmul(x, head)"),
    "negated stream": (EXPRESSIONS[2 * THIRD:], 0, "matmul(-(-x), head) - 1"),
}


# ---- runs ----

def build(folder, text, *words):
    path = os.path.join(folder, "model.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    outcome = harness.zplan("build", path, "--cluster", "gpu" if words else "cpu", *words, "-o", os.path.join(folder, "tree" + "".join(words)),
                            env=trainings.ENVIRONMENT)
    return outcome.out.strip(), outcome


def run(trainer, checkpoints, steps):
    """(loss of the step, error)."""
    log = os.path.join(checkpoints, "log.jsonl")
    os.makedirs(checkpoints, exist_ok=True)
    outcome = harness.run([trainer, "--steps", steps, "--resume", "--threads", 1, "--checkpoint", checkpoints, "--log", log], env=harness.LAUNCH)
    if outcome.status != 0:
        return None, "exit %d\n%s" % (outcome.status, outcome.tail())
    records, _ = harness.read_log(log)
    return (records[-1]["loss"] if records else None), None


def file_at(checkpoints, step):
    return os.path.join(harness.step_folder(checkpoints, step), "model.safetensors")


def moved(path, directions, distance):
    """The file's bytes with every tensor that has a direction moved along it."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    parts = bytearray(data)
    for name, entry in json.loads(data[8:8 + length]).items():
        if name not in directions:
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = array.array("d", data[begin:end])
        parts[begin:end] = array.array("d", [x + distance * d for x, d in zip(values, directions[name])]).tobytes()
    return bytes(parts)


class Trainer:
    """One model at its initial weights: the gradients that its first step used, and its loss alongside them."""

    def __init__(self, folder, trainer):
        self.folder, self.trainer, self.start = folder, trainer, os.path.join(folder, "start")
        _, self.error = run(trainer, self.start, 0)
        self.gradients = {}
        if not self.error:
            at = self.copy("step")
            loss, self.error = run(trainer, at, 1)
            if not self.error and loss is None:
                self.error = "the loss is not finite"
            if not self.error:
                before, after = (harness.read_safetensors(file_at(at, step)) for step in (0, 1))
                self.gradients = {name: [(b - a) / RATE for a, b in zip(after[name][1], before[name][1])] for name in before}

    def copy(self, name):
        place = os.path.join(self.folder, name)
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.start, place)
        return place

    def loss(self, directions, distance):
        place = self.copy("moved")
        harness.replace_model(harness.step_folder(place, 0), moved(file_at(self.start, 0), directions, distance))
        loss, error = run(self.trainer, place, 1)
        return math.nan if error or loss is None else loss

    def slope(self, directions):
        near = self.loss(directions, STEP) - self.loss(directions, -STEP)
        far = self.loss(directions, 2 * STEP) - self.loss(directions, -2 * STEP)
        return (8 * near - far) / (12 * STEP)


# ---- judging ----

def directions_for(gradients, only=None, seed=1):
    """Every tensor a random direction of length 1."""
    rng = random.Random(seed)
    result = {}
    for name in sorted(gradients):
        direction = [rng.gauss(0, 1) for _ in gradients[name]]
        length = math.sqrt(math.fsum(x * x for x in direction))
        result[name] = [x / length for x in direction]
    return result if only is None else {only: result[only]}


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def check_slope(tally, name, trainer, directions, verbose):
    want = math.fsum(dot(trainer.gradients[n], d) for n, d in directions.items())
    got = trainer.slope(directions)
    size = math.sqrt(math.fsum(dot(trainer.gradients[n], trainer.gradients[n]) for n in directions))
    error = abs(got - want) / max(size, harness.TINY)
    if verbose:
        print("%s: %.2e" % (name, error))
    return tally.check(name, error <= SLOPE, "slope of the loss %.15g, of the gradients %.15g" % (got, want))


def check_model(tally, folder, name, model, verbose):
    place = os.path.join(folder, name.replace(" ", "_"))
    os.makedirs(place)
    binary, outcome = build(place, source(*model))
    if not tally.check("%s is built" % name, outcome.status == 0, outcome.tail()):
        return
    trainer = Trainer(place, binary)
    if not tally.check("%s trains" % name, not trainer.error, trainer.error):
        return
    # All tensors at once; where that fails, which ones.
    if not check_slope(tally, "gradients of %s" % name, trainer, directions_for(trainer.gradients), verbose):
        for tensor in sorted(trainer.gradients):
            check_slope(tally, "gradient of %s in %s" % (tensor, name), trainer, directions_for(trainer.gradients, tensor), verbose)
    return trainer


def check_emulated(tally, folder, name, model, trainer):
    place = os.path.join(folder, name.replace(" ", "_"))
    binary, outcome = build(place, source(*model), "--arch", "host")
    if not tally.check("%s is built for an emulated GPU" % name, outcome.status == 0, outcome.tail()):
        return
    loss, error = run(binary, trainer.copy("emulated"), 1)
    if tally.check("%s trains on an emulated GPU" % name, not error, error):
        error, tensor = harness.model_error(file_at(os.path.join(place, "emulated"), 1), file_at(os.path.join(place, "step"), 1))
        tally.check("%s on an emulated GPU" % name, error <= GPU, "%.2e (%s)" % (error, tensor))


def main():
    parser = argparse.ArgumentParser(description="gradients are slopes of the loss")
    parser.add_argument("--verbose", action="store_true", help="print every error")
    verbose = parser.parse_args().verbose
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        for name, model in MODELS.items():
            trainer = check_model(tally, folder, name, model, verbose)
            if trainer:
                check_emulated(tally, folder, name, model, trainer)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
