# SPDX-License-Identifier: Apache-2.0
"""Training steps with block-sparse attention and with dense attention, in turn on one rank: medians and ratio. examples/gpt_long.dz, causal;
sparse_bert.dz, both ways with key padding: bigbird, and fixed runs with other global blocks for other heads.

    sparse_attention.py ROUNDS MOST_POSITIONS
"""
import os
import re
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

EXAMPLE = os.path.join(harness.ROOT, "examples", "gpt_long.dz")
BERT = os.path.join(HERE, "sparse_bert.dz")
STEPS, LAYERS = 2, 2  # a step in which memory is touched for the first time, and one that counts


def without_pattern(folder):
    with open(EXAMPLE, encoding="utf-8") as file:
        text, count = re.subn(r", pattern = near_and_first\b", "", file.read())
    if count != 1:
        sys.exit("sparse_attention.py: gpt_long.dz has another pattern")
    path = os.path.join(folder, "dense.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def build(source, positions, settings, tree):
    outcome = harness.zplan("build", source, "--ranks", 1, "--set", "model.S=%d" % positions, "--set", "model.layers=%d" % LAYERS,
                            "--set", "batch=1", "--set", "steps=%d" % STEPS, "--set", "schedule=constant", "--set",
                            "data=synthetic(seed = 1)", *settings, "-o", tree)
    if outcome.status != 0:
        sys.exit(outcome.tail())
    return outcome.out.strip().splitlines()[-1]


def step_ms(trainer, log):
    outcome = harness.run([trainer, "--log", log])
    if outcome.status != 0:
        sys.exit(outcome.tail())
    return harness.read_log(log)[0][-1]["step_ms"]


def compare(title, variants, rounds, most, folder):
    """variants: {what: (source, words)}, the first one dense; the ratios of the others to it."""
    dense, *others = variants
    print("%s, %d layers\n%6s  %s" % (title, LAYERS, "length", " ".join(["%12s" % (dense + " ms")] + ["%12s  ratio" % (what + " ms") for what in others])))
    positions = 1024
    while positions <= most:
        trainers = {what: build(source, positions, words, os.path.join(folder, "%d" % positions, what)) for what, (source, words) in variants.items()}
        times = {what: [] for what in variants}
        for _ in range(rounds):
            for what, trainer in trainers.items():
                times[what].append(step_ms(trainer, os.path.join(folder, "log.jsonl")))
        median = {what: statistics.median(of) for what, of in times.items()}
        print("%6d  %12.1f %s" % (positions, median[dense], " ".join("%12.1f %6.2f" % (median[what], median[dense] / median[what]) for what in others)), flush=True)
        positions *= 2


def main():
    rounds, most = int(sys.argv[1]), int(sys.argv[2])
    with harness.Scratch() as folder:
        compare("gpt_long", {"dense": (without_pattern(folder), ()), "sparse": (EXAMPLE, ())}, rounds, most, os.path.join(folder, "gpt"))
        bert = {"dense": ("--set", "model.sparse=false"), "bigbird": (), "fixed": ("--set", "model.fixed=true")}
        compare("sparse_bert", {what: (BERT, words) for what, words in bert.items()}, rounds, most, os.path.join(folder, "bert"))


if __name__ == "__main__":
    main()
