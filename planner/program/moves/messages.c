/* SPDX-License-Identifier: Apache-2.0 */
/* What chunks of the model send each other over pipeline stages: activations up after forward, their gradients down
 * after backward, or after its first part. */
#include <zplan/schedule.h>
#include "strategy.h"

#include <zplan/buf.h>

static bool applies(const zp_move_scope *x) { return x->choice->pipeline > 1; }

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  if (x->act == ZP_ACT_BW) return;
  int64_t k = zp_model_chunk(x->choice, x->stage->index, x->chunk);
  zp_move move = zp_move_begin(x, &zp_pipeline_messages, ZP_MOVE_MESSAGE, ZP_WHEN_AFTER_ACTION, ZP_WAIT_BY_RECEIVER);
  move.way = ZP_WAY_SEND;
  move.queue = ZP_QUEUE_MESSAGES;
  move.from = ZP_END_DEVICE;
  move.to = ZP_END_NEIGHBOUR;
  move.elements = zp_scope_carry(x, x->act == ZP_ACT_F ? k + 1 : k, false);
  move.element_bytes = x->lowered->compute_bytes;
  move.all_elements = move.elements * x->choice->tensor * x->choice->data;
  move.ranks = 2;
  if (move.elements == 0) return;
  move.other = zp_chunk_stage(x->choice, x->act == ZP_ACT_F ? k + 1 : k - 1, NULL);
  emit(user, &move);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "%d stages, %lld micro-batches: activations go up, their gradients down", x->choice->pipeline,
                   (long long)x->microbatches);
}

/* Bytes for the messages of so many chunks in one direction; the last buffer ends with its message. */
static int64_t buffers(const zp_placing *p, int64_t chunks) {
  return chunks > 0 ? (chunks * p->stage->messages - 1) * p->stage->message_stride + p->carry_bytes : 0;
}

static void regions(const zp_move_scope *x, zp_placing *p) {
  int64_t landings = zp_stage_landings(x->lowered->spec, x->choice, p->stage->index);
  zp_need(p, ZP_REGION_LANDING, landings > 0 ? (landings - 1) * p->stage->message_stride + p->carry_bytes : 0);
  zp_need(p, ZP_REGION_SEND_UP, buffers(p, p->up));
  zp_need(p, ZP_REGION_SEND_DOWN, buffers(p, p->down));
}

const zp_move_strategy zp_pipeline_messages = {
    .name = "pipeline messages",
    .applies = applies,
    .make = make,
    .explain = explain,
    .regions = regions,
    .provides = 1u << ZP_MOVE_NEED_MESSAGES,
};
