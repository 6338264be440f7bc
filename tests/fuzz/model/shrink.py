# SPDX-License-Identifier: Apache-2.0
"""Smaller models that fail likewise.

    smaller = shrink(failing, fails)      # fails(model, settings, words) -> bool; failing: (model, settings, words)

Every candidate is one step smaller: a setting as on one rank, a repeat less, a size less, a statement's names replaced by another
value of that width, an expression by one of its operands. A candidate that fails takes the place of the model, until none does.
What is no model (shapes that do not fit, names that are not there) is left out by the interpreter, which sees it first.
"""
import copy

import tree
from settings import GPU, frozen_in, on_gpu

# What a layout has that one rank has not, and what takes its place; in this order.
SIMPLER = (("sequence", False), ("recompute_shard", "none"), ("stage_recompute", None), ("zero", 0), ("plan.expert", None), ("shard", None), ("context_by", "heads"), ("context", None), ("rank_order", "tdp"),
           ("cut", "layer"), ("microbatch", 1), ("recompute", "none"), ("tensor", 1), ("plan.data", 1))


def simpler_settings(model, settings, words):
    if frozen_in(words):
        yield model, settings, words[:-2]  # where freeze() has put them
    if on_gpu(words):
        yield model, settings, words[len(GPU):]
    if settings["precision"] != "fp64":
        yield model, dict(settings, precision="fp64"), GPU if on_gpu(words) else ()
    for key, value in SIMPLER:
        if settings.get(key, value) == value:
            continue
        chosen = dict(settings, **{key: value})
        if value is None:
            del chosen[key]
        if key == "stage_recompute":
            chosen["recompute"], chosen["recompute_shard"] = "none", "none"
        yield model, chosen, words
    if settings["schedule"] != "1f1b":
        chosen = dict(settings, schedule="1f1b")
        chosen.pop("chunks", None)
        yield model, chosen, words
    if settings["pipeline"] > 1:
        chosen = dict(settings, pipeline=1, schedule="1f1b", cut="layer", recompute=settings.get("recompute", "none"))
        for key in ("chunks", "stage_recompute"):
            chosen.pop(key, None)
        yield model, dict(chosen, recompute_shard=chosen.get("recompute_shard", "none")), words


def with_body(model, body):
    return dict(model, body=tree.prune(body))


def inlined_repeats(body):
    """Bodies in which one repeat runs less often, or its statements stand outside."""
    for at, statement in enumerate(body):
        if statement[0] == "repeat":
            if statement[2] > 1:
                yield body[:at] + [statement[:2] + [1] + statement[3:]] + body[at + 1:]
            yield body[:at] + statement[3] + body[at + 1:]
            yield body[:at] + body[at + 1:]


def places(body, path=()):
    """Paths to expressions: of statements, then operand by operand."""
    for at, statement in enumerate(body):
        if statement[0] == "repeat":
            yield from places(statement[3], path + (at, 3))
        elif statement[0] in ("let", "output"):
            yield from inside(statement[-1], path + (at, len(statement) - 1))


def inside(expression, path):
    yield path, expression
    if tree.is_call(expression):
        for at, operand in enumerate(expression[2:], 2):
            yield from inside(operand, path + (at,))


def replaced(body, path, expression):
    body = copy.deepcopy(body)
    at = body
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = expression
    return body


def simpler_expressions(body):
    """Bodies in which one expression is one of its operands, or a name, or lacks an option; large ones first."""
    names = [name for statement in tree.statements(body) if statement[0] == "let" for name in statement[1]]
    listed = sorted(places(body), key=lambda item: -sum(1 for _ in tree.walk(item[1])))
    for path, expression in listed:
        if not tree.is_call(expression) or expression[0] in ("cross_entropy", "embedding"):
            continue
        for name in dict.fromkeys(["x"] + names):
            yield replaced(body, path, name)
        for operand in expression[2:]:
            yield replaced(body, path, operand)
        for key in expression[1]:
            if key not in ("out", "heads", "n", "k"):
                yield replaced(body, path, [expression[0], {k: v for k, v in expression[1].items() if k != key}] + expression[2:])


def renamed(expression, names):
    if isinstance(expression, str):
        return names.get(expression, expression)
    return expression[:2] + [renamed(e, names) for e in expression[2:]] if tree.is_call(expression) else expression


def without_aliases(body, names):
    """Without statements that give a value a second name."""
    kept = []
    for statement in body:
        if statement[0] == "repeat":
            read = {name for s in statement[3] if s[0] == "let" for name in tree.names_in(s[2])}
            kept += [["let", [name], names.pop(name)] for name in sorted(read | set(tree.carried(statement))) if name in names]
            kept.append(statement[:3] + [without_aliases(statement[3], {}), statement[4]])
            continue
        if statement[0] in ("let", "output"):
            statement = statement[:-1] + [renamed(statement[-1], names)]
        if statement[0] == "let":
            for name in statement[1]:
                names.pop(name, None)
            if isinstance(statement[2], str):
                names[statement[1][0]] = statement[2]
                continue
        kept.append(statement)
    return kept


def tidier(model):
    yield with_body(model, without_aliases(model["body"], {}))
    used = {size for s in tree.statements(model["body"]) if s[0] == "param" for size in s[2]} | \
        {e[1].get("out") for e in tree.expressions(model["body"]) if tree.is_call(e)}
    yield dict(model, sizes={name: size for name, size in model["sizes"].items() if name in used or name in "VSd"})


def smaller_sizes(model):
    for name, size in model["sizes"].items():
        for value in dict.fromkeys((2, size // 2, size - 1)):
            if 2 <= value < size:
                yield dict(model, sizes=dict(model["sizes"], **{name: value}))
    if model["dropout"]:
        yield dict(model, dropout=0)
    if "missing" in model:
        yield {key: value for key, value in model.items() if key != "missing"}


def smaller_batches(model, settings):
    data = settings["plan.data"]
    for batch in (data, 2 * data):
        if batch < model["batch"]:
            yield dict(model, batch=batch), dict(settings, batch=batch, microbatch=1)


def candidates(model, settings, words):
    yield from simpler_settings(model, settings, words)
    for body in inlined_repeats(model["body"]):
        yield with_body(model, body), settings, words
    for body in simpler_expressions(model["body"]):
        yield with_body(model, body), settings, words
    for smaller in tidier(model):
        yield smaller, settings, words
    for smaller in smaller_sizes(model):
        yield smaller, settings, words
    for smaller, changed in smaller_batches(model, settings):
        yield smaller, changed, words


def shrink(failing, fails, most=400):
    """most: candidates that are trained."""
    tried, seen = 0, set()
    progress = True
    while progress:
        progress = False
        for candidate in candidates(*failing):
            key = repr(candidate)
            if key in seen or candidate == failing:
                continue
            seen.add(key)
            answer = fails(*candidate)
            tried += answer is not None  # None: no model
            if answer:
                failing, progress = candidate, True
                break
            if tried >= most:
                return failing
    return failing
