/* SPDX-License-Identifier: Apache-2.0 */
/* Random small instances of the search: clusters, constraints, models, from a fixed seed. */
#ifndef ZPLAN_TEST_SEARCH_INSTANCES_H
#define ZPLAN_TEST_SEARCH_INSTANCES_H

#include <math.h>
#include "../../planner/search/bounds/bound.h"
#include "../../planner/search/bounds/fit.h"
#include "../../planner/search/space/procedures.h"
#include "../../planner/search/ranking.h"
#include "../../planner/search/progress.h"
#include "planner_models.h"
#include "sample.h"

static zp_arena *arena;
static inline void setup(void) { arena = zp_arena_new("test"); }
static inline void teardown(void) { zp_arena_free(arena); }

static uint64_t state;
static inline int64_t random_below(int64_t n) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int64_t)((state >> 33) % (uint64_t)n);
}

/* ---- random instances ---- */

static inline zp_cluster random_cluster(int *devices) {
  static const int counts[] = {1, 2, 3, 4, 4, 6, 8, 8, 12, 16};
  *devices = counts[random_below(10)];
  zp_cluster c = gpu_cluster(1);
  c.node.devices = (int)(random_below(3) == 0 ? *devices : 1 + random_below(8));
  c.nodes = (*devices + c.node.devices - 1) / c.node.devices;
  c.node.device.context_bytes = 1000;
  c.node.device.flop_per_s_fp32 = 1e9 * (double)(1 + random_below(2000));
  c.node.device.memory_bytes = (int64_t)(30000 * exp(0.01 * (double)random_below(600)));
  c.node.link.bytes_per_s = 1e8 * (double)(1 + random_below(100));
  c.node.nic.bytes_per_s = 1e7 * (double)(1 + random_below(100));
  c.node.nic.latency_s = 1e-6 * (double)random_below(100);
  c.node.host_memory_bytes = (int64_t)(30000 * exp(0.01 * (double)random_below(700)));
  c.node.host_bytes_per_s = 1e9, c.node.pcie_bytes_per_s = 3e8;
  c.node.nvme_bytes = 1000 * (1 + random_below(10000));
  c.node.nvme_read_bytes_per_s = 1e8, c.node.nvme_write_bytes_per_s = 5e7;
  return c;
}

/* The nodes of a cluster become two or three types that differ in everything that is priced. */
static inline void mix_nodes(zp_cluster *c) {
  zp_node_type plain = c->node;
  int left = c->nodes;
  while (left > 0 && c->groups.len < 3) {
    int nodes = c->groups.len == 2 ? left : 1 + (int)random_below(left);
    zp_node_group group = {.nodes = nodes, .type = plain};
    group.type.devices = c->groups.len ? 1 + (int)random_below(2 * plain.devices) : plain.devices;
    group.type.device.flop_per_s_fp32 *= 0.3 + 0.1 * (double)random_below(15);
    group.type.device.flop_per_s_half *= 0.3 + 0.1 * (double)random_below(15);
    group.type.device.memory_bytes = plain.device.memory_bytes * (20 + random_below(60)) / 20;
    group.type.device.memory_bytes_per_s *= 0.5 + 0.1 * (double)random_below(10);
    group.type.link.bytes_per_s *= 0.5 + 0.5 * (double)random_below(4);
    group.type.nic.bytes_per_s *= 0.5 + 0.5 * (double)random_below(4);
    group.type.host_memory_bytes = plain.host_memory_bytes * (1 + random_below(4)) / 2;
    zp_push(arena, &c->groups, group);
    left -= nodes;
  }
}

/* Mixed nodes whose devices are all in use or not. */
static inline void mix_cluster(zp_cluster *c, int devices) {
  c->nodes = 2 + (int)random_below(3);
  mix_nodes(c);
  while (zp_cluster_devices(c) < devices) c->groups.data[random_below(c->groups.len)].nodes++;
  zp_cluster_mix(arena, c);
}

static inline void allow(zp_limit *limit, int64_t value) {
  limit->set = true;
  zp_push(arena, &limit->in, (double)value);
}

/* One to three of the values 0 .. n - 1. */
static inline void allow_some(zp_limit *limit, int64_t n) {
  for (int64_t k = random_below(3); k >= 0; k--) allow(limit, random_below(n));
}

static inline void constrain(zp_constraints *c) {
  if (random_below(2)) c->idle = (zp_limit){.set = true, .high = (double)(random_below(2) * random_below(5))};
  allow_some(&c->zero, 4);
  if (random_below(4) == 0) allow_some(&c->recompute, 3); /* mostly all, so that stages have something to choose */
  allow_some(&c->schedule, ZP_SCHEDULE_COUNT);
  allow_some(&c->sequence, 2);
  if (random_below(4) == 0) allow_some(&c->recompute_shard, 2);
  for (int64_t b = 1; b <= 4; b *= 2)
    if (b == 1 || random_below(2)) allow(&c->microbatch, b);
  if (random_below(4) == 0) allow_some(&c->compress, 2);
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    bool open = random_below(12) == 0;
    allow(&c->offload[i], ZP_TIER_DEVICE);
    if (open) allow(&c->offload[i], 1 + random_below(2));
  }
}

static inline zp_spec *random_spec_on(bool mixed, int *devices) {
  static const model_style styles[] = {STYLE_GPT, STYLE_GPT, STYLE_LLAMA, STYLE_PARALLEL};
  model_size size = {.style = styles[random_below(4)], .V = 40 + random_below(200), .S = 8 << random_below(2)};
  size.heads = size.kv_heads = 2 << random_below(2);
  size.d = size.heads * (4 << random_below(2));
  size.layers = 1 + random_below(random_below(4) ? 5 : 10);
  size.ff = size.d * 4;
  size.tied = random_below(2);
  zp_cluster cluster = random_cluster(devices);
  if (mixed) mix_cluster(&cluster, *devices);
  zp_spec *spec = build_spec(arena, &size, cluster, (1 << random_below(5)) * (1 + random_below(3)));
  if (random_below(2)) spec->train.precision = ZP_PREC_MIXED_FP16;
  if (size.V % 5 == 0) spec->train.ema = 0.999; /* a fifth of the instances have more state */
  constrain(&spec->plans.data[0]);
  zp_limit *cut = &spec->plans.data[0].cut;
  if (size.layers > 4) /* brute force has to end */
    allow(cut, 0);
  else if (size.style != STYLE_PARALLEL && size.V % 3 > 0) /* a third of the instances leave it to the search */
    allow(cut, size.V % 3 - 1);
  if (mixed) { /* without a word about it, layers stay whole */
    *cut = (zp_limit){0};
    allow(cut, 0);
  }
  return spec;
}

/* Freezes parameters, in a quarter of the instances all but one. */
static inline void freeze_some(zp_spec *spec) {
  int n = spec->model->params.len, kept = (int)random_below(n), one_in = 1 + (int)random_below(4);
  for (int i = 0; i < n; i++)
    if (i != kept && (one_in == 1 || random_below(one_in) > 0)) zp_model_freeze(spec->model, i);
}

/* What a user gets of such a file: a plan for zplan's own trainer, or for the program named. Devices get its scratch
 * memory, too. */
static inline void plan_for(zp_spec *spec, const char *program) {
  (void)zp_program_choose(arena, spec, program);
  add_scratch(arena, spec);
}

/* One node type: devices have this share of the memory that the best plan without offloading uses alongside scratch,
 * and hosts plenty. */
static inline void tighten(zp_spec *spec, int devices, double share) {
  zp_node_type *node = &spec->cluster.node;
  zp_limit offload[ZP_STATE_COUNT];
  memcpy(offload, spec->plans.data[0].offload, sizeof offload);
  memset(spec->plans.data[0].offload, 0, sizeof offload);
  node->device.memory_bytes = INT64_C(1) << 40;
  node->host_memory_bytes = INT64_C(1) << 40;
  node->pcie_bytes_per_s = 1e10, node->host_bytes_per_s = 1e11;
  const zp_plan *plan = zp_search(arena, spec, devices, NULL);
  memcpy(spec->plans.data[0].offload, offload, sizeof offload);
  if (!plan->feasible) return;
  double peak = (double)(plan->best.estimate.peak_bytes - zp_products_bytes(spec));
  node->device.memory_bytes = (int64_t)(share * peak / spec->plans.data[0].memory_fraction) + scratch_bytes(spec);
}

static inline zp_spec *random_spec(int *devices) {
  zp_spec *spec = random_spec_on(false, devices);
  plan_for(spec, "zplan");
  return spec;
}

#endif
