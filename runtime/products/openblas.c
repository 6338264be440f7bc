/* OpenBLAS: opened at run time, because it reads OPENBLAS_CORETYPE while it is loaded and would otherwise choose its
 * kernels before main. One thread a call: its own threads would spin beside ours on the same cores. */
#define _GNU_SOURCE
#include "openblas.h"
#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char variable[] = "OPENBLAS_CORETYPE";

static zpr_openblas_calls calls;
static zpr_library library;
static bool tried;

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
  library.name = "OpenBLAS";
}

const zpr_library *zpr_openblas(void) {
  if (!tried) open_library();
  tried = true;
  return &library;
}

const zpr_openblas_calls *zpr_openblas_open(void) { return zpr_openblas()->name ? &calls : NULL; }
