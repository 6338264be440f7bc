#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A small BERT over bytes on masked text of the project's own documents, then on span extraction made of the same documents, and its exact match on
# questions of documents that were held out: at least 65 %.
#
#   tests/bench/finetune/run.sh FOLDER     ZPLAN=path chooses the command
set -eu
[ $# -eq 1 ] || { sed -n '3,6p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
zplan=${ZPLAN:-$here/../../../build/release/zplan}
mkdir "$1"
cp "$here/masked.dz" "$here/spans.dz" "$1"
python3 "$here/questions.py" "$1"
for part in train held_out; do "$zplan" data squad "$1/$part.json" -o "$1/$part" --length 64; done
"$zplan" run "$1/masked.dz" --ranks 1 --threads 2 -o "$1/masked_trainer" -- --checkpoint "$1/masked"
"$zplan" run "$1/spans.dz" --ranks 1 --threads 2 -o "$1/spans_trainer" -- --checkpoint "$1/spans"
"$zplan" eval "$1/spans" --data "$1/held_out" --json -o "$1/eval_trainer" > "$1/eval.json"
python3 - "$1/eval.json" <<'END'
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    answer = json.load(file)
print("exact match %.1f %% of %d questions" % (100 * answer["exact_match"], answer["samples"]))
sys.exit(answer["exact_match"] < 0.65)
END
