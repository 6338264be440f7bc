/* Cutting units into stages, one chunk a stage. When the longest stage or the bound of every stage must stay below a
 * limit, filling every stage as far as it goes (from the front or from the back) finds cuts if there are any: a part of
 * a feasible range is feasible on the same stage, in time and in bytes and with the same mode, so the furthest reach of
 * every stage is never worse, as long as every stage can take the next unit. Where one cannot, because a unit has room
 * on later stages only, everything that the first stages can run is kept instead. Bisection over the limit gives the
 * exact optimum. */
#include <assert.h>
#include <math.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "cut.h"
#include "cut_problem.h"
#include "fit.h"
#include "procedures.h"

typedef struct cutter {
  zp_search_cache *s;
  const zp_point *point;
  const zp_variant *v;
  const zp_cut_rule *rule;
  bool bounded, waits; /* the bounds of stages matter; with their waits */
  double bound_s;      /* of the stage that was looked at last; HUGE_VAL: it was not asked for */
  double longest_s;    /* the largest one of the stages that were taken */
  double next_s;       /* the least one of those that were not, because of it: no smaller limit gives another cut */
} cutter;

/* With the fastest mode that fits: the others are longer. */
static bool fits(cutter *c, int stage, int64_t first, int64_t count) {
  c->bound_s = HUGE_VAL;
  if (c->v->prefix_s[first + count] - c->v->prefix_s[first] > c->rule->stage_s) return false;
  const zp_variant *own = zp_stage_variant(c->s, c->point, stage, &(zp_units){first, count}, &c->rule->limits);
  if (!own || own->prefix_s[first + count] - own->prefix_s[first] > c->rule->stage_s) return false;
  if (!c->bounded) return true;
  c->bound_s = zp_bound_of_stage(c->s, c->point, own, stage, first, first + count, c->waits);
  return c->bound_s <= c->rule->total_s;
}

/* The most units, at most `most`, that a stage can take from `first` on; with from_back, up to `first`. 0: none. The
 * stage before reached `guess`: neighbours differ little. */
static int64_t reach(cutter *c, int stage, int64_t first, int64_t most, int64_t guess, bool from_back) {
  int64_t low = 0, high = most, n = guess < most ? guess : most;
  double taken_s = 0, missed_s = HUGE_VAL; /* bounds of low and of high + 1 units */
  for (int64_t step = 1; low < high; step *= 2) {
    if (fits(c, stage, from_back ? first - n : first, n))
      low = n, taken_s = c->bound_s;
    else
      high = n - 1, missed_s = c->bound_s;
    bool bracketed = low > 0 && high < most;
    n = bracketed ? low + (high - low + 1) / 2 : low > 0 ? low + step : high + 1 - step;
    n = n > high ? high : n <= low ? low + 1 : n;
  }
  c->longest_s = zp_later(c->longest_s, taken_s);
  c->next_s = zp_sooner(c->next_s, missed_s);
  return low;
}

/* For many micro-batches the waits of a stage shrink more slowly than its work grows: zp_bound_of_stage with its waits
 * grows with the units. */
static bool many_microbatches(const zp_search_input *in, const zp_choice *c) {
  return zp_microbatches(in->spec, c) > 2 * (int64_t)c->pipeline;
}

/* ---- where a unit has no room on a stage ---- */

/* Where a stage may begin, in ascending order, no two neighbours. */
typedef struct interval {
  int64_t first, last;
} interval;
typedef ZP_VEC(interval) intervals;

static void add_interval(zp_arena *arena, intervals *to, interval next) {
  interval *before = to->len > 0 ? &to->data[to->len - 1] : NULL;
  if (before && next.first <= before->last + 1)
    before->last = next.last > before->last ? next.last : before->last;
  else
    zp_push(arena, to, next);
}

/* Which units a stage has room for alone: asked once for units that are alike. */
enum { MOST_KINDS = 64 };
typedef struct kinds {
  cutter *c;
  int stage, n;
  struct {
    int64_t unit;
    bool takes;
  } known[MOST_KINDS];
} kinds;

static bool ask(kinds *k, int64_t unit) {
  bool takes = fits(k->c, k->stage, unit, 1);
  if (!takes) k->c->next_s = zp_sooner(k->c->next_s, k->c->bound_s);
  return takes;
}

/* Ends of the model have more in them than those that are like them in between. */
static bool takes_one(kinds *k, int64_t unit) {
  int64_t alike = zp_stage_canonical(k->c->v->lowered, unit, unit + 1);
  for (int i = 0; i < k->n; i++)
    if (k->known[i].unit == alike) return k->known[i].takes;
  bool takes = ask(k, unit);
  if (k->n < MOST_KINDS) {
    k->known[k->n].unit = alike;
    k->known[k->n++].takes = takes;
  }
  return takes;
}

/* Where the stage behind may begin. Begins that each have room for their own unit reach all ends up to the furthest one
 * of the last of them. */
static intervals ends_of(cutter *c, int stage, const intervals *begins) {
  intervals ends = {0};
  kinds own = {.c = c, .stage = stage};
  int64_t later = c->point->choice.pipeline - 1 - stage, behind = zp_point_units(c->s, c->point) - later;
  for (int i = 0; i < begins->len; i++)
    for (int64_t at = begins->data[i].first; at <= begins->data[i].last && at < behind; at++) {
      int64_t last = at;
      if (!takes_one(&own, at)) continue;
      while (last < begins->data[i].last && last + 1 < behind && takes_one(&own, last + 1)) last++;
      add_interval(c->s->arena, &ends, (interval){at + 1, last + reach(c, stage, last, behind - last, 1, false)});
      at = last;
    }
  return ends;
}

/* The largest begin before `end`; -1: none. A shorter range has room where a longer one has. */
static int64_t last_before(const intervals *begins, int64_t end) {
  for (int i = begins->len - 1; i >= 0; i--)
    if (begins->data[i].first < end) return begins->data[i].last < end ? begins->data[i].last : end - 1;
  return -1;
}

/* Is there any cut? All ends of the first stages are kept. */
static bool cut_by_intervals(cutter *c, int64_t *cut) {
  int stages = c->point->choice.pipeline;
  zp_arena_mark mark = zp_arena_get_mark(c->s->arena);
  intervals *begins = ZP_NEW_ARRAY(c->s->arena, intervals, stages + 1);
  add_interval(c->s->arena, &begins[0], (interval){0, 0});
  for (int k = 0; k < stages; k++) begins[k + 1] = ends_of(c, k, &begins[k]);
  const intervals *ends = &begins[stages];
  bool found = ends->len > 0 && ends->data[ends->len - 1].last == cut[stages];
  if (found) c->longest_s = 0;
  for (int k = stages - 1; k >= 0 && found; k--) {
    cut[k] = last_before(&begins[k], cut[k + 1]);
    bool fit = fits(c, k, cut[k], cut[k + 1] - cut[k]);
    assert(fit && "a shorter range has room where a longer one has");
    (void)fit;
    c->longest_s = zp_later(c->longest_s, c->bound_s);
  }
  zp_arena_rewind(c->s->arena, mark);
  return found;
}

static bool is_inner(const zp_choice *choice, int stage) { return stage > 0 && stage < choice->pipeline - 1; }

/* Does a stage need at least what another one needs for the same units? Inner stages differ only in how many
 * micro-batches are in flight. False where that is not known. */
static bool needs_as_much(const cutter *c, int stage, int other) {
  const zp_choice *choice = &c->point->choice;
  if (!is_inner(choice, stage) || !is_inner(choice, other) || zp_has_types(c->s) || choice->stage_recompute)
    return false;
  int64_t m = zp_microbatches(c->s->in->spec, choice);
  return zp_in_flight_chunk(choice, stage, 0, m) >= zp_in_flight_chunk(choice, other, 0, m) &&
         zp_pending_chunk(choice, stage, 0, m) >= zp_pending_chunk(choice, other, 0, m);
}

/* Has any of these stages room for the unit? The first and the last stage run all units up to their end of the model.
 * Asked from the last one on, which holds the fewest micro-batches. */
static bool any_takes(cutter *c, int first_stage, int last_stage, int64_t unit) {
  int without_room = -1;
  for (int stage = last_stage; stage >= first_stage; stage--) {
    if (without_room >= 0 && needs_as_much(c, stage, without_room)) continue;
    bool is_last = stage == c->point->choice.pipeline - 1;
    int64_t first = stage == 0 ? 0 : unit, end = is_last ? zp_point_units(c->s, c->point) : unit + 1;
    if (fits(c, stage, first, end - first)) return true;
    c->next_s = zp_sooner(c->next_s, c->bound_s);
    if (c->bound_s == HUGE_VAL) without_room = stage; /* its bound was not even asked for */
  }
  return false;
}

/* `stage` has no room for `unit`, the furthest one that the stages before it in the order of filling leave to it. So a
 * stage behind it in that order runs this unit, with units enough on the way for one on every stage, or no cut fits. */
static bool cut_around(cutter *c, int stage, int64_t unit, int64_t *cut) {
  int last_stage = c->point->choice.pipeline - 1;
  int64_t behind = zp_point_units(c->s, c->point) - 1 - unit;
  bool any = c->rule->from_back ? any_takes(c, behind < last_stage ? last_stage - (int)behind : 0, stage - 1, unit)
                                : any_takes(c, stage + 1, unit < last_stage ? (int)unit : last_stage, unit);
  return any && cut_by_intervals(c, cut);
}

static bool cut_within(cutter *c, int64_t *cut) {
  const zp_search_cache *s = c->s;
  const zp_point *point = c->point;
  const zp_cut_rule *rule = c->rule;
  int stages = point->choice.pipeline;
  c->longest_s = 0, c->next_s = HUGE_VAL;
  cut[0] = 0, cut[stages] = zp_point_units(s, point);
  int64_t done = 0, n = zp_point_units(s, point) / stages; /* units placed, from the side that is filled first */
  for (int i = 0; i < stages; i++) {
    int stage = rule->from_back ? stages - 1 - i : i;
    int64_t most = zp_point_units(s, point) - done - (stages - 1 - i); /* every later stage needs a unit */
    n = reach(c, stage, rule->from_back ? zp_point_units(s, point) - done : done, most, n, rule->from_back);
    if (n == 0) return i > 0 && cut_around(c, stage, rule->from_back ? cut[stage + 1] - 1 : done, cut);
    done += n;
    if (rule->from_back)
      cut[stage] = zp_point_units(s, point) - done;
    else
      cut[stage + 1] = done;
  }
  return done == zp_point_units(s, point);
}

static cutter cutter_of(zp_search_cache *s, const zp_point *point, const zp_cut_rule *rule) {
  return (cutter){
      s, point, zp_variant_of(s, point), rule, isfinite(rule->total_s), many_microbatches(s->in, &point->choice), 0,
      0, 0};
}

bool zp_cut_within(zp_search_cache *s, const zp_point *point, const zp_cut_rule *rule, int64_t *cut) {
  cutter c = cutter_of(s, point, rule);
  return cut_within(&c, cut);
}

/* Requires: the cut fits. */
static double longest_stage(zp_search_cache *s, const zp_point *point, const int64_t *cut) {
  int stages = point->choice.pipeline;
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  const zp_variant **own = ZP_NEW_ARRAY(s->arena, const zp_variant *, stages);
  zp_limits limits = zp_search_limits(s);
  double longest = 0;
  zp_cut_variants(s, point, &limits, cut, own);
  for (int i = 0; i < stages; i++) longest = fmax(longest, own[i]->prefix_s[cut[i + 1]] - own[i]->prefix_s[cut[i]]);
  zp_arena_rewind(s->arena, mark);
  return longest;
}

double zp_cut_bottleneck(zp_search_cache *s, const zp_point *point) {
  int stages = point->choice.pipeline;
  int64_t *cut = ZP_NEW_ARRAY(s->arena, int64_t, stages + 1);
  zp_cut_rule rule = {.total_s = HUGE_VAL, .limits = zp_search_limits(s)};
  double low = fmax(point->work_s / stages, point->longest_s); /* nothing below is possible */
  rule.stage_s = low * (1 + ZP_ROUNDING);
  if (zp_cut_within(s, point, &rule, cut)) return longest_stage(s, point, cut);
  rule.stage_s = HUGE_VAL;
  bool found = zp_cut_within(s, point, &rule, cut);
  assert(found);
  (void)found;
  double high = longest_stage(s, point, cut);
  while (high - low > ZP_EXACT_STEP * high) { /* invariant: possible at high, impossible at low */
    rule.stage_s = low + (high - low) / 2;
    if (zp_cut_within(s, point, &rule, cut))
      high = fmin(longest_stage(s, point, cut), rule.stage_s); /* rounding of prefix differences */
    else
      low = rule.stage_s;
  }
  return high;
}

/* Both a success and a failure jump to a value that occurs. */
double zp_cut_least_bound(zp_search_cache *s, const zp_point *point, double low_s, double high_s, int64_t *cut) {
  zp_cut_rule rule = {.stage_s = HUGE_VAL, .limits = zp_search_limits(s)};
  cutter c = cutter_of(s, point, &rule);
  int64_t *trial = ZP_NEW_ARRAY(s->arena, int64_t, point->choice.pipeline + 1);
  double low = low_s, high = high_s;
  for (bool middle = true; high - low > ZP_CLOSE_STEP * high;
       middle = !middle) { /* invariant: possible at high, not below low */
    rule.total_s = middle ? low + (high - low) / 2 : low * (1 + ZP_ROUNDING);
    if (cut_within(&c, trial)) {
      high = zp_sooner(rule.total_s, c.longest_s);
      memcpy(cut, trial, sizeof *cut * (size_t)(point->choice.pipeline + 1));
    } else {
      low = zp_later(rule.total_s, c.next_s);
    }
  }
  return zp_sooner(low, high);
}

int64_t zp_cut_least_memory(zp_search_cache *s, const zp_point *point, int64_t *cut) {
  zp_cut_rule rule = {.stage_s = HUGE_VAL, .total_s = HUGE_VAL, .limits = {1, INT64_MAX, INT64_MAX}};
  int64_t low = 0, high = s->limit_bytes > 0 ? s->limit_bytes : 1;
  while (rule.limits.device = high, !zp_cut_within(s, point, &rule, cut)) { /* doubling, then bisection */
    low = high;
    high = high > INT64_MAX / 2 ? INT64_MAX : 2 * high;
  }
  while (high - low > 1 && (double)(high - low) > ZP_CLOSE_STEP * (double)high) {
    rule.limits.device = low + (high - low) / 2;
    if (zp_cut_within(s, point, &rule, cut))
      high = rule.limits.device;
    else
      low = rule.limits.device;
  }
  rule.limits.device = high;
  bool found = zp_cut_within(s, point, &rule, cut);
  assert(found);
  (void)found;
  return high;
}

/* ---- all cuts of small problems ---- */

typedef struct all_cuts {
  zp_search_cache *s;
  const zp_point *point;
  zp_limits limits;
  int64_t *cut;
  zp_on_cut *on_cut;
  void *user;
} all_cuts;

static void cut_from(all_cuts *a, int stage) {
  const zp_choice *choice = &a->point->choice;
  int later = choice->pipeline - 1 - stage;
  if (later < 0) {
    a->on_cut(a->user, a->cut);
    return;
  }
  int64_t first = a->cut[stage], most = zp_point_units(a->s, a->point) - first - later;
  for (int64_t n = later == 0 ? most : 1; n <= most; n++) {
    if (!zp_stage_variant(a->s, a->point, stage, &(zp_units){first, n}, &a->limits))
      return; /* more units: more bytes */
    a->cut[stage + 1] = first + n;
    cut_from(a, stage + 1);
  }
}

/* Ways to cut: (units - 1) over (stages - 1). */
static bool few_cuts(int64_t units, int64_t stages) {
  double ways = 1;
  for (int64_t i = 1; i < stages; i++) {
    ways *= (double)(units - i) / (double)i;
    if (ways > 64.0 * ZP_MOST_CUTS) return false;
  }
  return ways <= ZP_MOST_CUTS;
}

bool zp_cut_all(zp_search_cache *s, const zp_point *point, zp_on_cut *on_cut, void *user) {
  if (!few_cuts(zp_point_units(s, point), point->choice.pipeline)) return false;
  all_cuts a = {s,      point, zp_search_limits(s), ZP_NEW_ARRAY(s->arena, int64_t, point->choice.pipeline + 1),
                on_cut, user};
  cut_from(&a, 0);
  return true;
}
