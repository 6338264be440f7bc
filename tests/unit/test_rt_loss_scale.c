/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of f16 gradients: when it falls and rises, what is skipped, what a checkpoint brings back. */
#include <criterion/criterion.h>
#include "internal.h"

static zpr_program program;
static zpr c;

static void start(int64_t scale, int64_t window) {
  program = (zpr_program){.dtype = ZPK_F16, .loss_scale = scale, .scale_window = window};
  c = (zpr){.program = &program, .token_weight = {0.25}};
  zpr_loss_scale_start(&c);
}

Test(loss_scale, halves_and_doubles) {
  start(1024, 3);
  zpr_loss_scale_step(&c, false);
  zpr_loss_scale_step(&c, false);
  cr_expect_eq(c.loss_scale, 256);
  cr_expect_eq(c.skipped_steps, 2);
  for (int i = 0; i < 2; i++) zpr_loss_scale_step(&c, true);
  cr_expect_eq(c.loss_scale, 256);
  zpr_loss_scale_step(&c, false); /* the window begins again */
  for (int i = 0; i < 2; i++) zpr_loss_scale_step(&c, true);
  cr_expect_eq(c.loss_scale, 128);
  zpr_loss_scale_step(&c, true);
  cr_expect_eq(c.loss_scale, 256);
  cr_expect_eq(c.scale_steps, 0);
  cr_expect_eq(c.skipped_steps, 3);
  cr_expect_eq(zpr_gradient_weight(&c, 0), 64);
}

Test(loss_scale, ends_at_1_and_at_the_largest) {
  start(2, 1);
  cr_expect(zpr_loss_scale_can_fall(&c));
  zpr_loss_scale_step(&c, false);
  cr_expect_not(zpr_loss_scale_can_fall(&c));
  zpr_loss_scale_step(&c, false);
  cr_expect_eq(c.loss_scale, 1);
  for (int i = 0; i < 40; i++) zpr_loss_scale_step(&c, true);
  cr_expect_eq(c.loss_scale, ZPR_MOST_LOSS_SCALE);
}

Test(loss_scale, a_fixed_one_stays) {
  start(64, 0);
  zpr_loss_scale_step(&c, false);
  for (int i = 0; i < 9; i++) zpr_loss_scale_step(&c, true);
  cr_expect_eq(c.loss_scale, 64);
  cr_expect_eq(c.skipped_steps, 1);
  cr_expect_not(zpr_loss_scale_can_fall(&c));
  zpr_loss_scale_resume(&c, 1024, 5);
  cr_expect_eq(c.loss_scale, 64, "what the program says");
}

Test(loss_scale, resumes_where_it_was) {
  start(1024, 3);
  zpr_loss_scale_resume(&c, 16, 2);
  cr_expect_eq(c.loss_scale, 16);
  zpr_loss_scale_step(&c, true);
  cr_expect_eq(c.loss_scale, 32);
  zpr_loss_scale_resume(&c, 0, 0);
  cr_expect_eq(c.loss_scale, 1024, "a checkpoint that does not say it");
}

Test(loss_scale, other_dtypes_have_none) {
  start(0, 0);
  program.dtype = ZPK_F32;
  for (int i = 0; i < 3; i++) zpr_loss_scale_step(&c, i != 1);
  cr_expect_eq(c.loss_scale, 1);
  cr_expect_eq(c.skipped_steps, 1);
  cr_expect_not(zpr_loss_scale_can_fall(&c));
}
