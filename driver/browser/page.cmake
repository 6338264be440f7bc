# SPDX-License-Identifier: Apache-2.0
# The page: the program, its library, the examples and the scripts in one file.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(browser ${CMAKE_SOURCE_DIR}/driver/browser)
file(GLOB browser_texts CONFIGURE_DEPENDS ${browser}/page/* ${CMAKE_SOURCE_DIR}/examples/*.dz ${CMAKE_SOURCE_DIR}/frontend/library/*.dz)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/planner.html DEPENDS zplan ${browser}/assemble.py ${browser_texts} VERBATIM
  COMMAND Python3::Interpreter ${browser}/assemble.py ${CMAKE_BINARY_DIR})
add_custom_target(zplan_page ALL DEPENDS ${CMAKE_BINARY_DIR}/planner.html)
