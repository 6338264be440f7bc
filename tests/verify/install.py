#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An installed copy: `cmake --install` to a folder that is moved afterwards plans, builds, runs and rebuilds while the source tree
is out of sight, and names no folder of it."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

BUILD = os.path.dirname(harness.ZPLAN)


def hidden_tree():
    """Words before a command that runs it without the source tree; none where mounting is not allowed."""
    words = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', harness.ROOT]
    try:
        done = subprocess.run(words + ["ls", harness.ROOT], capture_output=True, text=True, cwd="/", check=False)
    except OSError:
        return []
    return words if done.returncode == 0 and not done.stdout else []


def names_the_tree(folder):
    """Files of the folder that hold the source tree's path."""
    found = []
    for at, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                if harness.ROOT.encode() in file.read():
                    found.append(name)
    return found


def check_copy(tally, folder):
    first, moved = os.path.join(folder, "first"), os.path.join(folder, "moved", "zplan")
    outcome = harness.run(["cmake", "--install", BUILD, "--prefix", first], cwd=folder)
    if not tally.check("cmake --install", outcome.status == 0, outcome.tail()):
        return
    os.makedirs(os.path.dirname(moved))
    shutil.move(first, moved)
    alongside = [name for name in ("zplan-calibrate", "zplan-calibrate-mpi") if not os.access(os.path.join(moved, "bin", name), os.X_OK)]
    tally.check("what `zplan calibrate` starts is installed", not alongside, "missing: %s" % " ".join(alongside))
    texts = ("man/man1/zplan.1", "bash-completion/completions/zplan", "fish/vendor_completions.d/zplan.fish")
    absent = [name for name in texts if not os.path.isfile(os.path.join(moved, "share", name))]
    tally.check("manual page and completion are installed", not absent, "missing: %s" % " ".join(absent))
    tally.check("no installed file names the source tree", not names_the_tree(moved), " ".join(names_the_tree(moved)))
    documents = os.path.join(moved, "share", "doc", "zplan")
    outcome = harness.run([sys.executable, os.path.join(harness.ROOT, "tests", "site", "links.py"), documents], cwd=folder)
    tally.check("the guide is installed, and links of the documents work there", outcome.status == 0 and os.path.isfile(
        os.path.join(documents, "docs", "guide", "start.md")), outcome.out)
    for variable in ("ZPLAN_KEPT_KERNELS", "KEPT_OBJECTS"):  # folders of the source tree
        os.environ.pop(variable, None)
    for variable in ("CC", "OMPI_CC", "CXX"):  # copies of quick compilers, which would be hidden, too
        os.environ[variable] = shutil.copy(harness.QUICK[variable], folder)
    hide = hidden_tree()
    print("the source tree is %s" % ("hidden" if hide else "in sight: mounting is not allowed here"), flush=True)
    examples = os.path.join(moved, "share", "doc", "zplan", "examples")
    zplan, model, gpu = os.path.join(moved, "bin", "zplan"), os.path.join(examples, "gpt_tiny.dz"), os.path.join(examples, "gpt_tiny_gpu.dz")
    tree = os.path.join(folder, "tree")
    for name, words in (("plans", [zplan, "plan", gpu, "--gpus", "4"]), ("builds", [zplan, "build", model, "--ranks", "1", "-o", tree]),
                        ("rebuilds", ["make", "-B", "-C", tree]), ("builds for two ranks", [zplan, "build", model, "--ranks", "2", "-o", tree + "2"]),
                        ("builds for the emulated GPU", [zplan, "build", gpu, "--gpus", "1", "--arch", "host", "-o", tree + "3"]),
                        ("runs", [os.path.join(tree, "trainer"), "--steps", "2", "--data", model, "--checkpoint", os.path.join(folder, "ck")]),
                        ("doctor", [zplan, "doctor"])):
        outcome = harness.run(hide + words, cwd=folder)
        tally.check(name, outcome.status == 0, outcome.tail())
        if name == "runs":
            tally.check("the run trains", "step 2/2" in outcome.out, outcome.tail())
    tally.check("no built file names the source tree", not any(names_the_tree(tree + n) for n in ("", "2", "3")))
    # The programs that measure stand alongside the command: run keeps a calibration, and then finds that nothing fits.
    outcome = harness.run(hide + [zplan, "run", model, "--ranks", "2", "--device-memory", "1MB"], cwd=folder, env={
        "ZPLAN_CALIBRATION": "", "ZPLAN_CALIBRATION_SECONDS": "2", "XDG_CACHE_HOME": os.path.join(folder, "cache")})
    tally.check("measures the machine", outcome.status == 3 and "is kept in" in outcome.err and "error[Z07" not in outcome.err, outcome.tail())
    # A copy whose library is gone says what is missing.
    shutil.rmtree(os.path.join(moved, "lib"))
    outcome = harness.run(hide + [zplan, "plan", gpu, "--gpus", "4"], cwd=folder)
    tally.check("without lib/zplan it says what is missing", outcome.status == 1 and "lib/zplan" in outcome.err, outcome.tail())


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_copy(tally, folder)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
