/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a plan: a hash of its decisions and of what follows from them on every machine. */
#include <zplan/hash.h>
#include <zplan/plan_file.h>
#include <zplan/schedule.h>

const char *zp_plan_hash(zp_arena *arena, const zp_program *p) {
  const zp_choice *c = &p->choice;
  int64_t facts[] = {c->tensor,
                     c->pipeline,
                     c->data,
                     zp_expert_ranks(c),
                     c->zero,
                     c->microbatch,
                     c->recompute,
                     c->recompute_shard,
                     c->schedule,
                     zp_chunks(c),
                     c->sequence,
                     c->compress,
                     c->order,
                     c->fine,
                     p->lowered->compute_bytes,
                     p->spec->train.batch,
                     zp_model_parameters(p->spec->model)};
  uint64_t hash = zp_hash(ZP_HASH_START, facts, sizeof facts);
  zp_precision precision = p->spec->train.precision;
  /* These have bf16's sizes; the others keep the names that older files have. */
  if (precision == ZP_PREC_MIXED_FP16 || zp_precision_recipe(precision))
    hash = zp_hash(hash, &precision, sizeof precision);
  if (p->spec->train.rounds_sums) hash = zp_hash(hash, &p->spec->train.rounds_sums, sizeof p->spec->train.rounds_sums);
  if (p->lowered->sum_bytes < p->lowered->grad_bytes) hash = zp_hash(hash, "gradient_sums", 13);
  if (zp_context_ranks(c) > 1) hash = zp_hash(hash, &c->context, sizeof c->context);
  if (zp_context_ranks(c) > 1 && c->context_by) hash = zp_hash(hash, zp_context_by_name(c->context_by), 4);
  if (c->shard > 0) hash = zp_hash(hash, &c->shard, sizeof c->shard);
  if (c->hpz > 0) hash = zp_hash(zp_hash(hash, "hpz", 3), &c->hpz, sizeof c->hpz);
  if (c->loss_chunks > 1) hash = zp_hash(hash, &c->loss_chunks, sizeof c->loss_chunks);
  for (int s = 0; s < c->pipeline && c->stage_recompute; s++)
    hash = zp_hash(hash, &c->stage_recompute[s], sizeof c->stage_recompute[s]);
  for (int s = 0; s < c->pipeline && c->mix; s++) {
    int64_t mix[] = {c->mix[s].layers, c->mix[s].rest};
    hash = zp_hash(hash, mix, sizeof mix);
  }
  hash = zp_hash(hash, c->cut, sizeof *c->cut * (size_t)(c->pipeline * zp_chunks(c) + 1));
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    int64_t home[] = {c->home[i].tier, c->home[i].eighths};
    hash = zp_hash(hash, home, sizeof home);
  }
  if (p->spec->cluster.arranged)
    hash = zp_hash(hash, p->spec->cluster.ranges, sizeof(zp_node_range) * (size_t)p->spec->cluster.n_ranges);
  if (c->own_order) hash = zp_hash(hash, &c->own_order->hash, sizeof c->own_order->hash);
  for (int s = 0; s < c->pipeline; s++) hash = zp_hash(hash, &p->stages[s].arena_bytes, sizeof(int64_t));
  for (int i = 0; i < p->spec->model->params.len; i++)
    hash = zp_hash(hash, p->spec->model->params.data[i].name, strlen(p->spec->model->params.data[i].name));
  return zp_format(arena, "%016llx", (unsigned long long)hash);
}
