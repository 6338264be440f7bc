/* Products of the emulated GPU, by OpenBLAS. Column-major, as cuBLAS has them. */
#include "emulator.h"
#include <openblas.h>
#include <stdint.h>
#include <stdio.h>
#include <zplan/zpk_narrow.h>

static const zpr_openblas_calls *library; /* from cublasCreate_v2 on */

EMU_EXPORT(cublasCreate_v2, (void **handle));
int cublasCreate_v2(void **handle) {
  static char blas;
  library = zpr_openblas_open();
  if (!library) {
    fprintf(stderr, "the emulated GPU multiplies by OpenBLAS (libopenblas.so.0), which is not on this machine\n");
    return EMU_BLAS_NOT_INITIALIZED;
  }
  *handle = &blas;
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasDestroy_v2, (void *handle));
int cublasDestroy_v2(void *handle) {
  (void)handle;
  return EMU_SUCCESS;
}

/* There is one handle. */
static void *products_stream;

EMU_EXPORT(cublasSetStream_v2, (void *handle, void *stream));
int cublasSetStream_v2(void *handle, void *stream) {
  (void)handle;
  products_stream = stream;
  return EMU_SUCCESS;
}

typedef enum kind { F32, F64, BF16, F16 } kind;

typedef struct product {
  kind kind;
  int trans_a, trans_b, m, n, k, lda, ldb, ldy;
  double alpha, beta;
  const void *a, *b;
  void *y;
} product;

static int run_product(void *work) {
  const product *p = work;
  int order = CBLAS_COLUMN_MAJOR;
  int a = p->trans_a ? CBLAS_TRANS : CBLAS_NO_TRANS, b = p->trans_b ? CBLAS_TRANS : CBLAS_NO_TRANS;
  if (p->kind == F64)
    library->dgemm(order, a, b, p->m, p->n, p->k, p->alpha, p->a, p->lda, p->b, p->ldb, p->beta, p->y, p->ldy);
  else
    library->sgemm(order, a, b, p->m, p->n, p->k, (float)p->alpha, p->a, p->lda, p->b, p->ldb, (float)p->beta, p->y,
                   p->ldy);
  return EMU_SUCCESS;
}

/* ---- 16-bit operands: plain loops, sums in f32, every result rounded once ---- */

static float widen(kind format, uint16_t x) { return format == F16 ? zpk_widen_f16(x) : zpk_widen_bf16(x); }

static uint16_t narrow(kind format, float x) { return format == F16 ? zpk_round_f16(x) : zpk_round_bf16(x); }

static int run_narrow(void *work) {
  const product *p = work;
  const uint16_t *a = p->a, *b = p->b;
  uint16_t *y = p->y;
  /* from one multiply-add to the next, and from one row of a, one column of b to the next */
  int64_t a_step = p->trans_a ? 1 : p->lda, a_row = p->trans_a ? p->lda : 1;
  int64_t b_step = p->trans_b ? p->ldb : 1, b_col = p->trans_b ? 1 : p->ldb;
  for (int64_t j = 0; j < p->n; j++)
    for (int64_t i = 0; i < p->m; i++) {
      float sum = 0;
      for (int64_t l = 0; l < p->k; l++)
        sum += widen(p->kind, a[i * a_row + l * a_step]) * widen(p->kind, b[j * b_col + l * b_step]);
      uint16_t *to = y + j * p->ldy + i;
      float before = p->beta == 0 ? 0 : (float)p->beta * widen(p->kind, *to);
      *to = narrow(p->kind, (float)p->alpha * sum + before);
    }
  return EMU_SUCCESS;
}

/* From the first to the last element of a column-major matrix. */
static size_t matrix_bytes(int rows, int cols, int ld, size_t size) {
  return cols > 0 && rows > 0 ? ((size_t)(cols - 1) * (size_t)ld + (size_t)rows) * size : 0;
}

static bool sizes_fit(const product *p) {
  int rows_a = p->trans_a ? p->k : p->m, rows_b = p->trans_b ? p->n : p->k;
  return p->m >= 0 && p->n >= 0 && p->k >= 0 && p->lda >= rows_a && p->ldb >= rows_b && p->ldy >= p->m && p->lda > 0 &&
         p->ldb > 0 && p->ldy > 0;
}

static int multiply(product p, gpu_pointer a, gpu_pointer b, gpu_pointer y) {
  static const size_t sizes[] = {
      [F32] = sizeof(float), [F64] = sizeof(double), [BF16] = sizeof(uint16_t), [F16] = sizeof(uint16_t)};
  size_t size = sizes[p.kind];
  if (!sizes_fit(&p)) return EMU_BLAS_INVALID_VALUE;
  if (p.m == 0 || p.n == 0) return EMU_SUCCESS;
  p.a = emu_host(a, matrix_bytes(p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.lda, size));
  p.b = emu_host(b, matrix_bytes(p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.ldb, size));
  p.y = emu_host(y, matrix_bytes(p.m, p.n, p.ldy, size));
  if (!p.a || !p.b || !p.y) return EMU_BLAS_INVALID_VALUE;
  emu_count(EMU_PRODUCTS);
  return emu_later(products_stream, p.kind == BF16 || p.kind == F16 ? run_narrow : run_product, &p, sizeof p);
}

EMU_EXPORT(cublasSgemm_v2, (void *handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha,
                            gpu_pointer a, int lda, gpu_pointer b, int ldb, const float *beta, gpu_pointer y, int ldy));
int cublasSgemm_v2(void *handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha, gpu_pointer a,
                   int lda, gpu_pointer b, int ldb, const float *beta, gpu_pointer y, int ldy) {
  (void)handle;
  product p = {.trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldy = ldy};
  p.alpha = (double)*alpha;
  p.beta = (double)*beta;
  return multiply(p, a, b, y);
}

EMU_EXPORT(cublasDgemm_v2,
           (void *handle, int trans_a, int trans_b, int m, int n, int k, const double *alpha, gpu_pointer a, int lda,
            gpu_pointer b, int ldb, const double *beta, gpu_pointer y, int ldy));
int cublasDgemm_v2(void *handle, int trans_a, int trans_b, int m, int n, int k, const double *alpha, gpu_pointer a,
                   int lda, gpu_pointer b, int ldb, const double *beta, gpu_pointer y, int ldy) {
  (void)handle;
  product p = {.trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldy = ldy};
  p.kind = F64;
  p.alpha = *alpha;
  p.beta = *beta;
  return multiply(p, a, b, y);
}

/* In bf16 and f16 alone; measuring calls it with other types, too, and nothing is measured here. */
EMU_EXPORT(cublasGemmEx, (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, gpu_pointer a,
                          int type_a, int lda, gpu_pointer b, int type_b, int ldb, const void *beta, gpu_pointer y,
                          int type_y, int ldy, int compute, int algorithm));
int cublasGemmEx(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, gpu_pointer a,
                 int type_a, int lda, gpu_pointer b, int type_b, int ldb, const void *beta, gpu_pointer y, int type_y,
                 int ldy, int compute, int algorithm) {
  (void)handle, (void)algorithm;
  bool known = (type_a == GPU_BF16 || type_a == GPU_F16) && type_b == type_a && type_y == type_a;
  if (!known || compute != GPU_COMPUTE_F32) return EMU_BLAS_NOT_SUPPORTED;
  product p = {.trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldy = ldy};
  p.kind = type_a == GPU_F16 ? F16 : BF16;
  p.alpha = (double)*(const float *)alpha;
  p.beta = (double)*(const float *)beta;
  return multiply(p, a, b, y);
}

/* ---- many products of one shape ---- */

static int multiply_all(product p, gpu_pointer a, gpu_pointer b, gpu_pointer y, const long long steps[3], int count) {
  static const unsigned sizes[] = {
      [F32] = sizeof(float), [F64] = sizeof(double), [BF16] = sizeof(uint16_t), [F16] = sizeof(uint16_t)};
  if (count < 0) return EMU_BLAS_INVALID_VALUE;
  int result = EMU_SUCCESS;
  for (int i = 0; i < count && result == EMU_SUCCESS; i++)
    result = multiply(p, a + (gpu_pointer)(i * steps[0]) * sizes[p.kind],
                      b + (gpu_pointer)(i * steps[1]) * sizes[p.kind], y + (gpu_pointer)(i * steps[2]) * sizes[p.kind]);
  return result;
}

EMU_EXPORT(cublasSgemmStridedBatched,
           (void *handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha, gpu_pointer a, int lda,
            long long a_step, gpu_pointer b, int ldb, long long b_step, const float *beta, gpu_pointer y, int ldy,
            long long y_step, int count));
int cublasSgemmStridedBatched(void *handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha,
                              gpu_pointer a, int lda, long long a_step, gpu_pointer b, int ldb, long long b_step,
                              const float *beta, gpu_pointer y, int ldy, long long y_step, int count) {
  (void)handle;
  product p = {.trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldy = ldy};
  p.alpha = (double)*alpha;
  p.beta = (double)*beta;
  return multiply_all(p, a, b, y, (long long[]){a_step, b_step, y_step}, count);
}

EMU_EXPORT(cublasDgemmStridedBatched,
           (void *handle, int trans_a, int trans_b, int m, int n, int k, const double *alpha, gpu_pointer a, int lda,
            long long a_step, gpu_pointer b, int ldb, long long b_step, const double *beta, gpu_pointer y, int ldy,
            long long y_step, int count));
int cublasDgemmStridedBatched(void *handle, int trans_a, int trans_b, int m, int n, int k, const double *alpha,
                              gpu_pointer a, int lda, long long a_step, gpu_pointer b, int ldb, long long b_step,
                              const double *beta, gpu_pointer y, int ldy, long long y_step, int count) {
  (void)handle;
  product p = {.trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldy = ldy};
  p.kind = F64;
  p.alpha = *alpha;
  p.beta = *beta;
  return multiply_all(p, a, b, y, (long long[]){a_step, b_step, y_step}, count);
}

/* In 16 bits alone, as cublasGemmEx. */
EMU_EXPORT(cublasGemmStridedBatchedEx,
           (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, gpu_pointer a, int type_a,
            int lda, long long a_step, gpu_pointer b, int type_b, int ldb, long long b_step, const void *beta,
            gpu_pointer y, int type_y, int ldy, long long y_step, int count, int compute, int algorithm));
int cublasGemmStridedBatchedEx(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                               gpu_pointer a, int type_a, int lda, long long a_step, gpu_pointer b, int type_b, int ldb,
                               long long b_step, const void *beta, gpu_pointer y, int type_y, int ldy, long long y_step,
                               int count, int compute, int algorithm) {
  (void)handle, (void)algorithm;
  bool known =
      (type_a == GPU_BF16 || type_a == GPU_F16) && type_b == type_a && type_y == type_a && compute == GPU_COMPUTE_F32;
  if (!known) return EMU_BLAS_NOT_SUPPORTED;
  product p = {.trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldy = ldy};
  p.kind = type_a == GPU_F16 ? F16 : BF16;
  p.alpha = (double)*(const float *)alpha;
  p.beta = (double)*(const float *)beta;
  return multiply_all(p, a, b, y, (long long[]){a_step, b_step, y_step}, count);
}
