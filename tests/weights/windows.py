#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights of models whose attention sees a window: Mistral, and a Qwen 2 whose last layers have one. A tied config alongside another head.

    windows.py [--update]

Losses of samples longer than the window, and as long, are transformers' to 1e-5 (committed in expected_windows.json; asked live where PYTHON names a Python with it); trained 0
steps and exported the bytes are the same. A model with a window of std.models starts from such weights; one without is refused, unless its samples are no longer than the window.
A checkpoint whose head is not the table that config.json ties it to is refused. --update writes expected_windows.json from a live run.
"""
import json
import os
import sys

import families
import weights

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

EXPECTED = os.path.join(HERE, "expected_windows.json")
WINDOW = 7
WINDOWED = {
    "mistral": (dict(families.GROUPED, architectures=["MistralForCausalLM"], model_type="mistral", num_hidden_layers=3, intermediate_size=80, sliding_window=WINDOW),
                families.llama(), "F32", 1),
    "qwen2": (dict(families.GROUPED, architectures=["Qwen2ForCausalLM"], model_type="qwen2", num_hidden_layers=3, intermediate_size=80, use_sliding_window=True,
                   sliding_window=WINDOW, max_window_layers=1), families.llama(qkv_bias=True), "F32", 1),
}
LAYER = "llama_layer(x, heads = 6, kv_heads = 2, head = 8, ff = 80, %s, eps = 1e-6)"


def references(bench, update):
    python, found = os.environ.get("PYTHON"), {}
    for sequence in (families.SEQUENCE, WINDOW) if python and harness.run([python, "-c", "import transformers"]).status == 0 else ():
        request, answer = bench.path("request.json"), bench.path("answer.json")
        bench.write("request.json", json.dumps({"text": weights.TEXT, "sequence": sequence, "batch": families.BATCH, "new": 0, "prompts": [],
                                                "folders": {name: bench.path(name) for name in WINDOWED}}))
        outcome = harness.run([python, os.path.join(HERE, "reference.py"), request, answer])
        if bench.tally.check("transformers", outcome.status == 0, outcome.tail()):
            with open(answer, encoding="utf-8") as file:
                found.update({"%s %d" % (name, sequence): one["loss"] for name, one in json.load(file)["models"].items()})
    if update and found:
        with open(EXPECTED, "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    with open(EXPECTED, encoding="utf-8") as file:
        committed = json.load(file)
    for name, loss in found.items():
        bench.tally.check("transformers: %s as committed" % name, harness.number_error(loss, committed[name]) < 1e-6, str(loss))
    return committed


def own(bench, name, window):
    parameter, added, layers, layer, norm, head = weights.BY_THE_LIBRARY["llama"]
    text = weights.LIBRARY % (name, parameter, added, layers, LAYER % window, norm, head)
    return bench.model("own", text, called=name)


def windows(bench, want):
    for name in WINDOWED:
        model = weights.imported(bench, name)
        for sequence in (families.SEQUENCE, WINDOW):
            outcome, loss, _ = bench.train(model, "--init", bench.path(name), settings=("model.S=%d" % sequence,))
            bench.check_loss("%s: samples of %d" % (name, sequence), outcome, loss, want["%s %d" % (name, sequence)])
        outcome, _, checkpoint = bench.train(model, "--init", bench.path(name), steps=0)
        export = harness.zplan("export", "hf", checkpoint, "-o", bench.path("out"), "--dtype", "f32")
        if bench.tally.check(name + ": exported", outcome.status == 0 and export.status == 0, outcome.tail() + export.tail()):
            weights.same_folder(bench, name + ": the same bytes", bench.path(name), bench.path("out"))
        harness.run(["rm", "-r", bench.path("out")])
    outcome, loss, _ = bench.train(own(bench, "mistral", "window = %d" % WINDOW), "--init", bench.path("mistral"))
    bench.check_loss("a window of std.models", outcome, loss, want["mistral %d" % families.SEQUENCE])
    dense = own(bench, "mistral", "window = S")
    outcome, _, _ = bench.train(dense, "--init", bench.path("mistral"))
    bench.refused("attention without a window", outcome, "Z0693", "a window of 0 positions here, and of %d" % WINDOW)
    outcome, loss, _ = bench.train(dense, "--init", bench.path("mistral"), settings=("model.S=%d" % WINDOW,))
    bench.check_loss("attention without a window, samples as long as it", outcome, loss, want["mistral %d" % WINDOW])


def alike(bench, want):
    """Qwen's layers in one repeat, where no window cuts a sample."""
    text = harness.zplan("import", "hf", bench.path("qwen2", "config.json")).out
    text = text[:text.index("cluster gpus")]
    first, rest = text.index("  repeat first"), text.index("  repeat layers")
    model = bench.model("alike", (text[:first] + text[rest:]).replace("layers - full_layers", "layers").replace(", full_layers = 1", ""), called="qwen2")
    outcome, loss, _ = bench.train(model, "--init", bench.path("qwen2"), settings=("model.S=%d" % WINDOW,))
    bench.check_loss("layers of Qwen that are alike", outcome, loss, want["qwen2 %d" % WINDOW])
    outcome, _, _ = bench.train(model, "--init", bench.path("qwen2"), settings=("model.S=%d" % (WINDOW + 1),))
    bench.refused("layers of Qwen that are not alike", outcome, "Z0693", "the model has")


def heads(bench):
    """qwen3 is tied; the file has a head nevertheless."""
    path = os.path.join(families.write(bench.path("qwen3"), "qwen3"), "model.safetensors")
    model, shape = weights.imported(bench, "qwen3"), [families.VOCABULARY, 48]
    tensors = [(name, "F32", shape, values.tobytes()) for name, (shape, values) in harness.read_safetensors(path).items()]
    table = dict((name, data) for name, _, _, data in tensors)["model.embed_tokens.weight"]
    for title, data in (("once more", table), ("another", table[4:] + table[:4])):
        families.write_safetensors(path, sorted(tensors + [("lm_head.weight", "F32", shape, data)]))
        outcome, _, _ = bench.train(model, "--init", bench.path("qwen3"), steps=0)
        if title == "another":
            bench.refused("another head", outcome, "Z0694", "another head: lm_head.weight is not model.embed_tokens.weight", "tie_word_embeddings")
        else:
            bench.tally.check("the table once more", outcome.status == 0 and "it is `model.embed_tokens.weight` once more" in outcome.err, outcome.tail())


def main():
    if sys.argv[1:] not in ([], ["--update"]):
        sys.exit(__doc__)
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        bench = weights.Bench(tally, folder)
        families.FAMILIES.update(WINDOWED)
        for name in WINDOWED:
            families.write(bench.path(name), name)
        want = references(bench, bool(sys.argv[1:]))
        windows(bench, want)
        alike(bench, want)
        heads(bench)
        print("largest difference of a loss %.1e" % bench.largest)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
