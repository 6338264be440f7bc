/* Collectives and messages over a link. Ring algorithms (Patarasuk and Yuan, 2009), which is what the runtime runs and
 * what NCCL uses for large arrays: n - 1 rounds a pass, each moving 1/n of the array and paying the latency of the
 * slowest link once. Left out: protocol changes with size, trees, contention between axes. */
#include "constants.h"
#include "cost.h"

double zp_cost_ring_pass(const zp_group_link *link, double bytes) {
  if (link->n < 2) return 0;
  double rounds = link->n - 1;
  return zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S) + rounds * (link->latency_s + bytes / link->n / link->bytes_per_s);
}

/* A reduce-scatter pass, then an all-gather pass, in one call. */
double zp_cost_all_reduce(const zp_group_link *link, double bytes) {
  if (link->n < 2) return 0;
  return 2 * zp_cost_ring_pass(link, bytes) - zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S);
}

double zp_cost_message(const zp_group_link *link, double bytes) {
  return link->n < 2 ? 0 : link->latency_s + bytes / link->bytes_per_s;
}
