/* Several chunks a stage: where cuts are many, two stated ones are looked at (chunk_cut.c). What the others could reach
 * is bounded here, over all cuts, and counts in the certificate's gap. */
#include <math.h>
#include "bound.h"
#include "space.h"

static bool has_one_cut(const zp_search_cache *s, const zp_point *point) {
  return zp_point_units(s, point) == zp_model_chunks(&point->choice);
}

bool zp_has_stated_cuts(const zp_search_cache *s, const zp_point *point) {
  return zp_chunks(&point->choice) > 1 && !point->every_cut && !has_one_cut(s, point);
}

void zp_note_unsearched(zp_search_run *run, const zp_point *point, zp_unsearched what) {
  if (run->keeps_all || !zp_has_stated_cuts(run->s, point)) return;
  zp_point any = *point;
  any.every_cut = true;
  any.cut_s = 0;
  double least = what == ZP_UNSEARCHED_CHOICE   ? zp_bound_microbatches(run->s, &any)
                 : what == ZP_UNSEARCHED_FAMILY ? zp_bound_moving(run->s, &any)
                                                : zp_bound(run->s, &any);
  if (least >= run->unsearched_s) return;
  double end = what == ZP_UNSEARCHED_POINT ? zp_bound_step_end(run->s, &any) : 0;
  if (what == ZP_UNSEARCHED_FAMILY) any.choice.home[any.leaving].eighths = ZP_EIGHTHS; /* the most room of its shares */
  if (!zp_find_least_work(run->s, &any, ZP_ASK_WORK)) return;
  least = fmax(least, zp_bound_any_chunks(run->s, &any, true, run->unsearched_s - end) + end);
  run->unsearched_s = fmin(run->unsearched_s, least);
}
