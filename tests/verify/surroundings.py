#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What surrounds a run: the generated folder and `make` in it, where a plan's data is, the machine's cores and memory."""
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

TINY = os.path.join(harness.ROOT, "tests", "fault", "tiny.dz")
ERROR, MEMORY = 1, 8


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def make(folder, *words):
    return harness.run(["make", "-C", folder, *words])


def check_make(tally, folder):
    """The binary is deleted and made again, where it was and after the folder has moved; only zplan.mk knows this machine."""
    for ranks in (1, 2):
        tree, moved = os.path.join(folder, "tree%d" % ranks), os.path.join(folder, "moved", "tree%d" % ranks)
        outcome = harness.zplan("build", "tests/fault/tiny.dz", "--ranks", ranks, "-o", tree, cwd=harness.ROOT)
        if not tally.check("builds for %d ranks" % ranks, outcome.status == 0, outcome.tail()):
            continue
        for name in ("trainer.c", "Makefile", "plan.json", "rows.txt"):
            text = read(os.path.join(tree, name))
            tally.check("%s has no absolute path" % name, not any(mark + harness.ROOT in text for mark in '"= '))
        os.remove(os.path.join(tree, "trainer"))
        outcome = make(tree)
        tally.check("make", outcome.status == 0, outcome.tail())
        os.makedirs(os.path.dirname(moved), exist_ok=True)
        shutil.move(tree, moved)
        trainer = os.path.join(moved, "trainer")
        os.remove(trainer)
        outcome = make(moved)
        if tally.check("make after the folder has moved", outcome.status == 0, outcome.tail()) and ranks == 1:
            outcome = harness.run([trainer, "--steps", "2", "--data", TINY, "--checkpoint", os.path.join(folder, "ck")])
            tally.check("the trainer runs", outcome.status == 0 and "step 2/2" in outcome.out, outcome.tail())
    os.remove(os.path.join(moved, "zplan.mk"))
    os.remove(trainer)
    outcome = make(moved)
    tally.check("without zplan.mk it says what to do", outcome.status == 2 and "ZPLAN_DIR=" in outcome.err, outcome.tail())
    build = os.path.dirname(harness.ZPLAN)
    flags = ["ZPLAN_FLAGS=-fsanitize=address,undefined"] if b"__asan_init" in open(harness.ZPLAN, "rb").read() else []
    outcome = make(moved, "ZPLAN_DIR=" + harness.ROOT, "ZPLAN_BUILD=" + build, *flags)
    tally.check("and does it", outcome.status == 0 and os.path.exists(trainer), outcome.tail())


def check_plan_data(tally, folder):
    """Data that a model names relative to itself is found from its plan: alongside the model, alongside the plan, after a move."""
    home = os.path.join(folder, "home")
    text = read(TINY).replace('text("tiny.dz"', 'text("text.txt"').replace('use "', 'use "%s/' % os.path.dirname(TINY))
    model = write(os.path.join(home, "models", "m.dz"), text)
    data = write(os.path.join(home, "models", "text.txt"), "to be or not to be, " * 100)
    plan = os.path.join(home, "plans", "p.json")
    os.makedirs(os.path.dirname(plan))
    outcome = harness.zplan(model, "--ranks", 1, "-o", plan)
    tally.check("planned", outcome.status == 0, outcome.tail())
    tally.check("where the model stands", json.loads(read(plan)).get("model_folder") == "../models", read(plan)[-300:])

    def run(name, path, *words):
        outcome = harness.zplan("run", path, "--steps", 1, "-o", os.path.join(folder, "plan-tree"), "--overwrite", "--", "--checkpoint",
                                os.path.join(folder, "plan-ck"), *words, cwd=folder)
        return tally.check(name, outcome.status == 0, outcome.tail()), outcome

    run("the model from another folder", model)
    run("its plan, data alongside the model", plan)
    run("the plan of the generated folder", os.path.join(folder, "plan-tree", "plan.json"))
    shutil.move(data, data + ".gone")
    outcome = harness.zplan("run", model, "--steps", 1, "-o", os.path.join(folder, "nothing"))
    tally.check("a model without its data", outcome.status == ERROR and "error[Z0801]" in outcome.err and "looked for `%s`" % data in outcome.err,
                outcome.tail())
    outcome = harness.zplan("run", model, "--steps", 0, "-o", os.path.join(folder, "plan-tree"), "--", "--checkpoint", os.path.join(folder, "ck0"))
    tally.check("the initial checkpoint needs none", outcome.status == 0, outcome.tail())
    shutil.move(data + ".gone", data)
    shutil.move(home, os.path.join(folder, "away"))
    plan, data = (path.replace(home, os.path.join(folder, "away")) for path in (plan, data))
    run("moved together", plan)
    alongside = os.path.join(os.path.dirname(plan), "text.txt")
    shutil.move(data, alongside)
    run("data alongside the plan", plan)
    shutil.move(alongside, os.path.join(folder, "elsewhere.txt"))
    outcome = harness.zplan("run", plan, "--steps", 1, "-o", os.path.join(folder, "nothing"))
    tally.check("no data", outcome.status == ERROR and "error[Z0801]" in outcome.err, outcome.tail())
    for where in (data, alongside):
        tally.check("looked for " + where, "looked for `%s`" % where in outcome.err, outcome.err)
    tally.check("nothing is built", not os.path.exists(os.path.join(folder, "nothing")))
    run("data named by hand", plan, "--data", os.path.join(folder, "elsewhere.txt"))


def check_machine(tally, folder):
    """Ranks that share a core are told, and train; those that memory cannot hold are not started."""
    core = min(os.sched_getaffinity(0))
    for ranks, told in ((1, False), (2, True)):
        words = ["run", TINY, "--ranks", ranks, "--steps", 1, "-o", os.path.join(folder, "core-tree"), "--overwrite", "--",
                 "--checkpoint", os.path.join(folder, "core-ck")]
        run = subprocess.run([harness.ZPLAN, *map(str, words)], capture_output=True, text=True, timeout=harness.PATIENCE,
                             preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        tally.check("%d ranks on a core" % ranks, run.returncode == 0 and
                    ("warning[Z0706]: 2 ranks on 1 core: steps take 2 times" in run.stderr) == told, run.stderr)
    huge = write(os.path.join(folder, "huge", "huge.dz"), read(TINY).replace("memory = 8GiB", "memory = 100TB").replace('"tiny.dz"', '"%s"' % TINY).replace(
        'use "', 'use "%s/' % os.path.dirname(TINY)))
    tree = os.path.join(folder, "huge-tree")
    outcome = harness.zplan("run", huge, "--ranks", 2, "--set", "model.d=98304", "-o", tree)
    tally.check("more than memory holds", outcome.status == MEMORY and "error[Z0705]: 2 ranks of this plan take" in outcome.err, outcome.tail())
    tally.check("nothing is built for it", not os.path.exists(tree))


def check_lookahead(tally, folder):
    """Attention that sees its labels is told by whatever reads the model."""
    model = write(os.path.join(folder, "ahead", "m.dz"), read(os.path.join(harness.ROOT, "tests", "golden", "errors", "common", "tiny.dz"))
                  .replace("causal = true", "causal = false") + read(TINY)[read(TINY).index("cluster cpu"):].replace("tiny.dz", "m.dz"))
    for words in (("check", model), (model, "--ranks", 1), ("build", model, "-o", os.path.join(folder, "ahead-tree"))):
        outcome = harness.zplan(*words)
        tally.check("zplan %s warns" % words[0], outcome.status == 0 and outcome.err.count("warning[Z0905]") == 1, outcome.tail())
    tally.check("its page", "labels" in harness.zplan("explain", "Z0905").out)


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        for check in (check_make, check_plan_data, check_machine, check_lookahead):
            check(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
