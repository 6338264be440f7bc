/* SPDX-License-Identifier: Apache-2.0 */
/* Momentum of 1-bit Adam, and variance of 0/1 Adam, in one dtype of gradients: see one_bit.c. */

ZPK_CLONES static void NAME(variance)(const zpk_update *u, const REAL *restrict grad, REAL *restrict v, int64_t begin,
                                      int64_t end) {
  REAL scale = (REAL)u->grad_scale, beta2 = (REAL)u->beta2, rest2 = (REAL)(1 - u->beta2);
  for (int64_t i = begin; i < end; i++) {
    REAL g = grad[i] * scale;
    v[i] = v[i] * beta2 + g * g * rest2;
  }
}

ZPK_CLONES static void NAME(momentum)(const zpk_update *u, const REAL *restrict param, const REAL *restrict grad,
                                      REAL *restrict m, int64_t begin, int64_t end) {
  REAL into_grad = (REAL)(u->kind == ZPK_ADAM ? u->weight_decay : 0), scale = (REAL)u->grad_scale;
  REAL beta1 = (REAL)u->beta1, rest1 = (REAL)(1 - u->beta1);
  for (int64_t i = begin; i < end; i++) m[i] = m[i] * beta1 + (grad[i] * scale + into_grad * param[i]) * rest1;
}
