/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit LAMB in what momentum is kept in, f32 or f64: see one_bit.c. */

/* How the variance would have gone on. */
typedef struct NAME(follower) {
  REAL beta2, rest2, eps, per_root, per_fresh_root;
} NAME(follower);

static NAME(follower) NAME(follower_of)(const zpk_update *u, double fresh_bias2) {
  return (NAME(follower)){(REAL)u->beta2, (REAL)(1 - u->beta2), (REAL)u->eps, (REAL)(1 / sqrt(u->bias2)),
                          (REAL)(1 / sqrt(fresh_bias2))};
}

/* The new fresh variance of an element; of one that has a variance, the ratio of the frozen root to the fresh one. */
static double NAME(follow)(const NAME(follower) * f, REAL gradient, REAL v, REAL *fresh) {
  *fresh = *fresh * f->beta2 + gradient * gradient * f->rest2;
  if (!(v > 0)) return 0;
  REAL ratio = (REAL_SQRT(v) * f->per_root + f->eps) / (REAL_SQRT(*fresh) * f->per_fresh_root + f->eps);
  return (double)ratio;
}

/* The largest ratio. */
static double NAME(lamb_fresh)(const zpk_update *u, const REAL *m, const REAL *before, const REAL *v, REAL *fresh,
                               double fresh_bias2, int64_t begin, int64_t end) {
  REAL beta1 = (REAL)u->beta1, per_rest1 = (REAL)(1 / (1 - u->beta1));
  NAME(follower) f = NAME(follower_of)(u, fresh_bias2);
  double most = 0;
  for (int64_t i = begin; i < end; i++)
    most = fmax(most, NAME(follow)(&f, (m[i] - beta1 * before[i]) * per_rest1, v[i], &fresh[i]));
  return most;
}

/* As lamb_fresh, by what was sent; element `first` of the records is the first one of the arrays. */
static double NAME(lamb_owner)(const zpk_update *u, zpk_records in, int64_t first, REAL *m, const REAL *v, REAL *fresh,
                               double fresh_bias2, int64_t count) {
  REAL beta1 = (REAL)u->beta1, per_rest1 = (REAL)(1 / (1 - u->beta1));
  NAME(follower) f = NAME(follower_of)(u, fresh_bias2);
  double most = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t at = first + i;
    REAL mean = v[i] > 0 ? NAME(mean_sent)(in, at / ZPK_SIGNS, (int)(at % ZPK_SIGNS)) : 0;
    m[i] = v[i] > 0 ? m[i] * beta1 + mean : 0;
    most = fmax(most, NAME(follow)(&f, mean * per_rest1, v[i], &fresh[i]));
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
