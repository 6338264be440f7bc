/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of samples, and results merged: small integers, so the reference needs no tolerance, in every dtype. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/zpk.h>
#include "narrow_testing.h"

enum { SAMPLES = 3, COLS = 21 };

/* Numbers 0 to 7, which every dtype has. */
static int number(int64_t i) { return (int)(i * 5 % 8); }

static void *numbers(zpk_dtype dtype, int64_t count) {
  void *x = malloc((size_t)(count * zpk_bytes(dtype)));
  for (int64_t i = 0; i < count; i++) put_as(dtype, x, i, number(i));
  return x;
}

/* What position i of sample b in `to` is after the move; -1: as it was. */
static int moved(const zpk_positions *p, int64_t b, int64_t i, int64_t j) {
  int64_t k = i - p->to_at, at = p->from_at + k;
  if (k < 0 || k >= p->n) return -1;
  if (at < 0 || at >= p->from_S) return 0;
  return number(((p->shared ? 0 : b) * p->from_S + at) * COLS + j);
}

static void check_move(zpk_dtype dtype, zpk_positions p) {
  enum { BEFORE = 9 };
  void *from = numbers(dtype, SAMPLES * p.from_S * COLS), *to = numbers(dtype, SAMPLES * p.to_S * COLS);
  for (int64_t i = 0; i < SAMPLES * p.to_S * COLS; i++) put_as(dtype, to, i, BEFORE);
  p.from = from, p.to = to, p.samples = SAMPLES, p.cols = COLS;
  zpk_positions c = zpk_clip_positions(&p);
  int64_t rows = SAMPLES * c.n;
  zpk_move_positions(dtype, &c, rows / 2, rows);
  zpk_move_positions(dtype, &c, 0, rows / 2);
  for (int64_t b = 0; b < SAMPLES; b++)
    for (int64_t i = 0; i < p.to_S; i++)
      for (int64_t j = 0; j < COLS; j++) {
        int want = moved(&p, b, i, j);
        cr_assert_eq(get_as(dtype, to, (b * p.to_S + i) * COLS + j), want < 0 ? BEFORE : want,
                     "sample %d position %d of %d", (int)b, (int)i, (int)p.to_S);
      }
  free(from), free(to);
}

Test(kernels_positions, move) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    check_move((zpk_dtype)dtype, (zpk_positions){.from_S = 5, .to_S = 7, .to_at = 2, .n = 5});   /* into a larger one */
    check_move((zpk_dtype)dtype, (zpk_positions){.from_S = 7, .from_at = 3, .to_S = 2, .n = 2}); /* a part */
    check_move((zpk_dtype)dtype, (zpk_positions){.from_S = 2, .from_at = -3, .to_S = 7, .n = 7}); /* zeros around it */
    check_move((zpk_dtype)dtype, (zpk_positions){.from_S = 2, .to_S = 4, .n = 2, .shared = true});
    /* Clipped in front, after, and away altogether. */
    check_move((zpk_dtype)dtype, (zpk_positions){.from_S = 6, .to_S = 4, .to_at = -3, .n = 6});
    check_move((zpk_dtype)dtype, (zpk_positions){.from_S = 6, .to_S = 4, .to_at = 1, .n = 6});
    check_move((zpk_dtype)dtype, (zpk_positions){.from_S = 6, .to_S = 4, .to_at = -8, .n = 6});
    check_move((zpk_dtype)dtype, (zpk_positions){.from_S = 6, .to_S = 4, .to_at = 5, .n = 6});
  }
}

/* Scale 0.5 of sums and of single numbers is exact, too: below 28 by halves even bf16 has them. */
Test(kernels_positions, mean_and_its_gradient) {
  enum { S = 4 };
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    void *x = numbers((zpk_dtype)dtype, SAMPLES * S * COLS), *y = numbers((zpk_dtype)dtype, SAMPLES * COLS);
    zpk_mean_positions((zpk_dtype)dtype, x, SAMPLES, S, COLS, 0.5, y, 13, COLS);
    zpk_mean_positions((zpk_dtype)dtype, x, SAMPLES, S, COLS, 0.5, y, 0, 13);
    for (int64_t i = 0; i < SAMPLES * COLS; i++) {
      int sum = 0;
      for (int64_t s = 0; s < S; s++) sum += number((i / COLS * S + s) * COLS + i % COLS);
      cr_assert_eq(get_as((zpk_dtype)dtype, y, i), 0.5 * sum, "element %d", (int)i);
    }
    zpk_spread_positions((zpk_dtype)dtype, y, S, COLS, 0.5, x, 5, SAMPLES * S);
    zpk_spread_positions((zpk_dtype)dtype, y, S, COLS, 0.5, x, 0, 5);
    for (int64_t i = 0; i < SAMPLES * S * COLS; i++)
      cr_assert_eq(get_as((zpk_dtype)dtype, x, i), 0.5 * get_as((zpk_dtype)dtype, y, i / COLS / S * COLS + i % COLS));
    free(x), free(y);
  }
}

/* Results with log-sum-exps that are equal or 1 and 3 times as much: weights are halves and quarters. */
Test(kernels_positions, merge) {
  enum { ROWS = 3, HEADS = 2, WIDTH = 5, OWN = HEADS * WIDTH, LD = OWN + 3 };
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    zpk_dtype real = dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
    void *to = numbers((zpk_dtype)dtype, ROWS * LD), *from = numbers((zpk_dtype)dtype, ROWS * OWN);
    double lse[ROWS * HEADS], other[ROWS * HEADS];
    for (int i = 0; i < ROWS * HEADS; i++) put_as(real, lse, i, 2), put_as(real, other, i, i % 2 ? 2 + log(3) : 2);
    zpk_merge m = {.to = to, .from = from, .lse = lse, .from_lse = other, .rows = ROWS, .heads = HEADS, .hd = WIDTH};
    m.to_ld = LD, m.from_ld = OWN;
    zpk_merge_parts((zpk_dtype)dtype, &m, 1, ROWS);
    zpk_merge_parts((zpk_dtype)dtype, &m, 0, 1);
    for (int i = 0; i < ROWS * LD; i++) {
      int row = i / LD, col = i % LD, h = col / WIDTH;
      double want = number(i), share = h % 2 ? 0.75 : 0.5;
      if (col < OWN) want += share * (number(row * OWN + col) - want);
      cr_assert_float_eq(get_as((zpk_dtype)dtype, to, i), want, 4e-6, "row %d, column %d", row, col);
    }
    for (int i = 0; i < ROWS * HEADS; i++)
      cr_assert_float_eq(get_as(real, lse, i), 2 + log(i % 2 ? 4 : 2), 1e-6, "log-sum-exp %d", i);
    m.lse = NULL, m.from_lse = NULL, m.from = to, m.from_ld = LD;
    zpk_merge_parts((zpk_dtype)dtype, &m, 0, ROWS);
    cr_assert_float_eq(get_as((zpk_dtype)dtype, to, OWN - 1), 2 * (number(OWN - 1) / 4.0 + 0.75 * number(OWN - 1)),
                       1e-6);
    free(to), free(from);
  }
}

/* Sums in `real` of rows that are not: set, added to, and put back with another leading dimension. */
Test(kernels_positions, merge_wide) {
  enum { ROWS = 3, WIDTH = 7, LD = WIDTH + 2 };
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    zpk_dtype real = dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
    void *from = numbers((zpk_dtype)dtype, ROWS * LD), *back = numbers((zpk_dtype)dtype, ROWS * LD);
    double sums[ROWS * WIDTH];
    memset(sums, 0xff, sizeof sums); /* no numbers */
    zpk_merge m = {.to = sums, .from = from, .rows = ROWS, .heads = 1, .hd = WIDTH, .to_ld = WIDTH, .from_ld = LD};
    m.to_wide = 1, m.set = 1;
    zpk_merge_parts((zpk_dtype)dtype, &m, 0, ROWS);
    m.set = 0;
    for (int i = 0; i < 256; i++) zpk_merge_parts((zpk_dtype)dtype, &m, 0, ROWS); /* bf16 would stand still */
    for (int i = 0; i < ROWS * WIDTH; i++)
      cr_assert_eq(get_as(real, sums, i), 257 * number(i / WIDTH * LD + i % WIDTH), "element %d", i);
    zpk_merge out = {.to = back, .from = sums, .rows = ROWS, .heads = 1, .hd = WIDTH, .to_ld = LD, .from_ld = WIDTH};
    out.from_wide = 1, out.set = 1;
    for (int i = 0; i < ROWS * WIDTH; i++) put_as(real, sums, i, number(i));
    zpk_merge_parts((zpk_dtype)dtype, &out, 0, ROWS);
    for (int i = 0; i < ROWS * LD; i++)
      cr_assert_eq(get_as((zpk_dtype)dtype, back, i), number(i % LD < WIDTH ? i / LD * WIDTH + i % LD : i));
    free(from), free(back);
  }
}
