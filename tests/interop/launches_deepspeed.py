#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configurations of DeepSpeed as .dz files: layouts of published ones, exports read back, the rule of three batches, contradictions, damage."""
import json
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from launches import ROOT, block, expect, failures, parameters_of, passed, write, zplan  # noqa: E402
from harness import Scratch, require_zplan  # noqa: E402
from launches_table import DEEPSPEED  # noqa: E402


def imported(folder, config, gpus, model, *more):
    text = config if isinstance(config, str) else json.dumps(config, indent=1)
    return zplan("import", "deepspeed", write(folder, "ds.json", text), "--gpus", str(gpus), "--model", model, *more)


def check_published(folder):
    for name, _, gpus, model, config, facts in DEEPSPEED:
        answer = imported(folder, config, gpus, model)
        if not expect(name + ": imported", answer.returncode == 0, answer.stderr):
            continue
        found = {**block(answer.stdout, "train"), **block(answer.stdout, "plan launched")}
        for key in facts.keys() - {"note"}:
            expect("%s: %s" % (name, key), found.get(key) == str(facts[key]), found.get(key))
        expect(name + ": note", facts.get("note", "") in answer.stderr, answer.stderr)
        path = write(folder, name + ".dz", answer.stdout)
        known = json.loads(zplan("models", model, "--json").stdout)
        published = [row["parameters"] for row in known if row["name"] == model]
        expect(name + ": parameters", [parameters_of(path)] == published, published)


def check_batches(folder):
    """Every two of batch, micro-batch and accumulation, and one alone, on 8 data ranks."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    for values, batch, micro in (((64, 4, 2), 64, 4), ((64, 4, None), 64, 4), ((64, None, 2), 64, 4), ((None, 4, 2), 64, 4),
                                 ((64, None, None), 64, 8), ((None, 4, None), 32, 4), ((64, 4, 3), None, None), ((65, None, 2), None, None),
                                 ((None, None, 2), None, None)):
        config = {name: value for name, value in zip(names, values) if value}
        answer = imported(folder, config, 8, "gpt2-124m")
        if batch:
            found = {**block(answer.stdout, "train"), **block(answer.stdout, "plan launched")}
            expect("batches %s" % (values,), (found.get("batch"), found.get("microbatch")) == (str(batch), str(micro)), answer.stderr)
        else:
            expect("batches %s" % (values,), answer.returncode == 1 and "Z0688" in answer.stderr, answer.stderr)


ROUND = (("offload_40b", 1, "capacity/offload_40b.dz", []), ("zero2_13b", 128, "capacity/zero2_13b.dz", []),
         ("one_bit", 256, "capacity/zero1_6b.dz", []), ("pipeline", 64, "mixtral_8x7b.dz", ["--", "pipeline.stages=8"]))
COMPARED = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping", "optimizer", "fp16", "bf16",
            "zero_optimization", "tensor_parallel", "activation_checkpointing")


def check_round_trip(folder):
    for name, gpus, model, more in ROUND:
        path = "%s/golden/%s.deepspeed.json" % (HERE, name)
        with open(path) as f:
            was = json.load(f)
        ranks = was["train_batch_size"] // was["train_micro_batch_size_per_gpu"] // was["gradient_accumulation_steps"]
        ranks *= was.get("tensor_parallel", {}).get("autotp_size", 1) * (8 if more else 1)
        with open("%s/examples/%s" % (ROOT, model)) as f:
            text = f.read()
        if name == "zero2_13b":
            text = text.replace("layers = 40", "layers = 36")
        mine = write(folder, "model_%s.dz" % name, text)
        answer = zplan("import", "deepspeed", path, "--gpus", str(ranks), "--model", mine, "--machine", "dgx-h100" if more else "dgx2", *more)
        if not expect("round trip: " + name, answer.returncode == 0, answer.stderr):
            continue
        back = write(folder, name + ".dz", answer.stdout)
        expect("round trip: %s, parameters" % name, isinstance(parameters_of(back), int) and parameters_of(back) == parameters_of(mine),
               parameters_of(back))
        plan = block(answer.stdout, "plan launched")
        expect("round trip: %s, ZeRO" % name, plan["zero"] == str(was.get("zero_optimization", {}).get("stage", 0)), plan)
        expect("round trip: %s, offload" % name, plan["offload[optimizer]"] ==
               was.get("zero_optimization", {}).get("offload_optimizer", {}).get("device", "none"), plan)
        expect("round trip: %s, recompute" % name, plan["recompute"] == ("full" if "activation_checkpointing" in was else "none"), plan)
        if name == "zero2_13b":
            again = zplan("export", "deepspeed", back, "--plan", "launched", "--for", "deepspeed")
            if expect("round trip: exported again", again.returncode == 0, again.stderr):
                now = json.loads(again.stdout)
                expect("round trip: the same keys", {k: was.get(k) for k in COMPARED} == {k: now.get(k) for k in COMPARED}, (was, now))


GOOD = {"train_batch_size": 64, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
WRONG = [  # what is changed, code, words
    ({"fp16": {"enabled": True}}, "Z0688", ["fp16.enabled and bf16.enabled contradict"]),
    ({"zero_optimization": {"stage": 4}}, "Z0688", ["`zero_optimization.stage` is 4"]),
    ({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}, "Z0688", ["offload_optimizer and zero_optimization.stage 0"]),
    ({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, "Z0688", ["offload_param and zero_optimization.stage 2"]),
    ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}}, "Z0688", ["on nvme"]),
    ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "gpu"}}}, "Z0688", ["none, cpu or nvme"]),
    ({"zero_optimization": {"stag": 2}}, "Z0688", ["`zero_optimization.stag` is no key", "did you mean `zero_optimization.stage`"]),
    ({"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}}}, "Z0688", ["1-bit exchanges are without ZeRO"]),
    ({"optimizer": {"type": "Sophia"}}, "Z0689", ["optimizer.type Sophia is not planned"]),
    ({"pipeline": {"stages": 2}}, "Z0688", ["pipeline.stages 2 and zero_optimization.stage 2"]),
    ({"zero_optimization.stage": 3}, "Z0688", ["`zero_optimization.stage` is no key"]),
    ({"train_batch_size": None, "train_micro_batch_size_per_gpu": 100000000, "gradient_accumulation_steps": 100000000}, "Z0688", ["is more than 100000000 samples"]),
    ({"train_batch_size": 63}, "Z0688", ["63 does not divide"]),
    ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}}, "Z0688", ["zero_hpz_partition_size 3 does not divide 8"]),
    ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4, "mics_shard_size": 2}}, "Z0688", ["contradict each other"]),
    ({"train_batch_size": "many"}, "Z0688", ["`train_batch_size` is \"many\""]),
    ({"quantize_training": {"enabled": True}}, "Z0689", ["quantize_training"]),
    ({"sequence_parallel_size": 2}, "Z0689", ["sequence_parallel_size"]),
    ({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}}, "Z0688", ["two numbers"]),
]
NAMED = [
    ({"zero_optimization": {"stage": 1, "zero_hpz_partition_size": 4}}, ["zero_hpz_partition_size", "no effect"]),
    ({"zero_optimization": {"stage": 3, "zero_quantized_weights": True}}, ["zero_quantized_weights", "not planned"]),
    ({"curriculum_learning": {"enabled": True}}, ["curriculum_learning", "not planned"]),
]


def check_wrong(folder):
    for change, code, words in WRONG:
        answer = imported(folder, {**GOOD, **change}, 8, "gpt2-124m", "-o", os.path.join(folder, "wrong.dz"))
        expect("wrong: %s" % words, answer.returncode == 1 and code in answer.stderr and all(w in answer.stderr for w in words), answer.stderr)
    expect("wrong: nothing is written", not os.path.exists(os.path.join(folder, "wrong.dz")))
    for change, words in NAMED:
        answer = imported(folder, {**GOOD, **change}, 8, "gpt2-124m")
        expect("named: %s" % words, answer.returncode == 0 and all(w in answer.stderr for w in words), answer.stderr)
    for text in ("", "{", "[]", '{"train_batch_size": 64, "train_batch_size": 32}', "\x00", '{"a": ' * 3000):
        answer = imported(folder, text, 8, "gpt2-124m")
        expect("text %r" % text[:20], answer.returncode == 1 and "Z0688" in answer.stderr, answer.stderr)
    answer = imported(folder, GOOD, 8, "no-such-model")
    expect("a model that is not there", answer.returncode == 1 and "--model is a .dz file" in answer.stderr, answer.stderr)
    answer = zplan("import", "deepspeed", write(folder, "ds.json", "{}"), "--gpus", "8")
    expect("no model", answer.returncode == 2 and "wants --model" in answer.stderr, answer.stderr)
    answer = imported(folder, {**GOOD, "train_batch_size": "auto"}, 8, "gpt2-124m", "--", "train_micro_batch_size_per_gpu=4", "zero_optimization.stage=3")
    plan = block(answer.stdout, "plan launched")
    expect("keys after `--`", (plan.get("microbatch"), plan.get("zero")) == ("4", "3"), answer.stderr)
    config = imported(folder, GOOD, 8, HERE + "/hf/gpt2.json")
    expect("a config.json", config.returncode == 0 and "model gpt2(" in config.stdout, config.stderr)


def check_damage(folder):
    draw = random.Random(38)
    good = json.dumps(DEEPSPEED[3][4], indent=1)
    for _ in range(25):
        text = list(good)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(text))
            if draw.random() < 0.5:
                text[at] = draw.choice("{}[]\",:0-9.eE\\tn")
            else:
                del text[at:at + draw.randint(1, 12)]
        answer = imported(folder, "".join(text), 4, "gpt2-124m")
        good_end = answer.returncode == 1 and "error" in answer.stderr
        if answer.returncode == 0:
            good_end = zplan("fmt", "--check", write(folder, "damaged.dz", answer.stdout)).returncode == 0
        expect("damage", good_end, (answer.returncode, answer.stderr[:300], "".join(text)))


# Model, stages, method, layers of every stage: what DeepSpeed 0.19.8 makes of a list of the embedding, the layers, and the last norm with the head
# (tests/peers/cuts.py asks it again).
CUTS = [("llama2-7b", 5, "uniform", [6, 7, 7, 7, 5]), ("llama2-7b", 5, "Parameters", [6, 7, 7, 6, 6]), ("llama2-7b", 7, "type:transformer", [5, 5, 5, 5, 4, 4, 4]),
        ("gpt2-124m", 4, "type:Transformer|embed", [3, 4, 3, 2]), ("llama2-7b", 1, "uniform", None)]
BAD_CUTS = [("type:transformer|Gate", "Z0689", "has `gate`"), ("profile", "Z0688", "not `profile`"), ("type:", "Z0688", "names no classes"),
            ("parameters", "Z0689", "gives stage 0 of 4 no layers"), ("7", "Z0688", "no text")]


def check_cuts(folder):
    for model, stages, method, layers in CUTS:
        answer = imported(folder, {"train_micro_batch_size_per_gpu": 1}, stages, model, "--", "pipeline.stages=%d" % stages, "pipeline.partition_method=" + method)
        expect("cut %s" % method, block(answer.stdout, "plan launched").get("cut") == (str(layers) if layers else None), answer.stdout + answer.stderr)
        expect("cut %s: a note" % method, ("list of modules that is Python" in answer.stderr) == (layers is not None), answer.stderr)
    for method, code, words in BAD_CUTS:
        answer = imported(folder, {"train_micro_batch_size_per_gpu": 1, "pipeline": {"stages": 4, "partition_method": method}}, 4, "gpt2-124m",
                          *(["--", "pipeline.partition_method=7"] if method == "7" else []))
        expect("cut %s refused" % method, answer.returncode == 1 and code in answer.stderr and words in answer.stderr, answer.stderr)
    answer = imported(folder, {"train_micro_batch_size_per_gpu": 1}, 4, "gpt2-124m", "--", "pipeline.stages=4")
    expect("cut: none is named", "where stages begin is Python" in answer.stderr and "cut" not in block(answer.stdout, "plan launched"), answer.stderr)
    answer = imported(folder, {"train_micro_batch_size_per_gpu": 1}, 20, "gpt2-124m", "--", "pipeline.stages=20", "pipeline.partition_method=uniform")
    expect("cut: more stages than modules", answer.returncode == 1 and "14 modules do not divide over 20 stages" in answer.stderr, answer.stderr)


def main():
    require_zplan()
    with Scratch() as folder:
        check_published(folder)
        check_cuts(folder)
        check_batches(folder)
        check_round_trip(folder)
        check_wrong(folder)
        check_damage(folder)
    print("%d passed, %d failed" % (passed[0], len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
