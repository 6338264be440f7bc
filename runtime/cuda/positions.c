/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, means and gradients of positions on the GPU, and parts of results merged. */
#include "cuda.h"
#include <assert.h>

void zpr_move_positions(zpr *c, const zpk_positions *positions) {
  zpk_positions p = zpk_clip_positions(positions);
  if (p.n > 0) ZPR_START(c, move_positions, &p, zpr_grid(c, p.samples * p.n));
}

void zpr_mean_positions(zpr *c, const void *x, int64_t samples, int64_t S, int64_t cols, double scale, void *y) {
  assert(samples >= 1 && S >= 1 && cols >= 1);
  zpd_positions a = {.from = x, .to = y, .samples = samples, .S = S, .cols = cols, .scale = scale};
  int64_t stretches = (cols + ZPD_FLAT_THREADS - 1) / ZPD_FLAT_THREADS; /* at most; packs make it fewer */
  ZPR_START(c, mean_positions, &a, zpr_grid(c, samples * stretches));
}

void zpr_spread_positions(zpr *c, const void *dy, int64_t samples, int64_t S, int64_t cols, double scale, void *dx) {
  assert(samples >= 1 && S >= 1 && cols >= 1);
  zpd_positions a = {.from = dy, .to = dx, .samples = samples, .S = S, .cols = cols, .scale = scale};
  ZPR_START(c, spread_positions, &a, zpr_grid(c, samples * S));
}

void zpr_merge_parts(zpr *c, const zpk_merge *m) {
  assert(m->rows >= 1 && m->heads >= 1 && m->hd >= 1);
  ZPR_START(c, merge_parts, m, zpr_grid(c, m->rows));
}
