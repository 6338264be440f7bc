/* SPDX-License-Identifier: Apache-2.0 */
/* The whole program of a choice: stages, order tables, tied parameters; readable text. */
#include "lower_internal.h"
#include <zplan/schedule.h>

#include <assert.h>
#include <zplan/buf.h>

static bool uses(const zp_segment *segment, int param) {
  for (int i = 0; i < segment->graph->params.len; i++)
    if (segment->graph->params.data[i].param == param) return true;
  return false;
}

int zp_count_ties(const zp_model *model) {
  int ties = 0;
  for (int p = 0; p < model->params.len; p++) {
    int64_t users = 0;                                                                /* units */
    if (model->params.data[p].segment >= 0 || model->params.data[p].frozen) continue; /* no gradients to sum */
    for (int s = 0; s < model->segments.len; s++)
      if (uses(&model->segments.data[s], p)) users += model->segments.data[s].count;
    ties += users > 1;
  }
  return ties;
}

static void find_tied(zp_program *p) {
  const zp_model *model = p->spec->model;
  for (int param = 0; param < model->params.len; param++) {
    if (model->params.data[param].segment >= 0 || model->params.data[param].frozen) continue;
    zp_tied tied = {.param = param,
                    .elements = p->lowered->param_elements[param],
                    .summed = zp_tied_elements(p->lowered, &p->choice, param)};
    for (int s = 0; s < p->choice.pipeline; s++) {
      int64_t offset = zp_stage_shared(&p->stages[s], param);
      if (offset < 0) continue;
      zp_push(p->arena, &tied.stages, s);
      zp_push(p->arena, &tied.offset, offset);
    }
    if (tied.stages.len > 1) zp_push(p->arena, &p->tied, tied);
  }
}

/* One spec, sharding and micro-batch, and of every stage the mode that the choice says. */
static void check_stages(const zp_lowered *const *stage_lowered, const zp_choice *choice) {
  for (int s = 0; s < choice->pipeline; s++) {
    const zp_lowered *l = stage_lowered[s], *first = stage_lowered[0];
    assert(l->spec == first->spec && l->sharding == first->sharding && l->microbatch == choice->microbatch);
    assert(zp_stage_mode_of(l->recompute, l->recompute_shard) == zp_choice_mode(choice, s));
    assert((l->rest ? l->layers : ZP_ALL_LAYERS) == zp_choice_layers(choice, s));
    assert(!l->rest || zp_stage_mode_of(l->rest->recompute, l->rest->recompute_shard) == choice->mix[s].rest);
    (void)l, (void)first;
  }
}

zp_program *zp_program_make_stages(zp_arena *arena, const zp_lowered *const *stage_lowered, const zp_choice *choice) {
  assert(zp_choice_is_whole(choice, stage_lowered[0]->n_units));
  zp_program *p = ZP_NEW(arena, zp_program);
  check_stages(stage_lowered, choice);
  p->arena = arena;
  p->spec = stage_lowered[0]->spec;
  p->choice = zp_choice_copy(arena, choice);
  p->lowered = stage_lowered[0];
  p->stage_lowered = ZP_NEW_ARRAY(arena, const zp_lowered *, choice->pipeline);
  memcpy(p->stage_lowered, stage_lowered, sizeof *stage_lowered * (size_t)choice->pipeline);
  p->microbatches = zp_microbatches(p->spec, choice);
  p->stages = ZP_NEW_ARRAY(arena, zp_stage, choice->pipeline);
  for (int s = 0; s < choice->pipeline; s++) zp_layout_stage(arena, stage_lowered[s], choice, s, &p->stages[s]);
  find_tied(p);
  return p;
}

zp_program *zp_program_make(zp_arena *arena, const zp_lowered *const *stage_lowered, const zp_choice *choice) {
  zp_program *p = zp_program_make_stages(arena, stage_lowered, choice);
  p->actions = ZP_NEW_ARRAY(arena, int64_t, choice->pipeline);
  p->order = zp_orders(arena, choice, p->microbatches, p->actions);
  return p;
}

zp_program *zp_program_make_priced(zp_arena *arena, const zp_lowered *const *stage_lowered, const zp_choice *choice) {
  return choice->schedule == ZP_SCHEDULE_1F1B && !choice->own_order
             ? zp_program_make_stages(arena, stage_lowered, choice)
             : zp_program_make(arena, stage_lowered, choice);
}

const zp_segment_program *zp_program_segment(const zp_program *p, int segment, zp_stage_mode mode) {
  assert(segment >= 0 && mode < ZP_STAGE_MODES);
  for (int s = 0; s < p->choice.pipeline; s++) {
    if (!zp_choice_runs_mode(&p->choice, s, mode)) continue;
    for (int r = 0; r < p->stages[s].runs.len; r++) {
      const zp_run *run = &p->stages[s].runs.data[r];
      if (run->segment == segment && zp_run_mode(p->stage_lowered[s], run) == mode)
        return zp_run_segment(p->stage_lowered[s], run);
    }
  }
  return NULL;
}

const char *zp_place_name(const zp_buffer *buffer) {
  static const char *const name[] = {
      [ZP_AT_SHARED] = "shared",       [ZP_AT_PENDING] = "pending", [ZP_AT_SAVED] = "saved",
      [ZP_AT_TRANSIENT] = "transient", [ZP_AT_INPUT] = "input",     [ZP_AT_CARRY_IN] = "carry_in",
      [ZP_AT_CARRY_OUT] = "carry_out", [ZP_AT_GRAD_IN] = "grad_in", [ZP_AT_GRAD_OUT] = "grad_out"};
  return buffer->place == ZP_AT_PARAM ? zp_kinds[buffer->kind].place : name[buffer->place];
}

const char *zp_procedure_text(zp_arena *arena, const zp_procedure *p) {
  static const char *const kind[] = {"", "keep_shard", "gather_shard", "copy", "keep_operand"};
  zp_buf out = zp_buf_new(arena);
  zp_buf_line(&out, "procedure %s: %d steps (%d recomputed), transient %lld bytes", p->name, p->steps.len,
              p->n_recompute, (long long)p->transient_bytes);
  for (int b = 0; b < p->buffers.len; b++) {
    const zp_buffer *x = &p->buffers.data[b];
    zp_buf_line(&out, "  b%-3d %-28s %-9s [%lld, %lld] ld %lld at %lld bytes %lld base %d live %d..%d", b, x->name,
                zp_place_name(x), (long long)x->rows, (long long)x->cols, (long long)x->ld, (long long)x->offset,
                (long long)x->bytes, x->base, x->first_step, x->last_step);
  }
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    zp_buf_printf(&out, "  s%-3d %-16s %-24s", s, step->kind ? kind[step->kind] : zp_op_name(step->op),
                  step->node ? step->node->name : "");
    for (int i = 0; i < step->in.len; i++) zp_buf_printf(&out, " b%d", step->in.data[i]);
    zp_buf_puts(&out, " ->");
    for (int i = 0; i < step->out.len; i++) zp_buf_printf(&out, " b%d", step->out.data[i]);
    for (int i = 0; i < step->sums.len; i++)
      zp_buf_printf(&out, " grad(%d)%s", step->sums.data[i].use, step->sums.data[i].accumulate ? "+" : "=");
    zp_buf_puts(&out, "\n");
  }
  return out.data;
}
