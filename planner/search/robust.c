/* SPDX-License-Identifier: Apache-2.0 */
/* Prefers, of plans that the model cannot tell apart, the one that is less exposed. A state that thousands of ranks
 * share goes with any one of them, and every exchange of it waits for the slowest; a plan that needs half as many, or
 * none, is taken for it where it is not slower by more than the plan block allows (`robust`). Two small spaces are
 * searched for what beats the fastest plan by less than that: without ZeRO, and with half the data ranks. The
 * certificate's bound stays that of all plans. */
#include <assert.h>
#include <math.h>
#include <zplan/search_numbers.h>
#include "robust.h"

int zp_choice_exposure(const zp_choice *c) { return zp_shards_state(c) ? zp_shard_ranks(c) : 1; }

/* The plan block, with less of one limit. NULL: it leaves nothing. */
static const zp_spec *limited(zp_arena *arena, const zp_spec *spec, bool no_zero, int most_data) {
  zp_spec *copy = ZP_NEW(arena, zp_spec);
  zp_constraints *plan = ZP_NEW(arena, zp_constraints);
  *plan = spec->plans.data[spec->plan];
  if (no_zero && !zp_limit_allows(&plan->zero, 0)) return NULL;
  if (no_zero) plan->zero = (zp_limit){.set = true, .span = plan->zero.span};
  if (most_data && plan->data.set && plan->data.low > most_data) return NULL;
  if (most_data && !plan->data.set) plan->data = (zp_limit){.set = true, .low = 1, .span = ZP_NO_SPAN};
  if (most_data && (plan->data.high == 0 || plan->data.high > most_data)) plan->data.high = most_data;
  *copy = *spec;
  copy->plans.data = plan;
  copy->plans.len = copy->plans.cap = 1;
  copy->plan = 0;
  return copy;
}

/* The best plan of the smaller space, if it is within `most_s`; in *choice, on the arena. */
static bool find_within(zp_arena *arena, const zp_plan *fastest, const zp_spec *spec, double most_s,
                        const zp_search_options *options, zp_choice *choice, double *step_s) {
  zp_search_options asked = options ? *options : (zp_search_options){0};
  zp_arena *scratch = zp_arena_new("robust");
  asked.top = 0;
  asked.no_miss = true;
  asked.rival_s = most_s;
  asked.without = ~0u; /* a plan is wanted, and no proof */
  asked.work = fastest->certificate.work / ZP_ROBUST_PART;
  if (asked.work < ZP_LEAST_ROBUST_WORK) asked.work = ZP_LEAST_ROBUST_WORK;
  const zp_plan *plan = zp_search_placed(scratch, spec, fastest->devices, &asked);
  if (plan->feasible) {
    *choice = zp_choice_copy(arena, &plan->best.choice);
    *step_s = plan->best.estimate.step_s;
  }
  bool found = plan->feasible;
  zp_arena_free(scratch);
  return found;
}

static void leave_out_degrees(zp_plan *plan, const zp_choice *c) {
  int kept = 0;
  for (int i = 0; i < plan->alternatives.len; i++) {
    const zp_choice *a = &plan->alternatives.data[i].choice;
    if (a->tensor == c->tensor && a->pipeline == c->pipeline && a->data == c->data) continue;
    plan->alternatives.data[kept++] = plan->alternatives.data[i];
  }
  plan->alternatives.len = kept;
}

void zp_prefer_robust(zp_plan *plan, const zp_search_options *options) {
  assert(plan->feasible);
  const zp_spec *spec = plan->spec;
  const zp_constraints *constraints = &spec->plans.data[spec->plan];
  int exposed = zp_choice_exposure(&plan->best.choice);
  bool any_does = constraints->search_gap > 0 || (options && (options->gap > 0 || options->rival_s > 0));
  if (constraints->robust <= 0 || any_does || exposed < ZP_EXPOSED_RANKS) return;
  zp_arena *scratch = zp_arena_new("robust");
  const zp_spec *spaces[] = {limited(scratch, spec, true, 0), limited(scratch, spec, false, exposed / 2)};
  double most_s = plan->certificate.best_s * (1 + constraints->robust), best_s = most_s;
  zp_choice robust, other;
  bool found = false;
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces && !found; i++)
    if (spaces[i] && find_within(scratch, plan, spaces[i], most_s, options, &other, &best_s))
      found = true, robust = other;
  if (found) {
    plan->fastest = ZP_NEW(plan->arena, zp_candidate);
    *plan->fastest = plan->best;
    plan->fastest->choice = zp_choice_copy(plan->arena, &plan->best.choice);
    plan->fastest->estimate.stage_forward_s = plan->fastest->estimate.stage_backward_s = NULL;
    zp_plan_adopt(plan, &robust);
    plan->certificate.best_s = plan->best.estimate.step_s;
    leave_out_degrees(plan, &robust);
  }
  zp_arena_free(scratch);
}
