/* Table lookups and their gradients: token embedding and learned positions. */
#include "clones.h"
#include <string.h>
#include <zplan/zpk.h>

#include "real_f32.h"
#include "lookup_template.h"
#include "real_f64.h"
#include "lookup_template.h"

void zpk_embedding(zpk_dtype dtype, const int32_t *ids, const void *table, int64_t first_row, int64_t n_rows,
                   int64_t cols, void *out, int64_t begin, int64_t end) {
  if (dtype == ZPK_F64)
    embedding_f64(ids, table, first_row, n_rows, cols, out, begin, end);
  else
    embedding_f32(ids, table, first_row, n_rows, cols, out, begin, end);
}

void zpk_embedding_grad(zpk_dtype dtype, const int32_t *ids, const void *dy, int64_t first_row, int64_t n_rows,
                        int64_t rows, int64_t cols, void *table_grad, int64_t begin, int64_t end) {
  if (dtype == ZPK_F64)
    embedding_grad_f64(ids, dy, first_row, n_rows, rows, cols, table_grad, begin, end);
  else
    embedding_grad_f32(ids, dy, first_row, n_rows, rows, cols, table_grad, begin, end);
}

void zpk_position_grad(zpk_dtype dtype, const void *dy, int64_t ld, int64_t samples, int64_t S, int64_t cols,
                       bool accumulate, void *grad, int64_t begin, int64_t end) {
  if (dtype == ZPK_F64)
    position_grad_f64(dy, ld, samples, S, cols, accumulate, grad, begin, end);
  else
    position_grad_f32(dy, ld, samples, S, cols, accumulate, grad, begin, end);
}
