#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions of searches, builds and trainers, counted by callgrind, of this zplan and of an older one: does the same work take more?

    instructions.py [--only WORDS] [--steps N] ZPLAN [OLDER ZPLAN]

Both read the examples beside the last one. Counts are of zplan's own code and libc, without the libraries of math, LLVM and messages:
waiting spins. Build runs under valgrind as well, because what the processor shows there decides which kernels are compiled: valgrind
knows no AVX-512. Figures: README.md. How far two counts of the same work differ has not been measured.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=%s.%%p")
HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, "..", "..", "examples", "text.txt")
TINY = ("--set", 'train.data=text("%s")' % TEXT, "--set", "train.batch=2", "--set", "model.layers=2")
HOST = ("--target", "cuda", "--arch", "host", "--cluster", "gpu", "--set", 'offload[optimizer]="cpu"', "--set", 'offload[gradients]="cpu"')
# name, what is planned, ranks and settings; a build and five steps of its trainer each.
TRAININGS = (
    ("gpt_tiny", "gpt_tiny.dz", 1, TINY),
    ("llama_tiny", "llama_tiny.dz", 1, TINY),
    ("moe_tiny", "moe_tiny.dz", 1, TINY),
    ("gpt_tiny zero 3", "gpt_tiny.dz", 2, TINY + ("--set", "data=2", "--set", "zero=3")),
    ("offloaded", "../tests/diff/gpt.dz", 1, HOST),
)
SEARCHES = (("gpt1t 800", "gpt1t.dz", 800), ("gpt1t 4096", "gpt1t.dz", 4096))
OURS = re.compile(r"/(zplan|trainer)$|/libc\.so|/libzplan")


def own_instructions(path):
    """Self costs of a callgrind file's objects that are ours."""
    names, ours, total, call = {}, False, 0, False
    with open(path) as lines:
        for line in lines:
            if line.startswith("ob="):
                number, name = re.match(r"ob=(\(\d+\))(?: (.*))?", line).groups()
                names[number] = name or names[number]
                ours = bool(OURS.search(names[number]))
            elif line.startswith("cob="):
                number, name = re.match(r"cob=(\(\d+\))(?: (.*))?", line).groups()
                names[number] = name or names[number]
            elif line.startswith("calls="):
                call = True
            elif line[0] in "0123456789+-*":
                if ours and not call:
                    total += int(line.split()[1])
                call = False
    return total


def counted(folder, words, ranks=1):
    """Millions of instructions; None: it failed."""
    out = os.path.join(folder, "counts")
    for old in glob.glob(out + ".*"):
        os.remove(old)
    launch = () if ranks == 1 else ("mpirun", "-n", str(ranks), "--oversubscribe", "--allow-run-as-root")
    env = dict(os.environ, ZPLAN_CALIBRATION="none", OPENBLAS_CORETYPE="Haswell", OPENBLAS_NUM_THREADS="1")
    done = subprocess.run((*launch, CALLGRIND[0], CALLGRIND[1], CALLGRIND[2] % out, *words), cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write("%s\n%s\n" % (" ".join(words), done.stderr[-1500:]))
        return None
    return sum(own_instructions(path) for path in glob.glob(out + ".*")) / 1e6


def build_and_train(zplan, examples, training, steps, folder):
    """A build, and steps of what it made, by the way that was chosen under valgrind."""
    _, file, ranks, settings = training
    tree, kept = os.path.join(folder, "tree"), os.path.join(folder, "kept")
    yield "build", counted(folder, (zplan, "build", os.path.join(examples, file), "--gpus", str(ranks), "-o", tree, *settings))
    words = (os.path.join(tree, "trainer"), "--steps", str(steps), "--threads", "1", "--checkpoint", kept)
    yield "trainer", counted(folder, words, ranks)


def search(zplan, examples, instance, folder):
    _, file, gpus = instance
    yield "search", counted(folder, (zplan, "plan", os.path.join(examples, file), "--gpus", str(gpus), "--json"))


def show(name, each):
    """each: what one program did, by program; the first is the newer one."""
    for what, counts in ((kind, [by[kind] for by in each]) for kind in each[0]):
        ratio = "  ratio %.3f" % (counts[0] / counts[1]) if len(counts) > 1 and None not in counts else ""
        print("%-8s %-16s %s%s" % (what, name, "  ".join("failed" if c is None else "%10.1f M" % c for c in counts), ratio), flush=True)


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s [--only WORDS] [--steps N] ZPLAN [OLDER ZPLAN]")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("zplan", nargs="+")
    options = parser.parse_args()
    programs = [os.path.abspath(zplan) for zplan in options.zplan]
    examples = os.path.join(os.path.dirname(programs[-1]), "..", "..", "examples")
    for row in (*TRAININGS, *SEARCHES):
        if options.only not in row[0]:
            continue
        each = []
        for zplan in programs:
            with tempfile.TemporaryDirectory() as folder:
                work = search(zplan, examples, row, folder) if row in SEARCHES else build_and_train(zplan, examples, row, options.steps, folder)
                each.append(dict(work))
        show(row[0], each)


main()
