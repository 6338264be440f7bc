/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules: the corners of every curve. */
#include <criterion/criterion.h>
#include "internal.h"

static void expect(const zpr_program *p, int64_t step, double want) {
  double got = zpr_learning_rate(p, step);
  cr_assert_float_eq(got, want, 1e-15, "step %lld: %.17g, expected %.17g", (long long)step, got, want);
}

Test(schedule, constant_after_warmup) {
  zpr_program p = {.lr = 0.8, .min_lr = 0.1, .schedule = 0, .warmup = 4, .steps = 20};
  expect(&p, 0, 0.2);
  expect(&p, 3, 0.8);
  expect(&p, 4, 0.8);
  expect(&p, 19, 0.8);
}

Test(schedule, linear_reaches_the_minimum_at_the_last_step_and_stays) {
  zpr_program p = {.lr = 1, .min_lr = 0.2, .schedule = 1, .warmup = 0, .steps = 10};
  expect(&p, 0, 1);
  expect(&p, 5, 0.6);
  expect(&p, 10, 0.2);
  expect(&p, 50, 0.2);
}

Test(schedule, cosine_is_half_way_in_the_middle) {
  zpr_program p = {.lr = 1, .min_lr = 0.5, .schedule = ZPR_RATE_COSINE, .warmup = 10, .decay_steps = 30, .steps = 100};
  expect(&p, 9, 1);
  expect(&p, 10, 1);
  expect(&p, 20, 0.75);
  expect(&p, 30, 0.5);
  expect(&p, 99, 0.5);
}

Test(schedule, stable_decay_falls_at_the_end_only) {
  zpr_program p = {.lr = 1, .min_lr = 0, .schedule = 3, .warmup = 2, .decay_steps = 4, .steps = 20};
  expect(&p, 0, 0.5);
  expect(&p, 16, 1);
  expect(&p, 18, 0.5);
  expect(&p, 20, 0);
  p.decay_steps = 0; /* a tenth of the run */
  expect(&p, 18, 1);
  expect(&p, 19, 0.5);
}

Test(schedule, warmup_longer_than_the_run) {
  zpr_program p = {.lr = 1, .min_lr = 0.5, .schedule = ZPR_RATE_COSINE, .warmup = 100, .steps = 10};
  expect(&p, 9, 0.1);
}
