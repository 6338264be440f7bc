/* SPDX-License-Identifier: Apache-2.0 */
/* The last check of a model: whatever is computed or declared reaches the loss. Dead values would have no gradient, and
 * parameters inside them would count and never learn. A dead value is told once, at its end and in the user's text: not
 * again for the parameters and inputs that only it reads. */
#include "elaborate.h"

typedef struct marks {
  bool *tensors, *nodes;
} marks;

static void mark_tensor(const zp_graph *graph, marks *m, int tensor) {
  m->tensors[tensor] = true;
  int producer = graph->tensors.data[tensor].producer;
  if (producer >= 0) m->nodes[producer] = true;
}

/* Nodes are in topological order, so one walk from the end reaches everything. */
static marks mark_live(zp_elab *e, const zp_graph *graph) {
  marks m = {ZP_NEW_ARRAY(e->arena, bool, graph->tensors.len), ZP_NEW_ARRAY(e->arena, bool, graph->nodes.len)};
  for (int i = 0; i < graph->losses.len; i++) mark_tensor(graph, &m, graph->losses.data[i]);
  for (int i = 0; i < graph->carry_out.len; i++) mark_tensor(graph, &m, graph->carry_out.data[i]);
  for (int n = graph->nodes.len - 1; n >= 0; n--)
    for (int i = 0; m.nodes[n] && i < graph->nodes.data[n].in.len; i++)
      mark_tensor(graph, &m, graph->nodes.data[n].in.data[i]);
  return m;
}

static bool has_users(const zp_graph *graph, int tensor) {
  for (int n = 0; n < graph->nodes.len; n++)
    for (int i = 0; i < graph->nodes.data[n].in.len; i++)
      if (graph->nodes.data[n].in.data[i] == tensor) return true;
  return false;
}

/* Where the user wrote it: a library's node stands for the call that made it. */
static zp_span place_of(const zp_elab *e, int segment, int n) {
  zp_span span = e->model->segments.data[segment].graph->nodes.data[n].span;
  for (int i = 0; i < e->library_calls.len && zp_diags_in_library(e->diags, span); i++) {
    const zp_library_call *call = &e->library_calls.data[i];
    if (call->segment == segment && n >= call->first && n < call->behind) return call->span;
  }
  return span;
}

static void check_node(zp_elab *e, int segment, int n, const marks *m) {
  const zp_graph *graph = e->model->segments.data[segment].graph;
  const zp_node *node = &graph->nodes.data[n];
  int results = node->op == ZP_OP_ATTENTION ? 1 : node->out.len; /* attention's statistics are for its backward only */
  for (int i = 0; i < results; i++) {
    int out = node->out.data[i];
    if (m->tensors[out] || has_users(graph, out)) continue; /* of a dead chain, its end is told */
    if (results > 1)
      zp_report(e->diags, ZP_Z0231, place_of(e, segment, n), "result %d of this `%s` is never used", i + 1,
                zp_op_name(node->op));
    else
      zp_report(e->diags, ZP_Z0231, place_of(e, segment, n), "`%s` is never used", node->name);
  }
}

/* Does the segment only hand on what it gives at this place, or give it at another place, too? Then somebody reads
 * it. */
static bool is_read_elsewhere(const zp_model *model, int segment, int place) {
  const zp_graph *graph = model->segments.data[segment].graph;
  int tensor = graph->carry_out.data[place], places = 0;
  for (int i = 0; i < graph->carry_out.len; i++) places += graph->carry_out.data[i] == tensor;
  return graph->tensors.data[tensor].role == ZP_ROLE_CARRY_IN || places > 1;
}

static void check_segment(zp_elab *e, int index, bool *param_used, bool *input_used) {
  const zp_segment *segment = &e->model->segments.data[index];
  const zp_graph *graph = segment->graph;
  marks m = mark_live(e, graph);
  for (int n = 0; n < graph->nodes.len; n++)
    if (!m.nodes[n] || graph->nodes.data[n].op == ZP_OP_SPLIT || graph->nodes.data[n].op == ZP_OP_TOP_K_GATE)
      check_node(e, index, n, &m);
  for (int i = 0; i < graph->carry_in.len; i++) {
    if (m.tensors[graph->carry_in.data[i]] || is_read_elsewhere(e->model, index - 1, i)) continue;
    zp_diag *d =
        zp_report(e->diags, ZP_Z0231, segment->span, "segment `%s` does not use what flows into it", segment->name);
    zp_diag_note(d, "`%s` from the segment before is lost here", graph->tensors.data[graph->carry_in.data[i]].name);
  }
  for (int t = 0; t < graph->tensors.len; t++) {
    const zp_tensor *tensor = &graph->tensors.data[t];
    bool told = m.tensors[t] || has_users(graph, t); /* the end of a dead chain that reads it */
    if (told && tensor->role == ZP_ROLE_PARAM) param_used[tensor->index] = true;
    if (told && tensor->role == ZP_ROLE_INPUT) input_used[tensor->index] = true;
  }
}

void zp_elab_check_usage(zp_elab *e) {
  const zp_model *model = e->model;
  bool *param_used = ZP_NEW_ARRAY(e->arena, bool, model->params.len);
  bool *input_used = ZP_NEW_ARRAY(e->arena, bool, model->inputs.len);
  for (int s = 0; s < model->segments.len; s++) check_segment(e, s, param_used, input_used);
  for (int i = 0; i < model->params.len; i++)
    if (!param_used[i])
      zp_report(e->diags, ZP_Z0231, model->params.data[i].span, "parameter `%s` is never used",
                model->params.data[i].name);
  for (int i = 0; i < model->inputs.len; i++)
    if (!input_used[i])
      zp_report(e->diags, ZP_Z0231, model->inputs.data[i].span, "input `%s` is never used", model->inputs.data[i].name);
}
