/* The least work of neighbouring stages when every stage has one mode, for schedules other than 1F1B (labels.c has what
 * 1F1B needs). A stage that holds one unit too many for a fast mode runs all its units in a slower one, which bounds
 * that mix modes inside a stage (least_work.c) do not see. With x(n) seconds of a stage with n counted units in the
 * fastest mode that fits (mode_table.c), least of the stages up to b with N units = min over n of (x_b(n) + least of
 * those up to b - 1 with N - n), by dynamic programming, from the front and from the back. Stages that miss the
 * deadline at hand on their own are left out of x: a long stage early or late in the pipeline would need less work, but
 * runs it for nearly every micro-batch. The result grows with N as x does.
 *
 * Bands: no cut that meets the deadline has fewer than low or more than high counted units before a stage, so sums of
 * stages are only made for numbers between such places: HUGE_VAL elsewhere. */
#include "mode_work.h"

static double least_in(const zp_row *r, int64_t n) {
  return n < r->least || n > r->most ? HUGE_VAL : r->work_s[n - r->least];
}

/* ---- sums of stages ---- */

/* sum: of the others and one stage with at most `most` units, inside the band that it comes with. */
static void add_stage(zp_row *sum, const zp_row *others, const zp_row *own, int64_t most) {
  sum->least = zp_larger(sum->least, others->least);
  sum->most = zp_smaller(sum->most, others->most + most);
  for (int64_t n = sum->least; n <= sum->most; n++) sum->work_s[n - sum->least] = HUGE_VAL;
  for (int64_t k = 0; k <= most; k++) {
    int64_t from = zp_larger(sum->least, others->least + k), to = zp_smaller(sum->most, others->most + k);
    if (from > to) continue;
    double *restrict least = sum->work_s + (from - sum->least);
    const double *restrict other = others->work_s + (from - k - others->least);
    for (int64_t i = 0; i <= to - from; i++) least[i] = zp_sooner(least[i], own->work_s[k] + other[i]);
  }
}

/* Numbers that one stage and those after it can have. */
static void set_band(const zp_mode_work *w, zp_row *r, int stage) {
  r->least = zp_counted(w) - w->high[stage];
  r->most = zp_counted(w) - w->low[stage];
}

static void add_all(zp_mode_work *w) {
  int stages = w->stages;
  w->after[stages].most = 0;
  for (int stage = 0; stage < stages; stage++) {
    zp_row *sum = &w->before[stage + 1];
    sum->least = w->low[stage + 1], sum->most = w->high[stage + 1];
    add_stage(sum, &w->before[stage], &w->own[stage], w->most[stage]);
  }
  for (int stage = stages; stage-- > 0;) {
    set_band(w, &w->after[stage], stage);
    add_stage(&w->after[stage], &w->after[stage + 1], &w->own[stage], w->most[stage]);
  }
}

/* ---- the deadline ---- */

/* May the stage have n units, whatever the others have? */
static bool stage_meets(const zp_mode_work *w, int stage, int64_t n, const zp_mode_work_aim *aim) {
  int64_t rest = zp_counted(w) - n;
  const zp_row *before = &w->before[stage], *after = &w->after[stage + 1];
  double own = w->own[stage].work_s[n], around = HUGE_VAL;
  int64_t from = zp_larger(before->least, rest - after->most), to = zp_smaller(before->most, rest - after->least);
  for (int64_t e = from; e <= to; e++)
    around = zp_sooner(around, before->work_s[e - before->least] + least_in(after, rest - e));
  double way = own + around + 2 * (w->stages - 1) * aim->message_s;
  double least = zp_later(way + zp_others_s(w, 0, w->n_units), (double)aim->microbatches * own);
  return least * (1 - 1e-12) <= aim->deadline_s;
}

/* The same without the sums of the other stages: a stage that fails here fails there. */
static bool stage_may_meet(const zp_mode_work *w, int stage, int64_t n, const zp_mode_work_aim *aim) {
  double own = w->own[stage].work_s[n];
  double way = own + (double)(zp_counted(w) - n) * w->least_unit_s + 2 * aim->message_s * (w->stages - 1);
  return zp_later(way, (double)aim->microbatches * own) * (1 - 1e-9) <= aim->deadline_s;
}

/* Fewer units for stages that miss the deadline. False: one has no number left. */
static bool find_most(zp_mode_work *w, const zp_mode_work_aim *aim,
                      bool (*meets)(const zp_mode_work *, int, int64_t, const zp_mode_work_aim *), bool *changed) {
  *changed = false;
  for (int stage = 0; stage < w->stages; stage++) {
    int64_t n = w->most[stage];
    while (n >= 0 && !meets(w, stage, n, aim)) n--;
    *changed |= n < w->most[stage];
    w->most[stage] = n;
    if (n < 0) return false;
  }
  return true;
}

/* Bands that these most units of the stages can reach. False: there are none. */
static bool narrow_bands(zp_mode_work *w) {
  for (int stage = 0; stage < w->stages; stage++)
    w->high[stage + 1] = zp_smaller(w->high[stage + 1], w->high[stage] + w->most[stage]);
  for (int stage = w->stages; stage-- > 0;)
    w->low[stage] = zp_larger(w->low[stage], w->low[stage + 1] - w->most[stage]);
  for (int stage = 0; stage <= w->stages; stage++)
    if (w->low[stage] > w->high[stage]) return false;
  return true;
}

bool zp_mode_work_meet(zp_mode_work *w, const zp_mode_work_aim *aim) {
  bool changed;
  for (int stage = 0; stage < w->stages; stage++)
    if ((w->most[stage] = w->own[stage].most) < 0) return false;
  for (int stage = 0; stage <= w->stages; stage++) {
    w->low[stage] = stage == w->stages ? zp_counted(w) : 0;
    w->high[stage] = stage == 0 ? 0 : zp_counted(w);
  }
  if (!find_most(w, aim, stage_may_meet, &changed)) return false;
  for (changed = true; changed;) { /* fewer units a stage, until no more can be taken away */
    if (!narrow_bands(w)) return false;
    add_all(w);
    if (!find_most(w, aim, stage_meets, &changed)) return false;
  }
  return isfinite(least_in(&w->after[0], zp_counted(w)));
}

/* ---- queries ---- */

double zp_mode_work_of(const zp_mode_work *w, int from, int to, int64_t first, int64_t end) {
  if (from == to) return 0;
  int64_t counted = zp_counted_before(w, end) - zp_counted_before(w, first);
  double least = (double)counted * w->unit_s;
  if (to == w->stages)
    least = least_in(&w->after[from], counted);
  else if (from == 0)
    least = least_in(&w->before[to], counted);
  return (zp_others_s(w, first, end) + least) * (1 - 1e-12);
}

int64_t zp_mode_work_reach(const zp_mode_work *w, int stage, int64_t first) {
  int64_t counted = zp_counted_before(w, first) + w->most[stage];
  return counted < zp_counted(w) ? w->first + counted : w->n_units;
}
