/* SPDX-License-Identifier: Apache-2.0 */
/* The whole space through the back door: for every kind of decision a program is made, simulated, played over
 * poisoned memory, written as a plan file, read back and verified; and files that lie are found out. */
#include <math.h>
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(plan_space, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 256, 32, 64, 14, 4, 4, 256, true};

/* GPU nodes with host memory and disks. */
static zp_cluster roomy(void) {
  zp_cluster c = gpu_cluster(1);
  c.node.host_memory_bytes = INT64_C(1) << 40;
  c.node.nvme_bytes = INT64_C(1) << 42;
  c.node.host_bytes_per_s = 100e9;
  c.node.pcie_bytes_per_s = 10e9;
  c.node.nvme_read_bytes_per_s = 6e9;
  c.node.nvme_write_bytes_per_s = 3e9;
  return c;
}

static zp_spec *spec_of(const model_size *size) {
  zp_spec *spec = build_spec(arena, size, roomy(), 48);
  zp_source_text source = {"test.dz", "", 0, false};
  spec->train.precision = ZP_PREC_MIXED_FP16;
  zp_push(arena, &spec->sources, source);
  return spec;
}

static zp_spec *roomy_spec(void) { return spec_of(&TINY); }

/* Cuts of 16 units, or of 30 parts of units, into equal shares. */
static int64_t *even_cut(const zp_choice *c) {
  int64_t parts = c->pipeline * (c->chunks > 1 ? c->chunks : 1), *cut = ZP_NEW_ARRAY(arena, int64_t, parts + 1);
  for (int64_t k = 0; k <= parts; k++) cut[k] = (c->fine ? 30 : 16) * k / parts;
  return cut;
}

static zp_plan *plan_of(const zp_spec *spec, zp_choice c) {
  const char *reason = NULL;
  if (!c.cut) c.cut = even_cut(&c);
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  plan->arena = arena;
  plan->spec = spec;
  plan->devices = c.tensor * c.pipeline * c.data;
  plan->machine = zp_machine_make(&spec->cluster, spec->train.precision, plan->devices);
  const char *refusal = zp_choice_refusal(&c, spec);
  cr_assert_null(refusal, "%s", refusal);
  zp_sharding *sharding =
      zp_shard_experts(arena, spec->model, &plan->machine, c.tensor, zp_expert_ranks(&c), c.sequence, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered **lowered = zp_lower_stages(arena, spec, sharding, &c, &reason);
  cr_assert(lowered, "%s", reason);
  plan->program = zp_program_make(arena, zp_price_stages(lowered, &plan->machine, &c), &c);
  plan->best = (zp_candidate){plan->program->choice, zp_simulate(arena, plan->program, &plan->machine)};
  plan->feasible = true;
  return plan;
}

static void expect_terms(const zp_estimate *e) {
  double sum = e->compute_s + e->bubble_s + e->tensor_comm_s + e->expert_comm_s + e->pipeline_comm_s + e->data_comm_s +
               e->optimizer_s + e->offload_s;
  cr_expect(isfinite(e->step_s) && e->step_s > 0);
  cr_expect(fabs(sum - e->step_s) <= 1e-9 * e->step_s, "terms sum to %.9g, the step takes %.9g", sum, e->step_s);
}

static void expect_same_choice(const zp_choice *a, const zp_choice *b) {
  cr_expect(a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data && a->zero == b->zero);
  cr_expect_eq(zp_expert_ranks(a), zp_expert_ranks(b));
  cr_expect(a->schedule == b->schedule && a->sequence == b->sequence && a->compress == b->compress);
  cr_expect(a->microbatch == b->microbatch && a->fine == b->fine && zp_loss_chunks(a) == zp_loss_chunks(b));
  for (int s = 0; s < a->pipeline; s++) cr_expect_eq(zp_choice_mode(a, s), zp_choice_mode(b, s));
  int64_t parts = a->pipeline * (a->chunks > 1 ? a->chunks : 1);
  cr_assert_eq(parts, b->pipeline * (b->chunks > 1 ? b->chunks : 1));
  for (int64_t k = 0; k <= parts; k++) cr_expect_eq(a->cut[k], b->cut[k]);
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    cr_expect(a->home[i].tier == b->home[i].tier && a->home[i].eighths == b->home[i].eighths);
}

/* Simulates, writes, reads, verifies. */
static void round_trip(const zp_spec *spec, zp_choice c) {
  zp_plan *plan = plan_of(spec, c);
  expect_terms(&plan->best.estimate);
  zp_json *json = zp_plan_to_json(arena, plan);
  zp_choice back;
  int devices;
  const char *error = NULL;
  cr_assert(zp_plan_choice_from_json(arena, spec, json, &back, &devices, &error), "%s", error);
  expect_same_choice(&plan->best.choice, &back);
  zp_strings findings = {0};
  zp_verify(arena, spec, json, &findings);
  zp_replay_program(arena, plan->program, &findings);
  for (int i = 0; i < findings.len; i++)
    cr_expect_fail("%s zero %d: %s", zp_schedule_name(c.schedule), c.zero, findings.data[i]);
  zp_json_free(json);
}

static int chunks_of(int schedule) {
  return schedule == ZP_SCHEDULE_INTERLEAVED || zp_schedule_folds((zp_schedule)schedule) ? 2 : 1;
}

Test(plan_space, schedules_and_zero) {
  zp_spec *spec = roomy_spec();
  for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
    for (int zero = 0; zero <= 3; zero++)
      round_trip(spec, (zp_choice){.tensor = 1,
                                   .pipeline = 4,
                                   .data = 2,
                                   .zero = zero,
                                   .schedule = (zp_schedule)schedule,
                                   .chunks = chunks_of(schedule),
                                   .microbatch = 2});
}

Test(plan_space, recomputation_and_tensor_ranks) {
  zp_spec *spec = roomy_spec();
  for (int recompute = 0; recompute <= 2; recompute++)
    for (int way = 0; way < 3; way++) {
      bool sequence = way == 1, shard = way == 2 && recompute == ZP_RECOMPUTE_FULL;
      round_trip(spec, (zp_choice){.tensor = 2,
                                   .pipeline = 2,
                                   .data = 2,
                                   .microbatch = 2,
                                   .recompute = (zp_recompute)recompute,
                                   .sequence = sequence,
                                   .recompute_shard = shard});
    }
}

Test(plan_space, modes_of_stages) {
  static const zp_stage_mode modes[] = {ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT, ZP_RECOMPUTE_NONE, ZP_RECOMPUTE_SELECTIVE,
                                        ZP_RECOMPUTE_FULL};
  zp_spec *spec = roomy_spec();
  for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
    for (int turn = 0; turn < 4; turn++) {
      zp_stage_mode mode[4];
      for (int s = 0; s < 4; s++) mode[s] = modes[(s + turn) % 4];
      zp_choice c = {.tensor = 2,
                     .pipeline = 4,
                     .data = 2,
                     .zero = turn,
                     .schedule = (zp_schedule)schedule,
                     .chunks = chunks_of(schedule),
                     .microbatch = 1};
      zp_choice_set_modes(&c, mode);
      round_trip(spec, c);
    }
}

Test(plan_space, losses_in_chunks) {
  zp_spec *spec = roomy_spec();
  for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
    for (int zero = 0; zero <= 3; zero++) {
      zp_choice c = {.tensor = 2,
                     .pipeline = 2,
                     .data = 2,
                     .zero = zero,
                     .schedule = (zp_schedule)schedule,
                     .chunks = chunks_of(schedule),
                     .sequence = zero % 2 == 1,
                     .loss_chunks = 2 << zero,
                     .microbatch = 2};
      c.home[ZP_STATE_ACTIVATIONS] = zero == 2 ? (zp_home){ZP_TIER_HOST, 8} : (zp_home){ZP_TIER_DEVICE, 0};
      round_trip(spec, c);
    }
}

/* 30 parts on 7 stages, or on 4 of two chunks: some stage begins inside a layer. */
Test(plan_space, cuts_inside_layers) {
  zp_spec *spec = roomy_spec();
  for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
    for (int zero = 0; zero <= 3; zero++)
      for (int recompute = 0; recompute <= 2; recompute++) {
        zp_choice c = {.tensor = 2,
                       .pipeline = chunks_of(schedule) == 2 ? 4 : 7,
                       .data = 2,
                       .zero = zero,
                       .schedule = (zp_schedule)schedule,
                       .chunks = chunks_of(schedule),
                       .sequence = recompute == 1,
                       .fine = true,
                       .microbatch = 2,
                       .recompute = (zp_recompute)recompute};
        c.home[ZP_STATE_OPTIMIZER] = zero == 1 ? (zp_home){ZP_TIER_HOST, 5} : (zp_home){ZP_TIER_DEVICE, 0};
        round_trip(spec, c);
      }
}

Test(plan_space, homes) {
  zp_spec *spec = roomy_spec();
  for (int state = 0; state < ZP_STATE_COUNT; state++)
    for (int tier = ZP_TIER_HOST; tier <= ZP_TIER_NVME; tier++)
      for (int zero = 0; zero <= 3; zero++)
        for (int eighths = 3; eighths <= 8; eighths += 5) {
          zp_choice c = {.tensor = 1, .pipeline = 2, .data = 2, .zero = zero, .microbatch = 2};
          c.home[state] = (zp_home){(zp_tier)tier, eighths};
          round_trip(spec, c);
        }
}

/* Eight experts over groups of two and four, with all that may be sharded or off the device. */
static const model_size EXPERTS = {STYLE_EXPERTS, 256, 32, 64, 14, 4, 8, 96, false};

Test(plan_space, experts_over_data_ranks) {
  zp_spec *spec = spec_of(&EXPERTS);
  for (int expert = 2; expert <= 4; expert *= 2)
    for (int zero = 0; zero <= 3; zero++) {
      zp_choice c = {.tensor = 1 + (zero + expert) % 2,
                     .pipeline = 2,
                     .data = 4,
                     .expert = expert,
                     .zero = zero,
                     .microbatch = 2,
                     .recompute = (zp_recompute)(zero % 3),
                     .order = (zp_rank_order)(zero / 2)};
      round_trip(spec, c);
      c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 5};
      if (zero >= 2) c.home[ZP_STATE_GRADIENTS] = (zp_home){ZP_TIER_HOST, 3};
      if (zero == 3) c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 8};
      round_trip(spec, c);
    }
}

Test(plan_space, compression) {
  round_trip(roomy_spec(), (zp_choice){.tensor = 2, .pipeline = 2, .data = 3, .microbatch = 2, .compress = true});
  zp_choice offloaded = {.tensor = 2, .pipeline = 2, .data = 3, .microbatch = 2, .compress = true};
  offloaded.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 3};
  round_trip(roomy_spec(), offloaded);
  offloaded.zero = 1;
  round_trip(roomy_spec(), offloaded);
}

Test(plan_space, decisions_that_do_not_go_together) {
  zp_spec *spec = roomy_spec();
  const zp_choice base = {.tensor = 1, .pipeline = 2, .data = 2, .microbatch = 1};
  zp_choice bad[13];
  for (int i = 0; i < 13; i++) bad[i] = base;
  for (int i = 10; i < 13; i++) bad[i].compress = true;
  bad[10].home[ZP_STATE_PARAMS] = bad[11].home[ZP_STATE_GRADIENTS] = (zp_home){ZP_TIER_HOST, 8};
  bad[12].home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_NVME, 8};
  bad[0].compress = true, bad[0].zero = 2;
  bad[1].compress = true, bad[1].data = 1;
  bad[2].chunks = 2;
  bad[3].schedule = ZP_SCHEDULE_ZB_V;
  bad[4].home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 9};
  bad[5].home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_DEVICE, 4};
  bad[6].sequence = true;
  bad[7].zero = 4;
  bad[8].expert = 3;
  bad[9].expert = 2, bad[9].compress = true;
  cr_expect_null(zp_choice_refusal(&base, spec));
  for (int i = 0; i < 13; i++) cr_expect_not_null(zp_choice_refusal(&bad[i], spec), "case %d", i);
  zp_choice host = base;
  host.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 8};
  cr_expect_null(zp_choice_refusal(&host, spec));
  host.compress = true;
  cr_expect_null(zp_choice_refusal(&host, spec), "1-bit Adam with state on the host");
  host.zero = 1;
  cr_expect_null(zp_choice_refusal(&host, spec), "1-bit Adam with ZeRO 1 and state on the host");
  spec->train.variance_every = 16;
  cr_expect_not_null(zp_choice_refusal(&host, spec), "0/1 Adam with ZeRO 1");
  spec->train.variance_every = 0;
  host.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_DEVICE, 0};
  cr_expect_null(zp_choice_refusal(&host, spec), "1-bit Adam with ZeRO 1");
  host.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 8};
  spec->cluster = cpu_cluster();
  cr_expect_not_null(zp_choice_refusal(&host, spec), "CPU ranks have nowhere to offload to");
}

/* ---- what the generator of trainers prints ---- */

static bool is_generated(const zp_choice *choice, const char **why_not) {
  const char *why = zp_choice_lacking(choice);
  if (why_not) *why_not = why;
  return why == NULL;
}

Test(plan_space, generated_choices) {
  const char *why;
  zp_choice c = {.tensor = 2, .pipeline = 2, .data = 2, .zero = 1, .microbatch = 1, .recompute = ZP_RECOMPUTE_FULL};
  for (; c.zero <= 3; c.zero++) cr_expect(is_generated(&c, &why), "ZeRO %d", c.zero);
  c.zero = 3, c.schedule = ZP_SCHEDULE_GPIPE;
  cr_expect(is_generated(&c, &why));
  for (int s = 0; s < ZP_SCHEDULE_COUNT; s++) {
    c.schedule = (zp_schedule)s;
    for (c.zero = 0; c.zero <= 3; c.zero++)
      cr_expect(is_generated(&c, &why), "%s, ZeRO %d", zp_schedule_name(c.schedule), c.zero);
  }
  c.schedule = ZP_SCHEDULE_1F1B, c.zero = 3, c.sequence = true;
  cr_expect(is_generated(&c, &why));
  c.zero = 0, c.compress = true;
  cr_expect(is_generated(&c, NULL));
  c.home[ZP_STATE_ACTIVATIONS] = (zp_home){ZP_TIER_HOST, 1};
  cr_expect(is_generated(&c, &why));
}

/* Gradients leave with the state that is updated with them, and without it. */
Test(plan_space, generated_offload) {
  const char *why;
  zp_choice c = {.tensor = 1, .pipeline = 2, .data = 2, .zero = 2, .microbatch = 1};
  c.home[ZP_STATE_GRADIENTS] = (zp_home){ZP_TIER_HOST, 3};
  for (int optimizer = 0; optimizer < 2; optimizer++) {
    for (c.zero = 0; c.zero <= 3; c.zero++) cr_expect(is_generated(&c, &why), "%s", why);
    c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 3};
    for (c.zero = 0; c.zero <= 3; c.zero++) cr_expect(is_generated(&c, &why), "%s", why);
    c.home[ZP_STATE_GRADIENTS].tier = c.home[ZP_STATE_PARAMS].tier = ZP_TIER_NVME;
    for (c.zero = 0; c.zero <= 3; c.zero++) cr_expect(is_generated(&c, &why), "%s", why);
    c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_NVME, 3};
  }
}

/* ---- files that lie ---- */

static int findings_of(const zp_spec *spec, const zp_json *json) {
  zp_strings findings = {0};
  zp_verify(arena, spec, json, &findings);
  return findings.len;
}

typedef struct lie {
  const char *object, *key; /* of stage 0: "arena", "memory", or NULL for its first chunk */
  int64_t add;
} lie;

Test(plan_space, lies_about_memory_are_found) {
  static const lie lies[] = {
      {"arena", "at_grad_ring", 256}, {"arena", "bucket_elements", -64}, {"arena", "slots", -1},
      {"memory", "host", 512},        {"memory", "nvme", 512},           {NULL, "slots", -1},
      {NULL, "pending", -1},          {NULL, "slot_stride", 256},        {"arena", "at_pending", -256}};
  zp_spec *spec = roomy_spec();
  zp_choice c = {.tensor = 1, .pipeline = 4, .data = 2, .zero = 2, .schedule = ZP_SCHEDULE_ZB_H1, .microbatch = 2};
  c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 8};
  const zp_plan *plan = plan_of(spec, c);
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    zp_json *json = zp_plan_to_json(arena, plan);
    const zp_json *stage = zp_json_at(zp_json_get(json, "stages"), 0);
    zp_json *object =
        (zp_json *)(lies[i].object ? zp_json_get(stage, lies[i].object) : zp_json_at(zp_json_get(stage, "chunks"), 0));
    zp_json_set_int(object, lies[i].key, zp_json_get_int(object, lies[i].key, 0) + lies[i].add);
    cr_expect_gt(findings_of(spec, json), 0, "%s", lies[i].key);
    zp_json_free(json);
  }
}

static zp_json *backward_with_early(const zp_json *plan) {
  const zp_json *segments = zp_json_get(zp_json_get(plan, "program"), "segments");
  for (int i = 0; i < zp_json_count(segments); i++) {
    const zp_json *backward = zp_json_get(zp_json_at(segments, i), "backward");
    if (zp_json_key(zp_json_get(backward, "early"), 0)) return (zp_json *)backward;
  }
  return NULL;
}

/* What BI adds to gradients waits for BW after everything else: not elsewhere, and no BI step without such a place. */
Test(plan_space, lies_about_early_gradients_are_found) {
  zp_spec *spec = roomy_spec();
  const zp_plan *plan = plan_of(
      spec,
      (zp_choice){.tensor = 1, .pipeline = 4, .data = 2, .zero = 3, .schedule = ZP_SCHEDULE_ZB_H1, .microbatch = 2});
  for (int k = 0; k < 4; k++) {
    zp_json *json = zp_plan_to_json(arena, plan), *backward = backward_with_early(json);
    cr_assert_not_null(backward);
    zp_json *early = (zp_json *)zp_json_get(backward, "early");
    const char *first = zp_json_key(early, 0);
    if (k == 1) zp_json_set_int(early, first, zp_json_get_int(early, first, 0) - 256);
    if (k == 2) zp_json_set(backward, "early", zp_json_object());
    if (k == 3) zp_json_set_int(early, "wte", 0);
    if (k == 0)
      cr_expect_eq(findings_of(spec, json), 0);
    else
      cr_expect_gt(findings_of(spec, json), 0, "lie %d", k);
    zp_json_free(json);
  }
}

/* Lies about the first repeated layer of stage 0, its arena, a matrix of experts; and about the degree itself. */
Test(plan_space, lies_about_experts_are_found) {
  zp_spec *spec = spec_of(&EXPERTS);
  const zp_plan *plan =
      plan_of(spec, (zp_choice){.tensor = 2, .pipeline = 2, .data = 4, .expert = 2, .zero = 1, .microbatch = 2});
  static const char *const layer[] = {"spread_base", "spread_stride"}, *const flat[] = {"spread_elements",
                                                                                        "spread_shard_elements"};
  for (int i = 0; i < 6; i++) {
    zp_json *json = zp_plan_to_json(arena, plan);
    const zp_json *stage = zp_json_at(zp_json_get(json, "stages"), 0);
    zp_json *object = (zp_json *)zp_json_get(json, "degrees");
    const char *key = "expert";
    if (i < 2) object = (zp_json *)zp_json_at(zp_json_get(stage, "layers"), 1), key = layer[i];
    if (i >= 2 && i < 4) object = (zp_json *)zp_json_get(stage, "arena"), key = flat[i - 2];
    int64_t value = zp_json_get_int(object, key, 0);
    zp_json_set_int(object, key, i == 4 ? 1 : i == 5 ? 4 : value - 64);
    cr_expect_gt(findings_of(spec, json), 0, "%s, case %d", key, i);
    zp_json_free(json);
  }
}

Test(plan_space, lies_about_decisions_are_found) {
  zp_spec *spec = roomy_spec();
  const zp_plan *plan = plan_of(spec, (zp_choice){.tensor = 1, .pipeline = 4, .data = 2, .microbatch = 2});
  const struct {
    const char *key, *text;
    int64_t number;
  } lies[] = {{"schedule", "zb_h2", 0}, {"schedule", "2f2b", 0}, {"zero", NULL, 2},       {"zero", NULL, 4},
              {"chunks", NULL, 2},      {"chunks", NULL, -1},    {"recompute", "some", 0}};
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    zp_json *json = zp_plan_to_json(arena, plan);
    if (lies[i].text)
      zp_json_set_string(json, lies[i].key, lies[i].text);
    else
      zp_json_set_int(json, lies[i].key, lies[i].number);
    cr_expect_gt(findings_of(spec, json), 0, "case %zu", i);
    zp_json_free(json);
  }
}

/* 16 ranks of one node: what one of them has on the host, 16 times. */
Test(plan_space, node_budgets) {
  zp_spec *spec = roomy_spec();
  zp_choice c = {.tensor = 1, .pipeline = 1, .data = 16, .zero = 1, .microbatch = 1};
  c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 8};
  const zp_plan *plan = plan_of(spec, c);
  int64_t need = 16 * plan->program->stages[0].memory.host;
  zp_json *json = zp_plan_to_json(arena, plan);
  spec->cluster.node.host_memory_bytes = need;
  cr_expect_eq(findings_of(spec, json), 0);
  spec->cluster.node.host_memory_bytes = need - 1;
  cr_expect_eq(findings_of(spec, json), 1);
  zp_json_free(json);
}

Test(plan_space, a_node_holds_ranks_of_several_stages) {
  zp_choice c = {.tensor = 2, .pipeline = 3, .data = 2};
  const int64_t bytes[] = {10, 1, 100};
  cr_expect_eq(zp_most_of_a_node(&c, 4, bytes), 400);
  cr_expect_eq(zp_most_of_a_node(&c, 8, bytes), 400); /* 44, 400 */
  cr_expect_eq(zp_most_of_a_node(&c, 6, bytes), 402);
  cr_expect_eq(zp_most_of_a_node(&c, 100, bytes), 444);
}

/* One eighth off the device is off the device: every rule that refuses does so from the first on. */
Test(plan_space, one_eighth_off_the_device_is_refused_like_eight) {
  for (int eighths = 0; eighths <= 8; eighths += eighths ? 7 : 1) {
    const char *why;
    zp_home host = {.tier = ZP_TIER_HOST, .eighths = eighths}, disk = {.tier = ZP_TIER_NVME, .eighths = eighths};
    zp_choice plain = {.tensor = 1, .pipeline = 1, .data = 2, .zero = 2, .chunks = 1, .microbatch = 1}, c = plain;
    cr_expect(is_generated(&plain, &why) && !why);
    c.home[ZP_STATE_OPTIMIZER] = c.home[ZP_STATE_GRADIENTS] = host;
    cr_expect(is_generated(&c, NULL), "ZeRO 2, %d eighths", eighths);
    c.zero = 2, c.tensor = 2, c.sequence = true;
    cr_expect_eq(is_generated(&c, NULL), eighths == 0, "sequence, %d eighths", eighths);
    c = plain, c.home[ZP_STATE_GRADIENTS] = host;
    cr_expect(is_generated(&c, NULL), "gradients without their optimizer, %d", eighths);
    c.home[ZP_STATE_OPTIMIZER] = c.home[ZP_STATE_GRADIENTS] = disk;
    cr_expect(is_generated(&c, NULL), "gradients on disks, %d", eighths);
    c = plain, c.home[ZP_STATE_PARAMS] = host;
    cr_expect(is_generated(&c, NULL), "parameters with ZeRO 2, %d", eighths);
    c.home[ZP_STATE_PARAMS] = disk;
    cr_expect(is_generated(&c, NULL), "parameters on disks, %d", eighths);
  }
}

/* A gradient that tensor ranks sum once a step must then be on the device. */
Test(plan_space, norms_of_heads_off_the_device) {
  static const model_size heads = {STYLE_QK_NORM, 256, 32, 64, 4, 4, 2, 96, false},
                          plain = {STYLE_LLAMA, 256, 32, 64, 4, 4, 2, 96, false};
  for (int tensor = 1; tensor <= 2; tensor++)
    for (int state = 0; state < 2; state++) {
      zp_choice c = {.tensor = tensor, .pipeline = 1, .data = 2, .microbatch = 1};
      c.home[ZP_STATE_OPTIMIZER] = c.home[state ? ZP_STATE_PARAMS : ZP_STATE_GRADIENTS] = (zp_home){ZP_TIER_HOST, 8};
      cr_expect_null(zp_choice_refusal(&c, spec_of(&plain)));
      const char *refusal = zp_choice_refusal(&c, spec_of(&heads));
      cr_expect_eq(refusal != NULL, tensor == 2);
      if (refusal) cr_expect_not_null(strstr(refusal, "norms of heads"), "%s", refusal);
    }
}
