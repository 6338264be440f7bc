/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: does a point fit? Limits are those of ranks.c. */
#include <zplan/schedule.h>
#include "bound.h"
#include "cut.h"
#include "fit.h"
#include "procedures.h"

/* Bytes of all stages together, in eighths: states once, and of every micro-batch what the stage with the fewest in
 * flight keeps. */
static int64_t floor_eighths(const zp_search_cache *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  const zp_lowered *l = v->lowered;
  int64_t m = zp_microbatches(s->in->spec, c), flight = 1; /* a pool of slots may hold less than the chunks' own */
  if (zp_chunks(c) == 1) {
    int64_t first = zp_in_flight_chunk(c, 0, 0, m), last = zp_in_flight_chunk(c, c->pipeline - 1, 0, m);
    flight = first < last ? first : last;
  }
  int64_t frozen = v->elements.of[ZP_KIND_FROZEN] / zp_owners(c, ZP_KIND_FROZEN);
  int64_t saved_bytes = v->saved_bytes - (point->stands_for_chunks ? v->saved_for_loss : 0);
  int64_t eighths = saved_bytes * flight * zp_eighths_here(c, ZP_STATE_ACTIVATIONS);
  eighths += frozen * l->param_bytes * ZP_EIGHTHS;
  for (zp_state state = 0; state < ZP_STATE_ACTIVATIONS; state++)
    eighths += zp_flat_held(c, &v->elements, zp_shards(c, state)) * zp_kept_element_bytes(l, state) *
               zp_eighths_here(c, state);
  return eighths;
}

/* The mean over the stages. */
int64_t zp_memory_floor(const zp_search_cache *s, const zp_point *point) {
  return floor_eighths(s, point) / ZP_EIGHTHS / point->choice.pipeline;
}

int zp_least_eighths(zp_search_cache *s, const zp_point *point, zp_state state) {
  zp_point share = *point;
  int64_t bytes =
      s->most_bytes - zp_choice_communicator_bytes(s, &share.choice, zp_variant_of(s, point)->lowered->ties);
  int64_t limit = (bytes + 1) * ZP_EIGHTHS * point->choice.pipeline - 1; /* a stage's floor is rounded down */
  share.choice.home[state].eighths = 1;
  int64_t most = floor_eighths(s, &share);
  if (most <= limit) return 1;
  share.choice.home[state].eighths = ZP_EIGHTHS;
  int64_t least = floor_eighths(s, &share), of_one = (most - least) / (ZP_EIGHTHS - 1);
  for (int eighths = 2; eighths < ZP_EIGHTHS; eighths++)
    if (least + (ZP_EIGHTHS - eighths) * of_one <= limit) return eighths;
  return least <= limit ? ZP_EIGHTHS : ZP_EIGHTHS + 1;
}

/* Parts of a class are whole numbers of aligned elements. Where a rank holds all owners' of a class, as much of every
 * one's leaves, what is spread over expert groups first: it has the fewest owners, so no less than they have of all. */
static void add_offloaded(zp_limits *floor, const zp_choice *c, zp_state state, const zp_flat *all,
                          int64_t element_bytes) {
  const zp_home *home = &c->home[state];
  zp_param_kind fewest = all->of[ZP_KIND_SPREAD] > 0 ? ZP_KIND_SPREAD : ZP_KIND_WHOLE;
  int owners = zp_shards(c, state) ? 1 : zp_owners(c, fewest);
  int64_t elements = owners * zp_flat_held(c, all, zp_shards_state(c));
  int64_t rounded = home->eighths < ZP_EIGHTHS ? 2 * zp_shard_align(c) * owners : 0;
  int64_t here = elements / c->pipeline * home->eighths / ZP_EIGHTHS - rounded;
  if (home->tier == ZP_TIER_DEVICE || here <= 0) return;
  *(home->tier == ZP_TIER_HOST ? &floor->host : &floor->nvme) += here * element_bytes;
}

/* The mean over the stages, without buffers and saved activations. */
zp_limits zp_offloaded_floor(const zp_search_cache *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  zp_limits floor = {0};
  if (zp_has_types(s)) return floor;
  for (zp_state state = 0; state < ZP_STATE_ACTIVATIONS; state++)
    add_offloaded(&floor, c, state, &v->elements, zp_state_element_bytes(v->lowered, state));
  return floor;
}

/* Some cut of the point's space fits. */
static bool some_cut_fits(zp_search_cache *s, const zp_point *point, zp_limits limits) {
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  bool fits = false;
  if (zp_chunks(&point->choice) > 1) {
    zp_stated_cuts stated = zp_state_cuts(s->arena, s, point);
    for (int i = 0; i < stated.n && !fits; i++) fits = zp_chunks_fit(s, point, &limits, stated.cut[i]);
  } else {
    fits = zp_cut_fits(s, point, &limits, ZP_NEW_ARRAY(s->arena, int64_t, point->choice.pipeline + 1));
  }
  zp_arena_rewind(s->arena, mark);
  return fits;
}

bool zp_fits_device(zp_search_cache *s, const zp_point *point) {
  zp_point trial = *point;
  zp_limits limits = {s->limit_bytes, INT64_MAX, INT64_MAX};
  zp_remember_fits(s, &trial, &limits);
  return some_cut_fits(s, &trial, limits);
}

bool zp_point_fits(zp_search_cache *s, zp_point *point, zp_rejection *why) {
  zp_limits limits = zp_search_limits(s);
  zp_remember_fits(s, point, &limits);
  if (some_cut_fits(s, point, limits)) return true;
  *why = !zp_all_on_device(&point->choice) && zp_fits_device(s, point) ? ZP_REJECT_HOST : ZP_REJECT_MEMORY;
  return false;
}
