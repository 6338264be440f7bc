/* What moves beside the units of a stage while they compute: ZeRO 3 gathers parameters and ZeRO 2 and 3 scatter
 * gradients over the data ranks; state that lives on the host or on disks crosses PCIe (and the disks' links).
 *
 * CPU ranks wait for the other data ranks: their cores make the copies of messages. So do trainers whose parameters or
 * gradients leave the device, for the data ranks' part: they gather what has come up, and scatter what goes down, when
 * a unit needs it. Otherwise GPUs, and copies between tiers always, prefetch, depth one: while unit i computes, what
 * unit i + 1 needs comes in and what unit i - 1 made goes out. Links work beside each other: data ranks, PCIe down,
 * PCIe up, disks, host memory; transfers on one link add up. A unit takes as long as the slowest of computing and
 * links; what exceeds computing is exposed. Collectives keep some multiprocessors from computing while they run, copies
 * none. What the first unit of an action needs and what the last one made overlap with nothing. Of saved values that
 * leave in part, the rest moves between the buffer where the unit works and its slot, between kernels. A part of saved
 * values is counted without its rounding to 256 bytes, and parts of parameters and gradients as if every unit had the
 * same share elsewhere: they are the stage's last ones. Left out: prefetch from one action into the next, contention
 * between links and for memory. */
#include <math.h>
#include "constants.h"
#include "cost.h"

/* Seconds on each link for one unit; device: copies inside its memory. */
typedef struct lanes {
  double data_s, pcie_s, disk_s, host_s, device_s;
} lanes;

typedef struct unit_moves {
  lanes in, out;
} unit_moves;

double zp_cost_away(const zp_choice *choice, zp_state state) {
  const zp_home *home = &choice->home[state];
  return home->tier == ZP_TIER_DEVICE ? 0 : home->eighths / 8.0;
}

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
  return bytes <= 0 ? 0 : bytes_per_s > 0 ? bytes / bytes_per_s : HUGE_VAL;
}

/* Parameters of a unit by who holds the same. */
typedef struct elements {
  double whole, spread;
} elements;

typedef struct mover {
  const zp_lowered *lowered;
  const zp_choice *choice;
  zp_host_rates rates;
  double device_bytes_per_s;    /* of its memory */
  zp_group_link data, replicas; /* of what all data ranks hold, and of what is spread over expert groups */
  bool waits;                   /* for the data ranks: gathers and scatters when a unit needs it */
  double taken; /* share of the multiprocessors that collectives over the data ranks have to themselves */
  int64_t microbatches;
} mover;

/* Bytes that come in over PCIe, from the disks where they live there. */
static void bring(const mover *m, lanes *to, zp_state state, double bytes) {
  if (bytes <= 0) return;
  to->pcie_s += zp_cost_moving(bytes, m->rates.pcie_bytes_per_s);
  if (m->choice->home[state].tier == ZP_TIER_NVME) to->disk_s += zp_cost_moving(bytes, m->rates.read_bytes_per_s);
}

static void send_out(const mover *m, lanes *to, zp_state state, double bytes) {
  if (bytes <= 0) return;
  to->pcie_s += zp_cost_moving(bytes, m->rates.pcie_bytes_per_s);
  if (m->choice->home[state].tier == ZP_TIER_NVME) to->disk_s += zp_cost_moving(bytes, m->rates.write_bytes_per_s);
}

/* Its own, and the shared ones that it uses. */
static elements unit_elements(const mover *m, const zp_segment_program *s) {
  const zp_lowered *l = m->lowered;
  elements e = {(double)s->elements, (double)s->spread_elements};
  for (int i = 0; i < l->shared.len; i++) {
    int param = l->shared.data[i];
    if (s->uses_shared[i])
      *(l->sharding->param[param].spread ? &e.spread : &e.whole) += (double)l->param_elements[param];
  }
  return e;
}

static double bucket_s(const mover *m, bool spread, int64_t n, int element_bytes) {
  return n > 0 ? zp_cost_ring_pass(spread ? &m->replicas : &m->data, (double)n * element_bytes) : 0;
}

/* A pass over the buckets of a unit, each a collective. */
static double pass_s(const mover *m, const zp_segment_program *s, int element_bytes) {
  const zp_lowered *l = m->lowered;
  double seconds =
      bucket_s(m, false, s->elements, element_bytes) + bucket_s(m, true, s->spread_elements, element_bytes);
  for (int i = 0; i < l->shared.len; i++) {
    int param = l->shared.data[i];
    if (s->uses_shared[i])
      seconds += bucket_s(m, l->sharding->param[param].spread, l->param_elements[param], element_bytes);
  }
  return seconds;
}

/* What a rank has of them when they are sharded, or not. */
static double held(const mover *m, elements e, bool sharded) {
  double data = sharded ? m->choice->data : 1, replicas = sharded ? data / zp_expert_ranks(m->choice) : 1;
  return e.whole / data + e.spread / replicas;
}

/* Parameters of a unit, before it computes either way. */
static void bring_parameters(const mover *m, const zp_segment_program *s, lanes *in) {
  elements e = unit_elements(m, s);
  bool sharded = m->choice->zero >= 3;
  if (sharded) in->data_s += pass_s(m, s, m->lowered->param_bytes);
  bring(m, in, ZP_STATE_PARAMS,
        held(m, e, sharded) * m->lowered->param_bytes * zp_cost_away(m->choice, ZP_STATE_PARAMS));
}

/* Gradients of a unit, after its weight gradients. On the host, later micro-batches are added to the sum there: two
 * reads and a write. */
static void send_gradients(const mover *m, const zp_segment_program *s, lanes *out) {
  elements e = unit_elements(m, s);
  bool sharded = m->choice->zero >= 2;
  if (sharded) out->data_s += pass_s(m, s, m->lowered->grad_bytes);
  double away = held(m, e, sharded) * m->lowered->grad_bytes * zp_cost_away(m->choice, ZP_STATE_GRADIENTS);
  send_out(m, out, ZP_STATE_GRADIENTS, away);
  if (m->microbatches > 1) out->host_s += zp_cost_moving(3 * away, m->rates.host_bytes_per_s);
}

/* Saved values leave after forward, and come back for either part of backward; what the first of two parts changes
 * leaves again. */
static void move_saved(const mover *m, const zp_segment_program *s, zp_act act, unit_moves *moves) {
  double share = zp_cost_away(m->choice, ZP_STATE_ACTIVATIONS), bytes = (double)s->saved_bytes;
  double here_s = zp_cost_moving(2 * bytes * (1 - share), m->device_bytes_per_s);
  if (share <= 0) return;
  if (act != ZP_ACT_F) {
    bring(m, &moves->in, ZP_STATE_ACTIVATIONS, bytes * share);
    moves->in.device_s += here_s;
  }
  if (act == ZP_ACT_F || (act == ZP_ACT_BI && s->changes_saved)) {
    send_out(m, &moves->out, ZP_STATE_ACTIVATIONS, bytes * share);
    moves->out.device_s += here_s;
  }
}

static unit_moves moves_of(const mover *m, const zp_segment_program *s, zp_act act) {
  unit_moves moves = {0};
  if (act != ZP_ACT_BW) bring_parameters(m, s, &moves.in);
  move_saved(m, s, act, &moves);
  if (act == ZP_ACT_B || act == ZP_ACT_BW) send_gradients(m, s, &moves.out);
  return moves;
}

static double busy(const unit_moves *in, const unit_moves *out, double *data_s) {
  *data_s = in->in.data_s + out->out.data_s;
  double disk = in->in.disk_s + out->out.disk_s, host = in->in.host_s + out->out.host_s;
  return fmax(fmax(*data_s, fmax(in->in.pcie_s, out->out.pcie_s)), fmax(disk, host));
}

/* Computing is slower for as long as a collective has its multiprocessors; ranks that wait do not compute meanwhile. */
static void expose(const mover *m, zp_exposed *e, double compute_s, const unit_moves *in, const unit_moves *out) {
  double data, all = busy(in, out, &data), of_data = fmax(m->taken * data, m->waits ? data : data - compute_s);
  e->data_s += of_data;
  e->offload_s += fmax(0, all - compute_s - of_data) + in->in.device_s + out->out.device_s;
}

/* One transfer after the other, with nothing beside them. */
static void expose_chain(zp_exposed *e, const lanes *l) {
  e->data_s += l->data_s;
  e->offload_s += l->pcie_s + l->disk_s + l->host_s + l->device_s;
}

/* Units in the order in which the action runs them. */
typedef struct sequence {
  const mover *mover;
  zp_act act;
  unit_moves before, now;
  double now_s;
  int n;
  zp_exposed exposed;
} sequence;

static void next_unit(sequence *q, int segment, double compute_s) {
  unit_moves moves = moves_of(q->mover, &q->mover->lowered->segments[segment], q->act);
  if (q->n == 0) {
    expose_chain(&q->exposed, &moves.in);
  } else {
    expose(q->mover, &q->exposed, q->now_s, &moves, &q->before);
    q->before = q->now;
  }
  q->now = moves;
  q->now_s = compute_s;
  q->n++;
}

static zp_exposed finish(sequence *q) {
  static const unit_moves none = {0};
  if (q->n == 0) return q->exposed;
  expose(q->mover, &q->exposed, q->now_s, &none, &q->before);
  expose_chain(&q->exposed, &q->now.out);
  return q->exposed;
}

static bool moves_anything(const zp_choice *c) {
  return c->zero >= 2 || zp_cost_away(c, ZP_STATE_PARAMS) > 0 || zp_cost_away(c, ZP_STATE_GRADIENTS) > 0 ||
         zp_cost_away(c, ZP_STATE_ACTIVATIONS) > 0;
}

bool zp_cost_waits(const zp_machine *machine, const zp_choice *choice) {
  return machine->node->device.is_cpu || zp_cost_away(choice, ZP_STATE_PARAMS) > 0 ||
         zp_cost_away(choice, ZP_STATE_GRADIENTS) > 0;
}

zp_exposed zp_cost_exposed(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                           const zp_stage *stage, int chunk, zp_act act) {
  mover m = {.lowered = lowered, .choice = choice, .microbatches = zp_microbatches(lowered->spec, choice)};
  sequence q = {.mover = &m, .act = act};
  if (!moves_anything(choice)) return q.exposed;
  m.rates = zp_cost_host_rates(machine);
  m.device_bytes_per_s = machine->memory_bytes_per_s;
  m.data = zp_machine_data_group(machine, choice->tensor, choice->pipeline, choice->data, choice->order);
  m.taken = zp_cost_taken(machine, &m.data);
  m.waits = zp_cost_waits(machine, choice);
  m.replicas = zp_machine_replica_group(machine, choice->tensor, choice->pipeline, choice->data,
                                        zp_expert_ranks(choice), choice->order);
  int n = stage->runs.len;
  for (int i = 0; i < n; i++) {
    const zp_run *run = &stage->runs.data[act == ZP_ACT_F ? i : n - 1 - i];
    if (run->chunk != chunk) continue;
    zp_unit_time time = zp_cost_unit(&lowered->segments[run->segment]);
    for (int64_t k = 0; k < run->count; k++) next_unit(&q, run->segment, zp_cost_act(&time, act));
  }
  return finish(&q);
}
