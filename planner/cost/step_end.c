/* The end of a step: gradients over the data ranks, tied gradients over their stages, the update, and with ZeRO-1 the
 * weights back. Bytes a rank moves in the update, per element of its share (AdamW in f32: 32):
 *   norm:   the gradient is read once
 *   update: gradient, state (moments, master copy) and, without a master copy, weights are read; state and weights are
 *           written.
 * Left out: the scalar all-reduce of the norm and the loss (a few latencies). */
#include "cost.h"

static double bytes_per_element(const zp_lowered *lowered) {
  bool master = lowered->compute_bytes == 2;
  return 2.0 * lowered->grad_bytes + 2.0 * lowered->state_bytes + (master ? 1 : 2) * lowered->param_bytes;
}

zp_step_end zp_cost_step_end(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                             int64_t flat_elements, int64_t shard_elements) {
  zp_group_link link = zp_machine_data_group(machine, choice->tensor, choice->pipeline, choice->data);
  double gradients = (double)flat_elements * lowered->grad_bytes,
         weights = (double)flat_elements * lowered->param_bytes;
  zp_step_end end = {0};
  end.optimizer_s = zp_cost_memory_bound(machine, (double)shard_elements * bytes_per_element(lowered), 0);
  if (choice->data > 1 && choice->zero == 0) end.reduce_s = zp_cost_all_reduce(&link, gradients);
  if (choice->data > 1 && choice->zero > 0) {
    end.reduce_s = zp_cost_ring_pass(&link, gradients);
    end.gather_s = zp_cost_ring_pass(&link, weights);
  }
  return end;
}

double zp_cost_ties(const zp_program *program, const zp_machine *machine, int stage) {
  const zp_choice *c = &program->choice;
  double seconds = 0;
  for (int i = 0; i < program->tied.len; i++) {
    const zp_tied *tie = &program->tied.data[i];
    zp_group_link link = zp_machine_pipeline_link(machine, c->tensor, c->pipeline, c->data);
    link.n = tie->stages.len;
    for (int k = 0; k < tie->stages.len; k++)
      if (tie->stages.data[k] == stage)
        seconds += zp_cost_all_reduce(&link, (double)tie->elements * program->lowered->grad_bytes);
  }
  return seconds;
}
