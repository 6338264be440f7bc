/* SPDX-License-Identifier: Apache-2.0 */
/* What takes the time of labels (labels.c, whose letters these are): making them longer, joining and comparing them.
 * Compiled twice (lanes.h). */
#include <math.h>
#include <zplan/lanes.h>
#include "label_loops.h"

static int64_t longest_window(const zp_labels *k, int b, int64_t stages) {
  int64_t between = zp_pipe_between(&k->pipe, b);
  return stages < between ? stages : between;
}

/* ---- prefixes ---- */

/* K of a prefix that ends with b; runs[l - 1] = V_l. */
static double rounds_s(const zp_labels *k, int b, const double *runs) {
  const rounds_of *of = &k->rounds[b];
  int64_t longest = longest_window(k, b, b + 1), l = 0;
  zp_lanes most = zp_lanes_all(0);
  for (; l + ZP_LANES <= longest; l += ZP_LANES) {
    zp_lanes run = zp_lanes_at(&runs[l]), rest = zp_lanes_gather(runs, &of->left[l]);
    zp_lanes all = zp_lanes_less(zp_lanes_times(zp_lanes_at(&of->rounds[l]), run), zp_lanes_at(&of->less[l]));
    zp_lanes whole = zp_lanes_add(zp_lanes_times(zp_lanes_at(&of->whole[l]), run), rest);
    most = zp_lanes_later(most, zp_lanes_later(all, whole));
  }
  double latest = zp_lanes_latest(most);
  for (; l < longest; l++) {
    latest = zp_later(latest, of->rounds[l] * runs[l] - of->less[l]);
    latest = zp_later(latest, of->whole[l] * runs[l] + runs[of->left[l]]);
  }
  return latest;
}

/* to[i] = from[i] + more. */
static void add_to_all(double *to, const double *from, double more, int64_t n) {
  zp_lanes mores = zp_lanes_all(more);
  int64_t i = 0;
  for (; i + ZP_LANES <= n; i += ZP_LANES) zp_lanes_put(&to[i], zp_lanes_add(zp_lanes_at(&from[i]), mores));
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

void ZP_LANED(zp_prefix_extend)(zp_labels *k, const double *prefix, int stage, const zp_range_cost *cost,
                                double *longer) {
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

/* ---- suffixes ---- */

void ZP_LANED(zp_suffix_extend)(zp_labels *k, const double *suffix, int stage, const zp_range_cost *cost,
                                double *longer) {
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
  zp_lanes most = zp_lanes_all(last ? 0 : suffix[ZP_SUFFIX_DONE] + passing);
  int j = 0;
  for (; j + ZP_LANES <= count; j += ZP_LANES) {
    zp_lanes end =
        zp_lanes_add(zp_lanes_at(&peaks[j]), zp_lanes_times(zp_lanes_at(&of->rounds[j]), zp_lanes_at(&runs[j])));
    most = zp_lanes_later(most, zp_lanes_less(end, zp_lanes_at(&of->less[j])));
  }
  double done = zp_lanes_latest(most);
  for (; j < count; j++) done = zp_later(done, peaks[j] + of->rounds[j] * runs[j] - of->less[j]);
  longer[ZP_SUFFIX_DONE] = done;
}

/* ---- both ---- */

/* The highest mean of a window that ends with the prefix: seconds a stage. */
static double highest_mean(const zp_labels *k, zp_prefix_view *view, int stages) {
  const double *own = view->label + ZP_PREFIX_RUNS;
  if (view->highest_mean_s >= 0) return view->highest_mean_s;
  zp_lanes most = zp_lanes_all(0);
  int i = 0;
  for (; i + ZP_LANES <= stages; i += ZP_LANES)
    most = zp_lanes_later(most, zp_lanes_times(zp_lanes_at(&own[i]), zp_lanes_at(&k->share[i + 1])));
  double latest = zp_lanes_latest(most);
  for (; i < stages; i++) latest = zp_later(latest, own[i] * k->share[i + 1]);
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
  zp_lanes insides = zp_lanes_all(inside), lefts = zp_lanes_all(left);
  for (; i + ZP_LANES <= longest; i += ZP_LANES) { /* no maximum: that would wait for the one before it */
    zp_lanes window = zp_lanes_times(zp_lanes_at(&rounds[i]), zp_lanes_add(zp_lanes_at(&own[i]), insides));
    if (zp_lanes_any_reaches(zp_lanes_less(window, zp_lanes_at(&less[i])), lefts)) return false;
  }
  for (; i < longest; i++)
    if (rounds[i] * (own[i] + inside) - less[i] >= left) return false;
  return true;
}

/* A window's rounds take no longer than its mean for every micro-batch between, and its mean is no higher than those of
 * its two sides. Most windows are below by that. */
static bool windows_are_below(zp_labels *k, zp_prefix_view *prefix, const double *suffix, int stage, double time_s) {
  int count = k->pipe.stages - stage, j = 0;
  const double *runs = suffix + ZP_SUFFIX_RUNS, *peaks = runs + count;
  zp_lanes means = zp_lanes_all(highest_mean(k, prefix, stage)), messages = zp_lanes_all(k->messages_s),
           zeros = zp_lanes_all(0), rounding = zp_lanes_all(1 + ZP_ROUNDING), times = zp_lanes_all(time_s);
  k->work += count;
  for (; j + ZP_LANES <= count; j += ZP_LANES) {
    zp_lanes inside = zp_lanes_add(zp_lanes_at(&runs[j]), messages),
             left = zp_lanes_less(times, zp_lanes_at(&peaks[j]));
    zp_lanes most = zp_lanes_later(means, zp_lanes_times(inside, zp_lanes_at(&k->share[j + 1])));
    most = zp_lanes_later(zp_lanes_times(most, zp_lanes_at(&k->between[stage + j])), zeros);
    if (!zp_lanes_any_reaches(zp_lanes_times(most, rounding), left)) continue;
    for (int i = j; i < j + ZP_LANES; i++)
      if (!windows_up_to(k, prefix, runs[i] + k->messages_s, time_s - peaks[i], stage, i)) return false;
  }
  for (; j < count; j++)
    if (!windows_up_to(k, prefix, runs[j] + k->messages_s, time_s - peaks[j], stage, j)) return false;
  return true;
}

bool ZP_LANED(zp_labels_join)(zp_labels *k, zp_prefix_view *view, const double *suffix, int stage, double target_s) {
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

int64_t ZP_LANED(zp_label_above)(const double *a, const double *b, int64_t length) {
  int64_t i = 0;
  while (i + ZP_LANES <= length && !zp_lanes_any_above(zp_lanes_at(&a[i]), zp_lanes_at(&b[i]))) i += ZP_LANES;
  while (i < length && a[i] <= b[i]) i++;
  return i;
}

void ZP_LANED(zp_label_merge)(double *a, const double *b, int64_t length) {
  int64_t i = 0;
  for (; i + ZP_LANES <= length; i += ZP_LANES)
    zp_lanes_put(&a[i], zp_lanes_sooner(zp_lanes_at(&a[i]), zp_lanes_at(&b[i])));
  for (; i < length; i++) a[i] = zp_sooner(a[i], b[i]);
}
