#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configurations of torchtitan as .dz files: parameters and layouts of published ones, exports read back, contradictions, damaged TOML."""
import argparse
import json
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from launches import block, expect, failures, parameters_of, passed, write, zplan  # noqa: E402
from harness import ROOT, Scratch, my_turn, require_zplan  # noqa: E402
from launches_table import TORCHTITAN  # noqa: E402


def toml(sections):
    def value(v):
        if isinstance(v, bool):
            return str(v).lower()
        return "[ %s, ]" % ", ".join(map(value, v)) if isinstance(v, list) else json.dumps(v)
    return "# a run\n" + "\n".join("[%s]\n%s\n" % (name, "\n".join("%s = %s  # a key" % (k, value(v)) for k, v in keys.items()))
                                   for name, keys in sections.items())


def imported(folder, sections, gpus, words=(), *more):
    text = sections if isinstance(sections, str) else toml(sections)
    files = [write(folder, "run.toml", text)] if text and sections else []
    return zplan("import", "torchtitan", *files, *(["--gpus", str(gpus)] if gpus else []), *more, "--", *words)


def check_published(folder):
    for name, _, gpus, sections, words, facts in TORCHTITAN:
        answer = imported(folder, sections, gpus, words)
        if not expect(name + ": imported", answer.returncode == 0, answer.stderr):
            continue
        found = {**block(answer.stdout, "train"), **block(answer.stdout, "plan launched")}
        for key in facts.keys() - {"note", "parameters"}:
            expect("%s: %s" % (name, key), found.get(key) == str(facts[key]), found.get(key))
        expect(name + ": note", facts.get("note", "") in answer.stderr, answer.stderr)
        if "parameters" in facts:
            counted = parameters_of(write(folder, name + ".dz", answer.stdout))
            expect(name + ": parameters", counted == facts["parameters"], counted)


GOOD = {"model": {"name": "llama3", "flavor": "8B"}, "training": {"local_batch_size": 2, "seq_len": 8192}, "parallelism": {}}


def parts_of(sizes, first="tok_embeddings", last=("norm", "output")):
    """Modules by part, of parts that have so many layers."""
    parts, at = [], 0
    for size in sizes:
        parts.append(["layers.%d" % layer for layer in range(at, at + size)])
        at += size
    return [[first] + parts[0]] + parts[1:-1] + [parts[-1] + list(last)]


def changed(section, **keys):
    return {**GOOD, section: {**GOOD.get(section, {}), **keys}}


def two_parts(parts):
    return changed("parallelism", pipeline_parallel_degree=2, module_fqns_per_model_part=parts)


WRONG = [
    (changed("parallelism", data_parallel_shard_degree=4), "Z0688", ["are not the 8 GPUs"]),
    (changed("parallelism", data_parallel_replicate_degree=1 << 20, tensor_parallel_degree=1 << 20, pipeline_parallel_degree=1 << 20,
             context_parallel_degree=1 << 20), "Z0688", ["more than 1048576 GPUs"]),
    (changed("parallelism", tensor_parallel_degree=3), "Z0688", ["8 GPUs"]),
    (changed("parallelism", data_parallel_shard_degree=0), "Z0688", ["data_parallel_shard_degree is 0"]),
    (changed("parallelism", tensor_paralel_degree=2), "Z0688", ["`parallelism.tensor_paralel_degree` is no key", "did you mean `parallelism.tensor_parallel_degree`"]),
    (changed("parallelism", expert_parallel_degree=2), "Z0688", ["the model has no experts"]),
    (changed("parallelism", pipeline_parallel_degree=2, pipeline_parallel_schedule="2F2B"), "Z0688", ["2F2B is no schedule"]),
    (changed("parallelism", pipeline_parallel_degree=2, pipeline_parallel_microbatch_size=3), "Z0688", ["no multiple of pipeline_parallel_microbatch_size"]),
    (changed("parallelism", pipeline_parallel_degree=4, pipeline_parallel_first_stage_less_layers=30), "Z0688", ["30 layers less than the others"]),
    (two_parts(parts_of([10, 21])), "Z0688", ["has 31 layers, the model has 32"]),
    (two_parts(parts_of([10, 10, 12])), "Z0688", ["has 3 parts, which 2 stages"]),
    (two_parts(parts_of([32, 0])), "Z0689", ["part 2 of `parallelism.module_fqns_per_model_part` has no layers"]),
    (two_parts(parts_of([16, 16])[::-1]), "Z0688", ["has `layers.16` where `layers.0` comes next"]),
    (two_parts(parts_of([16, 16], last=("norm", "output", "vision_encoder"))), "Z0689", ["has `vision_encoder` in part 2"]),
    (two_parts(parts_of([16, 16], first="norm")), "Z0689", ["has `norm` in part 1"]),
    (two_parts([1, 2]), "Z0688", ["part 1 of `parallelism.module_fqns_per_model_part` is no list"]),
    (two_parts("layers.3"), "Z0688", ["no list of lists"]),
    (changed("parallelism", pipeline_parallel_degree=2, pipeline_parallel_split_points=["layers.1"] * 4096), "Z0688", ["has 4096 layers, more than 4095"]),
    (changed("parallelism", pipeline_parallel_degree=2, pipeline_parallel_split_points=["layers.32"]), "Z0688", ["has `layers.32`, no layer from layers.1"]),
    (changed("training", num_tokens_per_microbatch_per_dp_rank=8192), "Z0688", ["contradict each other"]),
    (changed("training", global_batch_size=17), "Z0688", ["a batch of 17"]),
    (changed("training", seq_len="long"), "Z0688", ["`training.seq_len` is \"long\""]),
    (changed("training", enable_cpu_offload=True), "Z0689", ["keep all state on the device"]),
    (changed("activation_checkpoint", mode="half"), "Z0688", ["none, selective, full or memory_budget"]),
    (changed("optimizer", name="Muon"), "Z0689", ["optimizer.name Muon is not planned"]),
    (changed("fault_tolerance", enable=True), "Z0689", ["fault_tolerance"]),
    ({**GOOD, "model": {"name": "deepseek_v3", "flavor": "16B"}}, "Z0689", ["not known", "llama3 8B"]),
]
NAMED = [
    (changed("parallelism", enable_async_tensor_parallel=True), ["enable_async_tensor_parallel", "not planned"]),
    (changed("float8", enable_float8_linear=True), ["float8.enable_float8_linear", "not planned"]),
    (changed("parallelism", pipeline_parallel_degree=2, pipeline_parallel_schedule="ZBVZeroBubble"), ["ZBVZeroBubble", "not planned"]),
    (changed("activation_checkpoint", mode="memory_budget"), ["memory_budget"]),
]
CUTS = [  # of 32 layers, embedding and head counted as one each where nothing else is said
    (changed("parallelism", pipeline_parallel_degree=4), [8, 9, 8, 7]),
    (changed("parallelism", pipeline_parallel_degree=2, pipeline_parallel_schedule="Interleaved1F1B"), [8, 9, 8, 7]),
    (changed("parallelism", pipeline_parallel_degree=4, pipeline_parallel_first_stage_less_layers=0,
             pipeline_parallel_last_stage_less_layers=0), [8, 8, 8, 8]),
    (changed("parallelism", pipeline_parallel_degree=2, pipeline_parallel_first_stage_less_layers=4), [15, 17]),
    (changed("parallelism", pipeline_parallel_degree=2, module_fqns_per_model_part=parts_of([10, 22])), [10, 22]),
    (changed("parallelism", pipeline_parallel_degree=2, pipeline_parallel_schedule="Interleaved1F1B", module_fqns_per_model_part=parts_of([9, 7, 5, 5, 3, 3])),
     [9, 7, 5, 5, 3, 3]),
    (changed("parallelism", pipeline_parallel_degree=4, pipeline_parallel_split_points=["layers.9", "layers.17", "layers.25"]), [9, 8, 8, 7]),
]
TEXTS = [("[model", "`]` is expected"), ("[model]\nname = llama3", "a value is expected"), ("[model]\nname = \"llama3", "has no end"),
         ("[a]\nb = 1\nb = 2", "there twice"), ("[[model]]\n", "arrays of tables"), ("a = [1, 2", "expected in an array"),
         ("a = \"\"\"x\"\"\"", "several lines"), ("a = 1 2", "goes on"), ("\x00", "no text"), ("a = " + "[" * 3000, "too deeply")]


def check_wrong(folder):
    for sections, code, words in WRONG:
        answer = imported(folder, sections, 8, [], "-o", os.path.join(folder, "wrong.dz"))
        expect("wrong: %s" % words, answer.returncode == 1 and code in answer.stderr and all(w in answer.stderr for w in words), answer.stderr)
    expect("wrong: nothing is written", not os.path.exists(os.path.join(folder, "wrong.dz")))
    for sections, words in NAMED:
        answer = imported(folder, sections, 8)
        expect("named: %s" % words, answer.returncode == 0 and all(w in answer.stderr for w in words), answer.stderr)
    for sections, layers in CUTS:
        answer = imported(folder, sections, 8)
        cut = block(answer.stdout, "plan launched").get("cut", "")
        expect("cut %s" % layers, cut.replace(" ", "") == str(layers).replace(" ", ""), cut + answer.stderr)
    for text, words in TEXTS:
        answer = imported(folder, text, 8)
        expect("text %r" % text[:20], answer.returncode == 1 and "Z0688" in answer.stderr and words in answer.stderr, answer.stderr)
    answer = zplan("import", "torchtitan", write(folder, "empty.toml", ""), "--gpus", "8")
    expect("an empty file", answer.returncode == 1 and "is empty" in answer.stderr, answer.stderr)
    with open(os.path.join(folder, "latin.toml"), "wb") as f:
        f.write(b"['a\xff']\nb = 1\n")
    answer = zplan("import", "torchtitan", os.path.join(folder, "latin.toml"), "--gpus", "8")
    expect("no UTF-8", answer.returncode == 1 and "the file is no UTF-8" in answer.stderr, answer.stderr)
    answer = imported(folder, GOOD, 8, ["--optimizer.lr=inf"])
    expect("a rate without end", answer.returncode == 1 and "`optimizer.lr` is \"inf\"" in answer.stderr, answer.stderr)
    answer = imported(folder, GOOD, None)
    expect("no GPUs", answer.returncode == 1 and "give --gpus N" in answer.stderr, answer.stderr)
    answer = imported(folder, GOOD, 8, ["--module", "llama3"])
    expect("a function of Python", answer.returncode == 1 and "Z0689" in answer.stderr and "--module" in answer.stderr, answer.stderr)
    answer = imported(folder, GOOD, 8, ["--training.local-batch-size", "4", "--parallelism.tensor_parallel_degree=2"])
    plan = block(answer.stdout, "plan launched")
    expect("words after the file", (plan.get("microbatch"), plan.get("tensor"), plan.get("data")) == ("4", "2", "4"), answer.stderr)
    answer = imported(folder, GOOD, 8, [], "--model", "llama2-7b")
    expect("another model", answer.returncode == 0 and "llama2_7b" in answer.stdout, answer.stderr)


# ---- exports read back ----

LLAMA = ["--module", "llama3", "--config=llama3_8b", "--parallelism.fsdp_reshard_after_forward=always"]
LAUNCHES = [  # name, GPUs, words of a launch
    ("FSDP with tensor ranks", 64, LLAMA + ["--training.global_batch_size=128", "--parallelism.tensor_parallel_degree=2", "activation_checkpoint:full"]),
    ("betas, no sequence", 16, LLAMA + ["--parallelism.tensor_parallel_degree=4", "--parallelism.no_enable_sequence_parallel", "--training.seq-len", "4096",
                                        "--optimizer.param_groups.0.optimizer_kwargs.betas", "0.8", "0.99", "--training.max_norm=2", "activation_checkpoint:none"]),
    ("replicas of shards", 64, LLAMA + ["--parallelism.data_parallel_replicate_degree=8", "--lr_scheduler.decay_type=cosine", "--lr_scheduler.min_lr_factor=0.1"]),
    ("ZeRO 2, fp32", 16, LLAMA[:3] + ["--parallelism.fsdp_reshard_after_forward=never", "--training.mixed_precision_param=float32", "--training.seq_len=1024", "--lr_scheduler.decay_ratio=0.25"]),
    ("a pipeline", 32, LLAMA[:3] + ["--parallelism.fsdp_reshard_after_forward=never", "--parallelism.pipeline_parallel_degree=4", "--training.local_batch_size=8",
                                   "--parallelism.pipeline_parallel_microbatch_size=2", "--lr_scheduler.decay_ratio=0", "activation_checkpoint:full"]),
    ("ranks along the sequence", 64, LLAMA + ["--parallelism.context_parallel_degree=4", "activation_checkpoint:selective"]),
]


def words_of(path):
    """The array as bash reads it."""
    script = 'source "$1"; printf "%s\\n" "${TORCHTITAN_ARGS[@]}"'
    return subprocess.run(["bash", "-c", script, "bash", path], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def read_back(words):
    """By argparse, which knows no zplan: every key once, whole numbers as such."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    keys = sorted({word.split("=")[0] for word in words if word.startswith("--")})
    for key in keys:
        with_value = any(word.startswith(key + "=") for word in words)
        parser.add_argument(key, **({} if with_value else {"nargs": 2, "type": float} if key.endswith("betas") else {"action": "store_true"}))
    parser.add_argument("recomputation")
    return {key: json.loads(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value
            for key, value in vars(parser.parse_args(words)).items()}


def check_round_trip(folder):
    for number, (name, gpus, words) in enumerate(LAUNCHES):
        if not my_turn(number, 3):
            continue
        answer = zplan("import", "torchtitan", "--gpus", str(gpus), "--machine", "dgx-h100", "--", *words)
        if not expect("round trip: " + name, answer.returncode == 0, answer.stderr):
            continue
        path, first, second = (os.path.join(folder, "round%d.%s" % (number, ending)) for ending in ("dz", "1.sh", "2.sh"))
        write(folder, os.path.basename(path), answer.stdout)
        plan = block(answer.stdout, "plan launched")
        exported = zplan("export", "torchtitan", path, "--plan", "launched", "-o", first)
        if not expect("round trip: %s exported" % name, exported.returncode == 0, exported.stderr):
            continue
        told = words_of(first)
        read = read_back(told)
        sharding, parallelism = int(plan["data"]), lambda key: read["parallelism." + key]
        expect("%s: degrees" % name, (parallelism("tensor_parallel_degree"), parallelism("pipeline_parallel_degree"), parallelism("context_parallel_degree"),
                                      parallelism("data_parallel_replicate_degree") * parallelism("data_parallel_shard_degree")) ==
               (int(plan["tensor"]), int(plan["pipeline"]), int(plan["context"]), sharding), str(read))
        expect("%s: all GPUs" % name, sharding * int(plan["context"]) * int(plan["tensor"]) * int(plan["pipeline"]) == gpus, str(plan))
        expect("%s: sharding" % name, parallelism("fsdp_reshard_after_forward") == {"2": "never", "3": "always"}[plan["zero"]], str(read))
        micro = read["parallelism.pipeline_parallel_microbatch_size"] if int(plan["pipeline"]) > 1 else read["training.local_batch_size"]
        expect("%s: micro-batch" % name, micro == int(plan["microbatch"]) and read["recomputation"] == "activation_checkpoint:" + plan["recompute"], str(read))
        for word in words:
            if "=" in word and not word.startswith(("--module", "--config")) and "no_enable" not in word:
                expect("%s: %s" % (name, word), word in told, told)
        again = zplan("import", "torchtitan", "--gpus", str(gpus), "--machine", "dgx-h100", "--", *told)
        if not expect("round trip: %s imported again" % name, again.returncode == 0, again.stderr):
            continue
        back = block(again.stdout, "plan launched")
        expect("round trip: %s, the same plan" % name, back == plan, (back, plan))
        expect("round trip: %s, the same training" % name, block(again.stdout, "train") == block(answer.stdout, "train"), again.stdout)
        exported = zplan("export", "torchtitan", write(folder, "back.dz", again.stdout), "--plan", "launched", "-o", second, "--force")
        expect("round trip: %s, the same arguments" % name, exported.returncode == 0 and words_of(second) == told, exported.stderr)


REFUSED = [  # settings over the first launch, words of the message
    (["optimizer=lion(lr=1e-4)"], "lion: its settings"),
    (["precision=mixed_fp16"], "precision mixed_fp16"),
    (["ema=0.99"], "no average of the weights"),
    (["model.layers=31"], "none of llama3_debugmodel"),
    (["model.V=1000"], "none of llama3_debugmodel"),
    (["zero=1"], "ZeRO 1"),
    (["offload[optimizer]=cpu"], "together, to the host"),
]


def check_refused(folder):
    answer = zplan("import", "torchtitan", "--gpus", "64", "--machine", "dgx-h100", "--", *LAUNCHES[0][2])
    path = write(folder, "refused.dz", answer.stdout)
    for number, (settings, words) in enumerate(REFUSED):
        if my_turn(number, 3):
            run = zplan("export", "torchtitan", path, "--plan", "launched", "--for", "zplan", *(word for one in settings for word in ("--set", one)), "-o", os.path.join(folder, "no.sh"))
            expect("refused: %s" % settings, run.returncode == 1 and words in run.stderr and not os.path.exists(os.path.join(folder, "no.sh")), run.stderr)
    run = zplan("export", "torchtitan", os.path.join(ROOT, "examples/gpt2.dz"), "--machine", "dgx-h100")
    expect("refused: layer norms", run.returncode == 1 and "Z0682" in run.stderr and "layer norm" in run.stderr, run.stderr)
    run = zplan("import", "torchtitan", "--gpus", "8", "--", "--module=llama3", "--config=llama3_405b")
    expect("a function that is not known", run.returncode == 1 and "llama3_8b" in run.stderr, run.stderr)


def check_damage(folder):
    draw = random.Random(39)
    good = toml(TORCHTITAN[0][3])
    for _ in range(25):
        text = list(good)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(text))
            if draw.random() < 0.5:
                text[at] = draw.choice("[]{}\"'=,.#\n0-9e\\")
            else:
                del text[at:at + draw.randint(1, 12)]
        answer = imported(folder, "".join(text), 64)
        good_end = answer.returncode == 1 and "error" in answer.stderr
        if answer.returncode == 0:
            good_end = zplan("fmt", "--check", write(folder, "damaged.dz", answer.stdout)).returncode == 0
        expect("damage", good_end, (answer.returncode, answer.stderr[:300], "".join(text)))


def main():
    require_zplan()
    with Scratch() as folder:
        check_published(folder)
        check_round_trip(folder)
        check_refused(folder)
        check_wrong(folder)
        check_damage(folder)
    print("%d passed, %d failed" % (passed[0], len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
