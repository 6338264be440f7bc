/* Optimizer updates in one dtype: see optimizer.c. */

ZPK_CLONES static void NAME(adam)(const zpk_update *u, REAL *restrict param, const ELEM *restrict grad,
                                  REAL *restrict m, REAL *restrict v, int64_t begin, int64_t end) {
  bool decoupled = u->kind == 0;
  double wd = u->weight_decay;
  REAL keep = (REAL)(decoupled ? 1 - u->lr * wd : 1), into_grad = (REAL)(decoupled ? 0 : wd);
  REAL scale = (REAL)u->grad_scale, beta1 = (REAL)u->beta1, beta2 = (REAL)u->beta2, eps = (REAL)u->eps;
  REAL rest1 = (REAL)(1 - u->beta1), rest2 = (REAL)(1 - u->beta2);
  REAL step = (REAL)(u->lr / u->bias1), per_root_bias2 = (REAL)(1 / sqrt(u->bias2));
  for (int64_t i = begin; i < end; i++) {
    REAL p = param[i] * keep, g = GET(grad[i]) * scale + into_grad * param[i];
    REAL m1 = m[i] * beta1 + g * rest1, v1 = v[i] * beta2 + g * g * rest2;
    m[i] = m1;
    v[i] = v1;
    param[i] = p - step * m1 / (REAL_SQRT(v1) * per_root_bias2 + eps);
  }
}

ZPK_CLONES static void NAME(sgd)(const zpk_update *u, REAL *restrict param, const ELEM *restrict grad, REAL *restrict m,
                                 int64_t begin, int64_t end) {
  REAL wd = (REAL)u->weight_decay, scale = (REAL)u->grad_scale;
  REAL lr = (REAL)u->lr, momentum = (REAL)u->momentum;
  for (int64_t i = begin; i < end; i++) {
    REAL m1 = m[i] * momentum + (GET(grad[i]) * scale + wd * param[i]);
    m[i] = m1;
    param[i] -= lr * m1;
  }
}

ZPK_CLONES static void NAME(lion)(const zpk_update *u, REAL *restrict param, const ELEM *restrict grad,
                                  REAL *restrict m, int64_t begin, int64_t end) {
  REAL keep = (REAL)(1 - u->lr * u->weight_decay), scale = (REAL)u->grad_scale, lr = (REAL)u->lr;
  REAL beta1 = (REAL)u->beta1, beta2 = (REAL)u->beta2, rest1 = (REAL)(1 - u->beta1), rest2 = (REAL)(1 - u->beta2);
  for (int64_t i = begin; i < end; i++) {
    REAL g = GET(grad[i]) * scale, c = m[i] * beta1 + g * rest1;
    m[i] = m[i] * beta2 + g * rest2;
    param[i] = param[i] * keep - (REAL)((c > 0) - (c < 0)) * lr;
  }
}

/* SGD without momentum: there is no m. */
ZPK_CLONES static void NAME(plain_sgd)(const zpk_update *u, REAL *restrict param, const ELEM *restrict grad,
                                       int64_t begin, int64_t end) {
  REAL wd = (REAL)u->weight_decay, scale = (REAL)u->grad_scale, lr = (REAL)u->lr;
  for (int64_t i = begin; i < end; i++) param[i] -= lr * (GET(grad[i]) * scale + wd * param[i]);
}
