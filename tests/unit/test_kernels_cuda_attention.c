/* SPDX-License-Identifier: Apache-2.0 */
/* Device attention, compiled for the host, against the naive f64 reference and the CPU kernels. */
#include "attention_device.h"

static const char text[] = "#include \"zpd_attention.cuh\"\n";
static const char numbers_once[] = "numbers, not addresses: the other build looks at them";

static const struct {
  int64_t B, S, H, G, valid, hd;
} shapes[] = {
    {1, 1, 1, 1, 1, 1},    {2, 7, 3, 3, 3, 5},   {1, 64, 2, 2, 2, 64},   {2, 65, 4, 2, 2, 32},  {1, 96, 2, 1, 1, 80},
    {1, 131, 3, 3, 2, 17}, {2, 66, 6, 3, 2, 64}, {1, 129, 1, 1, 1, 136}, {1, 67, 2, 1, 1, 256}, {1, 40, 1, 1, 1, 255},
};

static void run_shape(const host_object *k, zpk_dtype dtype, size_t i, int head, bool causal, bool aligned) {
  problem p =
      make_problem(dtype, shapes[i].B, shapes[i].S, shapes[i].H, shapes[i].G, shapes[i].valid, shapes[i].hd, causal);
  if (aligned) align(&p);
  char what[96];
  snprintf(what, sizeof what, "shape %zu, f%d, %s%s, for heads up to %d", i, (int)zpk_bytes(dtype) * 8,
           causal ? "causal" : "full", aligned ? ", aligned" : "", head);
  reference(&p);
  run_plain(k, &p);
  check(&p, what);
  free_problem(&p);
}

/* Every shape causal and full, rows that begin at multiples of 16 bytes with one of the two in turns. Sanitizers, which
 * take four times as long, and f16, whose text is that of bf16 but for the conversions, see one of them. */
static bool takes_way(size_t shape, zpk_dtype dtype, size_t head, bool causal) {
  return !(sanitized || sanitized_elsewhere || dtype == ZPK_F16) || causal == (shape / 2 + (size_t)dtype + head) % 2;
}

/* Texts for several head sizes: a part of the head's columns, all of them, more than there are. */
static void run_shapes(zpk_dtype dtype) {
  if (sanitized && dtype != ZPK_F32) cr_skip_test("sanitizers see f32: other texts differ by the element alone");
  if (sanitized_elsewhere && dtype == ZPK_F32) cr_skip_test("sanitizers see f32");
  const int heads[] = {256, 64, 96};
  for (size_t h = 0; h < (sanitized || sanitized_elsewhere ? 1 : sizeof heads / sizeof *heads); h++) {
    host_object k = device_open(text, dtype, heads[h]);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      for (int causal = 0; causal < 2; causal++)
        if (takes_way(i, dtype, h, causal) && (h == 0 || shapes[i].hd >= heads[h] / 3))
          run_shape(&k, dtype, i, heads[h], causal, (i + h + (size_t)causal) % 2);
    host_unload(&k);
  }
}

Test(kernels_cuda_attention, f64) { run_shapes(ZPK_F64); }
Test(kernels_cuda_attention, f32) { run_shapes(ZPK_F32); }
Test(kernels_cuda_attention, bf16) { run_shapes(ZPK_BF16); }
Test(kernels_cuda_attention, f16) { run_shapes(ZPK_F16); }

/* ---- block-sparse ---- */

/* On the first drawn layouts. */
static const struct {
  int64_t B, H, G, valid, hd;
} sparse_shapes[] = {
    {1, 2, 2, 2, 32}, {2, 4, 2, 1, 17}, {1, 1, 1, 1, 64}, {1, 2, 1, 1, 8}, {1, 1, 1, 1, 80}, {1, 1, 1, 1, 40},
};

static void run_sparse(zpk_dtype dtype) {
  if (sanitized ? dtype != ZPK_F32 : sanitized_elsewhere && dtype == ZPK_F32) cr_skip_test("sanitizers see f32");
  enum { N = sizeof sparse_shapes / sizeof *sparse_shapes };
  blocks all[ALL_LAYOUTS];
  draw_layouts(all);
  host_object k = device_open_with(text, all, ALL_LAYOUTS, dtype, 64, false);
  for (int i = 0; i < N; i += sanitized || sanitized_elsewhere ? 2 : 1)
    for (int sparse = 0; sparse < 2; sparse++) { /* a model may have both: the same kernels, dense and sparse */
      problem p =
          make_problem(dtype, sparse_shapes[i].B, all[i].n * all[i].layout.block, sparse_shapes[i].H,
                       sparse_shapes[i].G, sparse_shapes[i].valid, sparse_shapes[i].hd, drawn_layouts[i].causal);
      if (sparse) use_blocks(&p, &all[i]);
      char what[64];
      snprintf(what, sizeof what, "%s %d, f%d", sparse ? "sparse" : "dense alongside it", i, (int)zpk_bytes(dtype) * 8);
      reference(&p);
      run_plain(&k, &p);
      check(&p, what);
      free_problem(&p);
    }
  host_unload(&k);
  free_layouts(all);
}

Test(kernels_cuda_attention, sparse_f64) { run_sparse(ZPK_F64); }
Test(kernels_cuda_attention, sparse_f32) { run_sparse(ZPK_F32); }
Test(kernels_cuda_attention, sparse_bf16) { run_sparse(ZPK_BF16); }

/* The CPU's kernels take other tiles and another exponential: equal up to rounding. The gradients are those of the same
 * output and log-sum-exp. */
Test(kernels_cuda_attention, cpu_kernels_agree) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    if (sanitized && dtype != ZPK_F32) continue;
    host_object k = device_open(text, (zpk_dtype)dtype, 64);
    problem cpu = make_problem((zpk_dtype)dtype, 2, 150, 4, 2, 2, 48, true);
    problem device = make_problem((zpk_dtype)dtype, 2, 150, 4, 2, 2, 48, true);
    cpu.a.workspace = malloc((size_t)(zpk_attention_workspace((zpk_dtype)dtype, 150, 48, 2, false) +
                                      zpk_attention_workspace((zpk_dtype)dtype, 150, 48, 2, true)));
    zpk_attention(&cpu.a, 0, 4, 0);
    zpk_attention_grad(&cpu.a, 0, 4, 0);
    run_plain(&k, &device);
    int64_t rows = 300, ld = cpu.a.dq_ld;
    double *want = malloc((size_t)(rows * ld) * sizeof *want), bound = dtype == ZPK_F64 ? 4e-15
                                                                       : dtype == ZPK_F32
                                                                           ? 2e-6
                                                                           : 2 * narrow_unit((zpk_dtype)dtype);
    for (int64_t i = 0; i < rows * ld; i++) want[i] = i % ld < 8 * 48 ? get((zpk_dtype)dtype, cpu.d_qkv, i) : 0;
    for (int64_t r = 0; r < rows; r++) /* what lies between rows is nobody's */
      for (int64_t c = 8 * 48; c < ld; c++) put((zpk_dtype)dtype, device.d_qkv, r * ld + c, 0);
    cr_expect_lt(difference((zpk_dtype)dtype, device.d_qkv, ld, want, rows, ld), bound);
    for (int64_t i = 0; i < rows * 4 * 48; i++) want[i] = get((zpk_dtype)dtype, cpu.o_out, i);
    cr_expect_lt(difference((zpk_dtype)dtype, device.o_out, 4 * 48, want, rows, 4 * 48), bound);
    free(want);
    free(cpu.a.workspace);
    free_problem(&cpu);
    free_problem(&device);
    host_unload(&k);
  }
}

/* Large scores: the running maximum must keep exp in range, and a late large key must rescale what came before. */
Test(kernels_cuda_attention, large_scores_stay_finite) {
  if (sanitized) cr_skip_test("%s", numbers_once);
  host_object k = device_open(text, ZPK_F64, 32);
  problem p = make_problem(ZPK_F64, 1, 120, 1, 1, 1, 8, true);
  p.a.scale = 400;
  reference(&p);
  run_plain_forward(&k, &p);
  cr_expect_lt(difference(ZPK_F64, p.a.o, p.a.o_ld, p.o, 120, 8), 1e-12);
  cr_expect_lt(difference(ZPK_F64, p.a.lse, 1, p.lse, 120, 1), 1e-12);
  free_problem(&p);
  host_unload(&k);
}

/* A NaN key reaches all queries that see it. Queries of the tile before do not meet it; those of its own tile may,
 * because 0 times NaN is NaN, as on the CPU. */
Test(kernels_cuda_attention, nan_reaches_who_sees_it) {
  enum { S = 90, HD = 8, BAD = 70 };
  if (sanitized) cr_skip_test("%s", numbers_once);
  host_object k = device_open(text, ZPK_F32, 32);
  problem p = make_problem(ZPK_F32, 1, S, 1, 1, 1, HD, true);
  reference(&p);
  for (int c = 0; c < 2 * HD; c++) ((float *)p.qkv)[BAD * p.a.q_ld + HD + c] = NAN;
  run_plain(&k, &p);
  cr_expect_lt(difference(ZPK_F32, p.a.o, HD, p.o, ZPD_ATTENTION_ROWS, HD), 1e-5);
  cr_expect_lt(difference(ZPK_F32, p.a.dq, p.a.dq_ld, p.dq, ZPD_ATTENTION_ROWS, HD), 1e-5);
  for (int row = BAD; row < S; row++) {
    cr_expect(isnan(((float *)p.o_out)[row * HD]), "output %d", row);
    cr_expect(isnan(((float *)p.d_qkv)[row * p.a.dq_ld]), "gradient of query %d", row);
  }
  free_problem(&p);
  host_unload(&k);
}
