/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and work of the search: a budget in bytes that its arenas hold and one in units of work, so that the same
 * input ends with the same plan on every machine. Nothing is taken away that a plan may still need; near the end of
 * either the search does without what makes it grow, first without measuring more degrees, then without looking into
 * them, at last without branch and bound over cuts. What it does without stays open down to its proven bound, which is
 * the gap. */
#include "budget.h"

#include <zplan/interrupt.h>

static double part_for(zp_growth what) {
  const double up_to[] = {[ZP_GROW_EARLY] = ZP_FOR_EARLY,
                          [ZP_GROW_PROCEDURES] = ZP_FOR_PROCEDURES,
                          [ZP_GROW_POINTS] = ZP_FOR_POINTS,
                          [ZP_GROW_MORE] = ZP_FOR_MORE,
                          [ZP_GROW_CUTS] = ZP_FOR_CUTS};
  return up_to[what];
}

/* Asked to end, a search has no work left: what it has not settled stays open. */
static bool has_work(const zp_search_cache *s, zp_growth what) {
  return !zp_interrupted() && (double)s->work <= part_for(what) * (double)s->most_work;
}

static bool has_memory(const zp_search_cache *s, zp_growth what, size_t bytes) {
  const zp_arena_budget *b = s->budget;
  return b->limit_bytes == 0 || (double)b->held_bytes + (double)bytes <= part_for(what) * (double)b->limit_bytes;
}

bool zp_has_room(const zp_search_cache *s, zp_growth what, size_t bytes) {
  return has_memory(s, what, bytes) && has_work(s, what);
}

bool zp_may_grow(zp_search_cache *s, zp_growth what, size_t bytes) {
  bool memory = has_memory(s, what, bytes), work = has_work(s, what), interrupted = zp_interrupted();
  s->short_of_memory |= !memory;
  s->short_of_work |= !work && !interrupted;
  s->interrupted |= interrupted;
  return memory && work;
}
