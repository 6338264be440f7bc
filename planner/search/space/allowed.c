/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan block allows. */
#include "space.h"

bool zp_limit_is_pin(const zp_limit *limit) {
  return limit->set && (limit->in.len == 1 || (limit->in.len == 0 && limit->low == limit->high));
}

bool zp_search_considers(const zp_search_input *in, const zp_limit *limit, bool plain) {
  return plain || limit->set || !in->plain_only;
}

bool zp_search_takes(zp_search_progress *progress, const zp_limit *limit, int value, bool plain) {
  if (!zp_search_considers(progress->in, limit, plain)) return false;
  if (zp_limit_allows(limit, value)) return true;
  zp_search_reject(progress, ZP_REJECT_CONSTRAINT);
  return false;
}

/* DualPipeV costs a search 6 % more points, and gains a few chunk passes a step on ZB-V: it is searched where it is
 * named. */
bool zp_search_takes_schedule(zp_search_progress *progress, zp_schedule schedule) {
  const zp_limit *limit = &progress->in->constraints->schedule;
  if (schedule == ZP_SCHEDULE_DUALPIPEV && !limit->set) return false;
  return zp_search_takes(progress, limit, schedule, schedule == ZP_SCHEDULE_1F1B);
}

zp_mode_set zp_allowed_modes(const zp_search_input *in, int tensor, bool sequence, int *excluded) {
  const zp_constraints *c = in->constraints;
  zp_mode_set modes = 0;
  *excluded = 0;
  for (int recompute = ZP_RECOMPUTE_NONE; recompute <= ZP_RECOMPUTE_SELECTIVE; recompute++)
    for (int shard = 0; shard <= 1; shard++) {
      if (shard && (recompute != ZP_RECOMPUTE_FULL || tensor == 1 || sequence)) continue;
      if (!zp_limit_allows(&c->recompute, recompute) || !zp_limit_allows(&c->recompute_shard, shard))
        ++*excluded;
      else
        modes |= zp_set_of_mode(zp_stage_mode_of((zp_recompute)recompute, shard));
    }
  return modes;
}

/* The mode of all stages where a file pins how many of their layers recompute: whole layers, or what it says. */
static zp_stage_mode mode_of_layers(const zp_constraints *c) {
  bool full = zp_limit_allows(&c->recompute, ZP_RECOMPUTE_FULL);
  bool split = c->recompute_shard.set && !zp_limit_allows(&c->recompute_shard, 0);
  return zp_stage_mode_of(full ? ZP_RECOMPUTE_FULL : ZP_RECOMPUTE_SELECTIVE, split);
}

static zp_stage_mode mode_of_rest(const zp_constraints *c) {
  return c->recompute_rest.set && !zp_limit_allows(&c->recompute_rest, ZP_RECOMPUTE_NONE) ? ZP_RECOMPUTE_SELECTIVE
                                                                                          : ZP_RECOMPUTE_NONE;
}

zp_mode_set zp_pinned_modes(const zp_constraints *c) {
  zp_mode_set modes = 0;
  for (int i = 0; i < c->stage_recompute.len; i++) modes |= zp_set_of_mode(c->stage_recompute.data[i]);
  if (c->recompute_layers.len == 0) return modes;
  if (modes == 0) modes = zp_set_of_mode(mode_of_layers(c));
  return modes | zp_set_of_mode(mode_of_rest(c));
}

void zp_pin_modes(zp_arena *arena, const zp_constraints *c, zp_choice *choice) {
  choice->recompute = zp_stage_mode_recompute(mode_of_layers(c));
  choice->recompute_shard = zp_stage_mode_split(mode_of_layers(c));
  if (c->stage_recompute.len) zp_choice_set_modes(choice, c->stage_recompute.data);
  if (c->recompute_layers.len == 0) return;
  zp_stage_mode rest = mode_of_rest(c);
  choice->mix = ZP_NEW_ARRAY(arena, zp_stage_mix, choice->pipeline);
  for (int s = 0; s < choice->pipeline; s++) {
    int64_t layers = c->recompute_layers.data[c->recompute_layers_listed ? s : 0];
    choice->mix[s] = (zp_stage_mix){zp_choice_mode(choice, s) == rest ? ZP_ALL_LAYERS : layers, rest};
  }
}

bool zp_some_state_may_leave(const zp_search_input *in) {
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (in->may_leave[i]) return true;
  return false;
}
