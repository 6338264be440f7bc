/* The end of a step: gradients over the data ranks, tied gradients over their stages, the update, and with ZeRO 1 and 2
 * the weights back. Bytes a rank moves in the update, per element of its share (AdamW in f32: 32):
 *   norm:   the gradient is read once
 *   update: gradient, state (moments, master copy) and, without a master copy, weights are read; state and weights are
 *           written.
 *
 * 1-bit compression (arXiv 2102.02888): two phases of one bit an element, an exchange of chunks and a gather, with an
 * f32 scale for every block of elements; packing passes over momentum and error. The steps before the variance freezes,
 * which sum gradients, are not priced.
 *
 * Update on the host (arXiv 2101.06840): gradients down, Adam at the host's memory bandwidth, weights up, and for state
 * on disks a read and a write, bucket after bucket at once; the slowest of these, plus one bucket through all of them.
 * Copying weights up reads them from host memory once more. Gradients that lie on the host are read for the norm before
 * any of this, because clipping needs the norm first. The device updates its own share meanwhile. Left out: the scalar
 * all-reduce of the norm and the loss. */
#include <math.h>
#include "cost.h"

static double update_bytes_per_element(const zp_lowered *lowered) {
  bool master = lowered->compute_bytes == 2;
  return lowered->grad_bytes + 2.0 * lowered->state_bytes + (master ? 1 : 2) * lowered->param_bytes;
}

/* Of every element read or written while the worker packs, the server averages, and the result is unpacked. */
static double packing_s(const zp_machine *machine, double elements, double data) {
  const double f32 = 4, worker = 3 * f32 + f32, server = 3 * f32; /* read momentum and error, write error; unpack */
  return zp_cost_memory_bound(machine, elements * (worker + server / data), 0);
}

/* Of the state off the device, the share whose parameters are on it: either class has its last elements away. */
static double here_of(const zp_choice *c, zp_state other) {
  double state = zp_cost_away(c, ZP_STATE_OPTIMIZER);
  return state > 0 ? fmax(0, 1 - zp_cost_away(c, other) / state) : 0;
}

/* State on the device that updates what is elsewhere: gradients and parameters come up, and parameters go down piece by
 * piece beside the next one. */
static double moved_update_s(const zp_lowered *l, const zp_machine *machine, const zp_choice *c, double elements) {
  double state = zp_cost_away(c, ZP_STATE_OPTIMIZER), params = fmax(0, zp_cost_away(c, ZP_STATE_PARAMS) - state),
         gradients = fmax(0, zp_cost_away(c, ZP_STATE_GRADIENTS) - state);
  double bytes = elements * (params * l->param_bytes + gradients * l->grad_bytes);
  return bytes > 0 ? zp_cost_moving(bytes, zp_cost_host_rates(machine).pcie_bytes_per_s) : 0;
}

/* Time of the share that is updated on the host. `buckets`: how many pieces it goes through in; *pieces_s: all of them
 * on the slowest link alone. */
static double host_update_s(const zp_lowered *l, const zp_machine *machine, const zp_choice *c, double elements,
                            double buckets, double *pieces_s) {
  *pieces_s = 0;
  if (elements <= 0) return 0;
  zp_host_rates rates = zp_cost_host_rates(machine);
  bool disk = c->home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_NVME, master = l->compute_bytes == 2;
  double state = elements * (l->state_bytes + (master ? 0 : l->param_bytes));
  double gradients = elements * l->grad_bytes * here_of(c, ZP_STATE_GRADIENTS),
         weights = elements * l->param_bytes * here_of(c, ZP_STATE_PARAMS);
  const double part[] = {zp_cost_moving(gradients, rates.pcie_bytes_per_s),
                         zp_cost_moving(weights, rates.pcie_bytes_per_s),
                         zp_cost_moving(elements * update_bytes_per_element(l) + weights, rates.host_bytes_per_s),
                         disk ? zp_cost_moving(state, rates.read_bytes_per_s) : 0,
                         disk ? zp_cost_moving(state, rates.write_bytes_per_s) : 0};
  double longest = 0, sum = 0;
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    longest = fmax(longest, part[i]);
    sum += part[i];
  }
  *pieces_s = longest;
  return longest + (sum - longest) / buckets;
}

static double count_buckets(const zp_lowered *l, int64_t flat_elements) {
  int64_t largest = 1;
  for (int s = 0; s < l->n_segments; s++) {
    int64_t elements = l->segments[s].elements + l->segments[s].spread_elements;
    if (elements > largest) largest = elements;
  }
  return fmax(1, (double)(flat_elements / largest));
}

zp_step_end zp_cost_step_update(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                                int64_t flat_elements, int64_t shard_elements) {
  zp_step_end end = {0};
  double away = (double)shard_elements * zp_cost_away(choice, ZP_STATE_OPTIMIZER), here = (double)shard_elements - away;
  double norm_bytes = (double)shard_elements * lowered->grad_bytes,
         norm_away = norm_bytes * zp_cost_away(choice, ZP_STATE_GRADIENTS);
  end.optimizer_s = zp_cost_update(machine, norm_bytes - norm_away, here * update_bytes_per_element(lowered));
  if (choice->compress) end.optimizer_s += packing_s(machine, (double)flat_elements, choice->data);
  double norm = zp_cost_moving(norm_away, zp_cost_host_rates(machine).host_bytes_per_s), pieces;
  double update = host_update_s(lowered, machine, choice, away, count_buckets(lowered, flat_elements), &pieces);
  double moved = moved_update_s(lowered, machine, choice, (double)shard_elements);
  end.offload_s = fmax(0, norm + update - end.optimizer_s) + moved;
  end.least_offload_s = fmax(0, norm + pieces - end.optimizer_s) + moved;
  return end;
}

/* Adds the passes over elements that the ranks of one kind of group hold. */
static void price_passes(zp_step_end *end, const zp_lowered *lowered, const zp_choice *choice,
                         const zp_group_link *link, double elements) {
  double gradients = elements * lowered->grad_bytes, weights = elements * lowered->param_bytes;
  if (choice->zero == 0) end->reduce_s += zp_cost_all_reduce(link, gradients);
  if (choice->zero == 1) end->reduce_s += zp_cost_ring_pass(link, gradients);
  if (choice->zero == 1 || choice->zero == 2) end->gather_s += zp_cost_ring_pass(link, weights);
}

zp_step_end zp_cost_step_end(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                             int64_t flat_elements, int64_t spread_elements, int64_t shard_elements) {
  zp_group_link link = zp_machine_data_group(machine, choice->tensor, choice->pipeline, choice->data, choice->order);
  zp_step_end end = zp_cost_step_update(lowered, machine, choice, flat_elements, shard_elements);
  end.taken = zp_cost_taken(machine, &link); /* replicas of experts: counted alike */
  if (choice->data == 1) return end;
  price_passes(&end, lowered, choice, &link, (double)(flat_elements - spread_elements));
  if (choice->compress)
    end.reduce_s = 2 * zp_cost_ring_pass(&link, (double)flat_elements / ZP_SIGNS_BLOCK * ZP_SIGNS_BLOCK_BYTES);
  if (spread_elements == 0) return end;
  link = zp_machine_replica_group(machine, choice->tensor, choice->pipeline, choice->data, zp_expert_ranks(choice),
                                  choice->order);
  price_passes(&end, lowered, choice, &link, (double)spread_elements);
  return end;
}

double zp_cost_partial(const zp_program *program, const zp_machine *machine, int stage) {
  const zp_choice *c = &program->choice;
  zp_group_link link = zp_machine_tensor_group(machine, c->tensor, c->pipeline, c->data);
  double elements = (double)zp_partial_elements(program, &program->stages[stage]).most;
  return elements > 0 ? zp_cost_all_reduce(&link, elements * program->lowered->grad_bytes) : 0;
}

double zp_cost_ties(const zp_program *program, const zp_machine *machine, int stage) {
  const zp_choice *c = &program->choice;
  double seconds = 0;
  for (int i = 0; i < program->tied.len; i++) {
    const zp_tied *tie = &program->tied.data[i];
    zp_group_link link = zp_machine_pipeline_link(machine, c->tensor, c->pipeline, c->data, c->order);
    link.n = tie->stages.len;
    for (int k = 0; k < tie->stages.len; k++)
      if (tie->stages.data[k] == stage)
        seconds += zp_cost_all_reduce(&link, (double)tie->summed * program->lowered->grad_bytes);
  }
  return seconds;
}
