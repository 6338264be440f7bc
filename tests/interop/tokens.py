#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens of other programs: tokenizer.json files against ids that Hugging Face's tokenizers gave (cases.json and variants.json),
Megatron's indexed datasets against llm.c shards of the same ids, in trainers; what is refused.
"""
import json
import os
import random
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

TOKENIZERS = os.path.join(HERE, "tokenizers")
EXAMPLE = os.path.join(harness.ROOT, "examples", "gpt_tiny.dz")
failures, passed = [], [0]


def expect(name, condition, detail=""):
    if condition:
        passed[0] += 1
    else:
        failures.append(name)
        print("FAILED %s %s" % (name, detail))


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)
    return path


def read_shard(path):
    """(ids, bytes a token) of an llm.c shard."""
    with open(path, "rb") as file:
        content = file.read()
    magic, version, count = struct.unpack_from("<3i", content)
    width = {(20240520, 1): 2, (20240801, 7): 4}[magic, version]
    assert len(content) == 1024 + count * width
    return list(struct.unpack_from("<%d%s" % (count, "HI"[width == 4]), content, 1024)), width


def refused(name, outcome, *words):
    expect(name, outcome.status == 1 and all(word in outcome.err for word in words), outcome.err)


# ---- tokenizers ----

def tokenize(folder, texts, tokenizer, *options):
    files = [write(os.path.join(folder, "text%d" % i), text.encode() if isinstance(text, str) else text)
             for i, text in enumerate(texts)]
    out = os.path.join(folder, "out.bin")
    return harness.zplan("data", *files, "-o", out, "--tokenizer", tokenizer, *options), out


def check_tokenizers(folder):
    with open(os.path.join(TOKENIZERS, "cases.json"), encoding="utf-8") as file:
        cases = json.load(file)
    for name in ("gpt2_like", "llama3_like"):
        path = os.path.join(TOKENIZERS, name + ".json")
        for i, case in enumerate(cases):
            outcome, out = tokenize(folder, [case["text"]], path)
            expect("%s, text %d" % (name, i), outcome.status == 0 and read_shard(out) == (case[name], 2), outcome.err)
    path = os.path.join(TOKENIZERS, "gpt2_like.json")
    outcome, out = tokenize(folder, [cases[1]["text"], cases[2]["text"]], path, "--eod", "<|endoftext|>")
    end = cases[5]["gpt2_like"]  # has the token in its text
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    eod = tokenizer["added_tokens"][0]["id"]
    expect("the test has the token", eod in end)
    expect("--eod", outcome.status == 0 and
           read_shard(out)[0] == cases[1]["gpt2_like"] + [eod] + cases[2]["gpt2_like"] + [eod], outcome.err)

    # An id above 65,535 needs the wide format.
    tokenizer["added_tokens"][0]["id"] = 100000
    wide = write(os.path.join(folder, "wide.json"), json.dumps(tokenizer).encode())
    outcome, out = tokenize(folder, ["x<|endoftext|>"], wide)
    expect("wide", outcome.status == 0 and read_shard(out) == (cases[1]["gpt2_like"] + [100000], 4), outcome.err)
    expect("vocabulary is said", "2 tokens" in outcome.out and "vocabulary 100001" in outcome.out, outcome.out)


BYTES = ["<0x%02X>" % byte for byte in range(256)]


def variant_of(base, how):
    """The tokenizer of a variant, as in tokenizers/make.py."""
    t = json.loads(json.dumps(base))
    for key in ("normalizer", "pre_tokenizer", "added_tokens"):
        if key in how:
            t[key] = how[key]
    t["model"].update(how.get("model", {}))
    for left, right in how.get("joins", []):
        t["model"]["vocab"][left + right] = len(t["model"]["vocab"])
        t["model"]["merges"].append([left, right])
    if how.get("bytes"):
        t["model"]["byte_fallback"] = True
        t["model"]["vocab"] += [[name, -20.0] for name in BYTES]
        t["added_tokens"] = t["added_tokens"][:3]
    return t


def load(name):
    with open(os.path.join(TOKENIZERS, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def check_texts(folder, name, tokenizer, texts, ids):
    """All texts as files of one call, singly where they differ."""
    outcome, out = tokenize(folder, texts, tokenizer)
    if outcome.status == 0 and read_shard(out)[0] == [id for one in ids for id in one]:
        passed[0] += 1
        return
    for text, want in zip(texts, ids):
        outcome, out = tokenize(folder, [text], tokenizer)
        got = read_shard(out)[0] if outcome.status == 0 else outcome.err
        expect("%s, text %r" % (name, text), got == want, "%s, not %s" % (got, want))


def check_variants(folder):
    """Normalizers, SentencePiece's BPE and unigram."""
    cases, bases = load("variants"), {}
    for variant in cases["variants"]:
        base = bases.setdefault(variant["base"], load(variant["base"]))
        path = write(os.path.join(folder, "variant.json"), json.dumps(variant_of(base, variant["change"])).encode())
        check_texts(folder, variant["name"], path, cases["texts"], variant["ids"])


def bert_like():
    with open(os.path.join(TOKENIZERS, "bert_vocab.txt"), encoding="utf-8") as file:
        tokens = file.read().splitlines()
    whole = load("wordpiece")["variants"][0]["file"]
    whole["model"]["vocab"] = {token: i for i, token in enumerate(tokens)}
    return whole


def check_wordpiece(folder):
    """BERT's tokenizer: its vocabulary with the settings alongside it, and the tokenizer.json that transformers makes of both."""
    cases = load("wordpiece")
    with open(os.path.join(TOKENIZERS, "bert_vocab.txt"), "rb") as file:
        vocabulary = file.read()
    tokens = vocabulary.decode().splitlines()
    for variant in cases["variants"]:
        path = write(os.path.join(folder, "vocab.txt"), vocabulary)
        write(os.path.join(folder, "tokenizer_config.json"), json.dumps(variant["settings"]).encode())
        whole = json.loads(json.dumps(variant["file"]))
        whole["model"]["vocab"] = {token: i for i, token in enumerate(tokens)}
        for kind, tokenizer in (("vocab.txt", path), ("tokenizer.json", write(os.path.join(folder, "whole.json"), json.dumps(whole).encode()))):
            check_texts(folder, "WordPiece, %s, %s" % (variant["name"], kind), tokenizer, cases["texts"], variant["ids"])
    outcome, out = tokenize(folder, ["The the"], write(os.path.join(folder, "vocab.txt"), b"[UNK]\r\nthe\r\n"))
    expect("lines of Windows", outcome.status == 0 and read_shard(out)[0] == [1, 1], outcome.err)
    for name, content, words in (("no unknown token", b"the\n", ("Z0806", "`[UNK]`")), ("no text", b"\xff\n", ("Z0806", "no vocabulary"))):
        refused("WordPiece: " + name, tokenize(folder, ["x"], write(os.path.join(folder, "vocab.txt"), content))[0], *words)
    for name, change in (("bytes", {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}),
                         ("marks", {"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}})):
        refused("WordPiece of " + name, tokenize(folder, ["x"], write(os.path.join(folder, "whole.json"), json.dumps(dict(whole, **change)).encode()))[0], "Z0807", "WordPiece")


def refuse_sentencepiece(folder):
    """The same for files of SentencePiece's kind."""
    bases = {name: load(name) for name in ("llama_like", "t5_like")}

    def changed(name, base, change, *words, text="x"):
        tokenizer = json.loads(json.dumps(bases[base]))
        change(tokenizer)
        damaged = write(os.path.join(folder, "damaged.json"), json.dumps(tokenizer).encode())
        refused(base + ": " + name, tokenize(folder, [text], damaged)[0], *words)

    spaces = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    strip = {"type": "Strip", "strip_left": True, "strip_right": False}
    changed("a byte is missing", "llama_like", lambda t: t["model"]["vocab"].pop("<0x0A>"), "Z0807", "255 of 256")
    changed("unknown token", "llama_like", lambda t: t["model"].update(unk_token="<none>"), "Z0806", "<none>")
    changed("unknown characters", "llama_like", lambda t: t["model"].update(unk_token=None, byte_fallback=False), "Z0808", "`\u0416`",
            text="a \u0416")
    changed("unknown characters", "t5_like", lambda t: t["model"].update(unk_id=None), "Z0808", "`\u0416`", text="a \u0416")
    changed("sampling", "llama_like", lambda t: t["model"].update(dropout=0.5), "Z0807", "dropout")
    changed("ends of words", "llama_like", lambda t: t["model"].update(end_of_word_suffix="</w>"), "Z0807", "ends of words")
    changed("a mark of two", "llama_like", lambda t: t.update(pre_tokenizer=dict(spaces, replacement="__")), "Z0806", "Metaspace")
    changed("no mark", "llama_like", lambda t: t.update(pre_tokenizer=dict(spaces, replacement="")), "Z0806", "Metaspace")
    changed("another scheme", "llama_like", lambda t: t.update(pre_tokenizer=dict(spaces, prepend_scheme="last")), "Z0806", "`last`")
    changed("a beginning that may go", "llama_like", lambda t: t.update(normalizer=strip, pre_tokenizer=spaces), "Z0807", "first")
    changed("a replacement of nothing", "llama_like", lambda t: t.update(normalizer={"type": "Replace"}), "Z0806", "Replace")
    changed("a pattern that is none", "llama_like", lambda t: t.update(
        normalizer={"type": "Replace", "pattern": {"Regex": "(a"}, "content": ""}), "Z0806", "(a")
    changed("too many", "llama_like", lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 17}), "Z0807", "sixteen")
    changed("a token that goes", "llama_like", lambda t: (t["added_tokens"][1].update(normalized=True), t.update(
        normalizer={"type": "Replace", "pattern": {"String": "<s>"}, "content": ""})), "Z0807", "`<s>`")
    changed("a piece without a score", "t5_like", lambda t: t["model"]["vocab"][3].pop(), "Z0806", "piece 3")
    changed("a score that is none", "t5_like", lambda t: t["model"]["vocab"][3].__setitem__(1, "x"), "Z0806", "piece 3")
    changed("no pieces", "t5_like", lambda t: t["model"].update(vocab={}), "Z0806", "no list")
    changed("unknown piece", "t5_like", lambda t: t["model"].update(unk_id=4000), "Z0806", "unk_id")
    for name, value in (("words", "abc!"), ("too short", "AAAA"), ("a size beyond", "////f0FBQUE="), ("none", "")):
        changed("a map, " + name, "t5_like", lambda t: t["normalizer"].update(precompiled_charsmap=value), "Z0806", "charsmap")
    good = bases["t5_like"]["normalizer"]["precompiled_charsmap"]
    for at in range(8, len(good) - 8, max(1, len(good) // 60)):  # a damaged trie is found, or maps something else
        tokenizer = json.loads(json.dumps(bases["t5_like"]))
        tokenizer["normalizer"]["precompiled_charsmap"] = good[:at] + ("A" if good[at] != "A" else "/") + good[at + 1:]
        path = write(os.path.join(folder, "damaged.json"), json.dumps(tokenizer).encode())
        outcome, _ = tokenize(folder, ["\ufb01ne \uff21\uff22 e\u0301 \u2122 x"], path)
        expect("a map with another digit at %d" % at, outcome.status == 0 or (outcome.status == 1 and "damaged" in outcome.err)
               or "precompiled" in outcome.err, outcome.err)


def check_damaged(folder):
    """Tokenizers with parts exchanged from a seed: ids or a refusal, never a crash."""
    draw, bad = random.Random(3), []
    names = ("gpt2_like", "llama_like", "t5_like", "bert_like")
    values = [0, -1, 2 ** 31, 1e300, None, True, "", "x", "\u2581", [], {}, [0], ["a", "b"], {"type": "NFC"}, {"type": "Metaspace"}]

    def places(value, found):
        for key in (value if isinstance(value, dict) else range(len(value))):
            found.append((value, key))
            if isinstance(value[key], (dict, list)):
                places(value[key], found)
        return found

    bases = [bert_like() if name == "bert_like" else load(name) for name in names]
    for i in range(200):
        tokenizer = json.loads(json.dumps(draw.choice(bases)))
        found = places({key: value for key, value in tokenizer.items() if key != "model"}, [])
        found += [(tokenizer["model"], key) for key in tokenizer["model"]]
        found += draw.sample(places(tokenizer["model"], []), 20)
        for where, key in draw.sample(found, draw.randint(1, 3)):
            try:
                where[key] = draw.choice(values)
            except (IndexError, KeyError):
                pass
        for key in ("normalizer", "pre_tokenizer", "added_tokens"):
            if draw.randrange(6) == 0:
                tokenizer[key] = draw.choice(values)
        path = write(os.path.join(folder, "damaged.json"), json.dumps(tokenizer).encode())
        outcome, _ = tokenize(folder, ["The mill \ufb01ne <s> \u0416\n"], path)
        if outcome.status not in (0, 1) or (outcome.status == 1) != ("error[Z080" in outcome.err):
            bad.append((i, outcome.status, outcome.err[-300:]))
    expect("damaged tokenizers", not bad, str(bad[:3]))


def check_refusals(folder):
    path = os.path.join(TOKENIZERS, "gpt2_like.json")
    with open(path, encoding="utf-8") as file:
        text = file.read()

    def changed(name, change, *words):
        tokenizer = json.loads(text)
        change(tokenizer)
        damaged = write(os.path.join(folder, "damaged.json"), json.dumps(tokenizer).encode())
        refused(name, tokenize(folder, ["x"], damaged)[0], *words)

    changed("normalizer", lambda t: t.update(normalizer={"type": "StripAccents"}), "Z0807", "StripAccents")
    changed("unigram of bytes", lambda t: t["model"].update(type="Unigram"), "Z0807", "ByteLevel")
    changed("words", lambda t: t["model"].update(type="WordLevel"), "Z0807", "WordLevel")
    changed("dropout", lambda t: t["model"].update(dropout=0.1), "Z0807", "dropout")
    changed("space before", lambda t: t["pre_tokenizer"].update(add_prefix_space=True), "Z0807", "add_prefix_space")
    changed("other steps", lambda t: t.update(pre_tokenizer={"type": "Whitespace"}), "Z0807", "Whitespace")
    changed("swallowing", lambda t: t["added_tokens"][0].update(rstrip=True), "Z0807", "rstrip")
    changed("no bytes", lambda t: t["model"]["vocab"].pop("a"), "Z0807", "byte 97")
    changed("no vocabulary", lambda t: t["model"].pop("vocab"), "Z0806", "model.vocab")
    changed("a rule of nothing", lambda t: t["model"]["merges"].insert(3, "q q"), "Z0806", "rule 3")
    changed("no pair", lambda t: t["model"]["merges"].insert(2, "qq"), "Z0806", "rule 2")
    changed("negative id", lambda t: t["model"]["vocab"].update(a=-1), "Z0806", "`a`")
    changed("a pattern that is none", lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}]}), "Z0806", "(a")
    refuse_sentencepiece(folder)
    refused("no JSON", tokenize(folder, ["x"], write(os.path.join(folder, "none.json"), b"{"))[0], "Z0806", "line 1")
    refused("not there", tokenize(folder, ["x"], os.path.join(folder, "missing.json"))[0], "Z0806", "missing.json")
    refused("no such token", tokenize(folder, ["x"], path, "--eod", "<eos>")[0], "Z0806", "<eos>")
    for name, content, where in (("stray", b"abc\x80", 3), ("short", b"ab\xe6\x97", 2), ("surrogate", b"\xed\xa0\x80", 0),
                                 ("long form", b"a\xc0\xaf", 1), ("too large", b"\xf4\x90\x80\x80", 0)):
        outcome, out = tokenize(folder, [content], path)
        refused("UTF-8: " + name, outcome, "Z0808", "byte %d " % where)
    outcome = harness.zplan("data", path, "-o", os.path.join(folder, "x.bin"), "--eod", "<|endoftext|>")
    expect("--eod alone", outcome.status == 2 and "--tokenizer" in outcome.err, outcome.err)
    expect("nothing half-written", not [f for f in os.listdir(folder) if ".tmp-" in f])


# ---- Megatron's datasets ----

TYPES = {"u1": (1, "B"), "i2": (3, "h"), "i4": (4, "i"), "i8": (5, "q"), "u2": (8, "H")}


def write_megatron(prefix, ids, kind="u2", lengths=None, code=None, version=1):
    code_of, letter = TYPES[kind]
    lengths = lengths or [len(ids) // 3, 0, len(ids) - len(ids) // 3]
    width = struct.calcsize("<" + letter)
    begins = [sum(lengths[:i]) * width for i in range(len(lengths))]
    write(prefix + ".bin", struct.pack("<%d%s" % (len(ids), letter), *ids))
    return write(prefix + ".idx", b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, code or code_of, len(lengths), len(lengths) + 1) +
                 struct.pack("<%di" % len(lengths), *lengths) + struct.pack("<%dq" % len(lengths), *begins) +
                 struct.pack("<%dq" % (len(lengths) + 1), *range(len(lengths) + 1)))


def train(folder, name, data, *settings):
    log = os.path.join(folder, name + ".jsonl")
    outcome = harness.zplan("run", EXAMPLE, "--ranks", 1, "--steps", 2, "--log", log, "-o", os.path.join(folder, "tree"),
                            "--set", "data=%s" % data, "--set", "batch=4",
                            *settings, "--overwrite", "--", "--checkpoint", os.path.join(folder, "checkpoints"))
    return outcome, [step["loss"] for step in harness.read_log(log)[0]] if outcome.status == 0 else None


def check_megatron(folder):
    ids = [(i * i + 7 * (i // 5)) % 250 for i in range(2000)]
    shard = write(os.path.join(folder, "ids.bin"),
                  struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253) + struct.pack("<%dH" % len(ids), *ids))
    outcome, want = train(folder, "llmc", 'tokens("%s")' % shard)
    expect("llm.c shard", want is not None and len(want) == 2, outcome.tail())
    for kind in TYPES:
        index = write_megatron(os.path.join(folder, "set_" + kind), ids, kind)
        outcome, got = train(folder, kind, 'tokens("%s", format = "megatron")' % index)
        expect("the same training from %s" % kind, got == want, outcome.tail())
    half = len(ids) // 2
    for part, begin in enumerate((0, half)):
        write_megatron(os.path.join(folder, "part%d" % part), ids[begin:begin + half], "i4")
    outcome, got = train(folder, "parts", 'tokens("%s")' % os.path.join(folder, "part*.idx"))
    expect("two datasets, one stream", got == want, outcome.tail())

    def bad(name, words, change=None, **how):
        prefix = os.path.join(folder, "bad")
        index = write_megatron(prefix, how.pop("ids", ids), **how)
        if change:
            change(prefix)
        outcome, _ = train(folder, "bad", 'tokens("%s")' % index)
        expect("refused: " + name, outcome.status == 1 and all(word in outcome.err for word in words), outcome.tail())

    def cut(path, size):
        with open(path, "r+b") as file:
            file.truncate(size)

    bad("negative ids", ["Z0803", "id -3 "], ids=[-3] + ids[1:], kind="i2")
    bad("ids beyond the vocabulary", ["Z0803", "id 4294967301 "], ids=[2 ** 32 + 5] + ids[1:], kind="i8")
    bad("floating point", ["Z0802", "type of tokens 7"], code=7)
    bad("another version", ["Z0802", "version 2"], version=2)
    bad("sequences that overlap", ["Z0802", "sequence 1"], lengths=[700, -1, 1301])
    bad("a truncated index", ["Z0802", "truncated"], change=lambda p: cut(p + ".idx", 60))
    bad("less than a header", ["Z0802", "no index"], change=lambda p: cut(p + ".idx", 20))
    bad("a truncated .bin", ["Z0802", "its .bin has 3998"], change=lambda p: cut(p + ".bin", 3998))
    bad("no .bin", ["Z0801", "bad.bin"], change=lambda p: os.remove(p + ".bin"))
    outcome, _ = train(folder, "bin", 'tokens("%s")' % os.path.join(folder, "set_u2.bin"))
    expect("a .bin is pointed to its .idx", outcome.status == 1 and ".idx" in outcome.err, outcome.tail())
    outcome, _ = train(folder, "format", 'tokens("%s", format = "megatron")' % shard)
    expect("a format that is not the file's", outcome.status == 1 and "Z0304" in outcome.err, outcome.tail())


def main():
    harness.require_zplan()
    harness.build_quickly()
    with harness.Scratch() as folder:
        check_tokenizers(folder)
        check_variants(folder)
        check_wordpiece(folder)
        check_refusals(folder)
        check_damaged(folder)
        check_megatron(folder)
    print("%d passed, %d failed" % (passed[0], len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
