#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is too long for every change: the whole space of what tests/run.sh takes a sample of. By hand, or at night; about four hours on
# two cores. Needs a release build that has all tests: `cmake --preset release && cmake --build --preset release`.
#
#   tests/long.sh [PART]...     the parts with these names; default: all
#
# Each part has a limit of time and of address space. Logs: build/test-logs/.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(dirname "$here")
logs=build/test-logs/long
case $1 in
-*)
  sed -n '3,/^here/s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
cd "$root" || exit 1
[ -x build/release/zplan ] || { echo 'long.sh: no build/release/zplan: build it first, see long.sh --help' >&2 && exit 1; }
mkdir -p "$logs" && rm -f "$logs"/*.counts || exit 1
export ZPLAN_LONG=1
# shellcheck source=tests/support/parts.sh
. "$here/support/parts.sh"

# Every sh that Debian has knows ulimit -v.
# shellcheck disable=SC2317,SC3045 # called through part
within() { # HOURS GIGABYTES COMMAND...
  hours=$1 gigabytes=$2
  shift 2
  (ulimit -v $((gigabytes << 20)) && exec timeout --kill-after=60 "${hours}h" "$@")
}

list_parts() {
  cat <<end
answers that agree|2|8|python3 tests/fuzz/answers.py --count 2000
plans against the search|2|8|python3 tests/fuzz/plans.py --count 384000 --instances 50 --streams 8 --delayed 4
faults of every call|2|16|python3 tests/fault/calls.py --every 1
keys of configurations|1|16|python3 tests/interop/config_keys.py --all
command|1|8|python3 tests/verify/command.py
counts of devices|1|8|ctest --test-dir build/release --output-on-failure -R ^test_(search_(counts|work)|capacity|first_screen)\$
searches of all instances|1|8|ctest --test-dir build/release --output-on-failure -R ^test_(answers|search_(full|bounds|cuts|idle|least_parts|robust|room|stages))\$
texts of GPUs|1|8|ctest --test-dir build/release --output-on-failure -R ^test_(kernels_cuda_(nvrtc|scores|pairs|lengths|stretch)|rowprog_cuda|cuda_compile)\$
code by LLVM|1|8|ctest --test-dir build/release --output-on-failure -R ^test_rowprog_(llvm|targets)\$
other unit tests|2|16|ctest --test-dir build/release --output-on-failure -E ^test_(search_.*|answers|capacity|first_screen|kernels_cuda_(nvrtc|scores|pairs|lengths|stretch)|rowprog_(cuda|llvm|targets)|cuda_compile)\$
emulated GPU|1|16|python3 tests/diff/cuda.py
model fuzzer|2|32|python3 tests/fuzz/models.py --count 1000
layouts|1|16|python3 tests/diff/layouts.py --degrees
mixed precision|1|16|python3 tests/diff/bf16.py
products of 8 bits|1|16|python3 tests/diff/float8.py
fp16 and its loss scale|1|16|python3 tests/diff/fp16.py
sums of gradients|1|16|python3 tests/diff/sums.py
sums in 16 bits|1|16|python3 tests/diff/stochastic_sums.py
sums rounded between nodes|1|16|python3 tests/diff/rounded_sums.py
1-bit Adam|1|16|python3 tests/diff/one_bit.py
switch of 1-bit Adam|1|16|python3 tests/diff/freeze.py
values of 1-bit Adam|1|16|python3 tests/diff/one_bit_values.py
averages|1|16|python3 tests/diff/ema.py
frozen parameters|1|16|python3 tests/diff/frozen.py
resume|1|16|python3 tests/diff/resume.py
images|1|16|python3 tests/diff/images.py
examples|1|16|python3 tests/diff/examples.py
faults|1|16|python3 tests/fault/faults.py
GPU pack|1|16|python3 tests/gpu/test_pack.py
offload|1|16|python3 tests/diff/offload.py
schedules|1|16|python3 tests/diff/schedules.py
ZeRO in shard groups|1|16|python3 tests/diff/shard_groups.py
context|1|16|python3 tests/diff/context.py
bytes by link class|1|16|python3 tests/diff/links.py
decoding|1|16|python3 tests/diff/decode.py
streams|1|16|python3 tests/diff/streams.py
sequence|1|16|python3 tests/diff/sequence.py
sharded state|1|16|python3 tests/diff/zero.py
pytorch|1|16|python3 tests/torch/compare.py
Muon|1|16|python3 tests/diff/muon.py
loss in chunks|1|16|python3 tests/diff/chunked_loss.py
sparse attention|1|16|python3 tests/diff/sparse.py
recomputation|1|16|python3 tests/diff/recompute.py
values off the device|1|16|python3 tests/diff/offload_values.py --all
optimizers|1|16|python3 tests/diff/optimizers.py --all
plan files|1|8|python3 tests/verify/tamper.py --mutations 400
edited orders|1|16|python3 tests/verify/orders.py
plan-only build|1|8|python3 tests/verify/plan_only.py --build
style|1|16|python3 tests/style/style.py
damaged inputs|1|64|python3 tests/fuzz/inputs.py --seconds 1800
end
}

wanted=$#
list_parts >"$logs/parts"
while IFS='|' read -r name hours gigabytes command <&3; do
  chosen=$([ "$wanted" -gt 0 ] || echo yes)
  for word in "$@"; do [ "$word" != "$name" ] || chosen=yes; done
  # shellcheck disable=SC2086 # words
  [ -z "$chosen" ] || part "$name" within "$hours" "$gigabytes" $command </dev/null 3<&-
done 3<"$logs/parts"
ls "$logs"/*.counts >/dev/null 2>&1 || { echo "long.sh: no such part; they are:" >&2 && cut -d '|' -f 1 "$logs/parts" >&2 && exit 2; }
finish
