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

const char *zp_cuda_operand(zp_cuda_text *t, int v) {
  const zp_row_value *value = &t->program->values.data[v];
  if (value->op == ZP_ROW_IMM) return number(t->arena, value->imm);
  return t->names[v].name;
}

/* ---- leaves ---- */

const char *zp_cuda_column_of(zp_cuda_text *t, const zp_row_value *leaf) {
  if (!leaf->swap.head) return "c";
  if (leaf->swap.interleaved) return "zpd_other_neighbour(c)";
  return zp_format(t->arena, "zpd_other_half(c, %lld)", (long long)leaf->swap.head);
}

/* Every value has its bits, of the columns where it is read. */
static const char *keep(zp_cuda_text *t, int v) {
  bool one_word = zp_cuda_columns(t, t->program->values.data[v].cols) <= 32;
  return zp_format(t->arena,
                   one_word ? "kept%d >> i & 1 ? factor%d : 0" : "kept%d[i / 32] >> i %% 32 & 1 ? factor%d : 0", v, v);
}

static const char *pair_of(zp_arena *arena, zp_row_pairs pairs, const char *column) {
  long long head = (long long)pairs.head;
  return pairs.interleaved ? zp_format(arena, "%s %% %lld / 2", column, head)
                           : zp_format(arena, "%s %% %lld", column, head / 2);
}

static const char *rotary(zp_cuda_text *t, const zp_row_value *v, const char *column) {
  bool cosine = v->op == ZP_ROW_COS;
  int table = zp_cuda_rotary_of(t, v);
  const char *pair = pair_of(t->arena, v->table, column), *x;
  if (zp_cuda_shares_rotary(t, v))
    x = zp_format(t->arena, "%s%d[%s]", cosine ? "cosine" : "sine", table, pair);
  else
    x = zp_format(t->arena, "(real)%s(position * zpd_frequency_%d[%s])", cosine ? "cos" : "sin", table, pair);
  if (cosine) return x;
  if (v->table.interleaved) return zp_format(t->arena, "zpd_sign_of_neighbour(%s, %s)", column, x);
  return zp_format(t->arena, "zpd_sign_of_half(%s, %lld, %s)", column, (long long)v->table.head, x);
}

static const char *leaf(zp_cuda_text *t, int index) {
  const zp_row_value *v = &t->program->values.data[index];
  const char *column = zp_cuda_column_of(t, v);
  switch (v->op) {
  case ZP_ROW_KEEP: return keep(t, index);
  case ZP_ROW_COS:
  case ZP_ROW_SIN: return rotary(t, v, column);
  default: return zp_format(t->arena, "in%d[%s]", v->input, column);
  }
}

/* ---- operations ---- */

static const char *compute(zp_cuda_text *t, const zp_row_value *v) {
  const char *a[4] = {0};
  for (int i = 0; i < zp_row_args(v->op); i++) a[i] = zp_cuda_operand(t, v->arg[i]);
  switch (v->op) {
  case ZP_ROW_NEG: return zp_format(t->arena, "-%s", a[0]);
  case ZP_ROW_ADD: return zp_format(t->arena, "%s + %s", a[0], a[1]);
  case ZP_ROW_SUB: return zp_format(t->arena, "%s - %s", a[0], a[1]);
  case ZP_ROW_MUL: return zp_format(t->arena, "%s * %s", a[0], a[1]);
  case ZP_ROW_DIV: return zp_format(t->arena, "%s / %s", a[0], a[1]);
  case ZP_ROW_EXP: return zp_format(t->arena, "zpd_exp(%s)", a[0]);
  case ZP_ROW_LOG: return zp_format(t->arena, "zpd_log(%s)", a[0]);
  case ZP_ROW_SQRT: return zp_format(t->arena, "zpd_sqrt(%s)", a[0]);
  case ZP_ROW_RSQRT: return zp_format(t->arena, "1 / zpd_sqrt(%s)", a[0]);
  case ZP_ROW_TANH: return zp_format(t->arena, "zpd_tanh(%s)", a[0]);
  case ZP_ROW_SIGMOID: return zp_format(t->arena, "1 / (1 + zpd_exp(-%s))", a[0]);
  case ZP_ROW_ERF: return zp_format(t->arena, "zpd_erf(%s)", a[0]);
  case ZP_ROW_SELECT_LE: return zp_format(t->arena, "%s <= %s ? %s : %s", a[0], a[1], a[2], a[3]);
  default: assert(!"not an elementwise op"); return NULL;
  }
}

void zp_cuda_print_value(zp_cuda_text *t, int v) {
  const zp_row_value *value = &t->program->values.data[v];
  if (value->op == ZP_ROW_IMM) return;
  const char *expression = zp_row_args(value->op) ? compute(t, value) : leaf(t, v);
  zp_buf_line(&t->out, "const real %s = %s;%s", zp_cuda_operand(t, v), expression, zp_cuda_explain(t, v));
}
