/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit Adam's exchange: several workers in one process against what must hold whatever the numbers are, and against
 * the formulas written out once more. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/zpk.h>

enum { WORKERS = 3, BLOCKS = 4, N = BLOCKS * ZPK_SIGNS, RECORD_WORDS = BLOCKS * ZPK_SIGNS_BYTES / 4, MASKED = 70 };

static double random_number(void) { return (double)rand() / RAND_MAX - 0.5; }

typedef struct exchange {
  double m[WORKERS][N], v[N], out[N];
  float error[WORKERS][N], server_error[N];
  uint32_t records[WORKERS * RECORD_WORDS], mean[RECORD_WORDS];
} exchange;

static void run_exchange(exchange *x) {
  for (int r = 0; r < WORKERS; r++)
    zpk_pack_signs(ZPK_F64, x->m[r], x->v, x->error[r], zpk_signs_of(x->records, BLOCKS, r), 0, BLOCKS);
  zpk_average_signs(ZPK_F64, WORKERS, x->records, BLOCKS, x->v, x->server_error, zpk_signs_of(x->mean, BLOCKS, 0), 0,
                    BLOCKS);
  zpk_unpack_signs(ZPK_F64, zpk_signs_of(x->mean, BLOCKS, 0), x->v, x->out, 0, BLOCKS);
}

static exchange *new_exchange(void) {
  exchange *x = calloc(1, sizeof *x);
  srand(7);
  for (int i = 0; i < N; i++) x->v[i] = i == MASKED ? 0 : 1e-3;
  return x;
}

/* Nothing is lost: what went in and did not come out is in the errors, of the workers on average and of the server.
 * Errors are kept in f32, so each step may lose a rounding of them. */
Test(kernels_one_bit, what_did_not_come_out_is_owed) {
  exchange *x = new_exchange();
  static double in[N], out[N];
  for (int step = 0; step < 200; step++) {
    for (int i = 0; i < N; i++)
      for (int r = 0; r < WORKERS; r++) {
        x->m[r][i] = i == MASKED ? 0 : random_number() * pow(10, i % 3) + 0.1 * (i % 5);
        in[i] += x->m[r][i] / WORKERS;
      }
    run_exchange(x);
    for (int i = 0; i < N; i++) out[i] += x->out[i];
  }
  for (int i = 0; i < N; i++) {
    double server_error = x->server_error[i];
    for (int r = 0; r < WORKERS; r++) server_error += (double)x->error[r][i] / WORKERS;
    cr_expect_float_eq(in[i] - out[i], server_error, 1e-3, "element %d: %g is missing, %g is in the errors", i,
                       in[i] - out[i], server_error);
  }
  cr_expect_eq(x->out[MASKED], 0);
  cr_expect_eq(x->error[0][MASKED], 0);
  free(x);
}

/* One worker's first step: the mean absolute value of a block with the signs, sign(0) = +1; the rest is its error. */
Test(kernels_one_bit, a_block_by_hand) {
  exchange *x = new_exchange();
  for (int i = 0; i < N; i++) x->m[0][i] = i % 3 == 0 ? -2.0 : i % 3 == 1 ? 1.0 : 0.0;
  zpk_pack_signs(ZPK_F64, x->m[0], x->v, x->error[0], zpk_signs_of(x->records, BLOCKS, 0), 0, BLOCKS);
  zpk_unpack_signs(ZPK_F64, zpk_signs_of(x->records, BLOCKS, 0), x->v, x->out, 0, BLOCKS);
  for (int b = 0; b < BLOCKS; b++) {
    double sum = 0;
    int n = 0;
    for (int i = b * ZPK_SIGNS; i < (b + 1) * ZPK_SIGNS; i++)
      if (i != MASKED) sum += fabs(x->m[0][i]), n++;
    for (int i = b * ZPK_SIGNS; i < (b + 1) * ZPK_SIGNS; i++) {
      double scale = (double)(float)(sum / n), want = i == MASKED ? 0 : i % 3 == 0 ? -scale : scale;
      cr_expect_eq(x->out[i], want, "element %d", i);
      cr_expect_eq(x->error[0][i], i == MASKED ? 0 : (float)(x->m[0][i] - want));
    }
  }
  free(x);
}

/* Where in a buffer a block stands makes no difference: copies of tied weights stay equal. */
Test(kernels_one_bit, blocks_are_alike_everywhere) {
  exchange *x = new_exchange();
  x->v[MASKED] = 1;
  for (int r = 0; r < WORKERS; r++)
    for (int i = 0; i < ZPK_SIGNS; i++) {
      x->m[r][i] = random_number();
      memcpy(&x->m[r][3 * ZPK_SIGNS + i], &x->m[r][i], sizeof(double));
    }
  run_exchange(x);
  cr_expect_arr_eq(x->out, x->out + 3 * ZPK_SIGNS, ZPK_SIGNS * sizeof(double));
  free(x);
}

/* The formulas of one_bit.c once more, with decay, and a step that Adam could not make either. */
Test(kernels_one_bit, momentum_and_update) {
  for (int kind = 0; kind < 2; kind++) {
    zpk_update u = {.dtype = ZPK_F64,
                    .kind = kind,
                    .lr = 1e-2,
                    .beta1 = 0.9,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .weight_decay = 0.1,
                    .bias1 = 0.5,
                    .bias2 = 0.25,
                    .grad_scale = 2};
    double p[2] = {1, 1}, g[2] = {0.3, 0.3}, m[2] = {0.2, 0.2}, v[2] = {1e-2, 1e-12};
    zpk_momentum(&u, p, g, m, 0, 2);
    double gradient = 2 * 0.3 + (kind == 1 ? 0.1 : 0), want = 0.9 * 0.2 + 0.1 * gradient;
    cr_expect_float_eq(m[0], want, 1e-15);
    m[0] = m[1] = 0.02;
    zpk_frozen_update(&u, p, m, v, 0, 2);
    double kept = kind == 0 ? 1 - 1e-2 * 0.1 : 1;
    cr_expect_float_eq(p[0], kept - 1e-2 * (0.02 / 0.5) / (sqrt(1e-2 / 0.25) + 1e-8), 1e-15);
    cr_expect_float_eq(p[1], kept - 1e-2 * 1, 1e-15, "clamped to a whole learning rate");
  }
  cr_expect_float_eq(zpk_most_of_adam(0.9, 0.999), 0.1 / sqrt(0.001), 1e-12);
}

/* ZeRO 1, three workers and one owner of elements whose last block is shorter: gradients that momentum lacks are the
 * workers' errors, and weights of all ranks and the owner's error are together the weights by the formula. */
Test(kernels_one_bit, owners) {
  enum { COUNT = N - 30 };
  zpk_update u = {.dtype = ZPK_F64,
                  .kind = 0,
                  .lr = 1e-2,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .weight_decay = 0.1,
                  .bias1 = 0.5,
                  .bias2 = 0.25,
                  .grad_scale = 1}; /* beta1 0: momentum is the mean */
  exchange *x = new_exchange();
  static double w[N], m[N], p[N], in[N], out[N];
  static float server_error[N];
  zpk_owner owner = {w, NULL, m, x->v, server_error};
  zpk_records records = {WORKERS, x->records, BLOCKS};
  for (int i = 0; i < COUNT; i++) w[i] = p[i] = random_number();
  for (int step = 0; step < 100; step++) {
    for (int r = 0; r < WORKERS; r++) {
      double g[N];
      for (int i = 0; i < COUNT; i++) {
        g[i] = random_number() * 1e-2 * pow(10, i % 3);
        in[i] += g[i] / WORKERS;
      }
      zpk_add_to_error(ZPK_F64, g, 1, x->error[r], COUNT);
      zpk_pack_error(x->error[r], COUNT, zpk_signs_of(x->records, BLOCKS, r), 0);
    }
    zpk_owner_update(&u, &owner, records, zpk_signs_of(x->mean, BLOCKS, 0), 0, COUNT);
    zpk_apply_signs(ZPK_F64, zpk_signs_of(x->mean, BLOCKS, 0), 0, w, COUNT);
    for (int i = 0; i < COUNT; i++) {
      double most = zpk_most_of_adam(0, 0.95), by = m[i] / 0.5 / (sqrt(x->v[i] / 0.25) + 1e-8);
      out[i] += m[i];
      p[i] = p[i] * (1 - 1e-2 * 0.1) - 1e-2 * fmax(-most, fmin(most, by));
    }
  }
  cr_expect_eq(out[MASKED], 0);
  for (int i = 0; i < COUNT; i++) {
    double late = 0;
    for (int r = 0; r < WORKERS; r++) late += (double)x->error[r][i] / WORKERS;
    if (i != MASKED) cr_expect_float_eq(in[i] - out[i], late, 1e-5, "element %d: %g %g", i, in[i] - out[i], late);
    cr_expect_float_eq(w[i] + (double)server_error[i], p[i], 1e-6, "element %d: %g %g", i,
                       w[i] + (double)server_error[i], p[i]);
  }
  for (int i = COUNT; i < N; i++) cr_expect(w[i] == 0 && server_error[i] == 0 && x->error[0][i] == 0, "element %d", i);
  free(x);
}
