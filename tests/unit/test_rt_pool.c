/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a rank: every element exactly once, whatever the sizes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "state.h"

static void open_pool(zpr *c, int threads, bool spin) {
  *c = (zpr){.ranks = 1};
  c->state = zpr_alloc(c, 1, sizeof *c->state);
  zpr_pool_start(c, threads, spin);
}

static void close_pool(zpr *c) {
  zpr_pool_stop(c);
  free(c->state);
}

typedef struct marks {
  int grain;
  int *hits;
  bool wrong_worker, unaligned;
} marks;

static void mark(void *arg, int64_t begin, int64_t end, int worker) {
  marks *m = arg;
  if (worker < 0 || worker >= ZPR_MAX_WORKERS) m->wrong_worker = true;
  if (begin % m->grain != 0) m->unaligned = true;
  for (int64_t i = begin; i < end; i++) m->hits[i]++;
}

static void check_pool(int threads, bool spin) {
  zpr c;
  open_pool(&c, threads, spin);
  cr_assert_eq(zpr_threads(&c), threads);
  for (int grain = 1; grain <= 7; grain += 3)
    for (int count = 0; count < 60; count++) {
      int hits[60] = {0};
      marks m = {.grain = grain, .hits = hits};
      zpr_parallel(&c, count, grain, mark, &m);
      for (int i = 0; i < 60; i++) cr_assert_eq(hits[i], i < count, "element %d of %d", i, count);
      cr_assert(!m.wrong_worker && !m.unaligned);
    }
  close_pool(&c);
}

Test(pool, one_thread) { check_pool(1, false); }
Test(pool, two_threads_that_spin) { check_pool(2, true); }
Test(pool, most_threads_that_sleep) { check_pool(ZPR_MAX_WORKERS, false); }

/* A row kernel that stores column sums of its rows; two columns. */
static void sum_rows(const zpk_row_args *args, int64_t begin, int64_t end, int64_t chunk) {
  const float *x = args->in[0];
  float *sum = (float *)args->partial[0] + 2 * chunk;
  sum[0] = sum[1] = 0;
  for (int64_t r = begin; r < end; r++)
    for (int k = 0; k < 2; k++) sum[k] += x[r * 2 + k];
}

static void check_rows(int threads, int64_t rows, bool accumulate, float out[2]) {
  zpr c;
  zpr_program program = {.dtype = ZPK_F32, .tensor = 1, .pipeline = 1, .data = 1};
  zpr_stage stage = {.arena_bytes = 256};
  program.stages = &stage;
  zpr_options options = zpr_default_options;
  options.threads = threads;
  int argc = 0;
  char **argv = NULL;
  zpr_open(&c, &program, &options, &argc, &argv);
  float x[200], workspace[ZPK_CHUNKS * 2];
  for (int i = 0; i < 200; i++) x[i] = 1.0f / (float)(i + 3);
  memset(workspace, 0xFF, sizeof workspace); /* NaN: an unused chunk must not be added */
  const void *in = x;
  void *sum = out;
  int64_t ld = 2, cols = 2;
  zpr_rows_call call = {.kernel = sum_rows,
                        .rows = rows,
                        .in = &in,
                        .in_ld = &ld,
                        .n_sums = 1,
                        .sum_cols = &cols,
                        .sum = &sum,
                        .accumulate = &accumulate,
                        .workspace = workspace};
  zpr_rows(&c, &call);
  zpr_close(&c);
}

Test(pool, column_sums_do_not_depend_on_threads) {
  static const int64_t rows[] = {1, 3, 8, 9, 100};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    float one[2], three[2], more[2] = {10, 20};
    check_rows(1, rows[i], false, one);
    check_rows(3, rows[i], false, three);
    check_rows(1, rows[i], true, more);
    cr_assert_arr_eq(one, three, sizeof one);
    cr_assert_float_eq(more[0], one[0] + 10, 1e-5);
    cr_assert_float_eq(more[1], one[1] + 20, 1e-5);
  }
}
