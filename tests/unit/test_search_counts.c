/* SPDX-License-Identifier: Apache-2.0 */
/* More devices are never worse on large counts, primes included; test_search_idle.c has every small one. With
 * ZPLAN_LONG in the environment twice as many counts (tests/long.sh). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <zplan/answers.h>
#include <zplan/plan.h>
#include "../support/user_spec.h"

static const int few[] = {499, 512, 797, 800, 1021, 16384},
                 many[] = {101, 499, 512, 797, 800, 1021, 1536, 3001, 4096, 9973, 16384, 20000};

static const zp_spec *load(zp_arena *arena, const char *file, const char **set, int n_set) {
  const zp_spec *spec = user_spec_on(arena, zp_format(arena, ZPLAN_SOURCE_DIR "/examples/%s", file), 0, set, n_set);
  cr_assert(spec, "%s does not load", file);
  return spec;
}

/* A gap is the one excuse. n_few: of the counts above. */
static void expect_never_worse(const char *file, const char **set, int n_set, int n_few) {
  bool is_long = getenv("ZPLAN_LONG") != NULL;
  const int *counts = is_long ? many : few;
  int n_counts = is_long ? (int)(sizeof many / sizeof *many) : n_few;
  double before = INFINITY;
  int better = 0, idle = 0;
  for (int i = 0; i < n_counts; i++) {
    zp_arena *arena = zp_arena_new("counts");
    const zp_spec *spec = zp_spec_with_devices(arena, load(arena, file, set, n_set), counts[i]);
    const zp_plan *plan = zp_search(arena, spec, counts[i], &(zp_search_options){.top = 0});
    cr_assert(plan->feasible || before == INFINITY, "%s: fewer than %d devices fit", file, counts[i]);
    if (plan->feasible) {
      const zp_certificate *c = &plan->certificate;
      cr_assert(c->best_s <= before * (1 + 1e-9) || (c->best_s > c->bound_s && c->bound_s <= before * (1 + 1e-9)),
                "%s: %.9g s on %d devices, %.9g s on %d", file, before, counts[i > 0 ? i - 1 : 0], c->best_s,
                counts[i]);
      better += c->best_s < before * (1 - 1e-9);
      idle += zp_plan_idle(plan, &plan->best.choice) > 0;
      before = fmin(before, c->best_s);
    }
    zp_arena_free(arena);
  }
  cr_expect(better > n_counts / 3 && idle >= 2, "%s: %d steps down, %d plans with idle devices", file, better, idle);
}

Test(search_counts, a_trillion_parameters, .timeout = 1200) {
  const char *set[] = {"zero<=1", "schedule=\"1f1b\"", "sequence=false", "cut=\"layer\""};
  expect_never_worse("gpt1t.dz", set, 4, 6);
}

/* 48 layers: most counts of stages divide nothing. */
Test(search_counts, forty_eight_layers, .timeout = 1200) {
  const char *set[] = {"zero<=1", "schedule=\"1f1b\"", "sequence=false", "model.layers=48"};
  expect_never_worse("gpt1t.dz", set, 4, 6);
}

/* Half the memory, so that state leaves the device, and one class that may. */
Test(search_counts, state_off_the_device, .timeout = 1200) {
  const char *set[] = {"zero<=1",       "schedule=\"1f1b\"", "sequence=false",
                       "cut=\"layer\"", "memory<=50%",       "offload[optimizer] in [\"none\", \"cpu\"]"};
  expect_never_worse("gpt1t.dz", set, 6, 5);
}
