#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Time, memory and gap of the search for two models of one trillion parameters.
#   tests/bench/search_speed.sh [path of zplan]
# uniform: 1F1B, ZeRO 0 and 1, norms and layers whole. inside: the same with cuts inside layers. full: everything but
# state off the device. offload: everything. misfit: the same on half the memory, and ten times the layers, hosts alone.
# Limits: uniform 0.1 s; full and offload 2 s at 800 and 1,024 GPUs, 5 s at 4,096 and 16,384; 256 MB.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
zplan=${1:-$here/../../build/release/zplan}
examples=$here/../../examples
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

field() { sed -n "s/^ *\"$1\": \([-0-9.e]*\),*\$/\1/p" "$out/plan.json" | tail -n 1; }

measure() { # name, file, GPUs, options
  name=$1 file=$2 gpus=$3
  shift 3
  /usr/bin/time -f '%e %U %M' -o "$out/time" "$zplan" plan "$examples/$file" --gpus "$gpus" --json "$@" >"$out/plan.json" 2>"$out/refusal" ||
    [ $? -eq 3 ] || { cat "$out/refusal" >&2 && exit 1; } # 3: nothing fits
  tail -n 1 "$out/time" >"$out/figures"
  read -r elapsed user kilobytes <"$out/figures"
  printf '%-8s %-20s %6d GPUs  %5s s (%5s s CPU)  %4d MB  %8d candidates  %4d simulated points  gap %s\n' "$name" "$file" \
    "$gpus" "$elapsed" "$user" $((kilobytes / 1024)) "$(field candidates)" "$(field priced)" "$(field gap)"
}

# Every class of state may leave the device, to these tiers.
offload() { # tiers, then as for measure
  tiers=$1
  shift
  measure "$@" --set "offload[optimizer] in [$tiers]" --set "offload[gradients] in [$tiers]" \
    --set "offload[params] in [$tiers]" --set "offload[activations] in [$tiers]"
}

for file in capacity/3d_1t.dz gpt1t.dz; do
  for gpus in 800 1024 4096 16384; do
    free=
    [ "$file" = gpt1t.dz ] || free='--plan free'
    # shellcheck disable=SC2086
    measure uniform "$file" "$gpus" $free --set 'zero<=1' --set 'schedule="1f1b"' --set sequence=false --set 'cut="layer"'
    # shellcheck disable=SC2086
    measure inside "$file" "$gpus" $free --set 'zero<=1' --set 'schedule="1f1b"' --set sequence=false
    # shellcheck disable=SC2086
    measure full "$file" "$gpus" $free
    # shellcheck disable=SC2086
    offload '"none", "cpu", "nvme"' offload "$file" "$gpus" $free
    # shellcheck disable=SC2086
    offload '"none", "cpu"' misfit "$file" "$gpus" $free --set 'memory <= 47%' --set model.layers=1280
  done
done
