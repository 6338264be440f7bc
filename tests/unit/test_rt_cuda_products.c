/* SPDX-License-Identifier: Apache-2.0 */
/* Products of the GPU runtime on the emulated GPU, against sums in f64: plain ones, those of experts, those with an
 * epilogue; and what its cuBLASLt refuses. */
#include "rt_cuda_testing.h"

/* ---- products ---- */

static void check_gemm(zpr *c, bool ta, bool tb, bool accumulate) {
  enum { M = 13, N = 6, K = 31, PAD = 3 };
  int64_t lda = (ta ? M : K) + PAD, ldb = (tb ? K : N) + PAD, ldy = N + PAD;
  used = 0;
  buffer a = make(c, (ta ? K : M) * lda), b = make(c, (tb ? N : K) * ldb), y = make(c, M * ldy);
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < N; j++) {
      double sum = accumulate ? get(&y, i * ldy + j) : 0;
      for (int64_t k = 0; k < K; k++)
        sum += get(&a, ta ? k * lda + i : i * lda + k) * get(&b, tb ? j * ldb + k : k * ldb + j);
      put(&y, i * ldy + j, sum);
    }
  zpr_gemm(c, ta, tb, M, N, K, a.gpu, lda, b.gpu, ldb, accumulate, y.gpu, ldy);
  compare(&y, rounding(c), "product"); /* also what stands between the rows */
  free(a.host), free(b.host), free(y.host);
}

EACH_DTYPE(products) {
  zpr *c = open_gpu(*dtype);
  for (int i = 0; i < 8; i++) check_gemm(c, i & 1, i & 2, i & 4);
  zpr_close(c);
}

/* ---- products with an epilogue ---- */

enum { E_M = 13, E_N = 16, E_K = 31, E_PAD = 8 };

typedef struct epilogue_case {
  zpr *c;
  buffer a, b, y, bias, residual, gelu, sum, workspace;
  zpr_matmul_call call;
} epilogue_case;

static epilogue_case open_epilogue(zpr *c, bool ta, bool tb) {
  int64_t lda = (ta ? E_M : E_K) + E_PAD, ldb = (tb ? E_K : E_N) + E_PAD, ld = E_N + E_PAD;
  used = 0;
  epilogue_case e = {.c = c,
                     .a = make(c, (ta ? E_K : E_M) * lda),
                     .b = make(c, (tb ? E_N : E_K) * ldb),
                     .y = make(c, E_M * ld),
                     .bias = make(c, E_N),
                     .residual = make(c, E_M * ld),
                     .gelu = make(c, E_M * ld),
                     .sum = make(c, E_N),
                     .workspace = make(c, E_N)};
  e.call =
      (zpr_matmul_call){.trans_a = ta, .trans_b = tb, .m = E_M, .n = E_N, .k = E_K, .lda = lda, .ldb = ldb, .ldy = ld};
  e.call.a = e.a.gpu, e.call.b = e.b.gpu, e.call.y = e.y.gpu;
  return e;
}

static void close_epilogue(epilogue_case *e) {
  buffer *const all[] = {&e->a, &e->b, &e->y, &e->bias, &e->residual, &e->gelu, &e->sum, &e->workspace};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->host);
}

static double left_of(const epilogue_case *e, int64_t i, int64_t k) {
  return get(&e->a, e->call.trans_a ? k * e->call.lda + i : i * e->call.lda + k);
}

static double product_of(const epilogue_case *e, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < E_K; k++)
    sum += left_of(e, i, k) * get(&e->b, e->call.trans_b ? j * e->call.ldb + k : k * e->call.ldb + j);
  return sum;
}

/* By the logistic function: (1 + tanh(z)) / 2 = 1 / (1 + exp(-2 z)). */
static double gelu_of(double x) { return x / (1 + exp(-2 * sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3)))); }

static void check_bias(zpr *c, bool trans_b, bool bias, bool residual) {
  epilogue_case e = open_epilogue(c, false, trans_b);
  for (int64_t i = 0; i < E_M; i++)
    for (int64_t j = 0; j < E_N; j++)
      put(&e.y, i * e.call.ldy + j,
          product_of(&e, i, j) + (bias ? get(&e.bias, j) : 0) + (residual ? get(&e.residual, i * e.call.ldy + j) : 0));
  if (bias) e.call.bias = e.bias.gpu;
  if (residual) e.call.residual = e.residual.gpu, e.call.residual_ld = e.call.ldy;
  zpr_matmul(c, &e.call);
  compare(&e.y, rounding(c), "bias and residual");
  compare(&e.residual, 0, "the residual");
  close_epilogue(&e);
}

static void check_gelu(zpr *c, bool trans_b) {
  epilogue_case e = open_epilogue(c, false, trans_b);
  for (int64_t i = 0; i < E_M; i++)
    for (int64_t j = 0; j < E_N; j++) {
      double u = product_of(&e, i, j) + get(&e.bias, j);
      put(&e.gelu, i * e.call.ldy + j, u);
      put(&e.y, i * e.call.ldy + j, gelu_of(u));
    }
  e.call.bias = e.bias.gpu, e.call.gelu_input = e.gelu.gpu, e.call.gelu_ld = e.call.ldy;
  zpr_matmul(c, &e.call);
  compare(&e.y, rounding(c), "gelu");
  compare(&e.gelu, rounding(c), "what gelu is taken of");
  close_epilogue(&e);
}

/* The slope as a difference. */
static void check_gelu_slope(zpr *c, bool trans_b, bool accumulate) {
  const double h = 1e-5;
  epilogue_case e = open_epilogue(c, false, trans_b);
  for (int64_t j = 0; j < E_N; j++) {
    double sum = accumulate ? get(&e.sum, j) : 0;
    for (int64_t i = 0; i < E_M; i++) {
      double u = get(&e.gelu, i * e.call.ldy + j), slope = (gelu_of(u + h) - gelu_of(u - h)) / (2 * h);
      put(&e.y, i * e.call.ldy + j, product_of(&e, i, j) * slope);
      sum += product_of(&e, i, j) * slope;
    }
    put(&e.sum, j, sum);
  }
  e.call.gelu_of = e.gelu.gpu, e.call.gelu_ld = e.call.ldy;
  e.call.sum_of = ZPR_SUM_Y, e.call.sum = e.sum.gpu, e.call.accumulate_sum = accumulate;
  e.call.workspace = e.workspace.gpu;
  zpr_matmul(c, &e.call);
  compare(&e.y, rounding(c), "gelu's derivative");
  compare(&e.sum, rounding(c), "gradient of its bias");
  close_epilogue(&e);
}

static void check_operand_sum(zpr *c, bool of_a, bool ta, bool tb, bool accumulate) {
  epilogue_case e = open_epilogue(c, ta, tb);
  for (int64_t i = 0; i < E_M; i++)
    for (int64_t j = 0; j < E_N; j++)
      put(&e.y, i * e.call.ldy + j, product_of(&e, i, j) + (accumulate ? get(&e.y, i * e.call.ldy + j) : 0));
  for (int64_t i = 0; i < (of_a ? E_M : E_N); i++) {
    double sum = accumulate ? get(&e.sum, i) : 0;
    for (int64_t k = 0; k < E_K; k++)
      sum += of_a ? left_of(&e, i, k) : get(&e.b, tb ? i * e.call.ldb + k : k * e.call.ldb + i);
    put(&e.sum, i, sum);
  }
  e.call.accumulate = e.call.accumulate_sum = accumulate;
  e.call.sum_of = of_a ? ZPR_SUM_A : ZPR_SUM_B, e.call.sum = e.sum.gpu, e.call.workspace = e.workspace.gpu;
  zpr_matmul(c, &e.call);
  compare(&e.y, rounding(c), "product alongside a sum");
  compare(&e.sum, rounding(c), "sum of an operand");
  close_epilogue(&e);
}

Test(cuda, products_with_epilogues) {
  zpr *c = open_gpu(ZPK_F32);
  for (int i = 0; i < 8; i++) check_bias(c, i & 1, i & 2, i & 4);
  for (int i = 0; i < 2; i++) check_gelu(c, i & 1);
  for (int i = 0; i < 4; i++) check_gelu_slope(c, i & 1, i & 2);
  for (int i = 0; i < 16; i++) check_operand_sum(c, i & 1, i & 2, i & 4, i & 8);
  zpr_close(c);
}

/* In f64 there are none. */
Test(cuda, epilogues_of_f64, .exit_code = ZPR_EXIT_FAILED) {
  zpr *c = open_gpu(ZPK_F64);
  cr_redirect_stderr();
  check_bias(c, false, true, false);
}

/* What the emulated cuBLASLt refuses: attributes that nobody sets, parts of sums that may be rounded to 16 bits, an
 * algorithm of another product, an operand that is aligned less than was said. */
Test(cuda, products_that_are_refused) {
  enum { N = 64, UNKNOWN = 15, INVALID = 7, NOT_SUPPORTED = 15 };
  zpr *c = open_gpu(ZPK_F32);
  const gpu_api *api = &c->state->device->api;
  void *blas = NULL, *product = NULL, *layout = NULL, *other = NULL, *preference = NULL;
  int32_t number = 1;
  cr_assert(!api->blas_create(&blas) && !api->new_product(&product, GPU_COMPUTE_F32, GPU_F32));
  cr_assert(!api->new_layout(&layout, GPU_F32, N, N, N) && !api->new_layout(&other, GPU_F32, N, N, N + 1));
  cr_assert(!api->new_preference(&preference));
  cr_assert_eq(api->set_product(product, UNKNOWN, &number, sizeof number), INVALID);
  cr_assert_eq(api->set_product(product, GPU_PRODUCT_TRANS_A, &number, 2), INVALID);
  gpu_heuristic found;
  int n = 0;
  cr_assert_eq(api->choose_algorithm(blas, product, layout, layout, layout, layout, preference, 1, &found, &n),
               NOT_SUPPORTED);
  uint32_t reductions = GPU_REDUCE_COMPUTE_TYPE;
  cr_assert(!api->set_preference(preference, GPU_PREFER_REDUCTIONS, &reductions, sizeof reductions));
  cr_assert(!api->choose_algorithm(blas, product, layout, layout, layout, layout, preference, 1, &found, &n) && n == 1);
  const float one = 1;
  gpu_pointer a = zpr_gpu(c->arena), d = a + N * (N + 1) * sizeof(float), work = a + ARENA_BYTES;
  struct {
    gpu_pointer a, d;
    void *layout;
    const gpu_algorithm *algorithm;
    int status;
  } const calls[] = {{a, d, layout, &found.algorithm, 0},
                     {a, d, other, &found.algorithm, INVALID},
                     {a + 16, d, layout, &found.algorithm, INVALID},
                     {a, a, layout, &found.algorithm, INVALID},
                     {a, d, layout, NULL, INVALID}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    cr_expect_eq(api->multiply(blas, product, &one, calls[i].a, calls[i].layout, a, layout, &one, calls[i].d, layout,
                               calls[i].d, layout, calls[i].algorithm, work, WORKSPACE_BYTES, NULL),
                 calls[i].status, "call %zu", i);
  cr_assert(!api->release_product(product) && !api->release_layout(layout) && !api->release_layout(other) &&
            !api->release_preference(preference));
  zpr_close(c);
}

/* Two samples of three experts: y = x w or x w', and the sum over samples of a' b. */
static void check_experts(zpr *c, bool trans, bool accumulate) {
  enum { SAMPLES = 2, EXPERTS = 3, SLOTS = 5, N = 6, K = 7, PAD = 2, X_LD = K + PAD, Y_LD = N + PAD };
  used = 0;
  buffer x = make(c, SAMPLES * EXPERTS * SLOTS * X_LD), w = make(c, EXPERTS * K * N),
         y = make(c, SAMPLES * EXPERTS * SLOTS * Y_LD), dw = make(c, EXPERTS * K * N);
  for (int64_t row = 0; row < SAMPLES * EXPERTS * SLOTS; row++)
    for (int64_t j = 0; j < N; j++) {
      int64_t expert = row / SLOTS % EXPERTS;
      double sum = 0;
      for (int64_t k = 0; k < K; k++)
        sum += get(&x, row * X_LD + k) * get(&w, expert * K * N + (trans ? j * K + k : k * N + j));
      put(&y, row * Y_LD + j, sum);
    }
  zpr_batched_gemm(c, trans, SAMPLES, EXPERTS, SLOTS, N, K, x.gpu, X_LD, w.gpu, y.gpu, Y_LD);
  compare(&y, rounding(c), "products of experts");
  for (int64_t e = 0; e < EXPERTS; e++)
    for (int64_t i = 0; i < K * N; i++) {
      double sum = accumulate ? get(&dw, e * K * N + i) : 0;
      for (int64_t s = 0; s < SAMPLES * SLOTS; s++) {
        int64_t row = (s / SLOTS * EXPERTS + e) * SLOTS + s % SLOTS;
        sum += get(&x, row * X_LD + i / N) * get(&y, row * Y_LD + i % N);
      }
      put(&dw, e * K * N + i, sum);
    }
  zpr_batched_wgrad(c, SAMPLES, EXPERTS, SLOTS, K, N, x.gpu, X_LD, y.gpu, Y_LD, accumulate, dw.gpu);
  compare(&dw, 10 * rounding(c), "gradient of experts");
  free(x.host), free(w.host), free(y.host), free(dw.host);
}

EACH_DTYPE(experts) {
  zpr *c = open_gpu(*dtype);
  for (int i = 0; i < 4; i++) check_experts(c, i & 1, i & 2);
  zpr_close(c);
}
