#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run on one machine: nobody else can reach it, and what killed runs leave is cleared by the next one, and nothing else.

Sockets are those of the kernel's tables, not what a program says of itself."""
import contextlib
import glob
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import sockets  # noqa: E402

MODEL = os.path.join(harness.ROOT, "tests", "fault", "tiny.dz")
SHARED = "/dev/shm"
NOBODY = 65534


class Run:
    """A training of two ranks that goes on until it is ended; what it keeps is in `folder`."""

    def __init__(self, folder, tree, temporary, env=None, trainer=()):
        self.log = os.path.join(folder, "log.jsonl")
        os.makedirs(folder)
        command = [harness.ZPLAN, "run", MODEL, "--ranks", "2", "-o", tree, "--set", "tensor=1", "--set", "pipeline=2", "--steps", "1000000",
                   "--log", self.log, "--", "--checkpoint", os.path.join(folder, "ck"), *trainer]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True, env=dict(os.environ, TMPDIR=temporary, **(env or {})))
        harness.sessions.add(self.process.pid)
        limit = time.monotonic() + harness.PATIENCE
        while not self.steps() and self.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)

    def steps(self):
        try:
            return len(harness.read_log(self.log)[0])
        except (OSError, ValueError):
            return 0  # not there yet, or in the making

    def ranks(self):
        """{rank: its environment}"""
        found = {}
        for process in sockets.session_of(self.process.pid):
            try:
                with open("/proc/%d/environ" % process, "rb") as file:
                    variables = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
            except OSError:
                continue  # it ended meanwhile
            if b"OMPI_COMM_WORLD_RANK" in variables:
                found[int(variables[b"OMPI_COMM_WORLD_RANK"])] = variables
        return found

    def folders(self):
        """Those that this start of mpirun has for itself."""
        found = []
        for process in sockets.session_of(self.process.pid):
            with open("/proc/%d/cmdline" % process, "rb") as file:
                found += [word.decode() for word in file.read().split(b"\0") if b"/zplan-mpi-" in word]
        return sorted(set(found))

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=harness.PATIENCE)
        harness.sessions.discard(self.process.pid)
        return self.process.returncode, err

    def kill(self):
        """Everything at once, so that nobody clears up."""
        harness.end_session(self.process.pid)
        self.process.communicate()
        while harness.in_session(self.process.pid):
            time.sleep(0.02)
        harness.sessions.discard(self.process.pid)


def check_sockets(tally, run):
    found = sockets.open_sockets(run.process.pid)
    processes = sockets.session_of(run.process.pid)
    tally.check("two ranks are checked", sorted(run.ranks()) == [0, 1] and len(processes) >= 4, "%s" % processes)
    tally.check("a listener is seen", any(waits for *_, waits in found), "%s" % found)
    away = ["%s %s of %d" % (table, own, process) for process, table, own, _, waits in found if waits and not own.is_loopback]
    tally.check("nobody listens beyond the loopback", not away, ", ".join(away))
    away = ["%s to %s of %d" % (table, peer, process) for process, table, _, peer, waits in found if not waits and not peer.is_loopback]
    tally.check("nobody talks beyond the loopback", not away, ", ".join(away))
    maps = []
    for process in processes:
        with open("/proc/%d/maps" % process, encoding="utf-8") as file:
            maps.append(file.read())
    tally.check("messages go through shared memory", sum("/vader_segment." in text for text in maps) == 2)


def segment(number):
    return os.path.join(SHARED, "vader_segment.%s.%d.%x.%d" % (os.uname().nodename.split(".")[0], os.geteuid(), os.getpid(), number))


@contextlib.contextmanager
def kept_young(path):
    """However long a start takes: runs of other tests may clear it, too."""
    over = threading.Event()

    def touch():
        while not over.wait(0.2) and os.path.exists(path):
            os.utime(path)

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def check_leftovers(tally, folder, live, tree, temporary, planted):
    """Alongside a run that lives: the folders of a killed one go with the next start, the others stay."""
    killed = Run(os.path.join(folder, "killed"), tree, temporary)
    left = killed.folders()
    killed.kill()
    own = [path for path in left if path.startswith(temporary)]  # any start of zplan clears those in /dev/shm
    tally.check("a killed run leaves folders", own and all(map(os.path.isdir, own)), "%s" % left)
    alien = os.path.join(temporary, "zplan-mpi-alien0")
    if os.geteuid() == 0:
        os.makedirs(alien)
        with open(os.path.join(alien, ".lock"), "w", encoding="ascii"):
            pass
        os.chown(alien, NOBODY, NOBODY)
    old, mapped = planted
    while os.path.exists(old) and time.time() - os.stat(old).st_ctime < 6:  # younger ones may be in the making
        time.sleep(0.1)
    young = segment(2)
    open(young, "wb").close()
    with kept_young(young):
        after = Run(os.path.join(folder, "after"), tree, temporary)
        tally.check("they are cleared", after.folders() and not any(map(os.path.exists, left)), "%s" % left)
        tally.check("those of a live run stay", all(map(os.path.isdir, live.folders())) and live.folders(), "%s" % live.folders())
        tally.check("a segment that nobody maps is cleared", not os.path.exists(old))
        tally.check("one that is mapped stays", os.path.exists(mapped))
        tally.check("one that is new stays", os.path.exists(young))
        if os.geteuid() == 0:
            tally.check("another user's folder stays", os.path.isdir(alien))
        own = after.folders()
        status, err = after.interrupt()
        tally.check("the next run ends as ever", status == 128 + signal.SIGINT, "%s %s" % (status, err))
        tally.check("and leaves nothing", not any(map(os.path.exists, own)), "%s" % own)


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    planted = [segment(0), segment(1)]
    for path in planted:
        with open(path, "wb") as file:
            file.write(bytes(4096))
    try:
        with open(planted[1], "r+b") as file, mmap.mmap(file.fileno(), 0), harness.Scratch() as folder:
            temporary, tree = os.path.join(folder, "a folder"), os.path.join(folder, "tree")
            os.makedirs(temporary)
            live = Run(os.path.join(folder, "live"), tree, temporary, env={"LD_PRELOAD": "libm.so.6"})
            check_sockets(tally, live)
            environments = live.ranks().values()
            tally.check("ranks have the user's LD_PRELOAD", [e.get(b"LD_PRELOAD") for e in environments] == [b"libm.so.6"] * 2, "%s" % live.ranks())
            check_leftovers(tally, folder, live, tree, temporary, planted)
            status, err = live.interrupt()
            tally.check("the live run did not notice", status == 128 + signal.SIGINT and "error" not in err, "%s %s" % (status, err))
            tally.check("nothing is left", os.listdir(temporary) in ([], ["zplan-mpi-alien0"]), "%s" % os.listdir(temporary))
            shutil.rmtree(temporary, ignore_errors=True)
    finally:
        for leader in list(harness.sessions):  # a check that raised leaves its runs
            harness.end_session(leader)
        for path in planted + glob.glob(segment(2)):
            if os.path.exists(path):
                os.remove(path)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
