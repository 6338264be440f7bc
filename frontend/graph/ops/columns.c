/* SPDX-License-Identifier: Apache-2.0 */
/* Columns: one of them, those of every head taken out, joined or repeated; equal parts of all, as views. */
#include "ops.h"

static void rule_column(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  const zp_shape *x = zp_rule_shape(rule, 0);
  if (rule->attr.begin < 0 || rule->attr.begin >= zp_shape_cols(x)) {
    zp_rule_fail(rule, ZP_Z0208, "`%s` has columns 0 to %lld, not %lld", zp_rule_operand(rule, 0)->name,
                 (long long)zp_shape_cols(x) - 1, (long long)rule->attr.begin);
    return;
  }
  zp_shape shape = {.rank = 2, .dim = {x->dim[0]}};
  zp_rule_put_dim(&shape, 1, x, 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

static void diff_column(zp_diff_pass *pass, const zp_node *node) { zp_diff_of_result(pass, node, ZP_OP_COLUMN_GRAD); }

/* Columns of one head; 0 after reporting. */
static int64_t columns_of_head(zp_rule *rule, int i) {
  int64_t heads = rule->attr.heads, cols = zp_shape_cols(zp_rule_shape(rule, i));
  if (!zp_want_positive(rule, "heads", (double)heads)) return 0;
  if (cols % heads == 0) return cols / heads;
  zp_rule_fail(rule, ZP_Z0205, "%lld heads do not divide the %lld columns of `%s` %s", (long long)heads,
               (long long)cols, zp_rule_operand(rule, i)->name, zp_rule_text(rule, i));
  return 0;
}

static void rule_columns(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!zp_want_samples(rule, 0) || !zp_want_positive(rule, "count", (double)attr->count)) return;
  int64_t width = columns_of_head(rule, 0);
  if (!width) return;
  if (attr->begin >= width || attr->begin + attr->count <= 0) {
    zp_rule_fail(rule, ZP_Z0208, "heads of `%s` have columns 0 to %lld, not %lld to %lld",
                 zp_rule_operand(rule, 0)->name, (long long)width - 1, (long long)attr->begin,
                 (long long)(attr->begin + attr->count - 1));
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(zp_rule_shape(rule, 0), attr->heads * attr->count, NULL));
}

static void rule_join(zp_rule *rule) {
  if (!zp_want_samples(rule, 0) || !zp_want_samples(rule, 1) || !columns_of_head(rule, 0) || !columns_of_head(rule, 1))
    return;
  const zp_shape *a = zp_rule_shape(rule, 0), *b = zp_rule_shape(rule, 1);
  if (a->dim[1] != b->dim[1]) {
    zp_rule_fail(rule, ZP_Z0204, "cannot put the columns of `%s` %s and `%s` %s side by side",
                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name,
                 zp_rule_text(rule, 1));
    return;
  }
  const zp_extent *both = zp_extent_sum(rule->graph->arena, a->extent[2], b->extent[2]);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(a, a->dim[2] + b->dim[2], both));
}

/* Heads of so many columns each, here and there, at the same positions. */
static void parts_heads(zp_parts_pass *pass, const zp_node *node) {
  int y = node->out.data[0];
  zp_parts_require(pass, y, 2, (zp_parts){1, node->attr.heads});
  for (int i = 0; i < node->in.len; i++) {
    zp_parts_require(pass, node->in.data[i], 2, (zp_parts){1, node->attr.heads});
    zp_parts_tie(pass, node->in.data[i], 2, y, 2);
    zp_parts_tie(pass, node->in.data[i], 1, y, 1);
  }
}

/* Columns of the heads of dy, from `begin` on as many as operand i has, zeros around them. */
static void diff_heads(zp_diff_pass *pass, const zp_node *node, int i, int dy, int64_t begin) {
  int x = node->in.data[i];
  if (!pass->needs[x]) return;
  zp_node grad = zp_diff_node(node, ZP_OP_COLUMNS);
  int64_t width = zp_shape_cols(&pass->graph->tensors.data[x].shape) / node->attr.heads;
  grad.attr = (zp_op_attr){.heads = node->attr.heads, .begin = begin, .count = width};
  zp_diff_add_in(pass, &grad, dy);
  zp_diff_add_gradient_of(pass, &grad, x);
  zp_graph_add_node(pass->graph, grad);
}

static void diff_columns(zp_diff_pass *pass, const zp_node *node) {
  diff_heads(pass, node, 0, zp_diff_total(pass, node->out.data[0]), -node->attr.begin);
}

static void diff_join(zp_diff_pass *pass, const zp_node *node) {
  int dy = zp_diff_total(pass, node->out.data[0]);
  int64_t first = zp_shape_cols(&pass->graph->tensors.data[node->in.data[0]].shape) / node->attr.heads;
  diff_heads(pass, node, 0, dy, 0);
  diff_heads(pass, node, 1, dy, first);
}

static void rule_repeat(zp_rule *rule) {
  if (!zp_want_samples(rule, 0) || !zp_want_positive(rule, "heads", (double)rule->attr.heads)) return;
  const zp_shape *x = zp_rule_shape(rule, 0);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(x, x->dim[2] * rule->attr.heads, NULL));
}

static void parts_repeat(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_require(pass, node->out.data[0], 2, (zp_parts){1, node->attr.heads});
  zp_parts_tie(pass, node->in.data[0], 1, node->out.data[0], 1);
}

static void diff_repeat(zp_diff_pass *pass, const zp_node *node) { zp_diff_of_result(pass, node, ZP_OP_REPEAT_GRAD); }

/* ---- views ---- */

static void rule_split(zp_rule *rule) {
  int64_t cols = zp_shape_cols(zp_rule_shape(rule, 0)), parts = rule->attr.parts;
  if (!zp_want_activation(rule, 0) || !zp_want_positive(rule, "parts", (double)parts)) return;
  if (cols % parts) {
    zp_rule_fail(rule, ZP_Z0205, "cannot split the %lld columns of `%s` %s into %lld equal parts", (long long)cols,
                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), (long long)parts);
    return;
  }
  const zp_extent *whole = zp_rule_shape(rule, 0)->extent[zp_rule_shape(rule, 0)->rank - 1];
  zp_arena *arena = rule->graph->arena;
  const zp_extent *part = zp_extent_quotient(arena, whole, zp_extent_number(arena, parts));
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(zp_rule_shape(rule, 0), cols / parts, part));
  rule->n_out = (int)parts;
}

static void parts_split(zp_parts_pass *pass, const zp_node *node) {
  int whole = node->in.data[0], dim = zp_parts_last_dim(pass, whole);
  int64_t parts = node->attr.parts, n = zp_parts_shape(pass, whole)->dim[dim];
  zp_parts_require(pass, whole, dim, (zp_parts){parts, n / parts});
  for (int i = 0; i < node->out.len; i++) {
    int view = node->out.data[i];
    zp_parts *v = zp_parts_of(pass, view, dim), *w = zp_parts_of(pass, whole, dim);
    zp_parts_require(pass, whole, dim, v->units == 1 ? zp_parts_whole() : (zp_parts){parts * v->outer, v->units});
    zp_parts_require(pass, view, dim, w->outer % parts ? zp_parts_whole() : (zp_parts){w->outer / parts, w->units});
    zp_parts_tie_trailing(pass, whole, view, 1);
  }
}

/* Completes the gradient whose views the users of the split have written. */
static void diff_split(zp_diff_pass *pass, const zp_node *node) {
  int whole = node->in.data[0], last = -1;
  for (int i = 0; i < node->out.len; i++) {
    int view = node->out.data[i], slot = zp_diff_slot(pass, view);
    const zp_ints *contrib = &pass->contrib[view];
    if (contrib->len != 1 || contrib->data[0] != slot) zp_diff_total_into(pass, view, slot);
    int producer = pass->graph->tensors.data[slot].producer;
    if (producer > last) last = producer;
  }
  int gradient = pass->split_grad[pass->node];
  pass->graph->tensors.data[gradient].producer = last;
  zp_diff_contribute(pass, whole, gradient);
}

const zp_op_row zp_op_row_COLUMN = {.rule = rule_column,
                                    .parts = zp_parts_of_positions,
                                    .bytes = zp_bytes_of_result_twice,
                                    .differentiate = diff_column};
const zp_op_row zp_op_row_COLUMN_GRAD = {0};
const zp_op_row zp_op_row_COLUMNS = {
    .rule = rule_columns, .parts = parts_heads, .bytes = zp_bytes_of_result_twice, .differentiate = diff_columns};
const zp_op_row zp_op_row_JOIN_COLUMNS = {.rule = rule_join, .parts = parts_heads, .differentiate = diff_join};
const zp_op_row zp_op_row_REPEAT_COLUMNS = {.rule = rule_repeat, .parts = parts_repeat, .differentiate = diff_repeat};
const zp_op_row zp_op_row_REPEAT_GRAD = {.flop = zp_flop_of_operand};
const zp_op_row zp_op_row_SPLIT = {
    .rule = rule_split, .parts = parts_split, .bytes = zp_bytes_none, .differentiate = diff_split};
