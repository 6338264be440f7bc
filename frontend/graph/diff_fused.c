/* SPDX-License-Identifier: Apache-2.0 */
/* The derivative of a fused group: which of its inputs get a gradient for free (the incoming tensor unchanged), and one
 * FUSED_GRAD node for the rest, with the list of exactly those forward values that it has to read. */
#include <assert.h>
#include "diff_internal.h"

typedef struct group_diff {
  zp_diff_pass *pass;
  const zp_node *node;
  const zp_fused *fused;
  int n_values;
  zp_ints *incoming; /* per value: gradient tensors of the group output that it is */
  bool *flows;       /* per value: a gradient reaches it */
  int *uses;         /* per value: operand places of ops that a gradient reaches */
  int *user;         /* per value: the last such op */
  bool *wanted;      /* per value: the kernel needs its gradient for an output of its own */
  bool *saved;       /* per value: the kernel reads it */
} group_diff;

static const zp_fused_op *op_of(const group_diff *g, int value) { return &g->fused->ops.data[value - g->fused->n_in]; }

static void find_flow(group_diff *g) {
  for (int i = 0; i < g->node->out.len; i++) {
    g->incoming[g->fused->out_value.data[i]] = g->pass->contrib[g->node->out.data[i]];
    if (g->pass->contrib[g->node->out.data[i]].len) g->flows[g->fused->out_value.data[i]] = true;
  }
  for (int v = g->n_values - 1; v >= g->fused->n_in; v--) {
    if (!g->flows[v]) continue;
    for (int k = 0; k < op_of(g, v)->n_arg; k++) {
      int arg = op_of(g, v)->arg[k];
      g->flows[arg] = true;
      g->uses[arg]++;
      g->user[arg] = v;
    }
  }
}

/* Does the op hand its result's gradient unchanged to operand `value`, which has the result's shape? */
static bool passes_unchanged(const zp_fused_op *op, int value) {
  return op->op == ZP_OP_ADD || op->op == ZP_OP_ADD_CONST || (op->op == ZP_OP_SUB && op->arg[0] == value);
}

/* The value furthest down whose gradient is, row by row, that of `value`. */
static int same_gradient(const group_diff *g, int value) {
  while (g->incoming[value].len == 0 && g->uses[value] == 1 && passes_unchanged(op_of(g, g->user[value]), value))
    value = g->user[value];
  return value;
}

/* The one incoming tensor that already is the gradient of the value, or -1. */
static int existing_gradient(const group_diff *g, int value) {
  int same = same_gradient(g, value);
  return g->uses[same] == 0 && g->incoming[same].len == 1 ? g->incoming[same].data[0] : -1;
}

/* ---- outputs ---- */

static void add_position_grad(group_diff *g, int param_tensor, int gradient) {
  zp_node node = zp_diff_node(g->node, ZP_OP_POSITION_GRAD);
  zp_push(g->pass->arena, &node.in, gradient);
  zp_push(g->pass->arena, &node.param_grad, zp_diff_param_index(g->pass, param_tensor));
  zp_graph_add_node(g->pass->graph, node);
}

/* Per-row gradients of a POSITION operand, before they are summed over the batch. */
static int position_rows(group_diff *g, int value) {
  int rows = g->node->out.data[0];
  int gradient = zp_diff_tensor(g->pass, rows);
  zp_tensor *tensors = g->pass->graph->tensors.data;
  tensors[gradient].name = zp_format(g->pass->arena, "%s.rows", tensors[g->node->in.data[value]].name);
  return gradient;
}

static void add_output(group_diff *g, zp_node *grad, int value, int tensor) {
  zp_grad_arg arg = {ZP_USE_ROWS, value};
  zp_push(g->pass->arena, &grad->out, tensor);
  zp_push(g->pass->arena, &grad->grad_out, arg);
  g->wanted[value] = true;
}

/* Earlier contributions to the same gradient are folded in: one tensor then holds the sum so far. */
static void fold_addends(group_diff *g, int value, zp_ints *addend_value, zp_ints *addend) {
  zp_ints *contrib = &g->pass->contrib[g->node->in.data[value]];
  for (int i = 0; i < contrib->len; i++) {
    zp_push(g->pass->arena, addend_value, value);
    zp_push(g->pass->arena, addend, contrib->data[i]);
  }
  *contrib = (zp_ints){0};
}

typedef struct outputs {
  zp_ints addend_value, addend;
  zp_ints position_tensor, position_gradient; /* POSITION_GRAD nodes that read an output of the kernel */
  int *shared;                                /* per value: the output that holds its gradient, -1 none */
} outputs;

static void rows_output(group_diff *g, zp_node *grad, outputs *outs, int value) {
  int t = g->node->in.data[value], same = same_gradient(g, value);
  g->pass->pending[t]--;
  int existing = existing_gradient(g, value);
  if (existing < 0 && g->pass->contrib[t].len == 0) existing = outs->shared[same];
  if (existing >= 0) {
    zp_diff_contribute(g->pass, t, existing);
    return;
  }
  bool folded = g->pass->contrib[t].len > 0;
  fold_addends(g, value, &outs->addend_value, &outs->addend);
  int target = zp_diff_target(g->pass, t);
  add_output(g, grad, value, target);
  zp_diff_contribute(g->pass, t, target);
  if (!folded) outs->shared[same] = target;
}

static void position_output(group_diff *g, zp_node *grad, outputs *outs, int value) {
  int gradient = existing_gradient(g, value), same = same_gradient(g, value);
  if (gradient < 0) gradient = outs->shared[same];
  if (gradient < 0) {
    gradient = outs->shared[same] = position_rows(g, value);
    add_output(g, grad, value, gradient);
  }
  zp_push(g->pass->arena, &outs->position_tensor, g->node->in.data[value]);
  zp_push(g->pass->arena, &outs->position_gradient, gradient);
}

static void columns_output(group_diff *g, zp_node *grad, int value) {
  zp_grad_arg arg = {ZP_USE_COLUMNS, value};
  zp_push(g->pass->arena, &grad->grad_out, arg);
  zp_push(g->pass->arena, &grad->param_grad, zp_diff_param_index(g->pass, g->node->in.data[value]));
  g->wanted[value] = true;
}

/* ROWS before POSITION, whose sums like to share a tensor that has to be there anyway, and COLUMNS last. */
static void choose_outputs(group_diff *g, zp_node *grad, outputs *outs) {
  static const zp_operand order[] = {ZP_OPERAND_ROWS, ZP_OPERAND_POSITION, ZP_OPERAND_COLUMNS};
  for (int pass = 0; pass < 3; pass++)
    for (int v = 0; v < g->fused->n_in; v++) {
      if (g->fused->operand[v] != order[pass]) continue;
      int t = g->node->in.data[v];
      bool wanted = order[pass] == ZP_OPERAND_ROWS ? g->pass->needs[t] : zp_diff_trains(g->pass, t);
      if (!g->flows[v] || !wanted)
        g->pass->pending[t]--;
      else if (order[pass] == ZP_OPERAND_ROWS)
        rows_output(g, grad, outs, v);
      else if (order[pass] == ZP_OPERAND_POSITION)
        position_output(g, grad, outs, v);
      else
        columns_output(g, grad, v);
    }
}

/* ---- inputs ---- */

static bool is_output(const group_diff *g, int value) { return zp_ints_has(&g->fused->out_value, value); }

/* A forward value that the kernel needs: read where it is in memory, rebuilt from its operands otherwise. */
static void need_value(group_diff *g, int value) {
  if (value < g->fused->n_in || is_output(g, value)) {
    g->saved[value] = true;
    return;
  }
  for (int k = 0; k < op_of(g, value)->n_arg; k++) need_value(g, op_of(g, value)->arg[k]);
}

static void find_saved(group_diff *g) {
  for (int v = g->fused->n_in; v < g->n_values; v++) {
    const zp_fused_op *op = op_of(g, v);
    for (int k = 0; k < op->n_arg; k++) {
      if (!g->wanted[op->arg[k]]) continue;
      g->wanted[v] = true;
      if (!g->flows[v]) continue;
      unsigned reads = zp_op_backward_reads(op->op, k);
      for (int j = 0; j < op->n_arg; j++)
        if (reads >> j & 1) need_value(g, op->arg[j]);
    }
  }
}

static void add_input(group_diff *g, zp_node *grad, zp_grad_use use, int value, int tensor) {
  zp_grad_arg arg = {use, value};
  zp_push(g->pass->arena, &grad->in, tensor);
  zp_push(g->pass->arena, &grad->grad_in, arg);
}

static int tensor_of_value(const group_diff *g, int value) {
  if (value < g->fused->n_in) return g->node->in.data[value];
  for (int i = 0; i < g->fused->out_value.len; i++)
    if (g->fused->out_value.data[i] == value) return g->node->out.data[i];
  assert(!"value is not in memory");
  return -1;
}

static void add_inputs(group_diff *g, zp_node *grad, const outputs *outs) {
  for (int v = g->fused->n_in; v < g->n_values; v++)
    for (int i = 0; g->wanted[v] && i < g->incoming[v].len; i++)
      add_input(g, grad, ZP_USE_GRAD, v, g->incoming[v].data[i]);
  for (int i = 0; i < outs->addend.len; i++)
    add_input(g, grad, ZP_USE_ADDEND, outs->addend_value.data[i], outs->addend.data[i]);
  for (int v = 0; v < g->n_values; v++)
    if (g->saved[v]) add_input(g, grad, ZP_USE_SAVED, v, tensor_of_value(g, v));
}

void zp_diff_fused(zp_diff_pass *pass, const zp_node *node) {
  zp_arena *arena = pass->arena;
  group_diff g = {.pass = pass, .node = node, .fused = node->fused};
  g.n_values = node->fused->n_in + node->fused->ops.len;
  g.incoming = ZP_NEW_ARRAY(arena, zp_ints, g.n_values);
  g.flows = ZP_NEW_ARRAY(arena, bool, g.n_values);
  g.uses = ZP_NEW_ARRAY(arena, int, g.n_values);
  g.user = ZP_NEW_ARRAY(arena, int, g.n_values);
  g.wanted = ZP_NEW_ARRAY(arena, bool, g.n_values);
  g.saved = ZP_NEW_ARRAY(arena, bool, g.n_values);
  find_flow(&g);

  zp_node grad = zp_diff_node(node, ZP_OP_FUSED_GRAD);
  grad.fused = node->fused;
  outputs outs = {.shared = ZP_NEW_ARRAY(arena, int, g.n_values)};
  for (int v = 0; v < g.n_values; v++) outs.shared[v] = -1;
  choose_outputs(&g, &grad, &outs);
  if (grad.grad_out.len) {
    find_saved(&g);
    add_inputs(&g, &grad, &outs);
    zp_graph_add_node(pass->graph, grad);
  }
  for (int i = 0; i < outs.position_tensor.len; i++)
    add_position_grad(&g, outs.position_tensor.data[i], outs.position_gradient.data[i]);
}
