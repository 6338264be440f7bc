/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of the program and moves, for the report page. */
#include <zplan/cost.h>
#include "page_internal.h"

static const char *const class_name[] = {
    [ZP_CLASS_ROW] = "rows",           [ZP_CLASS_MATMUL] = "product", [ZP_CLASS_ATTENTION] = "attention",
    [ZP_CLASS_LOOKUP] = "lookup",      [ZP_CLASS_LOSS] = "loss",      [ZP_CLASS_VIEW] = "view",
    [ZP_CLASS_COMM] = "communication", [ZP_CLASS_FUSED] = "rows",     [ZP_CLASS_GROUPED] = "product",
    [ZP_CLASS_ROUTING] = "routing",    [ZP_CLASS_POSITIONS] = "rows",
};
static const char *const made_name[] = {"", "keep shard", "gather shard", "copy"};

/* Operations and bytes are those of the kernels of zplan's own GPU trainer; for others those that the step needs. */
static zp_json *step_json(const zp_plan *plan, const zp_segment_program *segment, const zp_step *step) {
  zp_kernel_work work = zp_cost_step_work(plan->program->lowered, &plan->machine, segment->graph, step);
  bool own = work.launches > 0;
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "op", step->kind ? made_name[step->kind] : zp_op_name(step->op));
  zp_json_set_string(o, "name", step->node ? step->node->name : "");
  zp_json_set_string(o, "kernel",
                     own                                             ? zp_kernel_name(work.kernel)
                     : step->comm_elements && !zp_step_is_ring(step) ? "communication"
                     : step->kind                                    ? "rows"
                                                                     : class_name[zp_op_get_class(step->op)]);
  zp_json_set_real(o, "flop", own ? work.flop : step->flop);
  zp_json_set_real(o, "bytes", own ? work.bytes : step->bytes);
  zp_json_set_real(o, "cost_s", step->cost_s);
  return o;
}

static void set_procedure(zp_json *o, const char *name, const zp_plan *plan, const zp_segment_program *segment,
                          const zp_procedure *procedure) {
  zp_json *list = zp_json_set(o, name, zp_json_array());
  for (int i = 0; i < procedure->steps.len; i++)
    zp_json_append(list, step_json(plan, segment, &procedure->steps.data[i]));
}

void zp_page_set_steps(zp_json *page, const zp_plan *plan) {
  const zp_program *p = plan->program;
  zp_json *list = zp_json_set(page, "segments", zp_json_array());
  for (int s = 0; s < p->lowered->n_segments; s++)
    for (int mode = 0; mode < ZP_STAGE_MODES; mode++) {
      const zp_segment_program *x = zp_program_segment(p, s, (zp_stage_mode)mode);
      if (!x) continue;
      zp_json *o = zp_json_append(list, zp_json_object());
      zp_json_set_string(o, "name", x->segment->name);
      zp_json_set_string(o, "recompute", zp_stage_mode_name((zp_stage_mode)mode));
      set_procedure(o, "forward", plan, x, &x->forward);
      set_procedure(o, "loss", plan, x, &x->loss);
      set_procedure(o, "backward", plan, x, zp_backward_of(x, p->choice.schedule));
    }
}

static void set_strategies(zp_arena *arena, zp_json *page, const zp_plan *plan) {
  zp_json *list = zp_json_set(page, "strategies", zp_json_array());
  zp_move_scope scope = zp_move_scope_of(plan->program->lowered, &plan->program->choice);
  scope.program = plan->program;
  for (int i = 0; zp_move_strategies[i]; i++) {
    const zp_move_strategy *s = zp_move_strategies[i];
    if (!s->applies(&scope)) continue;
    zp_json *o = zp_json_append(list, zp_json_object());
    zp_json_set_string(o, "name", s->name);
    zp_json_set_int(o, "bytes", zp_program_strategy_bytes(plan->program, s));
    zp_json_set_string(o, "how", s->explain(arena, &scope));
  }
}

static const char act_letter[] = {[ZP_ACT_F] = 'F', [ZP_ACT_B] = 'B', [ZP_ACT_BI] = 'I', [ZP_ACT_BW] = 'W'};

static zp_json *move_json(zp_arena *arena, const zp_program *program, int stage, const zp_move *m) {
  zp_move_words w = zp_move_in_words(arena, program, stage, m);
  zp_json *o = zp_json_object();
  if (m->when <= ZP_WHEN_AFTER_ACTION) zp_json_set_string(o, "act", zp_format(arena, "%c", act_letter[m->act]));
  zp_json_set_string(o, "when", w.when);
  zp_json_set_string(o, "by", m->strategy->name);
  zp_json_set_string(o, "what", w.what);
  zp_json_set_string(o, "way", w.way);
  zp_json_set_string(o, "ends", w.ends);
  zp_json_set_string(o, "size", w.size);
  zp_json_set_int(o, "times", m->times * m->count);
  if (m->warmup) zp_json_set_bool(o, "warmup", true);
  zp_json_set_string(o, "queue", w.queue);
  zp_json_set_string(o, "wait", w.wait);
  return o;
}

void zp_page_set_moves(zp_arena *arena, zp_json *page, const zp_plan *plan) {
  zp_json *list = zp_json_set(page, "moves", zp_json_array());
  zp_stage_groups groups = zp_group_stages(arena, plan->program, true);
  set_strategies(arena, page, plan);
  for (int g = 0; g < groups.len; g++) {
    const zp_stage_group *group = &groups.data[g];
    zp_json *o = zp_json_append(list, zp_json_object());
    zp_json_set_string(o, "stages", zp_words_group(arena, *group));
    zp_json_set_int(o, "first", group->first);
    zp_json_set_int(o, "last", group->last);
    zp_json_set_int(o, "step", group->step);
    zp_json *records = zp_json_set(o, "records", zp_json_array());
    zp_move_list moves = zp_stage_moves(arena, plan->program, group->first);
    for (int i = 0; i < moves.len; i++)
      zp_json_append(records, move_json(arena, plan->program, group->first, &moves.data[i]));
  }
}
