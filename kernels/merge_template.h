/* SPDX-License-Identifier: Apache-2.0 */
/* Results merged in one dtype: see merge.c. Weights are a few numbers a row, so the library's exponential will do. */

/* Element i of rows that are `real`, or not. */
static REAL NAME(merge_get)(const void *x, bool wide, int64_t i) {
  return wide ? ((const REAL *)x)[i] : GET(((const ELEM *)x)[i]);
}

static void NAME(merge_put)(void *x, bool wide, int64_t i, REAL value) {
  if (wide)
    ((REAL *)x)[i] = value;
  else
    ((ELEM *)x)[i] = PUT(value);
}

static void NAME(merge_parts)(const zpk_merge *m, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; row++)
    for (int64_t h = 0; h < m->heads; h++) {
      int64_t to = row * m->to_ld + h * m->hd, from = row * m->from_ld + h * m->hd;
      REAL a = 1, b = 1;
      if (m->lse) {
        REAL *lse = (REAL *)m->lse + row * m->heads + h, other = ((const REAL *)m->from_lse)[row * m->heads + h];
        double most = *lse > other ? *lse : other, x = exp((double)*lse - most), y = exp((double)other - most);
        a = (REAL)(x / (x + y)), b = (REAL)(y / (x + y));
        *lse = (REAL)(most + log(x + y));
      }
      for (int64_t j = 0; j < m->hd; j++) {
        REAL more = b * NAME(merge_get)(m->from, m->from_wide, from + j);
        REAL there = m->set ? 0 : a * NAME(merge_get)(m->to, m->to_wide, to + j);
        NAME(merge_put)(m->to, m->to_wide, to + j, there + more);
      }
    }
}
