#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every test that needs no GPU, from a fresh Debian or Ubuntu machine: installs what is missing, builds, runs all parts and
# ends with the line `N passed, N failed`.
#
#   tests/run.sh [--no-dev] [--quick] [--whole]        a line a part: checks, seconds, and seconds of processor time
#     --no-dev    without the second build (sanitizers, warnings are errors) and its unit tests. It has those of the runtime and its
#                 kernels at one commit, those of generated code at the next, those of front end and planner at the third; with
#                 --whole all
#     --quick     fewer layouts: every value of every axis once
#     --whole     whole tables of trainings; otherwise a sixth by turns, and every value of every setting (support/trainings.py);
#                 whole unit tests; otherwise of those that take long a sixth by turns (tests/CMakeLists.txt)
#
# Logs of all parts: build/test-logs/.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(dirname "$here")
logs=build/test-logs
dev=yes
quick=
turns=6
for option; do
  case $option in
  --no-dev) dev=no ;;
  --quick) quick=--quick ;;
  --whole) turns=1 ;;
  *)
    sed -n '3,/^here/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
  esac
done

# shellcheck source=examples/packages.sh
. "$root/examples/packages.sh"
cd "$root" || exit 1
packages="$packages clang-format clang-tidy tcc" # how the sources read: tests/style; trainers of tests: support/quick_cc.sh
install_packages || exit 1
mkdir -p "$logs" || exit 1
unset ZPLAN # the parts test what is built here
export ZPLAN_CALIBRATION=none # plans do not depend on the machine; verify/calibrated.py measures
# Kernels that several parts have are compiled once (tests/support/harness.py).
export KEPT_OBJECTS="$root/build/test-objects"
rm -rf "$KEPT_OBJECTS" && mkdir "$KEPT_OBJECTS" || exit 1

# Debian's python3 has NumPy, and is started in a tenth of the time that one takes which a script looks for (pyenv) and whose packages run
# code at every start. What parts import is compiled once.
python=/usr/bin/python3
"$python" -c 'import numpy' 2>/dev/null || python=$(python3 -c 'import sys; print(sys.executable)') || exit 1
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$root/build/test-bytecode"
# shellcheck disable=SC2317 # called through part, in the background
python3() { exec "$python" "$@"; }

# Whose turn it is follows from the commit, so that what failed fails again.
commits=$(git rev-list --count HEAD 2>/dev/null || echo 0)
export ZPLAN_TURN=$((commits % turns))/$turns
# And the next third when a turn comes again, so that what takes turns is seen with sanitizers, too.
case $(((commits / turns + commits) % 3)) in
0) sanitized=runtime ;;
1) sanitized=codegen ;;
*) sanitized=planner ;;
esac
[ "$turns" -gt 1 ] || sanitized=all

rm -f "$logs"/*.counts
# shellcheck source=tests/support/parts.sh
. "$here/support/parts.sh"

# shellcheck disable=SC2317 # called through part
build() { # PRESET TARGET OPTIONS: counts as one test
  preset=$1
  target=$2
  shift 2
  cmake --preset "$preset" -DZPLAN_CRITERION=OFF -DZPLAN_SANITIZED=$sanitized "$@" && cmake --build --preset "$preset" --target "$target" && echo '1 passed, 0 failed'
}

# shellcheck disable=SC2317 # called through part
unit() { # PRESET JOBS: in the background, where TERM then ends CTest and not a shell that waits for it
  exec ctest --test-dir "build/$1" -j"$2" --output-on-failure
}

# Parts that run side by side, each on about one core: the longest first, so that none goes on alone at the end. Ranks of a training
# wait for each other more than they compute, so there are more parts at a time than cores.
list_parts() {
  cat <<end
unit release|unit release 1
layouts|python3 tests/diff/layouts.py --jobs 1 $quick
mixed precision|python3 tests/diff/bf16.py
products of 8 bits|python3 tests/diff/float8.py --jobs 1
sums of gradients|python3 tests/diff/sums.py
sums in 16 bits|python3 tests/diff/stochastic_sums.py
sums rounded between nodes|python3 tests/diff/rounded_sums.py
offload of values|python3 tests/diff/offload_values.py --jobs 1
faults|python3 tests/fault/faults.py
faults of every call|python3 tests/fault/calls.py --every 18
plans against the search|python3 tests/fuzz/plans.py --count 36000 --instances 14 --streams 2 --delayed 1 --rounded 1 --sharded 1
answers that agree|python3 tests/fuzz/answers.py --count 100
offload|python3 tests/diff/offload.py --jobs 1
delayed update|python3 tests/diff/delayed.py --jobs 1
command|python3 tests/verify/command.py
terminal|python3 tests/verify/terminal.py
JSON of every verb|python3 tests/verify/json_shape.py
examples alone|python3 tests/verify/alone.py
new files and catalogues|python3 tests/verify/new.py
libraries of CUDA|python3 tests/verify/libraries.py
two machines|python3 tests/fault/hosts.py
faults of a GPU|python3 tests/fault/gpu.py
surroundings|python3 tests/verify/surroundings.py
emulated GPU|python3 tests/diff/cuda.py --jobs 1
model fuzzer|python3 tests/fuzz/models.py --jobs 1 --count 45
1-bit Adam|python3 tests/diff/one_bit.py
switch of 1-bit Adam|python3 tests/diff/freeze.py
steps between exchanges|python3 tests/diff/intervals.py
values of 1-bit Adam|python3 tests/diff/one_bit_values.py
1-bit Adam and LAMB against PyTorch|python3 tests/diff/onebit.py
fp16 and its loss scale|python3 tests/diff/fp16.py
schedules|python3 tests/diff/schedules.py --jobs 1
sharded state|python3 tests/diff/zero.py
ZeRO in shard groups|python3 tests/diff/shard_groups.py --jobs 1
bytes by link class|python3 tests/diff/links.py --jobs 1
optimizers|python3 tests/diff/optimizers.py
averages|python3 tests/diff/ema.py
Muon|python3 tests/diff/muon.py
Adafactor|python3 tests/diff/adafactor.py
frozen parameters|python3 tests/diff/frozen.py --jobs 1
sequence|python3 tests/diff/sequence.py
context|python3 tests/diff/context.py --jobs 1
experts without capacity|python3 tests/diff/dropless.py
recomputation|python3 tests/diff/recompute.py --jobs 1
streams|python3 tests/diff/streams.py --jobs 1
loss in chunks|python3 tests/diff/chunked_loss.py --jobs 1
resume|python3 tests/diff/resume.py
images|python3 tests/diff/images.py
sources|python3 tests/diff/sources.py
gradients|python3 tests/diff/gradients.py
launches|python3 tests/diff/launches.py
products|python3 tests/diff/products.py
decoding|python3 tests/diff/decode.py
profiles|python3 tests/diff/profile.py
sparse attention|python3 tests/diff/sparse.py --jobs 1
GPU pack|python3 tests/gpu/test_pack.py
style|python3 tests/style/style.py
documents|python3 tests/site/links.py
generated code|python3 tests/verify/generated.py
plan file page|python3 tests/verify/plan_json.py
kernels of plans|python3 tests/verify/kernels.py
GPU page|python3 tests/bench/gpu_roofline.py --check
calibration that is kept|python3 tests/verify/calibrated.py
installed copy|python3 tests/verify/install.py
reference|python3 tests/verify/reference.py
language server|python3 tests/verify/lsp.py
grammar of editors|python3 tests/verify/grammar.py
plan-only build|python3 tests/verify/plan_only.py
library|python3 tests/verify/library.py
Python module|python3 tests/verify/library_python.py
plan files|python3 tests/verify/tamper.py --mutations 12
edited orders|python3 tests/verify/orders.py
examples|python3 tests/diff/examples.py
pytorch|python3 tests/torch/compare.py
weights|python3 tests/weights/weights.py
weights of encoders|python3 tests/weights/encoders.py
adapters|python3 tests/weights/adapters.py
adapters of PEFT|python3 tests/weights/peft_adapters.py
adapters of experts|python3 tests/weights/peft_experts.py
parts of weights|python3 tests/weights/partial.py
weights with windows|python3 tests/weights/windows.py
fields of adapters|python3 tests/weights/peft_keys.py
keys of configurations|python3 tests/interop/config_keys.py
interop|python3 tests/interop/interop.py
recipes of Megatron-Bridge|python3 tests/interop/recipes.py
launches of Megatron-LM|python3 tests/interop/launches.py
launches of DeepSpeed|python3 tests/interop/launches_deepspeed.py
launches of torchtitan|python3 tests/interop/launches_torchtitan.py
runs of launches|python3 tests/interop/launches_runs.py
pairs of sentences|python3 tests/interop/pairs.py
cases of bug reports|python3 tests/cases/cases.py
files of bug reports|python3 tests/cases/files.py
compare|python3 tests/verify/compare.py
purchases|python3 tests/verify/purchase.py
watch|python3 tests/verify/watch.py
files of strangers|python3 tests/verify/strangers.py
proof|python3 tests/verify/proof.py
network|python3 tests/verify/network.py
launchers of Open MPI|python3 tests/fault/launcher.py
topologies|python3 tests/interop/nccl.py
tokens|python3 tests/interop/tokens.py
questions|python3 tests/interop/squad.py
rows|python3 tests/interop/rows.py
messages|tests/golden/run_errors.sh
accuracy|python3 tests/accuracy/goals.py
errors of measured runs|python3 tests/accuracy/families.py
programs|python3 tests/accuracy/programs.py
end
}

# A shell that waits for a command hears no signal before it ends; one that waits for a background process does.
# shellcheck disable=SC2317 # called through part
in_background() { # COMMAND...
  "$@" &
  running=$!
  wait "$running"
}

# Takes parts from the list that nobody has taken: whoever makes a part's folder runs it. A part that reads its standard
# input finds nothing there, and not the rest of the list.
take_parts() {
  trap 'kill "$running" 2>/dev/null; wait; exit 130' TERM
  while IFS='|' read -r name command <&3; do
    mkdir "$logs/taken/$name" 2>/dev/null || continue
    # shellcheck disable=SC2086 # words
    part "$name" in_background $command </dev/null 3<&-
  done 3<"$logs/parts"
}

# What runs alongside the list, one after the other: the build with sanitizers and its tests; then what is left of the list.
run_dev() {
  trap 'kill "$running" 2>/dev/null; wait; exit 130' TERM
  inputs=build/release/zplan
  case $sanitized in codegen | all) inputs=build/dev/zplan ;; esac
  part 'build dev' in_background build dev zplan_third -DZPLAN_TESTS_ONCE=OFF -DZPLAN_UB_MESSAGES=OFF && part 'unit dev' in_background unit dev 2 &&
    ZPLAN=$root/$inputs part 'damaged inputs' in_background python3 tests/fuzz/inputs.py --seconds 4
  take_parts
}

run_side_by_side() {
  rm -rf "$logs/taken" && mkdir "$logs/taken" && list_parts >"$logs/parts" || exit 1
  twice=$(cut -d '|' -f 1 "$logs/parts" | sort | uniq -d)
  [ -z "$twice" ] || { echo "parts of one name, of which one would not run: $twice" >&2 && exit 1; }
  takers=
  for _ in 1 2; do
    take_parts &
    takers="$takers $!"
  done
  if [ $dev = yes ]; then
    run_dev </dev/null &
    takers="$takers $!"
  fi
  # Ctrl-C does not reach what a shell runs in the background.
  # shellcheck disable=SC2086 # words
  trap 'kill $takers 2>/dev/null; wait; exit 130' INT TERM
  wait
  trap - INT TERM
  [ $dev = no ] || printf '%s\n' 'unit dev' 'damaged inputs' >>"$logs/parts"
  cut -d '|' -f 1 "$logs/parts" | while read -r name; do
    counts=$logs/$(echo "$name" | tr ' ' '-').counts
    [ -e "$counts" ] || { echo "$name: was not run" && echo '0 1' >"$counts"; }
  done
}

once=ON # unit tests of layers and of emulated GPUs run with sanitizers alone
[ "$dev" = yes ] || once=OFF
part 'build release' build release all -DZPLAN_TESTS_ONCE=$once -DZPLAN_LEVEL_HERE=ON -DZPLAN_QUICK=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=ON || finish
run_side_by_side
finish
