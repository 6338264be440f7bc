/* SPDX-License-Identifier: Apache-2.0 */
/* Signs, scales and the frozen update in what momentum is kept in, f32 or f64: see one_bit.c. */

/* Bits and scale of the first `count` of ZPK_SIGNS elements x, whose errors are what the two leave out. v NULL: all of
 * them take part. error NULL: it is not kept. */
static void NAME(pack)(const REAL *x, const REAL *v, int count, float *error, zpk_signs to, int64_t b) {
  double sum = 0;
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (v && !(v[i] > 0)) continue;
    sum += fabs((double)x[i]);
    n++;
  }
  float scale = n > 0 ? (float)(sum / n) : 0;
  to.scale[b] = scale;
  to.bits[2 * b] = to.bits[2 * b + 1] = 0;
  for (int i = 0; i < count; i++) {
    bool positive = !(x[i] < 0);
    REAL sent = (REAL)(positive ? scale : -scale);
    to.bits[2 * b + i / 32] |= (uint32_t)positive << i % 32;
    if (error) error[i] = !v || v[i] > 0 ? (float)(x[i] - sent) : 0;
  }
}

static void NAME(pack_signs)(const REAL *m, const REAL *v, float *error, zpk_signs to, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; b++) {
    REAL x[ZPK_SIGNS];
    for (int i = 0; i < ZPK_SIGNS; i++) x[i] = m[b * ZPK_SIGNS + i] + (REAL)error[b * ZPK_SIGNS + i];
    NAME(pack)(x, v + b * ZPK_SIGNS, ZPK_SIGNS, error + b * ZPK_SIGNS, to, b);
  }
}

static REAL NAME(sent)(zpk_signs from, int64_t b, int i) {
  REAL scale = (REAL)from.scale[b];
  return from.bits[2 * b + i / 32] >> i % 32 & 1 ? scale : -scale;
}

static void NAME(average_signs)(int n, const void *records, int64_t blocks, const REAL *v, float *error, zpk_signs to,
                                int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; b++) {
    REAL x[ZPK_SIGNS] = {0};
    for (int r = 0; r < n; r++) {
      zpk_signs from = zpk_signs_of(records, blocks, r);
      for (int i = 0; i < ZPK_SIGNS; i++) x[i] += NAME(sent)(from, b, i);
    }
    for (int i = 0; i < ZPK_SIGNS; i++) x[i] = x[i] / (REAL)n + (REAL)error[b * ZPK_SIGNS + i];
    NAME(pack)(x, v + b * ZPK_SIGNS, ZPK_SIGNS, error + b * ZPK_SIGNS, to, b);
  }
}

static void NAME(unpack_signs)(zpk_signs from, const REAL *v, REAL *m, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; b++)
    for (int i = 0; i < ZPK_SIGNS; i++) m[b * ZPK_SIGNS + i] = v[b * ZPK_SIGNS + i] > 0 ? NAME(sent)(from, b, i) : 0;
}

ZPK_CLONES static void NAME(frozen)(const zpk_update *u, REAL *restrict param, const REAL *restrict m,
                                    const REAL *restrict v, int64_t begin, int64_t end) {
  REAL keep = (REAL)(u->kind == ZPK_ADAMW ? 1 - u->lr * u->weight_decay : 1), eps = (REAL)u->eps;
  REAL lr = (REAL)u->lr, per_bias1 = (REAL)(1 / u->bias1), per_root_bias2 = (REAL)(1 / sqrt(u->bias2));
  REAL most = (REAL)zpk_most_of_adam(u->beta1, u->beta2);
  for (int64_t i = begin; i < end; i++) {
    REAL step = m[i] * per_bias1 / (REAL_SQRT(v[i]) * per_root_bias2 + eps);
    step = step > most ? most : step < -most ? -most : step;
    param[i] = param[i] * keep - lr * step;
  }
}
