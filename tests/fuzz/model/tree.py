# SPDX-License-Identifier: Apache-2.0
"""Models as trees, and their text in .dz.

A model is made of lists, strings and numbers, so that it is kept as JSON:

    {"sizes": {"V": 11, "S": 6, "d": 8}, "batch": 4, "seed": 1, "dropout": 0.1, "body": [statement...],
     "missing": {"share": 0.3, "samples": 0.3, "step": 1}}      labels that are not there, see interpret.py; may be left out

    statement   ["param", name, [size...], kind]       size: a name of `sizes` or a number; kind: one of KINDS
                ["let", [name...], expression]
                ["repeat", variable, count, [statement...], carried name, or a list of several]
                ["output", expression]
    expression  a name | a number | [operation, {option: value}, operand...]

Operations are those of the language (docs/reference/operations.md), with `neg add sub mul div` for operators and `linear`, `layer_norm`,
`rms_norm` for the blocks of std.nn. A matrix is transposed by the option `transpose`; `documents` is an option of attention, whose numbers
interpret.py draws.
"""

# How parameters begin, as the file says it. Values for a test are drawn in interpret.py; none of them is 0 or 1.
KINDS = {"table": "normal(std = 0.5)", "matrix": "normal(std = 0.3)", "vector": "normal(mean = 0.1, std = 0.5)",
         "gain": "uniform(0.6, 1.4)", "divisor": "uniform(0.6, 1.8)"}
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
# Blocks of std.nn: their parameters, (name, sizes by input width `k` and options, kind).
BLOCKS = {"linear": lambda k, o: [("weight", [o["out"], k], "matrix")] + ([("bias", [o["out"]], "vector")] if o.get("bias", True) else []),
          "layer_norm": lambda k, o: [("weight", [k], "gain"), ("bias", [k], "vector")],
          "rms_norm": lambda k, o: [("weight", [k], "gain")]}

TEXT = """# %s
use std.nn
use std.hw

model fuzz(%s) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
%s
%s}

cluster cpu {
  nodes = 1
  node  = std.hw.cpu_generic(cores = 8, memory = 8GiB)
}

cluster gpu {
  nodes = 1
  node  = std.hw.workstation(devices = 8 * std.hw.rtx4090)
}

train {
  model      = fuzz
  data       = %s
  batch      = %d
  steps      = 2
  precision  = "fp64"
  dropout    = %s
  optimizer  = sgd(lr = %s)
  checkpoint { dir = "ck"  every = 1  keep = 9 }
  seed       = %d
}
"""


ONE_STREAM, ARRAYS = 'tokens("tokens.bin")', 'arrays("packed")'


def has_documents(expression):
    return isinstance(expression, dict) and "documents" in expression or isinstance(expression, list) and any(map(has_documents, expression))


def has_fewer(body):
    """Has a loss labels of its own?"""
    return any("fewer" in operands(e) for e in expressions(body))


def is_call(expression):
    return isinstance(expression, list)


def operands(expression):
    return expression[2:] if is_call(expression) else []


def names_in(expression):
    """Names that an expression reads, one entry for every use."""
    if isinstance(expression, str):
        return [expression]
    return [name for operand in operands(expression) for name in names_in(operand)]


def carried(statement):
    """Names that a repeat carries."""
    return statement[4] if isinstance(statement[4], list) else [statement[4]]


def walk(expression):
    yield expression
    for operand in operands(expression):
        yield from walk(operand)


def statements(body):
    """All of them, those of repeats after their repeat."""
    for statement in body:
        yield statement
        if statement[0] == "repeat":
            yield from statements(statement[3])


def expressions(body):
    for statement in statements(body):
        if statement[0] in ("let", "output"):
            yield from walk(statement[-1])


def operations(model):
    """Names of the operations of a model."""
    return {e[0] for e in expressions(model["body"]) if is_call(e)}


DROPLESS = "dropless"  # a capacity, a word without quotes


def gates(model):
    return [e for e in expressions(model["body"]) if is_call(e) and e[0] == "top_k_gate"]


def is_dropless(model):
    return any(gate[1].get("capacity") == DROPLESS for gate in gates(model))


def may_drop(model):
    return any(gate[1].get("capacity") != DROPLESS for gate in gates(model))


# ---- text ----

def option(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return '"%s"' % value if isinstance(value, str) and value != DROPLESS else str(value)


def pattern(kind, options):
    return "sparse.%s(%s)" % (kind, ", ".join("%s = %s" % (key, option(value)) for key, value in options.items()))


def number(value):
    return repr(value) if value >= 0 else "(%r)" % value


def text_of(expression):
    if isinstance(expression, str):
        return expression
    if not is_call(expression):
        return number(expression)
    operation, options, *arguments = expression
    words = [text_of(argument) for argument in arguments]
    if operation in OPERATORS:
        return "(%s %s %s)" % (words[0], OPERATORS[operation], words[1])
    if operation == "neg":
        return "(-%s)" % words[0]
    options = dict(options)
    if options.pop("transpose", False):
        words[1] = "transpose(%s)" % words[1]
    if "formula" in options:
        words.insert(0, option(options.pop("formula")))
    if operation == "attention" and len(words) > 3:
        words[3] = "relative_bias = " + words[3]
    if options.pop("documents", False):
        words.append("documents = documents")
    if "out" in options:
        words.append(str(options.pop("out")))
    if "pattern" in options:
        words.append("pattern = " + pattern(*options.pop("pattern")))
    return "%s(%s)" % (operation, ", ".join(words + ["%s = %s" % (key, option(value)) for key, value in options.items()]))


def outer(text):
    """Without the parentheses around all of it."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth and at < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") else text


def lines_of(body, indent):
    for statement in body:
        if statement[0] == "param":
            yield "%sparam %s: [%s] ~ %s" % (indent, statement[1], ", ".join(map(str, statement[2])), KINDS[statement[3]])
        elif statement[0] == "let":
            yield "%s%s = %s" % (indent, ", ".join(statement[1]), outer(text_of(statement[2])))
        elif statement[0] == "output":
            yield "%soutput loss = %s" % (indent, outer(text_of(statement[1])))
        else:
            yield "%srepeat %s in 0..%d {" % (indent, statement[1], statement[2])
            yield from lines_of(statement[3], indent + "  ")
            yield indent + "}"


def dz(model, lr, why="a random model, printed by tests/fuzz/models.py"):
    sizes = ", ".join("%s = %d" % item for item in model["sizes"].items())
    body = "".join(line + "\n" for line in lines_of(model["body"], "  "))
    named = [name for name, there in (("documents", has_documents(model["body"])), ("fewer", has_fewer(model["body"]))) if there]
    inputs = "".join("  input %s: i32[B, S]\n" % name for name in named)
    data = ARRAYS if named or "missing" in model else ONE_STREAM
    return TEXT % (why, sizes, inputs, body, data, model["batch"], model["dropout"], repr(lr), model["seed"])


# ---- leaving out what nothing reads ----

def prune(body, read=()):
    """The statements that the output or `read` depends on."""
    kept, wanted = [], set(read)
    for statement in reversed(body):
        if statement[0] == "output":
            wanted |= set(names_in(statement[1]))
        elif statement[0] == "let":
            if not wanted & set(statement[1]) or statement[1] == [statement[2]]:
                continue
            wanted = (wanted - set(statement[1])) | set(names_in(statement[2]))
        elif statement[0] == "param":
            if statement[1] not in wanted:
                continue
        else:
            inner = prune(statement[3], carried(statement))
            statement = statement[:3] + [inner, statement[4]]
            made = {name for s in inner for name in ([s[1]] if s[0] == "param" else s[1])}
            wanted |= {name for s in inner if s[0] == "let" for name in names_in(s[2])} - made | set(carried(statement))
        kept.append(statement)
    return kept[::-1]
