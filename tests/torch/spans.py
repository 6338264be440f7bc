# SPDX-License-Identifier: Apache-2.0
"""Which spans T5's data cut out, and which source of a mixture a sample is of, written once more from what docs/guide/data.md and
runtime/README.md say; masks.py has the random numbers."""
import fractions
import math

import masks

CUT_OUT, LEFT = 0x7370616e73000000, 0x7370616e73000001


def nearest(number):
    return math.floor(number + fractions.Fraction(1, 2))


def counts(tokens, rate, mean):
    """(tokens that are cut out, in so many spans)"""
    cut = min(max(1, nearest(fractions.Fraction(rate) * tokens)), max(1, tokens - 1))
    return cut, max(1, min(nearest(cut / fractions.Fraction(mean)), tokens - cut, cut))


def longest(source, target, rate, mean):
    """The longest sample that has room in so many positions."""
    def fits(tokens):
        cut, spans = counts(tokens, rate, mean)
        return tokens - cut + spans + 1 <= source and cut + spans + 1 <= target
    return next(n for n in range(1, source + target) if not fits(n + 1))


def divided(key, sample, tokens, parts):
    """Lengths of `parts` parts of so many tokens, none of them empty."""
    places = sorted(masks.permuted(key, sample, tokens - 1, i) + 1 for i in range(parts - 1))
    return [end - begin for begin, end in zip([0] + places, places + [tokens])]


def corrupted(tokens, sample, source, target, rate, mean, sentinel, eos, start, seed):
    """(source, target, labels, length of the source), each as long as its positions."""
    cut, spans = counts(len(tokens), rate, mean)
    inputs, labels, rest = [], [], list(tokens)
    for i, (left, out) in enumerate(zip(divided(seed ^ LEFT, sample, len(tokens) - cut, spans), divided(seed ^ CUT_OUT, sample, cut, spans))):
        inputs += rest[:left] + [sentinel - i]
        labels += [sentinel - i] + rest[left:left + out]
        rest = rest[left + out:]
    inputs, labels = inputs + [eos], labels + [eos]
    assert not rest
    shifted = [start] + labels[:-1]
    return (inputs + [0] * (source - len(inputs)), shifted + [0] * (target - len(labels)), labels + [-1] * (target - len(labels)), len(inputs))


def turns(weights, samples):
    """(source, its sample) of the first samples of a run, drawn one after the other and not computed."""
    shares = [fractions.Fraction(w) / sum(map(fractions.Fraction, weights[i:])) for i, w in enumerate(weights)]
    seen, had = [0] * len(weights), [0] * len(weights)  # samples that came to a source's turn, and those that it took
    for _ in range(samples):
        for i, share in enumerate(shares):
            seen[i] += 1
            if nearest(seen[i] * share) > had[i]:
                had[i] += 1
                yield i, had[i] - 1
                break
