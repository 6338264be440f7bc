/* SPDX-License-Identifier: Apache-2.0 */
/* Order tables: 1F1B by its properties, and against a pipeline that is played tick by tick. */
#include <criterion/criterion.h>
#include <zplan/program.h>

Test(schedule, order_1f1b_runs_every_micro_batch_forward_then_backward) {
  zp_action order[32];
  for (int p = 1; p <= 8; p++)
    for (int s = 0; s < p; s++)
      for (int64_t m = 1; m <= 16; m++) {
        zp_order_1f1b(p, s, m, order);
        zp_choice c = {.pipeline = p};
        int64_t forward = 0, backward = 0, most = 0;
        for (int64_t i = 0; i < 2 * m; i++) {
          cr_assert_eq(order[i].microbatch, order[i].forward ? forward : backward);
          order[i].forward ? forward++ : backward++;
          cr_assert_leq(backward, forward);
          if (most < forward - backward) most = forward - backward;
        }
        cr_assert(forward == m && backward == m);
        cr_assert_eq(most, zp_in_flight(&c, s, m));
      }
}

/* The rule of 1F1B, played: a stage prefers backward, but holds at most p - s micro-batches. Every action takes as long
 * as it has to; the order of a stage's actions must be the table's. */
static void play(int p, int64_t m) {
  zp_action table[8][32];
  int64_t forward[9] = {0}, backward[9] = {0};
  for (int s = 0; s < p; s++) zp_order_1f1b(p, s, m, table[s]);
  for (int64_t left = 2 * m * p, before = -1; left != before;) {
    int64_t f_seen[9], b_seen[9];
    before = left;
    memcpy(f_seen, forward, sizeof forward), memcpy(b_seen, backward, sizeof backward);
    for (int s = 0; s < p && left; s++) { /* one tick: all stages see the messages of the last tick */
      bool can_b = b_seen[s] < f_seen[s] && (s + 1 == p || b_seen[s + 1] > b_seen[s]);
      bool can_f = f_seen[s] < m && (s == 0 || f_seen[s - 1] > f_seen[s]) && f_seen[s] - b_seen[s] < p - s;
      bool must_b = f_seen[s] - b_seen[s] == p - s || f_seen[s] == m;
      if (!(must_b ? can_b : can_f)) continue;
      const zp_action *a = &table[s][forward[s] + backward[s]];
      cr_assert_eq(a->forward, !must_b, "stage %d of %d, %lld micro-batches, action %lld", s, p, (long long)m,
                   (long long)(forward[s] + backward[s]));
      must_b ? backward[s]++ : forward[s]++;
      left--;
    }
    if (left == 0) return;
  }
  cr_assert_fail("deadlock");
}
Test(schedule, order_1f1b_is_the_order_of_a_pipeline_that_is_played) {
  for (int p = 1; p <= 8; p++)
    for (int64_t m = 1; m <= 16; m++) play(p, m);
}
