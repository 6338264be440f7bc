/* Lookups in one dtype: see lookup.c. */

static void NAME(embedding)(const int32_t *ids, const REAL *table, int64_t first_row, int64_t n_rows, int64_t cols,
                            REAL *out, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    int64_t row = ids[r] - first_row;
    if (row >= 0 && row < n_rows)
      memcpy(out + r * cols, table + row * cols, (size_t)cols * sizeof(REAL));
    else
      memset(out + r * cols, 0, (size_t)cols * sizeof(REAL));
  }
}

ZPK_CLONES static void NAME(embedding_grad)(const int32_t *ids, const REAL *restrict dy, int64_t first_row,
                                            int64_t n_rows, int64_t rows, int64_t cols, REAL *restrict table_grad,
                                            int64_t begin, int64_t end) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t row = ids[r] - first_row;
    if (row < 0 || row >= n_rows) continue;
    REAL *restrict to = table_grad + row * cols;
    const REAL *restrict from = dy + r * cols;
    for (int64_t j = begin; j < end; j++) to[j] += from[j];
  }
}

ZPK_CLONES static void NAME(position_grad)(const REAL *restrict dy, int64_t ld, int64_t samples, int64_t S,
                                           int64_t cols, bool accumulate, REAL *restrict grad, int64_t begin,
                                           int64_t end) {
  for (int64_t s = begin; s < end; s++) {
    REAL *restrict to = grad + s * cols;
    if (!accumulate) memset(to, 0, (size_t)cols * sizeof(REAL));
    for (int64_t b = 0; b < samples; b++) {
      const REAL *restrict from = dy + (b * S + s) * ld;
      for (int64_t j = 0; j < cols; j++) to[j] += from[j];
    }
  }
}
