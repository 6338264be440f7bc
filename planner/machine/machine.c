/* Effective machine of one run: rates of one rank and the links of its groups.
 *
 * Ranks are placed tensor fastest, then data, then pipeline, and fill nodes in order. A GPU rank owns its device. CPU
 * ranks share their node: a rank has a whole number of the node's cores (a fraction when ranks outnumber cores) and an
 * equal share of its memory and memory bandwidth; the rates of a CPU device in a .dz file are those of the whole node.
 */
#include <string.h>
#include <zplan/machine.h>
#include "../cost/constants.h"

static int ceil_div(int a, int b) { return (a + b - 1) / b; }

static double peak_flop_per_s(const zp_device *device, zp_precision precision) {
  switch (precision) {
  case ZP_PREC_F64: return device->flop_per_s_fp64;
  case ZP_PREC_F32: return device->flop_per_s_fp32;
  case ZP_PREC_MIXED_FP16:
  case ZP_PREC_MIXED_BF16: return device->flop_per_s_half;
  }
  return 0;
}

static int compute_bytes(zp_precision precision) {
  return precision == ZP_PREC_F64 ? 8 : precision == ZP_PREC_F32 ? 4 : 2;
}

/* Share of the node's cores that one of its ranks computes with: its threads are whole cores. */
static double core_share(int cores, int ranks) {
  if (cores <= ranks) return 1.0 / ranks;
  return (double)(cores / ranks) / cores;
}

zp_machine zp_machine_make(const zp_cluster *cluster, zp_precision precision, int devices) {
  const zp_device *device = &cluster->node.device;
  int nodes = cluster->nodes > 0 ? cluster->nodes : 1;
  zp_machine m = {.cluster = cluster,
                  .node = &cluster->node,
                  .devices = devices,
                  .devices_per_node = cluster->node.devices,
                  .compute_bytes = compute_bytes(precision),
                  .flop_per_s = peak_flop_per_s(device, precision),
                  .memory_bytes_per_s = device->memory_bytes_per_s,
                  .collective_share = 1,
                  .memory_bytes = device->memory_bytes,
                  .context_bytes = device->context_bytes};
  if (device->is_cpu) {
    int ranks = ceil_div(devices, nodes);
    m.devices_per_node = ranks;
    m.flop_per_s *= device->cores > 0 ? core_share(device->cores, ranks) : 1.0 / ranks;
    m.memory_bytes_per_s /= ranks;
    m.memory_bytes /= ranks;
  }
  if (m.devices_per_node < 1) m.devices_per_node = 1;
  return m;
}

/* ---- groups ---- */

/* A copy through shared memory is written once and read once by each side, so it costs four times its bytes. */
enum { SHARED_MEMORY_TRAFFIC = 4 };

static double in_node_bytes_per_s(const zp_machine *m) {
  double link = m->node->link.bytes_per_s;
  if (!m->node->device.is_cpu) return link * zp_cost_constant(ZP_COST_LINK_PAYLOAD);
  if (m->cluster->calibration) return link;
  double copy = m->memory_bytes_per_s / SHARED_MEMORY_TRAFFIC;
  return link > 0 && link < copy ? link : copy;
}

/* NVLinks that a ring over `local` neighbouring devices of a DGX-1V finds in its cube mesh, of six a device: one to the
 * next device, two to four inside a half of the node, all over the whole node (DGX-1 with Tesla V100, system
 * architecture white paper, figure 4). Switches give every group all links. */
static double mesh_share(const zp_machine *m, int local) {
  const char *kind = m->node->link.kind;
  if (!kind || strcmp(kind, "nvlink") != 0 || local >= 8) return 1;
  return local <= 2 ? 1.0 / 6 : 4.0 / 6;
}

/* What one of `streams` simultaneous streams out of a node gets of its NICs. */
static double network_bytes_per_s(const zp_machine *m, int streams) {
  const zp_cluster *c = m->cluster;
  double oversubscription = c->oversubscription > 1 ? c->oversubscription : 1;
  int nics = c->node.nics > 0 ? c->node.nics : 1;
  double payload = c->node.device.is_cpu ? 1 : zp_cost_constant(ZP_COST_NETWORK_PAYLOAD);
  return payload * nics * c->node.nic.bytes_per_s / (streams > 1 ? streams : 1) / oversubscription;
}

/* The slowest link of a ring over n ranks that lie `stride` apart, for the group with the most nodes. */
static zp_group_link make_link(const zp_machine *m, int n, int stride, int first_step, int groups) {
  const zp_cluster *c = m->cluster;
  zp_group_link link = {.n = n, .nodes = 1};
  int per_node = m->devices_per_node;
  for (int g = 0; g < groups; g++) {
    int first = g * first_step, last = first + (n - 1) * stride;
    int nodes = last / per_node - first / per_node + 1;
    if (nodes > n) nodes = n; /* members further apart than a node */
    if (nodes > link.nodes) link.nodes = nodes;
  }
  link.local = ceil_div(n, link.nodes);
  link.bytes_per_s = in_node_bytes_per_s(m) * mesh_share(m, link.local);
  link.latency_s = link.local_latency_s = c->node.link.latency_s;
  link.network_latency_s = c->node.nic.latency_s + c->fabric_latency_s;
  link.trees = !c->node.device.is_cpu;
  if (link.nodes == 1) return link;
  /* Every group with members in a node sends one stream out of it. */
  int ranks_here = per_node < m->devices ? per_node : m->devices;
  double network = network_bytes_per_s(m, ceil_div(ranks_here, link.local)) * m->collective_share;
  if (link.local == 1 || network < link.bytes_per_s) link.bytes_per_s = network;
  /* Of the n - 1 hops of a pass, nodes - 1 cross the network. */
  double crossing = (double)(link.nodes - 1) / (n - 1);
  link.latency_s = crossing * link.network_latency_s + (1 - crossing) * link.local_latency_s;
  return link;
}

zp_group_link zp_machine_tensor_group(const zp_machine *m, int tensor, int pipeline, int data) {
  return make_link(m, tensor, 1, tensor, pipeline * data);
}

zp_group_link zp_machine_data_group(const zp_machine *m, int tensor, int pipeline, int data) {
  return make_link(m, data, tensor, tensor * data, pipeline);
}

zp_group_link zp_machine_pipeline_link(const zp_machine *m, int tensor, int pipeline, int data) {
  int stride = tensor * data;
  zp_group_link link = {.n = pipeline > 1 ? 2 : 1, .local = 2, .nodes = 1};
  link.bytes_per_s = in_node_bytes_per_s(m);
  link.latency_s = m->node->link.latency_s;
  if (pipeline == 1 || pipeline * stride <= m->devices_per_node) return link;
  /* The boundary between two nodes: up to `stride` ranks of a node talk to the next stage at once. */
  link.local = 1, link.nodes = 2;
  link.bytes_per_s = network_bytes_per_s(m, stride < m->devices_per_node ? stride : m->devices_per_node);
  link.latency_s = m->node->nic.latency_s + m->cluster->fabric_latency_s;
  return link;
}
