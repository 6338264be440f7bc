/* SPDX-License-Identifier: Apache-2.0 */
/* Kept values in 8 or 4 bits. A value that backward reads only as the operand of weights' gradients, whose products are
 * in 8 or 4 bits, is kept as these products read it, with its scales.
 *
 * zplan's own trainer rounds it along the sum of the weight's gradient, down the tokens. So backward finds the very
 * numbers that it would have rounded from 16 bits.
 *
 * Other programs, by Transformer Engine (transformer_engine/pytorch/module/linear.py, grouped_linear.py; opened):
 * modules, those of experts too, save the columnwise cast of their input alone, and where it is gathered along the
 * sequence the cast of the rank's share, which backward gathers again. A value that other nodes of backward read in 16
 * bits is kept so once; Transformer Engine keeps a cast of it besides. */
#include <string.h>
#include "lower_internal.h"

static const zp_software *software_of(const zp_lowering *l) { return l->lowered->spec->cluster.software; }

static const char *recipe_of(const zp_lowering *l) {
  const zp_train *train = &l->lowered->spec->train;
  bool own = software_of(l) == NULL;
  if (own && !zp_precision_rounded(train->precision, ZP_SIDE_VALUE)) return NULL;
  return zp_precision_recipe(train->precision);
}

/* Does the node read its input i, the operand of a weight's gradient, in 8 or 4 bits? */
static bool reads_operand(const zp_lowering *l, const zp_node *node, int i) {
  enum { OPERAND = 1 }; /* of (dy, x) */
  if (i != OPERAND) return false;
  if (node->op == ZP_OP_MATMUL_WGRAD) return node->attr.float8;
  return node->op == ZP_OP_BATCHED_MATMUL_WGRAD && software_of(l) && l->out->segment->is_repeat;
}

/* The tensor is its storage, row by row. */
static bool is_whole(const zp_lowering *l, int tensor, int root) {
  const zp_shape *t = &l->graph->tensors.data[tensor].shape, *whole = &l->graph->tensors.data[root].shape;
  return zp_shape_cols(t) == zp_shape_cols(whole) && zp_shape_elements(t, 1) == zp_shape_elements(whole, 1);
}

static bool is_storage_alone(const zp_node *node) {
  return zp_op_get_class(node->op) == ZP_CLASS_VIEW || node->op == ZP_OP_ENTER;
}

/* The tensor at `root` that nodes from `first` on read as an operand, where none reads anything else of it; -1. Of
 * other programs a gather may stand between. */
static int operand_at(const zp_lowering *l, int root, int first) {
  const zp_graph *g = l->graph;
  int found = -1;
  for (int n = first; n < g->nodes.len; n++) {
    const zp_node *node = &g->nodes.data[n];
    for (int i = 0; i < node->in.len; i++) {
      int tensor = node->in.data[i];
      if (zp_lower_root(l, tensor) != root || is_storage_alone(node)) continue;
      bool gathers = node->op == ZP_OP_ALL_GATHER_SEQ && software_of(l);
      bool operand =
          gathers ? operand_at(l, zp_lower_root(l, node->out.data[0]), n + 1) >= 0 : reads_operand(l, node, i);
      if (!operand || !is_whole(l, tensor, root)) return -1;
      found = tensor;
    }
  }
  return found;
}

void zp_lower_find_operands(zp_lowering *l) {
  const zp_graph *g = l->graph;
  l->operand = ZP_NEW_ARRAY(l->scratch, int, g->tensors.len + 1);
  memset(l->operand, 0xff, sizeof *l->operand * ((size_t)g->tensors.len + 1)); /* -1 */
  if (!recipe_of(l) || l->recompute) return;
  for (int t = 0; t < g->tensors.len; t++) {
    if (!l->saved[t] || g->tensors.data[t].element != ZP_ELEM_FLOAT) continue;
    l->operand[t] = operand_at(l, t, g->n_forward - g->n_loss);
    l->keeps_operands |= l->operand[t] >= 0;
  }
}

int64_t zp_lower_kept_bytes(const zp_lowering *l, int tensor) {
  if (l->operand[tensor] < 0) return zp_lower_tensor_bytes(l, tensor);
  const zp_shape *shape = &l->graph->tensors.data[tensor].shape;
  return zp_recipe_operand_bytes(recipe_of(l), zp_shape_rows(shape, l->lowered->microbatch), zp_shape_cols(shape));
}

int zp_lower_operand_buffer(zp_lowering *l, zp_procedure *p, int tensor) {
  const zp_tensor *t = &l->graph->tensors.data[tensor];
  int64_t rows = zp_shape_rows(&t->shape, l->lowered->microbatch), cols = zp_shape_cols(&t->shape);
  return zp_lower_add_buffer(l, p,
                             (zp_buffer){.name = zp_format(l->details, "%s.operand", t->name),
                                         .place = ZP_AT_SAVED,
                                         .element = ZP_ELEM_FLOAT,
                                         .operand = true,
                                         .rows = rows,
                                         .cols = cols,
                                         .ld = cols,
                                         .offset = l->saved_offset[tensor],
                                         .bytes = zp_lower_kept_bytes(l, tensor),
                                         .base = -1,
                                         .tensor = l->operand[tensor],
                                         .index = -1});
}

/* The storage of operand i of a node, results after inputs. */
static int storage_of(const zp_lowering *l, const zp_node *node, int i) {
  return zp_lower_root(l, i < node->in.len ? node->in.data[i] : node->out.data[i - node->in.len]);
}

/* Has forward done with what lies at `root`, but for what it keeps, once node n has run? */
static bool is_last(const zp_lowering *l, int root, int n) {
  const zp_graph *g = l->graph;
  for (int k = n + 1; k < g->n_forward; k++) {
    const zp_node *node = &g->nodes.data[k];
    if (is_storage_alone(node)) continue;
    for (int i = 0; i < node->in.len + node->out.len; i++)
      if (storage_of(l, node, i) == root) return false;
  }
  return true;
}

static void keep_operand(zp_lowering *l, zp_procedure *p, int wide, int tensor) {
  zp_step step = {.kind = ZP_STEP_KEEP_OPERAND, .workspace = -1};
  int kept = zp_lower_operand_buffer(l, p, tensor);
  const zp_buffer *from = &p->buffers.data[wide], *to = &p->buffers.data[kept];
  zp_push(l->details, &step.in, wide);
  zp_push(l->details, &step.out, kept);
  step.elements = from->rows * from->cols;
  step.bytes = (double)(step.elements * l->lowered->compute_bytes + to->bytes);
  zp_push(l->scratch, &p->steps, step);
}

void zp_lower_keep_operands(zp_lowering *l, zp_procedure *p, int *buffer_of, int n) {
  const zp_node *node = &l->graph->nodes.data[n];
  for (int i = 0; i < node->in.len + node->out.len; i++) {
    int root = storage_of(l, node, i);
    bool before = false;
    for (int k = 0; k < i; k++) before |= storage_of(l, node, k) == root;
    if (l->operand[root] >= 0 && !before && is_last(l, root, n))
      keep_operand(l, p, zp_lower_buffer(l, p, buffer_of, root), root);
  }
}
