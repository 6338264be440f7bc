#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`zplan watch`: logs that tests write and one of a trainer, whole, growing, cut, replaced and damaged; event files and metrics read back by readers
that stand here, and by tensorboard where it is installed.

usage: watch.py      (ZPLAN=path: another binary)
"""
import json
import os
import pty
import re
import resource
import select
import signal
import statistics
import struct
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

START = {"event": "start", "step": 0, "program": "tiny", "plan": "00112233445566aa", "ranks": 2, "steps": 20, "predicted_step_ms": 110.0,
         "time": 1700000000.5}
END = {"event": "end", "step": 20, "steps_run": 20, "median_step_ms": 100.0, "predicted_step_ms": 110.0, "rss_bytes": [10, 20],
       "device_peak_bytes": [3 << 20, 5 << 20]}
TAGS = {"loss": "loss", "lr": "lr", "grad_norm": "grad_norm", "step_ms": "step_ms", "tokens_per_s": "tokens_per_s", "mfu": "mfu",
        "device_peak_bytes": "device_peak_bytes"}


def step(i, **other):
    return {"step": i, "loss": 5 - 0.1 * i, "grad_norm": 1 + 0.01 * i, "lr": 1e-4 * i, "step_ms": 100.0 + (i * 7) % 5, "tokens_per_s": 2560.0,
            "mfu": None, "device_peak_bytes": 4 << 20, **other}


def text_of(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def write(path, text, mode="w"):
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)
    return path


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


# ---- readers of their own ----

def crc32c(data):
    """Remainder by Castagnoli's polynomial x^32 + x^28 + ... (0x1EDC6F41), bits of a byte from the lowest: division bit by bit."""
    polynomial, remainder = 0x1EDC6F41, 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            top = remainder >> 31 ^ byte >> bit & 1
            remainder = (remainder << 1 & 0xFFFFFFFF) ^ (polynomial if top else 0)
    return int("{:032b}".format(remainder)[::-1], 2) ^ 0xFFFFFFFF


def unmask(masked):
    rotated = masked - 0xA282EAD8 & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def tf_records(path):
    """The payloads of a TFRecord file; an error where a length or a checksum is wrong."""
    with open(path, "rb") as file:
        data = file.read()
    at, found = 0, []
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        payload = data[at + 12:at + 12 + length]
        (payload_crc,) = struct.unpack_from("<I", data, at + 12 + length)
        if unmask(length_crc) != crc32c(data[at:at + 8]) or unmask(payload_crc) != crc32c(payload):
            raise ValueError("checksum of record %d" % len(found))
        found.append(payload)
        at += 16 + length
    return found


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """[(number, value)] of a protocol buffer: varints as numbers, the rest as bytes."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            if key & 7 == 2:
                size, at = varint(data, at)
            else:
                size = {1: 8, 5: 4}[key & 7]
            value, at = data[at:at + size], at + size
        found.append((key >> 3, value))
    return found


def events(path):
    """[(wall time, step, {tag: value}, the other fields)] by the numbers of event.proto and summary.proto."""
    found = []
    for payload in tf_records(path):
        event = dict(fields(payload))
        scalars = {}
        for _, value in fields(event.get(5, b"")):
            value = dict(fields(value))
            scalars[value[1].decode()] = struct.unpack("<f", value[2])[0]
        found.append((struct.unpack("<d", event[1])[0], event.get(2, 0), scalars, {k: v for k, v in event.items() if k not in (1, 2, 5)}))
    return found


SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+)$')


def metrics(text):
    """{(name, labels): value} of Prometheus' text format; an error where a line is none, or lines of a metric are apart."""
    found, seen, name = {}, [], None
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            if name in seen or line.split()[3] != "gauge":
                raise ValueError(line)
            seen.append(name)
        elif line.startswith("#"):
            continue
        else:
            match = SAMPLE.match(line)
            if not match or match[1] != name:
                raise ValueError(line)
            labels = tuple(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2]))
            if (name, labels) in found:
                raise ValueError("twice: " + line)
            found[name, labels] = float(match[3])
    return found


# ---- checks ----

class Tally(harness.Tally):
    def check(self, name, good, detail=""):
        return super().check(name, good, str(detail))


def watch(*words, **keywords):
    return harness.zplan("watch", *words, **keywords)


def document(tally, name, status, *words):
    outcome = watch("--once", "--json", *words)
    tally.check(name + ": status", outcome.status == status, "%d %s" % (outcome.status, outcome.tail()))
    found = json.loads(outcome.out)
    tally.check(name + ": envelope", sorted(found) == ["messages", "result", "status"] and found["status"] == status, outcome.out)
    return found["result"]


def kinds(log, now=None):
    return sorted(w["kind"] for w in log["warnings"] if now is None or w["now"] == now)


def recorded(tally, folder):
    records = [START] + [step(i) for i in range(1, 21)] + [{"event": "validate", "step": 20, "loss": 2.5}, {"event": "checkpoint", "step": 20}, END]
    path = write(folder + "/whole.jsonl", text_of(records))
    result = document(tally, "a whole log", 0, path)
    log, times = result["logs"][0], [step(i)["step_ms"] for i in range(1, 21)]
    smooth = step(1)["loss"]
    for i in range(2, 21):
        smooth = 0.9 * smooth + 0.1 * step(i)["loss"]
    want = {"log": path, "state": "ended", "program": "tiny", "plan": START["plan"], "ranks": 2, "step": 20, "steps": 20, "loss": 3.0, "smoothed_loss": smooth,
            "validation_loss": 2.5, "validation_step": 20, "grad_norm": 1.2, "lr": 2e-3, "step_s": times[-1] / 1e3,
            "median_step_s": statistics.median(times) / 1e3, "predicted_step_s": 0.11, "tokens_per_s": 2560 * times[-1] / statistics.median(times),
            "mfu": None, "memory_bytes": 5 << 20, "eta_s": 0, "checkpoint_step": 20, "slow_stage": None, "spikes": 0, "unread_lines": 0, "warnings": []}
    tally.check("a whole log: fields", sorted(log) == sorted(want), sorted(set(log) ^ set(want)))
    for key, value in want.items():
        same = abs(log[key] - value) <= 1e-9 * max(1, abs(value)) if isinstance(value, float) else log[key] == value
        tally.check("a whole log: " + key, same, "%r is not %r" % (log.get(key), value))
    tally.check("a whole log: healthy", result["healthy"] is True and result["slowest"] is None)
    shown = watch("--once", path)
    for words in ("20 of 20, ended", "3.000000", "measured / predicted 0.93", "5.24 MB on the fullest rank",
                  "validation after step 20: 2.500000", "saved"):
        tally.check("a whole log as text: " + words, words in shown.out, shown.out)
    # a line of text for a pipe, and the end of the run ends the command
    lines = watch(path)
    tally.check("followed to its end", lines.status == 0 and lines.out.count("\n") == 1 and "step 20/20  loss 3.000000" in lines.out and
                lines.out.rstrip().endswith("ended"), lines.tail())
    # an older trainer's log says neither steps nor time
    old = write(folder + "/old.jsonl", text_of([{k: v for k, v in START.items() if k not in ("steps", "time", "predicted_step_ms")}, step(1, device_peak_bytes=None)]))
    outcome = watch("--once", old)
    tally.check("an older log", outcome.status == 1 and "ETA unknown" in outcome.out and "the log has no prediction" in outcome.out and
                "not measured" in outcome.out and "there is no end record" in outcome.out, outcome.tail(9))
    # a trainer whose plan has no prediction writes 0
    write(old, text_of([dict(START, predicted_step_ms=0.0), step(3)]))
    outcome = watch("--once", old)
    tally.check("no prediction", "the log has no prediction" in outcome.out, outcome.tail(9))
    tally.check("no prediction: JSON", document(tally, "no prediction", 1, old)["logs"][0]["predicted_step_s"] is None)
    tally.check("the bar", "[===.................] 3 of 20, running" in outcome.out, outcome.tail(9))
    return path, records


def several(tally, folder):
    paths = []
    for i, times in enumerate((1.0, 1.0, 1.5)):
        records = [START] + [step(k, step_ms=100 * times) for k in range(1, 6)] + [END]
        paths.append(write("%s/rank%d.jsonl" % (folder, i), text_of(records)))
    result = document(tally, "several", 0, *paths)
    tally.check("several: the slowest", result["slowest"] == paths[2] and [log["log"] for log in result["logs"]] == paths, result)
    shown = watch("--once", *paths)
    tally.check("several as text", "rank2.jsonl: its median step is 1.50 times" in shown.out and shown.out.count("ended") == 3, shown.out)
    result = document(tally, "as fast as each other", 0, *paths[:2])
    tally.check("none is slowest", result["slowest"] is None, result)
    stages = {"event": "profile", "step": 5, "stages": [{"stage": i, "measured_ms": ms} for i, ms in enumerate((50.0, 80.0, 60.0))]}
    profiled = write(folder + "/profiled.jsonl", text_of([START, step(1), stages, END]))
    tally.check("the slowest stage", document(tally, "a profile", 0, profiled)["logs"][0]["slow_stage"] == 1)
    for path in paths + [profiled]:
        os.remove(path)


def unhealthy(tally, folder):
    steps = [step(i) for i in range(1, 4)]
    cases = (
        ("a spike", [START] + steps + [step(4, loss=50.0, loss_spike=True), step(5), END], 0, ["spike"], []),
        ("no number", [START] + steps + [step(4, loss=None)], 1, ["no_end", "not_finite"], ["no_end", "not_finite"]),
        ("no number once", [START] + steps + [step(4, grad_norm=None), step(5), END], 0, ["not_finite"], []),
        ("overflow of a scaled loss", [START] + steps + [step(4, grad_norm=None, scale=65536, skipped=1), END], 0, [], []),
        ("no end", [START] + steps, 1, ["no_end"], ["no_end"]),
        ("resumed after its end", [START] + steps + [END, dict(START, event="resume", step=3), step(4)], 1, ["no_end"], ["no_end"]),
    )
    for name, records, status, found, now in cases:
        path = write(folder + "/unhealthy.jsonl", text_of(records))
        log = document(tally, name, status, path)["logs"][0]
        tally.check(name + ": warnings", kinds(log) == found and kinds(log, True) == now, log["warnings"])
    # damaged: a torn line in the middle; half a last line is being written
    path = write(folder + "/unhealthy.jsonl", text_of([START, step(1)]) + '{"step": 2, "lo\n' + text_of([step(3), END]))
    log = document(tally, "a torn line", 1, path)["logs"][0]
    tally.check("a torn line: which", kinds(log) == ["damaged"] and log["unread_lines"] == 1 and "line 3 first" in log["warnings"][0]["text"] and
                log["step"] == 3, log)
    for number in (-1, 10**15 + 1, 2**63 - 1):
        path = write(folder + "/unhealthy.jsonl", text_of([START, step(1), step(number), {"event": "checkpoint", "step": number}, END]))
        log = document(tally, "step %d" % number, 1, path, "--tensorboard", folder + "/out_of_range")["logs"][0]
        tally.check("step %d: not taken" % number, (log["step"], log["checkpoint_step"], log["unread_lines"]) == (1, None, 2), log)
    path = write(folder + "/unhealthy.jsonl", text_of([START, step(1), END]) + '{"event": "resume", "st')
    tally.check("half a line", document(tally, "half a line", 0, path)["logs"][0]["unread_lines"] == 0)
    # a process that has the trainer's lock on it is alive
    path = write(folder + "/unhealthy.jsonl", text_of([START] + steps))
    with open(path, "a", encoding="utf-8") as held:
        import fcntl
        fcntl.flock(held, fcntl.LOCK_EX)
        tally.check("alive", kinds(document(tally, "alive", 0, path)["logs"][0]) == [])
        age(path, 9)
        tally.check("patient", kinds(document(tally, "patient", 0, path)["logs"][0]) == [])
        age(path, 60)
        log = document(tally, "stalled", 1, path)["logs"][0]
        tally.check("stalled: warnings", kinds(log, True) == ["stall"] and log["state"] == "silent", log)
    # what is no log
    for name, content, words in (("text", "once upon a time\n" * 9, "no log of a training"), ("JSON", '{"a": 1}\n', "no log of a training"),
                                 ("an array", "[1, 2]\n", "no log of a training")):
        path = write(folder + "/unhealthy.jsonl", content)
        outcome = watch("--once", path)
        tally.check("no log: " + name, outcome.status == 1 and words in outcome.err and "Z0640" in outcome.err, outcome.tail())
    tally.check("an empty file", document(tally, "an empty file", 1, write(folder + "/unhealthy.jsonl", ""))["logs"][0]["state"] == "empty")
    for name, path, words in (("missing", folder + "/none.jsonl", "there is no such file"), ("a folder", folder, "directory"), ("a device", "/dev/zero", "no regular file")):
        outcome = watch("--once", path)
        tally.check(name, outcome.status == 1 and words in outcome.err, outcome.tail())
    tally.check("no words", watch().status == 2)
    os.remove(folder + "/unhealthy.jsonl")


class Following:
    """`zplan watch` of a growing log, on a pipe or on a terminal."""

    def __init__(self, *words, terminal=False):
        self.text, self.master = "", None
        out = subprocess.PIPE
        if terminal:
            self.master, out = pty.openpty()
        self.process = subprocess.Popen([harness.ZPLAN, "watch", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                                        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
                                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # jobs in the background ignore it
        harness.sessions.add(self.process.pid)
        if terminal:
            os.close(out)
        self.fd = self.master if terminal else self.process.stdout.fileno()

    def wait_for(self, words, seconds=20):
        until = time.monotonic() + seconds
        while words not in self.text and time.monotonic() < until:
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    more = os.read(self.fd, 65536)
                except OSError:
                    more = b""
                if not more:
                    break
                self.text += more.decode(errors="replace")
        return words in self.text

    def end(self, signal_number=None):
        if signal_number:
            self.process.send_signal(signal_number)
        self.wait_for("\0nothing says this", 3 if self.master else 20)
        status = self.process.wait(20)
        harness.sessions.discard(self.process.pid)
        return status


def growing(tally, folder):
    path, prom, board = folder + "/late.jsonl", folder + "/late.prom", folder + "/late_board"
    run = Following(path, "--prometheus", prom, "--tensorboard", board)
    tally.check("a missing file is waited for", run.wait_for("late.jsonl: missing"), run.text)
    whole = text_of([START, step(1)])
    write(path, whole[:-9])
    tally.check("half a line is waited for", run.wait_for("late.jsonl: no step yet") or run.wait_for("late.jsonl: running", 1), run.text)
    write(path, whole[-9:], "a")
    tally.check("it is whole", run.wait_for("step 1/20  loss 4.900000"), run.text)
    write(path, text_of([step(2, loss=None)]), "a")
    tally.check("a loss that is no number", run.wait_for("warning: %s: loss or gradient norm of step 2 is not finite" % path), run.text)
    os.rename(path, path + ".1")  # as a new run does with the log of another
    write(path, text_of([dict(START, program="other", time=1700009000.0, steps=5), step(1, loss=9.0)]))
    tally.check("another file of its name", run.wait_for("another file has its name") and run.wait_for("step 1/5  loss 9.000000"), run.text)
    tally.check("events of two runs are kept apart", run.wait_for("has events of another run"), run.text)
    write(path, text_of([dict(START, program="third", time=1700010000.0, steps=6), step(3, loss=8.0)]))
    tally.check("a truncated file", run.wait_for("truncated or written anew") and run.wait_for("step 3/6  loss 8.000000"), run.text)
    write(path, text_of([END]), "a")
    tally.check("the end of the run ends it", run.end() == 1 and "ended" in run.text, run.text)  # 1: the events
    tally.check("metrics at the end", metrics(open(prom, encoding="utf-8").read())["zplan_ended", (("log", path),)] == 1)
    # the same program again, on the same path: only the time in its first record differs, and the file is longer than before
    first = {**{key: START[key] for key in START if key != "time"}, "products": "p" * 300}
    write(path, text_of([dict(first, time=1700000000.0), step(1)]))
    run = Following(path)
    run.wait_for("step 1/20")
    write(path, text_of([dict(first, time=1700000099.0), step(1), step(2, loss=7.0), END]))
    tally.check("written anew with the same beginning", run.wait_for("truncated or written anew") and run.end() == 0 and "loss 7.000000" in run.text, run.text)
    # Ctrl-C, on a terminal
    write(path, text_of([START, step(1)]))
    run = Following(path, terminal=True)
    first = run.wait_for("1 of 20")
    write(path, text_of([step(2)]), "a")
    tally.check("redrawn", first and run.wait_for("2 of 20") and re.search("\x1b\\[[0-9]+A\x1b\\[J", run.text), repr(run.text[-300:]))
    tally.check("Ctrl-C", run.end(signal.SIGINT) == 130 and "loss" in run.text, repr(run.text[-300:]))


def board_of(folder):
    names = [name for name in sorted(os.listdir(folder)) if "tfevents" in name]
    return os.path.join(folder, names[0]), len(names)


def tensorboard(tally, folder, log, records):
    vectors = ((b"\0" * 32, 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (bytes(range(31, -1, -1)), 0x113FDB5C),
               (b"123456789", 0xE3069283))  # RFC 3720, appendix B.4, and the usual check value
    for data, value in vectors:
        tally.check("the reader's CRC-32C of %r" % data[:4], crc32c(data) == value)
    board = folder + "/board/deeper"
    outcome = watch("--once", log, "--tensorboard", board)
    path, count = board_of(board)
    found = events(path)
    tally.check("events: one file", outcome.status == 0 and count == 1 and os.path.basename(path).startswith("events.out.tfevents.1700000000."), outcome.tail())
    tally.check("events: version", found[0][3] == {3: b"brain.Event:2"} and found[0][0] == START["time"], found[0])
    steps, wall = [r for r in records if "event" not in r], START["time"]
    for record, (at, number, scalars, _) in zip(steps, found[1:]):
        wall += record["step_ms"] / 1e3
        want = {tag: struct.unpack("<f", struct.pack("<f", record[key]))[0] for key, tag in TAGS.items() if record[key] is not None}
        tally.check("events: step %d" % record["step"], scalars == want and number == record["step"] and abs(at - wall) < 1e-6, (at, number, scalars, want))
    tally.check("events: validation", found[21][1:3] == (20, {"validation_loss": 2.5}) and len(found) == 22, found[21:])
    # again: the same bytes; half a file is continued; another's is left alone
    whole = open(path, "rb").read()
    tally.check("again", watch("--once", log, "--tensorboard", board).status == 0 and open(path, "rb").read() == whole)
    with open(path, "wb") as file:
        file.write(whole[:len(whole) // 2 + 3])
    tally.check("continued", watch("--once", log, "--tensorboard", board).status == 0 and open(path, "rb").read() == whole)
    with open(path, "r+b") as file:
        file.write(b"edited")
    edited = open(path, "rb").read()
    outcome = watch("--once", log, "--tensorboard", board)
    tally.check("edited", outcome.status == 1 and "is not what the log gives" in outcome.err and open(path, "rb").read() == edited, outcome.tail())
    tally.check("forced", watch("--once", log, "--tensorboard", board, "--force").status == 0 and open(path, "rb").read() == whole)
    # a run that was resumed does steps again
    again = write(folder + "/again.jsonl", text_of([START, step(1), step(2), dict(START, event="resume", step=1, time=1700001000.0), step(2, loss=7.0)]))
    watch("--once", again, "--tensorboard", folder + "/again_board")
    found = events(board_of(folder + "/again_board")[0])
    tally.check("resumed", found[3][1] == 2 and found[3][3] == {7: b"\x08\x01"} and found[3][0] == 1700001000.0 and found[4][2]["loss"] == 7.0, found)
    outcome = watch("--once", log, "--tensorboard", folder + "/again_board")
    tally.check("a folder of another run", outcome.status == 1 and "events of another run" in outcome.err, outcome.tail())
    # several logs have a folder each
    outcome = watch("--once", log, again, "--tensorboard", folder + "/two")
    names = sorted(os.listdir(folder + "/two"))
    tally.check("two logs, two folders", len(names) == 2 and all(board_of(folder + "/two/" + name)[1] == 1 for name in names), names)
    outcome = watch("--once", log, "--tensorboard", log + "/below")
    tally.check("no folder can be made", outcome.status == 1 and "Z0641" in outcome.err, outcome.tail())
    # a limit on files is as a full disk: whole records or nothing
    outcome = subprocess.run([harness.ZPLAN, "watch", "--once", log, "--tensorboard", folder + "/full"], capture_output=True, text=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700)), check=False)
    tally.check("a full disk", outcome.returncode == 1 and "cannot write events" in outcome.stderr and tf_records(board_of(folder + "/full")[0]) == [], outcome.stderr)
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError:
        print("tensorboard is not installed: its reader was not asked")
        return
    reader = event_accumulator.EventAccumulator(board)
    reader.Reload()
    for key, tag in TAGS.items():
        got = [(e.step, e.value) for e in reader.Scalars(tag)] if tag in reader.Tags()["scalars"] else []
        want = [(r["step"], struct.unpack("<f", struct.pack("<f", r[key]))[0]) for r in steps if r[key] is not None]
        tally.check("tensorboard: " + tag, got == want, (got[:3], want[:3]))
    reader = event_accumulator.EventAccumulator(folder + "/again_board")
    reader.Reload()
    tally.check("tensorboard: resumed", [(e.step, e.value) for e in reader.Scalars("loss")][1:] == [(2, 7.0)], reader.Scalars("loss"))


def prometheus(tally, folder, log):
    odd = folder + '/an "odd\\name.jsonl'
    write(odd, text_of([START, step(1, loss=None)]))
    path = folder + "/zplan.prom"
    outcome = watch("--once", log, odd, "--prometheus", path)
    text = open(path, encoding="utf-8").read()
    found = metrics(text)
    whole, other = (("log", log),), (("log", odd.replace("\\", "\\\\").replace('"', '\\"')),)
    result = json.loads(watch("--once", log, "--json").out)["result"]["logs"][0]
    for name, key in (("step", "step"), ("steps", "steps"), ("loss", "loss"), ("loss_smoothed", "smoothed_loss"), ("validation_loss", "validation_loss"),
                      ("learning_rate", "lr"), ("gradient_norm", "grad_norm"), ("step_seconds", "step_s"), ("step_median_seconds", "median_step_s"),
                      ("step_predicted_seconds", "predicted_step_s"), ("tokens_per_second", "tokens_per_s"), ("memory_bytes", "memory_bytes"), ("eta_seconds", "eta_s")):
        tally.check("metrics: " + name, abs(found["zplan_" + name, whole] - result[key]) <= 1e-9 * abs(result[key]), found)
    tally.check("metrics: an odd name", found["zplan_step", other] == 1 and ("zplan_loss", other) not in found, text)
    tally.check("metrics: warnings", found["zplan_warning", other + (("kind", "not_finite"),)] == 1 and
                found["zplan_warning", whole + (("kind", "not_finite"),)] == 0 and outcome.status == 1, text)
    tally.check("nothing else is left", not [name for name in os.listdir(folder) if ".tmp" in name])
    tally.check("written again", watch("--once", log, "--prometheus", path).status == 0 and ("zplan_step", other) not in metrics(open(path, encoding="utf-8").read()))
    write(path, "a person's own\n")
    outcome = watch("--once", log, "--prometheus", path)
    tally.check("another's file", outcome.status == 1 and "Z0641" in outcome.err and open(path, encoding="utf-8").read() == "a person's own\n", outcome.tail())
    tally.check("the log itself", watch("--once", log, "--prometheus", log).status == 2)
    tally.check("no folder", watch("--once", log, "--prometheus", folder + "/none/x.prom").status == 1)


def trainer(tally, folder):
    """The log that a trainer writes, while it does and afterwards."""
    harness.build_quickly()
    log = folder + "/trainer.jsonl"
    model = os.path.join(ROOT, "examples", "gpt_tiny.dz")
    words = ("run", model, "--ranks", "1", "--set", "data=synthetic(seed=1)", "-o", folder + "/tree", "--no-checkpoint", "--log", log, "--steps")
    outcome = harness.zplan(*words, "6")
    tally.check("a trainer's log is there", outcome.status == 0, outcome.tail())
    steps, end = harness.read_log(log)
    found = document(tally, "a trainer's log", 0, log, "--tensorboard", folder + "/trainer_board")["logs"][0]
    tally.check("a trainer's log: state", (found["state"], found["step"], found["steps"], found["warnings"]) == ("ended", 6, 6, []), found)
    tally.check("a trainer's log: numbers", found["loss"] == steps[-1]["loss"] or abs(found["loss"] - steps[-1]["loss"]) < 1e-11, found)
    tally.check("a trainer's log: memory", found["memory_bytes"] == max(end["device_peak_bytes"]) > 0, found)
    tally.check("a trainer's log: prediction", abs(found["predicted_step_s"] - end["predicted_step_ms"] / 1e3) < 1e-9, found)
    path, _ = board_of(folder + "/trainer_board")
    tally.check("a trainer's log: when", abs(int(os.path.basename(path).split(".")[3]) - os.path.getmtime(log)) < 300, path)
    run = subprocess.Popen([folder + "/tree/trainer", "--steps", "1000000", "--log", log, "--overwrite", "--no-progress"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, start_new_session=True)
    harness.sessions.add(run.pid)
    until, found = time.monotonic() + 60, {}
    while time.monotonic() < until and not (found.get("steps") == 1000000 and found.get("step")):
        time.sleep(0.2)
        found = json.loads(watch("--once", "--json", log).out)["result"]["logs"][0]
    tally.check("a trainer that runs", found["state"] == "running" and found["warnings"] == [] and found["eta_s"] > 0, found)
    harness.end_session(run.pid)
    run.wait()
    harness.sessions.discard(run.pid)
    tally.check("a trainer that was killed", kinds(document(tally, "a trainer that was killed", 1, log)["logs"][0]) == ["no_end"])


def main():
    harness.require_zplan()
    tally = Tally()
    with harness.Scratch() as folder:
        path, records = recorded(tally, folder)
        several(tally, folder)
        unhealthy(tally, folder)
        tensorboard(tally, folder, path, records)
        prometheus(tally, folder, path)
        growing(tally, folder)
        trainer(tally, folder)
    return tally.finish()


sys.exit(main())
