#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the optimizers do to every parameter, computed again from two checkpoints in a row; groups of parameters; every layout alike.

    optimizers.py [--all] [--verbose]

1. From the parameters before a step and the moments before and after it, the parameters after it follow by the formulas of the papers, written here in f64:
   AdamW and Adam (Kingma and Ba 2015; decay as torch.optim), SGD, Lion (arXiv 2302.06675, algorithm 2), Adan (arXiv 2208.06677, algorithm 1), LAMB (arXiv 1904.00962,
   algorithm 2), 1-bit LAMB (arXiv 2104.06069). A group's learning rate and decay are those of its parameters
   alone, whatever order the patterns come in and whatever else the parameter is.
   Lion is checked in a model without key biases, whose gradient is rounding noise: its signs would be those of the layout.
2. Layouts train what one rank does, within the bounds of tests/support/trainings.py: tensor, pipeline, ZeRO 1 to 3 (shards end inside parameters),
   an emulated GPU, optimizer state on its host, 1-bit Adam before and after its switch, 16 bits. --check-memory in all of them. Those whose
   elements are updated one by one share how layouts hand them out: AdamW is trained in every layout, Lion and Adan where shards end inside
   parameters and on a GPU, and with --all in every layout, too. By turns, as trainings.in_turn has it.
3. What is not understood is refused, and so are exports to programs that take no groups.
"""
import argparse
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS, BEFORE, LR, DECAY, MOMENTUM = 6, 5, 3e-3, 0.1, 0.8
BETAS, EPS = (0.9, 0.95), 1e-8
ADAN_BETAS = (0.9, 0.8, 0.95)
SIGN_ROUNDING = 1e-12
GPU = ("--cluster", "gpu", "--arch", "host")
NCCL = ("--", "--comm", "nccl")  # an emulated one
# Pattern, factor of the learning rate, weight decay (None: the optimizer's). The first that fits counts.
GROUPS = (("wte", 0.1, None), ("*.bias", 2, 0), ("h.{}.mlp.*", 0.5, 0.3), ("*c_pro?.weight", 1, 0), ("ln_f.weight", 0, 0.2))
LLAMA_GROUPS = (("embed_tokens", 0.1, None), ("layers.{}.mlp.*", 0.5, 0.3), ("norm.weight", 0, 0.2))
OPTIMIZERS = {
    "adamw": "adamw(lr = %g, betas = [%g, %g], eps = %g, weight_decay = %g" % (LR, *BETAS, EPS, DECAY),
    "adam": "adam(lr = %g, betas = [%g, %g], eps = %g, weight_decay = %g" % (LR, *BETAS, EPS, DECAY),
    "lion": "lion(lr = %g, betas = [%g, %g], weight_decay = %g" % (LR, *BETAS, DECAY),
    "adan": "adan(lr = %g, betas = [%g, %g, %g], eps = %g, weight_decay = %g" % (LR, *ADAN_BETAS, EPS, DECAY),
    "lamb": "lamb(lr = %g, betas = [%g, %g], eps = %g, weight_decay = %g" % (LR, *BETAS, EPS, DECAY),
    "sgd": "sgd(lr = %g, momentum = %g, weight_decay = %g" % (LR, MOMENTUM, DECAY),
}


def group_words(groups):
    said = ["group(\"%s\", lr_factor = %g%s)" % (pattern, factor, "" if decay is None else ", weight_decay = %g" % decay) for pattern, factor, decay in groups]
    return ("--set", "train.groups=[%s]" % ", ".join(said)) if said else ()


def words_of(optimizer, groups=(), more=""):
    return ("--set", "optimizer=%s%s)" % (OPTIMIZERS[optimizer], more), "--set", "train.schedule=constant()", "--set", 'train.checkpoint.dir="ck"', "--set", "train.checkpoint.every=1",
            *group_words(groups))


# ---- formulas ----

def recipe_of(groups, name, shape):
    """(learning rate, decay) of a parameter of the models here, whose layers are numbered."""
    general = name.split(".")
    general = ".".join("{}" if part.isdigit() else part for part in general)
    for pattern, factor, decay in groups:
        found = (general == pattern or pattern.startswith("*.") and general.endswith(pattern[1:]) or
                 pattern.endswith(".*") and general.startswith(pattern[:-1]) or pattern == "*c_pro?.weight" and general.endswith("c_proj.weight"))
        if found:
            return LR * factor, (DECAY if len(shape) > 1 else 0) if decay is None else decay
    return LR, DECAY if len(shape) > 1 else 0


def adam(p, before, after, lr, decay, step):
    """Decoupled decay: in AdamW; that of Adam is in its gradient, and so in its moments."""
    m, v = after["exp_avg"], after["exp_avg_sq"]
    root = math.sqrt(1 - BETAS[1] ** step)
    return [x * (1 - lr * decay) - lr / (1 - BETAS[0] ** step) * a / (math.sqrt(b) / root + EPS) for x, a, b in zip(p, m, v)]


def lion(p, before, after, lr, decay, step):
    """The gradient is what the moment has moved by. Where the sign hangs on its rounding the step that was made counts."""
    want = []
    for x, old, new in zip(p, before["exp_avg"], after["exp_avg"]):
        c = BETAS[0] * old + (1 - BETAS[0]) * (new - BETAS[1] * old) / (1 - BETAS[1])
        want.append((x - lr * (math.copysign(1, c) * (c != 0) + decay * x)) if abs(c) > SIGN_ROUNDING * abs(old) else None)
    return want


def adan_element(x, m, v, n, last, g, lr, decay, step):
    """Algorithm 1 of the paper, whose betas are 1 - these, with the corrections of the averages' start that the authors' code has. The first
    gradient follows none."""
    change = 0 if step == 1 else g - last
    m, v = ADAN_BETAS[0] * m + (1 - ADAN_BETAS[0]) * g, ADAN_BETAS[1] * v + (1 - ADAN_BETAS[1]) * change
    n = ADAN_BETAS[2] * n + (1 - ADAN_BETAS[2]) * (g + ADAN_BETAS[1] * change) ** 2
    bias = [1 - beta ** step for beta in ADAN_BETAS]
    rate = lr / (math.sqrt(n / bias[2]) + EPS)
    return (x - rate * (m / bias[0] + ADAN_BETAS[1] * v / bias[1])) / (1 + lr * decay), m, v, n


ADAN_STATE = ("exp_avg", "exp_avg_diff", "exp_avg_sq", "pre_grad")


def adan(p, before, after, lr, decay, step):
    """By the gradient that the step keeps for the next one."""
    return [adan_element(x, *old, g, lr, decay, step)[0] for x, g, *old in zip(p, after["pre_grad"], *(before[kind] for kind in ADAN_STATE))]


def lamb(p, before, after, lr, decay, step):
    """The lengths are those of the whole tensor of a layer, whoever holds parts of it."""
    root, bias1 = math.sqrt(1 - BETAS[1] ** step), 1 - BETAS[0] ** step
    update = [m / bias1 / (math.sqrt(v) / root + EPS) + decay * x for x, m, v in zip(p, after["exp_avg"], after["exp_avg_sq"])]
    length, of_update = (math.sqrt(math.fsum(x * x for x in values)) for values in (p, update))
    ratio = length / of_update if length > 0 and of_update > 0 else 1
    return [x - lr * ratio * u for x, u in zip(p, update)]


FORMULAS = {
    "lamb": lamb,
    "lion": lion,
    "adan": adan,
    "adamw": adam,
    "adam": lambda p, before, after, lr, decay, step: adam(p, before, after, lr, 0, step),
    "sgd": lambda p, before, after, lr, decay, step: [x - lr * m for x, m in zip(p, after["momentum_buffer"])],
}


def read(checkpoints, step):
    folder = harness.step_folder(checkpoints, step)
    state = {}
    for name, (_, values) in harness.read_safetensors(os.path.join(folder, "optimizer.safetensors")).items():
        param, _, kind = name.rpartition(".")
        state.setdefault(param, {})[kind] = values
    return harness.read_safetensors(os.path.join(folder, "model.safetensors")), state


def check_formula(tally, name, optimizer, groups, place, bound):
    (old, old_state), (new, new_state) = (read(os.path.join(place, "ck"), step) for step in (BEFORE, STEPS))
    worst, where, moved, unclear = 0.0, "", 0, 0
    for param, (shape, values) in old.items():
        lr, decay = recipe_of(groups, param, shape)
        values, found = (state.get("master", weights) for state, weights in ((old_state[param], values), (new_state[param], new[param][1])))
        want = FORMULAS[optimizer](values, old_state[param], new_state[param], lr, decay, STEPS)
        error = harness.tensor_error([a for a, b in zip(found, want) if b is not None], [b for b in want if b is not None])
        unclear += sum(b is None for b in want)
        moved += list(values) != list(found)
        if error > worst:
            worst, where = error, param
    tally.check("%s: every parameter by the formula" % name, worst <= bound and moved >= len(old) - 1 and unclear < 100, "%.1e %s, %d of %d moved, %d signs unclear" %
                (worst, where, moved, len(old), unclear))
    return worst


# ---- trainings ----

def case(t, p, d, precision="fp64", more=None, words=(), model="gpt", **settings):
    return trainings.layout(model, tensor=t, pipeline=p, data=d, precision=precision, more=dict({"model.layers": 2}, **(more or {})), batch=4,
                            words=words, **settings)


def layouts(model):
    return (
        case(2, 2, 1, model=model),
        case(1, 1, 4, zero=1, model=model),
        case(1, 1, 2, zero=2, model=model),
        case(2, 1, 2, zero=3, model=model),
        case(1, 1, 2, zero=1, words=GPU, model=model),
        case(1, 1, 1, words=GPU + ("--set", 'offload[optimizer]="cpu"'), model=model),
    )


def offloaded(tier, *classes):
    return tuple(part for name in classes for part in ("--set", 'offload[%s]="%s"' % (name, tier)))


def adan_layouts():
    """Its state on disks and on the host, with gradients and parameters; an average alongside it."""
    return (
        case(1, 1, 1, words=GPU + offloaded("nvme", "optimizer")),
        case(1, 1, 2, zero=1, words=GPU + offloaded("cpu", "optimizer")),
        case(1, 1, 2, zero=2, words=GPU + offloaded("nvme", "optimizer", "gradients")),
        case(1, 1, 2, zero=3, words=GPU + offloaded("cpu", "optimizer", "params") + ("--set", "train.ema=0.9")),
    )


EXACT, F32 = 1e-13, 3e-6  # roundings of the formula; f32 moments and a master copy


def train(one, place, words):
    os.makedirs(place)
    return trainings.train(one.model, dict(one.settings), place, STEPS, words + one.words)


def due(families):
    """Of layouts of all families those whose turn it is, and of a third of degrees, stages and places of state one; every optimizer has one rank."""
    numbered = [(family[0], i, one) for family in families for i, one in enumerate(family[2])]
    chosen = trainings.in_turn(numbered, values=lambda entry: trainings.values_of(entry[2]), among=3)
    return [[one for i, one in enumerate(family[2]) if (family[0], i, one) in chosen] for family in families]


def check_family(tally, folder, optimizer, groups, others, verbose, model="gpt", more=None):
    reference = None
    for i, one in enumerate([case(1, 1, 1, model=model, more=more), *others]):
        place = os.path.join(folder, "%s%d_%d" % (optimizer, len(groups), i))
        got = train(one, place, words_of(optimizer, groups))
        name = "%s %s%s" % (optimizer, "groups " if groups else "", " ".join((one.name,) + one.words[2:]))
        if not tally.check(name + " runs", not got.error, got.error or ""):
            return
        error = check_formula(tally, name, optimizer, groups, place, EXACT)
        reference = reference or got
        errors = trainings.judge(tally, name + ": as one rank", got, reference, trainings.BOUNDS["fp64"])
        if verbose:
            print("%5.2f s  %s: formula %.1e, one rank %s" % (got.seconds, name, error, errors), flush=True)


def check_16_bits(tally, folder, verbose):
    """The master copy, by f32 moments."""
    one = case(1, 1, 2, "mixed_bf16", zero=1)
    for number, optimizer in enumerate(("adamw", "adan", "lamb")):
        if not harness.my_turn(number, 3):
            continue
        place = os.path.join(folder, "bf16" + optimizer)
        got = train(one, place, words_of(optimizer, GROUPS))
        if tally.check("bf16 %s runs" % optimizer, not got.error, got.error or ""):
            check_formula(tally, "bf16", optimizer, GROUPS, place, F32)


def check_one_bit(tally, folder, verbose):
    """Frozen steps: the momentum after the exchange, the variance as it was, and the learning rate of the group."""
    one = case(1, 1, 2, compress=True)
    place = os.path.join(folder, "one_bit")
    got = train(one, place, words_of("adamw", GROUPS, ", freeze_step = 3"))
    if not tally.check("1-bit Adam runs", not got.error, got.error or ""):
        return
    (old, _), (new, state) = (read(os.path.join(place, "ck"), step) for step in (BEFORE, STEPS))
    most, worst = max(1.0, (1 - BETAS[0]) / math.sqrt(1 - BETAS[1])), 0.0
    for param, (shape, values) in old.items():
        lr, decay = recipe_of(GROUPS, param, shape)
        root, bias1, want = math.sqrt(1 - BETAS[1] ** 3), 1 - BETAS[0] ** STEPS, []
        for x, m, v in zip(values, state[param]["exp_avg"], state[param]["exp_avg_sq"]):
            want.append(x * (1 - lr * decay) - lr * max(-most, min(most, m / bias1 / (math.sqrt(v) / root + EPS))))
        worst = max(worst, harness.tensor_error(new[param][1], want))
    tally.check("1-bit Adam: every parameter by the formula", worst <= EXACT, "%.1e" % worst)


LAMB_FREEZE, AVERAGE, FACTORS, MOVE = 3, 0.9, (0.5, 4), 0.1
OWNERS = 1e-8  # an owner's error is a hundredth of a weight and f32


def coefficients(place, step):
    with open(os.path.join(harness.step_folder(os.path.join(place, "ck"), step), "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    return {name: [float(x) for x in values] for name, values in manifest["coefficients"].items()}


def check_average(tally, place):
    """The last step of LAMB: the ratio of every tensor, which its average follows."""
    (old, _), (_, state), before, after = read(os.path.join(place, "ck"), 2), read(os.path.join(place, "ck"), 3), coefficients(place, 2), coefficients(place, 3)
    worst = 0.0
    for param, (shape, values) in old.items():
        lr, decay = recipe_of(LLAMA_GROUPS, param, shape)
        root, bias1 = math.sqrt(1 - BETAS[1] ** 3), 1 - BETAS[0] ** 3
        update = [m / bias1 / (math.sqrt(v) / root + EPS) + decay * x for x, m, v in zip(values, state[param]["exp_avg"], state[param]["exp_avg_sq"])]
        ratio = math.sqrt(math.fsum(x * x for x in values) / math.fsum(x * x for x in update))
        worst = max(worst, harness.number_error(after[param][0], AVERAGE * before[param][0] + (1 - AVERAGE) * ratio))
    tally.check("1-bit LAMB: averages of the ratios", worst <= EXACT and all(factor == 1 for _, factor in after.values()), "%.1e" % worst)


def check_one_bit_lamb(tally, folder, verbose):
    """Steps by the formulas; in two parts on emulated GPUs, with ZeRO 1 on two stages of them, they are the same."""
    words = words_of("lamb", LLAMA_GROUPS, ", freeze_step = %d" % LAMB_FREEZE) + ("--set", "train.checkpoint.keep=%d" % STEPS)
    for zero in (0, 1):
        if not harness.my_turn(zero, 2):
            continue
        one, two = (case(1, stages, 2, model="llama", compress=True, zero=zero) for stages in (1, 1 + zero))
        name = "1-bit LAMB ZeRO %d" % zero
        place, parts = (os.path.join(folder, "one_bit_lamb%d%s" % (zero, what)) for what in ("", "_parts"))
        got = trainings.train(one.model, dict(one.settings), os.makedirs(place) or place, STEPS, words)
        if not tally.check(name + " runs", not got.error, got.error or ""):
            continue
        check_average(tally, place)
        errors = check_frozen_lamb(tally, name, place)
        first = trainings.train(two.model, dict(two.settings), os.makedirs(parts) or parts, BEFORE, GPU + words + NCCL)
        rest = trainings.train(two.model, dict(two.settings), parts, STEPS, GPU + words + ("--resume",) + NCCL)
        good = not first.error and not rest.error
        error, tensor = harness.model_error(rest.checkpoint, got.checkpoint) if good else (math.inf, "")
        tally.check(name + " in parts on GPUs", error <= trainings.BOUNDS["fp64"]["parameters"], "%.1e %s %s %s" % (error, tensor, first.error, rest.error))
        if verbose:
            print("%s: %s; on GPUs in parts %.1e" % (name, errors, error), flush=True)


def check_frozen_lamb(tally, name, place):
    """A frozen step by arXiv 2104.06069, computed again from the checkpoints around it: the variance goes on by the gradient that the exchanged
    momenta stand for, the factor of a tensor by the largest ratio of the roots, the parameters by both. With ZeRO 1 momentum is what the mean of
    the workers makes of it, and exact weights are those of all ranks and what the owner has more, in f32."""
    (old, old_state), (new, state), before, after = read(os.path.join(place, "ck"), BEFORE), read(os.path.join(place, "ck"), STEPS), coefficients(place, BEFORE), coefficients(place, STEPS)
    fresh = [harness.read_safetensors(os.path.join(harness.step_folder(os.path.join(place, "ck"), step), "errors.safetensors")) for step in (BEFORE, STEPS)]
    most, errors = max(1.0, (1 - BETAS[0]) / math.sqrt(1 - BETAS[1])), {"variance": 0.0, "factor": 0.0, "parameter": 0.0}
    root, fresh_root, bias1 = math.sqrt(1 - BETAS[1] ** LAMB_FREEZE), math.sqrt(1 - BETAS[1] ** STEPS), 1 - BETAS[0] ** STEPS
    for param, (shape, values) in old.items():
        lr, decay = recipe_of(LLAMA_GROUPS, param, shape)
        m, v = state[param]["exp_avg"], state[param]["exp_avg_sq"]
        owners_error = [tensors[param + ".owner_error"][1] if param + ".owner_error" in tensors else [0] * len(m) for tensors in fresh]
        values, found = ([x + e for x, e in zip(weights, more)] for weights, more in zip((values, new[param][1]), owners_error))
        was, now = (tensors[param + ".exp_avg_sq_fresh"][1] for tensors in fresh)
        want = [BETAS[1] * f + (1 - BETAS[1]) * ((b - BETAS[0] * a) / (1 - BETAS[0])) ** 2 for f, a, b in zip(was, old_state[param]["exp_avg"], m)]
        errors["variance"] = max(errors["variance"], harness.tensor_error(now, want))
        ratio = max((math.sqrt(a) / root + EPS) / (math.sqrt(b) / fresh_root + EPS) for a, b in zip(v, want) if a > 0)
        factor = max(FACTORS[0], min(FACTORS[1], ratio))
        factor = max(before[param][1] * (1 - MOVE), min(before[param][1] * (1 + MOVE), factor))
        errors["factor"] = max(errors["factor"], harness.number_error(after[param][1], factor))
        scaled = lr * after[param][0] * factor
        want = [x - scaled * (max(-most, min(most, a / bias1 / (math.sqrt(b) / root + EPS))) + decay * x) for x, a, b in zip(values, m, v)]
        errors["parameter"] = max(errors["parameter"], harness.tensor_error(found, want))
    owners = any(tensor.endswith(".owner_error") for tensor in fresh[1])
    tally.check(name + ": a step by the formulas", errors["parameter"] <= (OWNERS if owners else EXACT) and max(errors["variance"], errors["factor"]) <= EXACT, str(errors))
    tally.check(name + ": factors move", any(abs(factor - 1) > 0.05 for _, factor in after.values()), str(after))
    return errors


def check_resume(tally, folder, optimizer, model, groups, other):
    """From one rank to another layout."""
    whole, place = (os.path.join(folder, optimizer + name) for name in ("whole", "goes on"))
    one, words = case(1, 1, 1, model=model), words_of(optimizer, groups)
    want = train(one, whole, words)
    trainings.train(one.model, dict(one.settings), os.makedirs(place) or place, BEFORE, words)
    got = trainings.train(other.model, dict(other.settings), place, STEPS, words + other.words + ("--resume",))
    error, tensor = harness.model_error(got.checkpoint, want.checkpoint) if not got.error or "the log has" in got.error else (math.inf, got.error)
    tally.check("%s goes on with %s" % (optimizer, other.name), error <= trainings.BOUNDS["fp64"]["parameters"], "%.1e %s" % (error, tensor))


def check_adan(tally, folder):
    """All steps from the first one on, every array of the state; the first gradient is the one that AdamW sees."""
    one, place, adamw = case(1, 1, 1), os.path.join(folder, "adan_steps"), os.path.join(folder, "adamw_step")
    got = train(one, place, words_of("adan", GROUPS) + ("--set", "train.checkpoint.keep=%d" % STEPS))
    other = trainings.train(one.model, dict(one.settings), os.makedirs(adamw) or adamw, 1, words_of("adamw", GROUPS))
    if not tally.check("adan and adamw run", not got.error and not other.error, "%s %s" % (got.error, other.error)):
        return
    first, seen = read(os.path.join(place, "ck"), 1)[1], read(os.path.join(adamw, "ck"), 1)[1]
    error = max(harness.tensor_error(state["pre_grad"], [m / (1 - BETAS[0]) for m in seen[param]["exp_avg"]]) for param, state in first.items())
    tally.check("adan keeps the gradient", error <= EXACT, "%.1e" % error)
    worst, before = 0.0, {param: {kind: [0.0] * len(state["exp_avg"]) for kind in ADAN_STATE} for param, state in first.items()}
    for step in range(1, STEPS + 1):
        after = read(os.path.join(place, "ck"), step)[1]
        for param, state in after.items():
            old, g = before[param], state["pre_grad"]
            rows = [adan_element(0, *values, g[i], LR, DECAY, step) for i, values in enumerate(zip(*(old[kind] for kind in ADAN_STATE)))]
            worst = max([worst] + [harness.tensor_error(state[kind], [row[k] for row in rows]) for k, kind in enumerate(ADAN_STATE[:3], 1)])
        before = after
    tally.check("adan's averages from the first step on", worst <= EXACT, "%.1e" % worst)
    late, place = case(1, 1, 1, words=GPU + offloaded("cpu", "optimizer") + ("--set", "train.delayed_update=after(2)")), os.path.join(folder, "adan_late")
    got = train(late, place, words_of("adan", GROUPS))
    if tally.check("adan runs a step late", not got.error, got.error or ""):
        check_formula(tally, "adan a step late", "adan", GROUPS, place, EXACT)


def check_state(tally):
    """Lion has one moment where Adam has two and Adan four arrays, and moves and plans so much less."""
    held = {}
    for name in ("adamw", "lion", "adan"):
        outcome = harness.zplan("plan", os.path.join(HERE, "llama.dz"), "--ranks", 1, "--json", "--set", "optimizer=%s)" % OPTIMIZERS[name])
        held[name] = json.loads(outcome.out)["stages"][0]["memory"]["optimizer"] if outcome.status == 0 else None
    tally.check("lion's state is half of Adam's, Adan's twice", bool(held["adamw"]) and held["adan"] == 2 * held["adamw"] == 4 * held["lion"], str(held))


# ---- refusals ----

def check_refusals(tally):
    model = os.path.join(HERE, "gpt.dz")
    for groups, text in (
            ("[group(\"*.gain\", weight_decay = 0)]", "no parameter has a name like `*.gain`"),
            ("[group(\"h.0.*\", weight_decay = 0)]", "whose number no group can tell apart"),
            ("[group(\"*\", lr_factor = 2), group(\"wte\", weight_decay = 0)]", "is in a group before this one"),
            ("[group(\"wte\", lr = 1e-4)]", "lr_factor"),
            ("[group(\"wte\", lr_factor = -1)]", "lr_factor"),
            ("[group(lr_factor = 1)]", "needs a pattern"),
            ("\"wte\"", "is a list of groups"),
            ("[3]", "written like a call")):
        outcome = harness.zplan("check", model, "--set", "train.groups=" + groups)
        tally.check("refused: %s" % groups, outcome.status == 1 and text in outcome.out + outcome.err, outcome.tail())
    gates = os.path.join(HERE, "moe.dz")
    for word, text in (("train.groups=[group(\"*.experts.bias\", lr_factor = 2)]", "names biases of gates alone"),
                       ("train.optimizer=lamb(lr = 1e-3)", "not built for the bias of a gate"),
                       ("compress=true", "compress does not go with biases of gates")):
        outcome = harness.zplan("plan", gates, "--ranks", 2, "--set", word)
        tally.check("refused: %s" % word, outcome.status in (1, 3) and text in outcome.out + outcome.err, outcome.tail())
    example, groups = os.path.join(harness.ROOT, "examples", "gpt2.dz"), ("--set", "train.groups=[group(\"wte\", lr_factor = 0.1)]")
    outcome = harness.zplan("plan", model, "--ranks", 2, "--set", "compress=true", "--set", "optimizer=lion(lr = 1e-2)")
    for words, text in (
            (("compress=true", "zero=2"), "compress does not go with ZeRO 2 and 3"),
            (('offload[params]="cpu"', 'offload[optimizer]="none"'), "of lamb and adafactor no more of")):
        said = [part for word in words for part in ("--set", word)]
        outcome2 = harness.zplan("plan", model, "--cluster", "gpu", "--gpus", 2, "--set", "optimizer=lamb(lr = 1e-2)", *said)
        tally.check("refused: lamb with %s" % " ".join(words), outcome2.status == 3 and text in outcome2.out + outcome2.err, outcome2.tail())
    adan = harness.zplan("plan", model, "--ranks", 2, "--set", "compress=true", "--set", "optimizer=adan(lr = 1e-2)")
    tally.check("refused: 1-bit adan", adan.status == 3 and "compress is for adam, adamw and lamb" in adan.out + adan.err, adan.tail())
    for betas in ("[0.9, 0.95]", "[0.9, 0.95, 1.0]"):
        said = harness.zplan("check", model, "--set", "optimizer=adan(lr = 1e-2, betas = %s)" % betas)
        text = "`betas` is a list of three numbers" if betas.count(",") < 2 else "`betas`"
        tally.check("refused: adan with betas %s" % betas, said.status == 1 and text in said.out + said.err, said.tail())
    tally.check("refused: 1-bit lion", outcome.status == 3 and "compress is for adam, adamw and lamb" in outcome.out + outcome.err, outcome.tail())
    for words in (("export", "deepspeed"), ("export", "megatron")):
        for name in ("lion", "lamb", "adan"):
            outcome = harness.zplan(*words, example, "--gpus", 8, "--set", "cluster.nodes=1", "--set", "optimizer=%s(lr = 1e-4)" % name)
            tally.check("refused: %s with %s" % (words[1], name), outcome.status != 0 and name in outcome.out + outcome.err, outcome.tail())
        outcome = harness.zplan(*words, example, "--gpus", 8, "--set", "cluster.nodes=1", *groups)
        tally.check("refused: %s with groups" % words[1], outcome.status != 0 and "groups of parameters" in outcome.out + outcome.err, outcome.tail())
    outcome = harness.zplan("check", model, *group_words(GROUPS))
    tally.check("groups are told", outcome.status == 0 and "group h.{}.mlp.*: 2 parameters, 89,600 elements, learning rate x 0.5, weight decay 0.3" in
                outcome.out, outcome.tail())


def main():
    parser = argparse.ArgumentParser(description="optimizers by their formulas")
    parser.add_argument("--all", action="store_true", help="every optimizer in every layout")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally, by_element = harness.Tally(), slice(None) if options.all else slice(3, 5)
    with harness.Scratch() as folder:
        check_refusals(tally)
        scaled = {"model.n": 2, "model.corrected": False}  # biases of gates do not go with lamb
        families = (
            ("adamw", GROUPS, layouts("gpt"), "gpt", None),
            ("adam", GROUPS, (), "gpt", None),
            ("sgd", GROUPS, (), "gpt", None),
            ("adamw", (), (), "gpt", None),
            ("lion", LLAMA_GROUPS, layouts("llama")[by_element], "llama", None),
            ("lamb", GROUPS, layouts("gpt")[:-1], "gpt", None),
            ("lamb", (), (case(1, 1, 4, zero=1, model="moe", more={"plan.expert": 2, **scaled}),), "moe", scaled),
            ("adan", GROUPS, layouts("gpt")[by_element] + adan_layouts(), "gpt", None))
        for (optimizer, groups, _, model, more), others in zip(families, due(families)):
            check_family(tally, folder, optimizer, groups, others, options.verbose, model, more)
        check_adan(tally, folder)
        for number, goes_on in enumerate((("lion", "llama", LLAMA_GROUPS, case(1, 1, 2, zero=2, model="llama")),
                                          ("adan", "gpt", GROUPS, case(1, 1, 2, zero=3, words=GPU + offloaded("nvme", "optimizer"))))):
            if harness.my_turn(number, 2):
                check_resume(tally, folder, *goes_on)
        check_state(tally)
        check_16_bits(tally, folder, options.verbose)
        check_one_bit(tally, folder, options.verbose)
        check_one_bit_lamb(tally, folder, options.verbose)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
