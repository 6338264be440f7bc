/* Variants: sharded, lowered and priced procedures, each made once. Sharding is by tensor degree alone (its decisions
 * are priced for micro-batch 1), lowering by tensor degree, micro-batch and recomputation. */
#include <math.h>
#include "cost.h"
#include "search_internal.h"

static const zp_sharding *sharding_of(zp_searcher *s, int tensor) {
  if (!s->sharding_tried[tensor]) {
    s->sharding_tried[tensor] = true;
    s->sharding[tensor] = zp_shard(s->arena, s->spec->model, &s->machine, tensor, 1, &s->reason);
  }
  return s->sharding[tensor];
}

static void measure_units(zp_searcher *s, zp_variant *v) {
  const zp_lowered *l = v->lowered;
  int64_t unit = 0;
  v->prefix_s = ZP_NEW_ARRAY(s->arena, double, l->n_units + 1);
  v->forward_s = ZP_NEW_ARRAY(s->arena, double, l->n_units + 1);
  v->backward_share = 1;
  v->carry_elements = INT64_MAX;
  for (int i = 0; i < l->n_segments; i++) {
    const zp_segment_program *segment = &l->segments[i];
    double seconds = segment->forward.cost_s + segment->backward.cost_s;
    v->longest_s = fmax(v->longest_s, seconds);
    if (seconds > 0) v->backward_share = fmin(v->backward_share, segment->backward.cost_s / seconds);
    if (segment->carry_out_elements > 0 && segment->carry_out_elements < v->carry_elements)
      v->carry_elements = segment->carry_out_elements;
    v->elements += segment->elements * segment->segment->count;
    for (int64_t k = 0; k < segment->segment->count; k++, unit++) {
      v->prefix_s[unit + 1] = v->prefix_s[unit] + seconds;
      v->forward_s[unit + 1] = v->forward_s[unit] + segment->forward.cost_s;
    }
  }
  for (int p = 0; p < s->spec->model->params.len; p++)
    if (s->spec->model->params.data[p].segment < 0) v->elements += l->param_elements[p];
}

int zp_search_variant(zp_searcher *s, int tensor, int64_t microbatch, zp_recompute recompute, bool recompute_shard) {
  for (int i = 0; i < s->variants.len; i++) {
    const zp_variant *v = &s->variants.data[i];
    if (v->tensor == tensor && v->microbatch == microbatch && v->recompute == recompute &&
        v->recompute_shard == recompute_shard)
      return v->lowered ? i : -1;
  }
  zp_variant v = {tensor, microbatch, recompute, recompute_shard, .lowered = NULL};
  const zp_sharding *sharding = sharding_of(s, tensor);
  if (sharding) v.lowered = zp_lower(s->arena, s->spec, sharding, microbatch, recompute, recompute_shard, &s->reason);
  if (v.lowered) {
    /* The tensor group's links depend on the tensor degree alone: groups are numbered through all ranks. */
    zp_price(v.lowered, &s->machine, tensor, s->machine.devices / tensor, 1);
    measure_units(s, &v);
  }
  zp_push(s->arena, &s->variants, v);
  return v.lowered ? s->variants.len - 1 : -1;
}
