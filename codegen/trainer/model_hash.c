/* The name of a model's operations, whatever the plan: a run that goes on from a checkpoint tells with it whether the
 * model between the same parameters is still the same one. */
#include "decode.h"
#include <zplan/hash.h>

static uint64_t add_text(uint64_t hash, const char *text) { return zp_hash(hash, text, strlen(text) + 1); }

/* What the text of a graph leaves out of a node. */
static uint64_t add_attributes(uint64_t hash, const zp_op_attr *a) {
  const double numbers[] = {a->value,    a->eps,     a->rate,      a->scale,  a->theta,
                            a->capacity, a->balance, a->bias_rate, a->softcap};
  const int64_t counts[] = {a->heads,   a->kv_heads,  a->head_size,  a->parts,       a->top_k,        a->experts,
                            a->window,  a->groups,    a->top_groups, a->alibi_heads, a->max_distance, a->begin,
                            a->count,   a->trans,     a->tanh_form,  a->causal,      a->interleaved,  a->normalize,
                            a->sigmoid, a->documents, a->cross,      a->last,        a->reduction};
  const double loss[] = {a->smoothing, a->z_loss};
  hash = zp_hash(zp_hash(hash, numbers, sizeof numbers), counts, sizeof counts);
  /* Only where they are set: other models keep the hash that their checkpoints have. */
  if (a->smoothing != 0 || a->z_loss != 0) hash = zp_hash(hash, loss, sizeof loss);
  return a->windows ? zp_hash(hash, a->windows, sizeof *a->windows) : hash;
}

const char *zp_model_hash(const zp_emit *e) {
  uint64_t hash = ZP_HASH_START;
  for (int s = 0; s < e->model->segments.len; s++) {
    const zp_segment *segment = &e->model->segments.data[s];
    hash = zp_hash(hash, &segment->count, sizeof segment->count);
    hash = add_text(hash, zp_graph_text(e->arena, segment->graph));
    for (int i = 0; i < segment->graph->nodes.len; i++)
      hash = add_attributes(hash, &segment->graph->nodes.data[i].attr);
  }
  return zp_format(e->arena, "%016llx", (unsigned long long)hash);
}
