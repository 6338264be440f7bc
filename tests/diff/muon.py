#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Muon: matrices of layers by the formula, the others by AdamW, computed again from two checkpoints in a row; every layout alike.

    muon.py [--verbose]

1. Written here in f64 (Keller Jordan 2024; scale and decay of arXiv 2502.16982): the momentum says what the gradient was, five steps of
   Newton-Schulz follow, and from the parameters before the step those after it. Embeddings, norms, biases and what a group says so: AdamW.
   Where some Python has torch 2.9 (PYTHON=path chooses one), torch.optim.Muon does the same step, with its bf16 replaced by f64.
2. One rank's training: tensor ranks and ZeRO 1 to 3, pipelines, data ranks, experts over data ranks, recomputation; bf16 and fp16 within their rounding. --check-memory in all of them.
3. Two parts are the whole, to the byte, with another layout as near as its sums; a matrix has no second moment in a checkpoint.
4. The products are counted and priced; what Muon does not go with is refused, with code, place and help.
"""
import argparse
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import need_numpy  # noqa: E402,F401
import harness  # noqa: E402
import numpy as np  # noqa: E402
import trainings  # noqa: E402

STEPS, BEFORE, LR, DECAY, MOMENTUM = 4, 3, 3e-3, 0.1, 0.9
BETAS, EPS = (0.9, 0.95), 1e-8
SHARES = (3.4445, -4.7750, 2.0315)
GPU = ("--cluster", "gpu", "--arch", "host")
MUON = "muon(lr = %g, momentum = %g, betas = [%g, %g], eps = %g, weight_decay = %g)" % (LR, MOMENTUM, *BETAS, EPS, DECAY)
GROUPS = 'train.groups=[group("*.mlp.c_fc.weight", optimizer = "adamw"), group("*.attn.c_proj.weight", lr_factor = 0.5, weight_decay = 0)]'
# Of the formula in f64; in f32 its roundings, of which a weight has a share of 0.2 lr sqrt(longer side).
EXACT, F32 = 1e-13, 2e-6
TORCH = """
import json, sys, torch
torch.bfloat16 = torch.float64
case = json.load(open(sys.argv[1]))
out = []
for rows, cols, w, m, g, lr, decay in case["matrices"]:
    p = torch.nn.Parameter(torch.tensor(w, dtype=torch.float64).view(rows, cols))
    p.grad = torch.tensor(g, dtype=torch.float64).view(rows, cols)
    o = torch.optim.Muon([p], lr=lr, weight_decay=decay, momentum=case["momentum"], nesterov=True, adjust_lr_fn="match_rms_adamw")
    o.state[p]["momentum_buffer"] = torch.tensor(m, dtype=torch.float64).view(rows, cols)
    o.step()
    out.append(p.detach().flatten().tolist())
print(json.dumps(out))
"""


def words_of(optimizer=MUON, groups=True):
    return ("--set", "optimizer=" + optimizer, "--set", "train.schedule=constant()", "--set", 'train.checkpoint.dir="ck"', "--set", "train.checkpoint.every=1",
            "--set", "train.checkpoint.keep=9", *(("--set", GROUPS) if groups else ()))


def case(t, p, d, precision="fp64", more=None, words=(), model="gpt", **settings):
    return trainings.layout(model, tensor=t, pipeline=p, data=d, precision=precision, more=dict({"model.layers": 2}, **(more or {})), batch=8,
                            words=words, **settings)


def train(one, place, words, steps=STEPS):
    os.makedirs(place, exist_ok=True)
    return trainings.train(one.model, dict(one.settings), place, steps, words + one.words)


# ---- formulas ----

def orthogonal(update, rows, cols):
    """Five steps, of the matrix that is no taller than wide."""
    x = np.array(update, dtype=np.float64).reshape(rows, cols)
    x = x.T if rows > cols else x
    x = x / max(float(np.linalg.norm(x)), 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = SHARES[0] * x + (SHARES[1] * gram + SHARES[2] * gram @ gram) @ x
    return (x.T if rows > cols else x).flatten().tolist()


def is_matrix(name, shape, groups):
    layer = any(part.isdigit() for part in name.split("."))
    return layer and len(shape) == 2 and not (groups and name.endswith("mlp.c_fc.weight"))


def recipe_of(name, shape, groups):
    if groups and name.endswith("attn.c_proj.weight"):
        return 0.5 * LR, 0
    return LR, DECAY if len(shape) > 1 else 0


def gradient_of(old, new):
    return [(b - MOMENTUM * a) / (1 - MOMENTUM) for a, b in zip(old, new)]


def muon(shape, w, old, new, lr, decay):
    gradient = gradient_of(old, new)
    update = orthogonal([g + MOMENTUM * (m - g) for g, m in zip(gradient, new)], *shape)
    scale = 0.2 * math.sqrt(max(shape))
    return [x * (1 - lr * decay) - lr * scale * u for x, u in zip(w, update)]


def adamw(w, m, v, lr, decay):
    root = math.sqrt(1 - BETAS[1] ** STEPS)
    return [x * (1 - lr * decay) - lr / (1 - BETAS[0] ** STEPS) * a / (math.sqrt(b) / root + EPS) for x, a, b in zip(w, m, v)]


def read(place, step):
    folder = harness.step_folder(os.path.join(place, "ck"), step)
    state = {}
    for name, (_, values) in harness.read_safetensors(os.path.join(folder, "optimizer.safetensors")).items():
        param, _, kind = name.rpartition(".")
        state.setdefault(param, {})[kind] = values
    return harness.read_safetensors(os.path.join(folder, "model.safetensors")), state


def check_formula(tally, name, place, bound, groups=True, ema=0.0, adapters=False):
    (old, old_state), (new, new_state) = (read(place, step) for step in (BEFORE, STEPS))
    worst, where, torch_case, after = 0.0, "", [], []
    for param, (shape, weights) in old.items():
        if adapters and ".lora_" not in param:
            tally.check("%s: %s is frozen" % (name, param), param not in new_state and list(weights) == list(new[param][1]))
            continue
        a, b = old_state[param], new_state[param]
        w, found = a.get("master", weights), b.get("master", new[param][1])
        lr, decay = recipe_of(param, shape, groups)
        if is_matrix(param, shape, groups):
            tally.check("%s: %s has momentum alone" % (name, param), sorted(k for k in b if k not in ("master", "ema")) == ["momentum_buffer"], str(sorted(b)))
            want = muon(shape, w, a["momentum_buffer"], b["momentum_buffer"], lr, decay)
            torch_case.append((shape[0], shape[1], list(w), list(a["momentum_buffer"]), gradient_of(a["momentum_buffer"], b["momentum_buffer"]), lr, decay))
            after.append(found)
        else:
            want = adamw(w, b["exp_avg"], b["exp_avg_sq"], lr, decay)
        error = harness.tensor_error(found, want)
        if ema:
            error = max(error, harness.tensor_error(b["ema"], [ema * x + (1 - ema) * y for x, y in zip(a["ema"], found)]))
        if error > worst:
            worst, where = error, param
    tally.check("%s: every parameter by its formula" % name, worst <= bound and bool(after), "%.1e %s, %d matrices" % (worst, where, len(after)))
    return torch_case, after


def check_torch(tally, place, matrices, after):
    for python in filter(None, (os.environ.get("PYTHON"), "python3", "/usr/bin/python3")):
        if harness.run([python, "-c", "import torch; torch.optim.Muon"]).status == 0:
            break
    else:
        return
    path, script = os.path.join(place, "case.json"), os.path.join(place, "muon.py")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"momentum": MOMENTUM, "matrices": matrices}, file)
    with open(script, "w", encoding="utf-8") as file:
        file.write(TORCH)
    outcome = harness.run([python, script, path])
    if not tally.check("torch runs", outcome.status == 0, outcome.tail()):
        return
    error = max(map(harness.tensor_error, after, json.loads(outcome.out)), default=math.inf)
    tally.check("as torch.optim.Muon in f64", error <= EXACT, "%.1e of %d matrices" % (error, len(after)))


# ---- trainings ----

LAYOUTS = (
    case(2, 1, 1),
    case(1, 1, 2, zero=1),
    case(1, 1, 4, zero=3), # fewer layers than data ranks
    case(2, 1, 2, zero=2),
    case(2, 1, 2, zero=1, words=GPU),
    case(1, 2, 1),
    case(1, 1, 2),
    case(1, 2, 2, recompute="full"),
    case(1, 2, 1, schedule="zb_h1"),
    case(1, 2, 2, words=GPU),
    case(1, 1, 2, words=GPU + ("--", "--comm", "nccl")), # an emulated one
)


def check_layouts(tally, folder, verbose):
    reference = os.path.join(folder, "one")
    want = train(case(1, 1, 1), reference, words_of())
    if not tally.check("one rank runs", not want.error, want.error or ""):
        return
    check_torch(tally, reference, *check_formula(tally, "one rank", reference, EXACT))
    for i, one in enumerate(trainings.in_turn(LAYOUTS, among=3)):
        place = os.path.join(folder, "layout%d" % i)
        got = train(one, place, words_of())
        name = " ".join((one.name,) + one.words[2:])
        errors = trainings.judge(tally, name + ": as one rank", got, want, trainings.BOUNDS["fp64"])
        settings = dict(one.settings)
        if errors and (one.words or settings["tensor"] * settings["zero"] > 1):  # what is not the arithmetic of one rank; others are as near it as judged
            check_formula(tally, name, place, EXACT)
        if verbose:
            print("%5.2f s  %s: %s" % (got.seconds, name, errors), flush=True)
    plain = os.path.join(folder, "plain")
    got = train(case(1, 1, 1, model="llama"), plain, words_of(groups=False))
    if tally.check("llama runs", not got.error, got.error or ""):
        check_formula(tally, "llama without groups", plain, EXACT, groups=False)
    averaged = os.path.join(folder, "averaged")
    got = train(case(1, 1, 1), averaged, words_of() + ("--set", "train.ema=0.9"))
    if tally.check("with an average runs", not got.error, got.error or ""):
        check_formula(tally, "with an average", averaged, EXACT, ema=0.9)
    adapters = ("--set", 'train.adapt=lora(rank = 4, of = ["h.{}.attn.*weight"])')
    for i, one in enumerate((case(1, 1, 1, words=adapters), case(1, 2, 2, words=adapters))):
        if not harness.my_turn(i, 2):
            continue
        place = os.path.join(folder, "adapters%d" % i)
        got = train(one, place, words_of(groups=False))
        if tally.check("%s: adapters run" % one.name, not got.error, got.error or ""):
            check_formula(tally, "%s, adapters" % one.name, place, EXACT, groups=False, adapters=True)
    experts = case(1, 1, 2, model="moe", more={"plan.expert": 2, "model.n": 2})
    one = case(1, 1, 1, model="moe", more={"model.n": 2})
    results = [train(one, os.path.join(folder, "moe%d" % i), words_of(groups=False)) for i, one in enumerate((experts, one))]
    trainings.judge(tally, experts.name + ": as one rank", *results, trainings.BOUNDS["fp64"])


def check_16_bits(tally, folder):
    """Products of the f32 masters, in f32; on GPUs see check_padding."""
    for number, precision in enumerate(("fp32", "mixed_bf16", "mixed_fp16")):
        if not harness.my_turn(number, 3):
            continue
        place = os.path.join(folder, precision)
        got = train(case(1, 1, 1, precision), place, words_of() + (("--set", "train.loss_scale=128") if precision == "mixed_fp16" else ()))
        if tally.check(precision + " runs", not got.error, got.error or ""):
            check_formula(tally, precision, place, F32)


def check_room(tally, folder):
    """Where what the update works in is the largest buffer, also on ranks without a layer, all of it is used: --check-memory."""
    for ranks in (2, 4):
        if not harness.my_turn(ranks // 2, 2):
            continue
        one = case(1, 1, ranks, "mixed_bf16", zero=1, more={"model.d": 240, "model.V": 16})
        got = train(one, os.path.join(folder, "room%d" % ranks), words_of(), 1)
        tally.check("%s: the room is as planned" % one.name, not got.error, got.error or "")


def check_padding(tally, folder):
    """With tensor cores a side of 50 is one of 56 inside."""
    place = os.path.join(folder, "padded")
    got = train(case(1, 1, 1, "mixed_bf16", model="llama", words=GPU), place, words_of(groups=False))
    if tally.check("padded runs", not got.error, got.error or ""):
        check_formula(tally, "padded", place, F32, groups=False)


def check_resume(tally, folder):
    whole, parts, other = (os.path.join(folder, name) for name in ("whole", "parts", "other"))
    for number, (precision, layouts) in enumerate((("fp32", (case(1, 1, 1, "fp32"), case(1, 1, 1, "fp32"))), ("fp64", (case(1, 1, 1), case(2, 1, 2, zero=1))))):
        if not harness.my_turn(number, 2):
            continue
        place = parts if precision == "fp32" else other
        train(layouts[0], whole + precision, words_of())
        train(layouts[0], place, words_of(), 2)
        train(layouts[1], place, words_of() + ("--resume",))
        files = [[os.path.join(harness.step_folder(os.path.join(p, "ck"), STEPS), name) for p in (whole + precision, place)]
                 for name in ("model.safetensors", "optimizer.safetensors")]
        if not tally.check("%s in two parts runs" % precision, all(os.path.exists(path) for pair in files for path in pair)):
            continue
        if precision == "fp32":
            tally.check("two parts are the whole, to the byte", all(harness.same_bytes(*pair) for pair in files))
        else:
            error, tensor = harness.model_error(*files[0])
            tally.check("another layout goes on", error <= 1e-10, "%.1e %s" % (error, tensor))


def check_learning(tally, folder):
    """On a text it gets further than AdamW with the same learning rates, which is what it is for."""
    model, losses = os.path.join(harness.ROOT, "examples", "gpt_tiny.dz"), {}
    for name in ("muon", "adamw"):
        log = os.path.join(folder, name + ".jsonl")
        outcome = harness.zplan("run", model, "--ranks", 1, "--set", "model.layers=2", "--set", "train.batch=4", *trainings.ON_TEXT, "--steps", 40, "--log", log,
                                "--set", "optimizer=%s(lr = 3e-3)" % name, "-o", os.path.join(folder, "tree"), "--", "--checkpoint", os.path.join(folder, name),
                                env=trainings.ENVIRONMENT)
        if tally.check("%s learns a text" % name, outcome.status == 0, outcome.tail()):
            losses[name] = sum(record["loss"] for record in harness.read_log(log)[0][-10:]) / 10
    if len(losses) == 2:
        tally.check("muon gets further", losses["muon"] < losses["adamw"] < 4, str(losses))


# ---- refusals ----

def check_refusals(tally):
    model, example = os.path.join(HERE, "gpt.dz"), os.path.join(harness.ROOT, "examples", "gpt2.dz")
    muon_words = ("--set", "optimizer=muon(lr = 1e-3)")
    outcome = harness.zplan("plan", model, "--ranks", 2, *muon_words, "--set", "plan.compress=true", "--set", "plan.data=2")
    tally.check("refused: muon with 1-bit exchange", outcome.status == 3 and "compress is for adam, adamw and lamb" in outcome.out + outcome.err, outcome.tail())
    outcome = harness.zplan("plan", model, "--cluster", "gpu", "--gpus", 2, *muon_words, "--set", 'offload[optimizer]="cpu"')
    tally.check("refused: muon with state on the host", outcome.status == 3 and "muon does not go with optimizer state" in outcome.out + outcome.err, outcome.tail())
    for words in (("export", "deepspeed"), ("export", "megatron")):
        outcome = harness.zplan(*words, example, "--gpus", 8, "--set", "cluster.nodes=1", *muon_words)
        tally.check("refused: %s with muon" % words[1], outcome.status != 0 and "muon" in outcome.out + outcome.err, outcome.tail())
    for words, text in ((("optimizer=muon(lr = 1e-3)", 'train.groups=[group("wte", optimizer = "muon")]'), "`wte` cannot take muon: it is no matrix of a layer"),
                        (("optimizer=muon(lr = 1e-3)", 'train.groups=[group("*", optimizer = "adamw")]'), "`muon` finds no matrix to orthogonalise"),
                        (("optimizer=adamw(lr = 1e-3)", 'train.groups=[group("*c_fc*", optimizer = "muon")]'), "all take `adamw`"),
                        (("optimizer=muon(lr = 1e-3)", 'train.groups=[group("*c_fc*", optimizer = "sgd")]'), "`optimizer` cannot be"),
                        (("optimizer=muon(lr = 1e-3, momentum = 1)",), "`momentum` must be"), (("optimizer=muon()",), "needs a learning rate")):
        outcome = harness.zplan("check", model, *(w for s in words for w in ("--set", s)))
        good = outcome.status == 1 and "error[Z03" in outcome.err and text in outcome.err
        tally.check("refused: %s" % (words,), good, outcome.tail(12))
    outcome = harness.zplan("check", model, *muon_words)
    # 40 x 120, 40 x 40 and twice 40 x 160 a layer: 5 (4 n n m + 2 n n n), seven layers
    flop = 7 * sum(5 * (4 * 1600 * m + 2 * 64000) for m in (120, 40, 160, 160)) / 1e6
    tally.check("matrices are told", outcome.status == 0 and "muon: 28 matrices of the layers, %.1f M FLOP a step" % flop in outcome.out, outcome.tail())


def main():
    parser = argparse.ArgumentParser(description="Muon")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_refusals(tally)
        check_layouts(tally, folder, options.verbose)
        check_16_bits(tally, folder)
        check_room(tally, folder)
        check_padding(tally, folder)
        check_resume(tally, folder)
        if harness.my_turn(0, 2):
            check_learning(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
