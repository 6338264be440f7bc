#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two machines, which are network namespaces with a cable between them: a training over both is that of one machine, and what
becomes of it when the cable is slow or unplugged, or a machine dies. Needs root and iproute2; elsewhere it is skipped, and says so.

    hosts.py [TEXT]      only the tests whose name holds TEXT

Both share the file system, as machines of a cluster share a folder. Each has a host name and a network of its own; daemons of mpirun
are started by a script where machines have ssh."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

MODEL = os.path.join(HERE, "tiny.dz")
FAILED = 5
ADDRESSES = {"a": "10.213.77.1", "b": "10.213.77.2"}
SLACK = 12.0  # seconds: what a machine busy with other work takes alongside the times that are stated


def command(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


class Hosts:
    """Two namespaces; `missing` says why there are none."""

    def __init__(self, folder):
        self.folder, self.missing = folder, None
        self.space = {host: "zplan-%d-%s" % (os.getpid(), host) for host in ADDRESSES}
        self.cable = {host: "zp%d%s" % (os.getpid() % 10 ** 9, host) for host in ADDRESSES}

    def lay(self):
        """The commands that make them; the first that fails is the reason."""
        a, b = self.space["a"], self.space["b"]
        words = [["netns", "add", a], ["netns", "add", b],
                 ["link", "add", self.cable["a"], "netns", a, "type", "veth", "peer", "name", self.cable["b"], "netns", b]]
        for host, space in self.space.items():
            words += [["-n", space, "addr", "add", ADDRESSES[host] + "/24", "dev", self.cable[host]],
                      ["-n", space, "link", "set", "lo", "up"], ["-n", space, "link", "set", self.cable[host], "up"]]
        for one in words:
            done = command("ip", *one)
            if done.returncode != 0:
                return "ip %s: %s" % (" ".join(one), done.stdout.strip())
        return None

    def write_files(self):
        self.hostfile, self.agent = os.path.join(self.folder, "hosts"), os.path.join(self.folder, "agent")
        with open(self.hostfile, "w", encoding="ascii") as file:
            file.write("".join("%s slots=1\n" % address for address in ADDRESSES.values()))
        with open(self.agent, "w", encoding="ascii") as file:
            file.write('#!/bin/sh\n[ "$1" = %s ] || exit 255\nshift\nexec ip netns exec %s unshare --uts sh -c "hostname zplan-b; $*"\n'
                       % (ADDRESSES["b"], self.space["b"]))
        os.chmod(self.agent, 0o755)

    def __enter__(self):
        needed = [tool for tool in ("ip", "unshare", "mpirun.openmpi") if not shutil.which(tool)]
        if os.geteuid() != 0 or needed:
            self.missing = "no root" if os.geteuid() != 0 else "no %s here" % ", ".join(needed)
        else:
            self.missing = self.lay()
        self.write_files()
        return self

    def __exit__(self, *_):
        for leader in list(harness.sessions):  # a check that raised leaves its run
            harness.end_session(leader)
        for host, space in self.space.items():
            self.kill(host)
            command("ip", "netns", "del", space)

    def processes(self, host):
        return [int(word) for word in command("ip", "netns", "pids", self.space[host]).stdout.split() if word.isdigit()]

    def trainers(self, host):
        found = []
        for process in self.processes(host):
            try:
                with open("/proc/%d/cmdline" % process, "rb") as file:
                    if file.read().split(b"\0")[0].endswith(b"/trainer"):
                        found.append(process)
            except OSError:
                pass  # it ended meanwhile
        return found

    def kill(self, host):
        for process in self.processes(host):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)

    def plug(self, state):
        command("ip", "-n", self.space["a"], "link", "set", self.cable["a"], state)

    def slow(self):
        """Lets host a send 10 Mbit a second; False where the kernel cannot."""
        return command("tc", "-n", self.space["a"], "qdisc", "replace", "dev", self.cable["a"], "root", "tbf", "rate", "10mbit", "burst", "4kb",
                       "latency", "400ms").returncode == 0 if shutil.which("tc") else False


class Bench:
    def __init__(self, tally, hosts, folder):
        self.tally, self.hosts, self.folder, self.name = tally, hosts, folder, ""

    def path(self, name):
        return os.path.join(self.folder, name)

    def begin(self, name):
        self.name = name
        for left in ("ck", "log.jsonl"):
            shutil.rmtree(self.path(left), ignore_errors=True)
            with contextlib.suppress(OSError):
                os.remove(self.path(left))

    def check(self, what, good, detail=""):
        return self.tally.check("%s: %s" % (self.name, what), good, detail)

    def command(self, steps, words=(), hosts=True, tree="tree"):
        """Two ranks, a stage each; with hosts=False both on this machine."""
        line = [harness.ZPLAN, "run", MODEL, "--ranks", 2, "-o", self.path(tree), "--set", "tensor=1", "--set", "pipeline=2", "--steps", steps,
                "--threads", 1, "--log", self.path("log.jsonl"), *words]
        if hosts:
            inside = ["ip", "netns", "exec", self.hosts.space["a"], "unshare", "--uts", "sh", "-c", 'hostname zplan-a; exec "$@"', "sh"]
            line = [*inside, *line, "--hostfile", self.hosts.hostfile]
        return [str(word) for word in [*line, "--", "--checkpoint", self.path("ck")]]

    def environment(self):
        """Other networks need not be looked for; the slow start of ssh is the agent's."""
        return dict(OMPI_MCA_pml="ob1", OMPI_MCA_btl="self,vader,tcp", OMPI_MCA_plm_rsh_agent=self.hosts.agent)

    def train(self, steps, words=(), hosts=True):
        outcome = harness.run(self.command(steps, words, hosts), env=self.environment())
        records = harness.read_log(self.path("log.jsonl"))[0] if os.path.exists(self.path("log.jsonl")) else []
        return outcome, records

    def start(self, words=(), saves=False):
        """A training that goes on, after some steps. saves: it publishes a checkpoint now and then, which has times of its own."""
        line = self.command(1000000, words) if saves else self.command(1000000, (*words, "--set", "checkpoint.every=1000000"), tree="tree2")
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True, env=dict(os.environ, NO_COLOR="1", **self.environment()))
        harness.sessions.add(process.pid)
        limit = time.monotonic() + harness.PATIENCE
        while self.steps() < 7 and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        self.check("it trains on both", len(self.hosts.trainers("a")) == 1 and len(self.hosts.trainers("b")) == 1, "steps %d" % self.steps())
        return process

    def steps(self):
        try:
            with open(self.path("log.jsonl"), encoding="utf-8") as lines:
                return sum(line.endswith("\n") and "event" not in json.loads(line) for line in lines)
        except OSError:
            return 0  # not there yet

    def end(self, process, seconds):
        """(outcome, what it said); it is killed when it does not end by then."""
        begin = time.monotonic()
        try:
            _, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            harness.end_session(process.pid)
            _, err = process.communicate()
            err += "\nit did not end within %.0f s" % seconds
        harness.sessions.discard(process.pid)
        took = time.monotonic() - begin
        print("%s: ended after %.1f s" % (self.name, took))
        return harness.Outcome(process.returncode, "", err, took)

    def expect(self, outcome, *words):
        self.check("exit status %d" % FAILED, outcome.status == FAILED, "it was %s\n%s" % (outcome.status, outcome.tail(12)))
        errors = [line for line in outcome.err.splitlines() if line.startswith("error[") or line.startswith("error: mpirun")]
        self.check("one message", len(errors) == 1, outcome.tail(12))
        for word in words:
            self.check('says "%s"' % word, re.search(word, outcome.err) is not None, outcome.tail(12))


def losses(records):
    return [(record["step"], record["loss"], record["grad_norm"]) for record in records]


def trains_alike(b):
    """One machine and two, and two with a slow cable: the same numbers, since all sums have one order."""
    steps = 8
    outcome, records = b.train(steps, hosts=False)
    want = losses(records)
    b.check("one machine trains", outcome.status == 0 and len(want) == steps, outcome.tail())
    for name in ("a fast cable", "a slow cable"):
        if name == "a slow cable" and not b.hosts.slow():
            print("%s: skipped, there is no tc, or this kernel has no tbf" % name)
            continue
        b.begin(b.name)
        begin = time.monotonic()
        outcome, records = b.train(steps)
        b.check("two machines, %s: exit status 0" % name, outcome.status == 0, outcome.tail())
        b.check("two machines, %s: the same losses and norms" % name, losses(records) == want, "%s" % losses(records))
        times = [record["step_ms"] for record in records] or [0]
        print("%s, %s: %.1f s, steps of %.0f to %.0f ms" % (b.name, name, time.monotonic() - begin, min(times), max(times)))
        # A step sends activations of 8 x 32 x 32 numbers up and the gradient of 256 x 32: 52 ms, and half of it for what a burst saves.
        b.check("the cable is slow", name == "a fast cable" or min(times) > 26, "%s" % times)
    command("tc", "-n", b.hosts.space["a"], "qdisc", "del", "dev", b.hosts.cable["a"], "root")


def host_dies(b):
    """Every process of a machine at once. What was published is good, and the training goes on from it."""
    process = b.start(saves=True)
    b.hosts.kill("b")
    b.expect(b.end(process, 30 + SLACK), r"error\[Z0850\]: the machine \S+ cannot be reached any more|error\[Z0850\]: a machine of the hostfile|error\[Z0821\]")
    b.check("nobody is left", not b.hosts.processes("a"), "%s" % b.hosts.processes("a"))
    last = b.steps()
    with open(os.path.join(b.path("ck"), "latest"), encoding="ascii") as file:
        published = int(file.read().strip()[len("step_"):])
    outcome, records = b.train(published + 3, ("--resume",))
    b.check("--resume goes on there", outcome.status == 0 and [r["step"] for r in records][-3:] == [published + 1, published + 2, published + 3],
            "published %d of %d\n%s" % (published, last, outcome.tail()))


def cable_unplugged(b):
    """A line that says who waits for whom, over what, and an end after the time that was stated."""
    process = b.start(("--wait-warn", "1", "--wait-end", "3", "--grace", "3"))
    b.hosts.plug("down")
    outcome = b.end(process, 3 + 3 + SLACK)
    b.expect(outcome, r"warning: rank [01] \(stage [01], on zplan-[ab]\) has waited 1 s for rank [01] \(stage [01], on zplan-[ab]\): .*, between two machines, of step \d+",
             r"error\[Z0823\]: waited 3 s for rank")
    b.check("nobody is left here", not b.hosts.processes("a"), "%s" % b.hosts.processes("a"))
    limit = time.monotonic() + SLACK
    while b.hosts.trainers("b") and time.monotonic() < limit:
        time.sleep(0.1)
    b.check("nor a rank there", not b.hosts.trainers("b"), "%s" % b.hosts.trainers("b"))
    b.hosts.kill("b")
    b.hosts.plug("up")


def terminated_without_cable(b):
    """Asked to end while a rank is out of reach: within the time of grace, twice: for the ranks, and for mpirun."""
    process = b.start(("--grace", "2"))
    b.hosts.plug("down")
    time.sleep(0.3)  # the step in which they stand still has begun
    process.send_signal(signal.SIGTERM)
    b.expect(b.end(process, 2 + 2 + SLACK), r"error\[Z0823\]: asked to end, but waited 2 s for rank 1")
    b.check("nobody is left here", not b.hosts.processes("a"), "%s" % b.hosts.processes("a"))
    b.hosts.kill("b")
    b.hosts.plug("up")


TESTS = [trains_alike, host_dies, cable_unplugged, terminated_without_cable]


def main():
    harness.require_zplan()
    tally = harness.Tally()
    text = sys.argv[1] if len(sys.argv) > 1 else ""
    with harness.Scratch() as folder, Hosts(folder) as hosts:
        if hosts.missing:
            print("two machines: skipped, %s" % hosts.missing)
            print("1 passed, 0 failed")
            return 0
        bench = Bench(tally, hosts, folder)
        for test in TESTS:
            if text in test.__name__:
                bench.begin(test.__name__)
                test(bench)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
