/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranks stand: groups under both rank orders, on equal nodes and on mixed ones, against an enumeration of all
 * ranks; the machine of a stage; the slowest of a set of node types. */
#include <math.h>
#include <zplan/program.h>
#include "planner_models.h"

/* ---- every rank with its coordinates ---- */

typedef struct rank_at {
  int t, p, d, node, group;
} rank_at;
enum { MOST_RANKS = 96 };
typedef struct grid {
  int tensor, pipeline, data, ranks;
  zp_rank_order order;
  rank_at at[MOST_RANKS];
} grid;

/* Three nested loops, the fastest axis inside; nodes filled one after the other as the widths say. */
static grid make_grid(int tensor, int pipeline, int data, zp_rank_order order, const int *width, const int *group) {
  grid g = {.tensor = tensor, .pipeline = pipeline, .data = data, .order = order};
  int outer = order == ZP_ORDER_TDP ? pipeline : data, inner = order == ZP_ORDER_TDP ? data : pipeline;
  int node = 0, used = 0;
  for (int o = 0; o < outer; o++)
    for (int i = 0; i < inner; i++)
      for (int t = 0; t < tensor; t++) {
        if (used == width[node]) node++, used = 0;
        used++;
        bool tdp = order == ZP_ORDER_TDP;
        g.at[g.ranks++] = (rank_at){t, tdp ? o : i, tdp ? i : o, node, group[node]};
      }
  return g;
}

/* Expert groups: neighbouring data ranks; replicas: those at one place of these groups. */
typedef enum axis { TENSOR, DATA, EXPERT, REPLICA } axis;

static bool same_group(const rank_at *a, const rank_at *b, axis along, int expert) {
  if (a->p != b->p) return false;
  if (along == TENSOR) return a->d == b->d;
  if (a->t != b->t || along == DATA) return a->t == b->t;
  return along == EXPERT ? a->d / expert == b->d / expert : a->d % expert == b->d % expert;
}

/* Most nodes of a group that stands on the given types alone. */
static int most_nodes(const grid *g, axis along, int expert, zp_node_set types) {
  int most = 1;
  for (int r = 0; r < g->ranks; r++) {
    int nodes = 0;
    bool inside = true, seen[MOST_RANKS] = {false};
    for (int q = 0; q < g->ranks; q++) {
      if (!same_group(&g->at[r], &g->at[q], along, expert)) continue;
      inside &= types >> g->at[q].group & 1;
      nodes += !seen[g->at[q].node];
      seen[g->at[q].node] = true;
    }
    if (inside && nodes > most) most = nodes;
  }
  return most;
}

/* Does a message between neighbouring stages, both on the given types, leave its node? */
static bool message_leaves(const grid *g, zp_node_set types) {
  for (int r = 0; r < g->ranks; r++)
    for (int q = 0; q < g->ranks; q++) {
      const rank_at *a = &g->at[r], *b = &g->at[q];
      bool inside = types >> a->group & types >> b->group & 1;
      if (inside && a->t == b->t && a->d == b->d && b->p == a->p + 1 && a->node != b->node) return true;
    }
  return false;
}

static void check_groups(const zp_machine *m, const grid *g, zp_node_set types, const char *what) {
  int t = g->tensor, p = g->pipeline, d = g->data;
  cr_expect_eq(zp_machine_tensor_group(m, t, p, d).nodes, most_nodes(g, TENSOR, 1, types),
               "%s: tensor %d x %d x %d order %d", what, t, p, d, g->order);
  cr_expect_eq(zp_machine_data_group(m, t, p, d, g->order).nodes, most_nodes(g, DATA, 1, types),
               "%s: data %d x %d x %d order %d", what, t, p, d, g->order);
  for (int e = 2; e <= d; e++) {
    if (d % e) continue;
    cr_expect_eq(zp_machine_expert_group(m, t, p, d, e, g->order).nodes, most_nodes(g, EXPERT, e, types),
                 "%s: expert %d of %d x %d x %d order %d", what, e, t, p, d, g->order);
    cr_expect_eq(zp_machine_replica_group(m, t, p, d, e, g->order).nodes, most_nodes(g, REPLICA, e, types),
                 "%s: replicas of expert %d of %d x %d x %d order %d", what, e, t, p, d, g->order);
  }
  cr_expect_eq(zp_machine_pipeline_link(m, t, p, d, g->order).nodes, message_leaves(g, types) ? 2 : 1,
               "%s: pipeline %d x %d x %d order %d", what, t, p, d, g->order);
}

typedef void on_grid(const int *degrees, zp_rank_order order, void *user);
static void for_degrees(int most, on_grid *call, void *user) {
  for (int t = 1; t <= most; t++)
    for (int p = 1; t * p <= most; p++)
      for (int d = 1; t * p * d <= most; d++)
        for (int order = 0; order < ZP_ORDER_COUNT; order++) call((int[]){t, p, d}, (zp_rank_order)order, user);
}

/* ---- equal nodes ---- */

static void check_equal(const int *degrees, zp_rank_order order, void *user) {
  (void)user;
  int width[MOST_RANKS], group[MOST_RANKS] = {0};
  for (int w = 1; w <= 9; w++) {
    for (int i = 0; i < MOST_RANKS; i++) width[i] = w;
    grid g = make_grid(degrees[0], degrees[1], degrees[2], order, width, group);
    zp_cluster c = gpu_cluster(MOST_RANKS);
    c.node.devices = w;
    zp_machine m = zp_machine_make(&c, ZP_PREC_F32, g.ranks);
    check_groups(&m, &g, 1, zp_rank_order_name(order));
    zp_choice choice = {.tensor = degrees[0], .pipeline = degrees[1], .data = degrees[2], .order = order};
    for (int r = 0; r < g.ranks; r++) {
      cr_expect_eq(zp_stage_of_rank(&choice, r), g.at[r].p);
      cr_expect_eq(zp_machine_node_of(&m, r).index, g.at[r].node);
    }
    cr_expect_eq(zp_machine_nodes(&m), g.at[g.ranks - 1].node + 1);
  }
}

Test(machine, groups_on_equal_nodes_are_those_of_an_enumeration) { for_degrees(48, check_equal, NULL); }

/* The most bytes that the ranks of a node have together, rank by rank. */
static void check_most_of_a_node(const int *degrees, zp_rank_order order, void *user) {
  (void)user;
  zp_choice c = {.tensor = degrees[0], .pipeline = degrees[1], .data = degrees[2], .order = order};
  int ranks = c.tensor * c.pipeline * c.data, width = 6;
  int64_t bytes[MOST_RANKS], most = 0, sum = 0;
  for (int s = 0; s < c.pipeline; s++) bytes[s] = 1 + s * s % 7;
  for (int r = 0; r < ranks; r++) {
    sum = (r % width ? sum : 0) + bytes[order == ZP_ORDER_TPD ? r / c.tensor % c.pipeline : r / (c.tensor * c.data)];
    if (sum > most) most = sum;
  }
  cr_expect_eq(zp_most_of_a_node(&c, width, bytes), most, "%d x %d x %d", c.tensor, c.pipeline, c.data);
}

Test(machine, most_of_a_node) { for_degrees(36, check_most_of_a_node, NULL); }

/* ---- mixed nodes ---- */

/* Three types of 4, 6 and 3 devices: 3 + 4 + 6 nodes. */
static zp_cluster mixed_cluster(zp_arena *arena) {
  static const int nodes[] = {3, 4, 6}, devices[] = {4, 6, 3};
  zp_cluster c = gpu_cluster(1);
  for (int g = 0; g < 3; g++) {
    zp_node_group group = {.nodes = nodes[g], .type = c.node, .price_per_gpu_hour = 1 + g};
    group.type.devices = devices[g];
    group.type.device.memory_bytes = (int64_t)(30 - 5 * g) << 30;
    group.type.device.flop_per_s_half = (100 + 50.0 * (g == 1)) * 1e12;
    group.type.nic.bytes_per_s = (10.0 - g) * 1e9;
    zp_push(arena, &c.groups, group);
  }
  zp_cluster_mix(arena, &c);
  return c;
}

static void check_mixed(const int *degrees, zp_rank_order order, void *user) {
  const zp_cluster *c = user;
  static const int width[] = {4, 4, 4, 6, 6, 6, 6, 3, 3, 3, 3, 3, 3, 3},
                   group[] = {0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2};
  grid g = make_grid(degrees[0], degrees[1], degrees[2], order, width, group);
  zp_machine m = zp_machine_make(c, ZP_PREC_MIXED_FP16, g.ranks);
  zp_choice choice = {.tensor = degrees[0], .pipeline = degrees[1], .data = degrees[2], .order = order};
  for (int r = 0; r < g.ranks; r++) {
    zp_node_place place = zp_machine_node_of(&m, r);
    cr_expect_eq(place.index, g.at[r].node);
    cr_expect_eq(place.group, g.at[r].group);
    cr_expect(place.first <= r && r < place.first + place.ranks);
  }
  check_groups(&m, &g, m.types, "all");
  for (int s = 0; s < choice.pipeline; s++) {
    zp_node_set types = 0;
    int64_t memory = INT64_MAX;
    double flop = INFINITY, nic = INFINITY;
    for (int r = 0; r < g.ranks; r++) {
      if (g.at[r].p != s) continue;
      const zp_node_type *type = &c->groups.data[g.at[r].group].type;
      types |= 1u << g.at[r].group;
      if (type->device.memory_bytes < memory) memory = type->device.memory_bytes;
      flop = fmin(flop, type->device.flop_per_s_half);
      nic = fmin(nic, type->nic.bytes_per_s);
    }
    zp_machine part = zp_machine_of_stage(&m, &choice, s);
    cr_expect_eq(part.types, types);
    cr_expect_eq(part.memory_bytes, memory);
    cr_expect_eq(part.flop_per_s, flop);
    cr_expect_eq(part.node->nic.bytes_per_s, nic);
    check_groups(&part, &g, types, "stage");
    if (s == 0) continue;
    zp_node_set both = types | zp_machine_of_stage(&m, &choice, s - 1).types;
    zp_machine pair = zp_machine_of_stages(&m, &choice, s - 1, s);
    cr_expect_eq(pair.types, both);
    check_groups(&pair, &g, both, "two stages");
  }
}

Test(machine, groups_on_mixed_nodes_are_those_of_an_enumeration) {
  zp_arena *arena = zp_arena_new("test");
  zp_cluster c = mixed_cluster(arena);
  cr_expect_eq(zp_cluster_devices(&c), 54);
  for_degrees(40, check_mixed, &c);
  zp_arena_free(arena);
}

Test(machine, price_is_the_mean_of_the_devices_in_use) {
  zp_arena *arena = zp_arena_new("test");
  zp_cluster c = mixed_cluster(arena);
  cr_expect_eq(zp_cluster_price(&c, 12), 1);
  cr_expect_float_eq(zp_cluster_price(&c, 24), 1.5, 1e-12);
  cr_expect_float_eq(zp_cluster_price(&c, 54), (12 * 1 + 24 * 2 + 18 * 3) / 54.0, 1e-12);
  c.groups.data[2].price_per_gpu_hour = 0;
  cr_expect_eq(zp_cluster_price(&c, 54), 0, "one price is missing");
  cr_expect_float_eq(zp_cluster_price(&c, 36), (12 * 1 + 24 * 2) / 36.0, 1e-12);
  zp_arena_free(arena);
}

/* ---- the slowest of a set ---- */

static void expect_same_node(const zp_node_type *a, const zp_node_type *b) {
  cr_expect_eq(a->devices, b->devices);
  cr_expect_eq(a->device.memory_bytes, b->device.memory_bytes);
  cr_expect_eq(a->device.flop_per_s_half, b->device.flop_per_s_half);
  cr_expect_eq(a->device.flop_per_s_fp32, b->device.flop_per_s_fp32);
  cr_expect_eq(a->device.eff_matmul, b->device.eff_matmul);
  cr_expect_eq(a->device.eff_attention, b->device.eff_attention);
  cr_expect_eq(a->device.memory_bytes_per_s, b->device.memory_bytes_per_s);
  cr_expect_eq(a->link.bytes_per_s, b->link.bytes_per_s);
  cr_expect_eq(a->nic.bytes_per_s, b->nic.bytes_per_s);
  cr_expect_eq(a->host_memory_bytes, b->host_memory_bytes);
  cr_expect_eq(a->nics, b->nics);
}

Test(machine, equal_types_mix_to_themselves) {
  zp_arena *arena = zp_arena_new("test");
  zp_cluster c = gpu_cluster(1);
  c.node.host_memory_bytes = INT64_C(1234567890123);
  zp_node_type plain = c.node;
  for (int g = 0; g < 3; g++) {
    zp_node_group group = {.nodes = 1, .type = plain};
    zp_push(arena, &c.groups, group);
  }
  zp_cluster_mix(arena, &c);
  for (int set = 1; set < 8; set++) expect_same_node(&c.slowest[set], &plain);
  zp_arena_free(arena);
}

/* Rates that are not efficient count by what they reach. */
Test(machine, a_mix_is_never_faster_than_a_member) {
  zp_arena *arena = zp_arena_new("test");
  zp_cluster c = mixed_cluster(arena);
  c.groups.data[0].type.device.eff_matmul = 0.9;
  c.groups.data[1].type.device.eff_attention = 0.2;
  c.groups.data[2].type.device.eff_memory = 0.3;
  c.groups.data[2].type.host_memory_bytes = 3;
  zp_cluster_mix(arena, &c);
  for (unsigned set = 1; set < 8; set++)
    for (int g = 0; g < 3; g++) {
      if (!(set >> g & 1)) continue;
      const zp_device *mix = &c.slowest[set].device, *member = &c.groups.data[g].type.device;
      double slack = 1 + 1e-12;
      cr_expect_leq(mix->flop_per_s_half * mix->eff_matmul, member->flop_per_s_half * member->eff_matmul * slack);
      cr_expect_leq(mix->flop_per_s_fp32 * mix->eff_matmul, member->flop_per_s_fp32 * member->eff_matmul * slack);
      cr_expect_leq(mix->flop_per_s_half * mix->eff_attention, member->flop_per_s_half * member->eff_attention * slack);
      cr_expect_leq(mix->memory_bytes_per_s * mix->eff_memory, member->memory_bytes_per_s * member->eff_memory * slack);
      cr_expect_leq(mix->memory_bytes, member->memory_bytes);
    }
  zp_arena_free(arena);
}

/* ---- fabrics ---- */

static zp_group_link data_link(const zp_cluster *c, int tensor, int data) {
  zp_machine m = zp_machine_make(c, ZP_PREC_F32, tensor * data);
  return zp_machine_data_group(&m, tensor, 1, data, ZP_ORDER_TDP);
}

Test(machine, oversubscription_spares_rails) {
  zp_cluster tree = gpu_cluster(4), thin = tree, rail = tree; /* 16 devices a node */
  thin.oversubscription = rail.oversubscription = 4;
  rail.topology = ZP_RAIL;
  double full = data_link(&tree, 4, 16).bytes_per_s;
  cr_expect_float_eq(data_link(&thin, 4, 16).bytes_per_s, full / 4, 1);
  cr_expect_float_eq(data_link(&rail, 4, 16).bytes_per_s, full, 1, "members have the same places on every node");
  cr_expect_float_eq(data_link(&rail, 3, 16).bytes_per_s, data_link(&thin, 3, 16).bytes_per_s, 1,
                     "3 does not divide 16");
  zp_machine m = zp_machine_make(&rail, ZP_PREC_F32, 64), n = zp_machine_make(&tree, ZP_PREC_F32, 64);
  cr_expect_float_eq(zp_machine_pipeline_link(&m, 16, 4, 1, ZP_ORDER_TDP).bytes_per_s,
                     zp_machine_pipeline_link(&n, 16, 4, 1, ZP_ORDER_TDP).bytes_per_s, 1, "a node to the next");
  cr_expect_float_eq(zp_machine_pipeline_link(&m, 4, 16, 1, ZP_ORDER_TDP).bytes_per_s,
                     zp_machine_pipeline_link(&n, 4, 16, 1, ZP_ORDER_TDP).bytes_per_s / 4, 1, "to another place");
}

Test(machine, staging_is_bounded_by_pcie_and_host_memory) {
  zp_cluster direct = gpu_cluster(2), staged = direct;
  direct.node.host_bytes_per_s = staged.node.host_bytes_per_s = 400e9;
  direct.node.pcie_bytes_per_s = staged.node.pcie_bytes_per_s = 5e9;
  staged.host_staged = true;
  double one = data_link(&staged, 1, 32).bytes_per_s; /* one ring through a node: PCIe of one device */
  cr_expect_float_eq(one, 5e9, 1);
  cr_expect_gt(data_link(&direct, 1, 32).bytes_per_s, 2 * one);
  staged.node.host_bytes_per_s = 8e9; /* a quarter of it */
  cr_expect_float_eq(data_link(&staged, 1, 32).bytes_per_s, 2e9, 1);
}

Test(machine, the_measured_share_of_collectives_is_not_that_of_messages) {
  zp_cluster c = gpu_cluster(4), measured = c;
  measured.collective_share = 0.5;
  cr_expect_float_eq(data_link(&measured, 16, 4).bytes_per_s, data_link(&c, 16, 4).bytes_per_s / 2, 1);
  zp_machine a = zp_machine_make(&c, ZP_PREC_F32, 64), b = zp_machine_make(&measured, ZP_PREC_F32, 64);
  cr_expect_eq(zp_machine_pipeline_link(&a, 16, 4, 1, ZP_ORDER_TDP).bytes_per_s,
               zp_machine_pipeline_link(&b, 16, 4, 1, ZP_ORDER_TDP).bytes_per_s);
}

/* ---- communicators ---- */

/* Bytes by hand: 256 MiB where several ranks share a node; per channel 12 MiB for a neighbour in it, 20 over the
 * network; two channels a ring: one ring a link of 25 GB/s, at most 12, one a card over nodes; a second neighbour from
 * three ranks on. */
Test(machine, communicators_by_hand) {
  const int64_t mib = 1 << 20;
  zp_node_type node = {.devices = 8, .nics = 4, .link = {"nvswitch", 300e9, 0}, .device = {.has_nccl = true}};
  cr_expect_eq(zp_communicator_bytes(&node, 1, 1), 0);
  cr_expect_eq(zp_communicator_bytes(&node, 2, 1), (256 + 24 * 12) * mib);
  cr_expect_eq(zp_communicator_bytes(&node, 8, 1), (256 + 24 * 2 * 12) * mib);
  cr_expect_eq(zp_communicator_bytes(&node, 64, 8), (256 + 8 * 2 * 12) * mib);
  cr_expect_eq(zp_communicator_bytes(&node, 8, 8), 2 * 2 * 20 * mib);
  cr_expect_eq(zp_communicator_bytes(&node, 2, 2), 2 * 20 * mib);
  node.link.bytes_per_s = 450e9;
  cr_expect_eq(zp_communicator_bytes(&node, 2, 1), (256 + 24 * 12) * mib);
  node.link.bytes_per_s = 16e9;
  cr_expect_eq(zp_communicator_bytes(&node, 2, 1), (256 + 2 * 12) * mib);
  node.device.has_nccl = false;
  cr_expect_eq(zp_communicator_bytes(&node, 8, 1), 0);
}

/* Eight H100 have 7 others and 32 channels to each: 3.28 GB, as NCCL's users measured (NVIDIA/nccl issue 1685). Over
 * nodes two channels to each of those in the node, and a pool of 2 MiB a channel either way. */
Test(machine, pairs_have_buffers) {
  const int64_t mib = 1 << 20;
  zp_node_type node = {.devices = 8, .nics = 8, .link = {"nvswitch", 450e9, 0}, .device = {.has_nccl = true}};
  int64_t got = zp_pairs_bytes(&node, 8, 1);
  cr_expect(fabs((double)got / 3.28e9 - 1) < 0.01, "%lld", (long long)got);
  cr_expect_eq(zp_pairs_bytes(&node, 1, 1), 0);
  cr_expect_eq(zp_pairs_bytes(&node, 64, 8), (7 * 2 * 14 + 2 * 16 * 2) * mib);
  cr_expect_eq(zp_pairs_bytes(&node, 8, 8), 2 * 2 * 2 * mib, "one card's two channels");
  node.link.bytes_per_s = 16e9;
  cr_expect_eq(zp_pairs_bytes(&node, 2, 1), 2 * 14 * mib);
  zp_cluster cluster = {.nodes = 1, .node = node};
  zp_choice data = {.tensor = 1, .pipeline = 1, .data = 8};
  int64_t rings = zp_communicators_of(&cluster, &data, 0).total_bytes;
  cluster.trainer = ZP_TRAINER_ZPLAN;
  cr_expect_eq(zp_communicators_of(&cluster, &data, 0).total_bytes - rings, zp_pairs_bytes(&node, 8, 1));
}

/* Two stages: a channel each way. Four: those between others have four; folded, twice as many; interleaved chunks make
 * a ring of them. A tie on the first and the last one. All over the network but tensor; 64 MiB for shares of sums. */
Test(machine, communicators_that_a_trainer_makes) {
  zp_cluster cluster = {.nodes = 8};
  cluster.node = (zp_node_type){.devices = 8, .nics = 8, .link = {"nvswitch", 300e9, 0}, .device = {.has_nccl = true}};
  zp_choice data = {.tensor = 1, .pipeline = 1, .data = 64}, two = {.tensor = 8, .pipeline = 2, .data = 4},
            four = {.tensor = 8, .pipeline = 4, .data = 2};
  int64_t mib = 1 << 20, all = (256 + 16 * 2 * 12) * mib, tensor = (256 + 24 * 2 * 12) * mib, sums = 64 * mib;
  int64_t over_network = 2 * 2 * 20 * mib, pair = 2 * 20 * mib;
  cr_expect_eq(zp_communicators_of(&cluster, &data, 1).total_bytes, all + sums);
  cr_expect_eq(zp_communicators_of(&cluster, &two, 1).total_bytes, tensor + over_network + (2 + 1) * pair + sums);
  cr_expect_eq(zp_communicators_of(&cluster, &two, 2).total_bytes, tensor + over_network + (2 + 2) * pair + sums);
  zp_choice experts = data;
  experts.expert = experts.data; /* a group of its own alongside the data group */
  cr_expect_eq(zp_communicators_of(&cluster, &experts, 1).total_bytes, 2 * all + sums);
  experts.expert = experts.data / 2;
  zp_communicators spread = zp_communicators_of(&cluster, &experts, 1);
  cr_expect_gt(spread.bytes[ZP_COMMUNICATOR_EXPERT], 0);
  cr_expect_eq(spread.total_bytes,
               all + spread.bytes[ZP_COMMUNICATOR_EXPERT] + spread.bytes[ZP_COMMUNICATOR_REPLICAS] + sums);
  int64_t others = tensor + pair + sums; /* tensor ranks, two data ranks on two nodes */
  cr_expect_eq(zp_communicators_of(&cluster, &four, 1).total_bytes, others + 4 * pair, "a stage between others");
  cr_expect_eq(zp_communicators_of(&cluster, &four, 3).total_bytes, others + (2 + 3) * pair, "the ends");
  four.chunks = 2;
  four.schedule = ZP_SCHEDULE_INTERLEAVED;
  cr_expect_eq(zp_communicators_of(&cluster, &four, 1).total_bytes, others + (4 + 1) * pair, "a ring");
  four.schedule = ZP_SCHEDULE_ZB_V;
  cr_expect_eq(zp_communicators_of(&cluster, &four, 1).total_bytes, others + 8 * pair, "folded");
  zp_choice near = {.tensor = 4, .pipeline = 8, .data = 1};
  int64_t in_node = (256 + 24 * 12) * mib;
  cr_expect_eq(zp_communicators_of(&cluster, &near, 1).total_bytes, tensor + 2 * in_node + 2 * pair + sums, "one near");
  near.tensor = 2;
  cr_expect_eq(zp_communicators_of(&cluster, &near, 1).total_bytes, in_node + 4 * in_node + sums, "both near");
}
