/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of zplan's own GPU trainer against hand counts: what attention on tensor cores computes, tile by tile, against
 * every pair of positions; seconds of one layer of GPT-2 124M from its shapes; which rate an arch has. */
#include <zplan/constants.h>
#include <zplan/cost.h>
#include <zplan/own_gpu.h>
#include <zplan/zpd_mma_geometry.h>
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

static int64_t keys_of(const zp_attention_shape *s) { return s->keys ? s->keys : s->sequence; }

static bool sees(const zp_attention_shape *s, int64_t head, int64_t query, int64_t key) {
  if (query >= s->sequence || key >= keys_of(s)) return false;
  if (s->window && llabs(query - key) >= s->window) return false;
  return s->layout ? zp_layout_sees(s->layout, head, query, key) : !s->causal || key <= query;
}

/* Heads of the rank that see what head `number` of the model does: the rank whose blocks of pairs are most. */
static int64_t heads_with(const zp_attention_shape *s, int64_t number) {
  const zp_layout *l = s->layout;
  int64_t most = -1, at = 0, count = 0;
  if (!l) return s->heads;
  for (int64_t first = 0; first < l->heads; first += s->heads) {
    int64_t pairs = 0;
    for (int64_t h = first; h < first + s->heads; h++)
      for (int64_t i = 0; i < l->n; i++)
        for (int64_t j = 0; j < l->n; j++) pairs += zp_layout_sees(l, h, (i + 1) * l->block - 1, j * l->block);
    if (pairs > most) most = pairs, at = first;
  }
  for (int64_t h = at; h < at + s->heads; h++) count += h % l->sets == number;
  return count;
}

/* A warp computes with a part of a step when any of its rows sees any of it. */
static double count_flop(zp_tensor_kernel kernel, const zp_attention_shape *s, int products) {
  int64_t block = s->layout ? s->layout->block : s->sums_bias && kernel == ZP_TENSOR_GRAD_Q ? 64 : 0;
  zp_attention_tile t = zp_attention_tile_of(kernel, s->head, block);
  bool over_queries = kernel == ZP_TENSOR_GRAD_KV;
  int64_t tiled = over_queries ? keys_of(s) : s->sequence, walked = over_queries ? s->sequence : keys_of(s);
  int64_t rows = t.rows * t.sharers / 4, part = t.step / t.sharers, columns = (s->head + 15) / 16 * 16;
  int64_t sets = s->layout ? s->layout->sets : 1;
  double pairs = 0;
  for (int64_t head = 0; head < sets; head++)
    for (int64_t mine = 0; mine < tiled; mine += rows)
      for (int64_t other = 0; other < walked; other += part) {
        bool any = false;
        for (int64_t i = 0; i < rows && !any; i++)
          for (int64_t j = 0; j < part && !any; j++)
            any = over_queries ? sees(s, head, other + j, mine + i) : sees(s, head, mine + i, other + j);
        pairs += any ? (double)(rows * part * heads_with(s, head)) : 0;
      }
  return pairs * 2 * (double)columns * products * (double)s->samples;
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
        zp_attention_shape s = {2, 4, 2, sequences[i], heads[h], heads[h], 2, causal, NULL, 0, 0, false};
        char what[64];
        snprintf(what, sizeof what, "%d positions, heads of %d", (int)s.sequence, (int)s.head);
        check_walk(&s, what);
      }
}

Test(own_gpu, walks_over_another_sequence_and_with_biases_are_counted_pair_by_pair) {
  static const int64_t keys[] = {1, 64, 130, 257, 0};
  for (int h = 0; h < N_HEADS; h++)
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
      zp_attention_shape s = {2, 4, 2, 200, heads[h], heads[h], 2, false, NULL, 0, keys[i], keys[i] == 0};
      char what[64];
      snprintf(what, sizeof what, "%d keys, heads of %d", (int)s.keys, (int)s.head);
      check_walk(&s, what);
    }
}

Test(own_gpu, walks_in_windows_are_counted_pair_by_pair) {
  static const int64_t windows[] = {1, 2, 63, 64, 65, 100, 128, 299, 300};
  for (int h = 0; h < N_HEADS; h++)
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
      for (int causal = 0; causal < 2; causal++) {
        zp_attention_shape s = {1, 4, 2, 300, heads[h], heads[h], 2, causal, NULL, windows[i], 0, false};
        char what[64];
        snprintf(what, sizeof what, "windows of %d, heads of %d", (int)s.window, (int)s.head);
        check_walk(&s, what);
      }
}

/* More tiles than the ends of samples cut short: the others are added up as a series. */
Test(own_gpu, walks_over_many_tiles_are_counted_pair_by_pair) {
  static const int64_t windows[] = {0, 65, 130};
  for (int h = 0; h < N_HEADS; h++)
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
      for (int causal = 0; causal < 2; causal++) {
        zp_attention_shape s = {1, 4, 2, 770, heads[h], heads[h], 2, causal, NULL, windows[i], 0, false};
        char what[64];
        snprintf(what, sizeof what, "770 positions in windows of %d, heads of %d", (int)s.window, (int)s.head);
        check_walk(&s, what);
      }
}

Test(own_gpu, sparse_walks_are_counted_pair_by_pair) {
  zp_arena *arena = zp_arena_new("test");
  static const zp_sparse patterns[] = {
      {.kind = ZP_SPARSE_SLIDING, .block = 16, .window = 3},
      {.kind = ZP_SPARSE_BIGBIRD, .block = 32, .window = 3, .global = 1, .random = 1, .seed = 5},
      {.kind = ZP_SPARSE_STRIDED, .block = 64, .local = 1, .stride = 3},
      {.kind = ZP_SPARSE_FIXED, .block = 48, .local = 2, .global = 1, .patterns = 1},
      {.kind = ZP_SPARSE_SLIDING, .block = 128, .window = 1},
  };
  for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
    for (int causal = 0; causal < 2; causal++) {
      const char *error = NULL;
      const zp_layout *layout = zp_layout_make(arena, &patterns[p], 2, 768, causal, &error);
      cr_assert(layout, "%s", error);
      for (int h = 0; h < N_HEADS; h++) {
        zp_attention_shape s = {1, 2, 2, 768, heads[h], heads[h], 2, causal, layout, 0, 0, false};
        check_walk(&s, zp_layout_text(arena, layout));
      }
    }
  zp_arena_free(arena);
}

/* Ranks of 4 of 6 heads that take three sets in turns: causal attention gives later global blocks less to do, so it
 * matters which heads a rank has. */
Test(own_gpu, walks_of_heads_with_different_pairs) {
  zp_arena *arena = zp_arena_new("test");
  static const zp_sparse pattern = {.kind = ZP_SPARSE_FIXED, .block = 64, .local = 3, .global = 1, .patterns = 3};
  for (int causal = 0; causal < 2; causal++) {
    const char *error = NULL;
    const zp_layout *layout = zp_layout_make(arena, &pattern, 6, 768, causal, &error);
    for (int h = 0; h < N_HEADS; h++) {
      zp_attention_shape s = {2, 4, 2, 768, heads[h], heads[h], 2, causal, layout, 0, 0, false};
      check_walk(&s, zp_layout_text(arena, layout));
    }
  }
  zp_arena_free(arena);
}

/* Two heads of 64, 256 queries: warps of 32 meet 1, 1, 2, 2, 3, 3, 4, 4 steps of 64 keys (the emulated GPU counts as
 * many multiplications, test_kernels_cuda_mma.c); blocks of four warps wait for 2 and 4 steps. */
Test(own_gpu, a_walk_by_hand) {
  zp_attention_shape s = {1, 2, 1, 256, 64, 64, 2, true, NULL, 0, 0, false};
  zp_attention_walk walk = zp_attention_walk_of(ZP_TENSOR_FORWARD, &s);
  double pair = 4.0 * 64;
  expect_near(walk.flop, 2 * 20 * 32 * 64 * pair, "computed");
  expect_near(walk.waited_flop, 2 * (2 + 4) * 64 * 128 * pair, "waited for");
  expect_near(walk.longest_flop, 4 * 64 * 128 * pair, "the longest block");
  expect_near(walk.blocks, 4, "blocks");
}

/* ---- seconds ---- */

static zp_cluster cluster_of(const char *arch) {
  zp_cluster c = gpu_cluster(1);
  c.trainer = ZP_TRAINER_ZPLAN;
  c.node.devices = 1;
  c.node.device.arch = arch;
  c.node.device.has_bf16 = true;
  c.node.device.cores = 100;
  c.node.device.flop_per_s_half = 1000e12;
  c.node.device.flop_per_s_fp32 = 60e12;
  c.node.device.memory_bytes_per_s = 3e12;
  c.node.device.eff_matmul = 0.7;
  c.node.device.eff_memory = 0.8;
  c.node.device.launch_s = 3e-6;
  return c;
}

/* 32 x 1,024 tokens, 12 heads of 64. Forward: 8 tiles of 128 queries wait for 2, 4, ... 16 steps of 64 keys; backward:
 * 8 tiles of 128 queries for 4, 8, ... 32 of 32 keys, and 16 of 64 keys for 1 to 16 of 64. Every block spends as long
 * as 96 more rows take. */
Test(own_gpu, attention_of_gpt2) {
  zp_cluster c = cluster_of("sm_90");
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
  zp_attention_shape s = {32, 12, 12, 1024, 64, 64, 2, true, NULL, 0, 0, false};
  double matrix = 32.0 * 1024 * 768 * 2, row = 32.0 * 1024 * 12, heads_of_all = 32 * 12;
  zp_kernel_work work;
  double fill = zp_cost_constant(ZP_COST_OWN_MMA_FILL);
  double forward = (72 * 64 + 8 * fill) * 128 * 4 * 64 * heads_of_all;
  double rate = 1000e12 * zp_cost_constant(ZP_COST_OWN_MMA_FORWARD_SM90);
  expect_near(zp_cost_tensor_attention(&m, &s, false, &work), 3e-6 + forward / rate, "forward");
  cr_expect_eq(work.launches, 1);
  expect_near(work.bytes, 4 * matrix + 4 * row, "bytes forward");
  double backward = ((144 * 32 + 8 * fill) * 128 * 6 + (136 * 64 + 16 * fill) * 64 * 8) * 64 * heads_of_all;
  rate = 1000e12 * zp_cost_constant(ZP_COST_OWN_MMA_BACKWARD_SM90);
  expect_near(zp_cost_tensor_attention(&m, &s, true, &work), 2 * 3e-6 + backward / rate, "backward");
  cr_expect_eq(work.launches, 2);
  expect_near(work.bytes, (6 + 6) * matrix + (4 + 8 + 8) * row, "bytes backward");
  /* Queries: warps of 32 rows and steps of as many, 1 to 32 of them. Keys: warps of 16, of whose tile's steps none is
   * left out. */
  expect_near(work.flop, (528.0 * 32 * 32 * 6 + 136.0 * 64 * 64 * 8) * 64 * heads_of_all, "computed backward");
}

/* FlashAttention-2 with a causal mask, heads of 128, as measured on an A100: TFLOP/s of half of all pairs
 * (liangan1/GPU_travel). */
Test(own_gpu, rates_are_those_of_flash_attention_2) {
  static const struct {
    double measured;
    int64_t samples, heads, sequence;
  } runs[] = {{143.7e12, 16, 32, 1024}, {156.3e12, 1, 32, 4096}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    zp_cluster c = cluster_of("sm_80");
    c.node.device.flop_per_s_half = 312e12;
    c.node.device.cores = 108;
    zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
    zp_attention_shape s = {
        runs[i].samples, runs[i].heads, runs[i].heads, runs[i].sequence, 128, 128, 2, true, NULL, 0, 0, false};
    zp_kernel_work work;
    double pairs = (double)(s.samples * s.heads) * (double)s.sequence * (double)s.sequence / 2;
    double rate = 4 * 128 * pairs / zp_cost_tensor_attention(&m, &s, false, &work);
    cr_expect(fabs(rate / runs[i].measured - 1) < 0.06, "%d positions: %g, measured %g", (int)s.sequence, rate,
              runs[i].measured);
  }
}

/* Twice the keys take about twice the time; dropout and biases take time besides, more where they are summed. */
Test(own_gpu, another_sequence_and_extras_have_their_price) {
  zp_cluster c = cluster_of("sm_80");
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
  zp_attention_shape s = {8, 12, 12, 512, 64, 64, 2, false, NULL, 0, 2048, false};
  zp_kernel_work work;
  double some = zp_cost_tensor_attention(&m, &s, true, &work);
  s.keys = 4096;
  double twice = zp_cost_tensor_attention(&m, &s, true, &work) / some;
  cr_expect(twice > 1.8 && twice < 2.05, "%g", twice);
  double before = work.flop, rate = zp_kernel_rate_of(&m, ZP_KERNEL_ATTENTION, 0).flop_per_s;
  double drawn = zp_cost_constant(ZP_COST_OWN_DROPOUT), read = zp_cost_constant(ZP_COST_OWN_RELATIVE_BIAS);
  expect_near(zp_cost_score_extras(&m, &(zp_score_extras){1e9, true, false, false}, false, &work), 1e9 * drawn / rate,
              "dropout forward");
  expect_near(work.flop - before, 1e9 * drawn, "its work");
  expect_near(zp_cost_score_extras(&m, &(zp_score_extras){1e9, true, false, false}, true, &work), 2e9 * drawn / rate,
              "both kernels backward");
  int launches = work.launches;
  expect_near(zp_cost_score_extras(&m, &(zp_score_extras){1e9, false, true, true}, true, &work),
              3e9 * read / rate + 2 * c.node.device.launch_s, "a bias backward");
  cr_expect_eq(work.launches, launches + 2, "the table spread, its gradient summed");
}

/* One layer of a step on an H100, microseconds forward and backward (docs/evidence/gpu_measured.md). Two rates each for
 * all lengths: long sequences are up to a sixth faster. */
Test(own_gpu, rates_are_those_of_an_h100) {
  static const struct {
    int64_t samples, heads, sequence, head;
    double forward_us, backward_us;
  } runs[] = {{32, 12, 1024, 64, 249.9, 821.0},
              {32, 16, 1024, 64, 325.1, 1100.9},
              {8, 16, 2048, 128, 559.4, 2061.0},
              {2, 12, 16384, 64, 2571.3, 8479.9}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    zp_cluster c = cluster_of("sm_90");
    c.node.device.flop_per_s_half = 989e12;
    c.node.device.cores = 132;
    zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
    int64_t hd = runs[i].head;
    zp_attention_shape s = {.samples = runs[i].samples,
                            .heads = runs[i].heads,
                            .kv_heads = runs[i].heads,
                            .sequence = runs[i].sequence,
                            .width = hd,
                            .head = hd,
                            .float_bytes = 2,
                            .causal = true};
    zp_kernel_work work;
    double forward = 1e6 * zp_cost_tensor_attention(&m, &s, false, &work);
    double backward = 1e6 * zp_cost_tensor_attention(&m, &s, true, &work);
    cr_expect(fabs(forward / runs[i].forward_us - 1) < 0.17, "%zu: %g us forward, measured %g", i, forward,
              runs[i].forward_us);
    cr_expect(fabs(backward / runs[i].backward_us - 1) < 0.18, "%zu: %g us backward, measured %g", i, backward,
              runs[i].backward_us);
  }
}

/* One sample, one head of 8,192 positions: 64 blocks on 100 multiprocessors. The last one sees all keys. */
Test(own_gpu, no_block_is_faster_than_a_multiprocessor) {
  zp_cluster c = cluster_of("sm_90");
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
  zp_attention_shape s = {1, 1, 1, 8192, 64, 64, 2, true, NULL, 0, 0, false};
  zp_kernel_work work;
  double longest = (8192 + zp_cost_constant(ZP_COST_OWN_MMA_FILL)) * 128 * 4 * 64;
  double rate = 1000e12 * zp_cost_constant(ZP_COST_OWN_MMA_FORWARD_SM90);
  expect_near(zp_cost_tensor_attention(&m, &s, false, &work), 3e-6 + 100 * longest / rate, "one block");
}

Test(own_gpu, rates_by_arch) {
  static const struct {
    const char *arch;
    int64_t head;
    enum zp_cost_constant forward, backward;
  } rows[] = {
      {"sm_70", 64, ZP_COST_OWN_MMA_FORWARD_SM70, ZP_COST_OWN_MMA_BACKWARD_SM70},
      {"sm_80", 64, ZP_COST_OWN_MMA_FORWARD_SM80, ZP_COST_OWN_MMA_BACKWARD_SM80},
      {"sm_89", 128, ZP_COST_OWN_MMA_FORWARD_SM80, ZP_COST_OWN_MMA_BACKWARD_SM80},
      {"sm_90", 64, ZP_COST_OWN_MMA_FORWARD_SM90, ZP_COST_OWN_MMA_BACKWARD_SM90},
      {"sm_90a", 65, ZP_COST_OWN_MMA_FORWARD_WIDE_SM90, ZP_COST_OWN_MMA_BACKWARD_WIDE_SM90},
      {"sm_100", 128, ZP_COST_OWN_MMA_FORWARD_SM100, ZP_COST_OWN_MMA_BACKWARD_SM100},
      {"sm_103", 128, ZP_COST_OWN_MMA_FORWARD_SM100, ZP_COST_OWN_MMA_BACKWARD_SM100},
      {"sm_120", 128, ZP_COST_OWN_MMA_FORWARD_SM80, ZP_COST_OWN_MMA_BACKWARD_SM80},
      {NULL, 128, ZP_COST_OWN_MMA_FORWARD_SM80, ZP_COST_OWN_MMA_BACKWARD_SM80},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    zp_cluster c = cluster_of(rows[i].arch);
    zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
    const char *arch = rows[i].arch ? rows[i].arch : "no arch";
    expect_near(zp_kernel_rate_of(&m, ZP_KERNEL_ATTENTION, rows[i].head).flop_per_s,
                1000e12 * zp_cost_constant(rows[i].forward), arch);
    expect_near(zp_kernel_rate_of(&m, ZP_KERNEL_ATTENTION_GRAD, rows[i].head).flop_per_s,
                1000e12 * zp_cost_constant(rows[i].backward), arch);
    expect_near(zp_kernel_rate_of(&m, ZP_KERNEL_ATTENTION, 0).flop_per_s,
                60e12 * zp_cost_constant(ZP_COST_OWN_ATTENTION), "on the cores for single precision");
    bool measured = strncmp(arch, "sm_9", 4) == 0;
    cr_expect(strstr(zp_kernel_rate_of(&m, ZP_KERNEL_ATTENTION, 64).source, measured ? "H100" : "estimate"), "%s",
              arch);
    const bool wide = i < 2; /* up to sm_80 half as many lanes compute as are issued */
    expect_near(zp_kernel_rate_of(&m, ZP_KERNEL_ROWS, 64).flop_per_s, 60e12 * (wide ? 1 : 0.5), arch);
  }
}

/* Parameters of 16 bits with f32 copies: gradients are read for the norm and for the update, 28 bytes besides. */
/* Scores that one token of zpd_gate_choose looks at, loop by loop: all groups but those kept so far, a group at a time;
 * then experts of the kept ones, a choice at a time. */
static int64_t looked_at(int64_t experts, int64_t groups, int64_t top_groups, int64_t k) {
  int64_t of_group = experts / groups, looked = 0;
  for (int64_t kept = 0; kept < top_groups; kept++)
    for (int64_t g = 0; g < groups - kept; g++)
      for (int64_t e = 0; e < of_group; e++) looked++;
  for (int64_t j = 0; j < k; j++)
    for (int64_t e = 0; e < top_groups * of_group; e++) looked++;
  return looked;
}

/* DeepSeek-V3's gate on one sample of 4,096 tokens: kernels of few threads that work through 256 experts, and 32,768
 * choices in one block. 300 to 600 us, and not the 7 that its bytes would take. Twice the samples are other threads and
 * blocks. */
Test(own_gpu, gates_take_what_a_thread_does_one_after_the_other) {
  zp_cluster c = cluster_of("sm_90");
  c.node.device.flop_per_s_fp64 = 34e12;
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
  zp_gate_shape g = {1, 4096, 256, 8, 8, 4, true, true, false};
  double exp_s = zp_cost_constant(ZP_COST_OWN_GATE_EXP_S), choice_s = zp_cost_constant(ZP_COST_OWN_GATE_CHOICE_S);
  double one = (double)looked_at(256, 8, 4, 8), want = (one + 8 + 8) * exp_s + 4096 * 8 * choice_s;
  expect_near(zp_cost_gate(&m, &g), want, "a sample");
  cr_expect(want > 300e-6 && want < 600e-6, "%g", want);
  g.samples = 2;
  expect_near(zp_cost_gate(&m, &g), want, "two samples");
  g.sigmoid = g.normalize = false; /* comparisons, and a softmax over all */
  g.groups = g.top_groups = 0;
  expect_near(zp_cost_gate(&m, &g), (256 + 8) * exp_s + 256 * 8 * choice_s + 4096 * 8 * choice_s, "a softmax");
  g.samples = 1;
  g.balance = true;
  expect_near(zp_cost_gate_gradient(&m, &g), (3 * 256 + 24) * exp_s + 256 * 8 * choice_s + 4096 * 8 * choice_s,
              "gradient");
  c.node.device.flop_per_s_fp64 = 1e12; /* where f64 is scarce it counts */
  g.sigmoid = true;
  g.tokens = 65536;
  cr_expect_gt(zp_cost_gate(&m, &g), 65536.0 * 256 * 8 * zp_cost_constant(ZP_COST_OWN_GATE_EXP_FLOP) / 1e12);
}

Test(own_gpu, the_end_of_a_step_is_three_launches) {
  zp_cluster c = cluster_of("sm_90");
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
  double n = 124e6, decision = zp_cost_constant(ZP_COST_OWN_DECISION_S);
  double rate = 3e12 * 0.8 * zp_cost_constant(ZP_COST_OWN_BYTES_SM90);
  expect_near(zp_cost_update(&m, 2 * n, 28 * n), 3 * 3e-6 + decision + 30 * n / rate, "update");
  n = 64 * 16384; /* a quarter of the parts that are added up at most */
  expect_near(zp_cost_update(&m, 2 * n, 28 * n), 3 * 3e-6 + decision / 4 + 30 * n / rate, "a small one");
}

/* A product of 1 ms and its launch, whose epilogue moves 24 of 48 million bytes. On sm_90 both times are added; what a
 * calibration of the machine has found is not corrected again; elsewhere the longer one counts. */
Test(own_gpu, products_with_an_epilogue) {
  double alongside = 24e6, bytes = 48e6, memory = 3e12 * 0.8, launch = 3e-6;
  zp_cluster c = cluster_of("sm_90");
  zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
  double products = zp_cost_constant(ZP_COST_OWN_PRODUCTS_SM90),
         epilogue = zp_cost_constant(ZP_COST_OWN_EPILOGUE_BYTES);
  expect_near(zp_cost_own_product(&m, 1e-3 + launch, bytes, alongside),
              launch + 1e-3 / products + epilogue * alongside / memory, "sm_90");
  expect_near(zp_cost_own_product(&m, 1e-3 + launch, bytes, 0), launch + 1e-3 / products, "without an epilogue");
  c.node.device.calibrated = true;
  m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
  expect_near(zp_cost_own_product(&m, 1e-3 + launch, bytes, alongside), 1e-3 + launch, "calibrated");
  expect_near(zp_cost_own_product(&m, 1e-5 + launch, bytes, alongside), launch + bytes / memory, "bytes take longer");
  c = cluster_of("sm_80");
  m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
  expect_near(zp_cost_own_product(&m, 1e-3 + launch, bytes, alongside), 1e-3 + launch, "sm_80");
}

/* cuBLASLt's epilogues with gelu's derivative are slow on sm_90; where they are not used, products have none. */
Test(own_gpu, gelu_gradients_by_arch) {
  static const struct {
    const char *arch;
    bool does;
  } rows[] = {{"sm_70", true}, {"sm_80", true}, {"sm_89", true}, {"sm_90", false}, {"sm_100", false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    zp_cluster c = cluster_of(rows[i].arch);
    zp_machine m = zp_machine_make(&c, ZP_PREC_MIXED_BF16, 1);
    cr_expect_eq(zp_products_do_gelu_gradients(&m), rows[i].does, "%s", rows[i].arch);
  }
}
