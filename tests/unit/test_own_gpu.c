/* What attention of zplan's own GPU trainer computes on tensor cores, tile by tile, against every pair of positions. */
#include <zplan/own_gpu.h>
#include <zplan/zpd.h>
#include "planner_models.h"

static void expect_near(double got, double want, const char *what) {
  cr_expect(fabs(got - want) <= 1e-9 * fabs(want), "%s: %.12g, expected %.12g", what, got, want);
}

/* ---- tiles and walks ---- */

/* The planner says what the kernels are compiled and launched for. */
Test(own_gpu, tiles_are_those_of_the_kernels) {
  static const int blocks[] = {0, 16, 32, 48, 64, 80, 96, 128, 192, 256};
  for (int kind = ZPD_MMA_FORWARD; kind <= ZPD_MMA_GRAD_KV; kind++)
    for (int head = 1; head <= 256; head++)
      for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        zp_attention_tile t = zp_attention_tile_of((zp_tensor_kernel)kind, head, blocks[b]);
        int rows = zpd_mma_rows(kind, head, blocks[b]);
        cr_assert_eq(t.rows, rows, "kernel %d, head %d, block %d: %d rows", kind, head, blocks[b], (int)t.rows);
        cr_assert_eq(t.sharers, zpd_mma_sharers(rows));
        cr_assert_eq(t.step, zpd_mma_step(kind, head, rows));
      }
}

static bool sees(const zp_attention_shape *s, int64_t query, int64_t key) {
  if (query >= s->sequence || key >= s->sequence) return false;
  return s->layout ? zp_layout_sees(s->layout, query, key) : !s->causal || key <= query;
}

/* A warp computes with a part of a step when any of its rows sees any of it. */
static double count_flop(zp_tensor_kernel kernel, const zp_attention_shape *s, int products) {
  zp_attention_tile t = zp_attention_tile_of(kernel, s->head, s->layout ? s->layout->block : 0);
  int64_t rows = t.rows * t.sharers / 4, part = t.step / t.sharers, columns = (s->head + 15) / 16 * 16;
  double pairs = 0;
  for (int64_t mine = 0; mine < s->sequence; mine += rows)
    for (int64_t other = 0; other < s->sequence; other += part) {
      bool any = false;
      for (int64_t i = 0; i < rows && !any; i++)
        for (int64_t j = 0; j < part && !any; j++)
          any = kernel == ZP_TENSOR_GRAD_KV ? sees(s, other + j, mine + i) : sees(s, mine + i, other + j);
      pairs += any ? (double)(rows * part) : 0;
    }
  return pairs * 2 * (double)columns * products * (double)(s->samples * s->heads);
}

static const int64_t heads[] = {16, 40, 64, 80, 128, 256};
enum { N_HEADS = sizeof heads / sizeof *heads };

static void check_walk(const zp_attention_shape *s, const char *what) {
  static const int products[] = {2, 3, 4};
  for (int k = ZP_TENSOR_FORWARD; k <= ZP_TENSOR_GRAD_KV; k++) {
    zp_attention_walk walk = zp_attention_walk_of((zp_tensor_kernel)k, s);
    int n = k == ZP_TENSOR_GRAD_KV && s->head > 128 ? 5 : products[k];
    expect_near(walk.flop, count_flop((zp_tensor_kernel)k, s, n), what);
    cr_expect(walk.waited_flop >= walk.flop, "%s, kernel %d: %g below %g", what, k, walk.waited_flop, walk.flop);
    cr_expect(walk.longest_flop * walk.blocks >= walk.waited_flop * (1 - 1e-12));
  }
}

Test(own_gpu, dense_walks_are_counted_pair_by_pair) {
  static const int64_t sequences[] = {1, 63, 64, 65, 200, 256, 300};
  for (int h = 0; h < N_HEADS; h++)
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++)
      for (int causal = 0; causal < 2; causal++) {
        zp_attention_shape s = {2, 4, 2, sequences[i], heads[h], heads[h], 2, causal, NULL};
        char what[64];
        snprintf(what, sizeof what, "%d positions, heads of %d", (int)s.sequence, (int)s.head);
        check_walk(&s, what);
      }
}

Test(own_gpu, sparse_walks_are_counted_pair_by_pair) {
  zp_arena *arena = zp_arena_new("test");
  static const zp_sparse patterns[] = {
      {.kind = ZP_SPARSE_SLIDING, .block = 16, .window = 3},
      {.kind = ZP_SPARSE_BIGBIRD, .block = 32, .window = 3, .global = 1, .random = 1, .seed = 5},
      {.kind = ZP_SPARSE_STRIDED, .block = 64, .local = 1, .stride = 3},
      {.kind = ZP_SPARSE_FIXED, .block = 48, .local = 2, .global = 1},
      {.kind = ZP_SPARSE_SLIDING, .block = 128, .window = 1},
  };
  for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
    for (int causal = 0; causal < 2; causal++) {
      const char *error = NULL;
      const zp_layout *layout = zp_layout_make(arena, &patterns[p], 768, causal, &error);
      cr_assert(layout, "%s", error);
      for (int h = 0; h < N_HEADS; h++) {
        zp_attention_shape s = {1, 2, 2, 768, heads[h], heads[h], 2, causal, layout};
        check_walk(&s, zp_layout_text(arena, layout));
      }
    }
  zp_arena_free(arena);
}

/* Two heads of 64, 256 queries: warps of 32 meet 1, 1, 2, 2, 3, 3, 4, 4 steps of 64 keys (the emulated GPU counts as
 * many multiplications, test_kernels_cuda_mma.c); blocks of four warps wait for 2 and 4 steps. */
Test(own_gpu, a_walk_by_hand) {
  zp_attention_shape s = {1, 2, 1, 256, 64, 64, 2, true, NULL};
  zp_attention_walk walk = zp_attention_walk_of(ZP_TENSOR_FORWARD, &s);
  double pair = 4.0 * 64;
  expect_near(walk.flop, 2 * 20 * 32 * 64 * pair, "computed");
  expect_near(walk.waited_flop, 2 * (2 + 4) * 64 * 128 * pair, "waited for");
  expect_near(walk.longest_flop, 4 * 64 * 128 * pair, "the longest block");
  expect_near(walk.blocks, 4, "blocks");
}
