/* Several chunks a stage: where cuts are many, two stated ones are looked at (chunk_cut.c). What the others could reach
 * is bounded here, over all cuts, and counts in the certificate's gap. */
#include <math.h>
#include "bound.h"

static bool has_one_cut(const zp_searcher *s, const zp_point *point) {
  return zp_point_units(s, point) == zp_model_chunks(&point->choice);
}

bool zp_has_stated_cuts(const zp_searcher *s, const zp_point *point) {
  return zp_chunks(&point->choice) > 1 && !point->every_cut && !has_one_cut(s, point);
}

void zp_note_unsearched(zp_searcher *s, const zp_point *point, zp_unsearched what) {
  if (s->keeps_all || !zp_has_stated_cuts(s, point)) return;
  zp_point any = *point;
  any.every_cut = true;
  any.cut_s = 0;
  double least = what == ZP_UNSEARCHED_CHOICE   ? zp_bound_microbatches(s, &any)
                 : what == ZP_UNSEARCHED_FAMILY ? zp_bound_moving(s, &any)
                                                : zp_bound(s, &any);
  if (least >= s->unsearched_s) return;
  double end = what == ZP_UNSEARCHED_POINT ? zp_bound_step_end(s, &any) : 0;
  if (what == ZP_UNSEARCHED_FAMILY)
    any.choice.home[any.open - 1].eighths = ZP_EIGHTHS; /* the most room of its shares */
  if (!zp_find_least_work(s, &any, ZP_ASK_WORK)) return;
  least = fmax(least, zp_bound_any_chunks(s, &any, true, s->unsearched_s - end) + end);
  s->unsearched_s = fmin(s->unsearched_s, least);
}
