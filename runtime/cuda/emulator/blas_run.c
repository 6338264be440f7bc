/* What products of the emulated GPU compute: f32 and f64 by OpenBLAS, 16 bits by plain loops, with sums in f32 and
 * every result rounded once. */
#include <openblas.h>
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

static void run_narrow(const emu_product *p) {
  const uint16_t *a = p->a, *b = p->b, *c = p->c;
  uint16_t *d = p->d;
  /* from one multiply-add to the next, and from one row of a, one column of b to the next */
  int64_t a_step = p->trans_a ? 1 : p->a_ld, a_row = p->trans_a ? p->a_ld : 1;
  int64_t b_step = p->trans_b ? p->b_ld : 1, b_col = p->trans_b ? 1 : p->b_ld;
  for (int64_t j = 0; j < p->n; j++)
    for (int64_t i = 0; i < p->m; i++) {
      float sum = 0;
      for (int64_t l = 0; l < p->k; l++)
        sum += widen(p->type, a[i * a_row + l * a_step]) * widen(p->type, b[j * b_col + l * b_step]);
      float before = p->beta == 0 ? 0 : (float)p->beta * widen(p->type, c[j * p->c_ld + i]);
      d[j * p->d_ld + i] = narrow(p->type, (float)p->alpha * sum + before);
    }
}

static void run_wide(const emu_product *p) {
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
  if (p->workspace_bytes > 0) use_workspace(p);
  if (emu_type_bytes(p->type) == 2)
    run_narrow(p);
  else
    run_wide(p);
  return EMU_SUCCESS;
}
