/* SPDX-License-Identifier: Apache-2.0 */
/* What strategies ask a scope, and how they fill in records. */
#include "strategy.h"

#include <assert.h>
#include <zplan/buf.h>
#include <zplan/schedule.h>
#include <zplan/software.h>

zp_move_scope zp_move_scope_of(const zp_lowered *lowered, const zp_choice *choice) {
  assert(lowered && zp_choice_has_degrees(choice));
  return (zp_move_scope){.lowered = lowered,
                         .choice = choice,
                         .cpu = lowered->spec->cluster.node.device.is_cpu,
                         .microbatches = zp_microbatches(lowered->spec, choice),
                         .run = -1};
}

zp_move_scope zp_move_scope_of_stage(const zp_program *program, int stage) {
  zp_move_scope scope = zp_move_scope_of(zp_program_lowered(program, stage), &program->choice);
  scope.program = program;
  scope.stage = &program->stages[stage];
  return scope;
}

bool zp_buckets_overlap(const zp_move_scope *x) {
  return !x->cpu && zp_eighths_offloaded(x, ZP_STATE_PARAMS) == 0 && zp_eighths_offloaded(x, ZP_STATE_GRADIENTS) == 0;
}

bool zp_is_first_user(const zp_move_scope *x, int param) {
  const zp_lowered *l = x->lowered;
  int shared = 0;
  while (l->shared.data[shared] != param) shared++;
  for (int r = 0; r < x->run && x->stage; r++)
    if (l->segments[x->stage->runs.data[r].segment].uses_shared[shared]) return false;
  return x->iteration == 0;
}

int64_t zp_scope_carry(const zp_move_scope *x, int64_t k, bool of_one_stage) {
  const zp_choice *c = x->choice;
  int segment;
  int64_t iteration;
  if (k <= 0 || k >= (int64_t)c->pipeline * zp_chunks(c)) return 0;
  if ((zp_chunk_stage(c, k - 1, NULL) == zp_chunk_stage(c, k, NULL)) != of_one_stage) return 0;
  zp_unit(x->lowered, c->cut[k], &segment, &iteration);
  return x->lowered->segments[segment].carry_in_elements;
}

bool zp_scope_next_bucket(const zp_move_scope *x, zp_bucket_walk *walk) {
  if (!x->together) {
    while (zp_next_bucket(x->lowered, x->choice, x->segment, walk)) {
      int param = walk->bucket.param;
      if (x->moment != ZP_MOMENT_BUCKETS) return true;
      if (!zp_kinds[walk->bucket.kind].trained) continue; /* nothing happens to it at the end of a step */
      if (param < 0 ? x->buckets != ZP_BUCKETS_SHARED : x->buckets != ZP_BUCKETS_OWN && zp_is_first_user(x, param))
        return true;
    }
    return false;
  }
  while (walk->next < ZP_KINDS) {
    zp_param_kind kind = (zp_param_kind)walk->next++;
    walk->bucket = (zp_bucket){.param = -1, .kind = kind, .elements = x->together->of[kind]};
    if (walk->bucket.elements > 0 && (x->moment != ZP_MOMENT_BUCKETS || zp_kinds[kind].trained)) return true;
  }
  return false;
}

/* The number of a bucket's first element among those that a rank updates. */
static int64_t first_own(const zp_move_scope *x, const zp_bucket *b) {
  const zp_stage *s = x->stage;
  int64_t first =
      b->param >= 0 ? zp_stage_shared(s, b->param) : zp_run_at(&s->runs.data[x->run], b->kind, x->iteration);
  int64_t start = zp_flat_before(&s->flat, b->kind), before = zp_flat_before(&s->shard, b->kind);
  return before + (first - start) / zp_owners(x->choice, b->kind);
}

int64_t zp_bucket_offloaded(const zp_move_scope *x, const zp_bucket *b, zp_state state) {
  bool sharded = zp_shards(x->choice, state);
  int64_t part = b->elements / (sharded ? zp_holders(x->choice, b->kind) : 1);
  if (x->run < 0) return part * zp_eighths_offloaded(x, state) / 8;
  const zp_stage *s = x->stage;
  int owners = zp_owners(x->choice, b->kind);
  int64_t here = zp_flat_trained(&s->shard) - s->offloaded[state];
  int64_t begin = first_own(x, b), end = begin + b->elements / owners;
  if (begin < here) begin = here;
  return begin < end ? (end - begin) * (sharded ? 1 : owners) : 0;
}

zp_flat zp_scope_flat(const zp_move_scope *x) {
  zp_flat flat = x->together ? *x->together : x->stage->flat;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    if (!zp_kinds[kind].trained) flat.of[kind] = 0;
  return flat;
}

int64_t zp_scope_shard(const zp_move_scope *x) {
  return x->together ? zp_flat_held(x->choice, x->together, zp_shards_state(x->choice))
                     : zp_flat_trained(&x->stage->shard);
}

int64_t zp_scope_offloaded(const zp_move_scope *x, zp_state state) {
  if (x->together) return zp_scope_shard(x) * zp_eighths_offloaded(x, state) / 8;
  return x->stage->offloaded[state];
}

/* ---- regions ---- */

void zp_need_offloaded(const zp_move_scope *x, zp_placing *p, zp_state state, zp_region host, zp_region file,
                       int element_bytes) {
  const zp_held *h = &p->held[state];
  bool disk = zp_on_disk(x, state) && h->offloaded > 0;
  p->stage->window[state] = disk ? h->of_bucket : 0;
  zp_need(p, host, (disk ? ZP_WINDOWS * h->of_bucket : h->offloaded) * element_bytes);
  zp_need(p, file, disk ? h->offloaded * element_bytes : 0);
}

void zp_need_landing(const zp_move_scope *x, zp_placing *p) {
  const zp_held *grads = &p->held[ZP_STATE_GRADIENTS], *state = &p->held[ZP_STATE_OPTIMIZER];
  if (grads->offloaded == 0 && state->offloaded == 0) return;
  int64_t window = grads->offloaded > 0 ? grads->of_bucket : p->bucket_shard;
  if (zp_on_disk(x, ZP_STATE_OPTIMIZER) && zp_eighths_offloaded(x, ZP_STATE_OPTIMIZER) > 0)
    window = zp_round_up(window, ZP_PAGE_ELEMENTS);
  bool delayed =
      x->lowered->spec->train.delayed && state->offloaded > 0; /* gradients from the device have a place then */
  p->stage->window[ZP_STATE_OPTIMIZER] = window;
  zp_need(p, ZP_REGION_HOST_GRADS_IN, delayed && grads->offloaded == 0 ? 0 : 2 * window * x->lowered->grad_bytes);
}

void zp_need_rings(zp_placing *p, const zp_move_rings *rings) {
  const zp_lowered *l = p->lowered;
  zp_need(p, ZP_REGION_PARAM_RING, rings->of[ZP_STATE_PARAMS] * zp_stage_ring_elements(p->stage) * l->param_bytes);
  zp_need(p, ZP_REGION_GRAD_RING, rings->of[ZP_STATE_GRADIENTS] * zp_flat_trained(&p->stage->bucket) * l->grad_bytes);
  zp_need(p, ZP_REGION_SAVED_RING, rings->of[ZP_STATE_ACTIVATIONS] * p->totals->unit_saved_bytes);
  if (rings->of[ZP_STATE_ACTIVATIONS] > 0) p->stage->saved_ring_stride = p->totals->unit_saved_bytes;
}

/* ---- records ---- */

static void emit_copy(zp_move *move, zp_move_queue queue, int64_t elements, int element_bytes, int64_t all_elements,
                      zp_on_move *emit, void *user) {
  static const struct {
    zp_move_end from, to;
  } ends[ZP_QUEUE_COUNT] = {
      [ZP_QUEUE_DOWN] = {ZP_END_DEVICE, ZP_END_HOST},      [ZP_QUEUE_UP] = {ZP_END_HOST, ZP_END_DEVICE},
      [ZP_QUEUE_READ] = {ZP_END_DISK, ZP_END_HOST},        [ZP_QUEUE_WRITE] = {ZP_END_HOST, ZP_END_DISK},
      [ZP_QUEUE_HOST_MEMORY] = {ZP_END_HOST, ZP_END_HOST}, [ZP_QUEUE_DEVICE_MEMORY] = {ZP_END_DEVICE, ZP_END_DEVICE}};
  if (elements <= 0) return;
  move->way = ZP_WAY_COPY;
  move->ranks = 1;
  move->queue = queue;
  move->from = ends[queue].from;
  move->to = ends[queue].to;
  move->elements = elements;
  move->element_bytes = element_bytes;
  move->all_elements = all_elements;
  emit(user, move);
}

void zp_emit_copy(const zp_move_scope *x, zp_move *move, zp_move_queue queue, int64_t elements, int element_bytes,
                  zp_on_move *emit, void *user) {
  emit_copy(move, queue, elements, element_bytes, elements * x->choice->tensor * x->choice->data, emit, user);
}

void zp_emit_shared_copy(const zp_move_scope *x, zp_move *move, zp_move_queue queue, int64_t elements,
                         int element_bytes, zp_on_move *emit, void *user) {
  int64_t each = (elements + x->choice->data - 1) / x->choice->data;
  emit_copy(move, queue, each, element_bytes, elements * x->choice->tensor, emit, user);
}

void zp_emit_up(const zp_move_scope *x, zp_move *move, zp_state state, int64_t elements, int element_bytes,
                int64_t disk_elements, zp_on_move *emit, void *user) {
  if (zp_on_disk(x, state)) zp_emit_copy(x, move, ZP_QUEUE_READ, disk_elements, element_bytes, emit, user);
  zp_emit_copy(x, move, ZP_QUEUE_UP, elements, element_bytes, emit, user);
}

void zp_emit_down(const zp_move_scope *x, zp_move *move, zp_state state, int64_t elements, int element_bytes,
                  int64_t disk_elements, zp_on_move *emit, void *user) {
  zp_emit_copy(x, move, ZP_QUEUE_DOWN, elements, element_bytes, emit, user);
  if (zp_on_disk(x, state)) zp_emit_copy(x, move, ZP_QUEUE_WRITE, disk_elements, element_bytes, emit, user);
}

static void emit_among(const zp_move_scope *x, zp_move *move, zp_move_way way, zp_move_end peers, int ranks,
                       int64_t elements, int element_bytes, zp_on_move *emit, void *user) {
  const zp_choice *c = x->choice;
  if (elements <= 0) return;
  move->way = way;
  move->queue = ZP_QUEUE_DATA;
  move->from = way == ZP_WAY_ALL_GATHER ? peers : ZP_END_DEVICE;
  move->to = way == ZP_WAY_ALL_GATHER ? ZP_END_DEVICE : peers;
  move->elements = elements;
  move->element_bytes = element_bytes;
  move->ranks = ranks;
  move->all_elements = elements * (c->tensor * c->data / ranks);
  emit(user, move);
}

void zp_emit_among_holders(const zp_move_scope *x, zp_move *move, zp_move_way way, zp_param_kind kind, int64_t elements,
                           int element_bytes, zp_on_move *emit, void *user) {
  zp_move_end peers = zp_kinds[kind].by_place ? ZP_END_REPLICAS : ZP_END_DATA_RANKS;
  emit_among(x, move, way, peers, zp_holders(x->choice, kind), elements, element_bytes, emit, user);
}

static int64_t casts_of(const zp_move_scope *x, const zp_bucket *bucket) {
  if (x->together) return x->casts ? x->casts->of[bucket->kind] : bucket->elements;
  if (bucket->param >= 0) return 0;
  if (x->moment == ZP_MOMENT_STEP) return x->stage->casts.of[bucket->kind];
  return zp_own_casts(x->lowered, x->choice, x->segment, bucket->kind);
}

void zp_emit_weight_gathers(const zp_move_scope *x, zp_move *move, const zp_bucket *bucket, zp_on_move *emit,
                            void *user) {
  enum { BYTE = 8, WHOLE = 16 };
  const zp_lowered *l = x->lowered;
  int bits = zp_software_gathered_bits(l->spec->cluster.software, &l->spec->train, x->choice);
  int64_t casts = bits < WHOLE ? casts_of(x, bucket) : 0;
  zp_emit_among_holders(x, move, ZP_WAY_ALL_GATHER, bucket->kind, bucket->elements - casts, l->param_bytes, emit, user);
  zp_emit_among_holders(x, move, ZP_WAY_ALL_GATHER, bucket->kind, casts * bits / BYTE, 1, emit, user);
}

void zp_emit_among_copies(const zp_move_scope *x, zp_move *move, zp_param_kind kind, int64_t elements,
                          int element_bytes, zp_on_move *emit, void *user) {
  emit_among(x, move, ZP_WAY_ALL_REDUCE, ZP_END_COPIES, zp_shard_copies(x->choice),
             elements / zp_owners(x->choice, kind), element_bytes, emit, user);
}

void zp_emit_among_hpz(const zp_move_scope *x, zp_move *move, int64_t elements, int element_bytes, zp_on_move *emit,
                       void *user) {
  emit_among(x, move, ZP_WAY_ALL_GATHER, ZP_END_HPZ, x->choice->hpz, elements, element_bytes, emit, user);
}

const char *zp_home_words(zp_arena *arena, const zp_move_scope *x, zp_state state) {
  return zp_format(arena, "%d/8 on %s", zp_eighths_offloaded(x, state), zp_on_disk(x, state) ? "disks" : "the host");
}
