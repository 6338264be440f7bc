/* The matrix library's start; zpr_gemm itself is in rt.h. */
#ifndef ZPLAN_RT_BLAS_H
#define ZPLAN_RT_BLAS_H

#include "internal.h"

/* One thread per call: the callers are the threads. */
void zpr_blas_open(void);

#endif
