#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The planner's web page: builds it, plans every example in a browser and compares with the command. Not part of tests/run.sh
# because it installs a compiler for WebAssembly and a browser, and takes several minutes.
#
#   tests/browser.sh
#
# Needs build/release (tests/run.sh or examples/quickstart.sh). Logs of all parts: build/test-logs/.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(dirname "$here")
logs=build/test-logs

# shellcheck source=examples/packages.sh
. "$root/examples/packages.sh"
cd "$root" || exit 1
packages='chromium python3'
install_packages || exit 1
mkdir -p "$logs" || exit 1
unset ZPLAN
export ZPLAN_CALIBRATION=none
rm -f "$logs"/*.counts
# shellcheck source=tests/support/parts.sh
. "$here/support/parts.sh"

# shellcheck disable=SC2317 # called through part
build_page() { driver/browser/build.sh && echo '1 passed, 0 failed'; }

part 'page of the planner' build_page && part 'planner in a browser' python3 tests/site/planner.py
finish
