/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside this folder. */
#ifndef ZPLAN_ANSWERS_INTERNAL_H
#define ZPLAN_ANSWERS_INTERNAL_H

#include <zplan/answers.h>

/* ---- what_if.c ---- */
/* unknown: the search ended at its budget of memory or work before it had a plan. */
typedef enum zp_tried { ZP_TRIED_NO_FIT, ZP_TRIED_FITS, ZP_TRIED_UNKNOWN } zp_tried;
/* Searches; *best: decisions and price of the best plan, where something fits. The search's memory is given back. */
zp_tried zp_try(zp_arena *arena, const zp_spec *spec, int devices, zp_candidate *best);
/* What is left of the work that several searches share, at least 0; NULL: each may take what a query may. */
typedef int64_t zp_shared_work;
/* zp_try with that: the best plan that it finds; unknown when there is none. */
zp_tried zp_try_within(zp_arena *arena, const zp_spec *spec, int devices, zp_candidate *best, zp_shared_work *left);
/* Does any plan fit? The first one ends the search: how fast it is nobody asks. False where it is not known. */
bool zp_fits(const zp_spec *spec, int devices, zp_shared_work *left);
/* No device may be left out: by a constraint, or because CPU ranks are all started. */
bool zp_uses_all(const zp_plan *plan);
/* The input with a plan that may leave any number of devices out. */
zp_spec *zp_spec_with_idle(zp_arena *arena, const zp_spec *spec);
/* A copy that outlives the search: its own cuts, no times by stage. */
zp_candidate zp_keep_candidate(zp_arena *arena, const zp_candidate *from);

/* ---- would_help.c ---- */
/* In fp32 on a device that has tensor cores of several times its rate? */
bool zp_computes_slowly(const zp_plan *plan);

/* ---- poor_use.c ---- */
/* Data ranks that there is room for, where no number of them above the plan's divides the batch; 0: one does. */
int zp_undivided_data(const zp_plan *plan);

/* ---- limits.c ---- */
enum { ZP_LIMITS = 24 };
const char *zp_limit_key(int i); /* "tensor" */
zp_relaxation_kind zp_limit_kind(int i);
/* Was it written by the user, and is it dropped now? */
bool zp_drop_limit(zp_constraints *c, int i);

/* Drops the pinned modes and layers of stages, and the number of stages that they pin. The key that did; NULL: none. */
const char *zp_drop_modes(zp_constraints *c);
bool zp_has_limits(zp_arena *arena, const zp_plan *plan); /* that were written */
/* Lets the copy divide samples over context ranks, and nothing else; false: there is no degree worth it. */
bool zp_allow_context(zp_arena *arena, zp_spec *copy, int devices);

/* ---- together.c ---- */
/* Why no combination of the decisions that the limits allow goes together; none: some does. */
zp_strings zp_explain_conflicts(zp_arena *arena, const zp_plan *plan);

/* ---- sizes.c ---- */
/* Devices that counts go by: those of a node; CPU ranks share their nodes, so any count will do. */
int zp_count_unit(const zp_spec *spec);
/* Where to stop looking for more devices than `at_least`: far below zp_most_devices, because every count is a
 * search. */
int zp_most_looked_at(const zp_spec *spec, int at_least);
/* The fewest devices that fit among counts in (above, most] that are divisors of a node or whole nodes, without the
 * next sizes. left: see zp_shared_work; with it no misses are looked for. */
zp_fewest zp_fewest_above(zp_arena *arena, const zp_spec *spec, int above, int most, zp_shared_work *left);

#endif
