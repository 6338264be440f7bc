#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every example stands alone: copied to an empty folder it is checked, and small ones are planned; what it says where its data are missing
is a command that works."""
import glob
import json
import os
import re
import shlex
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

EXAMPLES = os.path.join(harness.ROOT, "examples")
PLANNED = ("gpt_tiny", "gpt_tiny_gpu", "gpt_long", "llama_tiny", "moe_tiny", "llama_7b_lora")  # within hundredths of a second


def check_example(tally, folder, path):
    """A folder of its own: nothing alongside it that it could read."""
    name = os.path.splitext(os.path.basename(path))[0]
    home = os.path.join(folder, name)
    os.mkdir(home)
    shutil.copy(path, home)
    outcome = harness.zplan("check", name + ".dz", "--json", cwd=home)
    if not tally.check(name + " alone", outcome.status == 0 and json.loads(outcome.out)["parameters"] > 0, outcome.tail()) or name not in PLANNED:
        return
    here, there = (harness.zplan("plan", name + ".dz", "--json", cwd=where) for where in (home, os.path.dirname(path)))
    tally.check(name + ": the same plan as in its folder", here.status == 0 and here.out == there.out, here.tail())


def check_missing_data(tally, folder):
    home = os.path.join(folder, "gpt_tiny")
    outcome = harness.zplan("run", "gpt_tiny.dz", "--no-checkpoint", cwd=home)
    text = re.sub(r"\s*\n\s+", " ", outcome.err)  # helps may be folded
    tally.check("both kinds of data by one command", "zplan run gpt_tiny.dz -- --data PATH --validate PATH" in text, outcome.tail(12))
    made_up = re.search(r"zplan (run gpt_tiny\.dz(?: --set '[^']*')+)", text)
    if not tally.check("made-up data for a try", made_up, outcome.tail(12)):
        return
    outcome = harness.zplan(*shlex.split(made_up[1]), "--steps", 2, "--no-checkpoint", cwd=home)
    tally.check("which train", outcome.status == 0 and "step 2" in outcome.out + outcome.err, outcome.tail())


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        paths = sorted(glob.glob(os.path.join(EXAMPLES, "*.dz")) + glob.glob(os.path.join(EXAMPLES, "capacity", "*.dz")))
        tally.check("examples", len(paths) > 30, "%d" % len(paths))
        for path in paths:
            check_example(tally, folder, path)
        check_missing_data(tally, folder)
    return tally.finish()


sys.exit(main())
