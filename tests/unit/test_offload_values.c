/* SPDX-License-Identifier: Apache-2.0 */
/* Saved values and parameters off the device: places, bytes moved in a step, and the price. Expected numbers by
 * hand. */
#include <math.h>
#include "planner_models.h"
#include <zplan/cost.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(offload_values, .init = setup, .fini = teardown);

enum { BATCH = 48, UNITS = 8 };
static const model_size TINY = {STYLE_GPT, 256, 32, 64, 6, 4, 4, 256, true};

static zp_cluster roomy(void) {
  zp_cluster c = gpu_cluster(1);
  c.node.host_memory_bytes = INT64_C(1) << 40;
  c.node.nvme_bytes = INT64_C(1) << 42;
  c.node.host_bytes_per_s = 160e9;
  c.node.pcie_bytes_per_s = 10e9;
  c.node.nvme_read_bytes_per_s = 32e9;
  c.node.nvme_write_bytes_per_s = 16e9;
  return c;
}

typedef struct made {
  zp_machine machine;
  const zp_lowered *lowered;
  zp_program *program;
} made;

/* The layers of TINY in equal halves where there are two stages; in f32. */
static made make(zp_choice c, zp_recompute recompute) {
  const char *reason = NULL;
  made x;
  zp_spec *spec = build_spec(arena, &TINY, roomy(), BATCH);
  x.machine = zp_machine_make(&spec->cluster, ZP_PREC_F32, c.pipeline * c.data);
  c.tensor = 1;
  c.microbatch = 1;
  c.recompute = recompute;
  zp_sharding *sharding = zp_shard(arena, spec->model, &x.machine, 1, 1, false, &reason);
  zp_lowered *lowered = zp_lower(arena, spec, sharding, 1, recompute, false, &reason);
  cr_assert(lowered, "%s", reason);
  zp_price(lowered, &x.machine, 1, c.pipeline, c.data);
  cr_assert_eq(lowered->n_units, UNITS);
  c.cut = ZP_NEW_ARRAY(arena, int64_t, c.pipeline + 1);
  for (int s = 0; s <= c.pipeline; s++) c.cut[s] = UNITS * s / c.pipeline;
  const zp_lowered **stages = ZP_NEW_ARRAY(arena, const zp_lowered *, c.pipeline);
  for (int s = 0; s < c.pipeline; s++) stages[s] = lowered;
  x.lowered = lowered;
  x.program = zp_program_make(arena, stages, &c);
  return x;
}

static int64_t up_to(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

static int64_t saved(const made *x, int segment) { return x->lowered->segments[segment].saved_bytes; }

/* 1F1B on two stages: two slots and one. Every unit has its last three eighths elsewhere, less than 256 bytes off. */
Test(offload_values, places_of_saved_values) {
  zp_choice c = {.pipeline = 2, .data = 1};
  c.home[ZP_STATE_ACTIVATIONS] = (zp_home){ZP_TIER_HOST, 3};
  made x = make(c, ZP_RECOMPUTE_NONE);
  for (int s = 0; s < 2; s++) {
    const zp_stage *st = &x.program->stages[s];
    int end = s == 0 ? 0 : 2;
    int64_t gone_end = saved(&x, end) / 8 * 3 / 256 * 256, gone = saved(&x, 1) / 8 * 3 / 256 * 256;
    cr_assert_gt(gone, 0);
    cr_expect_eq(st->chunks[0].offloaded_stride, gone_end + 3 * gone);
    cr_expect_eq(st->chunks[0].slot_stride, saved(&x, end) - gone_end + 3 * (saved(&x, 1) - gone));
    cr_expect_eq(st->memory.host, (2 - s) * st->chunks[0].offloaded_stride);
    cr_expect_eq(zp_stage_offloaded_at(st, 0), 0);
    cr_expect_eq(st->bytes[ZP_REGION_FILE_SLOTS], 0);
    int64_t largest = saved(&x, end) > saved(&x, 1) ? saved(&x, end) : saved(&x, 1);
    cr_expect_eq(st->at[ZP_REGION_PENDING] == -1 ? st->memory.saved : -1,
                 up_to((2 - s) * st->chunks[0].slot_stride, 256) + 3 * largest);
    for (int r = 1; r < st->runs.len; r++) {
      const zp_run *before = &st->runs.data[r - 1], *run = &st->runs.data[r];
      int64_t of_unit = saved(&x, before->segment) / 8 * 3 / 256 * 256;
      cr_expect_eq(run->saved_offloaded - before->saved_offloaded, before->count * of_unit);
      cr_expect_eq(run->saved - before->saved, before->count * (saved(&x, before->segment) - of_unit));
    }
  }
}

/* On disks whole pages, read and written; PCIe carries no more than the values. */
Test(offload_values, saved_values_on_disks) {
  zp_choice c = {.pipeline = 1, .data = 2};
  c.home[ZP_STATE_ACTIVATIONS] = (zp_home){ZP_TIER_NVME, 8};
  made x = make(c, ZP_RECOMPUTE_FULL);
  const zp_stage *st = &x.program->stages[0];
  int64_t bytes = 0, pages = 0, largest = 0, times = BATCH; /* 24 micro-batches on two ranks */
  for (int u = 0; u < UNITS; u++) {
    int64_t one = saved(&x, u == 0 ? 0 : u == UNITS - 1 ? 2 : 1), whole = up_to(one, 4096);
    bytes += one;
    pages += whole;
    if (whole > largest) largest = whole;
  }
  cr_expect_eq(st->memory.nvme, pages);
  cr_expect_eq(st->memory.host, 4 * largest);
  cr_expect_eq(st->at[ZP_REGION_HOST_SLOTS], 0);
  zp_tier_bytes moves = zp_program_tier_bytes(x.program);
  cr_expect_eq(moves.down, times * bytes);
  cr_expect_eq(moves.up, times * bytes);
  cr_expect_eq(moves.written, times * pages);
  cr_expect_eq(moves.read, times * pages);
}

/* Every unit twice a micro-batch, the embedding for both ends; with the optimizer on the device all of them once more,
 * up and down, and half of them where the other half is updated on the host. */
Test(offload_values, parameters_on_the_host) {
  zp_choice c = {.pipeline = 1, .data = 1};
  c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 8};
  made x = make(c, ZP_RECOMPUTE_NONE);
  const zp_stage *st = &x.program->stages[0];
  int64_t passes = 0;
  for (int s = 0; s < 3; s++) {
    zp_bucket bucket[16];
    int n = zp_unit_buckets(x.lowered, &x.program->choice, s, bucket);
    for (int b = 0; b < n; b++) passes += (s == 1 ? 6 : 1) * bucket[b].elements;
  }
  cr_expect_gt(passes, zp_flat_trained(&st->flat), "a tied weight comes twice");
  cr_expect_eq(st->memory.weights, 0);
  cr_expect_eq(st->memory.host, 4 * zp_flat_trained(&st->flat));
  zp_tier_bytes moves = zp_program_tier_bytes(x.program);
  cr_expect_eq(moves.up, 4 * (2 * BATCH * passes + zp_flat_trained(&st->flat)));
  cr_expect_eq(moves.down, 4 * zp_flat_trained(&st->flat));
  cr_expect_eq(moves.read + moves.written, 0);
  c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 4};
  x = make(c, ZP_RECOMPUTE_NONE);
  st = &x.program->stages[0];
  int64_t gone = zp_flat_trained(&st->flat) / 8 * 4 / 64 * 64, here = zp_flat_trained(&st->flat) - gone;
  moves = zp_program_tier_bytes(x.program);
  cr_expect_eq(moves.up, 4 * (2 * BATCH * passes + here));
  cr_expect_eq(moves.down, 4 * (here + gone), "weights that were updated here, gradients for the host");
}

/* With ZeRO 3 a rank brings its shards. */
Test(offload_values, shards_on_the_host) {
  zp_choice c = {.pipeline = 1, .data = 4, .zero = 3};
  c.home[ZP_STATE_PARAMS] = c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 8};
  made x = make(c, ZP_RECOMPUTE_NONE);
  int64_t passes = 0;
  for (int s = 0; s < 3; s++) {
    zp_bucket bucket[16];
    int n = zp_unit_buckets(x.lowered, &x.program->choice, s, bucket);
    for (int b = 0; b < n; b++) passes += (s == 1 ? 6 : 1) * bucket[b].elements;
  }
  zp_tier_bytes moves = zp_program_tier_bytes(x.program);
  cr_expect_eq(moves.up, 4 * 2 * (BATCH / 4) * passes, "all ranks together bring one copy, nothing after the update");
}

/* What stays of saved values is copied between the ring and the slot, read and written, between kernels. Half leaves,
 * in whole 256 bytes. */
Test(offload_values, price_of_a_part) {
  zp_choice c = {.pipeline = 1, .data = 1};
  c.home[ZP_STATE_ACTIVATIONS] = (zp_home){ZP_TIER_HOST, 4};
  made x = make(c, ZP_RECOMPUTE_NONE);
  double stays = 0, seconds[3], compute[3];
  for (int s = 0; s < 3; s++) {
    int64_t gone = saved(&x, s) / 8 * 4 / 256 * 256;
    stays += (s == 1 ? 6 : 1) * (double)(saved(&x, s) - gone);
    seconds[s] = (double)gone / 10e9;
    compute[s] = x.lowered->segments[s].forward.cost_s;
  }
  double exposed = fmax(0, seconds[0] - compute[1]) + 5 * fmax(0, seconds[1] - compute[1]) +
                   fmax(0, seconds[1] - compute[2]) + seconds[2];
  zp_exposed e = zp_cost_exposed(x.lowered, &x.machine, &x.program->choice, &x.program->stages[0], 0, ZP_ACT_F);
  double want = exposed + 2 * stays / x.machine.memory_bytes_per_s;
  cr_expect(fabs(e.offload_s - want) <= 1e-9 * want, "%g, expected %g", e.offload_s, want);
}

/* Weights whose state is on the device come up to be updated; those that are updated on the host stay there. */
Test(offload_values, price_of_the_update) {
  zp_choice c = {.pipeline = 1, .data = 1};
  made x = make(c, ZP_RECOMPUTE_NONE);
  int64_t n = zp_flat_trained(&x.program->stages[0].flat);
  c = x.program->choice;
  const zp_flat *all = &x.program->stages[0].flat;
  zp_step_end here = zp_cost_step_end(x.lowered, &x.machine, &c, all);
  c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 6};
  zp_step_end moved = zp_cost_step_end(x.lowered, &x.machine, &c, all);
  double want = here.offload_s + 0.75 * 4 * (double)n / 10e9;
  cr_expect(fabs(moved.offload_s - want) <= 1e-9 * want, "%g, expected %g", moved.offload_s, want);
  c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 6};
  zp_step_end on_host = zp_cost_step_end(x.lowered, &x.machine, &c, all);
  c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_DEVICE, 0};
  zp_step_end up = zp_cost_step_end(x.lowered, &x.machine, &c, all);
  cr_expect_lt(on_host.offload_s, up.offload_s, "no weights go up");
}
