/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the emulated GPU: a product as cuBLASLt was asked for it, column-major: d[m,n] = alpha op(a) op(b) +
 * beta c, and an epilogue of ../gpu_product.h. */
#ifndef ZPLAN_EMULATOR_BLAS_H
#define ZPLAN_EMULATOR_BLAS_H

#include <stdint.h>
#include "emulator.h"

typedef struct emu_product {
  int type, result; /* cudaDataType of a and b; of c and d, and of an epilogue's vector and matrix */
  bool trans_a, trans_b;
  int64_t m, n, k, a_ld, b_ld, c_ld, d_ld;
  double alpha, beta;
  const void *a, *b, *c;
  void *d;
  int epilogue;
  void *bias, *aux;
  int64_t aux_ld;
  void *workspace; /* of which some bytes are overwritten: nobody else may have something there */
  size_t workspace_bytes;
} emu_product;

size_t emu_type_bytes(int type); /* 0: of no type that there are products of */
/* blas_run.c. false: OpenBLAS is not on this machine. */
bool emu_products_open(void);
emu_run emu_run_product; /* of an emu_product */

#endif
