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

#endif
