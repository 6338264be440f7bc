# SPDX-License-Identifier: Apache-2.0
"""Reverse-mode differentiation over NumPy arrays of f64, with few primitives: what can be said with them is.

    tape = Tape()
    x = tape.leaf(array)
    y = einsum("ij,jk->ik", x, w)
    tape.backward(loss)            # then x.grad

A node keeps, for every operand, a function from the node's gradient to the operand's. Layer norms, attention, routing and the
loss are compositions (interpret.py), so that no derivative but those of the primitives is written down here.

noise: a relative rounding error that every primitive adds to its result, for how much a model's gradients depend on rounding.
"""
import math

import numpy as np

erf = np.frompyfunc(math.erf, 1, 1)


class Node:
    __slots__ = ("tape", "value", "grad", "pulls")

    def __init__(self, tape, value, pulls=()):
        self.tape, self.value, self.grad, self.pulls = tape, value, None, pulls


class Tape:
    def __init__(self, noise=0.0, random=None):
        self.nodes, self.noise, self.random = [], noise, random

    def leaf(self, value):
        return self.add(np.asarray(value, dtype=np.float64))

    def add(self, value, *pulls):
        if self.noise and pulls:
            value = value * (1 + self.noise * self.random.uniform(-1, 1, np.shape(value)))
        node = Node(self, value, pulls)
        self.nodes.append(node)
        return node

    def backward(self, loss):
        """Gradients of `loss`, a scalar, in every node that it depends on; None in the others."""
        loss.grad = np.ones(())
        for node in reversed(self.nodes):
            if node.grad is None:
                continue
            for operand, pull in node.pulls:
                part = pull(node.grad)
                if self.noise:
                    part = part * (1 + self.noise * self.random.uniform(-1, 1, part.shape))
                operand.grad = part if operand.grad is None else operand.grad + part


def fit(grad, shape):
    """Sums over what was broadcast."""
    while grad.ndim > len(shape):
        grad = grad.sum(0)
    for axis, size in enumerate(shape):
        if size == 1 and grad.shape[axis] != 1:
            grad = grad.sum(axis, keepdims=True)
    return grad


# ---- two operands; the second one may be a number or an array that nothing flows into ----

def parts(a, b):
    tape = a.tape if isinstance(a, Node) else b.tape
    return tape, a.value if isinstance(a, Node) else np.asarray(a), b.value if isinstance(b, Node) else np.asarray(b)


def pulls(*pairs):
    """Those of operands that are nodes."""
    return [(operand, pull) for operand, pull in pairs if isinstance(operand, Node)]


def add(a, b):
    tape, x, y = parts(a, b)
    return tape.add(x + y, *pulls((a, lambda g: fit(g, x.shape)), (b, lambda g: fit(g, y.shape))))


def sub(a, b):
    tape, x, y = parts(a, b)
    return tape.add(x - y, *pulls((a, lambda g: fit(g, x.shape)), (b, lambda g: fit(-g, y.shape))))


def mul(a, b):
    tape, x, y = parts(a, b)
    return tape.add(x * y, *pulls((a, lambda g: fit(g * y, x.shape)), (b, lambda g: fit(g * x, y.shape))))


def div(a, b):
    tape, x, y = parts(a, b)
    return tape.add(x / y, *pulls((a, lambda g: fit(g / y, x.shape)), (b, lambda g: fit(-g * x / (y * y), y.shape))))


def einsum(formula, a, b):
    """No letter twice in an operand; a letter that is summed stands in both."""
    tape, x, y = parts(a, b)
    left, out = formula.split("->")
    left, right = left.split(",")
    return tape.add(np.einsum(formula, x, y),
                    *pulls((a, lambda g: np.einsum("%s,%s->%s" % (out, right, left), g, y)),
                           (b, lambda g: np.einsum("%s,%s->%s" % (out, left, right), g, x))))


# ---- products of operands of 8 bits ----

# Activations, weights, gradients of results: mantissa bits, least exponent, largest number; numbers that share a scale, across and along the sum.
E4M3, E5M2 = (3, -6, 448.0), (2, -14, 57344.0)
RECIPES = {"mixed_fp8": ((E4M3, None), (E4M3, None), (E5M2, None)), "mixed_mxfp8": ((E4M3, (1, 32)),) * 3,
           "mixed_fp8_block": ((E4M3, (1, 128)), (E4M3, (128, 128)), (E4M3, (1, 128)))}


BF16 = (7, -126)


def nearest(x, bits, least):
    """Numbers of as many mantissa bits, of least exponent; ties to even."""
    step = np.exp2(np.maximum(np.floor(np.log2(np.where(x == 0, 1, np.abs(x)))), least) - bits)
    return np.rint(x / step) * step


def stored(x):
    """As operands and results of products are kept: in bf16, and so are their gradients."""
    return x.tape.add(nearest(x.value, *BF16), (x, lambda g: nearest(g, *BF16)))


def through(x, how):
    """[n, k] in 8 bits times the least power of two that brings each block into the format; sums go along k. Of a batch, whatever its
    micro-batches: under another power of two a number of the format's normal range rounds alike."""
    ((bits, least, most), block), (rows, cols) = how, x.shape
    across, along = block or x.shape
    blocks = np.pad(x, ((0, -rows % across), (0, -cols % along)))
    blocks = blocks.reshape(len(blocks) // across, across, -1, along)
    largest = np.abs(blocks).max((1, 3), keepdims=True)
    scale = np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, most) / most)))
    rounded = np.clip(nearest(blocks / scale, bits, least), -most, most) * scale
    return rounded.reshape(rounded.shape[0] * across, -1)[:rows, :cols]


def narrow_product(x, w, turned, recipe):
    """x [..., k] times w [k, n], or [n, k] where it is turned."""
    value, weight, gradient = recipe
    flat, wide = x.value.reshape(-1, x.value.shape[-1]), w.value if turned else w.value.T  # [n, k]

    def of_x(g):
        return (through(g.reshape(-1, g.shape[-1]), gradient) @ through(wide.T, weight).T).reshape(x.value.shape)

    def of_w(g):
        grad = through(g.reshape(-1, g.shape[-1]).T, gradient) @ through(flat.T, value).T
        return grad if turned else grad.T
    y = (through(flat, value) @ through(wide, weight).T).reshape(x.value.shape[:-1] + (len(wide),))
    return x.tape.add(y, (x, of_x), (w, of_w))


def narrow_experts(x, w, turned, recipe):
    """x [samples, experts, slots, k] times w [experts, k, n], or [experts, n, k]. Every expert's operands have scales of their own: one for its
    rows in all samples, or blocks of one sample's."""
    value, weight, gradient = recipe
    wide = w.value if turned else w.value.swapaxes(1, 2)  # [experts, n, k]

    def rows(of, how):
        """An expert's, rounded along the columns."""
        return through(of.reshape(-1, of.shape[-1]), how).reshape(of.shape)

    def down(of, how):
        """[samples, slots, columns] rounded down the slots."""
        if how[1] is None:
            return rows(of, how)
        return np.stack([through(sample.T, how).T for sample in of])

    def each(formula, left, right):
        return np.stack([np.einsum(formula, left(e), right(e)) for e in range(len(wide))])

    def of_x(g):
        return each("bcn,nk->bck", lambda e: rows(g[:, e], gradient), lambda e: through(wide[e].T, weight).T).swapaxes(0, 1)

    def of_w(g):
        grad = each("bcn,bck->nk", lambda e: down(g[:, e], gradient), lambda e: down(x.value[:, e], value))
        return grad if turned else grad.swapaxes(1, 2)
    y = each("bck,nk->bcn", lambda e: rows(x.value[:, e], value), lambda e: through(wide[e], weight)).swapaxes(0, 1)
    return x.tape.add(y, (x, of_x), (w, of_w))


def join(a, b):
    """Along the second axis."""
    n = a.value.shape[1]
    return a.tape.add(np.concatenate((a.value, b.value), 1), (a, lambda g: g[:, :n]), (b, lambda g: g[:, n:]))


# ---- one operand ----

def unary(a, value, slope):
    return a.tape.add(value, (a, lambda g: g * slope))


def exp(a):
    y = np.exp(a.value)
    return unary(a, y, y)


def log(a):
    return unary(a, np.log(a.value), 1 / a.value)


def sqrt(a):
    y = np.sqrt(a.value)
    return unary(a, y, 0.5 / y)


def tanh(a):
    y = np.tanh(a.value)
    return unary(a, y, 1 - y * y)


def relu(a):
    return unary(a, np.maximum(a.value, 0), (a.value > 0).astype(np.float64))


def error_function(a):
    return unary(a, erf(a.value).astype(np.float64), 2 / math.sqrt(math.pi) * np.exp(-a.value * a.value))


def sigmoid(a):
    """With noise, backward is s (1 - s) of a rounded s, as trainers have it: near 1 that keeps few digits (kept/saturated_sigmoid.json)."""
    if not a.tape.noise:
        return div(1.0, add(exp(mul(a, -1.0)), 1.0))
    y = 1 / (1 + np.exp(-a.value))
    s = y * (1 + min(a.tape.noise, 2.0 ** -23) * a.tape.random.uniform(-1, 1, np.shape(y)))
    return unary(a, y, s * (1 - s))


def rounded(a, sizes):
    """With noise: off by roundings of numbers so large. Backward of attention makes its weights again, exp(score - log of the sum of
    exps), from a saved sum, as FlashAttention does (arXiv 2307.08691, algorithm 2): what that is rounded by, in f32 at least, they are off by."""
    if not a.tape.noise:
        return a
    factor = 1 + min(a.tape.noise, 2.0 ** -23) * sizes * a.tape.random.uniform(-1, 1, sizes.shape)
    return a.tape.add(a.value * factor, (a, lambda g: g * factor))


def total(a):
    return a.tape.add(a.value.sum(), (a, lambda g: np.broadcast_to(g, a.value.shape)))


def row_sum(a):
    """Over the last axis, which stays with size 1."""
    return a.tape.add(a.value.sum(-1, keepdims=True), (a, lambda g: np.broadcast_to(g, a.value.shape)))


def reshape(a, shape):
    return a.tape.add(a.value.reshape(shape), (a, lambda g: g.reshape(a.value.shape)))


def swap(a):
    """The last two axes."""
    return a.tape.add(a.value.swapaxes(-1, -2), (a, lambda g: g.swapaxes(-1, -2)))


def last_first(a):
    """[q, k, h] -> [h, q, k]"""
    return a.tape.add(a.value.transpose(2, 0, 1), (a, lambda g: g.transpose(1, 2, 0)))


def take(a, indices, axis):
    """numpy.take; indices of any shape."""
    def back(g):
        grad = np.zeros_like(a.value)
        at = [slice(None)] * a.value.ndim
        at[axis] = indices
        np.add.at(grad, tuple(at), g)
        return grad
    return a.tape.add(np.take(a.value, indices, axis), (a, back))


def take_along_rows(a, indices):
    """numpy.take_along_axis over the last axis; an index stands once in a row."""
    def back(g):
        grad = np.zeros_like(a.value)
        np.put_along_axis(grad, indices, g, -1)
        return grad
    return a.tape.add(np.take_along_axis(a.value, indices, -1), (a, back))
