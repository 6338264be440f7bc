/* SPDX-License-Identifier: Apache-2.0 */
/* zp_chunk_loss: the last product and the cross-entropy of its result, by parts of the tokens.
 *
 *   before   forward   ..., logits = x w, stats, [gathered stats,] loss      backward   dlogits, dx, dw, ...
 *   after    forward   ...                                                   backward   for every part of the rows:
 *                      and, for a loss alone, part by part:                             logits, stats, loss, dlogits,
 *                      logits, stats, loss                                              dx, dw; then the rest
 *
 * Nothing is computed twice: where gradients are wanted, the product and the loss move to backward, and forward keeps
 * x, as it did before; where x is gathered along the sequence, that is done once less. A part's x, labels and dx are
 * views of the whole tensors; all else of a part are tensors that die with it, so the parts' logits can share their
 * storage. */
#include <assert.h>
#include "graph_internal.h"

typedef struct loss_pass {
  const zp_graph *graph;
  zp_graph *result;
  zp_arena *arena;
  int chunks;
  int product, stats, gather, loss; /* nodes; gather: -1 where the vocabulary is whole */
  int slope, dgrad, wgrad;          /* of the logits, of x (-1: nobody asks), of the weight */
  int together, again;              /* what gathers x along the sequence, forward and backward; -1: x is kept */
  int *tensor_of;                   /* per tensor: that of the current part; -1: not made yet */
  int *view; /* [chunks] views of x, of the x of backward, of the labels and of dx, in this order */
  const char *reason;
} loss_pass;

static int producer_of(const zp_graph *g, int tensor) { return g->tensors.data[tensor].producer; }

static zp_op op_of(const zp_graph *g, int node) { return node < 0 ? ZP_OP_COUNT : g->nodes.data[node].op; }

/* ---- what is there ---- */

static int only_reader(const zp_graph *g, int tensor, zp_op op) {
  for (int n = 0; n < g->nodes.len; n++)
    if (g->nodes.data[n].op == op && zp_ints_has(&g->nodes.data[n].in, tensor)) return n;
  return -1;
}

static int count_readers(const zp_graph *g, int tensor) {
  int readers = zp_ints_has(&g->carry_out, tensor) + zp_ints_has(&g->grad_out, tensor);
  for (int n = 0; n < g->nodes.len; n++) readers += zp_ints_has(&g->nodes.data[n].in, tensor);
  for (int t = 0; t < g->tensors.len; t++) readers += g->tensors.data[t].base == tensor;
  return readers;
}

static void find_forward(loss_pass *p) {
  const zp_graph *g = p->graph;
  if (g->losses.len > 1) {
    p->reason = "the model has several losses";
    return;
  }
  p->loss = producer_of(g, g->losses.data[0]);
  assert(op_of(g, p->loss) == ZP_OP_CE_LOSS);
  int made = producer_of(g, g->nodes.data[p->loss].in.data[0]);
  p->gather = op_of(g, made) == ZP_OP_GATHER_STATS ? made : -1;
  p->stats = p->gather >= 0 ? producer_of(g, g->nodes.data[made].in.data[0]) : made;
  p->product = producer_of(g, g->nodes.data[p->stats].in.data[0]);
  if (op_of(g, p->stats) != ZP_OP_CE_STATS || op_of(g, p->product) != ZP_OP_MATMUL || g->nodes.data[p->product].fused)
    p->reason = "the loss is not taken of a matrix product as it is";
}

/* The nodes of backward; sets the reason where something else reads what would not exist any more. */
static void find_backward(loss_pass *p) {
  const zp_graph *g = p->graph;
  int logits = g->nodes.data[p->product].out.data[0], lse = g->nodes.data[p->loss].out.data[0];
  p->slope = only_reader(g, logits, ZP_OP_CE_GRAD);
  if (p->slope < 0) {
    p->reason = "the loss has no gradient";
    return;
  }
  int dlogits = g->nodes.data[p->slope].out.data[0];
  p->dgrad = only_reader(g, dlogits, ZP_OP_MATMUL_DGRAD);
  p->wgrad = only_reader(g, dlogits, ZP_OP_MATMUL_WGRAD);
  if (p->wgrad < 0 && g->tensors.data[g->nodes.data[p->product].in.data[1]].role == ZP_ROLE_PARAM) {
    p->reason = "the weight of the last product is frozen, and parts are made for its gradient";
    return;
  }
  bool alone = count_readers(g, logits) == 2 && count_readers(g, lse) == 1 &&
               count_readers(g, dlogits) == (p->dgrad >= 0) + (p->wgrad >= 0);
  if (p->wgrad < 0 || !alone) p->reason = "something else reads the logits";
  if (p->reason) return;
  if (g->nodes.data[p->wgrad].fused || (p->dgrad >= 0 && g->nodes.data[p->dgrad].fused))
    p->reason = "a product of the logits' gradient has an epilogue";
  int maker = producer_of(g, g->nodes.data[p->wgrad].in.data[1]);
  int x = g->nodes.data[p->product].in.data[0];
  p->again = maker >= g->n_forward ? maker : -1;
  p->together = p->again >= 0 ? producer_of(g, x) : -1;
  if (p->again >= 0 && (op_of(g, p->again) != ZP_OP_ALL_GATHER_SEQ || count_readers(g, x) > 1))
    p->reason = "the input of the last product is made again in backward, and read elsewhere";
}

/* Parts are whole rows of tensors that have storage of their own, and the same positions of every sample's number. */
static void check_rows(loss_pass *p) {
  const zp_graph *g = p->graph;
  const zp_node *product = &g->nodes.data[p->product];
  int whole[] = {product->in.data[0], g->nodes.data[p->wgrad].in.data[1],
                 p->dgrad >= 0 ? g->nodes.data[p->dgrad].out.data[0] : product->in.data[0]};
  for (int i = 0; i < 3 && !p->reason; i++)
    if (g->tensors.data[whole[i]].base >= 0 || g->tensors.data[whole[i]].shape.rank != 3)
      p->reason = "the input of the last product is a part of a wider tensor";
  int64_t positions = g->tensors.data[product->out.data[0]].shape.dim[1];
  if (!p->reason && positions % p->chunks != 0)
    p->reason = zp_format(p->arena, "%lld positions do not fall into %d equal parts", (long long)positions, p->chunks);
}

/* ---- what becomes of it ---- */

static zp_shape part_shape(const loss_pass *p, const zp_tensor *whole) {
  zp_shape shape = whole->shape;
  zp_shape_resize(p->arena, &shape, 1, shape.dim[1] / p->chunks);
  return shape;
}

static int add_view(loss_pass *p, int tensor, int part) {
  zp_tensor view = p->result->tensors.data[tensor];
  view.name = zp_format(p->arena, "%s.%d", view.name, part);
  view.shape = part_shape(p, &view);
  view.base = tensor;
  view.column = 0;
  view.row_part = part;
  view.row_parts = p->chunks;
  return zp_graph_add_tensor(p->result, view);
}

static int part_of(loss_pass *p, int tensor, int part) {
  if (p->tensor_of[tensor] >= 0) return p->tensor_of[tensor];
  zp_tensor own = p->result->tensors.data[tensor];
  if (own.role == ZP_ROLE_PARAM) return tensor;
  own.name = zp_format(p->arena, "%s.%d", own.name, part);
  own.shape = part_shape(p, &own);
  own.producer = -1;
  return p->tensor_of[tensor] = zp_graph_add_tensor(p->result, own);
}

/* Node n for one part, where there is such a node. */
static void add_node_of_part(loss_pass *p, int n, int part) {
  if (n < 0) return;
  const zp_node *whole = &p->graph->nodes.data[n];
  zp_node node = *whole;
  node.in = node.out = (zp_ints){0};
  zp_reserve(p->arena, &node.in, whole->in.len);
  zp_reserve(p->arena, &node.out, whole->out.len);
  for (int i = 0; i < whole->in.len; i++) zp_push(p->arena, &node.in, part_of(p, whole->in.data[i], part));
  for (int i = 0; i < whole->out.len; i++) zp_push(p->arena, &node.out, part_of(p, whole->out.data[i], part));
  zp_graph_add_node(p->result, node);
}

enum { VIEWS = 4 };

/* The whole tensors that parts are views of; equal ones have the same views. */
static void whole_tensors(const loss_pass *p, int whole[VIEWS]) {
  const zp_node *product = &p->graph->nodes.data[p->product];
  whole[0] = product->in.data[0];
  whole[1] = p->graph->nodes.data[p->wgrad].in.data[1];
  whole[2] = p->graph->nodes.data[p->loss].in.data[1];
  whole[3] = p->dgrad >= 0 ? p->graph->nodes.data[p->dgrad].out.data[0] : -1;
}

/* Views are made when first needed, because they have their base's producer. */
static int view_of(loss_pass *p, int which, int part) {
  int whole[VIEWS], at = which;
  whole_tensors(p, whole);
  if (which == 1 && whole[1] == whole[0]) at = 0;
  int *view = &p->view[at * p->chunks + part];
  if (*view < 0) *view = add_view(p, whole[at], part);
  return *view;
}

static void begin_part(loss_pass *p, int part, bool backward) {
  int whole[VIEWS];
  whole_tensors(p, whole);
  for (int t = 0; t < p->graph->tensors.len; t++) p->tensor_of[t] = -1;
  p->tensor_of[whole[2]] = view_of(p, 2, part);
  p->tensor_of[whole[0]] = view_of(p, backward ? 1 : 0, part); /* the product reads the x that backward has */
  if (!backward) return;
  p->tensor_of[whole[1]] = view_of(p, 1, part);
  if (whole[3] >= 0) p->tensor_of[whole[3]] = view_of(p, 3, part);
}

static void add_loss_part(loss_pass *p, int part, bool backward) {
  begin_part(p, part, backward);
  add_node_of_part(p, p->product, part);
  add_node_of_part(p, p->stats, part);
  add_node_of_part(p, p->gather, part);
  add_node_of_part(p, p->loss, part);
  if (!backward) {
    p->result->losses.data[0] = p->tensor_of[p->graph->losses.data[0]];
    return;
  }
  add_node_of_part(p, p->slope, part);
  add_node_of_part(p, p->dgrad, part);
  add_node_of_part(p, p->wgrad, part);
}

/* Lists that grow as they are filled leave as much behind in the arena as they have in the end. */
static void make_room(loss_pass *p) {
  enum { OF_PART = 7, FORWARD = 4 }; /* nodes of a part, forward and backward: add_loss_part */
  const int made_twice = 4;          /* logits and their two numbers a row, forward and backward */
  zp_reserve(p->arena, &p->result->nodes, p->graph->nodes.len + p->chunks * (OF_PART + FORWARD));
  zp_reserve(p->arena, &p->result->tensors, p->graph->tensors.len + p->chunks * (VIEWS + OF_PART + made_twice));
}

static void add_forward(loss_pass *p) {
  for (int n = 0; n < p->graph->n_forward; n++)
    if (n != p->product && n != p->stats && n != p->gather && n != p->loss && n != p->together)
      zp_graph_add_node(p->result, p->graph->nodes.data[n]);
  int before = p->result->nodes.len;
  if (p->together >= 0) zp_graph_add_node(p->result, p->graph->nodes.data[p->together]);
  for (int part = 0; part < p->chunks; part++) add_loss_part(p, part, false);
  p->result->n_forward = p->result->nodes.len;
  p->result->n_loss = p->result->nodes.len - before;
}

static void add_backward(loss_pass *p) {
  bool made = false;
  for (int n = p->graph->n_forward; n < p->graph->nodes.len; n++) {
    if (n == p->slope || n == p->again) continue;
    if (n != p->dgrad && n != p->wgrad) {
      zp_graph_add_node(p->result, p->graph->nodes.data[n]);
      continue;
    }
    if (made) continue;
    if (p->again >= 0) zp_graph_add_node(p->result, p->graph->nodes.data[p->again]);
    for (int part = 0; part < p->chunks; part++) add_loss_part(p, part, true);
    made = true;
  }
}

/* What nodes write view by view is the output of none: its producer is the last of them. */
static void set_producers(const loss_pass *p) {
  zp_graph *g = p->result;
  bool *whole = ZP_NEW_ARRAY(p->arena, bool, g->tensors.len);
  for (int t = 0; t < g->tensors.len; t++) whole[t] = g->tensors.data[t].producer >= 0;
  for (int n = 0; n < g->nodes.len; n++)
    for (int i = 0; i < g->nodes.data[n].out.len; i++) {
      int base = g->tensors.data[g->nodes.data[n].out.data[i]].base;
      if (base >= 0 && !whole[base] && g->tensors.data[base].role == ZP_ROLE_VALUE) g->tensors.data[base].producer = n;
    }
}

zp_graph *zp_chunk_loss(const zp_graph *graph, int chunks, const char **reason) {
  assert(graph->losses.len > 0 && graph->n_forward < graph->nodes.len && chunks >= 2 && reason);
  loss_pass p = {.graph = graph, .arena = graph->arena, .chunks = chunks};
  find_forward(&p);
  if (!p.reason) find_backward(&p);
  if (!p.reason) check_rows(&p);
  *reason = p.reason;
  if (p.reason) return NULL;
  p.result = zp_graph_copy_tensors(graph);
  make_room(&p);
  p.tensor_of = ZP_NEW_ARRAY(p.arena, int, graph->tensors.len + 1);
  p.view = ZP_NEW_ARRAY(p.arena, int, VIEWS *chunks);
  for (int i = 0; i < VIEWS * chunks; i++) p.view[i] = -1;
  add_forward(&p);
  add_backward(&p);
  set_producers(&p);
  assert(!zp_graph_check(p.arena, p.result));
  return p.result;
}

bool zp_has_product_loss(const zp_model *model) {
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *g = model->segments.data[s].graph;
    int loss = g->losses.len == 1 ? producer_of(g, g->losses.data[0]) : -1;
    if (op_of(g, loss) != ZP_OP_CROSS_ENTROPY) continue;
    int logits = g->nodes.data[loss].in.data[0];
    return op_of(g, producer_of(g, logits)) == ZP_OP_MATMUL && count_readers(g, logits) == 1 &&
           g->tensors.data[logits].shape.rank == 3;
  }
  return false;
}
