#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequence-split norms: every tensor rank has its share of every sample's positions between the products, and the trained
model is that of one rank.

    sequence.py [--only TEXT] [--verbose]

Layouts of gpt.dz (tied embedding, learned positions, dropout between norms), llama.dz and moe.dz with sequence = true, against one
rank, with the bounds of tests/support/trainings.py, as many at a time as trainings.in_turn takes. Every run has --check-memory: arena peaks and bytes sent are the plan's. What must be so for
the test to mean anything is checked too: the plan splits, the trainer gathers and scatters, and tensor ranks that do not divide
the positions are refused.
"""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

SEQUENCE = ("--set", "sequence=true")
GPU = ("--cluster", "gpu", "--arch", "host")
NONE, FULL, SELECTIVE = "none", "full", "selective"
STEPS, GPU_STEPS = 4, 2
EXIT_NO_PLAN = 3


def case(model, precision, t, p, d, micro, zero=0, recompute=NONE, cut="layer", modes=(), order="tdp", expert=1, experts=0,
         schedule="1f1b"):
    more = {"plan.expert": expert} if model == "moe" else {}
    if experts:
        more["model.n"] = experts
    if modes:
        more["stage_recompute"] = modes
    return trainings.layout(model, tensor=t, pipeline=p, data=d, precision=precision, microbatch=micro, zero=zero, recompute=recompute,
                            cut=cut, rank_order=order, batch=4, sequence=True, schedule=schedule, more=more)


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
    case("gpt", "fp64", 2, 2, 1, 1, schedule="zb_h1"),
    case("gpt", "fp32", 2, 2, 1, 2),
    case("llama", "fp64", 2, 1, 2, 1, zero=1, recompute=SELECTIVE),
    case("llama", "fp64", 4, 2, 1, 2, cut="block"),
    case("llama", "fp32", 2, 1, 1, 2, recompute=FULL),
    case("moe", "fp64", 2, 1, 1, 2),
    case("moe", "fp64", 2, 2, 1, 1, recompute=FULL),
    case("moe", "fp64", 2, 1, 2, 2, zero=1, expert=2, experts=8),
    case("gpt", "fp64", 2, 2, 2, 1, zero=2, schedule="zb_h1"),
    case("gpt", "fp64", 2, 1, 2, 1, zero=3, recompute=FULL),
    case("llama", "fp64", 2, 1, 4, 1, zero=3),  # norms on one data rank, or cut between two
    case("moe", "fp64", 2, 1, 2, 2, zero=3, expert=2, experts=8),
)) + tuple((one, ("--set", "model.layers=2") + GPU, GPU_STEPS) for one in (
    case("gpt", "fp64", 2, 1, 1, 2, recompute=FULL),
    case("gpt", "fp64", 2, 2, 1, 1, recompute=SELECTIVE),
    case("llama", "fp32", 2, 1, 2, 2, zero=1),
))


def check_refusal(tally):
    """Sixteen positions do not fall apart in three equal shares."""
    outcome = harness.zplan("plan", os.path.join(HERE, "gpt.dz"), "--ranks", 3, "--set", "tensor=3", *SEQUENCE)
    tally.check("three ranks do not divide 16 positions", outcome.status == EXIT_NO_PLAN and
                "cannot be split along the sequence over 3 tensor ranks" in outcome.err, outcome.tail())


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
    harness.build_quickly()
    tally, references, largest = harness.Tally(), {}, {}
    with harness.Scratch() as folder:
        check_refusal(tally)
        check_generated(tally, folder)
        for number, (one, more, steps) in enumerate(trainings.in_turn(CASES, values=lambda case: trainings.values_of(case[0]) | {case[1]}, among=3)):
            name = one.name + (" on the emulated GPU" if GPU[0] in more else "")
            if options.only not in name:
                continue
            key = one.model, one.reference, steps
            smaller = tuple(word for word in more if word not in GPU)
            for place, settings, words in ((key, one.reference, smaller), (number, one.settings, more)):
                if place in references:
                    continue
                path = os.path.join(folder, "%d_%s" % (number, place == key))
                os.makedirs(path)
                references[place] = trainings.train(one.model, dict(settings), path, steps, words)
            errors = trainings.judge(tally, name, references[number], references[key], trainings.BOUNDS[one.group]) or {}
            for quantity, error in errors.items():
                largest[one.group, quantity] = max(largest.get((one.group, quantity), 0.0), error)
            if options.verbose:
                print("%5.2f s  %s: %s" % (references[number].seconds, name, errors), flush=True)
    for (precision, quantity), error in sorted(largest.items()):
        print("largest error, %s, %s: %.2e of %.0e allowed" % (precision, quantity, error, trainings.BOUNDS[precision][quantity]))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
