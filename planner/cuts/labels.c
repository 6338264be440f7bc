/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds of 1F1B steps from what is known of the first stages, of the last stages, or of both.
 *
 * The step is the longest chain of actions that wait for each other; every chain is a bound. Stage s runs B of
 * micro-batch i right before F of micro-batch i + w_s + 1. Follow one chain: F of the first micro-batch climbs to stage
 * b and turns into B there. From there it goes round a window of l stages up to b: B down to its first stage, the next
 * F of that one, F up to b, the next B of b. One round passes every action of the window once, sends 2 (l - 1) messages
 * and moves on by l micro-batches; rounds go on until the last F of b, N_b micro-batches later; what is left of them is
 * spent in one stage of the window, or in one round of fewer stages. The last F of b turns again, and its B comes down
 * to the first stage. For l = 1 this is the bound of one stage; longer windows see that neighbours must talk: two
 * equally long stages side by side run at X + c, not at X. Legend: c a message, X = F + B of a stage and micro-batch,
 * S_b sum of X up to stage b, with the messages between and the reduction of the first stage; V_l of the last l stages
 * up to b, with the messages between; w and N as in labels.h. A turn at b is w_b F_b (first turn) or w_b B_b (last
 * turn), or goes on to some stage after b: H, the answer of the stages after it, H of s = X_s + max(w_s F_s or w_s
 * B_s, 2 c + H of s + 1). Going round: K_b = max over l <= N_b of q V_l + max(r V_l / l less messages, V_r), q =
 * floor(N_b / l), r = N_b mod l T >= S_b + turn_b(first) + turn_b(last) + K_b, N_b >= 1;  T >= S_b + turn_b(either) for
 * every b.
 *
 * A prefix, stages 0 .. s, holds all that these chains need of it, as numbers that only make T longer as they grow:
 *   work   S_s
 *   update the longest one
 *   done   the longest chain around any b <= s up to where it needs the stages after s: without its two turns, without
 *          the last one, without the first one, with both
 *   runs   V_1 .. V_s+1 at b = s: what windows take that end after s
 * and a suffix, stages s .. P - 1, likewise:
 *   turns  H of both ways
 *   done   the longest chain around any b >= s, from its arrival at s
 *   runs   X of the first 1 .. P - s stages, with messages
 *   peaks  for every b: X of s .. b, with messages, and both turns
 * so of two prefixes with equal units the one that is nowhere longer can be followed by all that follows the other one,
 * and the least of several, number by number, is a bound of each of them. */
#include <math.h>
#include <zplan/lanes.h>
#include "label_loops.h"

int64_t zp_labels_work(const zp_labels *k) { return k->work; }

static void find_rounds(zp_labels *k, zp_arena *arena, int b) {
  int64_t between = zp_pipe_between(&k->pipe, b);
  rounds_of *of = &k->rounds[b];
  *of = (rounds_of){ZP_NEW_ARRAY(arena, double, b + 1), ZP_NEW_ARRAY(arena, double, b + 1),
                    ZP_NEW_ARRAY(arena, double, b + 1), ZP_NEW_ARRAY(arena, int32_t, b + 1)};
  k->between[b] = (double)between;
  for (int64_t l = 1; l <= b + 1 && l <= between; l++) {
    double left = (double)(between % l) / (double)l;
    of->rounds[l - 1] = (double)(between / l) + left;
    of->less[l - 1] = left * (double)(l - 1) * k->messages_s;
    /* Without a rest: one stage, which takes no longer than its N_b rounds. */
    of->whole[l - 1] = between % l ? (double)(between / l) : 0;
    of->left[l - 1] = between % l ? (int32_t)(between % l - 1) : 0;
  }
  for (int stage = 0; stage <= b; stage++) {
    k->diagonal[stage].rounds[b - stage] = of->rounds[b - stage];
    k->diagonal[stage].less[b - stage] = of->less[b - stage];
  }
}

zp_labels *zp_labels_new(zp_arena *arena, const zp_pipe *pipe) {
  zp_labels *k = ZP_NEW(arena, zp_labels);
  int stages = pipe->stages;
  *k = (zp_labels){.pipe = *pipe,
                   .messages_s = 2 * pipe->message_s,
                   .rounds = ZP_NEW_ARRAY(arena, rounds_of, stages),
                   .diagonal = ZP_NEW_ARRAY(arena, rounds_of, stages),
                   .between = ZP_NEW_ARRAY(arena, double, stages),
                   .share = ZP_NEW_ARRAY(arena, double, stages + 1)};
  for (int l = 1; l <= stages; l++) k->share[l] = 1.0 / l;
  for (int stage = 0; stage < stages; stage++) {
    k->diagonal[stage].rounds = ZP_NEW_ARRAY(arena, double, stages - stage);
    k->diagonal[stage].less = ZP_NEW_ARRAY(arena, double, stages - stage);
  }
  for (int b = 0; b < stages; b++) find_rounds(k, arena, b);
  return k;
}

/* ---- prefixes ---- */

void zp_prefix_start(const zp_labels *k, double *prefix) {
  prefix[ZP_PREFIX_WORK] = 0;
  prefix[ZP_PREFIX_UPDATE] = k->pipe.update_s;
  for (int i = 0; i < 4; i++) prefix[ZP_PREFIX_DONE + i] = -HUGE_VAL;
}

double zp_prefix_bound(const double *prefix) {
  double end = prefix[ZP_PREFIX_WORK];
  for (int i = 0; i < 4; i++) end = zp_later(end, prefix[ZP_PREFIX_DONE + i]);
  return (end + prefix[ZP_PREFIX_UPDATE]) * (1 - ZP_LABEL_SLACK);
}

/* ---- both ---- */

zp_prefix_view zp_prefix_view_of(zp_labels *k, const double *prefix, int stage) {
  k->work += stage;
  return (zp_prefix_view){prefix, -1};
}

/* ---- what takes the time: label_loops.c ---- */

#if ZP_WIDE_LANES
#define TAKE(name) (zp_has_wide_lanes() ? name##_wide : name##_narrow)
#else
#define TAKE(name) name##_narrow
#endif

void zp_prefix_extend(zp_labels *k, const double *prefix, int stage, const zp_range_cost *cost, double *longer) {
  TAKE(zp_prefix_extend)(k, prefix, stage, cost, longer);
}

void zp_suffix_extend(zp_labels *k, const double *suffix, int stage, const zp_range_cost *cost, double *longer) {
  TAKE(zp_suffix_extend)(k, suffix, stage, cost, longer);
}

bool zp_labels_join(zp_labels *k, zp_prefix_view *view, const double *suffix, int stage, double target_s) {
  return TAKE(zp_labels_join)(k, view, suffix, stage, target_s);
}

int64_t zp_label_above(const double *a, const double *b, int64_t length) { return TAKE(zp_label_above)(a, b, length); }

void zp_label_merge(double *a, const double *b, int64_t length) { TAKE(zp_label_merge)(a, b, length); }
