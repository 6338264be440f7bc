/* SPDX-License-Identifier: Apache-2.0 */
/* Muon in one dtype: see muon.c. */

ZPK_CLONES static void NAME(muon_momentum)(const zpk_update *u, const REAL *restrict grad, REAL *restrict m,
                                           REAL *restrict x, int64_t begin, int64_t end) {
  REAL scale = (REAL)u->grad_scale, momentum = (REAL)u->momentum, rest = (REAL)(1 - u->momentum);
  for (int64_t i = begin; i < end; i++) {
    REAL g = grad[i] * scale;
    m[i] += rest * (g - m[i]);
    x[i] = g + momentum * (m[i] - g);
  }
}

ZPK_CLONES static void NAME(muon_squares)(const REAL *x, int64_t begin, int64_t end, double *sum) {
  double squares = 0;
  for (int64_t i = begin; i < end; i++) squares += (double)x[i] * (double)x[i];
  *sum = squares;
}

ZPK_CLONES static void NAME(muon_scale)(double factor, const REAL *restrict x, REAL *restrict y, int64_t begin,
                                        int64_t end) {
  REAL f = (REAL)factor;
  for (int64_t i = begin; i < end; i++) y[i] = x[i] * f;
}

static void NAME(muon_diagonal)(double value, REAL *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i * n + i] += (REAL)value;
}

ZPK_CLONES static void NAME(muon_apply)(const zpk_update *u, REAL *restrict param, const REAL *restrict x, double scale,
                                        int64_t begin, int64_t end) {
  REAL keep = (REAL)(1 - u->lr * u->weight_decay), step = (REAL)(u->lr * scale);
  for (int64_t i = begin; i < end; i++) param[i] = param[i] * keep - step * x[i];
}
