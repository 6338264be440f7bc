#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the sources read, as far as a program can tell.

usage: style.py

  format    clang-format (the repository's .clang-format) would change no C file; no line is longer than 120 columns
  tidy      clang-tidy finds no fault (.clang-tidy says what it looks for); needs build/release, for how files are compiled
            both: in what changed lately and an eighth of the rest, with ZPLAN_LONG in the environment in all
  licence   every source names it in its first line, or after `#!`; not data, nor what stands in plans (.dz) and in models (.dz.in)
  comments  none begins with "Of", "The same" or "And": each stands by itself
  const     a function of the search that takes its cache const does not use the arenas of the cache
  terminal  strings are printed where controls in them are shown
  includes  no two folders of the compiler include each other, in however many steps
  records   decision records carry a date and a status
  version   CMakeLists.txt and CHANGELOG.md agree
  readmes   every file of a folder with a README has a line in it, or in that of the folder above
"""
import collections
import concurrent.futures
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

COLUMNS = 120
LICENCE = "SPDX-License-Identifier: Apache-2.0"
SOURCE = (".c", ".h", ".cuh")
PARTS = ("support", "frontend", "exchange", "driver", "planner", "codegen", "runtime", "kernels")


def tracked():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.split("\n")
    else:  # an archive without its history
        names = [os.path.relpath(os.path.join(where, name), ROOT) for where, _, files in os.walk(ROOT) for name in files]
    return [name for name in names if name and not name.startswith("build/") and os.path.isfile(os.path.join(ROOT, name))]


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def check_format(tally, sources):
    due = due_for_tools(sources, ".clang-format")
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=1"] + due, cwd=ROOT, capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^([^:\s]+):\d+:\d+: error", done.stderr, re.M)))
    tally.check("clang-format: %d of %d files" % (len(due), len(sources)), len(due) > len(sources) // 9 and done.returncode == 0, " ".join(wrong) or done.stderr[:200])


def tidy_faults(files):
    command = ["nice", "clang-tidy", "-p", os.path.join(ROOT, "build", "release"), "--quiet"] + files
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    faults = re.findall(r"^(?:%s/)?([^:\s]+:\d+):\d+: (?:error|warning): (.*)$" % re.escape(ROOT), done.stdout, re.M)
    return faults or ([("clang-tidy", done.stderr[-300:])] if done.returncode else [])


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")[:-1]


def due_for_tools(files, configuration):
    """All of them are a minute and a half of processor time: those that the working tree or one of the last 16 commits changed, and
    an eighth of the rest, which the number of commits chooses, so that eight in a row see all. A commit of more than 200 files changed one
    thing in all of them, and not what the tools see. With ZPLAN_LONG in the environment (tests/long.sh), without the history, and when
    the tool's configuration has changed, all."""
    commits = git("rev-list", "--count", "HEAD")
    if os.environ.get("ZPLAN_LONG") or not commits or git("rev-parse", "--is-shallow-repository") != ["false"]:
        return files
    lately = "\n".join(git("log", "-n", "16", "--format=%x00", "--name-only")).split("\0")
    changed = {line[3:] for line in git("status", "--porcelain", "-uall")}.union(*(c.split("\n") for c in lately if c.count("\n") <= 200))
    return files if configuration in changed else [name for i, name in enumerate(files) if name in changed or (i + int(commits[0])) % 8 == 0]


def check_tidy(tally, sources):
    if not os.path.isfile(os.path.join(ROOT, "build", "release", "compile_commands.json")):
        tally.check("clang-tidy", False, "build/release is not configured: cmake --preset release")
        return
    files = [name for name in sources if name.endswith(".c") and name.split("/")[0] in PARTS]
    due = due_for_tools(files, ".clang-tidy")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = sum(pool.map(tidy_faults, [due[i::24] for i in range(24)]), [])
    tally.check("clang-tidy: %d of %d files" % (len(due), len(files)), len(due) > len(files) // 9 and len(files) > 400 and not faults,
                "; ".join("%s %s" % f for f in faults[:10]))


def check_columns(tally, names):
    long = ["%s:%d" % (name, i + 1) for name in names for i, line in enumerate(read(name).split("\n")) if len(line) > COLUMNS]
    tally.check("%d columns" % COLUMNS, not long, " ".join(long[:10]))


def licence_line(name):
    """What a source begins with, or None: data, pages and what the command has made need not say so."""
    if name.startswith("tests/interop/golden/"):
        return None
    if name.endswith(SOURCE + (".def", ".l", ".y", ".cpp", ".js", ".css")):
        return "/* %s */" % LICENCE
    script = name.endswith((".py", ".sh", ".cmake")) or os.path.basename(name) == "CMakeLists.txt"
    return "# " + LICENCE if script or name == ".ci/run" or name.startswith("tests/site/stand_ins/") else None


def check_licence(tally, names):
    begins = re.compile(r"(?:#![^\n]*\n)?([^\n]*)\n")
    sources = [(name, line) for name in names for line in [licence_line(name)] if line]
    wrong = [name for name, line in sources if (begins.match(read(name)) or [""] * 2)[1] != line]
    tally.check("the first line names the licence: %d files" % len(sources), len(sources) > 1400 and not wrong, " ".join(wrong[:10]))


def check_comments(tally, sources):
    leaning = ["%s:%d" % (name, text.count("\n", 0, found.start()) + 1) for name in sources for text in [read(name)]
               for found in re.finditer(r"(?:/\*|//)\s*(?:Of|The same|And)\b", text)]
    tally.check("comments stand by themselves", not leaning, " ".join(leaning[:10]))
    # A block of prose whose closing the formatter pushed to a line of its own, because the last line was full.
    torn = ["%s:%d" % (name, text.count("\n", 0, found.end()) + 1) for name in sources for text in [read(name)]
            for found in re.finditer(r"^\s*(?:/\*| \*) [^\n]{100,}\n\s*\*/$", text, re.M)]
    tally.check("no comment ends with */ alone", not torn, " ".join(torn[:10]))


def changes_const_cache(text):
    """Functions that take the cache of a search const and use its arenas all the same; its memos the compiler guards."""
    bodies = re.findall(r"^\w[^;{}]*?\b(\w+)\([^;{}]*\bconst zp_search_cache \*s\b[^;{}]*\) \{(.*?)\}(?=\n(?:\n|\Z))", text, re.M | re.S)
    return [name for name, body in bodies if re.search(r"\bs->(?:arena|kept)\b|\(zp_search_cache \*\)", body)]


def check_const(tally, sources):
    found = [name + " " + function for name in sources if name.startswith("planner/search/") for function in changes_const_cache(read(name))]
    tally.check("nothing changes a const cache", not found, " ".join(found))
    made_up = "static int f(const zp_search_cache *s) {\n  return *ZP_NEW(s->arena, int);\n}\n"
    tally.check("a changed const cache would be found", changes_const_cache(made_up) == ["f"])


# ---- includes ----

def layer_of(name):
    """planner/program/include/zplan/x.h and planner/program/moves/x.c are of planner/program."""
    parts = name.split("/")
    if parts[0] in ("planner", "frontend", "exchange"):
        return "/".join(parts[:2])
    return "codegen/cuda/emulator" if name.startswith("codegen/cuda/emulator/") else parts[0]  # what kernels' text sees instead of a GPU


def edges_of(sources):
    by_name, edges = collections.defaultdict(list), collections.defaultdict(dict)
    for name in sources:
        by_name[os.path.basename(name)].append(name)
    for name in sources:
        for included in re.findall(r'^#include [<"]([^>"]+)[>"]', read(name), re.M):
            targets = [t for t in by_name.get(os.path.basename(included), ()) if not included.startswith("zplan/") or "/include/zplan/" in t]
            # Of headers with one name: the one that shares most folders.
            targets.sort(key=lambda t: -len(os.path.commonprefix([t.split("/"), name.split("/")])))
            for target in targets[:1]:
                one, other = layer_of(name), layer_of(target)
                if one != other:
                    edges[one].setdefault(other, "%s includes %s" % (name, included))
    return edges


def circle(edges):
    """A list of layers that include each other in a circle, or None."""
    state, path = {}, []

    def visit(layer):
        state[layer] = 1
        path.append(layer)
        for other in edges.get(layer, ()):
            if state.get(other) == 1:
                return path[path.index(other):] + [other]
            if other not in state:
                found = visit(other)
                if found:
                    return found
        state[layer] = 2
        path.pop()
        return None

    for layer in sorted(edges):
        if layer not in state:
            found = visit(layer)
            if found:
                return found
    return None


def check_includes(tally, sources):
    edges = edges_of([name for name in sources if name.split("/")[0] in PARTS])
    found = circle(edges)
    text = "; ".join(edges[a][b] for a, b in zip(found, found[1:])) if found else ""
    tally.check("no circle of includes between %d layers" % len(edges), not found, text)
    turned = {a: dict(b) for a, b in edges.items()}
    turned.setdefault("planner/machine", {})["planner/search"] = "made up"
    tally.check("a circle would be found", circle(turned) is not None)


# ---- texts ----

def check_terminal(tally, sources):
    """A string goes to the terminal through zp_say and its like (support/quote.c, runtime/say.c), which let it obey nothing.
    Not checked: programs that print numbers of this machine, and one line that is cut out of such a text (log.c)."""
    bad, free = [], ("support/", "codegen/cuda/emulator/", "runtime/calibrate/", "runtime/cuda/emulator/", "runtime/say.c", "runtime/log.c")
    for name in sources:
        if not name.startswith(("driver/", "exchange/", "frontend/", "planner/", "codegen/", "runtime/")) or name.startswith(free):
            continue
        text = read(name)
        for match in re.finditer(r'\b(?:printf|fprintf|vprintf|vfprintf|fputs|puts)\(((?:[^;"]|"(?:[^"\\]|\\.)*")*)\);', text):
            if name.startswith("runtime/") and not re.match(r"\s*std(?:out|err)\b", match[1]) and not match[0].startswith("printf"):
                continue  # to a file
            if re.search(r'%[-+ #0-9.*]*s|"\s*PRI', match[1]) or ("puts" in match[0][:5] and not match[1].lstrip().startswith(('"', "i ?"))):
                bad.append("%s:%d" % (name, text.count("\n", 0, match.start()) + 1))
    tally.check("strings reach the terminal through zp_say", not bad, " ".join(bad))


def check_records(tally):
    folder = os.path.join(ROOT, "docs/design")
    records = sorted(n for n in os.listdir(folder) if n != "README.md")
    index, bad = read("docs/design/README.md"), []
    for at, name in enumerate(records, 1):
        begins = r"# %d\. [^\n]+\n\n\*\d+ [A-Z][a-z]+ 20\d\d[,;] [a-z][^*]*\*\n" % at
        if not name.startswith("%03d-" % at) or "](%s)" % name not in index or not re.match(begins, read("docs/design/" + name)):
            bad.append(name)
    tally.check("design records are numbered, dated, have a status and stand in the index", len(records) > 20 and not bad, " ".join(bad))


def check_version(tally):
    project = re.search(r"project\(zplan VERSION ([\d.]+)", read("CMakeLists.txt"))[1]
    newest = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.M)[1]
    tally.check("version %s heads the changelog" % project, newest == project, newest)


def check_readmes(tally, names):
    for folder in sorted({os.path.dirname(n) for n in names if n.split("/")[0] in PARTS and n.endswith(SOURCE + (".y", ".l"))}):
        if "/include" in folder:
            continue
        above, texts = folder, ""
        while above and not texts:
            if os.path.isfile(os.path.join(ROOT, above, "README.md")):
                texts = read(os.path.join(above, "README.md"))
            above = os.path.dirname(above)
        missing = [os.path.basename(n) for n in names if os.path.dirname(n) == folder and n.endswith(SOURCE) and
                   os.path.basename(n) not in texts]
        tally.check("%s: a line for every file" % folder, not missing, " ".join(missing))


def main():
    tally, names = harness.Tally(), tracked()
    sources = [n for n in names if n.endswith(SOURCE)]
    check_format(tally, sources)
    check_tidy(tally, sources)
    check_columns(tally, [n for n in names if n.endswith(SOURCE + (".y", ".l"))])
    check_licence(tally, names)
    check_comments(tally, sources)
    check_const(tally, sources)
    check_includes(tally, sources)
    check_terminal(tally, sources)
    check_records(tally)
    check_version(tally)
    check_readmes(tally, names)
    return tally.finish()


sys.exit(main())
