/* SPDX-License-Identifier: Apache-2.0 */
/* What all stages have together, and what one of them takes: sums that are cut short, numbers that do not turn from
 * stage to stage, seconds of ranges of units against what is laid out. Random instances. */
#include "search_instances.h"
#include <zplan/schedule.h>

#ifdef __SANITIZE_ADDRESS__
enum { ROWS = 2000, PIPELINES = 300, RANGES = 2000 };
#else
enum { ROWS = 50000, PIPELINES = 3000, RANGES = 40000 };
#endif
enum { MOST_STAGES = 400 };

TestSuite(search_stages, .init = setup, .fini = teardown, .timeout = 600);

/* ---- sums ---- */

typedef struct row {
  double at[MOST_STAGES];
  int asked;
} row;

static double number_of(void *user, int stage) {
  row *r = user;
  r->asked++;
  return r->at[stage];
}

/* Rises or falls, in steps of whole numbers, so that sums are exact. */
static void fill(row *r, int stages) {
  int64_t step = 1 + random_below(40);
  double now = (double)random_below(5);
  bool falls = random_below(2);
  r->asked = 0;
  for (int k = 0; k < stages; k++) {
    r->at[falls ? stages - 1 - k : k] = now;
    if (random_below(3) == 0) now += (double)random_below(step);
  }
}

Test(search_stages, sums_that_are_cut_short) {
  static row r;
  int reached = 0, asked = 0, all = 0;
  state = 5;
  for (int i = 0; i < ROWS; i++) {
    int first = (int)random_below(4), end = first + 1 + (int)random_below(MOST_STAGES - 4);
    fill(&r, end);
    double sum = 0;
    for (int k = first; k < end; k++) sum += r.at[k];
    bool near = random_below(2);
    double wanted = near ? sum + (double)random_below(9) - 4 : sum * 0.02 * (double)random_below(100);
    bool found = zp_stages_reach(first, end, wanted, number_of, &r);
    cr_assert_eq(found, sum >= wanted, "%d stages: %g of %g", end - first, sum, wanted);
    reached += found;
    if (near) continue;
    asked += r.asked;
    all += end - first;
  }
  cr_expect(reached > ROWS / 4 && reached < ROWS, "%d of %d reach it", reached, ROWS);
  cr_expect(4 * asked < all, "%d of %d stages were asked", asked, all);
}

/* ---- flights ---- */

/* 1 where b is above a, -1 where it is below; they become one number over all stages. */
static bool turns(int *way, double a, double b) {
  int now = a < b ? 1 : a > b ? -1 : 0;
  if (now && *way && now != *way) return true;
  if (now) *way = now;
  return false;
}

static void check_pipeline(zp_search_cache *s, const zp_choice *c) {
  int way[5] = {0};
  double low = INFINITY, high = 0, low_pending = INFINITY, high_pending = 0;
  zp_stage_flight before = zp_find_stage_flight(s, c, 0);
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_stage_flight f = zp_find_stage_flight(s, c, stage);
    bool turned = turns(&way[0], before.flight, f.flight) | turns(&way[1], before.pending, f.pending) |
                  turns(&way[2], before.fewest, f.fewest) | turns(&way[3], before.all, f.all) |
                  turns(&way[4], before.slots, f.slots);
    cr_assert(!turned, "%s, %d chunks, stage %d of %d", zp_schedule_name(c->schedule), c->chunks, stage, c->pipeline);
    low = fmin(low, f.flight), high = fmax(high, f.flight);
    low_pending = fmin(low_pending, f.pending), high_pending = fmax(high_pending, f.pending);
    before = f;
  }
  for (int i = 0; i < 5; i++) /* what is needed of them rises with each, so all go one way or the other */
    cr_assert(i == 1 || zp_schedule_folds(c->schedule) || way[i] <= 0, "number %d rises", i);
  const zp_flight_memo *few = zp_find_flight_extremes(s, c);
  cr_assert(few->least == low && few->most == high && few->least_pending == low_pending &&
                few->most_pending == high_pending,
            "%s, %d chunks, %d stages", zp_schedule_name(c->schedule), c->chunks, c->pipeline);
}

Test(search_stages, flights_do_not_turn) {
  int devices;
  zp_search_progress progress = {0};
  state = 8;
  zp_spec *spec = random_spec(&devices);
  spec->train.batch = 96;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, devices);
  zp_search_start(&progress, spec, &machine, NULL);
  for (int i = 0; i < PIPELINES; i++) {
    zp_choice c = {.tensor = 1, .data = 1, .pipeline = 2 + (int)random_below(70)};
    do c.microbatch = 1 + random_below(96);
    while (96 % c.microbatch);
    c.schedule = (zp_schedule)random_below(ZP_SCHEDULE_COUNT);
    if (zp_schedule_folds(c.schedule)) c.chunks = 2;
    if (c.schedule == ZP_SCHEDULE_INTERLEAVED) c.chunks = 2 + (int)random_below(7);
    check_pipeline(progress.s, &c);
  }
  zp_search_end(&progress);
}

/* ---- seconds ---- */

/* What the procedures of a stage take that has these units: each called as the layout says. Where no schedule splits
 * backward, all of it is for gradients of inputs. */
static zp_part_seconds laid_out(const zp_variant *v, const zp_choice *like, int64_t first, int64_t end) {
  zp_arena *scratch = zp_arena_new("stage");
  int64_t n = v->lowered->n_units, cut[4] = {0};
  zp_choice c = *like;
  int stage = first > 0;
  c.pipeline = 1 + (first > 0) + (end < n);
  cut[stage] = first, cut[stage + 1] = end, cut[c.pipeline] = n;
  c.cut = cut;
  zp_stage x;
  zp_layout_stage(scratch, v->lowered, &c, stage, &x);
  zp_part_seconds sum = {0};
  for (int r = 0; r < x.runs.len; r++) {
    const zp_segment_program *called = &v->lowered->segments[x.runs.data[r].segment];
    double count = (double)x.runs.data[r].count, weights = v->lowered->splits ? called->weights_s : 0;
    sum.forward += count * called->forward.cost_s;
    sum.work += count * (called->forward.cost_s + called->backward.cost_s);
    sum.input += count * (called->forward.cost_s + called->backward.cost_s - weights);
  }
  zp_arena_free(scratch);
  return sum;
}

static zp_part_seconds of_parts(const zp_variant *v, int64_t first, int64_t end) {
  return (zp_part_seconds){v->prefix_s[end] - v->prefix_s[first], v->forward_s[end] - v->forward_s[first],
                           v->input_s[end] - v->input_s[first]};
}

/* a is at least b in each of forward, gradients of inputs, gradients of weights; all: exceeds by them. */
static bool is_no_less(const zp_part_seconds *a, const zp_part_seconds *b, double all) {
  double slack = 1e-12 * all;
  return a->forward - b->forward >= -slack && (a->input - a->forward) - (b->input - b->forward) >= -slack &&
         (a->work - a->input) - (b->work - b->input) >= -slack;
}

static zp_part_seconds plus(zp_part_seconds a, zp_part_seconds b) {
  return (zp_part_seconds){a.work + b.work, a.forward + b.forward, a.input + b.input};
}

/* *closer: ranges of which more is known than by their parts. */
static void check_range(const zp_variant *v, const zp_choice *c, int *closer) {
  int64_t n = v->lowered->n_units, first = random_below(n), end = first + 1 + random_below(n - first);
  double all = v->prefix_s[n];
  zp_part_seconds seconds = zp_stage_seconds(v, first, end), parts = of_parts(v, first, end);
  zp_part_seconds exact = laid_out(v, c, first, end);
  cr_assert(is_no_less(&exact, &seconds, all), "units %d to %d: %.9g, but %.9g are laid out", (int)first, (int)end,
            seconds.work, exact.work);
  cr_assert(is_no_less(&seconds, &parts, all), "units %d to %d: less than their parts", (int)first, (int)end);
  *closer += seconds.work > parts.work * (1 + 1e-9);
  if (end < n) {
    zp_part_seconds more = zp_stage_seconds(v, first, end + 1), least = plus(seconds, of_parts(v, end, end + 1));
    cr_assert(is_no_less(&more, &least, all), "units %d to %d and one after", (int)first, (int)end);
  }
  if (first > 0) {
    zp_part_seconds more = zp_stage_seconds(v, first - 1, end), least = plus(seconds, of_parts(v, first - 1, first));
    cr_assert(is_no_less(&more, &least, all), "units %d to %d and one before", (int)first, (int)end);
  }
}

Test(search_stages, seconds_are_below_what_is_laid_out_and_grow) {
  int closer = 0;
  state = 31;
  for (int checked = 0; checked < RANGES;) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    int devices;
    zp_search_progress progress = {0};
    zp_spec *spec = random_spec(&devices);
    if (random_below(2)) name_every_schedule(spec);
    zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, devices);
    zp_search_start(&progress, spec, &machine, NULL);
    for (int k = 0; k < 8; k++) {
      zp_choice c = {.tensor = devices % 2 ? 1 : 1 + (int)random_below(2), .pipeline = 1, .data = 1, .microbatch = 1};
      c.fine = random_below(4) > 0;
      zp_point point;
      if (!zp_search_point(progress.s, &c, zp_set_of_mode((zp_stage_mode)random_below(3)), &point)) continue;
      for (int i = 0; i < 40; i++, checked++) check_range(zp_variant_of(progress.s, &point), &c, &closer);
    }
    zp_search_end(&progress);
    zp_arena_rewind(arena, mark);
  }
  cr_expect(closer > RANGES / 20, "%d of %d ranges take more than their parts", closer, RANGES);
}
