#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cut = [9, 8, 7]` and `for = "megatron"` of a plan block: the plan is cut so, and the best of all pinned cuts is the plan of
the search that may cut anywhere.

usage: pinned_cut.py      (ZPLAN=path: another binary)
"""
import itertools
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

LAYERS = 7
FILE = """use std.nn
use std.hw
block layer(x, width = 64) {
  param w: [width, 4 * width]
  param v: [4 * width, width]
  return x + matmul(gelu(matmul(x, w)), v)
}
model m(V = 512, S = 32, d = 64, L = %d) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param table: [V, d]
  param head: [d, V]
  x = embedding(tokens, table)
  repeat h in 0..L { x = layer(x, width = d) }
  output loss = cross_entropy(matmul(x, head), labels)
}
cluster c { nodes = 1  node = std.hw.dgx_a100 }
train { model = m  batch = 16  steps = 10  data = synthetic(seed = 1)  optimizer = adamw(lr = 1e-3) }
plan { tensor = 1  data = 1  zero = 0  recompute = "none"  microbatch = 2  %s }
"""


def write(folder, name, plan):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(FILE % (LAYERS, plan))
    return path


def plan(tally, folder, name, text, *words):
    outcome = harness.zplan("plan", write(folder, "pinned.dz", text), "--gpus", *(words or ("3",)), "--json")
    if tally.check("%s: status" % name, outcome.status == 0, outcome.tail()):
        return json.loads(outcome.out)
    return None


def layers_of(document, layers=LAYERS):
    """Layers of all chunks in the model's order: the first unit is the embedding, the last one head and loss."""
    found = []
    for turn in range(len(document["stages"][0]["chunks"])):
        for stage in document["stages"]:
            chunk = stage["chunks"][turn]
            found.append(sum(1 <= unit <= layers for unit in range(chunk["first_unit"], chunk["first_unit"] + chunk["units"])))
    return found


def brute_force(tally, folder):
    """All cuts of one chunk a stage, of three stages and of two."""
    for stages in (2, 3):
        times = {}
        for cut in itertools.product(range(LAYERS + 1), repeat=stages):
            if sum(cut) != LAYERS or 0 in cut[1:-1]:
                continue
            document = plan(tally, folder, "cut %s" % (cut,), "schedule = \"1f1b\"  cut = %s" % list(cut), str(stages))
            if document:
                times[cut] = document["estimate"]["step_s"]
                tally.check("cut %s: layers" % (cut,), layers_of(document) == list(cut), str(layers_of(document)))
        free = plan(tally, folder, "free", "schedule = \"1f1b\"  chunks = 1  cut = \"layer\"  pipeline = %d" % stages, str(stages))
        if free and times:
            best = min(times.values())
            tally.check("%d stages: the best pinned cut is the free plan" % stages, abs(free["estimate"]["step_s"] - best) <= 1e-9 * best,
                        "%s, %s" % (free["estimate"]["step_s"], best))
            tally.check("%d stages: cuts differ" % stages, max(times.values()) > 1.05 * best, str(times))


def chunks(tally, folder):
    """Several chunks a stage: parts of the model in its order."""
    for cut in ([2, 2, 2, 1], [1, 3, 1, 2], [3, 1, 2, 1]):
        document = plan(tally, folder, "chunks %s" % cut, "schedule = \"interleaved\"  chunks = 2  cut = %s" % cut, "2")
        if document:
            tally.check("chunks %s: stages" % cut, document["degrees"]["pipeline"] == 2, str(document["degrees"]))
            tally.check("chunks %s: layers" % cut, layers_of(document) == cut, str(layers_of(document)))


def verbs(tally, folder):
    """A pinned plan file is sound, and the exported layout is the pin."""
    path = write(folder, "verbs.dz", "schedule = \"1f1b\"  cut = [3, 1, 3]  for = \"megatron\"")
    saved = os.path.join(folder, "verbs.json")
    made = harness.zplan("plan", path, "--gpus", "3", "-o", saved, "--force")
    tally.check("for: status", made.status == 0, made.tail())
    words = json.load(open(saved, encoding="utf-8"))["options"]
    tally.check("for: recorded", words[words.index("--for") + 1].startswith("megatron"), str(words))
    tally.check("verify", harness.zplan("verify", saved).status == 0)
    other = harness.zplan("plan", path, "--gpus", "3", "--for", "zplan", "--json")
    tally.check("--for counts before `for`", other.status == 0 and "--for" not in json.loads(other.out)["options"], other.tail())
    refused = harness.zplan("build", path, "--ranks", "3", "-o", os.path.join(folder, "tree"))
    tally.check("for: build is zplan's own", refused.status == 1 and "Z0702" in refused.err, refused.tail())


def alone(tally, _):
    """A list alone on the command line: cuts inside layers are not opened, and what is near a plan that does not fit drops the whole list."""
    for cut in ([8, 8, 8, 8], [20, 4, 4, 4]):
        words = ("plan", "--model", "llama3-8b", "--machine", "dgx-h100", "--gpus", "8", "--json", "--set", "cut=%s" % cut)
        free = harness.zplan(*words)
        tally.check("alone %s: status" % cut, free.status == 0, free.tail())
        tally.check("alone %s: layers" % cut, free.status == 0 and layers_of(json.loads(free.out), 32) == cut)
        tight = harness.zplan(*words, "--set", "memory <= 10%")
        tally.check("alone %s, too large: status" % cut, tight.status == 3, tight.tail())


def bad_input(tally, folder):
    for name, text, told in (
            ("too many layers", "cut = [4, 4]", "`cut` lists 8 layers, `m` has 7"),
            ("a part without layers", "cut = [4, 0, 3]", "without a layer"),
            ("below 0", "cut = [8, -1]", "`cut` must be 0 or more"),
            ("no number", "cut = [\"4\", 3]", "is a number"),
            ("empty", "cut = []", "write `cut = [9, 8, 8, 7]`"),
            ("twice", "cut = [4, 3]  cut = [3, 4]", "write `cut = [9, 8, 8, 7]`"),
            ("another pipeline", "pipeline = 3  cut = [4, 3]", "which `pipeline` does not allow"),
            ("odd chunks", "chunks = 2  cut = [3, 3, 1]", "does not divide into stages"),
            ("inside layers", "cut = \"block\"  cut = [4, 3]", "which the other `cut` does not allow"),
            ("unknown program", "for = \"megatorn\"", "did you mean `megatron`"),
            ("program's limits", "for = \"deepspeed\"  schedule = \"zb_h1\"  cut = [4, 3]", "Z0627")):
        outcome = harness.zplan("plan", write(folder, "bad.dz", text), "--gpus", "2")
        tally.check("%s: %s" % (name, told), outcome.status == 1 and told in outcome.err and not outcome.out, outcome.tail())


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        for part in (brute_force, chunks, verbs, alone, bad_input):
            part(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
