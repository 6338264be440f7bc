#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the planner as a web page: build/browser/planner.html.
#
#   driver/browser/build.sh
#
# Installs the Debian packages that are missing and gets Jansson's source by apt-get; ZPLAN_JANSSON_SOURCE names a tree of it instead.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd) || exit 1
# shellcheck source=examples/packages.sh
. "$root/examples/packages.sh"
cd "$root" || exit 1
packages='cmake ninja-build flex bison python3 clang-19 lld-19 llvm-19 libclang-rt-19-dev-wasm32 wasi-libc'
install_packages || exit 1

# The archive's source of Jansson, by lists of its own: those of the system mostly leave sources out.
get_jansson() {
  work=$root/build/jansson.work
  rm -rf "$work" && mkdir -p "$work/lists/partial" "$work/cache/archives/partial" || return 1
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  # shellcheck disable=SC2016 # apt-get fills these in
  apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
    awk -v release="$release" '$3 == release && ($4 == "main" || $4 == "universe")' | sort -u >"$work/sources.list"
  apt() {
    apt-get -q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
      -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= "$@"
  }
  apt update && (cd "$work" && apt source --download-only jansson && tar xf jansson_*.orig.tar.*) || return 1
  rm -rf build/jansson
  mv "$work"/jansson-*/ build/jansson && rm -rf "$work"
}

if [ -z "$ZPLAN_JANSSON_SOURCE" ] && [ ! -e build/jansson/src/jansson.h ]; then
  mkdir -p build
  get_jansson || {
    echo "Jansson's source could not be got: unpack it, and name it in ZPLAN_JANSSON_SOURCE" >&2
    exit 1
  }
fi
cmake --preset browser ${ZPLAN_JANSSON_SOURCE:+"-DZPLAN_JANSSON_SOURCE=$ZPLAN_JANSSON_SOURCE"} && cmake --build --preset browser || exit 1
page=build/browser/planner.html
echo "$page: $(wc -c <"$page") bytes, of which the program is $(gzip -9c build/browser/zplan | wc -c) compressed, $(wc -c <build/browser/zplan) raw"
