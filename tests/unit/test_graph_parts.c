/* SPDX-License-Identifier: Apache-2.0 */
/* zp_graph_infer_parts: units that follow from heads, splits and shared parameters. */
#include "graph_testing.h"

static const zp_tensor *find(const kit *k, const char *name) {
  const zp_tensor *found = NULL;
  for (int i = 0; i < k->graph->tensors.len; i++)
    if (strcmp(k->graph->tensors.data[i].name, name) == 0) found = &k->graph->tensors.data[i];
  cr_assert_not_null(found, "no tensor %s", name);
  return found;
}

static void expect(const kit *k, const char *name, int dim, int64_t outer, int64_t units) {
  zp_parts parts = find(k, name)->parts[dim];
  cr_assert(parts.outer == outer && parts.units == units, "%s dim %d: [%lld][%lld], expected [%lld][%lld]", name, dim,
            (long long)parts.outer, (long long)parts.units, (long long)outer, (long long)units);
}

Test(parts, fused_qkv_falls_apart_by_heads) {
  kit k = kit_new(16, 1, 24);
  gpt_layer(&k, 4, 0.1);
  zp_graph_infer_parts(k.graph);
  expect(&k, "c_attn.weight", 0, 3, 4); /* [3][heads] of the transposed matrix's rows */
  expect(&k, "c_attn.weight", 1, 1, 24);
  expect(&k, "c_attn.bias", 0, 3, 4);
  expect(&k, "qkv.0", 2, 1, 4);
  expect(&k, "y", 2, 1, 4);
  expect(&k, "c_proj.weight", 1, 1, 4);
  expect(&k, "c_proj.weight", 0, 1, 24);
  expect(&k, "c_fc.weight", 0, 1, 96);
  expect(&k, "mlp.c_proj.weight", 1, 1, 96);
  expect(&k, "x", 2, 1, 24);
  expect(&k, "x", 1, 1, 16);
  expect(&k, "x", 0, 1, 1);
  kit_free(&k);
}

Test(parts, grouped_keys_make_groups_of_queries) {
  kit k = kit_new(16, 1, 48);
  llama_layer(&k, 6, 2, 64);
  zp_graph_infer_parts(k.graph);
  expect(&k, "wq.weight", 0, 1, 2); /* three query heads of 8 columns each go with one key head */
  expect(&k, "wk.weight", 0, 1, 2);
  expect(&k, "wv.weight", 0, 1, 2);
  expect(&k, "wo.weight", 1, 1, 2);
  expect(&k, "rope_q", 2, 1, 2);
  expect(&k, "w1.weight", 0, 1, 64);
  expect(&k, "w2.weight", 1, 1, 64);
  kit_free(&k);
}

Test(parts, rope_alone_keeps_heads_together) {
  kit k = kit_new(4, 1, 12);
  zp_op_attr attr = {.heads = 3, .theta = 10};
  carry_out(&k, apply(&k, ZP_OP_ROPE, attr, "turned", linear(&k, "w", k.graph->carry_in.data[0], 12, false), -1, -1));
  zp_graph_infer_parts(k.graph);
  expect(&k, "w.weight", 0, 1, 3);
  kit_free(&k);
}

/* gate and up from one matrix: two outer slices of single columns. */
Test(parts, fused_gate_and_up) {
  kit k = kit_new(4, 1, 8);
  int both = linear(&k, "gate_up", k.graph->carry_in.data[0], 20, false);
  int gate = apply(&k, ZP_OP_SPLIT, (zp_op_attr){.parts = 2}, "part", both, -1, -1);
  carry_out(&k, linear(&k, "down", op2(&k, ZP_OP_MUL, op1(&k, ZP_OP_SILU, gate), gate + 1), 8, false));
  zp_graph_infer_parts(k.graph);
  expect(&k, "gate_up.weight", 0, 2, 10);
  expect(&k, "down.weight", 1, 1, 10);
  kit_free(&k);
}

/* One unit in each of three slices is nothing to split by. */
Test(parts, one_head_is_not_splittable) {
  kit k = kit_new(4, 1, 8);
  gpt_layer(&k, 1, 0);
  zp_graph_infer_parts(k.graph);
  expect(&k, "c_attn.weight", 0, 1, 1);
  expect(&k, "c_proj.weight", 1, 1, 1);
  expect(&k, "c_fc.weight", 0, 1, 32);
  kit_free(&k);
}

/* One tensor split into 2 and into 3: neither order of slices refines the other. */
Test(parts, contradiction_is_not_splittable) {
  kit k = kit_new(4, 1, 8);
  int x = linear(&k, "w", k.graph->carry_in.data[0], 12, false);
  int two = apply(&k, ZP_OP_SPLIT, (zp_op_attr){.parts = 2}, "two", x, -1, -1);
  int three = apply(&k, ZP_OP_SPLIT, (zp_op_attr){.parts = 3}, "three", x, -1, -1);
  carry_out(&k, op2(&k, ZP_OP_ADD, two, two + 1));
  carry_out(&k, op2(&k, ZP_OP_ADD, three, op2(&k, ZP_OP_ADD, three + 1, three + 2)));
  zp_graph_infer_parts(k.graph);
  expect(&k, "w.weight", 0, 1, 1);
  expect(&k, "two.0", 2, 1, 1);
  expect(&k, "three.2", 2, 1, 1);
  kit_free(&k);
}

/* 6 heads and 4 heads over the same 24 columns agree on 2 units. */
Test(parts, different_heads_meet_in_common_units) {
  kit k = kit_new(4, 1, 24);
  int x = linear(&k, "w", k.graph->carry_in.data[0], 24, false);
  carry_out(&k, apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 6}, "a", x, x, x));
  carry_out(&k, apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 4}, "b", x, x, x));
  zp_graph_infer_parts(k.graph);
  expect(&k, "w.weight", 0, 1, 2);
  expect(&k, "a", 2, 1, 2);
  kit_free(&k);
}

Test(parts, vocabulary_and_tied_table) {
  kit k = kit_new(4, 0, 8);
  int wte = param(&k, "wte", shape2(11, 8));
  int x = op2(&k, ZP_OP_EMBEDDING, zp_graph_input(k.graph, k.model, 0), wte);
  int logits = apply(&k, ZP_OP_MATMUL, (zp_op_attr){.trans = true}, "logits", x, wte, -1);
  zp_graph_add_loss(k.graph, op2(&k, ZP_OP_CROSS_ENTROPY, logits, zp_graph_input(k.graph, k.model, 1)), 1);
  zp_graph_infer_parts(k.graph);
  expect(&k, "wte", 0, 1, 11);
  expect(&k, "wte", 1, 1, 8);
  expect(&k, "logits", 2, 1, 11);
  kit_free(&k);
}
