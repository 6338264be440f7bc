/* SPDX-License-Identifier: Apache-2.0 */
/* zp_differentiate: reverse mode over the nodes of a fused local graph, last to first. The rule of an op is in the file
 * of its class (ops/), fused groups' in diff_fused.c, the bookkeeping of gradient tensors in diff_tensors.c. */
#include <assert.h>
#include "ops.h"

/* By value, because the graph's node array grows while rules append. */
static void diff_node(zp_diff_pass *pass, int index) {
  const zp_node node = pass->graph->nodes.data[index];
  pass->node = index;
  assert(zp_op_get_row(node.op)->differentiate);
  zp_op_get_row(node.op)->differentiate(pass, &node);
}

/* ---- preparation ---- */

static bool operand_needs(const zp_diff_pass *pass, int t) { return pass->needs[t] || zp_diff_trains(pass, t); }

static void find_needs(zp_diff_pass *pass) {
  zp_graph *graph = pass->graph;
  for (int i = 0; i < graph->carry_in.len; i++) pass->needs[graph->carry_in.data[i]] = !graph->first_trained;
  for (int n = 0; n < graph->nodes.len; n++) {
    const zp_node *node = &graph->nodes.data[n];
    bool any = false;
    for (int i = 0; i < node->in.len; i++) any = any || operand_needs(pass, node->in.data[i]);
    for (int i = 0; any && i < node->out.len; i++) pass->needs[node->out.data[i]] = true;
    if (any && node->op == ZP_OP_MATMUL && node->fused) pass->needs[node->product] = true;
  }
}

/* Nodes that something wanted depends on, and how many contributions every tensor may get from them. */
static void find_active(zp_diff_pass *pass) {
  zp_graph *graph = pass->graph;
  bool *reached = ZP_NEW_ARRAY(pass->arena, bool, graph->tensors.len);
  for (int i = 0; i < graph->carry_out.len; i++) reached[graph->carry_out.data[i]] = true;
  for (int n = graph->nodes.len - 1; n >= 0; n--) {
    const zp_node *node = &graph->nodes.data[n];
    bool active = node->op == ZP_OP_CE_LOSS;
    for (int i = 0; i < node->out.len; i++)
      active = active || (reached[node->out.data[i]] && pass->needs[node->out.data[i]]);
    pass->active[n] = active;
    for (int i = 0; active && i < node->in.len; i++) {
      reached[node->in.data[i]] = true;
      pass->pending[node->in.data[i]]++; /* CE_STATS stands in for CE_LOSS, which contributes to the logits */
    }
    if (active && node->op == ZP_OP_MATMUL && node->fused) pass->pending[node->product]++;
  }
}

static void start(zp_diff_pass *pass) {
  zp_graph *graph = pass->graph;
  pass->n_tensors = graph->tensors.len;
  pass->needs = ZP_NEW_ARRAY(pass->arena, bool, pass->n_tensors);
  pass->active = ZP_NEW_ARRAY(pass->arena, bool, graph->nodes.len);
  pass->pending = ZP_NEW_ARRAY(pass->arena, int, pass->n_tensors);
  pass->contrib = ZP_NEW_ARRAY(pass->arena, zp_ints, pass->n_tensors);
  pass->slot = ZP_NEW_ARRAY(pass->arena, int, pass->n_tensors);
  pass->split_grad = ZP_NEW_ARRAY(pass->arena, int, graph->nodes.len);
  pass->regathered = ZP_NEW_ARRAY(pass->arena, int, pass->n_tensors);
  for (int i = 0; i < pass->n_tensors; i++) pass->slot[i] = pass->regathered[i] = -1;
  for (int i = 0; i < graph->nodes.len; i++) pass->split_grad[i] = -1;
  find_needs(pass);
  find_active(pass);
}

static void add_grad_in(zp_diff_pass *pass) {
  zp_graph *graph = pass->graph;
  for (int i = 0; i < graph->carry_out.len; i++) {
    int id = zp_diff_tensor(pass, graph->carry_out.data[i]);
    zp_tensor *tensor = &graph->tensors.data[id];
    tensor->role = ZP_ROLE_GRAD_IN;
    tensor->index = i;
    tensor->partial = false;
    zp_push(pass->arena, &graph->grad_in, id);
    zp_diff_contribute(pass, graph->carry_out.data[i], id);
  }
}

static bool has_gradient(const zp_diff_pass *pass, const zp_node *node) {
  if (node->op == ZP_OP_CE_LOSS) return true;
  for (int i = 0; i < node->out.len; i++)
    if (pass->contrib[node->out.data[i]].len) return true;
  return false;
}

/* Does every ROW op stand in a group? */
static bool is_fused(const zp_graph *graph) {
  for (int n = 0; n < graph->nodes.len; n++)
    if (zp_op_is_row(graph->nodes.data[n].op)) return false;
  return true;
}

zp_graph *zp_differentiate(const zp_graph *graph) {
  assert(zp_graph_is_forward(graph) && is_fused(graph));
  zp_diff_pass pass = {.graph = zp_graph_copy(graph), .arena = graph->arena};
  zp_graph *result = pass.graph;
  result->n_forward = result->nodes.len;
  start(&pass);
  add_grad_in(&pass);
  for (int n = result->n_forward - 1; n >= 0; n--)
    if (pass.active[n] && has_gradient(&pass, &result->nodes.data[n])) diff_node(&pass, n);
  for (int i = 0; i < result->carry_in.len; i++) {
    int t = result->carry_in.data[i], total = zp_diff_total(&pass, t);
    if (total < 0) {
      total = zp_diff_tensor(&pass, t);
      zp_diff_total_into(&pass, t, total);
    }
    zp_push(pass.arena, &result->grad_out, total);
  }
  assert(!zp_graph_check(pass.arena, result));
  return result;
}
