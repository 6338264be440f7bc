#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models with several tensors between units train the same in every layout.

    streams.py [--only TEXT] [--list] [--jobs N] [--verbose]

t5.dz: an encoder and a decoder, lengths, relative biases that share a table, dropout of probabilities. streams.dz: two streams that a repeat carries, skip connections over repeats, a matrix that layers share. Pipelines cut everywhere, schedules
which split backward or fold, kept shards, ZeRO, the loss by parts, the emulated GPU, whose masks of dropout are those of CPU ranks; losses, norms and parameters of 3 steps in f64 against one
rank, 1e-10 as in layouts.py; the arena and all messages to the byte (--check-memory).
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS = 3
GPU = ("--cluster", "gpu", "--arch", "host")

# Cuts fall into every repeat: between what changes, where a tensor passes by, where it is read on both sides.
WIDE = {"model.layers": 1, "model.d": 72}


def case(model, t=1, p=1, d=1, words=(), **settings):
    return trainings.layout(model, t, p, d, words=words, **settings)


TABLE = (
    case("streams", 2, 1, 1, recompute="full", recompute_shard="tensor"),
    case("streams", 1, 4, 1),
    case("streams", 2, 2, 2, zero=3, recompute="full"),
    case("streams", 1, 2, 2, zero=2, schedule="zb_v", chunks=2),
    case("streams", 1, 8, 1, cut="block", recompute="full", more=WIDE),
    case("streams", 2, 4, 1, cut="block", schedule="zb_h2", more=WIDE),
    case("streams", 2, 4, 1, cut="block", sequence=True, more=WIDE),
    case("streams", 1, 2, 1, words=GPU),
    case("t5", 2, 2, 1, sequence=True, recompute="selective"),
    case("t5", 1, 2, 2, zero=3, cut="block"),
    case("t5", 2, 2, 1, schedule="zb_h2", microbatch=2, loss_chunks=2, recompute="full", recompute_shard="tensor"),
    case("t5", 1, 6, 1, cut="block", schedule="zb_h1"),
    case("t5", 2, 3, 1, cut="block", schedule="interleaved", chunks=2, recompute="full", recompute_shard="tensor"),
    case("t5", 2, 1, 1, words=GPU),
    case("t5", 1, 4, 1, words=GPU, cut="block"),
)


def check_text(tally, folder):
    """The generated C has no warning, with biases, lengths and arguments of several tensors."""
    tree = os.path.join(folder, "strict")
    outcome = harness.zplan("build", os.path.join(trainings.MODELS, "t5.dz"), "--cluster", "cpu", "--ranks", 4, "--set", "pipeline=4", "--set", 'cut="block"', "-o",
                            tree, env=harness.QUICK)
    if tally.check("t5 builds", outcome.status == 0 and "warning" not in outcome.err, outcome.tail()):
        includes = ["-I" + os.path.join(harness.ROOT, part, "include") for part in ("runtime", "kernels")]
        strict = harness.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", *includes, os.path.join(tree, "trainer.c")])
        tally.check("t5: no warning", strict.status == 0, strict.tail())


if __name__ == "__main__":
    sys.exit(trainings.main("several streams train the same", TABLE, check_text, steps=STEPS, value_turns=3))
