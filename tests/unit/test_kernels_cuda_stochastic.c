/* SPDX-License-Identifier: Apache-2.0 */
/* Additions to bf16 that are rounded stochastically: one of the two neighbours, up as often as the share of the spacing
 * says, the same bits whatever the ranges, the shares of tensor ranks and the kernels are. The device's kernel is
 * compiled for the host. */
#include "device_kernels.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <zplan/zpk.h>
#include <zplan/zpk_narrow.h>

static device_texts texts = {
    .text = "#define ZPD_STOCHASTIC_SUMS\n#include \"zpd_stochastic.cuh\"\n#include \"zpd_step.cuh\"\n"};
static void close_texts(void) { device_texts_close(&texts); }
TestSuite(kernels_stochastic, .fini = close_texts);

enum { ROWS = 37, COLS = 96, N = ROWS * COLS };

/* All of a logical tensor. */
static zpd_stochastic whole(unsigned short *sum, const float *x, unsigned addend, bool add) {
  return (zpd_stochastic){.sum = sum,
                          .x = x,
                          .count = N,
                          .local_stride = N,
                          .stride = N,
                          .tensor = UINT64_C(0x123456789abcdef0),
                          .key = {17, 4},
                          .addend = addend,
                          .add = add};
}

static float number(int i) { return (float)sin(i * 1.3 + 0.1) * (i % 5 == 0 ? 300.0f : 1.0f); }

Test(kernels_stochastic, a_neighbour_and_unbiased) {
  float x[N];
  unsigned short sum[N];
  double off = 0, most = 0;
  int up = 0;
  for (int i = 0; i < N; i++) x[i] = number(i);
  for (unsigned addend = 0; addend < 64; addend++) {
    zpd_stochastic a = whole(sum, x, addend, false);
    zpk_add_stochastic(&a, 0, N);
    for (int i = 0; i < N; i++) {
      unsigned bits = zpk_to_bits(x[i]), down = bits >> 16;
      cr_assert(sum[i] == down || (sum[i] == down + 1 && (bits & 0xFFFF)), "%g became %04x", (double)x[i], sum[i]);
      double spacing =
          fabs((double)zpk_widen_bf16((unsigned short)(down + 1)) - (double)zpk_widen_bf16((unsigned short)down));
      off += ((double)zpk_widen_bf16(sum[i]) - (double)x[i]) / spacing;
      most = fmax(most, spacing / fabs((double)x[i]));
      up += sum[i] != down;
    }
  }
  /* p (1 - p) is 1/6 on average, and 64 N of them are added up: within 5 deviations. */
  cr_expect_lt(fabs(off), 5 * sqrt(64.0 * N / 6), "%g", off);
  cr_expect_gt(up, 64 * N / 3);
  cr_expect_leq(most, 0x1p-7);
}

/* Numbers that bf16 has stay as they are, infinity too; a NaN is one. */
Test(kernels_stochastic, exact_numbers) {
  float x[N] = {0, 1, -2.5f, INFINITY, -INFINITY, NAN, 0x1.fep127f};
  unsigned short sum[N];
  x[7] = zpk_from_bits(0x7F800001); /* bits that the upper half does not have */
  zpd_stochastic a = whole(sum, x, 3, false);
  zpk_add_stochastic(&a, 0, N);
  for (int i = 0; i < 5; i++) cr_expect_eq(zpk_widen_bf16(sum[i]), x[i], "%d", i);
  cr_expect(isnan(zpk_widen_bf16(sum[5])) && isnan(zpk_widen_bf16(sum[7])));
  cr_expect_eq(zpk_widen_bf16(sum[6]), x[6]);
}

/* 4,096 equal addends: rounded to the nearest, the sum would stand still at 256 of them. */
Test(kernels_stochastic, many_addends) {
  float x[N];
  unsigned short sum[N];
  double mean = 0, squares = 0;
  for (int i = 0; i < N; i++) x[i] = 0.1f;
  for (unsigned addend = 0; addend < 4096; addend++) {
    zpd_stochastic a = whole(sum, x, addend, addend > 0);
    zpk_add_stochastic(&a, 0, N);
  }
  for (int i = 0; i < N; i++) {
    double error = (double)zpk_widen_bf16(sum[i]) / (4096 * (double)0.1f) - 1;
    mean += error / N;
    squares += error * error / N;
  }
  cr_expect_lt(fabs(mean), 5 * 0.0924 / sqrt(N), "%g", mean);
  cr_expect_lt(sqrt(squares), 0.0924);
  cr_expect_gt(sqrt(squares), 0.01);
}

/* What a tensor rank has of columns, and a data rank of that, gets the bits of the whole. */
Test(kernels_stochastic, shares_and_ranges) {
  float x[N], part[N];
  unsigned short all[N], some[N];
  for (int i = 0; i < N; i++) x[i] = number(i);
  zpd_stochastic a = whole(all, x, 9, false);
  zpk_add_stochastic(&a, 0, 1000);
  zpk_add_stochastic(&a, 1000, N);
  enum { SHARES = 3, WIDTH = COLS / SHARES, BEGIN = 101 };
  for (int share = 0; share < SHARES; share++) {
    for (int i = 0; i < ROWS * WIDTH; i++) part[i] = x[i / WIDTH * COLS + share * WIDTH + i % WIDTH];
    a = whole(some, part + BEGIN, 9, false);
    a.first = BEGIN, a.count = ROWS * WIDTH - BEGIN;
    a.local_stride = WIDTH, a.stride = COLS, a.logical_first = share * WIDTH;
    zpk_add_stochastic(&a, 0, a.count);
    for (int i = BEGIN; i < ROWS * WIDTH; i++)
      cr_assert_eq(some[i - BEGIN], all[i / WIDTH * COLS + share * WIDTH + i % WIDTH], "share %d, element %d", share,
                   i);
  }
}

Test(kernels_stochastic, the_device_has_the_same_bits) {
  float x[N];
  unsigned short host[N], device[N];
  for (int i = 0; i < N; i++) x[i] = number(i);
  for (int dtype = ZPK_BF16; dtype <= ZPK_F16; dtype++)
    for (unsigned addend = 0; addend < 5; addend++) {
      zpd_stochastic a = whole(host, x, addend, addend > 0), b = whole(device, x, addend, addend > 0);
      a.first = b.first = 5, a.count = b.count = N - 5;
      a.local_stride = b.local_stride = 24, a.stride = b.stride = 96, a.logical_first = b.logical_first = 24;
      zpk_add_stochastic(&a, 0, a.count);
      device_launch(device_text(&texts, (zpk_dtype)dtype), "zpd_add_stochastic", &b, 2, 1, 1, ZPD_FLAT_THREADS);
      cr_expect_arr_eq(host, device, (N - 5) * sizeof *host);
    }
}
