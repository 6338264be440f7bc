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

extern zp_nvrtc_calls zp_nvrtc;

/* Opens the library, once: of CUDA_HOME or CUDA_PATH, else the one that the system finds, else that of /usr/local/cuda.
 * False with *error (arena) when there is none. */
bool zp_nvrtc_open(zp_arena *arena, const char **error);
/* The file that was opened. */
const char *zp_nvrtc_file(void);

#endif
