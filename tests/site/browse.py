#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The built site (build.py) in headless Chromium: every page opens without a complaint of the browser and without a request to elsewhere, is no
wider than a telephone's 390 pixels or a screen's 1,280, its links and their headings are there, and the search finds something.

usage: browse.py [--pictures DIR]"""
import argparse
import functools
import http.server
import os
import re
import sys
import threading
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import browser  # noqa: E402
import harness  # noqa: E402

SITE = os.path.join(harness.ROOT, "build", "site", "html")
WIDTHS = (390, 1280)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        """Browsers request an icon once, and no page has one."""
        if self.path != "/favicon.ico":
            super().do_GET()
            return
        self.send_response(204)
        self.end_headers()


def pages():
    return sorted(os.path.relpath(os.path.join(where, name), SITE) for where, _, names in os.walk(SITE) for name in names
                  if name.endswith(".html") and "/_" not in where)


@functools.lru_cache(None)
def text_of(page):
    with open(os.path.join(SITE, page), encoding="utf-8") as file:
        return file.read()


def dead_links(page):
    dead = []
    for link in set(re.findall(r'<a\b[^>]*\bhref="([^"]*)"', text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.isfile(os.path.join(SITE, target)):
            dead.append(link)
        elif anchor and target.endswith(".html") and not re.search(r'\bid="%s"' % re.escape(anchor), text_of(target)):
            dead.append(link + ": no such heading")
    return dead


def check_page(tally, chromium, address, page):
    faults = ["link %s" % link for link in dead_links(page)]
    for width in WIDTHS:
        chromium.open(address + page, width)
        faults += chromium.complaints()
        faults += ["requests %s" % url for url in chromium.requests() if not url.startswith((address, "data:", "blob:"))]
        wide = chromium.run("document.documentElement.scrollWidth")
        if wide > width:
            faults.append("%d pixels wide at %d" % (wide, width))
    tally.check(page, not faults, " ".join(sorted(set(faults))[:8]))


def check_search(tally, chromium, address):
    chromium.open(address + "search.html?q=tokenizer", 1280)
    found = chromium.run("new Promise(done => { let left = 100; const look = () => { const n = document.querySelectorAll('#search-results li').length;"
                         " if (n || !left--) done(n); else setTimeout(look, 100) }; look() })")
    tally.check("the search finds pages", found > 2, str(found))


def check_itself(tally, chromium, address):
    """A page with every fault that is looked for."""
    path = os.path.join(SITE, "zplan_fault.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write('<p style="width: 500px">wide</p><a href="gone.html">x</a><a href="index.html#gone">y</a><script>nothing()</script>')
    try:
        chromium.open(address + "zplan_fault.html", 390)
        seen = (len(dead_links("zplan_fault.html")), bool(chromium.complaints()), chromium.run("document.documentElement.scrollWidth") > 390)
        tally.check("faults would be found", seen == (2, True, True), str(seen))
    finally:
        os.unlink(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures")
    options = parser.parse_args()
    tally = harness.Tally()
    if not browser.find():
        sys.exit("no Chromium is installed")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = "http://127.0.0.1:%d/" % server.server_port
    with browser.Browser() as chromium:
        for page in pages():
            check_page(tally, chromium, address, page)
        check_search(tally, chromium, address)
        check_itself(tally, chromium, address)
        if options.pictures:
            os.makedirs(options.pictures, exist_ok=True)
            for page in ("index.html", "guide/README.html", "guide/purchase.html", "evidence/checks.html"):
                for width in WIDTHS:
                    chromium.open(address + page, width)
                    chromium.picture(os.path.join(options.pictures, "%s_%d.png" % (page.replace("/", "_")[:-5], width)), whole=False)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
