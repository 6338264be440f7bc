/* zp_graph_infer_parts: the natural units of every dimension, as a fixed point over the ops.
 *
 * A dimension of n elements is [outer][units][unit size]. (1, n) says nothing: single elements. Two requirements on one
 * dimension meet in the coarser one; where neither refines the other there is nothing to split by, written (1, 1). */
#include <assert.h>
#include "graph_internal.h"

typedef struct parts_pass {
  zp_graph *graph;
  bool changed;
} parts_pass;

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static zp_parts bottom(void) { return (zp_parts){1, 1}; }

/* Both cut the dimension at multiples of their unit sizes inside each of their outer slices; so the result has the
 * larger outer, if a multiple of the smaller, and the least common multiple of the unit sizes. */
static zp_parts meet(zp_parts a, zp_parts b, int64_t n) {
  int64_t outer = a.outer > b.outer ? a.outer : b.outer;
  if (outer % a.outer || outer % b.outer || n % outer) return bottom();
  int64_t size_a = n / (a.outer * a.units), size_b = n / (b.outer * b.units);
  int64_t size = size_a / gcd(size_a, size_b) * size_b;
  if ((n / outer) % size) return bottom();
  zp_parts result = {outer, n / outer / size};
  return result.units == 1 ? bottom() : result;
}

static zp_shape *shape_of(const parts_pass *pass, int id) { return &pass->graph->tensors.data[id].shape; }
static zp_parts *parts_of(const parts_pass *pass, int id, int dim) { return &pass->graph->tensors.data[id].parts[dim]; }

/* Meets the parts of one dimension with a requirement, if its size allows the requirement at all. */
static void require(parts_pass *pass, int id, int dim, zp_parts want) {
  int64_t n = shape_of(pass, id)->dim[dim];
  if (n == ZP_DIM_B) return;
  zp_parts *have = parts_of(pass, id, dim);
  zp_parts met = n % (want.outer * want.units) ? bottom() : meet(*have, want, n);
  if (met.outer == have->outer && met.units == have->units) return;
  *have = met;
  pass->changed = true;
}

static void tie(parts_pass *pass, int a, int dim_a, int b, int dim_b) {
  require(pass, a, dim_a, *parts_of(pass, b, dim_b));
  require(pass, b, dim_b, *parts_of(pass, a, dim_a));
}

static int last_dim(const parts_pass *pass, int id) { return shape_of(pass, id)->rank - 1; }

/* The trailing dimensions that both have; `skip` 1 leaves the last one out. */
static void tie_trailing(parts_pass *pass, int a, int b, int skip) {
  int da = last_dim(pass, a) - skip, db = last_dim(pass, b) - skip;
  for (; da >= 0 && db >= 0; da--, db--) tie(pass, a, da, b, db);
}

/* Attention maps unit to unit: the same number of units everywhere, of different sizes. */
static void tie_attention(parts_pass *pass, const zp_node *node) {
  int ids[4] = {node->in.data[0], node->out.data[0], node->in.data[1], node->in.data[2]};
  int bias = zp_attention_bias(node);
  for (int i = 0; i < 4; i++) {
    require(pass, ids[i], 2, (zp_parts){1, node->attr.kv_heads});
    tie(pass, ids[0], 2, ids[i], 2);
    tie(pass, node->attr.cross && i > 1 ? ids[2] : ids[0], 1, ids[i], 1);
  }
  if (bias < 0) return;
  require(pass, bias, 1, (zp_parts){1, node->attr.kv_heads});
  tie(pass, ids[0], 2, bias, 1);
}

/* Heads of so many columns each, here and there, at the same positions. */
static void tie_heads(parts_pass *pass, const zp_node *node) {
  int y = node->out.data[0];
  require(pass, y, 2, (zp_parts){1, node->attr.heads});
  for (int i = 0; i < node->in.len; i++) {
    require(pass, node->in.data[i], 2, (zp_parts){1, node->attr.heads});
    tie(pass, node->in.data[i], 2, y, 2);
    tie(pass, node->in.data[i], 1, y, 1);
  }
}

/* Only shares of the positions go through another shape, and those are equal. */
static void tie_reshaped(parts_pass *pass, int x, int y) {
  require(pass, x, last_dim(pass, x), bottom());
  require(pass, y, last_dim(pass, y), bottom());
}

static void tie_split(parts_pass *pass, const zp_node *node) {
  int whole = node->in.data[0], dim = last_dim(pass, whole);
  int64_t parts = node->attr.parts, n = shape_of(pass, whole)->dim[dim];
  require(pass, whole, dim, (zp_parts){parts, n / parts});
  for (int i = 0; i < node->out.len; i++) {
    int view = node->out.data[i];
    zp_parts *v = parts_of(pass, view, dim), *w = parts_of(pass, whole, dim);
    require(pass, whole, dim, v->units == 1 ? bottom() : (zp_parts){parts * v->outer, v->units});
    require(pass, view, dim, w->outer % parts ? bottom() : (zp_parts){w->outer / parts, w->units});
    tie_trailing(pass, whole, view, 1);
  }
}

static void visit(parts_pass *pass, const zp_node *node) {
  int x = node->in.data[0], y = node->out.data[0];
  switch (node->op) {
  case ZP_OP_EMBEDDING:
    tie(pass, node->in.data[1], 1, y, 2);
    tie(pass, x, 1, y, 1);
    break;
  case ZP_OP_MATMUL:
    tie(pass, node->in.data[1], node->attr.trans ? 1 : 0, x, last_dim(pass, x));
    tie(pass, node->in.data[1], node->attr.trans ? 0 : 1, y, last_dim(pass, y));
    tie_trailing(pass, x, y, 1);
    break;
  case ZP_OP_SPLIT: tie_split(pass, node); break;
  case ZP_OP_ATTENTION: tie_attention(pass, node); break;
  case ZP_OP_MEAN:
  case ZP_OP_SLICE: tie(pass, x, 2, y, last_dim(pass, y)); break;
  case ZP_OP_COLUMN:
  case ZP_OP_REDUCE_COLUMNS: tie(pass, x, 1, y, 1); break;
  case ZP_OP_REDUCE:
  case ZP_OP_GATHER: tie(pass, x, 2, y, last_dim(pass, y)); break;
  case ZP_OP_COLUMNS:
  case ZP_OP_JOIN_COLUMNS: tie_heads(pass, node); break;
  case ZP_OP_REPEAT_COLUMNS:
    require(pass, y, 2, (zp_parts){1, node->attr.heads});
    tie(pass, x, 1, y, 1);
    break;
  case ZP_OP_UNFOLD: tie(pass, y, 2, x, 2); break; /* a channel is a column for every place of a window */
  case ZP_OP_RESHAPE: tie_reshaped(pass, x, y); break;
  case ZP_OP_TRANSPOSE:
    tie(pass, x, 1, y, 2);
    tie(pass, x, 2, y, 1);
    break;
  case ZP_OP_CONCAT:
    for (int i = 0; i < node->in.len; i++) tie(pass, node->in.data[i], last_dim(pass, node->in.data[i]), y, 2);
    break;
  case ZP_OP_TOP_K_GATE: tie_trailing(pass, x, y, 1); break;
  case ZP_OP_DISPATCH: tie(pass, x, 2, y, 3); break;
  case ZP_OP_COMBINE: tie(pass, x, 3, y, 2); break;
  case ZP_OP_BATCHED_MATMUL:
    tie(pass, node->in.data[1], 0, x, 1);
    tie(pass, node->in.data[1], node->attr.trans ? 2 : 1, x, 3);
    tie(pass, node->in.data[1], node->attr.trans ? 1 : 2, y, 3);
    tie_trailing(pass, x, y, 1);
    break;
  case ZP_OP_CROSS_ENTROPY:
    if (shape_of(pass, x)->rank == 3) tie(pass, x, 1, node->in.data[1], 1);
    break;
  case ZP_OP_SQUARED_ERROR: break;
  default:
    assert(zp_op_is_row(node->op)); /* a logical graph */
    if (zp_op_row_parts(node) > 1) {
      require(pass, x, 2, (zp_parts){1, node->attr.heads});
      tie_trailing(pass, x, y, 0);
      break;
    }
    if (node->op == ZP_OP_ROPE) require(pass, x, 2, (zp_parts){1, node->attr.heads});
    for (int i = 0; i < node->in.len; i++) tie_trailing(pass, node->in.data[i], y, 0);
  }
}

void zp_graph_infer_parts(zp_graph *graph) {
  assert(zp_graph_is_forward(graph));
  parts_pass pass = {graph, true};
  for (int t = 0; t < graph->tensors.len; t++)
    for (int d = 0; d < graph->tensors.data[t].shape.rank; d++) {
      int64_t n = graph->tensors.data[t].shape.dim[d];
      graph->tensors.data[t].parts[d] = (zp_parts){1, n == ZP_DIM_B ? 1 : n};
    }
  while (pass.changed) { /* every change makes a dimension coarser, so this ends */
    pass.changed = false;
    for (int i = 0; i < graph->nodes.len; i++) visit(&pass, &graph->nodes.data[i]);
  }
}
