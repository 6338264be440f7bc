/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of the fastest plan that was found: faster cuts, a plan that is less exposed. */
#ifndef ZPLAN_SEARCH_ROBUST_H
#define ZPLAN_SEARCH_ROBUST_H

#include <zplan/plan.h>

/* zp_search with the nodes as the specification has them, and the fastest plan. */
zp_plan *zp_search_placed(zp_arena *arena, const zp_spec *spec, int devices, const zp_search_options *options);
/* Makes the choice the plan's, derived in its arena. */
void zp_plan_adopt(zp_plan *plan, const zp_choice *choice);

/* What polishing pins of a choice. */
enum { ZP_DECISIONS = 16 };
void zp_decisions_of(const zp_choice *choice, double decisions[ZP_DECISIONS]);
/* Where a gap is left, looks once more for faster cuts of what the plan decides. */
void zp_polish(zp_plan *plan, const zp_search_options *options);
/* A plan that is less exposed takes the place of the fastest, which becomes plan->fastest, where one is fast enough. */
void zp_prefer_robust(zp_plan *plan, const zp_search_options *options);

#endif
