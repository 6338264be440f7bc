/* Cross-entropy of logits whose vocabulary may be split over tensor ranks: a rank reduces its columns to three numbers
 * a row, the ranks exchange those, and each combines all of them. stats reads the logits once (rows * V elements), grad
 * reads and writes them once. */
#ifndef ZPD_CROSS_ENTROPY_CUH
#define ZPD_CROSS_ENTROPY_CUH

#include "zpd_device.h"

/* Columns that are words; the rest of the last rank's columns are padding. */
ZPD_DEVICE int zpd_ce_valid(const zpd_ce &a) {
  const zpd_int valid = a.vocabulary - a.first_col;
  return (int)(valid < 0 ? 0 : valid > a.V ? a.V : valid);
}

/* Rows begin at multiples of 16 bytes, in x and in out. */
ZPD_DEVICE bool zpd_ce_packs(const zpd_ce &a, const void *out) {
  return a.V % ZPD_PACK == 0 && zpd_aligned(a.logits) && zpd_aligned(out);
}

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

/* Packs of a row: 5 exponentials for 16 bytes of f32. A row's last columns may be less than a pack. Without alignment
 * the same columns go to the same thread, one by one. */
ZPD_DEVICE zpd_ce_sum zpd_ce_row(const elem *x, int valid, bool packs) {
  zpd_ce_sum s = {zpd_lowest(), 0};
  for (int j = threadIdx.x * ZPD_PACK; j < valid; j += ZPD_CE_THREADS * ZPD_PACK) {
    zpd_pack p;
    const int count = valid - j < ZPD_PACK ? valid - j : ZPD_PACK;
    if (packs && count == ZPD_PACK)
      p = zpd_get(x + j);
    else
      ZPD_EACH (i, ZPD_PACK) p.at[i] = i < count ? (real)x[j + i] : -zpd_infinity();
    zpd_ce_take(s, p.at, ZPD_PACK);
  }
  return s;
}

/* A sum of 0 means that no column had a finite logit: then the maximum is -inf, as zpk_ce_stats says. */
ZPD_KERNEL(zpd_ce_stats, zpd_ce) {
  const int valid = zpd_ce_valid(a);
  const bool packs = zpd_ce_packs(a, a.logits);
  for (zpd_int r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const elem *x = (const elem *)a.logits + r * a.V;
    const zpd_ce_sum mine = zpd_ce_row(x, valid, packs);
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

/* The log-sum-exp of one row over all ranks, in f64; *label_logit: of the rank that has the label. */
ZPD_DEVICE double zpd_ce_combine(const zpd_ce &a, zpd_int r, double *label_logit) {
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
  return max + log(sum);
}

/* One block: a thread takes every 256th row, so the order of the sum is fixed. */
ZPD_KERNEL(zpd_ce_loss, zpd_ce) {
  double loss = 0;
  for (zpd_int r = threadIdx.x; r < a.rows; r += ZPD_CE_THREADS) {
    double label_logit;
    const double lse = zpd_ce_combine(a, r, &label_logit);
    ((real *)a.out)[r] = (real)lse;
    if (a.labels[r] >= 0 && a.labels[r] < a.vocabulary) loss += lse - label_logit;
  }
  loss = zpd_block_sum_f64(loss);
  if (threadIdx.x == 0) *a.loss += a.scale * loss;
}

/* One element; `label` is its column, or -1. The product is with the difference, so a sure prediction has gradient 0.
 */
ZPD_DEVICE real zpd_ce_slope(real x, int j, int valid, int label, real lse, real scale) {
  return j < valid ? (zpd_exp(x - lse) - (real)(j == label)) * scale : 0;
}

/* dlogits may be logits: a thread writes what only it reads. */
ZPD_KERNEL(zpd_ce_grad, zpd_ce) {
  const int valid = zpd_ce_valid(a), V = (int)a.V;
  const bool packs = zpd_ce_packs(a, a.out);
  const real scale = (real)(a.loss_scale ? a.scale * *a.loss_scale : a.scale);
  for (zpd_int r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const elem *x = (const elem *)a.logits + r * a.V;
    elem *dx = (elem *)a.out + r * a.V;
    const bool counts = a.labels[r] >= 0 && a.labels[r] < a.vocabulary;
    const zpd_int column = a.labels[r] - a.first_col;
    const int label = column >= 0 && column < valid ? (int)column : -1, used = counts ? valid : 0;
    const real lse = ((const real *)a.lse)[r];
    if (packs)
      for (int j = threadIdx.x * ZPD_PACK; j < V; j += ZPD_CE_THREADS * ZPD_PACK) {
        zpd_pack p = zpd_get(x + j);
        ZPD_EACH (i, ZPD_PACK) p.at[i] = zpd_ce_slope(p.at[i], j + i, used, label, lse, scale);
        zpd_put(dx + j, p);
      }
    else
      for (int j = threadIdx.x; j < V; j += ZPD_CE_THREADS) dx[j] = zpd_ce_slope(x[j], j, used, label, lse, scale);
  }
}

#endif
