#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packed folder on the emulated GPU: pack.sh packs a small one, its scripts run, find nothing, and find what is put into it.

    test_pack.py [OUT]      OUT: keeps the folder there
"""
import gzip
import os
import re
import shutil
import stat
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import cases  # noqa: E402
import harness  # noqa: E402

NO_GPU = 77
SANITIZER = """#!/bin/sh
# A stand-in: runs the program, and finds as many errors as it is told.
while [ "${1#--}" != "$1" ]; do
  case $1 in --tool | --target-processes | --error-exitcode) shift ;; esac
  shift
done
[ "${FAKE_ERRORS:-0}" -ne 0 ] || "$@" || exit
echo "========= ERROR SUMMARY: ${FAKE_ERRORS:-0} errors"
[ "${FAKE_ERRORS:-0}" -eq 0 ] || exit 99
"""


class Folder:
    def __init__(self, tally, path):
        self.tally, self.path = tally, path

    def run(self, script, *words, **env):
        """(Outcome, lines of its text)."""
        outcome = harness.run((os.path.join(self.path, script + ".sh"), *words), env=env)
        with open(os.path.join(self.path, script + ".txt"), encoding="utf-8") as file:
            return outcome, file.read().splitlines()

    def expect(self, what, ran, status, totals, *patterns):
        """The status, the last line, a line for every pattern."""
        outcome, lines = ran
        text = "\n".join(lines)
        self.tally.check(what + ": status %d" % status, outcome.status == status, "it was %d\n%s\n%s" % (outcome.status, text, outcome.err))
        self.tally.check(what + ": its text is what it prints", outcome.out.splitlines() == lines, outcome.out)
        self.tally.check(what + ": totals", re.fullmatch(totals, lines[-1]), lines[-1])
        for pattern in patterns:
            self.tally.check("%s: /%s/" % (what, pattern), re.search(pattern, text, re.M), text)


def check_programs(tally, path, scratch):
    """Whatever is packed needs libc and libm alone; trainers of several ranks MPI, too."""
    for where, _, names in os.walk(path):
        for name in names:
            if "/images/" in where or not (name.endswith(".gz") or name == "check_kernels"):
                continue
            full = os.path.join(where, name)
            with gzip.open(full) if name.endswith(".gz") else open(full, "rb") as file, open(os.path.join(scratch, "program"), "wb") as plain:
                plain.write(file.read())
            needed = set(re.findall(r"NEEDED.*\[(.*)\]", harness.run(("readelf", "-d", plain.name)).out))
            ranked = "1_bit" in name
            may = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"} | ({"libmpi.so.40"} if ranked else set())
            tally.check("%s needs libc and libm" % name, "libc.so.6" in needed and needed <= may, str(needed))
    blocks = int(harness.run(("du", "-sk", path)).out.split()[0])
    tally.check("at most 48 MiB", blocks <= 48 * 1024, "%d KiB" % blocks)


def check_first(folder):
    folder.expect("first.sh", folder.run("first"), 0, r"[1-9]\d* passed, 0 failed", r"^arch +sm_86$", r"^gpu +emulated GPU",
                  *("^passed +%s: 2 of 2 steps, largest error of losses [0-9.e-]+ \\(limit " % name for name in cases.SMALL),
                  *("^passed +kernels: %s, " % re.escape(name) for name in cases.small_kernels()),
                  r"^passed +resume, bf16: all 2 steps", r"^passed +a GPU of another kind: status 5", r"^passed +a GPU that is full: status 8",
                  r"^skipped +compute-sanitizer: it is not", r"^seconds +\d+, \d+ skipped$")


def check_references(folder):
    """A reference that differs is found."""
    reference = os.path.join(folder.path, "references", "bf16.txt")
    shutil.copy(reference, reference + ".kept")
    with open(reference, encoding="utf-8") as file:
        rows = [line.split() for line in file]
    others = (("a loss", [[n, "%.6f" % (float(loss) * 1.01), norm] for n, loss, norm in rows]),
              ("a norm", [[n, loss, "%.6f" % (float(norm) * 1.1)] for n, loss, norm in rows]),
              ("a loss that is no number, a step more", [[n, "null", norm] for n, loss, norm in rows] + [["3", "1", "1"]]))
    for what, changed in (other for number, other in enumerate(others) if harness.my_turn(number, len(others))):
        with open(reference, "w", encoding="utf-8") as file:
            file.write("".join(" ".join(row) + "\n" for row in changed))
        folder.expect("other reference, " + what, folder.run("first", "trainings"), 1, r"2 passed, 1 failed", "^FAILED +bf16: ", "^passed +f32: ")
    os.replace(reference + ".kept", reference)


def check_images(folder):
    images = os.path.join(folder.path, "images", "host")
    one = sorted(name for name in os.listdir(images) if name.endswith("_bf16.image.gz"))[0]
    os.rename(os.path.join(images, one), os.path.join(images, "away"))
    folder.expect("an image that is not there", folder.run("first", "kernels"), 1, r"\d+ passed, [1-9]\d* failed", "no image .*" + one[:-3])
    os.rename(os.path.join(images, "away"), os.path.join(images, one))


def check_sanitizer(folder, scratch):
    bin_folder = os.path.join(scratch, "bin")
    os.makedirs(bin_folder)
    stand_in = os.path.join(bin_folder, "compute-sanitizer")
    with open(stand_in, "w", encoding="utf-8") as file:
        file.write(SANITIZER)
    os.chmod(stand_in, stat.S_IRWXU)
    path = bin_folder + ":" + os.environ["PATH"]
    if harness.my_turn(1, 2):  # eight trainings
        folder.expect("compute-sanitizer", folder.run("first", "sanitizer", PATH=path), 0, "8 passed, 0 failed",
                      *("^passed +compute-sanitizer %s, bf16: 0 errors" % tool for tool in ("memcheck", "racecheck", "synccheck", "initcheck")))
    folder.expect("errors of compute-sanitizer", folder.run("first", "sanitizer", PATH=path, FAKE_ERRORS="3"), 1, "0 passed, 8 failed",
                  "^FAILED +compute-sanitizer racecheck, f32: exit status 99, 3 errors")


def check_speed(folder):
    folder.expect("speed.sh", folder.run("speed"), 0, "2 passed, 0 failed",
                  *("^passed +%s: [0-9.]+ ms a step .*, [0-9]+ tokens/s, .* full, .* computed" % one.name for one in cases.EMULATED_SPEEDS),
                  r"^ +attention +[0-9.]+ +[0-9.]+$", r"^ +product +[0-9.]+ +[0-9.]+$", r"^ +small_windowed \(50.2 % of the pairs\): step [0-9.]+ times as fast as small_dense, attention")


def check_counts(tally):
    """FLOP by the pairs that are computed are those that zplan counts."""
    units = {"G": 1e9, "T": 1e12, "P": 1e15}
    models = {"gpt2": ("examples/gpt2.dz", "gpt2_124m"), "windowed": (None, "16k_13_percent")}
    with harness.Scratch() as scratch:
        for model, (path, name) in models.items():
            one = next(one for one in cases.SPEEDS if one.name == name)
            path = os.path.join(harness.ROOT, path) if path else write_model(scratch, model)
            pins = [word for key in ("V", "S", "d", "layers", "heads") for word in ("--set", "model.%s=%d" % (key, getattr(one, key)))]
            pins += ["--set", "model.window=%d" % one.window] if one.window else []
            told = harness.zplan("check", path, *pins).out
            found = re.search(r"([0-9.]+) ([GTP]) FLOP a sequence", told)
            counted = float(found.group(1)) * units[found.group(2)] if found else 0
            tally.check("FLOP of " + name, abs(cases.flop_of(one)[1] / one.batch - counted) <= 6e-4 * counted, told)
            found = re.search(r"([0-9.]+)% of dense attention", told)
            tally.check("pairs of " + name, not one.window or found and abs(float(found.group(1)) - cases.percent_of(one)) <= 0.06, told)


def write_model(folder, model):
    path = os.path.join(folder, model + ".dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write('use std.hw\nuse "%s" as m\ncluster c { nodes = 1  node = std.hw.workstation(devices = 1 * std.hw.h100_sxm) }\ntrain { model = m.%s()'
                   '  batch = 2  steps = 1  precision = "mixed_bf16"  data = synthetic(seed = 1)  optimizer = adamw(lr = 1e-3) }\n' %
                   (os.path.join(HERE, "long.dz"), model))
    return path


def check_refusals(folder):
    settings = os.path.join(folder.path, "settings.sh")
    with open(settings, encoding="utf-8") as file:
        text = file.read()
    folder.expect("an old driver", folder.run("first", ZPLAN_EMULATED_TROUBLE="driver=11040"), NO_GPU, "there is no GPU .* CUDA 11.4, and 12.0 .*")
    folder.expect("no GPU", folder.run("speed", ZPLAN_EMULATED_TROUBLE="gpus=0"), NO_GPU, "there is no GPU that can be used here.*")
    outcome = harness.run((os.path.join(folder.path, "first.sh"), "speed"))
    folder.tally.check("an unknown part", outcome.status == 2 and "kernels, trainings" in outcome.err, outcome.tail())
    with open(settings, "w", encoding="utf-8") as file:
        file.write(re.sub("emulated=.*", "emulated=''", text))
    if not os.path.exists("/dev/nvidiactl"):
        folder.expect("no driver", folder.run("first"), NO_GPU, "there is no GPU that can be used here.*libcuda.so.1.*")
    with open(settings, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as scratch:
        path = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(scratch, "pack")
        outcome = harness.run((os.path.join(HERE, "pack.sh"), path, "--emulated", "--small", "--mpi"))
        if tally.check("packs", outcome.status == 0, outcome.tail(12)):
            folder = Folder(tally, path)
            check_programs(tally, path, scratch)
            check_first(folder)
            for number, check in enumerate((check_references, check_images)):
                if harness.my_turn(number, 2):
                    check(folder)
            check_sanitizer(folder, scratch)
            if harness.my_turn(0, 2):
                check_speed(folder)
            check_refusals(folder)
        check_counts(tally)
        again = harness.run((os.path.join(HERE, "pack.sh"), path, "--emulated", "--small"))
        tally.check("a folder that is not empty is refused", again.status == 1 and "is not empty" in again.err, again.tail())
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
