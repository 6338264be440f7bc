/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter on several stages: its gradients are summed over them before the update, with ZeRO 1 to 3 piece by piece.
 * The first of the stages counts the bytes. */
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return x->program && x->program->tied.len > 0; }

static bool has(const zp_tied *tie, int stage) {
  for (int i = 0; i < tie->stages.len; i++)
    if (tie->stages.data[i] == stage) return true;
  return false;
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  for (int i = 0; i < x->program->tied.len; i++) {
    const zp_tied *tie = &x->program->tied.data[i];
    if (!has(tie, x->stage->index)) continue;
    zp_move move = zp_move_begin(x, &zp_tied_weights, ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_BACKWARD, ZP_WAIT_BY_NORM);
    move.way = ZP_WAY_ALL_REDUCE;
    move.queue = ZP_QUEUE_TIES;
    move.from = ZP_END_DEVICE;
    move.to = ZP_END_TIED_STAGES;
    move.elements = tie->summed;
    move.element_bytes = x->lowered->grad_bytes;
    move.all_elements = tie->summed * x->choice->tensor * x->choice->data;
    move.ranks = tie->stages.len;
    move.other = i;
    move.mirrored = tie->stages.data[0] != x->stage->index;
    emit(user, &move);
  }
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  int n = x->program->tied.len;
  return zp_format(arena, "%d weight%s on several stages, summed over them once a step", n, n == 1 ? "" : "s");
}

const zp_move_strategy zp_tied_weights = {
    .name = "tied weights",
    .applies = applies,
    .make = make,
    .explain = explain,
};
