/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on tensor cores, compiled for the host, against the naive f64 reference: with m16n8k16 of sm_80 and later,
 * and with m8n8k4 of Volta. */
#include <zplan/own_gpu.h>
#include "attention_device.h"

static const char text[] = "#include \"zpd_mma_attention_grad.cuh\"\n";
static const char volta[] = "#define ZPD_VOLTA\n#include \"zpd_mma_attention_grad.cuh\"\n";

static const char numbers_once[] = "numbers, not addresses: the other build looks at them";
static const char watched_once[] = "watched text is compiled without sanitizers: it is the same in the other build";

static const struct {
  int64_t B, S, H, G, valid, hd;
} shapes[] = {
    {1, 1, 1, 1, 1, 1},    {2, 7, 3, 3, 3, 5},    {1, 64, 2, 2, 2, 64},   {2, 65, 4, 2, 2, 32},  {1, 96, 2, 1, 1, 80},
    {1, 131, 3, 3, 2, 17}, {2, 66, 6, 3, 2, 64},  {1, 129, 1, 1, 1, 136}, {1, 67, 2, 1, 1, 256}, {1, 40, 1, 1, 1, 255},
    {1, 200, 1, 1, 1, 48}, {1, 260, 2, 2, 2, 16}, {1, 130, 1, 1, 1, 128},
};

static void run_shape(const host_object *k, zpk_dtype dtype, size_t i, int head, bool causal, bool aligned) {
  problem p =
      make_problem(dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid, shapes[i].hd, causal);
  if (aligned) align(&p);
  char what[96];
  snprintf(what, sizeof what, "shape %zu, %s%s, for heads up to %d", i, causal ? "causal" : "full",
           aligned ? ", aligned" : "", head);
  reference(&p);
  run_mma(k, &p, head);
  check(&p, what);
  free_problem(&p);
}

/* Kernels that the sparse tests have compiled run dense problems, too: with sanitizers, and watched, which take longest
 * to compile, one text serves both. */
static host_object open_dense(const char *kernels, zpk_dtype dtype, int head, bool watch) {
  if (!(sanitized || watch) || head != 64) return device_open_as(kernels, dtype, head, watch);
  blocks all[ALL_LAYOUTS];
  draw_layouts(all);
  host_object k = device_open_with(kernels, all, ALL_LAYOUTS, dtype, head, watch);
  free_layouts(all);
  return k;
}

/* Every shape causal and full, once with rows that begin at multiples of 16 bytes and once without; with `once`, or
 * sanitizers, which take four times as long, one of the two, and of heads up to 64 alone; bf16 has a wide tile, too. */
static void run_shapes(const char *kernels, zpk_dtype dtype, bool once) {
  const int heads[] = {16, 48, 64, 128, 256};
  for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
    if ((once || sanitized || sanitized_elsewhere) && heads[h] != 64 && (heads[h] != 256 || dtype != ZPK_BF16))
      continue;
    host_object k = open_dense(kernels, dtype, heads[h], false);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      if (shapes[i].hd <= heads[h] && shapes[i].hd > heads[h] / 4)
        for (int causal = 0; causal < 2; causal++) {
          bool aligned = (i + h + (size_t)causal) % 2;
          if (!(once || sanitized || sanitized_elsewhere) || causal == (int)(i / 2 + h) % 2)
            run_shape(&k, dtype, i, heads[h], causal, aligned);
        }
    host_unload(&k);
  }
}

Test(kernels_cuda_mma, bf16) {
  if (sanitized_elsewhere) cr_skip_test("sanitizers see it");
  run_shapes(text, ZPK_BF16, false);
}
Test(kernels_cuda_mma, f16) {
  if (sanitized) cr_skip_test("the addresses are those of bf16");
  run_shapes(text, ZPK_F16, true);
}
Test(kernels_cuda_mma, f16_volta) {
  if (sanitized_elsewhere) cr_skip_test("sanitizers see it");
  run_shapes(volta, ZPK_F16, false);
}

/* ---- block-sparse ---- */

static const struct {
  int layout;
  int64_t B, H, G, valid, hd;
} sparse_shapes[] = {
    {10, 1, 2, 1, 1, 64}, {13, 1, 2, 2, 2, 40}, {1, 2, 4, 2, 1, 17}, {14, 1, 1, 1, 1, 64},
    {15, 1, 2, 1, 1, 32}, {16, 1, 1, 1, 1, 48}, {17, 2, 1, 1, 1, 8},
};
enum { SPARSE = sizeof sparse_shapes / sizeof *sparse_shapes };

/* Watched, which takes most of the time, every shape has its rows one of the two ways. */
static void run_sparse(const char *kernels, zpk_dtype dtype, int head, bool watch) {
  if (watch && sanitized) cr_skip_test("%s", watched_once);
  blocks all[ALL_LAYOUTS];
  draw_layouts(all);
  host_object k = device_open_with(kernels, all, ALL_LAYOUTS, dtype, head, watch);
  for (int i = 0; i < SPARSE; i++)
    for (int aligned = 0; aligned < 2; aligned++) {
      if (watch && aligned != i % 2) continue;
      int at = sparse_shapes[i].layout;
      problem p =
          make_problem(dtype, sparse_shapes[i].B, all[at].n * all[at].layout.block, sparse_shapes[i].H,
                       sparse_shapes[i].G, sparse_shapes[i].valid, sparse_shapes[i].hd, drawn_layouts[at].causal);
      if (aligned) align(&p);
      use_blocks(&p, &all[at]);
      char what[64];
      snprintf(what, sizeof what, "sparse %d, for heads up to %d%s", i, head, aligned ? ", aligned" : "");
      reference(&p);
      run_mma(&k, &p, head);
      check(&p, what);
      free_problem(&p);
    }
  host_unload(&k);
  free_layouts(all);
}

Test(kernels_cuda_mma, sparse_bf16) {
  if (sanitized_elsewhere) cr_skip_test("sanitizers see it");
  run_sparse(text, ZPK_BF16, 64, false);
}
Test(kernels_cuda_mma, sparse_f16_wide_heads) {
  if (sanitized) cr_skip_test("the addresses are those of bf16");
  run_sparse(text, ZPK_F16, 256, false);
}
Test(kernels_cuda_mma, sparse_without_races) { run_sparse(text, ZPK_BF16, 64, true); }
Test(kernels_cuda_mma, sparse_volta) {
  if (sanitized_elsewhere) cr_skip_test("sanitizers see it");
  run_sparse(volta, ZPK_F16, 64, false);
}
Test(kernels_cuda_mma, sparse_volta_without_races) { run_sparse(volta, ZPK_F16, 64, true); }

/* ---- watched ---- */

/* No race; no two accesses meet in a bank; global memory moves what is asked for, but for log-sum-exps, which lie one a
 * head apart. Multiplications by hand: tiles of 16 x 8 x 16 that are not after the end or above the diagonal as whole
 * warps; the planner prices as many. */
static void watch(bool quads, int head, int64_t S, long forward_mma) {
  static const char *const names[] = {"zpd_mma_forward", "zpd_mma_grad_q", "zpd_mma_grad_kv"};
  if (sanitized) cr_skip_test("%s", watched_once);
  const int flop_of_mma = quads ? 2 * 4 * 8 * 8 * 4 : 2 * 16 * 8 * 16;
  const zpk_dtype dtype = quads ? ZPK_F16 : ZPK_BF16;
  const zp_attention_shape shape = {1, 2, 1, S, head, head, 2, true, NULL, 0, 0, false};
  host_object k = open_dense(quads ? volta : text, dtype, head, true);
  problem p = make_problem(dtype, 1, S, 2, 1, 1, head, true);
  size_t o_bytes = (size_t)(p.a.B * S * p.a.o_ld * 2);
  void *o = aligned_alloc(32, o_bytes), *d_o = aligned_alloc(32, o_bytes);
  align(&p);
  memcpy(d_o, p.d_o_in, o_bytes);
  free(p.o_out);
  free(p.d_o_in);
  p.a.o = p.o_out = o;
  p.a.d_o = p.d_o_in = d_o;
  reference(&p);
  run_mma(&k, &p, head);
  check(&p, "watched");
  for (int i = 0; i < 3; i++) {
    zpd_host_counts c = host_counts(&k, names[i]);
    cr_expect_eq(c.passes, c.passes_least, "%s, heads of %d: %ld passes, least %ld", names[i], head, c.passes,
                 c.passes_least);
    cr_expect_gt(c.sectors_asked, 0.9 * (double)c.sectors_moved, "%s, heads of %d: %ld of %ld sectors", names[i], head,
                 c.sectors_asked, c.sectors_moved);
    cr_expect_eq(c.async_copies > 0, !quads);
    cr_expect_eq(c.ldmatrix > 0, !quads);
    if (i == 0) cr_expect_eq(c.mma * flop_of_mma, forward_mma * 2 * 16 * 8 * 16, "heads of %d: %ld", head, c.mma);
    double priced = zp_attention_walk_of((zp_tensor_kernel)i, &shape).flop;
    cr_expect_eq((double)c.mma * flop_of_mma, priced, "%s, heads of %d: %ld, the planner counts %g FLOP", names[i],
                 head, c.mma, priced);
  }
  free_problem(&p);
  host_unload(&k);
}

/* Heads of 64: tiles of 128 queries, warps of 32, steps of 64 keys. A warp with 32 queries and 64 keys multiplies 2 x 8
 * x 4 times for scores and as often for outputs. 256 queries: warps 0 .. 7 meet 1, 1, 2, 2, 3, 3, 4, 4 steps, of 2
 * heads. */
Test(kernels_cuda_mma, heads_of_64_without_races_or_conflicts) { watch(false, 64, 256, 2 * 20 * 128); }

/* Heads of 128: tiles of 128 queries, warps of 32, steps of 32: 2 x 4 x 8 times twice. 128 queries: warps 0 to 3 meet
 * one step to four. */
Test(kernels_cuda_mma, heads_of_128_without_races_or_conflicts) { watch(false, 128, 128, 2 * 10 * 128); }

/* Swapped chunks in rows whose length is no power of two. */
Test(kernels_cuda_mma, heads_of_48_without_races_or_conflicts) { watch(false, 48, 128, 2 * 6 * 2 * 8 * (3 + 3)); }

/* Volta's walk is the same, with as many operations. */
Test(kernels_cuda_mma, heads_of_64_on_volta) { watch(true, 64, 256, 2 * 20 * 128); }
Test(kernels_cuda_mma, heads_of_128_on_volta) { watch(true, 128, 128, 2 * 10 * 128); }
Test(kernels_cuda_mma, heads_of_48_on_volta) { watch(true, 48, 128, 2 * 6 * 2 * 8 * (3 + 3)); }
Test(kernels_cuda_mma, heads_of_32_on_volta) { watch(true, 32, 128, 2 * 6 * 2 * 8 * (2 + 2)); }

/* ---- what must not change ---- */

Test(kernels_cuda_mma, a_run_repeats) {
  if (sanitized_elsewhere) cr_skip_test("sanitizers see it");
  host_object k = open_dense(text, ZPK_BF16, 64, false);
  problem p = make_problem(ZPK_BF16, 1, 150, 2, 1, 1, 64, true), q = make_problem(ZPK_BF16, 1, 150, 2, 1, 1, 64, true);
  run_mma(&k, &p, 64);
  run_mma(&k, &q, 64);
  cr_expect_eq(memcmp(p.o_out, q.o_out, 150 * 128 * 2), 0);
  cr_expect_eq(memcmp(p.d_qkv, q.d_qkv, (size_t)(150 * p.a.q_ld * 2)), 0);
  free_problem(&p);
  free_problem(&q);
  host_unload(&k);
}

/* Large scores: the running maximum must keep powers in range; negative and zero scales are numbers like any. */
Test(kernels_cuda_mma, scales_of_any_size_and_sign) {
  static const double scales[] = {60, -60, -0.3, 0};
  if (sanitized) cr_skip_test("%s", numbers_once);
  host_object k = device_open(text, ZPK_F16, 64); /* as f16 has it; tiles of 16: below */
  for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
    problem p = make_problem(ZPK_F16, 1, 120, 1, 1, 1, 8, true);
    p.a.scale = scales[i];
    reference(&p);
    run_mma(&k, &p, 64);
    double bound = 2 * narrow_unit(ZPK_F16) + fabs(scales[i]) * 1e-5;
    cr_expect_lt(difference(ZPK_F16, p.a.o, p.a.o_ld, p.o, 120, 8), bound, "scale %g", scales[i]);
    cr_expect_lt(difference(ZPK_F32, p.a.lse, 1, p.lse, 120, 1), 1e-5, "scale %g", scales[i]);
    free_problem(&p);
  }
  host_unload(&k);
}

/* A NaN key reaches all queries that see it. Queries of the tiles before do not meet it. */
Test(kernels_cuda_mma, nan_reaches_who_sees_it) {
  enum { S = 200, HD = 8, BAD = 150, TILE = 128 };
  if (sanitized) cr_skip_test("%s", numbers_once);
  host_object k = device_open(text, ZPK_BF16, 16);
  problem p = make_problem(ZPK_BF16, 1, S, 1, 1, 1, HD, true);
  reference(&p);
  for (int c = 0; c < 2 * HD; c++) put(ZPK_BF16, p.qkv, BAD * p.a.q_ld + HD + c, NAN);
  run_mma(&k, &p, 16);
  cr_expect_lt(difference(ZPK_BF16, p.a.o, HD, p.o, TILE, HD), 2 * narrow_unit(ZPK_BF16));
  for (int row = BAD; row < S; row++) {
    cr_expect(isnan(get(ZPK_BF16, p.o_out, row * HD)), "output %d", row);
    cr_expect(isnan(get(ZPK_BF16, p.d_qkv, row * p.a.dq_ld)), "gradient of query %d", row);
  }
  free_problem(&p);
  host_unload(&k);
}
