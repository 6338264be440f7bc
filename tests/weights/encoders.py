#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights of BERT, T5 and ViT into a training and out of it.

    encoders.py [--update]

Small checkpoints of BertForMaskedLM, BertForPreTraining and BertForQuestionAnswering, of T5, T5 v1.1 and ViTForImageClassification (families.py): the losses of the first step are
transformers' to 1e-5 (committed in expected_encoders.json; from a live run, too, where some Python has transformers); trained 0 steps and exported they
have the same bytes, on one rank and on 4. Models of std.models, whose queries, keys and values are one matrix, begin with them likewise; a head for spans
begins with a checkpoint that has another one. ViT sees whole pictures, or their patches. What is missing, too much or of another shape is told together.
--update writes expected_encoders.json from a live run.
"""
import array
import json
import os
import random
import shutil
import sys

import families
import weights

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "diff"))
import harness  # noqa: E402
from images import write_npy  # noqa: E402

EXPECTED = os.path.join(HERE, "expected_encoders.json")
TARGET = 12
LAYOUTS = {"bert_masked": ("tensor=1", "pipeline=1", "data=4", "zero=3"), "bert_pretraining": ("tensor=2", "pipeline=2", "data=1"),
           "t5": ("tensor=2", "pipeline=2", "data=1"),
           "roberta_masked": ("tensor=2", "pipeline=2", "data=1"), "vit": ("tensor=2", "pipeline=2", "data=1")}
REST = weights.REST.replace("text(", "arrays(")
OWN = """use std.nn
use std.models
use std.hw
model own(V = 256, S = 32, d = 32, layers = 2, heads = 4) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  input lengths: i32[B]
  input types: i32[B, S]
  input random_next: i32[B]
  input start: i32[B]
  input end: i32[B]
  param word: [V, d]
  param position: [S, d]
  param segment: [2, d]
  embeddings = layer_norm(embedding(tokens, word) + position + embedding(types, segment), eps = 1e-12)
  x = dropout(embeddings)
  repeat layer in 0..layers {
    x = bert_layer(x, lengths, heads = heads, ff = 2 * d)
  }
%s}
"""
PICTURES = """use std.nn
use std.models
use std.hw
model own(%s, d = 32, layers = 2, heads = 4, classes = 5) {
  input labels: i32[B]
  input images: f32[B, P, p]
  x = %s
  repeat layer in 0..layers {
    x = vit_layer(x, heads = heads, ff = 2 * d, eps = 1e-12)
  }
  head = sample_linear(select(layer_norm(x, eps = 1e-12), 0), classes)
  output loss = cross_entropy(head, labels)
}
"""
PIXELS = ("P = 144, p = 3", "vit_pixel_embedding(images, d = d, patch = 4, height = 12)")
PATCHES = ("P = 9, p = 48", "vit_embedding(images, d = d)")
SPANS = """  span = linear(x, 2)
  output loss = cross_entropy(select(span, 0, axis = -1), start, lengths = lengths) + cross_entropy(select(span, 1, axis = -1), end, lengths = lengths)
"""


def arrays():
    """Inputs of 4 samples, the same for all models."""
    draw, samples, length = random.Random(5), families.BATCH, families.SEQUENCE
    ids = lambda n: [draw.randrange(families.VOCABULARY) for _ in range(n)]
    lengths = [length, 9, 17, 26]
    found = {"lengths": lengths, "tokens": [ids(length) for _ in range(samples)], "source": [ids(length) for _ in range(samples)],
             "target": [ids(TARGET) for _ in range(samples)], "random_next": [0, 1, 1, 0]}
    found["types"] = [[int(n // 3 <= i < n) for i in range(length)] for n in lengths]
    found["labels"] = [[draw.randrange(families.VOCABULARY) if i < n and draw.random() < 0.2 else -1 for i in range(length)] for n in lengths]
    found["target_labels"] = [[draw.randrange(families.VOCABULARY) if i < 5 + 2 * k else -1 for i in range(TARGET)] for k in range(samples)]
    found["start"] = [draw.randrange(n) for n in lengths]
    found["end"] = [draw.randrange(n) for n in lengths]
    found["images"] = [[draw.randrange(256) for _ in range(3 * 12 * 12)] for _ in range(samples)]  # channels first
    found["picture_labels"] = [3, 0, 4, 3]
    return found


def write_arrays(folder, found, names):
    os.makedirs(folder)
    for name in names:
        rows = found[name]
        flat = [x for row in rows for x in row] if isinstance(rows[0], list) else rows
        shape = (len(rows), len(rows[0])) if isinstance(rows[0], list) else (len(rows),)
        write_npy(os.path.join(folder, name.replace("target_", "").replace("picture_", "") + ".npy"), "<i4", shape, array.array("i", flat).tobytes())


class Bench(weights.Bench):
    def encoder(self, name, text, init="", called=None):
        data = self.path("pairs" if name.startswith(("t5", "mt5")) else "pictures" if name.startswith("vit") else "sentences")
        return self.write(name + ".dz", text + REST % (called or name.split("_")[0], data, "fp32", init))

    def losses(self, model, *words, **keywords):
        """(outcome, losses of the first step by name)"""
        outcome, loss, _ = self.train(model, *words, **keywords)
        step = harness.read_log(self.path("log.jsonl"))[0][0] if outcome.status == 0 else {}
        return outcome, dict(step.get("losses") or {"loss": loss})

    def check_losses(self, title, outcome, got, want):
        for loss in want:
            self.check_loss("%s: %s" % (title, loss), outcome, got.get(loss), want[loss])


def references(bench, python, update, found):
    folders = {name: families.write(bench.path(name), name) for name in families.ENCODERS}
    with open(EXPECTED, encoding="utf-8") as file:
        committed = json.load(file)
    answer = live(bench, python, folders, found) if python else None
    if answer and update:
        with open(EXPECTED, "w", encoding="utf-8") as file:
            file.write(json.dumps(answer, indent=1) + "\n")
        committed = answer
    for name in folders if answer else ():
        for loss, value in answer["models"][name].items():
            error = harness.number_error(value, committed["models"].get(name, {}).get(loss))
            bench.tally.check("transformers %s, %s of %s as committed" % (answer["transformers"], loss, name), error < 1e-9, "%.2e" % error)
    return committed["models"]


def live(bench, python, folders, found):
    bench.write("request.json", json.dumps({"arrays": found, "folders": folders}))
    outcome = harness.run([python, os.path.join(HERE, "encoder_reference.py"), bench.path("request.json"), bench.path("answer.json")])
    if not bench.tally.check("transformers", outcome.status == 0, outcome.tail()):
        return None
    with open(bench.path("answer.json"), encoding="utf-8") as file:
        return json.load(file)


def imported(bench, name):
    outcome = harness.zplan("import", "hf", bench.path(name, "config.json"))
    bench.tally.check("import of " + name, outcome.status == 0, outcome.tail())
    text = outcome.out[:outcome.out.index("cluster gpus")]
    return bench.encoder(name, text.replace("S = 512, T = 512", "S = %d, T = %d" % (families.SEQUENCE, TARGET)))


def round_trip(bench, name, model, want):
    """Losses, then 0 steps and back, in the layout that the family is tried on."""
    settings = LAYOUTS.get(name, ())
    ranks = 4 if settings else 1
    outcome, got = bench.losses(model, "--init", bench.path(name), ranks=ranks, settings=settings)
    bench.check_losses(name, outcome, got, want)
    outcome, _, checkpoint = bench.train(model, "--init", bench.path(name), steps=0, ranks=ranks, settings=settings)
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"), "--dtype", families.ENCODERS[name][2].lower())
    if bench.tally.check("%s: exported" % name, outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
        weights.same_folder(bench, "%s: the same bytes" % name, bench.path(name), bench.path("out"))
    shutil.rmtree(bench.path("out"), ignore_errors=True)


def written_otherwise(bench, expected):
    """bert_layer of std.models has queries, keys and values in one matrix; sums in another order, inputs in another one; norms under their first names."""
    weights.rename(bench.path("bert_questions", "model.safetensors"),
                   lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"))
    model = bench.encoder("own_questions", OWN.replace("  input labels: i32[B, S]\n", "").replace("  input random_next: i32[B]\n", "") % SPANS, called="own")
    outcome, got, checkpoint = bench.train(model, "--init", bench.path("bert_questions"))
    bench.check_loss("fused projections, old names of norms", outcome, got, sum(expected["bert_questions"].values()))
    outcome, _, checkpoint = bench.train(model, "--init", bench.path("bert_questions"), steps=0)
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"), "--dtype", "bf16")
    shutil.rmtree(bench.path("bert_questions"))
    families.write(bench.path("bert_questions"), "bert_questions")
    if bench.tally.check("fused projections: exported", export.status == 0, export.tail()):
        weights.same_folder(bench, "fused projections: the same bytes", bench.path("bert_questions"), bench.path("out"))
    shutil.rmtree(bench.path("out"), ignore_errors=True)
    head_of_another(bench, model)


def head_of_another(bench, model):
    """Fine-tuning: a head for spans on a checkpoint of BertForPreTraining."""
    folder = bench.path("bert_pretraining")
    outcome = bench.train(model, "--init", folder, steps=0)[0]
    bench.refused("a head that is missing", outcome, "Z0694", "missing: qa_outputs.weight [2, 32]", "missing: qa_outputs.bias [2]",
                  "too much: bert.pooler.dense.weight", "too much: cls.seq_relationship.bias", "too much: cls.predictions.bias [256]")
    init = '  init = weights("%s", drawn = ["span.*"], unread = ["cls.*", "bert.pooler.*"])' % folder
    with open(model, encoding="utf-8") as file:
        text = file.read()
    tuned = bench.write("tuned.dz", text.replace("optimizer =", init + "\n  optimizer ="))
    outcome, _, checkpoint = bench.train(tuned, steps=0)
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"))
    if not bench.tally.check("a head that is drawn", outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
        return
    with open(bench.path("out", "config.json"), encoding="utf-8") as file:
        bench.tally.check("config.json names the head", json.load(file)["architectures"] == ["BertForQuestionAnswering"])
    got = harness.read_safetensors(bench.path("out", "model.safetensors"))
    want = {}
    for i in (1, 2):
        want.update(harness.read_safetensors(os.path.join(folder, "model-0000%d-of-00002.safetensors" % i)))
    kept = {name for name in want if not name.startswith(("cls.", "bert.pooler."))}
    bench.tally.check("names of the new model", set(got) == kept | {"qa_outputs.weight", "qa_outputs.bias"}, str(sorted(got)[-3:]))
    bench.tally.check("what both have is the checkpoint's", all(got[name] == want[name] for name in kept & set(got)))
    shutil.rmtree(bench.path("out"))
    for title, old, new, words in (
            ("a name that nothing has", '"span.*"', '"spam.*"', ("Z0304", "no parameter has a name like `spam.*`")),
            ("a tensor that the folder lacks", '"cls.*"', '"cls.*", "clx.*"', ("Z0304", "`clx.*`"))):
        outcome = bench.train(bench.write("bad.dz", text.replace("optimizer =", init.replace(old, new) + "\n  optimizer =")), steps=0)[0]
        bench.refused(title, outcome, *words)


TIED = {"encoder.embed_tokens.weight": "shared.weight", "lm_head.weight": "shared.weight", "cls.predictions.decoder.bias": "cls.predictions.bias",
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"}


def published_quirks(bench, expected):
    """What the first checkpoints hold more than today's: copies of tied tensors, numbers of positions, a table that nothing reads; no prefix where a
    checkpoint was saved without its head."""
    for name, more in (("t5", {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": [32, 4], "lm_head.weight": [256, 32],
                               "encoder.embed_tokens.weight": [256, 32]}),
                       ("bert_masked", {"bert.embeddings.position_ids": [1, 32], "cls.predictions.decoder.weight": [256, 32], "cls.predictions.decoder.bias": [256]})):
        config, tensors, dtype, files = families.ENCODERS[name]
        families.ENCODERS["first_" + name] = (config, tensors + list(more.items()), "F32", 1)
        path = os.path.join(families.write(bench.path("first_" + name), "first_" + name), "model.safetensors")
        held = harness.read_safetensors(path)
        families.write_safetensors(path, [(one, "F32", shape, held[TIED.get(one, one)][1].tobytes()) for one, (shape, _) in held.items()])
        outcome = bench.train(bench.path(name + ".dz"), "--init", bench.path("first_" + name), steps=0, ranks=4, settings=LAYOUTS[name])[0]
        notes = [tensor for tensor in more if "`%s` is not read" % tensor in outcome.err]
        bench.tally.check("%s: what is held twice" % name, outcome.status == 0 and len(notes) == 2, outcome.tail())
    weights.rename(bench.path("first_t5", "model.safetensors"), lambda name: name.replace("decoder.block.1.", "decoder.block.8.").replace(".wo.", ".w2."))
    outcome = bench.train(bench.path("t5.dz"), "--init", bench.path("first_t5"), steps=0, ranks=4, settings=LAYOUTS["t5"])[0]
    bench.refused("tensors of T5 under other names", outcome, "Z0694", "missing: decoder.block.1.layer.1.EncDecAttention.q.weight [48, 32]",
                  "missing: encoder.block.0.layer.1.DenseReluDense.wo.weight [32, 48], and 1 more like it", "too much: decoder.block.8.layer.0.layer_norm.weight [32]")
    shutil.copytree(bench.path("bert_pretraining"), bench.path("bare"))
    for i in (1, 2):
        weights.rename(bench.path("bare", "model-0000%d-of-00002.safetensors" % i), lambda name: name.replace("bert.", "", 1))
    path = bench.path("bare", "model.safetensors.index.json")
    with open(path, encoding="utf-8") as file:
        index = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(index.replace('"bert.', '"'))
    outcome, got = bench.losses(bench.path("bert_pretraining.dz"), "--init", bench.path("bare"), ranks=4, settings=LAYOUTS["bert_pretraining"])
    bench.check_losses("BERT without its prefix", outcome, got, expected["bert_pretraining"])


def pictures(bench, expected):
    """ViT of std.models on pixels, and on patches that are cut already; other patches, pictures and layers are told."""
    folder = bench.path("vit")
    for title, sizes, ranks, settings in (("pixels, ZeRO 3", PIXELS, 4, LAYOUTS["bert_masked"]), ("patches", PATCHES, 1, ())):
        model = bench.encoder("vit_own", PICTURES % sizes, called="own")
        outcome, got, checkpoint = bench.train(model, "--init", folder, ranks=ranks, settings=settings)
        bench.check_loss("ViT on " + title, outcome, got, expected["vit"]["loss"])
        outcome, _, checkpoint = bench.train(model, "--init", folder, steps=0, ranks=ranks, settings=settings)
        export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"), "--dtype", "f32")
        if bench.tally.check("ViT on %s: exported" % title, export.status == 0, export.tail()):
            weights.same_folder(bench, "ViT on %s: the same bytes" % title, folder, bench.path("out"))
        shutil.rmtree(bench.path("out"), ignore_errors=True)
    for title, sizes, code, words in (("another patch", (PIXELS[0], PIXELS[1].replace("= 4", "= 3")), "Z0693", "windows of 3 x 3 lie over 12 x 12 positions here, and of 4 x 4"),
                                      ("another picture", ("P = 64, p = 3", PIXELS[1].replace("12", "8")), "Z0684", "cannot be written for samples of 64"),
                                      ("other channels", ("P = 144, p = 1", PIXELS[1]), "Z0694", "`x.patch_embed.weight` is [32, 16] here, and `patches.weight` is [32, 48]")):
        outcome = bench.train(bench.encoder("vit_bad", PICTURES % sizes, called="own"), "--init", folder, steps=0)[0]
        bench.refused("ViT: " + title, outcome, code, "help:", words)


def classes_of_its_own(bench):
    """Fine-tuning: the published model sorts into five classes, this one into three; what has no number of classes in it is the checkpoint's."""
    text = (PICTURES % PIXELS).replace("classes = 5", "classes = 3")
    other = bench.path("three")
    shutil.copytree(bench.path("pictures"), other)
    write_npy(os.path.join(other, "labels.npy"), "<i4", (families.BATCH,), array.array("i", [2, 0, 1, 2]).tobytes())
    init = '\n  init = weights("%s", drawn = ["head.*"])' % bench.path("vit")
    model = bench.write("vit_three.dz", text + REST % ("own", other, "fp32", init))
    outcome, _, checkpoint = bench.train(model, steps=0)
    export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"))
    if bench.tally.check("classes of its own", outcome.status == 0 and export.status == 0 and "written anew" in export.err, outcome.tail() + export.tail()):
        want, got = {}, harness.read_safetensors(bench.path("out", "model.safetensors"))
        for i in (1, 2):
            want.update(harness.read_safetensors(bench.path("vit", "model-0000%d-of-00002.safetensors" % i)))
        bench.tally.check("classes of its own: names", set(got) == set(want))
        bench.tally.check("classes of its own: the rest is the checkpoint's", all(got[name] == want[name] for name in want if not name.startswith("classifier")))
    shutil.rmtree(bench.path("out"), ignore_errors=True)


def trained(bench, python, found, expected):
    """Models that were never imported: a config.json is made, what comes back is the same model, and transformers has its losses."""
    folders, losses = {}, {}
    for name, model in (("bert_pretraining", bench.path("bert_pretraining.dz")), ("t5", bench.path("t5.dz")), ("vit", bench.path("vit_own.dz"))):
        folders[name] = bench.path("exported-" + name)
        _, _, checkpoint = bench.train(model, steps=2, checkpoint="ck-" + name)
        export = harness.zplan("export", "hf", checkpoint, "-o", folders[name])
        bench.tally.check("%s: exported with a config.json of its own" % name, export.status == 0, export.tail())
        _, mine = bench.losses(model, "--init", checkpoint)
        outcome, losses[name] = bench.losses(model, "--init", folders[name])
        bench.tally.check("%s: the same model comes back" % name, outcome.status == 0 and losses[name] == mine, outcome.tail())
    answer = live(bench, python, folders, found) if python else None
    for name in folders if answer else ():
        bench.check_losses("%s in transformers" % name, outcome, losses[name], answer["models"][name])


def refusals(bench):
    """What differs, by name."""
    text = OWN.replace("  input start: i32[B]\n  input end: i32[B]\n", "") % (
        "  transform = linear(x, d)\n  head_norm = layer_norm(gelu(transform), eps = 1e-12)\n  param head_bias: [V]\n"
        "  pooler = sample_linear(select(x, 0), d)\n  next = sample_linear(tanh(pooler), 2)\n"
        "  output loss = cross_entropy(matmul(head_norm, transpose(word)) + head_bias, labels) + cross_entropy(next, random_next)\n")
    start = lambda changed: bench.train(bench.encoder("bad", changed, called="own"), "--init", bench.path("bert_pretraining"), steps=0)[0]
    alone = text.replace("  input types: i32[B, S]\n", "").replace("embedding(types, segment)", "embedding(tokens, segment)")
    bench.refused("another model: one input for two", start(alone), "Z0693", "help:", "another input")
    for title, old, new, code, words in (
            ("heads", "heads = 4", "heads = 8", "Z0693", ("8 heads here, and 4 in",)),
            ("another position", "select(x, 0)", "select(x, 1)", "Z0693", ("another position is taken here",)),
            ("gelu", "gelu(transform)", 'gelu(transform, approximate = "tanh")', "Z0693", ("computed by tanh here",)),
            ("eps", "segment), eps = 1e-12", "segment), eps = 1e-5", "Z0693", ("`eps` is 1e-05 here",)),
            ("width", "d = 32", "d = 64", "Z0694", ("`word` is [256, 64] here, and `word` is [256, 32]",)),
            ("fewer words", "V = 256", "V = 200", "Z0694", ("`word` is [200, 32] here, and `word` is [256, 32]",)),
            ("layers", "layers = 2", "layers = 3", "Z0694", ("repeated 3 times here, and 2 times",))):
        bench.refused("another model: " + title, start(text.replace(old, new)), code, "help:", *words)
    config = dict(families.ENCODERS["bert_masked"][0])
    for title, change, words in (("positions", {"position_embedding_type": "relative_key"}, "relative positions"), ("a decoder", {"is_decoder": True}, "encoders"),
                                 ("untied", {"tie_word_embeddings": False}, "decoder of its own"), ("activation", {"hidden_act": "mish"}, "`mish`")):
        outcome = harness.zplan("import", "hf", bench.write("bad.json", json.dumps(dict(config, **change))))
        bench.refused("import: " + title, outcome, "Z0684", words)
    config = dict(families.ENCODERS["t5"][0])
    for title, change, words in (("gated silu", {"feed_forward_proj": "gated-silu"}, "`gated-silu`"), ("one half", {"is_encoder_decoder": False}, "one half")):
        outcome = harness.zplan("import", "hf", bench.write("bad.json", json.dumps(dict(config, **change))))
        bench.refused("import of T5: " + title, outcome, "Z0684", words)


def examples(bench):
    """The examples are the published models: of a folder with their config.json and no tensor of theirs, only tensors are missing."""
    os.mkdir(bench.path("empty"))
    for name, config, words in (("bert_pretraining", "bert_base", ("missing: cls.seq_relationship.weight [2, 768]", "missing: bert.embeddings.word_embeddings.weight [30522, 768]")),
                                ("bert_squad", "bert_base", ("missing: bert.encoder.layer.0.attention.self.query.weight [768, 768], and 11 more like it",)),
                                ("t5_small", "t5_small", ("missing: decoder.block.0.layer.2.DenseReluDense.wi.weight [2048, 512], and 5 more like it",))):
        folder = bench.path("config-" + config + name)
        os.mkdir(folder)
        shutil.copy(os.path.join(harness.ROOT, "tests", "interop", "hf", config + ".json"), os.path.join(folder, "config.json"))
        families.write_safetensors(os.path.join(folder, "model.safetensors"), [("odd", "F32", [1], bytes(4))])
        settings = ('data=arrays("%s")' % bench.path("empty"), 'init=weights("%s")' % folder, "tensor=1", "pipeline=1", "microbatch=1", "batch=1", 'precision="fp32"')
        settings += ('validate.data=arrays("%s")' % bench.path("empty"),) if name == "bert_squad" else ()
        outcome = harness.zplan("run", os.path.join(harness.ROOT, "examples", name + ".dz"), "--ranks", 1, "-o", bench.path("none"),
                                *(word for s in settings for word in ("--set", s)))
        bench.refused("%s.dz is the published model" % name, outcome, "Z0694", "too much: odd [1]", *words)


def main():
    update, python = weights.asked(__doc__)
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        bench, found = Bench(tally, folder), arrays()
        write_arrays(bench.path("sentences"), found, ("tokens", "types", "labels", "lengths", "random_next", "start", "end"))
        write_arrays(bench.path("pairs"), found, ("source", "target", "target_labels", "lengths"))
        write_arrays(bench.path("pictures"), found, ("picture_labels",))
        write_npy(bench.path("pictures", "images.npy"), "|u1", (families.BATCH, 3, 12, 12), bytes(x for image in found["images"] for x in image))
        expected = references(bench, python, update, found)
        for name, file in (("bert_masked", "vocab.txt"), ("bert_masked", "tokenizer_config.json"), ("t5", "spiece.model")):
            bench.write(os.path.join(name, file), "{}\n")  # goes along
        for name in families.ENCODERS:
            round_trip(bench, name, imported(bench, name), expected.get(name, {}))
        written_otherwise(bench, expected)
        published_quirks(bench, expected)
        pictures(bench, expected)
        classes_of_its_own(bench)
        trained(bench, python, found, expected)
        refusals(bench)
        examples(bench)
        print("largest difference of a loss %.1e" % bench.largest)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
