/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a row program in f64 with plain loops: the oracle of the LLVM kernels. Values are computed in their order, row
 * by row; no passes, no vectors, libm functions. */
#include <assert.h>
#include <math.h>
#include <zplan/philox.h>
#include <zplan/zpk.h>
#include <zplan/zpk_narrow.h>
#include "interpret_program.h"

typedef struct interpreter {
  const zp_row_program *program;
  const zpk_row_args *args;
  int64_t row;
  double **value; /* per value: its columns, or one number */
} interpreter;

static int64_t other_column(zp_row_pairs pairs, int64_t column) {
  if (pairs.head == 0) return column;
  if (pairs.interleaved) return column ^ 1;
  return column % pairs.head < pairs.head / 2 ? column + pairs.head / 2 : column - pairs.head / 2;
}

static double keep(const interpreter *in, const zp_row_value *v, int64_t column) {
  const zpk_row_args *args = in->args;
  if (!args->dropout) return 1;
  int64_t S = in->program->rows_per_sample;
  uint64_t element = (uint64_t)(in->row % S * args->logical_columns + args->first_column + column);
  uint64_t sample = (uint64_t)(args->first_sample + in->row / S);
  double uniform = zp_philox_uniform(args->seed, args->step, sample, (uint64_t)v->stream, args->instance, element);
  return uniform < v->imm ? 0 : 1 / (1 - v->imm);
}

static double table(const interpreter *in, const zp_row_value *v, int64_t column) {
  int64_t head = v->table.head, in_head = column % head;
  int64_t pair = v->table.interleaved ? in_head / 2 : in_head % (head / 2);
  bool first = v->table.interleaved ? in_head % 2 == 0 : in_head < head / 2;
  double position = (double)(in->row % in->program->rows_per_sample);
  double angle = position * pow(v->imm, -2.0 * (double)pair / (double)head);
  if (v->op == ZP_ROW_COS) return cos(angle);
  return first ? -sin(angle) : sin(angle);
}

static double leaf(const interpreter *in, const zp_row_value *v, int64_t column) {
  const double *input = v->op == ZP_ROW_KEEP ? NULL : in->args->in ? in->args->in[v->input] : NULL;
  switch (v->op) {
  case ZP_ROW_IMM: return v->imm;
  case ZP_ROW_ROWS: return input[in->row * in->args->in_ld[v->input] + column];
  case ZP_ROW_COLUMNS: return input[column];
  case ZP_ROW_POSITION: return input[in->row % in->program->rows_per_sample * v->cols + column];
  case ZP_ROW_KEEP: return keep(in, v, column);
  default: return table(in, v, column);
  }
}

static double apply(zp_row_op op, const double *a) {
  switch (op) {
  case ZP_ROW_NEG: return -a[0];
  case ZP_ROW_ADD: return a[0] + a[1];
  case ZP_ROW_SUB: return a[0] - a[1];
  case ZP_ROW_MUL: return a[0] * a[1];
  case ZP_ROW_DIV: return a[0] / a[1];
  case ZP_ROW_EXP: return exp(a[0]);
  case ZP_ROW_LOG: return log(a[0]);
  case ZP_ROW_SQRT: return sqrt(a[0]);
  case ZP_ROW_RSQRT: return 1 / sqrt(a[0]);
  case ZP_ROW_TANH: return tanh(a[0]);
  case ZP_ROW_SIGMOID: return 1 / (1 + exp(-a[0]));
  case ZP_ROW_ERF: return erf(a[0]);
  case ZP_ROW_CAST_BF16: return zpk_widen_bf16(zpk_round_bf16((float)a[0]));
  case ZP_ROW_CAST_F16: return zpk_widen_f16(zpk_round_f16((float)a[0]));
  case ZP_ROW_CAST_F32: return (float)a[0];
  case ZP_ROW_SELECT_LE: return a[0] <= a[1] ? a[2] : a[3];
  default: assert(!"not an elementwise op"); return 0;
  }
}

static double reduce(zp_row_op op, const double *x, int64_t cols) {
  double result = op == ZP_ROW_RSUM ? 0 : -INFINITY;
  for (int64_t j = 0; j < cols; j++)
    if (op == ZP_ROW_RSUM)
      result += x[j];
    else if (x[j] > result)
      result = x[j];
  return result;
}

static void compute(interpreter *in, int index) {
  const zp_row_value *v = &in->program->values.data[index];
  double *result = in->value[index];
  if (v->op == ZP_ROW_RSUM || v->op == ZP_ROW_RMAX) {
    result[0] = reduce(v->op, in->value[v->arg[0]], in->program->values.data[v->arg[0]].cols);
    return;
  }
  int n_arg = zp_row_args(v->op);
  for (int64_t j = 0; j < (v->cols ? v->cols : 1); j++) {
    double a[4] = {0};
    for (int k = 0; k < n_arg; k++) a[k] = in->value[v->arg[k]][zp_row_is_u(in->program, v->arg[k]) ? 0 : j];
    result[j] = n_arg ? apply(v->op, a) : leaf(in, v, other_column(v->swap, j));
  }
}

static void write_sink(const interpreter *in, const zp_row_sink *sink, int64_t chunk) {
  const double *x = in->value[sink->value];
  bool u = zp_row_is_u(in->program, sink->value);
  bool store = sink->kind == ZP_ROW_STORE;
  double *out = store ? (double *)in->args->out[sink->index] + in->row * in->args->out_ld[sink->index]
                      : (double *)in->args->partial[sink->index] + chunk * sink->cols;
  for (int64_t j = 0; j < sink->cols; j++) out[j] = (store ? 0 : out[j]) + x[u ? 0 : j];
}

void zp_row_interpret(const zp_row_program *program, const zpk_row_args *args, int64_t begin, int64_t end,
                      int64_t chunk) {
  interpreter in = {.program = program, .args = args};
  zp_arena *arena = zp_arena_new("row interpreter");
  in.value = ZP_NEW_ARRAY(arena, double *, program->values.len);
  for (int v = 0; v < program->values.len; v++) {
    int64_t cols = program->values.data[v].cols;
    in.value[v] = ZP_NEW_ARRAY(arena, double, cols ? cols : 1);
  }
  for (int i = 0; i < program->sinks.len; i++) {
    const zp_row_sink *sink = &program->sinks.data[i];
    if (sink->kind != ZP_ROW_CSUM) continue;
    memset((double *)args->partial[sink->index] + chunk * sink->cols, 0, sizeof(double) * (size_t)sink->cols);
  }
  for (in.row = begin; in.row < end; in.row++) {
    for (int v = 0; v < program->values.len; v++) compute(&in, v);
    for (int i = 0; i < program->sinks.len; i++) write_sink(&in, &program->sinks.data[i], chunk);
  }
  zp_arena_free(arena);
}
