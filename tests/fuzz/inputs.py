#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged inputs of every kind: models, plan files, run tables, calibrations, configurations of Hugging Face, topologies, jobs,
tokenizers, logs and command lines through the code of the command (tests/fuzz/inputs.c), checkpoints, token files and
arrays through a trainer. Whatever they hold, the program ends by itself within its limits, with a documented status, and says what is wrong.

    inputs.py [--seconds N] [--seed N] [--only NAME] [--keep FOLDER] [--jobs N]

--seconds is elapsed time of all kinds together (default 100; two jobs). Takes what build/dev has: sanitizers see more. An input that fails
is printed with its seed and kept in FOLDER; what is in tests/fuzz/kept-inputs/ must pass, in every run.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "interop"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))
os.environ.setdefault("ZPLAN", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "dev", "zplan"))
import harness  # noqa: E402
import nccl  # noqa: E402

FUZZER = os.path.join(os.path.dirname(harness.ZPLAN), "tests", "fuzz_inputs")
TESTS = os.path.dirname(HERE)
EXAMPLES = os.path.join(harness.ROOT, "examples")
KEPT = os.path.join(HERE, "kept-inputs")
HEADER_ROWS = 6

SLURM = ("SLURM_JOB_NUM_NODES=4\nSLURM_JOB_NODELIST=gnode[010,020,025-026]\nSLURM_GPUS_PER_NODE=a100:8\nSLURM_JOB_CPUS_PER_NODE=128(x4)\n",
         "JobId=7 JobName=x\n   NumNodes=2 NumCPUs=64 NumTasks=16\n   NodeList=n[1-2]\n   TresPerNode=gres/gpu:h100:8\n",
         "NodeName=n1 Arch=x86_64\n   CPUTot=128 RealMemory=512000 State=IDLE\n   Gres=gpu:a100:8(S:0-1)\n")
COMMANDS = (
    "plan @1 --gpus 4 --top 3 --json -o @4", "@1 --gpus 2 --set tensor=2 --set zero<=1 -o @4", "check @1 --json", "fmt --check @1",
    "verify @2", "report @2 --html @4 --trace @5", "explain @2 --why-not tensor=2", "compare @2 @2 --json", "diff @2 @2", "validate @3 --json",
    "explain Z0601", "export megatron @1 --gpus 4", "export deepspeed @2", "doctor", "completion bash", "--version", "help plan",
    "plan @1 --gpus 16384 --nodes 2 --cluster laptop", "import hf @2 -o @4", "data @1 -o @4", "plan @1 --set model.layers=3 --set batch=8",
    "plan @1 --gpus 8 --set memory<=50%", "report @2 --log @3", "import nccl @2", "plan @1 --dump-after lower --gpus 2")


def read(path, mode="rb"):
    with open(path, mode) as file:
        return file.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def trains():
    """The command whose trainers read what is damaged: the one under test, unless its build has a third of the tests and so no
    runtime, or an older one (ZPLAN_SANITIZED)."""
    cache = os.path.join(os.path.dirname(harness.ZPLAN), "CMakeCache.txt")
    third = re.search(r"^ZPLAN_SANITIZED:STRING=(planner|codegen|runtime)$", read(cache, "r"), re.M) if os.path.exists(cache) else None
    return os.path.join(harness.ROOT, "build", "release", "zplan") if third else harness.ZPLAN


def example(name):
    return os.path.join(EXAMPLES, name)


class Kinds:
    """What is damaged: (name, command line with @ for the damaged file, seed files)."""

    def __init__(self, folder):
        self.folder = folder
        models = [example(name) for name in ("gpt_tiny.dz", "llama_tiny.dz", "moe_tiny.dz", "gpt2.dz", "gpt_long.dz")]
        tiny = write(self.path("tiny.dz"), read(os.path.join(TESTS, "golden", "errors", "common", "tiny.dz")))
        plans = [self.plan(name, ranks) for name, ranks in (("gpt_tiny.dz", 2), ("moe_tiny.dz", 2), ("gpt_tiny_gpu.dz", 2))]
        table = b"".join(read(os.path.join(TESTS, "data", "published_runs.csv")).splitlines(True)[:HEADER_ROWS])
        table = write(self.path("runs.csv"), table)
        text = write(self.path("text"), "whatever is in them, the command ends by itself\n" * 20)
        rows = write(self.path("rows"), "".join('{"a": {"t": "row %d"}, "n": [%d, null, 1e3], "t": "\\u00e4 \\"so\\""}\n' % (i, i) for i in range(6)))
        cells = write(self.path("cells"), 'n,t\r\n1,"a ""b"", c"\r\n2,d\r\n' * 4)
        log = write(self.path("log"), '{"event":"begin","ranks":2}\n' + "".join(
            '{"step":%d,"loss":%g,"grad_norm":1.5,"lr":0.001,"step_ms":12.5,"tokens_per_s":1e4,"mfu":0.3,"device_peak_bytes":4096}\n'
            % (i, 5 - 0.1 * i) for i in range(1, 9)) + '{"event":"end"}\n')
        hf = [os.path.join(TESTS, "interop", "hf", name) for name in sorted(os.listdir(os.path.join(TESTS, "interop", "hf")))]
        topologies = [write(self.path("topology%d" % i), t) for i, t in enumerate((nccl.mesh(), nccl.pairs(), nccl.dgx_a100()))]
        tokenizers = os.path.join(TESTS, "interop", "tokenizers")
        tokenizers = [os.path.join(tokenizers, name) for name in sorted(os.listdir(tokenizers))
                      if name.endswith(".json") and os.path.getsize(os.path.join(tokenizers, name)) < 60000 and "cases" not in name]
        jobs = [write(self.path("job%d" % i), job) for i, job in enumerate(SLURM)]
        lines = [write(self.path("line%d" % i), line) for i, line in enumerate(COMMANDS)]
        calibration = os.path.join(TESTS, "golden", "errors", "common", "measured.json")
        out, other = self.path("out"), self.path("other")
        limits = ("--set", "pipeline<=2", "--set", "microbatch<=2")
        self.all = [
            ("check", ("check", "@"), models + [example("mixtral_8x7b.dz"), example("gpt1t.dz")]),
            ("format", ("fmt", "--check", "@"), models),
            ("plan", ("plan", "@", "--ranks", "2") + limits, [tiny, example("gpt_tiny.dz"), example("moe_tiny.dz")]),
            ("plan-gpus", ("plan", "@", "--gpus", "4", "--json") + limits, [example("gpt_tiny_gpu.dz")]),
            ("verify", ("verify", "@"), plans),
            ("report", ("report", "@", "--html", out, "--trace", other), plans),
            ("compare", ("compare", "@", plans[0]), plans),
            ("explain", ("explain", "@"), plans),
            ("log", ("report", plans[0], "--log", "@"), [log]),
            ("runs", ("validate", "@", "--json"), [table]),
            ("calibration", ("plan", example("gpt_tiny.dz"), "--ranks", "2", "--calibration", "@"), [calibration]),
            ("hf", ("import", "hf", "@", "-o", out), hf),
            ("nccl", ("import", "nccl", "@", "-o", out), topologies),
            ("slurm", ("import", "slurm", "@", "-o", out), jobs),
            ("tokenizer", ("data", "--tokenizer", "@", text, "-o", out), tokenizers),
            ("jsonl", ("data", "jsonl", "@", "--field", "a.t", "-o", out), [rows]),
            ("table", ("data", "table", "@", "--field", "t", "-o", out), [table, cells]),
            ("words", (tiny, plans[0], table, out, other), lines),
        ]

    def path(self, name):
        return os.path.join(self.folder, name)

    def plan(self, name, ranks):
        path = self.path(name + ".plan.json")
        done = harness.zplan(example(name), "--gpus", ranks, "-o", path)
        if done.status:
            sys.exit("cannot plan %s: %s" % (name, done.tail()))
        return path


def fuzz(kind, seconds, seed, kept, folder):
    name, words, seeds = kind
    scratch = os.path.join(folder, "in-" + name)
    os.makedirs(scratch, exist_ok=True)
    done = harness.run([FUZZER, seed, seconds, kept, name, *words, "--", *seeds], cwd=scratch, timeout=seconds + 300)
    return name, done


# ---- kept inputs ----

def check_kept(tally, kinds):
    """Inputs that once failed: KIND-anything."""
    for name in sorted(os.listdir(KEPT)) if os.path.isdir(KEPT) else ():
        kind = next((k for k in sorted(kinds.all, key=lambda k: -len(k[0])) if name.startswith(k[0] + "-")), None)
        path = os.path.join(KEPT, name)
        if kind[0] == "words":
            known = dict(("@%d" % (i + 1), word) for i, word in enumerate(kind[1]))
            words = [known.get(word, word) for word in read(path).decode("utf-8", "replace").split(" ") if word]
        else:
            words = [path if word == "@" else word for word in kind[1]]
        done = harness.zplan(*words, timeout=60, cwd=kinds.folder)
        tally.check("kept " + name, is_answer(done, range(5)), "exit %s: %s" % (done.status, done.tail()))


def is_answer(done, statuses):
    told = done.status not in (1, 2) or "error" in done.err or "zplan" in done.err
    return done.status in statuses and told and "Sanitizer" not in done.err and "runtime error" not in done.err


# ---- what trainers read ----

def damage_bytes(rng, data):
    """Bits, numbers of 2, 4 and 8 bytes, digits of text, cuts and repetitions."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(min(len(data), rng.choice((64, 2048, len(data)))) or 1) if data else 0
        kind = rng.randrange(6)
        if not data:
            return b""
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            width, code = rng.choice(((2, "<H"), (4, "<I"), (8, "<Q")))
            value = rng.choice((0, 1, 2, 7, 2**15, 2**31 - 1, 2**31, 2**63 - 1, 2**64 - 1, 10**9)) % (1 << 8 * width)
            data[at:at + width] = struct.pack(code, value)
        elif kind == 2:
            digits = [i for i in range(at, min(at + 300, len(data))) if 48 <= data[i] < 58]
            if digits:
                data[digits[0]:digits[0] + 1] = rng.choice((b"0", b"9", b"99999999999999999999", b"-1", b"1e30"))
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            del data[at:at + rng.randrange(64)]
        else:
            data[at:at] = data[at:at + rng.randrange(512)]
    return bytes(data)


# What a trainer reads, and the files of it.
DATA = {"tokens.bin": ("tokens.bin",), "set.idx": ("set.idx", "set.bin"), "images": ("images/images.npy", "images/labels.npy")}


class Trainer:
    """A small model, trained for two steps; its checkpoint and its data."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "trainer")
        os.makedirs(self.folder)
        self.model = self.path("tiny.dz")
        write(self.path("tokens.bin"), struct.pack("<3i", 20240520, 1, 2000).ljust(1024, b"\0") + bytes(
            b for i in range(2000) for b in (i * 37 % 256, 0)))
        ids, lengths = 2000, [100] * 20
        write(self.path("set.bin"), bytes(b for i in range(ids) for b in (i * 41 % 256, 0)))
        write(self.path("set.idx"), b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1) +
              struct.pack("<20i", *lengths) + struct.pack("<20q", *range(0, 4000, 200)) + struct.pack("<21q", *range(21)))
        shutil.copytree(os.path.join(TESTS, "torch", "images"), self.path("images"))
        self.results = {}
        for data in DATA:
            self.write_model(data)
            done = harness.run((trains(), "run", self.model, "--ranks", "1", "--steps", "2", "-o", self.path("out-" + data), "--", "--checkpoint",
                                self.path("ck-" + data)))
            if done.status:
                sys.exit("cannot train: %s" % done.tail())

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_model(self, data):
        if data == "images":  # bytes: damaged ones are numbers from 0 to 1 all the same
            write(self.model, read(os.path.join(TESTS, "torch", "vit.dz"), "r").replace('"images"', '"%s"' % self.path(data)))
            return
        text = read(os.path.join(TESTS, "fault", "tiny.dz"), "r").replace("../../examples", EXAMPLES)
        write(self.model, text.replace('text("tiny.dz", order = "shuffled")', 'tokens("%s")' % self.path(data)))

    def binary(self, data):
        out = self.path("out-" + data)
        return next(os.path.join(out, name) for name in sorted(os.listdir(out)) if os.access(os.path.join(out, name), os.X_OK)
                    and os.path.isfile(os.path.join(out, name)))

    def try_one(self, rng):
        """A copy of a checkpoint with one file damaged, resumed; or damaged data, from the start."""
        data, now = rng.choice(sorted(DATA)), self.path("ck-now")
        shutil.rmtree(now, ignore_errors=True)
        resumes = rng.randrange(3) > 0
        if resumes:
            shutil.copytree(self.path("ck-" + data), now, symlinks=True)
            victims = [os.path.join(where, name) for where, _, names in os.walk(now) for name in sorted(names)]
            victims = [name for name in victims if not os.path.islink(name)]
        else:
            victims = [self.path(name) for name in DATA[data]]
        victim = rng.choice(victims)
        sound = read(victim)
        damaged = damage_bytes(rng, sound)
        write(victim, damaged)
        done = harness.run([self.binary(data), "--steps", "3", "--checkpoint", now] + ["--resume"] * resumes, timeout=60, cwd=self.folder,
                           env={"ASAN_OPTIONS": "detect_leaks=0"})  # it ends in the middle of work, alongside threads that go on
        write(victim, sound)
        return os.path.basename(victim), damaged, done


def fuzz_trainer(tally, seconds, seed, kept, folder):
    trainer, rng, runs, failed = Trainer(folder), random.Random(seed), 0, 0
    end = harness.time.monotonic() + seconds
    while harness.time.monotonic() < end and failed < 20:
        name, damaged, done = trainer.try_one(rng)
        runs += 1
        if is_answer(done, (0, 1, 7)):  # 7: damaged weights that pass the check sum do not exist, damaged data may diverge
            continue
        failed += 1
        path = write(os.path.join(kept, "trainer-%d-%d-%s" % (seed, runs, name)), damaged)
        print("FAIL trainer: exit %s: %s: %s" % (done.status, path, done.tail()))
    tally.check("trainer, seed %d" % seed, runs > 0 and not failed, "%d of %d runs" % (failed, runs))
    return runs


# ---- all ----

def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--keep", default=os.path.join(harness.ROOT, "build", "fuzz-findings"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--corpora", help="copy the seeds of the kinds that are named (default: all of files) there, print command lines")
    parser.add_argument("kinds", nargs="*")
    return parser.parse_args()


def write_corpora(folder, kinds):
    """For libfuzzer.sh: FOLDER/KIND/seeds, and FOLDER/files for what the command lines name."""
    files = os.path.abspath(os.path.join(folder, "files"))
    os.makedirs(files, exist_ok=True)
    for name, words, seeds in Kinds(files).all:
        if "@" not in words or (kinds and name not in kinds):
            continue
        to = os.path.join(folder, name, "seeds")
        os.makedirs(to, exist_ok=True)
        for i, seed in enumerate(seeds):
            shutil.copy(seed, os.path.join(to, str(i)))
        print("%s|%s" % (name, " ".join(words)))


def main():
    harness.require_zplan()
    options, tally = arguments(), harness.Tally()
    if options.corpora:
        return write_corpora(options.corpora, options.kinds)
    os.makedirs(options.keep, exist_ok=True)
    runs = 0
    with harness.Scratch() as folder:
        kinds = Kinds(folder)
        chosen = [kind for kind in kinds.all if options.only in (None, kind[0])]
        trains = options.only in (None, "trainer")
        check_kept(tally, kinds)
        each = options.seconds * options.jobs / (len(chosen) + trains)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            waiting = [pool.submit(fuzz, kind, each, options.seed, options.keep, folder) for kind in chosen]
            if trains:
                runs += fuzz_trainer(tally, each, options.seed, options.keep, folder)
            for future in waiting:
                name, done = future.result()
                last = (done.out.strip().splitlines() or [""])[-1]
                count = int(last.split()[0]) if "runs" in last else 0
                runs += count
                print("%-12s seed %d  %s" % (name, options.seed, last), flush=True)
                tally.check("%s, seed %d" % (name, options.seed), done.status == 0 and count > 0, done.tail(25))
    print("%d damaged inputs, seed %d; findings in %s" % (runs, options.seed, options.keep))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
