/* SPDX-License-Identifier: Apache-2.0 */
/* Models of a table, layers that a test writes, and a head: where GPT and LLaMA have too much in them. */
#ifndef SMALL_LAYERS_H
#define SMALL_LAYERS_H

#include "planner_models.h"

/* One layer: its output from its input. Parameters of a layer are its own. */
typedef int a_layer(builder *b, const model_size *size, int x);

/* size->layers layers between a table, to whose rows `biases` vectors of their own are added, and a head. */
static inline zp_model *small_layers(zp_arena *in, const model_size *size, int biases, a_layer *layer) {
  builder b = {.model = zp_model_new(in, "test"), .diags = zp_diags_new(in), .segment = -1};
  zp_shape ids = shape_of_rank(2, ZP_DIM_B, size->S, 0), table = shape_of_rank(2, size->V, size->d, 0);
  int tokens = zp_model_add_input(b.model, "tokens", ids, ZP_NO_SPAN);
  int labels = zp_model_add_input(b.model, "labels", ids, ZP_NO_SPAN);
  b.graph = open_segment(&b, size, "begin", 1, false);
  int x = apply(&b, ZP_OP_EMBEDDING, zp_graph_input(b.graph, b.model, tokens), weight(&b, "wte", table), -1,
                (zp_op_attr){0}, "wte");
  for (int i = 0; i < biases; i++) x = add2(&b, x, weight(&b, "bias", shape_of_rank(1, size->d, 0, 0)));
  zp_push(in, &b.graph->carry_out, x);
  b.graph = open_segment(&b, size, "h", size->layers, true);
  b.segment = 1;
  zp_push(in, &b.graph->carry_out, layer(&b, size, b.graph->carry_in.data[0]));
  b.graph = open_segment(&b, size, "end", 1, true);
  b.segment = -1;
  x = product(&b, b.graph->carry_in.data[0], size->d, size->V, "head");
  zp_graph_add_loss(
      b.graph, apply(&b, ZP_OP_CROSS_ENTROPY, x, zp_graph_input(b.graph, b.model, labels), -1, (zp_op_attr){0}, "loss"),
      1);
  b.model->vocabulary = size->V;
  return b.model;
}

#endif
