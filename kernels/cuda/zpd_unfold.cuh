/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over positions side by side in rows, and the gradient without atomics: a block a row that is written. */
#ifndef ZPD_UNFOLD_CUH
#define ZPD_UNFOLD_CUH

#include "zpd_device.h"

ZPD_KERNEL(zpd_unfold, zpd_unfold_args) {
  const zpd_int places = a.kernel[0] * a.kernel[1], width = a.cols * places;
  for (zpd_int r = blockIdx.x; r < a.samples * a.n; r += gridDim.x) {
    const zpd_int window = a.first + r % a.n, top = window / a.count[1] * a.stride[0] - a.padding[0];
    const zpd_int left = window % a.count[1] * a.stride[1] - a.padding[1];
    const elem *x = (const elem *)a.from + r / a.n * a.size[0] * a.size[1] * a.cols;
    for (zpd_int j = threadIdx.x; j < width; j += ZPD_FLAT_THREADS) {
      const zpd_int place = j % places, row = top + place / a.kernel[1], col = left + place % a.kernel[1];
      const bool here = row >= 0 && row < a.size[0] && col >= 0 && col < a.size[1];
      elem *to = (elem *)a.to + r * width + j;
      if (here)
        *to = x[(row * a.size[1] + col) * a.cols + j / places];
      else
        *to = elem((real)0);
    }
  }
}

/* Windows along a dimension that have a position, from `first` on to before `end`. */
struct zpd_windows {
  zpd_int first, end;
};

__device__ __forceinline__ zpd_windows zpd_windows_with(const zpd_unfold_args &a, int dimension, zpd_int position) {
  const zpd_int at = position + a.padding[dimension], stride = a.stride[dimension], kernel = a.kernel[dimension];
  const zpd_int end = at / stride + 1;
  zpd_windows w = {at < kernel ? 0 : (at - kernel) / stride + 1, end < a.count[dimension] ? end : a.count[dimension]};
  return w;
}

ZPD_KERNEL(zpd_unfold_grad, zpd_unfold_args) {
  const zpd_int places = a.kernel[0] * a.kernel[1], positions = a.size[0] * a.size[1];
  for (zpd_int r = blockIdx.x; r < a.samples * positions; r += gridDim.x) {
    const zpd_int row = r % positions / a.size[1], col = r % a.size[1];
    const zpd_windows down = zpd_windows_with(a, 0, row), right = zpd_windows_with(a, 1, col);
    for (zpd_int j = threadIdx.x; j < a.cols; j += ZPD_FLAT_THREADS) {
      real sum = 0;
      for (zpd_int i = down.first; i < down.end; i++)
        for (zpd_int k = right.first; k < right.end; k++) {
          const zpd_int place =
              (row + a.padding[0] - i * a.stride[0]) * a.kernel[1] + col + a.padding[1] - k * a.stride[1];
          const zpd_int window = i * a.count[1] + k - a.first;
          if (window < 0 || window >= a.n) continue;
          sum += ((const elem *)a.from)[((r / positions * a.n + window) * a.cols + j) * places + place];
        }
      ((elem *)a.to)[r * a.cols + j] = elem(sum);
    }
  }
}

#endif
