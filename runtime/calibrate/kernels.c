/* Everything of a step that is no product and no message, f32 on all cores: streams through memory, a row kernel, the
 * optimizer, attention, and what it costs to start a task. */
#include <math.h>
#include <stdlib.h>
#include "calibrate.h"
#include "clones.h"

enum { STREAM_BYTES = 64 << 20, ROWS = 4096, COLS = 768, HEADS = 12, SAMPLES = 4, SEQUENCE = 256 };

/* ---- starting a task ---- */

static void nothing(void *arg, int64_t begin, int64_t end, int worker) {
  (void)arg, (void)begin, (void)end, (void)worker;
}
static void start_tasks(void *arg) {
  for (int i = 0; i < 1000; i++) zpr_parallel(arg, ZPR_MAX_WORKERS, 1, nothing, NULL);
}

/* ---- streams ---- */

typedef struct streams {
  zpr *c;
  float *x[4];
  int64_t count;
} streams;

static void copy(void *arg) {
  const streams *s = arg;
  zpr_copy(s->c, s->x[0], s->x[1], s->count * (int64_t)sizeof(float));
}

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
  zpk_optimizer(&u, true, s->x[0], s->x[1], s->x[2], s->x[3], begin, end);
}
static void update(void *arg) { zpr_parallel(((streams *)arg)->c, ((streams *)arg)->count, 4096, update_range, arg); }

/* ---- a row kernel: layer norm, the commonest shape of generated kernels: a row is read twice and written once ---- */

ZPK_CLONES static void norm_rows(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const streams *s = arg;
  for (int64_t r = begin; r < end; r++) {
    const float *x = s->x[0] + r * COLS;
    float *y = s->x[1] + r * COLS, sum = 0, squares = 0;
    for (int j = 0; j < COLS; j++) sum += x[j]; /* sums in any order: see CMakeLists.txt */
    for (int j = 0; j < COLS; j++) squares += (x[j] - sum / COLS) * (x[j] - sum / COLS);
    float scale = 1 / sqrtf(squares / COLS + 1e-5f), mean = sum / COLS;
    for (int j = 0; j < COLS; j++) y[j] = (x[j] - mean) * scale;
  }
}
static void norm(void *arg) { zpr_parallel(((streams *)arg)->c, ROWS, 1, norm_rows, arg); }

static void measure_streams(zpr *c, double budget_s) {
  streams s = {.c = c, .count = STREAM_BYTES / (int64_t)sizeof(float)};
  for (int i = 0; i < 4; i++) s.x[i] = touched(STREAM_BYTES);
  double size = STREAM_BYTES;
  put_row("copy_bytes_per_s", 2 * size / time_call(copy, &s, budget_s), "B/s", "%d MiB read and written",
          STREAM_BYTES >> 20);
  put_row("update_bytes_per_s", 7 * size / time_call(update, &s, budget_s), "B/s",
          "AdamW: four arrays of %d MiB read, three written", STREAM_BYTES >> 20);
  double row_bytes = 2.0 * ROWS * COLS * sizeof(float);
  put_row("row_bytes_per_s", row_bytes / time_call(norm, &s, budget_s), "B/s",
          "layer norm of %d x %d, read and written", ROWS, COLS);
  for (int i = 0; i < 4; i++) free(s.x[i]);
}

/* ---- attention ---- */

typedef struct attention {
  zpr *c;
  zpk_attention_args args;
} attention;

static void forward_backward(void *arg) {
  attention *a = arg;
  zpr_attention(a->c, &a->args);
  zpr_attention_grad(a->c, &a->args);
}

static void measure_attention(zpr *c, double budget_s) {
  int64_t elements = (int64_t)SAMPLES * SEQUENCE * COLS, hd = COLS / HEADS;
  float *x[8];
  for (int i = 0; i < 8; i++) x[i] = touched(elements * (int64_t)sizeof(float));
  for (int64_t i = 0; i < elements; i++)
    for (int k = 0; k < 3; k++) x[k][i] = (float)((i * 7919 + k) % 101) / 101 - 0.5f;
  void *lse = touched((int64_t)SAMPLES * SEQUENCE * HEADS * (int64_t)sizeof(float));
  int64_t share = zpk_attention_workspace(ZPK_F32, SEQUENCE, hd, 1, true);
  if (zpk_attention_workspace(ZPK_F32, SEQUENCE, hd, 1, false) > share)
    share = zpk_attention_workspace(ZPK_F32, SEQUENCE, hd, 1, false);
  void *workspace = touched(share * ZPR_MAX_WORKERS);
  attention a = {c,
                 {.dtype = ZPK_F32,
                  .B = SAMPLES,
                  .S = SEQUENCE,
                  .H = HEADS,
                  .G = HEADS,
                  .hd = hd,
                  .kv_heads_valid = HEADS,
                  .scale = 1 / sqrt((double)hd),
                  .causal = true,
                  .q = x[0],
                  .k = x[1],
                  .v = x[2],
                  .q_ld = COLS,
                  .k_ld = COLS,
                  .v_ld = COLS,
                  .o = x[3],
                  .o_ld = COLS,
                  .lse = lse,
                  .d_o = x[4],
                  .d_o_ld = COLS,
                  .dq = x[5],
                  .dk = x[6],
                  .dv = x[7],
                  .dq_ld = COLS,
                  .dk_ld = COLS,
                  .dv_ld = COLS,
                  .workspace = workspace}};
  /* As the planner counts: 2 B S^2 d forward when causal, 2.5 times that backward. */
  double flop = 3.5 * 2 * SAMPLES * (double)SEQUENCE * SEQUENCE * COLS;
  put_row("attention_flop_per_s", flop / time_call(forward_backward, &a, budget_s), "FLOP/s",
          "causal, %d x %d positions, %d heads of %d, forward and backward", SAMPLES, SEQUENCE, HEADS, (int)hd);
  for (int i = 0; i < 8; i++) free(x[i]);
  free(lse);
  free(workspace);
}

void measure_kernels(double budget_s) {
  zpr_program program = {.dtype = ZPK_F32, .tensor = 1, .pipeline = 1, .data = 1};
  zpr c;
  open_rank(&c, &program, 0);
  put_row("task_s", time_call(start_tasks, &c, budget_s / 8) / 1000, "s", "an empty task on all threads");
  measure_streams(&c, budget_s / 5);
  measure_attention(&c, budget_s / 5);
  zpr_close(&c);
}
