/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: does a point fit, and what fits on its stages. */
#ifndef ZPLAN_SEARCH_FIT_H
#define ZPLAN_SEARCH_FIT_H

#include "cache.h"

/* ---- fit.c ---- */
/* Least bytes that the fullest stage of a point needs, however it is cut. O(1). */
int64_t zp_memory_floor(const zp_search_cache *s, const zp_point *point);
/* The fewest eighths of a class off the device with which that may fit; more than there are: none. */
int zp_least_eighths(zp_search_cache *s, const zp_point *point, zp_state state);
/* Least bytes on the host and on disks that a point needs, however it is cut. */
zp_limits zp_offloaded_floor(const zp_search_cache *s, const zp_point *point);
/* Is there a cut that fits? False: *why says whether the device or the host was short. What fits is remembered from
 * then on (fit_table.c). */
bool zp_point_fits(zp_search_cache *s, zp_point *point, zp_rejection *why);
/* Does the point fit the devices alone? Nothing is remembered. */
bool zp_fits_device(zp_search_cache *s, const zp_point *point);

/* ---- fit_table.c ---- */
/* From now on, until another point comes, what fits on the stages of this one within these limits is remembered. Homes
 * must not change. */
void zp_remember_fits(zp_search_cache *s, zp_point *point, const zp_limits *limits);
/* The first of the point's modes first .. end - 1 in which the stage with these parts stays within the limits; -1: none
 * does. */
int zp_first_mode_that_fits(zp_search_cache *s, const zp_point *point, int first, int end, int stage,
                            const zp_units *part, const zp_limits *limits);

/* Does a stage with these parts stay within the limits, running that? Nothing is remembered. */
bool zp_lowered_fits(zp_search_cache *s, const zp_point *point, const zp_lowered *lowered, int stage,
                     const zp_units *part, const zp_limits *limits);
/* By how many bytes it is over the device's; not above zero: it fits, as far as the device is concerned. known: of
 * inner stages that run that; NULL: it is laid out. */
int64_t zp_lowered_excess(zp_search_cache *s, const zp_point *point, const zp_lowered *lowered, int stage,
                          const zp_units *part, const zp_limits *limits, const zp_inner_stage *known);
/* A number that ranges of units share which need the same on every stage, if they are equally long; -1: nothing is
 * remembered of the range within these limits. One chunk a stage. */
int zp_known_order(const zp_search_cache *s, const zp_point *point, const zp_units *part, const zp_limits *limits);
/* Is it the number of ranges inside one segment? */
bool zp_is_inside(int order);

/* ---- fit_mix.c ---- */
/* What a stage runs whose first mode that fits is `mode`, not the fastest: that mode, or of all mixes of two modes that
 * fit the one with the least work. Requires: stages may be mixed (zp_may_mix). */
const zp_variant *zp_fewest_recomputed(zp_search_cache *s, const zp_point *point, int mode, int stage,
                                       const zp_units *part, const zp_limits *limits);

#endif
