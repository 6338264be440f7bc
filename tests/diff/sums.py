#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of 16-bit trainings are summed in f32: the gradient of many equal samples is that of few.

    sums.py [--verbose]

All samples of a batch are the same one, so that the gradient of every micro-batch, and of every replica, is the gradient of the batch
times its share, and whoever adds them adds equal numbers: kept in bf16 the sum would stand still at 256 times the addend, in f16 at
2,048 times. sums.dz has tied words, so that stages of a pipeline add, too.

1. One rank, micro-batches of 1, 64 and all of 4,096 samples, bf16 and fp16: the gradient norm of the first step is that of f64 to
   2 % (rounding of activations: 8 bits and a few products deep; measured 0.2 %), and the same for all micro-batches.
2. Ties of two stages, replicas, ZeRO 1 to 3, a backward in two parts, tensor ranks with parts of a gradient, an emulated GPU, and one
   whose gradients are added by the host, bf16: 512 micro-batches of one sample, against one rank that takes all at once, or where
   activations are rounded elsewhere, against 16 samples at once. Shares of a batch are powers of two, so addends have the same digits.

The same for all: within 1e-4. Addends are equal to the bit, and 4,096 of them are added in f32: 4,096 times 2^-24 at most, and what
products over many rows add in another order, 1e-5 (measured 4e-6). Every run has --check-memory: arena and bytes are the plan's.
"""
import argparse
import array
import json
import os
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

SAME, ROUNDED = 1e-4, 2e-2
MANY, SOME, FEW = 4096, 512, 16
PRECISIONS = ("mixed_bf16", "mixed_fp16")
TOKENS, LABELS = (3, 7, 7, 19), (7, 7, 19, 2)
GPU = ("--cluster", "gpu", "--arch", "host")
# name, tensor, pipeline, data, settings, words
PLACES = (
    ("ties of two stages", 1, 2, 1, {}, ()),
    ("replicas", 1, 1, 2, {}, ()),
    ("ZeRO 1", 1, 1, 2, {"zero": 1}, ()),
    ("ZeRO 2", 1, 1, 2, {"zero": 2}, ()),
    ("ZeRO 3, ties", 1, 2, 2, {"zero": 3}, ()),
    ("split backward", 1, 2, 1, {"schedule": "zb_h1"}, ()),
    ("parts of tensor ranks", 2, 1, 1, {"sequence": True}, ()),
    ("emulated GPU", 1, 1, 1, {"model.layers": 1}, GPU),
    ("gradients on the host", 1, 1, 1, {"model.layers": 1, "zero": 2, "offload[gradients]": "cpu", "offload[optimizer]": "cpu"}, GPU),
)


def write_npy(path, rows):
    header = "{'descr': '<i4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(rows), len(rows[0]))
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(array.array("i", row).tobytes())


class Suite:
    def __init__(self, folder, verbose):
        self.folder, self.verbose, self.tally, self.runs = folder, verbose, harness.Tally(), 0
        self.data = os.path.join(folder, "data")
        os.makedirs(self.data)
        write_npy(os.path.join(self.data, "tokens.npy"), [TOKENS] * MANY)
        write_npy(os.path.join(self.data, "labels.npy"), [LABELS] * MANY)

    def norm(self, name, precision, ranks, batch, microbatch, settings=(), words=()):
        """Gradient norm of the first step; None, counted, where the run fails."""
        self.runs += 1
        place = os.path.join(self.folder, "%d" % self.runs)
        tensor, pipeline, data = ranks
        chosen = {"tensor": tensor, "pipeline": pipeline, "plan.data": data, "microbatch": microbatch, "batch": batch, "precision": precision,
                  "recompute": "none", "rank_order": "tdp", "cut": "layer", "zero": 0, "sequence": False, "loss_chunks": 1, "schedule": "1f1b"}
        chosen.update(settings)
        command = ["run", os.path.join(HERE, "sums.dz"), "--ranks", tensor * pipeline * data, "-o", place, "--log", place + ".jsonl",
                   "--set", 'train.data=arrays("%s")' % self.data]
        for key, value in chosen.items():
            command += ["--set", "%s=%s" % (key, json.dumps(value))]
        outcome = harness.zplan(*command, *words, "--steps", 1, "--threads", 1, "--check-memory", env=trainings.ENVIRONMENT)
        shutil.rmtree(place, ignore_errors=True)
        good = outcome.status == 0
        self.tally.check(name, good, "" if good else outcome.tail())
        if not good:
            return None
        norm = harness.read_log(place + ".jsonl")[0][0]["grad_norm"]
        if norm is None:  # infinite, or not a number
            self.tally.check(name, False, "the norm is not finite")
            return None
        if self.verbose:
            print("%-40s %-10s micro-batch %4d: %.6f  %5.2f s" % (name, precision, microbatch, norm, outcome.seconds), flush=True)
        return norm

    def compare(self, name, got, want, bound):
        if got is None or want is None:
            return
        error = abs(got - want) / want
        self.tally.check(name, error <= bound, "%.6f, not %.6f: %.1e > %.0e" % (got, want, error, bound))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verbose", action="store_true")
    verbose = parser.parse_args().verbose
    harness.require_zplan()
    with harness.Scratch() as folder:
        suite = Suite(folder, verbose)
        exact = suite.norm("one rank in f64", "fp64", (1, 1, 1), 64, 64)
        whole = {}
        for precision in PRECISIONS:
            whole[precision] = suite.norm("one rank, at once", precision, (1, 1, 1), MANY, MANY)
            suite.compare("%s against f64" % precision, whole[precision], exact, ROUNDED)
            for microbatch in (64, 1) if harness.my_turn(PRECISIONS.index(precision), len(PRECISIONS)) else (64,):
                name = "%s, micro-batches of %d" % (precision, microbatch)
                suite.compare(name, suite.norm(name, precision, (1, 1, 1), MANY, microbatch), whole[precision], SAME)
        for name, tensor, pipeline, data, settings, words in trainings.in_turn(PLACES, values=lambda one: {*enumerate(one[1:4]), *one[4].items(), one[5]}):
            ranks = tensor, pipeline, data
            rounds = tensor > 1 or words
            want = suite.norm(name + ", at once", "mixed_bf16", ranks, FEW, FEW // data, settings, words) if rounds else whole["mixed_bf16"]
            suite.compare(name, suite.norm(name, "mixed_bf16", ranks, SOME, 1, settings, words), want, SAME)
        return suite.tally.finish()


if __name__ == "__main__":
    sys.exit(main())
