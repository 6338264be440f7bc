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
 * without. Left out: buffers of all-to-all, NVLink SHARP. */
#include "constants.h"
#include "cost.h"

static double clamp_rings(double rings) {
  double most = zp_cost_constant(ZP_COST_MOST_RINGS);
  return rings < 1 ? 1 : rings < most ? rings : most;
}

static int rings_of(const zp_node_type *node, int local, int nodes) {
  if (local == 1) return 1;
  double rings = nodes > 1 ? node->nics : node->link.bytes_per_s / zp_cost_constant(ZP_COST_RING_BYTES_PER_S);
  return (int)clamp_rings(rings);
}

int64_t zp_cost_communicator_bytes(const zp_node_type *node, int ranks, int nodes) {
  if (ranks < 2 || node->device.is_cpu) return 0;
  int local = (ranks + nodes - 1) / nodes, neighbours = ranks > 2 ? 2 : 1;
  double connection = zp_cost_constant(local > 1 ? ZP_COST_CONNECTION_BYTES : ZP_COST_NETWORK_CONNECTION_BYTES);
  double base = local > 1 ? zp_cost_constant(ZP_COST_COMMUNICATOR_BYTES) : 0;
  return (int64_t)(base + 2 * rings_of(node, local, nodes) * neighbours * connection);
}
