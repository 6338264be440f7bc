#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`train { delayed_update = after(K) }`: from step K + 1 on an update runs on the host alongside the next step, whose gradients are one update old.

    delayed.py [--all] [--only TEXT] [--list] [--jobs N] [--verbose]

1. Against PyTorch (tests/torch/delayed.py, which makes updates late by itself; committed values): 20 losses, gradient norms and the last weights of
   gpt2.dz with one layer, in f64, within 1e-12, on an emulated GPU. Up to K the losses are those of the run without delay, and later ones are not.
2. Layouts train what one rank with a delayed update does: tensor, pipeline, data ranks, ZeRO 0 to 3, gradients on the host in part or whole, a tied
   weight, experts, 16 bits; --all has more of them. --check-memory in all: peaks of device and host, bytes moved and sent are the plan's.
3. Runs in parts end with the same bytes: stopped while an update waits, before it, in steps that fp16 skips; another layout goes on, too. A run
   without delay goes on with the weights that the last update made. What stops is the checkpoint's word: without its file of stale weights it trains another thing.
4. What it cannot be combined with is rejected with a message; plan files that say another staleness are not sound.
"""
import collections
import json
import math
import os
import shutil
import sys

import offload  # puts tests/support on the path
import harness
import trainings
from offload import offloaded

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = os.path.join(os.path.dirname(HERE), "torch")
EXACT, STEPS, AFTER = 1e-12, 5, 2
FILES = ("model.safetensors", "optimizer.safetensors", "stale_weights.safetensors")
HOST = {"optimizer": "host:8"}
BOTH = {"optimizer": "host:8", "gradients": "host:8"}
DELAYED, LATE = "train.delayed_update", trainings.Expression("after(%d)" % AFTER)


def late(model, precision, t, p, d, homes, **settings):
    """A row: delayed, judged by one rank of emulated GPU whose update is delayed, too."""
    one = offloaded(model, precision, t, p, d, homes, **{DELAYED: LATE}, **settings)
    chosen = dict(one.settings)
    kept = {key: chosen[key] for key in (DELAYED, "optimizer", "train.ema") if key in chosen}
    reference = dict(trainings.reference_for(chosen), **kept, **{"offloaded.optimizer": "host:8"})
    return one._replace(reference=tuple(reference.items()))


TABLE = (
    late("gpt", "fp64", 1, 2, 2, {"optimizer": "host:8", "gradients": "host:3"}, zero=2),
    late("gpt", "mixed_bf16", 1, 1, 2, BOTH, zero=1),
)
MORE = (
    late("gpt", "fp64", 2, 1, 2, BOTH, zero=1, batch=8, microbatch=2),
    late("gpt", "fp64", 1, 1, 2, BOTH, batch=8, microbatch=2),
    late("gpt", "fp64", 1, 1, 2, HOST),
    late("gpt", "fp64", 1, 1, 3, BOTH, zero=3, batch=6),
    late("gpt", "fp64", 1, 2, 2, HOST, zero=3),
    late("gpt", "fp64", 1, 2, 1, BOTH, schedule="zb_h1"),
    late("gpt", "fp64", 1, 2, 1, HOST, schedule="zb_v", recompute="full"),
    late("gpt", "fp64", 1, 2, 2, {"optimizer": "host:8", "gradients": "host:5", "activations": "host:8"}, batch=8, schedule="gpipe", cut="block"),
    late("llama", "fp64", 2, 1, 1, {"optimizer": "host:8", "gradients": "host:5"}, recompute="selective"),
    late("llama", "fp32", 1, 1, 2, BOTH, zero=2),
    late("moe", "fp64", 1, 1, 2, {"optimizer": "host:8", "gradients": "host:3"}, zero=1, **{"plan.expert": 2, "model.n": 4}),
    late("gpt", "mixed_bf16", 1, 1, 1, BOTH),
    late("gpt", "mixed_bf16", 1, 1, 2, HOST, zero=3),
    late("gpt", "fp64", 1, 1, 2, HOST, zero=2, optimizer=trainings.Expression("sgd(lr = 3e-2, momentum = 0.8)")),
    late("gpt", "fp64", 1, 1, 2, BOTH, zero=1, **{"train.ema": 0.9}),
)


class Delayed(offload.Offloads):
    """References are trained from a plan's file, too."""

    def run_job(self, job):
        number, (model, settings, _) = job
        return super().run_job((number, (model, settings, ("a plan",))))


# ---- PyTorch ----

def on_torch(tally, folder, name, more):
    """Losses of gpt2.dz on an emulated GPU."""
    place, log = os.path.join(folder, name), os.path.join(folder, name + ".jsonl")
    cluster = "cluster gpu { nodes = 1  node = std.hw.workstation(devices = 8 * std.hw.rtx4090) }\n"
    path = os.path.join(folder, "gpt2.dz")
    with open(os.path.join(TORCH, "gpt2.dz"), encoding="utf-8") as file:
        text = file.read().replace("../../examples", os.path.join(harness.ROOT, "examples")).replace("text.txt", os.path.join(TORCH, "text.txt"))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + cluster)
    outcome = harness.zplan("run", path, "--cluster", "gpu", "--arch", "host", "--ranks", 1, "--threads", 1, "--set", 'precision="fp64"', "--set", "model.layers=1", *more, "--log", log,
                            "--check-memory", "-o", place, "--", "--checkpoint", os.path.join(place, "ck"), env=trainings.ENVIRONMENT)
    tally.check("%s: exit" % name, outcome.status == 0, outcome.tail())
    return harness.read_log(log)[0] if os.path.exists(log) else [], os.path.join(place, "ck")


def check_torch(tally, folder):
    with open(os.path.join(TORCH, "expected_gpt2_delayed.json"), encoding="utf-8") as file:
        want = json.load(file)
    steps, checkpoints = on_torch(tally, folder, "torch", ("--set", "%s=after(%d)" % (DELAYED, want["after"])))
    for key, part in (("losses", "loss"), ("grad_norms", "grad_norm")):
        got = [record[part] for record in steps]
        error = max(map(harness.number_error, got, want[key]), default=1.0)
        tally.check("PyTorch: %s" % key, len(got) == len(want[key]) == 20 and error <= EXACT, "%.2e" % error)
        print("PyTorch, updates a step late: largest difference of %s %.2e" % (key, error))
    apart = [harness.number_error(record["loss"], loss) for record, loss in zip(steps, want["ordinary"])]
    tally.check("as without delay until it begins", max(apart[:want["after"] + 1], default=1) <= EXACT, str(apart))
    tally.check("not as without delay afterwards", min(apart[want["after"] + 1:], default=0) > 1e-4, str(apart))
    tally.check("the log says the staleness", [record.get("staleness") for record in steps] == [int(step > want["after"] + 1) for step in range(1, 21)],
                str(steps[-1:]))
    last = harness.read_safetensors(os.path.join(harness.step_folder(checkpoints, 20), FILES[0])) if steps else {}
    worst = max((abs(got - wanted) / max(1, want["weights"][name][1]) for name, (_, values) in last.items()
                 for got, wanted in zip((math.fsum(values), math.fsum(x * x for x in values)), want["weights"][name])), default=1)
    tally.check("PyTorch: the last weights", sorted(last) == sorted(want["weights"]) and worst <= EXACT, "%.2e" % worst)


# ---- in parts ----

# A trainer: the folder that it is built in, its plan. Its runs have checkpoints of their own.
Trainer = collections.namedtuple("Trainer", "place plan")


def prepared(folder, name, precision, t, p, d, homes, more=None, **settings):
    place = os.path.join(folder, name)
    os.makedirs(place)
    one = offloaded("gpt", precision, t, p, d, homes, **dict({DELAYED: LATE} if more is None else more, **settings))
    return Trainer(place, offload.make_plan("gpt", dict(one.settings), place)[0])


def run(tally, what, trainer, checkpoints, steps, words=()):
    ran = offload.run_plan(trainer.plan, trainer.place, steps, words=words, last_words=("--checkpoint", checkpoints))
    tally.check("%s to step %d" % (what, steps), ran.outcome.status == 0, ran.outcome.tail())
    return ran


def files_of(checkpoints, steps):
    return [os.path.join(harness.step_folder(checkpoints, steps), name) for name in FILES]


def same_files(tally, what, one, other, steps):
    for a, b in zip(files_of(one, steps), files_of(other, steps)):
        tally.check("%s: %s" % (what, os.path.basename(a)), os.path.exists(a) and os.path.exists(b) and harness.same_bytes(a, b))


# Name, precision, layout and homes of a run, further settings; where it stops.
PARTS = (
    ("f64", ("fp64", 1, 1, 1, HOST), {}, (AFTER, AFTER + 2)),
    ("bf16, ZeRO 1", ("mixed_bf16", 1, 1, 2, BOTH), {"zero": 1}, (AFTER + 1,)),
)
MORE_PARTS = (
    ("fp16 that skips", ("mixed_fp16", 1, 1, 1, HOST), {"loss_scale": trainings.Expression("dynamic(initial = 268435456, window = 2)")}, (AFTER + 1, AFTER + 2)),
    ("ZeRO 3", ("fp64", 1, 1, 2, BOTH), {"zero": 3}, (AFTER + 1,)),
    ("frozen, ZeRO 3", ("mixed_bf16", 1, 1, 2, BOTH), {"zero": 3, "train.frozen": ["wpe", "h.{}.mlp.*"]}, (AFTER + 1,)),
    ("frozen, ZeRO 1", ("fp64", 1, 1, 2, HOST), {"zero": 1, "train.frozen": ["wpe", "h.{}.mlp.*"]}, (AFTER + 1,)),
    ("an average", ("mixed_bf16", 1, 2, 1, BOTH), {"train.ema": 0.9}, (AFTER + 1,)),
)


def check_parts(tally, folder, parts):
    for number, (name, layout, settings, stops) in enumerate(parts):
        trainer = prepared(folder, "parts_%d" % number, *layout, **settings)
        whole, in_parts = (os.path.join(trainer.place, kind) for kind in ("whole", "in_parts"))
        ran = run(tally, name, trainer, whole, STEPS)
        if "fp16" in name:
            tally.check("%s: it does" % name, any(record["skipped"] > 0 for record in ran.steps), str(ran.steps)[:300])
        for stop in (*stops, STEPS):
            run(tally, name + " in parts", trainer, in_parts, stop, ("--resume",))
        same_files(tally, name + " in parts", in_parts, whole, STEPS)
        if "train.frozen" in settings:
            check_frozen(tally, name, trainer, whole)
        if number == 0:
            check_other_runs(tally, folder, trainer, whole, os.path.join(trainer.place, "other"))


def check_frozen(tally, name, trainer, whole):
    """What is not trained is in a checkpoint as the run began with it, the rest is not."""
    first = os.path.join(trainer.place, "first")
    run(tally, name + " initially", trainer, first, 0)
    before, after = (harness.read_safetensors(files_of(one, step)[0]) for one, step in ((first, 0), (whole, STEPS)))
    same = {tensor for tensor in after if list(after[tensor][1]) == list(before[tensor][1])}
    tally.check("%s: frozen parameters stay" % name, same == {tensor for tensor in after if tensor == "wpe" or ".mlp." in tensor}, str(sorted(same)))


def check_other_runs(tally, folder, trainer, whole, start):
    """From one checkpoint of step AFTER + 1: another layout, no delay, no stale weights."""
    run(tally, "start", trainer, start, AFTER + 1)
    ends = {}
    for name, layout, more, damage in (("another layout", (1, 1, 2, BOTH), None, False), ("no delay", (1, 1, 1, HOST), {}, False), ("no stale weights", None, None, True)):
        other = prepared(folder, name.replace(" ", "_"), "fp64", *layout, more=more) if layout else trainer
        checkpoints = os.path.join(folder, name + " ck")
        shutil.copytree(start, checkpoints)
        if damage:
            forget_stale(checkpoints)
        run(tally, name, other, checkpoints, STEPS, ("--resume",))
        ends[name] = harness.model_error(files_of(checkpoints, STEPS)[0], files_of(whole, STEPS)[0])[0]
    tally.check("another layout goes on", ends["another layout"] <= offload.BOUNDS["fp64"]["parameters"], str(ends))
    tally.check("without delay, or its stale weights, it trains another thing", min(ends["no delay"], ends["no stale weights"]) > 1e-6, str(ends))


def forget_stale(checkpoints):
    """A checkpoint as if it had no such file."""
    folder = harness.step_folder(checkpoints, AFTER + 1)
    manifest = harness.read_manifest(folder)
    manifest["files"] = [one for one in manifest["files"] if one["name"] != FILES[2]]
    harness.write_manifest(folder, manifest)
    os.remove(os.path.join(folder, FILES[2]))


# ---- refusals ----

REFUSED = (
    (("--cluster", "cpu"), (), "CPU ranks compute there"),
    (offload.GPU, ("--set", "optimizer=muon(lr = 1e-2)"), "`delayed_update` does not go with `muon`"),
    (offload.GPU, ("--set", "optimizer=lamb(lr = 1e-2)"), "`delayed_update` does not go with `lamb`"),
    (offload.GPU, ("--set", "optimizer=adafactor(lr = 1e-2)"), "`delayed_update` does not go with `adafactor`"),
    (offload.GPU, ("--set", 'plan.offload[optimizer]="none"'), "`delayed_update` updates on the host"),
    (offload.GPU, ("--set", 'plan.offload[optimizer]="nvme"'), "`delayed_update` updates on the host"),
    (offload.GPU, ("--set", 'plan.offload[params]="cpu"'), "`delayed_update` keeps parameters on the device"),
    (offload.GPU, ("--set", 'plan.offload[gradients]="nvme"'), "`delayed_update` keeps no gradients on disks"),
    (offload.GPU, ("--set", "compress=true", "--set", "plan.data=2"), "`delayed_update` takes sums of whole gradients"),
    (offload.GPU, ("--for", "deepspeed"), "without a delayed update"),
    (offload.GPU, ("--set", "train.delayed_update=3"), "delayed_update"),
    (offload.GPU, ("--set", "train.delayed_update=after(-1)"), "steps"),
)
HOMES = (({"optimizer": {"tier": "host", "eighths": 5}}, "needs all of the optimizer's state on the host"), ({}, "needs all of the optimizer's state on the host"),
         ({"optimizer": {"tier": "nvme", "eighths": 8}}, "not on disks"),
         ({"optimizer": {"tier": "host", "eighths": 8}, "params": {"tier": "host", "eighths": 8}}, "parameters off the device"))


def check_refused(tally, folder):
    place, plan = prepared(folder, "sound", "fp64", 1, 1, 1, HOST)
    tally.check("a plan is sound", plan and harness.zplan("verify", plan).status == 0)
    gpt = os.path.join(trainings.MODELS, "gpt.dz")
    for cluster, words, said in REFUSED:
        more = () if DELAYED in "".join(words) else ("--set", DELAYED + "=after(2)")
        outcome = harness.zplan("plan", gpt, "--ranks", 2, *cluster, "--set", "model.layers=2", *more, *words)
        tally.check("refused: %s" % (words or cluster,), outcome.status == 1 and said in outcome.err and "error[Z" in outcome.err, outcome.tail())
        tally.check("refused with place and help: %s" % (words or cluster,), "--> --set:1:" in outcome.err and ("help: " in outcome.err or DELAYED in "".join(words)), outcome.tail())
    with open(plan, encoding="utf-8") as file:
        text = file.read()
    other = os.path.join(place, "other.json")
    for homes, said in HOMES:
        changed = dict(json.loads(text), offload=homes)
        with open(other, "w", encoding="utf-8") as file:
            json.dump(changed, file)
        outcome = harness.zplan("build", other, "--arch", "host", "-o", os.path.join(place, "tree"))
        tally.check("refused: %s" % (homes,), outcome.status == 1 and said in outcome.err, outcome.tail())
    for where, key, value in (("delayed_update", "staleness", 0), ("delayed_update", "after", 7), (None, "delayed_update", None), ("arena", "host_delayed", 64),
                              ("memory", "host", 1), ("arena", "host_grads_in", 0)):
        changed = json.loads(text)
        inside = changed if where is None else changed["delayed_update"] if where == "delayed_update" else changed["stages"][0][where]
        inside[key] = value
        with open(other, "w", encoding="utf-8") as file:
            json.dump(changed, file)
        outcome = harness.zplan("verify", other)
        tally.check("not sound: %s" % key, outcome.status == 1 and ("delayed" if where != "memory" else "host take") in outcome.err + outcome.out or key == "host_grads_in" and outcome.status == 1, outcome.tail())


def main():
    every = "--all" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--all"]
    offload.STEPS = STEPS  # of run_table
    return offload.run_table("a delayed update", TABLE + (MORE if every else ()), Delayed,
                             (lambda suite, folder: check_torch(suite.tally, folder),
                              lambda suite, folder: check_parts(suite.tally, folder, PARTS + (MORE_PARTS if every else ())),
                              lambda suite, folder: check_refused(suite.tally, folder)))


if __name__ == "__main__":
    sys.exit(main())
