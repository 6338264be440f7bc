#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where does the cost model rank the plan that was measured to be the best?

    rank_plans.py ZPLAN [RUNS.csv] [--family nano_] [--swept SWEPT.csv | --all]

Takes the rows of a family whose source swept all plans of a (model, GPUs, batch) cell and published the best one. For every
cell: plans go through `zplan validate`; those that fit are sorted by predicted time. Prints the place of the measured best and
how much slower than our first choice it is predicted; at the end, in how many cells it is among the first five.

RUNS.csv and SWEPT.csv are by default those of tests/data. The plans are those that the sweep ran; a line also says how much
slower than the fastest of them our first choice was measured, and the place of the fastest where it is not the published best
(which was chosen by FLOP/s). With --all they are all of tensor, pipeline and data ranks, micro-batch and ZeRO 0 and 1 that the
sweep's own filters leave (huggingface/nanotron scripts/scaling_benchmarks.py, main: `batch_accum < pp - 1` and ZeRO 1 on one
data rank are skipped).

Columns of SWEPT.csv: cell (a row's id), tp, pp, dp, micro_batch, zero_stage, tokens_per_s_gpu, memory_gib; the last two are
empty where a run failed: such a plan is not ranked, and how many of these we say fit is printed.
"""
import argparse
import csv
import json
import os
import subprocess
import tempfile

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
TENSOR, PIPELINE, MICROBATCH = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32, 64)
UNKNOWN = dict(measured_tflops_per_gpu="", measured_iter_s="", measured_mem_gb="", interleave_v=1)
PLAN = ("tp", "pp", "dp", "micro_batch", "zero_stage")


def plan_id(row):
    return "plan_" + "_".join(str(row[k]) for k in PLAN)


def row_of(cell, *plan):
    row = dict(cell, seq_parallel=int(int(plan[0]) > 1), **UNKNOWN)
    row.update(zip(PLAN, plan))
    return dict(row, id=plan_id(row))


def all_plans(cell):
    gpus, batch, layers = int(cell["n_gpus"]), int(cell["global_batch"]), int(cell["layers"])
    for tensor in TENSOR:
        for pipeline in PIPELINE:
            data = gpus // (tensor * pipeline)
            if tensor * pipeline * data != gpus or pipeline > layers or batch % data:
                continue
            for microbatch in MICROBATCH:
                if batch // data % microbatch or batch // data // microbatch < pipeline - 1:
                    continue
                for zero in (0, 1) if data > 1 else (0,):
                    yield row_of(cell, tensor, pipeline, data, microbatch, zero)


def predict(zplan, cell, rows, folder):
    """(predicted seconds, plan) of the plans that fit, fastest first."""
    table = os.path.join(folder, "cell.csv")
    with open(table, "w", newline="") as out:
        writer = csv.DictWriter(out, list(cell))
        writer.writeheader()
        writer.writerows(rows)
    done = subprocess.run([zplan, "validate", "--json", table], capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    return sorted((r["predicted_s"], r["id"]) for r in rows if "predicted_s" in r and r["fits"])


def read_swept(path):
    """By cell: plan -> tokens a second and GPU, the most if it ran more than once; 0: it failed."""
    swept = {}
    with open(path, newline="") as table:
        for row in csv.DictReader(table):
            cell = swept.setdefault(row["cell"], {})
            plan = tuple(row[k] for k in PLAN)
            cell[plan] = max(cell.get(plan, 0), float(row["tokens_per_s_gpu"] or 0))
    return swept


def place_of_best(cell, ranked, rate):
    """Prints the cell's line; places, from 0, of the published best and of the fastest that ran."""
    names, best = [name for _, name in ranked], plan_id(cell)
    most = max(rate.values(), default=0)
    fastest = min((names.index(name) for name in rate if rate[name] == most and name in names), default=len(names))
    if best not in names:
        print("%-16s %-19s does not fit, of %d plans" % (cell["id"], best, len(names)))
        return len(names), fastest
    place = names.index(best)
    line = "%-16s %-19s place %3d of %3d, predicted %5.1f %% over %-19s" % (
        cell["id"], best, place + 1, len(names), 100 * (ranked[place][0] / ranked[0][0] - 1), names[0])
    if rate:
        line += " measured %5.1f %%" % (100 * (most / rate[names[0]] - 1))
        line += "" if fastest == place else "; the fastest is at %d" % (fastest + 1)
    print(line)
    return place, fastest


def rank(zplan, cells, swept):
    """In how many cells the published best, and the fastest that ran, are among the first five; of the plans that failed, how
    many there are and how many we say fit."""
    first = fastest = failed = fit = 0
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells:
            rate = {}
            rows = [row_of(cell, *plan) for plan in swept[cell["id"]]] if swept else list(all_plans(cell))
            ranked = predict(zplan, cell, rows, folder)
            if swept:
                rate = {row["id"]: tokens for row, tokens in zip(rows, swept[cell["id"]].values())}
                failed += sum(not tokens for tokens in rate.values())
                fit += sum(not rate[name] for _, name in ranked)
                ranked = [pair for pair in ranked if rate[pair[1]]]
            places = place_of_best(cell, ranked, rate)
            first += places[0] < 5
            fastest += places[1] < 5
    return first, fastest, failed, fit


def read_cells(path, family):
    with open(path, newline="") as table:
        return [row for row in csv.DictReader(table) if row["id"].startswith(family)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("zplan")
    parser.add_argument("runs", nargs="?", default=os.path.join(DATA, "published_runs.csv"))
    parser.add_argument("--family", default="nano_")
    plans = parser.add_mutually_exclusive_group()
    plans.add_argument("--swept", default=os.path.join(DATA, "nanotron_sweep.csv"))
    plans.add_argument("--all", action="store_true")
    args = parser.parse_args()
    cells = read_cells(args.runs, args.family)
    first, fastest, failed, fit = rank(args.zplan, cells, {} if args.all else read_swept(args.swept))
    print("among the first five: %d of %d" % (first, len(cells)))
    if not args.all:
        print("the fastest of the runs among the first five: %d of %d" % (fastest, len(cells)))
        print("of %d plans that failed we say %d fit" % (failed, fit))


if __name__ == "__main__":
    main()
