/* SPDX-License-Identifier: Apache-2.0 */
/* 0/1 Adam's steps between exchanges in what momentum is kept in, f32 or f64: see one_bit.c. */

ZPK_CLONES static void NAME(local_sum)(double weight, const REAL *restrict m, REAL *restrict sum, int64_t begin,
                                       int64_t end) {
  REAL w = (REAL)weight;
  for (int64_t i = begin; i < end; i++) sum[i] += w * m[i];
}

ZPK_CLONES static void NAME(local_mean)(double total, REAL *restrict m, REAL *restrict sum, int64_t begin,
                                        int64_t end) {
  REAL per = (REAL)(1 / total);
  for (int64_t i = begin; i < end; i++) {
    m[i] = sum[i] * per;
    sum[i] = 0;
  }
}

ZPK_CLONES static void NAME(local_decay)(double keep, REAL *restrict anchor, int64_t begin, int64_t end) {
  REAL k = (REAL)keep;
  for (int64_t i = begin; i < end; i++) anchor[i] *= k;
}

ZPK_CLONES static void NAME(local_weights)(const zpk_update *u, double total, const REAL *restrict anchor,
                                           const REAL *restrict sum, const REAL *restrict v, REAL *restrict out,
                                           int64_t count) {
  REAL lr = (REAL)u->lr, per = (REAL)(1 / total), per_root = (REAL)(1 / sqrt(u->bias2)), eps = (REAL)u->eps;
  REAL most = (REAL)zpk_most_of_adam(u->beta1, u->beta2);
  for (int64_t i = 0; i < count; i++) {
    REAL step = v[i] > 0 ? sum[i] * per / (REAL_SQRT(v[i]) * per_root + eps) : 0;
    step = step > most ? most : step < -most ? -most : step;
    out[i] = anchor[i] - lr * step;
  }
}
