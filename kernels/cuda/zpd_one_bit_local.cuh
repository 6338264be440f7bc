/* SPDX-License-Identifier: Apache-2.0 */
/* 0/1 Adam between exchanges (formulas: kernels/optimizer/one_bit.c): elements of one parameter, a thread each. */
#ifndef ZPD_COMPRESS_LOCAL_CUH
#define ZPD_COMPRESS_LOCAL_CUH

#include "zpd_device.h"

ZPD_DEVICE zpd_int zpd_flat_first() { return (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; }
ZPD_DEVICE zpd_int zpd_flat_stride() { return (zpd_int)gridDim.x * ZPD_FLAT_THREADS; }

ZPD_KERNEL(zpd_variance, zpd_update) {
  const real scale = (real)a.grad_scale, beta2 = (real)a.beta2, rest2 = (real)(1 - a.beta2);
  const real *grad = (const real *)a.grad;
  real *v = (real *)a.v;
  for (zpd_int i = zpd_flat_first(); i < a.count; i += zpd_flat_stride()) {
    const real g = grad[i] * scale;
    v[i] = v[i] * beta2 + g * g * rest2;
  }
}

ZPD_KERNEL(zpd_local_add, zpd_local) {
  const real weight = (real)a.rate,
             keep = (real)(a.update.kind == ZPK_ADAMW ? 1 - a.update.lr * a.update.weight_decay : 1);
  const real *m = (const real *)a.update.m;
  real *sum = (real *)a.sum, *anchor = (real *)a.anchor;
  for (zpd_int i = zpd_flat_first(); i < a.update.count; i += zpd_flat_stride()) {
    sum[i] += weight * m[i];
    anchor[i] *= keep;
  }
}

ZPD_KERNEL(zpd_local_mean, zpd_local) {
  const real per = (real)(1 / a.rate);
  real *m = (real *)a.update.m, *sum = (real *)a.sum;
  for (zpd_int i = zpd_flat_first(); i < a.update.count; i += zpd_flat_stride()) {
    m[i] = sum[i] * per;
    sum[i] = 0;
  }
}

ZPD_KERNEL(zpd_local_weights, zpd_local) {
  const zpd_update &u = a.update;
  const double rest1 = 1 - u.beta1, rest2 = 1 - u.beta2;
  const real lr = (real)u.lr, per = (real)(1 / a.rate), per_root = (real)(1 / sqrt(u.bias2)), eps = (real)u.eps;
  const real most = (real)(rest1 * rest1 > rest2 ? rest1 / sqrt(rest2) : 1);
  const real *anchor = (const real *)a.anchor, *sum = (const real *)a.sum, *v = (const real *)u.v;
  elem *out = (elem *)(u.weight ? u.weight : u.param);
  for (zpd_int i = zpd_flat_first(); i < u.count; i += zpd_flat_stride()) {
    real step = v[i] > 0 ? sum[i] * per / (zpd_sqrt(v[i]) * per_root + eps) : (real)0;
    step = step > most ? most : step < -most ? -most : step;
    out[i] = anchor[i] - lr * step;
  }
}

#endif
