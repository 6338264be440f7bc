/* What each ROW op of the graph means, in row values. Forward only: grad.c makes the derivatives from the same values.
 * NaN passes through every op. */
#include <assert.h>
#include <math.h>
#include "rowprog.h"

/* Short forms for the formulas below. */
static int add(zp_row_program *p, int a, int b) { return zp_row_binary(p, ZP_ROW_ADD, a, b); }
static int sub(zp_row_program *p, int a, int b) { return zp_row_binary(p, ZP_ROW_SUB, a, b); }
static int mul(zp_row_program *p, int a, int b) { return zp_row_binary(p, ZP_ROW_MUL, a, b); }
static int scale(zp_row_program *p, int a, double factor) { return mul(p, a, zp_row_imm(p, factor)); }
static int shift(zp_row_program *p, int a, double offset) { return add(p, a, zp_row_imm(p, offset)); }

static int part(zp_row_program *p, int v, const char *name, const char *words) {
  return zp_row_part(p, v, name, words);
}

static int relu(zp_row_program *p, int x) {
  int zero = zp_row_imm(p, 0);
  return zp_row_select_le(p, x, zero, zero, x);
}

/* x (1 + tanh(t)) / 2 with t = sqrt(2 / pi) (x + 0.044715 x^3), written as x sigmoid(2 t): without the cancellation for
 * negative x. */
static int gelu_tanh(zp_row_program *p, int x) {
  int cubic = mul(p, x, part(p, shift(p, scale(p, mul(p, x, x), 0.044715), 1), "bend", "1 + 0.044715 x^2"));
  int twice = part(p, scale(p, cubic, 2 * sqrt(2 / M_PI)), "argument", "2 sqrt(2 / pi) (x + 0.044715 x^3)");
  return mul(p, x, part(p, zp_row_unary(p, ZP_ROW_SIGMOID, twice), "gate", "its logistic, (1 + tanh(half of it)) / 2"));
}

static int gelu_erf(zp_row_program *p, int x) {
  int scaled = part(p, scale(p, x, M_SQRT1_2), "argument", "x / sqrt(2)");
  int erf_value = part(p, zp_row_unary(p, ZP_ROW_ERF, scaled), "erf", "error function of it");
  return mul(p, scale(p, x, 0.5), part(p, shift(p, erf_value, 1), "gate", "1 + erf(x / sqrt(2))"));
}

/* Two-pass variance: mean first, then the squares of the differences. */
static int layer_norm(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  double n = (double)op->cols;
  int sum = part(p, zp_row_sum(p, arg[0], op->cols), "sum", "over the columns of the row");
  int centred =
      part(p, sub(p, arg[0], part(p, scale(p, sum, 1 / n), "mean", "of the row")), "centered", "x less the mean");
  int squares = part(p, zp_row_sum(p, mul(p, centred, centred), op->cols), "squares", "their sum over the columns");
  int variance = part(p, scale(p, squares, 1 / n), "variance", "of the row");
  int root = part(p, zp_row_unary(p, ZP_ROW_RSQRT, shift(p, variance, op->attr.eps)), "rstd",
                  "1 / standard deviation of the row");
  int normal = part(p, mul(p, centred, root), "normal", "x less the mean, over the standard deviation");
  if (op->n_arg > 1) normal = mul(p, normal, arg[1]);
  return op->n_arg > 2 ? add(p, normal, arg[2]) : normal;
}

static int rms_norm(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  int squares = part(p, zp_row_sum(p, mul(p, arg[0], arg[0]), op->cols), "squares", "their sum over the columns");
  int square = part(p, scale(p, squares, 1 / (double)op->cols), "mean_square", "of the row");
  int root = part(p, zp_row_unary(p, ZP_ROW_RSQRT, shift(p, square, op->attr.eps)), "rrms",
                  "1 / root of the mean square of the row");
  int normal = part(p, mul(p, arg[0], root), "normal", "x over the root of the mean square");
  if (op->n_arg == 1) return normal;
  int weight = op->attr.value == 0 ? arg[1] : part(p, shift(p, arg[1], op->attr.value), "weight", "with its offset");
  return mul(p, normal, weight);
}

/* exp(z - rlse(z)) with z = x - max: the derivative of rlse is the softmax itself, so that backward can use a saved
 * result and needs no second exponential. */
static int softmax(zp_row_program *p, int x) {
  int largest = part(p, zp_row_unary(p, ZP_ROW_RMAX, x), "max", "largest column of the row");
  int z = part(p, sub(p, x, largest), "below_max", "x less the largest column");
  int lse = part(p, zp_row_unary(p, ZP_ROW_RLSE, z), "lse", "log of the sum of exp over the columns");
  return zp_row_unary(p, ZP_ROW_EXP, sub(p, z, lse));
}

static int dropout(zp_row_program *p, const zp_fused_op *op, int x) {
  zp_row_value keep = {.op = ZP_ROW_KEEP, .cols = op->cols, .imm = op->attr.rate, .stream = op->attr.stream};
  if (op->attr.rate == 0) return x;
  return mul(p, x, part(p, zp_row_emit(p, keep), "keep", "0, or what makes up for the columns that are dropped"));
}

/* Each pair (a, b) turns into (a cos - b sin, b cos + a sin); the signs are in the SIN table. */
static int rope(zp_row_program *p, const zp_fused_op *op, int x) {
  zp_row_pairs pairs = {.head = op->attr.head_size, .interleaved = op->attr.interleaved};
  assert(pairs.head > 0); /* filled in by the shape rules */
  zp_row_value table = {.op = ZP_ROW_COS, .cols = op->cols, .imm = op->attr.theta, .table = pairs};
  int cosine = zp_row_emit(p, table);
  table.op = ZP_ROW_SIN;
  int sine = zp_row_emit(p, table);
  return add(p, mul(p, x, cosine), mul(p, zp_row_swap(p, x, pairs), sine));
}

int zp_row_expand(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  switch (op->op) {
  case ZP_OP_ADD: return add(p, arg[0], arg[1]);
  case ZP_OP_SUB: return sub(p, arg[0], arg[1]);
  case ZP_OP_MUL: return mul(p, arg[0], arg[1]);
  case ZP_OP_DIV: return zp_row_binary(p, ZP_ROW_DIV, arg[0], arg[1]);
  case ZP_OP_ADD_CONST: return shift(p, arg[0], op->attr.value);
  case ZP_OP_MUL_CONST: return scale(p, arg[0], op->attr.value);
  case ZP_OP_EXP: return zp_row_unary(p, ZP_ROW_EXP, arg[0]);
  case ZP_OP_LOG: return zp_row_unary(p, ZP_ROW_LOG, arg[0]);
  case ZP_OP_SQRT: return zp_row_unary(p, ZP_ROW_SQRT, arg[0]);
  case ZP_OP_RSQRT: return zp_row_unary(p, ZP_ROW_RSQRT, arg[0]);
  case ZP_OP_TANH: return zp_row_unary(p, ZP_ROW_TANH, arg[0]);
  case ZP_OP_SIGMOID: return zp_row_unary(p, ZP_ROW_SIGMOID, arg[0]);
  case ZP_OP_RELU: return relu(p, arg[0]);
  case ZP_OP_SILU: return mul(p, arg[0], part(p, zp_row_unary(p, ZP_ROW_SIGMOID, arg[0]), "gate", "logistic function"));
  case ZP_OP_CAST_BF16: return zp_row_unary(p, ZP_ROW_CAST_BF16, arg[0]);
  case ZP_OP_CAST_F16: return zp_row_unary(p, ZP_ROW_CAST_F16, arg[0]);
  case ZP_OP_CAST_F32: return zp_row_unary(p, ZP_ROW_CAST_F32, arg[0]);
  case ZP_OP_GELU: return op->attr.tanh_form ? gelu_tanh(p, arg[0]) : gelu_erf(p, arg[0]);
  case ZP_OP_LAYER_NORM: return layer_norm(p, op, arg);
  case ZP_OP_RMS_NORM: return rms_norm(p, op, arg);
  case ZP_OP_SOFTMAX: return softmax(p, arg[0]);
  case ZP_OP_DROPOUT: return dropout(p, op, arg[0]);
  case ZP_OP_ROPE: return rope(p, op, arg[0]);
  default: assert(!"not a row op"); return -1;
  }
}
