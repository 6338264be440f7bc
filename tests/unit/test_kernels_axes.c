/* SPDX-License-Identifier: Apache-2.0 */
/* One axis made one number, positions by number, windows over them, squared errors, and their gradients, against loops
 * in f64: within the rounding of what is stored, and of f32 sums. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <zplan/zpk.h>
#include "narrow_testing.h"

static void *numbers(zpk_dtype dtype, int64_t count, double turn) {
  void *x = malloc((size_t)(count * zpk_bytes(dtype)));
  for (int64_t i = 0; i < count; i++) put_as(dtype, x, i, 3 * sin((double)i * turn + 1));
  return x;
}

static void expect(zpk_dtype dtype, const void *x, int64_t i, double want, const char *what) {
  double unit = dtype == ZPK_F64 ? 1e-13 : fmax(2e-6, narrow_unit(dtype)), got = get_as(dtype, x, i);
  cr_assert(fabs(got - want) <= unit * fmax(1, fabs(want)), "dtype %d, %s %lld: %.9g, not %.9g", dtype, what,
            (long long)i, got, want);
}

static void check_reduction(zpk_dtype dtype, zpk_reduction kind, int64_t outer, int64_t n, int64_t inner) {
  int64_t lines = outer * inner;
  void *x = numbers(dtype, lines * n, 1.7), *dy = numbers(dtype, lines, 0.9), *y = numbers(dtype, lines, 0);
  void *dx = numbers(dtype, lines * n, 0);
  zpk_reduce_args a = {.kind = kind, .x = x, .dy = dy, .to = y, .outer = outer, .n = n, .inner = inner, .scale = 0.5};
  zpk_reduce(dtype, &a, lines / 3, lines);
  zpk_reduce(dtype, &a, 0, lines / 3);
  a.to = dx;
  zpk_reduce_grad(dtype, &a, 0, lines / 2);
  zpk_reduce_grad(dtype, &a, lines / 2, lines);
  for (int64_t r = 0; r < lines; r++) {
    int64_t at = r / inner * n * inner + r % inner, first = 0;
    double sum = 0, exps = 0, top = get_as(dtype, x, at), d = 0.5 * get_as(dtype, dy, r);
    for (int64_t i = 0; i < n; i++) {
      double v = get_as(dtype, x, at + i * inner);
      sum += v;
      exps += exp(v);
      if (v > top) top = v, first = i;
    }
    expect(dtype, y, r, kind == ZPK_SUM ? 0.5 * sum : kind == ZPK_MAX ? top : log(exps), "result");
    for (int64_t i = 0; i < n; i++) {
      double share = exp(get_as(dtype, x, at + i * inner)) / exps;
      expect(dtype, dx, at + i * inner,
             kind == ZPK_SUM   ? d
             : kind == ZPK_MAX ? d * (i == first)
                               : d * share,
             "gradient");
    }
  }
  free(x), free(dy), free(y), free(dx);
}

Test(kernels_axes, reductions) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int kind = ZPK_SUM; kind <= ZPK_LOG_SUM_EXP; kind++) {
      check_reduction((zpk_dtype)dtype, (zpk_reduction)kind, 3, 5, 270); /* stretches end within a row, and at 256 */
      check_reduction((zpk_dtype)dtype, (zpk_reduction)kind, 7, 37, 1);  /* two times 16 numbers and a rest */
      check_reduction((zpk_dtype)dtype, (zpk_reduction)kind, 2, 3, 1);
      check_reduction((zpk_dtype)dtype, (zpk_reduction)kind, 1, 1, 4);
    }
}

/* The first of equal numbers has the gradient; NaN is not hidden. */
Test(kernels_axes, largest_of_equal_numbers) {
  double x[6] = {1, 4, 4, -INFINITY, 2, NAN}, dy[2] = {3, 5}, y[2], dx[6];
  zpk_reduce_args a = {.kind = ZPK_MAX, .x = x, .dy = dy, .to = y, .outer = 2, .n = 3, .inner = 1, .scale = 1};
  zpk_reduce(ZPK_F64, &a, 0, 2);
  cr_expect_eq(y[0], 4);
  cr_expect(isnan(y[1]));
  a.to = dx;
  zpk_reduce_grad(ZPK_F64, &a, 0, 1);
  cr_expect(dx[0] == 0 && dx[1] == 3 && dx[2] == 0);
}

/* A rank that has positions 2 to 4 of some; two times the same one. */
Test(kernels_axes, positions_by_number) {
  enum { SAMPLES = 2, S = 3, N = 4, COLS = 261, FIRST = 2 };
  static const int32_t index[SAMPLES * N] = {4, 2, 1, 4, 5, 3, 3, 3};
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    void *x = numbers((zpk_dtype)dtype, SAMPLES * S * COLS, 1.3),
         *y = numbers((zpk_dtype)dtype, SAMPLES * N * COLS, 0.7);
    void *dx = numbers((zpk_dtype)dtype, SAMPLES * S * COLS, 0),
         *dy = numbers((zpk_dtype)dtype, SAMPLES * N * COLS, 0.3);
    zpk_gather_args a = {.from = x, .to = y, .index = index, .samples = SAMPLES, .S = S, .first = FIRST, .n = N};
    a.cols = COLS;
    zpk_gather((zpk_dtype)dtype, &a, 3, SAMPLES * N);
    zpk_gather((zpk_dtype)dtype, &a, 0, 3);
    a.from = dy, a.to = dx;
    zpk_gather_grad((zpk_dtype)dtype, &a, 0, SAMPLES * S);
    for (int64_t i = 0; i < SAMPLES * N * COLS; i++) {
      int64_t at = index[i / COLS] - FIRST, b = i / (N * COLS);
      double want = at >= 0 && at < S ? get_as((zpk_dtype)dtype, x, (b * S + at) * COLS + i % COLS) : 0;
      cr_assert_eq(get_as((zpk_dtype)dtype, y, i), want, "element %d", (int)i);
    }
    for (int64_t i = 0; i < SAMPLES * S * COLS; i++) {
      double sum = 0;
      for (int64_t k = i / (S * COLS) * N; k < (i / (S * COLS) + 1) * N; k++)
        if (index[k] - FIRST == i / COLS % S) sum += get_as((zpk_dtype)dtype, dy, k * COLS + i % COLS);
      expect((zpk_dtype)dtype, dx, i, sum, "gradient");
    }
    free(x), free(y), free(dx), free(dy);
  }
}

Test(kernels_axes, matrices_turned_over) {
  enum { SAMPLES = 2, ROWS = 37, COLS = 21 };
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    void *x = numbers((zpk_dtype)dtype, SAMPLES * ROWS * COLS, 1.3),
         *y = numbers((zpk_dtype)dtype, SAMPLES * ROWS * COLS, 0);
    int64_t tasks = zpk_transpose_tasks(SAMPLES, COLS);
    zpk_transpose((zpk_dtype)dtype, x, ROWS, COLS, y, 1, tasks);
    zpk_transpose((zpk_dtype)dtype, x, ROWS, COLS, y, 0, 1);
    for (int64_t i = 0; i < SAMPLES * ROWS * COLS; i++) {
      int64_t b = i / (ROWS * COLS), at = (b * COLS + i % COLS) * ROWS + i / COLS % ROWS;
      cr_assert_eq(get_as((zpk_dtype)dtype, y, at), get_as((zpk_dtype)dtype, x, i), "element %d", (int)i);
    }
    free(x), free(y);
  }
}

/* As statistics of a loss without labels: all rows count, and none is right. */
Test(kernels_axes, squared_errors) {
  enum { ROWS = 7, COLS = 35 };
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    zpk_dtype real = dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
    void *x = numbers((zpk_dtype)dtype, ROWS * COLS, 1.3), *target = numbers((zpk_dtype)dtype, ROWS * COLS, 0.7);
    void *dx = numbers((zpk_dtype)dtype, ROWS * COLS, 0);
    double stat[ROWS * 3], lse[ROWS], total = 0;
    int64_t right = 0;
    zpk_squared_error((zpk_dtype)dtype, x, target, COLS, stat, 0, ROWS);
    zpk_squared_error_grad((zpk_dtype)dtype, x, target, COLS, 0.5, dx, 0, ROWS);
    for (int64_t r = 0; r < ROWS; r++) {
      double sum = 0;
      for (int64_t i = r * COLS; i < (r + 1) * COLS; i++) {
        double d = get_as((zpk_dtype)dtype, x, i) - get_as((zpk_dtype)dtype, target, i);
        sum += d * d;
        expect((zpk_dtype)dtype, dx, i, d / COLS, "gradient");
      }
      expect(real, stat, r * 3, sum / COLS, "error");
      total += sum / COLS;
    }
    double loss = zpk_ce_loss((zpk_dtype)dtype, stat, 1, ROWS, 1, NULL, lse, &right, 0, ROWS);
    cr_expect_float_eq(loss, total, 1e-5);
    cr_expect_eq(right, 0);
    free(x), free(target), free(dx);
  }
}

/* Every window of a rank reads every place of it, and the gradient is what a loop over them adds. */
static void check_windows(zpk_dtype dtype, zpk_unfold_args a, int64_t samples, int64_t cols) {
  int64_t positions = a.size[0] * a.size[1], places = a.kernel[0] * a.kernel[1], width = cols * places;
  for (int i = 0; i < 2; i++) a.count[i] = (a.size[i] + 2 * a.padding[i] - a.kernel[i]) / a.stride[i] + 1;
  if (a.n == 0) a.n = a.count[0] * a.count[1];
  void *x = numbers(dtype, samples * positions * cols, 1.7), *dy = numbers(dtype, samples * a.n * width, 0.9);
  void *y = numbers(dtype, samples * a.n * width, 2), *dx = numbers(dtype, samples * positions * cols, 2);
  double *sum = calloc((size_t)(samples * positions * cols), sizeof *sum);
  a.samples = samples, a.cols = cols, a.from = x, a.to = y;
  zpk_unfold(dtype, &a, samples * a.n / 3, samples * a.n);
  zpk_unfold(dtype, &a, 0, samples * a.n / 3);
  a.from = dy, a.to = dx;
  zpk_unfold_grad(dtype, &a, 0, samples * positions / 2);
  zpk_unfold_grad(dtype, &a, samples * positions / 2, samples * positions);
  for (int64_t i = 0; i < samples * a.n * width; i++) {
    int64_t window = a.first + i / width % a.n, c = i % width / places, place = i % places;
    int64_t row = window / a.count[1] * a.stride[0] + place / a.kernel[1] - a.padding[0];
    int64_t col = window % a.count[1] * a.stride[1] + place % a.kernel[1] - a.padding[1];
    bool there = row >= 0 && row < a.size[0] && col >= 0 && col < a.size[1];
    int64_t at = (i / (a.n * width) * positions + row * a.size[1] + col) * cols + c;
    expect(dtype, y, i, there ? get_as(dtype, x, at) : 0, "place of a window");
    if (there) sum[at] += get_as(dtype, dy, i);
  }
  for (int64_t i = 0; i < samples * positions * cols; i++) expect(dtype, dx, i, sum[i], "gradient of a position");
  free(x), free(dy), free(y), free(dx), free(sum);
}

Test(kernels_axes, windows_over_positions) {
  static const zpk_unfold_args some[] = {
      {.size = {1, 11}, .kernel = {1, 3}, .stride = {1, 2}, .padding = {0, 1}},
      {.size = {1, 7}, .kernel = {1, 2}, .stride = {1, 3}},                    /* positions that no window has */
      {.size = {4, 6}, .kernel = {2, 2}, .stride = {2, 2}},                    /* patches */
      {.size = {5, 4}, .kernel = {3, 2}, .stride = {1, 2}, .padding = {2, 1}}, /* of other sizes down and across */
      {.size = {4, 4}, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .first = 6, .n = 5}, /* a share of them */
      {.size = {3, 3}, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}},
  };
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
      check_windows((zpk_dtype)dtype, some[i], 2, 3);
      check_windows((zpk_dtype)dtype, some[i], 1, 270);
    }
}
