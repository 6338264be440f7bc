/* SPDX-License-Identifier: Apache-2.0 */
/* The model as a program computes it whose experts take the tokens that come: nothing is dropped and nothing padded, so
 * what a capacity leaves empty is neither computed, nor kept, nor sent. */
#include <assert.h>
#include "graph_internal.h"

/* Whether every token finds a slot, however uneven the load is. */
static bool drops_nothing(const zp_op_attr *attr, int64_t positions) { return attr->slots >= positions; }

/* The slots of an expert that the choices fill where they are spread evenly. */
static int64_t even_slots(const zp_op_attr *attr, int64_t positions) {
  return (positions * attr->top_k + attr->experts - 1) / attr->experts;
}

static void set_slots_of(zp_graph *graph, const zp_node *node, int64_t experts, int64_t slots) {
  for (int o = 0; o < node->out.len; o++) {
    zp_tensor *out = &graph->tensors.data[node->out.data[o]];
    out->shape.dim[1] = experts, out->shape.dim[2] = slots;
    out->shape.extent[1] = out->shape.extent[2] = NULL;
    out->sorted = false;
  }
}

/* Nobody reads them any more. */
static void drop_expert_rows(zp_graph *graph) {
  int n = 0;
  for (int t = 0; t < graph->tensors.len; t++) graph->tensors.data[t].producer = -1;
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node node = graph->nodes.data[i];
    if (node.op == ZP_OP_EXPERT_ROWS) continue;
    for (int o = 0; o < node.out.len; o++) graph->tensors.data[node.out.data[o]].producer = n;
    graph->nodes.data[n++] = node;
  }
  graph->nodes.len = n;
  if (graph->n_forward) graph->n_forward = n;
}

/* Sorted rows as slots for every token, which drop nothing either: such programs spread them over ranks. */
static void give_slots(zp_graph *graph) {
  bool any = false;
  for (int n = 0; n < graph->nodes.len; n++) {
    zp_node *node = &graph->nodes.data[n];
    const zp_tensor *first = &graph->tensors.data[node->in.data[0]];
    if (node->op == ZP_OP_TOP_K_GATE) {
      any |= node->attr.dropless;
      node->attr.dropless = false;
    } else if (node->op == ZP_OP_DISPATCH && node->in.len > 2) {
      node->in.len = 2;
      set_slots_of(graph, node, node->attr.experts, node->attr.slots);
    } else if (node->op == ZP_OP_COMBINE && node->in.len > 3) {
      node->in.len = 3;
    } else if (node->out.len && graph->tensors.data[node->out.data[0]].sorted) {
      if (node->op == ZP_OP_BATCHED_MATMUL) node->in.len = 2;
      set_slots_of(graph, node, first->shape.dim[1], first->shape.dim[2]);
    }
  }
  if (!any) return;
  drop_expert_rows(graph);
  zp_graph_infer_parts(graph);
}

static void route_evenly(zp_arena *scratch, zp_graph *graph) {
  bool *of_slots = ZP_NEW_ARRAY(scratch, bool, graph->tensors.len + 1);
  for (int n = 0; n < graph->nodes.len; n++) {
    zp_node *node = &graph->nodes.data[n];
    const zp_shape *first = &graph->tensors.data[node->in.data[0]].shape;
    bool begins = node->op == ZP_OP_DISPATCH && drops_nothing(&node->attr, first->dim[1]), inside = begins;
    for (int i = 0; i < node->in.len && !inside; i++) inside = of_slots[node->in.data[i]];
    if (!inside) continue;
    if (node->op == ZP_OP_COMBINE) {
      node->attr.slots = first->dim[2];
      continue;
    }
    int64_t even = begins ? even_slots(&node->attr, first->dim[1]) : first->dim[2];
    if (begins) node->attr.slots = even;
    for (int o = 0; o < node->out.len; o++) {
      int out = node->out.data[o];
      assert(graph->tensors.data[out].shape.rank == 4); /* [B, experts, slots, columns] */
      graph->tensors.data[out].shape.dim[2] = even;
      of_slots[out] = true;
    }
  }
  /* Gates last: their slots show which dispatches drop nothing. */
  for (int n = 0; n < graph->nodes.len; n++) {
    zp_node *gate = &graph->nodes.data[n];
    if (gate->op != ZP_OP_TOP_K_GATE) continue;
    int64_t positions = graph->tensors.data[gate->in.data[0]].shape.dim[1];
    if (drops_nothing(&gate->attr, positions)) gate->attr.slots = even_slots(&gate->attr, positions);
  }
}

void zp_model_route_evenly(zp_model *model) {
  for (int s = 0; s < model->segments.len; s++) {
    give_slots(model->segments.data[s].graph);
    route_evenly(model->arena, model->segments.data[s].graph);
  }
}
