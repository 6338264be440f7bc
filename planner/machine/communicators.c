/* SPDX-License-Identifier: Apache-2.0 */
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
 * without.
 *
 * Who sends to whom, as zplan's trainer does to sum gradients and to exchange slots of experts (runtime/cuda/nccl.c,
 * nccl_levels.c), is connected alongside the rings: with each rank of the node by as many channels as two an NVLink, in
 * a communicator over several nodes by two; ranks of other nodes share a pool. On eight H100 that is 3.3 GB, of a
 * communicator in one node; in two levels or not, a rank talks to all in its node. Left out: NVLink SHARP, and that
 * communicators may share buffers (ncclCommSplit).
 *
 * The trainer makes (runtime/cuda/nccl.c, nccl_stages.c) a communicator for its tensor group, data group, expert group
 * and the replicas of that, each where it has more than one rank; where shards have copies, of data group and replicas
 * the ranks of a shard group alone, and one for the copies; one for every tied parameter on two stages, and for
 * every pair of neighbouring stages one in each direction and sender: two stages cannot share one both ways, because a
 * send that waits for its receiver would hold up what comes the other way. So a stage between two others has four;
 * where stages are a ring, for interleaved chunks, all have; with folded parts either chunk has its own. Norms and
 * losses go through the host. */
#include <zplan/machine.h>

#include <assert.h>
#include <zplan/constants.h>

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
  assert(ranks >= 0 && nodes >= 1);
  if (ranks < 2 || !node->device.has_nccl) return 0;
  int local = (ranks + nodes - 1) / nodes, neighbours = ranks > 2 ? 2 : 1;
  double connection = zp_cost_constant(local > 1 ? ZP_COST_CONNECTION_BYTES : ZP_COST_NETWORK_CONNECTION_BYTES);
  double base = local > 1 ? zp_cost_constant(ZP_COST_COMMUNICATOR_BYTES) : 0;
  return (int64_t)(base + 2 * rings_of(node, local, nodes) * neighbours * connection);
}

static int64_t power_of_two(int64_t at_least) {
  int64_t n = 1;
  while (n < at_least) n *= 2;
  return n;
}

int64_t zp_pairs_bytes(const zp_node_type *node, int ranks, int nodes) {
  assert(ranks >= 0 && nodes >= 1);
  if (ranks < 2 || !node->device.has_nccl) return 0;
  int local = (ranks + nodes - 1) / nodes;
  double most = zp_cost_constant(ZP_COST_PAIR_CHANNELS),
         links = node->link.bytes_per_s / zp_cost_constant(ZP_COST_RING_BYTES_PER_S);
  double channels = links < 1 ? 2 : (double)power_of_two((int64_t)(2 * links));
  if (channels > most) channels = most;
  if (nodes > 1) channels = zp_cost_constant(ZP_COST_NETWORK_PAIR_CHANNELS);
  double pool =
      nodes > 1 ? 2.0 * 2 * rings_of(node, local, nodes) * zp_cost_constant(ZP_COST_NETWORK_PAIR_POOL_BYTES) : 0;
  return (int64_t)((local - 1) * channels * zp_cost_constant(ZP_COST_PAIR_BYTES) + pool);
}

/* Nodes of a group of ranks that lie `stride` apart, full nodes of `width` ranks. */
static int nodes_of(int ranks, int64_t stride, int width) {
  int64_t local = stride >= width ? 1 : width / stride;
  return (int)((ranks + local - 1) / local);
}

/* Bytes of communicators of pairs with the stages below and above, either way: for a stage between others, in the
 * middle of a node where there is room; or for the first or last one. local: stages that a node has of a pipeline. */
static int64_t pair_bytes(const zp_node_type *node, const zp_choice *c, int local, bool between, bool own) {
  bool folded = zp_schedule_folds(c->schedule), ring = zp_chunks(c) > 1 && !folded;
  int sides = ring || between ? 2 : 1, near = local - 1 < sides ? local - 1 : sides, channels = folded ? 4 : 2;
  if (c->pipeline == 1) return 0;
  if (c->pipeline == 2) near = local > 1 ? sides : 0;
  /* one way each: of a pair's buffers half, as many channels come in as go out */
  int64_t in_node = zp_communicator_bytes(node, 2, 1) + (own ? zp_pairs_bytes(node, 2, 1) / 2 : 0),
          over = zp_communicator_bytes(node, 2, 2) + (own ? zp_pairs_bytes(node, 2, 2) / 2 : 0);
  return channels * (near * in_node + (sides - near) * over);
}

/* pairs: its members send to each other, too. */
static int64_t group_bytes(const zp_cluster *cluster, int ranks, int64_t stride, bool pairs) {
  int width = cluster->node.devices > 0 ? cluster->node.devices : 1, nodes = nodes_of(ranks, stride, width);
  if (ranks < 2) return 0;
  return zp_communicator_bytes(&cluster->node, ranks, nodes) +
         (pairs ? zp_pairs_bytes(&cluster->node, ranks, nodes) : 0);
}

zp_communicators zp_communicators_of(const zp_cluster *cluster, const zp_choice *c, int ties) {
  assert(zp_choice_has_degrees(c) && ties >= 0);
  int t = c->tensor, p = c->pipeline, d = c->data, e = zp_expert_ranks(c), shard = zp_shard_ranks(c);
  bool own = cluster->trainer == ZP_TRAINER_ZPLAN; /* others sum by rings */
  bool inner = c->order == ZP_ORDER_TPD;           /* stages lie nearer than replicas */
  int64_t of_data = (int64_t)t * (inner ? p : 1), of_stages = (int64_t)t * (inner ? 1 : d);
  int width = cluster->node.devices > 0 ? cluster->node.devices : 1;
  int local = of_stages >= width ? 1 : (int)(width / of_stages);
  zp_communicators made = {0};
  if (!cluster->node.device.has_nccl || t * p * d == 1) return made;
  made.bytes[ZP_COMMUNICATOR_TENSOR] = group_bytes(cluster, t, 1, own && c->sequence);
  made.bytes[ZP_COMMUNICATOR_DATA] = group_bytes(cluster, shard, of_data, own);
  made.bytes[ZP_COMMUNICATOR_EXPERT] = group_bytes(cluster, e, of_data, own);
  made.bytes[ZP_COMMUNICATOR_CONTEXT] = group_bytes(cluster, zp_context_ranks(c), of_data, own);
  made.bytes[ZP_COMMUNICATOR_REPLICAS] = e > 1 ? group_bytes(cluster, shard / e, of_data * e, own) : 0;
  made.bytes[ZP_COMMUNICATOR_COPIES] = group_bytes(cluster, d / shard, of_data * shard, own);
  made.bytes[ZP_COMMUNICATOR_HPZ] = group_bytes(cluster, c->hpz, of_data, own);
  made.bytes[ZP_COMMUNICATOR_SUMS] = (int64_t)zp_cost_constant(ZP_COST_SUM_SHARES_BYTES);
  int64_t at_end = pair_bytes(&cluster->node, c, local, false, own),
          between = pair_bytes(&cluster->node, c, local, true, own), tie = 0;
  if (p > 1 && !zp_schedule_folds(c->schedule)) /* folded, both ends of the model are on one stage */
    tie = ties * group_bytes(cluster, 2, of_stages * (p - 1), own);
  bool ends = p == 2 || at_end + tie >= between;
  made.bytes[ZP_COMMUNICATOR_PIPELINE] = ends ? at_end : between;
  made.bytes[ZP_COMMUNICATOR_TIES] = ends ? tie : 0;
  for (int g = 0; g < ZP_COMMUNICATOR_COUNT; g++) made.total_bytes += made.bytes[g];
  return made;
}

const char *zp_communicator_name(zp_communicator_kind kind) {
  assert(kind < ZP_COMMUNICATOR_COUNT);
  static const char *const name[ZP_COMMUNICATOR_COUNT] = {"tensor",
                                                          "data",
                                                          "pipeline",
                                                          "tied weights",
                                                          "experts",
                                                          "context groups",
                                                          "replicas of experts",
                                                          "copies of shards",
                                                          "hpZ groups",
                                                          "shares of sums"};
  return name[kind];
}
