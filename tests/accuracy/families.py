#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far measured runs came out from what was predicted for them, by profile, GPU and number of nodes: the table behind the
range of a plan's time (planner/profiles/families.def).

usage: families.py                     checks the rows whose runs are all in tests/data/published_runs.csv
       families.py --write TABLE...    makes the file anew from tables of published runs; more of them than tests/data has
       families.py --unseen TABLE...   of every family, how many runs lie in the range that all the others give it

A row's range holds the middle 80 % of its runs where there are ten or more, else all of them. The range of a program or a GPU without
runs (ZP_POOL) holds the middle 80 % of the runs of all families, each family counting the same: a program that nobody measured is
one more family.
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import harness  # noqa: E402

RUNS = os.path.join(harness.ROOT, "tests", "data", "published_runs.csv")
TABLE = os.path.join(harness.ROOT, "planner", "profiles", "families.def")
TENTH = 10  # runs from which on the outermost tenths are left out
HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* ZP_FAMILY(profile, gpu, several nodes, n, low, high, mean error, bias, families): percent. low, high: measured over predicted step
 * time less 1, of the middle 80 %% of the runs where there are ten or more, else of all; mean error and bias as in docs/evidence/accuracy.md
 * (predicted over measured). ZP_POOL(families, runs, low, high): of all families alike. Made by tests/accuracy/families.py --write from %d published runs, which names its rows; do not edit. */
"""


def generation(device):
    return re.match("[a-z]+[0-9]+", device).group(0)


def quantile(values, share):
    """Linear between the sorted values."""
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def predict(table):
    for row in json.loads(harness.zplan("validate", "--json", table).out)["rows"]:
        if row.get("error_pct") is not None:
            yield (row["software"], generation(row["device"]), int(row["nodes"] > 1)), row["family"].rstrip("_"), row["error_pct"]


def rows_of(tables):
    groups = {}
    for table in tables:
        for key, family, error in predict(table):
            groups.setdefault(key, []).append((family, error))
    lines = {}
    for key, runs in sorted(groups.items()):
        errors = [error for _, error in runs]
        ratios = sorted(100 * (1 / (1 + error / 100) - 1) for error in errors)
        share = 0.1 if len(runs) >= TENTH else 0
        lines[key] = 'ZP_FAMILY("%s", "%s", %d, %d, %.1f, %.1f, %.1f, %.1f, "%s")' % (
            *key, len(runs), quantile(ratios, share), quantile(ratios, 1 - share), sum(map(abs, errors)) / len(runs),
            sum(errors) / len(runs), ", ".join(sorted({family for family, _ in runs})))
    return lines


def pooled(families):
    """The outermost tenths of the families' runs, of which every family weighs the same."""
    runs = sorted((ratio, 1 / len(ratios)) for ratios in families for ratio in ratios)
    total, ends = sum(weight for _, weight in runs), []
    for share in (0.1, 0.9):
        passed = 0
        for ratio, weight in runs:
            passed += weight
            if passed >= share * total:
                ends.append(ratio)
                break
    return ends


def by_family(tables):
    families = {}
    for table in tables:
        for _, family, error in predict(table):
            families.setdefault(family, []).append(100 * (1 / (1 + error / 100) - 1))
    return families


def pool_line(tables):
    families = by_family(tables)
    low, high = pooled(families.values())
    return "ZP_POOL(%d, %d, %.1f, %.1f)" % (len(families), sum(map(len, families.values())), low, high)


def unseen(tables):
    families = by_family(tables)
    shares, inside, runs = [], 0, 0
    for name, ratios in sorted(families.items()):
        low, high = pooled([others for other, others in families.items() if other != name])
        within = sum(low <= ratio <= high for ratio in ratios)
        print("%-14s %4d runs, %3.0f %% in %+.0f to %+.0f %%" % (name, len(ratios), 100 * within / len(ratios), low, high))
        shares.append(within / len(ratios))
        inside, runs = inside + within, runs + len(ratios)
    print("%d of %d runs (%.0f %%), %.0f %% as the mean of %d families" % (inside, runs, 100 * inside / runs, 100 * sum(shares) / len(shares), len(shares)))
    return sum(shares) / len(shares)


def committed():
    with open(TABLE, encoding="utf-8") as file:
        text = file.read()
    pattern = r'^ZP_FAMILY\("([^"]+)", "([^"]+)", (\d), (\d+),.*"([^"]+)"\)$'
    return {(m[1], m[2], int(m[3])): (m[0], int(m[4])) for m in re.finditer(pattern, text, re.M)}


def main():
    if sys.argv[1:2] == ["--write"]:
        lines = rows_of(sys.argv[2:])
        count = sum(int(line.split(", ")[3]) for line in lines.values())
        with open(TABLE, "w", encoding="utf-8") as file:
            file.write(HEAD % count + "\n".join(lines.values()) + "\n" + pool_line(sys.argv[2:]) + "\n")
        return 0
    if sys.argv[1:2] == ["--unseen"]:
        unseen(sys.argv[2:])
        return 0
    tally = harness.Tally()
    rows = committed()
    whole = 0
    for key, line in rows_of([RUNS]).items():
        mine = line.split(", ")
        if key not in rows:
            tally.check("%s %s %d" % key, False, "no such row")
        elif rows[key][1] == int(mine[3]):
            whole += 1
            tally.check("%s %s %d" % key, rows[key][0] == line, "%s, now %s" % (rows[key][0], line))
        else:
            tally.check("%s %s %d" % key, rows[key][1] > int(mine[3]), "%d runs, tests/data has %s" % (rows[key][1], mine[3]))
    tally.check("rows that can be compared", whole >= 8, "%d" % whole)
    share = unseen([RUNS])
    tally.check("families that the others' range holds", 0.7 <= share <= 0.9, "%.0f %%" % (100 * share))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
