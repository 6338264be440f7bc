#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report page in headless Chromium, at three widths and in both themes: no complaint of the browser, no request, nothing wider than the
page, and every figure that stands on it is the one of the plan file, of the log, or of another answer of zplan.

  tests/site/report.py [--pictures DIR]    also writes what it saw"""
import argparse
import json
import os
import re
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import browser  # noqa: E402  pylint: disable=wrong-import-position
import harness  # noqa: E402  pylint: disable=wrong-import-position

EXAMPLES = os.path.join(harness.ROOT, "examples")
WIDTHS, THEMES = (360, 768, 1440), ("light", "dark")
# Of one page; seconds of processor time until it has drawn itself: 0.1 to 0.5 alone on a machine, twice that where others compute, too; a
# step of 1.2 million actions on 298 stages takes the most.
MOST_BYTES, MOST_SECONDS = 2_000_000, 1.5
PREFIX = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "days": 86400, "%": 0.01, "B": 1, "FLOP": 1, "tokens": 1}
# What is an estimate of the cost model; all else is exact or measured.
ESTIMATES = re.compile(r"estimate\.(step_s|tokens|mfu|hfu|peak_bytes|\w+_s$)|^training\.(seconds|device|dollars)|^timeline\.\w+_s|cost_s$|certificate\.b|"
                       r"^front\.\d+\.(step|tokens|peak)|memory\.(context|comm)|_update\.\w+_s|predicted_ms|^sides\.terms|^sides\.plans\.\d+\.(step|tok|mfu|peak_b|run)|"
                       r"^machine\.groups.*_s$")
FIGURES = """JSON.stringify([...document.querySelectorAll('[data-kind]')].map(e => ({text: e.textContent, kind: e.dataset.kind,
  path: e.dataset.path, over: e.dataset.over, sum: e.dataset.sum, value: e.getAttribute('value') || e.dataset.value})))"""


def read_figure(text):
    """(value, half a unit of its last digit) of "~10.3 min", "$1.2k", "6.775 k"."""
    found = re.fullmatch(r"~?\$?(-?\d+(?:\.(\d+))?(?:e[+-]?\d+)?) ?(%|[a-zA-Z]*)(?: ?(FLOP|tokens|B))?(/s)?", text)
    number, places, unit = float(found[1]), len(found[2] or ""), found[3]
    if unit in UNITS:
        scale = UNITS[unit]
    elif unit in PREFIX:
        scale = PREFIX[unit]
    else:  # "GB", "TFLOP"
        scale = next(PREFIX[unit[0]] * UNITS[name] for name in ("B", "FLOP") if unit == unit[0] + name)
    digit = 10.0 ** -places
    if "e" in found[1]:
        digit *= 10.0 ** int(found[1].split("e")[1])
    return number * scale, 0.5 * digit * scale


def look_up(data, path):
    """"plan.rejected.search memory", "plan.stages.3.memory.saved"."""
    for key in path.split("."):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def expected(figure, data):
    if figure.get("sum"):
        return sum(look_up(data, path) for path in figure["sum"].split())
    value = look_up(data, figure["path"])
    if figure.get("over"):
        return value / look_up(data, figure["over"])
    return value / 1e3 if figure["kind"] == "ms" else value


def check_figures(tally, where, page, data, least):
    """Every figure of the page; data: what the page must say, from elsewhere."""
    figures = json.loads(page.run(FIGURES))
    tally.check(where + "it has figures", len(figures) >= least, "%d" % len(figures))
    for figure in figures:
        try:
            right = expected(figure, data)
            shown, half = read_figure(figure["text"])
        except (KeyError, IndexError, TypeError, StopIteration, ValueError) as error:
            tally.check(where + "figure", False, "%s: %r" % (figure, error))
            continue
        estimate = (any(ESTIMATES.search(path) and look_up(data, path) for path in figure["sum"].split()) if figure.get("sum")
                    else bool(ESTIMATES.search(figure["path"])))
        if figure["kind"] != "ratio" and estimate != figure["text"].startswith("~"):
            tally.check(where + "~ before estimates alone", False, str(figure))
        if abs(shown - right) > half * 1.001 + 1e-9 * abs(right):
            tally.check(where + "figure", False, "%s: should be %r" % (figure, right))
    return figures


def data_of(path):
    """The JSON in a page."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found[1])


def truth_of(page_path, plan_path):
    """What the page must say: the plan from its file, the rest from the page, whose origin the checks below look at."""
    data = data_of(page_path)
    if plan_path:
        with open(plan_path, encoding="utf-8") as file:
            data["plan"] = json.load(file)
    return data


def near(a, b, share=1e-9):
    return abs(a - b) <= share * max(abs(a), abs(b))


# ---- what a page is made from ----

def make_log(path, plan_path, steps):
    """A run's log and profile as trainers write them."""
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    hash_, stages = plan["plan_hash"], len(plan["stages"])
    lines = [{"event": "start", "step": 0, "plan": hash_}]
    for step in range(1, steps + 1):
        ms = 1e3 * plan["estimate"]["step_s"] * (1.1 + 0.05 * (step % 5))
        lines.append({"step": step, "loss": 2 + 5 / step, "step_ms": round(ms, 3), "tokens_per_s": round(1e6 / ms, 1)})
    row = {"procedure": "h forward", "name": "matmul a<b>", "place": "nn.dz:9", "kind": "product", "calls": 16}
    profile = [{"stage": s, "ranks": 1, "measured_ms": 100, "timeline": [["F0", 0, 4.5]], "steps":
                [dict(row, predicted_ms=3.25 + s + k, measured_ms=4.5 + 2 * k) for k in range(40)] + [dict(row, name="wait", predicted_ms=None, measured_ms=0.125)]}
               for s in range(stages)]
    lines.append({"event": "profile", "plan": hash_, "step": steps, "steps": 3, "predicted_step_ms": 1, "measured_step_ms": 123.5, "other_step_ms": 120.25,
                  "stages": profile})
    lines.append({"event": "end", "step": steps, "measured_peak_bytes": [123456, 234567], "device_peak_bytes": [345678, 300000]})
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return [line for line in lines if "loss" in line]


class Case:
    """A page and what it must say."""

    def __init__(self, name, page, truth, least, plan=True):
        self.name, self.page, self.truth, self.least, self.plan = name, page, truth, least, plan


def report(tally, folder, name, words, *options, log_steps=0):
    plan, page = os.path.join(folder, name + ".json"), os.path.join(folder, name + ".html")
    outcome = harness.zplan("plan", *words, "-o", plan)
    tally.check(name + ": planned", outcome.status == 0, outcome.tail())
    steps = []
    if log_steps:
        log = os.path.join(folder, name + ".jsonl")
        steps = make_log(log, plan, log_steps)
        options = ("--log", log) + options
    outcome = harness.zplan("report", plan, "--html", page, *options)
    tally.check(name + ": written", outcome.status == 0 and outcome.out == page + "\n" and not outcome.err, outcome.tail())
    truth = truth_of(page, plan)
    if steps:
        run = truth["run"]
        tally.check(name + ": the log", run["measured_steps"] == len(steps) and run["arena_bytes"] == 234567 and run["device_bytes"] == 345678
                    and near(run["median_step_s"], statistics.median(s["step_ms"] for s in steps) / 1e3), str(run)[:200])
        tally.check(name + ": the log's points", [[s["step"], s["loss"], s["step_ms"], s["tokens_per_s"]] for s in steps][::run["every"]] ==
                    [[p[0], *p[1:]] for p in run["steps"]] or all(near(a, b, 1e-11) for p, s in zip(run["steps"], steps[::run["every"]])
                                                                  for a, b in zip(p, (s["step"], s["loss"], s["step_ms"], s["tokens_per_s"]))))
    return Case(name, page, truth, 60)


def mixed(folder):
    """A model for nodes of two types, with prices."""
    path = os.path.join(folder, "mixed.dz")
    with open(os.path.join(EXAMPLES, "gpt2.dz"), encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"\ncluster \w+ \{.*?\n\}\n", "\ncluster two { nodes = [2 * std.hw.dgx_a100, 2 * std.hw.dgx2]  price = [4.0, 1.5] }\n", text, count=1, flags=re.S)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def front(tally, folder):
    """A page with the plans of --pareto, which are those of the answer."""
    answer = os.path.join(folder, "front.answer")
    source = os.path.join(EXAMPLES, "gpt_tiny.dz")
    outcome = harness.zplan("plan", source, "--gpus", "1..2", "--pareto", "--json")
    with open(answer, "w", encoding="utf-8") as file:
        file.write(outcome.out)
    case = report(tally, folder, "front", (source, "--ranks", 2), "--front", answer)
    tally.check("front: the points of the answer", case.truth["front"] == json.loads(outcome.out) and len(case.truth["front"]) > 1)
    case.truth["front"] = json.loads(outcome.out)
    return case


def compared(tally, folder, first, second):
    page = os.path.join(folder, "compare.html")
    outcome = harness.zplan("compare", first, second, "--json", "--html", page)
    tally.check("compare: written", outcome.status == 0, outcome.tail())
    answer = json.loads(outcome.out[outcome.out.index("{"):])
    return Case("compare", page, {"sides": answer}, 20, plan=False)


# ---- what the browser sees ----

def check_timeline(tally, case, folder, page):
    """The step that the page plays ends as planned, and every action of the trace is where it has it."""
    where = case.name + ": "
    tally.check(where + "the step is played as planned", page.run("document.getElementById('timeline').dataset.played") == "as planned")
    path = os.path.join(folder, case.name + ".trace")
    harness.zplan("report", os.path.join(folder, case.name + ".json"), "--trace", path)
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X" and e.get("args", {}).get("microbatch") is not None]
    wanted = {(e["pid"], e["name"]): e["ts"] for e in events if e["cat"] in ("forward", "backward", "weights")}
    played = page.run("""(() => { const p = simulate(), t = DATA.timeline, out = []
      p.stages.forEach((s, i) => { for (let k = 0; k < Math.min(s.n, 400); k++)
        out.push([i, 'FBIW'[s.act[k]] + s.microbatch[k] + (t.chunks > 1 ? '.' + s.chunk[k] : ''), s.begin[k] * 1e6]) })
      return JSON.stringify(out) })()""")
    wrong = [(stage, name, begin, wanted.get((stage, name))) for stage, name, begin in json.loads(played)
             if (stage, name) in wanted and abs(begin - wanted[(stage, name)]) > 0.01 + 1e-6 * begin]
    known = sum((stage, name) in wanted for stage, name, _ in json.loads(played))
    tally.check(where + "the trace has the same actions", known > 0 and not wrong, "%d known, %s" % (known, wrong[:3]))


def check_bars(tally, case, page):
    """Lengths of the waterfall are shares of the step."""
    widths = json.loads(page.run("""JSON.stringify([...document.querySelectorAll('#step svg rect')].map(r => Number(r.getAttribute('width'))))"""))
    estimate = case.truth["plan"]["estimate"]
    terms = [estimate[key] for key in ("compute_s", "bubble_s", "tensor_comm_s", "expert_comm_s", "pipeline_comm_s", "data_comm_s", "optimizer_s", "offload_s")
             if estimate[key] > 0]
    right = [max(1, widths[-1] * term / estimate["step_s"]) for term in terms]
    tally.check(case.name + ": bars to scale", len(widths) == len(terms) + 1 and all(abs(a - b) < 1 for a, b in zip(widths, right)), "%s %s" % (widths, right))


def check_axes(tally, case, page):
    """No two ticks of an axis read the same."""
    texts = json.loads(page.run("""JSON.stringify([...document.querySelectorAll('#page svg')].filter(s => s.querySelector('line.grid')).map(s => ['end', 'middle'].map(a =>
      [...s.querySelectorAll('text.tick[text-anchor=' + a + ']')].map(t => t.textContent))).flat())"""))
    tally.check(case.name + ": ticks differ", all(len(set(axis)) == len(axis) for axis in texts), str(texts))


def check_keys(tally, case, page):
    """What the pointer shows, the keyboard does, too."""
    page.run("document.documentElement.style.scrollBehavior = 'auto'")  # nothing moves meanwhile
    for picture in ("#memory svg", "#step svg", "#roofline svg", ".timeline .rows canvas", "#machine .tiles"):
        page.run("hideNote(); document.querySelector('%s').focus({preventScroll: true})" % picture)
        page.key("." if "canvas" in picture else "ArrowRight", "." if "canvas" in picture else None)
        shown = page.run("note.hidden ? '' : note.textContent")
        tally.check("%s: a note by key on %s" % (case.name, picture), bool(shown), repr(shown))
    page.run("document.querySelector('.timeline .rows canvas').scrollIntoView({block: 'center', behavior: 'instant'})")
    page.settle()
    x, y = page.run("(() => { const r = document.querySelector('.timeline .rows canvas').getBoundingClientRect(); return [r.left + 60, r.top + 1] })()")
    page.point_at(1, 1)  # the pointer of the page before may have been there
    page.point_at(x, y)
    shown = page.run("note.hidden ? '' : note.textContent")
    tally.check(case.name + ": a note by pointer", "micro-batch" in shown and "stage 0" in shown, repr(shown))


def check_page(tally, case, folder, page, pictures):
    size = os.path.getsize(case.page)
    tally.check(case.name + ": size", size <= MOST_BYTES, "%d bytes" % size)
    for theme in THEMES:
        for width in WIDTHS:
            where = "%s, %d, %s: " % (case.name, width, theme)
            seconds = page.open("file://" + case.page, width, theme=theme)["TaskDuration"]
            page.run("document.querySelectorAll('details').forEach(d => d.open = true); document.querySelectorAll('.more').forEach(b => b.hidden || b.click())")
            page.settle()
            tally.check(where + "no complaints", not page.complaints(), "%s" % page.complaints())
            tally.check(where + "nothing is fetched", page.requests() == ["file://" + case.page], "%s" % page.requests())
            tally.check(where + "opens soon", seconds <= MOST_SECONDS, "%.2f s" % seconds)
            tally.check(where + "no wider than the screen", page.run("document.documentElement.scrollWidth <= innerWidth"),
                        page.run("document.documentElement.scrollWidth"))
            tally.check(where + "all of it is drawn", page.run("[...document.querySelectorAll('.warning')].map(e => e.textContent).join()") == "")
            tally.check(where + "no number that is none", not page.run("/NaN|undefined|Infinity|\\[object/.test(document.getElementById('page').textContent)"))
            check_figures(tally, where, page, case.truth, case.least)
            if pictures:
                page.picture(os.path.join(pictures, "%s-%d-%s.png" % (case.name, width, theme)))
    if case.plan:
        check_timeline(tally, case, folder, page)
        check_bars(tally, case, page)
        check_axes(tally, case, page)
        check_keys(tally, case, page)


def check_theme(tally, case, page):
    """The switch wins over what the system says; print is light."""
    page.open("file://" + case.page, 768, theme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.run(colour)
    page.run("setTheme('dark')")
    dark = page.run(colour)
    page.run("dispatchEvent(new Event('beforeprint'))")
    printed = page.run(colour), page.run("document.querySelectorAll('#memory details:not([open])').length")
    page.run("dispatchEvent(new Event('afterprint'))")
    tally.check("theme: switch and print", light != dark and printed == (light, 0) and page.run(colour) == dark, "%s %s %s" % (light, dark, printed))


def check_inputs(tally, folder):
    """What is no log, no front or an older plan: a clear answer, and no page where there is none."""
    plan, out = os.path.join(folder, "split.json"), os.path.join(folder, "bad.html")
    texts = {"another program's log": "I1129 iteration 1/ 10 | loss: 3.1\nstep 2 loss 3.0\n", "an empty log": "", "a list": "[1, 2]\n", "bytes": "\x00\xff\n"}
    for name, text in texts.items():
        path = os.path.join(folder, "bad.log")
        with open(path, "w", encoding="latin-1") as file:
            file.write(text)
        outcome = harness.zplan("report", plan, "--log", path, "--html", out)
        tally.check(name + " is refused", outcome.status == 1 and "error" in outcome.err and not os.path.exists(out), outcome.tail())
        outcome = harness.zplan("report", plan, "--front", path, "--html", out)
        tally.check(name + " is no front", outcome.status == 1 and "error" in outcome.err and not os.path.exists(out), outcome.tail())
    with open(plan, encoding="utf-8") as file:
        old = file.read()
    for was, now in (('"2.0"', '"1.0"'), ("saved_offloaded", "saved_away"), ("offloaded_stride", "away_stride"), ("offloaded_slots", "away_slots"),
                     ("offloaded_staging", "away_staging")):
        old = old.replace(was, now)
    path = os.path.join(folder, "format1.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(old)
    outcome = harness.zplan("report", path, "--html", out)
    tally.check("a plan of format 1 is drawn", outcome.status == 0 and data_of(out)["plan"]["plan_hash"] == data_of(os.path.join(folder, "split.html"))["plan"]["plan_hash"],
                outcome.tail())


NASTY = "</script><script>document.title='RAN'</script><img src=x onerror=\"document.title='RAN'\">\u202e"


def check_hostile(tally, folder, page):
    """Texts and shapes of a file that somebody made: shown as text, or left out."""
    path, out = os.path.join(folder, "front.json"), os.path.join(folder, "hostile.html")
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    other = dict(plan, estimate=plan["estimate"], recompute=NASTY)
    for key in ("stages", "program", "sources", "certificate", "rejected", "alternatives", "model", "cluster"):
        other.pop(key, None)
    shapes = ({"alternatives": [other, {}, 7, None, {"degrees": NASTY, "estimate": []}, {"degrees": {}, "estimate": {"step_s": 1e400}}]},
              {"certificate": {"candidates": NASTY, "gap": []}}, {"rejected": {"memory": NASTY, NASTY: 3}}, {"fastest": {"degrees": {"tensor": NASTY}}})
    for change in shapes:
        bad = os.path.join(folder, "hostile.json")
        with open(bad, "w", encoding="utf-8") as file:
            file.write(json.dumps(dict(plan, **change)).replace("Infinity", "1"))
        outcome = harness.zplan("report", bad, "--html", out, "--force")
        if outcome.status != 0:
            tally.check("hostile: refused with a reason", "error" in outcome.err, outcome.tail())
            continue
        page.open("file://" + out, 768)
        where = "hostile %s: " % next(iter(change))
        tally.check(where + "nothing ran", page.run("document.title") != "RAN" and page.run("document.querySelectorAll('img').length") == 0)
        tally.check(where + "no complaints", not page.complaints(), "%s" % page.complaints())
        tally.check(where + "the page is there", page.run("document.querySelectorAll('section').length") > 6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", help="folder for what the browser shows")
    options = parser.parse_args()
    harness.require_zplan()
    if not browser.find():
        sys.exit("no Chromium is installed (Debian: chromium)")
    tally = harness.Tally()
    tiny = os.path.join(EXAMPLES, "gpt_tiny.dz")
    with harness.Scratch() as folder, browser.Browser() as page:
        cases = [
            report(tally, folder, "gpt1t", (os.path.join(EXAMPLES, "gpt1t.dz"), "--gpus", 800)),
            report(tally, folder, "split", (tiny, "--ranks", 4, "--set", "pipeline=4", "--set", 'schedule="zb_h1"', "--set", "microbatch=1"), log_steps=60),
            report(tally, folder, "interleaved", (tiny, "--ranks", 2, "--set", "pipeline=2", "--set", 'schedule="interleaved"'), log_steps=5000),
            front(tally, folder),
            report(tally, folder, "mixed", (mixed(folder), "--gpus", 40)),
            report(tally, folder, "stages", (os.path.join(EXAMPLES, "gpt1t.dz"), "--gpus", 4768, "--set", "pipeline=298", "--set", "tensor=16", "--set",
                                             'schedule="1f1b"', "--set", 'recompute="full"')),
        ]
        cases.append(compared(tally, folder, os.path.join(folder, "split.json"), os.path.join(folder, "interleaved.json")))
        if options.pictures:
            os.makedirs(options.pictures, exist_ok=True)
        for case in cases:
            check_page(tally, case, folder, page, options.pictures)
        check_theme(tally, cases[1], page)
        check_inputs(tally, folder)
        check_hostile(tally, folder, page)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
