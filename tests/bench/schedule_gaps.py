#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How close the search comes to a proof under schedules other than 1F1B: random models and clusters of tests/fuzz/plans.py with random
degrees, each with one of the other schedules, all of them pinned. Prints every point with a gap, then how many there are, of what
is searched and of all plans, the largest, and CPU seconds.

    schedule_gaps.py [--points N] [--seed S] [--zplan PATH]
"""
import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fuzz"))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import plans  # noqa: E402

SCHEDULES = ("gpipe", "interleaved", "zb_h1", "zb_h2", "zb_v", "dualpipev")
PATIENCE = 120  # seconds for a search


def draw_point(rng):
    x = plans.draw_instance(rng)
    tensor = rng.choice((1, 1, 2, 4))
    pipeline = rng.choice((2, 3, 4, 4, 6, 8, 8, 12, 16))
    data = rng.choice([d for d in (1, 1, 2, 4) if x["batch"] % d == 0])
    x["gpus"] = tensor * pipeline * data
    x["per_node"] = 8
    x["mixed"] = False
    x["settings"] = [s for s in x["settings"] if not s.startswith(("schedule", "idle"))]
    x["settings"] += ["tensor = %d" % tensor, "pipeline = %d" % pipeline, "data = %d" % data,
                      'schedule = "%s"' % rng.choice(SCHEDULES)]
    return x


def search(zplan, x, folder):
    """The plan file, or None where nothing fits or the search takes too long."""
    path = os.path.join(folder, "point.dz")
    with open(path, "w") as f:
        f.write(plans.text_of(x))
    command = [zplan, "plan", path, "--gpus", str(x["gpus"]), "--json"]
    for setting in x["settings"]:
        command += ["--set", setting]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        print("left out: took longer than %d s: %s" % (PATIENCE, " ".join(x["settings"])))
        return None
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else None


def gaps_of(plan):
    """Of what is searched, of all plans."""
    c = plan["certificate"]
    searched = c.get("searched_s", c["bound_s"])
    return 1 - searched / c["best_s"], c["gap"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--points", type=int, default=80)
    p.add_argument("--seed", type=int, default=13)
    p.add_argument("--zplan", default=harness.ZPLAN)
    args = p.parse_args()
    rng = random.Random(args.seed)
    gaps, drawn = [], 0
    with tempfile.TemporaryDirectory() as folder:
        while len(gaps) < args.points:
            drawn += 1
            x = draw_point(rng)
            plan = search(args.zplan, x, folder)
            if not plan or not plan["feasible"]:
                continue
            gaps.append(gaps_of(plan))
            if max(gaps[-1]) > 2e-9:
                print("point %d: %.3f %% of what is searched, %.3f %% of all: %d layers, batch %d, %s" %
                      (drawn, 100 * gaps[-1][0], 100 * gaps[-1][1], x["layers"], x["batch"], ", ".join(x["settings"])), flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    for name, column in (("what is searched", 0), ("all plans", 1)):
        some = [g[column] for g in gaps if g[column] > 2e-9]
        print("of %s: %d of %d points keep a gap, the largest %.3f %%" % (name, len(some), len(gaps), 100 * max(some, default=0)))
    print("%.1f CPU seconds, %d points drawn" % (used.ru_utime + used.ru_stime, drawn))


if __name__ == "__main__":
    main()
