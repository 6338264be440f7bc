#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zplan data squad: drawn questions and answers against the same arrays made here, bytes and with a tokenizer; a trainer on them; what is refused."""
import ast
import json
import os
import random
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

ARRAYS = ("tokens", "types", "lengths", "start", "end")
BYTE_CLS, BYTE_SEP = 256, 257
WORDS = ("der", "Käse", "1802", "naïve", "日本", "zplan", "runs", "a", "step", "🧀", "of", "the", "x=1")


def read_array(path):
    """Rows of a little-endian i4 array of one or two dimensions."""
    with open(path, "rb") as file:
        content = file.read()
    end = 10 + int.from_bytes(content[8:10], "little")
    header = ast.literal_eval(content[10:end].decode())
    assert content[:8] == b"\x93NUMPY\x01\x00" and end % 64 == 0 and header["descr"] == "<i4" and not header["fortran_order"]
    values = struct.unpack("<%di" % ((len(content) - end) // 4), content[end:])
    width = header["shape"][1] if len(header["shape"]) == 2 else 1
    assert len(values) == header["shape"][0] * width
    return [list(values[i:i + width]) for i in range(0, len(values), width)]


def drawn(rng):
    """A file of questions; answers are words of the context, now and then the second one listed, none, or not there."""
    paragraphs = []
    for number in range(12):
        words = [rng.choice(WORDS) for _ in range(rng.randrange(1, 40))]
        context, qas = " ".join(words), []
        for i in range(rng.randrange(1, 4)):
            at = rng.randrange(len(words))
            last = min(len(words), at + rng.randrange(1, 4))
            answer = {"text": " ".join(words[at:last]), "answer_start": len(" ".join(words[:at])) + (at > 0)}
            kind = rng.choice(("plain", "plain", "plain", "second", "none", "impossible", "lost"))
            answers = {"plain": [answer], "second": [{"text": "nowhere", "answer_start": 0}, answer], "none": [],
                       "impossible": [answer], "lost": [dict(answer, answer_start=answer["answer_start"] + 1000)]}[kind]
            qas.append({"id": "%d-%d" % (number, i), "question": " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 9))),
                        "answers": answers, **({"is_impossible": True} if kind == "impossible" else {})})
        paragraphs.append({"context": context, "qas": qas})
    return {"version": "2.0", "data": [{"title": "t", "paragraphs": paragraphs[:7]}, {"paragraphs": paragraphs[7:]}]}


def expected(questions, length, stride, encode, cls, sep):
    """The five arrays, and the ids of what is left out. encode: text -> [(id, bytes)]."""
    out, lost = {name: [] for name in ARRAYS}, []
    for paragraph in (p for article in questions["data"] for p in article["paragraphs"]):
        context, pieces = paragraph["context"], encode(paragraph["context"])
        for qa in paragraph["qas"]:
            span = None
            found = [a for a in qa["answers"] if context[a["answer_start"]:a["answer_start"] + len(a["text"])] == a["text"]]
            if qa["answers"] and not qa.get("is_impossible"):
                if not found:
                    lost.append(qa["id"])
                    continue
                begin = len(context[:found[0]["answer_start"]].encode())
                end, at, touched = begin + len(found[0]["text"].encode()), 0, []
                for i, (_, piece) in enumerate(pieces):
                    if at < end and at + len(piece) > begin:
                        touched.append(i)
                    at += len(piece)
                span = touched[0], touched[-1]
            question = [i for i, _ in encode(qa["question"])][:length // 4]
            room = length - len(question) - 3
            step = min(stride or (room + 1) // 2, room)
            first = 0
            while True:
                window = [i for i, _ in pieces[first:first + room]]
                whole = span and first <= span[0] and span[1] < first + len(window)
                ids = [cls] + question + [sep] + window + [sep]
                types = [0] * (len(question) + 2) + [1] * (len(window) + 1)
                out["tokens"].append(ids + [0] * (length - len(ids)))
                out["types"].append(types + [0] * (length - len(ids)))
                out["lengths"].append([len(ids)])
                for name, position in (("start", 0), ("end", 1)):
                    out[name].append([span[position] - first + len(question) + 2 if whole else 0])
                if first + room >= len(pieces):
                    break
                first += step
    return out, lost


def write_json(path, content):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False)
    return path


def check(tally, folder, title, questions, length, stride, encode, cls, sep, *options):
    want, lost = expected(questions, length, stride, encode, cls, sep)
    source, target = write_json(os.path.join(folder, "questions.json"), questions), os.path.join(folder, title.replace(" ", "_"))
    outcome = harness.zplan("data", "squad", source, "-o", target, "--length", length, *(("--stride", stride) if stride else ()), *options)
    if not tally.check(title, outcome.status == 0, outcome.tail()):
        return None
    for name in ARRAYS:
        tally.check("%s: %s" % (title, name), read_array(os.path.join(target, name + ".npy")) == want[name], "%d samples" % len(want[name]))
    tally.check("%s: lost" % title, ("%d questions are left out" % len(lost) in outcome.err) == bool(lost) and all(i in outcome.err for i in lost[:8]),
                outcome.err)
    return target


# ---- a byte-level tokenizer ----

def byte_characters():
    """GPT-2's characters that stand for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(others)}}


def tokenizer_with_marks(folder):
    with open(os.path.join(HERE, "tokenizers", "gpt2_like.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    for i, mark in enumerate(("[CLS]", "[SEP]")):
        tokenizer["added_tokens"].append({"id": 640 + i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
                                          "normalized": False, "special": True})
    return tokenizer, write_json(os.path.join(folder, "tokenizer.json"), tokenizer)


def encoder(folder, tokenizer, path):
    """Ids from zplan data, which tokens.py compares with Hugging Face's; their bytes from the vocabulary."""
    characters, texts = byte_characters(), {i: text for text, i in tokenizer["model"]["vocab"].items()}
    known = {}

    def encode(text):
        if text not in known:
            source, out = os.path.join(folder, "text"), os.path.join(folder, "ids.bin")
            with open(source, "wb") as file:
                file.write(text.encode())
            assert harness.zplan("data", source, "-o", out, "--tokenizer", path).status == 0
            with open(out, "rb") as file:
                content = file.read()[1024:]
            ids = struct.unpack("<%dH" % (len(content) // 2), content)
            known[text] = [(i, bytes(characters[c] for c in texts[i])) for i in ids]
        return known[text]

    return encode


# ---- WordPiece, which changes texts ----

def check_wordpiece(tally, folder):
    """Answers of one to nine characters anywhere in the texts of wordpiece.json: their tokens by the offsets that Hugging Face gave."""
    with open(os.path.join(HERE, "tokenizers", "wordpiece.json"), encoding="utf-8") as file:
        cases = json.load(file)
    draw, length = random.Random(9), 256
    for variant in cases["variants"][:2]:
        shutil.copy(os.path.join(HERE, "tokenizers", "bert_vocab.txt"), os.path.join(folder, "vocab.txt"))
        write_json(os.path.join(folder, "tokenizer_config.json"), variant["settings"])
        paragraphs, want = [], {name: [] for name in ("tokens", "start", "end")}
        for text, ids, places in zip(cases["texts"], variant["ids"], variant["places"]):
            for _ in range(3 if len(text) > 1 else 0):
                begin = draw.randrange(len(text))
                answer = text[begin:begin + draw.randint(1, 9)]
                first, last = len(text[:begin].encode()), len((text[:begin] + answer).encode())
                touched = [i for i, (a, b) in enumerate(places) if a < last and b > first]
                paragraphs.append({"context": text, "qas": [{"id": "q", "question": "x", "answers": [{"text": answer, "answer_start": begin}]}]})
                want["tokens"].append(([2, ids_of_x(variant, cases), 3] + ids + [3]))
                want["start"].append([touched[0] + 3 if touched else 0])
                want["end"].append([touched[-1] + 3 if touched else 0])
        source, target = write_json(os.path.join(folder, "questions.json"), {"data": [{"paragraphs": paragraphs}]}), os.path.join(folder, variant["name"])
        outcome = harness.zplan("data", "squad", source, "-o", target, "--length", length, "--tokenizer", os.path.join(folder, "vocab.txt"))
        title = "WordPiece, %s" % variant["name"]
        if not tally.check(title, outcome.status == 0, outcome.tail()):
            continue
        got = {name: read_array(os.path.join(target, name + ".npy")) for name in want}
        want["tokens"] = [row + [0] * (length - len(row)) for row in want["tokens"]]
        for name in want:
            tally.check("%s: %s" % (title, name), got[name] == want[name], str([(a, b) for a, b in zip(got[name], want[name]) if a != b][:2]))


def ids_of_x(variant, cases):
    return variant["ids"][cases["texts"].index("x")][0]


# ---- a trainer ----

def check_trainer(tally, folder):
    """The model of tests/torch/squad.dz over bytes: an array that is missing, labels after a sample's end, two steps."""
    rng = random.Random(5)
    place = check(tally, folder, "arrays of a trainer", drawn(rng), 24, None, lambda text: [(b, bytes([b])) for b in text.encode()], BYTE_CLS, BYTE_SEP)

    def train():
        return harness.zplan("run", os.path.join(harness.ROOT, "tests", "torch", "squad.dz"), "--ranks", 1, "--steps", 2, "-o", os.path.join(folder, "trainer"),
                             "--set", "model.V=259", "--set", 'train.data=arrays("%s")' % place, "--set", 'train.validate.data=arrays("%s")' % place)
    outcome = train()
    tally.check("an array is missing", outcome.status == 1 and "Z0801" in outcome.err and "possible.npy" in outcome.err, outcome.err)
    starts = os.path.join(place, "start.npy")
    with open(starts, "rb") as file:
        content = file.read()
    with open(os.path.join(place, "possible.npy"), "wb") as file:  # 0 or 1: there is an answer
        file.write(content[:128] + b"".join(struct.pack("<i", row[0] > 0) for row in read_array(starts)))
    outcome = train()
    tally.check("two steps", outcome.status == 0 and "step 2/2" in outcome.out, outcome.tail())
    for name in ("lengths", "start"):  # sample 2 has 20 tokens, of which the last is 19
        path = os.path.join(place, name + ".npy")
        with open(path, "r+b") as file:
            file.seek(128 + 4 * 2)
            file.write(struct.pack("<i", 20))
    outcome = train()
    tally.check("a label after the end", outcome.status == 1 and "Z0803" in outcome.err and "`start` of sample 2 is 20, but its `lengths` are 20" in outcome.err,
                outcome.err)


# ---- what is refused ----

def check_refusals(tally, folder, tokenizer):
    good = {"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "q", "question": "?", "answers": [{"text": "b", "answer_start": 2}]}]}]}]}
    qa = good["data"][0]["paragraphs"][0]["qas"][0]
    bad = {"no data": ({}, "Z0809", "no list `data`"), "no paragraphs": ({"data": [{}]}, "Z0809", "`paragraphs`"),
           "no context": ({"data": [{"paragraphs": [{"qas": []}]}]}, "Z0809", "no `context`"),
           "no question": ({"data": [{"paragraphs": [{"context": "a", "qas": [{"answers": []}]}]}]}, "Z0809", "no `question`"),
           "no answers": ({"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "q7", "question": "?"}]}]}]}, "Z0809", "question q7 has no list"),
           "all lost": ({"data": [{"paragraphs": [{"context": "a", "qas": [dict(qa)]}]}]}, "Z0809", "no question whose answer"),
           "no JSON": ("{", "Z0809", "")}
    for title, (content, *words) in bad.items():
        source, target = os.path.join(folder, "bad.json"), os.path.join(folder, "bad")
        if isinstance(content, str):
            with open(source, "w", encoding="utf-8") as file:
                file.write(content)
        else:
            write_json(source, content)
        outcome = harness.zplan("data", "squad", source, "-o", target, "--length", 32)
        tally.check(title, outcome.status == 1 and all(w in outcome.err for w in words) and not os.path.exists(target), outcome.err)
    source = write_json(os.path.join(folder, "good.json"), good)
    os.mkdir(os.path.join(folder, "there"))
    for title, words, options, status in (
            ("a folder that is there", "Z0695", ("-o", os.path.join(folder, "there"), "--length", 32), 1),
            ("no length", "usage", ("-o", os.path.join(folder, "new")), 2),
            ("too short", "--length is 8 to", ("-o", os.path.join(folder, "new"), "--length", 7), 2),
            ("no marks", "Z0806", ("-o", os.path.join(folder, "new"), "--length", 32, "--tokenizer", os.path.join(HERE, "tokenizers", "gpt2_like.json")), 1),
            ("a tokenizer that changes texts", "Z0807", ("-o", os.path.join(folder, "new"), "--length", 32, "--tokenizer",
                                                         write_json(os.path.join(folder, "lower.json"), dict(tokenizer, normalizer={"type": "Lowercase"}))), 1)):
        capital = write_json(os.path.join(folder, "capital.json"), json.loads(json.dumps(good).replace("a b", "A b"))) if words == "Z0807" else source
        outcome = harness.zplan("data", "squad", capital, *options)
        tally.check(title, outcome.status == status and words in outcome.err and not os.path.exists(os.path.join(folder, "new")), outcome.err)


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally, rng = harness.Tally(), random.Random(4)
    with harness.Scratch() as folder:
        for length, stride in ((32, None), (24, 5), (300, None), (17, 1000)):
            check(tally, folder, "bytes %d %s" % (length, stride), drawn(rng), length, stride,
                  lambda text: [(b, bytes([b])) for b in text.encode()], BYTE_CLS, BYTE_SEP)
        tokenizer, path = tokenizer_with_marks(folder)
        check(tally, folder, "a tokenizer", drawn(rng), 24, None, encoder(folder, tokenizer, path), 640, 641, "--tokenizer", path)
        check_wordpiece(tally, folder)
        check_refusals(tally, folder, tokenizer)
        check_trainer(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
