/* Kernels of zplan's own GPU trainer: what they compute. */
#ifndef ZPLAN_OWN_GPU_H
#define ZPLAN_OWN_GPU_H

#include <zplan/machine.h>
#include <zplan/sparse.h>

/* ---- own_attention.c: attention on tensor cores ---- */
typedef enum zp_tensor_kernel { ZP_TENSOR_FORWARD, ZP_TENSOR_GRAD_Q, ZP_TENSOR_GRAD_KV } zp_tensor_kernel;
/* Local shapes. width: columns of a head. head: those that the kernels are compiled for, the most of the model. */
typedef struct zp_attention_shape {
  int64_t samples, heads, kv_heads, sequence, width, head;
  int float_bytes;
  bool causal;
  const zp_layout *layout; /* NULL: dense */
} zp_attention_shape;
/* The geometry of zpd_mma_rows, zpd_mma_sharers and zpd_mma_step of the kernels (zplan/zpd.h), which the planner may
 * not see: rows of a block's tile, warps that share a step out, rows of the other side in a step. block: of the layout;
 * 0: dense. */
typedef struct zp_attention_tile {
  int64_t rows, sharers, step;
} zp_attention_tile;
zp_attention_tile zp_attention_tile_of(zp_tensor_kernel kernel, int64_t head, int64_t block);
/* What a kernel computes, walking as it does. Warps skip steps that none of their rows sees, but the block waits for
 * the warp that has most to do: with its steps for every warp flop would be waited_flop, of the block that has most
 * longest_flop. */
typedef struct zp_attention_walk {
  double flop, waited_flop, longest_flop;
  double blocks;
} zp_attention_walk;
zp_attention_walk zp_attention_walk_of(zp_tensor_kernel kernel, const zp_attention_shape *shape);

#endif
