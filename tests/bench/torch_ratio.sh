#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Is zplan's GPT-2 124M training step as fast as PyTorch's on this machine, and smaller? Prints both and the ratio.
#
#   torch_ratio.sh [ROUNDS]       3 rounds unless told otherwise, about 30 s each
#   PYTHON=path                   a Python with torch; else python3 and /usr/bin/python3 (Debian: python3-torch) are tried
#   ZPLAN=path                    another binary than build/release/zplan
here=$(cd "$(dirname "$0")" && pwd) || exit 1
zplan=${ZPLAN:-$here/../../build/release/zplan}
if [ ! -x "$zplan" ]; then
  echo "torch_ratio.sh: $zplan is not there; build it or set ZPLAN" >&2
  exit 2
fi
python=
for candidate in ${PYTHON:-} python3 /usr/bin/python3; do
  if "$candidate" -c 'import torch; torch.__version__' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "torch_ratio.sh: no Python with torch found; install python3-torch or set PYTHON" >&2
  exit 2
fi
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
trainer=$("$zplan" build "$here/gpt2_bench.dz" -o "$tree") || exit 1
# Waiting threads must not burn the core that the other one computes on.
OMP_WAIT_POLICY=passive python3 "$here/torch_ratio.py" "$trainer" "$python" "${1:-3}"
