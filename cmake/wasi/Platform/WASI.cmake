# SPDX-License-Identifier: Apache-2.0
# What CMake asks of a system by its name: there is nothing to say.
