/* SPDX-License-Identifier: Apache-2.0 */
/* From a logical graph and one pattern per node to the graph of one tensor rank: local shapes, local head counts, and
 * the collectives that the patterns imply. An all-reduce stands before the first replicated use of a partial sum, an
 * ENTER before the first use whose gradient is partial; along the sequence it is a reduce-scatter and an all-gather.
 * Each is made once per tensor. */
#include <assert.h>
#include "shard_internal.h"

typedef struct localizer {
  zp_arena *arena;
  const zp_graph *from;
  zp_graph *to;
  int tensor;
  bool sequence;
  int *local;   /* logical tensor -> local one, as its producer makes it; -1 before */
  int *reduced; /* after ALL_REDUCE, or REDUCE_SCATTER_SEQ; -1. The search made sure that a tensor has one of them */
  int *entered; /* after ENTER, or ALL_GATHER_SEQ; -1 */
  zp_form *state;
} localizer;

static void mark_split(const localizer *l, zp_tensor *t, int dim) {
  t->split_dim = dim;
  t->full_dim = t->shape.dim[dim];
  zp_shape_resize(l->arena, &t->shape, dim, zp_local_size(t->full_dim, t->parts[dim], l->tensor));
}

static void mark_sequence(const localizer *l, zp_tensor *t) {
  t->split_dim = 1;
  t->full_dim = t->shape.dim[1];
  zp_shape_resize(l->arena, &t->shape, 1, t->full_dim / l->tensor);
}

/* A local copy of a logical tensor, without storage of another. Its producer is set with the node that makes it. */
static zp_tensor copy_tensor(const localizer *l, int id) {
  zp_tensor t = l->from->tensors.data[id];
  t.base = -1;
  t.column = 0;
  t.split_dim = -1;
  t.full_dim = 0;
  t.partial = false;
  return t;
}

static void add_outside(localizer *l, int id) {
  zp_tensor t = copy_tensor(l, id);
  bool is_share = l->sequence && t.role == ZP_ROLE_CARRY_IN;
  if (is_share) mark_sequence(l, &t);
  l->local[id] = zp_graph_add_tensor(l->to, t);
  l->state[id] = is_share ? ZP_FORM_SEQ : ZP_FORM_R;
}

static int add_collective(localizer *l, zp_op op, const zp_node *near, int in, const char *suffix) {
  zp_tensor t = l->to->tensors.data[in];
  t.name = zp_format(l->arena, "%s.%s", t.name, suffix);
  t.role = ZP_ROLE_VALUE;
  t.index = -1;
  t.base = -1;
  t.column = 0;
  t.partial = false;
  zp_node node = {.op = op, .span = near->span, .name = t.name};
  if (op == ZP_OP_REDUCE_SCATTER_SEQ) mark_sequence(l, &t);
  if (op == ZP_OP_ALL_GATHER_SEQ) {
    zp_shape_resize(l->arena, &t.shape, 1, t.full_dim);
    t.split_dim = -1;
    t.full_dim = 0;
  }
  if (op == ZP_OP_REDUCE_SCATTER_SEQ || op == ZP_OP_ALL_GATHER_SEQ) node.attr.parts = l->tensor;
  int out = zp_graph_add_tensor(l->to, t);
  zp_push(l->arena, &node.in, in);
  zp_push(l->arena, &node.out, out);
  zp_graph_add_node(l->to, node);
  return out;
}

static int replicated(localizer *l, const zp_node *near, int id) {
  if (l->state[id] != ZP_FORM_P) return l->local[id];
  if (l->reduced[id] < 0) l->reduced[id] = add_collective(l, ZP_OP_ALL_REDUCE, near, l->local[id], "sum");
  return l->reduced[id];
}

/* Inputs have no gradient, so there is no sum of it to arrange for. */
static int entered(localizer *l, const zp_node *near, int id) {
  if (l->state[id] == ZP_FORM_ENTERED || l->from->tensors.data[id].role == ZP_ROLE_INPUT) return l->local[id];
  if (l->entered[id] < 0) l->entered[id] = add_collective(l, ZP_OP_ENTER, near, replicated(l, near, id), "enter");
  return l->entered[id];
}

static int share(localizer *l, const zp_node *near, int id) {
  if (l->state[id] != ZP_FORM_P) return l->local[id];
  if (l->reduced[id] < 0) l->reduced[id] = add_collective(l, ZP_OP_REDUCE_SCATTER_SEQ, near, l->local[id], "share");
  return l->reduced[id];
}

static int gathered(localizer *l, const zp_node *near, int id) {
  if (l->entered[id] < 0) l->entered[id] = add_collective(l, ZP_OP_ALL_GATHER_SEQ, near, share(l, near, id), "gather");
  return l->entered[id];
}

/* The local form of an operand. Parameters take their split from their first use; the search made all uses agree. */
static int operand(localizer *l, const zp_node *node, int i, zp_need need) {
  int id = node->in.data[i];
  zp_tensor *t = &l->to->tensors.data[l->local[id]];
  if (t->role == ZP_ROLE_PARAM) {
    int dim = zp_need_dim(l->from, node, i, need);
    if (dim >= 0 && t->split_dim < 0) mark_split(l, t, dim);
    assert(t->split_dim == dim);
    return l->local[id];
  }
  switch (need) {
  case ZP_NEED_R: return replicated(l, node, id);
  case ZP_NEED_ENTER: return entered(l, node, id);
  case ZP_NEED_SEQ: return share(l, node, id);
  case ZP_NEED_GATHER: return gathered(l, node, id);
  default: return l->local[id];
  }
}

/* Attention's log-sum-exp has one column a head, and its heads are divided as those of the output alongside it. */
static zp_parts head_parts(const localizer *l, int lse) {
  const zp_node *attention = &l->from->nodes.data[l->from->tensors.data[lse].producer];
  const zp_tensor *o = &l->from->tensors.data[attention->out.data[0]];
  return o->parts[o->shape.rank - 1];
}

static int add_result(localizer *l, int id, zp_form state) {
  zp_tensor t = copy_tensor(l, id);
  if (state == ZP_FORM_S && t.element == ZP_ELEM_STAT) t.parts[t.shape.rank - 1] = head_parts(l, id);
  if (state == ZP_FORM_S || state == ZP_FORM_EXPERTS) mark_split(l, &t, zp_form_dim(&t, state));
  if (state == ZP_FORM_SEQ) mark_sequence(l, &t);
  t.partial = state == ZP_FORM_P;
  l->state[id] = state;
  return l->local[id] = zp_graph_add_tensor(l->to, t);
}

/* Views lie in the storage of the tensor that was split, at local columns. */
static void place_views(localizer *l, const zp_node *node, int whole) {
  const zp_tensor *w = &l->to->tensors.data[whole];
  int base = w->base >= 0 ? w->base : whole;
  int64_t column = w->base >= 0 ? w->column : 0;
  for (int i = 0; i < node->out.len; i++) {
    zp_tensor *view = &l->to->tensors.data[node->out.data[i]];
    view->base = base;
    view->column = column + i * zp_shape_cols(&view->shape);
  }
}

/* Units of heads that one rank holds, as a head count. */
static int64_t local_heads(int64_t heads, const zp_tensor *x, int tensor) {
  if (x->split_dim != x->shape.rank - 1) return heads;
  int64_t units = x->parts[x->split_dim].units;
  return (units + tensor - 1) / tensor * (heads / units);
}

static void add_plain(localizer *l, const zp_node *logical, const zp_pattern *pattern, const int *in) {
  zp_node node = {.op = logical->op, .attr = logical->attr, .span = logical->span, .name = logical->name};
  for (int i = 0; i < logical->in.len; i++) zp_push(l->arena, &node.in, in[i]);
  for (int i = 0; i < logical->out.len; i++) {
    int out = add_result(l, logical->out.data[i], pattern->out);
    zp_push(l->arena, &node.out, out);
  }
  const zp_tensor *x = &l->to->tensors.data[in[0]], *y = &l->to->tensors.data[node.out.data[0]];
  if (zp_op_has(node.op, ZP_FLAG_HEADS)) node.attr.heads = local_heads(node.attr.heads, y, l->tensor);
  if (node.op == ZP_OP_ATTENTION) node.attr.kv_heads = local_heads(node.attr.kv_heads, y, l->tensor);
  /* Every rank makes all of it, and has a part of the gradient. */
  if (node.op == ZP_OP_REDUCE && pattern->in[0] == ZP_NEED_GATHER) node.attr.value /= l->tensor;
  if ((node.op == ZP_OP_CONCAT || node.op == ZP_OP_UNFOLD) && pattern->out == ZP_FORM_SEQ) node.attr.parts = l->tensor;
  bool sorted = x->sorted || y->sorted;
  if (node.op == ZP_OP_DISPATCH && !sorted) node.attr.experts = y->shape.dim[1];
  if (node.op == ZP_OP_COMBINE && !sorted) node.attr.experts = x->shape.dim[1];
  /* Every rank adds its part of the scores' gradient: each a part of the balancing loss's as well. */
  if (node.op == ZP_OP_TOP_K_GATE && pattern->out == ZP_FORM_ENTERED) node.attr.balance /= l->tensor;
  zp_graph_add_node(l->to, node);
  if (node.op == ZP_OP_SPLIT) place_views(l, &node, in[0]);
}

static int add_loss_node(localizer *l, zp_op op, const zp_node *near, int a, int b, zp_op_attr attr, const char *suffix,
                         zp_shape shape) {
  zp_tensor t = {.element = ZP_ELEM_STAT,
                 .shape = shape,
                 .role = ZP_ROLE_VALUE,
                 .index = -1,
                 .producer = -1,
                 .span = near->span,
                 .base = -1,
                 .split_dim = -1};
  t.name = zp_format(l->arena, "%s.%s", near->name, suffix);
  zp_node node = {.op = op, .attr = attr, .span = near->span, .name = t.name};
  int out = zp_graph_add_tensor(l->to, t);
  zp_push(l->arena, &node.in, a);
  if (b >= 0) zp_push(l->arena, &node.in, b);
  zp_push(l->arena, &node.out, out);
  zp_graph_add_node(l->to, node);
  return out;
}

/* Row statistics of the local columns, gathered from all ranks when the columns are split, then the loss. */
static void add_cross_entropy(localizer *l, const zp_node *logical, const int *in) {
  zp_shape shape = l->to->tensors.data[in[0]].shape;
  shape.dim[shape.rank - 1] = 3;
  shape.extent[shape.rank - 1] = NULL;
  int stat = add_loss_node(l, ZP_OP_CE_STATS, logical, in[0], in[1], logical->attr, "stats", shape);
  if (logical->in.len > 2) zp_push(l->arena, &l->to->nodes.data[l->to->nodes.len - 1].in, in[2]);
  if (l->to->tensors.data[in[0]].split_dim >= 0) {
    shape = zp_gathered_stats(l->arena, &shape, l->tensor);
    stat = add_loss_node(l, ZP_OP_GATHER_STATS, logical, stat, -1, (zp_op_attr){.parts = l->tensor}, "gathered", shape);
  }
  zp_shape rows = l->to->tensors.data[in[1]].shape;
  int lse = add_loss_node(l, ZP_OP_CE_LOSS, logical, stat, in[1], logical->attr, "lse", rows);
  for (int i = 0; i < l->to->losses.len; i++)
    if (l->from->losses.data[i] == logical->out.data[0]) l->to->losses.data[i] = lse;
}

/* All ranks make the loss of all columns. */
static void add_squared_error(localizer *l, const zp_node *logical, const zp_pattern *pattern, const int *in) {
  zp_shape shape = l->to->tensors.data[in[0]].shape, rows = shape;
  zp_op_attr attr = logical->attr;
  if (pattern->in[0] == ZP_NEED_GATHER) attr.value /= l->tensor; /* of its gradient every rank adds a part */
  shape.dim[shape.rank - 1] = 3;
  shape.extent[shape.rank - 1] = NULL;
  rows.rank--;
  int stat = add_loss_node(l, ZP_OP_SE_STATS, logical, in[0], in[1], attr, "stats", shape);
  int loss = add_loss_node(l, ZP_OP_CE_LOSS, logical, stat, -1, attr, "loss", rows);
  for (int i = 0; i < l->to->losses.len; i++)
    if (l->from->losses.data[i] == logical->out.data[0]) l->to->losses.data[i] = loss;
}

static void add_all_outside(localizer *l) {
  const zp_graph *from = l->from;
  for (int i = 0; i < from->carry_in.len; i++) {
    add_outside(l, from->carry_in.data[i]);
    zp_push(l->arena, &l->to->carry_in, l->local[from->carry_in.data[i]]);
  }
  for (int i = 0; i < from->params.len; i++) { /* the same order: it is the order of the flat buffers */
    add_outside(l, from->params.data[i].tensor);
    zp_param_use use = {from->params.data[i].param, l->local[from->params.data[i].tensor]};
    zp_push(l->arena, &l->to->params, use);
  }
  for (int i = 0; i < from->tensors.len; i++)
    if (from->tensors.data[i].role == ZP_ROLE_INPUT) add_outside(l, i);
}

zp_graph *zp_shard_localize(zp_arena *arena, const zp_shard_problem *problem, const zp_pattern *pattern) {
  const zp_graph *graph = problem->graph;
  localizer l = {.arena = arena,
                 .from = graph,
                 .to = ZP_NEW(arena, zp_graph),
                 .tensor = problem->tensor,
                 .sequence = problem->sequence};
  int n = graph->tensors.len;
  l.to->arena = arena;
  for (int i = 0; i < graph->losses.len; i++) zp_push(arena, &l.to->losses, graph->losses.data[i]);
  l.to->first_trained = graph->first_trained;
  l.local = ZP_NEW_ARRAY(arena, int, n), l.reduced = ZP_NEW_ARRAY(arena, int, n);
  l.entered = ZP_NEW_ARRAY(arena, int, n), l.state = ZP_NEW_ARRAY(arena, zp_form, n);
  for (int i = 0; i < n; i++) l.local[i] = l.reduced[i] = l.entered[i] = -1;
  add_all_outside(&l);
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node *node = &graph->nodes.data[i];
    int in[ZP_SHARD_OPERANDS];
    for (int k = 0; k < node->in.len; k++) in[k] = operand(&l, node, k, pattern[i].in[k]);
    if (node->op == ZP_OP_CROSS_ENTROPY)
      add_cross_entropy(&l, node, in);
    else if (node->op == ZP_OP_SQUARED_ERROR)
      add_squared_error(&l, node, &pattern[i], in);
    else
      add_plain(&l, node, &pattern[i], in);
  }
  for (int i = 0; i < graph->carry_out.len; i++) {
    int id = graph->carry_out.data[i];
    const zp_node *last = graph->nodes.len ? &graph->nodes.data[graph->nodes.len - 1] : NULL;
    zp_push(arena, &l.to->carry_out, l.sequence ? share(&l, last, id) : replicated(&l, last, id));
  }
  l.to->n_forward = l.to->nodes.len;
  assert(!zp_graph_check(arena, l.to));
  return l.to;
}
