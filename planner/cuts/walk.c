/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts one by one, where they are few. */
#include <assert.h>
#include <zplan/cut_row.h>

/* (units - 1) over (places - 1), which grows with every factor. */
bool zp_few_ways(int64_t units, int64_t places, double most) {
  double ways = 1;
  int64_t fewer = places - 1 < units - places ? places - 1 : units - places;
  for (int64_t i = 1; i <= fewer && ways <= most; i++) ways *= (double)(units - i) / (double)i;
  return ways <= most;
}

static zp_walk_end walk_from(const zp_cut_walk *w, int place, int64_t *steps, int64_t *cut) {
  if (place == w->places) return w->on_cut(w->user, cut) ? ZP_WALK_DONE : ZP_WALK_STOPPED;
  int64_t most = w->units - (w->places - 1 - place);
  for (int64_t end = place == w->places - 1 ? most : cut[place] + 1; end <= most; end++) {
    if ((*steps)-- <= 0) return ZP_WALK_SPENT;
    cut[place + 1] = end;
    if (!w->may_begin(w->user, place, cut)) break;
    zp_walk_end how = walk_from(w, place + 1, steps, cut);
    if (how != ZP_WALK_DONE) return how;
  }
  return ZP_WALK_DONE;
}

zp_walk_end zp_walk_cuts(const zp_cut_walk *walk, int64_t *cut) {
  assert(walk->places > 0 && walk->may_begin && walk->on_cut);
  int64_t steps = walk->steps;
  if (walk->units < walk->places) return ZP_WALK_DONE;
  cut[0] = 0;
  return walk_from(walk, 0, &steps, cut);
}
