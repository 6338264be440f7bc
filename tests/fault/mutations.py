#!/usr/bin/env python3
"""Damaged models, plan files, configurations of Hugging Face, calibrations, tokenizers and tables of runs: whatever is in them, the command ends by itself, with a documented exit status, and says
what is wrong.

    mutations.py [COUNT [SEED]]     how many of each (default 80), and where the sequence begins (default 1)

Run it for longer with ZPLAN=build/dev/zplan, whose sanitizers make more mistakes visible.
"""
import json
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import harness  # noqa: E402

MODELS = ("gpt_tiny.dz", "llama_tiny.dz", "moe_tiny.dz", "gpt2.dz", "mixtral_8x7b.dz", "gpt1t.dz")
PLANNED = (("gpt2.dz", 4), ("moe_tiny.dz", 2))
TOKEN = re.compile(r'[A-Za-z_][\w.]*|[0-9][\d.eE]*[A-Za-z/%]*|"[^"]*"|\S')
NUMBERS = ("0", "-1", "1e300", "1", "3", "1e18", "9223372036854775807", "99999999999999999999", "0.5", "1e-300", "2147483648", "1%",
           "16GiB", "3us", "1e9GB/s", '""', "[]", "true")
PIECES = ("{", "}", "(", ")", "[", "]", "=", '"', "\0", "\u00ff", "#", "\n", "..", "~", "->", "<=")
VALUES = (0, -1, 1, 2, 3, 1e300, 2**31, 2**63 - 1, -2**63, 0.5, None, True, "", "x", "full", [], {}, [0], [1, 2, 3], {"a": 1}, 10**9)
SLOWEST_SECONDS = 300  # a time-out, not a measurement: the slowest takes well under a second


def damage_text(rng, text, words):
    for _ in range(rng.choice((1, 1, 2, 4))):
        tokens = list(TOKEN.finditer(text))
        lines = text.split("\n")
        if not tokens:
            break
        token, line = rng.choice(tokens), rng.randrange(len(lines))
        kind = rng.randrange(6)
        if kind == 0:
            del lines[line]
            text = "\n".join(lines)
        elif kind == 1:
            lines.insert(rng.randrange(len(lines)), lines[line])
            text = "\n".join(lines)
        else:
            new = ("", rng.choice(words), rng.choice(PIECES), rng.choice(NUMBERS))[kind - 2]
            if kind == 5:
                token = rng.choice([t for t in tokens if t.group()[0].isdigit()] or [token])
            text = text[: token.start()] + new + text[token.end():]
    return text


def paths(value, path=()):
    """Where something stands in a JSON document; of long lists the beginning."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, path + (key,))


def damage_plan(rng, plan):
    plan = json.loads(json.dumps(plan))
    for _ in range(rng.choice((1, 1, 3))):
        every = [path for path in paths(plan) if path]
        path = rng.choice([p for p in every if p[0] not in ("program", "sources")] if rng.random() < 0.8 else every)
        holder = plan
        for key in path[:-1]:
            holder = holder[key]
        if rng.random() < 0.2:
            del holder[path[-1]]
        else:
            holder[path[-1]] = rng.choice(VALUES)
    text = json.dumps(plan)
    at = rng.randrange(len(text))
    return text if rng.random() < 0.9 else text[:at] + text[at + rng.randrange(40):]


def expect_answer(tally, name, text, *command):
    done = harness.zplan(*command, timeout=SLOWEST_SECONDS)
    told = done.status in (0, 4) or "error" in done.err or done.err.startswith("zplan: ")
    good = 0 <= done.status <= 4 and told and "Sanitizer" not in done.err and "runtime error" not in done.err
    tally.check("%s: %s" % (name, command[0]), good, "exit %s: %s\n%s" % (done.status, done.tail(), text[:4000]))


def damaged_models(tally, rng, folder, count):
    texts = {}
    for name in MODELS:
        with open(os.path.join(harness.ROOT, "examples", name), encoding="utf-8") as file:
            texts[name] = file.read()
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(texts[name])
    words = sorted({token.group() for text in texts.values() for token in TOKEN.finditer(text)})
    path = os.path.join(folder, "damaged.dz")
    for i in range(count):
        text = damage_text(rng, texts[rng.choice(MODELS)], words)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        expect_answer(tally, "model %d" % i, text, *(("check", path) if i % 4 else ("fmt", "--check", path)))


def damaged_plans(tally, rng, folder, count):
    plans = []
    for name, ranks in PLANNED:
        path = os.path.join(folder, name + ".json")
        harness.zplan(os.path.join(harness.ROOT, "examples", name), "--gpus", ranks, "-o", path)
        with open(path, encoding="utf-8") as file:
            plans.append(json.load(file))
    path = os.path.join(folder, "damaged.json")
    for i in range(count):
        text = damage_plan(rng, rng.choice(plans))
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        expect_answer(tally, "plan %d" % i, text, "verify" if i % 3 else "report", path)


def damage_values(rng, text):
    document = json.loads(text)
    for _ in range(rng.choice((1, 1, 2))):
        every = [path for path in paths(document) if path]
        if not every:
            break
        path, holder = rng.choice(every), document
        for key in path[:-1]:
            holder = holder[key]
        if rng.random() < 0.2:
            del holder[path[-1]]
        else:
            holder[path[-1]] = rng.choice(VALUES)
    return json.dumps(document)


def damaged_inputs(tally, rng, folder, count):
    """What other programs write: values of JSON documents changed, or words of the text."""
    here = os.path.join(harness.ROOT, "tests")
    text, path, out = (os.path.join(folder, name) for name in ("text", "damaged", "out"))
    with open(text, "w", encoding="utf-8") as file:
        file.write("whatever is in them, the command ends by itself\n" * 20)
    kinds = [(os.path.join(here, "interop", "hf", name), ("import", "hf", path, "-o", out))
             for name in ("gpt2.json", "mixtral_8x7b.json", "gpt_neox_20b.json")]
    kinds += [(os.path.join(here, "interop", "tokenizers", "gpt2_like.json"), ("data", "--tokenizer", path, text, "-o", out)),
              (os.path.join(here, "golden", "errors", "common", "measured.json"),
               ("plan", os.path.join(harness.ROOT, "examples", "gpt_tiny.dz"), "--ranks", "2", "--calibration", path)),
              (os.path.join(here, "data", "published_runs.csv"), ("validate", path))]
    for i in range(count):
        source, command = kinds[i % len(kinds)]
        with open(source, encoding="utf-8") as file:
            sound = "".join(file.readlines()[:12]) if source.endswith(".csv") else file.read()
        damaged = damage_values(rng, sound) if source.endswith(".json") and rng.random() < 0.7 else damage_text(rng, sound, NUMBERS)
        with open(path, "w", encoding="utf-8") as file:
            file.write(damaged)
        expect_answer(tally, "input %d, %s" % (i, os.path.basename(source)), damaged, *command)


def main():
    harness.require_zplan()
    tally = harness.Tally()
    count, seed = (int(word) for word in (sys.argv[1:] + ["80", "1"][len(sys.argv) - 1:])[:2])
    with harness.Scratch() as folder:
        damaged_models(tally, random.Random(seed), folder, count)
        damaged_plans(tally, random.Random(seed), folder, count)
        damaged_inputs(tally, random.Random(seed), folder, count)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
