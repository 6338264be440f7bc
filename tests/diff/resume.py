#!/usr/bin/env python3
"""Stopping, going on, and doing it again:

- 10 steps in one go and 5 + 5 with --resume give the same losses and the same checkpoint, byte for byte;
- a checkpoint of one layout is continued by any other: f64, equal to the run on one rank within 1e-10;
- the number of threads changes no bit, nor does running again;
- --steps 0 publishes the same initial weights for every layout.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS, HALF = 10, 5
FILES = ("model.safetensors", "optimizer.safetensors")

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
}
# Every kind of change: splitting, joining, moving between axes, ZeRO on and off.
CHAINS = [("one", "t2"), ("t2", "p2"), ("p2", "d2z1"), ("d2z1", "t2p2"), ("t2p2", "one"), ("t3", "t2d2z1"), ("t2d2z1", "p3")]
# Experts: whole ones with padding, cut ones, some spread over data ranks, all of them on one rank.
EXPERT_CHAINS = [("t3", "t2p2"), ("t2p2", "t3d2e2z1"), ("t3d2e2z1", "one")]


def train(folder, layout, checkpoints, steps, model="gpt", precision="fp32", threads=1, resume=False):
    """(outcome, losses) of a run of `layout` with its checkpoints in folder/checkpoints. Trees are reused."""
    settings = dict({"tensor": 1, "pipeline": 1, "plan.data": 1, "plan.expert": 1, "zero": 0}, **LAYOUTS[layout])
    ranks = settings["tensor"] * settings["pipeline"] * settings["plan.data"]
    log = os.path.join(folder, "log.jsonl")
    tree = os.path.join(folder, "tree-%s-%s-%s" % (model, precision, layout))
    command = ["run", os.path.join(HERE, model + ".dz"), "--ranks", ranks, "-o", tree, "--log", log, "--steps", steps,
               "--set", 'precision="%s"' % precision, "--set", "microbatch=1", "--threads", threads]
    for key, value in settings.items():
        command += ["--set", "%s=%s" % (key, value)]
    command += ["--resume"] if resume else []
    command += ["--", "--checkpoint", os.path.join(folder, checkpoints)]
    if os.path.exists(log):
        os.remove(log)
    outcome = harness.zplan(*command, env=trainings.environment(precision))
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


def other_layout(tally, folder, model, reference, losses, before, after):
    name = "resume %s checkpoint of %s on %s" % (model, before, after)
    checkpoints = "chain-%s-%s-%s" % (model, before, after)
    first, _ = train(folder, before, checkpoints, HALF, model, precision="fp64")
    second, rest = train(folder, after, checkpoints, STEPS, model, precision="fp64", resume=True)
    if not (check_run(tally, name, first) and check_run(tally, name, second)):
        return
    error, tensor = harness.model_error(file_of(folder, checkpoints, STEPS, FILES[0]), file_of(folder, reference, STEPS, FILES[0]))
    tally.check(name + ": parameters", error <= 1e-10, "%.2e (%s)" % (error, tensor))
    error = max(map(harness.number_error, rest, losses[HALF:]), default=1.0)
    tally.check(name + ": losses", error <= 1e-10 and len(rest) == STEPS - HALF, "%.2e" % error)


def chains(tally, folder, model, pairs):
    reference = "reference-" + model
    outcome, losses = train(folder, "one", reference, STEPS, model, precision="fp64")
    if check_run(tally, "reference of the chains of %s" % model, outcome):
        for before, after in pairs:
            other_layout(tally, folder, model, reference, losses, before, after)


def without_state(tally, folder):
    """SGD without momentum has a checkpoint without state; it is continued on other ranks."""
    outcome, losses = train(folder, "sgd", "reference-sgd", STEPS, precision="fp64")
    if check_run(tally, "reference of sgd", outcome):
        other_layout(tally, folder, "gpt", "reference-sgd", losses, "sgd", "sgd-t2d2z1")


def threads_and_repeats(tally, folder):
    for model, layout, threads in (("gpt", "one", 2), ("gpt", "t2p2", 1), ("moe", "t3d2e2z1", 2)):
        name, again = "%s on %s again, threads %d" % (model, layout, threads), "again-%s-%s" % (model, layout)
        outcome, _ = train(folder, layout, again, STEPS, model, threads=threads)
        if check_run(tally, name, outcome):
            tally.check(name + ": the same bytes", same_checkpoint(folder, "whole-%s-%s" % (model, layout), again, STEPS))


def initial_weights(tally, folder):
    for layout in ("one", "t2p2", "t3"):
        outcome, _ = train(folder, layout, "initial-" + layout, 0)
        if check_run(tally, "--steps 0 on %s" % layout, outcome):
            tally.check("initial weights of %s" % layout, same_checkpoint(folder, "initial-one", "initial-" + layout, 0))


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        for model, layout in (("gpt", "one"), ("gpt", "t2p2"), ("gpt", "sgd"), ("llama", "t2d2z1"), ("moe", "t3d2e2z1")):
            same_layout(tally, folder, layout, model)
        chains(tally, folder, "gpt", CHAINS)
        chains(tally, folder, "moe", EXPERT_CHAINS)
        without_state(tally, folder)
        threads_and_repeats(tally, folder)
        initial_weights(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
