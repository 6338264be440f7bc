#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packs a folder for a machine that has a GPU and nothing of ours, no compiler either: trainers, kernels with their tests,
# references of CPU ranks, tokens, and two scripts. Nothing of it needs more than libc and libm; the CUDA driver and cuBLAS are
# opened where they are.
#
#   tests/gpu/pack.sh OUT [--text FILE] [--mpi] [--emulated] [--small] [--jobs N]
#     OUT          a new or empty folder; at most 56 MiB are put there
#     --text       what is learned from (default: examples/text.txt)
#     --mpi        also trainings of several ranks; their trainers need MPI (libmpi.so.40), first.sh starts them by mpirun
#     --emulated   for the emulated GPU of this machine, to try the scripts: small models, nothing about GPUs
#     --small      three trainings and a few tests of kernels, no 16,384 positions, no 1.3 billion parameters
#     --jobs       builds at a time (default: the cores)
#
# There, OUT/first.sh checks in under 8 minutes and writes first.txt, OUT/speed.sh measures and writes speed.txt.
# Needs zplan and the programs of tests/gpu/kernels in build/release, and NVRTC unless --emulated.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
exec python3 "$here/pack.py" "$@"
