/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a trainer: row-major matrices of the program's dtype, by cuBLASLt (gpu_product.h), in the stream of the
 * units and with the stage's workspace. */
#include <assert.h>
#include <limits.h>
#include "cuda.h"
#include "muon.h"

static int type_of(zpk_dtype dtype) {
  switch (dtype) {
  case ZPK_F64: return GPU_F64;
  case ZPK_F16: return GPU_F16;
  case ZPK_BF16: return GPU_BF16;
  default: return GPU_F32;
  }
}

void zpr_cuda_products_open(zpr *c) {
  zpr_device *d = c->state->device;
  int status = 0;
  d->products = gpu_products_open(&d->api, &status);
  zpr_cublas(c, status, "start cuBLASLt");
  d->products_stream = d->stream;
}

void zpr_cuda_products_close(zpr *c) {
  gpu_products_close(c->state->device->products);
  c->state->device->products = NULL;
}

void zpr_device_products(zpr *c, zpr_products_used *used) {
  const zpr_device *d = c->state->device;
  int version[3] = {0};
  for (int i = 0; i < 3; i++) zpr_cublas(c, d->api.blas_property(i, &version[i]), "ask cuBLASLt for its version");
  snprintf(used->by, sizeof used->by, "cuBLASLt %d.%d.%d on %s", version[0], version[1], version[2], d->name);
  used->algorithms = gpu_products_hash(d->products);
}

bool zpr_device_product_text(zpr *c, int i, char *text, size_t size) {
  return gpu_products_describe(c->state->device->products, i, text, size);
}

/* Row-major y = op(a) op(b) is column-major y' = op(b)' op(a)', of the same memory. */
static void multiply_as(zpr *c, zpk_dtype dtype, gpu_shape shape, const gpu_operands *operands) {
  enum { NOT_SUPPORTED = 15 };
  static const struct {
    int32_t epilogue;
    const char *with;
  } names[] = {{GPU_EPILOGUE_BIAS, " with a bias"},
               {GPU_EPILOGUE_GELU_AUX_BIAS, " with a bias and gelu"},
               {GPU_EPILOGUE_DGELU_BGRAD, " with gelu's derivative"},
               {GPU_EPILOGUE_BGRADA, " with a bias's gradient"},
               {GPU_EPILOGUE_BGRADB, " with a bias's gradient"}};
  zpr_device *d = c->state->device;
  const char *with = "";
  if (shape.m == 0 || shape.n == 0 || shape.count == 0) return;
  assert(shape.k >= 1 && c->stage->products >= 0);
  shape.type = type_of(dtype);
  if (c->state->rehearses && gpu_products_has(d->products, &shape, operands)) return;
  zpr_comm_progress(c);
  int status = gpu_products_run(d->products, &shape, operands, zpr_gpu(c->arena + c->stage->products),
                                (size_t)c->program->products_bytes, d->products_stream);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].epilogue == shape.epilogue) with = names[i].with;
  if (status == NOT_SUPPORTED)
    zpr_fail(c, "Z0852", "cuBLASLt has no algorithm for a product of %lld x %lld x %lld%s (GPU %d, %s)",
             (long long)shape.n, (long long)shape.k, (long long)shape.m, with, d->ordinal, d->name);
  zpr_cublas(c, status, "multiply matrices");
}

static void multiply(zpr *c, gpu_shape shape, const gpu_operands *operands) {
  multiply_as(c, c->program->dtype, shape, operands);
}

static gpu_shape shape_of(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb,
                          int64_t ldy) {
  assert(m >= 0 && n >= 0 && k >= 0);
  assert(lda >= (trans_a ? m : k) && ldb >= (trans_b ? k : n) && ldy >= n);
  return (gpu_shape){.trans_a = trans_b,
                     .trans_b = trans_a,
                     .m = n,
                     .n = m,
                     .k = k,
                     .a_ld = ldb,
                     .b_ld = lda,
                     .c_ld = ldy,
                     .d_ld = ldy,
                     .count = 1,
                     .epilogue = GPU_EPILOGUE_NONE};
}

void zpr_gemm_real(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
                   const void *b, int64_t ldb, void *y, int64_t ldy) {
  multiply_as(c, zpk_real(c->program->dtype), shape_of(trans_a, trans_b, m, n, k, lda, ldb, ldy),
              &(gpu_operands){zpr_gpu(b), zpr_gpu(a), zpr_gpu(y), zpr_gpu(y), false, 0, 0});
}

void zpr_gemm(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
              const void *b, int64_t ldb, bool accumulate, void *y, int64_t ldy) {
  assert(!accumulate || !zpk_is_narrow(c->program->dtype));
  multiply(c, shape_of(trans_a, trans_b, m, n, k, lda, ldb, ldy),
           &(gpu_operands){zpr_gpu(b), zpr_gpu(a), zpr_gpu(y), zpr_gpu(y), accumulate, 0, 0});
}

/* Products that make gradients of parameters, or add to them. */
static bool sums(const zpr *c) { return zpk_is_narrow(c->program->dtype); }

void zpr_wgrad(zpr *c, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb,
               bool accumulate, void *dw) {
  gpu_shape shape = shape_of(true, false, m, n, k, lda, ldb, n);
  shape.sums = sums(c);
  multiply(c, shape, &(gpu_operands){zpr_gpu(b), zpr_gpu(a), zpr_gpu(dw), zpr_gpu(dw), accumulate, 0, 0});
}

/* ---- products with an epilogue ---- */

static int32_t epilogue_of(const zpr_matmul_call *p) {
  if (p->gelu_input) return GPU_EPILOGUE_GELU_AUX_BIAS;
  if (p->gelu_of) return GPU_EPILOGUE_DGELU_BGRAD;
  if (p->bias) return GPU_EPILOGUE_BIAS;
  if (p->sum_of == ZPR_SUM_A) return GPU_EPILOGUE_BGRADB; /* operands change places */
  if (p->sum_of == ZPR_SUM_B) return GPU_EPILOGUE_BGRADA;
  return GPU_EPILOGUE_NONE;
}

static void check_product(const zpr_matmul_call *p) {
  assert(p->lda >= (p->trans_a ? p->m : p->k) && p->ldb >= (p->trans_b ? p->k : p->n) && p->ldy >= p->n);
  assert(!p->residual || (!p->accumulate && p->residual_ld >= p->n));
  assert(!p->gelu_input || (p->bias && p->gelu_ld >= p->n && p->gelu_ld % 8 == 0));
  assert(!p->gelu_of || (p->sum_of == ZPR_SUM_Y && p->gelu_ld >= p->n && p->gelu_ld % 8 == 0));
  assert((p->sum_of == ZPR_SUM_Y) == (p->gelu_of != NULL) && (p->sum_of == ZPR_SUM_NOTHING) == (p->sum == NULL));
  assert(p->sum_of == ZPR_SUM_NOTHING || (!p->bias && !p->residual && p->workspace));
  assert(!p->accumulate || p->sum_of == ZPR_SUM_A || p->sum_of == ZPR_SUM_B);
}

/* cuBLASLt writes a bias's gradient, in y's type, and cannot add to it: what is to be added, or has 16 bits, goes to
 * the workspace first. */
void zpr_matmul(zpr *c, const zpr_matmul_call *p) {
  check_product(p);
  bool makes_gradient = p->sum_of == ZPR_SUM_A || p->sum_of == ZPR_SUM_B;
  bool widens = p->sum_of == ZPR_SUM_Y && sums(c), apart = p->accumulate_sum || widens;
  int64_t sum_length = p->sum_of == ZPR_SUM_A ? p->m : p->n;
  void *sum = apart ? p->workspace : p->sum;
  const void *bias = p->sum ? sum : p->bias, *aux = p->gelu_input ? p->gelu_input : p->gelu_of,
             *before = p->residual ? p->residual : p->y;
  gpu_shape shape = {.trans_a = p->trans_b,
                     .trans_b = p->trans_a,
                     .m = p->n,
                     .n = p->m,
                     .k = p->k,
                     .a_ld = p->ldb,
                     .b_ld = p->lda,
                     .c_ld = p->residual ? p->residual_ld : p->ldy,
                     .d_ld = p->ldy,
                     .count = 1,
                     .sums = makes_gradient && sums(c),
                     .epilogue = epilogue_of(p),
                     .aux_ld = aux ? p->gelu_ld : 0};
  gpu_operands operands = {.a = zpr_gpu(p->b),
                           .b = zpr_gpu(p->a),
                           .c = zpr_gpu(before),
                           .d = zpr_gpu(p->y),
                           .add = p->accumulate || p->residual,
                           .bias = zpr_gpu(bias),
                           .aux = zpr_gpu(aux)};
  multiply(c, shape, &operands);
  if (widens && !p->accumulate_sum) zpr_zero(c, p->sum, sum_length * zpr_gradient_bytes(c));
  if (widens)
    zpr_add_rounded(c, p->sum, sum, sum_length);
  else if (apart)
    zpr_add(c, p->sum, sum, sum_length);
}

/* ---- experts: one product for each, all of them in one call ---- */

/* Number i reads and writes at i times the steps, which count elements. */
typedef struct expert_products {
  bool trans_a, trans_b, sums, accumulate;
  int64_t m, n, k, lda, ldb, ldy, a_step, b_step, y_step, count;
} expert_products;

static void multiply_experts(zpr *c, const expert_products *p, const char *a, const char *b, char *y) {
  assert(p->count <= INT_MAX);
  gpu_shape shape = {.trans_a = p->trans_b,
                     .trans_b = p->trans_a,
                     .m = p->n,
                     .n = p->m,
                     .k = p->k,
                     .a_ld = p->ldb,
                     .b_ld = p->lda,
                     .c_ld = p->ldy,
                     .d_ld = p->ldy,
                     .count = p->count,
                     .a_step = p->b_step,
                     .b_step = p->a_step,
                     .d_step = p->y_step,
                     .sums = p->sums,
                     .epilogue = GPU_EPILOGUE_NONE};
  multiply(c, shape, &(gpu_operands){zpr_gpu(b), zpr_gpu(a), zpr_gpu(y), zpr_gpu(y), p->accumulate, 0, 0});
}

void zpr_batched_gemm(zpr *c, bool trans, int64_t samples, int64_t experts, int64_t slots, int64_t n, int64_t k,
                      const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld) {
  assert(samples >= 0 && experts >= 1 && slots >= 1);
  assert(n >= 1 && k >= 1 && x_ld >= k && y_ld >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  expert_products p = {.trans_b = trans,
                       .m = slots,
                       .n = n,
                       .k = k,
                       .lda = x_ld,
                       .ldb = trans ? k : n,
                       .ldy = y_ld,
                       .a_step = slots * x_ld,
                       .b_step = n * k,
                       .y_step = slots * y_ld,
                       .count = experts};
  for (int64_t b = 0; b < samples; b++)
    multiply_experts(c, &p, (const char *)x + b * experts * p.a_step * size, w,
                     (char *)y + b * experts * p.y_step * size);
}

/* The sum over samples is added to call by call. */
void zpr_batched_wgrad(zpr *c, int64_t samples, int64_t experts, int64_t slots, int64_t m, int64_t n, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw) {
  assert(samples >= 0 && experts >= 1 && slots >= 1);
  assert(m >= 1 && n >= 1 && lda >= m && ldb >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  expert_products p = {.trans_a = true,
                       .sums = sums(c),
                       .m = m,
                       .n = n,
                       .k = slots,
                       .lda = lda,
                       .ldb = ldb,
                       .ldy = n,
                       .a_step = slots * lda,
                       .b_step = slots * ldb,
                       .y_step = m * n,
                       .count = experts};
  for (int64_t s = 0; s < samples; s++) {
    p.accumulate = accumulate || s > 0;
    multiply_experts(c, &p, (const char *)a + s * experts * p.a_step * size,
                     (const char *)b + s * experts * p.b_step * size, dw);
  }
}
