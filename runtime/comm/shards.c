/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets, the instances of runs, over the data ranks that hold the same. Where these fall into shard groups, a group
 * is meant, and ranks at one place of several groups sum what they have copies of. With ZeRO 1 to 3 these ranks own
 * pieces of them: whole shards of 64 elements each, so that a bucket's first element, divided by the ranks that share
 * it, is its shard's place in the buffers of shards. Every rank of a group owns the piece at its place: of optimizer
 * state, with ZeRO 2 of gradients, with ZeRO 3 of parameters, too. */
#include <assert.h>
#include "one_bit.h"
#include "device.h"
#include "host_grads.h"
#include "param_home.h"
#include "profile.h"
#include "state.h"

zpr_slice zpr_slice_of(zpr *c, const zpr_run *run, int64_t i) {
  zpr_part part = zpr_part_of(c, run->kind);
  if (!zpr_shards_state(c->program)) return (zpr_slice){part.begin, part.begin + part.elements, part.state_begin};
  zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_PARAMS, run, i);
  return (zpr_slice){home.flat, home.flat + home.size, home.own};
}

const zpr_run *zpr_bucket_of(const zpr *c, int64_t first, int64_t *i) {
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    if (first < run->base || first >= run->base + run->count * run->stride) continue;
    *i = (first - run->base) / run->stride;
    return run;
  }
  assert(!"every bucket is an instance of a run");
  return NULL;
}

void zpr_sum_copies(zpr *c, void *shard, int64_t elements) {
  zpr_group copies = zpr_copies_group(c);
  if (copies.n > 1) zpr_group_all_reduce(c, &copies, ZPR_DATA, zpr_gradient_type(c), shard, elements);
}

void zpr_reduce_grads(zpr *c, int64_t first) {
  assert(first >= 0 && first < zpr_flat_elements(c->stage) && !zpr_shards_gradients(c->program));
  int64_t i, size = zpr_gradient_bytes(c);
  const zpr_run *run = zpr_bucket_of(c, first, &i);
  zpr_group holders = zpr_part_of(c, run->kind).holders;
  char *grads = (char *)zpr_at(c, c->stage->grads) + first * size;
  int before = zpr_enter(c, ZPR_AT_DATA);
  if (c->program->zero == 1) {
    zpr_group_reduce_scatter(c, &holders, ZPR_DATA, zpr_gradient_type(c), grads, run->stride / holders.n);
    zpr_sum_copies(c, grads + holders.me * (run->stride / holders.n) * size, run->stride / holders.n);
  } else {
    zpr_group_all_reduce(c, &holders, ZPR_DATA, zpr_gradient_type(c), grads, run->stride);
  }
  zpr_leave(c, before);
}

void zpr_scatter_grads(zpr *c, int64_t first, void *from, bool add) {
  assert(first >= 0 && first < zpr_flat_elements(c->stage));
  assert(zpr_shards_gradients(c->program) || c->program->moves_gradients);
  if (c->state->rehearses) return;
  int64_t i, size = zpr_gradient_bytes(c);
  const zpr_run *run = zpr_bucket_of(c, first, &i);
  zpr_bucket_home bucket = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
  zpr_part part = zpr_part_of(c, run->kind);
  int before = zpr_enter(c, ZPR_AT_DATA);
  if (zpr_shards_gradients(c->program)) {
    zpr_group_reduce_scatter(c, &part.holders, ZPR_DATA, zpr_gradient_type(c), from, bucket.size);
    from = (char *)from + part.place * bucket.size * size;
  }
  zpr_keep_gradients(c, &bucket, from, add);
  zpr_leave(c, before);
}

void zpr_sum_buckets(zpr *c) {
  bool moved = zpr_moves_gradients(c->program);
  if (zpr_is_frozen(c)) return; /* then signs travel */
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    zpr_group holders = zpr_part_of(c, run->kind).holders, copies = zpr_copies_group(c);
    bool scattered = zpr_shards_gradients(c->program), sums = copies.n > 1 || (!scattered && holders.n > 1);
    for (int64_t i = 0; i < run->count && sums && zpr_is_trained(run->kind); i++) {
      zpr_bucket_home bucket = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
      if (scattered)
        zpr_sum_gradients(c, &copies, ZPR_DATA, &bucket);
      else if (moved)
        zpr_sum_replicas(c, &holders, &bucket);
      else
        zpr_reduce_grads(c, run->base + i * run->stride);
    }
  }
  if (moved) zpr_await_replicas(c);
}

/* Where this rank has its part of a bucket's second copy: equal parts of all buckets, in their order. */
static char *hpz_part(zpr *c, const zpr_run *run, int64_t first) {
  int ranks = zpr_hpz_group(c).n;
  assert(c->program->hpz == ranks && run->stride % ranks == 0 && first % ranks == 0);
  return (char *)zpr_at(c, c->stage->hpz_params) + first / ranks * zpk_bytes(c->program->dtype);
}

void zpr_keep_hpz(zpr *c, int64_t first, const void *from) {
  assert(first >= 0 && first < zpr_all_elements(c->stage));
  int64_t i;
  const zpr_run *run = zpr_bucket_of(c, first, &i);
  zpr_group group = zpr_hpz_group(c);
  int64_t bytes = run->stride / group.n * zpk_bytes(c->program->dtype);
  zpr_copy(c, hpz_part(c, run, first), (const char *)from + group.me * bytes, bytes);
}

void zpr_gather_hpz(zpr *c, int64_t first, void *to) {
  assert(first >= 0 && first < zpr_all_elements(c->stage));
  int64_t i;
  const zpr_run *run = zpr_bucket_of(c, first, &i);
  zpr_group group = zpr_hpz_group(c);
  int64_t count = run->stride / group.n, bytes = count * zpk_bytes(c->program->dtype);
  int before = zpr_enter(c, ZPR_AT_DATA);
  zpr_copy(c, (char *)to + group.me * bytes, hpz_part(c, run, first), bytes);
  zpr_group_all_gather(c, &group, ZPR_DATA, to, count);
  zpr_leave(c, before);
}

void zpr_zero_shared_shards(zpr *c) {
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    if (run->n_params > 1 || !run->params[0].zero_first) continue;
    for (int64_t i = 0; i < run->count; i++) {
      zpr_bucket_home bucket = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
      zpr_zero_gradients(c, &bucket);
    }
  }
}

/* A tied parameter is a bucket of its own on every stage, with the same shards. */
void zpr_sum_tied_shards(zpr *c, const zpr_tie *tie, const zpr_group *stages) {
  int64_t i;
  const zpr_run *run = zpr_bucket_of(c, tie->offset[stages->me], &i);
  zpr_bucket_home bucket = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
  zpr_sum_gradients(c, stages, ZPR_TIE, &bucket);
}

void zpr_gather_updated(zpr *c) {
  bool offloaded = c->stage->params_offloaded.elements > 0;
  int64_t number = 0;
  if (zpr_is_frozen(c)) return; /* they have what the signs were */
  if (!offloaded) zpr_together(c, true);
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    zpr_group holders = zpr_part_of(c, run->kind).holders;
    for (int64_t i = 0; i < run->count && zpr_is_trained(run->kind); i++) {
      zpr_bucket_home bucket = zpr_home_of_bucket(c, ZPR_CLASS_PARAMS, run, i);
      zpr_gather_bucket(c, &holders, &bucket, number++);
    }
  }
  if (!offloaded) zpr_together(c, false);
  zpr_await_bucket(c);
}
