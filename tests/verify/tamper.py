#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every number and name of a plan file that follows from its decisions must be found when it is changed.

usage: tamper.py [--mutations N] [ZPLAN]

Makes plans of several shapes, changes some leaves, one at a time (seeded; others at the next commit in tests/run.sh), and expects `zplan verify` to exit 1 with a reason;
the untouched file must verify. Provenance (certificate, alternatives, sources) is not derived and is left alone.
"""
import copy
import json
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Not a matter of the plan's proof: how it was found and made, where its model's data is, and the mark of a file that nobody has edited.
FREE = ("certificate", "rejected", "alternatives", "options", "sources", "format_version", "model_folder", "file_hash")
CONTEXT = ("examples/moe_tiny.dz", "--ranks", "4", "--set", "context=2", "--set", "context_by=heads", "--set", "plan.data=2", "--set", "plan.expert=4", "--set", "zero=1")
KEYS = ("examples/llama_tiny.dz", "--ranks", "2", "--set", "context=2", "--set", "context_by=keys", "--set", "zero=1")
RING = ("examples/llama_tiny.dz", "--ranks", "3", "--set", "context=3", "--set", "context_by=ring", "--set", "zero=1", "--set", "model.S=192")
ROUTED = ("examples/moe_tiny.dz", "--ranks", "4", "--set", "plan.data=4", "--set", "plan.expert=2", "--set", "shard=2", "--set", "zero=1", "--set", "model.capacity=dropless")
PLANS = (
    ("examples/gpt_tiny.dz", "--ranks", "4", "--set", "tensor=2", "--set", "pipeline=2"),
    ("examples/llama_tiny.dz", "--ranks", "6", "--set", "plan.data=2", "--set", "tensor=3", "--set", "zero=1", "--set", "recompute=full"),
    ("examples/gpt_tiny.dz", "--ranks", "6", "--set", "tensor=2", "--set", 'stage_recompute=["full/tensor", "selective", "none"]'),
    ("examples/gpt_tiny.dz", "--ranks", "4", "--set", "pipeline=4", "--set", 'cut="block"'),
    ("examples/gpt_tiny.dz", "--ranks", "2", "--set", "pipeline=2", "--set", 'precision="mixed_mxfp8"', "--set", "recompute=none"),
    ("examples/gpt_tiny.dz", "--machine", "dgx-b200", "--gpus", "8", "--for", "megatron", "--set", 'precision="mixed_mxfp8"', "--set", "pipeline=2", "--set", "zero=1", "--set", "cut=layer"),
    ("examples/gpt_tiny.dz", "--ranks", "5", "--set", "tensor=2", "--set", "pipeline=2", "--set", "idle=1"),
    ROUTED,
    ("examples/gpt_tiny.dz", "--ranks", "2", "--set", "pipeline=2", "--set", 'schedule="zb_v"', "--set", "chunks=2", "--set", "recompute=full"),
    ("examples/gpt_tiny.dz", "--ranks", "3", "--set", "pipeline=3", "--set", 'schedule="dualpipev"'),
    ("examples/gpt_tiny.dz", "--ranks", "4", "--set", "pipeline=2", "--set", "plan.data=2", "--set", 'schedule="zb_h1"', "--set", "zero=3"),
    ("examples/gpt_tiny.dz", "--ranks", "4", "--set", "tensor=2", "--set", "pipeline=2", "--set", "loss_chunks=4"),
    ("examples/llama_tiny.dz", "--ranks", "4", "--set", "tensor=2", "--set", "plan.data=2", "--set", "zero=3", "--set", 'train.frozen=["embed_tokens", "*proj.weight"]'),
    ("examples/gpt_tiny.dz", "--ranks", "2", "--set", "pipeline=2", "--set", 'train.adapt=lora(rank = 4, of = ["*attn*"])'),
    ("examples/gpt_tiny.dz", "--ranks", "4", "--set", "context=4", "--set", "shard=2", "--set", "zero=2"),
    ("examples/gpt_tiny.dz", "--ranks", "4", "--set", "pipeline=1", "--set", "plan.data=4", "--set", "zero=3", "--set", "hpz=2"),
    CONTEXT,
    KEYS,
    RING,
    ("tests/diff/windows.dz", "--ranks", "4", "--set", "context=4", "--set", "context_by=ring", "--set", "zero=1"),
    ("tests/diff/patterns.dz", "--ranks", "2", "--set", "context=2", "--set", "context_by=ring"),
    ("examples/gpt1t.dz", "--gpus", "800"),
)
EXCHANGES = ("spread_heads", "return_heads", "gather_choices", "spread_counts", "spread_slots", "return_slots")


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, path + (key,))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from leaves(item, path + (i,))
    else:
        yield path, value


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.01 + 1e-9
    return "%sx" % value


def verify(zplan, path):
    return subprocess.run([zplan, "verify", path], capture_output=True, text=True)


def mutate(zplan, plan, folder, rng, count):
    """Returns (passed, failed)."""
    places = [p for p, value in leaves(plan) if p[0] not in FREE and value is not None]
    passed = failed = 0
    for path in rng.sample(places, min(count, len(places))):
        copy_of = copy.deepcopy(plan)
        at = copy_of
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = changed(at[path[-1]])
        name = os.path.join(folder, "changed.json")
        with open(name, "w") as file:
            json.dump(copy_of, file)
        result = verify(zplan, name)
        if result.returncode == 1 and any(line.startswith("error[") for line in result.stderr.splitlines()):  # after warnings
            passed += 1
        else:
            failed += 1
            print("not found: %s (exit %d) %s" % ("/".join(map(str, path)), result.returncode, result.stderr[:200]))
    return passed, failed


def without_exchange(plan, segment, procedure, number):
    """Whoever read what the step makes reads what it was made of."""
    less = copy.deepcopy(plan)
    steps = less["program"]["segments"][segment][procedure]["steps"]
    gone = steps.pop(number)
    for step in steps:
        step["in"] = [gone["in"][0] if b == gone["out"][0] else b for b in step.get("in", [])]
    return less


def edit_exchanges(zplan, plan, folder):
    """Every exchange of a context or expert group left out, one of heads on another number of positions, one of sorted rows with less room. Returns
    (passed, failed)."""
    edited = []
    for s, segment in enumerate(plan["program"]["segments"]):
        for procedure in ("forward", "backward"):
            for number, step in enumerate(segment[procedure]["steps"]):
                if step.get("op") not in EXCHANGES or (step["op"].endswith("_slots") and len(step["in"]) < 2):
                    continue
                edited.append(("%s without %s" % (procedure, step["op"]), without_exchange(plan, s, procedure, number)))
                if step["op"] == "spread_heads":
                    other = copy.deepcopy(plan)
                    other["program"]["segments"][s][procedure]["buffers"][step["in"][0]]["rows"] *= 2
                    edited.append(("%s: %s of twice the positions" % (procedure, step["op"]), other))
                if step["op"] == "spread_slots":
                    other = copy.deepcopy(plan)
                    room = other["program"]["segments"][s][procedure]["buffers"][step["out"][0]]
                    room["bytes"] -= room["bytes"] // room["rows"]
                    room["rows"] -= 1
                    edited.append(("%s: %s with less room" % (procedure, step["op"]), other))
    passed = 0
    for what, other in edited:
        name = os.path.join(folder, "exchange.json")
        with open(name, "w") as file:
            json.dump(other, file)
        result = verify(zplan, name)
        found = result.returncode == 1 and "derived again" not in result.stderr.split("\n")[0]
        passed += found
        if not found:
            print("not found: %s (exit %d) %s" % (what, result.returncode, result.stderr[:200]))
    return passed, len(edited) - passed + (not edited)


def main(argv):
    count = 25
    if len(argv) > 2 and argv[1] == "--mutations":
        count = int(argv[2])
        del argv[1:3]
    zplan = argv[1] if len(argv) > 1 else os.path.join(ROOT, "build", "release", "zplan")
    rng = random.Random(os.environ.get("ZPLAN_TURN", "1"))
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in PLANS:
            name = os.path.join(folder, "plan.json")
            made = subprocess.run([zplan, os.path.join(ROOT, case[0]), *case[1:], "-o", name], capture_output=True, text=True)
            if made.returncode != 0 or verify(zplan, name).returncode != 0:
                print("%s: no sound plan: %s" % (" ".join(case), made.stderr))
                failed += 1
                continue
            passed += 1
            with open(name) as file:
                plan = json.load(file)
            more, missed = mutate(zplan, plan, folder, rng, count)
            passed += more
            failed += missed
            if case in (CONTEXT, KEYS, ROUTED):
                more, missed = edit_exchanges(zplan, plan, folder)
                passed += more
                failed += missed
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
