#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixtures of sources and spans that are cut out of them, as a user meets them. The model is t5.dz.

- 4 steps on spans of a mixture, in f64, are 4 steps on the arrays that tests/torch/spans.py makes of the same files, to the last bit: it draws every
  sample from its definition;
- 2 steps and 2 more with --resume in another layout (tensor 2 x pipeline 2) are those within 1e-10, and the epochs of each source go on;
- the log counts the epochs of every source, exactly;
- `zplan eval` of a token file cuts spans out of it as the training did, equal to the last bit to the arrays of those samples;
- a run on a mixture is not resumed with other weights, or other spans.
"""
import array
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), name) for name in ("support", "torch")]
import harness  # noqa: E402
import images  # noqa: E402
import masks  # noqa: E402
import spans  # noqa: E402

MODEL = os.path.join(HERE, "t5.dz")
SOURCE, TARGET, BATCH, STEPS, HALF = 20, 12, 8, 4, 2
WORDS, END, EOS, SENTINEL = 55, 55, 57, 60  # ids of the files are below WORDS, but for what ends documents
RULE = {"rate": "0.25", "mean": "2", "sentinel": SENTINEL, "eos": EOS, "start": 0, "seed": 9}
WEIGHTS, SEED = ("0.5", "0.2", "0.3"), 5
LAYOUTS = {"one": {}, "t2p2": {"tensor": 2, "pipeline": 2}}
MIX = ('spans(mix(%s * tokens("%%s/a.bin", order = "shuffled", seed = %d), %s * lines("%%s/b.txt"), %s * documents("%%s/c.bin", end = %d)), rate = %%s, length = 2, '
       'eos = %d, seed = 9)' % (WEIGHTS[0], SEED, *WEIGHTS[1:], END, EOS))


def write_shard(path, ids):
    with open(path, "wb") as file:
        file.write(array.array("i", [20240520, 1, len(ids)] + [0] * 253).tobytes() + array.array("H", ids).tobytes())


def write_files(folder):
    """(tokens of a shard, lines of bytes below WORDS, documents), written as well. They are of 1 to 50 tokens."""
    shard = [(7 * i * i + 3 * i + i // 11) % WORDS for i in range(150)]
    lines = [bytes(11 + (5 * i + n) % (WORDS - 11) for i in range(1 + 7 * n % 30)) for n in range(9)]
    documents = [[(3 * i * i + n) % WORDS for i in range(1 + 17 * n % 50)] for n in range(7)]
    write_shard(os.path.join(folder, "a.bin"), shard)
    with open(os.path.join(folder, "b.txt"), "wb") as file:
        file.write(b"\n".join(lines) + b"\n")
    write_shard(os.path.join(folder, "c.bin"), sum(([*document, END] for document in documents), [END])[:-1])  # an empty one first, no end at the last
    return shard, lines, documents


def samples_of(shard, lines, documents, count):
    """What the first samples of the run are, its source of each, and how many windows each source has."""
    length = spans.longest(SOURCE, TARGET, RULE["rate"], RULE["mean"])
    windows = [shard[i * length:(i + 1) * length] for i in range((len(shard) - 1) // length)]
    pieces = [document[i:i + length] for document in documents for i in range(0, len(document), length)]
    sources = windows, [line[:length] for line in lines], pieces
    samples, turns = [], list(spans.turns(WEIGHTS, count))
    for number, (source, n) in enumerate(turns):
        place = n % len(sources[source])
        if source == 0:
            place = masks.permuted(SEED, n // len(windows), len(windows), place)
        samples.append(spans.corrupted(list(sources[source][place]), number, SOURCE, TARGET, **RULE))
    return samples, [source for source, _ in turns], [len(source) for source in sources]


def write_arrays(folder, samples):
    os.makedirs(folder)
    for name, width, rows in zip(("source", "target", "labels", "lengths"), (SOURCE, TARGET, TARGET, 0), zip(*samples)):
        flat = [value for row in rows for value in (row if width else [row])]
        images.write_npy(os.path.join(folder, name + ".npy"), "<i4", (len(rows),) + (width,) * (width > 0), array.array("i", flat).tobytes())
    return folder


def train(folder, name, data, steps, layout="one", resume=False):
    images.LAYOUTS.update(LAYOUTS)
    return images.train(folder, name, data, steps, layout=layout, resume=resume, model=MODEL, more=("--set", "log.every=1"))


def check_samples(tally, folder, data, samples, sources, windows):
    whole, steps, records = train(folder, "whole", data, STEPS)
    arrays, same, _ = train(folder, "arrays", 'arrays("%s")' % write_arrays(os.path.join(folder, "arrays-data"), samples), STEPS)
    if not tally.check("spans of a mixture train", whole.status == arrays.status == 0, whole.tail() + arrays.tail()):
        return None
    tally.check("samples are those of their definition", images.losses_of(steps) == images.losses_of(same), "%s and %s" % (images.losses_of(steps), images.losses_of(same)))
    tally.check("parameters to the last byte", harness.same_bytes(*(images.model_of(folder, name, STEPS) for name in ("whole", "arrays"))))
    for step in range(1, STEPS + 1):
        came = [sources[:BATCH * step].count(i) for i in range(3)]
        wanted = [count / n for count, n in zip(came, windows)]
        tally.check("epochs of step %d" % step, all(abs(a - b) < 1e-8 for a, b in zip(steps[step - 1]["epochs"], wanted)), "%s, not %s" % (steps[step - 1]["epochs"], wanted))
    end = [record for record in records if record.get("event") == "end"][0]
    tally.check("samples of each source", end["source_samples"] == came, "%s" % end)
    return steps


def check_resume(tally, folder, data, steps):
    first, begin, _ = train(folder, "half", data, HALF)
    second, rest, _ = train(folder, "half", data, STEPS, layout="t2p2", resume=True)
    if not tally.check("another layout goes on", first.status == second.status == 0, first.tail() + second.tail()):
        return
    error = max(abs(a - b) / abs(b) for a, b in zip(images.losses_of(begin + rest), images.losses_of(steps)))
    tally.check("losses of another layout", error <= 1e-10, "%.2e" % error)
    tally.check("epochs go on", [step["epochs"] for step in begin + rest] == [step["epochs"] for step in steps])


def check_eval(tally, folder, shard):
    """Every window of the file once, in order: window n is cut as sample n."""
    length = spans.longest(SOURCE, TARGET, RULE["rate"], RULE["mean"])
    made = [spans.corrupted(shard[n * length:(n + 1) * length], n, SOURCE, TARGET, **RULE) for n in range((len(shard) - 1) // length)]
    places = os.path.join(folder, "a.bin"), write_arrays(os.path.join(folder, "eval-data"), made)
    got = [harness.zplan("eval", harness.step_folder(os.path.join(folder, "whole"), STEPS), "--data", place, "--json", "-o", os.path.join(folder, "eval")) for place in places]
    if tally.check("eval", all(outcome.status == 0 for outcome in got), got[0].tail() + got[1].tail()):
        file, arrays = (json.loads(outcome.out) for outcome in got)
        tally.check("eval of a file is that of its spans", file == arrays and file["samples"] == len(made), "%s and %s" % (file, arrays))


def check_changes(tally, folder, files):
    """Only the program is another; nothing is trained."""
    changes = {"other weights": (MIX % (files, files, files, "0.25")).replace("0.2 *", "0.1 *"), "other spans": MIX % (files, files, files, "0.26")}
    for name, data in changes.items():
        outcome, _, _ = train(folder, "half", data, STEPS + 1, resume=True)
        tally.check("%s are refused" % name, outcome.status == images.EXIT_REFUSED and "Z0814" in outcome.err, outcome.tail())


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        shard, lines, documents = write_files(folder)
        data = MIX % (folder, folder, folder, RULE["rate"])
        steps = check_samples(tally, folder, data, *samples_of(shard, lines, documents, BATCH * STEPS))
        if steps:
            check_resume(tally, folder, data, steps)
            check_eval(tally, folder, shard)
            check_changes(tally, folder, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
