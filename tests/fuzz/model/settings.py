# SPDX-License-Identifier: Apache-2.0
"""How a random model is trained: layout, schedule, state, recomputation, precision, on CPU ranks or an emulated GPU.

A setting is drawn from what may be legal; zplan refuses what does not fit the model (more stages than pieces, experts that no group
divides), and a refusal is counted, not judged.
"""
import json
import os
import random as chance
import sys

import tape
import tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import trainings  # noqa: E402

MOST_RANKS = 4
GPU = ("--cluster", "gpu", "--arch", "host")
LOSS_SCALES = ("128", "dynamic(initial = 128, window = 1)")  # as trainer.LOSS_SCALE, and one that doubles after a step
GPU_BLOCK = 64  # of block-sparse attention
DEGREES = [(t, p, d) for t in range(1, MOST_RANKS + 1) for p in range(1, MOST_RANKS // t + 1) for d in range(1, MOST_RANKS // (t * p) + 1)]


def one_rank(model):
    return dict(trainings.ONE_RANK, batch=model["batch"], precision="fp64")


def schedule(random, pipeline):
    if pipeline == 1:
        return {"schedule": random.choice(("1f1b", "1f1b", "gpipe", "zb_h1"))}
    chosen = random.choice(("1f1b", "1f1b", "gpipe", "interleaved", "zb_h1", "zb_h2", "zb_v", "dualpipev"))
    return {"schedule": chosen, **({"chunks": 2} if chosen in ("interleaved", "zb_v", "dualpipev") else {})}


def recomputation(random, tensor, pipeline):
    modes = ["none", "selective", "full"]
    if pipeline > 1 and random.random() < 0.25:
        return {"stage_recompute": [random.choice(modes) for _ in range(pipeline)]}
    mode = random.choice(modes + ["selective"])
    return {"recompute": mode, "recompute_shard": "tensor" if mode == "full" and tensor > 1 and random.random() < 0.5 else "none"}


def groups(random, model, tensor, ranks):
    """How data ranks stand: some share the positions of a sample, where they divide these and the heads, or cut them and the blocks of
    patterns into stretches; state lies within groups of them, whatever positions they have. (context, how it exchanges, shard)"""
    divisors = [n for n in range(2, ranks + 1) if ranks % n == 0]
    by = chance.Random("context of %d" % model["seed"]).choice(("heads", "keys", "ring"))  # of its own, so that layouts stay what they were
    length, attentions = model["sizes"]["S"], [e[1] for e in tree.expressions(model["body"]) if tree.is_call(e) and e[0] == "attention"]
    if by == "heads":
        counts = [length] + [a["heads"] // tensor for a in attentions]
    else:
        counts = [length / 2] + [length // a["pattern"][1]["block"] / 2 for a in attentions if "pattern" in a]
    context = random.choice([n for n in divisors if all(count % n == 0 for count in counts)] or [1]) if random.random() < 0.4 else 1
    if tree.may_drop(model):  # other tokens than on one rank (docs/guide/limits.md)
        context = 1
    shard = random.choice(divisors) if random.random() < 0.3 else 0
    return context, by, shard


def layout(random, model, tensor, pipeline, ranks):
    chosen = one_rank(model)
    context, by, shard = groups(random, model, tensor, ranks) if ranks > 1 else (1, None, 0)
    data = ranks // context
    share = model["batch"] // data
    chosen.update(tensor=tensor, pipeline=pipeline, microbatch=random.choice([m for m in range(1, share + 1) if share % m == 0]))
    chosen["plan.data"] = data
    chosen.update(schedule(random, pipeline))
    chosen.update(recomputation(random, tensor, pipeline))
    if "stage_recompute" in chosen:
        del chosen["recompute"], chosen["recompute_shard"]
    if context > 1:
        chosen.update(context=context, context_by=by)
    if ranks > 1:
        chosen["zero"] = random.choice((0, 1, 2, 3))
        if chosen["zero"] and 1 < shard < ranks:
            chosen["shard"] = shard
        if "top_k_gate" in tree.operations(model) and random.random() < 0.5:
            chosen["plan.expert"] = random.choice([n for n in range(2, ranks + 1) if ranks % n == 0])
    if pipeline > 1 and random.random() < 0.5:
        chosen["cut"] = "block"
    if min(pipeline, ranks) > 1 and random.random() < 0.5:
        chosen["rank_order"] = "tpd"
    if tensor > 1 and model["sizes"]["S"] % tensor == 0 and random.random() < 0.5:
        chosen["sequence"] = True
    return chosen


def fits_gpu(model):
    return not tree.is_dropless(model) and all(e[1]["pattern"][1]["block"] % GPU_BLOCK == 0 for e in tree.expressions(model["body"])
               if tree.is_call(e) and "pattern" in e[1])


def several_ranks(random, model):
    degrees = [(t, p, d) for t, p, d in DEGREES if model["batch"] % d == 0 and t * p * d > 1]
    return layout(random, model, *random.choice(degrees))


def draw_precision(random, model):
    """In 16 bits a token may take another expert, and nothing is comparable from there on."""
    drawn = random.random()
    if drawn < 0.86:
        return "fp64"
    if drawn < 0.93 or "top_k_gate" in tree.operations(model):
        return "fp32"
    return "mixed_bf16" if drawn < 0.97 else "mixed_fp16"


def draw_recipe(random, model, precision, words):
    """Products of layers in 8 bits, where a model's sizes may fit them: CPU ranks have those."""
    width = model["sizes"]["d"]
    if width % 16 or on_gpu(words) or "top_k_gate" in tree.operations(model) or random.random() < 0.3:
        return precision
    return random.choice([recipe for recipe in sorted(tape.RECIPES) if recipe != "mixed_mxfp8" or width % 32 == 0])


def draw(random, model, several=0.4, gpu=0.07):
    """(settings, words of `zplan run`). several, gpu: shares of several ranks, of the emulated GPU."""
    if model["sizes"]["S"] >= GPU_BLOCK:  # few models
        gpu = 0.5
    words = GPU if fits_gpu(model) and random.random() < gpu else ()
    if random.random() < several:
        chosen = several_ranks(random, model)
    else:
        chosen = layout(random, model, 1, 1, 1)
    chosen["precision"] = draw_recipe(random, model, draw_precision(random, model), words)
    if chosen["precision"] == "mixed_fp16":
        words += ("--set", "loss_scale=" + random.choice(LOSS_SCALES))
    return chosen, words


FROZEN = "train.frozen="


def general(name):
    """As the language names it: without the number of the iteration."""
    return ".".join("{}" if part.isdigit() else part for part in name.split("."))


def freeze(random, names):
    """Words that freeze some of the parameters with these names, but not all of them."""
    groups = sorted({general(name) for name in names})
    kept, share = random.choice(groups), random.choice((0.2, 0.5, 1))
    chosen = [group for group in groups if group != kept and random.random() < share]
    return ("--set", FROZEN + json.dumps(chosen)) if chosen else ()


def frozen_in(words):
    return {name for word in words if word.startswith(FROZEN) for name in json.loads(word[len(FROZEN):])}


def on_gpu(words):
    return words[:len(GPU)] == GPU


def shown(settings, words):
    """What differs from one rank that keeps everything, as one word a setting."""
    listed = ["%s=%s" % (key, ",".join(value) if isinstance(value, list) else value) for key, value in settings.items()
              if key not in ("batch",) and trainings.ONE_RANK.get(key, "fp64") != value]
    frozen = len(frozen_in(words))
    return " ".join(listed + (["gpu"] if on_gpu(words) else []) + (["%d frozen" % frozen] if frozen else [])) or "one rank"
