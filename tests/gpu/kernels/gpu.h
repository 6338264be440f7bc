/* SPDX-License-Identifier: Apache-2.0 */
/* Private: the GPU behind the tests, and memory that it shares with them. */
#ifndef ZPLAN_GPU_KERNELS_GPU_H
#define ZPLAN_GPU_KERNELS_GPU_H

#include <stdbool.h>
#include <stddef.h>

/* What the program was asked for. */
typedef struct gpu_setup {
  const char *images;   /* folder of the compiled texts; with `collect` where texts are written */
  const char *emulated; /* path of the library that plays a GPU; NULL: a GPU */
  bool collect;         /* texts are written, nothing runs and nothing is judged */
} gpu_setup;
extern gpu_setup gpu;

/* Opens GPU 0, and from then on everything that the tests allocate lies in memory that the GPU sees at the same
 * address. Ends the process with a message when there is no GPU. */
void gpu_open(void);
/* Runs `body` on a stack in that memory: tests hand kernels the addresses of their variables. */
void gpu_run_on_shared_stack(void (*body)(void));
/* From there: runs on the process's own stack. Whatever asks the driver for something does it there, because the driver
 * is not known to work on a stack that it moves itself. */
void gpu_run_on_own_stack(void (*run)(void *with), void *with);
/* Driver, GPU, and the libraries that are in use, as lines on stdout. */
void gpu_describe(void);

#endif
