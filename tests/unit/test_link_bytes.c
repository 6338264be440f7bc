/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of collectives by link class. Every message of every rank is sent here one by one, on ranks that fill nodes in
 * order, as the runtime sends them: what leaves nodes is what plans predict (zp_move_across_bytes, which trainers
 * compare with what they send), and what the fullest node sends is what the price takes (zp_pass_bytes), and the price
 * is never less than these bytes take on the node's cards. */
#include <math.h>
#include <zplan/constants.h>
#include <zplan/moves.h>
#include <zplan/rates.h>
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(link_bytes, .init = setup, .fini = teardown);

enum { MOST_RANKS = 16, ELEMENTS = 720720 }; /* all numbers up to 16 divide it */

/* Elements that a group's messages carry inside nodes and between them, and what leaves each node. */
typedef struct sent {
  int width;
  double inside, across, out[MOST_RANKS];
} sent;

static void send(sent *s, int64_t from, int64_t to, double elements) {
  if (from / s->width == to / s->width) {
    s->inside += elements;
    return;
  }
  s->across += elements;
  s->out[from / s->width] += elements;
}

/* Members at rank[i]. A pass in which member r ends with its own part, or begins with it. */
static void flat_pass(sent *s, const int64_t *rank, int n) {
  for (int i = 0; i < n; i++)
    for (int r = 0; r < n; r++)
      if (i != r) send(s, rank[i], rank[r], (double)ELEMENTS / n);
}
static void ring_pass(sent *s, const int64_t *rank, int n) {
  for (int i = 0; i < n && n > 1; i++) send(s, rank[i], rank[(i + 1) % n], (double)ELEMENTS * (n - 1) / n);
}

/* Members of a node, where all that have one have equally many, and more than one; else 0. */
static int members_of_nodes(const sent *s, const int64_t *rank, int n) {
  int members[MOST_RANKS] = {0}, nodes = 0;
  for (int i = 0; i < n; i++) nodes += members[rank[i] / s->width]++ == 0;
  for (int i = 0; i < MOST_RANKS; i++)
    if (members[i] && members[i] != n / nodes) return 0;
  return nodes > 1 && n > nodes && n % nodes == 0 ? n / nodes : 0;
}

/* Chunk r of a sum: inside every node to the member at its owner's place, from there to the owner; a gather
 * backwards. */
static void level_pass(sent *s, const int64_t *rank, int n, bool sums) {
  int m = members_of_nodes(s, rank, n);
  for (int r = 0; r < n; r++)
    for (int i = 0; i < n; i++) {
      int at = i / m * m + r % m; /* in i's node */
      int64_t from = rank[i], via = rank[at], owner = rank[r];
      if (from != via) send(s, sums ? from : via, sums ? via : from, (double)ELEMENTS / n);
      if (i == at && via != owner) send(s, sums ? via : owner, sums ? owner : via, (double)ELEMENTS / n);
    }
}

typedef struct degrees {
  int t, p, d, e;
  zp_rank_order order;
} degrees;

static int64_t rank_of(const degrees *g, int t, int p, int d) {
  return g->order == ZP_ORDER_TDP ? t + g->t * (d + (int64_t)g->d * p) : t + g->t * (p + (int64_t)g->p * d);
}

static bool own(const zp_machine *m) { return m->node->device.is_cpu || m->cluster->trainer == ZP_TRAINER_ZPLAN; }

static void run_pass(const zp_machine *m, sent *s, const int64_t *rank, int n, bool sums) {
  bool ring = !own(m) || (!sums && !m->node->device.is_cpu); /* NCCL's, or another program's */
  if (!ring && members_of_nodes(s, rank, n) > 0)
    level_pass(s, rank, n, sums);
  else
    (ring ? ring_pass : flat_pass)(s, rank, n);
}

/* What the price of a pass is made of is at least what leaves any node, and the same where groups are alike. */
static void check_price(const zp_group_link *link, const sent *s, zp_algorithm algorithm, bool alike) {
  zp_class_bytes bytes = zp_pass_bytes(link, algorithm, ELEMENTS);
  double most = 0, priced = bytes.across;
  for (int i = 0; i < MOST_RANKS; i++) most = fmax(most, s->out[i]);
  cr_expect(priced >= most * (1 - 1e-9), "%d over %d nodes: %g priced, %g sent", link->n, link->nodes, priced, most);
  if (alike) {
    cr_expect(priced <= most * (1 + 1e-9), "%d over %d nodes: %g priced, %g sent", link->n, link->nodes, priced, most);
    cr_expect(fabs(link->n * bytes.inside - s->inside) <= 1e-6, "%g inside, %g", link->n * bytes.inside, s->inside);
  }
  if (link->nodes == 1) return;
  double seconds =
      algorithm == link->sums ? zp_cost_reduce_scatter(link, ELEMENTS) : zp_cost_all_gather(link, ELEMENTS);
  cr_expect(seconds >= most / link->network_bytes_per_s * (1 - 1e-9), "%g s for %g elements", seconds, most);
}

/* All groups of one kind of stage p: places lo, lo + step ... of the data ranks. */
static void check_groups(const zp_machine *m, const degrees *g, const zp_group_link *link, bool replicas) {
  int n = replicas ? g->d / g->e : g->d, groups = replicas ? g->e : 1;
  zp_spec spec = {.cluster = *m->cluster};
  zp_program program = {.spec = &spec,
                        .choice = {.tensor = g->t, .pipeline = g->p, .data = g->d, .expert = g->e, .order = g->order}};
  for (int p = 0; p < g->p; p++)
    for (int way = 0; way < 2; way++) {
      double across = 0;
      for (int t = 0; t < g->t; t++)
        for (int k = 0; k < groups; k++) {
          int64_t rank[MOST_RANKS];
          sent s = {.width = m->devices_per_node};
          for (int i = 0; i < n; i++) rank[i] = rank_of(g, t, p, replicas ? k + i * g->e : i);
          run_pass(m, &s, rank, n, way == 0);
          across += s.across;
          bool alike = g->t == 1 && g->p == 1 && !replicas && g->d % m->devices_per_node == 0;
          check_price(link, &s, way == 0 ? link->sums : link->gathers, alike);
        }
      zp_move move = {.way = way == 0 ? ZP_WAY_REDUCE_SCATTER : ZP_WAY_ALL_GATHER,
                      .queue = ZP_QUEUE_DATA,
                      .to = replicas ? ZP_END_REPLICAS : ZP_END_DATA_RANKS,
                      .ranks = n,
                      .elements = ELEMENTS,
                      .all_elements = (int64_t)ELEMENTS * g->t * groups,
                      .element_bytes = 1,
                      .times = 1,
                      .count = 1};
      int64_t got = zp_move_across_bytes(arena, &program, p, &move);
      cr_expect_eq((double)got, across, "t%d p%d d%d e%d way %d: %lld, sent %g", g->t, g->p, g->d, g->e, way,
                   (long long)got, across);
      if (!own(m)) continue;
      move.what = ZP_MOVE_GRADIENTS; /* of 4 bytes, 2 of which are spared where a sum crosses */
      move.element_bytes = 4;
      got = zp_move_spared_bytes(arena, &program, p, &move);
      cr_expect_eq((double)got, way == 0 ? 2 * across : 0, "t%d p%d d%d e%d way %d: %lld spared of %g", g->t, g->p,
                   g->d, g->e, way, (long long)got, 4 * across);
    }
}

static void check_layout(const degrees *g, const zp_cluster *c) {
  int ranks = g->t * g->p * g->d;
  zp_machine m = zp_machine_make(c, ZP_PREC_F32, ranks);
  zp_group_link data = zp_machine_data_group(&m, g->t, g->p, g->d, g->order);
  check_groups(&m, g, &data, false);
  if (g->e == 1) return;
  zp_group_link replicas = zp_machine_replica_group(&m, g->t, g->p, g->d, g->e, g->order);
  check_groups(&m, g, &replicas, true);
}

typedef void on_layout(const degrees *g, const void *user);
static void for_layouts(on_layout *call, const void *user) {
  for (int t = 1; t <= 4; t++)
    for (int p = 1; t * p <= MOST_RANKS; p++)
      for (int d = 1; t * p * d <= MOST_RANKS; d++)
        for (int e = 1; e <= d; e++)
          for (int order = 0; order < ZP_ORDER_COUNT && d % e == 0; order++)
            call(&(degrees){t, p, d, e, (zp_rank_order)order}, user);
}

static void on_gpus(const degrees *g, const void *user) {
  for (int width = 1; width <= 8; width++) {
    zp_cluster c = gpu_cluster(MOST_RANKS);
    c.node.devices = width;
    c.node.nics = 1;
    c.trainer = *(const zp_trainer *)user;
    check_layout(g, &c);
  }
}

Test(link_bytes, of_gpus_by_own_trainer) { for_layouts(on_gpus, &(zp_trainer){ZP_TRAINER_ZPLAN}); }

/* Rings of NCCL, whatever sums: their prices are not touched by what the own trainer does. */
Test(link_bytes, of_gpus_by_other_programs) { for_layouts(on_gpus, &(zp_trainer){ZP_TRAINER_MEGATRON}); }

static void on_cpus(const degrees *g, const void *user) {
  (void)user;
  for (int nodes = 1; nodes <= 4; nodes++) {
    zp_cluster c = cpu_cluster();
    c.nodes = nodes;
    c.node.nics = 1;
    c.node.nic = (zp_link){"ethernet", 1e9, 1e-5};
    check_layout(g, &c);
  }
}

Test(link_bytes, of_cpu_ranks) { for_layouts(on_cpus, NULL); }

/* 16 nodes of eight, a card for each: gradients of 7e9 parameters in 16 bits. Sent to all by everybody, each card would
 * carry 120 / 128 of them; in two levels, and as a ring, an eighth of that. 124 ranks leave half of the last node, and
 * everybody sends to all. */
Test(link_bytes, sums_over_nodes_are_priced_as_they_go) {
  zp_cluster c = gpu_cluster(16);
  c.node.devices = 8;
  c.node.link.bytes_per_s = 900e9;
  c.node.nic.bytes_per_s = 50e9;
  c.trainer = ZP_TRAINER_ZPLAN;
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 128);
  zp_group_link link = zp_machine_data_group(&m, 1, 1, 128, ZP_ORDER_TDP);
  double card = 0.85 * 50e9, bytes = 14e9, inside = bytes * 7 / 8 / link.local_bytes_per_s,
         sum = inside + bytes * 15 / 16 / (8 * card);
  cr_expect_eq(link.sums, ZP_ALGORITHM_TWO_LEVELS);
  cr_expect(fabs(zp_cost_reduce_scatter(&link, bytes) / sum - 1) < 0.01, "%g", zp_cost_reduce_scatter(&link, bytes));
  double ring = bytes * 127 / 128 / (8 * card);
  cr_expect(fabs(zp_cost_all_gather(&link, bytes) / ring - 1) < 0.01, "NCCL's ring, %g",
            zp_cost_all_gather(&link, bytes));
  cr_expect(fabs(zp_cost_all_reduce(&link, bytes) / (sum + ring) - 1) < 0.01, "sum, then spread");
  link.rounds = true;
  double rounded = inside + bytes * 15 / 16 / (8 * card) / 2;
  cr_expect(fabs(zp_cost_reduce_scatter(&link, bytes) / rounded - 1) < 0.01, "rounded to leave a node");
  cr_expect(fabs(zp_cost_all_reduce(&link, bytes) / (rounded + ring) - 1) < 0.01, "rounded, then spread as it is");
  cr_expect(fabs(zp_cost_all_gather(&link, bytes) / ring - 1) < 0.01, "gathers are not rounded");
  zp_machine fewer = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 124);
  zp_group_link uneven = zp_machine_data_group(&fewer, 1, 1, 124, ZP_ORDER_TDP);
  cr_expect_eq(uneven.sums, ZP_ALGORITHM_FLAT);
  double flat = bytes * 116 / 124 / card;
  cr_expect(fabs(zp_cost_reduce_scatter(&uneven, bytes) / flat - 1) < 0.01, "%g",
            zp_cost_reduce_scatter(&uneven, bytes));
}
