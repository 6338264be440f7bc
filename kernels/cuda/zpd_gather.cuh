/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of samples by number, and the gradient without atomics: a block a row that is written. */
#ifndef ZPD_GATHER_CUH
#define ZPD_GATHER_CUH

#include "zpd_device.h"

ZPD_KERNEL(zpd_gather, zpd_gather_args) {
  const bool packs = a.cols % ZPD_VEC == 0 && zpd_begins_pack(a.from) && zpd_begins_pack(a.to);
  for (zpd_int r = blockIdx.x; r < a.samples * a.n; r += gridDim.x) {
    const zpd_int at = a.index[r] - a.first;
    const bool here = at >= 0 && at < a.S;
    const elem *from = (const elem *)a.from + (r / a.n * a.S + (here ? at : 0)) * a.cols;
    elem *to = (elem *)a.to + r * a.cols;
    const zpd_raw zeros = {};
    for (zpd_int j = threadIdx.x * ZPD_VEC; j < a.cols; j += ZPD_FLAT_THREADS * ZPD_VEC)
      zpd_raw_store(to + j, here ? zpd_raw_load(from + j, a.cols - j, packs) : zeros, a.cols - j, packs);
  }
}

ZPD_KERNEL(zpd_gather_grad, zpd_gather_args) {
  const bool packs = a.cols % ZPD_VEC == 0 && zpd_begins_pack(a.from) && zpd_begins_pack(a.to);
  for (zpd_int r = blockIdx.x; r < a.samples * a.S; r += gridDim.x) {
    const zpd_int b = r / a.S, wanted = r % a.S + a.first;
    for (zpd_int j = threadIdx.x * ZPD_VEC; j < a.cols; j += ZPD_FLAT_THREADS * ZPD_VEC) {
      real sum[ZPD_VEC] = {};
      for (zpd_int i = b * a.n; i < (b + 1) * a.n; i++) {
        if (a.index[i] != wanted) continue;
        const zpd_raw row = zpd_raw_load((const elem *)a.from + i * a.cols + j, a.cols - j, packs);
        ZPD_EACH (k, ZPD_VEC) sum[k] += zpd_raw_at(row, k);
      }
      zpd_raw_store((elem *)a.to + r * a.cols + j, zpd_raw_of(sum), a.cols - j, packs);
    }
  }
}

#endif
