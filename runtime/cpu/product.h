/* SPDX-License-Identifier: Apache-2.0 */
/* A product on its way from zpr_gemm to a library: private to blas.c and narrow_product.c. */
#ifndef ZPLAN_RT_PRODUCT_H
#define ZPLAN_RT_PRODUCT_H

#include <zplan/zpk.h>
#include "products.h"

typedef struct zpr_product {
  zpr_operands of; /* a and b of dtype; y, too, or `real` where it is a gradient of a parameter */
  zpk_dtype dtype;
  bool gradient;
  const zpr_products *use;
  /* 16-bit operands: ZPR_PRODUCT_BYTES for each worker; how many products are added up before a result is rounded, and
   * how many bytes their operands are apart. */
  char *tiles;
  int64_t terms, a_term, b_term;
  /* Operands are rounded to 8 bits first, each by its scale (zpk_through_float8) or by those of its blocks. */
  bool float8;
  zpk_float8 a_format, b_format;
  float a_scale, b_scale;
  /* A weight's gradient: the operand that is kept in 8 bits (else NULL), and its first column of this product. */
  const zpk_kept_float8 *a_kept, *b_kept;
  int64_t a_column, b_column;
} zpr_product;

/* 16-bit operands: sums in f32, every result rounded once, gradients not at all. False: the library could not. */
bool zpr_narrow_product(const zpr_product *p, int worker);

#endif
