/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode differentiation of a row program: one rule for each primitive op, applied from the last value to the
 * first, so that every graph op gets its backward from its forward definition in expand.c.
 *
 * The expression graph alone is differentiated. Which graph op a value came from plays no part: build.c may have
 * simplified across ops, and one value may stand for the results of several.
 *
 * Shapes: the adjoint of an r value may be a u (the same in every column). What flows from an r value into a u argument
 * is summed over the columns; what flows from a u into an r argument (through a reduction) is broadcast. */
#include <assert.h>
#include <math.h>
#include "rowprog.h"

typedef struct tape {
  zp_row_program *program;
  int count;    /* values of the forward part */
  int *adjoint; /* per forward value: its adjoint, -1 when nothing arrived */
  int *saved;   /* per forward value: the leaf that holds its saved result, -1 none */
} tape;

static int binary(tape *t, zp_row_op op, int a, int b) { return zp_row_binary(t->program, op, a, b); }
static int imm(tape *t, double number) { return zp_row_imm(t->program, number); }

/* Forward value v as backward should read it. */
static int read(const tape *t, int v) { return v < t->count && t->saved[v] >= 0 ? t->saved[v] : v; }

/* Adds g, the adjoint that value `from` passes on, to the adjoint of its argument `to`. */
static void pass_on(tape *t, int from, int to, int g) {
  int64_t from_cols = t->program->values.data[from].cols;
  if (t->program->values.data[to].op == ZP_ROW_IMM) return;
  if (from_cols > 0 && zp_row_is_u(t->program, to)) g = zp_row_sum(t->program, g, from_cols);
  if (zp_row_is_u(t->program, to) && zp_row_is_zero(t->program, g)) return; /* a mean of what is less its mean */
  t->adjoint[to] = t->adjoint[to] < 0 ? g : binary(t, ZP_ROW_ADD, t->adjoint[to], g);
}

static int times(tape *t, int g, int factor) { return binary(t, ZP_ROW_MUL, g, factor); }

static void divide_rule(tape *t, int v, const zp_row_value *value, int g) {
  int quotient = binary(t, ZP_ROW_DIV, g, read(t, value->arg[1]));
  pass_on(t, v, value->arg[0], quotient);
  pass_on(t, v, value->arg[1], zp_row_unary(t->program, ZP_ROW_NEG, times(t, quotient, read(t, v))));
}

static void select_rule(tape *t, int v, const zp_row_value *value, int g) {
  int a = read(t, value->arg[0]), b = read(t, value->arg[1]), zero = imm(t, 0);
  pass_on(t, v, value->arg[2], zp_row_select_le(t->program, a, b, g, zero));
  pass_on(t, v, value->arg[3], zp_row_select_le(t->program, a, b, zero, g));
}

/* The derivative of a function of one argument x with value y, times g. */
static int unary_rule(tape *t, zp_row_op op, int x, int y, int g) {
  switch (op) {
  case ZP_ROW_NEG: return zp_row_unary(t->program, ZP_ROW_NEG, g);
  case ZP_ROW_EXP: return times(t, g, y);
  case ZP_ROW_LOG: return binary(t, ZP_ROW_DIV, g, x);
  case ZP_ROW_SQRT: return binary(t, ZP_ROW_DIV, times(t, g, imm(t, 0.5)), y);
  case ZP_ROW_RSQRT: return times(t, g, times(t, times(t, y, times(t, y, y)), imm(t, -0.5)));
  case ZP_ROW_TANH: return times(t, g, binary(t, ZP_ROW_SUB, imm(t, 1), times(t, y, y)));
  case ZP_ROW_SIGMOID: return times(t, g, times(t, y, binary(t, ZP_ROW_SUB, imm(t, 1), y)));
  case ZP_ROW_ERF: { /* 2 / sqrt(pi) exp(-x^2) */
    int square = zp_row_unary(t->program, ZP_ROW_NEG, times(t, x, x));
    return times(t, g, times(t, zp_row_unary(t->program, ZP_ROW_EXP, square), imm(t, M_2_SQRTPI)));
  }
  case ZP_ROW_RLSE: /* the same expression as softmax's result: no new exponential */
    return times(t, g, read(t, zp_row_unary(t->program, ZP_ROW_EXP, binary(t, ZP_ROW_SUB, x, y))));
  default: return g; /* RSUM: the same for every column; what is rounded passes it as it is */
  }
}

/* The whole gradient of a value that has a name is called after it. */
static void name_gradient(tape *t, const zp_row_value *value, int g) {
  const char *name = value->name;
  bool operand = value->op == ZP_ROW_ROWS || value->op == ZP_ROW_COLUMNS || value->op == ZP_ROW_POSITION;
  if (operand && t->program->in_name) name = t->program->in_name[value->input];
  if (!name) return;
  bool negative = t->program->values.data[g].op == ZP_ROW_NEG; /* signs move on into what reads it */
  if (negative) g = t->program->values.data[g].arg[0];
  zp_row_named(t->program, g, zp_format(t->program->arena, negative ? "minus_d_%s" : "d_%s", name),
               zp_format(t->program->arena, negative ? "gradient of %s, with the other sign" : "gradient of %s", name));
}

static void apply_rule(tape *t, int v) {
  const zp_row_value value = t->program->values.data[v]; /* a copy: new values move the array */
  int g = t->adjoint[v];
  name_gradient(t, &value, g);
  switch (value.op) {
  case ZP_ROW_ADD:
    pass_on(t, v, value.arg[0], g);
    pass_on(t, v, value.arg[1], g);
    break;
  case ZP_ROW_SUB:
    pass_on(t, v, value.arg[0], g);
    pass_on(t, v, value.arg[1], zp_row_unary(t->program, ZP_ROW_NEG, g));
    break;
  case ZP_ROW_MUL:
    if (value.arg[0] == value.arg[1]) { /* a square: once, not two equal terms */
      pass_on(t, v, value.arg[0], times(t, times(t, g, imm(t, 2)), read(t, value.arg[0])));
      break;
    }
    pass_on(t, v, value.arg[0], times(t, g, read(t, value.arg[1])));
    pass_on(t, v, value.arg[1], times(t, g, read(t, value.arg[0])));
    break;
  case ZP_ROW_DIV: divide_rule(t, v, &value, g); break;
  case ZP_ROW_SELECT_LE: select_rule(t, v, &value, g); break;
  case ZP_ROW_SWAP: pass_on(t, v, value.arg[0], zp_row_swap(t->program, g, value.table)); break;
  /* The maximum appears only as the shift of softmax, whose result does not depend on the shift. */
  case ZP_ROW_RMAX: break;
  default:
    if (zp_row_args(value.op) == 1)
      pass_on(t, v, value.arg[0], unary_rule(t, value.op, read(t, value.arg[0]), read(t, v), g));
  }
}

void zp_row_differentiate(zp_row_program *program, int count, const int *origin, int *adjoint) {
  tape t = {.program = program, .count = count, .adjoint = adjoint};
  t.saved = ZP_NEW_ARRAY(program->arena, int, count);
  for (int v = 0; v < count; v++) t.saved[v] = -1;
  for (int v = 0; v < count; v++)
    if (origin[v] >= 0) t.saved[origin[v]] = v;
  for (int v = count - 1; v >= 0; v--) {
    assert(origin[v] < v); /* else what the leaf's readers pass on would come after its origin's turn */
    if (adjoint[v] < 0) continue;
    if (origin[v] >= 0)
      pass_on(&t, v, origin[v], adjoint[v]);
    else
      apply_rule(&t, v);
  }
}
