/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices of samples turned over, a block a tile: rows are read and rows are written, and the tile turns in shared
 * memory, whose rows are one longer so that a column of it is in as many banks. */
#ifndef ZPD_TRANSPOSE_CUH
#define ZPD_TRANSPOSE_CUH

#include "zpd_device.h"

ZPD_KERNEL(zpd_transpose, zpd_transpose_args) {
  enum { TILE = ZPD_TRANSPOSE_TILE, ROWS = ZPD_FLAT_THREADS / TILE };
  __shared__ elem tile[TILE][TILE + 1];
  const zpd_int down = (a.rows + TILE - 1) / TILE, across = (a.cols + TILE - 1) / TILE;
  const int i = threadIdx.x / TILE, j = threadIdx.x % TILE;
  for (zpd_int at = blockIdx.x; at < a.samples * down * across; at += gridDim.x) {
    const zpd_int b = at / (down * across), row = at / across % down * TILE, col = at % across * TILE;
    const elem *x = (const elem *)a.x + b * a.rows * a.cols;
    elem *y = (elem *)a.y + b * a.rows * a.cols;
    for (int k = i; k < TILE; k += ROWS)
      if (row + k < a.rows && col + j < a.cols) tile[k][j] = x[(row + k) * a.cols + col + j];
    __syncthreads();
    for (int k = i; k < TILE; k += ROWS)
      if (col + k < a.cols && row + j < a.rows) y[(col + k) * a.rows + row + j] = tile[j][k];
    __syncthreads();
  }
}

#endif
