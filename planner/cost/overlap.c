/* SPDX-License-Identifier: Apache-2.0 */
/* What moves alongside the units of a stage while they compute: ZeRO 3 gathers parameters and ZeRO 2 and 3 scatter
 * gradients over the data ranks; state that lives on the host or on disks crosses PCIe (and the disks' links).
 *
 * CPU ranks wait for the other data ranks: their cores make the copies of messages. So do trainers whose parameters or
 * gradients leave the device, for the data ranks' part: they gather what has come up, and scatter what goes down, when
 * a unit needs it. Otherwise GPUs, and copies between tiers always, prefetch, depth one: while unit i computes, what
 * unit i + 1 needs comes in and what unit i - 1 made goes out. Links work alongside each other: data ranks, PCIe down,
 * PCIe up, disks, host memory; transfers on one link add up. A unit takes as long as the slowest of computing and
 * links; what exceeds computing is exposed. Collectives keep some multiprocessors from computing while they run, copies
 * none. What the first unit of an action needs and what the last one made overlap with nothing. Of saved values that
 * leave in part, the rest moves between the buffer where the unit works and its slot, between kernels. What moves, on
 * which queue, and whether a unit waits for it, is the list's (zplan/moves.h), without the places of units: parts of
 * parameters and gradients are counted as if every unit had the same share elsewhere, though they are the stage's last
 * ones. Left out: prefetch from one action into the next, contention between links and for memory. */
#include <assert.h>
#include <math.h>
#include <zplan/constants.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>

/* What one unit moves on each link before it computes, or after: seconds among data ranks, bytes of copies. */
typedef struct lanes {
  double data_s;
  int64_t pcie, read, written, host, device; /* device: copies inside its memory */
  bool waits;                                /* for the data ranks */
} lanes;

typedef struct unit_moves {
  lanes in, out;
} unit_moves;

/* Ranks share the memory channels; the pages of one rank lie on one socket, so it never has more than a socket's. Ranks
 * fill a node in the order of its devices, so neighbours share a PCIe root from the second rank on. */
zp_host_rates zp_cost_host_rates(const zp_machine *machine) {
  const zp_node_type *node = machine->node;
  double ranks = machine->devices < machine->devices_per_node ? machine->devices : machine->devices_per_node;
  double root = fmin(fmax(node->pcie_devices_per_root, 1), ranks), sockets = fmax(node->host_sockets, 1);
  return (zp_host_rates){.pcie_bytes_per_s = node->pcie_bytes_per_s / root,
                         .host_bytes_per_s =
                             node->host_bytes_per_s * zp_cost_constant(ZP_COST_HOST_STREAM) / fmax(ranks, sockets),
                         .read_bytes_per_s = node->nvme_read_bytes_per_s / ranks,
                         .write_bytes_per_s = node->nvme_write_bytes_per_s / ranks};
}

double zp_cost_moving(double bytes, double bytes_per_s) {
  assert(!isnan(bytes) && !isnan(bytes_per_s));
  return bytes <= 0 ? 0 : bytes_per_s > 0 ? bytes / bytes_per_s : HUGE_VAL;
}

zp_group_link zp_cost_link_of(const zp_machine *machine, const zp_choice *c, zp_move_end peers) {
  assert(peers == ZP_END_DATA_RANKS || peers == ZP_END_REPLICAS || peers == ZP_END_COPIES || peers == ZP_END_HPZ);
  if (peers == ZP_END_HPZ) return zp_machine_hpz_group(machine, c);
  if (peers == ZP_END_COPIES) return zp_machine_copies_group(machine, c);
  if (c->shard > 0) return zp_machine_shard_group(machine, c, peers == ZP_END_REPLICAS);
  return peers == ZP_END_REPLICAS
             ? zp_machine_replica_group(machine, c->tensor, c->pipeline, c->data, zp_expert_ranks(c), c->order)
             : zp_machine_data_group(machine, c->tensor, c->pipeline, c->data, c->order);
}

typedef struct mover {
  const zp_machine *machine;
  zp_move_scope scope;
  const zp_group_link *link[2]; /* NULL: not looked for yet; what is found goes here: */
  zp_group_link *found;
  zp_host_rates rates;
  double taken; /* share of the multiprocessors that collectives over the data ranks have to themselves */
  unit_moves *to;
  zp_data_parts *parts; /* NULL: not asked for */
} mover;

static const zp_group_link *link_of(mover *m, zp_move_end peers) {
  bool spread = peers == ZP_END_REPLICAS;
  if (!m->link[spread]) {
    m->found[spread] = zp_cost_link_of(m->machine, m->scope.choice, peers);
    m->link[spread] = &m->found[spread];
  }
  return m->link[spread];
}

double zp_cost_way(const zp_group_link *link, zp_move_way way, double bytes) {
  assert(way == ZP_WAY_ALL_REDUCE || way == ZP_WAY_REDUCE_SCATTER || way == ZP_WAY_ALL_GATHER ||
         way == ZP_WAY_EXCHANGE);
  switch (way) {
  case ZP_WAY_ALL_REDUCE: return zp_cost_all_reduce(link, bytes);
  case ZP_WAY_ALL_GATHER: return zp_cost_all_gather(link, bytes);
  case ZP_WAY_EXCHANGE: return zp_cost_exchange(link, bytes);
  default: return zp_cost_reduce_scatter(link, bytes);
  }
}

double zp_cost_collective(const zp_group_link *link, const zp_move *move) {
  return zp_cost_way(link, move->way, (double)move->elements * move->element_bytes);
}

static int part_of(zp_move_way way) {
  switch (way) {
  case ZP_WAY_ALL_REDUCE: return 0;
  case ZP_WAY_ALL_GATHER: return 1;
  case ZP_WAY_EXCHANGE: return 2;
  default: return 3;
  }
}

static void add_collective(mover *m, lanes *to, const zp_move *move) {
  zp_move_end peers = zp_move_peers(move);
  double seconds;
  if (peers == ZP_END_HPZ) { /* only where it is pinned: not remembered */
    const zp_group_link hpz = zp_cost_link_of(m->machine, m->scope.choice, peers);
    seconds = zp_cost_collective(&hpz, move);
  } else {
    seconds = zp_cost_collective(link_of(m, peers), move);
  }
  to->data_s += seconds;
  to->waits |= move->wait == ZP_WAIT_AT_ONCE;
  if (m->parts) m->parts->s[peers == ZP_END_REPLICAS][part_of(move->way)] += seconds;
}

static void add_move(void *user, const zp_move *move) {
  mover *m = user;
  lanes *to = move->when == ZP_WHEN_BEFORE_UNIT ? &m->to->in : &m->to->out;
  int64_t bytes = move->elements * move->element_bytes;
  switch (move->queue) {
  case ZP_QUEUE_DATA: add_collective(m, to, move); break;
  case ZP_QUEUE_UP:
  case ZP_QUEUE_DOWN: to->pcie += bytes; break;
  case ZP_QUEUE_READ: to->read += bytes; break;
  case ZP_QUEUE_WRITE: to->written += bytes; break;
  case ZP_QUEUE_HOST_MEMORY: to->host += bytes; break;
  case ZP_QUEUE_DEVICE_MEMORY: /* of parameters: a part of what collectives bring or send (hpZ) */
    if (move->what == ZP_MOVE_PARAMETERS)
      to->data_s += zp_cost_moving((double)bytes, m->machine->memory_bytes_per_s);
    else
      to->device += bytes;
    break;
  case ZP_QUEUE_COMPUTE:
  case ZP_QUEUE_TENSOR:
  case ZP_QUEUE_MESSAGES:
  case ZP_QUEUE_TIES:
  case ZP_QUEUE_COUNT: break;
  }
}

static unit_moves moves_of(mover *m, int segment) {
  unit_moves moves = {0};
  m->to = &moves;
  m->scope.segment = segment;
  zp_make_moves(&m->scope, add_move, m);
  return moves;
}

static double pcie_s(const mover *m, const lanes *l) {
  return zp_cost_moving((double)l->pcie, m->rates.pcie_bytes_per_s);
}
static double disk_s(const mover *m, const lanes *l) {
  return zp_cost_moving((double)l->read, m->rates.read_bytes_per_s) +
         zp_cost_moving((double)l->written, m->rates.write_bytes_per_s);
}
static double host_s(const mover *m, const lanes *l) {
  return zp_cost_moving((double)l->host, m->rates.host_bytes_per_s);
}
static double device_s(const mover *m, const lanes *l) {
  return zp_cost_moving((double)l->device, m->machine->memory_bytes_per_s);
}

/* Computing is slower for as long as a collective has its multiprocessors; ranks that wait do not compute meanwhile. */
static void expose(const mover *m, zp_exposed *e, double compute_s, const lanes *in, const lanes *out) {
  double data = in->data_s + out->data_s, disk = disk_s(m, in) + disk_s(m, out), host = host_s(m, in) + host_s(m, out);
  double all = fmax(fmax(data, fmax(pcie_s(m, in), pcie_s(m, out))), fmax(disk, host));
  double of_data = fmax(m->taken * data, in->waits || out->waits ? data : data - compute_s);
  e->data_s += of_data;
  e->offload_s += fmax(0, all - compute_s - of_data) + device_s(m, in) + device_s(m, out);
}

/* One transfer after the other, with nothing alongside them. */
static void expose_chain(const mover *m, zp_exposed *e, const lanes *l) {
  e->data_s += l->data_s;
  e->offload_s += pcie_s(m, l) + disk_s(m, l) + host_s(m, l) + device_s(m, l);
}

/* Units in the order in which the action runs them. */
typedef struct sequence {
  mover *mover;
  unit_moves before, now;
  double now_s;
  int n;
  zp_exposed exposed;
} sequence;

static void next_unit(sequence *q, const unit_moves *moves, double compute_s) {
  if (q->n == 0) {
    expose_chain(q->mover, &q->exposed, &moves->in);
  } else {
    expose(q->mover, &q->exposed, q->now_s, &moves->in, &q->before.out);
    q->before = q->now;
  }
  q->now = *moves;
  q->now_s = compute_s;
  q->n++;
}

static zp_exposed finish(sequence *q) {
  static const lanes none = {0};
  if (q->n == 0) return q->exposed;
  expose(q->mover, &q->exposed, q->now_s, &none, &q->before.out);
  expose_chain(q->mover, &q->exposed, &q->now.out);
  return q->exposed;
}

zp_exposed zp_cost_exposed(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                           const zp_stage *stage, int chunk, zp_act act) {
  assert(chunk >= 0 && chunk < stage->n_chunks && act <= ZP_ACT_BW);
  zp_group_link found[2];
  mover m = {.machine = machine, .scope = zp_move_scope_of(lowered, choice), .found = found};
  sequence q = {.mover = &m};
  m.scope.cpu = machine->node->device.is_cpu;
  m.scope.moment = ZP_MOMENT_ACTION;
  m.scope.act = act;
  if (!zp_moves_overlap_units(&m.scope)) return q.exposed;
  m.rates = zp_cost_host_rates(machine);
  m.taken = zp_cost_taken(machine, link_of(&m, ZP_END_DATA_RANKS));
  int n = stage->runs.len;
  for (int i = 0; i < n; i++) {
    const zp_run *run = &stage->runs.data[act == ZP_ACT_F ? i : n - 1 - i];
    if (run->chunk != chunk) continue;
    zp_unit_time time = zp_cost_unit(zp_run_segment(lowered, run));
    m.scope.lowered = zp_run_lowered(lowered, run);
    unit_moves moves = moves_of(&m, run->segment);
    for (int64_t k = 0; k < run->count; k++) next_unit(&q, &moves, zp_cost_act(&time, act));
  }
  return finish(&q);
}

/* One unit, or units as if they were one, of which no more than this is known. */
static mover relaxed(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                     const zp_relaxed_unit *units, const zp_group_link *data, const zp_group_link *replicas) {
  assert(units->units >= 1 && data);
  assert(replicas || units->elements.of[ZP_KIND_SPREAD] == 0);
  return (mover){.machine = machine,
                 .scope = {.lowered = lowered,
                           .choice = choice,
                           .cpu = machine->node->device.is_cpu,
                           .microbatches = 1,
                           .run = -1,
                           .together = &units->elements,
                           .saved_bytes = units->saved_bytes,
                           .units = units->units},
                 .link = {data, replicas}};
}

/* A relaxation of the list: a link is busy for at least what all units together move over it, and no action is over
 * sooner. Of one micro-batch, forward and backward each by itself. Collectives of several buckets take no less than one
 * of all; elements are those without padding, saved values lose what rounding may keep of each unit. PCIe works both
 * ways at once, an action takes as long as the slower one. A backward in two parts moves no less than a whole one. Left
 * out: host memory, copies inside the device, and what of an action's first and last moves nothing hides. */
zp_least_moving zp_cost_least_moving(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                                     const zp_relaxed_unit *units, const zp_group_link *data,
                                     const zp_group_link *replicas) {
  mover m = relaxed(lowered, machine, choice, units, data, replicas);
  if (!zp_moves_overlap_units(&m.scope)) return (zp_least_moving){0};
  m.rates = zp_cost_host_rates(machine);
  zp_least_moving least = {0};
  zp_least_lanes *of[] = {&least.forward, &least.backward};
  static const zp_act acts[] = {ZP_ACT_F, ZP_ACT_B};
  for (int i = 0; i < 2; i++) {
    m.scope.act = acts[i];
    zp_data_parts parts = {0};
    m.parts = &parts;
    unit_moves moves = moves_of(&m, 0);
    const lanes *in = &moves.in, *out = &moves.out;
    lanes both = {.pcie = in->pcie > out->pcie ? in->pcie : out->pcie,
                  .read = in->read + out->read,
                  .written = in->written + out->written};
    *of[i] = (zp_least_lanes){in->data_s + out->data_s, fmax(pcie_s(&m, &both), disk_s(&m, &both)),
                              in->waits || out->waits, parts};
  }
  return least;
}

double zp_cost_least_action(const zp_least_lanes *moving, double compute_s) {
  return fmax(fmax(compute_s, moving->links_s), moving->data_s + (moving->waits ? compute_s : 0));
}

/* Every action begins with what its first unit needs and ends with what its last one made, one transfer after the other
 * and nothing alongside them (expose_chain); the computing of its units lies in between. Left out: host memory, copies
 * inside the device. */
double zp_cost_least_alone(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                           const zp_relaxed_unit *unit, const zp_group_link *data, const zp_group_link *replicas) {
  static const zp_act whole[] = {ZP_ACT_F, ZP_ACT_B}, split[] = {ZP_ACT_F, ZP_ACT_BI, ZP_ACT_BW};
  mover m = relaxed(lowered, machine, choice, unit, data, replicas);
  if (!zp_moves_overlap_units(&m.scope)) return 0;
  m.rates = zp_cost_host_rates(machine);
  bool splits = zp_schedule_splits(choice->schedule);
  double seconds = 0;
  for (int i = 0; i < (splits ? 3 : 2); i++) {
    m.scope.act = splits ? split[i] : whole[i];
    unit_moves moves = moves_of(&m, 0);
    const lanes *ends[] = {&moves.in, &moves.out};
    for (int k = 0; k < 2; k++) seconds += ends[k]->data_s + pcie_s(&m, ends[k]) + disk_s(&m, ends[k]);
  }
  return seconds;
}
