/* SPDX-License-Identifier: Apache-2.0 */
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

static int add_const(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  return shift(p, arg[0], op->attr.value);
}

static int mul_const(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  return scale(p, arg[0], op->attr.value);
}

static int relu(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  (void)op;
  int zero = zp_row_imm(p, 0);
  return zp_row_select_le(p, arg[0], zero, zero, arg[0]);
}

static int leaky_relu(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  return zp_row_select_le(p, arg[0], zp_row_imm(p, 0), scale(p, arg[0], op->attr.value), arg[0]);
}

static int silu(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  (void)op;
  return mul(p, arg[0], part(p, zp_row_unary(p, ZP_ROW_SIGMOID, arg[0]), "gate", "logistic function"));
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

static int gelu(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  return op->attr.tanh_form ? gelu_tanh(p, arg[0]) : gelu_erf(p, arg[0]);
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

static int l2_norm(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  int squares = part(p, zp_row_sum(p, mul(p, arg[0], arg[0]), op->cols), "squares", "their sum over the columns");
  int root = zp_row_unary(p, ZP_ROW_RSQRT, shift(p, squares, op->attr.eps));
  return mul(p, arg[0], part(p, root, "rlength", "1 / length of the row"));
}

/* exp(z - rlse(z)) with z = x - max: the derivative of rlse is the softmax itself, so that backward can use a saved
 * result and needs no second exponential. */
static int softmax(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  (void)op;
  int x = arg[0];
  int largest = part(p, zp_row_unary(p, ZP_ROW_RMAX, x), "max", "largest column of the row");
  int z = part(p, sub(p, x, largest), "below_max", "x less the largest column");
  int lse = part(p, zp_row_unary(p, ZP_ROW_RLSE, z), "lse", "log of the sum of exp over the columns");
  return zp_row_unary(p, ZP_ROW_EXP, sub(p, z, lse));
}

static int dropout(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  zp_row_value keep = {.op = ZP_ROW_KEEP, .cols = op->cols, .imm = op->attr.rate, .stream = op->attr.stream};
  if (op->attr.rate == 0) return arg[0];
  return mul(p, arg[0], part(p, zp_row_emit(p, keep), "keep", "0, or what makes up for the columns that are dropped"));
}

/* Each pair (a, b) turns into (a cos - b sin, b cos + a sin); the signs are in the SIN table. */
static int rope(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  zp_row_pairs pairs = {.head = op->attr.head_size, .interleaved = op->attr.interleaved};
  assert(pairs.head > 0); /* filled in by the shape rules */
  zp_row_value table = {.op = ZP_ROW_COS, .cols = op->cols, .imm = op->attr.theta, .table = pairs};
  int cosine = zp_row_emit(p, table);
  table.op = ZP_ROW_SIN;
  int sine = zp_row_emit(p, table);
  return add(p, mul(p, arg[0], cosine), mul(p, zp_row_swap(p, arg[0], pairs), sine));
}

/* A row op is one operation on row values, or what its rule makes of them. */
typedef struct expansion {
  zp_row_op value;
  int (*rule)(zp_row_program *p, const zp_fused_op *op, const int *arg);
} expansion;

static const expansion expansions[ZP_OP_COUNT] = {
    [ZP_OP_ADD] = {.value = ZP_ROW_ADD},
    [ZP_OP_SUB] = {.value = ZP_ROW_SUB},
    [ZP_OP_MUL] = {.value = ZP_ROW_MUL},
    [ZP_OP_DIV] = {.value = ZP_ROW_DIV},
    [ZP_OP_ADD_CONST] = {.rule = add_const},
    [ZP_OP_MUL_CONST] = {.rule = mul_const},
    [ZP_OP_EXP] = {.value = ZP_ROW_EXP},
    [ZP_OP_LOG] = {.value = ZP_ROW_LOG},
    [ZP_OP_SQRT] = {.value = ZP_ROW_SQRT},
    [ZP_OP_RSQRT] = {.value = ZP_ROW_RSQRT},
    [ZP_OP_TANH] = {.value = ZP_ROW_TANH},
    [ZP_OP_SIGMOID] = {.value = ZP_ROW_SIGMOID},
    [ZP_OP_RELU] = {.rule = relu},
    [ZP_OP_LEAKY_RELU] = {.rule = leaky_relu},
    [ZP_OP_SILU] = {.rule = silu},
    [ZP_OP_GELU] = {.rule = gelu},
    [ZP_OP_CAST_BF16] = {.value = ZP_ROW_CAST_BF16},
    [ZP_OP_CAST_F16] = {.value = ZP_ROW_CAST_F16},
    [ZP_OP_CAST_F32] = {.value = ZP_ROW_CAST_F32},
    [ZP_OP_LAYER_NORM] = {.rule = layer_norm},
    [ZP_OP_RMS_NORM] = {.rule = rms_norm},
    [ZP_OP_L2_NORM] = {.rule = l2_norm},
    [ZP_OP_SOFTMAX] = {.rule = softmax},
    [ZP_OP_DROPOUT] = {.rule = dropout},
    [ZP_OP_ROPE] = {.rule = rope},
};

int zp_row_expand(zp_row_program *p, const zp_fused_op *op, const int *arg) {
  const expansion *e = &expansions[op->op];
  assert(e->rule || e->value); /* else it is no row op, or its row is missing */
  if (e->rule) return e->rule(p, op, arg);
  return op->n_arg == 1 ? zp_row_unary(p, e->value, arg[0]) : zp_row_binary(p, e->value, arg[0], arg[1]);
}
