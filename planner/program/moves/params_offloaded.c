/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that live off the device come up before a unit computes either way, a unit ahead, into a ring of buffers.
 * What the device updates of them comes up once more and goes down again; what the host updates is written where it
 * lives on disks. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return zp_eighths_offloaded(x, ZP_STATE_PARAMS) > 0; }

static void make_unit(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_bucket_walk walk = {0};
  zp_move move = zp_move_begin(x, &zp_params_offloaded, ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, ZP_WAIT_BY_UNIT);
  for (move.bucket = 0; zp_scope_next_bucket(x, &walk); move.bucket++) {
    int64_t offloaded = zp_bucket_offloaded(x, &walk.bucket, ZP_STATE_PARAMS);
    zp_emit_up(x, &move, ZP_STATE_PARAMS, offloaded, x->lowered->param_bytes, offloaded, emit, user);
  }
}

static void make_update(const zp_move_scope *x, zp_on_move *emit, void *user) {
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_PARAMS), state = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER),
          offloaded = gone - state;
  zp_move written = zp_move_begin(x, &zp_params_offloaded, ZP_MOVE_PARAMETERS, ZP_WHEN_AT_HOST_UPDATE, ZP_WAIT_BY_STEP);
  if (zp_on_disk(x, ZP_STATE_PARAMS))
    zp_emit_copy(x, &written, ZP_QUEUE_WRITE, gone < state ? gone : state, x->lowered->param_bytes, emit, user);
  zp_move move = zp_move_begin(x, &zp_params_offloaded, ZP_MOVE_PARAMETERS, ZP_WHEN_AT_DEVICE_UPDATE, ZP_WAIT_BY_STEP);
  zp_emit_up(x, &move, ZP_STATE_PARAMS, offloaded, x->lowered->param_bytes, offloaded, emit, user);
  zp_emit_down(x, &move, ZP_STATE_PARAMS, offloaded, x->lowered->param_bytes, offloaded, emit, user);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  if (x->moment == ZP_MOMENT_ACTION && zp_needs_params(x->act)) make_unit(x, emit, user);
  if (x->moment == ZP_MOMENT_STEP) make_update(x, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "of the parameters %s: they come up twice a micro-batch, a unit ahead",
                   zp_home_words(arena, x, ZP_STATE_PARAMS));
}

static void regions(const zp_move_scope *x, zp_placing *p) {
  zp_need_offloaded(x, p, ZP_STATE_PARAMS, ZP_REGION_HOST_PARAMS, ZP_REGION_FILE_PARAMS, x->lowered->param_bytes);
}

/* Frozen parameters are all on the device, or sharded over the data ranks. */
static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  if (c->home[ZP_STATE_PARAMS].eighths > 0 && zp_model_has_frozen(spec->model))
    return "parameters off the device do not go with frozen ones";
  return zp_refuse_shared_by_heads(c, spec, ZP_STATE_PARAMS);
}

static const char *lacks(const zp_choice *c) {
  const zp_home *home = &c->home[ZP_STATE_PARAMS];
  if (home->eighths == 0) return NULL;
  if (c->tensor > 1 && c->sequence) return ZP_NOT_GENERATED("parameters off the device with sequence-sharded norms");
  return NULL;
}

static zp_move_limits limits(const zp_spec *spec) {
  static const zp_move_limit on_cpus[] = {{ZP_LIMIT_ON_CPUS(ZP_STATE_PARAMS, "params")}};
  return ZP_LIMITS_IF(spec->cluster.node.device.is_cpu, on_cpus);
}

const zp_move_strategy zp_params_offloaded = {
    .name = "parameters offloaded",
    .applies = applies,
    .make = make,
    .explain = explain,
    .ring = {ZP_STATE_PARAMS, 2, 2}, /* one that a unit works with, and one on its way */
    .regions = regions,
    .refuses = refuses,
    .limits = limits,
    .lacks = lacks,
    .provides = 1u << ZP_MOVE_NEED_PARAMS_OFFLOADED,
};
