/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of NVRTC, from a library that is opened when the first text is compiled for a GPU. No CUDA header is
 * read: zplan builds without a toolkit. */
#ifndef ZPLAN_NVRTC_CALLS_H
#define ZPLAN_NVRTC_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <zplan/arena.h>

typedef struct zp_nvrtc_calls {
#define NVRTC_CALL(member, symbol, arguments) int(*member) arguments;
#include "nvrtc_calls.def"
#undef NVRTC_CALL
} zp_nvrtc_calls;

/* Those of the library in use. */
extern zp_nvrtc_calls zp_nvrtc;

/* A library that was opened; it stays open to the end of the process. */
typedef struct zp_nvrtc_library {
  const char *path; /* as it was opened, or where the loader found it */
  int major, minor;
  const int *archs; /* compute capabilities times ten, ascending */
  int n_archs;
  zp_nvrtc_calls call;
} zp_nvrtc_library;

/* All that are there and can be used, in the order in which they are tried (zplan/cuda_places.h), looked for once.
 * *count may be 0; *broken (arena): why one of them cannot be used, NULL: all can. */
const zp_nvrtc_library *zp_nvrtc_all(int *count, const char **broken);
/* Uses the first that compiles for the arch: "sm_90", "sm_90a"; NULL: the first of all. NULL with *error (arena): there
 * is none, or none for this arch. */
const zp_nvrtc_library *zp_nvrtc_use(zp_arena *arena, const char *arch, const char **error);

#endif
