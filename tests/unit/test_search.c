/* SPDX-License-Identifier: Apache-2.0 */
/* The search against brute force on small spaces, its certificate, its constraints and its refusals. */
#include <math.h>
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(search, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};

/* ---- brute force: every choice and every cut, simulated ---- */

typedef struct brute {
  const zp_spec *spec;
  zp_machine machine;
  int64_t limit;
  double best_s;
  int64_t simulated; /* cuts that fit */
  int64_t misfits;   /* choices of which no cut fits */
  bool mixes;        /* layers of one stage may have different modes */
} brute;

enum { MODES = 4, MOST_STAGES = 8 };

static void simulate(brute *b, const zp_lowered *const *stages, zp_choice *choice) {
  zp_arena *scratch = zp_arena_new("brute");
  zp_stage_mode modes[MOST_STAGES];
  zp_stage_mix mix[MOST_STAGES];
  for (int s = 0; s < choice->pipeline; s++) {
    const zp_lowered *rest = stages[s]->rest;
    modes[s] = zp_stage_mode_of(stages[s]->recompute, stages[s]->recompute_shard);
    mix[s] = rest ? (zp_stage_mix){stages[s]->layers, zp_stage_mode_of(rest->recompute, rest->recompute_shard)}
                  : (zp_stage_mix){ZP_ALL_LAYERS, modes[s]};
  }
  zp_choice_set_modes(choice, modes);
  zp_choice_set_mix(choice, mix);
  b->best_s = fmin(b->best_s, zp_simulate(scratch, zp_program_make(scratch, stages, choice), &b->machine).step_s);
  b->simulated++;
  zp_arena_free(scratch);
}

static void try_modes(brute *b, zp_lowered *const *of_mode, zp_choice *choice, const zp_lowered **stages, int stage);

static void try_stage(brute *b, zp_lowered *const *of_mode, zp_choice *choice, const zp_lowered **stages, int stage,
                      const zp_lowered *own) {
  int64_t first = choice->cut[stage], n = choice->cut[stage + 1] - first;
  if (zp_stage_bytes(own, choice, stage, first, n) > b->limit) return;
  stages[stage] = own;
  try_modes(b, of_mode, choice, stages, stage + 1);
}

/* Every way to give the stages modes that fit, one or for every number of first layers two. */
static void try_modes(brute *b, zp_lowered *const *of_mode, zp_choice *choice, const zp_lowered **stages, int stage) {
  if (stage == choice->pipeline) {
    simulate(b, stages, choice);
    return;
  }
  for (int mode = 0; mode < MODES; mode++) {
    if (!of_mode[mode]) continue;
    try_stage(b, of_mode, choice, stages, stage, of_mode[mode]);
    bool all = zp_stage_bytes(of_mode[0], choice, stage, choice->cut[stage],
                              choice->cut[stage + 1] - choice->cut[stage]) <= b->limit; /* nothing is faster */
    for (int rest = 0; rest < mode && b->mixes && !all && choice->pipeline > 1; rest++)
      for (int64_t k = 1; k < choice->cut[stage + 1] - choice->cut[stage]; k++) {
        zp_arena_mark mark = zp_arena_get_mark(arena);
        try_stage(b, of_mode, choice, stages, stage, zp_lower_mixed(arena, of_mode[mode], of_mode[rest], k));
        zp_arena_rewind(arena, mark);
      }
  }
}

static void try_cuts(brute *b, zp_lowered *const *of_mode, zp_choice *choice, int stage) {
  const zp_lowered *stages[MOST_STAGES];
  if (stage == choice->pipeline) {
    if (choice->cut[stage] == of_mode[0]->n_units) try_modes(b, of_mode, choice, stages, 0);
    return;
  }
  for (int64_t end = choice->cut[stage] + 1; end <= of_mode[0]->n_units; end++) {
    choice->cut[stage + 1] = end;
    try_cuts(b, of_mode, choice, stage + 1);
  }
}

static void try_choice(brute *b, zp_choice choice) {
  static const zp_recompute modes[MODES] = {ZP_RECOMPUTE_NONE, ZP_RECOMPUTE_SELECTIVE, ZP_RECOMPUTE_FULL,
                                            ZP_RECOMPUTE_FULL};
  const char *reason = NULL;
  zp_sharding *sharding =
      zp_shard_experts(arena, b->spec->model, &b->machine, choice.tensor, choice.expert, choice.sequence, &reason);
  if (!sharding) return;
  zp_lowered *of_mode[MODES] = {NULL};
  for (int i = 0; i < MODES - (choice.tensor == 1); i++) {
    of_mode[i] = zp_lower(arena, b->spec, sharding, choice.microbatch, modes[i], i == 3, &reason);
    cr_assert(of_mode[i], "%s", reason);
    zp_price_choice(of_mode[i], &b->machine, &choice);
  }
  choice.cut = ZP_NEW_ARRAY(arena, int64_t, choice.pipeline + 1);
  int64_t before = b->simulated;
  try_cuts(b, of_mode, &choice, 0);
  b->misfits += b->simulated == before;
  if (!looks_inside_layers(of_mode[0], &b->spec->plans.data[0].cut, choice.pipeline)) return;
  for (int i = 0; i < MODES && of_mode[i]; i++) {
    of_mode[i] = zp_lower_pieces(arena, of_mode[i], NULL, &reason);
    cr_assert(of_mode[i], "%s", reason);
    zp_price_choice(of_mode[i], &b->machine, &choice);
  }
  choice.fine = true;
  before = b->simulated;
  try_cuts(b, of_mode, &choice, 0);
  b->misfits += b->simulated == before;
}

static brute brute_force(const zp_spec *spec, int devices) {
  brute b = {
      .spec = spec, .machine = zp_machine_make(&spec->cluster, spec->train.precision, devices), .best_s = INFINITY};
  b.mixes = true;
  b.limit = (int64_t)(spec->plans.data[0].memory_fraction * (double)b.machine.memory_bytes) - b.machine.context_bytes;
  for (int tensor = 1; tensor <= devices; tensor++)
    for (int pipeline = 1; pipeline <= devices; pipeline++)
      for (int data = 1; data <= devices; data++)
        for (int64_t microbatch = 1; microbatch <= spec->train.batch; microbatch++) {
          if (tensor * pipeline * data != devices || spec->train.batch % (data * microbatch)) continue;
          if (!zp_limit_allows(&spec->plans.data[0].pipeline, pipeline)) continue;
          for (int expert = 1; expert <= data; expert++)
            for (int zero = 0; zero <= (data > 1) && data % expert == 0; zero++)
              try_choice(&b, (zp_choice){.tensor = tensor,
                                         .pipeline = pipeline,
                                         .data = data,
                                         .expert = expert,
                                         .zero = zero,
                                         .microbatch = microbatch});
        }
  return b;
}

static zp_plan *expect_optimum_of(const zp_spec *spec, int devices) {
  brute all = brute_force(spec, devices);
  double best = all.best_s;
  zp_plan *plan = zp_search(arena, spec, devices, &(zp_search_options){.generated_only = true});
  cr_assert(plan->feasible == isfinite(best), "search says %d, optimum %g", plan->feasible, best);
  cr_expect_leq(plan->certificate.rejected[ZP_REJECT_MEMORY], all.misfits, "every choice that fits is found");
  if (!plan->feasible) return plan;
  double found = plan->best.estimate.step_s;
  cr_expect(fabs(found / best - 1) < 1e-9, "found %.9g, optimum %.9g", found, best);
  cr_expect(plan->certificate.bound_s <= best * (1 + 1e-9), "bound %.9g above the optimum %.9g",
            plan->certificate.bound_s, best);
  cr_expect_eq(plan->certificate.best_s, plan->certificate.bound_s, "settled spaces have no gap");
  return plan;
}

static void expect_optimum(model_size size, zp_cluster cluster, int devices, int64_t batch) {
  expect_optimum_of(build_spec(arena, &size, cluster, batch), devices);
}

Test(search, equals_brute_force_on_cpu_ranks) {
  for (int devices = 1; devices <= 5; devices++) expect_optimum(TINY, cpu_cluster(), devices, 4);
}

Test(search, equals_brute_force_with_uneven_layers) {
  model_size size = TINY;
  size.layers = 5, size.heads = size.kv_heads = 3, size.d = 48, size.V = 900;
  expect_optimum(size, cpu_cluster(), 3, 6);
  expect_optimum(size, cpu_cluster(), 4, 6);
}

/* Experts that two and four ranks divide, and three do not: of a tensor group, and of an expert group; on one node, and
 * over several. */
Test(search, equals_brute_force_with_experts) {
  model_size size = {STYLE_EXPERTS, 250, 32, 64, 3, 4, 4, 96, false};
  zp_cluster c = gpu_cluster(4);
  c.node.devices = 2;
  for (int devices = 2; devices <= 4; devices++) expect_optimum(size, cpu_cluster(), devices, 4);
  expect_optimum(size, c, 4, 8);
}

/* Memory decides: at every limit the same answer, down to none at all. */
Test(search, equals_brute_force_under_memory_pressure) {
  for (int64_t mega = 1; mega <= 16; mega *= 2) {
    zp_cluster c = cpu_cluster();
    c.node.device.memory_bytes = mega * 1000000;
    c.node.device.context_bytes = 1000;
    expect_optimum(TINY, c, 4, 4);
  }
}

Test(search, equals_brute_force_across_gpu_nodes) {
  zp_cluster c = gpu_cluster(2);
  c.node.devices = 2;
  expect_optimum(TINY, c, 2, 8);
  expect_optimum(TINY, c, 4, 8);
}

/* A small deterministic generator: instances must be the same on every machine. */
static int64_t draw(uint32_t *state, int64_t low, int64_t high) {
  *state = *state * 1664525u + 1013904223u;
  return low + (int64_t)((*state >> 16) % (uint32_t)(high - low + 1));
}

/* Pipelines of odd shapes: heavy heads, slow links, few and many micro-batches, memory near the limit. Every bound
 * and every cut is at work here; a bound that is too high loses the optimum, a missed byte finds a plan that does not
 * fit. */
#ifdef __SANITIZE_ADDRESS__
enum { PIPELINES = 20 }; /* four times slower there */
#else
enum { PIPELINES = 60 };
#endif

Test(search, equals_brute_force_on_random_pipelines) {
  uint32_t state = 2024;
  int pruned = 0, feasible = 0, infeasible = 0;
  for (int trial = 0; trial < PIPELINES; trial++) {
    model_size size = TINY;
    size.layers = draw(&state, 2, 6);
    size.V = draw(&state, 1, 12) * 100;
    zp_cluster c = cpu_cluster();
    c.node.device.context_bytes = 1000;
    c.node.link.latency_s = draw(&state, 0, 1) ? 1e-6 : 2e-4;
    c.node.device.memory_bytes = draw(&state, 0, 2) ? INT64_C(1000000) * draw(&state, 2, 14) : INT64_C(1000000000);
    zp_spec *spec = build_spec(arena, &size, c, 2 * draw(&state, 1, 6));
    int stages = (int)draw(&state, 2, 4);
    pin(&spec->plans.data[0].pipeline, stages);
    zp_plan *plan = expect_optimum_of(spec, stages);
    pruned += plan->certificate.rejected[ZP_REJECT_BOUND] > 0;
    *(plan->feasible ? &feasible : &infeasible) += 1;
  }
  cr_expect(6 * pruned > PIPELINES && 3 * feasible > PIPELINES && 12 * infeasible > PIPELINES,
            "%d pruned, %d feasible, %d infeasible", pruned, feasible, infeasible);
}

/* ---- certificate ---- */

static int64_t sum_rejected(const zp_certificate *c) {
  int64_t sum = 0;
  for (int i = 0; i < ZP_REJECT_COUNT; i++) sum += c->rejected[i];
  return sum;
}

Test(search, every_candidate_is_priced_or_rejected) {
  zp_plan *plan = zp_search(arena, build_spec(arena, &TINY, cpu_cluster(), 8), 6, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->certificate.candidates, plan->certificate.priced + sum_rejected(&plan->certificate));
  cr_expect(plan->certificate.rejected[ZP_REJECT_BATCH] > 0, "6 data ranks do not divide a batch of 8");
}

Test(search, alternatives_have_other_degrees_and_ascend) {
  zp_plan *plan = zp_search(arena, build_spec(arena, &TINY, cpu_cluster(), 8), 4, &(zp_search_options){.top = 4});
  cr_assert(plan->feasible);
  cr_expect_eq(plan->alternatives.len, 4);
  const zp_candidate *before = &plan->best;
  for (int i = 0; i < plan->alternatives.len; i++) {
    const zp_candidate *c = &plan->alternatives.data[i];
    cr_expect(c->estimate.step_s >= before->estimate.step_s);
    cr_expect(c->choice.tensor != before->choice.tensor || c->choice.pipeline != before->choice.pipeline);
    cr_expect_eq(c->choice.cut[c->choice.pipeline], 6);
    before = c;
  }
}

Test(search, same_plan_twice) {
  zp_plan *a = zp_search(arena, build_spec(arena, &TINY, cpu_cluster(), 8), 4, NULL);
  zp_plan *b = zp_search(arena, build_spec(arena, &TINY, cpu_cluster(), 8), 4, NULL);
  cr_expect_str_eq(zp_plan_hash(arena, a->program), zp_plan_hash(arena, b->program));
  cr_expect_eq(a->best.estimate.step_s, b->best.estimate.step_s);
}

/* ---- constraints ---- */

Test(search, pinned_degrees_are_kept) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  zp_constraints *c = &spec->plans.data[0];
  pin(&c->tensor, 2), pin(&c->pipeline, 2), pin(&c->zero, 0), pin(&c->microbatch, 2),
      pin(&c->recompute, ZP_RECOMPUTE_FULL);
  pin(&c->recompute_shard, 1);
  zp_plan *plan = zp_search(arena, spec, 4, NULL);
  cr_assert(plan->feasible);
  const zp_choice *choice = &plan->best.choice;
  cr_expect(choice->tensor == 2 && choice->pipeline == 2 && choice->data == 1 && choice->microbatch == 2);
  cr_expect(choice->recompute == ZP_RECOMPUTE_FULL && choice->recompute_shard);
  cr_expect_eq(plan->alternatives.len, 0);
}

Test(search, prime_device_counts) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 7);
  pin(&spec->plans.data[0].cut, 0);
  zp_plan *plan = zp_search(arena, spec, 7, NULL);
  cr_assert(plan->feasible); /* 7 data ranks, or 7 tensor ranks with padding; 7 stages are more than 6 units */
  cr_expect_neq(plan->best.choice.pipeline, 7);
  cr_expect(plan->certificate.rejected[ZP_REJECT_UNITS] == 1);
}

Test(search, tensor_groups_stay_in_gpu_nodes_unless_pinned) {
  zp_cluster c = gpu_cluster(2);
  c.node.devices = 2;
  zp_spec *spec = build_spec(arena, &TINY, c, 8);
  zp_plan *plan = zp_search(arena, spec, 4, NULL);
  cr_expect(plan->feasible && plan->certificate.rejected[ZP_REJECT_NODE] == 2, "tensor 3 and 4");
  pin(&spec->plans.data[0].tensor, 4);
  plan = zp_search(arena, spec, 4, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->best.choice.tensor, 4);
}

/* ---- cuts inside layers ---- */

/* Two stages for three layers whose attention and MLP have equal products; a head of `vocabulary` rows is worth
 * vocabulary / (8 d) layers. The cut, in units of the plan. */
static const zp_choice *two_stages(int64_t vocabulary, int cut) {
  model_size size = {STYLE_GPT, vocabulary, 16, 256, 3, 4, 4, 512, false};
  zp_spec *spec = build_spec(arena, &size, cpu_cluster(), 16);
  pin(&spec->plans.data[0].pipeline, 2);
  if (cut >= 0) pin(&spec->plans.data[0].cut, cut);
  zp_plan *plan = zp_search(arena, spec, 2, NULL);
  cr_assert(plan->feasible);
  return &plan->best.choice;
}

Test(search, three_layers_on_two_stages) {
  const zp_choice *c = two_stages(8, -1);
  cr_expect(c->fine && c->cut[1] == 1 + 3, "a free head: 1.5 and 1.5 layers");
  c = two_stages(16 * 256, -1);
  cr_expect(c->fine && c->cut[1] == 1 + 5, "a head of 2 layers: 2.5 layers, and 0.5 with the head");
  c = two_stages(8 * 256, -1);
  cr_expect(!c->fine && c->cut[1] == 1 + 2, "a head of 1 layer: 2 layers, and 1 with the head");
  c = two_stages(8, 0);
  cr_expect(!c->fine && c->cut[1] == 1 + 2, "layers left whole");
}

/* Where no cut between layers is any worse, the plan says that it has none inside. */
Test(search, cuts_between_layers_are_called_so) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  const int stages[] = {1, 2, 3, 4};
  for (int i = 0; i < 4; i++) {
    pin(&spec->plans.data[0].pipeline, stages[i]);
    zp_plan *plan = zp_search(arena, spec, stages[i], NULL);
    bool inside = false;
    for (int s = 0; s < stages[i]; s++)
      for (int r = 0; r < plan->program->stages[s].runs.len; r++)
        inside |= plan->program->stages[s].runs.data[r].segment >= plan->program->lowered->pieces->n_whole;
    cr_expect_eq(plan->best.choice.fine, inside);
  }
}

/* More places to cut never make the best plan slower. */
Test(search, cuts_inside_layers_are_never_worse) {
  for (int layers = 1; layers <= 6; layers++) {
    model_size size = TINY;
    size.layers = layers, size.V = 150 * layers;
    zp_spec *spec = build_spec(arena, &size, cpu_cluster(), 12);
    pin(&spec->plans.data[0].pipeline, 3);
    double step[2];
    for (int cut = 0; cut < 2; cut++) {
      if (cut == 0) pin(&spec->plans.data[0].cut, 0);
      if (cut == 1) spec->plans.data[0].cut = (zp_limit){0};
      zp_plan *plan = zp_search(arena, spec, 3, NULL);
      cr_assert(plan->feasible);
      step[cut] = plan->best.estimate.step_s;
    }
    cr_expect_leq(step[1], step[0]);
  }
}

/* A pinned cut inside layers that the model cannot have is an answer, not another plan. */
Test(search, models_without_a_place_are_refused) {
  model_size size = TINY;
  size.style = STYLE_PARALLEL;
  zp_spec *spec = build_spec(arena, &size, cpu_cluster(), 8);
  pin(&spec->plans.data[0].pipeline, 2);
  pin(&spec->plans.data[0].cut, 1);
  zp_plan *plan = zp_search(arena, spec, 2, NULL);
  cr_assert_not(plan->feasible);
  cr_expect(strstr(plan->why_not, "no layer of the model can be cut"), "%s", plan->why_not);
}

/* ---- nothing fits ---- */

Test(search, impossible_constraints_say_why) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  pin(&spec->plans.data[0].tensor, 3);
  zp_plan *plan = zp_search(arena, spec, 4, NULL);
  cr_expect(!plan->feasible);
  cr_assert_not_null(plan->why_not);
  cr_expect(strstr(plan->why_not, "constraints"), "%s", plan->why_not);
  cr_expect_eq(plan->miss.have_bytes, 0);
}

Test(search, the_nearest_miss_is_named) {
  zp_cluster c = cpu_cluster();
  c.node.device.memory_bytes = 1000000;
  c.node.device.context_bytes = 1000;
  zp_plan *plan = zp_search(arena, build_spec(arena, &TINY, c, 4), 2, NULL);
  cr_expect(!plan->feasible);
  const zp_miss *miss = &plan->miss;
  cr_assert(miss->have_bytes == 450000, "%lld", (long long)miss->have_bytes);
  cr_expect(miss->need_bytes > miss->have_bytes);
  const zp_memory *m = &miss->memory;
  cr_expect_eq(m->weights + m->gradients + m->optimizer + m->saved + m->buffers + m->context, miss->need_bytes);
}

Test(search, a_trillion_parameters_on_800_devices) {
  model_size size = {STYLE_GPT, 51200, 2048, 17408, 298, 128, 128, 4 * 17408, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(50), 2048);
  spec->train.precision = ZP_PREC_MIXED_FP16;
  zp_plan *plan = zp_search(arena, spec, 800, NULL);
  cr_assert(plan->feasible);
  cr_expect(plan->certificate.bound_s <= plan->certificate.best_s);
  cr_expect(plan->certificate.best_s < 1.05 * plan->certificate.searched_s, "gap above 5 %%");
  const zp_choice *c = &plan->best.choice;
  for (int s = 0; s < c->pipeline; s++)
    cr_expect(plan->program->stages[s].arena_bytes + plan->machine.context_bytes <= 0.9 * 34359738368.0);
  cr_expect(c->recompute == ZP_RECOMPUTE_FULL && (c->recompute_shard || c->sequence));
}
