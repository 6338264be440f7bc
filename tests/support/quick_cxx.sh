#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C++ compiler without optimization: kernels of an emulated GPU take longer to optimize than a few small steps take to run.
# With KEPT_OBJECTS, a folder, one text is compiled once for all trainers that have the same kernels, and optimized a little: comments,
# which name the plan, are no part of it. QUICK_LEVEL: another optimization, for tests whose kernels compute more. With sanitizers nothing is
# optimized, every access calls one, and undefined behaviour ends the process with signal 4: half the time.
last=
out=
text=
words=
quickly=
for word; do
  case $word in
  -fsanitize=address*)
    case $(c++ --version) in
    *clang*) quickly='-O0 -fsanitize-trap=undefined' ;;
    *) quickly='-O0 -fsanitize-undefined-trap-on-error --param asan-instrumentation-with-call-threshold=0' ;;
    esac
    ;;
  esac
  case $last in
  -o) out=$word ;;
  *)
    case $word in
    -o) ;;
    *.cc) text=$word ;;
    *) words="$words $word" ;;
    esac
    ;;
  esac
  last=$word
done
if [ -z "${KEPT_OBJECTS:-}" ] || [ ! -f "$text" ] || [ -z "$out" ]; then
  # shellcheck disable=SC2086 # words
  exec c++ "$@" "${QUICK_LEVEL:--O0}" $quickly
fi
level=${QUICK_LEVEL:--Og}
read_text() { c++ -fpreprocessed -dD -E -P "$text" 2>/dev/null || cat "$text"; } # a compiler that cannot leave comments out keeps less
kept=$KEPT_OBJECTS/$( (echo "$words $level $quickly" && read_text) | sha256sum | cut -d ' ' -f 1)
if ! cp "$kept" "$out" 2>/dev/null; then
  # shellcheck disable=SC2086 # words
  c++ "$@" "$level" $quickly || exit
  cp "$out" "$kept.$$" && mv "$kept.$$" "$kept"
fi
