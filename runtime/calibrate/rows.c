/* SPDX-License-Identifier: Apache-2.0 */
/* Row kernels, f32 on all cores, as generated ones are: what a call takes by the bytes that it moves, and by its
 * arithmetic where that is more.
 *
 * Bytes: layer norm, a row is read twice and written once. The output of a call is the input of the next one, on a ring
 * of ARRAYS: as in a training step, an input is what was computed last, and an output's memory was used some steps ago.
 * Arithmetic: GELU with a bias, and its gradient, on arrays that stay in the caches. */
#include <math.h>
#include <stdlib.h>
#include "calibrate.h"
#include "clones.h"
#include "exp.h"

enum { COLS = 1024, ARRAYS = 16, MATH_ROWS = 256 };
/* Bytes read and written by a call. */
static const int64_t sizes[] = {128 << 10, 1 << 20, 8 << 20, 64 << 20};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct rows_call {
  zpr *c;
  int64_t rows;
  int arrays, calls, turn;
  float *ring, *x, *y, *dy;
  float sums[ZPR_MAX_WORKERS][COLS];
} rows_call;

/* ---- bytes ---- */

ZPK_CLONES static void norm_rows(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const rows_call *call = arg;
  for (int64_t r = begin; r < end; r++) {
    const float *x = call->x + r * COLS;
    float *y = call->y + r * COLS, sum = 0, squares = 0;
    for (int j = 0; j < COLS; j++) sum += x[j]; /* sums in any order: see CMakeLists.txt */
    for (int j = 0; j < COLS; j++) squares += (x[j] - sum / COLS) * (x[j] - sum / COLS);
    float scale = 1 / sqrtf(squares / COLS + 1e-5f), mean = sum / COLS;
    for (int j = 0; j < COLS; j++) y[j] = (x[j] - mean) * scale;
  }
}

static void norm(void *arg) {
  rows_call *call = arg;
  for (int i = 0; i < call->calls; i++, call->turn++) {
    call->x = call->ring + call->turn % call->arrays * call->rows * COLS;
    call->y = call->ring + (call->turn + 1) % call->arrays * call->rows * COLS;
    zpr_parallel(call->c, call->rows, 1, norm_rows, call);
  }
}

/* ---- arithmetic ---- */

/* y = gelu(x + b), approximate = "tanh". tanh(z) = 1 - 2 / (1 + exp(2 z)). */
static inline float tanh_of(float z) { return 1 - 2 / (1 + zpk_exp_f32(2 * z)); }

static const float root = 0.7978845608f, cubic = 0.044715f; /* sqrt(2 / pi) */

ZPK_CLONES static void gelu_rows(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const rows_call *call = arg;
  for (int64_t r = begin; r < end; r++) {
    const float *restrict x = call->x + r * COLS, *restrict bias = call->dy;
    float *restrict y = call->y + r * COLS;
    for (int j = 0; j < COLS; j++) {
      float a = x[j] + bias[j], z = root * a * (1 + cubic * a * a);
      y[j] = 0.5f * a * (1 + tanh_of(z));
    }
  }
}

/* dx and the column sums of dx, which are the gradient of b. */
ZPK_CLONES static void gelu_grad_rows(void *arg, int64_t begin, int64_t end, int worker) {
  rows_call *call = arg;
  float *restrict sum = call->sums[worker];
  for (int64_t r = begin; r < end; r++) {
    const float *restrict x = call->x + r * COLS, *restrict dy = call->dy + r * COLS;
    float *restrict dx = call->y + r * COLS;
    for (int j = 0; j < COLS; j++) {
      float a = x[j], z = root * a * (1 + cubic * a * a), t = tanh_of(z);
      dx[j] = dy[j] * (0.5f * (1 + t) + 0.5f * a * (1 - t * t) * root * (1 + 3 * cubic * a * a));
      sum[j] += dx[j];
    }
  }
}

static void gelu(void *arg) {
  rows_call *call = arg;
  for (int i = 0; i < call->calls; i++) zpr_parallel(call->c, call->rows, 1, gelu_rows, call);
}
static void gelu_grad(void *arg) {
  rows_call *call = arg;
  for (int i = 0; i < call->calls; i++) zpr_parallel(call->c, call->rows, 1, gelu_grad_rows, call);
}

/* ---- both ---- */

static const char *show_bytes(int64_t bytes, char text[static 32]) {
  bool mega = bytes >= 1 << 20;
  snprintf(text, 32, "%d %s", (int)(mega ? bytes >> 20 : bytes >> 10), mega ? "MiB" : "KiB");
  return text;
}

void measure_rows(zpr *c, double budget_s) {
  enum { WORKS = N_SIZES + 2, PASSES = 4 };
  const int64_t array_bytes = sizes[N_SIZES - 1] / 2, row_bytes = COLS * (int64_t)sizeof(float);
  const int largest_arrays = 4; /* no cache holds as many of the largest size */
  float *ring = touched(largest_arrays * array_bytes);
  rows_call *calls = touched(WORKS * (int64_t)sizeof *calls);
  timing timings[WORKS];
  for (int i = 0; i < N_SIZES; i++) {
    calls[i] = (rows_call){.c = c, .rows = sizes[i] / 2 / row_bytes, .arrays = ARRAYS, .calls = ARRAYS, .ring = ring};
    if (i == N_SIZES - 1) calls[i].arrays = calls[i].calls = largest_arrays;
    timings[i] = (timing){.work = norm, .arg = &calls[i], .warm = i < N_SIZES - 1};
  }
  for (int i = N_SIZES; i < WORKS; i++) {
    calls[i] = (rows_call){.c = c, .rows = MATH_ROWS, .calls = PASSES, .x = ring};
    calls[i].dy = ring + MATH_ROWS * COLS;
    calls[i].y = ring + 2 * MATH_ROWS * COLS;
    timings[i] = (timing){.work = i == N_SIZES ? gelu : gelu_grad, .arg = &calls[i], .warm = true};
  }
  time_in_turns(timings, WORKS, budget_s);
  for (int i = 0; i < N_SIZES; i++) {
    char name[64], text[32];
    snprintf(name, sizeof name, "row_bytes_per_s_%lld", (long long)sizes[i]);
    put_row(name, (double)sizes[i] * calls[i].calls / timings[i].seconds, "B/s",
            "layer norm, a call reads and writes %s, on a ring of %d arrays", show_bytes(sizes[i], text),
            calls[i].arrays);
  }
  /* As the planner counts: 17 FLOP an element forward, three times as much backward. */
  double elements = (double)MATH_ROWS * COLS * PASSES;
  put_row("row_flop_per_s", 17 * elements / timings[N_SIZES].seconds, "FLOP/s", "bias and GELU of %d x %d", MATH_ROWS,
          COLS);
  put_row("row_grad_flop_per_s", 3 * 17 * elements / timings[N_SIZES + 1].seconds, "FLOP/s",
          "gradient of bias and GELU of %d x %d", MATH_ROWS, COLS);
  give_back(ring, largest_arrays * array_bytes);
  give_back(calls, WORKS * (int64_t)sizeof *calls);
}
