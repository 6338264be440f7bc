/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of samples: copies of stretches of them, their mean and its gradient. */
#include "clones.h"
#include <assert.h>
#include <string.h>
#include <zplan/zpk.h>

enum { BLOCK = 256 };

#define TEMPLATE "positions_template.h"
#include "every_dtype.h"

zpk_positions zpk_clip_positions(const zpk_positions *positions) {
  assert(positions->n >= 0 && positions->to_S >= 1);
  zpk_positions p = *positions;
  int64_t before = p.to_at < 0 ? -p.to_at : 0;
  if (before > p.n) before = p.n;
  p.to_at += before, p.from_at += before, p.n -= before;
  if (p.n > p.to_S - p.to_at) p.n = p.to_S - p.to_at;
  if (p.n <= 0) p.n = p.to_at = 0;
  return p;
}

void zpk_move_positions(zpk_dtype dtype, const zpk_positions *p, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && p->from_S >= 1 && p->cols >= 1 && p->samples >= 1);
  assert(p->to_at >= 0 && p->n >= 0 && p->to_at + p->n <= p->to_S);
  assert(begin >= 0 && begin <= end && end <= p->samples * p->n);
  ZPK_BY_DTYPE(dtype, move_positions, p, begin, end);
}

void zpk_mean_positions(zpk_dtype dtype, const void *x, int64_t samples, int64_t S, int64_t cols, double scale, void *y,
                        int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && samples >= 1 && S >= 1);
  assert(begin >= 0 && begin <= end && end <= cols);
  ZPK_BY_DTYPE(dtype, mean_positions, x, samples, S, cols, scale, y, begin, end);
}

void zpk_spread_positions(zpk_dtype dtype, const void *dy, int64_t S, int64_t cols, double scale, void *dx,
                          int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && S >= 1 && cols >= 1 && begin >= 0 && begin <= end);
  ZPK_BY_DTYPE(dtype, spread_positions, dy, S, cols, scale, dx, begin, end);
}
