/* SPDX-License-Identifier: Apache-2.0 */
/* Measures where the time of training steps goes: points at every change of step, summed by step. Every other training
 * step is measured, so that those between say how much measuring costs. */
#include "profile.h"
#include <assert.h>
#include <stdlib.h>
#include "device.h"
#include "state.h"

enum { POINTS = 4096, RECENT = 512 };

/* What begins at a point. */
typedef struct point {
  int step;
  int64_t microbatch;
  int16_t chunk;
  char action;
} point;

/* The newest durations of training steps, a ring. */
typedef struct durations {
  int64_t n;
  double ms[RECENT];
} durations;

struct zpr_profile {
  zpr_measured sum;
  int n_steps;         /* of the program's table; the fixed ones follow */
  int64_t begin, last; /* steps done when the run began; the last one that it does */
  bool on, told;       /* this training step is measured; the profile was told */
  point now;           /* the newest point */
  int n_points;        /* since the last reading */
  point points[POINTS];
  double at_ns[POINTS];
  bool has_before; /* of this training step: the point before the first of points[], and when it was */
  point before;
  double before_ns, begin_ns;
  zpr_span spans[ZPR_MOST_SPANS];
  durations with, without;
};

/* ---- opening ---- */

/* Is step `step` (the first is 1) to be measured? */
static bool is_measured(const zpr *c, int64_t step) {
  const zpr_options *o = &c->state->options;
  const zpr_profile *p = c->state->profile;
  if (o->profile_first > 0) return step >= o->profile_first && step <= o->profile_last;
  int64_t after = step - p->begin - ZPR_PROFILE_WARMUP;
  return after > 0 && after % 2 == 1;
}

static void check(zpr *c, int64_t last, zpr_error *error) {
  const zpr_options *o = &c->state->options;
  if (!c->program->profile)
    zpr_error_set(error, "Z0842",
                  "this trainer was built without --profile: `zplan build --profile` builds one with it");
  else if (o->profile_first > 0 && (o->profile_first <= c->step || o->profile_last > last))
    zpr_error_set(error, "Z0842", "--profile-steps %lld..%lld: this run does steps %lld to %lld",
                  (long long)o->profile_first, (long long)o->profile_last, (long long)c->step + 1, (long long)last);
  else if (o->profile_first == 0 && last - c->step <= ZPR_PROFILE_WARMUP)
    zpr_error_set(error, "Z0842",
                  "--profile measures from the %dth step of a run on, and this one does %lld: --steps %lld, or "
                  "--profile-steps",
                  ZPR_PROFILE_WARMUP + 1, (long long)(last - c->step), (long long)c->step + 10);
}

void zpr_profile_open(zpr *c, int64_t last) {
  zpr_error error = {0};
  if (!c->state->options.profile) return;
  check(c, last, &error);
  zpr_agree(c, &error);
  zpr_profile *p = c->state->profile = zpr_alloc(c, 1, sizeof *p);
  p->n_steps = c->program->profile->n_steps;
  p->begin = c->step;
  p->last = last;
  p->sum.n = p->n_steps + ZPR_FIXED_COUNT;
  p->sum.time = zpr_alloc(c, (size_t)p->sum.n, sizeof *p->sum.time);
  p->sum.spans = p->spans;
  zpr_points_open(c, POINTS);
}

void zpr_profile_close(zpr *c) {
  zpr_profile *p = c->state->profile;
  if (!p) return;
  zpr_points_open(c, 0);
  free(p->sum.time);
  free(p);
  c->state->profile = NULL;
}

/* ---- points ---- */

static bool same_span(const zpr_span *a, const zpr_span *b) {
  return a->action == b->action && a->fixed == b->fixed && a->microbatch == b->microbatch && a->chunk == b->chunk;
}

/* Steps of procedures, and what is between them, are the action's. */
static void add_span(zpr_profile *p, const point *at, double begin_ns, double end_ns) {
  bool of_action = at->action && (at->step < p->n_steps || at->step == p->n_steps + ZPR_AT_BETWEEN);
  zpr_span span = {.begin_ns = begin_ns - p->begin_ns, .end_ns = end_ns - p->begin_ns};
  if (of_action) {
    span.action = at->action;
    span.microbatch = (int32_t)at->microbatch;
    span.chunk = at->chunk;
  } else {
    span.fixed = (int8_t)(at->step < p->n_steps ? ZPR_AT_BETWEEN : at->step - p->n_steps);
  }
  zpr_span *last = p->sum.n_spans > 0 ? &p->spans[p->sum.n_spans - 1] : NULL;
  if (last && same_span(last, &span))
    last->end_ns = span.end_ns;
  else if (p->sum.n_spans < ZPR_MOST_SPANS)
    p->spans[p->sum.n_spans++] = span;
  else
    p->sum.spans_cut = true;
}

/* Gives the time between the points to their steps. The last point begins what is still going on. */
static void read_points(zpr *c) {
  zpr_profile *p = c->state->profile;
  zpr_points_read(c, p->n_points, p->at_ns);
  for (int i = 0; i < p->n_points; i++) {
    if (p->has_before) {
      p->sum.time[p->before.step].ns += p->at_ns[i] - p->before_ns;
      add_span(p, &p->before, p->before_ns, p->at_ns[i]);
    } else {
      p->begin_ns = p->at_ns[i];
    }
    p->has_before = true;
    p->before = p->points[i];
    p->before_ns = p->at_ns[i];
  }
  p->n_points = 0;
}

static void add_point(zpr *c, bool first) {
  zpr_profile *p = c->state->profile;
  if (p->n_points == POINTS) read_points(c);
  zpr_point(c, p->n_points, first);
  p->points[p->n_points++] = p->now;
}

static void go_to(zpr *c, int step) {
  zpr_profile *p = c->state->profile;
  if (p->now.step == step) return;
  p->now.step = step;
  add_point(c, false);
}

/* ---- a training step ---- */

void zpr_profile_begin_step(zpr *c) {
  zpr_profile *p = c->state->profile;
  if (!p || !is_measured(c, c->step + 1)) return;
  p->on = true;
  p->has_before = false;
  p->sum.n_spans = 0;
  p->sum.spans_cut = false;
  p->now = (point){.step = p->n_steps + ZPR_AT_BETWEEN};
  add_point(c, true);
}

/* The first steps of a run count neither here nor there. */
void zpr_profile_end_step(zpr *c, double ms) {
  zpr_profile *p = c->state->profile;
  if (!p) return;
  durations *d = p->on ? &p->with : &p->without;
  if (p->on || c->step - p->begin > ZPR_PROFILE_WARMUP) d->ms[d->n++ % RECENT] = ms;
  if (!p->on) return;
  add_point(c, false);
  read_points(c);
  p->sum.steps++;
  p->on = false;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(durations *d) {
  size_t n = d->n < RECENT ? (size_t)d->n : RECENT;
  if (n == 0) return 0;
  qsort(d->ms, n, sizeof *d->ms, compare);
  return n % 2 ? d->ms[n / 2] : (d->ms[n / 2 - 1] + d->ms[n / 2]) / 2;
}

void zpr_profile_tell(zpr *c, bool at_end) {
  zpr_profile *p = c->state->profile;
  int64_t asked = c->state->options.profile_last;
  if (!p || p->told || (!at_end && (asked == 0 || c->step < asked))) return;
  p->told = true;
  if (p->sum.steps == 0) {
    zpr_log_note(c, "profile: no step was measured, the run ended before");
    return;
  }
  p->sum.with_ms = median(&p->with);
  p->sum.without_ms = median(&p->without);
  zpr_profile_log(c, &p->sum);
}

/* ---- what a rank is doing ---- */

void zpr_step(zpr *c, int i) {
  zpr_profile *p = c->state->profile;
  if (!p || !p->on) return;
  assert(i >= 0 && i < p->n_steps);
  p->sum.time[i].calls++;
  go_to(c, i);
}

void zpr_step_end(zpr *c) {
  zpr_profile *p = c->state->profile;
  if (p && p->on) go_to(c, p->n_steps + ZPR_AT_BETWEEN);
}

void zpr_begin_action(zpr *c, char what, int chunk, int64_t mb) {
  zpr_profile *p = c->state->profile;
  if (!p || !p->on) return;
  p->now = (point){.step = p->n_steps + ZPR_AT_BETWEEN, .action = what, .chunk = (int16_t)chunk, .microbatch = mb};
  add_point(c, false);
}

int zpr_profile_enter(zpr *c, zpr_fixed_step step) {
  zpr_profile *p = c->state->profile;
  if (!p->on || p->now.step >= p->n_steps + ZPR_AT_REDUCE) return -1;
  int before = p->now.step, at = p->n_steps + (int)step;
  if (step >= ZPR_AT_REDUCE) p->now.action = 0; /* the micro-batches are done */
  p->sum.time[at].calls++;
  go_to(c, at);
  return before;
}

void zpr_profile_leave(zpr *c, int before) {
  if (before >= 0) go_to(c, before);
}
