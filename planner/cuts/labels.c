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
#include <zplan/pairs.h>
#include "labels.h"

/* Windows of l stages up to b that are gone round: rounds * V_l - less; or whole rounds, and then one of `left` stages.
 * l = 1 .. N_b stand at l - 1. */
typedef struct rounds_of {
  double *rounds, *less, *whole;
  int32_t *left; /* less one */
} rounds_of;

struct zp_labels {
  zp_pipe pipe;
  double messages_s;   /* up and back */
  rounds_of *rounds;   /* [stages]: of b */
  rounds_of *diagonal; /* [stages]: of windows from stage s up to b = s, s + 1, ...; whole, left: NULL */
  double *between;     /* [stages]: N_b */
  double *share;       /* [stages + 1]: 1 / l */
  int64_t work;        /* numbers that were considered */
};

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
  const rounds_of *of = &k->rounds[b];
  int64_t longest = longest_window(k, b, b + 1), l = 0;
  zp_pair most = zp_pair_twice(0);
  for (; l + 1 < longest; l += 2) {
    zp_pair run = zp_pair_at(&runs[l]), rest = zp_pair_of(runs[of->left[l]], runs[of->left[l + 1]]);
    zp_pair all = zp_pair_less(zp_pair_times(zp_pair_at(&of->rounds[l]), run), zp_pair_at(&of->less[l]));
    zp_pair whole = zp_pair_add(zp_pair_times(zp_pair_at(&of->whole[l]), run), rest);
    most = zp_pair_later(most, zp_pair_later(all, whole));
  }
  double latest = zp_pair_latest(most);
  for (; l < longest; l++) {
    latest = zp_later(latest, of->rounds[l] * runs[l] - of->less[l]);
    latest = zp_later(latest, of->whole[l] * runs[l] + runs[of->left[l]]);
  }
  return latest;
}

/* to[i] = from[i] + more. */
static void add_to_all(double *to, const double *from, double more, int64_t n) {
  zp_pair twice = zp_pair_twice(more);
  int64_t i = 0;
  for (; i + 1 < n; i += 2) zp_pair_put(&to[i], zp_pair_add(zp_pair_at(&from[i]), twice));
  for (; i < n; i++) to[i] = from[i] + more;
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
  add_to_all(runs + 1, prefix + ZP_PREFIX_RUNS, passing, stage);
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
  if (!last) {
    add_to_all(runs + 1, suffix + ZP_SUFFIX_RUNS, passing, count - 1);
    add_to_all(peaks + 1, suffix + ZP_SUFFIX_RUNS + count - 1, passing, count - 1);
  }
  const rounds_of *of = &k->diagonal[stage];
  zp_pair most = zp_pair_twice(last ? 0 : suffix[ZP_SUFFIX_DONE] + passing);
  int j = 0;
  for (; j + 1 < count; j += 2) {
    zp_pair end = zp_pair_add(zp_pair_at(&peaks[j]), zp_pair_times(zp_pair_at(&of->rounds[j]), zp_pair_at(&runs[j])));
    most = zp_pair_later(most, zp_pair_less(end, zp_pair_at(&of->less[j])));
  }
  double done = zp_pair_latest(most);
  if (j < count) done = zp_later(done, peaks[j] + of->rounds[j] * runs[j] - of->less[j]);
  longer[ZP_SUFFIX_DONE] = done;
}

/* ---- both ---- */

zp_prefix_view zp_prefix_view_of(zp_labels *k, const double *prefix, int stage) {
  k->work += stage;
  return (zp_prefix_view){prefix, -1};
}

/* The highest mean of a window that ends with the prefix: seconds a stage. */
static double highest_mean(const zp_labels *k, zp_prefix_view *view, int stages) {
  const double *own = view->label + ZP_PREFIX_RUNS;
  if (view->highest_mean_s >= 0) return view->highest_mean_s;
  zp_pair most = zp_pair_twice(0);
  int i = 0;
  for (; i + 1 < stages; i += 2)
    most = zp_pair_later(most, zp_pair_times(zp_pair_at(&own[i]), zp_pair_at(&k->share[i + 1])));
  double latest = zp_pair_latest(most);
  if (i < stages) latest = zp_later(latest, own[i] * k->share[i + 1]);
  return view->highest_mean_s = latest;
}

/* Windows from the prefix into the suffix, up to stage + j: none takes as long as is left alongside its peak? */
static bool windows_up_to(zp_labels *k, zp_prefix_view *prefix, double inside, double left, int stage, int j) {
  int64_t longest = longest_window(k, stage + j, stage + j + 1) - j - 1, i = 0;
  const double *own = prefix->label + ZP_PREFIX_RUNS, *rounds = k->rounds[stage + j].rounds + j + 1,
               *less = k->rounds[stage + j].less + j + 1;
  double most = zp_later(prefix->highest_mean_s, inside * k->share[j + 1]) * k->between[stage + j];
  if (left <= 0) return false;
  if (longest <= 0 || most * (1 + ZP_ROUNDING) < left) return true;
  k->work += longest;
  zp_pair insides = zp_pair_twice(inside), lefts = zp_pair_twice(left);
  for (; i + 1 < longest; i += 2) { /* no maximum: that would wait for the one before it */
    zp_pair window = zp_pair_times(zp_pair_at(&rounds[i]), zp_pair_add(zp_pair_at(&own[i]), insides));
    if (zp_pair_any_reaches(zp_pair_less(window, zp_pair_at(&less[i])), lefts)) return false;
  }
  return i == longest || rounds[i] * (own[i] + inside) - less[i] < left;
}

/* A window's rounds take no longer than its mean for every micro-batch between, and its mean is no higher than those of
 * its two sides. Most windows are below by that. */
static bool windows_are_below(zp_labels *k, zp_prefix_view *prefix, const double *suffix, int stage, double time_s) {
  int count = k->pipe.stages - stage, j = 0;
  const double *runs = suffix + ZP_SUFFIX_RUNS, *peaks = runs + count;
  zp_pair means = zp_pair_twice(highest_mean(k, prefix, stage)), messages = zp_pair_twice(k->messages_s),
          zeros = zp_pair_twice(0), rounding = zp_pair_twice(1 + ZP_ROUNDING), times = zp_pair_twice(time_s);
  k->work += count;
  for (; j + 1 < count; j += 2) {
    zp_pair inside = zp_pair_add(zp_pair_at(&runs[j]), messages), left = zp_pair_less(times, zp_pair_at(&peaks[j]));
    zp_pair most = zp_pair_later(means, zp_pair_times(inside, zp_pair_at(&k->share[j + 1])));
    most = zp_pair_later(zp_pair_times(most, zp_pair_at(&k->between[stage + j])), zeros);
    if (!zp_pair_any_reaches(zp_pair_times(most, rounding), left)) continue;
    for (int i = j; i < j + 2; i++)
      if (!windows_up_to(k, prefix, runs[i] + k->messages_s, time_s - peaks[i], stage, i)) return false;
  }
  return j == count || windows_up_to(k, prefix, runs[j] + k->messages_s, time_s - peaks[j], stage, j);
}

bool zp_labels_join(zp_labels *k, zp_prefix_view *view, const double *suffix, int stage, double target_s) {
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
  return longest < deadline && windows_are_below(k, view, suffix, stage, deadline - before);
}

/* ---- vectors ---- */

int64_t zp_label_above(const double *a, const double *b, int64_t length) {
  int64_t i = 0;
  while (i + 1 < length && !zp_pair_any_above(zp_pair_at(&a[i]), zp_pair_at(&b[i]))) i += 2;
  while (i < length && a[i] <= b[i]) i++;
  return i;
}

void zp_label_merge(double *a, const double *b, int64_t length) {
  int64_t i = 0;
  for (; i + 1 < length; i += 2) zp_pair_put(&a[i], zp_pair_sooner(zp_pair_at(&a[i]), zp_pair_at(&b[i])));
  if (i < length) a[i] = zp_sooner(a[i], b[i]);
}
