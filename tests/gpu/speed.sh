#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the trainers of this folder on the GPU of this machine, in mixed_bf16, and writes speed.txt alongside itself: the machine, and
# for every model the median step with its spread, tokens a second, MFU by both counts, where the time goes (--profile), and what
# PyTorch takes for the same model in the same run.
#
#   ./speed.sh [MODEL]...      models of speeds.txt; all unless some are named
#
# MFU: FLOP of the products of weights and of attention over the step and the tensor peak of the data sheet. `full` counts the whole
# square of scores, as most reports do, `computed` the pairs alone that causal or block-sparse attention has (of block-sparse
# models only these say something). Needs sh, sed and awk; without python3 that has PyTorch with CUDA those lines are skipped. It
# takes about ten minutes.
#
# Exit status: 0 everything ran, 1 something did not, 77 there is no GPU that can be used.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
case ${1-} in
-*)
  sed -n '3,/^here/s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
. "$here/settings.sh"
. "$here/common.sh"
models=$*
rounds=3 steps=20 first=6 profile_first=7 profile_steps=20 # the steps before `first` are not counted
[ -z "$emulated" ] || { rounds=2 steps=3 first=2 profile_first=2 profile_steps=4; }

# Dense bf16 with f32 sums, TFLOP/s, as frontend/library/hw.dz has it, with its sources; 0: unknown.
peak_of() { # NAME
  case $1 in
  *'H100 PCIe'*) echo 756 ;;
  *H100* | *H200*) echo 989 ;;
  *B200*) echo 2250 ;;
  *A100* | *A800*) echo 312 ;;
  *4090*) echo 165.2 ;;
  *3090*) echo 71 ;;
  *) echo 0 ;;
  esac
}

median() { # numbers, one a line
  sort -n | awk '{ x[NR] = $1 } END { if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'
}

step_times() { # LOG: those that count
  awk -v first=$first '/^\{"step"/ {
      match($0, /"step": [0-9]+/); n = substr($0, RSTART + 8, RLENGTH - 8) + 0
      if (n >= first && match($0, /"step_ms": [0-9.eE+-]+/)) print substr($0, RSTART + 11, RLENGTH - 11)
    }' "$1"
}

# Sums of a profile's rows by kind, then the longest rows.
show_profile() { # LOG
  grep '"event": "profile"' "$1" | tr '{' '\n' |
    sed -n 's/^"procedure": "\(.*\)", "name": "\(.*\)", "place": .*"kind": "\([a-z]*\)", "calls": \([^,]*\), "predicted_ms": \([^,]*\), "measured_ms": \([^}]*\)}.*/\3|\1 \2|\4|\5|\6/p' \
      >"$work/rows"
  say '          kind            planned ms  measured ms'
  awk -F '|' '{ plan[$1] += $4; ms[$1] += $5 } END { for (k in ms) printf "          %-14s %11.3f %12.3f\n", k, plan[k], ms[k] }' "$work/rows" |
    sort -k 3 -rn >"$work/kinds"
  tee -a "$report" <"$work/kinds"
  say '          longest steps                                             calls   planned ms  measured ms'
  awk -F '|' '{ printf "%.6f|%s|%d|%.6f\n", $5, substr($2, 1, 56), $3, $4 }' "$work/rows" | sort -t '|' -k 1 -rn | head -12 |
    awk -F '|' '{ printf "          %-56s %6d %12.3f %12.3f\n", $2, $3, $4, $1 }' >"$work/longest"
  tee -a "$report" <"$work/longest"
  attention=$(awk -F '|' '$1 == "attention" { ms += $5 } END { print ms + 0 }' "$work/rows")
}

run_torch() { # NAME V S d LAYERS HEADS BATCH MS
  [ -n "$torch" ] || return
  limited 300 python3 "$here/torch_speed.py" "$2" "$3" "$4" "$5" "$6" "$7" $steps $first >"$work/torch" 2>&1
  status=$?
  theirs=$(sed -n 's/^median_ms //p' "$work/torch")
  if [ $status -eq 0 ] && [ -n "$theirs" ]; then
    say "          $1 by PyTorch (torch.compile, SDPA): $(awk -v t="$theirs" -v ours="$8" 'BEGIN { printf "%.2f ms; ours takes %.2f of it", t, ours / t }')"
  else
    skip "$1 by PyTorch: exit status $status: $(tail -1 "$work/torch")"
  fi
}

measure() { # NAME TOKENS FLOP_FULL FLOP_COMPUTED V S d LAYERS HEADS WINDOW PERCENT
  : >"$work/times"
  : >"$work/medians"
  for _ in $(awk -v n=$rounds 'BEGIN { while (n--) print n }'); do
    rm -f "$work/log"
    train "$1" 1 text.bin 300 --steps $steps --log "$work/log"
    status=$?
    if [ $status -eq 8 ]; then
      skip "$1: $(reason $status)"
      return
    elif [ $status -ne 0 ]; then
      fail "$1: $(reason $status)"
      return
    fi
    step_times "$work/log" >"$work/round"
    cat "$work/round" >>"$work/times"
    median <"$work/round" >>"$work/medians"
  done
  ms=$(median <"$work/times")
  planned=$(sed -n 's/.*"event": "end".*"predicted_step_ms": \([0-9.eE+-]*\).*/\1/p' "$work/log")
  pass "$1: $(sort -n "$work/medians" | awk -v ms="$ms" -v tokens="$2" -v full="$3" -v computed="$4" -v peak="$peak" -v planned="$planned" '
    NR == 1 { low = $1 } { high = $1 }
    END {
      printf "%.3f ms a step (medians of rounds %.3f to %.3f; planned %s), %.0f tokens/s, ", ms, low, high, planned == "" ? "?" : sprintf("%.3f", planned), tokens / ms * 1e3
      if (peak > 0) printf "MFU %.1f %% full, %.1f %% computed (of %s TFLOP/s)", full / ms / peak / 1e7, computed / ms / peak / 1e7, peak
      else printf "%.3f TFLOP/s full, %.3f computed (peak of this GPU unknown)", full / ms / 1e9, computed / ms / 1e9
    }')"
  rm -f "$work/log"
  if train "$1" 1 text.bin 300 --steps $profile_steps --profile --profile-steps $profile_first..$profile_steps --log "$work/log"; then
    show_profile "$work/log"
  else
    fail "$1 --profile: $(reason $?)"
    attention=0
  fi
  echo "$1|$ms|$attention|${10}|${11}" >>"$work/measured"
  [ "${10}" -ne 0 ] || run_torch "$1" "$5" "$6" "$7" "$8" "$9" $(($2 / $6)) "$ms"
}

is_asked() { # NAME
  [ -z "$models" ] && return 0
  for one in $models; do
    [ "$one" = "$1" ] && return 0
  done
  return 1
}

# Windowed models alongside the dense one before them.
compare_windows() {
  awk -F '|' '$4 == 0 { dense = $1; step = $2; attention = $3 }
    $4 > 0 && dense != "" && $2 > 0 { printf "          %s (%s %% of the pairs): step %.2f times as fast as %s", $1, $5, step / $2, dense
      if ($3 > 0 && attention > 0) printf ", attention %.2f times", attention / $3
      printf "\n" }' "$work/measured" >"$work/windows"
  tee -a "$report" <"$work/windows"
}

begin_report "$here/speed.txt" 'speed of GPU trainers'
describe_machine
peak=$(peak_of "$gpu_name")
torch=$(python3 -c 'import torch; print(torch.__version__ if torch.cuda.is_available() else "")' 2>/dev/null)
if [ -n "$torch" ]; then
  say "PyTorch       $torch"
else
  skip 'PyTorch: there is no python3 that has it, with CUDA'
fi
: >"$work/measured"
while IFS='|' read -r name tokens full computed v s d layers heads window percent <&3; do
  is_asked "$name" || continue
  measure "$name" "$tokens" "$full" "$computed" "$v" "$s" "$d" "$layers" "$heads" "$window" "$percent"
done 3<"$here/speeds.txt"
compare_windows
finish
