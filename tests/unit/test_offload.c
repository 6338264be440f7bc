/* SPDX-License-Identifier: Apache-2.0 */
/* State off the device: bytes on host and disks, and what moving them costs. Expected numbers by hand. */
#include <math.h>
#include "planner_models.h"
#include <zplan/constants.h>
#include <zplan/cost.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(offload, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 256, 32, 64, 6, 4, 4, 256, true};

static zp_cluster roomy(void) {
  zp_cluster c = gpu_cluster(1);
  c.node.host_memory_bytes = INT64_C(1) << 40;
  c.node.nvme_bytes = INT64_C(1) << 42;
  c.node.host_bytes_per_s = 160e9; /* 10 a rank of 16 */
  c.node.pcie_bytes_per_s = 10e9;
  c.node.nvme_read_bytes_per_s = 32e9; /* 2 a rank */
  c.node.nvme_write_bytes_per_s = 16e9;
  return c;
}

typedef struct case_of {
  zp_spec *spec;
  zp_machine machine;
  zp_lowered *lowered;
  zp_choice choice;
  zp_stage stage;
} case_of;

static bool delayed; /* the update */

static case_of make(const model_size *size, zp_choice choice, int devices) {
  const char *reason = NULL;
  case_of x = {.spec = build_spec(arena, size, roomy(), 48), .choice = choice};
  x.spec->cluster.trainer = ZP_TRAINER_NONE; /* on purpose: sums by hand know the plain price of a kernel alone */
  x.spec->train.delayed = delayed;
  x.spec->train.precision = ZP_PREC_MIXED_FP16;
  x.machine = zp_machine_make(&x.spec->cluster, ZP_PREC_MIXED_FP16, devices);
  zp_sharding *sharding = zp_shard(arena, x.spec->model, &x.machine, choice.tensor, 1, false, &reason);
  x.lowered = zp_lower(arena, x.spec, sharding, choice.microbatch, choice.recompute, false, &reason);
  cr_assert(x.lowered, "%s", reason);
  zp_price(x.lowered, &x.machine, choice.tensor, choice.pipeline, choice.data);
  int64_t *cut = ZP_NEW_ARRAY(arena, int64_t, 2);
  cut[1] = x.lowered->n_units;
  x.choice.cut = cut;
  zp_layout_stage(arena, x.lowered, &x.choice, 0, &x.stage);
  return x;
}

static zp_program program_of(case_of *x) {
  const zp_lowered **stages = ZP_NEW_ARRAY(arena, const zp_lowered *, 1);
  stages[0] = x->lowered;
  return (zp_program){.arena = arena,
                      .spec = x->spec,
                      .choice = x->choice,
                      .lowered = x->lowered,
                      .stage_lowered = stages,
                      .stages = &x->stage};
}

static zp_choice data_parallel(int data, int zero) {
  return (zp_choice){.tensor = 1, .pipeline = 1, .data = data, .zero = zero, .microbatch = 1};
}

static const zp_home HOST = {ZP_TIER_HOST, 8}, NVME = {ZP_TIER_NVME, 8};

static int64_t zp_up_to(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/* ZeRO-Offload (arXiv 2101.06840): 2 bytes a parameter on the device, 12 + 4 on the host, where gradients are summed in
 * f32; they come through a ring. */
Test(offload, optimizer_and_gradients_on_the_host) {
  zp_choice c = data_parallel(1, 2);
  c.home[ZP_STATE_OPTIMIZER] = c.home[ZP_STATE_GRADIENTS] = HOST;
  case_of x = make(&TINY, c, 1);
  int64_t n = zp_flat_trained(&x.stage.flat), bucket = zp_flat_trained(&x.stage.bucket);
  cr_expect_eq(x.stage.memory.weights, 2 * n);
  cr_expect_eq(x.stage.memory.gradients, 0);
  cr_expect_eq(x.stage.memory.optimizer, 0);
  cr_expect_geq(x.stage.at[ZP_REGION_GRAD_RING], 0);
  cr_expect_eq(x.stage.at[ZP_REGION_PARAM_RING], -1);
  cr_expect_eq(x.stage.memory.host, 16 * n + 2 * bucket * (4 + 2));
}

/* DeepSpeed's estimator for ZeRO 3 (memory.rst), largest layer L: parameters and optimizer off: 4 L on the device; only
 * the optimizer off: 4 L + 2 P / n. Ours: two gathered buckets of 2-byte weights are its 4 L. */
Test(offload, zero_3_like_the_estimator) {
  zp_choice c = data_parallel(8, 3);
  c.home[ZP_STATE_OPTIMIZER] = c.home[ZP_STATE_GRADIENTS] = HOST;
  case_of kept = make(&TINY, c, 8);
  c.home[ZP_STATE_PARAMS] = HOST;
  case_of offloaded = make(&TINY, c, 8);
  int64_t n = zp_flat_trained(&offloaded.stage.flat), largest = zp_flat_trained(&offloaded.stage.bucket);
  cr_expect_eq(kept.stage.memory.weights, 2 * n / 8);
  cr_expect_eq(offloaded.stage.memory.weights, 0);
  int64_t ring_end = offloaded.stage.at[ZP_REGION_GRAD_RING] - offloaded.stage.at[ZP_REGION_PARAM_RING];
  cr_expect_eq(ring_end, zp_up_to(4 * largest, 256));
  cr_expect_eq(offloaded.stage.memory.host - kept.stage.memory.host, 2 * n / 8);
}

/* DeepSpeed's published table for t5-3b (memory.rst): 2,851 million parameters, largest layer 32 million, 8 GPUs of one
 * node, GiB. Its differences to our layout are its own: with ZeRO 2 it holds whole fp16 gradients and fp32 ones of the
 * share where we hold whole fp32 ones, and it multiplies the host's bytes by 1.5. */
typedef struct estimated {
  int zero;
  bool state_offloaded, params_offloaded;
  double device_more, host_more; /* bytes a parameter that its program holds and ours does not, of one rank's share */
  double device_gib, host_gib;
} estimated;

static void check_estimated(const estimated *e) {
  const double parameters = 2851e6, largest = 32e6, gib = 1073741824.0, ranks = 8;
  zp_choice c = data_parallel((int)ranks, e->zero);
  if (e->state_offloaded) c.home[ZP_STATE_OPTIMIZER] = c.home[ZP_STATE_GRADIENTS] = HOST;
  if (e->params_offloaded) c.home[ZP_STATE_PARAMS] = HOST;
  case_of x = make(&TINY, c, (int)ranks);
  const zp_memory *m = &x.stage.memory;
  double n = (double)zp_flat_trained(&x.stage.flat), bucket = (double)zp_flat_trained(&x.stage.bucket);
  double states = (double)(m->weights + m->gradients + m->optimizer) / n + e->device_more / ranks;
  double ring =
      e->zero >= 3 ? (double)(x.stage.at[ZP_REGION_GRAD_RING] - x.stage.at[ZP_REGION_PARAM_RING]) / bucket : 0;
  double staged =
      e->state_offloaded ? 2 * bucket / ranks * (4 + 2) : 0; /* buckets on the way, which the table leaves out */
  double host = ranks * ((double)m->host - staged) / n + e->host_more;
  cr_expect(fabs((states * parameters + ring * largest) / gib - e->device_gib) < 0.01, "device %g GiB, published %g",
            (states * parameters + ring * largest) / gib, e->device_gib);
  if (e->host_gib > 0)
    cr_expect(fabs(1.5 * host * parameters / gib - e->host_gib) < 0.01, "host %g GiB, published %g",
              1.5 * host * parameters / gib, e->host_gib);
}

Test(offload, published_table_of_the_estimator) {
  static const estimated table[] = {
      {1, false, false, 8 * (2 - 4) + 4, 0, 15.93, 0}, /* its ZeRO 2, alongside our ZeRO 1 */
      {2, true, false, 0, 16, 5.31, 127.45}, /* host: fp32 weights of all 8 ranks while they are made, 32 bytes */
      {3, true, true, 0, 0, 0.12, 71.69},
      {3, true, false, 0, 0, 0.78, 63.72},
      {3, false, false, 0, 0, 6.09, 0},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) check_estimated(&table[i]);
}

/* Shares are eighths, in whole 64 elements. */
Test(offload, part_of_the_optimizer) {
  zp_choice c = data_parallel(2, 1);
  c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 3};
  case_of x = make(&TINY, c, 2);
  int64_t shard = zp_flat_trained(&x.stage.shard), gone = shard / 8 * 3 / 64 * 64,
          bucket = zp_flat_trained(&x.stage.bucket) / 2;
  cr_expect(x.stage.memory.optimizer >= 12 * (shard - gone) &&
            x.stage.memory.optimizer < 12 * (shard - gone) + 3 * 256);
  cr_expect_eq(x.stage.memory.host, 12 * gone + 2 * bucket * (4 + 2));
}

/* On disks: the state there in whole pages, and on the host the windows that its pieces take turns in, and two buckets
 * of gradients and of weights. */
Test(offload, optimizer_on_disks) {
  zp_choice c = data_parallel(4, 1);
  c.home[ZP_STATE_OPTIMIZER] = NVME;
  case_of x = make(&TINY, c, 4);
  int64_t bucket = zp_up_to(zp_flat_trained(&x.stage.bucket) / 4, 2048),
          shard = zp_up_to(zp_flat_trained(&x.stage.shard), 2048);
  int64_t pieces = (zp_flat_trained(&x.stage.shard) + bucket - 1) / bucket;
  cr_expect_eq(x.stage.memory.nvme, 12 * shard);
  cr_expect_geq(pieces, 2);
  cr_expect_eq(x.stage.memory.host, (pieces < 4 ? pieces : 4) * 12 * bucket + 2 * bucket * (4 + 2));
}

Test(offload, saved_activations_on_the_host) {
  zp_choice c = data_parallel(1, 0);
  case_of here = make(&TINY, c, 1);
  c.home[ZP_STATE_ACTIVATIONS] = HOST;
  case_of x = make(&TINY, c, 1);
  int64_t largest = 0;
  for (int s = 0; s < x.lowered->n_segments; s++)
    if (x.lowered->segments[s].saved_bytes > largest) largest = x.lowered->segments[s].saved_bytes;
  cr_expect_eq(x.stage.memory.host, here.stage.slots * here.stage.slot_stride);
  cr_expect_eq(x.stage.memory.saved, ZP_SAVED_BUFFERS * largest);
}

/* ---- time ---- */

static void expect_near(double got, double want, const char *what) {
  cr_expect(fabs(got - want) <= 1e-6 * fabs(want) + 1e-15, "%s: %.9g, expected %.9g", what, got, want);
}

static double stream_share(void) { return zp_cost_constant(ZP_COST_HOST_STREAM); }

/* Gradients down and weights up at 10 GB/s; 30 bytes an element, and 2 to copy weights up, at what streams reach of 10
 * GB/s of host memory: the update dominates; the rest passes once for one of the buckets. */
Test(offload, update_on_the_host) {
  zp_choice c = data_parallel(16, 1);
  c.home[ZP_STATE_OPTIMIZER] = HOST;
  case_of x = make(&TINY, c, 16);
  double n = (double)zp_flat_trained(&x.stage.shard), update = 32 * n / (10e9 * stream_share()), up = 2 * n / 10e9,
         down = 4 * n / 10e9;
  double buckets =
      floor((double)zp_flat_trained(&x.stage.flat) / (double)x.lowered->segments[1].elements.of[ZP_KIND_WHOLE]);
  zp_step_end end = zp_cost_step_end(x.lowered, &x.machine, &x.choice, &x.stage.flat);
  double norm = zp_cost_memory_bound(&x.machine, 4 * n, 0);
  expect_near(end.optimizer_s, norm, "the norm stays on the device");
  expect_near(end.offload_s, fmax(0, update + (up + down) / buckets - norm), "host");
  c.home[ZP_STATE_OPTIMIZER] = NVME;
  end = zp_cost_step_end(x.lowered, &x.machine, &c, &x.stage.flat);
  double write = 12 * n / 1e9, read = 12 * n / 2e9;
  expect_near(end.offload_s, fmax(0, write + (up + down + update + read) / buckets - norm), "disks");
}

/* LAMB passes twice, one pass after the other: gradients down, master copy and moments read, moments written, of which
 * writing takes longest at 1 GB/s; then all of them read at 2 GB/s, the longest, master copies written, weights up. */
Test(offload, lamb_passes_twice) {
  zp_choice c = data_parallel(16, 1);
  c.home[ZP_STATE_OPTIMIZER] = NVME;
  case_of x = make(&TINY, c, 16);
  zp_spec *spec = (zp_spec *)(uintptr_t)x.lowered->spec;
  spec->train.optimizer = ZP_OPT_LAMB;
  double n = (double)zp_flat_trained(&x.stage.shard), host = 10e9 * stream_share();
  double buckets =
      floor((double)zp_flat_trained(&x.stage.flat) / (double)x.lowered->segments[1].elements.of[ZP_KIND_WHOLE]);
  zp_step_end end = zp_cost_step_end(x.lowered, &x.machine, &x.choice, &x.stage.flat);
  double lengths = 8 * n / 1e9 + (4 * n / 10e9 + (12 + 8 + 4) * n / host + 12 * n / 2e9) / buckets;
  double update = 12 * n / 2e9 + (2 * n / 10e9 + (12 + 4 + 2 + 2) * n / host + 4 * n / 1e9) / buckets;
  expect_near(end.offload_s, lengths + update - zp_cost_memory_bound(&x.machine, 4 * n, 0), "two passes");
  spec->train.optimizer = ZP_OPT_ADAMW;
}

/* Gradients that are on the host already do not cross again, but the norm reads them there before the update begins. */
Test(offload, norm_on_the_host) {
  zp_choice c = data_parallel(16, 2);
  c.home[ZP_STATE_OPTIMIZER] = c.home[ZP_STATE_GRADIENTS] = HOST;
  case_of x = make(&TINY, c, 16);
  double n = (double)zp_flat_trained(&x.stage.shard), host = 10e9 * stream_share();
  double buckets =
      floor((double)zp_flat_trained(&x.stage.flat) / (double)x.lowered->segments[1].elements.of[ZP_KIND_WHOLE]);
  zp_step_end end = zp_cost_step_end(x.lowered, &x.machine, &x.choice, &x.stage.flat);
  double nothing = zp_cost_memory_bound(&x.machine, 0, 0);
  expect_near(end.optimizer_s, nothing, "the device only waits");
  expect_near(end.offload_s, 4 * n / host + 32 * n / host + 2 * n / 10e9 / buckets - nothing, "norm and update");
}

/* A delayed update: weights go up alongside gradients that come down, at 10 GB/s each; 30 bytes an element of host
 * memory go on alongside the next step, which with the exchange is no shorter. Gradients on the host are summed there
 * meanwhile, two reads and a write for 47 of 48 micro-batches, those of the tied table by both units that use it. */
Test(offload, delayed_update) {
  zp_choice c = data_parallel(1, 0);
  c.home[ZP_STATE_OPTIMIZER] = HOST;
  delayed = true;
  case_of x = make(&TINY, c, 1);
  double n = (double)zp_flat_trained(&x.stage.shard), host = 160e9 * stream_share(), down = 4 * n / 10e9,
         up = 2 * n / 10e9;
  double buckets =
      floor((double)zp_flat_trained(&x.stage.flat) / (double)x.lowered->segments[1].elements.of[ZP_KIND_WHOLE]);
  cr_expect(x.stage.at[ZP_REGION_HOST_GRADS_IN] == -1 && x.stage.at[ZP_REGION_HOST_WEIGHTS_OUT] == -1 &&
            x.stage.at[ZP_REGION_HOST_DELAYED] == 0);
  cr_expect_eq(x.stage.memory.host, zp_flat_trained(&x.stage.shard) * (4 + 12));
  zp_step_end end = zp_cost_step_end(x.lowered, &x.machine, &x.choice, &x.stage.flat);
  expect_near(end.offload_s, fmax(0, down + (up + 2 * n / host) / buckets - end.optimizer_s), "exchange");
  zp_program p = program_of(&x);
  expect_near(zp_cost_delayed(&p, &x.machine, 0), 30 * n / host, "host");
  expect_near(end.delayed_s, 30 * n / host, "of an end");
  expect_near(zp_cost_delayed_step(&end), end.offload_s + 30 * n / host, "apart");
  c.home[ZP_STATE_GRADIENTS] = HOST;
  x = make(&TINY, c, 1);
  p = program_of(&x);
  cr_expect_eq(x.stage.memory.host,
               zp_flat_trained(&x.stage.shard) * (4 + 12 + 4) + 2 * x.stage.window[ZP_STATE_OPTIMIZER] * 4);
  double table = TINY.V * TINY.d;
  expect_near(zp_cost_delayed(&p, &x.machine, 0), (30 * n + 12 * 47 * (n + table)) / host, "sums, too");
}

/* The device updates: gradients that are on the host come up over PCIe, parameters come up and go down again
 * alongside. */
Test(offload, update_on_the_device_of_what_is_elsewhere) {
  zp_choice c = data_parallel(16, 3);
  c.home[ZP_STATE_GRADIENTS] = HOST;
  case_of x = make(&TINY, c, 16);
  double n = (double)zp_flat_trained(&x.stage.shard), norm = 4 * n / (10e9 * stream_share());
  double update = zp_cost_update(&x.machine, 0, 30 * n);
  zp_step_end end = zp_cost_step_end(x.lowered, &x.machine, &x.choice, &x.stage.flat);
  expect_near(end.optimizer_s, update, "on the device");
  expect_near(end.offload_s, fmax(0, norm - update) + 4 * n / 10e9, "gradients come up");
  c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 4};
  end = zp_cost_step_end(x.lowered, &x.machine, &c, &x.stage.flat);
  expect_near(end.offload_s, fmax(0, norm - update) + (4 + 0.5 * 2) * n / 10e9, "half of the parameters, too");
}

/* Two devices behind one PCIe root, two sockets: one rank alone has its whole link and one socket's memory channels. */
Test(offload, ranks_share_roots_and_sockets) {
  zp_cluster cluster = roomy();
  cluster.node.pcie_devices_per_root = 2;
  cluster.node.host_sockets = 2;
  static const struct {
    int ranks;
    double pcie, host;
  } cases[] = {{1, 10e9, 80e9}, {2, 5e9, 80e9}, {4, 5e9, 40e9}, {16, 5e9, 10e9}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    zp_machine machine = zp_machine_make(&cluster, ZP_PREC_MIXED_FP16, cases[i].ranks);
    zp_host_rates rates = zp_cost_host_rates(&machine);
    expect_near(rates.pcie_bytes_per_s, cases[i].pcie, "PCIe");
    expect_near(rates.host_bytes_per_s, cases[i].host * stream_share(), "host memory");
  }
}

/* Saved values leave over PCIe alongside computing: the last unit's alone, and what is longer than computing. */
Test(offload, activations_leave_alongside_computing) {
  zp_choice c = data_parallel(1, 0);
  c.home[ZP_STATE_ACTIVATIONS] = HOST;
  case_of x = make(&TINY, c, 1);
  double copy[3], compute[3];
  for (int s = 0; s < 3; s++) {
    copy[s] = (double)x.lowered->segments[s].saved_bytes / 10e9;
    compute[s] = x.lowered->segments[s].forward.cost_s;
  }
  double expected =
      fmax(0, copy[0] - compute[1]) + 5 * fmax(0, copy[1] - compute[1]) + fmax(0, copy[1] - compute[2]) + copy[2];
  zp_exposed e = zp_cost_exposed(x.lowered, &x.machine, &x.choice, &x.stage, 0, ZP_ACT_F);
  expect_near(e.offload_s, expected, "forward");
  cr_expect_eq(e.data_s, 0);
}

/* ZeRO 3 gathers unit i + 1 while unit i computes, buckets padded to whole shards of 16 ranks. */
Test(offload, gathers_are_prefetched) {
  case_of x = make(&TINY, data_parallel(16, 3), 16);
  zp_group_link link = zp_machine_data_group(&x.machine, 1, 1, 16, ZP_ORDER_TDP);
  double gather[3] = {0}, compute[3];
  for (int s = 0; s < 3; s++) { /* shared parameters one by one: the ends have none of their own */
    const zp_segment_program *segment = &x.lowered->segments[s];
    if (segment->elements.of[ZP_KIND_WHOLE])
      gather[s] = zp_cost_ring_pass(&link, (double)zp_up_to(segment->elements.of[ZP_KIND_WHOLE], 16 * 64) * 2);
    for (int i = 0; i < x.lowered->shared.len; i++)
      if (segment->uses_shared[i])
        gather[s] += zp_cost_ring_pass(
            &link, (double)zp_up_to(x.lowered->param_elements[x.lowered->shared.data[i]], 16 * 64) * 2);
    compute[s] = segment->forward.cost_s;
  }
  double taken = zp_cost_taken(&x.machine, &link), expected = gather[0];
  expected += fmax(taken * gather[1], gather[1] - compute[0]) + 5 * fmax(taken * gather[1], gather[1] - compute[1]) +
              fmax(taken * gather[2], gather[2] - compute[1]);
  zp_exposed e = zp_cost_exposed(x.lowered, &x.machine, &x.choice, &x.stage, 0, ZP_ACT_F);
  expect_near(e.data_s, expected, "forward");
  cr_expect_eq(e.offload_s, 0);
  zp_choice zero1 = data_parallel(16, 1);
  cr_expect_eq(zp_cost_exposed(x.lowered, &x.machine, &zero1, &x.stage, 0, ZP_ACT_F).data_s, 0);
}

/* What the search counts for the moves of a stage, as if its units were one, is never more than forward and backward
 * with them: every ZeRO stage, every class offloaded alone and all of them, any eighths, both kinds of ranks; over
 * links so slow that computing says nothing, where all that rounding keeps on the device would show. */
static void check_least(zp_choice c, bool cpu, zp_recompute recompute, double rates) {
  c.recompute = recompute;
  case_of x = make(&TINY, c, 16);
  zp_node_type node = *x.machine.node;
  node.device.is_cpu = cpu;
  node.pcie_bytes_per_s *= rates;
  node.nvme_read_bytes_per_s *= rates;
  node.nvme_write_bytes_per_s *= rates;
  x.machine.node = &node;
  zp_relaxed_unit all = {.units = x.stage.n_units};
  double forward = 0, backward = 0;
  for (int r = 0; r < x.stage.runs.len; r++) {
    const zp_run *run = &x.stage.runs.data[r];
    const zp_segment_program *s = &x.lowered->segments[run->segment];
    all.elements.of[ZP_KIND_WHOLE] += run->count * s->elements.of[ZP_KIND_WHOLE];
    all.saved_bytes += run->count * s->saved_bytes;
    forward += (double)run->count * s->forward.cost_s;
    backward += (double)run->count * s->backward.cost_s;
  }
  zp_group_link link = zp_machine_data_group(&x.machine, 1, 1, 16, ZP_ORDER_TDP);
  zp_least_moving moving = zp_cost_least_moving(x.lowered, &x.machine, &x.choice, &all, &link, &link);
  double least = zp_cost_least_action(&moving.forward, forward) + zp_cost_least_action(&moving.backward, backward);
  zp_stage_time time = zp_cost_chunk(x.lowered, &x.machine, &x.choice, &x.stage, 0);
  bool moves = c.zero >= 2;
  for (int i = 0; i < ZP_STATE_COUNT; i++) moves |= i != ZP_STATE_OPTIMIZER && c.home[i].eighths > 0;
  cr_expect_leq(least, (time.forward_s + time.backward_s) * (1 + 1e-12), "%g of %g", least,
                time.forward_s + time.backward_s);
  double moved = moving.forward.links_s + moving.forward.data_s + moving.backward.links_s + moving.backward.data_s;
  cr_expect(!moves || moved > 0 || c.home[ZP_STATE_ACTIVATIONS].eighths > 0, "nothing is bounded");
}

Test(offload, least_moving_is_never_more) {
  for (int zero = 0; zero <= 3; zero++)
    for (int state = 0; state <= ZP_STATE_COUNT; state++)
      for (int eighths = 1; eighths <= 8; eighths += state < ZP_STATE_COUNT ? 3 : 7)
        for (int kind = 0; kind < 4; kind++) {
          zp_choice c = data_parallel(16, zero);
          zp_arena_mark mark = zp_arena_get_mark(arena);
          for (int i = 0; i < ZP_STATE_COUNT; i++)
            if (i == state || state == ZP_STATE_COUNT)
              c.home[i] = (zp_home){kind & 1 ? ZP_TIER_NVME : ZP_TIER_HOST, eighths};
          for (int slow = 0; slow <= 1; slow++)
            check_least(c, false, kind & 2 ? ZP_RECOMPUTE_FULL : ZP_RECOMPUTE_NONE, slow ? 1e-6 : 1);
          zp_arena_rewind(arena, mark);
        }
  for (int zero = 0; zero <= 3; zero++) check_least(data_parallel(16, zero), true, ZP_RECOMPUTE_NONE, 1);
}

/* CPU ranks wait for their gathers and sums, whatever they compute. */
Test(offload, cpu_ranks_wait) {
  case_of x = make(&TINY, data_parallel(16, 3), 16);
  zp_node_type node = *x.machine.node;
  node.device.is_cpu = true;
  x.machine.node = &node;
  zp_exposed forward = zp_cost_exposed(x.lowered, &x.machine, &x.choice, &x.stage, 0, ZP_ACT_F);
  zp_exposed backward = zp_cost_exposed(x.lowered, &x.machine, &x.choice, &x.stage, 0, ZP_ACT_B);
  double all = 0, sums = 0;
  zp_group_link link = zp_machine_data_group(&x.machine, 1, 1, 16, ZP_ORDER_TDP);
  for (int s = 0; s < 3; s++) {
    const zp_segment_program *segment = &x.lowered->segments[s];
    double own = (double)zp_up_to(segment->elements.of[ZP_KIND_WHOLE], 16 * 64);
    if (segment->elements.of[ZP_KIND_WHOLE])
      all += 6 * zp_cost_ring_pass(&link, own * 2), sums += 6 * zp_cost_ring_pass(&link, own * 4);
    for (int i = 0; i < x.lowered->shared.len; i++) {
      double shared = (double)zp_up_to(x.lowered->param_elements[x.lowered->shared.data[i]], 16 * 64);
      if (segment->uses_shared[i])
        all += zp_cost_ring_pass(&link, shared * 2), sums += zp_cost_ring_pass(&link, shared * 4);
    }
  }
  expect_near(forward.data_s, all, "gathers");
  expect_near(backward.data_s, all + sums, "gathers, and sums of twice the bytes");
}

/* The reduction hides behind the last backward on GPUs, but for one unit's share; CPU trainers reduce afterwards. */
Test(offload, reduction_alongside_the_last_backward) {
  case_of x = make(&TINY, data_parallel(16, 0), 16);
  expect_near(zp_cost_exposed_reduce(&x.machine, 0.25, 8, 0, 4, 4), 5, "partly");
  expect_near(zp_cost_exposed_reduce(&x.machine, 0, 8, 0, 40, 4), 2, "one bucket is left");
  expect_near(zp_cost_exposed_reduce(&x.machine, 0, 8, 5, 40, 4), 5, "the last bucket is a large one");
  expect_near(zp_cost_exposed_reduce(&x.machine, 0.25, 8, 0, 40, 4), 3.5, "and a quarter of the device for the others");
  expect_near(zp_cost_exposed_reduce(&x.machine, 0.25, 8, 0, 40, 1), 8, "a single unit hides nothing");
  zp_cluster cpu = cpu_cluster();
  zp_machine machine = zp_machine_make(&cpu, ZP_PREC_F32, 2);
  expect_near(zp_cost_exposed_reduce(&machine, 0.25, 8, 0, 40, 4), 8, "CPU");
}

/* One bit an element instead of 16, twice; and a scale of four bytes for 64 of them. */
Test(offload, compressed_reduction) {
  zp_choice c = data_parallel(16, 0);
  c.compress = true;
  case_of x = make(&TINY, c, 16);
  zp_group_link link = zp_machine_data_group(&x.machine, 1, 1, 16, ZP_ORDER_TDP);
  zp_step_end end = zp_cost_step_end(x.lowered, &x.machine, &c, &x.stage.flat);
  expect_near(end.reduce_s, 2 * zp_cost_ring_pass(&link, (double)zp_flat_trained(&x.stage.flat) * (8 + 4) / 64),
              "two phases");
  cr_expect_eq(end.gather_s, 0);
}

/* Thread blocks of a collective, each on a multiprocessor of its own: 24 over 12 NVLinks of 25 GB/s, no more over 18;
 * two for each network card that the group has. None on CPUs, none alone. */
Test(offload, collectives_keep_multiprocessors) {
  zp_cluster a100 = gpu_cluster(4);
  a100.node.device.cores = 108;
  a100.node.devices = 8;
  a100.node.nics = 8;
  a100.node.link.bytes_per_s = 300e9;
  static const struct {
    int tensor, data;
    double link, blocks;
  } cases[] = {{1, 8, 300e9, 24}, {1, 8, 450e9, 24}, {1, 8, 150e9, 12}, {1, 32, 300e9, 16},
               {4, 8, 300e9, 4},  {8, 4, 300e9, 2},  {8, 1, 300e9, 0},  {1, 8, 12e9, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    a100.node.link.bytes_per_s = cases[i].link;
    zp_machine m = zp_machine_make(&a100, ZP_PREC_MIXED_BF16, cases[i].tensor * cases[i].data);
    zp_group_link link = zp_machine_data_group(&m, cases[i].tensor, 1, cases[i].data, ZP_ORDER_TDP);
    expect_near(zp_cost_taken(&m, &link), cases[i].blocks / 108, "share of the device");
  }
  zp_cluster cpu = cpu_cluster();
  zp_machine m = zp_machine_make(&cpu, ZP_PREC_F32, 2);
  zp_group_link link = zp_machine_data_group(&m, 1, 1, 2, ZP_ORDER_TDP);
  cr_expect_eq(zp_cost_taken(&m, &link), 0);
}
