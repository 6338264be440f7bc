#!/usr/bin/env python3
"""Measures this machine, then runs CPU plans of one and two ranks from one to 124 million parameters and prints predicted beside
measured step times, the median error, and Kendall's tau of the order.

    cpu_plans.py ZPLAN TEXT

Called by cpu_plans.sh. TEXT: a text file to train on. On a busy machine the figures mean nothing: the load is printed.
"""
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TINY = os.path.abspath(os.path.join(HERE, "..", "..", "examples", "gpt_tiny.dz"))
MIDDLE = ["--set", "model.d=384", "--set", "model.layers=6", "--set", "model.heads=6", "--set", "batch=8"]
GPT2 = os.path.join(HERE, "gpt2_bench.dz")
# name, file, ranks, plans, steps, options
CASES = [("gpt_tiny", TINY, 1, 2, 30, []), ("gpt_tiny", TINY, 2, 4, 30, []),
         ("11M", TINY, 1, 1, 20, MIDDLE), ("11M", TINY, 2, 3, 20, MIDDLE),
         ("gpt2 124M", GPT2, 1, 1, 6, []), ("gpt2 124M", GPT2, 2, 3, 6, [])]


def load():
    with open("/proc/loadavg", encoding="ascii") as file:
        return " ".join(file.read().split()[:3])


def bench(zplan, folder, text, case):
    """[(predicted s, measured s, words)] of the case's plans."""
    name, path, ranks, plans, steps, options = case
    command = [zplan, "bench", path, "--ranks", str(ranks), "--top", str(plans), "--steps", str(steps), "--json",
               "--calibration", "calibration.json"] + options
    if path == TINY:
        command += ["--set", 'train.data=text("%s")' % os.path.abspath(text)]
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                         cwd=folder)
    if out.returncode:
        sys.exit("%s failed:\n%s" % (" ".join(command), out.stderr[-2000:]))
    rows = []
    for p in json.loads(out.stdout)["plans"][:plans]:
        words = "%-10s %d x %d x %d  zero %d  micro-batch %d  recompute %s" % (
            name, p["tensor"], p["pipeline"], p["data"], p["zero"], p["microbatch"], p["recompute"])
        rows.append((p["predicted_s"], p["measured_s"], words))
    return rows


def kendall_tau(rows):
    agree = disagree = 0
    for a, b in itertools.combinations(rows, 2):
        sign = (a[0] - b[0]) * (a[1] - b[1])
        agree += sign > 0
        disagree += sign < 0
    return (agree - disagree) / (agree + disagree)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    zplan = os.path.abspath(sys.argv[1])
    rows = []
    print("load %s" % load())
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([zplan, "calibrate", "-o", "calibration.json"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, cwd=folder)
        for case in CASES:
            for row in bench(zplan, folder, sys.argv[2], case):
                rows.append(row)
                print("%-66s predicted %8.1f  measured %8.1f ms  %+5.0f %%" % (
                    row[2], 1e3 * row[0], 1e3 * row[1], 100 * (row[0] / row[1] - 1)), flush=True)
    errors = [abs(p / m - 1) for p, m, _ in rows]
    print("%d plans: median error %.1f %%, largest %.0f %%, Kendall tau %.2f, load %s" % (
        len(rows), 100 * statistics.median(errors), 100 * max(errors), kendall_tau(rows), load()))


if __name__ == "__main__":
    main()
