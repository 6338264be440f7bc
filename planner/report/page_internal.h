/* SPDX-License-Identifier: Apache-2.0 */
/* The data of the report page: one JSON object, made here part by part and drawn by the scripts in page/. Parts that a
 * plan does not have are absent. Times are estimates but for those of `run` and `profile`, which are measured. */
#ifndef ZPLAN_PAGE_INTERNAL_H
#define ZPLAN_PAGE_INTERNAL_H

#include "report_internal.h"

/* ---- page_machine.c ---- */
/* Nodes with their devices and links, and the groups of ranks that communicate. */
void zp_page_set_machine(zp_json *page, const zp_plan *plan);

/* ---- page_timeline.c ---- */
/* What the page simulates the step from: durations, messages, ends. Orders are in the plan's stages. */
void zp_page_set_timeline(zp_arena *arena, zp_json *page, const zp_plan *plan);

/* ---- page_steps.c ---- */
/* Every step of every segment: what it computes, moves and takes. */
void zp_page_set_steps(zp_json *page, const zp_plan *plan);
/* What moves in a step, a row a strategy; every record of a stage of every group of equal ones. */
void zp_page_set_moves(zp_arena *arena, zp_json *page, const zp_plan *plan);

/* ---- page_run.c ---- */
/* Steps, validations and memory of a run's log. */
void zp_page_set_run(zp_arena *arena, zp_json *page, const zp_plan *plan, const char *log);
void zp_page_set_profile(zp_json *page, const zp_profile *profile);

#endif
