/* SPDX-License-Identifier: Apache-2.0 */
/* One line that says what a kernel computes, in the notation of the language: "y = layer_norm(x + b, w, c)". */
#include <zplan/buf.h>
#include "rowprog.h"

typedef struct writer {
  zp_arena *arena;
  const zp_fused *fused;
  const char **name; /* per group value: what to call it, NULL to write its expression out */
} writer;

static const char *expression(const writer *w, int value);

static bool is_infix(const zp_fused_op *op) { return zp_op_has(op->op, ZP_FLAG_INFIX); }

/* Operands of infix operators that are infix expressions themselves get parentheses. */
static const char *operand(const writer *w, int value) {
  const char *text = expression(w, value);
  bool plain = w->name[value] || !is_infix(&w->fused->ops.data[value - w->fused->n_in]);
  return plain ? text : zp_format(w->arena, "(%s)", text);
}

static const char *call(const writer *w, const zp_fused_op *op) {
  zp_buf buf = zp_buf_new(w->arena);
  zp_buf_printf(&buf, "%s(", zp_op_name(op->op));
  for (int k = 0; k < op->n_arg; k++) zp_buf_printf(&buf, "%s%s", k ? ", " : "", expression(w, op->arg[k]));
  if (op->op == ZP_OP_LEAKY_RELU) zp_buf_printf(&buf, ", %g", op->attr.value);
  if (op->op == ZP_OP_DROPOUT) zp_buf_printf(&buf, ", %g", op->attr.rate);
  zp_buf_puts(&buf, ")");
  return buf.data;
}

static const char *expression(const writer *w, int value) {
  if (w->name[value]) return w->name[value];
  const zp_fused_op *op = &w->fused->ops.data[value - w->fused->n_in];
  if (!is_infix(op)) return call(w, op); /* the others are called by a sign; a constant is the second operand */
  const char *right = op->n_arg > 1 ? operand(w, op->arg[1]) : zp_format(w->arena, "%g", op->attr.value);
  return zp_format(w->arena, "%s %c %s", operand(w, op->arg[0]), *zp_op_name(op->op), right);
}

static bool is_used_twice(const zp_fused *fused, int value) {
  int uses = 0;
  for (int i = 0; i < fused->ops.len; i++)
    for (int k = 0; k < fused->ops.data[i].n_arg; k++) uses += fused->ops.data[i].arg[k] == value;
  return uses > 1;
}

static bool is_output(const zp_fused *fused, int value) {
  for (int i = 0; i < fused->out_value.len; i++)
    if (fused->out_value.data[i] == value) return true;
  return false;
}

/* Outputs and values that are used more than once get an equation of their own. */
static void put_equations(writer *w, const char *const *group, zp_buf *buf) {
  const char *join = "";
  for (int i = 0; i < w->fused->ops.len; i++) {
    int value = w->fused->n_in + i;
    if (!is_output(w->fused, value) && !is_used_twice(w->fused, value)) continue;
    zp_buf_printf(buf, "%s%s = %s", join, group[value], expression(w, value));
    w->name[value] = group[value];
    join = "; ";
  }
}

static void put_gradients(const char *const *group, zp_buf *buf, const zp_node *node) {
  zp_buf_puts(buf, "gradient of ");
  for (int k = 0; k < node->grad_out.len; k++)
    zp_buf_printf(buf, "%s%s", k ? ", " : "", group[node->grad_out.data[k].value]);
  zp_buf_puts(buf, " in ");
}

const char *zp_row_describe(zp_arena *arena, const zp_graph *graph, const zp_node *node) {
  const char **group = zp_row_group_names(arena, graph, node);
  writer w = {.arena = arena, .fused = node->fused};
  w.name = ZP_NEW_ARRAY(arena, const char *, node->fused->n_in + node->fused->ops.len);
  zp_buf buf = zp_buf_new(arena);
  for (int i = 0; i < node->fused->n_in; i++) w.name[i] = group[i];
  if (node->op == ZP_OP_FUSED_GRAD) put_gradients(group, &buf, node);
  put_equations(&w, group, &buf);
  return buf.data;
}
