/* SPDX-License-Identifier: Apache-2.0 */
/* zp_graph_localize_trivial: the local graph of a machine without tensor parallelism. */
#include "graph_internal.h"

#include <assert.h>

static int add_stat(zp_graph *graph, const zp_node *loss, zp_op op, int in0, int in1, zp_shape shape, int lengths,
                    const char *suffix) {
  const char *name = zp_format(graph->arena, "%s.%s", loss->name, suffix);
  zp_node node = {.op = op, .attr = loss->attr, .span = loss->span, .name = loss->name};
  int out = zp_graph_add_tensor(graph, zp_tensor_make(name, ZP_ELEM_STAT, shape, loss->span));
  zp_push(graph->arena, &node.in, in0);
  if (in1 >= 0) zp_push(graph->arena, &node.in, in1);
  if (lengths >= 0) zp_push(graph->arena, &node.in, lengths);
  zp_push(graph->arena, &node.out, out);
  zp_graph_add_node(graph, node);
  return out;
}

zp_graph *zp_graph_localize_trivial(const zp_graph *graph) {
  assert(zp_graph_is_forward(graph));
  zp_graph *local = zp_graph_copy_tensors(graph);
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node *node = &graph->nodes.data[i];
    bool squares = node->op == ZP_OP_SQUARED_ERROR;
    if (node->op != ZP_OP_CROSS_ENTROPY && !squares) {
      zp_graph_add_node(local, *node);
      continue;
    }
    int logits = node->in.data[0], labels = node->in.data[1], lengths = node->in.len > 2 ? node->in.data[2] : -1;
    zp_shape stat = graph->tensors.data[logits].shape;
    stat.dim[stat.rank - 1] = 3;
    stat.extent[stat.rank - 1] = NULL;
    zp_shape rows = graph->tensors.data[logits].shape;
    rows.rank--;
    int stats =
        add_stat(local, node, squares ? ZP_OP_SE_STATS : ZP_OP_CE_STATS, logits, labels, stat, lengths, "stats");
    int lse = add_stat(local, node, ZP_OP_CE_LOSS, stats, squares ? -1 : labels, rows, -1, "lse");
    for (int k = 0; k < local->losses.len; k++)
      if (local->losses.data[k] == node->out.data[0]) local->losses.data[k] = lse;
  }
  local->n_forward = local->nodes.len;
  return local;
}
