/* Answers: sizes, why not, relaxations, sensitivity, Pareto front. What an answer promises is planned again here. */
#include <math.h>
#include <zplan/answers.h>
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(answers, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};

/* Nodes of 4 devices that hold `mega` MB each, nothing outside the arena to speak of. */
static zp_spec *gpu_spec(int nodes, int64_t mega) {
  zp_cluster c = gpu_cluster(nodes);
  c.node.devices = 4;
  c.node.device.memory_bytes = mega * 1000000;
  c.node.device.context_bytes = 1000;
  return build_spec(arena, &TINY, c, 16);
}

static zp_plan *search(const zp_spec *spec, int devices) { return zp_search(arena, spec, devices, NULL); }

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
  zp_ints counts = zp_sweep_counts(arena, gpu_spec(4, 100), 1, 20000);
  cr_expect_leq(counts.len, ZP_SWEEP_SIZES);
  cr_expect_eq(counts.data[0], 1);
  cr_expect_eq(counts.data[counts.len - 1], 20000);
  for (int i = 1; i < counts.len; i++) cr_expect_lt(counts.data[i - 1], counts.data[i]);
}

Test(answers, a_sweep_says_what_a_search_says) {
  zp_spec *spec = gpu_spec(1, 3);
  zp_sizes sizes = zp_sweep(arena, spec, 1, 8);
  cr_assert_eq(sizes.len, 4);
  bool some_miss = false;
  for (int i = 0; i < sizes.len; i++) {
    const zp_size *s = &sizes.data[i];
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

/* At every memory: no smaller count of the pass fits, and the bound is one. */
Test(answers, the_fewest_devices_are_the_fewest) {
  for (int64_t mega = 1; mega <= 8; mega *= 2) {
    zp_spec *spec = gpu_spec(1, mega);
    zp_fewest fewest = zp_find_fewest(arena, spec);
    if (!fewest.found) continue;
    int found = fewest.sizes.data[0].devices;
    cr_expect_leq(fewest.lower_bound, found);
    for (int n = 1; n < found; n++) {
      if (n < 4 ? 4 % n : n % 4) continue;
      cr_expect(!search(zp_spec_with_devices(arena, spec, n), n)->feasible, "%d fit, %d were found", n, found);
    }
    for (int i = 1; i < fewest.sizes.len; i++)
      cr_expect(fewest.sizes.data[i].feasible && fewest.sizes.data[i].devices > fewest.sizes.data[i - 1].devices);
    cr_expect_leq(fewest.sizes.len, 4);
  }
}

Test(answers, nothing_fits_anywhere) {
  zp_spec *spec = gpu_spec(1, 1);
  spec->cluster.node.device.memory_bytes = 2000;
  zp_fewest fewest = zp_find_fewest(arena, spec);
  cr_expect(!fewest.found);
}

Test(answers, nodes_without_network_stay_alone) {
  zp_spec *spec = gpu_spec(1, 100);
  cr_expect_eq(zp_most_devices(spec), 20000);
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
  zp_relaxations all = zp_find_relaxations(arena, search(spec, 4));
  cr_assert_gt(all.len, 0);
  cr_expect(strstr(all.data[0].words, "`tensor`"), "%s", all.data[0].words);
  cr_expect(strstr(zp_report_relaxation(arena, &all.data[0]), "it fits: tensor "));
}

Test(answers, feasible_plans_need_no_relaxation) {
  cr_expect_eq(zp_find_relaxations(arena, search(gpu_spec(1, 1000), 4)).len, 0);
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

/* ---- Pareto front ---- */

Test(answers, no_point_of_the_front_beats_another) {
  zp_spec *spec = gpu_spec(1, 1000);
  static const int counts[] = {2, 4, 8};
  zp_pareto front = zp_find_pareto(arena, spec, counts, 3);
  cr_assert_gt(front.len, 2);
  for (int i = 0; i < front.len; i++)
    for (int k = 0; k < front.len; k++) {
      const zp_estimate *a = &front.data[i].candidate.estimate, *b = &front.data[k].candidate.estimate;
      cr_expect(i == k || a->step_s > b->step_s || a->peak_bytes > b->peak_bytes ||
                    front.data[i].devices > front.data[k].devices ||
                    front.data[i].step_device_hours > front.data[k].step_device_hours,
                "%d beats %d", i, k);
      if (k == i + 1) cr_expect_leq(a->step_s, b->step_s);
    }
}

Test(answers, the_front_holds_the_best_plan_of_one_count) {
  zp_spec *spec = gpu_spec(1, 1000);
  int count = 4;
  zp_pareto front = zp_find_pareto(arena, spec, &count, 1);
  cr_assert_gt(front.len, 0);
  cr_expect_eq(front.data[0].candidate.estimate.step_s, search(spec, 4)->best.estimate.step_s);
  for (int i = 1; i < front.len; i++)
    cr_expect_lt((double)front.data[i].candidate.estimate.peak_bytes,
                 0.951 * (double)front.data[i - 1].candidate.estimate.peak_bytes);
}
