/* Table lookups and their gradients: token embedding and learned positions. */
#include "clones.h"
#include <string.h>
#include <zplan/zpk.h>

enum { BLOCK = 256 };

#include "real_f32.h"
#include "lookup_template.h"
#include "lookup_grad_template.h"
#include "real_f64.h"
#include "lookup_template.h"
#include "lookup_grad_template.h"
#include "real_bf16.h"
#include "lookup_template.h"

/* Where `id` occurs next, from row r on; `rows` when it does not. */
static int64_t next_row(const int32_t *ids, int32_t id, int64_t r, int64_t rows) {
  while (r < rows && ids[r] != id) r++;
  return r;
}

/* All rows of a word are summed in f32 and rounded once: added one by one to a bf16 sum, the rows of a frequent word
 * would soon be too small to change it. The rows of a word are found by comparing ids, once for BLOCK columns. */
ZPK_CLONES static void embedding_grad_bf16(const int32_t *ids, const zpk_bf16 *restrict dy, int64_t first_row,
                                           int64_t n_rows, int64_t rows, int64_t cols, zpk_bf16 *restrict table_grad,
                                           int64_t begin, int64_t end) {
  float sum[BLOCK];
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    for (int64_t first = 0; first < rows; first++) {
      int64_t row = ids[first] - first_row;
      if (row < 0 || row >= n_rows || next_row(ids, ids[first], 0, first) < first) continue; /* not here; done */
      zpk_bf16 *restrict to = table_grad + row * cols + at;
      for (int64_t j = 0; j < n; j++) sum[j] = zpk_widen_bf16(to[j]);
      for (int64_t r = first; r < rows; r = next_row(ids, ids[first], r + 1, rows)) {
        const zpk_bf16 *restrict from = dy + r * cols + at;
        for (int64_t j = 0; j < n; j++) sum[j] += zpk_widen_bf16(from[j]);
      }
      for (int64_t j = 0; j < n; j++) to[j] = zpk_round_bf16(sum[j]);
    }
  }
}

void zpk_embedding(zpk_dtype dtype, const int32_t *ids, const void *table, int64_t first_row, int64_t n_rows,
                   int64_t cols, void *out, int64_t begin, int64_t end) {
  if (dtype == ZPK_F64)
    embedding_f64(ids, table, first_row, n_rows, cols, out, begin, end);
  else if (dtype == ZPK_BF16)
    embedding_bf16(ids, table, first_row, n_rows, cols, out, begin, end);
  else
    embedding_f32(ids, table, first_row, n_rows, cols, out, begin, end);
}

void zpk_embedding_grad(zpk_dtype dtype, const int32_t *ids, const void *dy, int64_t first_row, int64_t n_rows,
                        int64_t rows, int64_t cols, void *table_grad, int64_t begin, int64_t end) {
  if (dtype == ZPK_F64)
    embedding_grad_f64(ids, dy, first_row, n_rows, rows, cols, table_grad, begin, end);
  else if (dtype == ZPK_BF16)
    embedding_grad_bf16(ids, dy, first_row, n_rows, rows, cols, table_grad, begin, end);
  else
    embedding_grad_f32(ids, dy, first_row, n_rows, rows, cols, table_grad, begin, end);
}

void zpk_position_grad(zpk_dtype dtype, const void *dy, int64_t ld, int64_t samples, int64_t S, int64_t cols,
                       bool accumulate, void *grad, int64_t begin, int64_t end) {
  if (dtype == ZPK_F64)
    position_grad_f64(dy, ld, samples, S, cols, accumulate, grad, begin, end);
  else if (dtype == ZPK_BF16)
    position_grad_bf16(dy, ld, samples, S, cols, accumulate, grad, begin, end);
  else
    position_grad_f32(dy, ld, samples, S, cols, accumulate, grad, begin, end);
}
