/* SPDX-License-Identifier: Apache-2.0 */
/* One axis made one number, and the gradient. Lines that stand side by side have a thread each, neighbours in memory; a
 * line whose numbers follow one another has a block. Gradients make the largest and the sum once more: what is stored
 * of a log-sum-exp in 16 bits is too short for the exponentials. */
#ifndef ZPD_REDUCE_CUH
#define ZPD_REDUCE_CUH

#include "zpd_device.h"

struct zpd_line {
  real max, sum;
};

/* Every `step`th number of a line from `first` on; `max` of the whole line when the sum is asked for. */
ZPD_DEVICE real zpd_line_max(const elem *x, zpd_int n, zpd_int ld, zpd_int first, zpd_int step) {
  real max = -zpd_infinity();
  for (zpd_int i = first; i < n; i += step) max = zpd_max((real)x[i * ld], max);
  return max;
}

ZPD_DEVICE real zpd_line_sum(const zpd_reduce_args &a, const elem *x, zpd_int first, zpd_int step, real max) {
  real sum = 0;
  for (zpd_int i = first; i < a.n; i += step)
    sum += a.kind == ZPD_SUM ? (real)x[i * a.inner] : zpd_exp((real)x[i * a.inner] - max);
  return sum;
}

/* What of them the kind wants. Alone: by one thread; else by the block, to all of its threads. */
ZPD_DEVICE zpd_line zpd_line_of(const zpd_reduce_args &a, const elem *x, bool alone) {
  const zpd_int first = alone ? 0 : (zpd_int)threadIdx.x, step = alone ? 1 : (zpd_int)ZPD_FLAT_THREADS;
  zpd_line l = {0, 0};
  if (a.kind != ZPD_SUM) l.max = zpd_line_max(x, a.n, a.inner, first, step);
  if (a.kind != ZPD_SUM && !alone) l.max = zpd_block_max(l.max);
  if (a.kind != ZPD_MAX) l.sum = zpd_line_sum(a, x, first, step, l.max);
  if (a.kind != ZPD_MAX && !alone) l.sum = zpd_block_sum(l.sum);
  return l;
}

/* The place of the first number of line r, of outer * inner. */
ZPD_DEVICE zpd_int zpd_line_at(const zpd_reduce_args &a, zpd_int r) {
  return r / a.inner * a.n * a.inner + r % a.inner;
}

ZPD_DEVICE void zpd_reduce_line(const zpd_reduce_args &a, zpd_int r, bool alone) {
  const zpd_line l = zpd_line_of(a, (const elem *)a.x + zpd_line_at(a, r), alone);
  if (!alone && threadIdx.x > 0) return;
  ((elem *)a.to)[r] = (elem)(a.kind == ZPD_SUM   ? l.sum * (real)a.scale
                             : a.kind == ZPD_MAX ? l.max
                                                 : l.max + zpd_log(l.sum));
}

/* Where the largest first stands. */
ZPD_DEVICE zpd_int zpd_line_hit(const zpd_reduce_args &a, const elem *x, real max, bool alone) {
  const zpd_int step = alone ? 1 : (zpd_int)ZPD_FLAT_THREADS;
  zpd_int hit = alone ? 0 : (zpd_int)threadIdx.x;
  while (hit < a.n && (real)x[hit * a.inner] != max) hit += step;
  if (hit > a.n) hit = a.n;
  return alone ? hit : (zpd_int)-zpd_block_max(-(real)hit);
}

ZPD_DEVICE void zpd_reduce_line_grad(const zpd_reduce_args &a, zpd_int r, bool alone) {
  const elem *x = (const elem *)a.x + zpd_line_at(a, r);
  elem *dx = (elem *)a.to + zpd_line_at(a, r);
  const real dy = (real)((const elem *)a.dy)[r] * (real)a.scale;
  zpd_line l = {0, 1};
  if (a.kind != ZPD_SUM) l = zpd_line_of(a, x, alone);
  const zpd_int hit = a.kind == ZPD_MAX ? zpd_line_hit(a, x, l.max, alone) : -1;
  const zpd_int step = alone ? 1 : (zpd_int)ZPD_FLAT_THREADS;
  for (zpd_int i = alone ? 0 : (zpd_int)threadIdx.x; i < a.n; i += step) {
    real d = dy;
    if (a.kind == ZPD_MAX) d = i == hit ? dy : 0;
    if (a.kind == ZPD_LOG_SUM_EXP) d = dy / l.sum * zpd_exp((real)x[i * a.inner] - l.max);
    dx[i * a.inner] = (elem)d;
  }
}

/* Lines one after the other: of a block each, or of a thread each. */
template <bool GRAD> ZPD_DEVICE void zpd_reduce_lines(const zpd_reduce_args &a) {
  const bool alone = a.inner > 1;
  const zpd_int first = alone ? blockIdx.x * (zpd_int)ZPD_FLAT_THREADS + threadIdx.x : (zpd_int)blockIdx.x;
  const zpd_int step = alone ? gridDim.x * (zpd_int)ZPD_FLAT_THREADS : (zpd_int)gridDim.x;
  for (zpd_int r = first; r < a.outer * a.inner; r += step)
    if (GRAD)
      zpd_reduce_line_grad(a, r, alone);
    else
      zpd_reduce_line(a, r, alone);
}

ZPD_KERNEL(zpd_reduce, zpd_reduce_args) { zpd_reduce_lines<false>(a); }

ZPD_KERNEL(zpd_reduce_grad, zpd_reduce_args) { zpd_reduce_lines<true>(a); }

#endif
