/* SPDX-License-Identifier: Apache-2.0 */
/* CPU ranks share the cores of their nodes, and those that are asked for are all started. Fewer of them may be faster:
 * a prime number of ranks has few ways to divide a model, and more ranks than cores only take turns. */
#include <assert.h>
#include "answers_internal.h"

/* Estimates are not so exact that less were worth a word. */
static const double WORTH_SAYING = 1.01;

bool zp_find_fewer_ranks(zp_arena *arena, const zp_plan *plan, zp_candidate *best) {
  assert(plan->feasible);
  const zp_constraints *c = &plan->spec->plans.data[plan->spec->plan];
  if (plan->devices == 1 || c->idle.set || !zp_uses_all_devices(c, &plan->spec->cluster)) return false;
  zp_candidate fewer;
  if (zp_try(arena, zp_spec_with_idle(arena, zp_plan_asked(plan)), plan->devices, &fewer) != ZP_TRIED_FITS)
    return false;
  if (fewer.estimate.step_s * WORTH_SAYING > plan->best.estimate.step_s) return false;
  *best = fewer;
  return true;
}
