/* Optimizer updates with the semantics of torch.optim (formulas: kernels/optimizer.c), one pass over parameter,
 * gradient and moments: Adam reads four arrays and writes three, 28 bytes a parameter in f32, and memory is the limit.
 * Neighbouring threads take neighbouring elements; four loads of 4 bytes in flight a thread are enough for that limit.
 *
 * Coefficients are computed in f64 and rounded once, as on the CPU. */
#ifndef ZPD_OPTIMIZER_CUH
#define ZPD_OPTIMIZER_CUH

#include "zpd_device.h"

/* The weights that are computed with, where `param` is their master copy. */
ZPD_DEVICE void zpd_set_weight(const zpd_update &a, zpd_int i, real x) {
  if (sizeof(elem) < sizeof(real)) ((elem *)a.weight)[i] = x;
}

ZPD_DEVICE void zpd_adam(const zpd_update &a, zpd_int first, zpd_int stride) {
  const bool decoupled = a.kind == 0;
  const double wd = a.decay ? a.weight_decay : 0;
  const real keep = (real)(decoupled ? 1 - a.lr * wd : 1), into_grad = (real)(decoupled ? 0 : wd);
  const real scale = (real)*a.grad_scale, beta1 = (real)a.beta1, beta2 = (real)a.beta2, eps = (real)a.eps;
  const real rest1 = (real)(1 - a.beta1), rest2 = (real)(1 - a.beta2);
  const real step = (real)(a.lr / a.bias1), per_root_bias2 = (real)(1 / sqrt(a.bias2));
  real *param = (real *)a.param, *m = (real *)a.m, *v = (real *)a.v;
  const elem *grad = (const elem *)a.grad;
  for (zpd_int i = first; i < a.count; i += stride) {
    const real old = param[i], g = grad[i] * scale + into_grad * old;
    const real m1 = m[i] * beta1 + g * rest1, v1 = v[i] * beta2 + g * g * rest2;
    m[i] = m1;
    v[i] = v1;
    zpd_set_weight(a, i, param[i] = old * keep - step * m1 / (zpd_sqrt(v1) * per_root_bias2 + eps));
  }
}

ZPD_DEVICE void zpd_sgd(const zpd_update &a, zpd_int first, zpd_int stride) {
  const real wd = (real)(a.decay ? a.weight_decay : 0), scale = (real)*a.grad_scale;
  const real lr = (real)a.lr, momentum = (real)a.momentum;
  real *param = (real *)a.param, *m = (real *)a.m;
  const elem *grad = (const elem *)a.grad;
  for (zpd_int i = first; i < a.count; i += stride) {
    const real old = param[i], g = grad[i] * scale + wd * old, m1 = m ? m[i] * momentum + g : g; /* no m: no momentum */
    if (m) m[i] = m1;
    zpd_set_weight(a, i, param[i] = old - lr * m1);
  }
}

ZPD_KERNEL(zpd_optimizer, zpd_update) {
  const zpd_int first = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  if (a.kind == 2)
    zpd_sgd(a, first, stride);
  else
    zpd_adam(a, first, stride);
}

#endif
