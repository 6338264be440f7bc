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
 * each. The last F of b climbs to the last stage again, and the last B comes down to the first. So
 *   T >= W + C + 2 c (P - 1 + w) + floor(N / l) (Xab + 2 c (l - 1)) + (N mod l) Xab / l,  l <= N or l = 1.
 * For l = 1 this is the bound of the longest stage; longer windows see that neighbours must talk: two equally long
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
    double before = w->prefix_s[cut[a]] - w->extra_s * inner_stages(w, a, stage);
    reach = fmin(reach, (rest - messages * floor(loops) * (length - 1) + loops * before) / (loops - 1));
  }
  return reach;
}

/* The formula above with Xab and W as memory has them; C stays the least, so that the bound grows with the window. */
bool zp_window_allows(const zp_windows *w, const zp_point *point, int stage, const int64_t *cut, int64_t end,
                      double deadline_s) {
  double messages = 2 * w->message_s, later = w->stages - 1 - stage, between = (double)w->microbatches - 1 - later;
  double base = fmax(w->total_s, point->work_s) + w->total_s - w->prefix_s[end] + messages * (w->stages - 1 + later);
  for (int a = stage; a >= 0; a--) {
    double length = stage - a + 1, loops = between / length;
    if (loops <= 1) break;
    double work = w->prefix_s[end] - w->prefix_s[cut[a]] + zp_least_more(point, a, stage + 1, cut[a], end);
    if ((base + messages * floor(loops) * (length - 1) + loops * work) * (1 - 1e-12) > deadline_s) return false;
  }
  return true;
}
