/* SPDX-License-Identifier: Apache-2.0 */
/* Makes row values. Every value goes through zp_row_emit, which gives equal expressions one index; the functions above
 * it fold constants and identities that hold for NaN and Inf too (x * 0 and x - x are left alone). */
#include <assert.h>
#include <math.h>
#include "rowprog.h"

static const struct {
  const char *text;
  int args;
} row_ops[] = {
#define ZP_ROW_INFO(name, text, args) {text, args},
    ZP_ROW_OPS(ZP_ROW_INFO)
#undef ZP_ROW_INFO
};

int zp_row_args(zp_row_op op) { return row_ops[op].args; }
const char *zp_row_op_name(zp_row_op op) { return row_ops[op].text; }

zp_row_program *zp_row_program_new(zp_arena *arena, int64_t rows_per_sample) {
  zp_row_program *program = ZP_NEW(arena, zp_row_program);
  program->arena = arena;
  program->rows_per_sample = rows_per_sample;
  return program;
}

static bool is_reduction(zp_row_op op) { return op == ZP_ROW_RSUM || op == ZP_ROW_RMAX || op == ZP_ROW_RLSE; }

static bool same_pairs(zp_row_pairs a, zp_row_pairs b) { return a.head == b.head && a.interleaved == b.interleaved; }

static bool same_value(const zp_row_value *a, const zp_row_value *b) {
  if (a->op != b->op || a->cols != b->cols || a->input != b->input || a->stream != b->stream) return false;
  if (memcmp(&a->imm, &b->imm, sizeof a->imm) != 0) return false; /* bitwise: -0 and NaN are constants like others */
  if (!same_pairs(a->table, b->table) || !same_pairs(a->swap, b->swap)) return false;
  return memcmp(a->arg, b->arg, sizeof(int) * (size_t)zp_row_args(a->op)) == 0;
}

/* Fills in the columns and the level from the arguments. */
static void type_value(const zp_row_program *program, zp_row_value *value) {
  for (int i = 0; i < zp_row_args(value->op); i++) {
    const zp_row_value *arg = &program->values.data[value->arg[i]];
    assert(value->cols == 0 || arg->cols == 0 || value->cols == arg->cols);
    if (arg->cols) value->cols = arg->cols;
    if (arg->level > value->level) value->level = arg->level;
  }
  if (is_reduction(value->op)) {
    assert(value->cols > 0);
    value->cols = 0;
    value->level++;
  }
}

int zp_row_emit(zp_row_program *program, zp_row_value value) {
  type_value(program, &value);
  for (int i = 0; i < program->values.len; i++)
    if (same_value(&program->values.data[i], &value)) return i;
  zp_push(program->arena, &program->values, value);
  return program->values.len - 1;
}

int zp_row_imm(zp_row_program *program, double number) {
  return zp_row_emit(program, (zp_row_value){.op = ZP_ROW_IMM, .imm = number});
}

int zp_row_leaf(zp_row_program *program, zp_row_op op, int input, int64_t cols) {
  return zp_row_emit(program, (zp_row_value){.op = op, .input = input, .cols = cols});
}

static bool is_imm(const zp_row_program *program, int value, double *number) {
  const zp_row_value *v = &program->values.data[value];
  *number = v->imm;
  return v->op == ZP_ROW_IMM;
}

static bool is_op(const zp_row_program *program, int value, zp_row_op op) {
  return program->values.data[value].op == op;
}

static double fold_unary(zp_row_op op, double a) {
  switch (op) {
  case ZP_ROW_NEG: return -a;
  case ZP_ROW_EXP: return exp(a);
  case ZP_ROW_LOG: return log(a);
  case ZP_ROW_SQRT: return sqrt(a);
  case ZP_ROW_RSQRT: return 1 / sqrt(a);
  case ZP_ROW_TANH: return tanh(a);
  case ZP_ROW_SIGMOID: return 1 / (1 + exp(-a));
  case ZP_ROW_ERF: return erf(a);
  default: assert(!"not a unary scalar op"); return 0;
  }
}

static double fold_binary(zp_row_op op, double a, double b) {
  switch (op) {
  case ZP_ROW_ADD: return a + b;
  case ZP_ROW_SUB: return a - b;
  case ZP_ROW_MUL: return a * b;
  case ZP_ROW_DIV: return a / b;
  default: assert(!"not a binary scalar op"); return 0;
  }
}

static bool is_cast(zp_row_op op) { return op == ZP_ROW_CAST_BF16 || op == ZP_ROW_CAST_F16 || op == ZP_ROW_CAST_F32; }

int zp_row_unary(zp_row_program *program, zp_row_op op, int a) {
  double number;
  if (!is_reduction(op) && !is_cast(op) && is_imm(program, a, &number))
    return zp_row_imm(program, fold_unary(op, number));
  if (op == ZP_ROW_NEG && is_op(program, a, ZP_ROW_NEG)) return program->values.data[a].arg[0];
  return zp_row_emit(program, (zp_row_value){.op = op, .arg = {a}});
}

/* number / x, which the language writes as (x * 0 + number) / x: the number, when `a` is such a numerator; else -1. The
 * quotient of an infinite x is then 0, as it must be, and not that of 0 * Inf. */
static int numerator_of(const zp_row_program *program, int a, int x) {
  const zp_row_value *sum = &program->values.data[a];
  double number, zero;
  if (sum->op != ZP_ROW_ADD || !is_imm(program, sum->arg[1], &number)) return -1;
  const zp_row_value *product = &program->values.data[sum->arg[0]];
  bool none = product->op == ZP_ROW_MUL && product->arg[0] == x && is_imm(program, product->arg[1], &zero) && zero == 0;
  return none ? sum->arg[1] : -1;
}

/* x + 0, x - 0, x * 1, x / 1, x * -1 and signs that move into the operation; -1 when there is nothing to simplify.
 * Constants stand on the right. */
static int simplify_binary(zp_row_program *program, zp_row_op op, int a, int b) {
  const zp_row_value *va = &program->values.data[a], *vb = &program->values.data[b];
  double number;
  if (is_imm(program, b, &number)) {
    if (number == 0 && (op == ZP_ROW_ADD || op == ZP_ROW_SUB)) return a;
    if (number == 1 && (op == ZP_ROW_MUL || op == ZP_ROW_DIV)) return a;
    if (number == -1 && op == ZP_ROW_MUL) return zp_row_unary(program, ZP_ROW_NEG, a);
    double inner;
    if (op == ZP_ROW_MUL && va->op == ZP_ROW_MUL && is_imm(program, va->arg[1], &inner))
      return zp_row_binary(program, ZP_ROW_MUL, va->arg[0], zp_row_imm(program, inner * number));
  }
  int number_of_quotient = op == ZP_ROW_DIV ? numerator_of(program, a, b) : -1;
  if (number_of_quotient >= 0) return zp_row_emit(program, (zp_row_value){.op = op, .arg = {number_of_quotient, b}});
  if (vb->op == ZP_ROW_NEG && op == ZP_ROW_ADD) return zp_row_binary(program, ZP_ROW_SUB, a, vb->arg[0]);
  if (vb->op == ZP_ROW_NEG && op == ZP_ROW_SUB) return zp_row_binary(program, ZP_ROW_ADD, a, vb->arg[0]);
  if (va->op == ZP_ROW_NEG && op == ZP_ROW_ADD) return zp_row_binary(program, ZP_ROW_SUB, b, va->arg[0]);
  if (op == ZP_ROW_MUL && va->op == ZP_ROW_NEG)
    return zp_row_unary(program, ZP_ROW_NEG, zp_row_binary(program, ZP_ROW_MUL, va->arg[0], b));
  if (op == ZP_ROW_MUL && vb->op == ZP_ROW_NEG)
    return zp_row_unary(program, ZP_ROW_NEG, zp_row_binary(program, ZP_ROW_MUL, a, vb->arg[0]));
  return -1;
}

int zp_row_binary(zp_row_program *program, zp_row_op op, int a, int b) {
  double left, right;
  bool a_const = is_imm(program, a, &left), b_const = is_imm(program, b, &right);
  if (a_const && b_const) return zp_row_imm(program, fold_binary(op, left, right));
  if ((op == ZP_ROW_ADD || op == ZP_ROW_MUL) && (a_const || (!b_const && a > b))) {
    int swap = a; /* one order for commutative operations, so that a * b and b * a are one value */
    a = b;
    b = swap;
  }
  int simpler = simplify_binary(program, op, a, b);
  return simpler >= 0 ? simpler : zp_row_emit(program, (zp_row_value){.op = op, .arg = {a, b}});
}

int zp_row_select_le(zp_row_program *program, int a, int b, int c, int d) {
  if (c == d) return c;
  return zp_row_emit(program, (zp_row_value){.op = ZP_ROW_SELECT_LE, .arg = {a, b, c, d}});
}

int zp_row_swap(zp_row_program *program, int a, zp_row_pairs pairs) {
  if (zp_row_is_u(program, a)) return a;
  const zp_row_value *v = &program->values.data[a];
  if (v->op == ZP_ROW_SWAP && same_pairs(v->table, pairs)) return v->arg[0];
  return zp_row_emit(program, (zp_row_value){.op = ZP_ROW_SWAP, .arg = {a}, .table = pairs});
}

/* The level of the pass in which the sum of `a` can be taken once factors that do not depend on the column have moved
 * out of the sum. */
static int sum_level(const zp_row_program *program, int a) {
  const zp_row_value *v = &program->values.data[a];
  if (v->cols == 0) return 0;
  if (v->op == ZP_ROW_NEG) return sum_level(program, v->arg[0]);
  bool left_u = false, right_u = false;
  if (zp_row_args(v->op) == 2) {
    left_u = zp_row_is_u(program, v->arg[0]);
    right_u = zp_row_is_u(program, v->arg[1]);
  }
  if (v->op == ZP_ROW_MUL && (left_u || right_u)) return sum_level(program, v->arg[left_u ? 1 : 0]);
  if (v->op == ZP_ROW_DIV && right_u) return sum_level(program, v->arg[0]);
  if (v->op == ZP_ROW_ADD || v->op == ZP_ROW_SUB) {
    int left = sum_level(program, v->arg[0]), right = sum_level(program, v->arg[1]);
    return left > right ? left : right;
  }
  return v->level;
}

bool zp_row_is_zero(const zp_row_program *program, int value) {
  double number;
  return is_imm(program, value, &number) && number == 0;
}

/* A sum times or over a factor that is the same in all columns. Of what adds up to zero nothing is left. */
static int scaled_sum(zp_row_program *program, zp_row_op op, int sum, int factor) {
  return zp_row_is_zero(program, sum) ? sum : zp_row_binary(program, op, sum, factor);
}

/* Sums are linear: factors that are the same in all columns move out, and a sum of two terms is split when that lets it
 * be taken in an earlier pass. This is what makes the derivative of layer_norm need one pass less.
 *
 * Columns less their own mean add up to zero: the sum of the columns less the sum of the columns. In a row that is not
 * finite that difference would be NaN, and so are its terms, which the kernel reads besides the sum. */
int zp_row_sum(zp_row_program *program, int a, int64_t cols) {
  const zp_row_value v = program->values.data[a];
  if (v.cols == 0) return zp_row_binary(program, ZP_ROW_MUL, a, zp_row_imm(program, (double)cols));
  if (v.op == ZP_ROW_NEG) return zp_row_unary(program, ZP_ROW_NEG, zp_row_sum(program, v.arg[0], cols));
  if (v.op == ZP_ROW_MUL || v.op == ZP_ROW_DIV) {
    if (zp_row_is_u(program, v.arg[1])) return scaled_sum(program, v.op, zp_row_sum(program, v.arg[0], cols), v.arg[1]);
    if (v.op == ZP_ROW_MUL && zp_row_is_u(program, v.arg[0]))
      return scaled_sum(program, v.op, zp_row_sum(program, v.arg[1], cols), v.arg[0]);
  }
  if ((v.op == ZP_ROW_ADD || v.op == ZP_ROW_SUB) && sum_level(program, a) < v.level) {
    int left = zp_row_sum(program, v.arg[0], cols), right = zp_row_sum(program, v.arg[1], cols);
    return left == right && v.op == ZP_ROW_SUB ? zp_row_imm(program, 0) : zp_row_binary(program, v.op, left, right);
  }
  return zp_row_emit(program, (zp_row_value){.op = ZP_ROW_RSUM, .arg = {a}});
}

void zp_row_sink_value(zp_row_program *program, zp_row_sink_kind kind, int value, int64_t cols, const char *name) {
  int *count = kind == ZP_ROW_STORE ? &program->n_out : &program->n_partial;
  zp_row_sink sink = {.kind = kind, .value = value, .index = (*count)++, .cols = cols, .name = name};
  zp_push(program->arena, &program->sinks, sink);
}
