/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO 1 and 2: a rank updates its pieces of the weights, all of which every data rank keeps. GPUs gather all buckets
 * at once, CPU ranks one after the other. With parameters off the device, too: a rank's own come up, and the others'
 * go down. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) {
  return x->choice->data > 1 && zp_shards_state(x->choice) && !zp_shards_params(x->choice);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_bucket_walk walk = {0};
  int bytes = x->lowered->param_bytes;
  zp_move move = zp_move_begin(x, &zp_weights_back, ZP_MOVE_PARAMETERS, ZP_WHEN_AFTER_UPDATE, ZP_WAIT_BY_STEP);
  zp_move_warms_up(&move, x->choice->compress); /* once the variance is frozen signs travel */
  bool offloaded = zp_eighths_offloaded(x, ZP_STATE_PARAMS) > 0, at_once = !x->cpu && !offloaded;
  if (at_once && x->moment == ZP_MOMENT_STEP) {
    zp_flat all = zp_scope_flat(x);
    for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
      zp_emit_weight_gathers(x, &move, &(zp_bucket){.param = -1, .kind = kind, .elements = all.of[kind]}, emit, user);
  }
  if (at_once || x->moment != ZP_MOMENT_BUCKETS) return;
  for (move.bucket = 0; zp_scope_next_bucket(x, &walk); move.bucket++) {
    const zp_bucket *b = &walk.bucket;
    int holders = zp_holders(x->choice, b->kind);
    int64_t all = offloaded && holders > 1 ? zp_bucket_offloaded(x, b, ZP_STATE_PARAMS) : 0, mine = all / holders;
    zp_emit_up(x, &move, ZP_STATE_PARAMS, mine, bytes, mine, emit, user);
    zp_emit_weight_gathers(x, &move, b, emit, user);
    zp_emit_down(x, &move, ZP_STATE_PARAMS, all - mine, bytes, all - mine, emit, user);
  }
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "a rank updates 1/%d of the weights and gets the rest from the others, %s",
                   zp_shard_ranks(x->choice),
                   x->cpu || zp_eighths_offloaded(x, ZP_STATE_PARAMS) > 0 ? "bucket by bucket" : "all at once");
}

const zp_move_strategy zp_weights_back = {
    .name = "weights back",
    .applies = applies,
    .make = make,
    .explain = explain,
    .provides = 1u << ZP_MOVE_NEED_BACK,
};
