/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of row ops: forward, and naive reverse mode row by row. The backward run sees only what the FUSED_GRAD node
 * lists; every other value starts as NaN and is rebuilt from the listed ones, so a missing entry shows in the
 * result. */
#include <assert.h>
#include <math.h>
#include "interpret_internal.h"

typedef struct row_run {
  zp_interpreter *in;
  const zp_fused *fused;
  int n_values;
  double **value, **adjoint; /* per value: one row */
  bool *known, *has_adjoint;
  zp_row_place place;
} row_run;

static int64_t value_cols(const zp_fused *fused, int v) {
  return v < fused->n_in ? fused->in_cols[v] : fused->ops.data[v - fused->n_in].cols;
}

/* `rows` is a tensor of the group's rows. */
static zp_row_place start_place(const zp_interpreter *in, const zp_fused *fused, int rows) {
  const zp_tensor *t = &in->graph->tensors.data[rows];
  zp_row_place place = {.in = in, .rows_per_sample = fused->rows_per_sample};
  place.first_position = fused->split_rows ? in->rank * fused->rows_per_sample : 0;
  place.first_column = fused->split ? in->rank * zp_shape_cols(&t->shape) : 0;
  place.logical_cols = fused->split ? t->full_dim : zp_shape_cols(&t->shape);
  return place;
}

static row_run start_run(zp_interpreter *in, const zp_fused *fused, int rows) {
  zp_arena *arena = in->graph->arena;
  row_run run = {.in = in, .fused = fused, .n_values = fused->n_in + fused->ops.len};
  run.value = ZP_NEW_ARRAY(arena, double *, run.n_values);
  run.adjoint = ZP_NEW_ARRAY(arena, double *, run.n_values);
  run.known = ZP_NEW_ARRAY(arena, bool, run.n_values);
  run.has_adjoint = ZP_NEW_ARRAY(arena, bool, run.n_values);
  for (int v = 0; v < run.n_values; v++) {
    run.value[v] = ZP_NEW_ARRAY(arena, double, value_cols(fused, v));
    run.adjoint[v] = ZP_NEW_ARRAY(arena, double, value_cols(fused, v));
  }
  run.place = start_place(in, fused, rows);
  return run;
}

static void start_row(row_run *run, int64_t row) {
  run->place.row = row;
  for (int v = 0; v < run->n_values; v++) {
    run->known[v] = run->has_adjoint[v] = false;
    for (int64_t c = 0; c < value_cols(run->fused, v); c++) {
      run->value[v][c] = NAN;
      run->adjoint[v][c] = 0;
    }
  }
}

/* The row of a tensor that belongs to value v at the current place. */
static double *row_of(const row_run *run, int v, int tensor) {
  zp_operand operand = v < run->fused->n_in ? run->fused->operand[v] : ZP_OPERAND_ROWS;
  int64_t row = operand == ZP_OPERAND_ROWS      ? run->place.row
                : operand == ZP_OPERAND_COLUMNS ? 0
                                                : run->place.row % run->fused->rows_per_sample;
  return run->in->value[tensor] + row * value_cols(run->fused, v);
}

static void load(row_run *run, int v, int tensor) {
  memcpy(run->value[v], row_of(run, v, tensor), sizeof(double) * (size_t)value_cols(run->fused, v));
  run->known[v] = true;
}

static void arguments(const row_run *run, const zp_fused_op *op, double *arg[3]) {
  for (int k = 0; k < 3; k++) arg[k] = k < op->n_arg ? run->value[op->arg[k]] : NULL;
}

static void run_forward(row_run *run) {
  for (int i = 0; i < run->fused->ops.len; i++) {
    const zp_fused_op *op = &run->fused->ops.data[i];
    int v = run->fused->n_in + i;
    bool ready = !run->known[v];
    for (int k = 0; k < op->n_arg; k++) ready = ready && run->known[op->arg[k]];
    if (!ready) continue;
    double *arg[3];
    arguments(run, op, arg);
    zp_row_forward(&run->place, op, arg, run->value[v]);
    run->known[v] = true;
  }
}

static void run_backward(row_run *run) {
  for (int i = run->fused->ops.len - 1; i >= 0; i--) {
    const zp_fused_op *op = &run->fused->ops.data[i];
    int v = run->fused->n_in + i;
    if (!run->has_adjoint[v]) continue;
    double *arg[3], *d_arg[3] = {0};
    arguments(run, op, arg);
    for (int k = 0; k < op->n_arg; k++) {
      d_arg[k] = run->adjoint[op->arg[k]];
      run->has_adjoint[op->arg[k]] = true;
    }
    zp_row_backward(&run->place, op, arg, run->adjoint[v], d_arg);
  }
}

static int64_t rows_of(const zp_interpreter *in, int tensor) {
  return zp_shape_rows(zp_in_shape(in, tensor), in->microbatch);
}

void zp_interpret_fused(zp_interpreter *in, const zp_node *node) {
  zp_arena_mark mark = zp_arena_get_mark(in->graph->arena);
  row_run run = start_run(in, node->fused, node->out.data[0]);
  int64_t rows = rows_of(in, node->out.data[0]) * node->fused->row_parts;
  for (int64_t row = 0; row < rows; row++) {
    start_row(&run, row);
    for (int v = 0; v < node->fused->n_in; v++) load(&run, v, node->in.data[v]);
    run_forward(&run);
    for (int i = 0; i < node->out.len; i++) {
      int v = node->fused->out_value.data[i];
      memcpy(row_of(&run, v, node->out.data[i]), run.value[v], sizeof(double) * (size_t)value_cols(node->fused, v));
    }
  }
  zp_arena_rewind(in->graph->arena, mark);
}

/* A ROW node alone is a group of one op. */
void zp_interpret_row_node(zp_interpreter *in, const zp_node *node) {
  const zp_shape *rows = zp_in_shape(in, node->out.data[0]);
  zp_operand operand[3];
  int64_t in_cols[3];
  int out_value = node->in.len;
  zp_fused_op op = {.op = node->op, .n_arg = node->in.len, .attr = node->attr, .cols = zp_shape_cols(rows)};
  zp_fused fused = {.n_in = node->in.len, .operand = operand, .in_cols = in_cols};
  zp_fused_set_rows(&fused, &in->graph->tensors.data[node->out.data[0]], zp_op_row_parts(node));
  op.cols /= fused.row_parts;
  for (int k = 0; k < node->in.len; k++) {
    op.arg[k] = k;
    bool fits = zp_part_operand_kind(rows, zp_in_shape(in, node->in.data[k]), fused.row_parts, &operand[k]);
    in_cols[k] = zp_part_cols(zp_in_shape(in, node->in.data[k]), operand[k], fused.row_parts);
    assert(fits);
    (void)fits;
  }
  fused.ops.data = &op;
  fused.ops.len = 1;
  fused.out_value.data = &out_value;
  fused.out_value.len = 1;
  zp_node group = *node;
  group.fused = &fused;
  zp_interpret_fused(in, &group);
}

/* ---- FUSED_GRAD ---- */

static void load_grad_inputs(row_run *run, const zp_node *node) {
  for (int i = 0; i < node->in.len; i++) {
    zp_grad_arg arg = node->grad_in.data[i];
    if (arg.use == ZP_USE_SAVED) load(run, arg.value, node->in.data[i]);
    if (arg.use != ZP_USE_GRAD) continue;
    const double *from = row_of(run, arg.value, node->in.data[i]);
    for (int64_t c = 0; c < value_cols(run->fused, arg.value); c++) run->adjoint[arg.value][c] += from[c];
    run->has_adjoint[arg.value] = true;
  }
}

static void store_rows(const row_run *run, const zp_node *node, int output) {
  int v = node->grad_out.data[output].value;
  int64_t cols = value_cols(run->fused, v);
  double *to = run->in->value[node->out.data[output]] + run->place.row * cols;
  for (int64_t c = 0; c < cols; c++) {
    to[c] = run->adjoint[v][c];
    for (int i = 0; i < node->in.len; i++)
      if (node->grad_in.data[i].use == ZP_USE_ADDEND && node->grad_in.data[i].value == v)
        to[c] += run->in->value[node->in.data[i]][run->place.row * cols + c];
  }
}

static void add_columns(const row_run *run, const zp_node *node, int output) {
  int v = node->grad_out.data[output].value;
  double *to = run->in->param_grad[node->param_grad.data[output - node->out.len]];
  for (int64_t c = 0; c < value_cols(run->fused, v); c++) to[c] += run->adjoint[v][c];
}

void zp_interpret_fused_grad(zp_interpreter *in, const zp_node *node) {
  zp_arena_mark mark = zp_arena_get_mark(in->graph->arena);
  row_run run = start_run(in, node->fused, node->in.data[0]);
  int64_t rows = rows_of(in, node->in.data[0]) * node->fused->row_parts;
  for (int64_t row = 0; row < rows; row++) {
    start_row(&run, row);
    load_grad_inputs(&run, node);
    run_forward(&run);
    run_backward(&run);
    for (int i = 0; i < node->grad_out.len; i++) {
      if (node->grad_out.data[i].use == ZP_USE_ROWS)
        store_rows(&run, node, i);
      else
        add_columns(&run, node, i);
    }
  }
  zp_arena_rewind(in->graph->arena, mark);
}

const zp_oracle zp_oracle_FUSED = {.node = zp_interpret_fused};
const zp_oracle zp_oracle_FUSED_GRAD = {.node = zp_interpret_fused_grad};
