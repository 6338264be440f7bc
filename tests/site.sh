#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The documents: builds the site with the planner's page, checks it in a browser, and runs every command of every page. Not part of
# tests/run.sh because it installs a browser, a generator of web pages and a compiler for WebAssembly, and takes several minutes.
#
#   tests/site.sh
#
# Needs build/release (tests/run.sh or examples/quickstart.sh). Logs of all parts: build/test-logs/.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(dirname "$here")
logs=build/test-logs

# shellcheck source=examples/packages.sh
. "$root/examples/packages.sh"
cd "$root" || exit 1
packages="$packages chromium python3-venv"
install_packages || exit 1
mkdir -p "$logs" || exit 1
unset ZPLAN
export ZPLAN_CALIBRATION=none
rm -f "$logs"/*.counts
# shellcheck source=tests/support/parts.sh
. "$here/support/parts.sh"

venv=build/site/venv
if ! "$venv/bin/python" -c 'import sphinx, myst_parser, furo' 2>/dev/null; then
  python3 -m venv "$venv" && "$venv/bin/pip" install -q -r tests/site/requirements.txt || exit 1
fi

# shellcheck disable=SC2317 # called through part
build_page() { driver/browser/build.sh && echo '1 passed, 0 failed'; }

# shellcheck disable=SC2317 # called through part
build_site() { "$venv/bin/python" tests/site/build.py && echo '1 passed, 0 failed'; }

# shellcheck disable=SC2317 # called through part
first_command() { examples/quickstart.sh && echo '1 passed, 0 failed'; }

part 'page of the planner' build_page
part 'links' python3 tests/site/links.py
part 'site' build_site && part 'site in a browser' python3 tests/site/browse.py
part 'commands of pages' python3 tests/site/pages.py
part 'first command' first_command
[ ! -e tests/site/report.py ] || part 'report in a browser' python3 tests/site/report.py
finish
