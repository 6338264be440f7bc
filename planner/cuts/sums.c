/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts of units whose seconds add up and fit everywhere: a place takes the sum of its units, so filling is one pass
 * over sums, which is several times as fast as asking (fill.c). Both a success and a failure of filling jump to a
 * longest place that occurs. */
#include <assert.h>
#include <math.h>
#include <zplan/cut_row.h>
#include <zplan/search_numbers.h>
#include <zplan/seconds.h>

/* Where a place that begins at `at` ends, not after `last`: within the limit it can go no further. Places next to each
 * other have about as many units, so the search begins at `guess`. */
static int64_t furthest(const double *before_s, int64_t at, int64_t last, int64_t guess, double limit_s) {
  int64_t end = guess < last ? guess : last;
  while (end > at && before_s[end] - before_s[at] > limit_s) end--;
  if (end < at) end = at;
  while (end < last && before_s[end + 1] - before_s[at] <= limit_s) end++;
  return end;
}

bool zp_sums_fill(const zp_cut_sums *sums, double limit_s, zp_fill_side side, int64_t *cut) {
  const double *before_s = sums->before_s;
  int places = sums->places;
  int64_t units = sums->units, at = side == ZP_FILL_BACK ? units : 0, taken = 0;
  assert(places > 0);
  cut[0] = 0, cut[places] = units;
  for (int i = 0; i < places; i++) {
    int64_t later = places - 1 - i, end = at; /* every later place needs a unit */
    if (side == ZP_FILL_BACK) {
      while (end > later && before_s[at] - before_s[end - 1] <= limit_s) end--;
      cut[later] = end;
    } else {
      end = furthest(before_s, at, units - later, at + taken, limit_s);
      taken = end - at;
      cut[i + 1] = end;
    }
    if (end == at) return false;
    at = end;
  }
  return at == (side == ZP_FILL_BACK ? 0 : units);
}

static double longest_place(const zp_cut_sums *sums, const int64_t *cut) {
  double longest = 0;
  for (int i = 0; i < sums->places; i++)
    longest = zp_later(longest, sums->before_s[cut[i + 1]] - sums->before_s[cut[i]]);
  return longest;
}

/* The shortest that a place must become before filling from the front gives another cut; HUGE_VAL: none was full. */
static double next_longest(const zp_cut_sums *sums, double limit_s) {
  const double *before_s = sums->before_s;
  double next = HUGE_VAL;
  for (int64_t i = 0, at = 0, taken = 0; i < sums->places && at < sums->units; i++) {
    int64_t last = sums->units - (sums->places - 1 - i), end = furthest(before_s, at, last, at + taken, limit_s);
    taken = end - at;
    if (end < last) next = zp_sooner(next, before_s[end + 1] - before_s[at]);
    at = end > at ? end : at + 1; /* a unit that is too long itself */
  }
  return next;
}

double zp_sums_least(const zp_cut_sums *sums, double longest_unit_s, int64_t *cut) {
  double total = sums->before_s[sums->units], mean = total / sums->places;
  double low = zp_later(mean, longest_unit_s) * (1 - ZP_BOUND_SLACK);
  if (sums->units < sums->places) return HUGE_VAL;
  /* Places that are full to within one unit are longer than the mean. */
  if (!zp_sums_fill(sums, (mean + longest_unit_s) * (1 + ZP_BOUND_SLACK), ZP_FILL_FRONT, cut))
    zp_sums_fill(sums, total, ZP_FILL_FRONT, cut);
  double high = longest_place(sums, cut);
  for (bool middle = false; high - low > ZP_EXACT_STEP * high; middle = !middle) {
    double limit = middle ? low + (high - low) / 2 : low * (1 + ZP_ROUNDING);
    if (zp_sums_fill(sums, limit, ZP_FILL_FRONT, cut))
      high = zp_sooner(limit, longest_place(sums, cut));
    else
      low = zp_later(limit, next_longest(sums, limit));
  }
  return high;
}
