/* SPDX-License-Identifier: Apache-2.0 */
/* Inside this folder: the cuts of a point as a problem of planner/cuts, and what stages cost there. */
#ifndef ZPLAN_SEARCH_CUT_PROBLEM_H
#define ZPLAN_SEARCH_CUT_PROBLEM_H

#include "cache.h"

/* ---- stage_cost.c ---- */
typedef struct zp_stage_cost {
  zp_stage_time time; /* of one micro-batch */
  double reduce_s;    /* after the last backward, ties left out */
  double update_s;    /* on the device, and the gather: grows with the units */
  double offload_s;   /* how much longer the update on the host takes */
  double apart_s;     /* zp_cost_delayed_step; one chunk a stage */
} zp_stage_cost;
typedef struct zp_stage_costs zp_stage_costs;
/* Remembers what stages of one point cost. Arena. */
zp_stage_costs *zp_stage_costs_new(zp_arena *arena, const zp_search_cache *s, const zp_point *point);
/* What a stage costs that runs these procedures for units first .. end - 1, and has no other chunk. Several chunks a
 * stage: only where everything is on the device are times of a chunk the same alongside others. */
zp_stage_cost zp_stage_cost_of(zp_stage_costs *costs, const zp_lowered *lowered, int place, int64_t first, int64_t end);
/* The first unit of the first range that has the same procedures in the same order. */
int64_t zp_stage_canonical(const zp_lowered *lowered, int64_t first, int64_t end);
/* What a stage with several chunks costs, for this cut: seconds of each chunk, and what follows, ties left out. */
zp_step_end zp_chunks_cost(zp_arena *arena, const zp_search_cache *s, const zp_choice *choice,
                           const zp_lowered *lowered, int stage, zp_stage_time *time);
/* Seconds that ties take on the first and on the last stage, at least. Scratch memory from the arena. */
double zp_least_ties(zp_arena *arena, const zp_search_cache *s, const zp_point *point);

/* ---- cut_problem.c ---- */
/* Arena. The cache and the point are borrowed; neither the point's state nor its limits may change while the problem
 * is in use. */
zp_cut_problem *zp_cut_problem_of(zp_arena *arena, zp_search_cache *s, const zp_point *point);
/* Is this row of zp_cut_provers tried? */
bool zp_prover_applies(const zp_search_input *in, const zp_cut_problem *problem, int prover, zp_cut_depth turn);
/* All provers that apply before any cut is known and look for no cuts; the bound that they reach, or one that is
 * enough, when what follows the micro-batches takes end_s at least. Memory of the arena is not given back. */
double zp_bound_before_cuts(zp_arena *arena, zp_search_cache *s, const zp_point *point, double end_s, double enough_s);

#endif
