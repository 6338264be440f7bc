/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO 3: data ranks own pieces of every bucket of parameters; a unit gets its buckets whole before it computes either
 * way (arXiv 1910.02054, section 5.3). */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return zp_shards_params(x->choice); }

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_bucket_walk walk = {0};
  if (!zp_needs_params(x->act) || zp_reads_hpz(x->choice, x->act)) return;
  zp_move_wait wait = zp_buckets_overlap(x) ? ZP_WAIT_BY_UNIT : ZP_WAIT_AT_ONCE;
  zp_move move = zp_move_begin(x, &zp_zero_gather, ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, wait);
  for (move.bucket = 0; zp_scope_next_bucket(x, &walk); move.bucket++)
    zp_emit_weight_gathers(x, &move, &walk.bucket, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "a rank keeps 1/%d of the parameters; a unit gathers its own %s a micro-batch, %s",
                   zp_shard_ranks(x->choice), x->choice->hpz > 0 ? "once" : "twice",
                   zp_buckets_overlap(x) ? "while the unit before it computes" : "and waits for them");
}

const zp_move_strategy zp_zero_gather = {
    .name = "ZeRO gather",
    .applies = applies,
    .make = make,
    .explain = explain,
    .ring = {ZP_STATE_PARAMS, 2, 1}, /* one that a unit works with, and one on its way */
    .provides = 1u << ZP_MOVE_NEED_GATHER,
};
