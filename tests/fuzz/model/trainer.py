# SPDX-License-Identifier: Apache-2.0
"""The trainer of a model: its token file and first checkpoint, what `zplan run` makes of them, its losses and gradients."""
import json
import os
import shutil
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import harness  # noqa: E402
import trainings  # noqa: E402
from tape import RECIPES  # noqa: E402

STEPS = 2
LOSS_SCALE = 128  # of mixed_fp16, in the first step
FNV_START, FNV_PRIME, MASK = 14695981039346656037, 1099511628211, (1 << 64) - 1


def fnv(data, start=FNV_START):
    for byte in data:
        start = (start ^ byte) * FNV_PRIME & MASK
    return start


def checksum(data):
    """runtime/checkpoint/checkpoint_manifest.c: eight chains, byte i in chain i mod 8, then the FNV-1a of the eight."""
    return "%016x" % fnv(struct.pack("<8Q", *(fnv(data[chain::8]) for chain in range(8))))


def to_bf16(values):
    """The upper halves of f32, rounded to the nearest, ties to even."""
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype("<u2")


# Elements of a checkpoint: the name in the file, and to the file's bytes.
ELEMENTS = {"fp64": ("F64", lambda v: v.astype("<f8")), "fp32": ("F32", lambda v: v.astype("<f4")), "mixed_bf16": ("BF16", to_bf16),
            "mixed_fp16": ("F16", lambda v: v.astype("<f2"))}
ELEMENTS.update((precision, ELEMENTS["mixed_bf16"]) for precision in RECIPES)


def rounded(values, precision):
    """What weights of a precision hold of numbers, as f64."""
    if ELEMENTS[precision][0] == "BF16":
        return (to_bf16(values).astype("<u4") << np.uint32(16)).view("<f4").astype(np.float64)
    return ELEMENTS[precision][1](values).astype(np.float64)


def safetensors(tensors, precision):
    """The file's bytes."""
    dtype, convert = ELEMENTS[precision]
    header, at, data = {"__metadata__": {"format": "pt"}}, 0, []
    for name in sorted(tensors):
        data.append(convert(tensors[name]).tobytes())
        header[name] = {"dtype": dtype, "shape": list(tensors[name].shape), "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def write_checkpoint(folder, seed, values, precision="fp64", frozen=()):
    """Step 0 of a run by sgd without momentum. values: those that the precision can hold; mixed ones have masters in f32, but frozen ones."""
    place = harness.step_folder(folder, 0)
    os.makedirs(place, exist_ok=True)
    files = []
    masters = {name + ".master": v for name, v in values.items() if name not in frozen} if precision.startswith("mixed") else {}
    for name, data in (("model.safetensors", safetensors(values, precision)), ("optimizer.safetensors", safetensors(masters, "fp32"))):
        write(os.path.join(place, name), data)
        files.append({"name": name, "bytes": len(data), "fnv1a64x8": checksum(data)})
    manifest = {"format": "zplan-checkpoint", "version": 1, "model": "fuzz", "dtype": ELEMENTS[precision][0], "step": 0, "samples": 0,
                "seed": seed, "files": files}
    if precision == "mixed_fp16":
        manifest.update(loss_scale=LOSS_SCALE, scale_steps=0)
    write(os.path.join(place, "manifest.json"), json.dumps(manifest).encode())
    write(os.path.join(folder, "latest"), b"step_000000\n")


def read_checkpoint(folder, step, precision):
    """Values of all parameters; masters where there are any."""
    place = harness.step_folder(folder, step)
    tensors = harness.read_safetensors(os.path.join(place, "model.safetensors"))
    if precision.startswith("mixed"):
        masters = harness.read_safetensors(os.path.join(place, "optimizer.safetensors"))
        tensors.update({name[:-7]: tensor for name, tensor in masters.items()})
    return {name: np.array(values, dtype=np.float64).reshape(shape) for name, (shape, values) in tensors.items()}


def write_tokens(path, tokens):
    """A shard in llm.c's format."""
    write(path, struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + tokens.astype("<u2").tobytes())


def write_npy(path, array):
    header = ("{'descr': '<i4', 'fortran_order': False, 'shape': %s, }" % (array.shape,)).ljust(117) + "\n"
    write(path, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + array.astype("<i4").tobytes())


def write_arrays(folder, arrays):
    os.makedirs(folder)
    for name, array in arrays.items():
        write_npy(os.path.join(folder, name + ".npy"), array)


class Trained:
    """What a run left: error (text) or None, refused (code of zplan) or None, losses, values after every step."""

    def __init__(self, outcome, folder, precision):
        self.error = self.refused = None
        self.losses, self.values = [], []
        if outcome.status:
            codes = [word[6:11] for word in outcome.err.split() if word.startswith("error[Z")]
            self.refused = codes[0] if outcome.status in (1, 3) and codes else "no plan" if outcome.status == 3 else None
            self.error = "exit %d\n%s" % (outcome.status, outcome.tail(12))
            return
        records, _ = harness.read_log(os.path.join(folder, "log.jsonl"))
        self.losses = [record["loss"] for record in records]
        self.skipped = any(record.get("skipped") for record in records)
        self.values = [read_checkpoint(os.path.join(folder, "ck"), step + 1, precision) for step in range(STEPS)]


def train(folder, text, tokens, arrays, seed, values, settings, words=(), frozen=()):
    """Builds and runs in `folder`, which is made anew. arrays: {name: inputs of all samples}, of models that are not trained on a stream."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    source = os.path.join(folder, "model.dz")
    write(source, text.encode())
    write_tokens(os.path.join(folder, "tokens.bin"), tokens)
    write_arrays(os.path.join(folder, "packed"), arrays)
    precision = settings["precision"]
    write_checkpoint(os.path.join(folder, "ck"), seed, values, precision, frozen)
    command = ["run", source, "--ranks", trainings.ranks_of(settings), "-o", os.path.join(folder, "tree")]
    command += ["--log", os.path.join(folder, "log.jsonl")]
    for key, value in settings.items():
        command += ["--set", "%s=%s" % (key, json.dumps(value))]
    command += [*words, "--resume", "--threads", 1, "--check-memory", "--", "--checkpoint", os.path.join(folder, "ck")]
    # A folder of its own: an mpirun that ends may remove the common one while another begins.
    outcome = harness.zplan(*command, env=dict(trainings.ENVIRONMENT, OMPI_MCA_orte_tmpdir_base=folder))
    return Trained(outcome, folder, precision)


def loss_at(folder, seed, values):
    """The first loss of the one-rank trainer in `folder` with other values."""
    place, log, packed = os.path.join(folder, "at"), os.path.join(folder, "at.jsonl"), os.path.join(folder, "packed")
    write_checkpoint(place, seed, values)
    outcome = harness.run([os.path.join(folder, "tree", "trainer"), "--resume", "--steps", 1, "--threads", 1, "--log", log, "--checkpoint", place,
                           "--data", packed if os.listdir(packed) else os.path.join(folder, "tokens.bin")])
    loss = harness.read_log(log)[0][0]["loss"] if outcome.status == 0 else None
    shutil.rmtree(place, ignore_errors=True)
    if os.path.exists(log):
        os.remove(log)
    return loss
