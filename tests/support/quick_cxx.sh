#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C++ compiler without optimization: kernels of an emulated GPU take longer to optimize than a few small steps take to run.
# With KEPT_OBJECTS, a folder, one text is compiled once for all trainers that have the same kernels, and optimized a little: comments,
# which name the plan, are no part of it. Kernels written by hand and the scheduler are two thirds of a compilation, and the same in all texts
# that begin with the same #defines: they are compiled once for those, and linked to each. QUICK_LEVEL: another optimization, for tests whose
# kernels compute more. With sanitizers nothing is optimized, every access calls one, and undefined behaviour ends the process with signal 4:
# half the time.
case " $* " in
*' -fsanitize=address'*)
  case $(c++ --version) in
  *clang*) exec c++ "$@" -O0 -fsanitize-trap=undefined ;;
  *) exec c++ "$@" -O0 -fsanitize-undefined-trap-on-error --param asan-instrumentation-with-call-threshold=0 ;;
  esac
  ;;
esac
last=
out=
text=
words=
options=
shared=
for word; do
  case $last in
  -o) out=$word ;;
  *)
    case $word in
    -o) ;;
    *.cc) text=$word ;;
    -shared) shared=yes ;;
    -l*) ;;
    *) options="$options $word" ;;
    esac
    case $word in
    -o | *.cc) ;;
    *) words="$words $word" ;;
    esac
    ;;
  esac
  last=$word
done
if [ -z "${KEPT_OBJECTS:-}" ] || [ ! -f "$text" ] || [ -z "$out" ]; then exec c++ "$@" "${QUICK_LEVEL:--O0}"; fi

key_of() { # WORDS FILE
  (echo "$1" && { c++ -fpreprocessed -dD -E -P "$2" 2>/dev/null || cat "$2"; }) | sha256sum | cut -d ' ' -f 1 # a compiler that cannot leave comments out keeps less
}

keep() { # FILE KEPT: several may do so at once
  cp "$1" "$2.$$" && mv "$2.$$" "$2"
}

# What all texts include first, already read: half of the time of a small one. One definition changes what it says.
headers_of() { # FILE
  ! grep -q '^#define ZPD_STOCHASTIC_SUMS' "$1" || return 0
  headers=$KEPT_OBJECTS/$(echo "$options" | sha256sum | cut -d ' ' -f 1).h
  if [ ! -f "$headers.gch" ]; then
    printf '#include "zpd_device.h"\n#include "zpd_rows.cuh"\n' >"$headers.$$" && mv "$headers.$$" "$headers"
    # shellcheck disable=SC2086 # words
    c++ $options -Og -x c++-header "$headers" -o "$headers.gch.$$" && mv "$headers.gch.$$" "$headers.gch" || return 0
  fi
  echo "-include $headers"
}

both='^# *include *"zpd_\(kernels\.cuh\|host_scheduler\.h\)"'
in_parts() {
  rows=$out.$$.rows.cc
  hand=$out.$$.hand.cc
  trap 'rm -f "$rows" "$hand" "${rows%.cc}.o"' EXIT
  grep -v "$both" "$text" >"$rows" && grep '^# *\(define\|include\)' "$text" >"$hand" || return
  object=$KEPT_OBJECTS/$(key_of "$options" "$hand").o
  options="$options $(headers_of "$text")"
  if [ ! -f "$object" ]; then
    # Threads change places more often than all that they compute.
    sed '/zpd_host_scheduler/i\
#pragma GCC optimize("O2")' "$hand" >"$hand.2" && mv "$hand.2" "$hand"
    # shellcheck disable=SC2086 # words
    c++ $options -c "$hand" -o "${rows%.cc}.o" -Og && keep "${rows%.cc}.o" "$object" || return
  fi
  # shellcheck disable=SC2086 # words
  c++ $options -c "$rows" -o "${rows%.cc}.o" -Og && c++ -shared "${rows%.cc}.o" "$object" -o "$out" $gold -lm -ldl
}

kept=$KEPT_OBJECTS/$(key_of "$words" "$text")
cp "$kept" "$out" 2>/dev/null && exit
gold=
if command -v ld.gold >/dev/null 2>&1; then gold=-fuse-ld=gold; fi
# Kernels written by hand read the layouts of block-sparse attention, which a text has.
if [ -z "$shared" ] || [ "$(grep -c "$both" "$text")" -ne 2 ] || grep -q zpd_layout_of "$text" || ! in_parts 2>/dev/null; then
  c++ "$@" -Og || exit
fi
keep "$out" "$kept"
