/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS in its own words, for products that zpr_library has no words for. */
#ifndef ZPLAN_RT_OPENBLAS_H
#define ZPLAN_RT_OPENBLAS_H

#include "products.h"

/* Values of CBLAS. */
enum { CBLAS_ROW_MAJOR = 101, CBLAS_COLUMN_MAJOR = 102, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };

typedef struct zpr_openblas_calls {
  void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                const float *b, int ldb, float beta, float *y, int ldy);
  void (*dgemm)(int order, int trans_a, int trans_b, int m, int n, int k, double alpha, const double *a, int lda,
                const double *b, int ldb, double beta, double *y, int ldy);
} zpr_openblas_calls;
/* OpenBLAS has a buffer for every thread that multiplies at the same time, and where the system refuses it one it asks
 * again for ever: so they are taken before the first product. Returns the bytes that are missing, 0: none. */
enum {
  ZPR_MOST_MULTIPLY = 64,
  ZPR_OPENBLAS_BUFFER = (128 << 20) + (64 << 10)
}; /* 0.3.21 to 0.3.30 on x86-64 and arm64 */
int64_t zpr_openblas_reserve(int threads);
/* NULL: OpenBLAS is not on this machine. As zpr_openblas. */
const zpr_openblas_calls *zpr_openblas_open(void);

#endif
