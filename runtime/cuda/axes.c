/* SPDX-License-Identifier: Apache-2.0 */
/* One axis made one number, positions by number, windows over them, matrices turned over, and squared errors, on the
 * GPU. */
#include "cuda.h"
#include <assert.h>

static void launch_reduction(zpr *c, zpr_device_kernel *kernel, const zpk_reduce_args *args) {
  assert(args->outer >= 1 && args->n >= 1 && args->n < 1 << 24 && args->inner >= 1);
  int64_t blocks =
      args->inner == 1 ? args->outer : (args->outer * args->inner + ZPD_FLAT_THREADS - 1) / ZPD_FLAT_THREADS;
  zpr_launch(c, kernel, args, sizeof *args, zpr_grid(c, blocks), 1, 1, ZPD_FLAT_THREADS);
}

void zpr_reduce(zpr *c, const zpk_reduce_args *args) { launch_reduction(c, &c->state->device->kernels.reduce, args); }

void zpr_reduce_grad(zpr *c, const zpk_reduce_args *args) {
  launch_reduction(c, &c->state->device->kernels.reduce_grad, args);
}

static void launch_gather(zpr *c, zpr_device_kernel *kernel, const zpk_gather_args *args, int64_t rows) {
  assert(args->samples >= 1 && args->S >= 1 && args->n >= 1 && args->cols >= 1);
  zpr_launch(c, kernel, args, sizeof *args, zpr_grid(c, rows), 1, 1, ZPD_FLAT_THREADS);
}

void zpr_gather(zpr *c, const zpk_gather_args *args) {
  launch_gather(c, &c->state->device->kernels.gather, args, args->samples * args->n);
}

void zpr_gather_grad(zpr *c, const zpk_gather_args *args) {
  launch_gather(c, &c->state->device->kernels.gather_grad, args, args->samples * args->S);
}

static void launch_unfold(zpr *c, zpr_device_kernel *kernel, const zpk_unfold_args *args, int64_t rows) {
  assert(args->samples >= 1 && args->cols >= 1 && args->first >= 0 && args->n >= 1);
  for (int i = 0; i < 2; i++)
    assert(args->size[i] >= 1 && args->count[i] >= 1 && args->kernel[i] >= 1 && args->stride[i] >= 1);
  zpr_launch(c, kernel, args, sizeof *args, zpr_grid(c, args->samples * rows), 1, 1, ZPD_FLAT_THREADS);
}

void zpr_unfold(zpr *c, const zpk_unfold_args *args) {
  launch_unfold(c, &c->state->device->kernels.unfold, args, args->n);
}

void zpr_unfold_grad(zpr *c, const zpk_unfold_args *args) {
  launch_unfold(c, &c->state->device->kernels.unfold_grad, args, args->size[0] * args->size[1]);
}

void zpr_transpose(zpr *c, const void *x, int64_t samples, int64_t rows, int64_t cols, void *y) {
  assert(samples >= 1 && rows >= 1 && cols >= 1);
  enum { TILE = ZPD_TRANSPOSE_TILE };
  zpd_transpose_args a = {.x = x, .y = y, .samples = samples, .rows = rows, .cols = cols};
  int64_t tiles = samples * ((rows + TILE - 1) / TILE) * ((cols + TILE - 1) / TILE);
  ZPR_START(c, transpose, &a, zpr_grid(c, tiles));
}

void zpr_squared_error(zpr *c, int loss, const void *x, const void *target, int64_t rows, int64_t cols, void *stat) {
  assert(rows >= 1 && cols >= 1 && loss >= 0 && loss < zpr_n_losses(c->program));
  zpd_squared_error_args a = {.x = x, .target = target, .to = stat, .rows = rows, .cols = cols};
  ZPR_START(c, squared_error, &a, zpr_grid(c, rows));
  zpr_cuda_show_errors(c, loss, stat, rows);
}

void zpr_squared_error_grad(zpr *c, int loss, const void *x, const void *target, int64_t rows, int64_t cols,
                            double share, void *dx) {
  assert(rows >= 1 && cols >= 1 && loss >= 0 && loss < zpr_n_losses(c->program));
  const double *there = zpr_loss_scale_there(c);
  double weight = there ? c->token_weight[loss] * zpr_loss_weight(c->program, loss) : zpr_gradient_weight(c, loss);
  zpd_squared_error_args a = {
      .x = x, .target = target, .to = dx, .rows = rows, .cols = cols, .scale = weight * share, .loss_scale = there};
  ZPR_START(c, squared_error_grad, &a, zpr_flat_blocks(c, rows * cols));
}
