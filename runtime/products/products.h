/* SPDX-License-Identifier: Apache-2.0 */
/* Private: what multiplies matrices on a processor. Each library is one file that opens it when it is asked for; which
 * of them is used, and with which kernels, follows from the features of the processor (choice.c), never from its model.
 *
 * All matrices are row-major: y[m,n] = op(a) op(b), plus y where `accumulate`. One thread a call; several threads call
 * at once. False: the library could not, for want of memory. */
#ifndef ZPLAN_RT_PRODUCTS_H
#define ZPLAN_RT_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the processor (processor.c) ---- */
/* Features that kernels are made for, each with those before it that they need. On other processors than x86-64:
 * none. */
typedef enum zpr_feature {
  ZPR_AVX2 = 1,       /* and fma */
  ZPR_AVX512 = 2,     /* f, cd, bw, dq, vl */
  ZPR_AVX512_BF16 = 4 /* products of bf16 with sums in f32 */
} zpr_feature;
/* What processor and system can run: a set of zpr_feature. */
unsigned zpr_processor_features(void);
/* "avx2 avx512 avx512_bf16", "none of avx2, avx512". Text for all time. */
const char *zpr_features_text(unsigned features);

/* ---- a library ---- */
typedef struct zpr_operands {
  bool trans_a, trans_b, accumulate;
  int64_t m, n, k, lda, ldb, ldy;
  const void *a, *b;
  void *y;
} zpr_operands;
typedef bool zpr_product_fn(const zpr_operands *p);

typedef struct zpr_library {
  const char *name;              /* "OpenBLAS"; NULL: it is not on this machine */
  char version[32], kernels[48]; /* "0.3.21", "Cooperlake": the library's own words */
  unsigned features;             /* that its kernels use */
  const char *variable;          /* of the environment, by which a user chooses its kernels */
  zpr_product_fn *f32, *f64;     /* NULL: it has none */
  zpr_product_fn *bf16;          /* a and b are bf16, y is f32; NULL: it has none that computes in bf16 */
} zpr_library;

/* Open once for the process and stay open; borrowed. The first call of zpr_openblas sets OPENBLAS_CORETYPE where the
 * user has not: no other thread may read the environment meanwhile. */
const zpr_library *zpr_openblas(void); /* openblas.c */
const zpr_library *zpr_onednn(void);   /* onednn.c */

/* ---- choice (choice.c): functions of their arguments alone ---- */
/* The core whose kernels OpenBLAS shall run; NULL: its own choice, for processors that it has known for ever. */
const char *zpr_openblas_core(unsigned features);
/* Features that the kernels of a core of OpenBLAS use; unknown cores count as using all. */
unsigned zpr_openblas_core_features(const char *core);

typedef struct zpr_products {
  const zpr_library *f32, *f64, *bf16; /* NULL: nobody can; bf16: operands are widened to f32 */
} zpr_products;
/* only: "openblas" or "onednn" are the user's choice, NULL is none. Libraries without a name are not there. */
zpr_products zpr_choose_products(unsigned processor, const zpr_library *openblas, const zpr_library *onednn,
                                 const char *only);
/* Writes one line where a library's kernels leave features of the processor unused that make products faster; else
 * text is empty. */
void zpr_narrow_kernels(unsigned processor, const zpr_library *library, char *text, size_t size);

#endif
