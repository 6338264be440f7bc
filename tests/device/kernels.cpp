/* SPDX-License-Identifier: Apache-2.0 */
/* The device kernels of the runtime's tests: all of kernels/cuda, and one row kernel as zplan would generate it.
 * Compiled for the host, with the emulation of threads after it. */
#define ZPD_AXES
#define ZPD_EXPERTS
#define ZPD_ONE_BIT
#include "zpd_kernels.cuh"
#include "zpd_rows.cuh"

/* out[r][j] = in[r][j] * scale[j], with the sums over rows of in and of out as column sums; 5 columns. A thread a
 * column. */
ZPD_KERNEL(row_scale, zpd_rows) {
  const int COLS = 5, j = (int)threadIdx.x;
  const zpd_int first = a.rows * blockIdx.x / a.chunks, last = a.rows * (blockIdx.x + 1) / a.chunks;
  const real *x = (const real *)a.in[0], *scale = (const real *)a.in[1];
  real *y = (real *)a.out[0], sum_x = 0, sum_y = 0;
  for (zpd_int r = first; j < COLS && r < last; r++) {
    const real value = x[r * a.in_ld[0] + j] * scale[j];
    y[r * a.out_ld[0] + j] = value;
    sum_x += x[r * a.in_ld[0] + j];
    sum_y += value;
  }
  if (j < COLS) {
    ((real *)a.partial[0])[blockIdx.x * COLS + j] = sum_x;
    ((real *)a.partial[1])[blockIdx.x * COLS + j] = sum_y;
  }
  if (!zpd_is_last_of_group(a)) return;
  for (int i = 0; i < 2; i++) zpd_add_chunks_of_group<8>(a, i, COLS, 0, COLS);
  if (!zpd_is_last_group(a)) return;
  for (int i = 0; i < 2; i++) zpd_add_groups<8>(a, i, COLS, 0, COLS);
}

/* out[r] = what the runtime says about the random stream: seed, step, instance, first sample, first column, columns,
 * dropout. */
ZPD_KERNEL(row_stream, zpd_rows) {
  const double values[] = {(double)a.seed,         (double)a.step,         (double)a.instance,
                           (double)a.first_sample, (double)a.first_column, (double)a.logical_columns,
                           (double)a.dropout};
  for (zpd_int r = blockIdx.x; r < a.rows; r += gridDim.x)
    if (threadIdx.x < 7) ((real *)a.out[0])[r * a.out_ld[0] + threadIdx.x] = (real)values[threadIdx.x];
}

#include "zpd_host_scheduler.h"
