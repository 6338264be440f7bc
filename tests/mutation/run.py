#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of differentiation, sharding, layout and schedules: which small faults do the tests see?

    run.py [--count N] [--seed N] [--jobs N] [--into FOLDER] [--only FILE-PREFIX] [--slowest SECONDS] [--again REPORT]

Puts N mutants (default 300) into a copy of the tree, builds that once, and runs for each mutant the tests that reach it, the quickest
first, until one fails: unit tests of the compiler, some trainings. Prints the share that was killed, file by file, and
every survivor; FOLDER/report.json has all of it. Needs libclang for Python (Debian: python3-clang-14, with /usr/bin/python3).

--again takes what the run of REPORT killed as killed and tries its survivors with the tests of now; the mutants must be the same (same
code, count and seed).

Survivors that are no faults, or that no test can see, are explained in tests/mutation/README.md.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import random
import shutil
import subprocess
import sys
import time

import instrument

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FILES = ("codegen/rowprog/build.c", "codegen/rowprog/grad.c", "codegen/rowprog/fused.c", "codegen/rowprog/expand.c", "codegen/rowprog/legalize.c",
         "frontend/graph/differentiate.c", "frontend/graph/diff_*.c", "frontend/graph/fuse.c", "frontend/spec/cluster.c",
         "planner/shard/*.c", "planner/program/lower.c", "planner/program/layout.c", "planner/program/regions.c", "planner/program/selective.c",
         "planner/program/split.c", "planner/program/steps.c", "planner/program/storage.c", "planner/program/moves/*.c", "planner/schedule/*.c")
TRAININGS = (("models", "python3 tests/fuzz/models.py --count 16 --seed 3 --jobs 1"), ("gradients", "python3 tests/diff/gradients.py"),
             ("recompute", "python3 tests/diff/recompute.py --jobs 1"), ("examples", "python3 tests/diff/examples.py"),
             ("tamper", "python3 tests/verify/tamper.py"))
PATIENCE = 10  # times as long as without a mutant


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--into", default=os.path.join(ROOT, "build", "mutation"))
    parser.add_argument("--only", default="")
    parser.add_argument("--slowest", type=float, default=10, help="seconds: tests that take longer are left out")
    parser.add_argument("--again", metavar="REPORT", help="report.json of an earlier run: only its survivors")
    return parser.parse_args()


# ---- the tree ----

def copy_tree(into):
    tree = os.path.join(into, "tree")
    shutil.rmtree(tree, ignore_errors=True)
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        if os.path.isfile(os.path.join(ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(tree, name)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), os.path.join(tree, name))
    return tree


def configure(tree):
    subprocess.run(["cmake", "-S", tree, "-B", os.path.join(tree, "build", "release"), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
                    "-DCMAKE_C_FLAGS=-O1 -w"], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(tree, "build", "release", "compile_commands.json"), encoding="utf-8") as file:
        return {entry["file"]: entry["command"].split() for entry in json.load(file)}


def compiles(tree, path, command):
    words = command[:command.index("-o")] + ["-fsyntax-only", "-w", path]
    done = subprocess.run(words, cwd=os.path.join(tree, "build", "release"), capture_output=True, text=True)
    return done.returncode == 0


def put_in(tree, commands, options):
    """Chooses, numbers and writes the mutants; [(file, place)]."""
    import clang.cindex
    index, rng, all_places = clang.cindex.Index.create(), random.Random(options.seed), {}
    first = '#include "%s"\n#line 1\n' % os.path.join(tree, "tests", "mutation", "mutant.h")
    names = sorted({os.path.relpath(p, tree) for pattern in FILES for p in glob.glob(os.path.join(tree, pattern))})
    for name in names:
        path = os.path.join(tree, name)
        if name.startswith(options.only) and path in commands:
            words = [w for w in commands[path] if w.startswith(("-I", "-D", "-std", "-isystem"))]
            text, places = instrument.find_places(index, path, words)
            all_places[name] = (text, places)
    total, mutants = sum(len(places) for _, places in all_places.values()), []
    for name, (text, places) in all_places.items():
        share = round(options.count * len(places) / total)
        chosen = instrument.choose(rng, places, max(1, share) if places else 0)
        good = []
        for place in chosen:  # a place that does not compile is in a constant after all
            place.number = len(mutants) + len(good)
            path = os.path.join(tree, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(first + instrument.instrument(text, good + [place]))
            if compiles(tree, path, commands[path]):
                good.append(place)
        with open(os.path.join(tree, name), "w", encoding="utf-8") as file:
            file.write(first + instrument.instrument(text, good))
        mutants += [(name, place) for place in good]
    return mutants


# ---- running ----

class Runner:
    def __init__(self, tree, into, count, slowest):
        self.tree, self.into, self.count, self.slowest = tree, into, count, slowest
        self.tests = {}  # name: (command, seconds, reached)

    def start(self, command, limit, **env):
        """True: it passed. The command has a session of its own, which ends with it."""
        process = subprocess.Popen(["sh", "-c", "ulimit -v 16000000; exec " + command], cwd=self.tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True, env=dict(os.environ, **env))
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            out = None
        try:
            os.killpg(process.pid, 9)
        except OSError:
            pass
        process.wait()
        return out is not None and process.returncode == 0

    def measure(self, name, command):
        seen = os.path.join(self.into, "seen-" + name)
        with open(seen, "wb") as file:
            file.write(bytes(self.count))
        began = time.monotonic()
        good = self.start(command, 900, ZP_MUTANT_SEEN=seen)
        seconds = time.monotonic() - began
        with open(seen, "rb") as file:
            reached = {i for i, byte in enumerate(file.read()) if byte}
        if not good:
            print("left out, fails without a mutant: %s" % name, flush=True)
        elif reached and seconds <= self.slowest:
            self.tests[name] = (command, seconds, reached)

    def kill(self, number):
        """The first test that fails with the mutant; None."""
        for name, (command, seconds, reached) in sorted(self.tests.items(), key=lambda item: item[1][1]):
            if number in reached and not self.start(command, 10 + PATIENCE * seconds, ZP_MUTANT=str(number)):
                return name
        return None


def earlier_killers(report, mutants):
    """Who killed each mutant in an earlier run; None: nobody."""
    with open(report, encoding="utf-8") as file:
        rows = json.load(file)
    if [(row["file"], row["line"], row["what"]) for row in rows] != [(name, place.line, place.what) for name, place in mutants]:
        sys.exit("run.py: %s is about other mutants: the code, --count or --seed differ" % report)
    return [row["killed_by"] for row in rows]


def main():
    options = arguments()
    tree = copy_tree(options.into)
    commands = configure(tree)
    mutants = put_in(tree, commands, options)
    print("%d mutants in %d files" % (len(mutants), len({name for name, _ in mutants})), flush=True)
    before = earlier_killers(options.again, mutants) if options.again else [None] * len(mutants)
    subprocess.run(["cmake", "--build", os.path.join(tree, "build", "release")], check=True, stdout=subprocess.DEVNULL)
    runner = Runner(tree, options.into, len(mutants), options.slowest)
    tests = [(os.path.basename(p), p) for p in sorted(glob.glob(os.path.join(tree, "build", "release", "tests", "test_*"))) if os.access(p, os.X_OK)]
    tests = [t for t in tests if not t[0].startswith(("test_rt_", "test_kernels_"))] + list(TRAININGS)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda t: runner.measure(*t), tests))
        print("%d tests reach a mutant; %.0f s" % (len(runner.tests), sum(t[1] for t in runner.tests.values())), flush=True)
        killers = list(pool.map(lambda i: before[i] or runner.kill(i), range(len(mutants))))
    return report(options, runner, mutants, killers)


def report(options, runner, mutants, killers):
    reached = set().union(*(t[2] for t in runner.tests.values())) if runner.tests else set()
    rows = [{"number": i, "file": name, "line": place.line, "what": place.what, "killed_by": killers[i], "reached": i in reached}
            for i, (name, place) in enumerate(mutants)]
    with open(os.path.join(options.into, "report.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    for name in sorted({row["file"] for row in rows}):
        mine = [row for row in rows if row["file"] == name]
        print("%-40s %3d of %3d killed" % (name, sum(bool(row["killed_by"]) for row in mine), len(mine)))
    for row in rows:
        if not row["killed_by"]:
            print("survives: %s:%d: %s%s" % (row["file"], row["line"], row["what"], "" if row["reached"] else ", not reached"))
    killed = sum(bool(row["killed_by"]) for row in rows)
    print("%d of %d mutants killed (%.1f %%), seed %d" % (killed, len(rows), 100 * killed / len(rows), options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
