/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts of a point into stages: limits and a bound in, a cut out. */
#ifndef ZPLAN_SEARCH_CUT_H
#define ZPLAN_SEARCH_CUT_H

#include <zplan/cut_row.h>
#include "cache.h"

/* ---- cut.c: one chunk a stage; cut: pipeline + 1 numbers ---- */
/* A cut within these limits of memory; false: there is none. */
bool zp_cut_fits(zp_search_cache *s, const zp_point *point, const zp_limits *limits, int64_t *cut);
/* A cut that fits into memory with stages of at most stage_s, filled from that side; false: there is none. */
bool zp_cut_balanced_within(zp_search_cache *s, const zp_point *point, double stage_s, zp_fill_side side, int64_t *cut);
/* Shortest possible longest stage of cuts that fit into memory, and such a cut. Requires: one fits. */
double zp_cut_bottleneck(zp_search_cache *s, const zp_point *point, int64_t *cut);
/* No cut that fits has all stages' bounds below the result, or it is low_s: cuts below that are not distinguished. cut:
 * the one that comes closest. HUGE_VAL: none has all of them within high_s. */
double zp_cut_least_bound(zp_search_cache *s, const zp_point *point, double low_s, double high_s, int64_t *cut);
/* Smallest possible largest stage, in bytes, and the cuts that reach it. Host and disks are not considered. */
int64_t zp_cut_least_memory(zp_search_cache *s, const zp_point *point, int64_t *cut);
/* Calls on_cut for every way to cut that fits into memory; false, without a call, when there are too many. */
typedef void zp_on_cut(void *user, int64_t *cut);
bool zp_cut_all(zp_search_cache *s, const zp_point *point, zp_on_cut *on_cut, void *user);

/* ---- chunk_cut.c: several chunks a stage ---- */
/* Is there a way to cut into `pipeline` stages of at most stage_s in the point's fastest mode, whatever their
 * memory? */
bool zp_cut_is_possible(zp_search_cache *s, const zp_point *point, double stage_s);
/* A cut among those into model chunks with the shortest longest chunk: by the times of the point's mode `by`, the one
 * with the longest first chunks, or with the longest last chunks. cut: chunks + 1 numbers. */
bool zp_state_cut(zp_search_cache *s, const zp_point *point, int by, bool from_back, int64_t *cut);
/* The stated cuts of a point by all of its modes, whatever their memory, each once; from the arena. */
typedef struct zp_stated_cuts {
  int n;
  int64_t *cut[2 * ZP_MOST_MODES]; /* [chunks + 1] */
} zp_stated_cuts;
zp_stated_cuts zp_state_cuts(zp_arena *arena, zp_search_cache *s, const zp_point *point);
/* Does a cut into any number of chunks a stage fit into memory? */
bool zp_chunks_fit(zp_search_cache *s, const zp_point *point, const zp_limits *limits, const int64_t *cut);
/* Any cut that fits into memory, found or ruled out in a limited number of steps. cut: chunks + 1 numbers. */
typedef enum zp_any_cut { ZP_ANY_CUT, ZP_NO_CUT, ZP_CUT_UNKNOWN } zp_any_cut;
zp_any_cut zp_find_chunk_cut(zp_search_cache *s, const zp_point *point, int64_t *cut);

#endif
