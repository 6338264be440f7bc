#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C++ compiler without optimization: kernels of an emulated GPU take longer to optimize than a few small steps take to run.
# With KEPT_OBJECTS, a folder, one text is compiled once for all trainers that have the same kernels, and optimized a little: comments,
# which name the plan, are no part of it. QUICK_LEVEL: another optimization, for tests whose kernels compute more.
last=
out=
text=
words=
for word; do
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
if [ -z "${KEPT_OBJECTS:-}" ] || [ ! -f "$text" ] || [ -z "$out" ]; then exec c++ "$@" "${QUICK_LEVEL:--O0}"; fi
read_text() { c++ -fpreprocessed -dD -E -P "$text" 2>/dev/null || cat "$text"; } # a compiler that cannot leave comments out keeps less
kept=$KEPT_OBJECTS/$( (echo "$words" && read_text) | sha256sum | cut -d ' ' -f 1)
if ! cp "$kept" "$out" 2>/dev/null; then
  c++ "$@" -Og || exit
  cp "$out" "$kept.$$" && mv "$kept.$$" "$kept"
fi
