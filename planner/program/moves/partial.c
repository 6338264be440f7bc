/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of which every tensor rank has a part (norm weights under sequence sharding, weights that heads share).
 * They are summed over the tensor ranks once a step: with ZeRO 0 on every data rank, with ZeRO 1 to 3 shard by shard,
 * after the buckets have been scattered, because sums over tensor ranks and over data ranks may come in either order
 * and a shard is less to send. Every layer's norms lie at the same places of its bucket, so one data rank may have most
 * of them. Where data ranks take all elements (1-bit Adam) they are summed before, all of them. */
#include "strategy.h"

#include <assert.h>
#include <zplan/buf.h>

typedef struct counting {
  const zp_program *program;
  zp_arena *scratch;
  int64_t all, *held; /* held: with ZeRO 1 to 3, of every data rank */
} counting;

static void count(counting *k, int param, const zp_bucket *bucket, int64_t offset, int64_t instances) {
  const zp_lowered *l = k->program->lowered;
  int64_t end = offset + l->param_elements[param];
  assert(!l->sharding->param[param].spread);
  k->all += l->param_elements[param] * instances;
  if (!k->held) return;
  int64_t shard = bucket->elements / zp_holders(&k->program->choice, ZP_KIND_WHOLE);
  for (int64_t at = offset; at < end;) {
    int64_t next = (at / shard + 1) * shard < end ? (at / shard + 1) * shard : end;
    k->held[at / shard] += (next - at) * instances;
    at = next;
  }
}

static const zp_bucket *find(const zp_bucket *bucket, int n, int param) {
  for (int i = 0; i < n; i++)
    if (bucket[i].param == param && bucket[i].kind == ZP_KIND_WHOLE) return &bucket[i];
  return NULL;
}

static void count_run(counting *k, const zp_run *run) {
  const zp_lowered *l = k->program->lowered;
  const zp_segment_program *s = &l->segments[run->segment];
  zp_bucket *bucket = ZP_NEW_ARRAY(k->scratch, zp_bucket, ZP_KINDS + l->shared.len);
  int n = zp_unit_buckets(l, &k->program->choice, run->segment, bucket);
  for (int i = 0; i < s->graph->params.len; i++) {
    int param = s->graph->params.data[i].param;
    if (s->param_offset[i] >= 0 && l->sharding->param[param].grad_partial)
      count(k, param, find(bucket, n, -1), s->param_offset[i], run->count);
  }
}

/* A shared parameter is a bucket of its own, on every stage once. */
static void count_shared(counting *k, const zp_stage *stage, int param) {
  const zp_lowered *l = k->program->lowered;
  zp_bucket *bucket = ZP_NEW_ARRAY(k->scratch, zp_bucket, ZP_KINDS + l->shared.len);
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_bucket *own =
        find(bucket, zp_unit_buckets(l, &k->program->choice, stage->runs.data[r].segment, bucket), param);
    if (!own) continue;
    count(k, param, own, 0, 1);
    return;
  }
}

zp_partial zp_partial_elements(const zp_program *p, const zp_stage *stage) {
  assert(stage && p->stages);
  zp_partial found = {0};
  if (!p->lowered->sharding->partial) return found;
  counting k = {.program = p, .scratch = zp_arena_new("partial gradients")};
  if (zp_shards_state(&p->choice) && !zp_moves_take_all(&p->choice))
    k.held = ZP_NEW_ARRAY(k.scratch, int64_t, zp_shard_ranks(&p->choice));
  for (int r = 0; r < stage->runs.len; r++) count_run(&k, &stage->runs.data[r]);
  for (int i = 0; i < stage->shared.len; i++)
    if (p->lowered->sharding->param[stage->shared.data[i].param].grad_partial)
      count_shared(&k, stage, stage->shared.data[i].param);
  found.summed = k.all * (k.held ? zp_shard_copies(&p->choice) : p->choice.data);
  found.most = k.held ? 0 : k.all;
  for (int d = 0; k.held && d < zp_shard_ranks(&p->choice); d++)
    if (found.most < k.held[d]) found.most = k.held[d];
  zp_arena_free(k.scratch);
  return found;
}

/* ---- the move ---- */

static bool applies(const zp_move_scope *x) {
  return x->program && x->choice->tensor > 1 && x->lowered->sharding->partial;
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_partial elements = zp_partial_elements(x->program, x->stage);
  zp_move move = zp_move_begin(x, &zp_partial_sums, ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_BACKWARD, ZP_WAIT_BY_NORM);
  move.way = ZP_WAY_ALL_REDUCE;
  move.queue = ZP_QUEUE_TENSOR;
  move.from = ZP_END_DEVICE;
  move.to = ZP_END_TENSOR_RANKS;
  move.elements = elements.most;
  move.all_elements = elements.summed;
  move.element_bytes = x->lowered->grad_bytes;
  move.ranks = x->choice->tensor;
  if (elements.summed > 0) emit(user, &move);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "%d tensor ranks have parts of the norms' gradients, which they sum once a step",
                   x->choice->tensor);
}

const zp_move_strategy zp_partial_sums = {
    .name = "partial sums",
    .applies = applies,
    .make = make,
    .explain = explain,
};
