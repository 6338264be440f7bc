#!/bin/sh
# The C compiler without optimization: for tests that build hundreds of trainers, half of whose build is optimizing.
exec cc "$@" -O0
