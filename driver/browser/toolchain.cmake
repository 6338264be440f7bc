# SPDX-License-Identifier: Apache-2.0
# WebAssembly by Clang 19 and WASI's C library of Debian: clang-19, lld-19, libclang-rt-19-dev-wasm32, wasi-libc.
set(CMAKE_SYSTEM_NAME WASI)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR}/../../cmake/wasi)
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
find_program(CMAKE_AR NAMES llvm-ar-19 HINTS /usr/lib/llvm-19/bin)
find_program(CMAKE_RANLIB NAMES llvm-ranlib-19 HINTS /usr/lib/llvm-19/bin)
# Headers of the machine that builds are another C library's.
set(CMAKE_C_FLAGS_INIT "-nostdlibinc -isystem ${CMAKE_CURRENT_LIST_DIR}/../../cmake/wasi -isystem /usr/include/wasm32-wasi -D_WASI_EMULATED_MMAN -D_WASI_EMULATED_GETPID")
# The stack is as large as Linux gives one; memory grows up to what 32-bit addresses reach.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-lwasi-emulated-mman -lwasi-emulated-getpid -Wl,-z,stack-size=8388608 -Wl,--max-memory=4294967296 -Wl,--strip-all")
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
