/* SPDX-License-Identifier: Apache-2.0 */
/* Private: matrix products by cuBLASLt, for trainers and for `zplan calibrate`. What a product needs alongside its
 * operands is made once: descriptors, and the algorithm, which is the first that cuBLASLt's heuristic names under
 * preferences that never change. So it follows from the product's shape, the GPU and the version of the library alone,
 * and a run that is started again computes the same bits.
 *
 * Matrices are column-major, as cuBLASLt has them: d[m,n] = op(a) op(b) + c, through an epilogue:
 *   BIAS           adds bias[m] to every column
 *   GELU_AUX_BIAS  the same, written to aux[m,n], and d = gelu of it, in the approximation by tanh
 *   DGELU_BGRAD    d *= gelu'(aux), and bias[m] = the sum of its columns
 *   BGRADA         bias[m] = the sum of op(a)[m,k] over k, BGRADB: bias[n] = that of op(b)[k,n]; d is the plain product
 * What is in bias and aux is of d's type; what is added up, and gelu's argument, are f32. Sums of 16-bit and
 * of f32 operands are f32, also where the inner dimension is divided; those of f64 are f64. TF32 is never asked for. */
#ifndef ZPLAN_RT_CUDA_GPU_PRODUCT_H
#define ZPLAN_RT_CUDA_GPU_PRODUCT_H

#include "gpu_api.h"

/* What an algorithm is chosen for. Zeroed before it is filled in: shapes are compared byte by byte. */
typedef struct gpu_shape {
  int32_t type; /* cudaDataType of a and b, and of c and d */
  int32_t sums; /* c and d are f32, whatever a and b are: to what is in d more is added later */
  int32_t trans_a, trans_b;
  int32_t epilogue;     /* GPU_EPILOGUE_ */
  int32_t alignment[6]; /* of a, b, c, d, bias, aux in bytes: set by gpu_products_run */
  int64_t m, n, k, a_ld, b_ld, c_ld, d_ld;
  int64_t count, a_step, b_step, d_step; /* count products, from one to the next so many elements; c steps as d */
  int64_t aux_ld;                        /* a multiple of 8 */
} gpu_shape;

typedef struct gpu_operands {
  gpu_pointer a, b, c, d; /* c may be d */
  bool add;               /* c is added; otherwise nobody reads it */
  gpu_pointer bias, aux;  /* of the epilogue; 0: it has none */
} gpu_operands;

typedef struct gpu_products gpu_products;

/* NULL when there is no memory of the host, or with *status. workspace: of the device, used by every product. */
gpu_products *gpu_products_open(const gpu_api *api, int *status);
void gpu_products_close(gpu_products *products);
/* Starts a product in the stream; a cublasStatus_t. 15 (not supported): no algorithm does it. The workspace is that of
 * all products: they go to one stream. */
int gpu_products_run(gpu_products *products, const gpu_shape *shape, const gpu_operands *operands,
                     gpu_pointer workspace, size_t workspace_bytes, void *stream);
/* Has such a product been run? */
bool gpu_products_has(const gpu_products *products, const gpu_shape *shape, const gpu_operands *operands);

/* A number that stands for all shapes so far and their algorithms, in the order in which they came; of shape i as
 * members of a JSON object: its numbers, and the settings of its algorithm (cublasLtMatmulAlgoConfigAttributes_t, in
 * order). false: there is no such shape. */
uint64_t gpu_products_hash(const gpu_products *products);
bool gpu_products_describe(const gpu_products *products, int i, char *text, size_t size);

#endif
