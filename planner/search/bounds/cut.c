/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts of a point with one chunk a stage: what the limits of planner/cuts are held against, which is room in memory,
 * seconds of a stage, its bound, or bytes. A stage takes the fastest of its modes that fits; the others are longer. */
#include <assert.h>
#include <math.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "cut.h"
#include "cut_problem.h"
#include "procedures.h"

typedef struct cutting {
  zp_search_cache *s;
  const zp_point *point;
  const zp_variant *v; /* the least of all modes */
  zp_limits limits;
  bool waits; /* bounds of stages count their waits */
} cutting;

static double need_room(void *user, int stage, int64_t first, int64_t end, double limit) {
  const cutting *c = user;
  (void)limit;
  return zp_stage_fits(c->s, c->point, stage, &(zp_units){first, end - first}, &c->limits) ? 0 : HUGE_VAL;
}

static double need_seconds(void *user, int stage, int64_t first, int64_t end, double limit) {
  const cutting *c = user;
  double least = c->v->prefix_s[end] - c->v->prefix_s[first];
  if (least > limit) return least;
  const zp_variant *own = zp_stage_variant(c->s, c->point, stage, &(zp_units){first, end - first}, &c->limits);
  return own ? zp_stage_work(own, first, end) : HUGE_VAL;
}

static double need_bound(void *user, int stage, int64_t first, int64_t end, double limit) {
  const cutting *c = user;
  (void)limit;
  const zp_variant *own = zp_stage_variant(c->s, c->point, stage, &(zp_units){first, end - first}, &c->limits);
  return own ? zp_bound_of_stage(c->s, c->point, own, stage, first, end, c->waits) : HUGE_VAL;
}

static int64_t bytes_within(double limit) { return limit < 0x1p62 ? (int64_t)limit : INT64_MAX; }

static double need_bytes(void *user, int stage, int64_t first, int64_t end, double limit) {
  const cutting *c = user;
  zp_limits limits = {bytes_within(limit), INT64_MAX, INT64_MAX};
  bool fits = zp_stage_fits(c->s, c->point, stage, &(zp_units){first, end - first}, &limits);
  return fits ? limit : nextafter(limit, HUGE_VAL);
}

/* Ends of the model have more in them than those that are like them in between. */
static int64_t alike(void *user, int64_t unit) {
  return zp_stage_canonical(((const cutting *)user)->v->lowered, unit, unit + 1);
}

/* Inner stages differ only in how many micro-batches are in flight. */
static bool needs_as_much(void *user, int stage, int other) {
  const cutting *c = user;
  const zp_choice *choice = &c->point->choice;
  if (zp_has_types(c->s) || zp_choice_has_modes(choice)) return false;
  int64_t m = zp_microbatches(c->s->in->spec, choice);
  return zp_in_flight_chunk(choice, stage, 0, m) >= zp_in_flight_chunk(choice, other, 0, m) &&
         zp_pending_chunk(choice, stage, 0, m) >= zp_pending_chunk(choice, other, 0, m);
}

/* For many micro-batches the waits of a stage shrink more slowly than its work grows: zp_bound_of_stage with its waits
 * grows with the units. */
static cutting cutting_of(zp_search_cache *s, const zp_point *point) {
  bool many = zp_microbatches(s->in->spec, &point->choice) > 2 * (int64_t)point->choice.pipeline;
  return (cutting){s, point, zp_variant_of(s, point), zp_search_limits(s), many};
}

static zp_cut_row row_of(cutting *c, double (*need)(void *, int, int64_t, int64_t, double)) {
  return (zp_cut_row){.places = c->point->choice.pipeline,
                      .units = zp_point_units(c->s, c->point),
                      .scratch = c->s->arena,
                      .user = c,
                      .need = need,
                      .alike = alike,
                      .needs_as_much = needs_as_much};
}

bool zp_cut_fits(zp_search_cache *s, const zp_point *point, const zp_limits *limits, int64_t *cut) {
  cutting c = cutting_of(s, point);
  c.limits = *limits;
  zp_cut_row row = row_of(&c, need_room);
  return zp_row_fill(&row, 0, ZP_FILL_FRONT, cut);
}

bool zp_cut_balanced_within(zp_search_cache *s, const zp_point *point, double stage_s, zp_fill_side side,
                            int64_t *cut) {
  cutting c = cutting_of(s, point);
  zp_cut_row row = row_of(&c, need_seconds);
  return zp_row_fill(&row, stage_s, side, cut);
}

double zp_cut_bottleneck(zp_search_cache *s, const zp_point *point, int64_t *cut) {
  cutting c = cutting_of(s, point);
  zp_cut_row row = row_of(&c, need_seconds);
  zp_cut_limits longest = {fmax(point->work_s / point->choice.pipeline, point->longest_s), HUGE_VAL};
  bool found = zp_row_least(&row, &longest, ZP_EXACT_STEP, cut);
  assert(found);
  (void)found;
  return longest.possible;
}

double zp_cut_least_bound(zp_search_cache *s, const zp_point *point, double low_s, double high_s, int64_t *cut) {
  cutting c = cutting_of(s, point);
  zp_cut_row row = row_of(&c, need_bound);
  zp_cut_limits bound = {low_s, high_s};
  return zp_row_least(&row, &bound, ZP_CLOSE_STEP, cut) ? bound.none_below : HUGE_VAL;
}

int64_t zp_cut_least_memory(zp_search_cache *s, const zp_point *point, int64_t *cut) {
  cutting c = cutting_of(s, point);
  zp_cut_row row = row_of(&c, need_bytes);
  zp_cut_limits bytes = {0, s->limit_bytes > 0 ? (double)s->limit_bytes : 1};
  while (!zp_row_least(&row, &bytes, ZP_CLOSE_STEP, cut)) bytes = (zp_cut_limits){bytes.possible, 2 * bytes.possible};
  return bytes_within(bytes.possible);
}

/* ---- all cuts of small problems ---- */

typedef struct visit {
  cutting *c;
  zp_on_cut *on_cut;
  void *user;
} visit;

static bool may_begin(void *user, int stage, const int64_t *cut) {
  return isfinite(need_room(((const visit *)user)->c, stage, cut[stage], cut[stage + 1], 0));
}

static bool see(void *user, int64_t *cut) {
  const visit *v = user;
  v->on_cut(v->user, cut);
  return true;
}

bool zp_cut_all(zp_search_cache *s, const zp_point *point, zp_on_cut *on_cut, void *user) {
  int stages = point->choice.pipeline;
  if (!zp_few_ways(zp_point_units(s, point), stages, ZP_MOST_CUTS)) return false;
  cutting c = cutting_of(s, point);
  visit v = {&c, on_cut, user};
  const zp_cut_walk walk = {stages, zp_point_units(s, point), INT64_MAX, &v, may_begin, see};
  zp_walk_cuts(&walk, ZP_NEW_ARRAY(s->arena, int64_t, stages + 1));
  return true;
}
