#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a frozen step of 1-bit Adam leaves behind, computed again from its checkpoints; in 16 bits, and where state is.

    one_bit_values.py [--verbose]

1. Two runs go on from one checkpoint of the frozen phase for one step: 1-bit Adam, and plain Adam on the same ranks, whose momentum is that of the
   mean gradient. What 1-bit Adam sent and what its error grew by, worker's and server's side, is that momentum, element by element:
   nothing is lost, also when state leaves the device or comes back at the checkpoint. The master weights follow from momentum and variance by
   the formula, in f64; weights are the rounded master weights; the variance stays to the bit; the elements of a block of 64 have one magnitude.
   With ZeRO 1 the owner of an element has no error of momentum: its exact weights follow by the formula, and what all ranks' weights changed by has one
   magnitude in a block; padding stays zero.
2. Until the variance freezes losses are those of plain Adam to the bit (where the host updates, whose arithmetic rounds differently, as near as
   f32). A run that stops in either phase and goes on writes what one that does not stop writes, to the last byte.
3. With f16, steps that overflow are skipped in both phases: they send and move no momentum, and the variance freezes after so many applied ones.
4. What was planned passes `zplan verify`; with state on the host where all of it is. Every run has --check-memory: bytes of arenas, of
   messages and of copies are the plan's.

Bounds of 1. Plain Adam's sum of n gradients is rounded to 16 bits once, by u = 2^-8 of its size in bf16 and 2^-11 in f16, and comes into momentum with
1 - beta1; 1-bit Adam adds the replicas' own gradients in f32. What is kept in f32 (momentum, errors) is rounded a dozen times by 2^-24 of the
largest addend. The update is one formula of ten roundings.
"""
import argparse
import json
import math
import os
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bf16  # noqa: E402  puts tests/support on the path
import offload  # noqa: E402
from bf16 import harness, trainings  # noqa: E402

FREEZE, KEPT, STEPS = 3, 5, 6  # steps of plain Adam; those of the checkpoint that goes on; of the whole run
LR, BETA1, BETA2, EPS, DECAY = 3e-3, 0.9, 0.95, 1e-8, 0.1
OPTIMIZER = "optimizer=adamw(lr = %g, betas = [%g, %g], eps = %g, weight_decay = %g%%s)" % (LR, BETA1, BETA2, EPS, DECAY)
ONE_BIT = ("--set", OPTIMIZER % (", freeze_step = %d" % FREEZE))
PLAIN = ("--set", OPTIMIZER % "")
UNCLIPPED = ("--set", "clip=1e9")  # norms of the two phases differ
GPU = ("--cluster", "gpu", "--arch", "host")
SUM_ROUNDING = {"mixed_bf16": 2.0 ** -8, "mixed_fp16": 2.0 ** -11, "fp64": 2.0 ** -53}
F32, ROUNDINGS, BLOCK = 2.0 ** -24, 12, 64
FILES = ("model.safetensors", "optimizer.safetensors", "errors.safetensors")


def case(model, t, p, d, precision, more=None, words=(), **settings):
    one = trainings.layout(model, tensor=t, pipeline=p, data=d, more=dict({"model.layers": 2}, **(more or {})), batch=4, precision=precision,
                           compress=True, words=words, **settings)
    return one._replace(name=" ".join((one.name,) + words[:2]))


VALUES = (
    case("llama", 1, 1, 2, "mixed_bf16"),
    case("gpt", 1, 1, 4, "mixed_fp16"),
    case("llama", 1, 1, 2, "mixed_bf16", {"offloaded.optimizer": "host:8"}, words=GPU),
    case("llama", 2, 2, 2, "mixed_fp16", {"offloaded.optimizer": "host:5", "offloaded.activations": "host:8"}, words=GPU),
    case("llama", 1, 1, 4, "fp64", {"offloaded.optimizer": "host:3"}, words=GPU),
    case("gpt", 2, 2, 2, "fp64", zero=1),  # a tied weight on two stages, shares of tensors with padding
    case("llama", 1, 1, 2, "mixed_fp16", {"offloaded.optimizer": "host:5"}, zero=1, words=GPU),
    case("gpt", 2, 1, 2, "fp64", {"offloaded.optimizer": "host:8"}, zero=1, words=GPU),
)
WHOLE = (VALUES[1], VALUES[5], VALUES[7])  # these are also trained at once
HERE_BEFORE, HERE_AFTER = (VALUES[2], VALUES[6]), (VALUES[3],)  # all state is on the device until the checkpoint, and after it


def is_offloaded(settings):
    return any(key.startswith("offloaded.") for key in dict(settings))


def on_device(one):
    return one._replace(settings=tuple(item for item in one.settings if not item[0].startswith("offloaded.")))


def plain_settings(one):
    """The same ranks with nothing compressed, and nothing off the device."""
    return dict(on_device(one).settings, compress=False)


def train(one, place, steps, words=ONE_BIT, settings=None):
    os.makedirs(place, exist_ok=True)
    if is_offloaded(settings or one.settings):
        return train_offloaded(one, place, steps, words)
    return trainings.train(one.model, settings or dict(one.settings), place, steps, one.words + UNCLIPPED + words)


def train_offloaded(one, place, steps, words):
    """From a plan's file, where it is written what leaves the device."""
    resume = ("--resume",) if "--resume" in words else ()
    plan, why = offload.make_plan(one.model, dict(one.settings), place, UNCLIPPED + tuple(word for word in words if word != "--resume"))
    if not plan:
        return trainings.Result(why, [], [], None, 0)
    ran = offload.run_plan(plan, place, steps, words=resume)
    error = None if ran.outcome.status == 0 else ran.outcome.tail()
    return trainings.Result(error, [record["loss"] for record in ran.steps], [], None, ran.outcome.seconds)


def tensors_of(place, step):
    """{name: values} of every file of a checkpoint."""
    folder, tensors = harness.step_folder(os.path.join(place, "ck"), step), {}
    for name in FILES:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            tensors.update(harness.read_safetensors(path))
    return tensors


# ---- one step, element by element ----

def check_momentum(before, after, plain, name, data, rounding, zero):
    """What came out and what the error grew by is plain Adam's momentum; the largest error, in units of its bound. With ZeRO 1 a
    worker also has an error of elements without variance, which no owner takes."""
    def values(tensors, suffix):
        return tensors[name + suffix][1]

    m, m_plain, m_before = values(after, ".exp_avg"), values(plain, ".exp_avg"), values(before, ".exp_avg")
    moves = values(before, ".exp_avg_sq")
    nothing = [0.0] * len(m)
    new = [values(after, ".worker_error.%d" % d) for d in range(data)] + [nothing if zero else values(after, ".server_error")]
    old = [values(before, ".worker_error.%d" % d) for d in range(data)] + [nothing if zero else values(before, ".server_error")]
    worst = 0.0
    for i, variance in enumerate(moves):
        if variance == 0:
            if m[i] != 0 or any(error[i] != 0 for error in new) and not zero:
                return math.inf
            continue
        error = new[data][i] - old[data][i] + sum(new[d][i] - old[d][i] for d in range(data)) / data
        gradient = (m_plain[i] - BETA1 * m_before[i]) / (1 - BETA1)
        largest = max(max(abs(e[i]) for e in new + old), abs(m[i]), abs(m_before[i]), abs(m_plain[i]))
        bound = (1 - BETA1) * rounding * abs(gradient) + ROUNDINGS * F32 * largest
        worst = max(worst, abs(m[i] + error - m_plain[i]) / bound)
    return worst


def exact(tensors, name, mixed):
    """The weights of who updates them."""
    error = name + ".owner_error"
    if error in tensors:
        return [w + e for w, e in zip(tensors[name][1], tensors[error][1])]
    return tensors[name + (".master" if mixed else "")][1]


def check_update(before, after, name, mixed, lr):
    """Master weights from those before, in units of the bound; both ways of decay are tried, a tensor has one."""
    old, new, m, v = exact(before, name, mixed), exact(after, name, mixed), after[name + ".exp_avg"][1], before[name + ".exp_avg_sq"][1]
    bias1, root_bias2 = 1 - BETA1 ** STEPS, math.sqrt(1 - BETA2 ** FREEZE)
    most = max(1, (1 - BETA1) / math.sqrt(1 - BETA2))
    steps = [max(-most, min(most, a / bias1 / (math.sqrt(b) / root_bias2 + EPS))) * lr for a, b in zip(m, v)]
    return min(max(abs(p * keep - step - q) / (ROUNDINGS * F32 * (abs(p) + abs(step) + 1e-30)) for p, q, step in zip(old, new, steps))
               for keep in (1, 1 - lr * DECAY))


def blocks_are_even(shape, m, padded):
    """Blocks begin where a tensor does on a rank that has all of it. GPUs' rows of 16-bit elements are padded to eight, by zeros."""
    width = shape[-1]
    if padded and width % 8:
        m = [x for i in range(0, len(m), width) for x in list(m[i:i + width]) + [0] * (8 - width % 8)]
    return all(len({abs(x) for x in m[i:i + BLOCK] if x != 0}) <= 1 for i in range(0, len(m), BLOCK))


def changes(before, after, name):
    """Of the weights of all ranks, in f64, to what an addition leaves of a difference."""
    shape, new = after[name]
    return shape, [float("%.9g" % (y - x)) for x, y in zip(before[name][1], new)]


def rounded(x, precision):
    """To the nearest even of the format, as a number."""
    if precision == "mixed_fp16":
        return struct.unpack("<e", struct.pack("<e", x))[0]
    return struct.unpack("<f", struct.pack("<I", bf16.rounded(x) << 16))[0]


def are_rounded(tensors, name, precision):
    return all(w == rounded(x, precision) for w, x in zip(tensors[name][1], tensors[name + ".master"][1]))


# ---- runs ----

def check_whole(tally, one, place, got):
    """Plain Adam first, to the bit; what was stopped before and after the variance froze is what runs at once."""
    whole, plain = train(one, place + " whole", STEPS), train(one, place + " plain whole", STEPS, PLAIN, plain_settings(one))
    if not tally.check(one.name + ": whole", not whole.error and not plain.error, whole.error or plain.error or ""):
        return
    first = max(map(harness.number_error, whole.losses[:FREEZE + 1], plain.losses[:FREEZE + 1]))
    least = trainings.BOUNDS["fp32"]["loss"] if is_offloaded(one.settings) else 0
    tally.check(one.name + ": plain Adam at first", first <= least, "%.1e" % first)
    tally.check(one.name + ": not afterwards", whole.losses[FREEZE + 1] != plain.losses[FREEZE + 1])
    tally.check(one.name + ": losses of a run in three parts", got.losses == whole.losses, "%s %s" % (got.losses, whole.losses))
    folders = [harness.step_folder(os.path.join(each, "ck"), STEPS) for each in (place, place + " whole")]
    same = [harness.same_bytes(*(os.path.join(each, name) for each in folders)) for name in FILES]
    tally.check(one.name + ": files of a run in three parts, to the last byte", all(same), str(same))


def check_values(tally, folder, number, one, verbose):
    settings = dict(one.settings)
    place = os.path.join(folder, "values %d" % number)
    early = train(one, place, FREEZE - 1) if one in WHOLE else None
    kept = train(on_device(one) if one in HERE_BEFORE else one, place, KEPT, ONE_BIT + (("--resume",) if early else ()))
    if not tally.check(one.name, not kept.error, kept.error or ""):
        return
    other = shutil.copytree(place, place + " plain")
    got = train(on_device(one) if one in HERE_AFTER else one, place, STEPS, ONE_BIT + ("--resume",))
    plain = train(one, other, STEPS, PLAIN + ("--resume",), plain_settings(one))
    if not tally.check(one.name + " goes on", not got.error and not plain.error, got.error or plain.error or ""):
        return
    if early:
        check_whole(tally, one, place, got)
    lr = harness.read_log(os.path.join(place, "log.jsonl"))[0][-1]["lr"]
    before, after, reference = tensors_of(place, KEPT), tensors_of(place, STEPS), tensors_of(other, STEPS)
    names = [name[:-len(".exp_avg")] for name in after if name.endswith(".exp_avg")]
    mixed, zero = settings["precision"] != "fp64", settings["zero"]
    rounding = SUM_ROUNDING[settings["precision"]]
    momentum = {name: check_momentum(before, after, reference, name, settings["plan.data"], rounding, zero) for name in names}
    update = {name: check_update(before, after, name, mixed, lr) for name in names}
    for what, errors in (("nothing is lost", momentum), ("the update", update)):
        worst, where = harness.worst(errors)
        tally.check("%s: %s" % (one.name, what), worst <= 1, "%.2f of the bound (%s)" % (worst, where))
        if verbose:
            print("%s: %s, %.2f of the bound (%s)" % (one.name, what, worst, where), flush=True)
    tally.check(one.name + ": there is an error", any(x != 0 for name in names for x in after[name + ".worker_error.1"][1]))
    tally.check(one.name + ": the variance stays", all(before[n + ".exp_avg_sq"][1] == after[n + ".exp_avg_sq"][1] for n in names))
    if mixed and not zero:
        tally.check(one.name + ": weights are the rounded master weights", all(are_rounded(after, name, settings["precision"]) for name in names))
    if zero and not mixed and settings["tensor"] == 1:
        bad = [name for name in names if not blocks_are_even(*changes(before, after, name), False)]
        tally.check(one.name + ": a block changes by one scale", not bad, str(bad))
    if settings["tensor"] == 1 and not zero:
        padded = mixed and "gpu" in one.words
        bad = [name for name in names if not blocks_are_even(*after[name + ".exp_avg"], padded)]
        tally.check(one.name + ": a block has one scale", not bad, str(bad))


def check_overflow(tally, folder):
    """A scale that is too high at first, and rises after two steps: some of either phase overflow."""
    place = os.path.join(folder, "overflow")
    steps = 14
    one = case("llama", 1, 1, 2, "mixed_fp16", {"offloaded.optimizer": "host:3"}, words=GPU)
    got = train(one, place, steps, ONE_BIT + ("--set", "loss_scale=dynamic(initial=4194304, window=2)"))
    records = harness.read_log(os.path.join(place, "log.jsonl"))[0]
    applied = [record["grad_norm"] is not None for record in records]
    if not tally.check("overflow: bytes are the plan's", not got.error and len(applied) == steps, got.error or ""):
        return
    warm = [i for i in range(steps) if applied[i]][FREEZE - 1]  # the last step that teaches the variance
    tally.check("overflow in both phases", not all(applied[:warm]) and not all(applied[warm:]) and sum(applied) > FREEZE + 3, str(applied))
    with open(os.path.join(harness.step_folder(os.path.join(place, "ck"), steps), "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    tally.check("the variance freezes after so many applied steps", manifest["frozen_steps"] == sum(applied) - FREEZE, str(manifest))


def check_verified(tally, folder):
    for one in VALUES:
        plan = os.path.join(folder, "plan.json")
        command = ["plan", os.path.join(HERE, one.model + ".dz"), "--ranks", trainings.ranks_of(dict(one.settings)), "-o", plan]
        for key, value in one.settings:
            if not key.startswith("offloaded."):
                command += ["--set", "%s=%s" % (key, json.dumps(value))]
            elif key == "offloaded.optimizer":
                command += ["--set", 'offload[optimizer]="cpu"']
        made = harness.zplan(*command, *one.words[:2])
        checked = harness.zplan("verify", plan)
        tally.check("verified: " + one.name, made.status == 0 and checked.status == 0, made.tail() + checked.tail())


def main():
    parser = argparse.ArgumentParser(description="values of 1-bit Adam")
    parser.add_argument("--verbose", action="store_true", help="how near the values are to their bounds")
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_verified(tally, folder)
        due = trainings.in_turn(VALUES, values=lambda one: {dict(one.settings)["precision"], dict(one.settings)["zero"], is_offloaded(one.settings)})
        for number, one in enumerate(due):
            check_values(tally, folder, number, one, options.verbose)
        if harness.my_turn(0, 2):
            check_overflow(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
