/* The least work of neighbouring stages when every stage has one mode. A stage that holds one unit too many for a fast
 * mode runs all its units in a slower one, which bounds that mix modes inside a stage (least_work.c) do not see.
 *
 * Counted are the units of one segment, the repeat with the most work; other units take the time of their fastest mode
 * and no memory, but for those that the first and the last stage hold anyway. With x(n) seconds of a stage with n units
 * in the fastest mode that fits,
 *   least of stages a .. b with N units = min over n of (x_b(n) + least of a .. b - 1 with N - n),
 * by dynamic programming for every run of stages. Stages that miss the deadline at hand on their own are left out of x:
 * a long stage early or late in the pipeline would need less work, but runs it for nearly every micro-batch. x grows
 * with n (a slower mode is longer), and so does the result. */
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
  row *before, *after;         /* [stages + 1]: of all stages before one; of one and all after it */
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
static double part_s(const zp_mode_work *w, zp_stage_costs *costs, const zp_variant *own, int stage, zp_units part,
                     bool split) {
  int64_t end = part.first + part.count;
  const double *prefix_s = split ? own->input_s : own->prefix_s;
  double seconds = prefix_s[end] - prefix_s[part.first];
  if (w->alone) {
    zp_stage_time time = zp_stage_cost_of(costs, own->lowered, stage, part.first, end).time;
    seconds = time.forward_s + time.backward_s - (split ? time.weights_s : 0);
  }
  return seconds - others_s(w, part.first, end);
}

static void measure_stage(zp_mode_work *w, const zp_searcher *s, const zp_point *point, zp_stage_costs *costs,
                          int stage) {
  zp_limits limits = zp_search_limits(s);
  int64_t counted = w->end - w->first;
  row *own = &w->own[stage];
  double *work_s = ZP_NEW_ARRAY(w->arena, double, counted + 1);
  const zp_variant **variant = ZP_NEW_ARRAY(w->arena, const zp_variant *, counted + 1);
  *own = (row){-1, work_s};
  for (int64_t n = 0; n <= counted; n++) {
    zp_units part = least_part(w, stage, n);
    if (part.count == w->n_units) break; /* there are other stages */
    own->most = n;
    if (part.count == 0) continue;
    variant[n] = zp_stage_variant(s, point, stage, &part, &limits);
    if (!variant[n]) {
      own->most = n - 1;
      break;
    }
    work_s[n] = part_s(w, costs, variant[n], stage, part, zp_schedule_splits(point->choice.schedule));
  }
  if (w->alone && own->most > 0 && least_part(w, stage, 0).count == 0)
    work_s[0] = work_s[1]; /* every stage has units */
  for (int64_t n = own->most; n-- > 0;) work_s[n] = fmin(work_s[n], work_s[n + 1]);
  w->variant[stage] = variant;
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

/* May the stage have n units, whatever the others have? The window of one stage (window.c). */
static bool stage_meets(const zp_mode_work *w, const zp_windows *windows, int stage, int64_t n, double deadline_s) {
  int64_t rest = w->end - w->first - n;
  double later = w->stages - 1 - stage, own = w->own[stage].work_s[n], around = HUGE_VAL;
  double between = (double)windows->microbatches - 1 - later;
  bool turns = windows->one_f_one_b && between >= 1;
  for (int64_t e = 0; e <= rest; e++)
    around = fmin(around, least_in(&w->before[stage], e) + (turns ? 2 : 1) * least_in(&w->after[stage + 1], rest - e));
  double way = own + around + others_s(w, 0, w->n_units) + 2 * windows->message_s * (w->stages - 1);
  double least =
      turns ? way + 2 * windows->message_s * later + between * own : fmax(way, (double)windows->microbatches * own);
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

zp_mode_work *zp_mode_work_new(zp_arena *arena, const zp_searcher *s, const zp_point *point, zp_stage_costs *costs) {
  const zp_variant *v = zp_variant_of(s, point);
  const zp_lowered *l = v->lowered;
  int stages = point->choice.pipeline, segment = 0;
  zp_mode_work *w = ZP_NEW(arena, zp_mode_work);
  *w = (zp_mode_work){.arena = arena, .stages = stages, .n_units = s->n_units};
  w->prefix_s = zp_schedule_splits(point->choice.schedule) ? v->input_s : v->prefix_s;
  double most = -1;
  int64_t start = 0;
  for (int i = 0; i < l->n_segments; start += l->segments[i++].segment->count) {
    double seconds = v->unit_s[i] * (double)l->segments[i].segment->count;
    if (seconds > most) most = seconds, segment = i, w->first = start;
  }
  w->end = w->first + l->segments[segment].segment->count;
  w->unit_s = w->prefix_s[w->first + 1] - w->prefix_s[w->first];
  w->alone = w->first <= 1 && w->end >= w->n_units - 1;
  int64_t counted = w->end - w->first;
  w->own = ZP_NEW_ARRAY(arena, row, stages);
  w->variant = ZP_NEW_ARRAY(arena, const zp_variant **, stages);
  w->most = ZP_NEW_ARRAY(arena, int64_t, stages);
  w->before = ZP_NEW_ARRAY(arena, row, stages + 1);
  w->after = ZP_NEW_ARRAY(arena, row, stages + 1);
  w->runs = ZP_NEW_ARRAY(arena, row, stages * stages);
  for (int stage = 0; stage <= stages; stage++) {
    w->before[stage].work_s = ZP_NEW_ARRAY(arena, double, counted + 1);
    w->after[stage].work_s = ZP_NEW_ARRAY(arena, double, counted + 1);
  }
  for (int stage = 0; stage < stages; stage++) measure_stage(w, s, point, costs, stage);
  return w;
}

bool zp_mode_work_meet(zp_mode_work *w, const zp_windows *windows, double deadline_s) {
  for (int stage = 0; stage < w->stages; stage++)
    if ((w->most[stage] = w->own[stage].most) < 0) return false;
  add_all(w);
  for (bool changed = true; changed;) {
    changed = find_most(w, windows, deadline_s);
    for (int stage = 0; stage < w->stages; stage++)
      if (w->most[stage] < 0) return false;
    add_all(w);
  }
  if (w->after[0].most < w->end - w->first) return false;
  add_runs(w);
  return true;
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

int64_t zp_mode_work_reach(const zp_mode_work *w, int stage, int64_t first) {
  int64_t counted = counted_before(w, first) + w->most[stage];
  return counted < w->end - w->first ? w->first + counted : w->n_units;
}

const zp_variant *zp_mode_work_variant(const zp_mode_work *w, int stage, int64_t first, int64_t end, bool *known) {
  int64_t counted = counted_before(w, end) - counted_before(w, first);
  zp_units part = least_part(w, stage, counted);
  bool inner = stage > 0 && stage < w->stages - 1 && first >= w->first && end <= w->end;
  *known = inner || (part.first == first && part.count == end - first);
  if (!*known) return NULL;
  return counted > w->own[stage].most ? NULL : w->variant[stage][counted];
}
