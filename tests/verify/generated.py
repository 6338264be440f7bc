#!/usr/bin/env python3
"""Generated code as its reader meets it: numbers are the shortest that read back equal, kinds and values have their names, lines fit.

usage: generated.py      (ZPLAN=path: another binary)

Trainers of the examples for CPU ranks and for an emulated GPU, with ZeRO 2 and with interleaved chunks are generated; every C and CUDA
file of their folders is read.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

# name, example, words of `zplan build`
FOLDERS = (
    ("cpu", "gpt_tiny", ("--ranks", "1")),
    ("gpu", "gpt_tiny_gpu", ("--ranks", "2", "--arch", "host", "--set", "tensor=2")),
    ("zero 2", "llama_tiny", ("--ranks", "2", "--set", "data=2", "--set", "zero=2")),
    ("chunks", "gpt_tiny", ("--ranks", "2", "--set", "pipeline=2", "--set", "schedule=interleaved", "--set", "chunks=2", "--set", "zero=0")),
)
COLUMNS = 120
READ = (".c", ".h", ".cu")
# Fields of the tables whose values are kinds, and what every table of a trainer says of them.
KINDS = {"optimizer": "ZPR_ADAMW", "schedule": "ZPR_RATE_COSINE", "init": "ZPR_INIT_NORMAL", "kind": "ZPR_TEXT", "dtype": "DTYPE"}


def numbers(text):
    """Decimals with a fraction or an exponent, outside of comments and strings."""
    plain = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', " ", text, flags=re.S)
    return re.findall(r"(?<![\w.])\d+(?:\.\d*(?:e[-+]?\d+)?|e[-+]?\d+)", plain)


def is_shortest(number):
    """Python prints the shortest decimal that reads back equal."""
    def digits(word):
        return re.sub(r"e.*|\.", "", word).strip("0")
    return len(digits(number)) <= len(digits(repr(float(number))))


def check_decimals(tally, name, text):
    long = [number for number in numbers(text) if not is_shortest(number)]
    tally.check("%s: decimals have no digit too many" % name, not long, " ".join(long[:5]))


def check_names(tally, name, text):
    """In CUDA text: no value has a bare number for a name, and each name is explained where it first stands in a kernel."""
    bare = re.findall(r"\b[uvr]\d+\b", text)
    tally.check("%s: values have names" % name, not bare and "const real " in text, " ".join(sorted(set(bare))[:8]))
    for kernel in text.split("ZPD_KERNEL(")[1:]:
        first = {}
        for match in re.finditer(r"^ +(?:const )?real (\w+) = [^;]*;([^\n]*(?:\n *\*[^\n]*)?)", kernel, re.M):
            first.setdefault(match[1], match[2])
        bare = [value for value, rest in first.items() if "/* " not in rest and not re.match(r"factor\d", value) and value != "sum"]
        tally.check("%s: names of %s are explained" % (name, kernel.split(",")[0]), not bare, " ".join(bare))


def check_columns(tally, name, text):
    long = [line for line in text.split("\n") if len(line) > COLUMNS]
    tally.check("%s: lines of at most %d columns" % (name, COLUMNS), not long, "%d, such as: %s" % (len(long), (long or [""])[0]))


def check_kinds(tally, name, text):
    """In trainer.c: no kind is a number, and each field is there at all."""
    for field, wanted in KINDS.items():
        values = re.findall(r"\.%s = (\w+)" % field, text)
        tally.check("%s: .%s is a name" % (name, field), wanted in values and not any(value[0].isdigit() for value in values), " ".join(sorted(set(values))))


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as scratch:
        for name, example, words in FOLDERS:
            folder = os.path.join(scratch, name.replace(" ", "_"))
            outcome = harness.zplan("build", os.path.join(ROOT, "examples", example + ".dz"), *words, "-o", folder)
            if not tally.check("%s: is generated" % name, outcome.status == 0, outcome.tail()):
                continue
            files = sorted(file for file in os.listdir(folder) if file.endswith(READ))
            tally.check("%s: has its files" % name, "trainer.c" in files and (name != "gpu" or "kernels.cu" in files), " ".join(files))
            for file in files:
                with open(os.path.join(folder, file), encoding="utf-8") as opened:
                    text = opened.read()
                where = "%s/%s" % (name, file)
                check_decimals(tally, where, text)
                check_columns(tally, where, text)
                if file == "kernels.cu":
                    check_names(tally, where, text)
                if file == "trainer.c":
                    check_kinds(tally, where, text)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
