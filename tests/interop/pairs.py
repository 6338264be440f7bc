#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zplan data pairs: what every sample must be, found again in the texts; shares of what is drawn; the same bytes from the same seed; BERT with both losses
trained on the arrays, on one rank and on data 2 x pipeline 2; what is refused.

Pairs without masks are the same pairs. Masked by the trainer, two passes over them are the arrays that tests/torch/masks.py makes, to the last bit of the losses and of
the weights; half of these steps, gone on with on data 2 x pipeline 2, are those within 1e-12; `zplan eval` masks each sample once.
Whole words likewise: letters continue words, by a vocabulary made here."""
import array
import json
import os
import random
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), name) for name in ("support", "torch", "diff")]
import harness  # noqa: E402
import images  # noqa: E402
import masks  # noqa: E402
from squad import read_array  # noqa: E402

ARRAYS = ("tokens", "types", "labels", "lengths", "random_next")
LENGTH, CLS, SEP, MASK, VOCABULARY = 48, 256, 257, 258, 259
BATCH, STEPS, HALF, RATE, MASK_SEED = 48, 4, 2, 0.15, 6
LETTERS = frozenset(b"abcde")  # which continue words
LAYOUTS = {"d2p2": {"plan.data": 2, "pipeline": 2, "zero": 1}}


def texts(rng):
    """Documents of sentences; every sentence begins with its number, so that it stands in one place alone."""
    number, documents = 0, []
    for _ in range(60):
        sentences = []
        for _ in range(rng.randrange(1, 12)):
            sentences.append("%d %s" % (number, "".join(rng.choice("abcdeé ") for _ in range(rng.randrange(3, 30))).strip() or "x"))
            number += 1
        documents.append(sentences)
    return documents


def write_texts(folder, documents):
    """Two files; blank lines and spaces that count for nothing."""
    paths = []
    for name, part in (("one.txt", documents[:25]), ("two.txt", documents[25:])):
        paths.append(os.path.join(folder, name))
        with open(paths[-1], "wb") as file:
            file.write(b"\n \t\n\n".join(b"\r\n".join(b"  " + sentence.encode() for sentence in document) for document in part))
    return paths


def make(folder, name, paths, *words):
    target = os.path.join(folder, name)
    outcome = harness.zplan("data", "pairs", *paths, "-o", target, "--length", LENGTH, *words)
    return outcome, {a: read_array(os.path.join(target, a + ".npy")) for a in ARRAYS} if outcome.status == 0 else {}


def parts(row):
    """(A, B, places of labels) of a sample without its masks. A text where the sample is none."""
    length = row["lengths"][0]
    tokens = [label if label >= 0 else token for token, label in zip(row["tokens"], row["labels"])]
    seps = [i for i in range(length) if tokens[i] == SEP]
    masked = [i for i, label in enumerate(row["labels"]) if label >= 0]
    if tokens[0] != CLS or len(seps) != 2 or seps[1] != length - 1 or seps[0] < 2 or seps[1] < seps[0] + 2:
        return "not [CLS] A [SEP] B [SEP]"
    if row["types"] != [0] * (seps[0] + 1) + [1] * (length - seps[0] - 1) + [0] * (LENGTH - length):
        return "other types"
    if any(tokens[length:]) or len(masked) != max(1, int(0.15 * length + 0.5)):
        return "%d of %d are masked" % (len(masked), length)
    return bytes(tokens[1:seps[0]]), bytes(tokens[seps[0] + 1:seps[1]]), masked


def place(stretches, part):
    """[(document, begin)] of all places where the part stands."""
    return [(d, m.start()) for d, text in enumerate(stretches) for m in re.finditer(b"(?=%s)" % re.escape(part), text)]


def check_samples(tally, title, documents, arrays):
    stretches = ["".join(document).encode() for document in documents]
    kinds, bad = {"mask": 0, "same": 0, "other": 0}, []
    for i in range(len(arrays["lengths"])):
        row = {name: arrays[name][i] for name in ARRAYS}
        found = parts(row)
        if isinstance(found, str):
            bad.append((i, found))
            continue
        a, b, masked = found
        at = [(x, y) for x in place(stretches, a) for y in place(stretches, b)]
        if row["random_next"][0]:
            good = any(x[0] != y[0] for x, y in at)
        else:  # what both lost to the length may lie between
            good = any(x[0] == y[0] and x[1] + len(a) <= y[1] for x, y in at)
            whole = len(a) + len(b) + 3 < LENGTH
            good = good and (not whole or any(x[0] == y[0] and x[1] + len(a) == y[1] for x, y in at))
        if not good:
            bad.append((i, row["random_next"], a, b))
        for k in masked:
            kinds["mask" if row["tokens"][k] == MASK else "same" if row["tokens"][k] == row["labels"][k] else "other"] += 1
    tally.check("%s: samples" % title, not bad, "%d of %d: %s" % (len(bad), len(arrays["lengths"]), bad[:2]))
    return kinds


def write_model(folder):
    """examples/bert_pretraining.dz, small."""
    with open(os.path.join(harness.ROOT, "examples", "bert_pretraining.dz"), encoding="utf-8") as file:
        text = file.read()
    text = text[:text.index("cluster")].replace("V = 30522, S = 512, d = 768, layers = 12, heads = 12", "V = %d, S = %d, d = 16, layers = 3, heads = 2" % (VOCABULARY, LENGTH))
    text += """cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 4, memory = 8GiB) }
train { model = bert  data = arrays("pairs")  batch = %d  steps = %d  precision = "fp64"  seed = 1  optimizer = adamw(lr = 1e-3)  log { every = 1 } }
""" % (BATCH, STEPS)
    with open(os.path.join(folder, "bert.dz"), "w", encoding="utf-8") as file:
        file.write(text)


def train(folder, name, data, steps=STEPS, layout="one", resume=False):
    images.LAYOUTS.update(LAYOUTS)
    return images.train(folder, name, data, steps, layout=layout, resume=resume, model=os.path.join(folder, "bert.dz"))


def masked_by_hand(folder, name, arrays, order, continues=()):
    """Arrays of the samples that stand at these places, masked as the first samples of a run."""
    rows = {array: [arrays[array][at] for at in order] for array in ARRAYS}
    for n, (tokens, labels) in enumerate(zip(rows["tokens"], rows["labels"])):
        places = [i for i, label in enumerate(labels) if label >= 0]
        rows["tokens"][n], found = masks.masked(tokens, n, VOCABULARY, MASK, RATE, MASK_SEED, places, continues)
        rows["labels"][n] = [found.get(i, -1) for i in range(LENGTH)]
    os.makedirs(os.path.join(folder, name))
    for which, values in rows.items():
        flat = array.array("i", [value for row in values for value in row])
        width = len(flat) // len(order)
        images.write_npy(os.path.join(folder, name, which + ".npy"), "<i4", (len(order),) + (width,) * (width > 1), flat.tobytes())
    return rows


def check_unmasked(tally, arrays, masked):
    """The pairs of before, and labels wherever a token may be masked."""
    pairs = [[label if label >= 0 else token for token, label in zip(*row)] for row in zip(masked["tokens"], masked["labels"])]
    tally.check("without masks: the same pairs", arrays["tokens"] == pairs and all(arrays[name] == masked[name] for name in ("types", "lengths", "random_next")))
    wanted = [[-1 if i >= length or token in (CLS, SEP) else token for i, token in enumerate(row)] for row, (length,) in zip(pairs, arrays["lengths"])]
    tally.check("without masks: labels", arrays["labels"] == wanted)


def check_masked_batches(tally, folder, arrays):
    """What the trainer masks is what is masked by hand, twice over the data."""
    n, data = len(arrays["tokens"]), 'masked(arrays("%s", order = "shuffled", seed = 4), token = %d, seed = %d)' % (os.path.join(folder, "bare"), MASK, MASK_SEED)
    order = [masks.permuted(4, k // n, n, k % n) for k in range(BATCH * STEPS)]
    rows = masked_by_hand(folder, "by-hand", arrays, order)
    again = [(rows["labels"][k], rows["labels"][order.index(order[k])]) for k in range(n, len(order))]
    tally.check("two passes", 2 * n < len(order) and all(one != two for one, two in again), "%d samples" % n)
    share = sum(label >= 0 for row in rows["labels"] for label in row) / sum(label >= 0 for k in order for label in arrays["labels"][k])
    tally.check("15 %", abs(share - RATE) < 0.006, "%.4f" % share)
    whole, steps, _ = train(folder, "whole", data)
    hand, same, _ = train(folder, "hand", 'arrays("%s")' % os.path.join(folder, "by-hand"))
    if not tally.check("masked arrays train", whole.status == hand.status == 0 and len(steps) == STEPS, whole.tail() + hand.tail()):
        return None
    tally.check("batches are those of their definition", all([s[name] for s in steps] == [s[name] for s in same] for name in ("loss", "losses")), "%s and %s" % (steps, same))
    tally.check("weights to the last byte", harness.same_bytes(*(images.model_of(folder, name, STEPS) for name in ("whole", "hand"))))
    tally.check("two losses are summed", all(set(s["losses"]) == {"masked_loss", "next_loss"} and abs(sum(s["losses"].values()) - s["loss"]) < 1e-6 for s in steps), str(steps))
    first, begin, _ = train(folder, "half", data, HALF)
    second, rest, _ = train(folder, "half", data, layout="d2p2", resume=True)
    if tally.check("another layout goes on", first.status == second.status == 0, first.tail() + second.tail()):
        error = max(harness.number_error(a["losses"][name], b["losses"][name]) for a, b in zip(begin + rest, steps) for name in b["losses"])
        tally.check("its losses", len(begin + rest) == STEPS and error < 1e-12, "%.1e" % error)
    return whole


def check_words(tally, folder, arrays):
    """Letters continue words, as if they were pieces: two steps are those of what is masked by hand."""
    with open(os.path.join(folder, "letters.txt"), "w", encoding="utf-8") as file:
        file.write("".join("##x\n" if token in LETTERS else "x\n" for token in range(VOCABULARY)))
    order = [k % len(arrays["tokens"]) for k in range(BATCH * HALF)]
    rows, may = masked_by_hand(folder, "words-by-hand", arrays, order, LETTERS), [arrays["labels"][at] for at in order]
    parted = [(k, i) for k, labels in enumerate(rows["labels"]) for i in range(1, LENGTH)
              if may[k][i] in LETTERS and may[k][i - 1] >= 0 and (labels[i] < 0) != (labels[i - 1] < 0)]
    share = sum(label >= 0 for row in rows["labels"] for label in row) / sum(label >= 0 for row in may for label in row)
    tally.check("whole words, 15 %", not parted and abs(share - RATE) < 0.006, "%s, %.4f" % (parted[:3], share))
    data = 'masked(arrays("%s"), token = %d, seed = %d, words = "%s")' % (os.path.join(folder, "bare"), MASK, MASK_SEED, os.path.relpath(os.path.join(folder, "letters.txt")))
    words, steps, _ = train(folder, "words", data, HALF)
    hand, same, _ = train(folder, "words-hand", 'arrays("%s")' % os.path.join(folder, "words-by-hand"), HALF)
    if tally.check("whole words train", words.status == hand.status == 0, words.tail() + hand.tail()):
        tally.check("their batches are those of their definition", [s["losses"] for s in steps] == [s["losses"] for s in same], "%s and %s" % (steps, same))
    other, _, _ = train(folder, "words", data.replace(", words", ", rate = 15%, words").replace("letters.txt", "absent.txt"), STEPS)
    tally.check("no vocabulary", other.status == 1 and "Z0801" in other.err and "absent.txt" in other.err, other.tail())


def check_eval(tally, folder, arrays):
    """Each sample once, in order. The trainer that masks whole words, and another with the same weights that does not. The model's path to the vocabulary leads nowhere
    from another folder: the checkpoint tells where it was."""
    masked_by_hand(folder, "eval-data", arrays, range(len(arrays["tokens"])), LETTERS)
    deep = os.path.join(folder, *["deep"] * (os.getcwd().count(os.sep) + 1))
    os.makedirs(deep)
    got = [harness.zplan("eval", harness.step_folder(os.path.join(folder, name), HALF), "--data", os.path.join(folder, data), "--json", "-o", os.path.join(folder, "eval-" + name), cwd=deep)
           for name, data in (("words", "bare"), ("words-hand", "eval-data"))]
    if tally.check("eval", all(outcome.status == 0 for outcome in got), got[0].tail() + got[1].tail()):
        masked, by_hand = (json.loads(outcome.out) for outcome in got)
        tally.check("eval masks", masked == by_hand and masked["samples"] == len(arrays["tokens"]), "%s and %s" % (masked, by_hand))


def check_wordpiece(tally, folder, paths):
    shutil.copy(os.path.join(HERE, "tokenizers", "bert_vocab.txt"), os.path.join(folder, "vocab.txt"))
    outcome, arrays = make(folder, "pieces", paths, "--tokenizer", os.path.join(folder, "vocab.txt"))
    tally.check("WordPiece", outcome.status == 0 and {row[0] for row in arrays["tokens"]} == {2} and any(4 in row for row in arrays["tokens"]), outcome.tail())


def check_refusals(tally, folder, paths):
    def refused(title, status, word, *words):
        outcome = harness.zplan("data", "pairs", *words, "-o", os.path.join(folder, "none"))
        tally.check(title, outcome.status == status and word in outcome.err and not os.path.exists(os.path.join(folder, "none")), outcome.err)

    lone = os.path.join(folder, "lone.txt")
    with open(lone, "w", encoding="utf-8") as file:
        file.write("A sentence.\nAnother one.\n")
    with open(os.path.join(folder, "few.txt"), "w", encoding="utf-8") as file:
        file.write("[UNK]\n[CLS]\n[SEP]\n")
    refused("one document", 1, "Z0804", lone, "--length", 32)
    empty = os.path.join(folder, "empty.txt")
    with open(empty, "w", encoding="utf-8"):
        pass
    refused("no document", 1, "there is no sentence", empty, "--length", 32)
    refused("no file", 1, "Z0801", os.path.join(folder, "absent.txt"), "--length", 32)
    refused("no mask", 1, "no token to mask with", *paths, "--length", 32, "--tokenizer", os.path.join(folder, "few.txt"))
    refused("too short", 2, "--length is 8 to", *paths, "--length", 7)
    refused("no length", 2, "usage", *paths)
    refused("a stride", 2, "--stride", *paths, "--length", 32, "--stride", 4)
    outcome = harness.zplan("data", *paths, "-o", os.path.join(folder, "none"), "--copies", 2)
    tally.check("copies of token files", outcome.status == 2 and "data pairs" in outcome.err, outcome.err)


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally, rng = harness.Tally(), random.Random(8)
    with harness.Scratch() as folder:
        documents = texts(rng)
        paths = write_texts(folder, documents)
        outcome, arrays = make(folder, "pairs", paths, "--copies", 8)
        if not tally.check("made", outcome.status == 0, outcome.tail()):
            return tally.finish()
        kinds = check_samples(tally, "eight copies", documents, arrays)
        labels, n = sum(kinds.values()), len(arrays["lengths"])
        drawn = sum(row[0] for row in arrays["random_next"])
        tally.check("what stands for masked tokens", abs(kinds["mask"] / labels - 0.8) < 0.02 and abs(kinds["same"] / labels - 0.1) < 0.02, str(kinds))
        tally.check("second parts", 0.5 < drawn / n < 0.75 and "%d with a second part that was drawn" % drawn in outcome.out, "%d of %d" % (drawn, n))
        _, once = make(folder, "once", paths)
        tally.check("the first copy", all(arrays[name][:len(once[name])] == once[name] for name in ARRAYS) and len(once["tokens"]) < n / 6)
        _, again = make(folder, "again", paths, "--seed", 1)
        tally.check("another seed", again["tokens"] != once["tokens"])
        check_wordpiece(tally, folder, paths)
        write_model(folder)
        _, few = make(folder, "few", paths[:1])
        _, bare = make(folder, "bare", paths[:1], "--unmasked")
        check_unmasked(tally, bare, few)
        if check_masked_batches(tally, folder, bare):
            check_words(tally, folder, bare)
            check_eval(tally, folder, bare)
        outcome, _, _ = train(folder, "twice", 'masked(arrays("%s"), token = %d)' % (os.path.join(folder, "few"), MASK), steps=1)
        tally.check("arrays that are masked already", outcome.status != 0 and "Z0803" in outcome.err and "--unmasked" in outcome.err, outcome.tail())
        check_refusals(tally, folder, paths)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
