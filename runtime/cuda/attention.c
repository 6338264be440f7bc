/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a trainer on a GPU, on tensor cores or not, with what is done before and after its kernels: tables of
 * relative biases spread, their gradients summed. Arguments are those of kernels/include/zplan/zpd.h, blocks those of
 * zpd_mma_geometry.h. */
#include <assert.h>
#include <zplan/zpd_mma_geometry.h>
#include "attention_args.h"
#include "cuda.h"

/* Seed and step are the runtime's, which draws in training alone. */
static void add_dropout(const zpr *c, const zpk_attention_args *x, zpd_attention *a) {
  zpk_attention_dropout drop = x->dropout;
  drop.seed = c->program->seed;
  drop.step = (uint64_t)c->step;
  if (c->training) zpr_add_dropout(&drop, a);
}

/* sm_70 and sm_72: tensor cores for f16 alone. */
static bool is_volta(const zpr *c) { return c->state->device->capability >= 70 && c->state->device->capability < 75; }

/* Does the trainer compute attention on tensor cores? sm_75 has none that the kernels are written for. */
static bool has_tensor_cores(const zpr *c) {
  if (c->program->tensor_core_head == 0) return false;
  return is_volta(c) ? c->program->dtype == ZPK_F16 : c->state->device->capability >= 80;
}

void zpr_begin_bias(zpr *c, const zpk_attention_args *x, bool grad, zpd_attention *a) {
  if (x->buckets == 0) return;
  zpd_bias bias = zpr_bias_args(x, grad, has_tensor_cores(c));
  ZPR_START(c, bias_lines, &bias, zpr_flat_blocks(c, 2 * x->S));
  zpr_use_bias(&bias, a);
}

/* The kernel for queries has written the sums. */
static void end_bias(zpr *c, const zpk_attention_args *x) {
  enum { WARP = 32 };
  if (x->buckets == 0 || !x->d_bias) return;
  zpd_bias bias = zpr_bias_args(x, true, has_tensor_cores(c));
  ZPR_START(c, bias_grad, &bias, zpr_flat_blocks(c, x->buckets * x->H * WARP));
}

/* rows: queries or keys of a sample, whichever tiles are of. */
static void launch_attention(zpr *c, zpr_device_kernel *kernel, const zpd_attention *a, int64_t rows, int64_t heads) {
  int64_t tiles = (rows + ZPD_ATTENTION_ROWS - 1) / ZPD_ATTENTION_ROWS;
  zpr_launch(c, kernel, a, sizeof *a, tiles, heads, a->B, ZPD_ATTENTION_THREADS);
}

/* rows: as those of launch_attention; tile: rows of a tile. */
static void launch_mma(zpr *c, int kind, zpr_device_kernel *kernel, const zpd_attention *a, int64_t rows, int64_t heads,
                       int tile) {
  zpr_launch_shared(c, kernel, a, sizeof *a, (rows + tile - 1) / tile, heads, a->B, ZPD_ATTENTION_THREADS,
                    zpd_mma_shared_bytes(kind, c->program->tensor_core_head, tile,
                                         is_volta(c) ? ZPD_MMA_SHARED_BYTES_VOLTA : ZPD_MMA_SHARED_BYTES));
}

/* kernels: for the tile of dense attention, then for tiles of 64, 32 and 16 rows. */
static void launch_mma_of(zpr *c, int kind, zpr_device_kernel *const kernels[4], const zpd_attention *a, int64_t rows,
                          int64_t heads, const zpk_layout *layout) {
  int head = c->program->tensor_core_head, tile = zpd_mma_rows(kind, head, layout ? (int)layout->block : 0);
  int which = tile == zpd_mma_rows(kind, head, 0) ? 0 : tile == 64 ? 1 : tile == 32 ? 2 : 3;
  launch_mma(c, kind, kernels[which], a, rows, heads, tile);
}

void zpr_attention(zpr *c, const zpk_attention_args *args) {
  assert(args->G >= 1 && args->H % args->G == 0 && args->hd >= 1);
  zpr_kernels *kernels = &c->state->device->kernels;
  zpd_attention a = zpr_attention_args(args);
  add_dropout(c, args, &a);
  zpr_begin_bias(c, args, false, &a);
  if (has_tensor_cores(c)) {
    zpr_device_kernel *const forward[] = {&kernels->mma_forward, &kernels->mma_forward_64, &kernels->mma_forward_32,
                                          &kernels->mma_forward_16};
    launch_mma_of(c, ZPD_MMA_FORWARD, forward, &a, a.S, a.H, args->layout);
  } else
    launch_attention(c, &kernels->attention_forward, &a, a.S, a.H);
}

void zpr_attention_grad(zpr *c, const zpk_attention_args *args) {
  assert(args->G >= 1 && args->H % args->G == 0 && args->hd >= 1);
  zpr_kernels *kernels = &c->state->device->kernels;
  zpd_attention a = zpr_attention_args(args);
  add_dropout(c, args, &a);
  zpr_begin_bias(c, args, true, &a);
  if (has_tensor_cores(c)) {
    zpr_device_kernel *const grad_q[] = {&kernels->mma_grad_q, &kernels->mma_grad_q_64, &kernels->mma_grad_q_32,
                                         &kernels->mma_grad_q_16};
    zpr_device_kernel *const grad_kv[] = {&kernels->mma_grad_kv, &kernels->mma_grad_kv_64, &kernels->mma_grad_kv_32,
                                          &kernels->mma_grad_kv_16};
    if (a.bias_sums)
      launch_mma(c, ZPD_MMA_GRAD_Q_BIAS, &kernels->mma_grad_q_bias, &a, a.S, a.H, ZPD_ATTENTION_ROWS);
    else
      launch_mma_of(c, ZPD_MMA_GRAD_Q, grad_q, &a, a.S, a.H, args->layout);
    launch_mma_of(c, ZPD_MMA_GRAD_KV, grad_kv, &a, zpr_keys_of(&a), a.G, args->layout);
  } else {
    launch_attention(c, &kernels->attention_grad_q, &a, a.S, a.H);
    launch_attention(c, &kernels->attention_grad_kv, &a, zpr_keys_of(&a), a.G);
  }
  end_bias(c, args);
}
