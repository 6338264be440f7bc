/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt of the emulated GPU: descriptors, one algorithm, and products, which blas_run.c computes. It knows the
 * attributes that the runtime sets and refuses all others, and finds what cuBLASLt would leave undefined: an algorithm
 * that was chosen for another product, operands that are aligned less than it was told, a result over an operand. */
#include "blas.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Says why, and which status. */
static int refuse(int status, const char *why) {
  fprintf(stderr, "the emulated cuBLASLt refuses a call: %s\n", why);
  return status;
}

EMU_EXPORT(cublasLtGetProperty, (int which, int *value));
int cublasLtGetProperty(int which, int *value) {
  *value = which == 0 ? 13 : 0;
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasLtCreate, (void **handle));
int cublasLtCreate(void **handle) {
  static char blas;
  if (!emu_products_open()) {
    fprintf(stderr, "the emulated GPU multiplies by OpenBLAS (libopenblas.so.0), which is not on this machine\n");
    return EMU_BLAS_NOT_INITIALIZED;
  }
  *handle = &blas;
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasLtDestroy, (void *handle));
int cublasLtDestroy(void *handle) {
  (void)handle;
  return EMU_SUCCESS;
}

/* ---- descriptors ---- */

typedef struct layout {
  int type;
  int64_t rows, cols, ld, step;
  int32_t count;
} layout;

typedef struct product {
  int compute;
  int32_t trans_a, trans_b;
  uint32_t epilogue;
  gpu_pointer bias, aux;
  int64_t aux_ld;
} product;

typedef struct preference {
  uint64_t workspace_bytes;
  uint32_t reductions, alignment[4];
} preference;

/* An attribute's place in its descriptor. */
typedef struct attribute {
  int number;
  size_t place, bytes;
} attribute;
#define ATTRIBUTE(number, type, member)                                                                                \
  { number, offsetof(type, member), sizeof(((type *)0)->member) }

static int set(void *descriptor, const attribute *known, size_t n, int number, const void *value, size_t bytes) {
  for (size_t i = 0; i < n; i++) {
    if (known[i].number != number) continue;
    if (known[i].bytes != bytes) return refuse(EMU_BLAS_INVALID_VALUE, "an attribute of another size");
    memcpy((char *)descriptor + known[i].place, value, bytes);
    return EMU_SUCCESS;
  }
  return refuse(EMU_BLAS_INVALID_VALUE, "an attribute that it does not have");
}

EMU_EXPORT(cublasLtMatrixLayoutCreate, (void **out, int type, uint64_t rows, uint64_t cols, int64_t ld));
int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (emu_type_bytes(type) == 0) return refuse(EMU_BLAS_NOT_SUPPORTED, "a type of elements");
  if (rows == 0 || cols == 0 || ld < (int64_t)rows) return refuse(EMU_BLAS_INVALID_VALUE, "the sizes of a matrix");
  layout *l = *out = calloc(1, sizeof *l);
  if (!l) return EMU_BLAS_ALLOC_FAILED;
  *l = (layout){.type = type, .rows = (int64_t)rows, .cols = (int64_t)cols, .ld = ld, .count = 1};
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasLtMatrixLayoutSetAttribute, (void *of, int number, const void *value, size_t bytes));
int cublasLtMatrixLayoutSetAttribute(void *of, int number, const void *value, size_t bytes) {
  static const attribute known[] = {ATTRIBUTE(GPU_LAYOUT_BATCH_COUNT, layout, count),
                                    ATTRIBUTE(GPU_LAYOUT_BATCH_STEP, layout, step)};
  return set(of, known, sizeof known / sizeof *known, number, value, bytes);
}

EMU_EXPORT(cublasLtMatmulDescCreate, (void **out, int compute, int scale));
int cublasLtMatmulDescCreate(void **out, int compute, int scale) {
  bool known = (compute == GPU_COMPUTE_F32 && scale == GPU_F32) || (compute == GPU_COMPUTE_F64 && scale == GPU_F64);
  if (!known) return refuse(EMU_BLAS_NOT_SUPPORTED, "a type of sums");
  product *p = *out = calloc(1, sizeof *p);
  if (!p) return EMU_BLAS_ALLOC_FAILED;
  *p = (product){.compute = compute, .epilogue = GPU_EPILOGUE_NONE};
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasLtMatmulDescSetAttribute, (void *of, int number, const void *value, size_t bytes));
int cublasLtMatmulDescSetAttribute(void *of, int number, const void *value, size_t bytes) {
  static const attribute known[] = {
      ATTRIBUTE(GPU_PRODUCT_TRANS_A, product, trans_a),   ATTRIBUTE(GPU_PRODUCT_TRANS_B, product, trans_b),
      ATTRIBUTE(GPU_PRODUCT_EPILOGUE, product, epilogue), ATTRIBUTE(GPU_PRODUCT_BIAS, product, bias),
      ATTRIBUTE(GPU_PRODUCT_AUX, product, aux),           ATTRIBUTE(GPU_PRODUCT_AUX_LD, product, aux_ld)};
  return set(of, known, sizeof known / sizeof *known, number, value, bytes);
}

/* As in cuBLASLt: every way to add parts, and 256 bytes. */
EMU_EXPORT(cublasLtMatmulPreferenceCreate, (void **out));
int cublasLtMatmulPreferenceCreate(void **out) {
  preference *p = *out = calloc(1, sizeof *p);
  if (!p) return EMU_BLAS_ALLOC_FAILED;
  *p = (preference){.reductions = 7, .alignment = {256, 256, 256, 256}};
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasLtMatmulPreferenceSetAttribute, (void *of, int number, const void *value, size_t bytes));
int cublasLtMatmulPreferenceSetAttribute(void *of, int number, const void *value, size_t bytes) {
  static const attribute known[] = {ATTRIBUTE(GPU_PREFER_WORKSPACE_BYTES, preference, workspace_bytes),
                                    ATTRIBUTE(GPU_PREFER_REDUCTIONS, preference, reductions),
                                    ATTRIBUTE(GPU_PREFER_ALIGNMENT_A, preference, alignment[0]),
                                    ATTRIBUTE(GPU_PREFER_ALIGNMENT_B, preference, alignment[1]),
                                    ATTRIBUTE(GPU_PREFER_ALIGNMENT_C, preference, alignment[2]),
                                    ATTRIBUTE(GPU_PREFER_ALIGNMENT_D, preference, alignment[3])};
  return set(of, known, sizeof known / sizeof *known, number, value, bytes);
}

#define RELEASES(name)                                                                                                 \
  EMU_EXPORT(name, (void *of));                                                                                        \
  int name(void *of) {                                                                                                 \
    free(of);                                                                                                          \
    return EMU_SUCCESS;                                                                                                \
  }
RELEASES(cublasLtMatrixLayoutDestroy)
RELEASES(cublasLtMatmulDescDestroy)
RELEASES(cublasLtMatmulPreferenceDestroy)

/* ---- the algorithm ---- */

/* What lies in a gpu_algorithm: for which product it is. */
typedef struct algorithm {
  uint64_t product, workspace_bytes;
  uint32_t alignment[4], bias_alignment, aux_alignment, unused[6];
} algorithm;
_Static_assert(sizeof(algorithm) == sizeof(gpu_algorithm), "as long as that of cuBLASLt");

static uint64_t hash(uint64_t seed, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) seed = (seed ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
  return seed;
}

static uint64_t hash_product(const product *p, const layout *const of[4]) {
  uint64_t h = UINT64_C(14695981039346656037);
  h = hash(h, &p->compute, sizeof p->compute);
  h = hash(hash(h, &p->trans_a, sizeof p->trans_a), &p->trans_b, sizeof p->trans_b);
  h = hash(hash(h, &p->epilogue, sizeof p->epilogue), &p->aux_ld, sizeof p->aux_ld);
  for (int i = 0; i < 4; i++) {
    const int64_t numbers[] = {of[i]->type, of[i]->rows, of[i]->cols, of[i]->ld, of[i]->step, of[i]->count};
    h = hash(h, numbers, sizeof numbers);
  }
  return h;
}

/* a: [m,k], b: [k,n] after their transposition, c and d: [m,n]; all of one type, or a and b have 16 bits, c and d
 * f32. */
static bool sizes_fit(const product *p, const layout *const of[4]) {
  const layout *a = of[0], *b = of[1], *c = of[2], *d = of[3];
  int64_t m = p->trans_a ? a->cols : a->rows, k = p->trans_a ? a->rows : a->cols;
  bool fit = (p->trans_b ? b->cols : b->rows) == k && (p->trans_b ? b->rows : b->cols) == d->cols && m == d->rows &&
             c->rows == d->rows && c->cols == d->cols;
  for (int i = 0; i < 4; i++) fit = fit && of[i]->count == d->count && of[i]->count >= 1;
  bool one_type = a->type == d->type, sums = emu_type_bytes(a->type) == 2 && d->type == GPU_F32;
  fit = fit && a->type == b->type && c->type == d->type && (one_type || sums);
  return fit && (p->compute == GPU_COMPUTE_F64) == (d->type == GPU_F64);
}

static bool takes_bias(const product *p) { return p->epilogue != GPU_EPILOGUE_NONE; }
static bool takes_aux(const product *p) {
  return p->epilogue == GPU_EPILOGUE_GELU_AUX_BIAS || p->epilogue == GPU_EPILOGUE_DGELU_BGRAD;
}

/* NULL, or what it does not support: f64 has no epilogues, nor have batches here. */
static const char *epilogue_wrong(const product *p, const layout *d) {
  static const uint32_t known[] = {GPU_EPILOGUE_NONE,        GPU_EPILOGUE_BIAS,   GPU_EPILOGUE_GELU_AUX_BIAS,
                                   GPU_EPILOGUE_DGELU_BGRAD, GPU_EPILOGUE_BGRADA, GPU_EPILOGUE_BGRADB};
  bool is_known = false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known = is_known || p->epilogue == known[i];
  if (!is_known) return "an epilogue that it does not have";
  if (takes_bias(p) && (p->compute == GPU_COMPUTE_F64 || d->count > 1)) return "an epilogue in f64 or of a batch";
  if (takes_bias(p) != (p->bias != 0) || takes_aux(p) != (p->aux != 0))
    return "an epilogue without its vector or matrix";
  if (takes_aux(p) && (p->aux_ld % 8 != 0 || p->aux_ld < d->rows)) return "the leading dimension of gelu's matrix";
  return NULL;
}

static uint32_t alignment_of(gpu_pointer at) {
  uint32_t bytes = 1;
  while (bytes < 256 && at % (2 * bytes) == 0) bytes *= 2;
  return bytes;
}

EMU_EXPORT(cublasLtMatmulAlgoGetHeuristic, (void *handle, void *of, void *a, void *b, void *c, void *d, void *wanted,
                                            int most, gpu_heuristic *results, int *n));
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *of, void *a, void *b, void *c, void *d, void *wanted, int most,
                                   gpu_heuristic *results, int *n) {
  (void)handle;
  const layout *const layouts[] = {a, b, c, d};
  const preference *w = wanted;
  *n = 0;
  if (most < 1 || !sizes_fit(of, layouts)) return refuse(EMU_BLAS_INVALID_VALUE, "matrices that do not go together");
  if (w->reductions != GPU_REDUCE_COMPUTE_TYPE)
    return refuse(EMU_BLAS_NOT_SUPPORTED, "sums that may be rounded to the type of the result between parts");
  const product *p = of;
  const char *wrong = epilogue_wrong(p, d);
  if (wrong) return refuse(EMU_BLAS_NOT_SUPPORTED, wrong);
  algorithm chosen = {.product = hash_product(of, layouts),
                      .workspace_bytes = w->workspace_bytes,
                      .bias_alignment = alignment_of(p->bias),
                      .aux_alignment = alignment_of(p->aux)};
  memcpy(chosen.alignment, w->alignment, sizeof chosen.alignment);
  results[0] = (gpu_heuristic){.workspace_bytes = w->workspace_bytes, .waves = 1};
  memcpy(&results[0].algorithm, &chosen, sizeof chosen);
  *n = 1;
  return EMU_SUCCESS;
}

/* All that can be said of it is its number. */
EMU_EXPORT(cublasLtMatmulAlgoConfigGetAttribute,
           (const gpu_algorithm *of, int number, void *value, size_t bytes, size_t *written));
int cublasLtMatmulAlgoConfigGetAttribute(const gpu_algorithm *of, int number, void *value, size_t bytes,
                                         size_t *written) {
  (void)of;
  int32_t zero = 0;
  if (number < 0 || number >= GPU_ALGORITHM_SETTINGS) return refuse(EMU_BLAS_INVALID_VALUE, "a setting");
  if (bytes > sizeof zero) return refuse(EMU_BLAS_INVALID_VALUE, "a setting of another size");
  memcpy(value, &zero, bytes);
  *written = bytes;
  return EMU_SUCCESS;
}

/* ---- what is loaded: kernels for a product, which one that was never there asks for ---- */

enum { MOST_PRODUCTS = 4096 };

/* False, with a message, where it is too late to load them. */
static bool is_loaded(uint64_t chosen, const layout *d, int64_t k) {
  static uint64_t known[MOST_PRODUCTS];
  static int n;
  char text[96];
  for (int i = 0; i < n; i++)
    if (known[i] == chosen) return true;
  snprintf(text, sizeof text, "a product of the shape %lld x %lld x %lld", (long long)d->rows, (long long)d->cols,
           (long long)k);
  if (emu_loads_too_late(text)) return false;
  if (n < MOST_PRODUCTS) known[n++] = chosen;
  return true;
}

/* ---- products ---- */

/* From the first to the last element of all matrices. */
static size_t bytes_of(const layout *l) {
  int64_t elements = (l->count - 1) * l->step + (l->cols - 1) * l->ld + l->rows;
  return (size_t)elements * emu_type_bytes(l->type);
}

static bool overlap(gpu_pointer a, size_t a_bytes, gpu_pointer b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/* NULL, or what is wrong with where the operands are. */
static const char *places_wrong(const algorithm *chosen, const layout *const of[4], const gpu_pointer at[4],
                                bool adds) {
  for (int i = 0; i < 4; i++) {
    if (i == 2 && !adds) continue;
    if (!emu_host(at[i], bytes_of(of[i]))) return "an operand that lies in no allocation";
    if (chosen->alignment[i] == 0 || at[i] % chosen->alignment[i] != 0) return "an operand that is aligned less";
    bool in_place = i == 2 && at[i] == at[3] && of[i]->ld == of[3]->ld && of[i]->step == of[3]->step;
    if (i < 3 && !in_place && overlap(at[i], bytes_of(of[i]), at[3], bytes_of(of[3])))
      return "a result over one of its operands";
  }
  return NULL;
}

/* NULL, or what is wrong with where the epilogue's vector and matrix are. */
static const char *epilogue_places_wrong(const algorithm *chosen, const product *p, const layout *d) {
  size_t size = emu_type_bytes(d->type),
         bias_bytes = size * (size_t)(p->epilogue == GPU_EPILOGUE_BGRADB ? d->cols : d->rows),
         aux_bytes = size * (size_t)((d->cols - 1) * p->aux_ld + d->rows);
  if (takes_bias(p) && (p->bias % chosen->bias_alignment != 0 || !emu_host(p->bias, bias_bytes)))
    return "a bias that lies in no allocation, or is aligned less";
  if (takes_aux(p) && (p->aux % chosen->aux_alignment != 0 || !emu_host(p->aux, aux_bytes)))
    return "gelu's matrix that lies in no allocation, or is aligned less";
  return NULL;
}

static double scale_of(const product *p, const void *scale) {
  return p->compute == GPU_COMPUTE_F64 ? *(const double *)scale : (double)*(const float *)scale;
}

EMU_EXPORT(cublasLtMatmul,
           (void *handle, void *of, const void *alpha, gpu_pointer a, void *a_layout, gpu_pointer b, void *b_layout,
            const void *beta, gpu_pointer c, void *c_layout, gpu_pointer d, void *d_layout,
            const gpu_algorithm *algorithm_, gpu_pointer workspace, size_t workspace_bytes, void *stream));
int cublasLtMatmul(void *handle, void *of, const void *alpha, gpu_pointer a, void *a_layout, gpu_pointer b,
                   void *b_layout, const void *beta, gpu_pointer c, void *c_layout, gpu_pointer d, void *d_layout,
                   const gpu_algorithm *algorithm_, gpu_pointer workspace, size_t workspace_bytes, void *stream) {
  (void)handle;
  const product *p = of;
  const layout *const layouts[] = {a_layout, b_layout, c_layout, d_layout};
  const gpu_pointer at[] = {a, b, c, d};
  algorithm chosen;
  if (!algorithm_) return refuse(EMU_BLAS_INVALID_VALUE, "a product without an algorithm");
  memcpy(&chosen, algorithm_, sizeof chosen);
  double beta_value = scale_of(p, beta);
  if (!sizes_fit(p, layouts) || chosen.product != hash_product(p, layouts))
    return refuse(EMU_BLAS_INVALID_VALUE, "an algorithm of another product");
  const char *wrong = places_wrong(&chosen, layouts, at, beta_value != 0);
  if (!wrong) wrong = epilogue_places_wrong(&chosen, p, layouts[3]);
  if (wrong) return refuse(EMU_BLAS_INVALID_VALUE, wrong);
  if (workspace_bytes < chosen.workspace_bytes || workspace % 256 != 0 || !emu_host(workspace, workspace_bytes))
    return refuse(EMU_BLAS_INVALID_VALUE, "a workspace that is shorter than preferred, or in no allocation");
  if (!is_loaded(chosen.product, d_layout, p->trans_a ? layouts[0]->rows : layouts[0]->cols))
    return EMU_BLAS_EXECUTION_FAILED;
  emu_count(EMU_PRODUCTS);
  for (int i = 0; i < layouts[3]->count; i++) {
    gpu_pointer from[4];
    for (int k = 0; k < 4; k++)
      from[k] = at[k] + (gpu_pointer)(i * layouts[k]->step) * (gpu_pointer)emu_type_bytes(layouts[k]->type);
    emu_product one = {.type = layouts[0]->type,
                       .result = layouts[3]->type,
                       .trans_a = p->trans_a,
                       .trans_b = p->trans_b,
                       .m = layouts[3]->rows,
                       .n = layouts[3]->cols,
                       .k = p->trans_a ? layouts[0]->rows : layouts[0]->cols,
                       .a_ld = layouts[0]->ld,
                       .b_ld = layouts[1]->ld,
                       .c_ld = layouts[2]->ld,
                       .d_ld = layouts[3]->ld,
                       .alpha = scale_of(p, alpha),
                       .beta = beta_value,
                       .a = emu_host(from[0], 0),
                       .b = emu_host(from[1], 0),
                       .c = emu_host(from[2], 0),
                       .d = emu_host(from[3], 0),
                       .epilogue = (int)p->epilogue,
                       .bias = takes_bias(p) ? emu_host(p->bias, 0) : NULL,
                       .aux = takes_aux(p) ? emu_host(p->aux, 0) : NULL,
                       .aux_ld = p->aux_ld,
                       .workspace = emu_host(workspace, 0),
                       .workspace_bytes = workspace_bytes};
    int result = emu_later(stream, emu_run_product, &one, sizeof one);
    if (result != EMU_SUCCESS) return result;
  }
  return EMU_SUCCESS;
}
