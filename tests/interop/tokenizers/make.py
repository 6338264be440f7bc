#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes llama_like.json, t5_like.json and variants.json; by hand, not in tests: wants Hugging Face tokenizers (0.23.3 was
used) and sentencepiece (for a small charsmap). What is in variants.json is what these programs gave."""
import json
import os
import random
import tempfile

import sentencepiece
import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "torch", "text.txt")
MARK = "\u2581"
BYTES = ["<0x%02X>" % byte for byte in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]


def added(*names, first=0, **how):
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return [dict(id=first + i, content=name, **dict(flags, **how)) for i, name in enumerate(names)]


def tokenizer_of(model, normalizer, words, tokens):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": words, "post_processor": None, "decoder": None, "model": model}


def llama_like():
    """SentencePiece's BPE as in LLaMA-2: special tokens, bytes, rules, characters; no pre_tokenizer."""
    trained = tokenizers.SentencePieceBPETokenizer()
    trained.train([TEXT], vocab_size=330, min_frequency=2, show_progress=False)
    model = json.loads(trained.to_str())["model"]
    merges = model["merges"] + [[MARK, MARK], [MARK * 2, MARK * 2]]
    texts = SPECIAL + BYTES + sorted(model["vocab"], key=model["vocab"].get) + [MARK * 2, MARK * 4]
    vocab = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return tokenizer_of({"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                         "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                         "vocab": vocab, "merges": merges},
                        {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK},
                                                             {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]},
                        None, added(*SPECIAL))


def charsmap():
    """A few rules of SentencePiece: ligatures, full-width letters, a removed control character, a joined accent."""
    rules = {"\ufb01": "fi", "\uff21": "A", "\uff22": "B", "\u2122": "TM", "\x01": "", "\u3000": " ", "e\u0301": "\u00e9",
             "\u00bd": "1/2", "\t": " ", "\n": " ", "\u212b": "\u00c5"}
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/rules.tsv", "w", encoding="utf-8") as file:
            for old, new in rules.items():
                file.write("%s\t%s\n" % (" ".join("%X" % ord(c) for c in old), " ".join("%X" % ord(c) for c in new)))
        sentencepiece.SentencePieceTrainer.train(input=TEXT, model_prefix=folder + "/m", vocab_size=60, hard_vocab_limit=False,
                                                 normalization_rule_tsv=folder + "/rules.tsv", minloglevel=2)
        from sentencepiece import sentencepiece_model_pb2 as proto
        model = proto.ModelProto()
        with open(folder + "/m.model", "rb") as file:
            model.ParseFromString(file.read())
    import base64
    return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


def t5_like():
    trained = tokenizers.SentencePieceUnigramTokenizer()
    trained.train([TEXT], vocab_size=400, show_progress=False, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"])
    model = json.loads(trained.to_str())["model"]
    model = {"type": "Unigram", "unk_id": 2, "vocab": model["vocab"], "byte_fallback": False}
    model["vocab"] += [["\u00e9", -8.5], ["fi", -9.25], [MARK + MARK, -7.0], ["\u00e9\u00e9", -9.0]]
    return tokenizer_of(model, {"type": "Precompiled", "precompiled_charsmap": charsmap()},
                        {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
                                                               {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}]},
                        added("<pad>", "</s>", "<unk>") + added("<extra_id_0>", "<extra_id_1>", first=len(model["vocab"])))


def texts():
    given = ["", "x", " ", "   two  spaces \t\n\n and   the end   ", "A plan for a journey is not the journey.",
             "The mill<s> on the river</s>grinds <unk> it. <s><s>", "<s>first", " <s> first", "caf\u00e9 cafe\u0301 \u212b A\u030a \u00c5 \u1e9b\u0323 \ufb01ne \u2122",
             "\u00bd \uff21\uff22 \uac00 \u1100\u1161 \u0130stanbul STRASSE \u039f\u03a3 \u03a3 \u212a", "\u65e5\u672c\u8a9e \U0001f642\u200d\U0001f643 \u0416 na\u00efve",
             MARK + "mark " + MARK + MARK + " marks" + MARK, "\x01con\x01trol\x01", "\u00a0\u3000\u2028hard\u180espaces\u0085",
             "e\u0301e\u0301e\u0301 \u00e9\u00e9\u00e9", "<extra_id_0>Thank<extra_id_1> you", "carts" * 40, "\u0301 alone", "the\tmiller\r\ncounts", "a b" * 30]
    draw = random.Random(5)
    pool = list("aeiou thrsn TMA,.") + [" ", "  ", MARK, "\u00e9", "e\u0301", "\u0416", "\ufb01", "\U0001f642", "\n", "<s>", "</s>", "journey", " the", "\u3000", "\x01", "\u0130"]
    return given + ["".join(draw.choice(pool) for _ in range(draw.randint(2, 40))) for _ in range(16)]


NORMALIZERS = {
    "nfc": {"type": "NFC"}, "nfd": {"type": "NFD"}, "nfkc": {"type": "NFKC"}, "nfkd": {"type": "NFKD"}, "lower": {"type": "Lowercase"},
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True}, "strip right": {"type": "Strip", "strip_left": False, "strip_right": True},
    "replace": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    "remove": {"type": "Replace", "pattern": {"String": "e"}, "content": ""},
    "many": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Lowercase"},
                                                 {"type": "Replace", "pattern": {"Regex": "\\p{M}+"}, "content": ""}, {"type": "Prepend", "prepend": "> "},
                                                 {"type": "NFC"}]},
}


def space(scheme, split, mark=MARK):
    return {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": split}


def variants():
    for name, normalizer in NORMALIZERS.items():
        yield "gpt2 " + name, "gpt2_like", {"normalizer": normalizer}
        yield "llama " + name, "llama_like", {"normalizer": {"type": "Sequence", "normalizers": [
            normalizer, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}}
    yield "llama3 nfc", "llama3_like", {"normalizer": NORMALIZERS["nfc"]}
    yield "llama", "llama_like", {}
    yield "llama, normalized tokens", "llama_like", {"added_tokens": added("<unk>") + added("<s>", "</s>", first=1, normalized=True)}
    for scheme in ("first", "always", "never"):
        for split in (False, True):
            yield "mistral %s %s" % (scheme, split), "llama_like", {"normalizer": None, "pre_tokenizer": space(scheme, split)}
            yield "t5 %s %s" % (scheme, split), "t5_like", {"pre_tokenizer": space(scheme, split)}
    yield "older metaspace", "llama_like", {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}}
    yield "llama, digits and spaces", "llama_like", {"normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True}, space("always", True)]}}
    yield "another mark", "llama_like", {"normalizer": None, "pre_tokenizer": space("always", True, "_")}
    yield "llama, unknown characters", "llama_like", {"model": {"byte_fallback": False}}
    yield "llama, every unknown character", "llama_like", {"model": {"byte_fallback": False, "fuse_unk": False}}
    yield "llama, whole words", "llama_like", {"normalizer": None, "pre_tokenizer": space("always", True), "model": {"ignore_merges": True}}
    joins = [[".", MARK], ["s", MARK + "t"]]
    yield "llama, rules over marks", "llama_like", {"joins": joins}
    yield "t5", "t5_like", {}
    yield "t5 without a map", "t5_like", {"normalizer": None}
    yield "t5 bytes", "t5_like", {"bytes": True}


def change(base, how):
    """The tokenizer of a variant; tokens.py has the same."""
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


def write(name, value, **how):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"), **how)
        file.write("\n")


def main():
    write("llama_like.json", llama_like())
    write("t5_like.json", t5_like())
    all_texts, out = texts(), []
    for name, base, how in variants():
        with open(os.path.join(HERE, base + ".json"), encoding="utf-8") as file:
            changed = change(json.load(file), how)
        t = tokenizers.Tokenizer.from_str(json.dumps(changed))
        out.append({"name": name, "base": base, "change": how,
                    "ids": [t.encode(text, add_special_tokens=False).ids for text in all_texts]})
    write("variants.json", {"texts": all_texts, "variants": out})


main()
