#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the command with clang's libFuzzer, for as long as it is told: one kind of input after another.
#
#   libfuzzer.sh SECONDS [KIND...]      seconds a kind; kinds as in inputs.py (default: those below)
#
# Needs clang with its runtime (Debian: clang-14 libclang-rt-14-dev). Corpora and findings: build/fuzz-corpus/KIND.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
seconds=$1
[ -n "$seconds" ] || { sed -n '3,/^here/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
shift
clang=$(command -v clang || command -v clang-14) || { echo "libfuzzer.sh: clang is not installed" >&2; exit 77; }
cd "$root" || exit 1
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER="$clang" -DZPLAN_LIBFUZZER=ON \
  -DCMAKE_C_FLAGS='-O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' >/dev/null &&
  cmake --build build/fuzz --target fuzz_libfuzzer || exit 1
python3 "$here/inputs.py" --corpora build/fuzz-corpus "$@" | while IFS='|' read -r kind words; do
  corpus=build/fuzz-corpus/$kind
  mkdir -p "$corpus/new"
  echo "$kind: zplan $words"
  ZPLAN_FUZZ_WORDS=$words ZPLAN_FUZZ_INPUT=$corpus/input timeout $((seconds + 120)) build/fuzz/tests/fuzz_libfuzzer \
    -max_total_time="$seconds" -timeout=30 -rss_limit_mb=3000 -malloc_limit_mb=2000 -max_len=65536 -detect_leaks=0 -print_final_stats=1 \
    -artifact_prefix="$corpus/found-" "$corpus/new" "$corpus/seeds" 2>&1 | grep -E 'ERROR|runtime error|SUMMARY|number_of_executed|cov:.*DONE|Test unit'
done
