/* SPDX-License-Identifier: Apache-2.0 */
/* Where the libraries of CUDA may be on this machine, and which of them serves which GPU. Trainers and the compiler
 * look in the same places: cuda/places.c is in both. Nothing of CUDA is linked, and no process is started to find
 * anything. */
#ifndef ZPLAN_CUDA_PLACES_H
#define ZPLAN_CUDA_PLACES_H

#include <stdbool.h>

enum { ZPR_CUDA_PATH = 1024, ZPR_CUDA_FILES = 48, ZPR_CUDA_NEWEST = 13, ZPR_CUDA_OLDEST = 12 };

/* Names for dlopen, in the order in which they are to be tried. */
typedef struct zpr_cuda_files {
  int n;
  char path[ZPR_CUDA_FILES][ZPR_CUDA_PATH];
} zpr_cuda_files;

/* Files of a library, "libnvrtc.so" with .13 and .12 after it: those below CUDA_HOME and CUDA_PATH; then .13, and then
 * .12, where the loader looks (the bare name), in the wheels of python3 and below /usr/local/cuda. Of files that are
 * not there only bare names are listed. */
void zpr_cuda_find_files(const char *name, zpr_cuda_files *files);
/* Files of a library with one version for all, "libnccl.so.2": where the loader looks, then in the wheels. */
void zpr_cuda_find_file(const char *name, zpr_cuda_files *files);

/* Has cuBLASLt of a version kernels for GPUs of a compute capability, times ten (sm_90: 90)? */
bool zpr_cublas_serves(int major, int minor, int capability);

/* cuDriverGetVersion of the oldest driver that can be used: CUDA 12.0. */
enum { ZPR_LEAST_DRIVER = 12000 };

#endif
