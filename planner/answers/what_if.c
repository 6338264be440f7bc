/* SPDX-License-Identifier: Apache-2.0 */
/* Changed copies of an input, and whether two plans decide the same. */
#include <assert.h>
#include <math.h>
#include "answers_internal.h"

zp_spec *zp_copy_spec(zp_arena *arena, const zp_spec *spec) {
  assert(spec->plan >= 0 && spec->plan < spec->plans.len);
  zp_spec *copy = ZP_NEW(arena, zp_spec);
  *copy = *spec;
  copy->plans.data = ZP_NEW(arena, zp_constraints);
  copy->plans.data[0] = spec->plans.data[spec->plan];
  copy->plans.len = copy->plans.cap = 1;
  copy->plan = 0;
  return copy;
}

zp_constraints *zp_copied_constraints(zp_spec *copy) {
  assert(copy->plan == 0 && copy->plans.len == 1);
  return &copy->plans.data[copy->plan];
}

zp_spec *zp_spec_with_devices(zp_arena *arena, const zp_spec *spec, int devices) {
  assert(devices >= 1);
  zp_spec *copy = zp_copy_spec(arena, spec);
  zp_cluster *c = &copy->cluster;
  c->ranks = devices;
  if (c->groups.len) return copy; /* the first so many of what is there */
  int nodes = c->nodes > 0 ? c->nodes : 1, per_node = c->node.devices > 0 ? c->node.devices : 1;
  if (c->node.device.is_cpu) {
    if (nodes > devices) nodes = devices;
    int ranks = (devices + nodes - 1) / nodes;
    if (ranks > c->node.devices) c->node.devices = ranks;
  } else {
    nodes = (devices + per_node - 1) / per_node;
  }
  c->nodes = nodes;
  return copy;
}

zp_spec *zp_spec_with_idle(zp_arena *arena, const zp_spec *spec) {
  zp_spec *copy = zp_copy_spec(arena, spec);
  zp_copied_constraints(copy)->idle = (zp_limit){.set = true, .high = HUGE_VAL, .span = ZP_NO_SPAN};
  return copy;
}

bool zp_uses_all(const zp_plan *plan) {
  return zp_uses_all_devices(&plan->spec->plans.data[plan->spec->plan], &plan->spec->cluster);
}

static int chunks_of(const zp_choice *c) { return c->chunks > 1 ? c->chunks : 1; } /* 0 means 1 */

bool zp_same_decisions(const zp_choice *a, const zp_choice *b) {
  for (int s = 0; s < ZP_STATE_COUNT; s++)
    if (a->home[s].tier != b->home[s].tier || a->home[s].eighths != b->home[s].eighths) return false;
  for (int s = 0; s < a->pipeline && a->pipeline == b->pipeline; s++)
    if (zp_choice_mode(a, s) != zp_choice_mode(b, s) || zp_choice_layers(a, s) != zp_choice_layers(b, s)) return false;
  return a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data &&
         zp_context_ranks(a) == zp_context_ranks(b) && a->zero == b->zero && a->schedule == b->schedule &&
         chunks_of(a) == chunks_of(b) && a->context_by == b->context_by && a->sequence == b->sequence &&
         a->compress == b->compress && a->fine == b->fine && a->microbatch == b->microbatch &&
         zp_loss_chunks(a) == zp_loss_chunks(b) && a->order == b->order;
}

zp_candidate zp_keep_candidate(zp_arena *arena, const zp_candidate *from) {
  zp_candidate kept = *from;
  kept.choice = zp_choice_copy(arena, &from->choice);
  kept.estimate.stage_forward_s = kept.estimate.stage_backward_s = NULL;
  return kept;
}

/* Searches on an arena of its own, and takes its work off what is left, half of it at most: others
 * want their share. */
static const zp_plan *search_within(zp_arena *scratch, const zp_spec *spec, int devices, double gap,
                                    zp_shared_work *left) {
  assert(!left || *left > 0);
  const zp_search_options options = {.no_miss = true, .gap = gap, .work = left ? (*left + 1) / 2 : 0};
  const zp_plan *plan = zp_search(scratch, spec, devices, &options);
  if (left) *left -= plan->certificate.work < *left ? plan->certificate.work : *left;
  return plan;
}

zp_tried zp_try_within(zp_arena *arena, const zp_spec *spec, int devices, zp_candidate *best, zp_shared_work *left) {
  if (left && *left <= 0) return ZP_TRIED_UNKNOWN;
  zp_arena *scratch = zp_arena_new("what if");
  const zp_plan *plan = search_within(scratch, spec, devices, 0, left);
  zp_tried tried = plan->feasible ? ZP_TRIED_FITS : plan->stopped ? ZP_TRIED_UNKNOWN : ZP_TRIED_NO_FIT;
  if (plan->feasible) *best = zp_keep_candidate(arena, &plan->best);
  zp_arena_free(scratch);
  return tried;
}

zp_tried zp_try(zp_arena *arena, const zp_spec *spec, int devices, zp_candidate *best) {
  return zp_try_within(arena, spec, devices, best, NULL);
}

static const double ANY_PLAN_GAP =
    0.5; /* no plan is looked for that takes more than half of the time of one that fits */

bool zp_fits(const zp_spec *spec, int devices, zp_shared_work *left) {
  if (left && *left <= 0) return false;
  zp_arena *scratch = zp_arena_new("fits");
  bool fits = search_within(scratch, spec, devices, ANY_PLAN_GAP, left)->feasible;
  zp_arena_free(scratch);
  return fits;
}
