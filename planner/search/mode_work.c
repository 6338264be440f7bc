/* The least work of neighbouring stages when every stage has one mode, for schedules other than 1F1B (stage_graph.c has
 * what 1F1B needs). A stage that holds one unit too many for a fast mode runs all its units in a slower one, which bounds
 * that mix modes inside a stage (least_work.c) do not see.
 *
 * Counted are the units of one segment, the longest repeat; other units take the time of their fastest mode
 * and no memory, but for those that the first and the last stage hold anyway. With x(n) seconds of a stage with n units
 * in the fastest mode that fits,
 *   least of the stages up to b with N units = min over n of (x_b(n) + least of those up to b - 1 with N - n),
 * by dynamic programming, from the front and from the back. Stages that miss the deadline at hand on their own are left
 * out of x: a long stage early or late in the pipeline would need less work, but runs it for nearly every micro-batch. x
 * grows with n (a slower mode is longer), and so does the result. */
#include <math.h>
#include "schedule.h"
#include "search_internal.h"

typedef struct row {
  int64_t most;   /* units */
  double *work_s; /* [most + 1] */
} row;

struct zp_mode_work {
  zp_arena *arena;
  int stages;
  int64_t first, end, n_units; /* first .. end - 1 are counted */
  double unit_s;               /* of a counted one in its fastest mode */
  const double *prefix_s;      /* of all units in their fastest modes */
  bool alone;                  /* inner stages have counted units alone */
  row *own;                    /* [stage]: x, as far as memory allows */
  const zp_variant ***variant; /* [stage][units]: what it runs then */
  int64_t *most;               /* [stage]: as far as the deadline allows, too */
  row *before, *after;         /* [stages + 1]: of all stages before one; of one and all after it */
};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t counted_before(const zp_mode_work *w, int64_t unit) {
  return unit < w->first ? 0 : smaller(unit, w->end) - w->first;
}

/* Of the units first .. end - 1 that are not counted. */
static double others_s(const zp_mode_work *w, int64_t first, int64_t end) {
  int64_t counted = counted_before(w, end) - counted_before(w, first);
  return w->prefix_s[end] - w->prefix_s[first] - (double)counted * w->unit_s;
}

/* ---- one stage ---- */

/* The fewest units of a stage with n counted ones. */
static zp_units least_part(const zp_mode_work *w, int stage, int64_t n) {
  if (stage == 0) return (zp_units){0, w->first + n};
  if (stage == w->stages - 1) return (zp_units){w->end - n, w->n_units - w->end + n};
  return (zp_units){w->first, n};
}

/* Only where no other units can join those of the part, what they move counts: it may hide behind the others. */
static zp_stage_time part_time(const zp_mode_work *w, zp_stage_costs *costs, const zp_variant *own, int stage,
                               zp_units part) {
  int64_t end = part.first + part.count;
  if (w->alone) return zp_stage_cost_of(costs, own->lowered, stage, part.first, end).time;
  double work = own->prefix_s[end] - own->prefix_s[part.first],
         forward = own->forward_s[end] - own->forward_s[part.first],
         input = own->input_s[end] - own->input_s[part.first];
  return (zp_stage_time){.forward_s = forward, .backward_s = work - forward, .weights_s = work - input};
}

/* Of stages that have at least n units. */
static void make_least(double *seconds, int64_t most) {
  for (int64_t n = most; n-- > 0;) seconds[n] = fmin(seconds[n], seconds[n + 1]);
}

/* Without counted units a stage may have none of the others, where these are several. */
static bool may_be_empty(const zp_mode_work *w, int64_t n, zp_units part) {
  return part.count == 0 || (n == 0 && !w->alone);
}

static void measure_stage(zp_mode_work *w, const zp_searcher *s, const zp_point *point, zp_stage_costs *costs,
                          int stage) {
  zp_limits limits = zp_search_limits(s);
  int64_t counted = w->end - w->first, n = 0;
  bool split = zp_schedule_splits(point->choice.schedule);
  double *work_s = ZP_NEW_ARRAY(w->arena, double, counted + 1);
  const zp_variant **variant = w->variant[stage] = ZP_NEW_ARRAY(w->arena, const zp_variant *, counted + 1);
  for (; n <= counted; n++) {
    zp_units part = least_part(w, stage, n);
    if (part.count == w->n_units) break; /* there are other stages */
    if (may_be_empty(w, n, part)) continue;
    variant[n] = zp_stage_variant(s, point, stage, &part, &limits);
    if (!variant[n]) break;
    zp_stage_time time = part_time(w, costs, variant[n], stage, part);
    work_s[n] = time.forward_s + time.backward_s - (split ? time.weights_s : 0) -
                others_s(w, part.first, part.first + part.count);
  }
  w->own[stage] = (row){n - 1, work_s};
  if (w->alone && n > 1 && least_part(w, stage, 0).count == 0) work_s[0] = work_s[1]; /* every stage has units */
  make_least(work_s, n - 1);
}

/* ---- several stages ---- */

/* sum: of the stages of `others` and one more with at most `most` units. */
static void add_stage(row *sum, const row *others, const row *own, int64_t most, int64_t limit) {
  sum->most = smaller(limit, others->most + most);
  for (int64_t n = 0; n <= sum->most; n++) {
    double least = HUGE_VAL;
    int64_t from = n > others->most ? n - others->most : 0, to = smaller(n, most);
    for (int64_t k = from; k <= to; k++) {
      double work = others->work_s[n - k] + own->work_s[k];
      least = work < least ? work : least;
    }
    sum->work_s[n] = least;
  }
}

static double least_in(const row *r, int64_t n) { return n > r->most ? HUGE_VAL : r->work_s[n]; }

static void add_all(zp_mode_work *w) {
  int64_t counted = w->end - w->first;
  for (int stage = 0; stage < w->stages; stage++)
    add_stage(&w->before[stage + 1], &w->before[stage], &w->own[stage], w->most[stage], counted);
  for (int stage = w->stages; stage-- > 0;)
    add_stage(&w->after[stage], &w->after[stage + 1], &w->own[stage], w->most[stage], counted);
}

/* May the stage have n units, whatever the others have? */
static bool stage_meets(const zp_mode_work *w, int stage, int64_t n, const zp_mode_work_aim *aim) {
  int64_t rest = w->end - w->first - n;
  double own = w->own[stage].work_s[n], around = HUGE_VAL;
  for (int64_t e = 0; e <= rest; e++)
    around = fmin(around, least_in(&w->before[stage], e) + least_in(&w->after[stage + 1], rest - e));
  double way = own + around + 2 * (w->stages - 1) * aim->message_s;
  double least = fmax(way + others_s(w, 0, w->n_units), (double)aim->microbatches * own);
  return least * (1 - 1e-12) <= aim->deadline_s;
}

static bool find_most(zp_mode_work *w, const zp_mode_work_aim *aim) {
  bool changed = false;
  for (int stage = 0; stage < w->stages; stage++) {
    int64_t n = w->most[stage];
    while (n >= 0 && !stage_meets(w, stage, n, aim)) n--;
    changed |= n < w->most[stage];
    w->most[stage] = n;
    if (n < 0) return false;
  }
  return changed;
}

/* The longest repeat; of equally long ones the one with the most work. */
static void choose_counted(zp_mode_work *w, const zp_variant *v) {
  const zp_lowered *l = v->lowered;
  int64_t start = 0, most = 0;
  double most_s = 0;
  for (int i = 0; start < w->n_units; i++) { /* segments of pieces of layers follow */
    int64_t n = l->segments[i].segment->count;
    if (n > most || (n == most && v->unit_s[i] > most_s)) {
      most = n, most_s = v->unit_s[i];
      w->first = start, w->end = start + n;
    }
    start += n;
  }
  w->unit_s = w->prefix_s[w->first + 1] - w->prefix_s[w->first];
  w->alone = w->first <= 1 && w->end >= w->n_units - 1;
}

static void make_rows(zp_mode_work *w) {
  zp_arena *arena = w->arena;
  int64_t stages = w->stages, counted = w->end - w->first;
  w->own = ZP_NEW_ARRAY(arena, row, stages);
  w->variant = ZP_NEW_ARRAY(arena, const zp_variant **, stages);
  w->most = ZP_NEW_ARRAY(arena, int64_t, stages);
  row **sums[] = {&w->before, &w->after};
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
    *sums[i] = ZP_NEW_ARRAY(arena, row, stages + 1);
    for (int64_t k = 0; k <= stages; k++) (*sums[i])[k].work_s = ZP_NEW_ARRAY(arena, double, counted + 1);
  }
}

zp_mode_work *zp_mode_work_new(zp_arena *arena, const zp_searcher *s, const zp_point *point, zp_stage_costs *costs) {
  const zp_variant *v = zp_variant_of(s, point);
  zp_mode_work *w = ZP_NEW(arena, zp_mode_work);
  *w = (zp_mode_work){.arena = arena, .stages = point->choice.pipeline, .n_units = zp_point_units(s, point)};
  w->prefix_s = zp_schedule_splits(point->choice.schedule) ? v->input_s : v->prefix_s;
  choose_counted(w, v);
  make_rows(w);
  for (int stage = 0; stage < w->stages; stage++) measure_stage(w, s, point, costs, stage);
  return w;
}

/* Fewer units a stage, until no more can be taken away. */
bool zp_mode_work_meet(zp_mode_work *w, const zp_mode_work_aim *aim) {
  for (int stage = 0; stage < w->stages; stage++)
    if ((w->most[stage] = w->own[stage].most) < 0) return false;
  do {
    add_all(w);
  } while (find_most(w, aim));
  for (int stage = 0; stage < w->stages; stage++)
    if (w->most[stage] < 0) return false;
  return isfinite(least_in(&w->after[0], w->end - w->first));
}

double zp_mode_work_of(const zp_mode_work *w, int from, int to, int64_t first, int64_t end) {
  if (from == to) return 0;
  int64_t counted = counted_before(w, end) - counted_before(w, first);
  double least = (double)counted * w->unit_s;
  if (to == w->stages)
    least = least_in(&w->after[from], counted);
  else if (from == 0)
    least = least_in(&w->before[to], counted);
  return (others_s(w, first, end) + least) * (1 - 1e-12);
}

int64_t zp_mode_work_reach(const zp_mode_work *w, int stage, int64_t first) {
  int64_t counted = counted_before(w, first) + w->most[stage];
  return counted < w->end - w->first ? w->first + counted : w->n_units;
}

const zp_variant *zp_mode_work_variant(const zp_mode_work *w, int stage, int64_t first, int64_t end, bool *known) {
  int64_t counted = counted_before(w, end) - counted_before(w, first);
  zp_units part = least_part(w, stage, counted);
  *known = false;
  if (may_be_empty(w, counted, part)) return NULL;
  bool inner = stage > 0 && stage < w->stages - 1 && first >= w->first && end <= w->end;
  *known = inner || (part.first == first && part.count == end - first);
  if (!*known) return NULL;
  return counted > w->own[stage].most ? NULL : w->variant[stage][counted];
}
