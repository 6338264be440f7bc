/* SPDX-License-Identifier: Apache-2.0 */
/* Effective machine of one run: rates of one rank, and where ranks stand. Links are in groups.c.
 *
 * A GPU rank owns its device. CPU ranks share their node: a rank has a whole number of the node's cores (a fraction
 * when ranks outnumber cores) and an equal share of its memory and memory bandwidth; the rates of a CPU device in a .dz
 * file are those of the whole node. Clusters of several node types have GPUs only. */
#include <zplan/machine.h>

#include <assert.h>

static int ceil_div(int a, int b) { return (a + b - 1) / b; }

static double peak_flop_per_s(const zp_device *device, zp_precision precision) {
  if (precision == ZP_PREC_F64) return device->flop_per_s_fp64;
  return precision == ZP_PREC_F32 ? device->flop_per_s_fp32 : device->flop_per_s_half;
}

/* Share of the node's cores that one of its ranks computes with: its threads are whole cores. */
static double core_share(int cores, int ranks) {
  if (cores <= ranks) return 1.0 / ranks;
  return (double)(cores / ranks) / cores;
}

/* What ranks on these groups of the cluster have at least. */
static zp_machine machine_of_types(const zp_cluster *cluster, zp_node_set types, zp_precision precision, int devices) {
  const zp_node_type *node = cluster->groups.len ? &cluster->slowest[types] : &cluster->node;
  return (zp_machine){.cluster = cluster,
                      .node = node,
                      .types = types,
                      .precision = precision,
                      .devices = devices,
                      .devices_per_node = node->devices > 0 ? node->devices : 1,
                      .compute_bytes = zp_precision_bytes(precision),
                      .flop_per_s = peak_flop_per_s(&node->device, precision),
                      .memory_bytes_per_s = node->device.memory_bytes_per_s,
                      .collective_share = cluster->collective_share > 0 ? cluster->collective_share : 1,
                      .memory_bytes = node->device.memory_bytes,
                      .context_bytes = cluster->node.device.context_bytes}; /* the largest: layouts know no machine */
}

/* Groups of the cluster that the ranks first .. end - 1 stand on. */
static zp_node_set types_of_ranks(const zp_cluster *cluster, int64_t first, int64_t end) {
  zp_node_set types = 0;
  int64_t at = 0;
  for (int g = 0; g < cluster->groups.len; g++) {
    int64_t next = at + (int64_t)cluster->groups.data[g].nodes * cluster->groups.data[g].type.devices;
    if (first < next && end > at) types |= 1u << g;
    at = next;
  }
  return types;
}

static void share_cpu_node(zp_machine *m) {
  const zp_device *device = &m->node->device;
  int nodes = m->cluster->nodes > 0 ? m->cluster->nodes : 1, ranks = ceil_div(m->devices, nodes);
  m->devices_per_node = ranks > 0 ? ranks : 1;
  m->flop_per_s *= device->cores > 0 ? core_share(device->cores, ranks) : 1.0 / ranks;
  m->memory_bytes_per_s /= ranks;
  m->memory_bytes /= ranks;
  if (m->cluster->rank_memory_bytes && m->memory_bytes > m->cluster->rank_memory_bytes)
    m->memory_bytes = m->cluster->rank_memory_bytes;
}

zp_machine zp_machine_make(const zp_cluster *cluster, zp_precision precision, int devices) {
  assert(devices >= 1 && precision < ZP_PRECISIONS);
  zp_node_set types = cluster->groups.len ? types_of_ranks(cluster, 0, devices) : 1;
  zp_machine m = machine_of_types(cluster, types, precision, devices);
  if (m.node->device.is_cpu) share_cpu_node(&m);
  return m;
}

/* ---- stages ---- */

static zp_node_set types_of_stages(const zp_machine *m, const zp_choice *c, int first, int last) {
  int64_t block = zp_stage_block(c), begin = first * block, end = (last + 1) * block, replica = block * c->pipeline;
  zp_node_set types = 0;
  for (; begin < m->devices; begin += replica, end += replica) types |= types_of_ranks(m->cluster, begin, end);
  return types;
}

zp_machine zp_machine_of_stages(const zp_machine *m, const zp_choice *choice, int first, int last) {
  assert(first >= 0 && first <= last && last < choice->pipeline);
  return m->cluster->groups.len == 0 ? *m : zp_machine_of_types(m, types_of_stages(m, choice, first, last));
}

zp_machine zp_machine_of_types(const zp_machine *m, zp_node_set types) {
  assert(m->cluster->groups.len > 0);
  assert(types > 0 && types < 1u << m->cluster->groups.len);
  zp_machine part = machine_of_types(m->cluster, types, m->precision, m->devices);
  part.collective_share = m->collective_share;
  part.spans = m->spans;
  return part;
}

zp_machine zp_machine_of_stage(const zp_machine *m, const zp_choice *choice, int stage) {
  return zp_machine_of_stages(m, choice, stage, stage);
}

/* ---- nodes ---- */

zp_node_place zp_machine_node_of(const zp_machine *m, int64_t rank) {
  assert(rank >= 0 && rank < m->devices);
  const zp_cluster *c = m->cluster;
  zp_node_place place = {.type = m->node};
  int64_t width = m->devices_per_node, before = 0; /* ranks of earlier groups */
  for (int g = 0; g < c->groups.len; g++) {
    const zp_node_group *group = &c->groups.data[g];
    place.type = &group->type;
    place.group = g;
    width = group->type.devices;
    if (rank < before + group->nodes * width) break;
    before += group->nodes * width;
    place.index += group->nodes;
  }
  int64_t node = (rank - before) / width;
  place.index += node;
  place.first = before + node * width;
  place.ranks = place.first + width <= m->devices ? width : m->devices - place.first;
  return place;
}

double zp_machine_peak_flop_per_s(const zp_machine *m) {
  if (m->cluster->groups.len == 0) return m->devices * m->flop_per_s;
  double sum = 0;
  for (int64_t rank = 0; rank < m->devices;) {
    zp_node_place node = zp_machine_node_of(m, rank);
    sum += (double)node.ranks * peak_flop_per_s(&node.type->device, m->precision);
    rank = node.first + node.ranks;
  }
  return sum;
}

int64_t zp_machine_nodes(const zp_machine *m) { return zp_machine_node_of(m, m->devices - 1).index + 1; }
