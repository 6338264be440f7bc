/* SPDX-License-Identifier: Apache-2.0 */
/* What of the bytes that ranks send leaves their nodes: counted group by group, as the trainers do it, where every
 * member of every group stands. Prices take their bytes from the worst group (zplan/rates.h: zp_pass_bytes); where
 * groups are alike both are the same. */
#include "strategy.h"

#include <assert.h>

typedef struct counter {
  zp_arena *scratch;
  const zp_program *program;
  zp_machine machine;
  int stage;
  bool sums_alone; /* no gathers */
} counter;

static int64_t rank_of(const zp_choice *c, int64_t t, int64_t p, int64_t d) {
  return c->order == ZP_ORDER_TPD ? t + c->tensor * (p + c->pipeline * d) : t + c->tensor * (d + c->data * p);
}

static int64_t node_of(const counter *k, int64_t t, int64_t p, int64_t d) {
  return zp_machine_node_of(&k->machine, rank_of(&k->program->choice, t, p, d)).index;
}

/* The runtime's share of member r (zpr_chunk_piece). */
static int64_t chunk(int64_t elements, int n, int r) { return elements * (r + 1) / n - elements * r / n; }

/* Members of a node, where several nodes have equally many, and more than one; else 0. As the runtime finds it. */
static int members_of_nodes(const int64_t *node, int n) {
  int local = 1;
  while (local < n && node[local] == node[0]) local++;
  if (local == 1 || local == n || n % local != 0) return 0;
  for (int i = 1; i < n; i++)
    if ((i % local > 0) != (node[i] == node[i - 1])) return 0;
  return local;
}

/* Elements that cross in a pass; node: of every member. */
static int64_t pass(const int64_t *node, int n, zp_algorithm algorithm, int64_t elements) {
  int64_t sum = 0;
  for (int i = 0; i < n; i++) {
    int next = (i + 1) % n, there = 0;
    if (algorithm == ZP_ALGORITHM_RING) {
      if (node[next] != node[i]) sum += elements - chunk(elements, n, next);
      continue;
    }
    for (int r = 0; r < n; r++) there += node[r] != node[i];
    if (algorithm == ZP_ALGORITHM_TWO_LEVELS) there /= members_of_nodes(node, n);
    sum += there * chunk(elements, n, i);
  }
  return sum;
}

static bool by_nccl(const zp_move *m) {
  return m->queue == ZP_QUEUE_COMPUTE && zp_move_peers(m) == ZP_END_TENSOR_RANKS;
}

static bool sums(const zp_move *m) { return m->way == ZP_WAY_REDUCE_SCATTER || m->way == ZP_WAY_ALL_REDUCE; }
static bool gathers(const zp_move *m) { return m->way == ZP_WAY_ALL_GATHER || m->way == ZP_WAY_ALL_REDUCE; }

/* What lies on the host is summed there, over the host's messages, and how much of a record does is not said here. */
static bool sums_on_host(const counter *k, const zp_move *m) {
  return !k->machine.node->device.is_cpu && m->way == ZP_WAY_ALL_REDUCE &&
         k->program->choice.home[ZP_STATE_GRADIENTS].eighths > 0;
}

static int64_t group(const counter *k, const zp_move *m, const int64_t *node) {
  int64_t elements = m->elements, crossing = 0;
  bool even = members_of_nodes(node, m->ranks) > 0;
  if (sums(m)) crossing += pass(node, m->ranks, zp_machine_sums(&k->machine, even, by_nccl(m)), elements);
  if (k->sums_alone) return crossing;
  if (gathers(m)) crossing += pass(node, m->ranks, zp_machine_gathers(&k->machine, even), elements);
  if (m->way == ZP_WAY_EXCHANGE) crossing += pass(node, m->ranks, ZP_ALGORITHM_FLAT, elements);
  return crossing;
}

/* The group of a stage's rank (t, d): nodes of its members. false: another rank of the group was asked before. */
static bool members(const counter *k, const zp_move *m, int64_t t, int64_t d, int64_t *node) {
  const zp_choice *c = &k->program->choice;
  int e = zp_expert_ranks(c), shard = zp_shard_ranks(c), n = m->ranks;
  int64_t p = k->stage, first = 0;
  switch (zp_move_peers(m)) {
  case ZP_END_TENSOR_RANKS:
    for (int i = 0; i < n; i++) node[i] = node_of(k, i, p, d);
    return t == 0;
  case ZP_END_EXPERT_RANKS:
  case ZP_END_CONTEXT_RANKS:
    first = d / n * n;
    for (int i = 0; i < n; i++) node[i] = node_of(k, t, p, first + i);
    return d == first;
  case ZP_END_REPLICAS:
    first = d / shard * shard + d % e;
    for (int i = 0; i < n; i++) node[i] = node_of(k, t, p, first + (int64_t)i * e);
    return d == first;
  case ZP_END_COPIES:
    first = d % shard;
    for (int i = 0; i < n; i++) node[i] = node_of(k, t, p, first + (int64_t)i * shard);
    return d == first;
  case ZP_END_TIED_STAGES:
    for (int i = 0; i < n; i++) node[i] = node_of(k, t, k->program->tied.data[m->other].stages.data[i], d);
    return true;
  default: /* data ranks; hpZ groups, neighbours among them, too */
    first = d / n * n;
    for (int i = 0; i < n; i++) node[i] = node_of(k, t, p, first + i);
    return d == first;
  }
}

/* A record of several sums in one, or of which some groups have more than others, says nothing of chunks that differ:
 * then it counts where groups are alike and their shares equal. */
static int64_t of_groups(const counter *k, const zp_move *m) {
  const zp_choice *c = &k->program->choice;
  int64_t *node = ZP_NEW_ARRAY(k->scratch, int64_t, m->ranks), all = 0, first = -1, groups = 0;
  bool alike = true;
  for (int64_t d = 0; d < c->data; d++)
    for (int64_t t = 0; t < c->tensor; t++) {
      if (!members(k, m, t, d, node)) continue;
      int64_t crossing = group(k, m, node);
      alike &= first < 0 || crossing == first;
      first = crossing;
      all += crossing;
      groups++;
    }
  bool together = m->queue == ZP_QUEUE_COMPUTE || m->queue == ZP_QUEUE_TENSOR;
  if (all == 0) return 0;
  if (k->sums_alone) return all; /* chunks of any sizes: every element crosses as often */
  if (sums_on_host(k, m) || (together && (!alike || m->elements % m->ranks != 0))) return ZP_ACROSS_UNKNOWN;
  return together ? first * (m->all_elements / m->elements) : all;
}

static int64_t of_messages(const counter *k, const zp_move *m) {
  const zp_choice *c = &k->program->choice;
  int64_t crossing = 0;
  for (int64_t d = 0; d < c->data; d++)
    for (int64_t t = 0; t < c->tensor; t++)
      if (node_of(k, t, k->stage, d) != node_of(k, t, m->other, d)) crossing += m->elements;
  return crossing;
}

static counter counter_of(zp_arena *scratch, const zp_program *program, int stage) {
  const zp_spec *spec = program->spec;
  assert(zp_choice_has_stage(&program->choice, stage));
  return (counter){.scratch = scratch,
                   .program = program,
                   .machine = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(&program->choice)),
                   .stage = stage};
}

int64_t zp_move_across_bytes(zp_arena *scratch, const zp_program *program, int stage, const zp_move *m) {
  counter k = counter_of(scratch, program, stage);
  if (m->way == ZP_WAY_COPY || m->ranks < 2 || m->mirrored || zp_machine_nodes(&k.machine) == 1) return 0;
  if (m->way == ZP_WAY_PASS) return ZP_ACROSS_UNKNOWN; /* some pairs of ranks alone */
  int64_t elements = m->way == ZP_WAY_SEND ? of_messages(&k, m) : of_groups(&k, m);
  if (elements == ZP_ACROSS_UNKNOWN || (m->routed && elements > 0)) return ZP_ACROSS_UNKNOWN;
  return elements * m->element_bytes * m->times * m->count - m->spared_bytes;
}

/* Gradients of every precision that rounds have 4 bytes. */
int64_t zp_move_spared_bytes(zp_arena *scratch, const zp_program *program, int stage, const zp_move *m) {
  counter k = counter_of(scratch, program, stage);
  zp_move_end peers = zp_move_peers(m);
  k.sums_alone = true;
  bool of_data = peers == ZP_END_DATA_RANKS || peers == ZP_END_REPLICAS || peers == ZP_END_COPIES;
  if (m->what != ZP_MOVE_GRADIENTS || !sums(m) || !of_data) return 0;
  if (m->ranks < 2 || zp_machine_nodes(&k.machine) == 1) return 0;
  int64_t elements = of_groups(&k, m);
  assert(elements != ZP_ACROSS_UNKNOWN && m->element_bytes == sizeof(float)); /* other plans are refused */
  return elements * (m->element_bytes - 2) * m->times * m->count;
}
