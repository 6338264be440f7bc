/* SPDX-License-Identifier: Apache-2.0 */
/* Device cross-entropy, compiled for the host, against the naive f64 reference and the CPU kernels. */
#include "cross_entropy_testing.h"
#include "device_kernels.h"
#include <string.h>

static const char text[] = "#include \"zpd_cross_entropy.cuh\"\n";
static device_texts texts = {.text = text};

static void close_texts(void) { device_texts_close(&texts); }
TestSuite(kernels_cuda_cross_entropy, .fini = close_texts);

static void stats(zpk_dtype dtype, const void *logits, int64_t V, int64_t first, int64_t rows, const int32_t *label,
                  const int32_t *lengths, void *stat, unsigned blocks) {
  zpd_ce a = {.logits = logits,
              .out = stat,
              .labels = label,
              .lengths = lengths,
              .V = V,
              .first_col = first,
              .vocabulary = WORDS,
              .rows = rows};
  device_launch(device_text(&texts, dtype), "zpd_ce_stats", &a, blocks, 1, 1, ZPD_CE_THREADS);
}

static void loss(zpk_dtype dtype, const void *stat, int ranks, int64_t rows, const int32_t *label, double scale,
                 void *lse, double *to, zpd_tally *tally) {
  double parts[2 * ZPD_LOSS_BLOCKS];
  unsigned ticket = 0;
  zpd_ce a = {.stat = stat,
              .out = lse,
              .labels = label,
              .vocabulary = WORDS,
              .rows = rows,
              .ranks = ranks,
              .scale = scale,
              .weight = 0.5,
              .loss = to,
              .tally = tally,
              .parts = parts,
              .ticket = &ticket};
  device_launch(device_text(&texts, dtype), "zpd_ce_loss", &a, (unsigned)zpd_loss_blocks(rows), 1, 1, ZPD_CE_THREADS);
  cr_assert_eq(ticket, 0);
}

static void grad(zpk_dtype dtype, const void *logits, int64_t V, int64_t first, const int32_t *lengths, const void *lse,
                 zpk_targets targets, double scale, void *out) {
  int32_t label[ROWS]; /* not the constants themselves: a GPU sees what is allocated and what is on the stack */
  memcpy(label, labels, sizeof label);
  zpd_ce a = {.logits = logits,
              .lse = lse,
              .out = out,
              .labels = label,
              .lengths = lengths,
              .V = V,
              .first_col = first,
              .vocabulary = WORDS,
              .rows = ROWS,
              .scale = scale,
              .smoothing = targets.smoothing,
              .z = targets.z};
  device_launch(device_text(&texts, dtype), "zpd_ce_grad", &a, 5, 1, 1, ZPD_CE_THREADS);
}

/* The vocabulary over `ranks` of V columns each; the last may be all padding. */
static void run_of(zpk_dtype dtype, int ranks, int64_t V, bool in_place, zpk_targets targets, const int32_t *classes) {
  int64_t e = zpk_bytes(dtype);
  double bound = dtype == ZPK_F64 ? 1e-13 : 2e-5, want_grad[ROWS * WORDS], scale = 0.37, got = 100;
  counted want = reference(want_grad, targets, classes, scale);
  zpd_tally tally = {7, 2};
  char *logits = malloc((size_t)(ranks * ROWS * V * e));
  char *out = in_place ? logits : malloc((size_t)(ranks * ROWS * V * e));
  char stat[8 * ROWS * 3 * 8], cpu_stat[ROWS * 3 * 8], lse[ROWS * 8];
  int32_t label[ROWS], some[ROWS], *lengths = classes ? some : NULL;
  memcpy(label, labels, sizeof label);
  memcpy(some, some_classes, sizeof some);
  for (int i = 0; i < ranks; i++) {
    char *x = logits + i * ROWS * V * e, *mine = stat + i * ROWS * 3 * e;
    fill(dtype, x, i * V, V);
    stats(dtype, x, V, i * V, ROWS, label, lengths, mine, 2);
    zpk_ce_stats(dtype, x, V, i * V, WORDS, labels, lengths, cpu_stat, 0, ROWS);
    for (int64_t j = 0; j < ROWS * 3; j++) {
      double of_cpu = get(dtype, cpu_stat, j), of_device = get(dtype, mine, j);
      cr_expect(of_device == of_cpu || fabs(of_device - of_cpu) < bound * of_cpu, "rank %d stat %d: %g, not %g", i,
                (int)j, of_device, of_cpu);
    }
  }
  loss(dtype, stat, ranks, ROWS, label, 3.5, lse, &got, &tally);
  cr_expect_float_eq(got, 100 + 0.5 * 3.5 * want.loss, 3.5 * bound * want.loss);
  cr_expect_float_eq(tally.loss, 7 + 3.5 * want.loss, 3.5 * bound * want.loss);
  cr_expect_float_eq(tally.right, 2 + 3.5 * (double)want.right, 1e-13);
  for (int i = 0; i < ranks; i++) {
    char *dx = out + i * ROWS * V * e;
    grad(dtype, logits + i * ROWS * V * e, V, i * V, lengths, lse, targets, scale, dx);
    for (int64_t r = 0; r < ROWS; r++)
      for (int64_t c = 0; c < V; c++) {
        double expected = i * V + c < WORDS ? want_grad[r * WORDS + i * V + c] : 0;
        cr_expect_float_eq(get(dtype, dx, r * V + c), expected, bound, "row %d column %d", (int)r, (int)(i * V + c));
      }
  }
  if (!in_place) free(out);
  free(logits);
}

static void run(zpk_dtype dtype, int ranks, int64_t V, bool in_place) {
  for (int i = 0; i < N_TARGETS; i++) run_of(dtype, ranks, V, in_place, all_targets[i], NULL);
  run_of(dtype, ranks, V, in_place, all_targets[0], some_classes);
}

Test(kernels_cuda_cross_entropy, whole_vocabulary) {
  run(ZPK_F64, 1, WORDS, false);
  run(ZPK_F32, 1, WORDS, false);
}
Test(kernels_cuda_cross_entropy, padded_and_in_place) {
  run(ZPK_F64, 1, 256, true);
  run(ZPK_F32, 1, 256, true);
  run(ZPK_F32, 1, 1203, true); /* several packs a thread, rows that begin anywhere */
  run(ZPK_F32, 1, 1204, false);
}
Test(kernels_cuda_cross_entropy, split_over_ranks) {
  run(ZPK_F64, 3, 68, true);
  run(ZPK_F32, 3, 68, false);
  run(ZPK_F64, 8, 40, true); /* ranks 6 and 7 have only padding */
  run(ZPK_F32, 8, 40, true);
}

/* Many columns a thread: the running maximum moves while the row is read, whether it grows, falls or jumps. */
Test(kernels_cuda_cross_entropy, wide_rows) {
  enum { WIDE = 9001, SHAPES = 3 };
  for (int dtype = 0; dtype < 2; dtype++) {
    double x[SHAPES * WIDE], stat[SHAPES * 3], bound = dtype == ZPK_F64 ? 1e-13 : 1e-5;
    int32_t label[SHAPES] = {8999, 0, 4000};
    double sum[SHAPES] = {0};
    for (int c = 0; c < WIDE; c++) {
      const double value[SHAPES] = {c * 0.01, -c * 0.01, 50 * sin(c * 0.37)};
      for (int r = 0; r < SHAPES; r++) {
        if (dtype == ZPK_F64)
          x[r * WIDE + c] = value[r];
        else
          ((float *)x)[r * WIDE + c] = (float)value[r];
      }
    }
    zpd_ce a = {.logits = x, .out = stat, .labels = label, .V = WIDE, .vocabulary = WIDE - 1, .rows = SHAPES};
    device_launch(device_text(&texts, dtype), "zpd_ce_stats", &a, 2, 1, 1, ZPD_CE_THREADS);
    for (int r = 0; r < SHAPES; r++) {
      double max = get((zpk_dtype)dtype, stat, r * 3);
      for (int c = 0; c < WIDE - 1; c++) {
        double value = get((zpk_dtype)dtype, x, r * WIDE + c);
        cr_assert_leq(value, max);
        sum[r] += exp(value - max);
      }
      cr_expect_float_eq(get((zpk_dtype)dtype, stat, r * 3 + 1), sum[r], bound * sum[r], "row %d", r);
      cr_expect_eq(get((zpk_dtype)dtype, stat, r * 3 + 2), get((zpk_dtype)dtype, x, r * WIDE + label[r]));
    }
  }
}

/* Several blocks of the loss; labels that are ignored do not count. */
Test(kernels_cuda_cross_entropy, many_rows) {
  enum { MANY = 700, RANKS = 2 };
  for (int dtype = 0; dtype < 2; dtype++) {
    double stat[RANKS * MANY * 3], lse[MANY], cpu_lse[MANY], got = 0;
    int32_t label[MANY];
    for (int i = 0; i < RANKS * MANY * 3; i++) {
      double value = i % 3 == 1 ? 1 + i % 11 : 3 * sin(i);
      if (dtype == ZPK_F64)
        stat[i] = value;
      else
        ((float *)stat)[i] = (float)value;
    }
    for (int r = 0; r < MANY; r++) label[r] = r % 5 ? r % WORDS : -1;
    int64_t right = 0;
    zpd_tally tally = {0, 0};
    for (int r = 0; r < MANY; r += 7) /* a label with the largest logit */
      for (int k = 0; k < RANKS; k++) {
        int64_t at = (k * MANY + r) * 3;
        if (dtype == ZPK_F64)
          stat[at + 2] = stat[at];
        else
          ((float *)stat)[at + 2] = ((float *)stat)[at];
      }
    double want = zpk_ce_loss((zpk_dtype)dtype, stat, RANKS, MANY, WORDS, label, cpu_lse, &right, 0, MANY);
    loss((zpk_dtype)dtype, stat, RANKS, MANY, label, 0.25, lse, &got, &tally);
    cr_expect_float_eq(got, 0.5 * want * 0.25, 1e-13 * fabs(want));
    cr_expect(right > 0 && tally.right == 0.25 * (double)right, "%g right, not %d", tally.right / 0.25, (int)right);
    for (int r = 0; r < MANY; r++)
      cr_expect_float_eq(get((zpk_dtype)dtype, lse, r), get((zpk_dtype)dtype, cpu_lse, r),
                         dtype == ZPK_F64 ? 1e-14 : 1e-6);
  }
}

/* Where it stands in the row decides which thread meets it: before, between and after finite columns. */
Test(kernels_cuda_cross_entropy, special_logits) {
  const int columns[] = {0, 3, 100, WORDS - 1};
  for (int i = 0; i < 4; i++) {
    float x[WORDS], stat[3], lse;
    double to = 0;
    int32_t label = 5;
    for (int c = 0; c < WORDS; c++) x[c] = -INFINITY;
    x[columns[i]] = NAN;
    stats(ZPK_F32, x, WORDS, 0, 1, &label, NULL, stat, 1);
    loss(ZPK_F32, stat, 1, 1, &label, 1, &lse, &to, &(zpd_tally){0, 0});
    cr_expect(isnan(to), "NaN among -inf, column %d", columns[i]);
    x[5] = to = 0;
    stats(ZPK_F32, x, WORDS, 0, 1, &label, NULL, stat, 1);
    loss(ZPK_F32, stat, 1, 1, &label, 1, &lse, &to, &(zpd_tally){0, 0});
    cr_expect(isnan(to), "NaN and a number, column %d", columns[i]);
    x[columns[i]] = -INFINITY, to = 0;
    stats(ZPK_F32, x, WORDS, 0, 1, &label, NULL, stat, 1);
    loss(ZPK_F32, stat, 1, 1, &label, 1, &lse, &to, &(zpd_tally){0, 0});
    cr_expect_eq(to, 0, "one possible word");
    cr_expect_eq(stat[1], 1);
  }
}
