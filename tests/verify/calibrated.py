#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The calibration that `zplan run` and `zplan bench` make once and keep: when it is measured, kept and used, what stands in its way, and
that nothing else depends on it. Measures for 2 s instead of 20 ($ZPLAN_CALIBRATION_SECONDS, which allows no less), and cores once: a copy of the command whose
zplan-calibrate says later what it said at first."""
import glob
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

TINY = os.path.join(harness.ROOT, "examples", "gpt_tiny.dz")
NOTHING_FITS = ("run", TINY, "--ranks", "2", "--device-memory", "1MB")  # exit status 3 after the calibration, before a trainer is built
MEASURES, KEPT = "measuring this machine for", re.compile(r"calibration ([0-9a-f]{16}), measured in \d+ s, is kept in (\S+)")
USED = re.compile(r"calibration ([0-9a-f]{16}) of \d{4}-\d\d-\d\d, kept in (\S+)")


# In place of zplan-calibrate: the first time it is the program, on the one core that a rank has here, then its answer, after a second.
ONCE = """#!/bin/sh
if [ -e "$0.said" ]; then sleep 1; else taskset -c %d "%s" "$@" >"$0.said.$$" && mv "$0.said.$$" "$0.said" || exit; fi
exec cat "$0.said"
"""


def copy_command(folder):
    """A build folder of links, with a command of its own: it looks for what measures alongside itself."""
    build, at = os.path.dirname(harness.ZPLAN), os.path.join(folder, "bin")
    os.mkdir(at)
    for name in os.listdir(build):
        if name not in ("zplan", "zplan.source", "zplan-calibrate"):
            os.symlink(os.path.join(build, name), os.path.join(at, name))
    harness.ZPLAN = shutil.copy(harness.ZPLAN, at)
    write(os.path.join(at, "zplan.source"), os.path.relpath(harness.ROOT, at))
    write(os.path.join(at, "zplan-calibrate"), ONCE % (min(os.sched_getaffinity(0)), os.path.join(build, "zplan-calibrate")))
    os.chmod(os.path.join(at, "zplan-calibrate"), 0o755)


def settings(cache, **more):
    """What the command finds in its environment; "" is as good as unset."""
    return dict(ZPLAN_CALIBRATION="", ZPLAN_CALIBRATION_SECONDS="2", XDG_CACHE_HOME=cache, **more)


def kept_files(cache):
    return sorted(glob.glob(os.path.join(cache, "zplan", "*")))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Checks:
    def __init__(self, tally, folder):
        self.tally, self.folder, self.cache = tally, folder, os.path.join(folder, "cache")
        self.tree, self.plan = os.path.join(folder, "tree"), os.path.join(folder, "plan.json")

    def zplan(self, *words, cache=None, **more):
        return harness.zplan(*words, cwd=self.folder, env=settings(cache or self.cache, **more))

    def train(self, *words, **more):
        return self.zplan("run", TINY, "--ranks", "2", "--steps", "1", "--overwrite", "-o", self.tree, *words, **more)

    def kept(self):
        return kept_files(self.cache)[0]

    def nothing_measures(self):
        """plan and build, run with a word against it, and a plan's own run neither measure nor use."""
        plain = self.zplan("plan", TINY, "--verbose", "--ranks", "2", "-o", self.plan)
        self.tally.check("plan does not measure", plain.status == 0 and not kept_files(self.cache), plain.tail())
        self.tally.check("plan is of library numbers", "uncalibrated library numbers" in " ".join(plain.out.split()), plain.out)
        self.tally.check("its file carries none", "calibration" not in json.loads(read(self.plan)))
        for words, more in ((("build",) + NOTHING_FITS[1:], {}), (NOTHING_FITS + ("--calibration", "none"), {}),
                            (NOTHING_FITS, {"ZPLAN_CALIBRATION": "none"})):
            env = dict(settings(self.cache), **more)
            done = harness.zplan(*words, cwd=self.folder, env=env)
            self.tally.check("%s %s does not measure" % (words[0], words[-1]), MEASURES not in done.err and not kept_files(self.cache), done.tail())
        none = self.zplan("plan", TINY, "--ranks", "2", "--calibration", "kept")
        self.tally.check("kept, where none is", none.status == 1 and "error[Z0640]" in none.err and "zplan run" in none.err, none.err)

    def quiet(self):
        """Other tests may end meanwhile: the kept calibration is as if it was measured without them."""
        kept = json.loads(read(self.kept()))
        kept["rows"] = [row for row in kept["rows"] if row["name"] != "load"]
        write(self.kept(), json.dumps(kept))

    def first_and_later_runs(self):
        first = self.train()
        said = KEPT.search(first.err)
        if not self.tally.check("the first run measures and says where it keeps it", first.status == 0 and MEASURES + " about 2 s" in first.err and said, first.tail(12)):
            return False
        files, mode = kept_files(self.cache), os.stat(said.group(2)).st_mode
        self.tally.check("one file, and nothing half-written", files == [said.group(2)], str(files))
        self.tally.check("of this user alone", stat.S_IMODE(mode) == 0o600 and stat.S_IMODE(os.stat(os.path.dirname(files[0])).st_mode) == 0o700)
        rows = {row["name"]: row["value"] for row in json.loads(read(files[0]))["rows"]}
        self.tally.check("messages were measured", rows.get("message_s_2x64", 0) > 0 and rows.get("reduce_round_s_2x32768", 0) > 0)
        self.tally.check("the disk was not", "disk_write_bytes_per_s" not in rows)
        kept = json.loads(read(files[0]))
        for row in kept["rows"]:
            row["value"] = 1e6 if row["name"] == "load" else row["value"]
        kept["rows"] += [] if "load" in rows else [{"name": "load", "value": 1e6}]
        write(files[0], json.dumps(kept))
        busier = self.zplan(*NOTHING_FITS)
        said = KEPT.search(busier.err)
        self.tally.check("what was measured on a much busier machine is made again", "was busy" in busier.err and said, busier.tail())
        self.quiet()
        second = self.train()
        used = USED.search(second.err)
        if not self.tally.check("the next run uses it and says so", second.status == 0 and used and used.group(2) == files[0], second.tail(12)):
            return False
        self.hash = used.group(1)
        self.tally.check("and measures nothing", MEASURES not in second.err, second.err)
        before = json.loads(read(self.plan))
        again = self.zplan("plan", TINY, "--ranks", "2", "-o", self.plan + ".again")
        self.tally.check("plan still uses none", again.status == 0 and json.loads(read(self.plan + ".again"))["estimate"] == before["estimate"])
        return True

    def bench(self):
        done = self.zplan("bench", TINY, "--ranks", "2", "--top", "0", "--steps", "1", "--json", "-o", os.path.join(self.folder, "bench"))
        found = json.loads(done.out)["calibration"] if done.status == 0 else None
        self.tally.check("bench uses it and says so", found == self.hash and USED.search(done.err), done.tail())

    def plan_files(self):
        """The plan of a run names its calibration and needs no other file."""
        plan = json.loads(read(os.path.join(self.tree, "plan.json")))
        own = plan.get("calibration", {})
        self.tally.check("the run's plan has its hash", own.get("hash") == self.hash and own.get("of") and own.get("date"), str(own)[:200])
        self.tally.check("and no path of it", self.cache not in json.dumps(plan))
        moved = os.path.join(self.folder, "moved.json")
        write(moved, json.dumps(plan))
        lone = os.path.join(self.folder, "lone")
        for words in (("verify", moved), ("report", moved, "--verbose"), ("explain", moved, "--verbose")):
            done = self.zplan(*words, cache=lone)
            self.tally.check("%s without the kept file" % words[0], done.status == 0 and not os.path.exists(lone), done.tail())
            self.tally.check("%s names it" % words[0], words[0] == "verify" or "calibration " + self.hash in " ".join(done.out.split()), done.out)
        kept = self.zplan("plan", TINY, "--ranks", "2", "--calibration", "kept", "-o", self.plan + ".kept")
        same = json.loads(read(self.plan + ".kept"))["estimate"]["step_s"] if kept.status == 0 else None
        self.tally.check("plan --calibration kept is that plan", same == plan["estimate"]["step_s"], kept.tail())
        name = next(name for name in own["rows"] if name.startswith("gemm_f64"))  # which this plan's times do not need
        for what, change in (("a rate", lambda c: c["rows"].update({name: c["rows"][name] * 1.01})), ("a rate less", lambda c: c["rows"].pop(name)),
                             ("the hash", lambda c: c.update(hash="0" * 16)), ("the machine", lambda c: c.update(of="another"))):
            changed = json.loads(json.dumps(plan))
            change(changed["calibration"])
            write(moved, json.dumps(changed))
            done = self.zplan("verify", moved)
            self.tally.check("verify finds a changed calibration: " + what, done.status == 1 and "calibration." in done.err, done.tail())
        write(moved, json.dumps(dict(plan, calibration={"rows": 3})))
        done = self.zplan("verify", moved)
        self.tally.check("a plan with a malformed one", done.status == 1 and "error[Z0640]" in done.err, done.tail())

    def unusable(self):
        """What stands in the kept file's place is not trusted: `plan --calibration kept` says why, without measuring."""
        path, good = self.kept(), read(self.kept())
        elsewhere = os.path.join(self.folder, "elsewhere.json")

        def refused(name, reason):
            done = self.zplan("plan", TINY, "--ranks", "2", "--calibration", "kept")
            self.tally.check("kept file: " + name, done.status == 1 and reason in done.err, done.err)

        for name, text, reason in (("cut off", good[:len(good) // 2], "error[Z0640]"), ("empty", "", "error[Z0640]"), ("no JSON", "\0\1", "error[Z0640]"),
                                   ("another machine's", re.sub(r'"identity": "', '"identity": "x', good), "another machine"),
                                   ("an older version", good.replace('"version": 2', '"version": 1'), "version is 1")):
            write(path, text)
            refused(name, reason)
        os.remove(path)
        write(elsewhere, good)
        os.chmod(elsewhere, 0o600)
        os.symlink(elsewhere, path)
        refused("a link", "it is a link")
        os.remove(path)
        os.mkfifo(path)
        refused("a pipe", "no regular file")
        os.remove(path)
        os.mkdir(path)
        refused("a folder", "no regular file")
        os.rmdir(path)
        write(path, good)
        os.chmod(path, 0o666)
        refused("others may write it", "others may write it")
        os.chmod(path, 0o600)
        folder = os.path.dirname(path)
        os.chmod(folder, 0o777)
        refused("others may write its folder", "there is none")
        os.chmod(folder, 0o700)

    def not_kept(self):
        """The run goes on with what was measured, and says that it is not kept."""
        done = self.zplan(*NOTHING_FITS, cache="/dev/null/cache")
        self.tally.check("a folder that cannot be made", done.status == 3 and "is not kept" in done.err and "Not a directory" in done.err, done.tail())
        # A launcher that fails to measure: what was measured without messages is used once, and the training goes on.
        tools, cache = os.path.join(self.folder, "tools"), os.path.join(self.folder, "broken")
        os.mkdir(tools)
        launcher = shutil.which("mpirun.openmpi")
        write(os.path.join(tools, "mpirun.openmpi"), "#!/bin/sh\ncase \"$*\" in *zplan-calibrate-mpi*) exit 3 ;; esac\nexec %s \"$@\"\n" % launcher)
        os.chmod(os.path.join(tools, "mpirun.openmpi"), 0o755)
        done = self.train(cache=cache, PATH=tools + ":" + os.environ["PATH"], HOME="/dev/null")
        self.tally.check("messages that cannot be measured are an error", "error[Z0704]" in done.err and "zplan-calibrate-mpi" in done.err, done.tail())
        self.tally.check("after which nothing is kept, and the run trains", done.status == 0 and "is not kept" in done.err and not kept_files(cache), done.tail())

    def interrupted(self):
        """Ctrl-C: what measures ends, and nothing is left."""
        cache = os.path.join(self.folder, "interrupted")
        os.remove(os.path.join(self.folder, "bin", "zplan-calibrate.said"))  # measures again
        process = subprocess.Popen([harness.ZPLAN, *NOTHING_FITS], cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                                   start_new_session=True, env=dict(os.environ, **settings(cache)),
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # tests/run.sh has it ignored
        while MEASURES not in process.stderr.readline():
            pass
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        status = process.wait(timeout=harness.PATIENCE)
        deadline = time.monotonic() + 10
        while harness.in_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.tally.check("Ctrl-C ends it", status == -signal.SIGINT, str(status))
        self.tally.check("and its programs", not harness.in_session(process.pid), str(harness.in_session(process.pid)))
        self.tally.check("and leaves nothing", not kept_files(cache), str(kept_files(cache)))

    def two_at_once(self):
        """One measures, the other one waits for it; a link in the file's place is reported and replaced."""
        cache, elsewhere = os.path.join(self.folder, "shared"), os.path.join(self.folder, "elsewhere.json")
        link = os.path.join(cache, "zplan", os.path.basename(self.kept()))
        os.makedirs(os.path.dirname(link), 0o700)
        os.symlink(elsewhere, link)
        before = read(elsewhere)
        both = [subprocess.Popen([harness.ZPLAN, *NOTHING_FITS], cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                                 env=dict(os.environ, **settings(cache))) for _ in range(2)]
        said = [process.communicate(timeout=harness.PATIENCE)[1] for process in both]
        hashes = {match.group(1) for text in said for match in [KEPT.search(text) or USED.search(text)] if match}
        self.tally.check("of two runs one measures", sum(MEASURES in text for text in said) == 1, " | ".join(said))
        self.tally.check("it says that there was a link", any("it is a link" in text for text in said), " | ".join(said))
        self.tally.check("the link's file stays, the link goes", read(elsewhere) == before and not os.path.islink(link))
        self.tally.check("and both use the same", len(hashes) == 1 and len(kept_files(cache)) == 1, " | ".join(said))


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        copy_command(folder)
        checks = Checks(tally, folder)
        checks.nothing_measures()
        if checks.first_and_later_runs():
            checks.bench()
            checks.plan_files()
            checks.unusable()
            checks.two_at_once()
        checks.not_kept()
        checks.interrupted()
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
