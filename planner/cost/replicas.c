/* What data ranks sum and spread once a step, as the trainers do it: gradients with ZeRO 0 and 1, updated weights back
 * with ZeRO 1 and 2, every bucket (a unit's own parameters, a shared one) a collective. In one go: sums of CPU ranks
 * with ZeRO 0; gathers of GPUs, where NCCL starts those of all buckets as one.
 *
 * GPUs sum beside backward of the last micro-batch, where backward is split beside its gradients of weights alone. The
 * last bucket has nothing left to hide behind: that of the stage's first unit, with the shared parameters that it uses,
 * whose gradients wait for it; at least it is counted as long as the mean. 1-bit Adam exchanges momentum after the
 * micro-batches: exposed, as all of it is on CPU ranks. */
#include <math.h>
#include "cost.h"

typedef struct sums {
  double reduce_s, last_s, gather_s; /* last: part of reduce */
} sums;

typedef struct links {
  const zp_lowered *lowered;
  const zp_choice *choice;
  zp_group_link data, replicas; /* of what all data ranks hold, and of what is spread over expert groups */
} links;

static void add_bucket(const links *k, sums *to, bool spread, double elements, double count) {
  const zp_group_link *link = spread ? &k->replicas : &k->data;
  double gradients = elements * k->lowered->grad_bytes;
  int zero = k->choice->zero;
  if (elements <= 0) return;
  if (zero == 0) to->reduce_s += count * zp_cost_all_reduce(link, gradients);
  if (zero == 1) to->reduce_s += count * zp_cost_ring_pass(link, gradients);
  if (zero == 1 || zero == 2) to->gather_s += count * zp_cost_ring_pass(link, elements * k->lowered->param_bytes);
}

static void add_own(const links *k, sums *to, const zp_segment_program *s, double count) {
  add_bucket(k, to, false, (double)s->elements, count);
  add_bucket(k, to, true, (double)s->spread_elements, count);
}

static void add_shared(const links *k, sums *to, int param) {
  add_bucket(k, to, k->lowered->sharding->param[param].spread, (double)k->lowered->param_elements[param], 1);
}

static sums sums_of(const links *k, const zp_stage *stage) {
  sums all = {0}, last = {0};
  for (int r = 0; r < stage->runs.len; r++)
    add_own(k, &all, &k->lowered->segments[stage->runs.data[r].segment], (double)stage->runs.data[r].count);
  for (int i = 0; i < stage->shared.len; i++) add_shared(k, &all, stage->shared.data[i].param);
  if (stage->runs.len == 0) return all;
  const zp_segment_program *first = &k->lowered->segments[stage->runs.data[0].segment];
  add_own(k, &last, first, 1);
  for (int i = 0; i < k->lowered->shared.len; i++)
    if (first->uses_shared[i]) add_shared(k, &last, k->lowered->shared.data[i]);
  all.last_s = last.reduce_s;
  return all;
}

double zp_cost_beside(const zp_choice *choice, const zp_stage_time *time) {
  return zp_schedule_splits(choice->schedule) ? time->weights_s : time->backward_s;
}

double zp_cost_exposed_reduce(const zp_machine *machine, double taken, double reduce_s, double last_s,
                              double backward_s, int64_t units) {
  if (machine->node->device.is_cpu || units < 1) return reduce_s;
  double share = 1.0 / (double)units, last = fmax(last_s, reduce_s * share);
  return fmax(last + taken * (reduce_s - last), reduce_s - backward_s * (1 - share));
}

zp_step_end zp_cost_replicas_end(const zp_program *program, const zp_machine *machine, int stage, double beside_s) {
  const zp_stage *at = &program->stages[stage];
  const zp_lowered *l = zp_program_lowered(program, stage);
  const zp_choice *c = &program->choice;
  zp_step_end end = zp_cost_step_end(l, machine, c, at->flat_elements, at->spread_elements, at->shard_elements);
  if (c->data == 1 || c->compress) return end;
  links k = {l, c, zp_machine_data_group(machine, c->tensor, c->pipeline, c->data, c->order),
             zp_machine_replica_group(machine, c->tensor, c->pipeline, c->data, zp_expert_ranks(c), c->order)};
  sums s = sums_of(&k, at);
  bool cpu = machine->node->device.is_cpu;
  if (!cpu || c->zero > 0)
    end.reduce_s = zp_cost_exposed_reduce(machine, end.taken, s.reduce_s, s.last_s, beside_s, at->n_calls);
  if (cpu) end.gather_s = s.gather_s;
  return end;
}
