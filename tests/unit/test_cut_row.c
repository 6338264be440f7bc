/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts within a limit on random numbers: filling, the least limit, sums and the walk over all cuts, each alongside
 * every cut tried. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <zplan/cut_row.h>

#ifdef __SANITIZE_ADDRESS__
enum { TRIALS = 1000 };
#else
enum { TRIALS = 20000 };
#endif

enum { MOST_UNITS = 11, MOST_PLACES = 6 };

static uint64_t state;
static int64_t random_below(int64_t n) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int64_t)((state >> 33) % (uint64_t)n);
}
static double random_share(void) { return (double)(1 + random_below(1000)) / 1000; }

/* A unit takes seconds and bytes; a place has room for bytes, and takes its units the slower the fuller it is. */
typedef struct numbers {
  zp_cut_row row;
  double seconds[MOST_UNITS], bytes[MOST_UNITS], room[MOST_PLACES], slow[MOST_PLACES];
  bool rough;   /* needs are answered as inexactly as allowed */
  bool uniform; /* all units but the first and the last one are alike */
  int cuts, walked, wanted;
  int64_t first_cut[MOST_PLACES + 1], before[MOST_PLACES + 1];
  double least;
} numbers;

static double need_of(const numbers *x, int place, int64_t first, int64_t end) {
  double seconds = 0, bytes = 0;
  for (int64_t u = first; u < end; u++) seconds += x->seconds[u], bytes += x->bytes[u];
  if (bytes > x->room[place]) return HUGE_VAL;
  return seconds * x->slow[place] * (bytes > x->room[place] / 2 ? 1.3 : 1);
}

static double need(void *user, int place, int64_t first, int64_t end, double limit) {
  const numbers *x = user;
  cr_assert(0 <= first && first < end && end <= x->row.units && 0 <= place && place < x->row.places);
  double exact = need_of(x, place, first, end), share = random_share();
  if (!x->rough || limit == HUGE_VAL) return exact;
  if (exact <= limit) return fmin(limit, exact + share * (limit - exact));
  if (exact == HUGE_VAL && random_below(2)) return exact;
  double most = exact == HUGE_VAL ? 2 * limit + 1 : exact;
  return fmax(limit + share * (most - limit), nextafter(limit, HUGE_VAL));
}

static int64_t alike(void *user, int64_t unit) {
  const numbers *x = user;
  return x->uniform && unit > 0 && unit < x->row.units - 1 ? 1 : unit;
}

static bool needs_as_much(void *user, int place, int other) {
  const numbers *x = user;
  return x->room[place] <= x->room[other];
}

static void draw(numbers *x, zp_arena *arena) {
  *x = (numbers){.rough = random_below(2), .uniform = random_below(2)};
  x->row = (zp_cut_row){.places = 1 + (int)random_below(MOST_PLACES),
                        .units = 1 + random_below(MOST_UNITS),
                        .scratch = arena,
                        .user = x,
                        .need = need,
                        .alike = random_below(2) ? alike : NULL,
                        .needs_as_much = random_below(2) ? needs_as_much : NULL};
  double bytes = 0;
  for (int64_t u = 0; u < x->row.units; u++) {
    bool inner = u > 1 && u < x->row.units - 1;
    x->seconds[u] = x->uniform && inner ? x->seconds[1] : random_share();
    x->bytes[u] = x->uniform && inner ? x->bytes[1] : random_below(4) ? random_share() : 6 * random_share();
    bytes += x->bytes[u];
  }
  for (int k = 0; k < x->row.places; k++)
    x->room[k] = bytes * (0.1 + 2 * random_share()) / x->row.places, x->slow[k] = 1 + random_below(2) * random_share();
}

/* ---- every cut ---- */

static double longest_of(const numbers *x, const int64_t *cut) {
  double longest = 0;
  for (int k = 0; k < x->row.places; k++) longest = fmax(longest, need_of(x, k, cut[k], cut[k + 1]));
  return longest;
}

static void try_cuts(numbers *x, int64_t *cut, int place) {
  if (place == x->row.places) {
    if (cut[place] != x->row.units) return;
    double longest = longest_of(x, cut);
    if (isfinite(longest) && x->cuts++ == 0) memcpy(x->first_cut, cut, sizeof x->first_cut);
    x->least = fmin(x->least, longest);
    return;
  }
  for (int64_t end = cut[place] + 1; end <= x->row.units; end++) {
    cut[place + 1] = end;
    try_cuts(x, cut, place + 1);
  }
}

static void check_cut(const numbers *x, const int64_t *cut, double limit) {
  cr_assert(cut[0] == 0 && cut[x->row.places] == x->row.units);
  for (int k = 0; k < x->row.places; k++) cr_assert_lt(cut[k], cut[k + 1]);
  cr_assert(longest_of(x, cut) <= limit * (1 + 1e-15), "%.17g of %.17g", longest_of(x, cut), limit);
}

/* ---- filling and the least limit ---- */

static void check_fill(numbers *x, double limit) {
  for (int side = ZP_FILL_FRONT; side <= ZP_FILL_BACK; side++) {
    int64_t cut[MOST_PLACES + 1];
    bool found = zp_row_fill(&x->row, limit, side, cut);
    cr_assert_eq(found, x->least <= limit && isfinite(x->least), "limit %.12g, least %.12g, side %d", limit, x->least,
                 side);
    if (found) check_cut(x, cut, limit);
  }
}

static void check_least(numbers *x) {
  int64_t cut[MOST_PLACES + 1];
  double low = random_below(2) && isfinite(x->least) ? x->least * random_share() : 0;
  double high = isfinite(x->least) ? x->least * (1 + random_below(2) * random_share()) : 100;
  zp_cut_limits limits = {low, random_below(2) ? high : HUGE_VAL};
  bool found = zp_row_least(&x->row, &limits, 1e-9, cut);
  cr_assert_eq(found, isfinite(x->least));
  if (!found) return;
  cr_assert(limits.none_below <= x->least * (1 + 1e-15) && limits.none_below >= x->least * (1 - 1e-8),
            "%.12g, not %.12g", limits.none_below, x->least);
  cr_assert(limits.possible >= x->least * (1 - 1e-15) && limits.possible <= x->least * (1 + 1e-8), "%.12g, not %.12g",
            limits.possible, x->least);
  check_cut(x, cut, limits.possible);
  limits = (zp_cut_limits){0, x->least * 0.999};
  cr_assert(!zp_row_least(&x->row, &limits, 1e-9, cut));
}

Test(cut_row, filling_finds_a_cut_if_there_is_any) {
  int feasible = 0, around = 0;
  state = 1;
  for (int i = 0; i < TRIALS; i++) {
    zp_arena *arena = zp_arena_new("row");
    numbers x;
    int64_t cut[MOST_PLACES + 1] = {0};
    draw(&x, arena);
    x.least = HUGE_VAL;
    try_cuts(&x, cut, 0);
    feasible += isfinite(x.least);
    for (int64_t u = 0; u < x.row.units; u++)
      for (int k = 0; k < x.row.places && isfinite(x.least); k++) around += x.bytes[u] > x.room[k];
    check_least(&x);
    check_fill(&x, HUGE_VAL);
    check_fill(&x, isfinite(x.least) ? x.least : random_share());
    check_fill(&x, isfinite(x.least) ? x.least * (0.5 + random_share()) : 2 * random_share());
    zp_arena_free(arena);
  }
  cr_expect(feasible > TRIALS / 5 && feasible < TRIALS * 4 / 5, "%d of %d rows have a cut", feasible, TRIALS);
  cr_expect(around > TRIALS / 20, "units without room on some place: %d", around);
}

/* ---- sums ---- */

Test(cut_row, sums_are_filled_as_places_are) {
  state = 2;
  for (int i = 0; i < TRIALS; i++) {
    zp_arena *arena = zp_arena_new("row");
    numbers x;
    int64_t cut[MOST_PLACES + 1] = {0}, own[MOST_PLACES + 1], before[MOST_PLACES + 1];
    double before_s[MOST_UNITS + 1] = {0}, longest_unit = 0;
    draw(&x, arena);
    x.rough = false, x.least = HUGE_VAL;
    for (int k = 0; k < x.row.places; k++) x.room[k] = HUGE_VAL, x.slow[k] = 1;
    for (int64_t u = 0; u < x.row.units; u++) {
      x.seconds[u] = (double)(1 + random_below(64)); /* sums without rounding */
      before_s[u + 1] = before_s[u] + x.seconds[u], longest_unit = fmax(longest_unit, x.seconds[u]);
    }
    x.row.alike = NULL;
    try_cuts(&x, cut, 0);
    const zp_cut_sums sums = {x.row.places, x.row.units, before_s};
    double least = zp_sums_least(&sums, longest_unit, before);
    cr_assert(least == x.least || fabs(least - x.least) <= 1e-8 * x.least, "%.12g, not %.12g", least, x.least);
    double limits[] = {x.least, x.least - 1, x.least + (double)random_below(9)};
    for (int k = 0; k < 3 && isfinite(x.least); k++)
      for (int side = ZP_FILL_FRONT; side <= ZP_FILL_BACK; side++) {
        bool found = zp_sums_fill(&sums, limits[k], side, cut);
        cr_assert_eq(found, limits[k] >= x.least);
        cr_assert_eq(found, zp_row_fill(&x.row, limits[k], side, own));
        if (found) cr_assert_arr_eq(cut, own, sizeof *cut * (size_t)(x.row.places + 1));
      }
    zp_arena_free(arena);
  }
}

/* ---- one by one ---- */

static bool may_begin(void *user, int place, const int64_t *cut) {
  return isfinite(need_of(user, place, cut[place], cut[place + 1]));
}

static bool on_cut(void *user, int64_t *cut) {
  numbers *x = user;
  size_t size = sizeof *cut * (size_t)(x->row.places + 1);
  check_cut(x, cut, HUGE_VAL);
  if (x->walked == 0) cr_assert_arr_eq(cut, x->first_cut, size);
  int k = 0; /* every cut once: in ascending order */
  while (x->walked && k < x->row.places && cut[k] == x->before[k]) k++;
  cr_assert(!x->walked || cut[k] > x->before[k]);
  memcpy(x->before, cut, size);
  return ++x->walked != x->wanted;
}

Test(cut_row, a_walk_sees_every_cut_once) {
  int64_t steps = 0;
  state = 3;
  for (int i = 0; i < TRIALS; i++) {
    zp_arena *arena = zp_arena_new("row");
    numbers x;
    int64_t cut[MOST_PLACES + 1] = {0};
    draw(&x, arena);
    try_cuts(&x, cut, 0);
    const zp_cut_walk walk = {x.row.places, x.row.units, 1 << 20, &x, may_begin, on_cut};
    cr_assert_eq(zp_walk_cuts(&walk, cut), ZP_WALK_DONE);
    cr_assert_eq(x.walked, x.cuts);
    x.walked = 0, x.wanted = 1;
    cr_assert_eq(zp_walk_cuts(&walk, cut), x.cuts ? ZP_WALK_STOPPED : ZP_WALK_DONE);
    x.walked = x.wanted = 0;
    const zp_cut_walk brief = {x.row.places, x.row.units, random_below(20), &x, may_begin, on_cut};
    zp_walk_end how = zp_walk_cuts(&brief, cut);
    cr_assert(how == ZP_WALK_SPENT ? x.walked <= x.cuts : x.walked == x.cuts);
    steps += how == ZP_WALK_SPENT;
    zp_arena_free(arena);
  }
  cr_expect(steps > TRIALS / 20, "%d walks of %d were cut short", (int)steps, TRIALS);
}

/* Pascal's triangle. */
Test(cut_row, ways_to_cut_are_counted) {
  double row[41] = {1};
  for (int units = 1; units <= 40; units++) {
    for (int places = 1; places <= units; places++) {
      double ways = row[places - 1];
      cr_assert(zp_few_ways(units, places, ways * (1 + 1e-9)) && !zp_few_ways(units, places, ways * (1 - 1e-9)),
                "%d units, %d places", units, places);
    }
    for (int k = units; k > 0; k--) row[k] += row[k - 1];
  }
}
