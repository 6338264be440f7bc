#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zplan data jsonl and zplan data table: drawn rows against the same tokens and arrays made here with Python's json and csv, bytes and with a tokenizer; a
trainer on a table; packed documents that do not see each other train as documents that are samples; every refusal names its line and leaves nothing behind; nor does an interruption.
"""
import csv
import io
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import squad  # noqa: E402

WORDS = ("der", "Käse", "naïve", "日本", "runs", "a \"quoted\" word", "x,y", "two\nlines", "🧀", "tab\there", "", "  spaces  ")
CLASSES = ("zebra", "Ärger", "apple", "b c")
LENGTH = 24
MODEL = """use std.nn
use std.hw
model m(n = 3, hidden = 8, classes = 4) {
  input x: f32[B, n]
  input kind: i32[B]
  hidden = tanh(sample_linear(x, hidden))
  output loss = cross_entropy(sample_linear(hidden, classes), kind)
}
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 2, memory = 1GiB) }
train { model = m  data = arrays("made")  batch = 8  steps = 3  optimizer = sgd(lr = 0.1) }
"""
# A document is a sample, told by its length, or one of several, told by its number.
PAIR = """use std.nn
use std.hw
model m(V = 128, S = %d, d = 12) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  input %s
  param wte: [V, d] ~ normal(std = 0.5)
  param wpe: [S, d] ~ normal(std = 0.5)
  x = embedding(tokens, wte) + %s
  repeat h in 0..2 {
    q, k, v = split(linear(x, 3 * d, std = 0.3), 3)
    x = x + linear(attention(rope(q, heads = 2), rope(k, heads = 2), v, heads = 2, window = 9%s), d, std = 0.3)
  }
  output loss = cross_entropy(matmul(x, transpose(wte)), labels)
}
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 2, memory = 1GiB) }
train { model = m  data = arrays("%s")  batch = %d  steps = 3  precision = "fp64"  optimizer = adamw(lr = 1e-2) }
"""
ALONE, TOGETHER = ("lengths: i32[B]", "wpe", ", lengths = lengths"), ("documents: i32[B, S]\n  input positions: i32[B, S]", "embedding(positions, wpe)", ", documents = documents")


def text_of(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.choice((0, 1, 2, 5, 9, 30))))


def rows_of(rng, count):
    return [{"text": text_of(rng), "a": rng.randrange(-5, 5), "b": rng.choice((1e-3, -2.5, 1e20, 0.1)), "nested": {"c": rng.random() * 1e-4}, "flag": rng.random() < 0.5,
             "label": rng.randrange(-1, 4), "kind": rng.choice(CLASSES)} for _ in range(count)]


def f4(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def read_numbers(path):
    with open(path, "rb") as file:
        content = file.read()
    end = 10 + int.from_bytes(content[8:10], "little")
    assert b"'<f4'" in content[:end]
    return list(struct.unpack("<%df" % ((len(content) - end) // 4), content[end:]))


def read_ids(folder, name):
    return squad.read_array(os.path.join(folder, name + ".npy"))


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def json_file(folder, rows, name="rows.jsonl"):
    return write(os.path.join(folder, name), "\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=i % 2 == 0) for i, row in enumerate(rows)))


def table_file(folder, rows, name):
    out = io.StringIO()
    flat = [{**{k: v for k, v in row.items() if k != "nested"}, "c": row["nested"]["c"], "flag": int(row["flag"])} for row in rows]
    writer = csv.DictWriter(out, sorted(flat[0]), delimiter="\t" if name.endswith(".tsv") else ",", lineterminator="\r\n" if "dos" in name else "\n")
    writer.writeheader()
    writer.writerows(flat)
    return write(os.path.join(folder, name), out.getvalue())


# ---- texts ----

def shard_of(path):
    with open(path, "rb") as file:
        content = file.read()
    return list(struct.unpack("<%dH" % ((len(content) - 1024) // 2), content[1024:]))


def padded(samples, filler):
    return [sample + [filler] * (LENGTH - len(sample)) for sample in samples]


def packed(texts, apart=False):
    """Samples of (token, label, document, position), by the rule: whole texts that have room, in order; longer ones are cut into samples first."""
    samples, now = [], []
    for text in texts:
        if len(now) + len(text) > LENGTH:
            samples, now = samples + [now] * bool(now), []
        if now and not apart:
            now[-1] = (now[-1][0], text[0]) + now[-1][2:]
        begun = now[-1][2] + 1 if now else 0
        now = now + [(token, label, begun if i < LENGTH - len(now) else 0, i % LENGTH) for i, (token, label) in enumerate(zip(text, text[1:] + [-1]))]
        while len(now) >= LENGTH:
            samples, now = samples + [now[:LENGTH]], now[LENGTH:]
    return samples + [now] * bool(now)


def check_texts(tally, folder, rows, title, encode, end, *options):
    source, out = json_file(folder, rows), os.path.join(folder, title.replace(" ", "_"))
    texts = [encode(row["text"]) + end for row in rows if row["text"]]
    outcome = harness.zplan("data", "jsonl", source, "-o", out + ".bin", "--field", "text", *options)
    tally.check("%s: shard" % title, outcome.status == 0 and shard_of(out + ".bin") == sum(texts, []), outcome.tail())
    pieces = [list(zip(text, text[1:] + [-1]))[i:i + LENGTH] for text in texts for i in range(0, len(text), LENGTH)]
    for name, samples, more in (("padded", pieces, ()), ("packed", packed(texts), ("--pack",)), ("apart", packed(texts, True), ("--pack", "--documents"))):
        outcome = harness.zplan("data", "jsonl", source, "-o", out + name, "--field", "text", "--length", LENGTH, *more, *options)
        if tally.check("%s: %s" % (title, name), outcome.status == 0, outcome.tail()):
            for array, want in (("tokens", padded([[p[0] for p in s] for s in samples], 0)), ("labels", padded([[p[1] for p in s] for s in samples], -1)),
                                ("lengths", [[len(s)] for s in samples]), ("documents", padded([[p[2] for p in s] for s in samples], -1) if "apart" == name else None),
                                ("positions", padded([[p[3] for p in s] for s in samples], 0) if "apart" == name else None)):
                if want is None:
                    tally.check("%s: %s has no %s" % (title, name, array), not os.path.exists(os.path.join(out + name, array + ".npy")))
                    continue
                tally.check("%s: %s %s" % (title, name, array), read_ids(out + name, array) == want)
    tally.check("%s: empty texts are told" % title, "%d empty texts are left out" % sum(not row["text"] for row in rows) in outcome.err, outcome.err)


# ---- columns ----

def check_columns(tally, folder, rows):
    files = {"json": ("jsonl", json_file(folder, rows)), "csv": ("table", table_file(folder, rows, "rows.csv")), "tsv": ("table", table_file(folder, rows, "rows.tsv")),
             "dos": ("table", table_file(folder, rows, "dos.csv"))}
    for title, (form, source) in files.items():
        out = os.path.join(folder, "columns-" + title)
        nested = "nested.c" if form == "jsonl" else "c"
        outcome = harness.zplan("data", form, source, "-o", out, "--field", "text", "--length", LENGTH, "--numbers", "x=a,b,%s" % nested, "--numbers", "flag=flag",
                                "--labels", "label=label", "--labels", "kind=kind")
        if not tally.check("%s: columns" % title, outcome.status == 0, outcome.tail()):
            continue
        tally.check("%s: numbers" % title, read_numbers(os.path.join(out, "x.npy")) == [f4(v) for row in rows for v in (row["a"], row["b"], row["nested"]["c"])])
        tally.check("%s: booleans" % title, read_numbers(os.path.join(out, "flag.npy")) == [float(row["flag"]) for row in rows])
        tally.check("%s: labels" % title, read_ids(out, "label") == [[row["label"]] for row in rows])
        names = sorted({row["kind"] for row in rows}, key=str.encode)
        tally.check("%s: names" % title, read_ids(out, "kind") == [[names.index(row["kind"])] for row in rows])
        with open(os.path.join(out, "kind.classes.txt"), encoding="utf-8") as file:
            tally.check("%s: list of names" % title, file.read() == "".join(name + "\n" for name in names))
        texts = [list(row["text"].encode())[:LENGTH] for row in rows]
        tally.check("%s: texts" % title, read_ids(out, "tokens") == padded(texts, 0) and read_ids(out, "lengths") == [[len(t)] for t in texts])
        arrays = ["%s.npy" % name for name in ("flag", "kind", "label", "lengths", "tokens", "x")]
        tally.check("%s: no other arrays" % title, sorted(os.listdir(out)) == sorted(arrays + ["kind.classes.txt"]), "%s" % os.listdir(out))


def check_trainer(tally, folder, rows):
    source = table_file(folder, [{**row, "b": min(row["b"], 9)} for row in rows], "train.csv")
    outcome = harness.zplan("data", "table", source, "-o", os.path.join(folder, "made"), "--numbers", "x=a,b,c", "--labels", "kind=kind")
    model = write(os.path.join(folder, "table.dz"), MODEL)
    run = harness.zplan("run", model, "--ranks", 1, "-o", os.path.join(folder, "trainer"))
    tally.check("a table is trained on", outcome.status == 0 and run.status == 0 and "step 3/3" in run.out, outcome.tail() + run.tail())


def check_documents(tally, folder, rng):
    """Losses and norms of packed documents are those of documents that are samples, of which there are more in the same batch."""
    lengths = [rng.choice((2, 3, 5, 8, 13, LENGTH)) for _ in range(20)]
    source = json_file(folder, [{"text": "".join(chr(rng.randrange(32, 127)) for _ in range(n - 1))} for n in lengths], "documents.jsonl")
    steps = []
    for title, words, kind in (("alone", (), ALONE), ("together", ("--pack", "--documents"), TOGETHER)):
        out = os.path.join(folder, "documents-" + title)
        outcome = harness.zplan("data", "jsonl", source, "-o", out, "--field", "text", "--length", LENGTH, *words)
        if not tally.check("documents %s" % title, outcome.status == 0, outcome.tail()):
            return
        batch = len(read_ids(out, "tokens"))
        model = write(os.path.join(folder, title + ".dz"), PAIR % (LENGTH, *kind, os.path.basename(out), batch))
        log = os.path.join(folder, title + ".jsonl")
        run = harness.zplan("run", model, "--ranks", 1, "--check-memory", "-o", os.path.join(folder, "trainer-" + title), "--log", log)
        if not tally.check("documents %s are trained on" % title, run.status == 0, run.tail()):
            return
        steps.append([(record["loss"], record["grad_norm"]) for record in harness.read_log(log)[0]])
    apart = max(harness.number_error(*pair) for one, other in zip(*steps) for pair in zip(one, other))
    tally.check("packed documents are samples", len(steps[0]) == 3 and apart <= 1e-12 and steps[0][0] != steps[0][2], "%.2e, %s" % (apart, steps))
    check_bad_documents(tally, folder, out)


def check_bad_documents(tally, folder, out):
    """Numbers that do not ascend, or a sample without any, end the trainer."""
    path = os.path.join(out, "documents.npy")
    with open(path, "rb") as file:
        content = file.read()
    for title, numbers, words in (("that descend", (4, 4, 3), "has 3 after 4 in sample 0"), ("after the last one", (0, -1, 0), "has 0 after -1 in sample 0"),
                                  ("that are none", (-1, -1, -1), "has no document in sample 0")):
        body = len(content) - 4 * LENGTH * len(read_ids(out, "tokens"))
        write(path, content[:body] + struct.pack("<3i", *numbers) + content[body + 12:])
        run = harness.run([os.path.join(folder, "trainer-together", "trainer"), "--threads", 1])
        tally.check("documents %s" % title, run.status != 0 and "Z0803" in run.err and words in run.err, run.tail())


# ---- what is refused ----

REFUSALS = (
    ("bad JSON", "jsonl", '{"t": "a"}\n{"t": "b"\n', ("--field", "t", "-o", "OUT.bin"), ":2: no JSON: column"),
    ("no object", "jsonl", '{"t": "a"}\n\n[1]\n', ("--field", "t", "-o", "OUT.bin"), ":3: no JSON object"),
    ("missing field", "jsonl", '{"t": "a"}\n{"u": "b"}\n', ("--field", "t", "-o", "OUT.bin"), ":2: there is no field `t`"),
    ("an array", "jsonl", '[{"t": "a"},\n {"t": "b"}]\n', ("--field", "t", "-o", "OUT.bin"), "an object a line, as `jq -c '.[]'"),
    ("a number too large that is read", "jsonl", '{"t": 1e999}\n', ("--numbers", "x=t", "-o", "OUT"), ":1: "),
    ("no number", "jsonl", '{"x": 1.e999, "t": "a"}\n', ("--field", "t", "-o", "OUT.bin"), ":1: no JSON"),
    ("NaN that is read", "jsonl", '{"t": NaN}\n', ("--numbers", "x=t", "-o", "OUT"), ":1: "),
    ("no text", "jsonl", '{"t": 3}\n', ("--field", "t", "-o", "OUT.bin"), ":1: `t` is no text"),
    ("no UTF-8", "jsonl", b'{"t": "\xff"}\n', ("--field", "t", "-o", "OUT.bin"), ":1: no JSON"),
    ("no row", "jsonl", "\n\n", ("--field", "t", "-o", "OUT.bin"), "there is no row"),
    ("a list", "jsonl", '{"t": [1]}\n', ("--numbers", "x=t", "-o", "OUT"), ":1: `t` is a list"),
    ("no number", "jsonl", '{"t": 1}\n{"t": "0x1"}\n', ("--numbers", "x=t", "-o", "OUT"), ":2: `t` is no number: 0x1"),
    ("beyond 32 bits", "jsonl", '{"t": 1e300}\n', ("--numbers", "x=t", "-o", "OUT"), ":1: `t` is 1e+300"),
    ("half a label", "jsonl", '{"t": 1.5}\n', ("--labels", "x=t", "-o", "OUT"), ":1: `t` is 1.5"),
    ("label below -1", "jsonl", '{"t": -2}\n', ("--labels", "x=t", "-o", "OUT"), ":1: label -2 of `t`"),
    ("label out of range", "table", "t\n0\n2\n3\n", ("--labels", "x=t", "--classes", "3", "-o", "OUT"), ":4: label 3 of `t` is out of range"),
    ("more names", "table", "t\na\nb\nc\n", ("--labels", "x=t", "--classes", "2", "-o", "OUT"), ':4: `t` is "c"'),
    ("names and numbers", "table", "t\na\n1\n", ("--labels", "x=t", "-o", "OUT"), ":3: `t` is a number here, and names before"),
    ("empty column", "table", "t,u\n1, \n", ("--numbers", "x=u", "-o", "OUT"), ":2: `u` is empty"),
    ("no column", "table", "age,u\n1,2\n", ("--numbers", "x=ages", "-o", "OUT"), ":1: there is no column `ages`"),
    ("a column twice", "table", "a,a\n1,2\n", ("--numbers", "x=a", "-o", "OUT"), ":1: the column `a` is there twice"),
    ("other cells", "table", 'a,b\n1,"2\n2"\n\n3\n', ("--numbers", "x=a", "-o", "OUT"), ":5: 1 cells, the first line names 2"),
    ("open quote", "table", 'a,b\n1,2\n1,"2\n3\n', ("--numbers", "x=a", "-o", "OUT"), ":3: a quote is not closed"),
    ("quote inside", "table", 'a,b\n1"2,2\n', ("--numbers", "x=a", "-o", "OUT"), ":2: a quote stands inside"),
    ("after a quote", "table", 'a,b\n"1"2,2\n', ("--numbers", "x=a", "-o", "OUT"), ":2: something follows"),
    ("empty table", "table", "", ("--numbers", "x=a", "-o", "OUT"), ":1: the table is empty"),
    ("empty text with a label", "table", 'a,t\n1,""\n', ("--labels", "x=a", "--field", "t", "--length", "4", "-o", "OUT"), ":2: `t` is empty"),
)
USAGES = (("--numbers", "x=t"), ("--field", "t", "--labels", "x=t", "-o", "OUT"), ("--labels", "x=t,u", "-o", "OUT"), ("--numbers", "t", "-o", "OUT"), ("-o", "OUT"),
          ("--numbers", "x=t", "--labels", "x=u", "-o", "OUT"), ("--field", "t", "--pack", "-o", "OUT"), ("--field", "t", "--length", "4", "--documents", "-o", "OUT"), ("--numbers", "x=t", "--classes", "3", "-o", "OUT"))


def check_refusals(tally, folder):
    place = os.path.join(folder, "refused")
    os.mkdir(place)
    for title, form, content, options, words in REFUSALS:
        source = write(os.path.join(folder, "bad"), content)
        outcome = harness.zplan("data", form, source, *[os.path.join(place, o) if o.startswith("OUT") else o for o in options])
        tally.check(title, outcome.status == 1 and "Z0810" in outcome.err and words in outcome.err and "bad" in outcome.err and not os.listdir(place), outcome.err)
    for options in USAGES:
        outcome = harness.zplan("data", "jsonl", source, *[os.path.join(place, o) if o.startswith("OUT") else o for o in options])
        tally.check("usage %s" % " ".join(options), outcome.status == 2 and not os.listdir(place), outcome.err)
    for form in ("jsonl", "table"):
        outcome = harness.zplan("data", form, folder, "--field", "t", "-o", os.path.join(place, "OUT.bin"))
        tally.check("%s of a folder" % form, outcome.status == 1 and "Z0801" in outcome.err and not os.listdir(place), outcome.err)


# Rows that RFC 8259 or Python's json allow; what it reads of them is the right value, but for characters that are none.
ALLOWED = ('{"t": "a\\u0000b"}', '{"t": "first", "t": "second"}', '{"t": "half \\ud83d pair \\ud83d\\ude00 low \\ude00 high \\ud83d\\ud83d"}', '{"t": "NaN", "score": NaN}',
           '{"a": [NaN, -Infinity, Infinity], "t": "\\"NaN\\\\"}', '{"t": "\\\\u0000 \\\\ud83d"}', '{"t": "\\uD83D\\uDE00", "n": 1e5}', '{"t": null}', '{"t": ""}',
           '{"big": [123456789012345678901234567890, -98765432109876543210, 1e999, -2E+308], "small": 1e-999, "t": "12345678901234567890123"}')
BAD = ('{"t": 3}', '{"x": "a"}', '{"t": "b', "[1]", '{"t": "\\u00"}')


def check_all_json(tally, folder):
    want = []
    for row in ALLOWED:
        text = json.loads(row)["t"]
        if text:
            want += list("".join("\ufffd" if c == "\0" or 0xd800 <= ord(c) < 0xe000 else c for c in text).encode()) + [0]
    out = os.path.join(folder, "any.bin")
    path = write(os.path.join(folder, "any.jsonl"), "".join(row + "\n" for row in ALLOWED))
    outcome = harness.zplan("data", "jsonl", path, "--field", "t", "-o", out)
    tally.check("all legal JSON", outcome.status == 0 and shard_of(out) == want, outcome.tail())
    tally.check("null as an empty text", "2 empty texts are left out" in outcome.err, outcome.err)
    tally.check("what is replaced is told", "5 characters that no text holds" in outcome.err, outcome.err)
    mixed = "".join(row + "\n" for pair in zip(ALLOWED, BAD) for row in pair) + "".join(row + "\n" for row in ALLOWED[len(BAD):])
    path = write(os.path.join(folder, "mixed.jsonl"), mixed)
    outcome = harness.zplan("data", "jsonl", path, "--field", "t", "-o", out, "--skip-bad")
    tally.check("bad rows are left out and counted", outcome.status == 0 and shard_of(out) == want and
                "%d rows that cannot be read are left out, the first: %s:2: `t` is no text" % (len(BAD), path) in outcome.err, outcome.tail())
    path = write(os.path.join(folder, "bad.jsonl"), "".join(row + "\n" for row in BAD))
    outcome = harness.zplan("data", "jsonl", path, "--field", "t", "-o", out, "--skip-bad")
    arrays = harness.zplan("data", "jsonl", path, "--numbers", "x=t", "-o", os.path.join(folder, "OUT"), "--skip-bad")
    tally.check("not of arrays", arrays.status == 2 and "--skip-bad is for" in arrays.err, arrays.tail())
    tally.check("nothing but bad rows", outcome.status == 1 and "no row that can be read" in outcome.err, outcome.tail())


def check_interruption(tally, folder):
    """Rows come through a pipe that stays open."""
    place, pipe = os.path.join(folder, "interrupted"), os.path.join(folder, "pipe")
    os.mkdir(place)
    os.mkfifo(pipe)
    process = subprocess.Popen([harness.ZPLAN, "data", "jsonl", pipe, "--field", "t", "-o", os.path.join(place, "out.bin")],
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # jobs in the background ignore it
    with open(pipe, "w", encoding="utf-8") as file:
        file.write('{"t": "a text"}\n' * 1000)
        file.flush()
        end = time.monotonic() + harness.PATIENCE
        while not os.listdir(place) and time.monotonic() < end:
            time.sleep(0.01)
        begun = os.listdir(place)
        process.send_signal(signal.SIGINT)
        tally.check("an interruption leaves nothing", process.wait(harness.PATIENCE) == -signal.SIGINT and begun and not os.listdir(place), "%s" % os.listdir(place))


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    harness.require_zplan()
    harness.build_quickly()
    tally, rng = harness.Tally(), random.Random(3)
    with harness.Scratch() as folder:
        rows = rows_of(rng, 40)
        check_texts(tally, folder, rows, "bytes", lambda text: list(text.encode()), [0])
        tokenizer, path = squad.tokenizer_with_marks(folder)
        encode = squad.encoder(folder, tokenizer, path)
        few = rows[:12]
        check_texts(tally, folder, few, "tokenizer", lambda text: [i for i, _ in encode(text)], [641], "--tokenizer", path, "--eod", "[SEP]")
        check_columns(tally, folder, [row for row in rows if row["text"].strip()])
        check_trainer(tally, folder, rows)
        check_all_json(tally, folder)
        check_documents(tally, folder, random.Random(5))
        check_refusals(tally, folder)
        check_interruption(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
