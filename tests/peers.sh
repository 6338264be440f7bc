#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The programs that plans are exported for: DeepSpeed trains an exported configuration, PyTorch an exported script, torchtitan and
# megatron-core read theirs. Not part of tests/run.sh because it installs PyTorch and these programs (about 8 GB) from the package index.
#
#   tests/peers.sh [PART]...     deepspeed, fsdp2, torchtitan, megatron, cuts; without a word all
#
# Needs build/release (tests/run.sh or examples/quickstart.sh), a C++ compiler and a network. PEERS=FOLDER is the virtual environment,
# default build/peers. Logs of all parts: build/test-logs/.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(dirname "$here")
logs=build/test-logs
cd "$root" || exit 1
mkdir -p "$logs" || exit 1
unset ZPLAN
export ZPLAN_CALIBRATION=none
rm -f "$logs"/*.counts
# shellcheck source=tests/support/parts.sh
. "$here/support/parts.sh"

venv=${PEERS:-build/peers}
venv=$(mkdir -p "$venv" && cd "$venv" && pwd) || exit 1
PATH=$venv/bin:$PATH # ninja, which compiles operations of DeepSpeed
export PATH TORCH_EXTENSIONS_DIR="$venv/extensions"

# Every line of peers/requirements.txt as it stands there. DeepSpeed comes as source, whose setup needs torch and compiles nothing.
install_peers() {
  if cmp -s tests/peers/requirements.txt "$venv/installed.txt"; then return 0; fi
  python3 -m venv "$venv" && "$venv/bin/pip" install -q setuptools wheel "$(grep '^torch==' tests/peers/requirements.txt)" &&
    DS_BUILD_OPS=0 "$venv/bin/pip" install -q --no-build-isolation -r tests/peers/requirements.txt &&
    cp tests/peers/requirements.txt "$venv/installed.txt"
}
install_peers || exit 1

# Names and what they run, one a line.
parts='deepspeed losses_deepspeed.py
fsdp2 losses_fsdp2.py
torchtitan configs_torchtitan.py
megatron configs_megatron.py
cuts cuts.py'

known=$(echo "$parts" | cut -d ' ' -f 1 | tr '\n' ' ')
# shellcheck disable=SC2086 # words
[ $# -gt 0 ] || set -- $known
for name; do
  script=$(echo "$parts" | sed -n "s/^$name //p")
  [ -n "$script" ] || { echo "no part $name; there are $known" >&2 && exit 2; }
  part "$name" "$venv/bin/python" "tests/peers/$script"
done
finish
