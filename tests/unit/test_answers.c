/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: sizes, why not, relaxations, sensitivity, Pareto front. What an answer promises is planned again here. */
#include <math.h>
#include <zplan/answers.h>
#include "planner_models.h"
#include "sample.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(answers, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};

/* Nodes of 4 devices that hold `mega` MB each alongside scratch, nothing outside the arena to speak of. */
static zp_spec *gpu_spec(int nodes, int64_t mega) {
  zp_cluster c = gpu_cluster(nodes);
  c.node.devices = 4;
  c.node.device.memory_bytes = mega * 1000000;
  c.node.device.context_bytes = 1000;
  zp_spec *spec = build_spec(arena, &TINY, c, 16);
  add_scratch(arena, spec);
  return spec;
}

static zp_plan *search(const zp_spec *spec, int devices) { return zp_search(arena, spec, devices, NULL); }

static bool fits(const zp_spec *spec, int devices) {
  return zp_search(arena, spec, devices, &(zp_search_options){.no_miss = true})->feasible;
}

/* ---- sizes ---- */

static void expect_counts(zp_ints counts, const int *want, int n) {
  cr_assert_eq(counts.len, n, "%d counts", counts.len);
  for (int i = 0; i < n; i++) cr_expect_eq(counts.data[i], want[i], "[%d] = %d", i, counts.data[i]);
}

Test(answers, sweep_counts_are_divisors_then_round_numbers_of_nodes) {
  static const int small[] = {1, 2, 4, 8, 12, 16}, ends[] = {3, 4, 8, 9};
  expect_counts(zp_sweep_counts(arena, gpu_spec(4, 100), 1, 16), small, 6);
  expect_counts(zp_sweep_counts(arena, gpu_spec(4, 100), 3, 9), ends, 4);
}

Test(answers, sweep_counts_are_few_and_keep_the_ends) {
  zp_ints counts = zp_sweep_counts(arena, gpu_spec(4, 100), 1, 1 << 20);
  cr_expect_leq(counts.len, ZP_SWEEP_SIZES);
  cr_expect_eq(counts.data[0], 1);
  cr_expect_eq(counts.data[counts.len - 1], 1 << 20);
  for (int i = 1; i < counts.len; i++) cr_expect_lt(counts.data[i - 1], counts.data[i]);
}

Test(answers, a_sweep_says_what_a_search_says) {
  zp_spec *spec = gpu_spec(1, 3);
  zp_ints counts = zp_sweep_counts(arena, spec, 1, 8);
  cr_assert_eq(counts.len, 4);
  bool some_miss = false;
  for (int i = 0; i < counts.len; i++) {
    const zp_size size = zp_plan_size(arena, spec, counts.data[i]), *s = &size;
    zp_plan *plan = search(zp_spec_with_devices(arena, spec, s->devices), s->devices);
    cr_assert_eq(s->feasible, plan->feasible);
    some_miss |= !s->feasible;
    if (!s->feasible) continue;
    cr_expect_eq(s->best.estimate.step_s, plan->best.estimate.step_s);
    cr_expect(fabs(s->run_device_hours - 100 * plan->best.estimate.step_s / 3600 * s->devices) < 1e-12);
    cr_expect_eq(s->run_dollars, 0, "no price was given");
  }
  cr_expect(some_miss, "3 MB are too few for one device");
}

/* At every memory: no smaller count fits, divisors of a node or not, and the bound is one. */
Test(answers, the_fewest_devices_are_the_fewest) {
  for (int64_t mega = 1; mega <= 8; mega *= 2) {
    zp_spec *spec = gpu_spec(1, mega);
    zp_fewest fewest = zp_find_fewest(arena, spec);
    if (!fewest.found) continue;
    int found = fewest.sizes.data[0].devices;
    cr_expect_leq(fewest.lower_bound, found);
    for (int n = 1; n < found; n++) {
      cr_expect(!fits(zp_spec_with_devices(arena, spec, n), n), "%d fit, %d were found", n, found);
    }
    for (int i = 1; i < fewest.sizes.len; i++)
      cr_expect(fewest.sizes.data[i].feasible && fewest.sizes.data[i].devices > fewest.sizes.data[i - 1].devices);
    cr_expect_leq(fewest.sizes.len, 4);
  }
}

Test(answers, nothing_fits_anywhere) {
  zp_spec *spec = gpu_spec(1, 1);
  spec->cluster.node.device.memory_bytes = 2000 + scratch_bytes(spec);
  pin(&spec->plans.data[0].schedule, ZP_SCHEDULE_1F1B), pin(&spec->plans.data[0].microbatch, 1);
  zp_fewest fewest = zp_find_fewest(arena, spec);
  cr_expect(!fewest.found);
}

Test(answers, nodes_without_network_stay_alone) {
  zp_spec *spec = gpu_spec(1, 100);
  cr_expect_eq(zp_most_devices(spec), 1 << 20);
  spec->cluster.node.nics = 0;
  cr_expect_eq(zp_most_devices(spec), 4);
}

Test(answers, offloadable_state_is_not_in_the_bound) {
  zp_spec *spec = gpu_spec(1, 100);
  int64_t parameters = zp_model_parameters(spec->model);
  cr_expect_eq(zp_least_state_bytes(arena, spec), 16 * parameters, "f32 AdamW: 4 + 4 + 8");
  pin(&spec->plans.data[0].offload[ZP_STATE_OPTIMIZER], ZP_TIER_HOST);
  cr_expect_eq(zp_least_state_bytes(arena, spec), 8 * parameters);
}

/* ---- why not ---- */

Test(answers, terms_of_a_slower_plan_sum_to_its_step) {
  zp_spec *spec = gpu_spec(2, 1000), *asked = zp_copy_spec(arena, spec);
  pin(&zp_copied_constraints(asked)->tensor, 4);
  cr_expect(!spec->plans.data[0].tensor.set, "the original is untouched");
  zp_why_not answer = zp_compare(arena, search(spec, 8), search(asked, 8));
  cr_assert(answer.asked->feasible && answer.terms.len >= 7);
  double best = 0, other = 0;
  int last = answer.terms.len - 1;
  for (int i = 0; i < last; i++) best += answer.terms.data[i].best_s, other += answer.terms.data[i].asked_s;
  cr_expect_str_eq(answer.terms.data[last].name, "step");
  cr_expect(fabs(best / answer.terms.data[last].best_s - 1) < 1e-5);
  cr_expect(fabs(other / answer.terms.data[last].asked_s - 1) < 1e-5);
  cr_expect_geq(answer.terms.data[last].asked_s, answer.terms.data[last].best_s);
}

Test(answers, a_plan_that_does_not_fit_names_ranks_and_bytes) {
  zp_spec *spec = gpu_spec(1, 3), *asked = zp_copy_spec(arena, spec);
  pin(&zp_copied_constraints(asked)->data, 4);
  pin(&zp_copied_constraints(asked)->zero, 0);
  zp_plan *best = search(spec, 4);
  cr_assert(best->feasible);
  zp_why_not answer = zp_compare(arena, best, search(asked, 4));
  cr_assert(!answer.asked->feasible);
  cr_expect_eq(answer.short_bytes, answer.asked->miss.need_bytes - answer.asked->miss.have_bytes);
  cr_expect_gt(answer.short_bytes, 0);
  cr_expect(answer.first_rank == 0 && answer.last_rank == 3, "one stage of four ranks");
  cr_expect_gt(answer.nearest.len, 0);
}

/* ---- relaxations ---- */

static const zp_relaxation *find(const zp_relaxations *all, zp_relaxation_kind kind) {
  for (int i = 0; i < all->len; i++)
    if (all->data[i].kind == kind) return &all->data[i];
  return NULL;
}

Test(answers, more_memory_is_enough_and_not_too_much) {
  zp_spec *spec = gpu_spec(1, 1);
  zp_relaxations all = zp_find_relaxations(arena, search(spec, 2));
  const zp_relaxation *r = find(&all, ZP_RELAX_DEVICE_MEMORY);
  cr_assert_not_null(r);
  spec->cluster.node.device.memory_bytes = r->amount;
  zp_plan *plan = search(spec, 2);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->best.estimate.step_s, r->estimate.step_s);
  spec->cluster.node.device.memory_bytes = (int64_t)(0.97 * (double)r->amount);
  cr_expect(!search(spec, 2)->feasible);
}

Test(answers, more_devices_are_enough) {
  zp_spec *spec = gpu_spec(1, 2);
  zp_plan *plan = search(spec, 1);
  cr_assert(!plan->feasible);
  zp_relaxations all = zp_find_relaxations(arena, plan);
  const zp_relaxation *r = find(&all, ZP_RELAX_DEVICES);
  cr_assert_not_null(r);
  int devices = (int)r->amount;
  cr_expect(search(zp_spec_with_devices(arena, spec, devices), devices)->feasible);
}

Test(answers, the_constraint_in_the_way_is_named) {
  zp_spec *spec = gpu_spec(1, 1000);
  pin(&spec->plans.data[0].tensor, 3);
  pin(&spec->plans.data[0].idle, 0);
  zp_relaxations all = zp_find_relaxations(arena, search(spec, 4));
  cr_assert_gt(all.len, 0);
  cr_expect(strstr(all.data[0].words, "`tensor`"), "%s", all.data[0].words);
  cr_expect(strstr(zp_report_relaxation(arena, &all.data[0]), "it fits: tensor "));
}

Test(answers, feasible_plans_need_no_relaxation) {
  cr_expect_eq(zp_find_relaxations(arena, search(gpu_spec(1, 1000), 4)).len, 0);
}

/* Random models and machines on which nothing fits; every promise is planned again, one step less must not do. */
static zp_spec *random_misfit(unsigned *seed) {
  model_size size = TINY;
  size.layers = 2 + (int)(rand_r(seed) % 5);
  zp_cluster c = gpu_cluster(1 + (int)(rand_r(seed) % 3));
  c.node.devices = 1 << rand_r(seed) % 3;
  c.node.device.memory_bytes = 300000 + (int64_t)(rand_r(seed) % 700000);
  c.node.device.context_bytes = 1000;
  zp_spec *spec = build_spec(arena, &size, c, 8 << rand_r(seed) % 3);
  add_scratch(arena, spec);
  if (rand_r(seed) % 2) pin(&spec->plans.data[0].zero, (double)(rand_r(seed) % 2));
  if (rand_r(seed) % 3 == 0) pin(&spec->plans.data[0].recompute, ZP_RECOMPUTE_NONE);
  return spec;
}

static void check_relaxation(const zp_spec *spec, int devices, const zp_relaxation *r) {
  zp_spec *changed = zp_copy_spec(arena, spec);
  if (r->kind == ZP_RELAX_DEVICE_MEMORY) {
    changed->cluster.node.device.memory_bytes = r->amount;
    zp_plan *plan = search(changed, devices);
    cr_assert(plan->feasible, "%s", r->words);
    cr_expect_eq(plan->best.estimate.step_s, r->estimate.step_s);
    changed->cluster.node.device.memory_bytes = r->amount - r->amount / 50;
    cr_expect(!fits(changed, devices), "%s: 2%% less fits too", r->words);
  } else if (r->kind == ZP_RELAX_DEVICES) {
    int more = (int)r->amount, unit = spec->cluster.node.devices;
    cr_expect(fits(zp_spec_with_devices(arena, spec, more), more), "%s", r->words);
    for (int n = devices + 1; n < more; n++) {
      if (n < unit ? unit % n : n % unit) continue;
      cr_expect(!fits(zp_spec_with_devices(arena, spec, n), n), "%d fit, %d were offered", n, more);
    }
  } else if (r->kind == ZP_RELAX_BATCH) {
    changed->train.batch = r->amount;
    cr_expect(fits(changed, devices), "%s", r->words);
  }
}

enum { MISFITS = 24, GROWING = 32 };

Test(answers, relaxations_fit_and_are_the_smallest) {
  unsigned seed = 5;
  int kinds[ZP_RELAX_HOST_MEMORY + 1] = {0};
  const int misfits = sample_of(MISFITS);
  for (int i = 0; i < misfits; i++) {
    zp_spec *spec = random_misfit(&seed);
    int devices = spec->cluster.nodes * spec->cluster.node.devices;
    zp_plan *plan = search(spec, devices);
    if (plan->feasible) continue;
    zp_relaxations all = zp_find_relaxations(arena, plan);
    cr_expect(!all.cut_short && all.work <= 4 * plan->certificate.work + 6000000);
    for (int k = 0; k < all.len; k++) {
      kinds[all.data[k].kind]++;
      check_relaxation(spec, devices, &all.data[k]);
    }
  }
  cr_expect(kinds[ZP_RELAX_DEVICE_MEMORY] >= misfits / 4 && kinds[ZP_RELAX_DEVICES] >= misfits / 4,
            "%d and %d were checked", kinds[ZP_RELAX_DEVICE_MEMORY], kinds[ZP_RELAX_DEVICES]);
}

/* The space only grows with the memory, so the best plan never gets slower. */
Test(answers, more_memory_is_never_worse) {
  unsigned seed = 11;
  for (int i = 0; i < sample_of(GROWING); i++) {
    zp_spec *spec = random_misfit(&seed);
    int devices = spec->cluster.nodes * spec->cluster.node.devices;
    double before = INFINITY;
    for (int doubling = 0; doubling < 5; doubling++) {
      if (doubling)
        spec->cluster.node.device.memory_bytes += spec->cluster.node.device.memory_bytes - scratch_bytes(spec);
      zp_plan *plan = search(spec, devices);
      cr_expect(plan->feasible || before == INFINITY, "more memory no longer fits");
      if (!plan->feasible) continue;
      cr_expect_leq(plan->best.estimate.step_s, before * (1 + 1e-9));
      before = plan->best.estimate.step_s;
    }
  }
}

/* ---- nothing is legal ---- */

static void expect_refusal(const zp_spec *spec, int devices, const char *words) {
  zp_plan *plan = search(spec, devices);
  cr_assert(!plan->feasible && plan->miss.have_bytes == 0, "%s: something is legal", words);
  zp_strings lines = zp_explain_refusals(arena, plan);
  cr_assert_gt(lines.len, 0, "%s: nothing was said", words);
  for (int i = 0; i < lines.len; i++)
    if (strstr(lines.data[i], words)) return;
  cr_expect(false, "\"%s\" is not in \"%s\"", words, lines.data[lines.len - 1]);
}

Test(answers, numbers_that_do_not_divide_are_named) {
  zp_spec *spec = gpu_spec(1, 1000);
  zp_constraints *c = &spec->plans.data[0];
  pin(&c->idle, 0);
  pin(&c->tensor, 3);
  expect_refusal(spec, 4, "tensor 3 does not divide 4 devices; 2 and 4 do");
  pin(&c->tensor, 2);
  pin(&c->data, 1);
  pin(&c->pipeline, 1);
  expect_refusal(spec, 4, "tensor 2 x pipeline 1 x data 1 are 2 devices, which is not 4");
  c->tensor = c->data = (zp_limit){0};
  pin(&c->microbatch, 3);
  expect_refusal(spec, 4, "no allowed micro-batch divides the sequences of a data rank");
}

Test(answers, devices_may_be_left_out) {
  zp_spec *spec = gpu_spec(4, 1000);
  zp_constraints *c = &spec->plans.data[0];
  pin(&c->tensor, 3);
  zp_plan *plan = search(spec, 4);
  cr_assert(plan->feasible);
  cr_expect(plan->devices == 4 && plan->machine.devices == 3 && zp_plan_idle(plan, &plan->best.choice) == 1);
  pin(&c->tensor, 2), pin(&c->pipeline, 2), pin(&c->data, 2);
  expect_refusal(spec, 7, "tensor 2 x pipeline 2 x data 2 are 8 devices, and there are 7");
  pin(&c->idle, 2);
  expect_refusal(spec, 9, "1: outside the limits on `idle`, for example 2 x 2 x 2");
  cr_expect(search(spec, 10)->feasible);
}

/* CPU ranks share what there is: all of those that were asked for are started. */
Test(answers, cpu_ranks_are_left_out_on_request) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 16);
  pin(&spec->plans.data[0].tensor, 2);
  zp_plan *plan = search(spec, 5);
  cr_assert(!plan->feasible);
  zp_relaxations all = zp_find_relaxations(arena, plan);
  const zp_relaxation *r = find(&all, ZP_RELAX_IDLE);
  cr_assert_not_null(r);
  cr_expect(r->amount < 5 && strstr(r->option, "idle >= 0"), "on %lld ranks", (long long)r->amount);
  spec->plans.data[0].idle = (zp_limit){.set = true, .high = INFINITY};
  cr_expect(search(spec, 5)->feasible);
}

/* Asked for more ranks than are fastest: the answer is the plan for the fewer ones. */
Test(answers, fewer_cpu_ranks_may_be_faster) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 16);
  int found = 0;
  for (int ranks = 2; ranks <= 7; ranks++) {
    const zp_spec *asked = zp_spec_with_devices(arena, spec, ranks);
    const zp_plan *all = search(asked, ranks);
    zp_candidate fewer;
    double least = INFINITY;
    for (int n = 1; n < ranks; n++) {
      const zp_plan *plan = search(zp_spec_with_devices(arena, asked, n), n);
      if (plan->feasible) least = fmin(least, plan->best.estimate.step_s);
    }
    if (!all->feasible) continue;
    bool said = zp_find_fewer_ranks(arena, all, &fewer);
    cr_assert_eq(said, least * 1.01 <= all->best.estimate.step_s, "%d ranks", ranks);
    if (!said) continue;
    cr_expect_float_eq(fewer.estimate.step_s / least, 1, 1e-9);
    cr_expect_lt(zp_choice_ranks(&fewer.choice), ranks);
    found++;
  }
  cr_expect_gt(found, 0);
  pin(&spec->plans.data[0].idle, 0);
  zp_candidate none;
  cr_expect_not(zp_find_fewer_ranks(arena, search(spec, 7), &none), "all were asked for in so many words");
}

Test(answers, every_way_to_divide_a_prime_is_counted) {
  zp_spec *spec = gpu_spec(4, 1000);
  pin(&spec->plans.data[0].idle, 0);
  expect_refusal(spec, 13, "none of the 3 ways to divide 13 devices");
  expect_refusal(spec, 13, "data ranks that do not divide the batch of 16, for example 1 x 1 x 13");
  expect_refusal(spec, 13,
                 "more stages than the 10 units of the model, for example 1 x 13 x 1"); /* 4 layers in 2 parts */
  pin(&spec->plans.data[0].cut, 0);
  expect_refusal(spec, 13, "more stages than the 6 units of the model, for example 1 x 13 x 1");
}

Test(answers, decisions_that_do_not_go_together_are_named) {
  zp_spec *spec = gpu_spec(1, 1000);
  zp_constraints *c = &spec->plans.data[0];
  pin(&c->zero, 3);
  pin(&c->compress, 1);
  expect_refusal(spec, 4, "compress does not go with ZeRO 2 and 3");
  c->zero = c->compress = (zp_limit){0};
  pin(&c->sequence, 1);
  pin(&c->tensor, 1);
  expect_refusal(spec, 4, "sequence sharding needs two or more tensor ranks");
  c->sequence = c->tensor = (zp_limit){0};
  pin(&c->chunks, 3);
  pin(&c->schedule, ZP_SCHEDULE_1F1B);
  pin(&c->pipeline, 2);
  expect_refusal(spec, 4, "only interleaved, zb_v and dualpipev have more than one chunk a stage");
}

Test(answers, several_chunks_that_do_not_fit_name_their_bytes) {
  zp_spec *spec = gpu_spec(1, 1);
  spec->cluster.node.device.memory_bytes = 300000 + scratch_bytes(spec);
  pin(&spec->plans.data[0].schedule, ZP_SCHEDULE_ZB_V);
  pin(&spec->plans.data[0].pipeline, 2);
  zp_plan *plan = search(spec, 4);
  cr_assert(!plan->feasible);
  cr_expect_eq(plan->miss.choice.schedule, ZP_SCHEDULE_ZB_V);
  cr_expect_gt(plan->miss.need_bytes, plan->miss.have_bytes);
  cr_expect_gt(plan->miss.have_bytes, 0);
}

/* ---- two plans ---- */

Test(answers, a_plan_is_the_same_as_itself_and_no_other) {
  zp_spec *spec = gpu_spec(2, 1000), *other = zp_copy_spec(arena, spec);
  zp_plan *a = search(spec, 8);
  cr_expect(zp_diff_plans(arena, a, a).same);
  int zero = a->best.choice.zero, tensor = a->best.choice.tensor == 4 ? 2 : 4;
  pin(&zp_copied_constraints(other)->tensor, tensor);
  zp_plan_diff diff = zp_diff_plans(arena, a, search(other, 8));
  cr_expect(!diff.same);
  bool found = false;
  for (int i = 0; i < diff.decisions.len; i++) {
    const zp_decision_pair *d = &diff.decisions.data[i];
    cr_expect_eq(d->same, strcmp(d->a, d->b) == 0);
    if (strcmp(d->name, "tensor") == 0) found = !d->same && atoi(d->b) == tensor;
    if (strcmp(d->name, "zero") == 0) cr_expect_eq(atoi(d->a), zero);
  }
  cr_expect(found, "tensor must differ");
  cr_expect_eq(diff.prices.terms.data[diff.prices.terms.len - 1].best_s, a->best.estimate.step_s);
}

/* ---- sensitivity ---- */

Test(answers, faster_parts_never_make_it_slower) {
  zp_plan *plan = search(gpu_spec(2, 1000), 8);
  zp_sensitivities all = zp_find_sensitivity(arena, plan);
  cr_assert_geq(all.len, 5);
  double step = plan->best.estimate.step_s;
  for (int k = 0; k < all.len; k++) {
    const zp_sensitivity *s = &all.data[k];
    cr_expect(s->low <= 1 && s->high >= 1 && s->low >= 0.5 && s->high <= 2, "%s: %g to %g", s->knob, s->low, s->high);
    double before = INFINITY;
    for (int i = 0; i < ZP_REACTIONS; i++) {
      if (!s->reaction[i].feasible) continue;
      cr_expect_leq(s->reaction[i].best.estimate.step_s, before * (1 + 1e-9), "%s", s->knob);
      before = s->reaction[i].best.estimate.step_s;
      cr_expect((s->reaction[i].factor < 1) == (before >= step * (1 - 1e-9)) || fabs(before / step - 1) < 1e-9, "%s",
                s->knob);
    }
  }
}

Test(answers, one_node_has_no_network_knob) {
  zp_sensitivities all = zp_find_sensitivity(arena, search(gpu_spec(1, 1000), 4));
  for (int k = 0; k < all.len; k++) cr_expect(strcmp(all.data[k].knob, "network card") != 0);
}

/* What a search could not settle within its memory is not known, neither "fits" nor "does not". */
Test(answers, stopped_searches_are_not_known) {
  zp_spec *spec = gpu_spec(1, 1000);
  zp_plan *plan = search(spec, 4);
  int count = 4;
  zp_spec tight = *spec;
  tight.plans.data = ZP_NEW_ARRAY(arena, zp_constraints, spec->plans.len);
  memcpy(tight.plans.data, spec->plans.data, sizeof *tight.plans.data * (size_t)spec->plans.len);
  tight.plans.data[tight.plan].search_memory = 1 << 10;
  plan->spec = &tight;
  zp_sensitivities all = zp_find_sensitivity(arena, plan);
  for (int k = 0; k < all.len; k++) {
    cr_expect(all.data[k].low == 1 && all.data[k].high == 1, "%s", all.data[k].knob);
    for (int i = 0; i < ZP_REACTIONS; i++)
      cr_expect(all.data[k].reaction[i].stopped && !all.data[k].reaction[i].feasible, "%s", all.data[k].knob);
  }
  zp_pareto front = zp_find_pareto(arena, &tight, &count, 1);
  cr_expect(front.points.len == 0 && front.stopped == 1);
}

/* ---- Pareto front ---- */

Test(answers, no_point_of_the_front_beats_another) {
  zp_spec *spec = gpu_spec(1, 1000);
  static const int counts[] = {2, 4, 8};
  zp_pareto front = zp_find_pareto(arena, spec, counts, 3);
  cr_assert_gt(front.points.len, 2);
  for (int i = 0; i < front.points.len; i++)
    for (int k = 0; k < front.points.len; k++) {
      const zp_estimate *a = &front.points.data[i].candidate.estimate, *b = &front.points.data[k].candidate.estimate;
      cr_expect(i == k || a->step_s > b->step_s || a->peak_bytes > b->peak_bytes ||
                    front.points.data[i].devices > front.points.data[k].devices ||
                    front.points.data[i].step_device_hours > front.points.data[k].step_device_hours,
                "%d beats %d", i, k);
      if (k == i + 1) cr_expect_leq(a->step_s, b->step_s);
    }
}

Test(answers, the_front_holds_the_best_plan_of_one_count) {
  zp_spec *spec = gpu_spec(1, 1000);
  int count = 4;
  zp_pareto front = zp_find_pareto(arena, spec, &count, 1);
  cr_assert_gt(front.points.len, 0);
  cr_expect_eq(front.points.data[0].candidate.estimate.step_s, search(spec, 4)->best.estimate.step_s);
  for (int i = 1; i < front.points.len; i++)
    cr_expect_lt((double)front.points.data[i].candidate.estimate.peak_bytes,
                 0.951 * (double)front.points.data[i - 1].candidate.estimate.peak_bytes);
}
