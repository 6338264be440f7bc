#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The runtime of GPUs on several ranks that share an emulated GPU: run_cuda.sh FOLDER, where the programs lie. Messages are
# staged, or go over an emulated NCCL.
set -u
bin=${1:?usage: run_cuda.sh FOLDER}
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

# With sanitizers a rank takes ten times as long to start: they see each kind of message and step once, the build without them the rest.
# Scenarios take turns (support/turn.sh): a sixth of them a commit.
# Four steps: two of the warm-up, and two whose losses depend on all that updates have changed. A checkpoint is of half of them. The order
# of messages is the layout's, whatever the dtype: f32 is trained on one rank and on four with ZeRO 3.
sanitized=no among=6
case $bin in */dev/*) sanitized=yes ;; esac
dtypes='f64 f32' staged='2 1 1 f64,1 2 1 f32,1 1 3 f64,2 2 1 f32,1 2 2 f64,1 1 4 f64 2' steps=4
trained='1 1 0,2 2 1,1 2 0,3 1 0,1 2 2,2 2 3'
[ $sanitized = no ] || { dtypes=f64 staged='1 2 2 f64' trained='2 2 3'; }

# --- sums to the bit, gathers, messages, byte counts: TENSOR PIPELINE DATA dtype [EXPERT]
echo "$staged" | tr , '\n' >"$tmp/staged"
while read -r layout <&3; do
  has_turn $among || continue
  set -- $layout
  ranks $(($1 * $2 * $3)) "$bin/mpi_collectives_cuda" "$@" || fail "collectives $layout"
done 3<"$tmp/staged"
nccl='2 2 1 f32,1 1 4 f64 2' nodes='2 3' rounded='1 2 3'
[ $sanitized = no ] || { nccl='2 2 1 f32' nodes=2 rounded=3; }
echo "$nccl" | tr , '\n' >"$tmp/nccl"
while read -r layout <&3; do
  has_turn $among || continue
  set -- $layout
  TEST_COMM=nccl ranks $(($1 * $2 * $3)) "$bin/mpi_collectives_cuda" "$@" || fail "collectives $layout over NCCL"
done 3<"$tmp/nccl"
for node in $nodes; do # ranks of a node: even ones in two levels, uneven ones directly
  has_turn $among || continue
  TEST_NODE=$node TEST_COMM=nccl ranks 4 "$bin/mpi_collectives_cuda" 1 1 4 f64 2 || fail "collectives over nodes of $node"
done
for node in $rounded; do # gradients that are rounded to leave a node
  has_turn $among || continue
  TEST_NODE=$node TEST_COMM=nccl ranks 4 "$bin/mpi_collectives_cuda" 1 1 4 f32 || fail "rounded sums over nodes of $node"
done

# --- the same losses as on a CPU: TENSOR DATA ZERO; the arena's peak and the bytes sent are those of the plan
losses() { # FILE DIGITS: step, loss and norm, rounded to what the order of sums may change
  sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\), "grad_norm": \([^,]*\),.*/\1 \2 \3/p' "$1" |
    awk -v digits="$2" '{ printf "%d %.*e %.*e\n", $1, digits, $2, digits, $3 }'
}
for dtype in $dtypes; do
  digits=10
  [ $dtype = f64 ] || { digits=3 trained='1 1 0,2 2 3'; }
  echo "$trained" | tr , '\n' >"$tmp/trained"
  "$bin/mpi_trainer" 1 1 0 $dtype --steps $steps --log "$tmp/log" >/dev/null || fail "CPU trainer $dtype"
  losses "$tmp/log" $digits >"$tmp/reference"
  while read -r layout <&3; do
    has_turn $among || continue
    set -- $layout
    ranks $(($1 * $2)) "$bin/mpi_trainer_cuda" "$@" $dtype --steps $steps --check-memory --log "$tmp/log" >"$tmp/out" 2>&1 ||
      { fail "trainer $layout $dtype" && cat "$tmp/out"; }
    losses "$tmp/log" $digits >"$tmp/losses"
    [ "$(wc -l <"$tmp/losses")" = $steps ] || fail "trainer $layout $dtype: $steps steps in the log"
    cmp -s "$tmp/losses" "$tmp/reference" || fail "trainer $layout $dtype: other losses than on a CPU"
    [ "$layout" = '1 1 0' ] || grep -q 'emulated GPU (slow, for checks), messages staged in host memory' "$tmp/out" ||
      fail "trainer $layout $dtype: the first line says where it runs"
  done 3<"$tmp/trained"
done

# Checkpoints of several ranks are with sanitizers those of run.sh, and trouble that of tests/unit/test_rt_cuda*.c.
[ $sanitized = no ] || exit $failed

# --- checkpoints: a run of a GPU goes on to the bit, and one of a CPU goes on here
steps_of() { grep -o '^{"step": [0-9]*, "loss": [^,]*, "grad_norm": [^,]*' "$1"; }
run() { ranks 4 "$bin/$1" 2 2 1 f64 --checkpoint "$tmp/$2" --log "$tmp/$3" --steps "$4" --resume >"$tmp/out" 2>&1 || fail "$*"; }
checkpoints() {
  run mpi_trainer_cuda all whole $steps
  run mpi_trainer_cuda gpu parts $((steps / 2))
  run mpi_trainer_cuda gpu parts $steps
  steps_of "$tmp/whole" >"$tmp/a"
  steps_of "$tmp/parts" >"$tmp/b"
  [ "$(wc -l <"$tmp/a")" = $steps ] || fail "the whole run of 2 2 1 f64 has not $steps steps"
  cmp -s "$tmp/a" "$tmp/b" || fail 'resumed run: other losses'
  run mpi_trainer cpu mixed $((steps / 2))
  run mpi_trainer_cuda cpu mixed $steps
  losses "$tmp/whole" 10 >"$tmp/a"
  losses "$tmp/mixed" 10 >"$tmp/b"
  cmp -s "$tmp/a" "$tmp/b" || fail 'run that a CPU began: other losses'
}
! has_turn $among || checkpoints

# --- trouble: one message, the right status
expect() { # STATUS TEXT COMMAND...: fails where it has no turn
  has_turn $among || return 1
  status=$1 text=$2
  shift 2
  "$@" >"$tmp/out" 2>"$tmp/err"
  got=$?
  [ $got = "$status" ] || fail "expected status $status, got $got: $*"
  [ "$(grep -c "$text" "$tmp/err")" = 1 ] || { fail "expected one line with \"$text\": $*" && cat "$tmp/err"; }
}
expect 1 'error\[Z0853\]' "$bin/mpi_trainer" 1 1 0 f64 --comm staged
expect 2 'nccl or staged, not "mpi"' "$bin/mpi_trainer_cuda" 1 1 0 f64 --comm mpi
! has_turn $among || ranks 2 "$bin/mpi_trainer_cuda" 2 1 0 f64 --comm staged --steps 1 >/dev/null || fail '--comm staged'
if has_turn $among; then
  ranks 2 "$bin/mpi_trainer_cuda" 1 2 2 f64 --comm nccl --steps 2 --check-memory >"$tmp/out" || fail '--comm nccl'
  grep -q 'messages by NCCL' "$tmp/out" || fail 'the first line says that messages go by NCCL'
fi

# --- ranks that NCCL loses: rank 1 waits for ever for its 20th message, and says so; where it does not, `ranks` ends it with 124
two() { # VARIABLE=VALUE OF RANK 1 WORDS...
  variable=$1
  shift
  ranks 1 "$bin/mpi_trainer_cuda" "$@" : -n 1 env "$variable" "$bin/mpi_trainer_cuda" "$@"
}
expect 5 'error\[Z0852\]: a rank of the data group cannot be reached any more' \
  two ZPLAN_EMULATED_NCCL_LOSES=20 1 2 2 f64 --comm nccl --steps 2000 &&
  [ "$(grep -c 'error\[' "$tmp/err")" != 1 ] && fail 'a lost rank: more than one message'

# A rank that is killed takes the other with it.
kill_one() {
  rm -f "$tmp/log"
  ranks 2 "$bin/mpi_trainer_cuda" 1 2 2 f64 --comm nccl --steps 100000 --log "$tmp/log" >"$tmp/out" 2>"$tmp/err" &
  launcher=$!
  until grep -q '"step": 3,' "$tmp/log" 2>/dev/null || ! kill -0 $launcher 2>/dev/null; do sleep 0.1; done
  rank=$(pgrep -f "^$bin/mpi_trainer_cuda 1 2 2 f64 .*$tmp/log" | tail -1)
  if [ -z "$rank" ]; then
    fail 'a run that lasts: no ranks'
    kill $launcher
    return
  fi
  kill -9 "$rank"
  wait $launcher
  status=$?
  [ $status = 137 ] || fail "a killed rank: status $status"
}
! has_turn $among || kill_one

# NCCL of another version on one rank: refused, by both versions
expect 1 'error\[Z0853\]: rank 1 has NCCL 2.27.3 and rank 0 2.28.9' \
  two ZPLAN_EMULATED_NCCL_VERSION=22703 1 2 2 f64 --comm nccl --steps 1

exit $failed
