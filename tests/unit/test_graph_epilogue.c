/* SPDX-License-Identifier: Apache-2.0 */
/* zp_fold_epilogues and zp_fold_gradients: which groups become epilogues of products. That they compute the same:
 * test_graph_gradients.c. */
#include "graph_testing.h"

/* Products of a kind that have an epilogue. */
static int folds(const zp_graph *graph, zp_op op) {
  int n = 0;
  for (int i = 0; i < graph->nodes.len; i++) n += graph->nodes.data[i].op == op && graph->nodes.data[i].fused;
  return n;
}

static void expect_folds(kit *k, int forward, int inputs, int weights, int groups) {
  const zp_graph *graph = folded(k);
  const int want[] = {forward, inputs, weights, groups};
  const int got[] = {folds(graph, ZP_OP_MATMUL), folds(graph, ZP_OP_MATMUL_DGRAD), folds(graph, ZP_OP_MATMUL_WGRAD),
                     count_nodes(graph, ZP_OP_FUSED) + count_nodes(graph, ZP_OP_FUSED_GRAD)};
  for (int i = 0; i < 4; i++)
    cr_expect_eq(got[i], want[i], "%d: %d, not %d\n%s", i, got[i], want[i], zp_graph_text(k->arena, graph));
}

/* Forward: the bias of q, k, v; bias and gelu; bias and residual. Backward: gelu's derivative with its bias; two biases
 * alongside their weights. What has a norm in it stays a kernel, twice forward and twice backward. */
Test(epilogue, gpt_layer) {
  kit k = kit_new(4, 1, 8);
  gpt_layer(&k, 2, 0);
  expect_folds(&k, 3, 1, 2, 4);
  kit_free(&k);
}

/* A group with dropout stays a kernel, and its derivative with the bias that stands before it. */
Test(epilogue, gpt_layer_with_dropout) {
  kit k = kit_new(4, 1, 8);
  gpt_layer(&k, 2, 0.1);
  expect_folds(&k, 2, 1, 1, 6);
  kit_free(&k);
}

static void layer_without_dropout(kit *k, zp_op_attr gelu, int64_t ff) {
  int x = k->graph->carry_in.data[0];
  int64_t d = cols(k, x);
  int h = apply(k, ZP_OP_GELU, gelu, "gelu", linear(k, "c_fc", layer_norm(k, "ln", x), ff, true), -1, -1);
  carry_out(k, op2(k, ZP_OP_ADD, x, linear(k, "c_proj", h, d, true)));
}

Test(epilogue, gelu) {
  const struct {
    bool tanh_form;
    int64_t ff;
    int forward, inputs, weights, groups;
  } cases[] = {{true, 16, 2, 1, 1, 2}, {false, 16, 1, 0, 1, 4}, {true, 12, 1, 0, 1, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    kit k = kit_new(4, 1, 8);
    layer_without_dropout(&k, (zp_op_attr){.tanh_form = cases[i].tanh_form}, cases[i].ff);
    check_gradients(&k, 10, 0.3);
    expect_folds(&k, cases[i].forward, cases[i].inputs, cases[i].weights, cases[i].groups);
    kit_free(&k);
  }
}

/* A residual that stands before the product, and one without a bias. */
Test(epilogue, residuals) {
  kit k = kit_new(4, 1, 16);
  llama_layer(&k, 4, 2, 24);
  expect_folds(&k, 1, 0, 0, 10);
  kit_free(&k);
}

/* Somebody else reads the product; the sum is carried on and read, which is none of the product's business. */
Test(epilogue, products_that_are_read_again) {
  kit k = kit_new(4, 1, 8);
  int x = k.graph->carry_in.data[0], y = linear(&k, "w", x, 8, false);
  int sum = op2(&k, ZP_OP_ADD, y, param(&k, "bias", shape1(8)));
  carry_out(&k, op2(&k, ZP_OP_ADD, sum, linear(&k, "v", y, 8, false)));
  check_gradients(&k, 10, 0.3);
  const zp_graph *graph = folded(&k);
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node *node = &graph->nodes.data[i];
    cr_assert(node->op != ZP_OP_MATMUL || !node->fused || node->product != y);
  }
  kit_free(&k);
}

/* One bias for two products: its gradient is two sums. */
Test(epilogue, a_bias_that_is_added_twice) {
  kit k = kit_new(4, 1, 8);
  int x = k.graph->carry_in.data[0], bias = param(&k, "bias", shape1(8));
  int y = op2(&k, ZP_OP_ADD, linear(&k, "w", x, 8, false), bias);
  carry_out(&k, op2(&k, ZP_OP_ADD, op2(&k, ZP_OP_ADD, linear(&k, "v", y, 8, false), bias), bias));
  check_gradients(&k, 10, 0.3);
  kit_free(&k);
}

/* The gradient of gelu's result comes from two products: it is no product's result. */
Test(epilogue, gelu_that_is_read_twice) {
  kit k = kit_new(4, 1, 8);
  int x = k.graph->carry_in.data[0];
  int h = apply(&k, ZP_OP_GELU, (zp_op_attr){.tanh_form = true}, "gelu", linear(&k, "c_fc", x, 16, true), -1, -1);
  carry_out(&k, op2(&k, ZP_OP_ADD, linear(&k, "v", h, 8, true), linear(&k, "w", h, 8, true)));
  check_gradients(&k, 10, 0.3);
  cr_assert_eq(folds(folded(&k), ZP_OP_MATMUL_DGRAD), 0);
  kit_free(&k);
}

Test(epilogue, a_product_that_is_a_partial_sum) {
  kit k = kit_new(4, 1, 8);
  int y = linear(&k, "w", k.graph->carry_in.data[0], 8, true);
  carry_out(&k, y);
  zp_graph *local = zp_graph_localize_trivial(k.graph);
  local->tensors.data[local->nodes.data[0].out.data[0]].partial = true;
  const zp_graph *graph = zp_fold_epilogues(zp_fuse(local));
  cr_assert_eq(folds(graph, ZP_OP_MATMUL), 0);
  kit_free(&k);
}
