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
#include "labels.h"

/* A window of l stages up to b that is gone round: rounds * V_l - less; or whole rounds, and then one of `left`
 * stages. */
typedef struct round_of {
  double rounds, less, whole;
  int64_t left;
} round_of;

struct zp_labels {
  zp_pipe pipe;
  double messages_s; /* up and back */
  round_of *rounds;  /* [stages][stages + 1]: of b and l <= N_b */
  double *between;   /* [stages]: N_b */
  double *share;     /* [stages + 1]: 1 / l */
  int64_t work;      /* numbers that were considered */
};

int64_t zp_labels_work(const zp_labels *k) { return k->work; }

static const round_of *rounds_at(const zp_labels *k, int b) { return &k->rounds[(int64_t)b * (k->pipe.stages + 1)]; }

zp_labels *zp_labels_new(zp_arena *arena, const zp_pipe *pipe) {
  zp_labels *k = ZP_NEW(arena, zp_labels);
  int64_t stages = pipe->stages;
  *k = (zp_labels){.pipe = *pipe,
                   .messages_s = 2 * pipe->message_s,
                   .rounds = ZP_NEW_ARRAY(arena, round_of, stages * (stages + 1)),
                   .between = ZP_NEW_ARRAY(arena, double, stages),
                   .share = ZP_NEW_ARRAY(arena, double, stages + 1)};
  for (int l = 1; l <= stages; l++) k->share[l] = 1.0 / l;
  for (int b = 0; b < stages; b++) {
    int64_t between = zp_pipe_between(pipe, b);
    k->between[b] = (double)between;
    for (int64_t l = 1; l <= b + 1 && l <= between; l++) {
      double left = (double)(between % l) / (double)l;
      k->rounds[b * (stages + 1) + l] = (round_of){(double)(between / l) + left, left * (double)(l - 1) * k->messages_s,
                                                   (double)(between / l), between % l};
    }
  }
  return k;
}

static int64_t longest_window(const zp_labels *k, int b, int64_t stages) {
  int64_t between = zp_pipe_between(&k->pipe, b);
  return stages < between ? stages : between;
}

/* ---- prefixes ---- */

void zp_prefix_start(const zp_labels *k, double *prefix) {
  prefix[ZP_PREFIX_WORK] = 0;
  prefix[ZP_PREFIX_UPDATE] = k->pipe.update_s;
  for (int i = 0; i < 4; i++) prefix[ZP_PREFIX_DONE + i] = -HUGE_VAL;
}

/* K of a prefix that ends with b; runs[l - 1] = V_l. */
static double rounds_s(const zp_labels *k, int b, const double *runs) {
  const round_of *rounds = rounds_at(k, b);
  int64_t longest = longest_window(k, b, b + 1);
  double most = 0;
  for (int64_t l = 1; l <= longest; l++) {
    most = zp_later(most, rounds[l].rounds * runs[l - 1] - rounds[l].less);
    int64_t left = rounds[l].left;
    if (left > 0) most = zp_later(most, rounds[l].whole * runs[l - 1] + runs[left - 1]);
  }
  return most;
}

/* done[first][last]: of the turns. The stage is passed once more for every turn that is still to come. */
static void extend_done(const double *done, double passing, const double turn[2], double *longer) {
  longer[0] = done[0] + 2 * passing;
  longer[1] = zp_later(done[1] + passing, longer[0] + turn[ZP_FIRST_TURN]);
  longer[2] = zp_later(done[2] + passing, longer[0] + turn[ZP_LAST_TURN]);
  longer[3] =
      zp_later(done[3], zp_later(done[1] + passing + turn[ZP_LAST_TURN], done[2] + passing + turn[ZP_FIRST_TURN]));
  longer[3] = zp_later(longer[3], longer[0] + turn[ZP_FIRST_TURN] + turn[ZP_LAST_TURN]);
}

void zp_prefix_extend(zp_labels *k, const double *prefix, int stage, const zp_range_cost *cost, double *longer) {
  double own = cost->forward_s + cost->backward_s, w = zp_pipe_warmup(&k->pipe, stage);
  double passing = own + (stage > 0 ? k->messages_s : 0), *runs = longer + ZP_PREFIX_RUNS;
  const double turn[2] = {w * cost->forward_s, w * cost->backward_s};
  double *done = longer + ZP_PREFIX_DONE;
  longer[ZP_PREFIX_WORK] = prefix[ZP_PREFIX_WORK] + passing + (stage == 0 ? cost->reduce_s + k->pipe.ties_s : 0);
  longer[ZP_PREFIX_UPDATE] = zp_later(prefix[ZP_PREFIX_UPDATE], cost->update_s);
  runs[0] = own;
  k->work += 3 * stage;
  for (int l = 1; l <= stage; l++) runs[l] = prefix[ZP_PREFIX_RUNS + l - 1] + passing;
  extend_done(prefix + ZP_PREFIX_DONE, passing, turn, done);
  if (zp_pipe_between(&k->pipe, stage) < 1) {
    done[3] = zp_later(done[3], longer[ZP_PREFIX_WORK] + zp_later(turn[0], turn[1]));
    return;
  }
  double round = longer[ZP_PREFIX_WORK] + rounds_s(k, stage, runs);
  done[0] = zp_later(done[0], round);
  done[1] = zp_later(done[1], round + turn[ZP_FIRST_TURN]);
  done[2] = zp_later(done[2], round + turn[ZP_LAST_TURN]);
  done[3] = zp_later(done[3], round + turn[ZP_FIRST_TURN] + turn[ZP_LAST_TURN]);
}

double zp_prefix_bound(const double *prefix) {
  double end = prefix[ZP_PREFIX_WORK];
  for (int i = 0; i < 4; i++) end = zp_later(end, prefix[ZP_PREFIX_DONE + i]);
  return (end + prefix[ZP_PREFIX_UPDATE]) * (1 - ZP_LABEL_SLACK);
}

/* ---- suffixes ---- */

void zp_suffix_extend(zp_labels *k, const double *suffix, int stage, const zp_range_cost *cost, double *longer) {
  int count = k->pipe.stages - stage;
  bool last = count == 1;
  double own = cost->forward_s + cost->backward_s, passing = own + k->messages_s, w = zp_pipe_warmup(&k->pipe, stage);
  double turn[2] = {w * cost->forward_s, w * cost->backward_s}, *runs = longer + ZP_SUFFIX_RUNS, *peaks = runs + count;
  for (int way = 0; way < 2 && !last; way++)
    turn[way] = zp_later(turn[way], suffix[ZP_SUFFIX_TURN + way] + k->messages_s);
  longer[ZP_SUFFIX_UPDATE] = last ? cost->update_s : zp_later(suffix[ZP_SUFFIX_UPDATE], cost->update_s);
  for (int way = 0; way < 2; way++) longer[ZP_SUFFIX_TURN + way] = own + turn[way];
  runs[0] = own;
  k->work += 4 * count;
  peaks[0] = own + (zp_pipe_between(&k->pipe, stage) < 1 ? zp_later(turn[0], turn[1]) : turn[0] + turn[1]);
  for (int j = 1; j < count; j++) {
    runs[j] = suffix[ZP_SUFFIX_RUNS + j - 1] + passing;
    peaks[j] = suffix[ZP_SUFFIX_RUNS + count - 1 + j - 1] + passing;
  }
  double done = last ? 0 : suffix[ZP_SUFFIX_DONE] + passing;
  for (int j = 0; j < count; j++) {
    const round_of *round = &rounds_at(k, stage + j)[j + 1];
    done = zp_later(done, peaks[j] + round->rounds * runs[j] - round->less);
  }
  longer[ZP_SUFFIX_DONE] = done;
}

/* ---- both ---- */

/* The highest mean of a window that ends with the prefix: seconds a stage. */
static double highest_mean(zp_labels *k, const double *own, int stages) {
  double most = 0;
  for (int i = 0; i < stages; i++) most = zp_later(most, own[i] * k->share[i + 1]);
  k->work += stages;
  return most;
}

zp_prefix_view zp_prefix_view_of(zp_labels *k, const double *prefix, int stage) {
  return (zp_prefix_view){prefix, highest_mean(k, prefix + ZP_PREFIX_RUNS, stage)};
}

/* A window's rounds take no longer than its mean for every micro-batch between, and its mean is no higher than those of
 * its two sides. True for nearly all that are below. */
static bool means_are_below(const zp_labels *k, double mean, const double *suffix, int stage, double time_s) {
  int count = k->pipe.stages - stage;
  const double *runs = suffix + ZP_SUFFIX_RUNS, *peaks = runs + count;
  bool below = true;
  for (int j = 0; j < count; j++) {
    double most = zp_later(mean, (runs[j] + k->messages_s) * k->share[j + 1]) * k->between[stage + j];
    below &= (zp_later(most, 0) * (1 + ZP_ROUNDING) + peaks[j]) * (1 + ZP_ROUNDING) < time_s;
  }
  return below;
}

/* Windows from the prefix into the suffix. */
static bool windows_are_below(zp_labels *k, const zp_prefix_view *prefix, const double *suffix, int stage,
                              double before, double deadline_s) {
  int count = k->pipe.stages - stage;
  const double *own = prefix->label + ZP_PREFIX_RUNS, *runs = suffix + ZP_SUFFIX_RUNS, *peaks = runs + count;
  k->work += count;
  if (means_are_below(k, prefix->highest_mean_s, suffix, stage, deadline_s - before)) return true;
  for (int j = 0; j < count; j++) {
    double left = deadline_s - before - peaks[j], inside = runs[j] + k->messages_s;
    if (left <= 0) return false;
    int64_t longest = longest_window(k, stage + j, stage + j + 1) - j - 1;
    double most = zp_later(prefix->highest_mean_s, inside * k->share[j + 1]) * k->between[stage + j];
    if (longest <= 0 || most * (1 + ZP_ROUNDING) < left) continue;
    const round_of *rounds = &rounds_at(k, stage + j)[j + 2];
    k->work += longest;
    for (int64_t i = 0; i < longest; i++) /* no maximum: that would wait for the one before it */
      if (rounds[i].rounds * (own[i] + inside) - rounds[i].less >= left) return false;
  }
  return true;
}

bool zp_labels_join(zp_labels *k, const zp_prefix_view *view, const double *suffix, int stage, double target_s) {
  const double *prefix = view->label;
  if (stage == k->pipe.stages) return zp_prefix_bound(prefix) < target_s;
  k->work += 8;
  double deadline = target_s * (1 + ZP_LABEL_SLACK) - zp_later(prefix[ZP_PREFIX_UPDATE], suffix[ZP_SUFFIX_UPDATE]);
  double message = stage > 0 ? k->messages_s : 0;
  double first = suffix[ZP_SUFFIX_TURN + ZP_FIRST_TURN] + message,
         last = suffix[ZP_SUFFIX_TURN + ZP_LAST_TURN] + message;
  const double *done = prefix + ZP_PREFIX_DONE;
  double longest = zp_later(zp_later(done[0] + first + last, done[1] + last), zp_later(done[2] + first, done[3]));
  longest = zp_later(longest, prefix[ZP_PREFIX_WORK] + zp_later(first, last));
  double before = prefix[ZP_PREFIX_WORK] + message;
  longest = zp_later(longest, before + suffix[ZP_SUFFIX_DONE]);
  return longest < deadline && windows_are_below(k, view, suffix, stage, before, deadline);
}

/* ---- vectors ---- */

int64_t zp_label_above(const double *a, const double *b, int64_t length) {
  int64_t i = 0;
  while (i < length && a[i] <= b[i]) i++;
  return i;
}

void zp_label_merge(double *a, const double *b, int64_t length) {
  for (int64_t i = 0; i < length; i++) a[i] = a[i] < b[i] ? a[i] : b[i];
}
