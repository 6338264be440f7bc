/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor's passes (formulas: kernels/optimizer/adafactor.c) over what a rank updates of a tensor. */
#ifndef ZPD_ADAFACTOR_CUH
#define ZPD_ADAFACTOR_CUH

#include "zpd_device.h"

/* Where the tensor's element is among those; -1: somebody else has it. */
ZPD_DEVICE zpd_int zpd_own_element(const zpd_factored &a, zpd_int element) {
  const zpd_int at = element - a.share_first, block = at < 0 ? -1 : at / a.stride, inside = at - block * a.stride;
  const zpd_int own = block * a.local_stride + inside - a.first;
  return at < 0 || inside >= a.width || own < 0 || own >= a.count ? -1 : own;
}

/* The tensor's element that is element i of those; -1: padding. */
ZPD_DEVICE zpd_int zpd_element_of(const zpd_factored &a, zpd_int i) {
  const zpd_int at = a.first + i, block = at / a.local_stride, inside = at % a.local_stride;
  return inside < a.width ? a.share_first + block * a.stride + inside : -1;
}

ZPD_DEVICE double zpd_square_of(const zpd_factored &a, zpd_int element) {
  const zpd_int own = zpd_own_element(a, element);
  if (own < 0) return 0;
  const double g = (double)(((const real *)a.grad)[own] * (real)a.grad_scale);
  return g * g;
}

/* A block of threads a row. */
ZPD_KERNEL(zpd_adafactor_rows, zpd_factored) {
  for (zpd_int row = blockIdx.x; row < a.n_rows; row += gridDim.x) {
    double sum = 0;
    for (zpd_int j = threadIdx.x; j < a.cols; j += ZPD_FLAT_THREADS) sum += zpd_square_of(a, row * a.cols + j);
    sum = zpd_block_sum_f64(sum);
    if (threadIdx.x == 0) a.sums[row] = sum;
  }
}

/* A block of threads for 32 columns of a matrix, whose rows it takes eight at a time. */
ZPD_KERNEL(zpd_adafactor_cols, zpd_factored) {
  enum { WIDE = 32, HIGH = ZPD_FLAT_THREADS / WIDE };
  __shared__ double part[HIGH][WIDE];
  const zpd_int groups = (a.cols + WIDE - 1) / WIDE, matrices = a.n_cols / a.cols;
  const int x = threadIdx.x % WIDE, y = threadIdx.x / WIDE;
  for (zpd_int group = blockIdx.x; group < groups * matrices; group += gridDim.x) {
    const zpd_int matrix = group / groups, col = group % groups * WIDE + x;
    double sum = 0;
    for (zpd_int i = y; i < a.rows && col < a.cols; i += HIGH)
      sum += zpd_square_of(a, (matrix * a.rows + i) * a.cols + col);
    part[y][x] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < HIGH; i++) sum += part[i][x];
    if (y == 0 && col < a.cols) a.sums[a.n_rows + matrix * a.cols + col] = sum;
    __syncthreads();
  }
}

ZPD_KERNEL(zpd_adafactor_means, zpd_factored) {
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  real *state = (real *)a.state;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.n_rows + a.n_cols; i += stride) {
    const double mean = a.sums[i] / (double)(i < a.n_rows ? a.cols : a.rows);
    state[i] = (real)(a.beta2 * (double)state[i] + (1 - a.beta2) * (mean + a.eps));
  }
}

/* A block of threads a matrix. */
ZPD_KERNEL(zpd_adafactor_factors, zpd_factored) {
  const zpd_int matrices = a.n_cols / a.cols;
  const real *rows = (const real *)a.state, *cols = rows + a.n_rows;
  real *to = (real *)a.factors;
  for (zpd_int matrix = blockIdx.x; matrix < matrices; matrix += gridDim.x) {
    double mean = 0;
    for (zpd_int i = threadIdx.x; i < a.rows && a.n_rows > 0; i += ZPD_FLAT_THREADS)
      mean += (double)rows[matrix * a.rows + i];
    mean = zpd_block_sum_f64(mean) / (double)a.rows;
    for (zpd_int i = threadIdx.x; i < a.rows && a.n_rows > 0; i += ZPD_FLAT_THREADS)
      to[matrix * a.rows + i] = (real)(1 / sqrt((double)rows[matrix * a.rows + i] / mean));
    for (zpd_int j = threadIdx.x; j < a.cols; j += ZPD_FLAT_THREADS)
      to[a.n_rows + matrix * a.cols + j] = (real)(1 / sqrt((double)cols[matrix * a.cols + j]));
  }
}

/* The update of own element i before it is scaled, which is the tensor's `element`. */
ZPD_DEVICE real zpd_factored_step(const zpd_factored &a, zpd_int i, zpd_int element, real scale) {
  const real *by_row = (const real *)a.factors, *by_col = by_row + a.n_rows;
  const zpd_int row = element / a.cols;
  const real of_col = by_col[row / a.rows * a.cols + element % a.cols];
  return (a.n_rows > 0 ? by_row[row] : (real)1) * of_col * (((const real *)a.grad)[i] * scale);
}

ZPD_KERNEL(zpd_adafactor_squares, zpd_factored) {
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  const real *param = (const real *)a.param;
  double params = 0, updates = 0;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride) {
    const zpd_int element = zpd_element_of(a, i);
    if (element < 0) continue;
    const double step = (double)zpd_factored_step(a, i, element, (real)a.grad_scale);
    if (param) params += (double)param[i] * (double)param[i];
    updates += step * step;
  }
  params = zpd_block_sum_f64(params);
  updates = zpd_block_sum_f64(updates);
  if (threadIdx.x == 0) a.sums[2 * blockIdx.x] = params, a.sums[2 * blockIdx.x + 1] = updates;
}

ZPD_KERNEL(zpd_adafactor_apply, zpd_factored) {
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  const real scale = (real)(a.grad_scale * a.factor), keep = (real)a.keep, rest = (real)(1 - a.ema);
  const real beta = (real)a.beta1, into = (real)(1 - a.beta1);
  real *param = (real *)a.param, *m = (real *)a.m, *average = (real *)a.average;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride) {
    const zpd_int element = zpd_element_of(a, i);
    if (element < 0) continue;
    real step = zpd_factored_step(a, i, element, scale);
    if (m) step = m[i] = beta * m[i] + into * step;
    const real next = param[i] * keep - step;
    param[i] = next;
    if (a.weight) ((elem *)a.weight)[i] = next;
    if (average) average[i] += rest * (next - average[i]);
  }
}

/* What ranks have, in their order. */
ZPD_KERNEL(zpd_adafactor_add, zpd_arrivals) {
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int i = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; i < a.count; i += stride) {
    double sum = 0;
    for (zpd_int r = 0; r < a.n; r++) sum += a.from[r * a.count + i];
    a.to[i] = sum;
  }
}

#endif
