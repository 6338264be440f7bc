/* SPDX-License-Identifier: Apache-2.0 */
/* What 1-bit Adam does on the GPU (../optimizer/one_bit.c). A block is the whole of a parameter: a launch each. */
#include "one_bit.h"
#include "cuda.h"

static void launch_blocks(zpr *c, zpr_device_kernel *kernel, const zpr_block *blocks, int64_t n,
                          const zpk_update *rule) {
  for (int64_t i = 0; i < n; i++) {
    zpd_update a = zpr_update_args(c, &blocks[i], rule);
    zpr_launch(c, kernel, &a, sizeof a, zpr_flat_blocks(c, a.count), 1, 1, ZPD_FLAT_THREADS);
  }
}

void zpr_momentum_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  launch_blocks(c, &c->state->device->kernels.momentum, blocks, n, rule);
}

void zpr_frozen_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  launch_blocks(c, &c->state->device->kernels.frozen_update, blocks, n, rule);
}

static zpd_signs signs_of(zpr *c, int part) {
  int64_t elements = zpr_flat_elements(c->stage) / c->program->data, begin = part * elements;
  int64_t size = zpk_real_bytes(c->program->dtype);
  return (zpd_signs){.m = (char *)zpr_at(c, c->stage->moment1) + begin * size,
                     .v = (char *)zpr_at(c, c->stage->moment2) + begin * size,
                     .error = (float *)zpr_at(c, c->stage->error) + begin,
                     .blocks = elements / ZPK_SIGNS,
                     .here = zpr_blocks_here(c, part)};
}

static void launch_signs(zpr *c, zpr_device_kernel *kernel, const zpd_signs *a) {
  enum { BLOCKS = ZPD_FLAT_THREADS / 32 }; /* a warp each */
  if (a->here > 0)
    zpr_launch(c, kernel, a, sizeof *a, zpr_grid(c, (a->here + BLOCKS - 1) / BLOCKS), 1, 1, ZPD_FLAT_THREADS);
}

void zpr_pack_part(zpr *c, int part, void *record) {
  zpd_signs a = signs_of(c, part);
  a.record = record;
  launch_signs(c, &c->state->device->kernels.pack_signs, &a);
}

void zpr_average_part(zpr *c, int part, const void *records, void *record) {
  zpd_signs a = signs_of(c, part);
  a.records = records;
  a.record = record;
  a.n = c->program->data;
  a.error = zpr_at(c, c->stage->server_error);
  launch_signs(c, &c->state->device->kernels.average_signs, &a);
}

void zpr_unpack_part(zpr *c, int part, const void *record) {
  zpd_signs a = signs_of(c, part);
  a.records = record;
  launch_signs(c, &c->state->device->kernels.unpack_signs, &a);
}
