#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scripts of `zplan export fsdp2`, run as they are on CPU ranks with gloo: ZeRO 2, ZeRO 3 with recomputation, ZeRO 3 in shard groups (HSDP).
From the same weights on the same samples their 20 losses are those of zplan's own trainer with the same plan, to 1e-5; gradient norms to 1e-4.
A fourth run begins with the weights that one has saved: the losses fall on from there."""
import json
import os
import sys

import training
from training import harness

# name, ZeRO, ranks, further settings; the groups accumulate over two micro-batches, too
LAYOUTS = (("ZeRO 2", 2, 2, {}), ("ZeRO 3, recomputed", 3, 2, {"recompute": "full"}), ("HSDP", 3, 4, {"shard": 2, "batch": 8}))
# Six heads share two of keys and values.
OF_LLAMA = (("Llama, ZeRO 3, recomputed", 3, 2, {"recompute": "full", "file": training.LLAMA}),
            ("Llama, HSDP", 3, 4, {"shard": 2, "batch": 8, "file": training.LLAMA}),
            ("Llama, ZeRO 2", 2, 2, {"file": training.LLAMA}))


def train(script, ranks, *words):
    """(outcomes, what rank 0 has printed as {"losses", "norms"})"""
    outcomes = training.start_ranks([script, "--data", training.TEXT, *words], training.free_port(), ranks)
    try:
        steps = [json.loads(line) for line in outcomes[0].out.splitlines() if line.startswith("{")]
    except ValueError:
        steps = []
    return outcomes, {"losses": [step["loss"] for step in steps], "norms": [step["grad_norm"] for step in steps]}


def check_layout(tally, folder, weights, layout):
    """The saved weights, or None."""
    name, zero, ranks, more = layout
    saved = os.path.join(folder, "saved-%s.safetensors" % name.replace(" ", "-"))
    script = training.export(tally, folder, "fsdp2", zero, "py", ranks, **more)
    want = training.zplan_losses(tally, folder, zero, ranks, **more)
    if not script or not want:
        return None
    outcomes, got = train(script, ranks, "--weights", weights, "--save", saved)
    ended = all(outcome.status == 0 for outcome in outcomes)
    if not tally.check(name + ": the script trains", ended and got["losses"], "\n".join(outcome.tail(12) for outcome in outcomes)):
        return None
    training.compare(tally, name, got, want)
    return saved, script, got


def check_saved(tally, weights, saved, script, got):
    from safetensors.torch import load_file
    before, after = load_file(weights), load_file(saved)
    tally.check("saved: tensors", {n: t.shape for n, t in before.items()} == {n: t.shape for n, t in after.items()}, str(sorted(after)))
    tally.check("saved: every tensor was trained", all(not before[n].equal(after[n]) for n in before))
    outcomes, again = train(script, training.RANKS, "--weights", saved)
    ended = all(outcome.status == 0 for outcome in outcomes)
    tally.check("saved: losses fall on", ended and again["losses"] and again["losses"][0] < got["losses"][0] - 1,
                str(again["losses"][:1]) + "\n".join(outcome.tail() for outcome in outcomes))


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        weights = training.initial_weights(tally, folder)
        if weights:
            results = [check_layout(tally, folder, weights, layout) for layout in LAYOUTS]
            if results[0]:
                check_saved(tally, weights, *results[0])
        weights = training.initial_weights(tally, folder, training.LLAMA)
        results = [weights and check_layout(tally, folder, weights, layout) for layout in OF_LLAMA]
        if results[0]:
            check_saved(tally, weights, *results[0])
    sys.exit(tally.finish())


if __name__ == "__main__":
    main()
