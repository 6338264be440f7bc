#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every multi-rank scenario of the runtime: run.sh FOLDER, where mpi_collectives and mpi_trainer lie.
set -u
bin=${1:?usage: run.sh FOLDER}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export OMPI_MCA_orte_tmpdir_base="$tmp" # shared with other mpiruns, a start can fail (driver/mpirun.c)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# Ranks on one machine: the other networks need not be looked for, and short messages are copied faster through shared memory.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_coll=basic,libnbc OMPI_MCA_osc=sm OMPI_MCA_topo=basic OMPI_MCA_io=ompio OMPI_MCA_op=^avx OMPI_MCA_reachable=weighted
export HWLOC_COMPONENTS=-linux:pci,-pci HWLOC_PLUGINS_BLACKLIST=hwloc_pci.so,hwloc_gl.so,hwloc_opencl.so,hwloc_xml_libxml.so # as driver/mpirun.c
failed=0
# shellcheck source=tests/support/turn.sh
. "$(dirname "$0")/../support/turn.sh"

ranks() { # N COMMAND...
  n=$1
  shift
  timeout 300 mpirun -q --oversubscribe --bind-to none --mca mpi_yield_when_idle 0 -n "$n" "$@"
}

fail() {
  echo "FAILED: $*"
  failed=1
}

# With sanitizers a rank takes ten times as long to start: they see each kind of message, step and checkpoint once, the build without them
# the rest. Scenarios take turns (support/turn.sh): a sixth of them a commit.
sanitized=no among=6
case $bin in */dev/*) sanitized=yes ;; esac

# --- sums, gathers, messages, byte counts: TENSOR PIPELINE DATA dtype EXPERT; and that waiting leaves the cores alone
collectives() { # LAYOUT...
  for layout; do
    has_turn $among || continue
    set -- $layout
    ranks $(($1 * $2 * $3)) "$bin/mpi_collectives" "$@" || fail "collectives $layout"
  done
}
collectives '1 3 1 f64' '2 1 2 f64 2'
[ $sanitized = yes ] || collectives '3 1 1 f32' '2 1 1 f64' '1 2 1 f32' '1 1 2 f32 2' '1 1 3 f64 3' '4 1 1 f32' '2 2 1 f32' '1 2 2 f32'
# over nodes of so many ranks: in two levels where groups stand evenly on them, and what leaves a node
TEST_NODE=2 collectives '1 1 4 f32 2'
[ $sanitized = yes ] || TEST_NODE=1 collectives '1 1 3 f32' # one a node
TEST_NODE=3 collectives '1 1 5 f32' # three and two
[ $sanitized = yes ] || TEST_NODE=2 collectives '4 1 1 f64' '1 1 3 f32'
[ $sanitized = yes ] || ! has_turn $among || TEST_WAITING=1 ranks 4 "$bin/mpi_collectives" 1 2 2 f32 || fail 'waiting with 4 ranks'

# --- every layout trains alike: TENSOR DATA ZERO
losses() { # FILE: step and loss, rounded to what rounding of sums may change
  sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1" |
    awk -v digits="$2" '{ printf "%d %.*e %.*e\n", $1, digits, $2, digits, $3 }'
}
for dtype in f64 f32; do
  if [ $dtype = f64 ]; then
    digits=10 layouts='1,1,0 1,2,0 1,2,1 2,1,0 2,2,0 2,2,1 1,4,1 3,1,0 1,2,2 2,4,2 1,4,3 2,2,3'
    [ $sanitized = no ] || layouts='1,1,0 1,4,1 2,2,2'
  elif [ $sanitized = yes ]; then
    continue
  else
    digits=3 layouts='1,1,0 2,2,1 1,4,0'
  fi
  for layout in $layouts; do
    [ $layout = 1,1,0 ] || has_turn $among || continue # the reference
    set -- $(echo $layout | tr , ' ')
    ranks $(($1 * $2)) "$bin/mpi_trainer" "$@" $dtype --check-memory --log "$tmp/log" >"$tmp/out" 2>&1 ||
      { fail "trainer $layout $dtype" && cat "$tmp/out"; }
    losses "$tmp/log" $digits >"$tmp/losses"
    [ $layout = 1,1,0 ] && cp "$tmp/losses" "$tmp/reference"
    [ "$(wc -l <"$tmp/losses")" = 20 ] || fail "trainer $layout $dtype: 20 steps in the log"
    cmp -s "$tmp/losses" "$tmp/reference" || fail "trainer $layout $dtype: other losses than one rank"
  done
done

# --- a run that was interrupted goes on to the bit
steps() { grep -o '^{"step": [0-9]*, "loss": [^,]*, "grad_norm": [^,]*' "$1"; }
resumed='2 2 1,1 3 0,2 2 3'
[ $sanitized = no ] || resumed='2 2 3' # others: tests/diff/resume.py
echo "$resumed" | tr , '\n' >"$tmp/resumed"
while read -r layout <&3; do
  has_turn $among || continue
  set -- $layout
  ranks $(($1 * $2)) "$bin/mpi_trainer" "$@" f32 --log "$tmp/whole" >/dev/null || fail "run of $layout"
  ranks $(($1 * $2)) "$bin/mpi_trainer" "$@" f32 --log "$tmp/parts" --checkpoint "$tmp/c" --steps 9 >/dev/null || fail "first part of $layout"
  ranks $(($1 * $2)) "$bin/mpi_trainer" "$@" f32 --log "$tmp/parts" --checkpoint "$tmp/c" --resume >/dev/null || fail "second part of $layout"
  steps "$tmp/whole" >"$tmp/a"
  steps "$tmp/parts" >"$tmp/b"
  cmp -s "$tmp/a" "$tmp/b" || fail "resumed run of $layout: other losses"
  rm -rf "$tmp/c"
done 3<"$tmp/resumed"

# Signals, f16 and trouble of one rank with sanitizers: tests/unit/test_rt_*.c.
[ $sanitized = no ] || exit $failed

# --- a signal ends all ranks after the step that one has it in, and a rank to which it comes when all is over does not die of it
if has_turn $among; then
  BIGRAM_LATE=2 ranks 4 "$bin/mpi_trainer" 2 2 1 f32 --checkpoint "$tmp/c" >"$tmp/out" 2>&1 ||
    { fail 'a signal that comes late' && cat "$tmp/out"; }
  [ "$(cat "$tmp/c/latest")" = step_000005 ] || fail 'a signal that comes late: no checkpoint of step 5'
  rm -rf "$tmp/c"
fi

# --- f16: gradients that overflow on one rank alone make all ranks skip the step, and half the loss scale does
printf '%s\n' '65536 0' '65536 0' '65536 1' '32768 2' '16384 3' >"$tmp/want"
for step in 6 7 8 9 10 11 12 13; do echo '8192 3'; done >>"$tmp/want"
for step in 14 15 16 17 18 19 20; do echo '16384 3'; done >>"$tmp/want"
for zero in 0 1 2 3; do
  has_turn $among || continue
  BIGRAM_OVERFLOW=3 ranks 4 "$bin/mpi_trainer" 2 2 $zero f16 --check-memory --log "$tmp/log" >"$tmp/out" 2>&1 ||
    { fail "overflow with ZeRO $zero" && cat "$tmp/out"; }
  sed -n 's/.*"scale": \([0-9]*\), "skipped": \([0-9]*\)}/\1 \2/p' "$tmp/log" >"$tmp/scales"
  cmp -s "$tmp/scales" "$tmp/want" || fail "overflow with ZeRO $zero: scales and skipped steps"
done

# --- trouble: one message, the right status, no hang
expect() { # STATUS TEXT COMMAND...
  has_turn $among || return
  status=$1 text=$2
  shift 2
  "$@" >"$tmp/out" 2>"$tmp/err"
  got=$?
  [ $got = "$status" ] || fail "expected status $status, got $got: $*"
  [ "$(grep -c "$text" "$tmp/err")" = 1 ] || { fail "expected one line with \"$text\": $*" && cat "$tmp/err"; }
}
printf 'not a token file' >"$tmp/bad.bin"
printf 'zzzz %0200d' 1 >"$tmp/text"
expect 1 'error\[Z0820\]: this trainer was built for 4 ranks (tensor 2 x pipeline 1 x data 2), started with 3' \
  ranks 3 "$bin/mpi_trainer" 2 2 0 f64
expect 2 'unknown option "--bogus"' ranks 2 "$bin/mpi_trainer" 2 1 0 f64 --bogus
expect 1 'error\[Z0801\]' ranks 2 "$bin/mpi_trainer" 2 1 0 f64 --data "$tmp/missing.bin"
expect 1 'error\[Z0802\]' ranks 2 "$bin/mpi_trainer" 2 1 0 f64 --data "$tmp/bad.bin"
expect 1 'error\[Z0803\]' ranks 4 "$bin/mpi_trainer" 2 2 0 f64 --data "$tmp/text"
expect 1 'error\[Z0841\]' ranks 2 "$bin/mpi_trainer" 2 1 0 f64 --log "$tmp/text/log"
expect 1 'error\[Z0811\]' ranks 2 "$bin/mpi_trainer" 2 1 0 f64 --checkpoint /proc/none
expect 0 'warning: could not write the log' ranks 2 "$bin/mpi_trainer" 2 1 0 f64 --log /dev/full
BIGRAM_NAN=1 expect 5 'error\[Z0830\]' ranks 4 "$bin/mpi_trainer" 2 2 1 f64
# Ranks that have the same trouble speak once, however long the launcher takes to end them.
BIGRAM_STILL=1 expect 1 'error\[Z0803\]' ranks 4 "$bin/mpi_trainer" 2 2 0 f64
# A rank that dies takes the others along; mpirun names it.
BIGRAM_KILL=2 expect 137 'rank 2 .* signal 9' timeout 300 mpirun --oversubscribe --bind-to none -n 4 "$bin/mpi_trainer" 2 2 1 f64

exit $failed
