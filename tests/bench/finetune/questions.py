#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Questions about the project's own documents, always the same ones for the same documents.

    questions.py FOLDER

writes FOLDER/documents.txt, all documents one after the other, and FOLDER/train.json and FOLDER/held_out.json in SQuAD's format. A context is a stretch of
words of at most 48 bytes. A question names a kind of thing (a number, a name in backticks, an error code, an option of the command, a file) that
stands in the context, and its answer is the first of that kind. Every tenth stretch of 2,000 bytes of the documents is held out.
"""
import json
import os
import re
import subprocess
import sys

CONTEXT, BLOCK, HELD_OUT = 48, 2000, 10
KINDS = {"number": r"(?<![\w.`-])\d[\d,.]*\d|(?<![\w.`-])\d(?![\w.`-])", "name": r"(?<=`)[^`\s]+(?=`)", "code": r"Z0\d\d\d",
         "option": r"(?<![\w-])--[a-z][a-z-]+", "file": r"[\w/]+\.(?:c|h|dz|py|md|json|cuh|sh)\b"}


def documents(root):
    names = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout.split()
    for name in sorted(names):
        with open(os.path.join(root, name), encoding="utf-8") as file:
            yield file.read()


def contexts(block):
    """Stretches of whole words."""
    words, text = block.split(), ""
    for word in words:
        if len((text + " " + word).encode()) > CONTEXT:
            yield text
            text = ""
        text = (text + " " + word).strip()


def questions(context, number):
    for kind, pattern in KINDS.items():
        found = re.search(pattern, context)
        if found:
            yield {"id": "%d-%s" % (number, kind), "question": kind, "answers": [{"text": found.group(), "answer_start": found.start()}]}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    text = "\n".join(documents(root))
    parts = {"train": [], "held_out": []}
    for at in range(0, len(text), BLOCK):
        part = "held_out" if at // BLOCK % HELD_OUT == 0 else "train"
        for number, context in enumerate(contexts(text[at:at + BLOCK])):
            asked = list(questions(context, at + number))
            if asked:
                parts[part].append({"context": context, "qas": asked})
    with open(os.path.join(sys.argv[1], "documents.txt"), "w", encoding="utf-8") as file:
        file.write("".join(text[at:at + BLOCK] for at in range(0, len(text), BLOCK) if at // BLOCK % HELD_OUT))
    for part, paragraphs in parts.items():
        with open(os.path.join(sys.argv[1], part + ".json"), "w", encoding="utf-8") as file:
            json.dump({"version": "1.1", "data": [{"title": part, "paragraphs": paragraphs}]}, file)
        print("%s: %d questions" % (part, sum(len(p["qas"]) for p in paragraphs)))


if __name__ == "__main__":
    main()
