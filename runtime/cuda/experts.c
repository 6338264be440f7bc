/* Mixtures of experts have no device kernels yet. `zplan build` refuses such a model for GPUs; whoever calls the
 * runtime without it is told here. */
#include "cuda.h"

static _Noreturn void refuse(zpr *c) {
  zpr_fail(c, "Z0852", "experts are not run on GPUs: build this model for CPU ranks");
}

void zpr_top_k_gate(zpr *c, const zpk_routing *r, const void *score, void *weight, int32_t *slot) {
  (void)r, (void)score, (void)weight, (void)slot;
  refuse(c);
}

void zpr_top_k_gate_grad(zpr *c, const zpk_routing *r, const void *score, const int32_t *slot, const void *d_weight,
                         void *d_score) {
  (void)r, (void)score, (void)slot, (void)d_weight, (void)d_score;
  refuse(c);
}

void zpr_dispatch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out) {
  (void)r, (void)x, (void)slot, (void)out;
  refuse(c);
}

void zpr_combine(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, void *out) {
  (void)r, (void)y, (void)weight, (void)slot, (void)out;
  refuse(c);
}

void zpr_combine_grad(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                      const void *d_out, void *dy, void *d_weight) {
  (void)r, (void)y, (void)weight, (void)slot, (void)d_out, (void)dy, (void)d_weight;
  refuse(c);
}

void zpr_slot_rows(zpr *c, const zpr_rows_call *call, int64_t samples, int64_t experts, int64_t slots) {
  (void)call, (void)samples, (void)experts, (void)slots;
  refuse(c);
}

void zpr_batched_gemm(zpr *c, bool trans, int64_t samples, int64_t experts, int64_t slots, int64_t n, int64_t k,
                      const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld) {
  (void)trans, (void)samples, (void)experts, (void)slots, (void)n, (void)k;
  (void)x, (void)x_ld, (void)w, (void)y, (void)y_ld;
  refuse(c);
}

void zpr_batched_wgrad(zpr *c, int64_t samples, int64_t experts, int64_t slots, int64_t m, int64_t n, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw) {
  (void)samples, (void)experts, (void)slots, (void)m, (void)n;
  (void)a, (void)lda, (void)b, (void)ldb, (void)accumulate, (void)dw;
  refuse(c);
}
