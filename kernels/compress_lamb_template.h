/* 1-bit LAMB in what momentum is kept in, f32 or f64: see compress.c. */

/* The new fresh variance; of its elements that have one, the largest ratio of the frozen root to the fresh one. */
static double NAME(lamb_fresh)(const zpk_update *u, const REAL *m, const REAL *before, const REAL *v, REAL *fresh,
                               double fresh_bias2, int64_t begin, int64_t end) {
  REAL beta1 = (REAL)u->beta1, beta2 = (REAL)u->beta2, rest2 = (REAL)(1 - u->beta2), eps = (REAL)u->eps;
  REAL per_rest1 = (REAL)(1 / (1 - u->beta1)), per_root = (REAL)(1 / sqrt(u->bias2));
  REAL per_fresh_root = (REAL)(1 / sqrt(fresh_bias2));
  double most = 0;
  for (int64_t i = begin; i < end; i++) {
    REAL gradient = (m[i] - beta1 * before[i]) * per_rest1;
    fresh[i] = fresh[i] * beta2 + gradient * gradient * rest2;
    if (!(v[i] > 0)) continue;
    REAL ratio = (REAL_SQRT(v[i]) * per_root + eps) / (REAL_SQRT(fresh[i]) * per_fresh_root + eps);
    most = fmax(most, (double)ratio);
  }
  return most;
}

ZPK_CLONES static void NAME(lamb_frozen)(const zpk_update *u, REAL *restrict param, const REAL *restrict m,
                                         const REAL *restrict v, int64_t begin, int64_t end) {
  REAL lr = (REAL)u->lr, wd = (REAL)u->weight_decay, eps = (REAL)u->eps;
  REAL per_bias1 = (REAL)(1 / u->bias1), per_root = (REAL)(1 / sqrt(u->bias2));
  REAL most = (REAL)zpk_most_of_adam(u->beta1, u->beta2);
  for (int64_t i = begin; i < end; i++) {
    REAL step = m[i] * per_bias1 / (REAL_SQRT(v[i]) * per_root + eps);
    step = step > most ? most : step < -most ? -most : step;
    param[i] -= lr * (step + wd * param[i]);
  }
}
