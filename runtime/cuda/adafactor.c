/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor's passes on the GPU (../optimizer/adafactor.c): a launch each, a tensor at a time. */
#include "adafactor.h"
#include "cuda.h"

static void launch(zpr *c, zpr_device_kernel *kernel, const zpd_factored *a, int64_t blocks) {
  zpr_launch(c, kernel, a, sizeof *a, blocks, 1, 1, ZPD_FLAT_THREADS);
}

/* Without gradients and state, of which it may have neither on the device. */
static zpd_factored tensor_of(zpr *c, const zpk_update *rule, const zpr_factored *t) {
  zpd_factored a = {.state = (char *)zpr_at(c, c->stage->statistics) + t->state * zpk_real_bytes(c->program->dtype),
                    .count = t->own.end - t->own.begin,
                    .first = t->first,
                    .width = t->share.width,
                    .share_first = t->share.first,
                    .stride = t->share.stride,
                    .local_stride = t->share.local_stride,
                    .rows = t->has.height,
                    .cols = t->has.width,
                    .n_rows = t->has.rows,
                    .n_cols = t->has.cols};
  if (!rule) return a;
  a.grad_scale = rule->grad_scale, a.beta1 = rule->beta1, a.beta2 = rule->beta2, a.eps = rule->eps, a.ema = rule->ema;
  a.keep = 1 - rule->lr * rule->weight_decay;
  return a;
}

static zpd_factored with_gradients(zpr *c, const zpk_update *rule, const zpr_factored *t) {
  zpd_factored a = tensor_of(c, rule, t);
  a.grad = zpr_arrays_of(c, &t->own).grad;
  return a;
}

static void add_state(zpr *c, zpd_factored *a, const zpr_factored *t) {
  zpr_block_arrays x = zpr_arrays_of(c, &t->own);
  a->param = x.param, a->weight = x.weight;
  if (a->beta1 > 0) a->m = x.m;
  if (a->ema > 0) a->average = x.average;
}

void zpr_adafactor_sums(zpr *c, const zpk_update *rule, const zpr_factored *tensors, int n, double *sums) {
  zpr_kernels *k = &c->state->device->kernels;
  for (int i = 0; i < n; i++) {
    zpd_factored a = with_gradients(c, rule, &tensors[i]);
    if (a.count == 0) continue;
    a.sums = sums + tensors[i].sums;
    if (a.n_rows > 0) launch(c, &k->adafactor_rows, &a, zpr_grid(c, a.n_rows));
    launch(c, &k->adafactor_cols, &a, zpr_grid(c, (a.cols + 31) / 32 * (a.n_cols / a.cols)));
  }
}

void zpr_adafactor_add(zpr *c, double *to, const double *from, int64_t count, int n) {
  zpd_arrivals a = {.to = to, .from = from, .count = count, .n = n};
  ZPR_START(c, adafactor_add, &a, zpr_flat_blocks(c, count));
}

void zpr_adafactor_means(zpr *c, const zpk_update *rule, const zpr_factored *t, const double *sums) {
  zpd_factored a = tensor_of(c, rule, t);
  a.sums = (double *)(uintptr_t)sums;
  launch(c, &c->state->device->kernels.adafactor_means, &a, zpr_flat_blocks(c, a.n_rows + a.n_cols));
}

void zpr_adafactor_factors(zpr *c, const zpr_factored *t, void *to) {
  zpd_factored a = tensor_of(c, NULL, t);
  a.factors = to;
  launch(c, &c->state->device->kernels.adafactor_factors, &a, zpr_grid(c, a.n_cols / a.cols));
}

void zpr_adafactor_squares(zpr *c, const zpk_update *rule, const zpr_factored *t, const void *factors,
                           const zpr_adafactor_room *room, double squares[2]) {
  zpd_factored a = with_gradients(c, rule, t);
  int64_t blocks = (a.count + ZPD_SQUARES_ELEMENTS - 1) / ZPD_SQUARES_ELEMENTS, most = room->free_bytes / 16;
  if (blocks > ZPD_SQUARES_BLOCKS) blocks = ZPD_SQUARES_BLOCKS;
  if (blocks > most) blocks = most;
  if (!t->without_state) add_state(c, &a, t);
  a.factors = (void *)(uintptr_t)factors;
  a.sums = room->free;
  launch(c, &c->state->device->kernels.adafactor_squares, &a, blocks);
  const double *part = zpr_window_open(c, room->free, blocks * 16, true);
  squares[0] = squares[1] = 0;
  for (int64_t i = 0; i < 2 * blocks; i++) squares[i % 2] += part[i];
  zpr_window_close(c);
}

void zpr_adafactor_apply(zpr *c, const zpk_update *rule, const zpr_factored *t, const void *factors, double factor) {
  zpd_factored a = with_gradients(c, rule, t);
  add_state(c, &a, t);
  a.factors = (void *)(uintptr_t)factors;
  a.factor = factor;
  launch(c, &c->state->device->kernels.adafactor_apply, &a, zpr_flat_blocks(c, a.count));
}
