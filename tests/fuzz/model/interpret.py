# SPDX-License-Identifier: Apache-2.0
"""What a model means: its loss and the gradients of all its parameters, from the language's documentation alone.

    run = Run(model, values, step, tokens)       # values: {name in a checkpoint: array}; None: they are drawn
    run.loss, run.gradients()

Nothing here knows the compiler. Random numbers of dropout are Philox4x32-10 keyed by (seed, step, sample, call, iteration,
element), block-sparse patterns are matrices of blocks, routing is sorted lists of tokens.
"""
import math

import numpy as np

import tape as t
import tree

NEAR = 1e-7  # a choice (sign of a relu, rank of a score) that hangs on less is no test of gradients
LARGE, SMALL = 300.0, 2e-3


class Unfit(Exception):
    """The values make the model no test: something is large, near a pole, or near a kink."""


# ---- random numbers ----

def philox(key, counter):
    """Ten rounds on arrays of four 32-bit words."""
    multiplier, weyl, low = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), np.uint64(0xFFFFFFFF)
    words = [np.asarray(word, dtype=np.uint64) for word in counter]
    k0, k1 = key
    for _ in range(10):
        a, b = words[0] * np.uint64(multiplier[0]), words[2] * np.uint64(multiplier[1])
        words = [(b >> np.uint64(32)) ^ words[1] ^ np.uint64(k0), b & low, (a >> np.uint64(32)) ^ words[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + weyl[0]) & 0xFFFFFFFF, (k1 + weyl[1]) & 0xFFFFFFFF
    return words


def uniform(seed, step, sample, stream, iteration, element):
    """In [0, 1); sample and element are arrays that broadcast."""
    sample, element = np.broadcast_arrays(sample, element)
    one = np.zeros_like(element)
    words = philox((seed & 0xFFFFFFFF, seed >> 32), (element // 4, one + (stream << 16 | iteration), sample, one + step))
    return np.choose(element % 4, words).astype(np.float64) * 2.0 ** -32


# ---- block-sparse patterns ----

def window_of(windows, block):
    end = window = 0
    while True:
        end += windows[min(window, len(windows) - 1)]
        if block < end:
            return window
        window += 1


def is_global(o, head, j, n):
    """Is block j of a fixed pattern global for the head? A run that the sequence cuts off has its last blocks instead, if these are earlier."""
    run = j - j % o["local"]
    last = run + o["local"] - head % o["patterns"] * o["global"]
    if run + o["local"] > n:
        last = min(last, n)
    return last - o["global"] <= j < last


def meets(kind, o, head, i, j, n):
    """Does block i see block j, but for random ones?"""
    near = "window" in o and abs(i - j) <= o["window"] // 2
    if kind == "fixed":
        return i // o["local"] == j // o["local"] or is_global(o, head, j, n) or (o["horizontal"] and is_global(o, head, i, n))
    if kind == "strided":
        return abs(i - j) < o["local"] or abs(i - j) % o["stride"] == 0
    if kind == "sliding":
        return near
    if kind == "longformer":
        return near or i in o["global"] or j in o["global"]
    if kind == "bigbird":
        return near or i < o["global"] or j < o["global"]
    return window_of(o["windows"], i) == window_of(o["windows"], j) or j in o["global"] or (o["horizontal"] and i in o["global"])


def block_matrix(kind, o, head, n, causal):
    seen = np.zeros((n, n), dtype=bool)
    for i in range(n):
        limit = i + 1 if causal else n
        seen[i, :limit] = [meets(kind, o, head, i, j, n) for j in range(limit)]
        drawn = set()
        for k in range(min(o.get("random", 0), limit)):
            j = int(float(uniform(o.get("seed", 0), 0, i, 0, 0, k)) * limit)
            while j in drawn:
                j = (j + 1) % limit
            drawn.add(j)
            seen[i, j] = True
    return seen


def visible(heads, length, causal, pattern):
    """[heads, queries, keys]"""
    seen = np.ones((heads, length, length), dtype=bool)
    if pattern:
        kind, o = pattern
        blocks = [block_matrix(kind, o, head, length // o["block"], causal) for head in range(heads)]
        seen = np.kron(np.array(blocks), np.ones((1, o["block"], o["block"]), dtype=bool)).astype(bool)
    return seen & np.tril(np.ones((length, length), dtype=bool)) if causal else seen


# ---- compositions ----

def softmax(x):
    e = t.exp(t.sub(x, x.value.max(-1, keepdims=True)))
    return t.div(e, t.row_sum(e))


def mean(x):
    return t.mul(t.row_sum(x), 1 / x.value.shape[-1])


def normalize(x, eps):
    return t.div(x, t.sqrt(t.add(mean(t.mul(x, x)), eps)))


def gelu(x, approximate):
    if approximate == "tanh":
        inner = t.mul(t.add(x, t.mul(t.mul(t.mul(x, x), x), 0.044715)), math.sqrt(2 / math.pi))
        return t.mul(t.mul(x, 0.5), t.add(t.tanh(inner), 1.0))
    return t.mul(t.mul(x, 0.5), t.add(t.error_function(t.mul(x, 1 / math.sqrt(2))), 1.0))


def to_heads(x, heads):
    batch, length, width = x.value.shape
    return t.reshape(x, (batch, length, heads, width // heads))


def rope(x, heads, theta, style):
    shape = x.value.shape
    size = shape[-1] // heads
    column = np.arange(size)
    if style == "interleaved":
        pair, first = column // 2, column % 2 == 0
        partner = np.where(first, column + 1, column - 1)
    else:
        pair, first = column % (size // 2), column < size // 2
        partner = np.where(first, column + size // 2, column - size // 2)
    angle = np.outer(np.arange(shape[1]), theta ** (-2.0 * pair / size))[:, None, :]
    y = to_heads(x, heads)
    turned = t.mul(t.take(y, partner, 3), np.sin(angle) * np.where(first, -1.0, 1.0))
    return t.reshape(t.add(t.mul(y, np.cos(angle)), turned), shape)


def slopes(heads):
    """ALiBi's (arXiv 2108.12409): 2^(-8 i / n) for n heads, a power of two; else those of the power below, then every other one of twice it."""
    n = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8 * (i + 1) / n) for i in range(n)]
    return np.array(first + [2.0 ** (-4 * (2 * i + 1) / n) for i in range(heads - n)])


def bucket(distance, buckets, max_distance, causal):
    """T5's (arXiv 1910.10683) of a key so far behind its query: half of a side's buckets are single distances, the others grow."""
    first = 0
    if not causal:
        buckets //= 2
        first = buckets if distance < 0 else 0  # keys after the query have the second half
    distance, exact = (max(distance, 0) if causal else abs(distance)), buckets // 2
    if distance < exact:
        return first + distance
    grown = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    return first + min(exact + int(grown * (1 + 1e-12)), buckets - 1)


def documents_of(model, samples):
    """Numbers of documents of so many samples: they ascend, and after the last one may stand -1."""
    length, draw, rows = model["sizes"]["S"], np.random.default_rng([model["seed"], 11]), []
    for _ in range(samples):
        row, number = [], int(draw.integers(0, 3))
        while len(row) < length and (not row or draw.random() < 0.85):
            row += [number] * int(draw.integers(1, length + 1))
            number += int(draw.integers(1, 3))
        rows.append((row + [-1] * length)[:length])
    return np.array(rows)


def labels_of(model, labels, step, name="labels"):
    """The labels of a step's samples, and -1 where there is none; `fewer` has none in one step, all others some in every step."""
    missing = model.get("missing")
    if not missing:
        return labels
    draw = np.random.default_rng([model["seed"], 12, step, name == "fewer"])
    there = (draw.random(labels.shape) >= missing["share"]) & (draw.random((len(labels), 1)) >= missing["samples"])
    if name == "fewer" and step == missing["step"]:
        there[:] = False
    elif not there.any():
        there[-1, 0] = True
    return np.where(there, labels, -1)


def attention(q, k, v, options, table, drop, documents=None):
    """drop: (batch, heads, queries, keys) -> factors of the probabilities, or None; documents: (batch, positions), or None."""
    heads, causal, shape = options["heads"], options.get("causal", True), q.value.shape
    kv_heads, size, queries, keys = options.get("kv_heads", heads), shape[-1] // heads, shape[1], k.value.shape[1]
    shared = np.arange(heads) // (heads // kv_heads)  # the key/value head of every query head
    q, k, v = to_heads(q, heads), t.take(to_heads(k, kv_heads), shared, 2), t.take(to_heads(v, kv_heads), shared, 2)
    scores = t.mul(t.einsum("bqhd,bkhd->bhqk", q, k), options.get("scale") or 1 / math.sqrt(size))
    distance = np.arange(queries)[:, None] - np.arange(keys)
    if "softcap" in options:
        scores = t.mul(t.tanh(t.div(scores, options["softcap"])), options["softcap"])
    if options.get("alibi"):
        scores = t.sub(scores, slopes(heads)[:, None, None] * np.abs(distance))
    if table is not None:
        of = np.vectorize(lambda d: bucket(d, table.value.shape[0], options["max_distance"], causal))(distance)
        scores = t.add(scores, t.last_first(t.take(table, of, 0)))
    seen = np.ones((heads, queries, keys), dtype=bool) if options.get("cross") else visible(heads, queries, causal, options.get("pattern"))
    seen = seen & (np.abs(distance) < options.get("window", queries + keys))
    if documents is not None:
        seen = seen & (documents[:, None, :, None] == documents[:, None, None])
    weights = softmax(t.add(scores, np.where(seen, 0.0, -1e300)))
    weights = t.rounded(weights, np.abs(scores.value).max(-1, keepdims=True))
    if drop is not None:
        weights = t.mul(weights, drop)
    if documents is not None:  # what is of none sees nothing
        weights = t.mul(weights, (documents >= 0)[:, None, :, None] * 1.0)
    return t.reshape(t.einsum("bhqk,bkhd->bqhd", weights, v), shape)


def within_groups(scores, groups, top_groups):
    """Experts outside the groups that are taken get a score that none is below; a group has the sum of its two best ones."""
    by_group = scores.reshape(scores.shape[:2] + (groups, -1))
    best = np.sort(by_group, -1)[..., -2:].sum(-1)
    ranked = np.sort(best, -1)
    if (ranked[..., -top_groups] - ranked[..., -top_groups - 1]).min() < NEAR:
        raise Unfit("groups of experts are near each other")
    taken = best >= ranked[..., -top_groups, None]
    return np.where(taken[..., None], by_group, -np.inf).reshape(scores.shape)


class Routing:
    """Which token of every sample is in which slot of which expert."""

    def __init__(self, scores, k, capacity):
        batch, length, experts = scores.shape
        order = np.argsort(-scores, axis=-1, kind="stable")
        ranked = np.take_along_axis(scores, order, -1)
        if k < experts and (ranked[..., k - 1] - ranked[..., k]).min() < NEAR or np.diff(ranked[..., :k], axis=-1).max(initial=-1.0) > -NEAR:
            raise Unfit("scores of experts are near each other")
        self.choice = order[..., :k]
        self.slots = length if capacity == tree.DROPLESS else min(math.ceil(capacity * length * k / experts * (1 - 1e-12)), length)
        self.place = np.zeros((batch, length, k, experts, self.slots))  # 1 where a choice has that slot
        for b in range(batch):
            used = [0] * experts
            for s in range(length):
                for j, e in enumerate(self.choice[b, s]):
                    if used[e] < self.slots:
                        self.place[b, s, j, e, used[e]] = 1
                        used[e] += 1
        self.share = np.array([np.bincount(self.choice[b].ravel(), minlength=experts) / (length * k) for b in range(batch)])


UNARY = {"exp": t.exp, "log": t.log, "sqrt": t.sqrt, "rsqrt": lambda x: t.div(1.0, t.sqrt(x)), "tanh": t.tanh, "sigmoid": t.sigmoid,
         "relu": t.relu, "silu": lambda x: t.mul(x, t.sigmoid(x)), "softmax": softmax, "neg": lambda x: t.mul(x, -1.0)}
BINARY = {"add": t.add, "sub": t.sub, "mul": t.mul, "div": t.div}


class Run:
    """One step's forward pass. After it: loss (as a trainer prints it), objective (with balancing losses), values."""

    def __init__(self, model, values, step, tokens, noise=0.0, seed=0, guard=True, precision=""):
        self.model, self.step, self.guard = model, step, guard
        self.recipe, self.multiple = t.RECIPES.get(precision), 32 if precision == "mixed_mxfp8" else 16
        self.random = np.random.default_rng([model["seed"], 7])
        self.given, self.values, self.nodes = values, {}, {}
        self.tape = t.Tape(noise, np.random.default_rng(seed))
        length, batch = model["sizes"]["S"], model["batch"]
        windows = tokens[step * batch * length:][:batch * length + 1]
        self.tokens, labels = windows[:-1].reshape(batch, length), windows[1:].reshape(batch, length)
        self.documents = documents_of(model, (step + 1) * batch)[step * batch:]
        self.scope, self.taken, self.prefix, self.iteration, self.stream = {"tokens": None, **{name: labels_of(model, labels, step, name) for name in ("labels", "fewer")}}, set(), "", 0, 0
        self.extra, self.attentions = [], 0  # balancing losses; calls of attention so far
        with np.errstate(all="ignore"):
            self.body(model["body"])

    def gradients(self):
        with np.errstate(all="ignore"):
            self.tape.backward(self.objective)
        return {name: node.grad if node.grad is not None else np.zeros_like(node.value) for name, node in self.nodes.items()}

    # ---- statements ----

    def body(self, body):
        for statement in body:
            getattr(self, statement[0] + "_statement")(*statement[1:])

    def param_statement(self, name, sizes, kind):
        self.scope[name] = self.parameter(name, sizes, kind)

    def let_statement(self, names, expression):
        whole = names[0] if len(names) == 1 and names[0] not in self.scope else None
        value = self.value(expression, whole)
        for name, part in zip(names, value if len(names) > 1 else [value]):
            self.scope[name] = part

    def repeat_statement(self, variable, count, body, carry):
        outside, first, attentions = dict(self.scope), self.stream, self.attentions
        for iteration in range(count):
            self.scope = dict(outside)
            self.prefix, self.iteration, self.stream = "%s.%d." % (variable, iteration), iteration, first
            self.attentions = attentions
            self.body(body)
            for name in carry if isinstance(carry, list) else [carry]:
                outside[name] = self.scope[name]
        self.scope, self.prefix, self.iteration = outside, "", 0

    def output_statement(self, expression):
        self.loss_node = self.value(expression)
        self.loss = float(self.loss_node.value)
        self.objective = self.loss_node
        for extra in self.extra:
            self.objective = t.add(self.objective, extra)

    # ---- parameters ----

    def size(self, size):
        return self.model["sizes"][size] if isinstance(size, str) else size

    def parameter(self, name, sizes, kind):
        name = self.prefix + name
        shape = tuple(map(self.size, sizes))
        if self.given is None:
            self.values[name] = self.draw(shape, kind)
        else:
            self.values[name] = self.given[name]
        self.nodes[name] = self.tape.leaf(self.values[name])
        assert self.nodes[name].value.shape == shape, name
        return self.nodes[name]

    def draw(self, shape, kind):
        if kind in ("gain", "divisor"):
            return self.random.uniform(0.6, 1.4 if kind == "gain" else 1.8, shape)
        if kind == "vector":
            return self.random.normal(0.1, 0.5, shape)
        return self.random.normal(0, 0.8 if kind == "table" else 1 / math.sqrt(max(shape[-2:])), shape)

    def block(self, operation, options, x, whole):
        """std.nn: the parameters have the name on the left where that is new, else the block's."""
        name, count = whole or operation, 2
        while (self.prefix, name) in self.taken:
            name, count = "%s_%d" % (whole or operation, count), count + 1
        self.taken.add((self.prefix, name))
        listed = tree.BLOCKS[operation](x.value.shape[-1], options)
        p = [self.parameter("%s.%s" % (name, part), sizes, kind) for part, sizes, kind in listed]
        if operation == "linear":
            y = self.matmul({"transpose": True}, x, p[0])
            return t.add(y, p[1]) if len(p) > 1 else y
        return self.norm(operation, options, [x] + p)

    # ---- expressions ----

    def check(self, value, low=None):
        if not self.guard:
            return
        size = np.abs(value)
        if not size.max(initial=0) < LARGE or (low is not None and not np.min(value if low == "positive" else size) > SMALL):
            raise Unfit("values out of range")

    def value(self, expression, whole=None):
        if isinstance(expression, str):
            return self.scope[expression]
        if not tree.is_call(expression):
            return float(expression)
        operation, options, *arguments = expression
        arguments = [self.value(argument) for argument in arguments]
        if operation in BINARY:
            result = self.binary(operation, *arguments)
        elif operation in UNARY:
            result = self.unary(operation, *arguments)
        elif operation in tree.BLOCKS:
            result = self.block(operation, options, arguments[0], whole)
        else:
            result = getattr(self, operation)(options, *arguments)
        if isinstance(result, t.Node):
            self.check(result.value)
        return result

    def binary(self, operation, a, b):
        if operation == "div":
            self.check(b.value if isinstance(b, t.Node) else b, "apart")
        return BINARY[operation](a, b)

    def check_kink(self, x):
        if self.guard and (np.abs(x.value) < NEAR).any() and x.value.ndim < 4:
            raise Unfit("a relu hangs on rounding")  # slots that no token took hold zeros

    def unary(self, operation, x):
        if operation in ("log", "sqrt", "rsqrt"):
            self.check(x.value, "positive")
        if operation == "relu":
            self.check_kink(x)
        return UNARY[operation](x)

    def norm(self, operation, options, x):
        y = normalize(t.sub(x[0], mean(x[0])) if operation.startswith("layer") else x[0], options.get("eps", 1e-5))
        y = t.mul(y, x[1])
        return t.add(y, x[2]) if len(x) > 2 else y

    def layer_normalize(self, options, *x):
        return self.norm("layer", options, x)

    def rms_normalize(self, options, *x):
        return self.norm("rms", options, x)

    def l2_normalize(self, options, x):
        heads = to_heads(x, options["heads"]) if "heads" in options else x
        squares = t.mul(mean(t.mul(heads, heads)), float(heads.value.shape[-1]))
        return t.reshape(t.div(heads, t.sqrt(t.add(squares, options.get("eps", 1e-6)))), x.value.shape)

    def leaky_relu(self, options, x):
        self.check_kink(x)
        return t.sub(t.relu(x), t.mul(t.relu(t.mul(x, -1.0)), options.get("negative_slope", 0.01)))

    def gelu(self, options, x):
        return gelu(x, options.get("approximate", "none"))

    def embedding(self, options, ids, table):
        return t.take(table, self.tokens, 0)

    def is_narrow(self, w):
        """In a layer, a parameter, of sizes that kernels take."""
        return self.recipe and self.prefix and not any(n % self.multiple for n in w.value.shape[-2:]) and any(w is p for p in self.nodes.values())

    def matmul(self, options, x, w):
        if self.recipe:
            x = t.stored(x)
            return t.stored(t.narrow_product(x, w, options.get("transpose", False), self.recipe) if self.is_narrow(w) else self.product(options, x, w))
        return self.product(options, x, w)

    def product(self, options, x, w):
        return t.einsum("%sk,%s->%sn" % (letters(x), "nk" if options.get("transpose") else "kn", letters(x)), x, w)

    def batched_matmul(self, options, x, w):
        if self.recipe:
            x = t.stored(x)
            return t.stored(t.narrow_experts(x, w, options.get("transpose", False), self.recipe) if self.is_narrow(w) else self.products(options, x, w))
        return self.products(options, x, w)

    def products(self, options, x, w):
        return t.einsum("beck,%s->becn" % ("enk" if options.get("transpose") else "ekn"), x, w)

    def dropout(self, options, x):
        rate, stream = options.get("rate", self.model["dropout"]), self.stream
        self.stream += 1
        if rate == 0:
            return x
        sample = np.arange(x.value.shape[0])  # in the batch of the step
        element = np.arange(math.prod(x.value.shape[1:]))
        u = uniform(self.model["seed"], self.step, sample[:, None], stream, self.iteration, element[None])
        return t.mul(x, np.where(u >= rate, 1 / (1 - rate), 0.0).reshape(x.value.shape))

    def rope(self, options, x):
        return rope(x, options["heads"], options.get("theta", 10000.0), options.get("style", "half"))

    def split(self, options, x):
        width = x.value.shape[-1] // options["n"]
        return [t.take(x, np.arange(i * width, (i + 1) * width), x.value.ndim - 1) for i in range(options["n"])]

    def concat(self, options, *parts):
        if options.get("axis") == -1:
            return self.joined_columns(options, *parts)
        samples = self.tokens.shape[0]
        return t.join(*(t.add(part, np.zeros((samples,) + part.value.shape)) if part.value.ndim == 2 else part for part in parts))

    def joined_columns(self, options, a, b):
        heads, rows = options.get("heads", 1), math.prod(a.value.shape[:-1])
        parts = [t.reshape(x, (rows * heads, x.value.shape[-1] // heads)) for x in (a, b)]
        return t.reshape(t.join(*parts), a.value.shape[:-1] + (a.value.shape[-1] + b.value.shape[-1],))

    def pad(self, options, x):
        heads = options["heads"]
        zeros = self.tape.leaf(np.zeros(x.value.shape[:-1] + (options["width"] * heads - x.value.shape[-1],)))
        return self.joined_columns({"heads": heads}, x, zeros) if zeros.value.size else x

    def repeat_heads(self, options, x):
        return t.take(x, np.tile(np.arange(x.value.shape[-1]), options["heads"]), x.value.ndim - 1)

    def reshape(self, options, x):
        return t.reshape(x, (x.value.shape[0], options["n"], options["m"]))

    def slice(self, options, x):
        if options.get("axis") == -1:
            heads, width = options.get("heads", 1), x.value.shape[-1]
            columns = np.arange(width).reshape(heads, width // heads)[:, options["begin"]:options.get("end")]
            return t.take(x, columns.ravel(), x.value.ndim - 1)
        return t.take(x, np.arange(x.value.shape[1])[options["begin"]:options.get("end")], 1)

    def attention(self, options, q, k, v, table=None):
        stream, rate = 0x8000 + self.attentions, options.get("dropout", 0)
        self.attentions += 1
        drop, heads, keys = None, options["heads"], k.value.shape[1]
        if rate:
            row = np.arange(heads)[:, None, None] * q.value.shape[1] + np.arange(q.value.shape[1])[:, None]
            element = row * ((keys + 3) // 4 * 4) + np.arange(keys)
            sample = np.arange(q.value.shape[0])[:, None, None, None]
            u = uniform(self.model["seed"], self.step, sample, stream, self.iteration, element[None])
            drop = np.where(u >= rate, 1 / (1 - rate), 0.0)
        return attention(q, k, v, options, table, drop, self.documents if "documents" in options else None)

    # ---- sums ----

    def along(self, options, x):
        """With the axis that is summed last."""
        return x if options.get("axis", 1) == -1 else t.swap(x)

    def dropped_axis(self, x):
        return t.reshape(x, x.value.shape[:-1])

    def sum(self, options, x):
        return self.dropped_axis(t.row_sum(self.along(options, x)))

    def mean(self, options, x):
        return self.dropped_axis(mean(self.along(options, x)))

    def max(self, options, x):
        x = self.along(options, x)
        ranked = np.sort(x.value, -1)
        if self.guard and x.value.shape[-1] > 1 and (ranked[..., -1] - ranked[..., -2]).min() < NEAR:
            raise Unfit("two are the largest")
        return self.dropped_axis(t.take_along_rows(x, x.value.argmax(-1)[..., None]))

    def logsumexp(self, options, x):
        x = self.along(options, x)
        top = x.value.max(-1, keepdims=True)
        return self.dropped_axis(t.add(t.log(t.row_sum(t.exp(t.sub(x, top)))), top))

    def select(self, options, x):
        x = self.along(options, x)
        return self.dropped_axis(t.take(x, np.array([options["index"] % x.value.shape[-1]]), x.value.ndim - 1))

    def windows(self, x, w, near):
        """near: [positions, kernel], the positions that a window reads; after the last one stand zeros."""
        outside = self.tape.leaf(np.zeros((x.value.shape[0], 1, x.value.shape[2])))
        kernels = t.reshape(w, (w.value.shape[0], x.value.shape[2], near.shape[1]))
        return t.einsum("blkc,ock->blo", t.take(t.join(x, outside), near, 1), kernels)

    def conv1d(self, options, x, w):
        length, kernel = x.value.shape[1], w.value.shape[1] // x.value.shape[2]
        at = np.arange(length)[:, None] + np.arange(kernel) - options["padding"]
        return self.windows(x, w, np.where((at < 0) | (at >= length), length, at))

    def conv2d(self, options, x, w):
        length, kernel, height = x.value.shape[1], math.isqrt(w.value.shape[1] // x.value.shape[2]), options["height"]
        width, offset = length // height, np.arange(kernel) - options["padding"]
        row = (np.arange(length) // width)[:, None, None] + offset[:, None] + 0 * offset
        column = (np.arange(length) % width)[:, None, None] + 0 * offset[:, None] + offset
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        return self.windows(x, w, np.where(inside, row * width + column, length).reshape(length, -1))

    def cast(self, options, x):
        narrow = x.value.astype(np.float32)
        if options["type"] == "f16":
            narrow = narrow.astype(np.float16)
        elif options["type"] == "bf16":
            bits = narrow.view(np.uint32)
            narrow = ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(np.float32)
        return x.tape.add(narrow.astype(np.float64), (x, lambda g: g))

    def transpose(self, options, x):
        return t.swap(x)

    def einsum(self, options, *x):
        if len(x) == 1:
            assert options["formula"] == "bds->bsd"
            return t.swap(x[0])
        if options["formula"].endswith("->bs"):  # a letter that is summed stands in both operands
            return self.dropped_axis(t.row_sum(t.mul(*x)))
        return t.einsum(options["formula"], *x)

    def top_k_gate(self, options, scores):
        k, experts = options["k"], scores.value.shape[-1]
        affinity = t.sigmoid(scores) if options.get("affinity") == "sigmoid" else scores
        if "groups" in options:
            choice = within_groups(affinity.value, options["groups"], options["top_groups"])
        else:
            choice = scores.value
        routing = Routing(choice, k, options.get("capacity", 1.25))
        if options.get("affinity") == "sigmoid":
            probability = t.div(affinity, t.row_sum(affinity))
            chosen = t.take_along_rows(affinity, routing.choice)
            if options.get("normalize", True):
                chosen = t.div(chosen, t.row_sum(chosen))
        else:
            probability = softmax(scores)
            chosen = softmax(t.take_along_rows(scores, routing.choice)) if options.get("normalize", True) else \
                t.take_along_rows(probability, routing.choice)
        if options.get("balance", 0):
            share = routing.share[:, None, :] * (options["balance"] * experts / scores.value.shape[0] / scores.value.shape[1])
            self.extra.append(t.total(t.mul(probability, share)))
        return [t.stored(chosen) if self.recipe else chosen, routing]

    def dispatch(self, options, x, routing):
        return t.einsum("bsec,bsd->becd", routing.place.sum(2), x)

    def combine(self, options, y, weight, routing):
        places = t.einsum("bsj,bsjec->bsec", weight, routing.place)
        return t.einsum("bsec,becd->bsd", places, y)

    def cross_entropy(self, options, logits, labels):
        """The mean over the labels that are there; of none 0."""
        there = labels[..., None] >= 0
        probability = t.take_along_rows(softmax(logits), np.maximum(labels, 0)[..., None])
        if self.guard and probability.value.min(where=there, initial=1.0) < 1e-12:
            raise Unfit("a label has no probability")
        return t.mul(t.total(t.mul(t.log(probability), there * 1.0)), -1 / max(int(there.sum()), 1))


def letters(x):
    return "bsxy"[:x.value.ndim - 1]
