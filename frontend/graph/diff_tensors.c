/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient tensors: where contributions to a gradient are kept, and how they become one tensor. */
#include <assert.h>
#include "diff_internal.h"

bool zp_diff_trains(const zp_diff_pass *pass, int tensor) {
  const zp_tensor *t = &pass->graph->tensors.data[tensor];
  return t->role == ZP_ROLE_PARAM && t->element == ZP_ELEM_FLOAT && !t->frozen;
}

int zp_diff_tensor(zp_diff_pass *pass, int t) {
  const zp_tensor *forward = &pass->graph->tensors.data[t];
  zp_tensor gradient =
      zp_tensor_make(zp_format(pass->arena, "%s.grad", forward->name), forward->element, forward->shape, forward->span);
  memcpy(gradient.parts, forward->parts, sizeof gradient.parts);
  gradient.split_dim = forward->split_dim;
  gradient.full_dim = forward->full_dim;
  /* What flows back to these is a partial sum: GRAD_ALL_REDUCE or REDUCE_SCATTER_SEQ completes it. */
  zp_op maker = forward->producer >= 0 ? pass->graph->nodes.data[forward->producer].op : ZP_OP_COUNT;
  gradient.partial = maker == ZP_OP_ENTER || maker == ZP_OP_ALL_GATHER_SEQ;
  return zp_graph_add_tensor(pass->graph, gradient);
}

/* The gradient of a split tensor has the views' gradients as views, so that nothing is copied together. */
int zp_diff_slot(zp_diff_pass *pass, int view) {
  if (pass->slot[view] >= 0) return pass->slot[view];
  int split = pass->graph->tensors.data[view].producer;
  int whole = pass->graph->nodes.data[split].in.data[0];
  if (pass->split_grad[split] < 0) {
    pass->pending[whole]--;
    pass->split_grad[split] = zp_diff_target(pass, whole);
  }
  int slot = zp_diff_tensor(pass, view);
  const zp_tensor *of = &pass->graph->tensors.data[pass->split_grad[split]];
  const zp_tensor *from = &pass->graph->tensors.data[whole];
  zp_tensor *s = &pass->graph->tensors.data[slot];
  s->base = of->base >= 0 ? of->base : pass->split_grad[split];
  s->column =
      (of->base >= 0 ? of->column : 0) + pass->graph->tensors.data[view].column - (from->base >= 0 ? from->column : 0);
  pass->slot[view] = slot;
  return slot;
}

static bool is_view(const zp_diff_pass *pass, int t) {
  int producer = pass->graph->tensors.data[t].producer;
  return producer >= 0 && pass->graph->nodes.data[producer].op == ZP_OP_SPLIT;
}

int zp_diff_target(zp_diff_pass *pass, int t) {
  bool whole_gradient = pass->contrib[t].len == 0 && pass->pending[t] == 0;
  return is_view(pass, t) && whole_gradient ? zp_diff_slot(pass, t) : zp_diff_tensor(pass, t);
}

void zp_diff_contribute(zp_diff_pass *pass, int t, int gradient) { zp_push(pass->arena, &pass->contrib[t], gradient); }

zp_node zp_diff_node(const zp_node *forward, zp_op op) {
  return (zp_node){.op = op, .attr = forward->attr, .span = forward->span, .name = forward->name};
}

int zp_diff_param_index(const zp_diff_pass *pass, int tensor) {
  for (int i = 0; i < pass->graph->params.len; i++)
    if (pass->graph->params.data[i].tensor == tensor) return i;
  assert(!"a trained operand that is no parameter passed the shape rules");
  return -1;
}

/* ---- sums: FUSED nodes like those of the forward part ---- */

static void push_op(zp_diff_pass *pass, zp_fused *fused, zp_op op, int a, int b, double value, const zp_tensor *t) {
  zp_fused_op step = {.op = op,
                      .arg = {a, b},
                      .n_arg = zp_op_arity(op),
                      .attr = {.value = value},
                      .span = t->span,
                      .name = t->name,
                      .cols = zp_shape_cols(&t->shape)};
  zp_push(pass->arena, &fused->ops, step);
}

/* into = the sum of the tensors in `from`, times `factor` when there is only one. */
static void add_sum(zp_diff_pass *pass, const zp_ints *from, double factor, int into) {
  const zp_tensor *t = &pass->graph->tensors.data[into];
  zp_fused *fused = ZP_NEW(pass->arena, zp_fused);
  fused->n_in = from->len;
  fused->operand = ZP_NEW_ARRAY(pass->arena, zp_operand, from->len); /* zeroed: all ROWS */
  fused->in_cols = ZP_NEW_ARRAY(pass->arena, int64_t, from->len);
  for (int i = 0; i < from->len; i++) fused->in_cols[i] = zp_shape_cols(&t->shape);
  zp_fused_set_rows(fused, t, 1);
  if (from->len == 1) push_op(pass, fused, ZP_OP_MUL_CONST, 0, 0, factor, t);
  for (int i = 1; i < from->len; i++) push_op(pass, fused, ZP_OP_ADD, i == 1 ? 0 : from->len + i - 2, i, 0, t);
  zp_push(pass->arena, &fused->out_value, fused->n_in + fused->ops.len - 1);
  zp_node node = {.op = ZP_OP_FUSED, .span = t->span, .name = t->name, .fused = fused};
  zp_ints_copy(pass->arena, &node.in, from);
  zp_push(pass->arena, &node.out, into);
  zp_graph_add_node(pass->graph, node);
}

static void replace_contributions(zp_diff_pass *pass, int t, int gradient) {
  pass->contrib[t] = (zp_ints){0};
  zp_diff_contribute(pass, t, gradient);
}

void zp_diff_total_into(zp_diff_pass *pass, int t, int into) {
  if (pass->contrib[t].len) {
    add_sum(pass, &pass->contrib[t], 1, into);
  } else { /* nothing depends on t: zero, written as 0 * t because a kernel needs rows to run over */
    zp_ints self = {0};
    zp_push(pass->arena, &self, t);
    add_sum(pass, &self, 0, into);
  }
  replace_contributions(pass, t, into);
}

int zp_diff_total(zp_diff_pass *pass, int t) {
  if (pass->contrib[t].len == 0) return -1;
  if (pass->contrib[t].len > 1) zp_diff_total_into(pass, t, zp_diff_tensor(pass, t));
  return pass->contrib[t].data[0];
}

static int root_of(const zp_diff_pass *pass, int t) {
  int base = pass->graph->tensors.data[t].base;
  return base >= 0 ? base : t;
}

/* Does the gradient tensor also stand for another forward tensor? The views of t itself are part of it. */
static bool is_shared(const zp_diff_pass *pass, int gradient, int t) {
  for (int other = 0; other < pass->n_tensors; other++) {
    if (other == t || pass->graph->tensors.data[other].base == root_of(pass, t)) continue;
    for (int i = 0; i < pass->contrib[other].len; i++)
      if (root_of(pass, pass->contrib[other].data[i]) == root_of(pass, gradient)) return true;
  }
  return false;
}

int zp_diff_total_owned(zp_diff_pass *pass, int t) {
  int total = zp_diff_total(pass, t);
  if (total < 0 || !is_shared(pass, total, t)) return total;
  int own = zp_diff_tensor(pass, t);
  zp_diff_total_into(pass, t, own);
  return own;
}

/* ---- what rules append ---- */

void zp_diff_add_in(zp_diff_pass *pass, zp_node *node, int tensor) { zp_push(pass->arena, &node->in, tensor); }

void zp_diff_add_param_grad(zp_diff_pass *pass, zp_node *node, int param_tensor) {
  zp_push(pass->arena, &node->param_grad, zp_diff_param_index(pass, param_tensor));
}

void zp_diff_add_gradient_of(zp_diff_pass *pass, zp_node *node, int t) {
  pass->pending[t]--;
  int target = zp_diff_target(pass, t);
  zp_push(pass->arena, &node->out, target);
  zp_diff_contribute(pass, t, target);
}

int zp_diff_gather_again(zp_diff_pass *pass, int t) {
  if (pass->regathered[t] >= 0) return pass->regathered[t];
  const zp_node forward = pass->graph->nodes.data[pass->graph->tensors.data[t].producer];
  zp_tensor copy = pass->graph->tensors.data[t];
  copy.name = zp_format(pass->arena, "%s.again", copy.name);
  zp_node gather = zp_diff_node(&forward, forward.op);
  zp_diff_add_in(pass, &gather, forward.in.data[0]);
  pass->regathered[t] = zp_graph_add_tensor(pass->graph, copy);
  zp_push(pass->arena, &gather.out, pass->regathered[t]);
  zp_graph_add_node(pass->graph, gather);
  return pass->regathered[t];
}

int zp_diff_kept_value(zp_diff_pass *pass, int t) {
  int producer = pass->graph->tensors.data[t].producer;
  if (producer < 0 || pass->graph->nodes.data[producer].op != ZP_OP_ALL_GATHER_SEQ) return t;
  return zp_diff_gather_again(pass, t);
}

void zp_diff_of_result(zp_diff_pass *pass, const zp_node *node, zp_op op) {
  zp_node grad = zp_diff_node(node, op);
  zp_diff_add_in(pass, &grad, zp_diff_total(pass, node->out.data[0]));
  zp_diff_add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}
