/* SPDX-License-Identifier: Apache-2.0 */
/* The procedures of a program in a plan file: buffers and steps of every segment; how its parameters are split. */
#include "plan_internal.h"

static const char *const element_name[] = {[ZP_ELEM_FLOAT] = "float", [ZP_ELEM_I32] = "i32", [ZP_ELEM_STAT] = "stat"};
static const char *const made_name[] = {"", "keep_shard", "gather_shard", "copy", "keep_operand"};

static void set_ints(zp_json *o, const char *key, const zp_ints *v) {
  zp_json *a = zp_json_set(o, key, zp_json_array());
  for (int i = 0; i < v->len; i++) zp_json_append_int(a, v->data[i]);
}

static const char *param_name(const zp_segment_program *x, const zp_model *model, int use) {
  return model->params.data[x->graph->params.data[use].param].name;
}

/* With `sums`: the parameters to whose gradients a step adds. */
static zp_json *procedure_json(const zp_procedure *p, const zp_segment_program *segment, bool sums,
                               const zp_plan *plan) {
  zp_json *o = zp_json_object(), *buffers = zp_json_set(o, "buffers", zp_json_array()),
          *steps = zp_json_set(o, "steps", zp_json_array());
  zp_json_set_int(o, "transient_bytes", p->transient_bytes);
  for (int b = 0; b < p->buffers.len; b++) {
    const zp_buffer *x = &p->buffers.data[b];
    zp_json *j = zp_json_append(buffers, zp_json_object());
    zp_json_set_string(j, "name", x->name);
    zp_json_set_string(j, "place", zp_place_name(x));
    zp_json_set_string(j, "element", x->operand ? "operand" : element_name[x->element]);
    zp_json_set_int(j, "rows", x->rows);
    zp_json_set_int(j, "cols", x->cols);
    zp_json_set_int(j, "ld", x->ld);
    zp_json_set_int(j, "offset", x->offset);
    zp_json_set_int(j, "bytes", x->bytes);
    zp_json_set_int(j, "base", x->base);
  }
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *x = &p->steps.data[s];
    zp_json *j = zp_json_append(steps, zp_json_object());
    zp_json_set_string(j, "op", x->kind ? made_name[x->kind] : zp_op_name(x->op));
    zp_json_set_string(j, "name", x->node ? x->node->name : "");
    set_ints(j, "in", &x->in);
    set_ints(j, "out", &x->out);
    if (x->workspace >= 0) zp_json_set_int(j, "workspace", x->workspace);
    zp_json *added = sums && x->sums.len ? zp_json_set(j, "sums", zp_json_array()) : NULL;
    for (int i = 0; added && i < x->sums.len; i++)
      zp_json_append_string(added, param_name(segment, plan->spec->model, x->sums.data[i].use));
    if (x->comm_elements) zp_json_set_int(j, "comm_elements", x->comm_elements);
    zp_json_set_real(j, "cost_s", x->cost_s);
    zp_kernel_set_work(j, plan, segment, x);
  }
  return o;
}

/* Gradients that BI yields and that wait for BW, by name: where. */
static zp_json *early_json(const zp_segment_program *x, const zp_model *model) {
  zp_json *o = zp_json_object();
  for (int i = 0; i < x->graph->params.len; i++)
    if (x->early_offset[i] >= 0) zp_json_set_int(o, param_name(x, model, i), x->early_offset[i]);
  return o;
}

/* Backward as the schedule runs it: of a split one also how many steps are BI's. */
static zp_json *backward_json(const zp_segment_program *x, const zp_plan *plan) {
  const zp_choice *c = &plan->program->choice;
  const zp_procedure *p = zp_backward_of(x, c->schedule);
  zp_json *o = procedure_json(p, x, zp_early_gradients_wait(c), plan);
  if (!zp_schedule_splits(c->schedule)) return o;
  zp_json_set_int(o, "inputs", p->n_inputs);
  zp_json_set_bool(o, "keeps_gradient", x->keeps_gradient);
  if (c->home[ZP_STATE_ACTIVATIONS].eighths > 0) zp_json_set_bool(o, "changes_saved", x->changes_saved);
  if (zp_early_gradients_wait(c)) zp_json_set(o, "early", early_json(x, plan->spec->model));
  return o;
}

static zp_json *segment_json(const zp_segment_program *x, zp_stage_mode mode, const zp_plan *plan) {
  zp_json *j = zp_json_object();
  zp_json_set_string(j, "name", x->segment->name);
  zp_json_set_string(j, "recompute", zp_stage_mode_name(mode));
  zp_json_set_int(j, "count", x->segment->count);
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    if (zp_has_of_kind(kind, x->elements.of[kind])) zp_set_of_kind(j, kind, "elements", x->elements.of[kind]);
  zp_json_set_int(j, "saved_bytes", x->saved_bytes);
  zp_json_set_int(j, "pending_bytes", zp_unit_pending_bytes(x, &plan->program->choice));
  zp_json_set_int(j, "carry_in_elements", x->carry_in_elements);
  if (zp_takes_streams(x)) zp_json_set_int(j, "carry_stream_elements", x->carry_in_elements - x->carry_own_elements);
  zp_json_set_int(j, "carry_kept_elements", x->carry_kept_elements);
  zp_json_set(j, "forward", procedure_json(&x->forward, x, false, plan));
  if (x->loss.steps.len > 0) zp_json_set(j, "loss", procedure_json(&x->loss, x, false, plan));
  zp_json_set(j, "backward", backward_json(x, plan));
  return j;
}

/* Every segment once for every mode of a stage that runs it. */
zp_json *zp_program_json(const zp_plan *plan) {
  const zp_program *p = plan->program;
  zp_json *o = zp_json_object(), *segments = zp_json_set(o, "segments", zp_json_array());
  for (int s = 0; s < p->lowered->n_segments; s++)
    for (int mode = 0; mode < ZP_STAGE_MODES; mode++) {
      const zp_segment_program *x = zp_program_segment(p, s, (zp_stage_mode)mode);
      if (x) zp_json_append(segments, segment_json(x, (zp_stage_mode)mode, plan));
    }
  zp_json *params = zp_json_set(o, "parameters", zp_json_array());
  for (int i = 0; i < p->spec->model->params.len; i++) {
    const zp_param_split *split = &p->lowered->sharding->param[i];
    zp_json *j = zp_json_append(params, zp_json_object());
    zp_json_set_string(j, "name", p->spec->model->params.data[i].name);
    zp_json_set_int(j, "split_dim", split->split_dim);
    zp_json_set_bool(j, "spread", split->spread);
    zp_json_set_int(j, "outer", split->outer);
    zp_json_set_int(j, "units", split->units);
    zp_json_set_int(j, "local_elements", p->lowered->param_elements[i]);
  }
  return o;
}
