/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy kernels against a naive f64 reference, whole and split over ranks, and the exponential under them. */
#include "cross_entropy_testing.h"
#include "exp.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Splits the vocabulary over `ranks` of V columns each; some may be all padding. */
static void run_of(zpk_dtype dtype, int ranks, int64_t V, bool in_place, zpk_targets targets, const int32_t *lengths) {
  int64_t e = zpk_bytes(dtype);
  double bound = dtype == ZPK_F64 ? 1e-13 : 2e-5, want_grad[ROWS * WORDS], scale = 0.37;
  counted want = reference(want_grad, targets, lengths, scale);
  int64_t right = 0;
  char *logits = malloc((size_t)(ranks * ROWS * V * e)),
       *out = in_place ? logits : malloc((size_t)(ranks * ROWS * V * e));
  char stat[8 * ROWS * 3 * 8], lse[ROWS * 8];
  for (int i = 0; i < ranks; i++) {
    fill(dtype, logits + i * ROWS * V * e, i * V, V);
    char *mine = stat + i * ROWS * 3 * e;
    zpk_ce_stats(dtype, logits + i * ROWS * V * e, V, i * V, WORDS, labels, lengths, mine, 4, ROWS);
    zpk_ce_stats(dtype, logits + i * ROWS * V * e, V, i * V, WORDS, labels, lengths, mine, 0, 4);
  }
  double loss = zpk_ce_loss(dtype, stat, ranks, ROWS, WORDS, labels, lse, &right, 0, 3);
  loss += zpk_ce_loss(dtype, stat, ranks, ROWS, WORDS, labels, lse, &right, 3, ROWS);
  cr_expect_float_eq(loss, want.loss, bound * want.loss);
  cr_expect_eq(right, want.right);
  for (int i = 0; i < ranks; i++) {
    char *dx = out + i * ROWS * V * e;
    zpk_ce_grad(dtype, logits + i * ROWS * V * e, V, i * V, WORDS, labels, lengths, lse, targets, scale, dx, 0, ROWS);
    for (int64_t r = 0; r < ROWS; r++)
      for (int64_t c = 0; c < V; c++) {
        double expected = i * V + c < WORDS ? want_grad[r * WORDS + i * V + c] : 0;
        cr_expect_float_eq(get(dtype, dx, r * V + c), expected, bound, "row %d column %d", (int)r, (int)(i * V + c));
      }
  }
  if (!in_place) free(out);
  free(logits);
}

static void run(zpk_dtype dtype, int ranks, int64_t V, bool in_place) {
  for (int i = 0; i < N_TARGETS; i++) run_of(dtype, ranks, V, in_place, all_targets[i], NULL);
  run_of(dtype, ranks, V, in_place, all_targets[0], some_classes);
}

Test(kernels_cross_entropy, whole_vocabulary) {
  run(ZPK_F64, 1, WORDS, false);
  run(ZPK_F32, 1, WORDS, false);
}
Test(kernels_cross_entropy, padded_and_in_place) {
  run(ZPK_F64, 1, 256, true);
  run(ZPK_F32, 1, 256, true);
}
Test(kernels_cross_entropy, split_over_ranks) {
  run(ZPK_F64, 3, 68, true);
  run(ZPK_F32, 3, 68, false);
  run(ZPK_F64, 8, 40, true); /* ranks 6 and 7 have only padding */
}

Test(kernels_cross_entropy, gradient_is_the_central_difference) {
  double x[WORDS], stat[3], lse[1], dx[WORDS], loss[2], h = 1e-5;
  int32_t label = 67;
  for (int c = 0; c < WORDS; c++) x[c] = logit(2, c);
  zpk_ce_stats(ZPK_F64, x, WORDS, 0, WORDS, &label, NULL, stat, 0, 1);
  zpk_ce_loss(ZPK_F64, stat, 1, 1, WORDS, &label, lse, NULL, 0, 1);
  zpk_ce_grad(ZPK_F64, x, WORDS, 0, WORDS, &label, NULL, lse, (zpk_targets){0}, 1.0, dx, 0, 1);
  for (int c = 0; c < WORDS; c += 3) {
    for (int side = 0; side < 2; side++) {
      double old = x[c];
      x[c] += side ? h : -h;
      zpk_ce_stats(ZPK_F64, x, WORDS, 0, WORDS, &label, NULL, stat, 0, 1);
      loss[side] = zpk_ce_loss(ZPK_F64, stat, 1, 1, WORDS, &label, lse, NULL, 0, 1);
      x[c] = old;
    }
    cr_expect_float_eq((loss[1] - loss[0]) / (2 * h), dx[c], 1e-9, "column %d", c);
  }
}

/* The definition: smoothed targets, and the square of the log-sum-exp. */
Test(kernels_cross_entropy, targets_are_the_central_difference) {
  const zpk_targets targets = {0.2, 0.03};
  double x[WORDS], stat[3], lse[1], dx[WORDS], loss[2], h = 1e-5;
  int32_t label = 67;
  for (int c = 0; c < WORDS; c++) x[c] = logit(2, c);
  zpk_ce_stats(ZPK_F64, x, WORDS, 0, WORDS, &label, NULL, stat, 0, 1);
  zpk_ce_loss(ZPK_F64, stat, 1, 1, WORDS, &label, lse, NULL, 0, 1);
  zpk_ce_grad(ZPK_F64, x, WORDS, 0, WORDS, &label, NULL, lse, targets, 1.0, dx, 0, 1);
  for (int c = 0; c < WORDS; c += 7) {
    for (int side = 0; side < 2; side++) {
      double old = x[c], sum = 0, mean = 0;
      x[c] += side ? h : -h;
      for (int w = 0; w < WORDS; w++) sum += exp(x[w]), mean += x[w] / WORDS;
      double target = (1 - targets.smoothing) * x[label] + targets.smoothing * mean;
      loss[side] = log(sum) - target + targets.z * log(sum) * log(sum);
      x[c] = old;
    }
    cr_expect_float_eq((loss[1] - loss[0]) / (2 * h), dx[c], 1e-9, "column %d", c);
  }
}

Test(kernels_cross_entropy, a_nan_logit_reaches_the_loss) {
  float x[WORDS] = {0}, stat[3], lse[1];
  int32_t label = 3;
  x[100] = NAN;
  zpk_ce_stats(ZPK_F32, x, WORDS, 0, WORDS, &label, NULL, stat, 0, 1);
  cr_expect(isnan(zpk_ce_loss(ZPK_F32, stat, 1, 1, WORDS, &label, lse, NULL, 0, 1)));
}

Test(kernels_exp, within_two_ulp) {
  for (double x = -86.4; x < 88.7; x += 0.00137) {
    double want = exp((double)(float)x);
    cr_assert_float_eq(zpk_exp_f32((float)x) / want, 1, 2 * 0x1p-23, "x = %g", x);
  }
  for (double x = -707.5; x < 709.7; x += 0.00797)
    cr_assert_float_eq(zpk_exp_f64(x) / exp(x), 1, 2 * 0x1p-52, "x = %g", x);
}

Test(kernels_exp, special_values) {
  cr_expect_eq(zpk_exp_f32(0), 1);
  cr_expect_eq(zpk_exp_f64(0), 1);
  cr_expect_eq(zpk_exp_f32(-INFINITY), 0);
  cr_expect_eq(zpk_exp_f64(-INFINITY), 0);
  cr_expect_eq(zpk_exp_f32(-200), 0);
  cr_expect_eq(zpk_exp_f64(-2000), 0);
  cr_expect(isinf(zpk_exp_f32(INFINITY)) && isinf(zpk_exp_f32(88.8f)));
  cr_expect(isinf(zpk_exp_f64(INFINITY)) && isinf(zpk_exp_f64(709.9)));
  cr_expect(isnan(zpk_exp_f32(NAN)) && isnan(zpk_exp_f64(NAN)));
}
