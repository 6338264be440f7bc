/* Relative biases of attention (T5, arXiv 1910.10683, section 2.1): the table of buckets spread to a line of distances
 * that scores read, and the sums of the scores' gradients on their way back to the table. Sums are of tiles of queries,
 * which the kernels for queries write, and are added in the order of samples and tiles. Shared by both kinds of
 * attention; texts without ZPD_BIAS have none of it. */
#ifndef ZPD_BIAS_CUH
#define ZPD_BIAS_CUH

#include "zpd_device.h"

#ifdef ZPD_BIAS

/* As zpk_bias_bucket. */
ZPD_DEVICE int zpd_bias_bucket(const zpd_bias &a, zpd_int behind) {
  const zpd_int side = a.causal ? a.buckets : a.buckets / 2, exact = side / 2, distance = behind < 0 ? -behind : behind;
  const zpd_int first = behind > 0 ? side : 0;
  if (distance < exact) return (int)(first + distance);
  const double share = log((double)distance / (double)exact) / log((double)a.max_distance / (double)exact);
  const zpd_int bucket = exact + (zpd_int)(share * (double)(side - exact) + 1e-6);
  return (int)(first + (bucket < side ? bucket : side - 1));
}

/* What no pair has, behind the last distance and where causality hides it, is 0 in bucket 0. */
ZPD_KERNEL(zpd_bias_lines, zpd_bias) {
  const zpd_int n = 2 * a.S;
  for (zpd_int i = (zpd_int)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (zpd_int)gridDim.x * blockDim.x) {
    const bool there = i < (a.causal ? a.S : n - 1);
    const int bucket = there ? zpd_bias_bucket(a, i - (a.S - 1)) : 0;
    if (a.bucket) a.bucket[i] = bucket;
    for (zpd_int h = 0; h < a.H; h++)
      ((real *)a.lines)[h * n + i] = there ? (real)((const elem *)a.bias)[bucket * a.ld + h] : 0;
  }
}

ZPD_KERNEL(zpd_bias_grad, zpd_bias) {
  for (zpd_int i = (zpd_int)blockIdx.x * blockDim.x + threadIdx.x; i < a.buckets * a.H;
       i += (zpd_int)gridDim.x * blockDim.x) {
    const zpd_int bucket = i / a.H, h = i % a.H;
    real sum = 0;
    for (zpd_int b = 0; b < a.B; b++)
      for (zpd_int t = 0; t < a.tiles; t++)
        sum += ((const real *)a.sums)[((b * a.H + h) * a.tiles + t) * a.buckets + bucket];
    elem *to = (elem *)a.d_bias + bucket * a.ld + h;
    *to = (elem)((real)*to + sum);
  }
}

/* The sums of this block's tile of queries. */
ZPD_DEVICE real *zpd_bias_sums_of(const zpd_attention &a, int head) {
  return (real *)a.bias_sums + (((zpd_int)blockIdx.z * a.H + head) * gridDim.x + blockIdx.x) * a.buckets;
}

ZPD_DEVICE void zpd_clear_bias_sums(const zpd_attention &a, int head) {
  real *sums = zpd_bias_sums_of(a, head);
  for (int i = threadIdx.x; i < a.buckets; i += ZPD_ATTENTION_THREADS) sums[i] = 0;
}

/* Adds sums of neighbouring diagonals, `behind` being the distance of the first, to the sums of their buckets. Only the
 * thread of a bucket touches its sum. All threads see `diagonal`. */
ZPD_DEVICE void zpd_add_diagonals(const zpd_attention &a, real *sums, const real *diagonal, int n, int behind,
                                  int thread, int threads) {
  const int most = (int)a.S - 1;
  for (int i = thread; i < a.buckets; i += threads) {
    real sum = sums[i];
    for (int d = 0; d < n; d++) {
      const int at = behind + d;
      if (at >= -most && at <= most && a.bucket[at + most] == i) sum += diagonal[d];
    }
    sums[i] = sum;
  }
}

#endif
#endif
