/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that live off the device go down when a unit's backward has made them, and are added there to those of the
 * micro-batches before: two reads and a write of host memory, and of those on disks a read of the sum. The norm reads
 * them there, then the update on the host; what the device updates comes up again, in pieces
 * through the ring. Tied weights on disks are read and
 * written once more to be summed over their stages. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return zp_eighths_offloaded(x, ZP_STATE_GRADIENTS) > 0; }

static void make_unit(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_bucket_walk walk = {0};
  int bytes = x->lowered->grad_bytes;
  zp_move move = zp_move_begin(x, &zp_gradients_offloaded, ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, ZP_WAIT_BY_BUFFER);
  for (move.bucket = 0; zp_scope_next_bucket(x, &walk); move.bucket++) {
    if (!zp_kinds[walk.bucket.kind].trained) continue;
    int64_t offloaded = zp_bucket_offloaded(x, &walk.bucket, ZP_STATE_GRADIENTS);
    int param = walk.bucket.param;
    zp_move sum = move;
    sum.times = param < 0 || zp_is_first_user(x, param) ? x->microbatches - 1 : x->microbatches;
    zp_emit_down(x, &move, ZP_STATE_GRADIENTS, offloaded, bytes, offloaded, emit, user);
    if (sum.times == 0) continue;
    if (zp_on_disk(x, ZP_STATE_GRADIENTS)) zp_emit_copy(x, &sum, ZP_QUEUE_READ, offloaded, bytes, emit, user);
    zp_emit_copy(x, &sum, ZP_QUEUE_HOST_MEMORY, offloaded, 3 * bytes, emit, user);
  }
}

/* What a rank sums of a tied weight. */
static int64_t tied_offloaded(const zp_move_scope *x, const zp_tied *tie) {
  zp_bucket_walk walk = {0};
  zp_move_scope unit = *x;
  unit.moment = ZP_MOMENT_ACTION;
  unit.run = 0; /* places of shared parameters are the stage's */
  for (int r = 0; r < x->stage->runs.len; r++, walk = (zp_bucket_walk){0})
    for (unit.segment = x->stage->runs.data[r].segment; zp_scope_next_bucket(&unit, &walk);)
      if (walk.bucket.param == tie->param) {
        int owners =
            zp_shards_state(x->choice) && !zp_shards_gradients(x->choice) ? zp_holders(x->choice, walk.bucket.kind) : 1;
        return zp_bucket_offloaded(&unit, &walk.bucket, ZP_STATE_GRADIENTS) / owners;
      }
  return 0;
}

static void make_ties(const zp_move_scope *x, zp_on_move *emit, void *user) {
  int bytes = x->lowered->grad_bytes;
  zp_move move = zp_move_begin(x, &zp_gradients_offloaded, ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_BACKWARD, ZP_WAIT_BY_NORM);
  for (int i = 0; i < x->program->tied.len; i++) {
    const zp_tied *tie = &x->program->tied.data[i];
    int64_t offloaded = tied_offloaded(x, tie);
    zp_emit_copy(x, &move, ZP_QUEUE_READ, offloaded, bytes, emit, user);
    zp_emit_copy(x, &move, ZP_QUEUE_WRITE, offloaded, bytes, emit, user);
  }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void make_update(const zp_move_scope *x, zp_on_move *emit, void *user) {
  int bytes = x->lowered->grad_bytes;
  bool disk = zp_on_disk(x, ZP_STATE_GRADIENTS);
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_GRADIENTS), state = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER),
          here = gone - state;
  if (disk && x->program) make_ties(x, emit, user);
  zp_move norm = zp_move_begin(x, &zp_gradients_offloaded, ZP_MOVE_GRADIENTS, ZP_WHEN_AT_NORM, ZP_WAIT_AT_ONCE);
  if (disk) zp_emit_copy(x, &norm, ZP_QUEUE_READ, gone, bytes, emit, user);
  zp_emit_copy(x, &norm, ZP_QUEUE_HOST_MEMORY, gone, bytes, emit, user);
  zp_move_when when = zp_gradients_come_down(x->lowered);
  zp_move read = zp_move_begin(x, &zp_gradients_offloaded, ZP_MOVE_GRADIENTS, when, ZP_WAIT_BY_STEP);
  if (disk) zp_emit_copy(x, &read, ZP_QUEUE_READ, least(gone, state), bytes, emit, user);
  zp_move up = zp_move_begin(x, &zp_gradients_offloaded, ZP_MOVE_GRADIENTS, ZP_WHEN_AT_DEVICE_UPDATE, ZP_WAIT_BY_STEP);
  zp_emit_up(x, &up, ZP_STATE_GRADIENTS, here, bytes, here, emit, user);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  if (x->moment == ZP_MOMENT_ACTION && zp_makes_gradients(x->act)) make_unit(x, emit, user);
  if (x->moment == ZP_MOMENT_STEP) make_update(x, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "of the gradients %s: they go down after every backward of a unit and are summed there",
                   zp_home_words(arena, x, ZP_STATE_GRADIENTS));
}

static void regions(const zp_move_scope *x, zp_placing *p) {
  zp_need_landing(x, p);
  zp_need_offloaded(x, p, ZP_STATE_GRADIENTS, ZP_REGION_HOST_GRADS, ZP_REGION_FILE_GRADS, x->lowered->grad_bytes);
}

static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  return zp_refuse_shared_by_heads(c, spec, ZP_STATE_GRADIENTS);
}

static const char *lacks(const zp_choice *c) {
  const zp_home *home = &c->home[ZP_STATE_GRADIENTS];
  if (home->eighths == 0) return NULL;
  if (c->sequence) return ZP_NOT_GENERATED("gradients off the device with sequence-sharded norms");
  return NULL;
}

static zp_move_limits limits(const zp_spec *spec) {
  static const zp_move_limit on_cpus[] = {{ZP_LIMIT_ON_CPUS(ZP_STATE_GRADIENTS, "gradients")}};
  return ZP_LIMITS_IF(spec->cluster.node.device.is_cpu, on_cpus);
}

const zp_move_strategy zp_gradients_offloaded = {
    .name = "gradients offloaded",
    .applies = applies,
    .make = make,
    .explain = explain,
    .ring = {ZP_STATE_GRADIENTS, 2, 2}, /* one that a unit works with, and one on its way */
    .regions = regions,
    .refuses = refuses,
    .limits = limits,
    .lacks = lacks,
    .provides = 1u << ZP_MOVE_NEED_GRADIENTS_OFFLOADED,
};
