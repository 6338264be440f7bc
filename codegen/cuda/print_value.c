/* SPDX-License-Identifier: Apache-2.0 */
/* One row value: its name, and the statement that computes it for column c, or for the row. */
#include <assert.h>
#include <math.h>
#include "text.h"

/* A number that reads back as itself. Constants are folded in f64 and rounded to `real` once, as for every target. */
static const char *number(zp_arena *arena, double x) {
  if (isnan(x)) return "(zpd_infinity() - zpd_infinity())";
  if (isinf(x)) return x > 0 ? "zpd_infinity()" : "-zpd_infinity()";
  const char *digits = zp_decimal(arena, x);
  return zp_format(arena, "(real)%s%s", digits, strpbrk(digits, ".e") ? "" : ".0");
}

/* ---- leaves ---- */

const char *zp_cuda_column_of(zp_cuda_text *t, const zp_row_value *leaf) {
  if (!leaf->swap.head) return "c";
  if (leaf->swap.interleaved) return "zpd_other_neighbour(c)";
  return zp_format(t->arena, "zpd_other_half(c, %lld)", (long long)leaf->swap.head);
}

/* Every value has its bits, of the columns where it is read. */
static const char *keep(zp_cuda_text *t, const zp_row_value *v) {
  const char *slot = zp_cuda_slot(t, v->cols);
  if (zp_cuda_columns(t, v->cols) <= 32)
    return zp_format(t->arena, "kept_%s >> (%s) & 1 ? factor_%s : 0", v->name, slot, v->name);
  return zp_format(t->arena, "kept_%s[(%s) / 32] >> (%s) %% 32 & 1 ? factor_%s : 0", v->name, slot, slot, v->name);
}

static const char *pair_of(zp_arena *arena, zp_row_pairs pairs, const char *column) {
  long long head = (long long)pairs.head;
  return pairs.interleaved ? zp_format(arena, "%s %% %lld / 2", column, head)
                           : zp_format(arena, "%s %% %lld", column, head / 2);
}

static const char *rotary(zp_cuda_text *t, const zp_row_value *v, const char *column) {
  bool cosine = v->op == ZP_ROW_COS;
  const char *table = zp_cuda_rotary_of(t, v);
  const char *pair = pair_of(t->arena, v->table, column), *x;
  if (zp_cuda_shares_rotary(t, v))
    x = zp_format(t->arena, "%s_%s[%s]", cosine ? "cos" : "sin", table, pair);
  else
    x = zp_format(t->arena, "(real)%s(position * zpd_frequency_%s[%s])", cosine ? "cos" : "sin", table, pair);
  if (cosine) return x;
  if (v->table.interleaved) return zp_format(t->arena, "zpd_sign_of_neighbour(%s, %s)", column, x);
  return zp_format(t->arena, "zpd_sign_of_half(%s, %lld, %s)", column, (long long)v->table.head, x);
}

static const char *leaf(zp_cuda_text *t, int index) {
  const zp_row_value *v = &t->program->values.data[index];
  const char *column = zp_cuda_column_of(t, v);
  switch (v->op) {
  case ZP_ROW_KEEP: return keep(t, v);
  case ZP_ROW_COS:
  case ZP_ROW_SIN: return rotary(t, v, column);
  default: break;
  }
  if (t->vec == 1) return zp_format(t->arena, "in_%s[%s]", t->program->in_name[v->input], column);
  /* Neighbours are in the same pack, and other halves have a pack of their own. */
  return zp_format(t->arena, "zpd_raw_at(%s, %s)", zp_cuda_pack_of(t, v),
                   v->swap.head && v->swap.interleaved ? "k ^ 1" : "k");
}

/* ---- operations ---- */

/* On the left of + - * /, a formula that C reads from left to right anyway needs no parentheses. */
static const char *left_operand(zp_cuda_text *t, zp_row_op op, int v) {
  zp_row_op inner = t->program->values.data[v].op;
  bool product = inner == ZP_ROW_MUL || inner == ZP_ROW_DIV, sum = inner == ZP_ROW_ADD || inner == ZP_ROW_SUB;
  bool plain = product || (sum && (op == ZP_ROW_ADD || op == ZP_ROW_SUB));
  return plain ? zp_cuda_expression(t, v) : zp_cuda_operand(t, v);
}

static const char *right_operand(zp_cuda_text *t, zp_row_op op, int v) {
  zp_row_op inner = t->program->values.data[v].op;
  bool product = inner == ZP_ROW_MUL || inner == ZP_ROW_DIV;
  return product && (op == ZP_ROW_ADD || op == ZP_ROW_SUB) ? zp_cuda_expression(t, v) : zp_cuda_operand(t, v);
}

static const char *infix(zp_cuda_text *t, const zp_row_value *v, char symbol) {
  return zp_format(t->arena, "%s %c %s", left_operand(t, v->op, v->arg[0]), symbol, right_operand(t, v->op, v->arg[1]));
}

static const char *call(zp_cuda_text *t, const char *function, const zp_row_value *v) {
  return zp_format(t->arena, "%s(%s)", function, zp_cuda_expression(t, v->arg[0]));
}

static const char *compute(zp_cuda_text *t, const zp_row_value *v) {
  switch (v->op) {
  case ZP_ROW_NEG: return zp_format(t->arena, "-%s", zp_cuda_operand(t, v->arg[0]));
  case ZP_ROW_ADD: return infix(t, v, '+');
  case ZP_ROW_SUB: return infix(t, v, '-');
  case ZP_ROW_MUL: return infix(t, v, '*');
  case ZP_ROW_DIV: return infix(t, v, '/');
  case ZP_ROW_EXP: return call(t, "zpd_exp", v);
  case ZP_ROW_LOG: return call(t, "zpd_log", v);
  case ZP_ROW_SQRT: return call(t, "zpd_sqrt", v);
  case ZP_ROW_RSQRT: return call(t, "zpd_rsqrt", v);
  case ZP_ROW_TANH: return call(t, "zpd_tanh", v);
  case ZP_ROW_SIGMOID: return call(t, "zpd_sigmoid", v);
  case ZP_ROW_ERF: return call(t, "zpd_erf", v);
  case ZP_ROW_CAST_BF16: return call(t, "zpd_cast_bf16", v);
  case ZP_ROW_CAST_F16: return call(t, "zpd_cast_f16", v);
  case ZP_ROW_CAST_F32: return call(t, "zpd_cast_f32", v);
  case ZP_ROW_SELECT_LE:
    return zp_format(t->arena, "%s <= %s ? %s : %s", zp_cuda_operand(t, v->arg[0]), zp_cuda_operand(t, v->arg[1]),
                     zp_cuda_operand(t, v->arg[2]), zp_cuda_operand(t, v->arg[3]));
  default: assert(!"not an elementwise op"); return NULL;
  }
}

const char *zp_cuda_expression(zp_cuda_text *t, int v) {
  const zp_row_value *value = &t->program->values.data[v];
  if (value->op == ZP_ROW_IMM) return number(t->arena, value->imm);
  return t->inlined[v] ? compute(t, value) : value->name;
}

const char *zp_cuda_operand(zp_cuda_text *t, int v) {
  const char *text = zp_cuda_expression(t, v);
  return t->inlined[v] ? zp_format(t->arena, "(%s)", text) : text;
}

void zp_cuda_print_value(zp_cuda_text *t, int v) {
  const zp_row_value *value = &t->program->values.data[v];
  if (value->op == ZP_ROW_IMM || t->inlined[v]) return;
  const char *expression = zp_row_args(value->op) ? compute(t, value) : leaf(t, v);
  zp_buf_line(&t->out, "const real %s = %s;%s", value->name, expression, zp_cuda_explain(t, v));
}
