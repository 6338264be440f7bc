/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that are compiled twice (zplan/lanes.h) yield the same bits in both ways: waves of 1F1B, labels of cuts. Where
 * the processor has narrow lanes alone there is nothing to compare, and the tests are skipped. */
#include <criterion/criterion.h>
#include <math.h>
#include <zplan/lanes.h>
#include <zplan/schedule.h>
#include "label_loops.h"
#include "one_f_one_b.h"

static uint64_t state = 1;
static int64_t below(int64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)n);
}
static double seconds(void) { return (double)(1 + below(1000)) / 997; }

static bool same(const double *a, const double *b, int64_t n) { return memcmp(a, b, sizeof *a * (size_t)n) == 0; }

/* Do both follow the same way? A machine that has one alone proves nothing here. */
static void skip_where_narrow(void) {
  if (!zp_has_wide_lanes()) cr_skip_test("no AVX2");
}

#if ZP_WIDE_LANES
Test(lanes, waves) {
  skip_where_narrow();
  zp_arena *arena = zp_arena_new("test");
  for (int i = 0; i < 300; i++) {
    int stages = 1 + (int)below(40), known = (int)below(stages + 1);
    zp_stage_time *time = ZP_NEW_ARRAY(arena, zp_stage_time, stages);
    double *message = ZP_NEW_ARRAY(arena, double, stages);
    double *narrow = ZP_NEW_ARRAY(arena, double, stages), *wide = ZP_NEW_ARRAY(arena, double, stages);
    for (int s = 0; s < stages; s++) time[s] = (zp_stage_time){.forward_s = seconds(), .backward_s = seconds()};
    for (int s = 0; s + 1 < stages; s++) message[s] = seconds() / 10;
    zp_pipeline_run run = {.stages = stages,
                           .known = known,
                           .chunks = 1,
                           .microbatches = stages + below(5 * stages),
                           .buffers = 1,
                           .time = time,
                           .message_s = message,
                           .rest_s = seconds(),
                           .end_s = narrow};
    zp_run_wave_narrow(arena, &run);
    run.end_s = wide;
    zp_run_wave_wide(arena, &run);
    cr_assert(same(narrow, wide, known ? known : stages), "case %d: %d of %d stages", i, known, stages);
  }
  zp_arena_free(arena);
}

/* Labels of the first or the last stages of random cuts: both ways make them from the narrow one of one stage less. */
typedef struct both {
  double *narrow, *wide;
} both;

static both make_both(zp_arena *arena, int64_t length) {
  return (both){ZP_NEW_ARRAY(arena, double, length), ZP_NEW_ARRAY(arena, double, length)};
}

static zp_range_cost random_cost(void) {
  return (zp_range_cost){.forward_s = seconds(), .backward_s = 2 * seconds(), .update_s = seconds() / 9};
}

static int64_t n_joined, n_refused;

/* Every prefix of the cut with its suffix, at targets around what the whole of it needs. */
static void compare_joins(zp_labels *k, int stages, const both *prefix, const both *suffix) {
  double bound = zp_prefix_bound(prefix[stages].narrow);
  for (int s = 1; s < stages; s++)
    for (int i = 0; i < 8; i++) {
      double target = bound * (0.93 + 0.02 * i);
      zp_prefix_view a = zp_prefix_view_of(k, prefix[s].narrow, s), b = a;
      int64_t before = zp_labels_work(k), middle;
      bool narrow = zp_labels_join_narrow(k, &a, suffix[s].narrow, s, target);
      middle = zp_labels_work(k);
      cr_assert_eq(zp_labels_join_wide(k, &b, suffix[s].narrow, s, target), narrow);
      cr_assert_eq(zp_labels_work(k) - middle, middle - before, "counted work differs");
      *(narrow ? &n_joined : &n_refused) += 1;
    }
}

Test(lanes, labels) {
  skip_where_narrow();
  for (int i = 0; i < 60; i++) {
    zp_arena *arena = zp_arena_new("test");
    int stages = 1 + (int)below(24);
    const zp_pipe pipe = {
        .stages = stages, .units = 4 * stages, .microbatches = 1 + below(6 * stages), .message_s = 0.01};
    zp_labels *k = zp_labels_new(arena, &pipe);
    both *prefix = ZP_NEW_ARRAY(arena, both, stages + 1), *suffix = ZP_NEW_ARRAY(arena, both, stages + 1);
    zp_range_cost *cost = ZP_NEW_ARRAY(arena, zp_range_cost, stages);
    prefix[0] = make_both(arena, zp_prefix_length(0));
    zp_prefix_start(k, prefix[0].narrow);
    for (int s = 0; s < stages; s++) {
      cost[s] = random_cost();
      both *next = &prefix[s + 1];
      *next = make_both(arena, zp_prefix_length(s + 1));
      zp_prefix_extend_narrow(k, prefix[s].narrow, s, &cost[s], next->narrow);
      zp_prefix_extend_wide(k, prefix[s].narrow, s, &cost[s], next->wide);
      cr_assert(same(next->narrow, next->wide, zp_prefix_length(s + 1)), "case %d: first %d of %d", i, s + 1, stages);
    }
    for (int s = stages; s-- > 0;) {
      suffix[s] = make_both(arena, zp_suffix_length(stages - s));
      zp_suffix_extend_narrow(k, suffix[s + 1].narrow, s, &cost[s], suffix[s].narrow);
      zp_suffix_extend_wide(k, suffix[s + 1].narrow, s, &cost[s], suffix[s].wide);
      cr_assert(same(suffix[s].narrow, suffix[s].wide, zp_suffix_length(stages - s)), "case %d: from %d of %d", i, s,
                stages);
    }
    compare_joins(k, stages, prefix, suffix);
    zp_arena_free(arena);
  }
  cr_assert(n_joined > 100 && n_refused > 100, "joined %lld, refused %lld", (long long)n_joined, (long long)n_refused);
}

Test(lanes, vectors) {
  skip_where_narrow();
  double a[40], b[40], merged[40];
  for (int i = 0; i < 2000; i++) {
    int64_t n = below(41), differs = below(41);
    for (int k = 0; k < 40; k++) a[k] = b[k] = seconds();
    if (differs < 40) b[differs] -= below(3) ? 1e-3 : -1e-3;
    int64_t above = zp_label_above_narrow(a, b, n);
    cr_assert_eq(zp_label_above_wide(a, b, n), above);
    cr_assert(above == n || above == differs);
    memcpy(merged, a, sizeof a);
    zp_label_merge_narrow(merged, b, n);
    zp_label_merge_wide(a, b, n);
    cr_assert(same(a, merged, 40), "merged %lld", (long long)n);
  }
}
#endif
