/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on flat buffers: sums over ranks, and their rounding. Memory is the limit of all. */
#ifndef ZPD_FLAT_CUH
#define ZPD_FLAT_CUH

#include "zpd_device.h"

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
