#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The work of gpu_static.sh: builds a model for every arch, disassembles its attention kernels, prints a row for each.

others: instructions of a step for each product of tensor cores (HMMA), in the loop over steps that has most of them to one. Counted are
the blocks of the loop, without jumps into them or out of them, that every step of whole chunks whose scores are all seen runs: those
with products, ldmatrix, asynchronous copies, maxima, exchanges of lanes, or several powers. Not counted: masks, chunks that are no whole
ones, new bases of the softmax, which few steps need. Loops within a step are rows of their own, where they are rolled.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

ARCHS = ("sm_80", "sm_90", "sm_100")
KERNELS = ("zpd_mma_forward", "zpd_mma_grad_q", "zpd_mma_grad_kv")
OPS = ("HMMA", "LDSM", "LDGSTS", "MUFU", "STG.E.128")
THREADS = 128
# At most so many other instructions for each product, up to this many columns of heads. Wider ones have no registers for longer steps.
MOST_OTHERS, JUDGED_COLUMNS = 4, 128
STEP_OPS, STEP_POWERS = {"HMMA", "LDSM", "LDGSTS", "FMNMX", "SHFL"}, 8
# Registers of a multiprocessor; shared memory of a multiprocessor and what a block takes besides: CUDA C Programming Guide, "Compute
# Capabilities" (8.0, 9.0, 10.0).
REGISTERS, RESERVED_BYTES = 65536, 1024
SHARED_BYTES = {"sm_80": 164 * 1024, "sm_90": 228 * 1024, "sm_100": 228 * 1024}

SHARED = """#include <stdio.h>
#include <stdlib.h>
#include "zplan/zpd.h"
int main(int n, char **v) {
  for (int kind = 0; n > 1 && kind < 3; kind++)
    printf("%d\\n", zpd_mma_shared_bytes(kind, atoi(v[1]), zpd_mma_rows(kind, atoi(v[1]), 0), ZPD_MMA_SHARED_BYTES));
}
"""


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("%s: %s" % (words[0], done.stderr.strip() or done.stdout.strip()))
    return done.stdout


def shared_bytes(folder, head):
    """Dynamic shared memory of the three kernels, as the runtime asks for it."""
    source, program = os.path.join(folder, "shared.c"), os.path.join(folder, "shared")
    with open(source, "w", encoding="utf-8") as file:
        file.write(SHARED)
    run(os.environ.get("CC", "cc"), "-I", os.path.join(harness.ROOT, "kernels", "include"), source, "-o", program)
    return [int(line) for line in run(program, str(head)).split()]


def op_of(line):
    return re.sub(r"^@!?U?P\w+\s+", "", line.strip()).split()[0].split(".")[0]


def target_of(line):
    return int(re.findall(r"0x([0-9a-f]+)", line)[-1], 16)


def blocks_of(code):
    """code: [(address, line)]. Cut before what is jumped to and after what jumps."""
    begins = {target_of(line) for _, line in code if op_of(line) in ("BRA", "BSSY") and "0x" in line}
    blocks = [[]]
    for address, line in code:
        if blocks[-1] and (address in begins or op_of(blocks[-1][-1][1]) in ("BRA", "EXIT", "BSYNC", "RET")):
            blocks.append([])
        blocks[-1].append((address, line))
    return blocks


def is_of_step(block):
    ops = [op_of(line) for _, line in block]
    return bool(STEP_OPS & set(ops)) or ops.count("MUFU") >= STEP_POWERS


def others_per_product(code):
    """The most of any loop with products."""
    blocks, most = blocks_of(code), 0
    for end, line in code:
        if op_of(line) != "BRA" or "0x" not in line or target_of(line) >= end:
            continue
        begin = target_of(line)
        body = [op_of(other) for block in blocks if begin <= block[0][0] <= end and is_of_step(block) for _, other in block]
        if "HMMA" in body:
            most = max(most, len(body) / body.count("HMMA") - 1)
    return most


def build(folder, arch, head):
    tree = os.path.join(folder, "%s_%d" % (arch, head))
    size = {"model.%s" % key: value for key, value in (("d", 2 * head), ("heads", 2), ("layers", 1))}
    words = [word for key, value in size.items() for word in ("--set", "%s=%d" % (key, value))]
    outcome = harness.zplan("build", os.path.join(HERE, "gpu_static.dz"), "--arch", arch, "-o", tree, *words)
    if outcome.status != 0:
        sys.exit(outcome.tail())
    return os.path.join(tree, "kernels.image")


def main():
    heads = [int(word) for word in sys.argv[1:]] or [64, 128]
    bad = 0
    harness.require_zplan()
    print("%-7s %4s %-16s %9s %6s %7s %7s %6s %6s" % ("arch", "head", "kernel", "registers", "spills", "shared", "blocks", "instr", "others") +
          "".join(" %9s" % op for op in OPS))
    with harness.Scratch() as folder:
        for head in heads:
            shared = shared_bytes(folder, head)
            for arch in ARCHS:
                image = build(folder, arch, head)
                usage, text = run("cuobjdump", "-res-usage", image), run("cuobjdump", "-sass", image)
                for kernel, dynamic in zip(KERNELS, shared):
                    registers, stack, local = map(int, re.search(
                        r"Function %s:\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)" % kernel, usage).groups())
                    code = re.search(r"Function : %s\n(.*?)(?=Function : |\Z)" % kernel, text, re.S).group(1)
                    code = [(int(address, 16), line) for address, line in re.findall(r"/\*([0-9a-f]{4,5})\*/\s+([^;]*);", code)]
                    lines, others = [line for _, line in code], others_per_product(code)
                    counts = [sum(op in line for line in lines) for op in OPS]
                    held = (registers + 7) // 8 * 8 * THREADS
                    blocks = min(REGISTERS // held, SHARED_BYTES[arch] // (dynamic + RESERVED_BYTES))
                    bad += stack > 0 or local > 0 or counts[0] == 0 or blocks == 0
                    bad += others == 0 or (others > MOST_OTHERS and head <= JUDGED_COLUMNS)
                    print("%-7s %4d %-16s %9d %6d %7d %7d %6d %6.2f" %
                          (arch, head, kernel, registers, stack + local, dynamic, blocks, len(lines), others) +
                          "".join(" %9d" % n for n in counts))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
