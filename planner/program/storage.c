/* SPDX-License-Identifier: Apache-2.0 */
/* Storage of one segment's tensors: which share it, which values of forward are kept for backward, and where in the
 * unit's slot. */
#include "lower_internal.h"

int zp_lower_root(const zp_lowering *l, int tensor) {
  while (l->alias[tensor] >= 0) tensor = l->alias[tensor];
  return tensor;
}

/* Is the storage of `root`, as it was before in-place node `node`, read after that node? */
static bool read_after(const zp_lowering *l, int root, int node) {
  for (int n = node + 1; n < l->graph->nodes.len; n++)
    for (int i = 0; i < l->graph->nodes.data[n].in.len; i++)
      if (zp_lower_root(l, l->graph->nodes.data[n].in.data[i]) == root) return true;
  return false;
}

static bool works_in_place(zp_op op) {
  return op == ZP_OP_ALL_REDUCE || op == ZP_OP_ENTER || op == ZP_OP_GRAD_ALL_REDUCE || op == ZP_OP_CE_GRAD;
}

/* Views share their base's storage; collectives over the tensor axis and the gradient of the logits work in place,
 * where nothing reads the old value later. ENTER changes nothing, so its readers do not matter. */
void zp_lower_find_aliases(zp_lowering *l) {
  const zp_graph *g = l->graph;
  l->alias = ZP_NEW_ARRAY(l->scratch, int, g->tensors.len + 1);
  for (int t = 0; t < g->tensors.len; t++) l->alias[t] = g->tensors.data[t].base;
  for (int n = 0; n < g->nodes.len; n++) {
    const zp_node *node = &g->nodes.data[n];
    if (!works_in_place(node->op)) continue;
    int in = node->in.data[0], out = node->out.data[0];
    bool busy = l->alias[out] >= 0 || (node->op != ZP_OP_ENTER && read_after(l, zp_lower_root(l, in), n));
    if (!busy)
      l->alias[out] = in;
    else if (node->op != ZP_OP_CE_GRAD) /* which can also write somewhere else */
      l->reason =
          zp_format(l->arena, "the partial sum `%s` is read again after it was reduced", g->tensors.data[in].name);
  }
}

void zp_lower_find_saved(zp_lowering *l) {
  const zp_graph *g = l->graph;
  l->saved = ZP_NEW_ARRAY(l->scratch, bool, g->tensors.len + 1);
  l->saved_offset = ZP_NEW_ARRAY(l->scratch, int64_t, g->tensors.len + 1);
  for (int n = g->n_forward; n < g->nodes.len; n++)
    for (int i = 0; i < g->nodes.data[n].in.len; i++) {
      int root = zp_lower_root(l, g->nodes.data[n].in.data[i]);
      const zp_tensor *t = &g->tensors.data[root];
      if (t->role == ZP_ROLE_VALUE && t->producer >= 0 && t->producer < g->n_forward) l->saved[root] = true;
    }
}

int64_t zp_lower_tensor_bytes(const zp_lowering *l, int tensor) {
  const zp_tensor *t = &l->graph->tensors.data[tensor];
  return zp_shape_elements(&t->shape, l->lowered->microbatch) * zp_element_bytes(l->lowered, t->element);
}

void zp_lower_place_saved(zp_lowering *l) {
  int64_t offset = zp_round_up(l->out->carry_kept_elements * l->lowered->compute_bytes, ZP_ALIGN_BYTES);
  for (int t = 0; t < l->graph->tensors.len && !l->recompute; t++) {
    if (!l->saved[t]) continue;
    l->saved_offset[t] = offset;
    offset = zp_round_up(offset + zp_lower_kept_bytes(l, t), ZP_ALIGN_BYTES);
  }
  l->out->saved_bytes = offset;
}
