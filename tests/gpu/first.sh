#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the GPU trainers of this folder on the GPU of this machine in under 8 minutes, and writes first.txt alongside itself: the
# machine, every check with its figure and limit, and at last `N passed, M failed`.
#
#   ./first.sh [PART]...      kernels, trainings, resume, trouble, sanitizer; all unless some are named
#
# Kernels against naive f64 computations and the interpreter of row programs; losses and gradient norms of trainings against those
# of CPU ranks; memory against the plan; resuming, to the bit; compute-sanitizer's memcheck, racecheck, synccheck and initcheck
# where it is; what a trainer says on a GPU that it was not built for. What would begin in the last 20 s is skipped. Needs sh, sed, awk and gzip.
#
# Exit status: 0 nothing failed, 1 something did, 77 there is no GPU that can be used.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/settings.sh"
. "$here/common.sh"
seconds=470 # after which everything is ended
for part; do
  case $part in
  kernels | trainings | resume | trouble | sanitizer) ;;
  *)
    sed -n '3,/^here/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
  esac
done
[ $# -gt 0 ] || set -- kernels trainings resume trouble sanitizer

has_time() { # NAME: says it when not
  [ $(($(date +%s) - began + 20)) -lt $seconds ] && return 0
  skip "$1: no time left"
  return 1
}

# ---- kernels ----

check_kernels() {
  mkdir "$work/images"
  if ! { cp "$here/images/$arch"/*.gz "$work/images" && gzip -d "$work/images"/*.gz; }; then
    fail "kernels: their images cannot be unpacked"
    return
  fi
  # shellcheck disable=SC2046 # words
  limited "$(until_end 200)" "$here/check_kernels" --images "$work/images" ${emulated:+--emulated "$emulated"} $(cat "$here/kernels.txt") >"$work/kernels" 2>&1
  status=$?
  while IFS= read -r line; do
    case $line in
    passed*) pass "kernels:${line#passed}" ;;
    FAILED*) fail "kernels:${line#FAILED}" ;;
    skipped*) skip "kernels:${line#skipped}" ;;
    *' skipped' | *' failed') ;;
    *) say "         $line" ;;
    esac
  done <"$work/kernels"
  grep -q '^[0-9]* passed, [0-9]* failed$' "$work/kernels" || fail "kernels: ended with status $status before all were checked"
}

# ---- trainings ----

steps_of() { # LOG: step, loss, norm a line
  sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1"
}

# Prints "passed" or "FAILED" and the figures. A norm that is null on both sides is that of a skipped step.
compare() { # REFERENCE STEPS LOSS_BOUND NORM_BOUND
  awk -v most_loss="$3" -v most_norm="$4" '
    function is_number(x) { return x ~ /^-?[0-9][0-9.]*([eE][-+]?[0-9]+)?$/ }
    function error(x, y, d) {
      if (!is_number(x) || !is_number(y)) return 1e300
      d = x > y ? x - y : y - x
      return y == 0 ? d : d / (y < 0 ? -y : y)
    }
    BEGIN { worst_loss = worst_norm = steps = odd = 0 }
    NR == FNR { loss[$1] = $2; norm[$1] = $3; n++; next }
    ($1 in loss) && !seen[$1]++ {
      steps++
      e = error($2, loss[$1]); if (e > worst_loss) worst_loss = e
      if (($3 == "null") != (norm[$1] == "null")) odd++
      else if ($3 != "null") { e = error($3, norm[$1]); if (e > worst_norm) worst_norm = e }
    }
    END {
      good = n > 0 && steps == n && odd == 0 && worst_loss <= most_loss + 0 && worst_norm <= most_norm + 0
      printf "%s %d of %d steps, largest error of losses %.1e (limit %g), of norms %.1e (limit %g)", good ? "passed" : "FAILED", steps, n,
        worst_loss, most_loss, worst_norm, most_norm
      if (odd) printf ", %d steps skipped by one alone", odd
      printf "\n"
    }' "$1" "$2"
}

check_trainings() {
  while IFS='|' read -r name title steps most_loss most_norm data ranks <&3; do
    has_time "$title" || continue
    if [ "$ranks" -gt 1 ] && ! command -v mpirun >/dev/null 2>&1; then
      skip "$title: $ranks ranks, and there is no mpirun"
      continue
    fi
    rm -f "$work/log"
    train "$name" "$ranks" "$data" "$(until_end 150)" --check-memory --log "$work/log" --steps "$steps"
    status=$?
    if [ $status -ne 0 ]; then
      fail "$title: $(reason $status)"
      continue
    fi
    steps_of "$work/log" >"$work/steps"
    figures=$(compare "$here/references/$name.txt" "$work/steps" "$most_loss" "$most_norm")
    case $figures in
    passed*) pass "$title: ${figures#* }, memory and traffic as planned" ;;
    *) fail "$title: ${figures#* }" ;;
    esac
  done 3<"$here/cases.txt"
}

# ---- resuming ----

resume() { # NAME TITLE STEPS DATA
  has_time "resume, $2" || return
  half=$(($3 / 2))
  rm -rf "$work/whole" "$work/parts" "$work/checkpoints"
  train "$1" 1 "$4" "$(until_end 100)" --steps "$3" --log "$work/whole" &&
    train "$1" 1 "$4" "$(until_end 100)" --steps "$half" --log "$work/parts" --checkpoint "$work/checkpoints" &&
    train "$1" 1 "$4" "$(until_end 100)" --steps "$3" --log "$work/parts" --checkpoint "$work/checkpoints" --resume
  status=$?
  if [ $status -ne 0 ]; then
    fail "resume, $2: $(reason $status)"
    return
  fi
  steps_of "$work/whole" >"$work/a"
  steps_of "$work/parts" >"$work/b"
  differ=$(awk 'NR == FNR { line[FNR] = $0; n = FNR; next } line[FNR] == $0 { same++ } END { print n - same }' "$work/a" "$work/b")
  if cmp -s "$work/a" "$work/b"; then
    pass "resume, $2: all $3 steps have the bits of one run (0 differ, limit 0)"
  else
    fail "resume, $2: $differ of $3 steps differ from those of one run (limit 0)"
  fi
}

check_resume() {
  awk -F '|' '$7 == 1 && ($2 == "f32" || $2 == "bf16" || $2 ~ /^optimizer and gradients/) { print $1 "|" $2 "|" $3 "|" $6 }' \
    "$here/cases.txt" >"$work/for_resume"
  while IFS='|' read -r name title steps data <&4; do
    resume "$name" "$title" "$steps" "$data"
  done 4<"$work/for_resume"
}

# ---- compute-sanitizer ----

find_sanitizer() {
  for place in "$(command -v compute-sanitizer 2>/dev/null)" "${CUDA_HOME:-/nowhere}/bin/compute-sanitizer" /usr/local/cuda/bin/compute-sanitizer; do
    [ -n "$place" ] && [ -x "$place" ] && echo "$place" && return
  done
}

sanitize() { # TOOL TITLE COMMAND...
  tool=$1 title="compute-sanitizer $1, $2"
  shift 2
  has_time "$title" || return
  limited "$(until_end 100)" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 99 "$@" >"$work/out" 2>&1
  status=$?
  errors=$(sed -n 's/^========= *ERROR SUMMARY: *\([0-9]*\) error.*/\1/p; s/^========= *RACECHECK SUMMARY: *\([0-9]*\) hazard.*/\1/p' "$work/out" |
    awk '{ n += $1 } END { print n + 0 }')
  alongside=
  if [ "$tool" = racecheck ] && [ $status -eq 99 ]; then
    # Hazards in kernels of cuBLAS are not ours to judge: said, not counted.
    sed -n 's/^========= *Error: Race reported between .* access at \([A-Za-z_0-9]*\).*/\1/p' "$work/out" >"$work/racing"
    library=$(grep -c -v '^zpd_\|^row_' "$work/racing")
    if [ "$library" -gt 0 ] && [ "$library" -eq "$errors" ]; then
      alongside="; $errors hazards reported in kernels of cuBLAS: $(sort "$work/racing" | uniq -c | sort -rn | awk 'NR <= 2 { printf "%s%s", (NR > 1 ? ", " : ""), $2 }')"
      errors=0 status=0
    fi
  fi
  if [ $status -eq 0 ] && [ "$errors" -eq 0 ]; then
    pass "$title: 0 errors (limit 0)$alongside"
  elif [ $status -eq 124 ]; then
    skip "$title: took too long"
  else
    fail "$title: exit status $status, $errors errors (limit 0)"
    grep '^=========' "$work/out" | head -12 >"$work/head"
    say_file "$work/head"
  fi
}

check_sanitizer() {
  sanitizer=$(find_sanitizer)
  if [ -z "$sanitizer" ]; then
    skip "compute-sanitizer: it is not on this machine (part of the CUDA toolkit)"
    return
  fi
  for tool in memcheck racecheck synccheck initcheck; do
    while IFS='|' read -r name title _ _ _ data ranks <&3; do
      case $title in
      f32 | bf16 | 'block-sparse attention bf16' | 'experts f64') ;;
      *) continue ;;
      esac
      [ "$ranks" -eq 1 ] || continue
      unpack "$name"
      set -- "$program" --steps 1 --no-progress
      [ "$data" = - ] || set -- "$@" --data "$here/data/$data"
      sanitize "$tool" "$title" "$@"
    done 3<"$here/cases.txt"
  done
}

# ---- trouble ----

expect_trouble() { # TITLE STATUS TEXT COMMAND...
  title=$1 want=$2 text=$3
  shift 3
  limited 60 "$@" >"$work/out" 2>&1
  status=$?
  lines=$(grep -c '^error' "$work/out")
  if [ $status -eq "$want" ] && [ "$lines" -eq 1 ] && grep -q "$text" "$work/out"; then
    pass "$title: status $want and one message: $(grep '^error' "$work/out")"
  else
    fail "$title: exit status $status (limit: $want), $lines messages (limit: 1), \"$text\" expected: $(tail -1 "$work/out")"
  fi
}

check_trouble() {
  IFS='|' read -r name _ <"$here/cases.txt"
  unpack "$name"
  if [ -n "$emulated" ]; then
    expect_trouble "a GPU of another kind" 5 'built for another kind of GPU' env ZPLAN_EMULATED_TROUBLE=arch=1 "$program" --steps 1
    expect_trouble "a GPU that is full" 8 'error.Z0822' env ZPLAN_EMULATED_TROUBLE=memory=100000 "$program" --steps 1
    return
  fi
  for other in $archs; do
    [ "$other" = "$arch" ] && continue
    unpack "$name" "$other"
    expect_trouble "a trainer of $other" 5 'built for another kind of GPU' "$program" --steps 1 --data "$here/data/text.bin"
    return
  done
}

# ---- all ----

begin_report "$here/first.txt" 'first contact of GPU trainers'
describe_machine
for part; do
  check_"$part"
done
finish
