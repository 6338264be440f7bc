/* SPDX-License-Identifier: Apache-2.0 */
/* What memory forces on the stages of a point that choose what they recompute: is there room, the least work, the least
 * longest stage, and with several chunks a stage the least time of the micro-batches. Where layers may be cut,
 * least_parts.c. All of it is proven in one relaxed problem: only the repeated segment with the most work is
 * considered, other units take the time of their fastest mode and no memory. Every plan is a solution of it that takes
 * no longer and needs no more, so the least of the problem is never above that of a plan. Each proof stands at its
 * function, in these letters:
 *
 *   N      units of that segment
 *   t, a   seconds of a unit in a mode, forward and backward; bytes that it keeps of one micro-batch. A stage is in one
 *          mode, or its units are in two of them (zp_may_mix); modes are in the order of t
 *   b      bytes of state of a unit, whatever the mode
 *   L      bytes of a stage for its units: the limit less what every stage with a unit needs besides (fixed_bytes)
 *   w      micro-batches that a stage has in flight
 *   q, e   micro-batches whose weight gradients wait on a stage, where backward is split; bytes of one for a unit */
#include <math.h>
#include <zplan/hash.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "procedures.h"
#include "space.h"

/* Where the most units that a mixed stage holds in a time bend: so many in so many seconds, then so many in each. */
typedef struct corner {
  double units, seconds, rate;
} corner;

typedef struct filling {
  zp_search_cache *s;
  const zp_point *point;
  int segment;
  double units;                 /* N */
  double unit_s[ZP_MOST_MODES]; /* fastest first */
  double state;                 /* bytes a unit */
  double kept[ZP_MOST_MODES];   /* a micro-batch in flight */
  double waits[ZP_MOST_MODES];  /* a micro-batch whose weight gradients wait */
  bool between;                 /* all units but the first and the last one of the model are of the segment */
  double *room;                 /* [stage][mode]: units (find_rooms) */
  corner *corners;              /* [stage][mode]: of mixed stages (find_corners); NULL: stages are not mixed */
  double limit[ZP_MOST_MODES];  /* bytes for these on a stage that has a unit */
} filling;

/* Shares that are on the host, at least: of a family, no disks are open to the class. */
static zp_shares shares_on_host(const zp_search_cache *s, const zp_point *point) {
  zp_shares shares = {.frozen = 0};
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    const zp_home *home = &point->choice.home[i];
    bool open = zp_is_family(point) && zp_limit_allows(&s->in->constraints->offload[i], ZP_TIER_NVME);
    shares.of[i] = home->tier == ZP_TIER_HOST && !open ? home->eighths / (double)ZP_EIGHTHS : 0;
  }
  return shares;
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

static filling start(zp_search_cache *s, const zp_point *point, const zp_shares *shares) {
  const zp_variant *fastest = &s->variants.data[point->modes[0]];
  filling f = {.s = s, .point = point, .segment = heaviest_repeat(fastest)};
  f.units = (double)fastest->lowered->segments[f.segment].segment->count;
  const zp_segment_program *unit = &fastest->lowered->segments[f.segment];
  zp_state_bytes each = zp_bytes_of_state(&point->choice, fastest->lowered, shares);
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) f.state += each.of[kind] * (double)unit->elements.of[kind];
  f.between = zp_is_all_between(fastest->lowered, f.segment);
  for (int i = 0; i < point->n_modes; i++) {
    const zp_variant *v = &s->variants.data[point->modes[i]];
    f.unit_s[i] = v->unit_s[f.segment];
    f.kept[i] = shares->of[ZP_STATE_ACTIVATIONS] * (double)v->lowered->segments[f.segment].saved_bytes;
  }
  return f;
}

static filling start_on_device(zp_search_cache *s, const zp_point *point) {
  const zp_shares shares = zp_shares_here(&point->choice);
  filling f = start(s, point, &shares);
  for (int i = 0; i < point->n_modes; i++) {
    const zp_variant *v = &s->variants.data[point->modes[i]];
    const zp_segment_program *unit = &v->lowered->segments[f.segment];
    const zp_unit_bytes one = zp_bytes_of_unit(unit, point->choice.schedule);
    f.waits[i] = (double)zp_unit_pending_bytes(unit, &point->choice);
    const zp_alongside alongside = zp_find_alongside(s, point, v);
    f.limit[i] = (double)s->limit_bytes - zp_bytes_alongside(&alongside, &one);
  }
  return f;
}

/* Shares off the device are rounded down to whole pages (zp_saved_offloaded). */
static filling start_on_host(zp_search_cache *s, const zp_point *point, const zp_shares *shares) {
  filling f = start(s, point, shares);
  for (int i = 0; i < point->n_modes; i++) {
    int64_t saved = s->variants.data[point->modes[i]].lowered->segments[f.segment].saved_bytes;
    f.kept[i] = (double)zp_saved_offloaded(&point->choice, saved);
    f.limit[i] = (double)s->host_bytes + 1; /* where nothing is needed there is room */
  }
  return f;
}

static double exact_room_of(const filling *f, int mode, double flight, double pending) {
  if (f->limit[mode] <= 0) return 0; /* whatever a unit needs: it may be nothing */
  return f->limit[mode] * (1 + ZP_ROUNDING) / (f->state + flight * f->kept[mode] + pending * f->waits[mode]);
}

/* The most units that a stage can hold in a mode: n of them need n (b + w a + q e) <= L, so n is at most the whole part
 * of L / (b + w a + q e). With several chunks a stage w is flight_of: no unit is kept for fewer, so n is still the
 * most. Loose by what other units of the stage need. Units in several modes need the sum of that and have the least L
 * of these modes: whichever of them needs least for its L has room for no fewer than all of them together. So the most
 * of these modes' rooms is the most of a mixed stage, too. */
static double room_of(const filling *f, int mode, double flight, double pending) {
  return whole_part(exact_room_of(f, mode, flight, pending));
}

/* Has every chunk of a stage a unit of the segment? */
static bool fills_all_between(const filling *f, int stage) {
  return f->between && stage > 0 && stage < f->point->choice.pipeline - 1;
}

/* The most units that a stage with C chunks can hold in a mode, however it is cut. The layout may give chunks slots of
 * their own, or one pool, whatever needs less; so the larger of two numbers of units is the most.
 * Own slots: chunk k with n_k units and w_k in flight needs n_k (b + w_k a). Where every chunk is known to have a unit
 * (forced), what is above one a chunk costs least in the chunk with the fewest, w: n units need at least
 * n (b + w a) + a sum of (w_k - w), and there are C units or none. Where that is not known the sum is left out.
 * What waits is in no pool: b is b + q e here, with the q of the chunk with the fewest. A pool of W slots, each with
 * room for the largest chunk of u units: W u a + n b bytes, and n <= C u. Up to the largest u with u (C b + W a) <= L
 * all C chunks may be full; with one more unit in the largest chunk, only (L - W (u + 1) a) / b units remain, and ever
 * fewer with more: the most of n is at one of the two. Loose by the units that are not of the segment. */
static double room_of_chunks(const filling *f, int mode, const zp_stage_flight *flight, bool forced) {
  int chunks = zp_chunks(&f->point->choice);
  double bytes = f->limit[mode] * (1 + ZP_ROUNDING), kept = f->kept[mode];
  double fewest = flight->fewest, all = flight->all, slots = flight->slots;
  double state = f->state + flight->pending * f->waits[mode];
  if (bytes <= 0) return 0;
  if (state + kept <= 0) return HUGE_VAL;
  double own = (bytes - (forced ? kept * (all - chunks * fewest) : 0)) / (state + kept * fewest);
  if (forced && own < chunks) own = 0;
  double each = whole_part(bytes / (chunks * state + slots * kept)); /* units of a chunk */
  double pooled = chunks * each;
  if (state > 0) pooled = zp_later(pooled, (bytes - slots * kept * (each + 1)) / state);
  return whole_part(zp_later(zp_later(own, pooled), 0));
}

/* room: [modes]. */
static void find_room(const filling *f, int stage, const zp_stage_flight *flight, double *room) {
  for (int i = 0; i < f->point->n_modes; i++)
    room[i] = zp_chunks(&f->point->choice) > 1 ? room_of_chunks(f, i, flight, fills_all_between(f, stage))
                                               : room_of(f, i, flight->flight, flight->pending);
}

/* Units of a mixed stage at most, in a time T. With n_i units in mode i, whose room is R_i, a stage fits only if the
 * sum of n_i / R_i is at most 1, because each mode's L is no less than that of the stage; and it takes the sum of n_i
 * t_i, at most T. So the most of all n_i is, as a function of T, the least concave one above 0 and all R_i at R_i t_i:
 * a line from corner to corner. Here are the corners; the last one has rate 0. */
static void find_corners(const filling *f, const zp_stage_flight *flight, corner *corners) {
  corner alone[ZP_MOST_MODES]; /* in one mode; by seconds, which the segment's units may have in another order */
  int n = 0;
  for (int i = 0; i < f->point->n_modes; i++) {
    double units = exact_room_of(f, i, flight->flight, flight->pending), seconds = units * f->unit_s[i];
    int at = i;
    for (; at > 0 && seconds < alone[at - 1].seconds; at--) alone[at] = alone[at - 1];
    alone[at] = (corner){units, seconds, 1 / f->unit_s[i]};
  }
  corners[0] = (corner){0, 0, 0};
  for (int i = 0; i < f->point->n_modes; i++) {
    if (alone[i].units <= corners[n].units) continue;
    for (;; n--) { /* corners below the line to the new one go */
      corner *last = &corners[n];
      if (n > 0 && alone[i].seconds <= last->seconds) continue;
      last->rate = alone[i].rate;
      if (isfinite(alone[i].units)) last->rate = (alone[i].units - last->units) / (alone[i].seconds - last->seconds);
      if (n == 0 || last->rate < corners[n - 1].rate) break;
    }
    corners[++n] = (corner){alone[i].units, alone[i].seconds, 0};
  }
}

static double most_mixed(const corner *at, double seconds) {
  while (at->rate > 0 && at[1].seconds <= seconds) at++;
  return whole_part((at->units + (at->rate > 0 ? (seconds - at->seconds) * at->rate : 0)) * (1 + ZP_BOUND_SLACK));
}

/* How many units a stage has room for in every mode. False: one that has to have a unit has room for none. */
static bool find_rooms(filling *f) {
  int stages = f->point->choice.pipeline, n = f->point->n_modes;
  const zp_flight_memo *flights = zp_find_flights(f->s, &f->point->choice);
  bool all_have = true, mixes = zp_may_mix(f->s, f->point);
  f->room = ZP_NEW_ARRAY(f->s->arena, double, stages *n);
  f->corners = mixes ? ZP_NEW_ARRAY(f->s->arena, corner, stages * (n + 1)) : NULL;
  for (int stage = 0; stage < stages; stage++) {
    double most = 0, *room = &f->room[stage * n];
    bool as_before = stage > 0 && flights->chunks == 1 && flights->flight[stage] == flights->flight[stage - 1] &&
                     flights->pending[stage] == flights->pending[stage - 1];
    zp_stage_flight flight = zp_find_stage_flight(f->s, &f->point->choice, stage);
    if (as_before)
      memcpy(room, room - n, sizeof *room * (size_t)n);
    else
      find_room(f, stage, &flight, room);
    if (mixes && as_before)
      memcpy(&f->corners[stage * (n + 1)], &f->corners[(stage - 1) * (n + 1)], sizeof *f->corners * (size_t)(n + 1));
    else if (mixes)
      find_corners(f, &flight, &f->corners[stage * (n + 1)]);
    for (int i = 0; i < n; i++) most = zp_later(most, room[i]);
    all_have &= most >= flights->chunks || !fills_all_between(f, stage);
  }
  return all_have;
}

/* The most units that the stage has room for in any mode. It falls with what is in flight and waits, so from one stage
 * between the first and the last one to the next it does not turn. */
static double units_of_stage(void *user, int stage) {
  const filling *f = user;
  double room[ZP_MOST_MODES], most = 0;
  zp_stage_flight flight = zp_find_stage_flight(f->s, &f->point->choice, stage);
  find_room(f, stage, &flight, room);
  for (int i = 0; i < f->point->n_modes; i++) most = zp_later(most, room[i]);
  return most;
}

/* Have the stages room for all units, and for what each must have, in any mode? As find_rooms and sum_rooms say it. */
static bool have_room(filling *f) {
  int stages = f->point->choice.pipeline;
  double left = f->units - units_of_stage(f, 0), chunks = zp_chunks(&f->point->choice);
  if (stages > 1) left -= units_of_stage(f, stages - 1);
  if (stages <= 2) return left <= 0;
  if (f->between && (units_of_stage(f, 1) < chunks || units_of_stage(f, stages - 2) < chunks)) return false;
  return zp_stages_reach(1, stages - 1, left, units_of_stage, f);
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
 * room for, in the best of its modes, or in two of them. */
static double reached_within(const filling *f, double longest_s) {
  double reached = 0, units[ZP_MOST_MODES];
  int n = f->point->n_modes, stages = f->point->choice.pipeline;
  for (int stage = 0; stage < stages && f->corners; stage++)
    reached += most_mixed(&f->corners[stage * (n + 1)], longest_s);
  if (f->corners) return reached;
  for (int i = 0; i < n; i++) units[i] = whole_part(longest_s / f->unit_s[i] * (1 + ZP_ROUNDING));
  for (int stage = 0; stage < stages; stage++) {
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
 * work moves it, or stages could not be filled greedily: the largest difference between modes has to be small next to
 * the micro-batches. */
static bool small_alongside(const filling *f, double microbatches) {
  return microbatches * f->unit_s[0] >= 2 * f->unit_s[f->point->n_modes - 1];
}

/* What the stages with the fewest and the most in flight say of all. room_of falls with w and q: if P stages with the
 * fewest have too little room in every mode, so have all stages as they are; if P stages with the most have room for N
 * units in the fastest mode, and for one each, memory forces nothing. Where only room is asked for, any mode will do,
 * with one chunk a stage; several chunks count more exactly (room_of_chunks). */
typedef enum verdict { TOO_LITTLE, ENOUGH, DEPENDS } verdict;
static bool have_too_little(const filling *f, double least_flight, double least_pending) {
  double stages = f->point->choice.pipeline, most = 0;
  for (int i = 0; i < f->point->n_modes; i++) most = zp_later(most, room_of(f, i, least_flight, least_pending));
  return stages * most < f->units || (f->between && stages > 2 && most < 1);
}

static verdict judge_extremes(const filling *f, zp_least_ask ask) {
  if (have_too_little(f, ZP_LEAST_FLIGHT(f->s->in), 0)) return TOO_LITTLE;
  const zp_flight_memo *flights = zp_find_flight_extremes(f->s, &f->point->choice);
  if (have_too_little(f, flights->least, flights->least_pending)) return TOO_LITTLE;
  int modes = ask == ZP_ASK_ROOM && flights->chunks == 1 ? f->point->n_modes : 1;
  for (int i = 0; i < modes; i++) {
    double room = room_of(f, i, flights->most, flights->most_pending);
    if (f->point->choice.pipeline * room >= f->units && room >= 1) return ENOUGH;
  }
  return DEPENDS;
}

/* Have the hosts room for the saved values that have left, and the state alongside them? The stages' shares of their
 * hosts are filled like the devices. Loose: buffers, and what the rounding of state to whole elements leaves on the
 * device. */
bool zp_hosts_have_room(zp_search_cache *s, const zp_point *point) {
  zp_shares shares = shares_on_host(s, point);
  const zp_choice *c = &point->choice;
  if (shares.of[ZP_STATE_ACTIVATIONS] == 0 || zp_choice_has_modes(c) || zp_has_types(s)) return true;
  for (int i = 0; i < ZP_STATE_COUNT; i++) /* parts of state are whole numbers of elements: all or not counted */
    if (i != ZP_STATE_ACTIVATIONS && shares.of[i] < 1) shares.of[i] = 0;
  if (c->fine) return zp_hosts_have_room_for_parts(s, point, &shares);
  filling f = start_on_host(s, point, &shares);
  return have_room(&f);
}

/* work_s: the least work of all units in the fastest mode of each, and what memory adds to those of the segment
 * (`longer`, over all stages). There is room if the stages hold N units in any mode. Stages whose modes are pinned, or
 * on several node types, force nothing here: the variant says what they take. */
bool zp_find_least_work(zp_search_cache *s, zp_point *point, zp_least_ask ask) {
  const zp_choice *c = &point->choice;
  if (zp_choice_has_modes(c) || zp_has_types(s)) return true; /* the variant says it */
  if (c->fine) return zp_find_least_parts(s, point, ask);
  filling f = start_on_device(s, point);
  verdict known = ask == ZP_ASK_ALL ? DEPENDS : judge_extremes(&f, ask);
  if (known != DEPENDS) return known == ENOUGH; /* and the work is that of the fastest mode */
  if (ask == ZP_ASK_ROOM) return have_room(&f);
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  zp_least_work w = {.rooms = NULL};
  bool fits = find_rooms(&f);
  w.rooms = sum_rooms(&f);
  memcpy(w.unit_s, f.unit_s, sizeof w.unit_s);
  fits &= w.rooms[(c->pipeline + 1) * point->n_modes - 1] >= f.units;
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
  w.before = small_alongside(&f, m);
  w.after = small_alongside(&f, m - point->choice.pipeline);
  point->least = ZP_NEW(s->arena, zp_least_work);
  *point->least = w;
  return fits;
}

/* The units before a known stage are on the stages before it, those after it on the stages after it: `longer` of these
 * stages alone, alongside the fastest mode of each unit. Counted where moving a unit keeps a bound's direction
 * (small_alongside); loose there by all of it. */
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

/* What is asked of a time: have the stages run all units of the segment in it? */
typedef struct time_asked {
  zp_search_cache *s;
  const zp_point *point;
  double message_s;
  int segment;
  const filling *layers;    /* whole layers; NULL: parts */
  const zp_part_room *room; /* of parts; NULL: memory is not counted */
  double *own_s;            /* [stages] */
} time_asked;

/* A stage computes for m micro-batches in what is left alongside its ramp, so a micro-batch has (seconds - ramp) / m on
 * it. The first unit of the model is on stage 0 and the last one on the stage of the last chunk, whatever the cut:
 * where they are of other segments, their time is taken off. */
static void find_own(const time_asked *x, double seconds) {
  const zp_choice *c = &x->point->choice;
  const zp_variant *v = zp_variant_of(x->s, x->point);
  int64_t units = zp_point_units(x->s, x->point), iteration;
  int first_segment, last_segment, last_stage = zp_chunk_stage(c, zp_model_chunks(c) - 1, NULL);
  zp_unit(v->lowered, 0, &first_segment, &iteration);
  zp_unit(v->lowered, units - 1, &last_segment, &iteration);
  double m = (double)zp_microbatches(x->s->in->spec, c);
  for (int stage = 0; stage < c->pipeline; stage++)
    x->own_s[stage] = (seconds - least_ramp(x->s, x->point, stage, x->message_s)) / m;
  if (first_segment != x->segment) x->own_s[0] -= v->prefix_s[1];
  if (last_segment != x->segment) x->own_s[last_stage] -= v->prefix_s[units] - v->prefix_s[units - 1];
}

/* Units of the segment that the stages run at most: in a mode that takes t a unit no more than the quotient of their
 * time and t, and no more than it has room for, in the best of its modes. */
static bool layers_run_within(const time_asked *x) {
  const filling *f = x->layers;
  double reached = 0;
  for (int stage = 0; stage < x->point->choice.pipeline && reached < f->units; stage++) {
    double most = 0;
    for (int i = 0; i < x->point->n_modes && x->own_s[stage] > 0; i++) {
      double n = whole_part(x->own_s[stage] / f->unit_s[i] * (1 + ZP_BOUND_SLACK));
      most = zp_later(most, f->room ? zp_sooner(n, f->room[stage * x->point->n_modes + i]) : n);
    }
    reached += most;
  }
  return reached >= f->units;
}

static bool run_within(const time_asked *x, double seconds) {
  find_own(x, seconds);
  return x->layers ? layers_run_within(x) : zp_parts_run_within(x->s, x->point, x->own_s, x->room);
}

/* Seconds of the micro-batches, at least: every stage takes its ramp and m times its own work, so the longest of them
 * takes at least the mean, which is that of the ramps and m W / P. Loose where stages cannot be alike. */
static double mean_of_chunks(const zp_search_cache *s, const zp_point *point, double message_s) {
  double sum = (double)zp_microbatches(s->in->spec, &point->choice) * point->work_s;
  for (int stage = 0; stage < point->choice.pipeline; stage++) sum += least_ramp(s, point, stage, message_s);
  return sum / point->choice.pipeline;
}

/* The least time within which the stages run all units (run_within holds from it on, so it is bisected), and no less
 * than the mean. Loose: what a stage waits for after its first and before its last action; that chunks are next to each
 * other in the model, so that not every stage can have its share. */
double zp_bound_any_chunks(zp_search_cache *s, const zp_point *point, bool memory, double high_s) {
  double message_s = zp_least_message(s, point), low = mean_of_chunks(s, point, message_s) * (1 - ZP_BOUND_SLACK),
         high = high_s;
  bool fine = point->choice.fine; /* of parts only what all stages have in common is known */
  if (low >= high || (fine && (zp_has_types(s) || zp_choice_has_modes(&point->choice)))) return low;
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  time_asked x = {.s = s, .point = point, .message_s = message_s};
  x.own_s = ZP_NEW_ARRAY(s->arena, double, point->choice.pipeline);
  filling f;
  if (fine) {
    x.segment = zp_parts_segment(s, point);
    if (memory) x.room = zp_find_part_rooms(s, point);
  } else {
    f = start_on_device(s, point);
    if (memory && !zp_has_types(s)) find_rooms(&f);
    x.layers = &f;
    x.segment = f.segment;
  }
  if (!isfinite(high)) high = 4 * low;
  if (!run_within(&x, high)) low = high;
  while (high - low > (x.layers ? ZP_CLOSE_STEP : ZP_COARSE_STEP) * high) { /* invariant: not below low */
    double middle = low + (high - low) / 2;
    if (run_within(&x, middle))
      high = middle;
    else
      low = middle;
  }
  zp_arena_rewind(s->arena, mark);
  return low * (1 - ZP_BOUND_SLACK);
}
