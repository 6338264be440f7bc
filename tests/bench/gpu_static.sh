#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the compiler makes of attention on tensor cores, for GPUs that are not there: registers, spills, shared memory, blocks of
# a multiprocessor that registers and shared memory leave, instructions of each kernel, and of a step for each product of tensor cores.
#
#   gpu_static.sh [HEAD...]        columns of heads; 64 128 unless given
#
# Needs zplan built in build/release (or ZPLAN), NVRTC, and cuobjdump and nvdisasm in PATH (pip: nvidia-cuda-cuobjdump and
# nvidia-cuda-nvdisasm; Debian: nvidia-cuda-toolkit). Exits 1 when a kernel spills or has no tensor-core
# instruction, or when a loop has more than four other instructions for each of them (heads of up to 128 columns).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
for tool in cuobjdump nvdisasm; do
  command -v "$tool" > /dev/null || { echo "gpu_static.sh: there is no $tool in PATH" >&2; exit 1; }
done
exec python3 "$root/tests/bench/gpu_static.py" "$@"
