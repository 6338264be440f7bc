/* The start of matrix products; zpr_gemm itself is in rt.h. */
#ifndef ZPLAN_RT_BLAS_H
#define ZPLAN_RT_BLAS_H

#include "state.h"

/* Chooses the libraries that multiply: those of the option --products, or what suits the processor. Z0854: there is
 * none. Collective. */
void zpr_blas_open(zpr *c);
/* After it, what multiplies operands of this dtype: "oneDNN 2.6.3 avx512_core". */
void zpr_blas_describe(zpk_dtype dtype, char *text, size_t size);
/* One line of warning after zpr_blas_open where that library's kernels are narrower than the processor; else empty. */
void zpr_blas_warning(zpk_dtype dtype, char *text, size_t size);

/* zpr_gemm of operands that are what master weights are: f32 with 16-bit dtypes. Nothing is added. */
void zpr_gemm_real(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
                   const void *b, int64_t ldb, void *y, int64_t ldy);

#endif
