/* SPDX-License-Identifier: Apache-2.0 */
/* Device attention over samples that are shorter than the others: against the naive f64 reference, to the bit what a
 * sample of that size gives, and without steps after its end. After the lengths everything that is read is NaN, and
 * so are results before. */
#include "attention_device.h"
#include "lengths_testing.h"

static const char plain_text[] = "#include \"zpd_attention.cuh\"\n";
static const char mma_text[] = "#include \"zpd_mma_attention_grad.cuh\"\n";
static const char volta_text[] = "#define ZPD_VOLTA\n#include \"zpd_mma_attention_grad.cuh\"\n";

enum { MOST_SAMPLES = 5 };
static const struct {
  int64_t B, S, H, G, valid, hd;
  int32_t lengths[MOST_SAMPLES];
} shapes[] = {
    {1, 5, 1, 1, 1, 3, {1}},
    {5, 131, 4, 2, 1, 17, {131, 1, 64, 65, 130}},
    {3, 96, 3, 3, 3, 40, {95, 2, 33}},
    {2, 200, 2, 1, 1, 64, {63, 128}},
};
/* On the drawn layouts from FIRST_LAYOUT on. */
static const struct {
  int64_t B, H, G, hd;
  int32_t lengths[MOST_SAMPLES];
} sparse_shapes[] = {
    {4, 2, 1, 20, {320, 1, 65, 190}}, {3, 2, 2, 33, {191, 64, 70}}, {2, 1, 1, 64, {40, 129}},
    {3, 1, 1, 8, {64, 200, 384}},     {3, 2, 1, 40, {17, 96, 143}}, {3, 1, 1, 64, {33, 160, 79}},
    {2, 2, 2, 24, {49, 143}},
};
/* Heads that take drawn layouts in turns, n of them from `layout` on. */
static const struct {
  int layout, n;
  int64_t B, H, G, valid, hd, first_head;
  int32_t lengths[MOST_SAMPLES];
} set_shapes[] = {
    {FIRST_OF_SETS, 2, 2, 4, 2, 2, 17, 3, {192, 90}},
    {FIRST_OF_SETS + 2, 3, 1, 6, 2, 1, 24, 4, {140}},
};
enum {
  FIRST_LAYOUT = 6,
  SETS = sizeof set_shapes / sizeof *set_shapes,
  SHAPES = sizeof shapes / sizeof *shapes,
  ALL_SPARSE = sizeof sparse_shapes / sizeof *sparse_shapes
};

/* Device kernels of one kind: their text, and how they are launched. */
typedef struct kernels {
  const char *text;
  void (*run)(const host_object *k, const problem *p, int head);
  int n_sparse, n_sets; /* sparse shapes and shapes of sets that they run */
  const char *names[3];
} kernels;

static void run_plain_of(const host_object *k, const problem *p, int head) {
  (void)head;
  run_plain(k, p);
}

#define MMA_NAMES                                                                                                      \
  { "zpd_mma_forward", "zpd_mma_grad_q", "zpd_mma_grad_kv" }
static const kernels plain = {plain_text,
                              run_plain_of,
                              4,
                              1,
                              {"zpd_attention_forward", "zpd_attention_grad_q", "zpd_attention_grad_kv"}},
                     mma = {mma_text, run_mma, ALL_SPARSE, SETS, MMA_NAMES},
                     volta = {volta_text, run_mma, ALL_SPARSE, SETS, MMA_NAMES};

/* A kind compiled for heads up to `head`, with the layouts. */
typedef struct compiled {
  const kernels *kind;
  host_object k;
  int head;
  blocks layouts[ALL_LAYOUTS];
} compiled;

static compiled compile(const kernels *kind, zpk_dtype dtype, int head, bool watch) {
  compiled c = {.kind = kind, .head = head};
  draw_layouts(c.layouts);
  c.k = device_open_with(kind->text, c.layouts, ALL_LAYOUTS, dtype, head, watch);
  return c;
}

static void discard(compiled *c) {
  host_unload(&c->k);
  free_layouts(c->layouts);
}

static void check_run(const compiled *c, problem *p, const char *what) {
  reference(p);
  spoil_results(p);
  c->kind->run(&c->k, p, c->head);
  check(p, what);
  check_zeros(p, what);
}

/* Every shape causal and full, rows that begin at multiples of 16 bytes with one of the two in turns; with `few` one of
 * them. */
static void run_dense(const compiled *c, zpk_dtype dtype, bool few) {
  for (size_t i = 0; i < SHAPES; i++)
    for (int causal = 0; causal < 2; causal++) {
      if (few && causal != (int)i % 2) continue;
      problem p = make_problem(dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid, shapes[i].hd,
                               causal);
      bool aligned = ((int)i / 2 + causal) % 2;
      char what[80];
      snprintf(what, sizeof what, "shape %zu, dtype %d, %s%s", i, (int)dtype, causal ? "causal" : "full",
               aligned ? ", aligned" : "");
      use_lengths(&p, shapes[i].lengths);
      if (aligned) align(&p);
      check_run(c, &p, what);
      free_problem(&p);
    }
}

static problem sparse_problem(const compiled *c, zpk_dtype dtype, int i) {
  const blocks *layout = &c->layouts[FIRST_LAYOUT + i];
  problem p =
      make_problem(dtype, sparse_shapes[i].B, layout->n * layout->layout.block, sparse_shapes[i].H, sparse_shapes[i].G,
                   sparse_shapes[i].G, sparse_shapes[i].hd, drawn_layouts[FIRST_LAYOUT + i].causal);
  use_blocks(&p, layout);
  use_lengths(&p, sparse_shapes[i].lengths);
  return p;
}

/* `few`: blocks of 64, 192, 16 and 32. */
static void run_sparse(const compiled *c, zpk_dtype dtype, bool few) {
  for (int i = 0; i < c->kind->n_sparse; i++) {
    if (few && i % 2 == 0 && i != 4) continue;
    problem p = sparse_problem(c, dtype, i);
    char what[64];
    snprintf(what, sizeof what, "sparse %d, dtype %d%s", i, (int)dtype, i % 2 ? ", aligned" : "");
    if (i % 2) align(&p);
    check_run(c, &p, what);
    free_problem(&p);
  }
}

static problem set_problem(const compiled *c, zpk_dtype dtype, int i) {
  const blocks *layout = &c->layouts[set_shapes[i].layout];
  problem p = make_problem(dtype, set_shapes[i].B, layout->n * layout->layout.block, set_shapes[i].H, set_shapes[i].G,
                           set_shapes[i].valid, set_shapes[i].hd, drawn_layouts[set_shapes[i].layout].causal);
  use_sets(&p, layout, set_shapes[i].n, set_shapes[i].first_head);
  use_lengths(&p, set_shapes[i].lengths);
  return p;
}

/* `few`: the last one. */
static void run_sets(const compiled *c, zpk_dtype dtype, bool few) {
  for (int i = few ? c->kind->n_sets - 1 : 0; i < c->kind->n_sets; i++) {
    problem p = set_problem(c, dtype, i);
    char what[64];
    snprintf(what, sizeof what, "sets %d, dtype %d", i, (int)dtype);
    if (i % 2) align(&p);
    check_run(c, &p, what);
    free_problem(&p);
  }
}

/* ---- a short sample is a sample of a short sequence ---- */

/* Both give the same bits: in a layout that sequence ends in the middle of a block. */
static void compare_bits(const compiled *c, problem *all) {
  const zpk_attention_args *a = &all->a;
  spoil_results(all);
  c->kind->run(&c->k, all, c->head);
  for (int64_t b = 0; b < a->B; b++) {
    problem one = make_problem(a->dtype, 1, length_of(a, b), a->H, a->G, a->kv_heads_valid, a->hd, a->causal);
    one.a.layout = a->layout;
    one.a.first_head = a->first_head;
    copy_sample(all, b, &one);
    c->kind->run(&c->k, &one, c->head);
    check_same(all, b, &one, a->layout ? "sparse" : "dense");
    free_problem(&one);
  }
}

/* A length that nobody allows reaches no memory of others: larger than S is S, and from 0 down nothing is there. */
static void check_odd_lengths(const compiled *c, zpk_dtype dtype) {
  enum { B = 3, S = 70 };
  static const int32_t all[B] = {S, S, S}, odd[B] = {1000, 0, -7}, meant[B] = {S, 0, 0};
  problem p = make_problem(dtype, B, S, 2, 1, 1, 24, false);
  use_lengths(&p, all);
  memcpy(p.lengths, odd, sizeof odd);
  spoil_results(&p);
  c->kind->run(&c->k, &p, c->head);
  memcpy(p.lengths, meant, sizeof meant);
  reference(&p);
  check(&p, "lengths that are none");
  check_zeros(&p, "lengths that are none");
  free_problem(&p);
}

/* ---- all of it ---- */

/* One text for all that is asked of it; with sanitizers references alone. */
static void run_all(const kernels *kind, zpk_dtype dtype, int head, bool watch) {
  bool seen = dtype == ZPK_F32 || (kind == &mma && head == 64 && !watch); /* compiling takes minutes with sanitizers */
  if (sanitized && !seen) cr_skip_test("sanitizers see such addresses in plain_f32 and mma_bf16");
  bool few = watch || sanitized || head > 64; /* what takes several times as long */
  compiled c = compile(kind, dtype, head, watch);
  run_dense(&c, dtype, few);
  run_sparse(&c, dtype, few);
  run_sets(&c, dtype, few);
  for (int i = 0; i < kind->n_sparse && head == 64 && !watch && !sanitized; i++) {
    problem p = sparse_problem(&c, dtype, i);
    compare_bits(&c, &p);
    p.a.layout = NULL;
    if (i < 4) compare_bits(&c, &p);
    free_problem(&p);
  }
  if (!watch && !sanitized) check_odd_lengths(&c, dtype);
  discard(&c);
}

Test(kernels_cuda_lengths, plain_f64) { run_all(&plain, ZPK_F64, 64, false); }
Test(kernels_cuda_lengths, plain_f32) { run_all(&plain, ZPK_F32, 64, false); }
Test(kernels_cuda_lengths, mma_bf16) { run_all(&mma, ZPK_BF16, 64, false); }
Test(kernels_cuda_lengths, mma_f16_wide_heads) { run_all(&mma, ZPK_F16, 256, false); }
Test(kernels_cuda_lengths, volta) { run_all(&volta, ZPK_F16, 64, false); }
Test(kernels_cuda_lengths, mma_without_races) { run_all(&mma, ZPK_BF16, 64, true); }
Test(kernels_cuda_lengths, volta_without_races) { run_all(&volta, ZPK_F16, 64, true); }

/* ---- no steps after the end ---- */

/* What a watched object has counted of a kernel since `before`. */
static zpd_host_counts counts_since(const host_object *k, const char *kernel, zpd_host_counts before) {
  zpd_host_counts now = host_counts(k, kernel);
  now.passes -= before.passes;
  now.passes_least -= before.passes_least;
  now.mma -= before.mma;
  return now;
}

/* Tiles after the end neither touch shared memory nor multiply: as many passes over its banks and as many products as
 * shorter sequences have. */
static void count(const kernels *kind, zpk_dtype dtype, bool causal) {
  enum { B = 3, S = 256, HD = 48 }; /* test_kernels_cuda_mma.c watches these heads, too */
  if (sanitized) cr_skip_test("counts are those of the build without sanitizers");
  static const int32_t lengths[B] = {64, 256, 100};
  host_object k = device_open_as(kind->text, dtype, HD, true);
  problem p = make_problem(dtype, B, S, 1, 1, 1, HD, causal);
  use_lengths(&p, lengths);
  align(&p);
  kind->run(&k, &p, HD);
  zpd_host_counts with[3];
  for (int i = 0; i < 3; i++) with[i] = host_counts(&k, kind->names[i]);
  for (int64_t b = 0; b < B; b++) {
    problem one = make_problem(dtype, 1, lengths[b], 1, 1, 1, HD, causal);
    align(&one);
    kind->run(&k, &one, HD);
    free_problem(&one);
  }
  for (int i = 0; i < 3; i++) {
    zpd_host_counts alone = counts_since(&k, kind->names[i], with[i]);
    cr_expect_eq(with[i].passes, alone.passes, "%s: %ld passes, alone %ld", kind->names[i], with[i].passes,
                 alone.passes);
    cr_expect_eq(with[i].passes, with[i].passes_least, "%s: bank conflicts", kind->names[i]);
    cr_expect_gt(with[i].passes, 0);
    cr_expect_eq(with[i].mma, alone.mma, "%s: %ld products, alone %ld", kind->names[i], with[i].mma, alone.mma);
    cr_expect_eq(with[i].mma > 0, kind != &plain);
  }
  free_problem(&p);
  host_unload(&k);
}

Test(kernels_cuda_lengths, no_steps_after_the_end) { count(&plain, ZPK_F32, false); }
Test(kernels_cuda_lengths, no_steps_after_the_end_mma) { count(&mma, ZPK_BF16, true); }
Test(kernels_cuda_lengths, no_steps_after_the_end_volta) { count(&volta, ZPK_F16, true); }
