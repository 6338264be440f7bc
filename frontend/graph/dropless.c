/* SPDX-License-Identifier: Apache-2.0 */
/* The model as a program computes it whose experts take the tokens that come: nothing is dropped and nothing padded, so
 * what a capacity leaves empty is neither computed, nor kept, nor sent. */
#include <assert.h>
#include <zplan/model.h>

/* Whether every token finds a slot, however uneven the load is. */
static bool drops_nothing(const zp_op_attr *attr, int64_t positions) { return attr->slots >= positions; }

/* The slots of an expert that the choices fill where they are spread evenly. */
static int64_t even_slots(const zp_op_attr *attr, int64_t positions) {
  return (positions * attr->top_k + attr->experts - 1) / attr->experts;
}

static void route_evenly(zp_arena *scratch, zp_graph *graph) {
  bool *of_slots = ZP_NEW_ARRAY(scratch, bool, graph->tensors.len + 1);
  for (int n = 0; n < graph->nodes.len; n++) {
    zp_node *node = &graph->nodes.data[n];
    const zp_shape *first = &graph->tensors.data[node->in.data[0]].shape;
    bool slots = node->op == ZP_OP_DISPATCH && node->in.len == 2; /* sorted rows are as many as choices */
    bool begins = slots && drops_nothing(&node->attr, first->dim[1]), inside = begins;
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
    if (gate->op != ZP_OP_TOP_K_GATE || gate->attr.dropless) continue;
    int64_t positions = graph->tensors.data[gate->in.data[0]].shape.dim[1];
    if (drops_nothing(&gate->attr, positions)) gate->attr.slots = even_slots(&gate->attr, positions);
  }
}

void zp_model_route_evenly(zp_model *model) {
  for (int s = 0; s < model->segments.len; s++) route_evenly(model->arena, model->segments.data[s].graph);
}
