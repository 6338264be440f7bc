/* Variants: sharded, lowered and priced procedures, each made once. Sharding is by tensor degree and sequence alone
 * (its decisions are priced for micro-batch 1), lowering by these, micro-batch and recomputation. In a cluster of
 * several node types prices are those of the types that a stage stands on, and the point's own variant is the least of
 * all types. */
#include <math.h>
#include "cost.h"
#include "search_internal.h"

static bool has_types(const zp_searcher *s) { return s->machine.cluster->groups.len > 0; }

static const zp_sharding *sharding_of(zp_searcher *s, int tensor, bool sequence) {
  int i = 2 * tensor + sequence;
  if (!s->sharding_tried[i]) {
    s->sharding_tried[i] = true;
    s->sharding[i] = zp_shard(s->arena, s->spec->model, &s->machine, tensor, 1, sequence, &s->reason);
  }
  return s->sharding[i];
}

static double weight_gradients_s(const zp_procedure *backward) {
  double seconds = 0;
  for (int i = 0; i < backward->steps.len; i++)
    if (zp_step_is_weight_gradient(&backward->steps.data[i])) seconds += backward->steps.data[i].cost_s;
  return seconds;
}

/* Of one unit of a segment. */
typedef struct unit_costs {
  double forward_s, backward_s, input_s, backward_share;
  int64_t saved_bytes;
} unit_costs;

static unit_costs costs_of(const zp_segment_program *segment) {
  double seconds = segment->forward.cost_s + segment->backward.cost_s;
  return (unit_costs){.forward_s = segment->forward.cost_s,
                      .backward_s = segment->backward.cost_s,
                      .input_s = seconds - weight_gradients_s(&segment->backward),
                      .backward_share = seconds > 0 ? segment->backward.cost_s / seconds : 1,
                      .saved_bytes = segment->saved_bytes};
}

/* The least in everything of several modes. */
static unit_costs least_costs(zp_lowered *const *modes, int n, int segment) {
  unit_costs least = costs_of(&modes[0]->segments[segment]);
  for (int i = 1; i < n; i++) {
    unit_costs c = costs_of(&modes[i]->segments[segment]);
    least.forward_s = fmin(least.forward_s, c.forward_s);
    least.backward_s = fmin(least.backward_s, c.backward_s);
    least.input_s = fmin(least.input_s, c.input_s);
    least.backward_share = fmin(least.backward_share, c.backward_share);
    least.saved_bytes = c.saved_bytes < least.saved_bytes ? c.saved_bytes : least.saved_bytes;
  }
  return least;
}

static void measure_units(zp_searcher *s, zp_variant *v, zp_lowered *const *modes, int n) {
  const zp_lowered *l = v->lowered;
  int64_t unit = 0;
  v->prefix_s = ZP_NEW_ARRAY(s->arena, double, l->n_units + 1);
  v->forward_s = ZP_NEW_ARRAY(s->arena, double, l->n_units + 1);
  v->input_s = ZP_NEW_ARRAY(s->arena, double, l->n_units + 1);
  v->elements_before = ZP_NEW_ARRAY(s->arena, int64_t, l->n_units + 1);
  v->backward_share = 1;
  v->carry_elements = INT64_MAX;
  for (int i = 0; i < l->n_segments; i++) {
    const zp_segment_program *segment = &l->segments[i];
    unit_costs cost = least_costs(modes, n, i);
    double seconds = cost.forward_s + cost.backward_s;
    v->longest_s = fmax(v->longest_s, seconds);
    v->backward_share = fmin(v->backward_share, cost.backward_share);
    if (segment->carry_out_elements > 0 && segment->carry_out_elements < v->carry_elements)
      v->carry_elements = segment->carry_out_elements;
    v->elements += segment->elements * segment->segment->count;
    v->saved_bytes += cost.saved_bytes * segment->segment->count;
    for (int64_t k = 0; k < segment->segment->count; k++, unit++) {
      v->prefix_s[unit + 1] = v->prefix_s[unit] + seconds;
      v->forward_s[unit + 1] = v->forward_s[unit] + cost.forward_s;
      v->input_s[unit + 1] = v->input_s[unit] + cost.input_s;
      v->elements_before[unit + 1] = v->elements_before[unit] + segment->elements;
    }
  }
  for (int p = 0; p < s->spec->model->params.len; p++)
    if (s->spec->model->params.data[p].segment < 0) v->elements += l->param_elements[p];
}

static int find_variant(const zp_searcher *s, const zp_choice *c, zp_stage_mode mode, bool mixed, zp_node_set types) {
  for (int i = s->variants.len - 1; i >= 0; i--) { /* the latest are looked for most */
    const zp_variant *v = &s->variants.data[i];
    if (v->tensor == c->tensor && v->sequence == c->sequence && v->microbatch == c->microbatch && v->mixed == mixed &&
        v->types == types && (mixed || v->mode == mode))
      return i;
  }
  return -1;
}

static int made(zp_searcher *s, const zp_variant *v) {
  zp_push(s->arena, &s->variants, *v);
  return v->lowered ? s->variants.len - 1 : -1;
}

/* One mode on one set of node types. */
static int variant_of_mode(zp_searcher *s, const zp_choice *c, zp_stage_mode mode, zp_node_set types) {
  int known = find_variant(s, c, mode, false, types);
  if (known >= 0) return s->variants.data[known].lowered ? known : -1;
  zp_variant v = {
      .tensor = c->tensor, .sequence = c->sequence, .microbatch = c->microbatch, .mode = mode, .types = types};
  const zp_sharding *sharding = sharding_of(s, c->tensor, c->sequence);
  if (sharding)
    v.lowered = zp_lower(s->arena, s->spec, sharding, c->microbatch, zp_stage_mode_recompute(mode),
                         zp_stage_mode_split(mode), &s->reason);
  if (v.lowered) {
    /* The tensor group's links depend on the tensor degree alone: groups are numbered through all ranks. */
    zp_machine machine = has_types(s) ? zp_machine_of_types(&s->machine, types) : s->machine;
    zp_price(v.lowered, &machine, c->tensor, s->machine.devices / c->tensor, 1);
    measure_units(s, &v, &v.lowered, 1);
  }
  return made(s, &v);
}

static zp_node_set types_of_stage(const zp_searcher *s, const zp_choice *c, int stage) {
  return zp_machine_of_stage(&s->machine, c, stage).types;
}

/* Every stage's own variant, and of its mode those of every single node type in use: nothing is faster than the fastest
 * of these, so that their least bounds all. False when one cannot be made. */
static bool make_members(zp_searcher *s, const zp_choice *c, zp_lowered **members, int *n) {
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_stage_mode mode = zp_choice_mode(c, stage);
    if (variant_of_mode(s, c, mode, types_of_stage(s, c, stage)) < 0) return false;
    bool again = false;
    for (int k = 0; k < stage; k++) again |= zp_choice_mode(c, k) == mode;
    for (int g = 0; !again && 1u << g <= s->machine.types; g++) {
      if (!(s->machine.types >> g & 1)) continue;
      int one = variant_of_mode(s, c, mode, 1u << g);
      if (one < 0) return false;
      members[(*n)++] = s->variants.data[one].lowered;
    }
  }
  return true;
}

int zp_search_variant(zp_searcher *s, const zp_choice *c) {
  if (!c->stage_recompute && !has_types(s)) return variant_of_mode(s, c, zp_choice_mode(c, 0), s->machine.types);
  bool mixed = c->stage_recompute != NULL;
  int n = 0;
  zp_lowered **members = ZP_NEW_ARRAY(s->arena, zp_lowered *, ZP_STAGE_MODES * ZP_MOST_NODE_GROUPS);
  bool possible = make_members(s, c, members, &n); /* of a known one, too: other degrees have other stages */
  int known = find_variant(s, c, zp_choice_mode(c, 0), mixed, 0);
  if (known >= 0) return possible ? known : -1;
  zp_variant v = {.tensor = c->tensor,
                  .sequence = c->sequence,
                  .microbatch = c->microbatch,
                  .mode = zp_choice_mode(c, 0),
                  .mixed = mixed};
  if (possible) {
    v.lowered = members[0];
    measure_units(s, &v, members, n);
  }
  return made(s, &v);
}

/* ---- stages ---- */

static bool same_stages(const zp_choice *a, const zp_choice *b) {
  return a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data && a->order == b->order &&
         a->microbatch == b->microbatch && a->sequence == b->sequence && a->recompute == b->recompute &&
         a->recompute_shard == b->recompute_shard && a->stage_recompute == b->stage_recompute;
}

/* Variants and limits of all stages of a choice, kept while the choice stays the same: groups of many ranks are slow to
 * look through. */
static const zp_search_memo *stages_of(const zp_searcher *s, const zp_choice *c) {
  zp_search_memo *memo = s->memo;
  if (memo->stages_known && same_stages(&memo->stages_choice, c)) return memo;
  memo->stages_known = true;
  memo->stages_choice = *c;
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_machine machine = zp_machine_of_stage(&s->machine, c, stage);
    memo->stage_variant[stage] = find_variant(s, c, zp_choice_mode(c, stage), false, machine.types);
    memo->stage_limits[stage] = zp_machine_limits(s, &machine);
  }
  return memo;
}

const zp_variant *zp_stage_variant(const zp_searcher *s, const zp_point *point, int stage) {
  if (!has_types(s)) return zp_variant_of(s, point);
  return &s->variants.data[stages_of(s, &point->choice)->stage_variant[stage]];
}

zp_limits zp_stage_limits(const zp_searcher *s, const zp_point *point, int stage) {
  return stages_of(s, &point->choice)->stage_limits[stage];
}

static const zp_lowered *lowered_of_mode(const zp_searcher *s, const zp_choice *c, zp_stage_mode mode) {
  return s->variants.data[find_variant(s, c, mode, false, s->machine.types)].lowered;
}

const zp_lowered *zp_search_lowered(const zp_searcher *s, const zp_point *point, int stage) {
  const zp_choice *c = &point->choice;
  if (has_types(s)) return zp_stage_variant(s, point, stage)->lowered;
  return c->stage_recompute ? lowered_of_mode(s, c, c->stage_recompute[stage]) : zp_variant_of(s, point)->lowered;
}

const zp_lowered **zp_search_stages(const zp_searcher *s, const zp_choice *c) {
  const zp_lowered *of_mode[ZP_STAGE_MODES] = {NULL};
  const zp_lowered **stages = ZP_NEW_ARRAY(s->arena, const zp_lowered *, c->pipeline);
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_stage_mode mode = zp_choice_mode(c, stage);
    if (has_types(s)) {
      stages[stage] = s->variants.data[stages_of(s, c)->stage_variant[stage]].lowered;
      continue;
    }
    if (!of_mode[mode]) of_mode[mode] = lowered_of_mode(s, c, mode);
    stages[stage] = of_mode[mode];
  }
  return stages;
}
