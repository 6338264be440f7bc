/* SPDX-License-Identifier: Apache-2.0 */
/* Proven lower bounds of the simulated step: no plan of what they are asked for is faster. Each proof stands where
 * the bound is computed. */
#ifndef ZPLAN_SEARCH_BOUND_H
#define ZPLAN_SEARCH_BOUND_H

#include "cache.h"

/* ---- bound.c ---- */
/* Seconds of a message between neighbouring stages, at least. */
double zp_least_message(zp_search_cache *s, const zp_point *point);
/* A proven lower bound of the simulated step time over all cuts. O(1). */
double zp_bound(zp_search_cache *s, const zp_point *point);
/* No plan of this point's degrees, micro-batch and variant is faster, whatever its schedule: its work alone. O(1). */
double zp_bound_work(const zp_search_cache *s, const zp_point *point);
/* zp_bound_work for the degrees and micro-batch of a choice that runs a variant, whose units take work_s together. */
double zp_bound_work_of(const zp_search_cache *s, const zp_choice *choice, const zp_variant *v, double work_s);
/* Bound of a point's micro-batches alone, wherever its state is. */
double zp_bound_microbatches(zp_search_cache *s, const zp_point *point);
/* Bound of a point's micro-batches with what moves alongside them: with more state off the device never less, but for
 * the work that memory forces on the stages. */
double zp_bound_moving(zp_search_cache *s, const zp_point *point);
/* Seconds in which the chunks of a micro-batch move and do not compute, at least, all of them together. With a larger
 * share of a class off the device never less. */
double zp_bound_alone(zp_search_cache *s, const zp_point *point);
/* zp_bound_moving with no more than that of zp_bound_alone. */
double zp_bound_moving_overlapped(zp_search_cache *s, const zp_point *point, double alone_s);
/* Seconds of the longest update, at least. */
double zp_bound_update(zp_search_cache *s, const zp_point *point);
/* Seconds between the micro-batches and the end of the step, at least. */
double zp_bound_step_end(zp_search_cache *s, const zp_point *point);
/* Seconds that a delayed update keeps the steps of any cut apart, at least; 0: no update is delayed. */
double zp_bound_delayed(zp_search_cache *s, const zp_point *point);
/* The part of zp_bound_step_end that homes change, and what they do not but for reductions: at most the above. O(1). */
double zp_bound_end_of_homes(zp_search_cache *s, const zp_point *point);

/* Seconds in which the gradients of the units before each are summed over the data ranks, [units + 1], whatever hides
 * it: those of a stage's units add up to no more than its sum takes. From the arena. NULL: they are not summed once a
 * step alongside the last backward. */
const double *zp_bound_sums_before(zp_arena *arena, zp_search_cache *s, const zp_point *point);

/* Seconds between the micro-batches and the end of the step, at least, when the last backward takes so long. */
double zp_bound_end_after(zp_search_cache *s, const zp_point *point, double backward);
/* What is left of a stage's own reduction at the end of its last backward, at least. On CPU ranks, and with one stage,
 * zp_bound_step_end has it. */
double zp_bound_own_reduce(zp_search_cache *s, const zp_choice *c, const zp_variant *own, int64_t first, int64_t end);
/* A little below, so that rounding never makes a bound exceed what it bounds. */
static inline double zp_bound_below(double seconds) { return seconds * (1 - ZP_BOUND_SLACK); }

/* ---- bound_stage.c ---- */
/* zp_bound_moving for one way to cut; own: what the stages run. From enough_s on it need not be the highest. */
double zp_bound_of_cut(zp_search_cache *s, const zp_point *point, const int64_t *cut, const zp_variant *const *own,
                       double enough_s);
/* With several chunks a stage, the part of it that no home changes. From enough_s on it need not be the highest. */
double zp_bound_of_chunks(const zp_search_cache *s, const zp_point *point, const int64_t *cut,
                          const zp_variant *const *own, double enough_s);
/* Seconds of all micro-batches, at least, when a stage (one chunk) runs units first .. end - 1 of `own`. Without its
 * waits the bound grows with the units; with them only for many micro-batches. */
double zp_bound_of_stage(zp_search_cache *s, const zp_point *point, const zp_variant *own, int stage, int64_t first,
                         int64_t end, bool waits);

/* ---- flights.c ---- */
/* What the chunks of the stages have in flight; flight[] is at least ZP_LEAST_FLIGHT, because a stage has one in flight
 * for all of its chunks. */
#define ZP_LEAST_FLIGHT(in) (1.0 / (in)->most_chunks)
const zp_flight_memo *zp_find_flights(zp_search_cache *s, const zp_choice *choice);
/* The least and most of all stages alone. */
const zp_flight_memo *zp_find_flight_extremes(zp_search_cache *s, const zp_choice *choice);
/* What one stage has. From the first stage to the last one none of it turns: it never falls and then rises, nor the
 * other way round. */
zp_stage_flight zp_find_stage_flight(zp_search_cache *s, const zp_choice *choice, int stage);

/* ---- stage_sum.c ---- */
/* Have stages first .. end - 1 together as much as is wanted? Requires: the number never rises and then falls from
 * stage to stage, nor the other way round; first < end. */
typedef double zp_of_stage(void *user, int stage);
bool zp_stages_reach(int first, int end, double wanted, zp_of_stage *number, void *user);

/* ---- stage_bytes.c ---- */
/* Bytes that a stage has of a unit as long as it works on it. */
typedef struct zp_unit_bytes {
  int64_t transient, elements, saved; /* the longer of forward and backward; parameters; what it saves */
} zp_unit_bytes;
zp_unit_bytes zp_bytes_of_unit(const zp_segment_program *unit, zp_schedule schedule);
/* Bytes of the communicators of every rank of the choice. */
int64_t zp_choice_communicator_bytes(zp_search_cache *s, const zp_choice *choice, int ties);
/* Bytes that a stage needs, at least, alongside what it holds for every unit: communicators and messages; and of a unit
 * that it has, transients and rings. */
typedef struct zp_alongside {
  int64_t bytes, of_element, of_saved; /* rings: for each parameter of the unit, for each byte that it saves */
} zp_alongside;
zp_alongside zp_find_alongside(zp_search_cache *s, const zp_point *point, const zp_variant *variant);
static inline double zp_bytes_alongside(const zp_alongside *a, const zp_unit_bytes *unit) {
  return (double)(a->bytes + unit->transient + a->of_element * unit->elements + a->of_saved * unit->saved);
}
/* Are all units but the first and the last one of the model, and perhaps these, of a segment? */
bool zp_is_all_between(const zp_lowered *lowered, int segment);

/* Shares of the classes of state that are in one memory, 0 to 1; of parameters those that are trained. */
typedef struct zp_shares {
  double of[ZP_STATE_COUNT], frozen;
} zp_shares;
/* On the device. */
zp_shares zp_shares_here(const zp_choice *choice);
/* Bytes of a parameter, its gradient and optimizer state on a rank, by its kind. */
typedef struct zp_state_bytes {
  double of[ZP_KINDS];
} zp_state_bytes;
zp_state_bytes zp_bytes_of_state(const zp_choice *choice, const zp_lowered *lowered, const zp_shares *shares);

/* ---- least_work.c: what memory forces on the stages ---- */
/* What is asked: is there room; the work_s of the point, too; and once it is worth more time, longest_s and what the
 * next two functions need. */
typedef enum zp_least_ask { ZP_ASK_ROOM, ZP_ASK_WORK, ZP_ASK_ALL } zp_least_ask;
/* Fills in what is asked of the point. False: the stages together have no room for the layers. */
bool zp_find_least_work(zp_search_cache *s, zp_point *point, zp_least_ask ask);
/* Seconds of the units before `first` on the stages before `stage`, of those from `end` on on the stages after it, at
 * least. */
double zp_least_before(const zp_search_cache *s, const zp_point *point, int stage, int64_t first);
double zp_least_after(const zp_search_cache *s, const zp_point *point, int stage, int64_t end);

/* Several chunks a stage: no cut, in any of the point's modes, has its micro-batches done sooner. memory: what the
 * stages have room for counts. Plans that take high_s or longer are not distinguished. */
double zp_bound_any_chunks(zp_search_cache *s, const zp_point *point, bool memory, double high_s);

/* False: saved values that have left the device have no room on the hosts, however the model is cut. */
bool zp_hosts_have_room(zp_search_cache *s, const zp_point *point);

/* ---- part_rooms.c ---- */
/* Bytes of a layer's parts first .. end - 1 in one mode: their state; what they keep of a micro-batch in flight, and of
 * one whose weight gradients wait; what a stage with them needs besides, at least. */
typedef struct zp_piece_bytes {
  double state, kept, waits, alongside;
} zp_piece_bytes;
typedef struct zp_part_bytes {
  zp_piece_bytes piece[ZP_MOST_MODES][ZP_MOST_PARTS][ZP_MOST_PARTS + 1]; /* [mode][first][end] */
  int parts, modes;                                                      /* of a layer; of the point */
  bool mixes;                                                            /* a stage may be in several modes */
  double limit;                                                          /* bytes of a stage */
} zp_part_bytes;
/* Requires: the point's cuts may lie inside layers, and its stages have one chunk. */
zp_part_bytes zp_bytes_of_parts(zp_search_cache *s, const zp_point *point, const zp_alongside *alongside);
/* The most parts that a stage has room for with so many micro-batches in flight, and so many whose weight gradients
 * wait. It falls with both. */
double zp_most_parts(const zp_part_bytes *bytes, double flight, double waiting);

/* ---- least_parts.c ---- */
/* The work_s of a point whose cuts may lie inside layers; false as above. */
bool zp_find_least_parts(zp_search_cache *s, zp_point *point, zp_least_ask ask);
/* The segment whose parts are considered, of a point whose cuts may lie inside layers. */
int zp_parts_segment(const zp_search_cache *s, const zp_point *point);
/* Shares of a stage's room in one mode, with slots of their own for all chunks or in one pool: what is held beyond its
 * parts, and what each of them takes. most: seconds, in the fastest mode of each, of all that there is room for. */
enum { ZP_PART_LAYOUTS = 2 };
typedef struct zp_part_room {
  double beyond, part[ZP_MOST_PARTS], most;
} zp_part_room;
/* [stage][mode][ZP_PART_LAYOUTS]. In the arena of the search. */
const zp_part_room *zp_find_part_rooms(zp_search_cache *s, const zp_point *point);
/* Can the stages run all parts when a micro-batch takes own_s[stage] on each at most? room: NULL: memory is not
 * counted. */
bool zp_parts_run_within(zp_search_cache *s, const zp_point *point, const double *own_s, const zp_part_room *room);
/* zp_hosts_have_room for such a point, with these shares on the host. */
bool zp_hosts_have_room_for_parts(zp_search_cache *s, const zp_point *point, const zp_shares *shares);

#endif
