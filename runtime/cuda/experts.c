/* Mixture of experts on the GPU: kernels of kernels/cuda/zpd_experts.cuh, and the experts' products by cuBLAS, one call
 * a sample for all experts that this rank has. */
#include <assert.h>
#include <limits.h>
#include "cuda.h"

_Static_assert((int)ZPK_MAX_EXPERTS <= (int)ZPD_MAX_EXPERTS, "the kernels count the choices of every expert");

/* ---- routing ---- */

static zpd_routing routing_args(const zpk_routing *r) {
  return (zpd_routing){.B = r->B,
                       .S = r->S,
                       .k = r->k,
                       .experts = r->experts,
                       .slots = r->slots,
                       .d = r->d,
                       .first_slot = r->first_slot,
                       .n_slots = r->n_slots,
                       .normalize = r->normalize,
                       .balance = r->balance};
}

void zpr_top_k_gate(zpr *c, const zpk_routing *r, const void *score, void *weight, int32_t *slot) {
  assert(r->k >= 1 && r->k <= ZPK_MAX_TOP_K && r->k <= r->experts && r->experts <= ZPK_MAX_EXPERTS);
  zpr_kernels *k = &c->state->device->kernels;
  zpd_routing a = routing_args(r);
  a.in = score, a.out = weight, a.choice = slot;
  int64_t groups = (r->B * r->S + ZPD_FLAT_THREADS - 1) / ZPD_FLAT_THREADS;
  zpr_launch(c, &k->gate_choose, &a, sizeof a, zpr_grid(c, groups), 1, 1, ZPD_FLAT_THREADS);
  zpr_launch(c, &k->gate_places, &a, sizeof a, zpr_grid(c, r->B), 1, 1, ZPD_FLAT_THREADS);
}

void zpr_top_k_gate_grad(zpr *c, const zpk_routing *r, const void *score, const int32_t *slot, const void *d_weight,
                         void *d_score) {
  assert(r->k >= 1 && r->k <= ZPK_MAX_TOP_K && r->k <= r->experts && r->experts <= ZPK_MAX_EXPERTS);
  zpd_routing a = routing_args(r);
  a.in = score, a.slot = slot, a.weight = d_weight, a.out = d_score;
  a.scale_there = zpr_loss_scale_there(c);
  a.loss_scale = a.scale_there ? c->token_weight : zpr_gradient_weight(c);
  int64_t groups = (r->S + ZPD_GATE_TOKENS - 1) / ZPD_GATE_TOKENS;
  zpr_launch(c, &c->state->device->kernels.gate_grad, &a, sizeof a, groups, r->B, 1, ZPD_FLAT_THREADS);
}

static int64_t slot_bytes(const zpk_routing *r) { return r->B * r->n_slots * r->d * zpk_bytes(r->dtype); }

static void launch_tokens(zpr *c, zpr_device_kernel *kernel, const zpd_routing *a) {
  zpr_launch(c, kernel, a, sizeof *a, zpr_grid(c, a->B * a->S), 1, 1, ZPD_FLAT_THREADS);
}

void zpr_dispatch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out) {
  assert(r->d >= 1 && r->first_slot >= 0 && r->n_slots >= 1);
  zpd_routing a = routing_args(r);
  a.in = x, a.slot = slot, a.out = out;
  zpr_zero(c, out, slot_bytes(r));
  launch_tokens(c, &c->state->device->kernels.dispatch, &a);
}

void zpr_combine(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, void *out) {
  assert(r->d >= 1 && r->first_slot >= 0 && r->n_slots >= 1);
  zpd_routing a = routing_args(r);
  a.in = y, a.weight = weight, a.slot = slot, a.out = out;
  launch_tokens(c, &c->state->device->kernels.combine, &a);
}

void zpr_combine_grad(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                      const void *d_out, void *dy, void *d_weight) {
  assert(r->d >= 1 && r->first_slot >= 0 && r->n_slots >= 1);
  zpd_routing a = routing_args(r);
  a.in = y, a.weight = weight, a.slot = slot, a.d_out = d_out, a.out = dy, a.d_weight = d_weight;
  zpr_zero(c, dy, slot_bytes(r));
  launch_tokens(c, &c->state->device->kernels.combine_grad, &a);
}

/* ---- products ---- */

/* One product an expert, row-major: number i reads and writes at i times the steps, which count elements. */
typedef struct products {
  bool trans_a, trans_b, accumulate;
  int64_t m, n, k, lda, ldb, ldy, a_step, b_step, y_step, count;
} products;

/* As zpr_gemm: what is row-major here is column-major there, so the operands change places. */
static void multiply(zpr *c, const products *p, const char *a, const char *b, char *y) {
  assert(p->m <= INT_MAX && p->n <= INT_MAX && p->k <= INT_MAX && p->count <= INT_MAX);
  assert(p->lda <= INT_MAX && p->ldb <= INT_MAX && p->ldy <= INT_MAX);
  zpr_device *d = c->state->device;
  const float one = 1, add = p->accumulate;
  const double one_f64 = 1, add_f64 = p->accumulate;
  int m = (int)p->m, n = (int)p->n, k = (int)p->k, lda = (int)p->lda, ldb = (int)p->ldb, ldy = (int)p->ldy, result;
  int count = (int)p->count, narrow = c->program->dtype == ZPK_F16 ? GPU_F16 : GPU_BF16;
  if (m == 0 || n == 0 || count == 0) return;
  zpr_comm_progress(c);
  if (zpk_is_narrow(c->program->dtype))
    result = d->api.gemms(d->blas, p->trans_b, p->trans_a, n, m, k, &one, zpr_gpu(b), narrow, ldb, p->b_step,
                          zpr_gpu(a), narrow, lda, p->a_step, &add, zpr_gpu(y), narrow, ldy, p->y_step, count,
                          GPU_COMPUTE_F32, GPU_ANY_ALGORITHM);
  else if (c->program->dtype == ZPK_F64)
    result = d->api.gemms_f64(d->blas, p->trans_b, p->trans_a, n, m, k, &one_f64, zpr_gpu(b), ldb, p->b_step,
                              zpr_gpu(a), lda, p->a_step, &add_f64, zpr_gpu(y), ldy, p->y_step, count);
  else
    result = d->api.gemms_f32(d->blas, p->trans_b, p->trans_a, n, m, k, &one, zpr_gpu(b), ldb, p->b_step, zpr_gpu(a),
                              lda, p->a_step, &add, zpr_gpu(y), ldy, p->y_step, count);
  zpr_cublas(c, result, "multiply matrices of experts");
}

void zpr_batched_gemm(zpr *c, bool trans, int64_t samples, int64_t experts, int64_t slots, int64_t n, int64_t k,
                      const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld) {
  assert(samples >= 0 && experts >= 1 && slots >= 1);
  assert(n >= 1 && k >= 1 && x_ld >= k && y_ld >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  products p = {.trans_b = trans,
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
    multiply(c, &p, (const char *)x + b * experts * p.a_step * size, w, (char *)y + b * experts * p.y_step * size);
}

/* The sum over samples is added to call by call; in 16 bits it is rounded in every one of them. */
void zpr_batched_wgrad(zpr *c, int64_t samples, int64_t experts, int64_t slots, int64_t m, int64_t n, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw) {
  assert(samples >= 0 && experts >= 1 && slots >= 1);
  assert(m >= 1 && n >= 1 && lda >= m && ldb >= n);
  int64_t size = zpk_bytes(c->program->dtype);
  products p = {.trans_a = true,
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
    multiply(c, &p, (const char *)a + s * experts * p.a_step * size, (const char *)b + s * experts * p.b_step * size,
             dw);
  }
}
