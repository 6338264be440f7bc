/* SPDX-License-Identifier: Apache-2.0 */
/* Device kernels for lookups, flat buffers and decisions, compiled for the host: against the CPU kernels, bit for
 * bit where nothing is rounded differently. */
#include "device_kernels.h"
#include "narrow_testing.h"
#include <string.h>

/* The last kernel calls what blocks compute together twice, one call right after the other. */
static const char text[] = "#include \"zpd_lookup.cuh\"\n#include \"zpd_flat.cuh\"\n#include \"zpd_step.cuh\"\n"
                           "#include \"zpd_positions.cuh\"\n"
                           "#include \"zpd_merge.cuh\"\n"
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
