#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A build that only plans, where LLVM, MPI, Expat, PCRE2, libunistring and pkg-config are out of sight.

usage: plan_only.py [--build]

Without --build nothing is compiled: the configuration is made, and compiles nothing that build/release does not; the command is
build/release/zplan_plan_only, which is linked of the same objects. With it the whole is built, installed and moved (tests/long.sh).
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

BUILD = os.path.dirname(harness.ZPLAN)
HIDDEN = ("LLVM", "MPI", "PkgConfig", "expat", "pcre2", "unistring")
MODEL = os.path.join(harness.ROOT, "examples", "gpt_tiny.dz")
GPU = os.path.join(harness.ROOT, "examples", "gpt_tiny_gpu.dz")


def configure(folder):
    return harness.run(["cmake", "-S", harness.ROOT, "-B", folder, "-DZPLAN_PLAN_ONLY=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-Wno-dev"]
                       + ["-DCMAKE_DISABLE_FIND_PACKAGE_%s=ON" % name for name in HIDDEN])


def compiled(build):
    """Sources that a build compiles, those that it generates by their names alone, and the folders of headers that it names."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        rows = json.load(file)
    sources = set(os.path.relpath(row["file"], build if row["file"].startswith(build) else harness.ROOT) for row in rows)
    words = set(word for row in rows for word in row["command"].split() if word.startswith("/"))
    return sources, words


def check_configuration(tally, folder):
    outcome = configure(folder)
    if not tally.check("configures without them", outcome.status == 0, outcome.tail(12)):
        return
    sources, words = compiled(folder)
    tally.check("compiles what build/release does", sources and not sources - compiled(BUILD)[0], " ".join(sorted(sources - compiled(BUILD)[0])))
    strange = [name for name in sources if name.split("/")[0] in ("codegen", "kernels", "tests") or "/backend/" in name]
    tally.check("compiles nothing of trainers", not strange, " ".join(strange))
    tally.check("names no header of LLVM or MPI", not [word for word in words if "llvm" in word.lower() or "mpi/" in word.lower()])
    hidden = harness.run(["cmake", "-S", harness.ROOT, "-B", folder + "-whole", "-DCMAKE_DISABLE_FIND_PACKAGE_LLVM=ON"])
    tally.check("the whole without LLVM names the preset", hidden.status != 0 and "cmake --preset plan" in hidden.err, hidden.tail())


def needed(binary):
    done = subprocess.run(["readelf", "-d", binary], capture_output=True, text=True, check=False)
    return set(line.split("[")[1].split(".so")[0] for line in done.stdout.splitlines() if "(NEEDED)" in line)


# What glibc and the compiler call for themselves, and what macros of its headers become.
OF_GLIBC = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__assert_fail", "__ctype_b_loc", "__ctype_tolower_loc", "__ctype_toupper_loc",
            "__cxa_finalize", "__errno_location", "__gmon_start__", "__libc_start_main", "__sched_cpucount", "__stack_chk_fail", "__tls_get_addr"}


def calls_of(binary):
    """Names that a program takes from shared libraries, as the source has them."""
    done = subprocess.run(["nm", "--dynamic", "--undefined-only", binary], capture_output=True, text=True, check=False)
    names = set(line.split()[-1].split("@")[0] for line in done.stdout.splitlines())
    return set(re.sub(r"^__(isoc\d+_)?(\w+?)(_chk)?$", lambda m: m[2] if m[1] or m[3] else m[0], name) for name in names - OF_GLIBC)


def check_page_calls(tally, zplan):
    """The page of driver/browser is this command with another C library, which takes a compiler that is not here: what it lacks is found by name."""
    wasi = os.path.join(harness.ROOT, "cmake", "wasi")
    with open(os.path.join(wasi, "calls.txt"), encoding="utf-8") as file:
        has = set(word for line in file if not line.startswith("#") for word in line.split())
    headers = ""
    for path in glob.glob(os.path.join(wasi, "**", "*.h"), recursive=True):
        with open(path, encoding="utf-8") as file:
            headers += file.read()
    calls = calls_of(zplan)
    absent = sorted(name for name in calls - has if not name.startswith("json_") and not re.search(r"\b%s\(|#define %s\b" % (name, name), headers))
    tally.check("calls what the page's C library or cmake/wasi has", {"fopen", "malloc", "exp"} <= calls and not absent, " ".join(absent))


def check_versions(tally, zplan):
    version, doctor = harness.run([zplan, "--version"]), harness.run([zplan, "doctor", "--json"])
    lines = version.out.splitlines()
    tally.check("--version", version.status == 0 and lines[0].endswith("plan-only") and "LLVM         without" in lines, version.out)
    found = json.loads(doctor.out)["result"]
    built_with = ["%s %s" % (row["name"], row["found"] or "without") for row in found["built_with"]]
    tally.check("doctor says the same", found["version"] == lines[0] and built_with == [" ".join(line.split()) for line in lines[1:]], doctor.out)
    purposes = {purpose["name"]: purpose["ready"] for purpose in found["purposes"]}
    tally.check("doctor: it plans", purposes == {"plan": True, "training": False}, doctor.out)
    whole = harness.zplan("--version").out.splitlines()
    tally.check("of the whole: the same version, with LLVM", whole[0] + ", plan-only" == lines[0] and whole[1] != lines[1], whole[0])


def check_left_out(tally, zplan, folder):
    for words in (["build", MODEL], ["run", MODEL, "--ranks", "2"], ["bench", MODEL], ["calibrate"], ["sample", folder, "--prompt", "a"],
                  ["eval", folder, "--data", MODEL], ["plan", MODEL, "--calibration", "kept"]):
        outcome = harness.run([zplan] + words, cwd=folder)
        tally.check("%s is left out" % words[0], outcome.status == 1 and outcome.err.count("error[Z0708]") == 1 and not outcome.out
                    and "cmake --workflow --preset release" in outcome.err, outcome.tail())
    topology, tokenizer = os.path.join(folder, "topology.xml"), os.path.join(folder, "tokenizer.json")
    for path, text in ((topology, "<system/>"), (tokenizer, "{}")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    for words in (["import", "nccl", topology], ["data", MODEL, "--tokenizer", tokenizer, "-o", "t.bin"]):
        outcome = harness.run([zplan] + words, cwd=folder)
        tally.check("%s without its library" % words[0], outcome.status == 1 and outcome.err.count("error[Z0709]") == 1, outcome.tail())
    tally.check("nothing is left behind", sorted(os.listdir(folder)) == ["tokenizer.json", "topology.xml"], " ".join(os.listdir(folder)))


def check_verbs(tally, zplan, folder):
    """What it does is what the whole does."""
    plan, config = os.path.join(folder, "p.json"), os.path.join(folder, "config.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "n_positions": 32, "vocab_size": 256}, file)
    for words in (["plan", GPU, "--gpus", "4", "-o", plan, "--force"], ["check", MODEL], ["explain", GPU, "--why-not", "tensor=2"],
                  ["explain", "Z0708"], ["report", plan], ["verify", plan], ["diff", plan, plan], ["compare", plan, GPU], ["fmt", MODEL, "--check"],
                  ["export", "slurm", plan], ["export", "deepspeed", GPU], ["export", "megatron", GPU], ["import", "hf", config],
                  ["completion", "bash"], ["data", MODEL, "-o", os.path.join(folder, "t.bin")], ["--help"]):
        mine = harness.run([zplan] + words, cwd=folder)
        theirs = harness.zplan(*words, cwd=folder)
        tally.check("%s as the whole" % " ".join(words[:2] if words[0] in ("export", "import") else words[:1]),
                    mine.status == theirs.status and mine.status in (0, 3) and mine.out == theirs.out, mine.tail())


def build_all(tally, folder):
    """The command of a whole build, installed and moved."""
    build = os.path.join(folder, "build")
    outcome = configure(build)
    outcome = harness.run(["cmake", "--build", build, "-j2"]) if outcome.status == 0 else outcome
    tally.check("builds", outcome.status == 0 and "warning:" not in outcome.out, outcome.tail(12))
    harness.run(["cmake", "--install", build, "--prefix", os.path.join(folder, "first")])
    moved = os.path.join(folder, "moved")
    shutil.move(os.path.join(folder, "first"), moved)
    return os.path.join(moved, "bin", "zplan")


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        zplan = os.path.join(BUILD, "zplan_plan_only")
        if "--build" in sys.argv[1:]:
            zplan = build_all(tally, folder)
        else:
            check_configuration(tally, os.path.join(folder, "configured"))
            with open(zplan + ".map", encoding="utf-8", errors="replace") as file:
                tally.check("is linked of nothing that the stand-ins replace", "libzp_tokenize.a(" not in file.read())
        libraries = needed(zplan)
        tally.check("needs Jansson and the C library alone", libraries and libraries <= {"libjansson", "libm", "libc", "ld-linux-x86-64"}, " ".join(libraries))
        check_page_calls(tally, zplan)
        check_versions(tally, zplan)
        for name, check in (("out", check_left_out), ("verbs", check_verbs)):
            os.mkdir(os.path.join(folder, name))
            check(tally, zplan, os.path.join(folder, name))
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
