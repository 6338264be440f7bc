/* SPDX-License-Identifier: Apache-2.0 */
/* What Muon does alongside products on the GPU (../optimizer/muon.c): a launch each, of the whole matrix. */
#include "muon.h"
#include "cuda.h"

static void launch(zpr *c, zpr_device_kernel *kernel, const void *a, size_t bytes, int64_t count) {
  zpr_launch(c, kernel, a, bytes, zpr_flat_blocks(c, count), 1, 1, ZPD_FLAT_THREADS);
}

/* As many blocks of threads as its elements fill, and sums have room for: up to these alone, so that the length has the
 * same bits on every GPU. */
static int64_t blocks_of(int64_t count, int64_t free_bytes) {
  int64_t blocks = (count + ZPD_SQUARES_ELEMENTS - 1) / ZPD_SQUARES_ELEMENTS,
          room = free_bytes / (int64_t)sizeof(double);
  if (blocks > ZPD_SQUARES_BLOCKS) blocks = ZPD_SQUARES_BLOCKS;
  return blocks < room ? blocks : room;
}

void zpr_muon_momentum(zpr *c, const zpr_block *block, const zpk_update *rule) {
  zpr_block_arrays x = zpr_arrays_of(c, block);
  zpd_muon_update a = {.momentum = rule->momentum,
                       .grad_scale = rule->grad_scale,
                       .grad = x.grad,
                       .m = x.m,
                       .x = x.v,
                       .count = block->end - block->begin};
  launch(c, &c->state->device->kernels.muon_momentum, &a, sizeof a, a.count);
}

void zpr_muon_unit(zpr *c, const void *x, void *y, int64_t elements, const zpr_muon_room *room) {
  zpd_muon_length a = {.x = x, .sums = room->free, .count = elements};
  zpd_muon_mixture scale = {.x = x, .y = y, .count = elements, .sums = a.sums, .least = 1e-7};
  scale.n_sums = blocks_of(elements, room->free_bytes);
  ZPR_START(c, muon_squares, &a, scale.n_sums);
  launch(c, &c->state->device->kernels.muon_mix, &scale, sizeof scale, elements);
}

void zpr_muon_place(zpr *c, void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t width,
                    int64_t blocks) {
  zpd_muon_blocks a = {
      .from = from, .to = to, .blocks = blocks, .width = width, .from_stride = from_stride, .to_stride = to_stride};
  launch(c, &c->state->device->kernels.muon_place, &a, sizeof a, blocks * width);
}

void zpr_muon_mix(zpr *c, double factor, double diagonal, const void *x, void *y, int64_t n) {
  zpd_muon_mixture a = {.x = x, .y = y, .count = n * n, .n = n, .factor = factor, .diagonal = diagonal};
  launch(c, &c->state->device->kernels.muon_mix, &a, sizeof a, a.count);
}

void zpr_muon_apply(zpr *c, const zpr_block *block, const zpk_update *rule, double scale) {
  zpr_block_arrays x = zpr_arrays_of(c, block);
  zpd_muon_weights a = {.lr = rule->lr,
                        .weight_decay = rule->weight_decay,
                        .scale = scale,
                        .ema = rule->ema,
                        .param = x.param,
                        .weight = x.weight,
                        .average = rule->ema > 0 ? x.average : NULL,
                        .x = x.v,
                        .count = block->end - block->begin};
  launch(c, &c->state->device->kernels.muon_apply, &a, sizeof a, a.count);
}
