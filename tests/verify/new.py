#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first ten minutes: `zplan new`, the catalogues of models and machines, files without a cluster, data or checkpoint block, and
what `zplan doctor` says this machine can do. The commands that are printed after `next:` are run as they stand."""
import json
import os
import re
import shlex
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "support"), os.path.join(os.path.dirname(HERE), "weights")]
import families  # noqa: E402
import harness  # noqa: E402

TEXT = "/usr/share/common-licenses/GPL-3"
TOKENIZER = os.path.join(harness.ROOT, "tests", "interop", "tokenizers", "gpt2_like.json")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def following(outcome):
    """The commands after `next:`, as words without the first."""
    return [shlex.split(line[len("next: "):])[1:] for line in outcome.out.splitlines() if line.startswith("next: ")]


def check_text(tally, folder):
    shutil.copy(TEXT, os.path.join(folder, "my book.txt"))
    made = harness.zplan("new", "text", "my book.txt", cwd=folder)
    file = os.path.join(folder, "my book.dz")
    if not tally.check("new text", made.status == 0 and os.path.exists(file), made.tail()):
        return
    text, commands = read(file), following(made)
    tally.check("it stands alone", not re.search(r'use "|examples|cluster', text) and text.isascii(), text)
    again = harness.zplan("new", "text", "my book.txt", cwd=folder)
    tally.check("nothing is written over", again.status == 1 and "Z0641" in again.err and read(file) == text, again.tail())
    tally.check("canonical layout", harness.zplan("fmt", "--check", "my book.dz", cwd=folder).status == 0)
    ran = harness.zplan(*commands[0], "--steps", "2", cwd=folder)
    tally.check("the next command trains", ran.status == 0 and "step 2/2" in ran.out, ran.tail())
    tally.check("it says which machine", ran.err.count("no `cluster` block: planned for this machine") == 1, ran.err)
    asked = harness.zplan(*commands[1], "--tokens", "4", cwd=folder)
    tally.check("the one after it samples", asked.status == 0 and asked.out.startswith("The "), asked.tail())
    with open(os.path.join(folder, "bare.dz"), "w", encoding="utf-8") as file:
        file.write("\n".join(line for line in text.splitlines() if not re.match(r"  (data|checkpoint|log)\b", line)))
    bare = harness.zplan("run", "bare.dz", "--steps", "1", "-o", "my book.zplan", cwd=folder)
    tally.check("without data it says what it trains on", bare.status == 0 and bare.err.count("it trains on made-up tokens") == 1, bare.tail())
    tally.check("and where the state is kept", "the last state is kept in my book.zplan.checkpoints" in bare.err, bare.err)


def check_texts(tally, folder):
    for name, times in (("a.txt", 3), ("b.txt", 1)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("a line of a text\n" * 500 * times)
    open(os.path.join(folder, "empty.txt"), "w", encoding="utf-8").close()
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        file.write(bytes(8192))
    made = harness.zplan("new", "text", "a.txt", "b.txt", "-o", "both.dz", cwd=folder)
    tally.check("texts are mixed by their sizes", made.status == 0 and '0.75 * text("a.txt"' in read(os.path.join(folder, "both.dz")), made.tail())
    os.mkdir(os.path.join(folder, "sub"))
    made = harness.zplan("new", "text", "a.txt", "-o", "sub/c.dz", cwd=folder)
    tally.check("-o elsewhere finds the text", made.status == 0 and 'text("%s' % os.path.realpath(folder) in read(os.path.join(folder, "sub", "c.dz")), made.tail())
    for what, words, status, said in (
            ("no text", ["text"], 2, "wants a text file"), ("no template", [], 2, "text, fine-tune or plan"),
            ("a misspelt template", ["txt", "a.txt"], 2, "did you mean `text`?"), ("an empty text", ["text", "empty.txt"], 1, "too few"),
            ("a missing text", ["text", "none.txt"], 1, "cannot read `none.txt`"), ("a folder", ["text", "sub"], 1, "fine-tune"),
            ("token ids", ["text", "tokens.bin"], 1, "zero bytes"), ("no folder", ["fine-tune", "none"], 1, "config.json"),
            ("no weights", ["fine-tune", "sub"], 1, "config.json"), ("no machine", ["plan", "llama3-8b"], 2, "a model and a machine"),
            ("an unknown model", ["plan", "llama3-9b", "on", "dgx-h100"], 2, "did you mean `llama3-8b`?"),
            ("an unknown machine", ["plan", "llama3-8b", "on", "dgx-h10"], 2, "did you mean `dgx-h100`?"),
            ("a folder that is not there", ["text", "a.txt", "-o", "none/x.dz"], 1, "none/x.dz")):
        told = harness.zplan("new", *words, cwd=folder)
        tally.check("new, %s" % what, told.status == status and said in told.err and not told.out, "%d: %s" % (told.status, told.tail()))


def check_fine_tune(tally, folder):
    families.write(os.path.join(folder, "published"), "gpt2")
    shutil.copy(TOKENIZER, os.path.join(folder, "published", "tokenizer.json"))
    shutil.copy(TEXT, os.path.join(folder, "own.txt"))
    made = harness.zplan("new", "fine-tune", "published/", "own.txt", cwd=folder)
    file = os.path.join(folder, "published.dz")
    if not tally.check("new fine-tune", made.status == 0 and os.path.exists(file), made.tail()):
        return
    tally.check("it stands alone", 'use "' not in read(file))
    commands = following(made)
    ran = harness.zplan(*commands[0], cwd=folder)
    tally.check("the next command makes tokens", ran.status == 0 and os.path.exists(os.path.join(folder, "published.bin")), ran.tail())
    harness.zplan("data", "own.txt", "-o", "published.bin", cwd=folder)  # the small model knows bytes alone
    ran = harness.zplan(*commands[1], "--steps", "1", cwd=folder)
    tally.check("the one after it trains", ran.status == 0 and "starts from the weights" in ran.err, ran.tail())
    os.remove(os.path.join(folder, "published", "tokenizer.json"))
    made = harness.zplan("new", "fine-tune", "published", "-o", "other.dz", "--machine", "rtx4090", "--gpus", "1", cwd=folder)
    tally.check("without a tokenizer, on another machine", made.status == 0 and "no tokenizer.json" in made.out and
                "1 * std.hw.rtx4090" in read(os.path.join(folder, "other.dz")), made.tail())
    for name in ("llama", "bert_questions", "t5_v1_1"):
        families.write(os.path.join(folder, name), name)
        made = harness.zplan("new", "fine-tune", name, cwd=folder)
        tally.check("new fine-tune, %s" % name, made.status == 0, made.tail())


def check_catalogues(tally, folder):
    models = json.loads(harness.zplan("models", "--json").out)
    machines = json.loads(harness.zplan("machines", "--json").out)
    tally.check("40 models with a source each", len(models) >= 40 and all(m["source"] and m["parameters"] > 0 for m in models))
    tally.check("machines with a source each", len(machines) >= 20 and all(m["source"] and m["devices"] > 0 for m in machines))
    found = json.loads(harness.zplan("models", "QWEN3", "a3b", "--json").out)
    tally.check("models by words", [m["name"] for m in found] == ["qwen3-30b-a3b"], str(found))
    tally.check("models by other words", harness.zplan("models", "nosuch").status == 1 and harness.zplan("machines", "nosuch").status == 1)
    listed = harness.zplan("models").out + harness.zplan("machines").out
    tally.check("tables have all rows", all("\n%s " % m["name"] in listed for m in models + machines[1:]))
    for row in machines:
        made = harness.zplan("new", "plan", "gpt2-124m", "on", row["name"], "--gpus", "16", "-o", row["name"] + ".dz", cwd=folder)
        tally.check("on %s" % row["name"], made.status == 0, made.tail())
    for row in models[::5]:
        made = harness.zplan("new", "plan", row["name"], "on", "dgx-h100", "--gpus", "64", cwd=folder)
        tally.check("new plan, %s" % row["name"], made.status == 0 and not made.err, made.tail())
    made = harness.zplan("new", "plan", "llama2-13b", "on", "l40s", "--gpus", "32", cwd=folder)
    plan = harness.zplan(*following(made)[0], "-o", "plan.json", cwd=folder)
    tally.check("the next command plans 4 nodes of 8", plan.status == 0 and "32 x l40s" in plan.out and re.search(r"4\s+x\s+gpu_server", plan.out), plan.tail())


def check_without_a_file(tally, folder):
    words = ["--model", "llama3_8B", "--machine", "dgx-h100", "--gpus", "16"]
    plan = harness.zplan(*words, "-o", "plan.json", cwd=folder)
    tally.check("--model and --machine", plan.status == 0 and " ".join(plan.out.split()).startswith("llama3_8b (8.030 G parameters) fits on 16 x h100_sxm, 80.0 GB each (2 x dgx_h100)"), plan.tail())
    proof = harness.zplan("verify", "plan.json", cwd=folder)
    tally.check("its plan file stands alone", proof.status == 0, proof.tail())
    words = ["compare", "--model", "qwen3-4b", "--model", "gemma2-2b", "--machine", "h100-pcie", "--gpus", "4", "--set", "zero=1", "--json"]
    sides = harness.zplan(*words, cwd=folder)
    tally.check("compare of two models", sides.status == 0 and [p["name"] for p in json.loads(sides.out)["plans"]] == ["qwen3-4b", "gemma2-2b"], sides.tail())
    example = os.path.join(harness.ROOT, "examples", "gpt2.dz")
    plan = harness.zplan(example, "--machine", "a100-80", "--gpus", "8", "-o", "other.json", cwd=folder)
    proof = harness.zplan("verify", "other.json", cwd=folder)
    tally.check("--machine in place of the file's cluster", plan.status == 0 and "8 x a100_80" in plan.out and proof.status == 0, plan.tail() + proof.tail())
    here = harness.zplan("--model", "gpt2-124m", "-o", "here.json", cwd=folder)
    text = json.loads(read(os.path.join(folder, "here.json")))["sources"][0]["text"]
    tally.check("a plan of this machine carries it", here.status == 0 and "planned for this machine" in here.err and "cluster this_machine" in text, here.tail())
    for verb, what, words, said in (("plan", "a model", ["--model", "llama3-8"], "did you mean `llama3-8b`?"),
                                    ("plan", "a machine", [example, "--machine", "dgxh100"], "did you mean `dgx-h100`?"),
                                    ("build", "two machines", [example, "--machine", "dgx2", "--cluster", "laptop"], "which of the two"),
                                    ("plan", "two models", ["--model", "gpt2-124m", "--model", "gpt2-355m"], "contradicts")):
        told = harness.zplan(verb, *words, cwd=folder)
        tally.check("%s that is not there" % what, told.status == 2 and said in told.err, told.tail())
    told = harness.zplan("run", "plan.json", "--machine", "dgx2", cwd=folder)
    tally.check("a plan has its machine", told.status == 1 and "Z0643" in told.err, told.tail())


def check_doctor(tally, folder):
    """A copy of the command alone, which measures no products; what a whole one says: tests/diff/products.py."""
    alone = os.path.join(folder, "zplan")
    shutil.copy(harness.ZPLAN, alone)
    bare = harness.run([alone, "doctor", "--json"], env={"PATH": folder, "CC": "cc", "CXX": "c++"})
    purposes = json.loads(bare.out)["result"]["purposes"]
    lines = {purpose["name"]: "ready" if purpose["ready"] else "%(missing)s: %(remedy)s" % purpose for purpose in purposes}
    tally.check("doctor: every purpose", list(lines) == ["plan", "calibrate", "CPU training", "several ranks", "GPU trainers", "GPU training", "emulated GPU"], bare.out)
    tally.check("doctor: what is missing, and how it comes here", lines.get("plan", "").startswith("no library: ") and
                "no C compiler: apt install gcc" in lines.get("CPU training", "") and "what it lacks" in lines.get("several ranks", ""), bare.out)
    told = harness.run([alone, "calibrate", "-t", "10", "-o", os.path.join(folder, "c.json")], cwd=folder)
    tally.check("calibrate in a copy that plans only", told.status == 1 and "is not there" in told.err and "doctor" in told.err, told.tail())


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    for part in (check_text, check_texts, check_fine_tune, check_catalogues, check_without_a_file, check_doctor):
        with harness.Scratch() as folder:
            part(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
