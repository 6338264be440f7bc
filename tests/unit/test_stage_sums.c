/* SPDX-License-Identifier: Apache-2.0 */
/* What the search takes of a stage without laying it out, by hand: footprints, inner stages, ties, partial sums, node
 * types. */
#include "planner_models.h"
#include "small_layers.h"
#include <zplan/schedule.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(stage_sums, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 256, 32, 64, 8, 4, 4, 256, true};

static zp_sharding *shard(zp_spec *spec, const zp_choice *c) {
  const char *reason = NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(c));
  zp_sharding *sharding = zp_shard(arena, spec->model, &machine, c->tensor, 1, c->sequence, &reason);
  cr_assert(sharding, "%s", reason);
  return sharding;
}

static int one_product(builder *b, const model_size *size, int x) { return product(b, x, size->d, size->d, "w"); }

/* 65 parameters outside of repeats and one more; the last stage uses the 65th alone. */
Test(stage_sums, footprint_of_many_shared_parameters) {
  enum { D = 64, MANY = 64 };
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 32);
  spec->model = small_layers(arena, &TINY, MANY - 1, one_product);
  zp_choice c = {.tensor = 1, .pipeline = 2, .data = 1, .microbatch = 1, .cut = (int64_t[]){0, 5, 10}};
  const char *reason = NULL;
  zp_lowered **l = zp_lower_stages(arena, spec, shard(spec, &c), &c, &reason);
  cr_assert(l, "%s", reason);
  cr_assert_eq(l[0]->shared.len, MANY + 1);
  int64_t by_hand[] = {256 * D + 63 * 64 + 4 * D * D, 4 * D * D + 256 * D};
  for (int s = 0; s < 2; s++) {
    zp_units part = {c.cut[s], 5};
    cr_expect_eq(zp_stage_footprint(l[0], &c, s, &part, NULL).weights, by_hand[s] * 4, "stage %d", s);
  }
}

/* What is known of one inner stage holds for every other one, to the byte and in every field. */
Test(stage_sums, inner_stages_are_as_laid_out) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 32);
  zp_choice c = {.tensor = 1, .pipeline = 4, .data = 1, .microbatch = 1, .schedule = ZP_SCHEDULE_ZB_H1}; /* has all */
  const char *reason = NULL;
  zp_lowered **l = zp_lower_stages(arena, spec, shard(spec, &c), &c, &reason);
  for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++) {
    c.schedule = (zp_schedule)schedule;
    if (schedule == ZP_SCHEDULE_INTERLEAVED || zp_schedule_folds(c.schedule)) continue;
    zp_units part = {2, 3};
    zp_inner_stage known = zp_inner_footprint(l[0], &c, 1, &part);
    for (int stage = 1; stage <= 2; stage++) {
      zp_memory a = zp_inner_memory(&known, spec, &c, stage), b = zp_stage_footprint(l[0], &c, stage, &part, NULL);
      cr_expect(a.weights == b.weights && a.gradients == b.gradients && a.optimizer == b.optimizer &&
                    a.saved == b.saved && a.buffers == b.buffers && a.host == b.host && a.nvme == b.nvme &&
                    a.context == b.context && a.communicators == b.communicators,
                "%s, stage %d", zp_schedule_name(c.schedule), stage);
    }
  }
}

/* 96 x 64 elements outside of repeats, on 8 data ranks in groups of 4: 2 ranks share what is
 * spread, 8 the rest. */
Test(stage_sums, tied_elements_of_spread_parameters) {
  int64_t elements[] = {96 * 64};
  zp_param_split param[1] = {{.spread = true}};
  zp_sharding sharding = {.param = param};
  zp_spec spec = {.model = zp_model_new(arena, "m")};
  zp_model_add_param(spec.model, (zp_param){.name = "w", .shape = {.rank = 2, .dim = {96, 64}}, .segment = -1});
  zp_lowered l = {.spec = &spec, .param_elements = elements, .sharding = &sharding};
  for (int zero = 0; zero <= 3; zero++) {
    zp_choice c = {.tensor = 1, .pipeline = 2, .data = 8, .expert = 4, .zero = zero};
    param[0].spread = true;
    cr_expect_eq(zp_tied_elements(&l, &c, 0), zero ? 96 * 64 / 2 : 96 * 64, "spread, ZeRO %d", zero);
    param[0].spread = false;
    cr_expect_eq(zp_tied_elements(&l, &c, 0), zero ? 96 * 64 / 8 : 96 * 64, "ZeRO %d", zero);
  }
}

/* The data rank that has most has its share of the mean at least, and not more than all. */
Test(stage_sums, partial_gradients_of_the_busiest_rank) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 32);
  for (int zero = 0; zero <= 3; zero++) {
    zp_choice c = {.tensor = 2,
                   .pipeline = 1,
                   .data = 4,
                   .zero = zero,
                   .sequence = true,
                   .microbatch = 1,
                   .cut = (int64_t[]){0, 10}};
    const char *reason = NULL;
    zp_lowered **l = zp_lower_stages(arena, spec, shard(spec, &c), &c, &reason);
    cr_assert(l, "%s", reason);
    zp_program *p = zp_program_make(arena, (const zp_lowered *const *)l, &c);
    zp_partial found = zp_partial_elements(p, &p->stages[0]);
    cr_expect_gt(found.summed, 0);
    cr_expect_geq(found.most * c.data, found.summed);
    cr_expect_leq(found.most, found.summed);
    if (zero == 0) cr_expect_eq(found.most * c.data, found.summed, "every data rank sums all");
  }
}

/* Nodes of one device, the last of the 16 of another type. Ranks of a stage are neighbours: of
 * four stages on two replicas only the last one reaches the 16th. */
Test(stage_sums, stages_on_other_node_types_share_no_procedures) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(16), 32);
  spec->cluster.node.devices = 1;
  for (int g = 0; g < 2; g++) {
    zp_node_group group = {.nodes = g ? 1 : 15, .type = spec->cluster.node};
    if (g) group.type.device.flop_per_s_fp32 /= 2;
    zp_push(arena, &spec->cluster.groups, group);
  }
  zp_cluster_mix(arena, &spec->cluster);
  zp_choice c = {.tensor = 2, .pipeline = 4, .data = 2, .order = ZP_ORDER_TPD, .microbatch = 1};
  const char *reason = NULL;
  zp_lowered **stages = zp_lower_stages(arena, spec, shard(spec, &c), &c, &reason);
  cr_assert(stages, "%s", reason);
  cr_expect(stages[0] == stages[1] && stages[1] == stages[2], "all on nodes of the first type");
  cr_expect_neq(stages[2], stages[3], "which has a rank of the other type");
}
