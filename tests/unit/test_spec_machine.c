/* SPDX-License-Identifier: Apache-2.0 */
/* Machines: what zp_load makes of clusters, nodes and the library, and what it says of wrong ones. */
#include "spec_testing.h"

Test(spec_machine, library_node) {
  fixture f =
      good(MODEL TRAIN "cluster big { nodes = 50  node = std.hw.dgx2  fabric { topology = \"fat_tree\"  latency = 2us "
                       "oversubscription = 2.0 }  price = 2.5 }\n");
  const zp_cluster *c = &f.spec->cluster;
  cr_expect_str_eq(c->name, "big");
  cr_expect_eq(c->nodes, 50);
  cr_expect_eq(c->ranks, 800);
  cr_expect_eq(c->node.devices, 16);
  cr_expect_str_eq(c->node.name, "dgx2");
  cr_expect_str_eq(c->node.device.name, "v100_sxm3_32");
  cr_expect_eq(c->node.device.memory_bytes, 32000000000);
  cr_expect_float_eq(c->node.device.flop_per_s_half, 125e12, 1);
  cr_expect_not(c->node.device.has_bf16);
  cr_expect_float_eq(c->node.device.eff_matmul, 0.75, 1e-12);
  cr_expect_str_eq(c->node.link.kind, "nvswitch");
  cr_expect_float_eq(c->node.link.bytes_per_s, 150e9, 1);
  cr_expect_eq(c->node.nics, 8);
  cr_expect_float_eq(c->node.nic.bytes_per_s, 12.5e9, 1);
  cr_expect_eq(c->node.host_memory_bytes, 1500000000000);
  cr_expect_float_eq(c->fabric_latency_s, 2e-6, 1e-15);
  cr_expect_float_eq(c->oversubscription, 2.0, 0);
  cr_expect_float_eq(c->price_per_gpu_hour, 2.5, 0);
  unload(&f);
}

Test(spec_machine, every_library_item_is_complete) {
  static const char *const devices[] = {"v100_sxm2_16", "v100_sxm2_32", "v100_sxm3_32", "v100_pcie_16", "v100_pcie_32",
                                        "a100_40",      "a100_80",      "rtx3090",      "rtx4090",      "h100_sxm",
                                        "h100_pcie",    "h200",         "b200"};
  static const char *const nodes[] = {"dgx1v", "dgx2", "p3dn", "dgx_a100", "dgx_h100", "workstation", "cpu_generic"};
  char text[2000];
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    snprintf(text, sizeof text, "%scluster c { nodes = 1  node = std.hw.workstation(devices = 2 * std.hw.%s) }\n",
             MODEL TRAIN, devices[i]);
    fixture f = good(text);
    const zp_device *d = &f.spec->cluster.node.device;
    cr_expect_str_eq(d->name, devices[i]);
    cr_expect(d->flop_per_s_fp64 > 0 && d->flop_per_s_half > d->flop_per_s_fp32 &&
              d->flop_per_s_fp32 > d->flop_per_s_fp64);
    cr_expect(d->context_bytes > 0 && d->launch_s > 0);
    cr_expect_eq(d->has_bf16, strncmp(devices[i], "v100", 4) != 0);
    cr_expect(d->arch && zp_is_gpu_arch(d->arch), "%s", devices[i]);
    cr_expect_eq(d->has_bf16, atoi(d->arch + 3) >= 80, "bf16 came with sm_80");
    unload(&f);
  }
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
    snprintf(text, sizeof text, "%scluster c { nodes = 1  node = std.hw.%s }\n", MODEL TRAIN, nodes[i]);
    fixture f = good(text);
    cr_expect_str_eq(f.spec->cluster.node.name, nodes[i]);
    cr_expect(f.spec->cluster.node.host_memory_bytes > 0 && f.spec->cluster.node.link.bytes_per_s > 0);
    unload(&f);
  }
}

Test(spec_machine, base_is_changed_in_place) {
  fixture f =
      good(MODEL TRAIN "device tuned { efficiency { matmul = 55% }  memory = 30GB  base = std.hw.v100_sxm3_32 }\n"
                       "node mine { base = std.hw.dgx2  devices = 4 * tuned  nic { count = 2 } }\n"
                       "cluster c { nodes = 2  node = mine }\n");
  const zp_node_type *n = &f.spec->cluster.node;
  cr_expect_eq(n->devices, 4);
  cr_expect_str_eq(n->device.name, "tuned");
  cr_expect_eq(n->device.memory_bytes, 30000000000, "`base` comes first wherever it stands");
  cr_expect_float_eq(n->device.eff_matmul, 0.55, 1e-12);
  cr_expect_float_eq(n->device.eff_attention, 0.45, 1e-12);
  cr_expect_eq(n->nics, 2);
  cr_expect_float_eq(n->nic.bytes_per_s, 12.5e9, 1);
  unload(&f);
}

Test(spec_machine, cpu_node) {
  fixture f = good(MODEL TRAIN CLUSTER);
  const zp_node_type *n = &f.spec->cluster.node;
  cr_expect(n->device.is_cpu);
  cr_expect_eq(n->device.cores, 8);
  cr_expect_eq(n->devices, 8);
  cr_expect_eq(n->device.memory_bytes, INT64_C(16) << 30);
  cr_expect_float_eq(n->device.flop_per_s_fp32, 800e9, 1);
  cr_expect_float_eq(n->device.flop_per_s_fp64, 400e9, 1);
  cr_expect_float_eq(f.spec->plans.data[0].memory_fraction, 0.8, 1e-12);
  unload(&f);
}

Test(spec_machine, gpus_and_nodes_override) {
  static const struct {
    const char *node;
    int64_t gpus, nodes;
    int got_nodes, got_devices;
    int64_t ranks;
  } cases[] = {
      {"std.hw.dgx2", 0, 0, 3, 16, 48},
      {"std.hw.dgx2", 800, 0, 50, 16, 800},
      {"std.hw.dgx2", 7, 0, 1, 16, 7},
      {"std.hw.dgx2", 17, 0, 2, 16, 17},
      {"std.hw.dgx2", 0, 5, 5, 16, 80},
      {"std.hw.dgx2", 8, 2, 2, 4, 8},
      {"cpu_generic(cores = 4)", 0, 0, 3, 4, 12},
      {"cpu_generic(cores = 4)", 30, 0, 3, 10, 30},
      {"cpu_generic(cores = 4)", 2, 0, 2, 4, 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%scluster c { nodes = 3  node = %s }\n", MODEL TRAIN, cases[i].node);
    fixture f = good_with(text, (zp_load_options){.gpus = cases[i].gpus, .nodes = cases[i].nodes});
    cr_expect_eq(f.spec->cluster.nodes, cases[i].got_nodes, "case %zu: %d nodes", i, f.spec->cluster.nodes);
    cr_expect_eq(f.spec->cluster.node.devices, cases[i].got_devices, "case %zu: %d devices", i,
                 f.spec->cluster.node.devices);
    cr_expect_eq(f.spec->cluster.ranks, cases[i].ranks, "case %zu", i);
    unload(&f);
  }
}

Test(spec_machine, impossible_sizes) {
  const char *text = MODEL TRAIN "cluster c { nodes = 3  node = std.hw.dgx2 }\n";
  fixture many = load_with(text, (zp_load_options){.gpus = 40, .nodes = 2});
  check_failure("too many", &many, 1, "Z0405|2 nodes of `dgx2` have 32 devices, --gpus asks for 40");
  unload(&many);
  fixture uneven = load_with(text, (zp_load_options){.gpus = 7, .nodes = 2});
  check_failure("uneven", &uneven, 1, "Z0405|--gpus 7 cannot be spread evenly over --nodes 2");
  unload(&uneven);
}

Test(spec_machine, errors) {
  static const struct {
    const char *body;
    int errors;
    const char *words;
  } cases[] = {
      {"", 1, "Z0401|no `cluster` block"},
      {"cluster c { nodes = 2 }", 1, "Z0307|`node`"},
      {"cluster c { node = std.hw.dgx2 }", 1, "Z0307|`nodes`"},
      {"cluster c { nodes = 1 node = std.hw.dgx22 }", 1, "Z0402|did you mean `std.hw.dgx2`"},
      {"cluster c { nodes = 1 node = 4 }", 1, "Z0304|name of a node"},
      {"cluster c { nodes = 1 node { devices = 4 } }", 1, "Z0304|devices = 4 * std.hw.a100_80"},
      {"cluster c { nodes = 1 node { devices = 0 * a100_80 } }", 1, "Z0306|1 or more"},
      {"cluster c { nodes = 1 node { devices = 2 * a100_80 } }", 1, "Z0307|`link.bandwidth`"},
      {"cluster c { nodes = 1 node { host { memory = 1TB } } }", 1, "Z0307|`devices`"},
      {"cluster c { nodes = 1 node = workstation(memory = 12) }", 1, "Z0302|`memory` needs a unit"},
      {"cluster c { nodes = 1 node = workstation(devices = 1 * rtx4099) }", 0, "rtx4099"},
      {"cluster c { nodes = 1 node = workstation(memory = 1TB, memory = 2TB) }", 1, "Z0404|twice"},
      {"cluster c { nodes = 1 node = dgx2(1) }", 1, "Z0404|takes 0 arguments"},
      {"node n { base = n } cluster c { nodes = 1 node = n }", 1, "Z0403|defined by itself"},
      {"device d { base = a100_80 context = 90GB } cluster c { nodes = 1 node { devices = 1 * d } }", 1,
       "leaves nothing"},
      {"cluster c { nodes = 1 node = dgx2 fabric { topology = \"torus\" } }", 1, "Z0308|fat_tree"},
      {"cluster c { nodes = 1 node = dgx2 fabric { oversubscription = 0.5 } }", 1, "Z0306|1 or more"},
      {"device d { base = a100_80 memory = 1e30GB } cluster c { nodes = 1 node { devices = 1 * d } }", 1,
       "Z0306|`memory` is above|at most 400 TB"},
      {"device d { base = a100_80 memory_bandwidth = 1e-9GB/s } cluster c { nodes = 1 node { devices = 1 * d } }", 1,
       "Z0306|`memory_bandwidth` is below|1 KB/s to 1 PB/s"},
      {"device d { base = a100_80 half = 1e30TFLOPS } cluster c { nodes = 1 node { devices = 1 * d } }", 1,
       "Z0306|`half` is above"},
      {"cluster c { nodes = 1 node { base = dgx2 nic { count = 1 bandwidth = 1e-30GB/s } } }", 1,
       "Z0306|`bandwidth` is below"},
      {"node n(k) { devices = k * a100_80 } cluster c { nodes = 1 node = n }", 1, "Z0404|`n` needs `k`"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[1500];
    snprintf(text, sizeof text, "%s%s\n", MODEL TRAIN, cases[i].body);
    fixture f = load_with(text, (zp_load_options){0});
    check_failure(cases[i].body, &f, cases[i].errors, cases[i].words);
    unload(&f);
  }
}
