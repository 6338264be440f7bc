/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end: Muon (muon.c). */
#ifndef ZPLAN_RT_MUON_H
#define ZPLAN_RT_MUON_H

#include "device.h"
#include "state.h"

/* A matrix of every instance of a run, as Newton-Schulz takes it. */
typedef struct zpr_matrix {
  const zpr_param *param;
  int64_t rows, cols; /* whole; where nobody shares it with what pads a side: zeros, which stay zeros */
  int64_t longer;     /* side, without */
  bool split;         /* over the tensor ranks */
} zpr_matrix;

enum { ZPR_MUON_PIECE = 65536 }; /* elements that a thread of a CPU rank takes, but of products */

/* ---- by the back ends: cpu/muon.c, cuda/muon.c; numbers are of the type of the master weights ---- */
/* Room for what is summed on the way to a length. */
typedef struct zpr_muon_room {
  double *sums; /* on the host, one of every piece */
  void *free;   /* 256 bytes or more that nothing needs */
  int64_t free_bytes;
} zpr_muon_room;
/* New momentum of the elements of a block, and their update before it is orthogonalised, in the place of the second
 * moment. */
void zpr_muon_momentum(zpr *c, const zpr_block *block, const zpk_update *rule);
/* y = x / |x|. */
void zpr_muon_unit(zpr *c, const void *x, void *y, int64_t elements, const zpr_muon_room *room);
/* y = factor x, plus `diagonal` on the diagonal; n x n. x may be y. */
void zpr_muon_mix(zpr *c, double factor, double diagonal, const void *x, void *y, int64_t n);
/* zpr_gemm of such numbers; nothing is added. */
void zpr_gemm_real(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
                   const void *b, int64_t ldb, void *y, int64_t ldy);
/* Copies blocks of `width` elements, strides from one to the next. */
void zpr_muon_place(zpr *c, void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t width,
                    int64_t blocks);
/* The parameters of a block, by `scale` times what stands in the place of the second moment, with what is rounded from
 * them and their average. */
void zpr_muon_apply(zpr *c, const zpr_block *block, const zpk_update *rule, double scale);

#endif
