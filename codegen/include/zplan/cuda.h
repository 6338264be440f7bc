/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel text to something that runs: a cubin through NVRTC, or a shared object that plays the kernels on the host.
 *
 *   kernel set --zp_kernels_cuda_text--> CUDA C --NVRTC--> cubin            (arch "sm_90")
 *                                           \--c++, ZPD_HOST--> object.so   (arch "host": codegen/cuda/emulator)
 *
 * Both read the same text and the same headers. Neither needs a GPU, and nothing of CUDA is linked. */
#ifndef ZPLAN_CUDA_H
#define ZPLAN_CUDA_H

#include <stdbool.h>
#include <zplan/arena.h>
#include <zplan/vec.h>
#include <zplan/zpk.h>

typedef struct zp_cuda_source {
  const char *text; /* CUDA C */
  const char *name; /* what messages of the compiler call it: "kernels.cu" */
  /* Where "zplan/zpd.h", "zpd_device.h" and, for the host, "zpd_host.h" are found: kernels/include, kernels/cuda,
   * codegen/cuda/emulator. They are read from disk, as the headers of trainer.c are, so that a tree can be compiled
   * again by hand with the very same files. */
  const char *const *include_dirs;
  int n_include_dirs;
  zpk_dtype dtype; /* of operands, as in zp_kernels_new */
  bool sanitize;   /* arch "host" only: address and undefined behaviour */
  bool watch;      /* arch "host" only, without sanitize: finds races, counts accesses (emulator/zpd_host_watch.h) */
  const char *scheduler; /* arch "host" only: what zp_cuda_compile_scheduler made; NULL: compiled with the text */
} zp_cuda_source;

/* The macro that makes kernel text speak a dtype: "-DZPD_F64"; NULL: f32 needs none. */
const char *zp_cuda_define(zpk_dtype dtype);

/* Compiles for "host" or for one of zp_cuda_archs and publishes the result by rename. Warnings and errors of the host's
 * compiler (CXX, c++, g++ or clang++, whichever is there) go to stderr. Deterministic for one NVRTC or compiler.
 * false with *error (arena; with NVRTC's log): no NVRTC, an arch that it does not take, text that does not compile. */
bool zp_cuda_compile(zp_arena *arena, const zp_cuda_source *source, const char *arch, const char *out_path,
                     const char **error);

/* The emulator's scheduler as an object that many texts are linked with, for callers that compile many: `sanitize` and
 * `watch` of the source are theirs, its text does not matter. Errors as those of zp_cuda_compile. */
bool zp_cuda_compile_scheduler(zp_arena *arena, const zp_cuda_source *source, const char *out_path, const char **error);

/* The archs that the first NVRTC of this machine compiles for: "sm_75 sm_80 ... sm_121", arena. NULL with *error when
 * there is none. Archs with an `a` or `f` after the number are taken where NVRTC takes them and are not listed. */
const char *zp_cuda_archs(zp_arena *arena, const char **error);
/* The file and version of the NVRTC that an arch is compiled with, "libnvrtc.so.12 (12.8)"; of all that there are, in
 * the order in which they are tried. Arena; NULL with *error. */
const char *zp_cuda_library(zp_arena *arena, const char *arch, const char **error);
zp_strings zp_cuda_libraries(zp_arena *arena);
/* The cuBLASLt that a trainer for this arch will open here, whatever the driver; all that there are. */
const char *zp_cublas_library(zp_arena *arena, const char *arch, const char **error);
zp_strings zp_cublas_libraries(zp_arena *arena);
/* "libcuda.so.1 (CUDA 12.4)", with what is wrong with it after; NULL: there is none. NCCL as a trainer will open
 * it. */
const char *zp_cuda_driver(zp_arena *arena);
const char *zp_nccl_library(zp_arena *arena);

#endif
