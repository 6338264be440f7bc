/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what a trainer that is built with --profile says about itself: a call where every step begins, a table of what
 * the steps are, and what the plan says of them on every stage. Without --profile nothing of this is in the text, so it
 * costs nothing; a branch at every step would be cheap, too, but everybody who reads a trainer would read it. */
#include "emit.h"

#include <assert.h>
#include <zplan/quote.h>
#include <zplan/stage_step.h>
#include <zplan/rt.h>

void zp_emit_profiled_step(zp_emit *e, const zp_profiled_step *step) {
  if (!e->profile) return;
  zp_buf_line(&e->out, "zpr_step(c, %d);", e->profiled.len);
  zp_push(e->arena, &e->profiled, *step);
}

void zp_emit_profiled_end(zp_emit *e) {
  if (e->profile) zp_buf_line(&e->out, "zpr_step_end(c);");
}

void zp_emit_profiled_action(zp_emit *e, char what) {
  if (e->profile)
    zp_buf_line(&e->out, "  zpr_begin_action(c, '%c', %s, mb);", what,
                zp_chunks(&e->program->choice) > 1 ? "chunk" : "0");
}

/* ---- tables ---- */

static const zp_step *find_step(const zp_emit *e, const zp_lowered *lowered, const zp_profiled_step *s) {
  const zp_segment_program *segment = &lowered->segments[s->segment];
  return &(s->forward ? &segment->forward : zp_backward_of(segment, e->program->choice.schedule))->steps.data[s->index];
}

static const char *kind_of(const zp_step *s) {
  if (s->kind == ZP_STEP_GATHER_SHARD) return "ZPR_STEP_MESSAGE";
  if (s->kind != ZP_STEP_NODE) return "ZPR_STEP_COPY";
  switch (zp_op_get_class(s->op)) {
  case ZP_CLASS_MATMUL:
  case ZP_CLASS_GROUPED: return "ZPR_STEP_PRODUCT";
  case ZP_CLASS_ATTENTION: return "ZPR_STEP_ATTENTION";
  case ZP_CLASS_COMM: return "ZPR_STEP_MESSAGE";
  default: return "ZPR_STEP_KERNEL";
  }
}

/* What the stage's layers of the step's mode run; of segments outside repeats that of the stage's mode. */
static const zp_lowered *lowered_of(const zp_emit *e, int stage, const zp_profiled_step *s) {
  const zp_lowered *l = zp_program_lowered(e->program, stage);
  return zp_choice_mode(&e->program->choice, stage) != s->mode && l->rest ? l->rest : l;
}

static void emit_steps(zp_emit *e) {
  static const char *const made[] = {"", "keep this rank's shard of x", "gather the kept shards of x", "copy"};
  zp_buf_line(&e->out, "/* The steps above by their numbers. */");
  zp_buf_line(&e->out, "static const zpr_profile_step profile_steps[] = {");
  for (int i = 0; i < e->profiled.len; i++) {
    const zp_profiled_step *p = &e->profiled.data[i];
    const zp_step *s = find_step(e, e->lowered, p);
    for (int t = 0; t < e->program->choice.pipeline; t++) /* of a stage that runs it */
      if (zp_choice_runs_mode(&e->program->choice, t, p->mode)) s = find_step(e, lowered_of(e, t, p), p);
    zp_buf_line(
        &e->out, "    {%s, %s, %s, %s},", kind_of(s), zp_quote_c(e->arena, p->procedure),
        zp_quote_c(e->arena, s->node ? zp_format(e->arena, "%s %s", zp_op_name(s->op), s->node->name) : made[s->kind]),
        zp_quote_c(e->arena, s->node ? zp_emit_place(e, s->node->span) : ""));
  }
  zp_buf_line(&e->out, "};");
}

/* Stages that share their procedures share their prices. The first such stage. */
static int prices_of(const zp_emit *e, int stage) {
  int first = 0;
  while (e->program->stage_lowered[first] != e->program->stage_lowered[stage]) first++;
  return first;
}

/* Segments outside repeats are the same in all modes. */
static bool runs(const zp_emit *e, int stage, const zp_profiled_step *s) {
  return zp_choice_runs_mode(&e->program->choice, stage, s->mode) ||
         !e->lowered->segments[s->segment].segment->is_repeat;
}

static void emit_prices(zp_emit *e, int stage) {
  zp_buf_line(&e->out, "static const double profile_ns%d[] = {", stage);
  for (int i = 0; i < e->profiled.len; i++) {
    const zp_profiled_step *s = &e->profiled.data[i];
    double cost_s = runs(e, stage, s) ? find_step(e, lowered_of(e, stage, s), s)->cost_s : 0;
    zp_buf_printf(&e->out, "%s%.9g,%s", i % 8 == 0 ? "    " : " ", cost_s * 1e9,
                  i % 8 == 7 || i + 1 == e->profiled.len ? "\n" : "");
  }
  zp_buf_line(&e->out, "};");
}

/* What the plan says of a fixed step, negative: nothing. */
static void fixed_seconds(const zp_stage_step *s, double seconds[ZPR_FIXED_COUNT]) {
  for (int i = 0; i < ZPR_FIXED_COUNT; i++) seconds[i] = -1;
  seconds[ZPR_AT_RECEIVE] = s->waiting_s;
  seconds[ZPR_AT_DATA] = s->data_s;
  seconds[ZPR_AT_MOVE] = s->offload_s;
  seconds[ZPR_AT_REDUCE] = s->reduce_s;
  seconds[ZPR_AT_MEET] = s->meet_s;
  seconds[ZPR_AT_UPDATE] = s->update_s;
  seconds[ZPR_AT_GATHER] = s->gather_s;
}

void zp_emit_profile_tables(zp_emit *e) {
  if (!e->profile) return;
  int stages = e->program->choice.pipeline;
  zp_stage_step *of_stage = zp_cost_stage_steps(e->arena, e->program, &e->plan->machine);
  emit_steps(e);
  zp_buf_line(&e->out, "/* Predicted ns of one call of each, on the stages that have the same procedures. */");
  for (int s = 0; s < stages; s++)
    if (prices_of(e, s) == s) emit_prices(e, s);
  zp_buf_line(&e->out, "static const zpr_profile_stage profile_stages[PIPELINE] = {");
  for (int s = 0; s < stages; s++) {
    double seconds[ZPR_FIXED_COUNT];
    fixed_seconds(&of_stage[s], seconds);
    zp_buf_printf(&e->out, "    {.step_ns = profile_ns%d, .fixed_s = {", prices_of(e, s));
    for (int i = 0; i < ZPR_FIXED_COUNT; i++) zp_buf_printf(&e->out, "%s%.9g", i ? ", " : "", seconds[i]);
    zp_buf_puts(&e->out, "}},\n");
  }
  zp_buf_line(&e->out, "};");
  zp_buf_line(&e->out, "static const zpr_profile_table profile = {");
  zp_buf_line(&e->out, "    .n_steps = %d, .steps = profile_steps, .stages = profile_stages,", e->profiled.len);
  zp_buf_line(&e->out, "};");
  zp_buf_puts(&e->out, "\n");
}
