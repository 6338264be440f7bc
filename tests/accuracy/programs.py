#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program that a plan is for: `--for` bounds the space, prices with the profile that `validate` uses, and is kept and shown.

A published plan is planned here with its decisions pinned; its time must be what `validate` predicts for the row, to 1e-9: one code
prices both.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import harness  # noqa: E402

RUNS = os.path.join(harness.ROOT, "tests", "data", "published_runs.csv")
EXAMPLES = os.path.join(harness.ROOT, "examples")
MODEL = """use std.nn
use std.hw
use "%s/gpt2.dz" as g
model gpt(V = 51200, S = 2048, d = %d, layers = %d, heads = %d) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param wte: [V, d] ~ normal(std = 0.006)
  param wpe: [S, d] ~ normal(std = 0.006)
  x = embedding(tokens, wte) + wpe
  repeat h in 0..layers { x = g.gpt_layer(x, heads = heads) }
  ln_f   = layer_norm(x)
  logits = matmul(ln_f, transpose(wte))
  output loss = cross_entropy(logits, labels)
}
cluster gpus { nodes = %d  node = std.hw.%s }
cluster cores { nodes = 1  node = std.hw.cpu_generic(cores = 4, memory = 64GiB) }
train {
  model = gpt  batch = %d  steps = 10  precision = "%s"
  data = synthetic(seed = 1)
  optimizer = adam(lr = 1e-4, betas = [0.9, 0.95])
  clip = 1.0
}
plan {
  %s
}
"""
PUBLISHED = """tensor = 8  pipeline = 8  data = 1  microbatch = 1  cut = "layer"
  schedule = "interleaved"  chunks = 3  rank_order = "tdp"
  sequence = %s  recompute = "%s"  recompute_shard = "none\""""


def write(folder, name, plan, size=(256, 4, 4), nodes=1, node="dgx_a100", batch=8, precision="mixed_bf16"):
    path = os.path.join(folder, name + ".dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(MODEL % (EXAMPLES, *size, nodes, node, batch, precision, plan))
    return path


def plan_of(path, *words):
    ran = harness.zplan(path, "--json", *words)
    return json.loads(ran.out) if ran.status in (0, 3) else {"error": ran.err}


def check_published(tally, folder):
    """korth_175B_full and korth_175B_seqsel: tensor 8, pipeline 8, three chunks, batch 64."""
    rows = {r["id"]: r for r in json.loads(harness.zplan("validate", "--json", RUNS).out)["rows"]}
    for name, sequence, recompute in (("korth_175B_full", "false", "full"), ("korth_175B_seqsel", "true", "selective")):
        want = rows[name]["predicted_s"]
        path = write(folder, name, PUBLISHED % (sequence, recompute), (12288, 96, 96), 8, "dgx_a100", 64, "mixed_fp16")
        plan = plan_of(path, "--for", "megatron-lm-v3")
        got = plan.get("estimate", {}).get("step_s", 0)
        tally.check("%s: plan and validate" % name, abs(got / want - 1) < 1e-9, "%.9g s, validate %.9g s" % (got, want))
        low, high = (plan.get("estimate", {}).get("step_s_" + end, 0) for end in ("low", "high"))
        tally.check("%s: range" % name, 0 < low <= got < high, "%g to %g" % (low, high))
        own = plan_of(path)
        own_s = own.get("estimate", {}).get("step_s", 0)
        tally.check("%s: zplan's own kernels have their own price" % name, own_s > 0 and abs(own_s / got - 1) > 1e-3,
                    "%g s, %g s" % (own_s, got))
        tally.check("%s: no range of its own" % name, "step_s_low" not in own["estimate"], "")


EXPERTS = """use std.nn
use std.models
use std.hw
model measured(V = 32000, S = 4096, d = 4096) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param embed_tokens: [V, d] ~ normal(std = 0.02)
  param lm_head: [V, d] ~ normal(std = 0.02)
  x = embedding(tokens, embed_tokens)
  repeat layers in 0..32 {
    x = mixtral_layer(x, heads = 32, kv_heads = 8, head = 128, experts = 8, top_k = 2, ff = 14336, window = S, capacity = %s)
  }
  norm = rms_norm(x)
  output loss = cross_entropy(matmul(norm, transpose(lm_head)), labels)
}
cluster c { nodes = 8  node = std.hw.dgx_h100 }
train {
  model = measured  batch = 256  steps = 1  precision = "mixed_bf16"  clip = 1.0
  optimizer = adam(lr = 1e-4)
}
plan { tensor = 1  pipeline = 4  data = 16  expert = 8  zero = 1  microbatch = 1  recompute = "full"  schedule = "1f1b"  cut = "layer" }
"""
EXPERTS_ROW = """id,source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,experts,top_k,expert_ffn,gpu,gpus_per_node,intra_bw_GBps,inter_bw_GBps_per_gpu,n_gpus,tp,pp,dp,ep,dispatcher,interleave_v,micro_batch,global_batch,precision,zero_stage,recompute,measured_iter_s
x_a,"model_table.png",Mixtral,32,4096,32,8,14336,32000,4096,8,2,14336,H100-SXM5-80GB,8,450,50,64,1,4,16,8,%s,1,1,256,bf16,1,full,1
"""


def check_experts(tally, folder):
    """A model with experts takes in `plan` what `validate` predicts for its row, and the export names that dispatcher."""
    table, path = os.path.join(folder, "row.csv"), os.path.join(folder, "experts.dz")
    for dispatcher, capacity, flags in (("deepep", "4.0", ("flex", "deepep")), ("alltoall", "1.0", ("alltoall", None))):
        with open(table, "w", encoding="utf-8") as file:
            file.write(EXPERTS_ROW % dispatcher)
        with open(path, "w", encoding="utf-8") as file:
            file.write(EXPERTS % capacity)
        row = json.loads(harness.zplan("validate", "--json", table).out)["rows"][0]
        want, got = row.get("predicted_s", 0), plan_of(path, "--for", "megatron").get("estimate", {}).get("step_s", 0)
        tally.check("experts by %s: plan and validate" % dispatcher, want > 0 and abs(got / want - 1) < 1e-9, "%.9g s, validate %.9g s" % (got, want))
        if dispatcher == "deepep":  # two of eight experts at random lie on 8 (1 - 21/28) = 2 of 8 ranks, an eighth of them the rank's own
            one = 3.4e-6 + 1.9e-4 + 4096 * 2 * 7 / 8 * 4096 * 2 / (0.695 * 450e9)
            exchanges = 16 * 8 * 6 * one  # micro-batches, layers of a stage, two and their replays forward, two backward
            tally.check("a token once to each rank", abs(row["terms"]["expert_comm_s"] / exchanges - 1) < 1e-6,
                        "%.9g s, %.9g s" % (row["terms"]["expert_comm_s"], exchanges))
        script = harness.zplan("export", "megatron", path).out
        tally.check("experts by %s: export" % dispatcher, "--moe-token-dispatcher-type %s" % flags[0] in script and
                    ("--moe-flex-dispatcher-backend" in script) == (flags[1] is not None), script[-200:])


BRIDGE_ROW = """source_file,release,kind,model,system,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,ga,tok_s_gpu,tflops_gpu
mb_summary.md,%s NeMo Container,Pre-Training Performance,Qwen3_30B_a3B,DGX-GB200,8,MXFP8,512,4,4096,,1,1,1,n/a,8,,39936,923
"""
BRIDGE = """use std.nn
use std.models
use std.hw
model measured(V = 151936, S = 4096, d = 2048) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param embed_tokens: [V, d]
  param lm_head: [V, d]
  x = embedding(tokens, embed_tokens)
  repeat layers in 0..48 { x = qwen3_moe_layer(x, heads = 32, kv_heads = 4, head = 128, experts = 128, top_k = 8, ff = 768, capacity = dropless) }
  norm = rms_norm(x)
  output loss = cross_entropy(matmul(norm, transpose(lm_head)), labels)
}
cluster c { nodes = 1  node = std.hw.nvl72(devices = 8 * std.hw.gb200) }
train { model = measured  batch = 512  steps = 1  precision = "mixed_mxfp8"  optimizer = adam(lr = 1e-4)  clip = 1.0 }
plan { tensor = 1  pipeline = 1  data = 8  expert = 8  zero = 1  microbatch = 4  recompute = "none"  memory <= 100%% }
"""


def check_bridge(tally, folder):
    """The profiles of Megatron-Bridge's recipes: a model with experts takes in `plan` what `validate` predicts for its row."""
    table, path = os.path.join(folder, "bridge.csv"), os.path.join(folder, "bridge.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BRIDGE.replace("%%", "%"))
    for release, profile in (("26.08", "megatron-bridge-26.06"), ("25.11", "megatron-bridge-gates")):
        with open(table, "w", encoding="utf-8") as file:
            file.write(BRIDGE_ROW % release)
        want = json.loads(harness.zplan("validate", "--json", table).out)["rows"][0].get("predicted_s") or 0
        got = plan_of(path, "--for", profile).get("estimate", {}).get("step_s", 0)
        tally.check("recipe of %s: plan and validate" % release, want > 0 and abs(got / want - 1) < 1e-9, "%.9g s, validate %.9g s" % (got, want))


def words(text):
    return " ".join(text.split())


def check_words(tally, folder):
    path = write(folder, "small", "tensor <= 4")
    for word, program, profile, said in (("zplan", "zplan", None, "for zplan's own trainer"),
                                         ("megatron", "megatron", "megatron-core", "for Megatron-LM (profile megatron-core)"),
                                         ("deepspeed", "deepspeed", "deepspeed-2022", "for DeepSpeed as of 2022 (profile deepspeed-2022)"),
                                         ("fsdp", "fsdp", "fsdp-compiled", "for PyTorch FSDP (profile fsdp-compiled)"),
                                         ("megatron-lm-v3", "megatron", "megatron-lm-v3", "(profile megatron-lm-v3)")):
        ran = harness.zplan(path, "--for", word, *(("--verbose",) if word == "zplan" else ()))
        tally.check("text for %s" % word, ran.status == 0 and said in words(ran.out), ran.tail())
        file = os.path.join(folder, word + ".json")
        plan = plan_of(path, "--for", word, "-o", file)
        want = {"program": program, "profile": profile} if profile else {"program": program}
        tally.check("JSON for %s" % word, plan.get("for") == want, str(plan.get("for", plan.get("error"))))
        ran = harness.zplan("report", file, "--verbose")
        tally.check("report of a plan for %s" % word, ran.status == 0 and said in words(ran.out), ran.tail())
        ran = harness.zplan("verify", file)
        tally.check("verify of a plan for %s" % word, ran.status == 0, ran.tail())
    ran = harness.zplan(path, "--for", "horovod")
    tally.check("unknown program", ran.status == 2 and "megatron-core" in ran.err, ran.tail())
    ran = harness.zplan(path, "--verbose")
    tally.check("zplan unless said", ran.status == 0 and "for zplan's own trainer" in words(ran.out), ran.tail())
    file = os.path.join(folder, "megatron.json")
    ran = harness.zplan("build", file, "-o", os.path.join(folder, "tree"))
    tally.check("build refuses another program's plan",
                ran.status == 1 and "Z0702" in ran.err and "zplan export megatron" in ran.err, ran.tail())
    ran = harness.zplan("report", file, "--for", "zplan", "--verbose")
    tally.check("a plan file for another program", ran.status == 0 and "for zplan's own trainer" in words(ran.out), ran.tail())


def check_space(tally, folder):
    """What a plan may hold is what its program has; what is pinned and missing is rejected with a message."""
    disks = write(folder, "disks", 'offload[gradients] = "nvme"  offload[optimizer] = "nvme"', node="dgx2", precision="mixed_fp16")
    tally.check("gradients on disks", plan_of(disks).get("error") is None, str(plan_of(disks).get("error")))
    ran = harness.zplan(disks, "--for", "megatron")
    tally.check("gradients on disks in Megatron-LM", ran.status == 1 and "Z0627" in ran.err and "--for zplan" in ran.err, ran.tail())
    plan = plan_of(write(folder, "onebit", "compress = true  data = 2"))
    tally.check("1-bit Adam in half precision", plan.get("compress") is True, str(plan.get("error")))
    ran = harness.zplan(write(folder, "zb", 'schedule = "zb_h1"  pipeline = 2'), "--for", "megatron")
    tally.check("zb_h1 in Megatron-LM", ran.status == 1 and "Z0627" in ran.err and "--for zplan" in ran.err, ran.tail())
    ran = harness.zplan(write(folder, "pipe", "zero = 3  pipeline = 2  data = 2"), "--for", "deepspeed")
    tally.check("ZeRO 3 with a pipeline in DeepSpeed", ran.status == 3 and "refuses ZeRO 2 and 3" in ran.err, ran.tail())
    plan = plan_of(write(folder, "free", "pipeline = 2"), "--for", "deepspeed")
    tally.check("DeepSpeed runs 1f1b", plan.get("schedule") == "1f1b" and plan.get("cut") == "layer", str(plan.get("error")))
    plan = plan_of(write(folder, "fsdp2", "data = 4"), "--for", "fsdp")
    tally.check("FSDP shards", plan.get("zero") in (2, 3), str(plan.get("zero", plan.get("error"))))
    ran = harness.zplan(write(folder, "cpu", "data = 1"), "--cluster", "cores", "--for", "megatron")
    tally.check("CPU ranks", ran.status == 1 and "Z0627" in ran.err, ran.tail())


def check_offload(tally, folder):
    """`=` pins all of a class; `in` permits; CPU ranks have nowhere to offload to."""
    homes = ('offload[optimizer] = "cpu"', 'offload[optimizer] in ["none", "cpu"]')
    pinned = plan_of(write(folder, "pinned", homes[0]))
    home = pinned.get("offload", {}).get("optimizer")
    tally.check("= pins", home == {"tier": "host", "eighths": 8}, str(home or pinned))
    free = plan_of(write(folder, "permitted", homes[1]))
    tally.check("in permits", not free.get("offload"), str(free.get("offload", free.get("error"))))
    ran = harness.zplan(os.path.join(folder, "pinned.dz"), "--cluster", "cores", "--gpus", "1")
    tally.check("pinned on CPU ranks", ran.status == 1 and "Z0627" in ran.err and "host memory" in ran.err, ran.tail())
    ran = harness.zplan(os.path.join(folder, "permitted.dz"), "--cluster", "cores", "--gpus", "1")
    tally.check("permitted on CPU ranks", ran.status == 0 and "Z0628" in ran.err, ran.tail())


def check_casts(tally, folder):
    """Weights of products in 8 bits are kept as casts alone where Megatron-LM can, and the export says so; gradients have the type of the profile."""
    plan = 'tensor = 1  pipeline = 1  data = 8  zero = %d  cut = "layer"  recompute = "none"  microbatch = 1'
    products = 12 * 256 * 256 * 4  # queries, keys, values, output, and two of four times the width, of four layers
    stage = {}
    for name, zero, words in (("alone", 1, ()), ("in 16 bits, too", 1, ("--set", "product_weights=bf16")), ("without ZeRO", 0, ())):
        path = write(folder, "casts%d" % zero, plan % zero, node="dgx_b200", precision="mixed_mxfp8")
        file = os.path.join(folder, "casts.json")
        stage[name] = plan_of(path, "--for", "megatron", "-o", file, *words).get("stages", [{}])[0].get("memory", {})
        script = harness.zplan("export", "megatron", file).out
        flags = [flag in script for flag in ("--fp8-param-gather", "--reuse-grad-buf-for-mxfp8-param-ag")]
        tally.check("casts %s: export" % name, flags == [name == "alone"] * 2 and "--fp8-recipe mxfp8" in script, script[-200:])
        tally.check("casts %s: verify" % name, harness.zplan("verify", file).status == 0, "")
    for name, more in (("in 16 bits, too", 2), ("without ZeRO", 2)):
        got = stage[name].get("weights", 0) - stage["alone"].get("weights", 0)
        tally.check("casts %s" % name, abs(got - more * products) < 4096, "%d bytes more, %d wanted" % (got, more * products))
    moved = (2 * 7, 7)  # the one micro-batch reads them twice; once a step: each of 8 ranks sends 7 parts of 8
    for precision, zero, bits in (("mixed_fp8", 1, 8), ("mixed_fp8_delayed", 1, 8), ("mixed_mxfp8", 1, 16), ("mixed_nvfp4", 1, 4), ("mixed_fp8", 3, 8), ("mixed_mxfp8", 3, 8)):
        path = write(folder, "gathers", plan % zero, node="dgx_b200", precision=precision)
        sent = [plan_of(path, "--for", "megatron", *words).get("traffic_bytes", {}).get("data", 0) for words in (("--set", "product_weights=bf16"), ())]
        want = moved[zero == 1] * products * (16 - bits) // 8
        tally.check("gathers of %s, ZeRO %d" % (precision, zero), sent[0] - sent[1] == want, "%d bytes fewer, %d wanted" % (sent[0] - sent[1], want))
    half = plan_of(os.path.join(folder, "casts1.dz"), "--for", "megatron-bridge").get("stages", [{}])[0].get("memory", {})
    tally.check("gradients in 16 bits", 2 * half.get("gradients", 0) == stage["alone"].get("gradients", -1), str(half))


def check_saved(tally, folder):
    """Plans for Megatron-LM that do not fit otherwise offload activations, exported as whole layers: only without stages and recomputation."""
    path = write(folder, "saved", 'tensor = 1  pipeline = 1  data = 8  microbatch = 8  recompute = "none"  cut = "layer"  offload[activations] in ["none", "cpu"]',
                 size=(1024, 32, 8), batch=64)
    share = 80 * plan_of(path, "--for", "megatron").get("estimate", {}).get("peak_bytes", 0) / 80e9
    file = os.path.join(folder, "saved.json")
    plan = plan_of(path, "--for", "megatron", "--set", "memory <= %.1f%%" % share, "-o", file)
    eighths = plan.get("offload", {}).get("activations", {}).get("eighths", 0)
    tally.check("activations on the host", 0 < eighths < 8, str(plan.get("offload", plan.get("error"))))
    script = harness.zplan("export", "megatron", file).out
    tally.check("layers of the export", "--cpu-offloading-num-layers %d\n" % (4 * eighths) in script, script[-300:])  # of 32
    tally.check("activations on the host: verify", harness.zplan("verify", file).status == 0, "")
    for name, pins, said in (("stages", ("pipeline=2", "data=4"), "without a pipeline"), ("recomputation", ("recompute=full",), "not in the program")):
        more = [word for one in (*pins, "offload[activations]=cpu") for word in ("--set", one)]
        ran = harness.zplan(path, "--for", "megatron", *more)
        tally.check("activations on the host with " + name, ran.status == 3 and said in words(ran.err), ran.tail())


def check_recipes(tally, folder):
    """Megatron-Bridge's recipes: chunks beyond those that are searched elsewhere, ZeRO 1 or 3, no whole layers again where exchanges are hidden, and
    `layernorm moe_act` of --recompute-modules."""
    chunked = write(folder, "chunks", 'tensor = 1  pipeline = 2  data = 4  chunks = 12  schedule = "interleaved"  cut = "layer"', size=(256, 24, 4), batch=16)
    for limit, least, most in (("chunks = 12", 12, 12), ("chunks in [10, 12]", 10, 12)):
        for program in ("megatron", "megatron-bridge"):
            plan = plan_of(chunked, "--for", program, "--set", limit, "--gap", "10%")
            tally.check("%s for %s" % (limit, program), least <= plan.get("chunks", 0) <= most, str(plan.get("chunks", plan.get("error"))))
    ran = harness.zplan(chunked, "--for", "megatron-bridge", "--set", "zero=2")
    tally.check("ZeRO 2 of Megatron-Bridge", ran.status == 1 and "Z0627" in ran.err and "ZeRO 1 or 3" in words(ran.err), ran.tail())
    path = os.path.join(folder, "modules.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(EXPERTS % "dropless")
    ran = harness.zplan(path, "--for", "megatron-bridge-26.06")
    tally.check("whole layers again where exchanges are hidden", ran.status == 1 and "Z0627" in ran.err and "hides exchanges" in words(ran.err), ran.tail())
    kept, step = {}, {}
    for mode in ("none", "selective"):
        plan = plan_of(path, "--for", "megatron-bridge", "--set", "recompute=" + mode, "--set", "memory <= 100%")
        kept[mode], step[mode] = plan["stages"][3]["memory"]["saved"], plan["estimate"]["step_s"]
    tokens, layers = 4096, 8
    want = layers * 2 * (2 * tokens * 4096 + 2 * tokens * 14336)  # two norms, and the activation of two experts a token, in 16 bits
    tally.check("norms and activations of experts", kept["none"] - kept["selective"] == want, "%d bytes less, %d wanted" % (kept["none"] - kept["selective"], want))
    tally.check("what that takes", 1 < step["selective"] / step["none"] < 1.1, str(step))
    script = harness.zplan("export", "megatron", path, "--for", "megatron-bridge", "--set", "recompute=selective").out
    tally.check("modules of the export", "--recompute-modules layernorm moe_act" in script, script[-300:])


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_published(tally, folder)
        check_experts(tally, folder)
        check_words(tally, folder)
        check_space(tally, folder)
        check_offload(tally, folder)
        check_casts(tally, folder)
        check_saved(tally, folder)
        check_bridge(tally, folder)
        check_recipes(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
