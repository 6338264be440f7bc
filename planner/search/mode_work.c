/* The least work of neighbouring stages when every stage has one mode. A stage that holds one unit too many for a fast
 * mode runs all its units in a slower one, which bounds that mix modes inside a stage (least_work.c) do not see. With
 * x(n) seconds of a stage with n counted units in the fastest mode that fits (mode_table.c),
 *   least of stages a .. b with N units = min over n of (x_b(n) + least of a .. b - 1 with N - n),
 * by dynamic programming for every run of stages. Stages that miss the deadline at hand on their own are left out of x:
 * a long stage early or late in the pipeline would need less work, but runs it for nearly every micro-batch. The result
 * grows with N as x does.
 *
 * Turns: 1F1B lets w = P - 1 - s forwards of stage s follow each other before its first backward, and w backwards after
 * its last forward. The first micro-batch climbs from a stage to some stage j behind it, waits for the w forwards
 * there, and comes back; the last one waits for the backwards. With H over the stages from s on and a message c each
 * way, H_s = X_s + 2 c + max(w_s F_s or w_s B_s, H_s+1), least over the cuts in the same way.
 *
 * Bands: no cut that meets the deadline has fewer than low or more than high counted units before a stage, so sums of
 * stages are only made for numbers between such places: HUGE_VAL elsewhere. */
#include "mode_work.h"

/* Numbers in the tables of runs: where they would be more, long runs are left out, which only weakens bounds. */
enum { MOST_NUMBERS = 1 << 22 };

static double least_in(const zp_row *r, int64_t n) {
  return n < r->least || n > r->most ? HUGE_VAL : r->work_s[n - r->least];
}

/* ---- sums of stages ---- */

/* A stage that joins others. */
typedef struct one_stage {
  const zp_row *own;
  int64_t most;
  const double *way_s; /* the others take at least `turns` times that; NULL: whatever they take */
  double turns;
} one_stage;

/* sum: of the others and the stage, inside the band that it comes with. */
static void add_stage(zp_row *sum, const zp_row *others, const one_stage *stage) {
  sum->least = zp_larger(sum->least, others->least);
  sum->most = zp_smaller(sum->most, others->most + stage->most);
  for (int64_t n = sum->least; n <= sum->most; n++) sum->work_s[n - sum->least] = HUGE_VAL;
  for (int64_t k = 0; k <= stage->most; k++) {
    double own = stage->own->work_s[k], turn = stage->way_s ? stage->turns * stage->way_s[k] : -HUGE_VAL;
    int64_t from = zp_larger(sum->least, others->least + k), to = zp_smaller(sum->most, others->most + k);
    if (from > to) continue;
    double *restrict least = sum->work_s + (from - sum->least);
    const double *restrict other = others->work_s + (from - k - others->least);
    for (int64_t i = 0; i <= to - from; i++) least[i] = zp_sooner(least[i], own + zp_later(turn, other[i]));
  }
}

/* How often a stage runs forwards one after the other, and backwards. */
static double turns_at(const zp_mode_work *w, const zp_windows *windows, int stage) {
  return zp_sooner(w->stages - 1 - stage, (double)windows->microbatches - 1);
}

/* Numbers that one stage and those after it can have. */
static void set_band(const zp_mode_work *w, zp_row *r, int stage) {
  r->least = zp_counted(w) - w->high[stage];
  r->most = zp_counted(w) - w->low[stage];
}

/* H of one stage and those after it. */
static void add_turn(zp_mode_work *w, const zp_windows *windows, int way, int stage) {
  zp_row *sum = &w->turn[way][stage];
  double others = 0;
  zp_units part = zp_mode_least_part(w, stage, 0);
  if (w->alone) others = zp_others_s(w, part.first, part.first + part.count);
  set_band(w, sum, stage);
  add_stage(sum, &w->turn[way][stage + 1],
            &(one_stage){&w->own[stage], w->most[stage], w->way_s[way][stage], turns_at(w, windows, stage)});
  for (int64_t n = sum->least; n <= sum->most; n++)
    sum->work_s[n - sum->least] = sum->work_s[n - sum->least] + others + 2 * windows->message_s;
}

/* Requires: after and turn of the stage. */
static void set_climb(zp_mode_work *w, const zp_windows *windows, int way, int stage) {
  zp_row *climb = &w->climb[way][stage];
  const zp_row *after = &w->after[stage], *turn = &w->turn[way][stage];
  double messages = 2.0 * (w->stages - stage) * windows->message_s;
  climb->least = zp_larger(after->least, turn->least);
  climb->most = zp_smaller(after->most, turn->most);
  for (int64_t n = climb->least; n <= climb->most; n++)
    climb->work_s[n - climb->least] =
        zp_later(after->work_s[n - after->least] + messages, turn->work_s[n - turn->least]);
}

static void add_all(zp_mode_work *w, const zp_windows *windows) {
  int stages = w->stages;
  w->after[stages].most = w->turn[0][stages].most = w->turn[1][stages].most = 0;
  for (int stage = 0; stage < stages; stage++) {
    zp_row *sum = &w->before[stage + 1];
    sum->least = w->low[stage + 1], sum->most = w->high[stage + 1];
    add_stage(sum, &w->before[stage], &(one_stage){&w->own[stage], w->most[stage], NULL, 0});
  }
  for (int stage = stages; stage-- > 0;) {
    set_band(w, &w->after[stage], stage);
    add_stage(&w->after[stage], &w->after[stage + 1], &(one_stage){&w->own[stage], w->most[stage], NULL, 0});
    for (int way = 0; way < 2 && windows->one_f_one_b; way++) add_turn(w, windows, way, stage);
  }
  for (int stage = 1; stage <= stages; stage++)
    for (int way = 0; way < 2 && windows->one_f_one_b; way++) set_climb(w, windows, way, stage);
}

/* ---- the deadline ---- */

/* Seconds between the first forward of a stage with n units, `after` behind it, and its first backward; between its
 * last forward and its last backward. */
static double turn_s(const zp_mode_work *w, const zp_windows *windows, int way, int stage, int64_t n, int64_t after) {
  double climb = least_in(&w->climb[way][stage + 1], after);
  return zp_later(climb, n > w->own[stage].most ? HUGE_VAL : turns_at(w, windows, stage) * w->way_s[way][stage][n]);
}

/* Micro-batches of 1F1B between the first backward of a stage and its last forward; below 1: it has no turns. */
static double between_turns(const zp_mode_work *w, const zp_windows *windows, int stage) {
  return windows->one_f_one_b ? (double)windows->microbatches - w->stages + stage : 0;
}

/* May the stage have n units, whatever the others have? The window of one stage (window.c). */
static bool stage_meets(const zp_mode_work *w, const zp_windows *windows, int stage, int64_t n, double deadline_s) {
  int64_t rest = zp_counted(w) - n;
  const zp_row *before = &w->before[stage], *after = &w->after[stage + 1];
  double own = w->own[stage].work_s[n], around = HUGE_VAL, messages = 2 * windows->message_s;
  double between = between_turns(w, windows, stage);
  bool turns = between >= 1;
  int64_t from = zp_larger(before->least, rest - after->most), to = zp_smaller(before->most, rest - after->least);
  for (int64_t e = from; e <= to; e++) {
    double below = before->work_s[e - before->least] + messages * stage;
    double above = turns ? turn_s(w, windows, 0, stage, n, rest - e) + turn_s(w, windows, 1, stage, n, rest - e)
                         : least_in(after, rest - e) + messages * (w->stages - 1 - stage);
    around = zp_sooner(around, below + above);
  }
  double way = own + around;
  double least =
      turns ? way + between * own : zp_later(way + zp_others_s(w, 0, w->n_units), (double)windows->microbatches * own);
  return least * (1 - 1e-12) <= deadline_s;
}

/* The same without the sums of the other stages: a stage that fails here fails there. */
static bool stage_may_meet(const zp_mode_work *w, const zp_windows *windows, int stage, int64_t n, double deadline_s) {
  double own = w->own[stage].work_s[n], between = between_turns(w, windows, stage);
  double way = own + (double)(zp_counted(w) - n) * w->least_unit_s + 2 * windows->message_s * (w->stages - 1);
  double turn = turns_at(w, windows, stage) * zp_later(w->way_s[0][stage][n], w->way_s[1][stage][n]);
  double least = between >= 1 ? way + turn + between * own : zp_later(way, (double)windows->microbatches * own);
  return least * (1 - 1e-9) <= deadline_s;
}

/* Fewer units for stages that miss the deadline. False: one has no number left. */
static bool find_most(zp_mode_work *w, const zp_windows *windows, double deadline_s,
                      bool (*meets)(const zp_mode_work *, const zp_windows *, int, int64_t, double), bool *changed) {
  *changed = false;
  for (int stage = 0; stage < w->stages; stage++) {
    int64_t n = w->most[stage];
    while (n >= 0 && !meets(w, windows, stage, n, deadline_s)) n--;
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

/* ---- runs ---- */

/* Numbers that the `length` stages that end with `last` can have. */
static zp_row run_of(const zp_mode_work *w, int last, int length) {
  return (zp_row){zp_larger(0, w->low[last + 1] - w->high[last - length + 1]),
                  w->high[last + 1] - w->low[last - length + 1], NULL};
}

static void make_room(zp_mode_work *w) {
  int64_t numbers = 0;
  for (w->longest = 0; w->longest < w->stages; w->longest++) {
    int64_t more = 0;
    for (int last = w->longest; last < w->stages; last++) {
      zp_row run = run_of(w, last, w->longest + 1);
      more += run.most - run.least + 1;
    }
    if (numbers + more > MOST_NUMBERS) break;
    numbers += more;
  }
  if (numbers > w->n_numbers) w->numbers = ZP_NEW_ARRAY(w->arena, double, w->n_numbers = numbers);
}

static void add_runs(zp_mode_work *w) {
  double nothing = 0;
  const zp_row none = {0, 0, &nothing};
  make_room(w);
  double *room = w->numbers;
  for (int stage = 0; stage < w->stages; stage++) {
    for (int length = 1; length <= w->longest && length <= stage + 1; length++) {
      zp_row *run = &w->runs[stage * w->stages + length - 1];
      const zp_row *others = length == 1 ? &none : &w->runs[(stage - 1) * w->stages + length - 2];
      *run = run_of(w, stage, length);
      run->work_s = room;
      add_stage(run, others, &(one_stage){&w->own[stage], w->most[stage], NULL, 0});
      room += zp_larger(0, run->most - run->least + 1);
    }
  }
}

/* Fewer units a stage, until no more can be taken away. */
static bool settle(zp_mode_work *w, const zp_windows *windows, double deadline_s) {
  for (bool changed = true; changed;) {
    if (!narrow_bands(w)) return false;
    add_all(w, windows);
    if (!find_most(w, windows, deadline_s, stage_meets, &changed)) return false;
  }
  if (!isfinite(least_in(&w->after[0], zp_counted(w)))) return false;
  add_runs(w);
  return true;
}

bool zp_mode_work_meet(zp_mode_work *w, const zp_windows *windows, double deadline_s) {
  bool changed;
  for (int stage = 0; stage < w->stages; stage++)
    if ((w->most[stage] = w->own[stage].most) < 0) return false;
  for (int stage = 0; stage <= w->stages; stage++) {
    w->low[stage] = stage == w->stages ? zp_counted(w) : 0;
    w->high[stage] = stage == 0 ? 0 : zp_counted(w);
  }
  return find_most(w, windows, deadline_s, stage_may_meet, &changed) && settle(w, windows, deadline_s);
}

bool zp_mode_work_narrow(zp_mode_work *w, const zp_windows *windows, double deadline_s, const int64_t *low,
                         const int64_t *high) {
  for (int stage = 1; stage < w->stages; stage++) {
    w->low[stage] = zp_counted_before(w, low[stage]);
    w->high[stage] = zp_counted_before(w, high[stage]);
  }
  return settle(w, windows, deadline_s);
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
  else if (to - from <= w->longest)
    least = least_in(&w->runs[(to - 1) * w->stages + to - from - 1], counted);
  return (zp_others_s(w, first, end) + least) * (1 - 1e-12);
}

double zp_mode_work_turn(const zp_mode_work *w, const zp_windows *windows, zp_turn turn, int stage, int64_t first,
                         int64_t end) {
  int64_t after = zp_counted_before(w, w->n_units) - zp_counted_before(w, end);
  int64_t counted = zp_counted_before(w, end) - zp_counted_before(w, first);
  return turn_s(w, windows, (int)turn, stage, counted, after) * (1 - 1e-12);
}

double zp_mode_work_answer(const zp_mode_work *w, const zp_windows *windows, zp_turn turn, int stage, int64_t first) {
  int64_t counted = zp_counted_before(w, w->n_units) - zp_counted_before(w, first);
  return (least_in(&w->turn[turn][stage], counted) - 2 * windows->message_s) * (1 - 1e-12);
}

int64_t zp_mode_work_least_start(const zp_mode_work *w, int stage, int64_t end) {
  int64_t counted = zp_counted_before(w, end) - w->most[stage];
  return counted > 0 ? w->first + counted : 0;
}

int64_t zp_mode_work_reach(const zp_mode_work *w, int stage, int64_t first) {
  int64_t counted = zp_counted_before(w, first) + w->most[stage];
  return counted < zp_counted(w) ? w->first + counted : w->n_units;
}
