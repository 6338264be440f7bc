/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit Adam (formulas: kernels/optimizer/one_bit.c): momentum as signs and scales with error feedback, and the update
 * with a variance that stays as it is. A warp has a block of 64 elements, of which a lane has two: lane and lane + 32,
 * whose signs are bit `lane` of the block's two words. Memory is the limit of all. */
#ifndef ZPD_COMPRESS_CUH
#define ZPD_COMPRESS_CUH

#include "zpd_device.h"

enum { ZPD_SIGNS = 2 * ZPD_WARP };

/* Record r of records of so many blocks: two words of signs a block, then a scale a block. */
struct zpd_record {
  unsigned *bits;
  float *scale;
};
ZPD_DEVICE zpd_record zpd_record_of(const void *records, zpd_int blocks, int r) {
  unsigned *bits = (unsigned *)records + r * blocks * 3;
  const zpd_record record = {bits, (float *)(bits + 2 * blocks)};
  return record;
}

ZPD_DEVICE zpd_int zpd_first_warp() { return ((zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x) / ZPD_WARP; }
ZPD_DEVICE zpd_int zpd_warp_stride() { return (zpd_int)gridDim.x * (ZPD_FLAT_THREADS / ZPD_WARP); }
ZPD_DEVICE int zpd_lane() { return (int)(threadIdx.x % ZPD_WARP); }

/* What a lane's element `half` of block b was sent as. */
ZPD_DEVICE real zpd_sent(const zpd_record &from, zpd_int b, int half) {
  const real scale = (real)from.scale[b];
  return from.bits[2 * b + half] >> zpd_lane() & 1 ? scale : -scale;
}

/* Signs and scale of the block's elements x, whose errors are what the two leave out. All lanes of a warp call it. */
ZPD_DEVICE void zpd_pack_block(const zpd_signs &a, zpd_int b, const real x[2]) {
  const real *v = (const real *)a.v + b * ZPD_SIGNS + zpd_lane();
  float *error = a.error + b * ZPD_SIGNS + zpd_lane();
  const zpd_record to = zpd_record_of(a.record, a.blocks, 0);
  double sum = 0;
  int count = 0;
  unsigned bits[2];
  ZPD_EACH (half, 2) {
    const bool counts = v[half * ZPD_WARP] > 0;
    sum += counts ? fabs((double)x[half]) : 0;
    count += counts;
    bits[half] = (unsigned)!(x[half] < 0) << zpd_lane();
  }
  for (int lane = ZPD_WARP / 2; lane > 0; lane /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    count += __shfl_xor_sync(0xffffffffu, count, lane);
    ZPD_EACH (half, 2) bits[half] |= __shfl_xor_sync(0xffffffffu, bits[half], lane);
  }
  const float scale = count > 0 ? (float)(sum / count) : 0;
  ZPD_EACH (half, 2) {
    const real sent = (real)(x[half] < 0 ? -scale : scale);
    error[half * ZPD_WARP] = v[half * ZPD_WARP] > 0 ? (float)(x[half] - sent) : 0;
    if (zpd_lane() == half) to.bits[2 * b + half] = bits[half];
  }
  if (zpd_lane() == 2) to.scale[b] = scale;
}

ZPD_KERNEL(zpd_pack_signs, zpd_signs) {
  const real *m = (const real *)a.m;
  for (zpd_int b = zpd_first_warp(); b < a.here; b += zpd_warp_stride()) {
    const zpd_int i = b * ZPD_SIGNS + zpd_lane();
    const real x[2] = {m[i] + (real)a.error[i], m[i + ZPD_WARP] + (real)a.error[i + ZPD_WARP]};
    zpd_pack_block(a, b, x);
  }
}

ZPD_KERNEL(zpd_average_signs, zpd_signs) {
  for (zpd_int b = zpd_first_warp(); b < a.here; b += zpd_warp_stride()) {
    const zpd_int i = b * ZPD_SIGNS + zpd_lane();
    real x[2] = {0, 0};
    for (int r = 0; r < a.n; r++) {
      const zpd_record from = zpd_record_of(a.records, a.blocks, r);
      ZPD_EACH (half, 2) x[half] += zpd_sent(from, b, half);
    }
    ZPD_EACH (half, 2) x[half] = x[half] / (real)a.n + (real)a.error[i + half * ZPD_WARP];
    zpd_pack_block(a, b, x);
  }
}

ZPD_KERNEL(zpd_unpack_signs, zpd_signs) {
  const zpd_record from = zpd_record_of(a.records, a.blocks, 0);
  for (zpd_int b = zpd_first_warp(); b < a.here; b += zpd_warp_stride())
    ZPD_EACH (half, 2) {
      const zpd_int i = b * ZPD_SIGNS + half * ZPD_WARP + zpd_lane();
      ((real *)a.m)[i] = ((const real *)a.v)[i] > 0 ? zpd_sent(from, b, half) : 0;
    }
}

/* The weights that are computed with, where `param` is their master copy. */
ZPD_DEVICE void zpd_set_weight(const zpd_update &a, zpd_int i, real x) {
  if (sizeof(elem) < sizeof(real)) ((elem *)a.weight)[i] = x;
}

ZPD_KERNEL(zpd_momentum, zpd_update) {
  const real into_grad = (real)(a.kind == ZPK_ADAM ? a.weight_decay : 0), scale = (real)a.grad_scale;
  const real beta1 = (real)a.beta1, rest1 = (real)(1 - a.beta1);
  const real *param = (const real *)a.param;
  const real *grad = (const real *)a.grad;
  real *m = (real *)a.m;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride)
    m[i] = m[i] * beta1 + (grad[i] * scale + into_grad * param[i]) * rest1;
}

ZPD_KERNEL(zpd_frozen_update, zpd_update) {
  const double rest1 = 1 - a.beta1, rest2 = 1 - a.beta2;
  const real keep = (real)(a.kind == ZPK_ADAMW ? 1 - a.lr * a.weight_decay : 1), eps = (real)a.eps;
  const real lr = (real)a.lr, per_bias1 = (real)(1 / a.bias1), per_root_bias2 = (real)(1 / sqrt(a.bias2));
  const real most = (real)(rest1 * rest1 > rest2 ? rest1 / sqrt(rest2) : 1);
  const real *m = (const real *)a.m, *v = (const real *)a.v;
  real *param = (real *)a.param;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride) {
    const real step = m[i] * per_bias1 / (zpd_sqrt(v[i]) * per_root_bias2 + eps);
    zpd_set_weight(a, i, param[i] = param[i] * keep - lr * (step > most ? most : step < -most ? -most : step));
  }
}

/* ---- ZeRO 1: elements of one parameter, whose last block may be shorter ---- */

ZPD_DEVICE zpd_int zpd_owned_blocks(const zpd_owned &a) { return (a.update.count + ZPD_SIGNS - 1) / ZPD_SIGNS; }

/* Block b of the elements: signs and scale of x, whose errors go to `error` (NULL: nowhere). All lanes call it. */
ZPD_DEVICE void zpd_pack_owned(const zpd_owned &a, zpd_int b, const real x[2], float *error) {
  const zpd_record to = zpd_record_of(a.record, a.blocks, 0);
  const zpd_int begin = b * ZPD_SIGNS + zpd_lane(), rest = a.update.count - b * ZPD_SIGNS;
  double sum = 0;
  unsigned bits[2];
  ZPD_EACH (half, 2) {
    const bool is = begin + half * ZPD_WARP < a.update.count;
    sum += is ? fabs((double)x[half]) : 0;
    bits[half] = (unsigned)(is && !(x[half] < 0)) << zpd_lane();
  }
  for (int lane = ZPD_WARP / 2; lane > 0; lane /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    ZPD_EACH (half, 2) bits[half] |= __shfl_xor_sync(0xffffffffu, bits[half], lane);
  }
  const float scale = (float)(sum / (double)(rest < ZPD_SIGNS ? rest : (zpd_int)ZPD_SIGNS));
  ZPD_EACH (half, 2) {
    const zpd_int i = begin + half * ZPD_WARP;
    if (error && i < a.update.count) error[i] = (float)(x[half] - (real)(x[half] < 0 ? -scale : scale));
    if (zpd_lane() == half) to.bits[2 * (a.first + b) + half] = bits[half];
  }
  if (zpd_lane() == 2) to.scale[a.first + b] = scale;
}

ZPD_KERNEL(zpd_add_to_error, zpd_owned) {
  const real *grad = (const real *)a.update.grad;
  const real by = (real)a.update.grad_scale;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.update.count; i += stride)
    a.error[i] = (float)((real)a.error[i] + grad[i] * by);
}

ZPD_KERNEL(zpd_pack_error, zpd_owned) {
  for (zpd_int b = zpd_first_warp(); b < zpd_owned_blocks(a); b += zpd_warp_stride()) {
    real x[2] = {0, 0};
    ZPD_EACH (half, 2) {
      const zpd_int i = b * ZPD_SIGNS + half * ZPD_WARP + zpd_lane();
      if (i < a.update.count) x[half] = (real)a.error[i];
    }
    zpd_pack_owned(a, b, x, a.error);
  }
}

/* New momentum of element i, unless that is there, and what its weight shall change by. */
ZPD_DEVICE real zpd_change(const zpd_owned &a, zpd_int b, int half, zpd_int i) {
  const zpd_update &u = a.update;
  const double rest1 = 1 - u.beta1, rest2 = 1 - u.beta2;
  const real into_grad = (real)(u.kind == ZPK_ADAM ? u.weight_decay * rest1 : 0);
  const real decay = (real)(u.kind == ZPK_ADAM ? 0 : u.lr * u.weight_decay);
  const real most = (real)(rest1 * rest1 > rest2 ? rest1 / sqrt(rest2) : 1);
  const real v = ((const real *)u.v)[i], w = (real)((const elem *)u.weight)[i];
  real *m = (real *)u.m + i, *master = u.param ? (real *)u.param + i : (real *)0, sum = 0;
  const real server_error = master ? (real)0 : (real)a.error[i], p = master ? *master : w + server_error;
  for (int r = 0; r < (int)a.n; r++) sum += zpd_sent(zpd_record_of(a.records, a.blocks, r), a.first + b, half);
  if (a.n > 0) *m = v > 0 ? *m * (real)u.beta1 + sum / (real)a.n + into_grad * p : 0;
  real step = *m * (real)(1 / u.bias1) / (zpd_sqrt(v) * (real)(1 / sqrt(u.bias2)) + (real)u.eps);
  step = step > most ? most : step < -most ? -most : step;
  if (!master) return server_error - decay * p - (real)u.lr * step;
  *master = p * (1 - decay) - (real)u.lr * step;
  return *master - w;
}

ZPD_KERNEL(zpd_owner_update, zpd_owned) {
  for (zpd_int b = zpd_first_warp(); b < zpd_owned_blocks(a); b += zpd_warp_stride()) {
    real x[2] = {0, 0};
    ZPD_EACH (half, 2) {
      const zpd_int i = b * ZPD_SIGNS + half * ZPD_WARP + zpd_lane();
      if (i < a.update.count) x[half] = zpd_change(a, b, half, i);
    }
    zpd_pack_owned(a, b, x, a.error);
  }
}

ZPD_KERNEL(zpd_apply_signs, zpd_owned) {
  elem *weight = (elem *)a.update.weight;
  const zpd_record from = zpd_record_of(a.records, a.blocks, 0);
  for (zpd_int b = zpd_first_warp(); b < zpd_owned_blocks(a); b += zpd_warp_stride())
    ZPD_EACH (half, 2) {
      const zpd_int i = b * ZPD_SIGNS + half * ZPD_WARP + zpd_lane();
      if (i < a.update.count) weight[i] = (real)weight[i] + zpd_sent(from, a.first + b, half);
    }
}

#endif
