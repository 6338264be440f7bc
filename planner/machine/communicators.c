/* Device memory of NCCL's communicators, which lies outside of every arena: each has buffers of its own for every
 * channel and neighbour, and keeps them.
 *
 *   channels    two a ring (NCCL src/graph/connect.cc). Rings in a node: one an NVLink; over nodes: one a card; of
 *               groups with one member a node: one, by that member's card
 *   neighbours  next and previous of the ring are one connection to and one from; trees (all-reduce) add another pair
 *               where there are more than two ranks
 *
 * It does not grow with the ranks (NCCL maintainers, NVIDIA/nccl issue 864). On four A100, rank 0 shows 544 MiB with
 * one other rank and 688 with more (issue 964): 24 channels' connections, of which the end of a tree's chain lacks half
 * a pair, leave 256 MiB either way. We found no source for these; groups with one member a node are taken to do
 * without. Left out: buffers of all-to-all, NVLink SHARP, and that communicators may share buffers (ncclCommSplit).
 *
 * The trainer has a communicator for every group of the plan with more than one rank, as its MPI form has (runtime/
 * comm.c): all ranks for norms and losses, tensor, data, expert groups and their replicas, the stages of a pipeline,
 * and the stages of tied parameters. Groups of the same ranks share one. */
#include <zplan/program.h>
#include "../cost/constants.h"

static double clamp_rings(double rings) {
  double most = zp_cost_constant(ZP_COST_MOST_RINGS);
  return rings < 1 ? 1 : rings < most ? rings : most;
}

static int rings_of(const zp_node_type *node, int local, int nodes) {
  if (local == 1) return 1;
  double rings = nodes > 1 ? node->nics : node->link.bytes_per_s / zp_cost_constant(ZP_COST_RING_BYTES_PER_S);
  return (int)clamp_rings(rings);
}

int64_t zp_communicator_bytes(const zp_node_type *node, int ranks, int nodes) {
  if (ranks < 2 || !node->device.has_nccl) return 0;
  int local = (ranks + nodes - 1) / nodes, neighbours = ranks > 2 ? 2 : 1;
  double connection = zp_cost_constant(local > 1 ? ZP_COST_CONNECTION_BYTES : ZP_COST_NETWORK_CONNECTION_BYTES);
  double base = local > 1 ? zp_cost_constant(ZP_COST_COMMUNICATOR_BYTES) : 0;
  return (int64_t)(base + 2 * rings_of(node, local, nodes) * neighbours * connection);
}

/* Nodes of a group of ranks that lie `stride` apart, full nodes of `width` ranks. */
static int nodes_of(int ranks, int64_t stride, int width) {
  int64_t local = stride >= width ? 1 : width / stride;
  return (int)((ranks + local - 1) / local);
}

zp_communicators zp_communicators_of(const zp_cluster *cluster, const zp_choice *c, int ties) {
  int t = c->tensor, p = c->pipeline, d = c->data, all_ranks = t * p * d;
  int e = zp_expert_ranks(c) < d ? zp_expert_ranks(c) : 1; /* a whole data group has its communicator */
  bool inner = c->order == ZP_ORDER_TPD;                   /* stages lie nearer than replicas */
  const struct {
    int ranks;
    int64_t stride;
  } groups[ZP_COMMUNICATOR_COUNT] = {
      [ZP_COMMUNICATOR_ALL] = {all_ranks, 1},
      [ZP_COMMUNICATOR_TENSOR] = {t, 1},
      [ZP_COMMUNICATOR_DATA] = {d, (int64_t)t * (inner ? p : 1)},
      [ZP_COMMUNICATOR_PIPELINE] = {p, (int64_t)t * (inner ? 1 : d)},
      [ZP_COMMUNICATOR_EXPERT] = {e, (int64_t)t * (inner ? p : 1)},
      [ZP_COMMUNICATOR_REPLICAS] = {e > 1 ? d / e : 1, (int64_t)t * (inner ? p : 1) * e},
      [ZP_COMMUNICATOR_TIES] = {p > 2 && ties > 0 ? 2 : 1, (int64_t)t * (inner ? 1 : d) * (p - 1)},
  };
  zp_communicators all = {0};
  if (!cluster->node.device.has_nccl) return all;
  int width = cluster->node.devices > 0 ? cluster->node.devices : 1;
  for (int g = 0; g < ZP_COMMUNICATOR_COUNT; g++) {
    if (g != ZP_COMMUNICATOR_ALL && groups[g].ranks == all_ranks) continue;
    int nodes = groups[g].ranks > 1 ? nodes_of(groups[g].ranks, groups[g].stride, width) : 1;
    all.bytes[g] = zp_communicator_bytes(&cluster->node, groups[g].ranks, nodes);
    all.total_bytes += all.bytes[g];
  }
  return all;
}

const char *zp_communicator_name(zp_communicator_kind kind) {
  static const char *const name[ZP_COMMUNICATOR_COUNT] = {
      "all ranks", "tensor", "data", "pipeline", "tied weights", "experts", "replicas of experts"};
  return name[kind];
}
