#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frozen parameters and adapters (LoRA) train the same in every layout, and what is frozen costs nothing but its weights.

    frozen.py [--verbose]

1. Every layout trains what one rank does (tests/support/trainings.py; --check-memory: arena and bytes sent are the plan's): tensor, pipeline and its schedules, ZeRO 1 to 3
   with and without tensor ranks, norms along the sequence, recomputation, an emulated GPU in f64, f32 and bf16, its optimizer state on the host.
2. Frozen tensors of the last checkpoint are those of the first, byte for byte; all others have moved; state is of trained ones alone.
3. With adapters the first loss is that of the model without, in f64 to the last bit. `trained = ["*"]` trains what no word does.
4. Bytes counted by hand: gradients, moments and the master copy of a plan are those of its trained elements, the weights are in 16 bits; data ranks send sums of trained elements, and with ZeRO 3 all weights twice a micro-batch.
5. A run goes on from its checkpoint, in another layout. What is not understood or not built is refused, with place and help.
"""
import argparse
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS, EMULATED = 8, 3
GPU = ("--cluster", "gpu", "--arch", "host")
FROZEN = ("--set", 'train.frozen=["wte", "h.{}.attn.*", "h.{}.ln_2.bias"]')
HEAD = ("--set", 'train.trained=["ln_f.*"]')
LORA = ("--set", 'train.adapt=lora(rank = 4, alpha = 6, dropout = 0.2, of = ["wte", "h.{}.attn.*", "h.{}.mlp.c_fc.weight"])', "--set", "optimizer=adamw(lr = 2e-2)")
LLAMA_LORA = ("--set", 'train.adapt=lora(rank = 3, of = ["*_proj.weight"])', "--set", 'train.trained=["norm.weight"]', "--set", "optimizer=adamw(lr = 2e-2)")
MOE_LORA = ("--set", 'train.adapt=lora(rank = 2, alpha = 3, rslora = true, of = ["embed_tokens", "*experts.w*"])', "--set", "optimizer=adamw(lr = 2e-2)")
F32_BOUNDS = dict(trainings.BOUNDS, fp32={"loss": 5e-6, "gradient norm": 1e-4, "parameters": 5e-2},
                  mixed_bf16={"loss": 1e-3, "gradient norm": 2e-2, "parameters": 3e-1})


def case(t, p, d, words, model="gpt", more=None, precision="fp64", **settings):
    return trainings.layout(model, tensor=t, pipeline=p, data=d, precision=precision, more=dict({"model.layers": 3, "batch": 4}, **(more or {})), words=words, **settings)


def layouts(words, model="gpt"):
    return (
        case(2, 2, 1, words, model),
        case(1, 1, 2, words, model, zero=1),
        case(2, 1, 2, words, model, zero=2),
        case(1, 1, 3, words, model, zero=3, more={"batch": 3}),
        case(2, 1, 2, words, model, zero=3, recompute="full"),
        case(1, 3, 1, words, model, schedule="zb_h1"),
        case(1, 2, 2, words, model, schedule="zb_h1", zero=3),
        case(1, 2, 1, words, model, cut="block", recompute="selective"),
        case(2, 1, 1, words, model, sequence=True),
        case(1, 1, 1, words + GPU, model),
        case(1, 1, 2, words + GPU, model, zero=3),
        case(1, 2, 2, words + GPU, model, zero=0),
        case(1, 1, 1, words + GPU + ("--set", 'offload[optimizer]="cpu"'), model),
        case(1, 1, 2, words + GPU + ("--set", 'offload[optimizer]="cpu"', "--set", 'offload[gradients]="cpu"'), model, zero=2),
    )


class Chosen(trainings.Suite):
    """Of a table that main() has made of all of them by turns."""
    values = staticmethod(lambda one: {one.name})


def own(words, jobs, table, folder, tally, verbose):
    os.makedirs(folder)
    suite = Chosen(table, folder, jobs, verbose, bounds=F32_BOUNDS, steps=STEPS, reference_words=words, tally=tally,
                            emulated_steps=EMULATED)
    suite.run()


def tensors(place, step, file="model.safetensors"):
    return harness.read_safetensors(os.path.join(harness.step_folder(os.path.join(place, "ck"), step), file))


def first_checkpoint(one, place):
    """A run of no steps does not reach its peak."""
    settings = [word for key, value in one.settings for word in ("--set", "%s=%s" % (key, json.dumps(value)))]
    return harness.zplan("run", os.path.join(HERE, one.model + ".dz"), "--ranks", trainings.ranks_of(dict(one.settings)), "-o", os.path.join(place, "tree"), *settings, *one.words,
                         "--steps", 0, "--", "--checkpoint", os.path.join(place, "ck"), env=trainings.ENVIRONMENT)


def general(name):
    return ".".join("{}" if part.isdigit() else part for part in name.split("."))


def frozen_names(model, words):
    outcome = harness.zplan("check", os.path.join(HERE, model + ".dz"), "--json", "--set", "model.layers=3", *words)
    listed = json.loads(outcome.out)["parameter_list"]
    return {p["name"] for p in listed if p.get("frozen")}, {p["name"] for p in listed}


def check_bytes(tally, folder, model, words):
    """One rank, and ZeRO 3: what the first checkpoint has of frozen ones the last one has."""
    frozen, names = frozen_names(model, words)
    table = (case(1, 1, 1, words, model), case(1, 1, 2, words + GPU, model, zero=3, precision="mixed_bf16"), case(1, 1, 2, words, model, zero=3))
    for one in table if words == FROZEN else table[:1]:
        place = os.path.join(folder, "bytes")
        os.makedirs(place)
        title, first = "%s %s" % (one.name, " ".join(words[1:2])), first_checkpoint(one, place)
        begin = tensors(place, 0) if first.status == 0 else {}
        steps = EMULATED if "--arch" in one.words else STEPS
        got = trainings.train(one.model, dict(one.settings), place, steps, one.words + ("--overwrite",))
        if not tally.check(title + ": runs", begin and not got.error, "%s %s" % (got.error, first.tail())):
            continue
        end, state = tensors(place, steps), tensors(place, steps, "optimizer.safetensors")
        moved = {name for name in begin if bytes(begin[name][1]) != bytes(end[name][1])}
        wrong = [name for name in begin if (general(name) in frozen) == (name in moved)]
        tally.check(title + ": frozen tensors are the same bytes, others are not", not wrong and {general(n) for n in begin} == names, "%s" % wrong)
        of_state = {general(name.rpartition(".")[0]) for name in state}
        tally.check(title + ": state is of trained ones", of_state == names - frozen, "%s" % sorted(of_state ^ (names - frozen)))
        shutil.rmtree(place)


def check_first_loss(tally, folder):
    """B is zero: the model is as it was. And words that change nothing change nothing."""
    losses = {}
    for name, words in (("plain", ()), ("lora", LORA[:2]), ("all trained", ("--set", 'train.trained=["*"]'))):
        place = os.path.join(folder, "first-" + name.replace(" ", "_"))
        os.makedirs(place)
        one = case(1, 1, 1, words)
        got = trainings.train(one.model, dict(one.settings), place, 3, words)
        tally.check("%s runs" % name, not got.error, got.error or "")
        losses[name] = got.losses, got.norms
    tally.check("the first loss with adapters is the model's", losses["plain"][0][:1] == losses["lora"][0][:1], str(losses))
    tally.check("`trained = [\"*\"]` is no word at all", losses["plain"] == losses["all trained"], str(losses))


def plan_of(model, *words):
    outcome = harness.zplan("plan", os.path.join(HERE, model + ".dz"), "--json", *words)
    return json.loads(outcome.out) if outcome.status == 0 else None


def check_counts(tally):
    """Widths that nothing pads: 64 tokens, 9 layers of width 64, 4 heads, 2 key/value heads, ff 64; rank 8 on q_proj alone: a [8, 64], b [64, 8]."""
    words = ("--set", 'train.adapt=lora(rank = 8, of = ["layers.{}.self_attn.q_proj.weight"])')
    pinned = ("--set", "tensor=1", "--set", "pipeline=1", "--set", "plan.data=2", "--set", "microbatch=1", "--set", "precision=\"mixed_bf16\"", "--cluster", "gpu", "--gpus", "2")
    for size in ("V=64", "d=64", "heads=4", "kv_heads=2", "ff=64"):
        pinned += ("--set", "model." + size)
    trained = 9 * 2 * 8 * 64
    layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 64 + 2 * 64
    weights = 2 * 64 * 64 + 9 * layer + 64 + trained
    for zero, parts in ((0, 1), (1, 2), (2, 2), (3, 2)):
        plan = plan_of("llama", *words, *pinned, "--set", "zero=%d" % zero)
        if not tally.check("ZeRO %d plans" % zero, plan is not None):
            continue
        memory = plan["stages"][0]["memory"]
        arena = plan["stages"][0]["arena"]
        slack = 256 * 4  # between regions
        tally.check("ZeRO %d: moments and master copy of what is trained" % zero, 12 * trained / parts <= memory["optimizer"] <= 12 * trained / parts + slack, str(memory))
        tally.check("ZeRO %d: gradients of what is trained" % zero, 4 * trained / (parts if zero >= 2 else 1) <= memory["gradients"] <=
                    4 * trained / (parts if zero >= 2 else 1) + slack, str(memory))
        held = weights / (2 if zero == 3 else 1)
        tally.check("ZeRO %d: weights once, in 16 bits" % zero, 2 * held <= memory["weights"] <= 2 * held + slack, str(memory))
        tally.check("ZeRO %d: elements" % zero, (arena["flat_elements"], arena["frozen_elements"]) == (trained, weights - trained + (64 if zero == 3 else 0)), str(arena))
        micro, all_weights = 8 // 2, weights + (64 if zero == 3 else 0)
        # gradients in f32, weights in 16 bits
        sent = (8 * trained, (4 + 2) * trained, (4 * micro + 2) * trained, micro * (4 * all_weights + 4 * trained))[zero]
        tally.check("ZeRO %d: bytes over the data ranks" % zero, plan["traffic_bytes"]["data"] == sent, "%d, %s" % (sent, plan["traffic_bytes"]))
    whole, adapted = (plan_of("llama", *w, *pinned, "--set", "zero=0") for w in ((), words))
    if tally.check("plans to compare", bool(whole and adapted)):
        sent = [p["estimate"]["model_flop"] for p in (whole, adapted)]
        tally.check("model FLOP fall by a third of the products", 0.6 < sent[1] / sent[0] < 0.8, str(sent))


def check_resume(tally, folder):
    """From one rank to ZeRO 3 on two, half way."""
    for number, (words, name) in enumerate(((LORA, "adapters"), (FROZEN, "frozen"))):
        if not harness.my_turn(number, 2):
            continue
        whole, place = (os.path.join(folder, name + which) for which in ("-whole", "-half"))
        one, other = case(1, 1, 1, words), case(1, 1, 2, words, zero=3)
        os.makedirs(whole), os.makedirs(place)
        want = trainings.train(one.model, dict(one.settings), whole, STEPS, words)
        trainings.train(one.model, dict(one.settings), place, STEPS // 2, words)
        got = trainings.train(other.model, dict(other.settings), place, STEPS, words + ("--resume",))
        good = not want.error and (not got.error or "the log has" in got.error)
        error, tensor = harness.model_error(got.checkpoint, want.checkpoint) if good else (float("inf"), got.error or want.error)
        tally.check("%s go on with ZeRO 3" % name, error <= trainings.BOUNDS["fp64"]["parameters"], "%.1e %s" % (error, tensor))


def check_refusals(tally):
    model, moe = os.path.join(HERE, "gpt.dz"), os.path.join(HERE, "moe.dz")
    for setting, text in (
            ('train.frozen=["*.gain"]', "no parameter has a name like `*.gain`"),
            ('train.trained=["h.0.*"]', "whose number no pattern can tell apart"),
            ('train.frozen=["*"]', "all parameters of the model are frozen"),
            ('train.frozen="wte"', "is a list of names"),
            ("train.frozen=[]", "names no parameter"),
            ("train.frozen=[3]", "frozen"),
            ("train.adapt=lora(rank = 0, of = [\"*attn*\"])", "rank"),
            ("train.adapt=lora(of = [\"*attn*\"])", "needs a rank"),
            ("train.adapt=lora(rank = 4)", "the weights that it is for"),
            ("train.adapt=lora(rank = 4000, of = [\"h.{}.attn.*\"])", "rank 4000 is above what"),
            ("train.adapt=lora(rank = 4, of = [\"wpe\"])", "is the weight of no matrix product and no embedding"),
            ("train.adapt=lora(rank = 4, of = [\"*.bias\"])", "no matrix has a name like"),
            ("train.adapt=lora(rank = 4, of = [\"h.{}.attn.*\"], dropout = 1)", "dropout"),
            ("train.adapt=lora(rank = 4, of = [\"h.{}.attn.*\"], use_dora = true)", "use_dora"),
            ("train.adapt=lora(r = 4, of = [\"h.{}.attn.*\"])", "write `rank"),
            ("train.adapt=dora(rank = 4)", "lora"),
            ("train.adapt=4", "lora")):
        outcome = harness.zplan("check", model, "--set", setting)
        tally.check("refused: %s" % setting, outcome.status == 1 and text in outcome.err and "--set" in outcome.err, outcome.tail())
    outcome = harness.zplan("check", model, "--set", 'train.frozen=["wte"]', *LORA[:2])
    tally.check("refused: frozen alongside adapt", outcome.status == 1 and "`adapt` freezes all parameters" in outcome.err, outcome.tail())
    outcome = harness.zplan("check", moe, "--set", 'train.adapt=lora(rank = 2, dropout = 0.1, of = ["*experts.w2"])')
    tally.check("refused: dropout of experts", outcome.status == 1 and "whose adapters have no dropout" in outcome.err, outcome.tail())
    outcome = harness.zplan("plan", moe, "--gpus", 4, *MOE_LORA, "--set", "model.n=4", "--set", "tensor=1", "--set", "plan.data=4", "--set", "expert=4")
    tally.check("refused: adapters of experts over data ranks", outcome.status == 3 and "frozen experts are not spread" in outcome.out + outcome.err, outcome.tail())
    for words, text in ((("--set", 'offload[params]="cpu"'), "parameters off the device do not go with frozen ones"), (("--set", "compress=true"), "compress does not go with frozen")):
        outcome = harness.zplan("plan", model, "--cluster", "gpu", "--gpus", 2, *FROZEN, *words)
        tally.check("refused: %s" % words[1], outcome.status == 3 and text in outcome.out + outcome.err, outcome.tail())
    outcome = harness.zplan("plan", model, "--cluster", "gpu", "--gpus", 2, "--for", "megatron", *FROZEN)
    tally.check("refused: Megatron", outcome.status == 1 and "all parameters trained" in outcome.err and "--for zplan" in outcome.err, outcome.tail())


def main():
    parser = argparse.ArgumentParser(description="frozen parameters and adapters")
    parser.add_argument("--verbose", action="store_true", help="a line a case")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_refusals(tally)
        check_counts(tally)
        check_first_loss(tally, folder)
        kinds, tables = ((LORA, "gpt"), (FROZEN, "gpt"), (LLAMA_LORA, "llama"), (HEAD, "gpt"), (MOE_LORA, "moe")), []
        for i, (words, model) in enumerate(kinds):
            table = layouts(words, model)[(slice(None), slice(0, None, 2), slice(1, None, 3), slice(0, 5, 2), slice(0, 8, 4))[i]]  # each layout, and some with other words
            if i == 0:
                table += (case(1, 1, 2, words + GPU, model, zero=3, precision="fp32"), case(1, 1, 1, words + GPU, model, precision="mixed_bf16"))
            tables += [(i, len(words), one) for one in table]
        # Every kind, and every setting with some kind, a third of these at a commit.
        first = [next(entry for entry in tables if entry[0] == i) for i in range(len(kinds))]
        due = trainings.in_turn(tables, first, values=lambda entry: {entry[0], (entry[2].model, entry[2].group), *map(str, entry[2].settings), entry[2].words[entry[1]:]}, among=3)
        for i, (words, _) in enumerate(kinds):
            own(words, options.jobs, [one for k, _, one in due if k == i], os.path.join(folder, "%d" % i), tally, options.verbose)
        for number, (words, model) in enumerate(((LORA, "gpt"), (FROZEN, "gpt"))):
            if harness.my_turn(number, 2):
                check_bytes(tally, folder, model, words)
        check_resume(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
