/* SPDX-License-Identifier: Apache-2.0 */
/* zp_graph_infer_parts: the natural units of every dimension, as a fixed point over the ops.
 *
 * A dimension of n elements is [outer][units][unit size]. (1, n) says nothing: single elements. Two requirements on one
 * dimension meet in the coarser one; where neither refines the other there is nothing to split by, written (1, 1). */
#include <assert.h>
#include "ops.h"

struct zp_parts_pass {
  zp_graph *graph;
  bool changed;
};

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

zp_parts zp_parts_whole(void) { return (zp_parts){1, 1}; }

/* Both cut the dimension at multiples of their unit sizes inside each of their outer slices; so the result has the
 * larger outer, if a multiple of the smaller, and the least common multiple of the unit sizes. */
static zp_parts meet(zp_parts a, zp_parts b, int64_t n) {
  int64_t outer = a.outer > b.outer ? a.outer : b.outer;
  if (outer % a.outer || outer % b.outer || n % outer) return zp_parts_whole();
  int64_t size_a = n / (a.outer * a.units), size_b = n / (b.outer * b.units);
  int64_t size = size_a / gcd(size_a, size_b) * size_b;
  if ((n / outer) % size) return zp_parts_whole();
  zp_parts result = {outer, n / outer / size};
  return result.units == 1 ? zp_parts_whole() : result;
}

const zp_shape *zp_parts_shape(const zp_parts_pass *pass, int id) { return &pass->graph->tensors.data[id].shape; }
zp_parts *zp_parts_of(const zp_parts_pass *pass, int id, int dim) { return &pass->graph->tensors.data[id].parts[dim]; }

void zp_parts_require(zp_parts_pass *pass, int id, int dim, zp_parts want) {
  int64_t n = zp_parts_shape(pass, id)->dim[dim];
  if (n == ZP_DIM_B) return;
  zp_parts *have = zp_parts_of(pass, id, dim);
  zp_parts met = n % (want.outer * want.units) ? zp_parts_whole() : meet(*have, want, n);
  if (met.outer == have->outer && met.units == have->units) return;
  *have = met;
  pass->changed = true;
}

void zp_parts_tie(zp_parts_pass *pass, int a, int dim_a, int b, int dim_b) {
  zp_parts_require(pass, a, dim_a, *zp_parts_of(pass, b, dim_b));
  zp_parts_require(pass, b, dim_b, *zp_parts_of(pass, a, dim_a));
}

int zp_parts_last_dim(const zp_parts_pass *pass, int id) { return zp_parts_shape(pass, id)->rank - 1; }

void zp_parts_tie_trailing(zp_parts_pass *pass, int a, int b, int skip) {
  int da = zp_parts_last_dim(pass, a) - skip, db = zp_parts_last_dim(pass, b) - skip;
  for (; da >= 0 && db >= 0; da--, db--) zp_parts_tie(pass, a, da, b, db);
}

void zp_parts_of_rows(zp_parts_pass *pass, const zp_node *node) {
  for (int i = 0; i < node->in.len; i++) zp_parts_tie_trailing(pass, node->in.data[i], node->out.data[0], 0);
}

void zp_parts_of_columns(zp_parts_pass *pass, const zp_node *node) {
  int y = node->out.data[0];
  zp_parts_tie(pass, node->in.data[0], 2, y, zp_parts_last_dim(pass, y));
}

void zp_parts_of_positions(zp_parts_pass *pass, const zp_node *node) {
  zp_parts_tie(pass, node->in.data[0], 1, node->out.data[0], 1);
}

void zp_graph_infer_parts(zp_graph *graph) {
  assert(zp_graph_is_forward(graph));
  zp_parts_pass pass = {graph, true};
  for (int t = 0; t < graph->tensors.len; t++)
    for (int d = 0; d < graph->tensors.data[t].shape.rank; d++) {
      int64_t n = graph->tensors.data[t].shape.dim[d];
      graph->tensors.data[t].parts[d] = (zp_parts){1, n == ZP_DIM_B ? 1 : n};
    }
  while (pass.changed) { /* every change makes a dimension coarser, so this ends */
    pass.changed = false;
    for (int i = 0; i < graph->nodes.len; i++) {
      const zp_node *node = &graph->nodes.data[i];
      assert(zp_op_get_row(node->op)->parts); /* a logical graph */
      zp_op_get_row(node->op)->parts(&pass, node);
    }
  }
}
