/* SPDX-License-Identifier: Apache-2.0 */
/* Muon: Newton-Schulz wants whole matrices (runtime/optimizer/muon.c). With ZeRO the n data ranks exchange shards of n
 * instances of a run at a time, each works on all of one, and they exchange back; at the end of a run, where there are
 * fewer, as much is sent. A matrix that tensor ranks share they gather, and all of them work on it: of every instance
 * those of one data rank with ZeRO, otherwise those of all. */
#include "strategy.h"

#include <assert.h>
#include <math.h>
#include <zplan/buf.h>
#include <zplan/rates.h>
#include <zplan/recipe.h>

static bool needs_matrices(const zp_lowered *l) {
  return zp_optimizer_facts(&l->spec->train)->needs == ZP_NEEDS_MATRICES;
}

static bool shards(const zp_choice *c) { return zp_shards_state(c) && zp_shard_ranks(c) > 1; }

bool zp_shares_matrix(const zp_lowered *l, int param) {
  return zp_recipe_of(&l->spec->train, &l->spec->model->params.data[param]).orthogonal && l->sharding->tensor > 1 &&
         l->sharding->param[param].split_dim >= 0;
}

/* How many of `count` instances of a run a rank works on. */
static int64_t rounds_of(const zp_choice *c, int64_t count) {
  return shards(c) ? (count + zp_shard_ranks(c) - 1) / zp_shard_ranks(c) : count;
}

/* The bucket of a unit's own parameters that all data ranks share out. */
static int64_t bucket_elements(const zp_lowered *l, const zp_choice *c, int segment) {
  zp_bucket_walk walk = {0};
  while (zp_next_bucket(l, c, segment, &walk))
    if (walk.bucket.param < 0 && walk.bucket.kind == ZP_KIND_WHOLE) return walk.bucket.elements;
  return 0;
}

static int64_t transient(const zp_lowered *l, const zp_choice *c, int segment, int64_t count) {
  int64_t work = l->segments[segment].update_bytes;
  if (work == 0 || !shards(c)) return work;
  int64_t bucket = bucket_elements(l, c, segment) * l->stat_bytes, passing = count % zp_shard_ranks(c) ? bucket : 0;
  return zp_round_up(bucket, ZP_ALIGN_BYTES) + (work > passing ? work : passing);
}

static void lower_segment(const zp_lowered *l, zp_segment_program *segment) {
  for (int i = 0; i < segment->graph->params.len; i++) {
    int param = segment->graph->params.data[i].param;
    const zp_param *own = &l->spec->model->params.data[param];
    if (!zp_recipe_of(&l->spec->train, own).orthogonal) continue;
    bool shared = zp_shares_matrix(l, param);
    int64_t parts = shared ? l->param_elements[param] * l->sharding->tensor : 0,
            bytes = zp_orthogonal_bytes(shared ? &own->shape : &l->sharding->param[param].local, parts, l->stat_bytes);
    if (segment->update_bytes < bytes) segment->update_bytes = bytes;
  }
}

/* Momentum to the place of the second moment and scaled, three products a step of Newton-Schulz, of the shorter side n
 * and the longer one m: n x n of two m x n, n x n, n x m. What all parameters' update reads and writes is the list's;
 * here are the 8 bytes an f32 element more of scaling. Products are of the type of the master weights. Tensor ranks
 * that share a matrix work on all of it. */
static void price_segment(const zp_lowered *l, const zp_machine *machine, zp_segment_program *segment) {
  const zp_device *device = &machine->node->device;
  zp_machine own = *machine;
  segment->update_s = 0;
  if (zp_is_mixed(&l->spec->train) && device->flop_per_s_half > 0)
    own.flop_per_s *= device->flop_per_s_fp32 / device->flop_per_s_half;
  for (int i = 0; i < segment->graph->params.len; i++) {
    int param = segment->graph->params.data[i].param;
    if (!zp_recipe_of(&l->spec->train, &l->spec->model->params.data[param]).orthogonal) continue;
    const zp_shape *whole = &l->sharding->param[param].local;
    if (zp_shares_matrix(l, param)) whole = &l->spec->model->params.data[param].shape;
    double rows = (double)whole->dim[0], cols = (double)whole->dim[1], n = fmin(rows, cols), m = fmax(rows, cols);
    bool wide = rows <= cols;
    double step = zp_cost_product(&own, wide ? ZP_PRODUCT_NT : ZP_PRODUCT_TN, 1, n, n, m, l->stat_bytes) +
                  zp_cost_matmul(&own, n, n, n, l->stat_bytes) + zp_cost_matmul(&own, rows, cols, n, l->stat_bytes);
    segment->update_s += 5 * step + zp_cost_update(machine, 0, 2 * rows * cols * l->stat_bytes);
  }
}

static void price(const zp_move_scope *x, double *update_s) {
  for (int r = 0; r < x->stage->runs.len; r++) {
    const zp_run *run = &x->stage->runs.data[r];
    *update_s += (double)rounds_of(x->choice, run->count) * x->lowered->segments[run->segment].update_s;
  }
}

static bool applies(const zp_move_scope *x) {
  return needs_matrices(x->lowered) && x->stage && (shards(x->choice) || x->choice->tensor > 1);
}

static void exchange(const zp_move_scope *x, zp_move move, const zp_run *run, zp_on_move *emit, void *user) {
  move.times = 2 * rounds_of(x->choice, run->count);
  zp_emit_among_holders(x, &move, ZP_WAY_EXCHANGE, ZP_KIND_WHOLE, bucket_elements(x->lowered, x->choice, run->segment),
                        x->lowered->stat_bytes, emit, user);
}

/* groups: of tensor ranks that do it at the same time. */
static void gather(const zp_move_scope *x, zp_move move, int64_t elements, int64_t times, int groups, zp_on_move *emit,
                   void *user) {
  move.way = ZP_WAY_ALL_GATHER;
  move.queue = ZP_QUEUE_TENSOR;
  move.from = ZP_END_TENSOR_RANKS;
  move.to = ZP_END_DEVICE;
  move.ranks = x->choice->tensor;
  move.elements = elements * move.ranks;
  move.element_bytes = x->lowered->stat_bytes;
  move.all_elements = move.elements * groups;
  move.times = times;
  if (times > 0 && groups > 0) emit(user, &move);
}

static void gather_matrices(const zp_move_scope *x, zp_move move, const zp_run *run, zp_on_move *emit, void *user) {
  const zp_graph *graph = x->lowered->segments[run->segment].graph;
  int data = x->choice->data, owners = zp_shard_ranks(x->choice), copies = zp_shard_copies(x->choice);
  for (int i = 0; i < graph->params.len; i++) {
    int param = graph->params.data[i].param;
    int64_t elements = x->lowered->param_elements[param];
    if (!zp_shares_matrix(x->lowered, param)) continue;
    if (!shards(x->choice)) {
      gather(x, move, elements, run->count, data, emit, user);
    } else {
      gather(x, move, elements, run->count / owners, data, emit, user);
      gather(x, move, elements, 1, (int)(run->count % owners) * copies, emit, user);
    }
  }
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_move move = zp_move_begin(x, &zp_whole_matrices, ZP_MOVE_OPTIMIZER, ZP_WHEN_AT_DEVICE_UPDATE, ZP_WAIT_AT_ONCE);
  for (int r = 0; r < x->stage->runs.len; r++) {
    const zp_run *run = &x->stage->runs.data[r];
    if (x->lowered->segments[run->segment].update_bytes == 0) continue;
    if (shards(x->choice)) exchange(x, move, run, emit, user);
    gather_matrices(x, move, run, emit, user);
  }
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  if (!shards(x->choice))
    return zp_format(arena, "%d tensor ranks gather the matrices that muon orthogonalises, and all of them do it",
                     x->choice->tensor);
  return zp_format(arena, "muon: %d data ranks exchange shards of as many layers, and each orthogonalises one%s",
                   zp_shard_ranks(x->choice), x->choice->tensor > 1 ? ", whose matrices its tensor ranks gather" : "");
}

static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  if (c->home[ZP_STATE_OPTIMIZER].eighths > 0 || c->home[ZP_STATE_GRADIENTS].eighths > 0 ||
      c->home[ZP_STATE_PARAMS].eighths > 0)
    return zp_optimizer_facts(&spec->train)->not_with[ZP_LIMIT_OFFLOAD];
  return NULL;
}

const zp_move_strategy zp_whole_matrices = {
    .name = "whole matrices",
    .applies = applies,
    .make = make,
    .explain = explain,
    .transient = transient,
    .lower_segment = lower_segment,
    .price_segment = price_segment,
    .price = price,
    .refuses = refuses,
};
