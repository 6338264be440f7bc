#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`zplan sample` keeps what earlier positions have computed, and says the same as passes over the whole sample.

decode.dz has every kind of layer that can be continued position by position, trained in its relative bias alone, t5.dz an encoder that is done
once: greedy and drawn tokens with and without kept keys and values, on three ranks too, in f64, and the logarithms of their shares to 1e-11 (they
are printed with 12 digits). `zplan eval` of three ranks says what one says. decode_gpu.dz on emulated GPUs says what it says on CPU ranks. What reads several positions otherwise takes whole passes, and a line
says so. Two that share a folder answer each its own question.
"""
import concurrent.futures
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import harness  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = "0123456789:;<!#%&*()+,-./0123456789"
GPU = ("--arch", "host")
EXIT_USAGE = 2
PREFIX = """use std.nn
use std.hw
model prefix(V = 61, S = 16, P = 4, d = 16) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param wte: [V, d] ~ normal(std = 0.3)
  param first: [P, d] ~ normal(std = 0.3)
  x = concat(first, embedding(tokens, wte), axis = 1)
  q, k, v = split(linear(x, 3 * d), 3)
  x = x + linear(attention(q, k, v, heads = 2), d)
  x = slice(x, begin = P, end = P + S)
  output loss = cross_entropy(matmul(x, transpose(wte)), labels)
}
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 2, memory = 4GiB) }
train { model = prefix  data = synthetic(seed = 1)  batch = 1  steps = 1  precision = "fp64"  optimizer = adamw(lr = 1e-3) }
"""


def checkpoint(tally, folder, name, model, *words):
    place = os.path.join(folder, name)
    outcome = harness.zplan("run", model, "--ranks", 1, "--steps", 0, *words, "--set", 'train.checkpoint.dir="%s"' % place, "-o", os.path.join(folder, name + "-tree"))
    return place if tally.check("%s: weights are drawn" % name, outcome.status == 0, outcome.tail()) else None


def sample(place, *words):
    outcome = harness.zplan("sample", place, *words, "--json", "-o", place + "-sample")
    return outcome, json.loads(outcome.out) if outcome.status == 0 else {}


def distance(one, other):
    """Of the logarithms of shares."""
    return max(abs(x - y) for a, b in zip(one["logprobs"], other["logprobs"]) for x, y in zip(a, b))


def compare(tally, name, place, *words, ranks=1):
    """The same tokens, as likely as without kept keys and values on one rank."""
    outcome, kept = sample(place, *words, *(("--ranks", ranks) if ranks > 1 else ()))
    plain, whole = sample(place, *words, "--no-cache")
    good = outcome.status == plain.status == 0 and kept["tokens"] == whole["tokens"] and all(kept["tokens"])
    if not tally.check("%s: the same tokens" % name, good, outcome.tail() + plain.tail()):
        return
    tally.check("%s: as likely" % name, distance(kept, whole) <= 1e-11, "%.3g" % distance(kept, whole))
    told = "without kept keys and values" in plain.err and "without kept" not in outcome.err and "whole sample" not in outcome.err
    tally.check("%s: it is told how" % name, told and "tokens/s" in outcome.err, outcome.err + plain.err)


def two_at_once(tally, place):
    """In one folder: each waits for the other, and answers its own question."""
    questions = [("--prompt", prompt, "--tokens", 8) for prompt in ("!", LONG)]
    alone = [sample(place, *words)[1] for words in questions]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        alongside = [answer for _, answer in pool.map(lambda words: sample(place, *words), questions)]
    tally.check("two at once", alone == alongside and all(alone), "%s, alone %s" % (alongside, alone))


def evaluate(tally, folder, place):
    """Loss and accuracy of two lines on one rank, and on three, which have parts of the vocabulary."""
    text = os.path.join(folder, "lines.txt")
    with open(text, "w") as file:
        file.write("%s\n%s\n" % (LONG, LONG[5:]))
    one, three = (harness.zplan("eval", place, "--data", text, "--ranks", ranks, "--json", "-o", place + "-eval") for ranks in (1, 3))
    if tally.check("eval", one.status == three.status == 0, one.tail() + three.tail()):
        one, three = json.loads(one.out), json.loads(three.out)
        same = one["accuracy"] == three["accuracy"] and abs(one["loss"] - three["loss"]) <= 1e-11 and one["tokens"] == 2 * len(LONG) - 5
        tally.check("eval on three ranks", same, "%s %s" % (one, three))


def decode_on_gpus(tally, place):
    """A text over several blocks on two emulated GPUs, in f32, whose products have epilogues."""
    drawn, there = ("--temperature", 1, "--seed", 5), GPU + ("--ranks", 2)
    asked = ("--prompt", 4 * LONG, "--prompt", "!") + drawn
    one, cpu = sample(place, *asked, "--tokens", 12)
    two, gpu = sample(place, *asked, "--tokens", 12, *there)  # the next one takes its trainer
    three, whole = sample(place, *asked[:2], *drawn, "--tokens", 1, "--no-cache", *there)
    good = one.status == two.status == three.status == 0 and cpu["tokens"] == gpu["tokens"] and cpu["tokens"][0][:1] == whole["tokens"][0]
    if tally.check("GPUs: the same tokens", good, one.tail() + two.tail() + three.tail()):
        apart = max(distance(cpu, gpu), abs(cpu["logprobs"][0][0] - whole["logprobs"][0][0]))
        tally.check("GPUs: as likely", apart <= 2e-5, "%.3g" % apart)
        told = "without kept keys" in three.err and "without kept" not in two.err and "whole sample" not in two.err
        tally.check("GPUs: it is told how", told and "tokens/s" in two.err, two.err + three.err)


def evaluate_on_gpu(tally, folder, place):
    text = os.path.join(folder, "short.txt")
    with open(text, "w") as file:
        file.write("%s\n%s\n" % (LONG, LONG[5:]))
    got = [harness.zplan("eval", place, "--data", text, *words, "--json", "-o", place + "-eval") for words in ((), GPU)]
    if tally.check("GPU: eval", all(outcome.status == 0 for outcome in got), got[0].tail() + got[1].tail()):
        cpu, gpu = (json.loads(outcome.out) for outcome in got)
        same = cpu["accuracy"] == gpu["accuracy"] and abs(cpu["loss"] - gpu["loss"]) <= 1e-11 and cpu["tokens"] == gpu["tokens"] > 0
        tally.check("GPU: the same loss and accuracy", same, "%s %s" % (cpu, gpu))


def refuse_machines(tally, place):
    for words, said in ((("--target", "cuda"), "wants to know which GPU"), (("--target", "cpu", "--arch", "sm_90"), "on which of the two?"),
                        (("--gpu", "x y"), "wants a device of std.hw"), (("--gpu", "cpu_cores"), "is no GPU")):
        outcome = harness.zplan("eval", place, "--data", __file__, *words, "-o", place + "-refused")
        tally.check("refused: %s" % said, outcome.status == (1 if "Z0702" in outcome.err else EXIT_USAGE) and said in outcome.err, outcome.tail())


def both_ways(folder):
    """t5.dz with attention that sees the whole text after every layer of the decoder."""
    path, more = os.path.join(folder, "both.dz"), "    q, k, v = split(linear(y, 3 * d), 3)\n    y = y + linear(attention(q, k, v, heads, causal = false), d)\n"
    with open(os.path.join(HERE, "t5.dz")) as file:
        text = file.read().replace("  }\n  decoder_norm", more + "  }\n  decoder_norm")
    with open(path, "w") as file:
        file.write(text)
    return path


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        place = checkpoint(tally, folder, "decode", os.path.join(HERE, "decode.dz"), "--set", 'train.trained=["bias"]')
        if place:
            compare(tally, "greedy", place, "--prompt", "!", "--prompt", LONG, "--tokens", 28)
            compare(tally, "drawn", place, "--prompt", LONG, "--tokens", 28, "--temperature", 1, "--seed", 3)
            two_at_once(tally, place)
            compare(tally, "three ranks", place, "--prompt", "!", "--prompt", LONG, "--tokens", 28, ranks=3)
            evaluate(tally, folder, place)
        place = harness.my_turn(0, 2) and checkpoint(tally, folder, "gpu32", os.path.join(HERE, "decode_gpu.dz"), "--set", 'precision="fp32"')
        if place:
            decode_on_gpus(tally, place)
        place = harness.my_turn(1, 2) and checkpoint(tally, folder, "gpu", os.path.join(HERE, "decode_gpu.dz"))
        if place:
            evaluate_on_gpu(tally, folder, place)
            refuse_machines(tally, place)
        place = harness.my_turn(1, 2) and checkpoint(tally, folder, "t5", os.path.join(HERE, "t5.dz"))
        if place:
            compare(tally, "encoder and decoder", place, "--prompt", LONG[:20], "--prompt", "*", "--tokens", 11)
            asked = ("--prompt", LONG[:20], "--prompt", "*", "--tokens", 11)
            (one, cpu), (two, gpu) = sample(place, *asked), sample(place, *asked, *GPU)
            good = one.status == two.status == 0 and cpu["tokens"] == gpu["tokens"] and distance(cpu, gpu) <= 1e-11
            tally.check("encoder and decoder on a GPU", good, one.tail() + two.tail())
            for words, said in ((("--prompt", LONG), "the prompt has 35 tokens, and a sample of the model 20"), (("--prompt", "*", "--tokens", 12), "can add up to 11, not 12")):
                outcome, _ = sample(place, *words)
                tally.check("refused: %s" % said, outcome.status == 1 and "Z0818" in outcome.err and said in outcome.err, outcome.tail())
        place = checkpoint(tally, folder, "both", both_ways(folder))
        if place:
            outcome, _ = sample(place, "--prompt", "*")
            said = "the decoder does not go on with a text position by position: attention sees what comes after a token"
            tally.check("refused: a decoder that sees both ways", outcome.status == 1 and "Z0818" in outcome.err and said in outcome.err, outcome.tail())
        place = harness.my_turn(0, 2) and checkpoint(tally, folder, "mla", os.path.join(HERE, os.pardir, "torch", "mla.dz"))
        if place:
            compare(tally, "latent attention", place, "--prompt", LONG[:20], "--prompt", "*", "--tokens", 9)
        model = os.path.join(folder, "prefix.dz")
        with open(model, "w") as file:
            file.write(PREFIX)
        place = checkpoint(tally, folder, "prefix", model)
        if place:
            outcome, got = sample(place, "--prompt", "01", "--tokens", 5)
            said = "every token takes a pass over the whole sample: `concat` reads several positions of the text at once, "
            tally.check("a prefix takes whole passes", outcome.status == 0 and said in outcome.err and "prefix.dz:8" in outcome.err and len(got["tokens"][0]) == 5, outcome.tail())
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
