/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a model's operations, whatever the plan: a run that goes on from a checkpoint tells with it whether the
 * model between the same parameters is still the same one. */
#include "decode.h"
#include <zplan/hash.h>

static uint64_t add_text(uint64_t hash, const char *text) { return zp_hash(hash, text, strlen(text) + 1); }

const char *zp_model_hash(const zp_emit *e) {
  uint64_t hash = ZP_HASH_START;
  for (int s = 0; s < e->model->segments.len; s++) {
    const zp_segment *segment = &e->model->segments.data[s];
    hash = zp_hash(hash, &segment->count, sizeof segment->count);
    hash = add_text(hash, zp_graph_text(e->arena, segment->graph));
    for (int i = 0; i < segment->graph->nodes.len; i++) hash = zp_node_hash(hash, &segment->graph->nodes.data[i]);
  }
  return zp_format(e->arena, "%016llx", (unsigned long long)hash);
}
