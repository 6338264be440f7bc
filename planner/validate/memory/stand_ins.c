/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that nobody reads. Where a product adds a weight's gradient to its sum itself, autograd wants a tensor for
 * it all the same. Modules of Transformer Engine give it an empty one in the weight's type, and keep one for every
 * shape of weights that a process has (transformer_engine/pytorch/module/base.py, get_dummy_wgrad, from 2.3 on; of
 * grouped products, an expert's, from 2.10 on; d0067d0d, opened). Megatron's own product, the head's, makes one every
 * time (megatron/core/tensor_parallel/layers.py of d98e8a64, LinearWithGradAccumulationAndAsyncCommunication; opened).
 * Weights that have one operand are one module's: queries, keys and values; gate and other half of an MLP. */
#include "software_memory.h"

typedef struct shape {
  int64_t rows, cols;
} shape;
typedef ZP_VEC(shape) shapes;

static void note(zp_arena *arena, shapes *found, int64_t rows, int64_t cols) {
  for (int i = 0; i < found->len; i++)
    if (found->data[i].rows == rows && found->data[i].cols == cols) return;
  zp_push(arena, found, ((shape){rows, cols}));
}

static bool multiplies_parameter(const zp_graph *graph, const zp_node *node) {
  zp_op_class class = zp_op_get_class(node->op);
  return (class == ZP_CLASS_MATMUL || class == ZP_CLASS_GROUPED) && node->in.len > 1 &&
         graph->tensors.data[node->in.data[1]].role == ZP_ROLE_PARAM;
}

/* Rows and columns of a matrix: of grouped products one expert's. */
static shape shape_of(const zp_graph *graph, const zp_node *node) {
  const zp_shape *w = &graph->tensors.data[node->in.data[1]].shape;
  return (shape){w->dim[w->rank - 2], w->dim[w->rank - 1]};
}

/* The choice of experts is no module's product. */
static bool chooses(const zp_graph *graph, const zp_node *node) {
  for (int n = 0; n < graph->n_forward; n++) {
    const zp_node *gate = &graph->nodes.data[n];
    if (gate->op == ZP_OP_TOP_K_GATE && graph->tensors.data[gate->in.data[0]].producer >= 0 &&
        &graph->nodes.data[graph->tensors.data[gate->in.data[0]].producer] == node)
      return true;
  }
  return false;
}

/* Every module of a layer, at the first product that reads its operand. */
static void note_modules(zp_arena *arena, const zp_graph *graph, shapes *found) {
  for (int n = 0; n < graph->n_forward; n++) {
    const zp_node *node = &graph->nodes.data[n];
    if (!multiplies_parameter(graph, node) || chooses(graph, node)) continue;
    shape own = shape_of(graph, node);
    bool first = true, by_rows = node->attr.trans; /* [out, in]; else [in, out] */
    for (int k = 0; k < graph->n_forward; k++) {
      const zp_node *other = &graph->nodes.data[k];
      bool joins = k != n && multiplies_parameter(graph, other) && other->in.data[0] == node->in.data[0] &&
                   other->attr.trans == by_rows && !chooses(graph, other);
      if (joins && k < n) first = false;
      if (joins)
        *(by_rows ? &own.rows : &own.cols) += by_rows ? shape_of(graph, other).rows : shape_of(graph, other).cols;
    }
    if (first) note(arena, found, by_rows ? own.rows : own.cols, by_rows ? own.cols : own.rows);
  }
}

int64_t zp_software_stand_ins(const asking *a, const zp_stage *stage) {
  zp_arena *arena = a->program->arena;
  zp_arena_mark mark = zp_arena_get_mark(arena);
  shapes found = {0};
  int64_t elements = 0;
  for (int r = 0; a->software->stand_ins && r < stage->runs.len; r++) {
    int segment = stage->runs.data[r].segment;
    if (a->lowered->segments[segment].segment->is_repeat)
      note_modules(arena, a->lowered->sharding->local[segment], &found);
  }
  for (int i = 0; i < found.len; i++) elements += found.data[i].rows * found.data[i].cols;
  zp_arena_rewind(arena, mark);
  return elements * a->lowered->compute_bytes;
}

int64_t zp_software_stand_in_of_head(const asking *a, int segment) {
  const zp_graph *graph = a->lowered->sharding->local[segment];
  int64_t most = 0;
  bool is_layer = a->lowered->segments[segment].segment->is_repeat;
  for (int n = 0; a->software->stand_ins && !is_layer && n < graph->n_forward; n++) {
    if (!multiplies_parameter(graph, &graph->nodes.data[n])) continue;
    shape one = shape_of(graph, &graph->nodes.data[n]);
    if (one.rows * one.cols > most) most = one.rows * one.cols;
  }
  return most * a->lowered->compute_bytes;
}
