/* Device kernels for lookups, flat buffers and the optimizer, compiled for the host: against the CPU kernels, bit for
 * bit where nothing is rounded differently, and against the formulas of torch.optim. */
#include "device_kernels.h"
#include "narrow_testing.h"
#include "optimizer_testing.h"
#include <string.h>

/* The last kernel calls what blocks compute together twice, one call right after the other. */
static const char text[] = "#include \"zpd_lookup.cuh\"\n#include \"zpd_flat.cuh\"\n#include \"zpd_optimizer.cuh\"\n"
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
static host_object texts[DTYPES];

static void open_texts(void) {
  for (int dtype = 0; dtype < DTYPES; dtype++) texts[dtype] = device_open(text, (zpk_dtype)dtype, 64);
}
static void close_texts(void) {
  for (int dtype = 0; dtype < DTYPES; dtype++) host_unload(&texts[dtype]);
}
TestSuite(kernels_cuda, .init = open_texts, .fini = close_texts);

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
  device_launch(&texts[dtype], name, args, blocks, 1, 1, ZPD_FLAT_THREADS);
}

/* Small integers, so sums are exact. */
Test(kernels_cuda, block_reductions) {
  enum { THREADS = ZPD_FLAT_THREADS };
  for (int dtype = 0; dtype <= ZPK_F64; dtype++) {
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
  for (int dtype = 0; dtype < DTYPES; dtype++)
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

/* The bits do not depend on the grid: from less than a block for every group of columns to more blocks than table rows.
 */
Test(kernels_cuda, embedding_grad) {
  int32_t ids[LOOKUPS];
  make_ids(ids);
  const int64_t widths[] = {5, 300};
  const unsigned grids[] = {1, 7, 130};
  for (int dtype = 0; dtype < DTYPES; dtype++)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
      int64_t cols = widths[w], bytes = TABLE * cols * zpk_bytes((zpk_dtype)dtype);
      void *dy = numbers((zpk_dtype)dtype, LOOKUPS * cols, 2), *want = numbers((zpk_dtype)dtype, TABLE * cols, 3);
      void *start_of = copy_of((zpk_dtype)dtype, want, TABLE * cols);
      /* 16 bits are rounded once a pass over the ids */
      int64_t rows = zpk_is_narrow(dtype) ? 2000 : LOOKUPS;
      zpk_embedding_grad((zpk_dtype)dtype, ids, dy, FIRST, TABLE, rows, cols, want, 0, cols);
      for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        void *got = copy_of((zpk_dtype)dtype, start_of, TABLE * cols);
        zpd_lookup a = {
            .ids = ids, .from = dy, .to = got, .first_row = FIRST, .n_rows = TABLE, .rows = rows, .cols = cols};
        launch((zpk_dtype)dtype, "zpd_embedding_grad", &a, grids[g]);
        cr_expect_arr_eq(got, want, (size_t)bytes, "%d columns, %u blocks", (int)cols, grids[g]);
        free(got);
      }
      free(dy), free(want), free(start_of);
    }
}

Test(kernels_cuda, position_grad) {
  enum { SAMPLES = 3, S = 11, COLS = 270, LD = COLS + 4 };
  for (int dtype = 0; dtype < DTYPES; dtype++)
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      int64_t bytes = S * COLS * zpk_bytes((zpk_dtype)dtype);
      void *dy = numbers((zpk_dtype)dtype, SAMPLES * S * LD, 4), *want = numbers((zpk_dtype)dtype, S * COLS, 5);
      void *got = copy_of((zpk_dtype)dtype, want, S * COLS);
      zpk_position_grad((zpk_dtype)dtype, dy, LD, SAMPLES, S, COLS, accumulate, want, 0, S);
      zpd_lookup a = {
          .from = dy, .to = got, .cols = COLS, .ld = LD, .samples = SAMPLES, .S = S, .accumulate = accumulate};
      launch((zpk_dtype)dtype, "zpd_position_grad", &a, 4);
      cr_expect_arr_eq(got, want, (size_t)bytes, "accumulate %d", accumulate);
      free(dy), free(want), free(got);
    }
}

/* ---- flat buffers: lengths around packs and blocks, aligned and not ---- */

static const int64_t counts[] = {0, 1, 3, 4, 1023, 1024, 1025, 5000};
enum { COUNTS = sizeof counts / sizeof *counts };

Test(kernels_cuda, fill) {
  for (int dtype = 0; dtype < DTYPES; dtype++)
    for (int i = 0; i < COUNTS; i++)
      for (int64_t shift = 0; shift < 2; shift++) {
        int64_t n = counts[i], e = zpk_bytes((zpk_dtype)dtype), all = n + shift + 1;
        char *y = numbers((zpk_dtype)dtype, all, 7), *want = copy_of((zpk_dtype)dtype, y, all);
        zpk_fill((zpk_dtype)dtype, want + shift * e, -2.5, n);
        zpd_flat a = {.y = y + shift * e, .value = -2.5, .count = n};
        launch((zpk_dtype)dtype, "zpd_fill", &a, 3);
        cr_expect_arr_eq(y, want, (size_t)(all * e), "%d elements filled, shift %d", (int)n, (int)shift);
        free(y), free(want);
      }
}

/* Every place of the own part among the others, which are further apart than they are long. */
Test(kernels_cuda, sum_parts) {
  enum { RANKS = 4, N = 700, SLOT = 800 };
  for (int dtype = 0; dtype < DTYPES; dtype++)
    for (int me = 0; me < RANKS; me++) {
      int64_t e = zpk_bytes((zpk_dtype)dtype);
      char *others = numbers((zpk_dtype)dtype, RANKS * SLOT, 8), *mine = numbers((zpk_dtype)dtype, N, 9),
           *want = malloc((size_t)(N * e));
      const void *part[RANKS];
      for (int r = 0; r < RANKS; r++) part[r] = r == me ? mine : others + r * SLOT * e;
      zpk_sum_parts((zpk_dtype)dtype, want, part, RANKS, 0, N);
      zpd_rank_sum a = {.mine = mine, .others = others, .slot = SLOT, .count = N, .n = RANKS, .me = me};
      launch((zpk_dtype)dtype, "zpd_sum_parts", &a, 2);
      cr_expect_arr_eq(mine, want, (size_t)(N * e), "rank %d", me);
      free(others), free(mine), free(want);
    }
}

Test(kernels_cuda, add_chunks) {
  enum { COLS = 700, CHUNKS = 5 };
  for (int dtype = 0; dtype < DTYPES; dtype++)
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      zpk_dtype real = dtype == ZPK_F64 ? ZPK_F64 : ZPK_F32;
      char *partial = numbers(real, CHUNKS * COLS, 8), *want = numbers((zpk_dtype)dtype, COLS, 9);
      void *got = copy_of((zpk_dtype)dtype, want, COLS);
      const void *part[CHUNKS];
      for (int i = 0; i < CHUNKS; i++) part[i] = partial + i * COLS * zpk_bytes(real);
      zpk_sum_partials((zpk_dtype)dtype, accumulate, want, part, CHUNKS, COLS);
      zpd_chunks a = {.partial = partial, .sum = got, .cols = COLS, .chunks = CHUNKS, .accumulate = accumulate};
      launch((zpk_dtype)dtype, "zpd_add_chunks", &a, 2);
      cr_expect_arr_eq(got, want, (size_t)(COLS * zpk_bytes((zpk_dtype)dtype)), "accumulate %d", accumulate);
      free(partial), free(want), free(got);
    }
}

/* The sums of blocks do not depend on where the buffer begins. */
Test(kernels_cuda, sum_squares) {
  enum { BLOCKS = 6 };
  for (int dtype = 0; dtype < DTYPES; dtype++)
    for (int i = 0; i < COUNTS; i++) {
      int64_t n = counts[i], e = zpk_bytes((zpk_dtype)dtype);
      char *x = numbers((zpk_dtype)dtype, n + 1, 10), *shifted = malloc((size_t)((n + 1) * e));
      memcpy(shifted + e, x, (size_t)(n * e));
      double sums[BLOCKS], again[BLOCKS], total = 0, want = zpk_sum_squares((zpk_dtype)dtype, x, 0, n);
      zpd_squares a = {.x = x, .count = n, .sums = sums}, b = {.x = shifted + e, .count = n, .sums = again};
      launch((zpk_dtype)dtype, "zpd_sum_squares", &a, BLOCKS);
      launch((zpk_dtype)dtype, "zpd_sum_squares", &b, BLOCKS);
      for (int block = 0; block < BLOCKS; block++) total += sums[block];
      cr_expect_float_eq(total, want, 1e-14 * want);
      cr_expect_arr_eq(sums, again, sizeof sums);
      free(x), free(shifted);
    }
}

/* ---- optimizer ---- */

static zpd_update device_update(const zpk_update *u, bool decay, const double *scale) {
  return (zpd_update){.kind = u->kind,
                      .decay = decay,
                      .lr = u->lr,
                      .beta1 = u->beta1,
                      .beta2 = u->beta2,
                      .eps = u->eps,
                      .weight_decay = u->weight_decay,
                      .momentum = u->momentum,
                      .bias1 = u->bias1,
                      .bias2 = u->bias2,
                      .grad_scale = scale};
}

enum { N = 300, STEPS = 5 };

/* Steps of the device against f64 formulas. SGD has no second moment, without momentum (PLAIN_SGD) no first one. */
enum { SGD = 2, PLAIN_SGD };
static void optimizer(zpk_dtype dtype, int kind, bool decay) {
  double want_p[N], want_m[N] = {0}, want_v[N] = {0}, p[N], m[N] = {0}, v[N] = {0}, g[N];
  double bound = dtype == ZPK_F64 ? 1e-14 : 2e-7;
  zpk_dtype real = zpk_is_narrow(dtype) ? ZPK_F32 : dtype;
  uint16_t weight[N], rounded[N];
  for (int i = 0; i < N; i++) put(real, p, i, want_p[i] = start(i));
  for (int step = 1; step <= STEPS; step++) {
    zpk_update u = settings(dtype, kind == PLAIN_SGD ? SGD : kind, step);
    if (kind == PLAIN_SGD) u.momentum = 0;
    for (int i = 0; i < N; i++) {
      put(dtype, g, i, gradient(i, step));
      torch_step(&u, decay, step == 1, zpk_is_narrow(dtype) ? get(dtype, g, i) : gradient(i, step), &want_p[i],
                 &want_m[i], &want_v[i]);
    }
    zpd_update a = device_update(&u, decay, &u.grad_scale);
    a.param = p, a.grad = g, a.count = N;
    a.m = kind == PLAIN_SGD ? NULL : m, a.v = kind >= SGD ? NULL : v;
    a.weight = zpk_is_narrow(dtype) ? weight : NULL;
    launch(dtype, "zpd_optimizer", &a, 1 + (unsigned)step % 2);
  }
  for (int i = 0; i < N; i++) {
    cr_expect_float_eq(get(real, p, i), want_p[i], bound, "kind %d element %d", kind, i);
    if (kind != PLAIN_SGD) cr_expect_float_eq(get(real, m, i), want_m[i], 10 * bound);
    cr_expect_float_eq(get(real, v, i), want_v[i], 10 * bound);
  }
  if (!zpk_is_narrow(dtype)) return;
  zpk_round(dtype, (const float *)(const void *)p, rounded, N);
  cr_expect_arr_eq(weight, rounded, sizeof weight, "kind %d: weights are the rounded master copy", kind);
}

Test(kernels_cuda, optimizer) {
  for (int dtype = 0; dtype < DTYPES; dtype++)
    for (int kind = 0; kind <= PLAIN_SGD; kind++) {
      optimizer((zpk_dtype)dtype, kind, true);
      optimizer((zpk_dtype)dtype, kind, false);
    }
}
