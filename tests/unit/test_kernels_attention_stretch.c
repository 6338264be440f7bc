/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a few queries, as decoding asks for it, against that of all queries: every instruction set and dtype,
 * all options, stretches of one position and of several. What such queries do not see is NaN, and so is what they must
 * not write. */
#include "attention.h"
#include "stretch_testing.h"
#include <stdio.h>

enum { BUCKETS = 8 };

static const struct {
  const char *what;
  int64_t B, S, H, G, valid, hd, window, alibi, buckets, keys;
  double softcap;
  int64_t block; /* of a layout; 0: dense */
  int32_t lengths[2];
} cases[] = {
    {.what = "plain", .B = 2, .S = 61, .H = 3, .G = 3, .valid = 3, .hd = 17},
    {.what = "one position", .B = 1, .S = 1, .H = 1, .G = 1, .valid = 1, .hd = 8},
    {.what = "grouped", .B = 1, .S = 130, .H = 6, .G = 2, .valid = 2, .hd = 40},
    {.what = "one kv head", .B = 1, .S = 50, .H = 4, .G = 1, .valid = 1, .hd = 64},
    {.what = "padding", .B = 1, .S = 20, .H = 4, .G = 2, .valid = 1, .hd = 24},
    {.what = "window", .B = 2, .S = 140, .H = 2, .G = 1, .valid = 1, .hd = 16, .window = 50},
    {.what = "soft cap", .B = 1, .S = 70, .H = 2, .G = 2, .valid = 2, .hd = 20, .softcap = 1.5},
    {.what = "alibi", .B = 1, .S = 70, .H = 3, .G = 3, .valid = 3, .hd = 12, .alibi = 3},
    {.what = "relative bias", .B = 1, .S = 70, .H = 4, .G = 2, .valid = 2, .hd = 12, .buckets = BUCKETS},
    {.what = "blocks", .B = 1, .S = 160, .H = 2, .G = 2, .valid = 2, .hd = 24, .block = 32},
    {.what = "other keys", .B = 2, .S = 33, .H = 4, .G = 2, .valid = 2, .hd = 24, .keys = 75, .lengths = {75, 20}},
};

static void check_stretch(const zpk_attention_level *level, problem *p, const double *want, int64_t first, int64_t n,
                          const char *what) {
  spoil(p, first + n);
  zpk_attention_stretch_on(level, &p->a, first, n, 0, p->a.B * p->a.G, 0);
  expect_stretch(p, want, first, n, what);
  restore(p);
}

static void run_case(const zpk_attention_level *level, zpk_dtype dtype, size_t i, const char *name) {
  int64_t S = cases[i].S, H = cases[i].H, G = cases[i].G, hd = cases[i].hd, keys = cases[i].keys;
  problem p = make_problem(dtype, cases[i].B, S, H, G, cases[i].valid, hd, keys == 0);
  zpk_attention_args *a = &p.a;
  blocks b = {0};
  double *more = numbers(2 * cases[i].B * keys * G * hd, 9), *table = numbers(BUCKETS * H, 5);
  int64_t e = zpk_bytes(dtype), size = keys * cases[i].B * G * hd;
  char *other = calloc((size_t)(2 * size) + 1, (size_t)e), *bias = calloc((size_t)(BUCKETS * H), (size_t)e);
  if (keys) {
    store(dtype, more, 1, 2 * size, other, 2 * size);
    a->keys = keys, a->k = other, a->v = other + size * e, a->k_ld = a->v_ld = G * hd;
    a->lengths = cases[i].lengths;
  }
  store(dtype, table, BUCKETS, H, bias, H);
  a->window = cases[i].window, a->softcap = cases[i].softcap, a->alibi_heads = cases[i].alibi;
  a->buckets = cases[i].buckets, a->max_distance = 40, a->bias = bias, a->bias_ld = H;
  if (cases[i].block) {
    b = make_blocks(S / cases[i].block, cases[i].block, true, 40, i);
    use_blocks(&p, &b);
  }
  a->workspace = malloc((size_t)zpk_attention_workspace(dtype, zpk_keys(a), hd, H / G, false));
  a->bias_lines = malloc((size_t)zpk_attention_bias_line(dtype, S, H / G, false));
  zpk_attention_on(level, false, a, 0, a->B * G, 0);
  double *want = malloc((size_t)(a->B * S * H * hd) * sizeof *want);
  for (int64_t k = 0; k < a->B * S * H * hd; k++) want[k] = get(dtype, p.o_out, k);
  char what[80];
  snprintf(what, sizeof what, "%s, %s, dtype %d", name, cases[i].what, dtype);
  for (int64_t first = 0; first < S; first += 1 + first / 3) check_stretch(level, &p, want, first, 1, what);
  check_stretch(level, &p, want, S / 3, S - S / 3, what);
  check_stretch(level, &p, want, 0, (S + 1) / 2, what);
  void *all[] = {a->workspace, a->bias_lines, want, more, other, table, bias};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) free(all[k]);
  if (cases[i].block) free_blocks(&b);
  a->lengths = NULL;
  free_problem(&p);
}

static void run_all(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(level, (zpk_dtype)dtype, i, name);
}

TEST_LEVELS(kernels_attention_stretch, run_all)
