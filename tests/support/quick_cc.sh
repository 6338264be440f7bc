#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C compiler for tests that build hundreds of trainers, most of whose build is compiling and linking: tcc where it is installed, which
# takes an eighth of what gcc takes without optimization, and gold, which links in half the time. Debug information of the runtime is left
# out. What tcc does not compile, or a command that is no trainer's (one .c file, compiled and linked), is gcc's.
gold=
if command -v ld.gold >/dev/null 2>&1; then gold='-fuse-ld=gold -Wl,--strip-debug'; fi
text=
texts=0
out=
last=
for word; do
  [ "$last" != -o ] || out=$word
  case $word in
  *.c) text=$word && texts=$((texts + 1)) ;;
  -c | -E | -S | -shared | -M*) texts=9 ;;
  esac
  last=$word
done
# shellcheck disable=SC2086 # words
if [ "$texts" -ne 1 ] || [ -z "$out" ] || ! command -v tcc >/dev/null 2>&1; then exec cc "$@" -O0 $gold; fi
object=$out.$$.o
trap 'rm -f "$object"' EXIT
# Options that say what is read; those of warnings are gcc's, those behind -Xassembler are not the compiler's.
compile() {
  last=
  for word; do
    shift
    case $last$word in
    -I* | -D* | -std=*) set -- "$@" "$word" ;;
    esac
    last=
    [ "$word" != -Xassembler ] || last=$word
  done
  tcc -w "$@" -c "$text" -o "$object" 2>/dev/null
}
# shellcheck disable=SC2086 # words
if ! compile "$@"; then
  cc "$@" -O0 $gold
  exit
fi
for word; do
  shift
  case $word in
  "$text") set -- "$@" "$object" ;;
  *) set -- "$@" "$word" ;;
  esac
done
# shellcheck disable=SC2086 # words
cc "$@" $gold
