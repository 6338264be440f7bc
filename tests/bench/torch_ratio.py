#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times zplan's one-rank trainer and PyTorch in turn on the same machine and prints the ratio.

    torch_ratio.py TRAINER PYTHON [ROUNDS]

Called by torch_ratio.sh. They alternate, so that whatever else the machine does hits both. Reported: the median over the
rounds of each run's median step (the first three steps of a run warm up), the best step of all, and the largest peak memory
of each. On a busy machine only the best steps can be compared.
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, SKIP, THREADS = 15, 3, 2
STEP = re.compile(r"^step .*\bms ([0-9.]+)", re.MULTILINE)


def timed(command, folder):
    """(step times in ms after warming up, peak resident set in MiB) of one run."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder) as process:
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    times = [float(ms) for ms in STEP.findall(out)]
    if process.returncode or len(times) != STEPS:
        sys.exit("%s failed:\n%s" % (" ".join(command), out[-2000:]))
    return times[SKIP:], usage.ru_maxrss / 1024


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    rounds = int(sys.argv[3]) if len(sys.argv) == 4 else 3
    commands = {"zplan": [os.path.abspath(sys.argv[1]), "--threads", str(THREADS), "--no-progress"],
                "torch": [sys.argv[2], os.path.join(HERE, "torch_gpt2.py"), str(STEPS), str(THREADS)]}
    median_ms, best_ms = {name: [] for name in commands}, {name: [] for name in commands}
    peak_mib = {name: 0.0 for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            with open("/proc/loadavg", encoding="ascii") as load:
                print("round %d, load %s" % (turn + 1, " ".join(load.read().split()[:3])), flush=True)
            for name, command in commands.items():
                times, mib = timed(command, folder)
                median_ms[name].append(statistics.median(times))
                best_ms[name].append(min(times))
                peak_mib[name] = max(peak_mib[name], mib)
                print("  %-6s median %8.1f  best %8.1f ms a step" % (name, median_ms[name][-1], min(times)), flush=True)
    median = {name: statistics.median(values) for name, values in median_ms.items()}
    best = {name: min(values) for name, values in best_ms.items()}
    print("GPT-2 124M, f32, batch 4 x 64 tokens, %d threads" % THREADS)
    print("%-6s %12s %12s %15s" % ("", "median (ms)", "best (ms)", "peak RSS (MiB)"))
    for name in commands:
        print("%-6s %12.1f %12.1f %15.0f" % (name, median[name], best[name], peak_mib[name]))
    print("zplan / torch: median %.2f, best %.2f, memory %.2f" % (
        median["zplan"] / median["torch"], best["zplan"] / best["torch"], peak_mib["zplan"] / peak_mib["torch"]))


if __name__ == "__main__":
    main()
