/* SPDX-License-Identifier: Apache-2.0 */
/* Results merged in one dtype: see merge.c. Weights are a few numbers a row, so the library's exponential will do. */

static void NAME(merge_parts)(const zpk_merge *m, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; row++)
    for (int64_t h = 0; h < m->heads; h++) {
      REAL a = 1, b = 1;
      if (m->lse) {
        REAL *lse = (REAL *)m->lse + row * m->heads + h, other = ((const REAL *)m->from_lse)[row * m->heads + h];
        double most = *lse > other ? *lse : other, x = exp((double)*lse - most), y = exp((double)other - most);
        a = (REAL)(x / (x + y)), b = (REAL)(y / (x + y));
        *lse = (REAL)(most + log(x + y));
      }
      ELEM *to = (ELEM *)m->to + row * m->to_ld + h * m->hd;
      const ELEM *from = (const ELEM *)m->from + row * m->from_ld + h * m->hd;
      for (int64_t j = 0; j < m->hd; j++) to[j] = PUT(a * GET(to[j]) + b * GET(from[j]));
    }
}
