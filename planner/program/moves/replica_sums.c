/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO 0 and 1: gradients are summed over the data ranks once a step. GPUs do it bucket by bucket alongside the
 * backward of the last micro-batch, from the unit on that was the last to add to them; CPU ranks after it, with ZeRO 0
 * all at once. Gradients that are off the device come up bucket by bucket, and the sums go down again: with ZeRO 1
 * those that the rank updates. 1-bit Adam's ranks sum them so with ZeRO 1 until the variance freezes, after all other
 * sums. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) {
  bool signs = x->choice->compress && !zp_shards_state(x->choice); /* their strategy's */
  return x->choice->data > 1 && !zp_shards_gradients(x->choice) && !signs;
}

bool zp_sums_after(const zp_move_scope *x) {
  return x->cpu || x->choice->compress || zp_eighths_offloaded(x, ZP_STATE_GRADIENTS) > 0;
}

static zp_move_way way_of(const zp_move_scope *x) {
  return !zp_shards_state(x->choice) ? ZP_WAY_ALL_REDUCE : ZP_WAY_REDUCE_SCATTER;
}

static void make_bucket(const zp_move_scope *x, zp_move move, const zp_bucket *b, zp_on_move *emit, void *user) {
  int bytes = x->lowered->grad_bytes;
  bool leaves = zp_eighths_offloaded(x, ZP_STATE_GRADIENTS) > 0 && zp_holders(x->choice, b->kind) > 1;
  int64_t offloaded = leaves ? zp_bucket_offloaded(x, b, ZP_STATE_GRADIENTS) : 0;
  zp_emit_up(x, &move, ZP_STATE_GRADIENTS, offloaded, bytes, offloaded, emit, user);
  zp_emit_among_holders(x, &move, way_of(x), b->kind, b->elements, bytes, emit, user);
  offloaded /= zp_owners(x->choice, b->kind);
  zp_emit_down(x, &move, ZP_STATE_GRADIENTS, offloaded, bytes, offloaded, emit, user);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_bucket_walk walk = {0};
  int bytes = x->lowered->grad_bytes;
  zp_move_when when = zp_sums_after(x) ? ZP_WHEN_AFTER_BACKWARD : ZP_WHEN_OVERLAPPED_BACKWARD;
  zp_move move = zp_move_begin(x, &zp_replica_sums, ZP_MOVE_GRADIENTS, when, ZP_WAIT_BY_NORM);
  zp_move_warms_up(&move, x->choice->compress);
  bool at_once = x->cpu && !zp_shards_state(x->choice);
  if (at_once && x->moment == ZP_MOMENT_STEP) {
    zp_flat all = zp_scope_flat(x);
    for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
      zp_emit_among_holders(x, &move, way_of(x), kind, all.of[kind], bytes, emit, user);
  }
  if (at_once || x->moment != ZP_MOMENT_BUCKETS) return;
  for (move.bucket = 0; zp_scope_next_bucket(x, &walk); move.bucket++) make_bucket(x, move, &walk.bucket, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "gradients are summed over %d data ranks once a step, %s", zp_shard_ranks(x->choice),
                   x->cpu && !zp_shards_state(x->choice) ? "all at once"
                   : zp_sums_after(x)                    ? "bucket by bucket"
                                                         : "bucket by bucket alongside the last backward");
}

/* Has every node equally many members, so that every element crosses as often? */
static bool is_even(const zp_group_link *link) {
  return link->nodes < 2 || link->fullest == 1 || link->sums == ZP_ALGORITHM_TWO_LEVELS;
}

/* A bucket in two parts, here and on the host, has other owners of elements than a whole one. Where owners send unlike
 * numbers of bytes, the list of moves would not say how many. */
static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  if (!spec->train.rounds_sums) return NULL;
  if (c->compress) return "`reduce_dtype` does not go with `compress`, which sends signs";
  if (c->home[ZP_STATE_GRADIENTS].eighths == 0 || zp_shards_state(c)) return NULL;
  zp_machine m = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(c));
  int t = c->tensor, p = c->pipeline, e = zp_expert_ranks(c);
  zp_group_link data = zp_machine_data_group(&m, t, p, c->data, c->order);
  bool even = is_even(&data);
  if (even && e > 1 && c->data % e == 0) {
    zp_group_link replicas = zp_machine_replica_group(&m, t, p, c->data, e, c->order);
    even = is_even(&replicas);
  }
  return even ? NULL
              : "`reduce_dtype` with ZeRO 0 and gradients off the device needs equally many data ranks in every node";
}

static zp_move_limits limits(const zp_spec *spec) {
  static const zp_move_limit rows[] = {{ZP_LIMIT_NO_COMPRESSION,
                                        .why = "`reduce_dtype` rounds sums, and 1-bit Adam sends signs",
                                        .help = "leave `compress` or `reduce_dtype` out"}};
  bool rounds = spec->train.rounds_sums && spec->cluster.trainer == ZP_TRAINER_ZPLAN;
  return ZP_LIMITS_IF(rounds, rows);
}

/* Other programs that sum in 16 bits round at every addition. */
static zp_move_objection objects(zp_arena *arena, const zp_spec *spec) {
  zp_trainer trainer = spec->cluster.trainer;
  if (!spec->train.rounds_sums || trainer == ZP_TRAINER_ZPLAN) return (zp_move_objection){.why = NULL};
  return (zp_move_objection){
      spec->train.reduce_span,
      zp_format(arena, "%s is planned without sums that are rounded once to leave a node", zp_trainer_title(trainer)),
      "`reduce_dtype = \"bf16\"` is planned for zplan's own trainer: --for zplan"};
}

const zp_move_strategy zp_replica_sums = {
    .name = "sums over replicas",
    .applies = applies,
    .make = make,
    .explain = explain,
    .refuses = refuses,
    .objects = objects,
    .limits = limits,
    .provides = 1u << ZP_MOVE_NEED_SUMS,
};
