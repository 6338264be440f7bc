/* SPDX-License-Identifier: Apache-2.0 */
/* Attention kernels against a naive f64 reference and central differences: every instruction set of this machine,
 * f32, f64 and bf16, odd sizes, grouped queries, padding heads. */
#include "attention.h"
#include "attention_testing.h"
#include <stdio.h>

static int64_t share_bytes(const zpk_attention_args *a) {
  int64_t forward = zpk_attention_workspace(a->dtype, a->S, a->hd, a->H / a->G, false);
  int64_t backward = zpk_attention_workspace(a->dtype, a->S, a->hd, a->H / a->G, true);
  return forward > backward ? forward : backward;
}

/* A workspace has exactly the promised size, so that the address sanitizer sees what goes beyond, and is full of
 * numbers that would show: in f32 -2e24, in f64 -1e190. */
enum { UNWRITTEN = 0xE7 };
static void *new_workspace(const zpk_attention_args *a, bool backward, int shares) {
  size_t bytes = (size_t)(shares * zpk_attention_workspace(a->dtype, a->S, a->hd, a->H / a->G, backward));
  void *workspace = malloc(bytes);
  memset(workspace, UNWRITTEN, bytes);
  return workspace;
}

/* A share is no larger than what the kernel needs: it is written up to what the kernel says that it leaves. */
static void check_share(const problem *p, bool backward) {
  int64_t share = zpk_attention_workspace(p->a.dtype, p->a.S, p->a.hd, p->a.H / p->a.G, backward), written = share;
  const unsigned char *bytes = p->a.workspace;
  while (written > 0 && bytes[written - 1] == UNWRITTEN) written--;
  int64_t needed = written + zpk_attention_unwritten(&p->a, backward);
  cr_expect(p->a.layout || p->a.S < 48 ? needed >= share : needed == share,
            "%lld bytes of %lld, S %lld, heads of %lld, %s, %s", (long long)needed, (long long)share, (long long)p->a.S,
            (long long)p->a.hd, backward ? "backward" : "forward", p->a.layout ? "sparse" : "dense");
}

static void run_public(problem *p) {
  int64_t tasks = p->a.B * p->a.G;
  p->a.workspace = new_workspace(&p->a, false, 1);
  zpk_attention(&p->a, 0, tasks, 0);
  check_share(p, false);
  free(p->a.workspace);
  p->a.workspace = new_workspace(&p->a, true, 1);
  zpk_attention_grad(&p->a, 0, tasks, 0);
  check_share(p, true);
  free(p->a.workspace);
}

static const struct {
  int64_t B, S, H, G, valid, hd;
} shapes[] = {
    {1, 1, 1, 1, 1, 1},   {2, 7, 3, 3, 3, 5},    {1, 48, 2, 2, 2, 64}, {2, 49, 4, 2, 2, 32},
    {1, 96, 2, 1, 1, 80}, {1, 131, 3, 3, 2, 17}, {2, 64, 6, 3, 2, 64}, {1, 200, 2, 2, 2, 136},
};

static void run_shapes(zpk_dtype dtype, bool causal) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    problem p =
        make_problem(dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid, shapes[i].hd, causal);
    char what[80];
    snprintf(what, sizeof what, "shape %zu, f%d, %s", i, (int)zpk_bytes(dtype) * 8, causal ? "causal" : "full");
    reference(&p);
    run_public(&p);
    check(&p, what);
    free_problem(&p);
  }
}

Test(kernels_attention, f64_causal) { run_shapes(ZPK_F64, true); }
Test(kernels_attention, f64_full) { run_shapes(ZPK_F64, false); }
Test(kernels_attention, f32_causal) { run_shapes(ZPK_F32, true); }
Test(kernels_attention, f32_full) { run_shapes(ZPK_F32, false); }
Test(kernels_attention, bf16_causal) { run_shapes(ZPK_BF16, true); }
Test(kernels_attention, bf16_full) { run_shapes(ZPK_BF16, false); }
Test(kernels_attention, f16_causal) { run_shapes(ZPK_F16, true); }
Test(kernels_attention, f16_full) { run_shapes(ZPK_F16, false); }

/* ---- block-sparse ---- */

static const struct {
  int64_t B, n, block, H, G, valid, hd;
  int some; /* of a hundred pairs of blocks */
} sparse_shapes[] = {
    {1, 1, 16, 1, 1, 1, 4, 0},  {2, 9, 16, 3, 3, 3, 5, 30},   {1, 5, 32, 4, 2, 2, 24, 50},  {1, 4, 48, 2, 1, 1, 64, 40},
    {2, 3, 64, 6, 3, 2, 17, 0}, {1, 3, 112, 2, 2, 2, 32, 60}, {1, 6, 64, 2, 2, 2, 64, 100}, {1, 2, 128, 1, 1, 1, 80, 0},
};

static void run_sparse(zpk_dtype dtype, bool causal) {
  for (size_t i = 0; i < sizeof sparse_shapes / sizeof *sparse_shapes; i++) {
    blocks b = make_blocks(sparse_shapes[i].n, sparse_shapes[i].block, causal, sparse_shapes[i].some, i);
    problem p = make_problem(dtype, sparse_shapes[i].B, b.n * sparse_shapes[i].block, sparse_shapes[i].H,
                             sparse_shapes[i].G, sparse_shapes[i].valid, sparse_shapes[i].hd, causal);
    use_blocks(&p, &b);
    char what[80];
    snprintf(what, sizeof what, "sparse %zu, f%d, %s", i, (int)zpk_bytes(dtype) * 8, causal ? "causal" : "full");
    reference(&p);
    run_public(&p);
    check(&p, what);
    free_problem(&p);
    free_blocks(&b);
  }
}

Test(kernels_attention, sparse_f64) {
  run_sparse(ZPK_F64, true);
  run_sparse(ZPK_F64, false);
}
Test(kernels_attention, sparse_f32) {
  run_sparse(ZPK_F32, true);
  run_sparse(ZPK_F32, false);
}
Test(kernels_attention, sparse_bf16) {
  run_sparse(ZPK_BF16, true);
  run_sparse(ZPK_BF16, false);
}

/* Absent blocks are not read: NaN in them changes nothing. */
Test(kernels_attention, absent_blocks_are_skipped) {
  enum { BLOCK_SIZE = 32, N = 4, HD = 16 };
  blocks b = make_blocks(N, BLOCK_SIZE, true, 0, 1); /* every block sees itself only */
  problem p = make_problem(ZPK_F32, 1, N * BLOCK_SIZE, 1, 1, 1, HD, true);
  use_blocks(&p, &b);
  reference(&p);
  for (int64_t row = 0; row < BLOCK_SIZE; row++)
    for (int64_t c = 0; c < 3 * HD; c++) ((float *)p.qkv)[row * p.a.q_ld + c] = NAN;
  run_public(&p);
  int64_t from = BLOCK_SIZE, rows = (N - 1) * BLOCK_SIZE;
  cr_expect_lt(difference(ZPK_F32, (float *)p.a.o + from * HD, HD, p.o + from * HD, rows, HD), 1e-5);
  cr_expect_lt(difference(ZPK_F32, (float *)p.a.dk + from * p.a.dk_ld, p.a.dk_ld, p.dk + from * HD, rows, HD), 1e-5);
  free_problem(&p);
  free_blocks(&b);
}

/* The public functions take the best level; here the others of this machine. */
static void run_level(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    problem p = make_problem((zpk_dtype)dtype, 2, 67, 4, 2, 2, 24, true);
    p.a.workspace = malloc((size_t)share_bytes(&p.a));
    for (int64_t task = 0; task < 4; task++) level->forward[dtype](&p.a, task / 2, task % 2, p.a.workspace, NULL);
    for (int64_t task = 0; task < 4; task++) level->backward[dtype](&p.a, task / 2, task % 2, p.a.workspace, NULL);
    reference(&p);
    check(&p, name);
    free(p.a.workspace);
    free_problem(&p);
  }
}

static void run_sparse_level(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype <= ZPK_BF16; dtype++) {
    blocks b = make_blocks(4, 80, true, 40, 3);
    problem p = make_problem((zpk_dtype)dtype, 1, 320, 2, 1, 1, 24, true);
    use_blocks(&p, &b);
    use_dropout(&p.a, 0.15);
    p.a.workspace = malloc((size_t)share_bytes(&p.a));
    level->forward[dtype](&p.a, 0, 0, p.a.workspace, NULL);
    level->backward[dtype](&p.a, 0, 0, p.a.workspace, NULL);
    reference(&p);
    check(&p, name);
    free(p.a.workspace);
    free_problem(&p);
    free_blocks(&b);
  }
}

Test(kernels_attention, every_instruction_set) {
  run_level(&zpk_attention_base, "base");
  run_sparse_level(&zpk_attention_base, "base, sparse");
#if ZPK_X86_LEVELS
  if (__builtin_cpu_supports("x86-64-v3")) run_level(&zpk_attention_v3, "v3");
  if (__builtin_cpu_supports("x86-64-v3")) run_sparse_level(&zpk_attention_v3, "v3, sparse");
  if (__builtin_cpu_supports("x86-64-v4")) run_level(&zpk_attention_v4, "v4");
  if (__builtin_cpu_supports("x86-64-v4")) run_sparse_level(&zpk_attention_v4, "v4, sparse");
#endif
}

Test(kernels_attention, task_ranges_do_not_change_bits) {
  problem one = make_problem(ZPK_F32, 3, 70, 4, 2, 2, 40, true), many = make_problem(ZPK_F32, 3, 70, 4, 2, 2, 40, true);
  run_public(&one);
  many.a.workspace = new_workspace(&many.a, false, 3);
  zpk_attention(&many.a, 5, 6, 2);
  zpk_attention(&many.a, 0, 3, 0);
  zpk_attention(&many.a, 3, 5, 1);
  free(many.a.workspace);
  many.a.workspace = new_workspace(&many.a, true, 2);
  zpk_attention_grad(&many.a, 2, 6, 1);
  zpk_attention_grad(&many.a, 0, 2, 0);
  free(many.a.workspace);
  int64_t rows = 3 * 70;
  cr_expect_arr_eq(one.o_out, many.o_out, (size_t)(rows * 4 * 40) * sizeof(float));
  cr_expect_arr_eq(one.d_qkv, many.d_qkv, (size_t)(rows * one.a.dq_ld) * sizeof(float));
  free_problem(&one);
  free_problem(&many);
}

/* Large scores: the running maximum must keep exp in range, and a late large key must rescale what came before. */
Test(kernels_attention, large_scores_stay_finite) {
  problem p = make_problem(ZPK_F64, 1, 120, 1, 1, 1, 8, true);
  p.a.scale = 400;
  reference(&p);
  run_public(&p);
  int64_t rows = 120;
  cr_expect_lt(difference(ZPK_F64, p.a.o, p.a.o_ld, p.o, rows, 8), 1e-12);
  cr_expect_lt(difference(ZPK_F64, p.a.lse, 1, p.lse, rows, 1), 1e-12);
  free_problem(&p);
}

/* sum(d_o * o) as a function of one element of q, k or v. */
static double objective(problem *p) {
  zpk_attention(&p->a, 0, p->a.B * p->a.G, 0);
  double sum = 0;
  for (int64_t i = 0; i < p->a.B * p->a.S * p->a.H * p->a.hd; i++) sum += p->d_o[i] * ((double *)p->o_out)[i];
  return sum;
}

Test(kernels_attention, central_differences) {
  problem p = make_problem(ZPK_F64, 1, 53, 2, 1, 1, 6, true);
  run_public(&p);
  p.a.workspace = new_workspace(&p.a, false, 1);
  int64_t ld = p.a.q_ld, cols = 4 * 6;
  double *x = p.qkv, *dx = p.d_qkv, h = 1e-5;
  for (int64_t at = 0; at < 53 * cols; at += 37) {
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
