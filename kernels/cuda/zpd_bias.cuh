/* SPDX-License-Identifier: Apache-2.0 */
/* Relative biases of attention (T5, arXiv 1910.10683, section 2.1): the table of buckets spread to a line of distances
 * that scores read, and the sums of the scores' gradients on their way back to the table. Sums are by distance, of
 * tiles of queries: the kernels for queries write them; they are added in an order that is always the same. Shared by
 * both kinds of attention; texts without ZPD_BIAS have none of it. */
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

/* What no pair has, after the last distance and where causality hides it, is 0 in bucket 0. */
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

/* A warp a bucket of a head: lanes take samples and tiles in turns. */
ZPD_KERNEL(zpd_bias_grad, zpd_bias) {
  const int lane = threadIdx.x % ZPD_WARP, middle = (int)a.S - 1;
  const zpd_int distances = 2 * a.reach + 1, all = a.B * a.tiles;
  for (zpd_int i = (zpd_int)blockIdx.x * (ZPD_FLAT_THREADS / ZPD_WARP) + threadIdx.x / ZPD_WARP; i < a.buckets * a.H;
       i += (zpd_int)gridDim.x * (ZPD_FLAT_THREADS / ZPD_WARP)) {
    const zpd_int bucket = i / a.H, h = i % a.H;
    real sum = 0;
    for (zpd_int t = lane; t < all; t += ZPD_WARP) {
      const real *line = (const real *)a.sums + ((t / a.tiles * a.H + h) * a.tiles + t % a.tiles) * distances + a.reach;
      for (int at = -(int)a.reach; at <= (a.causal ? 0 : (int)a.reach); at++)
        if (a.bucket[middle + at] == bucket) sum += line[at];
    }
    for (int step = ZPD_WARP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) ((real *)a.d_bias)[bucket * a.ld + h] += sum;
  }
}

/* The sums by distance of a tile of queries, from distance 0 on; tile: of `tiles` of the head. */
ZPD_DEVICE real *zpd_bias_sums_of(const zpd_attention &a, int head, int tile, int tiles) {
  const zpd_int line = ((zpd_int)blockIdx.z * a.H + head) * tiles + tile;
  return (real *)a.bias_sums + line * (2 * a.bias_reach + 1) + a.bias_reach;
}

ZPD_DEVICE void zpd_clear_bias_sums(const zpd_attention &a, real *line, int thread, int threads) {
  for (int i = thread - (int)a.bias_reach; i <= a.bias_reach; i += threads) line[i] = 0;
}

/* A warp adds sums of `n` neighbouring diagonals, sum(d) of the one whose distance is `behind` + d. */
template <class SUM> ZPD_DEVICE void zpd_add_diagonals(const zpd_attention &a, real *line, int n, int behind, SUM sum) {
  const int reach = (int)a.bias_reach, lane = threadIdx.x % ZPD_WARP;
  real before = 0, after = 0; /* what is as far away as sums reach */
  for (int d = lane; d < n; d += ZPD_WARP) {
    const int at = behind + d;
    const real x = sum(d);
    if (at <= -reach)
      before += x;
    else if (at >= reach)
      after += x;
    else
      line[at] += x;
  }
  for (int step = ZPD_WARP / 2; step > 0; step /= 2) {
    before += __shfl_xor_sync(0xffffffffu, before, step);
    after += __shfl_xor_sync(0xffffffffu, after, step);
  }
  if (lane == 0) {
    line[-reach] += before;
    line[reach] += after;
  }
}

#endif
#endif
