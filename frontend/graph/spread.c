/* SPDX-License-Identifier: Apache-2.0 */
/* zp_graph_spread_experts: pass over a local graph. The ranks of an expert group have different samples; each keeps an
 * equal share of the experts. Dispatched slots [B, experts, slots, d] go out to the ranks of their experts, which
 * compute with the slots of all samples of the group, and come back before they are combined (GShard, arXiv 2006.16668,
 * section 3.3). What a rank then has of one expert stands together, [B, experts / parts, parts * slots, d]: sample by
 * sample of its own micro-batch the slots of all members' samples of that number. So nothing between has to know.
 *
 * Rows sorted by expert go to the ranks of their experts, too, and come back: as many as chose them, which the members
 * tell each other before. There is room for all that could come; what is left is zero, so that rows between have the
 * results and gradients of nothing, and only products and exchanges have to know how many there are. */
#include <assert.h>
#include <zplan/buf.h>
#include "graph_internal.h"

typedef struct spreader {
  const zp_graph *from;
  zp_graph *to;
  int64_t parts;
  int *there; /* per tensor: its slots where they are computed, of where experts begin the counts; -1: itself */
  const char *reason;
} spreader;

static bool is_slots(const zp_graph *graph, int tensor) {
  const zp_tensor *t = &graph->tensors.data[tensor];
  return t->role == ZP_ROLE_VALUE && t->shape.rank == 4;
}

/* What has four dimensions counts as slots here, which what is reshaped is not. */
static const zp_node *reshaped_to_four(const zp_graph *graph) {
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node *n = &graph->nodes.data[i];
    if (n->op == ZP_OP_RESHAPE && (is_slots(graph, n->in.data[0]) || is_slots(graph, n->out.data[0]))) return n;
  }
  return NULL;
}

/* The node that counts rows which go to ranks by the sorted rows' first ones. */
static const zp_node *counts_of(const spreader *s, int first) {
  const zp_tensor *counts = &s->to->tensors.data[s->there[first]];
  assert(counts->producer >= 0);
  return &s->to->nodes.data[counts->producer];
}

/* All rows of a graph's gate are alike: `first` is where its experts begin, -1 of slots. */
static void share_experts(const spreader *s, int first, zp_shape *rows) {
  bool sorted = first >= 0;
  int64_t room = sorted ? zp_graph_room(&counts_of(s, first)->attr) : rows->dim[1] / s->parts;
  zp_shape_resize(s->to->arena, rows, 1, room);
  zp_shape_resize(s->to->arena, rows, 2, sorted ? 1 : rows->dim[2] * s->parts);
}

/* Where experts of sorted rows begin; -1: they are slots. */
static int first_of(const spreader *s, int tensor) {
  const zp_tensor *t = &s->from->tensors.data[tensor];
  return t->sorted ? zp_sorted_first(s->from, tensor) : -1;
}

static zp_tensor copy_of(const spreader *s, int tensor, const char *suffix) {
  zp_tensor t = s->to->tensors.data[tensor];
  t.name = zp_format(s->to->arena, "%s.%s", t.name, suffix);
  t.producer = -1;
  return t;
}

/* counts: what an exchange of sorted rows follows, -1: slots. */
static int add_collective(spreader *s, zp_op op, const zp_node *near, int in, int first, zp_tensor out) {
  zp_node node = {.op = op, .span = near->span, .name = out.name};
  if (first >= 0) node.attr = counts_of(s, first)->attr;
  node.attr.parts = s->parts;
  int id = zp_graph_add_tensor(s->to, out);
  zp_push(s->to->arena, &node.in, in);
  if (first >= 0) zp_push(s->to->arena, &node.in, s->there[first]);
  zp_push(s->to->arena, &node.out, id);
  zp_graph_add_node(s->to, node);
  return id;
}

/* The matrices of the rank's share of the experts. */
static void share_matrices(spreader *s, const zp_node *node) {
  zp_tensor *w = &s->to->tensors.data[node->in.data[1]];
  const zp_tensor *whole = &s->from->tensors.data[node->in.data[1]];
  if (w->shape.dim[0] != whole->shape.dim[0]) return; /* a second use */
  if (w->split_dim < 0) w->full_dim = w->shape.dim[0];
  assert(w->split_dim <= 0);
  w->split_dim = 0;
  if (w->shape.dim[0] % s->parts)
    s->reason = zp_format(s->to->arena, "%lld data ranks do not divide the %lld experts of a tensor rank",
                          (long long)s->parts, (long long)w->shape.dim[0]);
  zp_shape_resize(s->to->arena, &w->shape, 0, w->shape.dim[0] / s->parts);
}

/* Rows that nobody fills are zeros, which these functions or their derivatives do not take. */
static bool has_pole(spreader *s, const zp_node *node) {
  bool sorted = false;
  for (int i = 0; i < node->in.len; i++) sorted |= s->from->tensors.data[node->in.data[i]].sorted;
  if (!sorted || !zp_op_has(node->op, ZP_FLAG_POLE)) return false;
  s->reason = zp_format(s->to->arena,
                        "`%s` (`%s`) has a pole at zero, as which rows come that no token of `capacity = dropless` "
                        "fills where experts are spread",
                        node->name, zp_op_name(node->op));
  return true;
}

/* A rank counts its own rows and the ones that come. */
static void add_counts(spreader *s, const zp_node *rows) {
  int first = rows->out.data[0];
  zp_node node = {.op = ZP_OP_SPREAD_COUNTS, .attr = rows->attr, .span = rows->span};
  node.attr.parts = s->parts;
  if (node.attr.experts % s->parts) {
    s->reason = zp_format(s->to->arena, "%lld data ranks do not divide the %lld experts", (long long)s->parts,
                          (long long)node.attr.experts);
    return;
  }
  zp_tensor counts = copy_of(s, first, "counts");
  counts.shape.dim[1] = node.attr.experts / s->parts + 1 + 2 * node.attr.experts;
  counts.shape.extent[1] = NULL;
  node.name = counts.name;
  s->there[first] = zp_graph_add_tensor(s->to, counts);
  zp_push(s->to->arena, &node.in, first);
  zp_push(s->to->arena, &node.out, s->there[first]);
  zp_graph_add_node(s->to, node);
}

/* A node with its operands where they are computed; what it makes of slots is there, too. */
static zp_node moved(spreader *s, const zp_node *node) {
  zp_node copy = *node;
  copy.in = (zp_ints){0};
  bool routes = node->op == ZP_OP_DISPATCH || node->op == ZP_OP_COMBINE; /* by the rank's own choices */
  for (int i = 0; i < node->in.len; i++) {
    int t = node->in.data[i];
    bool own = s->there[t] < 0 || (routes && s->from->tensors.data[t].element == ZP_ELEM_I32);
    zp_push(s->to->arena, &copy.in, own ? t : s->there[t]);
  }
  if (node->op == ZP_OP_DISPATCH) return copy;
  for (int i = 0; i < node->out.len; i++) {
    zp_tensor *out = &s->to->tensors.data[node->out.data[i]];
    if (is_slots(s->from, node->out.data[i])) share_experts(s, first_of(s, node->out.data[i]), &out->shape);
    if (out->base >= 0 && s->there[out->base] >= 0) out->base = s->there[out->base];
  }
  if (node->op == ZP_OP_BATCHED_MATMUL) share_matrices(s, node);
  return copy;
}

static void add_node(spreader *s, const zp_node *node) {
  if (has_pole(s, node)) return;
  zp_node copy = moved(s, node);
  if (node->op == ZP_OP_COMBINE) {
    zp_tensor back = copy_of(s, copy.in.data[0], "returned");
    back.shape = s->from->tensors.data[node->in.data[0]].shape;
    int first = first_of(s, node->in.data[0]);
    copy.in.data[0] = add_collective(s, ZP_OP_RETURN_SLOTS, node, copy.in.data[0], first, back);
  }
  zp_graph_add_node(s->to, copy);
  if (node->op == ZP_OP_EXPERT_ROWS) add_counts(s, node);
  if (node->op != ZP_OP_DISPATCH) return;
  int first = first_of(s, node->out.data[0]);
  zp_tensor out = copy_of(s, node->out.data[0], "spread");
  share_experts(s, first, &out.shape);
  s->there[node->out.data[0]] = add_collective(s, ZP_OP_SPREAD_SLOTS, node, node->out.data[0], first, out);
}

zp_graph *zp_graph_spread_experts(const zp_graph *graph, int parts, const char **reason) {
  assert(zp_graph_is_forward(graph) && parts >= 1 && reason);
  spreader s = {.from = graph, .to = zp_graph_copy_tensors(graph), .parts = parts};
  s.there = ZP_NEW_ARRAY(graph->arena, int, graph->tensors.len);
  for (int i = 0; i < graph->tensors.len; i++) s.there[i] = -1;
  const zp_node *reshaped = reshaped_to_four(graph);
  if (parts > 1 && reshaped)
    s.reason =
        zp_format(graph->arena, "`%s` is reshaped from or to four dimensions, alongside experts of several data ranks",
                  reshaped->name);
  for (int i = 0; i < graph->nodes.len && !s.reason; i++) add_node(&s, &graph->nodes.data[i]);
  s.to->n_forward = s.to->nodes.len;
  *reason = s.reason;
  assert(s.reason || !zp_graph_check(graph->arena, s.to));
  return s.reason ? NULL : s.to;
}
