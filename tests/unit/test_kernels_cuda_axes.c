/* SPDX-License-Identifier: Apache-2.0 */
/* Device kernels along axes, compiled for the host, against the CPU kernels: copies to the bit, sums in another order
 * within their rounding. */
#include <string.h>
#include "device_kernels.h"
#include "narrow_testing.h"

static device_texts texts = {.text = "#include \"zpd_gather.cuh\"\n#include \"zpd_reduce.cuh\"\n"
                                     "#include \"zpd_squared_error.cuh\"\n#include \"zpd_transpose.cuh\"\n"
                                     "#include \"zpd_unfold.cuh\"\n"};

static void close_texts(void) { device_texts_close(&texts); }
TestSuite(kernels_cuda_axes, .fini = close_texts);

static double get(zpk_dtype dtype, const void *x, int64_t i) { return get_as(dtype, x, i); }

/* Numbers of any sign and size, so that the order of a sum shows in its bits. */
static void *numbers(zpk_dtype dtype, int64_t count, int salt) {
  void *x = malloc((size_t)(count * zpk_bytes(dtype)));
  for (int64_t i = 0; i < count; i++) put_as(dtype, x, i, sin((double)i * 1.7 + salt) * (i % 7 == 0 ? 1e3 : 1));
  return x;
}

static void *copy_of(zpk_dtype dtype, const void *x, int64_t count) {
  void *y = malloc((size_t)(count * zpk_bytes(dtype)));
  return memcpy(y, x, (size_t)(count * zpk_bytes(dtype)));
}

static void launch(zpk_dtype dtype, const char *name, const void *args, unsigned blocks) {
  device_launch(device_text(&texts, dtype), name, args, blocks, 1, 1, ZPD_FLAT_THREADS);
}

static void positions_by_number(zpk_dtype dtype) {
  enum { SAMPLES = 3, S = 11, N = 4, BEGIN = 2 };
  const int widths[] = {270, 64},
            index[SAMPLES * N] = {2, 12, 2, 0, 13, 5, 5, 5, 1, 3, 12, 2}; /* not static: a GPU reads it */
  for (int w = 0; w < 2; w++) {
    int64_t cols = widths[w], size = zpk_bytes(dtype), count = SAMPLES * S * cols;
    void *x = numbers(dtype, count, 4), *want = numbers(dtype, count, 5);
    void *got = copy_of(dtype, want, count);
    zpk_gather_args p = {.from = x, .to = want, .index = index, .samples = SAMPLES, .S = S, .first = BEGIN, .n = N};
    zpd_gather_args a = {.from = x, .to = got, .index = index, .samples = SAMPLES, .S = S, .first = BEGIN, .n = N};
    p.cols = a.cols = cols;
    zpk_gather(dtype, &p, 0, SAMPLES * N);
    launch(dtype, "zpd_gather", &a, 5);
    cr_expect_arr_eq(got, want, (size_t)(count * size), "taken, %d columns", (int)cols);
    zpk_gather_grad(dtype, &p, 0, SAMPLES * S);
    launch(dtype, "zpd_gather_grad", &a, 5);
    cr_expect_arr_eq(got, want, (size_t)(count * size), "gradient, %d columns", (int)cols);
    free(x), free(want), free(got);
  }
}

/* Sums in another order: within the rounding of their largest numbers, here 1e3, and of what is stored. */
static void expect_close(zpk_dtype dtype, const void *got, const void *want, int64_t count, const char *what,
                         int kind) {
  double unit = dtype == ZPK_F64 ? 1e-13 : fmax(4e-6, 3 * narrow_unit(dtype));
  for (int64_t i = 0; i < count; i++) {
    double a = get(dtype, got, i), b = get(dtype, want, i);
    cr_assert(fabs(a - b) <= unit * fmax(fabs(b), 1e-3 + (kind == ZPK_SUM ? 1e3 : 1)), "%s %d, %lld: %g, not %g", what,
              kind, (long long)i, a, b);
  }
}

static void reductions(zpk_dtype dtype) {
  static const int sizes[][3] = {{3, 11, 300}, {7, 300, 1}, {2, 1, 1}};
  for (int s = 0; s < 3; s++)
    for (int kind = ZPK_SUM; kind <= ZPK_LOG_SUM_EXP; kind++) {
      int64_t n = sizes[s][1], lines = (int64_t)sizes[s][0] * sizes[s][2], count = lines * n;
      void *x = numbers(dtype, count, 4), *dy = numbers(dtype, lines, 3);
      void *want = numbers(dtype, count, 5), *got = copy_of(dtype, want, count);
      zpk_reduce_args p = {.kind = (zpk_reduction)kind, .x = x, .dy = dy, .to = want, .outer = sizes[s][0], .n = n};
      zpd_reduce_args a = {.kind = kind, .x = x, .dy = dy, .to = got, .outer = sizes[s][0], .n = n};
      p.inner = a.inner = sizes[s][2], p.scale = a.scale = 0.75;
      zpk_reduce(dtype, &p, 0, lines);
      launch(dtype, "zpd_reduce", &a, 3);
      expect_close(dtype, got, want, count, "reduced", kind);
      zpk_reduce_grad(dtype, &p, 0, lines);
      launch(dtype, "zpd_reduce_grad", &a, 3);
      expect_close(dtype, got, want, count, "gradient", kind);
      free(x), free(dy), free(want), free(got);
    }
}

static void matrices_turned_over(zpk_dtype dtype) {
  enum { SAMPLES = 2, ROWS = 70, COLS = 33, COUNT = SAMPLES * ROWS * COLS };
  void *x = numbers(dtype, COUNT, 4), *want = numbers(dtype, COUNT, 5);
  void *got = copy_of(dtype, want, COUNT);
  zpd_transpose_args a = {.x = x, .y = got, .samples = SAMPLES, .rows = ROWS, .cols = COLS};
  zpk_transpose(dtype, x, ROWS, COLS, want, 0, zpk_transpose_tasks(SAMPLES, COLS));
  launch(dtype, "zpd_transpose", &a, 5);
  cr_expect_arr_eq(got, want, (size_t)(COUNT * zpk_bytes(dtype)));
  free(x), free(want), free(got);
}

static void squared_errors(zpk_dtype dtype) {
  enum { ROWS = 5, COLS = 270 };
  void *x = numbers(dtype, ROWS * COLS, 4), *target = numbers(dtype, ROWS * COLS, 5);
  void *want = numbers(dtype, ROWS * COLS, 6), *got = copy_of(dtype, want, ROWS * COLS);
  double stat[2][ROWS * 3] = {{0}}, scale = 8;
  zpd_squared_error_args a = {.x = x, .target = target, .to = stat[1], .rows = ROWS, .cols = COLS, .scale = 0.25};
  zpk_squared_error(dtype, x, target, COLS, stat[0], 0, ROWS);
  launch(dtype, "zpd_squared_error", &a, 2);
  zpk_dtype real = dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
  for (int i = 0; i < ROWS * 3; i++)
    cr_expect_float_eq(get(real, stat[1], i), get(real, stat[0], i), 1e-6 * fabs(get(real, stat[0], i)), "%d", i);
  a.to = got, a.loss_scale = &scale;
  zpk_squared_error_grad(dtype, x, target, COLS, 2, want, 0, ROWS);
  launch(dtype, "zpd_squared_error_grad", &a, 3);
  cr_expect_arr_eq(got, want, (size_t)(ROWS * COLS * zpk_bytes(dtype)), "gradient");
  free(x), free(target), free(want), free(got);
}

/* Windows that overlap and reach over the edges; what no window has gets a zero. Sums are in the order of the CPU's. */
static void windows_over_positions(zpk_dtype dtype) {
  enum { SAMPLES = 2, ROWS = 5, LONG = 4, FIRST = 2, COUNT = 9 }; /* of 4 * 3 windows */
  const int widths[] = {3, 270};
  for (int w = 0; w < 2; w++) {
    int64_t cols = widths[w], count = SAMPLES * COUNT * cols * 6, size = zpk_bytes(dtype);
    void *x = numbers(dtype, count, 4), *want = numbers(dtype, count, 5);
    void *got = copy_of(dtype, want, count);
    zpk_unfold_args p = {.from = x, .to = want, .samples = SAMPLES, .cols = cols, .size = {ROWS, LONG}};
    zpd_unfold_args a = {.from = x, .to = got, .samples = SAMPLES, .cols = cols, .size = {ROWS, LONG}};
    const int64_t windows[][2] = {{4, 3}, {3, 2}, {2, 2}, {2, 1}}; /* count, kernel, stride, padding */
    for (int i = 0; i < 2; i++) {
      a.count[i] = p.count[i] = windows[0][i], a.kernel[i] = p.kernel[i] = windows[1][i];
      a.stride[i] = p.stride[i] = windows[2][i], a.padding[i] = p.padding[i] = windows[3][i];
    }
    a.first = p.first = FIRST, a.n = p.n = COUNT;
    zpk_unfold(dtype, &p, 0, SAMPLES * COUNT);
    launch(dtype, "zpd_unfold", &a, 5);
    cr_expect_arr_eq(got, want, (size_t)(count * size), "windows, %d columns", (int)cols);
    zpk_unfold_grad(dtype, &p, 0, SAMPLES * ROWS * LONG);
    launch(dtype, "zpd_unfold_grad", &a, 5);
    cr_expect_arr_eq(got, want, (size_t)(count * size), "gradient, %d columns", (int)cols);
    free(x), free(want), free(got);
  }
}

static void check_all(zpk_dtype dtype) {
  if (dtype % NEXT_DTYPE != FIRST_DTYPE) cr_skip_test("a dtype of the other build");
  windows_over_positions(dtype);
  positions_by_number(dtype);
  reductions(dtype);
  matrices_turned_over(dtype);
  squared_errors(dtype);
}

Test(kernels_cuda_axes, f32) { check_all(ZPK_F32); }
Test(kernels_cuda_axes, f64) { check_all(ZPK_F64); }
Test(kernels_cuda_axes, bf16) { check_all(ZPK_BF16); }
Test(kernels_cuda_axes, f16) { check_all(ZPK_F16); }
