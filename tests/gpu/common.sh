# SPDX-License-Identifier: Apache-2.0
# What first.sh and speed.sh share: the report, the totals, the machine, starting trainers. POSIX sh; sed, awk, sort.
# shellcheck shell=sh
# shellcheck disable=SC2154 # settings.sh sets packed, archs, emulated

began=$(date +%s)
passed=0 failed=0 skipped=0
work=$(mktemp -d "${TMPDIR:-/tmp}/zplan-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export ZPLAN_OFFLOAD="$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

begin_report() { # FILE TITLE
  report=$1
  : >"$report" || exit 1
  say "$2, packed $packed"
}

say() { printf '%s\n' "$*" | tee -a "$report"; }

say_file() { # FILE: indented
  sed 's/^/          /' "$1" | tee -a "$report"
}

pass() {
  passed=$((passed + 1))
  say "passed    $*"
}

fail() {
  failed=$((failed + 1))
  say "FAILED    $*"
}

skip() {
  skipped=$((skipped + 1))
  say "skipped   $*"
}

# The last line; the exit status follows from it.
finish() {
  say "seconds   $(($(date +%s) - began)), $skipped skipped"
  say "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# Ends a command that takes longer, where this system has a command for that.
limited() { # SECONDS COMMAND...
  if command -v timeout >/dev/null 2>&1; then
    timeout "$@"
  else
    shift
    "$@"
  fi
}

# At most so many seconds, and no more than there are until `seconds` after the beginning.
until_end() { # SECONDS
  left=$((${seconds:-3600} - $(date +%s) + began))
  [ "$left" -gt 1 ] || left=1
  [ "$left" -lt "$1" ] && echo "$left" || echo "$1"
}

kernels() { # ARGUMENTS...: of check_kernels
  if [ -n "$emulated" ]; then
    "$here/check_kernels" "$@" --emulated "$emulated"
  else
    "$here/check_kernels" "$@"
  fi
}

# Which folder has what this GPU runs: a cubin runs on GPUs of its first number whose second is not smaller.
arch_for() { # sm_NN
  [ -z "$emulated" ] || { echo host && return; }
  case $1 in
  sm_8?) wanted=sm_80 ;;
  sm_9?) wanted=sm_90 ;;
  sm_10?) wanted=sm_100 ;;
  *) wanted=none ;;
  esac
  for one in $archs; do
    [ "$one" = "$wanted" ] && echo "$one"
  done
}

# Sets gpu_name, capability and arch; ends with status 77 where there is no GPU that can be used.
describe_machine() {
  say "date          $(date -u '+%d %B %Y %H:%M UTC')"
  say "system        $(uname -srm), $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1), $(grep -c '^processor' /proc/cpuinfo) cores, $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)"
  if ! kernels --machine >"$work/machine" 2>&1; then
    say "there is no GPU that can be used here: $(sed 's/^ *//' "$work/machine" | head -1)"
    exit 77
  fi
  tee -a "$report" <"$work/machine"
  if command -v nvidia-smi >/dev/null 2>&1; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader >"$work/smi" 2>&1 &&
      say "nvidia-smi    $(head -1 "$work/smi"); $(wc -l <"$work/smi" | tr -d ' ') GPUs"
  fi
  gpu_name=$(sed -n 's/^gpu  *//p' "$work/machine" | head -1)
  capability=$(sed -n 's/^arch  *//p' "$work/machine")
  arch=$(arch_for "$capability")
  if [ -z "$arch" ]; then
    say "this folder has nothing for $capability: it was packed for $archs"
    exit 77
  fi
  say "trainers of   $arch"
}

# Sets program to a trainer, unpacked.
unpack() { # NAME [ARCH]
  program=$work/${2:-$arch}.$1
  [ -x "$program" ] || { gzip -dc "$here/${2:-$arch}/$1.gz" >"$program" && chmod +x "$program"; }
}

gpus() {
  count=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
  [ "$count" -gt 0 ] && echo "$count" || echo 1
}

# Starts a trainer: of several ranks by mpirun, over NCCL where each has a GPU. What it says goes to $work/out.
train() { # NAME RANKS DATA SECONDS OPTIONS...
  unpack "$1"
  ranks=$2 data=$3 most=$4
  shift 4
  [ "$data" = - ] || set -- --data "$here/data/$data" "$@"
  if [ "$ranks" -eq 1 ]; then
    limited "$most" "$program" "$@" --no-progress >"$work/out" 2>&1
  else
    comm=staged
    [ "$(gpus)" -ge "$ranks" ] && comm=nccl
    limited "$most" mpirun -q --oversubscribe --bind-to none -n "$ranks" "$program" "$@" --comm "$comm" --no-progress >"$work/out" 2>&1
  fi
}

# What a run that failed has said, in one line.
reason() { # STATUS
  line=$(grep -m 1 '^error' "$work/out") || line=$(tail -1 "$work/out")
  [ "$1" -eq 124 ] && line="took too long"
  echo "exit status $1: $line"
}
