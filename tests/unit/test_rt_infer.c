/* SPDX-License-Identifier: Apache-2.0 */
/* The next token by logits: greedy, temperature, top-k, top-p, against shares that are counted by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include "infer.h"

enum { WORDS = 5, DRAWS = 100000 };

/* Probabilities 0.1, 0.4, 0.2, 0.05, 0.25 at temperature 1. */
static const double share[WORDS] = {0.1, 0.4, 0.2, 0.05, 0.25};

static int32_t choose(zpr_request r, double u) {
  double logits[WORDS];
  int32_t order[WORDS];
  for (int v = 0; v < WORDS; v++) logits[v] = 7 + log(share[v]);
  return zpr_choose(&r, logits, order, WORDS, u);
}

/* What u = 0, 1/n, 2/n, ... choose must be as often as the shares say. */
static void expect_shares(zpr_request r, const double want[WORDS]) {
  int count[WORDS] = {0};
  double sum = 0;
  for (int v = 0; v < WORDS; v++) sum += want[v];
  for (int i = 0; i < DRAWS; i++) count[choose(r, (double)i / DRAWS)]++;
  for (int v = 0; v < WORDS; v++)
    cr_expect_float_eq((double)count[v] / DRAWS, want[v] / sum, 2.0 / DRAWS, "word %d: %d", v, count[v]);
}

Test(infer, greedy_takes_the_largest_and_of_equal_ones_the_first) {
  zpr_request greedy = {.top_p = 1};
  cr_expect_eq(choose(greedy, 0.99), 1);
  double equal[3] = {1, 2, 2};
  int32_t order[3];
  cr_expect_eq(zpr_choose(&greedy, equal, order, 3, 0.99), 1);
}

Test(infer, temperature_is_an_exponent_of_the_shares) {
  double squares[WORDS];
  expect_shares((zpr_request){.temperature = 1, .top_p = 1}, share);
  for (int v = 0; v < WORDS; v++) squares[v] = share[v] * share[v];
  expect_shares((zpr_request){.temperature = 0.5, .top_p = 1}, squares);
}

Test(infer, top_k_and_top_p_leave_the_likeliest) {
  static const double three[WORDS] = {0, 0.4, 0.2, 0, 0.25}, two[WORDS] = {0, 0.4, 0, 0, 0.25};
  expect_shares((zpr_request){.temperature = 1, .top_p = 1, .top_k = 3}, three);
  expect_shares((zpr_request){.temperature = 1, .top_p = 1, .top_k = 99}, share);
  expect_shares((zpr_request){.temperature = 1, .top_p = 0.6}, two);             /* 0.4 are not enough, 0.65 are */
  expect_shares((zpr_request){.temperature = 1, .top_p = 0.66}, three);          /* 0.65 are not */
  expect_shares((zpr_request){.temperature = 1, .top_p = 0.7, .top_k = 3}, two); /* 0.65 of 0.85 */
}

Test(infer, the_end_of_the_unit_interval_is_a_word) {
  cr_expect_eq(choose((zpr_request){.temperature = 1, .top_p = 1}, 1 - 0x1p-53), 3);
  cr_expect_eq(choose((zpr_request){.temperature = 1, .top_p = 0}, 1 - 0x1p-53), 1);
}
