/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN: opened at run time where the machine has it, no header of it is needed. It goes by the processor's features
 * itself. Its gemm calls have been the same since version 2; that of bf16 is exported and not in its headers, so it may
 * be missing. One thread a call: its OpenMP would start a team for each of ours. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "products.h"

/* As in oneDNN's dnnl_types.h. */
typedef struct version {
  int major, minor, patch;
  const char *hash;
  unsigned cpu_runtime, gpu_runtime;
} version;
enum { SUCCESS = 0, RUNTIME_SEQUENTIAL = 1, RUNTIME_OPENMP = 2, OLDEST = 2 };
enum { ISA_AVX2 = 0x7, ISA_AVX512_CORE = 0x27, ISA_AVX512_CORE_BF16 = 0xe7 }; /* sets of bits */

typedef int gemm_f32(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                     int64_t lda, const float *b, int64_t ldb, float beta, float *y, int64_t ldy);
typedef int gemm_bf16(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha, const uint16_t *a,
                      int64_t lda, const uint16_t *b, int64_t ldb, float beta, float *y, int64_t ldy);

static gemm_f32 *sgemm;
static gemm_bf16 *bf16gemm;
static void (*omp_set_num_threads)(int); /* NULL: the library has no threads */
static zpr_library library;
static bool tried;

static bool find(void *handle, const char *name, void *function) {
  void *address = dlsym(handle, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

/* OpenMP keeps the number for every thread of the program apart. */
static void one_thread(void) {
  static _Thread_local bool told;
  if (told || !omp_set_num_threads) return;
  omp_set_num_threads(1);
  told = true;
}

/* Without a single product to add up it leaves y as it is. */
static bool is_empty(const zpr_operands *p) {
  if (p->k > 0) return false;
  for (int64_t i = 0; i < p->m && !p->accumulate; i++)
    memset((float *)p->y + i * p->ldy, 0, (size_t)p->n * sizeof(float));
  return true;
}

static bool product_f32(const zpr_operands *p) {
  if (is_empty(p)) return true;
  one_thread();
  return sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n, p->k, 1, p->a, p->lda, p->b, p->ldb,
               p->accumulate ? 1 : 0, p->y, p->ldy) == SUCCESS;
}

static bool product_bf16(const zpr_operands *p) {
  if (is_empty(p)) return true;
  one_thread();
  return bf16gemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n, p->k, 1, p->a, p->lda, p->b, p->ldb,
                  p->accumulate ? 1 : 0, p->y, p->ldy) == SUCCESS;
}

static void describe(const version *v, unsigned isa) {
  snprintf(library.version, sizeof library.version, "%d.%d.%d", v->major, v->minor, v->patch);
  const char *kernels = "sse41";
  if ((isa & ISA_AVX2) == ISA_AVX2) library.features |= ZPR_AVX2, kernels = "avx2";
  if ((isa & ISA_AVX512_CORE) == ISA_AVX512_CORE) library.features |= ZPR_AVX512, kernels = "avx512_core";
  if ((isa & ISA_AVX512_CORE_BF16) == ISA_AVX512_CORE_BF16)
    library.features |= ZPR_AVX512_BF16, kernels = "avx512_core_bf16";
  library.features &= zpr_processor_features(); /* where there are no kernels for a processor it says 0 */
  snprintf(library.kernels, sizeof library.kernels, "%s", isa ? kernels : "plain");
}

static void open_library(void) {
  static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2", NULL};
  void *handle = NULL;
  for (int i = 0; names[i] && !handle; i++) handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  const version *(*get_version)(void);
  unsigned (*get_isa)(void);
  if (!handle || !find(handle, "dnnl_version", &get_version) || !find(handle, "dnnl_get_effective_cpu_isa", &get_isa) ||
      !find(handle, "dnnl_sgemm", &sgemm))
    return;
  const version *v = get_version();
  if (v->major < OLDEST) return;
  if (v->cpu_runtime == RUNTIME_OPENMP) {
    if (!find(handle, "omp_set_num_threads", &omp_set_num_threads)) return; /* looks into what it depends on, too */
  } else if (v->cpu_runtime != RUNTIME_SEQUENTIAL) {
    return; /* other runtimes have threads that nobody here can hold */
  }
  describe(v, get_isa());
  library.variable = "ONEDNN_MAX_CPU_ISA";
  library.f32 = product_f32;
  if ((library.features & ZPR_AVX512_BF16) && find(handle, "dnnl_gemm_bf16bf16f32", &bf16gemm))
    library.bf16 = product_bf16;
  library.name = "oneDNN";
}

const zpr_library *zpr_onednn(void) {
  if (!tried) open_library();
  tried = true;
  return &library;
}
