/* SPDX-License-Identifier: Apache-2.0 */
/* Private to codegen/cuda: the two compilers of kernel text. */
#ifndef ZPLAN_CUDA_COMPILE_H
#define ZPLAN_CUDA_COMPILE_H

#include <zplan/buf.h>
#include <zplan/cuda.h>

/* nvrtc.c */
bool zp_cuda_compile_device(zp_arena *arena, const zp_cuda_source *source, const char *arch, const char *out_path,
                            const char **error);
/* host.c */
bool zp_cuda_compile_host(zp_arena *arena, const zp_cuda_source *source, const char *out_path, const char **error);

#endif
