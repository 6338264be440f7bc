/* SPDX-License-Identifier: Apache-2.0 */
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

#endif
