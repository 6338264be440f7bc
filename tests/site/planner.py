#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planner's page (driver/browser) in headless Chromium, as a file: plans of all examples against the command's, messages at their lines,
links, Stop, and what a browser lacks or cannot do.

usage: planner.py [--pictures DIR] [--only NAME,...]"""
import argparse
import glob
import gzip
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import browser  # noqa: E402
import harness  # noqa: E402

PAGE = os.path.join(harness.ROOT, "build", "browser", "planner.html")
EXAMPLES = os.path.join(harness.ROOT, "examples")
MOST_BYTES = 3_000_000  # of the page, which is all that is loaded
MOST_ERROR = 1e-12  # relative, for another library's exp and log (driver/browser/README.md)
# Bytes that the search held: pointers of WebAssembly are half as long.
OF_THE_MACHINE = ".certificate.search_held_bytes"
URL = "file://" + PAGE
UNTIL = "new Promise(done => { const look = () => (%s) ? done(performance.now()) : setTimeout(look, 20); look() })"
WITHIN = "Promise.race([%s, new Promise(done => setTimeout(done, 20000))])"
IDLE = UNTIL % "!document.getElementById('plan').disabled"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def differences(want, got, path=""):
    """Places where two JSON values differ; reals by more than MOST_ERROR."""
    if isinstance(want, float) and isinstance(got, float):
        return [] if want == got or abs(want - got) <= MOST_ERROR * max(abs(want), abs(got)) else ["%s: %r, %r" % (path, want, got)]
    if type(want) is not type(got):
        return ["%s: %r, %r" % (path, want, got)]
    if isinstance(want, dict):
        keys = ["%s: keys" % path] if list(want) != list(got) else []
        return keys + [d for k in want if k in got for d in differences(want[k], got[k], path + "." + k)]
    if isinstance(want, list):
        lengths = ["%s: lengths" % path] if len(want) != len(got) else []
        return lengths + [d for i, pair in enumerate(zip(want, got)) for d in differences(*pair, "%s[%d]" % (path, i))]
    return [] if want == got else ["%s: %r, %r" % (path, want, got)]


def check_example(tally, page, path):
    name = os.path.basename(path)
    want = harness.zplan("plan", name, "--json", cwd=EXAMPLES)
    got = page.run("runZplan(['plan', %s, '--json'], %s).then(a => ({status: a.status, out: a.out, err: a.err, seconds: a.seconds, memory: a.memoryMiB}))"
                   % (json.dumps(name), json.dumps({"/" + name: read(path)})))
    both = want.status == 0 and got["status"] == 0
    found = differences(json.loads(want.out), json.loads(got["out"])) if both else ["%s, %s" % (want.tail(), got["err"])]
    held = [d for d in found if d.startswith(OF_THE_MACHINE)]
    tally.check("plan of %s" % name, both and found == held and len(held) == 1, " ".join(found[:5]))
    print("  %-20s %6.1f s, %4d MiB; the command %.1f s" % (name, got["seconds"], got["memory"], want.seconds), flush=True)


def status(page):
    return page.run("document.getElementById('status').textContent")


def write(page, text, options="", gpus=""):
    for field, value in (("file", text), ("options", options), ("gpus", gpus), ("machine", "")):
        page.run("(() => { const e = document.getElementById('%s'); e.value = %s; e.dispatchEvent(new Event('input')) })()" % (field, json.dumps(value)))


def press(page, button):
    page.run("document.getElementById('%s').click()" % button)


def open_page(page, width=1280, fragment="", broken=False):
    page.call("Page.navigate", url="about:blank")
    page.open(URL + fragment, width)
    page.run(UNTIL % "!document.getElementById('plan').disabled || document.getElementById('status').className")
    if page.run("document.getElementById('plan').disabled") and not broken:
        raise RuntimeError("the page does not start: " + status(page))


def check_first(tally, page):
    """As it opens: the trillion-parameter example, planned by one press."""
    begun = time.monotonic()
    open_page(page)
    opened = time.monotonic() - begun
    press(page, "plan")
    page.run("window.begun = performance.now(), window.turns = 0, window.turning = setInterval(() => turns++, 20)")
    seconds = (page.run(IDLE) - page.run("begun")) / 1000
    turns = page.run("clearInterval(turning), turns")
    tally.check("gpt1t is planned", re.fullmatch(r"Planned in [\d.]+ s, \d+ MiB\.", status(page)), status(page))
    tally.check("the page answers meanwhile", turns >= 10 * seconds, "%d turns in %.1f s" % (turns, seconds))
    tally.check("two files to keep", page.run("[...document.querySelectorAll('#downloads a')].map(a => a.download).join()") == "plan.json,report.html")
    print("  opened in %.1f s, gpt1t with its report %.1f s after the press: %s" % (opened, seconds, status(page)))
    check_report(tally, page)
    tally.check("no complaints", not page.complaints(), str(page.complaints()))
    tally.check("nothing but the page is loaded", not [u for u in page.requests() if u != URL and not u.startswith("blob:")], str(page.requests()))


def check_report(tally, page):
    """The report draws itself in its frame, from which the page cannot be reached."""
    own, page.session = page.session, None
    try:
        frames = [t for t in page.call("Target.getTargets", filter=[{}])["targetInfos"] if t["type"] == "iframe"]
        tally.check("one frame", len(frames) == 1, str(frames))
        page.session = page.call("Target.attachToTarget", targetId=frames[0]["targetId"], flatten=True)["sessionId"]
        drawn = UNTIL % "document.querySelectorAll('#page section').length > 6"
        page.run(WITHIN % drawn)
        tally.check("its title", page.run("document.title") == "gpt1t: training plan", page.run("document.title"))
        tally.check("it is drawn", page.run("document.querySelectorAll('#page section').length") > 6)
        reached = page.run("(() => { try { return String(parent.document) } catch (e) { return e.name } })()")
        tally.check("the page is out of its reach", reached == "SecurityError", reached)
    finally:
        page.session = own


def check_messages(tally, page):
    """Errors stand at their lines, and below with line and column."""
    open_page(page)
    text = read(os.path.join(EXAMPLES, "gpt_tiny.dz"))
    lines = text.split("\n")
    row = next(i for i, line in enumerate(lines) if "gpt2_layer(" in line)
    lines[row] = lines[row].replace("gpt2_layer(", "gpt2_laier(")
    column = lines[row].index("gpt2_laier") + 1
    write(page, "\n".join(lines))
    press(page, "plan")
    page.run(IDLE)
    said = page.run("[...document.querySelectorAll('#messages li')].map(e => e.textContent).join('; ')")
    tally.check("an error with its place", said.startswith("%d:%d" % (row + 1, column)) and "gpt2_layer" in said, said)
    mark = page.run("[...document.querySelectorAll('#marks span')].map(e => [+e.dataset.line, e.getBoundingClientRect().top - document.querySelectorAll('#gutter div')[%d].getBoundingClientRect().top])" % row)
    tally.check("an error at its line", len(mark) == 1 and mark[0][0] == row + 1 and abs(mark[0][1]) < 2, str(mark))
    page.run("document.querySelector('#messages button').click()")
    at = page.run("document.getElementById('file').selectionStart")
    tally.check("its button goes there", at == len("\n".join(lines[:row])) + column, str(at))
    tally.check("the page says so", "errors" in status(page), status(page))
    write(page, text)
    tally.check("it goes when the text changes", page.run("document.querySelectorAll('#marks span, #messages li').length") == 0)
    for name, options, gpus, words in (("no plan fits", "", "8", "No plan fits"), ("an unknown option", "--nothing", "", "There is no plan"),
                                       ("a quote that is open", "--set 'zero=1", "", "not closed"), ("a search without room", "--search-memory 1MiB", "", "errors")):
        write(page, read(os.path.join(EXAMPLES, "gpt1t.dz")), options, gpus)
        press(page, "plan")
        page.run(IDLE)
        shown = status(page) + page.run("document.getElementById('text').textContent + document.getElementById('messages').textContent")
        tally.check(name, words in status(page), shown[:400])
    write(page, text, gpus="1..4")
    press(page, "plan")
    page.run(IDLE)
    tally.check("a table of sizes", "Planned" in status(page) and page.run("document.getElementById('text').textContent.split('\\n').length") > 3, status(page))
    tally.check("no complaints", not page.complaints(), str(page.complaints()))


def check_stop(tally, page):
    """Stop ends a search; the next one works, also where Stop was pressed twice or after a plan whose report was still drawn."""
    open_page(page)
    write(page, read(os.path.join(EXAMPLES, "deepseek_v3.dz")))
    press(page, "plan")
    page.run("new Promise(done => setTimeout(done, 1500))")
    tally.check("it plans", status(page).startswith("Planning"), status(page))
    page.run("window.begun = performance.now()")
    page.run("(async () => { const stop = document.getElementById('stop'); stop.click(); await new Promise(done => setTimeout(done)); stop.click() })()")
    stopped = page.run(UNTIL % "document.getElementById('status').textContent === 'Stopped.'") - page.run("begun")
    tally.check("it stops", stopped < 1000, "%.0f ms" % stopped)
    page.run(IDLE)
    write(page, read(os.path.join(EXAMPLES, "gpt_tiny.dz")))
    press(page, "plan")
    page.run(WITHIN % IDLE)
    tally.check("the next is planned", status(page).startswith("Planned"), status(page))
    page.run("document.getElementById('report').addEventListener('load', () => document.getElementById('stop').click(), {once: true, capture: true})")
    for name in ("Stop while the report is drawn", "the one after it"):
        press(page, "plan")
        page.run(WITHIN % IDLE)
        tally.check(name, status(page).startswith("Planned"), status(page))


def check_links(tally, page):
    open_page(page)
    text = read(os.path.join(EXAMPLES, "gpt_tiny.dz")) + "# \u00e4 \U0001f642 <script>\n"
    write(page, text, "--set 'zero=1'", "2")
    press(page, "link")
    page.run(UNTIL % "location.hash")
    fragment = page.run("location.hash")
    open_page(page, fragment=fragment)
    page.run(UNTIL % "document.getElementById('gpus').value")
    held = page.run("[document.getElementById('file').value, document.getElementById('options').value, document.getElementById('gpus').value]")
    tally.check("a link holds the file", held == [text, "--set 'zero=1'", "2"] and re.fullmatch(r"#z=[\w-]+", fragment), fragment)
    print("  a link to gpt_tiny.dz has %d characters" % len(fragment))
    zeros = page.run("through(new CompressionStream('deflate-raw'), new Uint8Array(1 << 26)).then(b => '#z=' + toLink(b))")
    for name, bad in (("cut off", fragment[:200]), ("other letters", "#z=%%%"), ("empty", "#z="), ("64 MiB of zeros", zeros)):
        open_page(page, fragment=bad)
        page.run(UNTIL % "/damaged/.test(document.getElementById('status').textContent)")
        tally.check("a link: " + name, "damaged" in status(page) and page.run("document.getElementById('file').value.length") > 100, status(page))
    write(page, "".join("# %d %s\n" % (i, hash(str(i))) for i in range(9000)))
    press(page, "link")
    page.run(UNTIL % "/too long/.test(document.getElementById('status').textContent)")
    tally.check("a file too long for a link", "at most" in status(page), status(page))


def check_widths(tally, page):
    for width in (390, 768, 1280):
        open_page(page, width)
        press(page, "plan")
        page.run(IDLE)
        wide = page.run("document.documentElement.scrollWidth")
        tally.check("no wider than %d" % width, wide <= width, str(wide))


def check_lacks(tally):
    """Browsers without what the page needs, and with less memory than a search."""
    for lack in ("WebAssembly", "DecompressionStream", "Worker"):
        with browser.Browser() as page:
            page.call("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.%s" % lack)
            open_page(page, broken=True)
            tally.check("without " + lack, "This browser has no" in status(page) and page.run("document.getElementById('plan').disabled"), status(page))
    with browser.Browser("--js-flags=--wasm-max-mem-pages=900") as page:
        open_page(page)
        press(page, "plan")
        page.run(IDLE)
        shown = page.run("document.getElementById('text').textContent")
        tally.check("too little memory", "out of memory" in shown and "no plan" in status(page), status(page) + shown)
        write(page, read(os.path.join(EXAMPLES, "gpt_tiny.dz")))
        press(page, "plan")
        page.run(IDLE)
        tally.check("a smaller search after it", status(page).startswith("Planned"), status(page))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", help="folder for what the browser shows")
    parser.add_argument("--only", help="of the examples these; none: only the page")
    options = parser.parse_args()
    harness.require_zplan()
    if not browser.find():
        sys.exit("no Chromium is installed (Debian: chromium)")
    tally = harness.Tally()
    with open(PAGE, "rb") as file:
        page_bytes = file.read()
    tally.check("size", len(page_bytes) < MOST_BYTES, "%d bytes" % len(page_bytes))
    print("  the page has %d bytes, %d compressed for the network" % (len(page_bytes), len(gzip.compress(page_bytes, 9))))
    with browser.Browser() as page:
        check_first(tally, page)
        if options.pictures:
            os.makedirs(options.pictures, exist_ok=True)
            page.picture(os.path.join(options.pictures, "planner.png"), whole=False)
        check_messages(tally, page)
        check_stop(tally, page)
        check_links(tally, page)
        check_widths(tally, page)
    check_lacks(tally)
    wanted = options.only.split(",") if options.only else None
    with browser.Browser() as page:
        open_page(page)
        for path in sorted(glob.glob(os.path.join(EXAMPLES, "*.dz"))):
            if not wanted or os.path.basename(path)[:-3] in wanted:
                check_example(tally, page, path)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
