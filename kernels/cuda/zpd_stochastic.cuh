/* SPDX-License-Identifier: Apache-2.0 */
/* Additions to sums of gradients in bf16, rounded stochastically. The same bits as kernels/stochastic.c. */
#ifndef ZPD_STOCHASTIC_CUH
#define ZPD_STOCHASTIC_CUH

#include "zpd_philox.cuh"

ZPD_DEVICE void zpd_draw_block(const zpd_stochastic &a, zpd_int block, unsigned (&word)[4]) {
  word[0] = (unsigned)block;
  word[1] = a.addend;
  word[2] = (unsigned)a.tensor;
  word[3] = (unsigned)(a.tensor >> 32) ^ (unsigned)((zpd_uint)block >> 32);
  zpd_philox(word, a.key[0], a.key[1]);
}

/* Up by a spacing with the probability that the share of it between the two neighbours is; NaN stays one. */
ZPD_DEVICE unsigned short zpd_round_by(float x, unsigned random) {
#ifdef ZPD_HOST
  const unsigned bits = zpk_to_bits(x);
#else
  const unsigned bits = __float_as_uint(x);
#endif
  return (unsigned short)(x != x ? bits >> 16 | 0x40u : (bits + random) >> 16);
}

/* A thread takes as many neighbours as one draw has numbers for. */
ZPD_KERNEL(zpd_add_stochastic, zpd_stochastic) {
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS * ZPD_STOCHASTIC_BLOCK;
  for (zpd_int i = ((zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x) * ZPD_STOCHASTIC_BLOCK; i < a.count;
       i += stride) {
    unsigned word[4] = {0, 0, 0, 0};
    const zpd_int row = (a.first + i) / a.local_stride;
    zpd_int column = a.first + i - row * a.local_stride, element = row * a.stride + a.logical_first + column,
            drawn = -1;
    for (zpd_int k = i; k < i + ZPD_STOCHASTIC_BLOCK && k < a.count; k++) {
      if (element / ZPD_STOCHASTIC_BLOCK != drawn) zpd_draw_block(a, drawn = element / ZPD_STOCHASTIC_BLOCK, word);
      const int place = (int)(element % ZPD_STOCHASTIC_BLOCK);
      const unsigned two = place < 4 ? (place < 2 ? word[0] : word[1]) : (place < 6 ? word[2] : word[3]);
      const float sum = a.add ? zpd_widen_bf16(a.sum[k]) + a.x[k] : a.x[k];
      a.sum[k] = zpd_round_by(sum, two >> (place % 2 * 16) & 0xFFFFu);
      element++, column++;
      if (column == a.local_stride) column = 0, element += a.stride - a.local_stride;
    }
  }
}

#endif
