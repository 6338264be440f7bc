/* Matrix products, behind a table of two functions so that another library can stand in for OpenBLAS.
 *
 * The library runs one thread; this rank's threads share a product by strips of its longer side. OpenBLAS's own threads
 * would spin beside ours on the same cores, and attention kernels call the library from inside a task. */
#include <assert.h>
#include <limits.h>
#include <cblas.h>
#include "blas.h"

typedef struct product {
  bool trans_a, trans_b, accumulate;
  int64_t m, n, k, lda, ldb, ldy;
  const char *a, *b;
  char *y;
  zpk_dtype dtype;
} product;

static void openblas_f32(const product *p) {
  cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans, p->trans_b ? CblasTrans : CblasNoTrans, (int)p->m,
              (int)p->n, (int)p->k, 1, (const float *)(const void *)p->a, (int)p->lda,
              (const float *)(const void *)p->b, (int)p->ldb, p->accumulate ? 1 : 0, (float *)(void *)p->y,
              (int)p->ldy);
}

static void openblas_f64(const product *p) {
  cblas_dgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans, p->trans_b ? CblasTrans : CblasNoTrans, (int)p->m,
              (int)p->n, (int)p->k, 1, (const double *)(const void *)p->a, (int)p->lda,
              (const double *)(const void *)p->b, (int)p->ldb, p->accumulate ? 1 : 0, (double *)(void *)p->y,
              (int)p->ldy);
}

typedef void gemm_fn(const product *p);
static gemm_fn *const gemm[] = {[ZPK_F32] = openblas_f32, [ZPK_F64] = openblas_f64};

void zpr_blas_open(void) { openblas_set_num_threads(1); }

/* Rows [begin, end) of y. */
static void row_strip(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  product p = *(const product *)arg;
  int64_t size = zpk_bytes(p.dtype);
  p.a += begin * (p.trans_a ? 1 : p.lda) * size;
  p.y += begin * p.ldy * size;
  p.m = end - begin;
  gemm[p.dtype](&p);
}

/* Columns [begin, end) of y. */
static void column_strip(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  product p = *(const product *)arg;
  int64_t size = zpk_bytes(p.dtype);
  p.b += begin * (p.trans_b ? p.ldb : 1) * size;
  p.y += begin * size;
  p.n = end - begin;
  gemm[p.dtype](&p);
}

/* Strips are cut at multiples of STRIP, the width that the library's inner kernels like; below SMALL multiply-adds
 * waking another thread costs more than it saves. */
enum { STRIP = 32, SMALL = 64 * 64 * 64 };

void zpr_gemm(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
              const void *b, int64_t ldb, bool accumulate, void *y, int64_t ldy) {
  assert(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX && ldy <= INT_MAX);
  if (m == 0 || n == 0) return;
  product p = {trans_a, trans_b, accumulate, m, n, k, lda, ldb, ldy, a, b, y, c->program->dtype};
  zpr_comm_progress(c);
  if (m * n * k < SMALL)
    gemm[p.dtype](&p);
  else if (m > n)
    zpr_parallel(c, m, STRIP, row_strip, &p);
  else
    zpr_parallel(c, n, STRIP, column_strip, &p);
}

/* ---- experts ---- */

/* Products of one shape: number i reads a and b at i times their strides. */
typedef struct product_list {
  product first;
  int64_t experts, samples;       /* a task is one product of the list, or one expert's sum over the samples */
  int64_t a_step, b_step, y_step; /* bytes from expert to expert; b_step of a weight, the same for all samples */
  bool sums;
} product_list;

static void some_products(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const product_list *list = arg;
  for (int64_t i = begin; i < end; i++) {
    product p = list->first;
    int64_t expert = i % list->experts;
    p.a += i * list->a_step;
    p.b += (list->sums ? i : expert) * list->b_step;
    p.y += i * list->y_step;
    for (int64_t s = 0; s < (list->sums ? list->samples : 1); s++) {
      gemm[p.dtype](&p);
      p.a += list->experts * list->a_step;
      p.b += list->experts * list->b_step;
      p.accumulate = true;
    }
  }
}

void zpr_batched_gemm(zpr *c, bool trans, int64_t samples, int64_t experts, int64_t slots, int64_t n, int64_t k,
                      const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld) {
  int64_t size = zpk_bytes(c->program->dtype);
  product_list list = {
      .first = {false, trans, false, slots, n, k, x_ld, trans ? k : n, y_ld, x, w, y, c->program->dtype},
      .experts = experts,
      .samples = samples,
      .a_step = slots * x_ld * size,
      .b_step = k * n * size,
      .y_step = slots * y_ld * size};
  zpr_comm_progress(c);
  zpr_parallel(c, samples * experts, 1, some_products, &list);
}

void zpr_batched_wgrad(zpr *c, int64_t samples, int64_t experts, int64_t slots, int64_t m, int64_t n, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw) {
  int64_t size = zpk_bytes(c->program->dtype);
  product_list list = {.first = {true, false, accumulate, m, n, slots, lda, ldb, n, a, b, dw, c->program->dtype},
                       .experts = experts,
                       .samples = samples,
                       .a_step = slots * lda * size,
                       .b_step = slots * ldb * size,
                       .y_step = m * n * size,
                       .sums = true};
  zpr_comm_progress(c);
  zpr_parallel(c, experts, 1, some_products, &list);
}
