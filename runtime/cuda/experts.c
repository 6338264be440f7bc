/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts on the GPU: kernels of kernels/cuda/zpd_experts.cuh. Products of experts are in products.c. */
#include <assert.h>
#include "cuda.h"
#include "loads.h"

_Static_assert((int)ZPK_MAX_EXPERTS <= (int)ZPD_MAX_EXPERTS, "the kernels count the choices of every expert");
_Static_assert((int)ZPK_MAX_EXPERT_GROUPS <= (int)ZPD_MAX_EXPERT_GROUPS, "the kernels hold a bit of every group");

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
                       .sigmoid = r->sigmoid,
                       .groups = r->groups,
                       .top_groups = r->top_groups,
                       .balance = r->balance};
}

void zpr_top_k_gate(zpr *c, const zpk_routing *r, const void *score, const void *bias, void *weight, int32_t *slot) {
  assert(r->k >= 1 && r->k <= ZPK_MAX_TOP_K && r->k <= r->experts && r->experts <= ZPK_MAX_EXPERTS);
  zpd_routing a = routing_args(r);
  a.in = score, a.bias = bias, a.out = weight, a.choice = slot;
  ZPR_START(c, gate_choose, &a, zpr_flat_blocks(c, r->B * r->S));
  ZPR_START(c, gate_places, &a, zpr_grid(c, r->B));
}

void zpr_top_k_gate_grad(zpr *c, const zpk_routing *r, const void *score, const int32_t *slot, const void *d_weight,
                         void *d_score) {
  assert(r->k >= 1 && r->k <= ZPK_MAX_TOP_K && r->k <= r->experts && r->experts <= ZPK_MAX_EXPERTS);
  zpd_routing a = routing_args(r);
  a.in = score, a.slot = slot, a.weight = d_weight, a.out = d_score;
  a.choices = r->choices, a.ranks = r->ranks;
  a.scale_there = zpr_loss_scale_there(c);
  a.loss_scale = zpr_balance_weight(c, r) * (a.scale_there ? 1 : (double)c->loss_scale);
  int64_t groups = (r->S + ZPD_GATE_TOKENS - 1) / ZPD_GATE_TOKENS;
  zpr_launch(c, &c->state->device->kernels.gate_grad, &a, sizeof a, groups, r->B, 1, ZPD_FLAT_THREADS);
}

void zpr_count_choices(zpr *c, const zpk_routing *r, const int32_t *slot, void *count) {
  assert(r->k >= 1 && r->experts >= 1 && r->experts <= ZPK_MAX_EXPERTS);
  zpd_routing a = routing_args(r);
  a.slot = slot, a.out = count;
  ZPR_START(c, count_choices, &a, zpr_grid(c, r->B));
}

void zpr_count_load(zpr *c, const zpk_routing *r, const int32_t *slot, int64_t bias) {
  assert(r->k >= 1 && r->experts >= 1 && r->experts <= ZPK_MAX_EXPERTS);
  zpd_routing a = routing_args(r);
  a.slot = slot, a.count = (zpd_int *)zpr_load_of(c, bias);
  ZPR_START(c, count_load, &a, (r->experts + ZPD_FLAT_THREADS - 1) / ZPD_FLAT_THREADS);
}

int64_t *zpr_load_counts_open(zpr *c, int64_t n) {
  gpu_pointer memory = 0;
  zpr_cuda(c, c->state->device->api.allocate(&memory, (size_t)n * sizeof(int64_t)),
           "get memory for the loads of experts");
  return (int64_t *)(void *)zpr_gpu_host(memory);
}

void zpr_load_counts_close(zpr *c, int64_t *count) {
  zpr_cuda_wait(c);
  c->state->device->api.release(zpr_gpu(count));
}

void zpr_load_signs(zpr *c, const int64_t *count, int64_t experts, int64_t first, int64_t n, void *grad) {
  zpd_expert_load a = {.count = (const zpd_int *)count, .experts = experts, .first = first, .n = n, .grad = grad};
  ZPR_START(c, load_signs, &a, 1);
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

/* ---- incremental decoding: the tokens of a stretch as a sample of their own, on the slots of the whole one ---- */

static zpk_routing routing_of(const zpk_routing *r, zpr_positions p) {
  assert(r->B == 1 && p.first >= 0 && p.n >= 1 && p.first + p.n <= r->S);
  zpk_routing some = *r;
  some.S = p.n;
  return some;
}

static const void *row_of(const zpk_routing *r, const void *x, int64_t row, int64_t cols) {
  return (const char *)x + row * cols * zpk_bytes(r->dtype);
}

void zpr_dispatch_stretch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out,
                          zpr_positions p) {
  zpk_routing some = routing_of(r, p);
  zpd_routing a = routing_args(&some);
  a.in = row_of(r, x, p.first, r->d), a.slot = slot + p.first * r->k, a.out = out;
  launch_tokens(c, &c->state->device->kernels.dispatch, &a);
}

void zpr_combine_stretch(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                         void *out, zpr_positions p) {
  zpk_routing some = routing_of(r, p);
  zpr_combine(c, &some, y, row_of(r, weight, p.first, r->k), slot + p.first * r->k,
              (char *)out + p.first * r->d * zpk_bytes(r->dtype));
}

void zpr_combine_grad(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                      const void *d_out, void *dy, void *d_weight) {
  assert(r->d >= 1 && r->first_slot >= 0 && r->n_slots >= 1);
  zpd_routing a = routing_args(r);
  a.in = y, a.weight = weight, a.slot = slot, a.d_out = d_out, a.out = dy, a.d_weight = d_weight;
  zpr_zero(c, dy, slot_bytes(r));
  launch_tokens(c, &c->state->device->kernels.combine_grad, &a);
}
