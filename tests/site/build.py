#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the documents as a site with a search: build/site/html/index.html. Needs Sphinx, myst-parser and furo of PyPI, which
tests/site.sh installs.

The Markdown is gathered in build/site/pages first: docs/, and below `tree/` the documents outside of it that it links to. Links are
turned to where their targets then stand; comments that pages.py reads are left out. The planner's page (driver/browser/build.sh) is taken
over where it is built: then the site links to it."""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SITE = os.path.join(ROOT, "build", "site")
PAGES = os.path.join(SITE, "pages")
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.M | re.S)
PLANNER = os.path.join(ROOT, "build", "browser", "planner.html")
FOR_SITE = re.compile(r"^<!-- site: (.*) -->$", re.M)
COMMENT = re.compile(r"^<!-- (?:file|run|output):.*?-->\n", re.M)
CONFIGURATION = """
project = "zplan"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "zplan"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["zplan.css"]
html_extra_path = ["_extra"]
exclude_patterns = ["_static", "_extra"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
highlight_language = "none"
"""
STYLE = """
.content { width: 56em }
article table.docutils { display: block; overflow-x: auto }
article table.docutils code { overflow-wrap: anywhere }
article p code, article li code { overflow-wrap: anywhere }
"""


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def place_of(path):
    """Where a file of the source tree stands on the site."""
    if path == "docs/README.md":
        return "index.md"
    return path[len("docs/"):] if path.startswith("docs/") else "tree/" + path


def target_of(path, link):
    """The file of the source tree that a link of a document means, of a folder its README; None: none."""
    if re.match(r"[a-z]+:", link):
        return None
    target = os.path.normpath(os.path.join(os.path.dirname(path), link))
    if os.path.isdir(os.path.join(ROOT, target)):
        target += "/README.md"
    return target if os.path.isfile(os.path.join(ROOT, target)) else None


def turned(path, found):
    target = target_of(path, found[2])
    if not target:
        return found[0]
    at = os.path.relpath(place_of(target), os.path.dirname(place_of(path)) or ".")
    return found[1] + at + (found[3] or "") + found[4]


def gather():
    shutil.rmtree(PAGES, ignore_errors=True)
    waiting = [os.path.relpath(os.path.join(where, name), ROOT) for where, _, names in os.walk(os.path.join(ROOT, "docs")) for name in names]
    waiting.sort()
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        place = os.path.join(PAGES, place_of(path))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not path.endswith(".md"):
            shutil.copy(os.path.join(ROOT, path), place)
            continue
        pieces = CODE.split(COMMENT.sub("", FOR_SITE.sub(r"\1" if os.path.exists(PLANNER) else "", read(path))))
        for piece in pieces[::2]:
            for link in LINK.finditer(piece):
                target = target_of(path, link[2])
                if target and target not in seen:
                    seen.add(target)
                    waiting.append(target)
        text = "".join(piece if i % 2 else LINK.sub(lambda found: turned(path, found), piece) for i, piece in enumerate(pieces))
        if path == "docs/README.md":
            text += contents(seen)
        elif not re.search(r"^docs/(guide|reference|evidence|design/README)", path):
            text = "---\norphan: true\n---\n" + text
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)


def listed(folder, paths):
    """Pages of a folder: its README, then what that links to, then the others."""
    found = {p for p in paths if p.startswith(folder + "/") and p.endswith(".md")}
    first = [folder + "/README.md"] if folder + "/README.md" in found else []
    order = [os.path.normpath(os.path.join(folder, m[2])) for page in first for m in LINK.finditer(read(page)[read(page).find("## Pages"):])]
    return first + [p for p in dict.fromkeys(order) if p in found and p not in first] + sorted(found - set(order) - set(first))


def contents(paths):
    text = ""
    for caption, folder in (("Guide", "docs/guide"), ("Reference", "docs/reference"), ("Evidence", "docs/evidence"), ("Design", "docs/design")):
        pages = listed(folder, paths)[:1 if folder == "docs/design" else None]
        text += "\n```{toctree}\n:hidden:\n:caption: %s\n%s\n```\n" % (caption, "\n".join(place_of(page)[:-3] for page in pages))
    return text


def main():
    gather()
    for folder in ("_static", "_extra"):
        os.makedirs(os.path.join(PAGES, folder), exist_ok=True)
    if os.path.exists(PLANNER):
        shutil.copy(PLANNER, os.path.join(PAGES, "_extra"))
    for name, text in (("conf.py", CONFIGURATION), ("_static/zplan.css", STYLE)):
        with open(os.path.join(PAGES, name), "w", encoding="utf-8") as file:
            file.write(text)
    return subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", os.path.join(SITE, "doctrees"), PAGES,
                           os.path.join(SITE, "html")], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
