/* SPDX-License-Identifier: Apache-2.0 */
/* Which random numbers round which additions: those of seed, step, tensor, element of the logical tensor and how often
 * it was added to in the step, so that they do not depend on where shards end. What tied stages sum among themselves,
 * and what tensor ranks do, has numbers of its own: a second rounding by those of the first is not right on average. */
#include "stochastic_sums.h"

#include <stdlib.h>
#include "host_grads.h"
#include "state.h"

static const uint32_t AMONG_STAGES = UINT32_MAX, AMONG_TENSOR_RANKS = UINT32_MAX - 1;

/* sums, from: where the first element of the part stands. */
static void round_parameter(zpr *c, const zpr_rounded_part *p, void *sums, const float *from, bool add,
                            uint32_t addend) {
  const zpr_param *param = &p->run->params[p->k];
  char name[256];
  const zpr_share share = zpr_my_share(c, param);
  const uint64_t key = c->program->seed + ((uint64_t)c->step + 1) * UINT64_C(0x9E3779B97F4A7C15);
  const zpd_stochastic a = {.sum = sums,
                            .x = from,
                            .first = p->first,
                            .count = p->count,
                            .local_stride = share.local_stride,
                            .logical_first = share.first,
                            .stride = share.stride,
                            .tensor =
                                zpr_name_hash(zpr_instance_name(name, sizeof name, param->name, p->run->first + p->i)),
                            .key = {(unsigned)key, (unsigned)(key >> 32) ^ 0x53554D53u}, /* SUMS */
                            .addend = addend,
                            .add = add};
  if (p->count > 0) zpr_add_stochastic(c, &a);
}

void zpr_round_part(zpr *c, const zpr_rounded_part *part, void *sums, const float *from) {
  round_parameter(c, part, sums, from, false, AMONG_TENSOR_RANKS);
}

static uint16_t *sums_of(zpr *c, const zpr_bucket_home *b) {
  return (uint16_t *)zpr_at(c, c->stage->grads) + b->device;
}

/* The parts of all parameters that are in the rank's shard. */
static void round_shard(zpr *c, const zpr_bucket_home *b, const float *from, bool add, uint32_t addend) {
  int64_t begin = b->flat - b->run->base - b->i * b->run->stride, end = begin + b->size;
  for (int k = 0; k < b->run->n_params; k++) {
    const zpr_param *param = &b->run->params[k];
    int64_t first = param->offset > begin ? param->offset : begin, last = param->offset + param->elements;
    if (last > end) last = end;
    const zpr_rounded_part part = {b->run, b->i, k, first - param->offset, last - first};
    round_parameter(c, &part, sums_of(c, b) + (first - begin), from + (first - begin), add, addend);
  }
}

/* How often a bucket was added to in this step. */
static uint32_t *additions_of(zpr *c, const zpr_bucket_home *b) {
  const zpr_stage *s = c->stage;
  int64_t before = 0, all = 0;
  for (int r = 0; r < s->n_runs; r++) {
    if (&s->runs[r] == b->run) before = all;
    all += s->runs[r].count;
  }
  if (!c->state->additions) c->state->additions = zpr_alloc(c, (size_t)all, sizeof *c->state->additions);
  return &c->state->additions[before + b->i];
}

void zpr_restart_rounded(zpr *c, const zpr_bucket_home *bucket) { *additions_of(c, bucket) = 0; }

void zpr_keep_rounded(zpr *c, const zpr_bucket_home *bucket, const float *from, bool add) {
  uint32_t *additions = additions_of(c, bucket);
  if (!add) *additions = 0;
  round_shard(c, bucket, from, add, (*additions)++);
}

void zpr_sum_rounded(zpr *c, const zpr_group *group, zpr_axis counted_as, const zpr_bucket_home *bucket) {
  float *ring = zpr_at(c, c->stage->grad_ring);
  zpr_widen_sums(c, ring, sums_of(c, bucket), bucket->size);
  zpr_group_all_reduce(c, group, counted_as, ZPK_F32, ring, bucket->size);
  round_shard(c, bucket, ring, false, AMONG_STAGES);
}
