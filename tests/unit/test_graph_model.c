/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of models: parameters, work and traffic against formulas worked out by hand. */
#include "graph_testing.h"
#include <zplan/hash.h>
#include <zplan/spec.h>

enum { B = 2, S = 16, D = 24, HEADS = 4, LAYERS = 3 };

/* Per layer 12 d^2 + 13 d parameters: 3d^2+3d (qkv), d^2+d, 4d^2+4d, 4d^2+d, and 4d for two layer norms. */
Test(model, gpt_parameters) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, HEADS, 0.1);
  cr_assert_eq(zp_model_parameters(k.model), LAYERS * (12 * D * D + 13 * D));
  zp_param once = {.name = "wte", .shape = shape2(100, D), .segment = -1};
  zp_model_add_param(k.model, once);
  cr_assert_eq(zp_model_parameters(k.model), LAYERS * (12 * D * D + 13 * D) + 100 * D);
  kit_free(&k);
}

/* Per sequence and layer: 2 * 12 d^2 S for the matrices, 4 S^2 d / 2 for causal attention, three times that in all. */
Test(model, gpt_flop_per_sequence) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, HEADS, 0.1);
  double layer = 24.0 * D * D * S + 2.0 * S * S * D;
  cr_assert_float_eq(zp_model_flop_per_sequence(k.model), 3 * LAYERS * layer, 1e-3);
  kit_free(&k);
}

static double sum_flop(const zp_graph *graph, int first, int last, zp_op_class class) {
  double sum = 0;
  for (int i = first; i < last; i++)
    if (zp_op_get_class(graph->nodes.data[i].op) == class) sum += zp_node_flop(graph, &graph->nodes.data[i], B);
  return sum;
}

/* Backward matmuls do twice the forward work; attention rebuilds its scores, 5 products instead of 2. */
Test(model, backward_flop) {
  kit k = kit_new(S, 1, D);
  gpt_layer(&k, HEADS, 0.1);
  zp_graph *graph = differentiated(&k);
  int n = graph->n_forward, all = graph->nodes.len;
  double forward = sum_flop(graph, 0, n, ZP_CLASS_MATMUL), attention = sum_flop(graph, 0, n, ZP_CLASS_ATTENTION);
  cr_assert_float_eq(forward, 24.0 * D * D * S * B, 1e-3);
  cr_assert_float_eq(sum_flop(graph, n, all, ZP_CLASS_MATMUL), 2 * forward, 1e-3);
  cr_assert_float_eq(attention, 2.0 * S * S * D * B, 1e-3);
  cr_assert_float_eq(sum_flop(graph, n, all, ZP_CLASS_ATTENTION), 2.5 * attention, 1e-3);
  kit_free(&k);
}

/* Pairs that are seen, with half of a query's pair with itself when causal, as in dense attention. */
Test(model, keys_in_windows) {
  enum { POSITIONS = 50 };
  for (int64_t window = 1; window <= POSITIONS; window++)
    for (int causal = 0; causal < 2; causal++) {
      zp_op_attr attr = {.window = window, .causal = causal}, dense = {.causal = causal};
      double pairs = 0;
      for (int i = 0; i < POSITIONS; i++)
        for (int j = 0; j < POSITIONS; j++)
          if (abs(i - j) < window && (!causal || j <= i)) pairs += causal && i == j ? 0.5 : 1;
      cr_expect_float_eq(zp_attention_keys(&attr, POSITIONS) * POSITIONS, pairs, 1e-9);
      cr_expect_float_eq(zp_attention_density(&attr, POSITIONS) * zp_attention_keys(&dense, POSITIONS) * POSITIONS,
                         pairs, 1e-9);
    }
}

static const zp_node *last_of(const zp_graph *graph, zp_op op) {
  for (int i = graph->nodes.len - 1; i >= 0; i--)
    if (graph->nodes.data[i].op == op) return &graph->nodes.data[i];
  cr_assert_fail("no such node");
  return NULL;
}

Test(model, bytes) {
  enum { V = 50 };
  kit k = kit_new(S, 0, D);
  int wte = param(&k, "wte", shape2(V, D)), labels = zp_graph_input(k.graph, k.model, 1);
  int x = op2(&k, ZP_OP_EMBEDDING, zp_graph_input(k.graph, k.model, 0), wte);
  int logits = apply(&k, ZP_OP_MATMUL, (zp_op_attr){.trans = true}, "logits", op1(&k, ZP_OP_SILU, x), wte, -1);
  zp_graph_add_loss(k.graph, op2(&k, ZP_OP_CROSS_ENTROPY, logits, labels), 1);
  zp_graph *graph = differentiated(&k);
  const int rows = B * S;
  cr_assert_float_eq(zp_node_bytes(graph, last_of(graph, ZP_OP_EMBEDDING), B, 2, 2), rows * 4 + 2 * rows * D * 2, 1e-9);
  cr_assert_float_eq(zp_node_flop(graph, last_of(graph, ZP_OP_EMBEDDING), B), 0, 1e-9);
  cr_assert_float_eq(zp_node_bytes(graph, last_of(graph, ZP_OP_MATMUL), B, 2, 2), 2.0 * (rows * D + V * D + rows * V),
                     1e-9);
  cr_assert_float_eq(zp_node_bytes(graph, last_of(graph, ZP_OP_MATMUL_WGRAD), B, 4, 4),
                     4.0 * (rows * V + rows * D + 2 * V * D), 1e-9);
  cr_assert_float_eq(zp_node_bytes(graph, last_of(graph, ZP_OP_MATMUL_WGRAD), B, 2, 4),
                     2.0 * (rows * V + rows * D) + 4.0 * 2 * V * D, 1e-9);
  cr_assert_float_eq(zp_node_bytes(graph, last_of(graph, ZP_OP_CE_STATS), B, 2, 2), rows * (V * 2 + 4 + 3 * 4), 1e-9);
  cr_assert_float_eq(zp_node_bytes(graph, last_of(graph, ZP_OP_CE_STATS), B, 8, 8), rows * (V * 8 + 4 + 3 * 8), 1e-9);
  cr_assert_float_eq(zp_node_bytes(graph, last_of(graph, ZP_OP_FUSED), B, 4, 4), 4.0 * 2 * rows * D, 1e-9);
  cr_assert_float_eq(zp_node_flop(graph, last_of(graph, ZP_OP_MATMUL_WGRAD), B), 2.0 * rows * V * D, 1e-9);
  kit_free(&k);
}

Test(model, names_of_instances) {
  zp_arena *arena = zp_arena_new("test");
  zp_param inside = {.name = "h.{}.mlp.c_fc.weight"}, outside = {.name = "wte"};
  cr_assert_str_eq(zp_param_instance_name(arena, &inside, 3), "h.3.mlp.c_fc.weight");
  cr_assert_str_eq(zp_param_instance_name(arena, &outside, 3), "wte");
  zp_arena_free(arena);
}

Test(model, shape_questions) {
  zp_arena *arena = zp_arena_new("test");
  zp_shape x = shape3(ZP_DIM_B, 1024, 768), scalar = {0}, vector = shape1(5);
  cr_assert_str_eq(zp_shape_text(arena, &x), "[B, 1024, 768]");
  cr_assert_str_eq(zp_shape_text(arena, &scalar), "[]");
  cr_assert_eq(zp_shape_elements(&x, 2), 2 * 1024 * 768);
  cr_assert_eq(zp_shape_rows(&x, 2), 2 * 1024);
  cr_assert_eq(zp_shape_rows(&vector, 2), 1);
  cr_assert_eq(zp_shape_cols(&scalar), 1);
  cr_assert_eq(zp_shape_elements(&scalar, 2), 1);
  zp_arena_free(arena);
}

Test(model, op_names) {
  cr_assert_str_eq(zp_op_name(ZP_OP_LAYER_NORM), "layer_norm");
  cr_assert_str_eq(zp_op_identifier(ZP_OP_LAYER_NORM), "LAYER_NORM");
  cr_assert_eq(zp_op_get_class(ZP_OP_ENTER), ZP_CLASS_COMM);
}

Test(model, limits) {
  zp_limit limit = {0};
  cr_assert(zp_limit_allows(&limit, 7));
  limit = (zp_limit){.set = true, .low = 2, .high = 4};
  cr_assert(zp_limit_allows(&limit, 2) && zp_limit_allows(&limit, 4) && !zp_limit_allows(&limit, 5));
  double values[] = {1, 8};
  limit.in.data = values, limit.in.len = 2;
  cr_assert(zp_limit_allows(&limit, 8) && !zp_limit_allows(&limit, 3));
}

/* Hashes that version 0.1 made of such attributes, whose nodes had all of them side by side: checkpoints have them. */
Test(model, hashes_of_attributes) {
  zp_windows windows = {.size = {4, 5}, .kernel = {2, 3}, .stride = {1, 2}, .padding = {0, 1}};
  zp_op_attr attention = {.heads = 6, .head_size = 8, .kv_heads = 2, .scale = 0.5, .softcap = 30, .window = 7};
  attention.alibi_heads = 12, attention.max_distance = 9, attention.causal = attention.documents = true;
  attention.rate = 0.1, attention.stream = 3;
  zp_op_attr gate = {.top_k = 2, .experts = 8, .slots = 5, .capacity = 1.25, .balance = 0.01, .bias_rate = 0.001};
  gate.groups = 4, gate.top_groups = 2, gate.normalize = gate.sigmoid = true;
  const struct {
    zp_node node;
    uint64_t hash;
  } nodes[] = {
      {{.op = ZP_OP_ATTENTION, .attr = attention}, 0x09c40e1e95f67419},
      {{.op = ZP_OP_RMS_NORM, .attr = {.value = 1, .eps = 1e-5, .heads = 2, .head_size = 4}}, 0xa2931658f10e3243},
      {{.op = ZP_OP_MATMUL, .attr = {.trans = true}}, 0x164c714b01e19de4},
      {{.op = ZP_OP_TOP_K_GATE, .attr = gate}, 0xadf3a50fa3ce1eac},
      {{.op = ZP_OP_COLUMNS, .attr = {.begin = 3, .count = 4, .heads = 2}}, 0x760154926ad83ee0},
      {{.op = ZP_OP_REDUCE, .attr = {.reduction = ZP_REDUCE_MAX, .value = 1}}, 0x700a63fca3e040d9},
      {{.op = ZP_OP_UNFOLD, .attr = {.windows = &windows, .parts = 2}}, 0x8a4bb6719cbfc305},
      {{.op = ZP_OP_CROSS_ENTROPY, .attr = {.smoothing = 0.1, .weight = 2}}, 0x1aac8f6f44886544},
      {{.op = ZP_OP_CROSS_ENTROPY, .attr = {.classes = 9}}, 0xd80ac658736bb725},
      {{.op = ZP_OP_ADD}, 0xd80ac658736bb725},
  };
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
    cr_expect_eq(zp_node_hash(ZP_HASH_START, &nodes[i].node), nodes[i].hash, "%s", zp_op_name(nodes[i].node.op));
}
