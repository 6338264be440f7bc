/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts, spread over the threads of a rank: a gate by samples, dispatch and combine by tokens. Every task
 * writes places of its own, so the number of threads changes nothing. The experts' products are in blas.c. */
#include "loads.h"
#include "state.h"

#include <assert.h>
#include <stdlib.h>

enum { TOKEN_GRAIN = 16 };

typedef struct expert_task {
  const zpk_routing *r;
  const void *score, *bias, *x, *weight, *d_out;
  const int32_t *slot;
  void *out, *d_weight;
  int32_t *slot_out;
  double loss_scale;
} expert_task;

ZPR_TASK(gate, expert_task, zpk_top_k_gate(a->r, a->score, a->bias, a->out, a->slot_out, begin, end))

void zpr_top_k_gate(zpr *c, const zpk_routing *r, const void *score, const void *bias, void *weight, int32_t *slot) {
  assert(r->k >= 1 && r->k <= ZPK_MAX_TOP_K && r->k <= r->experts && r->experts <= ZPK_MAX_EXPERTS);
  expert_task a = {.r = r, .score = score, .bias = bias, .out = weight, .slot_out = slot};
  zpr_parallel(c, r->B, 1, gate, &a);
}

ZPR_TASK(gate_grad, expert_task,
         zpk_top_k_gate_grad(a->r, a->score, a->slot, a->weight, a->loss_scale, a->out, begin, end))

void zpr_top_k_gate_grad(zpr *c, const zpk_routing *r, const void *score, const int32_t *slot, const void *d_weight,
                         void *d_score) {
  assert(r->k >= 1 && r->k <= ZPK_MAX_TOP_K && r->k <= r->experts && r->experts <= ZPK_MAX_EXPERTS);
  expert_task a = {.r = r,
                   .score = score,
                   .slot = slot,
                   .weight = d_weight,
                   .loss_scale = zpr_balance_weight(c, r) * (double)c->loss_scale,
                   .out = d_score};
  zpr_parallel(c, r->B, 1, gate_grad, &a);
}

ZPR_TASK(count_choices, expert_task, zpk_count_choices(a->r, a->slot, a->out, begin, end))

void zpr_count_choices(zpr *c, const zpk_routing *r, const int32_t *slot, void *count) {
  expert_task a = {.r = r, .slot = slot, .out = count};
  zpr_parallel(c, r->B, 1, count_choices, &a);
}

void zpr_count_load(zpr *c, const zpk_routing *r, const int32_t *slot, int64_t bias) {
  zpk_count_load(r, slot, zpr_load_of(c, bias));
}

int64_t *zpr_load_counts_open(zpr *c, int64_t n) { return zpr_alloc(c, (size_t)n, sizeof(int64_t)); }

void zpr_load_counts_close(zpr *c, int64_t *count) {
  (void)c;
  free(count);
}

void zpr_load_signs(zpr *c, const int64_t *count, int64_t experts, int64_t first, int64_t n, void *grad) {
  zpr_put_load_signs(zpr_gradient_type(c), count, experts, first, n, grad);
}

void zpr_expert_rows(zpr *c, const zpk_routing *r, const int32_t *slot, int32_t *first) {
  (void)c;
  zpk_expert_rows(r, slot, first);
}

static bool are_rows(const zpk_routing *r) {
  return r->d >= 1 && (r->first_row ? r->experts >= 1 && r->slots >= r->S : r->first_slot >= 0 && r->n_slots >= 1);
}

/* Empty slots are zeros; no sorted row is empty. */
static void clear_slots(zpr *c, const zpk_routing *r, void *rows) {
  if (!r->first_row) zpr_zero(c, rows, r->B * r->n_slots * r->d * zpk_bytes(r->dtype));
}

ZPR_TASK(dispatch, expert_task, zpk_dispatch(a->r, a->x, a->slot, a->out, begin, end))

void zpr_dispatch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out) {
  assert(are_rows(r));
  expert_task a = {.r = r, .x = x, .slot = slot, .out = out};
  clear_slots(c, r, out);
  zpr_parallel(c, r->B * r->S, TOKEN_GRAIN, dispatch, &a);
}

ZPR_TASK(combine, expert_task, zpk_combine(a->r, a->x, a->weight, a->slot, a->out, begin, end))

void zpr_combine(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, void *out) {
  assert(are_rows(r));
  expert_task a = {.r = r, .x = y, .weight = weight, .slot = slot, .out = out};
  zpr_parallel(c, r->B * r->S, TOKEN_GRAIN, combine, &a);
}

ZPR_TASK(combine_grad, expert_task,
         zpk_combine_grad(a->r, a->x, a->weight, a->slot, a->d_out, a->out, a->d_weight, begin, end))

void zpr_combine_grad(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                      const void *d_out, void *dy, void *d_weight) {
  assert(are_rows(r));
  expert_task a = {.r = r, .x = y, .weight = weight, .slot = slot, .d_out = d_out, .out = dy, .d_weight = d_weight};
  clear_slots(c, r, dy);
  zpr_parallel(c, r->B * r->S, TOKEN_GRAIN, combine_grad, &a);
}
