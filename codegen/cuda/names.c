/* SPDX-License-Identifier: Apache-2.0 */
/* Which values of a kernel get a statement of their own, under the names of codegen/rowprog/names.c; the others are
 * written where their one reader needs them, so that a kernel reads as formulas. */
#include "text.h"

/* Readers of every value; a reader that writes its operand twice counts twice. */
static int *count_readers(const zp_row_program *program, zp_arena *arena) {
  int *readers = ZP_NEW_ARRAY(arena, int, program->values.len + 1);
  for (int v = 0; v < program->values.len; v++) {
    const zp_row_value *value = &program->values.data[v];
    for (int i = 0; i < zp_row_args(value->op); i++) readers[value->arg[i]] += value->op == ZP_ROW_RMAX ? 2 : 1;
  }
  for (int i = 0; i < program->sinks.len; i++) readers[program->sinks.data[i].value]++;
  return readers;
}

/* A value of a row stays out of the loop over its columns. */
static void keep_out_of_loops(const zp_row_program *program, bool *inlined) {
  for (int v = 0; v < program->values.len; v++)
    for (int i = 0; i < zp_row_args(program->values.data[v].op); i++) {
      int arg = program->values.data[v].arg[i];
      if (!zp_row_is_u(program, v) && zp_row_is_u(program, arg)) inlined[arg] = false;
    }
}

static bool is_reduction(const zp_row_value *v) { return v->op == ZP_ROW_RSUM || v->op == ZP_ROW_RMAX; }

void zp_cuda_name_values(zp_cuda_text *t) {
  const zp_row_program *program = t->program;
  int n = program->values.len, *readers = count_readers(program, t->arena);
  t->inlined = ZP_NEW_ARRAY(t->arena, bool, n + 1);
  t->explained = ZP_NEW_ARRAY(t->arena, bool, n + 1);
  for (int v = 0; v < n; v++) {
    const zp_row_value *value = &program->values.data[v];
    t->inlined[v] = zp_row_args(value->op) > 0 && !is_reduction(value) && !value->is_named && readers[v] == 1;
  }
  keep_out_of_loops(program, t->inlined);
}

const char *zp_cuda_explain(zp_cuda_text *t, int v) {
  if (t->explained[v]) return "";
  t->explained[v] = true;
  return zp_format(t->arena, " /* %s */", t->program->values.data[v].words);
}
