/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on views, all dtypes, all transpositions, one and several threads; one product an expert. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include "internal.h"
#include "narrow_testing.h"

static double value(int64_t i) { return (double)((i * 7919) % 101) / 101 - 0.5; }

static double get(zpk_dtype d, const void *x, int64_t i) { return get_as(d, x, i); }

/* 16 bits round a result once; the sums are f32. */
static double bound_of(zpk_dtype d, double want) { return d == ZPK_F64 ? 1e-12 : 1e-4 + narrow_unit(d) * fabs(want); }

static void *matrix(zpk_dtype d, int64_t count, int64_t salt) {
  void *x = malloc((size_t)(count * zpk_bytes(d)));
  for (int64_t i = 0; i < count; i++) put_as(d, x, i, value(i + salt));
  return x;
}

static void check(zpr *c, int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool accumulate) {
  zpk_dtype d = c->program->dtype;
  int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 2, ldy = n + 5;
  void *a = matrix(d, (ta ? k : m) * lda, 1), *b = matrix(d, (tb ? n : k) * ldb, 2), *y = matrix(d, m * ldy, 3);
  void *before = matrix(d, m * ldy, 3);
  if (zpk_is_narrow(d)) accumulate = false; /* sums are not kept in 16 bits */
  zpr_gemm(c, ta, tb, m, n, k, a, lda, b, ldb, accumulate, y, ldy);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < ldy; j++) {
      double want = j >= n || accumulate ? get(d, before, i * ldy + j) : 0;
      for (int64_t e = 0; j < n && e < k; e++)
        want += get(d, a, ta ? e * lda + i : i * lda + e) * get(d, b, tb ? j * ldb + e : e * ldb + j);
      double got = get(d, y, i * ldy + j);
      cr_assert(fabs(got - want) < bound_of(d, want), "%d x %d x %d: [%d][%d] is %g, expected %g", (int)m, (int)n,
                (int)k, (int)i, (int)j, got, want);
    }
  free(a), free(b), free(y), free(before);
}

/* A gradient, which is what the operands are computed in: nothing is rounded to them. */
static void check_gradient(zpr *c, int64_t m, int64_t n, int64_t k, bool accumulate) {
  zpk_dtype d = c->program->dtype, real = zpk_real(d);
  int64_t lda = m + 3, ldb = n + 2;
  void *a = matrix(d, k * lda, 1), *b = matrix(d, k * ldb, 2), *dw = matrix(real, m * n, 3);
  void *before = matrix(real, m * n, 3);
  zpr_wgrad(c, m, n, k, a, lda, b, ldb, accumulate, dw);
  for (int64_t i = 0; i < m * n; i++) {
    double want = accumulate ? get(real, before, i) : 0;
    for (int64_t e = 0; e < k; e++) want += get(d, a, e * lda + i / n) * get(d, b, e * ldb + i % n);
    cr_assert(fabs(get(real, dw, i) - want) < bound_of(real, want), "%d x %d x %d: element %d is %g, expected %g",
              (int)m, (int)n, (int)k, (int)i, get(real, dw, i), want);
  }
  free(a), free(b), free(dw), free(before);
}

/* Five experts, three samples, rows of wider matrices. */
static void check_experts(zpr *c, bool trans) {
  enum { B = 3, E = 5, C = 4, N = 7, K = 6, LDX = K + 2, LDY = N + 3 };
  zpk_dtype d = c->program->dtype;
  void *x = matrix(d, B * E * C * LDX, 1), *w = matrix(d, E * N * K, 2), *y = matrix(d, B * E * C * LDY, 3);
  void *before = matrix(d, B * E * C * LDY, 3);
  zpr_batched_gemm(c, trans, B, E, C, N, K, x, LDX, w, y, LDY);
  for (int64_t r = 0; r < B * E * C; r++)
    for (int64_t j = 0; j < LDY; j++) {
      int64_t at = r / C % E * N * K;
      double want = j < N ? 0 : get(d, before, r * LDY + j);
      for (int64_t e = 0; j < N && e < K; e++)
        want += get(d, x, r * LDX + e) * get(d, w, at + (trans ? j * K + e : e * N + j));
      cr_assert_float_eq(get(d, y, r * LDY + j), want, bound_of(d, want), "row %d, column %d", (int)r, (int)j);
    }
  free(x), free(w), free(y), free(before);
}

static void check_expert_sums(zpr *c, bool accumulate) {
  enum { B = 3, E = 5, C = 4, M = 7, N = 6, LDA = M + 2, LDB = N + 1 };
  zpk_dtype d = c->program->dtype, real = zpk_real(d);
  void *a = matrix(d, B * E * C * LDA, 1), *b = matrix(d, B * E * C * LDB, 2), *dw = matrix(real, E * M * N, 3);
  void *before = matrix(real, E * M * N, 3);
  zpr_batched_wgrad(c, B, E, C, M, N, a, LDA, b, LDB, accumulate, dw);
  for (int64_t i = 0; i < E * M * N; i++) {
    int64_t expert = i / (M * N), row = i / N % M, column = i % N;
    double want = accumulate ? get(real, before, i) : 0;
    for (int64_t r = 0; r < B * E * C; r++)
      if (r / C % E == expert) want += get(d, a, r * LDA + row) * get(d, b, r * LDB + column);
    cr_assert_float_eq(get(real, dw, i), want, bound_of(real, want), "element %d", (int)i);
  }
  free(a), free(b), free(dw), free(before);
}

/* Sorted rows: five experts, the second of none, the fourth of one. */
enum { RAGGED_ROWS = 14, RAGGED_EXPERTS = 5 };
static const int32_t ragged_first[RAGGED_EXPERTS] = {0, 6, 6, 9, 10};

static int64_t ragged_expert(int64_t row) {
  int64_t e = RAGGED_EXPERTS - 1;
  while (ragged_first[e] > row) e--;
  return e;
}

static void check_ragged(zpr *c, bool trans) {
  enum { R = RAGGED_ROWS, ROOM = R + 3, E = RAGGED_EXPERTS, N = 7, K = 6, LDX = K + 2, LDY = N + 3 };
  zpk_dtype d = c->program->dtype;
  void *x = matrix(d, ROOM * LDX, 1), *w = matrix(d, E * N * K, 2), *y = matrix(d, ROOM * LDY, 3);
  void *before = matrix(d, ROOM * LDY, 3);
  zpr_ragged_gemm(c, trans, R, ROOM, E, N, K, x, LDX, w, ragged_first, y, LDY);
  for (int64_t r = 0; r < ROOM; r++) /* rows after the last one are zero */
    for (int64_t j = 0; j < LDY; j++) {
      int64_t at = ragged_expert(r) * N * K;
      double want = j < N ? 0 : get(d, before, r * LDY + j);
      for (int64_t e = 0; j < N && r < R && e < K; e++)
        want += get(d, x, r * LDX + e) * get(d, w, at + (trans ? j * K + e : e * N + j));
      cr_assert_float_eq(get(d, y, r * LDY + j), want, bound_of(d, want), "row %d, column %d", (int)r, (int)j);
    }
  free(x), free(w), free(y), free(before);
}

static void check_ragged_sums(zpr *c, bool accumulate) {
  enum { R = RAGGED_ROWS, E = RAGGED_EXPERTS, M = 7, N = 6, LDA = M + 2, LDB = N + 1 };
  zpk_dtype d = c->program->dtype, real = zpk_real(d);
  void *a = matrix(d, R * LDA, 1), *b = matrix(d, R * LDB, 2), *dw = matrix(real, E * M * N, 3);
  void *before = matrix(real, E * M * N, 3);
  zpr_ragged_wgrad(c, R, E, M, N, a, LDA, b, LDB, ragged_first, accumulate, dw);
  for (int64_t i = 0; i < E * M * N; i++) {
    int64_t expert = i / (M * N), row = i / N % M, column = i % N;
    double want = accumulate ? get(real, before, i) : 0;
    for (int64_t r = 0; r < R; r++)
      if (ragged_expert(r) == expert) want += get(d, a, r * LDA + row) * get(d, b, r * LDB + column);
    cr_assert_float_eq(get(real, dw, i), want, bound_of(real, want), "element %d", (int)i);
  }
  free(a), free(b), free(dw), free(before);
}

/* With sanitizers every type once: f32 and bf16 on several threads. */
static void check_all(zpk_dtype dtype, int threads) {
#ifdef __SANITIZE_ADDRESS__
  if ((threads > 1) != (dtype == ZPK_F32 || dtype == ZPK_BF16)) cr_skip_test("sanitizers see every type once");
#endif
  static const int64_t sizes[][3] = {{1, 1, 1},       {3, 5, 2}, {64, 70, 80}, {130, 67, 33},
                                     {140, 150, 300}, {0, 4, 4}, {5, 5, 0}}; /* several tiles each way */
  zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1};
  zpr_stage stage = {.arena_bytes = 256 + ZPR_MAX_WORKERS * ZPR_PRODUCT_BYTES};
  program.stages = &stage;
  zpr_options options = zpr_default_options;
  options.threads = threads;
  int argc = 0;
  char **argv = NULL;
  zpr c;
  zpr_open(&c, &program, &options, &argc, &argv);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int flags = 0; flags < 8; flags++)
      check(&c, sizes[s][0], sizes[s][1], sizes[s][2], flags & 1, flags & 2, flags & 4);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int flag = 0; flag < 2; flag++) check_gradient(&c, sizes[s][0], sizes[s][1], sizes[s][2], flag);
  for (int flag = 0; flag < 2; flag++) {
    check_experts(&c, flag);
    check_expert_sums(&c, flag);
    check_ragged(&c, flag);
    check_ragged_sums(&c, flag);
  }
  zpr_close(&c);
}

Test(gemm, f32) { check_all(ZPK_F32, 1); }
Test(gemm, f64) { check_all(ZPK_F64, 1); }
Test(gemm, f32_threads) { check_all(ZPK_F32, 3); }
Test(gemm, bf16) { check_all(ZPK_BF16, 1); }
Test(gemm, bf16_threads) { check_all(ZPK_BF16, 3); }
Test(gemm, f16) { check_all(ZPK_F16, 1); }
Test(gemm, f16_threads) { check_all(ZPK_F16, 3); }
Test(gemm, f64_threads) { check_all(ZPK_F64, 2); }
