/* SPDX-License-Identifier: Apache-2.0 */
/* Node types: which are alike, what a mix of two can count on, and its price. Expectations are counted by hand. */
#include <criterion/criterion.h>
#include <string.h>
#include <zplan/spec.h>

static zp_node_type plain_node(void) {
  return (zp_node_type){.name = "plain",
                        .devices = 8,
                        .device = {.name = "chip",
                                   .memory_bytes = 80,
                                   .context_bytes = 2,
                                   .memory_bytes_per_s = 2000,
                                   .flop_per_s_fp64 = 10,
                                   .flop_per_s_fp32 = 20,
                                   .flop_per_s_half = 300,
                                   .has_bf16 = true,
                                   .has_nccl = true,
                                   .eff_matmul = 0.8,
                                   .eff_attention = 0.4,
                                   .eff_memory = 0.9,
                                   .launch_s = 3e-6,
                                   .arch = "sm_90",
                                   .cores = 132},
                        .link = {"nvswitch", 450, 2e-6},
                        .host_memory_bytes = 1600,
                        .host_bytes_per_s = 400,
                        .pcie_bytes_per_s = 50,
                        .host_sockets = 2,
                        .pcie_devices_per_root = 2,
                        .nvme_bytes = 3200,
                        .nvme_read_bytes_per_s = 24,
                        .nvme_write_bytes_per_s = 16,
                        .nics = 8,
                        .nic = {"infiniband", 40, 5e-6}};
}

/* A field that planning reads and that is not compared would make two types one. */
Test(cluster, nodes_that_differ_in_one_field_are_not_alike) {
  const zp_node_type a = plain_node();
  zp_node_type b = a;
  char name[] = "plain", chip[] = "chip", arch[] = "sm_90", link[] = "nvswitch", nic[] = "infiniband";
  b.name = name, b.device.name = chip, b.device.arch = arch, b.link.kind = link, b.nic.kind = nic;
  cr_expect(zp_node_type_equal(&a, &b), "words count by their letters");
#define DIFFERS(field, value)                                                                                          \
  do {                                                                                                                 \
    b = a;                                                                                                             \
    b.field = value;                                                                                                   \
    cr_expect(!zp_node_type_equal(&a, &b), #field);                                                                    \
    cr_expect(!zp_node_type_equal(&b, &a), #field);                                                                    \
  } while (0)
#define MORE(field) DIFFERS(field, a.field + 1)
  DIFFERS(name, "other");
  DIFFERS(name, NULL);
  MORE(devices);
  DIFFERS(device.name, "other");
  DIFFERS(device.is_cpu, true);
  MORE(device.memory_bytes);
  MORE(device.context_bytes);
  MORE(device.memory_bytes_per_s);
  MORE(device.flop_per_s_fp64);
  MORE(device.flop_per_s_fp32);
  MORE(device.flop_per_s_half);
  DIFFERS(device.has_bf16, false);
  DIFFERS(device.has_nccl, false);
  MORE(device.eff_matmul);
  MORE(device.eff_attention);
  MORE(device.eff_memory);
  MORE(device.launch_s);
  DIFFERS(device.measured, (const struct zp_cpu_kernels *)&b);
  DIFFERS(device.arch, "sm_80");
  DIFFERS(device.arch, NULL);
  MORE(device.cores);
  DIFFERS(link.kind, "pcie");
  MORE(link.bytes_per_s);
  MORE(link.latency_s);
  MORE(host_memory_bytes);
  MORE(host_bytes_per_s);
  MORE(pcie_bytes_per_s);
  MORE(host_sockets);
  MORE(pcie_devices_per_root);
  MORE(nvme_bytes);
  MORE(nvme_read_bytes_per_s);
  MORE(nvme_write_bytes_per_s);
  MORE(nics);
  DIFFERS(nic.kind, "ethernet");
  MORE(nic.bytes_per_s);
  MORE(nic.latency_s);
#undef MORE
#undef DIFFERS
}

/* Everything of the second type is worse in a way of its own. */
static zp_node_type worse_node(void) {
  return (zp_node_type){.name = "worse",
                        .devices = 4,
                        .device = {.name = "old",
                                   .memory_bytes = 32,
                                   .context_bytes = 3,
                                   .memory_bytes_per_s = 900,
                                   .flop_per_s_fp64 = 7,
                                   .flop_per_s_fp32 = 15,
                                   .flop_per_s_half = 120,
                                   .eff_matmul = 0.6,
                                   .eff_attention = 0.3,
                                   .eff_memory = 0.8,
                                   .launch_s = 4e-6,
                                   .arch = "sm_70",
                                   .cores = 80},
                        .link = {"pcie", 16, 4e-6},
                        .host_memory_bytes = 400,
                        .host_bytes_per_s = 100,
                        .pcie_bytes_per_s = 12,
                        .host_sockets = 4,
                        .pcie_devices_per_root = 4,
                        .nvme_bytes = 800,
                        .nvme_read_bytes_per_s = 6,
                        .nvme_write_bytes_per_s = 4,
                        .nics = 1,
                        .nic = {"ethernet", 10, 9e-6}};
}

static zp_node_type mixed(zp_arena *arena, const zp_node_type *a, const zp_node_type *b) {
  zp_cluster c = {0};
  zp_push(arena, &c.groups, ((zp_node_group){.nodes = 1, .type = *a}));
  zp_push(arena, &c.groups, ((zp_node_group){.nodes = 1, .type = *b}));
  zp_cluster_mix(arena, &c);
  return c.slowest[3];
}

/* What a rank of the mix can count on is the worse of both, whichever comes first. */
static void expect_worse(const zp_node_type *mix) {
  const zp_device *d = &mix->device;
  cr_expect_str_eq(mix->name, "worse");
  cr_expect_str_eq(d->name, "old");
  cr_expect_eq(d->cores, 80);
  cr_expect_null(d->arch);
  cr_expect(!d->has_bf16 && d->has_nccl);
  cr_expect(d->memory_bytes == 32 && d->context_bytes == 3 && d->launch_s == 4e-6);
  cr_expect_float_eq(d->flop_per_s_half * d->eff_matmul, 72, 1e-9);
  cr_expect_float_eq(d->flop_per_s_fp32 * d->eff_matmul, 9, 1e-9);
  cr_expect_float_eq(d->flop_per_s_fp64 * d->eff_matmul, 4.2, 1e-9);
  cr_expect_float_eq(d->flop_per_s_half * d->eff_attention, 36, 1e-9);
  cr_expect_float_eq(d->memory_bytes_per_s * d->eff_memory, 720, 1e-9);
  cr_expect_str_eq(mix->link.kind, "pcie");
  cr_expect_str_eq(mix->nic.kind, "ethernet");
  cr_expect(mix->link.bytes_per_s == 16 && mix->link.latency_s == 4e-6);
  cr_expect(mix->nic.bytes_per_s == 10 && mix->nic.latency_s == 9e-6 && mix->nics == 1);
  cr_expect(mix->pcie_bytes_per_s == 12 && mix->host_sockets == 4 && mix->pcie_devices_per_root == 4);
  /* Eight devices with the smaller share each: 400 bytes for four devices are 800 for eight. */
  cr_expect_eq(mix->devices, 8);
  cr_expect_eq(mix->host_memory_bytes, 800);
  cr_expect_float_eq(mix->host_bytes_per_s, 200, 1e-9);
  cr_expect_eq(mix->nvme_bytes, 1600);
  cr_expect_float_eq(mix->nvme_read_bytes_per_s, 12, 1e-9);
  cr_expect_float_eq(mix->nvme_write_bytes_per_s, 8, 1e-9);
}

Test(cluster, a_mix_has_the_worse_of_both) {
  zp_arena *arena = zp_arena_new("test");
  zp_node_type a = plain_node(), b = worse_node(), mix = mixed(arena, &a, &b);
  expect_worse(&mix);
  mix = mixed(arena, &b, &a);
  expect_worse(&mix);
  zp_arena_free(arena);
}

/* Without a 16-bit rate on one side the f32 rates say which is slower, and attention's share is the smaller one. */
Test(cluster, a_mix_without_a_common_half_precision) {
  zp_arena *arena = zp_arena_new("test");
  zp_node_type a = plain_node(), b = worse_node();
  b.device.flop_per_s_half = 0;
  b.device.flop_per_s_fp32 = 25, b.device.eff_matmul = 0.8;
  zp_node_type mix = mixed(arena, &a, &b);
  cr_expect_str_eq(mix.device.name, "chip", "20 is less than 25");
  cr_expect_eq(mix.device.cores, 132);
  cr_expect_eq(mix.device.flop_per_s_half, 0);
  cr_expect_float_eq(mix.device.eff_attention, 0.3, 1e-12);
  mix = mixed(arena, &b, &a);
  cr_expect_str_eq(mix.device.name, "chip");
  cr_expect_float_eq(mix.device.eff_attention, 0.3, 1e-12);
  b.device.flop_per_s_fp32 = 20; /* as fast: the first stays */
  mix = mixed(arena, &a, &b);
  cr_expect_str_eq(mix.device.name, "chip");
  b = plain_node();
  b.name = "twin", b.device.name = "twin", b.device.cores = 100;
  mix = mixed(arena, &a, &b);
  cr_expect(strcmp(mix.name, "plain") == 0 && strcmp(mix.device.name, "chip") == 0 && mix.device.cores == 132);
  zp_arena_free(arena);
}

static void halve_memory(zp_node_type *node, const void *user) {
  (void)user;
  node->device.memory_bytes /= 2;
}

Test(cluster, a_change_reaches_every_group_and_no_copy) {
  zp_arena *arena = zp_arena_new("test");
  zp_cluster c = {0};
  for (int g = 0; g < 2; g++)
    zp_push(arena, &c.groups, ((zp_node_group){.nodes = 3, .type = g ? worse_node() : plain_node()}));
  zp_cluster_mix(arena, &c);
  const zp_cluster before = c;
  zp_cluster_change(arena, &c, halve_memory, NULL);
  cr_assert_eq(c.groups.len, 2);
  cr_expect(c.groups.data[0].type.device.memory_bytes == 40 && c.groups.data[1].type.device.memory_bytes == 16);
  cr_expect(c.slowest[3].device.memory_bytes == 16 && c.nodes == 6);
  cr_expect(before.groups.data[0].type.device.memory_bytes == 80, "the copy keeps its own groups");
  zp_cluster one = {.node = plain_node(), .price_per_gpu_hour = 2};
  zp_cluster_change(arena, &one, halve_memory, NULL);
  cr_expect_eq(one.node.device.memory_bytes, 40);
  cr_expect_eq(zp_cluster_price(&one, 8), 2);
  one.energy_price = 0.2;
  cr_expect_eq(zp_cluster_price(&one, 8), 0, "energy has a price, but nobody knows the power");
  one.node.device.power_w = 500;
  cr_expect_float_eq(zp_cluster_energy_price(&one, 8), 0.1, 1e-15);
  cr_expect_float_eq(zp_cluster_price(&one, 8), 2.1, 1e-15);
  one.power_w = 1000; /* with hosts and cooling */
  cr_expect_float_eq(zp_cluster_price(&one, 8), 2.2, 1e-15);
  one.power_w = 0, one.node.device.is_cpu = true;
  cr_expect_eq(zp_cluster_energy_price(&one, 8), 0, "ranks share a node's power in no known way");
  c.price_per_gpu_hour = 7;
  cr_expect_eq(zp_cluster_price(&c, 0), 7, "none in use: what is written");
  zp_arena_free(arena);
}
