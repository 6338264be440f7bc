/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over samples that are shorter than the others: every instruction set and dtype against the naive f64
 * reference, to the bit what a sample of that size gives, central differences. After the lengths everything that is
 * read is NaN, and so are results before. */
#include "attention.h"
#include "lengths_testing.h"
#include <stdio.h>

enum { UNWRITTEN = 0xE7 };

static int64_t share_of(const zpk_attention_args *a, bool backward) {
  return zpk_attention_workspace(a->dtype, a->S, a->hd, a->H / a->G, backward);
}

/* The share has the promised size, and is written up to what the kernel says that it leaves. */
static void run_pass(const zpk_attention_level *level, problem *p, bool backward) {
  int64_t share = share_of(&p->a, backward), written = share;
  unsigned char *workspace = malloc((size_t)share);
  memset(workspace, UNWRITTEN, (size_t)share);
  p->a.workspace = workspace;
  zpk_attention_on(level, backward, &p->a, 0, p->a.B * p->a.G, 0);
  while (written > 0 && workspace[written - 1] == UNWRITTEN) written--;
  int64_t needed = written + zpk_attention_unwritten(&p->a, backward), longest = 0;
  for (int64_t b = 0; b < p->a.B; b++) longest = length_of(&p->a, b) > longest ? length_of(&p->a, b) : longest;
  cr_expect(p->a.layout || longest < 48 ? needed >= share : needed == share, "%lld bytes of %lld, %s",
            (long long)needed, (long long)share, backward ? "backward" : "forward");
  free(workspace);
}

static void run(const zpk_attention_level *level, problem *p) {
  spoil_results(p);
  run_pass(level, p, false);
  run_pass(level, p, true);
}

enum { MOST_SAMPLES = 6 };
static const struct {
  int64_t B, S, H, G, valid, hd;
  int32_t lengths[MOST_SAMPLES];
} shapes[] = {
    {1, 5, 1, 1, 1, 3, {1}},           {6, 131, 4, 2, 2, 17, {131, 1, 47, 48, 49, 130}},
    {3, 96, 3, 3, 2, 64, {95, 2, 50}}, {2, 60, 2, 1, 1, 24, {30, 12}},
    {2, 150, 2, 2, 2, 136, {97, 150}},
};

static void run_level(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int causal = 0; causal < 2; causal++)
      for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        problem p = make_problem((zpk_dtype)dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid,
                                 shapes[i].hd, causal);
        char what[80];
        snprintf(what, sizeof what, "%s, shape %zu, dtype %d, %s", name, i, dtype, causal ? "causal" : "full");
        use_lengths(&p, shapes[i].lengths);
        reference(&p);
        run(level, &p);
        check(&p, what);
        check_zeros(&p, what);
        free_problem(&p);
      }
}

static const struct {
  int64_t B, n, block, H, G, hd;
  int some; /* of a hundred pairs of blocks */
  int32_t lengths[MOST_SAMPLES];
} sparse_shapes[] = {
    {4, 7, 16, 2, 1, 20, 40, {112, 1, 17, 100}},
    {3, 3, 48, 3, 3, 32, 50, {143, 48, 49}},
    {4, 3, 112, 2, 2, 8, 60, {50, 113, 300, 336}},
    {2, 4, 32, 2, 2, 40, 0, {70, 33}},
};

static void run_sparse(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int causal = 0; causal < 2; causal++)
      for (size_t i = 0; i < sizeof sparse_shapes / sizeof *sparse_shapes; i++) {
        blocks b = make_blocks(sparse_shapes[i].n, sparse_shapes[i].block, causal, sparse_shapes[i].some, i);
        problem p = make_problem((zpk_dtype)dtype, sparse_shapes[i].B, b.n * sparse_shapes[i].block, sparse_shapes[i].H,
                                 sparse_shapes[i].G, sparse_shapes[i].G, sparse_shapes[i].hd, causal);
        char what[80];
        snprintf(what, sizeof what, "%s, sparse %zu, dtype %d, %s", name, i, dtype, causal ? "causal" : "full");
        use_blocks(&p, &b);
        use_lengths(&p, sparse_shapes[i].lengths);
        reference(&p);
        run(level, &p);
        check(&p, what);
        check_zeros(&p, what);
        free_problem(&p);
        free_blocks(&b);
      }
}

/* Heads that take sets of pairs in turns; of two kv heads the second one's queries begin in the middle of a turn. */
static void run_sets(const zpk_attention_level *level, const char *name) {
  enum { SETS = 3, N = 5, BLOCK_SIZE = 32, FIRST = 2 };
  static const int32_t lengths[] = {160, 75};
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int causal = 0; causal < 2; causal++) {
      blocks b[SETS];
      for (int i = 0; i < SETS; i++) b[i] = make_blocks(N, BLOCK_SIZE, causal, 20 + 20 * i, (uint64_t)i);
      problem p = make_problem((zpk_dtype)dtype, 2, N * BLOCK_SIZE, 4, 2, 2, 24, causal);
      char what[80];
      snprintf(what, sizeof what, "%s, sets, dtype %d, %s", name, dtype, causal ? "causal" : "full");
      use_sets(&p, b, SETS, FIRST);
      use_dropout(&p.a, causal ? 0.2 : 0);
      use_lengths(&p, lengths);
      reference(&p);
      run(level, &p);
      check(&p, what);
      check_zeros(&p, what);
      free_problem(&p);
      for (int i = 0; i < SETS; i++) free_blocks(&b[i]);
    }
}

static void run_all(const zpk_attention_level *level, const char *name) {
  run_level(level, name);
  run_sparse(level, name);
  run_sets(level, name);
}

TEST_LEVELS(kernels_attention_lengths, run_all)

/* ---- a short sample is a sample of a short sequence ---- */

static void run_public(problem *p) {
  spoil_results(p);
  int64_t forward = share_of(&p->a, false), backward = share_of(&p->a, true);
  p->a.workspace = malloc((size_t)(forward > backward ? forward : backward));
  zpk_attention(&p->a, 0, p->a.B * p->a.G, 0);
  zpk_attention_grad(&p->a, 0, p->a.B * p->a.G, 0);
  free(p->a.workspace);
}

/* In a layout the shorter sequence ends in the middle of a block; its arrays end there, too, which the address
 * sanitizer watches. */
static void compare_bits(zpk_dtype dtype, bool causal, const blocks *layout) {
  enum { B = 4, S = 144, H = 4, G = 2, HD = 40 };
  static const int32_t lengths[B] = {144, 99, 48, 7};
  problem all = make_problem(dtype, B, S, H, G, G, HD, causal);
  if (layout) use_blocks(&all, layout);
  use_lengths(&all, lengths);
  run_public(&all);
  for (int64_t b = 0; b < B; b++) {
    problem one = make_problem(dtype, 1, lengths[b], H, G, G, HD, causal);
    if (layout) use_blocks(&one, layout);
    copy_sample(&all, b, &one);
    run_public(&one);
    check_same(&all, b, &one, layout ? "sparse" : "dense");
    free_problem(&one);
  }
  free_problem(&all);
}

Test(kernels_attention_lengths, bits_of_a_shorter_sequence) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int causal = 0; causal < 2; causal++) {
      blocks layout = make_blocks(3, 48, causal, 50, 5);
      compare_bits((zpk_dtype)dtype, causal, NULL);
      compare_bits((zpk_dtype)dtype, causal, &layout);
      free_blocks(&layout);
    }
}

/* Lengths that say that all is there are no lengths. */
Test(kernels_attention_lengths, whole_samples) {
  static const int32_t lengths[] = {96, 96};
  blocks layout = make_blocks(6, 16, true, 50, 1);
  for (int sparse = 0; sparse < 2; sparse++) {
    problem with = make_problem(ZPK_F32, 2, 96, 2, 2, 2, 24, true),
            without = make_problem(ZPK_F32, 2, 96, 2, 2, 2, 24, true);
    if (sparse) use_blocks(&with, &layout);
    if (sparse) use_blocks(&without, &layout);
    use_lengths(&with, lengths);
    run_public(&with);
    run_public(&without);
    cr_expect(same_rows(&with.a, with.o_out, 0, without.o_out, 48, 192));
    cr_expect(same_rows(&with.a, with.d_qkv, 0, without.d_qkv, with.a.q_ld, 192));
    free_problem(&with);
    free_problem(&without);
  }
  free_blocks(&layout);
}

/* sum(d_o * o) over what is there, as a function of one element of q, k or v. */
static double objective(problem *p) {
  zpk_attention(&p->a, 0, p->a.B * p->a.G, 0);
  double sum = 0;
  for (int64_t i = 0; i < p->a.B * p->a.S * p->a.H * p->a.hd; i++) sum += p->d_o[i] * ((double *)p->o_out)[i];
  return sum;
}

/* After the lengths the outputs stay zeros, so the differences are 0 like the gradients. */
static void central_differences(bool causal, const blocks *layout) {
  static const int32_t lengths[] = {37, 48};
  problem p = make_problem(ZPK_F64, 2, 48, 2, 1, 1, 6, causal);
  if (layout) use_blocks(&p, layout);
  p.a.lengths = lengths;
  run_public(&p);
  p.a.workspace = malloc((size_t)share_of(&p.a, false));
  int64_t ld = p.a.q_ld, cols = 4 * 6;
  double *x = p.qkv, *dx = p.d_qkv, h = 1e-5;
  for (int64_t at = 0; at < 2 * 48 * cols; at += 37) {
    int64_t i = at / cols * ld + at % cols;
    double old = x[i];
    x[i] = old + h;
    double up = objective(&p);
    x[i] = old - h;
    double down = objective(&p);
    x[i] = old;
    cr_expect_float_eq((up - down) / (2 * h), dx[i], 1e-8, "element %lld", (long long)at);
  }
  free(p.a.workspace);
  free_problem(&p);
}

Test(kernels_attention_lengths, central_differences_full) { central_differences(false, NULL); }
Test(kernels_attention_lengths, central_differences_causal) { central_differences(true, NULL); }
Test(kernels_attention_lengths, central_differences_sparse) {
  blocks b = make_blocks(3, 16, false, 50, 2);
  central_differences(false, &b);
  free_blocks(&b);
}
