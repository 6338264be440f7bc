/* SPDX-License-Identifier: Apache-2.0 */
/* Backward in two parts, for schedules that split it (arXiv 2401.10241, section 2): BI yields the gradients that flow
 * on, BW those of weights, any time later. The steps are those of the whole backward, the deferred ones after the
 * others.
 *
 * What BW reads must outlive BI. Values in the slot do. Everything else gets a place in what waits (ZP_AT_PENDING):
 * rebuilt values and gradients inside the unit, and first of all the unit's dy, which BI then finds there. So nothing
 * is copied.
 *
 * Values in the slot that BI changes in place (logits become their gradient) go out again where saved values live off
 * the device.
 *
 * With ZeRO 2 and 3 a unit's gradients are scattered when BW has completed them, and its parameters are gathered for
 * BI, not for BW; parameters and gradients off the device come and go the same way. So what reads parameters stays in
 * BI; and the few gradients that BI yields alongside others (of norms and biases) wait, after the rest of what waits,
 * until BW puts them into the unit's buckets. */
#include "lower_internal.h"

static int root_of(const zp_procedure *p, int b) { return p->buffers.data[b].base >= 0 ? p->buffers.data[b].base : b; }

/* Does a step after step s write where it reads? */
static bool changed_later(const zp_procedure *p, int s, int root) {
  for (int k = s + 1; k < p->steps.len; k++)
    for (int i = 0; i < p->steps.data[k].out.len; i++)
      if (root_of(p, p->steps.data[k].out.data[i]) == root) return true;
  return false;
}

/* Products for weights and sums over columns that yield nothing else. The dx of the unit and its parameters are gone
 * when BW runs. What is made by parts of the rows (the loss) shall not wait: all parts together are what the parts are
 * there to avoid. */
static bool may_wait(const zp_procedure *p, int s) {
  const zp_step *step = &p->steps.data[s];
  if (step->kind != ZP_STEP_NODE || step->out.len > 0 || step->sums.len == 0) return false;
  for (int i = 0; i < step->in.len; i++) {
    int root = root_of(p, step->in.data[i]);
    zp_place place = p->buffers.data[root].place;
    bool parameter = place == ZP_AT_PARAM || place == ZP_AT_SHARED;
    bool some_rows = p->buffers.data[step->in.data[i]].rows < p->buffers.data[root].rows;
    if (parameter || some_rows || place == ZP_AT_GRAD_OUT || changed_later(p, s, root)) return false;
  }
  return true;
}

void zp_lower_mark_deferred(zp_procedure *backward) {
  for (int s = backward->n_recompute; s < backward->steps.len; s++)
    backward->steps.data[s].deferred = may_wait(backward, s);
}

/* Appends the steps of one part. In the new order other sums may be the first ones into a gradient. */
static void add_part(zp_lowering *l, const zp_procedure *from, zp_procedure *to, bool deferred) {
  for (int s = 0; s < from->steps.len; s++) {
    if (from->steps.data[s].deferred != deferred) continue;
    zp_step step = from->steps.data[s];
    step.sums.data = NULL, step.sums.len = step.sums.cap = 0;
    zp_reserve(l->steps, &step.sums, from->steps.data[s].sums.len);
    for (int i = 0; i < from->steps.data[s].sums.len; i++) {
      int use = from->steps.data[s].sums.data[i].use;
      zp_param_sum sum = {use, zp_lower_is_written(l, to, &step, use)};
      zp_push(l->steps, &step.sums, sum);
    }
    zp_push(l->scratch, &to->steps, step);
  }
}

/* Moves what BW reads to what waits, and counts its bytes. */
static void keep_for_weights(zp_lowering *l, zp_procedure *p) {
  bool *read = ZP_NEW_ARRAY(l->scratch, bool, p->buffers.len + 1);
  for (int s = p->n_inputs; s < p->steps.len; s++)
    for (int i = 0; i < p->steps.data[s].in.len; i++) read[root_of(p, p->steps.data[s].in.data[i])] = true;
  for (int b = 0; b < p->buffers.len; b++) /* dy stands first, all of it */
    if (read[b] && p->buffers.data[b].place == ZP_AT_GRAD_IN) {
      l->out->keeps_gradient = true;
      l->out->pending_bytes = zp_round_up(l->out->carry_out_elements * l->lowered->compute_bytes, ZP_ALIGN_BYTES);
    }
  for (int b = 0; b < p->buffers.len; b++) {
    zp_buffer *x = &p->buffers.data[b];
    int root = root_of(p, b);
    if (!read[root] || x->place != ZP_AT_TRANSIENT) continue;
    x->place = ZP_AT_PENDING;
    if (b != root) continue;
    x->offset = l->out->pending_bytes;
    l->out->pending_bytes += zp_round_up(x->bytes, ZP_ALIGN_BYTES);
  }
}

/* Places for the gradients that BI yields, after what waits. */
static void keep_early_gradients(zp_lowering *l, const zp_procedure *p) {
  zp_segment_program *out = l->out;
  out->early_offset = ZP_NEW_ARRAY(l->arena, int64_t, l->graph->params.len + 1);
  for (int use = 0; use < l->graph->params.len; use++) out->early_offset[use] = -1;
  for (int s = 0; s < p->n_inputs; s++)
    for (int i = 0; i < p->steps.data[s].sums.len; i++) out->early_offset[p->steps.data[s].sums.data[i].use] = 0;
  for (int use = 0; use < l->graph->params.len; use++) {
    if (out->early_offset[use] < 0) continue;
    out->early_offset[use] = out->pending_bytes + out->early_bytes;
    int64_t elements = l->lowered->param_elements[l->graph->params.data[use].param];
    out->early_bytes += zp_round_up(elements * l->lowered->grad_bytes, ZP_ALIGN_BYTES);
  }
}

static bool changes_saved(const zp_procedure *p) {
  for (int s = 0; s < p->n_inputs; s++)
    for (int i = 0; i < p->steps.data[s].out.len; i++)
      if (p->buffers.data[root_of(p, p->steps.data[s].out.data[i])].place == ZP_AT_SAVED) return true;
  return false;
}

void zp_lower_split(zp_lowering *l) {
  const zp_procedure *from = &l->out->backward;
  zp_procedure *to = &l->out->split;
  *to = (zp_procedure){.name = from->name, .n_recompute = from->n_recompute};
  zp_reserve(l->scratch, &to->buffers, from->buffers.len);
  zp_reserve(l->scratch, &to->steps, from->steps.len);
  for (int b = 0; b < from->buffers.len; b++) zp_push(l->scratch, &to->buffers, from->buffers.data[b]);
  add_part(l, from, to, false);
  to->n_inputs = to->steps.len;
  add_part(l, from, to, true);
  l->out->changes_saved = changes_saved(to);
  keep_for_weights(l, to);
  keep_early_gradients(l, to);
  zp_color_transients(l->scratch, to);
}
