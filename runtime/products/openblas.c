/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS: opened at run time, because it reads OPENBLAS_CORETYPE while it is loaded and would otherwise choose its
 * kernels before main. One thread a call: its own threads would spin alongside ours on the same cores. */
#define _GNU_SOURCE
#include "openblas.h"
#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char variable[] = "OPENBLAS_CORETYPE";

static zpr_openblas_calls calls;
static zpr_library library;
static bool tried;
static void *openblas_handle; /* NULL: it is not on this machine */

/* POSIX lets a function's address pass through void *, ISO C does not. */
static bool find(void *handle, const char *name, void *function) {
  void *address = dlsym(handle, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

static bool product_f32(const zpr_operands *p) {
  assert(p->m <= INT_MAX && p->n <= INT_MAX && p->k <= INT_MAX);
  assert(p->lda <= INT_MAX && p->ldb <= INT_MAX && p->ldy <= INT_MAX);
  calls.sgemm(CBLAS_ROW_MAJOR, p->trans_a ? CBLAS_TRANS : CBLAS_NO_TRANS, p->trans_b ? CBLAS_TRANS : CBLAS_NO_TRANS,
              (int)p->m, (int)p->n, (int)p->k, 1, p->a, (int)p->lda, p->b, (int)p->ldb, p->accumulate ? 1 : 0, p->y,
              (int)p->ldy);
  return true;
}

static bool product_f64(const zpr_operands *p) {
  assert(p->m <= INT_MAX && p->n <= INT_MAX && p->k <= INT_MAX);
  assert(p->lda <= INT_MAX && p->ldb <= INT_MAX && p->ldy <= INT_MAX);
  calls.dgemm(CBLAS_ROW_MAJOR, p->trans_a ? CBLAS_TRANS : CBLAS_NO_TRANS, p->trans_b ? CBLAS_TRANS : CBLAS_NO_TRANS,
              (int)p->m, (int)p->n, (int)p->k, 1, p->a, (int)p->lda, p->b, (int)p->ldb, p->accumulate ? 1 : 0, p->y,
              (int)p->ldy);
  return true;
}

/* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." */
static void read_version(const char *config) {
  if (sscanf(config, "OpenBLAS %31s", library.version) != 1) snprintf(library.version, sizeof library.version, "?");
}

static void open_library(void) {
  static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
  const char *core = zpr_openblas_core(zpr_processor_features());
  if (core) setenv(variable, core, false);
  setenv("OPENBLAS_NUM_THREADS", "1", true); /* it starts threads while it is loaded */
  void *handle = NULL;
  for (int i = 0; names[i] && !handle; i++) handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!handle) return;
  void (*set_num_threads)(int);
  char *(*get_corename)(void), *(*get_config)(void);
  if (!find(handle, "cblas_sgemm", &calls.sgemm) || !find(handle, "cblas_dgemm", &calls.dgemm) ||
      !find(handle, "openblas_set_num_threads", &set_num_threads) ||
      !find(handle, "openblas_get_corename", &get_corename) || !find(handle, "openblas_get_config", &get_config))
    return;
  set_num_threads(1); /* also where somebody else had loaded it before */
  read_version(get_config());
  snprintf(library.kernels, sizeof library.kernels, "%s", get_corename());
  library.features = zpr_openblas_core_features(library.kernels);
  library.variable = variable;
  library.f32 = product_f32;
  library.f64 = product_f64;
  openblas_handle = handle;
  library.name = "OpenBLAS";
}

static bool can_map(size_t bytes) {
  void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return false;
  munmap(place, bytes);
  return true;
}

/* Each thread that multiplies takes a buffer when it first does, and all keep theirs. A version that hides the two
 * functions takes them later, where the address space is asked for all of them together. */
int64_t zpr_openblas_reserve(int threads) {
  void *(*take)(int), (*give)(void *);
  void *buffer[ZPR_MOST_MULTIPLY];
  assert(threads >= 1 && threads <= ZPR_MOST_MULTIPLY);
  if (!openblas_handle || !find(openblas_handle, "blas_memory_alloc", &take) ||
      !find(openblas_handle, "blas_memory_free", &give))
    return can_map((size_t)threads * ZPR_OPENBLAS_BUFFER) ? 0 : threads * (int64_t)ZPR_OPENBLAS_BUFFER;
  int taken = 0;
  while (taken < threads && can_map(ZPR_OPENBLAS_BUFFER)) buffer[taken++] = take(0);
  for (int i = 0; i < taken; i++) give(buffer[i]);
  return (threads - taken) * (int64_t)ZPR_OPENBLAS_BUFFER;
}

const zpr_library *zpr_openblas(void) {
  if (!tried) open_library();
  tried = true;
  return &library;
}

const zpr_openblas_calls *zpr_openblas_open(void) { return zpr_openblas()->name ? &calls : NULL; }
