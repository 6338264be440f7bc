#!/usr/bin/env python3
"""Where does the cost model rank the plan that was measured to be the best?

    rank_plans.py ZPLAN RUNS.csv [FAMILY]

Takes the rows of a family (default nano_) whose source swept all plans of a (model, GPUs, batch) cell and published the best
one. For every cell: all plans of tensor, pipeline and data ranks, micro-batch and ZeRO 0 and 1 go through `zplan validate`;
those that fit are sorted by predicted time. Prints the place of the measured best and how much slower than our first choice it
is predicted; at the end, in how many cells it is among the first five.
"""
import csv
import json
import os
import subprocess
import sys
import tempfile

TENSOR, PIPELINE, MICROBATCH = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32, 64)
UNKNOWN = dict(measured_tflops_per_gpu="", measured_iter_s="", measured_mem_gb="", interleave_v=1)


def plan_id(row):
    return "plan_" + "_".join(str(row[k]) for k in ("tp", "pp", "dp", "micro_batch", "zero_stage"))


def plans(cell):
    gpus, batch, layers = int(cell["n_gpus"]), int(cell["global_batch"]), int(cell["layers"])
    for tensor in TENSOR:
        for pipeline in PIPELINE:
            data = gpus // (tensor * pipeline)
            if tensor * pipeline * data != gpus or pipeline > layers or batch % data:
                continue
            for microbatch in MICROBATCH:
                if batch // data % microbatch:
                    continue
                for zero in (0, 1) if data > 1 else (0,):
                    row = dict(cell, tp=tensor, pp=pipeline, dp=data, micro_batch=microbatch, zero_stage=zero,
                               seq_parallel=int(tensor > 1), **UNKNOWN)
                    yield dict(row, id=plan_id(row))


def ranking(zplan, cell, folder):
    """(predicted seconds, plan) of the plans that fit, fastest first."""
    table = os.path.join(folder, "cell.csv")
    with open(table, "w", newline="") as out:
        writer = csv.DictWriter(out, list(cell))
        writer.writeheader()
        writer.writerows(plans(cell))
    done = subprocess.run([zplan, "validate", "--json", table], capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    return sorted((r["predicted_s"], r["id"]) for r in rows if "predicted_s" in r and r["fits"])


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    family = sys.argv[3] if len(sys.argv) == 4 else "nano_"
    with open(sys.argv[2], newline="") as table:
        cells = [row for row in csv.DictReader(table) if row["id"].startswith(family)]
    first = 0
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells:
            ranked = ranking(sys.argv[1], cell, folder)
            names = [name for _, name in ranked]
            best = plan_id(cell)
            if best not in names:
                print("%-18s %-20s does not fit, of %d plans" % (cell["id"], best, len(names)))
                continue
            place = names.index(best)
            first += place < 5
            print("%-18s %-20s place %3d of %3d, %5.1f %% over %s" % (cell["id"], best, place + 1, len(names), 100 * (
                ranked[place][0] / ranked[0][0] - 1), names[0]))
    print("among the first five: %d of %d" % (first, len(cells)))


if __name__ == "__main__":
    main()
