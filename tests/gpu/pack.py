#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The work of pack.sh: builds trainers for every arch, asks CPU trainers for the references, compiles the texts of kernel tests, copies
the scripts, and looks at what it has made: needed libraries, size."""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import cases  # noqa: E402
import harness  # noqa: E402

BUILD = os.path.dirname(harness.ZPLAN)
CHECK_KERNELS, COMPILE_KERNELS = (os.path.join(BUILD, "tests", name) for name in ("check_kernels", "compile_kernels"))
EMULATED_GPU = os.path.join(BUILD, "runtime", "libzplan_emulated_gpu.so")
# What an arch's plans are priced with and fit into: the smallest of its GPUs that trains 1.3 billion parameters.
ARCHS = {"sm_80": ("a100_80", 80), "sm_90": ("h100_sxm", 80), "sm_100": ("b200", 180)}
EMULATED_ARCHS = {"host": ("a100_80", 80)}
MOST_BYTES = 56 << 20
TEXT_BYTES = 400_000  # of a text, one token each
MAY_NEED = {"libc.so.6", "libm.so.6"}  # and the loader itself
RANKED_MAY_NEED = MAY_NEED | {"libmpi.so.40"}
SCRIPTS = ("first.sh", "speed.sh", "common.sh", "torch_speed.py")
DZ = """use std.hw
use "%(model_file)s" as m

device here { base = std.hw.%(base)s  memory = %(memory)dGB }
cluster gpu { nodes = 1  node = std.hw.workstation(devices = 8 * here) }
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 8, memory = 16GiB) }
train {
  model = m.%(model)s()  batch = %(batch)d  steps = %(steps)d  precision = "fp32"
  data = tokens("text.bin", order = "shuffled")
  optimizer = adamw(lr = 3e-4)  clip = 1.0
}
"""


def file_name(text):
    return "".join(letter if letter.isalnum() or letter in "_." else "_" for letter in text)


def stop(text):
    sys.exit("pack.py: " + text)


def good(outcome, what):
    if outcome.status != 0:
        stop("%s: exit %d\n%s" % (what, outcome.status, outcome.tail(8)))
    return outcome


class Packer:
    def __init__(self, options, work):
        self.options, self.work, self.out = options, work, os.path.abspath(options.out)
        self.archs = EMULATED_ARCHS if options.emulated else ARCHS
        self.steps = cases.EMULATED_STEPS if options.emulated else cases.STEPS
        self.pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
        self.began, self.glibc = time.monotonic(), (0, 0)

    def say(self, text):
        print("%5.0f s  %s" % (time.monotonic() - self.began, text), flush=True)

    def path(self, *parts):
        path = os.path.join(self.out, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    # ---- models ----

    def model_file(self, arch, model, batch, steps):
        """A .dz file about GPUs of the arch, and a CPU cluster."""
        base, memory = self.archs[arch]
        source = {"windowed": "long"}.get(model, model)
        folder = os.path.join(harness.ROOT, cases.FOLDERS.get(source, "examples"))
        path = os.path.join(self.work, "%s_%s_%d_%d.dz" % (arch, model, batch, steps))
        values = {"base": base, "memory": memory, "model": cases.NAMES.get(model, model), "batch": batch, "steps": steps,
                  "model_file": os.path.join(folder, source + ".dz")}
        part = "%s.%d" % (path, threading.get_ident())  # others may be reading it
        with open(part, "w", encoding="utf-8") as file:
            file.write(DZ % values)
        os.replace(part, path)
        return path

    def batch_of(self, model):
        return min(cases.BATCHES.get(model, 32), cases.EMULATED_BATCH if self.options.emulated else 1 << 30)

    def settings(self, case):
        small = cases.EMULATED.get(case.model, ()) if self.options.emulated else ()
        words = ["--ranks", cases.ranks_of(case)]
        for pin in ("tensor=%d" % case.tensor, "pipeline=%d" % case.pipeline, "plan.data=%d" % case.data, "zero=%d" % case.zero, *case.words, *small):
            words += ["--set", pin]
        return words

    def input_of(self, arch, case):
        """Words of `zplan build`: the model, or with state off the device a plan's file, in which that is written."""
        words = [self.model_file(arch, case.model, self.batch_of(case.model), self.steps), "--cluster", "gpu", *self.settings(case)]
        if not case.homes:
            return words
        path = os.path.join(self.work, file_name("%s_%s.json" % (arch, case.name)))
        good(harness.zplan("plan", *words, "-o", path), "plan of " + case.name)
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        pairs = {state: home.split(":") for state, home in case.homes.items()}
        plan["offload"] = {state: {"tier": tier, "eighths": int(eighths)} for state, (tier, eighths) in pairs.items()}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        return [path]

    def build(self, arch, name, words, ranked=False):
        """A trainer, stripped and compressed, into the folder of its arch."""
        tree = os.path.join(self.work, file_name("%s_%s" % (arch, name)))
        good(harness.zplan("build", *words, "--arch", arch, "-o", tree), "%s for %s" % (name, arch))
        trainer, target = os.path.join(tree, "trainer"), self.path(arch, file_name(name))
        good(harness.run(("strip", "-o", target, trainer)), "strip")
        self.check_program(target, RANKED_MAY_NEED if ranked else MAY_NEED)
        good(harness.run(("gzip", "-9n", target)), "gzip")

    def data_words(self, case):
        return ("--data", os.path.join(self.out, "data", "text.bin")) if case.model in cases.TEXT_MODELS else ()

    def refer(self, case):
        """Losses and gradient norms of CPU ranks: "step loss norm" a line."""
        want, name = cases.reference_of(case), file_name(case.name)
        log, tree = (os.path.join(self.work, "cpu_" + name + end) for end in (".jsonl", ""))
        source = self.model_file(list(self.archs)[0], want.model, self.batch_of(want.model), self.steps)
        good(harness.zplan("run", source, "--cluster", "cpu", *self.settings(want), "-o", tree, "--log", log, "--", *self.data_words(case)),
             "reference of " + case.name)
        steps, _ = harness.read_log(log)
        with open(self.path("references", name + ".txt"), "w", encoding="utf-8") as file:
            for one in steps:
                file.write("%d %s %s\n" % (one["step"], json.dumps(one["loss"]), json.dumps(one["grad_norm"])))

    # ---- parts of the folder ----

    def pack_tokens(self):
        text, target = os.path.join(self.work, "text.txt"), self.path("data", "text.bin")
        with open(self.options.text, "rb") as whole, open(text, "wb") as cut:
            cut.write(whole.read(TEXT_BYTES))
        good(harness.zplan("data", text, "-o", target), "tokens of " + self.options.text)
        shutil.copy(target, os.path.join(self.work, "text.bin"))

    def chosen(self):
        every = cases.CASES + (cases.RANKED if self.options.mpi else ())
        return [one for one in every if not self.options.small or one.name in cases.SMALL]

    def pack_trainings(self):
        chosen = self.chosen()
        done = [self.pool.submit(self.build, arch, one.name, self.input_of(arch, one), cases.ranks_of(one) > 1) for one in chosen for arch in self.archs]
        done += [self.pool.submit(self.refer, one) for one in chosen]
        for each in done:
            each.result()
        with open(self.path("cases.txt"), "w", encoding="utf-8") as file:
            for one in chosen:
                data = "text.bin" if one.model in cases.TEXT_MODELS else "-"
                file.write("%s|%s|%d|%g|%g|%s|%d\n" % (file_name(one.name), one.name, self.steps, *cases.bounds_of(one), data, cases.ranks_of(one)))

    def speeds(self):
        if self.options.emulated:
            return cases.EMULATED_SPEEDS
        return cases.SPEEDS[:2] if self.options.small else cases.SPEEDS

    def build_speed(self, arch, one):
        words = [self.model_file(arch, one.model, one.batch, 1000), "--cluster", "gpu", "--profile", "--ranks", 1]
        pins = {key: getattr(one, key) for key in ("V", "S", "d", "layers", "heads")}
        if one.window:
            pins["window"] = one.window
        for key, value in pins.items():
            words += ["--set", "model.%s=%d" % (key, value)]
        self.build(arch, one.name, words + ["--set", cases.BF16[0]])

    def pack_speeds(self):
        for each in [self.pool.submit(self.build_speed, arch, one) for one in self.speeds() for arch in self.archs]:
            each.result()
        with open(self.path("speeds.txt"), "w", encoding="utf-8") as file:
            for one in self.speeds():
                sizes = (one.V, one.S, one.d, one.layers, one.heads, one.window)
                file.write("%s|%d|%d|%d|%d|%d|%d|%d|%d|%d|%.1f\n" % (one.name, one.batch * one.S, *cases.flop_of(one), *sizes, cases.percent_of(one)))

    def pack_kernels(self):
        """Texts of the tests of kernels, compiled for every arch."""
        texts = os.path.join(self.work, "texts")
        os.makedirs(texts)
        words = [word for text in cases.small_kernels() for word in ("--only", text)] if self.options.small else []
        words += [word for text in cases.LEFT_OUT_KERNELS for word in ("--without", text)]
        good(harness.run((CHECK_KERNELS, "--collect", texts, *words)), "texts of kernels")
        shutil.copy(CHECK_KERNELS, self.path("check_kernels"))
        good(harness.run(("strip", self.path("check_kernels"))), "strip")
        self.check_program(self.path("check_kernels"), MAY_NEED)

        def compile_text(arch, text):
            image = self.path("images", arch, os.path.basename(text)[:-3] + ".image")
            good(harness.run((COMPILE_KERNELS, harness.ROOT, text, arch, image)), "kernels for " + arch)
            good(harness.run(("gzip", "-9n", image)), "gzip")
        for each in [self.pool.submit(compile_text, arch, text) for text in sorted(glob.glob(texts + "/*.cu")) for arch in self.archs]:
            each.result()
        with open(self.path("kernels.txt"), "w", encoding="utf-8") as file:
            file.write(" ".join(words) + "\n")

    def pack_scripts(self):
        for name in SCRIPTS:
            shutil.copy(os.path.join(HERE, name), self.path(name))
        shutil.copy(os.path.join(HERE, "packed.txt"), self.path("README.txt"))
        commit = subprocess.run(("git", "-C", harness.ROOT, "rev-parse", "--short", "HEAD"), capture_output=True, text=True).stdout.strip()
        with open(self.path("settings.sh"), "w", encoding="utf-8") as file:
            file.write("# Read by first.sh and speed.sh.\npacked='%s, commit %s'\narchs='%s'\nemulated='%s'\n" % (
                time.strftime("%d %B %Y", time.gmtime()), commit or "unknown", " ".join(self.archs), EMULATED_GPU if self.options.emulated else ""))

    # ---- what came of it ----

    def check_program(self, path, may):
        told = good(harness.run(("readelf", "-d", "-V", path)), "readelf").out
        needed = {name for name in re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\]", told) if not name.startswith("ld-linux")}
        if not needed <= may:
            stop("%s needs %s" % (path, ", ".join(sorted(needed - may))))
        self.glibc = max([self.glibc] + [(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", told)])

    def bytes(self):
        return sum(os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(self.out) for name in names)

    def pack(self):
        self.pack_tokens()
        self.pack_kernels()
        self.say("kernels and their tests: %.1f MiB" % (self.bytes() / 2**20))
        self.pack_trainings()
        self.say("%d trainings: %.1f MiB" % (len(self.chosen()), self.bytes() / 2**20))
        self.pack_speeds()
        self.pack_scripts()
        size = self.bytes()
        self.say("%s: %.1f MiB, needs glibc %d.%d or newer" % (self.options.out, size / 2**20, *self.glibc))
        if size > MOST_BYTES:
            stop("%d bytes, and %d are the most" % (size, MOST_BYTES))


def main():
    parser = argparse.ArgumentParser(prog="pack.sh", description="packs a folder for a machine with a GPU and no compiler")
    parser.add_argument("out")
    parser.add_argument("--text", default=os.path.join(harness.ROOT, "examples", "text.txt"))
    parser.add_argument("--mpi", action="store_true", help="also trainings of several ranks")
    parser.add_argument("--emulated", action="store_true", help="for the emulated GPU of this machine")
    parser.add_argument("--small", action="store_true", help="a few trainings and tests of kernels")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="builds at a time")
    options = parser.parse_args()
    harness.require_zplan()
    for program in (CHECK_KERNELS, COMPILE_KERNELS):
        if not os.access(program, os.X_OK):
            stop("%s is not there: build it" % program)
    if os.path.isdir(options.out) and os.listdir(options.out):
        stop("%s is not empty" % options.out)
    with harness.Scratch() as work:
        Packer(options, work).pack()
    return 0


if __name__ == "__main__":
    sys.exit(main())
