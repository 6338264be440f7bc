#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every system call of a run that goes on from a checkpoint and saves, and every allocation of planner and trainer: each fails once, or finds the disk full
from there on, or is the last thing that the process does, with and without what was not synced. Nothing is lost: the run goes on from a whole checkpoint to the
same bytes. Nothing half-written counts: a checkpoint with a manifest is whole, as a reader of its own says (tests/support/harness.py).

    calls.py [--every N]      of the calls, shifted in each round and at each commit (default 8; 1: all, for a run by hand)

Calls are counted by inject.c, which is preloaded.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import faults  # noqa: E402
import harness  # noqa: E402

WAYS = ("kill", "torn", "power", "fail", "full")
FIRST, LAST = 2, 4  # the run goes on from checkpoint FIRST, and saves each step up to LAST
ENDED = {"kill": (-9,), "torn": (-9,), "power": (-9,), "fail": (0, 1), "full": (0, 1)}
RANKS = ((1, 0), (2, 0), (2, 1))  # ranks, and the one whose calls count


class Trials:
    def __init__(self, tally, folder, every):
        self.tally, self.folder, self.every, self.turn = tally, folder, every, int(os.environ.get("ZPLAN_TURN", "0").split("/")[0])
        self.library = os.path.join(folder, "inject.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, os.path.join(HERE, "inject.c"), "-ldl"], check=True)
        os.makedirs(self.path("arrays"))
        faults.write_npy(self.path("arrays", "tokens.npy"), [[(r + i) % 29 for i in range(8)] for r in range(64)])
        faults.write_npy(self.path("arrays", "labels.npy"), [[(r + i + 1) % 29 for i in range(8)] for r in range(64)])
        shutil.copy(os.path.join(HERE, "labels.dz"), self.path("labels.dz"))
        self.trainers = {ranks: self.build(ranks) for ranks in (1, 2)}

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def build(self, ranks):
        tree = self.path("tree%d" % ranks)
        outcome = harness.zplan("build", self.path("labels.dz"), "--ranks", ranks, "-o", tree, "--set", 'checkpoint.dir="ck"', "--set", "checkpoint.every=1", "--force")
        self.tally.check("build for %d" % ranks, outcome.status == 0, outcome.tail())
        return os.path.join(tree, "trainer")

    def inject(self, **settings):
        words = {"INJECT_" + key.upper(): str(value) for key, value in settings.items()}
        return {"LD_PRELOAD": self.library, "OPENBLAS_NUM_THREADS": "1", **words}

    def train(self, ranks, place, steps, *words, env=None):
        command = [self.trainers[ranks], "--steps", steps, "--threads", 1, "--data", self.path("arrays"), "--checkpoint", os.path.join(place, "ck"),
                   "--log", os.path.join(place, "log"), *words]
        if ranks == 1:
            return harness.run(command, env=env)
        given = [word for key, value in (env or {}).items() for word in ("-x", "%s=%s" % (key, value))]
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return harness.run(["mpirun.openmpi", *root, "-q", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "0", *given, "-n", ranks, *command])

    def begin(self, name, base):
        place = self.path(name)
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(base, place)
        return place

    def whole(self, folder):
        """As the description of the format says; NULL or what is wrong."""
        with open(os.path.join(folder, "manifest.json"), "rb") as file:
            lines = file.read().splitlines(keepends=True)
        try:
            manifest = harness.read_manifest(folder)
        except ValueError:
            return "no manifest"
        if manifest.get("sha256") != hashlib.sha256(b"".join(lines[:-2])).hexdigest():
            return "its manifest"
        for entry in manifest["files"]:
            if not os.path.exists(os.path.join(folder, entry["name"])):
                return entry["name"] + " is missing"
            with open(os.path.join(folder, entry["name"]), "rb") as file:
                data = file.read()
            if len(data) != entry["bytes"] or harness.piece_sums(data) != entry["pieces"]:
                return entry["name"]
        return None

    def look(self, place):
        """The steps that count, and what is wrong with them."""
        steps, wrong = [], []
        for name in sorted(os.listdir(os.path.join(place, "ck"))):
            folder = os.path.join(place, "ck", name)
            if name.startswith("step_") and os.path.exists(os.path.join(folder, "manifest.json")):
                steps.append(int(name[5:]))
                why = self.whole(folder)
                wrong += ["%s: %s" % (name, why)] if why else []
        return steps, wrong

    def end_of(self, place):
        folder = harness.step_folder(os.path.join(place, "ck"), LAST)
        with open(os.path.join(folder, "model.safetensors"), "rb") as model, open(os.path.join(folder, "optimizer.safetensors"), "rb") as optimizer:
            return model.read() + optimizer.read()

    def trial(self, ranks, rank, way, at, base, want):
        """What went wrong; []: nothing."""
        place, wrong = self.begin("trial", base), []
        env = self.inject(under=place, at=at, how=way, **({"rank": rank} if ranks > 1 else {}))
        outcome = self.train(ranks, place, LAST, "--resume", env=env)
        errors = [line for line in outcome.err.splitlines() if line.startswith("error[")]
        if ranks == 1 and outcome.status not in ENDED[way]:
            wrong.append("status %d" % outcome.status)
        if ranks == 1 and len(errors) != (outcome.status == 1):
            wrong.append("%d errors" % len(errors))
        steps, broken = self.look(place)
        wrong += broken
        if not steps or max(steps) < FIRST:
            wrong.append("steps %s are left" % steps)
        if outcome.status == 0 and LAST not in steps:
            wrong.append("it ended well without its last checkpoint")
        again = self.train(ranks, place, LAST, "--resume")
        if again.status != 0:
            wrong.append("does not go on: " + again.tail(2))
        elif self.end_of(place) != want:
            wrong.append("goes on to other weights")
        left = [name for name in os.listdir(os.path.join(place, "ck")) if name.startswith(".step") or name == ".lock"]
        if way in ("kill", "torn", "power") and again.status == 0 and left and max(steps) < LAST:
            wrong.append("leftovers %s" % left)
        return ["%s, and said %s" % (one, outcome.tail(2)) for one in wrong]

    def calls(self, ranks, rank):
        base = self.path("base%d" % ranks)
        os.makedirs(base, exist_ok=True)
        first = self.train(ranks, base, FIRST, "--overwrite")
        count = self.path("count")
        straight = self.begin("straight", base)
        env = self.inject(under=straight, count=count, **({"rank": rank} if ranks > 1 else {}))
        second = self.train(ranks, straight, LAST, "--resume", env=env)
        if not self.tally.check("%d ranks: runs uninjected" % ranks, first.status == 0 and second.status == 0, first.tail() + second.tail()):
            return
        with open(count, encoding="ascii") as file:
            n = int(file.read())
        self.tally.check("%d ranks: calls are seen" % ranks, n >= (60 if rank == 0 else 8), "%d" % n)
        want = self.end_of(straight)
        every = self.every if ranks == 1 else self.every * 8  # starts of mpirun take most of the time
        tried = 0
        for way in WAYS:
            self.turn += 1
            for at in range(1 + self.turn % every, n + 1, every):
                wrong = self.trial(ranks, rank, way, at, base, want)
                tried += 1
                if wrong:
                    self.tally.check("rank %d of %d: %s at call %d of %d" % (rank, ranks, way, at, n), False, "; ".join(wrong))
        self.tally.check("rank %d of %d: %d calls tried of %d in %d ways" % (rank, ranks, tried, n, len(WAYS)), tried > 0)

    def allocations(self, name, command, good, place=None):
        """Each ends in one message and a documented status, or does not matter."""
        count = self.path("count")
        outcome = harness.run(command, env=self.inject(count=count))
        if not self.tally.check("%s: runs uninjected" % name, outcome.status == 0 and good(), outcome.tail()):
            return
        with open(count, encoding="ascii") as file:
            n = int(file.read())
        tried = 0
        for at in range(1 + self.turn % self.every, n + 1, self.every):
            if place:
                shutil.rmtree(place, ignore_errors=True)
            outcome = harness.run(command, env=self.inject(at=at))
            tried += 1
            told = len(re.findall(r"^(?:error|zplan: )", outcome.err, re.MULTILINE)) >= 1
            fine = (outcome.status in (1, 8) and told) or (outcome.status == 0 and good())
            if place and os.path.isdir(os.path.join(place, "ck")) and outcome.status:
                fine = fine and not self.look(place)[1]
            if not fine:
                self.tally.check("%s: allocation %d of %d" % (name, at, n), False, "status %d: %s" % (outcome.status, outcome.tail(2)))
        self.tally.check("%s: %d allocations tried of %d" % (name, tried, n), tried > 0)


def main():
    every = int(sys.argv[sys.argv.index("--every") + 1]) if "--every" in sys.argv else 8
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        t = Trials(tally, folder, every)
        for ranks, rank in RANKS:
            t.calls(ranks, rank)
        plan = t.path("plan.json")
        t.allocations("planner", [harness.ZPLAN, t.path("labels.dz"), "--ranks", 2, "-o", plan, "--force"], lambda: os.path.getsize(plan) > 1000)
        place = t.path("memory")
        t.allocations("trainer", [t.trainers[1], "--steps", 2, "--threads", 1, "--data", t.path("arrays"), "--checkpoint", os.path.join(place, "ck")],
                      lambda: t.look(place)[0] == [1, 2], place)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
