#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of `zplan sample` with kept keys and values and without, in turn: GPT-2 124M at random weights, samples of 1,024 tokens.

    decode.py [ROUNDS]     3 rounds unless told otherwise, about two minutes; ZPLAN=path: another binary than build/release/zplan

A prompt of 256 bytes; 64 tokens are added with what is kept, 4 without, and the first of each is the prompt's. Printed: every round's rate,
medians and their ratio. Both alternate, so that whatever else the machine does hits both.
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ZPLAN = os.path.abspath(os.environ.get("ZPLAN") or os.path.join(HERE, "..", "..", "build", "release", "zplan"))
PROMPT = 256
TOLD = re.compile(r"prompts of (\d+) tokens in ([0-9.]+) s, \d+ more at ([0-9.]+) tokens/s")
WAYS = {"kept": ("--tokens", "64"), "whole": ("--tokens", "4", "--no-cache")}


def zplan(*words):
    done = subprocess.run([ZPLAN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode:
        sys.exit("zplan %s failed:\n%s" % (" ".join(words), done.stderr[-2000:]))
    return done.stderr


def main():
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    rounds = int(sys.argv[1]) if len(sys.argv) == 2 else 3
    with open(os.path.join(HERE, "..", "..", "examples", "text.txt"), encoding="utf-8") as file:
        prompt = file.read()[:PROMPT]
    prompt_s, rate = {name: [] for name in WAYS}, {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "checkpoint")
        settings = ("model.S=1024", "train.optimizer=sgd(lr=1.0)", "train.batch=1", "plan.microbatch=1", 'train.checkpoint.dir="%s"' % place)
        zplan("run", os.path.join(HERE, "gpt2_bench.dz"), "--ranks", "1", "--steps", "0", "-o", os.path.join(folder, "tree"),
              *(word for setting in settings for word in ("--set", setting)))
        for turn in range(rounds):
            with open("/proc/loadavg", encoding="ascii") as load:
                print("round %d, load %s" % (turn + 1, " ".join(load.read().split()[:3])), flush=True)
            for name, words in WAYS.items():
                tokens, seconds, per_s = TOLD.search(zplan("sample", place, "--prompt", prompt, "-o", os.path.join(folder, "sample"), *words)).groups()
                prompt_s[name].append(float(seconds))
                rate[name].append(float(per_s))
                print("  %-5s  prompt of %s tokens %6.3f s, then %7.2f tokens/s" % (name, tokens, float(seconds), float(per_s)), flush=True)
    first, median = ({name: statistics.median(values) for name, values in table.items()} for table in (prompt_s, rate))
    print("GPT-2 124M, f32, samples of 1024: kept %.2f, whole %.2f tokens/s, ratio %.1f; prompt %.3f and %.3f s, ratio %.1f" % (
        median["kept"], median["whole"], median["kept"] / median["whole"], first["kept"], first["whole"], first["whole"] / first["kept"]))


if __name__ == "__main__":
    main()
