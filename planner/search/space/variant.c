/* SPDX-License-Identifier: Apache-2.0 */
/* Variants: sharded, lowered and priced procedures, each made once. Sharding is by tensor groups and sequence alone
 * (its decisions are priced for micro-batch 1), lowering by these, micro-batch and recomputation. In a cluster of
 * several node types there are variants priced on every set of types that a stage stands on, and the variant that a
 * point names is the least of all types. */
#include <assert.h>
#include <math.h>
#include <zplan/cost.h>
#include "procedures.h"

static zp_sharding_try *try_sharding(zp_search_cache *s, const zp_variant *v) {
  zp_tensor_groups *groups = &s->groups.data[v->groups];
  for (int i = 0; i < groups->shardings.len; i++) {
    zp_sharding_try *t = &groups->shardings.data[i];
    if (t->expert == v->expert && t->context == v->context && t->context_by == v->context_by &&
        t->sequence == v->sequence)
      return t;
  }
  zp_sharding_try fresh = {
      .expert = v->expert, .context = v->context, .context_by = v->context_by, .sequence = v->sequence};
  const zp_choice divided = {.tensor = v->tensor,
                             .expert = v->expert,
                             .context = v->context,
                             .context_by = v->context_by,
                             .sequence = v->sequence};
  fresh.sharding = zp_shard_choice(s->arena, s->in->spec->model, &s->machine, &divided, &s->reason);
  zp_push(s->arena, &groups->shardings, fresh);
  return &groups->shardings.data[groups->shardings.len - 1];
}

/* Neither modes nor micro-batches change them: all variants of a sharding have the same. */
static void count_elements(zp_search_cache *s, zp_variant *v) {
  const zp_lowered *l = v->lowered;
  zp_sharding_try *t = try_sharding(s, v);
  zp_flat **before = &t->elements_before[v->fine];
  if (!*before) {
    *before = ZP_NEW_ARRAY(s->arena, zp_flat, l->n_units + 1);
    for (int64_t u = 0; u < l->n_units; u++) {
      int segment;
      int64_t iteration;
      zp_unit(l, u, &segment, &iteration);
      (*before)[u + 1] = (*before)[u];
      zp_flat_add(&(*before)[u + 1], &l->segments[segment].elements, 1);
    }
  }
  v->elements_before = *before;
}

/* ---- finding ---- */

static bool same_variant(const zp_variant *a, const zp_variant *b) {
  return a->groups == b->groups && a->sequence == b->sequence && a->microbatch == b->microbatch && a->fine == b->fine &&
         a->loss_chunks == b->loss_chunks && a->modes == b->modes && a->types == b->types && a->expert == b->expert &&
         a->context == b->context && a->context_by == b->context_by && a->expert_stride == b->expert_stride &&
         a->expert_ranks == b->expert_ranks &&
         ((a->expert == 1 && a->context == 1) || zp_same_links(&a->links, &b->links));
}

/* Where the index has a variant, or has room for it. */
static int *slot_of(const zp_search_cache *s, const zp_variant *v) {
  uint64_t key = (uint64_t)v->microbatch * 8191 + (uint64_t)v->groups;
  key = (key * 8191 + (uint64_t)v->expert) * 8191 + (uint64_t)v->expert_stride;
  key = (key * 8191 + (uint64_t)v->links.expert.nodes) * 8191 + (uint64_t)(v->links.expert.bytes_per_s / 1e6);
  key +=
      (uint64_t)(v->loss_chunks - 1) * 524287 + (uint64_t)(v->context - 1) * 131071 + (uint64_t)v->context_by * 65537;
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

const zp_variant *zp_on_types(const zp_search_cache *s, const zp_variant *of_mode, zp_node_set types) {
  if (types == of_mode->types) return of_mode;
  return &s->variants.data[find_variant(s, of_mode, zp_set_of_mode(of_mode->mode), types)];
}

const zp_variant *zp_on_stage(zp_search_cache *s, const zp_choice *c, const zp_variant *of_mode, int stage) {
  return zp_has_types(s) ? zp_on_types(s, of_mode, zp_find_stage_nodes(s, c)->types[stage]) : of_mode;
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

/* Pieces are added to the procedures of the variant without them. Other programs' segments take more than their steps
 * say: no outlines. */
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
  const zp_lowered_list *same = zp_has_types(s) ? NULL : &t->lowered[v->fine];
  const zp_procedures_for what = {.microbatch = v->microbatch,
                                  .mode = v->mode,
                                  .loss_chunks = v->loss_chunks,
                                  .splits = s->in->splits,
                                  .outline = s->machine.cluster->software ? NULL : s->steps};
  zp_lowered *fresh = v->fine ? zp_lower_pieces(s->arena, whole, same, &s->cut_reason)
                              : zp_lower_for(s->arena, s->in->spec, t->sharding, &what, same, &s->reason);
  if (fresh) zp_push(s->arena, &t->lowered[v->fine], fresh);
  return fresh;
}

static void price(zp_search_cache *s, const zp_variant *v) {
  if (zp_has_types(s)) {
    zp_machine machine = zp_machine_of_types(&s->machine, v->types);
    zp_choice c = {.tensor = v->tensor,
                   .pipeline = 1,
                   .data = s->machine.devices / v->tensor,
                   .expert = v->expert,
                   .context = v->context};
    if (v->expert_stride > v->tensor) { /* ranks of stages lie between those of a group */
      c.order = ZP_ORDER_TPD;
      c.pipeline = v->expert_stride / v->tensor;
      c.data /= c.pipeline;
    }
    zp_price_choice(v->lowered, &machine, &c);
  } else {
    zp_price_links(v->lowered, &s->machine, &s->groups.data[v->groups].link, &v->links);
  }
  if (v->lowered->outline) zp_pack_outline(s->arena, v->lowered);
}

/* Makes the variant of one mode, priced on one set of node types. */
static void make_variant(zp_search_cache *s, zp_variant *v) {
  s->work += ZP_VARIANT_WORK;
  zp_arena_mark mark = zp_arena_get_mark(s->steps);
  v->lowered = lower(s, v);
  if (v->lowered) price(s, v);
  zp_arena_rewind(s->steps, mark);
  if (!v->lowered) return;
  count_elements(s, v);
  zp_measure_units(s, v, &v->lowered, 1);
}

/* NULL when it cannot be lowered. */
static zp_lowered *lowered_on(zp_search_cache *s, const zp_variant *like, zp_stage_mode mode, zp_node_set types) {
  zp_mode_set modes = zp_set_of_mode(mode);
  int known = find_variant(s, like, modes, types);
  if (known >= 0) return s->variants.data[known].lowered;
  zp_variant v = {.tensor = like->tensor,
                  .groups = like->groups,
                  .expert = like->expert,
                  .context = like->context,
                  .context_by = like->context_by,
                  .expert_stride = like->expert_stride,
                  .links = like->links,
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
  count_elements(s, v);
  zp_measure_units(s, v, members, n);
}

/* The modes on the node types of the choice's stages: other degrees with the same variant stand elsewhere. */
static bool lower_on_nodes(zp_search_cache *s, const zp_choice *c, const zp_variant *like) {
  const zp_stage_nodes_memo *nodes = zp_find_stage_nodes(s, c);
  for (int mode = 0; mode < ZP_STAGE_MODES; mode++)
    for (int i = 0; like->modes & zp_set_of_mode(mode) && i < nodes->n_sets; i++)
      if (!lowered_on(s, like, mode, nodes->sets[i])) return false;
  return true;
}

const zp_exchange_links *zp_links_of_exchanges(zp_search_cache *s, const zp_choice *c) {
  zp_exchange_memo *memo = &s->memo.exchanges;
  if (!memo->known || !zp_same_degrees(&memo->choice, c))
    *memo = (zp_exchange_memo){true, *c, zp_exchange_links_of(&s->machine, c)};
  return &memo->links;
}

/* What of a choice procedures and their prices depend on; groups: its tensor groups. */
static zp_variant variant_like(zp_search_cache *s, const zp_choice *c, int groups) {
  zp_variant v = {.tensor = c->tensor,
                  .groups = groups,
                  .expert = zp_expert_ranks(c),
                  .context = zp_context_ranks(c),
                  .context_by = c->context_by,
                  .sequence = c->sequence,
                  .microbatch = c->microbatch,
                  .loss_chunks = zp_loss_chunks(c),
                  .fine = c->fine};
  if (!zp_choice_exchanges(c)) return v;
  v.links = *zp_links_of_exchanges(s, c);
  if (!zp_has_types(s)) return v;
  v.expert_stride = c->tensor * (c->order == ZP_ORDER_TPD ? c->pipeline : 1);
  v.expert_ranks = s->machine.devices;
  return v;
}

int zp_search_variant(zp_search_cache *s, const zp_choice *c, zp_mode_set modes) {
  zp_variant v = variant_like(s, c, zp_use_groups(s, c->tensor));
  v.modes = modes;
  if (zp_has_types(s) && !lower_on_nodes(s, c, &v)) return -1;
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

static const zp_variant *find_of_mode(const zp_search_cache *s, const zp_variant *like, zp_stage_mode mode,
                                      zp_node_set types) {
  return &s->variants.data[find_variant(s, like, zp_set_of_mode(mode), types)];
}

const zp_lowered **zp_search_stages(zp_search_cache *s, const zp_choice *c) {
  const zp_variant like = variant_like(s, c, zp_find_groups(s, c->tensor));
  const zp_stage_nodes_memo *nodes = zp_has_types(s) ? zp_find_stage_nodes(s, c) : NULL;
  const zp_lowered *of_mode[ZP_STAGE_MODES] = {NULL}; /* on the types of the stage before */
  const zp_lowered **stages = ZP_NEW_ARRAY(s->arena, const zp_lowered *, c->pipeline);
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_stage_mode mode = zp_choice_mode(c, stage);
    zp_node_set types = nodes ? nodes->types[stage] : 0;
    if (nodes && stage > 0 && types != nodes->types[stage - 1]) memset(of_mode, 0, sizeof of_mode);
    if (!of_mode[mode]) of_mode[mode] = find_of_mode(s, &like, mode, types)->lowered;
    stages[stage] = of_mode[mode];
    if (zp_choice_layers(c, stage) == ZP_ALL_LAYERS) continue;
    const zp_variant *first = find_of_mode(s, &like, mode, types),
                     *rest = find_of_mode(s, &like, c->mix[stage].rest, types);
    stages[stage] = zp_mixed_variant(s, first, rest, zp_choice_layers(c, stage))->lowered;
  }
  return stages;
}

/* ---- on other links ---- */

/* Several node types: every price may differ. Other programs' prices are not sums of steps. */
bool zp_may_price_again(const zp_search_cache *s) { return !zp_has_types(s) && !s->machine.cluster->software; }

void zp_price_variant_again(zp_search_cache *s, const zp_choice *choice, int variant, zp_variant *v) {
  assert(zp_may_price_again(s) && zp_choice_exchanges(choice));
  const zp_variant *known = &s->variants.data[variant];
  const zp_exchange_links *links = zp_links_of_exchanges(s, choice);
  zp_lowered *members[ZP_MOST_MODES];
  int n = 0;
  for (int mode = 0; mode < ZP_STAGE_MODES; mode++) {
    if (!(known->modes & zp_set_of_mode(mode))) continue;
    members[n] = zp_lower_again(s->arena, find_of_mode(s, known, mode, 0)->lowered, NULL);
    zp_price_links(members[n++], &s->machine, &s->groups.data[known->groups].link, links);
  }
  s->work += n * ZP_VARIANT_WORK; /* as if they were made: budgets do not depend on what is known */
  *v = (zp_variant){.fine = known->fine, .modes = known->modes, .lowered = members[n - 1]};
  zp_measure_units(s, v, members, n);
}
