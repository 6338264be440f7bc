# SPDX-License-Identifier: Apache-2.0
"""Random statements that leave [B, S, width] and come back: other shapes, sums over positions and columns, options of attention.

A part of draw.Drawing. Their choices are drawn from random numbers of their own (`shapes`, `sums`, `scores`), so that the models
of a seed stay what they were but for the statements that are added.
"""

NONLINEAR = ("tanh", "sigmoid", "relu", "leaky_relu", "silu", "gelu", "softmax")
REDUCTIONS = ("sum", "mean", "max", "logsumexp")


class Shapes:
    def shaped_statement(self, scope, source, width):
        """The same elements in another shape and back, or columns of heads in other places."""
        draw, size, length = self.shapes, self.size(width), self.sizes["S"]
        own, name = self.name("s"), self.name("s")
        self.let(scope, [own], ["tanh", {}, source], [width])  # parts of a split have no other shape
        heads = draw.choice([h for h in range(1, size + 1) if size % h == 0])
        each, on_heads = size // heads, {"axis": -1, "heads": heads}
        forms = ["reshape", "pad", "repeat"] + (["swap"] * 2 if each > 1 else [])
        form = draw.choice(forms)
        if form == "reshape":
            rows = draw.choice([r for r in range(1, length * size + 1) if length * size % r == 0])
            inner = [draw.choice(NONLINEAR), {}, ["reshape", {"n": rows, "m": length * size // rows}, own]]
            y = ["reshape", {"n": length, "m": size}, inner]
        elif form == "swap":
            cut = draw.randint(1, each - 1)
            y = ["concat", on_heads, ["slice", dict(on_heads, begin=cut), own], ["slice", dict(on_heads, begin=0, end=cut), own]]
        elif form == "pad":
            begin = draw.randint(0, 2)
            wider = ["pad", {"width": each + begin + draw.randint(0, 2), "heads": heads}, own]
            y = ["slice", dict(on_heads, begin=begin, end=begin + each), wider]
        else:
            y = ["repeat_heads", {"heads": heads}, ["slice", {"axis": -1, "begin": size - each}, own]]
        scope.unread -= {source, own}
        self.let(scope, [name], ["add", {}, source, y], [width])

    def summed_statement(self, scope, source, width):
        """What is summed over positions or columns, or mixed over positions, goes back to all of them."""
        draw, size, length = self.sums, self.size(width), self.sizes["S"]
        own, name = self.name("s"), self.name("s")
        self.let(scope, [own], ["tanh", {}, source], [width])
        form = draw.choice(("columns", "positions", "one position", "one column", "mixed", "products", "pairs", "cast", "windows"))
        if form == "mixed":
            inner = draw.randint(1, 7)
            y = ["matmul", {}, ["transpose", {}, own], self.parameter(scope, ["S", inner], "matrix")]
            y = ["matmul", {"transpose": True}, [draw.choice(NONLINEAR), {}, y], self.parameter(scope, ["S", inner], "matrix")]
            y = ["transpose", {}, y] if draw.random() < 0.5 else ["einsum", {"formula": "bds->bsd"}, y]
        elif form == "products":
            letters = draw.choice(("df", "fd"))
            y = ["einsum", {"formula": "bsd,%s->bsf" % letters}, own, self.parameter(scope, [width, width], "matrix")]
            kind, sizes = draw.choice((("d", [width]), ("sd", ["S", width])))
            y = ["einsum", {"formula": "bsd,%s->bsd" % kind}, y, self.parameter(scope, sizes, "vector")]
        elif form == "windows":
            y = self.convolved(scope, own, size, length)
        elif form == "cast":
            y = ["mul", {}, ["cast", {"type": draw.choice(("bf16", "f16", "f32"))}, own], ["neg", {}, own]]
        elif form == "pairs":
            y = self.to_columns(["einsum", {"formula": "bsd,bsd->bs"}, own, ["neg", {}, own]], size, length)
        elif form in ("columns", "one column"):
            z = [draw.choice(REDUCTIONS), {"axis": -1}, own] if form == "columns" else ["select", {"index": draw.randrange(size), "axis": -1}, own]
            y = self.to_columns(z, size, length)
        else:
            z = [draw.choice(REDUCTIONS), {}, own] if form == "positions" else ["select", {"index": draw.randrange(-length, length)}, own]
            z = ["reshape", {"n": 1, "m": size}, [draw.choice(NONLINEAR), {}, z] if draw.random() < 0.5 else z]
            y = ["reshape", {"n": length, "m": size}, ["repeat_heads", {"heads": length}, z]]
        scope.unread -= {source, own}
        self.let(scope, [name], ["add", {}, source, y], [width])

    def convolved(self, scope, x, size, length):
        """As many positions as before: kernels of an odd width, in one dimension or two."""
        draw = self.sums
        height = draw.choice([h for h in range(1, length + 1) if length % h == 0])
        two = draw.random() < 0.5
        kernel = draw.choice([k for k in (1, 3, 5) if k <= (min(height, length // height) if two else length) + k // 2 * 2 and (k == 1 or length > 2)])
        options = {"padding": kernel // 2, **({"height": height} if two else {})}
        weight = self.parameter(scope, [size, size * kernel ** (2 if two else 1)], "matrix")
        return ["conv2d" if two else "conv1d", options, x, weight]

    def to_columns(self, x, size, length):
        """[B, S] -> [B, S, size], one number in all columns."""
        return ["repeat_heads", {"heads": size}, ["reshape", {"n": length, "m": 1}, x]]

    def scored_attention(self, scope, names, heads, kv_heads, size, options):
        """Scores that are capped, biased or hidden by distance, probabilities that are dropped, keys of another length."""
        draw, length = self.scores, self.sizes["S"]
        q, k, v = names
        form = draw.choice(("window", "softcap", "alibi", "relative_bias", "cross", "none"))
        tables = []
        if form == "window":
            options["window"] = draw.randint(1, length)
        elif form == "softcap":
            options["softcap"] = draw.choice((0.5, 2.0, 10.0))
        elif form == "alibi":
            options["alibi"] = True
        elif form == "relative_bias":
            tables = [self.parameter(scope, [draw.choice((4, 8, 16)), heads], "vector")]
            options["max_distance"] = draw.choice((9, 16, 128))
        elif form == "cross":
            options.update(cross=True, causal=False)
            begin, more = draw.randint(0, length - 1), draw.randint(0, 3)
            if more:
                k, v = (["concat", {}, ["tanh", {}, x], self.parameter(scope, [more, kv_heads * size], "vector")] for x in (k, v))
            else:
                k, v = (["slice", {"begin": begin}, ["tanh", {}, x]] for x in (k, v))
        if form == "none" or draw.random() < 0.3:
            options["dropout"] = draw.choice((0.1, 0.3))
        scope.unread -= set(names)
        out = self.width()
        self.keep_to_documents(options)
        self.let(scope, [self.name("a")], self.product(scope, ["attention", options, q, k, v] + tables, heads * size, out), [out])

    def keep_to_documents(self, options):
        if "pattern" not in options and "cross" not in options and self.packed.random() < 0.15:
            options["documents"] = True
