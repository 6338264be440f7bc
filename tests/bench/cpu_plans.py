#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs CPU plans of one and two ranks from one to 124 million parameters and prints predicted alongside measured step times, the
median error, and Kendall's tau of the order.

    cpu_plans.py ZPLAN TEXT [GROUP...]

Called by cpu_plans.sh. TEXT: a text file to train on. GROUP: numbers of the groups of plans to run, 1 to 6, all when none is given.
The machine is measured (zplan calibrate) right before every group, because shared machines drift by a fifth between minutes. How
far two rates of those measurements lay apart is printed: errors below that are no model's. On a busy machine the figures mean
nothing: the load is printed.
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
DRIFT = ["gemm_f32_t1_nt_1024x1024x1024", "update_bytes_per_s"]  # one product, one stream
CALIBRATE_S = 15


def load():
    with open("/proc/loadavg", encoding="ascii") as file:
        return " ".join(file.read().split()[:3])


def bench(zplan, folder, text, case):
    """[(predicted s, measured s, words)] of the case's plans."""
    name, path, ranks, plans, steps, options = case
    command = [zplan, "bench", path, "--ranks", str(ranks), "--top", str(plans - 1), "--steps", str(steps), "--json",
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


def calibrate(zplan, folder):
    """Measures the machine; the rates of DRIFT that it found."""
    subprocess.run([zplan, "calibrate", "-t", str(CALIBRATE_S), "-o", "calibration.json"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    with open(os.path.join(folder, "calibration.json"), encoding="utf-8") as file:
        rates = {row["name"]: row["value"] for row in json.load(file)["rows"]}
    return {name: rates[name] for name in DRIFT if name in rates}


def print_drift(measured):
    for name in DRIFT:
        rates = [m[name] for m in measured if name in m]
        if len(rates) > 1:
            print("drift of %s between %d calibrations: %.3g to %.3g, %.0f %%" % (
                name, len(rates), min(rates), max(rates), 100 * (max(rates) / min(rates) - 1)))


def kendall_tau(rows):
    if len(rows) < 2:
        return float("nan")
    agree = disagree = 0
    for a, b in itertools.combinations(rows, 2):
        sign = (a[0] - b[0]) * (a[1] - b[1])
        agree += sign > 0
        disagree += sign < 0
    return (agree - disagree) / (agree + disagree)


def main():
    if len(sys.argv) < 3 or not all(word.isdigit() and 1 <= int(word) <= len(CASES) for word in sys.argv[3:]):
        sys.exit(__doc__)
    zplan = os.path.abspath(sys.argv[1])
    cases = [CASES[int(word) - 1] for word in sys.argv[3:]] or CASES
    rows, measured = [], []
    print("load %s" % load())
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            measured.append(calibrate(zplan, folder))
            for row in bench(zplan, folder, sys.argv[2], case):
                rows.append(row)
                print("%-66s predicted %8.1f  measured %8.1f ms  %+5.0f %%" % (
                    row[2], 1e3 * row[0], 1e3 * row[1], 100 * (row[0] / row[1] - 1)), flush=True)
    print_drift(measured)
    errors = [abs(p / m - 1) for p, m, _ in rows]
    print("%d plans: median error %.1f %%, largest %.0f %%, Kendall tau %.2f, load %s" % (
        len(rows), 100 * statistics.median(errors), 100 * max(errors), kendall_tau(rows), load()))


if __name__ == "__main__":
    main()
