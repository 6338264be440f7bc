/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a step: gradients over the data ranks, tied gradients over their stages, the update, and with ZeRO 1 and 2
 * the weights back. What moves, and when, is the list's (zplan/moves.h); what only a share of the steps has counts by
 * it, so a price is of the average step (moves/one_bit.c says of which).
 *
 * Update on the host (arXiv 2101.06840): gradients down, Adam at the host's memory bandwidth, weights up, and for state
 * on disks a read and a write, bucket after bucket at once; the slowest of these, plus one bucket through all of them.
 * Optimizers that need lengths of tensors pass twice, one after the other. Whatever else the host copies at its update
 * is added, as if it moved alongside the pieces. Copying weights up reads them from host memory once more. Gradients
 * that lie on the host are read for the norm before any of this, because clipping needs the norm first. The device
 * updates its own share meanwhile. Left out: the scalar all-reduce of the norm and the loss. */
#include <assert.h>
#include <math.h>
#include <zplan/cost.h>

/* What a stage moves once a step: seconds of collectives, bytes of copies by queue. */
typedef struct ending {
  const zp_machine *machine;
  const zp_choice *choice;
  bool sums;   /* collectives, too */
  bool leaves; /* something is off the device */
  int64_t norm[ZP_QUEUE_COUNT], on_device[ZP_QUEUE_COUNT], packed;
  int64_t on_host[ZP_QUEUE_COUNT], lengths[ZP_QUEUE_COUNT]; /* of the update, of a pass before it */
  int64_t overlapped_next;
  int64_t overlapped_sums[ZP_QUEUE_COUNT],
      overlapped_gather[ZP_QUEUE_COUNT]; /* bucket by bucket, alongside the collectives */
  double reduce_s, gather_s;
} ending;

static void add_collective(ending *e, const zp_move *m) {
  zp_group_link link = zp_cost_link_of(e->machine, e->choice, zp_move_peers(m));
  *(m->when == ZP_WHEN_AFTER_UPDATE ? &e->gather_s : &e->reduce_s) += m->share * zp_cost_collective(&link, m);
}

static void add_move(void *user, const zp_move *m) {
  ending *e = user;
  int64_t bytes = (int64_t)(m->share * (double)(m->elements * m->element_bytes));
  if (m->share == 0) return;
  if (m->queue == ZP_QUEUE_DATA) {
    if (e->sums) add_collective(e, m);
    return;
  }
  e->leaves |= m->queue != ZP_QUEUE_DEVICE_MEMORY;
  switch (m->when) {
  case ZP_WHEN_AT_NORM: e->norm[m->queue] += bytes; break;
  case ZP_WHEN_AT_HOST_LENGTHS: e->lengths[m->queue] += bytes; break;
  case ZP_WHEN_AT_HOST_UPDATE: e->on_host[m->queue] += bytes; break;
  case ZP_WHEN_AT_DEVICE_UPDATE: e->on_device[m->queue] += bytes; break;
  case ZP_WHEN_AFTER_BACKWARD:
    e->packed += m->queue == ZP_QUEUE_DEVICE_MEMORY ? bytes : 0;
    e->overlapped_sums[m->queue] += bytes;
    break;
  case ZP_WHEN_AFTER_UPDATE: e->overlapped_gather[m->queue] += bytes; break;
  case ZP_WHEN_OVERLAPPED_NEXT: e->overlapped_next += bytes; break; /* of host memory */
  default: break;
  }
}

/* A relaxation of the list: the moves of a stage of which no more than the numbers of elements are known. All buckets
 * are one, which takes no longer than they do one by one; nothing is padded; of what leaves the device the same share
 * of every unit does. More elements never take less time. */
static ending ending_of(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                        const zp_flat *all, const zp_flat *casts, bool sums) {
  ending e = {.machine = machine, .choice = choice, .sums = sums};
  zp_move_scope scope = zp_move_scope_of(lowered, choice);
  scope.cpu = machine->node->device.is_cpu;
  scope.together = all;
  scope.casts = casts;
  scope.moment = ZP_MOMENT_BUCKETS;
  if (sums) zp_make_moves(&scope, add_move, &e);
  scope.moment = ZP_MOMENT_STEP;
  zp_make_moves(&scope, add_move, &e);
  return e;
}

/* State on the device that updates what is elsewhere: gradients and parameters come up, and parameters go down piece by
 * piece alongside the next one. */
static double moved_update_s(const ending *e, const zp_host_rates *rates) {
  const int64_t *bytes = e->on_device;
  double pcie = (double)(bytes[ZP_QUEUE_UP] > bytes[ZP_QUEUE_DOWN] ? bytes[ZP_QUEUE_UP] : bytes[ZP_QUEUE_DOWN]);
  double disk = zp_cost_moving((double)bytes[ZP_QUEUE_READ], rates->read_bytes_per_s) +
                zp_cost_moving((double)bytes[ZP_QUEUE_WRITE], rates->write_bytes_per_s);
  return fmax(zp_cost_moving(pcie, rates->pcie_bytes_per_s), disk);
}

/* Time of a pass over the share that is updated on the host. `buckets`: how many pieces it goes through in; *pieces_s
 * grows by all of them on the slowest link alone. */
static double host_pass_s(const int64_t bytes[ZP_QUEUE_COUNT], const zp_host_rates *rates, double buckets,
                          double *pieces_s) {
  const double part[] = {zp_cost_moving((double)bytes[ZP_QUEUE_DOWN], rates->pcie_bytes_per_s),
                         zp_cost_moving((double)bytes[ZP_QUEUE_UP], rates->pcie_bytes_per_s),
                         zp_cost_moving((double)bytes[ZP_QUEUE_HOST_MEMORY], rates->host_bytes_per_s),
                         zp_cost_moving((double)bytes[ZP_QUEUE_READ], rates->read_bytes_per_s),
                         zp_cost_moving((double)bytes[ZP_QUEUE_WRITE], rates->write_bytes_per_s)};
  double longest = 0, sum = 0;
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    longest = fmax(longest, part[i]);
    sum += part[i];
  }
  *pieces_s += longest;
  return longest > 0 ? longest + (sum - longest) / buckets : 0;
}

static double count_buckets(const zp_lowered *l, int64_t flat_elements) {
  int64_t largest = 1;
  for (int s = 0; s < l->n_segments; s++) {
    int64_t elements = zp_flat_trained(&l->segments[s].elements);
    if (elements > largest) largest = elements;
  }
  return fmax(1, (double)(flat_elements / largest));
}

/* Collectives bucket by bucket, and what is copied meanwhile for the next and the last one. */
static double overlapped_buckets_s(const zp_host_rates *rates, double collectives_s,
                                   const int64_t bytes[ZP_QUEUE_COUNT]) {
  double longest = collectives_s;
  longest = fmax(longest, zp_cost_moving((double)bytes[ZP_QUEUE_UP], rates->pcie_bytes_per_s));
  longest = fmax(longest, zp_cost_moving((double)bytes[ZP_QUEUE_DOWN], rates->pcie_bytes_per_s));
  longest = fmax(longest, zp_cost_moving((double)bytes[ZP_QUEUE_READ], rates->read_bytes_per_s));
  return fmax(longest, zp_cost_moving((double)bytes[ZP_QUEUE_WRITE], rates->write_bytes_per_s));
}

static zp_step_end price(const ending *e, const zp_lowered *lowered, const zp_flat *all) {
  const zp_machine *machine = e->machine;
  zp_step_end end = {.reduce_s = e->reduce_s, .gather_s = e->gather_s};
  end.update_bytes = (double)(e->norm[ZP_QUEUE_DEVICE_MEMORY] + e->on_device[ZP_QUEUE_DEVICE_MEMORY]);
  end.optimizer_s =
      zp_cost_update(machine, (double)e->norm[ZP_QUEUE_DEVICE_MEMORY], (double)e->on_device[ZP_QUEUE_DEVICE_MEMORY]);
  if (e->packed > 0) end.optimizer_s += zp_cost_memory_bound(machine, (double)e->packed, 0);
  if (!e->leaves) return end;
  zp_host_rates rates = zp_cost_host_rates(machine);
  end.delayed_s = zp_cost_moving((double)e->overlapped_next, rates.host_bytes_per_s);
  end.reduce_s = overlapped_buckets_s(&rates, e->reduce_s, e->overlapped_sums);
  end.gather_s = overlapped_buckets_s(&rates, e->gather_s, e->overlapped_gather);
  double norm = fmax(zp_cost_moving((double)e->norm[ZP_QUEUE_HOST_MEMORY], rates.host_bytes_per_s),
                     zp_cost_moving((double)e->norm[ZP_QUEUE_READ], rates.read_bytes_per_s));
  double pieces = 0, buckets = count_buckets(lowered, zp_flat_trained(all));
  double update = host_pass_s(e->lengths, &rates, buckets, &pieces) + host_pass_s(e->on_host, &rates, buckets, &pieces);
  double moved = moved_update_s(e, &rates);
  end.offload_s = fmax(0, norm + update - end.optimizer_s) + moved;
  end.least_offload_s = fmax(0, norm + pieces - end.optimizer_s) + moved;
  return end;
}

zp_step_end zp_cost_step_update(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                                const zp_flat *all) {
  assert(all);
  ending e = ending_of(lowered, machine, choice, all, NULL, false);
  return price(&e, lowered, all);
}

static zp_step_end step_end(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                            const zp_flat *all, const zp_flat *casts) {
  ending e = ending_of(lowered, machine, choice, all, casts, true);
  zp_step_end end = price(&e, lowered, all);
  zp_group_link link = zp_cost_link_of(machine, choice, ZP_END_DATA_RANKS);
  end.taken = zp_cost_taken(machine, &link); /* replicas of experts: counted alike */
  return end;
}

zp_step_end zp_cost_step_end(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                             const zp_flat *all) {
  assert(all);
  return step_end(lowered, machine, choice, all, NULL);
}

zp_step_end zp_cost_flat_end(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                             const zp_stage *stage) {
  assert(stage);
  return step_end(lowered, machine, choice, &stage->flat, &stage->casts);
}

typedef struct crossing {
  const zp_machine *own;
  const zp_choice *choice;
  zp_group_link ties, tensor;
  zp_cross_sums sums;
} crossing;

static void add_crossing(void *user, const zp_move *m) {
  crossing *x = user;
  if (m->queue == ZP_QUEUE_TIES) {
    x->ties.n = m->ranks;
    x->sums.ties_s += zp_cost_collective(&x->ties, m);
  }
  if (m->queue == ZP_QUEUE_DATA && m->when == ZP_WHEN_AT_DEVICE_UPDATE) {
    zp_group_link link = zp_cost_link_of(x->own, x->choice, zp_move_peers(m));
    x->sums.update_s += (double)m->times * zp_cost_collective(&link, m);
  }
  if (m->queue == ZP_QUEUE_TENSOR) x->sums.partial_s += (double)m->times * zp_cost_collective(&x->tensor, m);
}

zp_cross_sums zp_cost_cross_sums(const zp_program *program, const zp_machine *machine, const zp_machine *own,
                                 int stage) {
  assert(zp_choice_has_stage(&program->choice, stage));
  const zp_choice *c = &program->choice;
  crossing x = {.own = own,
                .choice = c,
                .ties = zp_machine_pipeline_link(machine, c->tensor, c->pipeline, c->data, c->order),
                .tensor = zp_machine_partial_group(own, c->tensor, c->pipeline, c->data)};
  zp_move_scope scope = zp_move_scope_of_stage(program, stage);
  scope.moment = ZP_MOMENT_STEP;
  zp_make_moves(&scope, add_crossing, &x);
  return x.sums;
}
