#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C compiler without optimization, and gold where it is installed, which links in half the time: for tests that build hundreds
# of trainers, most of whose build is optimizing and linking; debug information of the runtime is left out.
if command -v ld.gold >/dev/null 2>&1; then exec cc "$@" -O0 -fuse-ld=gold -Wl,--strip-debug; fi
exec cc "$@" -O0
