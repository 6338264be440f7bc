#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights of Hugging Face into a training and out of it.

    weights.py [--update]

For every family a small published-format checkpoint (families.py): the loss of the first step is transformers' to 1e-5 (committed in
expected.json; from a live run, too, where some Python has transformers: PYTHON=path chooses one); trained 0 steps and exported it has the
same bytes, on one rank and on 4 in other layouts; models with other names and fused projections start from it likewise; trained models
are exported and loaded. `zplan sample` gives the tokens of transformers' greedy decoding, `zplan eval` its loss and accuracy. What is wrong with folders and models is told with code, place and help, and nothing is left half-written.
--update writes expected.json from a live run.
"""
import json
import os
import random
import re
import shutil
import struct
import sys

import families

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

BOUND = 1e-5
TEXT = os.path.join(HERE, "text.txt")  # the one that the references have read
EXPECTED = os.path.join(HERE, "expected.json")
NEW_TOKENS = 12
SPREAD = {"tensor 2 x pipeline 2": ("gpt2", "deepseek_v3", "gemma2"), "ZeRO 3": ("gpt_neox",)}  # families that are tried on them: the runtime knows none
LAYOUTS = {"tensor 2 x pipeline 2": ("tensor=2", "pipeline=2", "data=1"), "ZeRO 3": ("tensor=1", "pipeline=1", "data=4", "zero=3")}
# Checked where transformers is there, too: CI has their losses, and the same kernels with other families.
BY_HAND = {"sample": ("gemma3_text", "gpt_neox_part", "olmo2", "qwen3_moe"), "library": ("gemma2",),
           "eval": ("gemma2", "gemma3_text", "deepseek_v3", "gpt_neox_part", "olmo2", "phi3", "qwen2_moe", "qwen3_moe")}
REST = """
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 2, memory = 8GiB) }
train {
  model = %s  data = text("%s")  batch = 4  steps = 1  precision = "%s"  dropout = 0.0  seed = 3
  optimizer = adamw(lr = 1e-3)%s
}
"""
OWN = """use std.nn
use std.hw
block layer(x: [B, S, d], heads: int) -> [B, S, d] {
  n1 = layer_norm(x)
  q  = linear(n1, d)
  k  = linear(n1, d)
  v  = linear(n1, d)
  a  = x + linear(attention(q, k, v, heads = heads), d)
  up = gelu(linear(layer_norm(a), 4 * d), approximate = "tanh")
  return linear(up, d) + a
}
model own(V = 256, S = 32, d = 48, layers = 3, heads = 4) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param words: [V, d]
  param places: [S, d]
  x = embedding(tokens, words) + places
  repeat i in 0..layers { x = layer(x, heads = heads) }
  output loss = cross_entropy(matmul(layer_norm(x), transpose(words)), labels)
}
"""
FUSED = """use std.nn
use std.hw
block layer(x: [B, S, d], heads: int, ff: int) -> [B, S, d] {
  param turned: [d, d]
  q, k, v = split(linear(rms_norm(x, eps = 1e-6), 3 * d, bias = false), 3)
  y  = attention(rope(q, heads = heads), rope(k, heads = heads), v, heads = heads)
  a  = matmul(y, turned) + x
  gate, up = split(linear(rms_norm(a, eps = 1e-6), 2 * ff, bias = false), 2)
  return a + linear(up * silu(gate), d, bias = false)
}
model fused(V = 256, S = 32, d = 48, layers = 2, heads = 6, ff = 80) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param table: [V, d]
  x = embedding(tokens, table)
  repeat i in 0..layers { x = layer(x, heads = heads, ff = ff) }
  output loss = cross_entropy(linear(rms_norm(x, eps = 1e-6), V, bias = false), labels)
}
"""

LIBRARY = """use std.nn
use std.models
use std.hw
model %s(V = 256, S = 32, d = 48) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param embed: [V, d]
  %s
  x = embedding(tokens, embed)%s
  repeat i in 0..%d { x = %s }
  output loss = cross_entropy(matmul(%s, transpose(%s)), labels)
}
"""
GROUPED = "heads = 6, kv_heads = 2, head = 8, ff = %d, window = S, "
GEMMA = "heads = 4, kv_heads = 2, head = 16, ff = 80, softcap = 2.0, query_scalar = 20.0, "
BY_THE_LIBRARY = {  # layers of std.models: the other parameter, what is added, how many, the layer, the last norm, the head
    "gpt2": ("param places: [S, d]", " + places", 3, "gpt2_layer(x, heads = 4, ff = 4 * d)", "layer_norm(x)", "embed"),
    "gpt_neox_part": ("param head: [V, d]", "", 2, "neox_layer(x, heads = 4, ff = 96, rotary = 6)", "layer_norm(x)", "head"),
    "llama": ("param head: [V, d]", "", 3, "llama_layer(x, %seps = 1e-6)" % GROUPED % 80, "rms_norm(x, eps = 1e-6)", "head"),
    "qwen3": ("", "", 2, "qwen3_layer(x, heads = 6, kv_heads = 2, head = 8, ff = 80, theta = 10000.0)", "rms_norm(x, eps = 1e-6)", "embed"),
    "gemma2": ("", " * sqrt(d)", 2, "gemma2_layer(gemma2_layer(x, %swindow = 7), %swindow = S)" % (GEMMA, GEMMA), "gemma2_norm(x)", "embed"),
    "mixtral": ("param head: [V, d]", "", 2, "mixtral_layer(x, %sexperts = 4, top_k = 2, capacity = 2.0)" % GROUPED % 64, "rms_norm(x)", "head"),
}


class Bench:
    def __init__(self, tally, folder):
        self.tally, self.folder = tally, folder
        self.references, self.largest, self.live = {}, 0.0, False

    def left_to_hand(self, part, name):
        return not self.live and name in BY_HAND[part]

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def model(self, name, text, init="", precision="fp32", called=None):
        return self.write(name + ".dz", text + REST % (called or name, TEXT, precision, init))

    def train(self, model, *words, steps=1, ranks=1, checkpoint="ck", settings=()):
        """(outcome, loss of the first step or None, checkpoint folder)"""
        log, tree = self.path("log.jsonl"), self.path("tree-%s-%d" % (os.path.basename(model), ranks))
        outcome = harness.zplan("run", model, "--ranks", ranks, "--steps", steps, "--overwrite", "--log", log, "-o", tree, *words,
                                *(word for s in settings for word in ("--set", s)), "--", "--checkpoint", self.path(checkpoint))
        loss = harness.read_log(log)[0][0]["loss"] if outcome.status == 0 and steps else None
        return outcome, loss, self.path(checkpoint)

    def check_loss(self, title, outcome, loss, want):
        error = harness.number_error(loss, want)
        self.largest = max(self.largest, error)
        return self.tally.check(title, outcome.status == 0 and error <= BOUND, "%s: %.2e\n%s" % (loss, error, outcome.tail()))

    def refused(self, title, outcome, code, *words, left=None):
        good = outcome.status == 1 and "error[%s]" % code in outcome.err and all(word in outcome.err for word in words)
        self.tally.check(title, good, "%d %s" % (outcome.status, outcome.err[-900:]))
        if left is not None:
            self.tally.check(title + ": nothing is left", sorted(os.listdir(self.folder)) == left, str(os.listdir(self.folder)))


def python_with_transformers():
    for python in filter(None, (os.environ.get("PYTHON"), "python3", "/usr/bin/python3")):
        if harness.run([python, "-c", "import torch, transformers"]).status == 0:
            return python
    return None


def prompts():
    with open(TEXT, "rb") as file:
        text = file.read()
    return [list(text[211 * i:211 * i + 3 + i % 9]) for i in range(20)]


def live(bench, python, folders):
    request = {"text": TEXT, "sequence": families.SEQUENCE, "batch": families.BATCH, "new": NEW_TOKENS, "prompts": prompts(), "folders": folders}
    bench.write("request.json", json.dumps(request))
    outcome = harness.run([python, os.path.join(HERE, "reference.py"), bench.path("request.json"), bench.path("answer.json")])
    if not bench.tally.check("transformers", outcome.status == 0, outcome.tail()):
        return None
    with open(bench.path("answer.json"), encoding="utf-8") as file:
        return json.load(file)


def references(bench, python, update):
    folders = {name: families.write(bench.path(name), name) for name in families.FAMILIES}
    found = live(bench, python, folders) if python else None
    if found and update:
        with open(EXPECTED, "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    with open(EXPECTED, encoding="utf-8") as file:
        committed = json.load(file)
    bench.references, bench.live = committed["models"], found is not None
    for name in folders if found else ():
        error = harness.number_error(found["models"][name]["loss"], committed["models"][name]["loss"])
        bench.tally.check("transformers %s, loss of %s as committed" % (found["transformers"], name), error < 1e-6, "%.2e" % error)


def imported(bench, name):
    """The .dz file of a family's config.json, for CPU ranks."""
    outcome = harness.zplan("import", "hf", bench.path(name, "config.json"))
    bench.tally.check("import of " + name, outcome.status == 0, outcome.tail())
    text = re.sub(r"\bS = \d+", "S = %d" % families.SEQUENCE, outcome.out[:outcome.out.index("cluster gpus")], count=1)
    return bench.model(name, text, called=families.FAMILIES[name][0]["model_type"])


def same_folder(bench, title, one, other):
    names = sorted(os.listdir(one))
    good = sorted(os.listdir(other)) == names and all(harness.same_bytes(os.path.join(one, n), os.path.join(other, n)) for n in names)
    bench.tally.check(title, good, "%s %s" % (names, os.listdir(other)))


def round_trip(bench, name, number, model):
    """The loss, then 0 steps and back: one rank, and the layouts. A third of the families by turns, GPT-2 and ZeRO 3 always."""
    due = number == 0 or harness.my_turn(number, 3)
    want, dtype = bench.references[name]["loss"], families.FAMILIES[name][2].lower()
    if due:
        outcome, loss, _ = bench.train(model, "--init", bench.path(name))
        bench.check_loss("%s: loss of the first step" % name, outcome, loss, want)
    for title, settings in dict({"one rank": ()}, **LAYOUTS).items():
        spread = SPREAD.get(title, ())
        if not due if title == "one rank" else name not in spread or not harness.my_turn(spread.index(name), len(spread)):
            continue
        ranks, out = (4, bench.path("out")) if settings else (1, bench.path("out"))
        outcome, _, checkpoint = bench.train(model, "--init", bench.path(name), steps=0, ranks=ranks, settings=settings)
        export = harness.zplan("export", "hf", checkpoint, "-o", out, "--dtype", dtype)
        if bench.tally.check("%s on %s: exported" % (name, title), outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
            same_folder(bench, "%s on %s: the same bytes" % (name, title), bench.path(name), out)
        shutil.rmtree(out, ignore_errors=True)


def within_documents(bench):
    """Documents of a sample that do not see each other change nothing in what weights mean: in and out to the byte."""
    text = OWN.replace("heads = heads), d)", "heads = heads, documents = documents), d)").replace("x: [B, S, d], heads", "x: [B, S, d], documents, heads")
    text = text.replace("layer(x, heads", "layer(x, documents, heads").replace("  param words", "  input documents: i32[B, S]\n  param words")
    packed = os.path.join(harness.ROOT, "tests", "torch", "packed")
    model = bench.model("packed", text, '  init = weights("gpt2")', called="own")
    outcome, _, checkpoint = bench.train(model, steps=0, settings=('train.data=arrays("%s")' % packed,))
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"))
    if bench.tally.check("within documents: exported", outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
        same_folder(bench, "within documents: the same bytes", bench.path("gpt2"), bench.path("out"))
        shutil.rmtree(bench.path("out"))


def written_otherwise(bench):
    """Names of one's own; separate projections for fused ones, fused for separate, transposed; `init` in the file."""
    want = bench.references["gpt2"]["loss"]
    model = bench.model("own", OWN, '  init = weights("gpt2")')
    outcome, loss, checkpoint = bench.train(model)
    bench.check_loss("own names, separate projections", outcome, loss, want)
    outcome, loss, _ = bench.train(model, ranks=3, settings=("tensor=3",))
    bench.check_loss("own names, 4 heads on 3 ranks", outcome, loss, want)
    outcome, _, checkpoint = bench.train(model, steps=0)
    outcome, loss, _ = bench.train(model, "--init", checkpoint, checkpoint="ck2")
    bench.check_loss("from a checkpoint of zplan", outcome, loss, want)
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"))
    if bench.tally.check("own names: exported", export.status == 0, export.tail()):
        same_folder(bench, "own names: the same bytes", bench.path("gpt2"), bench.path("out"))
        shutil.rmtree(bench.path("out"))
    within_documents(bench)
    shutil.copytree(bench.path("gpt2"), bench.path("bare"))
    rename(bench.path("bare", "model.safetensors"), lambda name: name.replace("transformer.", "", 1))
    outcome, loss, _ = bench.train(model, "--init", bench.path("bare"))
    bench.check_loss("without the family's prefix", outcome, loss, want)
    outcome, loss, _ = bench.train(model, "--init", bench.path("bare"), settings=('precision="mixed_bf16"',))
    bench.tally.check("f32 weights in bf16", outcome.status == 0 and abs(loss - want) < 2 ** -8 * want, "%s %s" % (loss, outcome.tail()))
    fused(bench)
    goes_on(bench)


def by_the_library(bench):
    """Layers of std.models are those of the families, whatever else their models are called."""
    for number, (name, row) in enumerate(BY_THE_LIBRARY.items()):
        text = LIBRARY % ("std_" + name, *row)
        if name == "gemma2":
            text = text.replace("matmul(gemma2_norm(x), transpose(embed))", "tanh(matmul(gemma2_norm(x), transpose(embed)) / 3) * 3")
            layers_that_take_turns(bench, text)
        if bench.left_to_hand("library", name) or not harness.my_turn(number, 3):
            continue
        model = bench.model("std_" + name, text)
        outcome, loss, _ = bench.train(model, "--init", bench.path(name))
        bench.check_loss("%s of std.models" % name, outcome, loss, bench.references[name]["loss"])
        if name == "gpt_neox_part":
            bad = bench.model("bad", text.replace("rotary = 6", "rotary = 4"), called="std_" + name)
            bench.refused("another part of a head turns", bench.train(bad, "--init", bench.path(name))[0], "Z0693", "of a head from", "gpt_neox_part/config.json")


def layers_that_take_turns(bench, text):
    """What a Gemma 2 may have otherwise, told before anything is built."""
    for title, old, new, code, words in (
            ("window", "window = 7", "window = 8", "Z0693", "a window of 8 positions here, and of 7 in"),
            ("order of kinds", "window = S", "window = 7", "Z0693", "a window of 7 positions here, and of 0 in"),
            ("cap of scores", "softcap = 2.0", "softcap = 3.0", "Z0693", "capped at 3 here, and at 2 in"),
            ("cap of logits", "/ 3) * 3", "/ 3) * 4", "Z0693", "the number is 4 here, and 3 in"),
            ("scale", "query_scalar = 20.0", "query_scalar = 16.0", "Z0693", "attention's scale is 1 of the usual here"),
            ("embedding", " * sqrt(d)", "", "Z0693", "config.json"),
            ("groups", "0..2", "0..1", "Z0694", "is repeated 1 times here, and 2 times by")):
        model = bench.model("bad", text.replace(old, new), called="std_gemma2")
        bench.refused("Gemma 2 with another " + title, bench.train(model, "--init", bench.path("gemma2"))[0], code, words)


def goes_on(bench):
    """A run that began with weights: resumed from its own checkpoint, which remembers them; a trainer that is started by hand."""
    model, want = bench.model("own", OWN, '  init = weights("gpt2")'), bench.references["gpt2"]["loss"]
    build = harness.zplan("build", model, "-o", bench.path("by-hand"))
    log = bench.path("by-hand.jsonl")
    outcome = harness.run([build.out.strip(), "--steps", 1, "--checkpoint", bench.path("ck-on"), "--log", log])
    if bench.tally.check("a trainer by hand", build.status == 0 and outcome.status == 0, build.tail() + outcome.tail()):
        bench.check_loss("a trainer by hand: loss", outcome, harness.read_log(log)[0][0]["loss"], want)
    words = ("run", model, "-o", bench.path("by-hand"), "--log", bench.path("on.jsonl"), "--resume", "--set", "steps=2", "--", "--checkpoint", bench.path("ck-on"))
    outcome = harness.zplan(*words)
    steps = harness.read_log(bench.path("on.jsonl"))[0]
    bench.tally.check("goes on, and does not begin again", outcome.status == 0 and "starts from" not in outcome.err and steps[0]["step"] == 2
                      and steps[0]["loss"] != want, outcome.tail())
    with open(os.path.join(harness.step_folder(bench.path("ck-on"), 2), "manifest.json"), encoding="utf-8") as file:
        bench.tally.check("and knows where it began", json.load(file)["initial_weights"] == os.path.realpath(bench.path("gpt2")))
    os.rename(bench.path("gpt2"), bench.path("gone"))
    outcome = harness.run([build.out.strip(), "--steps", 1, "--checkpoint", bench.path("ck-gone")])
    bench.refused("weights that went offloaded", outcome, "Z0819", "cannot read the weights")
    os.rename(bench.path("gone"), bench.path("gpt2"))


def fused(bench):
    """A LLaMA whose q, k, v and gate, up are one matrix each, and whose output projection is [in, out]."""
    config = dict(families.FAMILIES["llama"][0], num_hidden_layers=2, num_key_value_heads=6)
    families.FAMILIES["llama_mha"] = (config, families.llama(layers=2, kv=48), "F32", 1)
    families.write(bench.path("llama_mha"), "llama_mha")
    model = bench.model("fused", FUSED)
    outcome, fused_loss, checkpoint = bench.train(model, "--init", bench.path("llama_mha"))
    plain = harness.zplan("import", "hf", bench.path("llama_mha", "config.json")).out
    plain = bench.model("plain", plain[:plain.index("cluster gpus")].replace("S = 64", "S = 32"), called="llama")
    outcome, loss, _ = bench.train(plain, "--init", bench.path("llama_mha"))
    bench.check_loss("fused and transposed projections", outcome, fused_loss, loss)
    bench.train(model, "--init", bench.path("llama_mha"), steps=0, ranks=2, settings=("tensor=2",))
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"))
    if bench.tally.check("fused projections: exported", export.status == 0, export.tail()):
        same_folder(bench, "fused projections: the same bytes", bench.path("llama_mha"), bench.path("out"))
        shutil.rmtree(bench.path("out"))


def dropless(bench):
    """Experts that take as many rows as choose them, as transformers' own do."""
    with open(bench.path("mixtral.dz"), encoding="utf-8") as file:
        text = file.read()
    model = bench.path("mixtral_dropless.dz")
    with open(model, "w", encoding="utf-8") as file:
        file.write(text.replace("capacity = 2.0", "capacity = dropless"))
    outcome = harness.zplan("eval", bench.path("mixtral"), model, "--data", bench.path("beginning.txt"), "--json", "-o", bench.path("looked-dropless"))
    got = json.loads(outcome.out) if outcome.status == 0 else {}
    bench.tally.check("mixtral has one capacity", text.count("capacity = 2.0") == 1, text)
    bench.check_loss("mixtral with sorted rows: loss of eval", outcome, got.get("loss"), bench.references["mixtral"]["loss"])


def looks(bench):
    """Greedy decoding token by token as transformers does it; loss and accuracy of the first samples; draws."""
    with open(TEXT, "rb") as file:
        beginning = file.read()[:families.BATCH * families.SEQUENCE + 1]
    with open(bench.path("beginning.txt"), "wb") as file:
        file.write(beginning)
    words = [word for prompt in prompts() for word in ("--prompt", os.fsdecode(bytes(prompt)))]
    for number, (name, want) in enumerate(bench.references.items()):
        if not harness.my_turn(number, 3):
            continue
        model, tree = bench.path(name + ".dz"), bench.path("looked-" + name)
        if not bench.left_to_hand("sample", name):
            outcome = harness.zplan("sample", bench.path(name), model, *words, "--tokens", NEW_TOKENS, "--json", "-o", tree)
            got = json.loads(outcome.out)["tokens"] if outcome.status == 0 else outcome.tail()
            bench.tally.check("%s: 20 texts token by token" % name, got == want["greedy"], str(got)[:300])
        if bench.left_to_hand("eval", name):
            continue
        outcome = harness.zplan("eval", bench.path(name), model, "--data", bench.path("beginning.txt"), "--json", "-o", tree)
        got = json.loads(outcome.out) if outcome.status == 0 else {}
        bench.check_loss("%s: loss of eval" % name, outcome, got.get("loss"), want["loss"])
        good = got.get("accuracy") == want["accuracy"] and got.get("tokens") == 128 and got.get("samples") == 4
        bench.tally.check("%s: accuracy of eval" % name, good, "%s %s" % (got, want["accuracy"]))
    dropless(bench)
    draws(bench)


def draws(bench):
    def sample(*words):
        outcome = harness.zplan("sample", bench.path("llama"), bench.path("llama.dz"), "--prompt", "ab", "-o", bench.path("looked-llama"), "--json", *words)
        return json.loads(outcome.out)["tokens"][0] if outcome.status == 0 else outcome.tail()

    greedy, one, again, other = sample(), sample("--temperature", "1"), sample("--temperature", 1, "--seed", 0), sample("--temperature", 1, "--seed", 1)
    bench.tally.check("up to the length of a sample", len(greedy) == families.SEQUENCE - 2, str(greedy))
    bench.tally.check("a seed draws the same again, another one others", one == again != other, "%s %s %s" % (one, again, other))
    bench.tally.check("the likeliest of one", sample("--temperature", 5, "--top-k", 1) == greedy == sample("--temperature", 1, "--top-p", "0%"))
    for words in (("--top-k", 3), ("--seed", 3), ("--temperature", 0), ("--tokens", 0), ("--top-p", 2, "--temperature", 1)):
        outcome = harness.zplan("sample", bench.path("llama"), bench.path("llama.dz"), "--prompt", "ab", *words)
        bench.tally.check("refused: %s" % (words,), outcome.status == 2, outcome.tail())


SPACE = "\u2581"


def decoded(tokenizer, ids):
    """Bytes of tokens, by the rules of GPT-2's alphabet (openai/gpt-2, encoder.py) and of SentencePiece."""
    vocabulary = {i: text for text, i in tokenizer["model"]["vocab"].items()}
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(b): b for b in printable}
    alphabet.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in printable)})
    by_bytes = "ByteLevel" in json.dumps(tokenizer["decoder"])
    out = b""
    for i in ids:
        text = special.get(i, vocabulary.get(i, ""))
        if i in special:
            out += text.encode()
        elif by_bytes:
            out += bytes(alphabet[c] for c in text)
        elif len(text) == 6 and text.startswith("<0x"):
            out += bytes([int(text[3:5], 16)])
        else:
            out += text.replace(SPACE, " ").encode()
    return out


def tokenized(bench):
    """Texts by a tokenizer, there and back: a model of noise, so that all kinds of tokens come."""
    model = bench.model("noise", OWN.replace("V = 256", "V = 704").replace("model own", "model noise").replace("param words: [V, d]", "param words: [V, d] ~ normal(std = 3)"))
    outcome, _, checkpoint = bench.train(model, steps=0, checkpoint="ck-noise")
    for name in ("gpt2_like", "llama_like"):
        path = os.path.join(harness.ROOT, "tests", "interop", "tokenizers", name + ".json")
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        words = ("sample", checkpoint, "--prompt", "plain text", "--tokenizer", path, "--temperature", 3, "-o", bench.path("looked-noise"))
        outcome = harness.zplan(*words, "--json")
        noted = "has 505 tokens, and the model 704: is it the tokenizer of another model?" in outcome.err
        bench.tally.check("a note on the size of " + name, noted == (name == "llama_like"), outcome.tail())
        ids = json.loads(outcome.out)["tokens"][0] if outcome.status == 0 else []
        want = "plain text" + decoded(tokenizer, ids).decode(errors="replace") + "\n"
        text = harness.zplan(*words).out
        bench.tally.check("text by " + name, len(ids) > 10 and text == want, "%r %r %s" % (text, want, outcome.tail()))


def bad_looks(bench):
    """Prompts and models that there is nothing to say of."""
    sample = lambda *words, model="own": harness.zplan("sample", bench.path("gpt2"), bench.path(model + ".dz"), "-o", bench.path("looked-bad"), *words)
    bench.model("own", OWN)
    bench.refused("a long prompt", sample("--prompt", "x" * 32), "Z0818", "32 tokens, and a sample of the model 32", "between 1 and 31")
    bench.refused("too many tokens", sample("--prompt", "xyz", "--tokens", 30), "Z0818", "can add up to 29, not 30")
    bench.model("both_ways", OWN.replace("heads = heads), d)", "heads = heads, causal = false), d)"), called="own")
    bench.refused("both ways", sample("--prompt", "x", model="both_ways"), "Z0818", "there is no next one", "both_ways.dz:8:")
    bench.model("turned", OWN.replace("return linear(up, d) + a", "return linear(up, d) + transpose(transpose(a))"), called="own")
    bench.refused("positions mixed", sample("--prompt", "x", model="turned"), "Z0818", "`transpose` sees what comes after", "turned.dz:10:")
    bench.model("narrow", OWN.replace("V = 256", "V = 128"), called="own")
    bench.refused("a byte without a token", sample("--prompt", "x\u00e9", model="narrow"), "Z0818", "byte 2 of the prompt is 195, and the model has 128", "--tokenizer")
    tokenizer = os.path.join(harness.ROOT, "tests", "interop", "tokenizers", "gpt2_like.json")
    bench.refused("another tokenizer", sample("--prompt", "x", "--tokenizer", tokenizer), "Z0806", "641 tokens, and the model 256")
    bench.refused("weights of another model", harness.zplan("sample", bench.path("llama"), bench.path("own.dz"), "--prompt", "x"), "Z0693")
    outcome = harness.zplan("eval", bench.path("gpt2"), bench.path("own.dz"), "--data", bench.path("none.txt"), "-o", bench.path("looked-bad"))
    bench.refused("no data", outcome, "Z0801", "none.txt")
    for words in (("sample", "gpt2"), ("eval", "gpt2"), ("sample",), ("sample", "gpt2", "own.dz", "--prompt", "x", "--eod", "y")):
        outcome = harness.zplan(*words)
        bench.tally.check("words of %s" % (words,), outcome.status == 2, outcome.tail())


def rename(path, new_name):
    """Other names in a safetensors file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    text = json.dumps({new_name(name): entry for name, entry in header.items()}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def trained(bench, python):
    """Models that were never imported: a config.json is made, and what comes back is the same model; files of a stated size."""
    folders, losses = {}, {}
    for number, name in enumerate(("gpt_tiny", "llama_tiny")):
        if not harness.my_turn(number, 2):
            continue
        example = os.path.join(harness.ROOT, "examples", name + ".dz")
        settings = ('data=text("%s")' % TEXT, "batch=4", "model.S=%d" % families.SEQUENCE, "model.layers=2")
        outcome, _, checkpoint = bench.train(example, steps=2, ranks=2, checkpoint="ck-" + name, settings=settings)
        folder = folders[name] = bench.path("exported-" + name)
        export = harness.zplan("export", "hf", checkpoint, "-o", folder, "--shard-size", "300KB")
        if not bench.tally.check("%s: exported" % name, outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
            continue
        sizes = [os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder) if file.endswith(".safetensors")]
        bench.tally.check("%s: files of a stated size" % name, len(sizes) > 2 and max(sizes) < 300e3 + 4096, str(sizes))
        _, mine, _ = bench.train(example, "--init", checkpoint, settings=settings)
        outcome, losses[name], _ = bench.train(example, "--init", folder, settings=settings)
        bench.tally.check("%s: the same model comes back" % name, outcome.status == 0 and losses[name] == mine, outcome.tail())
    answer = live(bench, python, folders) if python else None
    for name in folders if answer else ():
        error = harness.number_error(losses.get(name), answer["models"][name]["loss"])
        bench.tally.check("%s: loss in transformers" % name, error <= BOUND, "%.2e" % error)


def narrow(bench):
    """Every number of 16 bits, and what lies between them, as struct rounds it."""
    model = bench.model("own", OWN)
    folder = shutil.copytree(bench.path("gpt2"), bench.path("wide"))
    path = os.path.join(folder, "model.safetensors")
    tensors = harness.read_safetensors(path)
    shape, numbers = tensors["transformer.h.0.mlp.c_fc.weight"]
    halves = struct.unpack("<%de" % 9216, struct.pack("<9216H", *(h * 31743 // 9216 for h in range(9216))))  # from 0 to 65504
    for i, half in enumerate(halves):
        numbers[i] = half * (1 + (i % 5 - 2) * 2.0 ** -12) * (-1 if i % 3 else 1)
    families.write_safetensors(path, [(name, "F32", *(tensors[name][0], tensors[name][1].tobytes())) for name in sorted(tensors)])
    _, _, checkpoint = bench.train(model, "--init", folder, steps=0)
    for dtype in ("F16", "BF16"):
        export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"), "--dtype", dtype.lower())
        with open(bench.path("out", "model.safetensors"), "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header, data = json.loads(file.read(length)), file.read()
        begin, end = header["transformer.h.0.mlp.c_fc.weight"]["data_offsets"]
        good = export.status == 0 and data[begin:end] == families.encoded(numbers, dtype)
        bench.tally.check("f32 rounded to " + dtype, good, export.tail())
        shutil.rmtree(bench.path("out"))


def bad_models(bench):
    """Models that the weights are not of."""
    init = ("--init", bench.path("gpt2"))
    for title, old, new, code, words in (
            ("heads", "heads = 4) {", "heads = 6) {", "Z0693", ("6 heads here, and 4 in", "bad.dz:8:")),
            ("gelu", '"tanh"', '"none"', "Z0693", ("computed by erf here",)),
            ("scale", "heads = heads), d)", "heads = heads, scale = 0.5), d)", "Z0693", ("attention's scale",)),
            ("not causal", "heads = heads), d)", "heads = heads, causal = false), d)", "Z0693", ("sees other positions",)),
            ("eps", "layer_norm(a)", "layer_norm(a, eps = 1e-6)", "Z0693", ("`eps` is 1e-06 here, and 1e-05 in",)),
            ("no bias", "  q  = linear(n1, d)", "  q  = linear(n1, d, bias = false)", "Z0693", ("config.json",)),
            ("other order", "linear(up, d) + a", "linear(up, d) + x", "Z0693", ("config.json",)),
            ("untied", "param places", "param head: [V, d]\n  param places", "Z0693", ("`words` and `head` are one parameter",)),
            ("width", "d = 48", "d = 64", "Z0694", ("`words` is [256, 64] here, and `wte` is [256, 48]", "and `h.{}.ln_1.weight` is [48]")),
            ("layers", "layers = 3", "layers = 2", "Z0694", ("repeated 2 times here, and 3 times",))):
        text = OWN.replace(old, new)
        if title == "untied":
            text = text.replace("transpose(words)", "transpose(head)")
        bench.refused("another model: " + title, bench.train(bench.model("bad", text, called="own"), *init)[0], code, "help:", *words)
    outcome = bench.train(bench.model("own", OWN.replace("S = 32", "S = 40")), *init)[0]
    bench.refused("longer samples than positions", outcome, "Z0694", "wpe.weight is [32, 48], the model has [40, 48]")
    outcome, _, _ = bench.train(bench.model("own", OWN.replace("S = 32", "S = 16")), *init)
    bench.tally.check("shorter samples", outcome.status == 0 and "has 32 positions, of which samples of 16" in outcome.err, outcome.tail())
    outcome = harness.zplan("check", bench.model("own", OWN, "  init = weights()"))
    bench.refused("weights of nothing", outcome, "Z0307", "needs a folder")
    outcome = harness.zplan("check", bench.model("own", OWN, '  init = "gpt2"'))
    bench.refused("a bare folder", outcome, "Z0304", 'write `weights("gpt2")`')


def changed_config(bench, **fields):
    folder = bench.path("changed")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(bench.path("gpt2"), folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(fields)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


def bad_folders(bench):
    """Folders that hold no weights, damaged ones, or others."""
    model = bench.model("own", OWN)
    start = lambda folder: bench.train(model, "--init", folder)[0]
    bench.refused("heads in the config", start(changed_config(bench, n_head=6)), "Z0693", "4 heads here, and 6 in")
    bench.refused("heads that do not divide", start(changed_config(bench, n_head=7)), "Z0683", "7 heads (`n_head`) do not divide")
    bench.refused("epsilon in the config", start(changed_config(bench, layer_norm_epsilon=1e-6)), "Z0693", "`eps`")
    bench.refused("a family that is not known", start(changed_config(bench, model_type="bloom")), "Z0684", "bloom")
    folder = changed_config(bench)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        whole = file.read()
    for title, size in (("empty", 0), ("five bytes", 5), ("half a header", 2000), ("no data", 3760), ("half", len(whole) // 2), ("a byte less", len(whole) - 1)):
        with open(path, "wb") as file:
            file.write(whole[:size])
        bench.refused("truncated: " + title, start(folder), "Z0691", "model.safetensors")
    rename_in = lambda change: (open(path, "wb").write(whole), rename(path, change))
    rename_in(lambda name: name.replace("h.1.", "h.9.").replace("ln_f", "ln_g"))
    bench.refused("other names", start(folder), "Z0694", "missing: transformer.h.1.attn.c_attn.weight [48, 144]", "missing: transformer.ln_f.bias [48]",
                  "too much: transformer.h.9.ln_1.bias [48]", "too much: transformer.ln_g.weight [48]")
    rename_in(lambda name: name.replace("c_attn.weight", "c_x.weight").replace("mlp.c_fc.weight", "attn.c_attn.weight").replace("c_x", "c_fc"))
    bench.refused("another shape", start(folder), "Z0694", "another shape: transformer.h.0.attn.c_attn.weight is [48, 192], the model has [48, 144], and 2 more like it")
    shutil.copyfile(bench.path("llama", "model-00001-of-00003.safetensors"), path)
    bench.refused("weights of another family", start(folder), "Z0694", "missing: transformer.wte.weight", "too much: model.embed_tokens.weight")
    os.remove(path)
    bench.refused("no weights", start(folder), "Z0691", "holds no weights", "help:")
    open(os.path.join(folder, "pytorch_model.bin"), "wb").close()
    bench.refused("pickled weights", start(folder), "Z0692", "pytorch_model.bin", "save_pretrained")
    bench.refused("no folder", start(bench.path("nowhere")), "Z0691", "there is no such folder")
    shutil.copytree(bench.path("llama"), bench.path("sharded"))
    os.remove(bench.path("sharded", "model-00002-of-00003.safetensors"))
    bench.refused("a file of several is missing", start(bench.path("sharded")), "Z0691", "model-00002-of-00003.safetensors")


def bad_exports(bench):
    """Exports that cannot be: nothing half-written."""
    model = bench.model("own", OWN, '  init = weights("gpt2")')
    _, _, checkpoint = bench.train(model, steps=0)
    step = os.path.join(checkpoint, "step_000000")
    left = sorted(os.listdir(bench.folder))
    export = lambda *words: harness.zplan("export", "hf", *words, cwd=bench.folder)
    os.mkdir(bench.path("there"))
    left = sorted(left + ["there"])
    bench.refused("a folder that is there", export(step, "-o", "there"), "Z0695", "there already", "help:", left=left)
    full = harness.run(["sh", "-c", "ulimit -f 100; exec \"$@\"", "sh", harness.ZPLAN, "export", "hf", step, "-o", bench.path("out")])
    bench.refused("a full disk", full, "Z0695", "cannot write", left=left)
    bench.refused("a folder in no folder", export(step, "-o", "no/where"), "Z0695", left=left)
    bench.refused("no checkpoint", export("gpt2", "-o", "out"), "Z0691", "no checkpoint of zplan", left=left)
    bench.refused("another config", export(step, "-o", "out", "--like", "llama"), "Z0693", "llama/config.json", left=left)
    tokenizers = os.path.join(harness.ROOT, "tests", "interop", "tokenizers")
    shutil.copyfile(os.path.join(tokenizers, "gpt2_like.json"), bench.path("tokenizer.json"))
    left = sorted(left + ["tokenizer.json"])
    bench.refused("a tokenizer of another vocabulary", export(step, "-o", "out", "--tokenizer", "tokenizer.json"), "Z0806", "641 tokens, and the model 256", left=left)
    os.remove(os.path.join(step, "plan.json"))
    bench.refused("a checkpoint without its plan", export(step, "-o", "out"), "Z0691", "name the model: zplan export hf", left=left)
    outcome = export(step, model, "-o", "out")
    bench.tally.check("the model is named", outcome.status == 0, outcome.tail())
    same_folder(bench, "the model is named: the same bytes", bench.path("gpt2"), bench.path("out"))
    shutil.rmtree(bench.path("out"))
    bench.refused("a checkpoint of another model", export(step, bench.model("bad", OWN.replace("d = 48", "d = 64"), called="own"), "-o", "out"), "Z0694",
                  "another shape: words is [256, 48], the model has [256, 64]")
    for words in ((step,), ("-o", "out"), (step, model, model, "-o", "out")):
        outcome = export(*words)
        bench.tally.check("words %d" % len(words), outcome.status == 2 and "zplan export hf" in outcome.err, outcome.tail())


def damaged(bench):
    """Headers, indices and configs with bytes changed from a seed: an export or a refusal, never a crash or half a folder."""
    draw, bad = random.Random(15), []
    model = bench.model("own", OWN)
    _, _, checkpoint = bench.train(model, "--init", bench.path("gpt2"), steps=0)
    step = os.path.join(checkpoint, "step_000000")
    shutil.copytree(bench.path("gpt2"), bench.path("like"))
    index = {"weight_map": {name: "model-1.safetensors" for name, _ in families.FAMILIES["gpt2"][1]}}
    bench.write("like/model.safetensors.index.json", json.dumps(index))
    targets = [os.path.join(step, "model.safetensors"), bench.path("like", "model.safetensors"), bench.path("like", "config.json"),
               bench.path("like", "model.safetensors.index.json")]
    for i in range(160):
        path = targets[i % len(targets)]
        with open(path, "rb") as file:
            whole = file.read()
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(min(len(data), 3500))
            data[at:at + draw.randint(0, 3)] = draw.choice([b"", b"9", b"[", b"]", b",", b"-", b"\"", b":", b"\x00", b"\xff", b"1e9", b"{}", b"999999999999999999999"])
        if not harness.my_turn(i, 3):
            continue
        with open(path, "wb") as file:
            file.write(data)
        moved = path.endswith("index.json")
        if moved:  # it is read where there is no single file
            os.rename(bench.path("like", "model.safetensors"), bench.path("like", "model-1.safetensors"))
        run = harness.zplan("export", "hf", step, model, "-o", bench.path("out"), "--like", bench.path("like"))
        if moved:
            os.rename(bench.path("like", "model-1.safetensors"), bench.path("like", "model.safetensors"))
        with open(path, "wb") as file:
            file.write(whole)
        if run.status not in (0, 1) or (run.status == 1) != ("error" in run.err) or (run.status == 0) != os.path.isdir(bench.path("out")):
            bad.append((i, run.status, run.err[-200:]))
        shutil.rmtree(bench.path("out"), ignore_errors=True)
    bench.tally.check("damaged headers, indices and configs", not bad, str(bad[:3]))


def asked(usage):
    """(are committed values to be written?, a Python with transformers or None)"""
    update = sys.argv[1:] == ["--update"]
    if sys.argv[1:] and not update:
        sys.exit(usage)
    harness.require_zplan()
    harness.build_quickly()
    python = python_with_transformers()
    if not python:
        print("no Python with transformers here: comparing with the committed values only")
    if update and not python:
        sys.exit("--update needs a Python with transformers: set PYTHON")
    return update, python


def main():
    update, python = asked(__doc__)
    tally = harness.Tally()
    with harness.Scratch() as folder:
        bench = Bench(tally, folder)
        references(bench, python, update)
        for number, name in enumerate(list(families.FAMILIES)):
            round_trip(bench, name, number, imported(bench, name))
        written_otherwise(bench)
        by_the_library(bench)
        looks(bench)
        tokenized(bench)
        trained(bench, python)
        narrow(bench)
        bad_models(bench)
        bad_folders(bench)
        bad_exports(bench)
        bad_looks(bench)
        damaged(bench)
        print("largest difference of a loss %.1e" % bench.largest)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
