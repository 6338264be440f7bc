/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers in one dtype: see gather.c. */

static void NAME(gather)(const zpk_gather_args *a, int64_t begin, int64_t end) {
  size_t bytes = (size_t)a->cols * sizeof(ELEM);
  for (int64_t r = begin; r < end; r++) {
    int64_t at = a->index[r] - a->first;
    ELEM *to = (ELEM *)a->to + r * a->cols;
    if (at >= 0 && at < a->S)
      memcpy(to, (const ELEM *)a->from + (r / a->n * a->S + at) * a->cols, bytes);
    else
      memset(to, 0, bytes);
  }
}

/* Columns in blocks, so that a sum is rounded to ELEM once. */
ZPK_CLONES static void NAME(gather_grad)(const zpk_gather_args *a, int64_t begin, int64_t end) {
  REAL sum[BLOCK];
  for (int64_t r = begin; r < end; r++)
    for (int64_t at = 0; at < a->cols; at += BLOCK) {
      int64_t n = a->cols - at < BLOCK ? a->cols - at : BLOCK, first = r / a->S * a->n;
      ELEM *restrict to = (ELEM *)a->to + r * a->cols + at;
      for (int64_t j = 0; j < n; j++) sum[j] = 0;
      for (int64_t i = first; i < first + a->n; i++) {
        const ELEM *restrict from = (const ELEM *)a->from + i * a->cols + at;
        if (a->index[i] - a->first != r % a->S) continue;
        for (int64_t j = 0; j < n; j++) sum[j] += GET(from[j]);
      }
      for (int64_t j = 0; j < n; j++) to[j] = PUT(sum[j]);
    }
}
