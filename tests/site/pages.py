#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command of the documents and compares what it prints with what the page says.

usage: pages.py [--write|--write-all] [--jobs N] [PAGE.md...]

    --write     puts what the commands print into the pages where it differs; --write-all: measured numbers, too
    PAGE.md     these pages alone (default: README.md and all of docs/guide)

A page is one session in a folder of its own, where `examples` is that of the source tree. In its Markdown:

    ```console          a line that begins with `$ ` is a command, with the lines that follow a `\\` at its end; what
    $ zplan my.dz       follows up to the next command is what it prints on both of its outputs; a line `...` stands for
    ...                 lines that are left out
    ```
    <!-- file: NAME -->         the fenced block that follows is written to NAME
    <!-- run: COMMAND -->       a command that readers do not see
    <!-- output: WORDS -->      of the console block that follows, separated by `;`:
        measured                numbers depend on the machine: only the text around them is compared
        status N                how each command ends (default: 0)
        lines A..B, C           the page shows these lines; negative ones count from the end
        match REGEX             the page shows lines in which it is found
        without REGEX           `...` stands for what it matches
        first, any              the first line alone is compared, or none: the others depend on the machine
    <!-- not run: WHY -->       of the indented or fenced block that follows: without it, commands that no test runs are a fault
"""
import argparse
import concurrent.futures
import difflib
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

ROOT, SECONDS, HOME = harness.ROOT, 1800, "/home/me"
FENCE = re.compile(r"^```(\w*)\s*$")
COMMAND = re.compile(r"\s*(?:\$ |[A-Z]+=\S+ )?(?:zplan|cmake|git|python3|export|sbatch|\.?/?(?:examples|tests|build)/\S+|\S*/zplan)(?: |$)")
COMMENT = re.compile(r"^<!--\s*(file|run|output):\s*(.*?)\s*-->\s*$")


class Command:
    def __init__(self, words, first):
        self.words, self.first, self.last, self.options = words, first, first, {}  # first and last line of what it prints


def parse_options(words):
    options = {}
    for word in words.split(";"):
        name, _, value = word.strip().partition(" ")
        if name not in ("measured", "status", "lines", "match", "without", "first", "any"):
            raise ValueError("`%s` is no word of `output:`" % name)
        options[name] = value.strip() or True
    return options


def console(lines, at, options):
    """Commands of the block whose first line is `at`, and the line of its end."""
    commands = []
    while lines[at] != "```":
        if lines[at].startswith("$ "):
            words = [lines[at][2:]]
            while words[-1].endswith("\\"):
                at += 1
                words.append(lines[at])
            commands.append(Command("\n".join(words), at + 1))
            commands[-1].options = options
        elif not commands:
            raise ValueError("line %d: a console block begins with a command" % (at + 1))
        commands[-1].last = at + 1
        at += 1
    return commands, at


def steps_of(lines):
    """What a session does, in order: ("run", words), ("file", name, text), ("show", Command)."""
    steps, options, name, at = [], {}, None, 0
    while at < len(lines):
        comment, fence = COMMENT.match(lines[at]), FENCE.match(lines[at])
        if comment and comment[1] == "run":
            steps.append(("run", comment[2]))
        elif comment and comment[1] == "file":
            name = comment[2]
        elif comment:
            options = parse_options(comment[2])
        elif fence and fence[1] == "console":
            commands, at = console(lines, at + 1, options)
            steps += [("show", command) for command in commands]
            options = {}
        elif fence:
            begin = at + 1
            at = lines.index("```", begin)
            if name:
                steps.append(("file", name, "\n".join(lines[begin:at]) + "\n"))
            name = None
        at += 1
    return steps


def never_run(lines):
    """Commands that stand in a block which is not run, and is not said to be."""
    out, excused, fenced, before = [], False, None, ""
    for line in lines:
        fence = re.match(r"^```(\w*)", line)
        if fence:
            fenced = None if fenced is not None else fence[1] or "text"
        inside = fenced not in (None, "console") or (fenced is None and line.startswith("    "))
        if line.startswith("<!-- not run:"):
            excused = True
        elif inside and not excused and COMMAND.match(line) and not (fenced is None and re.match(r"\s*([-|]|\d+\.) ", before)):
            out.append(line.strip())
        elif not inside and line.strip() and not fence:
            excused = False
        before = line if line.strip() else before
    return out


# ---- running ----

class Session:
    def __init__(self, folder, page):
        self.folder, self.page = os.path.join(folder, "zplan"), page
        os.makedirs(self.folder)
        for name in ("examples", "README.md"):
            os.symlink(os.path.join(ROOT, name), os.path.join(self.folder, name))
        binaries = os.path.join(folder, "bin")
        os.mkdir(binaries)
        os.symlink(harness.ZPLAN, os.path.join(binaries, "zplan"))
        self.folder_now = self.folder
        path = os.pathsep.join([binaries, os.path.join(HERE, "stand_ins"), os.environ["PATH"]])
        self.env = dict(os.environ, PATH=path, HOME=folder, ZPLAN_CALIBRATION="none", COLUMNS="80", NO_COLOR="1", LC_ALL="C.UTF-8",
                        XDG_CACHE_HOME=os.path.join(folder, "cache"), ZPLAN_ROOT=ROOT)
        self.env.pop("ZPLAN", None)
        self.above = folder

    def run(self, words):
        """Exit status and lines; the folder and the PATH with which a command ends are those of the next."""
        script = "%s\nstatus=$?\n{ pwd; echo \"$PATH\"; } >%s/.after\nexit $status\n" % (words, self.above)
        env = {k: v for k, v in self.env.items() if k not in ("CC", "CXX") or "cmake" not in words}  # which are for trainers
        done = subprocess.run(["bash", "-c", script], cwd=self.folder_now, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        with open(os.path.join(self.above, ".after"), encoding="utf-8") as file:
            self.folder_now, self.env["PATH"] = file.read().rstrip("\n").split("\n")
        text = done.stdout.decode("utf-8", "replace").replace(self.folder, HOME + "/zplan").replace(self.above, HOME)
        return done.returncode, [line.rstrip() for line in text.rstrip("\n").split("\n")] if text.strip() else []


def ranges(words, count):
    kept = set()
    for word in words.split(","):
        begin, _, end = word.strip().partition("..")
        first, last = (int(n) + (count + 1 if int(n) < 0 else 0) for n in (begin, end or begin))
        kept.update(range(first - 1, last))
    return kept


BUSY = ("warning[Z0706]", "warning: the machine is busy")  # ranks that share cores, other work: not compared


def shown(lines, options):
    """The lines that the page has, `...` where it leaves something out."""
    if "without" in options:
        lines = [re.sub(options["without"], " ...", line) for line in lines]
    if "lines" in options:
        kept = ranges(options["lines"], len(lines))
    elif "match" in options:
        kept = {i for i, line in enumerate(lines) if re.search(options["match"], line)}
    else:
        return lines
    out = []
    for i, line in enumerate(lines):
        if i in kept:
            out.append(line)
        elif not out or out[-1] != "...":
            out.append("...")
    return out


def comparable(lines, options):
    """Lines without what differs from machine to machine."""
    if "any" in options:
        return []
    if "measured" not in options and "first" not in options:
        return lines
    whole, out = [], []
    for line in lines:  # where a line is wrapped depends on its numbers
        if whole and line.startswith("  "):
            whole[-1] += " " + line.strip()
        else:
            whole.append(line)
    for line in whole[:1] if "first" in options else whole:
        if line.startswith(BUSY):
            continue
        line = re.sub(r"products by .*?(?=,)", "products by #", line)
        line = re.sub(r"[-+]?\d[\d.,:]*(e[-+]?\d+)?", "#", line)
        line = re.sub(r"# (ns|us|ms|s|min|hours|days|[kMGT]?B|[kMGT])\b", "# #", line)
        out.append(re.sub(r"\s+", " ", line))
    return out


def check_page(page, write):
    """Faults of a page; with `write` it is written again."""
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    faults, changes = ["%s: no test runs it" % command for command in never_run(lines)], []
    with harness.Scratch() as folder:
        session = Session(folder, page)
        for step in steps_of(lines):
            if step[0] == "file":
                where = os.path.join(session.folder_now, step[1])
                os.makedirs(os.path.dirname(where), exist_ok=True)
                with open(where, "w", encoding="utf-8") as file:
                    file.write(step[2])
                continue
            words = step[1] if step[0] == "run" else step[1].words
            options = {} if step[0] == "run" else step[1].options
            try:
                status, out = session.run(words)
            except subprocess.TimeoutExpired:
                faults.append("$ %s\ntakes longer than %d s" % (words, SECONDS))
                break
            if status != int(options.get("status", 0)):
                faults.append("$ %s\nstatus %d\n%s" % (words, status, "\n".join(out[-15:])))
            if step[0] == "run":
                continue
            command, now = step[1], shown(out, options)
            stands = lines[command.first:command.last]
            same = comparable(now, options) == comparable(stands, options)
            if not same or write == "all":
                changes.append((command.first, command.last, now))
            if not same:
                difference = difflib.unified_diff(comparable(stands, options), comparable(now, options), "page", "command", lineterm="", n=1)
                faults.append("$ %s\n%s" % (words, "\n".join(difference)))
    if write and changes:
        for first, last, now in reversed(changes):
            lines[first:last] = now
        with open(page, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_const", const="changed")
    parser.add_argument("--write-all", action="store_const", const="all", dest="write")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("pages", nargs="*")
    options = parser.parse_args()
    harness.require_zplan()
    harness.build_quickly()
    pages = [os.path.abspath(page) for page in options.pages] or [os.path.join(ROOT, "README.md")] + sorted(
        glob.glob(os.path.join(ROOT, "docs", "guide", "*.md")))
    tally = harness.Tally()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for page, faults in zip(pages, pool.map(lambda page: check_page(page, options.write), pages)):
            tally.check(os.path.relpath(page, ROOT), not faults, "\n".join(faults))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
