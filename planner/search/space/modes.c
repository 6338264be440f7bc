/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages of a point recompute. A stage takes the fastest mode that fits its memory: what the choice of modes
 * decides is what a stage keeps and how long it takes, and no time of the simulation ever shrinks when some stage takes
 * longer. So, where a faster mode is not longer in either direction, nothing else can be better. */
#include <zplan/schedule.h>
#include "fit.h"
#include "procedures.h"

static double work_of(const zp_search_cache *s, int variant) { return s->variants.data[variant].all_s.work; }

/* Fastest first; equally fast ones by what keeps more. */
static void insert_mode(const zp_search_cache *s, zp_point *point, int variant) {
  int at = point->n_modes++;
  for (; at > 0 && work_of(s, variant) < work_of(s, point->modes[at - 1]); at--)
    point->modes[at] = point->modes[at - 1];
  point->modes[at] = variant;
}

bool zp_measure_point(zp_search_cache *s, const zp_choice *choice, zp_mode_set modes, zp_point *point) {
  static const zp_stage_mode keeps_less[] = {ZP_RECOMPUTE_NONE, ZP_RECOMPUTE_SELECTIVE, ZP_RECOMPUTE_FULL,
                                             ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT};
  *point = (zp_point){.choice = *choice, .next = ZP_REFINE_WORK};
  zp_mode_set lowered = 0;
  for (int i = 0; i < ZP_MOST_MODES; i++) {
    zp_mode_set one = zp_set_of_mode(keeps_less[i]);
    int variant = modes & one ? zp_search_variant(s, choice, one) : -1;
    if (variant < 0) continue;
    lowered |= one;
    insert_mode(s, point, variant);
  }
  if (!lowered || (zp_choice_has_modes(choice) && lowered != modes)) return false;
  point->variant = zp_search_variant(s, choice, lowered);
  const zp_variant *v = zp_variant_of(s, point);
  point->work_s = v->all_s.work;
  point->longest_s = v->longest_s;
  point->every_cut = zp_every_chunk_cut(s, point);
  if (zp_choice_has_modes(choice)) return true;
  v = &s->variants.data[point->modes[0]];
  point->choice.recompute = zp_stage_mode_recompute(v->mode);
  point->choice.recompute_shard = zp_stage_mode_split(v->mode);
  return true;
}

void zp_make_point_sums(zp_search_cache *s, const zp_point *point) {
  zp_make_sums(s, point->variant);
  for (int i = 0; i < point->n_modes; i++) zp_make_sums(s, point->modes[i]);
}

bool zp_search_point(zp_search_cache *s, const zp_choice *choice, zp_mode_set modes, zp_point *point) {
  if (!zp_measure_point(s, choice, modes, point)) return false;
  zp_make_point_sums(s, point);
  return true;
}

static bool ordered_on(const zp_search_cache *s, const zp_point *point, zp_node_set types) {
  for (int i = 0; i + 1 < point->n_modes; i++) {
    const zp_lowered *fast = zp_on_types(s, &s->variants.data[point->modes[i]], types)->lowered,
                     *slow = zp_on_types(s, &s->variants.data[point->modes[i + 1]], types)->lowered;
    for (int k = 0; k < fast->n_segments; k++)
      if (fast->segments[k].forward.cost_s > slow->segments[k].forward.cost_s * (1 + ZP_ROUNDING) ||
          fast->segments[k].backward.cost_s > slow->segments[k].backward.cost_s * (1 + ZP_ROUNDING))
        return false;
  }
  return true;
}

bool zp_modes_are_ordered(zp_search_cache *s, const zp_point *point) {
  if (!zp_has_types(s)) return ordered_on(s, point, 0);
  const zp_stage_nodes_memo *nodes = zp_find_stage_nodes(s, &point->choice);
  for (int i = 0; i < nodes->n_sets; i++)
    if (!ordered_on(s, point, nodes->sets[i])) return false;
  return true;
}

/* Index among the modes of the point. */
static int index_of_mode(const zp_search_cache *s, const zp_point *point, zp_stage_mode mode) {
  int i = 0;
  while (s->variants.data[point->modes[i]].mode != mode) i++;
  return i;
}

static int pinned_mode(const zp_search_cache *s, const zp_point *point, int stage) {
  return index_of_mode(s, point, zp_choice_mode(&point->choice, stage));
}

static const zp_variant *variant_of_mode(zp_search_cache *s, const zp_point *point, int mode, int stage) {
  return zp_on_stage(s, &point->choice, &s->variants.data[point->modes[mode]], stage);
}

/* The chunk with the most layers. */
static int64_t most_layers(const zp_point *point, const zp_lowered *lowered, const zp_units *part) {
  int64_t most = 0;
  for (int k = 0; k < zp_chunks(&point->choice); k++) {
    int64_t layers = zp_stage_layers(lowered, part[k].first, part[k].first + part[k].count);
    if (layers > most) most = layers;
  }
  return most;
}

/* What a stage runs whose mix of modes is pinned: one of the two modes where all of its layers are in it. */
static const zp_variant *pinned_variant(zp_search_cache *s, const zp_point *point, int stage, const zp_units *part) {
  const zp_variant *first = variant_of_mode(s, point, pinned_mode(s, point, stage), stage);
  int64_t layers = zp_choice_layers(&point->choice, stage);
  if (layers == ZP_ALL_LAYERS || layers >= most_layers(point, first->lowered, part)) return first;
  const zp_variant *rest = variant_of_mode(s, point, index_of_mode(s, point, point->choice.mix[stage].rest), stage);
  return layers == 0 ? rest : zp_mixed_variant(s, first, rest, layers);
}

static const zp_variant *pinned_that_fits(zp_search_cache *s, const zp_point *point, int stage, const zp_units *part,
                                          const zp_limits *limits) {
  if (point->choice.mix) {
    const zp_variant *own = pinned_variant(s, point, stage, part);
    return zp_lowered_fits(s, point, own->lowered, stage, part, limits) ? own : NULL;
  }
  int first = pinned_mode(s, point, stage);
  int mode = zp_first_mode_that_fits(s, point, first, first + 1, stage, part, limits);
  return mode < 0 ? NULL : variant_of_mode(s, point, mode, stage);
}

const zp_variant *zp_stage_variant(zp_search_cache *s, const zp_point *point, int stage, const zp_units *part,
                                   const zp_limits *limits) {
  if (zp_choice_has_modes(&point->choice)) return pinned_that_fits(s, point, stage, part, limits);
  int mode = zp_first_mode_that_fits(s, point, 0, point->n_modes, stage, part, limits);
  if (mode < 0) return NULL;
  if (mode > 0 && zp_may_mix(s, point)) return zp_fewest_recomputed(s, point, mode, stage, part, limits);
  return variant_of_mode(s, point, mode, stage);
}

bool zp_stage_fits(zp_search_cache *s, const zp_point *point, int stage, const zp_units *part,
                   const zp_limits *limits) {
  if (zp_choice_has_modes(&point->choice)) return pinned_that_fits(s, point, stage, part, limits) != NULL;
  return zp_first_mode_that_fits(s, point, 0, point->n_modes, stage, part, limits) >= 0;
}

bool zp_cut_variants(zp_search_cache *s, const zp_point *point, const zp_limits *limits, const int64_t *cut,
                     const zp_variant **stage) {
  zp_units part[ZP_MOST_CHUNKS];
  for (int i = 0; i < point->choice.pipeline; i++) {
    zp_parts_of_stage(&point->choice, i, cut, part);
    if (point->choice.mix)
      stage[i] = pinned_variant(s, point, i, part);
    else if (point->choice.stage_recompute)
      stage[i] = variant_of_mode(s, point, pinned_mode(s, point, i), i);
    else if (point->n_modes == 1)
      stage[i] = zp_on_stage(s, &point->choice, zp_variant_of(s, point), i);
    else
      stage[i] = zp_stage_variant(s, point, i, part, limits);
    if (!stage[i]) return false;
  }
  return true;
}

static zp_stage_mix *unmixed(zp_search_cache *s, const zp_variant *const *stage, int stages) {
  zp_stage_mix *mix = ZP_NEW_ARRAY(s->arena, zp_stage_mix, stages);
  for (int i = 0; i < stages; i++) mix[i] = (zp_stage_mix){ZP_ALL_LAYERS, stage[i]->mode};
  return mix;
}

zp_choice zp_choice_of_cut(zp_search_cache *s, const zp_point *point, int64_t *cut, const zp_variant *const *stage) {
  zp_choice choice = point->choice;
  zp_stage_mode *modes = ZP_NEW_ARRAY(s->arena, zp_stage_mode, choice.pipeline);
  zp_stage_mix *mix = NULL;
  for (int i = 0; i < choice.pipeline; i++) {
    modes[i] = stage[i]->mode;
    if (!stage[i]->rest) continue;
    if (!mix) mix = unmixed(s, stage, choice.pipeline);
    mix[i] = (zp_stage_mix){stage[i]->layers, stage[i]->rest->mode};
  }
  choice.cut = cut;
  choice.mix = mix;
  zp_choice_set_modes(&choice, modes);
  return choice;
}
