/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit Adam with ZeRO 1 in what momentum is kept in, f32 or f64: see one_bit.c. */

ZPK_CLONES static void NAME(add_to_error)(const REAL *restrict grad, double scale, float *restrict error,
                                          int64_t count) {
  REAL by = (REAL)scale;
  for (int64_t i = 0; i < count; i++) error[i] = (float)((REAL)error[i] + grad[i] * by);
}

static REAL NAME(mean_sent)(zpk_records in, int64_t b, int i) {
  REAL sum = 0;
  for (int r = 0; r < in.n; r++) sum += NAME(sent)(zpk_signs_of(in.records, in.blocks, r), b, i);
  return sum / (REAL)in.n;
}

/* What the weights shall change by, and new momentum, unless that is there: of n elements of block b of the records. */
static void NAME(change)(const zpk_update *u, const zpk_owner *o, zpk_records in, int64_t b, int n, REAL *x) {
  bool in_gradient = u->kind == ZPK_ADAM;
  REAL beta1 = (REAL)u->beta1, into_grad = (REAL)(in_gradient ? u->weight_decay * (1 - u->beta1) : 0);
  REAL decay = (REAL)(in_gradient ? 0 : u->lr * u->weight_decay), eps = (REAL)u->eps, lr = (REAL)u->lr;
  REAL per_bias1 = (REAL)(1 / u->bias1), per_root_bias2 = (REAL)(1 / sqrt(u->bias2));
  REAL most = (REAL)zpk_most_of_adam(u->beta1, u->beta2);
  const REAL *w = o->weights, *v = o->v;
  REAL *master = o->master, *m = o->m;
  for (int i = 0; i < n; i++) {
    REAL server_error = master ? 0 : (REAL)o->server_error[i], p = master ? master[i] : w[i] + server_error;
    if (in.n > 0) m[i] = v[i] > 0 ? m[i] * beta1 + NAME(mean_sent)(in, b, i) + into_grad * p : 0;
    REAL step = m[i] * per_bias1 / (REAL_SQRT(v[i]) * per_root_bias2 + eps);
    step = step > most ? most : step < -most ? -most : step;
    x[i] = server_error - decay * p - lr * step;
    if (master) x[i] = (master[i] = p * (1 - decay) - lr * step) - w[i];
  }
}

static void NAME(owner_update)(const zpk_update *u, const zpk_owner *owner, zpk_records in, zpk_signs to, int64_t b,
                               int64_t count) {
  zpk_owner o = *owner;
  for (int64_t at = 0; at < count; at += ZPK_SIGNS, b++) {
    REAL x[ZPK_SIGNS];
    int n = (int)(count - at < ZPK_SIGNS ? count - at : ZPK_SIGNS);
    NAME(change)(u, &o, in, b, n, x);
    NAME(pack)(x, NULL, n, o.server_error, to, b);
    o.weights = (REAL *)o.weights + n;
    o.m = (REAL *)o.m + n;
    o.v = (const REAL *)o.v + n;
    if (o.master) o.master = (REAL *)o.master + n;
    if (o.server_error) o.server_error += n;
  }
}

static void NAME(apply_signs)(zpk_signs from, int64_t b, REAL *weights, int64_t count) {
  for (int64_t i = 0; i < count; i++) weights[i] += NAME(sent)(from, b + i / ZPK_SIGNS, (int)(i % ZPK_SIGNS));
}
