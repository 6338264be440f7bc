/* Products of 16-bit operands on the emulated GPU that add to gradients: ADDENDS equal addends, one product after
 * another, make an exact sum in f32. The kernels that add: test_kernels_cuda.c, test_kernels_cuda_experts.c. */
#include "rt_cuda_testing.h"
#include "narrow_testing.h"

enum { ADDENDS = 4096, M = 2, N = 8, K = 3, EXPERTS = 2 };

/* `count` times 0.5 in 16 bits. */
static char *halves(zpr *c, int64_t count) {
  uint16_t x[64];
  for (int i = 0; i < 64; i++) x[i] = narrow_of(c->program->dtype, 0.5);
  char *to = zpr_at(c, used);
  used += 256;
  cr_assert(count <= 64);
  to_arena(c, to, x, count * 2);
  return to;
}

static void check(zpr *c, const void *there, int n, double want, const char *what) {
  float sum[EXPERTS * M * N];
  from_arena(c, sum, (char *)(uintptr_t)there, n * (int64_t)sizeof *sum);
  for (int i = 0; i < n; i++) cr_assert_eq((double)sum[i], want, "%s: element %d is %g", what, i, (double)sum[i]);
}

static void equal_addends(zpk_dtype dtype) {
  zpr *c = open_gpu(dtype);
  used = 0;
  char *a = halves(c, EXPERTS * K * M), *b = halves(c, EXPERTS * K * N), *dw = halves(c, 1), *dw_bias = halves(c, 1),
       *sum = halves(c, 1), *workspace = halves(c, 1), *experts = halves(c, 1);
  for (int i = 0; i < ADDENDS; i++) {
    zpr_wgrad(c, M, N, K, a, M, b, N, i > 0, dw);
    zpr_batched_wgrad(c, 1, EXPERTS, K, M, N, a, M, b, N, i > 0, experts);
    zpr_matmul(c, &(zpr_matmul_call){.trans_a = true,
                                     .m = M,
                                     .n = N,
                                     .k = K,
                                     .a = a,
                                     .lda = M,
                                     .b = b,
                                     .ldb = N,
                                     .y = dw_bias,
                                     .ldy = N,
                                     .accumulate = i > 0,
                                     .sum_of = ZPR_SUM_B,
                                     .sum = sum,
                                     .accumulate_sum = i > 0,
                                     .workspace = workspace});
  }
  check(c, dw, M * N, ADDENDS * K * 0.25, "product");
  check(c, experts, EXPERTS * M * N, ADDENDS * K * 0.25, "products of experts");
  check(c, dw_bias, M * N, ADDENDS * K * 0.25, "product beside a bias's gradient");
  check(c, sum, N, ADDENDS * K * 0.5, "gradient of a bias");
  zpr_close(c);
}

Test(cuda, equal_addends_bf16) { equal_addends(ZPK_BF16); }
Test(cuda, equal_addends_f16) { equal_addends(ZPK_F16); }
