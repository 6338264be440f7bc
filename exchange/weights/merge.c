/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of a checkpoint: which weight each belongs to, and what it adds. */
#include "weights_internal.h"

#include <stdlib.h>

/* Is the weight stored [out, in]? */
static bool is_transposed(const zp_model *model, const zp_adapter *adapter) {
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *g = model->segments.data[s].graph;
    for (int n = 0; n < g->nodes.len; n++) {
      const zp_node *node = &g->nodes.data[n];
      if (node->op != adapter->of) continue;
      const zp_tensor *w = &g->tensors.data[node->in.data[1]];
      if (w->role == ZP_ROLE_PARAM && w->index == adapter->weight) return node->attr.trans;
    }
  }
  return false;
}

const zp_merges *zp_merges_of(zp_arena *arena, const zp_model *model) {
  zp_merges *list = ZP_NEW(arena, zp_merges);
  for (int i = 0; i < model->adapters.len; i++) {
    const zp_adapter *x = &model->adapters.data[i];
    const zp_param *w = &model->params.data[x->weight], *a = &model->params.data[x->a], *b = &model->params.data[x->b];
    bool trans = is_transposed(model, x);
    int64_t count = w->segment < 0 ? 1 : model->segments.data[w->segment].count;
    int first = w->shape.rank - 2; /* before it: experts */
    for (int64_t n = 0; n < count; n++) {
      zp_merge merge = {.weight = zp_param_instance_name(arena, w, n),
                        .a = zp_param_instance_name(arena, a, n),
                        .b = zp_param_instance_name(arena, b, n),
                        .in = w->shape.dim[first + trans],
                        .out = w->shape.dim[first + !trans],
                        .rank = a->shape.dim[first + !trans],
                        .trans = trans,
                        .lookup = x->of == ZP_OP_EMBEDDING,
                        .experts = x->of == ZP_OP_BATCHED_MATMUL,
                        .scale = x->scale};
      zp_push(arena, list, merge);
    }
  }
  return list;
}

const zp_merge *zp_merge_of(const zp_merges *merges, const char *weight) {
  for (int i = 0; i < merges->len; i++)
    if (strcmp(merges->data[i].weight, weight) == 0) return &merges->data[i];
  return NULL;
}

/* Row i of a[in, rank] and column o of b[rank, out], whichever way they are stored. */
static double product(const zp_merge *m, const double *a, const double *b, int64_t i, int64_t o) {
  double sum = 0;
  for (int64_t r = 0; r < m->rank; r++)
    sum += m->trans ? a[r * m->in + i] * b[o * m->rank + r] : a[i * m->rank + r] * b[r * m->out + o];
  return sum;
}

bool zp_merge_add(zp_arena *arena, zp_diags *diags, const zp_weight_folder *checkpoint, const zp_merge *m,
                  int64_t first, int64_t count, double *values) {
  double *a = zp_weights_read_all(diags, checkpoint, zp_weights_source(arena, checkpoint, m->a, true));
  double *b = a ? zp_weights_read_all(diags, checkpoint, zp_weights_source(arena, checkpoint, m->b, true)) : NULL;
  for (int64_t k = 0; b && k < count; k++) {
    int64_t all = m->in * m->out, expert = (first + k) / all, e = (first + k) % all, row = m->trans ? m->in : m->out;
    const double *own_a = a + expert * m->in * m->rank, *own_b = b + expert * m->rank * m->out;
    int64_t i = m->trans ? e % row : e / row, o = m->trans ? e / row : e % row;
    values[k] += m->scale * product(m, own_a, own_b, i, o);
  }
  free(a);
  free(b);
  return b != NULL;
}
