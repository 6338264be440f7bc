/* SPDX-License-Identifier: Apache-2.0 */
/* What the same queries have seen of two sets of keys, made one result; and sums of rows with leading dimensions. */
#ifndef ZPD_MERGE_CUH
#define ZPD_MERGE_CUH

#include "zpd_device.h"

/* Element i of rows that are `real`, or not. */
ZPD_DEVICE real zpd_merge_get(const void *x, zpd_int wide, zpd_int i) {
  return wide ? ((const real *)x)[i] : (real)((const elem *)x)[i];
}

/* A block a row; all heads' weights are taken before one of their log-sum-exps is written. */
ZPD_KERNEL(zpd_merge_parts, zpd_merge) {
  for (zpd_int row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const zpd_int cols = a.heads * a.hd;
    const zpd_int to = row * a.to_ld, from = row * a.from_ld;
    real *lse = (real *)a.lse + (a.lse ? row * a.heads : 0);
    const real *other = (const real *)a.from_lse + (a.lse ? row * a.heads : 0);
    for (zpd_int j = threadIdx.x; j < cols; j += ZPD_FLAT_THREADS) {
      real x = 1, y = 1;
      if (a.lse) {
        const real mine = lse[j / a.hd], theirs = other[j / a.hd], most = mine > theirs ? mine : theirs;
        x = zpd_exp(mine - most), y = zpd_exp(theirs - most);
        const real all = x + y;
        x /= all, y /= all;
      }
      const real more = y * zpd_merge_get(a.from, a.from_wide, from + j);
      const real sum = (a.set ? 0 : x * zpd_merge_get(a.to, a.to_wide, to + j)) + more;
      if (a.to_wide)
        ((real *)a.to)[to + j] = sum;
      else
        ((elem *)a.to)[to + j] = sum;
    }
    __syncthreads();
    if (!a.lse) continue;
    for (zpd_int h = threadIdx.x; h < a.heads; h += ZPD_FLAT_THREADS) {
      const real most = lse[h] > other[h] ? lse[h] : other[h];
      lse[h] = most + zpd_log(zpd_exp(lse[h] - most) + zpd_exp(other[h] - most));
    }
  }
}

#endif
