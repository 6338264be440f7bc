#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libzplan: its answers are the command's, an error is a value, calls share nothing, and nothing else is visible of it.

usage: library.py
"""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

BUILD = os.path.dirname(harness.ZPLAN)
LIBRARY = os.path.join(BUILD, "libzplan.so")
CALLS = os.path.join(BUILD, "tests", "library_calls")
EXAMPLES = os.path.join(harness.ROOT, "examples")
TINY, LLAMA = (os.path.join(EXAMPLES, name + ".dz") for name in ("gpt_tiny", "llama_tiny"))
# Those that plan within a second take turns; the two above are always among them.
QUICK = ("bert_squad", "gpt2", "gpt_long", "gpt_tiny_gpu", "mixer_b16", "moe_tiny", "qwen3_0_6b", "uvit_tiny", "vit_b16", "vit_tiny")
BAD = {"text": "model x { banana }\n", "empty": "", "key": "model m { sequence = 8 }\ntrain { bananas = 3 }\n", "deep": "let a = " + "(" * 3000 + "\n",
       "bytes": "\u00e9\u4e00 model \"\n"}


def call(*words):
    return harness.run([CALLS, "call", *words])


def check_same(tally, what, words, verb=None):
    """The words of a call, and those of the command."""
    want, got = harness.run([harness.ZPLAN, verb or words[0], *words[1:], "--json"]), call(*words)
    same = got.out == want.out and got.status == want.status and got.err == want.err
    tally.check(what, same, "status %d, not %d\n%s" % (got.status, want.status, got.tail()))


def check_verbs(tally, folder):
    plan = os.path.join(folder, "p.json")
    harness.run([harness.ZPLAN, TINY, "--gpus", "4", "-o", plan])
    check_same(tally, "parse is check", ["parse", TINY], "check")
    for verb in ("verify", "report", "plan", "explain"):
        check_same(tally, verb + " of a plan file", [verb, plan])
    check_same(tally, "sizes", ["plan", TINY, "--gpus", "1..4"])
    check_same(tally, "compare", ["compare", plan, TINY])
    for word in ("zero", "gpus", "run"):
        check_same(tally, "the word " + word, ["explain", word])
    done = call("run", TINY)
    tally.check("a verb of the command alone", done.status == 2 and "libzplan has no `run`, but models, machines, plan, check, report," in done.out, done.tail())
    check_same(tally, "no plan fits", ["plan", TINY, "--device-memory", "2MiB"])
    check_same(tally, "wrong words", ["plan", TINY, "--banana"])
    check_same(tally, "a file that is not there", ["plan", os.path.join(folder, "none.dz")])
    check_same(tally, "a plan file that is none", ["verify", os.path.join(folder, "none.json")])
    with open(plan, encoding="utf-8") as file:
        edited = json.load(file)
    edited["estimate"]["step_s"] *= 2
    with open(plan, "w", encoding="utf-8") as file:
        json.dump(edited, file)
    check_same(tally, "an edited plan file", ["verify", plan])


def check_bad(tally, folder):
    for name, text in BAD.items():
        path = os.path.join(folder, name + ".dz")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        check_same(tally, "bad text: " + name, ["plan", path])


def check_symbols(tally):
    shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout.split("\n")
    names = set(line.split()[2].split("@")[0] for line in shown if len(line.split()) == 3)
    with open(os.path.join(harness.ROOT, "driver/library/include/zplan.h"), encoding="utf-8") as file:
        declared = set(re.findall(r"ZPLAN_API [^;]*?(zplan_\w+)\(", file.read()))
    tally.check("the header's functions are visible, and no others", declared and names - {"ZPLAN_1"} == declared, " ".join(names ^ declared))
    needed = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    libraries = set(re.findall(r"NEEDED.*\[(?:lib)?([a-z]+)", needed))
    tally.check("it needs Jansson and the C library", libraries <= {"jansson", "m", "c", "ld"}, " ".join(libraries))
    tally.check("its name has the version of its interface", "libzplan.so.1]" in needed)


def check_example(tally, folder):
    """As a user compiles it, with the words of its own comment, against the installed copy."""
    prefix = os.path.join(folder, "prefix")
    for name, place in ((LIBRARY, "lib/libzplan.so.1"), (os.path.join(harness.ROOT, "driver/library/include/zplan.h"), "include/zplan.h")):
        os.makedirs(os.path.dirname(os.path.join(prefix, place)), exist_ok=True)
        os.symlink(os.path.realpath(name), os.path.join(prefix, place))
    os.symlink("libzplan.so.1", os.path.join(prefix, "lib/libzplan.so"))
    binary = os.path.join(folder, "plan_it")
    words = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", os.path.join(EXAMPLES, "library.c"), "-I" + prefix + "/include", "-L" + prefix + "/lib",
             "-lzplan", "-ljansson", "-Wl,-rpath," + prefix + "/lib", "-o", binary]
    done = harness.run(words)
    if not tally.check("the example compiles", done.status == 0, done.tail()):
        return
    done = harness.run([binary, TINY, "--gpus", "4"])
    plan = json.loads(harness.zplan("plan", TINY, "--gpus", "4", "--json").out)
    tally.check("the example prints the plan", done.status == 0 and "%.6g s a step" % plan["estimate"]["step_s"] in done.out, done.tail())
    done = harness.run([binary, os.path.join(folder, "text.dz")])
    tally.check("and where an error is", done.status == 1 and "text.dz:1:18: error: expected" in done.out and not done.err, done.out + done.err)


def check_guide(tally, folder):
    """The first program of the guide, in a folder that has its model."""
    with open(os.path.join(harness.ROOT, "docs/guide/library.md"), encoding="utf-8") as file:
        program = re.search(r"^```c\n(.*?)^```", file.read(), re.M | re.S)[1]
    source, binary = os.path.join(folder, "guide.c"), os.path.join(folder, "guide")
    with open(source, "w", encoding="utf-8") as file:
        file.write(program)
    done = harness.run(["cc", "-Wall", "-Werror", source, "-I" + folder + "/prefix/include", LIBRARY, "-Wl,-rpath," + BUILD, "-o", binary])
    if tally.check("the guide's program compiles", done.status == 0, done.tail()):
        plan = harness.zplan("plan", "gpt_tiny.dz", "--gpus", "4", "--json", cwd=EXAMPLES)
        tally.check("and prints the plan", harness.run([binary], cwd=EXAMPLES).out == plan.out + "\n")


def check_program(tally, *words):
    done = harness.run([CALLS, *words])
    lines = [line for line in done.out.splitlines() if line.startswith(("ok ", "FAIL "))]
    for line in lines:
        tally.check(line.split(" ", 1)[1], line.startswith("ok "), done.tail(12))
    tally.check(words[0] + " comes to its end", lines and done.status == 0, done.tail(12))


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with tempfile.TemporaryDirectory() as folder:
        for name in [n for i, n in enumerate(QUICK) if harness.my_turn(i)]:
            check_same(tally, "plan of %s.dz" % name, ["plan", os.path.join(EXAMPLES, name + ".dz")])
        check_verbs(tally, folder)
        check_bad(tally, folder)
        check_symbols(tally)
        check_example(tally, folder)
        check_guide(tally, folder)
    check_program(tally, "together", TINY, LLAMA)
    check_program(tally, "memory", TINY)
    check_program(tally, "host", TINY)
    check_program(tally, "leave", os.path.join(EXAMPLES, "bert.dz"))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
