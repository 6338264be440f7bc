/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of samples: stretches of them copied, their mean and its gradient. Rows move once. A sum over positions is
 * made by one thread, in their order. */
#ifndef ZPD_POSITIONS_CUH
#define ZPD_POSITIONS_CUH

#include "zpd_device.h"

/* A block a row that is written; 16 bytes a thread where all rows begin at multiples of 16. */
ZPD_KERNEL(zpd_move_positions, zpd_positions) {
  const bool packs = a.cols % ZPD_VEC == 0 && zpd_begins_pack(a.from) && zpd_begins_pack(a.to);
  for (zpd_int r = blockIdx.x; r < a.samples * a.n; r += gridDim.x) {
    const zpd_int b = r / a.n, i = r % a.n, at = a.from_at + i;
    const bool here = at >= 0 && at < a.from_S;
    const elem *from = (const elem *)a.from + ((a.shared ? 0 : b * a.from_S) + (here ? at : 0)) * a.cols;
    elem *to = (elem *)a.to + (b * a.to_S + a.to_at + i) * a.cols;
    const zpd_raw zeros = {};
    for (zpd_int j = threadIdx.x * ZPD_VEC; j < a.cols; j += ZPD_FLAT_THREADS * ZPD_VEC)
      zpd_raw_store(to + j, here ? zpd_raw_load(from + j, a.cols - j, packs) : zeros, a.cols - j, packs);
  }
}

/* A thread a pack of columns of one sample; blocks share out the samples' stretches of columns. */
ZPD_KERNEL(zpd_mean_positions, zpd_positions) {
  enum { COLUMNS = ZPD_FLAT_THREADS * ZPD_VEC };
  const elem *x = (const elem *)a.from;
  const bool packs = a.cols % ZPD_VEC == 0 && zpd_begins_pack(x) && zpd_begins_pack(a.to);
  const zpd_int stretches = (a.cols + COLUMNS - 1) / COLUMNS;
  for (zpd_int part = blockIdx.x; part < a.samples * stretches; part += gridDim.x) {
    const zpd_int b = part / stretches, j = part % stretches * COLUMNS + threadIdx.x * ZPD_VEC;
    if (j >= a.cols) continue;
    real sum[ZPD_VEC] = {};
    for (zpd_int s = 0; s < a.S; s++) {
      const zpd_raw row = zpd_raw_load(x + (b * a.S + s) * a.cols + j, a.cols - j, packs);
      ZPD_EACH (k, ZPD_VEC) sum[k] += zpd_raw_at(row, k);
    }
    ZPD_EACH (k, ZPD_VEC) sum[k] *= (real)a.scale;
    zpd_raw_store((elem *)a.to + b * a.cols + j, zpd_raw_of(sum), a.cols - j, packs);
  }
}

/* A block a row of the gradient. */
ZPD_KERNEL(zpd_spread_positions, zpd_positions) {
  const bool packs = a.cols % ZPD_VEC == 0 && zpd_begins_pack(a.from) && zpd_begins_pack(a.to);
  for (zpd_int r = blockIdx.x; r < a.samples * a.S; r += gridDim.x) {
    const elem *from = (const elem *)a.from + r / a.S * a.cols;
    elem *to = (elem *)a.to + r * a.cols;
    for (zpd_int j = threadIdx.x * ZPD_VEC; j < a.cols; j += ZPD_FLAT_THREADS * ZPD_VEC) {
      const zpd_raw row = zpd_raw_load(from + j, a.cols - j, packs);
      real x[ZPD_VEC];
      ZPD_EACH (k, ZPD_VEC) x[k] = zpd_raw_at(row, k) * (real)a.scale;
      zpd_raw_store(to + j, zpd_raw_of(x), a.cols - j, packs);
    }
  }
}

#endif
