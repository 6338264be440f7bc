#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command on a terminal: its width, its colours, what long work says of itself, and Ctrl-C.

usage: terminal.py [ZPLAN]

Every case has a pseudo-terminal of its own for standard output and errors.
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from harness import QUICK  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
ZPLAN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZPLAN", ROOT + "/build/release/zplan"))
TINY = ROOT + "/examples/gpt_tiny.dz"  # a search of less than a second
LONG = (ROOT + "/examples/deepseek_v3.dz", "--gpus", "16384")  # one that none of these cases waits for
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
failures, passed = [], [0]


def expect(name, condition, detail=""):
    if condition:
        passed[0] += 1
    else:
        failures.append(name)
        print("FAILED %s %s" % (name, detail))
    return condition


class Terminal:
    """zplan on a terminal of so many columns; 0: one that does not know its width."""

    def __init__(self, args, columns=80, errors_too=True, **variables):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "LC_ALL", "LC_CTYPE")}
        env.update({"TERM": "xterm", "LANG": "C", "ZPLAN_CALIBRATION": "none"}, **variables)
        self.process = subprocess.Popen([ZPLAN, *args], stdin=slave, stdout=slave, env=env,
                                        stderr=slave if errors_too else subprocess.DEVNULL,
                                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        os.close(slave)
        self.master, self.text = master, ""

    def read(self, until=None, seconds=300):
        """All that it prints, or up to a pattern."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (until and re.search(until, self.text)):
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                some = os.read(self.master, 65536)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            self.text += some.decode("utf-8", "replace")
        return self.text

    def finish(self):
        self.read()
        status = self.process.wait(timeout=300)
        os.close(self.master)
        return status


def shown(text):
    """Lines as they stay on the screen: what is written over or taken away is gone."""
    return [CONTROL.sub("", line.rstrip("\r").split("\r")[-1]) for line in text.split("\n")]


def widths():
    for columns, variables, want in ((80, {}, 80), (40, {}, 40), (20, {}, 20), (5, {}, 20), (0, {}, 80), (200, {"COLUMNS": "30"}, 30)):
        terminal = Terminal([TINY, "--verbose"], columns, **variables)
        status = terminal.finish()
        most = max(map(len, shown(terminal.text)))
        expect("width %d" % columns, status == 0 and want - 12 <= most <= want, (status, most, terminal.text[:500]))


def messages(folder):
    """Errors, usage and one-line answers are wrapped on a terminal, and source lines cut; in a pipe they are as long as they are."""
    plan, bad = folder + "/m.json", folder + "/bad.dz"
    subprocess.run([ZPLAN, TINY, "-o", plan], check=True, capture_output=True)
    with open(bad, "w", encoding="utf-8") as file:
        file.write("use std.nn\nuse std.hw\nuse std.models\nmodel m(V = 256, S = 128, d = 64) {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n"
                   "\tparam e: [V, d] ~ normal(std = 0.02)\n  x = embedding(tokens, e)\n"
                   "  x = llama_layer(x, heads = 5, kv_heads = 4, head = 16, ff = 128, window = S)  # \u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\n"
                   "  output loss = cross_entropy(matmul(rms_norm(x), transpose(e)), labels)\n}\ncluster c { nodes = 2  node = std.hw.h100 }\n"
                   "train { model = m  data = text(\"*.txt\")  batch = 8  steps = 10  precision = bf16  optimizer = adamw(lr = 1e-3) }\n")
    cases = (("check", bad), ("verify", plan), ("verify", bad), ("--version",), ("run", bad, "--no-such-option"), ("nonsense",), ("plan", folder))
    for words in cases:
        name = " ".join(os.path.basename(word) for word in words)
        plain = subprocess.run([ZPLAN, *words], capture_output=True, text=True)
        letters = re.sub(r"\s", "", plain.stdout + plain.stderr)
        for columns in (20, 40, 80):
            terminal = Terminal(words, columns)
            status, lines = terminal.finish(), shown(terminal.text)
            expect("%s on %d columns" % (name, columns), status == plain.returncode and max(map(len, lines)) <= columns, lines)
            if bad not in words or words[0] == "run":  # nothing is left out
                expect("%s on %d columns: words" % (name, columns), re.sub(r"\s", "", "".join(lines)) == letters, lines)
        expect(name + " in a pipe", words != ("check", bad) or max(map(len, plain.stderr.splitlines())) > 100, plain.stderr)
    marks = [(lines[i], lines[i + 1]) for i in range(len(lines) - 1) if re.match(r" *\| *\^", lines[i + 1])] if (
        lines := shown((terminal := Terminal(("check", bad), 40)).read())) else []
    terminal.process.wait()
    expect("carets stand under what they mean", {line[mark.index("^"):mark.rindex("^") + 1] for line, mark in marks} >= {"std.hw.h100", "bf16"}, marks)


def verbs(folder):
    """Every verb that prints a table: as wide as the screen, words whole in 80 columns, ASCII without a locale, and no complaint of a reader
    that goes away."""
    plans = [folder + "/a.json", folder + "/b.json"]
    for plan, setting in zip(plans, ("pipeline=1", "pipeline=2")):
        subprocess.run([ZPLAN, TINY, "--ranks", "4", "--set", setting, "-o", plan], check=True, capture_output=True)
    whole = (["compare", *plans], ["diff", *plans], ["check", ROOT + "/examples/moe_tiny.dz"], ["models", "llama"], ["machines"])
    for words in (*whole, ["explain", TINY, "--why-not", "tensor=2"], ["explain", "train.batch"], ["doctor"], [TINY, "--gpus", "1..2"], [TINY, "--pareto"]):
        name, text = " ".join(os.path.basename(word) for word in words[:3]), {}
        for columns in (20, 80, 400) if words in whole else (20,):
            done = subprocess.run([ZPLAN, *words], capture_output=True, text=True, env=dict(os.environ, LC_ALL="POSIX", COLUMNS=str(columns)))
            text[columns] = done.stdout
            most = max(map(len, done.stdout.splitlines()))
            expect("%s in %d columns" % (name, columns), done.returncode in (0, 4) and most <= columns, (done.returncode, most, done.stderr[:300]))
            expect(name + ": ASCII, no colours", done.stdout.isascii() and "\x1b" not in done.stdout, done.stdout[:300])
        broken = {word for word in set(text.get(400, "").split()) - set(text.get(80, "").split()) if "/" not in word}
        expect(name + ": words are whole", not broken, broken)
    for words in (["models"], ["completion", "bash"]):
        reader = subprocess.Popen([ZPLAN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        reader.stdout.readline()
        reader.stdout.close()
        said = reader.stderr.read()
        expect(words[0] + ": a reader that goes away", reader.wait() in (0, -signal.SIGPIPE) and not said, (reader.returncode, said))


def colours():
    for name, variables, args, want in (("a terminal", {}, [], True), ("NO_COLOR", {"NO_COLOR": "1"}, [], False), ("TERM=dumb", {"TERM": "dumb"}, [], False),
                                        ("--color never", {}, ["--color", "never"], False), ("--color always", {"NO_COLOR": "1"}, ["--color", "always"], True)):
        terminal = Terminal([TINY, *args], errors_too=False, **variables)
        expect("colours: " + name, terminal.finish() == 0 and ("\x1b[38;5;" in terminal.text) == want, terminal.text[:300])
    piped = subprocess.run([ZPLAN, TINY], capture_output=True, text=True, env=dict(os.environ, LC_ALL="C", COLUMNS=""))
    expect("a pipe", "\x1b" not in piped.stdout and piped.stdout.isascii() and max(map(len, piped.stdout.splitlines())) <= 80, piped.stdout)
    utf8 = subprocess.run([ZPLAN, TINY], capture_output=True, text=True, env=dict(os.environ, LC_ALL="C.UTF-8"))
    expect("blocks in UTF-8", "\u2588" in utf8.stdout)


def interrupted(folder):
    """The first Ctrl-C ends the search with the best plan so far; nothing else is on the screen afterwards."""
    plan = folder + "/plan.json"
    terminal = Terminal([*LONG, "-o", plan], 60)
    terminal.read("searching: [0-9]+ s, [^\r]*best so far ~")
    begun = time.monotonic()
    terminal.process.send_signal(signal.SIGINT)
    status = terminal.finish()
    seconds = time.monotonic() - begun
    lines = shown(terminal.text)
    expect("interrupted: status", status == 130, status)
    expect("interrupted: it is said", "interrupted: this is the best plan so far, not the best one" in lines, lines)
    expect("interrupted: the bound", re.search("no plan is more than [0-9.e+]+% faster .*the search was interrupted", " ".join(" ".join(lines).split())), lines)
    expect("interrupted: no status line stays", not any("searching" in line for line in lines), lines)
    expect("interrupted: soon", seconds < 60, seconds)
    expect("interrupted: width", max(map(len, lines)) <= 60, lines)
    with open(plan, encoding="utf-8") as file:
        found = json.load(file)["certificate"]
    expect("interrupted: in the file", found["interrupted"] is True and 0 < found["bound_s"] < found["best_s"], found)
    check = subprocess.run([ZPLAN, "verify", plan], capture_output=True, text=True)
    expect("interrupted: sound", check.returncode == 0, check.stdout + check.stderr)
    return seconds


def interrupted_at_once(folder):
    """A second Ctrl-C ends it; no file is left, not even a temporary one."""
    before, ended = set(os.listdir(folder)), []
    for wait in (0.001, 0.003, 0.01, 0.03, 0.1):  # two signals that come at the same time are one, and the first ends a search soon
        terminal = Terminal([*LONG, "-o", folder + "/none.json"])
        terminal.read("searching: ")
        terminal.process.send_signal(signal.SIGINT)
        time.sleep(wait)
        terminal.process.send_signal(signal.SIGINT)
        ended.append(terminal.finish())
        if ended[-1] == -signal.SIGINT:
            break
    expect("at once: status", ended[-1] == -signal.SIGINT and set(ended[:-1]) <= {130}, ended)
    expect("at once: files", len(ended) > 1 or set(os.listdir(folder)) == before, os.listdir(folder))
    terminal = Terminal(["build", *LONG, "-o", folder + "/tree"])
    terminal.read("searching: ")
    terminal.process.send_signal(signal.SIGINT)
    expect("nothing is built", terminal.finish() == 130 and not os.path.exists(folder + "/tree"), terminal.text[-300:])


def quiet():
    """A log has no status lines unless they are asked for, and short work has none anywhere."""
    piped = subprocess.run([ZPLAN, TINY], capture_output=True, text=True)
    expect("short work in a pipe", piped.stderr == "", piped.stderr)
    piped = subprocess.Popen([ZPLAN, *LONG, "--progress"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    line = piped.stderr.readline()
    piped.send_signal(signal.SIGINT)
    piped.stderr.read()
    expect("--progress in a log", re.fullmatch("searching: 1[0-9] s, .*\n", line), line)
    expect("--progress: status", piped.wait(timeout=300) == 130, piped.returncode)


def trains(folder):
    """What a run prints is as wide as the screen; in a pipe every figure of a step is there."""
    words = ["run", ROOT + "/tests/fault/tiny.dz", "--ranks", "1", "--steps", "3", "--no-checkpoint", "--set", "data=synthetic(seed=1)", "-o", folder + "/trained"]
    terminal = Terminal(words, 80, **QUICK)
    status = terminal.finish()
    lines = shown(terminal.text)
    expect("a run in 80 columns", status == 0 and max(map(len, lines)) <= 80, (status, lines))
    last = [line for line in lines if line.startswith("step 3/3  loss ")]
    expect("its steps", len(last) == 1 and "  tok/s " in last[0] and "  eta " in last[0], lines)
    piped = subprocess.run([ZPLAN, *words], capture_output=True, text=True, env=dict(os.environ, COLUMNS="40", ZPLAN_CALIBRATION="none", **QUICK))
    expect("its steps in a pipe", re.search("step 3/3 .* lr .* [(]plan ~.* cpu .* mfu ", piped.stdout), piped.stdout + piped.stderr)


def main():
    with tempfile.TemporaryDirectory(prefix="zplan-terminal-") as folder:
        widths()
        messages(folder)
        verbs(folder)
        colours()
        quiet()
        trains(folder)
        interrupted(folder)
        interrupted_at_once(folder)
    print("%d passed, %d failed" % (passed[0], len(failures)))
    sys.exit(bool(failures))


main()
