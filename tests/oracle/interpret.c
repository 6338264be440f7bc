/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter's frame: storage and the order of nodes. Every tensor has an array of its own; what is written to a
 * view is copied to its base, so that readers of either see it. Views of rows, which no node makes, are copied from
 * their base before they are read. */
#include <assert.h>
#include <math.h>
#include "interpret_internal.h"

static double *nan_array(zp_arena *arena, int64_t n) {
  double *array = ZP_NEW_ARRAY(arena, double, n);
  for (int64_t i = 0; i < n; i++) array[i] = NAN;
  return array;
}

zp_interpreter *zp_interpreter_new(zp_arena *arena, const zp_graph *graph, int64_t microbatch) {
  assert(graph && microbatch >= 1);
  zp_interpreter *in = ZP_NEW(arena, zp_interpreter);
  in->graph = graph;
  in->microbatch = microbatch;
  in->loss_scale = 1;
  in->value = ZP_NEW_ARRAY(arena, double *, graph->tensors.len);
  in->param_grad = ZP_NEW_ARRAY(arena, double *, graph->params.len);
  for (int i = 0; i < graph->tensors.len; i++)
    in->value[i] = nan_array(arena, zp_shape_elements(&graph->tensors.data[i].shape, microbatch));
  for (int i = 0; i < graph->params.len; i++) {
    const zp_shape *shape = zp_in_shape(in, graph->params.data[i].tensor);
    in->param_grad[i] = ZP_NEW_ARRAY(arena, double, zp_shape_elements(shape, microbatch));
  }
  return in;
}

/* Elements of a view of rows; *base: where they begin in its base. */
static int64_t find_rows(const zp_interpreter *in, int view, double **base) {
  const zp_tensor *t = &in->graph->tensors.data[view];
  int64_t elements = zp_shape_elements(&t->shape, in->microbatch);
  *base = in->value[t->base] + t->row_part * elements;
  return elements;
}

static void read_rows(zp_interpreter *in, int view) {
  double *base;
  int64_t elements = find_rows(in, view, &base);
  memcpy(in->value[view], base, sizeof(double) * (size_t)elements);
}

static void write_through(zp_interpreter *in, int view) {
  const zp_tensor *t = &in->graph->tensors.data[view];
  if (t->row_parts > 0) {
    double *base;
    int64_t elements = find_rows(in, view, &base);
    memcpy(base, in->value[view], sizeof(double) * (size_t)elements);
    return;
  }
  int64_t rows = zp_shape_rows(&t->shape, in->microbatch), cols = zp_shape_cols(&t->shape);
  int64_t stride = zp_shape_cols(zp_in_shape(in, t->base));
  for (int64_t r = 0; r < rows; r++)
    memcpy(in->value[t->base] + r * stride + t->column, in->value[view] + r * cols, sizeof(double) * (size_t)cols);
}

/* The product alone, then its epilogue as the kernel that it would be otherwise. */
static void interpret_folded(zp_interpreter *in, const zp_node *node) {
  zp_arena_mark mark = zp_arena_get_mark(in->graph->arena);
  zp_node plain = *node, epilogue = zp_epilogue_group(in->graph->arena, node);
  int product = node->product;
  if (node->op != ZP_OP_MATMUL_WGRAD) plain.out = (zp_ints){.data = &product, .len = 1, .cap = 1};
  zp_oracle_get(plain.op)->node(in, &plain);
  if (node->op == ZP_OP_MATMUL)
    zp_interpret_fused(in, &epilogue);
  else
    zp_interpret_fused_grad(in, &epilogue);
  zp_arena_rewind(in->graph->arena, mark);
}

const zp_oracle *zp_oracle_get(zp_op op) {
  static const zp_oracle *const oracles[ZP_OP_COUNT] = {
#define OP(id, ...) &zp_oracle_##id,
#include <zplan/ops.def>
  };
  assert(op < ZP_OP_COUNT);
  return oracles[op];
}

void zp_interpret_node(zp_interpreter *in, const zp_node *node) {
  if (zp_op_get_class(node->op) == ZP_CLASS_MATMUL && node->fused)
    interpret_folded(in, node);
  else
    zp_oracle_get(node->op)->node(in, node);
  for (int i = 0; i < node->out.len; i++)
    if (in->graph->tensors.data[node->out.data[i]].base >= 0) write_through(in, node->out.data[i]);
}

void zp_interpret(zp_interpreter *in, int first, int last) {
  assert(first >= 0 && first <= last && last <= in->graph->nodes.len);
  for (int i = first; i < last; i++) {
    const zp_node *node = &in->graph->nodes.data[i];
    for (int k = 0; k < node->in.len; k++)
      if (in->graph->tensors.data[node->in.data[k]].row_parts > 0) read_rows(in, node->in.data[k]);
    zp_interpret_node(in, node);
  }
}
