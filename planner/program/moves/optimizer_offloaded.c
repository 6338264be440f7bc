/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer state that lives off the device is updated on the host (arXiv 2101.06840), in pieces that follow each other
 * over all links: gradients down unless they are there, weights up unless they stay there, state from disks and back in
 * whole pages. Host memory: what the update reads and writes, and what is copied up once more. Of 1-bit Adam with ZeRO
 * 1 gradients and weights move so until the variance freezes (one_bit.c).
 *
 * A delayed update (section 5.2 there) goes on alongside the next step, which ends with its weights going up, and the
 * next gradients down to where these left: of those that are on the host already a copy. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return zp_eighths_offloaded(x, ZP_STATE_OPTIMIZER) > 0; }

static int64_t positive(int64_t value) { return value > 0 ? value : 0; }

/* With mixed precision weights are written alongside the master copy. */
static int update_bytes(const zp_lowered *l, bool takes_gradients) {
  zp_host_pass pass = zp_host_update(l);
  return pass.read + pass.written + (takes_gradients ? l->grad_bytes : 0) +
         (l->compute_bytes == 2 ? l->param_bytes : 0);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  const zp_lowered *l = x->lowered;
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER);
  int64_t down = positive(gone - zp_scope_offloaded(x, ZP_STATE_GRADIENTS));
  int64_t up = positive(gone - zp_scope_offloaded(x, ZP_STATE_PARAMS));
  zp_host_pass pass = zp_host_update(l);
  zp_move move =
      zp_move_begin(x, &zp_optimizer_offloaded, ZP_MOVE_GRADIENTS, zp_gradients_come_down(l), ZP_WAIT_BY_STEP);
  zp_move_warms_up(&move, x->choice->compress && zp_shards_state(x->choice));
  zp_emit_copy(x, &move, ZP_QUEUE_DOWN, down, l->grad_bytes, emit, user);
  move.when = ZP_WHEN_AT_HOST_UPDATE;
  move.what = ZP_MOVE_PARAMETERS;
  zp_emit_copy(x, &move, ZP_QUEUE_UP, up, l->param_bytes, emit, user);
  zp_emit_copy(x, &move, ZP_QUEUE_HOST_MEMORY, up, l->param_bytes, emit, user);
  if (l->spec->train.delayed) {
    move.what = ZP_MOVE_GRADIENTS;
    zp_emit_copy(x, &move, ZP_QUEUE_HOST_MEMORY, gone - down, 2 * l->grad_bytes, emit, user);
    move.when = ZP_WHEN_OVERLAPPED_NEXT;
    move.wait = ZP_WAIT_BY_NEXT;
  }
  move.what = ZP_MOVE_OPTIMIZER;
  zp_move_warms_up(&move, false);
  bool takes_gradients = zp_gradients_come_down(l) == ZP_WHEN_AT_HOST_UPDATE;
  zp_emit_copy(x, &move, ZP_QUEUE_HOST_MEMORY, gone, update_bytes(l, takes_gradients), emit, user);
  if (!zp_on_disk(x, ZP_STATE_OPTIMIZER)) return;
  zp_emit_copy(x, &move, ZP_QUEUE_READ, zp_state_pages(x), pass.read, emit, user);
  zp_emit_copy(x, &move, ZP_QUEUE_WRITE, zp_state_pages(x), pass.written, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "of the optimizer's state %s: updated by the host's cores, %s",
                   zp_home_words(arena, x, ZP_STATE_OPTIMIZER),
                   x->lowered->spec->train.delayed ? "alongside the next step" : "piece by piece");
}

/* On the host the weights that the update writes (with mixed precision the master copy is that), the rest of the state,
 * and with mixed precision two windows of weights going; for disks windows of whole pages. A delayed update has all its
 * gradients there, and the weights that it writes in their place; windows only where gradients land. */
static void regions(const zp_move_scope *x, zp_placing *p) {
  const zp_lowered *l = x->lowered;
  zp_stage *s = p->stage;
  int64_t gone = p->held[ZP_STATE_OPTIMIZER].offloaded, state_bytes = zp_update_state_bytes(l);
  if (gone == 0) return;
  zp_need_landing(x, p);
  bool delayed = l->spec->train.delayed, mixed = l->compute_bytes == 2;
  int64_t window = s->window[ZP_STATE_OPTIMIZER];
  zp_need(p, ZP_REGION_HOST_WEIGHTS_OUT, mixed && !delayed ? 2 * window * l->param_bytes : 0);
  zp_need(p, ZP_REGION_HOST_DELAYED, delayed ? gone * l->grad_bytes : 0);
  zp_need(p, ZP_REGION_HOST_STATE, zp_on_disk(x, ZP_STATE_OPTIMIZER) ? 0 : gone * state_bytes);
  if (!zp_on_disk(x, ZP_STATE_OPTIMIZER)) return;
  int64_t pieces = (gone + window - 1) / window, whole = zp_round_up(gone, ZP_PAGE_ELEMENTS);
  s->state_windows = pieces < ZP_WINDOWS ? pieces : ZP_WINDOWS;
  zp_need(p, ZP_REGION_HOST_STATE, s->state_windows * (window < whole ? window : whole) * state_bytes);
  zp_need(p, ZP_REGION_FILE_STATE, whole * state_bytes);
}

/* A delayed update wants optimizer state on the host, parameters on the device, gradients on either, and whole ones. */
static zp_move_limits limits(const zp_spec *spec) {
  static const zp_move_limit on_cpus[] = {{ZP_LIMIT_ON_CPUS(ZP_STATE_OPTIMIZER, "optimizer")}};
  static const zp_move_limit delayed[] = {
      {ZP_LIMIT_OFFLOAD(ZP_STATE_OPTIMIZER, "optimizer"), .keep = ZP_BIT(ZP_TIER_HOST), .unwritten = true,
       .why = "`delayed_update` updates on the host",
       .help = "offload[optimizer] = \"cpu\", or leave it out; without `delayed_update` state may be anywhere"},
      {ZP_LIMIT_OFFLOAD(ZP_STATE_GRADIENTS, "gradients"), .keep = ZP_NO_DISKS,
       .why = "`delayed_update` keeps no gradients on disks", .help = "\"none\" and \"cpu\" go with `delayed_update`"},
      {ZP_LIMIT_OFFLOAD(ZP_STATE_PARAMS, "params"), .keep = ZP_ON_DEVICE,
       .why = "`delayed_update` keeps parameters on the device",
       .help = "offload[params] = \"none\", or leave it or `delayed_update` out"},
      {ZP_LIMIT_NO_COMPRESSION, .why = "`delayed_update` takes sums of whole gradients",
       .help = "leave `compress` or `delayed_update` out"}};
  if (spec->cluster.node.device.is_cpu) return ZP_LIMITS_IF(true, on_cpus);
  return ZP_LIMITS_IF(spec->train.delayed, delayed);
}

/* The value of a step's weights depends on it, so a delay is not left out where it cannot be had. */
static zp_move_objection objects(zp_arena *arena, const zp_spec *spec) {
  const zp_cluster *cluster = &spec->cluster;
  if (!spec->train.delayed) return (zp_move_objection){.why = NULL};
  if (cluster->node.device.is_cpu)
    return (zp_move_objection){spec->train.delay_span,
                               "`delayed_update` moves the update to the host, and CPU ranks compute there",
                               "leave it out, or choose a cluster of GPUs with --cluster"};
  if (cluster->trainer == ZP_TRAINER_ZPLAN) return (zp_move_objection){.why = NULL};
  return (zp_move_objection){
      spec->train.delay_span,
      zp_format(arena, "%s is planned without a delayed update", zp_trainer_title(cluster->trainer)),
      "zplan's own trainer has it: --for zplan"};
}

static const char *refuses_complete(const zp_choice *c, const zp_spec *spec) {
  const zp_home *home = &c->home[ZP_STATE_OPTIMIZER];
  if (!spec->train.delayed || (home->tier == ZP_TIER_HOST && home->eighths == 8)) return NULL;
  return "delayed_update needs all of the optimizer's state on the host: offload[optimizer] = \"cpu\"";
}

static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  bool delayed = spec->train.delayed;
  if (delayed && c->home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_NVME)
    return "delayed_update keeps optimizer state on the host, not on disks";
  if (delayed && c->home[ZP_STATE_GRADIENTS].tier == ZP_TIER_NVME)
    return "delayed_update does not go with gradients on disks";
  if (delayed && c->home[ZP_STATE_PARAMS].tier != ZP_TIER_DEVICE)
    return "delayed_update does not go with parameters off the device";
  if (delayed && c->compress) return "delayed_update does not go with compress";
  return zp_refuse_home(c, spec, ZP_STATE_OPTIMIZER);
}

const zp_move_strategy zp_optimizer_offloaded = {
    .name = "optimizer offloaded",
    .applies = applies,
    .make = make,
    .explain = explain,
    .regions = regions,
    .refuses = refuses,
    .refuses_complete = refuses_complete,
    .objects = objects,
    .limits = limits,
    .provides = 1u << ZP_MOVE_NEED_OPTIMIZER_OFFLOADED,
};
