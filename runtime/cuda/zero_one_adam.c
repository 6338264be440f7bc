/* SPDX-License-Identifier: Apache-2.0 */
/* What 0/1 Adam does on the GPU (../optimizer/zero_one_adam.c). A block is the whole of a parameter: a launch each. */
#include "zero_one_adam.h"
#include "cuda.h"
#include "update.h"

static void launch(zpr *c, zpr_device_kernel *kernel, const void *args, size_t size, int64_t count) {
  zpr_launch(c, kernel, args, size, zpr_flat_blocks(c, count), 1, 1, ZPD_FLAT_THREADS);
}

static void launch_local(zpr *c, zpr_device_kernel *kernel, const zpr_block *blocks, int64_t n, const zpk_update *rule,
                         double rate) {
  int64_t real = zpk_real_bytes(c->program->dtype);
  for (int64_t i = 0; i < n; i++) {
    int64_t state = (blocks[i].begin + blocks[i].to_state) * real;
    zpd_local a = {.update = zpr_update_args(c, &blocks[i], rule),
                   .sum = (char *)zpr_at(c, c->stage->local_sum) + state,
                   .rate = rate};
    a.anchor = a.update.weight ? a.update.param : (char *)zpr_at(c, c->stage->anchor) + state;
    launch(c, kernel, &a, sizeof a, a.update.count);
  }
}

void zpr_variance_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  for (int64_t i = 0; i < n; i++) {
    zpd_update a = zpr_update_args(c, &blocks[i], rule);
    launch(c, &c->state->device->kernels.variance, &a, sizeof a, a.count);
  }
}

void zpr_local_add(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, double weight) {
  launch_local(c, &c->state->device->kernels.local_add, blocks, n, rule, weight);
}

void zpr_local_weights(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, double total) {
  zpk_update of_all = *rule;
  of_all.lr = total;
  launch_local(c, &c->state->device->kernels.local_weights, blocks, n, &of_all, total);
}

void zpr_local_mean(zpr *c, const zpr_block *blocks, int64_t n, double total) {
  const zpk_update rule = {.dtype = c->program->dtype};
  launch_local(c, &c->state->device->kernels.local_mean, blocks, n, &rule, total);
}
