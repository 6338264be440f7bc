#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Golden tests of error messages. Every errors/NAME.dz is given to zplan; what it prints on stderr and its exit status
# must equal errors/NAME.txt, whose last line is `exit STATUS`.
#
#   run_errors.sh [--update]      --update rewrites the .txt files: read the difference before committing it
#   ZPLAN=path                    another binary than build/release/zplan
#
# The first line of a case says how zplan is called: `# args: check` (zplan check FILE), `# args: plan --gpus 8`
# (zplan FILE --gpus 8), `# args: explain ...` (zplan explain FILE ...) or, with the word FILE where the case's name goes,
# `# args: zplan run FILE --ranks 2`. Arguments are split at spaces.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
zplan=${ZPLAN:-$here/../../build/release/zplan}
case $zplan in
/*) ;;
*) zplan=$(pwd)/$zplan ;;
esac
if [ ! -x "$zplan" ]; then
  echo "run_errors.sh: $zplan is not there; build it or set ZPLAN" >&2
  exit 2
fi
update=no
[ "${1:-}" = --update ] && update=yes

actual=$(mktemp)
trap 'rm -f "$actual"' EXIT
cd "$here/errors" # so that paths in messages are relative
passed=0
failed=0
for file in *.dz; do
  args=$(sed -n '1s/^# args: //p' "$file")
  case $args in
  check*) command="check $file ${args#check}" ;;
  plan*) command="$file ${args#plan}" ;;
  explain*) command="explain $file ${args#explain}" ;;
  zplan*) command=$(printf '%s\n' "${args#zplan}" | sed "s/FILE/$file/") ;;
  *)
    echo "$file: the first line must be \`# args: check\`, \`plan ...\`, \`explain ...\` or \`zplan ...\`" >&2
    exit 2
    ;;
  esac
  status=0
  # shellcheck disable=SC2086 # the arguments are meant to be split
  COLUMNS=1000 "$zplan" $command >/dev/null 2>"$actual" || status=$?
  echo "exit $status" >>"$actual"
  expected=${file%.dz}.txt
  if [ $update = yes ]; then
    cp "$actual" "$expected"
    chmod 644 "$expected"
  fi
  if [ -f "$expected" ] && cmp -s "$expected" "$actual"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED $file"
    if [ -f "$expected" ]; then diff "$expected" "$actual" || true; else echo "  no $expected"; fi
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
