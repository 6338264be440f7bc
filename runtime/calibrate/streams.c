/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a step, f32 on all cores: norm and optimizer over flat buffers that no cache holds, cut into the blocks of
 * the trainer's update. */
#include <stdlib.h>
#include "calibrate.h"
#include "device.h"

/* Whole blocks of the update. The arrays do not start at the same place of a page, nor do those of a trainer. */
enum { STREAM_BYTES = 125 << 20, APART = STREAM_BYTES + 5 * 4096 + 256, ARRAYS = 4 };

typedef struct streams {
  zpr *c;
  float *x[ARRAYS]; /* parameters, gradients, two moments */
  int64_t count;
  double *squares;
} streams;

static void update_range(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const streams *s = arg;
  zpk_update u = {.dtype = ZPK_F32,
                  .lr = 1e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .bias1 = 0.1,
                  .bias2 = 0.05,
                  .grad_scale = 1};
  zpk_optimizer(&u, s->x[0], s->x[1], (void *[]){s->x[2], s->x[3]}, begin, end);
}
static void update(void *arg) {
  streams *s = arg;
  zpr_parallel(s->c, s->count, zpr_block_elements, update_range, s);
}

static void square_range(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const streams *s = arg;
  for (int64_t at = begin; at < end; at += zpr_block_elements)
    s->squares[at / zpr_block_elements] = zpk_sum_squares(ZPK_F32, s->x[1], at, at + zpr_block_elements);
}
static void norm(void *arg) {
  streams *s = arg;
  zpr_parallel(s->c, s->count, zpr_block_elements, square_range, s);
}

void measure_streams(zpr *c, double budget_s) {
  streams s = {.c = c, .count = STREAM_BYTES / (int64_t)sizeof(float)};
  char *memory = touched((int64_t)ARRAYS * APART);
  for (int i = 0; i < ARRAYS; i++) s.x[i] = (float *)(void *)(memory + (int64_t)i * APART);
  int64_t squares_bytes = s.count / zpr_block_elements * (int64_t)sizeof(double);
  s.squares = touched(squares_bytes);
  timing timings[] = {{.work = update, .arg = &s}, {.work = norm, .arg = &s}};
  time_in_turns(timings, 2, budget_s);
  double size = STREAM_BYTES;
  put_row("update_bytes_per_s", 7 * size / timings[0].seconds, "B/s",
          "AdamW: four arrays of %d MiB read, three written", STREAM_BYTES >> 20);
  put_row("norm_bytes_per_s", size / timings[1].seconds, "B/s", "sum of squares of %d MiB", STREAM_BYTES >> 20);
  give_back(memory, (int64_t)ARRAYS * APART);
  give_back(s.squares, squares_bytes);
}
