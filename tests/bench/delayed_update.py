#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a GPT whose optimizer's state is on the host, updated at once and alongside the next step, in turn on this machine.

    delayed_update.py [ROUNDS]     5 rounds unless told otherwise, about two minutes; ZPLAN=path: another binary than build/release/zplan;
                                   BEFORE="chrt -f 1": words before every timed run, here for a machine whose cores others use, too

Trainers are those of GPUs, on the emulated one: one rank with one thread, whose update has a thread of its own (two cores), and two stages of a
pipeline with one micro-batch, of which one waits while the other computes, each with such a thread. Both ways alternate, so that whatever else
the machine does hits both; the first steps of a run warm up. Printed: every run's median step, medians of these, their ratio. Where others use
the cores a thread more takes from them, too: only cores of its own say what overlaps. Emulated kernels take most of a step, the host's update little.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ZPLAN = os.path.abspath(os.environ.get("ZPLAN") or os.path.join(HERE, "..", "..", "build", "release", "zplan"))
BEFORE = os.environ.get("BEFORE", "").split()
STEPS, SKIP = 9, 3
WAYS = {"at once": (), "delayed": ("train.delayed_update=after(0)",)}
LAYOUTS = {"one rank": (1, ()), "two stages": (2, ("plan.pipeline=2",))}


def zplan(*words, before=()):
    done = subprocess.run([*before, ZPLAN, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        sys.exit("zplan %s failed:\n%s" % (" ".join(words), done.stdout[-2000:]))


def planned(folder, name, ranks, settings):
    """The trainer's folder and plan; it is built by a run of no steps."""
    place = os.path.join(folder, name.replace(" ", "_"))
    os.makedirs(place)
    plan = os.path.join(place, "plan.json")
    zplan("plan", os.path.join(HERE, "delayed_update.dz"), "--ranks", str(ranks), *(word for one in settings for word in ("--set", one)), "-o", plan)
    run(place, plan, 0)
    return place, plan


def run(place, plan, steps):
    """Milliseconds of the steps after warming up."""
    log = os.path.join(place, "log.jsonl")
    zplan("run", plan, "--arch", "host", "--threads", "1", "--steps", str(steps), "--log", log, "-o", os.path.join(place, "tree"), before=BEFORE if steps else ())
    with open(log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line["step_ms"] for line in lines if "step_ms" in line][SKIP:]


def main():
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    rounds = int(sys.argv[1]) if len(sys.argv) == 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        trainers = {(layout, way): planned(folder, layout + " " + way, ranks, settings + more) for layout, (ranks, settings) in LAYOUTS.items() for way, more in WAYS.items()}
        median_ms = {key: [] for key in trainers}
        for turn in range(rounds):
            with open("/proc/loadavg", encoding="ascii") as load:
                print("round %d, load %s" % (turn + 1, " ".join(load.read().split()[:3])), flush=True)
            for key, trainer in trainers.items():
                median_ms[key].append(statistics.median(run(*trainer, STEPS)))
                print("  %-10s  %-8s  %8.1f ms a step" % (*key, median_ms[key][-1]), flush=True)
    median = {key: statistics.median(values) for key, values in median_ms.items()}
    for layout in LAYOUTS:
        at_once, delayed = (median[layout, way] for way in WAYS)
        print("GPT of 19 million parameters, %s, f64, state on the host: at once %.1f ms, delayed %.1f ms, ratio %.2f" % (layout, at_once, delayed, delayed / at_once))


if __name__ == "__main__":
    main()
