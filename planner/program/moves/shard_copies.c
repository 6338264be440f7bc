/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO in shard groups (MiCS, arXiv 2205.00119; HSDP): state is divided among neighbouring data ranks, and every group
 * has a copy of all of it. A rank's shard of the gradients is the sum of its group's: once a step those who have copies
 * of the shard sum it, and all of them update it alike. With ZeRO 1 that is bucket by bucket, as soon as the group has
 * summed a bucket; with ZeRO 2 and 3 after the last backward, where gradients off the device are summed on the host. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return zp_shards_state(x->choice) && zp_shard_copies(x->choice) > 1; }

static bool sums_once(const zp_move_scope *x) { return zp_shards_gradients(x->choice) || zp_sums_after(x); }

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_bucket_walk walk = {0};
  int bytes = x->lowered->grad_bytes;
  zp_move_when when = sums_once(x) ? ZP_WHEN_AFTER_BACKWARD : ZP_WHEN_OVERLAPPED_BACKWARD;
  zp_move move = zp_move_begin(x, &zp_shard_copies_sums, ZP_MOVE_GRADIENTS, when, ZP_WAIT_BY_NORM);
  for (move.bucket = 0; zp_scope_next_bucket(x, &walk); move.bucket++) {
    const zp_bucket *b = &walk.bucket;
    bool on_disk = zp_shards_gradients(x->choice) && zp_on_disk(x, ZP_STATE_GRADIENTS);
    int64_t offloaded = on_disk ? zp_bucket_offloaded(x, b, ZP_STATE_GRADIENTS) : 0;
    zp_emit_copy(x, &move, ZP_QUEUE_READ, offloaded, bytes, emit, user);
    zp_emit_among_copies(x, &move, b->kind, b->elements, bytes, emit, user);
    zp_emit_copy(x, &move, ZP_QUEUE_WRITE, offloaded, bytes, emit, user);
  }
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "%d shard groups of %d data ranks have a copy each of all state, and sum their gradients %s",
                   zp_shard_copies(x->choice), zp_shard_ranks(x->choice),
                   sums_once(x) ? "once a step" : "alongside the last backward");
}

/* A sum is rounded once, where it leaves a node: by the group, or by the copies. */
static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  if (c->shard == 0) return NULL;
  if (!zp_shards_state(c)) return "shard groups divide the state of ZeRO 1 to 3: ZeRO 0 divides none";
  if (c->shard % zp_expert_ranks(c)) return "shard groups are made of whole expert groups: `expert` divides `shard`";
  if (c->compress) return "compress does not go with shard groups";
  if (!spec->train.rounds_sums) return NULL;
  zp_machine m = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(c));
  zp_group_link group = zp_machine_shard_group(&m, c, false);
  return group.nodes > 1 ? "`reduce_dtype` wants shard groups inside nodes, or their sums are rounded twice" : NULL;
}

const zp_move_strategy zp_shard_copies_sums = {
    .name = "sums over copies",
    .applies = applies,
    .make = make,
    .explain = explain,
    .refuses = refuses,
    .provides = 1u << ZP_MOVE_NEED_COPIES,
};
