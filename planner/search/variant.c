/* Variants: sharded, lowered and priced procedures, each made once. Sharding is by tensor degree and sequence alone
 * (its decisions are priced for micro-batch 1), lowering by these, micro-batch and recomputation. */
#include <math.h>
#include "cost.h"
#include "search_internal.h"

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

static void measure_units(zp_searcher *s, zp_variant *v) {
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
    double seconds = segment->forward.cost_s + segment->backward.cost_s;
    double input = seconds - weight_gradients_s(&segment->backward);
    v->longest_s = fmax(v->longest_s, seconds);
    if (seconds > 0) v->backward_share = fmin(v->backward_share, segment->backward.cost_s / seconds);
    if (segment->carry_out_elements > 0 && segment->carry_out_elements < v->carry_elements)
      v->carry_elements = segment->carry_out_elements;
    v->elements += segment->elements * segment->segment->count;
    v->saved_bytes += segment->saved_bytes * segment->segment->count;
    for (int64_t k = 0; k < segment->segment->count; k++, unit++) {
      v->prefix_s[unit + 1] = v->prefix_s[unit] + seconds;
      v->forward_s[unit + 1] = v->forward_s[unit] + segment->forward.cost_s;
      v->input_s[unit + 1] = v->input_s[unit] + input;
      v->elements_before[unit + 1] = v->elements_before[unit] + segment->elements;
    }
  }
  for (int p = 0; p < s->spec->model->params.len; p++)
    if (s->spec->model->params.data[p].segment < 0) v->elements += l->param_elements[p];
}

int zp_search_variant(zp_searcher *s, const zp_choice *c) {
  for (int i = s->variants.len - 1; i >= 0; i--) { /* the latest are looked for most */
    const zp_variant *v = &s->variants.data[i];
    if (v->tensor == c->tensor && v->sequence == c->sequence && v->microbatch == c->microbatch &&
        v->recompute == c->recompute && v->recompute_shard == c->recompute_shard)
      return v->lowered ? i : -1;
  }
  zp_variant v = {c->tensor, c->sequence, c->microbatch, c->recompute, c->recompute_shard, .lowered = NULL};
  const zp_sharding *sharding = sharding_of(s, c->tensor, c->sequence);
  if (sharding)
    v.lowered = zp_lower(s->arena, s->spec, sharding, c->microbatch, c->recompute, c->recompute_shard, &s->reason);
  if (v.lowered) {
    /* The tensor group's links depend on the tensor degree alone: groups are numbered through all ranks. */
    zp_price(v.lowered, &s->machine, c->tensor, s->machine.devices / c->tensor, 1);
    measure_units(s, &v);
  }
  zp_push(s->arena, &s->variants, v);
  return v.lowered ? s->variants.len - 1 : -1;
}
