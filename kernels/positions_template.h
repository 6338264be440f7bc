/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of samples in one dtype: see positions.c. */

static void NAME(move_positions)(const zpk_positions *p, int64_t begin, int64_t end) {
  size_t bytes = (size_t)p->cols * sizeof(ELEM);
  for (int64_t r = begin; r < end; r++) {
    int64_t b = r / p->n, i = r % p->n, at = p->from_at + i;
    ELEM *to = (ELEM *)p->to + (b * p->to_S + p->to_at + i) * p->cols;
    const ELEM *from = (const ELEM *)p->from + (p->shared ? 0 : b * p->from_S * p->cols);
    if (at >= 0 && at < p->from_S)
      memcpy(to, from + at * p->cols, bytes);
    else
      memset(to, 0, bytes);
  }
}

/* Columns in blocks, so that a sum is rounded to ELEM once. */
ZPK_CLONES static void NAME(mean_positions)(const ELEM *restrict x, int64_t samples, int64_t S, int64_t cols,
                                            double scale, ELEM *restrict y, int64_t begin, int64_t end) {
  REAL sum[BLOCK];
  for (int64_t b = 0; b < samples; b++)
    for (int64_t at = begin; at < end; at += BLOCK) {
      int64_t n = end - at < BLOCK ? end - at : BLOCK;
      for (int64_t j = 0; j < n; j++) sum[j] = 0;
      for (int64_t s = 0; s < S; s++) {
        const ELEM *restrict from = x + (b * S + s) * cols + at;
        for (int64_t j = 0; j < n; j++) sum[j] += GET(from[j]);
      }
      for (int64_t j = 0; j < n; j++) y[b * cols + at + j] = PUT(sum[j] * (REAL)scale);
    }
}

ZPK_CLONES static void NAME(spread_positions)(const ELEM *restrict dy, int64_t S, int64_t cols, double scale,
                                              ELEM *restrict dx, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const ELEM *restrict from = dy + r / S * cols;
    for (int64_t j = 0; j < cols; j++) dx[r * cols + j] = PUT(GET(from[j]) * (REAL)scale);
  }
}
