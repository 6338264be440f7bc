/* Device attention of a few queries, as decoding asks for it, against the naive f64 reference: all options, heads wider
 * than the text was compiled for, stretches of one position and of several, and no race. */
#include "attention_device.h"
#include "stretch_testing.h"

static const char text[] = "#define ZPD_WINDOWS\n#define ZPD_SCORES\n#include \"zpd_stretch.cuh\"\n";

enum { HEAD = 48, LAYOUTS = 2 };
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
  device_launch(k, "zpd_attention_stretch", &a, n, p->a.H, p->a.B, ZPD_ATTENTION_THREADS);
}

static void check_stretch(const host_object *k, problem *p, int64_t first, int64_t n, const char *what) {
  spoil(p, first + n);
  run_on_device(k, p, first, n);
  expect_stretch(p, p->o, first, n, what);
  restore(p);
}

static void run_case(const host_object *k, zpk_dtype dtype, size_t i, const blocks *sets) {
  int64_t S = cases[i].S;
  problem p = make_problem(dtype, cases[i].B, S, cases[i].H, cases[i].G, cases[i].valid, cases[i].hd, true);
  use_options(&p, &cases[i].options);
  if (i % 2) align(&p);
  if (cases[i].sets) use_sets(&p, sets, cases[i].sets, cases[i].options.first_head);
  reference(&p);
  char what[80];
  snprintf(what, sizeof what, "%s, dtype %d", cases[i].what, dtype);
  for (int64_t first = 0; first < S; first += 1 + first) check_stretch(k, &p, first, 1, what);
  check_stretch(k, &p, S - 1, 1, what);
  check_stretch(k, &p, S / 3, (S + 5) / 6, what);
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
  host_unload(&k);
  for (int i = 0; i < LAYOUTS; i++) free_blocks(&sets[i]);
}

Test(kernels_cuda_stretch, f32) { run_all(ZPK_F32, !sanitized); /* watched text is compiled without sanitizers */ }
Test(kernels_cuda_stretch, f64) {
  if (sanitized) cr_skip_test("sanitizers see f32");
  run_all(ZPK_F64, false);
}
