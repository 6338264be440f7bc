/* Cutting a graph in two between nodes: which tensors flow across, and the graph of the nodes between two cuts. */
#include "graph_internal.h"

/* Is the tensor read by node `from` or a later one, or carried on? */
static bool read_from(const zp_graph *graph, int tensor, int from) {
  for (int n = from; n < graph->nodes.len; n++)
    if (zp_ints_has(&graph->nodes.data[n].in, tensor)) return true;
  return zp_ints_has(&graph->carry_out, tensor);
}

int zp_graph_crossing(const zp_graph *graph, int node) {
  int crossing = -1;
  for (int t = 0; t < graph->tensors.len; t++) {
    const zp_tensor *tensor = &graph->tensors.data[t];
    bool before = tensor->role == ZP_ROLE_CARRY_IN ||
                  (tensor->role == ZP_ROLE_VALUE && tensor->producer >= 0 && tensor->producer < node);
    if (!before || !read_from(graph, t, node)) continue;
    if (crossing >= 0) return -1;
    crossing = t;
  }
  return crossing;
}

static void cut_off_before(zp_graph *slice, int crossing) {
  zp_tensor *t = &slice->tensors.data[crossing];
  for (int i = 0; i < slice->carry_in.len; i++) { /* what was carried in stays behind */
    zp_tensor *old = &slice->tensors.data[slice->carry_in.data[i]];
    old->role = ZP_ROLE_VALUE;
    old->index = -1;
  }
  t->role = ZP_ROLE_CARRY_IN;
  t->index = 0;
  slice->carry_in = (zp_ints){0};
  zp_push(slice->arena, &slice->carry_in, crossing);
}

/* Does a node before this one read a parameter that is trained? */
static bool trains_before(const zp_graph *graph, int node) {
  for (int n = 0; n < node; n++)
    for (int i = 0; i < graph->nodes.data[n].in.len; i++) {
      const zp_tensor *t = &graph->tensors.data[graph->nodes.data[n].in.data[i]];
      if (t->role == ZP_ROLE_PARAM && !t->frozen) return true;
    }
  return false;
}

zp_graph *zp_graph_slice(const zp_graph *graph, int first, int end) {
  int before = first > 0 ? zp_graph_crossing(graph, first) : -1;
  int after = end < graph->nodes.len ? zp_graph_crossing(graph, end) : -1;
  zp_graph *slice = zp_graph_copy_tensors(graph);
  if (before >= 0) cut_off_before(slice, before);
  if (after >= 0) {
    slice->carry_out = (zp_ints){0};
    zp_push(slice->arena, &slice->carry_out, after);
    slice->losses.len = 0;
  }
  for (int n = first; n < end; n++) zp_graph_add_node(slice, graph->nodes.data[n]);
  slice->params.len = 0;
  for (int i = 0; i < graph->params.len; i++) {
    bool used = false;
    for (int n = first; n < end && !used; n++)
      used = zp_ints_has(&graph->nodes.data[n].in, graph->params.data[i].tensor);
    if (used) zp_push(slice->arena, &slice->params, graph->params.data[i]);
  }
  slice->first_trained = graph->first_trained && !trains_before(graph, first);
  slice->n_forward = slice->nodes.len;
  return slice;
}
