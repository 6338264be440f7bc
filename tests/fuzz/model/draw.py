# SPDX-License-Identifier: Apache-2.0
"""Random legal models.

    model(seed)        a tree as in tree.py; every operation of the language may occur in it

Expressions are drawn downwards from the width that is wanted. What `log`, `sqrt`, `rsqrt` and divisors need is positive by its
form (`positive`), so that most models are no test of rounding; interpret.py leaves out the rest. All names that a segment defines
reach its result: what nothing has read at the end is added to it.
"""
import random

import tree
from draw_shapes import NONLINEAR, Shapes

# Widths of a model: names of sizes, or numbers where a width must hold heads or parts.
NUMBERS = (0.5, 2.0, 3.0, 0.25, 1.0, -1.0, 1.5, 0.1, -0.5, 0.3)
PATTERNS = ("sliding", "fixed", "strided", "longformer", "bigbird", "variable")


class Scope:
    """What can be read at a place. values: {name: width} of [B, S, width]; params: {name: (sizes, kind)}."""

    def __init__(self, values, params):
        self.values, self.params, self.unread, self.statements = dict(values), params, set(), []


class Drawing(Shapes):
    def __init__(self, seed, depth=4):
        self.random, self.depth, self.seed = random.Random(seed), depth, seed
        self.count = 0
        self.narrow = random.Random("narrow %s" % seed)  # so that all other models are drawn as if there were none
        self.sizes = self.draw_sizes()
        self.outer_params = {}  # of the model, tied wherever their shape fits
        self.others = random.Random("streams %s" % seed)  # so that models without streams are drawn as if there were none
        self.shapes, self.sums, self.scores, self.packed = (random.Random("%s %s" % (what, seed)) for what in ("shapes", "sums", "scores", "packed"))  # likewise

    # ---- choices ----

    def chance(self, share):
        return self.random.random() < share

    def one(self, choices):
        return self.random.choice(choices)

    def name(self, stem):
        self.count += 1
        return "%s%d" % (stem, self.count)

    def draw_sizes(self):
        sizes = {"V": self.random.randint(3, 19), "S": self.random.randint(2, 9), "d": self.random.randint(2, 12)}
        if self.chance(0.6):
            sizes["d"] = self.one((2, 3, 4, 6)) * self.one((1, 2, 4))  # heads
        for name in ("f", "g")[:self.random.randint(0, 2)]:
            sizes[name] = self.random.randint(1, 13)
        if self.chance(0.12):
            sizes["S"] = self.one((16, 32, 48, 16, 32, 48, 128))  # patterns have blocks of 16, or of 64, which GPUs take
        if self.narrow.random() < 0.06:  # kernels of 8 bits take multiples of 16
            sizes.update((name, self.narrow.choice((16, 32, 48))) for name in sizes if name not in "VS")
        return sizes

    def width(self):
        return self.one(["d"] * 3 + [name for name in self.sizes if name not in "VS"])

    def size(self, width):
        return self.sizes[width] if isinstance(width, str) else width

    # ---- parameters ----

    def parameter(self, scope, sizes, kind):
        sizes = list(sizes)
        fitting = [name for name, known in scope.params.items() if known == (sizes, kind)]
        if fitting and self.chance(0.3):
            return self.one(fitting)
        name = self.name({"table": "table", "matrix": "w", "vector": "b"}.get(kind, "g"))
        scope.statements.append(["param", name, sizes, kind])
        scope.params[name] = (sizes, kind)
        return name

    def vector(self, scope, width, kind="vector"):
        sizes = ["S", width] if self.chance(0.15) else [width]
        return self.parameter(scope, sizes, kind)

    # ---- expressions of [B, S, width] ----

    def variable(self, scope, width):
        """A name of that width; without one, another name times a matrix."""
        fitting = [name for name, known in scope.values.items() if known == width]
        if fitting:
            unread = [name for name in fitting if name in scope.unread]
            chosen = self.one(unread if unread and self.chance(0.6) else fitting)
            scope.unread.discard(chosen)
            return chosen
        other = self.one(sorted(scope.values))
        scope.unread.discard(other)
        return self.product(scope, other, scope.values[other], width)

    def product(self, scope, x, width, out):
        """x [B, S, width] times a matrix."""
        form = self.random.random()
        if form < 0.35:
            return ["linear", {"out": out} if self.chance(0.6) else {"out": out, "bias": False}, x]
        if form < 0.7:
            return ["matmul", {}, x, self.parameter(scope, [width, out], "matrix")]
        return ["matmul", {"transpose": True}, x, self.parameter(scope, [out, width], "matrix")]

    def expression(self, scope, width, depth):
        if depth <= 0 or self.chance(0.12):
            return self.variable(scope, width)
        forms = ((self.elementwise, 30), (self.with_number, 22), (self.of_two, 24), (self.with_parameter, 14), (self.normal, 9),
                 (self.multiplied, 9), (self.turned, 4), (self.positive, 7), (self.dropped, 4), (self.divided, 7), (self.joined_positions, 3))
        form = self.random.choices([f for f, _ in forms], [w for _, w in forms])[0]
        return form(scope, width, depth - 1)

    def elementwise(self, scope, width, depth):
        operation = self.one(NONLINEAR + ("neg",) * 2)
        options = {"approximate": "tanh"} if operation == "gelu" and self.chance(0.5) else {}
        if operation == "leaky_relu" and self.chance(0.7):
            options = {"negative_slope": self.one((0, 0.1, 0.3, 1, 1.5))}
        return [operation, options, self.expression(scope, width, depth)]

    def with_number(self, scope, width, depth):
        x, value = self.expression(scope, width, depth), self.one(NUMBERS)
        operation = self.one(("add", "sub", "mul", "mul", "div"))
        if operation == "div" or self.chance(0.5):
            return [operation, {}, x, value]
        return [operation, {}, value, x]

    def of_two(self, scope, width, depth):
        a = self.expression(scope, width, depth)
        b = a if self.chance(0.08) and isinstance(a, str) else self.expression(scope, width, depth)
        return [self.one(("add", "add", "sub", "mul", "mul")), {}, a, b]

    def with_parameter(self, scope, width, depth):
        x = self.expression(scope, width, depth)
        operation = self.one(("add", "add", "sub", "mul", "div"))
        return [operation, {}, x, self.vector(scope, width, "divisor" if operation == "div" else "vector")]

    def normal(self, scope, width, depth):
        operation = self.one(("layer_norm", "rms_norm", "layer_normalize", "rms_normalize", "l2_normalize"))
        options = {"eps": self.one((1e-6, 1e-3, 0.1))} if self.chance(0.4) else {}
        x = self.expression(scope, width, depth)
        if operation.endswith("norm"):
            return [operation, options, x]
        if operation == "l2_normalize":
            heads = [h for h in range(2, 7) if self.size(width) % h == 0]
            if not heads or self.chance(0.5):
                return [operation, options, x]
            return [operation, dict(options, heads=self.one(heads)), self.product(scope, x, width, width)]
        vectors = [self.parameter(scope, [width], "gain")]
        if operation == "layer_normalize":
            vectors.append(self.parameter(scope, [width], "vector"))
        return [operation, options, x] + vectors

    def multiplied(self, scope, width, depth):
        inner = self.width()
        return self.product(scope, self.expression(scope, inner, depth), inner, width)

    def turned(self, scope, width, depth):
        x, heads = self.expression(scope, width, depth), [h for h in range(1, 7) if self.size(width) % (2 * h) == 0]
        return ["rope", self.rope_options(self.one(heads)), x] if heads else x

    def rope_options(self, heads):
        options = {"heads": heads}
        if self.chance(0.4):
            options["theta"] = self.one((100.0, 500.0, 50000.0))
        if self.chance(0.4):
            options["style"] = "interleaved"
        return options

    def dropped(self, scope, width, depth):
        return ["dropout", {"rate": self.one((0.1, 0.25, 0.5, 0))} if self.chance(0.6) else {}, self.expression(scope, width, depth)]

    def divided(self, scope, width, depth):
        below = self.positive(scope, width, depth)
        return ["div", {}, self.one(NUMBERS) if self.chance(0.4) else self.expression(scope, width, depth), below]

    def positive(self, scope, width, depth):
        """Above a constant, for all values of what is inside."""
        above = self.one((0.2, 0.5, 1.0, 2.0))
        x = self.expression(scope, width, depth - 1)
        forms = [lambda: ["exp", {}, ["tanh", {}, x]], lambda: ["add", {}, [self.one(("sigmoid", "softmax", "relu")), {}, x], above],
                 lambda: ["sub", {}, 1.0 + above, ["sigmoid", {}, x]], lambda: ["exp", {}, ["mul", {}, ["sigmoid", {}, x], self.one((1.0, -1.5))]],
                 lambda: ["add", {}, above, ["mul", {}, x, x]] if isinstance(x, str) else ["add", {}, ["sigmoid", {}, x], above]]
        result = self.one(forms)()
        if depth > 0 and self.chance(0.5):
            result = [self.one(("sqrt", "rsqrt")), {}, result]
        elif depth > 0 and self.chance(0.3):
            result = ["log", {}, ["add", {}, result, 1.2]]
        return result

    def joined_positions(self, scope, width, depth):
        """Positions of all samples, or one of another value, before or after, and as many taken out again."""
        def own(x):  # parts of a split cannot be joined, and a dropout may be what it is of
            return ["tanh", {}, x] if isinstance(x, str) or x[0] == "dropout" else x
        x, count = own(self.expression(scope, width, depth)), 1
        if self.chance(0.3):
            other = ["slice", {"begin": 0, "end": 1}, own(self.expression(scope, width, depth - 1))]
        else:
            count = self.random.randint(1, 3)
            other = self.parameter(scope, [count, width], "vector")
        begin = self.random.randint(0, count)
        options = {"begin": begin, "end": begin - count} if begin < count else {"begin": begin}
        return ["slice", options, ["concat", {}, *((x, other) if self.chance(0.5) else (other, x))]]

    # ---- statements ----

    def let(self, scope, names, expression, widths):
        scope.statements.append(["let", names, expression])
        for name, width in zip(names, widths):
            scope.values[name] = width
            scope.unread.add(name)

    def plain_statement(self, scope):
        width, name = self.width(), self.name("v")
        self.let(scope, [name], self.expression(scope, width, self.random.randint(1, self.depth)), [width])
        if self.shapes.random() < 0.25:
            self.shaped_statement(scope, name, width)
        if self.sums.random() < 0.3:
            self.summed_statement(scope, name, width)

    def residual_statement(self, scope):
        """x + scale * norm(f(norm(x))): any of the three may lack, as in models that people train."""
        x = self.variable(scope, "d")
        if not isinstance(x, str):
            return self.plain_statement(scope)
        inner = [self.one(("rms_norm", "layer_norm")), {}, x] if self.chance(0.7) else x
        width = self.width()
        y = self.product(scope, [self.one(NONLINEAR), {}, self.product(scope, inner, "d", width)], width, "d")
        if self.chance(0.5):
            y = [self.one(("rms_norm", "layer_norm")), {}, y]
        if self.chance(0.5):
            y = ["mul", {}, y, self.parameter(scope, ["d"], "vector")]
        self.let(scope, [self.name("r")], ["add", {}, *((x, y) if self.chance(0.7) else (y, x))], ["d"])

    def linear_statement(self, scope):
        """A block of std.nn as the whole right side: its parameters have the name on the left."""
        out, source = self.width(), self.width()
        self.let(scope, [self.name("y")], ["linear", {"out": out}, self.expression(scope, source, 2)], [out])

    def split_statement(self, scope):
        parts, width, source = self.random.randint(2, 3), self.width(), self.width()
        whole = parts * self.size(width)
        names = [self.name("p") for _ in range(parts)]
        x = self.product(scope, self.expression(scope, source, 1), source, whole)
        if self.chance(0.5):
            x = ["add", {}, x, self.parameter(scope, [whole], "vector")]
        if self.chance(0.3):
            x = [self.one(NONLINEAR), {}, x]
        self.let(scope, names, ["split", {"n": parts}, x], [width] * parts)

    def pattern(self, length, causal):
        block, kind = 16 if length < 128 else 64, self.one(PATTERNS)
        n = length // block
        listed = sorted(self.random.sample(range(n), self.random.randint(0, min(n, 2))))
        o = {"block": block}
        if kind in ("sliding", "longformer", "bigbird"):
            o["window"] = self.one((1, 3))
        if kind == "fixed":
            o["local"] = self.random.randint(1, n)
            o["global"] = self.random.randint(1, o["local"])
            o["patterns"] = self.random.randint(1, o["local"] // o["global"])
            o["horizontal"] = not causal and self.chance(0.5)
        elif kind == "strided":
            o.update(local=self.random.randint(1, n), stride=self.random.randint(1, n))
        elif kind == "longformer":
            o["global"] = listed or [0]
        elif kind == "bigbird":
            o.update({"global": self.random.randint(0, 1), "random": self.random.randint(0, 1), "seed": self.random.randint(0, 99)})
        elif kind == "variable":
            o.update({"windows": [self.random.randint(1, 2) for _ in range(self.random.randint(1, 2))], "global": listed,
                      "random": self.random.randint(0, 1), "seed": self.random.randint(0, 99),
                      "horizontal": not causal and self.chance(0.5)})
        return [kind, o]

    def attention_statement(self, scope):
        heads, size, length = self.one((1, 2, 3, 4)), self.one((1, 2, 3, 4, 6)), self.sizes["S"]
        kv_heads = self.one([h for h in range(1, heads + 1) if heads % h == 0])
        options = {"heads": heads}
        if kv_heads != heads:
            options["kv_heads"] = kv_heads
        if self.chance(0.3):
            options["causal"] = False
        if self.chance(0.3):
            options["scale"] = self.one((0.2, 0.5, 1.0))
        if length % 16 == 0 and self.chance(0.8):
            options["pattern"] = self.pattern(length, options.get("causal", True))
        source, names = self.width(), [self.name(stem) for stem in "qkv"]
        if kv_heads == heads and self.chance(0.5):
            x = self.product(scope, self.expression(scope, source, 2), source, 3 * heads * size)
            if self.chance(0.4):
                x = ["add", {}, x, self.parameter(scope, [3 * heads * size], "vector")]
            self.let(scope, names, ["split", {"n": 3}, x], [heads * size] * 3)
        else:
            for name, width in zip(names, (heads * size, kv_heads * size, kv_heads * size)):
                self.let(scope, [name], self.product(scope, self.expression(scope, source, 1), source, width), [width])
        q, k, v = names
        if "pattern" not in options and self.scores.random() < 0.4:
            return self.scored_attention(scope, names, heads, kv_heads, size, options)
        if size % 2 == 0 and self.chance(0.5):
            o = self.rope_options(heads)
            q, k = ["rope", o, q], ["rope", dict(o, heads=kv_heads), k]
        if self.chance(0.15):
            k = ["neg", {}, k]
        if self.chance(0.15):
            q = ["mul", {}, q, self.one(NUMBERS)]
        scope.unread -= set(names)
        out = self.width()
        self.keep_to_documents(options)
        result = ["attention", options, q, k, v]
        if self.chance(0.25):
            result = [self.one(("neg", "tanh", "silu")), {}, result]
        self.let(scope, [self.name("a")], self.product(scope, result, heads * size, out), [out])

    def experts_statement(self, scope):
        experts, source, inner, out = self.random.randint(2, 5), self.width(), self.random.randint(1, 7), self.width()
        k = self.random.randint(1, min(3, experts))
        options = {"k": k, "capacity": self.one((0.5, 0.8, 1.25, 2.0))}
        if k == 1 or self.chance(0.3):
            options["normalize"] = False
        if self.chance(0.4):
            options["balance"] = self.one((0.01, 0.1, 1.0))
        if self.chance(0.4):
            options["affinity"] = "sigmoid"
        if experts == 4 and k <= 2 and options.get("affinity") and self.scores.random() < 0.5:
            options["groups"], options["top_groups"] = 2, 1
        if self.scores.random() < 0.3:
            options["capacity"] = tree.DROPLESS
        tokens, weight, slot = self.name("t"), self.name("weight"), self.name("slot")
        x = self.expression(scope, source, 2)
        # Part of a wider tensor cannot be dispatched: the planner refuses it.
        self.let(scope, [tokens], ["tanh", {}, x] if isinstance(x, str) else x, [source])
        scope.unread.discard(tokens)
        scores = self.product(scope, tokens, source, experts)
        if self.chance(0.3):
            scores = ["mul", {}, scores, self.one((0.5, 2.0, 1.5))]
        scope.statements.append(["let", [weight, slot], ["top_k_gate", options, scores]])
        y = ["dispatch", {}, tokens, slot]
        y = self.batched(scope, y, experts, source, inner)
        y = self.in_slots(scope, y, experts, inner, options["capacity"] != tree.DROPLESS)
        y = self.batched(scope, y, experts, inner, out)
        self.let(scope, [self.name("e")], ["combine", {}, y, weight, slot], [out])

    def batched(self, scope, x, experts, width, out):
        if self.chance(0.5):
            return ["batched_matmul", {}, x, self.parameter(scope, [experts, width, out], "matrix")]
        return ["batched_matmul", {"transpose": True}, x, self.parameter(scope, [experts, out, width], "matrix")]

    def in_slots(self, scope, y, experts, width, drops):
        """Between the products of the experts; drops: dropout may be there."""
        for _ in range(self.random.randint(0, 3)):
            form = self.random.randint(0, 6)
            if form <= 2:
                y = [self.one(NONLINEAR + ("neg",)), {}, y]
            elif form == 3:
                y = [self.one(("add", "mul")), {}, y, self.parameter(scope, [width], "vector")]
            elif form == 4:
                y = ["rms_normalize", {"eps": 0.1}, y, self.parameter(scope, [width], "gain")]
            elif form == 5 and drops:
                y = ["dropout", {}, y]
            else:
                value, operation = self.one(NUMBERS), self.one(("add", "mul", "sub"))
                y = [operation, {}, value, y] if self.chance(0.5) else [operation, {}, y, value]
        if self.chance(0.25):
            a, b, part = self.name("u"), self.name("u"), 2 * width
            scope.statements.append(["let", [a, b], ["split", {"n": 2}, self.batched(scope, y, experts, width, part)]])
            y = ["mul", {}, [self.one(("silu", "gelu", "sigmoid")), {}, a], b]
        return y

    def some_statements(self, scope, count):
        for _ in range(count):
            kinds = ((self.plain_statement, 50), (self.residual_statement, 12), (self.linear_statement, 8), (self.split_statement, 8), (self.attention_statement, 13),
                     (self.experts_statement, 9))
            self.random.choices([k for k, _ in kinds], [w for _, w in kinds])[0](scope)

    def joined(self, scope, width, keep):
        """An expression of all that nothing has read, and of `keep`."""
        result = self.expression(scope, width, 1) if keep is None else keep
        scope.unread.discard(keep)
        for name in sorted(scope.unread):
            part = name if scope.values[name] == width else self.product(scope, name, scope.values[name], width)
            if self.chance(0.4):
                part = [self.one(("tanh", "neg", "silu", "sigmoid")), {}, part]
            result = [self.one(("add", "add", "sub", "mul")), {}, *((result, part) if self.chance(0.5) else (part, result))]
        scope.unread.clear()
        return result

    # ---- segments ----

    def segment(self, values, params, count, carry):
        """Statements that end by assigning `carry` again."""
        scope = Scope(values, params)
        scope.unread |= set(values) if len(values) > 1 and carry in values else set()  # what flows in has to be read
        self.some_statements(scope, count)
        keep = carry if carry in scope.values and scope.values[carry] == "d" and (self.chance(0.6) or not scope.unread) else None
        x = self.joined(scope, "d", keep)
        if isinstance(x, str) or x[0] == "dropout":  # at rate 0 `x` would leave a repeat as it came, which is refused
            x = ["tanh", {}, x]
        if self.chance(0.4):
            x = [self.one(("rms_norm", "layer_norm")), {}, x]
        scope.statements.append(["let", [carry], x])
        return scope

    def streams(self, scope):
        """Values of a segment that later ones may read, or carry alongside `x`: computed, with storage of their own."""
        found = [s[1][0] for s in scope.statements if s[0] == "let" and len(s[1]) == 1 and isinstance(s[2], list)
                 and s[2][0] not in ("split", "dropout") and s[1][0] != "x" and s[1][0] in scope.values]
        chosen = self.others.sample(found, min(len(found), self.others.randint(1, 2))) if self.others.random() < 0.4 else []
        return {name: scope.values[name] for name in chosen}

    def repeat(self, carry, streams):
        """Reads some of the streams and of the model's parameters, and may assign a stream again."""
        read = {name: width for name, width in streams.items() if self.others.random() < 0.7}
        shared = dict(self.outer_params) if streams and self.others.random() < 0.5 else {}
        inner = self.segment({carry: "d", **read}, shared, self.random.randint(1, 3), carry)
        carried = carry
        for name, width in read.items():
            if self.others.random() < 0.5:
                inner.statements.append(["let", [name], ["add", {}, ["mul", {}, name, 0.5], ["tanh", {}, self.product(inner, carry, "d", width)]]])
                carried = [carry, name]
                break
        return ["repeat", self.name("h"), self.random.randint(1, 3), inner.statements, carried]

    def embedding(self, scope):
        table = self.parameter(scope, ["V", "d"], "table")
        x = ["embedding", {}, "tokens", table]
        if self.chance(0.4):
            x = ["add", {}, x, self.parameter(scope, ["S", "d"], "vector")]
        return (["mul", {}, x, self.one((2.0, 0.5, 1.5))] if self.chance(0.2) else x), table

    def missing_labels(self):
        """Shares of labels, and of samples all of whose labels are missing, and the step in which `fewer` has none; None: all are there."""
        draw = random.Random("missing %s" % self.seed)  # likewise of its own
        if draw.random() < 0.6:
            return None
        return {"share": draw.choice((0.0, 0.3, 0.8)), "samples": draw.choice((0.0, 0.3, 0.6)), "step": draw.randint(0, 2)}

    def losses(self, logits):
        """The last statements: the loss, now and then a sum of two or three, of the same logits and of others made of them, and of other labels where some are missing."""
        def loss(x, labels="labels"):
            return ["cross_entropy", {}, x, labels]
        fewer = "fewer" if self.missing_labels() else "labels"
        chosen = random.Random("losses %s" % self.seed)  # draws of its own: all else of a seed's model is as it was
        if chosen.random() < 0.8 or isinstance(logits, str):
            return [["output", ["mul", {}, loss(logits), 1.5] if chosen.random() < 0.1 else loss(logits)]]
        others = [loss("logits", fewer), loss(["mul", {}, "logits", chosen.choice((0.5, -1.0, 2.0))], fewer), loss(["tanh", {}, "logits"], fewer)]
        chosen.shuffle(others)
        others = others[:chosen.randint(1, 2)]
        result = ["mul", {}, loss("logits"), chosen.choice((0.5, 1.5))]
        for other in others:
            result = ["add", {}, result, chosen.choice((other, ["mul", {}, 0.75, other], ["div", {}, other, 4.0]))]
        return [["let", ["logits"], logits], ["output", result]]

    def model(self):
        first = Scope({}, self.outer_params)
        x, table = self.embedding(first)
        self.let(first, ["x"], x, ["d"])
        begin = self.segment(first.values, self.outer_params, self.random.randint(0, 3), "x")
        body, streams = first.statements + begin.statements, self.streams(begin)
        for _ in range(self.one((0, 1, 1, 1, 2))):
            body.append(self.repeat("x", streams))
            if self.chance(0.3):
                body += self.segment({"x": "d", **streams}, self.outer_params, 1, "x").statements
        end = Scope({"x": "d", **streams}, self.outer_params)
        end.unread |= {"x", *streams}
        self.some_statements(end, self.random.randint(0, 2))
        last = self.joined(end, "d", None)
        if self.chance(0.5):
            last = [self.one(("rms_norm", "layer_norm")), {}, last]
        logits = ["matmul", {"transpose": True}, last, table] if self.chance(0.4) else \
            self.product(end, last, "d", "V")
        if self.chance(0.3):
            logits = [self.one(("mul", "div")), {}, logits, self.one((0.5, 2.0, 3.0))]
            if self.chance(0.4):
                logits = [self.one(("mul", "div", "add", "sub")), {}, logits, self.one(NUMBERS)]
        elif self.chance(0.15):
            logits = ["mul", {}, ["tanh", {}, ["div", {}, logits, 3.0]], 3.0]  # soft capping
        body += end.statements + self.losses(logits)
        batch = self.one((1, 2, 3, 4, 4, 6)) if self.sizes["S"] < 10 else self.one((1, 2))
        return {"sizes": self.sizes, "batch": batch, "seed": self.random.randint(0, 2 ** 31), "dropout": self.one((0, 0, 0.1, 0.3)), "body": body,
                **({"missing": self.missing_labels()} if self.missing_labels() else {})}


def model(seed):
    return Drawing(seed).model()
