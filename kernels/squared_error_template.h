/* SPDX-License-Identifier: Apache-2.0 */
/* Squared errors in one dtype: see squared_error.c. */

ZPK_CLONES static void NAME(squared_error)(const ELEM *restrict x, const ELEM *restrict target, int64_t cols,
                                           REAL *restrict stat, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    double sum = 0;
    for (int64_t j = r * cols; j < (r + 1) * cols; j++) {
      double d = (double)GET(x[j]) - (double)GET(target[j]);
      sum += d * d;
    }
    stat[r * 3] = (REAL)(sum / (double)cols);
    stat[r * 3 + 1] = 1;
    stat[r * 3 + 2] = 0;
  }
}

ZPK_CLONES static void NAME(squared_error_grad)(const ELEM *restrict x, const ELEM *restrict target, int64_t cols,
                                                double scale, ELEM *restrict dx, int64_t begin, int64_t end) {
  REAL factor = (REAL)(2 * scale / (double)cols);
  for (int64_t j = begin * cols; j < end * cols; j++) dx[j] = PUT((GET(x[j]) - GET(target[j])) * factor);
}
