/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer updates in one dtype, with the semantics of torch.optim:
 *
 *   AdamW   p *= 1 - lr wd;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
 *           p -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps)
 *   Adam    the same with g += wd p instead of the first step
 *   SGD     g += wd p;  m = momentum m + g;  p -= lr m   (torch starts m as the first g: the same as from zero;
 *           without m: p -= lr g)
 *   Lion    (arXiv 2302.06675, algorithm 2) c = b1 m + (1 - b1) g;  m = b2 m + (1 - b2) g;
 *           p -= lr (sign(c) + wd p);  sign(0) is 0
 *   Adan    (arXiv 2208.06677, algorithm 1, whose betas are 1 - these; biases as in its authors' code)
 *           d = g - the gradient before, 0 in the first update;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) d;
 *           n = b3 n + (1 - b3) (g + b2 d)^2;
 *           p = (p - lr (m / bias1 + b2 v / bias2) / (sqrt(n) / sqrt(bias3) + eps)) / (1 + lr wd)
 *   LAMB    (arXiv 1904.00962, algorithm 2) m and v as Adam's;  r = m / bias1 / (sqrt(v) / sqrt(bias2) + eps) + wd p;
 *           p -= lr |p| / |r| r, lengths of whole tensors
 *   EMA     a += (1 - ema) (p - a), as torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(ema), whose lerp
 *           it is: what is the same in both stays, while ema and 1 - ema, each rounded, may not add up to 1 */

ZPK_CLONES static void NAME(adam)(const zpk_update *u, REAL *restrict param, const REAL *restrict grad,
                                  REAL *restrict m, REAL *restrict v, int64_t begin, int64_t end) {
  bool decoupled = u->kind == ZPK_ADAMW;
  double wd = u->weight_decay;
  REAL keep = (REAL)(decoupled ? 1 - u->lr * wd : 1), into_grad = (REAL)(decoupled ? 0 : wd);
  REAL scale = (REAL)u->grad_scale, beta1 = (REAL)u->beta1, beta2 = (REAL)u->beta2, eps = (REAL)u->eps;
  REAL rest1 = (REAL)(1 - u->beta1), rest2 = (REAL)(1 - u->beta2);
  REAL step = (REAL)(u->lr / u->bias1), per_root_bias2 = (REAL)(1 / sqrt(u->bias2));
  for (int64_t i = begin; i < end; i++) {
    REAL p = param[i] * keep, g = grad[i] * scale + into_grad * param[i];
    REAL m1 = m[i] * beta1 + g * rest1, v1 = v[i] * beta2 + g * g * rest2;
    m[i] = m1;
    v[i] = v1;
    param[i] = p - step * m1 / (REAL_SQRT(v1) * per_root_bias2 + eps);
  }
}

ZPK_CLONES static void NAME(sgd)(const zpk_update *u, REAL *restrict param, const REAL *restrict grad, REAL *restrict m,
                                 int64_t begin, int64_t end) {
  REAL wd = (REAL)u->weight_decay, scale = (REAL)u->grad_scale;
  REAL lr = (REAL)u->lr, momentum = (REAL)u->momentum;
  for (int64_t i = begin; i < end; i++) {
    REAL m1 = m[i] * momentum + (grad[i] * scale + wd * param[i]);
    m[i] = m1;
    param[i] -= lr * m1;
  }
}

ZPK_CLONES static void NAME(lion)(const zpk_update *u, REAL *restrict param, const REAL *restrict grad,
                                  REAL *restrict m, int64_t begin, int64_t end) {
  REAL keep = (REAL)(1 - u->lr * u->weight_decay), scale = (REAL)u->grad_scale, lr = (REAL)u->lr;
  REAL beta1 = (REAL)u->beta1, beta2 = (REAL)u->beta2, rest1 = (REAL)(1 - u->beta1), rest2 = (REAL)(1 - u->beta2);
  for (int64_t i = begin; i < end; i++) {
    REAL g = grad[i] * scale, c = m[i] * beta1 + g * rest1;
    m[i] = m[i] * beta2 + g * rest2;
    param[i] = param[i] * keep - (REAL)((c > 0) - (c < 0)) * lr;
  }
}

/* bias2 is that of one update where no gradient came before; with beta2 0 the difference does not count. */
ZPK_CLONES static void NAME(adan)(const zpk_update *u, REAL *restrict param, const REAL *restrict grad,
                                  REAL *restrict m, REAL *restrict v, REAL *restrict n, REAL *restrict before,
                                  int64_t begin, int64_t end) {
  REAL keep = (REAL)(1 / (1 + u->lr * u->weight_decay)), scale = (REAL)u->grad_scale, eps = (REAL)u->eps;
  REAL beta1 = (REAL)u->beta1, beta2 = (REAL)u->beta2, beta3 = (REAL)u->beta3, rest1 = (REAL)(1 - u->beta1);
  REAL rest2 = (REAL)(1 - u->beta2), rest3 = (REAL)(1 - u->beta3), follows = u->bias2 == 1 - u->beta2 ? 0 : 1;
  REAL step = (REAL)(u->lr / u->bias1), ahead = (REAL)(u->lr * u->beta2 / u->bias2);
  REAL per_root_bias3 = (REAL)(1 / sqrt(u->bias3));
  for (int64_t i = begin; i < end; i++) {
    REAL g = grad[i] * scale, d = follows * (g - before[i]), look = g + beta2 * d;
    REAL m1 = m[i] * beta1 + g * rest1, v1 = v[i] * beta2 + d * rest2, n1 = n[i] * beta3 + look * look * rest3;
    m[i] = m1;
    v[i] = v1;
    n[i] = n1;
    before[i] = g;
    param[i] = (param[i] - (step * m1 + ahead * v1) / (REAL_SQRT(n1) * per_root_bias3 + eps)) * keep;
  }
}

/* SGD without momentum: there is no m. */
ZPK_CLONES static void NAME(plain_sgd)(const zpk_update *u, REAL *restrict param, const REAL *restrict grad,
                                       int64_t begin, int64_t end) {
  REAL wd = (REAL)u->weight_decay, scale = (REAL)u->grad_scale, lr = (REAL)u->lr;
  for (int64_t i = begin; i < end; i++) param[i] -= lr * (grad[i] * scale + wd * param[i]);
}

ZPK_CLONES static void NAME(sign)(const zpk_update *u, REAL *restrict param, const REAL *restrict grad, int64_t begin,
                                  int64_t end) {
  REAL lr = (REAL)u->lr;
  for (int64_t i = begin; i < end; i++) param[i] -= (REAL)((grad[i] > 0) - (grad[i] < 0)) * lr;
}

static void NAME(update)(const zpk_update *u, REAL *param, const REAL *grad, void *const *moment, int64_t begin,
                         int64_t end) {
  REAL *m = moment ? moment[ZPK_MOMENT1] : NULL;
  switch (u->kind) {
  case ZPK_ADAMW:
  case ZPK_ADAM:
    assert(m && moment[ZPK_MOMENT2]);
    NAME(adam)(u, param, grad, m, moment[ZPK_MOMENT2], begin, end);
    return;
  case ZPK_SGD:
    if (m)
      NAME(sgd)(u, param, grad, m, begin, end);
    else
      NAME(plain_sgd)(u, param, grad, begin, end);
    return;
  case ZPK_LION:
    assert(m);
    NAME(lion)(u, param, grad, m, begin, end);
    return;
  case ZPK_ADAN:
    assert(m && moment[ZPK_MOMENT2] && moment[ZPK_DIFFERENCE] && moment[ZPK_GRADIENT_BEFORE]);
    NAME(adan)(u, param, grad, m, moment[ZPK_DIFFERENCE], moment[ZPK_MOMENT2], moment[ZPK_GRADIENT_BEFORE], begin, end);
    return;
  case ZPK_SIGN: NAME(sign)(u, param, grad, begin, end); return;
  default: assert(!"it is updated element by element");
  }
}

ZPK_CLONES static void NAME(average)(const zpk_update *u, const REAL *restrict param, REAL *restrict average,
                                     int64_t begin, int64_t end) {
  REAL rest = (REAL)(1 - u->ema);
  for (int64_t i = begin; i < end; i++) average[i] += rest * (param[i] - average[i]);
}

/* The update of LAMB before it is scaled. */
typedef struct NAME(lamb_rule) {
  REAL per_bias1, per_root_bias2, eps, wd;
} NAME(lamb_rule);

static NAME(lamb_rule) NAME(lamb_rule_of)(const zpk_update *u) {
  return (NAME(lamb_rule)){(REAL)(1 / u->bias1), (REAL)(1 / sqrt(u->bias2)), (REAL)u->eps, (REAL)u->weight_decay};
}

static inline REAL NAME(lamb_update)(NAME(lamb_rule) r, REAL p, REAL m, REAL v) {
  return m * r.per_bias1 / (REAL_SQRT(v) * r.per_root_bias2 + r.eps) + r.wd * p;
}

ZPK_CLONES static void NAME(lamb_moments)(const zpk_update *u, const REAL *restrict param, const REAL *restrict grad,
                                          REAL *restrict m, REAL *restrict v, int64_t begin, int64_t end,
                                          double sums[2]) {
  const NAME(lamb_rule) r = NAME(lamb_rule_of)(u);
  REAL scale = (REAL)u->grad_scale, beta1 = (REAL)u->beta1, beta2 = (REAL)u->beta2;
  REAL rest1 = (REAL)(1 - u->beta1), rest2 = (REAL)(1 - u->beta2);
  double params = 0, updates = 0;
  for (int64_t i = begin; i < end; i++) {
    REAL g = grad[i] * scale;
    m[i] = m[i] * beta1 + g * rest1;
    v[i] = v[i] * beta2 + g * g * rest2;
    REAL update = NAME(lamb_update)(r, param[i], m[i], v[i]);
    params += (double)param[i] * (double)param[i];
    updates += (double)update * (double)update;
  }
  sums[0] = params;
  sums[1] = updates;
}

ZPK_CLONES static void NAME(lamb_apply)(const zpk_update *u, REAL *restrict param, const REAL *restrict m,
                                        const REAL *restrict v, int64_t begin, int64_t end) {
  const NAME(lamb_rule) r = NAME(lamb_rule_of)(u);
  REAL lr = (REAL)u->lr;
  for (int64_t i = begin; i < end; i++) param[i] -= lr * NAME(lamb_update)(r, param[i], m[i], v[i]);
}
