/* SPDX-License-Identifier: Apache-2.0 */
/* What neighbouring chunks of the model hand each other on one stage, where the schedule folds the model (ZB-V,
 * DualPipeV): the receiving chunk copies it from where the message would have been sent. Two passes over the bytes of a
 * message, which are counted here and not priced. */
#include <zplan/schedule.h>
#include "strategy.h"

#include <zplan/buf.h>

enum { READ_AND_WRITTEN = 2 };

/* Folded, the last stage has both of the model's middle chunks. */
static bool applies(const zp_move_scope *x) {
  const zp_choice *c = x->choice;
  return c->pipeline > 1 && zp_chunks(c) > 1 &&
         zp_chunk_stage(c, c->pipeline - 1, NULL) == zp_chunk_stage(c, c->pipeline, NULL);
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  if (x->act == ZP_ACT_BW) return;
  int64_t k = zp_model_chunk(x->choice, x->stage->index, x->chunk);
  int64_t elements = zp_scope_carry(x, x->act == ZP_ACT_F ? k + 1 : k, true);
  zp_move move = zp_move_begin(x, &zp_hand_over, ZP_MOVE_MESSAGE, ZP_WHEN_AFTER_ACTION, ZP_WAIT_BY_RECEIVER);
  if (elements > 0)
    zp_emit_copy(x, &move, ZP_QUEUE_DEVICE_MEMORY, elements, READ_AND_WRITTEN * x->lowered->compute_bytes, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  (void)x;
  return zp_format(arena, "chunks of one stage that follow each other in the model copy what flows between them");
}

const zp_move_strategy zp_hand_over = {
    .name = "hand-over on a stage",
    .applies = applies,
    .make = make,
    .explain = explain,
};
