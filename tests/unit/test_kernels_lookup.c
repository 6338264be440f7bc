/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding lookups and gradients: exact sums of small integers, so the reference needs no tolerance. */
#include <criterion/criterion.h>
#include <string.h>
#include <zplan/zpk.h>

enum { R = 11, COLS = 21, TABLE = 6, FIRST = 3 };
static const int32_t ids[R] = {3, 8, 2, 9, 3, 5, 5, -1, 3, 100, 4}; /* 3..8 are in the table */

static void set(zpk_dtype dtype, void *x, int64_t i, int value) {
  if (dtype == ZPK_F64)
    ((double *)x)[i] = value;
  else
    ((float *)x)[i] = (float)value;
}

static int get(zpk_dtype dtype, const void *x, int64_t i) {
  return (int)(dtype == ZPK_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i]);
}

static void embedding(zpk_dtype dtype) {
  double table[TABLE * COLS], out[R * COLS];
  for (int i = 0; i < TABLE * COLS; i++) set(dtype, table, i, i + 1);
  memset(out, 0xff, sizeof out);
  zpk_embedding(dtype, ids, table, FIRST, TABLE, COLS, out, 4, R);
  zpk_embedding(dtype, ids, table, FIRST, TABLE, COLS, out, 0, 4);
  for (int r = 0; r < R; r++)
    for (int j = 0; j < COLS; j++) {
      int row = ids[r] - FIRST, want = row >= 0 && row < TABLE ? row * COLS + j + 1 : 0;
      cr_expect_eq(get(dtype, out, r * COLS + j), want, "row %d column %d", r, j);
    }
}

static void embedding_grad(zpk_dtype dtype) {
  double grad[TABLE * COLS], dy[R * COLS];
  int want[TABLE * COLS];
  for (int i = 0; i < TABLE * COLS; i++) set(dtype, grad, i, want[i] = i % 3);
  for (int i = 0; i < R * COLS; i++) set(dtype, dy, i, i * 7 % 31);
  for (int r = 0; r < R; r++)
    for (int j = 0; j < COLS; j++)
      if (ids[r] >= FIRST && ids[r] < FIRST + TABLE) want[(ids[r] - FIRST) * COLS + j] += (r * COLS + j) * 7 % 31;
  zpk_embedding_grad(dtype, ids, dy, FIRST, TABLE, R, COLS, grad, 0, 13);
  zpk_embedding_grad(dtype, ids, dy, FIRST, TABLE, R, COLS, grad, 13, COLS);
  for (int i = 0; i < TABLE * COLS; i++) cr_expect_eq(get(dtype, grad, i), want[i], "element %d", i);
}

static void position_grad(zpk_dtype dtype, bool accumulate) {
  enum { SAMPLES = 3, S = 5, LD = COLS + 4 };
  double grad[S * COLS], dy[SAMPLES * S * LD];
  for (int i = 0; i < SAMPLES * S * LD; i++) set(dtype, dy, i, i * 5 % 37);
  for (int i = 0; i < S * COLS; i++) set(dtype, grad, i, 1000);
  zpk_position_grad(dtype, dy, LD, SAMPLES, S, COLS, accumulate, grad, 2, S);
  zpk_position_grad(dtype, dy, LD, SAMPLES, S, COLS, accumulate, grad, 0, 2);
  for (int s = 0; s < S; s++)
    for (int j = 0; j < COLS; j++) {
      int want = accumulate ? 1000 : 0;
      for (int b = 0; b < SAMPLES; b++) want += ((b * S + s) * LD + j) * 5 % 37;
      cr_expect_eq(get(dtype, grad, s * COLS + j), want, "position %d column %d", s, j);
    }
}

Test(kernels_lookup, embedding) {
  embedding(ZPK_F32);
  embedding(ZPK_F64);
}
Test(kernels_lookup, embedding_grad) {
  embedding_grad(ZPK_F32);
  embedding_grad(ZPK_F64);
}
Test(kernels_lookup, position_grad) {
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    position_grad(ZPK_F32, accumulate);
    position_grad(ZPK_F64, accumulate);
  }
}
