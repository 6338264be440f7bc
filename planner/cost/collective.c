/* Collectives and messages over a link, after NCCL's own model (src/graph/tuning.cc).
 *
 * Ring (Patarasuk and Yuan, 2009), which is also what the CPU runtime runs: n - 1 rounds a pass, each moving 1/n of the
 * array over the slowest link and paying one hop; most hops stay inside nodes. Tree, for all-reduces that NCCL runs: up
 * and down a binary tree of nodes and a chain inside each, so that latency grows with the logarithm of the nodes. NCCL
 * takes the faster. Left out: low-latency protocols for small arrays, NVLink SHARP, contention between axes. */
#include <math.h>
#include "constants.h"
#include "cost.h"

double zp_cost_ring_pass(const zp_group_link *link, double bytes) {
  if (link->n < 2) return 0;
  double rounds = link->n - 1;
  return zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S) + rounds * (link->latency_s + bytes / link->n / link->bytes_per_s);
}

/* Every byte goes up and down. */
static double tree_s(const zp_group_link *link, double bytes) {
  double hops = (link->local - 1) * link->local_latency_s + ceil(log2(link->nodes)) * link->network_latency_s;
  return zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S) + 2 * hops +
         2 * bytes / (link->bytes_per_s * zp_cost_constant(ZP_COST_TREE_SHARE));
}

/* A reduce-scatter pass, then an all-gather pass, in one call. */
double zp_cost_all_reduce(const zp_group_link *link, double bytes) {
  if (link->n < 2) return 0;
  double ring = 2 * zp_cost_ring_pass(link, bytes) - zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S);
  return link->trees && link->nodes > 1 ? fmin(ring, tree_s(link, bytes)) : ring;
}

double zp_cost_message(const zp_group_link *link, double bytes) {
  return link->n < 2 ? 0 : link->latency_s + bytes / link->bytes_per_s;
}
