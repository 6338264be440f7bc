# SPDX-License-Identifier: Apache-2.0
# What is built with: every library and tool that is looked for. With ZPLAN_PLAN_ONLY only Jansson, flex and bison must be there.
# In folders of one's own: -DCMAKE_PREFIX_PATH=$HOME/.local, whose bin, include and lib are looked into first.

# A library as the target zplan_NAME, by pkg-config or, where that or its file is missing, by its header. OUT names the target, or
# is empty: not found.
function(zplan_library name out module header library)
  set(found)
  if(CMAKE_DISABLE_FIND_PACKAGE_${name}) # as find_package does
    set(${out} "" PARENT_SCOPE)
    return()
  endif()
  if(PKG_CONFIG_FOUND AND NOT module STREQUAL "")
    pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
    if(${name}_FOUND)
      add_library(zplan_${name} INTERFACE)
      target_link_libraries(zplan_${name} INTERFACE PkgConfig::${name})
      set(found zplan_${name})
    endif()
  endif()
  if(NOT found)
    find_path(${name}_HEADER ${header})
    find_library(${name}_LIBRARY ${library})
    mark_as_advanced(${name}_HEADER ${name}_LIBRARY)
    if(${name}_HEADER AND ${name}_LIBRARY)
      add_library(zplan_${name} INTERFACE)
      target_include_directories(zplan_${name} SYSTEM INTERFACE ${${name}_HEADER})
      target_link_libraries(zplan_${name} INTERFACE ${${name}_LIBRARY})
      set(found zplan_${name})
    endif()
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# What a build that makes trainers cannot be without; a plan-only build says what it leaves out.
function(zplan_needs found what package without)
  if(found)
    return()
  elseif(ZPLAN_PLAN_ONLY)
    message(STATUS "${what} is not found: ${without}")
  else()
    message(FATAL_ERROR "${what} is not found (Debian: ${package}).\nIn a folder of your own: -DCMAKE_PREFIX_PATH=FOLDER. "
                        "To plan without training, `cmake --preset plan` does without it.")
  endif()
endfunction()

find_package(PkgConfig QUIET)
if(ZPLAN_BROWSER)
  include(driver/browser/libraries.cmake)
else()
  find_package(Threads REQUIRED)
  zplan_library(jansson JANSSON jansson jansson.h jansson)
endif()
if(NOT JANSSON)
  message(FATAL_ERROR "Jansson is not found (Debian: libjansson-dev).\nInto a folder of your own, from its source: ./configure --prefix=FOLDER && "
                      "make install; then -DCMAKE_PREFIX_PATH=FOLDER")
endif()
find_package(FLEX REQUIRED)
find_package(BISON 3.8 REQUIRED)

zplan_library(expat EXPAT expat expat.h expat)
zplan_needs("${EXPAT}" Expat libexpat1-dev "`zplan import nccl` is left out")
zplan_library(pcre2 PCRE2 libpcre2-8 pcre2.h pcre2-8)
zplan_needs("${PCRE2}" PCRE2 libpcre2-dev "tokenizer files are left out")
zplan_library(unistring UNISTRING "" unistr.h unistring) # has no file for pkg-config
zplan_needs("${UNISTRING}" libunistring libunistring-dev "tokenizer files are left out")
set(TOKENIZER_LIBRARIES)
if(PCRE2 AND UNISTRING)
  set(TOKENIZER_LIBRARIES ${PCRE2} ${UNISTRING})
endif()

# Where the log of commits is, whose change changes what `zplan --version` says; empty: no repository.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --path-format=absolute --git-path logs/HEAD
                OUTPUT_VARIABLE ZPLAN_COMMIT_LOG OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT EXISTS "${ZPLAN_COMMIT_LOG}")
  set(ZPLAN_COMMIT_LOG)
endif()

set(zplan_liburing_version "")
if(ZPLAN_PLAN_ONLY)
  return()
endif()

find_package(LLVM 19.1 CONFIG HINTS /usr/lib/llvm-19/lib/cmake/llvm)
zplan_needs("${LLVM_FOUND}" "LLVM 19.1" llvm-19-dev "")
if(ZPLAN_LIBURING AND PKG_CONFIG_FOUND)
  pkg_check_modules(LIBURING liburing>=2.2)
endif()
# Without its archive the runtime reads and writes with pread and pwrite; `zplan doctor` says so.
set(ZPLAN_LIBURING_ARCHIVE "")
if(LIBURING_FOUND)
  pkg_get_variable(liburing_libdir liburing libdir)
  if(EXISTS ${liburing_libdir}/liburing.a)
    set(ZPLAN_LIBURING_ARCHIVE ${liburing_libdir}/liburing.a)
    set(zplan_liburing_version ${LIBURING_VERSION})
  else()
    message(STATUS "liburing.a is not in ${liburing_libdir}: the runtime is built without io_uring")
  endif()
endif()
