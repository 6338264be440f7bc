/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products over the threads of a rank. A library runs one thread a call; this rank's threads share a product by
 * strips of its longer side. Which library multiplies is decided once, when the device is opened. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include "blas.h"
#include "muon.h"
#include "openblas.h"
#include "product.h"
#include <string.h>

/* The libraries that this process multiplies with, from zpr_blas_open on. */
static zpr_products in_use;
static atomic_bool out_of_memory;

static const zpr_library *library_of(zpk_dtype dtype) {
  if (dtype == ZPK_F64) return in_use.f64;
  return dtype == ZPK_BF16 && in_use.bf16 ? in_use.bf16 : in_use.f32;
}

/* Only those are opened that may be used: either costs a start some milliseconds. */
static zpr_products choose(zpk_dtype dtype, const char *only) {
  static const zpr_library absent;
  unsigned processor = zpr_processor_features(), widths = processor & (ZPR_AVX2 | ZPR_AVX512);
  bool wants_onednn = dtype != ZPK_F64 && !(only && strcmp(only, "openblas") == 0);
  const zpr_library *onednn = wants_onednn ? zpr_onednn() : &absent;
  bool settled = wants_onednn && onednn->name && widths != 0 && (widths & ~onednn->features) == 0;
  bool wants_openblas = dtype == ZPK_F64 || (!settled && !(only && strcmp(only, "onednn") == 0));
  return zpr_choose_products(processor, wants_openblas ? zpr_openblas() : &absent, onednn, only);
}

void zpr_blas_open(zpr *c) {
  zpr_error error = {0};
  const char *only = c->state->options.products;
  zpk_dtype dtype = c->program->dtype;
  in_use = choose(dtype, only);
  if (dtype == ZPK_F64 ? !in_use.f64 : !in_use.f32)
    zpr_error_set(&error, "Z0854", "no library of matrix products is on this machine: %s",
                  dtype == ZPK_F64                      ? "OpenBLAS (libopenblas.so.0) is needed for f64"
                  : only && strcmp(only, "onednn") == 0 ? "--products onednn needs oneDNN (libdnnl.so.2 or 3)"
                  : only                                ? "--products openblas needs OpenBLAS (libopenblas.so.0)"
                                                        : "OpenBLAS (libopenblas.so.0) or oneDNN (libdnnl.so.2 or 3)");
  zpr_agree(c, &error);
  bool multiplies = in_use.f64 && dtype == ZPK_F64;
  if (dtype != ZPK_F64) multiplies = strcmp(in_use.f32->name, "OpenBLAS") == 0;
  int64_t missing = multiplies ? zpr_openblas_reserve(zpr_threads(c)) : 0;
  if (missing > 0)
    zpr_error_set(&error, "Z0822",
                  "OpenBLAS needs %lld bytes more for %d thread%s than the system gives: is address space limited "
                  "(ulimit -v)? Fewer threads (--threads) or oneDNN (--products onednn) need less",
                  (long long)missing, zpr_threads(c), zpr_threads(c) == 1 ? "" : "s");
  zpr_agree(c, &error);
}

void zpr_blas_describe(zpk_dtype dtype, char *text, size_t size) {
  const zpr_library *library = library_of(dtype);
  snprintf(text, size, "%s %s %s%s", library->name, library->version, library->kernels,
           zpk_is_narrow(dtype) && library != in_use.bf16 ? " in f32" : "");
}

void zpr_blas_warning(zpk_dtype dtype, char *text, size_t size) {
  zpr_narrow_kernels(zpr_processor_features(), library_of(dtype), text, size);
}

static void multiply(const zpr_product *p, int worker) {
  bool done = zpk_is_narrow(p->dtype) ? zpr_narrow_product(p, worker)
              : p->dtype == ZPK_F64   ? p->use->f64->f64(&p->of)
                                      : p->use->f32->f32(&p->of);
  if (!done) atomic_store(&out_of_memory, true);
}

static void check_memory(zpr *c) {
  if (atomic_load(&out_of_memory))
    zpr_fail(c, "Z0822", "%s could not multiply: it has no memory", library_of(c->program->dtype)->name);
}

static char *tiles_of(zpr *c) { return zpk_is_narrow(c->program->dtype) ? zpr_at(c, c->stage->products) : NULL; }

static zpr_product product_of(zpr *c, zpr_operands of) {
  return (zpr_product){.of = of, .dtype = c->program->dtype, .use = &in_use, .tiles = tiles_of(c), .terms = 1};
}

static int64_t result_bytes(const zpr_product *p) { return zpk_bytes(p->gradient ? zpk_real(p->dtype) : p->dtype); }

/* Rows [begin, end) of y. */
static void row_strip(void *arg, int64_t begin, int64_t end, int worker) {
  zpr_product p = *(const zpr_product *)arg;
  int64_t size = zpk_bytes(p.dtype);
  if (p.a_kept)
    p.a_column += begin;
  else
    p.of.a = (const char *)p.of.a + begin * (p.of.trans_a ? 1 : p.of.lda) * size;
  p.of.y = (char *)p.of.y + begin * p.of.ldy * result_bytes(&p);
  p.of.m = end - begin;
  multiply(&p, worker);
}

/* Columns [begin, end) of y. */
static void column_strip(void *arg, int64_t begin, int64_t end, int worker) {
  zpr_product p = *(const zpr_product *)arg;
  int64_t size = zpk_bytes(p.dtype);
  if (p.b_kept)
    p.b_column += begin;
  else
    p.of.b = (const char *)p.of.b + begin * (p.of.trans_b ? p.of.ldb : 1) * size;
  p.of.y = (char *)p.of.y + begin * result_bytes(&p);
  p.of.n = end - begin;
  multiply(&p, worker);
}

/* Strips are cut at multiples of STRIP, the width that the library's inner kernels like, and not through blocks of
 * 8-bit operands; below SMALL multiply-adds waking another thread costs more than it saves. */
enum { STRIP = 32, SMALL = 64 * 64 * 64 };

static int64_t strip_of(const zpr_product *p, zpk_float8 format) {
  int64_t across = p->float8 ? zpk_float8_block_of(format).across : 0;
  return across > STRIP ? across : STRIP;
}

static void share_out(zpr *c, const zpr_product *p) {
  const zpr_operands *o = &p->of;
  assert(o->m >= 0 && o->n >= 0 && o->k >= 0);
  assert(o->lda >= (o->trans_a ? o->m : o->k) && o->ldb >= (o->trans_b ? o->k : o->n) && o->ldy >= o->n);
  assert(o->m <= INT_MAX && o->n <= INT_MAX && o->k <= INT_MAX && o->lda <= INT_MAX && o->ldb <= INT_MAX);
  assert(o->ldy <= INT_MAX);
  if (o->m == 0 || o->n == 0) return;
  zpr_comm_progress(c);
  if (o->m * o->n * o->k < SMALL)
    multiply(p, 0);
  else if (o->m > o->n)
    zpr_parallel(c, o->m, strip_of(p, p->a_format), row_strip, (void *)(uintptr_t)p);
  else
    zpr_parallel(c, o->n, strip_of(p, p->b_format), column_strip, (void *)(uintptr_t)p);
  check_memory(c);
}

void zpr_gemm(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
              const void *b, int64_t ldb, bool accumulate, void *y, int64_t ldy) {
  assert(!accumulate || !zpk_is_narrow(c->program->dtype));
  zpr_product p = product_of(c, (zpr_operands){trans_a, trans_b, accumulate, m, n, k, lda, ldb, ldy, a, b, y});
  share_out(c, &p);
}

void zpr_wgrad(zpr *c, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb,
               bool accumulate, void *dw) {
  zpr_product p = product_of(c, (zpr_operands){true, false, accumulate, m, n, k, lda, ldb, n, a, b, dw});
  p.gradient = true;
  share_out(c, &p);
}

/* ---- operands of 8 bits ---- */

typedef struct largest_task {
  const uint16_t *x; /* bf16 */
  int64_t cols, ld;
  float most[ZPR_MAX_WORKERS]; /* of the rows that a worker has seen */
} largest_task;

static void some_rows(void *arg, int64_t begin, int64_t end, int worker) {
  largest_task *t = arg;
  for (int64_t i = begin; i < end; i++)
    t->most[worker] = fmaxf(t->most[worker], zpk_largest_bf16(t->x + i * t->ld, t->cols));
}

/* The scale of a matrix, whatever the number of threads: the largest of all is exact. Those of blocks are taken in
 * tiles. */
static float scale_of(zpr *c, zpk_float8 format, const void *x, int64_t rows, int64_t cols, int64_t ld) {
  enum { GRAIN = 64 };
  if (zpk_float8_block_of(format).along) return 1;
  largest_task task = {.x = x, .cols = cols, .ld = ld};
  zpr_parallel(c, rows, GRAIN, some_rows, &task);
  for (int i = 1; i < ZPR_MAX_WORKERS; i++) task.most[0] = fmaxf(task.most[0], task.most[i]);
  return zpk_float8_scale(format, task.most[0]);
}

static void share_out_float8(zpr *c, zpr_product *p, zpk_float8 a_format, zpk_float8 b_format) {
  const zpr_operands *o = &p->of;
  assert(p->dtype == ZPK_BF16);
  p->float8 = true;
  p->a_format = a_format;
  p->b_format = b_format;
  if (!p->a_kept) p->a_scale = scale_of(c, a_format, o->a, o->trans_a ? o->k : o->m, o->trans_a ? o->m : o->k, o->lda);
  if (!p->b_kept) p->b_scale = scale_of(c, b_format, o->b, o->trans_b ? o->n : o->k, o->trans_b ? o->k : o->n, o->ldb);
  share_out(c, p);
}

void zpr_gemm_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, bool trans_a, bool trans_b, int64_t m, int64_t n,
                     int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb, void *y, int64_t ldy) {
  zpr_product p = product_of(c, (zpr_operands){trans_a, trans_b, false, m, n, k, lda, ldb, ldy, a, b, y});
  share_out_float8(c, &p, a_format, b_format);
}

void zpr_wgrad_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, int64_t m, int64_t n, int64_t k, const void *a,
                      int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw) {
  zpr_product p = product_of(c, (zpr_operands){true, false, accumulate, m, n, k, lda, ldb, n, a, b, dw});
  p.gradient = true;
  share_out_float8(c, &p, a_format, b_format);
}

typedef struct keep_task {
  zpk_kept_float8 to;
  const uint16_t *x; /* bf16 */
  int64_t ld, block;
} keep_task;

/* Rows in blocks, so that no scale is of two tasks. */
static void keep_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  const keep_task *t = arg;
  (void)worker;
  int64_t last = end * t->block < t->to.rows ? end * t->block : t->to.rows;
  zpk_keep_float8(&t->to, begin * t->block, last, t->x, t->ld);
}

void zpr_keep_float8(zpr *c, zpk_float8 format, int64_t rows, int64_t cols, const void *x, int64_t ld, void *kept) {
  enum { ROWS = 32 };
  assert(c->program->dtype == ZPK_BF16 && rows >= 0 && cols >= 1 && ld >= cols);
  int64_t along = zpk_float8_block_of(format).along;
  keep_task task = {zpk_kept_float8_at(format, rows, cols, kept), x, ld, along > 0 ? along : ROWS};
  if (along == 0) zpk_set_float8_scale(&task.to, scale_of(c, format, x, rows, cols, ld));
  zpr_parallel(c, (rows + task.block - 1) / task.block, 1, keep_blocks, &task);
}

void zpr_wgrad_kept_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, zpr_kept_side kept, int64_t m, int64_t n,
                           int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate,
                           void *dw) {
  bool left = kept == ZPR_KEPT_A;
  zpr_product p = product_of(c, (zpr_operands){true, false, accumulate, m, n, k, lda, ldb, n, a, b, dw});
  /* read only, whatever the operand's type says */
  zpk_kept_float8 operand = left ? zpk_kept_float8_at(a_format, k, m, (void *)(uintptr_t)a)
                                 : zpk_kept_float8_at(b_format, k, n, (void *)(uintptr_t)b);
  assert(left ? lda == m : ldb == n);
  *(left ? &p.a_kept : &p.b_kept) = &operand;
  p.gradient = true;
  share_out_float8(c, &p, a_format, b_format);
}

void zpr_gemm_real(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
                   const void *b, int64_t ldb, void *y, int64_t ldy) {
  zpr_product p = product_of(c, (zpr_operands){trans_a, trans_b, false, m, n, k, lda, ldb, ldy, a, b, y});
  p.dtype = zpk_real(p.dtype);
  share_out(c, &p);
}

/* ---- experts ---- */

/* How two operands are rounded to 8 bits. */
typedef struct rounding {
  zpk_float8 a, b;
} rounding;

/* NULL: they stay as they are. */
static void round_operands(zpr_product *p, const rounding *formats) {
  if (!formats) return;
  assert(p->dtype == ZPK_BF16);
  p->float8 = true;
  p->a_format = formats->a;
  p->b_format = formats->b;
}

/* The scale of an expert's operand, whose parts are `step` bytes apart. */
static float expert_scale(zpk_float8 format, const char *x, int64_t rows, int64_t cols, int64_t ld, int64_t parts,
                          int64_t step) {
  float most = 0;
  if (zpk_float8_block_of(format).along) return 1;
  for (int64_t part = 0; part < parts; part++)
    for (int64_t i = 0; i < rows; i++)
      most = fmaxf(most, zpk_largest_bf16((const uint16_t *)(const void *)(x + part * step) + i * ld, cols));
  return zpk_float8_scale(format, most);
}

/* Experts have scales of their own: of the matrix, and of their rows in all samples. */
static void scale_operands(zpr_product *p, int64_t samples) {
  const zpr_operands *o = &p->of;
  p->a_scale = expert_scale(p->a_format, o->a, o->trans_a ? o->k : o->m, o->trans_a ? o->m : o->k, o->lda,
                            p->a_term ? samples : 1, p->a_term);
  p->b_scale = expert_scale(p->b_format, o->b, o->trans_b ? o->n : o->k, o->trans_b ? o->k : o->n, o->ldb,
                            p->b_term ? samples : 1, p->b_term);
}

/* Products of one shape: number i reads a and b at i times their strides. */
typedef struct product_list {
  zpr_product first;
  int64_t experts, samples;       /* a task is one product of the list, or all of an expert */
  int64_t a_step, b_step, y_step; /* bytes from expert to expert; b_step of a weight, the same for all samples */
  bool sums;                      /* over the samples */
} product_list;

/* From the first product of an expert to that of its next sample. */
static void next_sample(const product_list *list, zpr_product *p) {
  p->of.a = (const char *)p->of.a + list->experts * list->a_step;
  if (list->sums) p->of.b = (const char *)p->of.b + list->experts * list->b_step;
  if (!list->sums) p->of.y = (char *)p->of.y + list->experts * list->y_step;
  p->of.accumulate |= list->sums;
}

static zpr_product product_at(const product_list *list, int64_t i) {
  zpr_product p = list->first;
  p.of.a = (const char *)p.of.a + i * list->a_step;
  p.of.b = (const char *)p.of.b + (list->sums ? i : i % list->experts) * list->b_step;
  p.of.y = (char *)p.of.y + i * list->y_step;
  return p;
}

static void some_products(void *arg, int64_t begin, int64_t end, int worker) {
  for (int64_t i = begin; i < end; i++) {
    zpr_product p = product_at(arg, i);
    multiply(&p, worker);
  }
}

static void all_of_some_experts(void *arg, int64_t begin, int64_t end, int worker) {
  const product_list *list = arg;
  for (int64_t e = begin; e < end; e++) {
    zpr_product p = product_at(list, e);
    int64_t calls = list->samples;
    p.a_term = list->experts * list->a_step;
    p.b_term = list->sums ? list->experts * list->b_step : 0;
    if (p.float8) scale_operands(&p, list->samples);
    if (list->sums && zpk_is_narrow(p.dtype)) { /* in one call, so that the sum is rounded once */
      p.terms = list->samples;
      calls = 1;
    }
    for (int64_t s = 0; s < calls; s++) {
      multiply(&p, worker);
      next_sample(list, &p);
    }
  }
}

static void multiply_list(zpr *c, product_list *list, const rounding *formats) {
  round_operands(&list->first, formats);
  zpr_comm_progress(c);
  if (list->sums || formats)
    zpr_parallel(c, list->experts, 1, all_of_some_experts, list);
  else
    zpr_parallel(c, list->samples * list->experts, 1, some_products, list);
  check_memory(c);
}

static void batched_gemm(zpr *c, const rounding *formats, bool trans, int64_t samples, int64_t experts, int64_t slots,
                         int64_t n, int64_t k, const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld) {
  assert(samples >= 0 && experts >= 1 && slots >= 1);
  assert(n >= 1 && k >= 1 && x_ld >= k && y_ld >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  zpr_operands first = {false, trans, false, slots, n, k, x_ld, trans ? k : n, y_ld, x, w, y};
  product_list list = {.first = product_of(c, first),
                       .experts = experts,
                       .samples = samples,
                       .a_step = slots * x_ld * size,
                       .b_step = k * n * size,
                       .y_step = slots * y_ld * size};
  multiply_list(c, &list, formats);
}

void zpr_batched_gemm(zpr *c, bool trans, int64_t samples, int64_t experts, int64_t slots, int64_t n, int64_t k,
                      const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld) {
  batched_gemm(c, NULL, trans, samples, experts, slots, n, k, x, x_ld, w, y, y_ld);
}

void zpr_batched_gemm_float8(zpr *c, zpk_float8 x_format, zpk_float8 w_format, bool trans, int64_t samples,
                             int64_t experts, int64_t slots, int64_t n, int64_t k, const void *x, int64_t x_ld,
                             const void *w, void *y, int64_t y_ld) {
  const rounding formats = {x_format, w_format};
  batched_gemm(c, &formats, trans, samples, experts, slots, n, k, x, x_ld, w, y, y_ld);
}

static void batched_wgrad(zpr *c, const rounding *formats, int64_t samples, int64_t experts, int64_t slots, int64_t m,
                          int64_t n, const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate,
                          void *dw) {
  assert(samples >= 0 && experts >= 1 && slots >= 1);
  assert(m >= 1 && n >= 1 && lda >= m && ldb >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  zpr_operands first = {true, false, accumulate, m, n, slots, lda, ldb, n, a, b, dw};
  product_list list = {.first = product_of(c, first),
                       .experts = experts,
                       .samples = samples,
                       .a_step = slots * lda * size,
                       .b_step = slots * ldb * size,
                       .y_step = m * n * zpk_real_bytes(c->program->dtype),
                       .sums = true};
  list.first.gradient = true;
  multiply_list(c, &list, formats);
}

void zpr_batched_wgrad(zpr *c, int64_t samples, int64_t experts, int64_t slots, int64_t m, int64_t n, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw) {
  batched_wgrad(c, NULL, samples, experts, slots, m, n, a, lda, b, ldb, accumulate, dw);
}

void zpr_batched_wgrad_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, int64_t samples, int64_t experts,
                              int64_t slots, int64_t m, int64_t n, const void *a, int64_t lda, const void *b,
                              int64_t ldb, bool accumulate, void *dw) {
  const rounding formats = {a_format, b_format};
  batched_wgrad(c, &formats, samples, experts, slots, m, n, a, lda, b, ldb, accumulate, dw);
}

/* ---- experts of sorted rows ---- */

/* A task is an expert's rows, of x and y or of both operands of a sum. */
typedef struct ragged_list {
  zpr_product first;
  const int32_t *begin; /* of every expert */
  int64_t experts, rows;
  int64_t a_row, b_step, y_step; /* bytes of a row of a; of b and y from row to row, or from expert to expert */
  bool sums;
} ragged_list;

static void clear_sum(const zpr_product *p) {
  if (!p->of.accumulate) memset(p->of.y, 0, (size_t)(p->of.m * p->of.n * result_bytes(p)));
}

static void some_experts(void *arg, int64_t begin, int64_t end, int worker) {
  const ragged_list *list = arg;
  for (int64_t e = begin; e < end; e++) {
    zpr_product p = list->first;
    int64_t row = list->begin[e], n = (e + 1 < list->experts ? list->begin[e + 1] : list->rows) - row;
    assert(row >= 0 && n >= 0);
    p.of.a = (const char *)p.of.a + row * list->a_row;
    p.of.b = (const char *)p.of.b + (list->sums ? row : e) * list->b_step;
    p.of.y = (char *)p.of.y + (list->sums ? e : row) * list->y_step;
    *(list->sums ? &p.of.k : &p.of.m) = n;
    if (p.float8 && n > 0) scale_operands(&p, 1);
    if (n > 0)
      multiply(&p, worker);
    else if (list->sums)
      clear_sum(&p);
  }
}

static void ragged_gemm(zpr *c, const rounding *formats, bool trans, int64_t rows, int64_t room, int64_t experts,
                        int64_t n, int64_t k, const void *x, int64_t x_ld, const void *w, const int32_t *first, void *y,
                        int64_t y_ld) {
  assert(rows >= 0 && rows <= room && room <= INT_MAX && experts >= 1 && n >= 1 && k >= 1 && x_ld >= k && y_ld >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  zpr_operands of = {false, trans, false, rows, n, k, x_ld, trans ? k : n, y_ld, x, w, y};
  ragged_list list = {product_of(c, of), first, experts, rows, x_ld * size, k * n * size, y_ld * size, false};
  round_operands(&list.first, formats);
  zpr_comm_progress(c);
  zpr_parallel(c, experts, 1, some_experts, &list);
  for (int64_t i = rows; i < room; i++) memset((char *)y + i * y_ld * size, 0, (size_t)(n * size));
  check_memory(c);
}

void zpr_ragged_gemm(zpr *c, bool trans, int64_t rows, int64_t room, int64_t experts, int64_t n, int64_t k,
                     const void *x, int64_t x_ld, const void *w, const int32_t *first, void *y, int64_t y_ld) {
  ragged_gemm(c, NULL, trans, rows, room, experts, n, k, x, x_ld, w, first, y, y_ld);
}

void zpr_ragged_gemm_float8(zpr *c, zpk_float8 x_format, zpk_float8 w_format, bool trans, int64_t rows, int64_t room,
                            int64_t experts, int64_t n, int64_t k, const void *x, int64_t x_ld, const void *w,
                            const int32_t *first, void *y, int64_t y_ld) {
  const rounding formats = {x_format, w_format};
  ragged_gemm(c, &formats, trans, rows, room, experts, n, k, x, x_ld, w, first, y, y_ld);
}

static void ragged_wgrad(zpr *c, const rounding *formats, int64_t rows, int64_t experts, int64_t m, int64_t n,
                         const void *a, int64_t lda, const void *b, int64_t ldb, const int32_t *first, bool accumulate,
                         void *dw) {
  assert(rows >= 0 && rows <= INT_MAX && experts >= 1 && m >= 1 && n >= 1 && lda >= m && ldb >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  zpr_operands of = {true, false, accumulate, m, n, rows, lda, ldb, n, a, b, dw};
  ragged_list list = {
      product_of(c, of), first, experts, rows, lda * size, ldb * size, m * n * zpk_real_bytes(c->program->dtype), true};
  list.first.gradient = true;
  round_operands(&list.first, formats);
  zpr_comm_progress(c);
  zpr_parallel(c, experts, 1, some_experts, &list);
  check_memory(c);
}

void zpr_ragged_wgrad(zpr *c, int64_t rows, int64_t experts, int64_t m, int64_t n, const void *a, int64_t lda,
                      const void *b, int64_t ldb, const int32_t *first, bool accumulate, void *dw) {
  ragged_wgrad(c, NULL, rows, experts, m, n, a, lda, b, ldb, first, accumulate, dw);
}

void zpr_ragged_wgrad_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, int64_t rows, int64_t experts, int64_t m,
                             int64_t n, const void *a, int64_t lda, const void *b, int64_t ldb, const int32_t *first,
                             bool accumulate, void *dw) {
  const rounding formats = {a_format, b_format};
  ragged_wgrad(c, &formats, rows, experts, m, n, a, lda, b, ldb, first, accumulate, dw);
}
