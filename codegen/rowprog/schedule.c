/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a program into passes over the columns. A value's level says how many reductions, one after the other, it waits
 * for; everything that ends at one level (reductions, stores, column sums) shares one loop. Row values are computed
 * again in every pass that needs them: their operands are in the first-level cache. */
#include "rowprog.h"

static bool is_reduction(zp_row_op op) { return op == ZP_ROW_RSUM || op == ZP_ROW_RMAX; }

static zp_row_pass *find_pass(const zp_row_program *program, zp_row_schedule *schedule, int level, int64_t cols) {
  for (int i = 0; i < schedule->passes.len; i++) {
    zp_row_pass *pass = &schedule->passes.data[i];
    if (pass->level == level && pass->cols == cols) return pass;
  }
  zp_row_pass fresh = {.level = level, .cols = cols};
  zp_push(program->arena, &schedule->passes, fresh);
  return &schedule->passes.data[schedule->passes.len - 1];
}

static void need(const zp_row_program *program, int v, bool *needed) {
  if (program->values.data[v].cols > 0) needed[v] = true;
}

/* The row values of a pass: what its sinks and reductions need, without going through reductions. */
static void collect_values(const zp_row_program *program, zp_row_pass *pass) {
  bool *needed = ZP_NEW_ARRAY(program->arena, bool, program->values.len);
  for (int i = 0; i < pass->reductions.len; i++)
    need(program, program->values.data[pass->reductions.data[i]].arg[0], needed);
  for (int i = 0; i < pass->sinks.len; i++) need(program, program->sinks.data[pass->sinks.data[i]].value, needed);
  for (int v = program->values.len - 1; v >= 0; v--) {
    if (!needed[v]) continue;
    const zp_row_value *value = &program->values.data[v];
    for (int k = 0; k < zp_row_args(value->op); k++) need(program, value->arg[k], needed);
  }
  for (int v = 0; v < program->values.len; v++)
    if (needed[v]) zp_push(program->arena, &pass->values, v);
}

static void sort_passes(zp_row_schedule *schedule) {
  for (int i = 1; i < schedule->passes.len; i++)
    for (int k = i; k > 0 && schedule->passes.data[k - 1].level > schedule->passes.data[k].level; k--) {
      zp_row_pass swap = schedule->passes.data[k];
      schedule->passes.data[k] = schedule->passes.data[k - 1];
      schedule->passes.data[k - 1] = swap;
    }
}

zp_row_schedule zp_row_make_schedule(const zp_row_program *program) {
  zp_row_schedule schedule = {0};
  for (int v = 0; v < program->values.len; v++) {
    const zp_row_value *value = &program->values.data[v];
    if (value->level >= schedule.n_levels) schedule.n_levels = value->level + 1;
    if (!is_reduction(value->op)) continue;
    const zp_row_value *arg = &program->values.data[value->arg[0]];
    zp_push(program->arena, &find_pass(program, &schedule, arg->level, arg->cols)->reductions, v);
  }
  for (int i = 0; i < program->sinks.len; i++) {
    const zp_row_sink *sink = &program->sinks.data[i];
    int level = program->values.data[sink->value].level;
    zp_push(program->arena, &find_pass(program, &schedule, level, sink->cols)->sinks, i);
  }
  sort_passes(&schedule);
  for (int i = 0; i < schedule.passes.len; i++) collect_values(program, &schedule.passes.data[i]);
  schedule.scalars = ZP_NEW_ARRAY(program->arena, zp_ints, schedule.n_levels);
  for (int v = 0; v < program->values.len; v++) {
    const zp_row_value *value = &program->values.data[v];
    if (value->cols == 0 && !is_reduction(value->op)) zp_push(program->arena, &schedule.scalars[value->level], v);
  }
  return schedule;
}
