/* SPDX-License-Identifier: Apache-2.0 */
/* Table lookups and their gradients: token embedding and learned positions. */
#include "clones.h"
#include <assert.h>
#include <string.h>
#include <zplan/zpk.h>

enum { BLOCK = 256 };

#define TEMPLATE "lookup_template.h"
#include "every_dtype.h"

void zpk_embedding(zpk_dtype dtype, const int32_t *ids, const void *table, int64_t first_row, int64_t n_rows,
                   int64_t cols, void *out, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && first_row >= 0 && n_rows >= 0 && cols >= 1);
  assert(begin >= 0 && begin <= end);
  ZPK_BY_DTYPE(dtype, embedding, ids, table, first_row, n_rows, cols, out, begin, end);
}

void zpk_embedding_grad(zpk_dtype dtype, const int32_t *ids, const void *dy, int64_t first_row, int64_t n_rows,
                        int64_t rows, int64_t cols, void *table_grad, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && first_row >= 0 && n_rows >= 0 && rows >= 0);
  assert(begin >= 0 && begin <= end && end <= cols);
  ZPK_BY_DTYPE(dtype, embedding_grad, ids, dy, first_row, n_rows, rows, cols, table_grad, begin, end);
}

void zpk_position_grad(zpk_dtype dtype, const void *dy, int64_t ld, int64_t samples, int64_t S, int64_t cols,
                       bool accumulate, void *grad, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && ld >= cols && samples >= 1);
  assert(begin >= 0 && begin <= end && end <= S);
  ZPK_BY_DTYPE(dtype, position_grad, dy, ld, samples, S, cols, accumulate, grad, begin, end);
}
