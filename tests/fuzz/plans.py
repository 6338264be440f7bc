#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A falsifier of the search: for random models and clusters, random legal plans are priced without the search, by layout and cost
model alone (price_plans.c), and laid alongside the certificate. None may be faster than the best plan less its gap, none may fit where
the search says that nothing does, and the verifier has to call them sound.

    plans.py [--count N] [--seed S] [--instances I] [--streams N] [--delayed N] [--rounded N] [--sharded N] [--only NUMBER] [--keep FOLDER]

      --count      plans in all (default 100000)
      --seed       where models, clusters and plans begin (default 1): the same seed, the same plans
      --instances  models and clusters (default 50, and those of KEPT)
      --streams    as many more whose layers have tensors in common (default 0)
      --delayed    as many more whose updates are delayed (default 0)
      --rounded    as many more whose sums of gradients are rounded to leave a node (default 0)
      --sharded    as many more whose state may be divided in groups of data ranks (default 0)
      --only       one of these alone, by its number
      --keep       where the model and the plan file of a failure go, shrunk (default build/fuzz)

tests/run.sh takes a third of the models and clusters by turns. A plan refutes a certificate when it is faster than its bound by more than 2e-9, the search's own tolerance (ZP_GAP_TOLERANCE). A
failing instance is shrunk: layers, batch and devices go down while some plan still refutes the certificate.
"""
import argparse
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import harness  # noqa: E402

TOOL = os.path.join(os.path.dirname(harness.ZPLAN), "tests", "price_plans")
PATIENCE = 600  # a time-out, not a measurement
COMPARED = 4  # drawn instances that the command plans, too

GPT = """model m(V = {V}, S = {S}, d = {d}, layers = {layers}, heads = {heads}) {{
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param wte: [V, d] ~ normal(std = 0.02)
  param wpe: [S, d] ~ normal(std = 0.02)
  x = embedding(tokens, wte) + wpe
  repeat h in 0..layers {{ x = g.gpt_layer(x, heads = heads) }}
  logits = matmul(layer_norm(x), transpose(wte))
  output loss = cross_entropy(logits, labels)
}}"""
LLAMA = """model m(V = {V}, S = {S}, d = {d}, layers = {layers}, heads = {heads}) {{
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param embed: [V, d] ~ normal(std = 0.02)
  param head: [V, d] ~ normal(std = 0.02)
  x = embedding(tokens, embed)
  repeat h in 0..layers {{ x = l.llama_layer(x, heads = heads, kv_heads = heads, ff = 3 * d) }}
  logits = matmul(rms_norm(x), transpose(head))
  output loss = cross_entropy(logits, labels)
}}"""
EXPERTS = """model m(V = {V}, S = {S}, d = {d}, layers = {layers}, heads = {heads}) {{
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param embed: [V, d] ~ normal(std = 0.02)
  param head: [V, d] ~ normal(std = 0.02)
  x = embedding(tokens, embed)
  repeat h in 0..layers {{
    x = e.moe_layer(x, heads = heads, kv_heads = heads, experts = 8, top_k = 2, ff = 2 * d, capacity = 1.25, balance = 0.02)
  }}
  logits = matmul(rms_norm(x), transpose(head))
  output loss = cross_entropy(logits, labels)
}}"""
# An early value that every later layer reads, and an earlier one that crosses all layers: streams of a stage.
MEMORY = """model m(V = {V}, S = {S}, d = {d}, layers = {layers}, heads = {heads}) {{
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param wte: [V, d] ~ normal(std = 0.02)
  x = embedding(tokens, wte)
  first = x
  repeat encoder in 0..layers {{ x = g.gpt_layer(x, heads = heads) }}
  memory = layer_norm(x)
  x = first
  repeat decoder in 0..layers {{ x = g.gpt_layer(x + memory, heads = heads) }}
  logits = matmul(layer_norm(x + first), transpose(wte))
  output loss = cross_entropy(logits, labels)
}}"""
NODES = ("dgx1v", "dgx2", "dgx_a100", "p3dn")
TIERS = ('["none", "cpu"]', '["none", "nvme"]', '["none", "cpu", "nvme"]')
CLASSES = ("optimizer", "gradients", "params", "activations")

FILE = """use std.nn
use std.hw
use "{examples}/gpt2.dz" as g
use "{examples}/llama_tiny.dz" as l
use "{examples}/mixtral_8x7b.dz" as e
{model}
device gpu {{ base = std.hw.{device}  memory = {memory}GB }}
node box {{
  devices = {per_node} * gpu
  link {{ kind = "nvlink"  bandwidth = {link}GB/s  latency = 3us }}
  host {{ cores = 40  sockets = 2  memory = {host}GB  bandwidth = {host_bandwidth}GB/s  pcie = 12GB/s  pcie_devices_per_root = 2 }}
  nvme {{ capacity = 2TB  read = 4GB/s  write = 2GB/s }}
  nic  {{ kind = "infiniband"  count = 2  bandwidth = {nic}GB/s  latency = 10us }}
}}
{cluster}
train {{ model = m  data = tokens("x.bin")  batch = {batch}  steps = 10  precision = "{precision}"  optimizer = adamw(lr = 1e-3) }}
plan {{ objective = minimize(step_time)  memory <= 94% }}
"""

# Instances that refuted certificates once, with what was wrong.
KEPT = (
    # Several chunks a stage were cut for the shortest longest chunk alone: another cut was 4 % faster, and the gap said 0.
    dict(style=GPT, V=51200, S=1024, d=2048, layers=24, heads=16, gpus=64, batch=64, node="dgx1v"),
    dict(style=GPT, V=51200, S=1024, d=4096, layers=26, heads=16, gpus=64, batch=64, node="dgx1v"),
)


def draw_instance(rng):
    """A model, a cluster and constraints, as the fields of FILE and settings."""
    heads = rng.choice((4, 8, 16))
    x = dict(style=rng.choice((GPT, GPT, LLAMA, EXPERTS)), V=rng.choice((1000, 4096, 32000, 50257)), S=rng.choice((128, 512, 1024)),
             d=heads * rng.choice((32, 64, 128)), heads=heads, layers=rng.choice((2, 3, 4, 5, 6, 8, 9, 12, 16, 23, 26)))
    x["gpus"] = rng.choice((2, 3, 4, 6, 7, 8, 12, 16, 16, 24, 32, 64))
    x["batch"] = rng.choice((1, 2, 4, 8, 12, 16, 24, 32, 64))
    x["per_node"] = rng.choice((2, 4, 8, 8))
    x["device"] = rng.choice(("v100_sxm2_32", "a100_40", "rtx3090"))
    x["link"], x["nic"] = rng.choice((10, 50, 150)), rng.choice((1, 5, 12.5))
    x["precision"] = rng.choice(("mixed_fp16", "mixed_fp16", "fp32"))
    x["memory"] = round(rng.choice((32, 32, 8, 4, 2, 1.2)) * rng.uniform(0.8, 1.2), 2)
    x["host"] = rng.choice((4, 16, 256))
    x["mixed"] = rng.random() < 0.15 and x["gpus"] >= 2 * x["per_node"]
    settings = []
    if rng.random() < 0.25:
        some = rng.sample(CLASSES, rng.randrange(1, 5))
        settings += ["offload[%s] in %s" % (name, rng.choice(TIERS)) for name in CLASSES if name in some]
    if rng.random() < 0.3:
        settings.append("zero <= %d" % rng.randrange(4))
    if rng.random() < 0.3:
        settings.append('schedule = "%s"' % rng.choice(("1f1b", "gpipe", "interleaved", "zb_h1", "zb_h2", "zb_v", "dualpipev")))
    if rng.random() < 0.6:
        settings.append('cut = "%s"' % rng.choice(("layer", "layer", "block")))
    if rng.random() < 0.2:
        settings.append('recompute = "%s"' % rng.choice(("none", "full", "selective")))
    if rng.random() < 0.2:
        settings.append("idle = 0")
    x["settings"] = settings
    return x


def delay_updates(x, rng):
    """On hosts so slow that they often decide how long a step is."""
    gone = tuple("offload[%s]" % name for name in CLASSES[:3])
    x["settings"] = [setting for setting in x["settings"] if not setting.startswith(gone)]
    x["settings"] += ['offload[optimizer] = "cpu"', 'offload[gradients] in ["none", "cpu"]', 'offload[params] = "none"', "train.delayed_update = after(4)"]
    x["host_bandwidth"] = rng.choice((150, 40, 10, 3))


def round_sums(x, rng):
    """On several nodes, of which the last one is often not full."""
    x["settings"] = [setting for setting in x["settings"] if not setting.startswith(("offload[gradients]", "compress"))] + ['train.reduce_dtype = "bf16"']
    x["gpus"] = max(x["gpus"], x.get("per_node", 8) + rng.randrange(1, 9))


def shard_groups(x, rng):
    """On several nodes, mostly so small that state has to be divided."""
    x["settings"] = [setting for setting in x["settings"] if not setting.startswith("zero")] + ["shard >= 1"]
    x["gpus"], x["batch"], x["memory"] = rng.choice((8, 12, 16, 32)), rng.choice((16, 24, 32, 64)), min(x["memory"], 8)


def text_of(x):
    y = dict(x, host_bandwidth=x.get("host_bandwidth", 150), examples=os.path.join(harness.ROOT, "examples"), model=x["style"].format(**x))
    nodes = -(-x["gpus"] // x.get("per_node", 8))
    if "node" in x:
        y.update(device="v100_sxm2_32", memory=32, per_node=8, link=150, host=512, nic=12.5, precision="mixed_fp16",
                 cluster="cluster c { nodes = %d  node = std.hw.%s }" % (nodes, x["node"]))
    elif x["mixed"]:
        first = max(1, nodes // 2)
        groups = x.get("groups", [(first, "box"), (nodes - first, "old")])
        y["cluster"] = ("device slow { base = gpu  memory = %.2fGB  half = 60TFLOPS }\n"
                        "node old { base = box  devices = %d * slow }\n"
                        "device wide { base = gpu  memory = %.2fGB  half = 90TFLOPS }\n"
                        "node large { base = box  devices = %d * wide }\n"
                        "cluster c { nodes = [%s] }" % (0.7 * x["memory"], x["per_node"], 1.5 * x["memory"], x["per_node"],
                                                        ", ".join("%d * %s" % group for group in groups)))
    else:
        y["cluster"] = "cluster c { nodes = %d  node = box }" % nodes
    return FILE.format(**y)


def try_instance(x, count, seed, folder, name):
    """What price_plans says: its last line as a dictionary, lines of failures, the status."""
    path, plan = os.path.join(folder, name + ".dz"), os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text_of(x))
    command = [TOOL, path, "--gpus", str(x["gpus"]), "--count", str(count), "--seed", str(seed), "--keep", plan]
    for setting in x.get("settings", []):
        command += ["--set", setting]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return {}, ["hangs: %s" % " ".join(command)], 1
    lines = done.stdout.strip().splitlines()
    words = lines[-1].split() if lines else []
    found = dict(zip(words[::2], words[1::2])) if words[:1] == ["program"] else {}
    said = [line for line in lines if line.split()[0] in ("faster", "fits", "unsound", "finding")]
    if not found:
        said.append("status %d: %s" % (done.returncode, done.stderr.strip()[-600:]))
    return found, said, done.returncode


def check_user_gets_it(x, found, folder, name):
    """Failures: price_plans searched for something else than the command does with the same words."""
    command = [harness.ZPLAN, "plan", os.path.join(folder, name + ".dz"), "--gpus", str(x["gpus"]), "--json"]
    for setting in x.get("settings", []):
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    feasible = found["feasible"] == "1"
    if not feasible or done.returncode != 0:
        return [] if done.returncode == 3 and not feasible else ["the command ends with %d, price_plans says %s" % (done.returncode, found)]
    said = json.loads(done.stdout)["certificate"]
    return ["the command's %s is %.9g, here %s" % (key, said[key], found[word]) for key, word in (("best_s", "best"), ("bound_s", "bound"))
            if abs(float(found[word]) / said[key] - 1) > 1e-8]


def shrink(x, count, seed, folder, name):
    """The instance with fewer layers, devices, samples and settings, as long as some plan refutes its certificate."""
    smaller = True
    while smaller:
        smaller = False
        trials = [dict(x, **{key: value}) for key in ("layers", "gpus", "batch") for value in (x[key] // 2, x[key] - 1) if value > 0]
        trials += [dict(x, settings=[s for s in x["settings"] if s != gone]) for gone in x.get("settings", [])]
        for trial in trials:
            found, said, status = try_instance(trial, count, seed, folder, name)
            if found and status == 1 and said:
                x, smaller = trial, True
                break
    return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--delayed", type=int, default=0)
    parser.add_argument("--rounded", type=int, default=0)
    parser.add_argument("--sharded", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep", default=os.path.join(harness.ROOT, "build", "fuzz"))
    options = parser.parse_args()
    harness.require_zplan()
    os.makedirs(options.keep, exist_ok=True)
    plain = len(KEPT) + options.instances
    total, passed, failed, drawn, fit, verified = plain + options.streams + options.delayed + options.rounded + options.sharded, 0, 0, 0, 0, 0
    for i in range(total):
        rng = random.Random("%d %d" % (options.seed, i))
        x = dict(KEPT[i]) if i < len(KEPT) else draw_instance(rng)
        if plain <= i < plain + options.streams:
            x["style"] = MEMORY
        elif plain <= i < plain + options.streams + options.delayed:
            delay_updates(x, rng)
        elif plain <= i < total - options.sharded:
            round_sums(x, rng)
        elif i >= plain:
            shard_groups(x, rng)
        if i != options.only if options.only is not None else not harness.my_turn(i):
            continue
        count, seed = -(-options.count // total), options.seed * 1000003 + i
        name = "plans-%d-%d" % (options.seed, i)
        found, said, status = try_instance(x, count, seed, options.keep, name)
        if found and status == 0 and len(KEPT) <= i < len(KEPT) + COMPARED:
            said = check_user_gets_it(x, found, options.keep, name)
            status = 2 if said else 0
        drawn, fit, verified = (n + int(found.get(key, 0)) for n, key in ((drawn, "drawn"), (fit, "fit"), (verified, "verified")))
        if found and status == 0:
            passed += 1
            os.remove(os.path.join(options.keep, name + ".dz"))
            continue
        failed += 1
        print("FAIL instance %d of seed %d: %d GPUs, batch %d, %s" % (i, options.seed, x["gpus"], x["batch"], x.get("settings", [])))
        for line in said[-3:]:
            print("  " + line[:600])
        if found and status == 1:
            small = shrink(x, count, seed, options.keep, name)
            again = try_instance(small, count, seed, options.keep, name)
            print("  shrunk: layers %d, %d GPUs, batch %d, %s: %s" % (small["layers"], small["gpus"], small["batch"],
                                                                      small.get("settings", []), again[1][-1:]))
            print("  kept: %s" % os.path.join(options.keep, name + ".dz, .json"))
        sys.stdout.flush()
    print("seed %d: %d plans of %d models and clusters, %d of them fit, %d went through the verifier" % (
        options.seed, drawn, passed + failed, fit, verified))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
