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

/* Columns in blocks, so that a sum is rounded to ELEM once. */
ZPK_CLONES static void NAME(position_grad)(const ELEM *restrict dy, int64_t ld, int64_t samples, int64_t S,
                                           int64_t cols, bool accumulate, ELEM *restrict grad, int64_t begin,
                                           int64_t end) {
  REAL sum[BLOCK];
  for (int64_t s = begin; s < end; s++)
    for (int64_t at = 0; at < cols; at += BLOCK) {
      int64_t n = cols - at < BLOCK ? cols - at : BLOCK;
      ELEM *restrict to = grad + s * cols + at;
      for (int64_t j = 0; j < n; j++) sum[j] = accumulate ? GET(to[j]) : 0;
      for (int64_t b = 0; b < samples; b++) {
        const ELEM *restrict from = dy + (b * S + s) * ld + at;
        for (int64_t j = 0; j < n; j++) sum[j] += GET(from[j]);
      }
      for (int64_t j = 0; j < n; j++) to[j] = PUT(sum[j]);
    }
}

#ifdef NARROW
/* All rows of a word are summed in f32 and rounded once: added one by one to a 16-bit sum, the rows of a frequent word
 * would soon be too small to change it. The rows of a word are found by comparing ids, once for BLOCK columns. */
ZPK_CLONES static void NAME(embedding_grad)(const int32_t *ids, const ELEM *restrict dy, int64_t first_row,
                                            int64_t n_rows, int64_t rows, int64_t cols, ELEM *restrict table_grad,
                                            int64_t begin, int64_t end) {
  float sum[BLOCK];
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    for (int64_t first = 0; first < rows; first++) {
      int64_t row = ids[first] - first_row;
      if (row < 0 || row >= n_rows || next_row(ids, ids[first], 0, first) < first) continue; /* not here; done */
      ELEM *restrict to = table_grad + row * cols + at;
      for (int64_t j = 0; j < n; j++) sum[j] = GET(to[j]);
      for (int64_t r = first; r < rows; r = next_row(ids, ids[first], r + 1, rows)) {
        const ELEM *restrict from = dy + r * cols + at;
        for (int64_t j = 0; j < n; j++) sum[j] += GET(from[j]);
      }
      for (int64_t j = 0; j < n; j++) to[j] = PUT(sum[j]);
    }
  }
}
#else
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
#endif
