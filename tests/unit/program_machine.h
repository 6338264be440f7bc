/* SPDX-License-Identifier: Apache-2.0 */
/* Executes lowered procedures in f64 over byte arenas, with the offsets, aliases, slots and order tables that the plan
 * says: all stages, chunks and tensor ranks of one replica in one process, in the order of their actions. Memory is
 * poisoned with NaN before it is first written and wherever a live range ends, so a wrong offset or a too short live
 * range reaches the gradients.
 *
 * Requires precision fp64 (all floats in the arena are doubles) and one data rank. */
#ifndef PROGRAM_MACHINE_H
#define PROGRAM_MACHINE_H

#include "program_steps.h"

/* ---- procedures, stages, the step ---- */

static inline void pm_poison_all(pm *m, int s, int64_t at, int64_t bytes) {
  for (int t = 0; t < m->t && at >= 0; t++) pm_poison(m->rank[s][t].arena + at, bytes);
}

/* Steps [first, last) of the unit's procedure. */
static inline void pm_run(pm *m, const pm_unit *u, int first, int last) {
  int s = u->stage->index;
  pm_poison_all(m, s, u->stage->at[ZP_REGION_TRANSIENT], u->p->transient_bytes);
  for (int i = first; i < last; i++) {
    pm_step(m, u, &u->p->steps.data[i]);
    for (int b = 0; b < u->p->buffers.len; b++) {
      const zp_buffer *x = &u->p->buffers.data[b];
      if (x->place == ZP_AT_TRANSIENT && x->base < 0 && x->last_step == i)
        pm_poison_all(m, s, u->stage->at[ZP_REGION_TRANSIENT] + x->offset, x->bytes);
    }
  }
}

/* ---- a chunk of a stage at a micro-batch ---- */

typedef struct pm_work {
  const zp_stage *stage;
  int chunk;
  int64_t part, calls, mb; /* chunk of the model; calls of procedures */
} pm_work;

static inline pm_work pm_work_of(const pm *m, int s, int chunk, int64_t mb) {
  pm_work w = {&m->program->stages[s], chunk, zp_model_chunk(&m->program->choice, s, chunk), 0, mb};
  for (int r = 0; r < w.stage->runs.len; r++)
    if (w.stage->runs.data[r].chunk == chunk) w.calls += w.stage->runs.data[r].count;
  return w;
}

static inline bool pm_is_last(const pm *m, const pm_work *w) {
  return w->part + 1 == (int64_t)m->program->choice.pipeline * zp_chunks(&m->program->choice);
}

static inline int64_t *pm_owned(pm *m, const pm_work *w, bool taken) {
  int64_t who = taken ? 1 + w->chunk * m->program->microbatches + w->mb : 0;
  cr_assert(w->stage->slots <= PM_SLOTS);
  for (int64_t i = 0; i < w->stage->slots; i++)
    if (m->owner[w->stage->index][i] == who) return &m->owner[w->stage->index][i];
  cr_assert_fail("stage %d: no slot", w->stage->index);
  return NULL;
}

static inline int64_t pm_slot_of(pm *m, const pm_work *w) {
  const zp_stage *stage = w->stage;
  const zp_chunk *chunk = &stage->chunks[w->chunk];
  if (!stage->pooled) return zp_stage_slots_at(stage, w->chunk) + w->mb % chunk->slots * chunk->slot_stride;
  return stage->at[ZP_REGION_SLOTS] + (pm_owned(m, w, true) - m->owner[stage->index]) * stage->slot_stride;
}

/* The unit j of the chunk: its segment, parameters and slot area. */
static inline pm_unit pm_unit_of(pm *m, const pm_work *w, int64_t j) {
  const zp_stage *stage = w->stage;
  const zp_run *run = stage->runs.data;
  for (; run->chunk != w->chunk || j >= run->count; run++)
    if (run->chunk == w->chunk) j -= run->count;
  const zp_segment_program *seg = zp_run_segment(zp_program_lowered(m->program, stage->index), run);
  const zp_chunk *chunk = &stage->chunks[w->chunk];
  int64_t pending = chunk->pending ? zp_stage_pending_at(stage, w->chunk) +
                                         w->mb % chunk->pending * zp_chunk_pending_stride(chunk) + run->pending +
                                         j * seg->pending_bytes
                                   : -1;
  return (pm_unit){.stage = stage,
                   .seg = seg,
                   .p = zp_backward_of(seg, m->program->choice.schedule),
                   .base = zp_run_at(run, ZP_KIND_WHOLE, j),
                   .iteration = run->first + j,
                   .mb = w->mb,
                   .slot = pm_slot_of(m, w),
                   .streams = chunk->streams,
                   .saved = pm_slot_of(m, w) + run->saved + j * seg->saved_bytes,
                   .pending = pending,
                   .x = -1,
                   .y = -1,
                   .dy = -1,
                   .dx = -1};
}

static inline bool pm_keeps_input(const pm_unit *u) { return zp_keeps_input(u->seg); }

static inline int64_t pm_input_of(pm *m, const pm_work *w, int64_t j) {
  pm_unit u = pm_unit_of(m, w, j);
  return pm_keeps_input(&u) ? u.saved : w->stage->at[ZP_REGION_CARRY0 + zp_stage_carry_index(j)];
}

static inline bool pm_keeps_gradient(const pm *m, const pm_unit *u) {
  return zp_schedule_splits(m->program->choice.schedule) && u->seg->keeps_gradient;
}

static inline int64_t pm_gradient_of(pm *m, const pm_work *w, int64_t j) {
  pm_unit u = pm_unit_of(m, w, j);
  return pm_keeps_gradient(m, &u) ? u.pending : w->stage->at[ZP_REGION_GRAD0 + zp_stage_grad_index(w->calls, j)];
}

/* ---- messages ---- */

static inline int64_t pm_message_at(const pm *m, const pm_work *w, bool up) {
  return zp_stage_send_at(&m->program->choice, w->stage, w->chunk, up) +
         w->mb % w->stage->messages * w->stage->message_stride;
}

static inline pm_work pm_neighbour(const pm *m, const pm_work *w, int step) {
  int chunk, s = zp_chunk_stage(&m->program->choice, w->part + step, &chunk);
  return pm_work_of(m, s, chunk, w->mb);
}

/* Takes a message over: the sender's buffer may then be written again. */
static inline void pm_receive(pm *m, const pm_work *to, bool up, int64_t to_at, int64_t elements) {
  pm_work from = pm_neighbour(m, to, up ? -1 : 1);
  int64_t from_at = pm_message_at(m, &from, up);
  for (int t = 0; t < m->t; t++)
    memcpy(m->rank[to->stage->index][t].arena + to_at, m->rank[from.stage->index][t].arena + from_at,
           (size_t)elements * 8);
  pm_poison_all(m, from.stage->index, from_at, elements * 8);
  m->taken[from.part][up]++;
}

/* ---- passes ---- */

static inline void pm_forward(pm *m, const pm_work *w) {
  const zp_stage *stage = w->stage;
  if (stage->pooled) *pm_owned(m, w, false) = 1 + w->chunk * m->program->microbatches + w->mb;
  pm_unit first = pm_unit_of(m, w, 0);
  bool lands = zp_takes_streams(first.seg);
  if (w->part > 0)
    pm_receive(m, w, true, lands ? stage->at[ZP_REGION_GRAD0] : pm_input_of(m, w, 0), first.seg->carry_in_elements);
  first.x = pm_input_of(m, w, 0);
  for (int i = 0; lands && i < first.seg->graph->carry_in.len; i++) {
    const zp_ints *carry = &first.seg->graph->carry_in;
    int64_t from = zp_carried_elements(first.seg->graph, carry, i, m->l->microbatch),
            end = zp_carried_elements(first.seg->graph, carry, i + 1, m->l->microbatch);
    for (int t = 0; t < m->t; t++) {
      char *arena = m->rank[stage->index][t].arena;
      memcpy(arena + pm_carried_at(m, &first, first.seg, first.x, i), arena + stage->at[ZP_REGION_GRAD0] + from * 8,
             (size_t)(end - from) * 8);
    }
  }
  for (int64_t j = 0; j < w->calls; j++) {
    pm_unit u = pm_unit_of(m, w, j);
    u.p = &u.seg->forward;
    u.x = pm_input_of(m, w, j);
    u.y = j + 1 < w->calls ? pm_input_of(m, w, j + 1) : pm_is_last(m, w) ? -1 : pm_message_at(m, w, true);
    u.next = j + 1 < w->calls ? pm_unit_of(m, w, j + 1).seg : NULL;
    pm_run(m, &u, 0, u.p->steps.len);
    if (!pm_keeps_input(&u)) pm_poison_all(m, stage->index, u.x, u.seg->carry_own_elements * 8);
  }
  m->sent[w->part][1]++;
}

static inline void pm_forget(pm *m, const pm_work *w) {
  for (int64_t j = 0; j < w->calls; j++) {
    pm_unit u = pm_unit_of(m, w, j);
    pm_poison_all(m, w->stage->index, u.saved, u.seg->saved_bytes);
    if (zp_schedule_splits(m->program->choice.schedule))
      pm_poison_all(m, w->stage->index, u.pending, u.seg->pending_bytes);
  }
  uint64_t streams = w->stage->chunks[w->chunk].streams;
  if (streams) pm_poison_all(m, w->stage->index, pm_slot_of(m, w), zp_stream_at(m->l, streams, ZP_MOST_STREAMS));
  if (w->stage->pooled) *pm_owned(m, w, true) = 0;
}

/* The whole backward, or BI. */
static inline void pm_backward(pm *m, const pm_work *w, bool whole) {
  pm_unit last = pm_unit_of(m, w, w->calls - 1);
  if (!pm_is_last(m, w)) pm_receive(m, w, false, pm_gradient_of(m, w, w->calls - 1), last.seg->carry_out_elements);
  for (int64_t j = w->calls - 1; j >= 0; j--) {
    pm_unit u = pm_unit_of(m, w, j);
    u.x = pm_keeps_input(&u) ? pm_input_of(m, w, j) : -1;
    u.dy = pm_gradient_of(m, w, j);
    u.dx = j > 0 ? pm_gradient_of(m, w, j - 1) : w->part > 0 ? pm_message_at(m, w, false) : -1;
    pm_run(m, &u, 0, whole ? u.p->steps.len : u.p->n_inputs);
    if (!pm_keeps_gradient(m, &u)) pm_poison_all(m, w->stage->index, u.dy, u.seg->carry_out_elements * 8);
    if (whole) pm_poison_all(m, w->stage->index, u.saved, u.seg->saved_bytes);
  }
  if (whole) pm_forget(m, w);
  m->sent[w->part][0]++;
}

static inline void pm_weights(pm *m, const pm_work *w) {
  for (int64_t j = w->calls - 1; j >= 0; j--) {
    pm_unit u = pm_unit_of(m, w, j);
    u.x = pm_keeps_input(&u) ? pm_input_of(m, w, j) : -1;
    u.dy = pm_keeps_gradient(m, &u) ? u.pending : -1;
    pm_run(m, &u, u.p->n_inputs, u.p->steps.len);
  }
  pm_forget(m, w);
}

/* May the stage take this action: is its message there, and a buffer of its own message free? */
static inline bool pm_ready(const pm *m, const pm_work *w, zp_act act) {
  bool up = act == ZP_ACT_F;
  if (act == ZP_ACT_BW) return true;
  bool receives = up ? w->part > 0 : !pm_is_last(m, w), sends = up ? !pm_is_last(m, w) : w->part > 0;
  int64_t from = w->part + (up ? -1 : 1);
  if (receives && m->sent[from][up] <= w->mb) return false;
  return !sends || m->sent[w->part][up] - m->taken[w->part][up] < w->stage->messages;
}

static inline bool pm_act(pm *m, int s, const zp_action *a) {
  pm_work w = pm_work_of(m, s, a->chunk, a->microbatch);
  if (!pm_ready(m, &w, a->act)) return false;
  switch (a->act) {
  case ZP_ACT_F: pm_forward(m, &w); break;
  case ZP_ACT_B: pm_backward(m, &w, true); break;
  case ZP_ACT_BI: pm_backward(m, &w, false); break;
  case ZP_ACT_BW: pm_weights(m, &w); break;
  }
  return true;
}

/* One training step: all stages follow their order tables. */
static inline void pm_train(pm *m) {
  int64_t next[PM_STAGES] = {0};
  double scale = 1.0 / (double)(m->l->spec->train.batch * m->l->spec->model->sequence);
  for (int s = 0; s < m->program->choice.pipeline; s++)
    for (int t = 0; t < m->t; t++)
      for (int i = 0; i < m->l->n_segments; i++) m->rank[s][t].in[i]->loss_scale = scale;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < m->program->choice.pipeline; s++) {
      if (next[s] == m->program->actions[s] || !pm_act(m, s, &m->program->order[s][next[s]])) continue;
      next[s]++;
      moved = true;
    }
  }
  for (int s = 0; s < m->program->choice.pipeline; s++)
    cr_assert_eq(next[s], m->program->actions[s], "stage %d stands still", s);
}

#endif
