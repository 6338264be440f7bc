/* SPDX-License-Identifier: Apache-2.0 */
/* What multiplies matrices on this processor, and how fast: one product of GPT-2's size on one thread, for each dtype
 * that a trainer may have. Rows: products_f32, whose `how` names library and kernels. */
#include "calibrate.h"
#include <products.h>
#include <blas.h>

enum { M = 256, N = 2304, K = 768 };

typedef struct product {
  zpr *c;
  char *a, *b, *y;
} product;

static void multiply(void *arg) {
  const product *p = arg;
  zpr_gemm(p->c, false, true, M, N, K, p->a, K, p->b, K, false, p->y, N);
}

static void measure_one(zpk_dtype dtype, const char *name, double budget_s) {
  zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1};
  zpr c;
  char row[32], kernels[128];
  open_rank(&c, &program, 1);
  zpr_blas_describe(dtype, kernels, sizeof kernels);
  int64_t size = zpk_bytes(dtype), bytes = (M * K + N * K + M * N) * size;
  product p = {.c = &c, .a = touched(bytes)};
  p.b = p.a + M * K * size;
  p.y = p.b + N * K * size;
  snprintf(row, sizeof row, "products_%s", name);
  put_row(row, 2.0 * M * N * K / time_call(multiply, &p, budget_s), "FLOP/s", "%s, %d x %d x %d on one thread", kernels,
          M, N, K);
  give_back(p.a, bytes);
  close_rank(&c);
}

bool multiplies_bf16(void) {
  return zpr_choose_products(zpr_processor_features(), zpr_openblas(), zpr_onednn(), NULL).bf16 != NULL;
}

void measure_libraries(double budget_s) {
  zpr_products use = zpr_choose_products(zpr_processor_features(), zpr_openblas(), zpr_onednn(), NULL);
  if (use.f32) {
    measure_one(ZPK_F32, "f32", budget_s / 4);
    measure_one(ZPK_BF16, "bf16", budget_s / 4);
    measure_one(ZPK_F16, "f16", budget_s / 4);
  }
  if (use.f64) measure_one(ZPK_F64, "f64", budget_s / 4);
}

void show_libraries(double budget_s) {
  static const char *const names[] = {"warning_f32", "warning_f64"};
  unsigned features = zpr_processor_features();
  zpr_products use = zpr_choose_products(features, zpr_openblas(), zpr_onednn(), NULL);
  const zpr_library *libraries[] = {use.f32, use.f64};
  put_row("processor", 1, "1", "%s", zpr_features_text(features));
  measure_libraries(budget_s);
  for (int i = 0; i < 2; i++) {
    char warning[320] = "";
    if (libraries[i] && (i == 0 || libraries[i] != libraries[0]))
      zpr_narrow_kernels(features, libraries[i], warning, sizeof warning);
    if (warning[0]) put_row(names[i], 1, "1", "%s", warning);
  }
}
