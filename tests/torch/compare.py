#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zplan against PyTorch: the losses of 20 AdamW steps (f32; with experts f64; of other layouts than one rank the first 8) from the same weights on the same tokens agree to 1e-5,
of Gemma 2 and 3, Qwen 3, T5 (also by Adafactor), DeepSeek's latent attention, a Vision Transformer, BERT with three losses, a LLaMA within documents of packed samples, adapters of a LLaMA and BERT with block-sparse attention and DeepSeek's experts in f64 to 1e-12;
in bf16 and fp16, against mixed precision by hand (mixed.py), to 2e-4 and 2.5e-5.

    compare.py [--update]

Compares with the committed expected_*.json, and with a live run of reference.py and mixed.py where some Python has torch (PYTHON=path
chooses one, else python3 and /usr/bin/python3 are tried). zplan trains on one rank and on 2 x 2, experts also spread over
data ranks; tests/run.sh takes a sixth of what is not on one rank, and of f32, half of what is, and one of the 16-bit types by turns. --update writes new
expected files from the live run.

16 bits: both sides round at the ends of their kernels, but not in the same places everywhere, and not the same f32 sums. The bound is 2^-8 (bf16)
or 2^-11 (fp16) of a loss, divided by 20: twice what was measured, 8.9e-5 and 1.7e-5, and less than what rounding changes at all, 3.5e-4 and
2.9e-5 between PyTorch in 16 bits and in f32: zplan in f32, or one that rounded elsewhere, would fail. Norms 16 times as much (measured 6.3e-4 and
2.5e-4 alongside torch 1.13, 1.5e-3 and 3.3e-4 alongside 2.15, whose products sum otherwise).
"""
import json
import os
import sys

import settings

sys.path.insert(0, os.path.join(os.path.dirname(settings.HERE), "support"))
import harness  # noqa: E402

BOUND = 1e-5
MIXED = {"bfloat16": ("mixed_bf16", 2.0 ** -8 / 20), "float16": ("mixed_fp16", 2.0 ** -11 / 20)}
LAYOUTS = {"one rank": (1, 1, 1, 1), "tensor 2 x pipeline 2": (2, 2, 1, 1), "tensor 3 x data 2, expert 2": (3, 1, 2, 2),
           "data 2 with ZeRO 3": (1, 1, 2, 1), "tensor 2, split along the sequence": (2, 1, 1, 1)}
SEQUENCE = "tensor 2, split along the sequence"  # of some: tests/diff/sequence.py has the rest
WIDELY = ("gemma2", "qwen3", "vit", "vit_pixels", "audio", "squad", "packed", "lora", "mla", "t5", "t5_v1_1", "t5_adafactor", "missing")  # in f64, also on data ranks, and once in f32
EXACT = WIDELY + ("gemma3", "sparse_bert", "dropped_bert", "deepseek", "deepseek_groups", "deepseek_lines", "axes", "mixer")
EXACT_BOUND = 1e-12
EXPERTS = ("moe", "deepseek", "deepseek_groups", "missing")
ON_ONE_RANK = ("deepseek_lines", "gemma3", "t5_v1_1", "t5_adafactor", "mixer", "dropped_bert")  # T5, and the model of axes, have the layouts, and tests/diff/adafactor.py
LABEL_A_SAMPLE = 0.359724862722  # torch 2.15, to the digits that are given
# ZeRO 3 gathers parameters, whatever the layer: models whose losses or samples data ranks divide in ways of their own, and frozen parameters.
ON_DATA_RANKS = ("vit_pixels", "squad", "packed", "missing", "t5", "lora")
PREFIX = 8  # steps of layouts and of f32, past the warm-up: rates are those of all 20 (settings.md), and one rank makes them all in f64, of a third of the models by turns
IN_F32 = tuple(name for name in WIDELY if name not in ("t5_v1_1", "vit", "missing"))  # vit_pixels has the layers of vit; of experts, a rounding sends a token to another one


def python_with_torch():
    for python in filter(None, (os.environ.get("PYTHON"), "python3", "/usr/bin/python3")):
        if harness.run([python, "-c", "import torch; torch.__version__"]).status == 0:
            return python
    return None


def zplan_run(name, layout, folder, steps, precision=None):
    """(outcome, log file, checkpoint folder)"""
    tensor, pipeline, data, expert = LAYOUTS[layout]
    ranks = tensor * pipeline * data
    check = ("--check-memory",) if steps else ()  # a run of no steps does not reach its peak
    file, words = settings.FILES.get(name, (name, ()))
    log, checkpoints = os.path.join(folder, "log.jsonl"), os.path.join(folder, "ck-%s-%d-%d" % (name, ranks, tensor))
    outcome = harness.zplan(
        "run", os.path.join(settings.HERE, file + ".dz"), "--ranks", ranks, "-o",
        os.path.join(folder, "tree-%s-%d-%d" % (name, ranks, tensor)), "--set", "tensor=%d" % tensor,
        "--set", "pipeline=%d" % pipeline, "--set", "plan.expert=%d" % expert, "--set", "zero=%d" % (3 if data > 1 and expert == 1 else 0), "--set", "sequence=%s" % ("true" if layout == SEQUENCE else "false"), "--steps", steps, "--overwrite", "--log", log, *check, *(word for setting in words for word in ("--set", setting)), *(("--set", 'precision="%s"' % precision) if precision else ()), "--", "--checkpoint", checkpoints)
    return outcome, log, checkpoints


def initial_model(tally, name, folder):
    outcome, _, checkpoints = zplan_run(name, "one rank", folder, 0)
    if not tally.check("%s: initial checkpoint" % name, outcome.status == 0, outcome.tail()):
        return None
    return os.path.join(harness.step_folder(checkpoints, 0), "model.safetensors")


def live_reference(tally, name, python, folder, dtype=None):
    """What PyTorch on this machine says, or None without it. dtype: of mixed.py."""
    weights = initial_model(tally, name, folder)
    if not weights:
        return None
    out = os.path.join(folder, "live-%s.json" % name)
    words = ["mixed.py", name, dtype] if dtype else ["reference.py", name]
    outcome = harness.run([python, os.path.join(settings.HERE, words[0]), *words[1:], weights, out])
    if not tally.check("%s: %s" % (name, words[0]), outcome.status == 0, outcome.tail()):
        return None
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def compare(tally, title, steps, reference, loss_bound=BOUND, norm_bound=None, count=settings.STEPS):
    """count: as many of the reference's steps have been trained."""
    logged = {"losses": [record["loss"] for record in steps], "grad_norms": [record["grad_norm"] for record in steps]}
    wanted = {key: reference[key] for key in logged}
    for part, values in reference.get("parts", {}).items():
        logged[part], wanted[part] = [record["losses"].get(part) for record in steps], values
    for key, got in logged.items():
        complete = len(got) == count and len(wanted[key]) == settings.STEPS
        error = max(map(harness.part_error, got, wanted[key]), default=1.0)
        bound = loss_bound if key != "grad_norms" else norm_bound or 10 * loss_bound  # norms: a sum over all parameters, shown alongside the losses
        tally.check("%s: %s" % (title, key), complete and error <= bound, "%.2e > %.0e" % (error, bound))
        print("%s: largest difference of %s %.2e" % (title, key, error))


def compare_numbers(tally, title, got, want, bound):
    for key, value in want.items():
        if isinstance(value, dict):
            compare_numbers(tally, "%s %s" % (title, key), got.get(key, {}), value, bound)
        else:
            tally.check("%s %s" % (title, key), harness.number_error(got.get(key), value) <= bound, "%s, not %s" % (got.get(key), value))


def check_looked_at(tally, name, reference, log, checkpoints, bound):
    """The validation after the last step, and zplan eval of the last checkpoint; right answers are counted, so their shares are equal."""
    with open(log, encoding="utf-8") as lines:
        events = [event for event in map(json.loads, lines) if event.get("event") == "validate"]
    compare_numbers(tally, "validation of %s," % name, events[-1] if events else {}, reference["validation"], bound)
    if checkpoints is None:
        return
    outcome = harness.zplan("eval", checkpoints, "--data", settings.LOOKED_AT[reference["model"]], "--json", "-o", checkpoints + "-eval")
    if tally.check("eval of %s" % name, outcome.status == 0, outcome.tail()):
        answer = json.loads(outcome.out)
        got = {"loss": answer["loss"], "exact_match": answer.get("exact_match"), "losses": {n: one["loss"] for n, one in answer["losses"].items()},
               "accuracies": {n: one["accuracy"] for n, one in answer["losses"].items()}}
        compare_numbers(tally, "eval of %s," % name, got, reference["eval"], 1e-5)  # in f32


def check_texts(tally, name, greedy, checkpoints):
    """zplan sample of the trained weights against generate(), which has logits in f32."""
    words = [word for prompt in settings.PROMPTS for word in ("--prompt", prompt)]
    outcome = harness.zplan("sample", checkpoints, *words, "--tokens", settings.NEW_TOKENS, "--json", "-o", checkpoints + "-sample")
    if not tally.check("sample of %s" % name, outcome.status == 0 and "whole sample" not in outcome.err, outcome.tail()):
        return
    answer = json.loads(outcome.out)
    tally.check("sample of %s: 20 texts token by token" % name, answer["tokens"] == greedy["tokens"], str(answer["tokens"])[:300])
    apart = max(abs(x - y) for a, b in zip(answer["logprobs"], greedy["logprobs"]) for x, y in zip(a, b))
    tally.check("sample of %s: shares" % name, apart <= 1e-6, "%.2e" % apart)
    print("sample of %s: largest difference of a logarithm of a share %.2e" % (name, apart))


def references_of(tally, name, python, folder, update, dtype=None):
    """{where from: what PyTorch says}"""
    references, path = {}, settings.expected_file("_".join(filter(None, (name, dtype))))
    live = live_reference(tally, name, python, folder, dtype) if python else None
    if live:
        references["live torch %s" % live["torch"]] = live
    if live and update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(live, indent=1) + "\n")
    with open(path, encoding="utf-8") as file:
        committed = json.load(file)
    references["committed, torch %s" % committed["torch"]] = committed
    return references


def check_mixed(tally, name, number, python, folder, update):
    for turn, (dtype, (precision, bound)) in enumerate(MIXED.items(), number):
        if not harness.my_turn(turn, len(MIXED)):
            continue
        references = references_of(tally, name, python, folder, update, dtype)
        outcome, log, _ = zplan_run(name, "one rank", folder, settings.STEPS, precision)
        if not tally.check("%s in %s" % (name, precision), outcome.status == 0, outcome.tail()):
            continue
        for source, reference in references.items():
            compare(tally, "%s in %s, %s" % (name, precision, source), harness.read_log(log)[0], reference, bound, 16 * bound)


def check_label_a_sample(tally, folder):
    """Cross-entropy in f64 of what a label a sample says, plus 0.5 times the mean over samples of E * sum of (share of choices) * (mean probability)."""
    for tensor, data in ((1, 1), (2, 2)):
        log = os.path.join(folder, "label.jsonl")
        outcome = harness.zplan("run", os.path.join(settings.HERE, "label_a_sample.dz"), "--ranks", tensor * data, "-o", os.path.join(folder, "label-%d" % tensor), "--set",
                                "tensor=%d" % tensor, "--set", "plan.data=%d" % data, "--log", log, "--", "--checkpoint", os.path.join(folder, "label-ck-%d" % tensor))
        if tally.check("a label a sample", outcome.status == 0, outcome.tail()):
            norm = harness.read_log(log)[0][0]["grad_norm"]
            tally.check("a label a sample: norm on %d ranks" % (tensor * data), harness.number_error(norm, LABEL_A_SAMPLE) <= 1e-11, "%.13g, not %.13g" % (norm, LABEL_A_SAMPLE))
        os.remove(log)


def check_model(tally, name, number, python, folder, update):
    references = references_of(tally, name, python, folder, update)
    for turn, layout in enumerate(LAYOUTS, number):
        tensor, _, data, expert = LAYOUTS[layout]
        if ((expert > 1 and name not in EXPERTS) or (name == "deepseek_groups" and layout == "tensor 2 x pipeline 2") or
                (tensor == 1 and data > 1 and name not in ON_DATA_RANKS) or
                (layout == SEQUENCE and name not in ("vit", "audio", "squad", "packed", "axes", "mla")) or (layout != "one rank" and (name in ON_ONE_RANK or not harness.my_turn(turn)))):
            continue
        looked_at = any("greedy" in reference or "validation" in reference for reference in references.values())
        if layout == "one rank" and not (looked_at or harness.my_turn(number, 2)):
            continue
        whole = layout == "one rank" and (harness.my_turn(number, 3) or any("greedy" in reference for reference in references.values()))
        count = settings.STEPS if whole or name in settings.VALIDATED else PREFIX
        outcome, log, checkpoints = zplan_run(name, layout, folder, count)
        if not tally.check("%s on %s" % (name, layout), outcome.status == 0, outcome.tail()):
            continue
        steps, _ = harness.read_log(log)
        for source, reference in references.items():
            compare(tally, "%s on %s, %s" % (name, layout, source), steps, reference, EXACT_BOUND if name in EXACT else BOUND, count=count)
            if "greedy" in reference and layout == "one rank":
                check_texts(tally, "%s, %s" % (name, source), reference["greedy"], checkpoints)
            if "validation" in reference:
                check_looked_at(tally, "%s on %s, %s" % (name, layout, source), reference, log, checkpoints if layout == "one rank" else None, EXACT_BOUND)
    if name not in IN_F32 or not harness.my_turn(number):
        return
    outcome, log, _ = zplan_run(name, "one rank", folder, PREFIX, "fp32")
    if tally.check("%s in f32" % name, outcome.status == 0, outcome.tail()):
        for source, reference in references.items():
            compare(tally, "%s in f32, %s" % (name, source), harness.read_log(log)[0], reference, count=PREFIX)


def main():
    update = sys.argv[1:] == ["--update"]
    if sys.argv[1:] and not update:
        sys.exit(__doc__)
    harness.require_zplan()
    harness.build_quickly()
    python = python_with_torch()
    if not python:
        print("no Python with torch here: comparing with the committed values only")
    if update and not python:
        sys.exit("--update needs a Python with torch: set PYTHON")
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_label_a_sample(tally, folder)
        for number, name in enumerate(settings.ARCHITECTURES):
            check_model(tally, name, number, python, folder, update)
            if name in ("gpt2", "llama"):  # of experts, a rounding sends a token to another one
                check_mixed(tally, name, number, python, folder, update)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
