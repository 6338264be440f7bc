/* SPDX-License-Identifier: Apache-2.0 */
/* The update on the device, inside its memory, of one element (AdamW in f32: 32 bytes): the norm reads the gradient;
 * the update reads gradient, state (moments, master copy, average of the weights) and, without a master copy, weights,
 * and writes state and weights. Optimizers that need lengths of tensors in between read some of that again
 * (zp_optimizer.again). */
#include "strategy.h"

#include <zplan/buf.h>

/* A master copy stands for the weights. */
static bool has_master(const zp_lowered *l) { return l->compute_bytes == 2; }

int zp_update_bytes(const zp_lowered *l) {
  const zp_optimizer *row = zp_optimizer_facts(&l->spec->train);
  int once = l->sum_bytes + 2 * l->state_bytes + (has_master(l) ? 1 : 2) * l->param_bytes;
  int weights = has_master(l) ? 4 : l->param_bytes, kept = zp_n_kept(&l->spec->train) * l->stat_bytes;
  return once + row->again.gradients * l->grad_bytes + row->again.weights * weights + row->again.kept * kept;
}

int zp_update_state_bytes(const zp_lowered *l) { return l->state_bytes + (has_master(l) ? 0 : l->param_bytes); }

static bool applies(const zp_move_scope *x) {
  (void)x;
  return true;
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  int64_t shard = zp_scope_shard(x), gradients = shard - zp_scope_offloaded(x, ZP_STATE_GRADIENTS);
  zp_move norm = zp_move_begin(x, &zp_device_update, ZP_MOVE_GRADIENTS, ZP_WHEN_AT_NORM, ZP_WAIT_AT_ONCE);
  zp_emit_copy(x, &norm, ZP_QUEUE_DEVICE_MEMORY, gradients, x->lowered->sum_bytes, emit, user);
  zp_move update = zp_move_begin(x, &zp_device_update, ZP_MOVE_OPTIMIZER, ZP_WHEN_AT_DEVICE_UPDATE, ZP_WAIT_AT_ONCE);
  zp_emit_copy(x, &update, ZP_QUEUE_DEVICE_MEMORY, shard - zp_scope_offloaded(x, ZP_STATE_OPTIMIZER),
               zp_update_bytes(x->lowered), emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "the device updates %d/8 of its state, %d bytes an element",
                   8 - zp_eighths_offloaded(x, ZP_STATE_OPTIMIZER), zp_update_bytes(x->lowered));
}

/* The steps of 1-bit Adam that exchange momentum have kernels of their own, without an average. */
static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  if (c->compress && spec->train.ema > 0) return "compress does not go with ema";
  return NULL;
}

static void regions(const zp_move_scope *x, zp_placing *p) {
  const zp_lowered *l = x->lowered;
  int64_t here = p->held[ZP_STATE_OPTIMIZER].here;
  static const zp_region kept[] = {
#define STATE_MOMENT(region, field, key, name) ZP_REGION_##region,
#include <zplan/state_regions.def>
  };
  zp_need(p, ZP_REGION_MASTER, has_master(l) ? here * 4 : 0);
  for (zp_kept i = 0; i < ZP_KEPT_COUNT; i++)
    zp_need(p, kept[i], zp_keeps(&l->spec->train, i) ? here * l->stat_bytes : 0);
  zp_need(p, ZP_REGION_AVERAGE, here * l->average_bytes);
  zp_need(p, ZP_REGION_STATISTICS, p->stage->statistics * l->stat_bytes);
}

const zp_move_strategy zp_device_update = {
    .name = "update",
    .applies = applies,
    .make = make,
    .explain = explain,
    .regions = regions,
    .refuses = refuses,
};
