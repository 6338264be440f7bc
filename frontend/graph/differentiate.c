/* zp_differentiate: reverse mode over the nodes of a fused local graph, last to first. One rule per op here; fused
 * groups in diff_fused.c, the bookkeeping of gradient tensors in diff_tensors.c. */
#include <assert.h>
#include "diff_internal.h"

static void add_in(diff_pass *pass, zp_node *node, int tensor) { zp_push(pass->arena, &node->in, tensor); }

static void add_param_grad(diff_pass *pass, zp_node *node, int param_tensor) {
  zp_push(pass->arena, &node->param_grad, zp_diff_param_index(pass, param_tensor));
}

/* Gives the node a new output tensor that contributes to the gradient of t. */
static void add_gradient_of(diff_pass *pass, zp_node *node, int t) {
  pass->pending[t]--;
  int target = zp_diff_target(pass, t);
  zp_push(pass->arena, &node->out, target);
  zp_diff_contribute(pass, t, target);
}

/* ---- rules ---- */

/* What backward reads of a forward value: the value itself, unless it was gathered along the sequence. To keep that
 * would be to keep the whole sequence on every rank, so the share is kept and gathered once more (arXiv 2205.05198,
 * section 4.2.2). */
static int kept_value(diff_pass *pass, int t) {
  int producer = pass->graph->tensors.data[t].producer;
  if (producer < 0 || pass->graph->nodes.data[producer].op != ZP_OP_ALL_GATHER_SEQ) return t;
  if (pass->regathered[t] >= 0) return pass->regathered[t];
  const zp_node forward = pass->graph->nodes.data[producer];
  zp_tensor copy = pass->graph->tensors.data[t];
  copy.name = zp_format(pass->arena, "%s.again", copy.name);
  zp_node gather = zp_diff_node(&forward, ZP_OP_ALL_GATHER_SEQ);
  add_in(pass, &gather, forward.in.data[0]);
  pass->regathered[t] = zp_graph_add_tensor(pass->graph, copy);
  zp_push(pass->arena, &gather.out, pass->regathered[t]);
  zp_graph_add_node(pass->graph, gather);
  return pass->regathered[t];
}

/* The gradient of x first: the collective that may follow it can then run beside the weight's gradient. */
static void diff_product(diff_pass *pass, const zp_node *node, int product, zp_op dgrad_op, zp_op wgrad_op) {
  int x = node->in.data[0], w = node->in.data[1], dy = zp_diff_total(pass, product);
  bool trained = zp_diff_trains(pass, w);
  int kept = trained ? kept_value(pass, x) : -1;
  if (pass->needs[x]) {
    zp_node dgrad = zp_diff_node(node, dgrad_op);
    add_in(pass, &dgrad, dy);
    add_in(pass, &dgrad, w);
    add_gradient_of(pass, &dgrad, x);
    zp_graph_add_node(pass->graph, dgrad);
  }
  if (!trained) return;
  zp_node wgrad = zp_diff_node(node, wgrad_op);
  add_in(pass, &wgrad, dy);
  add_in(pass, &wgrad, kept);
  add_param_grad(pass, &wgrad, w);
  zp_graph_add_node(pass->graph, wgrad);
}

static void diff_matmul(diff_pass *pass, const zp_node *node) {
  if (node->fused) {
    zp_node epilogue = zp_epilogue_group(pass->arena, node);
    zp_diff_fused(pass, &epilogue);
  }
  diff_product(pass, node, node->fused ? node->product : node->out.data[0], ZP_OP_MATMUL_DGRAD, ZP_OP_MATMUL_WGRAD);
}

/* The slots are numbers without a gradient: which expert a token takes is a constant to the derivative. */
static void diff_gate(diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_TOP_K_GATE_GRAD);
  int d_weight = zp_diff_total(pass, node->out.data[0]);
  add_in(pass, &grad, kept_value(pass, node->in.data[0]));
  add_in(pass, &grad, node->out.data[1]);
  add_in(pass, &grad, d_weight);
  add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
  if (node->in.len < 2 || !zp_diff_trains(pass, node->in.data[1])) return;
  zp_node load = zp_diff_node(node, ZP_OP_LOAD_GRAD);
  add_in(pass, &load, node->out.data[1]);
  add_param_grad(pass, &load, node->in.data[1]);
  zp_graph_add_node(pass->graph, load);
}

static void diff_dispatch(diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_DISPATCH_GRAD);
  int dy = zp_diff_total(pass, node->out.data[0]);
  add_in(pass, &grad, node->in.data[1]);
  add_in(pass, &grad, dy);
  add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

static void diff_combine(diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_COMBINE_GRAD);
  int d_out = zp_diff_total(pass, node->out.data[0]);
  for (int i = 0; i < 3; i++) add_in(pass, &grad, node->in.data[i]);
  add_in(pass, &grad, d_out);
  for (int i = 0; i < 2; i++) add_gradient_of(pass, &grad, node->in.data[i]);
  zp_graph_add_node(pass->graph, grad);
}

static void diff_positions(diff_pass *pass, const zp_node *node, zp_op op) {
  zp_node grad = zp_diff_node(node, op);
  add_in(pass, &grad, zp_diff_total(pass, node->out.data[0]));
  add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

/* Positions of dy that operand i stands at, [B, positions, d]. */
static zp_node slice_of(const zp_node *node, int dy, const zp_shape *operand, int64_t begin, zp_arena *arena) {
  zp_node slice = zp_diff_node(node, ZP_OP_SLICE);
  slice.attr = (zp_op_attr){.begin = begin, .count = operand->dim[operand->rank - 2]};
  zp_push(arena, &slice.in, dy);
  return slice;
}

/* What all samples share has their gradients' sum, as a learned position has. */
static void diff_shared_rows(diff_pass *pass, const zp_node *node, zp_node slice, int param) {
  zp_shape rows = pass->graph->tensors.data[node->out.data[0]].shape;
  const zp_tensor *t = &pass->graph->tensors.data[param];
  rows.dim[1] = slice.attr.count;
  rows.extent[1] = NULL;
  const char *name = zp_format(pass->arena, "%s.rows", t->name);
  int each = zp_graph_add_tensor(pass->graph, zp_tensor_make(name, ZP_ELEM_FLOAT, rows, node->span));
  pass->graph->tensors.data[each].parts[2] = pass->graph->tensors.data[node->out.data[0]].parts[2];
  zp_push(pass->arena, &slice.out, each);
  zp_graph_add_node(pass->graph, slice);
  zp_node sum = zp_diff_node(node, ZP_OP_POSITION_GRAD);
  add_in(pass, &sum, each);
  add_param_grad(pass, &sum, param);
  zp_graph_add_node(pass->graph, sum);
}

static void diff_concat(diff_pass *pass, const zp_node *node) {
  int dy = zp_diff_total(pass, node->out.data[0]);
  int64_t begin = 0;
  for (int i = 0; i < node->in.len; i++) {
    int x = node->in.data[i];
    const zp_shape shape = pass->graph->tensors.data[x].shape;
    zp_node slice = slice_of(node, dy, &shape, begin, pass->arena);
    begin += slice.attr.count;
    if (zp_diff_trains(pass, x)) {
      diff_shared_rows(pass, node, slice, x);
    } else if (pass->needs[x]) {
      add_gradient_of(pass, &slice, x);
      zp_graph_add_node(pass->graph, slice);
    }
  }
}

/* The gradient is made of x once more: what is stored of a result in 16 bits is too short for that. A sum needs no
 * value, but has the operand. */
static void diff_reduce(diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_REDUCE_GRAD);
  int dy = zp_diff_total(pass, node->out.data[0]);
  grad.attr.last = node->op == ZP_OP_REDUCE_COLUMNS;
  add_in(pass, &grad, kept_value(pass, node->in.data[0]));
  add_in(pass, &grad, dy);
  add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

static void diff_gather(diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_GATHER_GRAD);
  add_in(pass, &grad, zp_diff_total(pass, node->out.data[0]));
  add_in(pass, &grad, node->in.data[1]);
  add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

static void diff_reshape(diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_RESHAPE);
  const zp_tensor *x = &pass->graph->tensors.data[node->in.data[0]];
  for (int i = 1; i < ZP_MAX_RANK; i++)
    grad.attr.to[i - 1] = i >= x->shape.rank ? 0 : i == x->split_dim ? x->full_dim : x->shape.dim[i];
  add_in(pass, &grad, zp_diff_total(pass, node->out.data[0]));
  add_gradient_of(pass, &grad, node->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

/* Columns of the heads of dy, from `begin` on as many as operand i has, zeros around them. */
static void diff_heads(diff_pass *pass, const zp_node *node, int i, int dy, int64_t begin) {
  int x = node->in.data[i];
  if (!pass->needs[x]) return;
  zp_node grad = zp_diff_node(node, ZP_OP_COLUMNS);
  int64_t width = zp_shape_cols(&pass->graph->tensors.data[x].shape) / node->attr.heads;
  grad.attr = (zp_op_attr){.heads = node->attr.heads, .begin = begin, .count = width};
  add_in(pass, &grad, dy);
  add_gradient_of(pass, &grad, x);
  zp_graph_add_node(pass->graph, grad);
}

static void diff_join_columns(diff_pass *pass, const zp_node *node) {
  int dy = zp_diff_total(pass, node->out.data[0]);
  int64_t first = zp_shape_cols(&pass->graph->tensors.data[node->in.data[0]].shape) / node->attr.heads;
  diff_heads(pass, node, 0, dy, 0);
  diff_heads(pass, node, 1, dy, first);
}

static void diff_embedding(diff_pass *pass, const zp_node *node) {
  if (!zp_diff_trains(pass, node->in.data[1])) return;
  zp_node grad = zp_diff_node(node, ZP_OP_EMBEDDING_GRAD);
  add_in(pass, &grad, zp_diff_total(pass, node->out.data[0]));
  add_in(pass, &grad, node->in.data[0]);
  add_param_grad(pass, &grad, node->in.data[1]);
  zp_graph_add_node(pass->graph, grad);
}

static void diff_attention(diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_ATTENTION_GRAD);
  int dy = zp_diff_total(pass, node->out.data[0]);
  for (int i = 0; i < 3; i++) add_in(pass, &grad, node->in.data[i]);
  for (int i = 0; i < 2; i++) add_in(pass, &grad, node->out.data[i]);
  add_in(pass, &grad, dy);
  int bias = zp_attention_bias(node);
  if (zp_attention_lengths(node) >= 0) add_in(pass, &grad, zp_attention_lengths(node));
  if (zp_attention_documents(node) >= 0) add_in(pass, &grad, zp_attention_documents(node));
  if (bias >= 0) add_in(pass, &grad, bias);
  if (bias >= 0 && zp_diff_trains(pass, bias)) add_param_grad(pass, &grad, bias);
  for (int i = 0; i < 3; i++) add_gradient_of(pass, &grad, node->in.data[i]);
  zp_graph_add_node(pass->graph, grad);
}

/* Completes the gradient whose views the users of the split have written. */
static void diff_split(diff_pass *pass, int index) {
  const zp_ints out = pass->graph->nodes.data[index].out;
  int whole = pass->graph->nodes.data[index].in.data[0], last = -1;
  for (int i = 0; i < out.len; i++) {
    int view = out.data[i], slot = zp_diff_slot(pass, view);
    const zp_ints *contrib = &pass->contrib[view];
    if (contrib->len != 1 || contrib->data[0] != slot) zp_diff_total_into(pass, view, slot);
    int producer = pass->graph->tensors.data[slot].producer;
    if (producer > last) last = producer;
  }
  int gradient = pass->split_grad[index];
  pass->graph->tensors.data[gradient].producer = last;
  zp_diff_contribute(pass, whole, gradient);
}

/* partial -> replicated; backward every rank already holds the whole gradient. */
static void diff_all_reduce(diff_pass *pass, const zp_node *node) {
  const zp_ints *contrib = &pass->contrib[node->out.data[0]];
  pass->pending[node->in.data[0]]--;
  for (int i = 0; i < contrib->len; i++) zp_diff_contribute(pass, node->in.data[0], contrib->data[i]);
}

/* In place, so the result shares its input's storage and can never be a slot. */
static void diff_enter(diff_pass *pass, const zp_node *node) {
  zp_node reduce = zp_diff_node(node, ZP_OP_GRAD_ALL_REDUCE);
  add_in(pass, &reduce, zp_diff_total_owned(pass, node->out.data[0]));
  pass->pending[node->in.data[0]]--;
  int result = zp_diff_tensor(pass, node->in.data[0]);
  zp_push(pass->arena, &reduce.out, result);
  zp_diff_contribute(pass, node->in.data[0], result);
  zp_graph_add_node(pass->graph, reduce);
}

/* Collectives in pairs: what one direction gathers, the other reduces; what one sends out, the other brings back. */
static zp_op transpose_of(zp_op op) {
  switch (op) {
  case ZP_OP_ALL_GATHER_SEQ: return ZP_OP_REDUCE_SCATTER_SEQ;
  case ZP_OP_REDUCE_SCATTER_SEQ: return ZP_OP_ALL_GATHER_SEQ;
  case ZP_OP_SPREAD_SLOTS: return ZP_OP_RETURN_SLOTS;
  default: return ZP_OP_SPREAD_SLOTS;
  }
}

static void diff_pair(diff_pass *pass, const zp_node *node) {
  zp_node back = zp_diff_node(node, transpose_of(node->op));
  add_in(pass, &back, zp_diff_total(pass, node->out.data[0]));
  pass->pending[node->in.data[0]]--;
  int result = zp_diff_tensor(pass, node->in.data[0]);
  zp_push(pass->arena, &back.out, result);
  zp_diff_contribute(pass, node->in.data[0], result);
  zp_graph_add_node(pass->graph, back);
}

/* The seed: from the statistics back to the logits that they were taken of. */
static const zp_node *stats_of_loss(const diff_pass *pass, const zp_node *loss) {
  const zp_node *node = loss;
  while (node->op != ZP_OP_CE_STATS && node->op != ZP_OP_SE_STATS) {
    assert(node->op == ZP_OP_CE_LOSS || node->op == ZP_OP_GATHER_STATS);
    node = &pass->graph->nodes.data[pass->graph->tensors.data[node->in.data[0]].producer];
  }
  return node;
}

static void diff_loss(diff_pass *pass, const zp_node *node) {
  const zp_node *stats = stats_of_loss(pass, node);
  bool squares = stats->op == ZP_OP_SE_STATS;
  zp_node grad = zp_diff_node(node, squares ? ZP_OP_SE_GRAD : ZP_OP_CE_GRAD);
  add_in(pass, &grad, stats->in.data[0]);
  add_in(pass, &grad, stats->in.data[1]);
  if (!squares) add_in(pass, &grad, node->out.data[0]);
  if (stats->in.len > 2) add_in(pass, &grad, stats->in.data[2]);
  add_gradient_of(pass, &grad, stats->in.data[0]);
  zp_graph_add_node(pass->graph, grad);
}

/* By value, because the graph's node array grows while rules append. */
static void diff_node(diff_pass *pass, int index) {
  const zp_node node = pass->graph->nodes.data[index];
  switch (node.op) {
  case ZP_OP_MATMUL: diff_matmul(pass, &node); break;
  case ZP_OP_EMBEDDING: diff_embedding(pass, &node); break;
  case ZP_OP_ATTENTION: diff_attention(pass, &node); break;
  case ZP_OP_MEAN: diff_positions(pass, &node, ZP_OP_MEAN_GRAD); break;
  case ZP_OP_SLICE: diff_positions(pass, &node, ZP_OP_SLICE_GRAD); break;
  case ZP_OP_COLUMN: diff_positions(pass, &node, ZP_OP_COLUMN_GRAD); break;
  case ZP_OP_CONCAT: diff_concat(pass, &node); break;
  case ZP_OP_REDUCE:
  case ZP_OP_REDUCE_COLUMNS: diff_reduce(pass, &node); break;
  case ZP_OP_GATHER: diff_gather(pass, &node); break;
  case ZP_OP_RESHAPE: diff_reshape(pass, &node); break;
  case ZP_OP_TRANSPOSE: diff_positions(pass, &node, ZP_OP_TRANSPOSE); break;
  case ZP_OP_UNFOLD: diff_positions(pass, &node, ZP_OP_UNFOLD_GRAD); break;
  case ZP_OP_COLUMNS: diff_heads(pass, &node, 0, zp_diff_total(pass, node.out.data[0]), -node.attr.begin); break;
  case ZP_OP_JOIN_COLUMNS: diff_join_columns(pass, &node); break;
  case ZP_OP_REPEAT_COLUMNS: diff_positions(pass, &node, ZP_OP_REPEAT_GRAD); break;
  case ZP_OP_TOP_K_GATE: diff_gate(pass, &node); break;
  case ZP_OP_DISPATCH: diff_dispatch(pass, &node); break;
  case ZP_OP_BATCHED_MATMUL:
    diff_product(pass, &node, node.out.data[0], ZP_OP_BATCHED_MATMUL_DGRAD, ZP_OP_BATCHED_MATMUL_WGRAD);
    break;
  case ZP_OP_COMBINE: diff_combine(pass, &node); break;
  case ZP_OP_SPLIT: diff_split(pass, index); break;
  case ZP_OP_ALL_REDUCE: diff_all_reduce(pass, &node); break;
  case ZP_OP_ENTER: diff_enter(pass, &node); break;
  case ZP_OP_ALL_GATHER_SEQ:
  case ZP_OP_REDUCE_SCATTER_SEQ:
  case ZP_OP_SPREAD_SLOTS:
  case ZP_OP_RETURN_SLOTS: diff_pair(pass, &node); break;
  case ZP_OP_CE_LOSS: diff_loss(pass, &node); break;
  case ZP_OP_FUSED: zp_diff_fused(pass, &node); break;
  default: /* seen through by diff_loss */
    assert(node.op == ZP_OP_CE_STATS || node.op == ZP_OP_SE_STATS || node.op == ZP_OP_GATHER_STATS);
  }
}

/* ---- preparation ---- */

static bool operand_needs(const diff_pass *pass, int t) { return pass->needs[t] || zp_diff_trains(pass, t); }

static void find_needs(diff_pass *pass) {
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
static void find_active(diff_pass *pass) {
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

static void start(diff_pass *pass) {
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

static void add_grad_in(diff_pass *pass) {
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

static bool has_gradient(const diff_pass *pass, const zp_node *node) {
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
  diff_pass pass = {.graph = zp_graph_copy(graph), .arena = graph->arena};
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
