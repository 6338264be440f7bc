/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that a measured program takes after the micro-batches, or between them: gradients are added, reduced, their
 * norm is taken, and the update is made from copies of them. */
#include "software_memory.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Elements of the stage's largest parameter. */
static int64_t largest_of(const asking *a, const zp_stage *stage) {
  int64_t largest = 0;
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_segment_program *segment = &a->lowered->segments[stage->runs.data[r].segment];
    for (int i = 0; i < segment->graph->params.len; i++) {
      int64_t elements = a->lowered->param_elements[segment->graph->params.data[i].param];
      if (elements > largest) largest = elements;
    }
  }
  return largest;
}

zp_temporaries zp_software_temporaries(const asking *a, const zp_stage *stage) {
  const zp_software *software = a->software;
  const zp_choice *c = &a->program->choice;
  bool updates = c->home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_DEVICE;
  int64_t largest = largest_of(a, stage), copies = updates ? software->update_copies : 0;
  int64_t bucket = min64(software->reduce_bucket, zp_flat_trained(&stage->flat)) * a->lowered->compute_bytes;
  return (zp_temporaries){
      .sum = largest * software->sum_bytes,
      .reduce = zp_flat_trained(&stage->flat) * software->reduce_copy + bucket,
      .norm = updates ? min64(largest, zp_flat_trained(&stage->shard)) * software->norm_bytes : 0,
      .flat = updates ? zp_flat_trained(&stage->shard) * software->flat_copies : 0,
      .update = zp_flat_trained(&stage->shard) * (zp_shards_state(c) ? min64(copies, 4) : copies),
  };
}
