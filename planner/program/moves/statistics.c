/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor (arXiv 1804.04235): means of a matrix's squared gradients by row and column, of whole tensors, which every
 * rank has. So whoever has a part of a tensor gives its sums of squares, in f64: tensor ranks of what they share, and
 * with ZeRO 1 to 3 the data ranks, of a unit at a time. The lengths of tensors are summed over all ranks alongside, as
 * the norm is (runtime/optimizer/adafactor.c). */
#include "strategy.h"

#include <assert.h>
#include <zplan/buf.h>
#include <zplan/recipe.h>

enum { SUM_BYTES = 8 };

static bool shards(const zp_choice *c) { return zp_shards_state(c) && zp_shard_ranks(c) > 1; }

static bool has_statistics(const zp_lowered *l) {
  return zp_optimizer_facts(&l->spec->train)->needs == ZP_NEEDS_STATISTICS;
}

bool zp_splits_statistics(const zp_lowered *l, int param) {
  return l->sharding->tensor > 1 && l->sharding->param[param].split_dim >= 0;
}

/* Sums, then those that arrive, where factors stand later: room for whole shares of all ranks, twice. */
int64_t zp_statistics_room(const zp_choice *c, int64_t statistics) {
  int64_t ranks = (int64_t)c->tensor * c->data;
  return statistics == 0 ? 0 : 2 * (zp_round_up(statistics, ranks) + ranks) * SUM_BYTES;
}

static int64_t transient(const zp_lowered *l, const zp_choice *c, int segment, int64_t count) {
  (void)count; /* one after the other */
  return zp_statistics_room(c, l->segments[segment].statistics);
}

/* Statistics of the segment's own parameters. */
static void lower_segment(const zp_lowered *l, zp_segment_program *segment) {
  if (!has_statistics(l)) return;
  for (int i = 0; i < segment->graph->params.len; i++) {
    int param = segment->graph->params.data[i].param;
    const zp_param *own = &l->spec->model->params.data[param];
    int64_t statistics = own->segment < 0 ? 0 : zp_statistics(&l->spec->train, own);
    segment->statistics += statistics;
    if (zp_splits_statistics(l, param)) segment->split_statistics += statistics;
  }
}

static bool applies(const zp_move_scope *x) {
  return has_statistics(x->lowered) && x->stage && (shards(x->choice) || x->choice->tensor > 1);
}

/* Every rank gets what the others have of its share of the sums, and gives back what they add up to. */
static void sum_shares(const zp_move_scope *x, zp_move move, int64_t elements, zp_on_move *emit, void *user) {
  zp_emit_among_holders(x, &move, ZP_WAY_EXCHANGE, ZP_KIND_WHOLE, elements, SUM_BYTES, emit, user);
  zp_emit_among_holders(x, &move, ZP_WAY_ALL_GATHER, ZP_KIND_WHOLE, elements, SUM_BYTES, emit, user);
}

/* The sums of an instance, or of a parameter that is shared between units; times: how many of them. */
static void sum(const zp_move_scope *x, int64_t all, int64_t split, int64_t times, zp_on_move *emit, void *user) {
  zp_move move = zp_move_begin(x, &zp_statistics_sums, ZP_MOVE_OPTIMIZER, ZP_WHEN_AT_DEVICE_UPDATE, ZP_WAIT_AT_ONCE);
  move.times = times;
  if (split > 0) {
    move.queue = ZP_QUEUE_TENSOR;
    move.ranks = x->choice->tensor;
    move.elements = zp_round_up(split, x->choice->tensor);
    move.all_elements = move.elements * x->choice->data;
    move.element_bytes = SUM_BYTES;
    move.way = ZP_WAY_EXCHANGE;
    move.from = ZP_END_DEVICE;
    move.to = ZP_END_TENSOR_RANKS;
    emit(user, &move);
    move.way = ZP_WAY_ALL_GATHER;
    move.from = ZP_END_TENSOR_RANKS;
    move.to = ZP_END_DEVICE;
    emit(user, &move);
  }
  if (shards(x->choice))
    sum_shares(x, move, zp_round_up(all - split + zp_round_up(split, x->choice->tensor), zp_shard_ranks(x->choice)),
               emit, user);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  const zp_lowered *l = x->lowered;
  for (int r = 0; r < x->stage->runs.len; r++) {
    const zp_segment_program *s = &l->segments[x->stage->runs.data[r].segment];
    if (s->statistics > 0) sum(x, s->statistics, s->split_statistics, x->stage->runs.data[r].count, emit, user);
  }
  for (int i = 0; i < x->stage->shared.len; i++) {
    int param = x->stage->shared.data[i].param;
    int64_t n = zp_statistics(&l->spec->train, &l->spec->model->params.data[param]);
    if (n > 0) sum(x, n, zp_splits_statistics(l, param) ? n : 0, 1, emit, user);
  }
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  const char *who = !shards(x->choice)      ? "tensor ranks"
                    : x->choice->tensor > 1 ? "tensor and data ranks"
                                            : "data ranks";
  return zp_format(arena, "adafactor: %s sum squares of gradients by rows and columns, a unit at a time", who);
}

static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  return zp_expert_ranks(c) > 1 ? zp_optimizer_facts(&spec->train)->not_with[ZP_LIMIT_SPREAD_EXPERTS] : NULL;
}

const zp_move_strategy zp_statistics_sums = {
    .name = "statistics",
    .applies = applies,
    .make = make,
    .explain = explain,
    .transient = transient,
    .lower_segment = lower_segment,
    .refuses = refuses,
};
