/* SPDX-License-Identifier: Apache-2.0 */
/* A model of operations along axes and on columns of heads, whose last segment has several losses. */
#ifndef ZPLAN_AXES_MODEL_H
#define ZPLAN_AXES_MODEL_H

#include "planner_models.h"

/* Latent attention: keys are in part the same for all heads, and wider than values. */
static inline int latent_attention(builder *b, int x, int64_t d) {
  enum { HEADS = 4, NOPE = 6, TURNED = 4, WIDTH = NOPE + TURNED, VALUE = 7, RANK = 18 };
  zp_op_attr heads = {.heads = HEADS};
  zp_op_attr nope = {.heads = HEADS, .count = NOPE}, turned = {.heads = HEADS, .begin = NOPE, .count = TURNED};
  int q = product(b, layer_norm(b, product(b, x, d, RANK, "q_a"), RANK), RANK, HEADS * WIDTH, "q_b");
  int q_nope = apply(b, ZP_OP_COLUMNS, q, -1, -1, nope, "q_nope");
  int q_turned = apply(b, ZP_OP_COLUMNS, q, -1, -1, turned, "q_turned");
  q_turned = apply(b, ZP_OP_ROPE, q_turned, -1, -1, (zp_op_attr){.heads = HEADS, .theta = 100}, "q_rope");
  q = apply(b, ZP_OP_JOIN_COLUMNS, q_nope, q_turned, -1, heads, "q");
  int low = product(b, x, d, RANK + TURNED, "kv_a");
  int latent = apply(b, ZP_OP_COLUMNS, low, -1, -1, (zp_op_attr){.heads = 1, .count = RANK}, "latent");
  int shared = apply(b, ZP_OP_COLUMNS, low, -1, -1, (zp_op_attr){.heads = 1, .begin = RANK, .count = TURNED}, "shared");
  shared = apply(b, ZP_OP_ROPE, shared, -1, -1, (zp_op_attr){.heads = 1, .theta = 100}, "k_rope");
  int kv = product(b, layer_norm(b, latent, RANK), RANK, HEADS * (NOPE + VALUE), "kv_b");
  int k = apply(b, ZP_OP_COLUMNS, kv, -1, -1, nope, "k_nope");
  k = apply(b, ZP_OP_JOIN_COLUMNS, k, apply(b, ZP_OP_REPEAT_COLUMNS, shared, -1, -1, heads, "each"), -1, heads, "k");
  int v = apply(b, ZP_OP_COLUMNS, kv, -1, -1, (zp_op_attr){.heads = HEADS, .begin = NOPE, .count = VALUE}, "v");
  v = apply(b, ZP_OP_COLUMNS, v, -1, -1, (zp_op_attr){.heads = HEADS, .count = WIDTH}, "padded");
  int o = apply(b, ZP_OP_ATTENTION, q, k, v, (zp_op_attr){.heads = HEADS, .causal = true}, "o");
  o = apply(b, ZP_OP_COLUMNS, o, -1, -1, (zp_op_attr){.heads = HEADS, .count = VALUE}, "narrow");
  return product(b, o, HEADS * VALUE, d, "o_proj");
}

/* Other shapes and axes, positions by number, errors of numbers. */
static inline zp_model *axes_model(zp_arena *arena) {
  builder b = {.model = zp_model_new(arena, "axes"), .diags = zp_diags_new(arena), .segment = -1};
  model_size size = {.V = 12, .S = 12, .d = 40};
  zp_model *m = b.model;
  int tokens = zp_model_add_input(m, "tokens", shape_of_rank(2, ZP_DIM_B, size.S, 0), ZP_NO_SPAN);
  int which = zp_model_add_array(m, "which", ZP_ELEM_I32, shape_of_rank(2, ZP_DIM_B, 3, 0), ZP_NO_SPAN);
  int label = zp_model_add_array(m, "label", ZP_ELEM_I32, shape_of_rank(1, ZP_DIM_B, 0, 0), ZP_NO_SPAN);
  int some = zp_model_add_array(m, "some", ZP_ELEM_FLOAT, shape_of_rank(3, ZP_DIM_B, 3, size.d), ZP_NO_SPAN);
  int few = zp_model_add_array(m, "few", ZP_ELEM_FLOAT, shape_of_rank(2, ZP_DIM_B, 5, 0), ZP_NO_SPAN);
  int all = zp_model_add_array(m, "all", ZP_ELEM_FLOAT, shape_of_rank(3, ZP_DIM_B, size.S, 3), ZP_NO_SPAN);
  b.graph = open_segment(&b, &size, "begin", 1, false);
  int table = weight(&b, "table", shape_of_rank(2, size.V, size.d, 0));
  zp_push(arena, &b.graph->carry_out,
          apply(&b, ZP_OP_EMBEDDING, zp_graph_input(b.graph, m, tokens), table, -1, (zp_op_attr){0}, "words"));
  b.graph = open_segment(&b, &size, "end", 1, true);
  int x = layer_norm(&b, b.graph->carry_in.data[0], size.d);
  x = add2(&b, x, latent_attention(&b, x, size.d));
  int wide = apply(&b, ZP_OP_RESHAPE, x, -1, -1, (zp_op_attr){.to = {size.S / 3, 3 * size.d}}, "threes");
  wide = product(&b, wide, 3 * size.d, 3 * size.d, "mix");
  x = add2(&b, x, apply(&b, ZP_OP_RESHAPE, wide, -1, -1, (zp_op_attr){.to = {size.S, size.d}}, "apart"));
  int turned = apply(&b, ZP_OP_TRANSPOSE, x, -1, -1, (zp_op_attr){0}, "turned");
  turned = apply(&b, ZP_OP_GELU, product(&b, turned, size.S, 28, "tokens"), -1, -1, (zp_op_attr){0}, "mixed");
  turned = product(&b, turned, 28, size.S, "back");
  x = add2(&b, x, apply(&b, ZP_OP_TRANSPOSE, turned, -1, -1, (zp_op_attr){0}, "upright"));
  zp_windows row = {.size = {1, size.S}, .kernel = {1, 3}, .stride = {1, 1}, .padding = {0, 1}};
  zp_windows square = {.size = {3, size.S / 3}, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
  int seen = apply(&b, ZP_OP_UNFOLD, x, -1, -1, (zp_op_attr){.windows = &row}, "row");
  seen = apply(&b, ZP_OP_GELU, product(&b, seen, 3 * size.d, 14, "conv1d"), -1, -1, (zp_op_attr){0}, "seen");
  seen = apply(&b, ZP_OP_UNFOLD, seen, -1, -1, (zp_op_attr){.windows = &square}, "square");
  seen = product(&b, seen, 9 * 14, size.d, "conv2d");
  x = add2(&b, x, apply(&b, ZP_OP_MUL_CONST, seen, -1, -1, (zp_op_attr){.value = 0.125}, "little"));
  int taken = apply(&b, ZP_OP_GATHER, x, zp_graph_input(b.graph, m, which), -1, (zp_op_attr){0}, "taken");
  zp_op_attr top = {.reduction = ZP_REDUCE_MAX}, soft = {.reduction = ZP_REDUCE_LOG_SUM_EXP};
  zp_op_attr sum = {.reduction = ZP_REDUCE_SUM, .value = 0.25};
  int pooled =
      add2(&b, apply(&b, ZP_OP_REDUCE, x, -1, -1, top, "top"), apply(&b, ZP_OP_REDUCE, x, -1, -1, soft, "soft"));
  int hidden = apply(&b, ZP_OP_GELU, product(&b, x, size.d, 50, "up"), -1, -1, (zp_op_attr){0}, "gelu");
  int scores = apply(&b, ZP_OP_REDUCE_COLUMNS, hidden, -1, -1, sum, "sums");
  int ends = apply(&b, ZP_OP_REDUCE_COLUMNS, product(&b, hidden, 50, size.d, "down"), -1, -1, soft, "ends");
  int losses[] = {
      apply(&b, ZP_OP_SQUARED_ERROR, taken, zp_graph_input(b.graph, m, some), -1, (zp_op_attr){0}, "taken_loss"),
      apply(&b, ZP_OP_SQUARED_ERROR, product(&b, pooled, size.d, 5, "few"), zp_graph_input(b.graph, m, few), -1,
            (zp_op_attr){0}, "few_loss"),
      apply(&b, ZP_OP_SQUARED_ERROR, product(&b, x, size.d, 3, "all"), zp_graph_input(b.graph, m, all), -1,
            (zp_op_attr){0}, "all_loss"),
      apply(&b, ZP_OP_CROSS_ENTROPY, scores, zp_graph_input(b.graph, m, label), -1, (zp_op_attr){0}, "sums_loss"),
      apply(&b, ZP_OP_CROSS_ENTROPY, ends, zp_graph_input(b.graph, m, label), -1, (zp_op_attr){0}, "ends_loss")};
  for (int i = 0; i < 5; i++) zp_graph_add_loss(b.graph, losses[i], 0.5 + i);
  m->vocabulary = size.V;
  return m;
}

#endif
