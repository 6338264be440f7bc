/* SPDX-License-Identifier: Apache-2.0 */
/* Muon on CPU ranks against the formula in f64: matrices that are wide, tall and square, all dtypes, with an average;
 * what lies alongside a matrix stays. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "muon.h"
#include "optimizer.h"
#include "device.h"
#include "narrow_testing.h"

enum { MOST = 96, GAP = 8, COUNT = MOST * MOST + 2 * GAP };

static double noise(int64_t i) { return sin((double)i * 12.9898 + 1) + 0.25 * cos((double)(i % 17)); }

/* ---- the formula ---- */

/* x [rows, cols] = a x + (b G + c G G) x, G = x x', whatever is longer: the odd polynomial of its singular values. */
static void newton_schulz(double *x, int rows, int cols) {
  static double gram[MOST * MOST], square[MOST * MOST], moved[MOST * MOST];
  for (int i = 0; i < rows; i++)
    for (int k = 0; k < rows; k++) {
      gram[i * rows + k] = 0;
      for (int j = 0; j < cols; j++) gram[i * rows + k] += x[i * cols + j] * x[k * cols + j];
    }
  for (int i = 0; i < rows; i++)
    for (int k = 0; k < rows; k++) {
      square[i * rows + k] = 0;
      for (int j = 0; j < rows; j++) square[i * rows + k] += gram[i * rows + j] * gram[j * rows + k];
    }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < cols; j++) {
      moved[i * cols + j] = 3.4445 * x[i * cols + j];
      for (int k = 0; k < rows; k++)
        moved[i * cols + j] += (-4.7750 * gram[i * rows + k] + 2.0315 * square[i * rows + k]) * x[k * cols + j];
    }
  memcpy(x, moved, sizeof *x * (size_t)(rows * cols));
}

typedef struct wanted {
  double w[MOST * MOST], m[MOST * MOST], average[MOST * MOST];
} wanted;

static void step(wanted *at, const zpk_update *u, const double *grad, int rows, int cols) {
  static double x[MOST * MOST];
  double length = 0, scale = 0.2 * sqrt(rows > cols ? rows : cols);
  for (int i = 0; i < rows * cols; i++) {
    double g = grad[i] * u->grad_scale;
    at->m[i] = u->momentum * at->m[i] + (1 - u->momentum) * g;
    x[i] = (1 - u->momentum) * g + u->momentum * at->m[i];
    length += x[i] * x[i];
  }
  for (int i = 0; i < rows * cols; i++) x[i] /= sqrt(length);
  for (int i = 0; i < 5; i++) newton_schulz(x, rows, cols);
  for (int i = 0; i < rows * cols; i++) {
    at->w[i] -= u->lr * (u->weight_decay * at->w[i] + scale * x[i]);
    at->average[i] = 0.9 * at->average[i] + (1 - 0.9) * at->w[i];
  }
}

/* ---- the runtime ---- */

static zpr_program program;
static zpr_stage stage;
static zpr_run run;
static zpr_param param;

/* Flat buffers of COUNT elements: parameters, then f32 or f64: gradients, masters, both moments, averages; then
 * scratch. */
static zpr *open_matrix(zpr *c, zpk_dtype dtype, int rows, int cols, int threads) {
  int64_t size = zpk_bytes(dtype), real = zpk_real_bytes(dtype), n = rows < cols ? rows : cols, at = 0;
  param = (zpr_param){.name = "w",
                      .rank = 2,
                      .shape = {rows, cols},
                      .split_dim = -1,
                      .outer = 1,
                      .units = 1,
                      .offset = GAP,
                      .elements = rows * cols,
                      .recipe = {0.5, 0.1},
                      .orthogonal = true};
  run = (zpr_run){.segment = "h", .count = 1, .stride = COUNT, .n_params = 1, .params = &param};
  stage = (zpr_stage){.flat = {COUNT}, .shard = {COUNT}, .n_runs = 1, .runs = &run};
  int64_t *const places[] = {&stage.params,  &stage.grads,   &stage.master,
                             &stage.moment1, &stage.moment2, &stage.average};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    *places[i] = at;
    at += (COUNT * (i < 1 ? size : real) + 255) / 256 * 256;
  }
  if (!zpk_is_narrow(dtype)) stage.master = -1;
  stage.scratch = at;
  stage.scratch_bytes = (rows * cols * real + 255) / 256 * 256 + (n * n * real + 255) / 256 * 256 + n * n * real;
  stage.products = (at + stage.scratch_bytes + 255) / 256 * 256;
  stage.arena_bytes = stage.products + ZPR_MAX_WORKERS * ZPR_PRODUCT_BYTES;
  program = (zpr_program){.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1, .optimizer = ZPR_MUON, .ema = 0.9};
  program.stages = &stage;
  zpr_options options = zpr_default_options;
  options.threads = threads;
  int argc = 0;
  char **argv = NULL;
  zpr_open(c, &program, &options, &argc, &argv);
  return c;
}

/* Nothing is updated element by element. */
static zpr_block_list no_blocks;
static const zpr_update_set nothing_else = {.here = &no_blocks};

static double unit_of(zpk_dtype dtype) { return dtype == ZPK_F64 ? 1e-12 : 2e-5; }

static void compare(zpk_dtype dtype, const void *got, const double *want, int n, double bound, const char *what) {
  double most = 0;
  for (int i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
  for (int i = 0; i < n; i++)
    cr_assert_float_eq(get_as(dtype, got, i), want[i], bound * most, "%s %d: %g, not %g", what, i,
                       get_as(dtype, got, i), want[i]);
}

static void fill(zpk_dtype dtype, void *to, double value) {
  for (int i = 0; i < COUNT; i++) put_as(dtype, to, i, value);
}

static void check(zpk_dtype dtype, int rows, int cols, int threads) {
  static wanted want;
  static double grad[MOST * MOST];
  zpr context, *c = open_matrix(&context, dtype, rows, cols, threads);
  zpk_dtype real = zpk_is_narrow(dtype) ? ZPK_F32 : dtype;
  int n = rows * cols;
  char *params = zpr_at(c, stage.params), *grads = zpr_at(c, stage.grads), *m = zpr_at(c, stage.moment1),
       *average = zpr_at(c, stage.average), *exact = zpk_is_narrow(dtype) ? zpr_at(c, stage.master) : params;
  fill(dtype, params, 7), fill(real, grads, 7), fill(real, exact, 7), fill(real, m, 7), fill(real, average, 7);
  int64_t wide = GAP * zpk_bytes(real), narrow = GAP * zpk_bytes(dtype);
  for (int i = 0; i < n; i++) {
    put_as(real, exact + wide, i, noise(i)), put_as(real, m + wide, i, 0), put_as(real, average + wide, i, noise(i));
    want.w[i] = want.average[i] = get_as(real, exact + wide, i), want.m[i] = 0;
  }
  void *muon = zpr_muon_row.open(c, &nothing_else);
  for (int s = 1; s <= 3; s++) {
    zpk_update u = {.dtype = dtype, .lr = 0.02, .momentum = 0.9, .grad_scale = 0.5, .ema = 0.9};
    for (int i = 0; i < n; i++) {
      put_as(real, grads + wide, i, noise(i + 1000 * s));
      grad[i] = get_as(real, grads + wide, i);
    }
    zpk_update own = u;
    own.lr *= 0.5, own.weight_decay = 0.1; /* those of the parameter */
    step(&want, &own, grad, rows, cols);
    zpr_muon_row.update(c, muon, &nothing_else, &u, s);
  }
  compare(real, exact + wide, want.w, n, unit_of(dtype), "weight");
  compare(real, m + wide, want.m, n, unit_of(dtype), "momentum");
  compare(real, average + wide, want.average, n, unit_of(dtype), "average");
  if (zpk_is_narrow(dtype)) compare(dtype, params + narrow, want.w, n, 2 * narrow_unit(dtype), "rounded weight");
  for (int i = 0; i < COUNT; i++) {
    if (i >= GAP && i < GAP + n) continue;
    cr_assert_eq(get_as(dtype, params, i), 7, "alongside the matrix");
    cr_assert_eq(get_as(real, m, i), 7);
    cr_assert_eq(get_as(real, average, i), 7);
  }
  zpr_muon_row.close(muon);
  zpr_close(c);
}

static void check_shapes(zpk_dtype dtype, int threads) {
  check(dtype, 24, 80, threads);
  check(dtype, 80, 24, threads);
  check(dtype, 33, 33, threads);
  check(dtype, 1, 5, threads);
  check(dtype, 96, 96, threads);
}

Test(muon, f64) { check_shapes(ZPK_F64, 1); }
Test(muon, f64_threads) { check_shapes(ZPK_F64, 3); }
Test(muon, f32) { check_shapes(ZPK_F32, 1); }
Test(muon, bf16) { check_shapes(ZPK_BF16, 1); }
Test(muon, f16) { check_shapes(ZPK_F16, 2); }

/* A gradient of nothing moves nothing, decay aside. */
Test(muon, nothing_gives_nothing) {
  zpr context, *c = open_matrix(&context, ZPK_F64, 4, 6, 1);
  double *w = (double *)zpr_at(c, stage.params) + GAP, *g = (double *)zpr_at(c, stage.grads) + GAP,
         *m = (double *)zpr_at(c, stage.moment1) + GAP;
  for (int i = 0; i < 24; i++) w[i] = i, g[i] = m[i] = 0;
  void *muon = zpr_muon_row.open(c, &nothing_else);
  zpk_update u = {.dtype = ZPK_F64, .lr = 0.1, .momentum = 0.9, .grad_scale = 1};
  zpr_muon_row.update(c, muon, &nothing_else, &u, 1);
  for (int i = 0; i < 24; i++) cr_assert_float_eq(w[i], i * (1 - 0.1 * 0.5 * 0.1), 1e-14);
  zpr_muon_row.close(muon);
  zpr_close(c);
}
