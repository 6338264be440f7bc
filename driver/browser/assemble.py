#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the page together: planner.html of one build folder, from page/, the program, frontend/library and examples/.

  assemble.py BUILD_FOLDER

The page's policy names its scripts and styles by their hashes, those of the report page too, which it shows in a frame."""
import base64
import glob
import gzip
import hashlib
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FIRST = "gpt1t"  # the example that is there at the beginning


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def part(name):
    """A script or style without the line of its licence."""
    return re.sub(r"\A/\*[^\n]*\*/\n", "", read(HERE, "page", name))


def policy_hash(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def texts(pattern):
    return {os.path.basename(path): read(path) for path in sorted(glob.glob(os.path.join(ROOT, pattern)))}


def main():
    build = sys.argv[1]
    with open(os.path.join(build, "zplan"), "rb") as file:
        program = base64.b64encode(gzip.compress(file.read(), 9, mtime=0)).decode()
    report = read(build, "report", "page_text.h")
    of_report = {name: "sha256-" + re.search(r'page_%s_hash\[\] = "([^"]+)"' % name, report)[1] for name in ("style", "script")}
    style, worker = part("style.css"), part("wasi.js") + part("worker.js")
    script = part("link.js") + part("editor.js") + part("main.js")
    data = {"library": texts("frontend/library/*.dz"), "examples": texts("examples/*.dz"), "first": FIRST, "worker": worker, "program": program}
    marks = {
        "style": style, "script": script, "style hashes": "'%s' '%s'" % (policy_hash(style), of_report["style"]),
        "script hashes": "'%s' '%s'" % (policy_hash(script), of_report["script"]),
        "data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    }
    page = re.sub(r"\{\{([a-z ]+)\}\}", lambda found: marks[found[1]], read(HERE, "page", "page.html"))
    out = os.path.join(build, "planner.html")
    with open(out + ".tmp", "w", encoding="utf-8") as file:
        file.write(page)
    os.replace(out + ".tmp", out)


if __name__ == "__main__":
    sys.exit(main())
