/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 16-bit operands on the emulated GPU that add to gradients: ADDENDS equal addends, one product after
 * another, make an exact sum in f32. The kernels that add: test_kernels_cuda.c, test_kernels_cuda_experts.c. */
#include "rt_cuda_testing.h"
#include "narrow_testing.h"
#include "loads.h"

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
  check(c, dw_bias, M * N, ADDENDS * K * 0.25, "product alongside a bias's gradient");
  check(c, sum, N, ADDENDS * K * 0.5, "gradient of a bias");
  zpr_close(c);
}

Test(cuda, equal_addends_bf16) { equal_addends(ZPK_BF16); }
Test(cuda, equal_addends_f16) { equal_addends(ZPK_F16); }

/* Loads of experts: BIG calls give expert 0 all choices, which in f32 would be 2^25 units of E * choices - all, and
 * ADDENDS calls one unit each, which f32 would not see. */
enum { BIG = 512, CHOICES = 256, MANY = 257 };

static void count_choices(zpr *c, char *slot, bool even) {
  zpk_routing r = {.dtype = c->program->dtype, .B = 1, .S = CHOICES, .k = 1, .experts = MANY, .slots = CHOICES};
  int32_t some[CHOICES];
  for (int i = 0; i < CHOICES; i++) some[i] = even ? -1 - i : i; /* one each but the last expert, or all of expert 0 */
  to_arena(c, slot, some, sizeof some);
  zpr_count_load(c, &r, (const int32_t *)(const void *)slot, 0);
}

static void loads(zpk_dtype dtype) {
  const zpr_param bias = {.name = "bias", .split_dim = -1, .elements = MANY, .recipe = {.sign_rate = 1}};
  const zpr_run run = {.segment = "h", .count = 1, .stride = 320, .n_params = 1, .params = &bias};
  zpr *c = open_gpu(dtype);
  char *slot = zpr_at(c, 8192);
  int64_t count[MANY];
  float sign[MANY];
  stage.grads = 0, stage.flat[ZPR_KIND_WHOLE] = stage.shard[ZPR_KIND_WHOLE] = 320, stage.n_runs = 1, stage.runs = &run;
  zpr_stretches stretches = zpr_find_stretches(c);
  zpr_loads_open(c);
  for (int i = 0; i < BIG; i++) count_choices(c, slot, false);
  for (int i = 0; i < ADDENDS; i++) count_choices(c, slot, true);
  zpr_loads_finish(c, &stretches);
  from_arena(c, count, (char *)zpr_load_of(c, 0), sizeof count);
  from_arena(c, sign, zpr_at(c, 0), sizeof sign);
  cr_expect_eq(MANY * count[0] - (int64_t)CHOICES * (BIG + ADDENDS), (1 << 25) + ADDENDS);
  for (int e = 0; e < MANY; e++) {
    cr_expect_eq(count[e], e == 0 ? CHOICES * BIG + ADDENDS : e < CHOICES ? ADDENDS : 0, "expert %d", e);
    cr_expect_eq(sign[e], e == 0 ? 1 : -1, "expert %d", e);
  }
  free(stretches.item);
  zpr_loads_close(c);
  zpr_close(c);
}

Test(cuda, loads_f32) { loads(ZPK_F32); }
Test(cuda, loads_bf16) { loads(ZPK_BF16); }
