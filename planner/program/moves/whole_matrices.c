/* Muon: Newton-Schulz wants whole matrices (runtime/optimizer/muon.c). With ZeRO the n data ranks exchange shards of n
 * instances of a run at a time, each works on all of one, and they exchange back; at the end of a run, where there are
 * fewer, as much is sent. A matrix that tensor ranks share they gather, and all of them work on it: of every instance
 * those of one data rank with ZeRO, otherwise those of all. */
#include "strategy.h"

#include <assert.h>
#include <zplan/buf.h>

static bool needs_matrices(const zp_lowered *l) {
  return zp_optimizer_facts(&l->spec->train)->needs == ZP_NEEDS_MATRICES;
}

static bool shards(const zp_choice *c) { return zp_shards_state(c) && c->data > 1; }

bool zp_shares_matrix(const zp_lowered *l, int param) {
  return zp_recipe_of(&l->spec->train, &l->spec->model->params.data[param]).orthogonal && l->sharding->tensor > 1 &&
         l->sharding->param[param].split_dim >= 0;
}

int64_t zp_matrix_rounds(const zp_choice *c, int64_t count) {
  return shards(c) ? (count + c->data - 1) / c->data : count;
}

/* The bucket of a unit's own parameters that all data ranks share out. */
static int64_t bucket_elements(const zp_lowered *l, const zp_choice *c, int segment) {
  zp_bucket_walk walk = {0};
  while (zp_next_bucket(l, c, segment, &walk))
    if (walk.bucket.param < 0 && walk.bucket.kind == ZP_KIND_WHOLE) return walk.bucket.elements;
  return 0;
}

int64_t zp_matrix_room(const zp_lowered *l, const zp_choice *c, int segment, int64_t count) {
  int64_t work = l->segments[segment].orthogonal_bytes;
  if (work == 0 || !shards(c)) return work;
  int64_t bucket = bucket_elements(l, c, segment) * l->stat_bytes, passing = count % c->data ? bucket : 0;
  return zp_round_up(bucket, ZP_ALIGN_BYTES) + (work > passing ? work : passing);
}

static bool applies(const zp_move_scope *x) {
  return needs_matrices(x->lowered) && x->stage && (shards(x->choice) || x->choice->tensor > 1);
}

static void exchange(const zp_move_scope *x, zp_move move, const zp_run *run, zp_on_move *emit, void *user) {
  move.times = 2 * zp_matrix_rounds(x->choice, run->count);
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
  int data = x->choice->data;
  for (int i = 0; i < graph->params.len; i++) {
    int param = graph->params.data[i].param;
    int64_t elements = x->lowered->param_elements[param];
    if (!zp_shares_matrix(x->lowered, param)) continue;
    if (!shards(x->choice)) {
      gather(x, move, elements, run->count, data, emit, user);
    } else {
      gather(x, move, elements, run->count / data, data, emit, user);
      gather(x, move, elements, 1, (int)(run->count % data), emit, user);
    }
  }
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_move move = zp_move_begin(x, &zp_whole_matrices, ZP_MOVE_OPTIMIZER, ZP_WHEN_AT_DEVICE_UPDATE, ZP_WAIT_AT_ONCE);
  for (int r = 0; r < x->stage->runs.len; r++) {
    const zp_run *run = &x->stage->runs.data[r];
    if (x->lowered->segments[run->segment].orthogonal_bytes == 0) continue;
    if (shards(x->choice)) exchange(x, move, run, emit, user);
    gather_matrices(x, move, run, emit, user);
  }
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  if (!shards(x->choice))
    return zp_format(arena, "%d tensor ranks gather the matrices that muon orthogonalises, and all of them do it",
                     x->choice->tensor);
  return zp_format(arena, "muon: %d data ranks exchange shards of as many layers, and each orthogonalises one%s",
                   x->choice->data, x->choice->tensor > 1 ? ", whose matrices its tensor ranks gather" : "");
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
    .refuses = refuses,
};
