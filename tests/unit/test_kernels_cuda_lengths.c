/* Device attention over samples that are shorter than the others: against the naive f64 reference, to the bit what a
 * sample of that size gives, and without steps behind its end. Behind the lengths everything that is read is NaN, and
 * so are results before. */
#include "attention_device.h"
#include "lengths_testing.h"

static const char plain_text[] = "#include \"zpd_attention.cuh\"\n";

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
static const struct {
  int64_t B, n, block, H, G, hd;
  int some; /* of a hundred pairs of blocks */
  bool causal;
  int32_t lengths[MOST_SAMPLES];
} sparse_shapes[] = {
    {4, 5, 64, 2, 1, 20, 40, true, {320, 1, 65, 190}},
    {3, 3, 64, 2, 2, 33, 50, false, {191, 64, 70}},
    {2, 2, 128, 1, 1, 64, 100, false, {40, 129}},
    {3, 2, 192, 1, 1, 8, 0, true, {64, 200, 384}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, SPARSE = sizeof sparse_shapes / sizeof *sparse_shapes };

/* Device kernels of one kind. */
typedef void runner(const host_object *k, const problem *p);

static void check_run(const host_object *k, runner *run, problem *p, const char *what) {
  reference(p);
  spoil_results(p);
  run(k, p);
  check(p, what);
  check_zeros(p, what);
}

static void run_dense(const host_object *k, runner *run, zpk_dtype dtype) {
  for (size_t i = 0; i < SHAPES; i++)
    for (int way = 0; way < 4; way++) {
      if (sanitized && way != (int)(i + dtype) % 4) continue; /* sanitizers take four times as long */
      problem p = make_problem(dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid, shapes[i].hd,
                               way % 2);
      char what[80];
      snprintf(what, sizeof what, "shape %zu, dtype %d, %s%s", i, (int)dtype, way % 2 ? "causal" : "full",
               way / 2 ? ", aligned" : "");
      use_lengths(&p, shapes[i].lengths);
      if (way / 2) align(&p);
      check_run(k, run, &p, what);
      free_problem(&p);
    }
}

static void make_layouts(blocks *all) {
  for (int i = 0; i < SPARSE; i++) {
    all[i] = make_blocks(sparse_shapes[i].n, sparse_shapes[i].block, sparse_shapes[i].causal, sparse_shapes[i].some,
                         (size_t)i);
    all[i].layout.id = i + 1;
  }
}

static problem sparse_problem(zpk_dtype dtype, int i, const blocks *layout) {
  problem p = make_problem(dtype, sparse_shapes[i].B, layout->n * layout->layout.block, sparse_shapes[i].H,
                           sparse_shapes[i].G, sparse_shapes[i].G, sparse_shapes[i].hd, sparse_shapes[i].causal);
  use_blocks(&p, layout);
  use_lengths(&p, sparse_shapes[i].lengths);
  return p;
}

/* `k`: kernels of a text with these layouts. */
static void run_sparse(const host_object *k, runner *run, zpk_dtype dtype, const blocks *layouts) {
  for (int i = 0; i < SPARSE; i++)
    for (int aligned = 0; aligned < (sanitized ? 1 : 2); aligned++) {
      problem p = sparse_problem(dtype, i, &layouts[i]);
      char what[64];
      snprintf(what, sizeof what, "sparse %d, dtype %d%s", i, (int)dtype, aligned ? ", aligned" : "");
      if (aligned) align(&p);
      check_run(k, run, &p, what);
      free_problem(&p);
    }
}

static void run_both(runner *run, const char *text, zpk_dtype dtype, int head) {
  zp_arena *arena = zp_arena_new("test");
  blocks layouts[SPARSE];
  make_layouts(layouts);
  host_object k = device_open(text_with(arena, text, layouts, SPARSE), dtype, head);
  run_dense(&k, run, dtype);
  run_sparse(&k, run, dtype, layouts);
  host_unload(&k);
  for (int i = 0; i < SPARSE; i++) free_blocks(&layouts[i]);
  zp_arena_free(arena);
}

Test(kernels_cuda_lengths, plain_f64) { run_both(run_plain, plain_text, ZPK_F64, 64); }
Test(kernels_cuda_lengths, plain_f32) { run_both(run_plain, plain_text, ZPK_F32, 64); }
Test(kernels_cuda_lengths, plain_bf16) { run_both(run_plain, plain_text, ZPK_BF16, 64); }
Test(kernels_cuda_lengths, plain_f16) { run_both(run_plain, plain_text, ZPK_F16, 64); }

/* ---- a short sample is a sample of a short sequence ---- */

/* Both give the same bits: in a layout that sequence ends in the middle of a block. */
static void compare_bits(runner *run, const host_object *k, problem *all) {
  const zpk_attention_args *a = &all->a;
  run(k, all);
  for (int64_t b = 0; b < a->B; b++) {
    problem one = make_problem(a->dtype, 1, length_of(a, b), a->H, a->G, a->kv_heads_valid, a->hd, a->causal);
    one.a.layout = a->layout;
    copy_sample(all, b, &one);
    run(k, &one);
    check_same(all, b, &one, a->layout ? "sparse" : "dense");
    free_problem(&one);
  }
}

static void compare(runner *run, const char *text, zpk_dtype dtype, int head) {
  zp_arena *arena = zp_arena_new("test");
  blocks layouts[SPARSE];
  make_layouts(layouts);
  host_object k = device_open(text_with(arena, text, layouts, SPARSE), dtype, head);
  for (int i = 0; i < SPARSE; i++) {
    problem p = sparse_problem(dtype, i, &layouts[i]);
    compare_bits(run, &k, &p);
    p.a.layout = NULL;
    compare_bits(run, &k, &p);
    free_problem(&p);
  }
  host_unload(&k);
  for (int i = 0; i < SPARSE; i++) free_blocks(&layouts[i]);
  zp_arena_free(arena);
}

Test(kernels_cuda_lengths, bits_of_a_shorter_sequence_f64) { compare(run_plain, plain_text, ZPK_F64, 64); }
Test(kernels_cuda_lengths, bits_of_a_shorter_sequence_f32) { compare(run_plain, plain_text, ZPK_F32, 64); }

/* A length that nobody allows reaches no memory of others: larger than S is S, and from 0 down nothing is there. */
Test(kernels_cuda_lengths, lengths_that_are_none) {
  static const int32_t odd[] = {1000, 0, -7};
  host_object k = device_open(plain_text, ZPK_F32, 32);
  problem p = make_problem(ZPK_F32, 3, 70, 2, 1, 1, 24, false);
  use_lengths(&p, (const int32_t[]){70, 70, 70});
  memcpy(p.lengths, odd, sizeof odd);
  spoil_results(&p);
  run_plain(&k, &p);
  memcpy(p.lengths, (const int32_t[]){70, 0, 0}, sizeof odd);
  reference(&p);
  check(&p, "lengths that are none");
  check_zeros(&p, "lengths that are none");
  free_problem(&p);
  host_unload(&k);
}

/* Tiles behind the end do not touch shared memory: as many passes over its banks as in shorter sequences. */
static zpd_host_counts counts_since(const host_object *k, const char *kernel, zpd_host_counts before) {
  zpd_host_counts now = host_counts(k, kernel);
  now.passes -= before.passes;
  now.mma -= before.mma;
  return now;
}

static void count(runner *run, const char *text, zpk_dtype dtype, const char *const names[3], bool causal) {
  enum { B = 3, S = 256, HD = 32 };
  static const int32_t lengths[B] = {64, 256, 100};
  host_object k = device_open_as(text, dtype, HD, true);
  problem p = make_problem(dtype, B, S, 1, 1, 1, HD, causal);
  use_lengths(&p, lengths);
  run(&k, &p);
  zpd_host_counts with[3], alone[3];
  for (int i = 0; i < 3; i++) with[i] = alone[i] = counts_since(&k, names[i], (zpd_host_counts){0});
  for (int64_t b = 0; b < B; b++) {
    problem one = make_problem(dtype, 1, lengths[b], 1, 1, 1, HD, causal);
    run(&k, &one);
    free_problem(&one);
  }
  for (int i = 0; i < 3; i++) {
    alone[i] = counts_since(&k, names[i], with[i]);
    cr_expect_eq(with[i].passes, alone[i].passes, "%s: %ld passes, alone %ld", names[i], with[i].passes,
                 alone[i].passes);
    cr_expect_eq(with[i].mma, alone[i].mma, "%s: %ld products, alone %ld", names[i], with[i].mma, alone[i].mma);
    cr_expect_eq(with[i].passes, with[i].passes_least, "%s: bank conflicts", names[i]);
    cr_expect_gt(with[i].passes, 0);
  }
  free_problem(&p);
  host_unload(&k);
}

static const char *const plain_names[] = {"zpd_attention_forward", "zpd_attention_grad_q", "zpd_attention_grad_kv"};
Test(kernels_cuda_lengths, no_steps_behind_the_end) {
  count(run_plain, plain_text, ZPK_F32, plain_names, false);
  count(run_plain, plain_text, ZPK_F32, plain_names, true);
}
