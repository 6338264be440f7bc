#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input and bad luck while training: each gives one clear message and a documented exit status, nothing is left
half-written, nothing hangs.

    faults.py [TEXT]      only the tests whose name holds TEXT
"""
import contextlib
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

MODEL = os.path.join(HERE, "tiny.dz")
LAYOUTS = {1: (1, 1), 2: (1, 2), 4: (2, 2)}  # ranks: (tensor, pipeline)
SEVERAL = (1, 2)  # ranks of what one rank or all of them find: by turns one of these, in every second test the other
ERROR, USAGE, INFEASIBLE, FAILED, MEMORY, NO_TOOL = 1, 2, 3, 5, 8, 127  # driver/README.md
STOP_SECONDS = 120  # a time-out, not a measurement: what ends at all ends within about a second
MOST_LINES = 6  # on stderr: the plan, the error with its help, the count of errors


class Bench:
    """The folder of one test: trees are shared by all tests, the rest is new for each."""

    def __init__(self, tally, folder):
        self.tally, self.folder, self.name, self.number, self.several = tally, folder, "", 0, SEVERAL

    def path(self, *parts):
        return os.path.join(self.folder, "test", *parts)

    def begin(self, number, name):
        self.number, self.name = number, name
        self.several = [ranks for i, ranks in enumerate(SEVERAL) if harness.my_turn(number + i, len(SEVERAL))]
        shutil.rmtree(self.path(), ignore_errors=True)
        os.makedirs(self.path())

    def check(self, what, good, detail=""):
        return self.tally.check("%s: %s" % (self.name, what), good, detail)

    def run_command(self, ranks, steps, extra=(), trainer=(), model=()):
        """A run that is not to be resumed takes the place of the one before it in the same test."""
        tensor, pipeline = LAYOUTS[ranks]
        command = [harness.ZPLAN, "run", MODEL, "--ranks", ranks, "-o", os.path.join(self.folder, "tree%d" % ranks),
                   "--set", "tensor=%d" % tensor]
        if not any(setting.startswith("pipeline=") for setting in model):
            command += ["--set", "pipeline=%d" % pipeline]
        for setting in model:
            command += ["--set", setting]
        if "--resume" not in extra and "--keep" not in extra:
            command += ["--overwrite"]
        command += ["--steps", steps, *(word for word in extra if word != "--keep"), "--", "--checkpoint", self.path("ck"), *trainer]
        return [str(word) for word in command]

    def train(self, ranks, steps, extra=(), trainer=(), model=(), **keywords):
        return harness.run(self.run_command(ranks, steps, extra, trainer, model), **keywords)

    def expect(self, outcome, status, *words):
        """The status, all the words, and exactly one error line."""
        self.check("exit status %d" % status, outcome.status == status, "it was %d\n%s" % (outcome.status, outcome.tail()))
        for word in words:
            self.check('says "%s"' % word, word in outcome.err, outcome.tail())
        errors = [line for line in outcome.err.splitlines() if line.startswith("error[")]
        self.check("one message", len(errors) == 1, "%d:\n%s" % (len(errors), outcome.tail(12)))
        lines = outcome.err.splitlines()
        screen = max((i + 1 for i, line in enumerate(lines) if line.startswith("~ estimated")), default=0)  # what the run says that it does
        self.check("and little else", len(lines) - screen <= MOST_LINES, outcome.err)

    def expect_nothing_half_written(self, *complete):
        """In the checkpoint folder: the named steps and nothing else, hidden leftovers included."""
        found = sorted(os.listdir(self.path("ck"))) if os.path.isdir(self.path("ck")) else []
        wanted = sorted(["latest"] + ["step_%06d" % step for step in complete]) if complete else []
        self.check("nothing half-written", found == wanted, "found %s, not %s" % (found, wanted))


    def expect_no_process(self, what, session):
        """Soon: who was killed still has to be scheduled to end."""
        limit = time.monotonic() + STOP_SECONDS
        while harness.in_session(session) and time.monotonic() < limit:
            time.sleep(0.1)
        self.check(what, not harness.in_session(session), "%s" % harness.in_session(session))


# ---- data ----

def write_shard(path, tokens, count=None):
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, len(tokens) if count is None else count, *[0] * 253))
        file.write(struct.pack("<%dH" % len(tokens), *tokens))
    return path


def data_missing(b):
    for ranks in b.several:
        outcome = b.train(ranks, 5, trainer=("--data", b.path("no_such.bin")))
        b.expect(outcome, ERROR, "error[Z0801]", "no_such.bin")
        b.expect_nothing_half_written()


def data_truncated(b):
    shard = write_shard(b.path("short.bin"), list(range(200)), count=5000)
    for ranks in b.several:
        b.expect(b.train(ranks, 5, trainer=("--data", shard)), ERROR, "error[Z0802]", "short.bin", "truncated", "5000 tokens")


def data_foreign(b):
    with open(b.path("foreign.bin"), "wb") as file:
        file.write(b"this is no shard" * 100)
    b.expect(b.train(1, 5, trainer=("--data", b.path("foreign.bin"))), ERROR, "error[Z0802]", "foreign.bin", "not a token file", "need one: 256 int32", "800 of 16 bits here")


def data_too_short(b):
    with open(b.path("tiny.txt"), "w", encoding="ascii") as file:
        file.write("too short")
    b.expect(b.train(1, 5, trainer=("--data", b.path("tiny.txt"))), ERROR, "error[Z0804]", "tiny.txt", "9 tokens")


def data_beyond_vocabulary(b):
    shard = write_shard(b.path("wide.bin"), [7] * 40 + [300] + [7] * 200)
    for ranks in b.several:
        b.expect(b.train(ranks, 5, trainer=("--data", shard)), ERROR, "error[Z0803]", "wide.bin", "300", "token 40")
        b.expect_nothing_half_written()


REPLICAS = ("pipeline=1", "plan.data=2")  # of 4 ranks: two of them do not see the other two's samples


def data_ends_in_mid_run(b):
    """An id too large, found at the second step: on the only rank, on all ranks, on those of the second replica. What was trained is kept."""
    shard = [7, 8] * 600
    shard[1 + 14 * 32] = 300  # the 15th sample: the second batch of 8 has those from the 9th on
    for number, (ranks, model) in enumerate(((1, ()), (4, ()), (4, REPLICAS))):
        if not harness.my_turn(number, 3):
            continue
        path = write_shard(b.path("late.bin"), shard)
        log = ("--log", b.path("late.jsonl"))
        shutil.rmtree(b.path("ck"), ignore_errors=True)
        model = (*model, "checkpoint.every=1000", "data=tokens(\"%s\")" % path)
        outcome = b.train(ranks, 5, extra=log, model=model)
        b.expect(outcome, ERROR, "error[Z0803]", "step 2:", "late.bin", "id 300 at token %d" % (1 + 14 * 32), "checkpoint of step 1 is saved in")
        b.expect_nothing_half_written(1)
        b.check("the step is in no log", [record["step"] for record in harness.read_log(log[1])[0]] == [1])
        write_shard(path, [id % 256 for id in shard])
        outcome = b.train(ranks, 5, extra=("--resume", "--accept-changes", *log), model=model)
        b.check("goes on when it is mended", outcome.status == 0, outcome.tail())
        steps = [record["step"] for record in harness.read_log(log[1])[0]]
        b.check("and has lost nothing", steps == [1, 2, 3, 4, 5], "%s" % steps)


def write_npy(path, rows, code="i8"):
    header = ("{'descr': '<%s', 'fortran_order': False, 'shape': (%d, %d), }" % (code, len(rows), len(rows[0]))).ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(struct.pack("<%dq" % len(row), *row))


def batch_without_labels(b):
    """Of 16 samples the second half has none."""
    os.makedirs(b.path("arrays"))
    write_npy(b.path("arrays", "tokens.npy"), [[(r + i) % 29 for i in range(8)] for r in range(16)])
    write_npy(b.path("arrays", "labels.npy"), [[(r + i + 1) % 29 if r < 8 else -100 for i in range(8)] for r in range(16)])
    model = os.path.join(HERE, "labels.dz")
    outcome = harness.zplan("run", model, "--ranks", 1, "-o", b.path("tree"), "--", "--data", b.path("arrays"), "--checkpoint", b.path("ck"))
    b.expect(outcome, ERROR, "error[Z0803]", "step 2:", "no sample of the batch has a label in `labels`", "samples 8 to 15", "arrays",
             "checkpoint of step 1 is saved in")
    b.expect_nothing_half_written(1)
    write_npy(b.path("arrays", "labels.npy"), [[-100] * 8] * 16)
    words = ("eval", b.path("ck"), model, "--data", b.path("arrays"), "-o", b.path("looked"))
    outcome = harness.zplan(*words, "--json")
    answer = json.loads(outcome.out) if outcome.status == 0 else {}
    b.check("a mean over no label is none, and not 0", [answer.get(key, 0) for key in ("loss", "accuracy", "perplexity", "tokens")] == [None, None, None, 0], outcome.tail())
    b.check("and said", "no sample has a label" in harness.zplan(*words).out)


def log_of_another_run(b):
    """It is kept, whole, under another name; --overwrite was asked to replace it."""
    log, losses = b.path("log.jsonl"), []
    for run in range(3):
        outcome = b.train(1, 2, extra=("--log", log, "--keep"), trainer=("--checkpoint", b.path("ck%d" % run)), model=("seed=%d" % run,))
        b.check("run %d" % run, outcome.status == 0 and outcome.err.count("the log of an earlier run is kept") == (run > 0), outcome.tail())
        losses.append(harness.read_log(log)[0])
    for run, name in enumerate(("log.jsonl.1", "log.jsonl.2", "log.jsonl")):
        b.check("%s is of run %d" % (name, run), harness.read_log(b.path(name))[0] == losses[run])
    b.train(1, 2, extra=("--log", log), trainer=("--checkpoint", b.path("ck")))
    b.check("replaced", not os.path.exists(b.path("log.jsonl.3")) and len(harness.read_log(log)[0]) == 2)


def state_without_a_block(b):
    """labels.dz names no folder: each run keeps its last state in one of its own, alongside the trainer's, unless told not to."""
    os.makedirs(b.path("arrays"))
    write_npy(b.path("arrays", "tokens.npy"), [[(r + i) % 29 for i in range(8)] for r in range(64)])
    write_npy(b.path("arrays", "labels.npy"), [[(r + i + 1) % 29 for i in range(8)] for r in range(64)])
    shutil.copy(os.path.join(HERE, "labels.dz"), b.path("labels.dz"))
    first, second = b.path("tree.checkpoints"), b.path("tree.checkpoints.2")

    def run(*words):
        return harness.zplan("run", b.path("labels.dz"), "--ranks", 1, "-o", b.path("tree"), *words)

    for words in (("--no-checkpoint",), ("--set", "checkpoint=none")):
        outcome = run("--steps", 1, *words)
        b.check("none: %s" % words[-1], outcome.status == 0 and "checkpoint" not in outcome.out + outcome.err and not os.path.exists(first), outcome.tail())
    outcome = run("--steps", 2)
    b.check("the first", outcome.status == 0 and first in outcome.err and "checkpoint %s/step_000002" % first in outcome.out, outcome.tail())
    outcome = run("--steps", 3)
    b.check("the second", outcome.status == 0 and second in outcome.err and "--no-checkpoint" in outcome.err, outcome.tail())
    outcome = run("--steps", 4, "--resume")
    b.check("goes on", outcome.status == 0 and "from step 3 to 4" in outcome.out and "checkpoint %s/step_000004" % second in outcome.out, outcome.tail())
    before = sorted(os.listdir(second))
    outcome = run("--steps", 5, "--set", 'checkpoint.dir="%s"' % second, "--no-checkpoint")
    b.check("none, though a folder is named", outcome.status == 0 and "kept nowhere" in outcome.err and "checkpoint " not in outcome.out and
            sorted(os.listdir(second)) == before, outcome.tail())
    outcome = run("--steps", 5, "--resume", "--no-checkpoint")
    b.check("goes on with nothing", outcome.status == 2 and "--resume does not go with it" in outcome.err, outcome.tail())
    b.check("nothing else", sorted(os.listdir(first)) == ["latest", "step_000002"] and not os.path.exists(b.path("tree.checkpoints.3")))


def edited_results(b):
    """What zplan wrote may be written again; what was edited, or is something else, only with --force."""
    config = b.path("config.json")
    with open(config, "w", encoding="ascii") as file:
        json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 64, "vocab_size": 101}, file)
    plan = b.path("plan.json")
    b.check("a plan", harness.zplan(MODEL, "--ranks", 1, "-o", plan).status == 0)
    b.check("again", harness.zplan(MODEL, "--ranks", 1, "--set", "microbatch=2", "-o", plan).status == 0)
    cases = ((("import", "hf", config, "-o", b.path("m.dz")), b.path("m.dz")), (("export", "slurm", plan, "-o", b.path("job.sh")), b.path("job.sh")),
             (("report", plan, "--html", b.path("r.html")), b.path("r.html")), (("build", plan, "-o", b.path("tree")), b.path("tree", "trainer.c")),
             ((MODEL, "--ranks", 1, "-o", b.path("notes.txt")), b.path("notes.txt")), (("data", MODEL, "-o", b.path("t.bin")), b.path("t.bin")))
    for words, path in cases:
        name, what = os.path.basename(path), words[0] if words[0] != MODEL else "plan"
        for turn in ("new", "again"):
            outcome = harness.zplan(*words)
            b.check("%s: %s" % (what, turn), outcome.status == 0 and os.path.exists(path), outcome.tail())
        with open(path, "r+b") as file:  # in its middle; token files are known by their heads, so this one is of something else
            if name == "t.bin":
                file.truncate(0)
            file.seek(os.path.getsize(path) // 2)
            file.write(b" edited ")
        with open(path, "rb") as file:
            edited = file.read()
        outcome = harness.zplan(*words)
        with open(path, "rb") as file:
            kept = file.read() == edited
        b.check("%s: edited" % what, outcome.status == ERROR and kept and name in outcome.err and "--force" in outcome.err, outcome.tail())
        outcome = harness.zplan(*words, "--force")
        with open(path, "rb") as file:
            b.check("%s: forced" % what, outcome.status == 0 and b" edited " not in file.read(), outcome.tail())
    os.makedirs(b.path("mine"))
    shutil.copy(plan, b.path("mine", "plan.json"))
    outcome = harness.zplan("build", b.path("mine", "plan.json"), "-o", b.path("mine"))
    b.check("a person's plan in the folder of a build", outcome.status == ERROR and "zplan did not write it" in outcome.err and sorted(os.listdir(b.path("mine"))) == [".lock", "plan.json"],
            "%s %s" % (outcome.tail(), os.listdir(b.path("mine"))))


def data_command(b):
    outcome = harness.zplan("data", b.path("no_such.txt"), "-o", b.path("out.bin"))
    b.expect(outcome, ERROR, "Z0801", "no_such.txt")
    outcome = harness.zplan("data", MODEL, "-o", os.path.join(MODEL, "out.bin"))
    b.expect(outcome, ERROR, "Z0805")
    b.check("no file is left", os.listdir(b.path()) == [], "%s" % os.listdir(b.path()))


# ---- checkpoints ----

def checkpoint_unwritable(b):
    blocker = b.path("file")
    with open(blocker, "w", encoding="ascii") as file:
        file.write("not a folder")
    for ranks in b.several:
        outcome = b.train(ranks, 5, trainer=("--checkpoint", os.path.join(blocker, "ck")))
        b.expect(outcome, ERROR, "error[Z0811]", "Not a directory")
    b.check("the file in the way is untouched", os.path.getsize(blocker) == len("not a folder"))


@contextlib.contextmanager
def small_disk(path, size):
    """A file system of `size` bytes at `path`; yields False where mounting is not permitted."""
    os.makedirs(path)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % size, "zplan-test", path], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, check=False).returncode == 0 if shutil.which("mount") else False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", path], check=False)


def checkpoint_bytes(b):
    b.train(1, 0)
    folder = harness.step_folder(b.path("ck"), 0)
    total = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
    shutil.rmtree(b.path("ck"))
    return total


def checkpoint_full_disk(b):
    """Room for one checkpoint and a half: the second fails, the first stays and is good."""
    with small_disk(b.path("ck-disk"), checkpoint_bytes(b) * 3 // 2) as mounted:
        if not mounted:
            print("mounting is not permitted here: the full disk is tested as a file size limit only")
            return
        for ranks in b.several:
            os.makedirs(b.path("ck-disk", "ck"))
            os.symlink(b.path("ck-disk", "ck"), b.path("ck"))
            b.expect(b.train(ranks, 20), ERROR, "error[Z0811]", "No space left")
            b.expect_nothing_half_written(5)
            outcome = b.train(ranks, 5, extra=("--resume",))
            b.check("the first checkpoint is good", outcome.status == 0, outcome.tail())
            os.remove(b.path("ck"))
            shutil.rmtree(b.path("ck-disk", "ck"))


def checkpoint_file_limit(b):
    """One rank: under such a limit MPI itself cannot start, its shared memory is made of files."""
    half = checkpoint_bytes(b) // 2
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (half, before[1]))  # children inherit it
    try:
        outcome = b.train(1, 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    b.expect(outcome, ERROR, "error[Z0811]", "File too large")
    b.expect_nothing_half_written()


def damaged(b, ranks, what, damage, *words):
    """A checkpoint of step 5 with something done to it: --resume refuses it and touches nothing."""
    shutil.rmtree(b.path("ck"), ignore_errors=True)
    b.train(1, 5)
    path = os.path.join(harness.step_folder(b.path("ck"), 5), what)
    with open(path, "r+b") as file:
        damage(file)
    b.expect(b.train(ranks, 10, extra=("--resume",)), ERROR, "error[Z0812]", what, *words)
    b.expect_nothing_half_written(5)


def flip_byte(file):
    file.seek(-100, os.SEEK_END)
    byte = file.read(1)[0]
    file.seek(-1, os.SEEK_CUR)
    file.write(bytes([byte ^ 0x10]))


def cut(file):
    file.truncate(os.path.getsize(file.name) - 64)


def scribble(file):
    file.truncate(0)
    file.write(b'{"format": "zplan-chec')


def one_more(file):
    """Another step, another plan: JSON that nothing is wrong with."""
    text = file.read()
    other = text.replace(b'"step": 5', b'"step": 6').replace(b'"zero": 0', b'"zero": 1')
    assert other != text and len(other) == len(text)
    file.seek(0)
    file.write(other)


def checkpoint_corrupt(b):
    for ranks in b.several:
        damaged(b, ranks, "model.safetensors", flip_byte, "corrupt", "checksum")
    damaged(b, 2, "optimizer.safetensors", cut, "corrupt", "bytes")
    damaged(b, 1, "manifest.json", scribble, "corrupt")
    for what in ("manifest.json", "plan.json"):
        damaged(b, 1, what, one_more, "corrupt", "checksum")
    b.train(1, 5)
    os.remove(os.path.join(harness.step_folder(b.path("ck"), 5), "manifest.json"))  # the one that `latest` names
    b.expect(b.train(1, 10, extra=("--resume",)), ERROR, "error[Z0812]", "cannot read", "manifest.json", "No such file")


def checkpoints_of_another_run(b):
    """A run that is not told to goes neither on from them nor over them, and leaves the log alone, too."""
    for ranks in b.several:
        log = ("--log", b.path("log%d.jsonl" % ranks))
        b.train(ranks, 5, extra=log)
        b.expect(b.train(ranks, 2, extra=(*log, "--keep")), ERROR, "error[Z0815]", "step 5", "--resume", "--overwrite")
        b.expect_nothing_half_written(5)
        b.check("the log stays", len(harness.read_log(log[1])[0]) == 5)
        b.expect(b.train(ranks, 2, extra=(*log, "--resume")), ERROR, "error[Z0816]", "step 5", "step 2")
        outcome = b.train(ranks, 2, extra=log)
        b.check("--overwrite begins anew", outcome.status == 0, outcome.tail())
        b.expect_nothing_half_written(2)
    for words in (("--resume", "--overwrite"), ("--accept-changes",)):
        outcome = b.train(1, 2, extra=(*words, "--keep"))
        b.check("usage", outcome.status == USAGE and words[0] in outcome.err, outcome.tail())


def resumed_with_changes(b):
    """Another batch goes on and says so; another seed, or other data, only when told."""
    for ranks, before in ((ranks, 3 - ranks) for ranks in b.several):
        b.train(before, 5)
        b.expect(b.train(ranks, 10, extra=("--resume",), model=("seed=7",)), ERROR, "error[Z0814]", "this run has 7", "--accept-changes")
        with open(b.path("other.txt"), "w", encoding="ascii") as file:
            file.write("other data, " * 100)
        other = b.train(ranks, 10, extra=("--resume",), trainer=("--data", b.path("other.txt")))
        b.expect(other, ERROR, "error[Z0814]", 'other.txt" (1200 tokens')
        b.expect_nothing_half_written(5)
        outcome = b.train(ranks, 10, extra=("--resume",), model=("batch=16",))
        b.check("another batch", outcome.status == 0 and "batch 8, now 16; goes on with sample 41" in outcome.err, outcome.tail())
        outcome = b.train(ranks, 15, extra=("--resume", "--accept-changes"), trainer=("--data", b.path("other.txt")))
        b.check("accepted", outcome.status == 0 and "goes on with sample 1 of the data" in outcome.err, outcome.tail())


def two_runs_at_once(b):
    """In one folder of checkpoints, or with one log: the second is told who is there, and the first does not notice."""
    for ranks in b.several:
        first = Running(b, ranks)
        other = ("--log", b.path("other.jsonl"))
        b.expect(b.train(ranks, 5, extra=(*other, "--keep")), ERROR, "error[Z0817]", "pid ", os.uname().nodename)
        b.expect(b.train(ranks, 5, extra=("--log", first.log), trainer=("--checkpoint", b.path("ck2"))), ERROR, "error[Z0817]", "log.jsonl")
        elsewhere = ("--log", b.path("alongside.jsonl"))
        b.expect(b.train(ranks, 5, extra=elsewhere, model=("batch=4",), trainer=("--checkpoint", b.path("ck2"))), ERROR, "error[Z0703]", "is running", "-o")
        alongside = b.train(ranks, 5, extra=elsewhere, trainer=("--checkpoint", b.path("ck2")))
        b.check("the same trainer runs twice", alongside.status == 0, alongside.tail())
        first.process.send_signal(signal.SIGINT)
        b.check("the first ends as ever", first.end(STOP_SECONDS).status == 128 + signal.SIGINT)
        b.check("no lock is left", ".lock" not in os.listdir(b.path("ck")), "%s" % os.listdir(b.path("ck")))
        os.remove(first.log)


def checkpoint_foreign(b):
    b.train(1, 5, model=("model.d=48",))
    for ranks in b.several:
        b.expect(b.train(ranks, 10, extra=("--resume",)), ERROR, "error[Z0813]", "h.0.attn.c_attn.bias", "[144]", "[96]")
        b.expect_nothing_half_written(5)


# ---- ranks ----

def mpirun(ranks, *command):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return harness.run(["mpirun.openmpi", *root, "-q", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "0", "-n",
                        ranks, *command])


def wrong_rank_count(b):
    b.train(4, 0)  # builds
    trainer = os.path.join(b.folder, "tree4", "trainer")
    b.expect(mpirun(3, trainer), ERROR, "error[Z0820]", "4 ranks", "started with 3")
    b.expect(harness.run([trainer]), ERROR, "error[Z0820]", "started with 1")


class Running:
    """A training under way, after some steps."""

    def __init__(self, b, ranks, model=(), extra=()):
        self.log = b.path("log.jsonl")
        self.process = subprocess.Popen(b.run_command(ranks, 1000000, ("--log", self.log, *extra), model=model), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        limit = time.monotonic() + harness.PATIENCE
        while self.steps() < 12 and self.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)

    def steps(self):
        """As many as the log holds whole lines of: its last one may be in the making."""
        try:
            with open(self.log, encoding="utf-8") as lines:
                return sum(line.endswith("\n") and "event" not in json.loads(line) for line in lines)
        except OSError:
            return 0  # not there yet

    def rank_process(self, rank):
        """Process id of a rank; Open MPI tells each its number in the environment."""
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % entry, "rb") as file:
                    variables = file.read().split(b"\0")
                if b"OMPI_COMM_WORLD_RANK=%d" % rank in variables and os.getsid(int(entry)) == self.process.pid:
                    return int(entry)
            except OSError:
                pass  # it ended meanwhile
        return None

    def end(self, seconds):
        """The outcome; status None when it had to be killed because it did not end in time."""
        begin = time.monotonic()
        try:
            _, err = self.process.communicate(timeout=seconds)
            return harness.Outcome(self.process.returncode, "", err, time.monotonic() - begin)
        except subprocess.TimeoutExpired:
            harness.end_session(self.process.pid)
            _, err = self.process.communicate()
            return harness.Outcome(-1, "", err + "\nit did not end within %d s" % seconds, seconds)


def rank_dies(b, rank, signals):
    running = Running(b, 4)
    victim = running.rank_process(rank)
    if not b.check("rank %d is running" % rank, victim is not None, "steps %d" % running.steps()):
        running.end(1)
        return
    for number in signals:
        os.kill(victim, number)
        time.sleep(0.3)
    outcome = running.end(STOP_SECONDS)
    b.expect(outcome, 128 + signals[-1], "Z0850", "rank %d of 4" % rank)
    b.expect_no_process("no rank is left", running.process.pid)
    print("%s: the others stopped after %.1f s" % (b.name, outcome.seconds))
    with open(os.path.join(b.path("ck"), "latest"), encoding="ascii") as file:  # a rank may die between a folder's name and this one
        published = int(file.read().strip()[len("step_"):])
    outcome = b.train(4, published, extra=("--resume",))  # loads, has nothing to do, ends
    b.check("its checkpoint is good", outcome.status == 0 and "nothing to do" in outcome.out, outcome.tail())


def rank_killed(b):
    rank_dies(b, 2, [signal.SIGKILL])


def first_rank_killed(b):
    rank_dies(b, 0, [signal.SIGKILL])


def rank_stopped_and_killed(b):
    rank_dies(b, 1, [signal.SIGSTOP, signal.SIGKILL])


def rank_crashes(b):
    rank_dies(b, 3, [signal.SIGSEGV])


def rank_killed_while_stopping(b):
    """Asked to end, a rank dies before the checkpoint is there: that is told, and not taken for the end that was asked for."""
    running = Running(b, 4)
    victim = running.rank_process(2)
    os.kill(victim, signal.SIGSTOP)  # without it nobody gets past the step
    running.process.send_signal(signal.SIGINT)
    os.kill(victim, signal.SIGKILL)
    b.expect(running.end(STOP_SECONDS), 128 + signal.SIGKILL, "Z0850", "rank 2 of 4", "signal 9")


def rank_stopped(b):
    """It says nothing and does not end: a line tells who waits for it, and after the stated time it is over."""
    running = Running(b, 4, extra=("--wait-warn", "1", "--wait-end", "3", "--grace", "3"))
    os.kill(running.rank_process(2), signal.SIGSTOP)
    outcome = running.end(3 + 3 + STOP_SECONDS)
    b.check("exit status 5", outcome.status == FAILED, "it was %d\n%s" % (outcome.status, outcome.tail()))
    lines = [line for line in outcome.err.splitlines() if re.match("warning: .* s for rank ", line)]
    b.check("a line after a second", any(re.match(r"warning: rank [013] \(stage \d, tensor \d, on \S+\) has waited 1 s for rank 2 \(stage 1, tensor 0, on \S+\): "
                                                  r".*, within one machine, of .*step \d+; the run ends after 3 s$", line) for line in lines), outcome.tail(12))
    b.check("first of those that wait for it", lines and " s for rank 2 " in lines[0], "\n".join(lines))
    b.check("few lines", len(lines) <= 6, "\n".join(lines))
    errors = [line for line in outcome.err.splitlines() if line.startswith("error")]
    b.check("one message", len(errors) == 1 and re.match(r"error\[Z0823\]: waited 3 s for rank \d", errors[0]), "%s" % errors)
    b.expect_no_process("no rank is left", running.process.pid)


def stopped_and_terminated(b):
    """Asked to end, a rank that is stopped, and mpirun, go on and end as ever, with a checkpoint."""
    for number, (ranks, victim) in enumerate(((1, None), (4, 1), (4, "mpirun"))):
        if not harness.my_turn(number, 3):
            continue
        shutil.rmtree(b.path("ck"), ignore_errors=True)
        running = Running(b, ranks)
        process = running.rank_process(victim) if isinstance(victim, int) else harness.child_of(running.process.pid)
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        outcome = running.end(STOP_SECONDS)
        what = "%d ranks, %s" % (ranks, victim)
        b.check("%s: exit status 143" % what, outcome.status == 128 + signal.SIGTERM, "it was %d\n%s" % (outcome.status, outcome.tail()))
        last = os.path.join(harness.step_folder(b.path("ck"), running.steps()), "manifest.json")
        b.check("%s: the last step is published" % what, os.path.exists(last), last)
        os.remove(running.log)


def resumed_at_once(b):
    """Right after a kill, of zplan or of mpirun: the ranks hold the folder for a moment still, and the next run waits for them."""
    for number, victim in enumerate(("zplan", "mpirun")):
        if not harness.my_turn(number, 2):
            continue
        shutil.rmtree(b.path("ck"), ignore_errors=True)
        running = Running(b, 4)
        session = running.process.pid
        stopped = running.rank_process(0)
        os.kill(stopped, signal.SIGSTOP)  # a rank that takes its time to end
        os.kill(session if victim == "zplan" else harness.child_of(session), signal.SIGKILL)
        if victim == "zplan":
            running.process.wait()
            b.check("it still holds the folder", stopped in harness.in_session(session), "%s" % harness.in_session(session))
        else:
            running.end(STOP_SECONDS)
            b.check("zplan has waited for its ranks", not harness.in_session(session), "%s" % harness.in_session(session))
        outcome = b.train(4, 1, extra=("--keep", "--overwrite"))
        b.check("%s killed: the next run starts" % victim, outcome.status == 0, outcome.tail())
        b.expect_no_process("no rank is left", session)
        os.remove(running.log)
    # However long that takes: the lock of a run whose zplan is gone is waited for.
    gone = subprocess.Popen(["true"])
    gone.wait()
    with open(b.path("ck", ".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("pid %d on %s\nlauncher %d\n" % (os.getpid(), os.uname().nodename, gone.pid))
        lock.flush()
        resumed = subprocess.Popen(b.run_command(1, 3, ("--resume",)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        line = next((line for line in resumed.stderr if line.startswith(("note: waits", "error"))), "")
        b.check("it waits", line.startswith("note: waits"), line)
    _, err = resumed.communicate()
    b.check("and then resumes", resumed.returncode == 0, err)


def interrupted(b, ranks, number, status=None):
    status = 128 + number if status is None else status
    running = Running(b, ranks)
    steps = running.steps()
    running.process.send_signal(number)
    outcome = running.end(STOP_SECONDS)
    b.check("exit status %d" % status, outcome.status == status, "it was %s\n%s" % (outcome.status, outcome.tail()))
    b.check("no error is shown", "error" not in outcome.err, outcome.tail())
    last = running.steps()
    manifest = os.path.join(harness.step_folder(b.path("ck"), last), "manifest.json")
    b.check("the last step is published", last >= steps > 0 and os.path.exists(manifest), "step %d" % last)
    outcome = b.train(ranks, last + 2, extra=("--resume", "--log", running.log))
    numbers = [record["step"] for record in harness.read_log(running.log)[0]] if outcome.status == 0 else []
    b.check("--resume goes on there", numbers == list(range(1, last + 3)), "%s" % numbers[-4:])


def interrupted_on_full_folder(b):
    """Asked to end, it cannot publish its checkpoint: that is what the exit status tells."""
    for ranks in b.several:
        shutil.rmtree(b.path("ck"), ignore_errors=True)
        running = Running(b, ranks, model=("checkpoint.every=1000000",))
        shutil.rmtree(b.path("ck"))
        with open(b.path("ck"), "w", encoding="ascii"):
            pass  # a file where the folder was
        running.process.send_signal(signal.SIGINT)
        b.expect(running.end(STOP_SECONDS), ERROR, "error[Z0811]")
        os.remove(b.path("ck"))
        os.remove(running.log)


def interrupt_one(b):
    interrupted(b, 1, signal.SIGINT)


def interrupt_four(b):
    interrupted(b, 4, signal.SIGINT)


def hang_up_four(b):
    interrupted(b, 4, signal.SIGHUP)


def terminate_four(b):
    interrupted(b, 4, signal.SIGTERM)


def batch_system_warns(b):
    """SIGUSR1 asks for a checkpoint and an end that is no failure."""
    for ranks in b.several:
        b.begin(b.number, b.name)
        interrupted(b, ranks, signal.SIGUSR1, status=0)


def command_killed(b):
    """Nobody is left to stop the trainer then: it ends by itself."""
    for ranks in b.several:
        running = Running(b, ranks)
        session = running.process.pid
        running.process.kill()
        running.process.wait()
        b.expect_no_process("%d ranks have ended" % ranks, session)
        running.end(1)
        os.remove(running.log)


# ---- the rest of the environment ----

def log_unwritable(b):
    for ranks in b.several:
        outcome = b.train(ranks, 5, extra=("--log", os.path.join(MODEL, "log.jsonl")))  # below a regular file
        b.expect(outcome, ERROR, "error[Z0841]", "tiny.dz/log.jsonl", "Not a directory")
    os.mkfifo(b.path("pipe"))  # the model may be a stranger's, and names it
    b.expect(b.train(1, 5, extra=("--log", b.path("pipe"))), ERROR, "error[Z0841]", "a pipe that nobody reads")


def log_full(b):
    outcome = b.train(1, 5, extra=("--log", "/dev/full"))
    b.check("training goes on without the log", outcome.status == 0 and "warning" in outcome.err, outcome.tail())


def not_finite(b):
    outcome = b.train(2, 40, model=("optimizer.lr=1e30", "schedule=constant(warmup=1)"))
    b.expect(outcome, FAILED, "error[Z0830]", "not finite")


def wrong_trainer_option(b):
    for ranks in b.several:
        outcome = b.train(ranks, 5, trainer=("--bogus",))
        b.check("exit status 2", outcome.status == USAGE, "it was %d\n%s" % (outcome.status, outcome.tail()))
        b.check("says which", 'unknown option "--bogus"' in outcome.err, outcome.tail())


def out_of_memory(b):
    """One rank without room for its arena: MPI itself needs more than such a limit leaves."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    b.check("builds", harness.zplan("build", MODEL, "--ranks", 1, "-o", os.path.join(b.folder, "tree1"), "--set", "model.d=768").status == 0)
    resource.setrlimit(resource.RLIMIT_AS, (256 << 20, before[1]))  # children inherit it
    try:
        outcome = b.train(1, 5, model=("model.d=768",))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    b.expect(outcome, MEMORY, "error[Z0822]", "bytes")


def too_little_address_space(b):
    """Enough for the arena, not for what multiplies: OpenBLAS would ask for ever. Limits from what a process maps to what suffices."""
    b.train(1, 0)  # builds
    trainer = os.path.join(b.folder, "tree1", "trainer")
    data = ("--data", MODEL, "--checkpoint", b.path("ck"), "--overwrite", "--no-progress", "--steps", "2")
    before = resource.getrlimit(resource.RLIMIT_AS)
    for library, threads, limits in (("openblas", 1, range(80, 280, 40)), ("openblas", 2, (160, 320, 480)), ("onednn", 1, (64, 96))):
        outcomes = []
        for limit in limits:
            resource.setrlimit(resource.RLIMIT_AS, (limit << 20, before[1]))  # children inherit it
            try:
                outcomes.append(harness.run([trainer, *data, "--products", library, "--threads", threads], timeout=20))
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
        if "error[Z0854]" in outcomes[-1].err:
            print("%s: skipped, %s is not here" % (b.name, library))
            continue
        for limit, outcome in zip(limits, outcomes):
            refused = outcome.status == MEMORY and "error[Z0822]" in outcome.err and "step 1/" not in outcome.out
            b.check("%s, %d threads, %d MiB: trains or is refused before step 1" % (library, threads, limit),
                    outcome.status == 0 or refused, "%d\n%s" % (outcome.status, outcome.tail()))
        print("%s: %s, %d threads: %s" % (b.name, library, threads, ["%d MiB: %d" % pair for pair in zip(limits, (o.status for o in outcomes))]))


def calibrate_unwritable(b):
    """Told before the measurement, not after it."""
    for path in (os.path.join(MODEL, "c.json"), b.path()):
        outcome = harness.zplan("calibrate", "-o", path)
        b.expect(outcome, ERROR, "error[Z0641]")
        b.check("at once", "measuring" not in outcome.err, outcome.err)
    b.check("usage", harness.zplan("calibrate", "-t", "1", "-o", b.path("c.json")).status == USAGE)
    b.check("nothing is left", os.listdir(b.path()) == [], "%s" % os.listdir(b.path()))


def calibrate_interrupted(b):
    """The old file stays, nothing is left behind, and nobody goes on measuring."""
    with open(b.path("c.json"), "w", encoding="ascii") as file:
        file.write("old")
    b.expect(harness.zplan("calibrate", "-o", b.path("c.json")), ERROR, "error[Z0641]", "c.json is there already", "--force")
    process = subprocess.Popen([harness.ZPLAN, "calibrate", "-t", "20", "--force", "-o", b.path("c.json")], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    process.stderr.readline()  # measuring ...
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=STOP_SECONDS)
    b.expect_no_process("nobody is left", process.pid)
    b.check("ended by the signal", process.returncode == -signal.SIGTERM, "%s" % process.returncode)
    with open(b.path("c.json"), encoding="ascii") as file:
        b.check("the old file is whole", file.read() == "old")
    b.check("and alone", os.listdir(b.path()) == ["c.json"], "%s" % os.listdir(b.path()))


def no_compiler(b):
    empty = b.path("bin")
    os.makedirs(empty)
    for ranks, tool in ((1, "cc"), (4, "mpicc")):
        tree = b.path("tree%d" % ranks)
        outcome = harness.run([harness.ZPLAN, "build", MODEL, "--ranks", ranks, "-o", tree], env={"PATH": empty, "CC": "cc"})
        b.expect(outcome, ERROR, "Z0703", tool, "not found")
        left = [name for name in os.listdir(tree) if name.startswith("trainer") and name != "trainer.c"]
        b.check("no half-built trainer", not left, "%s" % left)


def no_mpirun(b):
    empty = b.path("bin")
    os.makedirs(empty)
    b.train(4, 0)  # builds
    outcome = b.train(4, 5, env={"PATH": empty})
    b.expect(outcome, NO_TOOL, "Z0704", "mpirun")


def hostfile_damaged(b):
    """What mpirun says of it reaches the user."""
    with open(b.path("hosts"), "w", encoding="ascii") as file:
        file.write("localhost slots=x\n")
    outcome = b.train(2, 1, extra=("--hostfile", b.path("hosts")))
    b.check("exit status 1", outcome.status == ERROR, "it was %d\n%s" % (outcome.status, outcome.tail()))
    b.check("says why", "error: mpirun" in outcome.err and "hostfile" in outcome.err.split("error: mpirun")[-1], outcome.tail())


def build_command(tree, microbatch):
    return [harness.ZPLAN, "build", MODEL, "-o", tree, "--set", "microbatch=%d" % microbatch]


def source_of(tree):
    with open(os.path.join(tree, "trainer.c"), encoding="utf-8") as file:
        return file.read()


def expect_current(b, tree):
    """The binary holds the plan that the source names."""
    wanted = re.search(r'plan_hash = "([0-9a-f]+)"', source_of(tree)).group(1).encode()
    with open(os.path.join(tree, "trainer"), "rb") as file:
        b.check("the trainer is that of its source", wanted in file.read())


def build_interrupted(b):
    """New source and old binary: the next build must not take it for done."""
    tree, compiler, begun = b.path("tree"), b.path("cc"), b.path("begun")
    harness.run(build_command(tree, 1))
    before = source_of(tree)
    with open(compiler, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n: >%s\nexec sleep 900\n" % begun)  # a build that does not end before it is interrupted
    os.chmod(compiler, 0o755)
    process = subprocess.Popen(build_command(tree, 2), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                               env=dict(os.environ, CC=compiler))
    while not os.path.exists(begun) and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGTERM)
    b.check("interrupted", process.wait(timeout=STOP_SECONDS) == -signal.SIGTERM, "%s" % process.returncode)
    b.check("the source is the new one", source_of(tree) != before)
    b.check("builds again", harness.run(build_command(tree, 2)).status == 0)
    expect_current(b, tree)


def builds_at_once(b):
    tree = b.path("tree")
    builds = [subprocess.Popen(build_command(tree, size), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
              for size in (1, 2, 4)]
    b.check("all succeed", [build.wait(timeout=harness.PATIENCE) for build in builds] == [0, 0, 0])
    expect_current(b, tree)


def tree_unwritable(b):
    outcome = harness.zplan("build", MODEL, "-o", os.path.join(MODEL, "tree"))
    b.expect(outcome, ERROR, "Z0703", "Not a directory")


def plan_file_damaged(b):
    plan = b.path("plan.json")
    harness.zplan(MODEL, "--gpus", 2, "-o", plan)
    with open(plan, "r+b") as file:
        file.truncate(os.path.getsize(plan) // 2)
    b.expect(harness.zplan("build", plan, "-o", b.path("tree")), ERROR, "Z0640", "plan.json")
    with open(plan, "w", encoding="ascii") as file:
        file.write('{"steps": 5}')
    b.expect(harness.zplan("build", plan, "-o", b.path("tree")), ERROR, "Z0640", "plan.json")
    b.check("nothing is built", not os.path.exists(b.path("tree")))


def too_little_memory(b):
    outcome = harness.zplan("build", MODEL, "--device-memory", "100KB", "-o", b.path("tree"))
    b.check("exit status 3", outcome.status == INFEASIBLE, "it was %d\n%s" % (outcome.status, outcome.tail()))
    b.check("nothing is built", not os.path.exists(b.path("tree")))


TESTS = [data_missing, data_truncated, data_foreign, data_too_short, data_beyond_vocabulary, data_ends_in_mid_run, batch_without_labels, log_of_another_run, state_without_a_block, edited_results, data_command, checkpoint_unwritable,
         checkpoint_full_disk, checkpoint_file_limit, checkpoint_corrupt, checkpoint_foreign, checkpoints_of_another_run, resumed_with_changes, two_runs_at_once, wrong_rank_count, rank_killed,
         first_rank_killed, rank_stopped_and_killed, rank_killed_while_stopping, rank_crashes, rank_stopped, stopped_and_terminated, resumed_at_once, interrupt_one, interrupt_four, terminate_four, hang_up_four,
         batch_system_warns, command_killed,
         interrupted_on_full_folder, wrong_trainer_option, out_of_memory, too_little_address_space, calibrate_unwritable,
         calibrate_interrupted, log_unwritable, log_full, no_compiler, no_mpirun, hostfile_damaged, build_interrupted, builds_at_once,
         tree_unwritable, plan_file_damaged, too_little_memory, not_finite]

# Ways to end a training of four ranks, of which one of so many is tried by turns.
ALIKE = {rank_killed: (0, 4), rank_stopped_and_killed: (1, 4), first_rank_killed: (2, 4), rank_crashes: (3, 4),
         interrupt_four: (0, 3), terminate_four: (1, 3), hang_up_four: (2, 3)}


def main():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and so it would be in every trainer
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    text = sys.argv[1] if len(sys.argv) > 1 else ""
    with harness.Scratch() as folder:
        bench = Bench(tally, folder)
        for test in TESTS:
            if text in test.__name__ and harness.my_turn(ALIKE.get(test, (0, 1))[0], ALIKE.get(test, (0, 1))[1]):
                bench.begin(TESTS.index(test), test.__name__)
                test(bench)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
