/* SPDX-License-Identifier: Apache-2.0 */
/* Cost functions for GPUs, by hand: tiles and waves, alignment, batched products, rings and trees over nodes, meshes.
 * They see the planner's private header: the functions are shared inside the planner only. */
#include <zplan/constants.h>
#include <zplan/cost.h>
#include <zplan/own_gpu.h>
#include <math.h>
#include "planner_models.h"

static void expect_near(double got, double want, const char *what) {
  cr_expect(fabs(got - want) <= 1e-9 * fabs(want), "%s: %.12g, expected %.12g", what, got, want);
}

/* 100 multiprocessors, 100 TFLOP/s and 1 TB/s at full efficiency, no launch time. */
static zp_cluster cluster_of(int nodes) {
  zp_cluster c = gpu_cluster(nodes);
  c.node.device.cores = 100;
  c.node.device.flop_per_s_half = 100e12;
  c.node.device.flop_per_s_fp32 = 10e12;
  c.node.device.memory_bytes_per_s = 1e12;
  c.node.device.eff_matmul = c.node.device.eff_memory = 1;
  c.node.device.launch_s = 0;
  return c;
}

/* 100 tiles of 256 x 128 are one wave: 2 * 256 * 128 * 100 * (k + 96) FLOP. One more row of tiles is a second wave. */
Test(cost_gpu, tiles_run_in_waves) {
  zp_cluster c = cluster_of(1);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  double wave = 2.0 * 256 * 128 * 100 * (4096 + 96) / 100e12;
  expect_near(zp_cost_matmul(&m, 2560, 1280, 4096, 2), wave, "one wave");
  double more = zp_cost_matmul(&m, 2560 + 8, 1280, 4096, 2);
  cr_expect(more > 1.2 * wave && more <= 2 * wave, "%g against %g", more, wave);
}

/* Heads of 108 columns: 216 bytes. Batched products of such rows run at the rate of fp32 but for V100's. */
Test(cost_gpu, batched_products_of_unaligned_rows_do_without_tensor_cores) {
  zp_cluster c = cluster_of(1);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  double aligned = zp_cost_batched_matmul(&m, 64, 2048, 2048, 112, 2), work = (108.0 + 96) / (112 + 96);
  expect_near(zp_cost_batched_matmul(&m, 64, 2048, 2048, 108, 2) / aligned, 10 * work, "108 columns");
  cr_expect_eq(zp_cost_batched_matmul(&m, 0, 2048, 2048, 112, 2), 0);
  c.node.device.arch = "sm_70";
  m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  expect_near(zp_cost_batched_matmul(&m, 64, 2048, 2048, 108, 2) / aligned, work, "108 columns on V100");
  expect_near(zp_cost_batched_matmul(&m, 64, 2048, 2048, 106, 2) / aligned, 10 * (106.0 + 96) / (112 + 96), "106");
}

/* A vocabulary of 50,257: the table's three products have rows of an odd number of elements in one operand or in the
 * result. The number of tokens is never along a row. */
Test(cost_gpu, one_product_of_unaligned_rows_loses_half) {
  zp_cluster c = cluster_of(1);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  static const zp_product_kind kinds[] = {ZP_PRODUCT_NT, ZP_PRODUCT_NN, ZP_PRODUCT_TN};
  static const double odd[][3] = {{4096, 50257, 768}, {4096, 768, 50257}, {50257, 768, 4096}};
  static const double even[][3] = {{4096, 50304, 768}, {4096, 768, 50304}, {50304, 768, 4096}};
  for (int i = 0; i < 3; i++) {
    double slow = zp_cost_product(&m, kinds[i], 1, odd[i][0], odd[i][1], odd[i][2], 2);
    double fast = zp_cost_product(&m, kinds[i], 1, even[i][0], even[i][1], even[i][2], 2);
    cr_expect(slow > 1.99 * fast && slow < 2.01 * fast, "product %d: %g against %g", i, slow, fast);
  }
  expect_near(zp_cost_product(&m, ZP_PRODUCT_NT, 1, 4095, 768, 768, 2),
              zp_cost_product(&m, ZP_PRODUCT_NT, 1, 4096, 768, 768, 2), "an odd number of tokens");
  expect_near(zp_cost_product(&m, ZP_PRODUCT_TN, 1, 768, 768, 999, 2) * (1000 + 96),
              zp_cost_product(&m, ZP_PRODUCT_TN, 1, 768, 768, 1000, 2) * (999 + 96), "summed over them");
}

/* Few output elements and a long sum: pieces of the sum run alongside each other. */
Test(cost_gpu, long_sums_are_divided) {
  zp_cluster c = cluster_of(1);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  double one_tile_after_the_other = 2.0 * 256 * 128 * 100 * (65536 + 96) / 100e12;
  cr_expect(zp_cost_matmul(&m, 256, 128, 65536, 2) < 0.2 * one_tile_after_the_other);
}

/* Gradients of 32,768 rows, in zplan's own trainer: 512 chunks are enough for the memory's rate, eight are not. Sums of
 * chunks, and of groups of 16 of them, are written and read. */
Test(cost_gpu, sums_over_columns_move_those_of_chunks) {
  zp_cluster c = cluster_of(1);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  enum { SUMS = 3 * 768 * 4 };
  zp_kernel_work work;
  expect_near(zp_cost_column_sums(&m, 250e6, SUMS, 0, 512, &work), (250e6 + 2.0 * SUMS * (512 + 32)) / 1e12,
              "512 chunks");
  double of_block = zp_cost_constant(ZP_COST_OWN_COLUMN_BYTES_PER_S);
  expect_near(work.bytes, 250e6 + 2.0 * SUMS * (512 + 32), "bytes");
  expect_near(zp_cost_column_sums(&m, 4e6, SUMS, 0, 8, &work), (4e6 + 2.0 * SUMS * (8 + 1)) / (8 * of_block),
              "eight chunks");
}

Test(cost_gpu, no_product_beats_its_bytes) {
  zp_cluster c = cluster_of(1);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  double bytes = 2.0 * (8192.0 * 8 + 8 * 8192.0 + 8192.0 * 8192);
  cr_expect(zp_cost_matmul(&m, 8192, 8192, 8, 2) >= bytes / 1e12);
}

/* The model never gets faster with more work. */
Test(cost_gpu, products_are_monotone) {
  zp_cluster c = cluster_of(1);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  double before = 0;
  for (int rows = 64; rows <= 8192; rows += 64) {
    double now = zp_cost_matmul(&m, rows, 4096, 4096, 2);
    cr_expect(now >= before, "%d rows: %g after %g", rows, now, before);
    before = now;
  }
}

/* 4 nodes of 16: of 63 hops of a ring 3 cross the network. */
Test(cost_gpu, ring_hops_mostly_stay_inside) {
  zp_cluster c = cluster_of(4);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 64);
  zp_group_link link = zp_machine_data_group(&m, 1, 1, 64, ZP_ORDER_TDP);
  expect_near(63 * link.latency_s, 60 * 1e-6 + 3 * (2e-6 + 1e-6), "a pass");
  double base = zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S);
  expect_near(zp_cost_ring_pass(&link, 64e6), base + 63 * (link.latency_s + 1e6 / link.bytes_per_s), "gather");
}

/* Small sums over many nodes go over a tree, large ones over the ring. */
Test(cost_gpu, small_sums_take_the_tree) {
  zp_cluster c = cluster_of(64);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 1024);
  zp_group_link link = zp_machine_data_group(&m, 1, 1, 1024, ZP_ORDER_TDP);
  double base = zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S), hops = 15 * 1e-6 + 6 * 3e-6;
  expect_near(zp_cost_all_reduce(&link, 1000), base + 2 * hops + 2000 / (0.92 * link.bytes_per_s), "tree");
  double ring = 2 * zp_cost_ring_pass(&link, 1e10) - base;
  expect_near(zp_cost_all_reduce(&link, 1e10), ring, "ring");
  link.trees = false; /* the CPU runtime has rings only */
  expect_near(zp_cost_all_reduce(&link, 1000), 2 * zp_cost_ring_pass(&link, 1000) - base, "ring of the runtime");
}

/* In a node the fastest of three protocols, here by their formulas; small arrays gain, large ones run as before. */
Test(cost_gpu, small_arrays_take_low_latency_protocols) {
  zp_cluster c = cluster_of(1);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 16);
  zp_group_link link = zp_machine_tensor_group(&m, 16, 1, 1);
  double base = zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S), hop = link.local_latency_s, rate = link.bytes_per_s;
  for (double bytes = 256; bytes < 1e9; bytes *= 3) {
    double moved = 15.0 / 16 * bytes, simple = 15 * hop + moved / rate, ll128 = 15 * 0.56 * hop + moved / (0.94 * rate);
    double ll = 15 * 0.18 * hop + moved / fmin(39e9, rate / 2);
    expect_near(zp_cost_ring_pass(&link, bytes), base + fmin(simple, fmin(ll, ll128)), "ring");
  }
  double small = zp_cost_ring_pass(&link, 256), large = zp_cost_ring_pass(&link, 1e9);
  link.trees = false;
  cr_expect(small < 0.5 * zp_cost_ring_pass(&link, 256));
  expect_near(large, zp_cost_ring_pass(&link, 1e9), "large");
}

/* Bounds of the search add arrays up: one call never costs more than two for the parts. */
Test(cost_gpu, one_collective_costs_no_more_than_its_parts) {
  zp_cluster c = cluster_of(8);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 128);
  zp_group_link link = zp_machine_data_group(&m, 1, 1, 128, ZP_ORDER_TDP);
  for (double a = 100; a < 1e9; a *= 7)
    for (double b = 100; b < 1e9; b *= 7) {
      cr_expect(zp_cost_ring_pass(&link, a + b) <= zp_cost_ring_pass(&link, a) + zp_cost_ring_pass(&link, b));
      cr_expect(zp_cost_all_reduce(&link, a + b) <= zp_cost_all_reduce(&link, a) + zp_cost_all_reduce(&link, b));
    }
}

Test(cost_gpu, a_mesh_gives_small_groups_fewer_links) {
  zp_cluster c = cluster_of(1);
  c.node.devices = 8;
  c.node.link.kind = "nvlink";
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 8);
  expect_near(zp_machine_tensor_group(&m, 8, 1, 1).bytes_per_s, 0.9 * 150e9, "all six links");
  expect_near(zp_machine_tensor_group(&m, 4, 1, 2).bytes_per_s, 0.9 * 100e9, "four of six");
  expect_near(zp_machine_tensor_group(&m, 2, 1, 4).bytes_per_s, 0.9 * 25e9, "one of six");
}

/* Measured bus bandwidth slows collectives over nodes, not messages. */
Test(cost_gpu, measured_collectives) {
  zp_cluster c = cluster_of(4);
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 64);
  double before = zp_machine_data_group(&m, 16, 1, 4, ZP_ORDER_TDP).bytes_per_s;
  double message = zp_machine_pipeline_link(&m, 16, 4, 1, ZP_ORDER_TDP).bytes_per_s;
  m.collective_share = 0.25;
  expect_near(zp_machine_data_group(&m, 16, 1, 4, ZP_ORDER_TDP).bytes_per_s, before / 4, "collective");
  expect_near(zp_machine_pipeline_link(&m, 16, 4, 1, ZP_ORDER_TDP).bytes_per_s, message, "message");
}

/* All-reduces on the switches of a DGX A100, measured by nccl-tests (VIA-Research/vTrain trace/a100). */
Test(cost_gpu, all_reduces_in_a_node_as_measured) {
  static const struct {
    int devices;
    double bytes, seconds, tolerance;
  } measured[] = {{2, 1048576000, 5331.2e-6, 0.02}, {4, 1048576000, 7115.6e-6, 0.02}, {8, 1048576000, 8011.7e-6, 0.02},
                  {2, 251658240, 1369.5e-6, 0.07},  {4, 251658240, 1797.7e-6, 0.07},  {8, 251658240, 1996.9e-6, 0.07}};
  zp_cluster c = cluster_of(1);
  c.node.devices = 8;
  c.node.link = (zp_link){"nvswitch", 300e9, zp_cost_constant(ZP_COST_LINK_LATENCY_S)};
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_FP16, 8);
  for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
    zp_group_link link = zp_machine_tensor_group(&m, measured[i].devices, 1, 8 / measured[i].devices);
    double got = zp_cost_all_reduce(&link, measured[i].bytes), off = got / measured[i].seconds - 1;
    cr_expect(fabs(off) < measured[i].tolerance, "%g bytes on %d: %g, measured %g", measured[i].bytes,
              measured[i].devices, got, measured[i].seconds);
  }
}

/* One pass of hops, and the array once: n owners' shares take as many passes and the bytes of one. */
Test(cost_gpu, broadcasts_pay_hops_each) {
  zp_group_link link = {
      .n = 64, .nodes = 8, .local = 8, .bytes_per_s = 1e10, .local_latency_s = 1e-6, .network_latency_s = 1e-5};
  double base = zp_cost_constant(ZP_COST_COLLECTIVE_BASE_S), hops = 56 * 1e-6 + 7 * 1e-5;
  expect_near(zp_cost_broadcast(&link, 1e9), base + hops + 0.1, "one");
  expect_near(64 * zp_cost_broadcast(&link, 1e9 / 64), 64 * (base + hops) + 0.1, "shares");
  link.n = 1;
  cr_expect_eq(zp_cost_broadcast(&link, 1e9), 0);
}
