/* SPDX-License-Identifier: Apache-2.0 */
/* Several chunks a stage: which units of a cut a stage has, and whether every cut of a point is in the space. */
#include <zplan/cut_row.h>
#include <zplan/schedule.h>
#include "procedures.h"

void zp_parts_of_stage(const zp_choice *c, int stage, const int64_t *cut, zp_units *part) {
  for (int turn = 0; turn < zp_chunks(c); turn++) {
    int chunk;
    int64_t k = (int64_t)turn * c->pipeline + stage;
    if (zp_chunk_stage(c, k, &chunk) != stage) k = (int64_t)(turn + 1) * c->pipeline - 1 - stage; /* folded back */
    part[turn] = (zp_units){cut[k], cut[k + 1] - cut[k]};
  }
}

/* Few enough cuts into chunks to simulate each. */
bool zp_few_chunk_cuts(const zp_search_cache *s, const zp_point *point) {
  return zp_few_ways(zp_point_units(s, point), zp_model_chunks(&point->choice), ZP_MOST_CHUNK_CUTS);
}

bool zp_every_chunk_cut(const zp_search_cache *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  int chunks = zp_model_chunks(c);
  if (zp_chunks(c) == 1 || s->in->pinned_cut || chunks > ZP_MOST_FREE_CHUNKS || zp_has_types(s)) return false;
  if (zp_few_chunk_cuts(s, point)) return true;
  for (int i = 0; i < ZP_STATE_COUNT; i++) /* many points: more work for each would be too much */
    if (c->home[i].tier != ZP_TIER_DEVICE) return false;
  int64_t units = zp_point_units(s, point);
  return 3 * zp_microbatches(s->in->spec, c) * chunks <= ZP_MOST_FREE_ACTIONS &&
         units * units * chunks <= ZP_MOST_FREE_RANGES;
}
