# SPDX-License-Identifier: Apache-2.0
# CMake loads this file by the system's name. Nothing differs from its defaults.
