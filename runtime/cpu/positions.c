/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, means and gradients of positions, and parts of results merged, over the threads of a rank. */
#include <assert.h>
#include "state.h"

enum { ROW_GRAIN = 16, COLUMN_GRAIN = 16 };

typedef struct positions_task {
  zpk_dtype dtype;
  const void *from;
  void *to;
  int64_t samples, S, cols;
  double scale;
  zpk_positions moved;
} positions_task;

ZPR_TASK(move, positions_task, zpk_move_positions(a->dtype, &a->moved, begin, end))

void zpr_move_positions(zpr *c, const zpk_positions *positions) {
  positions_task a = {.dtype = c->program->dtype, .moved = zpk_clip_positions(positions)};
  zpr_parallel(c, a.moved.samples * a.moved.n, ROW_GRAIN, move, &a);
}

ZPR_TASK(mean, positions_task,
         zpk_mean_positions(a->dtype, a->from, a->samples, a->S, a->cols, a->scale, a->to, begin, end))

void zpr_mean_positions(zpr *c, const void *x, int64_t samples, int64_t S, int64_t cols, double scale, void *y) {
  assert(samples >= 1 && S >= 1 && cols >= 1);
  positions_task a = {
      .dtype = c->program->dtype, .from = x, .to = y, .samples = samples, .S = S, .cols = cols, .scale = scale};
  zpr_parallel(c, cols, COLUMN_GRAIN, mean, &a);
}

ZPR_TASK(spread, positions_task, zpk_spread_positions(a->dtype, a->from, a->S, a->cols, a->scale, a->to, begin, end))

void zpr_spread_positions(zpr *c, const void *dy, int64_t samples, int64_t S, int64_t cols, double scale, void *dx) {
  assert(samples >= 1 && S >= 1 && cols >= 1);
  positions_task a = {
      .dtype = c->program->dtype, .from = dy, .to = dx, .samples = samples, .S = S, .cols = cols, .scale = scale};
  zpr_parallel(c, samples * S, ROW_GRAIN, spread, &a);
}

typedef struct merge_task {
  zpk_dtype dtype;
  const zpk_merge *merge;
} merge_task;

ZPR_TASK(merge, merge_task, zpk_merge_parts(a->dtype, a->merge, begin, end))

void zpr_merge_parts(zpr *c, const zpk_merge *m) {
  merge_task a = {.dtype = c->program->dtype, .merge = m};
  zpr_parallel(c, m->rows, ROW_GRAIN, merge, &a);
}
