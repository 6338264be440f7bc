/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups in one dtype: see lookup.c. */

static void NAME(embedding)(const int32_t *ids, const ELEM *table, int64_t first_row, int64_t n_rows, int64_t cols,
                            ELEM *out, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    int64_t row = ids[r] - first_row;
    if (row >= 0 && row < n_rows)
      memcpy(out + r * cols, table + row * cols, (size_t)cols * sizeof(ELEM));
    else
      memset(out + r * cols, 0, (size_t)cols * sizeof(ELEM));
  }
}

ZPK_CLONES static void NAME(position_grad)(const ELEM *restrict dy, int64_t ld, int64_t samples, int64_t S,
                                           int64_t cols, bool accumulate, REAL *restrict grad, int64_t begin,
                                           int64_t end) {
  REAL sum[BLOCK];
  for (int64_t s = begin; s < end; s++)
    for (int64_t at = 0; at < cols; at += BLOCK) {
      int64_t n = cols - at < BLOCK ? cols - at : BLOCK;
      REAL *restrict to = grad + s * cols + at;
      for (int64_t j = 0; j < n; j++) sum[j] = accumulate ? to[j] : 0;
      for (int64_t b = 0; b < samples; b++) {
        const ELEM *restrict from = dy + (b * S + s) * ld + at;
        for (int64_t j = 0; j < n; j++) sum[j] += GET(from[j]);
      }
      for (int64_t j = 0; j < n; j++) to[j] = sum[j];
    }
}

ZPK_CLONES static void NAME(embedding_grad)(const int32_t *ids, const ELEM *restrict dy, int64_t first_row,
                                            int64_t n_rows, int64_t rows, int64_t cols, REAL *restrict table_grad,
                                            int64_t begin, int64_t end) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t row = ids[r] - first_row;
    if (row < 0 || row >= n_rows) continue;
    REAL *restrict to = table_grad + row * cols;
    const ELEM *restrict from = dy + r * cols;
    for (int64_t j = begin; j < end; j++) to[j] += GET(from[j]);
  }
}
