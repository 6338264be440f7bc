/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor's device kernels, compiled for the host, against the formulas in f64. */
#include "device_kernels.h"
#include "narrow_testing.h"
#include "optimizer_testing.h"
#include <string.h>

static const char text[] = "#include \"zpd_adafactor.cuh\"\n";

enum { DTYPES = ZPK_DTYPES };
static device_texts texts = {.text = text};

static void close_texts(void) { device_texts_close(&texts); }
TestSuite(kernels_cuda_adafactor, .fini = close_texts);

static void put(zpk_dtype dtype, void *x, int64_t i, double value) { put_as(dtype, x, i, value); }
static double get(zpk_dtype dtype, const void *x, int64_t i) { return get_as(dtype, x, i); }

static void launch(zpk_dtype dtype, const char *name, const void *args, unsigned blocks) {
  device_launch(device_text(&texts, dtype), name, args, blocks, 1, 1, ZPD_FLAT_THREADS);
}

/* Adafactor's passes by the formulas in f64: three matrices of 10 x 12, of whose columns 4 .. 8 this share has five and
 * one of padding; of those elements all but the first 7 and some of the last. */
enum { FM = 3, FR = 10, FC = 12, WIDTH = 5, PADDED = 6, FROM = 4, BEGIN = 7, OWN = 160 };

/* The tensor's element that own element i is; -1: padding. */
static int element_of(int i) {
  int at = BEGIN + i;
  return at % PADDED < WIDTH ? at / PADDED * FC + FROM + at % PADDED : -1;
}

static void adafactor(zpk_dtype dtype) {
  zpk_dtype real = zpk_is_narrow(dtype) ? ZPK_F32 : dtype;
  _Alignas(16) double g[OWN], p[OWN], m[OWN], average[OWN], state[FM * (FR + FC)], factors[FM * (FR + FC)];
  _Alignas(16) uint16_t weight[OWN];
  uint16_t rounded[OWN];
  double sums[FM * (FR + FC)], squares[2 * 2], want[FM * (FR + FC)] = {0}, by[FM * (FR + FC)], old_p[OWN], old_m[OWN];
  double bound = dtype == ZPK_F64 ? 1e-13 : 2e-6, want_squares[2] = {0};
  zpd_factored a = {
      .grad_scale = 0.5, .beta1 = 0.8, .beta2 = 0.3, .eps = 1e-6, .ema = 0.9, .keep = 0.99, .factor = 0.02};
  a.grad = g, a.param = p, a.m = m, a.average = average, a.state = state, a.factors = factors, a.sums = sums;
  a.weight = zpk_is_narrow(dtype) ? weight : NULL;
  a.count = OWN, a.first = BEGIN, a.width = WIDTH, a.share_first = FROM, a.stride = FC, a.local_stride = PADDED;
  a.rows = FR, a.cols = FC, a.n_rows = FM * FR, a.n_cols = FM * FC;
  for (int i = 0; i < OWN; i++) {
    put(real, g, i, gradient(i, 1)), put(real, p, i, start(i)), put(real, m, i, gradient(i, 2));
    put(real, average, i, start(i + 3));
    old_p[i] = get(real, p, i), old_m[i] = get(real, m, i);
    int element = element_of(i);
    if (element < 0) continue;
    double x = get(real, g, i) * a.grad_scale;
    want[element / FC] += x * x;
    want[FM * FR + element / (FR * FC) * FC + element % FC] += x * x;
  }
  launch(dtype, "zpd_adafactor_rows", &a, 4);
  launch(dtype, "zpd_adafactor_cols", &a, 2);
  for (int i = 0; i < FM * (FR + FC); i++) {
    cr_expect_float_eq(sums[i], want[i], bound * (1 + want[i]), "sum %d: %g, not %g", i, sums[i], want[i]);
    put(real, state, i, 0.1 + 0.01 * i);
    want[i] = 0.3 * get(real, state, i) + 0.7 * (want[i] / (i < FM * FR ? FC : FR) + 1e-6);
  }
  launch(dtype, "zpd_adafactor_means", &a, 2);
  launch(dtype, "zpd_adafactor_factors", &a, 2);
  for (int i = 0; i < FM * (FR + FC); i++) {
    double mean = 0;
    for (int k = 0; k < FR && i < FM * FR; k++) mean += want[i / FR * FR + k] / FR;
    by[i] = i < FM * FR ? 1 / sqrt(want[i] / mean) : 1 / sqrt(want[i]);
    cr_expect_float_eq(get(real, state, i), want[i], bound, "mean %d", i);
    cr_expect_float_eq(get(real, factors, i), by[i], 10 * bound * by[i], "factor %d", i);
  }
  a.sums = squares;
  launch(dtype, "zpd_adafactor_squares", &a, 2);
  launch(dtype, "zpd_adafactor_apply", &a, 2);
  for (int i = 0; i < OWN; i++) {
    int element = element_of(i);
    double step = 0, next = old_p[i];
    if (element >= 0) {
      step = get(real, g, i) * 0.5 * by[element / FC] * by[FM * FR + element / (FR * FC) * FC + element % FC];
      want_squares[0] += old_p[i] * old_p[i], want_squares[1] += step * step;
      next = old_p[i] * 0.99 - (0.8 * old_m[i] + 0.2 * 0.02 * step);
      cr_expect_float_eq(get(real, average, i), start(i + 3) + 0.1 * (next - start(i + 3)), bound, "average %d", i);
    }
    cr_expect_float_eq(get(real, p, i), next, bound, "element %d: %g, not %g", i, get(real, p, i), next);
  }
  for (int i = 0; i < 2; i++)
    cr_expect_float_eq(squares[i] + squares[2 + i], want_squares[i], 20 * bound * want_squares[i], "squares %d", i);
  if (!zpk_is_narrow(dtype)) return;
  zpk_round(dtype, (const float *)(const void *)p, rounded, OWN);
  for (int i = 0; i < OWN; i++)
    if (element_of(i) >= 0) cr_expect_eq(weight[i], rounded[i], "rounded %d", i);
}

Test(kernels_cuda_adafactor, adafactor) {
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE) adafactor((zpk_dtype)dtype);
}

Test(kernels_cuda_adafactor, sums_of_ranks_are_added_in_their_order) {
  double from[3 * 5], to[5];
  for (int i = 0; i < 15; i++) from[i] = sin(i * 1.7) * (i % 7 == 0 ? 1e3 : 1);
  zpd_arrivals a = {.to = to, .from = from, .count = 5, .n = 3};
  launch(ZPK_F32, "zpd_adafactor_add", &a, 1);
  for (int i = 0; i < 5; i++) cr_expect_eq(to[i], from[i] + from[5 + i] + from[10 + i]);
}
