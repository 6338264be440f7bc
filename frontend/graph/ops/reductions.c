/* SPDX-License-Identifier: Apache-2.0 */
/* One number made of an axis: of the positions, or of the columns. */
#include "ops.h"

static void rule_mean(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  if (rule->attr.value == 0) rule->attr.value = 1 / (double)zp_rule_positions(zp_rule_operand(rule, 0));
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_without_positions(zp_rule_shape(rule, 0)));
}

static void diff_mean(zp_diff_pass *pass, const zp_node *node) { zp_diff_of_result(pass, node, ZP_OP_MEAN_GRAD); }

static double flop_mean_grad(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return zp_cost_elements(graph, node->out.data[0], microbatch);
}

/* A sum over the positions is a mean times their number. */
static void rule_reduce(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  if (rule->attr.value == 0) rule->attr.value = 1;
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_without_positions(zp_rule_shape(rule, 0)));
}

static void rule_reduce_columns(zp_rule *rule) {
  if (!zp_want_samples(rule, 0)) return;
  const zp_shape *x = zp_rule_shape(rule, 0);
  if (rule->attr.value == 0) rule->attr.value = 1;
  zp_shape shape = {.rank = 2, .dim = {x->dim[0]}};
  zp_rule_put_dim(&shape, 1, x, 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* A log-sum-exp takes an exponential of every element (10, as in the op table), each way; others add once. */
static double flop_reduce(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return (node->attr.reduction == ZP_REDUCE_LOG_SUM_EXP ? 12 : 1) *
         zp_cost_elements(graph, node->in.data[0], microbatch);
}

/* The gradient is made of x once more: what is stored of a result in 16 bits is too short for that. A sum needs no
 * value, but has the operand. */
static void diff_reduce(zp_diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_REDUCE_GRAD);
  int dy = zp_diff_total(pass, node->out.data[0]);
  grad.attr.last = node->op == ZP_OP_REDUCE_COLUMNS;
  zp_diff_add_in(pass, &grad, zp_diff_kept_value(pass, node->in.data[0]));
  zp_diff_add_in(pass, &grad, dy);
  zp_diff_add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

const zp_op_row zp_op_row_MEAN = {
    .rule = rule_mean, .parts = zp_parts_of_columns, .flop = zp_flop_of_operand, .differentiate = diff_mean};
const zp_op_row zp_op_row_MEAN_GRAD = {.flop = flop_mean_grad};
const zp_op_row zp_op_row_REDUCE = {
    .rule = rule_reduce, .parts = zp_parts_of_columns, .flop = flop_reduce, .differentiate = diff_reduce};
const zp_op_row zp_op_row_REDUCE_COLUMNS = {
    .rule = rule_reduce_columns, .parts = zp_parts_of_positions, .flop = flop_reduce, .differentiate = diff_reduce};
const zp_op_row zp_op_row_REDUCE_GRAD = {.flop = flop_reduce};
