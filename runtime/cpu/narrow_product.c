/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 16-bit operands: tiles of the result are computed in f32 and every element of it is rounded once; those
 * of gradients, to which more is added later, are f32 and computed, and added to, where they are. Where the processor
 * multiplies bf16 itself, the library reads the operands where they are; otherwise tiles of them are widened and
 * multiplied in f32. Either way products are exact and sums are f32. Operands of 8 bits are such tiles, rounded. */
#include <assert.h>
#include <string.h>
#include <zplan/rt.h>
#include "product.h"

static int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

static const char *left(const zpr_product *p, int64_t term, int64_t i, int64_t l) {
  const zpr_operands *o = &p->of;
  return (const char *)o->a + term * p->a_term + (o->trans_a ? l * o->lda + i : i * o->lda + l) * zpk_bytes(p->dtype);
}

static const char *right(const zpr_product *p, int64_t term, int64_t l, int64_t j) {
  const zpr_operands *o = &p->of;
  return (const char *)o->b + term * p->b_term + (o->trans_b ? j * o->ldb + l : l * o->ldb + j) * zpk_bytes(p->dtype);
}

/* Where rows from i and columns from j of the result are computed: in place, or in a tile. */
typedef struct sum {
  float *y;
  int64_t ld;
} sum;

static sum sum_of(const zpr_product *p, int64_t i, int64_t j, int64_t n, float *tile) {
  const zpr_operands *o = &p->of;
  return p->gradient ? (sum){(float *)o->y + i * o->ldy + j, o->ldy} : (sum){tile, n};
}

/* The tile y[m][n] to rows from i and columns from j of the result. */
static void round_tile(const zpr_product *p, int64_t i, int64_t j, int64_t m, int64_t n, const float *y) {
  const zpr_operands *o = &p->of;
  int64_t size = zpk_bytes(p->dtype);
  char *to = (char *)o->y + (i * o->ldy + j) * size;
  assert(!o->accumulate && "sums are not kept in 16 bits");
  for (int64_t row = 0; row < m; row++) zpk_round(p->dtype, y + row * n, to + row * o->ldy * size, n);
}

/* ---- operands as they are ---- */

enum { BF16_M = 256, BF16_N = 320 };
_Static_assert((int64_t)BF16_M *BF16_N * sizeof(float) <= ZPR_PRODUCT_BYTES, "the tile fits into a worker's share");

static bool bf16_tile(const zpr_product *p, int64_t i, int64_t j, float *y) {
  const zpr_operands *o = &p->of;
  int64_t m = shorter(BF16_M, o->m - i), n = shorter(BF16_N, o->n - j);
  sum to = sum_of(p, i, j, n, y);
  for (int64_t term = 0; term < p->terms; term++) {
    const zpr_operands tile = {.trans_a = o->trans_a,
                               .trans_b = o->trans_b,
                               .accumulate = term > 0 || (p->gradient && o->accumulate),
                               .m = m,
                               .n = n,
                               .k = o->k,
                               .lda = o->lda,
                               .ldb = o->ldb,
                               .ldy = to.ld,
                               .a = left(p, term, i, 0),
                               .b = right(p, term, 0, j),
                               .y = to.y};
    if (!p->use->bf16->bf16(&tile)) return false;
  }
  if (!p->gradient) round_tile(p, i, j, m, n, y);
  return true;
}

static bool bf16_product(const zpr_product *p, float *tile) {
  bool done = true;
  for (int64_t i = 0; i < p->of.m && done; i += BF16_M)
    for (int64_t j = 0; j < p->of.n && done; j += BF16_N) done = bf16_tile(p, i, j, tile);
  return done;
}

/* ---- widened operands ---- */

enum { M = ZPK_PRODUCT_M, N = ZPK_PRODUCT_N, K = ZPK_PRODUCT_K };

/* rows x cols of a matrix to a tile with leading dimension cols. */
static void widen_tile(zpk_dtype dtype, const char *from, int64_t ld, int64_t rows, int64_t cols, float *to) {
  for (int64_t i = 0; i < rows; i++) zpk_widen(dtype, from + i * ld * zpk_bytes(dtype), to + i * cols, cols);
}

/* A tile [rows][cols] of an operand. Blocks begin where tiles do: at multiples of M and N, and of K along the sum. */
_Static_assert(M % 128 == 0 && N % 128 == 0 && K % 128 == 0, "tiles are whole blocks");
_Static_assert((int)M <= (int)ZPK_FLOAT8_COLS && (int)N <= (int)ZPK_FLOAT8_COLS && (int)K <= (int)ZPK_FLOAT8_COLS,
               "tiles are no wider");

static void through_float8(zpk_float8 format, float scale, bool down, int64_t rows, int64_t cols, float *tile) {
  if (zpk_float8_block_of(format).along)
    zpk_through_float8_blocks(format, down, rows, cols, tile);
  else
    zpk_through_float8(format, scale, tile, rows * cols);
}

/* A kept operand's tile is read as the product of 16-bit operands would have rounded it. */
static void left_tile(const zpr_product *p, int64_t term, int64_t i, int64_t l, int64_t rows, int64_t cols, float *to) {
  if (p->a_kept) {
    zpk_read_float8(p->a_kept, l, p->a_column + i, rows, cols, to);
    return;
  }
  widen_tile(p->dtype, left(p, term, i, l), p->of.lda, rows, cols, to);
  if (p->float8) through_float8(p->a_format, p->a_scale, p->of.trans_a, rows, cols, to);
}

static void right_tile(const zpr_product *p, int64_t term, int64_t l, int64_t j, int64_t rows, int64_t cols,
                       float *to) {
  if (p->b_kept) {
    zpk_read_float8(p->b_kept, l, p->b_column + j, rows, cols, to);
    return;
  }
  widen_tile(p->dtype, right(p, term, l, j), p->of.ldb, rows, cols, to);
  if (p->float8) through_float8(p->b_format, p->b_scale, !p->of.trans_b, rows, cols, to);
}

static bool widened_tile(const zpr_product *p, int64_t i, int64_t j, float *tiles) {
  const zpr_operands *o = &p->of;
  float *a = tiles, *b = a + M * K, *y = b + K * N;
  int64_t m = shorter(M, o->m - i), n = shorter(N, o->n - j);
  sum to = sum_of(p, i, j, n, y);
  for (int64_t row = 0; row < m && !(p->gradient && o->accumulate); row++)
    memset(to.y + row * to.ld, 0, (size_t)n * sizeof *y);
  for (int64_t term = 0; term < p->terms; term++)
    for (int64_t l = 0; l < o->k; l += K) {
      int64_t k = shorter(K, o->k - l);
      int64_t a_rows = o->trans_a ? k : m, a_cols = o->trans_a ? m : k;
      int64_t b_rows = o->trans_b ? n : k, b_cols = o->trans_b ? k : n;
      left_tile(p, term, i, l, a_rows, a_cols, a);
      right_tile(p, term, l, j, b_rows, b_cols, b);
      const zpr_operands tile = {o->trans_a, o->trans_b, true, m, n, k, a_cols, b_cols, to.ld, a, b, to.y};
      if (!p->use->f32->f32(&tile)) return false;
    }
  if (!p->gradient) round_tile(p, i, j, m, n, y);
  return true;
}

static bool widened_product(const zpr_product *p, float *tiles) {
  bool done = true;
  for (int64_t i = 0; i < p->of.m && done; i += M)
    for (int64_t j = 0; j < p->of.n && done; j += N) done = widened_tile(p, i, j, tiles);
  return done;
}

bool zpr_narrow_product(const zpr_product *p, int worker) {
  float *tiles = (float *)(void *)(p->tiles + worker * ZPR_PRODUCT_BYTES);
  return p->dtype == ZPK_BF16 && p->use->bf16 && !p->float8 ? bf16_product(p, tiles) : widened_product(p, tiles);
}
