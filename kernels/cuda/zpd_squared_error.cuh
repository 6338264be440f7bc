/* SPDX-License-Identifier: Apache-2.0 */
/* The mean of squared differences of every row, a block a row, and its gradient, element by element. */
#ifndef ZPD_SQUARED_ERROR_CUH
#define ZPD_SQUARED_ERROR_CUH

#include "zpd_device.h"

ZPD_KERNEL(zpd_squared_error, zpd_squared_error_args) {
  for (zpd_int r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const elem *x = (const elem *)a.x + r * a.cols, *target = (const elem *)a.target + r * a.cols;
    double sum = 0;
    for (zpd_int j = threadIdx.x; j < a.cols; j += ZPD_FLAT_THREADS) {
      const double d = (double)(real)x[j] - (double)(real)target[j];
      sum += d * d;
    }
    sum = zpd_block_sum_f64(sum);
    if (threadIdx.x == 0) {
      real *stat = (real *)a.to + r * 3;
      stat[0] = (real)(sum / (double)a.cols);
      stat[1] = 1;
      stat[2] = 0;
    }
  }
}

ZPD_KERNEL(zpd_squared_error_grad, zpd_squared_error_args) {
  const elem *x = (const elem *)a.x, *target = (const elem *)a.target;
  const double scale = a.loss_scale ? a.scale * *a.loss_scale : a.scale;
  const real factor = (real)(2 * scale / (double)a.cols);
  for (zpd_int j = blockIdx.x * (zpd_int)ZPD_FLAT_THREADS + threadIdx.x; j < a.rows * a.cols;
       j += gridDim.x * (zpd_int)ZPD_FLAT_THREADS)
    ((elem *)a.to)[j] = (elem)(((real)x[j] - (real)target[j]) * factor);
}

#endif
