/* SPDX-License-Identifier: Apache-2.0 */
/* zp_graph_divide_positions: pass over a local graph. The ranks of a context group have the same samples; each keeps an
 * equal stretch of every sample's positions, in their order. What works row by row does so on the rank's rows.
 * Attention and what turns columns by their position see all positions of some heads: queries, keys and values go out
 * to the ranks of their heads, and what attention makes of them comes back (DeepSpeed-Ulysses, arXiv 2309.14509). So
 * kernels of attention, masks, windows, patterns and documents know nothing of it. Fewer heads of keys and values than
 * ranks go to several of them each. Gates route the rank's positions to slots of its own, as many as these positions'
 * share of the capacity; only the balancing loss counts the choices of whole samples.
 * By keys, queries stay where they are, and keys and values of all positions are gathered as one head (Llama 3, arXiv
 * 2407.21783, section 3.3.2). So that causal ranks compute alike, a sample is cut into twice as many stretches as there
 * are ranks, of which rank r has the stretch 2 parts - 1 - r, then r; `parts` says so to what follows positions, as
 * rotary embeddings and dropout do.
 * In a ring they have the same stretches, and keys and values are passed on while attention computes (arXiv
 * 2310.01889): attention has its own ones as operands. */
#include <assert.h>
#include <zplan/sparse.h>
#include "graph_internal.h"

const char *zp_context_by_name(zp_context_by by) {
  static const char *const names[ZP_CONTEXT_BY_COUNT] = {"heads", "keys", "ring"};
  assert(by >= ZP_BY_HEADS && by < ZP_CONTEXT_BY_COUNT);
  return names[by];
}

/* What of a tensor the rank has. */
typedef enum held {
  HELD_WHOLE,     /* all of it: it has no positions, or those of the whole sample */
  HELD_POSITIONS, /* the rank's positions */
  HELD_HEADS,     /* all positions of the rank's heads */
  HELD_SLOTS,     /* what the rank's positions fill of experts' slots */
} held;

typedef struct divider {
  const zp_graph *from;
  zp_graph *to;
  int tensor; /* ranks that share the heads */
  int64_t parts;
  zp_context_by by;
  held *held;
  int *there;               /* per tensor of HELD_POSITIONS: its heads at all positions, -1: nobody wanted them yet */
  int64_t *slots;           /* per slot number and tensor of HELD_SLOTS: slots of an expert for the rank's positions, */
  int64_t *slots_of_sample; /* and for whole samples */
  const char *reason;
} divider;

static const zp_tensor *old_tensor(const divider *d, int tensor) { return &d->from->tensors.data[tensor]; }

static bool refuse(divider *d, const char *reason) {
  if (!d->reason) d->reason = reason;
  return false;
}

/* The rank's positions of a tensor, dimension 1. */
static bool divide(divider *d, int tensor) {
  zp_tensor *t = &d->to->tensors.data[tensor];
  int64_t positions = t->shape.dim[1];
  if (positions % d->parts)
    return refuse(d, zp_format(d->to->arena, "context %lld does not divide the %lld positions of `%s`",
                               (long long)d->parts, (long long)positions, t->name));
  if (d->by && positions % (2 * d->parts))
    return refuse(d,
                  zp_format(d->to->arena, "context %lld by %s needs %lld equal stretches of the %lld positions of `%s`",
                            (long long)d->parts, zp_context_by_name(d->by), 2 * (long long)d->parts,
                            (long long)positions, t->name));
  if (t->split_dim == 1) t->full_dim /= d->parts;
  zp_shape_resize(d->to->arena, &t->shape, 1, positions / d->parts);
  d->held[tensor] = HELD_POSITIONS;
  return true;
}

/* ---- what comes from outside ---- */

static bool reads_positions(const divider *d, int input, bool whole) {
  for (int n = 0; n < d->from->nodes.len; n++) {
    const zp_node *node = &d->from->nodes.data[n];
    if (zp_ints_has(&node->in, input) && (node->op == ZP_OP_ATTENTION) == whole) return true;
  }
  return false;
}

/* Trainers have a bit for each (zpr_program.shared_inputs). */
enum { MOST_SHARED_INPUTS = 32 };

/* Attention has the documents and lengths of whole samples, all else the rank's positions. */
static bool divide_input(divider *d, int tensor) {
  const zp_tensor *t = old_tensor(d, tensor);
  if (t->shape.rank < 2 || !reads_positions(d, tensor, false)) return true;
  if (t->shape.rank != 2 || t->element != ZP_ELEM_I32)
    return refuse(d, zp_format(d->to->arena, "context divides inputs of numbers by position only, not `%s` %s", t->name,
                               zp_shape_text(d->to->arena, &t->shape)));
  if (reads_positions(d, tensor, true))
    return refuse(d, zp_format(d->to->arena, "`%s` is read by attention and position by position", t->name));
  if (t->index >= MOST_SHARED_INPUTS)
    return refuse(
        d, zp_format(d->to->arena, "context divides the first %d inputs alone, not `%s`", MOST_SHARED_INPUTS, t->name));
  if (!divide(d, tensor)) return false;
  d->to->tensors.data[tensor].position_parts = d->parts;
  return true;
}

static bool divide_outside(divider *d) {
  for (int i = 0; i < d->from->tensors.len; i++) {
    const zp_tensor *t = old_tensor(d, i);
    if (t->role == ZP_ROLE_INPUT && !divide_input(d, i)) return false;
    if (t->role != ZP_ROLE_CARRY_IN) continue;
    if (t->shape.rank != 3)
      return refuse(d, zp_format(d->to->arena, "`%s` %s has no positions that context could divide", t->name,
                                 zp_shape_text(d->to->arena, &t->shape)));
    if (!divide(d, i)) return false;
  }
  return true;
}

/* ---- exchanges ---- */

static int add_exchange(divider *d, zp_op op, const zp_node *near, int in, int64_t heads, const char *suffix) {
  zp_tensor t = d->to->tensors.data[in];
  bool spread = op == ZP_OP_SPREAD_HEADS;
  int64_t here = heads > d->parts ? heads / d->parts : 1, width = t.shape.dim[2] / (spread ? heads : here);
  t.name = zp_format(d->to->arena, "%s.%s", t.name, suffix);
  t.role = ZP_ROLE_VALUE;
  t.producer = t.base = t.index = -1;
  t.column = 0;
  zp_shape_resize(d->to->arena, &t.shape, 1, spread ? t.shape.dim[1] * d->parts : t.shape.dim[1] / d->parts);
  zp_shape_resize(d->to->arena, &t.shape, 2, (spread ? here : heads) * width);
  zp_node node = {.op = op, .attr = {.parts = d->parts, .heads = heads}, .span = near->span, .name = t.name};
  int id = zp_graph_add_tensor(d->to, t);
  zp_push(d->to->arena, &node.in, in);
  zp_push(d->to->arena, &node.out, id);
  zp_graph_add_node(d->to, node);
  return id;
}

/* Heads stay whole, and no tensor rank has padding in their place. */
static bool heads_divide(divider *d, const zp_node *near, int tensor, int64_t heads) {
  const zp_tensor *t = old_tensor(d, tensor);
  bool padded = t->split_dim == 2 && t->full_dim != t->shape.dim[2] * d->tensor;
  if (padded)
    return refuse(d, zp_format(d->to->arena, "tensor %d does not divide the heads of `%s`, which context needs",
                               d->tensor, near->name));
  if (heads % d->parts == 0 || d->parts % heads == 0) return true;
  return refuse(d,
                zp_format(d->to->arena, "context %lld is no multiple or divisor of the %lld heads of `%s`%s",
                          (long long)d->parts, (long long)heads, near->name, d->tensor > 1 ? " on a tensor rank" : ""));
}

/* The rank's heads of an operand, at all positions; by keys all heads are one. */
static int heads_of(divider *d, const zp_node *near, int tensor, int64_t heads) {
  if (d->held[tensor] != HELD_POSITIONS) return tensor;
  if (d->there[tensor] < 0) d->there[tensor] = add_exchange(d, ZP_OP_SPREAD_HEADS, near, tensor, heads, "heads");
  return d->there[tensor];
}

static int64_t heads_left(const divider *d, int64_t heads) { return heads > d->parts ? heads / d->parts : 1; }

/* What no call for two stretches of queries has; NULL: nothing. */
static const char *asks_positions(const zp_node *node) {
  const zp_op_attr *attr = &node->attr;
  return attr->alibi_heads ? "ALiBi" : zp_attention_lengths(node) >= 0 ? "lengths" : NULL;
}

/* The rank's queries see keys and values of all positions, in the order of stretches that ranks have. */
static bool add_attention_to_keys(divider *d, const zp_node *node) {
  zp_node copy = *node;
  const char *asks = asks_positions(node);
  if (asks)
    return refuse(d, zp_format(d->to->arena, "context by %s does not divide attention with %s (`%s`)",
                               zp_context_by_name(d->by), asks, node->name));
  if (node->attr.layout && node->attr.layout->n % (2 * d->parts))
    return refuse(d,
                  zp_format(d->to->arena,
                            "context %lld by %s needs %lld stretches of whole blocks, and the pattern of `%s` has %d",
                            (long long)d->parts, zp_context_by_name(d->by), 2 * (long long)d->parts, node->name,
                            node->attr.layout->n));
  copy.in = (zp_ints){0};
  for (int i = 0; i < 3; i++) {
    int tensor = node->in.data[i];
    if (!heads_divide(d, node, tensor, d->parts)) return false;
    zp_push(d->to->arena, &copy.in, i == 0 || d->by == ZP_BY_RING ? tensor : heads_of(d, node, tensor, 1));
  }
  if (zp_attention_documents(node) >= 0) zp_push(d->to->arena, &copy.in, zp_attention_documents(node));
  copy.attr.parts = d->parts;
  copy.attr.ring = d->by == ZP_BY_RING;
  zp_graph_add_node(d->to, copy);
  return divide(d, node->out.data[0]) && divide(d, node->out.data[1]);
}

static bool add_attention(divider *d, const zp_node *node) {
  zp_node copy = *node;
  int64_t heads = node->attr.heads, kv_heads = node->attr.kv_heads;
  int o = node->out.data[0], lse = node->out.data[1];
  if (node->attr.cross) return refuse(d, "context does not divide attention to another sequence");
  if (node->attr.max_distance > 0) return refuse(d, "context does not divide attention with a relative bias");
  if (d->by) return add_attention_to_keys(d, node);
  if (heads % d->parts)
    return refuse(d,
                  zp_format(d->to->arena, "context %lld does not divide the %lld heads of `%s`%s", (long long)d->parts,
                            (long long)heads, node->name, d->tensor > 1 ? " on a tensor rank" : ""));
  if (!heads_divide(d, node, node->in.data[0], heads) || !heads_divide(d, node, node->in.data[1], kv_heads))
    return false;
  copy.in = (zp_ints){0};
  for (int i = 0; i < node->in.len; i++)
    zp_push(d->to->arena, &copy.in,
            i < 3 ? heads_of(d, node, node->in.data[i], i == 0 ? heads : kv_heads) : node->in.data[i]);
  copy.attr.heads = heads_left(d, heads);
  copy.attr.kv_heads = heads_left(d, kv_heads);
  zp_tensor there = d->to->tensors.data[o];
  there.name = zp_format(d->to->arena, "%s.heads", there.name);
  there.producer = -1;
  zp_shape_resize(d->to->arena, &there.shape, 2, there.shape.dim[2] / d->parts);
  zp_shape_resize(d->to->arena, &d->to->tensors.data[lse].shape, 2, copy.attr.heads);
  d->held[lse] = HELD_HEADS;
  copy.out = (zp_ints){0};
  int made = zp_graph_add_tensor(d->to, there);
  zp_push(d->to->arena, &copy.out, made);
  zp_push(d->to->arena, &copy.out, lse);
  zp_graph_add_node(d->to, copy);
  if (!divide(d, o)) return false;
  zp_node back = {.op = ZP_OP_RETURN_HEADS,
                  .attr = {.parts = d->parts, .heads = heads},
                  .span = node->span,
                  .name = d->to->tensors.data[o].name};
  zp_push(d->to->arena, &back.in, made);
  zp_push(d->to->arena, &back.out, o);
  zp_graph_add_node(d->to, back);
  return true;
}

/* Rope knows the position of a row: it turns the rank's heads at all positions, or by keys two stretches of them. */
static bool add_rope(divider *d, const zp_node *node) {
  zp_node copy = *node;
  int x = node->in.data[0], y = node->out.data[0];
  if (d->held[x] != HELD_POSITIONS)
    return refuse(d, zp_format(d->to->arena, "`%s` turns something without positions", node->name));
  if (d->by) {
    copy.attr.parts = d->parts;
    zp_graph_add_node(d->to, copy);
    return divide(d, y);
  }
  if (!heads_divide(d, node, x, node->attr.heads)) return false;
  copy.in = (zp_ints){0};
  zp_push(d->to->arena, &copy.in, heads_of(d, node, x, node->attr.heads));
  copy.attr.heads = heads_left(d, node->attr.heads);
  zp_tensor *t = &d->to->tensors.data[y];
  t->shape = d->to->tensors.data[copy.in.data[0]].shape;
  d->held[y] = HELD_HEADS;
  zp_graph_add_node(d->to, copy);
  return true;
}

/* ---- experts ---- */

static void note_slots(divider *d, int tensor, int64_t slots, int64_t of_sample) {
  d->slots[tensor] = slots;
  d->slots_of_sample[tensor] = of_sample;
}

static bool want_positions(divider *d, const zp_node *node, int i) {
  if (d->held[node->in.data[i]] == HELD_POSITIONS) return true;
  return refuse(d, zp_format(d->to->arena, "context does not divide `%s` (%s): `%s` has no positions of the rank's",
                             node->name, zp_op_name(node->op), old_tensor(d, node->in.data[i])->name));
}

static bool add_gate(divider *d, const zp_node *node) {
  zp_node copy = *node;
  int64_t positions = old_tensor(d, node->in.data[0])->shape.dim[1];
  if (!want_positions(d, node, 0) || !divide(d, node->out.data[0]) || !divide(d, node->out.data[1])) return false;
  copy.attr.parts = d->parts;
  copy.attr.slots = zp_gate_slots(&node->attr, positions / d->parts);
  note_slots(d, node->out.data[1], copy.attr.slots, node->attr.slots);
  zp_graph_add_node(d->to, copy);
  return true;
}

/* Slots of one expert for one sample stand together, [B, experts, slots, d], or those of several members' samples one
 * after the other. */
static void divide_slots(divider *d, int tensor, int like) {
  zp_shape *shape = &d->to->tensors.data[tensor].shape;
  note_slots(d, tensor, d->slots[like], d->slots_of_sample[like]);
  zp_shape_resize(d->to->arena, shape, 2, shape->dim[2] / d->slots_of_sample[like] * d->slots[like]);
  d->held[tensor] = HELD_SLOTS;
}

static bool add_dispatch(divider *d, const zp_node *node) {
  zp_node copy = *node;
  int slot = node->in.data[1];
  if (!want_positions(d, node, 0)) return false;
  copy.attr.slots = d->slots[slot];
  zp_graph_add_node(d->to, copy);
  if (node->in.len > 2) return divide(d, node->out.data[0]);
  divide_slots(d, node->out.data[0], slot);
  return true;
}

/* A rank sorts the choices of its own positions. */
static bool add_expert_rows(divider *d, const zp_node *node) {
  zp_node copy = *node;
  copy.attr.slots = d->slots[node->in.data[0]];
  zp_graph_add_node(d->to, copy);
  note_slots(d, node->out.data[0], copy.attr.slots, copy.attr.slots);
  return true;
}

/* Rows of the rank's positions go to their experts' ranks and come back: on either side a share of the samples'. */
static bool add_sorted_exchange(divider *d, const zp_node *node) {
  zp_node copy = *node;
  copy.attr.slots = d->slots[node->in.data[1]];
  if (zp_graph_room(&copy.attr) * d->parts != zp_graph_room(&node->attr))
    return refuse(d, zp_format(d->to->arena, "context %lld does not divide the %lld rows of `room` of `%s`",
                               (long long)d->parts, (long long)zp_graph_room(&node->attr), node->name));
  zp_graph_add_node(d->to, copy);
  return divide(d, node->out.data[0]);
}

static bool add_sorted_product(divider *d, const zp_node *node) {
  zp_graph_add_node(d->to, *node);
  return divide(d, node->out.data[0]);
}

static bool add_combine(divider *d, const zp_node *node) {
  zp_node copy = *node;
  if (!want_positions(d, node, 1)) return false;
  copy.attr.slots = d->slots[node->in.data[2]];
  zp_graph_add_node(d->to, copy);
  return divide(d, node->out.data[0]);
}

/* Products, rows and exchanges of slots. Random numbers of a slot would count the slots before it, which are other ones
 * on context ranks. */
static bool add_on_slots(divider *d, const zp_node *node, int slots) {
  if (node->op == ZP_OP_DROPOUT && node->attr.rate > 0)
    return refuse(d,
                  zp_format(d->to->arena,
                            "context does not go with dropout on the slots of experts (`%s`): which slot a token has "
                            "depends on the ranks",
                            node->name));
  zp_graph_add_node(d->to, *node);
  for (int i = 0; i < node->out.len; i++) divide_slots(d, node->out.data[i], slots);
  return true;
}

/* ---- row by row ---- */

/* A parameter with a row for every position: the graph reads the rank's. */
static bool divide_table(divider *d, const zp_node *node, int tensor) {
  zp_tensor *t = &d->to->tensors.data[tensor];
  if (t->role != ZP_ROLE_PARAM || t->shape.rank != 2 || !zp_op_has(node->op, ZP_FLAG_ELEMENTWISE)) return true;
  if (t->position_parts > 0) return true; /* a second use */
  if (d->by)
    return refuse(d, zp_format(d->to->arena, "context by %s does not divide `%s`, which has a row for every position",
                               zp_context_by_name(d->by), t->name));
  if (t->split_dim == 0)
    return refuse(
        d, zp_format(d->to->arena, "`%s` has a row for every position, which `sequence` divides already", t->name));
  for (int n = 0; n < d->from->nodes.len; n++)
    if (zp_ints_has(&d->from->nodes.data[n].in, tensor) && !zp_op_has(d->from->nodes.data[n].op, ZP_FLAG_ELEMENTWISE))
      return refuse(d,
                    zp_format(d->to->arena, "`%s` has a row for every position, and is read as a whole, too", t->name));
  if (t->shape.dim[0] % d->parts)
    return refuse(d, zp_format(d->to->arena, "context %lld does not divide the %lld rows of `%s`", (long long)d->parts,
                               (long long)t->shape.dim[0], t->name));
  zp_shape_resize(d->to->arena, &t->shape, 0, t->shape.dim[0] / d->parts);
  t->position_parts = d->parts;
  return true;
}

/* Does the operation make every position of its result of the same position alone? */
static bool keeps_positions(const zp_node *node) {
  switch (node->op) {
  case ZP_OP_EMBEDDING:
  case ZP_OP_MATMUL:
  case ZP_OP_SPLIT:
  case ZP_OP_COLUMNS:
  case ZP_OP_JOIN_COLUMNS:
  case ZP_OP_ALL_REDUCE:
  case ZP_OP_ENTER:
  case ZP_OP_ALL_GATHER_SEQ:
  case ZP_OP_REDUCE_SCATTER_SEQ:
  case ZP_OP_CE_STATS:
  case ZP_OP_GATHER_STATS:
  case ZP_OP_CE_LOSS: return true;
  default: return zp_op_is_row(node->op);
  }
}

static bool add_rows(divider *d, const zp_node *node) {
  zp_node copy = *node;
  bool some = false;
  if (!keeps_positions(node))
    return refuse(d, zp_format(d->to->arena, "context does not divide `%s` (%s), which mixes positions", node->name,
                               zp_op_name(node->op)));
  for (int i = 0; i < node->in.len; i++) {
    int t = node->in.data[i];
    if (old_tensor(d, t)->role == ZP_ROLE_PARAM) {
      if (!divide_table(d, node, t)) return false;
      continue;
    }
    if (d->held[t] != HELD_POSITIONS)
      return refuse(d, zp_format(d->to->arena, "context does not divide `%s` (%s): `%s` has no positions of the rank's",
                                 node->name, zp_op_name(node->op), old_tensor(d, t)->name));
    some = true;
  }
  if (!some) return refuse(d, zp_format(d->to->arena, "`%s` is made of parameters alone", node->name));
  if (d->by && node->op == ZP_OP_DROPOUT && node->attr.rate > 0) copy.attr.parts = d->parts; /* it numbers positions */
  zp_graph_add_node(d->to, copy);
  for (int i = 0; i < node->out.len; i++)
    if (!divide(d, node->out.data[i])) return false;
  return true;
}

/* An operand that is slots; -1: none. */
static int slots_among(const divider *d, const zp_node *node) {
  for (int i = 0; i < node->in.len; i++)
    if (d->held[node->in.data[i]] == HELD_SLOTS) return node->in.data[i];
  return -1;
}

static bool add_node(divider *d, const zp_node *node) {
  int slots = slots_among(d, node);
  if (node->op == ZP_OP_ATTENTION) return add_attention(d, node);
  if (node->op == ZP_OP_ROPE) return add_rope(d, node);
  if (node->op == ZP_OP_TOP_K_GATE) return add_gate(d, node);
  if (node->op == ZP_OP_EXPERT_ROWS || node->op == ZP_OP_SPREAD_COUNTS) return add_expert_rows(d, node);
  if ((node->op == ZP_OP_SPREAD_SLOTS || node->op == ZP_OP_RETURN_SLOTS) && node->in.len > 1)
    return add_sorted_exchange(d, node);
  if (node->op == ZP_OP_DISPATCH) return add_dispatch(d, node);
  if (node->op == ZP_OP_COMBINE) return add_combine(d, node);
  if (node->op == ZP_OP_BATCHED_MATMUL && node->in.len > 2) return add_sorted_product(d, node);
  if (slots >= 0) return add_on_slots(d, node, slots);
  return add_rows(d, node);
}

zp_graph *zp_graph_divide_positions(const zp_graph *graph, int tensor, int parts, zp_context_by by,
                                    const char **reason) {
  assert(zp_graph_is_forward(graph) && tensor >= 1 && parts >= 1 && reason);
  divider d = {.from = graph, .to = zp_graph_copy_tensors(graph), .tensor = tensor, .parts = parts, .by = by};
  d.held = ZP_NEW_ARRAY(graph->arena, held, graph->tensors.len);
  d.there = ZP_NEW_ARRAY(graph->arena, int, graph->tensors.len);
  d.slots = ZP_NEW_ARRAY(graph->arena, int64_t, graph->tensors.len);
  d.slots_of_sample = ZP_NEW_ARRAY(graph->arena, int64_t, graph->tensors.len);
  for (int i = 0; i < graph->tensors.len; i++) d.there[i] = -1;
  bool ok = divide_outside(&d);
  for (int i = 0; i < graph->nodes.len && ok; i++) ok = add_node(&d, &graph->nodes.data[i]);
  for (int i = 0; i < graph->carry_out.len && ok; i++)
    if (d.held[graph->carry_out.data[i]] != HELD_POSITIONS)
      ok = refuse(&d, zp_format(graph->arena, "`%s` flows on without positions of the rank's",
                                graph->tensors.data[graph->carry_out.data[i]].name));
  d.to->n_forward = d.to->nodes.len;
  *reason = d.reason;
  assert(!ok || !zp_graph_check(graph->arena, d.to));
  return ok ? d.to : NULL;
}
