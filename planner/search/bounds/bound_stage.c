/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds where stages are known: of one of them, and of a cut. Letters and what the proofs need stand in
 * bound.c. */
#include <assert.h>
#include <math.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "procedures.h"

typedef struct stage_at {
  zp_search_cache *s;
  const zp_point *point;
  const zp_variant *own; /* of this stage */
  const zp_choice *c;
  double m, message_s, later; /* later: stages after this one */
  int stage;
  int64_t first, end;
  zp_part_seconds own_s, before, after; /* of this stage, of those before and after it, at least */
  zp_part_seconds behind;               /* those after it, whose waits are not counted: the bound need grow with the
                                         * stage in no other way */
  bool waits;                           /* count them */
} stage_at;

/* Round trips from this stage: at most `flight` micro-batches are between their forward here and the gradient's way
 * back, so number i + flight starts here after i is back. before: until the first one comes. from_here: the stage's own
 * part of a trip and what the stages after it add. */
static double loops(const stage_at *a, double flight, double before, double from_here) {
  return before + (1 + floor((a->m - 1) / flight)) * (from_here + 2 * a->later * a->message_s);
}

static double own_reduce_s(const stage_at *a) { return zp_bound_own_reduce(a->s, a->c, a->own, a->first, a->end); }

/* 1F1B: the first micro-batch comes after F of the stages before, the last gradient goes on through A less those F, and
 * in between the stage computes m X and waits: for C before its first backward, less min(w, m - 1) forwards, and for C
 * before its last one, less as many backwards. For m > P the two spans do not overlap, else the longer one counts. Its
 * own end is followed by what nothing hides of its reduction. */
static double bound_1f1b_stage(const stage_at *a) {
  double before = a->before.work + 2 * a->stage * a->message_s;
  double work = a->own_s.work, forward = a->own_s.forward, warmup = fmin(a->later, a->m - 1);
  double after = a->after.work + 2 * a->later * a->message_s;
  double first_wait = fmax(0, after - warmup * forward), last_wait = fmax(0, after - warmup * (work - forward));
  double wait = !a->waits ? 0 : a->m > a->c->pipeline ? first_wait + last_wait : fmax(first_wait, last_wait);
  double end = a->before.forward + a->stage * a->message_s + a->m * work + wait + own_reduce_s(a);
  return fmax(fmax(end, before + a->m * work + wait), loops(a, a->later + 1, before, work + a->behind.work));
}

/* Split backward (ZB-H1, ZB-H2, and others with one chunk): D forwards come before the first backward, so the stage
 * waits for I of the stages after it less D - 1 forwards (or m - 1): T >= F before + m X + wait. And the gradients of
 * its inputs go on down: T >= I before + m I. */
static double bound_split_stage(const stage_at *a) {
  double depth = a->later + 1, message = a->message_s; /* forwards before the first backward */
  if (a->c->schedule == ZP_SCHEDULE_ZB_H2) depth = 2 * depth - 1;
  double after = a->after.input + 2 * a->later * message;
  double wait = !a->waits ? 0 : fmax(0, after - (fmin(depth, a->m) - 1) * a->own_s.forward);
  double before = a->before.input + 2 * a->stage * message;
  double drain = before + a->m * a->own_s.input;
  double end = a->before.forward + a->stage * message + a->m * a->own_s.work + wait + own_reduce_s(a);
  return fmax(fmax(end, drain), loops(a, depth, before, a->own_s.input + a->behind.input));
}

/* GPipe: as bound_gpipe, of this stage; its reduction starts when the last backward leaves it, which still has A to
 * go. */
static double bound_gpipe_stage(const stage_at *a) {
  double all = a->before.work + a->m * a->own_s.work + a->after.work + 2 * (a->c->pipeline - 1) * a->message_s;
  double down = a->before.work - a->before.forward + a->stage * a->message_s; /* after the stage's own end */
  return fmax(all, all - down + own_reduce_s(a));
}

static double bound_stage(const stage_at *a) {
  switch (a->c->schedule) {
  case ZP_SCHEDULE_GPIPE: return bound_gpipe_stage(a);
  case ZP_SCHEDULE_1F1B: return bound_1f1b_stage(a);
  default: return bound_split_stage(a);
  }
}

static stage_at stage_of(zp_search_cache *s, const zp_point *point, const zp_variant *own, int stage, int64_t first,
                         int64_t end) {
  const zp_choice *c = &point->choice;
  return (stage_at){.s = s,
                    .point = point,
                    .own = own,
                    .c = c,
                    .m = (double)zp_microbatches(s->in->spec, c),
                    .message_s = zp_least_message(s, point),
                    .later = c->pipeline - 1 - stage,
                    .stage = stage,
                    .first = first,
                    .end = end,
                    .own_s = zp_stage_seconds(own, first, end),
                    .waits = true};
}

/* Units before one, and those from it on, whatever stages run them. */
static zp_part_seconds units_before(const zp_variant *v, int64_t unit) {
  return (zp_part_seconds){v->prefix_s[unit], v->forward_s[unit], v->input_s[unit]};
}
static zp_part_seconds units_from(const zp_variant *v, int64_t unit) {
  int64_t n = v->lowered->n_units;
  return (zp_part_seconds){v->prefix_s[n] - v->prefix_s[unit], v->forward_s[n] - v->forward_s[unit],
                           v->input_s[n] - v->input_s[unit]};
}

/* What memory forces on other stages is recomputed before the gradients of their inputs: the weights' part of backward
 * is the same in all modes. */
double zp_bound_of_stage(zp_search_cache *s, const zp_point *point, const zp_variant *own, int stage, int64_t first,
                         int64_t end, bool waits) {
  const zp_variant *v = zp_variant_of(s, point);
  stage_at a = stage_of(s, point, own, stage, first, end);
  a.before = units_before(v, first);
  a.after = a.behind = units_from(v, end);
  double forced_before = zp_least_before(s, point, stage, first) - a.before.work,
         forced_after = zp_least_after(s, point, stage, end) - a.after.work;
  a.before.work += forced_before, a.before.input += forced_before;
  a.after.work += forced_after, a.after.input += forced_after;
  a.waits = waits;
  return bound_stage(&a);
}

static void add_seconds(zp_part_seconds *sum, const zp_part_seconds *more, double sign) {
  sum->work += sign * more->work;
  sum->forward += sign * more->forward;
  sum->input += sign * more->input;
}

/* One chunk a stage, all of them known: no less than the longest bound of a stage. The stage that takes longest comes
 * first: its bound alone leaves most cuts out (enough_s). */
static double bound_of_stages(zp_search_cache *s, const zp_point *point, const int64_t *cut,
                              const zp_variant *const *own, double enough_s) {
  zp_part_seconds before = {0}, after = {0}, all = {0}, until = {0};
  double longest = 0, most = -1;
  int stages = point->choice.pipeline, slowest = 0;
  for (int i = 0; i < stages; i++) {
    zp_part_seconds stage_s = zp_stage_seconds(own[i], cut[i], cut[i + 1]);
    if (stage_s.work > most) most = stage_s.work, slowest = i, until = all;
    add_seconds(&all, &stage_s, 1);
  }
  if (isfinite(enough_s)) {
    stage_at a = stage_of(s, point, own[slowest], slowest, cut[slowest], cut[slowest + 1]);
    a.before = until;
    after = all;
    add_seconds(&after, &until, -1);
    add_seconds(&after, &a.own_s, -1);
    a.after = a.behind = after;
    double bound = bound_stage(&a) * (1 - ZP_ROUNDING); /* sums in another order than below */
    if (bound >= enough_s) return bound;
  }
  after = all;
  for (int i = 0; i < stages; i++) {
    stage_at a = stage_of(s, point, own[i], i, cut[i], cut[i + 1]);
    add_seconds(&after, &a.own_s, -1);
    a.before = before;
    a.after = a.behind = after;
    longest = fmax(longest, bound_stage(&a));
    if (longest >= enough_s) return longest;
    add_seconds(&before, &a.own_s, 1);
  }
  return longest;
}

/* Every stage s has a chunk among the first P, and its first forward waits for chunks 0 .. s - 1 of one micro-batch,
 * whose gradient goes the same way back after the stage's last backward: T >= A of these chunks + m X of all of its
 * own. Split backward: the weights' part may come later, so T >= F before + m X, and T >= I before + m I. */
double zp_bound_of_chunks(const zp_search_cache *s, const zp_point *point, const int64_t *cut,
                          const zp_variant *const *own, double enough_s) {
  const zp_choice *c = &point->choice;
  double m = (double)zp_microbatches(s->in->spec, c), longest = 0;
  bool split = zp_schedule_splits(c->schedule);
  zp_part_seconds before = {0};
  zp_units part[ZP_MOST_CHUNKS];
  for (int stage = 0; stage < c->pipeline && longest < enough_s; stage++) {
    zp_part_seconds all = {0}, first = {0};
    zp_parts_of_stage(c, stage, cut, part);
    assert(part[0].first == cut[stage]);
    for (int k = 0; k < zp_chunks(c); k++) {
      zp_part_seconds chunk = zp_stage_seconds(own[stage], part[k].first, part[k].first + part[k].count);
      if (k == 0) first = chunk;
      add_seconds(&all, &chunk, 1);
    }
    longest = fmax(longest, (split ? before.forward : before.work) + m * all.work);
    if (split) longest = fmax(longest, before.input + m * all.input);
    add_seconds(&before, &first, 1);
  }
  return longest;
}

/* T is at least the bound of every stage; the end of the step follows it. */
double zp_bound_of_cut(zp_search_cache *s, const zp_point *point, const int64_t *cut, const zp_variant *const *own,
                       double enough_s) {
  bool whole = zp_model_chunks(&point->choice) == point->choice.pipeline;
  /* one stage: a longer backward hides more of the reduction */
  zp_part_seconds one = {0};
  if (point->choice.pipeline == 1) one = zp_stage_seconds(own[0], 0, zp_point_units(s, point));
  double end =
      point->choice.pipeline == 1 ? zp_bound_end_after(s, point, one.work - one.forward) : zp_bound_step_end(s, point);
  double enough = enough_s * (1 + 2 * ZP_BOUND_SLACK) - end; /* what is lower than that is not enough in the end */
  double longest =
      whole ? bound_of_stages(s, point, cut, own, enough) : zp_bound_of_chunks(s, point, cut, own, HUGE_VAL);
  return fmax(zp_bound(s, point), zp_bound_below(longest + end));
}
