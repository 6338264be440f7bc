#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/reference/plan_json.md against plan files and what writes them: every field of a file is on the page, every field of the page that is
not marked (n) is in a file, and those that are have names that the code sets; and what writes the files sets no others."""
import glob
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

PLANS = (("gpt1t.dz", "--gpus", "800"), ("gpt1t.dz", "--gpus", "8"), ("gpt_tiny.dz", "--ranks", "4"), ("moe_tiny.dz", "--ranks", "2"),
         ("llama_tiny.dz", "--ranks", "2"), ("gpt_tiny.dz", "--ranks", "2", "--set", "pipeline=2", "--set", "recompute_layers=1"),
         ("gpt_tiny.dz", "--ranks", "4", "--set", "pipeline=4", "--set", "schedule=zb_v", "--set", "zero=0"),
         ("gpt_tiny.dz", "--ranks", "3", "--set", "pipeline=3", "--set", "schedule=dualpipev"), ("capacity/offload_13b.dz",),
         ("gpt_tiny_gpu.dz", "--gpus", "4", "--for", "megatron"), ("gpt_tiny_gpu.dz", "--gpus", "4", "--for", "deepspeed"),
         ("gpt_tiny.dz", "--ranks", "2", "--set", "plan.data=2", "--set", "compress=true"), ("gpt_tiny.dz", "--ranks", "1", "--set", "loss_chunks=4"),
         ("llama_tiny.dz", "--ranks", "2", "--set", "plan.data=2", "--set", "zero=3", "--set", 'train.frozen=["embed_tokens", "*proj.weight"]'))


WRITERS = ("planner/plan/plan_write.c", "planner/plan/program_json.c")
REGIONS = ("planner/program/include/zplan/regions.def", "kernels/include/zplan/state_regions.def")  # a row's key
KINDS = "planner/program/include/zplan/kinds.h"  # a row's prefix: with it a name is set for every kind of parameters
MIXED = """use std.hw
use "%s" as g
cluster two { nodes = [2 * std.hw.dgx_a100, std.hw.dgx2] }
train { model = g.gpt_tiny()  data = synthetic(seed = 1)  batch = 48  steps = 10  optimizer = adamw(lr = 1e-3) }
"""


def fields(value, path, found):
    if isinstance(value, dict):
        for key, inner in value.items():
            below = path + "." + key if path else key
            found.add(below)
            fields(inner, below, found)
    elif isinstance(value, list):
        for inner in value:
            fields(inner, path + "[]", found)


def page():
    """{field: must it be in some file}"""
    with open(os.path.join(harness.ROOT, "docs", "reference", "plan_json.md"), encoding="utf-8") as file:
        rows = [line.split(" | ") for line in file if line.startswith("| `")]
    return {name: "*(n)*" not in row[1] for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


def last_word(field):
    return field.split(".")[-1].replace("[]", "")


def text_of(path):
    with open(os.path.join(harness.ROOT, path), encoding="utf-8") as file:
        return file.read()


def set_of_kinds():
    prefixes = re.findall(r'\[ZP_KIND_\w+\] += \{[^"}]*"(\w*)"', text_of(KINDS))
    names = [name for path in WRITERS for name in re.findall(r'zp_set_of_kind\(\w+, \w+, "([^"]+)"', text_of(path))]
    return {prefix + name for prefix in prefixes for name in names}


def check_sources(tally, known):
    """What no plan here need show is a name that the code sets; and the writers set no names that the page does not have."""
    said, sources = {last_word(name) for name in known}, ""
    for folder in ("planner", "driver", os.path.join("runtime", "include")):
        for path in glob.glob(os.path.join(harness.ROOT, folder, "**", "*.[chd]*"), recursive=True):
            if path.endswith((".c", ".h", ".def")):
                with open(path, encoding="utf-8") as file:
                    sources += file.read()
    of_kinds = set_of_kinds()
    for name, always in sorted(known.items()):
        there = '"%s"' % last_word(name) in sources or last_word(name) in of_kinds
        tally.check("in the code: " + name, always or name.endswith("*") or there)
    tally.check("names of every kind are set", len(of_kinds) > 0)
    for word in sorted(of_kinds):
        tally.check("the writers set %s" % word, word in said)
    for path in WRITERS + REGIONS:
        key = r'^(?:REGION|STATE_\w+ ?)\((?!.*NULL)[\w, ]+"([^"]+)"' if path in REGIONS else r'zp_json_set\w*\(\w+, "([^"]+)"'
        words = sorted(set(re.findall(key, text_of(path), re.MULTILINE)))
        tally.check("%s sets something" % path, len(words) > 0)
        for word in words:
            tally.check("%s sets %s" % (path, word), word in said)


def pattern(name):
    return re.compile(re.escape(name).replace(r"\*", r".+" if name.endswith("*") else r"[^.\[]+") + r"\Z")


def main():
    harness.require_zplan()
    tally, found, known = harness.Tally(), set(), page()
    with harness.Scratch() as folder:
        examples = os.path.join(harness.ROOT, "examples")
        mixed = os.path.join(folder, "mixed.dz")
        with open(mixed, "w", encoding="utf-8") as file:
            file.write(MIXED % os.path.relpath(os.path.join(examples, "gpt_tiny.dz"), folder))
        for i, (model, *words) in enumerate(PLANS + ((mixed,),)):
            path = os.path.join(folder, "%d.json" % i)
            outcome = harness.zplan("plan", os.path.join(examples, model), *words, "-o", path)
            if tally.check("%s %s is planned" % (model, " ".join(words)), os.path.exists(path), outcome.tail()):
                with open(path, encoding="utf-8") as file:
                    fields(json.load(file), "", found)
        patterns = {name: pattern(name) for name in known}
        # Alternatives, and what nearly fits, have the fields of the plan itself.
        repeated = re.compile(r"(alternatives\[\]|miss\.plan|nearest\[\]\.plan)\.(degrees\.)?")
        for field in sorted(found):
            plain = repeated.sub("", field)
            names = (field, plain, "degrees." + plain)
            tally.check("on the page: " + field, any(p.match(name) for p in patterns.values() for name in names))
        for name, always in sorted(known.items()):
            tally.check("in a file: " + name, not always or any(patterns[name].match(field) for field in found))
        check_sources(tally, known)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
