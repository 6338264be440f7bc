/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives and messages over a link: those of NCCL after its own model (src/graph/tuning.cc), those of zplan's own
 * trainer, which sums in rank order by messages between all members, by the bytes that they send (link_bytes.c).
 *
 * Ring (Patarasuk and Yuan, 2009): n - 1 rounds a pass, each moving 1/n of the array over the slowest link and paying
 * one hop; most hops stay inside nodes. Its rings leave a node once over each network card, so a group with several
 * members in a node has all their cards. Tree, NCCL's hierarchical all-reduce:
 * up and down a binary tree of nodes and a chain inside each, so that latency grows with the logarithm of the nodes.
 *
 * Protocols of GPU rings: Simple moves large pieces between fences; LL and, inside a node, LL128 send flags with the
 * data, which makes a hop several times shorter and costs bandwidth. NCCL takes the fastest of all of these; so does
 * this model. LL128 needs stores that arrive whole, which networks seldom promise; ZeRO-3 gathers on 128 to 1,024 A100
 * ran at Simple's latency (docs/evidence/accuracy.md). Left out: NVLink SHARP, contention between groups.
 *
 * A collective that runs alongside other kernels has multiprocessors to itself, one for each of its thread blocks,
 * which share them with nothing else (NVIDIA/nccl issue 689). */
#include <assert.h>
#include <math.h>
#include <zplan/constants.h>
#include <zplan/rates.h>

/* Hops against those of Simple, bandwidth of the whole ring. */
typedef struct protocol {
  double local_hop, network_hop, bytes_per_s;
} protocol;

static protocol protocol_ll(const zp_group_link *link) {
  enum zp_cost_constant most = link->nodes > 1 ? ZP_COST_LL_NETWORK_BYTES_PER_S : ZP_COST_LL_BYTES_PER_S;
  return (protocol){zp_cost_constant(ZP_COST_LL_HOP), zp_cost_constant(ZP_COST_LL_NETWORK_HOP),
                    fmin(zp_cost_constant(most), link->bytes_per_s * zp_cost_constant(ZP_COST_LL_SHARE))};
}

static protocol protocol_ll128(const zp_group_link *link) {
  return (protocol){zp_cost_constant(ZP_COST_LL128_HOP), 1, link->bytes_per_s * zp_cost_constant(ZP_COST_LL128_SHARE)};
}

/* `passes` ring passes of an array in one call. */
static double ring_s(const zp_group_link *link, const protocol *p, double bytes, double passes) {
  double rounds = link->n - 1, crossing = link->nodes - 1;
  double hops =
      (rounds - crossing) * link->local_latency_s * p->local_hop + crossing * link->network_latency_s * p->network_hop;
  return zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S) + passes * (hops + rounds * bytes / link->n / p->bytes_per_s);
}

static double fastest_ring_s(const zp_group_link *link, double bytes, double passes) {
  protocol simple = {1, 1, link->bytes_per_s}, ll = protocol_ll(link), ll128 = protocol_ll128(link);
  double best = ring_s(link, &simple, bytes, passes);
  if (!link->trees) return best;
  best = fmin(best, ring_s(link, &ll, bytes, passes));
  return link->nodes > 1 ? best : fmin(best, ring_s(link, &ll128, bytes, passes));
}

double zp_cost_ring_pass(const zp_group_link *link, double bytes) {
  assert(link->n >= 1 && bytes >= 0);
  return link->n < 2 ? 0 : fastest_ring_s(link, bytes, 1);
}

/* Along the ring every rank passes on what it gets, piece by piece: one pass of hops, and the array once. */
static double broadcast_s(const zp_group_link *link, const protocol *p, double bytes) {
  return ring_s(link, p, 0, 1) + bytes / p->bytes_per_s;
}

double zp_cost_broadcast(const zp_group_link *link, double bytes) {
  assert(link->n >= 1 && bytes >= 0);
  if (link->n < 2) return 0;
  protocol simple = {1, 1, link->bytes_per_s}, ll = protocol_ll(link);
  double best = broadcast_s(link, &simple, bytes);
  return link->trees ? fmin(best, broadcast_s(link, &ll, bytes)) : best;
}

/* Every byte goes up and down. */
static double tree_s(const zp_group_link *link, double bytes) {
  double hops = (link->local - 1) * link->local_latency_s + ceil(log2(link->nodes)) * link->network_latency_s;
  return zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S) + 2 * hops +
         2 * bytes / (link->bytes_per_s * zp_cost_constant(ZP_COST_TREE_SHARE));
}

/* rounds: what leaves a node is rounded to half of its bytes. What rounding reads and writes in memory is left out. */
static zp_class_bytes sent_in_pass(const zp_group_link *link, zp_algorithm algorithm, double bytes, bool rounds) {
  zp_class_bytes sent = zp_pass_bytes(link, algorithm, bytes);
  if (rounds) sent.across /= 2;
  return sent;
}

/* Pairwise exchange (Thakur, Rabenseifner and Gropp, 2005, section 3.4): every member has a message for each of the
 * others, n - 1 rounds. Rounds inside nodes and over the network use different links at the same time; out of a node go
 * the messages of all its `local` members, over the cards that are the group's. NCCL's grouped sends and receives and
 * the CPU runtime post all messages at once, which the hops of the rounds only bound from above. */
static double flat_s(const zp_group_link *link, double bytes, bool rounds) {
  zp_class_bytes sent = sent_in_pass(link, ZP_ALGORITHM_FLAT, bytes, rounds);
  double outside = link->n - link->local;
  double local_s = (link->local - 1) * link->local_latency_s + sent.inside / link->local_bytes_per_s;
  double network_s = outside > 0 ? outside * link->network_latency_s + sent.across / link->network_bytes_per_s : 0;
  return zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S) + fmax(local_s, network_s);
}

/* One level after the other, each with the messages of all members at once. */
static double two_levels_s(const zp_group_link *link, double bytes, bool rounds) {
  zp_class_bytes sent = sent_in_pass(link, ZP_ALGORITHM_TWO_LEVELS, bytes, rounds);
  double local_s = (link->local - 1) * link->local_latency_s + sent.inside / link->local_bytes_per_s;
  double network_s = (link->nodes - 1) * link->network_latency_s + sent.across / link->network_bytes_per_s;
  return 2 * zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S) + local_s + network_s;
}

double zp_cost_all_to_all(const zp_group_link *link, double bytes) {
  assert(link->n >= 1 && bytes >= 0);
  return link->n < 2 ? 0 : flat_s(link, bytes, false);
}

/* Inside a node the bytes of a ring and of an exchange are the same, and so is the price. */
static double pass_s(const zp_group_link *link, zp_algorithm algorithm, double bytes, bool rounds) {
  assert(link->n >= 1 && bytes >= 0);
  if (link->n < 2) return 0;
  if (algorithm == ZP_ALGORITHM_RING || link->nodes == 1) return fastest_ring_s(link, bytes, 1);
  return algorithm == ZP_ALGORITHM_FLAT ? flat_s(link, bytes, rounds) : two_levels_s(link, bytes, rounds);
}

double zp_cost_exchange(const zp_group_link *link, double bytes) {
  bool own = link->sums != ZP_ALGORITHM_RING;
  return pass_s(link, own ? ZP_ALGORITHM_FLAT : ZP_ALGORITHM_RING, bytes, false);
}

double zp_cost_reduce_scatter(const zp_group_link *link, double bytes) {
  return pass_s(link, link->sums, bytes, link->rounds);
}

double zp_cost_all_gather(const zp_group_link *link, double bytes) { return pass_s(link, link->gathers, bytes, false); }

/* A reduce-scatter pass, then an all-gather pass; of a ring in one call. */
double zp_cost_all_reduce(const zp_group_link *link, double bytes) {
  assert(link->n >= 1 && bytes >= 0);
  if (link->n < 2) return 0;
  if (link->nodes > 1 && link->sums != ZP_ALGORITHM_RING)
    return zp_cost_reduce_scatter(link, bytes) + zp_cost_all_gather(link, bytes);
  double ring = fastest_ring_s(link, bytes, 2);
  return link->trees && link->nodes > 1 ? fmin(ring, tree_s(link, bytes)) : ring;
}

double zp_cost_message(const zp_group_link *link, double bytes) {
  assert(link->n >= 1 && bytes >= 0);
  return link->n < 2 ? 0 : link->latency_s + bytes / link->bytes_per_s;
}

double zp_cost_taken(const zp_machine *machine, const zp_group_link *link) {
  assert(link->n >= 1 && link->blocks >= 0);
  return link->n < 2 ? 0 : fmin(1, link->blocks / zp_cost_units(machine));
}
