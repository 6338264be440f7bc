/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor's passes over elements against the formulas in f64: matrices, several of them, a vector; in pieces that
 * begin and end inside rows; all dtypes; with momentum and without. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <zplan/zpk.h>
#include "narrow_testing.h"

enum { MOST = 210, STEPS = 4 };

typedef struct shape {
  int matrices, rows, cols;
} shape;

static double noise(int i) { return sin(i * 12.9898 + 1) + 0.25 * cos(i % 17); }

/* What they are multiplied by: 1 / sqrt(row / mean of its matrix' rows), 1 / sqrt(col); of a vector the latter
 * alone. */
static void find_factors(const shape *s, const double *row, const double *col, double *by_row, double *by_col) {
  for (int b = 0; b < s->matrices; b++) {
    double mean = 0;
    for (int i = 0; i < s->rows; i++) mean += row[b * s->rows + i] / s->rows;
    for (int i = 0; i < s->rows; i++) by_row[b * s->rows + i] = 1 / sqrt(row[b * s->rows + i] / mean);
  }
  for (int j = 0; j < s->matrices * s->cols; j++) by_col[j] = 1 / sqrt(col[j]);
}

static void put_all(zpk_dtype dtype, void *to, const double *from, int n) {
  for (int i = 0; i < n; i++) put_as(dtype, to, i, from[i]);
}

static void check(zpk_dtype dtype, shape s, double beta1, double bound) {
  static double p[MOST], m[MOST], g[MOST], want[MOST], want_m[MOST], row[MOST], col[MOST], by_row[MOST], by_col[MOST];
  static double rows[MOST], cols[MOST], given_row[MOST], given_col[MOST];
  zpk_dtype real = zpk_is_narrow(dtype) ? ZPK_F32 : dtype;
  int n = s.matrices * s.rows * s.cols, cuts[] = {0, 3, n / 2, n - 1, n};
  bool vector = s.rows == 1;
  memset(want_m, 0, sizeof want_m), memset(m, 0, sizeof m);
  for (int i = 0; i < n; i++) put_as(real, p, i, noise(i + 7)), want[i] = get_as(real, p, i);
  for (int step = 1; step <= STEPS; step++) {
    zpk_update u = {.dtype = dtype, .lr = 0.02, .beta1 = beta1, .weight_decay = 0.1, .grad_scale = 0.5};
    double sums[2] = {0}, params = 0, updates = 0, factor = 0.013;
    memset(row, 0, sizeof row), memset(col, 0, sizeof col), memset(rows, 0, sizeof rows), memset(cols, 0, sizeof cols);
    for (int i = 0; i < n; i++) {
      put_as(real, g, i, noise(i + 1000 * step));
      double x = get_as(real, g, i) * u.grad_scale;
      row[i / s.cols] += x * x;
      col[i / (s.rows * s.cols) * s.cols + i % s.cols] += x * x;
    }
    find_factors(&s, row, col, by_row, by_col);
    put_all(real, given_row, by_row, s.matrices * s.rows), put_all(real, given_col, by_col, s.matrices * s.cols);
    for (int i = 0; i < n; i++) {
      double x = get_as(real, g, i) * u.grad_scale * by_col[i / (s.rows * s.cols) * s.cols + i % s.cols];
      if (!vector) x *= by_row[i / s.cols];
      params += want[i] * want[i], updates += x * x;
      want_m[i] = beta1 * want_m[i] + (1 - beta1) * factor * x;
      want[i] = want[i] * (1 - u.lr * u.weight_decay) - want_m[i];
    }
    for (int k = 0; k < 4; k++) {
      zpk_rows at = {.rows = s.rows, .cols = s.cols, .first = cuts[k], .count = cuts[k + 1] - cuts[k]};
      const char *piece = (char *)g + cuts[k] * zpk_bytes(real);
      char *of_p = (char *)p + cuts[k] * zpk_bytes(real), *of_m = (char *)m + cuts[k] * zpk_bytes(real);
      zpk_adafactor_sums(&u, &at, piece, vector ? NULL : rows, cols);
      zpk_adafactor_squares(&u, &at, of_p, piece, vector ? NULL : given_row, given_col, sums);
      zpk_adafactor_apply(&u, &at, of_p, piece, beta1 > 0 ? of_m : NULL, vector ? NULL : given_row, given_col, factor);
    }
    cr_expect_float_eq(sums[0], params, 10 * bound * params, "parameters: %g, not %g", sums[0], params);
    cr_expect_float_eq(sums[1], updates, 10 * bound * updates, "updates: %g, not %g", sums[1], updates);
    for (int i = 0; i < s.matrices * s.rows && !vector; i++)
      cr_expect_float_eq(rows[i], row[i], bound * row[i], "row %d", i);
    for (int j = 0; j < s.matrices * s.cols; j++) cr_expect_float_eq(cols[j], col[j], bound * col[j], "column %d", j);
  }
  for (int i = 0; i < n; i++)
    cr_expect_float_eq(get_as(real, p, i), want[i], bound, "element %d: %g, not %g", i, get_as(real, p, i), want[i]);
}

static void check_shapes(zpk_dtype dtype, double bound) {
  const shape shapes[] = {{1, 13, 9}, {1, 2, 100}, {3, 10, 7}, {1, 1, 57}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int momentum = 0; momentum < 2; momentum++) check(dtype, shapes[i], momentum ? 0.9 : 0, bound);
}

Test(kernels_adafactor, f64) { check_shapes(ZPK_F64, 1e-14); }
Test(kernels_adafactor, f32) { check_shapes(ZPK_F32, 1e-6); }
Test(kernels_adafactor, bf16) { check_shapes(ZPK_BF16, 1e-6); }
Test(kernels_adafactor, f16) { check_shapes(ZPK_F16, 1e-6); }
