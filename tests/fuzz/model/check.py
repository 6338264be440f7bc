# SPDX-License-Identifier: Apache-2.0
"""One model against its trainer.

    case = Case(model, settings, words)         # unfit() says why it is no test, or None
    verdict = examine(case, folder)             # Verdict(kind, text): good, refused or bad

Trained are two steps by sgd without momentum, with a checkpoint after each, so a step's gradient is (before - after) / lr: all
parameters are compared with those of interpret.py, in both steps, and both losses. The first values are ours, written as a
checkpoint, so that no bias is 0 and no gain 1. The second step is interpreted from the trainer's own values after the first.

Bounds in f64. Loss: 1e-11 of it. Gradient of a tensor: 1e-9 of its largest element, or of a thousandth of the model's largest,
where the tensor's own is smaller than that: sums of a few hundred terms round by 1e-14, divisions by what is above SMALL and
norms with eps 1e-6 make 1e-11 of it, and the differences of two checkpoints are exact to 1e-15 of the largest gradient. A term
that is missing or doubled changes a gradient by its own size. Layouts are held to the same bounds: they are compared with the
interpreter, too, not with one rank. What is beyond them is held to the model's own roundings, as in other precisions: a norm of
values that cancel magnifies by a thousand what they are off, two such norms by a million (kept/norms_of_nothing.json).

Bounds in other precisions are the model's own: the interpreter runs three times with every operation rounding at random, forward
and backward, and a trainer may be six times as far from f64 as the farthest of them (the roundings of a trainer are more, and
not random). Such a test finds a wrong term, not a wrong last digit. Where products of 8 bits are drawn, the interpreter rounds
operands and results of products as well.
"""
import collections
import math

import numpy as np

import interpret
import settings as settings_of
import tape
import tree
import trainer

LOSS_BOUND, GRADIENT_BOUND, FLOOR = 1e-11, 1e-9, 1e-3
# Other precisions: how far one rounding is off, how often a gradient is computed with such roundings, and what a trainer may be off.
ROUNDING = {"fp64": 2.0 ** -52, "fp32": 2.0 ** -23, "mixed_bf16": 2.0 ** -8, "mixed_fp16": 2.0 ** -10, **dict.fromkeys(tape.RECIPES, 2.0 ** -8)}
# What three noisy runs do not explain, thirty may: a rounding that crosses a kink, as a relu's, is rare and moves a gradient by much
# more than all others do (kept/rare_rounding_bf16.json).
NOISY_RUNS, MANY_NOISY_RUNS, SLACK = 3, 30, 6.0
MEASURED = {"fp64": 2.0 ** -53}  # a gradient is the difference of two values, in f32 unless said, over lr
MEASURED_F32 = 2.0 ** -24

Verdict = collections.namedtuple("Verdict", "kind text")


def tokens_of(model):
    count = trainer.STEPS * model["batch"] * model["sizes"]["S"] + 1
    return np.random.default_rng([model["seed"], 3]).integers(0, model["sizes"]["V"], count)


def in_range(gradients):
    return 1e-6 < max(np.abs(g).max() for g in gradients.values()) < 1e6


class Case:
    """A model, how it is trained, and what the first step must be. lr moves its largest element by 1/8 to 1/4."""

    def __init__(self, model, settings, words=()):
        self.model, self.settings, self.words = model, settings, words
        self.frozen = settings_of.frozen_in(words)
        self.tokens, self.why = tokens_of(model), None
        try:
            self.values = interpret.Run(model, None, 0, self.tokens, precision=self.precision()).values
            if self.precision() != "fp64":
                self.values = {name: trainer.rounded(v, self.precision()) for name, v in self.values.items()}
            self.first = interpret.Run(model, self.values, 0, self.tokens, precision=self.precision())
            self.gradients = self.first.gradients()
        except interpret.Unfit as unfit:
            self.why = str(unfit)
            return
        self.largest = max(np.abs(g).max() for g in self.gradients.values())
        if in_range(self.gradients):
            self.lr = 2.0 ** math.floor(math.log2(0.25 / self.largest))
        else:
            self.why = "gradients out of range"

    def is_frozen(self, name):
        return settings_of.general(name) in self.frozen

    def precision(self):
        return self.settings["precision"]

    def text(self, why="a random model, printed by tests/fuzz/models.py"):
        return tree.dz(self.model, self.lr, why)

    def arrays(self):
        """{name: input of all samples}; of a model that is trained on a stream none."""
        model, body, shape = self.model, self.model["body"], (trainer.STEPS, self.model["batch"], self.model["sizes"]["S"])
        if not tree.has_documents(body) and not tree.has_fewer(body) and "missing" not in model:
            return {}
        labels = self.tokens[1:].reshape(shape)
        arrays = {name: np.concatenate([interpret.labels_of(model, labels[step], step, name) for step in range(trainer.STEPS)])
                  for name in ("labels", "fewer")}
        arrays["tokens"] = self.tokens[:-1].reshape(arrays["labels"].shape)
        arrays["documents"] = interpret.documents_of(model, len(arrays["labels"]))
        return arrays

    def train(self, folder):
        return trainer.train(folder, self.text(), self.tokens, self.arrays(), self.model["seed"], self.values, self.settings, self.words,
                             {name for name in self.values if self.is_frozen(name)})


# ---- gradients ----

def gradient_errors(case, step, values, got, want):
    """{name: error}, above 1 where a gradient is off by more than the bound and by more than the model's roundings explain."""
    largest = max(np.abs(g).max() for g in want.values())
    errors = {name: float(np.abs(got[name] - g).max() / max(np.abs(g).max(), FLOOR * largest)) / GRADIENT_BOUND for name, g in want.items()}
    if max(errors.values()) <= 1:
        return errors
    explained = errors_over(case, step, values, got, want, MANY_NOISY_RUNS)
    return {name: min(errors[name], explained[name]) for name in errors}


def noisy_errors(case, step, values, got, want):
    errors = errors_over(case, step, values, got, want, NOISY_RUNS)
    return errors if max(errors.values()) <= 1 else errors_over(case, step, values, got, want, MANY_NOISY_RUNS)


def errors_over(case, step, values, got, want, n_runs):
    """Errors over what the model's own roundings explain: lengths of differences, with what happens to the gradients when every
    operation of the interpreter rounds."""
    noise, measured = ROUNDING[case.precision()], MEASURED.get(case.precision(), MEASURED_F32)
    runs = [interpret.Run(case.model, values, step, case.tokens, noise, seed, False, case.precision()).gradients() for seed in range(n_runs)]
    largest = max(np.linalg.norm(g) for g in want.values())

    def error(name):
        explained = max(np.linalg.norm(run[name] - want[name]) for run in runs)
        floor = noise * max(np.linalg.norm(want[name]), 0.1 * largest) + measured * np.linalg.norm(values[name]) / case.lr
        return float(np.linalg.norm(got[name] - want[name]) / (SLACK * (explained + floor)))
    return {name: error(name) for name in want}


# ---- steps ----

def loss_bound(case, step, values, run):
    if case.precision() == "fp64":
        return LOSS_BOUND * max(abs(run.loss), 1e-3)
    noise = ROUNDING[case.precision()]
    runs = [interpret.Run(case.model, values, step, case.tokens, noise, seed, False, case.precision()).loss for seed in range(NOISY_RUNS)]
    return SLACK * (max(abs(loss - run.loss) for loss in runs) + noise * abs(run.loss))


def compare_step(case, step, before, trained):
    """What is off in a step that begins with `before`; None where its values make it no test."""
    values = before if case.precision() == "fp64" else {name: trainer.rounded(v, case.precision()) for name, v in before.items()}
    try:
        run = case.first if step == 0 else interpret.Run(case.model, values, step, case.tokens, precision=case.precision())
    except interpret.Unfit:
        return None
    off, want = [], case.gradients if step == 0 else run.gradients()
    want = {name: g for name, g in want.items() if not case.is_frozen(name)}
    if not in_range(want):
        return None
    if not abs(trained.losses[step] - run.loss) <= loss_bound(case, step, values, run):
        off.append("loss of step %d: %r, not %r" % (step + 1, trained.losses[step], run.loss))
    got = {name: (before[name] - trained.values[step][name]) / case.lr for name in before}
    moved = [name for name in before if case.is_frozen(name) and got[name].any()]
    if moved:
        off.append("frozen, and moved in step %d: %s" % (step + 1, moved[:6]))
    errors = (gradient_errors if case.precision() == "fp64" else noisy_errors)(case, step, values, got, want)
    bad = sorted((name for name in errors if not errors[name] <= 1), key=lambda name: -errors[name])
    if bad:
        off.append("gradient in step %d of %s" % (step + 1, ", ".join("%s by %.1e times the bound" % (name, errors[name]) for name in bad[:6])))
    return off


def compare(case, trained):
    """A list of what is off."""
    if sorted(trained.values[0]) != sorted(case.values):
        return ["other parameters: %s" % sorted(set(trained.values[0]) ^ set(case.values))]
    if trained.skipped:  # fp16: a step that overflows is not applied
        return []
    off = compare_step(case, 0, case.values, trained)
    return off or compare_step(case, 1, trained.values[0], trained) or []


def examine(case, folder):
    trained = case.train(folder)
    if trained.refused:
        return Verdict("refused", trained.refused + "\n" + trained.error)
    if trained.error:
        return Verdict("bad", trained.error)
    off = compare(case, trained)
    return Verdict("bad", "\n".join(off)) if off else Verdict("good", "")


# ---- differences of the trainer's own loss ----

PARAMETERS, STEP, DIFFERENCE_BOUND = 20, 3e-5, 1e-6


def can_differ(case):
    """A loss that is printed has no balancing terms; dropout draws the same numbers again. Rounded values stand still or jump."""
    return "cast" not in tree.operations(case.model) and not any(tree.is_call(e) and e[1].get("balance", 0) for e in tree.expressions(case.model["body"]))


def difference(case, folder, name, index, step):
    losses = []
    for sign in (1, -1):
        moved = dict(case.values)
        moved[name] = moved[name].copy()
        moved[name].flat[index] += sign * step
        losses.append(trainer.loss_at(folder, case.model["seed"], moved))
    return (losses[0] - losses[1]) / (2 * step)


def check_differences(case, folder, random):
    """Of PARAMETERS elements, against the gradients (which the trainer's equal by now). Error: STEP^2 of a third derivative and a loss's
    rounding over STEP, 1e-9 and 1e-11 where derivatives are about 1; where they are larger, a step of an eighth has a 64th of it, and both
    together tell where that goes (Richardson's extrapolation: layer_norm of two columns is nearly their difference's sign)."""
    gradients, largest, off = case.gradients, case.largest, []
    for _ in range(PARAMETERS):
        name = random.choice(sorted(gradients))
        index = random.randrange(gradients[name].size)
        want = gradients[name].flat[index]
        wide = difference(case, folder, name, index, STEP)
        if abs(wide - want) <= DIFFERENCE_BOUND * largest:
            continue
        near = difference(case, folder, name, index, STEP / 8)
        errors = [abs(x - want) / largest for x in (wide, near, near + (near - wide) / 63)]
        if min(errors[1:]) > DIFFERENCE_BOUND:
            off.append("difference of the loss by %s[%d]: off by %.1e, %.1e and %.1e of the largest gradient" % (name, index, *errors))
    return off
