/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit LAMB once its variance is frozen (formulas: kernels/optimizer/one_bit.c), over tables of segments as those of
 * a step's end: how the variance would have gone on, and the parameters. */
#ifndef ZPD_COMPRESS_LAMB_CUH
#define ZPD_COMPRESS_LAMB_CUH

#include "zpd_one_bit.cuh"
#include "zpd_step.cuh"

/* What all ranks have sent of an element, on average. */
ZPD_DEVICE real zpd_mean_sent(const zpd_fresh &a, zpd_int own) {
  const zpd_int b = own / ZPD_SIGNS, i = own % ZPD_SIGNS;
  real sum = 0;
  for (int r = 0; r < (int)a.n; r++) {
    const zpd_record from = zpd_record_of(a.records, a.blocks, r);
    const real scale = (real)from.scale[b];
    sum += from.bits[2 * b + i / ZPD_WARP] >> i % ZPD_WARP & 1 ? scale : -scale;
  }
  return sum / (real)a.n;
}

ZPD_KERNEL(zpd_lamb_fresh, zpd_fresh) {
  const zpd_updates &u = a.updates;
  const int which = zpd_segment_of(u.segments, u.n, blockIdx.x);
  const zpd_segment s = u.segments[which];
  const zpd_int blocks = (which + 1 < u.n ? u.segments[which + 1].first : u.blocks) - s.first;
  const zpd_int state = s.begin + s.to_state;
  const real *before = a.before ? (const real *)a.before + state : 0, *v = (const real *)u.moment[ZPK_MOMENT2] + state;
  real *m = (real *)u.moment[ZPK_MOMENT1] + state, *fresh = (real *)a.fresh + state;
  const real beta1 = (real)u.beta1, beta2 = (real)u.beta2, rest2 = (real)(1 - u.beta2), eps = (real)u.eps;
  const real per_rest1 = (real)(1 / (1 - u.beta1)), per_root = (real)(1 / sqrt(u.step->bias2));
  const real per_fresh_root = (real)(1 / sqrt(a.fresh_bias2));
  real most = 0;
  for (zpd_int i = ((zpd_int)blockIdx.x - s.first) * ZPD_FLAT_THREADS + threadIdx.x; i < s.count;
       i += blocks * ZPD_FLAT_THREADS) {
    const real mean = a.records && v[i] > 0 ? zpd_mean_sent(a, state + i) : 0;
    if (a.records) m[i] = v[i] > 0 ? m[i] * beta1 + mean : 0;
    const real gradient = (a.records ? mean : m[i] - beta1 * before[i]) * per_rest1;
    const real next = fresh[i] = fresh[i] * beta2 + gradient * gradient * rest2;
    if (!(v[i] > 0)) continue;
    most = zpd_max(most, (zpd_sqrt(v[i]) * per_root + eps) / (zpd_sqrt(next) * per_fresh_root + eps));
  }
  most = zpd_block_max(most);
  if (threadIdx.x == 0) u.sums[blockIdx.x] = (double)most;
}

ZPD_KERNEL(zpd_lamb_frozen, zpd_updates) {
  const double rest1 = 1 - a.beta1, rest2 = 1 - a.beta2;
  const real most = (real)(rest1 * rest1 > rest2 ? rest1 / sqrt(rest2) : 1);
  zpd_rule r = zpd_rule_of(a);
  for (zpd_int block = blockIdx.x; block < a.blocks; block += gridDim.x) {
    const int which = zpd_segment_of(a.segments, a.n, block);
    const zpd_segment s = a.segments[which];
    const zpd_int first = (block - s.first) * ZPD_UPDATE_ELEMENTS, left = s.count - first;
    const zpd_int count = left < ZPD_UPDATE_ELEMENTS ? left : (zpd_int)ZPD_UPDATE_ELEMENTS;
    const zpd_arrays x = zpd_arrays_at(a, s, s.begin + first);
    zpd_rule_for(r, a, s, a.ratios[which]);
    for (zpd_int i = threadIdx.x; i < count; i += ZPD_FLAT_THREADS) {
      real step = x.moment[ZPK_MOMENT1][i] * (real)r.per_bias1 /
                  (zpd_sqrt(x.moment[ZPK_MOMENT2][i]) * r.per_root_bias2 + r.eps);
      step = step > most ? most : step < -most ? -most : step;
      const real param = x.param[i] - r.lr * (step + r.into_grad * x.param[i]);
      x.param[i] = param;
      if (x.weight) x.weight[i] = param;
    }
  }
}

#endif
