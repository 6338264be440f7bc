/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model: machine shares, links, ring formulas, shapes of matrix products, pipeline simulation. Expected values
 * are worked out by hand from the documented formulas. */
#include <math.h>
#include "planner_models.h"
#include <zplan/constants.h>
#include <zplan/cost.h>
#include <zplan/recipe.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(cost, .init = setup, .fini = teardown);

static void expect_near(double got, double want, const char *what) {
  cr_expect(fabs(got - want) <= 1e-9 * fabs(want), "%s: %.12g, expected %.12g", what, got, want);
}

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};

/* ---- machine ---- */

Test(cost, cpu_ranks_share_their_node) {
  zp_cluster c = cpu_cluster(); /* 4 cores, 100 GFLOP/s, 10 GB/s, 16 GB */
  zp_machine two = zp_machine_make(&c, ZP_PREC_F32, 2);
  expect_near(two.flop_per_s, 50e9, "flop of 2 ranks");
  expect_near(two.memory_bytes_per_s, 5e9, "bandwidth of 2 ranks");
  cr_expect_eq(two.memory_bytes, INT64_C(8000000000));
  cr_expect_eq(two.context_bytes, 50000000); /* every process has its own */
  cr_expect_eq(two.devices_per_node, 2);
  zp_machine three = zp_machine_make(&c, ZP_PREC_F32, 3);
  expect_near(three.flop_per_s, 25e9, "3 ranks have one whole core each");
  zp_machine eight = zp_machine_make(&c, ZP_PREC_F64, 8);
  expect_near(eight.flop_per_s, 50e9 / 8, "8 ranks share 4 cores");
  cr_expect_eq(eight.compute_bytes, 8);
}

Test(cost, gpu_ranks_own_their_device) {
  zp_cluster c = gpu_cluster(50);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 800);
  expect_near(m.flop_per_s, 125e12, "half precision peak");
  cr_expect_eq(m.compute_bytes, 2);
  cr_expect_eq(m.devices_per_node, 16);
  cr_expect_eq(m.memory_bytes, INT64_C(34359738368));
}

/* ---- links ---- */

Test(cost, tensor_group_stays_in_its_node) {
  zp_cluster c = gpu_cluster(50);
  zp_machine m = zp_machine_make(&c, ZP_PREC_F32, 800);
  zp_group_link link = zp_machine_tensor_group(&m, 16, 50, 1);
  cr_expect_eq(link.nodes, 1);
  cr_expect_eq(link.local, 16);
  expect_near(link.bytes_per_s, 150e9 / (1 + 0.54 * 16 / 30), "nvswitch, less the copies");
  expect_near(link.latency_s, 1e-6, "nvswitch latency");
}

Test(cost, tensor_group_of_five_straddles_nodes) {
  zp_cluster c = gpu_cluster(50);
  zp_machine m = zp_machine_make(&c, ZP_PREC_F32, 800);
  zp_group_link link = zp_machine_tensor_group(&m, 5, 160, 1);
  cr_expect_eq(link.nodes, 2); /* ranks 15..19 */
}

/* Tensor 16 fills a node, so all 16 ranks of a node belong to different data groups and share 8 NICs. */
Test(cost, data_groups_share_the_nics) {
  zp_cluster c = gpu_cluster(50);
  zp_machine m = zp_machine_make(&c, ZP_PREC_F32, 800);
  zp_group_link link = zp_machine_data_group(&m, 16, 25, 2, ZP_ORDER_TDP);
  cr_expect_eq(link.nodes, 2);
  cr_expect_eq(link.local, 1);
  expect_near(link.bytes_per_s, 0.85 * 8 * 12.5e9 / 16, "share of the NICs, less the protocol");
  expect_near(link.latency_s, 3e-6, "NIC and fabric");
  zp_group_link inside = zp_machine_data_group(&m, 4, 50, 4, ZP_ORDER_TDP);
  cr_expect_eq(inside.nodes, 1);
  zp_group_link wide =
      zp_machine_data_group(&m, 1, 25, 32, ZP_ORDER_TDP); /* 16 of 32 ranks in a node: one ring out of it */
  cr_expect_eq(wide.nodes, 2);
  expect_near(wide.bytes_per_s, 0.85 * 8 * 12.5e9, "one ring has all NICs");
}

/* Nodes of 16 with 8 cards; groups of 8 fill half a node, of 32 two of them: messages inside have what a ring
 * there has of 150 GB/s, 16 of each of the 16 members leave over 0.85 * 8 cards of 12.5 GB/s. Of 2 over two nodes: one
 * message, over 8 / 16 cards. */
Test(cost, exchanges_in_expert_groups) {
  zp_cluster c = gpu_cluster(50);
  zp_machine m = zp_machine_make(&c, ZP_PREC_F32, 800);
  double base = zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S), bytes = 32e6;
  zp_group_link one = zp_machine_expert_group(&m, 1, 25, 32, 1, ZP_ORDER_TDP),
                inside = zp_machine_expert_group(&m, 1, 25, 32, 8, ZP_ORDER_TDP),
                across = zp_machine_expert_group(&m, 1, 25, 32, 32, ZP_ORDER_TDP),
                apart = zp_machine_expert_group(&m, 1, 16, 50, 2, ZP_ORDER_TPD);
  double rate = 150e9 / (1 + zp_cost_constant(ZP_COST_LINK_COPY) * 8 / (2.0 * 7));
  cr_expect_eq(zp_cost_all_to_all(&one, bytes), 0);
  expect_near(zp_cost_all_to_all(&inside, bytes), base + 7 * (1e-6 + bytes / 8 / rate), "inside a node");
  double network = 16 * (3e-6 + 16 * bytes / 32 / (0.85 * 8 * 12.5e9));
  cr_expect_gt(network, 15 * (1e-6 + bytes / 32 / 120e9));
  expect_near(zp_cost_all_to_all(&across, bytes), base + network, "over two nodes");
  expect_near(zp_cost_all_to_all(&apart, bytes), base + 3e-6 + bytes / 2 / (0.85 * 8 * 12.5e9 / 16), "one rank a node");
}

Test(cost, pipeline_link_crosses_nodes_unless_all_fit) {
  zp_cluster c = gpu_cluster(2);
  zp_machine m = zp_machine_make(&c, ZP_PREC_F32, 32);
  cr_expect_eq(zp_machine_pipeline_link(&m, 4, 8, 1, ZP_ORDER_TDP).nodes, 2);
  zp_machine one = zp_machine_make(&c, ZP_PREC_F32, 16);
  cr_expect_eq(zp_machine_pipeline_link(&one, 4, 4, 1, ZP_ORDER_TDP).nodes, 1);
  cr_expect_eq(zp_machine_pipeline_link(&one, 16, 1, 1, ZP_ORDER_TDP).n, 1);
}

/* ---- outlines ---- */

static zp_lowered *lower_experts(const zp_spec *spec, const zp_sharding *sharding, zp_arena *outline) {
  const char *reason = NULL;
  const zp_procedures_for what = {.microbatch = 2, .loss_chunks = 1, .splits = true, .outline = outline};
  zp_lowered *l = zp_lower_for(arena, spec, sharding, &what, NULL, &reason);
  cr_assert(l, "%s", reason);
  return l;
}

static void expect_same_sums(const zp_lowered *a, const zp_lowered *b) {
  for (int i = 0; i < a->n_segments; i++) {
    const zp_segment_program *x = &a->segments[i], *y = &b->segments[i];
    cr_expect(x->forward.cost_s == y->forward.cost_s && x->backward.cost_s == y->backward.cost_s &&
                  x->split.cost_s == y->split.cost_s && x->comm_s == y->comm_s && x->expert_s == y->expert_s &&
                  x->weights_s == y->weights_s,
              "segment %d: %.17g and %.17g forward, %.17g and %.17g of experts", i, x->forward.cost_s,
              y->forward.cost_s, x->expert_s, y->expert_s);
  }
}

/* A packed outline is priced on the link of other expert groups as all of its steps are, to the last bit. */
Test(cost, packed_outlines_have_the_prices_of_their_steps) {
  const char *reason = NULL;
  zp_spec *spec = build_spec(arena, &(model_size){STYLE_EXPERTS, 250, 32, 64, 4, 4, 4, 256, true}, gpu_cluster(4), 64);
  zp_machine m = zp_machine_make(&spec->cluster, spec->train.precision, 64);
  zp_sharding *sharding = zp_shard_experts(arena, spec->model, &m, 2, 2, false, &reason);
  cr_assert(sharding, "%s", reason);
  zp_arena *steps = zp_arena_new("steps");
  zp_lowered *whole = lower_experts(spec, sharding, NULL), *packed = lower_experts(spec, sharding, steps);
  zp_group_link tensor = zp_machine_tensor_group(&m, 2, 1, 32), alone = {.n = 1};
  zp_exchange_links near = {zp_machine_expert_group(&m, 2, 1, 32, 2, ZP_ORDER_TDP), alone},
                    far = {zp_machine_expert_group(&m, 2, 16, 2, 2, ZP_ORDER_TPD), alone};
  zp_price_links(whole, &m, &tensor, &near);
  zp_price_links(packed, &m, &tensor, &near);
  expect_same_sums(whole, packed);
  double before = whole->segments[1].expert_s;
  zp_pack_outline(arena, packed);
  zp_arena_free(steps);
  zp_price_links(whole, &m, &tensor, &far);
  zp_price_links(packed, &m, &tensor, &far);
  expect_same_sums(whole, packed);
  cr_expect(before > 0 && whole->segments[1].expert_s > before, "%g after %g", whole->segments[1].expert_s, before);
}

static const zp_step *find_step(const zp_procedure *procedure, zp_op op) {
  for (int i = 0; i < procedure->steps.len; i++)
    if (procedure->steps.data[i].kind == ZP_STEP_NODE && procedure->steps.data[i].op == op)
      return &procedure->steps.data[i];
  cr_assert_fail("no %s", zp_op_name(op));
  return NULL;
}

static double round_s(const zp_group_link *link, int places, double bytes) {
  int leave = places < link->n - places ? places : link->n - places;
  if (leave > link->fullest) leave = link->fullest;
  double local_s = link->local_latency_s + bytes / link->local_bytes_per_s;
  return link->nodes == 1 ? local_s
                          : fmax(local_s, link->network_latency_s + leave * bytes / link->network_bytes_per_s);
}

/* A ring as a timeline, in the order of runtime/ring.c: a transfer waits for the one before it, and a
 * round for its keys. */
static double ring_by_events(const zp_group_link *link, double alone_s, double bytes, bool backward) {
  double now = 0, free_at = 0, gradients_at = 0;
  for (int round = 0; round < link->n; round++) {
    bool more = round + 1 < link->n;
    if (more) free_at = fmax(free_at, now) + round_s(link, round + 1, bytes);
    double keys_at = more ? free_at : 0;
    now = fmax(now + alone_s / link->n, keys_at);
    if (!backward || round == 0) continue;
    now = fmax(now, gradients_at);
    gradients_at = free_at = fmax(free_at, now) + round_s(link, round, bytes);
  }
  return fmax(now, gradients_at);
}

/* Four ranks with 8 positions each of two samples, 32 columns of keys and as many of values: alone what one rank
 * computes, and the price of both by the timeline, on links that hide transfers, that do not, and that cross nodes. */
Test(cost, rings_hide_what_they_pass_on) {
  const char *reason = NULL;
  zp_spec *spec = build_spec(arena, &(model_size){STYLE_LLAMA, 250, 32, 64, 2, 4, 4, 256, false}, cpu_cluster(), 8);
  zp_choice c = {.tensor = 1, .pipeline = 1, .data = 4, .context = 4, .context_by = ZP_BY_RING, .microbatch = 2};
  zp_machine m = zp_machine_make(&spec->cluster, spec->train.precision, 4);
  zp_sharding *sharding = zp_shard_choice(arena, spec->model, &m, &c, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered **stages = zp_lower_stages(arena, spec, sharding, &c, &reason);
  cr_assert(stages, "%s", reason);
  zp_group_link tensor = {.n = 1};
  zp_group_link links[] = {zp_machine_expert_group(&m, 1, 1, 4, 4, ZP_ORDER_TDP),
                           {.n = 4, .nodes = 1, .local = 4, .fullest = 4, .local_bytes_per_s = 1e6},
                           {.n = 4,
                            .nodes = 2,
                            .local = 2,
                            .fullest = 2,
                            .local_bytes_per_s = 1e12,
                            .network_bytes_per_s = 5e8,
                            .local_latency_s = 1e-6,
                            .network_latency_s = 2e-5}};
  for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
    zp_price_links(stages[0], &m, &tensor, &(zp_exchange_links){tensor, links[i]});
    for (int backward = 0; backward < 2; backward++) {
      const zp_segment_program *s = &stages[0]->segments[1];
      const zp_step *step =
          find_step(backward ? &s->backward : &s->forward, backward ? ZP_OP_ATTENTION_GRAD : ZP_OP_ATTENTION);
      int64_t keys = s->graph->tensors.data[step->node->in.data[1]].shape.dim[2];
      cr_expect_eq(2 * step->ring.half_elements, 2 * 2 * 8 * keys);
      cr_expect_eq(step->comm_elements, 4 * 2 * 2 * 8 * keys * (backward ? 2 : 1) * 3 / 4);
      double bytes = 2.0 * 2 * 8 * (double)keys * 4;
      expect_near(step->cost_s, ring_by_events(&links[i], step->alone_s, bytes, backward), "ring");
    }
    cr_expect(stages[0]->segments[1].context_s > 0);
  }
}

/* Position by position: which stretches of others a rank sees in a window, and how many pairs in a round. */
Test(cost, windows_pass_on_what_they_reach) {
  enum { ROWS = 3, MOST = 5 };
  for (int64_t ranks = 2; ranks <= MOST; ranks++)
    for (int64_t both = 0, window = 1; window < 2 * ranks * ROWS; both = !both, window += !both) {
      zp_ring ring = {.ranks = (int)ranks, .rows = ROWS, .window = window, .half_elements = 7, .causal = !both};
      int64_t all = 2 * ranks, halves = 0, most_of_round[MOST] = {0};
      double least[MOST], total[MOST] = {0}, shares = 0;
      for (int64_t to = 0; to < ranks; to++)
        for (int64_t from = 0; from < ranks; from++) {
          int64_t round = (to - from + ranks) % ranks, passed = 0, pairs = 0;
          for (int64_t keys = 0; keys < all; keys++) {
            int64_t seen = 0;
            if (keys != from && keys != all - 1 - from) continue;
            for (int64_t q = 0; q < all * ROWS; q++)
              for (int64_t k = keys * ROWS; k < (keys + 1) * ROWS; k++)
                seen += (q / ROWS == to || q / ROWS == all - 1 - to) && (both || q >= k) && llabs(q - k) < window;
            passed += seen > 0, pairs += seen;
          }
          total[to] += (double)pairs;
          if (round == 0) continue;
          halves += passed;
          if (passed > most_of_round[round]) most_of_round[round] = passed;
          if (to == 0 || (double)pairs < least[round]) least[round] = (double)pairs;
        }
      cr_assert_eq(zp_ring_elements(&ring), 7 * halves, "%d ranks, window %d", (int)ranks, (int)window);
      for (int64_t round = 1; round < ranks; round++) {
        zp_ring_round r = zp_ring_round_of(&ring, round);
        cr_assert_eq(r.elements, 7 * most_of_round[round], "round %d of %d, window %d", (int)round, (int)ranks,
                     (int)window);
        cr_assert(r.share >= 0 && (r.share > 0) == (least[round] > 0));
        shares += r.share;
      }
      cr_assert(shares + zp_ring_round_of(&ring, 0).share <= 1 + 1e-12);
      for (int64_t to = 1; to < ranks && !both; to++) cr_assert(total[to] >= total[to - 1], "the last rank sees most");
    }
}

/* Position by position: no rank sees more pairs than the calls that are priced, and one sees as many. */
Test(cost, windows_are_priced_as_the_rank_that_sees_most) {
  enum { ROWS = 4, MOST = 5 };
  for (int64_t ranks = 2; ranks <= MOST; ranks++)
    for (int64_t both = 0, window = 1; window <= 2 * ranks * ROWS; both = !both, window += !both) {
      const zp_ring ring = {.ranks = (int)ranks, .rows = ROWS, .window = window, .causal = !both};
      int64_t all = 2 * ranks, most = 0, priced = 0, distance = 0;
      zp_window_call list[ZP_WINDOW_CALLS];
      for (int64_t rank = 0; rank < ranks; rank++) {
        int64_t seen = 0;
        for (int64_t q = 0; q < all * ROWS; q++)
          for (int64_t k = 0; k < all * ROWS; k++)
            seen += (q / ROWS == rank || q / ROWS == all - 1 - rank) && (both || q >= k) && llabs(q - k) < window;
        most = seen > most ? seen : most;
      }
      for (int calls; (calls = zp_window_calls(&ring, distance, list)) > 0; distance++)
        for (int i = 0; i < calls; i++)
          for (int64_t q = 0; q < list[i].queries; q++)
            for (int64_t k = 0; k < list[i].keys; k++)
              priced +=
                  list[i].times * ((!list[i].triangle || q >= k) && (!list[i].window || llabs(q - k) < list[i].window));
      cr_assert_eq(priced, most, "%d ranks, window %d, %s: %d pairs of %d", (int)ranks, (int)window,
                   both ? "both ways" : "causal", (int)priced, (int)most);
      cr_assert_eq(zp_window_calls(&ring, distance + 1, list), 0);
    }
}

/* A pattern of all causal blocks is causal attention: ranks do as much in every round, and 3 of 4 halves are sent. With
 * one half of another rank's keys that only the first rank sees, it has most. */
Test(cost, patterns_pass_on_what_they_have) {
  enum { MOST = 6, BLOCK = 16 };
  for (int ranks = 2; ranks <= MOST; ranks++) {
    int all = 2 * ranks, calls;
    double pairs[4 * MOST * MOST] = {0}, whole = BLOCK * BLOCK;
    for (int q = 0; q < all; q++)
      for (int k = 0; k <= q; k++) pairs[q * all + k] = q == k ? whole / 2 : whole;
    zp_ring ring = {.ranks = ranks, .rows = BLOCK, .pairs = pairs, .half_elements = 7, .causal = true};
    cr_assert_eq(zp_ring_elements(&ring), 7 * 3 * ranks * (ranks - 1) / 2);
    for (int round = 0; round < ranks; round++) {
      zp_ring_round r = zp_ring_round_of(&ring, round);
      cr_assert_float_eq(r.share, 1.0 / ranks, 1e-12);
      cr_assert_eq(r.elements, round == 0 ? 0 : 2 * 7);
    }
    cr_assert_float_eq(zp_pattern_share(pairs, ranks, &calls), 1.0 / ranks, 1e-12);
    cr_assert_eq(calls, all + 1);
    for (int i = 0; i < all * all; i++) pairs[i] = i / all == i % all ? whole : 0;
    pairs[1] = whole; /* the first stretch sees the second, which the next rank has */
    cr_assert_eq(zp_ring_elements(&ring), 7);
    cr_assert_float_eq(zp_pattern_share(pairs, ranks, &calls), 3.0 / (all + 1), 1e-12);
    cr_assert_eq(calls, 3);
    cr_assert_eq(zp_ring_round_of(&ring, ranks - 1).elements, 7);
    cr_assert_float_eq(zp_ring_round_of(&ring, 0).share, 2.0 / 3, 1e-12);
  }
}

/* ---- whole programs ---- */

typedef struct priced {
  zp_spec *spec;
  zp_machine machine;
  zp_lowered *lowered;
  zp_program *program;
} priced;

static priced price_spec(zp_spec *spec, zp_choice choice, const int64_t *cut) {
  priced p = {.spec = spec};
  const char *reason = NULL;
  p.machine = zp_machine_make(&p.spec->cluster, p.spec->train.precision, choice.tensor * choice.pipeline * choice.data);
  zp_sharding *sharding = zp_shard(arena, p.spec->model, &p.machine, choice.tensor, 1, choice.sequence, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered **stages = zp_lower_stages(arena, p.spec, sharding, &choice, &reason);
  cr_assert(stages, "%s", reason);
  p.lowered = stages[0];
  choice.cut = (int64_t *)cut;
  p.program = zp_program_make(arena, zp_price_stages(stages, &p.machine, &choice), &choice);
  return p;
}

static priced price(model_size size, zp_cluster cluster, int64_t batch, zp_choice choice, const int64_t *cut) {
  return price_spec(build_spec(arena, &size, cluster, batch), choice, cut);
}

/* 2 (n - 1) (latency + bytes / n / bandwidth) and the call; bytes = 2 x 32 x 64 f32. The link: a copy through memory at
 * a quarter of the rank's 5 GB/s. */
Test(cost, all_reduce_is_a_ring) {
  const int64_t cut[] = {0, 6};
  priced p = price(TINY, cpu_cluster(), 2, (zp_choice){.tensor = 2, .pipeline = 1, .data = 1, .microbatch = 2}, cut);
  const zp_step *step = find_step(&p.lowered->segments[1].forward, ZP_OP_ALL_REDUCE);
  cr_expect_eq(step->comm_elements, 2 * 32 * 64);
  expect_near(step->cost_s, 2e-6 + 2 * (1e-6 + 16384.0 / 2 / 1.25e9), "all-reduce");
}

/* The CPU rule: 2 m n k / (rate * 0.8 * saturations) + call, for qkv: m = 32 rows, n = 192, k = 64. */
Test(cost, cpu_matmul_saturates) {
  const int64_t cut[] = {0, 6};
  priced p = price(TINY, cpu_cluster(), 1, (zp_choice){.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 1}, cut);
  const zp_step *step = find_step(&p.lowered->segments[1].forward, ZP_OP_MATMUL);
  double shape = 32.0 / 36 * 192 / 200 * 64 / 80;
  expect_near(step->cost_s, 1e-6 + 2.0 * 32 * 192 * 64 / (100e9 * 0.8 * shape), "matmul");
}

/* Two samples, four experts of ceil(0.9 x 32 x 2 / 4) = 15 slots. So few rows to a matrix of 64 x 128 are bound by
 * memory: bytes / (10 GB/s x 0.8) and the call. The gradient of the weights is one product an expert, 64 x 128 over the
 * 30 slots of both samples, and bound by its work. */
Test(cost, experts_are_products_of_their_slots) {
  const int64_t cut[] = {0, 4};
  model_size size = {STYLE_EXPERTS, 1000, 32, 64, 2, 4, 4, 128, false};
  priced p = price(size, cpu_cluster(), 2, (zp_choice){.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 2}, cut);
  const zp_step *step = find_step(&p.lowered->segments[1].forward, ZP_OP_BATCHED_MATMUL);
  expect_near(step->flop, 2.0 * 2 * 4 * 15 * 64 * 128, "FLOP of one product");
  expect_near(step->cost_s, 1e-6 + 2 * 4 * (15 * 64 + 64 * 128 + 15 * 128) * 4.0 / 8e9, "product of experts");
  step = find_step(&p.lowered->segments[1].backward, ZP_OP_BATCHED_MATMUL_WGRAD);
  expect_near(step->flop, 2.0 * 2 * 4 * 15 * 64 * 128, "FLOP of the weights' gradient");
  double shape = 64.0 / 68 * 128 / 136 * 30 / 46;
  expect_near(step->cost_s, 1e-6 + 4 * 2.0 * 64 * 128 * 30 / (100e9 * 0.8 * shape), "gradient of the weights");
}

/* Sorted rows are a product an expert, of an even share of the choices: 2 samples x 32 positions x 2 / 4 = 32 rows. */
Test(cost, sorted_rows_are_products_of_the_choices) {
  const int64_t cut[] = {0, 4};
  model_size size = {STYLE_DROPLESS, 1000, 32, 64, 2, 4, 4, 128, false};
  priced p = price(size, cpu_cluster(), 2, (zp_choice){.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 2}, cut);
  const zp_step *step = find_step(&p.lowered->segments[1].forward, ZP_OP_BATCHED_MATMUL);
  expect_near(step->flop, 2.0 * 4 * 32 * 64 * 128, "FLOP of one product");
  double shape = 32.0 / 36 * 128 / 136 * 64 / 80;
  expect_near(step->cost_s, 1e-6 + 4 * 2.0 * 32 * 64 * 128 / (100e9 * 0.8 * shape), "product of experts");
  step = find_step(&p.lowered->segments[1].backward, ZP_OP_BATCHED_MATMUL_WGRAD);
  expect_near(step->flop, 2.0 * 4 * 32 * 64 * 128, "FLOP of the weights' gradient");
  shape = 64.0 / 68 * 128 / 136 * 32 / 48;
  expect_near(step->cost_s, 1e-6 + 4 * 2.0 * 64 * 128 * 32 / (100e9 * 0.8 * shape), "gradient of the weights");
}

/* By the CPU rule: with the call, 80 GFLOP/s and 8 GB/s of one rank. */
static double product_s(double m, double n, double k) {
  double shape = m / (m + 4) * n / (n + 8) * k / (k + 16);
  return 1e-6 + fmax(2 * m * n * k / (80e9 * shape), (m * k + k * n + m * n) * 4 / 8e9);
}

/* A layer of width 64 has matrices of 64 x 192, 64 x 64, 64 x 256 and 256 x 64. Five steps each: their shorter sides
 * squared, that squared, and times the matrix; one more pass to scale it. The rest is AdamW's. */
Test(cost, muon_is_adamw_and_products) {
  const int64_t cut[] = {0, 6};
  const zp_choice one = {.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 1};
  static const double sides[4][2] = {{64, 192}, {64, 64}, {64, 256}, {256, 64}};
  zp_spec *spec[2];
  double seconds[2], flop = 0, want = 0, by_hand = 0;
  for (int i = 0; i < 2; i++) {
    spec[i] = build_spec(arena, &TINY, cpu_cluster(), 1);
    if (i) spec[i]->train.optimizer = ZP_OPT_MUON;
    priced p = price_spec(spec[i], one, cut);
    seconds[i] = zp_simulate(arena, p.program, &p.machine).optimizer_s;
    if (i) cr_expect_eq(p.lowered->segments[1].update_bytes, (256 * 64 + 2 * 64 * 64) * 4);
    cr_expect_eq(p.lowered->segments[0].update_bytes, 0, "embeddings are AdamW's");
    cr_expect_eq(p.lowered->segments[2].update_bytes, 0);
  }
  for (int i = 0; i < 4; i++) {
    double rows = sides[i][0], cols = sides[i][1], n = fmin(rows, cols), m = fmax(rows, cols);
    by_hand += 4 * 5 * (2 * n * n * m + 2 * n * n * n + 2 * n * n * m);
    want +=
        4 * (5 * (product_s(n, n, m) + product_s(n, n, n) + product_s(rows, cols, n)) + 1e-6 + 8 * rows * cols / 8e9);
  }
  for (int i = 0; i < spec[1]->model->params.len; i++) {
    const zp_param *param = &spec[1]->model->params.data[i];
    if (zp_recipe_of(&spec[1]->train, param).orthogonal) flop += 4 * zp_orthogonal_flop(param);
    cr_expect(!zp_recipe_of(&spec[0]->train, param).orthogonal);
  }
  expect_near(flop, by_hand, "FLOP");
  cr_expect_eq(by_hand, 4 * 73400320.0);
  expect_near(seconds[1] - seconds[0], want, "products");
}

/* In 16 bits the masters are multiplied, at the rate of f32: as long as without. */
Test(cost, muon_multiplies_masters) {
  const int64_t cut[] = {0, 6};
  const zp_choice one = {.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 1};
  double more[2];
  for (int mixed = 0; mixed < 2; mixed++) {
    double seconds[2];
    for (int i = 0; i < 2; i++) {
      zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 1);
      if (mixed) spec->train.precision = ZP_PREC_MIXED_FP16;
      if (i) spec->train.optimizer = ZP_OPT_MUON;
      priced p = price_spec(spec, one, cut);
      seconds[i] = zp_simulate(arena, p.program, &p.machine).optimizer_s;
    }
    more[mixed] = seconds[1] - seconds[0];
  }
  cr_expect_gt(more[0], 16 * 15 * 1e-6, "16 matrices of three products a step");
  expect_near(more[1], more[0], "products");
}

/* The three products of a linear layer cost about the same; wgrad sums over rows instead of columns. */
Test(cost, gradient_products_have_the_same_work) {
  const int64_t cut[] = {0, 6};
  priced p = price(TINY, gpu_cluster(1), 4, (zp_choice){.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 4}, cut);
  const zp_step *forward = find_step(&p.lowered->segments[1].forward, ZP_OP_MATMUL);
  const zp_step *dgrad = find_step(&p.lowered->segments[1].backward, ZP_OP_MATMUL_DGRAD);
  cr_expect(forward->cost_s > 5e-6 && dgrad->cost_s > 5e-6, "no faster than a launch");
  cr_expect_eq(find_step(&p.lowered->segments[1].backward, ZP_OP_MATMUL_WGRAD)->flop > 0, true);
}

static double terms(const zp_estimate *e) {
  return e->compute_s + e->bubble_s + e->tensor_comm_s + e->pipeline_comm_s + e->data_comm_s + e->optimizer_s;
}

/* One rank: all micro-batches one after the other, then 32 bytes an element at 10 GB/s * 0.8. */
Test(cost, one_rank_is_a_plain_sum) {
  const int64_t cut[] = {0, 6};
  priced p = price(TINY, cpu_cluster(), 6, (zp_choice){.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 2}, cut);
  zp_estimate e = zp_simulate(arena, p.program, &p.machine);
  double unit[3];
  for (int i = 0; i < 3; i++) unit[i] = p.lowered->segments[i].forward.cost_s + p.lowered->segments[i].backward.cost_s;
  expect_near(e.compute_s, 3 * (unit[0] + 4 * unit[1] + unit[2]), "compute");
  expect_near(e.optimizer_s, 1e-6 + 32.0 * (double)zp_flat_trained(&p.program->stages[0].flat) / 8e9, "optimizer");
  cr_expect(e.bubble_s < 1e-12 && e.tensor_comm_s == 0 && e.pipeline_comm_s == 0 && e.data_comm_s == 0);
  expect_near(terms(&e), e.step_s, "terms");
  cr_expect_eq(e.peak_bytes, p.program->stages[0].arena_bytes + 50000000);
  expect_near(e.tokens_per_s, 6 * 32 / e.step_s, "tokens per second");
  /* Nothing is recomputed but attention's scores, in backward: half of its forward work, 2 B S^2 d when causal. */
  expect_near(e.hardware_flop - e.model_flop, 0.5 * 6 * 4 * (2.0 * 32 * 32 * 64), "scores once more");
}

/* Equal stages and free messages: (m + P - 1) (F + B), the textbook 1F1B time. */
Test(cost, one_f_one_b_matches_the_closed_form) {
  model_size size = TINY;
  const int64_t cut[] = {0, 2, 4, 6};
  zp_cluster c = cpu_cluster();
  c.node.link = (zp_link){"instant", 1e30, 0};
  c.node.device.memory_bytes_per_s = 1e30;
  priced p = price(size, c, 5, (zp_choice){.tensor = 1, .pipeline = 3, .data = 1, .microbatch = 1}, cut);
  for (int i = 0; i < 3; i++) p.lowered->segments[i].forward.cost_s = 1, p.lowered->segments[i].backward.cost_s = 2;
  zp_estimate e = zp_simulate(arena, p.program, &p.machine);
  cr_expect(fabs(e.step_s - (5 + 2) * 6.0) < 1e-3, "%g", e.step_s);
  cr_expect(fabs(e.bubble_s - 2 * 6.0) < 1e-3, "%g", e.bubble_s);
  cr_expect_eq(e.stage_forward_s[1], 2);
  expect_near(terms(&e), e.step_s, "terms");
}

/* Two stages of 3 s + 3 s (F, B) and messages of 1 s, 2 micro-batches. Stage 0: F0 0-3, F1 3-6... stage 1: F0 4-7,
 * B0 7-10, F1 10-13, B1 13-16; stage 0: B0 11-14, B1 17-20. Without messages: 18. */
Test(cost, messages_delay_their_receiver) {
  const int64_t cut[] = {0, 3, 6};
  zp_cluster c = cpu_cluster();
  priced p = price(TINY, c, 2, (zp_choice){.tensor = 1, .pipeline = 2, .data = 1, .microbatch = 1}, cut);
  for (int i = 0; i < 3; i++) p.lowered->segments[i].forward.cost_s = p.lowered->segments[i].backward.cost_s = 1;
  p.machine.cluster = &c, p.machine.node = &c.node;
  c.node.link = (zp_link){"slow", 1e30, 1};
  zp_estimate e = zp_simulate(arena, p.program, &p.machine);
  double end = e.step_s - e.optimizer_s - e.data_comm_s;
  cr_expect(fabs(end - 20) < 1e-4, "%g", end);
  cr_expect(fabs(e.pipeline_comm_s - 2) < 1e-4, "%g", e.pipeline_comm_s);
  expect_near(terms(&e), e.step_s, "terms");
}

static double in_shards_of_two(double elements) { return ceil(elements / 128) * 128; }

/* Two passes of an all-reduce, or one of gradients and one of weights; with ZeRO every layer (12 d^2 + 13 d elements)
 * and each of the tables and the final norm by itself, padded to whole shards. */
Test(cost, zero_1_moves_as_much_and_updates_less) {
  const int64_t cut[] = {0, 6};
  zp_choice choice = {.tensor = 1, .pipeline = 1, .data = 2, .microbatch = 1};
  priced plain = price(TINY, cpu_cluster(), 4, choice, cut);
  choice.zero = 1;
  priced sharded = price(TINY, cpu_cluster(), 4, choice, cut);
  zp_estimate a = zp_simulate(arena, plain.program, &plain.machine);
  zp_estimate b = zp_simulate(arena, sharded.program, &sharded.machine);
  zp_group_link link = zp_machine_data_group(&sharded.machine, 1, 1, 2, ZP_ORDER_TDP);
  double elements = 0, buckets = 0;
  for (int i = 0; i < sharded.lowered->shared.len; i++) {
    double n = (double)sharded.lowered->param_elements[sharded.lowered->shared.data[i]];
    elements += n;
    buckets += 2 * zp_cost_ring_pass(&link, 4 * in_shards_of_two(n));
  }
  double layer = (double)sharded.lowered->segments[1].elements.of[ZP_KIND_WHOLE], layers = 4;
  elements += layers * layer;
  buckets += layers * 2 * zp_cost_ring_pass(&link, 4 * in_shards_of_two(layer));
  expect_near(a.data_comm_s, zp_cost_all_reduce(&link, 4 * elements), "an all-reduce");
  expect_near(b.data_comm_s, buckets, "buckets");
  cr_expect(b.optimizer_s < 0.6 * a.optimizer_s);
  cr_expect(b.peak_bytes < a.peak_bytes);
}

/* Full recomputation repeats the layers' forward matmuls: hardware FLOPs grow, model FLOPs do not. */
Test(cost, recomputation_is_hardware_work_only) {
  const int64_t cut[] = {0, 6};
  zp_choice choice = {.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 1};
  priced keep = price(TINY, cpu_cluster(), 4, choice, cut);
  choice.recompute = ZP_RECOMPUTE_FULL;
  priced rebuild = price(TINY, cpu_cluster(), 4, choice, cut);
  zp_estimate a = zp_simulate(arena, keep.program, &keep.machine),
              b = zp_simulate(arena, rebuild.program, &rebuild.machine);
  expect_near(a.model_flop, b.model_flop, "model FLOPs");
  cr_expect(b.hardware_flop > a.hardware_flop && b.step_s > a.step_s);
}

/* A stage takes the time and makes the floating-point operations of its own mode, whatever its neighbours do. */
Test(cost, stages_cost_what_their_modes_cost) {
  static const zp_recompute mode[] = {ZP_RECOMPUTE_FULL, ZP_RECOMPUTE_SELECTIVE, ZP_RECOMPUTE_NONE};
  const int64_t cut[] = {0, 2, 4, 6};
  zp_choice choice = {.tensor = 2, .pipeline = 3, .data = 1, .microbatch = 1};
  zp_stage_mode modes[3];
  zp_estimate uniform[3];
  for (int s = 0; s < 3; s++) {
    choice.recompute = mode[s];
    modes[s] = zp_stage_mode_of(mode[s], false);
    priced p = price(TINY, cpu_cluster(), 8, choice, cut);
    uniform[s] = zp_simulate(arena, p.program, &p.machine);
  }
  zp_choice_set_modes(&choice, modes);
  priced mixed = price(TINY, cpu_cluster(), 8, choice, cut);
  zp_estimate e = zp_simulate(arena, mixed.program, &mixed.machine);
  for (int s = 0; s < 3; s++) {
    expect_near(e.stage_forward_s[s], uniform[s].stage_forward_s[s], "forward");
    expect_near(e.stage_backward_s[s], uniform[s].stage_backward_s[s], "backward");
  }
  cr_expect(e.hardware_flop < uniform[0].hardware_flop && e.hardware_flop > uniform[2].hardware_flop);
  cr_expect(e.step_s <= uniform[0].step_s && e.step_s >= uniform[2].step_s);
}
