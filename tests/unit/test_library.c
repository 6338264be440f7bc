/* SPDX-License-Identifier: Apache-2.0 */
/* The hardware library: a small model is planned on every device and every node of it, alone and as two nodes where
 * there is a network, and fabrics cost what they say. */
#include "sema_fixture.h"
#include <math.h>
#include <zplan/plan_file.h>
#include <zplan/proof.h>
#include <zplan/report.h>

#define MODEL                                                                                                          \
  "use std.nn\nuse std.hw\n"                                                                                           \
  "model m(V = 64, S = 16, d = 8, layers = 2) {\n"                                                                     \
  "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param wte: [V, d]\n  x = embedding(tokens, wte)\n"          \
  "  repeat h in 0..layers { x = x + linear(layer_norm(x), d) }\n"                                                     \
  "  output loss = cross_entropy(matmul(x, transpose(wte)), labels)\n}\n"                                              \
  "train { batch = 64  steps = 10  optimizer = adamw(lr = 1e-3)  data = synthetic(seed = 1) }\n"

static fixture load_deep(const char *cluster, int layers) {
  char text[3000], set[40];
  const char *sets[] = {set};
  snprintf(text, sizeof text, "%scluster c { %s }\n", MODEL, cluster);
  snprintf(set, sizeof set, "model.layers=%d", layers);
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  zp_load_options options = {.library_dir = ZPLAN_SOURCE_DIR "/frontend/library", .set = sets, .n_set = 1};
  zp_source_text source = {"test.dz", text, strlen(text), false};
  f.spec = zp_load(f.arena, f.diags, "test.dz", &source, 1, &options);
  char *shown = f.spec ? NULL : printed(&f);
  cr_assert(f.spec, "%s: %s", cluster, shown ? shown : "");
  return f;
}

static fixture load_cluster(const char *cluster) { return load_deep(cluster, 2); }

/* Every plan has a step time, fits, and is the same the second time. */
static double plan_on(const char *cluster, int devices) {
  fixture f = load_cluster(cluster);
  cr_expect_eq(f.spec->cluster.ranks, devices, "%s: %lld devices", cluster, (long long)f.spec->cluster.ranks);
  const zp_plan *plan = zp_search(f.arena, f.spec, devices, NULL);
  cr_assert(plan->feasible, "%s", cluster);
  double seconds = plan->best.estimate.step_s;
  cr_expect(seconds > 0 && seconds < 1, "%s: %g s", cluster, seconds);
  cr_expect(plan->best.estimate.peak_bytes < plan->machine.memory_bytes);
  unload(&f);
  return seconds;
}

Test(library, every_device) {
  static const char *const devices[] = {"v100_sxm2_16", "v100_sxm2_32", "v100_sxm3_32", "v100_pcie_16", "v100_pcie_32",
                                        "a100_40",      "a100_80",      "h100_pcie",    "h100_sxm",     "h100_sxm_96",
                                        "h200",         "b200",         "rtx3090",      "rtx4090",      "l40s",
                                        "gb200",        "b300",         "gb300",        "gh200",        "gh200_144",
                                        "h20",          "h800",         "h100_nvl",     "l4",           "a10",
                                        "a10g",         "rtx5090",      "rtx6000_pro",  "mi300x",       "mi325x"};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    char cluster[200];
    snprintf(cluster, sizeof cluster, "nodes = 1  node = std.hw.workstation(devices = 2 * std.hw.%s)", devices[i]);
    plan_on(cluster, 2);
  }
}

Test(library, every_node) {
  static const struct {
    const char *node;
    int devices;
    bool network;
  } nodes[] = {{"dgx1v", 8, true},          {"dgx1v(devices = 8 * std.hw.v100_sxm2_16)", 8, true},
               {"dgx2", 16, true},          {"p3dn", 8, true},
               {"dgx_a100", 8, true},       {"dgx_a100(devices = 8 * std.hw.a100_40)", 8, true},
               {"dgx_h100", 8, true},       {"dgx_h200", 8, true},
               {"dgx_b200", 8, true},       {"workstation", 1, false},
               {"gpu_server", 8, true},     {"cpu_generic", 8, true},
               {"hgx_h800", 8, true},       {"hgx_h20", 8, true},
               {"dgx_b300", 8, true},       {"gh200_quad", 4, true},
               {"nvl72", 72, true},         {"nvl72(devices = 64 * std.hw.gb300, network = 100GB/s)", 64, true},
               {"mi300x_platform", 8, true}};
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
    for (int count = 1; count <= 1 + nodes[i].network; count++) {
      char cluster[200];
      snprintf(cluster, sizeof cluster, "nodes = %d  node = std.hw.%s", count, nodes[i].node);
      plan_on(cluster, count * nodes[i].devices);
    }
}

/* Racks of Grace and Blackwell have four units more a GPU than boards of eight. */
Test(library, units_of_blackwell) {
  static const struct {
    const char *device;
    int units;
  } parts[] = {{"b200", 148}, {"b300", 148}, {"gb200", 152}, {"gb300", 152}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    char cluster[200];
    snprintf(cluster, sizeof cluster, "nodes = 1  node = std.hw.workstation(devices = 2 * std.hw.%s)", parts[i].device);
    fixture f = load_cluster(cluster);
    cr_expect_eq((int)f.spec->cluster.node.device.cores, parts[i].units, "%s", parts[i].device);
    unload(&f);
  }
}

/* The plan may differ from fabric to fabric; a fabric that is worse in every number is never faster. */
Test(library, every_fabric) {
  double tree = plan_on("nodes = 4  node = std.hw.dgx_a100  fabric = std.hw.fat_tree", 32);
  double bare = plan_on("nodes = 4  node = std.hw.dgx_a100", 32);
  double thin = plan_on("nodes = 4  node = std.hw.dgx_a100  fabric = std.hw.fat_tree(oversubscription = 8)", 32);
  double rail = plan_on("nodes = 4  node = std.hw.dgx_a100  fabric = std.hw.rail(oversubscription = 8)", 32);
  double slow = plan_on("nodes = 4  node = std.hw.dgx_a100  fabric = std.hw.slow_ethernet(oversubscription = 8)", 32);
  cr_expect_eq(tree, bare, "the defaults of a fat tree are those of no fabric");
  cr_expect(tree <= rail && rail <= thin && thin <= slow, "%g, %g, %g, %g", tree, rail, thin, slow);
}

Test(library, fabric_items_and_blocks_mean_the_same) {
  fixture a =
      load_cluster("nodes = 2  node = std.hw.dgx2  fabric = std.hw.rail(oversubscription = 2, collectives = 70%)");
  fixture b = load_cluster("nodes = 2  node = std.hw.dgx2  fabric { topology = \"rail\"  oversubscription = 2  "
                           "collectives = 70% }");
  fixture c = load_cluster("nodes = 2  node = std.hw.dgx2  fabric { base = std.hw.slow_ethernet  staged = false }");
  const zp_cluster *x = &a.spec->cluster, *y = &b.spec->cluster, *z = &c.spec->cluster;
  cr_expect(x->topology == ZP_RAIL && y->topology == ZP_RAIL && z->topology == ZP_FAT_TREE);
  cr_expect_eq(x->oversubscription, y->oversubscription);
  cr_expect_float_eq(x->collective_share, 0.7, 1e-12);
  cr_expect_float_eq(y->collective_share, 0.7, 1e-12);
  cr_expect_not(z->host_staged);
  cr_expect_float_eq(z->fabric_latency_s, 30e-6, 1e-15);
  unload(&a);
  unload(&b);
  unload(&c);
}

/* ---- several node types ---- */

static zp_plan *plan_of(const fixture *f) { return zp_search(f->arena, f->spec, (int)f->spec->cluster.ranks, NULL); }

Test(library, equal_types_plan_as_one) {
  static const char *const nodes[] = {"dgx_a100", "dgx1v", "dgx2"};
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
    char plain[200], mixed[200];
    snprintf(plain, sizeof plain, "nodes = 3  node = std.hw.%s", nodes[i]);
    snprintf(mixed, sizeof mixed, "nodes = [std.hw.%s, 2 * std.hw.%s]", nodes[i], nodes[i]);
    fixture a = load_cluster(plain), b = load_cluster(mixed);
    const zp_plan *x = plan_of(&a), *y = plan_of(&b);
    cr_expect_eq(x->best.estimate.step_s, y->best.estimate.step_s, "%s: %.17g, %.17g", nodes[i],
                 x->best.estimate.step_s, y->best.estimate.step_s);
    cr_expect_eq(x->best.estimate.peak_bytes, y->best.estimate.peak_bytes);
    cr_expect_str_eq(zp_plan_hash(a.arena, x->program), zp_plan_hash(b.arena, y->program));
    unload(&a);
    unload(&b);
  }
}

/* Different prices keep equal nodes apart, so that every stage has a machine of its own. Where all groups span equally
 * many nodes, the price of the plan must not notice. */
Test(library, equal_groups_price_as_one) {
  static const int layouts[][3] = {{8, 2, 2}, {4, 4, 2}, {1, 4, 8}, {8, 4, 1}, {2, 2, 8}};
  fixture a = load_cluster("nodes = 4  node = std.hw.dgx_a100"),
          b = load_cluster("nodes = [2 * std.hw.dgx_a100, 2 * std.hw.dgx_a100]  price = [1, 2]");
  cr_expect_eq(b.spec->cluster.groups.len, 2);
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    zp_constraints *limits[] = {&a.spec->plans.data[0], &b.spec->plans.data[0]};
    for (int k = 0; k < 2; k++) {
      zp_limit *const degree[] = {&limits[k]->tensor, &limits[k]->pipeline, &limits[k]->data};
      for (int d = 0; d < 3; d++) *degree[d] = (zp_limit){.set = true, .low = layouts[i][d], .high = layouts[i][d]};
      limits[k]->rank_order = (zp_limit){.set = true, .low = ZP_ORDER_TDP, .high = ZP_ORDER_TDP};
    }
    const zp_plan *x = plan_of(&a), *y = plan_of(&b);
    cr_expect_eq(x->feasible, y->feasible);
    if (x->feasible) cr_expect_eq(x->best.estimate.step_s, y->best.estimate.step_s, "layout %zu", i);
  }
  unload(&a);
  unload(&b);
}

/* The second node's devices run at 1/n of the first one's; a pipeline over both gives them no more units the slower
 * they are, and a share close to that of their rate. */
Test(library, slower_nodes_get_fewer_units) {
  int64_t before = INT64_MAX;
  for (int slowness = 1; slowness <= 8; slowness *= 2) {
    fixture f = load_deep("nodes = [std.hw.dgx_a100, std.hw.dgx_a100]  price = [1, 2]", 24);
    zp_device *slow = &f.spec->cluster.groups.data[1].type.device;
    slow->flop_per_s_fp32 /= slowness;
    slow->memory_bytes_per_s /= slowness;
    slow->launch_s *= slowness;
    zp_cluster_mix(f.arena, &f.spec->cluster);
    f.spec->plans.data[0].pipeline = (zp_limit){.set = true, .low = 2, .high = 2};
    f.spec->plans.data[0].data = (zp_limit){.set = true, .low = 8, .high = 8};
    f.spec->plans.data[0].rank_order = (zp_limit){.set = true, .low = ZP_ORDER_TDP, .high = ZP_ORDER_TDP};
    f.spec->plans.data[0].schedule = (zp_limit){.set = true, .low = ZP_SCHEDULE_1F1B, .high = ZP_SCHEDULE_1F1B};
    f.spec->plans.data[0].node_order = (zp_limit){.set = true}; /* ZP_NODES_WRITTEN */
    const zp_plan *plan = plan_of(&f);
    cr_assert(plan->feasible);
    int64_t units = plan->program->stages[1].n_units, all = plan->program->lowered->n_units;
    cr_expect(units <= before, "%lld units after %lld", (long long)units, (long long)before);
    if (slowness > 1)
      cr_expect(units < all / 2, "1/%d: %lld of %lld units", slowness, (long long)units, (long long)all);
    before = units;
    unload(&f);
  }
}

Test(library, one_type_in_a_list_is_a_plain_cluster) {
  fixture f = load_cluster("nodes = [3 * std.hw.dgx_a100]  price = [2.5]");
  cr_expect_eq(f.spec->cluster.groups.len, 0);
  cr_expect_eq(f.spec->cluster.nodes, 3);
  cr_expect_eq(f.spec->cluster.price_per_gpu_hour, 2.5);
  unload(&f);
}

/* ---- the order of node types ---- */

/* Devices of 1/4 of the rate and a little memory, as so many nodes that are written first or last. */
static const char *const orders[] = {"nodes = [std.hw.dgx_a100, 2 * std.hw.dgx1v]",
                                     "nodes = [2 * std.hw.dgx1v, std.hw.dgx_a100]",
                                     "nodes = [std.hw.dgx1v, std.hw.dgx_a100, std.hw.dgx1v]"};

static fixture load_pipeline(const char *nodes) {
  fixture f = load_deep(nodes, 25);
  zp_constraints *c = &f.spec->plans.data[0];
  c->pipeline = (zp_limit){.set = true, .low = 3, .high = 3};
  c->data = (zp_limit){.set = true, .low = 8, .high = 8};
  c->rank_order = (zp_limit){.set = true, .low = ZP_ORDER_TDP, .high = ZP_ORDER_TDP};
  return f;
}

Test(library, node_types_in_any_order_give_the_same_time) {
  double time[3], bound[3], written[3];
  int arranged = 0;
  for (int i = 0; i < 3; i++) {
    fixture f = load_pipeline(orders[i]);
    const zp_plan *plan = plan_of(&f);
    cr_assert(plan->feasible);
    time[i] = plan->best.estimate.step_s;
    bound[i] = plan->certificate.bound_s;
    cr_expect_eq(plan->certificate.node_orders, 3);
    cr_expect_eq(plan->spec->cluster.arranged, plan->asked != NULL);
    arranged += plan->spec->cluster.arranged;
    f.spec->plans.data[0].node_order = (zp_limit){.set = true}; /* ZP_NODES_WRITTEN */
    plan = plan_of(&f);
    written[i] = plan->best.estimate.step_s;
    cr_expect_eq(plan->certificate.node_orders, 0);
    cr_expect_not(plan->spec->cluster.arranged);
    unload(&f);
  }
  cr_expect(time[0] == time[1] && time[0] == time[2], "%.17g, %.17g, %.17g", time[0], time[1], time[2]);
  cr_expect_float_eq(bound[0], bound[1], 1e-9 * bound[0]);
  cr_expect_neq(written[0], written[1], "else this test would show nothing");
  cr_expect_leq(time[0], fmin(written[0], written[1]));
  cr_expect_geq(arranged, 1);
}

/* 90 orders are too many: those with alike nodes side by side are searched, however these are listed, and the written
 * one. */
Test(library, too_many_orders_keep_alike_nodes_together) {
  static const struct {
    const char *nodes;
    int64_t there;
  } lists[] = {{"nodes = [2 * std.hw.dgx1v, 2 * std.hw.dgx_a100, 2 * std.hw.dgx2]", 6},
               {"nodes = [std.hw.dgx1v, std.hw.dgx1v, std.hw.dgx_a100, std.hw.dgx_a100, std.hw.dgx2, std.hw.dgx2]", 6},
               {"nodes = [std.hw.dgx2, std.hw.dgx1v, std.hw.dgx2, std.hw.dgx_a100, std.hw.dgx1v, std.hw.dgx_a100]", 7}};
  double time[3], written = 0; /* the last one's */
  for (int i = 0; i < 3; i++) {
    fixture f = load_pipeline(lists[i].nodes);
    const zp_plan *plan = plan_of(&f);
    cr_assert(plan->feasible);
    time[i] = plan->best.estimate.step_s;
    cr_expect_eq(plan->certificate.node_orders_there, lists[i].there);
    cr_expect_leq(plan->certificate.node_orders, lists[i].there);
    cr_expect(plan->certificate.nodes_together);
    f.spec->plans.data[0].node_order = (zp_limit){.set = true}; /* ZP_NODES_WRITTEN */
    written = plan_of(&f)->best.estimate.step_s;
    unload(&f);
  }
  cr_expect_float_eq(time[0], time[1], 1e-9 * time[0]);
  cr_expect_leq(time[2], time[0] * (1 + 1e-9));
  cr_expect_gt(written, time[2], "else this test would show nothing");
}

/* The plan file says on which nodes its ranks are, and reads back as the same plan; what is no order of the nodes is
 * refused. */
Test(library, plan_files_say_the_order_of_nodes) {
  fixture f = load_pipeline(orders[0]);
  const zp_plan *plan = plan_of(&f);
  if (!plan->spec->cluster.arranged) {
    unload(&f);
    f = load_pipeline(orders[1]);
    plan = plan_of(&f);
  }
  cr_assert(plan->feasible && plan->spec->cluster.arranged);
  const char *error = NULL;
  zp_json *json = zp_plan_to_json(f.arena, plan);
  const zp_spec *back = zp_plan_spec_from_json(f.arena, f.spec, json, &error);
  cr_assert(back, "%s", error);
  cr_assert_eq(back->cluster.n_ranges, plan->spec->cluster.n_ranges);
  for (int i = 0; i < back->cluster.n_ranges; i++)
    cr_expect(back->cluster.ranges[i].first == plan->spec->cluster.ranges[i].first &&
              back->cluster.ranges[i].nodes == plan->spec->cluster.ranges[i].nodes);
  zp_strings findings = {0};
  zp_verify(f.arena, back, json, &findings);
  cr_expect_eq(findings.len, 0, "%s", findings.len ? findings.data[0] : "");
  zp_json *second = (zp_json *)zp_json_at(zp_json_get(zp_json_get(json, "cluster"), "node_order"), 1);
  zp_json_set_int(second, "first_node", plan->spec->cluster.ranges[0].first);
  cr_expect_null(zp_plan_spec_from_json(f.arena, f.spec, json, &error));
  zp_json_free(json);
  unload(&f);
}

/* --gpus takes the first devices as written, in whatever order ranks fill them; a node in part stays the last. */
Test(library, part_of_the_nodes_keeps_its_devices) {
  static const struct {
    int devices;
    int64_t orders;
    int last; /* the node as written that the last ranks are on */
  } parts[] = {{24, 3, -1}, {16, 2, -1}, {20, 2, 2}, {12, 0, 1}, {8, 0, 0}, {28, 3, 3}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    fixture f = load_cluster("nodes = [std.hw.dgx_a100, std.hw.dgx1v, 4 * std.hw.dgx_a100]");
    const zp_plan *plan = zp_search(f.arena, f.spec, parts[i].devices, NULL);
    const zp_cluster *c = &plan->spec->cluster;
    cr_assert(plan->feasible);
    cr_expect_eq(plan->certificate.node_orders, parts[i].orders, "%d devices: %lld orders", parts[i].devices,
                 (long long)plan->certificate.node_orders);
    for (int r = 0, nodes = 0; r < c->n_ranges && c->arranged; nodes += c->ranges[r++].nodes)
      for (int k = 0; k < c->ranges[r].nodes && 8 * (nodes + k) < parts[i].devices; k++) {
        int node = c->ranges[r].first + k;
        cr_expect_lt(8 * node, parts[i].devices, "%d devices: node %d", parts[i].devices, node);
        if (parts[i].last >= 0 && 8 * (nodes + k + 1) > parts[i].devices) cr_expect_eq(node, parts[i].last);
      }
    unload(&f);
  }
}
