/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting units into several model chunks a stage. A stage's memory then depends on chunks that are far apart in the
 * model. Up to 32,768 ways to cut, every one is in the space, and planner/cuts looks for the best. Where there are
 * more, unless they take little work and all state is on the device, and on several node types cuts are stated: the
 * longest chunk as short as possible, and of these cuts the ones with the longest first or the longest last chunks. The
 * cut that a plan block pins is a stated one, too, also of one chunk a stage. */
#include <assert.h>
#include <math.h>
#include <zplan/hash.h>
#include <zplan/schedule.h>
#include "cut.h"
#include "procedures.h"

/* ---- by the times of one mode, whatever their memory ---- */

static zp_cut_sums sums_of(const zp_variant *v, int64_t units, int chunks) {
  return (zp_cut_sums){.places = chunks, .units = units, .before_s = v->prefix_s};
}

/* It depends on the number of chunks alone, and many points have the same. */
static double shortest_longest(zp_search_cache *s, zp_variant *v, int64_t units, int chunks, int64_t *cut) {
  if (!v->longest_chunk_s) v->longest_chunk_s = ZP_NEW_ARRAY(s->kept, double, units + 1);
  double *known = &v->longest_chunk_s[chunks];
  zp_cut_sums sums = sums_of(v, units, chunks);
  if (*known == 0) *known = zp_sums_least(&sums, v->longest_s, cut);
  return *known;
}

bool zp_cut_is_possible(zp_search_cache *s, const zp_point *point, double stage_s) {
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  zp_cut_sums sums = sums_of(&s->variants.data[point->modes[0]], zp_point_units(s, point), point->choice.pipeline);
  bool possible = zp_sums_fill(&sums, stage_s, ZP_FILL_FRONT, ZP_NEW_ARRAY(s->arena, int64_t, sums.places + 1));
  zp_arena_rewind(s->arena, mark);
  return possible;
}

/* ---- any cut that fits ---- */

typedef struct looking {
  zp_search_cache *s;
  const zp_point *point;
  zp_limits limits;
} looking;

/* With what is known of the stage's chunks so far. */
static bool may_begin(void *user, int place, const int64_t *cut) {
  const looking *x = user;
  const zp_choice *c = &x->point->choice;
  zp_units part[ZP_MOST_CHUNKS] = {0};
  int own = zp_chunk_stage(c, place, NULL);
  for (int k = 0; k <= place; k++) {
    int chunk;
    if (zp_chunk_stage(c, k, &chunk) == own) part[chunk] = (zp_units){cut[k], cut[k + 1] - cut[k]};
  }
  return zp_stage_fits(x->s, x->point, own, part, &x->limits);
}

static bool enough(void *user, int64_t *cut) {
  (void)user, (void)cut;
  return false;
}

/* First those with the fewest units in the first chunks, which keep most micro-batches. */
zp_any_cut zp_find_chunk_cut(zp_search_cache *s, const zp_point *point, int64_t *cut) {
  looking x = {s, point, zp_search_limits(s)};
  const zp_cut_walk walk = {
      zp_model_chunks(&point->choice), zp_point_units(s, point), ZP_MOST_FREE_STEPS, &x, may_begin, enough};
  zp_walk_end how = zp_walk_cuts(&walk, cut);
  return how == ZP_WALK_STOPPED ? ZP_ANY_CUT : how == ZP_WALK_DONE ? ZP_NO_CUT : ZP_CUT_UNKNOWN;
}

/* ---- stated cuts ---- */

/* Points of other data degrees, ZeRO stages and rank orders have the same cuts. */
static zp_stated_cut_memo *find_stated_cut(zp_search_cache *s, int variant, int chunks, bool from_back) {
  const int64_t key[3] = {variant, chunks, from_back};
  zp_stated_cut_memo *memo = &s->memo.stated[zp_hash_numbers(key, 3) % ZP_STATED_CUT_SLOTS];
  if (memo->known && memo->variant == variant && memo->chunks == chunks && memo->from_back == from_back) return memo;
  zp_stated_cut_memo fresh = {
      .variant = variant, .chunks = chunks, .from_back = from_back, .room = memo->room, .cut = memo->cut};
  if (fresh.room < chunks + 1) {
    fresh.room = chunks + 1;
    fresh.cut = ZP_NEW_ARRAY(s->kept, int64_t, fresh.room);
  }
  *memo = fresh;
  return memo;
}

bool zp_state_cut(zp_search_cache *s, const zp_point *point, int by, bool from_back, int64_t *cut) {
  zp_variant *v = &s->variants.data[point->modes[by]];
  int chunks = zp_model_chunks(&point->choice);
  if (s->in->pinned_cut) {
    assert(s->in->constraints->cut_layers.len == chunks);
    memcpy(cut, s->in->pinned_cut, sizeof *cut * (size_t)(chunks + 1));
    return true;
  }
  zp_stated_cut_memo *memo = find_stated_cut(s, point->modes[by], chunks, from_back);
  if (!memo->known) {
    zp_cut_sums sums = sums_of(v, zp_point_units(s, point), chunks);
    double longest = shortest_longest(s, v, sums.units, chunks, cut) * (1 + ZP_FILL_SLACK);
    memo->known = true;
    memo->possible = zp_sums_fill(&sums, longest, from_back ? ZP_FILL_BACK : ZP_FILL_FRONT, cut);
    if (memo->possible) memcpy(memo->cut, cut, sizeof *cut * (size_t)(chunks + 1));
  } else if (memo->possible) {
    memcpy(cut, memo->cut, sizeof *cut * (size_t)(chunks + 1));
  }
  return memo->possible;
}

static bool is_among(const int64_t *cut, int64_t *const *cuts, int n, int chunks) {
  for (int i = 0; i < n; i++)
    if (memcmp(cuts[i], cut, sizeof *cut * (size_t)(chunks + 1)) == 0) return true;
  return false;
}

zp_stated_cuts zp_state_cuts(zp_arena *arena, zp_search_cache *s, const zp_point *point) {
  zp_stated_cuts all = {.n = 0};
  int chunks = zp_model_chunks(&point->choice);
  int64_t *cut = NULL;
  for (int i = 0; i < 2 * point->n_modes; i++) {
    if (!cut) cut = ZP_NEW_ARRAY(arena, int64_t, chunks + 1);
    if (!zp_state_cut(s, point, i / 2, i % 2, cut) || is_among(cut, all.cut, all.n, chunks)) continue;
    all.cut[all.n++] = cut;
    cut = NULL;
  }
  return all;
}

bool zp_chunks_fit(zp_search_cache *s, const zp_point *point, const zp_limits *limits, const int64_t *cut) {
  zp_units part[ZP_MOST_CHUNKS];
  for (int stage = 0; stage < point->choice.pipeline; stage++) {
    zp_parts_of_stage(&point->choice, stage, cut, part);
    if (!zp_stage_fits(s, point, stage, part, limits)) return false;
  }
  return true;
}
