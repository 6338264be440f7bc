/* SPDX-License-Identifier: Apache-2.0 */
/* Device kernels that update weights, compiled for the host: against the formulas of torch.optim in f64 and, of LAMB
 * and Muon, against the CPU kernels. */
#include "device_kernels.h"
#include "narrow_testing.h"
#include "optimizer_testing.h"
#include <string.h>

enum { DTYPES = ZPK_DTYPES };
static device_texts texts = {.text =
                                 "#include \"zpd_flat.cuh\"\n#include \"zpd_step.cuh\"\n#include \"zpd_muon.cuh\"\n"};

static void close_texts(void) { device_texts_close(&texts); }
TestSuite(kernels_cuda_optimizer, .fini = close_texts);

static void put(zpk_dtype dtype, void *x, int64_t i, double value) { put_as(dtype, x, i, value); }
static double get(zpk_dtype dtype, const void *x, int64_t i) { return get_as(dtype, x, i); }

static void launch(zpk_dtype dtype, const char *name, const void *args, unsigned blocks) {
  device_launch(device_text(&texts, dtype), name, args, blocks, 1, 1, ZPD_FLAT_THREADS);
}

static zpd_updates device_update(const zpk_update *u, const zpd_step *step) {
  return (zpd_updates){.kind = u->kind,
                       .lr = u->lr,
                       .beta1 = u->beta1,
                       .beta2 = u->beta2,
                       .eps = u->eps,
                       .beta3 = u->beta3,
                       .momentum = u->momentum,
                       .ema = 0.9,
                       .step = step};
}

enum { N = 4500, STEPS = 5 };

/* Steps of the device against f64 formulas, over one segment or over three, one of which begins between packs and one
 * of which takes two blocks. SGD and Lion have no second moment, SGD without momentum (PLAIN_SGD) no first one. */
enum { SGD = 2, LION, PLAIN_SGD, ADAN };
static void optimizer(zpk_dtype dtype, int kind, bool decay) {
  static double want_p[N], want[N][ZPK_MOMENTS], want_a[N];
  /* on the stack, as GPUs see it (tests/gpu/kernels) */
  _Alignas(16) double p[N], state[ZPK_MOMENTS][N], g[N], average[N];
  int rule = kind == PLAIN_SGD ? ZPK_SGD : kind == ADAN ? ZPK_ADAN : kind;
  double bound = dtype == ZPK_F64 ? 1e-14 : 2e-7;
  zpk_dtype real = zpk_is_narrow(dtype) ? ZPK_F32 : dtype;
  _Alignas(16) uint16_t weight[N];
  uint16_t rounded[N];
  memset(want, 0, sizeof want), memset(state, 0, sizeof state);
  for (int i = 0; i < N; i++) put(real, p, i, want_p[i] = start(i)), put(real, average, i, want_a[i] = start(i));
  for (int step = 1; step <= STEPS; step++) {
    zpk_update u = settings(dtype, rule, decay, step);
    if (kind == PLAIN_SGD) u.momentum = 0;
    for (int i = 0; i < N; i++) {
      put(real, g, i, gradient(i, step));
      optimizer_step(&u, step == 1, zpk_is_narrow(dtype) ? get(real, g, i) : gradient(i, step), &want_p[i], want[i]);
      want_a[i] = 0.9 * want_a[i] + (1 - 0.9) * want_p[i];
    }
    const zpd_step decided = {
        .grad_scale = u.grad_scale, .bias1 = u.bias1, .bias2 = u.bias2, .bias3 = u.bias3, .applies = 1};
    const double wd = u.weight_decay;
    const zpd_segment segments[3] = {{.count = 101, .lr_factor = 1, .weight_decay = wd},
                                     {.begin = 101, .count = N - 111, .first = 1, .lr_factor = 1, .weight_decay = wd},
                                     {.begin = N - 10, .count = 10, .first = 3, .lr_factor = 1, .weight_decay = wd}};
    zpd_updates a = device_update(&u, &decided);
    a.params = zpk_is_narrow(dtype) ? (void *)weight : p, a.master = zpk_is_narrow(dtype) ? p : NULL, a.grads = g;
    for (int k = 0; k < ZPK_MOMENTS; k++) a.moment[k] = kind != PLAIN_SGD && rule_keeps(rule, k) ? state[k] : NULL;
    a.average = average;
    a.one = (zpd_segment){.count = N, .lr_factor = 1, .weight_decay = wd}, a.blocks = 2;
    if (step % 2) a.segments = segments, a.n = 3, a.blocks = 4;
    launch(dtype, "zpd_optimizer", &a, 1 + (unsigned)step % 2);
  }
  for (int i = 0; i < N; i++) {
    cr_expect_float_eq(get(real, p, i), want_p[i], bound, "kind %d element %d", kind, i);
    cr_expect_float_eq(get(real, average, i), want_a[i], bound, "kind %d: average %d", kind, i);
    for (int k = 0; k < ZPK_MOMENTS; k++)
      if (kind != PLAIN_SGD || k != ZPK_MOMENT1)
        cr_expect_float_eq(get(real, state[k], i), want[i][k], 10 * bound, "kind %d: array %d of %d", kind, k, i);
  }
  if (!zpk_is_narrow(dtype)) return;
  zpk_round(dtype, (const float *)(const void *)p, rounded, N);
  cr_expect_arr_eq(weight, rounded, sizeof weight, "kind %d: weights are the rounded master copy", kind);
}

/* A segment that moves by the sign of its gradient, whatever the optimizer, alongside one that does not. */
Test(kernels_cuda_optimizer, sign) {
  _Alignas(16) double p[8] = {1, 2, 3, 4, 1, 2, 3, 4}, m[8] = {0}, v[8] = {0};
  _Alignas(16) double g[8] = {3, -1e-9, 0, -7, 3, -1e-9, 0, -7};
  zpk_update u = settings(ZPK_F64, 0, false, 1);
  const zpd_step decided = {.grad_scale = 0.5, .bias1 = u.bias1, .bias2 = u.bias2, .applies = 1};
  const zpd_segment segments[2] = {{.count = 4, .lr_factor = 1, .weight_decay = 0.1, .sign_rate = 0.25},
                                   {.begin = 4, .count = 4, .first = 1, .lr_factor = 1}};
  zpd_updates a = device_update(&u, &decided);
  a.params = p, a.grads = g, a.moment[0] = m, a.moment[1] = v, a.segments = segments, a.n = 2, a.blocks = 2;
  launch(ZPK_F64, "zpd_optimizer", &a, 1);
  for (int i = 0; i < 4; i++) {
    cr_expect_eq(p[i], ((double[]){0.75, 2.25, 3, 4.25})[i], "element %d", i);
    cr_expect_eq(m[i], 0);
    cr_expect_eq(v[i], 0);
  }
  cr_expect(m[4] != 0 && p[4] != 1 && p[4] != 0.75);
}

/* LAMB against the CPU's kernels: three segments as above, each with a ratio of its own. */
static void lamb(zpk_dtype dtype) {
  enum { SEGMENTS = 3 };
  zpk_dtype real = zpk_is_narrow(dtype) ? ZPK_F32 : dtype;
  _Alignas(16) double p[N], m[N], v[N], g[N], want_p[N], want_m[N], want_v[N];
  _Alignas(16) uint16_t weight[N];
  double sums[2 * SEGMENTS], want[2 * SEGMENTS], ratio[SEGMENTS] = {0.5, 2, 1}, bound = dtype == ZPK_F64 ? 1e-13 : 2e-6;
  zpk_update u = settings(dtype, 4, true, 2);
  const zpd_step decided = {.grad_scale = u.grad_scale, .bias1 = u.bias1, .bias2 = u.bias2, .applies = 1};
  zpd_segment segments[SEGMENTS] = {
      {.count = 101}, {.begin = 101, .count = N - 111, .first = 1}, {.begin = N - 10, .count = 10, .first = 2}};
  for (int i = 0; i < N; i++) {
    put(real, p, i, start(i)), put(real, m, i, gradient(i, 3)), put(real, v, i, 0.1 + fabs(gradient(i, 4)));
    put(real, g, i, gradient(i, 1));
  }
  memcpy(want_p, p, sizeof p), memcpy(want_m, m, sizeof m), memcpy(want_v, v, sizeof v);
  zpd_updates a = device_update(&u, &decided);
  a.params = zpk_is_narrow(dtype) ? (void *)weight : p, a.master = zpk_is_narrow(dtype) ? p : NULL, a.grads = g;
  a.moment[0] = m, a.moment[1] = v, a.segments = segments, a.n = SEGMENTS, a.blocks = SEGMENTS, a.sums = sums;
  for (int s = 0; s < SEGMENTS; s++) {
    segments[s].lr_factor = s + 1, segments[s].weight_decay = 0.1 * s;
    zpk_update own = u;
    own.lr *= segments[s].lr_factor, own.weight_decay = segments[s].weight_decay;
    int64_t begin = segments[s].begin, end = begin + segments[s].count;
    zpk_lamb_moments(&own, want_p, g, want_m, want_v, begin, end, &want[2 * s]);
    own.lr *= ratio[s];
    zpk_lamb_apply(&own, want_p, want_m, want_v, begin, end);
  }
  launch(dtype, "zpd_lamb_moments", &a, SEGMENTS);
  for (int i = 0; i < 2 * SEGMENTS; i++) cr_expect_float_eq(sums[i], want[i], bound * want[i], "sum %d", i);
  a.ratios = ratio, segments[2].first = 3, a.blocks = 4;
  launch(dtype, "zpd_optimizer", &a, 2);
  for (int i = 0; i < N; i++) {
    cr_expect_float_eq(get(real, p, i), get(real, want_p, i), bound, "element %d", i);
    cr_expect_float_eq(get(real, m, i), get(real, want_m, i), bound);
    cr_expect_float_eq(get(real, v, i), get(real, want_v, i), bound);
  }
}

Test(kernels_cuda_optimizer, lamb) {
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE) lamb((zpk_dtype)dtype);
}

/* Muon alongside its products against the CPU's kernels: the length by three blocks' sums, squares, weights, an
 * average. */
static void muon(zpk_dtype dtype) {
  enum { SIDE = 60, BLOCKS = 3 };
  zpk_dtype real = zpk_is_narrow(dtype) ? ZPK_F32 : dtype;
  _Alignas(16) double p[N], m[N], x[N], y[N], g[N], average[N], want_p[N], want_m[N], want_x[N], want_y[N], want_a[N];
  _Alignas(16) uint16_t weight[N];
  uint16_t rounded[N];
  double sums[BLOCKS], want = 0, bound = dtype == ZPK_F64 ? 1e-14 : 3e-7;
  zpk_update u = settings(dtype, 0, true, 2);
  u.ema = 0.9;
  for (int i = 0; i < N; i++) {
    put(real, p, i, start(i)), put(real, m, i, gradient(i, 3)), put(real, average, i, start(i + 1));
    put(real, g, i, gradient(i, 1));
  }
  memcpy(want_p, p, sizeof p), memcpy(want_m, m, sizeof m), memcpy(want_a, average, sizeof average);
  const zpd_muon_update first = {
      .momentum = u.momentum, .grad_scale = u.grad_scale, .grad = g, .m = m, .x = x, .count = N};
  const zpd_muon_length length = {.x = x, .sums = sums, .count = N};
  const zpd_muon_mixture scale = {.x = x, .y = y, .count = N, .sums = sums, .n_sums = BLOCKS, .least = 1e-7};
  launch(dtype, "zpd_muon_momentum", &first, 2);
  zpk_muon_momentum(&u, g, want_m, want_x, 0, N);
  launch(dtype, "zpd_muon_squares", &length, BLOCKS);
  want = zpk_muon_squares(dtype, want_x, 0, N);
  cr_expect_float_eq(sums[0] + sums[1] + sums[2], want, 10 * bound * want);
  launch(dtype, "zpd_muon_mix", &scale, 2);
  zpk_muon_scale(dtype, 1 / sqrt(want), want_x, want_y, 0, N);
  for (int i = 0; i < N; i++) {
    cr_expect_float_eq(get(real, m, i), get(real, want_m, i), 10 * bound, "momentum %d", i);
    cr_expect_float_eq(get(real, y, i), get(real, want_y, i), bound, "scaled %d", i);
  }
  const zpd_muon_weights last = {.lr = u.lr,
                                 .weight_decay = 0.1,
                                 .scale = 3,
                                 .ema = 0.9,
                                 .param = p,
                                 .weight = zpk_is_narrow(dtype) ? weight : NULL,
                                 .average = average,
                                 .x = y,
                                 .count = N};
  launch(dtype, "zpd_muon_apply", &last, 2);
  zpk_muon_apply(&u, want_p, y, 3, 0, N);
  zpk_average(&u, want_p, want_a, 0, N);
  for (int i = 0; i < N; i++) {
    cr_expect_float_eq(get(real, p, i), get(real, want_p, i), bound, "weight %d", i);
    cr_expect_float_eq(get(real, average, i), get(real, want_a, i), bound, "average %d", i);
  }
  if (zpk_is_narrow(dtype)) zpk_round(dtype, (const float *)(const void *)p, rounded, N);
  if (zpk_is_narrow(dtype)) cr_expect_arr_eq(weight, rounded, sizeof weight);
  const zpd_muon_mixture square = {.x = x, .y = x, .count = SIDE * SIDE, .n = SIDE, .factor = 2, .diagonal = -5};
  launch(dtype, "zpd_muon_mix", &square, 1);
  zpk_muon_scale(dtype, 2, want_x, want_y, 0, SIDE * SIDE);
  zpk_muon_diagonal(dtype, -5, want_y, SIDE);
  for (int i = 0; i < SIDE * SIDE; i++)
    cr_expect_float_eq(get(real, x, i), get(real, want_y, i), 20 * bound, "square %d", i);
  const zpd_muon_blocks blocks = {.from = x, .to = y, .blocks = 7, .width = 5, .from_stride = 11, .to_stride = 6};
  launch(dtype, "zpd_muon_place", &blocks, 2);
  for (int i = 0; i < 7 * 5; i++)
    cr_expect_eq(get(real, y, i / 5 * 6 + i % 5), get(real, x, i / 5 * 11 + i % 5), "block %d", i / 5);
  const zpd_muon_mixture nothing = {.x = y, .y = y, .count = N, .sums = (double[]){0, 0}, .n_sums = 2, .least = 0.5};
  memcpy(want_y, y, sizeof y);
  launch(dtype, "zpd_muon_mix", &nothing, 1);
  for (int i = 0; i < N; i++)
    cr_expect_float_eq(get(real, y, i), 2 * get(real, want_y, i), bound, "a length of nothing");
}

Test(kernels_cuda_optimizer, muon) {
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE) muon((zpk_dtype)dtype);
}

/* The other offsets of a segment, and a step that does not apply. */
Test(kernels_cuda_optimizer, optimizer_finds_its_elements) {
  double p[40], m[40] = {0}, g[40];
  zpk_update u = settings(ZPK_F64, SGD, false, 1);
  zpd_step decided = {.grad_scale = 1, .applies = 0};
  zpd_updates a = device_update(&u, &decided);
  for (int i = 0; i < 40; i++) p[i] = 0, g[i] = i;
  a.lr = 2, a.momentum = 0;
  a.params = p, a.grads = g, a.moment[0] = m;
  a.one = (zpd_segment){.begin = 3, .count = 5, .to_params = 20, .to_state = 10, .lr_factor = 0.5}, a.blocks = 1;
  launch(ZPK_F64, "zpd_optimizer", &a, 1);
  for (int i = 0; i < 40; i++) cr_expect(p[i] == 0 && m[i] == 0, "element %d", i);
  decided.applies = 1;
  launch(ZPK_F64, "zpd_optimizer", &a, 1);
  for (int i = 0; i < 40; i++) {
    cr_expect_eq(p[i], i >= 23 && i < 28 ? -(i - 20) : 0, "element %d", i);
    cr_expect_eq(m[i], i >= 13 && i < 18 ? i - 10 : 0, "element %d", i);
  }
}

Test(kernels_cuda_optimizer, optimizer) {
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (int kind = 0; kind <= ADAN; kind++) {
      optimizer((zpk_dtype)dtype, kind, true);
      optimizer((zpk_dtype)dtype, kind, false);
    }
}
