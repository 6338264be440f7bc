#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The average of the weights (`train { ema = 0.9 }`), computed again from checkpoints; every layout alike; what may be made of it.

    ema.py [--verbose]

1. Before the first step the average is the weights; after each it is ema a + (1 - ema) w, written here in f64: for every optimizer, in bf16
   of the f32 masters. Skipped steps of fp16 leave it. The weights are those of the training without it, to the byte.
   Where some Python has torch 2 (PYTHON=path chooses one), its AveragedModel with get_ema_multi_avg_fn gives the same from the same weights.
2. Layouts train what one rank does, averages too: tensor, pipeline, ZeRO 1 to 3, experts, an emulated GPU, state on its host and disks, parameters there.
   --check-memory in all of them: arena, host and file as planned, to the byte.
3. In two parts with --resume it ends with the same bytes; another layout goes on with it; with `ema` and without cannot go on with each other.
4. `zplan eval`, `sample` and `export hf` with --ema take it: as without --ema of a checkpoint whose weights are the averages.
5. The plan: f32 AdamW has 12 bytes an element of state instead of 8, the update 36 instead of 28; what is refused.
"""
import argparse
import json
import math
import os
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS, EMA = 4, 0.9
GPU = ("--cluster", "gpu", "--arch", "host")
TEXT = os.path.join(harness.ROOT, "examples", "text.txt")
EXACT, F32 = 1e-15, 2e-7  # one rounding of the formula
TORCH = """
import json, sys, torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
weights, ema = json.load(open(sys.argv[1])), float(sys.argv[2])
class Model(torch.nn.Module):
    def __init__(self, values):
        super().__init__()
        self.w = torch.nn.ParameterList(torch.nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in values)
averaged = AveragedModel(Model(weights[0]), multi_avg_fn=get_ema_multi_avg_fn(ema))
for values in weights:  # the first call copies
    averaged.update_parameters(Model(values))
print(json.dumps([p.tolist() for p in averaged.module.w]))
"""


def words_of(optimizer="adamw(lr = 3e-3)", ema=EMA):
    return ("--set", "optimizer=" + optimizer, "--set", "train.schedule=constant()", "--set", 'train.checkpoint.dir="ck"', "--set", "train.checkpoint.every=1",
            "--set", "train.checkpoint.keep=20", *(("--set", "train.ema=%g" % ema) if ema else ()))


def case(t, p, d, precision="fp64", more=None, words=(), model="gpt", **settings):
    return trainings.layout(model, tensor=t, pipeline=p, data=d, precision=precision, more=dict({"model.layers": 2}, **(more or {})), batch=4,
                            words=words, **settings)


def train(one, place, words, steps=STEPS):
    os.makedirs(place, exist_ok=True)
    return trainings.train(one.model, dict(one.settings), place, steps, words + one.words)


def read(place, step):
    """(weights as they are updated, averages) of a checkpoint, by name."""
    folder = harness.step_folder(os.path.join(place, "ck"), step)
    weights = {name: values for name, (_, values) in harness.read_safetensors(os.path.join(folder, "model.safetensors")).items()}
    state = {name: values for name, (_, values) in harness.read_safetensors(os.path.join(folder, "optimizer.safetensors")).items()}
    return ({name: state.get(name + ".master", values) for name, values in weights.items()},
            {name[:-4]: values for name, values in state.items() if name.endswith(".ema")})


# ---- the formula ----

def check_formula(tally, name, place, bound, steps=STEPS, frozen=()):
    worst, moved = 0.0, 0
    for step in range(1, steps + 1):
        (_, before), (weights, after) = read(place, step - 1) if step > 1 else (None, None), read(place, step)
        if before is None:
            continue
        trained = {param: values for param, values in weights.items() if not param.endswith(tuple(frozen))}
        if not tally.check("%s: step %d has all averages" % (name, step), sorted(after) == sorted(trained) == sorted(before), str(sorted(after))[:200]):
            return
        for param, values in trained.items():
            want = [EMA * a + (1 - EMA) * w for a, w in zip(before[param], values)]
            worst = max(worst, harness.tensor_error(after[param], want))
            moved += list(after[param]) != list(before[param])
    tally.check("%s: averages by the formula" % name, worst <= bound and moved > 0, "%.1e, %d moved" % (worst, moved))


def check_start(tally, folder):
    """Initial weights are their own average; the first step moves it by the formula."""
    place, one = os.path.join(folder, "start"), case(1, 1, 1)
    train(one, place, words_of(), 0)
    weights, start = read(place, 0)
    tally.check("the average begins with the weights", bool(start) and {n: list(v) for n, v in weights.items()} == {n: list(v) for n, v in start.items()})
    got = train(one, place, words_of() + ("--resume",), 1)
    new, after = read(place, 1)
    want = {name: [EMA * a + (1 - EMA) * w for a, w in zip(start[name], new[name])] for name in new}
    tally.check("the first step by the formula", max(harness.tensor_error(after[name], want[name]) for name in want) <= EXACT, got.error or "")


def check_optimizers(tally, folder, verbose):
    cases = [(optimizer, precision, more) for optimizer in ("adam(lr = 3e-3, weight_decay = 0.1)", "sgd(lr = 3e-2, momentum = 0.8)", "sgd(lr = 3e-2)", "lion(lr = 3e-4)", "lamb(lr = 3e-3)")
             for precision, more in (("fp64", ()), ("mixed_bf16", GPU if optimizer.startswith("sgd") else ()), *((("fp64", GPU),) if optimizer.startswith("l") else ()))]
    for optimizer, precision, more in trainings.in_turn(cases, values=set, among=2):
        place = os.path.join(folder, "optimizer")
        got = train(case(1, 1, 1, precision, words=more), place, words_of(optimizer))
        name = " ".join((optimizer, precision) + more[2:])
        if tally.check(name + " runs", not got.error, got.error or ""):
            check_formula(tally, name, place, EXACT if precision == "fp64" else F32)
        shutil.rmtree(place)


def check_frozen(tally, folder):
    """What is not trained has no average."""
    frozen = ("--set", 'train.frozen=["wte", "*.bias"]')
    for number, (name, one) in enumerate((("one rank", case(1, 1, 1, words=frozen)), ("data 2, ZeRO 3", case(1, 1, 2, zero=3, words=frozen)),
                                          ("pipeline 2 in bf16", case(1, 2, 1, "mixed_bf16", words=frozen)), ("an emulated GPU", case(1, 1, 1, words=frozen + GPU)))):
        if not harness.my_turn(number, 4):
            continue
        place = os.path.join(folder, "frozen")
        got = train(one, place, words_of())
        if tally.check("%s with frozen parameters runs" % name, not got.error, got.error or ""):
            check_formula(tally, "%s with frozen parameters" % name, place, F32 if "bf16" in name else EXACT, frozen=("wte", ".bias"))
        shutil.rmtree(place)


def check_weights(tally, folder):
    """The weights do not know of their average."""
    for number, (precision, words) in enumerate((("fp32", ()), ("mixed_bf16", ()), ("fp32", GPU))):
        if not harness.my_turn(number, 3):
            continue
        places = [os.path.join(folder, name) for name in ("with", "without")]
        for place, ema in zip(places, (EMA, 0)):
            train(case(1, 1, 1, precision, words=words), place, words_of(ema=ema))
        files = [os.path.join(harness.step_folder(os.path.join(place, "ck"), STEPS), "model.safetensors") for place in places]
        tally.check("%s %s: the weights are those without an average" % (precision, words[1:2]), all(map(os.path.exists, files)) and harness.same_bytes(*files))
        for place in places:
            shutil.rmtree(place)


def check_overflow(tally, folder):
    """A step that is skipped leaves the average as it was."""
    place = os.path.join(folder, "overflow")
    got = train(case(1, 1, 1, "mixed_fp16"), place, words_of() + ("--set", "train.loss_scale=dynamic(initial = 268435456, window = 2000)"), 12)
    with open(os.path.join(place, "log.jsonl"), encoding="utf-8") as lines:
        skipped = [record.get("skipped", 0) for record in map(json.loads, lines) if "event" not in record]
    tally.check("fp16 runs and skips steps", not got.error and 0 < skipped[-1] < 10, got.error or str(skipped))
    still = [step for step in range(4, 13) if read(place, step - 1)[1] == read(place, step)[1]]
    want = [step for step in range(4, 13) if skipped[step - 1] > skipped[step - 2]]
    tally.check("skipped steps leave the average", still == want, "%s %s" % (still, want))


def check_torch(tally, place):
    for python in filter(None, (os.environ.get("PYTHON"), "python3", "/usr/bin/python3")):
        if harness.run([python, "-c", "from torch.optim.swa_utils import get_ema_multi_avg_fn"]).status == 0:
            break
    else:
        return
    steps = [read(place, step)[0] for step in range(1, STEPS + 1)]
    first, last = read(place, 1)[1], read(place, STEPS)[1]
    names = sorted(last)
    path, script = os.path.join(place, "weights.json"), os.path.join(place, "average.py")
    with open(path, "w", encoding="utf-8") as file:
        json.dump([[list(first[n]) for n in names]] + [[list(w[n]) for n in names] for w in steps[1:]], file)
    with open(script, "w", encoding="utf-8") as file:
        file.write(TORCH)
    outcome = harness.run([python, script, path, str(EMA)])
    if tally.check("torch runs", outcome.status == 0, outcome.tail()):
        error = max(harness.tensor_error(last[n], values) for n, values in zip(names, json.loads(outcome.out)))
        tally.check("averages are those of torch's AveragedModel", error <= EXACT * STEPS, "%.1e" % error)


# ---- layouts ----

def averages_error(got, want):
    if sorted(got) != sorted(want) or not want:
        return math.inf
    return max(harness.tensor_error(got[name], want[name]) for name in want)


LAYOUTS = (
    case(2, 2, 1),
    case(1, 1, 4, zero=1),
    case(1, 1, 2, zero=2),
    case(2, 1, 2, zero=3),
    case(1, 1, 2, zero=1, words=GPU),
    case(1, 1, 2, zero=3, words=GPU + ("--set", 'offload[optimizer]="cpu"', "--set", 'offload[params]="cpu"')),
    case(1, 1, 1, words=GPU + ("--set", 'offload[optimizer]="cpu"')),
    case(1, 1, 1, words=GPU + ("--set", 'offload[optimizer]="nvme"')),
    case(1, 1, 2, zero=2, words=GPU + ("--set", 'offload[optimizer]="cpu"', "--set", 'offload[gradients]="cpu"')),
)


def check_layouts(tally, folder, verbose):
    reference = os.path.join(folder, "one")
    want = train(case(1, 1, 1), reference, words_of())
    check_formula(tally, "one rank", reference, EXACT)
    check_torch(tally, reference)
    for i, one in enumerate(trainings.in_turn(LAYOUTS, among=3)):
        place, name = os.path.join(folder, "layout%d" % i), " ".join((one.name,) + one.words[2:])
        got = train(one, place, words_of())
        if not tally.check(name + " runs", not got.error, got.error or ""):
            continue
        check_formula(tally, name, place, EXACT)
        trainings.judge(tally, name + ": as one rank", got, want, trainings.BOUNDS["fp64"])
        error = averages_error(read(place, STEPS)[1], read(reference, STEPS)[1])
        tally.check(name + ": averages of one rank", error <= trainings.BOUNDS["fp64"]["parameters"], "%.1e" % error)
        if verbose:
            print("%5.2f s  %s: %.1e" % (got.seconds, name, error), flush=True)
    one = case(1, 1, 4, zero=1, model="moe", more={"plan.expert": 2, "model.n": 2})
    place = os.path.join(folder, "experts")
    got = train(one, place, words_of())
    if tally.check("experts run", not got.error, got.error or ""):
        check_formula(tally, "experts over data ranks", place, EXACT)


# ---- going on ----

def check_resume(tally, folder):
    for number, precision in enumerate(("fp32", "mixed_bf16")):
        if not harness.my_turn(number, 2):
            continue
        whole, parts = (os.path.join(folder, name + precision) for name in ("whole", "parts"))
        one = case(1, 1, 2, precision, zero=1)
        train(one, whole, words_of())
        train(one, parts, words_of(), 2)
        train(one, parts, words_of() + ("--resume",))
        files = [[os.path.join(harness.step_folder(os.path.join(place, "ck"), STEPS), name) for place in (whole, parts)]
                 for name in ("model.safetensors", "optimizer.safetensors")]
        good = all(os.path.exists(path) for pair in files for path in pair) and all(harness.same_bytes(*pair) for pair in files)
        tally.check("%s in two parts: the same bytes" % precision, good)
    whole, place = os.path.join(folder, "whole f64"), os.path.join(folder, "goes on")
    train(case(1, 1, 1), whole, words_of())
    train(case(1, 1, 1), place, words_of(), 2)
    train(case(2, 1, 2, zero=3), place, words_of() + ("--resume",))
    error = averages_error(read(place, STEPS)[1], read(whole, STEPS)[1])
    tally.check("another layout goes on with the average", error <= 1e-10, "%.1e" % error)
    got = train(case(1, 1, 1), place, words_of(ema=0) + ("--resume",), STEPS + 1)
    tally.check("without ema it does not go on", "Z0813" in (got.error or "") and "this training has no `ema`" in got.error, got.error)
    without = os.path.join(folder, "without")
    train(case(1, 1, 1), without, words_of(ema=0), 2)
    got = train(case(1, 1, 1), without, words_of() + ("--resume",))
    tally.check("nor with ema from a run without", "Z0813" in (got.error or "") and "`ema` asks for" in got.error, got.error)


# ---- what is made of it ----

def swap(checkpoint):
    """The averages in place of the weights, as f32 or f64: a checkpoint that knows of no average."""
    path = os.path.join(checkpoint, "optimizer.safetensors")
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    out, body = {}, b""
    for name, entry in header.items():
        if not name.endswith(".ema"):
            continue
        begin, end = entry["data_offsets"]
        out[name[:-4]] = dict(entry, data_offsets=[len(body), len(body) + end - begin])
        body += data[begin:end]
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)  # headers are whole words of eight bytes
    harness.replace_model(checkpoint, struct.pack("<Q", len(text)) + text + body)
    os.remove(path)


def check_uses(tally, folder):
    """A text is learned quickly, so that weights and averages differ."""
    model, place = os.path.join(harness.ROOT, "examples", "gpt_tiny.dz"), os.path.join(folder, "uses")
    common = ("--set", "model.layers=2", "--set", "train.batch=8", *trainings.ON_TEXT, "--set", 'train.checkpoint.dir="%s"' % place, "--steps", 40)
    outcome = harness.zplan("run", model, "--ranks", 1, *common, "--set", "train.ema=0.9", "-o", os.path.join(folder, "tree"), env=trainings.ENVIRONMENT)
    if not tally.check("a text is learned", outcome.status == 0, outcome.tail()):
        return
    checkpoint, plain = harness.step_folder(place, 40), os.path.join(folder, "averages")
    shutil.copytree(checkpoint, plain)
    swap(plain)
    asked = {"eval": ("--data", TEXT, "--json"), "sample": ("--prompt", "zplan ", "--tokens", 12, "--json")}
    for verb, words in asked.items():
        got, want, other = (harness.zplan(verb, source, *words, *more, "-o", os.path.join(folder, "look"), env=trainings.ENVIRONMENT) for source, more in
                            ((checkpoint, ("--ema",)), (plain, ()), (checkpoint, ())))
        tally.check("%s --ema looks at the average" % verb, got.status == want.status == 0 and got.out == want.out, got.tail() + want.tail())
        tally.check("%s without it does not" % verb, other.status == 0 and (verb != "eval" or other.out != got.out), other.tail())
    files = []
    for i, (source, more) in enumerate(((checkpoint, ("--ema",)), (plain, ()), (checkpoint, ()))):
        out = os.path.join(folder, "out%d" % i)
        outcome = harness.zplan("export", "hf", source, "-o", out, *more)
        tally.check("exported %d" % i, outcome.status == 0, outcome.tail())
        files.append(os.path.join(out, "model.safetensors"))
    if all(map(os.path.exists, files)):
        tally.check("export hf --ema writes the average", harness.same_bytes(files[0], files[1]) and not harness.same_bytes(files[0], files[2]))
    for words in (("eval", plain, "--data", TEXT), ("sample", plain, "--prompt", "a"), ("export", "hf", plain, "-o", os.path.join(folder, "none"))):
        outcome = harness.zplan(*words, "--ema")
        tally.check("refused: %s --ema without one" % words[0], outcome.status == 1 and "error[Z0691]" in outcome.err and "train { ema = 0.999 }" in outcome.err,
                    outcome.tail())
    tally.check("nothing is left of it", not os.path.exists(os.path.join(folder, "none")))
    outcome = harness.zplan("export", "slurm", model, "--gpus", 8, "--ema")
    tally.check("a plan has no weights", outcome.status == 2 and "--ema is of `zplan export hf`" in outcome.err, outcome.tail())


# ---- the plan ----

def check_plan(tally):
    model = os.path.join(HERE, "gpt.dz")
    held = {}
    for ema in ((), ("--set", "train.ema=0.999")):
        for data, zero in ((1, 0), (2, 1)):
            outcome = harness.zplan("plan", model, "--ranks", data, "--json", "--set", "tensor=1", "--set", "pipeline=1", "--set", "plan.data=%d" % data,
                                    "--set", "zero=%d" % zero, "--set", "optimizer=adamw(lr = 1e-3)", "--set", 'precision="fp32"', *ema)
            stage = json.loads(outcome.out)["stages"][0] if outcome.status == 0 else {}
            held[bool(ema), zero] = (stage["memory"]["optimizer"], stage["arena"]["shard_elements"], stage["arena"]["at_average"]) if stage else None
    for zero in (0, 1):
        (less, n, none), (more, m, at) = held[False, zero], held[True, zero]
        tally.check("ZeRO %d: 4 bytes an element more" % zero, n == m and none == -1 and at > 0 and 4 * n <= more - less < 4 * n + 256, str(held))
    for words, text in ((("compress=true",), "compress does not go with ema"),):
        outcome = harness.zplan("plan", model, "--ranks", 2, "--set", "train.ema=0.999", "--set", *words)
        tally.check("refused: %s" % words, outcome.status == 3 and text in outcome.out + outcome.err, outcome.tail())
    example = os.path.join(harness.ROOT, "examples", "gpt2.dz")
    for words in (("export", "deepspeed"), ("export", "megatron")):
        outcome = harness.zplan(*words, example, "--gpus", 8, "--set", "cluster.nodes=1", "--set", "train.ema=0.999")
        tally.check("refused: %s" % words[1], outcome.status != 0 and "average of the weights" in outcome.out + outcome.err, outcome.tail())
    for value in ("1.5", "0", "-0.1"):
        outcome = harness.zplan("check", model, "--set", "train.ema=" + value)
        tally.check("refused: ema = %s" % value, outcome.status == 1 and "error[Z0306]" in outcome.err and "= help: " in outcome.err, outcome.tail())


def main():
    parser = argparse.ArgumentParser(description="averages of the weights")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_plan(tally)
        check_start(tally, folder)
        check_weights(tally, folder)
        check_frozen(tally, folder)
        check_layouts(tally, folder, options.verbose)
        check_optimizers(tally, folder, options.verbose)
        check_overflow(tally, folder)
        check_resume(tally, folder)
        check_uses(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
