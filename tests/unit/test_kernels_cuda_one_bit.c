/* SPDX-License-Identifier: Apache-2.0 */
/* Device kernels of 1-bit Adam, compiled for the host, against those of CPU ranks. Values are few binary digits, so
 * that sums are exact in any order: signs, scales and errors must be equal to the bit. */
#include "device_kernels.h"
#include <math.h>
#include <string.h>

static const char text[] = "#include \"zpd_one_bit.cuh\"\n"
                           "#include \"zpd_one_bit_lamb.cuh\"\n"
                           "#include \"zpd_one_bit_local.cuh\"\n";
enum { REALS = 2, DTYPES = 4, BLOCKS = 21, COUNT = BLOCKS * ZPK_SIGNS, RANKS = 3, RECORD = BLOCKS * ZPK_SIGNS_BYTES };
static device_texts texts = {.text = text};
static void close_texts(void) { device_texts_close(&texts); }
TestSuite(kernels_cuda_one_bit, .fini = close_texts);

static void put(zpk_dtype dtype, void *x, int64_t i, double value) {
  float narrow = (float)value;
  if (dtype == ZPK_F64)
    ((double *)x)[i] = value;
  else if (zpk_is_narrow(dtype))
    zpk_round(dtype, &narrow, (uint16_t *)x + i, 1);
  else
    ((float *)x)[i] = narrow;
}

/* Multiples of 1/256 in [-1, 1), or in [0, 1) with every fifth 0. One block has zeros alone. */
static void *numbers(zpk_dtype dtype, int seed, bool variance) {
  void *x = calloc(COUNT, (size_t)zpk_bytes(dtype));
  for (int64_t i = 0; i < COUNT; i++) {
    double u = zpk_philox_uniform(9, 0, 0, (uint64_t)seed, 0, (uint64_t)i);
    if (i / ZPK_SIGNS == 7 && variance) continue;
    put(dtype, x, i, variance ? (i % 5 == 0 ? 0 : floor(u * 256 + 1) / 256) : floor(u * 512) / 256 - 1);
  }
  return x;
}

static void *copy_of(const void *x, int64_t bytes) {
  void *y = malloc((size_t)bytes);
  return memcpy(y, x, (size_t)bytes);
}

static void expect_same(void *got, void *want, int64_t bytes, const char *what, zpk_dtype dtype) {
  cr_expect_arr_eq(got, want, (size_t)bytes, "%s, f%d", what, dtype == ZPK_F64 ? 64 : 32);
}

static void check_signs(zpk_dtype dtype, int64_t grid) {
  int64_t bytes = COUNT * zpk_bytes(dtype);
  void *m = numbers(dtype, 1, false), *v = numbers(dtype, 2, true);
  float *error = numbers(ZPK_F32, 3, false), *want_error = copy_of(error, COUNT * 4);
  char records[RANKS * RECORD], want[RECORD], record[RECORD];
  memset(record, 0x5a, sizeof record);
  zpk_pack_signs(dtype, m, v, want_error, zpk_signs_of(want, BLOCKS, 0), 0, BLOCKS);
  zpd_signs a = {.m = m, .v = v, .error = error, .record = record, .blocks = BLOCKS, .here = BLOCKS};
  device_launch(device_text(&texts, dtype), "zpd_pack_signs", &a, grid, 1, 1, ZPD_FLAT_THREADS);
  expect_same(record, want, RECORD, "record", dtype);
  expect_same(error, want_error, COUNT * 4, "worker's error", dtype);

  for (int r = 0; r < RANKS; r++) { /* of other momenta, and scales that sums keep exact */
    void *other = numbers(dtype, 10 + r, false);
    float *nothing = calloc(COUNT, sizeof *nothing);
    zpk_signs to = zpk_signs_of(records, BLOCKS, r);
    zpk_pack_signs(dtype, other, v, nothing, to, 0, BLOCKS);
    for (int b = 0; b < BLOCKS; b++) to.scale[b] = (float)(b + r + 1) / 32 * 3;
    free(other), free(nothing);
  }
  zpk_average_signs(dtype, RANKS, records, BLOCKS, v, want_error, zpk_signs_of(want, BLOCKS, 0), 0, BLOCKS);
  a.records = records, a.n = RANKS;
  device_launch(device_text(&texts, dtype), "zpd_average_signs", &a, grid, 1, 1, ZPD_FLAT_THREADS);
  expect_same(record, want, 8 * BLOCKS, "signs of the mean", dtype);
  for (int b = 0; b < BLOCKS; b++) {
    float got = zpk_signs_of(record, BLOCKS, 0).scale[b], should = zpk_signs_of(want, BLOCKS, 0).scale[b];
    cr_expect(fabsf(got - should) <= 1e-6f * should, "scale of block %d: %g, %g", b, (double)got, (double)should);
  }

  void *got_m = copy_of(m, bytes);
  zpk_unpack_signs(dtype, zpk_signs_of(want, BLOCKS, 0), v, m, 0, BLOCKS);
  a.records = want, a.m = got_m;
  device_launch(device_text(&texts, dtype), "zpd_unpack_signs", &a, grid, 1, 1, ZPD_FLAT_THREADS);
  expect_same(got_m, m, bytes, "momentum", dtype);
  free(m), free(v), free(error), free(want_error), free(got_m);
}

/* Blocks of a record after `here` belong to somebody else. */
Test(kernels_cuda_one_bit, blocks_that_are_elsewhere) {
  enum { HERE = 9 };
  void *m = numbers(ZPK_F32, 1, false), *v = numbers(ZPK_F32, 2, true);
  float *error = numbers(ZPK_F32, 3, false), *want_error = copy_of(error, COUNT * 4);
  char record[RECORD], want[RECORD];
  memset(record, 0x5a, sizeof record), memset(want, 0x5a, sizeof want);
  zpk_pack_signs(ZPK_F32, m, v, want_error, zpk_signs_of(want, BLOCKS, 0), 0, HERE);
  zpd_signs a = {.m = m, .v = v, .error = error, .record = record, .blocks = BLOCKS, .here = HERE};
  device_launch(device_text(&texts, ZPK_F32), "zpd_pack_signs", &a, 2, 1, 1, ZPD_FLAT_THREADS);
  expect_same(record, want, RECORD, "record", ZPK_F32);
  expect_same(error, want_error, COUNT * 4, "error", ZPK_F32);
  void *got_m = copy_of(m, COUNT * 4);
  zpk_unpack_signs(ZPK_F32, zpk_signs_of(want, BLOCKS, 0), v, m, 0, HERE);
  a.records = want, a.m = got_m;
  device_launch(device_text(&texts, ZPK_F32), "zpd_unpack_signs", &a, 2, 1, 1, ZPD_FLAT_THREADS);
  expect_same(got_m, m, COUNT * 4, "momentum", ZPK_F32);
  free(m), free(v), free(error), free(want_error), free(got_m);
}

Test(kernels_cuda_one_bit, signs) {
  for (int dtype = FIRST_DTYPE; dtype < REALS; dtype += NEXT_DTYPE)
    for (int grid = 1; grid <= 3; grid++) check_signs((zpk_dtype)dtype, grid);
}

static void expect_near(zpk_dtype dtype, const void *got, const void *want, const char *what) {
  for (int64_t i = 0; i < COUNT; i++) {
    double x = dtype == ZPK_F64 ? ((const double *)got)[i] : (double)((const float *)got)[i];
    double y = dtype == ZPK_F64 ? ((const double *)want)[i] : (double)((const float *)want)[i];
    cr_assert(fabs(x - y) <= (dtype == ZPK_F64 ? 1e-15 : 5e-7), "%s %d: %g, %g", what, (int)i, x, y);
  }
}

static zpd_update arguments_of(const zpk_update *u) {
  return (zpd_update){.kind = u->kind,
                      .lr = u->lr,
                      .beta1 = u->beta1,
                      .beta2 = u->beta2,
                      .eps = u->eps,
                      .weight_decay = u->weight_decay,
                      .bias1 = u->bias1,
                      .bias2 = u->bias2,
                      .grad_scale = u->grad_scale};
}

/* AdamW and Adam, with decay and without; where the variance is 0 or small, steps are clamped. With 16-bit weights the
 * rest is f32, and they are rounded from the parameters. */
Test(kernels_cuda_one_bit, update) {
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (int way = 0; way < 4; way++) {
      zpk_update u = {.dtype = (zpk_dtype)dtype,
                      .kind = way & 1,
                      .lr = 0.05,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = way > 1 ? 0.1 : 0,
                      .bias1 = 0.3,
                      .bias2 = 0.01,
                      .grad_scale = 0.7};
      zpk_dtype kept = dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
      int64_t bytes = COUNT * zpk_bytes(kept);
      uint16_t weight[COUNT], rounded[COUNT];
      void *param = numbers(kept, 1, false), *grad = numbers(kept, 2, false), *m = numbers(kept, 3, false),
           *v = numbers(kept, 4, true), *got_m = copy_of(m, bytes), *got = copy_of(param, bytes);
      zpd_update a = arguments_of(&u);
      a.param = got, a.weight = zpk_is_narrow(u.dtype) ? weight : NULL;
      a.grad = grad, a.m = got_m, a.v = v, a.count = COUNT;
      zpk_momentum(&u, param, grad, m, 0, COUNT);
      device_launch(device_text(&texts, dtype), "zpd_momentum", &a, 2, 1, 1, ZPD_FLAT_THREADS);
      expect_near(kept, got_m, m, "momentum");
      zpk_frozen_update(&u, param, m, v, 0, COUNT);
      device_launch(device_text(&texts, dtype), "zpd_frozen_update", &a, 2, 1, 1, ZPD_FLAT_THREADS);
      expect_near(kept, got, param, "parameter");
      if (zpk_is_narrow(u.dtype)) {
        zpk_round(u.dtype, got, rounded, COUNT);
        cr_expect_arr_eq(weight, rounded, sizeof rounded, "weights");
      }
      free(param), free(grad), free(m), free(v), free(got_m), free(got);
    }
}

/* 1-bit LAMB: how the variance goes on, in two segments, the first in two blocks of threads; then the parameters, each
 * segment with a ratio and a decay of its own. */
Test(kernels_cuda_one_bit, lamb) {
  enum { CUT = 17 * ZPK_SIGNS };
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE) {
    zpk_update u = {.dtype = (zpk_dtype)dtype,
                    .kind = 4,
                    .lr = 0.05,
                    .beta1 = 0.9,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .bias1 = 0.3,
                    .bias2 = 0.01,
                    .grad_scale = 0.7};
    zpk_dtype kept = dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
    int64_t bytes = COUNT * zpk_bytes(kept);
    uint16_t weight[COUNT], rounded[COUNT];
    void *param = numbers(kept, 1, false), *m = numbers(kept, 3, false), *before = numbers(kept, 5, false),
         *v = numbers(kept, 4, true), *fresh = numbers(kept, 6, true), *got = copy_of(param, bytes),
         *got_fresh = copy_of(fresh, bytes);
    double most[3], want[2], ratio[2] = {0.5, 2};
    const zpd_step step = {.grad_scale = u.grad_scale, .bias1 = u.bias1, .bias2 = u.bias2, .applies = 1};
    zpd_segment segments[2] = {{.count = CUT, .lr_factor = 1, .weight_decay = 0.1},
                               {.begin = CUT, .count = COUNT - CUT, .first = 2, .lr_factor = 3}};
    zpd_fresh a = {.updates = {.kind = u.kind, .n = 2, .lr = u.lr, .beta1 = u.beta1, .beta2 = u.beta2, .eps = u.eps},
                   .before = before,
                   .fresh = got_fresh,
                   .fresh_bias2 = 0.4};
    zpd_updates *all = &a.updates;
    all->step = &step, all->segments = segments, all->blocks = 3, all->sums = most;
    all->moment[0] = m, all->moment[1] = v;
    all->params = zpk_is_narrow(u.dtype) ? (void *)weight : got, all->master = zpk_is_narrow(u.dtype) ? got : NULL;
    device_launch(device_text(&texts, dtype), "zpd_lamb_fresh", &a, 3, 1, 1, ZPD_FLAT_THREADS);
    for (int s = 0; s < 2; s++) {
      int64_t begin = segments[s].begin, end = begin + segments[s].count;
      zpk_update own = u;
      own.lr *= segments[s].lr_factor * ratio[s], own.weight_decay = segments[s].weight_decay;
      want[s] = zpk_lamb_fresh(&own, m, before, v, fresh, a.fresh_bias2, begin, end);
      zpk_lamb_frozen(&own, param, m, v, begin, end);
    }
    expect_near(kept, got_fresh, fresh, "variance");
    cr_expect_float_eq(fmax(most[0], most[1]), want[0], 1e-6 * want[0], "%g %g, %g", most[0], most[1], want[0]);
    cr_expect_float_eq(most[2], want[1], 1e-6 * want[1]);
    segments[1].first = 1, all->blocks = 2, all->ratios = ratio;
    device_launch(device_text(&texts, dtype), "zpd_lamb_frozen", all, 2, 1, 1, ZPD_FLAT_THREADS);
    expect_near(kept, got, param, "parameter");
    if (zpk_is_narrow(u.dtype)) {
      zpk_round(u.dtype, got, rounded, COUNT);
      cr_expect_arr_eq(weight, rounded, sizeof rounded, "weights");
    }
    free(param), free(m), free(before), free(v), free(fresh), free(got), free(got_fresh);
  }
}

/* With ZeRO 1 an owner's momentum and variance by all ranks' records, of which its elements begin block FIRST; then the
 * weights by that momentum, with LAMB's decay. */
Test(kernels_cuda_one_bit, lamb_owner) {
  enum { FIRST = 2, OWN = COUNT - FIRST * ZPK_SIGNS };
  for (int way = FIRST_DTYPE; way < DTYPES; way += NEXT_DTYPE) {
    zpk_update u = {.dtype = (zpk_dtype)way,
                    .kind = 4,
                    .lr = 0.05,
                    .beta1 = 0.9,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .weight_decay = 0.1,
                    .bias1 = 0.3,
                    .bias2 = 0.01,
                    .grad_scale = 0.7};
    bool narrow = zpk_is_narrow(u.dtype);
    zpk_dtype kept = u.dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
    int64_t bytes = COUNT * zpk_bytes(kept), at = FIRST * ZPK_SIGNS * zpk_bytes(kept);
    char records[RANKS * RECORD], want[RECORD], record[RECORD];
    double most;
    memset(want, 0, sizeof want), memset(record, 0, sizeof record);
    for (int r = 0; r < RANKS; r++) {
      float *other = numbers(ZPK_F32, 10 + r, false);
      zpk_pack_error(other, COUNT, zpk_signs_of(records, BLOCKS, r), 0);
      free(other);
    }
    char *m = numbers(kept, 3, false), *v = numbers(kept, 4, true), *fresh = numbers(kept, 6, true),
         *got_m = copy_of(m, bytes), *got_fresh = copy_of(fresh, bytes);
    const zpd_step step = {.bias1 = u.bias1, .bias2 = u.bias2, .applies = 1};
    zpd_segment segment = {.count = OWN, .to_state = FIRST * ZPK_SIGNS, .lr_factor = 1};
    zpd_fresh a = {.updates = {.n = 1, .beta1 = u.beta1, .beta2 = u.beta2, .eps = u.eps, .step = &step},
                   .fresh = got_fresh,
                   .fresh_bias2 = 0.4,
                   .records = records,
                   .blocks = BLOCKS,
                   .n = RANKS};
    a.updates.segments = &segment, a.updates.blocks = 1, a.updates.sums = &most;
    a.updates.moment[0] = got_m, a.updates.moment[1] = v;
    device_launch(device_text(&texts, way), "zpd_lamb_fresh", &a, 1, 1, 1, ZPD_FLAT_THREADS);
    zpk_records in = {RANKS, records, BLOCKS};
    double largest = zpk_lamb_owner(&u, in, FIRST * ZPK_SIGNS, m + at, v + at, fresh + at, a.fresh_bias2, OWN);
    expect_near(kept, got_m, m, "momentum");
    expect_near(kept, got_fresh, fresh, "variance");
    cr_expect_float_eq(most, largest, 1e-6 * largest, "%g, %g", most, largest);

    void *weight = numbers(u.dtype, 1, false), *master = narrow ? numbers(kept, 7, false) : NULL,
         *got_master = narrow ? copy_of(master, bytes) : NULL;
    float *server_error = numbers(ZPK_F32, 8, false), *got_server_error = copy_of(server_error, COUNT * 4);
    zpk_owner owner = {weight, master, m + at, v + at, narrow ? NULL : server_error};
    zpk_owner_update(&u, &owner, (zpk_records){0, NULL, BLOCKS}, zpk_signs_of(want, BLOCKS, 0), FIRST, OWN);
    zpd_owned b = {
        .update = arguments_of(&u), .error = narrow ? NULL : got_server_error, .record = record, .blocks = BLOCKS};
    b.update.weight = weight, b.update.param = got_master, b.update.m = m + at, b.update.v = v + at;
    b.update.count = OWN, b.first = FIRST;
    device_launch(device_text(&texts, way), "zpd_owner_update", &b, 2, 1, 1, ZPD_FLAT_THREADS);
    if (narrow) expect_near(kept, got_master, master, "master weights");
    for (int i = 0; i < OWN && !narrow; i++)
      cr_assert(fabsf(got_server_error[i] - server_error[i]) <= 1e-6f, "error %d: %g, %g", i,
                (double)got_server_error[i], (double)server_error[i]);
    free(m), free(v), free(fresh), free(got_m), free(got_fresh);
    free(weight), free(master), free(got_master), free(server_error), free(got_server_error);
  }
}

/* 0/1 Adam: the variance, a step's momentum added and decay of the weights of the last exchange, weights to go on with,
 * and the mean at an exchange. */
Test(kernels_cuda_one_bit, local_steps) {
  for (int way = 0; way < 2 * DTYPES; way++) {
    if (way / 2 % NEXT_DTYPE != FIRST_DTYPE) continue;
    zpk_update u = {.dtype = (zpk_dtype)(way / 2),
                    .kind = way % 2,
                    .lr = 0.05,
                    .beta1 = 0.9,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .weight_decay = 0.1,
                    .bias1 = 0.3,
                    .bias2 = 0.01,
                    .grad_scale = 0.7};
    zpk_dtype kept = u.dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
    bool narrow = zpk_is_narrow(u.dtype);
    int64_t bytes = COUNT * zpk_bytes(kept);
    double added = 0.75, total = 2.5;
    uint16_t weight[COUNT], rounded[COUNT];
    void *anchor = numbers(kept, 1, false), *grad = numbers(kept, 2, false), *m = numbers(kept, 3, false),
         *v = numbers(kept, 4, true), *sum = numbers(kept, 5, false), *out = calloc(COUNT, sizeof(double)),
         *got_anchor = copy_of(anchor, bytes), *got_m = copy_of(m, bytes), *got_v = copy_of(v, bytes),
         *got_sum = copy_of(sum, bytes), *got = calloc(COUNT, sizeof(double));
    zpd_local a = {.update = arguments_of(&u), .sum = got_sum, .anchor = got_anchor, .rate = added};
    a.update.param = narrow ? got_anchor : got, a.update.weight = narrow ? weight : NULL;
    a.update.grad = grad, a.update.m = got_m, a.update.v = got_v, a.update.count = COUNT;
    zpk_variance(&u, grad, v, 0, COUNT);
    device_launch(device_text(&texts, u.dtype), "zpd_variance", &a.update, 2, 1, 1, ZPD_FLAT_THREADS);
    expect_near(kept, got_v, v, "variance");
    zpk_local_sum(u.dtype, added, m, sum, 0, COUNT);
    if (u.kind == 0) zpk_local_decay(u.dtype, 1 - u.lr * u.weight_decay, anchor, 0, COUNT);
    device_launch(device_text(&texts, u.dtype), "zpd_local_add", &a, 2, 1, 1, ZPD_FLAT_THREADS);
    expect_near(kept, got_sum, sum, "sum");
    expect_near(kept, got_anchor, anchor, "weights of the last exchange");
    zpk_local_weights(&u, total, anchor, sum, v, out, COUNT);
    a.rate = total;
    device_launch(device_text(&texts, u.dtype), "zpd_local_weights", &a, 2, 1, 1, ZPD_FLAT_THREADS);
    if (narrow) zpk_round(u.dtype, out, rounded, COUNT);
    for (int i = 0; i < COUNT && narrow; i++) /* what f32 differs by may be rounded either way */
      cr_expect(abs(weight[i] - rounded[i]) <= 1, "weight %d", i);
    if (!narrow) expect_near(kept, got, out, "weights");
    zpk_local_mean(u.dtype, total, m, sum, 0, COUNT);
    device_launch(device_text(&texts, u.dtype), "zpd_local_mean", &a, 2, 1, 1, ZPD_FLAT_THREADS);
    expect_near(kept, got_m, m, "mean");
    expect_near(kept, got_sum, sum, "nothing is left");
    free(anchor), free(grad), free(m), free(v), free(sum), free(out);
    free(got_anchor), free(got_m), free(got_v), free(got_sum), free(got);
  }
}

/* ZeRO 1: the error and what is packed of it, the owner's update and what all add, of elements that begin block FIRST
 * of records and whose last block is shorter. */
Test(kernels_cuda_one_bit, owners) {
  enum { FIRST = 2, SHORT = COUNT - FIRST * ZPK_SIGNS - 41 };
  for (int way = 0; way < 2 * DTYPES; way++) {
    if (way / 2 % NEXT_DTYPE != FIRST_DTYPE) continue;
    zpk_dtype dtype = (zpk_dtype)(way / 2), kept = dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
    bool narrow = zpk_is_narrow(dtype);
    zpk_update u = {.dtype = dtype,
                    .kind = way % 2,
                    .lr = 0.05,
                    .beta1 = 0.9,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .weight_decay = 0.1,
                    .bias1 = 0.3,
                    .bias2 = 0.01,
                    .grad_scale = 0.7};
    int64_t bytes = COUNT * zpk_bytes(kept), weight_bytes = COUNT * zpk_bytes(dtype);
    char records[RANKS * RECORD], want[RECORD], record[RECORD];
    void *grad = numbers(kept, 2, false), *weight = numbers(dtype, 1, false), *m = numbers(kept, 3, false),
         *v = numbers(kept, 4, true), *master = narrow ? numbers(kept, 1, false) : NULL;
    float *error = numbers(ZPK_F32, 5, false), *server_error = numbers(ZPK_F32, 6, false);
    void *got_weight = copy_of(weight, weight_bytes), *got_m = copy_of(m, bytes),
         *got_master = narrow ? copy_of(master, bytes) : NULL;
    float *got_error = copy_of(error, COUNT * 4), *got_server_error = copy_of(server_error, COUNT * 4);
    memset(record, 0, sizeof record), memset(want, 0, sizeof want);
    zpd_owned a = {.update = {.grad = grad, .grad_scale = 0.5, .count = SHORT}, .error = got_error};
    a.record = record, a.blocks = BLOCKS, a.first = FIRST;
    zpk_add_to_error(dtype, grad, 0.5, error, SHORT);
    zpk_pack_error(error, SHORT, zpk_signs_of(want, BLOCKS, 0), FIRST);
    device_launch(device_text(&texts, dtype), "zpd_add_to_error", &a, 2, 1, 1, ZPD_FLAT_THREADS);
    device_launch(device_text(&texts, dtype), "zpd_pack_error", &a, 2, 1, 1, ZPD_FLAT_THREADS);
    expect_same(record, want, RECORD, "record", dtype);
    expect_same(got_error, error, COUNT * 4, "error", dtype);

    for (int r = 0; r < RANKS; r++) {
      float *other = numbers(ZPK_F32, 10 + r, false);
      zpk_pack_error(other, SHORT, zpk_signs_of(records, BLOCKS, r), FIRST);
      free(other);
    }
    zpk_owner owner = {weight, master, m, v, narrow ? NULL : server_error};
    zpk_records in = {RANKS, records, BLOCKS};
    zpk_owner_update(&u, &owner, in, zpk_signs_of(want, BLOCKS, 0), FIRST, SHORT);
    zpk_apply_signs(dtype, zpk_signs_of(want, BLOCKS, 0), FIRST, weight, SHORT);
    a.update = arguments_of(&u);
    a.update.param = got_master, a.update.weight = got_weight;
    a.update.m = got_m, a.update.v = v, a.update.count = SHORT;
    a.error = narrow ? NULL : got_server_error, a.records = records, a.n = RANKS;
    device_launch(device_text(&texts, dtype), "zpd_owner_update", &a, 2, 1, 1, ZPD_FLAT_THREADS);
    expect_near(kept, got_m, m, "momentum");
    if (narrow) expect_near(kept, got_master, master, "master weights");
    for (int b = FIRST; b < BLOCKS; b++) {
      float got = zpk_signs_of(record, BLOCKS, 0).scale[b], should = zpk_signs_of(want, BLOCKS, 0).scale[b];
      cr_expect(fabsf(got - should) <= 1e-6f, "scale of block %d: %g, %g", b, (double)got, (double)should);
    }
    a.records = want;
    device_launch(device_text(&texts, dtype), "zpd_apply_signs", &a, 2, 1, 1, ZPD_FLAT_THREADS);
    cr_expect_arr_eq(got_weight, weight, (size_t)weight_bytes, "weights, dtype %d", (int)dtype);
    free(grad), free(weight), free(m), free(v), free(master), free(error), free(server_error);
    free(got_weight), free(got_m), free(got_master), free(got_error), free(got_server_error);
  }
}
