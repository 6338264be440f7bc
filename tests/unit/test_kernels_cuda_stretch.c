/* SPDX-License-Identifier: Apache-2.0 */
/* Device attention of a few queries, as decoding asks for it, against the naive f64 reference: all options, heads wider
 * than the text was compiled for, stretches of one position and of several, and no race. Over other keys and with a
 * relative bias against the CPU's attention of all queries. */
#include "attention_device.h"
#include "stretch_testing.h"

static const char text[] = "#define ZPD_WINDOWS\n#define ZPD_SCORES\n#define ZPD_CROSS\n#define ZPD_BIAS\n"
                           "#include \"zpd_stretch.cuh\"\n";

enum { HEAD = 48, LAYOUTS = 2, BUCKETS = 8 };
static const struct {
  const char *what;
  int64_t B, S, H, G, valid, hd;
  attention_options options;
  int sets; /* of layouts; 0: dense */
} cases[] = {
    {"plain", 2, 61, 3, 3, 3, 17, {0, 0, 0, 0, {0}}, 0},
    {"one position", 1, 1, 1, 1, 1, 8, {0, 0, 0, 0, {0}}, 0},
    {"grouped, wide heads", 1, 150, 6, 2, 2, 100, {0, 0, 0, 0, {0}}, 0},
    {"padding", 1, 20, 4, 2, 1, 24, {0, 0, 0, 0, {0}}, 0},
    {"window", 2, 140, 2, 1, 1, 16, {50, 0, 0, 0, {0}}, 0},
    {"soft cap and ALiBi", 1, 70, 3, 1, 1, 20, {0, 1.5, 6, 2, {0}}, 0},
    {"blocks", 1, 192, 2, 2, 2, 24, {0, 0, 0, 0, {0}}, 1},
    {"blocks by head", 1, 192, 4, 2, 2, 48, {0, 0, 0, 1, {0}}, 2},
};

static void run_on_device(const host_object *k, const problem *p, int64_t first, int64_t n) {
  zpd_stretch a = {.of = zpr_attention_args(&p->a), .first = first};
  if (p->a.buckets) {
    zpd_bias bias = zpr_bias_args(&p->a, false, false);
    device_launch(k, "zpd_bias_lines", &bias, 2, 1, 1, ZPD_FLAT_THREADS);
    zpr_use_bias(&bias, &a.of);
  }
  device_launch(k, "zpd_attention_stretch", &a, n, p->a.H, p->a.B, ZPD_ATTENTION_THREADS);
}

static void check_stretch(const host_object *k, problem *p, int64_t first, int64_t n, const char *what) {
  spoil(p, first + n);
  run_on_device(k, p, first, n);
  expect_stretch(p, p->o, first, n, what);
  restore(p);
}

static void check_stretches(const host_object *k, problem *p, const char *what) {
  int64_t S = p->a.S;
  for (int64_t first = 0; first < S; first += 1 + first) check_stretch(k, p, first, 1, what);
  check_stretch(k, p, S - 1, 1, what);
  check_stretch(k, p, S / 3, (S + 5) / 6, what);
}

/* Two samples with 70 and 20 of `keys` other keys, or none and a bias. */
static void run_pair(const host_object *k, zpk_dtype dtype, int64_t keys, const char *what) {
  enum { B = 2, S = 40, H = 4, G = 2, HD = 24 };
  static const int32_t lengths[B] = {70, 20};
  problem p = make_problem(dtype, B, S, H, G, G, HD, keys == 0);
  zpk_attention_args *a = &p.a;
  int64_t e = zpk_bytes(dtype), size = B * keys * G * HD, most = 8 * 2 * H * S;
  double *more = numbers(2 * size + 1, 9), *table = numbers(BUCKETS * H, 5);
  char *other = calloc((size_t)(2 * size) + 1, (size_t)e), *bias = calloc(BUCKETS * H, (size_t)e);
  store(dtype, more, 1, 2 * size, other, 2 * size);
  store(dtype, table, BUCKETS, H, bias, H);
  if (keys) a->keys = keys, a->k = other, a->v = other + size * e, a->k_ld = a->v_ld = G * HD, a->lengths = lengths;
  if (!keys) a->buckets = BUCKETS, a->max_distance = 20, a->bias = bias, a->bias_ld = H;
  a->workspace = malloc((size_t)zpk_attention_workspace(dtype, S > keys ? S : keys, HD, H / G, false));
  a->bias_lines = malloc((size_t)(most + zpk_attention_bias_line(dtype, S, H / G, false)));
  zpk_attention(a, 0, B * G, 0);
  for (int64_t i = 0; i < B * S * H * HD; i++) p.o[i] = get(dtype, p.o_out, i);
  check_stretches(k, &p, what);
  void *all[] = {a->workspace, a->bias_lines, more, table, other, bias};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  a->lengths = NULL;
  free_problem(&p);
}

static void run_case(const host_object *k, zpk_dtype dtype, size_t i, const blocks *sets) {
  problem p = make_problem(dtype, cases[i].B, cases[i].S, cases[i].H, cases[i].G, cases[i].valid, cases[i].hd, true);
  use_options(&p, &cases[i].options);
  if (i % 2) align(&p);
  if (cases[i].sets) use_sets(&p, sets, cases[i].sets, cases[i].options.first_head);
  reference(&p);
  char what[80];
  snprintf(what, sizeof what, "%s, dtype %d", cases[i].what, dtype);
  check_stretches(k, &p, what);
  free_problem(&p);
}

/* watch: races are errors. */
static void run_all(zpk_dtype dtype, bool watch) {
  blocks sets[LAYOUTS];
  for (int i = 0; i < LAYOUTS; i++) {
    sets[i] = make_blocks(3, 64, true, 40, (uint64_t)i);
    sets[i].layout.id = i + 1;
  }
  host_object k = device_open_with(text, sets, LAYOUTS, dtype, HEAD, watch);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&k, dtype, i, sets);
  run_pair(&k, dtype, 75, "other keys");
  run_pair(&k, dtype, 0, "relative bias");
  host_unload(&k);
  for (int i = 0; i < LAYOUTS; i++) free_blocks(&sets[i]);
}

Test(kernels_cuda_stretch, f32) { run_all(ZPK_F32, !sanitized); /* watched text is compiled without sanitizers */ }
Test(kernels_cuda_stretch, f64) {
  if (sanitized) cr_skip_test("sanitizers see f32");
  run_all(ZPK_F64, false);
}
