/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of the search against the simulation, what is monotone, and its options. Small random instances. */
#include "search_instances.h"
#include "../../planner/search/bounds/cut.h"
#include "../../planner/search/bounds/cut_problem.h"

enum { INSTANCES = 1000, PARTIAL_PLANS = 100000 };

TestSuite(search_bounds, .init = setup, .fini = teardown, .timeout = 1200);

/* ---- bounds ---- */

typedef struct trial {
  zp_search_progress progress;
  zp_spec *spec;
  int devices;
} trial;

static void random_degrees(zp_choice *c, int devices, int64_t units) {
  do c->tensor = 1 + (int)random_below(devices);
  while (devices % c->tensor);
  do c->pipeline = 1 + (int)random_below(devices / c->tensor);
  while (devices / c->tensor % c->pipeline || c->pipeline > units);
  c->data = devices / c->tensor / c->pipeline;
}

static int mixed_stages;

static bool random_point(trial *t, zp_point *point) {
  zp_choice c = {.zero = (int)random_below(4), .microbatch = 1 << random_below(2)};
  c.order = (zp_rank_order)random_below(ZP_ORDER_COUNT);
  random_degrees(&c, t->devices, t->progress.in->most_units);
  c.fine = c.pipeline > 1 && random_below(2);
  if (t->spec->train.batch % (c.data * c.microbatch)) return false;
  c.schedule = (zp_schedule)random_below(ZP_SCHEDULE_COUNT);
  if (zp_schedule_folds(c.schedule)) c.chunks = 2;
  if (c.schedule == ZP_SCHEDULE_INTERLEAVED) c.chunks = 2 + (int)random_below(3);
  c.sequence = c.tensor > 1 && random_below(2);
  c.compress = c.data > 1 && c.zero == 0 && random_below(4) == 0;
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (random_below(6) == 0 && !(c.compress && (i == ZP_STATE_GRADIENTS || i == ZP_STATE_PARAMS)))
      c.home[i] = (zp_home){random_below(2) ? ZP_TIER_HOST : ZP_TIER_NVME, 1 + (int)random_below(8)};
  if (!c.compress && random_below(40) == 0) /* units that take no memory at all */
    for (int i = 0; i < ZP_STATE_COUNT; i++) c.home[i] = (zp_home){ZP_TIER_HOST, ZP_EIGHTHS};
  if (zp_choice_refusal(&c, t->spec)) return false;
  zp_mode_set modes = zp_set_of_mode((zp_stage_mode)random_below(3)), more = (zp_mode_set)random_below(8);
  if (c.tensor > 1 && !c.sequence && random_below(4) == 0) more |= zp_set_of_mode(ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT);
  return zp_search_point(t->progress.s, &c, modes | more, point) &&
         zp_model_chunks(&c) <= zp_point_units(t->progress.s, point);
}

static void random_cut(int64_t *cut, int chunks, int64_t units) {
  cut[0] = 0, cut[chunks] = units;
  for (int k = 1; k < chunks; k++) {
    int64_t most = units - (chunks - k) - cut[k - 1], mean = 2 * (units - cut[k - 1]) / (chunks - k + 1);
    cut[k] = cut[k - 1] + 1 + random_below(mean < most ? mean : most);
  }
}

/* Where one mode has room, all together have. */
static void check_rooms(trial *t, const zp_point *point, int64_t limit_bytes) {
  t->progress.s->limit_bytes = limit_bytes;
  zp_point all = *point;
  bool has_room = zp_find_least_work(t->progress.s, &all, ZP_ASK_WORK);
  for (int i = 0; i < point->n_modes && !has_room; i++) {
    zp_point one;
    zp_search_point(t->progress.s, &point->choice, zp_set_of_mode(t->progress.s->variants.data[point->modes[i]].mode),
                    &one);
    cr_assert(!zp_find_least_work(t->progress.s, &one, ZP_ASK_WORK), "mode %d of %d has room", i, point->n_modes);
  }
}

/* What provers are told of chunks whose stages are not known yet, against those of a program, in whatever modes. */
static void check_chunks(zp_arena *scratch, const trial *t, const zp_point *point, const zp_program *program) {
  const zp_choice *c = &program->choice;
  const zp_cut_problem *problem = zp_cut_problem_of(scratch, t->progress.s, point);
  for (int s = 0; s < c->pipeline; s++) {
    const zp_lowered *lowered = zp_program_lowered(program, s);
    double alongside = 0, reduce = 0;
    for (int k = 0; k < zp_cut_places(problem); k++) {
      if (problem->stage_of[k] != s) continue;
      zp_cut_cost least = problem->least(problem->user, c->cut[k], c->cut[k + 1]);
      zp_stage_time time =
          zp_cost_chunk(lowered, &t->progress.s->machine, c, &program->stages[s], problem->chunk_of[k]);
      double weights = problem->split ? time.weights_s : 0, more = 1 + 1e-12;
      double rounding = 1e-12 * (time.forward_s + time.backward_s); /* leasts are differences of sums */
      cr_assert(least.forward_s <= time.forward_s * more && least.weights_s <= weights * more + rounding &&
                    least.backward_s <= (time.backward_s - weights) * more + rounding,
                "%s, ZeRO %d, chunk %d of %d: %.9g, %.9g, %.9g of %.9g, %.9g, %.9g", zp_schedule_name(c->schedule),
                c->zero, k, zp_cut_places(problem), least.forward_s, least.backward_s, least.weights_s, time.forward_s,
                time.backward_s - weights, weights);
      reduce += least.reduce_s;
      alongside += zp_cost_overlapped(c, &time);
    }
    double summed = zp_cost_least_stage_end(program, &t->progress.s->machine, s, alongside).reduce_s;
    cr_assert(reduce <= summed * (1 + 1e-9) + 1e-15, "%s, ZeRO %d, stage %d of %d: sum %.9g of %.9g",
              zp_schedule_name(c->schedule), c->zero, s, c->pipeline, reduce, summed);
  }
}

/* What stages cost does not depend on what was asked for before: cuts that differ in one end. */
static void check_stages(zp_arena *scratch, const trial *t, const zp_point *point, const int64_t *cut) {
  const zp_cut_problem *asked = zp_cut_problem_of(scratch, t->progress.s, point);
  int places = zp_cut_places(asked);
  int64_t *other = ZP_NEW_ARRAY(scratch, int64_t, places + 1), work;
  for (int moved = 0; moved < places; moved++) {
    const zp_cut_problem *fresh = zp_cut_problem_of(scratch, t->progress.s, point);
    memcpy(other, cut, sizeof *cut * (size_t)(places + 1));
    if (moved > 0 && cut[moved + 1] - cut[moved] > 1) other[moved]++;
    for (int s = 0; s < asked->stages; s++) {
      zp_cut_cost a[ZP_CUT_MOST_CHUNKS] = {0}, b[ZP_CUT_MOST_CHUNKS] = {0};
      bool fits = asked->stage(asked->user, s, other, a, &work);
      cr_assert(fits == fresh->stage(fresh->user, s, other, b, &work) && memcmp(a, b, sizeof a) == 0,
                "stage %d of %d, end %d moved", s, asked->stages, moved);
    }
  }
}

/* Sometimes the layers of a stage after some first ones are in another mode. */
static const zp_variant *mixed_or_not(trial *t, const zp_point *point, const zp_variant *first, int64_t layers) {
  const zp_variant *rest = &t->progress.s->variants.data[point->modes[random_below(point->n_modes)]];
  if (layers < 2 || first->mode == rest->mode || !zp_may_mix(t->progress.s, point)) return first;
  if (random_below(3) == 0) return first;
  mixed_stages++;
  return zp_mixed_variant(t->progress.s, first, rest, 1 + random_below(layers - 1));
}

static void check_bounds(trial *t, zp_point *point) {
  zp_arena *scratch = zp_arena_new("bounds");
  int chunks = zp_model_chunks(&point->choice);
  zp_choice c = point->choice;
  c.cut = ZP_NEW_ARRAY(scratch, int64_t, chunks + 1);
  random_cut(c.cut, chunks, zp_point_units(t->progress.s, point));
  if (c.chunks > 1 && !point->every_cut) /* bounds hold for the cuts of the space */
    cr_assert(zp_state_cut(t->progress.s, point, (int)random_below(point->n_modes), random_below(2), c.cut));
  const zp_variant **own = ZP_NEW_ARRAY(scratch, const zp_variant *, c.pipeline);
  for (int i = 0; i < c.pipeline; i++) {
    own[i] =
        zp_on_stage(t->progress.s, &c, &t->progress.s->variants.data[point->modes[random_below(point->n_modes)]], i);
    own[i] = mixed_or_not(t, point, own[i],
                          chunks == c.pipeline ? zp_stage_layers(own[i]->lowered, c.cut[i], c.cut[i + 1]) : 0);
  }
  c = zp_choice_of_cut(t->progress.s, point, c.cut, own);
  const zp_program *program = zp_program_make(scratch, zp_search_stages(t->progress.s, &c), &c);
  int64_t most = 0, host = 0, nvme = 0;
  for (int s = 0; s < c.pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    if (stage->arena_bytes > most) most = stage->arena_bytes;
    if (stage->memory.host > host) host = stage->memory.host;
    if (stage->memory.nvme > nvme) nvme = stage->memory.nvme;
  }
  if (!point->choice.fine && random_below(8) == 0) check_rooms(t, point, random_below(most));
  t->progress.s->limit_bytes = most; /* what memory forces is a bound of plans that fit */
  zp_point quick = *point;
  bool has_room = zp_find_least_work(t->progress.s, &quick, ZP_ASK_WORK);
  cr_assert(has_room == zp_find_least_work(t->progress.s, point, ZP_ASK_ALL) && quick.work_s == point->work_s &&
                has_room,
            "%s, %d x %d x %d: room %d, work %.9g and %.9g", zp_schedule_name(c.schedule), c.tensor, c.pipeline, c.data,
            has_room, quick.work_s, point->work_s);
  t->progress.s->host_bytes = host;
  cr_assert(zp_hosts_have_room(t->progress.s, point),
            "%s, %d x %d x %d, zero %d, %d eighths of saved values: no room in %lld", zp_schedule_name(c.schedule),
            c.tensor, c.pipeline, c.data, c.zero, c.home[ZP_STATE_ACTIVATIONS].eighths, (long long)host);
  double step = zp_simulate(scratch, program, &t->progress.s->machine).step_s;
  double whole = zp_bound(t->progress.s, point), of_cut = zp_bound_of_cut(t->progress.s, point, c.cut, own, HUGE_VAL);
  cr_assert(whole <= step && of_cut <= step && whole <= of_cut,
            "%s, %d x %d x %d, zero %d, chunks %d, %lld micro-batches: bounds %.9g, %.9g of %.9g",
            zp_schedule_name(c.schedule), c.tensor, c.pipeline, c.data, c.zero, c.chunks,
            (long long)program->microbatches, whole, of_cut, step);
  cr_assert(zp_memory_floor(t->progress.s, point) <= most);
  zp_limits offloaded = zp_offloaded_floor(t->progress.s, point);
  cr_assert(offloaded.host <= host && offloaded.nvme <= nvme,
            "ZeRO %d, expert %d: %lld of %lld bytes on the host, %lld of %lld", c.zero, c.expert,
            (long long)offloaded.host, (long long)host, (long long)offloaded.nvme, (long long)nvme);
  if (c.chunks > 1) {
    double any = zp_bound_any_chunks(t->progress.s, point, true, 2 * step) + zp_bound_step_end(t->progress.s, point);
    cr_assert(any <= step, "%s, %d x %d x %d: any cut %.9g of %.9g", zp_schedule_name(c.schedule), c.tensor, c.pipeline,
              c.data, any, step);
    zp_point unbounded = *point;
    unbounded.bound_s = 0;
    double chains =
        zp_bound_before_cuts(scratch, t->progress.s, &unbounded, zp_bound_step_end(t->progress.s, point), 3 * step);
    cr_assert(chains <= step && chains > zp_bound_step_end(t->progress.s, point),
              "%s, %d x %d x %d: chains %.9g of %.9g", zp_schedule_name(c.schedule), c.tensor, c.pipeline, c.data,
              chains, step);
    check_chunks(scratch, t, point, program);
    if (random_below(32) == 0) check_stages(scratch, t, point, c.cut);
  }
  double end = zp_bound_step_end(t->progress.s, point), of_homes = zp_bound_end_of_homes(t->progress.s, point);
  cr_assert(of_homes <= end && zp_bound_moving(t->progress.s, point) + of_homes <= step, "end of step: %.9g of %.9g",
            of_homes, end);
  double least = zp_cost_step_least(scratch, program, &t->progress.s->machine);
  cr_assert(least <= step && least > 0.2 * step, "%s, %d stages, chunks %d, %lld micro-batches: %.9g of %.9g",
            zp_schedule_name(c.schedule), c.pipeline, c.chunks, (long long)program->microbatches, least, step);
  zp_arena_free(scratch);
}

static void expect_bounds(bool mixed, bool freezes, int all) {
  const int plans = sample_of(all);
  int checked = 0;
  while (checked < plans) {
    trial t = {0};
    zp_arena_mark mark = zp_arena_get_mark(arena);
    t.spec = random_spec_on(mixed, &t.devices);
    if (freezes) freeze_some(t.spec);
    name_every_schedule(t.spec);
    zp_machine machine = zp_machine_make(&t.spec->cluster, t.spec->train.precision, t.devices);
    zp_search_start(&t.progress, t.spec, &machine, NULL);
    for (int k = 0; k < 400; k++) {
      zp_point point;
      if (!random_point(&t, &point)) continue;
      check_bounds(&t, &point);
      checked++;
    }
    zp_search_end(&t.progress);
    zp_arena_rewind(arena, mark);
  }
}

Test(search_bounds, bounds_are_below_the_simulation) {
  state = 2;
  expect_bounds(false, false, PARTIAL_PLANS);
  cr_expect_gt(mixed_stages, PARTIAL_PLANS / 200, "%d mixed stages", mixed_stages);
}

Test(search_bounds, bounds_are_below_the_simulation_with_frozen_parameters) {
  state = 12;
  expect_bounds(false, true, PARTIAL_PLANS / 2);
}

Test(search_bounds, bounds_are_below_the_simulation_on_mixed_nodes) {
  state = 6;
  expect_bounds(true, false, PARTIAL_PLANS / 4);
}

/* ---- what is monotone ---- */

static double best_s(zp_spec *spec, int devices) {
  const zp_plan *plan = zp_search(arena, spec, devices, NULL);
  return plan->feasible ? plan->best.estimate.step_s : INFINITY;
}

/* Some classes may leave the device, of the host or of disks. */
static void allow_offload(zp_constraints *c) {
  for (int k = 0; k < ZP_STATE_COUNT; k++) {
    c->offload[k] = (zp_limit){0};
    allow(&c->offload[k], ZP_TIER_DEVICE);
    if (random_below(2)) allow(&c->offload[k], ZP_TIER_HOST);
    if (random_below(4) == 0) allow(&c->offload[k], ZP_TIER_NVME);
  }
}

/* More memory, of the device or of the host, only adds plans to the space, wherever state may be. */
static void expect_more_memory_is_never_worse(bool offload, int64_t *grows, zp_spec *spec, int devices, int *leaves) {
  double before = INFINITY;
  if (offload) allow_offload(&spec->plans.data[0]);
  for (int k = 0; k < 4; k++) {
    const zp_plan *plan = zp_search(arena, spec, devices, NULL);
    double now = plan->feasible ? plan->best.estimate.step_s : INFINITY;
    cr_assert(now <= before * (1 + 1e-9), "%g after %g", now, before);
    for (int i = 0; i < ZP_STATE_COUNT && plan->feasible; i++) *leaves += plan->best.choice.home[i].eighths > 0;
    before = now;
    *grows *= 2;
  }
}

Test(search_bounds, more_memory_is_never_worse) {
  int leaves = 0, devices;
  state = 3;
  const int instances = sample_of(INSTANCES / 5);
  for (int i = 0; i < instances; i++) {
    zp_spec *spec = random_spec(&devices);
    for (int k = 0; k < ZP_STATE_COUNT; k++) spec->plans.data[0].offload[k] = (zp_limit){0};
    expect_more_memory_is_never_worse(false, &spec->cluster.node.device.memory_bytes, spec, devices, &leaves);
  }
  cr_assert_eq(leaves, 0);
  for (int i = 0; i < instances + 8; i++) {
    zp_spec *spec = random_spec(&devices);
    tighten(spec, devices, 0.3);
    zp_node_type *node = &spec->cluster.node;
    expect_more_memory_is_never_worse(true, i % 2 ? &node->host_memory_bytes : &node->device.memory_bytes, spec,
                                      devices, &leaves);
  }
  cr_expect(leaves > instances / 5, "%d classes off the device", leaves);
}

/* Classes of state leave the device in a fixed order, each when those before it that may leave are gone (homes.c), so
 * allowing one takes plans away where a later one may leave already: it is done only where none may. */
static void allow_next_class(zp_constraints *c) {
  int next = random_below(ZP_STATE_COUNT);
  for (int later = next + 1; later < ZP_STATE_COUNT; later++)
    if (zp_limit_leaves_device(&c->offload[later])) return;
  allow(&c->offload[next], ZP_TIER_HOST);
}

/* Faster devices and wider constraints never hurt, either. */
Test(search_bounds, wider_constraints_are_never_worse) {
  state = 4;
  for (int i = 0; i < sample_of(INSTANCES / 5); i++) {
    int devices;
    zp_spec *spec = random_spec(&devices);
    zp_constraints *c = &spec->plans.data[0];
    double narrow = best_s(spec, devices);
    allow(&c->schedule, random_below(ZP_SCHEDULE_COUNT));
    allow(&c->zero, random_below(4));
    if (c->recompute.set) allow(&c->recompute, random_below(3));
    allow_next_class(c);
    double wide = best_s(spec, devices);
    cr_assert(wide <= narrow * (1 + 1e-9), "instance %d: %g, wider %g", i, narrow, wide);
  }
}

/* ---- options ---- */

Test(search_bounds, generated_only_says_what_is_not_generated) {
  model_size size = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 8);
  spec->cluster.node.host_memory_bytes = INT64_C(1) << 32;
  spec->cluster.node.host_bytes_per_s = 100e9, spec->cluster.node.pcie_bytes_per_s = 10e9;
  spec->cluster.trainer = ZP_TRAINER_NONE; /* the option alone asks for zplan's program, which offloads nothing */
  zp_constraints *c = &spec->plans.data[0];
  pin(&c->tensor, 2), pin(&c->sequence, 1);
  pin(&c->offload[ZP_STATE_GRADIENTS], ZP_TIER_HOST), pin(&c->offload[ZP_STATE_OPTIMIZER], ZP_TIER_HOST);
  zp_search_options options = {.generated_only = true};
  zp_plan *plan = zp_search(arena, spec, 4, &options);
  cr_expect(!plan->feasible);
  cr_assert_not_null(plan->why_not);
  cr_expect(strstr(plan->why_not, "not in the program that the plan is for"), "%s", plan->why_not);
  plan = zp_search(arena, spec, 4, NULL);
  cr_assert(plan->feasible);
  cr_expect(plan->best.choice.sequence);
}

Test(search_bounds, cpu_clusters_plan_what_is_generated) {
  model_size size = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};
  zp_plan *plan = zp_search(arena, build_spec(arena, &size, cpu_cluster(), 8), 4, NULL);
  cr_assert(plan->feasible);
  cr_expect_null(zp_choice_lacking(&plan->best.choice));
}

Test(search_bounds, a_gap_is_kept) {
  model_size size = {STYLE_GPT, 512, 64, 128, 20, 4, 4, 512, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 64);
  double best = zp_search(arena, spec, 16, NULL)->best.estimate.step_s;
  zp_search_options options = {.gap = 0.05};
  const zp_plan *plan = zp_search(arena, spec, 16, &options);
  cr_expect(plan->best.estimate.step_s <= 1.05 * best);
  cr_expect(plan->certificate.bound_s <= best);
}

/* Early stages keep more micro-batches: as memory shrinks they recompute first, and never less than a later stage of
 * as many layers. */
Test(search_bounds, early_stages_recompute_first) {
  model_size size = {STYLE_GPT, 64, 64, 128, 16, 4, 4, 512, false};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 32);
  zp_constraints *c = &spec->plans.data[0];
  pin(&c->tensor, 1), pin(&c->pipeline, 4), pin(&c->microbatch, 1), pin(&c->zero, 0);
  pin(&c->schedule, ZP_SCHEDULE_1F1B), pin(&c->cut, 0); /* as many units are then as many bytes */
  zp_plan *plan = zp_search(arena, spec, 4, NULL);
  cr_assert(plan->feasible && !plan->best.choice.stage_recompute && plan->best.choice.recompute == ZP_RECOMPUTE_NONE);
  double before = plan->best.estimate.step_s;
  int mixed = 0;
  for (int64_t peak = plan->best.estimate.peak_bytes; plan->feasible; peak = plan->best.estimate.peak_bytes) {
    spec->cluster.node.device.memory_bytes = (int64_t)((double)(peak - 1000) / c->memory_fraction);
    plan = zp_search(arena, spec, 4, NULL);
    if (!plan->feasible) break;
    const zp_choice *choice = &plan->best.choice;
    cr_expect(plan->best.estimate.step_s >= before);
    before = plan->best.estimate.step_s;
    mixed += choice->stage_recompute != NULL;
    for (int s = 1; s < 4; s++) {
      int64_t here = choice->cut[s + 1] - choice->cut[s], earlier = choice->cut[s] - choice->cut[s - 1];
      bool keeps_all = zp_choice_mode(choice, s - 1) == ZP_RECOMPUTE_NONE;
      cr_expect(!keeps_all || here > earlier || s == 3 || zp_choice_mode(choice, s) == ZP_RECOMPUTE_NONE);
    }
  }
  cr_expect(mixed > 2, "%d mixed plans", mixed);
}

Test(search_bounds, a_home_without_the_device_takes_all) {
  model_size size = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 8);
  spec->cluster.node.host_memory_bytes = INT64_C(1) << 32;
  spec->cluster.node.host_bytes_per_s = 100e9, spec->cluster.node.pcie_bytes_per_s = 10e9;
  pin(&spec->plans.data[0].offload[ZP_STATE_OPTIMIZER], ZP_TIER_HOST);
  zp_plan *plan = zp_search(arena, spec, 1, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->best.choice.home[ZP_STATE_OPTIMIZER].eighths, 8);
  cr_expect_eq(plan->best.choice.home[ZP_STATE_OPTIMIZER].tier, ZP_TIER_HOST);
}

Test(search_bounds, offload_takes_the_least_share_that_fits) {
  model_size size = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};
  zp_cluster c = gpu_cluster(1);
  c.node.device.context_bytes = 1000;
  c.node.host_memory_bytes = INT64_C(1) << 32;
  /* The host takes longer over an eighth of the update than the device over all of it: nothing leaves for speed. */
  c.node.host_bytes_per_s = 100e9, c.node.pcie_bytes_per_s = 1e9;
  zp_spec *spec = build_spec(arena, &size, c, 8);
  zp_limit *optimizer = &spec->plans.data[0].offload[ZP_STATE_OPTIMIZER];
  *optimizer = (zp_limit){0};
  allow(optimizer, ZP_TIER_DEVICE);
  allow(optimizer, ZP_TIER_HOST);
  pin(&spec->plans.data[0].recompute, ZP_RECOMPUTE_FULL);
  pin(&spec->plans.data[0].microbatch, 1);
  zp_plan *plan = zp_search(arena, spec, 1, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->best.choice.home[ZP_STATE_OPTIMIZER].eighths, 0, "everything fits on the device");
  int64_t state_bytes = plan->program->stages[0].memory.optimizer;
  spec->cluster.node.device.memory_bytes =
      (int64_t)((double)(plan->best.estimate.peak_bytes - state_bytes / 3) / spec->plans.data[0].memory_fraction) + 1;
  plan = zp_search(arena, spec, 1, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->best.choice.home[ZP_STATE_OPTIMIZER].eighths, 3, "a third has to leave: three eighths do");
  cr_expect_eq(plan->best.choice.home[ZP_STATE_OPTIMIZER].tier, ZP_TIER_HOST);
  spec->cluster.node.host_memory_bytes = 1000;
  plan = zp_search(arena, spec, 1, NULL);
  cr_expect(!plan->feasible && plan->certificate.rejected[ZP_REJECT_HOST] > 0, "the host has no room");
}

/* Choices that differ in one thing are distinguished, in either order. */
static void expect_before(const zp_choice *first, const zp_choice *second, const char *what) {
  cr_expect(zp_choice_compare(first, second) < 0, "%s", what);
  cr_expect(zp_choice_compare(second, first) > 0, "%s, the other way round", what);
}

Test(search_bounds, equally_fast_choices_have_an_order) {
  zp_choice base = {.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 1, .chunks = 1}, other = base;
  cr_expect(zp_choice_compare(&base, &other) == 0);
  other.order = (zp_rank_order)(ZP_ORDER_COUNT - 1);
  expect_before(&base, &other, "order of ranks");
  other = base;
  other.fine = true;
  expect_before(&base, &other, "cuts inside layers");
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    other = base;
    other.home[i].eighths = 1;
    expect_before(&base, &other, "share off the device");
    other = base;
    other.home[i].tier = ZP_TIER_NVME;
    expect_before(&base, &other, "place");
  }
  zp_choice left = base; /* the order of ranks comes before the homes */
  left.home[0].eighths = 1;
  other = base;
  other.fine = true;
  expect_before(&left, &other, "homes come last");
}
