/* Lower bounds from windows: neighbouring stages a .. b of 1F1B, whatever the cuts inside and outside them.
 *
 * Legend: P stages, m micro-batches, X = F + B seconds of a stage and micro-batch, W = sum of X over all stages, Xab
 * over the window, C over the stages behind b, w = P - 1 - b of them, c a message, l = b - a + 1.
 *
 * Stage s runs B of micro-batch i right before F of micro-batch i + w(s) + 1. Follow one chain of actions that wait for
 * each other: F of the first micro-batch climbs to the last stage, B comes down to b. From there chains go round the
 * window: B down to a, the next F of a, F up to b, the next B of b. One round passes every action of the window once,
 * sends 2 (l - 1) messages and moves on by l micro-batches. A window fits N / l times between the first B of b and its
 * last F, N = m - 1 - w micro-batches apart; what is left of N is spent at the window's longest stage, at least Xab / l
 * each, or in one round of the window of the last r stages of this one. The last F of b climbs to the last stage again,
 * and the last B comes down to the first. So, with q = floor(N / l) and r = N mod l,
 *   T >= W + C + 2 c (P - 1 + w) + q (Xab + 2 c (l - 1)) + max(r Xab / l, Xrb + 2 c (r - 1) if r > 0),  l <= N or l
 * = 1. For l = 1 this is the bound of the longest stage; longer windows see that neighbours must talk: two equally long
 * stages side by side run at X + c, not at X. The bound grows with the units of the window when N > l, falls with what
 * comes before it, and needs nothing else (what an inner stage takes beside its units is a constant): filling every
 * stage as far as all windows that end with it allow is exact.
 */
#include <math.h>
#include "search_internal.h"

/* How many of the stages first .. last are neither the first nor the last of all. */
static double inner_stages(const zp_windows *w, int first, int last) {
  int low = first > 1 ? first : 1, high = last < w->stages - 2 ? last : w->stages - 2;
  return high < low ? 0 : high - low + 1;
}

double zp_window_rest(const zp_windows *w, int fixed, int64_t end) {
  return w->total_s - w->prefix_s[end] + w->extra_s * inner_stages(w, fixed, w->stages - 1) +
         2 * (w->stages - 1 - fixed) * w->message_s;
}

double zp_window_reach(const zp_windows *w, int stage, const int64_t *cut, double deadline_s) {
  double messages = 2 * w->message_s, later = w->stages - 1 - stage, reach = HUGE_VAL;
  double between = (double)w->microbatches - 1 - later;
  double rest = deadline_s - 2 * w->total_s - messages * (w->stages - 1 + later) -
                w->extra_s * (inner_stages(w, 0, w->stages - 1) + inner_stages(w, stage + 1, w->stages - 1));
  for (int a = stage; a >= 0; a--) {
    double length = stage - a + 1, loops = between / length;
    if (loops <= 1) break; /* nor are there longer ones */
    double before = w->prefix_s[cut[a]] - w->extra_s * inner_stages(w, a, stage), rounds = floor(loops),
           left = rest - messages * rounds * (length - 1);
    reach = fmin(reach, (left + loops * before) / (loops - 1));
    int short_run = (int)(between - rounds * length), c = stage - short_run + 1;
    if (short_run == 0) continue;
    double short_before = w->prefix_s[cut[c]] - w->extra_s * inner_stages(w, c, stage);
    reach = fmin(reach, (left - messages * (short_run - 1) + rounds * before + short_before) / rounds);
  }
  return reach;
}

/* Least work of the stages first .. stage with their modes. */
typedef struct run_work {
  const zp_mode_work *work;
  const zp_known_stages *known;
  const int64_t *cut;
  int stage;
  int64_t end;
  double unknown_s; /* of the stages that are not known */
} run_work;

static double work_of_run(const run_work *r, int first) {
  int n = r->known->stages;
  if (first < n) return r->known->sum_s[n] - r->known->sum_s[first] + r->unknown_s;
  return zp_mode_work_of(r->work, first, r->stage + 1, r->cut[first], r->end);
}

/* The formula above with the least work of stages that have one mode each, C and W for this end, and in place of C the
 * turns of the first and of the last micro-batch (mode_work.c). With nearer ends of the stages before it the window
 * only grows. */
bool zp_window_allows(const zp_windows *w, const zp_mode_work *work, const zp_known_stages *known, int stage,
                      const int64_t *cut, int64_t end, double deadline_s) {
  int n = known->stages;
  double messages = 2 * w->message_s, later = w->stages - 1 - stage, between = (double)w->microbatches - 1 - later;
  run_work run = {work, known, cut, stage, end, zp_mode_work_of(work, n, stage + 1, cut[n], end)};
  double climb = known->sum_s[n] + run.unknown_s + messages * stage,
         after = zp_mode_work_of(work, stage + 1, w->stages, end, w->units) + messages * later;
  if ((climb + after) * (1 - 1e-12) > deadline_s) return false;
  double base = climb + fmax(after, zp_mode_work_turn(work, w, ZP_FIRST_TURN, stage, cut[stage], end)) +
                fmax(after, zp_mode_work_turn(work, w, ZP_LAST_TURN, stage, cut[stage], end));
  for (int a = stage; a >= 0; a--) {
    double length = stage - a + 1, loops = between / length;
    if (loops <= 1) break;
    double own = work_of_run(&run, a), rounds = floor(loops), left = (loops - rounds) * own;
    int short_run = (int)(between - rounds * length);
    if (short_run > 0) left = fmax(left, work_of_run(&run, stage - short_run + 1) + messages * (short_run - 1));
    if ((base + rounds * (own + messages * (length - 1)) + left) * (1 - 1e-12) > deadline_s) return false;
  }
  return true;
}

/* May the stage start there, when the stages behind it start at `low` at the nearest and at `high` at the furthest? The
 * same windows from the other side: the work behind them is least when they end at the furthest. */
static bool may_start(const zp_windows *w, const zp_mode_work *work, int stage, int64_t start, const int64_t *low,
                      const int64_t *high, double deadline_s) {
  double messages = 2 * w->message_s;
  double before_s = zp_mode_work_of(work, 0, stage, 0, start),
         all = before_s + zp_mode_work_of(work, stage, w->stages, start, w->units);
  if ((all + messages * (w->stages - 1)) * (1 - 1e-12) > deadline_s) return false;
  for (int b = stage; b < w->stages && low[b + 1] > start; b++) {
    double length = b - stage + 1, later = w->stages - 1 - b, between = (double)w->microbatches - 1 - later;
    double loops = between / length;
    if (loops <= 1) continue;
    double own = zp_mode_work_of(work, stage, b + 1, start, low[b + 1]);
    double base =
        all + messages * (w->stages - 1 + later) + zp_mode_work_of(work, b + 1, w->stages, high[b + 1], w->units);
    if ((base + loops * own + floor(loops) * messages * (length - 1)) * (1 - 1e-12) > deadline_s) return false;
  }
  return true;
}

bool zp_window_lows(const zp_windows *w, const zp_mode_work *work, const int64_t *high, double deadline_s,
                    int64_t *low) {
  low[w->stages] = w->units;
  for (int stage = w->stages - 1; stage > 0; stage--) {
    int64_t start = zp_mode_work_least_start(work, stage, low[stage + 1]);
    if (start < stage) start = stage;
    while (start <= high[stage] && !may_start(w, work, stage, start, low, high, deadline_s)) start++;
    if (start > high[stage]) return false;
    low[stage] = start;
  }
  low[0] = 0;
  return true;
}
