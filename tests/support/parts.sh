# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Parts of a run of tests: each a command whose output is kept, and one line of it. Sourced by run.sh and long.sh, which set
# $root and, relative to it, $logs.
: "${root:?}" "${logs:?}"

# What a part says about itself: its last line `N passed, N failed`, or CTest's summary.
counts_of() { # LOG
  sed -n -e 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1 \2/p' \
    -e 's/^.*% tests passed, \([0-9][0-9]*\) tests\{0,1\} failed out of \([0-9][0-9]*\)$/total \2 \1/p' "$1" | tail -1 |
    awk '$1 == "total" { print $2 - $3, $3; next } { print }'
}

# Sets `cpu` to the seconds of processor time that children of this shell have had: the second line of `times`. No part of it stands in
# a pipe or in $(...): there it would be another shell's.
read_cpu() { # FILE
  times >"$1"
  cpu=$(sed -n '2s/[ms]/ /gp' "$1" | awk '{ printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4 }')
}

part() { # NAME COMMAND...: runs it, keeps its counts, prints one line
  name=$1
  shift
  log=$logs/$(echo "$name" | tr ' ' '-').log
  began=$(date +%s)
  read_cpu "$log"
  cpu_began=$cpu
  "$@" >"$log" 2>&1
  status=$?
  seconds=$(($(date +%s) - began))
  read_cpu "${log%.log}.times"
  counts=$(counts_of "$log")
  good=${counts% *}
  bad=${counts#* }
  # A part that died before it could count, or that counts no failure but failed, has failed once.
  [ -n "$counts" ] || { good=0 && bad=0; }
  [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
  [ "$good" -gt 0 ] || [ "$bad" -gt 0 ] || bad=1
  echo "$good $bad" >"${log%.log}.counts"
  line=$(printf '%-24s %5d passed %4d failed  %4d s  %4d s CPU' "$name" "$good" "$bad" "$seconds" $((cpu - cpu_began)))
  if [ "$bad" -eq 0 ]; then
    echo "$line"
    return 0
  fi
  # In one piece: another part may be printing.
  shown=$(grep -E 'FAIL|[Ee]rror|\*\*\*' "$log" | head -20 | sed 's/^/    /')
  printf '%s\n%s    all of it: %s\n' "$line" "${shown:+$shown
}" "$root/$log"
  return 1
}

finish() {
  counts=$(cat "$logs"/*.counts | awk '{ good += $1; bad += $2 } END { print good + 0, bad + 0 }')
  [ "${counts#* }" -eq 0 ] || echo "logs: $root/$logs"
  echo "${counts% *} passed, ${counts#* } failed"
  [ "${counts#* }" -eq 0 ]
  exit
}
