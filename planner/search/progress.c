/* SPDX-License-Identifier: Apache-2.0 */
/* What a search rejects, leaves out and keeps, each counted once. */
#include "progress.h"
#include <math.h>
#include "budget.h"

void zp_search_reject(zp_search_progress *progress, zp_rejection why) {
  progress->s->work++;
  progress->certificate.candidates++;
  progress->certificate.rejected[why]++;
}

bool zp_is_beaten(zp_search_progress *progress, double bound_s) {
  if (bound_s < progress->cutoff_s) return false;
  progress->left_out_s = fmin(progress->left_out_s, bound_s);
  zp_search_reject(progress, ZP_REJECT_BOUND);
  return true;
}

void zp_leave_out(zp_search_progress *progress, double bound_s) {
  progress->left_out_s = fmin(progress->left_out_s, bound_s);
  zp_search_reject(progress, ZP_REJECT_BUDGET);
}

/* ---- points that wait ---- */

static void reuse_place(zp_search_progress *progress, const zp_point *point) {
  int at = progress->done.data[--progress->done.len];
  progress->points.data[at] = *point;
  zp_push(progress->s->arena, &progress->fresh, at);
}

bool zp_keep_point(zp_search_progress *progress, const zp_point *point) {
  if (progress->done.len > 0) {
    reuse_place(progress, point);
    return true;
  }
  bool grows = progress->points.len == progress->points.cap;
  if (grows && !zp_may_grow(progress->s, ZP_GROW_MORE, 2 * sizeof *point * (size_t)progress->points.cap)) {
    zp_leave_out(progress, point->bound_s);
    return false;
  }
  zp_push(progress->s->arena, &progress->fresh, progress->points.len);
  zp_push(progress->s->arena, &progress->points, *point);
  return true;
}

void zp_forget_points(zp_search_progress *progress) {
  progress->points.len = progress->fresh.len = progress->done.len = 0;
}
