/* SPDX-License-Identifier: Apache-2.0 */
/* What products of the emulated GPU compute: f32 and f64 by OpenBLAS, 16 bits by plain loops, with sums in f32 and
 * every result rounded once, unless it is f32. */
#include <math.h>
#include <openblas.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/zpk_narrow.h>
#include "blas.h"

static const zpr_openblas_calls *library; /* from emu_products_open on */

bool emu_products_open(void) {
  library = zpr_openblas_open();
  return library != NULL;
}

size_t emu_type_bytes(int type) {
  switch (type) {
  case GPU_F64: return 8;
  case GPU_F32: return 4;
  case GPU_F16:
  case GPU_BF16: return 2;
  default: return 0;
  }
}

static float widen(int type, uint16_t x) { return type == GPU_F16 ? zpk_widen_f16(x) : zpk_widen_bf16(x); }

static uint16_t narrow(int type, float x) { return type == GPU_F16 ? zpk_round_f16(x) : zpk_round_bf16(x); }

static float load(int type, const void *from, int64_t i) {
  return type == GPU_F32 ? ((const float *)from)[i] : widen(type, ((const uint16_t *)from)[i]);
}

static void store(int type, void *to, int64_t i, float x) {
  if (type == GPU_F32)
    ((float *)to)[i] = x;
  else
    ((uint16_t *)to)[i] = narrow(type, x);
}

/* ---- epilogues ---- */

/* x (1 + tanh(s (x + 0.044715 x^3))) / 2 with s = sqrt(2 / pi), from "Gaussian Error Linear Units", arXiv
 * 1606.08415. */
static const double gelu_s = 0.79788456080286535588, gelu_c = 0.044715;

static double gelu(double x) { return x / 2 * (1 + tanh(gelu_s * (x + gelu_c * x * x * x))); }

static double gelu_slope(double x) {
  double t = tanh(gelu_s * (x + gelu_c * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * gelu_s * (1 + 3 * gelu_c * x * x);
}

/* What is written for element (i, j), of which the product and c make x. row_sums: of what is written, before it is
 * rounded. */
static float finish(const emu_product *p, int64_t i, int64_t j, float x, double *row_sums) {
  switch (p->epilogue) {
  case GPU_EPILOGUE_BIAS: return x + load(p->result, p->bias, i);
  case GPU_EPILOGUE_GELU_AUX_BIAS:
    x += load(p->result, p->bias, i);
    store(p->result, p->aux, j * p->aux_ld + i, x);
    return (float)gelu((double)x);
  case GPU_EPILOGUE_DGELU_BGRAD:
    x *= (float)gelu_slope((double)load(p->result, p->aux, j * p->aux_ld + i));
    row_sums[i] += (double)x;
    return x;
  default: return x;
  }
}

/* Sums of an operand over k: of a's rows, of b's columns. */
static void sum_operand(const emu_product *p, const void *of, int64_t n, int64_t step, int64_t k_step) {
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int64_t l = 0; l < p->k; l++) sum += (double)load(p->type, of, i * step + l * k_step);
    store(p->result, p->bias, i, (float)sum);
  }
}

static void write_sums(const emu_product *p, const double *row_sums) {
  if (p->epilogue == GPU_EPILOGUE_BGRADA)
    sum_operand(p, p->a, p->m, p->trans_a ? p->a_ld : 1, p->trans_a ? 1 : p->a_ld);
  else if (p->epilogue == GPU_EPILOGUE_BGRADB)
    sum_operand(p, p->b, p->n, p->trans_b ? 1 : p->b_ld, p->trans_b ? p->b_ld : 1);
  for (int64_t i = 0; i < p->m && p->epilogue == GPU_EPILOGUE_DGELU_BGRAD; i++)
    store(p->result, p->bias, i, (float)row_sums[i]);
}

/* ---- products ---- */

static void run_narrow(const emu_product *p, double *row_sums) {
  const uint16_t *a = p->a, *b = p->b;
  /* from one multiply-add to the next, and from one row of a, one column of b to the next */
  int64_t a_step = p->trans_a ? 1 : p->a_ld, a_row = p->trans_a ? p->a_ld : 1;
  int64_t b_step = p->trans_b ? p->b_ld : 1, b_col = p->trans_b ? 1 : p->b_ld;
  for (int64_t j = 0; j < p->n; j++)
    for (int64_t i = 0; i < p->m; i++) {
      float sum = 0;
      for (int64_t l = 0; l < p->k; l++)
        sum += widen(p->type, a[i * a_row + l * a_step]) * widen(p->type, b[j * b_col + l * b_step]);
      float before = p->beta == 0 ? 0 : (float)p->beta * load(p->result, p->c, j * p->c_ld + i);
      store(p->result, p->d, j * p->d_ld + i, finish(p, i, j, (float)p->alpha * sum + before, row_sums));
    }
}

static void run_wide(const emu_product *p, double *row_sums) {
  int order = CBLAS_COLUMN_MAJOR, m = (int)p->m, n = (int)p->n, k = (int)p->k, lda = (int)p->a_ld, ldb = (int)p->b_ld;
  int a = p->trans_a ? CBLAS_TRANS : CBLAS_NO_TRANS, b = p->trans_b ? CBLAS_TRANS : CBLAS_NO_TRANS;
  size_t size = emu_type_bytes(p->type);
  for (int64_t j = 0; j < p->n && p->beta != 0 && p->c != p->d; j++) /* OpenBLAS adds in place */
    memcpy((char *)p->d + (size_t)(j * p->d_ld) * size, (const char *)p->c + (size_t)(j * p->c_ld) * size,
           (size_t)p->m * size);
  if (p->type == GPU_F64)
    library->dgemm(order, a, b, m, n, k, p->alpha, p->a, lda, p->b, ldb, p->beta, p->d, (int)p->d_ld);
  else
    library->sgemm(order, a, b, m, n, k, (float)p->alpha, p->a, lda, p->b, ldb, (float)p->beta, p->d, (int)p->d_ld);
  float *d = p->d;
  for (int64_t j = 0; j < p->n && p->epilogue != GPU_EPILOGUE_NONE; j++)
    for (int64_t i = 0; i < p->m; i++) d[j * p->d_ld + i] = finish(p, i, j, d[j * p->d_ld + i], row_sums);
}

/* Either end: cuBLASLt may use all of it, and to write all of it takes longer than the product. */
static void use_workspace(const emu_product *p) {
  enum { END = 512, NOT_A_NUMBER = 0xFF };
  size_t end = p->workspace_bytes < END ? p->workspace_bytes : END;
  memset(p->workspace, NOT_A_NUMBER, end);
  memset((char *)p->workspace + p->workspace_bytes - end, NOT_A_NUMBER, end);
}

int emu_run_product(void *work) {
  const emu_product *p = work;
  double *row_sums = calloc((size_t)p->m, sizeof *row_sums);
  if (!row_sums) return EMU_OUT_OF_MEMORY;
  if (p->workspace_bytes > 0) use_workspace(p);
  if (emu_type_bytes(p->type) == 2)
    run_narrow(p, row_sums);
  else
    run_wide(p, row_sums);
  write_sums(p, row_sums);
  free(row_sums);
  return EMU_SUCCESS;
}
