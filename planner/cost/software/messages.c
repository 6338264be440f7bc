/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between stages as the measured software exchanges them. The generated trainer sends alongside computing;
 * Megatron and DeepSpeed wait for every exchange. Both cut a message into one piece a tensor rank, which the receiver
 * gathers over its faster links (scatter-gather, arXiv 2104.04473 section 4.1); DeepSpeed's sender keeps its piece
 * alone and gathers its output again for backward. */
#include <math.h>
#include <zplan/cost.h>
#include "software_cost.h"

/* Times of one micro-batch at one boundary: what its forward part waits for, its backward part, and the sender's
 * own. */
typedef struct exchange {
  double forward_s, backward_s, sender_s;
} exchange;

static exchange exchange_of(const zp_program *program, const zp_machine *machine, const zp_software *software,
                            int64_t k) {
  const zp_choice *c = &program->choice;
  zp_group_link link = zp_machine_pipeline_link(machine, c->tensor, c->pipeline, c->data, c->order);
  double bytes = (double)zp_cost_message_bytes(program, k);
  double whole = zp_cost_message(&link, bytes);
  if (c->tensor == 1 || c->sequence) return (exchange){whole, whole, 0}; /* one rank, or its own rows: nothing to cut */
  zp_group_link tensor = zp_machine_tensor_group(machine, c->tensor, c->pipeline, c->data);
  double gather = zp_cost_ring_pass(&tensor, bytes), pieces = zp_cost_message(&link, bytes / c->tensor) + gather;
  bool cut = software->scatter_gather && link.nodes > 1;
  return (exchange){.forward_s = cut ? pieces : whole,
                    .backward_s = cut && !software->whole_gradients ? pieces : whole,
                    .sender_s = software->partitioned_outputs ? gather : 0};
}

static double end_of(zp_arena *arena, const zp_pipeline_run *run) {
  zp_pipeline_simulate(arena, run, NULL, NULL);
  double end = 0;
  for (int s = 0; s < run->stages; s++) end = fmax(end, run->end_s[s]);
  return end;
}

double zp_software_message_s(zp_arena *arena, const zp_program *program, const zp_machine *machine,
                             const zp_software *software) {
  const zp_choice *c = &program->choice;
  if (c->pipeline == 1 || !software->blocking_messages) return 0;
  zp_pipeline_run ours = zp_cost_pipeline(arena, program, machine), theirs = zp_cost_pipeline(arena, program, machine);
  zp_stage_time *time = (zp_stage_time *)theirs.time; /* both runs are ours to change */
  double *message = (double *)theirs.message_s;
  for (int64_t k = 0; k + 1 < (int64_t)theirs.stages * theirs.chunks; k++) {
    int from_chunk, to_chunk, from = zp_chunk_stage(c, k, &from_chunk), to = zp_chunk_stage(c, k + 1, &to_chunk);
    exchange one = exchange_of(program, machine, software, k);
    time[from * theirs.chunks + from_chunk].forward_s += one.forward_s;
    time[from * theirs.chunks + from_chunk].backward_s += one.sender_s;
    time[to * theirs.chunks + to_chunk].backward_s += one.backward_s;
    message[k] = 0;
  }
  return end_of(arena, &theirs) - end_of(arena, &ours);
}
