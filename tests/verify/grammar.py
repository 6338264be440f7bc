#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The TextMate grammar of `editors/` against the scanner: its keywords, and every word, number, text and comment of the
examples as the language cuts them.

usage: grammar.py
"""
import glob
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

GRAMMAR = os.path.join(harness.ROOT, "editors", "vscode", "syntaxes", "dz.tmLanguage.json")
SCANNER = os.path.join(harness.ROOT, "frontend", "syntax", "dz.l")
PACKAGE = os.path.join(harness.ROOT, "editors", "vscode", "package.json")
# What a lexeme is, by its first characters, written after the language's page and not after the grammar.
LEXEME = re.compile(r'(?P<comment>#[^\n]*)|(?P<string>"(?:\\.|[^"\\\n])*")|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:%|[A-Za-z_]\w*(?:/[A-Za-z]\w*)?)?)|'
                    r"(?P<word>[A-Za-z_]\w*)|(?P<operator>->|==|!=|<=|>=|\.\.|[-=<>+*/%~@])")
SCOPES = {"comment": ("comment",), "string": ("string",), "number": ("constant.numeric",), "operator": ("keyword.operator",),
          "word": ("entity", "variable", "keyword", "storage", "constant.language", "invalid")}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def scoped(patterns, line):
    """(begin, end, scope) as TextMate's rules give them: the leftmost match, of several there the first rule's."""
    at, found = 0, []
    while at < len(line):
        matches = [(m.start(), i, m) for i, (_, pattern) in enumerate(patterns) for m in [pattern.search(line, at)] if m and m.end() > at]
        if not matches:
            break
        _, i, m = min(matches, key=lambda match: match[:2])
        found.append((m.start(), m.end(), patterns[i][0]))
        at = m.end()
    return found


def main():
    harness.require_zplan()
    tally = harness.Tally()
    patterns = [(rule["name"], re.compile(rule["match"])) for rule in json.loads(read(GRAMMAR))["patterns"]]
    rules = read(SCANNER).split("\n%%\n")[1]
    keywords = set()
    for head in re.findall(r'^("[a-z]+"(?:\|"[a-z]+")*)\s', rules, re.M):
        keywords |= set(re.findall(r'"([a-z]+)"', head))
    plain = [word for word in keywords if scoped(patterns, word + " ")[0][2].startswith(("variable", "entity"))]
    tally.check("%d keywords of the scanner are keywords" % len(keywords), len(keywords) > 25 and not plain, " ".join(plain))
    named = [name for name, pattern in patterns if not name.startswith(("variable", "entity"))
             for word in re.findall(r"[a-z]{2,}", pattern.pattern) if word not in keywords]
    tally.check("and no other word is one", not named, " ".join(named))
    wrong, count = [], 0
    for path in sorted(glob.glob(os.path.join(harness.ROOT, "examples", "**", "*.dz"), recursive=True)):
        for number, line in enumerate(read(path).split("\n")):
            wanted = [(m.start(), m.end(), m.lastgroup) for m in LEXEME.finditer(line)]
            got = scoped(patterns, line)
            count += len(wanted)
            same = len(wanted) == len(got) and all(w[:2] == g[:2] and g[2].startswith(SCOPES[w[2]]) for w, g in zip(wanted, got))
            if not same or any(scope.startswith("invalid") for _, _, scope in got):
                wrong.append("%s:%d %s" % (os.path.basename(path), number + 1, [(line[b:e], s) for b, e, s in got]))
    tally.check("%d lexemes of the examples" % count, count > 5000 and not wrong, "; ".join(wrong)[:600])
    manifest = json.loads(read(PACKAGE))
    files = [manifest["main"]] + [g["path"] for g in manifest["contributes"]["grammars"]] + [x["configuration"] for x in manifest["contributes"]["languages"]]
    missing = [name for name in files if not os.path.exists(os.path.join(os.path.dirname(PACKAGE), name))]
    version = re.search(r"^## (\d+\.\d+\.\d+)", read(os.path.join(harness.ROOT, "CHANGELOG.md")), re.M).group(1)
    tally.check("the manifest names files that are there, and this version", not missing and manifest["version"] == version, str(missing))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
