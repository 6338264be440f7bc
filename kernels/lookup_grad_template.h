/* Gradient of a lookup in f32 or f64: see lookup.c, where that of bf16 is. */

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
