/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, f32 on all cores, forward and backward. Rows: attention_forward_256x64, the rate for sequences of 256
 * positions and heads of 64, causal, over lengths and head sizes; sparse_attention_forward_64x32, that of pairs of
 * blocks of 64 positions and heads of 32, over sizes of blocks and heads. */
#include <math.h>
#include <stdlib.h>
#include "calibrate.h"

static const int64_t lengths[] = {32, 64, 128, 256, 1024}, heads[] = {32, 64, 128};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, N_HEADS = sizeof heads / sizeof *heads };
static const int64_t blocks[] = {16, 32, 64, 128};
enum { N_BLOCKS = sizeof blocks / sizeof *blocks };
enum { DENSE = N_LENGTHS * N_HEADS, SPARSE = N_BLOCKS * N_HEADS, SHAPES = DENSE + SPARSE };
enum { WIDTH = 384, ROWS = 1024, TENSORS = 8 };
/* Every block sees itself and NEIGHBOURS before it, once there are so many. */
enum { NEIGHBOURS = 3, MOST_BLOCKS = ROWS / 16 };

typedef struct band {
  int32_t first[MOST_BLOCKS + 1];
  zpk_run keys[MOST_BLOCKS], queries[MOST_BLOCKS];
  zpk_layout layout;
  int64_t pairs;
} band;

typedef struct attention {
  zpr *c;
  zpk_attention_args args;
} attention;

static void forward(void *arg) {
  const attention *a = arg;
  zpr_attention(a->c, &a->args);
}
static void backward(void *arg) {
  const attention *a = arg;
  zpr_attention_grad(a->c, &a->args);
}

static int64_t workspace_bytes(void) {
  int64_t most = 0;
  for (int i = 0; i < SHAPES; i++)
    for (int pass = 0; pass < 2; pass++) {
      int64_t length = i < DENSE ? lengths[i / N_HEADS] : ROWS;
      int64_t bytes = zpk_attention_workspace(ZPK_F32, length, heads[i % N_HEADS], 1, pass == 1);
      if (bytes > most) most = bytes;
    }
  return most * ZPR_MAX_WORKERS;
}

static void make_band(band *b, int64_t block) {
  int n = (int)(ROWS / block);
  b->pairs = 0;
  for (int i = 0; i < n; i++) {
    b->first[i] = i;
    b->keys[i] = (zpk_run){i > NEIGHBOURS ? i - NEIGHBOURS : 0, i + 1};
    b->queries[i] = (zpk_run){i, i + NEIGHBOURS < n ? i + NEIGHBOURS + 1 : n};
    b->pairs += b->keys[i].end - b->keys[i].first;
  }
  b->first[n] = n;
  b->layout = (zpk_layout){.block = block, .keys = {b->first, b->keys}, .queries = {b->first, b->queries}};
}

static zpk_attention_args arguments(int64_t length, int64_t head, float *const *x, float *lse, void *workspace) {
  return (zpk_attention_args){.dtype = ZPK_F32,
                              .B = ROWS / length,
                              .S = length,
                              .H = WIDTH / head,
                              .G = WIDTH / head,
                              .hd = head,
                              .kv_heads_valid = WIDTH / head,
                              .scale = 1 / sqrt((double)head),
                              .causal = true,
                              .q = x[0],
                              .k = x[1],
                              .v = x[2],
                              .q_ld = WIDTH,
                              .k_ld = WIDTH,
                              .v_ld = WIDTH,
                              .o = x[3],
                              .o_ld = WIDTH,
                              .lse = lse,
                              .d_o = x[4],
                              .d_o_ld = WIDTH,
                              .dq = x[5],
                              .dk = x[6],
                              .dv = x[7],
                              .dq_ld = WIDTH,
                              .dk_ld = WIDTH,
                              .dv_ld = WIDTH,
                              .workspace = workspace};
}

/* As the planner counts: 4 d for a pair of positions of whole pairs of blocks, 2.5 times that backward. */
static void put_sparse_rate(const attention *a, const band *b, const char *pass, double factor, double seconds) {
  char name[64];
  double flop = factor * 4 * WIDTH * (double)b->pairs * (double)b->layout.block * (double)b->layout.block;
  snprintf(name, sizeof name, "sparse_attention_%s_%dx%d", pass, (int)b->layout.block, (int)a->args.hd);
  put_row(name, flop / seconds, "FLOP/s", "causal, %d positions, %d blocks seen, %d heads of %d", ROWS, NEIGHBOURS + 1,
          (int)a->args.H, (int)a->args.hd);
}

/* As the planner counts: 2 B S^2 d forward when causal, 2.5 times that backward. */
static void put_rate(const attention *a, const char *pass, double factor, double seconds) {
  char name[64];
  double flop = factor * 2 * ROWS * (double)a->args.S * WIDTH;
  snprintf(name, sizeof name, "attention_%s_%dx%d", pass, (int)a->args.S, (int)a->args.hd);
  put_row(name, flop / seconds, "FLOP/s", "causal, %d x %d positions, %d heads of %d", (int)a->args.B, (int)a->args.S,
          (int)a->args.H, (int)a->args.hd);
}

void measure_attention(zpr *c, double budget_s) {
  const int64_t bytes = (int64_t)ROWS * WIDTH * (int64_t)sizeof(float), work_bytes = workspace_bytes();
  float *x[TENSORS];
  for (int i = 0; i < TENSORS; i++) x[i] = touched(bytes);
  for (int64_t i = 0; i < ROWS * WIDTH; i++)
    for (int k = 0; k < 3; k++) x[k][i] = (float)((i * 7919 + k) % 101) / 101 - 0.5f;
  float *lse = touched(bytes);
  void *workspace = touched(work_bytes);
  attention list[SHAPES];
  timing timings[2 * SHAPES];
  static band bands[N_BLOCKS];
  for (int i = 0; i < N_BLOCKS; i++) make_band(&bands[i], blocks[i]);
  for (int i = 0; i < SHAPES; i++) {
    int64_t length = i < DENSE ? lengths[i / N_HEADS] : ROWS;
    list[i] = (attention){c, arguments(length, heads[i % N_HEADS], x, lse, workspace)};
    if (i >= DENSE) list[i].args.layout = &bands[(i - DENSE) / N_HEADS].layout;
    timings[2 * i] = (timing){.work = forward, .arg = &list[i], .warm = true};
    timings[2 * i + 1] = (timing){.work = backward, .arg = &list[i], .warm = true};
  }
  time_in_turns(timings, 2 * SHAPES, budget_s);
  for (int i = 0; i < DENSE; i++) {
    put_rate(&list[i], "forward", 1, timings[2 * i].seconds);
    put_rate(&list[i], "backward", 2.5, timings[2 * i + 1].seconds);
  }
  for (int i = DENSE; i < SHAPES; i++) {
    const band *b = &bands[(i - DENSE) / N_HEADS];
    put_sparse_rate(&list[i], b, "forward", 1, timings[2 * i].seconds);
    put_sparse_rate(&list[i], b, "backward", 2.5, timings[2 * i + 1].seconds);
  }
  for (int i = 0; i < TENSORS; i++) give_back(x[i], bytes);
  give_back(lse, bytes);
  give_back(workspace, work_bytes);
}
