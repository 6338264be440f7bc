/* SPDX-License-Identifier: Apache-2.0 */
/* Losses, in one number or in parts of a rank: statistics of rows, which ranks gather. */
#include <assert.h>
#include "ops.h"

/* Classes of a sample: all positions of its logits have labels of their own, so these are [B, V]. */
static bool want_lengths_of_classes(zp_rule *rule) {
  const zp_shape *lengths = zp_rule_shape(rule, 2);
  if (!zp_want_element(rule, 2, ZP_ELEM_I32) || !zp_want_rank(rule, 0, 2)) return false;
  if (lengths->rank == 1 && zp_rule_operand(rule, 2)->role == ZP_ROLE_INPUT) return true;
  zp_rule_fail(rule, ZP_Z0204, "lengths are an input i32[B], `%s` is %s", zp_rule_operand(rule, 2)->name,
               zp_rule_text(rule, 2));
  return false;
}

static void rule_cross_entropy(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_labels(rule, 1, 0)) return;
  if (rule->n_in > 2 && !want_lengths_of_classes(rule)) return;
  if (!rule->attr.classes) rule->attr.classes = zp_shape_cols(zp_rule_shape(rule, 0));
  if (rule->op == ZP_OP_CE_STATS)
    zp_rule_answer(rule, ZP_ELEM_STAT, zp_rule_with_last(zp_rule_shape(rule, 0), 3, NULL));
  else
    zp_rule_answer(rule, ZP_ELEM_STAT, (zp_shape){0});
}

/* Numbers alongside numbers of the data. */
static void rule_squared_error(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_element(rule, 1, ZP_ELEM_FLOAT)) return;
  const zp_tensor *x = zp_rule_operand(rule, 0), *target = zp_rule_operand(rule, 1);
  if (target->role != ZP_ROLE_INPUT || !zp_shape_equal(&x->shape, &target->shape)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0204, "`target` of `mse` is an input of the shape of `%s` %s, not `%s` %s",
                              x->name, zp_rule_text(rule, 0), target->name, zp_rule_text(rule, 1)),
                 "declare `input target: f32[B, n]` or `f32[B, S, n]`");
    return;
  }
  if (rule->attr.value == 0) rule->attr.value = 1;
  zp_rule_answer(rule, ZP_ELEM_STAT,
                 rule->op == ZP_OP_SE_STATS ? zp_rule_with_last(&x->shape, 3, NULL) : (zp_shape){0});
}

/* Shapes name B in front only, so [ranks, B*S, 3] is written [B, ranks*S, 3]; rank-major in memory all the same. */
static void rule_gather_stats(zp_rule *rule) {
  zp_shape shape = *zp_rule_shape(rule, 0);
  if (!zp_want_element(rule, 0, ZP_ELEM_STAT) || (shape.rank != 2 && !zp_want_rank(rule, 0, 3)) ||
      !zp_want_positive(rule, "parts", (double)rule->attr.parts))
    return;
  zp_rule_answer(rule, ZP_ELEM_STAT, zp_gathered_stats(rule->graph->arena, &shape, rule->attr.parts));
}

/* Statistics of one rank that say all of a row. */
static void loss_alone(zp_rule *rule) {
  zp_shape rows = *zp_rule_shape(rule, 0);
  rows.rank--;
  zp_rule_answer(rule, ZP_ELEM_STAT, rows);
}

static void rule_loss(zp_rule *rule) {
  if (!zp_want_element(rule, 0, ZP_ELEM_STAT)) return;
  if (rule->n_in == 1) {
    loss_alone(rule);
    return;
  }
  if (!zp_want_element(rule, 1, ZP_ELEM_I32)) return;
  const zp_shape *stat = zp_rule_shape(rule, 0), *labels = zp_rule_shape(rule, 1);
  bool fits = labels->rank == 1 ? stat->rank == 2 || stat->rank == 3
                                : labels->rank == 2 && stat->rank == 3 && stat->dim[1] % labels->dim[1] == 0;
  if (!fits || zp_shape_cols(stat) != 3) {
    zp_rule_fail(rule, ZP_Z0204, "statistics `%s` %s do not belong to labels `%s` %s", zp_rule_operand(rule, 0)->name,
                 zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name, zp_rule_text(rule, 1));
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_STAT, *zp_rule_shape(rule, 1));
}

/* Labels, where -1 stands for none; how many classes a sample has. */
static zp_input_range range_of_classes(zp_input *input, const zp_graph *graph, const zp_node *node, int i) {
  int64_t classes = zp_shape_cols(&graph->tensors.data[node->in.data[0]].shape);
  if (i == 2) return (zp_input_range){1, classes + 1};
  input->labels = true;
  return (zp_input_range){input->none == -1 ? -1 : 0, classes};
}

static void parts_cross_entropy(zp_parts_pass *pass, const zp_node *node) {
  int logits = node->in.data[0];
  if (zp_parts_shape(pass, logits)->rank == 3) zp_parts_tie(pass, logits, 1, node->in.data[1], 1);
}

static void parts_squared_error(zp_parts_pass *pass, const zp_node *node) { (void)pass, (void)node; }

/* Per logit: subtract, exponential (10, as in the op table), add; backward also the scaling. */
enum { LOSS_FLOP_PER_LOGIT = 12 };

static double flop_loss(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return LOSS_FLOP_PER_LOGIT * zp_cost_elements(graph, node->in.data[0], microbatch);
}

/* The seed: from the statistics back to the logits that they were taken of. */
static const zp_node *stats_of_loss(const zp_diff_pass *pass, const zp_node *loss) {
  const zp_node *node = loss;
  while (node->op != ZP_OP_CE_STATS && node->op != ZP_OP_SE_STATS) {
    assert(node->op == ZP_OP_CE_LOSS || node->op == ZP_OP_GATHER_STATS);
    node = &pass->graph->nodes.data[pass->graph->tensors.data[node->in.data[0]].producer];
  }
  return node;
}

static void diff_loss(zp_diff_pass *pass, const zp_node *node) {
  const zp_node *stats = stats_of_loss(pass, node);
  bool squares = stats->op == ZP_OP_SE_STATS;
  zp_node grad = zp_diff_node(node, squares ? ZP_OP_SE_GRAD : ZP_OP_CE_GRAD);
  zp_diff_add_in(pass, &grad, stats->in.data[0]);
  zp_diff_add_in(pass, &grad, stats->in.data[1]);
  if (!squares) zp_diff_add_in(pass, &grad, node->out.data[0]);
  if (stats->in.len > 2) zp_diff_add_in(pass, &grad, stats->in.data[2]);
  zp_diff_add_gradient_of(pass, &grad, stats->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

/* The derivative of the statistics is that of the loss, which is made of them. */
static void diff_stats(zp_diff_pass *pass, const zp_node *node) { (void)pass, (void)node; }

const zp_op_row zp_op_row_CROSS_ENTROPY = {
    .rule = rule_cross_entropy, .range = range_of_classes, .parts = parts_cross_entropy, .flop = flop_loss};
const zp_op_row zp_op_row_SQUARED_ERROR = {.rule = rule_squared_error, .parts = parts_squared_error, .flop = flop_loss};
const zp_op_row zp_op_row_CE_STATS = {.rule = rule_cross_entropy, .flop = flop_loss, .differentiate = diff_stats};
const zp_op_row zp_op_row_SE_STATS = {.rule = rule_squared_error, .flop = flop_loss, .differentiate = diff_stats};
const zp_op_row zp_op_row_GATHER_STATS = {.rule = rule_gather_stats, .differentiate = diff_stats};
const zp_op_row zp_op_row_CE_LOSS = {.rule = rule_loss, .flop = flop_loss, .differentiate = diff_loss};
const zp_op_row zp_op_row_SE_GRAD = {.flop = flop_loss};
const zp_op_row zp_op_row_CE_GRAD = {.flop = flop_loss};
