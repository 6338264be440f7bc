/* Variants: sharded, lowered and priced procedures, each made once. Sharding is by tensor groups and sequence alone
 * (its decisions are priced for micro-batch 1), lowering by these, micro-batch and recomputation. In a cluster of
 * several node types there are variants priced on every set of types that a stage stands on, and the variant that a
 * point names is the least of all types. */
#include <math.h>
#include <zplan/cost.h>
#include "fit.h"
#include "procedures.h"

static zp_sharding_try *try_sharding(zp_search_cache *s, const zp_variant *v) {
  zp_tensor_groups *groups = &s->groups.data[v->groups];
  for (int i = 0; i < groups->shardings.len; i++) {
    zp_sharding_try *t = &groups->shardings.data[i];
    if (t->expert == v->expert && t->sequence == v->sequence) return t;
  }
  zp_sharding_try fresh = {.expert = v->expert, .sequence = v->sequence};
  fresh.sharding =
      zp_shard_experts(s->arena, s->in->spec->model, &s->machine, v->tensor, v->expert, v->sequence, &s->reason);
  zp_push(s->arena, &groups->shardings, fresh);
  return &groups->shardings.data[groups->shardings.len - 1];
}

/* Neither modes nor micro-batches change them: all variants of a sharding have the same. */
static void count_elements(zp_search_cache *s, zp_variant *v) {
  const zp_lowered *l = v->lowered;
  zp_sharding_try *t = try_sharding(s, v);
  int64_t **elements = &t->elements_before[v->fine], **spread = &t->spread_before[v->fine];
  if (!*elements) {
    *elements = ZP_NEW_ARRAY(s->arena, int64_t, l->n_units + 1);
    *spread = ZP_NEW_ARRAY(s->arena, int64_t, l->n_units + 1);
    for (int64_t u = 0; u < l->n_units; u++) {
      int segment;
      int64_t iteration;
      zp_unit(l, u, &segment, &iteration);
      (*elements)[u + 1] = (*elements)[u] + l->segments[segment].elements;
      (*spread)[u + 1] = (*spread)[u] + l->segments[segment].spread_elements;
    }
  }
  v->elements_before = *elements;
  v->spread_before = *spread;
}

static double weight_gradients_s(const zp_procedure *backward) {
  double seconds = 0;
  for (int i = 0; i < backward->steps.len; i++)
    if (backward->steps.data[i].deferred) seconds += backward->steps.data[i].cost_s;
  return seconds;
}

/* Seconds of one iteration of a segment or piece; backward by what it yields: gradients of inputs, of weights. */
typedef struct unit_costs {
  double forward_s, inputs_s, weights_s, backward_share;
  int64_t saved_bytes, waiting_bytes, elements, spread_elements;
} unit_costs;

static unit_costs costs_of(const zp_segment_program *segment) {
  double seconds = segment->forward.cost_s + segment->backward.cost_s, weights = weight_gradients_s(&segment->backward);
  return (unit_costs){.forward_s = segment->forward.cost_s,
                      .inputs_s = segment->backward.cost_s - weights,
                      .weights_s = weights,
                      .backward_share = seconds > 0 ? segment->backward.cost_s / seconds : 1,
                      .saved_bytes = segment->saved_bytes,
                      .waiting_bytes = segment->pending_bytes,
                      .elements = segment->elements,
                      .spread_elements = segment->spread_elements};
}

/* The least in everything of several modes. */
static unit_costs least_costs(zp_lowered *const *modes, int n, int segment) {
  unit_costs least = costs_of(&modes[0]->segments[segment]);
  for (int i = 1; i < n; i++) {
    unit_costs c = costs_of(&modes[i]->segments[segment]);
    least.forward_s = fmin(least.forward_s, c.forward_s);
    least.inputs_s = fmin(least.inputs_s, c.inputs_s);
    least.weights_s = fmin(least.weights_s, c.weights_s);
    least.backward_share = fmin(least.backward_share, c.backward_share);
    least.saved_bytes = c.saved_bytes < least.saved_bytes ? c.saved_bytes : least.saved_bytes;
    least.waiting_bytes = c.waiting_bytes < least.waiting_bytes ? c.waiting_bytes : least.waiting_bytes;
  }
  return least;
}

/* ---- units ---- */

/* Costs of the pieces of one segment: [first part][end]. */
typedef struct range_costs {
  int parts;
  unit_costs of[ZP_MOST_PARTS][ZP_MOST_PARTS + 1];
} range_costs;

static double forward_of(const unit_costs *c) { return c->forward_s; }
static double inputs_of(const unit_costs *c) { return c->inputs_s; }
static double weights_of(const unit_costs *c) { return c->weights_s; }
static double saved_of(const unit_costs *c) { return (double)c->saved_bytes; }
static double waiting_of(const unit_costs *c) { return (double)c->waiting_bytes; }
static double elements_of(const unit_costs *c) { return (double)c->elements; }
static double spread_of(const unit_costs *c) { return (double)c->spread_elements; }

/* Gives every part a cost such that no piece costs less than its parts together: the part's own cost, scaled by the
 * largest factor for which that holds. (Pieces may cost more than the layer, where kernels were fused across the cut,
 * or less, where their inputs need not be rebuilt.) One part: its cost. */
static void share_out(const range_costs *r, double (*cost)(const unit_costs *), double *part) {
  double scale = 1;
  for (int first = 0; first < r->parts; first++) {
    double sum = 0;
    for (int end = first + 1; end <= r->parts; end++) {
      sum += cost(&r->of[end - 1][end]);
      if (sum > 0) scale = fmin(scale, cost(&r->of[first][end]) / sum);
    }
  }
  for (int i = 0; i < r->parts; i++) part[i] = scale * cost(&r->of[i][i + 1]);
}

/* Least bytes that a layer saves, over all ways to cut it. */
static int64_t least_saved(const range_costs *r) {
  int64_t least[ZP_MOST_PARTS + 1] = {0};
  for (int end = 1; end <= r->parts; end++) {
    least[end] = INT64_MAX;
    for (int first = 0; first < end; first++) {
      int64_t bytes = least[first] + r->of[first][end].saved_bytes;
      if (bytes < least[end]) least[end] = bytes;
    }
  }
  return least[r->parts];
}

static range_costs costs_of_ranges(zp_variant *v, zp_lowered *const *modes, int n, int segment) {
  const zp_lowered *l = v->lowered;
  range_costs r = {.parts = l->pieces->parts[segment]};
  for (int first = 0; first < r.parts; first++)
    for (int end = first + 1; end <= r.parts; end++) {
      r.of[first][end] = least_costs(modes, n, zp_pieces_find(l->pieces, segment, first, end));
      v->backward_share = fmin(v->backward_share, r.of[first][end].backward_share);
    }
  return r;
}

/* Bounds weigh the three kinds of work differently, so each of them must be the least by itself: no two are the rest of
 * a third. */
static void measure_segment(zp_variant *v, zp_lowered *const *modes, int n, int segment) {
  const zp_lowered *l = v->lowered;
  const zp_segment_program *whole = &l->segments[segment];
  double forward[ZP_MOST_PARTS], inputs[ZP_MOST_PARTS], weights[ZP_MOST_PARTS], saved[ZP_MOST_PARTS],
      waiting[ZP_MOST_PARTS], elements[ZP_MOST_PARTS], spread[ZP_MOST_PARTS], work[ZP_MOST_PARTS];
  range_costs r = costs_of_ranges(v, modes, n, segment);
  share_out(&r, forward_of, forward);
  share_out(&r, inputs_of, inputs);
  share_out(&r, weights_of, weights);
  share_out(&r, saved_of, saved);
  share_out(&r, waiting_of, waiting);
  share_out(&r, elements_of, elements);
  share_out(&r, spread_of, spread);
  for (int part = 0; part < r.parts; part++) work[part] = forward[part] + inputs[part] + weights[part];
  if (whole->carry_out_elements > 0 && whole->carry_out_elements < v->carry_elements)
    v->carry_elements = whole->carry_out_elements;
  v->elements += whole->elements * whole->segment->count;
  v->spread_elements += whole->spread_elements * whole->segment->count;
  int64_t saved_bytes = least_saved(&r) * whole->segment->count;
  v->saved_bytes += saved_bytes;
  if (l->sharding->trained[segment]->loss >= 0) v->saved_for_loss += saved_bytes;
  for (int part = 0; part < r.parts; part++) {
    int piece = zp_pieces_find(l->pieces, segment, part, part + 1);
    v->longest_s = fmax(v->longest_s, work[part]);
    v->part_s[piece] = (zp_part_seconds){work[part], forward[part], forward[part] + inputs[part]};
    v->kept_bytes[piece] = saved[part];
    v->waiting_bytes[piece] = waiting[part];
    v->part_elements[piece] = elements[part];
    v->part_spread[piece] = spread[part];
  }
  for (int first = 0; first < r.parts; first++)
    for (int end = first + 1; end <= r.parts; end++)
      for (int part = first; part < end; part++)
        v->unit_s[zp_pieces_find(l->pieces, segment, first, end)] += work[part];
}

/* Adds up all units, one after another: rounded as what stands in the arrays. These may be NULL. */
static void add_units(zp_variant *v) {
  const zp_pieces *pieces = v->lowered->pieces;
  zp_part_seconds sum = {0};
  int64_t unit = 0;
  for (int i = 0; i < pieces->n_whole; i++) {
    int64_t units = v->lowered->segments[i].segment->count * pieces->parts[i];
    for (int64_t k = 0; k < units; k++) {
      int at = (int)(k % pieces->parts[i]);
      const zp_part_seconds *part = &v->part_s[zp_pieces_find(pieces, i, at, at + 1)];
      sum.work += part->work;
      sum.forward += part->forward;
      sum.input += part->input;
      unit++;
      if (!v->prefix_s) continue;
      v->prefix_s[unit] = sum.work;
      v->forward_s[unit] = sum.forward;
      v->input_s[unit] = sum.input;
    }
  }
  v->all_s = sum;
}

void zp_make_sums(zp_search_cache *s, int variant) {
  zp_variant *v = &s->variants.data[variant];
  if (v->prefix_s) return;
  v->prefix_s = ZP_NEW_ARRAY(s->arena, double, v->lowered->n_units + 1);
  v->forward_s = ZP_NEW_ARRAY(s->arena, double, v->lowered->n_units + 1);
  v->input_s = ZP_NEW_ARRAY(s->arena, double, v->lowered->n_units + 1);
  add_units(v);
}

static void measure_units(zp_search_cache *s, zp_variant *v, zp_lowered *const *modes, int n) {
  const zp_lowered *l = v->lowered;
  v->part_s = ZP_NEW_ARRAY(s->arena, zp_part_seconds, l->n_segments);
  v->unit_s = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->kept_bytes = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->waiting_bytes = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->part_elements = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  v->part_spread = ZP_NEW_ARRAY(s->arena, double, l->n_segments);
  count_elements(s, v);
  v->backward_share = 1;
  v->carry_elements = INT64_MAX;
  for (int i = 0; i < l->pieces->n_whole; i++) measure_segment(v, modes, n, i);
  add_units(v);
  for (int p = 0; p < s->in->spec->model->params.len; p++)
    if (s->in->spec->model->params.data[p].segment < 0)
      *(l->sharding->param[p].spread ? &v->spread_elements : &v->elements) += l->param_elements[p];
}

/* ---- finding ---- */

static bool same_variant(const zp_variant *a, const zp_variant *b) {
  return a->groups == b->groups && a->sequence == b->sequence && a->microbatch == b->microbatch && a->fine == b->fine &&
         a->loss_chunks == b->loss_chunks && a->modes == b->modes && a->types == b->types && a->expert == b->expert &&
         a->expert_stride == b->expert_stride && a->expert_ranks == b->expert_ranks &&
         (a->expert == 1 || zp_same_link(&a->expert_link, &b->expert_link));
}

/* Where the index has a variant, or has room for it. */
static int *slot_of(const zp_search_cache *s, const zp_variant *v) {
  uint64_t key = (uint64_t)v->microbatch * 8191 + (uint64_t)v->groups;
  key = (key * 8191 + (uint64_t)v->expert) * 8191 + (uint64_t)v->expert_stride;
  key = (key * 8191 + (uint64_t)v->expert_link.nodes) * 8191 + (uint64_t)(v->expert_link.bytes_per_s / 1e6);
  key += (uint64_t)(v->loss_chunks - 1) * 524287;
  key = ((key * 127 + v->modes) * 131 + v->types) * 4 + 2 * v->sequence + v->fine;
  size_t mask = (size_t)s->variant_index.len - 1, at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & mask;
  while (s->variant_index.data[at] && !same_variant(&s->variants.data[s->variant_index.data[at] - 1], v))
    at = (at + 1) & mask;
  return &s->variant_index.data[at];
}

static int find_variant(const zp_search_cache *s, const zp_variant *wanted, zp_mode_set modes, zp_node_set types) {
  zp_variant key = *wanted;
  key.modes = modes;
  key.types = types;
  return s->variant_index.len ? *slot_of(s, &key) - 1 : -1;
}

/* Several node types: stages ask for variants that no point names. */
static void add_variant(zp_search_cache *s, const zp_variant *v) {
  zp_push(s->arena, &s->variants, *v);
  if (zp_has_types(s) && v->lowered) zp_make_sums(s, s->variants.len - 1);
  if (2 * s->variants.len > s->variant_index.len) { /* at most half full */
    int slots = s->variant_index.len ? 2 * s->variant_index.len : 256;
    s->variant_index.data = ZP_NEW_ARRAY(s->arena, int, slots);
    s->variant_index.len = s->variant_index.cap = slots;
    for (int i = 0; i + 1 < s->variants.len; i++) *slot_of(s, &s->variants.data[i]) = i + 1;
  }
  *slot_of(s, v) = s->variants.len;
}

/* ---- node types ---- */

static bool same_places(const zp_choice *a, const zp_choice *b) {
  return a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data && a->order == b->order;
}

const zp_places_memo *zp_find_places(zp_search_cache *s, const zp_choice *c) {
  zp_places_memo *memo = &s->memo.places;
  if (memo->known && same_places(&memo->choice, c)) return memo;
  memo->known = true;
  memo->choice = *c;
  memo->n_sets = 0;
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_machine machine = zp_machine_of_stage(&s->machine, c, stage);
    memo->types[stage] = machine.types;
    memo->limits[stage] = zp_machine_limits(s->in, &machine);
    bool seen = false;
    for (int i = 0; i < memo->n_sets; i++) seen |= memo->sets[i] == machine.types;
    if (!seen) memo->sets[memo->n_sets++] = machine.types;
  }
  return memo;
}

const zp_variant *zp_on_types(const zp_search_cache *s, const zp_variant *of_mode, zp_node_set types) {
  if (types == of_mode->types) return of_mode;
  return &s->variants.data[find_variant(s, of_mode, zp_set_of_mode(of_mode->mode), types)];
}

const zp_variant *zp_on_stage(zp_search_cache *s, const zp_choice *c, const zp_variant *of_mode, int stage) {
  return zp_has_types(s) ? zp_on_types(s, of_mode, zp_find_places(s, c)->types[stage]) : of_mode;
}

/* ---- making ---- */

static zp_lowered *lowered_on(zp_search_cache *s, const zp_variant *like, zp_stage_mode mode, zp_node_set types);

/* The procedures for an expert group on another link; on several node types every price may differ. */
static const zp_lowered *lowered_before(const zp_search_cache *s, const zp_sharding_try *t, const zp_variant *v) {
  for (int i = 0; i < t->lowered[v->fine].len && !zp_has_types(s); i++) {
    const zp_lowered *l = t->lowered[v->fine].data[i];
    if (l->microbatch == v->microbatch && l->loss_chunks == v->loss_chunks &&
        l->recompute == zp_stage_mode_recompute(v->mode) && l->recompute_shard == zp_stage_mode_split(v->mode))
      return l;
  }
  return NULL;
}

/* Pieces are added to the procedures of the variant without them. */
static zp_lowered *lower(zp_search_cache *s, const zp_variant *v) {
  const zp_lowered *whole = NULL;
  if (v->fine) {
    zp_variant layers = *v;
    layers.fine = false;
    whole = lowered_on(s, &layers, v->mode, v->types);
    if (!whole) return NULL;
  }
  zp_sharding_try *t = try_sharding(s, v);
  if (!t->sharding) return NULL;
  const zp_lowered *before = lowered_before(s, t, v);
  if (before) return zp_lower_again(s->arena, before, whole);
  zp_lowered *fresh =
      v->fine ? zp_lower_pieces(s->arena, whole, &s->cut_reason)
              : zp_lower_chunked(s->arena, s->in->spec, t->sharding, v->microbatch, zp_stage_mode_recompute(v->mode),
                                 zp_stage_mode_split(v->mode), v->loss_chunks, &s->reason);
  if (fresh) zp_push(s->arena, &t->lowered[v->fine], fresh);
  return fresh;
}

/* Makes the variant of one mode, priced on one set of node types. */
static void make_variant(zp_search_cache *s, zp_variant *v) {
  v->lowered = lower(s, v);
  if (!v->lowered) return;
  if (zp_has_types(s)) {
    zp_machine machine = zp_machine_of_types(&s->machine, v->types);
    zp_choice c = {.tensor = v->tensor, .pipeline = 1, .data = s->machine.devices / v->tensor, .expert = v->expert};
    if (v->expert_stride > v->tensor) { /* ranks of stages lie between those of a group */
      c.order = ZP_ORDER_TPD;
      c.pipeline = v->expert_stride / v->tensor;
      c.data /= c.pipeline;
    }
    zp_price_choice(v->lowered, &machine, &c);
  } else {
    zp_price_links(v->lowered, &s->machine, &s->groups.data[v->groups].link, &v->expert_link);
  }
  measure_units(s, v, &v->lowered, 1);
}

/* NULL when it cannot be lowered. */
static zp_lowered *lowered_on(zp_search_cache *s, const zp_variant *like, zp_stage_mode mode, zp_node_set types) {
  zp_mode_set modes = zp_set_of_mode(mode);
  int known = find_variant(s, like, modes, types);
  if (known >= 0) return s->variants.data[known].lowered;
  zp_variant v = {.tensor = like->tensor,
                  .groups = like->groups,
                  .expert = like->expert,
                  .expert_stride = like->expert_stride,
                  .expert_link = like->expert_link,
                  .expert_ranks = like->expert_ranks,
                  .sequence = like->sequence,
                  .microbatch = like->microbatch,
                  .loss_chunks = like->loss_chunks,
                  .fine = like->fine,
                  .modes = modes,
                  .types = types,
                  .mode = mode};
  make_variant(s, &v);
  add_variant(s, &v);
  return v.lowered;
}

/* Out of the variants of the single modes; of every single node type in use, because nothing is faster than the fastest
 * of these. */
static void make_least(zp_search_cache *s, zp_variant *v) {
  zp_lowered *members[ZP_MOST_MODES * ZP_MOST_NODE_GROUPS];
  int n = 0;
  for (int mode = 0; mode < ZP_STAGE_MODES; mode++) {
    if (!(v->modes & zp_set_of_mode(mode))) continue;
    for (int g = 0; g == 0 || 1u << g <= s->machine.types; g++) {
      if (zp_has_types(s) && !(s->machine.types >> g & 1)) continue;
      zp_lowered *one = lowered_on(s, v, mode, zp_has_types(s) ? 1u << g : 0);
      if (!one) {
        v->lowered = NULL;
        return;
      }
      v->mode = mode;
      v->lowered = members[n++] = one;
      if (!zp_has_types(s)) break;
    }
  }
  measure_units(s, v, members, n);
}

/* The modes on the node types of the choice's stages: other degrees with the same variant stand elsewhere. */
static bool make_places(zp_search_cache *s, const zp_choice *c, const zp_variant *like) {
  const zp_places_memo *places = zp_find_places(s, c);
  for (int mode = 0; mode < ZP_STAGE_MODES; mode++)
    for (int i = 0; like->modes & zp_set_of_mode(mode) && i < places->n_sets; i++)
      if (!lowered_on(s, like, mode, places->sets[i])) return false;
  return true;
}

/* What of a choice procedures and their prices depend on; groups: its tensor groups. */
static zp_variant variant_like(const zp_search_cache *s, const zp_choice *c, int groups) {
  zp_variant v = {.tensor = c->tensor,
                  .groups = groups,
                  .expert = zp_expert_ranks(c),
                  .sequence = c->sequence,
                  .microbatch = c->microbatch,
                  .loss_chunks = zp_loss_chunks(c),
                  .fine = c->fine};
  if (v.expert == 1) return v;
  v.expert_link = zp_machine_expert_group(&s->machine, c->tensor, c->pipeline, c->data, v.expert, c->order);
  if (!zp_has_types(s)) return v;
  v.expert_stride = c->tensor * (c->order == ZP_ORDER_TPD ? c->pipeline : 1);
  v.expert_ranks = s->machine.devices;
  return v;
}

int zp_search_variant(zp_search_cache *s, const zp_choice *c, zp_mode_set modes) {
  zp_variant v = variant_like(s, c, zp_use_groups(s, c->tensor));
  v.modes = modes;
  if (zp_has_types(s) && !make_places(s, c, &v)) return -1;
  int known = find_variant(s, &v, modes, 0);
  if (known >= 0) return s->variants.data[known].lowered ? known : -1;
  while (zp_set_of_mode(v.mode) < modes) v.mode++;
  if (zp_set_of_mode(v.mode) == modes && !zp_has_types(s))
    make_variant(s, &v);
  else
    make_least(s, &v);
  add_variant(s, &v);
  return v.lowered ? s->variants.len - 1 : -1;
}

const zp_lowered **zp_search_stages(zp_search_cache *s, const zp_choice *c) {
  const zp_variant like = variant_like(s, c, zp_find_groups(s, c->tensor));
  const zp_places_memo *places = zp_has_types(s) ? zp_find_places(s, c) : NULL;
  const zp_lowered *of_mode[ZP_STAGE_MODES] = {NULL}; /* on the types of the stage before */
  const zp_lowered **stages = ZP_NEW_ARRAY(s->arena, const zp_lowered *, c->pipeline);
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_stage_mode mode = zp_choice_mode(c, stage);
    zp_node_set types = places ? places->types[stage] : 0;
    if (places && stage > 0 && types != places->types[stage - 1]) memset(of_mode, 0, sizeof of_mode);
    if (!of_mode[mode]) of_mode[mode] = s->variants.data[find_variant(s, &like, zp_set_of_mode(mode), types)].lowered;
    stages[stage] = of_mode[mode];
  }
  return stages;
}
