#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference against the language: every key with its example passes `check`, what is outside its range is refused, and its
default written out gives the same plan as leaving it out; operations with their arguments likewise. The committed pages are what
the command prints.

usage: reference.py [--update]
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

PAGES = ("blocks", "operations", "flags", "messages", "runs")
FOLDER = os.path.join(harness.ROOT, "docs", "reference")

# What keys stand in: a file of one kind of cluster.
HEAD = "use std.hw\nuse std.nn\n"
MODEL = """model tiny(V = 256, S = 16, d = 16) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param w: [V, d]
  x = embedding(tokens, w)
  repeat h in 0..2 {
    attn = linear(x, out = d)
    x = x + attn
  }
  output loss = cross_entropy(matmul(x, transpose(w)), labels)
}
"""
T5 = """model tiny(V = 256, S = 16, d = 16) {
  input source: i32[B, S]
  input target: i32[B, S]
  input labels: i32[B, S]
  param w: [V, d]
  x = embedding(target, w) + embedding(source, w)
  output loss = cross_entropy(matmul(x, transpose(w)), labels, ignore_index = -1)
}
"""
TRAIN = {"model": "model = tiny", "data": 'data = text("text.txt")', "batch": "batch = 16", "steps": "steps = 100",
         "optimizer": "optimizer = adamw(lr = 6e-4)"}
CLUSTER = {"nodes": "nodes = 2", "node": "node = std.hw.dgx_a100", "price": "price = 2"}
DEVICE = {"memory": "memory = 80GB", "memory_bandwidth": "memory_bandwidth = 2039GB/s", "fp32": "fp32 = 19.5TFLOPS",
          "efficiency": "efficiency { matmul = 75%  attention = 60%  memory = 85% }"}
NODE = {"devices": "devices = 8 * std.hw.a100_80", "link": 'link { kind = "nvswitch"  bandwidth = 150GB/s  latency = 3us }',
        "nic": "nic { count = 8  bandwidth = 25GB/s  latency = 2us }",
        "host": "host { memory = 1TiB  bandwidth = 200GB/s  pcie = 25GB/s }"}
NESTED = {  # of blocks within others: what else they need
    "validate": {"data": 'data = text("text.txt")', "every": "every = 10"}, "checkpoint": {"dir": 'dir = "out"'}, "log": {}, "search": {},
    "fabric": {}, "link": {"kind": 'kind = "nvswitch"', "bandwidth": "bandwidth = 150GB/s", "latency": "latency = 3us"},
    "host": {"memory": "memory = 1TiB", "bandwidth": "bandwidth = 200GB/s", "pcie": "pcie = 25GB/s"},
    "nvme": {"capacity": "capacity = 4TB", "read": "read = 12GB/s", "write": "write = 6GB/s"},
    "nic": {"count": "count = 8", "bandwidth": "bandwidth = 25GB/s", "latency": "latency = 2us"},
    "efficiency": {"matmul": "matmul = 75%", "attention": "attention = 60%", "memory": "memory = 85%"}}
# Keys that need another one.
WITH = {("train", "loss_scale"): {"precision": 'precision = "mixed_fp16"'}, ("train", "tokens"): {"steps": None},
        ("train", "gradient_sums"): {"precision": 'precision = "mixed_bf16"'},
        ("dynamic", None): {"precision": 'precision = "mixed_fp16"'}, ("device", "cpu"): {"cores": "cores = 8"}}

# What operations stand in.
OPERATIONS = """model tiny(V = 256, S = 64, d = 16) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  input n: i32[B]
  input pick: i32[B]
  input documents: i32[B, S]
  input target: f32[B, S, d]
  param table: [V, d]
  param w: [d, d]
  param gain: [d]
  param gain8: [8]
  param half: [d, 8]
  param shift: [d]
  param kernel: [d, 3 * d]
  param kernel2: [d, 9 * d]
  param gate: [d, 4]
  param experts: [4, d, d]
  param buckets: [32, 2]
  param load: [4]
  x = embedding(tokens, table)
  x8 = matmul(x, half)
  scores = matmul(x, gate)
  %s
  logits = matmul(x, transpose(table))
  output loss = cross_entropy(logits, labels)
}
"""
GATE = "weight, slot = top_k_gate(scores, k = 2)\n  "
FILL = {  # examples of arguments, and other arguments that they need
    ("attention", "kv_heads"): "y = attention(x, x8, x8, heads = 2, kv_heads = 1)", ("attention", "scale"): "scale = 0.5", ("attention", "lengths"): "lengths = n",
    ("attention", "relative_bias"): "relative_bias = buckets", ("attention", "documents"): "documents = documents",
    ("attention", "window"): "window = 4", ("attention", "softcap"): "softcap = 30.0", ("attention", "alibi"): "alibi = true",
    ("attention", "max_distance"): "relative_bias = buckets, max_distance = 64",
    ("attention", "pattern"): "pattern = sparse.sliding(block = 16)", ("attention", "cross"): "causal = false, cross = true",
    ("top_k_gate", "bias"): "affinity = \"sigmoid\", bias = load", ("top_k_gate", "groups"): "affinity = \"sigmoid\", groups = 2, top_groups = 1",
    ("top_k_gate", "top_groups"): "affinity = \"sigmoid\", groups = 2, top_groups = 1", ("cross_entropy", "lengths"): "y = cross_entropy(mean(logits), pick, lengths = n)",
    ("cross_entropy", "ignore_index"): "ignore_index = -1", ("rms_normalize", "heads"): "y = rms_normalize(x, gain8, heads = 2)",
    ("l2_normalize", "heads"): "heads = 2", ("slice", "heads"): "heads = 2, axis = -1", ("concat", "heads"): "heads = 2",
    ("pad", "heads"): "heads = 2", ("slice", "axis"): "axis = -1"}


def page_names():
    return {page["name"]: page for page in json.loads(harness.zplan("explain", "--reference", "json").out)}


def block(name, rows):
    return "%s {\n%s\n}\n" % (name, "\n".join("  " + row for row in rows if row))


def with_key(base, page, key, text):
    rows = dict(base)
    rows.update(WITH.get((page, key), {}))
    rows[key] = text
    return rows.values()


def file_of(page, key, text):
    """A file in which `key` of a block's page is `text` (None: left out)."""
    train, cluster, plan, extra, model = dict(TRAIN), dict(CLUSTER), {}, "", MODEL
    name, within = page["name"], page["within"]
    if name == "train":
        train = dict(zip(range(99), with_key(TRAIN, name, key, text)))
    elif name == "plan":
        plan = {0: text}
    elif name == "cluster":
        cluster = dict(zip(range(9), with_key(CLUSTER, name, key, text)))
    elif name in ("node", "device"):
        base = (NODE if name == "node" else DEVICE) if key != "base" else {}
        extra = block("%s mine" % name, with_key(base, name, key, text))
        cluster["node"] = "node = mine" if name == "node" else "node = far"
        if name == "device":
            extra += block("node far", [row.replace("std.hw.a100_80", "mine") for row in NODE.values()])
    else:
        inner = block(name, with_key(NESTED[name], name, key, text))
        if within == "train":
            train[name] = inner
        elif within == "plan":
            plan[name] = inner
        elif within == "cluster":
            cluster[name] = inner
        elif within == "cluster.node.device":
            extra = block("device mine", dict(DEVICE, efficiency=inner).values()) + block(
                "node far", [row.replace("std.hw.a100_80", "mine") for row in NODE.values()])
            cluster["node"] = "node = far"
        else:
            extra = block("node mine", dict(NODE, **{name: inner}).values())
            cluster["node"] = "node = mine"
    return HEAD + model + extra + block("cluster here", cluster.values()) + block("train", train.values()) + block("plan", plan.values())


def call_of(page, argument):
    """The page's example with an argument in its place, or more."""
    example, key = page["example"], argument and argument.split(" = ")[0]
    if not argument:
        return example
    name = page["name"] + "("
    at = example.index(name) + len(name)
    inside, depth, end = [], 0, at
    while depth >= 0:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(example[end], 0)
        end += 1
    start = level = 0
    text = example[at:end - 1]
    for i, c in enumerate(text + ","):
        level += {"(": 1, "[": 1, ")": -1, "]": -1}.get(c, 0)
        if c == "," and level == 0:
            inside.append(text[start:i].strip())
            start = i + 1
    given = set(row["key"] for row in page["rows"][:page.get("positional", 1)])
    taken = set(part.split(" = ")[0] for part in re.split(r", (?=\w+ = )", argument))
    inside = [part for part in inside if part and part.split(" = ")[0] not in taken and not (key in given and " = " not in part)]
    return example[:at] + ", ".join(inside + [argument]) + example[end - 1:]


def call_file(page, argument):
    """A file with a call as the value of its key."""
    train, model = dict(TRAIN), MODEL
    place, key = page["within"].rsplit(".", 1)[0], page["within"].rsplit(".", 1)[1]
    value = call_of(page, argument)
    train.update(WITH.get((page["name"], None), {}))
    if key == "freeze":
        train["optimizer"] = "optimizer = adamw(lr = 6e-4, freeze = %s)" % value
    elif key == "groups":
        train[key] = "groups = [%s]" % value
    else:
        train[key] = "%s = %s" % (key, value)
    if page["name"] == "spans":
        model = T5
    if page["name"] == "masked":
        model = model.replace("labels)", "labels, ignore_index = -1)")
    if "muon" in value or (page["name"] == "group" and argument and argument.startswith("optimizer")):
        train["optimizer"] = train["optimizer"] if "muon" in train["optimizer"] else "optimizer = muon(lr = 6e-4)"
    if page["name"] == "arrays":
        model = model.replace("tokens", "ids")
    assert place
    return HEAD + model + block("cluster here", CLUSTER.values()) + block("train", train.values())


def operation_file(page, argument):
    statement = argument if argument and re.match(r"[yz] = ", argument) else call_of(page, argument)
    if "slot" in statement.split("=")[-1] or "slot)" in statement:
        statement = GATE + statement if page["name"] != "top_k_gate" else statement
    # y of cross_entropy needs logits that stand before it.
    text = OPERATIONS % statement
    if page["name"] == "cross_entropy":
        text = OPERATIONS % ("logits = matmul(x, transpose(table))\n  " + statement)
        text = text.replace("  logits = matmul(x, transpose(table))\n  output", "  output")
    return text


class Checker:
    def __init__(self, folder):
        self.folder, self.count = folder, 0
        shutil.copy(os.path.join(harness.ROOT, "LICENSE"), os.path.join(folder, "text.txt"))

    def errors(self, text, verb=("check",)):
        """Codes of the errors that a file has; of a plan: what it decides."""
        self.count += 1
        path = os.path.join(self.folder, "f%d.dz" % self.count)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([harness.ZPLAN, *verb, path], capture_output=True, text=True, errors="replace", check=False,
                              env=dict(os.environ, NO_COLOR="1", COLUMNS="2000"))
        return done, [code for code in re.findall(r"^error\[(Z\d+)\]", done.stderr, re.M)]


UNUSED = {"Z0231", "Z0232"}  # the value of an example is not used by the model around it


def check_row(checker, page, row):
    """What is wrong with a row; empty: nothing."""
    kind, key, found = page["kind"], row["key"], []
    make = {"block": lambda text: file_of(page, key, text), "call": lambda text: call_file(page, text),
            "operation": lambda text: operation_file(page, text)}[kind]
    allowed = UNUSED if kind == "operation" else set()
    example = FILL.get((page["name"], key), row["example"])
    if kind == "call" and key == "seed" and any(other["key"] == "order" for other in page["rows"]):
        example = 'order = "shuffled", ' + example
    if kind != "operation" or " = " in example:
        done, codes = checker.errors(make(example))
        if set(codes) - allowed or done.returncode not in (0, 1) or (done.returncode == 1 and not codes):
            found.append("example `%s`: %s" % (example, done.stderr.strip()[:300]))
    if row["outside"] and not (row["outside"].startswith("block")):
        done, codes = checker.errors(make(row["outside"]))
        if not set(codes) - UNUSED - {"Z0502", "Z0307"}:
            found.append("outside `%s`: %s" % (row["outside"], done.stderr.strip()[:300] or "taken"))
    if row["written"]:
        found += check_default(checker, make, kind, row["written"])
    return found


def without_text(plan):
    """A plan file but for the text that it carries."""
    return {key: value for key, value in plan.items() if key not in ("sources", "source", "source_hash", "model", "hash", "file")}


def check_default(checker, make, kind, written):
    if kind == "operation":  # whatever is not used is reported before there is a graph
        done, codes = checker.errors(make(written))
        bare, same = checker.errors(make(None))
        return [] if codes == same and set(codes) <= UNUSED else ["default `%s`: %s" % (written, done.stderr.strip()[:300])]
    plans = []
    for text in (None, written):
        done, _ = checker.errors(make(text), ("plan", "--json", "--gpus", "2"))
        plans.append(json.dumps(without_text(json.loads(done.stdout))) if done.returncode == 0 else done.stderr)
    return [] if plans[0] == plans[1] and plans[0].startswith("{") else ["default `%s` is another: %s" % (written, plans[1][:300])]


def check_rows(tally, folder):
    checker, pages = Checker(folder), page_names()
    tally.check("blocks, calls and operations", len(pages) > 80, str(len(pages)))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = []
        for page in pages.values():
            lone = {"block": None, "call": call_file, "operation": operation_file}[page["kind"]]
            words = not page["meaning"] or not page["example"] or [row["key"] for row in page["rows"] if not row["meaning"] or not row["example"]]
            tally.check("%s: every row has words" % page["name"], not words, str(words))
            if lone:
                done, codes = checker.errors(lone(page, None))
                tally.check("example of %s" % page["name"], not set(codes) - UNUSED, done.stderr.strip()[:300])
            jobs += [(page, row, pool.submit(check_row, checker, page, row)) for row in page["rows"]]
        for page, row, job in jobs:
            wrong = job.result()
            tally.check("%s.%s" % (page["name"], row["key"]), not wrong, "; ".join(wrong))


def check_pages(tally):
    for page in PAGES:
        printed, path = harness.zplan("explain", "--reference", page).out, os.path.join(FOLDER, page + ".md")
        if "--update" in sys.argv[1:]:
            with open(path, "w", encoding="utf-8") as file:
                file.write(printed)
        kept = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        tally.check("docs/reference/%s.md is what the command prints" % page, kept == printed, "reference.py --update writes it")


def check_words(tally):
    for word, has in (("train.batch", "sequences of an optimizer step"), ("tensor", "tensor parallelism"), ("attention", "kv_heads"), ("plan", "pipeline"),
                      ("train.checkpoint.dir", "folder of the checkpoints"), ("gpus", "--gpus N|auto"), ("verify", "zplan verify"), ("adamw", "betas"),
                      ("Z0601", "Z0601"), ("sparse.fixed", "patterns"), ("llama_layer", "use std.models"),
                      ("linear", "use std.nn")):
        outcome = harness.zplan("explain", word)
        wide = [line for line in outcome.out.splitlines() if len(line) > 80 and not word.startswith("Z")]
        tally.check("explain %s" % word, outcome.status == 0 and has in outcome.out and not wide, outcome.tail() + "".join(wide[:1]))
    for word, near in (("attentoin", "attention"), ("tesnor", "tensor"), ("train.bacth", "train.batch"), ("lama_layer", "llama_layer"), ("gpu_count_of_all_nodes", "is no file, key")):
        outcome = harness.zplan("explain", word)
        tally.check("explain %s" % word, outcome.status == 2 and near in outcome.err and not outcome.out, outcome.tail())
    outcome = harness.zplan("explain", "--reference", "nothing")
    tally.check("no such page", outcome.status == 2 and "messages, runs, man or json" in outcome.err, outcome.tail())


def check_man(tally):
    page = harness.zplan("explain", "--reference", "man").out
    lines = page.splitlines()
    tally.check("zplan.1 has all flags", all(("\n.B " + flag.replace("-", "\\-")) in page for flag in re.findall(r"^  (--?[\w-]+)", harness.zplan("plan", "--help").out, re.M)))
    known = (".TH", ".SH", ".SS", ".TP", ".B", ".I")
    tally.check("zplan.1: no text begins as a request", not [line for line in lines if line[:1] in ".'" and line and line.split()[0] not in known])
    for tool in (["man", "--warnings", "-l", "-"], ["groff", "-man", "-Tutf8", "-ww", "-z"]):
        if shutil.which(tool[0]):
            done = subprocess.run(tool, input=page, capture_output=True, text=True, check=False)
            tally.check("%s reads it" % tool[0], done.returncode == 0 and not done.stderr, done.stderr[:300])


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_pages(tally)
        check_words(tally)
        check_man(tally)
        check_rows(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
