/* SPDX-License-Identifier: Apache-2.0 */
/* Why not: an asked-for plan alongside the best one. Feasible: the difference term by term. Infeasible: whose memory is
 * short by how much, and what would make it fit. */
#include <assert.h>
#include <math.h>
#include "answers_internal.h"

/* Share of a step: an overlap that is less is rounding, or too little to print. */
static const double NOISE = 1e-6;

static void add_terms(zp_arena *arena, zp_why_not *out) {
  const zp_estimate *best = &out->best->best.estimate, *asked = &out->asked->best.estimate;
  const zp_term terms[] = {
#define TERM(field, name) {name, best->field, asked->field},
      ZP_STEP_TERMS(TERM)
#undef TERM
  };
  zp_term rest = {"overlap", best->step_s, asked->step_s}, step = {"step", best->step_s, asked->step_s};
  for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
    rest.best_s -= terms[i].best_s;
    rest.asked_s -= terms[i].asked_s;
    zp_push(arena, &out->terms, terms[i]);
  }
  /* The bubble is what the others leave; where they explain more than the step, the rest is overlap. */
  if (fabs(rest.best_s) > NOISE * step.best_s || fabs(rest.asked_s) > NOISE * step.asked_s)
    zp_push(arena, &out->terms, rest);
  zp_push(arena, &out->terms, step);
}

/* With data ranks outermost those of the first replica. */
static void add_ranks(zp_why_not *out) {
  const zp_miss *miss = &out->asked->miss;
  int block = (int)zp_stage_block(&miss->choice);
  out->first_rank = miss->stage * block;
  out->last_rank = out->first_rank + block - 1;
  out->short_bytes = miss->need_bytes - miss->have_bytes;
}

zp_why_not zp_compare(zp_arena *arena, const zp_plan *best, const zp_plan *asked) {
  assert(best->feasible || !asked->feasible);
  zp_why_not out = {.best = best, .asked = asked};
  if (asked->feasible) {
    add_terms(arena, &out);
    return out;
  }
  if (asked->miss.have_bytes > 0)
    add_ranks(&out);
  else
    out.refusals = zp_explain_refusals(arena, asked);
  out.nearest = zp_find_relaxations(arena, asked);
  return out;
}
