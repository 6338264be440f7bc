/* Messages between stages as the measured software exchanges them. The generated trainer sends beside computing;
 * Megatron and DeepSpeed wait for every exchange, and Megatron-LM cuts a message into one piece a tensor rank, which
 * the receiver gathers over its faster links (scatter-gather, arXiv 2104.04473 section 4.1). */
#include <math.h>
#include "../cost/cost.h"
#include "validate_internal.h"

static double message_s(const zp_program *program, const zp_machine *machine, const zp_software *software, int64_t k) {
  const zp_choice *c = &program->choice;
  zp_group_link link = zp_machine_pipeline_link(machine, c->tensor, c->pipeline, c->data, c->order);
  double bytes = (double)zp_cost_carry_elements(program->lowered, c, k) * program->lowered->compute_bytes;
  if (c->tensor == 1 || link.nodes == 1) return zp_cost_message(&link, bytes);
  zp_group_link tensor = zp_machine_tensor_group(machine, c->tensor, c->pipeline, c->data);
  if (c->sequence) /* every rank has its own rows: nothing to cut, nothing to gather */
    return zp_cost_message(&link, bytes);
  if (!software->scatter_gather) return zp_cost_message(&link, bytes);
  return zp_cost_message(&link, bytes / c->tensor) + zp_cost_ring_pass(&tensor, bytes);
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
    double seconds = message_s(program, machine, software, k);
    time[from * theirs.chunks + from_chunk].forward_s += seconds;
    time[to * theirs.chunks + to_chunk].backward_s += seconds;
    message[k] = 0;
  }
  return end_of(arena, &theirs) - end_of(arena, &ours);
}
