#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every layout trains the same model: losses, gradient norms and final parameters equal those of one rank.

    layouts.py [--quick | --degrees | --all] [--only TEXT] [--list] [--jobs N] [--verbose]

Three models of odd sizes: gpt.dz (tied embedding, dropout), llama.dz (grouped queries) and moe.dz (experts; f64 only: where
two scores are nearly equal, an f32 rounding sends a token to another expert, and from there on nothing is comparable). 6
steps, 4 of warmup, with arena peaks and bytes sent as planned: see support/trainings.py, which also says how errors are measured. On one
rank 4 steps more show that the model learns.

Which layouts. Axes: tensor, pipeline and data ranks (product at most 4, and 2 x 2 x 2; --degrees and --all: 8, with experts 6); ZeRO 0 or 1; recomputation none,
full, full with kept inputs split over the tensor ranks, selective, or a mode of its own for every stage, starting with any of
the four; cuts between layers or inside them; ranks numbered tensor, data, pipeline or tensor, pipeline, data; one sample a
micro-batch or two. All that can be combined is a space of thousands, which --all trains. Otherwise a covering choice
(support/covering.py) is made of it, in which in f64

- any two values of axes occur together with every model, wherever they can, when degrees count as one or several ranks:
  tensor ranks with kept inputs split, cuts inside layers in a pipeline, data ranks with ZeRO 1, ...;
- so does every (tensor, pipeline, data), with experts and without: there in gpt.dz or llama.dz, which have the same layouts and
  differ within layers only.

That suffices because layouts are made of parts that know little of each other: an axis changes sizes of shards, who sends to
whom, or which procedures are printed. What goes wrong does so where two of them meet, rarely three, and then at one rank
against several or at one uneven degree, not at a single combination of eight values. --degrees has any three values together and any two at
their very degrees, too (tensor 5 with kept inputs split, pipeline 7 with cuts inside layers, ...), and 5 to 8 ranks: 199 trainings more, in
tests/long.sh and for changes of how shards are cut. In f32 kernels are others, layouts are not: every value of every axis with one of the models, and with every model, when degrees count as one or several. --quick: every value
of every axis.
Layouts with experts spread over data ranks are listed.

Bounds. f64: 1e-10. f32, where one rounding is u = 6e-8, about ten times what was measured on 845 layouts after 20 steps:

- loss 5e-6 (measured 2.3e-7): dot products and sums of up to n = 160 terms are added in another order, which moves a
  gradient by up to u sqrt(n) = 8e-7 of its size, and the steps feed it back;
- gradient norm 1e-4 (measured 9.6e-6): it is the derivative of the loss, so the fed-back differences weigh more;
- parameters 2e-2 (measured 1.9e-3, attn.c_attn.bias): AdamW divides a gradient by its own size. Where the true gradient is
  zero, as for every key bias (softmax does not see it), rounding noise alone moves the element by up to lr a step, however
  small the noise. No small multiple of u can hold there; all weights and biases that learn agree far better.

The test prints alongside them how far the f32 run on one rank is from the f64 run on one rank: no layout should be much worse
than what f32 costs anyway.
"""
import collections
import itertools
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import covering  # noqa: E402
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS, LEARN_STEPS = 5, 10
MOST_RANKS = {"gpt": 8, "llama": 8, "moe": 6}
FEW_RANKS = {"gpt": 4, "llama": 4, "moe": 4}  # but with --degrees and --all
ALL_SPLIT = (2, 2, 2)  # the fewest ranks on which three axes of degrees meet
KINDS = ((("gpt", "llama"), "fp64"), (("moe",), "fp64"), (("gpt", "llama"), "fp32"))
RECOMPUTE = ("none", "full", "selective")
STAGE_MODES = ("full", "none", "full/tensor", "selective")

# recompute: a mode, or a number: the stages take STAGE_MODES in turn, from that one on.
Layout = collections.namedtuple("Layout", "t p d zero recompute cut order micro")

# Experts spread over data ranks: (t, p, d, expert, experts, zero, recompute, cut, order). The file's five experts
# leave padding on 2 x 3 and 3 x 2 ranks; groups are all data ranks, or half of them, which then hold the same.
SPREAD = (
    (1, 1, 2, 2, 8, 0, "none", "layer", "tdp"),
    (1, 1, 2, 2, 8, 1, "selective", "layer", "tdp"),
    (1, 1, 4, 2, 8, 0, "full", "layer", "tdp"),
    (1, 1, 4, 2, 8, 1, "none", "layer", "tdp"),
    (1, 1, 4, 4, 8, 1, "selective", "layer", "tdp"),
    (1, 1, 5, 5, 5, 0, "none", "layer", "tdp"),
    (1, 2, 2, 2, 8, 1, "full", "block", "tdp"),
    (1, 2, 4, 2, 8, 1, "none", "layer", "tpd"),
    (1, 3, 2, 2, 8, 0, "selective", "layer", "tdp"),
    (2, 1, 2, 2, 8, 1, "none", "layer", "tdp"),
    (2, 1, 3, 3, 5, 1, "full/tensor", "layer", "tdp"),
    (2, 1, 4, 2, 8, 1, "selective", "layer", "tdp"),
    (2, 2, 2, 2, 8, 1, "full/tensor", "layer", "tdp"),
    (3, 1, 2, 2, 5, 0, "none", "layer", "tdp"),
)


# ---- which layouts there are ----

def degrees(most):
    return [(t, p, d) for t in range(1, most + 1) for p in range(1, most // t + 1) for d in range(1, most // (t * p) + 1)]


def recomputations(t, p):
    modes = list(RECOMPUTE) + (["full/tensor"] if t > 1 else [])
    return modes + ([start for start in range(len(STAGE_MODES)) if t > 1 or STAGE_MODES[start] != "full/tensor"] if p > 1 else [])


def space(model, few):
    """All layouts of a model, but one rank that saves everything: that is what they are compared with."""
    split = [ALL_SPLIT] if few and MOST_RANKS[model] >= math.prod(ALL_SPLIT) else []
    for t, p, d in degrees((FEW_RANKS if few else MOST_RANKS)[model]) + split:
        zeros = (0, 1) if d > 1 else (0,)
        cuts = ("layer", "block") if p > 1 else ("layer",)
        orders = ("tdp", "tpd") if min(p, d) > 1 else ("tdp",)  # with one stage or one data rank they are the same
        micros = (1, 2) if trainings.batch_for(d) % (2 * d) == 0 else (1,)
        for axes in itertools.product(zeros, recomputations(t, p), cuts, orders, micros):
            if (t, p, d) != (1, 1, 1) or axes[1] != "none":
                yield Layout(t, p, d, *axes)


# ---- which are trained ----

def coarse(layout):
    """Degrees as one or several ranks, modes of stages as such."""
    mode = layout.recompute if isinstance(layout.recompute, str) else "of stages"
    return layout._replace(t=layout.t > 1, p=layout.p > 1, d=layout.d > 1, recompute=mode)


def values(layout):
    return covering.meetings(layout, 1)


def coarse_values(layout):
    return values(coarse(layout))


def pairs_of_classes(layout):
    return values(layout) | covering.meetings(coarse(layout), 2)


def of_model(case, needs):
    model, layout = case
    return {(model, need) for need in needs(layout)}


def chosen(tally, models, precision, extent):
    """(model, layout) of models that may stand in for each other."""
    few = extent in ("pairs", "quick")
    every = [(model, layout) for model in models for layout in space(model, few)]
    if extent == "all":
        return every

    def needs(case):
        if extent == "quick":
            return covering.meetings(coarse(case[1]), 2) | of_model(case, coarse_values)
        if precision == "fp64":
            more = covering.meetings(case[1], 2) | covering.meetings(coarse(case[1]), 3) if extent == "degrees" else set()
            pairs = of_model(case, pairs_of_classes) if extent == "degrees" else covering.meetings(coarse(case[1]), 2) | of_model(case, coarse_values)
            return more | {case[1][:3]} | pairs
        return values(case[1]) | of_model(case, coarse_values)

    some = covering.cover(every, needs)
    missing = set().union(*map(needs, every)) - set().union(*map(needs, some))
    tally.check("%s %s: the chosen layouts cover all" % (" ".join(models), precision), not missing,
                "missing: %s" % sorted(missing, key=str)[:4])
    return some


# ---- as trainings ----

def stage_modes(layout):
    """A stage without tensor ranks cannot split what it keeps."""
    possible = [mode for mode in STAGE_MODES if layout.t > 1 or mode != "full/tensor"]
    first = possible.index(STAGE_MODES[layout.recompute])
    return [possible[(first + stage) % len(possible)] for stage in range(layout.p)]


def training(model, precision, layout, experts=None):
    settings = dict(precision=precision, zero=layout.zero, microbatch=layout.micro, cut=layout.cut, rank_order=layout.order)
    if isinstance(layout.recompute, int):
        settings["stage_recompute"] = stage_modes(layout)
    else:
        mode, _, shard = layout.recompute.partition("/")
        settings.update(recompute=mode, recompute_shard=shard or "none")
    if model == "moe" and not experts:
        experts = {"plan.expert": 1}
    return trainings.layout(model, layout.t, layout.p, layout.d, experts, **settings)


def spread():
    for t, p, d, expert, experts, zero, recompute, cut, order in SPREAD:
        micro = 2 if trainings.batch_for(d) % (2 * d) == 0 and (t + p + zero) % 2 == 0 else 1
        yield training("moe", "fp64", Layout(t, p, d, zero, recompute, cut, order, micro),
                       {"plan.expert": expert, "model.n": experts})


def table(tally, extent):
    found = [training(model, precision, layout) for models, precision in KINDS
             for model, layout in chosen(tally, models, precision, extent)]
    return found + list(spread())


class Layouts(trainings.Suite):
    optimized = ("fp32",)  # the generated text is the same in every precision


# ---- what f32 costs on one rank ----

def print_costs(suite):
    for (model, settings), result in suite.references.items():
        double = dict(settings, precision="fp64")
        double = suite.references.get((model, tuple(double.items())))
        if dict(settings)["precision"] == "fp32" and double and not (result.error or double.error):
            shown = ", ".join("%s %.1e" % item for item in trainings.errors_of(result, double)[0].items())
            print("f32 against f64 on one rank, %s, batch %d: %s" % (model, dict(settings)["batch"], shown))


def check_turns(tally, found):
    """Of every three turns: each is a part that has all values of all settings, and together they are the table."""
    def values(part):
        return set().union(*map(trainings.values_of, part))

    parts = [trainings.in_turn(found, turn="%d/3" % k) for k in range(3)]
    good = all(values(part) == values(found) for part in parts) and {one.name for part in parts for one in part} == {one.name for one in found}
    tally.check("turns", good and (len(found) < 60 or max(map(len, parts)) < 0.6 * len(found)), str([len(part) for part in parts]))


def main():
    parser = trainings.arguments("every layout trains the same")
    parser.add_argument("--quick", dest="extent", action="store_const", const="quick", default="pairs",
                        help="every value of every axis once")
    parser.add_argument("--degrees", dest="extent", action="store_const", const="degrees", help="any two values at their very degrees")
    parser.add_argument("--all", dest="extent", action="store_const", const="all", help="the whole space: a day")
    options = parser.parse_args()
    tally = harness.Tally()
    found = [one for one in table(tally, options.extent) if options.only in one.name]
    if options.list:
        print("\n".join(one.name for one in found))
        return 0
    harness.require_zplan()
    check_turns(tally, found)
    with harness.Scratch() as folder:
        suite = Layouts(found, folder, options.jobs, options.verbose, steps=STEPS, learn_steps=LEARN_STEPS, tally=tally)
        suite.run()
        print_costs(suite)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
