#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of the report page in the README: the plan of a trillion parameters on 800 V100, as headless Chromium shows it.

  tests/site/picture.py [FILE]    writes docs/images/report.webp, or FILE"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import browser  # noqa: E402  pylint: disable=wrong-import-position
import harness  # noqa: E402  pylint: disable=wrong-import-position

WIDTH, MOST_BYTES = 1200, 200_000


def main():
    path = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(harness.ROOT, "docs", "images", "report.webp")
    harness.require_zplan()
    if not browser.find():
        sys.exit("no Chromium is installed (Debian: chromium)")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with harness.Scratch() as folder, browser.Browser() as page:
        plan, html = os.path.join(folder, "plan.json"), os.path.join(folder, "report.html")
        for words in (("plan", os.path.join(harness.ROOT, "examples", "gpt1t.dz"), "--gpus", 800, "-o", plan), ("report", plan, "--html", html)):
            outcome = harness.zplan(*words)
            if outcome.status != 0:
                sys.exit(outcome.tail())
        page.open("file://" + html, WIDTH)
        bottom = page.run("document.getElementById('timeline').getBoundingClientRect().bottom + scrollY + 8")
        page.picture(path, clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom, "scale": 0.8}, quality=72)
    size = os.path.getsize(path)
    print("%s: %d bytes" % (path, size))
    return 0 if size <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
