/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer updates against the formulas of torch.optim and of papers, and the flat-buffer helpers. */
#include "optimizer_testing.h"
#include <criterion/criterion.h>
#include <string.h>

enum { N = 37 };

typedef struct state {
  double p[N], m[N], v[N];
} state;

static void run_f64(int kind, bool decay) {
  state want = {0}, got = {0};
  double g[N];
  for (int i = 0; i < N; i++) want.p[i] = got.p[i] = start(i);
  for (int step = 1; step <= 5; step++) {
    zpk_update u = settings(ZPK_F64, kind, decay, step);
    for (int i = 0; i < N; i++) {
      g[i] = gradient(i, step);
      torch_step(&u, step == 1, g[i], &want.p[i], &want.m[i], &want.v[i]);
    }
    zpk_optimizer(&u, got.p, g, (void *[]){got.m, kind >= 2 ? NULL : got.v}, 0, 5); /* ranges are independent */
    zpk_optimizer(&u, got.p, g, (void *[]){got.m, kind >= 2 ? NULL : got.v}, 5, N);
  }
  for (int i = 0; i < N; i++) {
    cr_expect_float_eq(got.p[i], want.p[i], 1e-14, "kind %d element %d", kind, i);
    cr_expect_float_eq(got.m[i], want.m[i], 1e-14);
    cr_expect_float_eq(got.v[i], want.v[i], 1e-14);
  }
}

Test(kernels_optimizer, torch_semantics_f64) {
  for (int kind = 0; kind < 4; kind++) {
    run_f64(kind, true);
    run_f64(kind, false);
  }
}

Test(kernels_optimizer, f32_follows_f64) {
  for (int kind = 0; kind < 4; kind++) {
    state want = {0};
    float p[N], m[N] = {0}, v[N] = {0}, g[N];
    for (int i = 0; i < N; i++) want.p[i] = p[i] = (float)start(i);
    for (int step = 1; step <= 5; step++) {
      zpk_update u = settings(ZPK_F32, kind, true, step);
      for (int i = 0; i < N; i++) {
        g[i] = (float)gradient(i, step);
        torch_step(&u, step == 1, g[i], &want.p[i], &want.m[i], &want.v[i]);
      }
      zpk_optimizer(&u, p, g, (void *[]){m, v}, 0, N);
    }
    for (int i = 0; i < N; i++) cr_expect_float_eq(p[i], want.p[i], 2e-7, "kind %d element %d", kind, i);
  }
}

/* Every array that Adan keeps; ranges are independent. */
static void adan(zpk_dtype dtype, bool decay, double bound) {
  double want[N], kept[N][ZPK_MOMENTS] = {{0}}, wide[ZPK_MOMENTS + 2][N] = {{0}};
  float narrow[ZPK_MOMENTS + 2][N] = {{0}};
  bool f64 = dtype == ZPK_F64;
  void *array[ZPK_MOMENTS + 2];
  for (int k = 0; k < ZPK_MOMENTS + 2; k++) array[k] = f64 ? (void *)wide[k] : narrow[k];
  enum { PARAM = ZPK_MOMENTS, GRAD };
  for (int i = 0; i < N; i++) wide[PARAM][i] = narrow[PARAM][i] = (float)start(i), want[i] = narrow[PARAM][i];
  for (int step = 1; step <= 5; step++) {
    zpk_update u = settings(dtype, ZPK_ADAN, decay, step);
    for (int i = 0; i < N; i++) {
      wide[GRAD][i] = narrow[GRAD][i] = (float)gradient(i, step);
      adan_step(&u, step == 1, wide[GRAD][i], &want[i], kept[i]);
    }
    zpk_optimizer(&u, array[PARAM], array[GRAD], array, 0, 5);
    zpk_optimizer(&u, array[PARAM], array[GRAD], array, 5, N);
  }
  for (int i = 0; i < N; i++) {
    cr_expect_float_eq(f64 ? wide[PARAM][i] : narrow[PARAM][i], want[i], bound, "element %d", i);
    for (int k = 0; k < ZPK_MOMENTS; k++)
      cr_expect_float_eq(f64 ? wide[k][i] : narrow[k][i], kept[i][k], 10 * bound, "array %d of element %d", k, i);
  }
}

Test(kernels_optimizer, adan_by_the_papers_algorithm) {
  adan(ZPK_F64, true, 1e-14);
  adan(ZPK_F64, false, 1e-14);
  adan(ZPK_F32, true, 2e-7);
}

/* The first gradient follows none: with g = 0.5 the update is m / sqrt(n) = 1, and decay divides by 1 + lr wd. */
Test(kernels_optimizer, first_adan_step_by_hand) {
  zpk_update u = {.dtype = ZPK_F64,
                  .kind = ZPK_ADAN,
                  .lr = 0.1,
                  .beta1 = 0.98,
                  .beta2 = 0.92,
                  .beta3 = 0.99,
                  .weight_decay = 0.5,
                  .bias1 = 1 - 0.98,
                  .bias2 = 1 - 0.92,
                  .bias3 = 1 - 0.99,
                  .grad_scale = 1};
  double p = 2, g = 0.5, kept[ZPK_MOMENTS] = {0};
  void *array[ZPK_MOMENTS];
  for (int k = 0; k < ZPK_MOMENTS; k++) array[k] = &kept[k];
  zpk_optimizer(&u, &p, &g, array, 0, 1);
  cr_expect_float_eq(p, (2 - 0.1) / 1.05, 1e-14);
  cr_expect_float_eq(kept[ZPK_MOMENT1], 0.01, 1e-16);
  cr_expect_float_eq(kept[ZPK_MOMENT2], 0.0025, 1e-16);
  cr_expect_eq(kept[ZPK_DIFFERENCE], 0);
  cr_expect_eq(kept[ZPK_GRADIENT_BEFORE], 0.5);
}

/* Biases of gates: no state, no factor of the gradient, nothing where it is 0. */
Test(kernels_optimizer, sign) {
  static const double grad[4] = {3, -1e-9, 0, -7};
  double p[4] = {1, 2, 3, 4};
  zpk_update u = {.dtype = ZPK_F64, .kind = ZPK_SIGN, .lr = 0.25, .grad_scale = 0.5, .weight_decay = 0.1};
  zpk_optimizer(&u, p, grad, NULL, 0, 4);
  cr_expect_arr_eq(p, ((double[]){0.75, 2.25, 3, 4.25}), sizeof p);
}

/* LAMB of one tensor in two ranges, as the paper writes it. */
static void lamb(zpk_dtype dtype, bool decay, double bound) {
  double want[N], m[N] = {0}, v[N] = {0}, update[N], got[3][N], g[N];
  float(*got32)[N] = (float(*)[N])(void *)got, *g32 = (float *)(void *)g;
  memset(got, 0, sizeof got);
  for (int i = 0; i < N; i++) {
    want[i] = start(i);
    if (dtype == ZPK_F64)
      got[0][i] = want[i];
    else
      got32[0][i] = (float)want[i];
  }
  for (int step = 1; step <= 5; step++) {
    zpk_update u = settings(dtype, 4, decay, step);
    double length = 0, of_update = 0, sums[2][2];
    for (int i = 0; i < N; i++) {
      double x = gradient(i, step) * u.grad_scale;
      m[i] = u.beta1 * m[i] + (1 - u.beta1) * x;
      v[i] = u.beta2 * v[i] + (1 - u.beta2) * x * x;
      update[i] = m[i] / u.bias1 / (sqrt(v[i] / u.bias2) + u.eps) + u.weight_decay * want[i];
      length += want[i] * want[i], of_update += update[i] * update[i];
      if (dtype == ZPK_F64)
        g[i] = gradient(i, step);
      else
        g32[i] = (float)gradient(i, step);
    }
    for (int i = 0; i < N; i++) want[i] -= u.lr * sqrt(length / of_update) * update[i];
    void *p = dtype == ZPK_F64 ? (void *)got[0] : got32[0], *gm = dtype == ZPK_F64 ? (void *)got[1] : got32[1],
         *gv = dtype == ZPK_F64 ? (void *)got[2] : got32[2];
    zpk_lamb_moments(&u, p, g, gm, gv, 0, 5, sums[0]);
    zpk_lamb_moments(&u, p, g, gm, gv, 5, N, sums[1]);
    cr_expect_float_eq(sums[0][0] + sums[1][0], length, bound * length, "lengths of parameters");
    cr_expect_float_eq(sums[0][1] + sums[1][1], of_update, 100 * bound * of_update, "of updates");
    u.lr *= sqrt((sums[0][0] + sums[1][0]) / (sums[0][1] + sums[1][1]));
    zpk_lamb_apply(&u, p, gm, gv, 0, 5);
    zpk_lamb_apply(&u, p, gm, gv, 5, N);
  }
  for (int i = 0; i < N; i++)
    cr_expect_float_eq(dtype == ZPK_F64 ? got[0][i] : got32[0][i], want[i], bound, "element %d", i);
}

Test(kernels_optimizer, lamb_moves_by_the_tensors_length) {
  lamb(ZPK_F64, true, 1e-14);
  lamb(ZPK_F64, false, 1e-14);
  lamb(ZPK_F32, true, 1e-6);
}

/* a = ema a + (1 - ema) p of the new p, in any ranges; what equals the weights stays to the bit. */
static void average(zpk_dtype dtype, double bound) {
  enum { LONG = 9000, CUT = 4097 }; /* more than one piece of the cache */
  static double p[LONG], m[LONG], v[LONG], a[LONG], g[LONG], want[LONG], alone[LONG];
  float *p32 = (float *)(void *)p, *a32 = (float *)(void *)a, *g32 = (float *)(void *)g;
  bool wide = dtype == ZPK_F64;
  size_t bytes = LONG * (wide ? sizeof *p : sizeof *p32);
  memset(m, 0, sizeof m), memset(v, 0, sizeof v);
  for (int i = 0; i < LONG; i++) {
    want[i] = start(i);
    if (wide)
      p[i] = want[i];
    else
      p32[i] = (float)want[i], want[i] = p32[i];
  }
  memcpy(a, p, sizeof a);
  for (int step = 1; step <= 5; step++) {
    zpk_update u = settings(dtype, 0, true, step);
    u.ema = 0.9;
    for (int i = 0; i < LONG; i++)
      if (wide)
        g[i] = gradient(i, step);
      else
        g32[i] = (float)gradient(i, step);
    memcpy(alone, p, sizeof alone);
    if (step == 1) { /* the weights are those of the optimizer alone */
      static double m1[LONG], v1[LONG];
      memset(m1, 0, sizeof m1), memset(v1, 0, sizeof v1);
      zpk_optimizer(&u, alone, g, (void *[]){m1, v1}, 0, LONG);
    }
    zpk_optimizer_and_average(&u, p, g, (void *[]){m, v}, a, 0, CUT);
    zpk_optimizer_and_average(&u, p, g, (void *[]){m, v}, a, CUT, LONG);
    if (step == 1) cr_expect(memcmp(alone, p, bytes) == 0);
    for (int i = 0; i < LONG; i++) want[i] = 0.9 * want[i] + (1 - 0.9) * (wide ? p[i] : p32[i]);
  }
  for (int i = 0; i < LONG; i++) cr_expect_float_eq(wide ? a[i] : a32[i], want[i], bound, "element %d", i);
  zpk_update u = {.dtype = dtype, .ema = 0.999};
  memcpy(a, p, sizeof a);
  for (int step = 0; step < 100; step++) zpk_average(&u, p, a, 0, LONG);
  cr_expect(memcmp(a, p, bytes) == 0, "what equals the weights stays");
}

Test(kernels_optimizer, averages_follow_the_weights) {
  average(ZPK_F64, 1e-15);
  average(ZPK_F32, 2e-7);
}

/* Without momentum a plan has no place for m. */
static void plain_sgd(zpk_dtype dtype, double bound) {
  double want[N], p[N], g[N];
  float *p32 = (float *)(void *)p, *g32 = (float *)(void *)g;
  for (int i = 0; i < N; i++) {
    want[i] = start(i);
    if (dtype == ZPK_F64)
      p[i] = want[i];
    else
      p32[i] = (float)want[i];
  }
  for (int step = 1; step <= 5; step++) {
    zpk_update u = settings(dtype, 2, true, step);
    u.momentum = 0;
    for (int i = 0; i < N; i++) {
      double m = 0, v = 0;
      torch_step(&u, step == 1, gradient(i, step), &want[i], &m, &v);
      if (dtype == ZPK_F64)
        g[i] = gradient(i, step);
      else
        g32[i] = (float)gradient(i, step);
    }
    zpk_optimizer(&u, p, g, NULL, 0, 5);
    zpk_optimizer(&u, p, g, NULL, 5, N);
  }
  for (int i = 0; i < N; i++) cr_expect_float_eq(dtype == ZPK_F64 ? p[i] : p32[i], want[i], bound, "element %d", i);
}

Test(kernels_optimizer, sgd_without_momentum_has_no_m) {
  plain_sgd(ZPK_F64, 1e-14);
  plain_sgd(ZPK_F32, 2e-7);
}

/* AdamW's first step by hand: with g = 0.5, m / denominator is 1 up to eps, so p moves by lr and shrinks by lr * wd. */
Test(kernels_optimizer, first_adamw_step_by_hand) {
  zpk_update u = {.dtype = ZPK_F64,
                  .kind = 0,
                  .lr = 0.1,
                  .beta1 = 0.9,
                  .beta2 = 0.99,
                  .eps = 0,
                  .weight_decay = 0.5,
                  .bias1 = 0.1,
                  .bias2 = 0.01,
                  .grad_scale = 1};
  double p = 2, g = 0.5, m = 0, v = 0;
  zpk_optimizer(&u, &p, &g, (void *[]){&m, &v}, 0, 1);
  cr_expect_float_eq(p, 2 * 0.95 - 0.1, 1e-14);
  cr_expect_float_eq(m, 0.05, 1e-16);
  cr_expect_float_eq(v, 0.0025, 1e-16);
}

/* By the least eps that a training in f32 may have: weights whose gradients are 0 stay where they are, and those whose
 * squares are lost in f32 move by a few learning rates at most. */
Test(kernels_optimizer, least_eps) {
  static const int kinds[] = {ZPK_ADAMW, ZPK_ADAM, ZPK_ADAN};
  for (int k = 0; k < 3; k++)
    for (double gradient = 0; gradient < 1e-15; gradient = gradient == 0 ? 1e-30 : gradient * 10) {
      float p = 2, g = (float)gradient, moments[ZPK_MOMENTS] = {0};
      void *kept[ZPK_MOMENTS];
      for (int i = 0; i < ZPK_MOMENTS; i++) kept[i] = &moments[i];
      zpk_update u = settings(ZPK_F32, kinds[k], false, 1);
      u.lr = 0.01, u.eps = 1e-18, u.grad_scale = 1;
      u.bias2 = kinds[k] == ZPK_ADAN ? u.bias2 : 1 - (u.beta2 = 0.999);
      zpk_optimizer(&u, &p, &g, kept, 0, 1);
      cr_expect(gradient == 0 ? p == 2 : fabs((double)p - 2) < 5 * u.lr, "kind %d, gradient %g: %g", kinds[k], gradient,
                (double)p);
    }
}

Test(kernels_flat, sum_of_squares) {
  enum { COUNT = 3 * 4096 + 77 };
  static float x[COUNT];
  static double y[COUNT];
  double want = 0;
  for (int i = 0; i < COUNT; i++) {
    x[i] = (float)sin(i);
    y[i] = x[i];
    want += y[i] * y[i];
  }
  double whole = zpk_sum_squares(ZPK_F32, x, 0, COUNT);
  cr_expect_float_eq(whole, want, 1e-9);
  cr_expect_eq(whole, zpk_sum_squares(ZPK_F64, y, 0, COUNT));
  double blocks = 0;
  for (int at = 0; at < COUNT; at += 4096)
    blocks += zpk_sum_squares(ZPK_F32, x, at, at + 4096 < COUNT ? at + 4096 : COUNT);
  cr_expect_eq(whole, blocks, "block by block gives the same bits");
  cr_expect_eq(zpk_sum_squares(ZPK_F32, x, 5, 5), 0);
  cr_expect_float_eq(zpk_sum_squares(ZPK_F32, x, 4090, 4100) - zpk_sum_squares(ZPK_F32, x, 4090, 4097), /* across */
                     zpk_sum_squares(ZPK_F32, x, 4097, 4100), 1e-14);
}

Test(kernels_flat, sums) {
  float x[N], y[N];
  double z[N];
  for (int i = 0; i < N; i++) x[i] = 2.5f, y[i] = (float)i, z[i] = -1;
  zpk_sum_parts(ZPK_F32, y, (const void *[]){y, x}, 2, 0, N);
  zpk_sum_parts(ZPK_F64, z, (const void *[]){z, z}, 2, 0, 0);
  for (int i = 0; i < N; i++) {
    cr_expect_eq(y[i], (float)i + 2.5f);
    cr_expect_eq(z[i], -1);
  }
}
