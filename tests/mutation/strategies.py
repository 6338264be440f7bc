#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is a strategy one file and one row of a list? Takes each of them away in a copy of the tree, builds zplan, and asks for plans.

    strategies.py [--into FOLDER]

Without its file in planner/program/moves and its row in strategy.h the compiler must build; what needs the strategy must be refused
with the reason; and plans that do not need it must be the same to the byte. Ends with `N passed, N failed`.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402

MOVES = os.path.join("planner", "program", "moves")
BASE = ("capacity/3d_1t.dz", "--plan", "free", "--gpus", "64", "--set", "model.layers=2")

def on_hosts(*states):
    words = BASE
    for state in ("optimizer", "gradients", "params", "activations"):
        words += ("--set", "offload[%s]=%s" % (state, '"cpu"' if state in states else '"none"'))
    return words


HERE = on_hosts()
# File, row, a plan that needs it, what the refusal says.
STRATEGIES = (
    ("gradients_offloaded.c", "zp_gradients_offloaded", on_hosts("optimizer", "gradients") + ("--set", "zero=2"), "gradients off the device"),
    ("params_offloaded.c", "zp_params_offloaded", on_hosts("optimizer", "gradients", "params") + ("--set", "zero=3"), "parameters off the device"),
    ("optimizer_offloaded.c", "zp_optimizer_offloaded", on_hosts("optimizer"), "optimizer state off the device"),
    ("saved_offloaded.c", "zp_saved_offloaded_strategy", on_hosts("activations"), "saved values off the device"),
    ("one_bit.c", "zp_one_bit_exchange", HERE + ("--set", "zero=0", "--set", "compress=true"), "1-bit gradients"),
    ("zero_gather.c", "zp_zero_gather", HERE + ("--set", "zero=3", "--set", "data>1"), "parameters for ZeRO 3"),
    ("hpz.c", "zp_hpz_copy", ("gpt_tiny.dz", "--ranks", "4", "--set", "plan.data=4", "--set", "zero=3", "--set", "hpz=2"), "a second copy of the parameters"),
    ("weights_back.c", "zp_weights_back", HERE + ("--set", "zero=1", "--set", "data>1"), "updated weights back"),
    ("messages.c", "zp_pipeline_messages", HERE + ("--set", "pipeline=2"), "messages between stages"),
)
OTHERS = {row: HERE + ("--set", "zero=2", "--set", "pipeline=1", "--set", "data>1") for _, row, _, _ in STRATEGIES}
OTHERS["zp_weights_back"] = HERE + ("--set", "zero=3", "--set", "pipeline=1", "--set", "data>1")


def copy_tree(into):
    shutil.rmtree(into, ignore_errors=True)
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=harness.ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\n")):
        if os.path.isfile(os.path.join(harness.ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(into, name)), exist_ok=True)
            shutil.copy2(os.path.join(harness.ROOT, name), os.path.join(into, name))


def build(tree):
    done = subprocess.run("cmake --preset release && cmake --build --preset release --target zplan", shell=True, cwd=tree, capture_output=True, text=True)
    return done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def plan(tree, words):
    file = os.path.join(tree, "examples", words[0])
    done = harness.run((os.path.join(tree, "build", "release", "zplan"), "plan", file) + tuple(words[1:]) + ("--json",))
    return done.status, done.out, done.err


class Without:
    """The tree without a strategy."""

    def __init__(self, tree, file, row):
        self.file = os.path.join(tree, MOVES, file)
        self.list = os.path.join(tree, MOVES, "strategy.h")
        self.row = row

    def __enter__(self):
        os.rename(self.file, self.file + ".gone")
        with open(self.list, encoding="utf-8") as text:
            self.text = text.read()
        less = re.sub(r"( *\\)?\n  X\(%s, [^\n]*?\)(?=( *\\)?\n)" % self.row, "", self.text)
        if self.text.count("\n") - less.count("\n") != 1:
            raise SystemExit("%s is not one row of strategy.h" % self.row)
        with open(self.list, "w", encoding="utf-8") as text:
            text.write(less)

    def __exit__(self, *_):
        os.rename(self.file + ".gone", self.file)
        with open(self.list, "w", encoding="utf-8") as text:
            text.write(self.text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", default=os.path.join(harness.ROOT, "build", "strategies"))
    tree = parser.parse_args().into
    checks = harness.Tally()
    copy_tree(tree)
    ok, said = build(tree)
    if not ok:
        raise SystemExit(said)
    wanted = {}
    for _, row, words, _ in STRATEGIES:
        status, _, err = plan(tree, words)
        checks.check(row + ": with it such a plan is found", status == 0, err[-300:])
        wanted[row] = plan(tree, OTHERS[row])
        checks.check(row + ": a plan that does not need it is found", wanted[row][0] == 0, wanted[row][2][-300:])
    for file, row, words, text in STRATEGIES:
        with Without(tree, file, row):
            ok, said = build(tree)
            checks.check(row + ": the tree builds without it", ok, said)
            if not ok:
                continue
            status, out, err = plan(tree, words)
            checks.check("%s: refused, for %s" % (row, text), status in (1, 3) and text in out + err, "%d %s" % (status, (out + err)[-400:]))
            checks.check(row + ": plans that do not need it are the same", plan(tree, OTHERS[row]) == wanted[row])
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
