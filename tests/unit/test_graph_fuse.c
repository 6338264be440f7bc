/* SPDX-License-Identifier: Apache-2.0 */
/* zp_fuse: which row ops become one kernel. */
#include "graph_testing.h"

static const zp_node *nth(const zp_graph *graph, zp_op op, int n) {
  for (int i = 0; i < graph->nodes.len; i++)
    if (graph->nodes.data[i].op == op && n-- == 0) return &graph->nodes.data[i];
  cr_assert_fail("no such node");
  return NULL;
}

static void expect_group(const zp_graph *graph, int n, int ops, int inputs, int outputs) {
  const zp_node *node = nth(graph, ZP_OP_FUSED, n);
  cr_assert(node->fused->ops.len == ops && node->in.len == inputs && node->out.len == outputs,
            "group %d has %d ops, %d inputs, %d outputs", n, node->fused->ops.len, node->in.len, node->out.len);
}

Test(fuse, gpt_layer) {
  kit k = kit_new(4, 1, 8);
  gpt_layer(&k, 2, 0.1);
  zp_graph *graph = zp_fuse(k.graph);
  must_be_sound(&k, graph);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED), 5);
  expect_group(graph, 0, 1, 3, 1); /* ln_1 */
  expect_group(graph, 1, 1, 2, 1); /* bias of q, k, v */
  expect_group(graph, 2, 4, 5, 2); /* bias, dropout, residual, ln_2: the residual is needed again */
  expect_group(graph, 3, 2, 2, 1); /* bias, gelu */
  expect_group(graph, 4, 3, 3, 1); /* bias, dropout, residual */
  const zp_fused *residual = nth(graph, ZP_OP_FUSED, 2)->fused;
  cr_assert_eq(residual->rows_per_sample, 4);
  int columns = 0;
  for (int i = 0; i < residual->n_in; i++) columns += residual->operand[i] == ZP_OPERAND_COLUMNS;
  cr_assert_eq(columns, 3);
  for (int i = 0; i < graph->nodes.len; i++)
    cr_assert_neq(zp_op_get_class(graph->nodes.data[i].op), ZP_CLASS_ROW, "every row op is in a group");
  kit_free(&k);
}

Test(fuse, llama_layer) {
  kit k = kit_new(4, 1, 16);
  llama_layer(&k, 4, 2, 24);
  zp_graph *graph = zp_fuse(k.graph);
  must_be_sound(&k, graph);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED), 6); /* norm, rope q, rope k, residual + norm, swiglu, residual */
  expect_group(graph, 4, 2, 2, 1);
  kit_free(&k);
}

Test(fuse, position_operand) {
  kit k = kit_new(4, 1, 8);
  carry_out(&k, op2(&k, ZP_OP_ADD, k.graph->carry_in.data[0], param(&k, "wpe", shape2(4, 8))));
  zp_graph *graph = zp_fuse(k.graph);
  cr_assert_eq(nth(graph, ZP_OP_FUSED, 0)->fused->operand[1], ZP_OPERAND_POSITION);
  kit_free(&k);
}

/* a -> matmul -> b and a -> b: joining a and b would enclose the matmul. */
Test(fuse, group_must_not_enclose_another_node) {
  kit k = kit_new(4, 1, 8);
  int a = op1(&k, ZP_OP_TANH, k.graph->carry_in.data[0]);
  carry_out(&k, op2(&k, ZP_OP_ADD, a, linear(&k, "w", a, 8, false)));
  zp_graph *graph = zp_fuse(k.graph);
  must_be_sound(&k, graph);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED), 2);
  kit_free(&k);
}

/* Each of two joins alone is fine, both together would wait for each other. */
Test(fuse, two_groups_must_not_wait_for_each_other) {
  kit k = kit_new(4, 2, 8);
  int x = k.graph->carry_in.data[0], y = k.graph->carry_in.data[1];
  int a = op1(&k, ZP_OP_TANH, x), c = op1(&k, ZP_OP_TANH, y);
  int ma = linear(&k, "wa", a, 8, false), mc = linear(&k, "wc", c, 8, false);
  carry_out(&k, op2(&k, ZP_OP_ADD, a, mc));
  carry_out(&k, op2(&k, ZP_OP_ADD, c, ma));
  zp_graph *graph = zp_fuse(k.graph);
  must_be_sound(&k, graph);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED), 3);
  check_gradients(&k, 1, 0.2);
  kit_free(&k);
}

/* Two readers of the same rows share one pass over them. */
Test(fuse, readers_of_one_tensor_join) {
  kit k = kit_new(4, 1, 8);
  int x = k.graph->carry_in.data[0];
  carry_out(&k, op1(&k, ZP_OP_TANH, x));
  carry_out(&k, op1(&k, ZP_OP_SIGMOID, x));
  zp_graph *graph = zp_fuse(k.graph);
  must_be_sound(&k, graph);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED), 1);
  expect_group(graph, 0, 2, 1, 2);
  kit_free(&k);
}

/* Nothing is shared but a bias: no reason to run together. */
Test(fuse, strangers_stay_apart) {
  for (int first = 0; first < 2; first++) {
    kit k = kit_new(4, 2, 8);
    int bias = param(&k, "bias", shape1(8));
    carry_out(&k, op2(&k, ZP_OP_ADD, k.graph->carry_in.data[first], bias));
    carry_out(&k, op2(&k, ZP_OP_ADD, k.graph->carry_in.data[1 - first], bias));
    zp_graph *graph = zp_fuse(k.graph);
    cr_assert_eq(count_nodes(graph, ZP_OP_FUSED), 2);
    kit_free(&k);
  }
}

static int ropes_of_heads(int64_t heads, bool second_interleaved) {
  kit k = kit_new(4, 1, 8);
  zp_op_attr first = {.heads = 2, .theta = 100};
  zp_op_attr second = {.heads = heads, .theta = 10, .interleaved = second_interleaved};
  int y = apply(&k, ZP_OP_ROPE, first, "first", k.graph->carry_in.data[0], -1, -1);
  carry_out(&k, apply(&k, ZP_OP_ROPE, second, "second", op1(&k, ZP_OP_TANH, y), -1, -1));
  zp_graph *graph = zp_fuse(k.graph);
  must_be_sound(&k, graph);
  check_gradients(&k, 1, 0.2);
  int groups = count_nodes(graph, ZP_OP_FUSED);
  kit_free(&k);
  return groups;
}

Test(fuse, ropes_that_pair_columns_otherwise_stay_apart) {
  cr_assert_eq(ropes_of_heads(2, false), 1, "another angle is no other pairing");
  cr_assert_eq(ropes_of_heads(4, false), 2);
  cr_assert_eq(ropes_of_heads(2, true), 2);
}

/* Local graphs: rows split over ranks do not join rows that are whole; the split is noted for dropout. */
Test(fuse, column_split_is_kept_apart_and_noted) {
  kit k = kit_new(4, 1, 8);
  int a = op1(&k, ZP_OP_TANH, k.graph->carry_in.data[0]), b = op1(&k, ZP_OP_SILU, a);
  carry_out(&k, b);
  zp_tensor *t = &k.graph->tensors.data[b];
  t->split_dim = 2, t->full_dim = 16;
  zp_graph *graph = zp_fuse(k.graph);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED), 2);
  cr_assert(!nth(graph, ZP_OP_FUSED, 0)->fused->split);
  cr_assert(nth(graph, ZP_OP_FUSED, 1)->fused->split);
  kit_free(&k);
}

/* Both are shares of 16 elements, of other dimensions. */
Test(fuse, splits_of_other_dimensions_are_kept_apart) {
  kit k = kit_new(4, 1, 8);
  int a = op1(&k, ZP_OP_TANH, k.graph->carry_in.data[0]), b = op1(&k, ZP_OP_SILU, a);
  carry_out(&k, b);
  zp_tensor *t = k.graph->tensors.data;
  t[a].split_dim = 1, t[a].full_dim = 16;
  t[b].split_dim = 2, t[b].full_dim = 16;
  cr_assert_eq(count_nodes(zp_fuse(k.graph), ZP_OP_FUSED), 2);
  kit_free(&k);
}
