/* SPDX-License-Identifier: Apache-2.0 */
/* zp_differentiate: how gradients are stored, summed and aliased; numbers are checked on the way. */
#include "graph_testing.h"

enum { S = 3, D = 6 };

static int split3(kit *k, int x) { return apply(k, ZP_OP_SPLIT, (zp_op_attr){.parts = 3}, "part", x, -1, -1); }

static const zp_node *nth(const zp_graph *graph, zp_op op, int n) {
  for (int i = 0; i < graph->nodes.len; i++)
    if (graph->nodes.data[i].op == op && n-- == 0) return &graph->nodes.data[i];
  cr_assert_fail("no such node");
  return NULL;
}

static int backward_sums(const zp_graph *graph) {
  int n = 0;
  for (int i = graph->n_forward; i < graph->nodes.len; i++) n += graph->nodes.data[i].op == ZP_OP_FUSED;
  return n;
}

/* dq, dk, dv lie side by side in the gradient of the projection. */
Test(differentiate, views_write_into_one_gradient) {
  kit k = kit_new(S, 1, D);
  int q = split3(&k, linear(&k, "qkv", k.graph->carry_in.data[0], 3 * D, false));
  carry_out(&k, apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 2}, "y", q, q + 1, q + 2));
  zp_graph *graph = check_gradients(&k, 1, 0);
  const zp_node *grad = nth(graph, ZP_OP_ATTENTION_GRAD, 0);
  int base = graph->tensors.data[grad->out.data[0]].base;
  cr_assert_geq(base, 0);
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(graph->tensors.data[grad->out.data[i]].base, base);
    cr_assert_eq(graph->tensors.data[grad->out.data[i]].column, i * D);
  }
  cr_assert_eq(nth(graph, ZP_OP_MATMUL_DGRAD, 0)->in.data[0], base);
  cr_assert_eq(backward_sums(graph), 0);
  kit_free(&k);
}

/* One view read twice, one handed on, one not used at all: sum, copy and zero fill the gradient of the whole. */
Test(differentiate, views_with_many_or_no_readers) {
  kit k = kit_new(S, 1, D);
  int v = split3(&k, linear(&k, "w", k.graph->carry_in.data[0], 6, false));
  int a = linear(&k, "a", v, 4, false), b = linear(&k, "b", v, 4, false);
  carry_out(&k, a);
  carry_out(&k, b);
  carry_out(&k, v + 1);
  zp_graph *graph = check_gradients(&k, 1, 0.1);
  cr_assert_eq(backward_sums(graph), 3);
  kit_free(&k);
}

Test(differentiate, split_of_a_split) {
  kit k = kit_new(S, 1, D);
  int v = split3(&k, linear(&k, "w", k.graph->carry_in.data[0], 12, false));
  int u = apply(&k, ZP_OP_SPLIT, (zp_op_attr){.parts = 2}, "half", v + 1, -1, -1);
  cr_assert_eq(k.graph->tensors.data[u + 1].column, 6);
  carry_out(&k, op2(&k, ZP_OP_MUL, op1(&k, ZP_OP_TANH, u), u + 1));
  carry_out(&k, op2(&k, ZP_OP_MUL, v, v + 2));
  zp_graph *graph = check_gradients(&k, 1, 0.1);
  cr_assert_eq(backward_sums(graph), 0);
  kit_free(&k);
}

/* Parts of a carried tensor, which is the first of all tensors. */
Test(differentiate, split_of_a_split_of_the_input) {
  kit k = kit_new(S, 1, 12);
  int v = split3(&k, k.graph->carry_in.data[0]);
  int u = apply(&k, ZP_OP_SPLIT, (zp_op_attr){.parts = 2}, "half", v + 1, -1, -1);
  carry_out(&k, op2(&k, ZP_OP_MUL, op1(&k, ZP_OP_TANH, u), u + 1));
  carry_out(&k, op2(&k, ZP_OP_MUL, v, v + 2));
  check_gradients(&k, 1, 0.1);
  kit_free(&k);
}

/* A kernel has two results, and only one leads to the loss: the operand of the other alone has no gradient from it. */
Test(differentiate, a_result_that_nothing_needs) {
  kit k = kit_new(S, 2, D);
  int x = k.graph->carry_in.data[0], z = k.graph->carry_in.data[1];
  carry_out(&k, op1(&k, ZP_OP_TANH, x));
  linear(&k, "unused", op2(&k, ZP_OP_MUL, x, z), 4, false);
  zp_graph *graph = check_gradients(&k, 1, 0.1);
  cr_assert_eq(count_nodes(graph, ZP_OP_FUSED_GRAD), 1);
  cr_assert_eq(nth(graph, ZP_OP_FUSED_GRAD, 0)->out.len, 1);
  kit_free(&k);
}

/* The whole is read alongside its parts. */
Test(differentiate, base_and_views_both_read) {
  kit k = kit_new(S, 1, D);
  int x = linear(&k, "w", k.graph->carry_in.data[0], 6, false), v = split3(&k, x);
  carry_out(&k, op1(&k, ZP_OP_SILU, x));
  carry_out(&k, op2(&k, ZP_OP_MUL, v, op2(&k, ZP_OP_ADD, v + 1, v + 2)));
  check_gradients(&k, 1, 0.1);
  kit_free(&k);
}

/* x + a + b: all three gradients are the incoming one, and no kernel runs. */
Test(differentiate, additions_alias) {
  kit k = kit_new(S, 3, D);
  const int *in = k.graph->carry_in.data;
  carry_out(&k, op2(&k, ZP_OP_ADD, op2(&k, ZP_OP_ADD, in[0], in[1]), in[2]));
  zp_graph *graph = check_gradients(&k, 1, 0);
  cr_assert_eq(graph->nodes.len, graph->n_forward);
  for (int i = 0; i < 3; i++) cr_assert_eq(graph->grad_out.data[i], graph->grad_in.data[0]);
  kit_free(&k);
}

Test(differentiate, unused_and_passed_through_carries) {
  kit k = kit_new(S, 3, D);
  const int *in = k.graph->carry_in.data;
  carry_out(&k, op1(&k, ZP_OP_TANH, in[0]));
  carry_out(&k, in[1]);
  zp_graph *graph = check_gradients(&k, 1, 0);
  cr_assert_eq(graph->grad_out.data[1], graph->grad_in.data[1]);
  kit_free(&k);
}

/* tanh(x) and x + f(x): the earlier contribution to x's gradient is added inside the kernel. */
Test(differentiate, addend_is_folded) {
  kit k = kit_new(S, 1, D);
  int x = k.graph->carry_in.data[0];
  carry_out(&k, op2(&k, ZP_OP_ADD, x, linear(&k, "w", rms_norm(&k, "n", x), D, false)));
  zp_graph *graph = check_gradients(&k, 1, 1);
  const zp_node *grad = nth(graph, ZP_OP_FUSED_GRAD, 0);
  int addends = 0;
  for (int i = 0; i < grad->grad_in.len; i++) addends += grad->grad_in.data[i].use == ZP_USE_ADDEND;
  cr_assert_eq(addends, 1);
  cr_assert_eq(backward_sums(graph), 0);
  kit_free(&k);
}

/* Only what the derivative reads is kept: a residual addition in front of a norm is read, the addition's operands
 * not. */
Test(differentiate, saved_values_prefer_what_is_in_memory) {
  kit k = kit_new(S, 2, D);
  int sum = op2(&k, ZP_OP_ADD, k.graph->carry_in.data[0], k.graph->carry_in.data[1]);
  carry_out(&k, sum);
  carry_out(&k, rms_norm(&k, "n", sum));
  zp_graph *graph = check_gradients(&k, 1, 1);
  const zp_node *grad = nth(graph, ZP_OP_FUSED_GRAD, 0);
  for (int i = 0; i < grad->in.len; i++)
    if (grad->grad_in.data[i].use == ZP_USE_SAVED)
      cr_assert(grad->in.data[i] == sum || graph->tensors.data[grad->in.data[i]].role == ZP_ROLE_PARAM);
  cr_assert_eq(grad->out.len, 1, "both operands share one gradient");
  cr_assert_eq(graph->grad_out.data[0], graph->grad_out.data[1]);
  kit_free(&k);
}

/* x and y are added; x is also read later, so x's tensor holds a sum that is not y's gradient. */
Test(differentiate, folded_sum_is_not_shared) {
  kit k = kit_new(S, 2, D);
  int x = k.graph->carry_in.data[0];
  int sum = op2(&k, ZP_OP_ADD, x, k.graph->carry_in.data[1]);
  carry_out(&k, op1(&k, ZP_OP_TANH, sum));
  carry_out(&k, linear(&k, "w", x, D, false));
  zp_graph *graph = check_gradients(&k, 1, 0.1);
  cr_assert_neq(graph->grad_out.data[0], graph->grad_out.data[1]);
  cr_assert_eq(backward_sums(graph), 0);
  kit_free(&k);
}

/* ---- local graphs ---- */

/* Megatron's column/row pair: one sum before the collective of the backward pass, none after the forward one. */
Test(differentiate, enter_sums_first_and_all_reduce_passes) {
  kit k = kit_new(S, 1, D);
  int n = rms_norm(&k, "n", k.graph->carry_in.data[0]);
  int e = op1(&k, ZP_OP_ENTER, n);
  int h = op2(&k, ZP_OP_MUL, linear(&k, "a", e, 4, false), linear(&k, "b", e, 4, false));
  int y = linear(&k, "c", h, D, false);
  k.graph->tensors.data[y].partial = true;
  carry_out(&k, op1(&k, ZP_OP_ALL_REDUCE, y));
  zp_graph *graph = check_gradients(&k, 1, 0.3);
  cr_assert_eq(count_nodes(graph, ZP_OP_GRAD_ALL_REDUCE), 1);
  cr_assert_eq(backward_sums(graph), 1);
  const zp_node *reduce = nth(graph, ZP_OP_GRAD_ALL_REDUCE, 0);
  cr_assert(graph->tensors.data[reduce->in.data[0]].partial);
  cr_assert(!graph->tensors.data[reduce->out.data[0]].partial);
  cr_assert_eq(nth(graph, ZP_OP_MATMUL_DGRAD, 0)->in.data[0], graph->grad_in.data[0]);
  kit_free(&k);
}

static bool reads(const zp_node *node, int tensor) {
  for (int i = 0; i < node->in.len; i++)
    if (node->in.data[i] == tensor) return true;
  return false;
}

/* Along the sequence: gathering and reducing change places, and what a weight's gradient reads is gathered anew, once
 * for both products, so that only the share is kept. */
Test(differentiate, sequence_pair) {
  kit k = kit_new(S, 1, D);
  zp_op_attr one = {.parts = 1};
  int n = rms_norm(&k, "n", k.graph->carry_in.data[0]);
  int e = apply(&k, ZP_OP_ALL_GATHER_SEQ, one, "gather", n, -1, -1);
  int h = op2(&k, ZP_OP_MUL, linear(&k, "a", e, 4, false), linear(&k, "b", e, 4, false));
  int y = linear(&k, "c", h, D, false);
  k.graph->tensors.data[y].partial = true;
  carry_out(&k, apply(&k, ZP_OP_REDUCE_SCATTER_SEQ, one, "share", y, -1, -1));
  zp_graph *graph = check_gradients(&k, 1, 0.3);
  cr_assert_eq(count_nodes(graph, ZP_OP_ALL_GATHER_SEQ), 3); /* forward, of dy, once more for backward */
  cr_assert_eq(count_nodes(graph, ZP_OP_REDUCE_SCATTER_SEQ), 2);
  const zp_node *back = nth(graph, ZP_OP_REDUCE_SCATTER_SEQ, 1);
  cr_assert(graph->tensors.data[back->in.data[0]].partial);
  cr_assert(!graph->tensors.data[back->out.data[0]].partial);
  for (int i = graph->n_forward; i < graph->nodes.len; i++) cr_assert(!reads(&graph->nodes.data[i], e));
  kit_free(&k);
}

/* A carried tensor is gathered by the first node of all: backward keeps the share and gathers it again. */
Test(differentiate, the_first_node_gathers_the_sequence) {
  kit k = kit_new(S, 1, D);
  zp_op_attr one = {.parts = 1};
  int e = apply(&k, ZP_OP_ALL_GATHER_SEQ, one, "gather", k.graph->carry_in.data[0], -1, -1);
  int h = op2(&k, ZP_OP_MUL, linear(&k, "a", e, 4, false), linear(&k, "b", e, 4, false));
  int y = linear(&k, "c", h, D, false);
  k.graph->tensors.data[y].partial = true;
  carry_out(&k, apply(&k, ZP_OP_REDUCE_SCATTER_SEQ, one, "share", y, -1, -1));
  zp_graph *graph = check_gradients(&k, 1, 0.3);
  cr_assert_eq(count_nodes(graph, ZP_OP_ALL_GATHER_SEQ), 3);
  for (int i = graph->n_forward; i < graph->nodes.len; i++) cr_assert(!reads(&graph->nodes.data[i], e));
  kit_free(&k);
}

/* The all-reduce works in place, so it must not get a tensor that also is someone else's gradient. */
Test(differentiate, enter_gets_a_copy_of_a_shared_gradient) {
  kit k = kit_new(S, 2, D);
  int e = op1(&k, ZP_OP_ENTER, k.graph->carry_in.data[0]);
  carry_out(&k, op2(&k, ZP_OP_ADD, e, k.graph->carry_in.data[1]));
  zp_graph *graph = check_gradients(&k, 1, 0);
  const zp_node *reduce = nth(graph, ZP_OP_GRAD_ALL_REDUCE, 0);
  cr_assert_neq(reduce->in.data[0], graph->grad_in.data[0]);
  cr_assert_eq(graph->grad_out.data[1], graph->grad_in.data[0]);
  kit_free(&k);
}

Test(differentiate, loss_through_gathered_statistics) {
  kit k = kit_new(S, 1, D);
  int labels = zp_graph_input(k.graph, k.model, 1);
  int logits = linear(&k, "head", k.graph->carry_in.data[0], 7, false);
  int stats = op2(&k, ZP_OP_CE_STATS, logits, labels);
  int all = apply(&k, ZP_OP_GATHER_STATS, (zp_op_attr){.parts = 1}, "gather", stats, -1, -1);
  zp_graph_add_loss(k.graph, op2(&k, ZP_OP_CE_LOSS, all, labels), 1);
  zp_graph *graph = check_gradients(&k, 7, 0.1);
  const zp_node *grad = nth(graph, ZP_OP_CE_GRAD, 0);
  cr_assert_eq(grad->in.data[0], logits);
  cr_assert_eq(grad->in.data[2], k.graph->losses.data[0]);
  kit_free(&k);
}

/* Split states travel from values to gradients. */
Test(differentiate, gradients_are_split_like_their_values) {
  kit k = kit_new(S, 1, D);
  int a = linear(&k, "w", k.graph->carry_in.data[0], 4, false), b = linear(&k, "v", op1(&k, ZP_OP_SILU, a), D, false);
  carry_out(&k, b);
  k.graph->tensors.data[a].split_dim = 2;
  k.graph->tensors.data[a].full_dim = 8;
  zp_graph *graph = differentiated(&k);
  const zp_tensor *da = &graph->tensors.data[nth(graph, ZP_OP_MATMUL_WGRAD, 1)->in.data[0]];
  cr_assert_eq(da->split_dim, 2);
  cr_assert_eq(da->full_dim, 8);
  kit_free(&k);
}
