#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links of the documents without a network: each names a file or folder that is there, and a heading that the page has. Also the size of
README and the number of commands of the guide's ten tasks.

usage: links.py [FOLDER]        FOLDER: an installed copy's share/doc/zplan (default: the source tree's tracked files)
"""
import os
import re
import sys
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
README_BYTES = 8192


def prose(text):
    """Lines outside of fences and of indented blocks, without code in them."""
    out, fenced = [], False
    for line in text.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            out.append(re.sub(r"`[^`]*`", lambda m: "`" * len(m[0]), line))
    return "\n".join(out)


def anchors(text):
    """As the forge makes them of headings: lower case, without punctuation, - for blanks; a second one of a name gets -1."""
    seen, out = {}, set()
    for line in re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).split("\n"):
        heading = re.match(r"#+ (.*)", line)
        if heading:
            name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()).strip().replace(" ", "-")
            out.add(name if name not in seen else "%s-%d" % (name, seen[name]))
            seen[name] = seen.get(name, 0) + 1
    return out


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def dead_links(page):
    dead = []
    for link in LINK.findall(prose(read(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(target):
            dead.append(link)
        elif anchor and target.endswith(".md") and anchor not in anchors(read(target)):
            dead.append(link + ": no such heading")
    return dead


def tasks(text):
    """Commands of each task of the guide's first page."""
    part = text[text.index("## Ten tasks"):text.index("## Pages")]
    return {task.split("\n")[0]: len(re.findall(r"^\$ .*", task, re.M)) + len(re.findall(r"^\$ .*(?:&&|;) *zplan", task, re.M))
            for task in part.split("\n### ")[1:]}


def pages_of(folder):
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("build", "out", "node_modules") and not name.startswith("."))
        yield from (os.path.join(where, name) for name in sorted(names) if name.endswith(".md"))


def main():
    folder = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else harness.ROOT
    tally, pages = harness.Tally(), list(pages_of(folder))
    for page in pages:
        dead = dead_links(page)
        if dead:
            tally.check(os.path.relpath(page, folder), False, " ".join(dead))
    tally.check("links of %d pages" % len(pages), len(pages) > 20)
    size = os.path.getsize(os.path.join(folder, "README.md"))
    tally.check("README.md has at most %d bytes" % README_BYTES, size <= README_BYTES, str(size))
    found = tasks(read(os.path.join(folder, "docs", "guide", "README.md")))
    tally.check("ten tasks of at most three commands", len(found) == 10 and all(1 <= n <= 3 for n in found.values()), str(found))
    with harness.Scratch() as scratch:
        page = os.path.join(scratch, "page.md")
        with open(page, "w", encoding="utf-8") as file:
            file.write("# A page\n\n[there](page.md#a-page) [gone](gone.md) [no heading](#b) `[code](no.md)`\n")
        tally.check("a dead link would be found", dead_links(page) == ["gone.md", "#b: no such heading"], str(dead_links(page)))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
