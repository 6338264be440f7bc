/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with options: windows of tokens that begin and end everywhere in blocks, soft caps, biases by distance,
 * dropout.
 * Every instruction set and dtype against the naive f64 reference, samples of several lengths; a window of all
 * positions to the bit as none; tanh against the library's. */
#include "attention.h"
#include "lengths_testing.h"
#include <stdio.h>

static int64_t share_of(const zpk_attention_args *a, bool backward) {
  return zpk_attention_workspace(a->dtype, a->S, a->hd, a->H / a->G, backward);
}

/* The share has the promised size, and what nobody has written in it is a number that would show. */
static void run_pass(const zpk_attention_level *level, problem *p, bool backward) {
  size_t share = (size_t)share_of(&p->a, backward);
  p->a.workspace = memset(malloc(share), 0xE7, share);
  zpk_attention_on(level, backward, &p->a, 0, p->a.B * p->a.G, 0);
  free(p->a.workspace);
}

static void run(const zpk_attention_level *level, problem *p) {
  spoil_results(p);
  run_pass(level, p, false);
  run_pass(level, p, true);
}

static const struct {
  int64_t B, S, H, G, valid, hd;
  attention_options options;
} shapes[] = {
    {1, 40, 1, 1, 1, 8, {3, 0, 0, 0, {0}}},
    {1, 97, 2, 1, 1, 17, {2, 0, 0, 0, {0}}},
    {2, 150, 4, 2, 1, 24, {48, 0, 0, 0, {0}}},
    {1, 145, 2, 2, 2, 16, {49, 0, 0, 0, {0}}},
    {1, 300, 1, 1, 1, 5, {47, 0, 0, 0, {0}}},
    {1, 200, 2, 1, 1, 12, {97, 0, 0, 0, {0}}},
    {1, 131, 1, 1, 1, 32, {1000, 0, 0, 0, {0}}},
    {2, 190, 2, 1, 1, 20, {30, 0, 0, 0, {190, 101}}},
    {1, 100, 2, 1, 1, 16, {0, 0.8, 0, 0, {0}}},
    {1, 50, 1, 1, 1, 32, {0, 0.1, 0, 0, {0}}},
    {1, 131, 4, 4, 4, 8, {0, 0, 4, 0, {0}}},
    {1, 131, 3, 3, 2, 8, {0, 0, 6, 3, {0}}},
    {2, 110, 2, 1, 1, 24, {20, 50, 12, 8, {110, 60}}},
};

static void run_shape(const zpk_attention_level *level, const char *name, zpk_dtype dtype, bool causal, size_t i,
                      double dropout) {
  problem p =
      make_problem(dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid, shapes[i].hd, causal);
  char what[80];
  snprintf(what, sizeof what, "%s, shape %zu, dtype %d, %s, dropout %g", name, i, dtype, causal ? "causal" : "full",
           dropout);
  use_options(&p, &shapes[i].options);
  use_dropout(&p.a, dropout);
  reference(&p);
  run(level, &p);
  check(&p, what);
  free_problem(&p);
}

static void run_level(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int causal = 0; causal < 2; causal++)
      for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        run_shape(level, name, (zpk_dtype)dtype, causal, i, 0);
        if (i % 3 == 0) run_shape(level, name, (zpk_dtype)dtype, causal, i, 0.1 + 0.05 * (double)i);
      }
}

TEST_LEVELS(kernels_attention_options, run_level)

Test(kernels_attention_options, a_window_of_all_is_none) {
  for (int causal = 0; causal < 2; causal++) {
    problem with = make_problem(ZPK_F32, 2, 130, 2, 1, 1, 24, causal),
            without = make_problem(ZPK_F32, 2, 130, 2, 1, 1, 24, causal);
    with.a.window = 130;
    run(&zpk_attention_base, &with);
    run(&zpk_attention_base, &without);
    cr_expect(same_rows(&with.a, with.o_out, 0, without.o_out, 48, 260));
    cr_expect(same_rows(&with.a, with.d_qkv, 0, without.d_qkv, with.a.q_ld, 260));
    free_problem(&with);
    free_problem(&without);
  }
}

/* Samples one by one, and queries heads apart, drop what all of them together do. */
Test(kernels_attention_options, dropout_is_of_the_sample_and_the_head) {
  problem all = make_problem(ZPK_F64, 2, 61, 4, 4, 4, 8, false), one = make_problem(ZPK_F64, 1, 61, 2, 2, 2, 8, false);
  use_dropout(&all.a, 0.4);
  use_dropout(&one.a, 0.4);
  one.a.first_head = 2;
  one.a.dropout.first_sample++;
  for (int64_t row = 0; row < 61; row++)
    for (int part = 0; part < 3; part++) {
      double *to = (double *)one.qkv + row * one.a.q_ld + part * 16;
      memcpy(to, (double *)all.qkv + (61 + row) * all.a.q_ld + part * 32 + 16, 16 * sizeof *to);
    }
  run_pass(&zpk_attention_base, &all, false);
  run_pass(&zpk_attention_base, &one, false);
  for (int64_t row = 0; row < 61; row++)
    cr_expect_eq(
        memcmp((double *)one.o_out + row * 16, (double *)all.o_out + (61 + row) * 32 + 16, 16 * sizeof(double)), 0);
  free_problem(&all);
  free_problem(&one);
}

/* A probability that is kept is worth more; of many, about the rate are not. */
Test(kernels_attention_options, shares_are_dropped_at_their_rate) {
  enum { S = 200, HEADS = 4 };
  const double rate = 0.15;
  problem p = make_problem(ZPK_F64, 1, S, HEADS, HEADS, HEADS, 1, false);
  use_dropout(&p.a, rate);
  p.a.scale = 0;
  for (int64_t row = 0; row < S; row++)
    for (int h = 0; h < HEADS; h++) ((double *)p.qkv)[row * p.a.q_ld + 2 * HEADS + h] = 1;
  run_pass(&zpk_attention_base, &p, false);
  double sum = 0, share = S * (1 - rate);
  for (int64_t i = 0; i < S * HEADS; i++) {
    double here = ((double *)p.o_out)[i] * share;
    cr_expect_float_eq(here, round(here), 1e-9, "a whole number of keys is kept");
    sum += here;
  }
  double keys = S * HEADS * S;
  cr_expect_float_eq(sum / keys, 1 - rate, 4 * sqrt(rate * (1 - rate) / keys), "kept: %g", sum / keys);
  free_problem(&p);
}

/* What a window does not reach is not read: keys further away may be anything. */
Test(kernels_attention_options, nothing_is_read_after_a_window) {
  enum { S = 300, HD = 8, WINDOW = 20, BLOCKS_OFFLOADED = 2 * 48 };
  problem p = make_problem(ZPK_F32, 1, S, 1, 1, 1, HD, true);
  p.a.window = WINDOW;
  reference(&p);
  for (int row = 0; row < S - WINDOW - BLOCKS_OFFLOADED; row++)
    for (int c = HD; c < 3 * HD; c++) ((float *)p.qkv)[row * p.a.q_ld + c] = NAN;
  run(&zpk_attention_base, &p);
  for (int row = S - 48; row < S; row++)
    for (int c = 0; c < HD; c++) cr_expect_float_eq(((float *)p.o_out)[row * HD + c], p.o[row * HD + c], 1e-5);
  free_problem(&p);
}

/* ---- tanh ---- */

#define TEMPLATE_OF_TANH "attention_bend.h"
#include "real_f32.h"
#include TEMPLATE_OF_TANH
#include "real_f64.h"
#include TEMPLATE_OF_TANH

/* A few units of the last digit, near 0, where the two forms meet, and far away. */
Test(kernels_attention_options, tanh_is_the_librarys) {
  for (int i = -4000; i <= 4000; i++) {
    double x = copysign(pow(fabs(i / 400.0), 3) / 20, i);
    cr_expect_leq(fabs(tanh_f64(x) - tanh(x)), 4e-16 * fabs(tanh(x)), "tanh(%g)", x);
    cr_expect_leq(fabs((double)tanh_f32((float)x) - tanh((double)(float)x)), 2.5e-7 * fabs(tanh(x)), "tanhf(%g)", x);
  }
  cr_expect_eq(tanh_f32(INFINITY), 1);
  cr_expect_eq(tanh_f64(-1000), -1);
  cr_expect(isnan(tanh_f64(NAN)));
}
