/* SPDX-License-Identifier: Apache-2.0 */
/* Products with an epilogue: row operations that a matrix product does to its result before it is written, as cuBLASLt
 * can. They are those of a group that would be a kernel of its own, so nothing else about the graph changes.
 *
 *   forward    y = x w + bias, y = x w + bias + residual (either may lack), y = gelu(x w + bias)
 *   backward   dx = (dy w) * gelu'(u) with the bias's gradient; a weight's gradient with that of the bias, which are
 *              sums of one and the same dy
 *
 * gelu is the approximation by tanh, the only one that cuBLASLt has. What it is taken of, u, is written too: backward
 * reads it, in place of the product that a kernel of its own would have read. */
#include <assert.h>
#include "graph_internal.h"

/* Columns that gelu's operand must be a multiple of: cuBLASLt's header, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD. */
enum { GELU_COLUMNS = 8 };

/* ---- forward ---- */

typedef struct fold_pass {
  const zp_graph *graph; /* fused */
  zp_graph *result;
  zp_arena *arena;
  int *readers; /* per tensor: nodes that read it; carried on, or the loss: one more */
  int *group;   /* per node: of a product, the FUSED node that becomes its epilogue; -1 */
  int *product; /* per node: the other way round */
} fold_pass;

static void count_readers(const zp_graph *g, int *readers) {
  for (int n = 0; n < g->nodes.len; n++)
    for (int i = 0; i < g->nodes.data[n].in.len; i++) readers[g->nodes.data[n].in.data[i]]++;
  const zp_ints *lists[] = {&g->carry_out, &g->grad_out};
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < lists[k]->len; i++) readers[lists[k]->data[i]]++;
  for (int t = 0; t < g->tensors.len; t++)
    if (g->tensors.data[t].base >= 0) readers[g->tensors.data[t].base]++;
  for (int i = 0; i < g->losses.len; i++) readers[g->losses.data[i]]++;
}

/* The other operand of an addition that adds to `value`, -1 when the op is none. */
static int added_to(const zp_fused_op *op, int value) {
  if (op->op != ZP_OP_ADD || op->arg[0] == op->arg[1]) return -1;
  return op->arg[0] == value ? op->arg[1] : op->arg[1] == value ? op->arg[0] : -1;
}

static bool is_rows(const zp_fused *f, int value) { return value < f->n_in && f->operand[value] == ZP_OPERAND_ROWS; }
static bool is_columns(const zp_fused *f, int value) {
  return value < f->n_in && f->operand[value] == ZP_OPERAND_COLUMNS;
}

/* Is the group one of the forms above, with its input `product` as the product? */
static bool is_epilogue(const zp_node *node, int product) {
  const zp_fused *f = node->fused;
  int value = product, i = 0, read = 1;
  bool has_bias = false;
  for (; i < f->ops.len; i++, value = f->n_in + i - 1) {
    const zp_fused_op *op = &f->ops.data[i];
    int other = added_to(op, value);
    if (i == 0 && other >= 0 && is_columns(f, other)) {
      has_bias = true;
      read++;
      continue;
    }
    bool last = i == f->ops.len - 1;
    if (last && other >= 0 && is_rows(f, other))
      read++;
    else if (!last || !has_bias || op->op != ZP_OP_GELU || !op->attr.tanh_form || op->arg[0] != value ||
             op->cols % GELU_COLUMNS != 0)
      return false;
  }
  return i > 0 && read == f->n_in && f->out_value.len == 1 && f->out_value.data[0] == f->n_in + f->ops.len - 1;
}

/* The input of the group that is a product which nobody else reads and whose epilogue it can be; -1. */
static int find_product(const fold_pass *p, const zp_node *node) {
  for (int i = 0; i < node->in.len; i++) {
    int t = node->in.data[i], maker = p->graph->tensors.data[t].producer;
    if (maker < 0 || p->graph->nodes.data[maker].op != ZP_OP_MATMUL || p->readers[t] != 1) continue;
    if (p->graph->tensors.data[t].partial || node->fused->operand[i] != ZP_OPERAND_ROWS) continue;
    if (is_epilogue(node, i)) return i;
  }
  return -1;
}

static void find_folds(fold_pass *p) {
  for (int n = 0; n < p->graph->nodes.len; n++) p->group[n] = p->product[n] = -1;
  for (int n = 0; n < p->graph->nodes.len; n++) {
    const zp_node *node = &p->graph->nodes.data[n];
    int i = node->op == ZP_OP_FUSED ? find_product(p, node) : -1;
    if (i < 0) continue;
    p->product[n] = p->graph->tensors.data[node->in.data[i]].producer;
    p->group[p->product[n]] = n;
  }
}

/* The number of a value of the group when input `product` stands first. */
static int renumbered(int value, int product) { return value == product ? 0 : value < product ? value + 1 : value; }

static zp_fused *with_product_first(zp_arena *arena, const zp_fused *from, int product) {
  zp_fused *to = ZP_NEW(arena, zp_fused);
  *to = (zp_fused){.n_in = from->n_in,
                   .rows_per_sample = from->rows_per_sample,
                   .row_parts = from->row_parts,
                   .split = from->split,
                   .split_rows = from->split_rows};
  to->operand = ZP_NEW_ARRAY(arena, zp_operand, from->n_in);
  to->in_cols = ZP_NEW_ARRAY(arena, int64_t, from->n_in);
  for (int i = 0; i < from->n_in; i++) {
    to->operand[renumbered(i, product)] = from->operand[i];
    to->in_cols[renumbered(i, product)] = from->in_cols[i];
  }
  for (int i = 0; i < from->ops.len; i++) {
    zp_fused_op op = from->ops.data[i];
    for (int k = 0; k < op.n_arg; k++) op.arg[k] = renumbered(op.arg[k], product);
    zp_push(arena, &to->ops, op);
  }
  zp_ints_copy(arena, &to->out_value, &from->out_value);
  return to;
}

/* gelu's operand becomes an output: a tensor like gelu's result. */
static void add_gelu_operand(fold_pass *p, zp_node *node) {
  const zp_fused_op *gelu = &node->fused->ops.data[node->fused->ops.len - 1];
  if (gelu->op != ZP_OP_GELU) return;
  zp_tensor u = p->result->tensors.data[node->out.data[0]];
  u.name = node->fused->ops.data[gelu->arg[0] - node->fused->n_in].name;
  zp_push(p->arena, &node->out, zp_graph_add_tensor(p->result, u));
  zp_push(p->arena, &node->fused->out_value, gelu->arg[0]);
}

static void add_folded(fold_pass *p, const zp_node *product, const zp_node *group) {
  int first = 0;
  while (group->in.data[first] != product->out.data[0]) first++;
  zp_node node = *product;
  node.product = product->out.data[0];
  node.fused = with_product_first(p->arena, group->fused, first);
  zp_ints_copy(p->arena, &node.in, &product->in);
  for (int i = 0; i < group->in.len; i++)
    if (i != first) zp_push(p->arena, &node.in, group->in.data[i]);
  zp_ints_copy(p->arena, &node.out, &group->out);
  add_gelu_operand(p, &node);
  zp_graph_add_node(p->result, node);
}

zp_graph *zp_fold_epilogues(const zp_graph *graph) {
  assert(zp_graph_is_forward(graph));
  zp_arena *arena = graph->arena;
  fold_pass p = {.graph = graph, .result = zp_graph_copy_tensors(graph), .arena = arena};
  p.readers = ZP_NEW_ARRAY(arena, int, graph->tensors.len + 1);
  p.group = ZP_NEW_ARRAY(arena, int, graph->nodes.len + 1);
  p.product = ZP_NEW_ARRAY(arena, int, graph->nodes.len + 1);
  count_readers(graph, p.readers);
  find_folds(&p);
  for (int n = 0; n < graph->nodes.len; n++) {
    if (p.group[n] >= 0) continue;
    if (p.product[n] >= 0)
      add_folded(&p, &graph->nodes.data[p.product[n]], &graph->nodes.data[n]);
    else
      zp_graph_add_node(p.result, graph->nodes.data[n]);
  }
  p.result->n_forward = p.result->nodes.len;
  assert(!zp_graph_check(arena, p.result));
  return p.result;
}

zp_node zp_epilogue_group(zp_arena *arena, const zp_node *node) {
  assert(node->fused);
  bool forward = node->op == ZP_OP_MATMUL, has_product = node->op != ZP_OP_MATMUL_WGRAD;
  zp_node group = *node;
  group.op = forward ? ZP_OP_FUSED : ZP_OP_FUSED_GRAD;
  group.attr = (zp_op_attr){0};
  group.name = node->fused->ops.data[node->fused->ops.len - 1].name;
  group.in = (zp_ints){0};
  zp_push(arena, &group.in, has_product ? node->product : node->in.data[0]);
  for (int i = 2; i < node->in.len; i++) zp_push(arena, &group.in, node->in.data[i]);
  if (has_product) return group;
  group.param_grad = (zp_ints){0};
  zp_push(arena, &group.param_grad, node->param_grad.data[1]);
  return group;
}

/* ---- backward ---- */

static bool reads(const zp_fused_op *op, int value) {
  for (int k = 0; k < op->n_arg; k++)
    if (op->arg[k] == value) return true;
  return false;
}

static int uses(const zp_fused *f, int value) {
  int n = 0;
  for (int i = 0; i < f->ops.len; i++) n += reads(&f->ops.data[i], value);
  return n;
}

/* A weight's gradient and its bias's: the group does nothing but add up columns of a tensor that comes to the bias
 * unchanged, through additions. */
static bool is_bias_sum(const zp_node *grad) {
  const zp_fused *f = grad->fused;
  if (grad->out.len != 0 || grad->grad_out.len != 1 || grad->in.len != 1 || grad->grad_in.data[0].use != ZP_USE_GRAD)
    return false;
  int value = grad->grad_out.data[0].value;
  for (int i = 0; i < f->ops.len && value != grad->grad_in.data[0].value; i++) {
    if (!reads(&f->ops.data[i], value)) continue;
    if (added_to(&f->ops.data[i], value) < 0 || uses(f, value) > 1) return false;
    value = f->n_in + i;
  }
  return value == grad->grad_in.data[0].value;
}

/* The only thing that the group computes is gelu's derivative, of values that are not kept elsewhere. */
static bool is_gelu_grad(const zp_node *grad) {
  const zp_fused *f = grad->fused;
  if (f->n_in != 2 || f->ops.len != 2 || grad->in.len != 2 || grad->out.len != 1 || grad->grad_out.len != 2)
    return false;
  const zp_fused_op *add = &f->ops.data[0], *gelu = &f->ops.data[1];
  bool forward = added_to(add, 0) == 1 && is_columns(f, 1) && gelu->op == ZP_OP_GELU && gelu->attr.tanh_form &&
                 gelu->arg[0] == 2 && gelu->cols % GELU_COLUMNS == 0;
  const zp_grad_arg *in = grad->grad_in.data, *out = grad->grad_out.data;
  return forward && in[0].use == ZP_USE_GRAD && in[0].value == 3 && in[1].use == ZP_USE_SAVED && in[1].value == 2 &&
         out[0].use == ZP_USE_ROWS && out[0].value == 0 && out[1].use == ZP_USE_COLUMNS && out[1].value == 1;
}

static void take_gradient(zp_node *node, const zp_node *grad) {
  node->fused = grad->fused;
  node->grad_in = grad->grad_in;
  node->grad_out = grad->grad_out;
}

/* The product of the graph that takes the group in; -1. `node` becomes that product. */
static int find_taker(const zp_graph *g, const int *readers, bool gelu_folds, const zp_node *grad, zp_node *node) {
  bool sum = is_bias_sum(grad), gelu = gelu_folds && !sum && is_gelu_grad(grad);
  for (int n = g->n_forward; n < g->nodes.len && (sum || gelu); n++) {
    *node = g->nodes.data[n];
    if (node->fused) continue;
    if (sum && node->op == ZP_OP_MATMUL_WGRAD && node->in.data[0] == grad->in.data[0]) return n;
    if (gelu && node->op == ZP_OP_MATMUL_DGRAD && node->out.data[0] == grad->in.data[0] &&
        readers[node->out.data[0]] == 1 && g->tensors.data[node->out.data[0]].base < 0)
      return n;
  }
  return -1;
}

static zp_node with_bias_sum(zp_arena *arena, const zp_node *product, const zp_node *grad) {
  zp_node node = *product;
  take_gradient(&node, grad);
  node.param_grad = (zp_ints){0};
  zp_push(arena, &node.param_grad, product->param_grad.data[0]);
  zp_push(arena, &node.param_grad, grad->param_grad.data[0]);
  return node;
}

static zp_node with_gelu_grad(zp_arena *arena, const zp_node *product, const zp_node *grad) {
  zp_node node = *product;
  take_gradient(&node, grad);
  node.product = product->out.data[0];
  zp_ints_copy(arena, &node.in, &product->in);
  zp_push(arena, &node.in, grad->in.data[1]);
  node.out = grad->out;
  node.param_grad = grad->param_grad;
  return node;
}

/* A gradient that several nodes write view by view is the output of none: its producer is the last of them. */
static void keep_producers(const zp_graph *from, const int *place, zp_graph *to) {
  for (int t = 0; t < from->tensors.len; t++) {
    int base = from->tensors.data[t].base, producer = base >= 0 ? from->tensors.data[base].producer : -1;
    if (producer >= 0 && to->tensors.data[base].producer < 0) to->tensors.data[base].producer = place[producer];
  }
}

zp_graph *zp_fold_gradients(const zp_graph *graph, bool gelu) {
  zp_arena *arena = graph->arena;
  zp_graph *result = zp_graph_copy_tensors(graph);
  int *place = ZP_NEW_ARRAY(arena, int, graph->nodes.len + 1);
  int *readers = ZP_NEW_ARRAY(arena, int, graph->tensors.len + 1);
  zp_node *changed = ZP_NEW_ARRAY(arena, zp_node, graph->nodes.len + 1);
  bool *gone = ZP_NEW_ARRAY(arena, bool, graph->nodes.len + 1);
  count_readers(graph, readers);
  for (int n = 0; n < graph->nodes.len; n++) changed[n] = graph->nodes.data[n];
  zp_graph now = *graph; /* as far as it has been changed */
  now.nodes.data = changed;
  for (int n = graph->n_forward; n < graph->nodes.len; n++) {
    const zp_node *grad = &graph->nodes.data[n];
    zp_node product;
    int taker = grad->op == ZP_OP_FUSED_GRAD ? find_taker(&now, readers, gelu, grad, &product) : -1;
    if (taker < 0) continue;
    gone[n] = true;
    place[n] = taker;
    changed[taker] = grad->out.len > 0 ? with_gelu_grad(arena, &product, grad) : with_bias_sum(arena, &product, grad);
  }
  result->n_forward = graph->n_forward; /* whose nodes all stay */
  for (int n = 0; n < graph->nodes.len; n++)
    if (!gone[n]) place[n] = zp_graph_add_node(result, changed[n]);
  keep_producers(graph, place, result);
  assert(!zp_graph_check(arena, result));
  return result;
}
