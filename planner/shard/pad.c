/* SPDX-License-Identifier: Apache-2.0 */
/* zp_shard_pad: widths that tensor cores can load, inside. A dimension whose size is no multiple of 16 bytes makes
 * every product with it slow (GPT-2's 50,257 words: half the rate). Where all that reads or makes the dimension takes
 * zeros after it, each rank's share of it is rounded up: parameters and values get more columns, zeros that stay
 * zeros; the logical model, its checkpoints and its loss know nothing of them, as of those after uneven shares.
 *
 * Dimensions that must be equal form a class, over all segments. A class is padded if every member's single elements
 * may be divided, no op wants its exact size, and a product is among its ops. */
#include <assert.h>
#include "shard_internal.h"

/* Elements: NVIDIA, "Matrix Multiplication Background User's Guide", section "Tensor Core Requirements": products run
 * best where sizes are multiples of 16 bytes, on A100 and later of 128; of 16-bit elements 8 and 64. Wide dimensions
 * that are padded at all take the latter, which adds at most a 64th to them. */
enum { NARROW = 8, WIDE = 64, WIDE_FROM = 64 * WIDE };

typedef struct padder {
  zp_arena *scratch;
  const zp_model *model;
  zp_sharding *sharding;
  int *first;    /* per segment: its first dimension; the dimensions of tensor t begin at ZP_MAX_RANK * t after it */
  int *parent;   /* per dimension: another of its class, or itself */
  bool *exact;   /* per class, at its root: something wants the size as it is */
  bool *product; /* per class, at its root: products have this dimension */
  int segment;   /* in work */
} padder;

static zp_graph *graph_of(const padder *p) { return p->sharding->local[p->segment]; }
static int dimension(const padder *p, int tensor, int dim) { return p->first[p->segment] + tensor * ZP_MAX_RANK + dim; }
static int last_of(const padder *p, int tensor) { return graph_of(p)->tensors.data[tensor].shape.rank - 1; }

static int root(const padder *p, int d) {
  while (p->parent[d] != d) d = p->parent[d] = p->parent[p->parent[d]];
  return d;
}

static void join(padder *p, int a, int b) {
  a = root(p, a), b = root(p, b);
  p->parent[b] = a;
  p->exact[a] |= p->exact[b];
  p->product[a] |= p->product[b];
}

/* The dimensions of a tensor, but one (-1: all of them), are wanted as they are. */
static void keep(padder *p, int tensor, int but) {
  for (int d = 0; d <= last_of(p, tensor); d++)
    if (d != but) p->exact[root(p, dimension(p, tensor, d))] = true;
}

/* The last two dimensions of w are the product's; matrices of experts have one in front. */
static void visit_product(padder *p, const zp_node *node) {
  int x = node->in.data[0], w = node->in.data[1], y = node->out.data[0], last = last_of(p, w);
  int inner = dimension(p, w, last - !node->attr.trans), outer = dimension(p, w, last - node->attr.trans);
  join(p, inner, dimension(p, x, last_of(p, x)));
  join(p, outer, dimension(p, y, last_of(p, y)));
  p->product[root(p, inner)] = p->product[root(p, outer)] = true;
  keep(p, x, last_of(p, x));
  keep(p, y, last_of(p, y));
  if (node->op == ZP_OP_BATCHED_MATMUL) p->exact[root(p, dimension(p, w, 0))] = true;
}

/* Element by element, zeros of zeros. */
static void visit_elements(padder *p, const zp_node *node) {
  int y = node->out.data[0];
  for (int i = 0; i < node->in.len; i++) {
    int x = node->in.data[i];
    join(p, dimension(p, x, last_of(p, x)), dimension(p, y, last_of(p, y)));
    keep(p, x, last_of(p, x));
  }
  keep(p, y, last_of(p, y));
}

/* The dimension of operand i that may be longer than what the operation reads, -1: none. Rows after the last word are
 * never looked up; a column is one that is there; statistics know how many columns are words. */
static int loose_dim(const padder *p, const zp_node *node, int i) {
  if (node->op == ZP_OP_EMBEDDING) return i == 1 ? 0 : -1;
  bool some_columns = node->op == ZP_OP_COLUMN || node->op == ZP_OP_CE_STATS;
  return some_columns && i == 0 ? last_of(p, node->in.data[0]) : -1;
}

static void visit(padder *p, const zp_node *node) {
  zp_op_class class = zp_op_get_class(node->op);
  if (class == ZP_CLASS_MATMUL || class == ZP_CLASS_GROUPED) {
    visit_product(p, node);
  } else if (zp_op_has(node->op, ZP_FLAG_ELEMENTWISE) && zp_op_has(node->op, ZP_FLAG_KEEPS_ZERO)) {
    visit_elements(p, node);
  } else {
    for (int i = 0; i < node->in.len; i++) keep(p, node->in.data[i], loose_dim(p, node, i));
    for (int i = 0; i < node->out.len; i++) keep(p, node->out.data[i], -1);
  }
}

/* Inputs and what flows between segments have the sizes that others know. Views lie in another tensor's columns. */
static void visit_tensor(padder *p, int tensor) {
  const zp_tensor *t = &graph_of(p)->tensors.data[tensor];
  if (t->role == ZP_ROLE_INPUT || t->role == ZP_ROLE_CARRY_IN || t->base >= 0 || t->element != ZP_ELEM_FLOAT)
    keep(p, tensor, -1);
  if (t->base >= 0) keep(p, t->base, -1);
  for (int d = 0; d < t->shape.rank; d++) {
    bool whole = p->sharding->tensor == 1 && t->split_dim < 0, share = t->split_dim == d;
    bool single =
        t->shape.dim[d] > 0 && t->parts[d].outer == 1 && t->parts[d].units == (share ? t->full_dim : t->shape.dim[d]);
    if (!single || (!whole && !share)) p->exact[root(p, dimension(p, tensor, d))] = true;
  }
}

/* Every use of a parameter has the same sizes. */
static void join_uses(padder *p, int *first_use) {
  const zp_graph *graph = graph_of(p);
  for (int i = 0; i < graph->params.len; i++) {
    zp_param_use use = graph->params.data[i];
    for (int d = 0; d <= last_of(p, use.tensor); d++) {
      int *known = &first_use[use.param * ZP_MAX_RANK + d], here = dimension(p, use.tensor, d);
      if (*known < 0)
        *known = here;
      else
        join(p, *known, here);
    }
  }
}

static void find_classes(padder *p) {
  int n = 0, n_params = p->model->params.len;
  p->first = ZP_NEW_ARRAY(p->scratch, int, p->model->segments.len);
  for (int s = 0; s < p->model->segments.len; s++) {
    p->first[s] = n;
    n += p->sharding->local[s]->tensors.len * ZP_MAX_RANK;
  }
  p->parent = ZP_NEW_ARRAY(p->scratch, int, n + 1);
  p->exact = ZP_NEW_ARRAY(p->scratch, bool, n + 1);
  p->product = ZP_NEW_ARRAY(p->scratch, bool, n + 1);
  for (int i = 0; i < n; i++) p->parent[i] = i;
  int *first_use = ZP_NEW_ARRAY(p->scratch, int, n_params *ZP_MAX_RANK + 1);
  for (int i = 0; i < n_params * ZP_MAX_RANK; i++) first_use[i] = -1;
  for (p->segment = 0; p->segment < p->model->segments.len; p->segment++) {
    const zp_graph *graph = graph_of(p);
    join_uses(p, first_use);
    for (int t = 0; t < graph->tensors.len; t++) visit_tensor(p, t);
    for (int i = 0; i < graph->nodes.len; i++) visit(p, &graph->nodes.data[i]);
    for (int i = 0; i < graph->carry_out.len; i++) keep(p, graph->carry_out.data[i], -1);
  }
}

/* What is whole 16 bytes stays as it is; no price says that 128 are faster. */
static int64_t padded(int64_t size) {
  int64_t to = size >= WIDE_FROM && size % NARROW ? WIDE : NARROW;
  return (size + to - 1) / to * to;
}

static bool pads(const padder *p, const zp_tensor *t, int tensor, int d) {
  int class = root(p, dimension(p, tensor, d));
  return !p->exact[class] && p->product[class] && padded(t->shape.dim[d]) != t->shape.dim[d];
}

/* Ranks know one dimension of a tensor that is longer here than in the model: the divided one, else the longest. The
 * others stay as they are, here and wherever else they are met: of a product from one such width to another. */
static void pad_one_dimension(padder *p, const zp_tensor *t, int tensor) {
  int chosen = t->split_dim;
  for (int d = 0; d < t->shape.rank && t->split_dim < 0; d++)
    if (pads(p, t, tensor, d) && (chosen < 0 || t->shape.dim[d] > t->shape.dim[chosen])) chosen = d;
  for (int d = 0; d < t->shape.rank; d++)
    if (d != chosen && pads(p, t, tensor, d)) p->exact[root(p, dimension(p, tensor, d))] = true;
}

static void pad_tensor(padder *p, zp_tensor *t, int tensor) {
  for (int d = 0; d < t->shape.rank; d++) {
    if (!pads(p, t, tensor, d)) continue;
    assert(t->split_dim < 0 || t->split_dim == d);
    if (t->split_dim < 0) t->full_dim = t->shape.dim[d];
    t->split_dim = d;
    t->shape.extent[d] = NULL;
    zp_shape_resize(graph_of(p)->arena, &t->shape, d, padded(t->shape.dim[d]));
  }
}

void zp_shard_pad(zp_arena *scratch, const zp_model *model, zp_sharding *sharding) {
  padder p = {.scratch = scratch, .model = model, .sharding = sharding};
  find_classes(&p);
  for (p.segment = 0; p.segment < model->segments.len; p.segment++)
    for (int t = 0; t < graph_of(&p)->tensors.len; t++) pad_one_dimension(&p, &graph_of(&p)->tensors.data[t], t);
  for (p.segment = 0; p.segment < model->segments.len; p.segment++) {
    zp_graph *graph = graph_of(&p);
    for (int t = 0; t < graph->tensors.len; t++) pad_tensor(&p, &graph->tensors.data[t], t);
    assert(!zp_graph_check(graph->arena, graph));
  }
}
