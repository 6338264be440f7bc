#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes wordpiece.json; by hand, not in tests: wants Hugging Face transformers (5.24 was used, its tokenizers 0.23.3). The ids in
wordpiece.json are what BertTokenizer gave, the places of tokens in the texts those of its offsets. bert_vocab.txt is kept as it is: special tokens, pieces that tokenizers' BertWordPieceTokenizer learned from documents of this
project, and characters of other scripts.

    make_wordpiece.py [--random N]    N random texts more are compared with build/release/zplan, and not written
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
VARIANTS = {"uncased": {"do_lower_case": True}, "cased": {"do_lower_case": False},
            "cased, no accents": {"do_lower_case": False, "strip_accents": True}, "lower case with accents": {"do_lower_case": True, "strip_accents": False},
            "ideographs in words": {"do_lower_case": True, "tokenize_chinese_chars": False}}


def texts():
    given = ["", "x", " ", "   two  spaces \t\n\n and   the end   ", "A plan for a journey is not the journey.",
             "The [MASK] on the river[SEP]grinds [unk] it. [CLS][CLS]", "un[MASK]able", "caf\u00e9 Cafe\u0301 CAF\u00c9 \u212b A\u030a \u1e9b\u0323 \ufb01ne \u2122 na\u00efve",
             "\u00bd \uff21\uff22 \uac00 \u1100\u1161 \u0130stanbul STRASSE stra\u00dfe \u039f\u03a3 \u03a3 \u212a", "\u65e5\u672c\u8a9e text\u65e5\u672c and \U0001f642\u200d\U0001f643 \u0416\u0436",
             "\u2581mark", "\x01con\x01trol\x7f\x85\x0b\x0c\ufffd\xad", "\u00a0\u3000\u2028hard\u180espaces\u0085 \u200b\u200e\u202e", "e\u0301e\u0301e\u0301 \u00e9\u00e9\u00e9 \u0301 alone",
             "a" * 100, "a" * 101, "don't stop-me_now (at all)! $5.00 + 3^2 = ~14; `x` | \\y/ {z} <w> \u2014 \u201cquoted\u201d \u00bfque? \u3002\uff01",
             "the\tmiller\r\ncounts", "\U00020000\U0002a700\U0002b820\U0002b920\U0002f800 \uf900", "\ue000private\U000f0000use", "\u0e01\u0e33\u0e34 \u0915\u094d\u0937\u093f \u05e9\u05c1", "##the ## #"]
    draw = random.Random(7)
    return given + [drawn(draw, None) for _ in range(12)]


def drawn(draw, pool):
    pool = pool or list("aeiou thrsn TMA,.'-") + [" ", "  ", "\u00e9", "e\u0301", "\u0416", "\ufb01", "\U0001f642", "\n", "[SEP]", "[MASK]", "journey", " the", "\u3000", "\x01",
                                                  "\u0130", "\u65e5", "\u672c", "\u00df", "\u200d", "##", "\u03a3", "CAFE", "\u0301", "\uff01"]
    return "".join(draw.choice(pool) for _ in range(draw.randint(2, 40)))


def wide(draw):
    """Characters that Unicode 3.2 has, the tokenizers' tables and ours alike, of all kinds."""
    pick = lambda: next(c for c in iter(lambda: chr(draw.choice((draw.randrange(1, 0x300), draw.randrange(1, 0xd800), draw.randrange(0xe000, 0x30000)))), None)
                        if unicodedata.ucd_3_2_0.category(c) != "Cn" and unicodedata.ucd_3_2_0.category(c)[0] == unicodedata.category(c)[0])
    return drawn(draw, list("aeth ") + [" ", "[SEP]"] + [pick() for _ in range(12)])


def encode(tokenizer, text):
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return found["input_ids"], [[len(text[:a].encode()), len(text[:b].encode())] for a, b in found["offset_mapping"]]


def tokenizer_of(folder, how):
    path = os.path.join(folder, "vocab.txt")
    with open(os.path.join(HERE, "bert_vocab.txt"), "rb") as source, open(path, "wb") as target:
        target.write(source.read())
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(how, file)
    return transformers.BertTokenizer(vocab=path, **how), path


def compare(folder, name, tokenizer, path, n):
    draw = random.Random(name)
    for i in range(n):
        text = wide(draw)
        with open(folder + "/text", "wb") as file:
            file.write(text.encode())
        subprocess.run([ROOT + "/build/release/zplan", "data", folder + "/text", "-o", folder + "/out.bin", "--tokenizer", path], check=True, capture_output=True)
        with open(folder + "/out.bin", "rb") as file:
            content = file.read()
        ids = list(struct.unpack("<%dH" % ((len(content) - 1024) // 2), content[1024:]))
        if ids != encode(tokenizer, text)[0]:
            print("%s: %r gives %s, not %s" % (name, text, ids, encode(tokenizer, text)[0]))


def main():
    n = int(sys.argv[2]) if sys.argv[1:2] == ["--random"] else 0
    all_texts, out = texts(), []
    for name, how in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder:
            tokenizer, path = tokenizer_of(folder, how)
            found = [encode(tokenizer, text) for text in all_texts]
            file = json.loads(tokenizer.backend_tokenizer.to_str())
            file["model"].pop("vocab")
            out.append({"name": name, "settings": how, "file": {key: file[key] for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")},
                        "ids": [ids for ids, _ in found], "places": [places for _, places in found]})
            compare(folder, name, tokenizer, path, n)
    with open(os.path.join(HERE, "wordpiece.json"), "w", encoding="utf-8") as file:
        json.dump({"texts": all_texts, "variants": out}, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


main()
