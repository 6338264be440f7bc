/* SPDX-License-Identifier: Apache-2.0 */
/* Products of operands that are rounded to 8 bits, against f64 sums of operands that are rounded by the formats'
 * definitions: scales of whole tensors and of blocks, which end where operands do, all transpositions, one and several
 * threads, gradients of a linear layer, experts in slots and in sorted rows. Gradients with a kept operand against
 * those without, to the bit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include "internal.h"
#include "narrow_testing.h"

static double value(int64_t i) { return ldexp((double)((i * 7919) % 101) / 101 - 0.5, (int)(i % 23) - 14); }

static uint16_t *matrix(int64_t count, int64_t salt) {
  uint16_t *x = malloc((size_t)count * sizeof *x);
  for (int64_t i = 0; i < count; i++) x[i] = narrow_of(ZPK_BF16, value(i + salt));
  return x;
}

typedef struct rule {
  double most;
  int bits, least;
  int64_t along, across; /* of a block; 0: the whole matrix */
} rule;
static const rule rules[] = {[ZPK_E4M3] = {448, 3, -6, 0, 0},
                             [ZPK_E5M2] = {57344, 2, -14, 0, 0},
                             [ZPK_E4M3_1X32] = {448, 3, -6, 32, 1},
                             [ZPK_E4M3_1X128] = {448, 3, -6, 128, 1},
                             [ZPK_E4M3_128X128] = {448, 3, -6, 128, 128}};

/* The least power of two that brings the largest number of a block into the format, and the nearest number of a grid
 * whose step is a power of two: rint rounds ties to even. */
static void round_block(const rule *r, const uint16_t *x, int64_t rows, int64_t cols, int64_t ld, double *y) {
  double largest = 0, scale = 0x1p-100;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) largest = fmax(largest, fabs(wide_of(ZPK_BF16, x[i * ld + j])));
  while (largest > r->most * scale) scale *= 2;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      double scaled = wide_of(ZPK_BF16, x[i * ld + j]) / scale;
      int exponent = scaled == 0 ? r->least : ilogb(scaled);
      double step = ldexp(1, (exponent > r->least ? exponent : r->least) - r->bits);
      y[i * ld + j] = scale * step * rint(scaled / step);
    }
}

/* down: sums go down the columns. */
static double *rounded(zpk_float8 format, bool down, const uint16_t *x, int64_t rows, int64_t cols, int64_t ld) {
  const rule *r = &rules[format];
  int64_t height = r->along == 0 ? rows
                   : down        ? r->along
                                 : r->across,
          width = r->along == 0 ? cols
                  : down        ? r->across
                                : r->along;
  double *y = malloc((size_t)(rows * ld) * sizeof *y);
  for (int64_t i = 0; i < rows; i += height)
    for (int64_t j = 0; j < cols; j += width) {
      int64_t m = rows - i < height ? rows - i : height, n = cols - j < width ? cols - j : width;
      round_block(r, x + i * ld + j, m, n, ld, y + i * ld + j);
    }
  return y;
}

/* share: half a unit of bf16, in which results are stored; gradients are f32. 1e-5: f32 sums of 300 terms in whatever
 * order are off by at most 300 * 2^-24 of the terms' sizes together, 1.8e-5, and half of that where errors do not all
 * agree. */
static void expect_near(double got, double want, double size, double share) {
  cr_assert(fabs(got - want) <= share * fabs(want) + 1e-5 * size, "%.9g, not %.9g", got, want);
}

static void check(zpr *c, bool ta, bool tb, zpk_float8 af, zpk_float8 bf) {
  enum { M = 150, N = 140, K = 300 };
  int64_t a_rows = ta ? K : M, a_cols = ta ? M : K, b_rows = tb ? N : K, b_cols = tb ? K : N;
  int64_t lda = a_cols + 3, ldb = b_cols + 2, ldy = N + 5;
  uint16_t *a = matrix(a_rows * lda, 1), *b = matrix(b_rows * ldb, 5), *y = malloc((size_t)(M * ldy) * sizeof *y);
  zpr_gemm_float8(c, af, bf, ta, tb, M, N, K, a, lda, b, ldb, y, ldy);
  double *ra = rounded(af, ta, a, a_rows, a_cols, lda), *rb = rounded(bf, !tb, b, b_rows, b_cols, ldb);
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < N; j++) {
      double want = 0, size = 0;
      for (int64_t e = 0; e < K; e++) {
        double term = ra[ta ? e * lda + i : i * lda + e] * rb[tb ? j * ldb + e : e * ldb + j];
        want += term;
        size += fabs(term);
      }
      expect_near(wide_of(ZPK_BF16, y[i * ldy + j]), want, size, 0x1p-8);
    }
  free(a), free(b), free(y), free(ra), free(rb);
}

static void check_gradient(zpr *c, zpk_float8 af, zpk_float8 bf, bool accumulate) {
  enum { M = 48, N = 64, K = 270, LDA = M + 3, LDB = N + 2 };
  uint16_t *a = matrix(K * LDA, 1), *b = matrix(K * LDB, 5);
  float dw[M * N];
  for (int i = 0; i < M * N; i++) dw[i] = (float)value(i);
  zpr_wgrad_float8(c, af, bf, M, N, K, a, LDA, b, LDB, accumulate, dw);
  double *ra = rounded(af, true, a, K, M, LDA), *rb = rounded(bf, true, b, K, N, LDB);
  for (int64_t i = 0; i < M * N; i++) {
    double want = accumulate ? (double)(float)value(i) : 0, size = fabs(want);
    for (int64_t e = 0; e < K; e++) {
      double term = ra[e * LDA + i / N] * rb[e * LDB + i % N];
      want += term;
      size += fabs(term);
    }
    expect_near((double)dw[i], want, size, 0);
  }
  free(a), free(b), free(ra), free(rb);
}

/* The gradient with one operand that was kept in 8 bits is that of the operands in 16, to the bit; what is kept has so
 * many bytes, and none after them is written. */
static void check_kept(zpr *c, zpk_float8 af, zpk_float8 bf, zpr_kept_side side) {
  enum { M = 290, N = 150, K = 300, LDA = M + 3, LDB = N + 2, GUARD = 64 };
  bool left = side == ZPR_KEPT_A;
  int64_t cols = left ? M : N, ld = left ? LDA : LDB, groups[] = {[ZPK_E4M3_1X32] = 10, [ZPK_E4M3_1X128] = 3};
  zpk_float8 format = left ? af : bf;
  int64_t bytes = K * cols + (format == ZPK_E4M3 ? 4 : groups[format] * cols);
  cr_assert_eq(zpk_float8_bytes(format, K, cols), bytes);
  uint16_t *a = matrix(K * LDA, 1), *b = matrix(K * LDB, 5);
  uint8_t *kept = malloc((size_t)bytes + GUARD);
  float *want = malloc(sizeof *want * M * N), *got = malloc(sizeof *got * M * N);
  memset(kept, 0xA5, (size_t)bytes + GUARD);
  zpr_keep_float8(c, format, K, cols, left ? a : b, ld, kept);
  for (int i = 0; i < GUARD; i++) cr_assert_eq(kept[bytes + i], 0xA5);
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    for (int i = 0; i < M * N; i++) got[i] = want[i] = (float)value(i);
    zpr_wgrad_float8(c, af, bf, M, N, K, a, LDA, b, LDB, accumulate, want);
    zpr_wgrad_kept_float8(c, af, bf, side, M, N, K, left ? (void *)kept : a, left ? M : LDA, left ? (void *)b : kept,
                          left ? LDB : N, accumulate, got);
    cr_assert_arr_eq(got, want, sizeof *got * M * N);
  }
  free(a), free(b), free(kept), free(want), free(got);
}

/* ---- experts: every matrix and its rows have scales of their own ---- */

enum { EXPERTS = 3, SAMPLES = 2, EK = 48, EN = 64 };

/* Rows that an expert has, each in a place of a buffer, of `part` rows in a row: of a sample, or all. */
typedef struct rows_of {
  const int *at;
  int n, part;
} rows_of;

/* An expert's rows, one after the other, as they are rounded: with one scale, or in blocks of a part. */
static double *rounded_rows(zpk_float8 format, bool down, const uint16_t *x, const rows_of *rows, int cols) {
  uint16_t *own = malloc(sizeof *own * (size_t)(rows->n * cols + 1));
  double *y = malloc(sizeof *y * (size_t)(rows->n * cols + 1));
  for (int i = 0; i < rows->n; i++) memcpy(own + i * cols, x + rows->at[i] * cols, sizeof *own * (size_t)cols);
  int part = rules[format].along == 0 ? rows->n : rows->part;
  for (int i = 0; i < rows->n; i += part) {
    double *of = rounded(format, down, own + i * cols, part, cols, cols);
    memcpy(y + i * cols, of, sizeof *y * (size_t)(part * cols));
    free(of);
  }
  free(own);
  return y;
}

/* y = x w of an expert's rows, w [EK, EN], or turned [EN, EK]. */
static void expect_rows_of(zpk_float8 xf, zpk_float8 wf, bool trans, const uint16_t *x, const uint16_t *w,
                           const uint16_t *y, const rows_of *rows) {
  double *rx = rounded_rows(xf, false, x, rows, EK),
         *rw = rounded(wf, !trans, w, trans ? EN : EK, trans ? EK : EN, trans ? EK : EN);
  for (int i = 0; i < rows->n; i++)
    for (int j = 0; j < EN; j++) {
      double want = 0, size = 0;
      for (int e = 0; e < EK; e++) {
        double term = rx[i * EK + e] * rw[trans ? j * EK + e : e * EN + j];
        want += term;
        size += fabs(term);
      }
      expect_near(wide_of(ZPK_BF16, y[rows->at[i] * EN + j]), want, size, 0x1p-8);
    }
  free(rx), free(rw);
}

/* dw [EK, EN] (+)= a' b over an expert's rows. */
static void expect_sum_of(zpk_float8 af, zpk_float8 bf, const uint16_t *a, const uint16_t *b, const float *dw,
                          const rows_of *rows, bool accumulate) {
  double *ra = rounded_rows(af, true, a, rows, EK), *rb = rounded_rows(bf, true, b, rows, EN);
  for (int i = 0; i < EK * EN; i++) {
    double want = accumulate ? (double)(float)value(i) : 0, size = fabs(want);
    for (int e = 0; e < rows->n; e++) {
      double term = ra[e * EK + i / EN] * rb[e * EN + i % EN];
      want += term;
      size += fabs(term);
    }
    expect_near((double)dw[i], want, size, 0);
  }
  free(ra), free(rb);
}

/* One expert's rows are so much smaller than the others' that a scale of all rows would round them to 0. */
static uint16_t *rows_apart(const int *expert, int rows, int cols, int salt) {
  uint16_t *x = matrix(rows * cols, salt);
  for (int i = 0; i < rows * cols; i++)
    if (expert[i / cols] == 1) x[i] = narrow_of(ZPK_BF16, ldexp(wide_of(ZPK_BF16, x[i]), -24));
  return x;
}

/* sorted: rows, one expert after the other; else slots of every sample. */
static void check_experts(zpr *c, zpk_float8 xf, zpk_float8 wf, zpk_float8 gf, bool sorted) {
  enum { SLOTS = 40, ROWS = SAMPLES * EXPERTS * SLOTS, ROOM = ROWS + 5, MATRIX = EK * EN };
  static const int32_t first[EXPERTS] = {0, 150, 150 + 90};
  int expert[ROOM] = {0}, at[EXPERTS][ROWS];
  rows_of rows[EXPERTS] = {{NULL}};
  for (int i = 0; i < ROWS; i++) {
    int e = sorted ? (i >= first[1]) + (i >= first[2]) : i / SLOTS % EXPERTS;
    expert[i] = e;
    at[e][rows[e].n++] = i;
  }
  for (int e = 0; e < EXPERTS; e++) rows[e].at = at[e], rows[e].part = sorted ? rows[e].n : SLOTS;
  uint16_t *x = rows_apart(expert, ROOM, EK, 1), *g = rows_apart(expert, ROOM, EN, 9), *w = matrix(EXPERTS * MATRIX, 5),
           *y = malloc(sizeof *y * ROOM * EN);
  float dw[EXPERTS * MATRIX];
  for (int trans = 0; trans < 2; trans++) {
    if (sorted)
      zpr_ragged_gemm_float8(c, xf, wf, trans, ROWS, ROOM, EXPERTS, EN, EK, x, EK, w, first, y, EN);
    else
      zpr_batched_gemm_float8(c, xf, wf, trans, SAMPLES, EXPERTS, SLOTS, EN, EK, x, EK, w, y, EN);
    for (int e = 0; e < EXPERTS; e++) expect_rows_of(xf, wf, trans, x, w + e * MATRIX, y, &rows[e]);
    for (int i = ROWS * EN; i < ROOM * EN && sorted; i++) cr_assert_eq(y[i], 0);
  }
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    for (int i = 0; i < EXPERTS * MATRIX; i++) dw[i] = (float)value(i % MATRIX);
    if (sorted)
      zpr_ragged_wgrad_float8(c, xf, gf, ROWS, EXPERTS, EK, EN, x, EK, g, EN, first, accumulate, dw);
    else
      zpr_batched_wgrad_float8(c, xf, gf, SAMPLES, EXPERTS, SLOTS, EK, EN, x, EK, g, EN, accumulate, dw);
    for (int e = 0; e < EXPERTS; e++) expect_sum_of(xf, gf, x, g, dw + e * MATRIX, &rows[e], accumulate);
  }
  free(x), free(g), free(w), free(y);
}

static void check_all(int threads) {
  zpr_program program = {.dtype = ZPK_BF16, .tensor = 1, .pipeline = 1, .data = 1};
  zpr_stage stage = {.arena_bytes = 256 + ZPR_MAX_WORKERS * ZPR_PRODUCT_BYTES};
  program.stages = &stage;
  zpr_options options = zpr_default_options;
  options.threads = threads;
  int argc = 0;
  char **argv = NULL;
  zpr c;
  zpr_open(&c, &program, &options, &argc, &argv);
  for (int t = 0; t < 4; t++) check(&c, t & 1, t & 2, t == 1 ? ZPK_E5M2 : ZPK_E4M3, t == 2 ? ZPK_E5M2 : ZPK_E4M3);
  for (int t = 0; t < 4; t++) check(&c, t & 1, t & 2, ZPK_E4M3_1X32, ZPK_E4M3_1X32);
  for (int t = 0; t < 4; t++) check(&c, t & 1, t & 2, ZPK_E4M3_1X128, ZPK_E4M3_128X128);
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    check_gradient(&c, ZPK_E4M3, ZPK_E5M2, accumulate);
    check_gradient(&c, ZPK_E4M3_1X32, ZPK_E4M3_1X32, accumulate);
    check_gradient(&c, ZPK_E4M3_1X128, ZPK_E4M3_1X128, accumulate);
  }
  for (int right = 0; right < 2; right++) {
    zpr_kept_side side = right ? ZPR_KEPT_B : ZPR_KEPT_A;
    check_kept(&c, right ? ZPK_E5M2 : ZPK_E4M3, right ? ZPK_E4M3 : ZPK_E5M2, side);
    check_kept(&c, ZPK_E4M3_1X32, ZPK_E4M3_1X32, side);
    check_kept(&c, ZPK_E4M3_1X128, ZPK_E4M3_1X128, side);
  }
  for (int sorted = 0; sorted < 2; sorted++) {
    check_experts(&c, ZPK_E4M3, ZPK_E4M3, ZPK_E5M2, sorted);
    check_experts(&c, ZPK_E4M3_1X32, ZPK_E4M3_1X32, ZPK_E4M3_1X32, sorted);
    check_experts(&c, ZPK_E4M3_1X128, ZPK_E4M3_128X128, ZPK_E4M3_1X128, sorted);
  }
  zpr_close(&c);
}

Test(float8, products_on_one_thread) { check_all(1); }
Test(float8, products_on_several_threads) { check_all(3); }
