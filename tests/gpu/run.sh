#!/bin/sh
# Trains on the GPUs of this machine: one command for the ten minutes in which somebody has one.
#
#   tests/gpu/run.sh [RESULTS] [--arch host]      RESULTS: a folder, default gpu-results
#
# Installs what is missing, builds, measures the GPU, trains small models on it in all that is built (formats, sparse attention, state on
# host and disk, ZeRO, layouts, experts, 1-bit Adam), over NCCL where there are several GPUs, else with ranks that share one, and lays losses
# beside those of CPU trainers and times beside the plan's. What it finds is in RESULTS: summary.txt, results.json, gpu.md (for docs/), and the
# output of every part. A part that fails does not keep the others from running; parts that would end later than eight minutes after
# the start are skipped. --arch host tries the same parts on an emulated GPU, smaller and without a time limit.
#
# Exit status: 0 nothing failed, 1 something did, 77 there is no GPU (nothing was built or run).
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd) || exit 1
began=$(date +%s)
seconds=480
usage() {
  sed -n '2,/^here/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
results=gpu-results
arch=
while [ $# -gt 0 ]; do
  case $1 in
  --arch)
    [ "${2-}" = host ] || usage
    arch=host
    shift
    ;;
  -*) usage ;;
  *) results=$1 ;;
  esac
  shift
done
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd) || exit 1

if [ -z "$arch" ] && ! nvidia-smi --query-gpu=name --format=csv,noheader >"$results/gpus.txt" 2>&1; then
  echo "no GPU here: nvidia-smi finds none (its words: $(head -1 "$results/gpus.txt"))" | tee "$results/summary.txt" >&2
  exit 77
fi

# shellcheck source=examples/packages.sh
. "$root/examples/packages.sh"
cd "$root" || exit 1
install_packages >"$results/packages.log" 2>&1 || echo "packages are missing: $results/packages.log" >&2
{ cmake --preset release && cmake --build --preset release --target all; } >"$results/build.log" 2>&1 || {
  echo "the build failed: $results/build.log" | tee "$results/summary.txt" >&2
  exit 1
}
[ -n "$arch" ] && exec python3 "$here/parts.py" "$results" --arch "$arch" --seconds 3600
exec python3 "$here/parts.py" "$results" --seconds $((seconds - $(date +%s) + began))
