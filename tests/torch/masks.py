# SPDX-License-Identifier: Apache-2.0
"""Which tokens masked data mask, and which probabilities attention drops, written once more from what runtime/README.md, docs/guide/data.md and
models.md say: Philox4x32-10 (Salmon et al. 2011) and, for tokens, a Feistel network over it."""
import math

WORD = 0xffffffff
KEY = 0x6d61736b65640000
MASK, RANDOM = 0.8, 0.9  # shares: below the first the mask token, below the second a random one, else what was there


def philox(counter, key):
    low, high = key & WORD, key >> 32
    a, b, c, d = counter
    for _ in range(10):
        left, right = 0xd2511f53 * a, 0xcd9e8d57 * c
        a, b, c, d = (right >> 32) ^ b ^ low, right & WORD, (left >> 32) ^ d ^ high, left & WORD
        low, high = (low + 0x9e3779b9) & WORD, (high + 0xbb67ae85) & WORD
    return a, b, c, d


def permuted(key, epoch, size, index):
    """Four rounds over the smallest even number of bits that holds `size`, walked until the result is below it."""
    bits = next(b for b in range(1, 32) if 4 ** b >= size or b == 31)
    mask = 2 ** bits - 1
    while True:
        left, right = index >> bits, index & mask
        for number in range(4):
            left, right = right, left ^ (philox((right, number, epoch & WORD, epoch >> 32), key)[0] & mask)
        index = left << bits | right
        if index < size:
            return index


def masked(tokens, sample, vocabulary, token, rate, seed, places=None, continues=()):
    """(tokens of a sample with masks, {position: label}). places: where tokens may be masked, in order; by default everywhere. continues: tokens that are masked
    with what stands before them, where that may be masked."""
    changed, labels, key = list(tokens), {}, seed ^ KEY
    places = range(len(tokens)) if places is None else places
    count = min(max(1, math.floor(rate * len(places) + 0.5)), len(places))
    words = []
    for at in places:
        if words and words[-1][-1] == at - 1 and tokens[at] in continues:
            words[-1].append(at)
        else:
            words.append([at])
    drawn = [words[permuted(key, sample, len(words), i)] for i in range(len(words))]
    chosen = []
    for word in drawn:
        chosen += word if len(chosen) + len(word) <= count else []
    for at in chosen or (drawn or [[]])[0]:
        labels[at] = tokens[at]
        draw, other, _, _ = philox((at, sample & WORD, sample >> 32, 1), key)
        if draw < MASK * 2 ** 32:
            changed[at] = token
        elif draw < RANDOM * 2 ** 32:
            changed[at] = other * vocabulary >> 32
    return changed, labels


def dropped(sample, layer, heads, queries, keys, rate, seed, step, stream=0x8000):
    """[heads][queries][keys] factors of the probabilities of the first attention of a layer: 0, or 1 / (1 - rate) where a key is kept."""
    groups = (keys + 3) // 4
    return [[[(word >= rate * 2 ** 32) / (1 - rate) for group in range(groups)
              for word in philox(((head * queries + query) * groups + group, stream << 16 | layer, sample, step), seed)][:keys]
             for query in range(queries)] for head in range(heads)]
