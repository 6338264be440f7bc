/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of bf16 and f16: against those of f64 on the same numbers, each result rounded once; and the rounding
 * itself. Attention is in test_kernels_attention.c, row kernels are in test_rowprog_llvm.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/zpk.h>
#include "narrow_testing.h"

static zpk_dtype dtype;
static double wide(uint16_t x) { return wide_of(dtype, x); }
static uint16_t nearest(double x) { return narrow_of(dtype, x); }

/* A test for either of the two. */
#define EITHER(name)                                                                                                   \
  static void name(void);                                                                                              \
  Test(kernels_narrow, bf16_##name) { dtype = ZPK_BF16, name(); }                                                      \
  Test(kernels_narrow, f16_##name) { dtype = ZPK_F16, name(); }                                                        \
  static void name(void)

/* All stored numbers, there and back. */
EITHER(widening) {
  for (uint32_t i = 0; i < 65536; i++) {
    uint16_t x = (uint16_t)i, back;
    float y;
    zpk_widen(dtype, &x, &y, 1);
    zpk_round(dtype, &y, &back, 1);
    if (isnan(wide(x)))
      cr_assert(isnan(y) && isnan(wide(back)) && (back & 0x8000) == (x & 0x8000), "NaN %04x", x);
    else
      cr_assert((double)y == wide(x) && !!signbit(y) == x >> 15 && back == x, "%04x is %g", x, (double)y);
  }
}

/* On either side of every number, half way to the next and next to that; and all over f32. */
EITHER(rounding) {
  uint16_t got;
  uint32_t largest = dtype == ZPK_F16 ? 0x7BFF : 0x7F7F;
  for (uint32_t i = 0; i < largest; i++) {
    double half = (wide((uint16_t)i) + wide((uint16_t)(i + 1))) / 2;
    const float between[] = {(float)half, nextafterf((float)half, 0), nextafterf((float)half, INFINITY)};
    for (int k = 0; k < 6; k++) {
      float x = k < 3 ? between[k] : -between[k - 3];
      zpk_round(dtype, &x, &got, 1);
      cr_assert_eq(got, nearest((double)x), "%a", (double)x);
    }
  }
  for (uint64_t i = 0; i < UINT64_C(1) << 32; i += 4099) {
    float x = as_float((uint32_t)i);
    zpk_round(dtype, &x, &got, 1);
    if (isnan(x))
      cr_assert(isnan(wide(got)));
    else if (fabsf(x) <= (float)wide((uint16_t)largest) || dtype == ZPK_F16)
      cr_assert_eq(got, nearest((double)x), "%a", (double)x);
  }
  float beyond = dtype == ZPK_F16 ? 65520 : as_float(0x7F7FFFFF),
        below = dtype == ZPK_F16 ? 65519 : as_float(0x7F7F7FFF);
  zpk_round(dtype, &beyond, &got, 1);
  cr_assert_eq(got, largest + 1, "beyond the largest number lies infinity");
  zpk_round(dtype, &below, &got, 1);
  cr_assert_eq(got, largest);
}

static double pseudo(int i) { return sin(1.7 * i) + 0.25 * cos(0.3 * i); }

/* Numbers in 16 bits, and the same ones in f64. */
typedef struct pair {
  uint16_t *narrow;
  double *exact;
} pair;

static pair numbers(int64_t count, int salt) {
  pair p = {malloc((size_t)count * sizeof *p.narrow), malloc((size_t)count * sizeof *p.exact)};
  for (int64_t i = 0; i < count; i++) p.exact[i] = wide(p.narrow[i] = nearest(pseudo((int)i + salt)));
  return p;
}

static void drop(pair p) {
  free(p.narrow);
  free(p.exact);
}

/* Rounded once: within half a unit of the 8 or 11 bits, and what f32 sums lose. */
static void check(pair p, int64_t count, const char *what) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(p.exact[i]));
  for (int64_t i = 0; i < count; i++) {
    double error = fabs(wide(p.narrow[i]) - p.exact[i]);
    cr_assert(error <= narrow_unit(dtype) * fabs(p.exact[i]) + narrow_least(dtype) + 1e-6 * largest,
              "%s: element %d is %g, not %g", what, (int)i, wide(p.narrow[i]), p.exact[i]);
  }
}

/* Gradients, f32, and the same ones in f64. */
typedef struct sums {
  float *single;
  double *exact;
} sums;

static sums gradients(int64_t count, int salt) {
  sums s = {malloc((size_t)count * sizeof *s.single), malloc((size_t)count * sizeof *s.exact)};
  for (int64_t i = 0; i < count; i++) s.exact[i] = (double)(s.single[i] = (float)pseudo((int)i + salt));
  return s;
}

/* Nothing is rounded to 16 bits. */
static void check_sums(sums s, int64_t count, const char *what) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(s.exact[i]));
  for (int64_t i = 0; i < count; i++)
    cr_assert(fabs((double)s.single[i] - s.exact[i]) <= 1e-6 * largest, "%s: element %d is %g, not %g", what, (int)i,
              (double)s.single[i], s.exact[i]);
  free(s.single);
  free(s.exact);
}

enum { ROWS = 700, WORDS = 19, COLS = 300, S = 35, SAMPLES = ROWS / S };

/* One word has most rows: added to a 16-bit sum, most of them would be lost. */
EITHER(lookups) {
  int32_t ids[ROWS];
  for (int r = 0; r < ROWS; r++) ids[r] = r % 5 ? 7 : r % 23 - 2;
  pair table = numbers(WORDS * COLS, 1), dy = numbers(ROWS * COLS, 2), out = numbers(ROWS * COLS, 3);
  zpk_embedding(dtype, ids, table.narrow, 1, WORDS, COLS, out.narrow, 0, ROWS);
  zpk_embedding(ZPK_F64, ids, table.exact, 1, WORDS, COLS, out.exact, 0, ROWS);
  for (int i = 0; i < ROWS * COLS; i++) cr_assert_eq(wide(out.narrow[i]), out.exact[i]);
  for (int i = 0; i < ROWS * COLS; i++)
    dy.exact[i] = wide(dy.narrow[i] = nearest(fabs(dy.exact[i]))); /* no cancelling */
  sums words = gradients(WORDS * COLS, 1);
  zpk_embedding_grad(dtype, ids, dy.narrow, 1, WORDS, ROWS, COLS, words.single, 0, 16);
  zpk_embedding_grad(dtype, ids, dy.narrow, 1, WORDS, ROWS, COLS, words.single, 16, COLS);
  zpk_embedding_grad(ZPK_F64, ids, dy.exact, 1, WORDS, ROWS, COLS, words.exact, 0, COLS);
  check_sums(words, WORDS * COLS, "gradient of the table");
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    sums grad = gradients(S * COLS, 4);
    zpk_position_grad(dtype, dy.narrow, COLS, SAMPLES, S, COLS, accumulate, grad.single, 0, S);
    zpk_position_grad(ZPK_F64, dy.exact, COLS, SAMPLES, S, COLS, accumulate, grad.exact, 0, S);
    check_sums(grad, S * COLS, "gradient of positions");
  }
  drop(table), drop(dy), drop(out);
}

EITHER(cross_entropy) {
  enum { R = 40, V = 203, VOCABULARY = 200 };
  int32_t labels[R];
  for (int r = 0; r < R; r++) labels[r] = r == 3 ? -1 : r * 37 % VOCABULARY;
  pair logits = numbers(R * V, 5), d = numbers(R * V, 6);
  float stat[R * 3], lse[R];
  double stat_f64[R * 3], lse_f64[R];
  zpk_ce_stats(dtype, logits.narrow, V, 0, VOCABULARY, labels, NULL, stat, 0, R);
  zpk_ce_stats(ZPK_F64, logits.exact, V, 0, VOCABULARY, labels, NULL, stat_f64, 0, R);
  double loss = zpk_ce_loss(dtype, stat, 1, R, VOCABULARY, labels, lse, NULL, 0, R);
  double want = zpk_ce_loss(ZPK_F64, stat_f64, 1, R, VOCABULARY, labels, lse_f64, NULL, 0, R);
  cr_expect_float_eq(loss, want, 1e-6 * want, "statistics are f32: %.9g, not %.9g", loss, want);
  zpk_ce_grad(dtype, logits.narrow, V, 0, VOCABULARY, labels, NULL, lse, (zpk_targets){0}, 0.37, d.narrow, 0, R);
  zpk_ce_grad(ZPK_F64, logits.exact, V, 0, VOCABULARY, labels, NULL, lse_f64, (zpk_targets){0}, 0.37, d.exact, 0, R);
  check(d, R * V, "gradient");
  zpk_ce_grad(dtype, logits.narrow, V, 0, VOCABULARY, labels, NULL, lse, (zpk_targets){0}, 0.37, logits.narrow, 0, R);
  cr_expect_arr_eq(logits.narrow, d.narrow, R * V * sizeof *d.narrow, "in place");
  drop(logits), drop(d);
}

/* Twelve parts, each too small to move the first alone. */
EITHER(sums_over_ranks_are_rounded_once) {
  enum { N = 600, PARTS = 13 };
  uint16_t part[PARTS][N], out[N];
  const void *all[PARTS];
  for (int p = 0; p < PARTS; p++) {
    all[p] = part[p];
    for (int i = 0; i < N; i++) part[p][i] = nearest(p == 0 ? 1 + i % 3 : narrow_unit(dtype) / 2);
  }
  zpk_sum_parts(dtype, out, all, PARTS, 100, N);
  for (int i = 100; i < N; i++) cr_assert_eq(out[i], nearest(1 + i % 3 + 6 * narrow_unit(dtype)));
  zpk_sum_parts(dtype, part[4], all, PARTS, 0, N); /* in place */
  cr_expect_arr_eq(part[4] + 100, out + 100, (N - 100) * sizeof *out);
}

/* The master copy moves by less than 16 bits can tell. */
EITHER(optimizer_and_squares) {
  enum { N = 500, STEPS = 20 };
  float master[N], m[N] = {0}, v[N] = {0};
  double param[N], m_f64[N] = {0}, v_f64[N] = {0};
  sums g = gradients(N, 8);
  for (int i = 0; i < N; i++) param[i] = (double)(master[i] = (float)pseudo(i));
  for (int step = 1; step <= STEPS; step++) {
    zpk_update u = {.dtype = dtype,
                    .kind = 0,
                    .lr = 1e-5,
                    .beta1 = 0.9,
                    .beta2 = 0.99,
                    .eps = 1e-8,
                    .weight_decay = 0.1,
                    .bias1 = 1 - pow(0.9, step),
                    .bias2 = 1 - pow(0.99, step),
                    .grad_scale = 0.5};
    zpk_optimizer(&u, master, g.single, (void *[]){m, v}, 0, N);
    u.dtype = ZPK_F64;
    zpk_optimizer(&u, param, g.exact, (void *[]){m_f64, v_f64}, 0, N);
  }
  for (int i = 0; i < N; i++) cr_assert_float_eq((double)master[i], param[i], 2e-6);
  cr_assert(fabs(param[3] - pseudo(3)) > 1e-4, "it moved");
  cr_expect_float_eq(zpk_sum_squares(ZPK_F32, g.single, 3, N), zpk_sum_squares(ZPK_F64, g.exact, 3, N), 1e-12);
  free(g.single);
  free(g.exact);
}

EITHER(experts) {
  enum { B = 2, T = 6, D = 270, E = 4, SLOTS = 3, K = 2 };
  zpk_routing r = {.dtype = dtype,
                   .B = B,
                   .S = T,
                   .k = K,
                   .experts = E,
                   .slots = SLOTS,
                   .normalize = true,
                   .d = D,
                   .n_slots = E * SLOTS};
  zpk_routing exact = r;
  exact.dtype = ZPK_F64;
  pair score = numbers(B * T * E, 9), weight = numbers(B * T * K, 10), x = numbers(B * E * SLOTS * D, 11),
       out = numbers(B * T * D, 12);
  int32_t slot[B * T * K], slot_f64[B * T * K];
  zpk_top_k_gate(&r, score.narrow, NULL, weight.narrow, slot, 0, B);
  zpk_top_k_gate(&exact, score.exact, NULL, weight.exact, slot_f64, 0, B);
  cr_expect_arr_eq(slot, slot_f64, sizeof slot);
  check(weight, B * T * K, "weights");
  for (int i = 0; i < B * T * K; i++) weight.exact[i] = wide(weight.narrow[i]);
  zpk_combine(&r, x.narrow, weight.narrow, slot, out.narrow, 0, B * T);
  zpk_combine(&exact, x.exact, weight.exact, slot, out.exact, 0, B * T);
  check(out, B * T * D, "combined");
  drop(score), drop(weight), drop(x), drop(out);
}
