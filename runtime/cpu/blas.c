/* Matrix products, behind a table of two functions so that another library can stand in for OpenBLAS.
 *
 * The library runs one thread; this rank's threads share a product by strips of its longer side. OpenBLAS's own threads
 * would spin beside ours on the same cores, and attention kernels call the library from inside a task. */
#include <assert.h>
#include <limits.h>
#include <cblas.h>
#include <string.h>
#include "blas.h"

typedef struct product {
  bool trans_a, trans_b, accumulate;
  int64_t m, n, k, lda, ldb, ldy;
  const char *a, *b;
  char *y;
  zpk_dtype dtype;
  /* 16-bit operands: ZPR_PRODUCT_BYTES for each worker; how many products are added up before a result is rounded, and
   * how many bytes their operands are apart. */
  char *tiles;
  int64_t terms, a_term, b_term;
} product;

/* The worker's share of the tiles is for 16-bit operands alone. */
static void openblas_f32(const product *p, int worker) {
  (void)worker;
  cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans, p->trans_b ? CblasTrans : CblasNoTrans, (int)p->m,
              (int)p->n, (int)p->k, 1, (const float *)(const void *)p->a, (int)p->lda,
              (const float *)(const void *)p->b, (int)p->ldb, p->accumulate ? 1 : 0, (float *)(void *)p->y,
              (int)p->ldy);
}

static void openblas_f64(const product *p, int worker) {
  (void)worker;
  cblas_dgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans, p->trans_b ? CblasTrans : CblasNoTrans, (int)p->m,
              (int)p->n, (int)p->k, 1, (const double *)(const void *)p->a, (int)p->lda,
              (const double *)(const void *)p->b, (int)p->ldb, p->accumulate ? 1 : 0, (double *)(void *)p->y,
              (int)p->ldy);
}

/* ---- 16-bit operands: tiles widened to f32, products and sums in f32, every result rounded once ---- */

enum { M = ZPR_PRODUCT_M, N = ZPR_PRODUCT_N, K = ZPR_PRODUCT_K };

/* rows x cols of a matrix to a tile with leading dimension cols. */
static void widen_tile(zpk_dtype dtype, const char *from, int64_t ld, int64_t rows, int64_t cols, float *to) {
  for (int64_t i = 0; i < rows; i++) zpk_widen(dtype, from + i * ld * zpk_bytes(dtype), to + i * cols, cols);
}

static int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

static void one_tile(const product *p, int64_t i, int64_t j, float *tiles) {
  float *a = tiles, *b = a + M * K, *y = b + K * N;
  int64_t m = shorter(M, p->m - i), n = shorter(N, p->n - j), size = zpk_bytes(p->dtype);
  memset(y, 0, (size_t)(m * n) * sizeof *y);
  for (int64_t term = 0; term < p->terms; term++)
    for (int64_t l = 0; l < p->k; l += K) {
      int64_t k = shorter(K, p->k - l);
      widen_tile(p->dtype, p->a + term * p->a_term + (p->trans_a ? l * p->lda + i : i * p->lda + l) * size, p->lda,
                 p->trans_a ? k : m, p->trans_a ? m : k, a);
      widen_tile(p->dtype, p->b + term * p->b_term + (p->trans_b ? j * p->ldb + l : l * p->ldb + j) * size, p->ldb,
                 p->trans_b ? n : k, p->trans_b ? k : n, b);
      cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans, p->trans_b ? CblasTrans : CblasNoTrans, (int)m,
                  (int)n, (int)k, 1, a, (int)(p->trans_a ? m : k), b, (int)(p->trans_b ? k : n), 1, y, (int)n);
    }
  char *to = p->y + (i * p->ldy + j) * size;
  for (int64_t row = 0; row < m; row++)
    (p->accumulate ? zpk_round_add : zpk_round)(p->dtype, y + row * n, to + row * p->ldy * size, n);
}

static void tiles_narrow(const product *p, int worker) {
  float *tiles = (float *)(void *)(p->tiles + worker * ZPR_PRODUCT_BYTES);
  for (int64_t i = 0; i < p->m; i += M)
    for (int64_t j = 0; j < p->n; j += N) one_tile(p, i, j, tiles);
}

typedef void gemm_fn(const product *p, int worker);
static gemm_fn *const gemm[] = {
    [ZPK_F32] = openblas_f32, [ZPK_F64] = openblas_f64, [ZPK_BF16] = tiles_narrow, [ZPK_F16] = tiles_narrow};

static char *tiles_of(zpr *c) { return zpk_is_narrow(c->program->dtype) ? zpr_at(c, c->stage->products) : NULL; }

void zpr_blas_open(void) { openblas_set_num_threads(1); }

/* Rows [begin, end) of y. */
static void row_strip(void *arg, int64_t begin, int64_t end, int worker) {
  product p = *(const product *)arg;
  int64_t size = zpk_bytes(p.dtype);
  p.a += begin * (p.trans_a ? 1 : p.lda) * size;
  p.y += begin * p.ldy * size;
  p.m = end - begin;
  gemm[p.dtype](&p, worker);
}

/* Columns [begin, end) of y. */
static void column_strip(void *arg, int64_t begin, int64_t end, int worker) {
  product p = *(const product *)arg;
  int64_t size = zpk_bytes(p.dtype);
  p.b += begin * (p.trans_b ? p.ldb : 1) * size;
  p.y += begin * size;
  p.n = end - begin;
  gemm[p.dtype](&p, worker);
}

/* Strips are cut at multiples of STRIP, the width that the library's inner kernels like; below SMALL multiply-adds
 * waking another thread costs more than it saves. */
enum { STRIP = 32, SMALL = 64 * 64 * 64 };

void zpr_gemm(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
              const void *b, int64_t ldb, bool accumulate, void *y, int64_t ldy) {
  assert(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX && ldy <= INT_MAX);
  if (m == 0 || n == 0) return;
  product p = {trans_a, trans_b, accumulate, m, n, k, lda, ldb, ldy, a, b, y, c->program->dtype, tiles_of(c), 1, 0, 0};
  zpr_comm_progress(c);
  if (m * n * k < SMALL)
    gemm[p.dtype](&p, 0);
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
  const product_list *list = arg;
  for (int64_t i = begin; i < end; i++) {
    product p = list->first;
    int64_t expert = i % list->experts;
    p.a += i * list->a_step;
    p.b += (list->sums ? i : expert) * list->b_step;
    p.y += i * list->y_step;
    int64_t calls = list->sums ? list->samples : 1;
    if (list->sums && zpk_is_narrow(p.dtype)) { /* in one call, so that the sum is rounded once */
      p.terms = list->samples;
      p.a_term = list->experts * list->a_step;
      p.b_term = list->experts * list->b_step;
      calls = 1;
    }
    for (int64_t s = 0; s < calls; s++) {
      gemm[p.dtype](&p, worker);
      p.a += list->experts * list->a_step;
      p.b += list->experts * list->b_step;
      p.accumulate = true;
    }
  }
}

void zpr_batched_gemm(zpr *c, bool trans, int64_t samples, int64_t experts, int64_t slots, int64_t n, int64_t k,
                      const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld) {
  int64_t size = zpk_bytes(c->program->dtype);
  product_list list = {.first = {false, trans, false, slots, n, k, x_ld, trans ? k : n, y_ld, x, w, y,
                                 c->program->dtype, tiles_of(c), 1, 0, 0},
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
  product_list list = {
      .first = {true, false, accumulate, m, n, slots, lda, ldb, n, a, b, dw, c->program->dtype, tiles_of(c), 1, 0, 0},
      .experts = experts,
      .samples = samples,
      .a_step = slots * lda * size,
      .b_step = slots * ldb * size,
      .y_step = m * n * size,
      .sums = true};
  zpr_comm_progress(c);
  zpr_parallel(c, experts, 1, some_products, &list);
}
