/* SPDX-License-Identifier: Apache-2.0 */
/* Procedures that are lowered already. For expert groups on other links only what an exchange takes differs, so all
 * is shared, but for the steps around exchanges where these are not packed. What stages recompute concerns
 * repeats alone, and parts of the loss the segment that has it: every other segment is the same with and without. */
#include <assert.h>
#include "lower_internal.h"

static bool exchanges(const zp_procedure *p) {
  for (int i = 0; i < p->steps.len; i++)
    if (zp_step_is_exchange(&p->steps.data[i])) return true;
  return false;
}

static void copy_steps(zp_arena *arena, zp_procedure *p) {
  zp_step *steps = ZP_NEW_ARRAY(arena, zp_step, p->steps.len);
  if (p->steps.len) memcpy(steps, p->steps.data, sizeof *steps * (size_t)p->steps.len);
  p->steps.data = steps, p->steps.cap = p->steps.len;
}

static zp_segment_program segment_again(zp_arena *arena, const zp_segment_program *known) {
  zp_segment_program again = *known;
  if (known->packed) return again;
  if (!exchanges(&known->forward) && !exchanges(&known->backward)) return again;
  copy_steps(arena, &again.forward);
  copy_steps(arena, &again.backward);
  copy_steps(arena, &again.split);
  return again;
}

zp_lowered *zp_lower_again(zp_arena *arena, const zp_lowered *known, const zp_lowered *whole) {
  assert(known);
  zp_lowered *again = ZP_NEW(arena, zp_lowered);
  *again = *known;
  again->segments = ZP_NEW_ARRAY(arena, zp_segment_program, known->n_segments);
  for (int i = 0; i < known->n_segments; i++) {
    const zp_segment_program *from = whole && i < whole->n_segments ? &whole->segments[i] : &known->segments[i];
    again->segments[i] = from == &known->segments[i] ? segment_again(arena, from) : *from;
  }
  return again;
}

static bool is_same_segment(const zp_lowered *l, const zp_lowered *known, int index, const zp_graph *graph) {
  bool same_mode = l->recompute == known->recompute && l->recompute_shard == known->recompute_shard;
  assert(l->sharding == known->sharding && l->splits == known->splits);
  return l->microbatch == known->microbatch && (same_mode || !l->pieces->piece[index].segment.is_repeat) &&
         (graph->losses.len == 0 || l->loss_chunks == known->loss_chunks);
}

bool zp_lower_find_segment(zp_arena *arena, zp_lowered *l, int index, const zp_graph *graph,
                           const zp_lowered_list *before) {
  for (int i = 0; before && i < before->len; i++) {
    const zp_lowered *known = before->data[i];
    if (index >= known->n_segments || !is_same_segment(l, known, index, graph)) continue;
    l->segments[index] = segment_again(arena, &known->segments[index]);
    return true;
  }
  return false;
}
