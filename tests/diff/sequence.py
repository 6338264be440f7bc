#!/usr/bin/env python3
"""Sequence-split norms: every tensor rank has its share of every sample's positions between the products, and the trained
model is that of one rank.

    sequence.py [--only TEXT] [--verbose]

Layouts of gpt.dz (tied embedding, learned positions, dropout between norms), llama.dz and moe.dz with sequence = true, against one
rank, with the bounds of layouts.py. Every run has --check-memory: arena peaks and bytes sent are the plan's. What must be so for
the test to mean anything is checked too: the plan splits, the trainer gathers and scatters, and tensor ranks that do not divide
the positions are refused.
"""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import layouts  # noqa: E402
from layouts import Case, harness  # noqa: E402

SEQUENCE = ("--set", "sequence=true")
GPU = ("--cluster", "gpu", "--arch", "host")
NONE, FULL, SELECTIVE = 0, 1, 2  # indices into layouts.RECOMPUTE
STEPS, GPU_STEPS = 6, 2
EXIT_NO_PLAN = 3


def case(model, precision, t, p, d, micro, zero=0, recompute=NONE, cut="layer", modes=(), order="tdp", expert=1, experts=0, batch=4):
    return Case(model, precision, t, p, d, zero, recompute, 0, micro, batch, modes, cut, order, expert, experts)


# (case, words besides, steps)
CASES = tuple((one, (), STEPS) for one in (
    case("gpt", "fp64", 2, 1, 1, 2),
    case("gpt", "fp64", 2, 1, 1, 2, recompute=SELECTIVE),
    case("gpt", "fp64", 4, 1, 1, 4, recompute=FULL),
    case("gpt", "fp64", 8, 1, 1, 1),  # more ranks than heads
    case("gpt", "fp64", 2, 2, 1, 1, recompute=FULL),  # tied embedding on both stages
    case("gpt", "fp64", 2, 3, 1, 2, cut="block", recompute=SELECTIVE),
    case("gpt", "fp64", 2, 2, 2, 2, zero=1, order="tpd"),
    case("gpt", "fp64", 2, 3, 1, 1, modes=("full", "none", "selective")),
    case("gpt", "fp32", 2, 2, 1, 2),
    case("llama", "fp64", 2, 1, 2, 1, zero=1, recompute=SELECTIVE),
    case("llama", "fp64", 4, 2, 1, 2, cut="block"),
    case("llama", "fp32", 2, 1, 1, 2, recompute=FULL),
    case("moe", "fp64", 2, 1, 1, 2),
    case("moe", "fp64", 2, 2, 1, 1, recompute=FULL),
    case("moe", "fp64", 2, 1, 2, 2, zero=1, expert=2, experts=8),
)) + tuple((one, ("--set", "model.layers=2") + GPU, GPU_STEPS) for one in (
    case("gpt", "fp64", 2, 1, 1, 2, recompute=FULL),
    case("gpt", "fp64", 2, 2, 1, 1, recompute=SELECTIVE),
    case("llama", "fp32", 2, 1, 2, 2, zero=1),
))


def check_refusal(tally):
    """Sixteen positions do not fall apart in three equal shares."""
    outcome = harness.zplan("plan", os.path.join(HERE, "gpt.dz"), "--ranks", 3, "--set", "tensor=3", *SEQUENCE)
    tally.check("three ranks do not divide 16 positions", outcome.status == EXIT_NO_PLAN and "sequence" in outcome.out + outcome.err,
                outcome.tail())


def check_generated(tally, folder):
    """The trainer of such a plan exchanges shares and sums no whole activations; norms have half the rows."""
    tree = os.path.join(folder, "tree")
    outcome = harness.zplan("build", os.path.join(HERE, "gpt.dz"), "--ranks", 2, "--set", "tensor=2", *SEQUENCE, "-o", tree)
    if not tally.check("a trainer with sequence is built", outcome.status == 0, outcome.tail()):
        return
    with open(os.path.join(tree, "trainer.c"), encoding="utf-8") as file:
        text = file.read()
    for call in ("zpr_all_gather_sequence", "zpr_reduce_scatter_sequence", ".grad_partial = true"):
        tally.check("trainer.c has %s" % call, call in text)
    tally.check("trainer.c sums no whole activation", "zpr_all_reduce" not in text)


def main():
    parser = argparse.ArgumentParser(description="sequence-split norms against one rank")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally, references, largest = harness.Tally(), {}, {}
    with harness.Scratch() as folder:
        check_refusal(tally)
        check_generated(tally, folder)
        for number, (one, more, steps) in enumerate(CASES):
            name = layouts.name_of(one) + (" on the emulated GPU" if GPU[0] in more else "")
            if options.only not in name:
                continue
            key = layouts.reference_of(one), steps
            smaller = tuple(word for word in more if word not in GPU)
            for place, what, words in ((key, layouts.reference_of(one), smaller), (number, one, more + SEQUENCE)):
                if place in references:
                    continue
                path = os.path.join(folder, "%d_%s" % (number, place == key))
                os.makedirs(path)
                references[place] = layouts.train(what, path, steps, words)
            errors = layouts.judge(tally, one, references[number], references[key]) or {}
            for quantity, error in errors.items():
                largest[one.precision, quantity] = max(largest.get((one.precision, quantity), 0.0), error)
            if options.verbose:
                print("%5.2f s  %s: %s" % (references[number].seconds, name, errors), flush=True)
    for (precision, quantity), error in sorted(largest.items()):
        print("largest error, %s, %s: %.2e of %.0e allowed" % (precision, quantity, error, layouts.BOUNDS[precision][quantity]))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
