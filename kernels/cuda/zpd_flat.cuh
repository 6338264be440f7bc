/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on flat buffers: fill, sums over ranks. Memory is the limit of
 * all; 16 bytes a thread where the buffers begin at multiples of 16. */
#ifndef ZPD_FLAT_CUH
#define ZPD_FLAT_CUH

#include "zpd_device.h"

ZPD_DEVICE zpd_int zpd_first_element() { return ((zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x) * ZPD_PACK; }
ZPD_DEVICE zpd_int zpd_element_stride() { return (zpd_int)gridDim.x * ZPD_FLAT_THREADS * ZPD_PACK; }

/* Elements i .. i + ZPD_PACK - 1, zeros after the end. */
ZPD_DEVICE zpd_pack zpd_load(const elem *x, zpd_int i, zpd_int count, bool aligned) {
  if (aligned && i + ZPD_PACK <= count) return zpd_get(x + i);
  zpd_pack p;
  ZPD_EACH (k, ZPD_PACK) p.at[k] = i + k < count ? (real)x[i + k] : 0;
  return p;
}

ZPD_DEVICE void zpd_store(elem *y, zpd_int i, zpd_int count, bool aligned, const zpd_pack &p) {
  if (aligned && i + ZPD_PACK <= count)
    zpd_put(y + i, p);
  else
    ZPD_EACH (k, ZPD_PACK)
      if (i + k < count) y[i + k] = p.at[k];
}

ZPD_KERNEL(zpd_fill, zpd_flat) {
  elem *y = (elem *)a.y;
  const bool aligned = zpd_aligned(y);
  zpd_pack p;
  ZPD_EACH (k, ZPD_PACK) p.at[k] = (real)a.value;
  for (zpd_int i = zpd_first_element(); i < a.count; i += zpd_element_stride()) zpd_store(y, i, a.count, aligned, p);
}

ZPD_KERNEL(zpd_sum_parts, zpd_rank_sum) {
  real *mine = (real *)a.mine;
  const real *others = (const real *)a.others;
  const elem *rounded = (const elem *)a.rounded;
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride) {
    real sum = a.me == 0 ? mine[i] : others[i];
    for (int r = 1; r < a.n; r++) sum += r == a.me ? mine[i] : others[r * a.slot + i];
    mine[i] = rounded ? sum + (real)rounded[i] : sum;
  }
}

/* What leaves a node, and what has come from another. */
ZPD_KERNEL(zpd_round_sum, zpd_rounding) {
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride)
    a.bits[i] = zpd_round_bf16(a.sum[i]);
}

ZPD_KERNEL(zpd_widen_sum, zpd_rounding) {
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride)
    a.sum[i] = zpd_widen_bf16(a.bits[i]);
}

#endif
