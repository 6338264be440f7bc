#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Dense against block-sparse attention on this machine's CPU, in turn: the kernels, then training steps. Prints medians and ratios.
#
#   sparse_attention.sh [ROUNDS [MOST POSITIONS]]   3 rounds and 8192 positions unless told otherwise, about four minutes
#   ZPLAN=path                                      another binary than build/release/zplan; its tests/bench_sparse_attention is used
here=$(cd "$(dirname "$0")" && pwd) || exit 1
zplan=${ZPLAN:-$here/../../build/release/zplan}
kernels=$(dirname "$zplan")/tests/bench_sparse_attention
if [ ! -x "$zplan" ] || [ ! -x "$kernels" ]; then
  echo "sparse_attention.sh: $zplan or $kernels is not there; build both or set ZPLAN" >&2
  exit 2
fi
"$kernels" "${1:-3}" "${2:-8192}" && ZPLAN=$zplan python3 "$here/sparse_attention.py" "${1:-3}" "${2:-8192}"
