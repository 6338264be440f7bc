/* SPDX-License-Identifier: Apache-2.0 */
/* What 1-bit Adam with ZeRO 1 does on the GPU (../optimizer/one_bit_shards.c). A block is what an owner has of a
 * parameter: a launch each. */
#include "one_bit_shards.h"
#include "cuda.h"

static zpd_owned owned_of(zpr *c, const zpr_block *b, const zpk_update *rule) {
  zpd_owned a = {.update = zpr_update_args(c, b, rule), .blocks = zpr_shard_elements(c->stage) / ZPK_SIGNS};
  if (!a.update.weight) {
    a.update.weight = a.update.param;
    a.update.param = NULL;
  }
  a.first = (b->begin + b->to_state) / ZPK_SIGNS;
  a.n = c->program->data;
  return a;
}

static void launch(zpr *c, zpr_device_kernel *kernel, const zpd_owned *a) {
  zpr_launch(c, kernel, a, sizeof *a, zpr_flat_blocks(c, a->update.count), 1, 1, ZPD_FLAT_THREADS);
}

/* Records of owners stand side by side. */
static char *record_of(const zpr *c, const void *records, int owner) {
  return (char *)(uintptr_t)records + owner * (zpr_shard_elements(c->stage) / ZPK_SIGNS) * ZPK_SIGNS_BYTES;
}

static zpd_owned sent_of(zpr *c, const zpr_owned_block *b, double scale) {
  const zpk_update rule = {.dtype = c->program->dtype, .grad_scale = scale};
  zpd_owned a = owned_of(c, &b->block, &rule);
  a.error = (float *)zpr_at(c, c->stage->error) + b->block.begin;
  return a;
}

void zpr_add_to_errors(zpr *c, const zpr_owned_block *blocks, int64_t n, double scale) {
  for (int64_t i = 0; i < n; i++) {
    zpd_owned a = sent_of(c, &blocks[i], scale);
    launch(c, &c->state->device->kernels.add_to_error, &a);
  }
}

void zpr_pack_errors(zpr *c, const zpr_owned_block *blocks, int64_t n, void *records) {
  for (int64_t i = 0; i < n; i++) {
    zpd_owned a = sent_of(c, &blocks[i], 0);
    a.record = record_of(c, records, blocks[i].owner);
    launch(c, &c->state->device->kernels.pack_error, &a);
  }
}

void zpr_owner_update(zpr *c, const zpr_block *mine, int64_t n, const zpk_update *rule, const double *ratio,
                      const void *records, void *record) {
  for (int64_t i = 0; i < n; i++) {
    zpd_owned a = owned_of(c, &mine[i], rule);
    if (ratio) a.update.lr *= ratio[i];
    if (!records) a.n = 0;
    if (c->stage->server_error >= 0)
      a.error = (float *)zpr_at(c, c->stage->server_error) + mine[i].begin + mine[i].to_state;
    a.records = records;
    a.record = record;
    launch(c, &c->state->device->kernels.owner_update, &a);
  }
}

void zpr_apply_signs(zpr *c, const zpr_owned_block *blocks, int64_t n, const void *records) {
  for (int64_t i = 0; i < n; i++) {
    zpd_owned a = sent_of(c, &blocks[i], 0);
    a.records = record_of(c, records, blocks[i].owner);
    launch(c, &c->state->device->kernels.apply_signs, &a);
  }
}
