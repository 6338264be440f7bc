#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How fast are the matrix products of GPT-2 124M with each library and its kernels? GFLOP/s a thread, one column each.
#
#   products.sh [THREADS] [DTYPE]     1 thread and f32 unless told otherwise; about a minute
#   BENCH=path                        another binary than build/release/tests/bench_products
here=$(cd "$(dirname "$0")" && pwd) || exit 1
bench=${BENCH:-$here/../../build/release/tests/bench_products}
threads=${1:-1}
dtype=${2:-f32}
if [ ! -x "$bench" ]; then
  echo "products.sh: $bench is not there; build it or set BENCH" >&2
  exit 2
fi
table=$(mktemp -d) || exit 1
trap 'rm -rf "$table"' EXIT
unset OPENBLAS_CORETYPE ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA

column() { # NAME LIBRARY [VARIABLE=VALUE]
  name=$1
  library=$2
  shift 2
  env "$@" "$bench" "$library" "$dtype" "$threads" >"$table/rows" 2>/dev/null || return
  [ -s "$table/all" ] || { echo shape && cut -f1 "$table/rows"; } >"$table/all"
  { echo "$name" && cut -f2 "$table/rows"; } | paste "$table/all" - >"$table/next"
  mv "$table/next" "$table/all"
}

# Only kernels that this processor runs: another one's end with an illegal instruction.
flags=" $(grep -m1 '^flags' /proc/cpuinfo) "
column openblas openblas
case $flags in *' avx2 '*) column Haswell openblas OPENBLAS_CORETYPE=Haswell ;; esac
case $flags in *' avx512vl '*) column SkylakeX openblas OPENBLAS_CORETYPE=SkylakeX ;; esac
if [ "$dtype" != f64 ]; then
  column onednn onednn
  case $flags in *' avx512vl '*) column onednn-avx2 onednn ONEDNN_MAX_CPU_ISA=AVX2 ;; esac
fi
column chosen choose
echo "GFLOP/s of a thread, $dtype, $threads threads"
awk -F '\t' '{ printf "%-24s", $1; for (i = 2; i <= NF; i++) printf " %11s", $i; print "" }' "$table/all"
