/* SPDX-License-Identifier: Apache-2.0 */
/* hpZ (ZeRO++, arXiv 2306.10209, section 3.2): `hpz` neighbouring data ranks divide a second copy of the parameters
 * among them. Forward gathers a unit over all data ranks, as ZeRO 3 does (zero_gather.c), and every rank keeps its part
 * of the copy; backward gathers the parts, inside a node where the group is. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return x->choice->hpz > 0; }

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_bucket_walk walk = {0};
  int bytes = x->lowered->param_bytes;
  if (!zp_needs_params(x->act)) return;
  zp_move_wait wait = zp_buckets_overlap(x) ? ZP_WAIT_BY_UNIT : ZP_WAIT_AT_ONCE;
  zp_move move = zp_move_begin(x, &zp_hpz_copy, ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, wait);
  for (move.bucket = 0; zp_scope_next_bucket(x, &walk); move.bucket++) {
    int64_t elements = walk.bucket.elements;
    if (elements / x->choice->hpz > 0)
      zp_emit_copy(x, &move, ZP_QUEUE_DEVICE_MEMORY, elements / x->choice->hpz, bytes, emit, user);
    if (zp_reads_hpz(x->choice, x->act)) zp_emit_among_hpz(x, &move, elements, bytes, emit, user);
  }
}

static void regions(const zp_move_scope *x, zp_placing *p) {
  zp_need(p, ZP_REGION_HPZ_PARAMS, zp_flat_all(&p->stage->flat) / x->choice->hpz * x->lowered->param_bytes);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena,
                   "a rank keeps 1/%d of a second copy of the parameters, from forward's gathers over %d data ranks; "
                   "backward gathers it among %d neighbours",
                   x->choice->hpz, x->choice->data, x->choice->hpz);
}

static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  const zp_cluster *cluster = &spec->cluster;
  if (c->hpz == 0) return NULL;
  if (!zp_shards_params(c)) return "`hpz` keeps a second copy of the parameters that ZeRO 3 divides: `zero = 3`";
  if (c->shard > 0) return "hpZ divides state among all data ranks: `hpz` does not go with `shard`";
  if (zp_expert_ranks(c) > 1) return "of spread experts no second copy is kept: `hpz` does not go with `expert`";
  if (c->home[ZP_STATE_PARAMS].tier != ZP_TIER_DEVICE) return "`hpz` does not go with parameters off the device";
  if (cluster->trainer == ZP_TRAINER_ZPLAN && !cluster->node.device.is_cpu)
    return "zplan's own trainer has hpZ on CPU ranks alone; `--for deepspeed` plans it for GPUs";
  return NULL;
}

/* Said of the plan block before anything is searched. */
static zp_move_objection objects(zp_arena *arena, const zp_spec *spec) {
  const zp_constraints *plan = &spec->plans.data[spec->plan];
  zp_trainer trainer = spec->cluster.trainer;
  bool has = trainer == ZP_TRAINER_DEEPSPEED || (trainer == ZP_TRAINER_ZPLAN && spec->cluster.node.device.is_cpu);
  if (!plan->hpz.set || zp_limit_allows(&plan->hpz, 1)) return (zp_move_objection){.why = NULL};
  if (!has)
    return (zp_move_objection){
        plan->hpz.span,
        zp_format(arena, "%s keeps no second copy of the parameters on GPUs", zp_trainer_title(trainer)),
        "--for deepspeed plans `hpz` for DeepSpeed; or leave `hpz` out"};
  if (!zp_limit_allows(&plan->zero, 3))
    return (zp_move_objection){plan->hpz.span, "`hpz` keeps a second copy of the parameters that ZeRO 3 divides",
                               "use `zero = 3`, or leave `hpz` out"};
  return (zp_move_objection){.why = NULL};
}

const zp_move_strategy zp_hpz_copy = {
    .name = "hpZ",
    .applies = applies,
    .make = make,
    .explain = explain,
    .regions = regions,
    .refuses = refuses,
    .objects = objects,
    .provides = 1u << ZP_MOVE_NEED_HPZ,
};
