#!/bin/sh
# The C++ compiler without optimization: kernels of an emulated GPU take longer to optimize than a few small steps take to run.
exec c++ "$@" -O0
