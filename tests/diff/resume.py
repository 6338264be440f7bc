#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stopping, going on, and doing it again:

- 6 steps in one go and 3 + 3 with --resume give the same losses and the same checkpoint, byte for byte;
- a checkpoint of one layout is continued by any other, with positions divided, state in groups and experts spread: f64, equal to the run on one
  rank within 1e-10;
- the number of threads changes no bit, nor does running again;
- manifests are what a reader written from their description expects, whichever ranks wrote the pieces; what a training was told and is told no longer is said;
- --steps 0 publishes the same initial weights for every layout.
"""
import hashlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS, HALF, LINK = 6, 3, 2  # LINK: of each layout in a chain
FILES = ("model.safetensors", "optimizer.safetensors")

FOUR = {"model.heads": 4, "model.layers": 3}  # heads that four context ranks divide
ROWS = {"model.capacity": "dropless", "model.heads": 4, "model.kv_heads": 2, "model.n": 4, "model.layers": 2, "train.dropout": 0}
LAYOUTS = {
    "one": {},
    "t2": {"tensor": 2},
    "p2": {"pipeline": 2},
    "d2z1": {"plan.data": 2, "zero": 1},
    "t2p2": {"tensor": 2, "pipeline": 2},
    "t2d2z1": {"tensor": 2, "plan.data": 2, "zero": 1},
    "p3": {"pipeline": 3},
    "t3": {"tensor": 3},
    "sgd": {"optimizer": "sgd(lr = 0.1)"},  # no state between steps
    "sgd-t2d2z1": {"optimizer": "sgd(lr = 0.1)", "tensor": 2, "plan.data": 2, "zero": 1},
    "t3d2e2z1": {"tensor": 3, "plan.data": 2, "plan.expert": 2, "zero": 1},
    "four": FOUR,
    "c2z1": dict(FOUR, context=2, zero=1),
    "c4z3s2": dict(FOUR, context=4, zero=3, shard=2),  # state in groups of two ranks
    "d4z2s2": dict(FOUR, **{"plan.data": 4}, zero=2, shard=2),
    "c2p2": dict(FOUR, context=2, pipeline=2),
    "rows": ROWS,
    "rows-e2": dict(ROWS, **{"plan.data": 2, "plan.expert": 2}, zero=1),
    "rows-c2e4": dict(ROWS, **{"plan.data": 2, "plan.expert": 4}, context=2, context_by="keys", zero=3),
    "rows-t2": dict(ROWS, tensor=2),
}
# Every kind of change: splitting, joining, moving between axes, ZeRO on and off.
CHAINS = {"gpt": ("one", "t2", "p2", "d2z1"), "gpt-more": ("d2z1", "t2p2", "one", "t3", "t2d2z1", "p3")}
# Experts: whole ones with padding, cut ones, some spread over data ranks, all of them on one rank.
EXPERT_CHAIN = ("t3", "t2p2", "t3d2e2z1", "one")
# Positions divided and whole again, state in groups, experts without capacity over some and all of the ranks.
CONTEXT_CHAIN = ("c2z1", "four", "c4z3s2", "d4z2s2", "c2p2")
ROWS_CHAIN = ("rows-e2", "rows-c2e4", "rows-t2", "rows")


def saving(every):
    return ("--set", 'checkpoint.dir="ck"', "--set", "checkpoint.every=%d" % every, "--set", "checkpoint.keep=99")


def train(folder, layout, checkpoints, steps, model="gpt", precision="fp32", threads=1, resume=False, words=()):
    """resume: True, or a step. words: of the command. (outcome, losses) of a run of `layout` with its checkpoints in folder/checkpoints. Trees are reused."""
    settings = dict({"tensor": 1, "pipeline": 1, "context": 1, "plan.data": 1, "plan.expert": 1, "zero": 0}, **LAYOUTS[layout])
    ranks = settings["tensor"] * settings["pipeline"] * settings["plan.data"] * settings["context"]
    log = os.path.join(folder, "log.jsonl")
    tree = os.path.join(folder, "tree-%s-%s-%s" % (model, precision, layout))
    command = ["run", os.path.join(HERE, model + ".dz"), "--ranks", ranks, "-o", tree, "--log", log, "--steps", steps,
               "--set", 'precision="%s"' % precision, "--set", "microbatch=1", "--threads", threads]
    for key, value in settings.items():
        command += ["--set", "%s=%s" % (key, value)]
    command += ["--resume"] if resume is True else ["--resume-from", resume] if resume else []
    command += [*words, "--", "--checkpoint", os.path.join(folder, checkpoints)]
    if os.path.exists(log):
        os.remove(log)
    outcome = harness.zplan(*command, env=trainings.ENVIRONMENT)
    records = harness.read_log(log)[0] if outcome.status == 0 else []
    return outcome, [record["loss"] for record in records]


def file_of(folder, checkpoints, step, name):
    return os.path.join(harness.step_folder(os.path.join(folder, checkpoints), step), name)


def same_checkpoint(folder, one, other, step):
    return all(harness.same_bytes(file_of(folder, one, step, f), file_of(folder, other, step, f)) for f in FILES)


def check_run(tally, name, outcome):
    return tally.check(name, outcome.status == 0, "exit %d\n%s" % (outcome.status, outcome.tail()))


def same_layout(tally, folder, layout, model):
    name = "resume %s %s" % (model, layout)
    whole, half = "whole-%s-%s" % (model, layout), "half-%s-%s" % (model, layout)
    straight, losses = train(folder, layout, whole, STEPS, model)
    first, begin = train(folder, layout, half, HALF, model)
    second, rest = train(folder, layout, half, STEPS, model, resume=True)
    if not all(check_run(tally, name, outcome) for outcome in (straight, first, second)):
        return
    tally.check(name + ": losses to the last bit", losses == begin + rest and len(losses) == STEPS, "%s %s" % (losses, begin + rest))
    tally.check(name + ": checkpoint to the last byte", same_checkpoint(folder, whole, half, STEPS))


def chain(tally, folder, name, model, layouts, alone=None):
    """Each layout goes on from the one before it, with what `alone` trains without a stop."""
    reference, checkpoints = "reference-" + name, "chain-" + name
    outcome, losses = train(folder, alone or "one", reference, LINK * len(layouts), model, precision="fp64", words=saving(LINK))
    if not check_run(tally, "reference of the chain of %s" % name, outcome):
        return
    for number, layout in enumerate(layouts):
        begin, end = LINK * number, LINK * (number + 1)
        title = "chain of %s: step %d to %d on %s" % (name, begin, end, layout)
        outcome, rest = train(folder, layout, checkpoints, end, model, precision="fp64", resume=number > 0, words=saving(LINK))
        if not check_run(tally, title, outcome):
            return
        tally.check(title + ": nothing has changed", "has changed" not in outcome.err, outcome.tail())
        error, tensor = harness.model_error(file_of(folder, checkpoints, end, FILES[0]), file_of(folder, reference, end, FILES[0]))
        tally.check(title + ": parameters", error <= 1e-10, "%.2e (%s)" % (error, tensor))
        error = max(map(harness.number_error, rest, losses[begin:end]), default=1.0)
        tally.check(title + ": losses", error <= 1e-10 and len(rest) == LINK, "%.2e" % error)


def threads_and_repeats(tally, folder):
    for number, (model, layout, threads) in enumerate((("gpt", "one", 2), ("gpt", "t2p2", 1), ("moe", "t3d2e2z1", 2))):
        if not harness.my_turn(number, 3):
            continue
        name, again = "%s on %s again, threads %d" % (model, layout, threads), "again-%s-%s" % (model, layout)
        outcome, _ = train(folder, layout, again, STEPS, model, threads=threads)
        if check_run(tally, name, outcome):
            tally.check(name + ": the same bytes", same_checkpoint(folder, "whole-%s-%s" % (model, layout), again, STEPS))


def initial_weights(tally, folder):
    for layout in ("one", *(layout for number, layout in enumerate(("t2p2", "t3")) if harness.my_turn(number, 2))):
        outcome, _ = train(folder, layout, "initial-" + layout, 0)
        if check_run(tally, "--steps 0 on %s" % layout, outcome):
            tally.check("initial weights of %s" % layout, same_checkpoint(folder, "initial-one", "initial-" + layout, 0))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def chains_due():
    return [name for number, name in enumerate(CHAINS) if harness.my_turn(number, len(CHAINS))]


def manifests(tally, folder):
    """One rank, tensor and pipeline ranks, ZeRO's shards, experts that are spread; f32 and f64."""
    for checkpoints, step in (("whole-gpt-one", STEPS), ("half-gpt-t2p2", HALF), ("whole-moe-t3d2e2z1", STEPS),
                              *(("chain-" + name, LINK * (1 + CHAINS[name].index("d2z1"))) for name in chains_due())):
        place = harness.step_folder(os.path.join(folder, checkpoints), step)
        text, manifest = read(os.path.join(place, "manifest.json")), harness.read_manifest(place)
        lines = text.splitlines(keepends=True)
        tally.check("manifest of %s: its own checksum" % checkpoints, manifest["version"] == 2 and
                    manifest["sha256"] == hashlib.sha256(b"".join(lines[:-2])).hexdigest(), "%s" % lines[-2:])
        plan = hashlib.sha256(read(os.path.join(place, "plan.json"))).hexdigest()
        tally.check("manifest of %s: the plan's" % checkpoints, manifest["plan_sha256"] == plan, plan)
        for entry in manifest["files"]:
            data = read(os.path.join(place, entry["name"]))
            tally.check("manifest of %s: %s" % (checkpoints, entry["name"]), entry["bytes"] == len(data) and entry["pieces"] == harness.piece_sums(data),
                        "%d bytes, %d pieces" % (len(data), len(entry["pieces"])))


CHANGED = (("optimizer", "adamw(lr = 0.004, betas = [0.8, 0.95], eps = 1e-8, weight_decay = 0.2)"), ("steps", "30"), ("clip", "0.5"),
           ("schedule", "linear(warmup = 4, min_lr = 3e-4)"), ("groups", '[group(pattern = "wpe", lr_factor = 0.1)]'))
NOTES = ("lr has changed since the checkpoint of step 3: 0.003 -> 0.004", "beta1 has changed since the checkpoint of step 3: 0.9 -> 0.8",
         "lr_factor has changed since the checkpoint of step 3: 1 -> 0.1 to 1", "weight_decay has changed since the checkpoint of step 3: 0.1 -> 0.2", "steps has changed since the checkpoint of step 3: 20 -> 30",
         "clip has changed since the checkpoint of step 3: 1 -> 0.5", "schedule has changed since the checkpoint of step 3: cosine -> linear",
         "the model has changed since the checkpoint of step 3: the same parameters, other operations",
         "model name has changed since the checkpoint of step 3: gpt -> other")


def changes(tally, folder):
    """Another model of the same shapes and other settings go on, and each change is a line."""
    train(folder, "one", "changes", HALF)
    with open(os.path.join(HERE, "gpt.dz"), encoding="utf-8") as file:
        text = file.read().replace("../../examples", os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples"))
    text = text.replace("model gpt(", "model other(").replace("model     = gpt", "model     = other")
    text = text.replace("cross_entropy(logits, labels)", "cross_entropy(logits, labels, z_loss = 1e-4)")  # which the printed loss does not have
    with open(os.path.join(folder, "other.dz"), "w", encoding="utf-8") as file:
        file.write(text)
    command = ["run", os.path.join(folder, "other.dz"), "--ranks", 1, "-o", os.path.join(folder, "tree-other"), "--steps", STEPS, "--resume",
               "--set", 'precision="fp32"', "--set", "microbatch=1"]
    for key, value in CHANGED:
        command += ["--set", "%s=%s" % (key, value)]
    outcome = harness.zplan(*command, "--", "--checkpoint", os.path.join(folder, "changes"), env=trainings.ENVIRONMENT)
    check_run(tally, "other settings", outcome)
    for note in NOTES:
        tally.check("other settings: " + note, outcome.err.count("note: %s" % note) == 1, outcome.tail(20))
    tally.check("other settings: no other line", outcome.err.count("has changed since") == len(NOTES), outcome.tail(20))


def damaged(tally, folder):
    """The newest checkpoint is damaged: another is named, and goes on. On two ranks the last one reads the damaged tensor."""
    for number, layout in enumerate(("one", "t2")):
        if not harness.my_turn(number, 2):
            continue
        name = "damaged-" + layout
        train(folder, layout, name, 4, words=saving(1))
        with open(file_of(folder, name, 4, FILES[0]), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        outcome, _ = train(folder, layout, name, 6, resume=True)
        tally.check("%s: the newest whole one is named" % name, outcome.status == 1 and outcome.err.count("error[") == 1 and "step_000004" in outcome.err and
                    "the newest whole checkpoint before it is of step 3: --resume-from 3 goes on from it" in outcome.err, outcome.tail())
        straight, losses = train(folder, layout, "straight-" + layout, 6)
        outcome, rest = train(folder, layout, name, 6, resume=3)
        tally.check("%s: goes on from it" % name, outcome.status == 0 and straight.status == 0 and rest == losses[3:], outcome.tail())
        outcome, _ = train(folder, layout, name, 6, resume=1)
        tally.check("%s: not from one that is not there" % name, outcome.status == 1 and "no checkpoint of step 1" in outcome.err and "of step 6" in outcome.err,
                    outcome.tail())


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        by_turns = [one for number, one in enumerate((("gpt", "sgd"), ("llama", "t2d2z1"))) if harness.my_turn(number, 2)]
        for model, layout in (("gpt", "one"), ("gpt", "t2p2"), *by_turns, ("moe", "t3d2e2z1")):
            same_layout(tally, folder, layout, model)
        for name in chains_due():
            chain(tally, folder, name, "gpt", CHAINS[name])
        for number, one in enumerate((("moe", "moe", EXPERT_CHAIN),
                                      ("sgd", "gpt", ("sgd", "sgd-t2d2z1"), "sgd"),  # a checkpoint without state
                                      ("rows", "moe", ROWS_CHAIN, "rows"),
                                      ("context", "gpt", CONTEXT_CHAIN, "four"))):
            if harness.my_turn(number, 2):
                chain(tally, folder, *one)
        threads_and_repeats(tally, folder)
        initial_weights(tally, folder)
        manifests(tally, folder)
        changes(tally, folder)
        damaged(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
