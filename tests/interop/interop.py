#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports and imports: golden files, every exported number computed again from the plan, refusals, damaged input.

usage: interop.py [--update]      --update rewrites golden/: read the difference before committing it
"""
import json
import math
import os
import random
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from harness import ROOT, ZPLAN, Scratch, require_zplan  # noqa: E402
from exported_memory import differences, read_deepspeed, read_megatron  # noqa: E402
from exported_script import Script  # noqa: E402

UPDATE = "--update" in sys.argv[1:]
EXAMPLES = ROOT + "/examples/"
HF = HERE + "/hf/"
failures, passed = [], [0]


def expect(name, condition, detail=""):
    if condition:
        passed[0] += 1
    else:
        failures.append(name)
        print("FAILED %s %s" % (name, detail))
    return condition


def zplan(*args):
    return subprocess.run([ZPLAN, *args], capture_output=True, text=True, errors="replace", timeout=900, cwd=ROOT,
                          env=dict(os.environ, NO_COLOR="1", COLUMNS="2000"))


def sets(text):
    return [word for pair in text.split() for word in ("--set", pair)]


# ---- golden files: pinned decisions, so that the search decides as little as possible ----

GPT1T = [EXAMPLES + "gpt1t.dz", "--gpus", "800",
         *sets("tensor=16 pipeline=50 schedule=1f1b recompute=full recompute_shard=tensor sequence=false zero=0 microbatch=1")]
MIXTRAL = [EXAMPLES + "mixtral_8x7b.dz",
           *sets("tensor=1 pipeline=4 data=16 expert=8 schedule=1f1b recompute=selective zero=1 microbatch=1 cut=layer")]
CARDS = EXAMPLES + "capacity/"
ADAMW = ["--set", "optimizer=adamw(lr=1e-4,weight_decay=0.1)"]
T_NLG = [CARDS + "t_nlg_17b.dz", *ADAMW, *sets("tensor=4 pipeline=1 zero=1 microbatch=2 recompute=full sequence=true")]
OFFLOAD = [CARDS + "offload_40b.dz", "--gpus", "1", *sets("microbatch=16 recompute=full")]
ZERO2 = [CARDS + "zero2_13b.dz", *sets("model.layers=36 microbatch=1 recompute=full data=128")]
ONE_BIT = [CARDS + "zero1_6b.dz", *sets("tensor=8 zero=0 compress=true pipeline=1 sequence=false microbatch=1")]
PIPELINE = [EXAMPLES + "mixtral_8x7b.dz",
            *sets("tensor=1 pipeline=8 data=8 expert=1 schedule=1f1b recompute=selective zero=1 microbatch=1 cut=layer")]
LLAMA = [HERE + "/golden/llama2_7b.dz", *sets("tensor=2 pipeline=2 data=2 schedule=1f1b recompute=none zero=1 microbatch=1 "
                                              "sequence=true rank_order=tpd cut=layer")]
BLOCK = [HERE + "/golden/llama2_7b.dz", *sets("tensor=2 pipeline=2 data=2 schedule=1f1b recompute_layers=3 zero=1 microbatch=1 sequence=true cut=layer")]
# A chunk that has fewer layers than recompute in the others, and all of its do.
CHUNKS = [HERE + "/golden/llama2_7b.dz", *sets("tensor=2 pipeline=2 data=2 schedule=interleaved chunks=2 recompute_layers=8 recompute=full zero=1 microbatch=1 "
                                               "sequence=true cut=layer")]
GPT2 = [HERE + "/golden/gpt2.dz", *sets("tensor=1 pipeline=1 data=8 zero=2 microbatch=32 recompute=none")]
SCRIPTS = (
    ("gpt2", GPT2),
    ("zero 3", [HERE + "/golden/gpt2.dz", *sets("tensor=1 pipeline=1 data=8 zero=3 microbatch=8 recompute=full")]),
    ("groups", [HERE + "/golden/gpt2.dz", "--gpus", "16", *sets("tensor=1 pipeline=1 data=16 zero=3 shard=8 microbatch=4 recompute=full recompute_layers=5")]),
    ("host", [HERE + "/golden/gpt2.dz", *sets("tensor=1 pipeline=1 data=8 zero=3 microbatch=8 recompute=none offload[optimizer]=cpu "
                                              "offload[gradients]=cpu offload[params]=cpu precision=fp32")]),
    ("llama", [HERE + "/golden/llama3_8b.dz", "--gpus", "16", *sets("tensor=1 pipeline=1 data=16 zero=3 microbatch=1 recompute=full")]),
)
CPU = [EXAMPLES + "gpt2.dz", "--gpus", "4", *sets("tensor=2 pipeline=1 data=2 microbatch=1 recompute=none zero=0")]

# Axes that other programs got late: positions and experts over the same ranks, state in groups, experts without capacity.
AXES = (
    ("context", [HERE + "/golden/llama2_7b.dz", "--gpus", "16", *sets("tensor=2 pipeline=2 context=2 schedule=1f1b zero=1 microbatch=1 cut=layer")]),
    ("context in groups", [HERE + "/golden/llama2_7b.dz", "--gpus", "16", *sets("tensor=2 pipeline=1 context=4 zero=1 shard=4 microbatch=1")]),
    ("groups with FSDP", [HERE + "/golden/llama2_7b.dz", "--gpus", "16", *sets("tensor=1 pipeline=1 zero=3 shard=8 microbatch=1")]),
    ("experts over context", [HERE + "/golden/mixtral_8x7b.dz", "--gpus", "32", *sets(
        "tensor=1 pipeline=4 context=2 plan.data=4 expert=8 schedule=1f1b zero=1 microbatch=1 recompute=full cut=layer")]),
    ("experts without capacity", [EXAMPLES + "moe_tiny.dz", "--machine", "dgx-h100", "--gpus", "8", "--for", "megatron",
                                  *sets("model.capacity=dropless tensor=1 pipeline=1 plan.expert=8 precision=mixed_bf16")]),
)

GOLDEN = [
    ("gpt2.dz", ["import", "hf", HF + "gpt2.json"]),
    ("llama2_7b.dz", ["import", "hf", HF + "llama2_7b.json"]),
    ("mixtral_8x7b.dz", ["import", "hf", HF + "mixtral_8x7b.json"]),
    ("llama3_8b.dz", ["import", "hf", HF + "llama3_8b.json"]),
    ("gpt_neox_20b.dz", ["import", "hf", HF + "gpt_neox_20b.json"]),
    ("qwen2_0_5b.dz", ["import", "hf", HF + "qwen2_0_5b.json"]),
    ("bert_base.dz", ["import", "hf", HF + "bert_base.json"]),
    ("t5_v1_1_small.dz", ["import", "hf", HF + "t5_v1_1_small.json"]),
    ("vit_base.dz", ["import", "hf", HF + "vit_base.json"]),
    ("gpt1t.megatron.sh", ["export", "megatron", *GPT1T, "--gap", "10%"]),
    ("mixtral.megatron.sh", ["export", "megatron", *MIXTRAL]),
    ("t_nlg.megatron.sh", ["export", "megatron", *T_NLG]),
    ("llama2_7b.megatron.sh", ["export", "megatron", *LLAMA]),
    ("gpt2.megatron.sh", ["export", "megatron", *GPT2]),
    ("llama2_7b.bridge.py", ["export", "megatron-bridge", *LLAMA]),
    ("offload_40b.deepspeed.json", ["export", "deepspeed", *OFFLOAD]),
    ("zero2_13b.deepspeed.json", ["export", "deepspeed", *ZERO2]),
    ("one_bit.deepspeed.json", ["export", "deepspeed", *ONE_BIT]),
    ("pipeline.deepspeed.json", ["export", "deepspeed", *PIPELINE]),
    ("llama3_8b.torchtitan.sh", ["export", "torchtitan", HERE + "/golden/llama3_8b.dz", "--gpus", "64", *sets("tensor=4 pipeline=2 data=8 schedule=1f1b recompute=full zero=2 microbatch=1 cut=layer")]),
    ("gpt2.fsdp2.py", ["export", "fsdp2", *SCRIPTS[2][1]]),
    ("llama3_8b.fsdp2.py", ["export", "fsdp2", *SCRIPTS[4][1]]),
    ("gpt1t.sbatch", ["export", "slurm", *GPT1T]),
    ("gpt2_cpu.sbatch", ["export", "slurm", *CPU]),
]


def golden():
    os.makedirs(HERE + "/golden", exist_ok=True)
    for name, args in GOLDEN:
        run = zplan(*args)
        if not expect("golden " + name, run.returncode == 0, "exit %d: %s" % (run.returncode, run.stderr[:400])):
            continue
        for path, text in ((name, run.stdout), (name + ".notes", run.stderr)):
            path = HERE + "/golden/" + path
            if UPDATE:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            with open(path, encoding="utf-8") as file:
                kept = file.read()
            expect("golden " + os.path.basename(path), kept == text, "differs; see --update")
        if name.endswith((".sh", ".sbatch")):
            check = subprocess.run(["bash", "-n", HERE + "/golden/" + name], capture_output=True, text=True)
            expect("bash -n " + name, check.returncode == 0, check.stderr)
        if name.endswith(".dz"):
            expect("canonical layout " + name, zplan("fmt", "--check", HERE + "/golden/" + name).returncode == 0)


# ---- numbers of an export, computed again from the plan file ----

def flags_of(path):
    """The array of a Megatron file as bash reads it: {flag: value or True}."""
    words = subprocess.run(["bash", "-c", 'source "$1"; printf "%s\\n" "${MEGATRON_ARGS[@]}"', "bash", path],
                           capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    flags, last = {}, None
    for word in words:
        if word.startswith("--"):
            assert word not in flags, word + " stands twice"
            flags[word], last = True, word
        else:
            flags[last] = word if flags[last] is True else flags[last] + " " + word
    return flags


def layout_of(text):
    """[(embedding, layers, head)] of the chunks, by a reader of our own."""
    text = text.replace(",", "")
    while True:
        match = re.search(r"\(([^()]*)\)\*(\d+)|(\w)\*(\d+)", text)
        if not match:
            break
        body, times = (match[1], match[2]) if match[2] else (match[3], match[4])
        text = text[:match.start()] + body * int(times) + text[match.end():]
    return [(chunk.count("E"), chunk.count("t"), chunk.count("L")) for chunk in text.split("|")]


def megatron_parameters(f):
    """Parameters of the model that the flags describe."""
    number = lambda flag, missing=0: int(f.get(flag, missing))
    d, layers, ff, heads = (number(x) for x in ("--hidden-size", "--num-layers", "--ffn-hidden-size", "--num-attention-heads"))
    head = number("--kv-channels", d // heads)
    groups = number("--num-query-groups", heads)
    bias = "--disable-bias-linear" not in f
    norm = d * (1 if f["--normalization"] == "RMSNorm" else 2)
    qkv = (heads + 2 * groups) * head
    layer = d * qkv + heads * head * d + 2 * norm
    layer += qkv if bias or "--add-qkv-bias" in f else 0
    layer += d if bias else 0
    matrices = 3 if "--swiglu" in f else 2
    experts = number("--num-experts")
    layer += max(experts, 1) * matrices * d * ff + experts * d
    layer += (matrices - 1) * ff + d if bias and not experts else 0
    tables = number("--vocab-size") * d * (2 if "--untie-embeddings-and-output-weights" in f else 1)
    if f["--position-embedding-type"] == "learned_absolute":
        tables += number("--max-position-embeddings") * d
    return layers * layer + tables + norm


def check_megatron(name, plan, path):
    f, degrees = flags_of(path), plan["degrees"]
    scale = [flag in f for flag in ("--initial-loss-scale", "--loss-scale-window", "--min-loss-scale", "--hysteresis")]
    expect(name + " loss scale", all(scale) if "--fp16" in f else not any(scale) and "--loss-scale" not in f, str(scale))
    tensor, pipeline, data = degrees["tensor"], degrees["pipeline"], degrees["data"]
    expect(name + " degrees", (int(f["--tensor-model-parallel-size"]), int(f["--pipeline-model-parallel-size"])) ==
           (tensor, pipeline))
    micro, batch = int(f["--micro-batch-size"]), int(f["--global-batch-size"])
    expect(name + " batch", micro == plan["microbatch"] and batch == plan["model"]["batch"] and
           batch == micro * plan["microbatches"] * data, "%d %d" % (micro, batch))
    expect(name + " parameters", megatron_parameters(f) == plan["model"]["parameters"],
           "%d, the plan has %d" % (megatron_parameters(f), plan["model"]["parameters"]))
    expect(name + " sequence", int(f["--seq-length"]) == plan["model"]["sequence"])
    expect(name + " sequence parallel", ("--sequence-parallel" in f) == plan["sequence"])
    expect(name + " order", ("--use-tp-pp-dp-mapping" in f) == (plan["rank_order"] == "tpd"))
    expect(name + " zero", ("--use-distributed-optimizer" in f, "--use-megatron-fsdp" in f) ==
           (plan["zero"] == 1, plan["zero"] >= 2), str(plan["zero"]))
    expect(name + " recompute", f.get("--recompute-granularity", "none") == plan["recompute"], plan["recompute"])
    if "mixed_stages" in plan:
        layers = max(mixed["recompute_layers"] for mixed in plan["mixed_stages"])
        expect(name + " block", (f["--recompute-method"], int(f["--recompute-num-layers"])) == ("block", layers), str(layers))
        with open(path, encoding="utf-8") as file:
            expect(name + " recomputes no more than the plan", "the most of any" not in file.read())
    context = degrees.get("context", 1)
    by = {"heads": "a2a", "keys": "all_gather", "ring": "p2p"}[plan["context_by"]] if context > 1 else None
    expect(name + " context", (int(f.get("--context-parallel-size", 1)), f.get("--cp-comm-type")) == (context, by), "by %s" % by)
    copies = data * context // degrees.get("shard", data * context)
    expect(name + " shard groups", int(f.get("--num-distributed-optimizer-instances", 1)) == copies, str(degrees))
    if pipeline > 1:
        chunks = [None] * (pipeline * plan["chunks"])
        for s, stage in enumerate(plan["stages"]):
            for k, chunk in enumerate(stage["chunks"]):
                chunks[k * pipeline + s] = chunk["units"]
        layout = layout_of(f["--pipeline-model-parallel-layout"])
        expect(name + " cut", [sum(chunk) for chunk in layout] == chunks, f["--pipeline-model-parallel-layout"])
        expect(name + " layers", sum(chunk[1] for chunk in layout) == int(f["--num-layers"]))
        expect(name + " ends", layout[0][0] == 1 and layout[-1][2] == 1 and sum(c[0] + c[2] for c in layout) == 2)
    group = f.get("--microbatch-group-size-per-virtual-pipeline-stage")
    if plan["chunks"] > 1:
        size = int(group) if group else pipeline
        rest = plan["microbatches"] % size
        expect(name + " groups", size >= pipeline and (rest == 0 or rest >= pipeline), "%d" % size)
    if "--num-experts" in f:
        shares = int(f["--expert-model-parallel-size"]) * int(f["--expert-tensor-parallel-size"])
        expect(name + " experts", shares in (degrees["expert"] * tensor, tensor) and
               int(f["--num-experts"]) % int(f["--expert-model-parallel-size"]) == 0, str(shares))


def check_deepspeed(name, plan, path):
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    degrees = plan["degrees"]
    expect(name + " batch", config["train_batch_size"] == plan["model"]["batch"] == config["train_micro_batch_size_per_gpu"] *
           config["gradient_accumulation_steps"] * degrees["data"])
    zero = config.get("zero_optimization", {})
    expect(name + " stage", zero.get("stage", 0) == plan["zero"] or (degrees["data"] == 1 and plan["offload"]))
    expect(name + " shard groups", zero.get("mics_shard_size") == degrees.get("shard"), str(degrees))
    expect(name + " hpZ", zero.get("zero_hpz_partition_size") == degrees.get("hpz"), str(degrees))
    for state, key in (("optimizer", "offload_optimizer"), ("params", "offload_param")):
        tier = plan["offload"].get(state, {}).get("tier")
        expect(name + " " + key, zero.get(key, {}).get("device") == {None: None, "host": "cpu", "nvme": "nvme"}[tier])
    expect(name + " activations", config.get("activation_checkpointing", {}).get("cpu_checkpointing", False) ==
           ("activations" in plan["offload"]))
    tensor = degrees["tensor"] if degrees["pipeline"] == 1 else 1
    expect(name + " tensor", config.get("tensor_parallel", {}).get("autotp_size", 1) == tensor)
    expect(name + " optimizer", (config["optimizer"]["type"] == "OneBitAdam") == plan["compress"])


# What golden/gpt2.dz and llama3_8b.dz say of the training, and of the model.
SCRIPT_TRAINS = {"STEPS": 10000, "BATCH": 256, "OPTIMIZER": "AdamW", "LR": 3e-4, "BETAS": (0.9, 0.95), "EPS": 1e-8, "WEIGHT_DECAY": 0.1, "DECAY_ALL": False,
                 "CLIP": 1.0, "SCHEDULE": "cosine", "WARMUP": 500, "FALL_BEGIN": 500, "FALL_END": 10000, "MIN_LR": 3e-5, "SEED": 0,
                 "NORM_EPS": 1e-5, "DATA_IS_TEXT": False}
SCRIPT_MODELS = {
    "gpt2": {"DROPOUT": 0.1, "ATTENTION_DROPOUT": 0.0, "ACTIVATION": "gelu_tanh", "DATA": None, "VOCABULARY": 50257, "POSITIONS": 1024, "LAYERS": 12, "WIDTH": 768,
             "HEADS": 12, "MLP_WIDTH": 3072},
    "llama": {"THETA": 5e5, "TIED": False, "VOCABULARY": 128256, "LAYERS": 32, "WIDTH": 4096, "HEADS": 32, "KV_HEADS": 8, "HEAD_WIDTH": 128, "MLP_WIDTH": 14336}}
GPT2_DEVIATIONS = {"wte": 0.02, "wpe": 0.02, "h.{}.attn.c_attn.weight": 0.02, "h.{}.attn.c_proj.weight": 0.02 / math.sqrt(24),
                   "h.{}.mlp.c_fc.weight": 0.02, "h.{}.mlp.c_proj.weight": 0.02 / math.sqrt(24)}
LLAMA_DEVIATIONS = {name: 0.02 for name in ("embed_tokens", "lm_head", *("layers.{}.self_attn.%s_proj.weight" % part for part in "qkvo"),
                                            *("layers.{}.mlp.%s_proj.weight" % part for part in ("gate", "up", "down")))}


def check_fsdp2(name, plan, path):
    script, degrees = Script(path), plan["degrees"]
    c = script.constants
    expect(name + " constants", not script.unknown and not script.unused, "%s %s" % (script.unknown, script.unused))
    shard = degrees.get("shard", degrees["data"])
    expect(name + " mesh", (c["REPLICATE"], c["SHARD"]) == (degrees["data"] // shard, shard) and degrees["tensor"] * degrees["pipeline"] == 1, str(degrees))
    expect(name + " zero", c["ZERO"] == plan["zero"])
    expect(name + " batch", (c["MICROBATCH"], c["ACCUMULATION"]) == (plan["microbatch"], plan["microbatches"]) and
           c["BATCH"] == c["MICROBATCH"] * c["ACCUMULATION"] * c["REPLICATE"] * c["SHARD"])
    expect(name + " parameters", script.parameters() == plan["model"]["parameters"], str(script.parameters()))
    expect(name + " sequence", c["SEQUENCE"] == plan["model"]["sequence"])
    some = [mixed["recompute_layers"] for mixed in plan.get("mixed_stages", [])]
    layers = some[0] if some else {"none": 0, "full": c["LAYERS"]}[plan["recompute"]]
    expect(name + " recomputation", c["RECOMPUTED_LAYERS"] == layers, "%d %s" % (c["RECOMPUTED_LAYERS"], layers))
    expect(name + " offloading", c["OFFLOAD"] == bool(plan["offload"]), str(plan["offload"]))
    expect(name + " precision", c["PRECISION"] == ("fp32" if plan["offload"] else "mixed_bf16"))
    llama = "KV_HEADS" in c
    wanted = {**SCRIPT_TRAINS, **SCRIPT_MODELS["llama" if llama else "gpt2"]}
    wrong = {key: c.get(key) for key, value in wanted.items() if c.get(key, key) != value}
    expect(name + " training", not wrong, str(wrong))
    deviations = LLAMA_DEVIATIONS if llama else GPT2_DEVIATIONS
    expect(name + " initial values", c["INITIAL_STD"].keys() == deviations.keys() and
           all(math.isclose(c["INITIAL_STD"][key], value, rel_tol=1e-12) for key, value in deviations.items()), str(c["INITIAL_STD"]))


def rates_of_scripts(folder):
    """Learning rates of an exported script, computed by its own function, against the language's formulas."""
    fall = lambda step, begin, end: min(max((step - begin) / (end - begin), 0), 1)
    line = lambda low, done: 3e-4 + (low - 3e-4) * done
    cosine = lambda low, done: low + (3e-4 - low) * (1 + math.cos(math.pi * done)) / 2
    for words, rate in (
            ("constant(warmup=10)", lambda s: 3e-4),
            ("linear(warmup=10,min_lr=1e-5)", lambda s: line(1e-5, fall(s, 10, 100))),
            ("cosine(warmup=10,min_lr=1e-5)", lambda s: cosine(1e-5, fall(s, 10, 100))),
            ("wsd(warmup=10,decay=20)", lambda s: line(0, fall(s, 80, 100)))):
        out = folder + "/rates.py"
        run = zplan("export", "fsdp2", *GPT2, "--set", "steps=100", "--set", "schedule=" + words, "-o", out, "--force")
        if expect("script with " + words, run.returncode == 0, run.stderr[-300:]):
            got = Script(out).function("learning_rate")
            wrong = [s for s in range(100) if not math.isclose(got(s), 3e-4 * (s + 1) / 10 if s < 10 else rate(s), rel_tol=1e-12, abs_tol=1e-18)]
            expect("learning rates of " + words, not wrong, str([(s, got(s)) for s in wrong[:3]]))


def check_slurm(name, plan, path, steps):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    option = lambda key: re.search(r"^#SBATCH --%s=(.*)$" % key, text, re.M)[1]
    degrees, cluster = plan["degrees"], plan["cluster"]
    ranks = degrees["tensor"] * degrees["pipeline"] * degrees["data"]
    each = min(ranks, cluster["devices_per_node"])
    expect(name + " ranks", int(option("ntasks")) == ranks and int(option("ntasks-per-node")) == each and
           int(option("nodes")) == -(-ranks // each))
    days, clock = option("time").split("-")
    hours, minutes, seconds = (int(x) for x in clock.split(":"))
    allowed = ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    expect(name + " time", allowed == max(600, math.ceil(plan["estimate"]["step_s"] * steps * 1.2 - 1e-6)), str(allowed))
    expect(name + " signal", option("signal") == "B:USR1@120")


def consistency(folder):
    plan_file, out = folder + "/plan.json", folder + "/out"
    for kind, name, args, check in (("megatron", "gpt1t", GPT1T, check_megatron), ("megatron", "block", BLOCK, check_megatron),
                                    ("megatron", "chunks", CHUNKS, check_megatron),
                                    ("megatron", "mixtral", MIXTRAL, check_megatron),
                                    ("megatron", "t_nlg", T_NLG, check_megatron),
                                    ("megatron", "llama", LLAMA, check_megatron), ("megatron", "gpt2", GPT2, check_megatron),
                                    *(("megatron", name, args, check_megatron) for name, args in AXES),
                                    ("deepspeed", "offload", OFFLOAD, check_deepspeed),
                                    ("deepspeed", "offload 1t", [CARDS + "offload_1t.dz", *sets("sequence=false pipeline=1")], check_deepspeed),
                                    ("deepspeed", "zero2", ZERO2, check_deepspeed),
                                    ("deepspeed", "groups", [*AXES[2][1], "--for", "deepspeed"], check_deepspeed),
                                    ("deepspeed", "hpZ", [HERE + "/golden/llama2_7b.dz", "--gpus", "16", "--for", "deepspeed", *sets("tensor=1 pipeline=1 zero=3 hpz=8 microbatch=1")], check_deepspeed),
                                    ("deepspeed", "one bit", [*ONE_BIT, "--for", "deepspeed"], check_deepspeed),
                                    ("deepspeed", "pipeline", PIPELINE, check_deepspeed),
                                    *(("fsdp2", name, args, check_fsdp2) for name, args in SCRIPTS),
                                    ("slurm", "gpt1t", GPT1T, lambda *a: check_slurm(*a, 71526)),
                                    ("slurm", "gpt2", CPU, lambda *a: check_slurm(*a, 2000))):
        name = kind + " " + name
        run = zplan(*args, "-o", plan_file)
        if not expect(name + " plan", run.returncode == 0, run.stderr[:300]):
            continue
        with open(plan_file, encoding="utf-8") as file:
            plan = json.load(file)
        run = zplan("export", kind, plan_file, "-o", out, "--force")
        if expect(name + " from its plan file", run.returncode == 0 and run.stdout == "", run.stderr[:300]):
            check(name, plan, out)


def memory_of_exports(folder):
    """Plans for the other program and for zplan's trainer, exported: bytes, precision and micro-batches of the file, read by that
    program's documentation, are the plan's."""
    plan_file, out = folder + "/plan.json", folder + "/out"
    dense = [HERE + "/golden/llama2_7b.dz", "--gpus", "8", *sets("cut=layer schedule=1f1b microbatch=1")]
    experts = [HERE + "/golden/mixtral_8x7b.dz", "--gpus", "64", *sets("cut=layer schedule=1f1b tensor=1 pipeline=4 expert=8 microbatch=1")]
    pipeline = sets("tensor=2 pipeline=2 zero=1")
    narrow = [(recipe, machine) for recipe in ("fp8", "fp8_delayed") for machine in ("dgx-h100", "dgx-b200")]
    for kind, name, args, precision in (
            *(("megatron", "%s on %s" % case, [*dense, *pipeline, "--machine", case[1]], "mixed_" + case[0])
              for case in (*narrow, ("mxfp8", "dgx-b200"), ("nvfp4", "dgx-b200"))),
            ("megatron", "pipeline", dense + pipeline, "mixed_bf16"), ("megatron", "pipeline fp16", dense + pipeline, "mixed_fp16"),
            ("megatron", "zero 2", dense + sets("tensor=1 pipeline=1 zero=2"), "mixed_bf16"),
            ("megatron", "experts", experts, "mixed_bf16"),
            *(("megatron", name, args, "mixed_bf16") for name, args in AXES[:4]),
            *(("deepspeed", "zero %d" % z, dense + sets("tensor=1 pipeline=1 zero=%d" % z), "mixed_bf16") for z in (1, 2, 3)),
            ("deepspeed", "zero 2 fp16", dense + sets("tensor=1 pipeline=1 zero=2"), "mixed_fp16")):
        for program in (kind, "zplan") if "--machine" not in args else (kind,):
            what = "%s %s planned for %s" % (kind, name, program)
            run = zplan(*args, "--for", program, *sets("precision=" + precision), "-o", plan_file)
            if not expect(what, run.returncode == 0, run.stderr[:300]):
                continue
            with open(plan_file, encoding="utf-8") as file:
                plan = json.load(file)
            run = zplan("export", kind, plan_file, "-o", out, "--force")
            if not expect(what + " is exported", run.returncode == 0, run.stderr[:300]):
                continue
            degrees = plan["degrees"]
            if kind == "megatron":
                f, units = flags_of(out), plan["stages"]
                layout = layout_of(f["--pipeline-model-parallel-layout"]) if len(units) > 1 else [(1, int(f["--num-layers"]), 1)]
                read = read_megatron(f, degrees["tensor"] * degrees["pipeline"] * degrees["data"] * degrees.get("context", 1), layout,
                                     "dgx-b200" not in args)
            else:
                with open(out, encoding="utf-8") as file:
                    read = read_deepspeed(json.load(file), plan["model"]["parameters"], degrees["data"])
            wrong = differences(read, plan, precision)
            expect(what + " says what the plan does", not wrong, "; ".join(wrong))


def loss_scales():
    """A scale that moves and one that stays, as the model says; bf16 has none."""
    fp16 = sets("precision=mixed_fp16")
    for name, words, megatron, deepspeed in (
            ("default", fp16, {"--initial-loss-scale": "65536", "--loss-scale-window": "2000", "--min-loss-scale": "1", "--hysteresis": "1"},
             {"enabled": True, "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 2000, "hysteresis": 1, "min_loss_scale": 1}),
            ("moving", [*fp16, "--set", "loss_scale=dynamic(initial=1024,window=50)"],
             {"--initial-loss-scale": "1024", "--loss-scale-window": "50", "--min-loss-scale": "1", "--hysteresis": "1"},
             {"enabled": True, "loss_scale": 0, "initial_scale_power": 10, "loss_scale_window": 50, "hysteresis": 1, "min_loss_scale": 1}),
            ("from 1", [*fp16, "--set", "loss_scale=dynamic(initial=1)"], {"--initial-loss-scale": "1"}, {"initial_scale_power": 0}),
            ("fixed", [*fp16, "--set", "loss_scale=128"], {"--loss-scale": "128"}, {"enabled": True, "loss_scale": 128}),
            ("none", sets("precision=mixed_bf16"), {}, None)):
        with Scratch() as folder:
            out = folder + "/out"
            run = zplan("export", "megatron", *LLAMA, *words, "-o", out, "--force")
            if expect("megatron, loss scale " + name, run.returncode == 0, run.stderr[:300]):
                found = {flag: value for flag, value in flags_of(out).items() if "scale" in flag or flag == "--hysteresis"}
                expect("megatron has loss scale " + name, megatron.items() <= found.items() and
                       len(found) == (4 if "--initial-loss-scale" in megatron else len(megatron)), str(found))
            run = zplan("export", "deepspeed", *GPT2, *words)
            if expect("deepspeed, loss scale " + name, run.returncode == 0, run.stderr[:300]):
                found = json.loads(run.stdout).get("fp16")
                expect("deepspeed has loss scale " + name, found == deepspeed or
                       (deepspeed is not None and "enabled" not in deepspeed and deepspeed.items() <= found.items()), str(found))


def imported_models(folder):
    """Every imported model, planned for 8 GPUs and exported: the flags describe as many parameters."""
    for name in ("gpt2", "llama2_7b", "llama3_8b", "mistral_7b", "qwen2_0_5b"):
        model, plan_file, out = folder + "/m.dz", folder + "/plan.json", folder + "/out"
        zplan("import", "hf", HF + name + ".json", "-o", model)
        pins = sets("cut=layer schedule=1f1b tensor=1")
        run = zplan(model, "--gpus", "8", "-o", plan_file, *pins)
        if not expect("plan imported " + name, run.returncode == 0, run.stderr[:300]):
            continue
        with open(plan_file, encoding="utf-8") as file:
            plan = json.load(file)
        run = zplan("export", "megatron", plan_file, "-o", out, "--force")
        if expect("export imported " + name, run.returncode == 0, run.stderr[:300]):
            expect("parameters of imported " + name, megatron_parameters(flags_of(out)) == plan["model"]["parameters"])


def runs_script(folder):
    """The batch script with stand-ins for Slurm: what it starts, with which variables; its status; signals."""
    bin_dir = folder + "/bin"
    os.makedirs(bin_dir)
    # More hosts than a pipe holds: who reads only the first line ends the writer.
    stand_ins = {"scontrol": "#!/bin/sh\necho node7\nseq -f node%g 8 30000\n",
                 "srun": '#!/bin/bash\n[ "$1" = --kill-on-bad-exit=1 ] || exit 99\nshift\nexport SLURM_PROCID=3 SLURM_LOCALID=1\n'
                         'exec "$@"\n'}
    for name, text in stand_ins.items():
        with open(bin_dir + "/" + name, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(bin_dir + "/" + name, 0o755)
    env = dict(os.environ, PATH=bin_dir + ":" + os.environ["PATH"], SLURM_NTASKS="800", SLURM_JOB_NODELIST="node[7-8]")
    job = folder + "/job"
    os.makedirs(job)
    foreign = folder + "/gpt2_megatron.sbatch"  # a program that has no trainer of zplan's
    run = zplan("export", "slurm", EXAMPLES + "gpt2.dz", "--machine", "dgx-h100", "--gpus", "8", "--for", "megatron", "--gap", "50%", "-o", foreign)
    expect("script for another program", run.returncode == 0, run.stderr[-300:])
    for script, signal in ((HERE + "/golden/gpt1t.sbatch", "USR1"), (foreign, "TERM")):
        start = lambda *words: subprocess.run(["bash", script, *words], capture_output=True, text=True, env=env, timeout=900, cwd=job)
        run = start("bash", "-c", 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $1"; exit 7', "x", "two words")
        expect("script starts", run.stdout == "3 1 800 node7 two words\n", run.stdout + run.stderr)
        expect("script's status", run.returncode == 7, str(run.returncode))
        inner = 'trap "echo asked; exit 0" %s; kill -USR1 $SCRIPT; for i in $(seq 500); do sleep 0.2; done; exit 9' % signal
        run = subprocess.run(["bash", "-c", 'export SCRIPT=$$; exec bash "$0" bash -c "$1"', script, inner], capture_output=True,
                             text=True, env=env, timeout=900)
        expect("script hands the signal on", (run.returncode, run.stdout) == (0, "asked\n"), "%d %s" % (run.returncode, run.stdout))
    expect("script of another program without a command", start().returncode == 2)
    script = HERE + "/golden/gpt1t.sbatch"
    os.makedirs(job + "/gpt1t.zplan")
    with open(job + "/gpt1t.zplan/trainer", "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\necho "trainer $SLURM_PROCID $*"\n')
    os.chmod(job + "/gpt1t.zplan/trainer", 0o755)
    expect("script starts the trainer", start().stdout == "trainer 3 \n")
    os.makedirs(job + "/out/gpt1t/latest")
    expect("script goes on from a checkpoint", start().stdout == "trainer 3 --resume\n")
    with open(bin_dir + "/trainer", "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho trained\n")
    os.chmod(bin_dir + "/trainer", 0o755)
    run = subprocess.run(["bash", HERE + "/golden/gpt2_cpu.sbatch", bin_dir + "/trainer"], capture_output=True, text=True, env=env)
    expect("CPU script", (run.returncode, run.stdout) == (0, "trained\n"), run.stderr)


# ---- what is refused ----

def refused(name, args, status, *words):
    run = zplan(*args)
    expect(name, run.returncode == status, "exit %d instead of %d: %s" % (run.returncode, status, run.stderr[-300:]))
    expect(name + ": nothing is written", run.stdout == "", run.stdout[:80])
    for word in words:
        expect(name + ": says", word in run.stderr, "no %r in %r" % (word, run.stderr[-500:]))


def refused_exports(folder):
    card = CARDS + "dp_1_4b.dz"
    mixtral = EXAMPLES + "mixtral_8x7b.dz"
    refused("no format", ["export"], 2, "deepspeed, megatron, megatron-bridge, torchtitan, fsdp2, slurm, hf or peft")
    refused("misspelt format", ["export", "megatronn", card], 2, "did you mean `megatron`?")
    refused("unknown format", ["export", "pytorch", card], 2, "unknown format `pytorch`")
    refused("no file", ["export", "slurm"], 2)
    refused("missing file", ["export", "slurm", folder + "/none.dz"], 1)
    refused("two files", ["export", "slurm", card, card], 2)
    refused("cpu", ["export", "megatron", *CPU], 1, "has CPU devices", "Z0681")
    refused("cpu", ["export", "deepspeed", *CPU], 1, "has CPU devices")
    # DeepSpeed's plans with hpZ have no tensor ranks, but a file may say so.
    path = folder + "/hpz.json"
    zplan(HERE + "/golden/llama2_7b.dz", "--gpus", "16", "--for", "deepspeed", *sets("tensor=1 pipeline=1 zero=3 hpz=8 microbatch=1"), "-o", path)
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    plan["degrees"].update(tensor=2, data=8, hpz=4)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    refused("hpZ with tensor ranks", ["export", "deepspeed", path], 1, "without tensor ranks and stages", "--set hpz=1")
    model = folder + "/m.dz"
    zplan("import", "hf", HF + "gpt2_xl.json", "-o", model)
    refused("dropout", ["export", "megatron", model, "--gpus", "8"], 1, "dropout is 0.1 here and 0 elsewhere", "Z0682")
    refused("adam", ["export", "megatron", CARDS + "t_nlg_17b.dz"], 1, "adam with weight_decay 0.1", "adamw")
    refused("nothing fits", ["export", "megatron", *GPT1T, "--set", "memory<=10%"], 3)
    refused("pipeline and zero 2", ["export", "deepspeed", CARDS + "zero2_13b.dz", *sets("zero=2 pipeline=2 tensor=1 data=64 cut=layer schedule=1f1b recompute=full")], 1,
            "DeepSpeed refuses the two together", "pipeline=1")
    refused("interleaved", ["export", "deepspeed", mixtral, *sets("schedule=interleaved chunks=2 pipeline=4 expert=1 tensor=1 cut=layer recompute=full")], 1,
            "schedule interleaved")
    refused("folded", ["export", "megatron", mixtral, *sets("schedule=zb_v pipeline=4 expert=1 tensor=1 cut=layer")], 1, "zb_v")
    refused("folded, two directions", ["export", "megatron", mixtral, *sets("schedule=dualpipev pipeline=4 expert=1 tensor=1 cut=layer")], 1, "dualpipev")
    refused("inside layers", ["export", "megatron", mixtral, *sets("cut=block pipeline=8 tensor=1 schedule=1f1b")], 1,
            "cut inside layers", "cut=layer")
    refused("experts over data", ["export", "deepspeed", *MIXTRAL], 1, "experts on several ranks")
    refused("dropped tokens", ["export", "megatron", mixtral, *sets("tensor=2 pipeline=4 schedule=1f1b expert=1")], 1,
            "experts drop tokens by sample", "by rank")
    refused("parameters on the host", ["export", "megatron", *OFFLOAD, *ADAMW], 1, "params on host",
            "gradients on host")
    refused("one bit", ["export", "megatron", *ONE_BIT, *ADAMW], 1, "1-bit compressed gradients")
    refused("wsd", ["export", "deepspeed", *ZERO2, "--set", "schedule=wsd(warmup=10,decay=20)"], 1, "learning rate schedule wsd")
    refused("linear to min_lr", ["export", "deepspeed", *ZERO2, "--set", "schedule=linear(warmup=10,min_lr=1e-5)"], 1,
            "DeepSpeed's falls to 0")
    refused("no warm-up", ["export", "deepspeed", *ZERO2, "--set", "schedule=cosine(warmup=0)"], 1, "at least two")
    rounded = folder + "/rounded.json"
    made = zplan("plan", *ZERO2, "--for", "zplan", "--set", "train.reduce_dtype=bf16", "--set", "train.gradient_sums=bf16_stochastic", "-o", rounded)
    expect("rounded sums: planned", made.returncode == 0, made.stderr)
    for kind in ("deepspeed", "megatron", "megatron-bridge", "torchtitan", "fsdp2"):
        refused("rounded sums: " + kind, ["export", kind, rounded], 1, 'reduce_dtype = "bf16"', 'gradient_sums = "bf16_stochastic"')
    refused_scripts(folder)
    plan = folder + "/plan.json"
    zplan(*MIXTRAL, "-o", plan)
    with open(plan, encoding="utf-8") as file:
        text = file.read()
    for name, damaged in (("truncated plan", text[:len(text) // 2]), ("no plan", "{}"), ("no object", "[1, 2]"),
                          ("degrees that are words", text.replace('"pipeline": 4,', '"pipeline": "four",', 1)),
                          ("degrees that are huge", text.replace('"pipeline": 4,', '"pipeline": 99999999999999999999,', 1)),
                          ("no micro-batch", text.replace('"microbatch": 1,', "", 1))):
        expect(name + " is damaged", damaged != text)
        with open(plan, "w", encoding="utf-8") as file:
            file.write(damaged)
        for kind in ("megatron", "deepspeed", "fsdp2", "slurm"):
            refused(kind + ": " + name, ["export", kind, plan], 1)
    run = zplan("export", "slurm", *CPU, "-o", folder + "/none/x.sbatch")
    expect("unwritable", run.returncode == 1 and "cannot write" in run.stderr, run.stderr)


def refused_scripts(folder):
    gpt2 = HERE + "/golden/gpt2.dz"
    one = sets("tensor=1 pipeline=1 data=8 zero=2 microbatch=8")
    for name, args, words in (
            ("tensor", [gpt2, *sets("tensor=2 pipeline=1 zero=2 microbatch=8")], ("tensor 2: the script's ranks have whole layers", "--set tensor=1")),
            ("pipeline", [gpt2, *sets("tensor=1 pipeline=2 zero=1 microbatch=8 cut=layer")], ("pipeline 2: the script has no stages", "ZeRO 1")),
            ("context", [gpt2, *sets("tensor=1 pipeline=1 context=2 zero=2 microbatch=8 recompute=none")], ("context 2",)),
            ("one class on the host", [gpt2, *one, "--set", "offload[optimizer]=cpu"], ("optimizer on host: CPUOffloadPolicy moves",)),
            ("fp16", [gpt2, *one, "--set", "precision=mixed_fp16"], ("precision mixed_fp16: the script has fp32 and mixed_bf16",)),
            ("optimizer", [gpt2, *one, "--set", "optimizer=lion(lr=1e-4)"], ("lion: the script has Adam and AdamW",)),
            ("average", [gpt2, *one, "--set", "ema=0.999"], ("ema = 0.999",)),
            ("data", [gpt2, *one, "--set", 'data=lines("%s/README.md")' % ROOT], ("data lines(...)",)),
            ("order", [gpt2, *one, "--set", 'data=text("%s/README.md", order = "shuffled", seed = 1)' % ROOT], ("shuffled",)),
            ("llama", LLAMA, ("tensor 2", "pipeline 2", "ZeRO 1")),
            ("experts", [HERE + "/golden/mixtral_8x7b.dz", "--gpus", "64", *sets("tensor=1 pipeline=1 zero=3 microbatch=1")], ("is not Llama as in the script: experts", "Z0682")),
            ("biases", [HERE + "/golden/qwen2_0_5b.dz", *one], ("Llama has no parameter `layers.{}.self_attn.q_proj.bias`", "Z0682")),
            ("bert", [HERE + "/golden/bert_base.dz", *one], ("is neither GPT-2 nor Llama", "Z0682")),
            ("cpu", CPU, ("has CPU devices",))):
        refused("script: " + name, ["export", "fsdp2", *args], 1, *words)
    with open(gpt2, encoding="utf-8") as file:
        text = file.read()
    for name, old, new, word in (("another name", "ln_f ", "last ", "GPT-2 has no parameter `last.weight`"),
                                 ("no bias", "linear(x, 3 * d)", "linear(x, 3 * d, bias = false)", "which GPT-2 has"),
                                 ("a head", "matmul(ln_f, transpose(wte))", "linear(ln_f, V, bias = false)", "a head with weights of its own")):
        changed = text.replace(old, new).replace("matmul(ln_f,", "matmul(last," if name == "another name" else "matmul(ln_f,")
        expect("script: %s is a change" % name, changed != text)
        with open(folder + "/other.dz", "w", encoding="utf-8") as file:
            file.write(changed)
        refused("script: " + name, ["export", "fsdp2", folder + "/other.dz", *one], 1, "is not GPT-2", word, "Z0682")


LAYER = """
    n = layer_norm(x)
    q = linear(n, d)
    k = linear(n, d)
    v = linear(n, d)
    b = x + linear(attention(q, k, v, heads = 4), d)
    x = b + linear(gelu(linear(layer_norm(b), 256)), d)
"""
LAYERS = [  # what is put in place of what, and the words of the refusal; None: it is a GPT
    ("gelu", "gelu", None),
    ("x + linear", "linear", "a layer is not x + attention"),
    ("heads = 4)", "heads = 4, causal = false)", "looks ahead"),
    ("heads = 4)", "heads = 4, dropout = 0.1)", None),
    ("heads = 4)", "heads = 4, scale = 0.5)", "`scale = 0.5`"),
    ("heads = 4)", "heads = 4, window = 9)", "a window of 9 tokens"),
    ("heads = 4)", "heads = 4, softcap = 50)", "`softcap = 50`"),
    ("heads = 4)", "heads = 4, alibi = true)", "has ALiBi"),
    ("heads = 4)", "heads = 4, documents = documents)", "the documents of positions"),
    ("attention(q, k, v, heads = 4)", "gelu(q + k + v)", "no attention"),
    ("linear(attention(q, k, v, heads = 4), d)", "attention(q, k, v, heads = 4)", "linear layer"),
    ("v = linear(n, d)", "v = linear(layer_norm(x), d)", "do not come from the same tensor"),
    ("v = linear(n, d)", "v = linear(n, d, bias = false)", "some of q, k and v have a bias"),
    ("q = linear(n, d)", "q = rope(linear(n, d), heads = 4)", "only one of queries and keys"),
    ("gelu", "relu", "relu"),
    ("gelu", "tanh", "`tanh` stands where the activation"),
    ("layer_norm(b)", "rms_norm(b)", "mixed"),
    ("layer_norm(b)", "layer_norm(b, eps = 1e-6)", "different `eps`"),
    ("layer_norm(b)", "layer_norm(x)", "parallel layer"),
    ("256)", "256, bias = false)", "one linear layer of the MLP has a bias"),
    ("gelu(linear(layer_norm(b), 256))", "tanh(linear(layer_norm(b), 256)) * linear(b, 256)", "not `silu`"),
    ("x = b", "x = b * 0.5", "a layer is not x + attention"),
]


def foreign_models(folder):
    frame = """use std.nn
use std.hw
model m(V = 512, S = 64, d = 64, layers = 2) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param wte: [V, d]
  param wpe: [S, d]
  x = embedding(tokens, wte) + wpe
  repeat h in 0..layers {%s  }
  output loss = cross_entropy(matmul(layer_norm(x), transpose(wte)), labels)
}
cluster c { nodes = 1  node = std.hw.dgx_a100 }
train { model = m  data = synthetic(seed = 1)  batch = 16  steps = 10  precision = "mixed_bf16"  optimizer = adamw(lr = 1e-3) }
plan { tensor = 1 }
"""
    path = folder + "/model.dz"
    for old, new, words in LAYERS:
        assert old in LAYER
        with open(path, "w", encoding="utf-8") as file:
            content = frame % LAYER.replace(old, new, 1)
            if "documents" in new:
                content = content.replace("  param wte", "  input documents: i32[B, S]\n  param wte").replace("synthetic(seed = 1)", 'arrays("packed")')
            file.write(content)
        run = zplan("export", "megatron", path, "--gpus", "8")
        good = run.returncode == 0 if words is None else run.returncode == 1 and words in run.stderr
        good = good and ("dropout" not in new or "--attention-dropout 0.1" in run.stdout)
        expect("model with `%s`" % new, good, run.stderr[-400:])


# ---- import ----

PARAMETERS = {  # as published, or counted from the fields
    "gpt2": 124439808, "gpt2_xl": 1557611200, "gpt_neox_20b": 20554567680, "llama2_7b": 6738415616, "llama3_8b": 8030261248,
    "mistral_7b": 7241732096, "mixtral_8x7b": 46702792704, "qwen2_0_5b": 494032768, "deepseek_v3": 671026404352 + 58 * 256,  # with the biases of the gates
    "gemma2_2b": 2614341888,
    "phi3_mini": 3821079552, "qwen3_30b_a3b": 30532122624, "olmo2_7b": 7298617344, "qwen1_5_moe_a2_7b": 14315784192, "roberta_base": 124697433, "mt5_small": 300176768,
    "gemma3_1b": 262144 * 1152 + 26 * (1152 * (2 * 1024 + 2 * 256) + 2 * 256 + 4 * 1152 + 3 * 1152 * 6912) + 1152,
    "bert_base": 109514298, "t5_small": 60506624, "t5_v1_1_small": 76961152,  # the last with its head, untied
    "qwen2_kv_null": 9456128, "mistral_no_window": 94528,  # of as many key/value heads as heads; counted by transformers
    "vit_base": 86567656 - 998 * 769,  # torchvision's with 1,000 classes, here 2
    "gpt_neox_sequential": 2 * 50304 * 512 + 6 * (4 * 512 * 512 + 4 * 512 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512) + 2 * 512,
    "llama_options": 2 * 1000 * 1024 + 1024 + 4 * (1024 * (512 + 2 * 256) + 512 + 2 * 256 + 512 * 1024 + 1024 +
                                                   3 * 1024 * 2816 + 2 * 2816 + 1024 + 2 * 1024),
}


def imports(folder):
    path = folder + "/m.dz"
    for name, parameters in PARAMETERS.items():
        run = zplan("import", "hf", HF + name + ".json", "-o", path)
        if not expect("import " + name, run.returncode == 0 and run.stdout == "", run.stderr[:300]):
            continue
        check = zplan("check", path, "--json")
        found = json.loads(check.stdout)["parameters"] if check.returncode == 0 else check.stderr
        expect("parameters of " + name, found == parameters, "%s instead of %d" % (found, parameters))
    run = zplan("import", "hf", HF + "llama_options.json")
    expect("unknown field is named", "`mystery`" in run.stderr, run.stderr)
    expect("theta of rope_parameters", "250000" in run.stdout or "2.5e+05" in run.stdout)
    run = zplan("import", "hf", HF + "mixtral_8x7b.json")
    expect("no balancing loss without output_router_logits", "balance = 0.0" in run.stdout, run.stdout[-900:])


def changed(folder, base, **fields):
    with open(HF + base + ".json", encoding="utf-8") as file:
        config = json.load(file)
    for key, value in fields.items():
        if value is ...:
            del config[key]
        else:
            config[key] = value
    path = folder + "/config.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return ["import", "hf", path]


def refused_imports(folder):
    path = folder + "/config.json"
    refused("import without a format", ["import"], 2, "hf, nccl, slurm, megatron, deepspeed or torchtitan")
    refused("import of a misspelt format", ["import", "hff", "x"], 2, "did you mean `hf`?")
    refused("import of no file", ["import", "hf"], 2)
    refused("import of a missing file", ["import", "hf", folder + "/none.json"], 1, "Z0683")
    for name, text in (("empty", ""), ("truncated", '{"model_type": "llama", "hidden_size": 40'), ("array", "[]"), ("number", "7"),
                       ("twice", '{"model_type": "gpt2", "model_type": "llama"}'), ("binary", "\x00\x01\x02"),
                       ("huge", '{"model_type": "gpt2", "n_embd": %d}' % 10 ** 30), ("no type", "{}"), ("type is a number", '{"model_type": 7}')):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        refused("import " + name, ["import", "hf", path], 1, "Z0683")
    refused("import of an empty type", changed(folder, "gpt2", model_type=""), 1, "Z0684", "model_type `` is not known")
    refused("a key without a name", changed(folder, "gpt2", **{"": 512, "n_head": 0}), 1, "Z0683", "n_head")
    refused("unknown type", changed(folder, "gpt2", model_type="bloom"), 1, "bert, deepseek_v3, gemma2, gemma3_text, gpt2, gpt_neox, llama, mistral, mixtral, mt5, olmo2, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, roberta, t5")
    refused("misspelt type", changed(folder, "gpt2", model_type="mixtrall"), 1, "did you mean `mixtral`?")
    for key, value in (("n_embd", ...), ("n_embd", "768"), ("n_embd", 768.5), ("n_embd", 0), ("n_embd", -768), ("n_embd", 10 ** 18),
                       ("n_embd", True), ("n_layer", [12]), ("vocab_size", None), ("n_head", 7),
                       ("layer_norm_epsilon", "small"), ("tie_word_embeddings", 1), ("activation_function", 3)):
        refused("gpt2 %s %s" % (key, value), changed(folder, "gpt2", **{key: value}), 1, "Z0683", key)
    scaled = {"rope_type": "llama3", "factor": 8.0}
    for base, key, value, words in (("llama3_8b", "rope_scaling", scaled, "scaled (`llama3`)"),
                                    ("llama3_8b", "rope_scaling", {"type": "linear", "factor": 2.0}, "scaled (`linear`)"),
                                    ("llama3_8b", "hidden_act", "gelu", "the gate of the MLP is `gelu`"),
                                    ("gpt2", "activation_function", "mish", "activation `mish`"),
                                    ("gpt2", "scale_attn_by_inverse_layer_idx", True, "another scale"),
                                    ("gpt2", "scale_attn_weights", False, "not scaled"),
                                    ("gpt2", "add_cross_attention", True, "cross-attention"),
                                    ("gemma2_2b", "layer_types", ["chunked_attention"] * 26, "layer 0 has `chunked_attention`"),
                                    ("gemma2_2b", "layer_types", ["full_attention"] * 9 + ["sliding_attention"] * 17, "take turns in groups"),
                                    ("gemma2_2b", "use_bidirectional_attention", True, "sees what follows"),
                                    ("gemma3_1b", "rope_scaling", {"rope_type": "linear", "factor": 8.0}, "scaled (`linear`)"),
                                    ("gemma3_1b", "model_type", "gemma3", "its text model, `gemma3_text`"),
                                    ("mixtral_8x7b", "router_jitter_noise", 0.1, "noisy")):
        refused("%s %s" % (base, key), changed(folder, base, **{key: value}), 1, "Z0684", words)
    yarn = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}
    for key, value, words in (("rope_scaling", yarn, "scaled (`yarn`)"), ("q_lora_rank", None, "one matrix, q_proj"), ("rope_interleave", False, "turn halves"),
                              ("norm_topk_prob", False, "do not sum to one"), ("scoring_func", "softmax", "affinities to experts are `softmax`"),
                              ("topk_method", "greedy", "chosen by `greedy`"), ("num_key_value_heads", 8, "8 key/value heads for 128 heads"),
                              ("v_head_dim", 256, "wider than queries and keys, of 192"), ("attention_bias", True, "with biases")):
        refused("deepseek_v3 %s" % key, changed(folder, "deepseek_v3", **{key: value}), 1, "Z0684", words)
    refused("groups of experts", changed(folder, "deepseek_v3", n_group=7), 1, "Z0683", "256 experts do not lie in 4 of 7 groups")
    refused("columns that turn", changed(folder, "gpt_neox_20b", rotary_pct=0.27), 1, "Z0683", "0.27 of a head of 96 are no pairs")
    refused("heads", changed(folder, "llama3_8b", num_key_value_heads=5), 1, "do not divide")
    refused("one base for both kinds", changed(folder, "gemma3_1b", rope_parameters={"rope_theta": 1e6}), 1, "Z0683", "neither `full_attention`")
    refused("kinds of layers", changed(folder, "gemma3_1b", layer_types=["full_attention"] * 25), 1, "Z0683", "25 entries for 26 layers")
    refused("patches", changed(folder, "vit_base", patch_size=15), 1, "Z0683", "patches of 15 pixels do not fill pictures of 224")
    refused("pictures of two sizes", changed(folder, "vit_base", image_size=[224, 196]), 1, "Z0683", "`image_size` is [224,196]")
    refused("experts", changed(folder, "mixtral_8x7b", num_experts_per_tok=9), 1, "9 of 8 experts")
    run = zplan(*changed(folder, "mistral_7b", sliding_window=1024))
    expect("window", run.returncode == 0 and "window = 1024" in run.stdout and "S = 1024" in run.stdout, run.stderr)
    for value, words in ((None, "window"), (..., "window = 4096")):
        run = zplan(*changed(folder, "mistral_7b", sliding_window=value))
        expect("window %s" % value, run.returncode == 0 and (words in run.stdout) == (value is ...), run.stderr)
    refused("a classifier", changed(folder, "llama3_8b", architectures=["LlamaForSequenceClassification"]), 1, "Z0684", "LlamaForSequenceClassification has a head")
    refused("a balancing loss", changed(folder, "mixtral_8x7b", output_router_logits=True), 1, "Z0684", "over the choices of all layers together")
    refused("one expert a token", changed(folder, "mixtral_8x7b", num_experts_per_tok=1), 1, "Z0684", "always 1")
    refused("a later version's field", changed(folder, "llama3_8b", transformers_version="6.1.0", of_tomorrow=1), 1, "Z0684", "`of_tomorrow`")
    for key, value in (("hidden_size", 256.0), ("text_config", {"hidden_size": 256})):
        run = zplan(*changed(folder, "llama3_8b", **{key: value}))
        expect("one error of %s" % key, run.returncode == 1 and run.stderr.count("error[") == 1 and key in run.stderr, run.stderr)


# ---- clusters ----

NODE = "NodeName=n%d Arch=x86_64\n   CPUTot=128 RealMemory=%d State=IDLE\n   Gres=gpu:%s(S:0-1)\n"
SLURM = {  # text, the machine that a plan for it names, what is noted
    "environment": ("HOME=/root\nSLURM_JOB_NUM_NODES=4\nSLURM_JOB_NODELIST=gnode[010,020,025-026]\nSLURM_GPUS_PER_NODE=a100:8\n"
                    "SLURM_JOB_CPUS_PER_NODE=128(x4)\n", "32 x a100_40, 40.0 GB each (4 x dgx_a100)", "40 GB are assumed"),
    "environment, cores": ("SLURM_JOB_NODELIST=c[1-2]\nSLURM_CPUS_ON_NODE=32\nSLURM_MEM_PER_NODE=64000\n",
                           "64 x cpu_cores", "zplan calibrate"),
    "job": ("JobId=7 JobName=x\n   NumNodes=2 NumCPUs=64 NumTasks=16\n   NodeList=n[1-2]\n   TresPerNode=gres/gpu:h100:8\n",
            "16 x h100_sxm, 80.0 GB each (2 x dgx_h100)", "those of dgx_h100"),
    "older job": ("JobId=7\nNumNodes=3\nNodeList=a1,b[2-3]\nTresPerNode=gres:gpu:h200:4\n", "12 x h200", "dgx_h100"),
    "nodes": (NODE % (1, 1000000, "a100:8") + "\n" + NODE % (2, 900000, "nvidia_a100-sxm4-80gb:4") +
              NODE % (3, 800000, "nvidia_a100-sxm4-80gb:4"), "8 x a100_40, 40.0 GB each + 8 x a100_80", "dgx_a100"),
    "one node": (NODE % (1, 500000, "rtx4090:2"), "2 x rtx4090", "workstation"),
}
BAD_SLURM = (  # text, code, line, words
    ("", "Z0685", None, "says nothing of Slurm"),
    ("SLURM_JOB_ID=7\n", "Z0685", None, "how many nodes"),
    ("a=b\n", "Z0685", None, "scontrol show job"),
    ("\0", "Z0685", None, "no text"),
    ("HOME=/\nSLURM_JOB_NUM_NODES=four\n", "Z0685", 2, "`four` is no number"),
    ("SLURM_JOB_NUM_NODES=0\n", "Z0685", 1, "`0` is no number"),
    ("SLURM_JOB_NUM_NODES=99999999999999999999\n", "Z0685", 1, "is no number from 1"),
    ("SLURM_JOB_NUM_NODES=2\nSLURM_JOB_NODELIST=n[1-3]\n", "Z0685", 1, "2 nodes, and `n[1-3]` names 3"),
    ("SLURM_JOB_NODELIST=n[1-\n", "Z0685", 1, "no list of numbers"),
    ("SLURM_JOB_NODELIST=n[3-1]\n", "Z0685", 1, "no list of numbers"),
    ("SLURM_JOB_NODELIST=n[1-999999][1-999999]\n", "Z0685", 1, "more than 1000000 nodes"),
    ("SLURM_JOB_NODELIST=n1,\n", "Z0685", 1, "ends with a comma"),
    ("SLURM_JOB_NODELIST=n1\nSLURM_GPUS_PER_NODE=a100:x\n", "Z0685", 2, "`x` is no number"),
    ("SLURM_JOB_NODELIST=n[1-2]\nSLURM_JOB_CPUS_PER_NODE=4,8\n", "Z0685", 2, "different numbers of cores"),
    ("JobId=1\nNumNodes=4-8\n", "Z0685", 2, "is no number"),
    ("JobId=1 NodeList=n1\n", "Z0685", 1, "no `NumNodes=`"),
    ("NodeName=n1 CPUTot=4\nGres=gpu:a100:4,gpu:h100:4\n", "Z0685", 2, "of one type"),
    ("SLURM_JOB_NODELIST=n1\nSLURM_GPUS_ON_NODE=8\n", "Z0686", None, "the type of the 8 GPUs is not said"),
    ("SLURM_JOB_NODELIST=n1\nSLURM_GPUS_PER_NODE=mi300:8\n", "Z0686", None, "`mi300` are not in the library"),
    ("SLURM_JOB_NODELIST=n1\n", "Z0686", None, "neither GPUs nor cores"),
    ("SLURM_JOB_NODELIST=n[1-2]\nSLURM_GPUS_PER_NODE=rtx4090:2\n", "Z0686", None, "no network"),
    ("SLURM_JOB_NODELIST=n1\nSLURM_GPUS_PER_NODE=b200:4\n", "Z0686", None, "nodes of 8"),
)


def clusters(folder):
    """What Slurm says becomes a cluster block that a plan is made for; what is malformed is refused with its line."""
    said, block, model = folder + "/slurm.txt", folder + "/cluster.dz", folder + "/with_cluster.dz"
    with open(EXAMPLES + "gpt2.dz", encoding="utf-8") as file:
        gpt2 = file.read()
    for name, (text, machine, noted) in SLURM.items():
        with open(said, "w", encoding="utf-8") as file:
            file.write(text)
        run = zplan("import", "slurm", said, "-o", block)
        if not expect("slurm " + name, run.returncode == 0 and run.stdout == "" and noted in run.stderr, run.stderr[:300]):
            continue
        expect("canonical layout, slurm " + name, zplan("fmt", "--check", block).returncode == 0)
        with open(block, encoding="utf-8") as file, open(model, "w", encoding="utf-8") as out:
            out.write(gpt2 + file.read())
        plan = zplan("plan", model, "--cluster", "slurm", *sets("batch=64 tensor=1 pipeline=1 microbatch=1 recompute=full zero=1"))
        expect("plan for slurm " + name, machine in plan.stdout, plan.stdout[:200] + plan.stderr[:200])
    refused("slurm: a missing file", ["import", "slurm", folder + "/none.txt"], 1, "Z0685")
    refused("slurm: no file", ["import", "slurm"], 2)
    for text, code, line, words in BAD_SLURM:
        with open(said, "w", encoding="utf-8") as file:
            file.write(text)
        refused("slurm %r" % text, ["import", "slurm", said], 1, code, words, *(["slurm.txt:%d:" % line] if line else []))
    damaged_slurm(said)


def damaged_slurm(said):
    draw, bad, texts = random.Random(9), [], [text.encode() for text, _, _ in SLURM.values()]
    for i in range(150):
        data = bytearray(draw.choice(texts))
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            data[at:at + draw.randint(0, 3)] = draw.choice([b"", b"9", b"[", b"]", b",", b"-", b"=", b"(", b":", b"\n", b"\xff"])
        with open(said, "wb") as file:
            file.write(data)
        run = zplan("import", "slurm", said)
        if run.returncode not in (0, 1) or (run.returncode == 1) != ("error" in run.stderr):
            bad.append((i, run.returncode, run.stderr[-200:]))
    expect("damaged words of Slurm", not bad, str(bad[:3]))


def damaged_configs(folder):
    """Bytes changed from a seed: an answer or a refusal, never a crash; what is written is a file that `check` reads."""
    draw, path, model = random.Random(8), folder + "/config.json", folder + "/m.dz"
    names = sorted(PARAMETERS)
    bad = []
    for i in range(250):
        with open(HF + draw.choice(names) + ".json", "rb") as file:
            data = bytearray(file.read())
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            kind = draw.randrange(3)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                del data[at:at + draw.randint(1, 8)]
            else:
                data[at:at] = draw.choice([b"9", b"0", b"-", b"null", b"[", b"\"", b"1e9", b"\x00"])
        with open(path, "wb") as file:
            file.write(data)
        run = zplan("import", "hf", path, "-o", model)
        if run.returncode not in (0, 1) or (run.returncode == 1) != ("error" in run.stderr):
            bad.append((i, run.returncode, run.stderr[-200:]))
        elif run.returncode == 0:
            check = zplan("check", model)
            if check.returncode not in (0, 1):
                bad.append((i, "check", check.returncode, check.stderr[-200:]))
    expect("damaged configurations", not bad, str(bad[:3]))


def main():
    require_zplan()
    with Scratch() as folder:
        golden()
        consistency(folder)
        imported_models(folder)
        memory_of_exports(folder)
        rates_of_scripts(folder)
        loss_scales()
        runs_script(folder)
        refused_exports(folder)
        foreign_models(folder)
        imports(folder)
        refused_imports(folder)
        clusters(folder)
        damaged_configs(folder)
    print("%d passed, %d failed" % (passed[0], len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
