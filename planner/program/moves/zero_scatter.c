/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO 2 and 3: of a unit's gradients every data rank keeps the sum of its pieces, after every micro-batch. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return zp_shards_gradients(x->choice); }

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_bucket_walk walk = {0};
  if (!zp_makes_gradients(x->act)) return;
  zp_move_wait wait = zp_buckets_overlap(x) ? ZP_WAIT_BY_BUFFER : ZP_WAIT_AT_ONCE;
  zp_move move = zp_move_begin(x, &zp_zero_scatter, ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, wait);
  for (move.bucket = 0; zp_scope_next_bucket(x, &walk); move.bucket++)
    if (zp_kinds[walk.bucket.kind].trained)
      zp_emit_among_holders(x, &move, ZP_WAY_REDUCE_SCATTER, walk.bucket.kind, walk.bucket.elements,
                            x->lowered->grad_bytes, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "a rank keeps 1/%d of the gradients; a unit's are summed and cut up after every backward, %s",
                   zp_shard_ranks(x->choice),
                   zp_buckets_overlap(x) ? "alongside the units that follow" : "which waits for it");
}

const zp_move_strategy zp_zero_scatter = {
    .name = "ZeRO scatter",
    .applies = applies,
    .make = make,
    .explain = explain,
    .ring = {ZP_STATE_GRADIENTS, 2, 1}, /* one that a unit works with, and one on its way */
    .provides = 1u << ZP_MOVE_NEED_SCATTER,
};
