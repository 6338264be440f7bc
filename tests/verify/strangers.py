#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that a stranger wrote: what stands in them is printed, and neither obeyed nor compiled.

usage: strangers.py      (ZPLAN=path: another binary)

Strings: a model whose every path has each byte of ASCII, trigraphs, controls, what ends a string or a comment in some language, in a file with
such a name, is planned, exported, reported and built; the generated C is compiled with a program that prints its tables, so that they are
compared as the compiler has read them. Plan files that name their sources so, logs, configurations, tokenizers and weights with such names:
nothing that a terminal obeys is in any message. Pipes where files are expected, and numbers that no machine has memory for: an answer, soon.
"""
import base64
import hashlib
import html.parser
import json
import os
import re
import resource
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "interop"))
import harness  # noqa: E402
from recipe_file import read_recipe  # noqa: E402

EVIL = '??/",}; __attribute__((constructor)) static void ran(void) { puts("RAN"); } static const int x[] = {0, // x'
TRIGRAPHS = "".join("??" + c for c in "=/'()!<>-")
EVERY = "".join(chr(i) for i in range(1, 128) if chr(i) != "/")  # a name of a file has no slash
BEYOND = "\u00e9\u0085\u009b31m\u202e\u2028\U0001f600"
SHELL = "$(touch RAN)`touch RAN`';touch RAN;'\";touch RAN;\""
WORDS = {"data": EVERY + BEYOND, "validate": "v" + TRIGRAPHS + EVIL, "checkpoint": "x" + EVIL + SHELL, "log": "l*/ int y; /*" + EVERY + ".jsonl"}
# Escape sequences, controls of C1 (as characters and as bytes), marks that turn the direction of writing.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\udc80-\udcff]")


def is_sanitized():
    with open(harness.ZPLAN, "rb") as file:
        return b"__asan_init" in file.read()


def in_dz(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def tiny():
    with open(os.path.join(harness.ROOT, "tests", "fault", "tiny.dz"), encoding="utf-8") as file:
        return file.read().replace("../../examples/gpt2.dz", os.path.join(harness.ROOT, "examples", "gpt2.dz"))


def write(path, text):
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def zplan(folder, *words):
    """As harness.zplan, with the bytes that it printed: (status, out, err), what is no UTF-8 as lone surrogates."""
    done = subprocess.run([harness.ZPLAN, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)
    return done.returncode, done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode("utf-8", "surrogateescape")


def controls(text):
    return sorted({"%04x" % ord(c) for c in CONTROLS.findall(text)})


def check_quiet(tally, name, outcome):
    """Nothing of what it said is obeyed by a terminal."""
    found = controls(outcome[1] + outcome[2])
    tally.check("%s: a terminal obeys nothing" % name, not found, "%s in %r" % (found, (outcome[1] + outcome[2])[:400]))


# ---- strings of a model ----

# Prints the strings of the program table as the compiler has read them, each with a zero byte after it.
READER = r"""
#include <stdio.h>
#include <string.h>
#include <zplan/rt.h>
static void put(const char *text) { fwrite(text, 1, strlen(text) + 1, stdout); }
int zpr_main(int argc, char **argv, const zpr_program *p) {
  (void)argc, (void)argv;
  put(p->train.path), put(p->validate.path), put(p->checkpoint_dir), put(p->log_path);
  put(p->profile->steps[0].place);
  return 0;
}
"""


def evil_model():
    text = re.sub(r'data += text\("tiny.dz"', lambda m: "data = text(%s" % in_dz(WORDS["data"]), tiny())
    text = re.sub(r"checkpoint \{ dir = \"out\"", lambda m: "checkpoint { dir = %s" % in_dz(WORDS["checkpoint"]), text)
    more = "  validate { data = text(%s)  every = 5  batches = 1 }\n  log { jsonl = %s  every = 1 }\n" % (in_dz(WORDS["validate"]), in_dz(WORDS["log"]))
    return text[:text.rindex("}")] + more + "}\n"


def read_tables(tally, folder, tree, place):
    """The generated C, compiled as its Makefile does, with another zpr_main: no other code of it runs, and its strings are those of the model."""
    root, build = harness.ROOT, os.path.dirname(harness.ZPLAN)
    write(os.path.join(folder, "reader.c"), READER)
    sanitize = ["-fsanitize=address,undefined"] if is_sanitized() else []
    words = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", *sanitize, "-I", root + "/runtime/include", "-I", root + "/kernels/include",
             os.path.join(tree, "trainer.c"), "reader.c", os.path.join(tree, "kernels.o"), "-o", "reader", "-L", build + "/runtime", "-L", build + "/kernels",
             "-lzplanrt", "-lzplanrt_cpu", "-lzplanrt", "-lzplanrt_self", "-lzplan_kernels", "-lpthread", "-ldl", "-lm"]
    made = subprocess.run(words, cwd=folder, capture_output=True, check=False)
    if not tally.check("the generated C compiles without a warning", made.returncode == 0, made.stderr.decode(errors="replace")[:800]):
        return
    out = subprocess.run([os.path.join(folder, "reader")], capture_output=True, check=False, timeout=60).stdout.split(b"\0")
    want = [WORDS[name] for name in ("data", "validate", "checkpoint", "log")]
    for name, text, got in zip(WORDS, want, out):
        tally.check("C has the path of %s" % name, os.path.basename(got) == text.rsplit("/", 1)[-1].encode() and got.endswith(text.encode()), "%r" % got)
    tally.check("C has the place of a step", len(out) == 6 and out[4].decode().startswith(place), "%r" % out[4:])


def train(tally, folder, tree):
    """Two steps with those paths: data is found, log and checkpoint stand where the model says, and what is printed is quiet."""
    words = {name: os.path.normpath(os.path.join(folder, text)) for name, text in WORDS.items()}
    for name in ("data", "validate"):
        os.makedirs(os.path.dirname(words[name]), exist_ok=True)
        write(words[name], "a text to learn from " * 200)
    for options in ((), ("--resume",), ("--data", "no\x1b[31m\u009b\u202e\nerror: x")):
        done = subprocess.run([os.path.join(tree, "trainer"), "--steps", "2", *options], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=300, check=False)
        outcome = (done.returncode, done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode("utf-8", "surrogateescape"))
        check_quiet(tally, "a trainer %s" % " ".join(options[:1]), outcome)
        tally.check("a trainer %s ends as it should" % " ".join(options[:1]), outcome[0] == ("--data" in options), outcome[1] + outcome[2])
        tally.check("a trainer %s: no line of a path passes for one of ours" % " ".join(options[:1]), not re.search(r"^error: x", outcome[2], re.M), outcome[2])
    manifest = os.path.join(words["checkpoint"], "step_000002", "manifest.json")
    if tally.check("the checkpoint stands where the model says", os.path.isfile(manifest)):
        data = json.load(open(manifest, encoding="utf-8"))["data"]
        tally.check("its manifest names the data", os.path.basename(data["path"]) == os.path.basename(words["data"]), data["path"])
        with open(manifest, encoding="utf-8", errors="surrogateescape") as file:
            nasty = "none\\u001b[31m\u009b\u202e"
            lines = re.sub(r'("optimizer": ")[^"]*', lambda found: found[1] + nasty, file.read()).splitlines(keepends=True)
        body = "".join(lines[:-2]).encode("utf-8", "surrogateescape")
        with open(manifest, "wb") as file:
            file.write(body + ('  "sha256": "%s"\n}\n' % hashlib.sha256(body).hexdigest()).encode())
        done = subprocess.run([os.path.join(tree, "trainer"), "--steps", "3", "--resume"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=300, check=False)
        outcome = (done.returncode, done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode("utf-8", "surrogateescape"))
        tally.check("a changed setting of a checkpoint is reported", outcome[0] == 0 and "optimizer has changed" in outcome[2], outcome[2])
        check_quiet(tally, "settings of a checkpoint", outcome)
    steps, _ = harness.read_log(words["log"]) if os.path.isfile(words["log"]) else ([], None)
    tally.check("the log stands where the model says", any(step.get("step") == 2 for step in steps))


def check_strings(tally, folder):
    name = "evil*??/" .replace("/", "") + '\x1b[31m"$(touch RAN)\'\\*\u009b.dz'
    write(os.path.join(folder, name), evil_model())
    path = "./" + name
    for words in (("check",), ("plan", "--ranks", "2"), ("explain",)):
        outcome = zplan(folder, *words[:1], path, *words[1:])
        tally.check("zplan %s" % words[0], outcome[0] == 0, outcome[2])
        check_quiet(tally, "zplan %s" % words[0], outcome)
    tree = os.path.join(folder, 'tree"\x1b$(touch RAN)')
    outcome = zplan(folder, "build", path, "--ranks", "1", "--profile", "-o", tree)
    check_quiet(tally, "zplan build", (0, "", outcome[2]))  # its output is the trainer's path, for scripts
    if tally.check("zplan build", outcome[:2] == (0, os.path.join(tree, "trainer\n")), outcome[2]):
        read_tables(tally, folder, tree, name)
        train(tally, folder, tree)
        text = open(os.path.join(tree, "trainer.c"), encoding="utf-8").read()
        tally.check("generated C is ASCII without controls", text.isascii() and not controls(text), " ".join(controls(text)))
        tally.check("the plan alongside it is JSON without controls", is_json(os.path.join(tree, "plan.json")))
        shutil.rmtree(tree)
    check_outputs(tally, folder, path)
    tally.check("nothing ran", not [n for n in os.listdir(folder) if n.startswith("RAN")])


def is_json(path):
    text = open(path, encoding="utf-8", newline="").read()
    return json.loads(text) is not None and not controls(text)


class Reader(html.parser.HTMLParser):
    """The elements of a page, all attributes that it has, and what stands in its scripts."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.inside = set(), set(), [], False

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append([dict(attrs).get("type"), ""])

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1][1] += data


def check_outputs(tally, folder, path):
    """Plan, page, trace and batch script; the script is read by bash, which must find the folder of checkpoints as one word."""
    outcome = zplan(folder, "plan", path, "--ranks", "2", "-o", "p.json")
    if not tally.check("writes a plan", outcome[0] == 0, outcome[2]):
        return
    tally.check("the plan file is JSON without controls", is_json(os.path.join(folder, "p.json")))
    outcome = zplan(folder, "verify", "p.json")
    tally.check("the plan verifies", outcome[0] == 0, outcome[2])
    outcome = zplan(folder, "report", "p.json", "--html", "r.html", "--trace", "t.json")
    check_quiet(tally, "zplan report", outcome)
    tally.check("zplan report", outcome[0] == 0 and is_json(os.path.join(folder, "t.json")), outcome[2])
    reader = Reader()
    reader.feed(open(os.path.join(folder, "r.html"), encoding="utf-8").read())
    tally.check("the page has elements of ours alone", "main" in reader.tags and not reader.tags & {"img", "x"} and
                not [name for name in reader.attributes if name.startswith("on")], "%s %s" % (reader.tags, reader.attributes))
    (kind, data), (other_kind, script) = (reader.scripts + [[None, ""]] * 2)[:2]
    tally.check("its scripts are the data and ours", len(reader.scripts) == 2 and kind == "application/json" and other_kind is None)
    tally.check("the data are JSON without tags and controls", json.loads(data)["kind"] == "plan" and "<" not in data and not controls(data))
    policy = open(os.path.join(folder, "r.html"), encoding="utf-8").read()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    tally.check("its policy lets our script alone run", "default-src 'none'" in policy and "script-src 'sha256-%s'" % digest in policy)
    outcome = zplan(folder, "export", "slurm", "p.json", "-o", "job.sh")
    check_quiet(tally, "zplan export slurm", outcome)
    if tally.check("zplan export slurm", outcome[0] == 0, outcome[2]):
        script = open(os.path.join(folder, "job.sh"), encoding="utf-8").read()
        tally.check("the script has no controls", not controls(script), " ".join(controls(script)))
        asks = re.search(r"\[ ! -e (.*) \] \|\| set", script)
        words = subprocess.run(["bash", "-c", "printf '%%s\\0' %s" % asks[1]], cwd=folder, capture_output=True, check=False).stdout
        tally.check("bash reads the folder of checkpoints", words.endswith((WORDS["checkpoint"] + "/latest\0").encode()), "%r" % words)
        tally.check("the script is one for bash", subprocess.run(["bash", "-n", "job.sh"], cwd=folder, check=False).returncode == 0)


# ---- names in other files ----

NASTY = "n\x1b]0;title\x07\x1b[31m\x7f\u009b32m\u202e\nerror: x"


def foreign_files(folder):
    """(words of a command, files that it reads) with nasty names where a name can stand. Most are refused, with a message."""
    def put(name, text):
        return write(os.path.join(folder, name), text if isinstance(text, (bytes, str)) else json.dumps(text, ensure_ascii=False))

    plan = json.load(open(os.path.join(folder, "p.json"), encoding="utf-8"))
    bert = {"model_type": "bert", "hidden_size": NASTY, "vocab_size": 7, NASTY: 1}
    gpt = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 256, "activation_function": NASTY}
    header = json.dumps({NASTY: {"dtype": NASTY, "shape": [2], "data_offsets": [0, 8]}}, ensure_ascii=False).encode()
    put("plain.dz", tiny())
    os.makedirs(os.path.join(folder, "hf"))
    put("hf/config.json", {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 256})
    put("hf/model.safetensors", len(header).to_bytes(8, "little") + header + bytes(8))
    put("weights.dz", tiny().replace("  seed      = 3", '  seed      = 3\n  init      = weights("hf")'))
    os.makedirs(os.path.join(folder, "ck", "step_000001"))
    put("ck/latest", "step_000001\n")
    put("ck/step_000001/manifest.json", {"format": "zplan-checkpoint", "version": 1, "model": NASTY, "step": 1, NASTY: NASTY})
    put("ck/step_000001/plan.json", dict(plan, sources=[{"path": NASTY, "text": tiny() + NASTY}]))
    names = dict(plan, sources=[dict(s, path=NASTY + str(i)) for i, s in enumerate(plan["sources"])])
    stages = json.loads(json.dumps(plan).replace('"h"', json.dumps(NASTY)))
    yield from (
        (("check", put("a.dz", "model %s {\n" % NASTY)),), (("check", put("b.dz", 'use "%s"\n' % NASTY.replace("\n", "\\n"))),),
        (("check", put("c.dz", tiny().replace('precision = "fp32"', 'precision = "%s"' % NASTY.replace("\n", "\\n")))),),
        (("check", put("d.dz", tiny().replace("d = 32", "d = 32\u009b31m, \x1b[31m"))),), (("check", put("e.dz", b"model \xff\x9b31m {\n")),),
        (("verify", put("names.json", names)),), (("verify", put("stages.json", stages)),), (("diff", "p.json", "stages.json"),),
        (("compare", "p.json", "stages.json"),), (("report", put("hash.json", dict(plan, plan_hash=NASTY, schedule=NASTY))),),
        (("verify", put("options.json", dict(plan, options=["--" + NASTY, NASTY]))),), (("verify", put("version.json", dict(plan, format_version=NASTY))),),
        (("report", "p.json", "--log", put("log.jsonl", '{"step": 1, "loss": "%s"}\n{"event": "%s"}\n%s\n' % (NASTY, NASTY, NASTY))),),
        (("import", "hf", put("bert.json", bert)),), (("import", "hf", put("gpt.json", gpt)),), (("import", "hf", put("type.json", {"model_type": NASTY})),),
        (("import", "nccl", put("top.xml", '<system version="1"><cpu numaid="0"><pci busid="%s" class="x\u009b"/></cpu></system>' % "\u202e\u009b")),),
        (("import", "slurm", put("job.sh", "#!/bin/bash\n#SBATCH --nodes=%s\n#SBATCH --gres=gpu:%s:8\n" % (NASTY, NASTY))),),
        (("plan", "weights.dz", "--ranks", "1"),), (("build", "weights.dz", "--ranks", "1", "-o", "w"),),
        (("data", "plain.dz", "-o", "o.bin", "--tokenizer", put("tokenizer.json", {"model": {"type": NASTY, "vocab": {NASTY: 1}}, "normalizer": {"type": NASTY}})),),
        (("data", "table", put("t.csv", 'a,"%s"\n1,"%s"\n' % (NASTY, NASTY)), "-o", "t"),), (("data", "jsonl", put("j.jsonl", '{"%s": 1}\n{"\n' % NASTY), "-o", "j"),),
        (("validate", put("runs.csv", 'name,%s\n%s,1\n' % (NASTY, NASTY))),), (("export", "hf", "ck", "-o", "out"),), (("eval", "ck", "--data", "plain.dz"),),
        (("plan", "plain.dz", "--calibration", put("cal.json", {"format": NASTY, "rows": [], NASTY: 1})),), (("sample", "ck", "--prompt", "x"),),
        (("check", "plain.dz", "--set", "train.%s=1" % NASTY),), (("plan", "plain.dz", "--model", NASTY),), ((NASTY,),), (("plan", NASTY),),
    )


def check_foreign(tally, folder):
    for words, in foreign_files(folder):
        for form in ("human", "json"):
            outcome = zplan(folder, *words, "--message-format", form)
            name = "zplan %s" % " ".join(word.rsplit("/", 1)[-1] for word in words)[:40].translate({c: "_" for c in range(32)})
            check_quiet(tally, name, outcome)
            tally.check("%s: has an answer" % name, outcome[0] in (0, 1, 2, 3, 4, 8), "%d %s" % (outcome[0], outcome[2]))
            tally.check("%s: no line of a file passes for one of ours" % name, not re.search(r"^error: x", outcome[1] + outcome[2], re.M), outcome[2])


# ---- pipes and numbers ----

SECONDS = 20  # of processor time, and of waiting for one that waits


def limited(folder, *words):
    """Within 3 GB and SECONDS: (status, output)."""
    sanitized = is_sanitized()

    def limit():
        if not sanitized:
            resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    try:
        done = subprocess.run([harness.ZPLAN, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=6 * SECONDS, check=False,
                              preexec_fn=limit)
    except subprocess.TimeoutExpired:
        return 124, "waits"
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


def check_pipes(tally, folder):
    """A pipe that nobody writes to, where a file is expected: a message. What a shell has opened for the command is read."""
    place = os.path.join(folder, "pipes")
    os.makedirs(os.path.join(place, "hf"))
    for name in ("pipe", "pipe.dz", "pipe.json", "pipe.csv", "hf/config.json", "hf/model.safetensors"):
        os.mkfifo(os.path.join(place, name))
    write(os.path.join(place, "use.dz"), 'use "pipe"\n')
    write(os.path.join(place, "plain.dz"), tiny())
    write(os.path.join(place, "weights.dz"), tiny().replace("  seed      = 3", '  seed      = 3\n  init      = weights("hf")'))
    for words in (("check", "use.dz"), ("check", "pipe.dz"), ("verify", "pipe.json"), ("fmt", "pipe.dz"), ("validate", "pipe.csv"),
                  ("import", "hf", "pipe.json"), ("import", "nccl", "pipe"), ("import", "slurm", "pipe"), ("report", "../p.json", "--log", "pipe"),
                  ("plan", "plain.dz", "--ranks", "1", "--calibration", "pipe"), ("data", "plain.dz", "-o", "o.bin", "--tokenizer", "pipe"),
                  ("build", "weights.dz", "--ranks", "1", "-o", "t"), ("export", "hf", "hf", "-o", "e"), ("eval", "hf", "--data", "plain.dz"),
                  ("plan", "plain.dz", "--calibration", "/dev/tty"), ("check", "/dev/zero")):
        status, out = limited(place, *words)
        tally.check("zplan %s does not wait for a pipe" % " ".join(words), status == 1 and "error" in out, "%d %s" % (status, out))
    os.makedirs(os.path.join(place, "files"))
    shutil.copy(os.path.join(folder, "hf", "config.json"), os.path.join(place, "files"))
    os.mkfifo(os.path.join(place, "files", "model.safetensors"))
    status, out = limited(place, "run", "plain.dz", "--ranks", "1", "-o", "t", "--no-checkpoint", "--init", "files", "--set", "data=synthetic(seed = 1)")
    tally.check("weights in a pipe", status == 1 and "it is no regular file" in out, "%d %s" % (status, out))
    read = subprocess.run(["bash", "-c", '"$0" check <(cat plain.dz) && "$0" import hf /dev/stdin < <(cat ../hf/config.json)', harness.ZPLAN], cwd=place,
                          capture_output=True, check=False, timeout=60)
    tally.check("pipes of a shell are read", read.returncode == 0 and b"model gpt2" in read.stdout, read.stderr.decode())


def check_numbers(tally, folder):
    """A number of any size, anywhere: an answer within the memory and the time that are given."""
    text = tiny() + "cluster gpus {\n  nodes = 4\n  node  = std.hw.dgx_a100\n}\n"
    for key in ("layers = 3", "S = 32", "V = 256", "d = 32", "heads = 2", "batch     = 8", "steps     = 1000000", "nodes = 4"):
        for number in (10 ** 9, 2 ** 31, 10 ** 12, 9 * 10 ** 18):
            name = key.split()[0]
            write(os.path.join(folder, "big.dz"), text.replace(key, "%s = %d" % (name, number)))
            status, out = limited(folder, "plan", "big.dz", "--cluster", "gpus", "--gpus", "8", "--set", "tensor=1", "--set", "pipeline=1")
            good = status in (0, 1, 3) and "out of memory" not in out
            tally.check("%s = %d has an answer" % (name, number), good, "%d %s" % (status, out))


def check_exports(tally, folder):
    """Settings for Megatron-LM as bash reads them, for DeepSpeed and Megatron-Bridge as Python does."""
    gpus = "cluster gpus {\n  nodes = 1\n  node  = std.hw.dgx_a100\n}\n"
    for name, dir_, want in (("evil", None, WORDS["checkpoint"]), ("dash", "--foo", "./--foo")):
        text = evil_model() if dir_ is None else tiny().replace('dir = "out"', 'dir = "%s"' % dir_)
        write(os.path.join(folder, "gpu.dz"), text + gpus)
        outcome = zplan(folder, "export", "megatron", "gpu.dz", "--cluster", "gpus", "--gpus", "2", "-o", "args.sh")
        check_quiet(tally, "zplan export megatron", outcome)
        words = subprocess.run(["bash", "-c", 'source ./args.sh; printf "%s\\0" "${MEGATRON_ARGS[@]}"'], cwd=folder, capture_output=True, check=False).stdout
        words = words.decode().split("\0")
        good = outcome[0] == 0 and "--save" in words and words[words.index("--save") + 1] == want
        tally.check("bash reads the folder of checkpoints for Megatron-LM (%s)" % name, good, outcome[2] + " ".join(words))
        outcome = zplan(folder, "export", "megatron-bridge", "gpu.dz", "--cluster", "gpus", "--gpus", "2", "-o", "recipe.py")
        check_quiet(tally, "zplan export megatron-bridge", outcome)
        if tally.check("export megatron-bridge (%s)" % name, outcome[0] == 0, outcome[2]):
            with open(os.path.join(folder, "recipe.py"), encoding="utf-8") as file:
                saved = read_recipe(file.read())[0]["checkpoint"][1]["save"]
            tally.check("Python reads the folder of checkpoints for Megatron-Bridge (%s)" % name, saved == (want if dir_ is None else dir_), saved)
    outcome = zplan(folder, "export", "deepspeed", "gpu.dz", "--cluster", "gpus", "--gpus", "2", "-o", "ds.json")
    check_quiet(tally, "zplan export deepspeed", outcome)
    tally.check("settings for DeepSpeed are JSON", outcome[0] == 0 and is_json(os.path.join(folder, "ds.json")), outcome[2])
    tally.check("no export ran anything", not [n for n in os.listdir(folder) if n.startswith("RAN")])


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_strings(tally, folder)
        check_foreign(tally, folder)
        check_exports(tally, folder)
        check_pipes(tally, folder)
        check_numbers(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
