/* SPDX-License-Identifier: Apache-2.0 */
/* Device kernels for lookups, flat buffers and the optimizer, compiled for the host: against the CPU kernels, bit for
 * bit where nothing is rounded differently, and against the formulas of torch.optim. */
#include "device_kernels.h"
#include "narrow_testing.h"
#include "optimizer_testing.h"
#include <string.h>

/* The last kernel calls what blocks compute together twice, one call right after the other. */
static const char text[] = "#include \"zpd_lookup.cuh\"\n#include \"zpd_flat.cuh\"\n#include \"zpd_step.cuh\"\n"
                           "#include \"zpd_positions.cuh\"\n"
                           "#include \"zpd_merge.cuh\"\n"
                           "#include \"zpd_muon.cuh\"\n"
                           "ZPD_KERNEL(together, zpd_rank_sum) {\n"
                           "  real *y = (real *)a.mine + threadIdx.x * 8, x = ((const real *)a.others)[threadIdx.x];\n"
                           "  int total, more;\n"
                           "  y[0] = zpd_block_sum(x), y[1] = zpd_block_sum(x * x);\n"
                           "  y[2] = zpd_block_max(-x), y[3] = zpd_block_max(x);\n"
                           "  y[4] = (real)zpd_block_count_before((int)threadIdx.x % 3, &total), y[5] = (real)total;\n"
                           "  y[6] = (real)zpd_block_count_before(1, &more), y[7] = (real)more;\n"
                           "}\n";

/* Kernel texts of every dtype. */
enum { DTYPES = ZPK_DTYPES };
static device_texts texts = {.text = text};

static void close_texts(void) { device_texts_close(&texts); }
TestSuite(kernels_cuda, .fini = close_texts);

static void put(zpk_dtype dtype, void *x, int64_t i, double value) { put_as(dtype, x, i, value); }
static double get(zpk_dtype dtype, const void *x, int64_t i) { return get_as(dtype, x, i); }

/* Numbers of any sign and size, so that the order of a sum shows in its bits. */
static void *numbers(zpk_dtype dtype, int64_t count, int salt) {
  void *x = malloc((size_t)(count * zpk_bytes(dtype)));
  for (int64_t i = 0; i < count; i++) {
    put(dtype, x, i, sin((double)i * 1.7 + salt) * (i % 7 == 0 ? 1e3 : 1));
  }
  return x;
}

static void *copy_of(zpk_dtype dtype, const void *x, int64_t count) {
  void *y = malloc((size_t)(count * zpk_bytes(dtype)));
  return memcpy(y, x, (size_t)(count * zpk_bytes(dtype)));
}

static void launch(zpk_dtype dtype, const char *name, const void *args, unsigned blocks) {
  device_launch(device_text(&texts, dtype), name, args, blocks, 1, 1, ZPD_FLAT_THREADS);
}

/* Small integers, so sums are exact. */
Test(kernels_cuda, block_reductions) {
  enum { THREADS = ZPD_FLAT_THREADS };
  for (int dtype = FIRST_DTYPE; dtype <= ZPK_F64; dtype += NEXT_DTYPE) {
    double x[THREADS], y[THREADS * 8], sum = 0, squares = 0;
    for (int i = 0; i < THREADS; i++) {
      int value = i * 37 % 101 - 20;
      put((zpk_dtype)dtype, x, i, value);
      sum += value, squares += value * value;
    }
    zpd_rank_sum a = {.others = x, .mine = y};
    launch((zpk_dtype)dtype, "together", &a, 1);
    for (int i = 0; i < THREADS; i++) {
      const double want[8] = {sum, squares, 20, 80, i / 3 * 3 + (i % 3 == 2), 255, i, THREADS};
      for (int k = 0; k < 8; k++)
        cr_assert_eq(get((zpk_dtype)dtype, y, i * 8 + k), want[k], "f%d, result %d of thread %d: %g", dtype ? 64 : 32,
                     k, i, get((zpk_dtype)dtype, y, i * 8 + k));
    }
  }
}

/* ---- lookups ---- */

/* Many tokens of one kind, some not in the table; more rows than one pass over the ids. */
enum { LOOKUPS = 2300, FIRST = 3, TABLE = 50 };
static void make_ids(int32_t *ids) {
  for (int r = 0; r < LOOKUPS; r++) ids[r] = r % 3 == 0 ? 7 : (int32_t)((unsigned)r * 2654435761u >> 20) % 60 - 2;
}

Test(kernels_cuda, embedding) {
  int32_t ids[LOOKUPS];
  make_ids(ids);
  const int64_t widths[] = {1, 5, 64, 300};
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
      int64_t cols = widths[w], bytes = LOOKUPS * cols * zpk_bytes((zpk_dtype)dtype);
      void *table = numbers((zpk_dtype)dtype, TABLE * cols, 1), *want = malloc((size_t)bytes),
           *out = malloc((size_t)bytes);
      memset(out, 0xff, (size_t)bytes);
      zpk_embedding((zpk_dtype)dtype, ids, table, FIRST, TABLE, cols, want, 0, LOOKUPS);
      zpd_lookup a = {
          .ids = ids, .from = table, .to = out, .first_row = FIRST, .n_rows = TABLE, .rows = LOOKUPS, .cols = cols};
      launch((zpk_dtype)dtype, "zpd_embedding", &a, 100);
      cr_expect_arr_eq(out, want, (size_t)bytes, "%d columns", (int)cols);
      free(table), free(want), free(out);
    }
}

/* The sum of a table row's column in f64, and of what it is made of without signs. */
static void add_lookups(zpk_dtype dtype, const int32_t *ids, const void *dy, const void *before, int64_t rows,
                        int64_t cols, double *sum, double *size) {
  for (int64_t i = 0; i < TABLE * cols; i++) sum[i] = get(zpk_real(dtype), before, i), size[i] = fabs(sum[i]);
  for (int64_t r = 0; r < rows; r++) {
    int64_t row = ids[r] - FIRST;
    for (int64_t j = 0; row >= 0 && row < TABLE && j < cols; j++) {
      sum[row * cols + j] += get(dtype, dy, r * cols + j);
      size[row * cols + j] += fabs(get(dtype, dy, r * cols + j));
    }
  }
}

/* A token is every third, so that all warps add its rows; others are few. The bits do not depend on the grid: from less
 * than a block for every group of columns to more blocks than table rows. Sums in f32 or f64 of up to 800 numbers: as
 * many roundings at most, in practice few, whatever the operands are. */
Test(kernels_cuda, embedding_grad) {
  int32_t ids[LOOKUPS];
  make_ids(ids);
  const int64_t widths[] = {5, 300, 520};
  const unsigned grids[] = {1, 7, 130};
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
      zpk_dtype real = zpk_real((zpk_dtype)dtype);
      int64_t cols = widths[w], bytes = TABLE * cols * zpk_bytes(real);
      void *dy = numbers((zpk_dtype)dtype, LOOKUPS * cols, 2), *before = numbers(real, TABLE * cols, 3);
      void *first = NULL;
      double *want = malloc((size_t)(TABLE * cols) * sizeof *want),
             *size = malloc((size_t)(TABLE * cols) * sizeof *size);
      double real_rounding = dtype == ZPK_F64 ? 0x1p-53 : 0x1p-24;
      add_lookups((zpk_dtype)dtype, ids, dy, before, LOOKUPS, cols, want, size);
      for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        void *got = copy_of(real, before, TABLE * cols);
        zpd_lookup a = {
            .ids = ids, .from = dy, .to = got, .first_row = FIRST, .n_rows = TABLE, .rows = LOOKUPS, .cols = cols};
        launch((zpk_dtype)dtype, "zpd_embedding_grad", &a, grids[g]);
        for (int64_t i = 0; i < TABLE * cols; i++) {
          double most = 16 * real_rounding * size[i];
          double error = fabs(get(real, got, i) - want[i]);
          cr_assert(error <= most, "%d columns, type %d, element %d: %g for %g, error %g of %g", (int)cols, dtype,
                    (int)i, get(real, got, i), want[i], error, most);
        }
        if (first) cr_expect_arr_eq(got, first, (size_t)bytes, "%d columns, %u blocks", (int)cols, grids[g]);
        if (!first)
          first = got;
        else
          free(got);
      }
      free(dy), free(before), free(first), free(want), free(size);
    }
}

Test(kernels_cuda, position_grad) {
  enum { SAMPLES = 3, S = 11, COLS = 270, LD = COLS + 4 };
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      zpk_dtype real = zpk_real((zpk_dtype)dtype);
      int64_t bytes = S * COLS * zpk_bytes(real);
      void *dy = numbers((zpk_dtype)dtype, SAMPLES * S * LD, 4), *want = numbers(real, S * COLS, 5);
      void *got = copy_of(real, want, S * COLS);
      zpk_position_grad((zpk_dtype)dtype, dy, LD, SAMPLES, S, COLS, accumulate, want, 0, S);
      zpd_lookup a = {
          .from = dy, .to = got, .cols = COLS, .ld = LD, .samples = SAMPLES, .S = S, .accumulate = accumulate};
      launch((zpk_dtype)dtype, "zpd_position_grad", &a, 4);
      cr_expect_arr_eq(got, want, (size_t)bytes, "accumulate %d", accumulate);
      free(dy), free(want), free(got);
    }
}

Test(kernels_cuda, positions) {
  enum { SAMPLES = 3, S = 11, N = 4 };
  static const int widths[] = {270, 64};
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (int w = 0; w < 4; w++) {
      int64_t cols = widths[w / 2], size = zpk_bytes((zpk_dtype)dtype), count = SAMPLES * S * cols;
      void *x = numbers((zpk_dtype)dtype, count, 4), *want = numbers((zpk_dtype)dtype, count, 5);
      void *got = copy_of((zpk_dtype)dtype, want, count);
      zpk_positions p = {.from = x, .from_S = S, .from_at = S - 2, .to = want, .to_S = 2 * N, .to_at = 1};
      p.samples = SAMPLES, p.n = N, p.cols = cols, p.shared = w % 2;
      zpd_positions a = {.from = x, .to = got, .from_S = S, .from_at = S - 2, .to_S = 2 * N, .to_at = 1};
      a.samples = SAMPLES, a.n = N, a.cols = cols, a.shared = w % 2, a.S = S, a.scale = 1.0 / S;
      zpk_move_positions((zpk_dtype)dtype, &p, 0, SAMPLES * N);
      launch((zpk_dtype)dtype, "zpd_move_positions", &a, 5);
      cr_expect_arr_eq(got, want, (size_t)(count * size), "moved, %d columns", (int)cols);
      zpk_mean_positions((zpk_dtype)dtype, x, SAMPLES, S, cols, a.scale, want, 0, cols);
      launch((zpk_dtype)dtype, "zpd_mean_positions", &a, 2);
      cr_expect_arr_eq(got, want, (size_t)(count * size), "mean, %d columns", (int)cols);
      zpk_spread_positions((zpk_dtype)dtype, x, S, cols, a.scale, want, 0, SAMPLES * S);
      launch((zpk_dtype)dtype, "zpd_spread_positions", &a, 5);
      cr_expect_arr_eq(got, want, (size_t)(count * size), "spread, %d columns", (int)cols);
      free(x), free(want), free(got);
    }
}

/* Weights are of one exponential on the host and another on the device. */
Test(kernels_cuda, merge) {
  enum { ROWS = 5, HEADS = 3, WIDTH = 100, COLS = HEADS * WIDTH, LD = COLS + 8 };
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (int weighs = 0; weighs < 2; weighs++) {
      zpk_dtype type = (zpk_dtype)dtype, real = type == ZPK_F64 ? ZPK_F64 : ZPK_F32;
      void *from = numbers(type, ROWS * COLS, 1), *want = numbers(type, ROWS * LD, 2),
           *got = copy_of(type, want, ROWS * LD);
      void *other = numbers(real, ROWS * HEADS, 3), *lse = numbers(real, ROWS * HEADS, 4),
           *same = copy_of(real, lse, ROWS * HEADS);
      zpk_merge m = {.to = want, .from = from, .rows = ROWS, .heads = HEADS, .hd = WIDTH, .to_ld = LD, .from_ld = COLS};
      if (weighs) m.lse = lse, m.from_lse = other;
      zpd_merge a = m;
      a.to = got;
      if (weighs) a.lse = same;
      zpk_merge_parts(type, &m, 0, ROWS);
      launch(type, "zpd_merge_parts", &a, 2);
      for (int i = 0; i < ROWS * LD; i++) {
        double error = fabs(get(type, got, i) - get(type, want, i)), size = fabs(get(type, want, i));
        cr_assert_leq(error, (type == ZPK_F64 ? 1e-12 : 1e-5 + 2 * narrow_unit(type)) * (1 + size), "element %d", i);
      }
      for (int i = 0; i < ROWS * HEADS; i++)
        cr_assert_float_eq(get(real, same, i), get(real, lse, i), 1e-5 * (1 + fabs(get(real, lse, i))), "row %d", i);
      free(from), free(want), free(got), free(other), free(lse), free(same);
    }
}

/* Sums in `real`, and these put back: to the bit as on the host. */
Test(kernels_cuda, merge_wide) {
  enum { ROWS = 5, COLS = 300, LD = COLS + 8 };
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE) {
    zpk_dtype type = (zpk_dtype)dtype, real = type == ZPK_F64 ? ZPK_F64 : ZPK_F32;
    void *from = numbers(type, ROWS * LD, 1), *back = numbers(type, ROWS * LD, 2),
         *same = copy_of(type, back, ROWS * LD);
    void *want = numbers(real, ROWS * COLS, 3), *got = numbers(real, ROWS * COLS, 4);
    zpk_merge m = {.from = from, .rows = ROWS, .heads = 1, .hd = COLS, .to_ld = COLS, .from_ld = LD, .to_wide = 1};
    for (int set = 1; set >= 0; set--) {
      zpd_merge a = m;
      m.set = a.set = set, m.to = want, a.to = got;
      zpk_merge_parts(type, &m, 0, ROWS);
      launch(type, "zpd_merge_parts", &a, 2);
      cr_expect_arr_eq(got, want, (size_t)(ROWS * COLS * zpk_real_bytes(type)));
    }
    zpk_merge out = {.from = want, .rows = ROWS, .heads = 1, .hd = COLS, .to_ld = LD, .from_ld = COLS, .from_wide = 1};
    zpd_merge a = out;
    out.set = a.set = 1, out.to = back, a.to = same;
    zpk_merge_parts(type, &out, 0, ROWS);
    launch(type, "zpd_merge_parts", &a, 3);
    cr_expect_arr_eq(same, back, (size_t)(ROWS * LD * zpk_bytes(type)));
    free(from), free(back), free(same), free(want), free(got);
  }
}

/* ---- flat buffers: lengths around packs and blocks, aligned and not ---- */

static const int64_t counts[] = {0, 1, 3, 4, 1023, 1024, 1025, 5000};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Every place of the own part among the others, which are further apart than they are long. */
Test(kernels_cuda, sum_parts) {
  enum { RANKS = 4, N = 700, SLOT = 800 };
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (int me = 0; me < RANKS; me++) {
      zpk_dtype real = zpk_real((zpk_dtype)dtype);
      int64_t e = zpk_bytes(real);
      char *others = numbers(real, RANKS * SLOT, 8), *mine = numbers(real, N, 9), *want = malloc((size_t)(N * e));
      const void *part[RANKS];
      for (int r = 0; r < RANKS; r++) part[r] = r == me ? mine : others + r * SLOT * e;
      zpk_sum_parts(real, want, part, RANKS, 0, N);
      zpd_rank_sum a = {.mine = mine, .others = others, .slot = SLOT, .count = N, .n = RANKS, .me = me};
      launch((zpk_dtype)dtype, "zpd_sum_parts", &a, 2);
      cr_expect_arr_eq(mine, want, (size_t)(N * e), "rank %d", me);
      void *rounded = numbers((zpk_dtype)dtype, N, 10);
      zpd_rank_sum one = {.mine = mine, .rounded = rounded, .count = N, .n = 1};
      launch((zpk_dtype)dtype, "zpd_sum_parts", &one, 2);
      for (int i = 0; i < N; i++) {
        double sum = get(real, want, i) + get((zpk_dtype)dtype, rounded, i);
        cr_assert_eq(get(real, mine, i), real == ZPK_F64 ? sum : (double)(float)sum, "element %d", i);
      }
      free(others), free(mine), free(want), free(rounded);
    }
}

/* As the host's, NaN, infinity and halves included. */
Test(kernels_cuda, sums_rounded_to_bf16) {
  enum { N = 700 };
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE) {
    float *x = (float *)(void *)numbers(ZPK_F32, N, 8), *wide = malloc(N * sizeof *wide),
          *want = malloc(N * sizeof *want);
    uint16_t *bits = malloc(N * sizeof *bits), *want_bits = malloc(N * sizeof *bits);
    x[0] = NAN, x[1] = INFINITY, x[2] = -3.4e38f, x[3] = 1e-40f, x[4] = 1 + 1 / 256.0f, x[5] = 1 + 3 / 256.0f;
    zpd_rounding there = {.sum = x, .bits = bits, .count = N}, back = {.sum = wide, .bits = bits, .count = N};
    launch((zpk_dtype)dtype, "zpd_round_sum", &there, 2);
    zpk_round(ZPK_BF16, x, want_bits, N);
    cr_expect_arr_eq(bits, want_bits, N * sizeof *bits);
    launch((zpk_dtype)dtype, "zpd_widen_sum", &back, 2);
    zpk_widen(ZPK_BF16, bits, want, N);
    cr_expect_arr_eq(wide, want, N * sizeof *wide);
    free(x), free(wide), free(want), free(bits), free(want_bits);
  }
}

/* Three segments, the middle one of one block. The sums of blocks do not depend on where the buffer begins. */
Test(kernels_cuda, square_segments) {
  enum { SEGMENTS = 3, BLOCKS = 6 };
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (int i = 0; i < COUNTS; i++) {
      zpk_dtype real = zpk_real((zpk_dtype)dtype);
      int64_t n = counts[i], e = zpk_bytes(real);
      char *x = numbers(real, n + 13, 10), *shifted = malloc((size_t)((n + 13) * e));
      memcpy(shifted + e, x, (size_t)((n + 12) * e));
      zpd_segment segments[SEGMENTS] = {
          {.begin = 5, .count = n}, {.begin = 0, .count = 5}, {.begin = n + 5, .count = 7}};
      segments[1].first = 3, segments[2].first = 4;
      double sums[BLOCKS], again[BLOCKS];
      zpd_squares a = {.grads = x, .segments = segments, .n = SEGMENTS, .sums = sums}, b = a;
      b.grads = shifted + e, b.sums = again;
      launch((zpk_dtype)dtype, "zpd_square_segments", &a, BLOCKS);
      launch((zpk_dtype)dtype, "zpd_square_segments", &b, BLOCKS);
      for (int s = 0; s < SEGMENTS; s++) {
        double total = 0, want = zpk_sum_squares(real, x + segments[s].begin * e, 0, segments[s].count);
        int64_t end = s + 1 < SEGMENTS ? segments[s + 1].first : BLOCKS;
        for (int64_t block = segments[s].first; block < end; block++) total += sums[block];
        cr_expect_float_eq(total, want, 1e-14 * want);
      }
      cr_expect_arr_eq(sums, again, sizeof sums);
      free(x), free(shifted);
    }
}

/* ---- decisions ---- */

/* 300 segments of one or two blocks each, whose sums are 1, 2, 3, ...: more than threads. */
enum { MANY = 300 };
static zpd_decision decision(double *sums, zpd_segment *segments, zpd_step *step, zpd_outcome *outcome) {
  int64_t block = 0;
  for (int s = 0; s < MANY; s++) {
    segments[s] = (zpd_segment){.first = block};
    for (int64_t end = block + 1 + s % 2; block < end; block++) sums[block] = (double)(block + 1);
  }
  return (zpd_decision){.sums = sums,
                        .segments = segments,
                        .n = MANY,
                        .blocks = block,
                        .clip = 2,
                        .bias1 = {0.1, 0.2},
                        .bias2 = {0.3, 0.4},
                        .skipped_steps = 5,
                        .step = step,
                        .outcome = outcome};
}

static void decide(const zpd_decision *a) { launch(ZPK_F32, "zpd_decide", a, 1); }

Test(kernels_cuda, decide_clips_and_tells) {
  double sums[2 * MANY];
  zpd_segment segments[MANY];
  zpd_step step = {.loss = 3, .loss_scale = 1, .skipped_steps = 5};
  zpd_outcome outcome;
  zpd_decision a = decision(sums, segments, &step, &outcome);
  const double n = (double)a.blocks, norm = sqrt(n * (n + 1) / 2);
  decide(&a);
  cr_expect(outcome.loss == 3 && outcome.grad_norm == norm && outcome.applied == 1 && outcome.loss_scale == 1);
  cr_expect(step.loss == 0 && step.applies == 1 && step.skipped_steps == 5 && step.scale_steps == 0);
  cr_expect_eq(step.grad_scale, 2 / (norm + 1e-6));
  cr_expect(step.bias1 == 0.1 && step.bias2 == 0.3, "the host knew of all skipped steps");
  a.clip = 0;
  decide(&a);
  cr_expect_eq(step.grad_scale, 1);
}

/* As zpr_loss_scale_step: two steps without overflow double the scale, one with halves it, not beyond the ends. */
Test(kernels_cuda, decide_moves_the_loss_scale) {
  double sums[2 * MANY];
  zpd_segment segments[MANY];
  zpd_step step = {.loss_scale = 8, .scale_steps = 1, .skipped_steps = 5};
  zpd_outcome outcome;
  static const struct {
    double sum, loss, scale, steps, skipped, applied;
  } expected[] = {{1, 0, 16, 0, 5, 1},  {INFINITY, 0, 8, 0, 6, 0}, {1, 0, 8, 1, 6, 1},
                  {1, NAN, 4, 0, 7, 0}, {NAN, 0, 2, 0, 8, 0},      {1, 0, 2, 1, 8, 1}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    zpd_decision a = decision(sums, segments, &step, &outcome);
    const double before = step.loss_scale, skipped = step.skipped_steps;
    a.scale_window = 2, a.most_scale = 16;
    a.sums[7] = expected[i].sum;
    step.loss = expected[i].loss;
    decide(&a);
    cr_expect(step.loss_scale == expected[i].scale && step.scale_steps == expected[i].steps, "case %zu", i);
    cr_expect(step.skipped_steps == expected[i].skipped && step.applies == expected[i].applied, "case %zu", i);
    cr_expect(outcome.loss_scale == before && outcome.applied == expected[i].applied, "case %zu", i);
    cr_expect_eq(step.bias1, skipped > 5 ? 0.2 : 0.1);
    if (expected[i].applied) cr_expect_float_eq(step.grad_scale * before * (outcome.grad_norm + 1e-6), 2, 1e-12);
  }
  step.loss_scale = 16, step.scale_steps = 1, step.loss = 0;
  zpd_decision a = decision(sums, segments, &step, &outcome);
  a.scale_window = 2, a.most_scale = 16;
  decide(&a);
  cr_expect_eq(step.loss_scale, 16, "not beyond the most");
  step.loss_scale = 1, step.loss = NAN;
  decide(&a);
  cr_expect_eq(step.loss_scale, 1, "not below 1");
  step.loss = NAN, a.scale_window = 0, step.loss_scale = 4;
  decide(&a);
  cr_expect_eq(step.loss_scale, 4, "a fixed scale stays");
}

/* ---- optimizer ---- */

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
Test(kernels_cuda, sign) {
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

Test(kernels_cuda, lamb) {
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

Test(kernels_cuda, muon) {
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE) muon((zpk_dtype)dtype);
}

/* The other offsets of a segment, and a step that does not apply. */
Test(kernels_cuda, optimizer_finds_its_elements) {
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

Test(kernels_cuda, optimizer) {
  for (int dtype = FIRST_DTYPE; dtype < DTYPES; dtype += NEXT_DTYPE)
    for (int kind = 0; kind <= ADAN; kind++) {
      optimizer((zpk_dtype)dtype, kind, true);
      optimizer((zpk_dtype)dtype, kind, false);
    }
}
