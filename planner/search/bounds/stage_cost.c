/* SPDX-License-Identifier: Apache-2.0 */
/* What one stage of known units costs: the one place where the branch and bound learns it. Exactly what the simulation
 * uses, but for ties, which depend on other stages, and for what another program does otherwise around its kernels.
 * Ranges inside one repeat differ in their length alone, so equal ranges are priced once. */
#include <zplan/cost.h>
#include "cut_problem.h"

typedef struct slot {
  const zp_lowered *lowered; /* what the stage runs; NULL: empty */
  int64_t first, end;
  zp_stage_cost cost;
} slot;

struct zp_stage_costs {
  zp_arena *arena;
  const zp_search_cache *s;
  zp_program program;               /* of which one stage at a time is laid out */
  const zp_lowered **stage_lowered; /* of the program */
  slot *slots;
  int64_t n_slots, used; /* a power of two */
};

zp_stage_costs *zp_stage_costs_new(zp_arena *arena, const zp_search_cache *s, const zp_point *point) {
  zp_stage_costs *costs = ZP_NEW(arena, zp_stage_costs);
  int stages = point->choice.pipeline, places = zp_model_chunks(&point->choice);
  const zp_lowered **lowered = ZP_NEW_ARRAY(arena, const zp_lowered *, stages);
  for (int i = 0; i < stages; i++) lowered[i] = zp_variant_of(s, point)->lowered;
  costs->stage_lowered = lowered;
  costs->arena = arena;
  costs->s = s;
  costs->program = (zp_program){
      .arena = arena, .spec = s->in->spec, .choice = point->choice, .lowered = lowered[0], .stage_lowered = lowered};
  costs->program.choice.cut = ZP_NEW_ARRAY(arena, int64_t, places + 1);
  costs->program.stages = ZP_NEW_ARRAY(arena, zp_stage, stages);
  costs->n_slots = 64;
  costs->slots = ZP_NEW_ARRAY(arena, slot, costs->n_slots);
  return costs;
}

int64_t zp_stage_canonical(const zp_lowered *lowered, int64_t first, int64_t end) {
  int64_t start = 0;
  for (int i = 0; i < lowered->pieces->n_whole; i++) {
    int64_t parts = lowered->pieces->parts[i], n = parts * lowered->segments[i].segment->count;
    if (first >= start && end <= start + n) return start + (first - start) % parts;
    start += n;
  }
  return first;
}

static slot *find(const zp_stage_costs *costs, const zp_lowered *lowered, int64_t first, int64_t end) {
  uint64_t hash = ((uint64_t)first * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)end * UINT64_C(0xc2b2ae3d27d4eb4f));
  int64_t i = (int64_t)(hash >> 32) & (costs->n_slots - 1);
  for (;; i = (i + 1) & (costs->n_slots - 1)) {
    slot *at = &costs->slots[i];
    if (!at->lowered || (at->lowered == lowered && at->first == first && at->end == end)) return at;
  }
}

static void grow(zp_stage_costs *costs) {
  slot *old = costs->slots;
  int64_t n = costs->n_slots;
  costs->n_slots = 2 * n;
  costs->slots = ZP_NEW_ARRAY(costs->arena, slot, costs->n_slots);
  for (int64_t i = 0; i < n; i++)
    if (old[i].lowered) *find(costs, old[i].lowered, old[i].first, old[i].end) = old[i];
}

/* The stage has these units on the place, and no others. */
static zp_stage_cost price(zp_stage_costs *costs, const zp_lowered *lowered, int place, int64_t first, int64_t end) {
  zp_program *p = &costs->program;
  int chunk, stage = zp_chunk_stage(&p->choice, place, &chunk);
  costs->stage_lowered[stage] = lowered;
  const zp_machine *machine = &costs->s->machine;
  for (int k = 0; k <= zp_model_chunks(&p->choice); k++) p->choice.cut[k] = k <= place ? first : end;
  zp_arena_mark mark = zp_arena_get_mark(costs->arena);
  zp_layout_stage(costs->arena, lowered, &p->choice, stage, &p->stages[stage]);
  zp_stage_time time = zp_cost_chunk(lowered, machine, &p->choice, &p->stages[stage], chunk);
  zp_step_end after = zp_cost_least_stage_end(p, machine, stage, zp_cost_overlapped(&p->choice, &time));
  zp_arena_rewind(costs->arena, mark);
  return (zp_stage_cost){.time = time,
                         .reduce_s = after.reduce_s,
                         .update_s = after.optimizer_s + after.gather_s,
                         .offload_s = after.offload_s,
                         .apart_s = zp_cost_delayed_step(&after)};
}

zp_stage_cost zp_stage_cost_of(zp_stage_costs *costs, const zp_lowered *lowered, int place, int64_t first,
                               int64_t end) {
  int64_t start = zp_stage_canonical(lowered, first, end), stop = start + end - first;
  slot *at = find(costs, lowered, start, stop);
  if (at->lowered) return at->cost;
  if (2 * ++costs->used > costs->n_slots) {
    grow(costs);
    at = find(costs, lowered, start, stop);
  }
  *at = (slot){lowered, start, stop, price(costs, lowered, place, first, end)};
  return at->cost;
}

zp_step_end zp_chunks_cost(zp_arena *arena, const zp_search_cache *s, const zp_choice *choice,
                           const zp_lowered *lowered, int stage, zp_stage_time *time) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  double overlapped = 0;
  const zp_lowered **stages = ZP_NEW_ARRAY(arena, const zp_lowered *, choice->pipeline);
  zp_program p = {.arena = arena, .spec = s->in->spec, .choice = *choice, .lowered = lowered, .stage_lowered = stages};
  p.stages = ZP_NEW_ARRAY(arena, zp_stage, choice->pipeline);
  stages[stage] = lowered;
  zp_layout_stage(arena, lowered, choice, stage, &p.stages[stage]);
  for (int k = 0; k < p.stages[stage].n_chunks; k++) {
    time[k] = zp_cost_chunk(lowered, &s->machine, choice, &p.stages[stage], k);
    overlapped += zp_cost_overlapped(choice, &time[k]);
  }
  zp_step_end end = zp_cost_least_stage_end(&p, &s->machine, stage, overlapped);
  zp_arena_rewind(arena, mark);
  return end;
}

/* The first stage has the first unit and the last stage the last one, whatever the cut. */
double zp_least_ties(zp_arena *arena, const zp_search_cache *s, const zp_point *point) {
  const zp_lowered *l = zp_variant_of(s, point)->lowered;
  zp_stage nothing = {.index = 0}; /* no units: of what such a stage sums, its ties alone */
  zp_program p = {.arena = arena,
                  .spec = s->in->spec,
                  .choice = point->choice,
                  .lowered = l,
                  .stage_lowered = (const zp_lowered *[]){l},
                  .stages = &nothing};
  if (p.choice.pipeline == 1) return 0;
  int first, last;
  int64_t iteration;
  zp_unit(l, 0, &first, &iteration);
  zp_unit(l, l->n_units - 1, &last, &iteration);
  for (int i = 0; i < l->shared.len; i++) {
    if (!l->segments[first].uses_shared[i] || !l->segments[last].uses_shared[i]) continue;
    zp_tied tie = {.param = l->shared.data[i], .summed = zp_tied_elements(l, &p.choice, l->shared.data[i])};
    zp_push(arena, &tie.stages, 0);
    zp_push(arena, &tie.stages, p.choice.pipeline - 1);
    zp_push(arena, &p.tied, tie);
  }
  return zp_cost_cross_sums(&p, &s->machine, &s->machine, 0).ties_s;
}
