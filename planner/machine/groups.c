/* SPDX-License-Identifier: Apache-2.0 */
/* Links of the groups that ranks communicate in.
 *
 * A kind of group (tensor, data, pipeline) is a regular set of ranks; how many nodes its worst member spans decides
 * whether the network is used. Between nodes every group with members in a node sends one stream out of it, and the
 * streams share the node's cards. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/hash.h>
#include <zplan/cpu_kernels.h>
#include <zplan/machine.h>
#include <zplan/constants.h>

static int ceil_div(int a, int b) { return (a + b - 1) / b; }

/* ---- rates ---- */

/* A copy through shared memory is written once and read once by each side, so it costs four times its bytes. */
enum { SHARED_MEMORY_TRAFFIC = 4 };
/* Without GPU-direct every byte is written to host memory and read again on its way out, and again on its way in. */
enum { STAGED_TRAFFIC = 4 };

/* From a rank to another one of its node. */
typedef struct hop {
  double latency_s, bytes_per_s;
} hop;

static hop hop_in_node(const zp_machine *m, const zp_node_type *node, zp_pair_kind kind) {
  hop h = {node->link.latency_s, node->link.bytes_per_s};
  double share;
  if (!node->device.is_cpu) return h;
  if (node->device.measured && zp_cpu_link(node->device.measured, m->devices_per_node, kind, &h.latency_s, &share)) {
    h.bytes_per_s *= share;
  } else if (!m->cluster->calibration) {
    double copy = m->memory_bytes_per_s / SHARED_MEMORY_TRAFFIC;
    if (h.bytes_per_s <= 0 || h.bytes_per_s > copy) h.bytes_per_s = copy;
  }
  return h;
}

/* NVLinks that a ring over `local` neighbouring devices of a DGX-1V finds in its cube mesh, of six a device: one to the
 * next device, two to four inside a half of the node, all over the whole node (DGX-1 with Tesla V100, system
 * architecture white paper, figure 4). Switches give every group all links. */
static double mesh_links(int local) { return local >= 8 ? 1 : local <= 2 ? 1.0 / 6 : 4.0 / 6; }

/* What collectives of `local` devices reach of a GPU's line rate. Through switches every byte also costs its copy in
 * both devices' memory, which does not hide behind the link: 1 / (1 + c n / (2 (n - 1))) of the rate for an all-reduce
 * that sends 2 (n - 1) / n of its bytes. */
static double link_share(const zp_node_type *node, int local) {
  const char *kind = node->link.kind ? node->link.kind : "";
  if (strcmp(kind, "nvlink") == 0) return mesh_links(local) * zp_cost_constant(ZP_COST_MESH_PAYLOAD);
  if (strcmp(kind, "nvswitch") != 0 || local < 2) return zp_cost_constant(ZP_COST_LINK_PAYLOAD);
  return 1 / (1 + zp_cost_constant(ZP_COST_LINK_COPY) * local / (2.0 * (local - 1)));
}

static hop collective_hop(const zp_machine *m, const zp_node_type *node, int local, zp_pair_kind kind) {
  hop h = hop_in_node(m, node, kind);
  if (!node->device.is_cpu) h.bytes_per_s *= link_share(node, local);
  return h;
}

/* Thread blocks of a collective, inside a node or over `cards` of it (planner/machine/collective.c: zp_cost_taken). */
static double blocks_of(const zp_node_type *node, bool leaves, double cards) {
  double links = node->link.bytes_per_s / zp_cost_constant(ZP_COST_LINK_BLOCK_BYTES_PER_S),
         inside = fmin(links, zp_cost_constant(ZP_COST_LINK_BLOCKS));
  return node->device.is_cpu ? 0 : fmax(1, leaves ? cards * zp_cost_constant(ZP_COST_CARD_BLOCKS) : inside);
}

/* What one of `streams` simultaneous streams out of a node gets of its NICs. on_rail: both ends have the same index in
 * their nodes. */
static double network_bytes_per_s(const zp_machine *m, const zp_node_type *node, int streams, bool on_rail) {
  const zp_cluster *c = m->cluster;
  bool spared = c->topology == ZP_RAIL && on_rail;
  double oversubscription = c->oversubscription > 1 && !spared ? c->oversubscription : 1;
  int nics = node->nics > 0 ? node->nics : 1;
  double payload = node->device.is_cpu ? 1 : zp_cost_constant(ZP_COST_NETWORK_PAYLOAD);
  double rate = payload * nics * node->nic.bytes_per_s / (streams > 1 ? streams : 1) / oversubscription;
  if (!c->host_staged || node->device.is_cpu) return rate;
  double host = node->host_bytes_per_s / STAGED_TRAFFIC / (streams > 1 ? streams : 1);
  if (host < rate) rate = host;
  return node->pcie_bytes_per_s < rate ? node->pcie_bytes_per_s : rate;
}

/* Calls for every node type that the machine's ranks stand on: the next one from `g` on, NULL at the end. */
static const zp_node_type *next_type(const zp_machine *m, int *g) {
  const zp_cluster *c = m->cluster;
  if (c->groups.len == 0) return (*g)++ == 0 ? m->node : NULL;
  while (*g < c->groups.len && !(m->types >> *g & 1)) ++*g;
  return *g < c->groups.len ? &c->groups.data[(*g)++].type : NULL;
}

static int ranks_of_node(const zp_machine *m, const zp_node_type *node) {
  int width = m->cluster->groups.len ? node->devices : m->devices_per_node;
  return width < m->devices ? width : m->devices;
}

/* ---- where groups stand ---- */

/* Groups of n ranks that lie `stride` apart; their first ranks are b * step + t for b < blocks, t < block. */
typedef struct layout {
  int n;
  int64_t stride, block, step, blocks;
} layout;

static layout tensor_layout(int tensor, int pipeline, int data) {
  return (layout){tensor, 1, 1, tensor, (int64_t)pipeline * data};
}

static layout data_layout(int tensor, int pipeline, int data, zp_rank_order order) {
  int64_t t = tensor, all = t * pipeline;
  return order == ZP_ORDER_TPD ? (layout){data, all, all, 0, 1} : (layout){data, t, t, t * data, pipeline};
}

/* n data ranks that are `apart` from each other, among `within` neighbours. */
static layout near_layout(int tensor, int pipeline, int data, int n, int apart, int within, zp_rank_order order) {
  int64_t next = (int64_t)tensor * (order == ZP_ORDER_TPD ? pipeline : 1);
  int64_t groups = (int64_t)data / within * (order == ZP_ORDER_TPD ? 1 : pipeline);
  return (layout){n, next * apart, next * apart, next * within, groups};
}

/* Neighbours among the data ranks. */
static layout expert_layout(int tensor, int pipeline, int data, int expert, zp_rank_order order) {
  return near_layout(tensor, pipeline, data, expert, 1, expert, order);
}

static layout replica_layout(int tensor, int pipeline, int data, int expert, zp_rank_order order) {
  int64_t t = tensor, all = t * pipeline;
  if (order == ZP_ORDER_TPD) return (layout){data / expert, all * expert, all * expert, 0, 1};
  return (layout){data / expert, t * expert, t * expert, t * data, pipeline};
}

static layout pipeline_layout(int tensor, int pipeline, int data, zp_rank_order order) {
  int64_t t = tensor, all = t * data;
  return order == ZP_ORDER_TPD ? (layout){pipeline, t, t, t * pipeline, data} : (layout){pipeline, all, all, 0, 1};
}

/* The most nodes that a group spans, all nodes being equally wide. A group of extent e (from its first to its last
 * rank) that starts at place f of a node spans (f + e) / width + 1 nodes, so the latest place decides; first places
 * repeat after at most `width` blocks. Members further apart than a node stand on different nodes. */
static int span_of_equal_nodes(const layout *l, int64_t width) {
  if (l->stride >= width || l->n == 1) return l->n;
  int64_t latest = 0;
  for (int64_t b = 0; b < l->blocks && b < width; b++) {
    int64_t last = b * l->step % width + l->block - 1;
    if (last >= width) last = width - 1;
    if (last > latest) latest = last;
  }
  return (int)((latest + (l->n - 1) * l->stride) / width) + 1;
}

/* Nodes of one group; 0 when it also stands on types that are not the machine's. */
static int span_of_group(const zp_machine *m, const layout *l, int64_t first) {
  int nodes = 0;
  int64_t last_node = -1;
  for (int i = 0; i < l->n; i++) {
    zp_node_place place = zp_machine_node_of(m, first + i * l->stride);
    if (!(m->types >> place.group & 1)) return 0;
    nodes += place.index != last_node;
    last_node = place.index;
  }
  return nodes;
}

static int span_of_mixed_nodes(const zp_machine *m, const layout *l) {
  int most = 1;
  for (int64_t b = 0; b < l->blocks; b++)
    for (int64_t t = 0; t < l->block; t++) {
      int nodes = span_of_group(m, l, b * l->step + t);
      if (nodes > most) most = nodes;
    }
  return most;
}

/* Where the machine keeps the span of groups that lie so on its types; NULL when it keeps none. What was there is
 * replaced. */
static struct zp_group_span *slot_of(const zp_machine *m, const layout *l, bool messages, bool *known) {
  if (!m->spans) return NULL;
  const int64_t key[6] = {l->n, l->stride, l->block, l->step, l->blocks, 2 * (int64_t)m->types + messages};
  uint64_t hash = zp_hash(ZP_HASH_START, key, sizeof key);
  struct zp_group_span *slot = &m->spans->slots[hash % ZP_SPAN_SLOTS];
  *known = memcmp(slot->key, key, sizeof key) == 0;
  memcpy(slot->key, key, sizeof key);
  return slot;
}

static int span(const zp_machine *m, const layout *l) {
  if (m->cluster->groups.len == 0) return span_of_equal_nodes(l, m->devices_per_node);
  bool known = false;
  struct zp_group_span *slot = slot_of(m, l, false, &known);
  if (known) return slot->nodes;
  int nodes = span_of_mixed_nodes(m, l);
  if (slot) slot->nodes = nodes;
  return nodes;
}

/* Does a message between neighbours of a pipeline, both on the machine's types, leave its node? */
static bool some_message_crosses(const zp_machine *m, const layout *l) {
  const layout pair = {2, l->stride, 1, 0, 1};
  int64_t others =
      (l->n - 1) * l->stride; /* ranks of all stages but the last: as many side by side as they lie apart */
  for (int64_t b = 0; b < l->blocks; b++)
    for (int64_t at = 0; at < others; at++)
      if (span_of_group(m, &pair, b * l->step + at) > 1) return true;
  return false;
}

static bool message_crosses(const zp_machine *m, const layout *l) {
  if (l->n == 1) return false;
  if (m->cluster->groups.len == 0) return span_of_equal_nodes(l, m->devices_per_node) > 1;
  bool known = false;
  struct zp_group_span *slot = slot_of(m, l, true, &known);
  if (known) return slot->nodes > 1;
  bool crosses = some_message_crosses(m, l);
  if (slot) slot->nodes = crosses ? 2 : 1;
  return crosses;
}

/* ---- links ---- */

/* Members of a group that may stand in one node, in the widest one. */
static int fullest_node(const zp_machine *m, const layout *l) {
  int most = 1, g = 0;
  for (const zp_node_type *node; (node = next_type(m, &g));) {
    int64_t members = (ranks_of_node(m, node) + l->stride - 1) / l->stride;
    if (members > most) most = (int)members;
  }
  return most < l->n ? most : l->n;
}

/* The slowest link of a ring. On nodes of several types: the slowest of the types. */
static zp_group_link ring_link(const zp_machine *m, const layout *l, zp_pair_kind kind) {
  zp_group_link link = {.n = l->n, .nodes = span(m, l), .trees = !m->node->device.is_cpu};
  link.local = ceil_div(l->n, link.nodes);
  link.fullest = link.nodes > 1 ? fullest_node(m, l) : l->n;
  int g = 0;
  for (const zp_node_type *node; (node = next_type(m, &g));) {
    hop local = collective_hop(m, node, link.local, kind);
    double rate = local.bytes_per_s, inside = rate, cards = 0;
    if (link.nodes > 1) {
      /* A ring on equal places of every node leaves and enters on one rail. */
      int here = ranks_of_node(m, node);
      bool on_rail = here % l->stride == 0 || l->stride % here == 0;
      double network = network_bytes_per_s(m, node, ceil_div(here, link.local), on_rail) * m->collective_share;
      if (link.local == 1 || network < rate) rate = network;
      if (link.network_bytes_per_s == 0 || network < link.network_bytes_per_s) link.network_bytes_per_s = network;
      cards = (double)node->nics / ceil_div(here, link.local);
    }
    if (link.local_bytes_per_s == 0 || inside < link.local_bytes_per_s) link.local_bytes_per_s = inside;
    link.blocks = fmax(link.blocks, blocks_of(node, link.nodes > 1, cards));
    if (link.bytes_per_s == 0 || rate < link.bytes_per_s) link.bytes_per_s = rate;
    double network_latency = node->nic.latency_s + m->cluster->fabric_latency_s;
    if (local.latency_s > link.local_latency_s) link.local_latency_s = local.latency_s;
    if (network_latency > link.network_latency_s) link.network_latency_s = network_latency;
  }
  link.latency_s = link.local_latency_s;
  if (link.nodes == 1) return link;
  /* A pass has n - 1 hops; nodes - 1 of them cross the network. */
  double crossing = (double)(link.nodes - 1) / (link.n - 1);
  link.latency_s = crossing * link.network_latency_s + (1 - crossing) * link.local_latency_s;
  return link;
}

/* zplan's own trainer sums the shares of all members in rank order and on GPUs gathers with NCCL, which also has its
 * activations of tensor groups. */
zp_algorithm zp_machine_sums(const zp_machine *m, bool even, bool by_nccl) {
  bool own = m->node->device.is_cpu || (m->cluster->trainer == ZP_TRAINER_ZPLAN && !by_nccl);
  return !own ? ZP_ALGORITHM_RING : even ? ZP_ALGORITHM_TWO_LEVELS : ZP_ALGORITHM_FLAT;
}

zp_algorithm zp_machine_gathers(const zp_machine *m, bool even) {
  if (!m->node->device.is_cpu) return ZP_ALGORITHM_RING;
  return even ? ZP_ALGORITHM_TWO_LEVELS : ZP_ALGORITHM_FLAT;
}

/* Ranks of every node, where that is one number; else 0. */
static int64_t width_of_nodes(const zp_machine *m) {
  const zp_cluster *c = m->cluster;
  if (c->groups.len == 0) return m->devices_per_node;
  for (int g = 1; g < c->groups.len; g++)
    if (c->groups.data[g].type.devices != c->groups.data[0].type.devices) return 0;
  return c->groups.data[0].type.devices;
}

/* Has every group equally many members, and more than one, in every node that it stands on? Groups that begin at the
 * first rank of a node at which one may, and end with a node; some that do not may be even, too, and are priced as if
 * they were not. */
static bool is_even(const zp_machine *m, const layout *l) {
  int64_t width = width_of_nodes(m);
  if (width == 0 || l->stride >= width || width % l->stride != 0) return false;
  bool aligned = l->blocks == 1 || l->step % width == 0;
  return aligned && l->block <= l->stride && l->n % (width / l->stride) == 0;
}

static zp_group_link group_link(const zp_machine *m, const layout *l, bool by_nccl, zp_pair_kind kind) {
  zp_group_link link = ring_link(m, l, kind);
  bool even = link.nodes > 1 && link.nodes < l->n && is_even(m, l);
  link.sums = zp_machine_sums(m, even, by_nccl);
  link.gathers = zp_machine_gathers(m, even);
  return link;
}

/* Where gradients are summed over data ranks. */
static zp_group_link summing_link(const zp_machine *m, const layout *l) {
  zp_group_link link = group_link(m, l, false, ZP_PAIR_LARGE);
  link.rounds = m->cluster->rounds_sums;
  return link;
}

zp_group_link zp_machine_tensor_group(const zp_machine *m, int tensor, int pipeline, int data) {
  assert(tensor >= 1 && pipeline >= 1 && data >= 1);
  layout l = tensor_layout(tensor, pipeline, data);
  return group_link(m, &l, true, ZP_PAIR_OFTEN);
}

zp_group_link zp_machine_partial_group(const zp_machine *m, int tensor, int pipeline, int data) {
  assert(tensor >= 1 && pipeline >= 1 && data >= 1);
  layout l = tensor_layout(tensor, pipeline, data);
  return group_link(m, &l, false, ZP_PAIR_LARGE);
}

zp_group_link zp_machine_data_group(const zp_machine *m, int tensor, int pipeline, int data, zp_rank_order order) {
  assert(tensor >= 1 && pipeline >= 1 && data >= 1);
  assert(order < ZP_ORDER_COUNT);
  layout l = data_layout(tensor, pipeline, data, order);
  return summing_link(m, &l);
}

zp_group_link zp_machine_expert_group(const zp_machine *m, int tensor, int pipeline, int data, int expert,
                                      zp_rank_order order) {
  assert(tensor >= 1 && pipeline >= 1 && data >= 1);
  assert(expert >= 1 && data % expert == 0 && order < ZP_ORDER_COUNT);
  layout l = expert_layout(tensor, pipeline, data, expert, order);
  return group_link(m, &l, false, ZP_PAIR_LARGE);
}

zp_group_link zp_machine_replica_group(const zp_machine *m, int tensor, int pipeline, int data, int expert,
                                       zp_rank_order order) {
  assert(tensor >= 1 && pipeline >= 1 && data >= 1);
  assert(expert >= 1 && data % expert == 0 && order < ZP_ORDER_COUNT);
  layout l = replica_layout(tensor, pipeline, data, expert, order);
  return summing_link(m, &l);
}

zp_group_link zp_machine_shard_group(const zp_machine *m, const zp_choice *c, bool experts) {
  assert(zp_choice_has_degrees(c));
  int ranks = zp_shard_ranks(c), apart = experts ? zp_expert_ranks(c) : 1;
  assert(ranks % apart == 0 && c->order < ZP_ORDER_COUNT);
  layout l = near_layout(c->tensor, c->pipeline, c->data, ranks / apart, apart, ranks, c->order);
  return summing_link(m, &l);
}

zp_group_link zp_machine_copies_group(const zp_machine *m, const zp_choice *c) {
  assert(zp_choice_has_degrees(c) && c->order < ZP_ORDER_COUNT);
  layout l = near_layout(c->tensor, c->pipeline, c->data, zp_shard_copies(c), zp_shard_ranks(c), c->data, c->order);
  return summing_link(m, &l);
}

zp_group_link zp_machine_hpz_group(const zp_machine *m, const zp_choice *c) {
  assert(zp_choice_has_degrees(c) && c->hpz > 0 && c->order < ZP_ORDER_COUNT);
  layout l = near_layout(c->tensor, c->pipeline, c->data, c->hpz, 1, c->hpz, c->order);
  return summing_link(m, &l);
}

/* Messages between neighbouring stages: up to `stride` ranks of a node talk to the next stage at once. One boundary
 * between nodes makes the link the network's. */
zp_group_link zp_machine_pipeline_link(const zp_machine *m, int tensor, int pipeline, int data, zp_rank_order order) {
  assert(tensor >= 1 && pipeline >= 1 && data >= 1);
  assert(order < ZP_ORDER_COUNT);
  layout l = pipeline_layout(tensor, pipeline, data, order);
  bool crosses = message_crosses(m, &l);
  zp_group_link link = {
      .n = pipeline > 1 ? 2 : 1, .local = crosses ? 1 : 2, .fullest = crosses ? 1 : 2, .nodes = crosses ? 2 : 1};
  int g = 0;
  for (const zp_node_type *node; (node = next_type(m, &g));) {
    int here = ranks_of_node(m, node), streams = l.stride < here ? (int)l.stride : here;
    double payload = node->device.is_cpu ? 1 : zp_cost_constant(ZP_COST_LINK_PAYLOAD);
    hop local = hop_in_node(m, node, ZP_PAIR_MESSAGE);
    double rate = crosses ? network_bytes_per_s(m, node, streams, l.stride % here == 0) : local.bytes_per_s * payload;
    double latency = crosses ? node->nic.latency_s + m->cluster->fabric_latency_s : local.latency_s;
    if (link.bytes_per_s == 0 || rate < link.bytes_per_s) link.bytes_per_s = rate;
    if (latency > link.latency_s) link.latency_s = latency;
  }
  return link;
}
