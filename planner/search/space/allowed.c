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

bool zp_some_state_may_leave(const zp_search_input *in) {
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (in->may_leave[i]) return true;
  return false;
}
