# SPDX-License-Identifier: Apache-2.0
# Writes OUT, a header with the commit of SOURCE: of its repository, or of the archive that it was taken from (archive.txt).
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  file(STRINGS ${SOURCE}/cmake/archive.txt commit LIMIT_COUNT 1)
endif()
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define ZPLAN_COMMIT \"@commit@\"\n" @ONLY)
