/* SPDX-License-Identifier: Apache-2.0 */
/* Actions of an order table as a trainer does them (codegen/trainer/units.c, saved.c): slots, messages, inputs and
 * gradients between units, saved values that leave the device and come back. */
#include "replay_internal.h"

#define LL(x) ((long long)(x))

/* ---- places that calls share ---- */

static bool splits(const zp_replay *r) { return zp_schedule_splits(r->program->choice.schedule); }
static bool saved_leave(const zp_replay *r) { return r->program->choice.home[ZP_STATE_ACTIVATIONS].eighths > 0; }
static int chunk_index(const zp_replay *r, const zp_replay_chunk *chunk) { return (int)(chunk - r->chunk); }

static bool keeps_input(const zp_replay_call *call) { return zp_keeps_input(call->seg); }

/* Place of the micro-batch among the slots, -1: none. who: 0 finds a free one. */
static int64_t owned(const zp_replay *r, int64_t who) {
  for (int64_t i = 0; i < r->stage->slots; i++)
    if (r->owner[i] == who) return i;
  return -1;
}

static int64_t who(const zp_replay *r, const zp_replay_chunk *chunk, int64_t mb) {
  return 1 + chunk_index(r, chunk) * r->microbatches + mb;
}

static int64_t slot_of(const zp_replay *r, const zp_replay_chunk *chunk, int64_t mb) {
  int64_t slots = r->stage->chunks[chunk_index(r, chunk)].slots;
  if (r->stage->pooled) return owned(r, who(r, chunk, mb));
  return slots > 0 ? mb % slots : -1;
}

/* Where the slot begins on the device. */
static int64_t slot_at(const zp_replay *r, const zp_replay_chunk *chunk, int64_t mb) {
  const zp_stage *s = r->stage;
  int64_t slot = slot_of(r, chunk, mb), at = zp_stage_slots_at(s, chunk_index(r, chunk));
  if (slot < 0 || at < 0) return -1;
  return at + slot * (s->pooled ? s->slot_stride : s->chunks[chunk_index(r, chunk)].slot_stride);
}

static int64_t area_of_slot(const zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  const zp_replay_call *call = &chunk->call[j];
  int64_t here = call->seg->saved_bytes - zp_saved_offloaded(&r->program->choice, call->seg->saved_bytes);
  int64_t at = slot_at(r, chunk, mb);
  return at < 0 ? -1 : at + call->run->saved + call->i * here;
}

static int64_t saved_of(const zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  if (!saved_leave(r)) return area_of_slot(r, chunk, j, mb);
  return r->stage->at[ZP_REGION_SAVED_RING] < 0
             ? -1
             : r->stage->at[ZP_REGION_SAVED_RING] + j % ZP_SAVED_BUFFERS * r->stage->saved_ring_stride;
}

static int64_t pending_of(const zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  int k = chunk_index(r, chunk);
  const zp_chunk *c = &r->stage->chunks[k];
  const zp_replay_call *call = &chunk->call[j];
  int64_t at = zp_stage_pending_at(r->stage, k);
  if (!splits(r) || at < 0 || c->pending == 0) return -1;
  return at + mb % c->pending * zp_chunk_pending_stride(c) + call->run->pending +
         call->i * zp_unit_pending_bytes(call->seg, &r->program->choice);
}

static int64_t input_of(const zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  return keeps_input(&chunk->call[j]) ? saved_of(r, chunk, j, mb) : r->stage->at[ZP_REGION_CARRY0 + j % 2];
}

static int64_t gradient_of(const zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  if (splits(r) && chunk->call[j].seg->keeps_gradient) return pending_of(r, chunk, j, mb);
  return r->stage->at[ZP_REGION_GRAD0 + (chunk->calls - 1 - j) % 2];
}

static int64_t message_at(const zp_replay *r, const zp_replay_chunk *chunk, bool up, int64_t mb) {
  int64_t at = zp_stage_send_at(&r->program->choice, r->stage, chunk_index(r, chunk), up);
  return at < 0 ? -1 : at + mb % r->stage->messages * r->stage->message_stride;
}

/* ---- what flows between units ---- */

zp_shadow_place zp_replay_carried(const zp_replay *r, const zp_replay_call *call, bool in, int64_t at, int i) {
  const zp_graph *g = call->seg->graph;
  const zp_ints *carry = in ? &g->carry_in : &g->carry_out;
  const zp_shape *shape = &g->tensors.data[carry->data[i]].shape;
  int64_t size = r->lowered->compute_bytes, mb = r->lowered->microbatch, row = zp_shape_cols(shape) * size;
  return (zp_shadow_place){at, zp_shape_elements(shape, mb) * size, row, 0, row, 0, 0};
}

/* Tensor i of messages and gradients, which stand in a row from byte `at` on. */
static zp_shadow_place in_a_row(const zp_replay *r, const zp_replay_call *call, bool in, int64_t at, int i) {
  const zp_graph *g = call->seg->graph;
  int64_t before = zp_carried_elements(g, in ? &g->carry_in : &g->carry_out, i, r->lowered->microbatch);
  return zp_replay_carried(r, call, in, at + before * r->lowered->compute_bytes, i);
}

/* Tensor i of a call's input: among the streams of the slot, or in the call's own input. */
static int64_t place_in(const zp_replay *r, const zp_replay_frame *f, const zp_replay_call *call, int64_t own, int i) {
  const zp_carry *c = &call->seg->carries[i];
  if (c->stream < 0) return own < 0 ? -1 : own + c->at * r->lowered->compute_bytes;
  uint64_t streams = r->stage->chunks[chunk_index(r, f->chunk)].streams;
  if (f->slot < 0 || !(streams >> c->stream & 1)) return -1;
  return f->slot + zp_stream_at(r->lowered, streams, c->stream);
}

int64_t zp_replay_in_at(const zp_replay *r, const zp_replay_frame *f, int i) {
  return place_in(r, f, f->call, f->x, i);
}

int64_t zp_replay_out_at(const zp_replay *r, const zp_replay_frame *f, int i) {
  if (f->next) return place_in(r, f, f->next, f->y, i);
  return f->y < 0 ? -1 : in_a_row(r, f->call, false, f->y, i).at;
}

static bool hands_on(const zp_replay *r, int segment, int i) {
  const zp_graph *g = r->lowered->segments[segment].graph;
  return i < g->carry_in.len && g->carry_in.data[i] == g->carry_out.data[i];
}

/* Known by the first unit that it flows into unchanged. */
uint64_t zp_replay_flowing(const zp_replay *r, int i, int64_t unit, int64_t mb) {
  const zp_pieces *pieces = r->lowered->pieces;
  while (unit > 0) {
    int index;
    int64_t iteration;
    zp_unit(r->lowered, unit - 1, &index, &iteration);
    const zp_piece *p = &pieces->piece[index];
    if (hands_on(r, p->whole, i)) /* so do all iterations before it */
      unit -= iteration * pieces->parts[p->whole] + p->first + 1;
    else if (hands_on(r, index, i))
      unit--;
    else
      break;
  }
  return zp_replay_value(ZP_TAG_CARRY, i, unit, mb);
}

/* What a tensor that flows before unit `unit` is known by, or its gradient. */
static uint64_t flowing(const zp_replay *r, bool up, int i, int64_t unit, int64_t mb) {
  return up ? zp_replay_flowing(r, i, unit, mb) : zp_replay_value(ZP_TAG_CARRY_GRAD, i, unit, mb);
}

static int carried_tensors(const zp_replay_call *call, bool in) {
  return in ? call->seg->graph->carry_in.len : call->seg->graph->carry_out.len;
}

/* The call has made what flows on: from here it is known by the place between two units. */
static void hand_on(zp_replay *r, const zp_replay_frame *f, bool up) {
  const zp_graph *g = f->call->seg->graph;
  const zp_ints *made = up ? &g->carry_out : &g->grad_out;
  zp_replay_part part;
  for (int i = 0; i < made->len; i++) {
    zp_shadow_place place =
        up ? zp_replay_carried(r, f->call, false, zp_replay_out_at(r, f, i), i) : in_a_row(r, f->call, true, f->dx, i);
    if (place.at < 0) {
      zp_replay_find(r, f, "`%s` has no place after the unit", g->tensors.data[made->data[i]].name);
      continue;
    }
    zp_replay_want(r, f, place, zp_replay_value_of(r, f, made->data[i], &part), g->tensors.data[made->data[i]].name);
    zp_shadow_write(&r->device, place, flowing(r, up, i, up ? f->call->end : f->call->first, f->mb));
  }
}

static void receive(zp_replay *r, const zp_replay_chunk *chunk, bool up, int64_t mb) {
  int64_t j = up ? 0 : chunk->calls - 1;
  const zp_replay_call *call = &chunk->call[j];
  bool lands = up && zp_takes_streams(call->seg); /* it is taken apart */
  int64_t at = lands ? r->stage->at[ZP_REGION_GRAD0] : up ? input_of(r, chunk, 0, mb) : gradient_of(r, chunk, j, mb);
  if ((up ? chunk->part == 0 : chunk->is_last)) return;
  if (at < 0) zp_replay_find(r, NULL, "nothing receives the message of micro-batch %lld", LL(mb));
  for (int i = 0; at >= 0 && i < carried_tensors(call, up); i++)
    zp_shadow_write(&r->device, in_a_row(r, call, up, at, i), flowing(r, up, i, up ? call->first : call->end, mb));
  zp_replay_frame f = {.chunk = chunk, .call = call, .x = input_of(r, chunk, j, mb), .slot = slot_at(r, chunk, mb)};
  for (int i = 0; lands && at >= 0 && i < carried_tensors(call, up); i++) {
    zp_shadow_place from = in_a_row(r, call, up, at, i);
    int64_t to = zp_replay_in_at(r, &f, i);
    if (to < 0)
      zp_replay_find(r, NULL, "a part of the message of micro-batch %lld has no place", LL(mb));
    else
      zp_shadow_copy(&r->device, from.at, from.bytes, &r->device, to);
  }
}

/* The message of micro-batch mb may be on its way until its buffer is wanted again, and is whole until then. */
void zp_replay_expect_message(zp_replay *r, const zp_replay_chunk *chunk, bool up, int64_t mb) {
  const zp_replay_call *call = &chunk->call[up ? chunk->calls - 1 : 0];
  int64_t at = message_at(r, chunk, up, mb);
  if (mb < 0 || mb >= r->microbatches || at < 0) return;
  for (int i = 0; i < carried_tensors(call, !up); i++)
    zp_replay_want(r, NULL, in_a_row(r, call, !up, at, i), flowing(r, up, i, up ? call->end : call->first, mb),
                   up ? "a message to the next stage" : "a message to the stage before");
}

/* ---- saved values that leave the device ---- */

/* Copies out are as late as they may be: those above `most` are waited for. */
static void wait_for_copies(zp_replay *r, int most) {
  int done = r->n_going > most ? r->n_going - most : 0;
  for (int i = 0; i < done; i++) {
    const zp_replay_going *g = &r->going[i];
    zp_shadow_copy(&r->device, g->ring, g->here_bytes, &r->device, g->here);
    zp_shadow_copy(&r->device, g->ring + g->here_bytes, g->offloaded_bytes, &r->offloaded, g->offloaded);
  }
  for (int i = done; i < r->n_going; i++) r->going[i - done] = r->going[i];
  r->n_going -= done;
}

static zp_replay_going copies_of(const zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  const zp_stage *s = r->stage;
  const zp_replay_call *call = &chunk->call[j];
  int k = chunk_index(r, chunk);
  int64_t gone = zp_saved_offloaded(&r->program->choice, call->seg->saved_bytes),
          stride = zp_saved_offloaded_stride(&r->program->choice, call->seg->saved_bytes);
  return (zp_replay_going){.ring = saved_of(r, chunk, j, mb),
                           .here = area_of_slot(r, chunk, j, mb),
                           .here_bytes = call->seg->saved_bytes - gone,
                           .offloaded = zp_stage_offloaded_at(s, k) +
                                        slot_of(r, chunk, mb) *
                                            (s->pooled ? s->offloaded_stride : s->chunks[k].offloaded_stride) +
                                        call->run->saved_offloaded + call->i * stride,
                           .offloaded_bytes = gone};
}

static void put_saved(zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  if (!saved_leave(r)) return;
  wait_for_copies(r, ZP_REPLAY_GOING - 1);
  r->going[r->n_going++] = copies_of(r, chunk, j, mb);
}

/* Copies in are as early as they may be. */
static void get_saved(zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  zp_replay_going g = copies_of(r, chunk, j, mb);
  zp_shadow_copy(&r->device, g.here, g.here_bytes, &r->device, g.ring);
  zp_shadow_copy(&r->offloaded, g.offloaded, g.offloaded_bytes, &r->device, g.ring + g.here_bytes);
}

static void begin_gets(zp_replay *r, const zp_replay_chunk *chunk, int64_t mb) {
  if (saved_leave(r)) get_saved(r, chunk, chunk->calls - 1, mb);
}

static void next_get(zp_replay *r, const zp_replay_chunk *chunk, int64_t j, int64_t mb) {
  if (!saved_leave(r)) return;
  wait_for_copies(r, 0);
  if (j > 0) get_saved(r, chunk, j - 1, mb);
}

/* ---- actions: the walks of a trainer (codegen/trainer/units.c) ---- */

static zp_replay_frame frame_of(const zp_replay *r, const zp_replay_chunk *chunk, zp_replay_pass pass, int64_t j,
                                int64_t mb) {
  const zp_replay_call *call = &chunk->call[j];
  zp_replay_frame f = {
      .chunk = chunk, .call = call, .pass = pass, .j = j, .mb = mb, .step = -1, .y = -1, .dy = -1, .dx = -1};
  bool forward = pass == ZP_REPLAY_FORWARD;
  f.p = forward ? &call->seg->forward : zp_backward_of(call->seg, r->program->choice.schedule);
  f.saved = saved_of(r, chunk, j, mb);
  f.slot = slot_at(r, chunk, mb);
  f.pending = pending_of(r, chunk, j, mb);
  f.x = forward || keeps_input(call) ? input_of(r, chunk, j, mb) : -1;
  if (!forward) f.dy = gradient_of(r, chunk, j, mb);
  return f;
}

/* Runs one call, its parameters there and its gradients taken care of. */
static void run_call(zp_replay *r, zp_replay_frame *f, int first, int last) {
  zp_replay_open(r, f);
  zp_replay_steps(r, f, first, last);
  zp_replay_close(r, f);
}

/* What a validation runs after forward: it must find what forward keeps, and leave alone all but what is transient. */
static void run_loss(zp_replay *r, zp_replay_frame f) {
  f.p = &f.call->seg->loss;
  if (f.p->steps.len > 0) zp_replay_steps(r, &f, 0, f.p->steps.len);
}

static void forward(zp_replay *r, const zp_replay_chunk *chunk, int64_t mb) {
  if (r->stage->pooled) {
    int64_t slot = owned(r, 0);
    if (slot < 0) {
      zp_replay_find(r, NULL, "no slot is free for micro-batch %lld", LL(mb));
      return;
    }
    r->owner[slot] = who(r, chunk, mb);
  }
  receive(r, chunk, true, mb);
  if (zp_replay_gathers_ahead(r)) zp_replay_gather(r, chunk, 0);
  for (int64_t j = 0; j < chunk->calls; j++) {
    zp_replay_frame f = frame_of(r, chunk, ZP_REPLAY_FORWARD, j, mb);
    if (j + 1 < chunk->calls) {
      f.y = input_of(r, chunk, j + 1, mb);
      f.next = &chunk->call[j + 1];
    } else if (!chunk->is_last) {
      zp_replay_expect_message(r, chunk, true, mb - r->stage->messages);
      f.y = message_at(r, chunk, true, mb);
    }
    wait_for_copies(r, 1);
    if (zp_replay_gathers_ahead(r) && j + 1 < chunk->calls) zp_replay_gather(r, chunk, j + 1);
    run_call(r, &f, 0, f.p->steps.len);
    if (f.y >= 0 || f.next) hand_on(r, &f, true);
    run_loss(r, f);
    put_saved(r, chunk, j, mb);
  }
  wait_for_copies(r, 0);
}

static void leave_slot(zp_replay *r, const zp_replay_chunk *chunk, int64_t mb) {
  int64_t slot = r->stage->pooled ? owned(r, who(r, chunk, mb)) : -1;
  if (slot >= 0) r->owner[slot] = 0;
}

/* The whole backward, or its first part. */
static void backward(zp_replay *r, const zp_replay_chunk *chunk, zp_replay_pass pass, int64_t mb) {
  bool whole = pass == ZP_REPLAY_BACKWARD;
  receive(r, chunk, false, mb);
  begin_gets(r, chunk, mb);
  if (zp_replay_gathers_ahead(r)) zp_replay_gather(r, chunk, chunk->calls - 1);
  for (int64_t j = chunk->calls - 1; j >= 0; j--) {
    zp_replay_frame f = frame_of(r, chunk, pass, j, mb);
    if (j > 0)
      f.dx = gradient_of(r, chunk, j - 1, mb);
    else if (chunk->part > 0) {
      zp_replay_expect_message(r, chunk, false, mb - r->stage->messages);
      f.dx = message_at(r, chunk, false, mb);
    }
    next_get(r, chunk, j, mb);
    if (zp_replay_gathers_ahead(r) && j > 0) zp_replay_gather(r, chunk, j - 1);
    run_call(r, &f, 0, whole ? f.p->steps.len : f.p->n_inputs);
    if (f.dx >= 0) hand_on(r, &f, false);
    if (!whole && f.call->seg->changes_saved) put_saved(r, chunk, j, mb);
  }
  wait_for_copies(r, 0);
  if (whole) leave_slot(r, chunk, mb);
}

static void weights(zp_replay *r, const zp_replay_chunk *chunk, int64_t mb) {
  begin_gets(r, chunk, mb);
  for (int64_t j = chunk->calls - 1; j >= 0; j--) {
    zp_replay_frame f = frame_of(r, chunk, ZP_REPLAY_WEIGHTS, j, mb);
    next_get(r, chunk, j, mb);
    run_call(r, &f, f.p->n_inputs, f.p->steps.len);
  }
  leave_slot(r, chunk, mb);
}

void zp_replay_act(zp_replay *r, const zp_action *a) {
  const zp_replay_chunk *chunk = &r->chunk[a->chunk];
  switch (a->act) {
  case ZP_ACT_F: forward(r, chunk, a->microbatch); break;
  case ZP_ACT_B: backward(r, chunk, ZP_REPLAY_BACKWARD, a->microbatch); break;
  case ZP_ACT_BI: backward(r, chunk, ZP_REPLAY_INPUTS, a->microbatch); break;
  case ZP_ACT_BW: weights(r, chunk, a->microbatch); break;
  }
}
