/* SPDX-License-Identifier: Apache-2.0 */
/* Geometry of zpd_mma_*, attention on tensor cores: as the kernels are compiled, and as they must be launched.
 *
 * A block of 128 threads takes a tile of rows (queries; keys in grad_kv) of head y of sample z, and walks over the rows
 * of the other side by steps. `head`: ZPD_HEAD, which the text was compiled with. Dense attention and layouts whose
 * blocks are multiples of the dense tile: the kernels without a number. Other layouts: the largest of 64, 32, 16 that
 * divides the block; there the warps of a block share the step out, too. */
#ifndef ZPLAN_ZPD_MMA_GEOMETRY_H
#define ZPLAN_ZPD_MMA_GEOMETRY_H

#include "zplan/zpd.h"

#ifdef __CUDACC__
#define ZPD_CONSTANT static __device__ constexpr
#elif defined(__cplusplus)
#define ZPD_CONSTANT static constexpr
#else
#define ZPD_CONSTANT static inline
#endif

/* The last one: the gradient of queries that also sums that of a relative bias. */
enum { ZPD_MMA_FORWARD, ZPD_MMA_GRAD_Q, ZPD_MMA_GRAD_KV, ZPD_MMA_GRAD_Q_BIAS };

enum {
  ZPD_MMA_UNIT = 16,
  ZPD_MMA_WARPS = 4,
  ZPD_MMA_SHARED_BYTES = 99 * 1024,      /* of sm_86, sm_89, sm_120; the others since sm_80 have more */
  ZPD_MMA_SHARED_BYTES_VOLTA = 96 * 1024 /* of sm_70, sm_72 */
};

#ifndef __CUDACC_RTC__
/* Bytes of zpd_attention.facts. */
static inline zpd_int zpd_mma_facts_bytes(zpd_int B, zpd_int H, zpd_int S) { return 8 * B * H * ((S + 1) / 2 * 2); }
#endif

/* Columns of a head, with zeros after them. */
ZPD_CONSTANT int zpd_mma_columns(int head) { return (head + 15) / 16 * 16; }

/* Rows of the tile of dense attention. Measured on an H100 (docs/evidence/gpu_measured.md): forward of heads up to 128,
 * and the gradient of queries up to 64, are fastest with 128 rows, two fragments a warp, which read each operand of the
 * other side half as often. So would be the gradient of keys and values up to 64, by 4 %, but spills where there are
 * layouts. */
ZPD_CONSTANT int zpd_mma_dense_rows(int kind, int head) {
  return (kind == ZPD_MMA_FORWARD && head <= 128) || (kind == ZPD_MMA_GRAD_Q && head <= 64) ? 128 : 64;
}

/* Rows of a tile; `block` of the layout, 0: dense. */
ZPD_CONSTANT int zpd_mma_rows(int kind, int head, int block) {
  return block % zpd_mma_dense_rows(kind, head) == 0 ? zpd_mma_dense_rows(kind, head)
         : block % 64 == 0                           ? 64
         : block % 32 == 0                           ? 32
                                                     : 16;
}

/* Warps that share a step out. */
ZPD_CONSTANT int zpd_mma_sharers(int rows) { return rows >= 64 ? 1 : 64 / rows; }

/* Rows of the other side in a step: what registers hold alongside the sums. */
ZPD_CONSTANT int zpd_mma_step(int kind, int head, int rows) {
  return kind == ZPD_MMA_FORWARD ? (rows < 32 || head <= 64 || (head <= 128 && rows < 128) ? 64 : 32)
         : rows < 32             ? 64
         : head <= 64            ? (rows < 128 ? 64 : 32)
         : head <= 128           ? 32
         : rows < 64             ? 32
                                 : 16;
}

/* Rows of the scores' gradients in shared memory, from which those of a bias are summed: f32 of a step, and as much
 * more as keeps rows in different banks. */
ZPD_CONSTANT int zpd_mma_bias_columns(int head) { return zpd_mma_step(ZPD_MMA_GRAD_Q_BIAS, head, 64) + 8; }

/* Bytes of shared memory with a number of steps in it: the tiles of the block; for each step two tiles and facts. */
ZPD_CONSTANT int zpd_mma_bytes(int kind, int head, int rows, int stages) {
  return 2 * zpd_mma_columns(head) *
             (rows * (kind == ZPD_MMA_FORWARD ? 1 : 2) + 2 * zpd_mma_step(kind, head, rows) * stages) +
         (kind == ZPD_MMA_GRAD_KV ? 8 * zpd_mma_step(kind, head, rows) * stages : 0) +
         (kind == ZPD_MMA_GRAD_Q_BIAS ? 4 * rows * zpd_mma_bias_columns(head) : 0);
}

/* most_bytes: ZPD_MMA_SHARED_BYTES of the arch. */
ZPD_CONSTANT int zpd_mma_stages(int kind, int head, int rows, int most_bytes) {
  return zpd_mma_bytes(kind, head, rows, 2) <= most_bytes ? 2 : 1;
}

ZPD_CONSTANT int zpd_mma_shared_bytes(int kind, int head, int rows, int most_bytes) {
  return zpd_mma_bytes(kind, head, rows, zpd_mma_stages(kind, head, rows, most_bytes));
}

#endif
