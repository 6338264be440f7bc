/* SPDX-License-Identifier: Apache-2.0 */
/* More devices are never worse: a plan may leave some of them out. */
#include "search_instances.h"
#include <zplan/answers.h>

enum { INSTANCES = 36, MOST_DEVICES = 40 };

TestSuite(search_idle, .init = setup, .fini = teardown, .timeout = 1200);

/* A cluster of one node type that is large enough, and constraints that do not ask for a number of devices. */
static zp_spec *random_input(void) {
  int devices;
  zp_spec *spec = random_spec(&devices);
  zp_constraints *c = &spec->plans.data[0];
  c->idle = c->compress = (zp_limit){0};
  return spec;
}

static zp_spec *all_on_device(zp_spec *spec) {
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    spec->plans.data[0].offload[i] = (zp_limit){0};
    allow(&spec->plans.data[0].offload[i], ZP_TIER_DEVICE);
  }
  return spec;
}

Test(search_idle, more_devices_are_never_worse) {
  int better = 0, idle = 0;
  state = 77;
  const int instances = sample_of(INSTANCES);
  for (int i = 0; i < instances; i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    const zp_spec *spec = random_input();
    double before = INFINITY;
    for (int n = 1; n <= MOST_DEVICES; n++) {
      const zp_plan *plan = zp_search(arena, zp_spec_with_devices(arena, spec, n), n, NULL);
      cr_assert(plan->feasible || before == INFINITY, "instance %d: %d devices fit, %d do not", i, n - 1, n);
      if (!plan->feasible) continue;
      const zp_certificate *c = &plan->certificate;
      cr_assert(c->best_s <= before * (1 + 1e-9) || c->bound_s <= before * (1 + 1e-9),
                "instance %d: %.9g s on %d devices, %.9g s on %d", i, before, n - 1, c->best_s, n);
      cr_assert(c->best_s <= before * (1 + 1e-9) || c->best_s > c->bound_s * (1 + ZP_GAP_TOLERANCE),
                "instance %d: proven, and slower than on %d devices", i, n - 1);
      better += c->best_s < before * (1 - 1e-9);
      idle += zp_choice_ranks(&plan->best.choice) < n;
      before = fmin(before, c->best_s);
    }
    zp_arena_rewind(arena, mark);
  }
  cr_expect(better > instances && idle > instances, "%d steps down, %d plans with idle devices", better, idle);
}

/* With offloading, too, where memory is short. */
Test(search_idle, more_devices_are_never_worse_with_offloading) {
  int leaves = 0;
  state = 79;
  for (int i = 0; i < sample_of(INSTANCES) / 3; i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    zp_spec *spec = all_on_device(random_input());
    tighten(spec, 4, 0.5);
    allow(&spec->plans.data[0].offload[random_below(ZP_STATE_COUNT)], 1 + random_below(2));
    double before = INFINITY;
    for (int n = 1; n <= MOST_DEVICES / 2; n++) {
      const zp_plan *plan = zp_search(arena, zp_spec_with_devices(arena, spec, n), n, NULL);
      double now = plan->feasible ? plan->best.estimate.step_s : INFINITY;
      cr_assert(now <= before * (1 + 1e-9) || plan->certificate.bound_s <= before * (1 + 1e-9),
                "instance %d: %g s on %d devices, %g s on %d", i, before, n - 1, now, n);
      for (int k = 0; k < ZP_STATE_COUNT && plan->feasible; k++) leaves += plan->best.choice.home[k].eighths > 0;
      before = fmin(before, now);
    }
    zp_arena_rewind(arena, mark);
  }
  cr_expect(leaves > 0 || sample_of(INSTANCES) < 30, "nothing left the device");
}

/* A plan that keeps all state on the device is never lost. */
Test(search_idle, offloading_is_never_worse_than_none) {
  int better = 0;
  state = 80;
  for (int i = 0; i < 2 * sample_of(INSTANCES); i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    zp_spec *spec = all_on_device(random_input());
    int n = 1 + (int)random_below(30);
    tighten(spec, n, 0.3 + 0.01 * (double)random_below(50));
    const zp_plan *without = zp_search(arena, zp_spec_with_devices(arena, spec, n), n, NULL);
    for (int k = 0; k < ZP_STATE_COUNT; k++) allow(&spec->plans.data[0].offload[k], ZP_TIER_HOST);
    const zp_plan *with = zp_search(arena, zp_spec_with_devices(arena, spec, n), n, NULL);
    cr_assert(with->feasible || !without->feasible, "instance %d", i);
    better += with->feasible && !without->feasible;
    if (without->feasible) cr_assert_leq(with->best.estimate.step_s, without->best.estimate.step_s * (1 + 1e-9));
    zp_arena_rewind(arena, mark);
  }
  cr_expect_gt(better, 0);
}

Test(search_idle, who_uses_all_devices) {
  zp_cluster gpus = gpu_cluster(1), cpus = cpu_cluster();
  zp_constraints c = {0};
  cr_expect_not(zp_uses_all_devices(&c, &gpus));
  cr_expect(zp_uses_all_devices(&c, &cpus));
  c.idle = (zp_limit){.set = true, .high = 4};
  cr_expect_not(zp_uses_all_devices(&c, &cpus));
  c.idle.high = 0;
  cr_expect(zp_uses_all_devices(&c, &gpus));
  c.idle = (zp_limit){0};
  allow(&c.idle, 0);
  cr_expect(zp_uses_all_devices(&c, &gpus));
  allow(&c.idle, 3);
  cr_expect_not(zp_uses_all_devices(&c, &cpus));
}

/* What `offload[...]` may say. */
Test(search_idle, which_state_may_leave) {
  zp_limit limit = {0};
  cr_expect_not(zp_limit_leaves_device(&limit), "unwritten: on the device");
  allow(&limit, ZP_TIER_DEVICE);
  cr_expect_not(zp_limit_leaves_device(&limit));
  allow(&limit, ZP_TIER_NVME);
  cr_expect(zp_limit_leaves_device(&limit));
}

/* A plan for N devices of which it uses n is the plan for n devices. */
Test(search_idle, idle_devices_change_nothing) {
  int compared = 0;
  state = 78;
  for (int i = 0; i < 4 * sample_of(INSTANCES); i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    zp_spec *spec = random_input();
    int n = 5 + (int)random_below(30);
    const zp_plan *plan = zp_search(arena, zp_spec_with_devices(arena, spec, n), n, NULL);
    int used = plan->feasible ? zp_choice_ranks(&plan->best.choice) : n;
    if (used < n) {
      spec->plans.data[0].idle = (zp_limit){.set = true};
      const zp_plan *all = zp_search(arena, zp_spec_with_devices(arena, spec, used), used, NULL);
      cr_assert(all->feasible);
      cr_expect_float_eq(all->best.estimate.step_s / plan->best.estimate.step_s, 1, 1e-9, "instance %d", i);
      cr_expect_eq(all->best.estimate.peak_bytes, plan->best.estimate.peak_bytes, "instance %d", i);
      compared++;
    }
    zp_arena_rewind(arena, mark);
  }
  cr_expect(compared > sample_of(INSTANCES) / 2, "%d", compared);
}

/* Equally fast plans: the one with fewer devices. One sequence a step keeps one data rank busy, and one layer one
 * stage. */
Test(search_idle, of_equal_plans_the_smaller_one) {
  model_size size = {.style = STYLE_GPT, .V = 64, .S = 16, .d = 16, .heads = 4, .kv_heads = 4, .layers = 2, .ff = 64};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(2), 1);
  spec->plans.data[0].tensor = (zp_limit){.set = true, .low = 1, .high = 1};
  spec->plans.data[0].pipeline = (zp_limit){.set = true, .low = 1, .high = 1};
  const zp_plan *plan = zp_search(arena, spec, 13, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(zp_plan_idle(plan, &plan->best.choice), 12);
  cr_expect_eq(plan->certificate.bound_s, plan->certificate.best_s);
}
