/* Products of the emulated GPU, by OpenBLAS. Column-major, as cuBLAS has them. */
#include "emulator.h"
#include <cblas.h>
#include <stdint.h>
#include <string.h>

EMU_EXPORT(cublasCreate_v2, (void **handle));
int cublasCreate_v2(void **handle) {
  static char blas;
  openblas_set_num_threads(1);
  *handle = &blas;
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasDestroy_v2, (void *handle));
int cublasDestroy_v2(void *handle) {
  (void)handle;
  return EMU_SUCCESS;
}

EMU_EXPORT(cublasSetStream_v2, (void *handle, void *stream));
int cublasSetStream_v2(void *handle, void *stream) {
  (void)handle, (void)stream;
  return EMU_SUCCESS;
}

typedef struct product {
  bool f64;
  int trans_a, trans_b, m, n, k, lda, ldb, ldy;
  double alpha, beta;
  const void *a, *b;
  void *y;
} product;

static int run_product(void *work) {
  const product *p = work;
  CBLAS_TRANSPOSE a = p->trans_a ? CblasTrans : CblasNoTrans, b = p->trans_b ? CblasTrans : CblasNoTrans;
  if (p->f64)
    cblas_dgemm(CblasColMajor, a, b, p->m, p->n, p->k, p->alpha, p->a, p->lda, p->b, p->ldb, p->beta, p->y, p->ldy);
  else
    cblas_sgemm(CblasColMajor, a, b, p->m, p->n, p->k, (float)p->alpha, p->a, p->lda, p->b, p->ldb, (float)p->beta,
                p->y, p->ldy);
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
  size_t size = p.f64 ? sizeof(double) : sizeof(float);
  if (!sizes_fit(&p)) return EMU_BLAS_INVALID_VALUE;
  if (p.m == 0 || p.n == 0) return EMU_SUCCESS;
  p.a = emu_host(a, matrix_bytes(p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.lda, size));
  p.b = emu_host(b, matrix_bytes(p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.ldb, size));
  p.y = emu_host(y, matrix_bytes(p.m, p.n, p.ldy, size));
  if (!p.a || !p.b || !p.y) return EMU_BLAS_INVALID_VALUE;
  return emu_later(run_product, &p, sizeof p);
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
  p.f64 = true;
  p.alpha = *alpha;
  p.beta = *beta;
  return multiply(p, a, b, y);
}

/* Only measuring calls it, and nothing is measured here. */
EMU_EXPORT(cublasGemmEx, (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, gpu_pointer a,
                          int type_a, int lda, gpu_pointer b, int type_b, int ldb, const void *beta, gpu_pointer y,
                          int type_y, int ldy, int compute, int algorithm));
int cublasGemmEx(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, gpu_pointer a,
                 int type_a, int lda, gpu_pointer b, int type_b, int ldb, const void *beta, gpu_pointer y, int type_y,
                 int ldy, int compute, int algorithm) {
  (void)handle, (void)trans_a, (void)trans_b, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)type_a, (void)lda;
  (void)b, (void)type_b, (void)ldb, (void)beta, (void)y, (void)type_y, (void)ldy, (void)compute, (void)algorithm;
  return EMU_BLAS_NOT_SUPPORTED;
}
