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
  p->compute = compute;
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasLtMatmulDescSetAttribute, (void *of, int number, const void *value, size_t bytes));
int cublasLtMatmulDescSetAttribute(void *of, int number, const void *value, size_t bytes) {
  static const attribute known[] = {ATTRIBUTE(GPU_PRODUCT_TRANS_A, product, trans_a),
                                    ATTRIBUTE(GPU_PRODUCT_TRANS_B, product, trans_b)};
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
  uint32_t alignment[4], unused[8];
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
  for (int i = 0; i < 4; i++) {
    const int64_t numbers[] = {of[i]->type, of[i]->rows, of[i]->cols, of[i]->ld, of[i]->step, of[i]->count};
    h = hash(h, numbers, sizeof numbers);
  }
  return h;
}

/* a: [m,k], b: [k,n] behind their transposition, c and d: [m,n]; all of one type. */
static bool sizes_fit(const product *p, const layout *const of[4]) {
  const layout *a = of[0], *b = of[1], *c = of[2], *d = of[3];
  int64_t m = p->trans_a ? a->cols : a->rows, k = p->trans_a ? a->rows : a->cols;
  bool fit = (p->trans_b ? b->cols : b->rows) == k && (p->trans_b ? b->rows : b->cols) == d->cols && m == d->rows &&
             c->rows == d->rows && c->cols == d->cols;
  for (int i = 0; i < 4; i++) fit = fit && of[i]->type == d->type && of[i]->count == d->count && of[i]->count >= 1;
  return fit && (p->compute == GPU_COMPUTE_F64) == (d->type == GPU_F64);
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
  algorithm chosen = {.product = hash_product(of, layouts), .workspace_bytes = w->workspace_bytes};
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
  if (wrong) return refuse(EMU_BLAS_INVALID_VALUE, wrong);
  if (workspace_bytes < chosen.workspace_bytes || workspace % 256 != 0 || !emu_host(workspace, workspace_bytes))
    return refuse(EMU_BLAS_INVALID_VALUE, "a workspace that is shorter than preferred, or in no allocation");
  emu_count(EMU_PRODUCTS);
  for (int i = 0; i < layouts[3]->count; i++) {
    gpu_pointer from[4];
    for (int k = 0; k < 4; k++)
      from[k] = at[k] + (gpu_pointer)(i * layouts[k]->step) * (gpu_pointer)emu_type_bytes(layouts[k]->type);
    emu_product one = {.type = layouts[3]->type,
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
                       .workspace = emu_host(workspace, 0),
                       .workspace_bytes = workspace_bytes};
    int result = emu_later(stream, emu_run_product, &one, sizeof one);
    if (result != EMU_SUCCESS) return result;
  }
  return EMU_SUCCESS;
}
