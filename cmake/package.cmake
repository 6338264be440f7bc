# SPDX-License-Identifier: Apache-2.0
# `cpack` in a build folder: a .deb of what `cmake --install` installs. It is for the release of Debian that it is made on, and later ones
# that have the same libraries. Trainers need a compiler, MPI and LLVM, plans need none of them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME zplan)
set(CPACK_PACKAGE_CONTACT "zplan maintainers <zplan@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plans, generates and runs the parallel training of large models")
set(CPACK_PACKAGE_DESCRIPTION "A compiler from a model, a cluster and limits to the fastest parallel training plan, and to a C trainer that runs it.
 The command, libzplan, the Python module, the runtime and kernels of trainers, and the guide.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
if(NOT ZPLAN_PLAN_ONLY)
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "gcc, libc6-dev, make, libopenmpi-dev, openmpi-bin, libllvm${LLVM_VERSION_MAJOR}, libopenblas0-pthread | libdnnl2 | libdnnl3")
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "pkg-config, python3")
# What Python keeps of the module is no file of the package.
file(CONFIGURE OUTPUT deb/prerm @ONLY CONTENT [[#!/bin/sh
set -e
rm -rf /usr/lib/python3/dist-packages/zplan/__pycache__
]])
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/deb/prerm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
