/* Optimizer state that lives off the device is updated on the host (arXiv 2101.06840), in pieces that follow each other
 * over all links: gradients down unless they are there, weights up unless they stay there, state from disks and back in
 * whole pages. Host memory: what the update reads and writes, and what is copied up once more. Of 1-bit Adam with ZeRO
 * 1 gradients and weights move so until the variance freezes (signs.c). */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return zp_eighths_away(x, ZP_STATE_OPTIMIZER) > 0; }

static int64_t positive(int64_t value) { return value > 0 ? value : 0; }

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  const zp_lowered *l = x->lowered;
  int64_t gone = zp_scope_offloaded(x, ZP_STATE_OPTIMIZER);
  int64_t down = positive(gone - zp_scope_offloaded(x, ZP_STATE_GRADIENTS));
  int64_t up = positive(gone - zp_scope_offloaded(x, ZP_STATE_PARAMS));
  zp_move move = zp_move_begin(x, &zp_optimizer_away, ZP_MOVE_GRADIENTS, ZP_WHEN_AT_HOST_UPDATE, ZP_WAIT_BY_STEP);
  zp_move_warms_up(&move, x->choice->compress && zp_shards_state(x->choice));
  zp_emit_copy(x, &move, ZP_QUEUE_DOWN, down, l->grad_bytes, emit, user);
  move.what = ZP_MOVE_PARAMETERS;
  zp_emit_copy(x, &move, ZP_QUEUE_UP, up, l->param_bytes, emit, user);
  zp_emit_copy(x, &move, ZP_QUEUE_HOST_MEMORY, up, l->param_bytes, emit, user);
  move.what = ZP_MOVE_OPTIMIZER;
  zp_move_warms_up(&move, false);
  zp_emit_copy(x, &move, ZP_QUEUE_HOST_MEMORY, gone, zp_update_bytes(l), emit, user);
  if (!zp_on_disk(x, ZP_STATE_OPTIMIZER)) return;
  int64_t pages = x->together ? gone : zp_round_up(gone, ZP_PAGE_BYTES / 2);
  zp_emit_copy(x, &move, ZP_QUEUE_READ, pages, zp_update_state_bytes(l), emit, user);
  zp_emit_copy(x, &move, ZP_QUEUE_WRITE, pages, zp_update_state_bytes(l), emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "of the optimizer's state %s: updated by the host's cores, piece by piece",
                   zp_home_words(arena, x, ZP_STATE_OPTIMIZER));
}

static void make_room(const zp_move_scope *x, zp_move_room *room) {
  zp_raise_away(x, ZP_STATE_OPTIMIZER, ZP_MOVE_OPTIMIZER, 0, room);
}

static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  return zp_refuse_home(c, spec, ZP_STATE_OPTIMIZER);
}

const zp_move_strategy zp_optimizer_away = {"optimizer away", applies, make, explain,
                                            make_room,        refuses, NULL, 1u << ZP_MOVE_NEED_OPTIMIZER_AWAY};
