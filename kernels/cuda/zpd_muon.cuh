/* SPDX-License-Identifier: Apache-2.0 */
/* What Muon does to a matrix alongside products (formulas: kernels/optimizer/muon.c). */
#ifndef ZPD_MUON_CUH
#define ZPD_MUON_CUH

#include "zpd_device.h"

ZPD_KERNEL(zpd_muon_momentum, zpd_muon_update) {
  const real scale = (real)a.grad_scale, momentum = (real)a.momentum, rest = (real)(1 - a.momentum);
  const real *grad = (const real *)a.grad;
  real *m = (real *)a.m, *x = (real *)a.x;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride) {
    const real g = grad[i] * scale, next = m[i] + rest * (g - m[i]);
    m[i] = next, x[i] = g + momentum * (next - g);
  }
}

ZPD_KERNEL(zpd_muon_squares, zpd_muon_length) {
  const real *x = (const real *)a.x;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  double sum = 0;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride)
    sum += (double)x[i] * (double)x[i];
  sum = zpd_block_sum_f64(sum);
  if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

ZPD_KERNEL(zpd_muon_place, zpd_muon_blocks) {
  const real *from = (const real *)a.from;
  real *to = (real *)a.to;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.blocks * a.width; i += stride)
    to[i / a.width * a.to_stride + i % a.width] = from[i / a.width * a.from_stride + i % a.width];
}

/* Sums are added in order, by every thread. */
ZPD_KERNEL(zpd_muon_mix, zpd_muon_mixture) {
  double factor = a.factor;
  if (a.sums) {
    double sum = 0;
    for (zpd_int i = 0; i < a.n_sums; i++) sum += a.sums[i];
    factor = 1 / fmax(sqrt(sum), a.least);
  }
  const real f = (real)factor, diagonal = (real)a.diagonal;
  const real *x = (const real *)a.x;
  real *y = (real *)a.y;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride) {
    const real scaled = x[i] * f;
    y[i] = a.n > 0 && i % (a.n + 1) == 0 ? scaled + diagonal : scaled;
  }
}

ZPD_KERNEL(zpd_muon_apply, zpd_muon_weights) {
  const real keep = (real)(1 - a.lr * a.weight_decay), step = (real)(a.lr * a.scale), rest = (real)(1 - a.ema);
  const real *x = (const real *)a.x;
  real *param = (real *)a.param, *average = (real *)a.average;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride) {
    const real next = param[i] * keep - step * x[i];
    param[i] = next;
    if (a.weight) ((elem *)a.weight)[i] = next;
    if (average) average[i] += rest * (next - average[i]);
  }
}

#endif
