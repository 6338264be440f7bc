/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of block-sparse attention, drawn: rows are query blocks, # is a block of keys that they see. */
#include "graph_testing.h"
#include <zplan/sparse.h>

enum { BLOCK = 16, HEADS = 5 };

static zp_ints ints(zp_arena *arena, int n, const int *x) {
  zp_ints list = {0};
  for (int i = 0; i < n; i++) zp_push(arena, &list, x[i]);
  return list;
}
#define INTS(...) ints(arena, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

/* The drawing, and whether lists, positions and counts say the same. */
static char *draw(const zp_layout *l, int head, char *text) {
  const zp_pair_set *set = &l->set[head % l->sets];
  char *at = text;
  int64_t pairs = 0;
  for (int i = 0; i < l->n; i++) {
    for (int j = 0; j < l->n; j++) {
      /* the last query of i and the first key of j, which causality allows where the blocks are allowed */
      bool seen = zp_layout_sees(l, head, (i + 1) * BLOCK - 1, j * BLOCK), by_key = false;
      for (int r = set->queries.first[j]; r < set->queries.first[j + 1]; r++)
        by_key |= set->queries.run[r].first <= i && i < set->queries.run[r].end;
      cr_expect_eq(seen, by_key, "pair %d, %d", i, j);
      pairs += seen;
      *at++ = seen ? '#' : '.';
    }
    *at++ = '/';
  }
  at[-1] = '\0';
  cr_expect_eq(pairs, set->pairs);
  return text;
}

/* What a head sees. */
static void expect_head(zp_arena *arena, zp_sparse sparse, int head, bool causal, int n, const char *want) {
  const char *error;
  char text[1024];
  sparse.block = BLOCK;
  const zp_layout *l = zp_layout_make(arena, &sparse, HEADS, n * BLOCK, causal, &error);
  cr_assert(l, "%s", error);
  cr_expect_str_eq(draw(l, head, text), want, "%s, head %d", zp_sparse_text(arena, &sparse), head);
}

static void expect(zp_arena *arena, zp_sparse sparse, bool causal, int n, const char *want) {
  expect_head(arena, sparse, 0, causal, n, want);
}

Test(graph_sparse, rules) {
  zp_arena *arena = zp_arena_new("test");
  zp_sparse fixed = {.kind = ZP_SPARSE_FIXED, .local = 2, .global = 1, .patterns = 1};
  expect(arena, fixed, true, 5, "#..../##.../.##../.###./.#.##"); /* the last run of blocks is cut off: block 4 */
  expect(arena, fixed, false, 5, "##.##/##.##/.####/.####/.#.##");
  zp_sparse sliding = {.kind = ZP_SPARSE_SLIDING, .window = 3};
  expect(arena, sliding, true, 4, "#.../##../.##./..##");
  expect(arena, sliding, false, 4, "##../###./.###/..##");
  zp_sparse bigbird = {.kind = ZP_SPARSE_BIGBIRD, .window = 1, .global = 1};
  expect(arena, bigbird, true, 4, "#.../##../#.#./#..#");
  expect(arena, bigbird, false, 4, "####/##../#.#./#..#");
  zp_sparse longformer = {.kind = ZP_SPARSE_LONGFORMER, .window = 1, .globals = INTS(2)};
  expect(arena, longformer, true, 4, "#.../.#../###./..##");
  expect(arena, longformer, false, 4, "#.#./.##./####/..##");
  zp_sparse variable = {.kind = ZP_SPARSE_VARIABLE, .windows = INTS(1, 2), .globals = INTS(0)};
  expect(arena, variable, true, 6, "#...../##..../###.../#..#../#..##./#....#");
  expect(arena, variable, false, 6, "#...../###.../###.../#..##./#..##./#....#");
  zp_sparse strided = {.kind = ZP_SPARSE_STRIDED, .local = 2, .stride = 3};
  expect(arena, strided, true, 6, "#...../##..../.##.../#.##../.#.##./..#.##");
  variable.horizontal = true;
  expect(arena, variable, false, 6, "######/###.../###.../#..##./#..##./#....#");
  zp_arena_free(arena);
}

/* Drawn by hand after num_different_global_patterns and horizontal_global_attention of DeepSpeed's
 * FixedSparsityConfig. */
Test(graph_sparse, heads_take_global_blocks_in_turns) {
  zp_arena *arena = zp_arena_new("test");
  zp_sparse fixed = {.kind = ZP_SPARSE_FIXED, .local = 3, .global = 1, .patterns = 2};
  for (int head = 0; head < HEADS; head++) {
    expect_head(arena, fixed, head, true, 5,
                head % 2 ? "#..../##.../###../.#.#./.#.##" : "#..../##.../###../..##./..###");
    expect_head(arena, fixed, head, false, 5,
                head % 2 ? "###.#/###.#/###.#/.#.##/.#.##" : "###.#/###.#/###.#/..###/..###");
  }
  fixed.horizontal = true;
  expect_head(arena, fixed, 0, false, 5, "###.#/###.#/#####/..###/#####");
  expect_head(arena, fixed, 1, false, 5, "###.#/#####/###.#/.#.##/#####");
  zp_arena_free(arena);
}

/* 5 heads with 9, 8, 7 pairs in turns: of two ranks the first has most, of three the second begins with the fourth
 * head, and padding counts. */
Test(graph_sparse, the_rank_that_has_most) {
  zp_arena *arena = zp_arena_new("test");
  zp_sparse fixed = {.kind = ZP_SPARSE_FIXED, .block = BLOCK, .local = 3, .global = 1, .patterns = 3};
  const char *error;
  const zp_layout *l = zp_layout_make(arena, &fixed, HEADS, 4 * BLOCK, false, &error);
  double pairs[3], area = BLOCK * BLOCK;
  cr_assert_eq(l->sets, 3);
  for (int i = 0; i < 3; i++) pairs[i] = (double)l->set[i].pairs * area;
  for (int64_t heads = 1; heads <= HEADS; heads++) {
    double most = 0;
    for (int64_t first = 0; first < HEADS; first += heads) {
      double sum = 0;
      for (int64_t h = first; h < first + heads; h++) sum += pairs[h % 3] / (double)heads;
      most = fmax(most, sum);
    }
    zp_layout_work work = zp_layout_longest(l, heads);
    cr_expect_float_eq(work.seen, most, 1e-9, "%d heads", (int)heads);
    cr_expect_eq(work.computed, work.seen);
  }
  cr_expect_float_eq(zp_layout_density(l), (2 * pairs[0] + 2 * pairs[1] + pairs[2]) / 5 / (16 * area), 1e-12);
  cr_expect_eq(zp_layout_make(arena, &fixed, 2, 4 * BLOCK, false, &error)->sets, 2); /* no more than heads */
  zp_arena_free(arena);
}

/* A row has as many random blocks as asked for, of those that it may see, the same ones every time; another seed
 * others. */
Test(graph_sparse, random_blocks) {
  enum { N = 40, RANDOM = 3 };
  zp_arena *arena = zp_arena_new("test");
  zp_sparse sparse = {.kind = ZP_SPARSE_VARIABLE, .block = BLOCK, .random = RANDOM, .seed = 5, .windows = INTS(1)};
  const char *error;
  const zp_layout *one = zp_layout_make(arena, &sparse, HEADS, N * BLOCK, true, &error);
  const zp_layout *same = zp_layout_make(arena, &sparse, HEADS, N * BLOCK, true, &error);
  zp_sparse other = sparse;
  other.seed = 6;
  cr_expect(zp_layout_equal(one, same));
  cr_expect_not(zp_layout_equal(one, zp_layout_make(arena, &other, HEADS, N * BLOCK, true, &error)));
  for (int i = 0; i < N; i++) {
    int seen = 0, drawn = i + 1 < RANDOM ? i + 1 : RANDOM;
    for (int j = 0; j < N; j++) seen += zp_layout_sees(one, 0, (i + 1) * BLOCK - 1, j * BLOCK);
    cr_expect(seen == drawn || seen == drawn + 1, "block %d sees %d: the random ones and itself", i, seen);
  }
  zp_arena_free(arena);
}

/* Block by block: a part sees what the layout sees there, and pairs between stretches are counted. */
static void check_parts(zp_arena *arena, const zp_layout *l, int stretches) {
  int n = l->n / stretches;
  const double *between = zp_layout_between(arena, l, stretches);
  for (int q = 0; q < stretches; q++)
    for (int k = 0; k < stretches; k++) {
      const zp_layout *part = zp_layout_part(arena, l, stretches, q, k);
      double pairs = 0;
      for (int head = 0; head < l->sets; head++)
        for (int i = 0; i < n * n; i++) {
          int64_t query = (i / n + 1) * BLOCK - 1, key = i % n * BLOCK;
          bool sees = zp_layout_sees(l, head, q * n * BLOCK + query, k * n * BLOCK + key);
          cr_assert_eq(part && zp_layout_sees(part, head, query, key), sees, "%d, %d of %d: pair %d", q, k, stretches,
                       i);
          pairs += !sees ? 0 : l->causal && q == k && i / n == i % n ? 0.5 : 1;
        }
      cr_assert_eq(part == NULL, pairs == 0);
      cr_assert(!part || part->causal == (l->causal && q == k));
      cr_assert_float_eq(between[q * stretches + k], pairs / l->sets * BLOCK * BLOCK, 1e-9);
    }
}

Test(graph_sparse, parts_are_what_stretches_see) {
  zp_arena *arena = zp_arena_new("test");
  const zp_sparse sparse[] = {
      {.kind = ZP_SPARSE_SLIDING, .window = 3},
      {.kind = ZP_SPARSE_BIGBIRD, .window = 1, .global = 1, .random = 2, .seed = 3},
      {.kind = ZP_SPARSE_FIXED, .local = 4, .global = 1, .patterns = 3},
  };
  for (size_t i = 0; i < sizeof sparse / sizeof *sparse; i++)
    for (int causal = 0; causal < 2; causal++)
      for (int stretches = 1; stretches <= 12; stretches++) {
        const char *error;
        zp_sparse one = sparse[i];
        one.block = BLOCK;
        const zp_layout *l = zp_layout_make(arena, &one, HEADS, 12 * BLOCK, causal, &error);
        cr_assert(l, "%s", error);
        if (12 % stretches == 0) check_parts(arena, l, stretches);
      }
  zp_arena_free(arena);
}

/* Work is that of the pairs that are there; all blocks are dense attention. */
static double attention_flop(const zp_sparse *sparse) {
  kit k = kit_new(128, 1, 8);
  int x = k.graph->carry_in.data[0];
  apply(&k, ZP_OP_ATTENTION, (zp_op_attr){.heads = 2, .causal = true, .sparse = sparse}, "y", x, x, x);
  double flop = zp_node_flop(k.graph, &k.graph->nodes.data[k.graph->nodes.len - 1], 3);
  kit_free(&k);
  return flop;
}

Test(graph_sparse, flop_follows_the_pairs) {
  zp_sparse all = {.kind = ZP_SPARSE_SLIDING, .block = 32, .window = 7}, diagonal = all;
  diagonal.window = 1;
  cr_expect_float_eq(attention_flop(NULL), 2.0 * 3 * 128 * 128 * 8, 1e-6);
  cr_expect_float_eq(attention_flop(&all), attention_flop(NULL), 1e-6);
  cr_expect_float_eq(attention_flop(&diagonal), attention_flop(NULL) / 4, 1e-6);
}

Test(graph_sparse, counts) {
  zp_arena *arena = zp_arena_new("test");
  const char *error;
  zp_sparse sliding = {.kind = ZP_SPARSE_SLIDING, .block = BLOCK, .window = 3}, all = sliding;
  all.window = 99;
  const zp_layout *causal = zp_layout_make(arena, &sliding, HEADS, 4 * BLOCK, true, &error);
  const zp_layout *both = zp_layout_make(arena, &sliding, HEADS, 4 * BLOCK, false, &error);
  cr_expect_float_eq(zp_layout_density(causal), 5 / 8.0, 1e-12); /* 3 whole pairs and 4 halves of 6 and 4 halves */
  cr_expect_float_eq(zp_layout_density(both), 10 / 16.0, 1e-12);
  cr_expect_float_eq(zp_layout_excess(causal, 2), 7 / 5.0, 1e-12);
  cr_expect_float_eq(zp_layout_excess(both, HEADS), 1, 1e-12);
  cr_expect_float_eq(zp_layout_density(zp_layout_make(arena, &all, HEADS, 4 * BLOCK, true, &error)), 1, 1e-12);
  cr_expect_null(zp_layout_make(arena, &all, HEADS, 4 * BLOCK + 8, true, &error));
  cr_expect(strstr(error, "multiple"), "%s", error);
  zp_arena_free(arena);
}
