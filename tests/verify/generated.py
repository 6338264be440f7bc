#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generated code as its reader meets it: numbers are the shortest that read back equal, kinds, values and shapes have their names, lines fit.

usage: generated.py      (ZPLAN=path: another binary)

Trainers of the examples for CPU ranks and for an emulated GPU, with tensor and expert ranks, ZeRO 2 and interleaved chunks are generated; every
C and CUDA file of their folders is read, and not compiled (tests/diff/examples.py and tests/verify/alone.py do). Shapes in comments, `[B*S, 3*d/2] = [1024, 192]`, are evaluated with the values of the legend at the
top of their file; those of tables and products must be what the table and the call alongside them say.
"""
import os
import re
from fractions import Fraction
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

# name, program, words of `zplan build`
FOLDERS = (
    ("cpu", "examples/gpt_tiny", ("--ranks", "1")),
    ("gpu", "examples/gpt_tiny_gpu", ("--ranks", "2", "--arch", "host", "--set", "tensor=2")),
    ("gpu rotary", "tests/diff/llama", ("--cluster", "gpu", "--ranks", "2", "--arch", "host", "--set", "tensor=2")),
    ("gpu dropout", "tests/diff/gpt", ("--cluster", "gpu", "--ranks", "1", "--arch", "host", "--set", "precision=mixed_bf16")),
    ("zero 2", "examples/llama_tiny", ("--ranks", "2", "--set", "data=2", "--set", "zero=2")),
    ("tensor", "examples/llama_tiny", ("--ranks", "2", "--set", "tensor=2")),
    ("experts", "examples/moe_tiny", ("--ranks", "2", "--set", "tensor=2")),
    ("gpt2", "examples/gpt2", ("--ranks", "1")),
    ("adapters", "examples/gpt_tiny", ("--ranks", "2", "--set", "data=2", "--set", "zero=3", "--set", 'train.adapt=lora(rank = 4, of = ["*attn*"])')),
    ("sparse", "examples/gpt_long", ("--ranks", "1")),
    ("chunks", "examples/gpt_tiny", ("--ranks", "2", "--set", "pipeline=2", "--set", "schedule=interleaved", "--set", "chunks=2", "--set", "zero=0")),
)
COLUMNS = 120
READ = (".c", ".h", ".cu")
# Fields of the tables whose values are kinds, and how one in every trainer begins (data are text, tokens or synthetic).
# In place of compilers: writes what it is asked for, empty.
NO_COMPILER = """#!/bin/sh
for word; do
  [ "$last" != -o ] || : >"$word"
  last=$word
done
"""
KINDS = {"optimizer": "ZPR_ADAMW", "schedule": "ZPR_RATE_COSINE", "init": "ZPR_INIT_NORMAL", "kind": ("ZPR_T", "ZPR_SYNTHETIC"), "dtype": "DTYPE"}


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
    """In CUDA text: no value is called by a number, alone or after a general word, and each name is explained where it first stands in a kernel."""
    words = "product|added|difference|quotient|square|centered|mean|row_sum|x|y|per_column|per_position|in|out|sum|partial|warps|kept|factor|cosine|sine|row|held|pack|other|result"
    bare = re.findall(r"\b(?:[uvr]\d+|(?:%s)_?\d+)\b" % words, text)
    tally.check("%s: values have names" % name, not bare and "const real " in text, " ".join(sorted(set(bare))[:8]))
    for kernel in re.split(r"ZPD_KERNEL(?:_OF\(ZPD_ROW_THREADS, \d+, |\()", text)[1:]:
        first = {}
        for match in re.finditer(r"^ +(?:const )?real (\w+) = [^;]*;([^\n]*(?:\n */?\*[^\n]*)?)", kernel, re.M):
            first.setdefault(match[1], match[2])
        bare = [value for value, rest in first.items() if "/* " not in rest and not value.startswith("factor_") and value != "sum"]
        tally.check("%s: names of %s are explained" % (name, kernel.split(",")[0]), not bare, " ".join(bare))
        nothing = re.findall(r"\b(\w+) - \1\b|\* \(real\)-?0\.0\b", kernel)
        tally.check("%s: %s computes nothing that is zero" % (name, kernel.split(",")[0]), not nothing, " ".join(nothing))
    check_packs(tally, name, text)
    kernel_of_rows = r"ZPD_KERNEL(?:_OF\(ZPD_ROW_THREADS, \d+, |\()row_"
    formulas = re.findall(r"\*/\n" + kernel_of_rows, text)
    tally.check("%s: each row kernel has its formula" % name, formulas and len(formulas) == len(re.findall(kernel_of_rows, text)))


def check_packs(tally, name, text):
    """In CUDA text: a pack is called after the operand that it is read from, a result after the output that it is written to. Rows
    that are read as a whole have the names that values are then computed from."""
    text = re.sub(r"\n +", " ", text)  # statements on one line each
    whole_rows = {value for value in re.findall(r"zpd_load_row<\w+>\((?:held|next)_(\w+),", text)}
    tally.check("%s: whole rows are held" % name, all("zpd_raw held_%s[" % value in text for value in whole_rows), " ".join(whole_rows))
    loads = re.findall(r"\b(?:held|pack|other_head\d+)_(\w+)(?:\[i\])? = zpd_raw_load\(in_(\w+) \+", text)
    stores = re.findall(r"zpd_raw_store\(out_(\w+) \+ first, zpd_raw_of\(result_(\w+)\)", text)
    wrong = ["%s is %s" % pair for pair in loads + stores if pair[0] != pair[1]]
    whole = len(loads) == text.count("zpd_raw_load(") and len(stores) == text.count("zpd_raw_store(") and loads and stores
    tally.check("%s: packs have the names of their operands and outputs" % name, whole and not wrong, "; ".join(wrong[:3]))
    reads = re.findall(r"const real (\w+) = zpd_raw_at\((?:held|pack|other_head\d+)_(\w+)(?:\[[i0]\])?, k(?: \^ 1)?\);", text)
    wrong = ["%s is %s" % pair for pair in reads if pair[0].replace("_of_pair", "") != pair[1]]
    tally.check("%s: values have the names of their packs" % name, len(reads) == text.count("zpd_raw_at(") and reads and not wrong, "; ".join(wrong[:3]))


def legend_of(text):
    """Symbols and their values from the comment at the top, on one line or wrapped."""
    found = re.search(r"^ \* shapes: (.*(?:\n \* \S.*)*)", text, re.M)
    return {symbol: int(value) for symbol, value in re.findall(r"(\w+) = (\d+)", found[1].replace("\n *", ""))} if found else {}


def evaluate(shape, legend):
    """`B*S, 3*d/2` as numbers; a symbol that the legend lacks is an error."""
    def one(text):
        terms = re.sub(r"[A-Za-z_]\w*", lambda match: str(legend[match[0]]), text)
        value = eval(re.sub(r"\d+", r"Fraction(\g<0>)", terms), {"__builtins__": {}, "Fraction": Fraction})  # pylint: disable=eval-used
        return int(value) if value.denominator == 1 else value
    return [one(part) for part in shape.split(", ")]


def check_shapes(tally, name, text):
    """Every shape in symbols is the number that stands alongside it, in comments, in the table of parameters and in calls of products."""
    legend, wrong, seen = legend_of(text), [], 0
    plain = re.sub(r"\n *\* ", " ", text)  # comments on one line each
    pairs = re.findall(r"\[([^\[\]]+)\] = \[([\d, ]+)\]", plain)
    pairs += [(symbols, numbers) for numbers, symbols in re.findall(r"\.shape = \{([\d, ]+)\}, /\* \[([^\]]+)\] \*/", plain)]
    for rows, inner, again, cols, m, n, k in re.findall(
            r", \[([^\],]+), ([^\],]+)\] x \[([^\],]+), ([^\],]+)\]: [^\n]*\n *zpr_gemm\(c, \w+, \w+, (\d+), (\d+), (\d+),", plain):
        pairs += [(", ".join((rows, cols, inner, again)), ", ".join((m, n, k, k)))]
    for symbols, numbers in pairs:
        seen += any(symbol in legend for symbol in re.findall(r"[A-Za-z_]\w*", symbols))
        try:
            if evaluate(symbols, legend) != [int(number) for number in numbers.split(", ")]:
                wrong.append("[%s] is not [%s]" % (symbols, numbers))
        except KeyError as symbol:
            wrong.append("[%s]: %s is not in the legend" % (symbols, symbol))
    tally.check("%s: %d shapes in symbols are their numbers" % (name, len(pairs)), not wrong and seen > 5, "%d with symbols; %s" % (seen, "; ".join(wrong[:3])))
    bare = re.findall(r"^.*(?:at\((?:t|saved|pending), \d+\)|= w \+ \d+); (?!/\* \[[^\]]*[a-zA-Z]|/\* scratch).*$", plain, re.M)
    tally.check("%s: buffers state their shapes" % name, not bare, "; ".join(bare[:2]))


def check_top(tally, name, text):
    """The top says what makes the file again, its plan, memory of a rank and the predicted step."""
    top = text[:text.find("*/")]
    lacking = [word for word in ("zplan build plan.json", "\n * plan ", "bytes a rank", "predicted step", "shapes: B = ") if word not in top]
    tally.check("%s: the top is whole" % name, not lacking, " ".join(lacking))


def check_columns(tally, name, text):
    long = [line for line in text.split("\n") if len(line) > COLUMNS]
    tally.check("%s: lines of at most %d columns" % (name, COLUMNS), not long, "%d, such as: %s" % (len(long), (long or [""])[0]))


def check_kinds(tally, name, text):
    """In trainer.c: no kind is a number, and each field is there at all."""
    for field, wanted in KINDS.items():
        values = re.findall(r"\.%s = (\w+)" % field, text)
        tally.check("%s: .%s is a name" % (name, field), any(value.startswith(wanted) for value in values) and not any(value[0].isdigit() for value in values), " ".join(sorted(set(values))))


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as scratch:
        compiler = os.path.join(scratch, "cc")
        with open(compiler, "w", encoding="ascii") as file:
            file.write(NO_COMPILER)
        os.chmod(compiler, 0o755)
        os.environ.update(dict.fromkeys(("CC", "CXX", "OMPI_CC"), compiler))
        for name, example, words in FOLDERS:
            folder = os.path.join(scratch, name.replace(" ", "_"))
            outcome = harness.zplan("build", os.path.join(ROOT, example + ".dz"), *words, "-o", folder)
            if not tally.check("%s: is generated" % name, outcome.status == 0, outcome.tail()):
                continue
            files = sorted(file for file in os.listdir(folder) if file.endswith(READ))
            tally.check("%s: has its files" % name, "trainer.c" in files and (not name.startswith("gpu") or "kernels.cu" in files), " ".join(files))
            for file in files:
                with open(os.path.join(folder, file), encoding="utf-8") as opened:
                    text = opened.read()
                where = "%s/%s" % (name, file)
                check_decimals(tally, where, text)
                check_columns(tally, where, text)
                if file == "kernels.cu":
                    check_names(tally, where, text)
                if file in ("trainer.c", "kernels.cu"):
                    check_top(tally, where, text)
                    check_shapes(tally, where, text)
                if file == "trainer.c":
                    check_kinds(tally, where, text)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
