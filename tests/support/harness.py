# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: starting zplan, reading logs and checkpoints, comparing tensors, counting results.

Standard library only, so that the tests run wherever zplan does. ZPLAN=path chooses another binary than
build/release/zplan.
"""
import array
import hashlib
import json
import math
import operator
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

os.environ["ZPLAN_CALIBRATION"] = "none"  # plans of tests do not depend on the machine, and nobody waits for a measurement
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATIENCE = 900  # elapsed seconds after which a command counts as hanging; a machine busy with other work must not fail a test
ZPLAN = os.path.abspath(os.environ.get("ZPLAN") or os.path.join(ROOT, "build", "release", "zplan"))


def require_zplan():
    if not os.access(ZPLAN, os.X_OK):
        sys.exit("%s is not there: build it (cmake --preset release && cmake --build --preset release) or set ZPLAN" % ZPLAN)


scratch_folders, sessions = set(), set()  # what is there at the moment

# Kernels of trainers are compiled once for all that have the same: of CPU ranks by zplan, of emulated GPUs by quick_cxx.sh. tests/run.sh
# names one folder for all parts.
own_objects = None if os.environ.get("KEPT_OBJECTS") else tempfile.TemporaryDirectory(prefix="zplan-objects-")
KEPT_OBJECTS = own_objects.name if own_objects else os.environ["KEPT_OBJECTS"]
os.environ["ZPLAN_KEPT_KERNELS"] = KEPT_OBJECTS
# Trainers are built without optimization (tests/support/quick_cc.sh): what computes is not their C. CPU kernels are
# LLVM's and stay as they are. Kernels of emulated GPUs are optimized a little; optimized they run in tests/unit/test_rowprog_cuda.c and
# test_kernels_cuda*.c.
SUPPORT = os.path.dirname(os.path.abspath(__file__))
QUICK = {"CC": os.path.join(SUPPORT, "quick_cc.sh"), "OMPI_CC": os.path.join(SUPPORT, "quick_cc.sh"),
         "CXX": os.path.join(SUPPORT, "quick_cxx.sh"), "KEPT_OBJECTS": KEPT_OBJECTS}


# Ranks on one machine: the other networks need not be looked for, and messages of some kB are copied faster through memory
# that ranks share than by a call of the kernel. A run of 8 ranks takes two thirds of the time. Of parts that there are for every kind of
# launch those of one machine are named, so that others are not loaded, and ranks ask mpirun in place of a memory that it shares:
# two ranks that do nothing take 117 ms of processor time instead of 144. Nor need they know caches and sockets of a machine where no rank
# is bound to a core: four that do nothing take 132 ms instead of 149 with the words of `zplan run` (driver/backend/mpirun.c), and of 248 without.
LAUNCH = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
          "OMPI_MCA_state": "hnp,app,orted", "OMPI_MCA_errmgr": "default_hnp,default_app,default_orted", "OMPI_MCA_schizo": "ompi,orte",
          "HWLOC_COMPONENTS": "no_os,stop", "HWLOC_PLUGINS_BLACKLIST": "hwloc_pci.so,hwloc_gl.so,hwloc_opencl.so,hwloc_xml_libxml.so",
          "OMPI_MCA_ess": "pmi,hnp,singleton", "OMPI_MCA_shmem": "mmap", "PMIX_MCA_gds": "hash"}


def build_quickly():
    """From now on, whatever trainer the test builds; its ranks are on this machine."""
    os.environ.update(QUICK, **LAUNCH)



def my_turn(number, among=None):
    """With ZPLAN_TURN=2/6 (tests/run.sh) the third of every six, and so on at the next commits; else all. among: of so few, where
    one is due at every commit."""
    current, turns = map(int, os.environ.get("ZPLAN_TURN", "0/1").split("/"))
    turns = min(turns, among or turns)
    return number % turns == current % turns


class Scratch:
    """A temporary folder that goes away; kept when the test fails and KEEP=1."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="zplan-test-")
        scratch_folders.add(self.path)
        return self.path

    def __exit__(self, *_):
        if os.environ.get("KEEP"):
            print("kept %s" % self.path)
        else:
            shutil.rmtree(self.path, ignore_errors=True)


class Outcome:
    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.err, self.seconds = status, out, err, seconds

    def tail(self, lines=6):
        return "\n".join((self.out + self.err).strip().splitlines()[-lines:])


def in_session(leader):
    """Processes of a session: mpirun and its ranks have process groups of their own."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry, encoding="utf-8", errors="replace") as file:
                session = int(file.read().rsplit(")", 1)[1].split()[3])
            if session == leader:
                found.append(int(entry))
        except (OSError, IndexError, ValueError):
            pass  # it ended meanwhile
    return found


def child_of(process):
    """Its first child: of `zplan run` the trainer or mpirun."""
    with open("/proc/%d/task/%d/children" % (process, process), encoding="ascii") as file:
        return int(file.read().split()[0])


def end_session(leader):
    """Kills what is left of a session."""
    for process in in_session(leader):
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass  # it ended meanwhile


def end_all(signal_number, _):
    """Leaves nothing behind: tests/run.sh was interrupted."""
    for leader in list(sessions):
        end_session(leader)
    if own_objects:
        own_objects.cleanup()
    for folder in () if os.environ.get("KEEP") else list(scratch_folders):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(128 + signal_number)


signal.signal(signal.SIGTERM, end_all)


WIDE = {"NO_COLOR": "1", "COLUMNS": "2000"}  # messages are compared in one line; verify/terminal.py looks at other widths


def run(command, timeout=PATIENCE, cwd=None, env=None):
    """Runs a command in a session of its own, so that a time-out also ends what it started."""
    begin = time.monotonic()
    try:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", cwd=cwd, start_new_session=True,
                                   env={**os.environ, **WIDE, **(env or {})})
    except OSError as error:
        return Outcome(127, "", "cannot start %s: %s" % (command[0], error), 0.0)
    sessions.add(process.pid)
    try:
        out, err = process.communicate(timeout=timeout)
        status = process.returncode
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # zplan passes it on; a rank that waits for ever does not get past it
        try:
            out, err = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            out, err = process.communicate()
        status, err = 124, err + "\ntimed out after %d s" % timeout
    sessions.discard(process.pid)
    return Outcome(status, out, err, time.monotonic() - begin)


def zplan(*arguments, **keywords):
    return run((ZPLAN,) + arguments, **keywords)


# ---- logs ----

def read_log(path):
    """(step records in order, the "end" event or None) of a trainer's JSON lines."""
    steps, end = [], None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record.get("event") == "end":
                end = record
            elif "event" not in record:
                steps.append(record)
    return steps, end


# ---- checkpoints ----

ELEMENT = {"F32": "f", "F64": "d", "BF16": "H", "F16": "H"}


def read_safetensors(path):
    """{name: (shape, array of numbers)}: 8 bytes of length, a JSON header, then the data."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = array.array(ELEMENT[entry["dtype"]])
        values.frombytes(data[begin:end])
        if sys.byteorder == "big":
            values.byteswap()
        if entry["dtype"] == "BF16":  # the upper halves of f32
            values = array.array("f", struct.pack("=%dI" % len(values), *(bits << 16 for bits in values)))
        if entry["dtype"] == "F16":
            values = array.array("f", struct.unpack("=%de" % len(values), values.tobytes()))
        tensors[name] = (entry["shape"], values)
    return tensors


def checksum(data):
    """Of a manifest of version 1 (runtime/checkpoint/checkpoint_manifest.c): byte i into FNV-1a number i mod 8, then the FNV-1a of these eight."""
    def fnv(part):
        result = 14695981039346656037
        for byte in part:
            result = (result ^ byte) * 1099511628211 & (1 << 64) - 1
        return result

    return "%016x" % fnv(struct.pack("<8Q", *(fnv(data[chain::8]) for chain in range(8))))


def piece_sum(data, width):
    """Of a piece of a checkpoint, in elements of `width` bytes (runtime/checkpoint/piece_hash.c)."""
    result = 0
    for i, (value,) in enumerate(struct.iter_unpack("<" + {2: "H", 4: "I", 8: "Q"}[width], data)):
        x = (value + (i + 1) * 0x9e3779b97f4a7c15) & (1 << 64) - 1
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & (1 << 64) - 1
        x = (x ^ x >> 27) * 0x94d049bb133111eb & (1 << 64) - 1
        result += x ^ x >> 31
    return "%016x" % (result & (1 << 64) - 1)


def piece_sums(data):
    """Of a safetensors file: its header, and its tensors in the order of their bytes."""
    start = 8 + struct.unpack("<Q", data[:8])[0]
    entries = [e for name, e in json.loads(data[8:start]).items() if name != "__metadata__"]
    width = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}
    return [piece_sum(data[:start], 8)] + [piece_sum(data[start + e["data_offsets"][0]:start + e["data_offsets"][1]], width[e["dtype"]])
                                           for e in sorted(entries, key=lambda e: e["data_offsets"])]


def read_manifest(folder):
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
        return json.load(file)


def write_manifest(folder, manifest):
    """With the last line that answers for those before it."""
    text = json.dumps({key: value for key, value in manifest.items() if key != "sha256"})[:-1] + ",\n"
    with open(os.path.join(folder, "manifest.json"), "w", encoding="utf-8") as file:
        file.write(text + '  "sha256": "%s"\n}\n' % hashlib.sha256(text.encode()).hexdigest())


def replace_model(folder, data):
    """Other bytes for model.safetensors of the checkpoint in a step's folder, with a manifest that agrees."""
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(data)
    manifest = read_manifest(folder)
    for entry in manifest["files"]:
        if entry["name"] == "model.safetensors":
            entry.update(bytes=len(data), pieces=piece_sums(data))
    write_manifest(folder, manifest)


def step_folder(checkpoints, step):
    return os.path.join(checkpoints, "step_%06d" % step)


# ---- comparing ----

TINY = 1e-30  # below this a tensor counts as zero and the error is absolute


def tensor_error(got, want):
    """max |got - want| / max |want| over one tensor; NaN and other shapes are infinitely wrong."""
    if len(got) != len(want):
        return math.inf
    difference = max(map(abs, map(operator.sub, got, want)), default=0.0)
    scale = max(map(abs, want), default=0.0)
    error = difference / max(scale, TINY)
    finite = math.isfinite(math.fsum(got)) and math.isfinite(error)
    return error if finite else math.inf


def number_error(got, want):
    if got is None or want is None:
        return math.inf
    return abs(got - want) / max(abs(want), TINY)


def part_error(got, want):
    """Likewise of a loss that a step may be without: None is then what it must be."""
    return 0.0 if got is None and want is None else number_error(got, want)


def worst(errors, default=math.inf):
    """(largest error, what it belongs to) of {what: error}."""
    if not errors:
        return default, ""
    what = max(errors, key=lambda key: errors[key])
    return errors[what], what


def model_error(got_file, want_file):
    """(largest tensor error, name) between two model.safetensors; (inf, why) when they hold different tensors."""
    got, want = read_safetensors(got_file), read_safetensors(want_file)
    if sorted(got) != sorted(want):
        return math.inf, "other tensors: %s" % sorted(set(got) ^ set(want))[:4]
    for name in want:
        if got[name][0] != want[name][0]:
            return math.inf, "shape of %s" % name
    return worst({name: tensor_error(got[name][1], want[name][1]) for name in want})


def same_bytes(one, other):
    with open(one, "rb") as a, open(other, "rb") as b:
        return a.read() == b.read()


# ---- counting ----

class Tally:
    """Counts checks; a failed one is printed at once."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def check(self, name, good, detail=""):
        if good:
            self.passed += 1
            return True
        self.failed += 1
        reason = " | ".join(detail.strip().splitlines())  # tests/run.sh shows the lines that have this word
        print("FAILED %s%s" % (name, ": " + reason if reason else ""), flush=True)
        return False

    def finish(self):
        """Prints the last line that tests/run.sh reads; the exit status."""
        print("%d passed, %d failed" % (self.passed, self.failed), flush=True)
        return 1 if self.failed or not self.passed else 0
