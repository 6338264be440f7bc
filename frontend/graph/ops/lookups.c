/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tables by number, and what is added to single rows of a parameter's gradient. */
#include "ops.h"

static void rule_embedding(zp_rule *rule) {
  if (!zp_want_element(rule, 0, ZP_ELEM_I32) || !zp_want_element(rule, 1, ZP_ELEM_FLOAT) || !zp_want_param(rule, 1) ||
      !zp_want_rank(rule, 0, 2) || !zp_want_rank(rule, 1, 2))
    return;
  zp_shape shape = *zp_rule_shape(rule, 0);
  zp_rule_put_dim(&shape, shape.rank++, zp_rule_shape(rule, 1), 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

static zp_input_range range_of_rows(zp_input *input, const zp_graph *graph, const zp_node *node, int i) {
  (void)input, (void)i;
  return (zp_input_range){0, graph->tensors.data[node->in.data[1]].shape.dim[0]};
}

static void parts_embedding(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_tie(pass, node->in.data[1], 1, node->out.data[0], 2);
  zp_parts_tie(pass, node->in.data[0], 1, node->out.data[0], 1);
}

/* It touches as many rows of its table as there are ids. */
static double bytes_embedding(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes) {
  return zp_tensor_bytes(graph, node->in.data[0], microbatch, bytes.of_float) +
         2 * zp_tensor_bytes(graph, node->out.data[0], microbatch, bytes.of_float);
}

static void diff_embedding(zp_diff_pass *pass, const zp_node *node) {
  if (!zp_diff_trains(pass, node->in.data[1])) return;
  zp_node grad = zp_diff_node(node, ZP_OP_EMBEDDING_GRAD);
  zp_diff_add_in(pass, &grad, zp_diff_total(pass, node->out.data[0]));
  zp_diff_add_in(pass, &grad, node->in.data[0]);
  zp_diff_add_param_grad(pass, &grad, node->in.data[1]);
  zp_graph_add_node(pass->graph, grad);
}

/* Its parameter's gradient has as many rows read and written as there are ids. */
static double bytes_embedding_grad(const zp_graph *graph, const zp_node *node, int64_t microbatch,
                                   zp_cost_bytes bytes) {
  return 2 * zp_tensor_bytes(graph, node->in.data[0], microbatch, bytes.of_sum) +
         zp_bytes_of_tensors(graph, node, microbatch, bytes);
}

/* Lookups only move bytes; their gradients add once an element. */
const zp_op_row zp_op_row_EMBEDDING = {.rule = rule_embedding,
                                       .range = range_of_rows,
                                       .parts = parts_embedding,
                                       .bytes = bytes_embedding,
                                       .differentiate = diff_embedding};
const zp_op_row zp_op_row_EMBEDDING_GRAD = {.flop = zp_flop_of_operand, .bytes = bytes_embedding_grad};
const zp_op_row zp_op_row_POSITION_GRAD = {.flop = zp_flop_of_operand};
const zp_op_row zp_op_row_LOAD_GRAD = {.flop = zp_flop_of_operand};
