#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian or Ubuntu machine to a trained model, without a GPU:
#
#   examples/quickstart.sh [TEXT_FILE]
#
# 1. installs the packages that are missing and builds zplan;
# 2. plans a model of one trillion parameters for 800 GPUs;
# 3. trains a small GPT on real text with 4 CPU ranks, once as tensor 2 x pipeline 2 and once as tensor 2 x data 2, from C
#    that zplan generates, and shows the plan's memory and time alongside the measured ones;
# 4. writes an HTML report.
#
# TEXT_FILE: any text; without it the licence texts that come with Debian, or else the documents of this repository.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(dirname "$here")
out=out/quickstart # below the repository
zplan=build/release/zplan
steps=120

stop() {
  echo "quickstart.sh: $*" >&2
  exit 1
}

title() { printf '\n== %s\n' "$*"; }

# shellcheck source=examples/packages.sh
. "$here/packages.sh"

build() {
  title 'Packages and build'
  install_packages || stop 'packages are missing'
  mkdir -p "$out" || stop "cannot create $out"
  cmake --preset release >"$out/build.log" 2>&1 &&
    cmake --build --preset release --target zplan zplanrt_self zplanrt_mpi zplanrt zplanrt_cuda zplan_emulated_gpu zplan_loopback zplan-calibrate zplan-calibrate-mpi >>"$out/build.log" 2>&1 && return
  tail -20 "$out/build.log" >&2
  stop "the build failed; all of its output is in $root/$out/build.log"
}

# One file of real text.
choose_text() {
  text=$out/text.txt
  if [ -n "$1" ]; then
    [ -r "$1" ] || stop "cannot read $1"
    cp "$1" "$text" || stop "cannot copy $1"
    echo "text: $1"
  elif find /usr/share/common-licenses -type f -exec cat {} + >"$text" 2>/dev/null && [ -s "$text" ]; then
    echo 'text: the licence texts in /usr/share/common-licenses'
  else
    find . -name '*.md' -not -path './build/*' -exec cat {} + >"$text" || stop 'found no text'
    echo 'text: the documents of this repository'
  fi
}

plan_trillion() {
  title 'A trillion parameters on 800 GPUs: zplan examples/gpt1t.dz --gpus 800'
  "$zplan" examples/gpt1t.dz --gpus 800 -o "$out/gpt1t.zplan.json" || stop 'planning failed'
  title 'The same plan, proven again from its file: zplan verify'
  "$zplan" verify "$out/gpt1t.zplan.json" || stop 'the plan does not verify'
}

# NAME SETTING...: trains examples/gpt_tiny.dz on 4 ranks. The log goes to $out/NAME.jsonl.
train() {
  name=$1
  shift
  settings=
  for setting; do settings="$settings --set $setting"; done
  title "Training a small GPT with 4 ranks: $*"
  # shellcheck disable=SC2086 # settings hold no spaces
  "$zplan" run examples/gpt_tiny.dz --ranks 4 $settings --set "train.data=text(\"$out/text.txt\", order = \"shuffled\")" \
    --set "train.validate.data=text(\"$out/text.txt\")" --set "steps=$steps" --set log.every=10 \
    -o "$out/$name" --log "$out/$name.jsonl" --check-memory --overwrite -- --checkpoint "$out/$name/checkpoints" || stop "training failed"
}

# First and last loss of a log.
losses() {
  sed -n 's/^{"step": [0-9]*, "loss": \([0-9.e+-]*\),.*/\1/p' "$1" | sed -n '1p;$p' | tr '\n' ' ' |
    awk '{ printf "loss %.3f at the first step, %.3f at the last\n", $1, $2; exit !($2 < $1) }'
}

cd "$root" || exit 1
build
plan_trillion
title 'Text to train on'
choose_text "${1:-}"
train tensor2_pipeline2 tensor=2 pipeline=2
train tensor2_data2 tensor=2 plan.data=2
title 'Report'
"$zplan" report "$out/tensor2_pipeline2/plan.json" --log "$out/tensor2_pipeline2.jsonl" --html "$out/report.html" ||
  stop 'writing the report failed'

title 'Done'
status=0
for name in tensor2_pipeline2 tensor2_data2; do
  printf '%-18s ' "$name"
  losses "$out/$name.jsonl" || status=1
done
cat <<END
report         $root/$out/report.html
trainer (C)    $root/$out/tensor2_pipeline2/trainer.c
checkpoints    $root/$out/tensor2_pipeline2/checkpoints (safetensors)
logs           $root/$out/*.jsonl (one JSON object a step)
try next       $zplan --help
END
[ $status -eq 0 ] || stop 'the loss did not fall'
