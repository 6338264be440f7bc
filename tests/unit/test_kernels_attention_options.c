/* Attention with options: windows of tokens that begin and end everywhere in blocks, soft caps, biases by distance.
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

static void run_level(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int causal = 0; causal < 2; causal++)
      for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        problem p = make_problem((zpk_dtype)dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid,
                                 shapes[i].hd, causal);
        char what[80];
        snprintf(what, sizeof what, "%s, shape %zu, dtype %d, %s", name, i, dtype, causal ? "causal" : "full");
        use_options(&p, &shapes[i].options);
        reference(&p);
        run(level, &p);
        check(&p, what);
        free_problem(&p);
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

/* What a window does not reach is not read: keys further away may be anything. */
Test(kernels_attention_options, nothing_is_read_behind_a_window) {
  enum { S = 300, HD = 8, WINDOW = 20, BLOCKS_AWAY = 2 * 48 };
  problem p = make_problem(ZPK_F32, 1, S, 1, 1, 1, HD, true);
  p.a.window = WINDOW;
  reference(&p);
  for (int row = 0; row < S - WINDOW - BLOCKS_AWAY; row++)
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
