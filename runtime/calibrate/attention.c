/* Attention, f32 on all cores, forward and backward, over lengths and head sizes. Rows:
 * attention_forward_256x64, the rate for sequences of 256 positions and heads of 64, causal. */
#include <math.h>
#include <stdlib.h>
#include "calibrate.h"

static const int64_t lengths[] = {32, 64, 128, 256, 1024}, heads[] = {32, 64, 128};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, N_HEADS = sizeof heads / sizeof *heads };
enum { SHAPES = N_LENGTHS * N_HEADS, WIDTH = 384, ROWS = 1024, TENSORS = 8 };

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
      int64_t bytes = zpk_attention_workspace(ZPK_F32, lengths[i / N_HEADS], heads[i % N_HEADS], pass == 1);
      if (bytes > most) most = bytes;
    }
  return most * ZPR_MAX_WORKERS;
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
  for (int i = 0; i < SHAPES; i++) {
    list[i] = (attention){c, arguments(lengths[i / N_HEADS], heads[i % N_HEADS], x, lse, workspace)};
    timings[2 * i] = (timing){.work = forward, .arg = &list[i], .warm = true};
    timings[2 * i + 1] = (timing){.work = backward, .arg = &list[i], .warm = true};
  }
  time_in_turns(timings, 2 * SHAPES, budget_s);
  for (int i = 0; i < SHAPES; i++) {
    put_rate(&list[i], "forward", 1, timings[2 * i].seconds);
    put_rate(&list[i], "backward", 2.5, timings[2 * i + 1].seconds);
  }
  for (int i = 0; i < TENSORS; i++) give_back(x[i], bytes);
  give_back(lse, bytes);
  give_back(workspace, work_bytes);
}
