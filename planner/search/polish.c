/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a search goes to all points that are open. Where that leaves a gap, the decisions of the best plan are
 * searched once more, alone: its cuts and homes get then what many points shared, unless they had all of it. So a plan
 * block that pins what the plan says has no faster plan than the search that may decide it all. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/search_numbers.h>
#include "robust.h"

/* All that a plan file says but for cuts, homes and what is recomputed. */
void zp_decisions_of(const zp_choice *c, double decisions[ZP_DECISIONS]) {
  const double all[ZP_DECISIONS] = {c->tensor,
                                    c->pipeline,
                                    zp_replicas(c),
                                    zp_expert_ranks(c),
                                    c->zero,
                                    (double)c->microbatch,
                                    c->schedule,
                                    zp_chunks(c),
                                    zp_loss_chunks(c),
                                    c->fine,
                                    c->order,
                                    c->sequence,
                                    zp_shards_state(c) ? zp_shard_ranks(c) : 1,
                                    zp_context_ranks(c),
                                    c->context_by,
                                    c->hpz > 0 ? c->hpz : 1};
  memcpy(decisions, all, sizeof all);
}

/* False: it is all pinned already. */
static bool pin_choice(zp_constraints *plan, const zp_choice *c) {
  zp_limit *const limits[ZP_DECISIONS] = {&plan->tensor,      &plan->pipeline,   &plan->data,       &plan->expert,
                                          &plan->zero,        &plan->microbatch, &plan->schedule,   &plan->chunks,
                                          &plan->loss_chunks, &plan->cut,        &plan->rank_order, &plan->sequence,
                                          &plan->shard,       &plan->context,    &plan->context_by, &plan->hpz};
  double decisions[ZP_DECISIONS];
  bool any = false;
  zp_decisions_of(c, decisions);
  for (int i = 0; i < ZP_DECISIONS; i++) {
    zp_limit *limit = limits[i];
    any |= !limit->set || limit->low != limit->high;
    *limit = (zp_limit){.set = true, .low = decisions[i], .high = decisions[i], .span = limit->span};
  }
  return any;
}

static bool is_asked_for(const zp_plan *plan, const zp_search_options *options) {
  const zp_constraints *c = &plan->spec->plans.data[plan->spec->plan];
  if (c->search_gap > 0 || (options && (options->gap > 0 || options->work > 0))) return false;
  if (plan->proven_alone) return false;
  return zp_certificate_gap(&plan->certificate) > 0;
}

void zp_polish(zp_plan *plan, const zp_search_options *options) {
  assert(plan->feasible);
  if (!is_asked_for(plan, options)) return;
  zp_arena *scratch = zp_arena_new("polish");
  zp_spec pinned = *plan->spec;
  zp_constraints constraints = plan->spec->plans.data[plan->spec->plan];
  pinned.plans.data = &constraints;
  pinned.plans.len = pinned.plans.cap = 1;
  pinned.plan = 0;
  zp_certificate *c = &plan->certificate;
  if (pin_choice(&constraints, &plan->best.choice)) {
    zp_search_options asked = options ? *options : (zp_search_options){0};
    asked.top = 0;
    asked.no_miss = true;
    asked.work = c->work / ZP_POLISH_PART;
    if (asked.work < ZP_LEAST_POLISH_WORK) asked.work = ZP_LEAST_POLISH_WORK;
    const zp_plan *again = zp_search_placed(scratch, &pinned, plan->devices, &asked);
    c->work += again->certificate.work;
    if (again->feasible && again->certificate.best_s < c->best_s * (1 - ZP_GAP_TOLERANCE)) {
      zp_plan_adopt(plan, &again->best.choice);
      c->best_s = plan->best.estimate.step_s;
      c->bound_s = fmin(c->bound_s, c->best_s);
      c->searched_s = fmin(c->searched_s, c->best_s);
    }
  }
  zp_arena_free(scratch);
}
