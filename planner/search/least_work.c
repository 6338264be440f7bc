/* What memory forces on the stages of a point that choose what they recompute: is there room, the least work, the least
 * longest stage, and with several chunks a stage the least time of the micro-batches. Where layers may be cut,
 * least_parts.c. All of it is proven in one relaxed problem: only the repeated segment with the most work is looked at,
 * other units take the time of their fastest mode and no memory. Every plan is a solution of it that takes no longer
 * and needs no more, so the least of the problem is never above that of a plan. Each proof stands at its function, in
 * these letters:
 *
 *   N      units of that segment
 *   t, a   seconds of a unit in a mode, forward and backward; bytes that it keeps of one micro-batch. A stage is in one
 *          mode; modes are in the order of t
 *   b      bytes of state of a unit, whatever the mode
 *   L      bytes of a stage for its units: the limit less what every stage with a unit needs besides (fixed_bytes)
 *   w      micro-batches that a stage has in flight */
#include <math.h>
#include <zplan/hash.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "fit.h"
#include "space.h"

typedef struct filling {
  zp_search_cache *s;
  const zp_point *point;
  int segment;
  double units;                      /* N */
  const double *flight;              /* [stage] */
  double unit_s[ZP_MOST_MODES];      /* fastest first */
  double state, kept[ZP_MOST_MODES]; /* bytes a unit; a micro-batch in flight */
  double *room;                      /* [stage][mode]: units (find_rooms) */
  double limit[ZP_MOST_MODES];       /* bytes for these on a stage that has a unit */
} filling;

static double here(const zp_choice *c, zp_state state) { return zp_eighths_here(c, state) / (double)ZP_EIGHTHS; }

/* Bytes of a parameter, its gradient and optimizer state on one of so many ranks that hold it, as far as they stay on
 * the device. */
static double bytes_among(const zp_choice *c, const zp_lowered *l, double holders) {
  double bytes = 0;
  bytes += here(c, ZP_STATE_PARAMS) * l->param_bytes / (zp_shards_params(c) ? holders : 1);
  bytes += here(c, ZP_STATE_GRADIENTS) * l->grad_bytes / (zp_shards_gradients(c) ? holders : 1);
  bytes += here(c, ZP_STATE_OPTIMIZER) * l->state_bytes / (zp_shards_state(c) ? holders : 1);
  return bytes;
}

static zp_state_bytes state_bytes(const zp_choice *c, const zp_lowered *l) {
  return (zp_state_bytes){.whole = bytes_among(c, l, c->data),
                          .spread = bytes_among(c, l, (double)c->data / zp_expert_ranks(c))};
}

static int heaviest_repeat(const zp_variant *v) {
  int heaviest = 0;
  double most = -1;
  for (int i = 0; i < v->lowered->n_segments; i++) {
    double seconds = v->unit_s[i] * (double)v->lowered->segments[i].segment->count;
    if (seconds > most) heaviest = i, most = seconds;
  }
  return heaviest;
}

/* floor of what is not negative, without a call. */
static double whole_part(double x) { return x < 1e15 ? (double)(int64_t)x : x; }

/* Micro-batches for which a unit keeps its values, at least: those of the chunk with the fewest, or of a chunk's share
 * in the stage's pool. */
static double flight_of(const zp_flight_memo *memo, int stage) {
  return zp_sooner(memo->slots[stage] / memo->chunks, memo->fewest[stage]);
}

static void count_stage(zp_flight_memo *memo, const zp_choice *c, int stage) {
  int64_t m = memo->microbatches, *chunk = &memo->chunk[stage * memo->chunks];
  double fewest = HUGE_VAL, all = 0;
  for (int k = 0; k < memo->chunks; k++) {
    chunk[k] = zp_in_flight_chunk(c, stage, k, m);
    fewest = zp_sooner(fewest, (double)chunk[k]);
    all += (double)chunk[k];
  }
  memo->fewest[stage] = fewest;
  memo->all[stage] = all;
  memo->slots[stage] = (double)zp_in_flight(c, stage, m);
  memo->flight[stage] = flight_of(memo, stage);
}

static void give_room(zp_search_cache *s, zp_flight_memo *memo, const zp_choice *c) {
  if (memo->stages < c->pipeline) {
    memo->stages = c->pipeline;
    memo->flight = ZP_NEW_ARRAY(s->kept, double, 4 * memo->stages);
    memo->fewest = memo->flight + memo->stages;
    memo->all = memo->fewest + memo->stages;
    memo->slots = memo->all + memo->stages;
  }
  if (memo->room >= zp_model_chunks(c)) return;
  memo->room = zp_model_chunks(c);
  memo->chunk = ZP_NEW_ARRAY(s->kept, int64_t, memo->room);
}

/* Micro-batches that all stages have in flight. Interleaved tables are slow to count in, and other points ask for the
 * same ones. */
const zp_flight_memo *zp_find_flights(zp_search_cache *s, const zp_choice *c) {
  int64_t m = zp_microbatches(s->in->spec, c);
  int chunks = zp_chunks(c);
  const int64_t key[4] = {(int64_t)c->schedule, chunks, c->pipeline, m};
  zp_flight_memo *memo = &s->memo.flight[zp_hash(ZP_HASH_START, key, sizeof key) % ZP_FLIGHT_SLOTS];
  if (memo->known && memo->schedule == c->schedule && memo->chunks == chunks && memo->pipeline == c->pipeline &&
      memo->microbatches == m)
    return memo;
  give_room(s, memo, c);
  memo->known = memo->descend = true; /* all of it is found below */
  memo->schedule = c->schedule, memo->chunks = chunks, memo->pipeline = c->pipeline, memo->microbatches = m;
  for (int stage = 0; stage < c->pipeline; stage++) {
    count_stage(memo, c, stage);
    memo->descend &= stage == 0 || memo->flight[stage] <= memo->flight[stage - 1];
    memo->least = stage ? zp_sooner(memo->least, memo->flight[stage]) : memo->flight[stage];
    memo->most = stage ? zp_later(memo->most, memo->flight[stage]) : memo->flight[stage];
  }
  return memo;
}

/* Bytes that a stage with a unit needs beside what it holds for every unit: communicators, transients, and rings for
 * what has left the device (regions.c). The rings of ZeRO 2 and 3 do not count, because zp_smallest, with the highest
 * stage, stands for the others, too. */
static double fixed_bytes(zp_search_cache *s, const zp_choice *c, const zp_lowered *l, const zp_segment_program *unit) {
  int64_t elements = unit->elements + unit->spread_elements, transient = unit->forward.transient_bytes;
  const zp_procedure *backward = zp_backward_of(unit, c->schedule);
  if (backward->transient_bytes > transient) transient = backward->transient_bytes;
  int64_t bytes = transient + zp_choice_communicator_bytes(s, c, l->ties);
  if (c->home[ZP_STATE_PARAMS].eighths == 8) bytes += 2 * elements * l->param_bytes;
  if (c->home[ZP_STATE_GRADIENTS].eighths == 8) bytes += 2 * elements * l->grad_bytes;
  if (c->home[ZP_STATE_ACTIVATIONS].eighths == 8) bytes += ZP_SAVED_BUFFERS * unit->saved_bytes;
  return (double)bytes;
}

static filling start(zp_search_cache *s, const zp_point *point) {
  const zp_variant *fastest = &s->variants.data[point->modes[0]];
  filling f = {.s = s, .point = point, .segment = heaviest_repeat(fastest)};
  f.units = (double)fastest->lowered->segments[f.segment].segment->count;
  const zp_segment_program *unit = &fastest->lowered->segments[f.segment];
  zp_state_bytes each = state_bytes(&point->choice, fastest->lowered);
  f.state = each.whole * (double)unit->elements + each.spread * (double)unit->spread_elements;
  for (int i = 0; i < point->n_modes; i++) {
    const zp_variant *v = &s->variants.data[point->modes[i]];
    f.unit_s[i] = v->unit_s[f.segment];
    f.kept[i] = here(&point->choice, ZP_STATE_ACTIVATIONS) * (double)v->lowered->segments[f.segment].saved_bytes;
    f.limit[i] = (double)s->limit_bytes - fixed_bytes(s, &point->choice, v->lowered, &v->lowered->segments[f.segment]);
  }
  return f;
}

/* The most units that a stage can hold in a mode: n of them need n (b + w a) <= L, so n is at most the whole part of
 * L / (b + w a). With several chunks a stage w is flight_of: no unit is kept for fewer, so n is still the most. Loose
 * by what other units of the stage need. */
static double room_of(const filling *f, int mode, double flight) {
  if (f->limit[mode] <= 0) return 0; /* whatever a unit needs: it may be nothing */
  return whole_part(f->limit[mode] * (1 + ZP_ROUNDING) / (f->state + flight * f->kept[mode]));
}

/* Are all units but the first and the last one of the repeat, so that every chunk of a stage in between has one? */
static bool fills_all_between(const filling *f, int stage) {
  int units = (int)zp_point_units(f->s, f->point);
  return stage > 0 && stage < f->point->choice.pipeline - 1 && f->units >= units - 2;
}

/* The most units that a stage with C chunks can hold in a mode, however it is cut. The layout may give chunks slots of
 * their own, or one pool, whatever needs less; so the larger of two numbers of units is the most.
 * Own slots: chunk k with n_k units and w_k in flight needs n_k (b + w_k a). Where every chunk is known to have a unit
 * (forced), what is above one a chunk costs least in the chunk with the fewest, w: n units need at least
 * n (b + w a) + a sum of (w_k - w), and there are C units or none. Where that is not known the sum is left out.
 * A pool of W slots, each with room for the largest chunk of u units: W u a + n b bytes, and n <= C u. Up to the
 * largest u with u (C b + W a) <= L all C chunks may be full; with one more unit in the largest chunk, only
 * (L - W (u + 1) a) / b units remain, and ever fewer with more: the most of n is at one of the two.
 * Loose by the units that are not of the segment. */
static double room_of_chunks(const filling *f, int mode, int stage, const zp_flight_memo *flights, bool forced) {
  int chunks = flights->chunks;
  double bytes = f->limit[mode] * (1 + ZP_ROUNDING), kept = f->kept[mode];
  double fewest = flights->fewest[stage], all = flights->all[stage], slots = flights->slots[stage];
  if (bytes <= 0) return 0;
  if (f->state + kept <= 0) return HUGE_VAL;
  double own = (bytes - (forced ? kept * (all - chunks * fewest) : 0)) / (f->state + kept * fewest);
  if (forced && own < chunks) own = 0;
  double each = whole_part(bytes / (chunks * f->state + slots * kept)); /* units of a chunk */
  double pooled = chunks * each;
  if (f->state > 0) pooled = zp_later(pooled, (bytes - slots * kept * (each + 1)) / f->state);
  return whole_part(zp_later(zp_later(own, pooled), 0));
}

/* How many units a stage has room for in every mode. Neighbours may have the same in flight. */
static void find_rooms(filling *f) {
  int stages = f->point->choice.pipeline, n = f->point->n_modes, chunks = zp_chunks(&f->point->choice);
  const zp_flight_memo *flights = zp_find_flights(f->s, &f->point->choice);
  f->flight = flights->flight;
  f->room = ZP_NEW_ARRAY(f->s->arena, double, stages *n);
  for (int stage = 0; stage < stages; stage++) {
    double *room = &f->room[stage * n];
    if (chunks > 1)
      for (int i = 0; i < n; i++) room[i] = room_of_chunks(f, i, stage, flights, fills_all_between(f, stage));
    else if (stage > 0 && f->flight[stage] == f->flight[stage - 1])
      memcpy(room, room - n, sizeof *room * (size_t)n);
    else
      for (int i = 0; i < n; i++) room[i] = room_of(f, i, f->flight[stage]);
  }
}

/* sums[stage][mode]: the most units that the stages before it can hold in that mode or a faster one: each the room of
 * that of these modes with the most. */
static double *sum_rooms(const filling *f) {
  int stages = f->point->choice.pipeline, n = f->point->n_modes;
  double *sums = ZP_NEW_ARRAY(f->s->arena, double, (stages + 1) * n);
  for (int stage = 0; stage < stages; stage++) {
    double most = 0;
    for (int i = 0; i < n; i++) {
      most = zp_later(most, f->room[stage * n + i]);
      sums[(stage + 1) * n + i] = sums[stage * n + i] + most;
    }
  }
  return sums;
}

/* How much longer than in the fastest mode `units` take on the stages first .. end - 1, at least. At most R_i of them
 * are in mode i or a faster one (sum_rooms), so units - R_i or more are in a slower one, and the sum of t is least when
 * every mode takes all that it can, from the fastest one on. Units without any room take the slowest mode here; that
 * they have none is said elsewhere. */
static double longer(const zp_least_work *w, int n_modes, int first, int end, double units) {
  double placed = 0, seconds = 0;
  for (int i = 0; i < n_modes && placed < units; i++) {
    bool last = i == n_modes - 1; /* what does not fit at all is found elsewhere */
    double room = w->rooms[end * n_modes + i] - w->rooms[first * n_modes + i];
    double reached = !last && room < units ? room : units; /* room without end, less as much, is no number */
    seconds += zp_later(0, reached - placed) * (w->unit_s[i] - w->unit_s[0]);
    placed = zp_later(placed, reached);
  }
  return seconds * (1 - ZP_ROUNDING);
}

/* Units that the stages run at most when none is longer than longest_s: each as many as that time allows and as it has
 * room for, in the best of its modes. */
static double reached_within(const filling *f, double longest_s) {
  double reached = 0, units[ZP_MOST_MODES];
  int n = f->point->n_modes;
  for (int i = 0; i < n; i++) units[i] = whole_part(longest_s / f->unit_s[i] * (1 + ZP_ROUNDING));
  for (int stage = 0; stage < f->point->choice.pipeline; stage++) {
    double most = 0;
    for (int i = 0; i < n; i++) most = zp_later(most, zp_sooner(units[i], f->room[stage * n + i]));
    reached += most;
  }
  return reached;
}

/* The longest stage, at least: the least M within which the stages together reach N (reached_within). What they reach
 * grows with M, so it is bisected, from below, to a thousandth. Loose by that, and by units of other segments. */
static double least_longest(const filling *f) {
  double low = f->unit_s[0] * (1 - ZP_BOUND_SLACK), high = f->units * f->unit_s[f->point->n_modes - 1];
  while (high - low > ZP_COARSE_STEP * high) {
    double middle = low + (high - low) / 2;
    if (reached_within(f, middle) >= f->units)
      high = middle;
    else
      low = middle;
  }
  return low;
}

/* Points of a variant share it. */
static int64_t *count_units(const filling *f) {
  zp_search_memo *memo = &f->s->memo;
  while (memo->units_before.len <= f->point->variant) zp_push(f->s->arena, &memo->units_before, NULL);
  int64_t *before = memo->units_before.data[f->point->variant];
  if (before) return before;
  before = ZP_NEW_ARRAY(f->s->arena, int64_t, zp_point_units(f->s, f->point) + 1);
  memo->units_before.data[f->point->variant] = before;
  for (int64_t unit = 0; unit < zp_point_units(f->s, f->point); unit++) {
    int segment;
    int64_t iteration;
    zp_unit(zp_variant_of(f->s, f->point)->lowered, unit, &segment, &iteration);
    before[unit + 1] = before[unit] + (segment == f->segment);
  }
  return before;
}

/* Moving a unit between a stage and those around it must move a bound in the direction in which m times the unit's own
 * work moves it, or stages could not be filled greedily: the largest difference between modes has to be small beside
 * the micro-batches. */
static bool small_beside(const filling *f, double microbatches) {
  return microbatches * f->unit_s[0] >= 2 * f->unit_s[f->point->n_modes - 1];
}

/* What the stages with the fewest and the most in flight say of all. room_of falls with w: if P stages with the fewest
 * have too little room in every mode, so have all stages as they are; if P stages with the most have room for N units
 * in the fastest mode, memory forces nothing. Where only room is asked for, any mode will do, with one chunk a stage;
 * several chunks count more exactly (room_of_chunks). */
typedef enum verdict { TOO_LITTLE, ENOUGH, DEPENDS } verdict;
static bool have_too_little(const filling *f, double least_flight) {
  double stages = f->point->choice.pipeline, most = 0;
  for (int i = 0; i < f->point->n_modes; i++) most = zp_later(most, room_of(f, i, least_flight));
  return stages * most < f->units;
}

static verdict judge_extremes(const filling *f, zp_least_ask ask) {
  if (have_too_little(f, ZP_LEAST_FLIGHT)) return TOO_LITTLE;
  const zp_flight_memo *flights = zp_find_flights(f->s, &f->point->choice);
  if (have_too_little(f, flights->least)) return TOO_LITTLE;
  int modes = ask == ZP_ASK_ROOM && flights->chunks == 1 ? f->point->n_modes : 1;
  for (int i = 0; i < modes; i++)
    if (f->point->choice.pipeline * room_of(f, i, flights->most) >= f->units) return ENOUGH;
  return DEPENDS;
}

/* work_s: the least work of all units in the fastest mode of each, and what memory adds to those of the segment
 * (`longer`, over all stages). There is room if the stages hold N units in any mode. Stages whose modes are pinned, or
 * on several node types, force nothing here: the variant says what they take. */
bool zp_find_least_work(zp_search_cache *s, zp_point *point, zp_least_ask ask) {
  const zp_choice *c = &point->choice;
  if (c->stage_recompute || zp_has_types(s)) return true; /* the variant says it */
  if (c->fine)
    return zp_find_least_parts(s, point, state_bytes(c, zp_variant_of(s, point)->lowered),
                               here(c, ZP_STATE_ACTIVATIONS), ask);
  filling f = start(s, point);
  verdict known = ask == ZP_ASK_ALL ? DEPENDS : judge_extremes(&f, ask);
  if (known != DEPENDS) return known == ENOUGH; /* and the work is that of the fastest mode */
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  zp_least_work w = {.rooms = NULL};
  find_rooms(&f);
  w.rooms = sum_rooms(&f);
  memcpy(w.unit_s, f.unit_s, sizeof w.unit_s);
  bool fits = w.rooms[(c->pipeline + 1) * point->n_modes - 1] >= f.units;
  double least = zp_variant_of(s, point)->prefix_s[zp_point_units(s, point)];
  least += longer(&w, point->n_modes, 0, point->choice.pipeline, f.units);
  point->work_s = fmax(point->work_s, least * (1 - ZP_ROUNDING));
  if (ask != ZP_ASK_ALL) {
    zp_arena_rewind(s->arena, mark);
    return fits;
  }
  double m = (double)zp_microbatches(s->in->spec, &point->choice);
  point->longest_s = fmax(point->longest_s, least_longest(&f));
  w.units_before = count_units(&f);
  w.before = small_beside(&f, m);
  w.after = small_beside(&f, m - point->choice.pipeline);
  point->least = ZP_NEW(s->arena, zp_least_work);
  *point->least = w;
  return fits;
}

/* The units before a known stage are on the stages before it, those after it on the stages after it: `longer` of these
 * stages alone, beside the fastest mode of each unit. Counted where moving a unit keeps a bound's direction
 * (small_beside); loose there by all of it. */
double zp_least_before(const zp_search_cache *s, const zp_point *point, int stage, int64_t first) {
  const zp_least_work *w = point->least;
  double seconds = zp_variant_of(s, point)->prefix_s[first];
  return w && w->before ? seconds + longer(w, point->n_modes, 0, stage, (double)w->units_before[first]) : seconds;
}

double zp_least_after(const zp_search_cache *s, const zp_point *point, int stage, int64_t end) {
  const zp_least_work *w = point->least;
  const double *prefix = zp_variant_of(s, point)->prefix_s;
  double seconds = prefix[zp_point_units(s, point)] - prefix[end];
  if (!w || !w->after) return seconds;
  double units = (double)(w->units_before[zp_point_units(s, point)] - w->units_before[end]);
  return seconds + longer(w, point->n_modes, stage + 1, point->choice.pipeline, units);
}

/* ---- several chunks a stage ---- */

/* Seconds of the micro-batches in which a stage cannot compute: its first chunk is number `stage` of the model, so the
 * chunks before it have a unit each, which are at least the first units of the model; their forwards come before its
 * first action. Where backward is not split, the gradient of its last micro-batch still goes back through them after
 * its last action. Messages in between, once in each direction. Loose by what chunks have beyond one unit. */
static double least_ramp(const zp_search_cache *s, const zp_point *point, int stage, double message_s) {
  const zp_variant *v = zp_variant_of(s, point);
  bool split = zp_schedule_splits(point->choice.schedule);
  return (split ? v->forward_s : v->prefix_s)[stage] + (split ? 1 : 2) * stage * message_s;
}

/* Units of the segment that the stages run at most when the micro-batches take so long. A stage computes for m
 * micro-batches in what is left beside its ramp, so a micro-batch has (seconds - ramp) / m on it, and in a mode takes t
 * a unit: no more units than that quotient, and no more than it has room for, in the best of its modes. The first unit
 * of the model is on stage 0 and the last one on the stage of the last chunk, whatever the cut: where they are of other
 * segments, their time is taken off. */
static double reached_by_chunks(const filling *f, double seconds, double message_s, double least) {
  const zp_choice *c = &f->point->choice;
  const zp_variant *v = zp_variant_of(f->s, f->point);
  int64_t units = zp_point_units(f->s, f->point);
  int first_segment, last_segment, last_stage = zp_chunk_stage(c, zp_model_chunks(c) - 1, NULL);
  int64_t iteration;
  zp_unit(v->lowered, 0, &first_segment, &iteration);
  zp_unit(v->lowered, units - 1, &last_segment, &iteration);
  double m = (double)zp_microbatches(f->s->in->spec, c), reached = 0;
  for (int stage = 0; stage < c->pipeline && reached < least; stage++) {
    double own = (seconds - least_ramp(f->s, f->point, stage, message_s)) / m, most = 0;
    if (stage == 0 && first_segment != f->segment) own -= v->prefix_s[1];
    if (stage == last_stage && last_segment != f->segment) own -= v->prefix_s[units] - v->prefix_s[units - 1];
    for (int i = 0; i < f->point->n_modes && own > 0; i++) {
      double n = whole_part(own / f->unit_s[i] * (1 + ZP_BOUND_SLACK));
      most = zp_later(most, f->room ? zp_sooner(n, f->room[stage * f->point->n_modes + i]) : n);
    }
    reached += most;
  }
  return reached;
}

/* Seconds of the micro-batches, at least: every stage takes its ramp and m times its own work, so the longest of them
 * takes at least the mean, which is that of the ramps and m W / P. Loose where stages cannot be alike. */
static double mean_of_chunks(const zp_search_cache *s, const zp_point *point, double message_s) {
  double sum = (double)zp_microbatches(s->in->spec, &point->choice) * point->work_s;
  for (int stage = 0; stage < point->choice.pipeline; stage++) sum += least_ramp(s, point, stage, message_s);
  return sum / point->choice.pipeline;
}

/* The least time within which the stages reach N units (reached_by_chunks grows with it, so it is bisected), and no
 * less than the mean. Inside layers a unit is a part, whose room least_parts.c knows: the mean alone. Loose: what a
 * stage waits for behind its first and before its last action; that chunks are next to each other in the model, so that
 * not every stage can have its share. */
double zp_bound_any_chunks(zp_search_cache *s, const zp_point *point, bool memory, double high_s) {
  double message_s = zp_least_message(s, point), low = mean_of_chunks(s, point, message_s) * (1 - ZP_BOUND_SLACK),
         high = high_s;
  if (point->choice.fine || low >= high) return low;
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  filling f = start(s, point);
  if (memory && !zp_has_types(s)) find_rooms(&f);
  if (!isfinite(high)) high = 4 * low;
  if (reached_by_chunks(&f, high, message_s, f.units) < f.units) low = high;
  while (high - low > ZP_CLOSE_STEP * high) { /* invariant: not below low */
    double middle = low + (high - low) / 2;
    if (reached_by_chunks(&f, middle, message_s, f.units) >= f.units)
      high = middle;
    else
      low = middle;
  }
  zp_arena_rewind(s->arena, mark);
  return low * (1 - ZP_BOUND_SLACK);
}
