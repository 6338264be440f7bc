#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small inputs made after public bug reports of other training programs, with their right values: trainings.

    cases.py [PART]...     the parts with these words in their names; default: all

Values are PyTorch's in f64 unless a row says otherwise, made with torch, transformers 5.24 and peft 0.21.2. Files, rows, configurations and plans are
in files.py.
"""
import os
import re
import shutil
import struct
import sys

import torch_numbers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

ONE_RANK = ("microbatch=8",)
EXACT = 1e-12
ROUTED = 1e-6  # the reference's softmax of gates is f32
LORA = 'lora(rank = 4, alpha = 8, %sof = ["layers.{}.self_attn.q_proj.weight", "layers.{}.self_attn.v_proj.weight"])'


class Bench:
    def __init__(self, tally, folder):
        self.tally, self.folder, self.count = tally, folder, 0

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def train(self, model, *settings, weights=None, words=(), steps=1, kept=None):
        """(outcome, steps of the log) of a training without checkpoints, or in `kept`."""
        self.count += 1
        ranks, log = 1, self.path("log-%d.jsonl" % self.count)
        for setting in settings:
            key, value = setting.split("=", 1)
            ranks *= int(value) if key in ("tensor", "pipeline", "data") else 1
        given = [word for setting in settings for word in ("--set", setting)]
        given += ["--init", os.path.join(HERE, weights)] if weights else []
        given += ["--checkpoint", kept] if kept else ["--no-checkpoint"]
        outcome = harness.zplan("run", self.path(model + ".dz"), "--ranks", ranks, "--steps", steps, "--threads", 1, "--check-memory", "-o",
                                self.path("tree-%d" % self.count), "--log", log, *given, *words, cwd=self.folder)
        return outcome, harness.read_log(log)[0] if os.path.exists(log) else []

    def agree(self, title, trained, bound, losses=(), norms=()):
        outcome, steps = trained
        got = [s["loss"] for s in steps[:len(losses)]] + [s["grad_norm"] for s in steps[:len(norms)]]
        want = list(losses) + list(norms)
        error = max(map(harness.number_error, got, want)) if len(got) == len(want) else float("inf")
        self.tally.check(title, outcome.status == 0 and error <= bound, "%s for %s: %.1e\n%s" % (got, want, error, outcome.tail()))

    def refused(self, title, outcome, *words):
        said = outcome.status == 1 and "error[" in outcome.err and all(word in outcome.err for word in words)
        self.tally.check(title, said, "%d %s" % (outcome.status, outcome.err[-700:]))

    def variant(self, name, model, old, new):
        with open(self.path(model + ".dz"), encoding="utf-8") as file:
            text = file.read()
        assert text.count(old) == 1
        with open(self.path(name + ".dz"), "w", encoding="utf-8") as file:
            file.write(text.replace(old, new))

    def array(self, name, rows):
        """A NumPy file of i32 rows."""
        head = "{'descr': '<i4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(rows), len(rows[0]))
        head += " " * (117 - len(head)) + "\n"
        with open(name, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + b"".join(struct.pack("<%di" % len(r), *r) for r in rows))


def by_turns(cases, among):
    return [case for number, case in enumerate(cases) if harness.my_turn(number, among)]


def balance_without_labels(bench):
    """01: the balancing loss is a mean over samples, whatever labels are missing."""
    for name, norm in by_turns((("labels", 7.753489), ("labels_quarter", 9.390707), ("labels_last", 17.222662), ("labels_full", 4.534106)), 2):
        os.makedirs(bench.path(name))
        shutil.copy(bench.path("arr", "tokens.npy"), bench.path(name))
        shutil.copy(bench.path("arr", name + ".npy"), bench.path(name, "labels.npy"))
        bench.agree("balance, " + name, bench.train("mixtral", 'train.data=arrays("%s")' % name, *ONE_RANK, weights="moe"), ROUTED, norms=[norm])
    for layout in (("microbatch=1",), ("data=2", "microbatch=2")):
        bench.agree("balance, %s" % (layout,), bench.train("mixtral", *layout, weights="moe"), ROUTED, norms=[7.753489])
    bench.variant("lines", "mixtral", "labels, ignore_index = -100)", "labels)")
    trained = bench.train("lines", 'train.data=lines("short.txt")', "model.V=256", *ONE_RANK, weights="moe256")
    bench.agree("balance, lines of other lengths", trained, ROUTED, norms=[6.188742])
    bench.agree("balance, a label a sample", bench.train("label_a_sample", *ONE_RANK), 1e-9, norms=[0.359724862722])


def windows(bench):
    """02: attention sees the window that config.json names."""
    trained = bench.train("mistral", 'train.data=text("letters.txt")', weights="mist")
    bench.agree("a window by hand", trained, 1e-6, losses=[5.597511])
    for length, loss in ((32, 5.597511), (8, 5.590976)):
        outcome = harness.zplan("import", "hf", os.path.join(HERE, "mist", "config.json"))
        text = re.sub(r"node += std.hw.dgx_h100", "node = std.hw.cpu_generic(cores = 2, memory = 4GiB)", outcome.out)
        text = text.replace("mixed_bf16", "fp64")
        with open(bench.path("imported.dz"), "w", encoding="utf-8") as file:
            file.write(text)
        settings = ("model.S=%d" % length, 'train.data=text("letters.txt")', "train.batch=4")
        bench.agree("an imported window, samples of %d" % length, bench.train("imported", *settings, weights="mist"), 1e-6, losses=[loss])
    with open(os.path.join(HERE, "mist", "config.json"), encoding="utf-8") as file:
        text = file.read()
    with open(bench.path("config.json"), "w", encoding="utf-8") as file:
        file.write(text.replace('  "sliding_window": 8,\n', "").replace('"max_position_embeddings": 64', '"max_position_embeddings": 32768'))
    outcome = harness.zplan("import", "hf", bench.path("config.json"))
    bench.tally.check("no window named is 4,096", outcome.status == 0 and re.search(r"window = 4096\b", outcome.out) is not None, outcome.tail(20))


def equal_samples(bench):
    """03: 4,096 equal samples have the gradient of one; 2 % for bf16, where 16-bit sums were off by a factor of 11."""
    tokens = [44, 53, 1, 54, 31, 34, 42, 19, 65, 3, 18, 25, 38, 27, 8, 3]
    labels = [24, 47, 32, 56, 63, 26, 28, 37, 43, 32, 40, 64, 49, 21, 28, 26]
    os.makedirs(bench.path("equal"))
    bench.array(bench.path("equal", "tokens.npy"), [tokens] * 4096)
    bench.array(bench.path("equal", "labels.npy"), [labels] * 4096)
    for number, size in enumerate((4096, 64, 8, 1)):
        if not harness.my_turn(number, 4):
            continue
        settings = ('train.data=arrays("equal")', "train.batch=4096", 'train.precision="mixed_bf16"', "microbatch=%d" % size)
        bench.agree("equal samples, micro-batch %d" % size, bench.train("llama", *settings, weights="hf"), 0.02, norms=[8.165247])
    settings = ('train.data=text("book2.txt", order = "shuffled")', "train.batch=2048", 'train.precision="mixed_bf16"', "train.dropout=0.0", "microbatch=8")
    if harness.my_turn(0, 4):  # whose samples are not summed above
        bench.agree("a text, micro-batch 8", bench.train("gpt_tiny", *settings), 0.01, norms=[2.4743])


def means_over_tokens(bench):
    """10, 16, 28: labels missing, a vocabulary of 67 on two ranks, z loss, passes that the batch does not divide."""
    for layout in by_turns((ONE_RANK, ("microbatch=1",), ("data=2",), ("pipeline=2", "microbatch=2"), ("tensor=2",), ("data=2", "zero=1")), 3):
        bench.agree("mean over labels, %s" % (layout,), bench.train("llama", *layout, weights="hf"), EXACT, [4.927244099668897], [4.047830463037200])
    bench.variant("z_loss", "llama", "ignore_index = -100)", "ignore_index = -100, z_loss = 0.1, label_smoothing = 0.1)")
    for layout in by_turns((ONE_RANK, ("tensor=2",), ("data=2",), ("loss_chunks=4", "microbatch=8")), 2):
        bench.agree("z loss, %s" % (layout,), bench.train("z_loss", *layout, weights="hf"), 1e-11, [4.927244099669], [3.803772492531])
    uneven = ('train.data=arrays("ten_rows")', "train.batch=4", "train.optimizer=adamw(lr = 1e-30, betas = [0.9, 0.95], eps = 1e-8, weight_decay = 0.1)")
    losses = [4.960654573935303, 4.781760465609684, 5.033791507960983, 4.753459510773939, 4.895428476171258]
    for layout in by_turns((("microbatch=4",), ("data=4",)), 2):
        bench.agree("ten rows in batches of 4, %s" % (layout,), bench.train("llama", *uneven, *layout, weights="hf", steps=5), EXACT, losses)
    large = ('train.data=arrays("ten_rows", order = "shuffled")', "train.batch=16", uneven[2])
    whole = bench.train("llama", *large, weights="hf", steps=2)
    bench.agree("a batch of 16 of ten rows", bench.train("llama", *large, "data=4", weights="hf", steps=2), EXACT, [s["loss"] for s in whole[1]], [s["grad_norm"] for s in whole[1]])


def batch_without_labels(bench):
    """11: the place is named, and what was trained is kept."""
    kept = bench.path("kept")
    outcome, steps = bench.train("llama", 'train.data=arrays("second_without")', *ONE_RANK, weights="hf", steps=3, kept=kept)
    bench.refused("a batch without labels", outcome, "Z0803", "step 2", "samples 8 to 15", "second_without", "labels")
    bench.tally.check("the step before it", len(steps) == 1 and harness.number_error(steps[0]["loss"], 4.927244099668897) < EXACT, str(steps))
    bench.tally.check("it is kept", os.path.exists(os.path.join(harness.step_folder(kept, 1), "manifest.json")), outcome.tail())


def dropout_and_resuming(bench):
    """13, 14: dropout of every rank, and a run that goes on in other layouts."""
    for layout in by_turns((ONE_RANK, ("microbatch=1",), ("data=2",), ("data=4", "zero=1"), ("tensor=2",), ("pipeline=2", "microbatch=2")), 3):
        trained = bench.train("gpt_tiny", *layout, steps=2)
        bench.agree("dropout, %s" % (layout,), trained, 1e-11, [5.518437466114897, 5.506148356997703], [2.46999141597, 2.42728706897])
    losses = [5.510044584816957, 5.496357844290947, 5.42934046553307, 5.314974793843593, 5.2985647971682805, 5.234474010730441, 5.210998358506487, 5.206797142140322]
    plain, kept = "train.dropout=0.0", bench.path("parts")
    bench.agree("8 steps at once", bench.train("gpt_tiny", plain, *ONE_RANK, steps=8), EXACT, losses)
    bench.agree("4 steps", bench.train("gpt_tiny", plain, "data=2", steps=4, kept=kept), EXACT, losses[:4])
    resumed = bench.train("gpt_tiny", plain, "tensor=2", steps=6, kept=kept, words=("--resume",))
    bench.agree("2 more on tensor ranks", resumed, EXACT, losses[4:6])
    bench.tally.check("the rate of step 5", harness.number_error(resumed[1][0]["lr"], 0.0009140576474687263) < EXACT, str(resumed[1][0]))
    resumed = bench.train("gpt_tiny", plain, "train.optimizer=adamw(lr = 2e-3, betas = [0.9, 0.95], eps = 1e-8, weight_decay = 0.1)", "data=2", steps=6, kept=kept, words=("--resume",))
    bench.tally.check("another rate is said", "lr" in resumed[0].err, resumed[0].tail())
    resumed = bench.train("gpt_tiny", plain, "pipeline=2", "data=2", "zero=1", "microbatch=2", steps=8, kept=kept, words=("--resume",))
    bench.agree("2 more on stages", resumed, EXACT, losses[6:])


def frozen_in_fp16(bench):
    """26: norms are clipped after the loss scale is taken away, of what is trained alone."""
    bench.variant("frozen", "llama", "  clip      = 1.0\n", '  clip = 0.5\n  frozen = ["embed_tokens", "layers.{}.mlp.*"]\n')
    losses, norms = [4.927244, 4.867208, 4.807190, 4.748769], [2.997976, 3.075587, 3.057325, 2.897474]
    bench.agree("frozen, f64", bench.train("frozen", *ONE_RANK, weights="hf", steps=4), 1e-6, losses, norms)
    for layout in by_turns((ONE_RANK, ("data=2", "zero=1"), ("pipeline=2",), ("tensor=2",)), 2):
        trained = bench.train("frozen", 'train.precision="mixed_fp16"', *layout, weights="hf", steps=4)
        bench.agree("frozen, fp16, %s" % (layout,), trained, 1e-3, losses, norms)
        bench.tally.check("its loss scale", [s.get("scale") for s in trained[1]] == [65536] * 4 and trained[1][-1]["skipped"] == 0, str(trained[1][-1:]))


def adapters(bench):
    """06, 24: folders of PEFT that are LoRA train what PEFT has; others are refused with their field."""
    adapted = ("train.adapt=" + LORA % "",)
    outcome, _ = bench.train("llama", *adapted, *ONE_RANK, weights="hf", words=("--adapters", os.path.join(HERE, "pissa")))
    bench.refused("PiSSA", outcome, "init_lora_weights", "pissa")
    wants = {"plain": 5.047895126, "rslora": 5.109116628, "head_saved": 4.763475428, "regex": 4.885478276, "alpha_float": 4.830290386, "loftq_none": 4.851654520}
    refusals = {"rank_pattern": "rank_pattern", "alpha_pattern": "alpha_pattern", "dora": "use_dora", "bias_lora": "bias", "pissa": "init_lora_weights", "adalora": "ADALORA",
                "tokens": "trainable_token_indices", "some_layers": "layers_to_transform"}
    for name, folder in by_turns(torch_numbers.write_adapters(bench.path("peft")), 2):
        settings = ("train.adapt=" + LORA % ("rslora = true, " if name == "rslora" else ""),)
        outcome, steps = bench.train("llama", *settings, *ONE_RANK, weights="hf", words=("--adapters", folder))
        if name in wants:
            bench.agree("adapters: " + name, (outcome, steps), 1e-6, [wants[name]])
        elif name in refusals:
            bench.refused("adapters: " + name, outcome, refusals[name])


PARTS = (balance_without_labels, windows, equal_samples, means_over_tokens, batch_without_labels, dropout_and_resuming, frozen_in_fp16, adapters)


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        bench = Bench(tally, os.path.join(folder, "cases"))
        shutil.copytree(HERE, bench.folder)
        for part in PARTS:
            if not sys.argv[1:] or any(word in part.__name__ for word in sys.argv[1:]):
                part(bench)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
