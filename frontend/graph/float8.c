/* SPDX-License-Identifier: Apache-2.0 */
/* Which products of a model take operands of 8 bits: those of layers and of their experts, as Transformer Engine's
 * modules do. Embeddings, the head, scores of attention, gates of experts and adapters stay as they are. */
#include <assert.h>
#include <zplan/model.h>

static bool is_product(const zp_node *node) { return node->op == ZP_OP_MATMUL || node->op == ZP_OP_BATCHED_MATMUL; }

static bool may_be_float8(const zp_model *model, const zp_graph *graph, const zp_node *node, int multiple) {
  const zp_tensor *w = &graph->tensors.data[node->in.data[1]];
  int last = w->shape.rank - 1;
  return w->role == ZP_ROLE_PARAM && !zp_model_is_adapter(model, w->index) && w->shape.dim[last] % multiple == 0 &&
         w->shape.dim[last - 1] % multiple == 0;
}

/* The product whose scores a gate reads, through row operations: a token's choice may hang on a rounding. */
static void leave_scores(zp_graph *graph, const zp_node *gate) {
  int at = graph->tensors.data[gate->in.data[0]].producer;
  while (at >= 0 && zp_op_get_class(graph->nodes.data[at].op) == ZP_CLASS_ROW)
    at = graph->tensors.data[graph->nodes.data[at].in.data[0]].producer;
  if (at >= 0 && is_product(&graph->nodes.data[at])) graph->nodes.data[at].attr.float8 = false;
}

int zp_model_set_float8(zp_model *model, int multiple) {
  assert(multiple >= 0);
  int products = 0;
  for (int s = 0; s < model->segments.len; s++) {
    zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      zp_node *node = &graph->nodes.data[n];
      if (is_product(node))
        node->attr.float8 =
            multiple && model->segments.data[s].is_repeat && may_be_float8(model, graph, node, multiple);
    }
    for (int n = 0; n < graph->nodes.len; n++)
      if (graph->nodes.data[n].op == ZP_OP_TOP_K_GATE) leave_scores(graph, &graph->nodes.data[n]);
    for (int n = 0; n < graph->nodes.len; n++)
      products += is_product(&graph->nodes.data[n]) && graph->nodes.data[n].attr.float8;
  }
  return products;
}
