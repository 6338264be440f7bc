#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launches of other programs as .dz files: parameters and layouts of published launches, exports read back, contradictions, damage.

Parameters are counted by a formula of its own, or are published; degrees are those of the launch."""
import json
import os
import random
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from harness import ROOT, ZPLAN, Scratch, my_turn, require_zplan  # noqa: E402
from launches_table import LLAMA3_8B, MEGATRON  # noqa: E402

failures, passed = [], [0]


def expect(name, condition, detail=""):
    if condition:
        passed[0] += 1
    else:
        failures.append(name)
        print("FAILED %s %s" % (name, detail))
    return condition


def zplan(*args, cwd=None, limit=300):
    return subprocess.run([ZPLAN, *args], capture_output=True, text=True, errors="replace", timeout=limit, cwd=cwd or ROOT,
                          env=dict(os.environ, NO_COLOR="1", COLUMNS="2000"))


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def dict_of(flags):
    pairs = [flag.split(" ", 1) for flag in flags.split(", ")]
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def megatron_parameters(flags):
    """Parameters by Megatron-LM's rules: padded tables, biases, norms, gated networks, experts."""
    f = dict_of(flags)
    number = lambda key, missing: int(f.get(key, missing))
    d, layers, heads = number("hidden-size", 0), number("num-layers", 0), number("num-attention-heads", 0)
    gated, bias = "swiglu" in f, "disable-bias-linear" not in f
    ff = number("ffn-hidden-size", int(4 * d * 2 / 3 / 64) * 64 if gated else 4 * d)
    kv = number("num-query-groups", heads) if "group-query-attention" in f else heads
    head = number("kv-channels", d // heads)
    norm = d if f.get("normalization") == "RMSNorm" else 2 * d
    step = number("make-vocab-size-divisible-by", 128) * number("tensor-model-parallel-size", 1)
    tokens = number("vocab-size", {"Llama2Tokenizer": 32000}.get(f.get("tokenizer-type"), 50257))
    rows = number("padded-vocab-size", -(-tokens // step) * step)
    tables = rows * d * (2 if "untie-embeddings-and-output-weights" in f else 1)
    if f.get("position-embedding-type", "learned_absolute") == "learned_absolute":
        tables += number("max-position-embeddings", 0) * d
    qkv = (heads + 2 * kv) * head
    attention = d * qkv + heads * head * d + (qkv + d if bias else qkv if "add-qkv-bias" in f else 0)
    attention += 2 * head if "qk-layernorm" in f else 0
    if "num-experts" in f:
        experts, width = int(f["num-experts"]), number("moe-ffn-hidden-size", ff)
        network = d * experts + experts * (3 if gated else 2) * d * width
    else:
        network = (3 if gated else 2) * d * ff + ((2 if gated else 1) * ff + d if bias else 0)
    return tables + layers * (attention + network + 2 * norm) + norm


# ---- what a .dz file says ----

def block(text, name):
    found = re.search(r"^%s \{$(.*?)^\}$" % name, text, re.M | re.S)
    lines = re.findall(r"^ +([a-z_\[\]]+) *= *(.*?)(?: +#.*)?$", found.group(1), re.M) if found else []
    return {key: value.strip('"') for key, value in lines}


def parameters_of(path, *more):
    answer = zplan("check", path, "--json", *more)
    return json.loads(answer.stdout)["parameters"] if answer.returncode == 0 else answer.stderr


# ---- scripts in the ways that people write them ----

def as_arrays(flags, gpus):
    words = ["--" + flag for flag in flags.split(", ")]
    half = len(words) // 2
    return ("#!/bin/bash\nGPUS_PER_NODE=8\nNNODES=%d\nWORLD=$(($GPUS_PER_NODE * $NNODES))\n"
            "DISTRIBUTED=(\n  --nproc_per_node $GPUS_PER_NODE # GPUs\n  --nnodes ${NNODES}\n)\nMODEL_ARGS=(\n  %s\n)\nTRAIN_ARGS=( %s )\n"
            "if [ -n \"${WANDB_KEY}\" ]; then\n  TRAIN_ARGS+=(--wandb-project \"$WANDB_KEY\")\nfi\n"
            "torchrun ${DISTRIBUTED[@]} pretrain_gpt.py \\\n  ${MODEL_ARGS[@]} \\\n  \"${TRAIN_ARGS[@]}\" --data-path $1 2>&1 | tee log\n"
            % (gpus // 8, "\n  ".join(words[:half]), " \\\n ".join(words[half:])))


def as_text(flags, gpus):
    words = ["--" + flag for flag in flags.split(", ")]
    return ("MICRO=1\nOPTIONS=\" \\\n  %s \\\n  --save-interval ${EVERY:-1000} \"\n"
            "python -m torch.distributed.launch --nproc_per_node=8 --nnodes=%d pretrain_gpt.py $OPTIONS --load '$HOME/x'\n"
            % (" \\\n  ".join(words), gpus // 8))


def as_equals(flags, gpus):
    words = ["--" + flag.replace(" ", "=", 1) for flag in flags.split(", ")]
    return "MODE=\"a\"\nif [[ $MODE == \"a\" ]]; then\n  ARGS=(%s)\nelse\n  ARGS=(--num-layers 1)\nfi\nsrun --nodes %d torchrun --nproc-per-node 8 --nnodes %d x/pretrain_gpt.py \"${ARGS[@]}\"\n" % (" ".join(words), gpus // 8, gpus // 8)


STYLES = (as_arrays, as_text, as_equals)


def check_megatron(folder):
    for index, (name, _, gpus, flags, facts) in enumerate(MEGATRON):
        script = write(folder, name + ".sh", STYLES[index % len(STYLES)](flags, gpus))
        answer = zplan("import", "megatron", script)
        if not expect(name + ": imported", answer.returncode == 0, answer.stderr):
            continue
        path = write(folder, name + ".dz", answer.stdout)
        plan, train = block(answer.stdout, "plan launched"), block(answer.stdout, "train")
        own_trainer = ["--set", "precision=mixed_bf16"] if "fp8" in train["precision"] else []
        found = {**train, **plan, "parameters": parameters_of(path, *own_trainer)}
        counted = megatron_parameters(flags)
        expect(name + ": parameters", found["parameters"] == counted == (facts["parameters"] or counted), (found["parameters"], counted))
        if "billions" in facts:
            expect(name + ": published", abs(counted / 1e9 - facts["billions"]) < 0.06, counted)
        for key in facts.keys() - {"parameters", "billions"}:
            expect("%s: %s" % (name, key), found.get(key) == str(facts[key]), found.get(key))
        expect(name + ": ranks", int(plan["tensor"]) * int(plan["pipeline"]) * int(plan["data"]) * int(plan["context"]) == gpus, plan)


def check_answer(folder):
    """The whole answer: a plan that is pinned, and a better one."""
    small = LLAMA3_8B.replace("num-layers 32", "num-layers 8") + (
        ", micro-batch-size 1, global-batch-size 64, bf16, lr 1e-4, train-iters 10, tensor-model-parallel-size 8, overlap-grad-reduce, vocab-size 32000")
    script = write(folder, "small.sh", as_arrays(small, 8))
    answer = zplan("import", "megatron", script, "-o", os.path.join(folder, "small.dz"), "--json", "--machine", "dgx-h100")
    if not expect("answer", answer.returncode == 0, answer.stderr):
        return
    said = json.loads(answer.stdout)["result"]
    launched, free = said["launched"], said["free"]
    expect("answer: fits", launched["fits"] and free["fits"], said)
    expect("answer: pinned", (launched["plan"]["tensor"], launched["plan"]["zero"], launched["plan"]["data"]) == (8, 0, 1), launched)
    expect("answer: better", free["step_s"] < launched["step_s"], (free["step_s"], launched["step_s"]))
    alone = zplan("plan", os.path.join(folder, "small.dz"), "--plan", "launched", "--for", "megatron", "--json")
    expect("answer: the same as of the file", alone.returncode == 0 and abs(
        json.loads(alone.stdout)["estimate"]["step_s"] / launched["step_s"] - 1) < 1e-9, alone.stderr)
    shown = zplan("import", "megatron", script, "-o", os.path.join(folder, "small2.dz"))
    expect("answer: in words", re.search(r"^step .*^why .*^better .*more tokens/s", shown.stdout, re.M | re.S), shown.stdout)
    huge = write(folder, "huge.sh", as_arrays(small.replace("num-layers 8", "num-layers 800"), 8))
    answer = zplan("import", "megatron", huge, "-o", os.path.join(folder, "huge.dz"), "--json")
    said = json.loads(answer.stdout)["result"]
    expect("answer: does not fit", answer.returncode == 3 and said["launched"] == {"fits": False}, (answer.returncode, said))


# ---- exports read back ----

def arguments(text):
    found = re.search(r"^MEGATRON_ARGS=\((.*?)^\)", text, re.M | re.S)
    return [line.strip() for line in found.group(1).splitlines() if line.strip().startswith("--")]


KEPT_ELSEWHERE = ("--save", "--load", "--exit-signal-handler", "--mock-data", "--tokenizer-type", "--transformer-impl")


def check_round_trip(folder):
    """Of these one a commit, by turns."""
    for number, name in enumerate(("gpt1t", "gpt2", "llama2_7b", "mixtral", "t_nlg")):
        if not my_turn(number, 5):
            continue
        with open("%s/golden/%s.megatron.sh" % (HERE, name)) as f:
            script = f.read()
        ranks = re.search(r"^  # (\d+) ranks", script, re.M).group(1)
        machine = "dgx2" if name in ("gpt1t", "t_nlg") else "dgx-h100"
        answer = zplan("import", "megatron", "%s/golden/%s.megatron.sh" % (HERE, name), "--gpus", ranks, "--machine", machine)
        if not expect("round trip: " + name, answer.returncode == 0, answer.stderr):
            continue
        path = write(folder, name + "_back.dz", answer.stdout)
        gap = ("--gap", "10%") if name == "gpt1t" else ()  # as the script was made (interop.py): the proof takes 12 s
        again = zplan("export", "megatron", path, "--plan", "launched", "--for", "megatron", *gap)
        if not expect("round trip: %s exported again" % name, again.returncode == 0, again.stderr):
            continue
        was, now = ([a for a in arguments(text) if not a.startswith(KEPT_ELSEWHERE)] for text in (script, again.stdout))
        expect("round trip: %s, the same arguments" % name, was == now, sorted(set(was) ^ set(now)))


# ---- what is wrong, and named ----

GOOD = LLAMA3_8B + ", micro-batch-size 1, global-batch-size 64, bf16, lr 1e-4, train-iters 10, vocab-size 32000"
WRONG = [  # flags, code, words of the message
    (GOOD + ", fp16", "Z0688", ["--bf16 and --fp16 contradict"]),
    (GOOD + ", num-layer 3", "Z0688", ["--num-layer is no flag", "--num-layers?"]),
    (GOOD + ", tensor-model-parallel-size 3", "Z0688", ["heads (32) do not divide"]),
    (GOOD + ", pipeline-model-parallel-size 5", "Z0688", ["32 layers do not divide", "8 GPUs"]),
    (GOOD + ", train-samples 100", "Z0688", ["--train-iters and --train-samples"]),
    (GOOD + ", overlap-param-gather", "Z0688", ["wants --use-distributed-optimizer", "wants --overlap-grad-reduce"]),
    (GOOD + ", step-batch-size-schedule 0:16", "Z0688", ["--global-batch-size and --step-batch-size-schedule"]),
    (GOOD + ", lr 2e-4", "Z0688", ["--lr is given twice, as 1e-4 and as 2e-4"]),
    (GOOD + ", recompute-granularity full", "Z0688", ["wants --recompute-method"]),
    (GOOD + ", fp8-format hybrid, fp8-param-gather", "Z0688", ["--fp8-param-gather wants --use-distributed-optimizer"]),
    (GOOD + ", fp8-format hybrid, fp8-recipe tensorwise, fp8-param-gather, use-distributed-optimizer, optimizer-cpu-offload", "Z0688", ["wants --fp8-recipe delayed"]),
    (GOOD + ", cpu-offloading-num-layers 32", "Z0688", ["32 is not below 32 layers"]),
    (GOOD + ", cpu-offloading-num-layers 4, recompute-activations", "Z0688", ["activations are offloaded without recomputation"]),
    (GOOD + ", multi-latent-attention", "Z0689", ["latent attention"]),
    (GOOD + ", mtp-num-layers 1", "Z0689", ["further tokens"]),
    (GOOD + ", expert-model-parallel-size 2", "Z0688", ["no --num-experts"]),
    (GOOD + ", swiglu yes", "Z0688", ["--swiglu takes no value"]),
    (GOOD.replace("hidden-size 4096", "hidden-size many"), "Z0688", ["--hidden-size takes a whole number, not `many`"]),
    (GOOD.replace("hidden-size 4096", "hidden-size $WIDTH"), "Z0688", ["does not say what `$WIDTH` is", "--hidden-size"]),
    (GOOD.replace("num-layers 32, ", ""), "Z0688", ["--num-layers is missing"]),
    (GOOD.replace(", swiglu", ""), "Z0688", ["--disable-bias-linear and gelu"]),
    (GOOD.replace("global-batch-size 64", "global-batch-size 63"), "Z0688", ["63", "no multiple"]),
]
NAMED = [  # flags, words of a note
    ("cpu-offloading-num-layers 4", ["which share of the activations leaves the device is the plan's"]),
    ("rampup-batch-size 16 8 1000", ["--rampup-batch-size 16 8 1000 is not planned"]),
    ("rotary-percent 0.5", ["--rotary-percent 0.5 is not planned"]),
    ("fp8-format e4m3, fp8-recipe blockwise", ["--fp8-recipe blockwise is not planned"]),
    ("context-parallel-size 2, cp-comm-type a2a+p2p", ["a2a+p2p is not planned"]),
]
CUTS = [  # flags, layers of every stage of 32, or of every chunk of the model
    ("pipeline-model-parallel-size 4", [8, 8, 8, 8]),
    ("pipeline-model-parallel-size 2, decoder-first-pipeline-num-layers 3", [3, 29]),
    ("pipeline-model-parallel-size 4, decoder-first-pipeline-num-layers 6, decoder-last-pipeline-num-layers 6", [6, 10, 10, 6]),
    ("pipeline-model-parallel-size 4, decoder-last-pipeline-num-layers 5", [9, 9, 9, 5]),
    ("pipeline-model-parallel-size 2, account-for-embedding-in-pipeline-split, account-for-loss-in-pipeline-split", [16, 16]),
    ("pipeline-model-parallel-size 2, num-layers-per-virtual-pipeline-stage 4", [4] * 8),
    ("pipeline-model-parallel-size 2, num-virtual-stages-per-pipeline-rank 2, decoder-first-pipeline-num-layers 12", [6, 10, 6, 10]),
    ("pipeline-model-parallel-size 4, pipeline-model-parallel-layout Et*5|t*9|t*9|t*9L", [5, 9, 9, 9]),
    ("pipeline-model-parallel-size 2, pipeline-model-parallel-layout Ettt|(t*10|)*2t*9L", [3, 10, 10, 9]),
    ("pipeline-model-parallel-size 2, pipeline-model-parallel-layout Et|((tt|)*2t*3|)*4t*3L", [1] + [2, 2, 3] * 4 + [3]),
]
BAD_CUTS = [  # flags, words
    ("pipeline-model-parallel-size 2, pipeline-model-parallel-layout Et|tL", "the stages have 2 layers, --num-layers is 32"),
    ("pipeline-model-parallel-size 2, decoder-first-pipeline-num-layers 40", "do not divide over the other 1 of 2 stages"),
    ("pipeline-model-parallel-size 4, decoder-first-pipeline-num-layers 3", "29 layers do not divide over the other 3 of 4 stages"),
    ("pipeline-model-parallel-size 2, decoder-first-pipeline-num-layers 3, decoder-last-pipeline-num-layers 3", "26 layers do not divide"),
    ("pipeline-model-parallel-size 2, num-virtual-stages-per-pipeline-rank 2, decoder-first-pipeline-num-layers 3",
     "the 3 layers of stage 0 do not divide into 2 chunks"),
    ("pipeline-model-parallel-size 2, pipeline-model-parallel-layout ((((t*1048576)*1048576)*1048576)*1048576)|t*32L",
     "has no multiple of"),
]
TEXTS = [  # a whole file, its status, words
    ("", 1, ["has no arguments"]),
    ("\n# nothing\nexit 0\n", 1, ["has no arguments"]),
    ("ARGS=(--num-layers 2", 1, ["no closing parenthesis"]),
    ("X=\"--num-layers 2\npretrain", 1, ["has no end"]),
    ("python pretrain_bert.py --num-layers 2", 1, ["pretrain_bert.py"]),
    ("\x00\x01", 1, ["is no text"]),
    ("X=" + "${a:-" * 100000, 1, ["defaults are nested more than"]),
    ("X=" + "\"${a:-" * 100000, 1, ["defaults are nested more than"]),
    ("".join("a%d=1\n" % i for i in range(5000)), 1, ["sets more than"]),
    ("if [ " + "! " * 1000000 + "a ]; then\nfi\n", 1, ["has no arguments"]),
]


def check_wrong(folder):
    for index, (flags, code, words) in enumerate(WRONG):
        answer = zplan("import", "megatron", write(folder, "wrong.sh", STYLES[index % 2](flags, 8)), "-o", os.path.join(folder, "wrong.dz"))
        expect("wrong: %s" % words, answer.returncode == 1 and code in answer.stderr and all(w in answer.stderr for w in words), answer.stderr)
    expect("wrong: nothing is written", not os.path.exists(os.path.join(folder, "wrong.dz")))
    for flags, words in NAMED:
        answer = zplan("import", "megatron", write(folder, "named.sh", as_text(GOOD + ", " + flags, 8)))
        expect("named: %s" % words, answer.returncode == 0 and all(w in answer.stderr for w in words), answer.stderr)
    for flags, layers in CUTS:
        answer = zplan("import", "megatron", write(folder, "cut.sh", as_text(GOOD + ", " + flags, 8)))
        found = re.search(r"^  cut *= \[([0-9, ]+)\]", answer.stdout, re.M)
        expect("cut: %s" % flags, found and [int(n) for n in found[1].split(",")] == layers, answer.stderr + answer.stdout[-1500:])
    for flags, words in BAD_CUTS:
        answer = zplan("import", "megatron", write(folder, "cut.sh", as_text(GOOD + ", " + flags, 8)))
        expect("bad cut: %s" % words, answer.returncode == 1 and "Z0688" in answer.stderr and words in answer.stderr, answer.stderr)
    for text, status, words in TEXTS:
        answer = zplan("import", "megatron", write(folder, "text.sh", text))
        expect("text: %s" % words, answer.returncode == status and all(w in answer.stderr for w in words), answer.stderr)
    tested = write(folder, "tested.sh", "if [ -n \"$BIG\" ]; then\n A=(--num-layers 64)\nfi\npython pretrain_gpt.py ${A[@]} --%s" %
                   " --".join(GOOD.replace("num-layers 32, ", "").split(", ")))
    answer = zplan("import", "megatron", tested, "--gpus", "8")
    expect("a test that is not known", answer.returncode == 1 and "whether --num-layers is given" in answer.stderr, answer.stderr)
    words = [w for flag in GOOD.split(", ") for w in ("--" + flag).split(" ")]
    answer = zplan("import", "megatron", "--gpus", "8", "--", *words)
    expect("flags alone", answer.returncode == 0 and "model megatron(" in answer.stdout, answer.stderr)
    answer = zplan("import", "megatron", write(folder, "over.sh", as_text(GOOD, 8)), "--", "--num-layers", "16")
    expect("flags after the script", "layers = 16" in answer.stdout and "takes the place of 32" in answer.stderr, answer.stderr)
    for name in ("train", "attention_of", "linear", "1", "a-b c", "-"):
        answer = zplan("import", "megatron", write(folder, name + ".sh", as_text(GOOD, 8)), "-o", os.path.join(folder, "name.dz"), "--force", "--gap", "50%")
        expect("a script called " + name, answer.returncode in (0, 3) and "fits" in answer.stdout + answer.stderr, answer.stderr)
    nodes = write(folder, "nodes.sh", as_text(GOOD, 8).replace("--nnodes=1", "--nnodes=$SLURM_NNODES"))
    answer = zplan("import", "megatron", nodes)
    expect("nodes that only a run knows", answer.returncode == 1 and "give --gpus N" in answer.stderr, answer.stderr)
    answer = zplan("import", "megatron")
    expect("nothing", answer.returncode == 2 and "wants a script" in answer.stderr, answer.stderr)
    answer = zplan("import", "hf", "x", "--gpus", "8")
    expect("--gpus of another format", answer.returncode == 2 and "--gpus is for launches" in answer.stderr, answer.stderr)


def check_damage(folder):
    """Whatever becomes of a script: an answer, never a crash, never a file that the language does not take."""
    draw = random.Random(37)
    good = [style(GOOD, 8) for style in STYLES]
    for _ in range(40):
        text = list(draw.choice(good))
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(text))
            what = draw.randrange(4)
            if what == 0:
                del text[at:at + draw.randint(1, 30)]
            elif what == 1:
                text[at:at] = draw.choice(["(", ")", "\"", "'", "${", "$((", "`", "\\", "if ", " fi\n", "=(", "+=", "9" * 30, "#", "--"])
            elif what == 2:
                text[at] = chr(draw.randrange(1, 127))
            else:
                text[at:at] = text[:draw.randrange(len(text))]
        answer = zplan("import", "megatron", write(folder, "damaged.sh", "".join(text)), limit=20)
        good_end = answer.returncode == 1 and "error" in answer.stderr
        if answer.returncode == 0:
            good_end = zplan("fmt", "--check", write(folder, "damaged.dz", answer.stdout)).returncode == 0
        if not expect("damage", good_end, (answer.returncode, answer.stderr[:300])):
            print("".join(text))


def main():
    require_zplan()
    with Scratch() as folder:
        check_megatron(str(folder))
        check_answer(str(folder))
        check_round_trip(str(folder))
        check_wrong(str(folder))
        check_damage(str(folder))
    print("%d passed, %d failed" % (passed[0], len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
