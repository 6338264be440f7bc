#!/bin/sh
# Trains on the GPUs of this machine: one command for the half hour in which somebody has one.
#
#   tests/gpu/run.sh [RESULTS]        RESULTS: a folder, default gpu-results
#
# Installs what is missing, builds, measures the GPU, trains small models on one GPU and, where there are several, over NCCL,
# and lays losses beside those of CPU trainers and times beside the plan's. What it finds is in RESULTS: summary.txt,
# results.json, and the output of every part. A part that fails does not keep the others from running.
#
# Exit status: 0 all parts good, 1 some were not, 77 there is no GPU (nothing was built or run).
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd) || exit 1
results=${1:-gpu-results}
case $results in
-*)
  sed -n '2,/^here/s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd) || exit 1

if ! nvidia-smi --query-gpu=name --format=csv,noheader >"$results/gpus.txt" 2>&1; then
  echo "no GPU here: nvidia-smi finds none (its words: $(head -1 "$results/gpus.txt"))" | tee "$results/summary.txt" >&2
  exit 77
fi

# shellcheck source=examples/packages.sh
. "$root/examples/packages.sh"
cd "$root" || exit 1
install_packages >"$results/packages.log" 2>&1 || echo "packages are missing: $results/packages.log" >&2
{ cmake --preset release && cmake --build --preset release; } >"$results/build.log" 2>&1 || {
  echo "the build failed: $results/build.log" | tee "$results/summary.txt" >&2
  exit 1
}
exec python3 "$here/parts.py" "$results"
