#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Inputs from NumPy files, as a user meets them. The model is tests/torch/vit.dz, whose numbers are compared with PyTorch there.

- 2 steps and 2 more with --resume, into a second pass over the data, are 4 to the last bit, in order and shuffled; another layout goes on within 1e-10;
- other data, or the same in another order, is rejected when a run goes on; more samples after the first ones are reported;
- every layout has the same batches: losses in f64 within 1e-10, of a validation too;
- images, channels first or last, train as their patches; tokens from arrays train as the same tokens from a text, to the last bit;
- lines of tokens with a class each train alike on every layout, whatever stands after their lengths;
- `zplan eval` agrees with a validation of the same samples, and finds what was learned; `zplan sample` is refused;
- in bf16 and f16 an emulated GPU trains in 2 steps what one CPU rank does. The bounds are those of bf16.py after 2 steps, 2e-4 of a loss and 3e-3 of a
  norm, of f16 an eighth; a loss is here the mean of 4 rows and not of 128, whose roundings cancel less: times the root of 32;
- missing files, shapes, types and labels that do not fit: a code, the file, status 1, and no checkpoint.
"""
import array
import json
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

MODEL = os.path.join(os.path.dirname(HERE), "torch", "vit.dz")
SAMPLES, PATCHES, PIXELS, CLASSES = 12, 15, 12, 10
STEPS, HALF = 4, 2
EXIT_REFUSED = 1
LAYOUTS = {"one": {}, "t2p2": {"tensor": 2, "pipeline": 2}, "d2z3": {"plan.data": 2, "zero": 3},
           "t2seq": {"tensor": 2, "sequence": "true"}, "p3z1": {"pipeline": 3, "recompute": '"full"'}}


def write_npy(path, descr, shape, body):
    """As numpy.save does, without NumPy."""
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % (descr, tuple(shape))
    header += " " * (-(11 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body)


def write_data(folder, samples=SAMPLES, labels=None, seed=0):
    os.makedirs(folder, exist_ok=True)
    labels = labels or [(3 * n * n + n + seed) % CLASSES for n in range(samples)]
    pixels = array.array("f", ((n * 7919 + i * 104729) % 1000 / 500 - 1 + (labels[n] == i % CLASSES) for n in range(samples) for i in range(PATCHES * PIXELS)))
    write_npy(os.path.join(folder, "images.npy"), "<f4", (samples, PATCHES, PIXELS), pixels.tobytes())
    write_npy(os.path.join(folder, "labels.npy"), "<i4", (samples,), array.array("i", labels).tobytes())
    return folder


def train(folder, name, data, steps, layout="one", more=(), resume=False, precision="fp64", model=MODEL, order="sequential"):
    """(outcome, step records, all records); the checkpoints are in folder/name."""
    settings = dict({"tensor": 1, "pipeline": 1, "plan.data": 1, "zero": 0}, **LAYOUTS[layout])
    ranks = settings["tensor"] * settings["pipeline"] * settings["plan.data"]
    log = os.path.join(folder, "log.jsonl")
    words = ["run", model, "--ranks", ranks, "-o", os.path.join(folder, "tree-%s-%s" % (layout, precision)), "--log", log, "--steps", steps, "--check-memory",
             "--set", 'precision="%s"' % precision, "--set", 'train.data=%s' % data.replace("ORDER", order), *more]
    for key, value in settings.items():
        words += ["--set", "%s=%s" % (key, value)]
    words += ["--resume"] if resume else []
    if os.path.exists(log):
        os.remove(log)
    outcome = harness.zplan(*words, "--", "--checkpoint", os.path.join(folder, name), env=trainings.ENVIRONMENT)
    records = []
    if os.path.exists(log):
        with open(log, encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
    return outcome, [record for record in records if "event" not in record], records


def arrays(folder):
    return 'arrays("%s", order = "ORDER")' % folder


def losses_of(steps):
    return [step["loss"] for step in steps]


def model_of(folder, name, step=STEPS):
    return os.path.join(harness.step_folder(os.path.join(folder, name), step), "model.safetensors")


def check_resume(tally, folder, data):
    for order in ("sequential", "shuffled") if harness.my_turn(0, 2) else ("sequential",):
        whole, steps, _ = train(folder, "whole-" + order, arrays(data), STEPS, order=order)
        first, begin, _ = train(folder, "half-" + order, arrays(data), HALF, order=order)
        second, rest, _ = train(folder, "half-" + order, arrays(data), STEPS, order=order, resume=True)
        if not all(tally.check("%s: run" % order, o.status == 0, o.tail()) for o in (whole, first, second)):
            continue
        tally.check("%s: losses to the last bit" % order, losses_of(steps) == losses_of(begin + rest), "%s" % losses_of(begin + rest))
        tally.check("%s: checkpoint to the last byte" % order, harness.same_bytes(*(model_of(folder, name + order) for name in ("whole-", "half-"))))
    first, _, _ = train(folder, "other", arrays(data), HALF)
    second, rest, _ = train(folder, "other", arrays(data), STEPS, layout="t2p2", resume=True)
    if tally.check("another layout goes on", first.status == second.status == 0, second.tail()):
        error, tensor = harness.model_error(model_of(folder, "other"), model_of(folder, "whole-sequential"))
        tally.check("another layout: parameters", error <= 1e-10, "%.2e (%s)" % (error, tensor))


def check_other_data(tally, folder, data):
    place = write_data(os.path.join(folder, "changing"))
    outcome, _, _ = train(folder, "changed", arrays(place), HALF)
    tally.check("a run on data that will change", outcome.status == 0, outcome.tail())
    outcome, _, _ = train(folder, "changed", arrays(place), STEPS, resume=True, order="shuffled")
    tally.check("another order is refused", outcome.status == EXIT_REFUSED and "Z0814" in outcome.err, outcome.tail())
    write_data(place, seed=1)
    outcome, _, _ = train(folder, "changed", arrays(place), STEPS, resume=True)
    tally.check("other labels are refused", outcome.status == EXIT_REFUSED and "Z0814" in outcome.err and "12 samples" in outcome.err, outcome.tail())
    write_data(place, samples=SAMPLES + 4)
    outcome, _, _ = train(folder, "changed", arrays(place), STEPS, resume=True)
    tally.check("more samples are told", outcome.status == 0 and "data of 12 samples, now there are 16" in outcome.err, outcome.tail())


def check_layouts(tally, folder, data):
    validate = ("--set", 'train.validate.data=arrays("%s")' % data, "--set", "validate.every=2", "--set", "validate.batches=3")
    reference = None
    for layout in ("one", "t2p2", *(layout for number, layout in enumerate(("d2z3", "t2seq", "p3z1")) if harness.my_turn(number, 3))):
        outcome, steps, records = train(folder, "layout-" + layout, arrays(data), STEPS, layout=layout, more=validate, order="shuffled")
        if not tally.check("layout %s" % layout, outcome.status == 0, outcome.tail()):
            continue
        got = losses_of(steps) + [record["loss"] for record in records if record.get("event") == "validate"]
        reference = reference or got
        error = max(map(harness.number_error, got, reference))
        tally.check("layout %s: losses" % layout, len(got) == len(reference) == STEPS + STEPS // 2 and error <= 1e-10, "%.2e" % error)


def check_stages(tally, folder):
    """Numbers stand where they are read: of two stages on the first one. (check_layouts has built the tree.)"""
    with open(os.path.join(folder, "tree-t2p2-fp64", "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    room = [stage["arena"]["at_slots"] - stage["arena"]["at_inputs"] for stage in plan["stages"]]
    numbers = 4 * PATCHES * PIXELS * 8  # of a batch, f64
    tally.check("images are on the first stage alone", room[0] >= numbers and 0 < room[1] < numbers, "%s" % room)


def check_tokens(tally, folder):
    """What a text is, sample by sample, in two files."""
    text = bytes((i * i + 3 * i) % 61 for i in range(16 * 12 + 1))
    path, place = os.path.join(folder, "text.txt"), os.path.join(folder, "tokens")
    os.makedirs(place)
    with open(path, "wb") as file:
        file.write(text)
    write_npy(os.path.join(place, "tokens.npy"), "|u1", (12, 16), text[:-1])
    write_npy(os.path.join(place, "labels.npy"), "<i8", (12, 16), struct.pack("<192q", *text[1:]))
    runs = [train(folder, "tokens-%d" % i, data, 3, model=os.path.join(HERE, "gpt.dz"), order="shuffled")
            for i, data in enumerate(('text("%s", order = "ORDER")' % path, arrays(place)))]
    if all(tally.check("tokens: run", run[0].status == 0, run[0].tail()) for run in runs):
        tally.check("tokens from arrays are those of a text", losses_of(runs[0][1]) == losses_of(runs[1][1]), "%s" % [losses_of(run[1]) for run in runs])
    outcome, _, _ = train(folder, "tokens-made-up", "synthetic(seed = 3)", 1, model=os.path.join(HERE, "gpt.dz"))
    looked = [harness.zplan("eval", os.path.join(folder, "tokens-made-up"), "--data", data, "--json", "-o", os.path.join(folder, "eval-tokens")) for data in (path, place)]
    tally.check("a model of made-up tokens: eval of a text and of arrays", outcome.status == looked[0].status == looked[1].status == 0 and looked[0].out == looked[1].out,
                "".join(run.tail() for run in (outcome, *looked)))


def check_patches(tally, folder):
    """Images of 6 x 10 with 3 channels, last or first, are the 15 patches of 2 x 2 that somebody else has cut."""
    side, height, width, channels = 2, 6, 10, 3
    pixel = lambda n, y, x, c: (n * 31 + y * 17 + x * 5 + c * 71) % 256
    each = [(n, y, x, c) for n in range(SAMPLES) for y in range(height) for x in range(width) for c in range(channels)]
    first = sorted(each, key=lambda at: (at[0], at[3], at[1], at[2]))
    cut = sorted(each, key=lambda at: (at[0], at[1] // side, at[2] // side, at[3], at[1], at[2]))
    results = []
    for name, order, shape in (("last", each, (height, width, channels)), ("first", first, (channels, height, width)), ("cut", cut, (PATCHES, PIXELS))):
        place = write_data(os.path.join(folder, "channels-" + name))
        write_npy(os.path.join(place, "images.npy"), "|u1", (SAMPLES,) + shape, bytes(pixel(*at) for at in order))
        outcome, steps, _ = train(folder, "ck-channels-" + name, arrays(place), 2)
        tally.check("channels %s: run" % name, outcome.status == 0, outcome.tail())
        results.append(losses_of(steps))
    tally.check("images are cut into patches", results[0] == results[1] == results[2] and len(results[0]) == 2, "%s" % results)


CLASSES_OF_LINES = """use std.nn
use std.models
use std.hw
model m(V = 29, S = 16, d = 32, classes = 3) {
  input tokens: i32[B, S]
  input labels: i32[B]
  input lengths: i32[B]
  param word: [V, d] ~ normal(std = 0.02)
  x = embedding(tokens, word)
  repeat h in 0..3 { x = bert_layer(x, lengths, heads = 4, ff = 64) }
  pooled = tanh(sample_linear(select(x, 0), d))
  head   = sample_linear(pooled, classes)
  output loss = cross_entropy(head, labels)
}
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 4, memory = 8GiB) }
train { model = m  data = arrays("lines")  batch = 4  steps = 6  precision = "fp64"  optimizer = adamw(lr = 1e-3) }
"""


def check_lines(tally, folder):
    """A class for every line of tokens: BERT's layers, its pooler, lengths; after them tokens mean nothing."""
    model, lengths = os.path.join(folder, "lines.dz"), (16, 3, 9, 1, 5, 12, 16, 8)
    with open(model, "w", encoding="utf-8") as file:
        file.write(CLASSES_OF_LINES)
    results = []
    for turn, layout in enumerate(("one", "t2p2", "d2z3")):
        place = os.path.join(folder, "lines-%d" % turn)
        os.makedirs(place)
        tokens = [(n * 7 + s * 3) % 29 if s < lengths[n] else turn for n in range(8) for s in range(16)]
        write_npy(os.path.join(place, "tokens.npy"), "<i4", (8, 16), array.array("i", tokens).tobytes())
        write_npy(os.path.join(place, "labels.npy"), "|u1", (8,), bytes(n % 3 for n in range(8)))
        write_npy(os.path.join(place, "lengths.npy"), "<i8", (8,), struct.pack("<8q", *lengths))
        outcome, steps, _ = train(os.path.join(folder), "ck-lines-%d" % turn, arrays(place), STEPS, layout=layout, model=model, order="shuffled")
        tally.check("lines on %s" % layout, outcome.status == 0, outcome.tail())
        results.append(losses_of(steps))
    for other in results[1:]:
        error = max(map(harness.number_error, other, results[0]), default=1.0)
        tally.check("lines: losses", len(other) == STEPS and error <= 1e-10, "%.2e" % error)
    outcome, _, _ = train(folder, "ck-lines-text", 'text("lines.dz")', 1, model=model)
    tally.check("lines: a text has no class", outcome.status == EXIT_REFUSED and "Z0238" in outcome.err and "`labels` [B]" in outcome.err, outcome.tail())


def check_eval(tally, folder, data):
    """A validation of all samples, 3 batches of 4, has the mean that `eval` says; 200 steps on 12 samples learn them all."""
    validate = ("--set", 'train.validate.data=arrays("%s")' % data, "--set", "validate.every=200", "--set", "validate.batches=3")
    outcome, _, records = train(folder, "learned", arrays(data), 200, more=("--set", "steps=200", *validate), precision="fp32")
    if not tally.check("a run that learns", outcome.status == 0, outcome.tail()):
        return
    validation = [record["loss"] for record in records if record.get("event") == "validate"][-1]
    checkpoint = harness.step_folder(os.path.join(folder, "learned"), 200)
    outcome = harness.zplan("eval", checkpoint, "--data", data, "--json", "-o", os.path.join(folder, "eval"))
    if not tally.check("eval", outcome.status == 0, outcome.tail()):
        return
    answer = json.loads(outcome.out)
    tally.check("eval: the validation's loss", abs(answer["loss"] - validation) <= 1e-6, "%s, not %s" % (answer["loss"], validation))
    tally.check("eval: all samples, learned", answer["samples"] == answer["tokens"] == SAMPLES and answer["accuracy"] == 1.0, "%s" % answer)
    outcome = harness.zplan("sample", checkpoint, "--prompt", "a", "-o", os.path.join(folder, "sample"))
    tally.check("sample is refused", outcome.status == EXIT_REFUSED and "Z0818" in outcome.err and "`images`" in outcome.err, outcome.tail())


def check_narrow(tally, folder, data):
    """f16 with a scale at which the first step is applied; the GPUs are tensor ranks with shares of the positions."""
    fewer_rows = 32 ** 0.5
    for number, (precision, more, share) in enumerate((("mixed_bf16", (), 1.0), ("mixed_fp16", ("--set", "loss_scale=512"), 0.125))):
        if not harness.my_turn(number, 2):
            continue
        reference = None
        for layout, gpu in (("one", False), ("t2seq", True)):
            name = "%s %s%s" % (precision, layout, " gpu" if gpu else "")
            place = os.path.join(folder, "gpu" if gpu else "cpu")
            os.makedirs(place, exist_ok=True)
            outcome, steps, _ = train(place, "ck-" + name.replace(" ", "-"), arrays(data), 2, layout=layout, precision=precision,
                                      more=more + (("--cluster", "gpu", "--arch", "host", "--threads", 1) if gpu else ()))
            if not tally.check(name, outcome.status == 0, outcome.tail()):
                continue
            reference = reference or steps
            for key, bound in (("loss", 2e-4 * fewer_rows * share), ("grad_norm", 3e-3 * share)):
                error = max(map(harness.number_error, (step[key] for step in steps), (step[key] for step in reference)))
                tally.check("%s: %s" % (name, key), error <= bound, "%.2e > %.0e" % (error, bound))


def check_bad(tally, folder):
    def spoil(name, change):
        place = write_data(os.path.join(folder, "bad-" + name))
        change(place)
        return place

    def labels(*values):
        return lambda place: write_data(place, labels=list(values) + [0] * (SAMPLES - len(values)))

    def rewrite(name, descr, shape, size):
        return lambda place: write_npy(os.path.join(place, name + ".npy"), descr, shape, bytes(size))

    cases = (("missing", "Z0801", "labels.npy", lambda place: os.remove(os.path.join(place, "labels.npy"))),
             ("range", "Z0803", "labels.npy", labels(0, 1, CLASSES)),
             ("negative", "Z0803", "labels.npy", labels(0, -7)),
             ("shape", "Z0802", "images.npy", rewrite("images", "<f4", (SAMPLES, PIXELS, PATCHES), SAMPLES * PIXELS * PATCHES * 4)),
             ("type", "Z0802", "images.npy", rewrite("images", "<i4", (SAMPLES, PATCHES, PIXELS), SAMPLES * PIXELS * PATCHES * 4)),
             ("count", "Z0802", "labels.npy", rewrite("labels", "<i4", (SAMPLES - 1,), 4 * SAMPLES - 4)),
             ("none", "Z0804", "images.npy", rewrite("images", "<f4", (0, PATCHES, PIXELS), 0)))
    for name, code, file, change in cases:
        place = spoil(name, change)
        outcome, _, _ = train(folder, "ck-" + name, arrays(place), 2, layout="t2p2" if name in ("missing", "range") else "one")
        good = outcome.status == EXIT_REFUSED and code in outcome.err and file in outcome.err
        tally.check("bad data, %s" % name, good, "exit %d\n%s" % (outcome.status, outcome.tail()))
        tally.check("bad data, %s: no checkpoint" % name, not os.path.exists(harness.step_folder(os.path.join(folder, "ck-" + name), 2)))


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        data = write_data(os.path.join(folder, "data"))
        check_resume(tally, folder, data)
        check_other_data(tally, folder, data)
        check_layouts(tally, folder, data)
        check_stages(tally, folder)
        check_tokens(tally, folder)
        check_patches(tally, folder)
        check_lines(tally, folder)
        check_eval(tally, folder, data)
        check_narrow(tally, folder, data)
        check_bad(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
