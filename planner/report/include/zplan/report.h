/* Reports: a plan for people, as text, HTML and Chrome trace. Texts come from the arena. Plans are feasible but for
 * zp_report_infeasible, whose plan is not. */
#ifndef ZPLAN_REPORT_H
#define ZPLAN_REPORT_H

#include <zplan/plan.h>

/* The first screen: degrees, time, throughput, memory, tokens and days, why, next best, rejected. */
const char *zp_report_summary(zp_arena *arena, const zp_plan *plan);
/* Per-stage memory table: weights, gradients, optimizer, saved activations, buffers, context. Equal stages in one row.
 */
const char *zp_report_memory(zp_arena *arena, const zp_plan *plan);
/* When nothing fits: what, on which stage, by how much, the nearest change that fits. */
const char *zp_report_infeasible(zp_arena *arena, const zp_plan *plan);
/* "measured  median step 112 ms of 120 steps (plan 174 ms, 0.64 of it) ...", lines for below the summary; NULL when the
 * log holds no step. */
const char *zp_report_measured(zp_arena *arena, const zp_plan *plan, const char *log);
/* One self-contained HTML file; log: lines of a run's JSONL or NULL. */
const char *zp_report_html(zp_arena *arena, const zp_plan *plan, const char *log_text);
/* Chrome trace JSON of the simulated step. */
const char *zp_report_trace(zp_arena *arena, const zp_plan *plan);

#endif
