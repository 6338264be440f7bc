/* SPDX-License-Identifier: Apache-2.0 */
/* Several chunks a stage: where cuts are many, two stated ones are considered (chunk_cut.c). What the others could
 * reach is bounded here, over all cuts, and counts in the certificate's gap. */
#include <math.h>
#include "bound.h"
#include "cut_problem.h"
#include "space.h"

static bool has_one_cut(const zp_search_cache *s, const zp_point *point) {
  return zp_point_units(s, point) == zp_model_chunks(&point->choice);
}

bool zp_has_stated_cuts(const zp_search_cache *s, const zp_point *point) {
  return zp_chunks(&point->choice) > 1 && !s->in->pinned_cut && !point->every_cut && !has_one_cut(s, point);
}

/* The point with every cut, whatever its memory: what its micro-batches take at least. */
static double least_of_any(zp_search_cache *s, const zp_point *point, zp_unsearched what, zp_point *any) {
  *any = *point;
  any->every_cut = true;
  any->cut_s = 0;
  return what == ZP_UNSEARCHED_CHOICE   ? zp_bound_microbatches(s, any)
         : what == ZP_UNSEARCHED_FAMILY ? zp_bound_moving(s, any)
                                        : zp_bound(s, any);
}

bool zp_may_note_unsearched(const zp_search_progress *progress, const zp_point *point, zp_unsearched what) {
  zp_point any;
  return !progress->keeps_all && zp_has_stated_cuts(progress->s, point) &&
         least_of_any(progress->s, point, what, &any) < progress->unsearched_s;
}

/* Chains of actions bound every cut, and hold wherever state is. */
static double bound_by_chains(zp_search_progress *progress, zp_point *any, double least_s, double end_s) {
  if (zp_model_chunks(&any->choice) > ZP_MOST_FREE_CHUNKS) return least_s;
  zp_arena *arena = zp_arena_new_alongside("unsearched", progress->s->arena);
  any->bound_s = least_s;
  double bound = zp_bound_before_cuts(arena, progress->s, any, end_s, progress->unsearched_s);
  zp_arena_free(arena);
  return bound;
}

void zp_note_unsearched(zp_search_progress *progress, const zp_point *point, zp_unsearched what) {
  if (progress->keeps_all || !zp_has_stated_cuts(progress->s, point)) return;
  zp_point any;
  double least = least_of_any(progress->s, point, what, &any);
  if (least >= progress->unsearched_s) return;
  double end = what == ZP_UNSEARCHED_POINT ? zp_bound_step_end(progress->s, &any) : 0;
  if (what == ZP_UNSEARCHED_FAMILY) {
    end = zp_least_family_end(progress->s, &any);
    least += end;
    any.choice.home[any.leaving].eighths = ZP_EIGHTHS; /* the most room of its shares */
  }
  if (!zp_find_least_work(progress->s, &any, ZP_ASK_WORK)) return;
  double enough = (progress->unsearched_s - end) * (1 + 2 * ZP_BOUND_SLACK); /* the bound is lower by its own slack */
  least = fmax(least, zp_bound_any_chunks(progress->s, &any, true, enough) + end);
  least = fmax(least, zp_bound_delayed(progress->s, &any));
  if (least < progress->unsearched_s) least = bound_by_chains(progress, &any, least, end);
  progress->unsearched_s = fmin(progress->unsearched_s, least);
}
