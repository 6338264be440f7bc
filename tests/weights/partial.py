#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model that begins with a part of another's checkpoint: BERT's layers and embeddings under a new head.

    partial.py

`init = weights("DIR", drawn = [...], unread = [...])`: what both have comes byte for byte from the checkpoint, what is drawn is what the same model draws without one, on one rank and
on tensor 2 x pipeline 2. Without the two lists all that does not fit is told; a name that nothing has is refused.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

TORCH = os.path.join(harness.ROOT, "tests", "torch")
HEAD = ("transform", "head_norm", "head_bias")
DRAWN, UNREAD = ("span.*", "segment", "position"), ("transform.*", "head_norm.*", "head_bias")


def names(patterns):
    return "[%s]" % ", ".join('"%s"' % p for p in patterns)


def initial(folder, drawn=DRAWN, unread=UNREAD):
    lists = "".join(", %s = %s" % (key, names(patterns)) for key, patterns in (("drawn", drawn), ("unread", unread)) if patterns)
    return 'train.init=weights("%s"%s)' % (folder, lists)


def start(tally, title, source, place, *words):
    """The tensors of a run of no steps."""
    ranks = 4 if "tensor=2" in words else 1
    outcome = harness.zplan("run", source, "--ranks", ranks, "--steps", 0, "-o", place, *words, "--", "--checkpoint", place + "-ck")
    if not tally.check(title, outcome.status == 0, outcome.tail()):
        return {}
    return harness.read_safetensors(os.path.join(harness.step_folder(place + "-ck", 0), "model.safetensors"))


def spans(folder):
    """tests/torch/bert.dz with a head for spans, two segments and shorter samples."""
    with open(os.path.join(TORCH, "bert.dz"), encoding="utf-8") as file:
        text = file.read()
    head = text.index("  transform ="), text.index("}\n\ncluster")
    text = text[:head[0]] + ("  span        = linear(x, 2)\n  output loss = cross_entropy(select(span, 0, axis = -1), start, lengths = lengths)\n") + text[head[1]:]
    text = text.replace("  input labels: i32[B, S]\n", "  input types: i32[B, S]\n  input start: i32[B]\n")
    text = text.replace("param segment: [d]", "param segment: [2, d]").replace("+ segment", "+ embedding(types, segment)").replace("S = 32", "S = 24")
    text = text.replace('masked(lines("lines.txt"), token = 1, rate = 15%, seed = 3)', 'arrays("%s")' % os.path.join(TORCH, "squad"))
    path = os.path.join(folder, "spans.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        source, place = spans(folder), os.path.join(folder, "masked")
        masked = start(tally, "masked", os.path.join(TORCH, "bert.dz"), place)
        checkpoint = place + "-ck"
        fresh = start(tally, "drawn", source, os.path.join(folder, "fresh"), "--set", "seed=7")
        for title, words in (("one rank", ()), ("tensor 2 x pipeline 2", ("--set", "tensor=2", "--set", "pipeline=2"))):
            at = os.path.join(folder, "p%d" % len(words))
            got = start(tally, title, source, at, "--set", initial(checkpoint), "--set", "seed=7", *words)
            drawn = {"span.weight", "span.bias", "segment", "position"}
            tally.check("%s: names" % title, set(got) == set(fresh) and drawn < set(got))
            for name in got:
                tally.check("%s: %s" % (title, name), got[name] == (fresh if name in drawn else masked).get(name))
            tally.check("%s: the table is another" % title, got.get("word") != fresh.get("word"))
        for title, setting, words in (
                ("nothing said", initial(checkpoint, (), ()), ("Z0694", "missing: span.weight [2, 64]", "too much: transform.weight", "another shape: segment")),
                ("a head is left", initial(checkpoint, unread=HEAD[:1] + ("head_norm.*",)), ("Z0304", "no tensor of", "`transform`")),
                ("a bias is left", initial(checkpoint, unread=("transform.*", "head_norm.*")), ("Z0694", "too much: head_bias")),
                ("no such parameter", initial(checkpoint, drawn=DRAWN + ("spam.*",)), ("Z0304", "no parameter has a name like `spam.*`")),
                ("a parameter that both have", initial(checkpoint, unread=UNREAD + ("word",)), ("Z0304", "like `word`"))):
            outcome = harness.zplan("run", source, "--ranks", 1, "--steps", 0, "-o", os.path.join(folder, "bad"), "--set", setting)
            tally.check(title, outcome.status == 1 and all(w in outcome.err for w in words) and not os.path.exists(os.path.join(folder, "bad")), outcome.err)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
