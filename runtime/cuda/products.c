/* Products of a trainer: row-major matrices of the program's dtype, by cuBLASLt (gpu_product.h), in the stream of the
 * units and with the stage's workspace. */
#include <assert.h>
#include <limits.h>
#include "cuda.h"

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

/* Row-major y = op(a) op(b) is column-major y' = op(b)' op(a)', of the same memory. */
static void multiply(zpr *c, gpu_shape shape, const gpu_operands *operands) {
  enum { NOT_SUPPORTED = 15 };
  zpr_device *d = c->state->device;
  if (shape.m == 0 || shape.n == 0 || shape.count == 0) return;
  assert(shape.k >= 1 && c->stage->products >= 0);
  shape.type = type_of(c->program->dtype);
  zpr_comm_progress(c);
  int status = gpu_products_run(d->products, &shape, operands, zpr_gpu(c->arena + c->stage->products),
                                (size_t)c->program->products_bytes, d->products_stream);
  if (status == NOT_SUPPORTED)
    zpr_fail(c, "Z0852", "cuBLASLt has no algorithm for a product of %lld x %lld x %lld (GPU %d, %s)",
             (long long)shape.n, (long long)shape.k, (long long)shape.m, d->ordinal, d->name);
  zpr_cublas(c, status, "multiply matrices");
}

void zpr_gemm(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
              const void *b, int64_t ldb, bool accumulate, void *y, int64_t ldy) {
  assert(m >= 0 && n >= 0 && k >= 0);
  assert(lda >= (trans_a ? m : k) && ldb >= (trans_b ? k : n) && ldy >= n);
  gpu_shape shape = {.trans_a = trans_b,
                     .trans_b = trans_a,
                     .m = n,
                     .n = m,
                     .k = k,
                     .a_ld = ldb,
                     .b_ld = lda,
                     .c_ld = ldy,
                     .d_ld = ldy,
                     .count = 1};
  multiply(c, shape, &(gpu_operands){zpr_gpu(b), zpr_gpu(a), zpr_gpu(y), zpr_gpu(y), accumulate});
}

/* ---- experts: one product for each, all of them in one call ---- */

/* Number i reads and writes at i times the steps, which count elements. */
typedef struct expert_products {
  bool trans_a, trans_b, accumulate;
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
                     .d_step = p->y_step};
  multiply(c, shape, &(gpu_operands){zpr_gpu(b), zpr_gpu(a), zpr_gpu(y), zpr_gpu(y), p->accumulate});
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

/* The sum over samples is added to call by call; in 16 bits it is rounded in every one of them. */
void zpr_batched_wgrad(zpr *c, int64_t samples, int64_t experts, int64_t slots, int64_t m, int64_t n, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw) {
  assert(samples >= 0 && experts >= 1 && slots >= 1);
  assert(m >= 1 && n >= 1 && lda >= m && ldb >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  expert_products p = {.trans_a = true,
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
