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
/* Bound of a point's micro-batches alone, wherever its state is. */
double zp_bound_microbatches(zp_search_cache *s, const zp_point *point);
/* Bound of a point's micro-batches with what moves beside them: with more state off the device never less, but for the
 * work that memory forces on the stages. */
double zp_bound_moving(zp_search_cache *s, const zp_point *point);
/* zp_bound_moving for one way to cut; own: what the stages run. */
double zp_bound_of_cut(zp_search_cache *s, const zp_point *point, const int64_t *cut, const zp_variant *const *own);
/* With several chunks a stage, the part of it that no home changes. */
double zp_bound_of_chunks(const zp_search_cache *s, const zp_point *point, const int64_t *cut,
                          const zp_variant *const *own);
/* Seconds of all micro-batches, at least, when a stage (one chunk) runs units first .. end - 1 of `own`. Without its
 * waits the bound grows with the units; with them only for many micro-batches. */
double zp_bound_of_stage(zp_search_cache *s, const zp_point *point, const zp_variant *own, int stage, int64_t first,
                         int64_t end, bool waits);
/* Seconds of the longest update, at least. */
double zp_bound_update(zp_search_cache *s, const zp_point *point);
/* Seconds between the micro-batches and the end of the step, at least. */
double zp_bound_step_end(zp_search_cache *s, const zp_point *point);
/* The part of zp_bound_step_end that homes change, and what they do not but for reductions: at most the above. O(1). */
double zp_bound_end_of_homes(zp_search_cache *s, const zp_point *point);

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
 * stages have room for counts. Plans that take high_s or longer are not told apart. */
double zp_bound_any_chunks(zp_search_cache *s, const zp_point *point, bool memory, double high_s);

/* What the chunks of the stages have in flight; flight[] is at least ZP_LEAST_FLIGHT, because a stage has one in flight
 * for all of its chunks. */
#define ZP_LEAST_FLIGHT (1.0 / ZP_MOST_CHUNKS)
const zp_flight_memo *zp_find_flights(zp_search_cache *s, const zp_choice *choice);

/* ---- least_parts.c ---- */
/* Bytes of a parameter, its gradient and optimizer state on a rank: where all data ranks hold it, and where it is
 * spread.
 */
typedef struct zp_state_bytes {
  double whole, spread;
} zp_state_bytes;
/* The work_s of a point whose cuts may lie inside layers; false as above. kept: share of what micro-batches save that
 * stays on the device. */
bool zp_find_least_parts(zp_search_cache *s, zp_point *point, zp_state_bytes each, double kept, zp_least_ask ask);

/* ---- degrees.c ---- */
/* No plan of this point's degrees, micro-batch and variant is faster, whatever its schedule: its work alone. O(1). */
double zp_bound_work(const zp_search_cache *s, const zp_point *point);

#endif
