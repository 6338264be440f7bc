#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each prover of planner/cuts buys: searches with all of them, and without one after the other, over models of search_speed.sh
and random ones of tests/fuzz/plans.py. Prints a Markdown table: gaps of what is searched, and of all plans, and CPU
seconds.

    cut_provers.py [--random N] [--seed S]
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fuzz"))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import plans  # noqa: E402

TOOL = os.path.join(os.path.dirname(harness.ZPLAN), "tests", "cut_provers")
EXAMPLE = os.path.join(harness.ROOT, "examples", "gpt1t.dz")
PLAIN = ("zero<=1", 'schedule="1f1b"', "sequence=false")
PATIENCE = 120  # seconds for all searches of one model


def bench_models():
    for gpus in (800, 1024, 4096):
        yield EXAMPLE, gpus, PLAIN + ('cut="layer"',)
        yield EXAMPLE, gpus, PLAIN
        yield EXAMPLE, gpus, ()
    for schedule in ("gpipe", "zb_h1", "zb_h2", "interleaved", "zb_v", "dualpipev"):
        yield EXAMPLE, 480, ("model.layers=26", 'schedule="%s"' % schedule)


def random_models(count, seed, folder):
    rng = random.Random(seed)
    for number in range(count):
        x = plans.draw_instance(rng)
        path = os.path.join(folder, "%d.dz" % number)
        with open(path, "w") as f:
            f.write(plans.text_of(x))
        yield path, x["gpus"], tuple(x["settings"])


def measure(path, gpus, settings):
    """[(left out, feasible, best, bound of what is searched, bound of all, seconds)]; None: it took too long."""
    try:
        done = subprocess.run([TOOL, path, str(gpus), *settings], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        sys.exit(done.stderr)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [(row[0], row[1] == "1") + tuple(float(number) for number in row[2:]) for row in rows]


def add(table, rows):
    whole = rows[0]
    for name, feasible, best, searched, bound, seconds in rows:
        t = table.setdefault(name, dict(models=0, open=0, gaps=0.0, worst=0.0, all=0.0, slower=0, seconds=0.0))
        t["seconds"] += seconds
        if not feasible:
            continue
        gap = (best - searched) / best
        t["models"] += 1
        t["open"] += gap > 2e-9
        t["gaps"] += gap
        t["worst"] = max(t["worst"], gap)
        t["all"] += (best - bound) / best
        t["slower"] += best > whole[2] * (1 + 2e-9)


def show(title, table, left_out):
    print("%s: %d feasible models, %d left out (took longer than %d s)\n" % (title, table["-"]["models"], left_out, PATIENCE))
    print("| without | with a gap | mean gap | largest gap | mean gap of all plans | slower plan | CPU s |\n|---|---|---|---|---|---|---|")
    for name, t in table.items():
        mean = 100 / max(1, t["models"])
        print("| %s | %d | %.4f %% | %.3f %% | %.4f %% | %d | %.1f |" % (name, t["open"], mean * t["gaps"], 100 * t["worst"],
                                                                         mean * t["all"], t["slower"], t["seconds"]))
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for title, models in (("bench", bench_models()), ("random", random_models(args.random, args.seed, folder))):
            table, left_out = {}, 0
            for model in models:
                rows = measure(*model)
                if rows:
                    add(table, rows)
                left_out += not rows
            show(title, table, left_out)


if __name__ == "__main__":
    main()
