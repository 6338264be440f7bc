/* The least work of neighbouring stages when every stage has one mode. A stage that holds one unit too many for a fast
 * mode runs all its units in a slower one, which bounds that mix modes inside a stage (least_work.c) do not see.
 *
 * Counted are the units of one segment, the longest repeat; other units take the time of their fastest mode
 * and no memory, but for those that the first and the last stage hold anyway. With x(n) seconds of a stage with n units
 * in the fastest mode that fits,
 *   least of stages a .. b with N units = min over n of (x_b(n) + least of a .. b - 1 with N - n),
 * by dynamic programming for every run of stages. Stages that miss the deadline at hand on their own are left out of x:
 * a long stage early or late in the pipeline would need less work, but runs it for nearly every micro-batch. x grows
 * with n (a slower mode is longer), and so does the result.
 *
 * Turns: 1F1B lets w = P - 1 - s forwards of stage s follow each other before its first backward, and w backwards after
 * its last forward. The first micro-batch climbs from a stage to some stage j behind it, waits for the w forwards
 * there, and comes back; the last one waits for the backwards. With H over the stages from s on and a message c each
 * way, H_s = X_s + 2 c + max(w_s F_s or w_s B_s, H_s+1), least over the cuts in the same way. */
#include <math.h>
#include "schedule.h"
#include "search_internal.h"

/* Numbers in the tables of runs: where they would be more, long runs are left out, which only weakens bounds. */
enum { MOST_NUMBERS = 1 << 22 };

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
  double **way_s[2];           /* [stage][units]: forward, backward; of the least part */
  row *before, *after;         /* [stages + 1]: of all stages before one; of one and all after it */
  row *turn[2];                /* [stages + 1]: H of the first, of the last micro-batch */
  int64_t *low, *high;         /* [stages + 1]: counted units before a stage */
  int longest;                 /* run */
  row *runs;                   /* [stage * longest + length - 1]: of the stages that end with this one */
  double *numbers;             /* of `runs` */
  int64_t n_numbers;
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
  double *work_s = ZP_NEW_ARRAY(w->arena, double, counted + 1),
         *forward_s = w->way_s[0][stage] = ZP_NEW_ARRAY(w->arena, double, counted + 1),
         *backward_s = w->way_s[1][stage] = ZP_NEW_ARRAY(w->arena, double, counted + 1);
  const zp_variant **variant = w->variant[stage] = ZP_NEW_ARRAY(w->arena, const zp_variant *, counted + 1);
  for (; n <= counted; n++) {
    zp_units part = least_part(w, stage, n);
    if (part.count == w->n_units) break; /* there are other stages */
    if (may_be_empty(w, n, part)) continue;
    variant[n] = zp_stage_variant(s, point, stage, &part, &limits);
    if (!variant[n]) break;
    zp_stage_time time = part_time(w, costs, variant[n], stage, part);
    forward_s[n] = time.forward_s;
    backward_s[n] = time.backward_s;
    work_s[n] = time.forward_s + time.backward_s - (split ? time.weights_s : 0) -
                others_s(w, part.first, part.first + part.count);
  }
  w->own[stage] = (row){n - 1, work_s};
  if (w->alone && n > 1 && least_part(w, stage, 0).count == 0) { /* every stage has units */
    work_s[0] = work_s[1];
    forward_s[0] = forward_s[1];
    backward_s[0] = backward_s[1];
  }
  make_least(work_s, n - 1);
  make_least(forward_s, n - 1);
  make_least(backward_s, n - 1);
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

/* How often a stage runs forwards one after the other, and backwards. */
static double turns_at(const zp_mode_work *w, const zp_windows *windows, int stage) {
  return fmin(w->stages - 1 - stage, (double)windows->microbatches - 1);
}

/* H of one stage and those after it. */
static void add_turn(zp_mode_work *w, const zp_windows *windows, int way, int stage) {
  row *sum = &w->turn[way][stage];
  const row *after = &w->turn[way][stage + 1];
  double turns = turns_at(w, windows, stage), others = 0;
  zp_units part = least_part(w, stage, 0);
  if (w->alone) others = others_s(w, part.first, part.first + part.count);
  sum->most = smaller(w->end - w->first, after->most + w->most[stage]);
  for (int64_t n = 0; n <= sum->most; n++) {
    double least = HUGE_VAL;
    int64_t from = n > after->most ? n - after->most : 0, to = smaller(n, w->most[stage]);
    for (int64_t k = from; k <= to; k++)
      least = fmin(least, w->own[stage].work_s[k] + fmax(turns * w->way_s[way][stage][k], after->work_s[n - k]));
    sum->work_s[n] = least + others + 2 * windows->message_s;
  }
}

/* Drops numbers of units that the stages before one, or it and those after it, cannot have. */
static void keep_band(const zp_mode_work *w, row *r, int stage, bool before) {
  int64_t counted = w->end - w->first;
  for (int64_t n = 0; n <= r->most; n++) {
    int64_t units = before ? n : counted - n;
    if (units < w->low[stage] || units > w->high[stage]) r->work_s[n] = HUGE_VAL;
  }
}

static void add_all(zp_mode_work *w, const zp_windows *windows) {
  int64_t counted = w->end - w->first;
  for (int stage = w->stages; windows->one_f_one_b && stage-- > 0;) {
    for (int way = 0; way < 2; way++) {
      add_turn(w, windows, way, stage);
      keep_band(w, &w->turn[way][stage], stage, false);
    }
  }
  for (int stage = 0; stage < w->stages; stage++) {
    add_stage(&w->before[stage + 1], &w->before[stage], &w->own[stage], w->most[stage], counted);
    keep_band(w, &w->before[stage + 1], stage + 1, true);
  }
  for (int stage = w->stages; stage-- > 0;) {
    add_stage(&w->after[stage], &w->after[stage + 1], &w->own[stage], w->most[stage], counted);
    keep_band(w, &w->after[stage], stage, false);
  }
}

/* Seconds between the first forward of a stage with n units, `after` behind it, and its first backward; between its
 * last forward and its last backward. */
static double turn_s(const zp_mode_work *w, const zp_windows *windows, int way, int stage, int64_t n, int64_t after) {
  double later = w->stages - 1 - stage;
  double climb = fmax(least_in(&w->after[stage + 1], after) + 2 * later * windows->message_s,
                      least_in(&w->turn[way][stage + 1], after));
  return fmax(climb, n > w->own[stage].most ? HUGE_VAL : turns_at(w, windows, stage) * w->way_s[way][stage][n]);
}

/* May the stage have n units, whatever the others have? The window of one stage (window.c). */
static bool stage_meets(const zp_mode_work *w, const zp_windows *windows, int stage, int64_t n, double deadline_s) {
  int64_t rest = w->end - w->first - n;
  double own = w->own[stage].work_s[n], around = HUGE_VAL, messages = 2 * windows->message_s;
  double between = (double)windows->microbatches - w->stages + stage;
  bool turns = windows->one_f_one_b && between >= 1;
  for (int64_t e = 0; e <= rest; e++) {
    double before = least_in(&w->before[stage], e) + messages * stage;
    double after = turns ? turn_s(w, windows, 0, stage, n, rest - e) + turn_s(w, windows, 1, stage, n, rest - e)
                         : least_in(&w->after[stage + 1], rest - e) + messages * (w->stages - 1 - stage);
    around = fmin(around, before + after);
  }
  double way = own + around;
  double least =
      turns ? way + between * own : fmax(way + others_s(w, 0, w->n_units), (double)windows->microbatches * own);
  return least * (1 - 1e-12) <= deadline_s;
}

static bool find_most(zp_mode_work *w, const zp_windows *windows, double deadline_s) {
  bool changed = false;
  for (int stage = 0; stage < w->stages; stage++) {
    int64_t n = w->most[stage];
    while (n >= 0 && !stage_meets(w, windows, stage, n, deadline_s)) n--;
    changed |= n < w->most[stage];
    w->most[stage] = n;
    if (n < 0) return false;
  }
  return changed;
}

/* [stage][length - 1] of the units that a run can have. */
static void make_room(zp_mode_work *w) {
  int64_t counted = w->end - w->first, numbers = 0;
  for (w->longest = 0; w->longest < w->stages; w->longest++) {
    int64_t more = 0;
    for (int stage = w->longest; stage < w->stages; stage++) {
      int64_t units = 0;
      for (int k = 0; k <= w->longest; k++) units += w->most[stage - k];
      more += smaller(units, counted) + 1;
    }
    if (numbers + more > MOST_NUMBERS) break;
    numbers += more;
  }
  if (numbers > w->n_numbers) w->numbers = ZP_NEW_ARRAY(w->arena, double, w->n_numbers = numbers);
}

static void add_runs(zp_mode_work *w) {
  int64_t counted = w->end - w->first;
  double nothing = 0;
  const row none = {0, &nothing};
  make_room(w);
  double *room = w->numbers;
  for (int stage = 0; stage < w->stages; stage++) {
    for (int length = 1; length <= w->longest && length <= stage + 1; length++) {
      row *run = &w->runs[stage * w->stages + length - 1];
      const row *others = length == 1 ? &none : &w->runs[(stage - 1) * w->stages + length - 2];
      run->work_s = room;
      add_stage(run, others, &w->own[stage], w->most[stage], counted);
      room += run->most + 1;
    }
  }
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
  w->low = ZP_NEW_ARRAY(arena, int64_t, stages + 1);
  w->high = ZP_NEW_ARRAY(arena, int64_t, stages + 1);
  w->runs = ZP_NEW_ARRAY(arena, row, stages * stages);
  for (int way = 0; way < 2; way++) w->way_s[way] = ZP_NEW_ARRAY(arena, double *, stages);
  row **sums[] = {&w->before, &w->after, &w->turn[0], &w->turn[1]};
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
static bool settle(zp_mode_work *w, const zp_windows *windows, double deadline_s) {
  add_all(w, windows);
  for (bool changed = true; changed;) {
    changed = find_most(w, windows, deadline_s);
    for (int stage = 0; stage < w->stages; stage++)
      if (w->most[stage] < 0) return false;
    if (changed) add_all(w, windows);
  }
  if (!isfinite(least_in(&w->after[0], w->end - w->first))) return false;
  add_runs(w);
  return true;
}

bool zp_mode_work_meet(zp_mode_work *w, const zp_windows *windows, double deadline_s) {
  for (int stage = 0; stage < w->stages; stage++)
    if ((w->most[stage] = w->own[stage].most) < 0) return false;
  for (int stage = 0; stage <= w->stages; stage++) {
    w->low[stage] = stage == w->stages ? w->end - w->first : 0;
    w->high[stage] = stage == 0 ? 0 : w->end - w->first;
  }
  return settle(w, windows, deadline_s);
}

bool zp_mode_work_narrow(zp_mode_work *w, const zp_windows *windows, double deadline_s, const int64_t *low,
                         const int64_t *high) {
  for (int stage = 1; stage < w->stages; stage++) {
    w->low[stage] = counted_before(w, low[stage]);
    w->high[stage] = counted_before(w, high[stage]);
  }
  return settle(w, windows, deadline_s);
}

double zp_mode_work_of(const zp_mode_work *w, int from, int to, int64_t first, int64_t end) {
  if (from == to) return 0;
  int64_t counted = counted_before(w, end) - counted_before(w, first);
  double least = (double)counted * w->unit_s;
  if (to == w->stages)
    least = least_in(&w->after[from], counted);
  else if (from == 0)
    least = least_in(&w->before[to], counted);
  else if (to - from <= w->longest)
    least = least_in(&w->runs[(to - 1) * w->stages + to - from - 1], counted);
  return (others_s(w, first, end) + least) * (1 - 1e-12);
}

double zp_mode_work_turn(const zp_mode_work *w, const zp_windows *windows, zp_turn turn, int stage, int64_t first,
                         int64_t end) {
  int64_t after = counted_before(w, w->n_units) - counted_before(w, end);
  int64_t counted = counted_before(w, end) - counted_before(w, first);
  return turn_s(w, windows, (int)turn, stage, counted, after) * (1 - 1e-12);
}

double zp_mode_work_answer(const zp_mode_work *w, const zp_windows *windows, zp_turn turn, int stage, int64_t first) {
  int64_t counted = counted_before(w, w->n_units) - counted_before(w, first);
  return (least_in(&w->turn[turn][stage], counted) - 2 * windows->message_s) * (1 - 1e-12);
}

int64_t zp_mode_work_least_start(const zp_mode_work *w, int stage, int64_t end) {
  int64_t counted = counted_before(w, end) - w->most[stage];
  return counted > 0 ? w->first + counted : 0;
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
