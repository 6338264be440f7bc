/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward of dense and of block-sparse attention in turn, on one thread: f32, causal, 4 heads of 64, one
 * sample.
 *
 *   sparse_attention [ROUNDS [MOST POSITIONS]]
 *
 * Prints median milliseconds of both, their ratio, and what the share of pairs that are seen would make of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zplan/sparse.h>
#include <zplan/zpk.h>

enum { HEADS = 4, HEAD = 64, WIDTH = HEADS * HEAD, TENSORS = 8, MOST_ROUNDS = 99 };

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(size_t bytes) {
  void *p = calloc(1, bytes);
  if (!p) exit(1);
  return p;
}

static double run_s(const zpk_attention_args *args) {
  double start = now_s();
  zpk_attention(args, 0, HEADS, 0);
  zpk_attention_grad(args, 0, HEADS, 0);
  return now_s() - start;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, by_value);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* The list in the kernels' own types. */
static zpk_block_list kernel_list(zp_arena *arena, const zp_block_list *list, int n) {
  zpk_run *run = ZP_NEW_ARRAY(arena, zpk_run, list->first[n]);
  for (int r = 0; r < list->first[n]; r++) run[r] = (zpk_run){list->run[r].first, list->run[r].end};
  return (zpk_block_list){list->first, run};
}

static void compare(zp_arena *arena, const zp_sparse *sparse, int64_t length, int rounds) {
  const char *error;
  const zp_layout *layout = zp_layout_make(arena, sparse, HEADS, length, true, &error);
  if (!layout) {
    fprintf(stderr, "%s\n", error);
    exit(1);
  }
  zpk_layout blocks = {.block = layout->block,
                       .keys = kernel_list(arena, &layout->set->keys, layout->n),
                       .queries = kernel_list(arena, &layout->set->queries, layout->n)};
  size_t elements = (size_t)length * WIDTH;
  float *x[TENSORS], *lse = memory((size_t)length * HEADS * sizeof(float));
  for (int i = 0; i < TENSORS; i++) x[i] = memory(elements * sizeof(float));
  for (size_t i = 0; i < elements; i++)
    for (int k = 0; k < 4; k++) x[k][i] = (float)((i * 7919 + (size_t)k * 31) % 101) / 101 - 0.5f;
  int64_t forward = zpk_attention_workspace(ZPK_F32, length, HEAD, 1, false),
          backward = zpk_attention_workspace(ZPK_F32, length, HEAD, 1, true);
  void *workspace = memory((size_t)(forward > backward ? forward : backward));
  zpk_attention_args dense = {.dtype = ZPK_F32,
                              .B = 1,
                              .S = length,
                              .H = HEADS,
                              .G = HEADS,
                              .hd = HEAD,
                              .kv_heads_valid = HEADS,
                              .scale = 1 / sqrt(HEAD),
                              .causal = true,
                              .q = x[0],
                              .k = x[1],
                              .v = x[2],
                              .d_o = x[3],
                              .o = x[4],
                              .lse = lse,
                              .dq = x[5],
                              .dk = x[6],
                              .dv = x[7],
                              .q_ld = WIDTH,
                              .k_ld = WIDTH,
                              .v_ld = WIDTH,
                              .o_ld = WIDTH,
                              .d_o_ld = WIDTH,
                              .dq_ld = WIDTH,
                              .dk_ld = WIDTH,
                              .dv_ld = WIDTH,
                              .workspace = workspace};
  zpk_attention_args some = dense;
  some.layout = &blocks;
  double of_dense[MOST_ROUNDS], of_some[MOST_ROUNDS];
  run_s(&some);
  for (int r = 0; r < rounds; r++) {
    of_dense[r] = run_s(&dense);
    of_some[r] = run_s(&some);
  }
  double d = median(of_dense, rounds), s = median(of_some, rounds);
  printf("%6lld  %-62s %9.1f %9.1f   %6.2f   %6.2f\n", (long long)length, zp_sparse_text(arena, sparse), d * 1e3,
         s * 1e3, d / s, 1 / zp_layout_density(layout));
  fflush(stdout);
  for (int i = 0; i < TENSORS; i++) free(x[i]);
  free(lse);
  free(workspace);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 5;
  int64_t most = argc > 2 ? atoll(argv[2]) : 8192;
  if (rounds < 1 || rounds > MOST_ROUNDS || most < 1024) {
    fprintf(stderr, "usage: sparse_attention [ROUNDS [MOST POSITIONS]], at most %d rounds, at least 1024 positions\n",
            MOST_ROUNDS);
    return 2;
  }
  zp_arena *arena = zp_arena_new("bench");
  zp_ints first = {0};
  zp_push(arena, &first, 0);
  const zp_sparse patterns[] = {
      {.kind = ZP_SPARSE_FIXED, .block = 16, .local = 4, .global = 1, .patterns = 1}, /* DeepSpeed's default */
      {.kind = ZP_SPARSE_FIXED, .block = 64, .local = 4, .global = 1, .patterns = 1},
      {.kind = ZP_SPARSE_LONGFORMER, .block = 64, .window = 15, .globals = first},
      {.kind = ZP_SPARSE_BIGBIRD, .block = 64, .window = 3, .global = 1, .random = 1},
  };
  printf("%6s  %-62s %9s %9s   %6s   %6s\n", "length", "pattern, causal; forward and backward", "dense ms", "sparse ms",
         "ratio", "pairs");
  for (int64_t length = 1024; length <= most; length *= 2)
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) compare(arena, &patterns[i], length, rounds);
  zp_arena_free(arena);
  return 0;
}
