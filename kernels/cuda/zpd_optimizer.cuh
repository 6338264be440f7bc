/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer updates with the semantics of torch.optim (formulas: kernels/optimizer/optimizer_template.h), one pass over
 * parameter, gradient and moments: Adam reads four arrays and writes three, 28 bytes a parameter in f32, and memory is
 * the limit.
 *
 * Coefficients are computed in f64 and rounded once, as on the CPU. */
#ifndef ZPD_OPTIMIZER_CUH
#define ZPD_OPTIMIZER_CUH

#include "zpd_device.h"

/* What the optimizer of a program keeps, bits by ZPK_MOMENT1 ...: other arrays need no registers. */
#ifndef ZPD_KEPT
#define ZPD_KEPT ((1 << ZPK_MOMENTS) - 1)
#endif

/* Rounded coefficients. Those of a segment come last. */
struct zpd_rule {
  int kind;
  real scale, beta1, beta2, beta3, rest1, rest2, rest3, eps, per_root_bias2, per_root_bias3, momentum, into_average;
  real follows; /* Adan: 0 in the first update, before which there is no gradient */
  double per_bias1;
  real keep, into_grad; /* of the old parameter: in the new one, in the gradient */
  real lr, step, ahead; /* ahead: Adan's step by differences */
};

ZPD_DEVICE zpd_rule zpd_rule_of(const zpd_updates &a) {
  zpd_rule r;
  r.kind = a.kind;
  r.scale = (real)a.step->grad_scale;
  r.beta1 = (real)a.beta1, r.beta2 = (real)a.beta2, r.beta3 = (real)a.beta3;
  r.rest1 = (real)(1 - a.beta1), r.rest2 = (real)(1 - a.beta2), r.rest3 = (real)(1 - a.beta3);
  r.follows = a.step->bias2 == 1 - a.beta2 ? 0 : 1;
  r.eps = (real)a.eps, r.momentum = (real)a.momentum;
  r.into_average = (real)(1 - a.ema);
  r.per_bias1 = 1 / a.step->bias1, r.per_root_bias2 = (real)(1 / sqrt(a.step->bias2));
  r.per_root_bias3 = (real)(1 / sqrt(a.step->bias3));
  return r;
}

/* ratio: of LAMB, 1 with others. */
ZPD_DEVICE void zpd_rule_for(zpd_rule &r, const zpd_updates &a, const zpd_segment &s, double ratio) {
  const double lr = s.sign_rate > 0 ? s.sign_rate : a.lr * s.lr_factor * ratio;
  r.kind = s.sign_rate > 0 ? ZPK_SIGN : a.kind;
  const bool decoupled = a.kind == ZPK_ADAMW || a.kind == ZPK_LION || a.kind == ZPK_ADAN;
  r.keep = (real)(decoupled ? 1 - lr * s.weight_decay : 1);
  if (a.kind == ZPK_ADAN) r.keep = (real)(1 / (1 + lr * s.weight_decay));
  r.into_grad = (real)(decoupled ? 0 : s.weight_decay);
  r.lr = (real)lr, r.step = (real)(lr * r.per_bias1), r.ahead = (real)(lr * a.beta2 / a.step->bias2);
}

/* The update of LAMB before it is scaled. */
ZPD_DEVICE real zpd_lamb_update(const zpd_rule &r, real param, real m, real v) {
  return m * (real)r.per_bias1 / (zpd_sqrt(v) * r.per_root_bias2 + r.eps) + r.into_grad * param;
}

/* The new parameter; moments become the new ones. */
ZPD_DEVICE real zpd_new_param(const zpd_rule &r, real old, real grad, real (&moment)[ZPK_MOMENTS]) {
  real &m = moment[ZPK_MOMENT1], &v = moment[ZPK_MOMENT2];
  if (r.kind == ZPK_SIGN) return old - r.lr * (real)((grad > 0) - (grad < 0));
  if (r.kind == ZPK_LAMB) return old - r.lr * zpd_lamb_update(r, old, m, v); /* its moments are new already */
  const real g = grad * r.scale + r.into_grad * old;
  if (r.kind == ZPK_SGD) {
    m = m * r.momentum + g;
    return old - r.lr * m;
  }
  if (r.kind == ZPK_LION) {
    const real c = m * r.beta1 + g * r.rest1;
    m = m * r.beta2 + g * r.rest2;
    return old * r.keep - r.lr * (real)((c > 0) - (c < 0));
  }
  if (ZPD_KEPT >> ZPK_DIFFERENCE & 1 && r.kind == ZPK_ADAN) {
    real &difference = moment[ZPK_DIFFERENCE], &before = moment[ZPK_GRADIENT_BEFORE];
    const real d = r.follows * (g - before), look = g + r.beta2 * d;
    m = m * r.beta1 + g * r.rest1;
    difference = difference * r.beta2 + d * r.rest2;
    v = v * r.beta3 + look * look * r.rest3;
    before = g;
    return (old - (r.step * m + r.ahead * difference) / (zpd_sqrt(v) * r.per_root_bias3 + r.eps)) * r.keep;
  }
  m = m * r.beta1 + g * r.rest1;
  v = v * r.beta2 + g * g * r.rest2;
  return old * r.keep - r.step * m / (zpd_sqrt(v) * r.per_root_bias2 + r.eps);
}

/* The arrays of a segment from its element i of the gradients on. */
struct zpd_arrays {
  const zpd_sum *grad;
  elem *weight; /* what is computed with, where it is not what is updated; else NULL */
  real *param;
  real *moment[ZPK_MOMENTS]; /* NULL: the optimizer does not keep it */
  real *average;             /* of the weights; NULL: there is none */
};

ZPD_DEVICE zpd_arrays zpd_arrays_at(const zpd_updates &a, const zpd_segment &s, zpd_int i) {
  zpd_arrays x;
  const zpd_int state = i + s.to_state;
  elem *param = (elem *)a.params + i + s.to_params;
  x.grad = (const zpd_sum *)a.grads + i;
  x.weight = a.master ? param : 0;
  x.param = a.master ? (real *)a.master + state : (real *)(void *)param;
  ZPD_EACH (n, ZPK_MOMENTS) x.moment[n] = ZPD_KEPT >> n & 1 && a.moment[n] ? (real *)a.moment[n] + state : 0;
  x.average = a.average ? (real *)a.average + state : 0;
  return x;
}

ZPD_DEVICE void zpd_update_one(const zpd_rule &r, const zpd_arrays &x, int i) {
  real moment[ZPK_MOMENTS];
  ZPD_EACH (n, ZPK_MOMENTS) moment[n] = x.moment[n] ? x.moment[n][i] : 0;
  const real param = zpd_new_param(r, x.param[i], x.grad[i], moment);
  ZPD_EACH (n, ZPK_MOMENTS)
    if (x.moment[n]) x.moment[n][i] = moment[n];
  x.param[i] = param;
  if (x.weight) x.weight[i] = param;
  if (x.average) x.average[i] += r.into_average * (param - x.average[i]);
}

/* 16 bytes of weights, and gradients and state of as many. */
ZPD_DEVICE void zpd_update_pack(const zpd_rule &r, const zpd_arrays &x, int i) {
  const zpd_reals grad = zpd_reals_load(x.grad + i);
  zpd_reals param = zpd_reals_load(x.param + i), moments[ZPK_MOMENTS] = {};
  ZPD_EACH (n, ZPK_MOMENTS)
    if (x.moment[n]) moments[n] = zpd_reals_load(x.moment[n] + i);
  ZPD_EACH (k, ZPD_VEC) {
    real moment[ZPK_MOMENTS];
    ZPD_EACH (n, ZPK_MOMENTS) moment[n] = moments[n].at[k];
    param.at[k] = zpd_new_param(r, param.at[k], grad.at[k], moment);
    ZPD_EACH (n, ZPK_MOMENTS) moments[n].at[k] = moment[n];
  }
  ZPD_EACH (n, ZPK_MOMENTS)
    if (x.moment[n]) zpd_reals_store(x.moment[n] + i, moments[n]);
  zpd_reals_store(x.param + i, param);
  if (x.weight) zpd_raw_store(x.weight + i, zpd_raw_of(param.at), ZPD_VEC, true);
  if (!x.average) return;
  zpd_reals average = zpd_reals_load(x.average + i);
  ZPD_EACH (k, ZPD_VEC) average.at[k] += r.into_average * (param.at[k] - average.at[k]);
  zpd_reals_store(x.average + i, average);
}

/* Elements [i, i + count) of the gradients, by a block. */
ZPD_DEVICE void zpd_update_some(const zpd_updates &a, const zpd_rule &r, const zpd_segment &s, zpd_int i, int count) {
  const zpd_arrays x = zpd_arrays_at(a, s, i);
  bool packs =
      zpd_begins_pack(x.grad) && zpd_begins_pack(x.weight) && zpd_begins_pack(x.param) && zpd_begins_pack(x.average);
  ZPD_EACH (n, ZPK_MOMENTS) packs = packs && zpd_begins_pack(x.moment[n]);
  const int whole = packs ? count / ZPD_VEC * ZPD_VEC : 0;
  for (int k = threadIdx.x * ZPD_VEC; k < whole; k += ZPD_FLAT_THREADS * ZPD_VEC) zpd_update_pack(r, x, k);
  for (int k = whole + (int)threadIdx.x; k < count; k += ZPD_FLAT_THREADS) zpd_update_one(r, x, k);
}

#endif
