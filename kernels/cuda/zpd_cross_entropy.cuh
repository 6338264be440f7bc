/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of logits whose vocabulary may be split over tensor ranks: a rank reduces its columns to three numbers
 * a row, the ranks exchange those, and each combines all of them. stats reads the logits once (rows * V elements), grad
 * reads and writes them once, 16 bytes at a time wherever rows begin. */
#ifndef ZPD_CROSS_ENTROPY_CUH
#define ZPD_CROSS_ENTROPY_CUH

#include "zpd_device.h"

/* Columns of row r that are classes; the rest of the last rank's columns are padding. */
ZPD_DEVICE int zpd_ce_valid(const zpd_ce &a, zpd_int r) {
  const zpd_int valid = (a.lengths ? a.lengths[r] : a.vocabulary) - a.first_col;
  return (int)(valid < 0 ? 0 : valid > a.V ? a.V : valid);
}

/* Elements of a row before the first multiple of 16 bytes: rows of an odd vocabulary begin anywhere. */
ZPD_DEVICE int zpd_ce_lead(const elem *x) { return (int)((16 - (zpd_uint)x % 16) % 16 / sizeof(elem)); }

/* A running maximum and the sum of exp(x - max), one pass (Milakov and Gimelshein, 2018). The maximum begins at the
 * lowest finite number, so no difference of infinities appears: -inf adds nothing, NaN leaves the maximum alone and
 * makes the sum NaN. */
struct zpd_ce_sum {
  real max, sum;
};

ZPD_DEVICE real zpd_lowest() {
#ifdef ZPD_F64
  return -1.7976931348623157e308;
#else
  return -3.402823466e38f;
#endif
}

ZPD_DEVICE void zpd_ce_take(zpd_ce_sum &s, const real *x, int count) {
  real max = s.max, sum = 0;
  for (int i = 0; i < count; i++) max = x[i] > max ? x[i] : max;
  for (int i = 0; i < count; i++) sum += zpd_exp(x[i] - max);
  s.sum = (max > s.max ? s.sum * zpd_exp(s.max - max) : s.sum) + sum;
  s.max = max;
}

ZPD_DEVICE void zpd_ce_take_pack(zpd_ce_sum &s, const elem *x, int count) {
  real at[ZPD_VEC];
  if (count >= ZPD_VEC) {
    const zpd_raw raw = *(const zpd_raw *)x;
    ZPD_EACH (k, ZPD_VEC) at[k] = zpd_raw_at(raw, k);
  } else
    ZPD_EACH (k, ZPD_VEC) at[k] = k < count ? (real)x[k] : -zpd_infinity();
  zpd_ce_take(s, at, ZPD_VEC);
}

/* Packs of 16 bytes, with one more exponential than columns; before the first and after the last whole one less. */
ZPD_DEVICE zpd_ce_sum zpd_ce_row(const elem *x, int valid) {
  zpd_ce_sum s = {zpd_lowest(), 0};
  const int lead = zpd_ce_lead(x);
  if (threadIdx.x == ZPD_CE_THREADS - 1 && lead > 0) zpd_ce_take_pack(s, x, valid < lead ? valid : lead);
  for (int j = lead + (int)threadIdx.x * ZPD_VEC; j < valid; j += ZPD_CE_THREADS * ZPD_VEC)
    zpd_ce_take_pack(s, x + j, valid - j);
  return s;
}

/* A sum of 0 means that no column had a finite logit: then the maximum is -inf, as zpk_ce_stats says. */
ZPD_KERNEL(zpd_ce_stats, zpd_ce) {
  for (zpd_int r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const int valid = zpd_ce_valid(a, r);
    const elem *x = (const elem *)a.logits + r * a.V;
    const zpd_ce_sum mine = zpd_ce_row(x, valid);
    const real max = zpd_block_max(mine.max), sum = zpd_block_sum(mine.sum * zpd_exp(mine.max - max));
    if (threadIdx.x == 0) {
      real *stat = (real *)a.out + r * 3;
      const zpd_int label = a.labels[r] - a.first_col;
      stat[0] = sum == 0 ? -zpd_infinity() : max;
      stat[1] = sum;
      stat[2] = label >= 0 && label < valid ? (real)x[label] : -zpd_infinity();
    }
  }
}

/* The log-sum-exp of one row over all ranks, in f64; *label_logit: of the rank that has the label; *right: it is the
 * largest. */
ZPD_DEVICE double zpd_ce_combine(const zpd_ce &a, zpd_int r, double *label_logit, bool *right) {
  const real *stat = (const real *)a.stat;
  double max = -(double)zpd_infinity(), label = max, sum = 0;
  for (int i = 0; i < a.ranks; i++) {
    const real *s = stat + (i * a.rows + r) * 3;
    max = fmax(max, (double)s[0]);
    label = fmax(label, (double)s[2]);
  }
  for (int i = 0; i < a.ranks; i++) {
    const real *s = stat + (i * a.rows + r) * 3;
    const double below = (double)s[0] - max;
    sum += below == 0 ? (double)s[1] : (double)s[1] * exp(below);
  }
  *label_logit = label;
  *right = label == max;
  return max + log(sum);
}

/* A thread a row, or several where there are more rows than threads; the sums of the blocks are added in order by the
 * block that comes last. How many blocks there are depends on the rows alone. */
ZPD_KERNEL(zpd_ce_loss, zpd_ce) {
  __shared__ double of_block[2][ZPD_LOSS_BLOCKS];
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_CE_THREADS;
  double loss = 0, right = 0;
  for (zpd_int r = (zpd_int)blockIdx.x * ZPD_CE_THREADS + threadIdx.x; r < a.rows; r += stride) {
    double label_logit;
    bool largest;
    const double lse = zpd_ce_combine(a, r, &label_logit, &largest);
    ((real *)a.out)[r] = (real)lse;
    if (a.labels && (a.labels[r] < 0 || a.labels[r] >= a.vocabulary)) continue;
    loss += lse - label_logit;
    right += a.labels && largest;
  }
  loss = zpd_block_sum_f64(loss);
  right = zpd_block_sum_f64(right);
  if (threadIdx.x == 0) a.parts[blockIdx.x] = loss;
  if (threadIdx.x == 0) a.parts[ZPD_LOSS_BLOCKS + blockIdx.x] = right;
  if (!zpd_comes_last(a.ticket, gridDim.x)) return;
  for (int i = 0; i < 2 && threadIdx.x < gridDim.x; i++)
    of_block[i][threadIdx.x] = zpd_read_others(a.parts + i * ZPD_LOSS_BLOCKS + threadIdx.x);
  __syncthreads();
  if (threadIdx.x != 0) return;
  loss = right = 0;
  for (unsigned b = 0; b < gridDim.x; b++) loss += of_block[0][b];
  for (unsigned b = 0; b < gridDim.x; b++) right += of_block[1][b];
  *a.loss += a.scale * a.weight * loss;
  a.tally->loss += a.scale * loss;
  a.tally->right += a.scale * right;
}

/* What a row's gradient is made of: probability * grown - even - [label] * hit, all times scale. */
struct zpd_ce_row_slope {
  real lse, grown, even, hit, scale;
};

/* One element; `label` is its column, or -1. The product is with the difference, so a sure prediction has gradient
 * 0. */
ZPD_DEVICE real zpd_ce_slope(real x, int j, int valid, int label, const zpd_ce_row_slope &s) {
  return j < valid ? (zpd_exp(x - s.lse) * s.grown - s.even - (j == label ? s.hit : 0)) * s.scale : 0;
}

/* Columns [j, j + count), at most a pack. */
ZPD_DEVICE void zpd_ce_slopes(const elem *x, elem *dx, int j, int count, int used, int label,
                              const zpd_ce_row_slope &s) {
  const zpd_raw raw = zpd_raw_load(x + j, count, true);
  real slope[ZPD_VEC];
  ZPD_EACH (k, ZPD_VEC) slope[k] = zpd_ce_slope(zpd_raw_at(raw, k), j + k, used, label, s);
  zpd_raw_store(dx + j, zpd_raw_of(slope), count, true);
}

/* dlogits may be logits: a thread writes what only it reads. */
ZPD_KERNEL(zpd_ce_grad, zpd_ce) {
  const int V = (int)a.V;
  const real scale = (real)(a.loss_scale ? a.scale * *a.loss_scale : a.scale);
  for (zpd_int r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const elem *x = (const elem *)a.logits + r * a.V;
    elem *dx = (elem *)a.out + r * a.V;
    const int valid = zpd_ce_valid(a, r);
    const bool counts = a.labels[r] >= 0 && a.labels[r] < a.vocabulary;
    const zpd_int column = a.labels[r] - a.first_col;
    const int label = column >= 0 && column < valid ? (int)column : -1, used = counts ? valid : 0;
    const real lse = ((const real *)a.lse)[r];
    const zpd_ce_row_slope s = {lse, (real)(1 + 2 * a.z * (double)lse), (real)(a.smoothing / (double)a.vocabulary),
                                (real)(1 - a.smoothing), scale};
    const int lead = zpd_ce_lead(x);
    if (lead != zpd_ce_lead(dx)) {
      for (int j = threadIdx.x; j < V; j += ZPD_CE_THREADS) dx[j] = zpd_ce_slope(x[j], j, used, label, s);
      continue;
    }
    const int first = lead < V ? lead : V;
    if ((int)threadIdx.x < first) dx[threadIdx.x] = zpd_ce_slope(x[threadIdx.x], threadIdx.x, used, label, s);
    for (int j = first + (int)threadIdx.x * ZPD_VEC; j < V; j += ZPD_CE_THREADS * ZPD_VEC)
      zpd_ce_slopes(x, dx, j, V - j, used, label, s);
  }
}

#endif
