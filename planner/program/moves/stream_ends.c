/* SPDX-License-Identifier: Apache-2.0 */
/* Streams at the ends of a chunk: its last unit's are copied into the message to the next chunk, and a message that has
 * some is taken apart, because they stand elsewhere in the slot than the first unit's own input. Two passes over the
 * bytes, which are counted here and not priced. */
#include "strategy.h"

#include <zplan/buf.h>

enum { READ_AND_WRITTEN = 2 };

static bool applies(const zp_move_scope *x) { return x->choice->pipeline > 1 && x->lowered->streams.len > 0; }

/* What runs unit `unit`. */
static const zp_segment_program *runs(const zp_move_scope *x, int64_t unit) {
  int segment;
  int64_t iteration;
  zp_unit(x->lowered, unit, &segment, &iteration);
  return &x->lowered->segments[segment];
}

static int64_t handed_on(const zp_move_scope *x, const zp_segment_program *last) {
  int64_t elements = 0;
  for (int i = 0; i < last->graph->carry_in.len; i++)
    if (last->carries[i].passes) elements += x->lowered->streams.data[last->carries[i].stream];
  return elements;
}

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) {
  const zp_choice *c = x->choice;
  int64_t k = zp_model_chunk(c, x->stage->index, x->chunk);
  const zp_segment_program *first = runs(x, c->cut[k]), *last = runs(x, c->cut[k + 1] - 1);
  if (x->act != ZP_ACT_F) return;
  int64_t in = zp_takes_streams(first) ? first->carry_in_elements : 0, out = handed_on(x, last);
  zp_move move = zp_move_begin(x, &zp_stream_ends, ZP_MOVE_STREAM, ZP_WHEN_AFTER_ACTION, ZP_WAIT_AT_ONCE);
  if (in + out > 0)
    zp_emit_copy(x, &move, ZP_QUEUE_DEVICE_MEMORY, in + out, READ_AND_WRITTEN * x->lowered->compute_bytes, emit, user);
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "%d tensors that units only hand on or read are copied where a stage begins or ends",
                   x->lowered->streams.len);
}

const zp_move_strategy zp_stream_ends = {
    .name = "streams at the ends of chunks",
    .applies = applies,
    .make = make,
    .explain = explain,
};
