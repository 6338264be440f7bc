#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Predicted and measured step times of CPU plans, one and two ranks, one to 124 million parameters, each group of them right after
# `zplan calibrate`.
#   tests/bench/cpu_plans.sh [path of zplan [group...]]
# Goal: median error at most 15 %, Kendall tau at least 0.8.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
zplan=${1:-$here/../../build/release/zplan}
[ $# -eq 0 ] || shift
exec python3 "$here/cpu_plans.py" "$zplan" "$here/../../examples/text.txt" "$@"
