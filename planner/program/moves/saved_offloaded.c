/* SPDX-License-Identifier: Apache-2.0 */
/* Saved values that live off the device leave after a unit's forward and come back for either part of its backward;
 * what the first of two parts changes leaves again. A unit works in a ring of buffers (ZP_SAVED_BUFFERS), between which
 * and its slot what stays on the device is copied, between kernels. Other programs move whole layers: of their units as
 * much as of all layers together leaves, and nothing is copied on the device. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return zp_eighths_offloaded(x, ZP_STATE_ACTIVATIONS) > 0; }

/* Bytes off the device, and their room on disks. A relaxation: of units together, less what rounding to whole lines or
 * pages keeps of each of them at most. */
static int64_t offloaded_of(const zp_move_scope *x, int64_t *room) {
  int eighths = zp_eighths_offloaded(x, ZP_STATE_ACTIVATIONS);
  if (x->together) {
    int64_t kept = x->units * ((zp_on_disk(x, ZP_STATE_ACTIVATIONS) ? ZP_PAGE_BYTES : ZP_ALIGN_BYTES) + 8);
    int64_t offloaded = x->saved_bytes / 8 * eighths - (eighths < 8 ? kept : 0);
    return *room = offloaded > 0 ? offloaded : 0;
  }
  int64_t saved = x->lowered->segments[x->segment].saved_bytes;
  *room = zp_saved_offloaded_stride(x->choice, saved);
  return zp_saved_offloaded(x->choice, saved);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  enum { READ_AND_WRITTEN = 2 };
  int64_t saved = x->together ? x->saved_bytes : x->lowered->segments[x->segment].saved_bytes, room;
  int64_t offloaded = offloaded_of(x, &room);
  bool changed = !x->together && x->lowered->segments[x->segment].changes_saved;
  int64_t copied = x->lowered->spec->cluster.software ? 0 : saved - offloaded;
  if (x->act != ZP_ACT_F) {
    zp_move in = zp_move_begin(x, &zp_saved_offloaded_strategy, ZP_MOVE_SAVED, ZP_WHEN_BEFORE_UNIT, ZP_WAIT_BY_UNIT),
            stays = in;
    stays.wait = ZP_WAIT_AT_ONCE;
    zp_emit_up(x, &in, ZP_STATE_ACTIVATIONS, offloaded, 1, room, emit, user);
    zp_emit_copy(x, &stays, ZP_QUEUE_DEVICE_MEMORY, copied, READ_AND_WRITTEN, emit, user);
  }
  if (x->act == ZP_ACT_F || (x->act == ZP_ACT_BI && changed)) {
    zp_move out = zp_move_begin(x, &zp_saved_offloaded_strategy, ZP_MOVE_SAVED, ZP_WHEN_AFTER_UNIT, ZP_WAIT_BY_BUFFER),
            stays = out;
    stays.wait = ZP_WAIT_AT_ONCE;
    zp_emit_down(x, &out, ZP_STATE_ACTIVATIONS, offloaded, 1, room, emit, user);
    zp_emit_copy(x, &stays, ZP_QUEUE_DEVICE_MEMORY, copied, READ_AND_WRITTEN, emit, user);
  }
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "of what a unit keeps for backward %s: it leaves after forward and comes back a unit ahead",
                   zp_home_words(arena, x, ZP_STATE_ACTIVATIONS));
}

/* The last eighths of every unit's saved values leave. Its steps want them in one piece, so the unit works in a buffer
 * of a ring, from which one part goes to its slot and the other one to the host, and back. */
static void regions(const zp_move_scope *x, zp_placing *p) {
  zp_stage *s = p->stage;
  int64_t offloaded = s->pooled ? s->slots * s->offloaded_stride : p->totals->offloaded_bytes;
  bool disk = zp_on_disk(x, ZP_STATE_ACTIVATIONS);
  zp_need(p, ZP_REGION_HOST_SLOTS, disk ? ZP_WINDOWS * p->totals->unit_offloaded_bytes : offloaded);
  zp_need(p, ZP_REGION_FILE_SLOTS, disk ? offloaded : 0);
}

static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  if (c->mix && c->home[ZP_STATE_ACTIVATIONS].eighths > 0)
    return "activations off the device do not go with layers of a stage that recompute differently";
  return zp_refuse_home(c, spec, ZP_STATE_ACTIVATIONS);
}

static zp_move_limits limits(const zp_spec *spec) {
  static const zp_move_limit on_cpus[] = {{ZP_LIMIT_ON_CPUS(ZP_STATE_ACTIVATIONS, "activations")}};
  return ZP_LIMITS_IF(spec->cluster.node.device.is_cpu, on_cpus);
}

const zp_move_strategy zp_saved_offloaded_strategy = {
    .name = "saved values offloaded",
    .applies = applies,
    .make = make,
    .explain = explain,
    .ring = {ZP_STATE_ACTIVATIONS, ZP_SAVED_BUFFERS, ZP_SAVED_BUFFERS},
    .regions = regions,
    .refuses = refuses,
    .limits = limits,
    .provides = 1u << ZP_MOVE_NEED_SAVED_OFFLOADED,
};
