/* SPDX-License-Identifier: Apache-2.0 */
/* When 0/1 Adam sums gradients, and when it exchanges signs (arXiv 2202.06009, section 6). The variance is updated in
 * steps k(0) = 0, k(j + 1) = k(j) + 2^(j / every), rounded down, until ranks first go on by themselves, and not later.
 * Signs are exchanged in every step until `local_after`, then in every second one, and every `local_doubles` steps half
 * as often, down to one of `local_most`. Besides, in the last step and where a checkpoint follows. */
#include <zplan/program.h>

static void find_variance(zp_arena *arena, const zp_train *t, zp_intervals *x) {
  int64_t end = t->local_most > 1 && t->local_after < t->steps ? t->local_after : t->steps, k = 0;
  for (int64_t j = 0; k < end || j == 0; j++) {
    zp_push(arena, &x->variance, k);
    if (j / t->variance_every > 40) break; /* after the last step of any run */
    k += INT64_C(1) << j / t->variance_every;
  }
}

static void find_phases(zp_arena *arena, const zp_train *t, zp_intervals *x) {
  zp_interval_phase phase = {.every = 1};
  zp_push(arena, &x->phases, phase);
  if (t->local_after == 0) x->phases.len = 0;
  for (phase.begin = t->local_after; 2 * phase.every <= t->local_most; phase.begin += t->local_doubles) {
    phase.every *= 2;
    zp_push(arena, &x->phases, phase);
  }
  if (x->phases.len == 0) zp_push(arena, &x->phases, phase);
}

static bool is_exchanged(const zp_train *t, const zp_intervals *x, int64_t step, int k) {
  const zp_interval_phase *phase = &x->phases.data[k];
  bool forced = step + 1 == t->steps || (t->checkpoint_every > 0 && (step + 1) % t->checkpoint_every == 0);
  return forced || (step - phase->begin + 1) % phase->every == 0 ||
         (k + 1 < x->phases.len && x->phases.data[k + 1].begin == step + 1);
}

zp_intervals zp_train_intervals(zp_arena *arena, const zp_train *t) {
  zp_intervals x = {0};
  if (t->variance_every == 0) return x;
  find_variance(arena, t, &x);
  find_phases(arena, t, &x);
  for (int i = 0; i < x.variance.len; i++) x.sums += x.variance.data[i] < t->steps;
  int k = 0;
  for (int64_t step = 0; step < t->steps; step++) {
    while (k + 1 < x.phases.len && x.phases.data[k + 1].begin <= step) k++;
    x.exchanges += is_exchanged(t, &x, step, k);
  }
  return x;
}
