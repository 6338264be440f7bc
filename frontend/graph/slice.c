/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting a graph in two between nodes: which tensors flow across, and the graph of the nodes between two cuts.
 *
 * What flows across takes the places of what the graph carries: a tensor that is not changed yet its own, one that is
 * complete the place at which it flows on, the others those that are left. */
#include <assert.h>
#include "graph_internal.h"

bool zp_graph_reads(const zp_graph *graph, int tensor, int first, int end) {
  assert(first >= 0 && end <= graph->nodes.len);
  for (int n = first; n < end; n++)
    if (zp_ints_has(&graph->nodes.data[n].in, tensor)) return true;
  return false;
}

static bool is_collective(const zp_node *node) { return zp_op_get_class(node->op) == ZP_CLASS_COMM; }

/* Is the tensor there before `node` and wanted from there on? */
static bool crosses(const zp_graph *graph, int tensor, int node) {
  const zp_tensor *t = &graph->tensors.data[tensor];
  bool before = t->role == ZP_ROLE_CARRY_IN || (t->role == ZP_ROLE_VALUE && t->producer >= 0 && t->producer < node);
  return before && (zp_graph_reads(graph, tensor, node, graph->nodes.len) || zp_ints_has(&graph->carry_out, tensor));
}

/* A copy of what crosses as well, summed or gathered: both sides make their own. */
static bool is_remade(const zp_graph *graph, int tensor, int node) {
  int producer = graph->tensors.data[tensor].producer;
  if (producer < 0 || producer >= node || !is_collective(&graph->nodes.data[producer])) return false;
  return crosses(graph, graph->nodes.data[producer].in.data[0], node);
}

/* What it is a form of: the tensor before collectives. */
static int origin(const zp_graph *graph, int tensor) {
  for (;;) {
    int producer = graph->tensors.data[tensor].producer;
    if (producer < 0 || !is_collective(&graph->nodes.data[producer])) return tensor;
    tensor = graph->nodes.data[producer].in.data[0];
  }
}

static bool alike(const zp_graph *graph, int a, int b) {
  const zp_tensor *x = &graph->tensors.data[a], *y = &graph->tensors.data[b];
  return x->element == y->element && zp_shape_equal(&x->shape, &y->shape);
}

/* Is it what flows on at place i in the end, or the first of what has no place yet? Collectives stand between nodes
 * in other orders than what they are made of, so that is compared. */
static bool fits(const zp_graph *graph, int tensor, int i, bool final) {
  return alike(graph, tensor, graph->carry_in.data[i]) &&
         (!final || origin(graph, tensor) == origin(graph, graph->carry_out.data[i]));
}

static int take(const zp_graph *graph, zp_ints *loose, int i, bool final) {
  int best = -1;
  for (int k = 0; k < loose->len; k++) {
    if (!fits(graph, loose->data[k], i, final)) continue;
    if (best < 0 || origin(graph, loose->data[k]) < origin(graph, loose->data[best])) best = k;
  }
  if (best < 0) return -1;
  int tensor = loose->data[best];
  loose->data[best] = loose->data[--loose->len];
  return tensor;
}

bool zp_graph_crossing(const zp_graph *graph, int node, zp_ints *crossing) {
  assert(node >= 0 && node <= graph->nodes.len && crossing);
  zp_ints loose = {0};
  bool changed = false;
  crossing->len = 0;
  for (int i = 0; i < graph->carry_in.len; i++) {
    int tensor = graph->carry_in.data[i];
    zp_push(graph->arena, crossing, crosses(graph, tensor, node) ? tensor : -1);
  }
  for (int t = 0; t < graph->tensors.len; t++) {
    if (zp_ints_has(crossing, t) || !crosses(graph, t, node) || is_remade(graph, t, node)) continue;
    zp_push(graph->arena, &loose, t);
    changed = true;
  }
  for (int final = 1; final >= 0; final--)
    for (int i = 0; i < crossing->len; i++)
      if (crossing->data[i] < 0) crossing->data[i] = take(graph, &loose, i, final);
  return changed && loose.len == 0 && !zp_ints_has(crossing, -1);
}

/* What crosses at an end of a slice: the caller knows that it falls into the places of what is carried. */
static zp_ints crossing_at(const zp_graph *graph, int node) {
  zp_ints crossing = {0};
  bool falls = zp_graph_crossing(graph, node, &crossing);
  assert(falls);
  (void)falls;
  return crossing;
}

/* What is carried into the slice; of what was, it has the rest no more. */
static void carry_in(zp_graph *slice, const zp_ints *crossing) {
  for (int i = 0; i < slice->carry_in.len; i++) {
    zp_tensor *old = &slice->tensors.data[slice->carry_in.data[i]];
    old->role = ZP_ROLE_VALUE;
    old->index = -1;
  }
  zp_ints_copy(slice->arena, &slice->carry_in, crossing);
  for (int i = 0; i < crossing->len; i++) {
    slice->tensors.data[crossing->data[i]].role = ZP_ROLE_CARRY_IN;
    slice->tensors.data[crossing->data[i]].index = i;
  }
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

/* Collectives whose results only the nodes after the slice read are those nodes' own. */
static bool belongs(const zp_graph *graph, const zp_graph *slice, int node, int first, int end) {
  const zp_node *n = &graph->nodes.data[node];
  if (!is_collective(n)) return node >= first;
  int out = n->out.data[0];
  if (node < first && !is_remade(graph, out, first)) return false;
  return zp_graph_reads(graph, out, first > node ? first : node, end) || zp_ints_has(&slice->carry_out, out);
}

zp_graph *zp_graph_slice(const zp_graph *graph, int first, int end) {
  assert(first >= 0 && first < end && end <= graph->nodes.len);
  zp_graph *slice = zp_graph_copy_tensors(graph);
  if (first > 0) {
    zp_ints crossing = crossing_at(graph, first);
    carry_in(slice, &crossing);
  }
  if (end < graph->nodes.len) {
    slice->carry_out = crossing_at(graph, end);
    slice->losses.len = 0;
  }
  for (int n = 0; n < end; n++)
    if (belongs(graph, slice, n, first, end)) zp_graph_add_node(slice, graph->nodes.data[n]);
  slice->params.len = 0;
  for (int i = 0; i < graph->params.len; i++)
    if (zp_graph_reads(graph, graph->params.data[i].tensor, first, end))
      zp_push(slice->arena, &slice->params, graph->params.data[i]);
  slice->first_trained = graph->first_trained && !trains_before(graph, first);
  slice->n_forward = slice->nodes.len;
  return slice;
}
