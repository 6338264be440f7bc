#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU trainers whose saved values and parameters live off the device train the same bits as without.

    offload_values.py [--all] [--only TEXT] [--list] [--jobs N] [--verbose]

1. A table of plans on the emulated GPU: saved values and parameters, in part or whole, on the host or on disks, with
   optimizer state alongside them, all schedules, cuts inside layers, recomputation, tensor and data ranks, ZeRO 0 to 3.
   Losses, gradient norms and parameters against one CPU rank (bounds of offload.py). Every run has --check-memory: the arena's
   peak, bytes between ranks and bytes between device, host and disk are the plan's.
2. The same plans with everything on the device, every third one by turns, write the same checkpoints, to the last byte. (Where optimizer state or gradients are off the device,
   too, the host updates, or adds and squares, and rounds differently, and shards that are whole pages end elsewhere: then the bounds alone hold.)
3. Bytes that parameters move, computed again from their number.
4. A run with offload continues one without, and the other way round: to the last byte, but for gradients, which the host adds.
5. What is not generated is refused with its name.
"""
import os
import shutil
import sys

import offload  # puts tests/support on the path
import harness
import trainings
from offload import BOUNDS, FILES, STEPS, offloaded

PARAMETERS = 42600  # of gpt.dz with two layers

WHOLE_PARAMETERS = offloaded("gpt", "fp64", 1, 1, 1, {"params": "host:8"})
BOTH = offloaded("gpt", "fp64", 1, 1, 1, {"params": "nvme:8", "gradients": "nvme:8"}, microbatch=4)

TABLE = (
    offloaded("gpt", "fp64", 1, 1, 1, {"activations": "host:8"}),
    offloaded("gpt", "fp64", 1, 1, 1, {"activations": "host:3"}, microbatch=2),
    offloaded("gpt", "fp64", 1, 1, 1, {"activations": "nvme:8"}, recompute="full"),
    offloaded("gpt", "fp64", 1, 2, 1, {"activations": "host:8"}, schedule="gpipe", cut="block"),
    offloaded("gpt", "fp64", 1, 2, 1, {"activations": "nvme:8", "params": "host:8"}, schedule="interleaved", chunks=2),
    offloaded("llama", "fp64", 2, 1, 1, {"activations": "host:8"}, recompute="full", recompute_shard="tensor"),
    offloaded("gpt", "fp64", 1, 1, 2, {"activations": "host:4"}, zero=2),
    WHOLE_PARAMETERS,
    offloaded("gpt", "fp64", 1, 2, 2, {"params": "host:5", "activations": "host:8"}, zero=3, recompute="selective"),
    # held whole by data ranks that own pieces of them: every owner's last elements are offloaded
    offloaded("gpt", "fp64", 1, 1, 2, {"params": "host:3"}, zero=1),
    offloaded("gpt", "fp64", 1, 1, 3, {"params": "host:5", "optimizer": "host:3"}, zero=1, batch=6),
    offloaded("gpt", "fp64", 2, 1, 2, {"params": "host:8", "optimizer": "nvme:8", "gradients": "host:8"}, zero=1),
    offloaded("moe", "fp64", 1, 1, 2, {"params": "host:3"}, zero=2, **{"plan.expert": 2, "model.n": 4}),
    # on disks
    offloaded("gpt", "fp64", 1, 1, 1, {"params": "nvme:8"}),
    offloaded("gpt", "fp64", 1, 2, 2, {"params": "nvme:5", "activations": "nvme:8"}, zero=3, recompute="selective"),
    offloaded("gpt", "fp64", 1, 1, 1, {"optimizer": "host:8", "gradients": "nvme:8"}),
    offloaded("gpt", "mixed_bf16", 2, 1, 2, {"params": "nvme:8", "optimizer": "nvme:8", "gradients": "nvme:8"}, zero=3),
    offloaded("gpt", "fp64", 1, 2, 1, {"params": "nvme:8", "optimizer": "nvme:8", "gradients": "nvme:8"}, schedule="zb_v"),
    # gradients and parameters, the optimizer's state on the device
    BOTH,
    offloaded("gpt", "fp64", 1, 2, 2, {"params": "nvme:3", "gradients": "nvme:5"}, zero=2, schedule="zb_h1"),
    offloaded("gpt", "fp64", 2, 1, 2, {"params": "nvme:5", "gradients": "nvme:3", "optimizer": "host:2"}, zero=1),
    offloaded("gpt", "fp64", 1, 2, 1, {"gradients": "nvme:8"}, microbatch=2),
    offloaded("gpt", "fp64", 1, 1, 3, {"gradients": "host:3"}, zero=2, batch=6),
    offloaded("moe", "fp64", 1, 1, 2, {"params": "nvme:8", "gradients": "nvme:8"}, zero=3, **{"plan.expert": 2, "model.n": 4}),
    offloaded("gpt", "mixed_bf16", 1, 1, 2, {"params": "nvme:8", "gradients": "nvme:8", "activations": "nvme:8"}, zero=1),
    offloaded("llama", "fp32", 2, 1, 1, {"params": "host:8"}),
    offloaded("gpt", "mixed_bf16", 1, 2, 1, {"params": "host:6", "activations": "nvme:8"}, cut="block"),
    offloaded("gpt", "fp64", 1, 1, 2, {"params": "host:8", "optimizer": "host:8", "activations": "host:8"}, zero=3),
    # a layer's eighth is less than a page: on the first stage nothing leaves, its units still work in the ring
    offloaded("gpt", "fp64", 1, 2, 1, {"activations": "nvme:1"}, recompute="full"),
    # backward in two parts: the gradient of the logits stands in their place, and goes out again between them
    offloaded("gpt", "fp64", 1, 2, 1, {"activations": "host:8"}, schedule="zb_h1"),
    # streams stay on the device
    offloaded("streams", "fp64", 1, 2, 1, {"activations": "nvme:5"}, schedule="zb_v", recompute="full"),
    offloaded("t5", "fp64", 1, 4, 1, {"activations": "host:5"}, cut="block", schedule="zb_h1"),
    # the loss by parts, in backward: what it reads has come again
    offloaded("gpt", "fp64", 1, 2, 1, {"activations": "host:8", "params": "host:8"}, loss_chunks=4),
    offloaded("gpt", "fp64", 1, 2, 1, {"activations": "nvme:5"}, schedule="zb_v", loss_chunks=2),
    offloaded("gpt", "fp64", 1, 2, 1, dict.fromkeys(("optimizer", "gradients", "params", "activations"), "host:8"), schedule="zb_h1"),
    offloaded("gpt", "fp64", 1, 2, 2, {"optimizer": "nvme:8", "gradients": "host:8", "params": "host:5", "activations": "host:8"},
         schedule="zb_v", zero=3),
)
# With --all: tier, ZeRO, schedule and model of each stand in the table above as well, in other company.
MORE = (
    offloaded("gpt", "fp64", 1, 2, 1, {"activations": "nvme:5"}, recompute="selective"),
    offloaded("gpt", "fp64", 1, 2, 2, {"params": "host:8"}, zero=2),
    offloaded("gpt", "fp64", 1, 2, 2, {"params": "nvme:8", "optimizer": "host:8"}, zero=2),
    offloaded("gpt", "fp64", 1, 2, 2, {"params": "nvme:8", "gradients": "nvme:8"}, zero=3),
    offloaded("gpt", "fp64", 1, 1, 2, {"params": "host:3"}, recompute="full"),
    offloaded("gpt", "fp64", 1, 1, 2, {"params": "host:8"}, zero=3),
    offloaded("gpt", "fp64", 1, 1, 2, {"params": "nvme:3"}, zero=1),
    offloaded("gpt", "fp64", 1, 2, 2, {"params": "nvme:8", "optimizer": "nvme:8", "gradients": "nvme:8"}, zero=3),
    offloaded("gpt", "fp64", 1, 2, 2, {"optimizer": "nvme:8", "gradients": "nvme:5"}, zero=1),
    offloaded("gpt", "fp64", 1, 1, 2, {"params": "nvme:3", "optimizer": "host:8"}, zero=3),
    offloaded("moe", "fp64", 1, 1, 2, {"params": "nvme:8", "optimizer": "host:6", "gradients": "nvme:6"}, zero=2, **{"plan.expert": 2, "model.n": 4}),
    offloaded("gpt", "fp64", 1, 1, 2, {"params": "nvme:8", "gradients": "host:5", "optimizer": "nvme:3"}),
    offloaded("gpt", "fp64", 1, 1, 1, {"params": "host:3", "optimizer": "nvme:6"}),
    offloaded("gpt", "fp64", 1, 1, 1, {"activations": "nvme:5"}, recompute="full"),
    offloaded("streams", "fp64", 1, 2, 1, {"activations": "host:8"}),
    offloaded("gpt", "fp64", 1, 2, 1, {"activations": "nvme:5"}, schedule="zb_v", recompute="selective"),
    offloaded("gpt", "fp64", 1, 2, 1, {"params": "host:8"}, schedule="zb_h1"),
)


def on_device(settings):
    """The same plan with everything on the device."""
    return tuple(item for item in settings if not item[0].startswith("offloaded."))


def shares_pages(settings):
    """Shards of what lives on disks are whole pages, so they end elsewhere than the twin's, and the norm's sums with them."""
    settings = dict(settings)
    return settings.get("zero", 0) > 0 and "nvme" in str(settings.get("offloaded.params", ""))


class Values(offload.Offloads):
    """Keeps checkpoints until they were compared with those of the same plan without offload."""
    twins = {}
    always = (*TABLE[:3], WHOLE_PARAMETERS, BOTH)

    def report(self, one, result):
        homes = offload.homes_of(dict(one.settings))[1]
        if not result.error and not {"optimizer", "gradients"} & set(homes) and not shares_pages(one.settings):
            key = (one.model, on_device(one.settings))
            if key not in self.twins and one not in self.always and not harness.my_turn(TABLE.index(one) if one in TABLE else 0, 3):
                return super().report(one, result)
            if key not in self.twins:
                self.twins[key] = self.run_job((1000 + len(self.twins), (*key, one.words)))
            for name in FILES:
                paths = [os.path.join(os.path.dirname(x.checkpoint), name) for x in (result, self.twins[key])]
                same = all(map(os.path.exists, paths)) and harness.same_bytes(*paths)
                self.tally.check("%s: %s as on the device" % (one.name, name), same, self.twins[key].error or "")
        return super().report(one, result)


# ---- bytes ----

def check_bytes(tally, suite):
    """Every element comes twice a micro-batch, the tied embedding for both ends of the model; without optimizer state alongside them
    parameters come up and go down once more. Alignment adds a little."""
    f64, micro_batches, tied = 8, 4, 61 * 40
    end = suite.ends.get(WHOLE_PARAMETERS.settings)
    for way, elements in (("from host", 2 * micro_batches * (PARAMETERS + tied) + PARAMETERS), ("to host", PARAMETERS)):
        got = end and end["moved_bytes"][way]
        tally.check("bytes of parameters %s" % way, end and f64 * elements <= got <= 1.12 * f64 * elements, "%s, about %d expected" % (got, f64 * elements))
    # gradients and parameters on disks, one micro-batch of four: parameters are read twice and for the update and written once, gradients
    # written (the tied one twice, and read to be added to), read for the norm, and for the update
    both = (suite.ends.get(BOTH.settings) or {}).get("moved_bytes", {})
    for way, elements in (("to host", 2 * PARAMETERS + tied), ("from host", 2 * (PARAMETERS + tied) + 2 * PARAMETERS),
                          ("written", 2 * PARAMETERS + tied), ("read", 2 * (PARAMETERS + tied) + 3 * PARAMETERS + tied)):
        got = both.get(way, -1)
        tally.check("bytes of both %s" % way, f64 * elements <= got <= 1.35 * f64 * elements, "%s, about %d expected" % (got, f64 * elements))
    whole, part = (suite.ends.get(TABLE[i].settings) for i in (0, 1))
    moved = [x and x["moved_bytes"]["to host"] for x in (whole, part)]
    tally.check("three eighths of saved values", all(moved) and 0.33 < moved[1] / moved[0] <= 0.375, str(moved))
    disk = (suite.ends.get(TABLE[2].settings) or {}).get("moved_bytes", {})
    tally.check("saved values reach the disk", disk.get("written", 0) >= disk.get("to host", 0) > 0 and disk["read"] == disk["written"], str(disk))


# ---- checkpoints ----

def check_resume(tally, folder):
    """1 + 2 steps, with offload before or after, are 3 steps without, to the last byte."""
    here, here_plan = offload.prepared(folder, "here", {}, recompute="full")
    _, left_plan = offload.prepared(folder, "left", {"params": "host:5", "activations": "nvme:8"}, recompute="full")
    _, disk_plan = offload.prepared(folder, "disk", {"params": "nvme:8", "activations": "host:3"}, recompute="full")
    whole = os.path.join(folder, "whole")
    os.makedirs(whole)
    offload.run_plan(here_plan, whole, STEPS)
    _, both_plan = offload.prepared(folder, "both", {"params": "nvme:8", "gradients": "nvme:8"}, recompute="full")
    for number, (name, first, second) in enumerate((("there", here_plan, left_plan), ("back", left_plan, here_plan),
                                                    ("to disks", left_plan, disk_plan), ("from disks", disk_plan, here_plan),
                                                    ("to both on disks", here_plan, both_plan), ("from both on disks", both_plan, here_plan))):
        if not harness.my_turn(number, 3):
            continue
        place = os.path.join(folder, name)
        os.makedirs(place)
        for plan, steps, words in ((first, 1, ()), (second, STEPS, ("--resume",))):
            ran = offload.run_plan(plan, place, steps, words=words)
            tally.check("resume %s to step %d" % (name, steps), ran.outcome.status == 0, ran.outcome.tail())
        if both_plan not in (first, second):
            offload.same_files(tally, "resumed %s" % name, place, whole)
            continue
        for file in FILES:
            paths = [os.path.join(harness.step_folder(os.path.join(x, "ck"), STEPS), file) for x in (place, whole)]
            error, tensor = harness.model_error(*paths) if all(map(os.path.exists, paths)) else (1, "no file")
            tally.check("resumed %s: %s" % (name, file), error <= BOUNDS["fp64"]["parameters"], "%g, %s" % (error, tensor))
    shutil.rmtree(here)


# ---- refusals ----

REFUSED = (
    (2, {"gradients": "nvme:8"}, {"tensor": 2, "sequence": True}, "gradients off the device with sequence-sharded norms"),
)


def check_refused(tally, folder):
    for number, (ranks, homes, more, words) in enumerate(REFUSED):
        more = dict(more)
        tensor, stages = more.pop("tensor", 1), more.pop("pipeline", 1)
        one = offloaded("gpt", "fp64", tensor, stages, ranks // tensor // stages, homes, **more)
        place = os.path.join(folder, "refused_%d" % number)
        os.makedirs(place)
        plan, why = offload.make_plan(one.model, dict(one.settings), place)
        outcome = harness.zplan("build", plan, "--arch", "host", "-o", os.path.join(place, "tree")) if plan else None
        tally.check("refused: %s" % words, outcome and outcome.status == 1 and words in outcome.err, why or outcome.err)


def main():
    return offload.run_table("saved values and parameters off the device", TABLE, Values,
                             (lambda suite, _: check_bytes(suite.tally, suite),
                              lambda suite, folder: check_resume(suite.tally, folder),
                              lambda suite, folder: check_refused(suite.tally, folder)), MORE)


if __name__ == "__main__":
    sys.exit(main())
